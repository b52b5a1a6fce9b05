"""Copies the bytes at many places of a buffer at once, in pieces of equal or different sizes.

A piece of ``size`` bytes is one item of a ``void`` array whose items start at every byte of the buffer. Taking items at
some places copies each piece once, at the speed of memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import UsageError

Octets: TypeAlias = npt.NDArray[np.uint8]
"""Bytes, such as those of a mapped file."""

Places: TypeAlias = npt.NDArray[np.int64]
"""Places in a buffer or a block, sizes or counts."""

_MANY_UNITS: Final = 64
"""From this mean number of units on, pieces of many sizes are copied one by one; below, by units, as measured."""

SMALL_TEXT: Final = 256
"""Up to this mean size texts of many sizes are taken together by their size; above, one by one, as measured."""

_CHUNK_UNITS: Final = 2**14


def check_pieces(data: Octets, offsets: Places, lengths: Places) -> None:
    """Refuses pieces that do not lie in ``data``, and a buffer that is not plain bytes in one run.

    Raises:
        UsageError: as said.
    """
    if data.ndim != 1 or data.dtype != np.uint8 or not data.flags.c_contiguous:
        raise UsageError("a buffer of records is a contiguous 1-d array of uint8")
    if offsets.ndim != 1 or offsets.shape != lengths.shape or {offsets.dtype, lengths.dtype} != {np.dtype(np.int64)}:
        raise UsageError("offsets and lengths of records are 1-d arrays of int64, one of each for every record")
    if offsets.size and (
        min(int(offsets.min()), int(lengths.min())) < 0
        or int(lengths.max()) > data.size
        or int((offsets + lengths).max()) > data.size
    ):
        raise UsageError(f"a record does not lie in the {data.size} bytes that are given")


def constant_step(places: Places) -> int | None:
    """How far each place is from the one before, where that is the same, and positive, for all of two or more."""
    if places.size < 2:
        return None
    step = int(places[1]) - int(places[0])
    if step <= 0 or int(places[-1]) - int(places[0]) != step * (places.size - 1):
        return None
    return step if bool((places[1:] - places[:-1] == step).all()) else None


def take(data: Octets, places: Places, size: int) -> npt.NDArray[np.void]:
    """The ``size`` bytes at each of ``places``, as items of ``void``.

    Where the places have a constant step, a view of ``data``, read-only if that is; else a copy, in one run.
    """
    kind = np.dtype((np.void, size))
    if not places.size or not size:
        return np.empty(places.size, kind)
    step = constant_step(places)
    if step is not None:
        return np.ndarray(places.size, kind, buffer=data, offset=int(places[0]), strides=(step,))
    return _every(data, kind)[places]


def as_rows(pieces: npt.NDArray[np.void], dtype: Any) -> npt.NDArray[Any]:
    """A view of ``pieces`` as rows of values of ``dtype``, which fill them."""
    width = pieces.dtype.itemsize // np.dtype(dtype).itemsize
    if not width:
        return np.empty((pieces.size, 0), dtype)
    rows: npt.NDArray[Any] = pieces.view([("row", dtype, (width,))])["row"]
    return rows


def take_windows(data: Octets, places: Places, size: int) -> npt.NDArray[np.void]:
    """The ``size`` bytes from each of ``places`` on, as items of ``void``; zeros where ``data`` has come to its end."""
    kind = np.dtype((np.void, size))
    last = data.size - size
    if not places.size or int(places.max()) <= last:
        return _every(data, kind)[places]
    late = np.flatnonzero(places > last)
    found = np.zeros(places.size, kind) if last < 0 else _every(data, kind)[np.minimum(places, last)]
    tail = np.zeros(2 * size, np.uint8)
    first = max(0, last)
    tail[: data.size - first] = data[first:]
    found[late] = _every(tail, kind)[places[late] - first]
    return found


def take_ragged(data: Octets, places: Places, counts: Places, unit: int = 1) -> Octets:
    """As many times ``unit`` bytes as ``counts`` says from each of ``places`` on, all in one run; a new array."""
    ends = counts.cumsum()
    total = int(ends[-1]) if ends.size else 0
    if total > _MANY_UNITS * counts.size:
        stops = places + counts * unit
        pairs = zip(places.tolist(), stops.tolist(), strict=True)
        return np.concatenate([data[start:stop] for start, stop in pairs])
    taken = np.empty(total, (np.void, unit))
    units = _every(data, taken.dtype)
    for first, last in chunks_of(ends, _CHUNK_UNITS):
        start = int(ends[first] - counts[first])
        stop = int(ends[last - 1])
        at = np.repeat(places[first:last] - (ends[first:last] - counts[first:last]) * unit, counts[first:last])
        at += np.arange(start * unit, stop * unit, unit)
        taken[start:stop] = units[at]
    return taken.view(np.uint8)


def take_texts(data: Octets, starts: Places, sizes: Places) -> npt.NDArray[Any]:
    """``data[start : start + size]`` as ``bytes``, in an object array."""
    texts = np.empty(starts.size, object)
    if starts.size and (int(sizes.max()) > 2**15 or sizes.mean() > SMALL_TEXT):
        texts[:] = list(map(bytes, cut_views(data.data, starts, sizes)))
        return texts
    order = np.argsort(sizes.astype(np.int16), kind="stable")
    in_order = starts[order]
    taken: list[bytes] = []
    counts = np.bincount(sizes)
    for size in np.flatnonzero(counts).tolist():
        some = in_order[len(taken) : len(taken) + int(counts[size])]
        taken += take(data, some, size).tolist() if size else [b""] * some.size
    texts[order] = taken
    return texts


def cut_views(view: memoryview, starts: Places, sizes: Places) -> Iterable[memoryview]:
    """``view[start : start + size]`` for each, made when it is asked for."""
    return map(view.__getitem__, map(slice, starts.tolist(), (starts + sizes).tolist()))


def chunks_of(ends: Places, most: int) -> Iterator[tuple[int, int]]:
    """Cuts rows, which end at ``ends`` when laid in one run, into chunks of ``most`` and the rest of a row."""
    if not ends.size:
        return iter(())
    cuts = np.searchsorted(ends, np.arange(most, int(ends[-1]), most), side="right")
    return pairwise([0, *(cut for cut in np.unique(cuts).tolist() if 0 < cut < ends.size), ends.size])


def constant(numbers: Places) -> int | None:
    """The one number that all of one or more are."""
    if not numbers.size:
        return None
    first = int(numbers[0])
    return first if bool((numbers == first).all()) else None


def _every(data: Octets, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """The items of ``kind`` that start at each byte of ``data``."""
    return np.ndarray(max(0, data.size - kind.itemsize + 1), kind, buffer=data, strides=(1,))
