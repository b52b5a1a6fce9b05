r"""Reads ``metadata.csv``, ``.jsonl`` or ``.parquet`` of a folder of media: a row of columns for each file.

The column ``file_name`` is relative to the folder of the metadata file, as in Hugging Face's ``imagefolder``, or an
absolute path of a file of the source. Names are never guessed: ``\`` counts as ``/``, because programs on Windows write
it, and a name that differs otherwise is reported with the file that it may mean.
"""

from __future__ import annotations

import posixpath
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from registry.errors import SourceError
from registry.features import Feature
from registry.intake.kinds import KINDS
from registry.intake.options import AddOptions
from registry.intake.source import BadRow, Files
from registry.shards.arrow_values import import_pyarrow
from registry.splits import counted
from registry.storage import spell_place

if TYPE_CHECKING:
    import pyarrow as pa

NAMES: Final = {"metadata.csv": "csv", "metadata.jsonl": "json", "metadata.parquet": "parquet"}
FILE_NAME: Final = "file_name"
_MOST_SHOWN: Final = 5
"""The most names of each side that a message shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The columns of the metadata files of a source.

    Attributes:
        table: the columns without ``file_name``.
        row_of: for each file with an entry the row of ``table``. It has at least one.
        files: the names of the metadata files.
        bad: entries that cannot be used, and files without an entry.
        summary: how many of both there are, for people; empty if there are none.
        hints: features that the metadata file itself defines.
        is_text: whether values are text whose types have to be inferred.
    """

    table: pa.Table
    row_of: Mapping[str, int]
    files: Sequence[str]
    bad: tuple[BadRow, ...] = ()
    summary: str = ""
    hints: Mapping[str, Feature] = field(default_factory=dict)
    is_text: bool = False

    def rows_of(self, names: Sequence[str]) -> pa.Table:
        """The rows of some files with an entry, in their order."""
        return self.table.take(import_pyarrow().array([self.row_of[name] for name in names], "int64"))


def is_metadata(name: str) -> bool:
    """Whether a name is that of a metadata file.

    >>> is_metadata("train/metadata.csv"), is_metadata("train/my_metadata.csv")
    (True, False)
    """
    return name.rpartition("/")[2] in NAMES


def read_metadata(files: Files, names: Sequence[str], media: Sequence[str], noun: str) -> Metadata:
    """Read metadata files.

    Args:
        files: the files of the source.
        names: the metadata files among them.
        media: the files that they describe, sorted.
        noun: what one of these is called.

    Raises:
        SourceError: a file cannot be read, has no column ``file_name``, or has other columns than another one; or no
            entry matches a file.
    """
    matching = _Matching(media, spell_place(files.location))
    tables: list[pa.Table] = []
    hints: dict[str, Feature] = {}
    formats = sorted({NAMES[name.rpartition("/")[2]] for name in names})
    if len(formats) > 1:
        raise SourceError(
            f"metadata files must have one format, found {', '.join(names[:5])}",
            hint="Remove all but one of them, or convert them to one format.",
            details={"files": list(names[:100])},
        )
    for name in names:
        source = KINDS[formats[0]].open()(files.only([name]), AddOptions(kind=formats[0], has_csv_options=False))
        hints |= source.hints
        for part in source.parts:
            for rows in part.read():
                matching.bad += rows.bad
                table = rows.table
                if FILE_NAME not in table.column_names:
                    raise SourceError(
                        f"{name} has no column {FILE_NAME!r}, only {', '.join(map(repr, table.column_names[:20]))}",
                        hint="Add a column file_name with the path of each file, relative to the metadata file.",
                        details={"file": name, "columns": table.column_names[:100]},
                    )
                matching.add(name, table.column(FILE_NAME).to_pylist(), rows.lines)
                tables.append(table.drop_columns([FILE_NAME]))
    matching.require_matches(files.location, names, noun)
    return Metadata(
        table=_concatenate(tables, names),
        row_of=matching.row_of,
        files=names,
        bad=matching.bad_rows(names),
        summary=matching.summary(noun),
        hints={column: feature for column, feature in hints.items() if column != FILE_NAME},
        is_text=formats == ["csv"],
    )


class _Matching:
    """The entries of metadata files, matched with the files that they describe.

    Attributes:
        row_of: for each file with an entry the number of the entry, counted over all metadata files.
        bad: rows that cannot be used for other reasons than the name of a file.
    """

    def __init__(self, media: Sequence[str], roots: Sequence[str]) -> None:
        self.row_of: dict[str, int] = {}
        self.bad: list[BadRow] = []
        self._media = media
        self._names = frozenset(media)
        self._roots = roots
        self._num_entries = 0
        self._places: dict[str, tuple[str, int]] = {}
        self._missing: list[BadRow] = []
        self._missing_names: list[str] = []
        self._similar: Mapping[str, Sequence[str]] | None = None
        self._suggestion: tuple[str, str] | None = None

    def add(self, file: str, values: Sequence[Any], lines: Sequence[int]) -> None:
        """Match the next entries, of the metadata file ``file``."""
        folder = file.rpartition("/")[0]
        for value, line in zip(values, lines, strict=True):
            path = _path(folder, str(value), self._roots)
            if value is None or value == "":
                self._miss(file, line, "", f"{FILE_NAME} is missing")
            elif path not in self._names:
                self._miss(file, line, str(value), self._explain(folder, str(value), path))
            elif path in self._places:
                other, first = self._places[path]
                place = f"line {first}" if other == file else f"{other}:{first}"
                self._miss(file, line, str(value), f"a second entry for {value!r}, after {place}")
            else:
                self._places[path] = file, line
                self.row_of[path] = self._num_entries
            self._num_entries += 1

    def require_matches(self, location: str, names: Sequence[str], noun: str) -> None:
        """Raise SourceError if no entry matches a file."""
        if self.row_of:
            return
        where = names[0] if len(names) == 1 else f"{len(names):,} metadata files"
        if not self._num_entries:
            raise SourceError(
                f"{location}: {where} {'has' if len(names) == 1 else 'have'} no rows",
                hint="Write one row for each file, or remove the metadata file.",
                details={"location": location, "files": list(names[:100])},
            )
        hint = f"Write the path of each file, relative to the metadata file, into the column {FILE_NAME}."
        if self._suggestion is not None:
            found, expected = self._suggestion
            hint = f"Paths are relative to the metadata file: write {expected!r} for {found!r}."
        entries = "entry has" if len(self._missing) == 1 else "entries have"
        lines = [
            f"  {len(self._missing):,} {entries} no file{_first(self._missing_names)}",
            f"  {counted(len(self._media), noun)} without an entry{_first(self._media)}",
        ]
        raise SourceError(
            "\n".join([f"{location}: {where} matches no {noun}", *lines]),
            hint=hint,
            details={
                "location": location,
                "files": list(names[:100]),
                "num_missing": len(self._missing),
                "missing": self._missing_names[:100],
                "num_unlisted": len(self._media),
                "unlisted": list(self._media[:100]),
            },
        )

    def bad_rows(self, names: Sequence[str]) -> tuple[BadRow, ...]:
        """All rows and files that cannot be used; the first of both sides come first."""
        lacking = f"{names[0]} has no entry for it" if len(names) == 1 else "no metadata file has an entry for it"
        unlisted = [BadRow(file=name, line=None, reason=lacking) for name in self._media if name not in self.row_of]
        few = (*self.bad[:_MOST_SHOWN], *self._missing[:_MOST_SHOWN], *unlisted[:_MOST_SHOWN])
        return (*few, *self.bad[_MOST_SHOWN:], *self._missing[_MOST_SHOWN:], *unlisted[_MOST_SHOWN:])

    def summary(self, noun: str) -> str:
        """How many entries have no file, and how many files have no entry."""
        num_unlisted = len(self._media) - len(self.row_of)
        entries = "entry" if len(self._missing) == 1 else "entries"
        told = [f"{len(self._missing):,} {entries} without a file"] if self._missing else []
        told += [f"{counted(num_unlisted, noun)} without an entry"] if num_unlisted else []
        return "".join(f", {note}" for note in told)

    def _miss(self, file: str, line: int, value: str, reason: str) -> None:
        self._missing.append(BadRow(file=file, line=line, column=FILE_NAME, reason=reason))
        self._missing_names += [value] if len(self._missing_names) < 100 else []

    def _explain(self, folder: str, value: str, path: str) -> str:
        """Why a name has no file, with the file that it may mean: of another case, folder or form of Unicode."""
        if self._similar is None:
            similar: defaultdict[str, list[str]] = defaultdict(list)
            for name in self._media:
                similar[_fold(name)].append(name)
                if "/" in name:
                    similar[_fold(name.rpartition("/")[2])].append(name)
            self._similar = similar
        last = path.partition("?")[0].rpartition("/")[2]  # of a URL, too
        nearest = self._similar.get(_fold(path)) or self._similar.get(_fold(last)) or ()
        problem = f"the file {value!r} does not exist"
        if len(nearest) != 1:
            return problem
        expected = posixpath.relpath(nearest[0], folder) if folder else nearest[0]
        self._suggestion = self._suggestion or (value, expected)
        if unicodedata.normalize("NFC", nearest[0]) == unicodedata.normalize("NFC", path):
            return f"{problem}; {expected!a} does, which is the same text in another form of Unicode"
        return f"{problem}; did you mean {expected!r}?"


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _first(names: Sequence[str]) -> str:
    """The first names, after a colon."""
    listing = ", ".join(f"{name!r:.200}" for name in names[:_MOST_SHOWN])
    return f": {listing}{' ...' if len(names) > _MOST_SHOWN else ''}" if names else ""


def _concatenate(tables: Sequence[pa.Table], names: Sequence[str]) -> pa.Table:
    arrow = import_pyarrow()
    for table in tables:
        if set(table.column_names) != set(tables[0].column_names):
            different = sorted(set(table.column_names) ^ set(tables[0].column_names))
            raise SourceError(
                f"metadata files must have the same columns; not all have {', '.join(map(repr, different[:20]))}",
                hint="Add the columns to all of them, empty if need be.",
                details={"files": list(names[:100]), "columns": different[:100]},
            )
    try:
        together = arrow.concat_tables(tables, promote_options="permissive")
    except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
        raise SourceError(
            f"the types of a column differ between rows of {', '.join(names[:5])}: {error}",
            hint="Write the values of each column in one type.",
            details={"files": list(names[:100])},
        ) from error
    return together.combine_chunks()


def _path(folder: str, value: str, roots: Sequence[str] = ()) -> str:
    r"""The name of the file that an entry means. Paths out of the source match no file.

    Args:
        folder: the folder of the metadata file.
        value: the entry.
        roots: the absolute paths of the source, to which an absolute path is relative.

    >>> _path("train", ".\\cat\\1.png"), _path("train", "../test/1.png"), _path("", "/1.png")
    ('train/cat/1.png', 'test/1.png', '/1.png')
    >>> _path("train", "/srv/photos/cat/1.png", ["/srv/photos"])
    'cat/1.png'
    """
    path = posixpath.normpath(posixpath.join(folder, value.replace("\\", "/")))
    return next((path.removeprefix(f"{root}/") for root in roots if path.startswith(f"{root}/")), path)
