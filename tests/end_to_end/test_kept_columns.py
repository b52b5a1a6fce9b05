"""Kept columns of published versions: every way to fill and to read them."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.clouds import on_clouds
from support.goods import (
    COUNT,
    examples_of,
    files_of,
    in_stored_order,
    is_kept,
    is_kept_after_reading,
    open_goods,
    plain,
    rows,
    use_small_blocks,
)

import registry
from registry.api import Catalog
from registry.cli.main import run
from registry.columns import ColumnWriter
from registry.errors import (
    CorruptExampleError,
    SplitNotFoundError,
    UsageError,
)
from registry.reading import keeping, split_columns
from registry.reading.column_blocks import KeptColumns
from registry.tfrecord import frame_record

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_small_blocks(monkeypatch, tmp_path)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with open_goods(tmp_path) as opened:
        yield opened


def test_a_report_says_what_is_kept(catalog: Catalog) -> None:
    dataset = catalog.dataset("goods")
    report = dataset.keep_columns("train", columns=["id", "name"])
    assert (report.splits, report.features, report.num_examples) == (("train",), ("id", "name"), COUNT)
    assert (report.num_columns, report.num_new_columns) == (2, 2)
    again = dataset.keep_columns()
    assert (again.num_columns, again.num_new_columns) == (len(dataset.features), len(dataset.features) - 2)
    assert again.num_bytes > report.num_bytes
    assert again.folder == str(registry.cache().folder)


def test_a_first_read_looks_for_columns_only_where_some_may_exist(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, plans, open_columns = catalog.dataset("goods"), [], keeping.open_columns

    def count(splits: Any, plan: Any) -> KeptColumns | None:
        plans.append(plan.expression)
        return open_columns(splits, plan)

    monkeypatch.setattr(keeping, "open_columns", count)
    next(iter(dataset.read("train")))
    assert plans == []
    dataset.keep_columns()
    reader = dataset.read("train")
    next(iter(reader))
    assert plans == ["train"]
    assert is_kept(reader)


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


def test_consecutive_examples_are_copied_too_and_a_batch_keeps_no_other_in_memory(catalog: Catalog) -> None:
    dataset = catalog.dataset("goods")
    dataset.keep_columns()
    ways: list[tuple[Any, bool]] = [("disk", False), ("disk", True), ("memory", False), ("memory", True)]
    for keep, add_ids in ways:
        config = registry.ReadConfig(interleave_cycle_length=1, add_tfds_id=add_ids)
        reader = dataset.read("train", config, keep=keep)
        before = [plain(example) for example in reader]
        for values in (next(reader.batches(8)), next(reader.blocks()), reader[2:5], next(iter(reader))):
            values["vector"][...] = 0
        assert [plain(example) for example in reader] == before
        assert all(values["vector"].base is None for values in reader.batches(8))
        assert is_kept(reader)


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
                writer.__exit__()
    assert num_turns > 2
    assert [plain(example) for example in reader] == examples_of(catalog.dataset("goods"), keep=None)
    assert is_kept(reader)


def test_a_large_slice_that_was_read_once_is_filled_from_then_on(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(keeping, "_SMALL_BYTES", 0)
    reader = catalog.dataset("goods").read("train")
    expected = [plain(example) for example in reader]
    assert reader._keeper._filling is None
    assert [plain(example) for example in reader] == expected  # the second epoch
    filling = reader._keeper._filling
    filling.wait()
    assert [plain(example) for example in reader] == expected
    assert is_kept(reader)
    assert files_of(tmp_path, "column.json")
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "0")  # no warning, because nobody asked for the cache
    elsewhere = catalog.dataset("goods").read("train")
    assert [plain(example) for example in elsewhere] * 2 == [*map(plain, elsewhere), *map(plain, elsewhere)]


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


def test_lists_of_consecutive_examples_of_two_splits_may_be_changed(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as opened:
        opened.add({"train": rows(), "test": rows()}, name="halves")
        dataset = opened.dataset("halves")
        dataset.keep_columns()
        reader = dataset.read("train+test", registry.ReadConfig(interleave_cycle_length=1))
        for batch in reader.batches(32):
            for tags in batch["tags"]:
                tags[...] = 77
        assert is_kept(reader)


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


def test_threads_read_at_once(catalog: Catalog) -> None:
    dataset = catalog.dataset("goods")
    expected = examples_of(dataset, keep=None)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: examples_of(catalog.dataset("goods"), keep="disk"), range(16)))
    assert found == [expected] * 16


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
    with pytest.raises(UsageError, match=r"columns can be kept only for whole splits, and 'train\[:10\]' is a slice"):
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
    assert "is published, but its columns are not kept" in capsys.readouterr().err

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(registry.Dataset, "keep_columns", interrupt)
    (tmp_path / "goods.csv").write_text("id,name\n2,b\n")
    assert run(["add", str(tmp_path / "goods.csv"), "--keep-columns"]) == 130
    note = "note: goods:3.0.0 is published; keep its columns with: registry cache build goods:3.0.0"
    assert note in capsys.readouterr().err


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

    read = split_columns.read_flat_blocks
    monkeypatch.setattr(split_columns, "read_flat_blocks", read_flat_blocks)
    reader = catalog.dataset("goods").read("train", keep="disk", verify="off")
    list(reader)
    reader._keeper._filling.wait()  # type: ignore[union-attr]
    assert verified == ["block"]
    list(reader)
    assert is_kept(reader)
