"""Reads a plan piece by piece: opens shard files, fetches records in the order of the read, decodes a piece at once.

``Reader`` passes it an ``Order`` and the positions to read; the examples, batches or records go back to the caller.
"""

from __future__ import annotations

import errno
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, CorruptRecordError, RegistryError, StorageError, VerificationError
from registry.features import ExampleBlock, FeaturesDict, codec_of
from registry.order import Order, tfds_id
from registry.reading.column_blocks import ColumnBlock, KeptColumns
from registry.reading.state import Intervals, cut, size_of
from registry.shards import (
    Block,
    BlockCache,
    RowGroupShard,
    ShardReader,
    decode_block,
    join_blocks,
    name_record,
    open_shard,
)
from registry.splits import FileInstruction, Plan
from registry.storage import Store
from registry.tfrecord import IndexFolder, MappedShard, Places, RecordBlock, StreamedShard, Verify, check_verify

_FEWEST_OPEN: Final = 16
_MOST_OPEN: Final = 4096

_FIRST_RECORDS: Final = 1
_MOST_RECORDS: Final = 8192
_COPIED_BYTES: Final = 4 * 2**20
_MAPPED_BYTES: Final = 32 * 2**20
_AHEAD_BYTES: Final = 32 * 2**20
_MOST_SCATTERED: Final = 2**16
"""For a global shuffle of a split on another machine, this many records, or ``_AHEAD_BYTES``, are fetched together.

Their neighbours in a file arrive with them. Of a split of this size, each byte is fetched once; pieces of an eighth of
it would each fetch most of the split.
"""
_PARTS_AHEAD: Final = 64
_REQUESTED_BYTES: Final = 64 * 2**20
_REQUESTED_FORMATS: Final = ("tfrecord", "parquet", "parquet_columns")
_LARGE_BYTES: Final = 16 * 2**10
"""Records of this size are decoded where they are, because copying them together costs more than it saves, unless they
contain files, which are decoded to larger images by all cores."""
TFDS_ID: Final = "tfds_id"
"""The feature with the file and record number of an example, which ``ReadConfig.add_tfds_id`` adds."""


class RecordSource:
    """The records of a plan by file instruction and index in the file. Used by one thread at a time.

    ``features`` are needed if the ``file_format`` does not store serialized examples.

    Attributes:
        columns: kept columns, which are read in place of the files; None reads the files.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store,
        *,
        verify: Verify,
        indexes: IndexFolder | None,
        file_format: str = "tfrecord",
        features: FeaturesDict | None = None,
    ) -> None:
        self._plan = plan
        self._file_format = file_format
        self._features = features
        self._cache = BlockCache()
        self._store = store
        self.columns: KeptColumns | None = None
        self._verify = check_verify(verify)
        self._indexes = indexes
        self._open: OrderedDict[str, ShardReader] = OrderedDict()
        self._seen: set[int] = set()
        self._doubted: set[str] = set()
        self._most_open = _most_open()
        self._instructions: dict[int, FileInstruction] = {}
        self.is_scattered = False
        """Whether all records of each file will be read in no order, from another machine."""

    def fetch_examples(self, instructions: Places, records: Places) -> Block | ColumnBlock:
        """The examples of these records: from ``columns``, or as ``fetch``."""
        if self.columns is not None and instructions.size:
            block = self.columns.fetch(instructions, records)
            if block is not None:
                return block
            self.columns = None
        return self.fetch(instructions, records)

    def fetch(self, instructions: Places, records: Places) -> Block:
        """Record ``records[i]`` of the file of ``instructions[i]``, for each i, checked.

        Raises:
            CorruptRecordError: framing or checksum of a record is wrong.
            ShardMismatchError: a file is not the published one, or has another number of records.
            StorageError: a file cannot be read.
        """
        if not instructions.size:
            return join_blocks([])
        groups, places = _by_file(instructions, records)
        if len(groups) == 1:
            return self._fetch_from(*groups[0])
        self._prove_new([index for index, _ in groups])
        self._begin(groups)
        blocks: list[Block] = []
        some: list[Block] = []
        for index, wanted in groups:
            some.append(self._fetch_from(index, wanted))
            if len(some) >= self._most_open // 4:  # a block keeps its file mapped, so it stays open; a copy does not
                blocks.append(join_blocks(some, copy=True))
                some.clear()
        return join_blocks(blocks + some).take(places)

    def view(self, index: int, record: int) -> memoryview | None:
        """A record of an open mapped file, checked; None if ``fetch`` has to read it or to raise."""
        name = self.instruction(index).filename
        shard = self._open.get(name)
        if not isinstance(shard, MappedShard):
            return None
        self._open.move_to_end(name)
        return shard.view(record)

    @property
    def is_requested(self) -> bool:
        """Whether records are requested from another machine, so that ``want`` has an effect."""
        is_remote = self._store.local_root is None and self._file_format in _REQUESTED_FORMATS
        return is_remote and self.columns is None

    def want(self, instructions: Places, records: Places) -> None:
        """Begin to fetch records that ``fetch`` will be called for; a fault is raised only by ``fetch``."""
        groups, _ = _by_file(instructions, records)
        with suppress(RegistryError):
            self._prove_new([index for index, _ in groups])
            self._begin(groups)

    def forget_wanted(self) -> None:
        """Cancel the requests that ``want`` began, and drop their bytes."""
        for shard in self._open.values():
            if isinstance(shard, StreamedShard | RowGroupShard):
                shard.forget_wanted()

    def _begin(self, groups: Sequence[tuple[int, Places]]) -> None:
        """Begin to fetch the records of several files, at most 64 MiB; ``_fetch_from`` fetches what is missing."""
        if not self.is_requested:
            return
        num_bytes = 0
        for index, records in groups[: self._most_open]:
            shard = self._shard(self.instruction(index))
            if isinstance(shard, StreamedShard | RowGroupShard):
                num_bytes += shard.want(records)
            if num_bytes >= _REQUESTED_BYTES:
                return

    def instruction(self, index: int) -> FileInstruction:
        """The file instruction at ``index`` of the plan."""
        result = self._instructions.get(index)
        if result is None:
            if len(self._instructions) >= 2 * _MOST_OPEN:
                self._instructions.clear()
            result = self._instructions[index] = self._plan[index]
        return result

    def _prove_new(self, instructions: list[int]) -> None:
        """Prove the files that this source has not opened before, several at the same time."""
        new = [index for index in instructions if index not in self._seen]
        if len(new) > 1:
            self._store.prove(dict.fromkeys(self.instruction(index).filename for index in new))
        self._seen.update(new)

    def _fetch_from(self, index: int, records: Places) -> Block:
        while True:
            try:
                return self._read(index, records)
            except StorageError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or self._most_open == 1:
                    raise
                self._most_open //= 2
                self._close_all_but(self._most_open)
            except VerificationError as error:
                # The bytes may have been damaged on their way here, or in the cache: request them once more.
                name = self.instruction(index).filename
                is_suspect = self._store.local_root is None and isinstance(error, CorruptRecordError)
                if name in self._doubted or not (self._store.forget(name) or is_suspect):
                    raise
                self._doubted.add(name)
                self._open.pop(name, None)

    def _read(self, index: int, records: Places) -> Block:
        shard = self._shard(self.instruction(index))
        first, count = int(records[0]), records.size
        if self.is_scattered:  # then a file without an index is fetched as a whole, once
            return shard.gather(records)
        if int(records[-1]) == first + count - 1 and (count < 3 or bool((records[1:] - records[:-1] == 1).all())):
            return shard.read(first, count)
        return shard.gather(records)

    def _shard(self, instruction: FileInstruction) -> ShardReader:
        shard = self._open.get(instruction.filename)
        if shard is not None:
            self._open.move_to_end(instruction.filename)
            return shard
        self._close_all_but(self._most_open - 1)
        shard = self._open[instruction.filename] = open_shard(
            self._store,
            instruction.filename,
            file_format=self._file_format,
            features=self._features,
            num_records=instruction.examples_in_shard,
            verify=self._verify,
            indexes=self._indexes,
            cache=self._cache,
        )
        return shard

    def _close_all_but(self, count: int) -> None:
        """Close the least recently used files."""
        while len(self._open) > count:
            self._open.popitem(last=False)


@cache
def _most_open() -> int:
    """The number of files a reader tries to keep open. Each takes up to two descriptors, and other code needs some."""
    try:
        import resource
    except ImportError:  # not on Windows
        return _FEWEST_OPEN * 8
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_OPEN if limit == resource.RLIM_INFINITY else min(max(limit // 8, _FEWEST_OPEN), _MOST_OPEN)


def _by_file(instructions: Places, records: Places) -> tuple[list[tuple[int, Places]], Places]:
    """Group records by file: each instruction with its records, and the place of each record among all groups."""
    if (instructions == instructions[0]).all():
        return [(int(instructions[0]), records)], np.arange(records.size)
    by_file = np.argsort(instructions, kind="stable")
    files = instructions[by_file]
    bounds = [0, *(np.flatnonzero(files[1:] != files[:-1]) + 1).tolist(), files.size]
    groups = [(int(files[start]), records[by_file[start:stop]]) for start, stop in pairwise(bounds)]
    places = np.empty_like(by_file)
    places[by_file] = np.arange(by_file.size)
    return groups, places


class Piece(NamedTuple):
    """Records of consecutive positions: where they are stored, and their bytes."""

    instructions: Places
    records: Places
    block: Block | ColumnBlock


class PieceReader:
    """Reads an order piece by piece, as records or decoded."""

    def __init__(self, source: RecordSource, features: FeaturesDict, *, copy: bool) -> None:
        self._source = source
        self._features = features
        self.copy = copy
        self._mean_bytes = 0.0
        self._most_decoded = _MOST_RECORDS

    def pieces(self, order: Order, left: Intervals, *, unit: int = 1) -> Iterator[Piece]:
        """The positions ``left`` of ``order``, in pieces. Their length is a multiple of ``unit``, except for the last.

        Raises:
            CorruptRecordError, ShardMismatchError, StorageError: as ``RecordSource.fetch``, after all sound pieces.
        """
        parts = self._parts(order, left, unit)
        self._source.is_scattered = self._source.is_requested and order.config.shuffle == "global"
        try:
            for part in parts if not self._source.is_requested else self._wanted_ahead(order, parts):
                for piece in chain.from_iterable(self._cut(piece, unit) for piece in self._fetch(order, part, unit)):
                    block = piece.block
                    are_views = isinstance(block, ColumnBlock) and not self.copy
                    num_bytes = block.num_new_bytes if are_views else block.num_bytes  # type: ignore[union-attr]
                    self._mean_bytes = num_bytes / block.num_records
                    yield piece
        finally:
            self._source.forget_wanted()

    def _parts(self, order: Order, left: Intervals, unit: int) -> Iterator[Intervals]:
        """Cut ``left`` into the positions of one piece each: few at first, then as many as fit the budget."""
        size = _FIRST_RECORDS
        while left:
            count = min(self._size(order, left, size, unit), size_of(left))
            size = min(8 * max(size, count), _MOST_RECORDS) if not self._source.is_scattered else _MOST_SCATTERED
            yield cut(left, 0, count)
            left = cut(left, count, size_of(left))

    def _wanted_ahead(self, order: Order, parts: Iterator[Intervals]) -> Iterator[Intervals]:
        """Yield ``parts``, and begin to fetch the next ones, up to 32 MiB, before each is handed out."""
        ahead: deque[Intervals] = deque()
        for part in parts:  # the first one alone: the size of a record is not known yet
            yield part
            break
        while True:
            num_records = sum(map(size_of, ahead))
            while not ahead or (len(ahead) < _PARTS_AHEAD and (num_records + 1) * self._mean_bytes < _AHEAD_BYTES):
                following = next(parts, None)
                if following is None:
                    break
                self._source.want(*_locate(order, following))
                ahead.append(following)
                num_records += size_of(following)
            if not ahead:
                return
            yield ahead.popleft()

    def located(self, order: Order, left: Intervals) -> Iterator[tuple[Places, Places]]:
        """The places of the records of ``left``, thousands at a time: instructions, and indices in their files."""
        while left:
            yield _locate(order, cut(left, 0, _MOST_RECORDS))
            left = cut(left, _MOST_RECORDS, size_of(left))

    def fetch(self, order: Order, positions: Places) -> Piece:
        """The records at any ``positions``."""
        instructions, records = order.locate(positions)
        return Piece(instructions, records, self._source.fetch_examples(instructions, records))

    def records(self, piece: Piece) -> tuple[Sequence[bytes | memoryview], RegistryError | None]:
        """The stored records of a piece before the first damaged one, and the fault of that one."""
        block = piece.block
        if isinstance(block, ColumnBlock):
            raise AssertionError("columns have no records")
        try:
            return (block.records() if self.copy else block.views()), None
        except CorruptExampleError as error:  # only rows of columns have to be encoded to be records
            place = error.details["record"]
            return block.take(np.arange(place)).records(), self._name_fault(error, piece)

    def decode(self, piece: Piece) -> ExampleBlock:
        """The examples of a piece; a fault names file and record."""
        block = piece.block
        if isinstance(block, ColumnBlock):
            try:
                return self._limit(block.decode(copy=self.copy))
            except CorruptExampleError:  # an image or a sound: its record is named after all examples before it
                block = self._source.fetch(piece.instructions, piece.records)
        decoded = self._limit(decode_block(self._features, block, copy=self.copy))
        if decoded.fault is not None:
            decoded.fault = self._name_fault(decoded.fault, piece)
        return decoded

    def _limit(self, decoded: ExampleBlock) -> ExampleBlock:
        """Limit the next pieces by the size of the values: images may be a thousand times larger than their files."""
        self._most_decoded = max(1, _MAPPED_BYTES // max(1, sum(column.row_bytes for column in decoded.leaves)))
        return decoded

    def decode_one(self, instruction: int, record: int) -> dict[str, Any]:
        """The example of one record. It skips the fixed cost of fetching and decoding a block."""
        view = self._source.view(instruction, record)
        if view is None:
            places = np.array([instruction]), np.array([record])
            piece = Piece(*places, self._source.fetch(*places))
            if not isinstance(piece.block, RecordBlock):
                return next(self.decode(piece).examples())
            (view,) = piece.block.views()
        try:
            return codec_of(self._features).decode(view, copy=self.copy)
        except CorruptExampleError as error:
            raise name_record(error, self._source.instruction(instruction).filename, record) from error

    def kept_columns_at(self, order: Order, positions: Places) -> dict[str, Any] | None:
        """The examples at ``positions`` from kept columns; None without them."""
        columns = self._source.columns
        with suppress(CorruptExampleError):  # see ``decode``
            return None if columns is None else columns.columns_at(order, positions, copy=self.copy)
        return None

    def kept_example_at(self, order: Order, position: int) -> dict[str, Any] | None:
        """The example at ``position`` from kept columns; None without them."""
        columns = self._source.columns
        if columns is None:
            return None
        try:
            example = columns.example_at(order, position, copy=self.copy)
        except CorruptExampleError:  # see ``decode``
            return None
        if example is None:  # as in ``fetch_examples``; else each example would fetch and decode its block again
            self._source.columns = None
        return example

    def ids(self, instructions: Places, records: Places) -> list[str]:
        """The TFDS id of each record."""
        names = {index: self._source.instruction(index).filename for index in np.unique(instructions).tolist()}
        places = zip(instructions.tolist(), records.tolist(), strict=True)
        return [tfds_id(names[index], record) for index, record in places]

    def _size(self, order: Order, left: Intervals, size: int, unit: int) -> int:
        """The number of positions of the next piece."""
        if self._source.is_scattered:  # ``_cut`` limits the size of the values
            size = min(size, int(_AHEAD_BYTES / max(1, self._mean_bytes)))
        elif self._mean_bytes:
            budget = _COPIED_BYTES if self.copy else _MAPPED_BYTES
            size = max(1, min(size, int(budget / self._mean_bytes), self._most_decoded))
            if self._mean_bytes >= _LARGE_BYTES and unit == 1 and not codec_of(self._features).decodes_files:
                run = next(order.runs(*left[0])).count
                size = min(size, run) if run > 3 else size
        return max(1, size // unit) * unit

    def _fetch(self, order: Order, part: Intervals, unit: int) -> Iterator[Piece]:
        instructions, records = _locate(order, part)
        try:
            piece = Piece(instructions, records, self._source.fetch_examples(instructions, records))
        except (VerificationError, StorageError):
            count = instructions.size
            if count <= unit:
                raise
        else:
            yield piece
            return
        half = -(-count // (2 * unit)) * unit
        yield from self._fetch(order, cut(part, 0, half), unit)
        yield from self._fetch(order, cut(part, half, count), unit)

    def _cut(self, piece: Piece, unit: int) -> Iterator[Piece]:
        """Divide records that were fetched together for a shuffle into pieces of the usual size."""
        num_records = piece.block.num_records
        if not self._source.is_scattered or not num_records:
            yield piece
            return
        most = min(_MOST_RECORDS, _COPIED_BYTES * num_records // max(1, piece.block.num_bytes))
        size = max(1, min(most, self._most_decoded) // unit) * unit
        for start in range(0, num_records, size):
            places = np.arange(start, min(start + size, num_records))
            yield Piece(piece.instructions[places], piece.records[places], piece.block.take(places))

    def _name_fault(self, fault: RegistryError, piece: Piece) -> RegistryError:
        if not isinstance(fault, CorruptExampleError):
            return fault
        place = fault.details["record"]
        filename = self._source.instruction(int(piece.instructions[place])).filename
        named = name_record(fault, filename, int(piece.records[place]))
        named.__cause__ = fault
        return named


def _locate(order: Order, part: Intervals) -> tuple[Places, Places]:
    if len(part) == 1:
        return order.locate(part[0])
    return order.locate(np.concatenate([np.arange(*interval) for interval in part]))


class Items(NamedTuple):
    """Items to hand out, the number of positions that each takes, and the number that all take.

    If there is a function ``make``, it makes each item when it is handed out, from an entry of ``items``.
    """

    items: list[Any]
    positions_each: int
    num_positions: int
    make: Callable[[Any], Any] | None = None


ItemLists: TypeAlias = Callable[[Order, Intervals], Iterator[Items]]
"""A function that reads the items of some positions of an order. It raises a fault after all items before it."""


class ItemReader:
    """Turns pieces into examples, records, ids, batches or blocks. ``add_ids`` adds the TFDS id to every example."""

    def __init__(self, reader: PieceReader, *, add_ids: bool) -> None:
        self._reader = reader
        self._add_ids = add_ids

    def examples(self, order: Order, left: Intervals) -> Iterator[Items]:
        """Dicts, one for each position."""
        for piece in self._reader.pieces(order, left):
            for examples in self._example_lists(piece):
                yield Items(examples, 1, len(examples))

    def records(self, order: Order, left: Intervals) -> Iterator[Items]:
        """The stored records: ``bytes``, or views if the reader does not copy."""
        for piece in self._reader.pieces(order, left):
            records, fault = self._reader.records(piece)
            yield Items(list(records), 1, len(records))
            if fault is not None:
                raise fault

    def ids(self, order: Order, left: Intervals) -> Iterator[Items]:
        """TFDS ids; nothing is read."""
        for instructions, records in self._reader.located(order, left):
            yield Items(self._reader.ids(instructions, records), 1, records.size)

    def batches(self, order: Order, left: Intervals, *, batch_size: int, drop_remainder: bool) -> Iterator[Items]:
        """Dicts of arrays of ``batch_size`` examples. The last may have fewer, or is dropped."""
        for piece in self._reader.pieces(order, left, unit=batch_size):
            columns, num_sound, fault = self._sound_columns(piece)
            stop = num_sound - (num_sound % batch_size if drop_remainder or fault is not None else 0)
            parts = [slice(start, min(start + batch_size, stop)) for start in range(0, stop, batch_size)]
            make = partial(slice_columns, columns, copy=self._reader.copy)
            yield Items(parts, batch_size, stop if fault is not None else num_sound, make)
            if fault is not None:
                raise fault

    def blocks(self, order: Order, left: Intervals) -> Iterator[Items]:
        """Dicts of arrays, one for each piece that is read."""
        for piece in self._reader.pieces(order, left):
            columns, num_sound, fault = self._sound_columns(piece)
            if num_sound:
                block = slice_columns(columns, slice(None), copy=self._reader.copy)
                yield Items([block], num_sound, num_sound)
            if fault is not None:
                raise fault

    def kept_example_at(self, order: Order, position: int) -> dict[str, Any] | None:
        """The example at ``position`` from kept columns; None if it has to be read."""
        return None if self._add_ids else self._reader.kept_example_at(order, position)

    def example_at(self, order: Order, positions: npt.NDArray[np.int64]) -> dict[str, Any]:
        """The example at ``positions``, which has one entry."""
        instruction, record = order.find(int(positions[0]))
        example = self._reader.decode_one(instruction, record)
        if self._add_ids:
            example[TFDS_ID] = self._reader.ids(np.array([instruction]), np.array([record]))[0].encode()
        return example

    def examples_at(self, order: Order, positions: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
        """The examples at ``positions``."""
        return list(chain.from_iterable(self._example_lists(self._reader.fetch(order, positions))))

    def columns_at(self, order: Order, positions: npt.NDArray[np.int64]) -> dict[str, Any]:
        """The examples at ``positions`` as a dict of arrays."""
        if not self._add_ids and (kept := self._reader.kept_columns_at(order, positions)) is not None:
            return kept
        columns, _, fault = self._sound_columns(self._reader.fetch(order, positions))
        if fault is not None:
            raise fault
        return slice_columns(columns, slice(None), copy=self._reader.copy)

    def _example_lists(self, piece: Piece) -> Iterator[list[dict[str, Any]]]:
        ids = self._reader.ids(piece.instructions, piece.records) if self._add_ids else None
        done = 0
        for examples in self._reader.decode(piece).example_lists():
            if ids is not None:
                for example, name in zip(examples, ids[done : done + len(examples)], strict=True):
                    example[TFDS_ID] = name.encode()
            done += len(examples)
            yield examples

    def _sound_columns(self, piece: Piece) -> tuple[dict[str, Any], int, RegistryError | None]:
        """The columns of the examples before the first damaged one, their number, and the fault of that one."""
        decoded = self._reader.decode(piece)
        columns = decoded.sound.columns()
        if self._add_ids:
            column = np.empty(piece.records.size, object)
            column[:] = [name.encode() for name in self._reader.ids(piece.instructions, piece.records)]
            columns[TFDS_ID] = column[: len(decoded)]
        return columns, len(decoded), decoded.fault


def slice_columns(columns: dict[str, Any], part: slice, *, copy: bool) -> dict[str, Any]:
    """``part`` of each array in a nested dict; with ``copy``, that of a read-only array, as of kept columns, is copied.

    Copying each batch when it is handed out takes half of the time of copying a piece of 4 MiB, which leaves the
    processor's cache before its batches are used.
    """
    result = {}
    for name, column in columns.items():
        some = slice_columns(column, part, copy=copy) if isinstance(column, dict) else column[part]
        result[name] = some.copy() if copy and not isinstance(some, dict) and not some.flags.writeable else some
    return result
