"""Adds sources that change while they are read, and options that contradict the rows."""

from __future__ import annotations

import errno
import io
import itertools
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import registry
from registry.building import ExternalSorter
from registry.errors import RegistryError, SourceError, VersionExistsError, VersionTooSmallError
from registry.intake.object_tables import TableFile
from registry.intake.source import Rows
from registry.intake.staging import SORTING_BYTES

ROWS = [{"a": number, "b": str(number)} for number in range(10)]


def parquet(**columns: list[Any]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "before", "after", "message"),
    [
        (
            "x.csv",
            b"a\n1\n2\n",
            b"a\n1\n2\n3\n",
            "the source changed while it was added: expected 2 usable rows, found 3",
        ),
        ("x.csv", b"a\n1\n2\n", b"a\n1\n", "the source changed while it was added: expected 2 usable rows, found 1"),
        ("x.parquet", parquet(a=[1]), parquet(b=[1]), "x.parquet: the columns changed while the file was added"),
        (
            "x.npy",
            npy(np.arange(5)),
            npy(np.ones((5, 3))),
            "x.npy: the array changed while it was added: expected int64 of shape (5,), found float64 of shape (5, 3)",
        ),
    ],
)
def test_a_file_that_changes_between_reads_is_refused(
    catalog: registry.Catalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    before: bytes,
    after: bytes,
    message: str,
) -> None:
    monkeypatch.setattr("registry.intake.plan.KEPT_BYTES", 0)  # as if the file were large
    path = tmp_path / name
    path.write_bytes(before)
    addition = catalog.plan_add(path, "x")
    path.write_bytes(after)
    with pytest.raises(SourceError) as raised:
        addition.publish()
    assert raised.value.message == message
    assert not list((tmp_path / "data").rglob("*.tfrecord*"))


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("x.csv", b"a,b\n1,x\n2,y\n", b"a\n5\n"), ("x.jsonl", b'{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n', b"[]")],
)
def test_a_small_text_file_is_read_once_and_published_as_it_was_planned(
    catalog: registry.Catalog, tmp_path: Path, name: str, before: bytes, after: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(before)
    addition = catalog.plan_add(path, "x")
    path.write_bytes(after)
    addition.publish()
    rows = catalog.dataset("x").read("train")
    assert sorted((row["a"], row["b"]) for row in rows) == [(1, b"x"), (2, b"y")]


def test_rows_of_text_that_do_not_fit_into_memory_are_kept_in_a_file(
    catalog: registry.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_file: list[Rows] = []
    write = TableFile.write

    def note(self: TableFile, rows: Rows) -> None:
        in_file.append(rows)
        write(self, rows)

    monkeypatch.setattr(TableFile, "write", note)
    monkeypatch.setattr("registry.intake.plan.KEPT_BYTES", 8 * 2000)  # the rows of a file take about 700 bytes
    (tmp_path / "x").mkdir()
    for part in range(5):
        numbers = range(100 + 100 * part, 200 + 100 * part)
        (tmp_path / "x" / f"{part}.csv").write_text("\n".join(["n", *map(str, numbers)]))
    addition = catalog.plan_add(tmp_path / "x", "x")
    shutil.rmtree(tmp_path / "x")
    addition.publish()
    assert sorted(row["n"] for row in catalog.dataset("x").read("train")) == list(range(100, 600))
    assert 0 < len(in_file) < 5


def test_numbers_of_lines_of_rows_in_memory_take_little_of_it(catalog: registry.Catalog, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"n\n\n" + b"1\n" * 200_000)  # a blank line makes a gap in the line numbers
    catalog.plan_add(path, "x")  # imports modules
    tracemalloc.start()
    try:
        addition = catalog.plan_add(path, "x")
        assert tracemalloc.get_traced_memory()[0] < 16 * 200_000
    finally:
        tracemalloc.stop()
    assert addition.plan.num_rows == 200_000


def test_text_is_parsed_again_if_the_disk_is_full(
    catalog: registry.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: TableFile, table: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(TableFile, "write", refuse)
    monkeypatch.setattr("registry.intake.plan.KEPT_BYTES", 10)  # as if the file did not fit into memory
    path = tmp_path / "x.csv"
    path.write_bytes(b"a,b\n1,x\n")
    addition = catalog.plan_add(path, "x")
    path.write_bytes(b"a,b\n2,x\n")
    addition.publish()
    assert [row["a"] for row in catalog.dataset("x").read("train")] == [2]


def test_rows_that_change_while_a_column_is_new_are_refused(catalog: registry.Catalog) -> None:
    catalog.add([{"a": 1}, {"a": 2}], "x")
    reads = 0

    def rows() -> Iterator[dict[str, int]]:
        nonlocal reads
        reads += 1
        yield {"a": 1, "b": reads}
        yield {"a": 2, "b": 0}

    with pytest.raises(SourceError, match="changed while it was added: the values of a row changed"):
        catalog.add(rows, "x")


def test_a_function_that_yields_fewer_rows_later_is_refused(catalog: registry.Catalog) -> None:
    sizes = itertools.chain([3, 3, 3], itertools.repeat(2))
    with pytest.raises(SourceError, match="the function <lambda> yielded 2 rows, but 3 rows in the pass before"):
        catalog.add(lambda: [{"a": 1}] * next(sizes), "x")


def test_each_of_several_new_columns_is_minor_also_with_identical_rows(catalog: registry.Catalog) -> None:
    rows = [{"a": 1, "b": n % 3, "c": n % 7, "d": n} for n in range(60)]

    def add(columns: str, order: int = 1) -> str:
        report = catalog.add([{name: row[name] for name in columns} for row in rows[::order]], "x")
        return f"{report.outcome} {report.reference}"

    assert [add(columns) for columns in ("a", "ab", "abc")] == [f"published x:1.{n}.0" for n in range(3)]
    assert add("abc", -1) == "unchanged x:1.2.0"
    assert add("abcd", -1) == "published x:1.3.0"


def test_a_generator_may_fill_the_same_objects_again(catalog: registry.Catalog) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        row: dict[str, Any] = {"array": np.zeros(2), "list": [0]}
        for number in range(5):
            row["n"] = number
            row["array"][:] = number
            row["list"][0] = number
            yield row

    for given in (rows, rows()):
        catalog.add(given, "reused")
        found = sorted(catalog.dataset("reused").read("train"), key=lambda one: int(one["n"]))
        assert [int(one["n"]) for one in found] == [0, 1, 2, 3, 4]
        assert [one["array"].tolist() for one in found] == [[float(n)] * 2 for n in range(5)]
        assert [one["list"].tolist() for one in found] == [[n] for n in range(5)]


def test_a_generator_may_fill_the_same_array_in_tuples(catalog: registry.Catalog) -> None:
    def rows() -> Iterator[tuple[Any, int]]:
        pixels = np.zeros(2, np.uint8)
        for number in range(3):
            pixels[:] = number
            yield pixels, number

    catalog.add(rows, "reused")
    assert all(one["input"].tolist() == [one["label"]] * 2 for one in catalog.dataset("reused").read("train"))


@pytest.mark.parametrize(
    ("parts", "holdout", "message"),
    [
        (["train", "test"], "test=50%", "the column 's' already has a split 'test', like the holdout"),
        (["train", "train"], "test=0.001%", "the holdout 'test' has no rows"),
        (["x", "y"], "test=50%", "the holdout 'test' has no rows"),
        ([None, None], "test=0.001%", "the holdout 'test' has no rows"),
    ],
)
def test_a_holdout_is_never_left_out_or_mixed_in_silence(
    catalog: registry.Catalog, parts: list[str | None], holdout: str, message: str
) -> None:
    rows = [{"s": part, "n": number} for number, part in enumerate(parts * 5)]
    with pytest.raises(SourceError) as raised:
        catalog.add(rows, "x", split_by=None if parts[0] is None else "s", holdout=holdout)
    assert raised.value.message == message


def test_classes_decide_the_split_by_their_names(catalog: registry.Catalog) -> None:
    rows = [{"s": "train", "n": 1}, {"s": "test", "n": 2}]
    report = catalog.add(rows, "x", split_by="s", features={"s": "ClassLabel"})
    assert dict(report.splits) == {"train": 1, "test": 1}


@pytest.mark.parametrize(
    ("number", "error"), [("1.0.1", VersionTooSmallError), ("1.0.0", VersionExistsError)], ids=["small", "used"]
)
def test_a_dry_run_refuses_the_numbers_that_the_run_refuses(
    catalog: registry.Catalog, number: str, error: type[RegistryError]
) -> None:
    catalog.add(ROWS, "x")
    messages = set()
    for dry_run in (True, False):
        with pytest.raises(error) as raised:
            catalog.add(ROWS[:5], "x", number=number, dry_run=dry_run)
        messages.add(raised.value.message)
    assert len(messages) == 1
    assert catalog.add(ROWS[:5], "x", number="0.9.0", dry_run=True).outcome == "would_publish"


def test_withdrawn_content_is_published_again_only_on_request(catalog: registry.Catalog) -> None:
    catalog.add(ROWS, "x")
    catalog.lifecycle.yank("x:1.0.0", reason="wrong")
    report = catalog.add(ROWS, "x")
    assert report.outcome == "unchanged"
    assert (report.latest.status, report.latest.state_message) == ("yanked", "wrong")
    assert str(catalog.add(ROWS, "x", bump="patch").reference) == "x:1.0.1"
    assert catalog.add(ROWS, "x", bump="patch").outcome == "unchanged"
    assert str(catalog.dataset("x").reference) == "x:1.0.1"


def test_a_number_that_is_published_with_this_content_is_unchanged(catalog: registry.Catalog) -> None:
    catalog.add(ROWS, "x")
    catalog.add(ROWS[:5], "x")
    report = catalog.add(ROWS, "x", number="1.0.0")
    assert (str(report.reference), report.outcome) == ("x:1.0.0", "unchanged")


def test_the_sorters_of_all_splits_share_the_memory(catalog: registry.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ExternalSorter] = []

    def make(**options: Any) -> ExternalSorter:
        made.append(ExternalSorter(**options))
        return made[-1]

    monkeypatch.setattr("registry.intake.staging.ExternalSorter", make)
    catalog.add([{"s": f"s{number}", "n": number} for number in range(8)], "x", split_by="s")
    assert {sorter.budget_bytes for sorter in made} == {SORTING_BYTES // 8}


def test_column_names_must_be_unicode(catalog: registry.Catalog) -> None:
    with pytest.raises(SourceError, match=r"^the name of a column is not valid Unicode"):
        catalog.add([{"\udc80": 1}], "x")
    with pytest.raises(RegistryError, match=r"the key .* is not valid Unicode"):
        catalog.add([{"a": 1}, {"\udc80": 1}], "x")


def test_a_list_that_contains_itself_is_refused(catalog: registry.Catalog) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(SourceError, match="column 'a': more than 64 levels of objects and lists in one value"):
        catalog.add([{"a": endless}], "x")


@pytest.mark.parametrize("make", [object, lambda: 2**70, lambda: "\ud800"])
def test_a_source_without_a_usable_row_names_the_rows(catalog: registry.Catalog, make: Callable[[], Any]) -> None:
    with pytest.raises(RegistryError, match="data:1, column 'a': "):
        catalog.add([{"a": make()}], "x")
