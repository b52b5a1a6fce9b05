"""The values between the readers of sources and the pipeline: ``Source``, its ``SourcePart``s, and their ``Rows``.

``detect`` makes a ``Source`` from what the caller gave, by the reader of its kind (``csv``, ``images`` ...). The
pipeline reads every part: once to infer the schema, and once to write records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from registry.errors import SourceError, UsageError, spell, suggest
from registry.features import Feature
from registry.model import DatasetMetadata
from registry.shards.arrow_values import import_pyarrow
from registry.storage import Store

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ROWS: Final = 16_384
MAX_BYTES: Final = 8 * 2**20
"""A reader ends a ``Rows`` at whichever comes first, so that memory is bounded; a single row may be larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row, or a whole file, that cannot be used.

    Attributes:
        file: name of the file, relative to the source.
        line: the line in the file, from 1, or the number of the row if the format has no lines; None: the whole file.
        column: the column at fault, or None.
        reason: what is wrong, such as ``"expected 5 values, found 4"``.
    """

    file: str
    line: int | None
    column: str | None = None
    reason: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.reason}" if self.column is None else f"{place}, column {self.column!r}: {self.reason}"


class BadFileError(Exception):
    """The content of a file cannot be used. Its text is the reason, and becomes that of a ``BadRow``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Consecutive rows of a part.

    Attributes:
        table: the columns, all rows of them usable. A type may differ between the ``Rows`` of a source: ``null``, or
            ``int64`` before a ``double``; see ``inference``. If ``Source.may_lack_columns`` is False, every ``Rows`` of
            a source has the same column names.
        lines: for each row its line in the file, from 1; for formats without lines, the number of the row.
        keys: for each row a key that is stable and unique in the split, such as the path of its file; None if rows have
            none: then the key is a column, or comes from the content.
        bad: rows that are left out of ``table``.
        are_files: whether each row is a file, which its key names.
    """

    table: pa.Table
    lines: Sequence[int]
    keys: Sequence[str] | None = None
    bad: tuple[BadRow, ...] = ()
    are_files: bool = False

    def without(self, part_name: str, faults: Mapping[int, tuple[str | None, str]]) -> Rows:
        """The rows that can be used; ``faults`` are the columns and the reasons of the others, which follow ``bad``."""
        if not faults:
            return self
        good = [row for row in range(self.table.num_rows) if row not in faults]
        return replace(
            self,
            table=self.table.take(import_pyarrow().array(good, "int64")),  # the list may be empty
            lines=[self.lines[row] for row in good],
            keys=None if self.keys is None else [self.keys[row] for row in good],
            bad=(*self.bad, *(self._bad_row(part_name, row, *fault) for row, fault in sorted(faults.items()))),
        )

    def _bad_row(self, part_name: str, row: int, column: str | None, reason: str) -> BadRow:
        """A row by its own name if it is a file, else by its line in the part."""
        if self.are_files and self.keys is not None:
            return BadRow(file=self.keys[row], line=None, column=column, reason=reason)
        return BadRow(file=part_name, line=int(self.lines[row]), column=column, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePart:
    """A piece of a source that is read from its beginning to its end, any number of times, always with the same rows.

    Attributes:
        split: the split of its rows.
        name: its name for people: a file, relative to the source.
        read: reads it. Raises SourceError if the part as a whole cannot be read.
    """

    split: str
    name: str
    read: Callable[[], Iterator[Rows]]

    def mapped(self, change: Callable[[Rows], Rows]) -> SourcePart:
        """This part, with ``change`` of all of its ``Rows``."""
        return replace(self, read=lambda: map(change, self.read()))


PATH: Final = "path"
"""The column of the names of files."""

Role: TypeAlias = Literal["records", "metadata", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileUse:
    """What happened to a file, or to the files of one folder.

    Attributes:
        name: the file or folder, relative to the source.
        role: ``records``, ``metadata`` or ``skipped``.
        reason: why it was skipped, or what the metadata is for; empty for records.
        split: the split of its records.
        num_files: the number of files.
        num_bytes: their size.
    """

    name: str
    role: Role
    reason: str = ""
    split: str | None = None
    num_files: int = 1
    num_bytes: int = 0


MAX_FILES: Final = 20
MAX_FOLDERS: Final = 100
"""Files are listed by folder if there are more files; folders by their parents if there are more folders."""


def account_for(
    files: Iterable[tuple[str, int]], role: Role, *, reason: str = "", split: str | None = None
) -> tuple[FileUse, ...]:
    """The uses of files that share role, reason and split, sorted by name.

    Args:
        files: names, relative to the source, and sizes in bytes.
        role: what happened to them.
        reason: why they were skipped, or what the metadata is for.
        split: the split of their records.

    >>> [(use.name, use.num_files) for use in account_for(((f"cat/{n}.png", 9) for n in range(2000)), "records")]
    [('cat', 2000)]
    """
    # Sums for each folder, and the files themselves as long as they are few: a source may have a million.
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
    """Something that was downloaded: recorded with the version as a source."""

    url: str
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a caller gave, opened.

    Attributes:
        kind: the kind that was detected or forced, such as ``csv``.
        summary: what was found, for people: "3 CSV files (comma, UTF-8, with a header)".
        parts: the pieces, by split in order of the splits, then by name.
        columns: the names of the columns of an object of Python, if all rows have them; else empty.
        hints: features that the source itself defines, by column: classes from folders, an Image for image files.
            Inference takes them as they are.
        is_text: whether values are text whose types have to be inferred, as in a CSV.
        may_lack_columns: whether columns, and the fields of structs, may be missing in some ``Rows``: then all their
            values in these rows are null. The columns of JSON are known only after the last row; their order is that in
            which they first appear.
        path_column: the column that has the keys of the rows, which are names of files; empty if none has.
        split_by: the column that decides the split, unless the caller names another; empty if none does.
        is_typed: whether ``hints`` has every column, in order, and no value is null. The schema is then known without
            reading a row.
        files: the account of every file.
        metadata: description, license and so on, from a dataset card or a Croissant file.
        origins: what was downloaded.
        split_reason: why the splits are what they are, for people: "from the names of folders".
    """

    kind: str
    summary: str
    parts: Sequence[SourcePart]
    columns: tuple[str, ...] = ()
    hints: Mapping[str, Feature] = field(default_factory=dict)
    is_text: bool = False
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
        """The first rows; None if no part has any."""
        return next((rows for part in self.parts for rows in part.read()), None)

    def with_split_names(self, names: Mapping[str, str]) -> Source:
        """This source with the name in ``names`` for each split."""
        return replace(
            self,
            parts=[replace(part, split=names[part.split]) for part in self.parts],
            files=[replace(use, split=names.get(use.split or "", use.split)) for use in self.files],
        )

    def with_column_names(self, names: Mapping[str, str], *, must_exist: Collection[str]) -> Source:
        """This source with other names for the columns in ``names``.

        Reading it raises UsageError if a column of ``must_exist`` is missing, SourceError if two columns get one name.
        """
        from registry.interop.dataset_card import HUGGING_FACE

        if not names:
            return self
        must_exist = () if self.may_lack_columns else must_exist
        special = {**names, "": ""}  # a column may have no name, and then no name means no column
        keys, custom = self.metadata.supervised_keys, self.metadata.custom
        kept = custom.get(HUGGING_FACE)
        if isinstance(kept, Mapping):  # the features of columns that these do not tell
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
                f"If {old!r} has that name from the version before: {spell('rename_columns', {old: old})}",
                details={"column": name[:200]},
            )
    bad = tuple(
        row if row.column is None else replace(row, column=names.get(row.column, row.column)) for row in rows.bad
    )
    return replace(rows, table=rows.table.rename_columns(renamed), bad=bad)


def no_column(name: str, columns: Sequence[str]) -> UsageError:
    """The error for a column that is to be renamed and does not exist."""
    return UsageError(
        f"the source has no column {name!r:.200} to rename",
        hint=suggest(name, columns, have="The columns are:", most=20),
        details={"column": name[:200]},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files of a source that are not hidden.

    Attributes:
        store: where they are stored: a folder of this machine, as remote files are downloaded first.
        names: their names in ``store``, sorted.
        sizes: their sizes in bytes, in the same order.
        location: path or URL that the caller gave, for messages.
        skipped: files that no reader sees: hidden ones, leftovers of systems, and links that lead out of the folder.
        origins: what was downloaded to get them.
    """

    store: Store
    names: Sequence[str]
    sizes: Sequence[int]
    location: str
    skipped: tuple[FileUse, ...] = ()
    origins: tuple[Origin, ...] = ()

    def size_of(self, name: str) -> int:
        """The size of a file. A million names need no dict, because they are sorted."""
        place = bisect_left(self.names, name)
        if place == len(self.names) or self.names[place] != name:
            raise AssertionError(f"expected one of the files of {self.location}, found {name!r}")
        return self.sizes[place]

    def only(self, names: Sequence[str]) -> Files:
        """Some of the files; ``names`` are sorted."""
        return replace(self, names=names, sizes=list(map(self.size_of, names)), skipped=())

    def uses(
        self, names: Iterable[str], role: Role, *, reason: str = "", split: str | None = None
    ) -> tuple[FileUse, ...]:
        """The uses of files that share role, reason and split; see ``account_for``."""
        return account_for(((name, self.size_of(name)) for name in names), role, reason=reason, split=split)


def root_of(store: Store) -> Path:
    """The folder of the store of a source. Remote files are downloaded first, so it is always local."""
    if store.local_root is None:
        raise AssertionError(f"expected a local store, found {store!r}")
    return store.local_root
