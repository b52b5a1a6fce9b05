from __future__ import annotations

import threading
from collections.abc import Generator

import pyarrow as pa
import pytest

from registry.errors import SourceError
from registry.intake.file_parts import read_ahead
from registry.intake.source import Rows


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
    assert [rows.lines[0] for rows in read_ahead(numbered(count, ended))] == list(range(count))
    assert len(ended) == 1


def test_an_error_comes_after_the_rows_before_it() -> None:
    seen: list[int] = []
    with pytest.raises(SourceError, match=r"^a\.csv:7: broken$"):
        seen.extend(rows.lines[0] for rows in read_ahead(numbered(5, [], fails=True)))
    assert seen == [0, 1, 2, 3, 4]


def test_the_thread_ends_with_an_iterator_that_is_left() -> None:
    ended: list[str] = []
    before = threading.active_count()
    rows = read_ahead(numbered(1000, ended))
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert len(ended) == 1
    assert threading.active_count() == before
