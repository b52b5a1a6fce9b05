"""Lets worker processes write sorted runs, so that encoded records need not be sent back.

    examples -> chunks in a spool file -> a worker encodes and sorts them -> a run -> the sorter of the split

The process that runs the generator only collects examples and writes them to files; messages contain paths. All files
are made by this process and have no names: workers open them below ``/proc``. So no file remains if a process is
killed. ``build`` calls it if an engine uses workers; ``encoding`` makes the chunks.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from registry.building.encoding import Chunk, ChunkEncoder, Drawing, draw_chunks
from registry.building.run_files import UnnamedFile
from registry.building.run_format import BlockTable, KeyedFrames, Run
from registry.building.sorter import ExternalSorter
from registry.engines import Engine, NotSendableError, Piece
from registry.errors import BuildError, RegistryError, spell
from registry.features import Codec

if TYPE_CHECKING:
    from registry.building.generation import Keyer  # workers do not need builders

_RUN_SECONDS: Final = 0.5
"""Work for one run: short enough that all workers end at about the same time."""

_RECORD_BYTES: Final = 128
"""Memory that the sorter of a worker counts for a record, besides its bytes."""

_FULL: Final = 0.9
"""Part of a worker's memory that a run uses, so that it is sorted in memory although records differ in size."""


class MadeRun(NamedTuple):
    """A run that a worker wrote.

    Attributes:
        run: the run.
        num_payload_bytes: the sum of the lengths of its records.
        keys: the run of the keys that do not determine the order, if it is separate.
    """

    run: Run
    num_payload_bytes: int
    keys: Run | None = None

    @property
    def num_records(self) -> int:
        """Number of records."""
        return self.run.num_records


class SpooledChunk(NamedTuple):
    """The place of a chunk in a spool file: a pickle, followed by its buffers, of these sizes."""

    offset: int
    sizes: list[int]


class RunOrder(NamedTuple):
    """The input of a piece of work.

    Attributes:
        spool: the file with the chunks.
        chunks: their places. A chunk that cannot be pickled is here itself, so that the engine runs the piece here.
        run: the file that receives the run.
    """

    spool: UnnamedFile
    chunks: list[SpooledChunk | Chunk]
    run: UnnamedFile


class RunFacts(NamedTuple):
    """The result of a piece of work; ``seconds`` is the time that it took the processor."""

    table: BlockTable
    num_payload_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RunMaker:
    """The function of a piece of work: encodes chunks of examples, and writes a sorted run of their records."""

    encoder: ChunkEncoder
    folder: Path | None
    budget_bytes: int

    def __call__(self, order: RunOrder) -> RunFacts:
        """Write the run. Calling it again writes the same run."""
        started = time.thread_time()
        with (
            order.spool.stream(0, 0) as spool,
            ExternalSorter(split=self.encoder.split, folder=self.folder, budget_bytes=self.budget_bytes) as sorter,
        ):
            for place in order.chunks:
                chunk = place if isinstance(place, Chunk) else _read_chunk(spool, place)
                sorter.add(KeyedFrames(chunk.sort_keys, chunk.labels, self.encoder(chunk)))
            table = sorter.write_to(order.run)
        return RunFacts(table, sorter.num_payload_bytes, time.thread_time() - started)


def make_runs(
    engine: Engine, codec: Codec, keyer: Keyer, items: Iterable[Any], *, folder: Path | None, budget_bytes: int
) -> Iterator[MadeRun]:
    """Yield runs of the records of ``items``, which are pairs (key, example), in order. The caller closes the runs.

    Args:
        engine: writes the runs.
        codec: the codec of the examples.
        keyer: checks the keys.
        items: the pairs.
        folder: receives the files. None: the system's temporary folder.
        budget_bytes: memory for sorting, shared by all processes.

    Raises:
        StorageError: the disk is full, or the folder is not writable.
        BuildError, FeatureError, DuplicateKeyError: as ``encode_examples`` raises them. A key may also be used twice
            in a run.
    """
    share = max(1, budget_bytes // engine.width)
    maker = RunMaker(ChunkEncoder(codec, keyer.split, keyer.where), folder, share)
    drawing = Drawing()
    size = _RunSize(share)
    waiting: deque[RunOrder] = deque()
    try:
        pieces = _pieces(engine, maker, keyer, items, drawing, size, waiting)
        for order, facts in engine.run(pieces, doing="encoded examples", failure=BuildError):
            waiting.popleft()
            order.spool.close()
            run = Run(order.run, 0, facts.table)
            drawing.learn(run.num_records, facts.num_payload_bytes)
            size.learn(run.num_records, facts)
            yield MadeRun(run, facts.num_payload_bytes)
    except NotSendableError as error:
        raise BuildError(
            f"split {keyer.split!r}: an example was pickled, but cannot be unpickled: {error}",
            hint=f"Build in one process: {spell('processes', 1)}.",
            details={"split": keyer.split},
        ) from error
    finally:
        for order in waiting:
            order.spool.close()
            order.run.close()


class _RunSize:
    """Decides how many examples become one run, by what was learned from earlier runs."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._num_records = 0
        self._num_bytes = 0
        self._seconds = 0.0

    def learn(self, num_records: int, facts: RunFacts) -> None:
        self._num_records += num_records
        self._num_bytes += facts.num_payload_bytes
        self._seconds += facts.seconds

    def is_full(self, num_records: int, num_bytes: int) -> bool:
        """Whether a run has enough examples; ``num_bytes`` is their size in the spool file."""
        if not self._num_records:  # a single chunk, to measure the size of records soon
            return True
        part = num_records / self._num_records
        held_bytes = part * self._num_bytes + _RECORD_BYTES * num_records
        most_bytes = _FULL * self._most_bytes
        return part * self._seconds >= _RUN_SECONDS or held_bytes >= most_bytes or num_bytes >= most_bytes


def _pieces(
    engine: Engine,
    maker: RunMaker,
    keyer: Keyer,
    items: Iterable[Any],
    drawing: Drawing,
    size: _RunSize,
    waiting: deque[RunOrder],
) -> Iterator[Piece[RunOrder, RunFacts]]:
    """Write chunks to spool files. An error is raised after the piece of the examples before it."""
    spool: UnnamedFile | None = None
    chunks: list[SpooledChunk | Chunk] = []
    num_records = num_bytes = 0
    drawn = draw_chunks(engine, keyer, items, drawing)
    failed: RegistryError | None = None
    is_end = False
    try:
        while not is_end:
            try:
                chunk = next(drawn, None)
            except RegistryError as error:
                failed, chunk = error, None
            is_end = chunk is None
            if chunk is not None:
                spool = spool or UnnamedFile(maker.folder)
                place = _write_chunk(spool, chunk, num_bytes)
                chunks.append(place)
                num_records += len(chunk.labels)
                num_bytes += sum(place.sizes) if isinstance(place, SpooledChunk) else 0
            if spool is not None and (is_end or size.is_full(num_records, num_bytes)):
                spool.flush()
                order = RunOrder(spool, chunks, UnnamedFile(maker.folder))
                piece = Piece(maker, order, num_items=num_records)
                waiting.append(order)
                spool, chunks, num_records, num_bytes = None, [], 0, 0
                yield piece
    finally:
        if spool is not None:
            spool.close()
    if failed is not None:
        raise failed


def _write_chunk(spool: UnnamedFile, chunk: Chunk, offset: int) -> SpooledChunk | Chunk:
    """Append a chunk to a spool file; returns the chunk itself if it cannot be pickled."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        head = pickle.dumps(chunk, protocol=5, buffer_callback=buffers.append)
    except Exception:  # noqa: BLE001 (pickling calls author code)
        return chunk
    views = [memoryview(head), *(buffer.raw() for buffer in buffers)]
    spool.append(views)
    return SpooledChunk(offset, [view.nbytes for view in views])


def _read_chunk(spool: BinaryIO, place: SpooledChunk) -> Chunk:
    spool.seek(place.offset)
    parts = [bytearray(size) for size in place.sizes]  # arrays in them can be written to, as in this process
    for part in parts:
        spool.readinto(part)  # type: ignore[attr-defined]  # mypy's BinaryIO lacks it
    try:
        chunk: Chunk = pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301 - from the process that started this one
    except Exception as error:
        raise NotSendableError(f"{type(error).__name__}: {error}") from error
    return chunk
