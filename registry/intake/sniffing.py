"""Recognizes the kind of a file without a known extension by its first bytes. ``detect`` calls it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from registry.errors import SourceError
from registry.intake.archives import ZIP_SIGNATURES
from registry.intake.decompression import decompress
from registry.intake.media_bytes import format_of
from registry.storage.faults import storage_errors

ARCHIVE: Final = "archive"
_HEAD_BYTES: Final = 2**16
_SIGNATURES: Final = (
    *((b"PAR1", "parquet"), (b"ARROW1", "arrow"), (b"\xff\xff\xff\xff", "arrow"), (b"\x93NUMPY", "arrays")),
    *((signature, ARCHIVE) for signature in ZIP_SIGNATURES),
)
_KIND_OF_FORMAT: Final = {
    **dict.fromkeys(("PNG", "JPEG", "GIF", "WebP", "TIFF"), "images"),
    **dict.fromkeys(("WAV", "FLAC", "Ogg", "MP3", "AIFF"), "audio"),
    **dict.fromkeys(("AVI", "Matroska", "FLV"), "videos"),
}
_TAR_MAGIC: Final = slice(257, 262)


def sniff_kind(path: Path) -> str | None:
    """The kind of a file: one of ``KINDS``, ``ARCHIVE``, or None if its first bytes do not show it."""
    with storage_errors("read", str(path)), path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        pieces = decompress(file.read, head, size=path.stat().st_size, name=path.name)
        if pieces is not None:
            head = _read_head(pieces)
            return ARCHIVE if head[_TAR_MAGIC] == b"ustar" else _kind_of_text(head)
    if head[_TAR_MAGIC] == b"ustar":
        return ARCHIVE
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            return kind
    found = format_of(head)
    return _kind_of_text(head) if found is None else _KIND_OF_FORMAT.get(found)


def _read_head(read: Callable[[int], bytes]) -> bytes:
    head = b""
    try:
        while len(head) < _HEAD_BYTES and (piece := read(_HEAD_BYTES)):
            head += piece
    except SourceError:  # the reader of the file reports it
        pass
    return head[:_HEAD_BYTES]


def _kind_of_text(head: bytes) -> str | None:
    """CSV if the first two lines have the same number of the same separator, JSON if a bracket comes first."""
    text = head.decode("utf-8", "ignore").lstrip("\ufeff")
    if "\0" in text or len(text.encode()) < len(head) - 8:
        return None
    if text.lstrip()[:1] in ("{", "["):
        return "json"
    lines = text.splitlines()[:2]
    if len(lines) == 2 and any(lines[0].count(mark) == lines[1].count(mark) > 0 for mark in ",\t;|"):
        return "csv"
    return None
