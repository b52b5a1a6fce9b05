"""How are two values that differ told to a person? In a few words, at the first place where they do.

What is printed always differs: of long texts the part around the difference, of arrays the first value that is another
one, of images that only their files tell apart the sha256 of the files.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.features import Ragged
from registry.features.content import content_bytes

_WIDTH: Final = 60
_FEW: Final = 8


def tell_apart(before: Any, after: Any) -> tuple[str, str]:
    """Two decoded values that differ, in words.

    >>> tell_apart(b"the cat sat", b"the cat sits")
    ("'the cat sat'", "'the cat sits'")
    >>> tell_apart(np.zeros((3, 3), np.uint8), np.eye(3, dtype=np.uint8))
    ('0', '1 at [0, 0]; 3 of 9 values differ')
    >>> tell_apart(None, b"null")
    ('null', "'null'")
    """
    if before is None or after is None:  # of an optional feature
        return _tell_whole(before), _tell_whole(after)
    if isinstance(before, bytes) and isinstance(after, bytes):
        return _tell_texts(before, after)
    if isinstance(before, Ragged) and isinstance(after, Ragged):
        return _tell_ragged(before, after)
    if isinstance(before, np.ndarray) and isinstance(after, np.ndarray):
        return _tell_arrays(before, after)
    return _or_digests((_short(before), _short(after)), content_bytes(before), content_bytes(after))


def tell_files(before: bytes, after: bytes) -> tuple[str, str]:
    """Two images that are compared by their files, or cannot be decoded here."""
    return _digest(before), _digest(after)


def _tell_whole(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return _cut(value, 0, as_text=True)
    return _listed(value) if isinstance(value, np.ndarray) else _short(value)


def _tell_texts(before: bytes, after: bytes) -> tuple[str, str]:
    place = next((i for i, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), None)
    first = min(len(before), len(after)) if place is None else place
    start = 0 if max(len(before), len(after)) <= _WIDTH else max(0, first - _WIDTH // 3)
    for _ in range(3):  # not inside a letter: its other bytes are at most three
        start -= bool(start) and before[start] & 0xC0 == 0x80
    told = _cut(before, start, as_text=True), _cut(after, start, as_text=True)
    # A byte that is no UTF-8, and the four letters that stand for it, look alike.
    return told if told[0] != told[1] else (_cut(before, start, as_text=False), _cut(after, start, as_text=False))


def _cut(text: bytes, start: int, *, as_text: bool) -> str:
    piece = text[start : start + _WIDTH]
    shown = repr(piece.decode("utf-8", "backslashreplace") if as_text else piece)
    return ("…" if start else "") + shown + ("…" if start + _WIDTH < len(text) else "")


def _tell_ragged(before: Ragged, after: Ragged) -> tuple[str, str]:
    if len(before) != len(after):
        return f"{len(before):,} rows", f"{len(after):,} rows"
    for index, pair in enumerate(zip(before, after, strict=True)):
        if content_bytes(pair[0]) != content_bytes(pair[1]):
            told = tell_apart(*pair)
            return told[0], f"{told[1]} (row {index:,})"
    return _short(before.to_list()), _short(after.to_list())


def _tell_arrays(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> tuple[str, str]:
    if before.shape != after.shape:
        return f"{_listed(before)} of shape {before.shape}", f"{_listed(after)} of shape {after.shape}"
    places = np.flatnonzero(_differs(before, after))
    if before.size <= _FEW and before.dtype != object:
        contents = content_bytes(before), content_bytes(after)
        return _or_digests((_short(before.tolist()), _short(after.tolist())), *contents)
    place = int(places[0])
    old, new = tell_apart(before.flat[place], after.flat[place])
    index = "[" + ", ".join(str(int(axis)) for axis in np.unravel_index(place, before.shape)) + "]"
    return old, f"{new} at {index}" + (f"; {len(places):,} of {before.size:,} values differ" if before.size > 1 else "")


def _differs(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which values, in C order, are not the same bits: NaN is equal to itself, and 0 is not -0."""
    if before.dtype == object:
        pairs = zip(before.flat, after.flat, strict=True)
        return np.array([content_bytes(one) != content_bytes(other) for one, other in pairs], bool)
    bits = [np.ascontiguousarray(side).view(np.uint8).reshape(-1, side.itemsize) for side in (before, after)]
    found: npt.NDArray[np.bool_] = (bits[0] != bits[1]).any(axis=1)
    return found


def _listed(array: npt.NDArray[Any]) -> str:
    return _short(_plain(array.tolist())) if array.size <= _FEW else str(array.dtype).replace("object", "text")


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _or_digests(told: tuple[str, str], before: bytes, after: bytes) -> tuple[str, str]:
    """``told``, with the bits where it is the same text for both: two NaN, or long lists that differ late."""
    if told[0] != told[1]:
        return told
    if len(before) <= _FEW + 1:
        return f"{told[0]} (bits {before[:0:-1].hex()})", f"{told[1]} (bits {after[:0:-1].hex()})"
    files = tell_files(before, after)
    return f"{told[0]} ({files[0]})", f"{told[1]} ({files[1]})"


def _digest(content: bytes) -> str:
    return f"sha256 {hashlib.sha256(content).hexdigest()[:12]}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
