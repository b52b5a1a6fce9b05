"""Encodes the examples of a split in chunks that an engine runs. Every engine gives the same records in the same order.

``build`` calls ``encode_examples`` between ``generation`` (pairs of key and example) and ``sorter`` (blocks of frames).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from registry.building.author_code import author_traceback, text_of
from registry.building.generation import Keyer
from registry.building.keys import SortKeys
from registry.building.sorter import KeyedFrames
from registry.engines import Engine, Piece
from registry.errors import BuildError, FeatureError, RegistryError
from registry.features import Codec
from registry.tfrecord import Frames, RecordBlock, frame_records

_CHUNK_EXAMPLES: Final = 512
_CHUNK_BYTES: Final = 2**20
_CHUNK_SECONDS: Final = 0.1
_VALUE_BYTES: Final = 32  # of a number or another small value

_FIXED: Final = frozenset(
    {type(None), bool, int, float, complex, *(set(np.sctypeDict.values()) - {np.void, np.object_})}
)
"""Types of values that nobody can change."""


class Chunk(NamedTuple):
    """Examples that are encoded together. Three sequences: pickling a tuple for each example takes five times as long.

    Attributes:
        sort_keys: uint8 of shape (number of examples, 16).
        labels: the key of each example as errors show it.
        examples: the examples.
    """

    sort_keys: SortKeys
    labels: list[str]
    examples: list[Any]


@dataclass(frozen=True, slots=True)
class ChunkEncoder:
    """The function of a piece of work: encodes a chunk of examples."""

    codec: Codec
    split: str

    def __call__(self, chunk: Chunk) -> Frames:
        """Return the framed records, in order."""
        block = self.codec.encode_block(chunk.examples)
        if block.fault is not None:
            raise self._fault(chunk.labels[block.num_records], block.fault) from block.fault
        try:
            return frame_records(RecordBlock(block.data, block.offsets, block.lengths))
        except BuildError as error:  # a record is too long
            raise self._fault(chunk.labels[error.details["record"]], error) from error

    def _fault(self, label: str, error: Exception) -> RegistryError:
        """The error for the example with key ``label``, which cannot be encoded."""
        ours = error if isinstance(error, RegistryError) else None
        problem = ours.message if ours else f"encoding failed: {text_of(error)}"
        kind = FeatureError if isinstance(error, FeatureError) else BuildError
        traced = {} if ours else {"traceback": author_traceback(error)}  # of a feature class of the author's
        return kind(
            f"split {self.split!r}, example with key {label}: {problem}",
            hint=ours.hint if ours else None,
            details={**(ours.details if ours else {}), **traced, "split": self.split, "key": label},
        )


def encode_examples(engine: Engine, codec: Codec, keyer: Keyer, items: Iterable[Any]) -> Iterator[KeyedFrames]:
    """Yield the records of ``items``, which are pairs (key, example), in order and in blocks.

    An example is encoded, or its arrays are copied, before the next one is drawn, because authors may write the next
    example into the same arrays. Holds at most a few chunks of about 1 MB for each process.

    Raises:
        FeatureError: an example does not match the features; names split and key.
        BuildError: an item is not a pair, a key is invalid, a feature failed with another exception, or a worker
            process died.
        DuplicateKeyError: two consecutive examples have the same key.
    """
    encoder = ChunkEncoder(codec, keyer.split)
    drawing = _Drawing()
    pieces = _pieces(engine, encoder, keyer, items, drawing)
    for chunk, frames in engine.run(pieces, doing="encoded examples", failure=BuildError):
        drawing.learn(frames)
        yield KeyedFrames(chunk.sort_keys, chunk.labels, frames)


def _pieces(
    engine: Engine, encoder: ChunkEncoder, keyer: Keyer, items: Iterable[Any], drawing: _Drawing
) -> Iterator[Piece[Chunk, Frames]]:
    """Draw ``items`` and divide them into chunks. An error is raised after the chunk of the examples before it."""
    keys: list[Any] = []
    examples: list[Any] = []
    failed: RegistryError | None = None
    source = iter(items)
    while failed is None:
        try:
            is_end = drawing.fill(keys, examples, source, keyer, here=engine.width == 1)
        except RegistryError as error:
            failed, is_end = error, True
        if keys:
            sort_keys, labels, bad_key = keyer.sort_keys(keys)
            if labels:
                piece = Piece(encoder, Chunk(sort_keys, labels, examples[: len(labels)]), num_items=len(labels))
                yield piece
            failed = bad_key or failed
            keys, examples = [], []
        if is_end:
            break
    if failed is not None:
        raise failed


class _Drawing:
    """Draws examples until a chunk is full: by number, by size, by time, or because it cannot wait."""

    def __init__(self) -> None:
        self._num_records = 0
        self._num_bytes = 0

    def learn(self, frames: Frames) -> None:
        """Take the size of encoded records into account: the example may be the path of a file that is encoded."""
        self._num_records += frames.num_records
        self._num_bytes += len(frames.data)

    def fill(self, keys: list[Any], examples: list[Any], source: Iterator[Any], keyer: Keyer, *, here: bool) -> bool:
        """Add the keys and examples of the next chunk; True if ``source`` has ended.

        Args:
            keys: receives the keys.
            examples: receives the examples, with copies of their arrays.
            source: pairs of key and example.
            keyer: makes the error for an item that is not a pair.
            here: whether the chunk is encoded by this thread before this method is called again.

        Raises:
            BuildError: an item is not a pair; the items before it were added.
        """
        mean_bytes = self._num_bytes // self._num_records if self._num_records else 0
        most = max(1, min(_CHUNK_EXAMPLES, _CHUNK_BYTES // max(1, mean_bytes)))
        clock, num_bytes, end = time.monotonic, 0, 0.0
        for item in source:
            if type(item) is tuple and len(item) == 2:
                key, example = item
            else:
                key, example = keyer.pair(item, position=keyer.position + len(keys))
            keys.append(key)
            owned, size = own(example)
            examples.append(owned)
            num_bytes += abs(size)
            if len(keys) >= most or num_bytes >= _CHUNK_BYTES:
                return False
            if size < 0 and here:  # the author may change it before the next example is drawn
                return False
            now = clock()
            end = end or now + _CHUNK_SECONDS
            if now > end:
                return False
        return True


def own(example: Any) -> tuple[Any, int]:
    """Return ``example`` with copies of its arrays, dicts and lists, and the estimated size of all values in bytes.

    The size is negative if a value has a type that is unknown here: only encoding it keeps it from being changed.

    >>> array = np.zeros(3)
    >>> owned, num_bytes = own({"a": array, "b": [1, "two"]})
    >>> array += 1
    >>> owned, num_bytes
    ({'a': array([0., 0., 0.]), 'b': [1, 'two']}, 59)
    """
    kind = type(example)
    if kind is not dict:
        return _own_value(example)
    owned, num_bytes, known = {}, 0, True
    for name, value in example.items():
        kind = type(value)
        if kind is np.ndarray and not value.dtype.hasobject:
            owned[name] = value.copy()
            num_bytes += value.nbytes
        elif kind is str or kind is bytes:
            owned[name] = value
            num_bytes += len(value)
        elif kind in _FIXED:
            owned[name] = value
            num_bytes += _VALUE_BYTES
        else:
            owned[name], size = own(value)
            known = known and size >= 0
            num_bytes += abs(size)
    return owned, num_bytes if known else -num_bytes - 1


def _own_value(value: Any) -> tuple[Any, int]:
    kind = type(value)
    if kind is str or kind is bytes:
        return value, len(value)
    if kind in _FIXED:
        return value, _VALUE_BYTES
    if kind is np.ndarray and not value.dtype.hasobject:
        return value.copy(), value.nbytes
    if kind is list or kind is tuple:
        found = [own(inner) for inner in value]
        num_bytes = sum(abs(size) for _, size in found)
        known = all(size >= 0 for _, size in found)
        return kind([inner for inner, _ in found]), num_bytes if known else -num_bytes - 1
    return value, -_VALUE_BYTES
