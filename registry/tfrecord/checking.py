"""Are these frames what their checksums say? Many at once, in arrays; the first bad one is found.

Where the frames lie comes from an index, which may be damaged, stale or a lie. So nothing of it is taken on trust:
each header must hold the length that is expected, with the right checksum, and each payload must fit its own.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from registry.errors import UsageError
from registry.tfrecord.block import Octets, Places
from registry.tfrecord.crc import crc32c
from registry.tfrecord.crc_algebra import joined_crc32c, mask, masked_length_crcs, run_crc32c
from registry.tfrecord.faults import FRAMING_BYTES, HEADER_BYTES, MAX_RECORD_BYTES

Verify: TypeAlias = Literal["record", "block", "off"]
"""How payloads are checked: each by itself, runs of one length in one pass, or not at all. Headers always are."""

_HEADER: Final = np.dtype([("length", "<u8"), ("crc", "<u4")])
_CRC: Final = np.dtype("<u4")
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
    if not frames.size:
        return None
    stride = _stride(frames)
    header = _gather(data, frames, _HEADER, stride)
    fixed = stride is not None and bool((lengths == lengths[0]).all())
    wanted_crc = masked_length_crcs(lengths[:1])[0] if fixed else masked_length_crcs(lengths)
    wrong = (header["length"] != lengths.astype(np.uint64)) | (header["crc"] != wanted_crc)
    wrong |= lengths > MAX_RECORD_BYTES
    bad_header = int(wrong.argmax()) if wrong.any() else None
    if verify == "off":
        return None if bad_header is None else FrameFault(bad_header, in_header=True)
    sound = slice(0, bad_header)
    bad_payload = _find_bad_payload(
        data, frames[sound], lengths[sound], verify=verify, stride=stride if fixed else None
    )
    if bad_payload is not None:
        return FrameFault(bad_payload, in_header=False)
    return None if bad_header is None else FrameFault(bad_header, in_header=True)


def _find_bad_payload(
    data: Octets, frames: Places, lengths: Places, *, verify: Verify, stride: int | None
) -> int | None:
    if not frames.size:
        return None
    stored = _gather(data, frames + HEADER_BYTES + lengths, _CRC, stride).astype(np.uint32, copy=False)
    view = data.data
    length = int(lengths[0])
    if verify == "block" and stride == length + FRAMING_BYTES and frames.size > 1 and length < _LONG:
        start = int(frames[0])
        if crc32c(view[start : start + stride * frames.size]) == run_crc32c(length, stored):
            return None
    starts = frames + HEADER_BYTES
    rest = np.arange(frames.size)
    if verify == "block":
        rest = _leave_sound_groups(data, starts, lengths, stored)
    spans = zip(starts[rest].tolist(), (starts + lengths)[rest].tolist(), strict=True)
    computed = np.array([crc32c(view[start:stop]) for start, stop in spans], np.uint32)
    wrong = mask(computed) != stored[rest]
    return int(rest[wrong.argmax()]) if wrong.any() else None


def _leave_sound_groups(data: Octets, starts: Places, lengths: Places, stored: npt.NDArray[np.uint32]) -> Places:
    """The places of the records that are not known to be sound, ascending, after large groups of one length were."""
    if lengths.size < _GROUP or int(lengths.max()) >= _LONG:
        return np.arange(lengths.size)
    open_ = np.ones(lengths.size, bool)
    for length in np.flatnonzero(np.bincount(lengths) >= _GROUP).tolist():
        group = np.flatnonzero(lengths == length)
        windows = np.ndarray(data.size - length + 1, f"V{max(length, 1)}", data, strides=(1,)) if length else None
        together = b"" if windows is None else windows[starts[group]].tobytes()
        open_[group] = crc32c(together) != joined_crc32c(length, stored[group])
    return np.flatnonzero(open_)


def _stride(frames: Places) -> int | None:
    """The distance between neighbours where it is the same for all, and not negative; 0 for a single frame."""
    if frames.size == 1:
        return 0
    stride = int(frames[1] - frames[0])
    return stride if stride > 0 and bool((frames[1:] - frames[:-1] == stride).all()) else None


def _gather(data: Octets, places: Places, dtype: np.dtype[Any], stride: int | None) -> npt.NDArray[Any]:
    """One ``dtype`` at each of ``places``, which need not be aligned."""
    if stride is not None:
        return np.ndarray(places.size, dtype, data, offset=int(places[0]), strides=(stride,))
    size = dtype.itemsize
    windows = np.ndarray(data.size - size + 1, f"V{size}", data, strides=(1,))
    return windows[places].view(dtype)
