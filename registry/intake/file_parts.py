"""Shared by the readers of files: parts of tables, parts of files that are records, and columns from folder names.

    year=2022/city=Bern/a.parquet   ->   the columns year (int64) and city (Text) of every row of the file

Folders name columns as in Hive, Spark and DuckDB. Names and values are percent-decoded, and
``__HIVE_DEFAULT_PARTITION__`` is null. The type of a column is the same for every kind of source. If all values are
integers, even with leading zeros, the type is integer, because pyarrow, DuckDB and polars read ``month=01`` as 1.
Otherwise it is the type that a column of a CSV would have (see ``text_types``). If the caller requests a type, the
values are text until they are converted. A folder ``split=NAME`` is a split, not a column; see ``split_names``.

``read_ahead`` parses the next rows of a part in a thread while its caller works on the previous rows. A ``FilePart``
reads files as records: their bytes or text, a label from the folder, and columns of metadata. ``combine_splits``
combines the sources of several splits.
"""

from __future__ import annotations

import codecs
import fnmatch
import glob
import os
import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote

from registry.engines import call_in_thread
from registry.errors import SourceError, spell
from registry.features import Audio, Feature, Image, Tensor
from registry.features.feature import TEXT
from registry.intake.feature_text import Wish, is_type
from registry.intake.kinds import KINDS
from registry.intake.media_bytes import CheckMedia, bytes_of, common_picture, extension_of, is_file_feature
from registry.intake.options import AddOptions
from registry.intake.source import (
    MAX_BYTES,
    MAX_ROWS,
    PATH,
    BadFileError,
    BadRow,
    Files,
    FileUse,
    Rows,
    Source,
    SourcePart,
    list_names,
    root_of,
)
from registry.intake.split_names import SPLIT_FOLDER, NamedSplits, find_splits, without_split
from registry.intake.text_types import TextTypes
from registry.intake.value_types import python_value
from registry.shards.arrow_values import import_pyarrow
from registry.splits import counted
from registry.storage import Store

if TYPE_CHECKING:
    import pyarrow as pa


def account_for_source(
    files: Files, splits: NamedSplits, noun: str, *, metadata: Sequence[str] = (), others: str = ""
) -> list[FileUse]:
    """Return the uses of all files of a source.

    Args:
        files: all of them.
        splits: the files with records.
        noun: what a file with records is called, such as ``"image"``.
        metadata: files with columns of the records.
        others: the reason why the other files are skipped; by default, their names.
    """
    others = others or f"not {'an' if noun[0] in 'aeiou' else 'a'} {noun} by its name"
    used = {*metadata, *splits.unmatched, *(name for some in splits.files.values() for name in some)}
    left = [name for name in files.names if name not in used] if len(used) < len(files.names) else []
    return [
        *(use for split, some in splits.files.items() for use in files.uses(some, "records", split=split)),
        *files.uses(metadata, "metadata", reason="columns of the records"),
        *files.uses(splits.unmatched, "skipped", reason="no glob matches it"),
        *files.uses(left, "skipped", reason=others),
        *files.skipped,
    ]


def in_folders(names: Sequence[str]) -> str:
    """Describe the number of folders of files; empty if no file is in a folder.

    >>> in_folders(["a/1", "b/1"]), in_folders(["1"])
    (' in 2 folders', '')
    """
    folders = {name.rpartition("/")[0] for name in names} - {""}
    return f" in {counted(len(folders), 'folder')}" if folders else ""


Reader: TypeAlias = Callable[[], Generator[Rows, None, None]]
"""Yields the rows of a file from its beginning."""


def make_parts(files: Files, options: AddOptions, kind: str, open_file: Callable[[str], Reader | None]) -> Source:
    """Open each file that belongs to a split. Folders such as ``year=2022`` are columns; see the module.

    If ``options.paths`` is True, the name of each file is a column, too. If the previous version decided that, a file
    may have its own column ``path`` instead, as exported files have.

    Args:
        files: the files of the source.
        options: how they are opened.
        kind: the kind of the files.
        open_file: returns a function that reads a file, or None if the file has no rows.

    Returns:
        A source without a summary.

    Raises:
        SourceError: no file has rows, or the names of the files are ambiguous; see ``find_splits``.
    """
    splits, noun = find_splits(files.names, options), KINDS[kind].noun
    parts = [
        SourcePart(split=split, name=name, read=partial(read_ahead, read))
        for split, names in splits.files.items()
        for name in names
        if (read := open_file(name)) is not None
    ]
    used: dict[str, list[str]] = {}
    for part in parts:
        used.setdefault(part.split, []).append(part.name)
    if not parts:
        empty = [name for names in splits.files.values() for name in names]
        which = f"the {noun} {empty[0]!r} has" if len(empty) == 1 else f"{counted(len(empty), noun)} have"
        raise SourceError(
            f"{files.location}: {which} no rows" if empty else f"{files.location}: there is no {noun}",
            hint="A dataset has at least one record. Check what wrote the file." if empty else "Check the path.",
            details={"files": empty[:100]},
        )
    return Source(
        kind=kind,
        summary="",
        parts=add_folder_columns(
            parts,
            [name for name, wish in options.wishes().items() if wish.feature is not None or not wish.is_inferred],
            has_paths=options.paths is True,
            keep=frozenset({PATH} if options.paths and "paths" in options.remembered else ()),
        ),
        files=account_for_source(files, replace(splits, files=used), noun, others="it has no rows"),
        split_reason=f"{splits.reason}{_offer_paths(splits.files, options)}",
    )


def _offer_paths(splits: Mapping[str, Sequence[str]], options: AddOptions) -> str:
    """Offer to store the names of files, if a split has several that are not numbered parts of one table."""
    for names in splits.values() if options.paths is None else ():
        tables = {(name.rpartition("/")[0], without_split(name), extension_of(name)) for name in names}
        if len(tables) > 1 and not any(map(folder_values, names)):
            return f"; to store the file of each row: {spell('paths', True)}"
    return ""


def compare_columns(
    tables: Mapping[str, Sequence[str]], options: AddOptions | None = None, files: Files | None = None
) -> bool:
    """Whether some of ``tables``, which have columns by their names, lack columns that others have.

    These columns are null there. They must be requested with ``?``, or be optional in the previous version, because
    files of several datasets may be in one folder.

    Args:
        tables: the columns of each file or table, in any order.
        options: how they are opened; None if all must have the same columns.
        files: all files of the source.

    Raises:
        SourceError: other columns are missing.
    """
    names: dict[frozenset[str], str] = {}  # few sets, because there may be many files, and a hundred thousand columns
    for table, columns in tables.items():
        names.setdefault(frozenset(columns), table)
    everywhere, first = frozenset.intersection(*names), next(iter(tables))
    ordered = dict.fromkeys(chain(*(tables[table] for table in names.values())))
    partial_names = [name for name in ordered if name not in everywhere]
    renamed = {} if options is None else options.rename_columns or {}
    wishes = {} if options is None else options.wishes()
    may_lack = {name for name in partial_names if name in wishes and wishes[name].may_lack}
    may_have = may_lack.union(tables[first])
    for present, other in names.items():
        missing = [name for name in tables[first] if name not in present and name not in may_lack]
        added = [name for name in tables[other] if name not in may_have]
        if missing or added:
            faults = [f"{other} lacks {list_names(missing)}"] if missing else []
            faults += [f"{first} lacks {list_names(added)}"] if added else []
            hint = "The files and splits of a dataset must have the same columns. Add the others as another dataset."
            required = [name for name in partial_names if name not in may_lack]
            more = {renamed.get(name, name): _optional(wishes.get(name)) for name in required}
            if options is not None and everywhere and len(more) <= _MOST_MISSING:
                hint += f" If they are one table, with null where a file lacks a column: {spell('features', more)}."
            if options is not None and files is not None:
                hint += _offer_glob(first, other, files, options)
            raise SourceError(
                f"{first} and {other} have different columns: {', and '.join(faults)}",
                hint=hint,
                details={"files": [first, other], "missing": missing[:100], "added": added[:100]},
            )
    return bool(partial_names)


_MOST_MISSING: Final = 20


def _optional(wish: Wish | None) -> str:
    """Return the type that makes the type of ``wish`` optional."""
    word = "?" if wish is None or wish.is_remembered else f"{wish.text}?"
    return word if is_type(word) else "?"


def in_order_of(first: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Return ``columns``, those of ``first`` in its order.

    >>> in_order_of(["a", "b", "c"], ["d", "c", "a"])
    ('a', 'c', 'd')
    """
    own, shared = dict.fromkeys(columns), set(first)
    return (*(name for name in first if name in own), *(name for name in own if name not in shared))


def _offer_glob(first: str, other: str, files: Files, options: AddOptions) -> str:
    """Offer to choose the files of one table, if the option loses no split."""
    splits = find_splits(files.names, options).files
    if len(splits) > 1 or options.splits or options.rename_splits or options.split_by or options.holdout:
        return ""
    return f" To choose files: {spell('splits', dict.fromkeys(splits, _glob_of(first, other)))}"


def _glob_of(name: str, other: str) -> str:
    """Return a glob of the files whose names differ from ``name`` only in numbers, unless it matches ``other``.

    >>> _glob_of("sales_2023.csv", "items.csv"), _glob_of("sales_2023.csv", "sales_2023_items.csv")
    ('sales_[0-9]*.csv', 'sales_2023.csv')
    """
    exact = glob.escape(name)
    pattern = re.sub("[0-9]+", "[0-9]*", exact)
    return exact if fnmatch.fnmatchcase(other, pattern) else pattern


def read_ahead(read: Reader) -> Iterator[Rows]:
    """Yield the rows of ``read``, while a thread reads the next ones. The thread ends with the iterator."""
    with (
        closing(read()) as rows,
        closing(call_in_thread(lambda _: next(rows, None), repeat(None), most=_MOST_AHEAD)) as blocks,
    ):
        for _, block in blocks:
            if block is None:
                return
            yield block


_MOST_AHEAD: Final = 3


_FOLDER: Final = re.compile(r"([^=]+)=(.*)", re.DOTALL)
_INTEGER: Final = re.compile(r"-?[0-9]{1,30}")
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


def folder_values(name: str) -> dict[str, str | None]:
    """Return the values of columns in the names of the folders of a file, by column.

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

    If ``globs`` define the splits, the folders need not be columns.
    """
    for name in () if globs else names:
        if values := folder_values(name):
            raise SourceError(
                f"{name}: the folder {next(iter(values))}=... names a column, which this kind of source cannot have",
                hint=f"{hint} If the folders are splits: {spell('splits', {'NAME': 'GLOB'})}",
                details={"file": name, "columns": list(values)},
            )


def add_folder_columns(
    parts: Sequence[SourcePart],
    requested: Collection[str],
    *,
    has_paths: bool = False,
    keep: frozenset[str] = frozenset(),
) -> list[SourcePart]:
    """Add the columns in the names of folders to ``parts``, one for each file.

    Args:
        parts: the parts; their names are those of the files.
        requested: the columns whose types the caller requests.
        has_paths: whether the name of the file is a column ``path``, too.
        keep: the columns of which a file may have other values than its path.

    Raises:
        SourceError: some files lack a column that the folders of others have.
    """
    values = {part.name: folder_values(part.name) for part in parts}
    for name in values if has_paths else ():
        values[name][PATH] = name
    columns = list(dict.fromkeys(column for row in values.values() for column in row))
    if not columns:
        return list(parts)
    for name, row in values.items():
        if missing := [column for column in columns if column not in row]:
            other = next(path for path, row in values.items() if missing[0] in row)
            raise SourceError(
                f"{name}: expected a folder {missing[0]}=..., as in the path of {other}",
                hint=f"Move the file into such a folder; for null, name it {missing[0]}={_NULL}",
                details={"file": name, "missing": missing},
            )
    types = {
        column: "string"
        if column in requested or (has_paths and column == PATH)
        else _type_of([row[column] for row in values.values()])
        for column in sorted(columns)
    }
    return [part.mapped(partial(_extend, part.name, values[part.name], types, keep)) for part in parts]


def _type_of(values: Sequence[str | None]) -> str:
    """Return the Arrow type of the values of a column, as text."""
    texts = [value for value in values if value is not None]
    if not texts:
        return "string"
    if all(map(_INTEGER.fullmatch, texts)):
        texts = [str(int(text)) for text in texts]
    types = TextTypes()
    types.update(import_pyarrow().array(texts), lambda index: ("", index))
    return types.decide()[0]


def _extend(
    name: str, values: Mapping[str, str | None], types: Mapping[str, str], keep: frozenset[str], rows: Rows
) -> Rows:
    """Add the columns of folders to the rows of a file."""
    arrow, table = import_pyarrow(), rows.table
    for column, word in types.items():
        if column in keep and column in table.schema.names:
            continue
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
            distinct = [python_value(array.chunk(0), 0)]
        if others := [other for other in distinct if other != value.as_py()]:
            problem, hint = f"its path says {column}={values[column]}", "Rename the folder or the column."
            if values[column] == name:
                problem = f"{spell('paths', True)} stores the name of the file in the column {column!r}"
                hint = f"Rename the column in the file, or leave out {spell('paths', True)}."
            raise SourceError(
                f"{name}: {problem}, but the column {column!r} of the file "
                f"has {others[0]!r:.200}, in line {rows.lines[0]} or later",
                hint=hint,
                details={"file": name, "column": column},
            )
    return replace(rows, table=table)


MAX_FILE_BYTES: Final = 2**31 - 2**20
"""A record is a protocol buffer, which has less than 2 GiB."""

_OTHER_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


Convert: TypeAlias = Callable[[str, bytes], Any]
"""Makes the value of a file from its name and its bytes, or raises BadFileError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """Reads some files as rows; it is the ``read`` of a ``SourcePart``.

    Attributes:
        store: where the files are stored.
        names: their names, which are also the keys.
        column: the name of the column of the content.
        is_text: whether the content is text; otherwise bytes.
        convert: makes the value of a file.
        has_path: whether the name of the file is a column ``path``, the last one.
        metadata: more columns, with one row for each file.
        bad: other rows that cannot be used, reported with the first rows.
    """

    store: Store
    names: Sequence[str]
    column: str
    is_text: bool
    convert: Convert
    has_path: bool = False
    metadata: pa.Table | None = None
    bad: tuple[BadRow, ...] = ()

    def __call__(self) -> Iterator[Rows]:
        """Read the files in order."""
        root = str(root_of(self.store))
        bad = list(self.bad)
        values: list[Any] = []
        places: list[int] = []
        num_bytes = 0
        for place, name in enumerate(self.names):
            try:
                values.append(self._read(root, name))
                places.append(place)
                num_bytes += len(values[-1])
            except BadFileError as error:
                bad.append(BadRow(file=name, line=None, reason=str(error)))
            if num_bytes >= MAX_BYTES or len(values) + len(bad) >= MAX_ROWS:
                yield self._rows(values, places, bad)
                values, places, bad, num_bytes = [], [], [], 0
        if values or bad:
            yield self._rows(values, places, bad)

    def _read(self, root: str, name: str) -> Any:
        try:
            # Takes half the time of Path.read_bytes, which matters for a million files.
            with open(f"{root}/{name}", "rb", buffering=0) as file:  # noqa: PTH123
                if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
                    raise BadFileError("it is larger than 2 GiB")
                content = file.readall()
        except OSError as error:
            raise BadFileError(f"it cannot be read: {error.strerror or error}") from error
        if not content and not self.is_text:
            raise BadFileError("it is empty")
        return self.convert(name, content)

    def _rows(self, values: list[Any], places: list[int], bad: list[BadRow]) -> Rows:
        arrow = import_pyarrow()
        names = [self.names[place] for place in places]
        kind = arrow.string() if self.is_text else arrow.binary()
        table = arrow.table({self.column: arrow.array(values, kind)})
        if self.metadata is not None:
            for column, data in zip(
                self.metadata.schema, self.metadata.take(arrow.array(places, "int64")).columns, strict=True
            ):
                table = table.append_column(column, data)
        if self.has_path:
            table = table.append_column(PATH, [arrow.array(names, arrow.string())])
        return Rows(table=table, lines=[place + 1 for place in places], keys=names, bad=tuple(bad), are_files=True)


def label_of(name: str) -> str:
    """Return the class of a file: the name of its folder.

    >>> label_of("train/dog/1.png")
    'dog'
    """
    return name.rpartition("/")[0].rpartition("/")[2]


def decode_text(name: str, data: bytes) -> str:
    r"""Decode the text of a file.

    >>> decode_text("a.txt", b"\xef\xbb\xbfcaf\xc3\xa9")
    'café'

    Raises:
        BadFileError: it is not UTF-8.
    """
    del name
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        found = "UTF-16" if data.startswith(_OTHER_MARKS) else f"the byte 0x{data[error.start]:02x}"
        line = data.count(b"\n", 0, error.start) + 1
        raise BadFileError(f"expected UTF-8, found {found} in line {line}") from error


def open_parts(splits: Mapping[str, Sequence[str]], make: Callable[[Sequence[str]], Any]) -> list[SourcePart]:
    """The part of each split, named after its first and last file; ``make`` makes the ``read`` of its files."""
    return [
        SourcePart(split=split, name=" to ".join(dict.fromkeys((names[0], names[-1]))), read=make(names))
        for split, names in splits.items()
        if names
    ]


def combine_splits(sources: Mapping[str, Source], *, split_reason: str) -> Source:
    """Combine several sources into one source, in which each is a split.

    If kinds or metadata differ, those of the first source are used. Paths of files do not change.

    Args:
        sources: a source for each split. All splits of such a source are merged into this split.
        split_reason: why the splits are what they are, for people.

    Raises:
        SourceError: the sources define a column differently, or only some of them are text.
    """
    first_name, first = next(iter(sources.items()))
    hints: dict[str, Feature] = {}
    parts: list[SourcePart] = []
    for name, source in sources.items():
        if source.is_text != first.is_text:
            raise SourceError(
                f"the splits {first_name!r} ({first.kind}) and {name!r} ({source.kind}) cannot be combined: "
                "only one of them consists of untyped text",
                hint="Convert one of them, or add them as two datasets.",
            )
        for column, feature in source.hints.items():
            other = hints.setdefault(column, feature)
            if other == feature:
                continue
            if isinstance(other, Image) and isinstance(feature, Image) and other.dtype == feature.dtype:
                hints[column] = common_picture(other, feature)
                continue
            if not _are_files(other, feature):
                raise SourceError(
                    f"column {column!r} is {other!r} in the split {first_name!r}, but {feature!r} in {name!r}",
                    hint="Give all splits the same features.",
                )
            hints[column] = bytes_of("an image" if Image in (type(other), type(feature)) else "a media")
        parts += [replace(part, split=name) for part in source.parts]
    # Pictures that became PNG for an Image stay as they are among others.
    parts = [
        replace(part, read=replace(part.read, convert=CheckMedia()))
        if isinstance(part.read, FilePart) and type(hints.get(part.read.column)) is Tensor
        else part
        for part in parts
    ]
    kinds = {source.kind for source in sources.values()}
    return Source(
        kind=first.kind if len(kinds) == 1 else "objects",
        summary="; ".join(f"{name}: {source.summary}" for name, source in sources.items()),
        parts=parts,
        hints=hints,
        is_text=first.is_text,
        path_column=first.path_column if all(source.path_column for source in sources.values()) else "",
        may_lack_columns=any(source.may_lack_columns for source in sources.values()),
        files=[
            replace(use, split=name) if use.role == "records" else use
            for name, source in sources.items()
            for use in source.files
        ],
        metadata=first.metadata,
        origins=[origin for source in sources.values() for origin in source.origins],
        split_reason=split_reason,
    )


def _are_files(first: Feature, second: Feature) -> bool:
    """Whether both are features of files that only bytes can represent together, such as sounds of two sample rates."""
    if isinstance(first, Audio) and isinstance(second, Audio):
        return first.lazy_decode and second.lazy_decode
    pair = (first, second)
    plain = [feature for feature in pair if type(feature) is Tensor and feature.dtype == TEXT and not feature.shape]
    return bool(plain) and all(feature in plain or is_file_feature(feature) for feature in pair)
