"""Where in its split does an example go? Keys become hashes, and the hashes decide the order.

Follows TFDS 4.9: the hash is ``md5(salt || key)``, the salt is the split's name, and records lie on disk in the order
of their hashes, so the order depends on the keys alone: not on the order of generation, the machine or the number of
processes. Hashes are 16 bytes, big-endian, so comparing the bytes compares the 128-bit numbers.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, TypeAlias

import numpy as np

from registry.errors import BuildError

Key: TypeAlias = "str | int | bytes | np.integer[Any] | np.ndarray[Any, Any]"
"""What an author may use as a key: text, a whole number, bytes, or an array of one of these with one element."""

SORT_KEY_BYTES: Final = 16
"""Length of every sort key: of an md5 digest, and of a number biased to be positive."""

_BIAS: Final = 1 << (8 * SORT_KEY_BYTES - 1)
_LABEL_WIDTH: Final = 120


def plain_key(key: object) -> str | int | bytes:
    """``key`` as plain text, number or bytes: numpy's scalars and arrays of one element stand for their value.

    >>> plain_key(np.int64(3)), plain_key(np.array(["a"])), plain_key(b"raw")
    (3, 'a', b'raw')

    Raises:
        BuildError: anything else. TFDS hashes True as the text "True", where everything else in Python takes it for 1,
            and refuses numpy's integers; here a bool is refused as ambiguous and numpy's integers count as numbers.
    """
    if type(key) in (str, int, bytes):
        return key  # type: ignore[return-value]  # mypy does not narrow by `type(x) in`, which is the fast path here
    if isinstance(key, np.ndarray) and key.size == 1:
        key = key.item()
    if isinstance(key, bool | np.bool_):
        problem = "a bool may mean 1 or 'True'"
    elif isinstance(key, int | np.integer):
        return int(key)
    elif isinstance(key, bytes):
        return bytes(key)
    elif isinstance(key, str):
        return str(key)
    else:
        problem = f"a key is text, a whole number or bytes, not {type(key).__name__}"
    raise BuildError(
        f"invalid key {label_of(key)}: {problem}",
        hint="Yield (key, example) with a key that is unique in its split, e.g. a file name or a row number.",
        details={"key": label_of(key)},
    )


def hash_key(salt: str | bytes, key: Key) -> bytes:
    r"""16 bytes: the md5 of ``salt`` followed by ``key``.

    Text is UTF-8 with ``\`` read as ``/``, so that a path gives one hash on every system; numbers are their decimal
    digits, so 1 and "1" are the same key.

    >>> hash_key("train", 0).hex()
    '9318f9213195ac5c50b1ddb3c7d5aacd'

    Raises:
        BuildError: no key (see ``plain_key``), or text that UTF-8 cannot hold.
    """
    salt_bytes = salt.encode() if isinstance(salt, str) else salt
    return hashlib.md5(salt_bytes + _key_bytes(plain_key(key)), usedforsecurity=False).digest()


def number_key(number: int) -> bytes:
    """16 bytes that sort as ``number`` does, from -2**127 to 2**127 - 1: for datasets that are not shuffled.

    >>> number_key(-5) < number_key(0) < number_key(300)
    True

    Raises:
        BuildError: the number lies outside.
    """
    try:
        return (number + _BIAS).to_bytes(SORT_KEY_BYTES, "big")
    except OverflowError as error:
        raise BuildError(
            f"invalid key {label_of(number)}: without shuffling a number lies in -2**127..2**127-1",
            details={"key": label_of(number)},
        ) from error


def label_of(key: object) -> str:
    """``key`` as it stands in an error: its ``repr``, cut in the middle where it is long.

    >>> label_of("a.png"), len(label_of("x" * 500))
    ("'a.png'", 120)
    """
    if isinstance(key, int) and abs(key).bit_length() > 4 * _LABEL_WIDTH:  # Python refuses to print very long numbers
        return f"<a number of {key.bit_length()} bits>"
    text = repr(key)
    if len(text) <= _LABEL_WIDTH:
        return text
    half = (_LABEL_WIDTH - 1) // 2
    return f"{text[: _LABEL_WIDTH - 1 - half]}…{text[-half:]}"


def _key_bytes(key: str | int | bytes) -> bytes:
    if isinstance(key, bytes):
        return key
    try:
        return (key.replace("\\", "/") if isinstance(key, str) else str(key)).encode()
    except ValueError as error:  # a lone surrogate, or more digits than Python prints
        raise BuildError(
            f"invalid key {label_of(key)}: it cannot be written as UTF-8 text",
            hint="Yield the raw name as bytes, e.g. os.fsencode(name).",
            details={"key": label_of(key)},
        ) from error
