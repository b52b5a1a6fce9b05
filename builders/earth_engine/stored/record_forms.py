"""Infers the form of the records of an export (patches, pixels with series, or rows) and checks that they agree."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from registry.builders.earth_engine.grid import Size
from registry.builders.earth_engine.kinds import Kind, from_flat
from registry.builders.earth_engine.mixer import Mixer
from registry.builders.earth_engine.stored.found_files import FoundExport
from registry.errors import CorruptExampleError, PreparedFormatError, RegistryError, ShardMismatchError, UsageError
from registry.splits import counted
from registry.tfrecord import RecordBlock, is_gzip, read_blocks
from registry.wire import BlockDecoder, BytesColumn, FlatValue, decode_features, decode_sequence_example

_NO_LISTS: Final = b"\x12\x00"
Advance = Callable[[int], None]
_MOST_FILES: Final = 10


def is_of_pixel(record: bytes | memoryview, patch: Size | None) -> bool:
    """Whether a record holds one pixel: it has feature lists, or one value in every band of larger patches.

    Args:
        record: a record. Whether it is damaged is found when it is decoded.
        patch: size of a patch without its margin; None if it is unknown.

    >>> from registry.wire import encode_sequence_example
    >>> is_of_pixel(bytes.fromhex("0a00"), None), is_of_pixel(encode_sequence_example({}, {"ndvi": []}), None)
    (False, True)
    >>> is_of_pixel(bytes.fromhex("0a001200"), None)
    True
    """
    try:
        values = decode_sequence_example(record)  # of an Example, the features are the context
    except CorruptExampleError:
        return False
    if values.lists or _ends_without_lists(record):
        return True
    return patch not in (None, (1, 1)) and {_num_values(value) for value in values.context.values()} == {1}


def _ends_without_lists(record: bytes | memoryview) -> bool:
    """Whether a record ends with the field of feature lists, which is empty: TensorFlow can write it."""
    if bytes(record[-2:]) != _NO_LISTS:
        return False
    try:
        decode_sequence_example(record[:-2])
    except CorruptExampleError:  # the last bytes of the features of an Example
        return False
    return True


def _num_values(value: FlatValue | None) -> int:
    return 0 if value is None else sum(map(len, value)) if isinstance(value, list) else value.size


def check_alike(block: RecordBlock, sizes: Mapping[str, tuple[Kind, int]], *, path: str, first: int) -> None:
    """Check that each record of a block contains these bands, with these kinds and numbers of values.

    ``first`` is the index of the block's first record in the file ``path``.

    Raises:
        ShardMismatchError: a record lacks a band, or has another kind or number of values.
        CorruptExampleError: a record is not a tf.train.Example.
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
                raise _differs(where, f"band {name!r} of the first record is missing")
            found, values = from_flat(stored[name], name)
            if found != kind:
                raise _differs(where, f"band {name!r}: expected kind {kind} as in the first record, found {found}")
            if values.size != size:
                raise _differs(
                    where, f"band {name!r}: expected {size} values as in the first record, found {values.size}"
                )
    except CorruptExampleError as error:
        raise CorruptExampleError(f"{where}: {error.message}", hint=error.hint, details=error.details) from error


def _differs(where: str, problem: str) -> RegistryError:
    return ShardMismatchError(
        f"{where}: {problem}",
        hint="Check that all files belong to one export: two exports must not share a prefix.",
        details={"place": where},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesBands:
    """The bands of an export of series.

    ``scalars`` maps bands with one value a pixel to their kind. ``series`` maps the others to their kind and length,
    which is None if it differs between pixels.
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
        sequence_example = decode_sequence_example(record)
        for name, value in sequence_example.context.items():
            scalars.setdefault(name, from_flat(value, name)[0])
        for name, steps in sequence_example.lists.items():
            lengths.setdefault(name, set()).add(len(steps))
            if name not in kinds and steps:
                kinds[name] = from_flat(steps[0], name)[0]
    series = {
        name: (kinds.get(name, "float"), next(iter(length)) if len(length) == 1 else None)
        for name, length in lengths.items()
    }
    return SeriesBands(scalars=scalars, series=series)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredColumn:
    """One stored column of a table.

    Attributes:
        name: name of the feature.
        kind: ``bytes`` (texts), ``int64`` or ``float``; ``mixed`` if rows differ.
        size: number of values of a row; None if it differs.
        is_optional: whether some rows lack it.
        is_single: whether no row has several values.
    """

    name: str
    kind: Kind | Literal["mixed"]
    size: int | None
    is_optional: bool = False
    is_single: bool = False

    @property
    def square(self) -> int | None:
        """The side of the square array that its values may be, such as a neighbourhood of pixels; else None."""
        side = int(np.sqrt(self.size or 0))
        return side if side > 1 and side * side == self.size and self.kind != "bytes" else None

    def check_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """``shape`` as a tuple. Raises UsageError if the values of a row are not an array of it."""
        sides, side = tuple(shape), self.square or 2
        if any(type(side) is not int or side < 1 for side in sides) or math.prod(sides) != self.size:
            raise UsageError(
                f"column {self.name!r} cannot have the shape {sides}: its rows have "
                f"{'different numbers of values' if self.size is None else f'{self.size} values'}",
                hint=f"Give whole numbers with that product: shapes={{{self.name!r}: ({side}, {side})}}; "
                f"--shape {self.name}={side},{side}.",
                details={"option": "shapes", "column": self.name, "size": self.size},
            )
        return sides

    def to_value(self) -> dict[str, Any]:
        """As JSON."""
        return {"name": self.name, "kind": self.kind, "size": self.size, "optional": self.is_optional}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableForm:
    """The columns of a table, sorted by name, its number of rows, and the bytes of all records."""

    columns: tuple[StoredColumn, ...]
    num_rows: int
    num_bytes: int


def look_at_columns(blocks: Iterable[tuple[str, RecordBlock]]) -> TableForm:
    """Infer the columns of a table from its records; each block comes with the path of its file.

    Raises:
        CorruptExampleError: a record is not a tf.train.Example.
    """
    decoder, num_rows, num_bytes = BlockDecoder(), 0, 0
    kinds: defaultdict[str, set[Kind]] = defaultdict(set)
    sizes: defaultdict[str, set[int]] = defaultdict(set)
    filled: Counter[str] = Counter()
    for path, block in blocks:
        data, offsets = block.span()
        found = decoder.decode(data, offsets, block.lengths)
        if found.fault is not None:
            raise CorruptExampleError(
                f"{path}: record {num_rows + found.num_records}: {found.fault.message}", hint=found.fault.hint
            ) from found.fault
        for (name, kind), column in found.columns.items():
            counts = {column.counts} if isinstance(column.counts, int) else set(np.unique(column.counts).tolist())
            if kind == "bytes" and counts == {0}:  # an empty feature: the row has no value
                continue
            kinds[name].add(kind)
            sizes[name] |= counts
            filled[name] += found.num_records if column.rows is None else int(column.rows.size)
        num_rows += found.num_records
        num_bytes += block.num_bytes
    columns = (
        StoredColumn(
            name=name,
            kind=next(iter(kinds[name])) if len(kinds[name]) == 1 else "mixed",
            size=next(iter(sizes[name])) if len(sizes[name]) == 1 else None,
            is_optional=filled[name] < num_rows,
            is_single=max(sizes[name]) <= 1,
        )
        for name in sorted(kinds)
    )
    return TableForm(columns=tuple(columns), num_rows=num_rows, num_bytes=num_bytes)


def check_files(export: FoundExport) -> Iterator[str]:
    """Yield notes on files whose suffix is wrong. Raises PreparedFormatError if a file is empty."""
    for name in export.filenames:
        with export.store.open(name) as file:
            start = file.read(12)
        if not start:
            raise PreparedFormatError(
                f"{export.store.locate(name)} is empty (0 bytes): its download was interrupted",
                hint="Download it again.",
                details={"file": name},
            )
        if is_gzip(start) != name.lower().endswith(".gz"):
            told = "is gzip, but its name does not end in .gz" if is_gzip(start) else "ends in .gz, but is not gzip"
            yield f"{name} {told}; it is read by its content."


def blocks_of(export: FoundExport, name: str, most: int = 1024) -> Iterator[RecordBlock]:
    """Yield the records of one file in blocks."""
    for block, _ in read_blocks(export.store, name, most=most, verify="block"):
        yield block


def all_blocks(export: FoundExport, advance: Advance | None) -> Iterator[tuple[str, RecordBlock]]:
    """Yield the records of all files in order, each block with the path of its file."""
    for name in export.filenames:
        for block in blocks_of(export, name):
            yield export.store.locate(name), block
            if advance is not None:
                advance(block.num_records)


def count_records(
    export: FoundExport, sizes: Mapping[str, tuple[Kind, int]] | None, advance: Advance | None
) -> tuple[tuple[int, ...], int]:
    """Count the records of each file and the bytes of all; check each record against ``sizes`` if it is not None.

    Raises:
        ShardMismatchError: a record lacks a band, or has another kind or number of values.
        CorruptExampleError: a record is not a tf.train.Example.
    """
    counts, num_bytes = [], 0
    for name in export.filenames:
        count = 0
        for block in blocks_of(export, name):
            if sizes is not None:
                check_alike(block, sizes, path=export.store.locate(name), first=count)
            count += block.num_records
            num_bytes += block.num_bytes
            if advance is not None:
                advance(block.num_records)
        counts.append(count)
    return tuple(counts), num_bytes


def check_counts(
    export: FoundExport, counts: Sequence[int], mixer: Mixer, *, patches: Sequence[int] | None, is_sequence: bool
) -> None:
    """Check the number of records against the mixer, or against ``patches`` if some patches were dropped.

    Raises:
        ShardMismatchError: the numbers differ; the message has both, and the count of each file.
    """
    num_patches = mixer.total_patches if patches is None else len(patches)
    num_pixels = mixer.patch.width * mixer.patch.height
    expected = num_patches * num_pixels if is_sequence else num_patches
    subject = f"{num_patches:,} patches of {counted(num_pixels, 'pixel')}" if is_sequence else "patches"
    source = (
        f"the {subject} in {export.mixer_name or 'the mixer'}"
        if patches is None
        else f"the {subject} that were not dropped"
    )
    total = sum(counts)
    if total == expected:
        return
    listed = "".join(
        f"\n  {name}: {count}" for name, count in list(zip(export.filenames, counts, strict=True))[:_MOST_FILES]
    )
    more = len(counts) - _MOST_FILES
    raise ShardMismatchError(
        f"{export.store.url}: expected {counted(expected, 'record')} for {source}, found "
        f"{counted(total, 'record')}{listed}" + (f"\n  and {counted(more, 'more file')}" if more > 0 else ""),
        hint="Check that all files were downloaded completely, and that the mixer belongs to this export.",
        details={"expected": expected, "found": total, "counts": list(counts[:100])},
    )
