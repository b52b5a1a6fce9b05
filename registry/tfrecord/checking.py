"""Are these frames what their checksums say? Many at once, in arrays; the first bad one is found.

Where the frames lie comes from an index, which may be damaged, stale or a lie. So nothing of it is taken on trust:
each header must hold the length that is expected, with the right checksum, and each payload must fit its own.
"""

from __future__ import annotations

import struct
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from registry.errors import UsageError
from registry.tfrecord.block import Octets, Places
from registry.tfrecord.crc import crc32c, masked_crc32c
from registry.tfrecord.crc_algebra import mask, masked_length_crcs, run_crc32c
from registry.tfrecord.faults import FRAMING_BYTES, HEADER_BYTES, MAX_RECORD_BYTES

Verify: TypeAlias = Literal["record", "block", "off"]
"""How payloads are checked: each by itself, runs of one length in one pass, or not at all. Headers always are."""

_HEADER: Final = np.dtype([("length", "<u8"), ("crc", "<u4")])
_CRC: Final = np.dtype("<u4")
_HEADER_FORM: Final = struct.Struct("<QI")
_CRC_FORM: Final = struct.Struct("<I")
_FEW: Final = 4
"""Up to so many, arrays cost more than they save."""

_GROUP: Final = 1024
"""From this many records of one length on, to copy them together and take one checksum is faster than one for each."""

_LONG: Final = 8192
"""From this length on, a call for each record costs nothing beside its bytes."""


class FrameFault(NamedTuple):
    """The first frame that is not sound: its ``place`` among those checked, and whether its header is at fault."""

    place: int
    in_header: bool


def check_verify(verify: str) -> Verify:
    """``verify`` if it is a way of checking; UsageError otherwise."""
    if verify not in get_args(Verify):
        raise UsageError(
            f"unknown verify={verify!r}",
            hint="'record' checks each record by itself, 'block' many in one pass, and 'off' trusts the disk.",
        )
    return verify  # type: ignore[return-value]  # mypy does not narrow by get_args


def find_fault(data: Octets, frames: Places, lengths: Places, *, verify: Verify) -> FrameFault | None:
    """The first of the frames at ``frames`` in ``data`` that is not sound, or None.

    ``lengths`` are the lengths of the payloads that an index promises; all frames lie inside ``data``.
    """
    if frames.size <= _FEW:
        return _find_fault_of_few(data, frames.tolist(), lengths.tolist(), verify=verify)
    if verify != "block":
        return _find_fault_of_each(data, frames, lengths, verify=verify)
    rest = _leave_sound_runs(data, frames, lengths)
    fault = _find_fault_of_each(data, frames[rest], lengths[rest], verify=verify) if rest.size else None
    return None if fault is None else fault._replace(place=int(rest[fault.place]))


def _leave_sound_runs(data: Octets, frames: Places, lengths: Places) -> Places:
    """The places of the frames that are not known to be sound, ascending, after many of one length were.

    The checksum over whole frames is what their headers, which are the same for one length, and the stored checksums of
    the payloads say it must be: so one pass proves lengths and payloads.
    """
    everything = np.arange(frames.size)
    longest = int(lengths.max())
    if longest >= _LONG:
        return everything
    first, size = int(frames[0]), longest + FRAMING_BYTES
    if int(lengths.min()) == longest and bool((frames[1:] - frames[:-1] == size).all()):
        together = data[first : first + size * frames.size]
        return everything[:0] if _is_sound_run(together, longest) else everything
    unknown = np.ones(frames.size, bool)
    if frames.size >= _GROUP:
        for length in np.flatnonzero(np.bincount(lengths) >= _GROUP).tolist():
            group = np.flatnonzero(lengths == length)
            size = length + FRAMING_BYTES
            windows = np.ndarray(data.size - size + 1, f"V{size}", data, strides=(1,))
            unknown[group] = not _is_sound_run(windows[frames[group]].view(np.uint8), length)
    return np.flatnonzero(unknown)


def _is_sound_run(frames: Octets, length: int) -> bool:
    """Whether these bytes are sound frames of payloads of one ``length``, one after the other."""
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


def _find_fault_of_few(data: Octets, frames: list[int], lengths: list[int], *, verify: Verify) -> FrameFault | None:
    view = data.data
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
    """One ``dtype`` at each of ``places``, which need not be aligned."""
    size = dtype.itemsize
    windows = np.ndarray(data.size - size + 1, f"V{size}", data, strides=(1,))
    return windows[places].view(dtype)
