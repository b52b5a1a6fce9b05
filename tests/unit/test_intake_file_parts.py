from __future__ import annotations

import gzip
import io
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from support.intake_files import open_files, read_rows

from registry.errors import SourceError
from registry.intake.arrow_files import open_arrow, open_parquet
from registry.intake.csv_files import open_csv
from registry.intake.file_parts import read_ahead
from registry.intake.json_files import open_json
from registry.intake.options import AddOptions
from registry.intake.source import Files, Rows, Source
from registry.storage import open_store


def rows_of(number: int) -> Rows:
    return Rows(table=pa.table({"a": [number]}), lines=(number,))


def numbered(stop: int, ended: list[str], *, fails: bool = False) -> Generator[Rows, None, None]:
    try:
        for number in range(stop):
            yield rows_of(number)
        if fails:
            raise SourceError("a.csv:7: broken")
    finally:
        ended.append(threading.current_thread().name)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50])
def test_rows_come_in_order(count: int) -> None:
    ended: list[str] = []
    assert [rows.lines[0] for rows in read_ahead(lambda: numbered(count, ended))] == list(range(count))
    assert len(ended) == 1


def test_an_error_comes_after_the_rows_before_it() -> None:
    seen: list[int] = []
    with pytest.raises(SourceError, match=r"^a\.csv:7: broken$"):
        seen.extend(rows.lines[0] for rows in read_ahead(lambda: numbered(5, [], fails=True)))
    assert seen == [0, 1, 2, 3, 4]


def test_the_thread_ends_with_an_iterator_that_is_left() -> None:
    ended: list[str] = []
    before = set(threading.enumerate())  # those that other tests left may end meanwhile
    rows = read_ahead(lambda: numbered(1000, ended))
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert len(ended) == 1
    assert set(threading.enumerate()) <= before


TABLE = pa.table({"a": [1, 2], "b": ["x", "y"]})


def in_parquet() -> bytes:
    file = io.BytesIO()
    parquet.write_table(TABLE, file)
    return file.getvalue()


def in_arrow(new: Callable[..., Any]) -> bytes:
    file = io.BytesIO()
    with new(file, TABLE.schema) as writer:
        writer.write_table(TABLE)
    return file.getvalue()


@pytest.mark.parametrize(
    ("opener", "content"),
    [
        pytest.param(open_csv, b"a,b\n1,x\n2,y\n", id="csv"),
        pytest.param(open_csv, gzip.compress(b"a,b\n1,x\n2,y\n", mtime=0), id="csv.gz"),
        pytest.param(open_json, b'{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n', id="json"),
        pytest.param(open_parquet, in_parquet(), id="parquet"),
        pytest.param(open_arrow, in_arrow(pa.ipc.new_file), id="arrow"),
        pytest.param(open_arrow, in_arrow(pa.ipc.new_stream), id="stream"),
    ],
)
def test_files_of_other_machines_are_read(opener: Callable[..., Source], content: bytes, tmp_path: Path) -> None:
    store = open_store(f"memory://{tmp_path.name}/tables")
    with store.create("one") as file:
        file.write(content)
    assert store.local_root is None
    source = opener(Files(store=store, names=["one"], sizes=[len(content)], location=store.url), AddOptions())
    rows = [list(map(str, row.values())) for _, row in read_rows(source)]
    assert rows == [["1", "x"], ["2", "y"]]


@pytest.mark.parametrize("number", [3, 30])
def test_many_files_are_accounted_for_by_folder(number: int, tmp_path: Path) -> None:
    source = open_files(open_csv, tmp_path, {f"in/{place}.csv": b"a\nx\n" for place in range(number)})
    assert len(source.parts) == number
    assert sum(use.num_files for use in source.files) == number
    assert len(source.files) == (3 if number == 3 else 1)
    assert source.summary == f"{number} CSV files (comma, UTF-8, with a header)"
