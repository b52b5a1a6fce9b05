"""Columns in the names of folders, as Hive, Spark and DuckDB write them.

    year=2022/city=Bern/a.parquet   ->   the columns year (int64) and city (Text) of every row of the file

Values are percent-decoded. A column is ``int64`` if all its values are written as such integers, else text.
``__HIVE_DEFAULT_PARTITION__`` is null. A folder ``split=NAME`` is a split, not a column; see ``split_names``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import unquote

from registry.errors import SourceError
from registry.intake.source import Part, Rows
from registry.intake.split_names import SPLIT_FOLDER
from registry.shards.arrow_values import import_pyarrow

_FOLDER: Final = re.compile(r"([^=]+)=(.*)", re.DOTALL)
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")
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
        key, value = match[1], unquote(match[2])
        if key in values:
            raise SourceError(
                f"{name}: two folders name the column {key!r}", hint="Rename one of them.", details={"file": name}
            )
        values[key] = None if value == _NULL else value
    return values


def refuse_folder_columns(names: Sequence[str], *, hint: str) -> None:
    """Refuse files below folders such as ``year=2022`` where a column cannot be added. Raises SourceError."""
    for name in names:
        if values := folder_values(name):
            raise SourceError(
                f"{name}: the folder {next(iter(values))}=... names a column, which this kind of source cannot take",
                hint=hint,
                details={"file": name, "columns": list(values)},
            )


def add_folder_columns(parts: Sequence[Part], *, is_text: bool) -> list[Part]:
    """``parts``, one for each file, with the columns that the names of their folders have.

    Args:
        parts: the parts; their names are those of the files.
        is_text: whether the values of all columns are text whose types are inferred later.

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
    types = {column: _type_of([row[column] for row in values.values()], is_text=is_text) for column in sorted(columns)}
    return [replace(part, read=_WithColumns(part.name, part.read, values[part.name], types)) for part in parts]


def _type_of(values: Sequence[str | None], *, is_text: bool) -> str:
    texts = [value for value in values if value is not None]
    return "int64" if texts and not is_text and all(map(_INTEGER.fullmatch, texts)) else "string"


@dataclass(frozen=True, slots=True)
class _WithColumns:
    """Reads a file, and adds a value to each of its rows; it is the ``read`` of a ``Part``."""

    name: str
    read: Callable[[], Iterator[Rows]]
    values: Mapping[str, str | None]
    types: Mapping[str, str]

    def __call__(self) -> Iterator[Rows]:
        for rows in self.read():
            yield replace(rows, table=self._extend(rows.table))

    def _extend(self, table: Any) -> Any:
        arrow = import_pyarrow()
        for column, word in self.types.items():
            if column in table.schema.names:
                raise SourceError(
                    f"{self.name}: {column!r} is a column of the file and the name of a folder",
                    hint=f"Rename the folder, so that it does not begin with {column}=",
                    details={"file": self.name, "column": column},
                )
            text = self.values[column]
            value = int(text) if text is not None and word == "int64" else text
            values = arrow.repeat(arrow.scalar(value, arrow.type_for_alias(word)), table.num_rows)
            table = table.append_column(column, values)
        return table
