"""Encodes the examples of a split in chunks that an engine runs. Every engine gives the same records in the same order.

``build`` calls ``encode_examples`` between ``generation`` (pairs of key and example) and ``sorter`` (blocks of frames).
With workers, ``example_runs`` draws the same chunks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from registry.building.author_code import author_traceback, text_of
from registry.building.keys import SortKeys
from registry.building.run_format import KeyedFrames
from registry.engines import Engine, Piece
from registry.errors import BuildError, FeatureError, RegistryError
from registry.features import Codec
from registry.features.example_table import ExampleTable, stack_bytes
from registry.tfrecord import Frames, RecordBlock, frame_records

if TYPE_CHECKING:
    from registry.building.generation import Keyer  # workers do not need builders

_CHUNK_EXAMPLES: Final = 512
_CHUNK_BYTES: Final = 2**20
_CHUNK_SECONDS: Final = 0.1
_VALUE_BYTES: Final = 32  # the size of a number or another small value

_FIXED: Final = frozenset(
    {type(None), bool, int, float, complex, *(set(np.sctypeDict.values()) - {np.void, np.object_})}
)
"""The types of immutable values."""

_TEXTS: Final = frozenset({str, bytes})
_PLAIN: Final = _FIXED | _TEXTS | {np.ndarray}


class Chunk(NamedTuple):
    """Examples that are encoded together. Three sequences: pickling a tuple for each example takes five times as long.

    Attributes:
        sort_keys: uint8 of shape (number of examples, 16).
        labels: the key of each example as errors show it.
        examples: the examples.
    """

    sort_keys: SortKeys
    labels: list[str]
    examples: ExampleTable | list[Any]


@dataclass(frozen=True, slots=True)
class ChunkEncoder:
    """The function of a piece of work: encodes a chunk of examples."""

    codec: Codec
    split: str
    where: str

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
        traced = {} if ours else {"traceback": author_traceback(error)}  # an error of the author's feature class
        return kind(
            f"{self.where}, example with key {label}: {problem}",
            hint=ours.hint if ours else None,
            details={**(ours.details if ours else {}), **traced, "split": self.split, "key": label},
        )


def encode_examples(
    engine: Engine, codec: Codec, keyer: Keyer, items: Iterable[Any], *, until_grown: bool = False
) -> Iterator[KeyedFrames]:
    """Yield the records of ``items``, which are pairs (key, example), in order and in blocks.

    An example is encoded, or its arrays are copied, before the next one is drawn, because authors may write the next
    example into the same arrays. Holds at most a few chunks of about 1 MB for each process.

    Args:
        engine: encodes chunks.
        codec: the codec of the examples.
        keyer: checks the keys.
        items: the pairs.
        until_grown: end as soon as the engine runs several pieces at the same time. ``items`` then holds the rest.

    Raises:
        FeatureError: an example does not match the features; names split and key.
        BuildError: an item is not a pair, a key is invalid, a feature failed with another exception, or a worker
            process died.
        DuplicateKeyError: two consecutive examples have the same key.
    """
    encoder = ChunkEncoder(codec, keyer.split, keyer.where)
    drawing = Drawing()

    def pieces() -> Iterator[Piece[Chunk, Frames]]:
        chunks = draw_chunks(engine, keyer, items, drawing)
        while not (until_grown and engine.width > 1):
            chunk = next(chunks, None)
            if chunk is None:
                return
            yield Piece(encoder, chunk, num_items=len(chunk.labels))

    for chunk, frames in engine.run(pieces(), doing="encoded examples", failure=BuildError):
        drawing.learn(frames.num_records, len(frames.data))
        yield KeyedFrames(chunk.sort_keys, chunk.labels, frames)


def draw_chunks(engine: Engine, keyer: Keyer, items: Iterable[Any], drawing: Drawing) -> Iterator[Chunk]:
    """Draw ``items`` and divide them into chunks. An error is raised after the chunk of the examples before it."""
    keys: list[Any] = []
    examples = CollectedExamples()
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
                yield Chunk(sort_keys, labels, examples.collected()[: len(labels)])
            failed = bad_key or failed
            keys, examples = [], CollectedExamples()
        if is_end:
            break
    if failed is not None:
        raise failed


class Drawing:
    """Draws examples until a chunk is full: by number, by size, by time, or because it cannot wait."""

    def __init__(self) -> None:
        self._num_records = 0
        self._num_bytes = 0

    def learn(self, num_records: int, num_bytes: int) -> None:
        """Take the size of encoded records into account: the example may be the path of a file that is encoded."""
        self._num_records += num_records
        self._num_bytes += num_bytes

    def fill(
        self, keys: list[Any], examples: CollectedExamples, source: Iterator[Any], keyer: Keyer, *, here: bool
    ) -> bool:
        """Add the keys and examples of the next chunk; True if ``source`` has ended.

        Args:
            keys: receives the keys.
            examples: receives the examples.
            source: pairs of key and example.
            keyer: makes the error for an item that is not a pair.
            here: whether this thread encodes the chunk before this method is called again.

        Raises:
            BuildError: an item is not a pair; the items before it were added.
        """
        mean_bytes = self._num_bytes // self._num_records if self._num_records else 0
        most = max(1, min(_CHUNK_EXAMPLES, _CHUNK_BYTES // max(1, mean_bytes)))
        clock, end, num_bytes, add = time.monotonic, 0.0, 0, examples.add
        for item in source:
            if type(item) is tuple and len(item) == 2:
                key, example = item
            else:
                key, example = keyer.pair(item, position=keyer.position + len(keys))
            keys.append(key.copy() if type(key) is np.ndarray else key)
            size = add(example)
            num_bytes += abs(size)
            if len(keys) >= most or num_bytes >= _CHUNK_BYTES:
                return False
            if size < 0 and here:  # the author may change the example before the next one is drawn
                return False
            now = clock()
            end = end or now + _CHUNK_SECONDS
            if now > end:
                return False
        return True


class CollectedExamples:
    """Collects examples with copies of their arrays, dicts and lists, because authors may use the same ones again.

    Examples of one form are collected as rows of values, whose columns are encoded together. The form is that of the
    first: names, types, and dtypes and shapes of arrays. From the first example of another form on, all are dicts.
    """

    def __init__(self) -> None:
        # The values of row after row in one list: a list for each row would keep the garbage collector busy.
        self._values: list[Any] = []
        self._num_rows = 0
        self._form: _Form | None = None
        self._each: list[Any] | None = None

    def add(self, example: Any) -> int:
        """Add an example and return its size in bytes as ``own`` estimates it."""
        form = self._form
        if form is None and self._each is None:
            form = self._form = _Form.of(example)
            if form is None:
                self._each = []
        if self._each is None and form is not None and type(example) is dict and len(example) == len(form.names):
            try:
                values = form.pick(example)
            except KeyError:
                values = []
            num_bytes = form.num_bytes
            if list(map(type, values)) == form.kinds:
                for place, dtype, shape in form.arrays:
                    array = values[place]
                    if array.shape != shape or array.dtype != dtype:
                        break
                    values[place] = array.tobytes()
                else:
                    for place in form.texts:
                        num_bytes += len(values[place])
                    self._values += values
                    self._num_rows += 1
                    return num_bytes
        if self._each is None:
            self._each = list(self.collected())
        owned, num_bytes = own(example)
        self._each.append(owned)
        return num_bytes

    def collected(self) -> ExampleTable | list[Any]:
        """The examples so far."""
        if self._each is not None:
            return self._each
        form = self._form
        if form is None:
            return []
        width = len(form.names)
        columns: list[Any] = [self._values[place::width] for place in range(width)]
        for place, dtype, shape in form.arrays:
            columns[place] = stack_bytes(columns[place], dtype, shape)
        return ExampleTable(self._num_rows, dict(zip(form.names, columns, strict=True)))


class _Form(NamedTuple):
    """The form of an example of arrays, texts and numbers: places are positions in ``names``."""

    names: list[Any]
    pick: Callable[[dict[Any, Any]], list[Any]]
    kinds: list[type]
    arrays: list[tuple[int, np.dtype[Any], tuple[int, ...]]]
    texts: list[int]
    num_bytes: int

    @classmethod
    def of(cls, example: Any) -> _Form | None:
        """The form of ``example``; None if it has values of other types, which are not collected as columns."""
        if type(example) is not dict or not example:
            return None
        names, values = list(example), list(example.values())
        kinds = list(map(type, values))
        arrays = [(place, value.dtype, value.shape) for place, value in enumerate(values) if type(value) is np.ndarray]
        if not _PLAIN.issuperset(kinds):
            return None
        if any(dtype.kind not in "biufc" or not dtype.isnative or not shape for _, dtype, shape in arrays):
            return None
        several = itemgetter(*names)
        return cls(
            names=names,
            pick=(lambda row: list(several(row))) if len(names) > 1 else (lambda row: [several(row)]),
            kinds=kinds,
            arrays=arrays,
            texts=[place for place, kind in enumerate(kinds) if kind in _TEXTS],
            num_bytes=sum(values[place].nbytes for place, *_ in arrays)
            + _VALUE_BYTES * sum(map(_FIXED.__contains__, kinds)),
        )


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
    if kind in _TEXTS:
        return example, len(example)
    if kind in _FIXED:
        return example, _VALUE_BYTES
    if kind is np.ndarray:
        return example.copy(), -example.nbytes - 1 if example.dtype.hasobject else example.nbytes
    if kind is dict:
        return _own_dict(example)
    if kind is not list and kind is not tuple:
        return example, -_VALUE_BYTES
    kinds = set(map(type, example))
    if kinds <= _FIXED:
        return kind(example), _VALUE_BYTES * len(example)
    if kinds <= _TEXTS:
        return kind(example), sum(map(len, example))
    result = [own(inner) for inner in example]
    num_bytes = sum(abs(size) for _, size in result)
    return kind([inner for inner, _ in result]), num_bytes if all(size >= 0 for _, size in result) else -num_bytes - 1


def _own_dict(example: dict[Any, Any]) -> tuple[dict[Any, Any], int]:
    owned, num_bytes, is_known = {}, 0, True
    for name, value in example.items():
        kind = type(value)
        if kind in _TEXTS:
            owned[name] = value
            num_bytes += len(value)
        elif kind in _FIXED:
            owned[name] = value
            num_bytes += _VALUE_BYTES
        else:
            owned[name], size = own(value)
            is_known = is_known and size >= 0
            num_bytes += abs(size)
    return owned, num_bytes if is_known else -num_bytes - 1
