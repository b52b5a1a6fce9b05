"""How are many records encoded at once? Those that differ in their values alone are copies of one.

Two records are encoded, one of zeros and one of ones in every bit: they differ in the bytes that hold values, and in no
others. These bytes are then written into a copy of the first for each record. So the form of a record is known in one
place, the encoder. Integers of an int64_list differ in length, and have no such form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.kinds import STORED, Kind

_FEW_RUNS: Final = 32
"""Up to so many runs of values are copied run by run; of more, byte by byte, by a list of their places."""

Encode: TypeAlias = Callable[[Sequence[npt.NDArray[Any]]], bytes]
"""Encodes a record of the numbers of each of its bands."""


def copy_records(
    encode: Encode, kinds: Sequence[Kind], numbers: Sequence[npt.NDArray[Any]], order: Sequence[int]
) -> list[bytes]:
    """The records of which ``numbers`` has the numbers.

    Args:
        encode: encodes one of them.
        kinds: of each band: ``float`` or ``bytes``.
        numbers: of each band, of shape (records, ...).
        order: the bands in the order in which a record has them.
    """
    count = len(numbers[0])
    blank, full = (
        np.frombuffer(
            encode(
                [
                    np.full(band[0].size * STORED[kind].itemsize, byte, np.uint8)
                    .view(STORED[kind])
                    .reshape(band.shape[1:])
                    for kind, band in zip(kinds, numbers, strict=True)
                ]
            ),
            np.uint8,
        )
        for byte in (0, 255)
    )
    places = np.flatnonzero(blank != full)
    out = np.empty((count, len(blank)), np.uint8)
    out[:] = blank
    values = [_stored(numbers[which], kinds[which]) for which in order]
    runs = np.split(places, np.flatnonzero(np.diff(places) != 1) + 1) if places.size else []
    lengths = [len(run) for run in runs]
    if lengths != [own.shape[1] for own in values]:  # bands share a feature, or are cut into steps
        joined = np.concatenate(values, axis=1)
        values = np.split(joined, np.cumsum(lengths)[:-1], axis=1) if len(runs) <= _FEW_RUNS else [joined]
    if len(values) == len(runs):
        for run, own in zip(runs, values, strict=True):
            out[:, run[0] : run[-1] + 1] = own
    else:
        out[:, places] = values[0]
    size, content = len(blank), out.tobytes()
    return [content[place : place + size] for place in range(0, len(content), size)]


def _stored(numbers: npt.NDArray[Any], kind: Kind) -> npt.NDArray[np.uint8]:
    """The bytes of each record's numbers, of shape (records, bytes)."""
    with np.errstate(over="ignore"):  # as ``kinds.to_flat``
        stored = np.ascontiguousarray(numbers, STORED[kind].newbyteorder("<"))
    return stored.reshape(len(stored), -1).view(np.uint8)
