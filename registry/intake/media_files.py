"""Opens folders of images, audio or video. Each file is a record, stored as its bytes, which are never decoded.

The columns are the content, a ``label`` if folders are classes, or else the columns of metadata files. The key of a
record is the name of its file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from registry.errors import MissingExtraError, SourceError, StorageError
from registry.features import Audio, Feature, Image, Tensor
from registry.features.audio import SoundError, measure_sound, read_sample_rate
from registry.intake.accounting import account_for_source, count, in_folders
from registry.intake.file_rows import FilePart, open_parts
from registry.intake.folder_columns import refuse_folder_columns
from registry.intake.folder_labels import find_labels
from registry.intake.kinds import KINDS
from registry.intake.media_bytes import (
    PNG_HEADER_BYTES,
    CheckMedia,
    bytes_of,
    extension_of,
    format_of,
    is_decodable_sound,
    is_picture,
    is_wide_png,
)
from registry.intake.metadata_files import Metadata, is_metadata, read_metadata
from registry.intake.options import AddOptions
from registry.intake.sniffing import sniff_kind
from registry.intake.source import Files, Source, root_of
from registry.intake.split_names import find_splits
from registry.shards.arrow_values import import_pyarrow

_MOST_SOUNDS: Final = 20
"""The number of audio files that are opened to find the sample rate and the channels."""

_DECODED: Final = {
    "images": "the type Image is for folders in which all are PNG or JPEG",
    "audio": "not all can be decoded here as sounds of one shape",
}
"""Why a column of a kind whose files can be decoded has their bytes, for people."""


def open_images(files: Files, options: AddOptions) -> Source:
    """Open a folder of images; see the module.

    If all are PNG or JPEG by their names, the column ``image`` is an Image, otherwise the bytes of the files: they are
    stored as they are, because decoding would lose frames, colour profiles and tags.

    Raises:
        SourceError: there is no image, the names of splits are ambiguous, or metadata cannot be used.
    """
    return _open("images", "image", files, options)


def open_audio(files: Files, options: AddOptions) -> Source:
    """Open a folder of audio files; see the module.

    The column ``audio`` is an Audio if the files can be decoded here, otherwise the bytes of the files.

    Raises:
        SourceError: there is no audio file, the names of splits are ambiguous, or metadata cannot be used.
    """
    return _open("audio", "audio", files, options)


def open_videos(files: Files, options: AddOptions) -> Source:
    """Open a folder of videos; see the module. The column ``video`` has the bytes of the files.

    Raises:
        SourceError: there is no video, the names of splits are ambiguous, or metadata cannot be used.
    """
    return _open("videos", "video", files, options)


def _open(kind: str, column: str, files: Files, options: AddOptions) -> Source:
    import_pyarrow()
    # Files without an extension are here only because their first bytes are those of media: see detect.
    names = [name for name in files.names if extension_of(name) in ("", *KINDS[kind].extensions)]
    if not names:  # so are files with another extension
        names = [name for name in files.names if sniff_kind(root_of(files.store) / name) == kind]
    metadata_names = [name for name in files.names if is_metadata(name)]
    if not names:
        raise SourceError(
            f"{files.location}: no {KINDS[kind].noun[0]} among {len(files.names):,} files",
            hint=f"Names of {KINDS[kind].noun[1]} end with one of {' '.join(KINDS[kind].extensions)}",
            details={"location": files.location},
        )
    refuse_folder_columns(
        names,
        options.splits,
        hint="Rename the folders, and write the values into a metadata.csv with a column file_name.",
    )
    splits = find_splits(names, options.splits, folders_only=True)
    metadata = read_metadata(files, metadata_names, names, KINDS[kind].noun) if metadata_names else None
    if metadata is not None and column in metadata.table.column_names:
        raise SourceError(
            f"{metadata.files[0]} has a column {column!r}, which is the name of the column of the files",
            hint="Rename the column in the metadata.",
            details={"file": metadata.files[0], "column": column},
        )
    content, check = _describe(kind, files, names, is_requested=column in options.typed())
    hints = {column: content}
    label, reason = (None, "") if metadata is not None else find_labels(splits.files)
    if label is not None:
        hints["label"] = label
    unused = iter([metadata.bad if metadata is not None else ()])

    def read(some: Sequence[str]) -> FilePart:
        return FilePart(
            store=files.store,
            names=some,
            column=column,
            is_text=False,
            convert=check,
            has_label=label is not None,
            metadata=None if metadata is None else metadata.rows_of(some),
            bad=next(unused, ()),
        )

    usable = {
        split: some if metadata is None else [name for name in some if name in metadata.row_of]
        for split, some in splits.files.items()
    }
    parts = open_parts(usable, files, read)
    return Source(
        kind=kind,
        summary=_summary(kind, names, reason, metadata, hints[column]),
        parts=parts,
        hints=hints if metadata is None else {**metadata.hints, **hints},
        is_text=metadata is not None and metadata.is_text,
        is_typed=metadata is None,
        files=account_for_source(files, splits, KINDS[kind].noun[0], metadata=metadata_names),
        origins=files.origins,
        split_reason=splits.reason,
    )


def _describe(kind: str, files: Files, names: Sequence[str], *, is_requested: bool) -> tuple[Feature, CheckMedia]:
    """The feature of the content, unless the caller requests another, and the check of each file."""
    if kind == "images" and all(is_picture(name) or _has_picture(files, name) for name in names):
        is_wide = not is_requested and _are_wide(files, names)
        return Image(shape=(None, None, None), dtype=np.uint16 if is_wide else np.uint8), CheckMedia(are_pictures=True)
    if kind == "audio" and all(map(is_decodable_sound, names)) and (sound := _sound(files, names)) is not None:
        return sound, CheckMedia(are_sounds=True, sample_rate=sound.sample_rate)
    noun = {"images": "an image", "audio": "an audio", "videos": "a video"}[kind]
    return bytes_of(noun), CheckMedia()


def _are_wide(files: Files, names: Sequence[str]) -> bool:
    """Whether the images have 16 bits for each sample. An Image has one depth, and another would change values.

    Raises SourceError if some have 16 bits and others 8.
    """
    root = str(root_of(files.store))
    wide: str | None = None
    narrow: str | None = None
    for name in names:
        try:
            with open(f"{root}/{name}", "rb", buffering=0) as file:  # noqa: PTH123 (half the time of Path.open)
                start = file.read(PNG_HEADER_BYTES)
        except OSError:  # a row that cannot be used
            continue
        if is_wide_png(start):
            wide = wide or name
        elif format_of(start) in ("PNG", "JPEG"):
            narrow = narrow or name
        if wide and narrow:
            raise SourceError(
                f"{wide} has 16 bits for each sample, and {narrow} has 8: one Image cannot hold both",
                hint="Convert them to one depth. To keep the files as they are: --feature image=bytes",
                details={"files": [wide, narrow]},
            )
    return wide is not None


def _has_picture(files: Files, name: str) -> bool:
    if extension_of(name):
        return False
    with files.store.open(name) as file:
        return format_of(file.read(64)) in ("PNG", "JPEG")


def _sound(files: Files, names: Sequence[str]) -> Audio | None:
    """The feature of audio files like some of them; None if they cannot be decoded here."""
    rates: set[int] = set()
    channels: set[int] = set()
    step = -(-len(names) // _MOST_SOUNDS)
    for name in names[::step]:
        try:
            data = files.store.read_bytes(name)
            rates.add(read_sample_rate(data))
            if len(channels) < 2:
                channels.add(measure_sound(data, None)[1])
        except MissingExtraError:
            return None
        except (SoundError, StorageError):  # a row that cannot be used
            continue
    if not rates:
        return None
    shape = (None,) if channels == {1} else (None, max(channels))
    if (len(channels) > 1 and 1 not in channels) or len(channels) > 2:
        return None
    # Samples may be wider in other files: 32 bits hold them all.
    rate = rates.pop() if len(rates) == 1 else None
    return Audio(shape=shape, dtype="int32", sample_rate=rate, lazy_decode=True)


def _summary(kind: str, names: Sequence[str], label: str, metadata: Metadata | None, content: Feature) -> str:
    extensions = Counter(extension_of(name)[1:] for name in names)
    formats = ", ".join(sorted(extensions, key=lambda one: (-extensions[one], one)))
    found = f"{count(len(names), KINDS[kind].noun)} ({formats}){in_folders(names)}"
    if isinstance(content, Tensor) and not isinstance(content, Audio) and kind in _DECODED:
        found += f", stored as bytes: {_DECODED[kind]}"
    if metadata is not None:
        return f"{found}; metadata from {count(len(metadata.files), ('file', 'files'))}{metadata.summary}"
    return f"{found}; {label if label.startswith('no label') else f'label: {label}'}"
