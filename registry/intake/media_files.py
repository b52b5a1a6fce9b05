r"""Opens folders of images, audio, videos or texts. Each file is a record, stored as its bytes or its text.

A WebP, GIF, BMP or TIFF of one frame becomes a PNG of the same pixels if an Image can hold all files.

The columns are the content, a ``label`` if folders are classes, or else the columns of metadata files. The key of a
record is the name of its file.

``metadata.csv``, ``.jsonl`` or ``.parquet`` has a row of columns for each file. Its column ``file_name`` is relative to
the folder of the metadata file, as in Hugging Face's ``imagefolder``, or an absolute path of a file of the source.
Names are never guessed. ``\`` counts as ``/``, because programs on Windows write it; any other mismatch is reported
with the most similar file.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from registry.errors import FeatureError, MissingExtraError, SourceError, StorageError, spell
from registry.features import Audio, ClassLabel, Feature, Image, Text
from registry.features.audio import SoundError, measure_sound, read_sample_rate
from registry.intake.feature_text import Wish
from registry.intake.file_parts import (
    Convert,
    FilePart,
    account_for_source,
    compare_columns,
    decode_text,
    in_folders,
    label_of,
    open_parts,
    refuse_folder_columns,
)
from registry.intake.kinds import KINDS, kind_of, open_kind, sniff_kind
from registry.intake.media_bytes import (
    IMAGE_FAULTS,
    CheckMedia,
    bytes_of,
    common_picture,
    extension_of,
    is_decodable_sound,
    measure_picture,
)
from registry.intake.options import AddOptions
from registry.intake.source import PATH, BadRow, Files, Source, root_of
from registry.intake.split_names import find_splits
from registry.model import DatasetMetadata
from registry.shards.arrow_values import import_pyarrow
from registry.splits import counted
from registry.storage import spell_place

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS: Final = {"images": "image", "audio": "audio", "videos": "video", "text": "text"}

_TARGETS: Final = frozenset(
    f"{word}{ending}"
    for word in ("annot", "annotation", "ground_truth", "groundtruth", "gt", "label", "mask", "segmentation", "target")
    for ending in ("", "s")
)
"""Names of folders whose files say something about the files of the same names in another folder."""

_TARGET_WORDS: Final = "|".join(sorted(_TARGETS, key=len, reverse=True))
_TARGET_ENDING: Final = re.compile(rf"[._-]({_TARGET_WORDS})$", re.IGNORECASE)
"""The end of the name of such a file, as in ``17_mask.png`` beside ``17.jpg``."""

_TARGET_FOLDER: Final = re.compile(rf"[._-]?({_TARGET_WORDS})$", re.IGNORECASE)
"""The end of the name of a folder of such files, as in ``train_masks`` or ``trainannot`` beside ``train``."""

_NEGATION: Final = re.compile(r"^(non|not|no|without)[ ._-]?", re.IGNORECASE)
"""The start of the name of a class that lacks something: ``no mask`` beside ``mask``, which is then a class too."""

_MOST_TARGETS: Final = 1000

_MOST_SOUNDS: Final = 20
"""The number of audio files that are opened to find the sample rate and the channels."""

_MOST_CORPORA: Final = 3
"""So few text files may be corpora: one for each split, with a record in each line."""


def open_media(files: Files, options: AddOptions) -> Source:
    """Open a folder of files of the kind ``options.kind``; see the module.

    If an Image can hold all pictures, the column ``image`` is an Image, with the sizes on which all agree. Otherwise it
    has the bytes of the files: decoding would lose values or frames. The column ``audio`` is an Audio if the files can
    be decoded here, otherwise their bytes; ``video`` has the bytes. Texts are UTF-8: a byte order mark is removed, and
    newlines are kept.

    Raises:
        SourceError: there are no files of this kind, the names of splits are ambiguous, or metadata cannot be used.
    """
    kind = options.kind or ""
    column = _COLUMNS[kind]
    is_text = kind == "text"
    # Files without an extension are here only because their first bytes are those of media: see detect.
    extensions = KINDS[kind].extensions if is_text else ("", *KINDS[kind].extensions)
    names = [name for name in files.names if extension_of(name) in extensions]
    if not names and not is_text:  # files with another extension are skipped as well
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
        if "label" not in options.wishes():  # not requested, nor in the previous version
            _refuse_pairs(files.location, label.names, splits.files)
        hints["label"] = label
    has_path = options.stores_paths() and (metadata is None or PATH not in metadata.table.column_names)
    if has_path:
        hints[PATH] = Text()
    unused = iter([metadata.bad_rows() if metadata is not None else ()])

    def read(some: Sequence[str]) -> FilePart:
        columns = None if metadata is None else metadata.rows_of(some)
        if label is not None:
            columns = import_pyarrow().table({"label": list(map(label_of, some))})
        return FilePart(
            store=files.store,
            names=some,
            column=column,
            is_text=is_text,
            convert=check,
            has_path=has_path,
            metadata=columns,
            bad=next(unused, ()),
        )

    usable = {
        split: some if metadata is None else [name for name in some if name in metadata.row_of]
        for split, some in splits.files.items()
    }
    parts = open_parts(usable, read)
    return Source(
        kind=kind,
        summary=_summary(kind, names, reason, metadata, unfit),
        parts=parts,
        hints=hints if metadata is None else {**metadata.hints, **hints},
        is_text=metadata is not None and metadata.is_text,
        path_column=PATH if has_path else "",
        is_typed=metadata is None,
        files=account_for_source(files, splits, KINDS[kind].noun, metadata=metadata_names),
        split_reason=splits.reason,
        # TFDS's ImageFolder does the same.
        metadata=DatasetMetadata(supervised_keys=(column, "label") if kind == "images" and label is not None else None),
    )


def find_labels(splits: Mapping[str, Sequence[str]]) -> tuple[ClassLabel | None, str]:
    """Return the label of files if folders are classes, and the reason for messages.

    Folders are classes if the files of each split are exactly one folder below the same folder, and a split has at
    least two of these folders. The names of all splits are sorted, by code points.

    Args:
        splits: the names of the files of each split, joined by ``/``.

    >>> label, reason = find_labels({"train": ["train/dog/1.png", "train/cat/1.png"], "test": ["test/cat/1.png"]})
    >>> label.names, reason
    (('cat', 'dog'), 'the names of 2 folders, sorted')
    >>> find_labels({"train": ["cat/1.png", "2.png"]})
    (None, "no label: not every file is exactly one folder below the same folder, such as '2.png'")
    """
    names: set[str] = set()
    most = 0
    for files in splits.values():
        folders = {name.rpartition("/")[0] for name in files}
        if len({folder.rpartition("/")[0] for folder in folders}) > 1 or ("" in folders and len(folders) > 1):
            usual = Counter(folder.rpartition("/")[0] for folder in sorted(folders)).most_common(1)[0][0]
            odd = min(name for name in files if posixpath.dirname(posixpath.dirname(name)) != usual or "/" not in name)
            return None, f"no label: not every file is exactly one folder below the same folder, such as {odd!r:.100}"
        names.update(folder.rpartition("/")[2] for folder in folders)
        most = max(most, len(folders))
    if most < 2:
        return None, "no label: no split has two folders"
    try:
        return ClassLabel(names=sorted(names)), f"the names of {len(names):,} folders, sorted{_describe_alike(names)}"
    except FeatureError as error:  # such as a space at the end of a name
        return None, f"no label: {error.message}"


def _describe_alike(names: Iterable[str]) -> str:
    """Name two classes that may be meant as one: they differ in case, or in the form of Unicode, as after a copy."""
    seen: dict[str, str] = {}
    for name in sorted(names):
        other = seen.setdefault(_fold(name), name)
        if other != name:
            return f"; {other!a} and {name!a} may be the same class"
    return ""


def _refuse_pairs(location: str, folders: Sequence[str], splits: Mapping[str, Sequence[str]]) -> None:
    """Refuse ``images/0.jpg`` beside ``masks/0.png``, which belong to one record. Raises SourceError."""
    classes = set(folders)
    for target in folders:
        base = _TARGET_FOLDER.sub("", target)
        pair = [base, target] if base else folders
        if base == target or not classes.issuperset(pair):
            continue
        if any(_NEGATION.sub("", name).lower() == target.lower() for name in classes - {target}):
            continue
        if all(_share_names(names, pair) for names in splits.values()):
            raise SourceError(
                f"{location}: the folders {' and '.join(pair[:5])} have files of the same names, so that {target} is "
                "probably no class",
                hint=f"If they are classes, rename the folder {target}. To have both files in one record, call them "
                "0.image.jpg and 0.mask.png in one folder, and add a tar of it: "
                "tar --sort=name -cf NAME.tar -C FOLDER .",
                details={"location": location, "folders": list(folders[:100])},
            )


def _share_names(names: Sequence[str], folders: Collection[str]) -> bool:
    """Whether the files of the folders have the same names. Some files may lack a target, and some targets a file."""
    stems = defaultdict(set)
    for name in names:
        folder, _, file = name.rpartition("/")
        if label_of(name) in folders:
            stem = file.rpartition(".")[0] if kind_of(file) else file  # 17, or scan.17, has no extension
            stems[folder].add(_TARGET_ENDING.sub("", stem))
    first, *others = list(stems.values()) or [set[str]()]
    return all(other <= first or first <= other for other in others)


def _describe(kind: str, files: Files, names: Sequence[str], wish: Wish | None) -> tuple[Feature, Convert, str]:
    """Return the feature of the content unless ``wish`` decides, the check of each file, and the reason for bytes."""
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
    """Return the Image for all files, from their headers, or None and the reason.

    Raises SourceError if some have 16 bits per sample and others 8, because changing the depth would change values.
    """
    root = str(root_of(files.store))
    by_depth: dict[int, tuple[str, Image]] = {}
    for name in names:
        if extension_of(name) == ".mpo":
            return None, f"{name}: it has several frames, but an Image has only one"
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
        except FeatureError:  # the header of a damaged file has an impossible size
            continue
        first, common = by_depth.get(depth, (name, picture))
        by_depth[depth] = first, common_picture(common, picture)
    if len(by_depth) == 2:
        wide, narrow = by_depth[16][0], by_depth[8][0]
        raise SourceError(
            f"{wide} has 16 bits per sample, but {narrow} has 8: an Image has a single depth",
            hint=f"Convert them to one depth. To keep the files as they are: {spell('features', {'image': 'bytes'})}",
            details={"files": [wide, narrow]},
        )
    return next((picture for _, picture in by_depth.values()), Image(shape=(None, None, None))), ""


def _sound(files: Files, names: Sequence[str]) -> Audio | None:
    """Return the feature of audio files, from a sample of them, or None if they cannot be decoded here."""
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
        each = "which is a record" if len(names) == 1 else "each of which is a record"
        result = f"{counted(len(names), KINDS[kind].noun)}{in_folders(names)}, {each}"
        if len(names) <= _MOST_CORPORA:
            result += f" (each line: {spell('kind', 'lines')})"
    if unfit:
        result += f", stored as bytes: {unfit}"
    result += _describe_targets(names)
    if metadata is not None:
        return f"{result}; metadata from {counted(len(metadata.files), 'file')}{metadata.summary(KINDS[kind].noun)}"
    return f"{result}; {label if label.startswith('no label') else f'label: {label}'}"


def _describe_targets(names: Sequence[str]) -> str:
    """Name a file such as ``1_mask.png`` next to ``1.jpg``, which become two records."""
    stems = (name.rpartition(".")[0] for name in names)
    targets = [ending for stem in stems if (ending := _TARGET_ENDING.search(stem))]
    first = {ending.string[: ending.start()]: ending for ending in targets[:_MOST_TARGETS]}
    for name in names if first else ():
        if ending := first.get(name.rpartition(".")[0]):
            way = f"for one, replace {ending[0]} by .{ending[1]}, and add a tar of the folder"
            return f"; {name} and {ending.string} are two records: {way}"
    return ""


NAMES: Final = {"metadata.csv": "csv", "metadata.jsonl": "json", "metadata.parquet": "parquet"}
FILE_NAME: Final = "file_name"
_MOST_SHOWN: Final = 5
"""The maximum number of entries, and of files, that a message shows."""


def is_metadata(name: str) -> bool:
    """Whether a file is a metadata file by its name.

    >>> is_metadata("train/metadata.csv"), is_metadata("train/my_metadata.csv")
    (True, False)
    """
    return name.rpartition("/")[2] in NAMES


def read_metadata(files: Files, names: Sequence[str], media: Sequence[str], noun: str) -> Metadata:
    """Read metadata files.

    Args:
        files: the files of the source.
        names: the metadata files among them.
        media: the files that they describe, sorted.
        noun: the word for a media file in messages.

    Raises:
        SourceError: a file cannot be read or has no column ``file_name``, two files have different columns, or no entry
            matches a file.
    """
    tables: list[pa.Table] = []
    formats = sorted({NAMES[name.rpartition("/")[2]] for name in names})
    if len(formats) > 1:
        raise SourceError(
            f"metadata files must have one format, found {', '.join(names[:5])}",
            hint="Remove all but one of them, or convert them to one format.",
            details={"files": list(names[:100])},
        )
    matching = Metadata(names, media, spell_place(files.location), is_text=formats == ["csv"])
    for name in names:
        source = open_kind(formats[0], files.only([name]), AddOptions(has_csv_options=False))
        matching.hints |= {column: feature for column, feature in source.hints.items() if column != FILE_NAME}
        for part in source.parts:
            for rows in part.read():
                matching.bad += rows.bad
                table = rows.table
                if FILE_NAME not in table.column_names:
                    raise SourceError(
                        f"{name} has no column {FILE_NAME!r}, only {', '.join(map(repr, table.column_names[:20]))}",
                        hint="Add a column file_name with the path of each file, relative to the metadata file.",
                        details={"file": name, "columns": table.column_names[:100]},
                    )
                matching.add(name, table.column(FILE_NAME).to_pylist(), rows.lines)
                tables.append(table.drop_columns([FILE_NAME]))
                if not source.may_lack_columns:
                    compare_columns({names[0]: tables[0].column_names, name: tables[-1].column_names})
    matching.require_matches(files.location, noun)
    matching.table = _concatenate(tables, names)
    return matching


class Metadata:
    """The entries of the metadata files of a source, matched with the files that they describe.

    Attributes:
        files: the names of the metadata files.
        table: the columns without ``file_name``.
        row_of: the number of the entry, and row of ``table``, for each file with an entry.
        bad: rows that cannot be used for a reason other than the name of a file.
        hints: features that the metadata files themselves define.
        is_text: whether values are text whose types have to be inferred.
    """

    table: pa.Table

    def __init__(self, files: Sequence[str], media: Sequence[str], roots: Sequence[str], *, is_text: bool) -> None:
        self.files = files
        self.row_of: dict[str, int] = {}
        self.bad: list[BadRow] = []
        self.hints: dict[str, Feature] = {}
        self.is_text = is_text
        self._media = media
        self._names = frozenset(media)
        self._roots = roots
        self._num_entries = 0
        self._places: dict[str, tuple[str, int]] = {}
        self._missing: list[BadRow] = []
        self._missing_names: list[str] = []
        self._similar: Mapping[str, Sequence[str]] | None = None
        self._suggestion: tuple[str, str] | None = None

    def add(self, file: str, values: Sequence[Any], lines: Sequence[int]) -> None:
        """Match the next entries, of the metadata file ``file``."""
        folder = file.rpartition("/")[0]
        for value, line in zip(values, lines, strict=True):
            path = _path(folder, str(value), self._roots)
            if value is None or value == "":
                self._miss(file, line, "", f"{FILE_NAME} is missing")
            elif path not in self._names:
                self._miss(file, line, str(value), self._explain(folder, str(value), path))
            elif path in self._places:
                other, first = self._places[path]
                place = f"line {first}" if other == file else f"{other}:{first}"
                reason = f"a second entry for {value!r}, after {place}; a file has one, whose values may be lists"
                self._miss(file, line, str(value), reason)
            else:
                self._places[path] = file, line
                self.row_of[path] = self._num_entries
            self._num_entries += 1

    def rows_of(self, names: Sequence[str]) -> pa.Table:
        """Return the rows of some files with an entry, in the order of the files."""
        return self.table.take(import_pyarrow().array([self.row_of[name] for name in names], "int64"))

    def require_matches(self, location: str, noun: str) -> None:
        """Raise SourceError if no entry matches a file."""
        if self.row_of:
            return
        names = self.files
        where = names[0] if len(names) == 1 else f"{len(names):,} metadata files"
        if not self._num_entries:
            raise SourceError(
                f"{location}: {where} {'has' if len(names) == 1 else 'have'} no rows",
                hint="Write one row for each file, or remove the metadata file.",
                details={"location": location, "files": list(names[:100])},
            )
        hint = f"Write the path of each file, relative to the metadata file, into the column {FILE_NAME}."
        if self._suggestion is not None:
            found, expected = self._suggestion
            hint = f"Paths are relative to the metadata file: write {expected!r} for {found!r}."
        entries = "entry has" if len(self._missing) == 1 else "entries have"
        lines = [
            f"  {len(self._missing):,} {entries} no file{_first(self._missing_names)}",
            f"  {counted(len(self._media), noun)} without an entry{_first(self._media)}",
        ]
        raise SourceError(
            "\n".join([f"{location}: {where} matches no {noun}", *lines]),
            hint=hint,
            details={
                "location": location,
                "files": list(names[:100]),
                "num_missing": len(self._missing),
                "missing": self._missing_names[:100],
                "num_unlisted": len(self._media),
                "unlisted": list(self._media[:100]),
            },
        )

    def bad_rows(self) -> tuple[BadRow, ...]:
        """Return all rows and files that cannot be used, beginning with the first few of each."""
        several = "no metadata file has an entry for it"
        lacking = several if len(self.files) > 1 else f"{self.files[0]} has no entry for it"
        unlisted = [BadRow(file=name, line=None, reason=lacking) for name in self._media if name not in self.row_of]
        few = (*self.bad[:_MOST_SHOWN], *self._missing[:_MOST_SHOWN], *unlisted[:_MOST_SHOWN])
        return (*few, *self.bad[_MOST_SHOWN:], *self._missing[_MOST_SHOWN:], *unlisted[_MOST_SHOWN:])

    def summary(self, noun: str) -> str:
        """Count the entries without a file, and the files without an entry."""
        num_unlisted = len(self._media) - len(self.row_of)
        entries = "entry" if len(self._missing) == 1 else "entries"
        told = [f"{len(self._missing):,} {entries} without a file"] if self._missing else []
        told += [f"{counted(num_unlisted, noun)} without an entry"] if num_unlisted else []
        return "".join(f", {note}" for note in told)

    def _miss(self, file: str, line: int, value: str, reason: str) -> None:
        self._missing.append(BadRow(file=file, line=line, column=FILE_NAME, reason=reason))
        self._missing_names += [value] if len(self._missing_names) < 100 else []

    def _explain(self, folder: str, value: str, path: str) -> str:
        """Explain why a name matches no file, and name the file in another case, folder or form of Unicode."""
        if self._similar is None:
            similar: defaultdict[str, list[str]] = defaultdict(list)
            for name in self._media:
                similar[_fold(name)].append(name)
                if "/" in name:
                    similar[_fold(name.rpartition("/")[2])].append(name)
            self._similar = similar
        last = path.partition("?")[0].rpartition("/")[2]  # the file may also be below a URL
        nearest = self._similar.get(_fold(path)) or self._similar.get(_fold(last)) or ()
        problem = f"the file {value!r} does not exist"
        if len(nearest) != 1:
            return problem
        expected = posixpath.relpath(nearest[0], folder) if folder else nearest[0]
        self._suggestion = self._suggestion or (value, expected)
        if unicodedata.normalize("NFC", nearest[0]) == unicodedata.normalize("NFC", path):
            return f"{problem}, but {expected!a} does, which is the same text in another form of Unicode"
        return f"{problem}; did you mean {expected!r}?"


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _first(names: Sequence[str]) -> str:
    """List the first names, after a colon."""
    listing = ", ".join(f"{name!r:.200}" for name in names[:_MOST_SHOWN])
    return f": {listing}{' ...' if len(names) > _MOST_SHOWN else ''}" if names else ""


def _concatenate(tables: Sequence[pa.Table], names: Sequence[str]) -> pa.Table:
    arrow = import_pyarrow()
    try:
        together = arrow.concat_tables(tables, promote_options="permissive")
    except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
        raise SourceError(
            f"the types of a column differ between rows of {', '.join(names[:5])}: {error}",
            hint="Write the values of each column in one type.",
            details={"files": list(names[:100])},
        ) from error
    return together.combine_chunks()


def _path(folder: str, value: str, roots: Sequence[str] = ()) -> str:
    r"""Return the name of the file that an entry refers to. A path outside the source matches no file.

    Args:
        folder: the folder of the metadata file.
        value: the entry.
        roots: the absolute paths of the source, to which an absolute path is relative.

    >>> _path("train", ".\\cat\\1.png"), _path("train", "../test/1.png"), _path("", "/1.png")
    ('train/cat/1.png', 'test/1.png', '/1.png')
    >>> _path("train", "/srv/photos/cat/1.png", ["/srv/photos"])
    'cat/1.png'
    """
    path = posixpath.normpath(posixpath.join(folder, value.replace("\\", "/")))
    return next((path.removeprefix(f"{root}/") for root in roots if path.startswith(f"{root}/")), path)
