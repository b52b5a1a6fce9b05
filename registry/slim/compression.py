"""Is a file compressed as a reader was told? Its first bytes say; a contradiction is an error, not an empty stream."""

from __future__ import annotations

from typing import Any, Final

from registry.errors import CorruptRecordError, UsageError
from registry.tfrecord import is_gzip
from registry.tfrecord.faults import HEADER_BYTES
from registry.tfrecord.framing import is_header

_NUMBERED: Final = ("", "ZLIB", "GZIP")
"""TensorFlow's numbers for them."""

_STARTS: Final = (
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"PK\x03\x04", "zip"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\xff\x06\x00\x00sNaPpY", "snappy"),
    (b"PAR1", "Parquet"),
)
_TEXT: Final = "text"
_TEXT_BYTES: Final = frozenset(b"\t\n\r" + bytes(range(0x20, 0x7F)))
_LENGTH_BYTES: Final = 8
"""So many bytes are a record's length, and some of them are zero: no file of records is taken for text, cut off or not.
"""

_ZLIB_STARTS: Final = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


def compression_of(options: Any) -> str | None:
    """What ``options`` say of the compression: ``""``, ``"GZIP"``, ``"ZLIB"``, or None where they say nothing.

    Args:
        options: None, one of these texts, one of TensorFlow's numbers for them (0, 1, 2), or an object that has one of
            these as ``compression_type``.

    Raises:
        UsageError: anything else.
    """
    named: Any = getattr(options, "compression_type", options)
    if named is None and options is not None:
        named = ""  # TensorFlow's options of a file that is not compressed
    if isinstance(named, int) and not isinstance(named, bool) and 0 <= named < len(_NUMBERED):
        named = _NUMBERED[named]
    if named is None:
        return None
    if isinstance(named, str) and named in _NUMBERED:
        return named
    raise UsageError(
        f"unknown compression {named!r:.60}",
        hint="Give options='GZIP', options='' for none, or leave them out: gzip is known by its first bytes.",
    )


def check_compression(start: bytes, compression: str | None, *, path: str) -> None:
    """Refuse a file that begins with ``start`` where ``compression`` is another one, or none that can be read.

    Raises:
        CorruptRecordError: of its first record, with a hint that says what the file is.
    """
    if not start:
        return
    found = _find_out(start)
    if found in ("", "GZIP") and compression in (None, found):
        return
    if compression is not None and compression != found:
        told = f"options say {compression or 'no compression'}"
        problem = f"the file is {found}, and {told}" if found else f"the file is not compressed, and {told}"
    else:
        problem = f"the file is {found}, which is not read"
    error = CorruptRecordError(problem, path=path, record=0, offset=0)
    if found == _TEXT:
        error.hint = "slim.TextLineReader reads lines. If they are no records, leave the file out of the data sources."
    elif found in ("", "GZIP"):
        error.hint = "Leave reader_kwargs={'options': ...} out: gzip is known by its first bytes."
    else:
        error.hint = f"Write the file again, without compression or with gzip: {found} is not read."
    raise error


def _find_out(start: bytes) -> str:
    """What a file that begins so is: ``""`` where it is a TFRecord file, or a damaged one."""
    if is_gzip(start):
        return "GZIP"
    if not is_header(start):
        if start.startswith(_ZLIB_STARTS):
            return "ZLIB"
        for magic, name in _STARTS:
            if start.startswith(magic):
                return name
        if len(start) >= _LENGTH_BYTES and all(byte in _TEXT_BYTES for byte in start[:HEADER_BYTES]):
            return _TEXT
    return ""
