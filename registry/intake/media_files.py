"""Opens folders of images, audio, videos or texts. Each file is a record, stored as its bytes or its text.

A WebP, GIF, BMP or TIFF of one frame becomes a PNG of the same pixels if an Image can hold all files.

The columns are the content, a ``label`` if folders are classes, or else the columns of metadata files. The key of a
record is the name of its file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from registry.errors import FeatureError, MissingExtraError, SourceError, StorageError
from registry.features import Audio, ClassLabel, Feature, Image, Text
from registry.features.audio import SoundError, measure_sound, read_sample_rate
from registry.intake.feature_text import Wish
from registry.intake.file_parts import account_for_source, in_folders, refuse_folder_columns
from registry.intake.file_rows import Convert, FilePart, decode_text, open_parts
from registry.intake.kinds import KINDS, sniff_kind
from registry.intake.media_bytes import (
    IMAGE_FAULTS,
    CheckMedia,
    bytes_of,
    common_picture,
    extension_of,
    is_decodable_sound,
    measure_picture,
)
from registry.intake.metadata_files import Metadata, is_metadata, read_metadata
from registry.intake.options import AddOptions
from registry.intake.source import PATH, Files, Source, root_of
from registry.intake.split_names import find_splits
from registry.model import DatasetMetadata
from registry.shards.arrow_values import import_pyarrow
from registry.splits import counted

_MOST_SOUNDS: Final = 20
"""The number of audio files that are opened to find the sample rate and the channels."""


def open_images(files: Files, options: AddOptions) -> Source:
    """Open a folder of images; see the module.

    If an Image can hold all of them, the column ``image`` is an Image, with the sizes on which all agree. Otherwise it
    has the bytes of the files: decoding would lose values or frames.

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


def open_texts(files: Files, options: AddOptions) -> Source:
    """Open text files in UTF-8; see the module. A byte order mark is removed, and newlines are kept.

    Raises:
        SourceError: there is no text file, or the names of splits are ambiguous.
    """
    return _open("text", "text", files, options)


def _open(kind: str, column: str, files: Files, options: AddOptions) -> Source:
    import_pyarrow()
    is_text = kind == "text"
    # Files without an extension are here only because their first bytes are those of media: see detect.
    extensions = KINDS[kind].extensions if is_text else ("", *KINDS[kind].extensions)
    names = [name for name in files.names if extension_of(name) in extensions]
    if not names and not is_text:  # so are files with another extension
        names = [name for name in files.names if sniff_kind(root_of(files.store) / name) == kind]
    metadata_names = [name for name in files.names if is_metadata(name)]
    if not names:
        raise SourceError(
            f"{files.location}: no {KINDS[kind].noun} among {len(files.names):,} files",
            hint=f"Names of {KINDS[kind].noun}s end with one of {' '.join(KINDS[kind].extensions)}",
            details={"location": files.location},
        )
    refuse_folder_columns(
        names,
        options.splits,
        hint="Rename the folders, such as cat instead of label=cat."
        if is_text
        else "Rename the folders, and write the values into a metadata.csv with a column file_name.",
    )
    splits = find_splits(names, options, folders_only=True)
    metadata = read_metadata(files, metadata_names, names, KINDS[kind].noun) if metadata_names else None
    if metadata is not None and column in metadata.table.column_names:
        raise SourceError(
            f"{metadata.files[0]} has a column {column!r}, which is the name of the column of the files",
            hint="Rename the column in the metadata.",
            details={"file": metadata.files[0], "column": column},
        )
    content, check, unfit = _describe(kind, files, names, options.wishes().get(column))
    hints: dict[str, Feature] = {column: content}
    label, reason = (None, "") if metadata is not None else find_labels(splits.files)
    if label is not None:
        hints["label"] = label
    has_path = options.stores_paths() and (metadata is None or PATH not in metadata.table.column_names)
    if has_path:
        hints[PATH] = Text()
    unused = iter([metadata.bad if metadata is not None else ()])

    def read(some: Sequence[str]) -> FilePart:
        return FilePart(
            store=files.store,
            names=some,
            column=column,
            is_text=is_text,
            convert=check,
            has_label=label is not None,
            has_path=has_path,
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
        summary=_summary(kind, names, reason, metadata, unfit),
        parts=parts,
        hints=hints if metadata is None else {**metadata.hints, **hints},
        is_text=metadata is not None and metadata.is_text,
        path_column=PATH if has_path else "",
        is_typed=metadata is None,
        files=account_for_source(files, splits, KINDS[kind].noun, metadata=metadata_names),
        origins=files.origins,
        split_reason=splits.reason,
        # As TFDS's ImageFolder.
        metadata=DatasetMetadata(supervised_keys=(column, "label") if kind == "images" and label is not None else None),
    )


def find_labels(splits: Mapping[str, Sequence[str]]) -> tuple[ClassLabel | None, str]:
    """The label of files, if folders are classes, and the reason, for people.

    Folders are classes if the files of each split are exactly one folder below the same folder, and a split has at
    least two of these folders. The names of all splits are sorted, by code points.

    Args:
        splits: the names of the files of each split, joined by ``/``.

    >>> label, reason = find_labels({"train": ["train/dog/1.png", "train/cat/1.png"], "test": ["test/cat/1.png"]})
    >>> label.names, reason
    (('cat', 'dog'), 'the names of 2 folders, sorted')
    >>> find_labels({"train": ["cat/1.png", "2.png"]})
    (None, 'no label: not every file is exactly one folder below the same folder')
    """
    names: set[str] = set()
    most = 0
    for files in splits.values():
        folders = {name.rpartition("/")[0] for name in files}
        if len({folder.rpartition("/")[0] for folder in folders}) > 1 or ("" in folders and len(folders) > 1):
            return None, "no label: not every file is exactly one folder below the same folder"
        names.update(folder.rpartition("/")[2] for folder in folders)
        most = max(most, len(folders))
    if most < 2:
        return None, "no label: no split has two folders"
    try:
        return ClassLabel(names=sorted(names)), f"the names of {len(names):,} folders, sorted"
    except FeatureError as error:  # such as a space at the end of a name
        return None, f"no label: {error.message}"


def _describe(kind: str, files: Files, names: Sequence[str], wish: Wish | None) -> tuple[Feature, Convert, str]:
    """The feature of the content unless ``wish`` decides, the check of each file, and why the feature is bytes."""
    if kind == "text":
        return Text(), decode_text, ""
    if kind == "images":
        before = None if wish is None else wish.feature
        is_requested = wish is not None and not wish.is_inferred
        picture, unfit = (None, "") if is_requested else _picture(files, names)
        if before is not None and not isinstance(before, Image):
            return picture or bytes_of("an image"), CheckMedia(), unfit
        check = CheckMedia(picture=before if picture is None else replace(picture, shape=(None, None, None)))
        return picture or before or bytes_of("an image"), check, unfit
    if kind == "audio":
        if all(map(is_decodable_sound, names)) and (sound := _sound(files, names)) is not None:
            return sound, CheckMedia(are_sounds=True, sample_rate=sound.sample_rate), ""
        return bytes_of("an audio"), CheckMedia(), "not all can be decoded here as sounds of one shape"
    return bytes_of("a video"), CheckMedia(), ""


def _picture(files: Files, names: Sequence[str]) -> tuple[Image | None, str]:
    """The Image of all files, by their headers; or None, and why it cannot hold them.

    Raises SourceError if some have 16 bits for each sample and others 8: another depth would change values.
    """
    root = str(root_of(files.store))
    by_depth: dict[int, tuple[str, Image]] = {}
    for name in names:
        if extension_of(name) == ".mpo":
            return None, f"{name}: it has several frames, and an Image has one"
        try:
            with open(f"{root}/{name}", "rb", buffering=0) as file:  # noqa: PTH123 (half the time of Path.open)
                measured = measure_picture(file)
        except MissingExtraError:
            return None, f"Pillow is needed to decode {name}"
        except FileNotFoundError:
            continue
        except IMAGE_FAULTS as error:
            return None, f"{name}: {error}"
        if measured is None:  # a row that cannot be used
            continue
        depth, shape = measured
        try:
            picture = Image(shape=shape, dtype=np.uint16 if depth == 16 else np.uint8)
        except FeatureError:  # the header of a damaged file has a size that no picture has
            continue
        first, common = by_depth.get(depth, (name, picture))
        by_depth[depth] = first, common_picture(common, picture)
    if len(by_depth) == 2:
        wide, narrow = by_depth[16][0], by_depth[8][0]
        raise SourceError(
            f"{wide} has 16 bits for each sample, and {narrow} has 8: one Image cannot hold both",
            hint="Convert them to one depth. To keep the files as they are: --feature image=bytes",
            details={"files": [wide, narrow]},
        )
    return next((picture for _, picture in by_depth.values()), Image(shape=(None, None, None))), ""


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


def _summary(kind: str, names: Sequence[str], label: str, metadata: Metadata | None, unfit: str) -> str:
    extensions = Counter(extension_of(name)[1:] for name in names)
    formats = ", ".join(sorted(extensions, key=lambda extension: (-extensions[extension], extension)))
    result = f"{counted(len(names), KINDS[kind].noun)} ({formats}){in_folders(names)}"
    if kind == "text":
        result = f"{counted(len(names), KINDS[kind].noun)}{in_folders(names)}, each of which is a record"
    if unfit:
        result += f", stored as bytes: {unfit}"
    if metadata is not None:
        return f"{result}; metadata from {counted(len(metadata.files), 'file')}{metadata.summary}"
    return f"{result}; {label if label.startswith('no label') else f'label: {label}'}"
