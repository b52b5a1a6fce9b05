"""Tells the form of an export's records: patches that are alike, pixels with series, or rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from registry.builders.earth_engine.kinds import Kind, from_flat
from registry.builders.earth_engine.mixer import Mixer
from registry.builders.earth_engine.stored.found_files import FoundExport
from registry.errors import CorruptExampleError, PreparedFormatError, RegistryError, ShardMismatchError
from registry.splits import counted
from registry.tfrecord import RecordBlock, is_gzip, read_blocks
from registry.wire.block import BlockDecoder, BytesColumn
from registry.wire.codec import decode_features, decode_sequence_example
from registry.wire.varint import read_varint

_FEATURE_LISTS: Final = 2
_FIXED_SIZES: Final = {1: 8, 5: 4}
"""Bytes of a field by its wire type, where that tells it."""
Advance = Callable[[int], None]
_MOST_FILES: Final = 10


def has_feature_lists(record: bytes | memoryview) -> bool:
    """Whether a record is a SequenceExample by its form: it has the field of lists, which an Example has not.

    >>> has_feature_lists(bytes.fromhex("0a00")), has_feature_lists(bytes.fromhex("0a001200"))
    (False, True)
    """
    position, end = 0, len(record)
    try:
        while position < end:
            tag, position = read_varint(record, position)
            number, wire_type = tag >> 3, tag & 7
            if wire_type == 2:
                if number == _FEATURE_LISTS:
                    return True
                size, position = read_varint(record, position)
                position += size
            elif wire_type == 0:
                _, position = read_varint(record, position)
            elif wire_type in _FIXED_SIZES:
                position += _FIXED_SIZES[wire_type]
            else:
                return False
    except (IndexError, ValueError):  # no message at all: who reads it will say so
        return False
    return False


def check_alike(block: RecordBlock, sizes: Mapping[str, tuple[Kind, int]], *, path: str, first: int) -> None:
    """Check that each record of a block holds these bands, of these kinds and numbers of values.

    ``first`` is the number of the block's first record in the file ``path``.

    Raises:
        ShardMismatchError: one holds another number of values, or another kind, or has no such band.
        CorruptExampleError: one is no tf.train.Example.
    """
    data, offsets = block.span()
    found = BlockDecoder(sizes).decode(data, offsets, block.lengths)
    if (
        found.fault is None
        and found.num_records == block.num_records
        and not any(not _is_alike(found.columns, name, kind, size) for name, (kind, size) in sizes.items())
    ):
        return
    for place, view in enumerate(block.views()):
        _check_record(view, sizes, f"{path}: record {first + place}")


def _is_alike(columns: Mapping[tuple[str, Any], Any], name: str, kind: Kind, size: int) -> bool:
    column = columns.get((name, kind))
    if column is None or column.rows is not None or sum(key == name for key, _ in columns) != 1:
        return False
    if isinstance(column, BytesColumn):
        return column.counts == 1 if isinstance(column.counts, int) and bool((column.sizes == size).all()) else False
    return isinstance(column.counts, int) and column.counts == size


def _check_record(record: memoryview, sizes: Mapping[str, tuple[Kind, int]], where: str) -> None:
    try:
        stored = decode_features(record)
        for name, (kind, size) in sizes.items():
            if name not in stored:
                raise _differs(where, f"it has no band {name!r}, which the first record has")
            found, values = from_flat(stored[name], name)
            if found != kind:
                raise _differs(where, f"its band {name!r} is of the kind {found}, that of the first record is {kind}")
            if values.size != size:
                raise _differs(
                    where, f"its band {name!r} has {values.size} values, that of the first record has {size}"
                )
    except CorruptExampleError as error:
        raise CorruptExampleError(f"{where}: {error.message}", hint=error.hint, details=error.details) from error


def _differs(where: str, problem: str) -> RegistryError:
    return ShardMismatchError(
        f"{where}: {problem}",
        hint="Are these files of one export? Those of two must not lie under one prefix.",
        details={"place": where},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesBands:
    """The bands of an export of series: kinds of those that have one value a pixel, and of series with their length.

    The length is None where it differs from pixel to pixel.
    """

    scalars: Mapping[str, Kind]
    series: Mapping[str, tuple[Kind, int | None]]


def series_of(block: RecordBlock) -> SeriesBands:
    """The bands of the pixels in a block.

    Raises:
        CorruptExampleError: a record is not a SequenceExample, or a value does not belong to a pixel.
    """
    scalars: dict[str, Kind] = {}
    kinds: dict[str, Kind] = {}
    lengths: dict[str, set[int]] = {}
    for record in block.views():
        found = decode_sequence_example(record)
        for name, value in found.context.items():
            scalars.setdefault(name, from_flat(value, name)[0])
        for name, steps in found.lists.items():
            lengths.setdefault(name, set()).add(len(steps))
            if name not in kinds and steps:
                kinds[name] = from_flat(steps[0], name)[0]
    series = {
        name: (kinds.get(name, "float"), next(iter(found)) if len(found) == 1 else None)
        for name, found in lengths.items()
    }
    return SeriesBands(scalars=scalars, series=series)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredColumn:
    """One column of a table, as it is stored.

    Attributes:
        name: of the feature.
        kind: ``bytes`` (texts), ``int64`` or ``float``.
        size: values of a row; None where it differs.
        is_optional: whether there are rows without it.
    """

    name: str
    kind: Kind
    size: int | None
    is_optional: bool = False

    @property
    def square(self) -> int | None:
        """The side of the square that its values may be: a neighbourhood of pixels, or a list of that length."""
        side = int(np.sqrt(self.size or 0))
        return side if side > 1 and side * side == self.size and self.kind != "bytes" else None

    def to_value(self) -> dict[str, Any]:
        """As JSON."""
        return {"name": self.name, "kind": self.kind, "size": self.size, "optional": self.is_optional}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableForm:
    """The columns of a table, sorted by name, its rows, and the bytes of all these."""

    columns: tuple[StoredColumn, ...]
    num_rows: int
    num_bytes: int


def look_at_columns(blocks: Iterable[tuple[str, RecordBlock]]) -> TableForm:
    """The columns of a table whose records are in ``blocks``, each with the file that it is of.

    Raises:
        CorruptExampleError: a record is no tf.train.Example.
        ShardMismatchError: a column is of one kind in some rows, and of another in others.
    """
    seen = _Columns()
    for path, block in blocks:
        seen.add(path, block)
    return TableForm(columns=tuple(seen.columns()), num_rows=seen.num_rows, num_bytes=seen.num_bytes)


@dataclass(slots=True)
class _Columns:
    num_rows: int = 0
    num_bytes: int = 0
    decoder: BlockDecoder = field(default_factory=BlockDecoder)
    kinds: dict[str, Kind] = field(default_factory=dict)
    sizes: dict[str, set[int]] = field(default_factory=dict)
    filled: dict[str, int] = field(default_factory=dict)

    def add(self, path: str, block: RecordBlock) -> None:
        data, offsets = block.span()
        found = self.decoder.decode(data, offsets, block.lengths)
        if found.fault is not None:
            raise CorruptExampleError(
                f"{path}: record {self.num_rows + found.num_records}: {found.fault.message}", hint=found.fault.hint
            ) from found.fault
        for (name, kind), column in found.columns.items():
            counts = column.counts
            num_filled = found.num_records if column.rows is None else int(column.rows.size)
            sizes = {counts} if isinstance(counts, int) else set(np.unique(counts).tolist())
            if kind == "bytes" and sizes == {0}:  # a feature of no kind holds nothing: the row has no value
                self.filled.setdefault(name, 0)
                continue
            if self.kinds.setdefault(name, kind) != kind:
                raise ShardMismatchError(
                    f"{path}: the column {name!r} is of the kind {self.kinds[name]} in some rows, and of the kind "
                    f"{kind} in others",
                    hint="A column is of one kind. Export the table again with one.",
                    details={"feature": name},
                )
            self.sizes.setdefault(name, set()).update(sizes)
            self.filled[name] = self.filled.get(name, 0) + num_filled
        self.num_rows += found.num_records
        self.num_bytes += block.num_bytes

    def columns(self) -> Iterable[StoredColumn]:
        for name in sorted(self.kinds):
            sizes = self.sizes[name]
            yield StoredColumn(
                name=name,
                kind=self.kinds[name],
                size=next(iter(sizes)) if len(sizes) == 1 else None,
                is_optional=self.filled[name] < self.num_rows,
            )


def check_files(found: FoundExport) -> Iterator[str]:
    """Sentences on files that are not what their names say. Raises PreparedFormatError where one is empty."""
    for name in found.filenames:
        with found.store.open(name) as file:
            start = file.read(12)
        if not start:
            raise PreparedFormatError(
                f"{found.store.locate(name)} is empty: 0 bytes, a download that was broken off",
                hint="Download it again.",
                details={"file": name},
            )
        if is_gzip(start) != name.lower().endswith(".gz"):
            told = "is compressed, and its name does not say so" if is_gzip(start) else "is named .gz, and is none"
            yield f"{name} {told}: it is read as what it is."


def blocks_of(found: FoundExport, name: str, most: int = 1024) -> Iterator[RecordBlock]:
    """The records of one file, many at a time."""
    for block, _ in read_blocks(found.store, name, most=most, verify="block"):
        yield block


def all_blocks(found: FoundExport, advance: Advance | None) -> Iterator[tuple[str, RecordBlock]]:
    """The records of all files in order, each block with the path of its file."""
    for name in found.filenames:
        for block in blocks_of(found, name):
            yield found.store.locate(name), block
            if advance is not None:
                advance(block.num_records)


def count_records(
    found: FoundExport, sizes: Mapping[str, tuple[Kind, int]] | None, advance: Advance | None
) -> tuple[tuple[int, ...], int]:
    """The records of each file, and the bytes of all; each has to hold ``sizes``, where these are given.

    Raises:
        As ``check_alike``.
    """
    counts, num_bytes = [], 0
    for name in found.filenames:
        count = 0
        for block in blocks_of(found, name):
            if sizes is not None:
                check_alike(block, sizes, path=found.store.locate(name), first=count)
            count += block.num_records
            num_bytes += block.num_bytes
            if advance is not None:
                advance(block.num_records)
        counts.append(count)
    return tuple(counts), num_bytes


def check_counts(
    found: FoundExport, counts: Sequence[int], mixer: Mixer, *, patches: Sequence[int] | None, is_sequence: bool
) -> None:
    """Refuse files that do not hold as many records as the mixer says, or as ``patches`` were not left out.

    Raises:
        ShardMismatchError: with both numbers, and those of the files.
    """
    num_patches = mixer.total_patches if patches is None else len(patches)
    expected = num_patches
    what = f"{expected:,} patches" if patches is None else f"{expected:,} patches that were not left out"
    if is_sequence:
        expected *= mixer.patch.width * mixer.patch.height
        what = f"{what} of {counted(expected // max(num_patches, 1), 'pixel')}, {expected} records"
    total = sum(counts)
    if total == expected:
        return
    listed = "".join(
        f"\n  {name}: {count}" for name, count in list(zip(found.filenames, counts, strict=True))[:_MOST_FILES]
    )
    more = len(counts) - _MOST_FILES
    raise ShardMismatchError(
        f"{found.store.url}: {found.mixer_name or 'the mixer'} has {what}, and the files hold "
        f"{counted(total, 'record')}{listed}" + (f"\n  and {counted(more, 'more file')}" if more > 0 else ""),
        hint="Were all files downloaded, the last one too? Or is it the mixer of another export?",
        details={"expected": expected, "found": total, "counts": list(counts[:100])},
    )
