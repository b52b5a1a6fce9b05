"""Writes files, opens them with a reader of intake, and collects their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from registry.intake.options import AddOptions
from registry.intake.source import BadRow, Files, Source
from registry.storage import open_store


def write_files(folder: Path, contents: Mapping[str, bytes]) -> Files:
    """Write ``contents`` below ``folder``."""
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    names = sorted(contents)
    return Files(
        store=open_store(str(folder)), names=names, sizes=[len(contents[name]) for name in names], location=str(folder)
    )


def open_files(
    opener: Callable[..., Source], folder: Path, contents: Mapping[str, bytes] | bytes, **options: Any
) -> Source:
    """Write the files, or one file ``data.csv``, and open them."""
    files = write_files(folder, contents if isinstance(contents, Mapping) else {"data.csv": contents})
    given = AddOptions(splits=options.pop("splits", {}), has_csv_options=False)
    return opener(files, options.pop("given", given), **options)


def read_rows(source: Source) -> list[tuple[int, dict[str, Any]]]:
    """The line and the values of each row of all parts, which must have no bad rows."""
    rows, bad = read_all(source)
    assert bad == []
    return rows


def read_all(source: Source) -> tuple[list[tuple[int, dict[str, Any]]], list[BadRow]]:
    """The line and the values of each row of all parts, and the bad rows. Each part is read twice, once as a copy."""
    rows: list[tuple[int, dict[str, Any]]] = []
    bad: list[BadRow] = []
    for part in source.parts:
        first, again = list(part.read()), list(part.read())
        assert [(one.table, list(one.lines), one.bad) for one in first] == [
            (one.table, list(one.lines), one.bad) for one in again
        ]
        for one in first:
            one.table.validate(full=True)
            assert len(one.lines) == one.table.num_rows
            rows += zip(one.lines, one.table.to_pylist(), strict=True)
            bad += one.bad
    return rows, bad


def bare_source(**facts: Any) -> Source:
    """A source without parts, of which only ``facts`` are known. Texts are those of a CSV."""
    return Source(kind="csv" if facts.get("is_text") else "rows", summary="", parts=[], **facts)
