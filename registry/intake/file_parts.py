"""What readers of files share: an account of the files, a part for each table, and the columns of its folders.

    year=2022/city=Bern/a.parquet   ->   the columns year (int64) and city (Text) of every row of the file

Folders name columns as Hive, Spark and DuckDB write them. Names and values are percent-decoded, and
``__HIVE_DEFAULT_PARTITION__`` is null. A column has the same type in every kind of source: integers if all its values
are, also with leading zeros, because pyarrow, DuckDB and polars read ``month=01`` as 1; else the type that a CSV would
have, see ``text_types``; text if the caller requests a type, which then converts it. A folder ``split=NAME`` is a
split, not a column; see ``split_names``.

``read_ahead`` parses the next
rows of a part in a thread while its caller works on the last ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Final, TypeAlias
from urllib.parse import unquote

from registry.engines import call_in_thread
from registry.errors import SourceError
from registry.intake.options import AddOptions
from registry.intake.source import Files, FileUse, Rows, SourcePart
from registry.intake.split_names import SPLIT_FOLDER, NamedSplits, find_splits
from registry.intake.text_types import TextTypes
from registry.shards.arrow_values import import_pyarrow
from registry.splits import counted


def account_for_source(files: Files, splits: NamedSplits, noun: str, *, metadata: Sequence[str] = ()) -> list[FileUse]:
    """The uses of all files of a source whose kind is decided by names.

    Args:
        files: all of them.
        splits: the files with records.
        noun: what a file with records is called, such as ``"image"``.
        metadata: files with columns of the records.
    """
    used = {*metadata, *splits.unmatched, *(name for some in splits.files.values() for name in some)}
    others = [name for name in files.names if name not in used] if len(used) < len(files.names) else []
    return [
        *(use for split, some in splits.files.items() for use in files.uses(some, "records", split=split)),
        *files.uses(metadata, "metadata", reason="columns of the records"),
        *files.uses(splits.unmatched, "skipped", reason="no --split matches it"),
        *files.uses(others, "skipped", reason=f"not {'an' if noun[0] in 'aeiou' else 'a'} {noun} by its name"),
        *files.skipped,
    ]


def in_folders(names: Sequence[str]) -> str:
    """The number of folders of files, for people; empty if there are none.

    >>> in_folders(["a/1", "b/1"]), in_folders(["1"])
    (' in 2 folders', '')
    """
    folders = {name.rpartition("/")[0] for name in names} - {""}
    return f" in {counted(len(folders), 'folder')}" if folders else ""


Reader: TypeAlias = Callable[[], Generator[Rows, None, None]]
"""Yields the rows of a file from its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileParts:
    """The parts of a source; ``files`` and ``split_reason`` are those of ``Source``."""

    parts: Sequence[SourcePart]
    files: Sequence[FileUse]
    split_reason: str


def make_parts(
    files: Files,
    options: AddOptions,
    open_file: Callable[[str], Reader | None],
    *,
    noun: str,
) -> FileParts:
    """Open each file that belongs to a split. Folders such as ``year=2022`` are columns; see the module.

    Args:
        files: the files of the source.
        options: how they are opened.
        open_file: returns a function that reads a file, or None if the file has no rows.
        noun: what one file is called, for messages.

    Raises:
        SourceError: no file has rows, or the names of the files are ambiguous; see ``find_splits``.
    """
    splits = find_splits(files.names, options)
    uses: list[FileUse] = []
    parts: list[SourcePart] = []
    empty: list[str] = []
    for split, names in splits.files.items():
        used: list[str] = []
        for name in names:
            read = open_file(name)
            if read is None:
                empty.append(name)
            else:
                used.append(name)
                size = files.size_of(name)
                parts.append(SourcePart(split=split, name=name, read=partial(_start_ahead, read), num_bytes=size))
        uses += files.uses(used, "records", split=split)
    if not parts:
        problem = f"no row in {counted(len(empty), noun)}, such as {empty[0]!r}" if empty else f"there is no {noun}"
        raise SourceError(
            f"{files.location}: {problem}",
            hint="Check the path.",
            details={"files": empty[:100]},
        )
    uses += files.uses(empty, "skipped", reason="it has no rows")
    uses += files.uses(splits.unmatched, "skipped", reason="no --split matches it")
    parts = add_folder_columns(parts, options.wishes())
    return FileParts(parts=parts, files=[*uses, *files.skipped], split_reason=splits.reason)


def _start_ahead(read: Reader) -> Iterator[Rows]:
    return read_ahead(read())


def read_ahead(rows: Generator[Rows, None, None]) -> Iterator[Rows]:
    """Yield ``rows``, and read the next ones in a thread meanwhile. The thread ends with the iterator."""
    with closing(rows), closing(call_in_thread(_next_rows, repeat(rows), most=_MOST_AHEAD)) as blocks:
        for _, block in blocks:
            if block is None:
                return
            yield block


def _next_rows(rows: Iterator[Rows]) -> Rows | None:
    return next(rows, None)


_MOST_AHEAD: Final = 3


def list_names(names: Sequence[str]) -> str:
    """The first names, and the number of the others.

    >>> list_names(["a", "b", "c", "d", "e", "f"])
    "'a', 'b', 'c', 'd', 'e' and 1 more"
    """
    more = f" and {len(names) - _MOST_SHOWN:,} more" if len(names) > _MOST_SHOWN else ""
    return ", ".join(map(repr, names[:_MOST_SHOWN])) + more


_MOST_SHOWN: Final = 5


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


def add_folder_columns(parts: Sequence[SourcePart], requested: Collection[str]) -> list[SourcePart]:
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
            other = next(path for path, row in values.items() if missing[0] in row)
            raise SourceError(
                f"{name}: expected a folder {missing[0]}=..., as {other} has",
                hint=f"Move the file below such a folder; {missing[0]}={_NULL} is null.",
                details={"file": name, "missing": missing},
            )
    types = {
        column: "string" if column in requested else _type_of([row[column] for row in values.values()])
        for column in sorted(columns)
    }
    return [part.mapped(partial(_extend, part.name, values[part.name], types)) for part in parts]


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


def _extend(name: str, values: Mapping[str, str | None], types: Mapping[str, str], rows: Rows) -> Rows:
    """The rows of a file with the columns of its folders."""
    arrow, table = import_pyarrow(), rows.table
    for column, word in types.items():
        texts = arrow.array([values[column]], "string")
        if word == "bool":
            texts = arrow.compute.utf8_lower(texts)
        value = texts.cast(word)[0]
        if column not in table.schema.names:
            table = table.append_column(column, arrow.repeat(value, table.num_rows))
            continue
        # A column of the file keeps its own type, and must have the value of its folder in every row.
        array = table.column(column)
        try:
            distinct = array.cast(value.type).unique().to_pylist()
        except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
            distinct = array.slice(0, 1).to_pylist()
        if others := [other for other in distinct if other != value.as_py()]:
            raise SourceError(
                f"{name}: the folder says {column}={values[column]}, and the column {column!r} of the file "
                f"has {others[0]!r:.200}, in line {rows.lines[0]} or later",
                hint="Rename the folder or the column.",
                details={"file": name, "column": column},
            )
    return replace(rows, table=table)
