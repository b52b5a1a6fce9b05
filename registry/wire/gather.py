"""Copies the bytes at, or to, many positions of a buffer at once, in pieces of equal or different sizes.

A piece of ``size`` bytes is an item of a ``void`` array whose items start at every byte of the buffer. So numpy's
indexing copies each piece once, at the speed of memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from registry.errors import UsageError
from registry.lazy import np

if TYPE_CHECKING:
    import numpy.typing as npt

Octets: TypeAlias = "npt.NDArray[np.uint8]"
"""A 1-d array of bytes, e.g. of a mapped file."""

Places: TypeAlias = "npt.NDArray[np.int64]"
"""A 1-d array of positions in a buffer, indices in a block, sizes or counts."""

_FEW_BYTES: Final = 256
_MOST_EXCESS: Final = 4
_MOST_WINDOW: Final = 8192
"""Pieces of different sizes are copied in windows of the largest size, of which the next piece overwrites the excess.
If this is too much more than their mean size, or they are larger than that, they are copied one by one (measured)."""

SMALL_TEXT: Final = 256
"""Texts of different sizes are taken together by size if they have at most this mean size in bytes, otherwise one by
one (measured)."""

_CHUNK_BYTES: Final = 2**19
_PIECE_BYTES: Final = 64
"""The minimum size of a piece, so that windows of many small pieces take little memory."""

_WINDOW_BYTES: Final = 128
_MOST_WINDOWS: Final = 4
"""Pieces of different sizes are written in windows of 128 bytes; those of more than 4 windows one by one (measured)."""


def check_pieces(data: Octets, offsets: Places, lengths: Places) -> None:
    """Check the arguments of ``BlockDecoder.decode``.

    Raises:
        UsageError: a piece is outside of ``data``, or an array has another shape or dtype.
    """
    if data.ndim != 1 or data.dtype != np.uint8 or not data.flags.c_contiguous:
        raise UsageError("a buffer of records must be a contiguous 1-d array of uint8")
    if offsets.ndim != 1 or offsets.shape != lengths.shape or {offsets.dtype, lengths.dtype} != {np.dtype(np.int64)}:
        raise UsageError("offsets and lengths must be 1-d arrays of int64 with one number for each record")
    if offsets.size and (
        min(int(offsets.min()), int(lengths.min())) < 0
        or int(lengths.max()) > data.size
        or int((offsets + lengths).max()) > data.size
    ):
        raise UsageError(f"a record is outside of the buffer, which has {data.size} bytes")


def constant_step(places: Places) -> int | None:
    """The distance between neighbouring places if it is positive and the same for all; otherwise, or for one, None."""
    if places.size < 2:
        return None
    step = int(places[1]) - int(places[0])
    if step <= 0 or int(places[-1]) - int(places[0]) != step * (places.size - 1):
        return None
    return step if bool((places[1:] - places[:-1] == step).all()) else None


def take(data: Octets, places: Places, size: int) -> npt.NDArray[np.void]:
    """The ``size`` bytes at each of ``places``, as items of ``void``.

    If the places have a constant step, it is a view of ``data``, read-only if ``data`` is; otherwise a contiguous copy.
    """
    kind = np.dtype(f"V{size}")
    if not places.size or not size:
        return np.empty(places.size, kind)
    step = constant_step(places)
    if step is not None:
        return np.ndarray(places.size, kind, buffer=data, offset=int(places[0]), strides=(step,))
    return _every(data, kind)[places]


def as_rows(pieces: npt.NDArray[np.void], dtype: Any) -> npt.NDArray[Any]:
    """A view of ``pieces`` as rows of values of ``dtype``, of shape (number of pieces, values in each)."""
    width = pieces.dtype.itemsize // np.dtype(dtype).itemsize
    if not width:
        return np.empty((pieces.size, 0), dtype)
    rows: npt.NDArray[Any] = pieces.view([("row", dtype, (width,))])["row"]
    return rows


def take_windows(data: Octets, places: Places, size: int) -> npt.NDArray[np.void]:
    """The ``size`` bytes from each of ``places`` on, as items of ``void``; bytes beyond ``data`` are zero."""
    kind = np.dtype((np.void, size))
    last = data.size - size
    if not places.size or int(places.max()) <= last:
        return _every(data, kind)[places]
    late = np.flatnonzero(places > last)
    result = np.zeros(places.size, kind) if last < 0 else _every(data, kind)[np.minimum(places, last)]
    tail = np.zeros(2 * size, np.uint8)
    first = max(0, last)
    tail[: data.size - first] = data[first:]
    result[late] = _every(tail, kind)[places[late] - first]
    return result


def take_ragged(data: Octets, places: Places, counts: Places, unit: int = 1) -> Octets:
    """``count * unit`` bytes from each of ``places`` on, one piece after the other, in a new array."""
    sizes = counts * unit if unit > 1 else counts
    ends = sizes.cumsum()
    total = int(ends[-1]) if ends.size else 0
    taken = np.empty(total + spare(sizes), np.uint8)
    put_in_order(taken, ends - sizes, data, places, sizes)
    return taken[:total]


def spare(sizes: Places) -> int:
    """The number of bytes that ``put_in_order`` needs after the last piece."""
    return min(int(sizes.max(initial=0)), _MOST_WINDOW)


def put_in_order(data: Octets, places: Places, source: Octets, starts: Places, sizes: Places) -> None:
    """Write each ``source[start : start + size]`` to its place in ``data``; places ascend, and pieces do not overlap.

    Bytes between pieces, and ``spare(sizes)`` bytes after the last, are also overwritten.
    """
    for first, last in chunks_of((sizes + _PIECE_BYTES).cumsum(), _CHUNK_BYTES):
        some = sizes[first:last]
        longest, mean = int(some.max()), int(some.sum()) // (last - first)
        if longest <= min(_MOST_WINDOW, max(_FEW_BYTES, _MOST_EXCESS * mean)):
            if longest:
                put(data, places[first:last], take_windows(source, starts[first:last], longest))
            continue
        written, read = data.data, source.data
        pieces = zip(places[first:last].tolist(), starts[first:last].tolist(), some.tolist(), strict=True)
        for place, start, size in pieces:
            written[place : place + size] = read[start : start + size]


def put(data: Octets, places: Places, pieces: npt.NDArray[np.void]) -> None:
    """Write each piece to its place in ``data``, in order; a single piece is written to all places."""
    _every(data, pieces.dtype)[places] = pieces


def put_ragged(data: Octets, places: Places, source: Octets, starts: Places, sizes: int | Places) -> None:
    """Write each ``source[start : start + size]`` to its place in ``data``.

    If the sizes differ, up to ``overrun(sizes)`` bytes after each piece are also overwritten.
    """
    if isinstance(sizes, int):
        if sizes:
            put(data, places, take(source, starts, sizes))
        return
    longest = int(sizes.max(initial=0))
    if longest > _MOST_WINDOWS * _WINDOW_BYTES:
        large = np.flatnonzero(sizes > _MOST_WINDOWS * _WINDOW_BYTES)
        some = (each[large].tolist() for each in (places, starts, sizes))
        written, read = data.data, source.data
        for place, start, size in zip(*some, strict=True):
            written[place : place + size] = read[start : start + size]
        left = np.flatnonzero(sizes <= _MOST_WINDOWS * _WINDOW_BYTES)
        places, starts, sizes = places[left], starts[left], sizes[left]
        longest = int(sizes.max(initial=0))
    window = min(longest, _WINDOW_BYTES)
    for done in range(0, longest, _WINDOW_BYTES):
        if done:
            left = np.flatnonzero(sizes > done)
            places, starts, sizes = places[left], starts[left], sizes[left]
        put(data, places + done, take_windows(source, starts + done, window))


def overrun(sizes: int | Places, window: int | None = None) -> int:
    """The most bytes that are written after a piece, if pieces of these sizes are written in windows of equal size."""
    if isinstance(sizes, int):
        return 0
    return min(int(sizes.max(initial=0)), _WINDOW_BYTES) if window is None else window


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
    """Yield ``view[start : start + size]`` for each start and size."""
    return map(view.__getitem__, map(slice, starts.tolist(), (starts + sizes).tolist()))


def chunks_of(ends: Places, most: int) -> Iterator[tuple[int, int]]:
    """Divide rows into chunks of consecutive rows of about ``most`` units each; ``ends`` has where each row ends."""
    if not ends.size:
        return iter(())
    cuts = ends.searchsorted(np.arange(most, int(ends[-1]), most), "right").tolist()
    return pairwise(sorted({0, *cuts, ends.size}))


def order_words(words: npt.NDArray[np.uint64]) -> Places:
    """Return the stable order of numbers of 64 bits. For hashes, it takes a third of the time of ``argsort``.

    A radix sort orders their top 16 bits, and a merge sort the rest; it is fast for numbers that are nearly in order.

    >>> order_words(np.array([2**63, 7, 2**63 - 1, 7], np.uint64)).tolist()
    [1, 3, 2, 0]
    """
    order: Places = np.argsort((words >> np.uint64(48)).astype(np.uint16), kind="stable")
    return order[np.argsort(words[order], kind="stable")]


def constant(numbers: Places) -> int | None:
    """The number that all of ``numbers`` equal, or None if they differ or are empty."""
    if not numbers.size:
        return None
    first: int = numbers.item(0)
    return first if np.count_nonzero(numbers == first) == numbers.size else None  # ``all`` takes twice as long


def _every(data: Octets, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """A view of ``data`` as items of ``kind``, one starting at each byte."""
    return np.ndarray(max(0, data.size - kind.itemsize + 1), kind, buffer=data, strides=(1,))
