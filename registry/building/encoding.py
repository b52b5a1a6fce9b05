"""Encodes the examples of a split in chunks that an engine runs. Every engine gives the same records in the same order.

``build`` calls ``encode_examples`` between ``generation`` (keyed examples) and ``sorter`` (entries).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np

from registry.building.author_code import author_traceback, text_of
from registry.building.sorter import Entry
from registry.engines import Engine, Piece
from registry.errors import BuildError, FeatureError, RegistryError
from registry.features import Codec

_CHUNK_EXAMPLES: Final = 512
_CHUNK_BYTES: Final = 2**20


class KeyedExample(NamedTuple):
    """An example with its sort key, and its key as errors show it. Made by ``registry.building.generation``."""

    sort_key: bytes
    label: str
    example: Any


Chunk: TypeAlias = "tuple[Sequence[bytes], Sequence[str], Sequence[Any]]"
"""Sort keys, labels and examples as three sequences: pickling one tuple for each example takes five times as long."""


@dataclass(frozen=True, slots=True)
class ChunkEncoder:
    """The function of a piece of work: encodes a chunk of examples."""

    codec: Codec
    split: str

    def __call__(self, chunk: Chunk) -> list[bytes]:
        """Return the records, in order."""
        records = []
        for label, example in zip(chunk[1], chunk[2], strict=True):
            try:
                records.append(self.codec.encode(example))
            except Exception as error:
                ours = error if isinstance(error, RegistryError) else None
                problem = ours.message if ours else f"encoding failed: {text_of(error)}"
                kind = FeatureError if isinstance(error, FeatureError) else BuildError
                traced = {} if ours else {"traceback": author_traceback(error)}  # of a feature class of the author's
                raise kind(
                    f"split {self.split!r}, example with key {label}: {problem}",
                    hint=ours.hint if ours else None,
                    details={**(ours.details if ours else {}), **traced, "split": self.split, "key": label},
                ) from error
        return records


def encode_examples(engine: Engine, codec: Codec, split: str, examples: Iterable[KeyedExample]) -> Iterator[Entry]:
    """Yield the entries of ``examples``, in order. Holds at most a few chunks of about 1 MB for each process.

    Raises:
        FeatureError: an example does not match the features; names split and key.
        BuildError: a feature failed with another exception, or a worker process died.
    """
    encoder = ChunkEncoder(codec, split)
    num_records = num_record_bytes = 0

    def pieces() -> Iterator[Piece[Chunk, list[bytes]]]:
        chunk: list[KeyedExample] = []
        num_bytes = 0
        failed: RegistryError | None = None
        try:
            for item in examples:
                chunk.append(item)
                if engine.width > 1:  # else encode now: the author may write the next example into the same array
                    mean_bytes = num_record_bytes // num_records if num_records else 0
                    num_bytes += max(_estimate_bytes(item.example), mean_bytes)
                    if len(chunk) < _CHUNK_EXAMPLES and num_bytes < _CHUNK_BYTES:
                        continue
                yield Piece(encoder, cast("Chunk", tuple(zip(*chunk, strict=True))))
                chunk, num_bytes = [], 0
        except RegistryError as error:  # raised after the examples before it are encoded
            failed = error
        if chunk:
            yield Piece(encoder, cast("Chunk", tuple(zip(*chunk, strict=True))))
        if failed is not None:
            raise failed

    for (sort_keys, labels, _), records in engine.run(pieces(), doing="encoded examples", failure=BuildError):
        num_records += len(records)
        num_record_bytes += sum(map(len, records))
        yield from map(Entry, sort_keys, labels, records)


def _estimate_bytes(value: object) -> int:
    """Estimate the memory of an example in bytes, to keep chunks of big examples short."""
    if isinstance(value, dict):  # a loop for speed: this runs for every example, in the process that feeds the workers
        total = 0
        for inner in value.values():
            total += inner.nbytes if type(inner) is np.ndarray else _estimate_bytes(inner)
        return total
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, list | tuple):
        return len(value) * (_estimate_bytes(value[0]) if value else 0)
    return 32
