"""A whole file that is not the published one, with right checksums in it: no reader hands out a record of it."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from end_to_end.test_shard_formats_published import prepare_as
from support import warm_python
from support.levels import cases, either
from support.prepared_samples import prepare

import registry
from registry.api import Catalog
from registry.cli.main import run
from registry.errors import CorruptRecordError, ShardMismatchError, VerificationError
from registry.pins.restore import restore
from registry.slim import Dataset as SlimDataset
from registry.slim import DatasetDataProvider

COUNT, SHARDS = 40, 4
FIRST, SECOND = (f"animals-train.tfrecord-{index:05}-of-00004" for index in (0, 1))


def same_sizes(count: int, start: int = 10) -> list[dict[str, Any]]:
    """Animals with records of equal length."""
    return [{"name": f"animal {number}", "kind": number % 2, "age": number} for number in range(start, start + count)]


def publish_animals(place: Path) -> Path:
    """Publish ``animals:1.0.0`` and ``2.0.0`` below a folder, with shards of equal size and different records."""
    with registry.connect(place / "catalog.db") as opened:
        for version, start in (("1.0.0", 10), ("2.0.0", 50)):
            folder = place / "datasets/animals" / version
            opened.publish(prepare(folder, version, {"train": same_sizes(COUNT, start)}, shards=SHARDS))
    return place


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_animals(tmp_path_factory.mktemp("published"))


@pytest.fixture
def catalog(published: Path, tmp_path: Path) -> Iterator[Catalog]:
    """A copy of these animals: a catalog and its data move together."""
    shutil.copytree(published, tmp_path, dirs_exist_ok=True)
    with registry.connect(tmp_path / "catalog.db") as opened:
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
@pytest.mark.parametrize("make_wrong", cases(WRONG, everyday=2))
def test_no_way_of_reading_hands_out_a_record_of_a_wrong_file(
    catalog: Catalog, folder: Path, make_wrong: Callable[[Path], None], way: str
) -> None:
    make_wrong(folder)
    with pytest.raises(ShardMismatchError, match="sha256 mismatch"):
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
def test_a_pin_is_not_read_if_a_record_next_to_its_three_has_changed(
    catalog: Catalog, folder: Path, tmp_path: Path, way: str
) -> None:
    catalog.dataset("animals:1.0.0").pin("train[3:9]").save(tmp_path / "paper.lock.yaml")
    copy_record(folder, 4, 5)  # of 3 to 8; the pin names 3, 6 and 8
    pins = registry.load_pin(tmp_path / "paper.lock.yaml", data_dir=catalog.data_dir)
    with (
        registry.locked(tmp_path / "paper.lock.yaml", data_dir=catalog.data_dir),
        pytest.raises(ShardMismatchError, match="sha256 mismatch") as caught,
    ):
        PIN_READS[way](pins["train"])
    assert caught.value.hint == (
        "This is not the pinned file. `registry pin verify FILE` shows what differs, and "
        "`registry pin restore FILE --to DIR` gets the pinned files."
    )


def test_a_pin_is_read_from_another_file_that_holds_all_its_records(
    catalog: Catalog, folder: Path, tmp_path: Path
) -> None:
    """As in ``registry pin verify``: the pin covers the records, and these are unchanged."""
    catalog.dataset("animals:1.0.0").pin("train[3:9]").save(tmp_path / "paper.lock.yaml")
    copy_record(folder, 0, 1)
    pin = registry.load_pin(tmp_path / "paper.lock.yaml", data_dir=catalog.data_dir)["train"]
    assert pin.verify().faults == ()
    assert [int(example["age"]) for example in pin.read()] == list(range(13, 19))


def test_the_error_says_which_file_what_was_expected_and_what_to_do(catalog: Catalog, folder: Path) -> None:
    first, second = (shard.sha256 for shard in catalog.dataset("animals:1.0.0").shards("train")[:2])
    swap(folder)
    with pytest.raises(ShardMismatchError) as caught:
        list(catalog.dataset("animals:1.0.0").read("train"))
    error = caught.value
    assert error.message == f"{folder / FIRST}: sha256 mismatch: expected {first}, found {second}"
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
        with pytest.raises(ShardMismatchError, match="sha256 mismatch"):
            list(dataset.read("train"))


def test_gzip_shards_are_proved_alike(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.publish(prepare(tmp_path / "1.0.0", splits={"train": same_sizes(COUNT)}, shards=SHARDS, compress=True))
        dataset = catalog.dataset("animals")
        assert len(list(dataset.read("train"))) == COUNT
        swap(Path(dataset.folder.removeprefix("file://")))
        with pytest.raises(ShardMismatchError, match="sha256 mismatch"):
            list(dataset.read("train"))


def hashed_by_a_new_process(catalog: Catalog, wanted: str, pin_file: Path | None = None) -> int:
    """How many files a new process hashes to read all of a version, or of a pin."""
    script = f"""
import hashlib, sys
import registry
from registry.shards import proved
count, inner = [0], proved._hash
def counted(file, stop):
    count[0] += 1
    return inner(file, stop)
proved._hash = counted
if {str(pin_file)!r} != "None":
    reader = registry.load_pin({str(pin_file)!r}, data_dir={str(catalog.data_dir)!r})["train"].read()
else:
    catalog = registry.connect({catalog.url!r}, data_dir={str(catalog.data_dir)!r})
    reader = catalog.dataset({wanted!r}).read("train")
assert len(list(reader)) == {COUNT}
print(count[0])
"""
    done = warm_python.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def settle() -> None:
    """Wait until a file is old enough to get a stamp."""
    time.sleep(0.2)


def publish_in_place(catalog: Catalog, tmp_path: Path) -> None:
    del tmp_path
    folder = Path(str(catalog.data_dir)) / "animals" / "3.0.0"
    prepare(folder, "3.0.0", {"train": same_sizes(COUNT)}, shards=SHARDS)
    settle()
    catalog.publish(folder)


def import_in_place(catalog: Catalog, tmp_path: Path) -> None:
    prepare(tmp_path / "elsewhere" / "animals" / "3.0.0", "3.0.0", {"train": same_sizes(COUNT)}, shards=SHARDS)
    settle()
    (taken,) = catalog.import_tfds(tmp_path / "elsewhere")
    assert taken.error is None


def import_by_trusting(catalog: Catalog, tmp_path: Path) -> None:
    prepare(tmp_path / "elsewhere" / "animals" / "3.0.0", "3.0.0", {"train": same_sizes(COUNT)}, shards=SHARDS)
    settle()
    (taken,) = catalog.import_tfds(tmp_path / "elsewhere", trust_lengths=True)
    assert taken.error is None


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("publish", cases([publish_in_place, import_by_trusting, import_in_place], everyday=1))
def test_who_publishes_hashes_for_all_later_readers(
    catalog: Catalog, tmp_path: Path, own_cache: Path, publish: Callable[[Catalog, Path], None]
) -> None:
    publish(catalog, tmp_path)
    assert hashed_by_a_new_process(catalog, "animals:3.0.0") == 0
    shutil.rmtree(own_cache)
    assert hashed_by_a_new_process(catalog, "animals:3.0.0") == SHARDS
    assert hashed_by_a_new_process(catalog, "animals:3.0.0") == 0


def verify(catalog: Catalog, pin_file: Path) -> None:
    del pin_file
    assert catalog.dataset("animals:1.0.0").verify().faults == ()


def make_pin(catalog: Catalog, pin_file: Path) -> None:
    catalog.dataset("animals:1.0.0").pin("train").save(pin_file.with_name("other.lock.yaml"))


def verify_pin(catalog: Catalog, pin_file: Path) -> None:
    registry.load_pin(pin_file, data_dir=catalog.data_dir)["train"].verify()


def restore_pin(catalog: Catalog, pin_file: Path) -> None:
    restore(registry.load_pin(pin_file), None, str(catalog.data_dir))


@pytest.mark.parametrize("prove", cases([verify, make_pin, restore_pin, verify_pin], everyday=2))
def test_who_verifies_hashes_for_all_later_readers(
    catalog: Catalog, tmp_path: Path, own_cache: Path, prove: Callable[[Catalog, Path], None]
) -> None:
    pin_file = tmp_path / "paper.lock.yaml"
    catalog.dataset("animals:1.0.0").pin("train").save(pin_file)
    settle()
    shutil.rmtree(own_cache, ignore_errors=True)
    prove(catalog, pin_file)
    assert hashed_by_a_new_process(catalog, "animals:1.0.0") == 0
    assert hashed_by_a_new_process(catalog, "", pin_file) == 0


def substitute(folder: Path, generator: random.Random) -> str:
    """Replace the content of a shard and return the old content."""
    names = sorted(path.name for path in folder.glob("animals-train*"))
    name = generator.choice(names)
    content = (folder / name).read_bytes()
    others = [other for other in names if (folder / other).read_bytes() != content]
    length = len(content) // (COUNT // SHARDS)
    first, second = generator.sample(range(COUNT // SHARDS), 2)
    kind = generator.choice(["another shard", "another version", "a record twice", "two records swapped", "one less"])
    changed = bytearray(content)
    if kind == "another shard":
        changed = bytearray((folder / generator.choice(others)).read_bytes())
    elif kind == "another version":
        changed = bytearray((folder.parent / "2.0.0" / generator.choice(names)).read_bytes())
    elif kind == "a record twice":
        changed[first * length : (first + 1) * length] = content[second * length : (second + 1) * length]
    elif kind == "two records swapped":
        changed[first * length : (first + 1) * length] = content[second * length : (second + 1) * length]
        changed[second * length : (second + 1) * length] = content[first * length : (first + 1) * length]
    else:
        del changed[first * length : (first + 1) * length]
    facts = (folder / name).stat()
    (folder / name).write_bytes(changed)
    if generator.random() < 0.5:
        os.utime(folder / name, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    return f"{name}: {kind}"


@pytest.mark.parametrize("number_of_files", either(25, 100))
def test_every_substitution_of_a_whole_file_is_caught(
    catalog: Catalog, folder: Path, tmp_path: Path, record_property: Callable[[str, object], None], number_of_files: int
) -> None:
    generator, right = random.Random(19), tmp_path / "right"
    shutil.copytree(folder, right)
    dataset = catalog.dataset("animals:1.0.0")
    ways = [way for way in READS if way not in ("one by its number", "some by their numbers")]
    for number in range(number_of_files):
        reported = substitute(folder, generator)
        with pytest.raises(ShardMismatchError):
            pytest.fail(f"read: {reported}, {READS[ways[number % len(ways)]](dataset)!r:.80}")
        shutil.rmtree(folder)
        shutil.copytree(right, folder)
    assert len(list(dataset.read("train"))) == COUNT
    record_property("substitutions of whole files caught", number_of_files)
