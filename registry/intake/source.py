"""The values between the readers of sources and the pipeline: ``Source``, its ``SourcePart``s, and their ``Rows``.

``detect`` opens the caller's data as a ``Source``, with the reader of its kind (``csv``, ``images`` ...). The pipeline
reads every part twice: to infer the schema, and to write records. Messages show places in a source, and values, as the
functions at the end write them.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from registry.errors import SourceError, UsageError, spell, suggest
from registry.escaping import printable
from registry.features import Feature
from registry.model import DatasetMetadata, listed
from registry.shards.arrow_values import from_numbers, import_pyarrow
from registry.splits import counted
from registry.storage import Store

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ROWS: Final = 16_384
MAX_BYTES: Final = 8 * 2**20
"""A reader ends a ``Rows`` at the first of these limits, so that memory is bounded. A single row may be larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row or a whole file that cannot be used.

    Attributes:
        file: name of the file, relative to the source.
        line: the line in the file, from 1, or the number of the row if the format has no lines; None: the whole file.
        column: the column at fault, or None.
        reason: the fault, such as ``"expected 5 values, found 4"``.
        also: the other columns at fault, and their reasons.
    """

    file: str
    line: int | None
    column: str | None = None
    reason: str
    also: tuple[tuple[str | None, str], ...] = ()

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.reason}" if self.column is None else f"{place}, column {self.column!r}: {self.reason}"


class BadFileError(Exception):
    """The content of a file or of a row cannot be used. The text of the error becomes the reason of a ``BadRow``.

    ``place`` is the place of a syntax error in the text.
    """

    def __init__(self, reason: str, *, place: int | None = None) -> None:
        super().__init__(reason)
        self.place = place


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Consecutive rows of a part.

    Attributes:
        table: the columns of the usable rows. The type of a column may differ between the ``Rows`` of a source, such as
            ``null``, or ``int64`` before a ``double``; see ``inference``. If ``Source.may_lack_columns`` is False,
            every ``Rows`` of a source has the same column names.
        lines: the line of each row in the file, from 1; for formats without lines, the number of the row.
        keys: a key of each row that is stable and unique in the split, such as the path of its file. None if rows have
            no keys; the key is then a column, or a hash of the content.
        bad: rows that are left out of ``table``.
        are_files: whether each row is a file with the key as its name.
    """

    table: pa.Table
    lines: Sequence[int]
    keys: Sequence[str] | None = None
    bad: tuple[BadRow, ...] = ()
    are_files: bool = False

    def __reduce__(self) -> tuple[Callable[..., Rows], tuple[Any, ...]]:
        """Pickle the rows for another process. Arrow would pickle a slice of a table with all rows of the table."""
        arrow = import_pyarrow()
        sink = arrow.BufferOutputStream()
        with arrow.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table)
        return _unpickle_rows, (sink.getvalue(), self.lines, self.keys, self.bad, self.are_files)

    def without(self, part_name: str, faults: Mapping[int, Sequence[tuple[str | None, str]]]) -> Rows:
        """Return the usable rows.

        ``faults`` has the columns at fault of each other row, and the reasons. These rows are appended to ``bad``.
        """
        if not faults:
            return self
        good = [row for row in range(self.table.num_rows) if row not in faults]
        return replace(
            self,
            table=self.table.take(from_numbers(np.array(good, np.int64))),
            lines=[self.lines[row] for row in good],
            keys=None if self.keys is None else [self.keys[row] for row in good],
            bad=(*self.bad, *(self._bad_row(part_name, row, faults[row]) for row in sorted(faults))),
        )

    def _bad_row(self, part_name: str, row: int, faults: Sequence[tuple[str | None, str]]) -> BadRow:
        """Report a row by its own name if it is a file, otherwise by its line in the part."""
        (column, reason), *also = faults
        bad = BadRow(file=part_name, line=int(self.lines[row]), column=column, reason=reason, also=tuple(also))
        return replace(bad, file=self.keys[row], line=None) if self.are_files and self.keys is not None else bad


def _unpickle_rows(table: Any, lines: Any, keys: Any, bad: Any, are_files: Any) -> Rows:
    opened = import_pyarrow().ipc.open_stream(table).read_all()
    return Rows(table=opened, lines=lines, keys=keys, bad=bad, are_files=are_files)


def cut_rows(table: pa.Table, lines: Sequence[int], bad: Sequence[BadRow] = ()) -> Iterator[Rows]:
    """Cut a table and its bad rows into ``Rows`` of similar sizes within the limits."""
    most = max(table.num_rows, len(bad))
    num_pieces = max(-(-most // MAX_ROWS), -(-table.nbytes // MAX_BYTES))
    step = -(-most // num_pieces) if most else 1
    for start in range(0, most, step):
        stop = start + step
        yield Rows(
            table=table if table.num_rows <= step and start == 0 else table.slice(start, step),
            lines=lines[start:stop],
            bad=tuple(bad[start:stop]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePart:
    """A piece of a source, which can be read from start to end repeatedly, with the same rows each time.

    Attributes:
        split: the split of its rows.
        name: its name in messages, which is that of a file relative to the source.
        read: yields its rows. Raises SourceError if the part as a whole cannot be read.
    """

    split: str
    name: str
    read: Callable[[], Iterator[Rows]]

    def mapped(self, change: Callable[[Rows], Rows]) -> SourcePart:
        """Return this part with ``change`` applied to all of its ``Rows``."""
        return replace(self, read=lambda: map(change, self.read()))


PATH: Final = "path"
"""The name of the column with the names of files."""

Role: TypeAlias = Literal["records", "metadata", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileUse:
    """The use of a file, or of the files of a folder.

    Attributes:
        name: the file or folder, relative to the source.
        role: ``records``, ``metadata`` or ``skipped``.
        reason: the reason why it was skipped, or the purpose of the metadata; empty for records.
        split: the split of its records.
        num_files: the number of files.
        num_bytes: their total size.
    """

    name: str
    role: Role
    reason: str = ""
    split: str | None = None
    num_files: int = 1
    num_bytes: int = 0


MAX_FILES: Final = 20
MAX_FOLDERS: Final = 100
"""If there are more files, they are listed by folder; if there are more folders, they are listed by parent."""


def account_for(
    files: Iterable[tuple[str, int]], role: Role, *, reason: str = "", split: str | None = None
) -> tuple[FileUse, ...]:
    """Return the uses of files with the same role, reason and split, sorted by name.

    Args:
        files: names, relative to the source, and sizes in bytes.
        role: their role; see ``FileUse``.
        reason: the reason why they were skipped, or the purpose of the metadata.
        split: the split of their records.

    >>> [(use.name, use.num_files) for use in account_for(((f"cat/{n}.png", 9) for n in range(2000)), "records")]
    [('cat', 2000)]
    """
    # Keep sums for each folder, and the files themselves only while they are few: a source may have a million.
    few: list[tuple[str, int]] = []
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, num_bytes in files:
        if len(few) <= MAX_FILES:
            few.append((name, num_bytes))
        folder_sums = sums[name.rpartition("/")[0]]
        folder_sums[0] += 1
        folder_sums[1] += num_bytes
    if len(few) <= MAX_FILES:
        result = [(name, 1, num_bytes) for name, num_bytes in few]
    else:
        while len(sums) > MAX_FOLDERS:
            deepest = max(folder.count("/") + 1 if folder else 0 for folder in sums)
            merged: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
            for folder, (num_files, num_bytes) in sums.items():
                parts = folder.split("/") if folder else []
                folder_sums = merged["/".join(parts[: deepest - 1])]
                folder_sums[0] += num_files
                folder_sums[1] += num_bytes
            sums = merged
        result = [(folder or ".", num_files, num_bytes) for folder, (num_files, num_bytes) in sums.items()]
    return tuple(
        FileUse(name=name, role=role, reason=reason, split=split, num_files=num_files, num_bytes=num_bytes)
        for name, num_files, num_bytes in sorted(result)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A downloaded file or list of files, which is recorded with the version as a source."""

    url: str
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The opened data of a caller.

    Attributes:
        kind: the kind that was detected or forced, such as ``csv``.
        summary: a description for messages, such as "3 CSV files (comma, UTF-8, with a header)".
        parts: the pieces, by split in order of the splits, then by name.
        columns: the names of the columns of a Python object, if all rows have them; otherwise empty.
        hints: features that the source itself defines, by column, such as classes from folders, or an Image for image
            files. Inference does not change them.
        is_text: whether values are text whose types have to be inferred, as in a CSV.
        quoted_nulls: texts that usually mean null, and are in quotes near the start of a CSV file.
        may_lack_columns: whether columns, and fields of structs, may be missing in some ``Rows``, which means that
            their values are null. The columns of JSON are known only after the last row, and are ordered by their first
            occurrence.
        path_column: the column of the keys of the rows, which are names of files, or empty.
        split_by: the column with the names of splits, unless the caller names another, or empty.
        is_typed: whether ``hints`` has every column, in order, and no value is null. The schema is then known before
            any row is read.
        files: the use of every file.
        metadata: description, license and so on, from a dataset card or a Croissant file.
        origins: what was downloaded.
        split_reason: the origin of the splits for messages, such as "from the names of folders".
    """

    kind: str
    summary: str
    parts: Sequence[SourcePart]
    columns: tuple[str, ...] = ()
    hints: Mapping[str, Feature] = field(default_factory=dict)
    is_text: bool = False
    quoted_nulls: Collection[str] = ()
    may_lack_columns: bool = False
    path_column: str = ""
    split_by: str = ""
    is_typed: bool = False
    files: Sequence[FileUse] = ()
    metadata: DatasetMetadata = field(default_factory=DatasetMetadata)
    origins: Sequence[Origin] = ()
    split_reason: str = ""

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, in order."""
        return tuple(dict.fromkeys(part.split for part in self.parts))

    def first_rows(self) -> Rows | None:
        """Return the first rows, or None if all parts are empty."""
        return next((rows for part in self.parts for rows in part.read()), None)

    def with_split_names(self, names: Mapping[str, str]) -> Source:
        """Return this source with its splits renamed by ``names``."""
        return replace(
            self,
            parts=[replace(part, split=names[part.split]) for part in self.parts],
            files=[replace(use, split=names.get(use.split or "", use.split)) for use in self.files],
        )

    def with_column_names(self, names: Mapping[str, str], *, must_exist: Collection[str]) -> Source:
        """Return this source with its columns renamed by ``names``.

        Reading it raises UsageError if a column of ``must_exist`` is missing, and SourceError if two columns get the
        same name.
        """
        from registry.interop.dataset_card import HUGGING_FACE

        if not names:
            return self
        must_exist = () if self.may_lack_columns else must_exist
        special = {**names, "": ""}  # a column may have no name, and then no name means no column
        keys, custom = self.metadata.supervised_keys, self.metadata.custom
        kept = custom.get(HUGGING_FACE)
        if isinstance(kept, Mapping):  # features of columns that cannot be derived from their types
            custom = {**custom, HUGGING_FACE: {names.get(name, name): feature for name, feature in kept.items()}}
        return replace(
            self,
            parts=[part.mapped(partial(_rename_columns, names, must_exist)) for part in self.parts],
            columns=tuple(names.get(name, name) for name in self.columns),
            hints={names.get(name, name): hint for name, hint in self.hints.items()},
            path_column=special.get(self.path_column, self.path_column),
            split_by=special.get(self.split_by, self.split_by),
            metadata=replace(
                self.metadata,
                supervised_keys=None if keys is None else tuple(names.get(key, key) for key in keys),
                custom=custom,
            ),
        )


def _rename_columns(names: Mapping[str, str], must_exist: Collection[str], rows: Rows) -> Rows:
    columns = list(rows.table.schema.names)
    missing = [name for name in must_exist if name not in columns]
    if missing and rows.table.num_rows:
        raise no_column(missing[0], columns)
    renamed = [names.get(name, name) for name in columns]
    for name in names.values():
        if renamed.count(name) > 1:
            old = next(old for old, new in names.items() if new == name)
            raise SourceError(
                f"two columns would be named {name!r}",
                hint=f"Choose another name with {spell('rename_columns')}. "
                f"If {old!r} has that name from the previous version: {spell('rename_columns', {old: old})}",
                details={"column": name[:200]},
            )
    bad = tuple(
        row if row.column is None else replace(row, column=names.get(row.column, row.column)) for row in rows.bad
    )
    return replace(rows, table=rows.table.rename_columns(renamed), bad=bad)


def no_column(name: str, columns: Sequence[str]) -> UsageError:
    """Make the error for a missing column that is to be renamed."""
    return UsageError(
        f"the source has no column {name!r:.200} to rename",
        hint=suggest(name, columns, have="The columns are:", most=20),
        details={"column": name[:200]},
    )


def explain_choice(name: str | None, names: Sequence[str], *, noun: str, option: str) -> tuple[str, str | None]:
    """Explain why ``name`` chooses none of ``names``, which a description lists, and how to choose one.

    >>> explain_choice(None, ["en", "de"], noun="config", option="config")
    ('has 2 configs: en, de', "Choose one: config='en'")
    """
    if name is None:
        return f"has {len(names)} {noun}s: {listed(names, 10)}", f"Choose one: {spell(option, names[0])}"
    return f"has no {noun} {name!r}", suggest(name, names, have=f"The {noun}s are:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files of a source that are not hidden.

    Attributes:
        store: a local folder, because remote files are downloaded first.
        names: their names in ``store``, sorted.
        sizes: their sizes in bytes, in the same order.
        location: the caller's path or URL, for messages.
        skipped: files that no reader receives: hidden files, leftovers of operating systems, and links that lead out of
            the folder.
        origins: the downloads that they come from.
    """

    store: Store
    names: Sequence[str]
    sizes: Sequence[int]
    location: str
    skipped: tuple[FileUse, ...] = ()
    origins: tuple[Origin, ...] = ()

    def size_of(self, name: str) -> int:
        """Return the size of a file. Because names are sorted, a million of them need no dict."""
        place = bisect_left(self.names, name)
        if place == len(self.names) or self.names[place] != name:
            raise AssertionError(f"expected one of the files of {self.location}, found {name!r}")
        return self.sizes[place]

    def only(self, names: Sequence[str]) -> Files:
        """Return some of the files. ``names`` must be sorted."""
        return replace(self, names=names, sizes=list(map(self.size_of, names)), skipped=())

    def uses(
        self, names: Iterable[str], role: Role, *, reason: str = "", split: str | None = None
    ) -> tuple[FileUse, ...]:
        """Return the uses of files with the same role, reason and split; see ``account_for``."""
        return account_for(((name, self.size_of(name)) for name in names), role, reason=reason, split=split)


def root_of(store: Store) -> Path:
    """Return the folder of the store of a source, which is always local, because remote files are downloaded first."""
    if store.local_root is None:
        raise AssertionError(f"expected a local store, found {store!r}")
    return store.local_root


Place: TypeAlias = tuple[str, int]
"""The name of a part and a line. Places are compared, so that the first place does not depend on the order of parts."""

MAX_SHOWN: Final = 40

NAN_WORDS: Final = ("nan", "inf", "-inf")
"""The words that exports to JSON write for NaN and the infinities, which JSON does not have."""


def show_place(place: Place) -> str:
    """Format ``place`` for messages.

    >>> show_place(("data/a.csv", 17))
    'data/a.csv:17'
    """
    return f"{place[0]}:{place[1]}"


def quote(text: str, most: int = MAX_SHOWN) -> str:
    r"""Return at most ``most`` characters of ``text`` in double quotes, on one line.

    >>> quote("a\n" + 50 * "b", 8)
    '"a\\nbbbbb…"'
    """
    shown = text if len(text) <= most else text[: most - 1] + "…"
    return printable(json.dumps(shown, ensure_ascii=False))


def show_value(value: Any) -> str:
    """Format a value of an Arrow column: text in quotes, bytes as their number, and other values as Python prints them.

    >>> show_value("007"), show_value(b"abc"), show_value([1, 2]), show_value(True), show_value(1.0)
    ('"007"', '3 bytes', '[1, 2]', 'true', '1.0')
    """
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bytes):
        return counted(len(value), "byte")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return _shorten(f"[{', '.join(map(show_value, value[:8]))}{', …' if len(value) > 8 else ''}]")
    if isinstance(value, dict):
        listing = ", ".join(f"{name}: {show_value(inner)}" for name, inner in list(value.items())[:8])
        return _shorten(f"{{{listing}{', …' if len(value) > 8 else ''}}}")
    return _shorten("null" if value is None else str(value))


def _shorten(text: str) -> str:
    text = printable(text.replace("\n", " "))
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode ``text``: it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def list_names(names: Sequence[str], num_names: int | None = None) -> str:
    """List the first names and the number of the others. ``num_names`` is the total if ``names`` are not all.

    >>> list_names(["a", "b", "c", "d", "e", "f"]), list_names(["a"], 3)
    ("'a', 'b', 'c', 'd', 'e' and 1 more", "'a' and 2 more")
    """
    num_others = (len(names) if num_names is None else num_names) - len(names[:_MOST_LISTED])
    return ", ".join(map(repr, names[:_MOST_LISTED])) + (f" and {num_others:,} more" if num_others else "")


_MOST_LISTED: Final = 5
