"""Turns the key of an example into a sort key, and shows keys in errors.

Records are sorted by the hash of their key, as in TFDS 4.9: the hash is ``md5(salt || key)``, and the salt is the name
of the split. The order is therefore the same for every order of generation, machine and number of processes. Hashes are
16 bytes, big-endian, so that comparing the bytes compares the 128-bit numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import BuildError

Key: TypeAlias = str | int | bytes | np.integer[Any] | np.ndarray[Any, Any]
"""A key that an author may use: text, a whole number, bytes, or an array with one such element."""

SORT_KEY_BYTES: Final = 16
"""Length of a sort key: an md5 digest, or a number with ``_BIAS`` added, which makes it positive."""

SortKeys: TypeAlias = npt.NDArray[np.uint8]
"""The sort keys of a block of records: uint8 of shape (number of records, 16). They sort like their bytes."""

_BIAS: Final = 1 << (8 * SORT_KEY_BYTES - 1)
_md5: Callable[[bytes], Any] = partial(hashlib.md5, usedforsecurity=False)
with suppress(ImportError):  # some builds of Python leave it out
    # Python's own implementation hashes a key in half the time: setting up OpenSSL's takes longer than hashing.
    from _md5 import md5 as _md5  # type: ignore[import-not-found,no-redef]

LABEL_WIDTH: Final = 120


def plain_key(key: object) -> str | int | bytes:
    """Return ``key`` as plain text, number or bytes. NumPy scalars and arrays of one element become their value.

    >>> plain_key(np.int64(3)), plain_key(np.array(["a"])), plain_key(b"raw")
    (3, 'a', b'raw')

    Raises:
        BuildError: the key is something else. Booleans are refused as ambiguous: TFDS hashes True as the text "True",
            while True equals 1 in Python. NumPy's integers are accepted, which TFDS refuses.
    """
    if type(key) in (str, int, bytes):
        return key  # type: ignore[return-value]  # mypy does not narrow by `type(x) in`, which is the fast path here
    if isinstance(key, np.ndarray) and key.size == 1:
        key = key.item()
    problem = f"expected text, a whole number or bytes, found {type(key).__name__}"
    if isinstance(key, bool | np.bool_):
        problem = "a bool is ambiguous: it could mean 1 or 'True'"
    elif isinstance(key, int | np.integer):
        return int(key)
    elif isinstance(key, bytes):
        return bytes(key)
    elif isinstance(key, str):
        return str(key)
    raise BuildError(
        f"invalid key {label_of(key)}: {problem}",
        hint="Write yield key, example. The key is unique in its split, e.g. a file name or a row number.",
        details={"key": label_of(key)},
    )


def hash_key(salt: str | bytes, key: Key) -> bytes:
    r"""Return 16 bytes: the md5 of ``salt`` followed by ``key``.

    Text is encoded as UTF-8 with ``\`` replaced by ``/``, so that a path has the same hash on every system. Numbers are
    hashed as their decimal digits, so 1 and "1" are the same key.

    >>> hash_key("train", 0).hex()
    '9318f9213195ac5c50b1ddb3c7d5aacd'

    Raises:
        BuildError: the key is invalid (see ``plain_key``), or text that cannot be encoded as UTF-8.
    """
    salt_bytes = salt.encode() if isinstance(salt, str) else salt
    plain = plain_key(key)
    try:
        text = plain.replace("\\", "/") if isinstance(plain, str) else plain
        key_bytes = text if isinstance(text, bytes) else str(text).encode()
    except ValueError as error:  # a lone surrogate, or more digits than Python prints
        raise BuildError(
            f"invalid key {label_of(plain)}: it cannot be encoded as UTF-8",
            hint="Use the name as bytes: os.fsencode(name)",
            details={"key": label_of(plain)},
        ) from error
    digest: bytes = _md5(salt_bytes + key_bytes).digest()
    return digest


def hash_keys(salt: str | bytes, keys: Iterable[Key]) -> SortKeys:
    """Return the ``hash_key`` of each key, as uint8 of shape (number of keys, 16).

    >>> hash_keys("train", [0])[0].tobytes().hex()
    '9318f9213195ac5c50b1ddb3c7d5aacd'

    Raises:
        BuildError: a key is invalid (see ``hash_key``).
    """
    salt_bytes = salt.encode() if isinstance(salt, str) else salt
    return join_sort_keys([hash_key(salt_bytes, key) for key in keys])


def hash_texts(salt: str, texts: Iterable[str]) -> SortKeys:
    """Return the ``hash_key`` of keys that are all text, or numbers written as text.

    Raises:
        ValueError: a text cannot be encoded as UTF-8.
    """
    salt_bytes, given = salt.encode(), list(texts)
    result = "\n".join(given).replace("\\", "/").encode().split(b"\n")
    if len(result) != len(given):  # there are line feeds in the texts
        result = [text.replace("\\", "/").encode() for text in given]
    return join_sort_keys([_md5(salt_bytes + text).digest() for text in result])


def hash_contents(contents: Iterable[bytes]) -> SortKeys:
    """Return the md5 of each of ``contents``, as uint8 of shape (number of contents, 16).

    >>> hash_contents([b"train0"])[0].tobytes().hex()
    '9318f9213195ac5c50b1ddb3c7d5aacd'
    """
    return join_sort_keys([_md5(content).digest() for content in contents])


def join_sort_keys(sort_keys: Iterable[bytes]) -> SortKeys:
    """Return sort keys of 16 bytes each as uint8 of shape (number of keys, 16)."""
    return np.frombuffer(b"".join(sort_keys), np.uint8).reshape(-1, SORT_KEY_BYTES)


def number_key(number: int) -> bytes:
    """Return 16 bytes that sort like ``number``, for datasets that are not shuffled.

    >>> number_key(-5) < number_key(0) < number_key(300)
    True

    Raises:
        BuildError: the number is outside -2**127..2**127-1.
    """
    try:
        return (number + _BIAS).to_bytes(SORT_KEY_BYTES, "big")
    except OverflowError as error:
        raise BuildError(
            f"invalid key {label_of(number)}: without shuffling, a number must be in -2**127..2**127-1",
            details={"key": label_of(number)},
        ) from error


def label_of(key: object) -> str:
    """Return ``key`` as errors show it: its ``repr``, shortened in the middle if it is long.

    >>> label_of("a.png"), len(label_of("x" * 500))
    ("'a.png'", 120)
    """
    if isinstance(key, int) and abs(key).bit_length() > 4 * LABEL_WIDTH:  # Python refuses to print very long numbers
        return f"<a number of {key.bit_length()} bits>"
    try:
        text = repr(key)
    except Exception:  # noqa: BLE001 - author code
        text = f"<{type(key).__name__}>"
    return shorten(text, LABEL_WIDTH)


def shorten(text: str, width: int) -> str:
    """``text`` in at most ``width`` characters: its middle is left out.

    >>> shorten("part-00017-of-00100.csv", 12)
    'part-0…0.csv'
    """
    if len(text) <= width:
        return text
    half = (width - 1) // 2
    return f"{text[: width - 1 - half]}…{text[-half:]}"
