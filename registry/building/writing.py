"""Writes the sorted records of a split to its shards, and decides how many shards there are.

    filled ExternalSorter -> shard lengths -> files -> Split and Shards

``build`` calls it for the examples of a builder, and other packages for records that they made themselves. The number
and lengths of shards follow TFDS 4.9, so that the same records give the same shards (``plan_num_shards``,
``plan_shards``).
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np

from registry.building.example_runs import MadeRun
from registry.building.run_files import CAN_SHARE_FILES
from registry.building.run_format import KeyedFrames, Run
from registry.building.shard_writing import MadeShard, ShardInput, ShardMaker
from registry.building.sorter import ExternalSorter
from registry.building.task_progress import PROGRESS_SECONDS, Outcome, StageTasks
from registry.engines import Engine, Piece, ThisProcess, call_in_thread
from registry.errors import BuildError, spell
from registry.features.fold import SplitFold
from registry.model import (
    LEAF_EXAMPLES,
    ProgressCallback,
    Shard,
    ShardedFileTemplate,
    ShardLengths,
    Split,
    count_progress,
)
from registry.storage import Store
from registry.tfrecord import Frames, RecordWriter
from registry.tfrecord.frames import regroup

FILE_FORMAT: Final = "tfrecord"
_LITTLE_BYTES: Final = 4 * 2**20  # a split of this size is written before a thread would have started

_GROUP_BYTES: Final = 2**20
_MOST_LEAF_BYTES: Final = 2**24
_SMALL_BYTES: Final = 2**11  # a record of this size is folded in less time than sending it takes
_MOST_AHEAD: Final = 3  # pieces of about 1 MB in memory while one is written

MIN_SHARD_BYTES: Final = 64 * 2**20
MAX_SHARD_BYTES: Final = 2**30
_FRAMING_BYTES: Final = 16  # of one TFRecord: length, its checksum, the payload's checksum
_PREFERRED: Final = 1024  # enough for many readers, and divisible by every smaller power of two


def write_split(
    sorter: ExternalSorter,
    *,
    split: str,
    dataset: str,
    reference: str,
    store: Store,
    num_shards: int | None = None,
    fold: SplitFold | None = None,
    engine: Engine | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[Split, tuple[Shard, ...]]:
    """Write the records of ``sorter`` to the shards of ``split``, in the order of their sort keys.

    The same records give the same bytes, for any memory budget of the sorter and any order of adding.

    Args:
        sorter: contains all records of the split. It is read once, and cannot be used again.
        split: the name of the split.
        dataset: the name of the dataset, which starts the names of the files.
        reference: the name of the version in errors, e.g. ``prices:1.0.0``.
        store: the folder that receives the files.
        num_shards: the number of shards. None: TFDS's rule of size and count (``plan_num_shards``).
        fold: receives the records in the order in which they are written; its results then are the split's.
        engine: runs the fold. None: this process.
        progress: called with a ``Progress`` a few times a second: records written.

    Returns:
        The split, and its shards with sizes in bytes, numbers of records and sha256.

    Raises:
        BuildError: the split has no records, or fewer than shards.
        DuplicateKeyError: two records have the same key.
        StorageError: the disk is full or not writable, or a temporary file of the sorter is damaged.

    >>> from registry.building import KeyedFrames, hash_keys
    >>> from registry.storage import open_store
    >>> from registry.tfrecord import frame_records
    >>> store = open_store("memory://write-split")
    >>> with ExternalSorter(split="train") as sorter:
    ...     sorter.add(KeyedFrames(hash_keys("train", [0, 1]), ["0", "1"], frame_records([b"zero", b"one"])))
    ...     split, shards = write_split(sorter, split="train", dataset="tiny", reference="tiny:1.0.0", store=store)
    >>> split.num_examples, split.num_bytes, [shard.num_bytes for shard in shards], store.list()
    (2, 7, [39], ['tiny-train.tfrecord-00000-of-00001'])
    """
    written = plan_split(
        num_examples=sorter.num_examples,
        num_payload_bytes=sorter.num_payload_bytes,
        split=split,
        dataset=dataset,
        reference=reference,
        num_shards=num_shards,
    )
    if engine is not None and engine.width > 1 and engine.shares_files and _is_divisible(sorter, written, store):
        sorter.spill()
        # A merge holds a quarter of this, so all workers together hold at most the budget.
        budget_bytes = min(sorter.budget_bytes, 4 * sorter.budget_bytes // engine.width)
        return written, write_runs(
            sorter.runs,
            written,
            store=store,
            fold=fold,
            engine=engine,
            budget_bytes=budget_bytes,
            progress=progress,
        )
    shards: list[Shard] = []
    with closing(_write(sorter, written, store, shards, progress)) as pieces:
        if fold is None:
            for _ in pieces:
                pass
        else:
            _fold(fold, written, pieces, engine or ThisProcess())
    return written, tuple(shards)


def _write(
    sorter: ExternalSorter, split: Split, store: Store, shards: list[Shard], progress: ProgressCallback | None
) -> Generator[Frames, None, None]:
    """Write the shards of ``split`` and add them to ``shards``. Yields what is written, about 1 MB at a time."""
    frames = watch_frames(sorter.sorted_frames(), "writing", split.name, sorter.num_examples, progress)
    is_large = sorter.num_payload_bytes > _LITTLE_BYTES
    for index, pieces in enumerate(_cut_at_shards(frames, split.shard_lengths)):
        with store.create(split.filename(index)) as file:
            writer = RecordWriter(file)
            written = call_in_thread(partial(_write_piece, writer), pieces, most=_MOST_AHEAD, is_used=is_large)
            with closing(written):
                yield from (piece for piece, _ in written)
        shards.append(split.shard(index, num_bytes=writer.num_bytes, sha256=writer.sha256()))
    next(frames, None)  # no record is left: this ends the merge, and reports the last progress


def _write_piece(writer: RecordWriter, piece: Frames) -> None:
    writer.write_frames(piece.data, num_records=piece.num_records)


def _is_divisible(sorter: ExternalSorter, split: Split, store: Store) -> bool:
    """Whether workers can write the shards: there are several, and the records are in files that workers can open."""
    return CAN_SHARE_FILES and split.num_shards > 1 and bool(sorter.runs) and store.local_root is not None


def write_runs(
    runs: Sequence[Run],
    split: Split,
    *,
    store: Store,
    fold: SplitFold | None,
    engine: Engine,
    budget_bytes: int,
    progress: ProgressCallback | None,
) -> tuple[Shard, ...]:
    """Write the records of ``runs``, which all processes of ``engine`` can read, as ``write_split`` writes a sorter's.

    ``split`` is the plan of ``plan_split``, and ``budget_bytes`` the memory of each process for merging. The other
    arguments are those of ``write_split``.
    """
    records_fold = None if fold is None else fold.of_records()
    function = ShardMaker(split=split, store=store, budget_bytes=budget_bytes, fold=records_fold)
    shards = []
    lengths = split.shard_lengths
    pieces = (Piece(function, source, num_items=lengths[source.index]) for source in function.inputs(runs))
    with StageTasks(
        progress,
        "writing",
        split.name,
        measure=_measure,
        unit="shards",
        num_units=split.num_shards,
        num_examples=split.num_examples,
    ) as stage:
        made = engine.run(pieces, doing="wrote shards", failure=BuildError, watch=stage.watch)
        for _, (shard, states) in made:
            if fold is not None:
                fold.merge(states)
            shards.append(shard)
    return tuple(shards)


def _measure(_: ShardInput, shard: MadeShard) -> Outcome:
    """What the task of a shard gave."""
    num_records = shard.shard.num_examples
    return Outcome(num_records=num_records, num_bytes=shard.shard.num_bytes - _FRAMING_BYTES * num_records)


def _fold(fold: SplitFold, split: Split, pieces: Iterator[Frames], engine: Engine) -> None:
    """Fold the records of ``pieces``: whole leaves of them as pieces of work, which may run in other processes.

    Quick folds of small records run here if no other process works for ``engine``: one state for all records saves
    merging. So do quick folds where a leaf takes too much memory to send, as for photographs. There, others would hold
    up the writing: their results are computed from the files, by workers that read their own part.
    """
    is_large = split.num_bytes * LEAF_EXAMPLES > _MOST_LEAF_BYTES * split.num_examples
    is_small = split.num_bytes <= _SMALL_BYTES * split.num_examples
    if is_large or (is_small and fold.is_quick and engine.width == 1):
        for piece in pieces:
            if fold.is_quick:
                fold.add(*piece.payloads())
            else:
                fold.merge(None)
        return
    function = fold.of_records()
    leaves = (
        Piece(function, [group.payloads()], num_items=group.num_records)
        for group in regroup(pieces, multiple=LEAF_EXAMPLES, least_bytes=_GROUP_BYTES)
    )
    for _, states in engine.run(leaves, doing="hashed records", failure=BuildError):
        fold.merge(states)


def plan_split(
    *,
    num_examples: int,
    num_payload_bytes: int,
    split: str,
    dataset: str,
    reference: str,
    num_shards: int | None = None,
) -> Split:
    """Return a split of this size, with the number and lengths of its shards and their names.

    The arguments are those of ``write_split``.

    Raises:
        BuildError: there are no records, or fewer than shards.
    """
    if num_examples == 0:
        raise BuildError(
            f"split {split!r} of {reference} has no examples",
            hint="Check that the paths it reads match files, and that the generator yields. To have no such split, "
            "leave it out of splits().",
            details={"split": split, "num_examples": 0},
        )
    try:
        wanted = num_shards or plan_num_shards(num_examples=num_examples, num_payload_bytes=num_payload_bytes)
        lengths = plan_shards(num_examples=num_examples, num_shards=wanted)
    except BuildError as error:
        message = f"split {split!r} of {reference}: {error.message}"
        raise BuildError(message, hint=error.hint, details={**error.details, "split": split}) from error
    return Split(
        name=split,
        shard_lengths=lengths,
        num_bytes=num_payload_bytes,
        files=ShardedFileTemplate(dataset=dataset, file_format=FILE_FORMAT),
    )


def _cut_at_shards(blocks: Iterator[Frames], lengths: Iterable[int]) -> Iterator[Iterator[Frames]]:
    """For each shard of ``lengths`` records, the parts of ``blocks`` in it; draw them before the next shard."""
    rest = Frames(b"", np.empty(0, np.int64))

    def parts(left: int) -> Iterator[Frames]:
        nonlocal rest
        while left:
            block = rest if rest.num_records else next(blocks)
            stop = min(left, block.num_records)
            yield block.part(0, stop)
            rest, left = block.part(stop, block.num_records), left - stop

    return map(parts, lengths)


_HasRecords = TypeVar("_HasRecords", bound=Frames | KeyedFrames | MadeRun)


def watch_frames(
    blocks: Iterator[_HasRecords], stage: str, split: str, num_examples: int | None, progress: ProgressCallback | None
) -> Iterator[_HasRecords]:
    """Yield ``blocks``, and report the records and bytes of those that were used, a few times a second."""
    advance = count_progress(progress, stage, split, total=num_examples, announce=True)
    if advance is None:
        yield from blocks
        return
    done, num_bytes, reported = 0, 0, time.monotonic()
    for block in blocks:
        yield block
        done += block.num_records
        num_bytes += block.num_payload_bytes
        if time.monotonic() - reported > PROGRESS_SECONDS:
            advance(done, num_bytes=num_bytes)
            done, num_bytes, reported = 0, 0, time.monotonic()
    advance(done, num_bytes=num_bytes)


def plan_num_shards(*, num_examples: int, num_payload_bytes: int) -> int:
    """Return the number of shards for ``num_examples`` records with ``num_payload_bytes`` serialized bytes in total.

    >>> plan_num_shards(num_examples=1797, num_payload_bytes=400_000)
    1
    >>> plan_num_shards(num_examples=1_281_167, num_payload_bytes=150 * 2**30)
    1024

    Raises:
        BuildError: the records take more than 1 TiB and are fewer than the shards needed (TFDS loops forever).
    """
    num_bytes = num_payload_bytes + _FRAMING_BYTES * num_examples
    fewest = num_bytes // MAX_SHARD_BYTES
    most = num_bytes // MIN_SHARD_BYTES
    if fewest > _PREFERRED:
        num_shards = max(2, -(-fewest // _PREFERRED)) * _PREFERRED
        if num_shards > num_examples:
            raise BuildError(
                f"{num_bytes} bytes require {num_shards} shards, but there are only {num_examples} examples",
                hint=f"Set {spell('num_shards=N')} or NUM_SHARDS, or make the examples smaller.",
                details={"num_bytes": num_bytes, "num_examples": num_examples, "num_shards": num_shards},
            )
        return num_shards
    for num_shards in (_PREFERRED, 512, 256, 128, 64, 32, 16, 8, 4, 2):
        if fewest <= num_shards <= most and num_shards <= num_examples:
            return num_shards
    return 1


def plan_shards(*, num_examples: int, num_shards: int) -> ShardLengths:
    """Return the number of records in each of ``num_shards`` shards.

    Shard i starts at ``num_examples * i / num_shards``, rounded half to even, as in TFDS.

    >>> list(plan_shards(num_examples=10, num_shards=4))
    [2, 3, 3, 2]

    Raises:
        BuildError: ``num_shards`` is below 1 or above ``num_examples``. Every shard has at least one record.
    """
    if not 1 <= num_shards <= num_examples:
        raise BuildError(
            f"{num_examples} examples cannot be written as {num_shards} shards",
            hint=f"Every shard needs an example: set {spell('num_shards')} or NUM_SHARDS to at most {num_examples}.",
            details={"num_examples": num_examples, "num_shards": num_shards},
        )
    parts = [divmod(num_examples * index, num_shards) for index in range(num_shards + 1)]
    starts = [whole + (2 * rest + (whole & 1) > num_shards) for whole, rest in parts]
    return ShardLengths(stop - start for start, stop in pairwise(starts))
