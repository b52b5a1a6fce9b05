"""Handles the frames of TFRecord files, many at once, with numpy.

``walk_frames`` finds their starts, ``find_fault`` checks them, and ``RecordBlock`` holds the records that readers
receive.

The starts may come from an index, which can be damaged, stale or forged, so they are not trusted: each header must
contain the expected length with the right checksum, and each payload must match its checksum.

CRC is linear: the checksum of a sequence follows from the checksums and lengths of its parts. So the checksum of a run
of frames is computed from the checksums that the frames store, and one pass over their bytes checks all of them.
"""

from __future__ import annotations

import math
import struct
from functools import cache, lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from registry.errors import UsageError
from registry.tfrecord.framing import FRAMING_BYTES, HEADER_BYTES, MASK_DELTA, MAX_RECORD_BYTES, crc32c, masked_crc32c

_FEW_BYTES: Final = 4096
_MIN_TOGETHER: Final = 16
_LONG_RECORD: Final = 4096
_FEW_LENGTHS: Final = 8
"""Records of equal length are copied by one call, if there are at most this number of different lengths."""

Octets = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]


class RecordBlock(NamedTuple):
    """``len(offsets)`` records, in order: record i is ``data[offsets[i] : offsets[i] + lengths[i]]``.

    Attributes:
        data: uint8, 1-d, contiguous; may be a read-only view of a mapped file with other records as well.
        offsets: int64, index in ``data`` of each payload's first byte.
        lengths: int64, length of each payload in bytes.
    """

    data: Octets
    offsets: Places
    lengths: Places

    @property
    def num_records(self) -> int:
        """Number of records."""
        return self.offsets.size

    @property
    def num_bytes(self) -> int:
        """Sum of the payloads' lengths."""
        return int(self.lengths.sum())

    def records(self) -> list[bytes]:
        """Each payload, copied."""
        lengths = self.lengths
        if lengths.size < _MIN_TOGETHER or int(lengths.max()) >= _LONG_RECORD:
            return [view.tobytes() for view in self.views()]
        counts = np.bincount(lengths)
        kinds = np.flatnonzero(counts)
        if kinds.size == 1 and kinds[0]:
            return self._of_length(int(kinds[0]), self.offsets)
        if kinds.size > _FEW_LENGTHS or not kinds[0]:
            # Slices of bytes cost less than views, which the garbage collector tracks.
            data, offsets = self.span()
            copied, stops = data.tobytes(), (offsets + lengths).tolist()
            return [copied[start:stop] for start, stop in zip(offsets.tolist(), stops, strict=True)]
        result = np.empty(lengths.size, object)
        for length in kinds.tolist():
            group = np.flatnonzero(lengths == length)
            result[group] = self._of_length(length, self.offsets[group])
        records: list[bytes] = result.tolist()
        return records

    def _of_length(self, length: int, offsets: Places) -> list[bytes]:
        windows = np.ndarray(self.data.size - length + 1, f"V{length}", self.data, strides=(1,))
        records: list[bytes] = windows[offsets].tolist()
        return records

    def views(self) -> list[memoryview]:
        """Each payload as a read-only view of ``data``, without a copy."""
        view = self.data.data.toreadonly()
        stops = (self.offsets + self.lengths).tolist()
        return [view[start:stop] for start, stop in zip(self.offsets.tolist(), stops, strict=True)]

    def span(self) -> tuple[Octets, Places]:
        """The bytes of all records, with few other bytes, and the start of each record in them."""
        first, stop = int(self.offsets.min()), int((self.offsets + self.lengths).max())
        if stop - first <= 2 * self.num_bytes + _FEW_BYTES:
            return self.data[first:stop], self.offsets - first
        joined = b"".join(self.views())
        return np.frombuffer(joined, np.uint8), np.cumsum(self.lengths) - self.lengths

    def take(self, places: Places) -> RecordBlock:
        """The records at ``places`` of this block, in that order."""
        return RecordBlock(self.data, self.offsets[places], self.lengths[places])


def join_blocks(blocks: list[RecordBlock]) -> RecordBlock:
    """Concatenate the records of ``blocks``; the bytes of several blocks are copied."""
    blocks = [block for block in blocks if block.num_records]
    if len(blocks) < 2:
        return blocks[0] if blocks else RecordBlock(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
    pieces, offsets, end = [], [], 0
    for block in blocks:
        piece, places = block.span()
        pieces.append(piece)
        offsets.append(places + end)
        end += piece.size
    lengths = np.concatenate([block.lengths for block in blocks])
    return RecordBlock(np.concatenate(pieces), np.concatenate(offsets), lengths)


Verify: TypeAlias = Literal["record", "block", "off"]
"""How payloads are checked: separately, runs of equal length in one pass, or not at all. Headers are always checked."""

_HEADER: Final = np.dtype([("length", "<u8"), ("crc", "<u4")])
_CRC: Final = np.dtype("<u4")
_HEADER_FORM: Final = struct.Struct("<QI")
_CRC_FORM: Final = struct.Struct("<I")
_MIN_VECTORIZED: Final = 4
"""Up to this number of records, a Python loop is faster than numpy."""

_MIN_GROUP: Final = 1024
"""From this number of records of equal length, copying them together for one checksum is faster than one for each."""

_LONG_PAYLOAD: Final = 8192
"""From this length in bytes, the cost of one call for each record is negligible."""


class FrameFault(NamedTuple):
    """The first damaged frame: its ``place`` among the frames that were checked, and whether its header is damaged."""

    place: int
    in_header: bool


def check_verify(verify: str) -> Verify:
    """Return ``verify`` if it is valid; raises UsageError otherwise."""
    if verify not in get_args(Verify):
        raise UsageError(
            f"unknown verify={verify!r}",
            hint="'record' checks each record separately, 'block' many in one pass, and 'off' trusts the disk.",
        )
    return verify  # type: ignore[return-value]  # mypy does not narrow by get_args


def find_fault(data: Octets, frames: Places, lengths: Places, *, verify: Verify) -> FrameFault | None:
    """Find the first damaged frame of those at ``frames`` in ``data``, or None.

    ``lengths`` are the expected lengths of the payloads. All frames must be inside ``data``.
    """
    if frames.size <= _MIN_VECTORIZED:
        return find_fault_of_few(data.data, frames.tolist(), lengths.tolist(), verify=verify)
    if verify != "block":
        return _find_fault_of_each(data, frames, lengths, verify=verify)
    rest = _leave_sound_runs(data, frames, lengths)
    fault = _find_fault_of_each(data, frames[rest], lengths[rest], verify=verify) if rest.size else None
    return None if fault is None else fault._replace(place=int(rest[fault.place]))


def _leave_sound_runs(data: Octets, frames: Places, lengths: Places) -> Places:
    """Check runs of frames of equal length in one pass each, and return the places of all other frames, ascending.

    Frames of equal length have equal headers, so the checksum over whole frames follows from the length and the stored
    checksums of the payloads. If it matches, lengths and payloads are right.
    """
    everything = np.arange(frames.size)
    longest = int(lengths.max())
    if longest >= _LONG_PAYLOAD:
        return everything
    first, size = int(frames[0]), longest + FRAMING_BYTES
    if int(lengths.min()) == longest and bool((frames[1:] - frames[:-1] == size).all()):
        together = data[first : first + size * frames.size]
        return everything[:0] if _is_sound_run(together, longest) else everything
    unknown = np.ones(frames.size, bool)
    if frames.size >= _MIN_GROUP:
        for length in np.flatnonzero(np.bincount(lengths) >= _MIN_GROUP).tolist():
            group = np.flatnonzero(lengths == length)
            size = length + FRAMING_BYTES
            windows = np.ndarray(data.size - size + 1, f"V{size}", data, strides=(1,))
            unknown[group] = not _is_sound_run(windows[frames[group]].view(np.uint8), length)
    return np.flatnonzero(unknown)


def _is_sound_run(frames: Octets, length: int) -> bool:
    """Whether these bytes are consecutive undamaged frames with payloads of ``length`` bytes."""
    stored = frames.reshape(-1, length + FRAMING_BYTES)[:, -4:].copy().view("<u4").reshape(-1)
    return crc32c(frames.data) == run_crc32c(length, stored.astype(np.uint32, copy=False))


def _find_fault_of_each(data: Octets, frames: Places, lengths: Places, *, verify: Verify) -> FrameFault | None:
    header = _gather(data, frames, _HEADER)
    wrong = (header["length"] != lengths.astype(np.uint64)) | (header["crc"] != masked_length_crcs(lengths))
    wrong |= lengths > MAX_RECORD_BYTES
    bad_header = int(wrong.argmax()) if wrong.any() else None
    if verify != "off":
        starts, stops = frames[:bad_header] + HEADER_BYTES, (frames + lengths)[:bad_header] + HEADER_BYTES
        view = data.data
        spans = zip(starts.tolist(), stops.tolist(), strict=True)
        computed = np.array([crc32c(view[start:stop]) for start, stop in spans], np.uint32)
        wrong = mask(computed) != _gather(data, stops, _CRC)
        if wrong.any():
            return FrameFault(int(wrong.argmax()), in_header=False)
    return None if bad_header is None else FrameFault(bad_header, in_header=True)


def find_fault_of_few(view: memoryview, frames: list[int], lengths: list[int], *, verify: Verify) -> FrameFault | None:
    """``find_fault`` without numpy, which is faster for a few frames."""
    for place, (frame, length) in enumerate(zip(frames, lengths, strict=True)):
        found, length_crc = _HEADER_FORM.unpack_from(view, frame)
        if found != length or length > MAX_RECORD_BYTES or masked_crc32c(view[frame : frame + 8]) != length_crc:
            return FrameFault(place, in_header=True)
        start = frame + HEADER_BYTES
        (stored,) = _CRC_FORM.unpack_from(view, start + length)
        if verify != "off" and masked_crc32c(view[start : start + length]) != stored:
            return FrameFault(place, in_header=False)
    return None


def _gather(data: Octets, places: Places, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Read one value of ``dtype`` at each of ``places``, which need not be aligned."""
    size = dtype.itemsize
    windows = np.ndarray(data.size - size + 1, f"V{size}", data, strides=(1,))
    return windows[places].view(dtype)


_LENGTH: Final = struct.Struct("<Q")
_MIN_ALIKE: Final = 64
"""Guessing that the next records have equal length is worth it from this number of records."""

_BEFORE_FIRST_GUESS: Final = 4 * _MIN_ALIKE
_BETWEEN_GUESSES: Final = 4096
"""Records that are walked one by one before the next guess; fewer before the first, for files of equal records."""

_MIN_IN_STEP: Final = 2048
_STEPS_FOR_RUN: Final = 32
_MOST_PLACES: Final = 16
"""From this number of records on, runs are walked in step; searching the start of a run takes as long as this number of
steps of another (measured). It is not worth it if there are too many places that may be a header, as in zeros."""


def walk_frames(data: Octets, start: int, *, limit: int, most: int) -> Places:
    """Find the starts of at most ``most`` frames of ``data`` from ``start`` on, and the end of the last one.

    It stops at a frame that would end after ``limit``. Checksums are not read: call ``find_fault`` with the result.
    """
    pieces: list[Places] = []
    position, left, guess = start, most, 0
    view = data.data
    while left:
        if guess:
            alike = _walk_alike(data, position, guess, limit=limit, most=left)
            guess = guess if alike.size > _MIN_ALIKE else 0
            if alike.size > 1:
                pieces.append(alike[:-1])
                left -= alike.size - 1
                position = int(alike[-1])
                continue
        asked = min(left, _BETWEEN_GUESSES if pieces else _BEFORE_FIRST_GUESS)
        starts, position = _walk_each(view, position, limit, asked)
        pieces.append(np.array(starts, np.int64))
        left -= len(starts)
        if len(starts) < asked:
            break
        guess = _common_stride(starts[-_MIN_ALIKE:])
        if not guess:
            in_step = _walk_in_step(data, position, pieces[-1], limit=limit, most=left)
            pieces.append(in_step[:-1])
            left -= in_step.size - 1
            position = int(in_step[-1])
    pieces.append(np.array([position], np.int64))
    return np.concatenate(pieces)


def _walk_each(view: memoryview, position: int, limit: int, most: int) -> tuple[list[int], int]:
    unpack, starts = _LENGTH.unpack_from, []
    last = limit - FRAMING_BYTES
    for _ in range(most):
        if position > last:
            break
        stop = position + unpack(view, position)[0] + FRAMING_BYTES
        if stop > limit:
            break
        starts.append(position)
        position = stop
    return starts, position


def _walk_in_step(data: Octets, start: int, before: Places, *, limit: int, most: int) -> Places:
    """Find starts as ``walk_frames`` does, along several runs of frames at the same time.

    The start of each run is searched: it looks like a header. Only frames that follow each other are returned, perhaps
    none. ``before`` are the starts of previous frames, whose sizes are typical.
    """
    mean = (start - int(before[0])) // before.size
    count = min(most, (limit - start) // mean)
    if count < _MIN_IN_STEP:
        return np.array([start])
    width = int(np.diff(before, append=start).max()) + HEADER_BYTES
    apart = mean * max(math.isqrt(count // _STEPS_FOR_RUN), 4 * width // mean)
    bases = np.arange(start + apart, min(start + count * mean, limit - width), apart)
    if bases.size < _STEPS_FOR_RUN:
        return np.array([start])
    windows = np.ndarray((bases.size, width), np.uint8, data, offset=int(bases[0]), strides=(apart, 1))
    is_zero = windows == 0
    is_zero = is_zero[:, 1:] & is_zero[:, :-1]
    is_zero = is_zero[:, 4:] & is_zero[:, 2:-2] & is_zero[:, :-4]  # the last six bytes of a length
    is_zero = is_zero[:, 2:-4]
    if np.count_nonzero(is_zero) > _MOST_PLACES * bases.size:
        return np.array([start])
    runs, places = np.divmod(np.flatnonzero(is_zero), is_zero.shape[1])
    places += bases[runs]
    header = _gather(data, places, _HEADER)
    is_header = header["crc"] == masked_length_crcs(header["length"].astype(np.int64))
    runs, firsts = np.unique(runs[is_header], return_index=True)
    heads = np.concatenate([[start], places[is_header][firsts]])
    ends, lengths = heads[1:], np.ndarray(data.size - 3, "<u4", data, strides=(1,))
    steps = [heads[:-1]]
    while (steps[-1] < ends).any() and len(steps) < 4 * apart // mean:
        here = np.minimum(steps[-1], limit - FRAMING_BYTES)
        steps.append(here + lengths[here] + FRAMING_BYTES)
    walked = np.stack(steps, axis=1)
    reaches = (walked == ends[:, None]).any(axis=1)  # a start may be bytes of a record that look like a header
    num_runs = ends.size if reaches.all() else int(reaches.argmin())
    walked = walked[:num_runs]
    starts = np.append(walked.take(np.flatnonzero(walked < ends[:num_runs, None])), heads[num_runs])[: most + 1]
    is_long = np.ndarray(data.size - 7, "<u4", data, offset=4, strides=(1,))[starts[:-1]] != 0  # 4 GiB or more: damage
    return starts[: int(is_long.argmax()) + 1] if is_long.any() else starts


def _walk_alike(data: Octets, start: int, stride: int, *, limit: int, most: int) -> Places:
    """The starts of consecutive frames of ``stride`` bytes, and the end of the last one."""
    count = min(most, (limit - start) // stride)
    if count:
        lengths = np.ndarray(count, "<u8", data, offset=start, strides=(stride,))
        other = lengths != stride - FRAMING_BYTES
        if other.any():
            count = int(other.argmax())
    return start + stride * np.arange(count + 1, dtype=np.int64)


def _common_stride(starts: list[int]) -> int:
    """The distance between neighbours if it is the same for 64 starts, else 0."""
    stride = starts[-1] - starts[-2] if len(starts) == _MIN_ALIKE else 0
    return stride if stride and all(map(stride.__eq__, map(int.__sub__, starts[1:], starts))) else 0


Crcs: TypeAlias = npt.NDArray[np.uint32]

_POLYNOMIAL: Final = 0x82F63B78
_ORDER: Final = 2**31 - 1
"""Appending this number of zero bytes changes no checksum: the polynomial is x + 1 times a primitive one."""

_ONES: Final = np.uint32(0xFFFFFFFF)
_MASK_DELTA: Final = np.uint32(MASK_DELTA)
_SHORT: Final = 4096
_JOINED: Final = 16
"""Checksums that are joined at once: their tables, of 64 KiB, fit a processor's cache (measured)."""

_TABLES: Final = np.arange(0, 4 * _JOINED * 256, 256)
"""Where the table of each byte of these checksums begins."""


def mask(crcs: Crcs) -> Crcs:
    """Mask checksums as TFRecord stores them."""
    return (crcs >> np.uint32(15) | crcs << np.uint32(17)) + _MASK_DELTA


def unmask(masked: Crcs) -> Crcs:
    """The inverse of ``mask``."""
    rotated = masked - _MASK_DELTA
    return rotated >> np.uint32(17) | rotated << np.uint32(15)


def masked_length_crcs(lengths: npt.NDArray[np.int64]) -> Crcs:
    """Compute the masked checksum of each length, as a frame's header stores it; lengths below 2**32.

    >>> hex(masked_length_crcs(np.array([0]))[0])
    '0x7980329'
    """
    if lengths.size and int(lengths.max()) < _SHORT:
        return _short_length_crcs()[lengths]
    return _work_out_length_crcs(lengths)


@cache
def _short_length_crcs() -> Crcs:
    return _work_out_length_crcs(np.arange(_SHORT))


def _work_out_length_crcs(lengths: npt.NDArray[np.int64]) -> Crcs:
    # The register starts with 32 ones, which the first four bytes absorb; the last four bytes are zero.
    return mask(_apply(_shift(8), lengths.astype(np.uint32) ^ _ONES) ^ _ONES)


def run_crc32c(length: int, stored: Crcs) -> int:
    """Compute the CRC32C of consecutive frames with payloads of ``length`` bytes.

    ``stored`` are the masked checksums of the payloads, as the frames store them; at least one.

    >>> from registry.tfrecord.framing import frame_record
    >>> run_crc32c(3, np.array([masked_crc32c(b"one"), masked_crc32c(b"two")], np.uint32))
    1650063472
    >>> crc32c(frame_record(b"one") + frame_record(b"two"))
    1650063472
    """
    # One frame has the checksum head ^ shift(crc, 4) ^ crc(the four bytes of stored). The last two are one shift
    # of both. Shifts commute, so it is applied once at the end, also to what is the same in every frame.
    joined = _fold(length + FRAMING_BYTES, unmask(stored) ^ stored ^ _constant_part(length))
    return int(_apply(_shift(4), joined)[0])


@lru_cache(maxsize=4096)
def _constant_part(length: int) -> Crcs:
    """The part of each frame's checksum that comes from its header and the initial ones of CRCs, shifted back by 4."""
    data = length.to_bytes(8, "little")
    header = data + masked_crc32c(data).to_bytes(4, "little")
    head = _apply(_shift(length + 4), np.array([crc32c(header)], np.uint32))
    return _apply(_shift(_ORDER - 4), head ^ ~_apply(_shift(4), np.array([_ONES])))


def _fold(size: int, crcs: Crcs) -> Crcs:
    """Combine the checksums of pieces of ``size`` bytes into one, by joining neighbours until one is left."""
    while crcs.size > 1:
        # Zeros before the first one change nothing.
        crcs = np.concatenate([np.zeros(-crcs.size % _JOINED, np.uint32), crcs])
        octets = crcs.astype("<u4", copy=False).view(np.uint8).reshape(-1, 4 * _JOINED)
        crcs = np.bitwise_xor.reduce(_joining_shifts(size).take(octets + _TABLES), axis=1)
        size *= _JOINED
    return crcs


@lru_cache(maxsize=128)
def _joining_shifts(size: int) -> Crcs:
    """The tables of the maps that append the pieces of ``size`` bytes after each of ``_JOINED`` pieces."""
    tables = [_shift(0)]
    while len(tables) < _JOINED:
        tables.append(_apply(_shift(size), tables[-1]))
    return np.concatenate(tables[::-1])


def _apply(table: Crcs, crcs: Crcs) -> Crcs:
    """Apply the linear map of ``table`` to each of ``crcs``."""
    octets = np.ascontiguousarray(crcs, "<u4").view(np.uint8).reshape(-1, 4)
    result: Crcs = (
        table[0:256][octets[:, 0]]
        ^ table[256:512][octets[:, 1]]
        ^ table[512:768][octets[:, 2]]
        ^ table[768:1024][octets[:, 3]]
    )
    return result


@lru_cache(maxsize=2048)
def _shift(num_bytes: int) -> Crcs:
    """The map of appending ``num_bytes`` zero bytes: four tables of 256, one for each byte of a checksum."""
    if num_bytes == 0:
        return (np.arange(256, dtype=np.uint32) << np.array([[0], [8], [16], [24]], np.uint32)).reshape(-1)
    if num_bytes == 1:
        register = _shift(0)
        for _ in range(8):
            register = register >> np.uint32(1) ^ np.where(register & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
        return register
    half = _shift(num_bytes // 2)
    doubled = _apply(half, half)
    return _apply(_shift(1), doubled) if num_bytes % 2 else doubled
