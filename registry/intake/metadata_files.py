"""Reads ``metadata.csv``, ``.jsonl`` or ``.parquet`` of a folder of media: a row of columns for each file.

The column ``file_name`` is relative to the folder of the metadata file, as in Hugging Face's ``imagefolder``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from registry.errors import SourceError
from registry.features import Feature
from registry.intake.kinds import KINDS
from registry.intake.source import BadRow, Files, Options
from registry.shards.arrow_values import import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

NAMES: Final = {"metadata.csv": "csv", "metadata.jsonl": "json", "metadata.parquet": "parquet"}
FILE_NAME: Final = "file_name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The columns of the metadata files of a source.

    Attributes:
        table: the columns without ``file_name``.
        row_of: for each file the row of ``table``.
        files: the names of the metadata files.
        bad: entries that cannot be used.
        hints: features that the metadata file itself defines.
        is_text: whether values are text whose types have to be inferred.
    """

    table: pa.Table
    row_of: Mapping[str, int]
    files: Sequence[str]
    bad: tuple[BadRow, ...] = ()
    hints: Mapping[str, Feature] = field(default_factory=dict)
    is_text: bool = False

    def rows_of(self, names: Sequence[str]) -> pa.Table:
        """The rows of some files, in their order; null for files without an entry."""
        return self.table.take(import_pyarrow().array([self.row_of.get(name) for name in names], "int64"))


def is_metadata(name: str) -> bool:
    """Whether a name is that of a metadata file.

    >>> is_metadata("train/metadata.csv"), is_metadata("train/my_metadata.csv")
    (True, False)
    """
    return name.rpartition("/")[2] in NAMES


def read_metadata(files: Files, names: Sequence[str], media: Sequence[str]) -> Metadata:
    """Read metadata files.

    Args:
        files: the files of the source.
        names: the metadata files among them.
        media: the files that they describe.

    Raises:
        SourceError: a file cannot be read, has no column ``file_name``, or has other columns than another one.
    """
    arrow = import_pyarrow()
    known = set(media)
    tables: list[pa.Table] = []
    row_of: dict[str, int] = {}
    seen: dict[str, str] = {}
    bad: list[BadRow] = []
    hints: dict[str, Feature] = {}
    formats = sorted({NAMES[name.rpartition("/")[2]] for name in names})
    if len(formats) > 1:
        raise SourceError(
            f"metadata files must have one format, found {', '.join(names[:5])}",
            hint="Remove all but one of them, or convert them to one format.",
            details={"files": list(names[:100])},
        )
    for name in names:
        folder = name.rpartition("/")[0]
        source = KINDS[formats[0]].open()(_only(files, name), Options(kind=formats[0]))
        hints |= source.hints
        for part in source.parts:
            for rows in part.read():
                bad += rows.bad
                table = rows.table
                if FILE_NAME not in table.column_names:
                    raise SourceError(
                        f"{name} has no column {FILE_NAME!r}, only {', '.join(map(repr, table.column_names[:20]))}",
                        hint="Add a column file_name with the path of each file, relative to the metadata file.",
                        details={"file": name, "columns": table.column_names[:100]},
                    )
                start = sum(one.num_rows for one in tables)
                for place, value in enumerate(table.column(FILE_NAME).to_pylist()):
                    line = rows.lines[place]
                    path = _path(folder, value)
                    problem = (
                        f"{FILE_NAME} is missing"
                        if not value
                        else f"the file {value!r} does not exist"
                        if path not in known
                        else f"a second entry for {value!r}, after {seen[path]}"
                        if path in seen
                        else None
                    )
                    if problem is None:
                        seen[path] = f"line {line}"
                        row_of[path] = start + place
                    else:
                        bad.append(BadRow(file=name, line=line, column=FILE_NAME, reason=problem))
                tables.append(table.drop_columns([FILE_NAME]))
    for table in tables:
        if set(table.column_names) != set(tables[0].column_names):
            different = sorted(set(table.column_names) ^ set(tables[0].column_names))
            raise SourceError(
                f"metadata files must have the same columns; not all have {', '.join(map(repr, different[:20]))}",
                hint="Add the columns to all of them, empty if need be.",
                details={"files": list(names[:100]), "columns": different[:100]},
            )
    try:
        together = arrow.concat_tables(tables, promote_options="permissive") if tables else arrow.table({})
    except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
        raise SourceError(
            f"the types of a column differ between rows of {', '.join(names[:5])}: {error}",
            hint="Write the values of each column in one type.",
            details={"files": list(names[:100])},
        ) from error
    return Metadata(
        table=together.combine_chunks(),
        row_of=row_of,
        files=names,
        bad=tuple(bad),
        hints={column: feature for column, feature in hints.items() if column != FILE_NAME},
        is_text=formats == ["csv"],
    )


def _path(folder: str, value: Any) -> str:
    relative = str(value).removeprefix("./")
    return f"{folder}/{relative}" if folder else relative


def _only(files: Files, name: str) -> Files:
    return Files(store=files.store, names=[name], sizes=[files.sizes[files.names.index(name)]], location=files.location)
