"""Writes the records of a plan as image and sound files: a folder of images, or WebDataset's tars.

``plan_files`` decides which feature becomes a file, a class or a text; the other features are written as JSON, with the
values of ``export_tables.plain_rows``. Both writers write to a folder that the caller has staged, one record after the
other, so that memory is bounded and nothing is half-written.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from registry.display import media_kind
from registry.errors import FeatureError, UsageError, spell
from registry.features import ClassLabel, FeaturesDict, LabeledImage, Text
from registry.interop.export_tables import plain_rows
from registry.model import DatasetMetadata
from registry.reading.frameworks.table_columns import Labels, TableColumns
from registry.storage import Store

METADATA_FILE: Final = "metadata.jsonl"
_FILE_NAME: Final = "file_name"

_SIGNATURES: Final[tuple[tuple[int, bytes, str], ...]] = (
    (0, b"\x89PNG\r\n\x1a\n", "png"),
    (0, b"\xff\xd8\xff", "jpg"),
    (0, b"GIF8", "gif"),
    (8, b"WEBP", "webp"),
    (8, b"WAVE", "wav"),
    (0, b"fLaC", "flac"),
    (0, b"OggS", "ogg"),
    (0, b"ID3", "mp3"),
    (0, b"\xff\xfb", "mp3"),
    (0, b"\xff\xf3", "mp3"),
    (0, b"\xff\xf2", "mp3"),
    (8, b"AIFF", "aiff"),
    (4, b"ftypM4A", "m4a"),
    (4, b"ftypavif", "avif"),
    (4, b"ftyphei", "heic"),
    (0, b"BM", "bmp"),
    (0, b"II*\0", "tif"),
    (0, b"MM\0*", "tif"),
)
_FILE_ENDINGS: Final = frozenset({ending for _, _, ending in _SIGNATURES} | {"bin"})


class Record(NamedTuple):
    """One record: its files by feature, its class number, its text, and the other values as JSON has them."""

    files: Mapping[str, bytes | None]
    label: int | None
    text: bytes | None
    values: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlan:
    """How each feature of a record is exported.

    Attributes:
        files: the features whose values are files; the first is the main one.
        label: the feature with the class, or None.
        text: the feature with the text, or None.
        features: the features to read with.
        values: converts the features that become JSON, or None if there are none.
        class_label: the ClassLabel of ``label``.
    """

    files: tuple[str, ...]
    label: str | None
    text: str | None
    features: FeaturesDict
    values: TableColumns | None
    class_label: ClassLabel | None

    def records(self, columns: Mapping[str, Any], num_records: int) -> Iterator[Record]:
        """The records of a block of examples."""
        nothing = [None] * num_records
        files = [columns[name].tolist() for name in self.files]  # None for those that are masked
        labels = nothing if self.label is None else columns[self.label].tolist()
        texts = nothing if self.text is None else columns[self.text].tolist()
        values: Iterable[dict[str, Any]] = ({} for _ in range(num_records))
        if self.values is not None:
            values = plain_rows(self.values.batch({name: columns[name] for name in self.values.features}))
        for *found, label, text, value in zip(*files, labels, texts, values, strict=True):
            yield Record(dict(zip(self.files, found, strict=True)), label, text, value)


def plan_images(features: FeaturesDict, metadata: DatasetMetadata, labels: Labels) -> FilePlan:
    """The plan of a folder of images: the image, the class that names the folder, and the values of metadata.jsonl.

    Raises:
        UsageError: no feature, or more than one, is the image; or a feature has the name of the column of file names.
        FeatureError: a feature cannot be exported.
    """
    images = [name for name, feature in features.items() if media_kind(feature) == "image"]
    image = _choose(features, images, "image")
    if image is None:
        raise UsageError(
            f"an image folder has one image for each record, but several features are images: {', '.join(images)}"
            if images
            else "an image folder needs an image feature, but this version has none",
            hint=f"Choose one: {spell('columns', [images[0]])}. Or export webdataset or parquet."
            if images
            else "Export csv, jsonl or parquet.",
        )
    label = _choose_label(features)
    others = _others(features, metadata, (image, label))
    if others and label is not None:  # Hugging Face's software then ignores the names of folders
        others = [name for name in features if name != image]
    if _FILE_NAME in others:
        raise UsageError(
            f"{METADATA_FILE} names the image in the column {_FILE_NAME!r}, but a feature has this name",
            hint=f"Leave it out with {spell('columns')}, or export webdataset or parquet.",
        )
    return _plan(features, metadata, labels, files=(image,), label=label, text=None, others=others)


def plan_samples(features: FeaturesDict, metadata: DatasetMetadata, labels: Labels) -> FilePlan:
    """The plan of WebDataset's samples: every image and sound, the class, the only text, and the values of the JSON.

    Raises:
        UsageError: the name of an image or sound cannot be part of the name of a file.
        FeatureError: a feature cannot be exported.
    """
    files = [name for name, feature in features.items() if media_kind(feature) is not None]
    images = [name for name in files if media_kind(features[name]) == "image"]
    main = _choose(features, images, "image") or next(iter(images or files), None)
    files.sort(key=lambda name: name != main)
    for name in files[1:]:
        if "/" in name or "." in name or "\0" in name:
            raise UsageError(
                f"feature {name!r} cannot be part of the name of a file",
                hint=f"Leave it out with {spell('columns')}, or export parquet.",
            )
    label = _choose_label(features)
    texts = [name for name, feature in features.items() if isinstance(feature, Text) and name != metadata.path_column]
    text = texts[0] if len(texts) == 1 else None
    others = _others(features, metadata, (*files, label, text))
    return _plan(features, metadata, labels, files=tuple(files), label=label, text=text, others=others)


def _others(features: FeaturesDict, metadata: DatasetMetadata, named: Collection[str | None]) -> list[str]:
    """The features that need a file of metadata; the path of the file that was added does not need one alone."""
    others = [name for name in features if name not in named]
    return [] if others == [metadata.path_column] else others


def _plan(
    features: FeaturesDict,
    metadata: DatasetMetadata,
    labels: Labels,
    *,
    files: tuple[str, ...],
    label: str | None,
    text: str | None,
    others: list[str],
) -> FilePlan:
    every = TableColumns(features, metadata, labels=labels).features
    rest = FeaturesDict({name: features[name] for name in others})
    result = None if label is None else features[label]
    return FilePlan(
        files=files,
        label=label,
        text=text,
        features=every,
        values=TableColumns(rest, metadata, labels=labels, as_text=True) if others else None,
        class_label=result if isinstance(result, ClassLabel) else None,
    )


def _choose(features: FeaturesDict, names: list[str], usual: str) -> str | None:
    """The only one of ``names``, the one with the usual name, or the only one that is not a mask."""
    pictures = [name for name in names if not isinstance(features[name], LabeledImage)]
    for result in (names, [name for name in names if name == usual], pictures):
        if len(result) == 1:
            return result[0]
    return None


def _choose_label(features: FeaturesDict) -> str | None:
    return _choose(features, [name for name, feature in features.items() if isinstance(feature, ClassLabel)], "label")


def file_ending(data: bytes) -> str:
    """The usual ending of an image or audio file, from its first bytes; ``bin`` if they are unknown.

    >>> file_ending(b"RIFF....WAVEfmt "), file_ending(b"?")
    ('wav', 'bin')
    """
    for place, signature, ending in _SIGNATURES:
        if data.startswith(signature, place):
            return ending
    return "bin"


def write_images(
    records: Iterable[Record], plan: FilePlan, target: Store, *, folder: str, num_records: int, labels: Labels
) -> int:
    """Write ``folder/[class/]000017.png`` and ``folder/metadata.jsonl``, as Hugging Face's imagefolder reads them.

    The number of a file is the number of its record. A record without a class is in ``folder`` itself.
    metadata.jsonl has a line for each record, and exists if a record has more than an image and a class.

    Args:
        records: the records.
        plan: the plan that ``plan_images`` made.
        target: the store to write to.
        folder: a folder in ``target``, or ``""``.
        num_records: the number of records, which decides the number of digits.
        labels: name the folders of classes by the names of the classes, or by their numbers.

    Returns:
        The number of bytes written.

    Raises:
        FeatureError: a record has no image, or its class has no folder.
        StorageError: a file cannot be written.
    """
    (image,) = plan.files
    folders = {} if plan.class_label is None else class_folders(plan.class_label, labels)
    prefix = f"{folder}/" if folder else ""
    digits = max(6, len(str(num_records - 1)))
    total = 0
    with ExitStack() as stack:
        lines = None if plan.values is None else stack.enter_context(_create(target, prefix + METADATA_FILE))
        for number, record in enumerate(records):
            data = record.files[image]
            if data is None:
                raise FeatureError(f"feature {image!r}: record {number} has no image", details={"feature": image})
            name = f"{number:0{digits}}.{file_ending(data)}"
            if record.label is not None and record.label != -1:
                name = f"{_folder_of(record.label, folders, plan)}/{name}"
            with _create(target, prefix + name) as file:
                file.write(data)
            total += len(data)
            if lines is not None:
                line = f"{_to_json({_FILE_NAME: name, **record.values})}\n".encode()
                lines.write(line)
                total += len(line)
    return total


def class_folders(label: ClassLabel, labels: Labels) -> dict[int, str]:
    """The name of the folder of each class. Numbers have leading zeros, so that they sort as the classes do.

    Raises:
        UsageError: a folder cannot have the name of a class, or other tools would ignore it.
    """
    if labels == "numbers" or label.names is None:
        digits = len(str(max((label.num_classes or 1) - 1, 0)))
        return {number: f"{number:0{digits}}" for number in range(label.num_classes or 0)}
    result: dict[int, str] = {}
    seen: dict[str, str] = {}
    for number, name in enumerate(label.names):
        problem = _folder_problem(name)
        if name.casefold() in seen:
            problem = f"differs from {seen[name.casefold()]!r} only in case"
        if problem:
            raise UsageError(
                f"the class {name!r:.200} cannot be the name of a folder: it {problem}",
                hint=f"Name the folders by the numbers of the classes: {spell('labels', 'numbers')}.",
            )
        seen[name.casefold()] = result[number] = name
    return result


def _folder_problem(name: str) -> str | None:
    if "/" in name or "\\" in name or "\0" in name:
        return "contains a path separator"
    if name.startswith((".", "__")):
        return "begins like a hidden folder"
    return "is longer than 255 bytes" if len(name.encode()) > 255 else None


def _folder_of(number: int, folders: Mapping[int, str], plan: FilePlan) -> str:
    if number not in folders:
        raise FeatureError(
            f"feature {plan.label!r}: class number {number} has no name among {len(folders)}",
            hint=f"Leave the class out: name the other features with {spell('columns', [plan.files[0]])}.",
            details={"feature": plan.label},
        )
    return folders[number]


def write_samples(
    records: Iterable[Record], plan: FilePlan, target: Store, *, name: str, shard_bytes: int, labels: Labels
) -> Iterator[tuple[str, int, int]]:
    """Write ``name-000000.tar``, ``name-000001.tar`` ... as WebDataset reads them.

    A record is a run of members with one key, its number: the main image or sound (``000000017.png``), the others
    (``000000017.mask.png``), the class (``.cls``), the text (``.txt``) and the other values (``.json``). The same
    records give the same bytes.

    Args:
        records: the records, in the order of the members.
        plan: the plan that ``plan_samples`` made.
        target: the store to write to.
        name: the first part of the names of the tars.
        shard_bytes: the maximum size of a tar, unless a single record is larger.
        labels: write ``.cls`` as the name of the class, or as its number.

    Yields:
        Name, number of records and number of bytes of each tar, when it is complete.

    Raises:
        StorageError: a file cannot be written.
    """
    waiting = iter(records)
    record, number, shard = next(waiting, None), 0, 0
    while record is not None or not shard:  # no records give one empty tar
        first, filename, size = number, f"{name}-{shard:06}.tar", 0
        with _create(target, filename) as file:
            while record is not None:
                parts = [part for member in _members(record, plan, labels) for part in _tar_member(number, *member)]
                added = sum(map(len, parts))
                if number > first and size + added + tarfile.RECORDSIZE > shard_bytes:
                    break
                file.writelines(parts)
                size += added
                record, number = next(waiting, None), number + 1
            end = bytes(2 * tarfile.BLOCKSIZE)
            end += bytes(-(size + len(end)) % tarfile.RECORDSIZE)
            file.write(end)
        shard += 1
        yield filename, number - first, size + len(end)


def _tar_member(number: int, ending: str, data: bytes) -> tuple[bytes, bytes, bytes]:
    """Header, content and padding of a member; ``tarfile.addfile`` takes several times as long."""
    member = tarfile.TarInfo(f"{number:09}.{ending}")  # its time, owner and group are 0
    member.size = len(data)
    is_plain = member.name.isascii() and len(member.name) <= tarfile.LENGTH_NAME and len(data) < 8**11
    header = member.tobuf(tarfile.USTAR_FORMAT if is_plain else tarfile.PAX_FORMAT)
    return header, data, bytes(-len(data) % tarfile.BLOCKSIZE)


def _members(record: Record, plan: FilePlan, labels: Labels) -> Iterator[tuple[str, bytes]]:
    for place, (name, data) in enumerate(record.files.items()):
        if data is not None:
            yield f"{name}.{file_ending(data)}" if place else file_ending(data), data
    if record.label is not None:
        label = plan.class_label
        is_named = labels == "names" and label is not None and label.names is not None and record.label >= 0
        yield "cls", (label.int2str(record.label) if is_named and label is not None else str(record.label)).encode()
    if record.text is not None:
        yield "txt", record.text
    if record.values:
        yield "json", _to_json(record.values).encode()


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _create(target: Store, name: str) -> AbstractContextManager[BinaryIO]:
    """A new file of a staged folder. A local one is opened directly, because publishing the folder syncs its files."""
    if target.local_root is None:
        return target.create(name)
    path = target.local_root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("xb")


def is_image_export(name: str) -> bool:
    """Whether ``write_images`` could have written the file ``name``, relative to the folder of the export."""
    path = Path(name)
    is_file = path.stem.isdigit() and path.suffix[1:] in _FILE_ENDINGS
    return len(path.parts) <= 3 and (is_file or path.name == METADATA_FILE)


def is_tar_export(name: str) -> bool:
    """Whether ``write_samples`` could have written the file ``name``, relative to the folder of the export."""
    stem, _, number = name.removesuffix(".tar").rpartition("-")
    return name.endswith(".tar") and "/" not in name and bool(stem) and len(number) == 6 and number.isdigit()


LEFT_BY: Final[dict[str, Callable[[str], bool]]] = {"imagefolder": is_image_export, "webdataset": is_tar_export}
"""For each kind, whether an earlier export could have left a file."""
