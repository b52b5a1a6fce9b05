"""Reads files as records: their bytes or text, a label by folder, and columns of metadata.

names of a split -> parts of about 1000 files -> Rows: the content, the label, the columns of metadata; key = the name
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from registry.intake.source import MAX_BYTES, MAX_ROWS, PATH, BadFileError, BadRow, Files, Rows, SourcePart, root_of
from registry.shards.arrow_values import import_pyarrow
from registry.storage import Store

if TYPE_CHECKING:
    import pyarrow as pa

MAX_PART_FILES: Final = 1000
MAX_PART_BYTES: Final = 256 * 2**20
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
        has_label: whether the name of the folder is a column ``label``.
        has_path: whether the name of the file is a column ``path``, the last one.
        metadata: more columns, with one row for each file.
        bad: other rows that cannot be used, reported with the first rows.
    """

    store: Store
    names: Sequence[str]
    column: str
    is_text: bool
    convert: Convert
    has_label: bool
    has_path: bool
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
            # Half the time of Path.read_bytes, which matters for a million files.
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
        columns = {self.column: arrow.array(values, kind)}
        if self.has_label:
            columns["label"] = arrow.array([label_of(name) for name in names], arrow.string())
        table = arrow.table(columns)
        if self.metadata is not None:
            for column, data in zip(
                self.metadata.schema, self.metadata.take(arrow.array(places, "int64")).columns, strict=True
            ):
                table = table.append_column(column, data)
        if self.has_path:
            table = table.append_column(PATH, [arrow.array(names, arrow.string())])
        return Rows(table=table, lines=[place + 1 for place in places], keys=names, bad=tuple(bad), are_files=True)


def label_of(name: str) -> str:
    """The class of a file.

    >>> label_of("train/dog/1.png")
    'dog'
    """
    return name.rpartition("/")[0].rpartition("/")[2]


def decode_text(name: str, data: bytes) -> str:
    r"""The text of a file.

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


def cut_parts(names: Sequence[str], size_of: Callable[[str], int]) -> Iterator[tuple[int, int, int]]:
    """Cut sorted names into pieces: start, stop and number of bytes of each."""
    start = num_bytes = 0
    for place, name in enumerate(names):
        size = size_of(name)
        if place > start and (place - start >= MAX_PART_FILES or num_bytes + size > MAX_PART_BYTES):
            yield start, place, num_bytes
            start, num_bytes = place, 0
        num_bytes += size
    if start < len(names):
        yield start, len(names), num_bytes


def name_part(names: Sequence[str]) -> str:
    """The name of a part for people: its only file, its folder, or its first and last file.

    >>> name_part(["cat/1.png"]), name_part(["cat/1.png", "cat/2.png"]), name_part(["1.png", "2.png"])
    ('cat/1.png', 'cat/1.png to cat/2.png', '1.png to 2.png')
    """
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def open_parts(
    splits: Mapping[str, Sequence[str]], files: Files, make: Callable[[Sequence[str]], Any]
) -> list[SourcePart]:
    """The parts of all splits; ``make`` makes the ``read`` of some files."""
    parts = []
    for split, names in splits.items():
        for start, stop, num_bytes in cut_parts(names, files.size_of):
            some = names[start:stop]
            parts.append(SourcePart(split=split, name=name_part(some), read=make(some), num_bytes=num_bytes))
    return parts
