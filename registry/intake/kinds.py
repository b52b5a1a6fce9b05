"""The kinds of sources: what files of each look like, and where their reader is. ``detect`` chooses one.

To add a kind, write a module with an opener next to the others, and add a row to ``KINDS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Final, TypeAlias, cast

from registry.intake.decompression import COMPRESSIONS
from registry.intake.media_bytes import AUDIO, IMAGES, VIDEOS
from registry.intake.options import AddOptions
from registry.intake.source import Files, Source

Opener: TypeAlias = Callable[[Files, AddOptions], Source]
"""A function that opens the files of a kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of source.

    Attributes:
        opener: the module below ``registry.intake`` and the function that opens files of this kind.
        extensions: the ends of their names, in lower case. Empty if other files decide; see ``detect``.
        about: one line for people.
        noun: one file and several files of this kind, for people.
    """

    opener: str
    extensions: tuple[str, ...] = ()
    about: str
    noun: tuple[str, str] = ("file", "files")

    def open(self) -> Opener:
        """Import the opener."""
        module, _, name = self.opener.partition(":")
        return cast("Opener", getattr(import_module(f"registry.intake.{module}"), name))


def _with_compressed(*extensions: str) -> tuple[str, ...]:
    return (*extensions, *(one + compression for compression in COMPRESSIONS for one in extensions))


KINDS: Final[dict[str, Kind]] = {
    "csv": Kind(
        opener="csv_files:open_csv",
        extensions=_with_compressed(".csv", ".tsv"),
        about="tables as text, separated by commas, tabs, semicolons or bars; also compressed",
        noun=("CSV file", "CSV files"),
    ),
    "json": Kind(
        opener="json_files:open_json",
        extensions=_with_compressed(".json", ".jsonl", ".ndjson"),
        about="JSON: an object in each line, or a list of objects; also compressed",
        noun=("JSON file", "JSON files"),
    ),
    "parquet": Kind(
        opener="arrow_files:open_parquet",
        extensions=(".parquet", ".pq"),
        about="Parquet files",
        noun=("Parquet file", "Parquet files"),
    ),
    "arrow": Kind(
        opener="arrow_files:open_arrow",
        extensions=(".arrow", ".feather", ".ipc", ".arrows"),
        about="Arrow IPC files and streams",
        noun=("Arrow file", "Arrow files"),
    ),
    "images": Kind(
        opener="media_files:open_images",
        extensions=IMAGES,
        about="images, labelled by folder or by metadata.csv, .jsonl or .parquet",
        noun=("image", "images"),
    ),
    "audio": Kind(
        opener="media_files:open_audio",
        extensions=AUDIO,
        about="audio files, labelled like images",
        noun=("audio file", "audio files"),
    ),
    "videos": Kind(
        opener="media_files:open_videos",
        extensions=VIDEOS,
        about="video files, labelled like images; stored as bytes",
        noun=("video", "videos"),
    ),
    "text": Kind(
        opener="text_folders:open_text_files",
        extensions=(".txt", ".md"),
        about="text files in UTF-8, each of which is a record; labelled by folder",
        noun=("text file", "text files"),
    ),
    "arrays": Kind(
        opener="array_files:open_arrays",
        extensions=(".npy", ".npz"),
        about="arrays of NumPy, whose first axis is the record",
        noun=("array file", "array files"),
    ),
    "webdataset": Kind(
        opener="webdataset:open_webdataset",
        about="tars of samples: files with the same name up to the first dot are one record",
        noun=("WebDataset tar", "WebDataset tars"),
    ),
    "hugging_face": Kind(
        opener="hugging_face_card:open_hugging_face",
        about="a folder that save_to_disk wrote, or a repository whose dataset card names its files",
    ),
    "croissant": Kind(
        opener="croissant_files:open_croissant",
        about="a Croissant document (JSON-LD) next to the files that it describes",
    ),
}
