"""Publishes exports as a version of a dataset, in place or as a copy, with their mixers and bands.

    exports (export.py) -> features, splits, metadata -> PreparedDataset -> Catalog.publish_prepared

Each export becomes a split. The version's metadata keeps, under ``earth_engine``, the facts that records do not
contain: the mixer, the kernel, the tile, and the order of bands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from registry import ReadConfig, Reader, ReadInstruction, Split, Version, resolve
from registry.builders.earth_engine.stored.export import LayoutArguments, StoredBand, StoredExport, open_export
from registry.builders.earth_engine.stored.kept_split import METADATA_KEY, KeptSplit, MixerLike, find_mixer
from registry.builders.earth_engine.stored.record_forms import StoredColumn
from registry.errors import FeatureError, PreparedFormatError, UsageError, suggest
from registry.features import Feature, FeaturesDict, Scalar, Tensor, Text
from registry.model import (
    DatasetMetadata,
    ProgressCallback,
    ShardedFileTemplate,
    ShardLengths,
    check_config,
    check_name,
    check_split_name,
    count_progress,
    fold_name,
    is_generic,
    plain_name,
)
from registry.prepared import PreparedDataset
from registry.reading import State, readable_folder
from registry.storage import RenamedStore, Store, open_store

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry import Catalog
    from registry.publishing import Publication

Prefixes = str | Mapping[str, str] | None
"""The prefix of one export, or a mapping of split to prefix."""


class FileArguments(LayoutArguments, total=False):
    """Arguments that describe the files of exports; see ``import_export``."""

    prefix: Prefixes
    mixer: MixerLike | None
    patches: Sequence[int] | None


class ImportArguments(FileArguments, total=False):
    """Arguments that describe an import; see ``import_export``."""

    split: str
    name: str | None
    config: str | None
    version: str | Version
    bands: Sequence[str] | None
    shapes: Mapping[str, Sequence[int]] | None
    description: str
    copy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """The version that an import would publish.

    Attributes:
        folder: the folder that is imported.
        copy: whether its files are copied.
        is_derived: whether the name of the dataset was derived.
        prepared: the version.
        exports: the export of each split.
        source: the store with the files under the names that the version uses.
    """

    folder: str | os.PathLike[str]
    copy: bool
    is_derived: bool
    prepared: PreparedDataset
    exports: Mapping[str, StoredExport]
    source: Store

    @property
    def notes(self) -> tuple[str, ...]:
        """Findings that a user should know, one sentence each."""
        several = len(self.exports) > 1
        return tuple(
            f"{split}: {sentence}" if several else sentence
            for split, export in self.exports.items()
            for sentence in _notes(export)
        )

    def publish(
        self, catalog: Catalog, *, promote: bool | None = None, progress: ProgressCallback | None = None
    ) -> Publication:
        """Publish the version; see ``import_export``."""
        return catalog.publish_prepared(
            self.source,
            self.prepared,
            in_place=not self.copy,
            place=self.folder,
            is_derived=self.is_derived,
            promote=promote,
            progress=progress,
        )


def import_export(
    catalog: Catalog,
    folder: str | os.PathLike[str],
    *,
    promote: bool | None = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[ImportArguments],
) -> Publication:
    """Publish exports in a folder as a version. Every file is hashed, and every record is counted and decoded.

        import_export(catalog, "exports/", prefix={"train": "training_patches", "eval": "eval_patches"})

    Args:
        catalog: the catalog to publish to.
        folder: path or URL of the folder, or of one file of the export.
        prefix: prefix of the export, if the folder contains several; or a mapping of split to prefix.
        split: name of the split of a single export.
        name: name of the dataset; None derives it from the prefix, or for several exports from the folder.
        config: name of the config, or None.
        version: version number.
        bands: the bands to import, in order; None imports all. This option and the next four are described at
            ``open_export``.
        kernel_size: width and height in pixels of the export's kernel; None infers it.
        patch_dimensions: width and height in pixels of a patch without a mixer; None assumes square tiles.
        tensor_depths: number of values of a pixel of each array band, by name; None infers it.
        sequence: whether each record is a pixel; None infers it.
        shapes: shapes of a table's array columns, by name.
        mixer: replaces the mixer next to the files: a path, JSON text, a document or a Mixer.
        patches: indexes in the grid of the stored patches, ascending, if the export dropped some.
        description: description of the dataset.
        copy: copy the files to the data directory. Otherwise the version reads them from the folder, which must not
            change.
        promote: make the version canonical; None does so if its number is the highest.
        progress: called with a ``Progress``, in records, which are first counted and then verified.

    Returns:
        The published version, and whether it is new.

    Raises:
        PreparedFormatError: the folder does not contain an export, files are missing or duplicated, the mixer is
            malformed, or the names of the files require ``copy=True``.
        ShardMismatchError: records do not agree with the mixer or with each other.
        CorruptRecordError: a file is damaged or truncated.
        CorruptExampleError: a record is not an Example, or a band does not contain pixels.
        FeatureNotFoundError: a band does not exist.
        UsageError: options contradict each other or the files, or an option is required.
        VersionExistsError: the version exists with other content.
        OtherSourceError: ``name`` is None, and the dataset of the derived name comes from elsewhere.
        StorageError: a file cannot be read or written.
    """
    if options.get("copy"):
        catalog.require_data_dir()  # before all records are read
    return preview_export(folder, progress=progress, **options).publish(catalog, promote=promote, progress=progress)


def preview_export(
    folder: str | os.PathLike[str],
    *,
    prefix: Prefixes = None,
    split: str = "train",
    name: str | None = None,
    config: str | None = None,
    version: str | Version = "1.0.0",
    bands: Sequence[str] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    mixer: MixerLike | None = None,
    patches: Sequence[int] | None = None,
    description: str = "",
    copy: bool = False,
    progress: ProgressCallback | None = None,
    **layout: Unpack[LayoutArguments],
) -> ImportPlan:
    """Plan an import: read all records, and write nothing. Arguments and errors are those of ``import_export``."""
    own_mixer = None if mixer is None else find_mixer(mixer).mixer
    number = Version.parse(version) if isinstance(version, str) else version
    if name is not None:
        check_name(name)
    if config is not None:
        check_config(config)
    wanted = dict(prefix) if isinstance(prefix, Mapping) else {split: prefix}
    if not wanted:
        raise UsageError(
            "prefix does not name a split", hint="Give one prefix, or name splits: prefix={'train': 'area'}."
        )
    if len(wanted) > 1 and (patches is not None or mixer is not None):
        raise UsageError(
            "mixer and patches apply to a single export, but several are imported",
            hint="Import each export separately.",
            details={"options": ["mixer", "patches"]},
        )
    for one in wanted:
        check_split_name(one)
    exports = {
        one: open_export(
            folder,
            prefix=own,
            bands=bands,
            mixer=own_mixer,
            patches=None if patches is None else tuple(patches),
            count=True,
            advance=count_progress(progress, "counting", os.fspath(folder)),
            **layout,
        )
        for one, own in wanted.items()
    }
    features = _join_features({one: _features(export, shapes) for one, export in exports.items()})
    root, places = _root(folder, exports)
    named = name or _name_of(root, exports)
    result = {one: KeptSplit.of(export).to_value() for one, export in exports.items()}
    source, splits = _splits(root, named, exports, places, copy=copy)
    return ImportPlan(
        folder=folder,
        copy=copy,
        is_derived=name is None,
        prepared=PreparedDataset(
            name=named,
            config=config,
            version=number,
            splits=splits,
            features=features,
            metadata=DatasetMetadata(description=description, custom={METADATA_KEY: {"splits": result}}),
            disable_shuffling=True,  # the order determines the place of each patch
        ),
        exports=exports,
        source=source,
    )


def open_files(
    folder: str | os.PathLike[str],
    split: str | ReadInstruction,
    *,
    read_config: ReadConfig | None = None,
    state: State | Sequence[State] | None = None,
    process: tuple[int, int] = (0, 1),
    **files: Unpack[FileArguments],
) -> Reader:
    """The reader of an export that is not in a catalog. All files are read once first, to count the records."""
    plan = preview_export(folder, name="export", copy=True, **files)
    readable = readable_folder(plan.source, plan.prepared)
    plan_of_split = resolve(split, readable.facts.layout)
    return Reader(readable, plan_of_split, read_config=read_config, state=state, process=process)


def _features(export: StoredExport, shapes: Mapping[str, Sequence[int]] | None) -> FeaturesDict:
    """The features of one record."""
    shapes = {} if shapes is None else shapes
    names = [column.name for column in export.columns]
    for name in shapes:
        if name not in names:
            raise UsageError(
                f"shapes contains {name!r}, which is not a column",
                hint=suggest(name, names) if names else "Remove shapes (--shape): it applies only to tables.",
                details={"option": "shapes", "known": names[:100]},
            )
    features: dict[str, Feature] = {}
    for column in export.columns:
        features[column.name] = _column_feature(column, shapes.get(column.name))
    for band in export.bands:
        if not band.is_series:
            features[band.name] = _band_feature(band, export)
    try:
        return FeaturesDict(features)
    except FeatureError as error:
        raise PreparedFormatError(
            f"{export.found.store.url}: the names of bands are not valid names of features: {error.message}",
            hint="Import other bands: bands=[...]; --band NAME.",
            details={"features": sorted(features)[:100]},
        ) from error


def _band_feature(band: StoredBand, export: StoredExport) -> Feature:
    """A tensor of (depth, height, width), without the depth if it is 1; for a single pixel, a scalar."""
    shape: tuple[int, ...] = () if band.depth in (None, 1) else (int(band.depth or 1),)
    if export.tile is not None:
        shape = (*shape, export.tile.size.height, export.tile.size.width)
    encoding = "bytes" if band.kind == "bytes" else "none"
    return Tensor(shape=shape, dtype=band.dtype, encoding=encoding) if shape else Scalar(band.dtype, encoding=encoding)


def _column_feature(column: StoredColumn, shape: Sequence[int] | None) -> Feature:
    """A number, text or array of ``shape``; optional if some rows lack it."""
    dtype: Any = {"bytes": bytes, "int64": "int64", "float": "float32"}[column.kind]
    if shape is not None:
        return Tensor(shape=column.check_shape(shape), dtype=dtype, optional=column.is_optional)
    if column.size == 1:
        if column.kind == "bytes" and not column.is_optional:
            return Text()
        return Scalar(dtype, optional=column.is_optional)
    if column.size is None and column.is_optional:
        # Rows without a value read as empty arrays, because an array of any length has no null.
        return Tensor(shape=(None,), dtype=dtype)
    return Tensor(shape=(column.size,), dtype=dtype, optional=column.is_optional)


def _join_features(found: Mapping[str, FeaturesDict]) -> FeaturesDict:
    """The features of all splits, which must be equal."""
    (first, features), *others = found.items()
    for split, other in others:
        if other != features:
            differing = sorted(
                name for name in {*features, *other} if features.features.get(name) != other.features.get(name)
            )
            raise UsageError(
                f"the splits of a version must have the same features: {first} and {split} differ in "
                f"{', '.join(differing[:10])}",
                hint="Import them as two datasets or configs: --name NAME, --config CONFIG.",
                details={"splits": [first, split], "features": differing[:100]},
            )
    return features


def _root(folder: str | os.PathLike[str], exports: Mapping[str, StoredExport]) -> tuple[Store, dict[str, str]]:
    """The folder with all exports, and the subfolder of each: ``""``, or a path that ends in a slash."""
    stores = {split: export.found.store for split, export in exports.items()}
    if len({store.url for store in stores.values()}) == 1:
        return next(iter(stores.values())), dict.fromkeys(stores, "")
    root = open_store(folder)  # prefixes lead below it: {"train": "north/p", "eval": "south/p"}
    start = len(root.url.rstrip("/")) + 1
    return root, {split: f"{store.url.rstrip('/')[start:]}/".lstrip("/") for split, store in stores.items()}


def _splits(
    root: Store, dataset: str, exports: Mapping[str, StoredExport], places: Mapping[str, str], *, copy: bool
) -> tuple[Store, tuple[Split, ...]]:
    """The splits, and a store with the files under the names that the splits use."""
    templates = {split: _template(dataset, places[split], export) for split, export in exports.items()}
    odd = [export.found.filenames[0] for split, export in exports.items() if templates[split] is None]
    if odd and not copy:
        raise PreparedFormatError(
            f"{root.url}: file names such as {odd[0]} cannot be read in place",
            hint="Import a copy, whose files are renamed: copy=True; --copy.",
            details={"folder": root.url, "problems": odd},
        )
    names: dict[str, str] = {}
    splits = []
    for split, export in exports.items():
        files = templates[split] or ShardedFileTemplate(dataset=dataset)
        made = Split(
            name=split,
            shard_lengths=ShardLengths(export.counts or ()),
            num_bytes=export.num_bytes,
            files=files,
        )
        splits.append(made)
        own = [places[split] + name for name in export.found.filenames]
        names |= dict(zip(made.filenames, own, strict=True))
    if len(names) != sum(len(export.found.filenames) for export in exports.values()):
        raise UsageError(
            "two splits have the same files",
            hint="Give each split a different prefix.",
            details={"splits": list(exports)},
        )
    return (RenamedStore(root, names) if odd else root), tuple(splits)


def _template(dataset: str, place: str, export: StoredExport) -> ShardedFileTemplate | None:
    """The template of the file names of an export; None if they do not follow a template."""
    first = export.found.filenames[0]
    number = re.search(r"0{5,}(?=\.tfrecord(?:\.gz)?$)", first, re.IGNORECASE)
    if number is not None:
        text = f"{place}{first[: number.end() - 5]}{{SHARD_INDEX}}{first[number.end() :]}"
    elif len(export.found.filenames) == 1:
        text = place + first
    else:
        return None
    try:
        files = ShardedFileTemplate(dataset=dataset, template=text)
    except UsageError:
        return None
    name_shard = files.namer("train", len(export.found.filenames))
    fits = all(name_shard(index) == place + name for index, name in enumerate(export.found.filenames))
    return files if fits else None


def _name_of(root: Store, exports: Mapping[str, StoredExport]) -> str:
    """Derive a dataset name from the prefix, or for several exports from the folder.

    A name such as ``train`` or ``exports`` is never derived: the folder above gives it. Raises UsageError.
    """
    path = root.url if root.local_root is None else root.local_root.as_posix()
    folders = [part for part in reversed(path.split("/")) if part and not part.endswith(":")]
    words = [next(iter(exports.values())).found.prefix] if len(exports) == 1 else []
    # The first folder that is not called "exports" or the like is asked, and no folder above it.
    words += [part for part in folders if not part[:1].isalpha() or not is_generic(plain_name(part))][:1]
    for word in words:
        cleaned = plain_name(word)
        with suppress(UsageError):
            if not is_generic(cleaned):
                return re.sub("__+", "_", fold_name(check_name(cleaned)))
    words = words or folders
    raise UsageError(
        f"cannot derive a dataset name from {words[0]!r} or the folder",
        hint="Name the dataset: name='...'; --name NAME.",
        details={"option": "name"},
    )


def _notes(export: StoredExport) -> list[str]:
    """Findings about an imported export, one sentence each."""
    notes = list(export.warnings)
    series = [band.name for band in export.bands if band.is_series]
    if series:
        notes.append(
            f"{', '.join(series)}: the features of examples do not include series; read them with PixelSeries."
        )
    notes += [
        f"The column {column.name!r} has {column.size} values, which may be {column.square} x {column.square}: "
        f"give its shape if they are (--shape {column.name}={column.square},{column.square})."
        for column in export.columns
        if column.square is not None
    ]
    notes += [
        f"The column {column.name!r} has no value in some rows; these read as empty."
        for column in export.columns
        if column.is_optional and column.size is None
    ]
    return notes
