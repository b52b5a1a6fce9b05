"""A whole file that is not the published one, with right checksums in it: no reader hands out a record of it."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prepared_samples import prepare
from test_shard_formats_published import prepare_as

import registry
from registry.api import Catalog
from registry.cli.main import run
from registry.errors import CorruptRecordError, ShardMismatchError, VerificationError
from registry.slim import Dataset as SlimDataset
from registry.slim import DatasetDataProvider

COUNT, SHARDS = 40, 4
FIRST, SECOND = (f"animals-train.tfrecord-{index:05}-of-00004" for index in (0, 1))


def same_sizes(count: int, start: int = 10) -> list[dict[str, Any]]:
    """Animals whose records are all of one length."""
    return [{"name": f"animal {number}", "kind": number % 2, "age": number} for number in range(start, start + count)]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """``animals:1.0.0`` and ``2.0.0``, whose shards are of equal sizes and hold other records."""
    with registry.connect(tmp_path / "catalog.db") as opened:
        data = Path(str(opened.data_dir))
        for version, start in (("1.0.0", 10), ("2.0.0", 50)):
            prepare(data / "animals" / version, version, {"train": same_sizes(COUNT, start)}, shards=SHARDS)
            opened.publish(data / "animals" / version)
        yield opened


@pytest.fixture
def folder(catalog: Catalog) -> Path:
    return Path(str(catalog.data_dir)) / "animals" / "1.0.0"


def swap(folder: Path) -> None:
    """The first two shards change their names."""
    (folder / FIRST).rename(folder / "aside")
    (folder / SECOND).rename(folder / FIRST)
    (folder / "aside").rename(folder / SECOND)


def take_other_version(folder: Path) -> None:
    """The first shard comes from version 2.0.0."""
    shutil.copy2(folder.parent / "2.0.0" / FIRST, folder / FIRST)


def copy_record(folder: Path, source: int, target: int) -> None:
    """One record of the first file is copied over another one, with its checksums."""
    content = bytearray((folder / FIRST).read_bytes())
    length = len(content) // (COUNT // SHARDS)
    content[target * length : (target + 1) * length] = content[source * length : (source + 1) * length]
    (folder / FIRST).write_bytes(content)


def copy_record_over(folder: Path) -> None:
    """The first record of a file is copied over the second one, with its checksums."""
    copy_record(folder, 0, 1)


def rewrite_with_times_kept(folder: Path) -> None:
    """The file is rewritten in place; its size and times are as before."""
    facts = (folder / FIRST).stat()
    (folder / FIRST).write_bytes((folder / SECOND).read_bytes())
    os.utime(folder / FIRST, ns=(facts.st_atime_ns, facts.st_mtime_ns))


WRONG = [swap, take_other_version, copy_record_over, rewrite_with_times_kept]


def read_columns(dataset: Any) -> Any:
    return dataset.read("train").to_numpy()


def read_slim(dataset: Any) -> Any:
    described = SlimDataset.from_version(dataset, "train")
    provider = DatasetDataProvider(described, num_epochs=1, shuffle=False)
    return [provider.get(["age"]) for _ in range(COUNT)]


READS: dict[str, Callable[[Any], Any]] = {
    "examples": lambda dataset: list(dataset.read("train")),
    "records": lambda dataset: list(dataset.read("train").records()),
    "batches": lambda dataset: list(dataset.read("train").batches(7)),
    "all at once": read_columns,
    "one by its number": lambda dataset: dataset.read("train", registry.ReadConfig(interleave_cycle_length=1))[1],
    "some by their numbers": lambda dataset: dataset.read("train")[[1, 11, 21, 31]],
    "shuffled": lambda dataset: list(dataset.read("train", registry.ReadConfig(shuffle="global", seed=3))),
    "without checksums": lambda dataset: list(dataset.read("train", verify="off")),
    "views": lambda dataset: list(dataset.read("train", copy=False)),
    "after pickling": lambda dataset: list(pickle.loads(pickle.dumps(dataset.read("train")))),  # noqa: S301 (our own)
    "slim": read_slim,
}


@pytest.mark.parametrize("way", READS)
@pytest.mark.parametrize("make_wrong", WRONG)
def test_no_way_of_reading_hands_out_a_record_of_a_wrong_file(
    catalog: Catalog, folder: Path, make_wrong: Callable[[Path], None], way: str
) -> None:
    make_wrong(folder)
    with pytest.raises(ShardMismatchError, match="its sha256 is not the promised one"):
        READS[way](catalog.dataset("animals:1.0.0"))


@pytest.mark.parametrize("make_wrong", WRONG)
def test_load_and_the_command_line_refuse_a_wrong_file(
    catalog: Catalog,
    folder: Path,
    make_wrong: Callable[[Path], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_wrong(folder)
    with pytest.raises(ShardMismatchError):
        list(registry.load("animals:1.0.0", split="train", catalog=catalog))
    code = run(["read", "animals:1.0.0", "train", "--catalog", str(tmp_path / "catalog.db"), "--format", "json"])
    assert code == 5
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "shard_mismatch"


@pytest.mark.parametrize("make_wrong", [swap, take_other_version, rewrite_with_times_kept])
def test_a_pin_is_not_read_from_a_wrong_file(
    catalog: Catalog, folder: Path, make_wrong: Callable[[Path], None], tmp_path: Path
) -> None:
    catalog.dataset("animals:1.0.0").pin("train[3:9]").save(tmp_path / "paper.lock.yaml")
    make_wrong(folder)
    pins = registry.load_pin(tmp_path / "paper.lock.yaml", data_dir=catalog.data_dir)
    with pytest.raises(VerificationError) as caught:
        list(pins["train"].read())
    assert caught.value.exit_code == 5


def read_pin_by_slim(pin: Any) -> Any:
    return DatasetDataProvider(SlimDataset.from_version(pin), num_epochs=1, shuffle=False).get(["age"])


PIN_READS: dict[str, Callable[[Any], Any]] = {
    "pin": lambda pin: list(pin.read()),
    "locked": lambda _: list(registry.load("animals:1.0.0", split="train[3:7]")),
    "slim": read_pin_by_slim,
}


@pytest.mark.parametrize("way", PIN_READS)
def test_a_pin_is_not_read_where_a_record_beside_the_three_that_it_names_is_another_one(
    catalog: Catalog, folder: Path, tmp_path: Path, way: str
) -> None:
    catalog.dataset("animals:1.0.0").pin("train[3:9]").save(tmp_path / "paper.lock.yaml")
    copy_record(folder, 4, 5)  # of 3 to 8, of which the pin names 3, 6 and 8
    pins = registry.load_pin(tmp_path / "paper.lock.yaml", data_dir=catalog.data_dir)
    with (
        registry.locked(tmp_path / "paper.lock.yaml", data_dir=catalog.data_dir),
        pytest.raises(ShardMismatchError, match="its sha256 is not the promised one") as caught,
    ):
        PIN_READS[way](pins["train"])
    assert caught.value.hint == (
        "This is not the file that was pinned. `registry pin verify FILE` says what differs, and "
        "`registry pin restore FILE` gets the pinned files."
    )


def test_a_pin_is_read_from_another_file_that_holds_all_its_records(
    catalog: Catalog, folder: Path, tmp_path: Path
) -> None:
    """As ``registry pin verify`` says: what is pinned are the records, and these are as they were."""
    catalog.dataset("animals:1.0.0").pin("train[3:9]").save(tmp_path / "paper.lock.yaml")
    copy_record(folder, 0, 1)
    pin = registry.load_pin(tmp_path / "paper.lock.yaml", data_dir=catalog.data_dir)["train"]
    assert pin.verify().faults == ()
    assert [int(example["age"]) for example in pin.read()] == list(range(13, 19))


def test_the_error_says_which_file_what_was_expected_and_what_to_do(catalog: Catalog, folder: Path) -> None:
    first, second = (shard.sha256 for shard in catalog.shards(catalog.dataset("animals:1.0.0").details, "train")[:2])
    swap(folder)
    with pytest.raises(ShardMismatchError) as caught:
        list(catalog.dataset("animals:1.0.0").read("train"))
    error = caught.value
    assert error.message == f"{folder / FIRST}: its sha256 is not the promised one: expected {first}, found {second}"
    assert error.hint == (
        "This is not the file that was published. `registry verify animals:1.0.0` names every such shard. "
        "Fetch them again, or build them again: registry build animals:1.0.0 --rebuild"
    )
    assert error.details == {"path": str(folder / FIRST), "expected_sha256": first, "found_sha256": second}
    assert (error.code, error.exit_code) == ("shard_mismatch", 5)


def test_a_damaged_record_is_still_named(catalog: Catalog, folder: Path) -> None:
    content = bytearray((folder / FIRST).read_bytes())
    content[-20] ^= 1
    (folder / FIRST).write_bytes(content)
    with pytest.raises(CorruptRecordError) as caught:
        list(catalog.dataset("animals:1.0.0").read("train"))
    assert (caught.value.details["record"], caught.value.details["path"]) == (9, str(folder / FIRST))


@pytest.mark.parametrize("file_format", ["array_record", "parquet"])
def test_files_of_other_formats_are_proved_alike(tmp_path: Path, file_format: str) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.publish(prepare_as(tmp_path / "1.0.0", file_format))
        dataset = catalog.dataset("animals")
        folder = Path(dataset.folder.removeprefix("file://"))
        assert len(list(dataset.read("train"))) == 50
        first, second = sorted(folder.glob(f"*.{file_format}-*"))[:2]
        content = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(content)
        with pytest.raises(ShardMismatchError, match="its sha256 is not the promised one"):
            list(dataset.read("train"))


def test_gzip_shards_are_proved_alike(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.publish(prepare(tmp_path / "1.0.0", splits={"train": same_sizes(COUNT)}, shards=SHARDS, compress=True))
        dataset = catalog.dataset("animals")
        assert len(list(dataset.read("train"))) == COUNT
        swap(Path(dataset.folder.removeprefix("file://")))
        with pytest.raises(ShardMismatchError, match="its sha256 is not the promised one"):
            list(dataset.read("train"))
