"""The kinds of sources: the names and first bytes of their files, and their readers. ``detect`` chooses a kind.

To add a kind, write a module with an opener next to the others, and add a row to ``KINDS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Final

from registry.errors import SourceError
from registry.intake.archives import EXTENSIONS as ARCHIVES
from registry.intake.media_bytes import AUDIO, IMAGES, VIDEOS, extension_of, format_of
from registry.intake.options import AddOptions
from registry.intake.source import Files, Source
from registry.intake.text_files import COMPRESSIONS, decompress
from registry.storage.faults import storage_errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of source.

    Attributes:
        opener: the module in ``registry.intake``, and its function that opens ``Files`` with ``AddOptions``.
        extensions: the ends of their names, in lower case. Empty if other files decide; see ``detect``.
        noun: the word for a file of this kind in messages; the plural adds an s.
    """

    opener: str
    extensions: tuple[str, ...] = ()
    noun: str = "file"


def _with_compressed(*extensions: str) -> tuple[str, ...]:
    return (*extensions, *(extension + compression for compression in COMPRESSIONS for extension in extensions))


KINDS: Final[dict[str, Kind]] = {
    "csv": Kind(opener="csv_files:open_csv", extensions=_with_compressed(".csv", ".tsv"), noun="CSV file"),
    "json": Kind(
        opener="json_files:open_json", extensions=_with_compressed(".json", ".jsonl", ".ndjson"), noun="JSON file"
    ),
    "parquet": Kind(opener="arrow_files:open_parquet", extensions=(".parquet", ".pq"), noun="Parquet file"),
    "arrow": Kind(
        opener="arrow_files:open_arrow", extensions=(".arrow", ".feather", ".ipc", ".arrows"), noun="Arrow file"
    ),
    "images": Kind(opener="media_files:open_media", extensions=IMAGES, noun="image"),
    "audio": Kind(opener="media_files:open_media", extensions=AUDIO, noun="audio file"),
    "videos": Kind(opener="media_files:open_media", extensions=VIDEOS, noun="video"),
    "text": Kind(opener="media_files:open_media", extensions=(".txt", ".md"), noun="text file"),
    "lines": Kind(opener="line_files:open_lines", extensions=_with_compressed(".txt"), noun="text file"),
    "arrays": Kind(opener="array_files:open_arrays", extensions=(".npy", ".npz"), noun="array file"),
    "webdataset": Kind(opener="webdataset:open_webdataset", noun="WebDataset tar"),
    "hugging_face": Kind(opener="hugging_face_folders:open_hugging_face"),
    "croissant": Kind(opener="croissant_files:open_croissant"),
}


def open_kind(kind: str, files: Files, options: AddOptions) -> Source:
    """Open files with the reader of their kind.

    Raises:
        SourceError, UsageError, StorageError: see the opener.
    """
    module, _, name = KINDS[kind].opener.partition(":")
    source: Source = getattr(import_module(f"registry.intake.{module}"), name)(files, replace(options, kind=kind))
    return replace(source, origins=files.origins)


ARCHIVE: Final = "archive"
MEDIA: Final[tuple[str, ...]] = ("images", "audio", "videos")
_HEAD_BYTES: Final = 2**16
_KIND_OF_FORMAT: Final = {
    "Parquet": "parquet",
    "Arrow": "arrow",
    "NumPy": "arrays",
    "zip": ARCHIVE,
    **dict.fromkeys(("PNG", "JPEG", "GIF", "WebP", "TIFF"), "images"),
    **dict.fromkeys(("WAV", "FLAC", "Ogg", "MP3", "AIFF"), "audio"),
    **dict.fromkeys(("AVI", "Matroska", "FLV"), "videos"),
}
_TAR_MAGIC: Final = slice(257, 262)


_KIND_OF_EXTENSION: Final = {
    **{extension: kind for kind, those in KINDS.items() if kind != "lines" for extension in those.extensions},
    **dict.fromkeys(ARCHIVES, ARCHIVE),
}


def kind_of(name: str) -> str | None:
    """Return the kind of a file by its name: a key of ``KINDS``, ``ARCHIVE``, or None."""
    kind = _KIND_OF_EXTENSION.get(extension_of(name))
    if kind is not None:
        return kind
    stem, _, last = name.lower().rpartition(".")
    _, dot, inner = stem.rpartition(".")
    return _KIND_OF_EXTENSION.get(f".{inner}.{last}") if dot else None  # such as .csv.gz


def sniff_kind(path: Path) -> str | None:
    """Return the kind of a file by its first bytes: a key of ``KINDS``, ``ARCHIVE``, or None if they do not show it."""
    with storage_errors("read", str(path)), path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        pieces = decompress(file.read, head, size=path.stat().st_size, name=path.name)
        if pieces is not None:
            head = _read_head(pieces)
    if head[_TAR_MAGIC] == b"ustar":
        return ARCHIVE
    result = None if pieces is not None else format_of(head)
    return _kind_of_text(head) if result is None else _KIND_OF_FORMAT.get(result)


def _read_head(read: Callable[[int], bytes]) -> bytes:
    head = b""
    try:
        while len(head) < _HEAD_BYTES and (piece := read(_HEAD_BYTES)):
            head += piece
    except SourceError:  # the reader of the file reports it
        pass
    return head[:_HEAD_BYTES]


def _kind_of_text(head: bytes) -> str | None:
    """Recognize CSV by an equal number of separators in the first two lines, and JSON by a bracket at the start."""
    text = head.decode("utf-8", "ignore").lstrip("\ufeff")
    if "\0" in text or len(text.encode()) < len(head) - 8:
        return None
    if text.lstrip()[:1] in ("{", "["):
        return "json"
    lines = text.splitlines()[:2]
    if len(lines) == 2 and any(lines[0].count(mark) == lines[1].count(mark) > 0 for mark in ",\t;|"):
        return "csv"
    return None
