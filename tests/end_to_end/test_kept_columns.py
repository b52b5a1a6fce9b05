"""Kept columns of published versions: damage, kills, races, a small cache, buckets and pins."""

from __future__ import annotations

import errno
import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.clouds import on_clouds

import registry
from registry.api import Catalog
from registry.cli.main import run
from registry.columns import ColumnWriter
from registry.errors import (
    CorruptExampleError,
    CorruptRecordError,
    RegistryWarning,
    SplitNotFoundError,
    StorageError,
    UsageError,
)
from registry.reading import keeping
from registry.reading.column_blocks import KeptColumns
from registry.tfrecord import frame_record

COUNT = 300
TOP = Path(__file__).parents[2]

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "indexes"))
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "100MB")
    monkeypatch.setattr(keeping, "_BLOCK_RECORDS", (16, 64))  # several blocks in a small split


def rows() -> dict[str, Any]:
    """Columns with nulls, texts of different lengths and lists."""
    rng = np.random.default_rng(4)
    return {
        "id": np.arange(COUNT),
        "price": [None if number % 7 == 0 else float(number) for number in range(COUNT)],
        "name": [f"name {number}" * (number % 4) for number in range(COUNT)],
        "tags": [list(range(number % 5)) for number in range(COUNT)],
        "vector": rng.random((COUNT, 3), np.float32),
    }


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as opened:
        opened.add(rows(), name="goods", num_shards=3)
        yield opened


def plain(example: Any) -> Any:
    if isinstance(example, dict):
        return {name: plain(value) for name, value in example.items()}
    if isinstance(example, np.ma.MaskedArray):
        return [plain(value) for value in example.tolist()]
    if isinstance(example, np.ndarray):
        return [plain(value) for value in example]
    return bytes(example) if isinstance(example, memoryview) else example


def examples_of(dataset: Any, **options: Any) -> list[Any]:
    return [plain(example) for example in dataset.read("train", **options)]


def is_kept(reader: Any) -> bool:
    found: bool = reader._keeper.is_in_use
    return found


def files_of(tmp_path: Path, pattern: str = "*.npy") -> list[Path]:
    return sorted((tmp_path / "cache").rglob(pattern))


def test_a_report_says_what_is_kept(catalog: Catalog) -> None:
    dataset = catalog.dataset("goods")
    report = dataset.keep_columns("train", columns=["id", "name"])
    assert (report.splits, report.features, report.num_examples) == (("train",), ("id", "name"), COUNT)
    assert (report.num_columns, report.num_new_columns) == (2, 2)
    again = dataset.keep_columns()
    assert (again.num_columns, again.num_new_columns) == (len(dataset.features), len(dataset.features) - 2)
    assert again.num_bytes > report.num_bytes
    assert again.folder == str(registry.cache().folder)


def test_the_files_are_plain_arrays(catalog: Catalog, tmp_path: Path) -> None:
    catalog.dataset("goods").keep_columns("train", columns=["id"])
    (file,) = files_of(tmp_path)
    stored = np.load(file)
    assert stored.tolist() == [example["id"] for example in examples_of(catalog.dataset("goods"), keep=None)] or sorted(
        stored.tolist()
    ) == list(range(COUNT))
    document = json.loads(file.with_name("column.json").read_text())
    assert document["format"] == "registry.column/1"
    assert document["num_records"] == COUNT


@pytest.mark.parametrize("keep", ["auto", "disk", "memory", None])
@pytest.mark.parametrize("copy", [True, False])
def test_every_way_to_read_gives_the_same_examples(catalog: Catalog, keep: Any, copy: bool) -> None:
    dataset = catalog.dataset("goods")
    dataset.keep_columns()
    shuffled = registry.ReadConfig(shuffle="global", seed=3, repeat=2)
    for split, config in (("train", None), ("train[10%:90%]+train[:20]", None), ("train[15%:]", shuffled)):
        expected = dataset.read(split, config, keep=None)
        reader = dataset.read(split, config, keep=keep, copy=copy)
        assert [plain(example) for example in reader] == [plain(example) for example in expected]
        assert is_kept(reader) == (keep is not None)
        assert plain(reader[3]) == plain(expected[3])
        assert plain(reader[[5, -1, 5, 0]]) == plain(expected[[5, -1, 5, 0]])
        assert plain(reader[4:9]) == plain(expected[4:9])
        for batch, other in zip(reader.batches(32), expected.batches(32), strict=True):
            assert plain(batch) == plain(other)
        assert list(reader.ids()) == list(expected.ids())
        assert list(map(bytes, reader.records())) == list(expected.records())
        named = reader.select("name", "price")
        assert [plain(example) for example in named] == [plain(one) for one in expected.select("name", "price")]


def test_values_may_be_changed_unless_views_were_asked_for(catalog: Catalog) -> None:
    dataset = catalog.dataset("goods")
    dataset.keep_columns()
    before = examples_of(dataset)
    for values in (next(dataset.read("train").batches(8)), dataset.read("train")[[1, 2]], dataset.read("train")[1]):
        values["vector"][...] = 0
    assert examples_of(dataset) == before
    view = next(dataset.read("train", copy=False).batches(8))["vector"]
    assert not view.flags.writeable
    in_order = registry.ReadConfig(interleave_cycle_length=1)
    assert not any(example["vector"].flags.writeable for example in dataset.read("train", in_order, copy=False))


def test_a_state_continues_with_or_without_columns(catalog: Catalog) -> None:
    dataset = catalog.dataset("goods")
    dataset.keep_columns()
    config = registry.ReadConfig(shuffle="global", seed=1)
    everything = [plain(example) for example in dataset.read("train", config, keep=None)]
    for first, second in (("auto", None), (None, "auto")):
        reader = dataset.read("train", config, keep=first)
        begun = [plain(example) for _, example in zip(range(77), reader, strict=False)]
        rest = [plain(example) for example in dataset.read("train", config, keep=second, state=reader.state())]
        assert begun + rest == everything


def test_a_second_epoch_of_a_small_slice_is_read_from_memory(catalog: Catalog, tmp_path: Path) -> None:
    reader = catalog.dataset("goods").read("train[:50]")
    first = [plain(example) for example in reader]
    assert not is_kept(reader)
    assert [plain(example) for example in reader] == first
    assert is_kept(reader)
    shutil.rmtree(tmp_path / "data")
    assert [plain(example) for example in reader] == first
    assert files_of(tmp_path) == []


def test_the_columns_are_filled_after_a_first_epoch(catalog: Catalog, tmp_path: Path) -> None:
    reader = catalog.dataset("goods").read("train", keep="disk")
    first = [plain(example) for example in reader]
    assert [plain(example) for example in reader] == first
    assert is_kept(reader)
    assert files_of(tmp_path)


def test_an_epoch_goes_on_with_columns_that_were_filled_while_the_caller_did_not_read(catalog: Catalog) -> None:
    expected = examples_of(catalog.dataset("goods"), keep=None)
    reader = catalog.dataset("goods").read("train", keep="disk")
    iterator = iter(reader)
    read = [plain(next(iterator))]
    assert reader._keeper._filling is not None
    assert reader._keeper._filling.thread is None  # a caller that only looks at an example fills nothing
    reader._keeper.count(0, math.inf)
    reader._keeper._filling.wait()
    assert not is_kept(reader)
    assert read + [plain(example) for example in iterator] == expected
    assert is_kept(reader)


def test_filling_takes_as_much_time_as_the_caller_took(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    def append(*arguments: Any) -> bool:
        time.sleep(0.02)
        return kept(*arguments)

    kept = ColumnWriter.append
    monkeypatch.setattr(ColumnWriter, "append", append)
    reader = catalog.dataset("goods").read("train", keep="disk")
    next(iter(reader))
    filling = reader._keeper._filling
    assert filling is not None
    assert not filling.allow(keeping._TURN_SECONDS / 2)
    assert filling.thread is None
    filling._least_seconds = 0.01
    num_turns = 0
    while not filling.allow(0.05):
        num_turns += 1
        filling.thread.join(60)
        if num_turns == 1:  # nothing is locked between turns
            for folder in filling._splits[0].folders() or ():
                writer = folder.write()
                assert writer is not None
                writer.__exit__()
    assert num_turns > 2
    assert [plain(example) for example in reader] == examples_of(catalog.dataset("goods"), keep=None)
    assert is_kept(reader)


@pytest.mark.parametrize("mode", ["auto", "disk"])
@pytest.mark.parametrize("copy", [True, False])
def test_a_union_of_splits_is_read_from_the_columns_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any, copy: bool
) -> None:
    some, other = ({name: column[part] for name, column in rows().items()} for part in (slice(0, 130), slice(130, 300)))
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as opened:
        opened.add({"train": some, "test": other}, name="halves", num_shards=3)
        dataset = opened.dataset("halves")
        if mode == "auto":
            dataset.keep_columns()
        else:
            filled = dataset.read("test+train[:10]", keep="disk")
            list(filled)
            filled._keeper._filling.wait()
        for split in ("train+test", "test[10%:]+train[50%:]+test[:3]", "test", "train[:0]+test[:1]+train"):
            for config in (None, registry.ReadConfig(shuffle="global", seed=3)):
                plainly = dataset.read(split, config, keep=None)
                reader = dataset.read(split, config, keep=mode, copy=copy)
                assert [plain(example) for example in reader] == [plain(example) for example in plainly]
                assert is_kept(reader)
                assert plain(reader[0]) == plain(plainly[0])
                assert plain(reader[[5, -1, 5, 0]]) == plain(plainly[[5, -1, 5, 0]])
                assert [plain(batch) for batch in reader.batches(32)] == [plain(batch) for batch in plainly.batches(32)]
                found = dataset.read(split, config).where("id > 100 and price < 250")
                assert [plain(example) for example in found] == [
                    plain(example) for example in dataset.read(split, config, keep=None).where(found.matches.text)
                ]


def test_a_damaged_block_of_a_union_is_mended(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as opened:
        opened.add({"train": {"id": np.arange(200)}, "test": {"id": np.arange(200, 400)}}, name="halves")
        dataset = opened.dataset("halves")
        dataset.keep_columns()
        for file in files_of(tmp_path):
            flip_entry(file, 100)
        reader = dataset.read("train+test")
        with pytest.warns(RegistryWarning, match="is damaged: it is made again"):
            assert sorted(int(example["id"]) for example in reader) == list(range(400))
        assert is_kept(reader)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(list(dataset.read("train+test"))) == 400


def test_a_suspended_process_does_not_keep_others_waiting(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "_MOST_WAIT_SECONDS", 0.3)
    dataset = catalog.dataset("goods")
    expected = examples_of(dataset, keep=None)
    begun, ended = multiprocessing.get_context("fork").Event(), multiprocessing.get_context("fork").Event()

    def wait_and_finish(writer: ColumnWriter) -> None:
        begun.set()
        ended.wait()
        finish(writer)

    finish = ColumnWriter.finish

    with monkeypatch.context() as patch:
        patch.setattr(ColumnWriter, "finish", wait_and_finish)
        suspended = multiprocessing.get_context("fork").Process(target=dataset.keep_columns)
        suspended.start()
    try:
        assert begun.wait(60)
        os.kill(suspended.pid or 0, signal.SIGSTOP)
        with pytest.raises(StorageError, match="another process has locked the columns of goods"):
            dataset.keep_columns()
        reader = dataset.read("train", keep="disk")
        assert [plain(example) for example in reader] == expected
        with pytest.warns(RegistryWarning, match="the columns are not kept: another process has locked"):
            assert [plain(example) for example in reader] == expected
    finally:
        os.kill(suspended.pid or 0, signal.SIGCONT)
        ended.set()
        suspended.join()
    assert dataset.keep_columns().num_new_columns in (0, len(dataset.features))


@pytest.mark.parametrize("condition", ["id == 5", "id > 290 or id < 2", "not id <= 100", "price > 200 and id < 250"])
def test_filters_skip_blocks_in_which_nothing_can_match(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    dataset = catalog.dataset("goods")
    expected = [plain(example) for example in dataset.read("train[10%:]", keep=None).where(condition)]
    dataset.keep_columns()
    sizes: list[int] = []
    read = KeptColumns.columns_at

    def counted(columns: KeptColumns, order: Any, positions: Any, *, copy: bool) -> Any:
        sizes.append(positions.size)
        return read(columns, order, positions, copy=copy)

    with monkeypatch.context() as patched:
        patched.setattr(KeptColumns, "columns_at", counted)
        reader = dataset.read("train[10%:]").where(condition)
        assert len(reader) == len(expected)
    assert [plain(example) for example in reader] == expected
    assert sum(sizes) <= len(dataset.read("train[10%:]"))
    if condition == "id == 5":
        assert sum(sizes) < 200


@pytest.mark.parametrize("fault", ["flip", "cut", "empty", "delete", "grow", "header", "link", "folder"])
@pytest.mark.parametrize("name", ["values.npy", "data.npy", "ends.npy", "offsets.npy", "rows.npy", "column.json"])
def test_damaged_files_are_made_again(catalog: Catalog, tmp_path: Path, fault: str, name: str) -> None:
    dataset = catalog.dataset("goods")
    expected = examples_of(dataset, keep=None)
    dataset.keep_columns()
    damaged = files_of(tmp_path, name)
    assert damaged
    for file in damaged:
        content = file.read_bytes()
        place = 128 + (len(content) - 128) // 2 if name != "column.json" else len(content) // 2
        if fault == "flip":
            file.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        elif fault == "cut":
            os.truncate(file, place)
        elif fault == "empty":
            os.truncate(file, 0)
        elif fault == "grow":
            file.write_bytes(content + b"more")
        elif fault == "header":
            file.write_bytes(b"\x93NUMPY" + bytes(10) + content[16:])
        elif fault in ("delete", "link"):
            file.unlink()
            if fault == "link":
                file.symlink_to("/etc/passwd")
        else:
            file.unlink()
            file.mkdir()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reader = dataset.read("train")
        assert [plain(example) for example in reader] == expected
        assert plain(reader[[1, 200]]) == plain(dataset.read("train", keep=None)[[1, 200]])
    if fault == "flip" and name.endswith(".npy"):
        assert any("is damaged: it is made again" in str(warning.message) for warning in caught)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fresh = dataset.read("train")
            assert [plain(example) for example in fresh] == expected  # it was mended in its place
            assert is_kept(fresh)
    if fault != "folder":
        dataset.keep_columns()
        fresh = dataset.read("train")
        assert [plain(example) for example in fresh] == expected
        assert is_kept(fresh)


def test_a_damaged_block_whose_shard_is_damaged_too_is_an_error(catalog: Catalog, tmp_path: Path) -> None:
    dataset = catalog.dataset("goods")
    dataset.keep_columns()
    for file in (*files_of(tmp_path, "values.npy"), *(tmp_path / "data").rglob("*.tfrecord*")):
        content = bytearray(file.read_bytes())
        for place in range(200, len(content), 97):
            content[place] ^= 1
        file.write_bytes(content)
    with pytest.warns(RegistryWarning, match="is damaged"), pytest.raises(registry.errors.VerificationError):
        list(dataset.read("train"))


def test_columns_of_another_version_are_not_used(catalog: Catalog, tmp_path: Path) -> None:
    catalog.dataset("goods").keep_columns()
    changed = rows()
    changed["id"] = changed["id"] + 1000
    catalog.add(changed, name="goods", num_shards=3)
    latest = (
        catalog.dataset("goods:2.*") if "2" in str(catalog.dataset("goods").version)[:1] else catalog.dataset("goods")
    )
    assert min(example["id"] for example in latest.read("train")) == 1000
    # A folder of another column under this name is not read.
    latest.keep_columns("train", columns=["id"])
    folders = [file.parent for file in files_of(tmp_path, "column.json")]
    ids = [folder for folder in folders if '\\"id\\"' in (folder / "column.json").read_text()]
    assert len(ids) == 2
    shutil.rmtree(ids[0])
    shutil.copytree(ids[1], ids[0])
    for version in catalog.versions("goods"):
        dataset = catalog.dataset(version.reference)
        assert examples_of(dataset.read("train").select("id") and dataset) == examples_of(dataset, keep=None)


def test_equal_content_shares_its_columns(catalog: Catalog, tmp_path: Path) -> None:
    catalog.dataset("goods").keep_columns()
    before = files_of(tmp_path)
    catalog.rename("goods", "wares")
    report = catalog.dataset("wares").keep_columns()
    assert report.num_new_columns == 0
    assert files_of(tmp_path) == before


def test_a_cache_without_room_says_so_and_reading_goes_on(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "4kB")
    dataset = catalog.dataset("goods")
    expected = examples_of(dataset, keep=None)
    with pytest.raises(StorageError, match="has no room for the columns") as caught:
        dataset.keep_columns()
    assert "REGISTRY_CACHE_BYTES" in (caught.value.hint or "")
    reader = dataset.read("train", keep="disk")
    assert [plain(example) for example in reader] == expected
    with pytest.warns(RegistryWarning, match="the columns are not kept"):
        assert [plain(example) for example in reader] == expected
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "0")
    with pytest.raises(UsageError, match="the cache is switched off"):
        catalog.dataset("goods").keep_columns()
    with pytest.warns(RegistryWarning, match="the columns are not kept: the cache is switched off"):
        assert examples_of(catalog.dataset("goods"), keep="disk") == expected


def test_the_least_used_columns_make_room_and_mapped_ones_stay(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = catalog.dataset("goods")
    dataset.keep_columns()
    for number in range(1, 4):
        changed = rows()
        changed["id"] = changed["id"] + 1000 * number
        catalog.add(changed, name=f"goods{number}", num_shards=1)
    room = sum(file.stat().st_size for file in (tmp_path / "cache").rglob("*") if file.is_file())
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", str(room * 5 // 2))
    mapping = catalog.dataset("goods").read("train", copy=False)
    views = [batch["vector"] for batch in mapping.batches(50)]
    before = [view.tolist() for view in views]
    for number in (1, 2, 3):
        kept = catalog.dataset(f"goods{number}")
        kept.keep_columns()
        assert is_kept_after_reading(kept)
    assert [view.tolist() for view in views] == before
    assert is_kept_after_reading(catalog.dataset("goods"))
    assert not is_kept_after_reading(catalog.dataset("goods1"))
    assert registry.cache().usage().num_bytes <= room * 5 // 2


def is_kept_after_reading(dataset: Any) -> bool:
    reader = dataset.read("train")
    list(reader)
    return is_kept(reader)


def test_a_folder_that_is_deleted_under_a_reader(catalog: Catalog, tmp_path: Path) -> None:
    dataset = catalog.dataset("goods")
    dataset.keep_columns()
    expected = examples_of(dataset, keep=None)
    reader = dataset.read("train")
    iterator = iter(reader)
    begun = [plain(next(iterator)) for _ in range(100)]
    shutil.rmtree(tmp_path / "cache")
    assert begun + [plain(example) for example in iterator] == expected
    assert [plain(example) for example in reader] == expected
    assert examples_of(dataset) == expected


TOGETHER = """
import sys
import registry
from registry.reading import keeping

keeping._BLOCK_RECORDS = (16, 64)
dataset = registry.connect(sys.argv[1], data_dir=sys.argv[2]).dataset("goods")
num_new = dataset.keep_columns().num_new_columns
reader = dataset.read("train", keep="disk")
print(num_new, sum(int(example["id"]) for example in reader), reader._keeper.is_in_use)
"""


def test_processes_fill_one_cache_together(catalog: Catalog, tmp_path: Path) -> None:
    command = [sys.executable, "-c", TOGETHER, str(tmp_path / "catalog.db"), str(tmp_path / "data")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=TOP) for _ in range(6)]
    answers = [process.communicate(timeout=300)[0].split() for process in processes]
    assert sum(int(num_new) for num_new, *_ in answers) == len(catalog.dataset("goods").features)
    assert [rest for _, *rest in answers] == [[str(sum(range(COUNT))), "True"]] * 6
    assert files_of(tmp_path, "*.0000000000000000") == []


def test_threads_read_at_once(catalog: Catalog) -> None:
    dataset = catalog.dataset("goods")
    expected = examples_of(dataset, keep=None)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: examples_of(catalog.dataset("goods"), keep="disk"), range(16)))
    assert found == [expected] * 16


KILLED = """
import os, sys
import registry
from registry.reading import keeping

keeping._BLOCK_RECORDS = (16, 64)
left = int(sys.argv[3])

def counted(call):
    def wrapper(*arguments, **options):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return call(*arguments, **options)
    return wrapper

for name in ("pwrite", "write", "ftruncate", "replace", "rename", "unlink", "mkdir"):
    setattr(os, name, counted(getattr(os, name)))
registry.connect(sys.argv[1], data_dir=sys.argv[2]).dataset("goods").keep_columns()
print(left)
"""


def kill_at(tmp_path: Path, number: int) -> subprocess.CompletedProcess[str]:
    places = [str(tmp_path / "catalog.db"), str(tmp_path / "data"), str(number)]
    return subprocess.run([sys.executable, "-c", KILLED, *places], capture_output=True, text=True, check=False, cwd=TOP)


def test_a_filling_that_is_killed_is_continued(catalog: Catalog, tmp_path: Path) -> None:
    whole = kill_at(tmp_path, 10**6)
    assert whole.returncode == 0, whole.stderr
    num_calls = 10**6 - int(whole.stdout)
    expected = examples_of(catalog.dataset("goods"), keep=None)
    assert num_calls > 50
    for number in range(0, num_calls, int(os.environ.get("REGISTRY_EVERY_STEP", num_calls // 9))):
        shutil.rmtree(tmp_path / "cache")
        assert kill_at(tmp_path, number).returncode == 9
        assert examples_of(catalog.dataset("goods"), keep="auto") == expected
        assert kill_at(tmp_path, 10**6).returncode == 0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            reader = catalog.dataset("goods").read("train")
            assert [plain(example) for example in reader] == expected
            assert is_kept(reader)
        assert files_of(tmp_path, "*.npy.0000000000000000") == []


@on_clouds
def test_columns_of_a_version_in_a_bucket(bucket: str, tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as opened:
        opened.add(rows(), name="goods", num_shards=3)
        dataset = opened.dataset("goods")
        expected = examples_of(dataset, keep=None)
        dataset.keep_columns()
        reader = dataset.read("train")
        assert [plain(example) for example in reader] == expected
        assert is_kept(reader)


def test_a_pin_reads_the_columns_of_its_version(catalog: Catalog, tmp_path: Path) -> None:
    file = tmp_path / "dataset.lock.yaml"
    catalog.dataset("goods").pin({"middle": "train[100:250]"}).save(file)
    pin = registry.load_pin(file, data_dir=tmp_path / "data")["middle"]
    expected = [plain(example) for example in pin.read(keep=None)]
    catalog.dataset("goods").keep_columns()
    reader = pin.read()
    assert [plain(example) for example in reader] == expected
    assert is_kept(reader)


def test_wrong_arguments_say_what_to_do(catalog: Catalog) -> None:
    dataset = catalog.dataset("goods")
    with pytest.raises(UsageError, match=r"columns are kept of whole splits, and 'train\[:10\]' is a slice"):
        dataset.keep_columns("train[:10]")
    with pytest.raises(SplitNotFoundError):
        dataset.keep_columns("trian")
    with pytest.raises(UsageError, match="no feature 'nmae'"):
        dataset.keep_columns(columns=["nmae"])
    with pytest.raises(UsageError, match="unknown keep='ram'"):
        dataset.read("train", keep="ram")


def test_the_command_builds_and_shows_columns(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REGISTRY_CATALOG", str(tmp_path / "catalog.db"))
    monkeypatch.setenv("REGISTRY_DATA_DIR", str(tmp_path / "data"))
    assert run(["cache", "build", "goods", "train", "--columns", "id,name"]) == 0
    assert "2 columns of 300 records" in capsys.readouterr().out
    assert run(["cache", "build", "goods", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)["data"]
    assert answer["num_new_columns"] == answer["num_columns"] - 2
    assert run(["cache", "show"]) == 0
    assert run(["cache", "clear"]) == 0
    capsys.readouterr()
    assert files_of(tmp_path) == []


def test_damaged_shards_are_reported_where_they_are_read(catalog: Catalog, tmp_path: Path) -> None:
    file = sorted((tmp_path / "data").rglob("*.tfrecord*"))[1]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises((CorruptRecordError, registry.errors.ShardMismatchError)):
        catalog.dataset("goods").keep_columns()
    with pytest.raises((CorruptRecordError, registry.errors.ShardMismatchError)):
        examples_of(catalog.dataset("goods"), keep="memory")


def test_columns_are_kept_as_soon_as_a_version_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REGISTRY_CATALOG", str(tmp_path / "catalog.db"))
    monkeypatch.setenv("REGISTRY_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "goods.csv").write_text("id,name\n" + "".join(f"{number},n{number}\n" for number in range(COUNT)))
    assert run(["add", str(tmp_path / "goods.csv"), "--keep-columns"]) == 0
    assert "2 columns (" in capsys.readouterr().err
    assert run(["build", "digits", "--keep-columns"]) == 0
    assert "kept in the cache" in capsys.readouterr().err
    assert len(files_of(tmp_path, "column.json")) == 4
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "0")
    (tmp_path / "goods.csv").write_text("id,name\n1,a\n")
    assert run(["add", str(tmp_path / "goods.csv"), "--keep-columns"]) == 0
    assert "is published, and its columns are not kept" in capsys.readouterr().err

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(registry.Dataset, "keep_columns", interrupt)
    (tmp_path / "goods.csv").write_text("id,name\n2,b\n")
    assert run(["add", str(tmp_path / "goods.csv"), "--keep-columns"]) == 130
    note = "note: goods:3.0.0 is published; keep its columns with: registry cache build goods:3.0.0"
    assert note in capsys.readouterr().err


def in_stored_order(dataset: Any, **options: Any) -> Any:
    return dataset.read("train", registry.ReadConfig(interleave_cycle_length=1), **options)


def flip_entry(file: Path, entry: int) -> None:
    """Change an entry of an array of 64-bit numbers."""
    content = bytearray(file.read_bytes())
    content[len(content) - 8 * len(np.load(file)) + 8 * entry + 3] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(("name", "entry"), [("ends.npy", 64), ("offsets.npy", 64), ("ends.npy", 0), ("rows.npy", 128)])
def test_damage_outside_a_block_that_its_rows_depend_on_is_mended(
    catalog: Catalog, tmp_path: Path, name: str, entry: int
) -> None:
    dataset = catalog.dataset("goods")
    dataset.keep_columns()
    for file in files_of(tmp_path, name):
        flip_entry(file, entry)
    expected = in_stored_order(dataset, keep=None)
    for part in (slice(64, 70), slice(290, 296), slice(0, 300)):
        reader = in_stored_order(dataset)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RegistryWarning)
            assert plain(reader[part]) == plain(expected[part])
        assert is_kept(reader)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert examples_of(dataset) == examples_of(dataset, keep=None)  # it was mended


@pytest.mark.parametrize(
    "edit",
    [
        lambda blocks: blocks[:-1],
        lambda _: [],
        lambda _: "blocks",
        lambda blocks: [*blocks, blocks[-1]],
        lambda blocks: [[[10**30] * len(lengths), *rest] for lengths, *rest in blocks],
        lambda blocks: [[[float("inf")] * len(lengths), *rest] for lengths, *rest in blocks],
        lambda blocks: [[[length - 1 for length in lengths], *rest] for lengths, *rest in blocks],
        lambda blocks: [[lengths, "a" * len(digests), *rest] for lengths, digests, *rest in blocks],
    ],
)
def test_a_document_with_other_blocks_is_not_used(catalog: Catalog, tmp_path: Path, edit: Any) -> None:
    dataset = catalog.dataset("goods")
    dataset.keep_columns()
    for file in files_of(tmp_path, "column.json"):
        document = json.loads(file.read_text())
        file.write_text(json.dumps({**document, "blocks": edit(document["blocks"])}))
    reader = dataset.read("train")
    assert [plain(example) for example in reader] == examples_of(dataset, keep=None)
    assert not is_kept(reader)
    assert dataset.keep_columns().num_new_columns == len(dataset.features)


def unfinished(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Fill columns up to the moment before they get their names; returns their journals."""
    with monkeypatch.context() as patch:
        patch.setattr(ColumnWriter, "finish", fail_to_finish)
        with pytest.raises(StorageError, match="stopped"):
            catalog.dataset("goods").keep_columns()
    return files_of(Path(os.environ["REGISTRY_CACHE_DIR"]).parent, "column.json.0000000000000000")


def fail_to_finish(_: ColumnWriter) -> None:
    raise OSError("stopped")


def test_columns_whose_last_block_is_written_are_finished_later(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = catalog.dataset("goods")
    assert len(unfinished(catalog, monkeypatch)) == len(dataset.features)
    assert dataset.keep_columns().num_new_columns == len(dataset.features)
    reader = dataset.read("train")
    assert [plain(example) for example in reader] == examples_of(dataset, keep=None)
    assert is_kept(reader)


@pytest.mark.parametrize(
    "edit",
    [
        lambda lines, _: lines[1:],
        lambda lines, _: [lines[0], lines[2]],
        lambda lines, _: [*lines[:3], lines[3][:9]],
        lambda lines, _: [*lines, *lines],
        lambda _, other: other,
        lambda lines, _: [*lines[:2], b"[" * 10**5],
        lambda lines, _: [*lines[:2], b"[[1e999], [0], null, 0]", *lines[2:]],
        lambda lines, _: [*lines[:2], b"[[NaN], [1]]"],
    ],
)
def test_a_damaged_journal_costs_only_time(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, edit: Any) -> None:
    dataset = catalog.dataset("goods")
    journals = unfinished(catalog, monkeypatch)
    lines = [journal.read_bytes().splitlines() for journal in journals]
    for number, journal in enumerate(journals):
        journal.write_bytes(b"\n".join([*edit(lines[number], lines[number - 1]), b""]))
    assert dataset.keep_columns().num_new_columns == len(dataset.features)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reader = dataset.read("train")
        assert [plain(example) for example in reader] == examples_of(dataset, keep=None)
        assert is_kept(reader)


def test_columns_do_not_evict_others_of_the_same_version(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    num_bytes = catalog.dataset("goods").keep_columns().num_bytes
    registry.cache().clear()
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", str(num_bytes * 4 // 5))  # room for any two, not for all
    dataset = catalog.dataset("goods")
    dataset.keep_columns("train", columns=["id", "name"])
    with pytest.raises(StorageError, match="has no room for the columns"):
        dataset.keep_columns()
    assert dataset.keep_columns("train", columns=["id", "name"]).num_new_columns == 0


def test_a_cache_that_is_cleared_while_columns_are_filled(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = catalog.dataset("goods")
    finish = ColumnWriter.finish

    def clear_and_finish(writer: ColumnWriter) -> None:
        registry.cache().clear()
        finish(writer)

    monkeypatch.setattr(ColumnWriter, "finish", clear_and_finish)
    dataset.keep_columns("train", columns=["name"])
    reader = dataset.read("train").select("name")
    assert plain(reader[[1, 2]]) == plain(dataset.read("train", keep=None).select("name")[[1, 2]])
    assert is_kept(reader)


def test_a_child_that_was_forked_while_columns_were_filled_does_not_keep_them_locked(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork_and_fail(_: ColumnWriter) -> None:
        child.start()
        raise OSError("stopped")

    ended = multiprocessing.get_context("fork").Event()
    child = multiprocessing.get_context("fork").Process(target=ended.wait)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(ColumnWriter, "finish", fork_and_fail)
            with pytest.raises(StorageError, match="stopped"):
                catalog.dataset("goods").keep_columns("train", columns=["id"])
        assert catalog.dataset("goods").keep_columns("train", columns=["id"]).num_new_columns == 1
    finally:
        ended.set()
        child.join()


def test_columns_on_a_disk_that_is_mounted_read_only_are_read(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.dataset("goods").keep_columns()

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "utime", refuse)
    assert is_kept_after_reading(catalog.dataset("goods"))


@pytest.mark.parametrize("keep", ["disk", "memory"])
def test_large_records_of_several_shards(catalog: Catalog, keep: Any) -> None:
    rng = np.random.default_rng(1)
    columns = {"id": np.arange(60), "image": rng.integers(0, 256, (60, 90, 90, 3)).astype(np.uint8)}
    catalog.add(columns, name="large", num_shards=7)
    dataset = catalog.dataset("large")
    expected = {int(example["id"]): example["image"].tobytes() for example in dataset.read("train", keep=None)}
    assert expected == {number: columns["image"][number].tobytes() for number in range(60)}
    if keep == "disk":
        dataset.keep_columns()
    for copy in (True, False):
        reader = dataset.read("train", keep=keep, copy=copy)
        assert {int(example["id"]): example["image"].tobytes() for example in reader} == expected
        assert is_kept(reader)
        batch = reader[[59, 0, 30]]
        assert [image.tobytes() for image in batch["image"]] == [expected[int(number)] for number in batch["id"]]


def test_splits_do_not_evict_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as opened:
        opened.add({"train": {"id": np.arange(9000)}, "test": {"id": np.arange(9000)}}, name="halves")
        monkeypatch.setenv("REGISTRY_CACHE_BYTES", "100kB")
        dataset = opened.dataset("halves")
        with pytest.raises(StorageError, match="has no room for the columns"):
            dataset.keep_columns()
        assert dataset.keep_columns("train").num_new_columns == 0


def items_and_fault(items: Any) -> tuple[list[Any], str]:
    read: list[Any] = []
    try:
        read.extend(map(plain, items()))
    except CorruptExampleError as error:
        return read, str(error)
    return read, ""


@pytest.mark.parametrize("keep", ["auto", "memory"])
def test_an_image_that_cannot_be_decoded_is_named_as_by_reading_shards(tmp_path: Path, keep: Any) -> None:
    (tmp_path / "pictures" / "a").mkdir(parents=True)
    for number in range(40):
        Image.new("RGB", (5, 4), (number, 0, 0)).save(tmp_path / "pictures" / "a" / f"{number:02}.png")
    with registry.connect(tmp_path / "first.db", data_dir=tmp_path / "data") as opened:
        opened.add(tmp_path / "pictures", name="pictures", num_shards=1)
        records = list(in_stored_order(opened.dataset("pictures")).records())
    records[30] = records[30].replace(b"\x89PNG", b"\x88PNG")
    (shard,) = (tmp_path / "data").rglob("*.tfrecord*")
    shard.write_bytes(b"".join(map(frame_record, records)))
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "more") as opened:
        opened.import_tfds(shard.parent, trust_lengths=True).require_all()
        dataset = opened.dataset("pictures")
        dataset.keep_columns()
        for read in (
            iter,
            lambda reader: reader.batches(8),
            lambda reader: iter([reader[29], reader[30]]),
            lambda reader: iter([reader[:5], reader[28:32]]),
            lambda reader: reader.examples_at([29, 30]),
            lambda reader: reader.files_as_bytes(),
        ):
            expected = items_and_fault(lambda read=read: read(in_stored_order(dataset, keep=None)))
            reader = in_stored_order(dataset, keep=keep)
            assert items_and_fault(lambda read=read, reader=reader: read(reader)) == expected


def test_a_read_without_checks_keeps_checked_records(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    verified = []

    def read_flat_blocks(*arguments: Any, **options: Any) -> Any:
        verified.append(arguments[5])
        return read(*arguments, **options)

    read = keeping.read_flat_blocks
    monkeypatch.setattr(keeping, "read_flat_blocks", read_flat_blocks)
    reader = catalog.dataset("goods").read("train", keep="disk", verify="off")
    list(reader)
    reader._keeper._filling.wait()  # type: ignore[union-attr]
    assert verified == ["block"]
    list(reader)
    assert is_kept(reader)


ENDED = """
import atexit, sys, time
import registry
from registry.columns import ColumnWriter
from registry.reading import keeping

def append(*arguments):
    time.sleep(0.01)
    return kept(*arguments)

keeping._BLOCK_RECORDS = (16, 16)
kept, ColumnWriter.append = ColumnWriter.append, append
atexit.register(lambda: print(reader._keeper._filling.thread.is_alive()))
reader = registry.connect(sys.argv[1], data_dir=sys.argv[2]).dataset("goods").read("train", keep="disk")
list(reader)
print(reader._keeper._filling.thread.is_alive())
"""


def test_a_process_that_ends_stops_its_filling_first(catalog: Catalog, tmp_path: Path) -> None:
    places = [str(tmp_path / "catalog.db"), str(tmp_path / "data")]
    ended = subprocess.run(
        [sys.executable, "-c", ENDED, *places], capture_output=True, text=True, check=False, cwd=TOP, timeout=100
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True\nFalse\n", "")
    assert catalog.dataset("goods").keep_columns().num_new_columns > 0


def test_a_folder_that_others_can_write_to_is_not_used(catalog: Catalog) -> None:
    catalog.dataset("goods").keep_columns()
    registry.cache().folder.chmod(0o770)
    for dataset in (catalog.dataset("goods"), catalog.dataset("goods:1.0.0")):
        assert not is_kept_after_reading(dataset)
        with pytest.raises(StorageError, match="others can write to it"):
            dataset.keep_columns()
