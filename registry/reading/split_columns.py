"""The decoded columns of a split: opens them from the cache, attachments or memory, fills them, and repairs them.

    shards in stored order -> Layout.append -> ColumnWriter of each leaf

Only one process at a time fills the columns of a split; others read the shards, or wait.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

import numpy as np

from registry.columns import ColumnFolder, ColumnWriter, KeptColumn, Layout
from registry.errors import StorageError, UsageError, warn
from registry.features import FeaturesDict, codec_of
from registry.model import Advance, listed
from registry.order import ReadConfig
from registry.reading.attached import Damaged
from registry.reading.column_blocks import JoinedColumns, KeptColumns
from registry.reading.pieces import PieceReader, RecordSource
from registry.reading.readable import ReadableVersion
from registry.shards import TableBlock, as_records
from registry.splits import Plan, resolve
from registry.storage.cache import FileCache
from registry.tfrecord import Places, Verify
from registry.wire import FlatBlock

_BLOCK_BYTES: Final = 2**22
_BLOCK_RECORDS: Final = 1, 8192
_MOST_LEAVES: Final = 500
MOST_FILES: Final = 2**16
"""Schemas with more leaves, and plans of more files, are read from the shards."""

# Such a folder cannot exist, so there is no warning about its owner
_NO_CACHE: Final = FileCache(f"{os.devnull}/off", max_bytes=0)
_OPENED_AT_ONCE: Final = 16
"""The number of attached columns that are opened at the same time, because each needs requests."""

_MOST_NAMED: Final = 5
_WAIT_SECONDS: Final = 0.1
_MOST_WAIT_SECONDS: Final = 30.0
"""A process that fills columns, but finishes no block in this time, is considered suspended."""

_IN_ORDER: Final = ReadConfig(interleave_cycle_length=1)


@dataclass(frozen=True, slots=True)
class SplitColumns:
    """The columns of one split of a version in the cache.

    Attributes:
        readable: the version.
        split: the name of the split.
        features: the features whose columns are read.
        pixels: the paths of images that are filled as pixels, and not as their stored bytes.
        cache: the cache of the columns; None for the cache of ``readable``.
    """

    readable: ReadableVersion
    split: str
    features: FeaturesDict
    pixels: frozenset[str] = frozenset()
    cache: FileCache | None = None

    @property
    def plan(self) -> Plan:
        """All records of the split."""
        facts = self.readable.facts
        return resolve(self.split, facts.layout, slicing=facts.slicing)

    @property
    def num_records(self) -> int:
        """Number of records of the split."""
        return self.readable.facts.split(self.split).num_examples

    @property
    def block_records(self) -> int:
        """Number of records in a block: about 4 MiB of them, and a power of two."""
        split = self.readable.facts.split(self.split)
        mean = split.num_bytes / max(1, split.num_examples)
        least, most = _BLOCK_RECORDS
        return min(most, max(least, 1 << max(0, int(_BLOCK_BYTES / max(1, mean)).bit_length() - 1)))

    def folders(self) -> list[ColumnFolder] | None:
        """The folder of each leaf of the features; None if they cannot be kept."""
        readers = codec_of(self.features).columns
        digest, cache = self.readable.facts.content_digest, self.cache or self.readable.cache or _NO_CACHE
        layouts = [Layout(reader, as_pixels=reader.path in self.pixels) for reader in readers[: _MOST_LEAVES + 1]]
        if not digest or len(readers) > _MOST_LEAVES or not all(layout.forms for layout in layouts):
            return None
        source = json.dumps([digest, self.split])
        # Other users can write files that will be attached
        size, is_shared = self.block_records, self.cache is not None
        return [ColumnFolder(cache, source, layout, self.num_records, size, is_shared=is_shared) for layout in layouts]

    def open(self, *, is_whole: bool = False, mended: set[str] | None = None) -> list[KeptColumn] | None:
        """Open the columns of all leaves, from the cache or the attachments. Returns None if one is missing.

        Images are read from their pixels if these are in the cache. ``is_whole`` also fetches missing blocks and
        repairs damaged ones; the keys of their columns are added to ``mended``.
        """
        folders, attached = self.folders(), self.readable.attached
        paths = frozenset(reader.path for reader in codec_of(self.features).columns)
        pixels = replace(self, pixels=paths).folders()
        if folders is None or pixels is None:
            return None
        forms = list(zip(pixels, folders, strict=True))
        absent = [stored for decoded, stored in forms if not decoded.exists() and not stored.exists()]
        names = [name for folder in absent for name in folder.attached_names.values()]
        if names and (attached is None or not attached.names().issuperset(names)):
            return None
        with ThreadPoolExecutor(_OPENED_AT_ONCE) as threads:
            opened = list((threads.map if names else map)(self._open, pixels, folders))
        columns = [column for column in opened if column is not None]
        if len(columns) < len(opened):
            return None

        def mend(damaged: Damaged, find: Callable[[], Damaged]) -> bool:
            if mended is not None:
                mended.update(column.folder.key for column in damaged if column.folder is not None)
            return self.mend(damaged, find)

        if is_whole:
            every = KeptColumns(self.features, columns, first_rows(self.plan), self.num_records, mend)
            if not every.prove(slice(0, self.num_records)):
                return None
        return columns

    def _open(self, pixels: ColumnFolder, stored: ColumnFolder) -> KeptColumn | None:
        column, attached = pixels.open() or stored.open(), self.readable.attached
        return attached.open(stored) if column is None and attached is not None else column

    def fill(
        self,
        *,
        advance: Advance | None = None,
        must_stop: Callable[[], bool] = lambda: False,
        is_needed: Callable[[ColumnFolder], bool] = bool,
    ) -> int:
        """Fill the missing columns. If another process is filling them, wait for it.

        Args:
            advance: called with a number of records.
            must_stop: called after each block. If it returns True, filling stops; the next call continues from there.
            is_needed: returns whether a column has to be filled; by default all are.

        Returns:
            The number of columns that were filled here.

        Raises:
            UsageError: the columns cannot be kept.
            StorageError: the cache has no room, or cannot be written; or a process that fills the columns is suspended.
            CorruptRecordError, CorruptExampleError, ShardMismatchError: a file is damaged.
        """
        folders, cache = self.require_folders()
        num_filled = 0
        progress: list[int] = []
        deadline = math.inf
        while not must_stop():
            kept = [folder.open() for folder in folders]  # mapped, so that the others do not evict them
            if self.cache is None and self.readable.attached is not None:
                for place, folder in enumerate(folders):
                    if kept[place] is None and (column := self.readable.attached.open(folder, in_place=False)):
                        kept[place] = column
                        num_filled += 1
            pairs = zip(folders, kept, strict=True)
            missing = [folder for folder, column in pairs if column is None and is_needed(folder)]
            if not missing:
                break
            with ExitStack() as stack, cache.write_errors():
                writers: list[tuple[int, ColumnFolder, ColumnWriter]] = []
                for place, folder in enumerate(folders):
                    writer = folder.write() if folder in missing else None
                    if writer is not None:
                        writers.append((place, folder, stack.enter_context(writer)))
                if writers:
                    self._fill(writers, cache, advance, must_stop)
                    num_filled += len(writers)
            if not writers:
                before, progress = progress, [folder.num_written_bytes() for folder in missing]
                if progress != before:
                    deadline = time.monotonic() + _MOST_WAIT_SECONDS
                if time.monotonic() >= deadline:
                    raise StorageError(
                        f"another process has locked the columns of {self.readable.facts.reference} and makes no "
                        "progress",
                        hint=f"It may be suspended. To find it: fuser {missing[0].folder}/*",
                        details={"path": str(missing[0].folder)},
                    )
                time.sleep(_WAIT_SECONDS)
        return num_filled

    def require_folders(self) -> tuple[list[ColumnFolder], FileCache]:
        """Return the folder of each leaf, and the cache. Raises UsageError if the columns cannot be kept."""
        folders, cache = self.folders(), self.cache or self.readable.cache
        if cache is None:
            raise UsageError("the cache is switched off, or its folder cannot be used", hint="See: registry cache show")
        if folders is None or not self._has_all_files():
            raise UsageError(
                f"the columns of {self.readable.facts.reference} cannot be kept",
                hint="A feature has an unknown class, or there are more than 500; read the shards instead.",
            )
        return folders, cache

    def _has_all_files(self) -> bool:
        """Whether all files of the split are known. A pin only has the files that it needs."""
        proof, split = self.readable.proof, self.readable.facts.split(self.split)
        return proof is not None and all(proof.promises.find(name) is not None for name in split.filenames)

    def _fill(
        self,
        writers: Sequence[tuple[int, ColumnFolder, ColumnWriter]],
        cache: FileCache,
        advance: Advance | None,
        must_stop: Callable[[], bool],
    ) -> None:
        first = min(writer.num_records for _, _, writer in writers)
        for _, _, writer in writers:
            writer.restart(first)
        if advance is not None and first:
            advance(first)
        # Checked even if the caller's read does not verify, because other processes trust the cache.
        blocks = read_flat_blocks(self.readable, self.plan, self.features, first, self.block_records, "block")
        for row, num_records, flats in blocks:
            for place, folder, writer in writers:
                if not writer.append(folder.layout.append(flats[place], row, writer.lengths)):
                    raise StorageError(
                        f"the cache {cache.folder} has no room for the columns of {self.readable.facts.reference}",
                        hint="Set REGISTRY_CACHE_BYTES to a larger number, or keep fewer columns.",
                        details={"path": str(cache.folder)},
                    )
            if advance is not None:
                advance(num_records)
            if must_stop():
                return
        for _, _, writer in writers:
            writer.finish()

    def mend(self, damaged: Damaged, find: Callable[[], Damaged]) -> bool:
        """Write damaged blocks again, from the attachments or from the shards; see ``column_blocks.Mender``.

        If that is impossible, damaged columns are discarded.
        """
        attached = self.readable.attached
        if attached is not None and attached.fetch(damaged) and not (damaged := find()):
            return True
        self._warn_of(damaged)
        is_mended = self._has_all_files() and all(
            self._mend([column for column, blocks in damaged.items() if block in blocks], block)
            for block in sorted({block for blocks in damaged.values() for block in blocks})
        )
        for column, blocks in {} if is_mended else damaged.items():
            if column.folder is not None and not all(map(column.is_missing, blocks)):
                column.folder.discard()
        return is_mended

    def _warn_of(self, damaged: Damaged) -> None:
        """Warn about each damaged column, and once about columns that cannot be fetched.

        There is no warning about blocks that were never fetched if the attachments are unknown.
        """
        reference, attached = self.readable.facts.reference, self.readable.attached
        missing = [column for column, blocks in damaged.items() if all(map(column.is_missing, blocks))]
        for column in damaged:
            if column.folder is not None and column not in missing:
                warn(
                    f"a block of the kept column {column.folder.layout.path!r} of {reference} is damaged: "
                    "it will be made again from the shards"
                )
        paths = [repr(column.folder.layout.path) for column in missing if column.folder is not None]
        if paths and attached is not None:
            warn(
                f"blocks of the columns {listed(paths, _MOST_NAMED)} that are attached to {reference} cannot "
                f"be fetched{attached.problem}: they will be made again from the shards"
            )

    def _mend(self, columns: Sequence[KeptColumn], block: int) -> bool:
        """Write a block of some columns again, from the shards."""
        first, size, names = block * self.block_records, self.block_records, codec_of(self.features).columns
        places = {reader.path: place for place, reader in enumerate(names)}
        for _, _, flats in read_flat_blocks(self.readable, self.plan, self.features, first, size, "block", most=size):
            for column in columns:
                folder = column.folder
                if folder is None:
                    return False
                flat = flats[places[folder.layout.path]]
                entries = folder.layout.append(flat, first, column.entries_before(block))
                if not folder.mend(column, block, entries) or not column.is_sound(block):
                    return False
            return True
        return False


def read_flat_blocks(
    readable: ReadableVersion,
    plan: Plan,
    features: FeaturesDict,
    first: int,
    size: int,
    verify: Verify,
    *,
    most: int | None = None,
) -> Iterator[tuple[int, int, Sequence[FlatBlock]]]:
    """The flat values of the records of a plan in stored order, from record ``first`` on.

    Yields:
        The row of the first record of a block, the number of its records, and their values for each leaf.

    Raises:
        CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: as reading.
    """
    store = readable.files({split.name for split in plan.splits})
    source = RecordSource(
        plan,
        store,
        verify=verify,
        indexes=readable.indexes,
        file_format=readable.file_format,
        features=features,
    )
    stop = plan.num_examples if most is None else min(plan.num_examples, first + most)
    reader = PieceReader(source, features, copy=False)
    for piece in reader.pieces(plan.order(_IN_ORDER), ((first, stop),) if first < stop else (), unit=size):
        # No columns
        whole = piece.block if isinstance(piece.block, TableBlock) else as_records(piece.block)  # type: ignore[arg-type]
        for start in range(0, whole.num_records, size):
            block = whole.take(np.arange(start, min(start + size, whole.num_records)))
            if isinstance(block, TableBlock):
                flats: Sequence[FlatBlock] = block.flat_blocks()
            else:
                flats = codec_of(features).flat_records(block.data, block.offsets, block.lengths).flats
            yield first, block.num_records, flats
            first += block.num_records


def fill_memory(readable: ReadableVersion, plan: Plan, features: FeaturesDict, verify: Verify) -> KeptColumns | None:
    """The columns of a plan in memory; None if they cannot be kept.

    Raises:
        CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: as reading.
    """
    layouts = [Layout(reader) for reader in codec_of(features).columns]
    if not all(layout.forms for layout in layouts) or len(plan) > MOST_FILES:
        return None
    parts = [[[np.zeros(int(form.has_zero), form.dtype)] for form in layout.forms] for layout in layouts]
    lengths = [[0] * len(layout.forms) for layout in layouts]
    for first, _, flats in read_flat_blocks(readable, plan, features, 0, _BLOCK_RECORDS[1], verify):
        for place, layout in enumerate(layouts):
            entries = layout.append(flats[place], first, lengths[place])
            for number, array in enumerate(entries):
                parts[place][number].append(array)
                lengths[place][number] += len(array)
    columns = []
    for layout, arrays in zip(layouts, parts, strict=True):
        whole = [
            np.concatenate(pieces if form.has_zero else pieces[1:] or [np.empty((0, *form.shape), form.dtype)])
            for form, pieces in zip(layout.forms, arrays, strict=True)
        ]
        arrays.clear()  # memory holds the parts of one leaf more than the columns
        for array in whole:
            array.flags.writeable = False
        columns.append(KeptColumn(layout, whole, None, ()))
    starts = first_rows(plan)
    return KeptColumns(features, columns, starts, plan.num_examples, lambda _, __: False)


def open_columns(splits: Sequence[SplitColumns], plan: Plan) -> KeptColumns | None:
    """The columns of the splits of a plan in the cache; None if one of them is not there."""
    opened = []
    for split in splits:
        columns = split.open()
        if columns is None:
            return None
        opened.append((split, columns))
    sizes = [split.num_records for split in splits]
    # A walk over all files of the plan, so only if there are columns
    starts = first_rows(plan, dict(zip((split.split for split in splits), accumulate([0, *sizes]), strict=False)))
    parts = [KeptColumns(split.features, columns, starts, split.num_records, split.mend) for split, columns in opened]
    return parts[0] if len(parts) == 1 else JoinedColumns(parts, sizes, starts)


def first_rows(plan: Plan, before: Mapping[str, int] | None = None) -> Places:
    """The row of record 0 of the file of each instruction.

    ``before`` is the number of rows before each split; None counts the records of the plan one by one.

    They follow from the ranges of the plan, because a pin knows only the lengths of the files that it needs.
    """
    takes, skips = (np.array([part[at] for part in plan], np.int64) for at in (2, 1))
    rows = takes.cumsum() - takes
    if before is not None:
        sizes = np.array([part.stop - part.start for part in plan.ranges], np.int64)
        passed = sizes.cumsum() - sizes
        place = np.searchsorted(passed, rows, side="right") - 1
        rows += (np.array([before[part.split] + part.start for part in plan.ranges], np.int64) - passed)[place]
    return rows - skips
