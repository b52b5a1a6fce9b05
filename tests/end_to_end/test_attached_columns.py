"""Columns that are attached to a version: in a data directory they are mapped, from a bucket blocks are fetched."""

from __future__ import annotations

import gc
import json
import pickle
import shutil
import struct
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastcrc.crc32 import iscsi
from support import warm_python
from support.clouds import on_clouds
from support.goods import COUNT, examples_of, is_kept, open_goods, plain, rows, use_small_blocks

import registry
from registry.api import Catalog
from registry.catalog.sql_catalog import SqlCatalog
from registry.cli.main import run
from registry.errors import OtherDataDirectoryError, RegistryWarning, StorageError, UsageError
from registry.storage import open_store, remote
from registry.storage.object_client import BucketClient

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_small_blocks(monkeypatch, tmp_path)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with open_goods(tmp_path) as opened:
        yield opened


def attached_files(tmp_path: Path, pattern: str = "*.npy") -> list[Path]:
    return sorted(path for path in (tmp_path / "data").rglob(f".attachments/{pattern}"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def check_equal(dataset: Any, *, kept: bool = True) -> None:
    """Every order, view and filter gives what the shards give."""
    shuffled = registry.ReadConfig(shuffle="global", seed=3, repeat=2)
    for split, config in (("train", None), ("train[10%:90%]+train[:20]", None), ("train[15%:]", shuffled)):
        expected = answers_of(dataset.read(split, config, keep=None))
        for copy in (True, False):
            reader = dataset.read(split, config, copy=copy)
            assert answers_of(reader) == expected
            assert is_kept(reader) == kept
    cheap = "price < 40 and id > 3"
    assert examples_of_filter(dataset, cheap) == examples_of_filter(dataset, cheap, keep=None)


def answers_of(reader: Any) -> list[Any]:
    return [plain(list(answer)) for answer in (reader, [reader[3], reader[[5, -1, 5, 0]]], reader.batches(32))]


def examples_of_filter(dataset: Any, condition: str, **options: Any) -> list[Any]:
    config = registry.ReadConfig(interleave_cycle_length=1)
    return [plain(example) for example in dataset.read("train", config, **options).where(condition)]


def test_attached_columns_are_read_in_place(catalog: Catalog, tmp_path: Path) -> None:
    dataset = catalog.dataset("goods")
    report = dataset.attach_columns()
    assert (report.splits, report.num_columns, report.num_new_columns) == (("train",), 5, 5)
    attached = [file for file in dataset.attachments if file.kind == "columns"]
    assert report.num_bytes == sum(file.num_bytes for file in attached)
    before = contents(tmp_path / "data")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_equal(dataset)
    assert not list((tmp_path / "cache").rglob("*.npy"))  # nothing is copied
    assert contents(tmp_path / "data") == before
    assert dataset.verify().faults == ()
    assert catalog.verify_log().faults == ()
    values = next(file for file in attached_files(tmp_path) if "_train-id." in file.name)
    assert sorted(np.load(values).tolist()) == list(range(COUNT))


def test_the_same_columns_again_change_nothing(catalog: Catalog, tmp_path: Path) -> None:
    dataset = catalog.dataset("goods")
    assert dataset.attach_columns(dry_run=True).num_new_columns == 5
    assert attached_files(tmp_path) == []
    dataset.attach_columns(columns=["id", "name"])
    report = dataset.attach_columns()
    assert (report.num_columns, report.num_new_columns) == (5, 3)
    before, events = contents(tmp_path / "data"), len(list(catalog.log()))
    assert dataset.attach_columns().num_new_columns == 0
    assert contents(tmp_path / "data") == before
    assert len(list(catalog.log())) == events


def test_columns_are_attached_in_one_transaction(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, attach = [], SqlCatalog.attach

    def count(self: SqlCatalog, version: Any, *attachments: Any, actor: str) -> bool:
        numbers.append(len(attachments))
        return attach(self, version, *attachments, actor=actor)

    monkeypatch.setattr(SqlCatalog, "attach", count)
    dataset = catalog.dataset("goods")
    dataset.attach_columns()
    assert numbers == [len([file for file in dataset.attachments if file.kind == "columns"])]


def test_names_of_any_form_are_attached(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        names = [".hidden", "a/b", "ä ö", "x" * 200, "a.b", "a-b", "~claim"]
        catalog.add({name: np.arange(9) + place for place, name in enumerate(names)}, name="odd")
        dataset = catalog.dataset("odd")
        assert dataset.attach_columns().num_columns == len(names)
        reader = dataset.read("train")
        assert [plain(one) for one in reader] == [plain(one) for one in dataset.read("train", keep=None)]
        assert is_kept(reader)


def test_unions_of_splits_are_read_in_place(catalog: Catalog) -> None:
    catalog.add({"train": {"id": np.arange(900)}, "test": {"id": np.arange(90)}}, name="halves")
    dataset = catalog.dataset("halves")
    dataset.attach_columns()
    for split in ("train+test", "test[5:]+train[:10]"):
        reader = dataset.read(split)
        assert [plain(one) for one in reader] == [plain(one) for one in dataset.read(split, keep=None)]
        assert is_kept(reader)


def damage(path: Path, place: int = -9) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("copy", [True, False])
def test_a_damaged_block_is_decoded_from_the_shards_and_not_written(
    catalog: Catalog, tmp_path: Path, copy: bool
) -> None:
    dataset = catalog.dataset("goods")
    dataset.attach_columns()
    expected = examples_of(dataset, keep=None)
    for file in attached_files(tmp_path):
        damage(file)
        damage(file, len(file.read_bytes()) // 2)
    before = contents(tmp_path / "data")
    reader = dataset.read("train", copy=copy)
    with pytest.warns(RegistryWarning, match="is damaged: it will be made again from the shards"):
        assert [plain(example) for example in reader] == expected
    assert is_kept(reader)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [plain(example) for example in reader] == expected  # it is mended in the memory of this process
        assert plain(reader[COUNT - 1]) == expected[-1]
    assert contents(tmp_path / "data") == before
    report = dataset.verify()
    assert {fault.filename.rpartition(".")[2] for fault in report.faults} == {"npy"}
    assert report.num_attachments == len(dataset.attachments) - len(report.faults)
    assert "registry publish goods:1.0.0 --with-columns" in report.recovery
    assert dataset.attach_columns().num_new_columns == 5  # writes them again
    assert dataset.verify().faults == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert examples_of(dataset) == expected


def test_values_with_the_same_checksum_are_not_those_that_were_attached(catalog: Catalog, tmp_path: Path) -> None:
    """Whoever writes in the folder, but not in the catalog, can choose bytes with any CRC32C."""
    dataset = catalog.dataset("goods")
    dataset.attach_columns()
    expected = [plain(example) for example in dataset.read("train", keep=None).select("vector")]
    (file,) = attached_files(tmp_path, "*train-vector.*.npy")
    content = bytearray(file.read_bytes())
    block = content[128 : 128 + 16 * 12]  # 16 records of three float32
    block[:4] = struct.pack("<f", 1e30)
    block[-4:] = forged_tail(bytes(block[:-4]), iscsi(bytes(content[128 : 128 + 16 * 12])))
    assert iscsi(bytes(block)) == iscsi(bytes(content[128 : 128 + 16 * 12]))
    content[128 : 128 + 16 * 12] = block
    file.write_bytes(content)
    with pytest.warns(RegistryWarning, match="is damaged: it will be made again from the shards"):
        assert [plain(example) for example in dataset.read("train").select("vector")] == expected


def forged_tail(start: bytes, wanted: int) -> bytes:
    """Four bytes after which the CRC32C of ``start`` is ``wanted``: it is linear in them."""
    zero = iscsi(start + bytes(4))
    rows = [(iscsi(start + (1 << bit).to_bytes(4, "little")) ^ zero, 1 << bit) for bit in range(32)]
    tail, rest = 0, wanted ^ zero
    for bit in range(32):
        place = next(place for place in range(bit, 32) if rows[place][0] >> bit & 1)
        rows[bit], rows[place] = rows[place], rows[bit]
        image, source = rows[bit]
        rows = [
            (a ^ image, b ^ source) if place != bit and a >> bit & 1 else (a, b) for place, (a, b) in enumerate(rows)
        ]
    for bit, (_, source) in enumerate(rows):
        tail ^= source if rest >> bit & 1 else 0
    return tail.to_bytes(4, "little")


@pytest.mark.parametrize("edit", ["cut", "empty", "another"])
def test_a_file_that_is_replaced_while_it_is_read_is_not_mended(catalog: Catalog, tmp_path: Path, edit: str) -> None:
    dataset = catalog.dataset("goods")
    dataset.attach_columns()
    (file,) = attached_files(tmp_path, "*train-vector.*.npy")
    content = file.read_bytes()
    damage(file)  # in the last block
    config = registry.ReadConfig(interleave_cycle_length=1)
    expected = [plain(example) for example in dataset.read("train", config, keep=None).select("vector")]
    reader = dataset.read("train[1%:]+train[:1%]", config).select("vector")
    assert plain(reader[0]) == expected[3]
    iterator = iter(reader)  # maps the file
    assert plain(next(iterator)) == expected[3]
    assert is_kept(reader)
    file.unlink()
    if edit == "another":
        file.write_bytes(content)
        damage(file, 128 + 10 * 12)  # in a block that was proved
    else:
        file.write_bytes({"cut": content[:-1], "empty": b""}[edit])
    with pytest.warns(RegistryWarning, match="is damaged: it will be made again from the shards"):
        assert plain(reader[-4]) == expected[-1]
    assert not is_kept(reader)
    assert [plain(reader[place]) for place in range(20)] == expected[3:23]


@pytest.mark.parametrize("pattern", ["*.npy", "*column.json"])
@pytest.mark.parametrize("edit", ["cut", "empty", "remove", "flip", "longer"])
def test_files_that_are_not_those_of_the_column_are_not_read(
    catalog: Catalog, tmp_path: Path, pattern: str, edit: str
) -> None:
    dataset = catalog.dataset("goods")
    dataset.attach_columns()
    expected = examples_of(dataset, keep=None)
    for file in attached_files(tmp_path, pattern):
        content = file.read_bytes()
        if edit == "remove":
            file.unlink()
        elif edit == "flip":
            damage(file, 9)
        else:
            file.write_bytes({"cut": content[:-1], "empty": b"", "longer": content + b"a"}[edit])
    reader = dataset.read("train")
    with pytest.warns(RegistryWarning, match="that is attached to goods:1.0.0 is not used: "):
        assert [plain(example) for example in reader] == expected
    assert not is_kept(reader)
    assert dataset.verify().faults
    dataset.attach_columns()
    assert dataset.verify().faults == ()
    check_equal(catalog.dataset("goods"))


def test_a_data_directory_and_a_cache_that_cannot_be_written(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = catalog.dataset("goods")
    dataset.attach_columns()
    for path in [*(tmp_path / "data").rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "0")
    try:
        check_equal(catalog.dataset("goods"))
    finally:
        for path in [*(tmp_path / "data").rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_columns_of_the_cache_come_before_attached_ones(catalog: Catalog, tmp_path: Path) -> None:
    dataset = catalog.dataset("goods")
    dataset.attach_columns()
    dataset.keep_columns(columns=["id"])
    for file in attached_files(tmp_path, "*_train-id.*.npy"):
        damage(file)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_equal(dataset)
    assert [path.name for path in (tmp_path / "cache").rglob("*.npy")] == ["values.npy"]


def test_a_reader_in_another_process_needs_no_catalog(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = catalog.dataset("goods")
    dataset.attach_columns()
    sent = pickle.dumps(dataset.read("train"))
    monkeypatch.setattr(SqlCatalog, "attachments", None)
    reader = pickle.loads(sent)  # noqa: S301 (made above)
    assert [plain(example) for example in reader] == examples_of(dataset, keep=None)
    assert is_kept(reader)


def test_a_pin_reads_the_shards(catalog: Catalog, tmp_path: Path) -> None:
    dataset = catalog.dataset("goods")
    dataset.attach_columns()
    dataset.pin({"all": "train"}).save(tmp_path / "pins.yaml")
    pin = registry.load_pin(tmp_path / "pins.yaml", data_dir=tmp_path / "data")["all"]
    reader = pin.read()
    assert [plain(example) for example in reader] == examples_of(dataset, keep=None)
    assert not is_kept(reader)
    with registry.locked(tmp_path / "pins.yaml"), pytest.raises(UsageError, match="comes from a pin file"):
        catalog.dataset("goods").attach_columns()


def test_two_publishers_attach_the_same_columns(catalog: Catalog, tmp_path: Path) -> None:
    def attach(_: int) -> int:
        with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as other:
            return other.dataset("goods").attach_columns().num_columns

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(attach, range(4))) == [5] * 4
    assert catalog.dataset("goods").verify().faults == ()
    assert catalog.verify_log().faults == ()
    assert not list((tmp_path / "data").rglob("incomplete.*"))
    assert not attached_files(tmp_path, "*~claim")
    check_equal(catalog.dataset("goods"))


def test_a_version_in_place_has_its_columns_in_the_data_directory(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "goods" / "1.0.0"
    before = contents(folder)
    with registry.connect(tmp_path / "other.db", data_dir=tmp_path / "other") as other:
        other.import_tfds(folder, trust_lengths=True).require_all()
        dataset = other.dataset("goods")
        dataset.attach_columns()
        assert list((tmp_path / "other" / "goods" / "1.0.0" / ".attachments").glob("*.npy"))
        assert contents(folder) == before
        assert dataset.verify().faults == ()
        check_equal(dataset)


def test_nothing_is_attached_in_another_data_directory(catalog: Catalog, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    before, events = contents(tmp_path / "copy"), len(list(catalog.log()))
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "copy") as other:
        for work in (other.dataset("goods").attach_columns, other.dataset("goods").compute_statistics):
            with pytest.raises(OtherDataDirectoryError):
                work()
    assert contents(tmp_path / "copy") == before
    assert len(list(catalog.log())) == events


def test_a_cache_that_is_switched_off_says_nothing(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.dataset("goods").attach_columns()
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "0")
    dataset = catalog.dataset("goods")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_equal(dataset)  # in place
    for file in attached_files(tmp_path, "*"):
        file.unlink()
    with pytest.warns(RegistryWarning, match="is not used: no folder has its files"):
        assert examples_of(dataset) == examples_of(dataset, keep=None)
    assert caplog.records == []


@pytest.mark.filterwarnings("ignore::registry.errors.MirrorWarning")  # of the shards
def test_copies_and_mirrors_have_the_columns(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "goods" / "1.0.0"
    with registry.connect(tmp_path / "other.db", data_dir=tmp_path / "other") as other:
        catalog.copy("goods", other).require_all()
        catalog.dataset("goods").attach_columns()
        num_attachments = len(catalog.dataset("goods").attachments) - 1  # without the statistics, which were copied
        for dry_run, number in ((True, num_attachments), (False, num_attachments), (False, 0)):
            (copied,) = catalog.copy("goods", other, dry_run=dry_run)  # takes what was attached since
            assert (copied.outcome.value, copied.num_attachments) == ("known", number)
        assert other.dataset("goods").attachments == catalog.dataset("goods").attachments
        check_equal(other.dataset("goods"))
    shutil.copytree(folder, tmp_path / "mirror")
    catalog.mirrors.add("goods", tmp_path / "mirror")
    assert [(check.is_sound, check.num_lacking) for check in catalog.mirrors.check("goods")] == [(True, 0)] * 2
    bare = tmp_path / "bare"
    shutil.copytree(folder, bare, ignore=shutil.ignore_patterns(".attachments"))
    num_attachments = len(catalog.dataset("goods").attachments)
    with pytest.warns(RegistryWarning, match=f"bare lacks {num_attachments - 1} files of the columns"):
        catalog.mirrors.add("goods", bare)
    (check,) = catalog.mirrors.check("goods", bare)
    assert (check.is_sound, check.num_lacking) == (True, num_attachments)
    assert all(place.num_faults == 0 for place in catalog.usage("goods", check=True).stored)
    attached_files(tmp_path)[0].unlink()
    faults = {place.location: place.num_faults for place in catalog.usage("goods", check=True).stored}
    assert faults == {str(folder): 1, str(tmp_path / "mirror"): 0, str(bare): 0}
    shutil.rmtree(folder)
    check_equal(catalog.dataset("goods"))
    catalog.collect_garbage(older_than="0")
    check_equal(catalog.dataset("goods"))


KILLED = """
import os, sys
import registry
from registry.catalog.sql_catalog import SqlCatalog
from registry.publishing import attached_columns, attachments
from registry.reading import split_columns
split_columns._BLOCK_RECORDS = 16, 64

def die(*_, **__):
    os._exit(9)

if sys.argv[3] == "row":
    SqlCatalog.attach = die
elif sys.argv[3] == "put":
    attached_columns.attach_files = die
else:
    copied, copy = [], attached_columns.copy_attachments
    def copy_two(*arguments):
        copied.append(copy(*arguments))
        if len(copied) == 2:
            die()
    attached_columns.copy_attachments = copy_two
registry.connect(sys.argv[1], data_dir=sys.argv[2]).dataset("goods").attach_columns()
"""


@pytest.mark.parametrize("moment", ["put", "some", "row"])
def test_after_a_kill_the_next_call_attaches_or_gc_removes_what_was_left(
    catalog: Catalog, tmp_path: Path, moment: str
) -> None:
    before = set(contents(tmp_path / "data"))
    arguments = [str(tmp_path / "catalog.db"), str(tmp_path / "data"), moment]
    assert warm_python.run([sys.executable, "-c", KILLED, *arguments], check=False).returncode == 9
    assert set(contents(tmp_path / "data")) > before
    dataset = catalog.dataset("goods")
    assert [file.kind for file in dataset.attachments] == ["statistics"]
    assert examples_of(dataset) == examples_of(dataset, keep=None)
    if moment == "some":
        catalog.collect_garbage(older_than="0")
        assert set(contents(tmp_path / "data")) == before
    dataset.attach_columns()
    catalog.collect_garbage(older_than="0")
    named = {file.place.rpartition("/")[2] for file in dataset.attachments}
    assert {path.name for path in attached_files(tmp_path, "*")} == named
    assert {path for path in contents(tmp_path / "data") if ".attachments" not in path} <= before
    check_equal(catalog.dataset("goods"))


class Requests:
    """Counts the requests for bytes of attached columns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ranges: list[tuple[str, int, int]] = []
        begin = BucketClient.begin_range

        def count(client: BucketClient, facts: Any, start: int, stop: int, *, location: str) -> Any:
            if location.endswith(".npy"):
                self.ranges.append((location, start, stop))
            return begin(client, facts, start, stop, location=location)

        monkeypatch.setattr(BucketClient, "begin_range", count)

    @property
    def num_bytes(self) -> int:
        return sum(stop - start for _, start, stop in self.ranges)


@on_clouds
def test_from_a_bucket_only_the_blocks_that_are_read_are_fetched(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_NEAR_BYTES", 0)
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as catalog:
        catalog.add(rows(), name="goods", num_shards=3)
        dataset = catalog.dataset("goods")
        dataset.attach_columns()
        assert not list((tmp_path / "cache").rglob("*.npy"))
        requests = Requests(monkeypatch)
        config = registry.ReadConfig(interleave_cycle_length=1)
        expected = [plain(example) for example in dataset.read("train", config, keep=None)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            reader = dataset.read("train", config).select("id", "vector")
            assert reader[0]["id"] == expected[0]["id"]  # from the shards: no epoch has begun
            assert requests.ranges == []
            assert reader[70]["id"] == expected[70]["id"]
            # Block 1 of two arrays: 64 numbers of 8 bytes, and 64 vectors of 12.
            assert sorted(stop - start for _, start, stop in requests.ranges) == [64 * 8, 64 * 12]
            assert [example["id"] for example in dataset.read("train[64:128]", config).select("id")] == [
                example["id"] for example in expected[64:128]
            ]
            assert len(requests.ranges) == 2
            check_equal(dataset)
        fetched = requests.num_bytes
        arrays = [file for file in dataset.attachments if file.name.endswith(".npy")]
        searched = sum(file.num_bytes for file in arrays if file.name.endswith(".rows.npy"))  # whole, then by blocks
        assert fetched <= sum(file.num_bytes for file in arrays) + searched
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert dataset.keep_columns().num_new_columns == 0
            check_equal(dataset)
        assert requests.num_bytes == fetched
        assert dataset.verify().faults == ()


@on_clouds
def test_damaged_and_missing_attachments_in_a_bucket(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as catalog:
        catalog.add(rows(), name="goods", num_shards=3)
        dataset = catalog.dataset("goods")
        dataset.attach_columns()
        expected = examples_of(dataset, keep=None)
        folder = open_store(f"{bucket}/data/goods/1.0.0")
        arrays = [file for file in dataset.attachments if file.name.endswith(".npy")]
        for file in arrays:
            content = bytearray(folder.read_bytes(file.place))
            content[-3] ^= 1
            folder.write_bytes(file.place, bytes(content), overwrite=True)
        with pytest.warns(RegistryWarning, match="is damaged: it will be made again from the shards"):
            assert examples_of(dataset) == expected
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert examples_of(dataset) == expected  # it was mended in the cache
        registry.cache().clear()
        reader = dataset.read("train")
        assert plain(reader[0]) == plain(dataset.read("train", keep=None)[0])
        assert is_kept(reader)
        for file in arrays:
            folder.remove(file.place)
        with pytest.warns(RegistryWarning, match=r"^blocks of .*cannot be fetched \(.*\): they will be made again"):
            assert examples_of(catalog.dataset("goods")) == expected
        del reader
        gc.collect()  # files that are mapped are not deleted
        registry.cache().clear()
        for file in dataset.attachments:
            folder.remove(file.place)
        with pytest.warns(RegistryWarning, match="is not used: no folder has its files"):
            assert examples_of(dataset) == expected
        assert dataset.attach_columns().num_new_columns == 5
        check_equal(dataset)


@on_clouds
def test_a_block_that_was_fetched_in_part_is_not_called_damaged(bucket: str, tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as catalog:
        catalog.add(rows(), name="goods", num_shards=3)
        dataset = catalog.dataset("goods")
        dataset.attach_columns()
        expected = examples_of(dataset, keep=None)
        iterator = iter(dataset.read("train"))
        examples = [plain(next(iterator))]  # fetches ``rows`` of all blocks
        for file in dataset.attachments:
            open_store(f"{bucket}/data/goods/1.0.0").remove(file.place)
        with pytest.warns(RegistryWarning, match="cannot be fetched") as caught:
            examples += map(plain, iterator)
        assert examples == expected
        assert "is damaged" not in "".join(str(warning.message) for warning in caught)


@on_clouds
def test_without_room_in_the_cache_the_shards_of_a_bucket_are_read(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as catalog:
        catalog.add(rows(), name="goods", num_shards=3)
        catalog.dataset("goods").attach_columns()
        for limit in ("0", "4kB"):
            monkeypatch.setenv("REGISTRY_CACHE_BYTES", limit)
            dataset = catalog.dataset("goods")
            reader = dataset.read("train")
            assert [plain(example) for example in reader] == examples_of(dataset, keep=None)
            assert not is_kept(reader)


TOGETHER = """
import sys
import warnings
import registry
warnings.simplefilter("error")
from registry.reading import split_columns
split_columns._BLOCK_RECORDS = 16, 64
reader = registry.connect(sys.argv[1], data_dir=sys.argv[2]).dataset("goods").read("train")
print(sum(int(example["id"]) for example in reader), reader._keeper.is_in_use)
"""


@on_clouds
def test_processes_fetch_columns_into_one_cache(bucket: str, tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as catalog:
        catalog.add(rows(), name="goods", num_shards=3)
        catalog.dataset("goods").attach_columns()
        command = [sys.executable, "-c", TOGETHER, str(tmp_path / "catalog.db"), f"{bucket}/data"]
        processes = [warm_python.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
        answers = [process.communicate(timeout=300)[0].split() for process in processes]
        assert {total for total, _ in answers} == {str(sum(range(COUNT)))}
        assert "True" in {is_in_use for _, is_in_use in answers}  # another process may have reserved a column just now
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_equal(catalog.dataset("goods"))


@on_clouds
def test_a_copy_in_a_bucket_has_the_columns(bucket: str, catalog: Catalog, tmp_path: Path) -> None:
    catalog.dataset("goods").attach_columns()
    with registry.connect(tmp_path / "other.db", data_dir=f"{bucket}/data") as other:
        catalog.copy("goods", to=other)
        dataset = other.dataset("goods")
        assert {file.kind for file in dataset.attachments} == {"statistics", "columns"}
        check_equal(dataset)
        files = (tmp_path / "cache").rglob("values.npy")
        assert any(np.load(file).shape == (COUNT, 3) for file in files)


@on_clouds
def test_a_pin_reads_a_column_that_was_fetched_in_part(bucket: str, tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as catalog:
        catalog.add(rows(), name="goods", num_shards=3)
        dataset = catalog.dataset("goods")
        dataset.attach_columns()
        assert plain(dataset.read("train")[100]) == plain(dataset.read("train", keep=None)[100])
        dataset.pin({"all": "train"}).save(tmp_path / "pins.yaml")
        reader = registry.load_pin(tmp_path / "pins.yaml", data_dir=f"{bucket}/data")["all"].read()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert [plain(example) for example in reader] == examples_of(dataset, keep=None)
        assert is_kept(reader)


def test_columns_are_attached_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REGISTRY_CATALOG", str(tmp_path / "catalog.db"))
    monkeypatch.setenv("REGISTRY_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "goods.csv").write_text("id,name\n" + "".join(f"{number},n{number}\n" for number in range(COUNT)))
    assert run(["add", str(tmp_path / "goods.csv"), "--with-columns"]) == 0
    assert "note: 2 columns (" in (error := capsys.readouterr().err)
    assert ") attached to goods:1.0.0" in error
    assert run(["build", "digits", "--with-columns", "--keep-columns"]) == 0
    error = capsys.readouterr().err
    assert "attached to digits:1.0.0" in error
    assert "of digits:1.0.0 kept in the cache" in error
    assert "the cache now has a second copy" in error
    for number in (2, 0):  # again, nothing is copied
        assert run(["cache", "build", "goods"]) == 0
        assert ("the cache now has a second copy" in capsys.readouterr().err) == bool(number)
    assert run(["add", str(tmp_path / "goods.csv"), "--as", "plain"]) == 0
    capsys.readouterr()
    assert run(["publish", "plain", "--with-columns", "--dry-run", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)["data"]
    assert (answer["num_new_columns"], answer["num_bytes"], answer["dry_run"]) == (2, 0, True)
    assert run(["publish", "plain", "--with-columns", "--dry-run"]) == 0
    assert capsys.readouterr().out == "plain:1.0.0: 2 columns would be attached, 2 of them new\n"
    (tmp_path / "plain").mkdir()  # a folder with the name of the dataset
    monkeypatch.chdir(tmp_path)
    assert run(["publish", "plain", "--with-columns"]) == 0
    assert "attached, 2 of them new" in capsys.readouterr().out
    assert run(["publish", "plain", "--with-columns"]) == 0
    assert "attached before: nothing to attach" in capsys.readouterr().out
    (tmp_path / "unknown").mkdir()
    assert run(["publish", "unknown", "--with-columns"]) != 0
    assert "dataset_info.json" in capsys.readouterr().err
    assert run(["publish", "plain", "--with-columns", "--license", "MIT"]) == 2
    assert "--license cannot be used with it" in capsys.readouterr().err
    assert run(["show", "plain"]) == 0
    assert "columns: 5 files, " in capsys.readouterr().out
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        folder = catalog.dataset("digits").folder
        assert catalog.usage("plain").total.num_files == 1 + len(catalog.dataset("plain").attachments)
    monkeypatch.setenv("REGISTRY_CATALOG", str(tmp_path / "other.db"))
    monkeypatch.setenv("REGISTRY_DATA_DIR", str(tmp_path / "other"))
    assert run(["publish", folder.removeprefix("file://"), "--with-columns"]) == 0
    assert "attached to digits:1.0.0" in capsys.readouterr().err


def test_an_interrupted_or_failed_attachment_leaves_the_version_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REGISTRY_CATALOG", str(tmp_path / "catalog.db"))
    monkeypatch.setenv("REGISTRY_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "goods.csv").write_text("id\n1\n")

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    def refuse(*_: Any, **__: Any) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(registry.Dataset, "attach_columns", interrupt)
    assert run(["add", str(tmp_path / "goods.csv"), "--with-columns"]) == 130
    note = "note: goods:1.0.0 is published; attach its columns with: registry publish goods:1.0.0 --with-columns"
    assert note in capsys.readouterr().err
    monkeypatch.setattr(registry.Dataset, "attach_columns", refuse)
    assert run(["add", str(tmp_path / "goods.csv"), "--with-columns"]) == 0
    note = "note: goods:1.0.0 is published, but its columns are not attached: the disk is full"
    assert note in capsys.readouterr().err
