"""Columns in the names of folders, as Hive, Spark and DuckDB write them.

    year=2022/city=Bern/a.parquet   ->   the columns year (int64) and city (Text) of every row of the file

Names and values are percent-decoded, and ``__HIVE_DEFAULT_PARTITION__`` is null. A column has the same type in every
kind of source: integers if all its values are, also with leading zeros, because pyarrow, DuckDB and polars read
``month=01`` as 1; else the type that a CSV would have, see ``text_types``; text if the caller requests a type, which
then converts it. A folder ``split=NAME`` is a split, not a column; see ``split_names``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import unquote

from registry.errors import SourceError
from registry.intake.source import Part, Rows
from registry.intake.split_names import SPLIT_FOLDER
from registry.intake.text_types import TextTypes
from registry.shards.arrow_values import import_pyarrow

_FOLDER: Final = re.compile(r"([^=]+)=(.*)", re.DOTALL)
_INTEGER: Final = re.compile(r"-?[0-9]{1,30}")
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


def folder_values(name: str) -> dict[str, str | None]:
    """The values in the names of the folders of a file.

    >>> folder_values("year=2022/city=Z%C3%BCrich/split=test/a.csv")
    {'year': '2022', 'city': 'Zürich'}
    """
    values: dict[str, str | None] = {}
    for folder in name.split("/")[:-1]:
        match = _FOLDER.fullmatch(folder)
        if match is None or folder.startswith(SPLIT_FOLDER):
            continue
        key, value = unquote(match[1]), unquote(match[2])
        if key in values:
            raise SourceError(
                f"{name}: two folders name the column {key!r}", hint="Rename one of them.", details={"file": name}
            )
        values[key] = None if value == _NULL else value
    return values


def refuse_folder_columns(names: Sequence[str], globs: Mapping[str, str] | None, *, hint: str) -> None:
    """Refuse files below folders such as ``year=2022`` where a column cannot be added. Raises SourceError.

    If ``globs`` give the splits, the folders need not be columns.
    """
    for name in () if globs else names:
        if values := folder_values(name):
            raise SourceError(
                f"{name}: the folder {next(iter(values))}=... names a column, which this kind of source cannot take",
                hint=f"{hint} If the folders are splits: --split NAME=GLOB",
                details={"file": name, "columns": list(values)},
            )


def add_folder_columns(parts: Sequence[Part], requested: Collection[str]) -> list[Part]:
    """``parts``, one for each file, with the columns that the names of their folders have.

    Args:
        parts: the parts; their names are those of the files.
        requested: the columns whose types the caller requests.

    Raises:
        SourceError: some files lack a column that the folders of others have.
    """
    values = {part.name: folder_values(part.name) for part in parts}
    columns = list(dict.fromkeys(column for row in values.values() for column in row))
    if not columns:
        return list(parts)
    for name, row in values.items():
        if missing := [column for column in columns if column not in row]:
            other = next(one for one, row in values.items() if missing[0] in row)
            raise SourceError(
                f"{name}: expected a folder {missing[0]}=..., as {other} has",
                hint=f"Move the file below such a folder; {missing[0]}={_NULL} is null.",
                details={"file": name, "missing": missing},
            )
    types = {
        column: "string" if column in requested else _type_of([row[column] for row in values.values()])
        for column in sorted(columns)
    }
    return [replace(part, read=_WithColumns(part.name, part.read, values[part.name], types)) for part in parts]


def _type_of(values: Sequence[str | None]) -> str:
    """The Arrow type of the values of a column, as text."""
    texts = [value for value in values if value is not None]
    if not texts:
        return "string"
    if all(map(_INTEGER.fullmatch, texts)):
        texts = [str(int(text)) for text in texts]
    types = TextTypes()
    types.update(import_pyarrow().array(texts), lambda index: ("", index))
    return types.decide()[0]


@dataclass(frozen=True, slots=True)
class _WithColumns:
    """Reads a file, and adds a value to each of its rows; it is the ``read`` of a ``Part``."""

    name: str
    read: Callable[[], Iterator[Rows]]
    values: Mapping[str, str | None]
    types: Mapping[str, str]

    def __call__(self) -> Iterator[Rows]:
        for rows in self.read():
            yield replace(rows, table=self._extend(rows))

    def _extend(self, rows: Rows) -> Any:
        arrow, table = import_pyarrow(), rows.table
        for column, word in self.types.items():
            values = arrow.array([self.values[column]], "string")
            if word == "bool":
                values = arrow.compute.utf8_lower(values)
            value = values.cast(word)[0]
            if column in table.schema.names:
                self._require_equal(column, table.column(column), value, rows)
            else:
                table = table.append_column(column, arrow.repeat(value, table.num_rows))
        return table

    def _require_equal(self, column: str, array: Any, value: Any, rows: Rows) -> None:
        """Check that a column of the file has the value of its folder in every row. It keeps its own type."""
        arrow = import_pyarrow()
        try:
            distinct = array.cast(value.type).unique().to_pylist()
        except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
            distinct = array.slice(0, 1).to_pylist()
        if others := [other for other in distinct if other != value.as_py()]:
            raise SourceError(
                f"{self.name}: the folder says {column}={self.values[column]}, and the column {column!r} of the file "
                f"has {others[0]!r:.200}, in line {rows.lines[0]} or later",
                hint="Rename the folder or the column.",
                details={"file": self.name, "column": column},
            )
