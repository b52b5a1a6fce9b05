"""Infers the bands, kinds and tile size of an export from its records and mixer.

    files, mixer (found_files) -> first record -> bands, tile, kernel      (open_export)
                               -> every record -> counts, and a check that all records agree

The margin of a patch is inferred from its number of values. If that is ambiguous, ``kernel_size`` and
``tensor_depths`` are required.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, TypedDict

from registry.builders.earth_engine.exporting.options import read_depths, read_names, read_size
from registry.builders.earth_engine.grid import NO_KERNEL, NO_MARGIN, Grid, Size, Tile, infer_tile
from registry.builders.earth_engine.kinds import STORED, Kind, from_flat
from registry.builders.earth_engine.mixer import Mixer
from registry.builders.earth_engine.stored.found_files import FoundExport, find_export
from registry.builders.earth_engine.stored.record_forms import (
    Advance,
    StoredColumn,
    all_blocks,
    blocks_of,
    check_counts,
    check_files,
    count_records,
    is_of_pixel,
    look_at_columns,
    series_of,
)
from registry.errors import (
    CorruptExampleError,
    FeatureNotFoundError,
    PreparedFormatError,
    ShardMismatchError,
    UsageError,
)
from registry.storage import Store
from registry.tfrecord import RecordBlock
from registry.wire import decode_features

_LOOKED_AT: Final = 256
"""Number of records from which the bands of series are inferred, because the first series may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBand:
    """One stored band.

    Attributes:
        name: name of the feature.
        kind: ``bytes``, ``int64`` or ``float``.
        depth: number of values of a pixel; None for a series whose length differs between pixels.
        is_series: whether it is a feature list, which exports with ``sequenceData`` have.
    """

    name: str
    kind: Kind
    depth: int | None = 1
    is_series: bool = False

    @property
    def dtype(self) -> str:
        """The dtype of its numbers when read: uint8, int64 or float32."""
        return STORED[self.kind].name

    def to_value(self) -> dict[str, Any]:
        """As JSON."""
        return {"name": self.name, "kind": self.kind, "dtype": self.dtype, "depth": self.depth}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredExport:
    """The content of an export.

    Attributes:
        found: the files.
        mixer: the places of its patches; None for a table and for an image without a mixer.
        bands: the bands of an image, in the order in which they are read; empty for a table.
        columns: the columns of a table, sorted by name; empty for an image.
        tile: the size of stored tiles; None for a table and for an export with ``sequenceData``.
        kernel: the kernel size; if it was inferred, twice the margin. None if there is no tile.
        is_sequence: whether each record is the SequenceExample of a pixel (``sequenceData``).
        collapsed: names of the channels in the single feature of a collapsed export, if ``bands`` named them.
        counts: number of records in each file, or None if they were not counted.
        patches: indexes in the grid of the stored patches, if some were dropped; None if all are stored.
        num_bytes: bytes of all records without framing, if they were counted.
        warnings: findings that a user should know, one sentence each.
    """

    found: FoundExport
    mixer: Mixer | None
    bands: tuple[StoredBand, ...] = ()
    columns: tuple[StoredColumn, ...] = ()
    tile: Tile | None = None
    kernel: Size | None = None
    is_sequence: bool = False
    collapsed: tuple[str, ...] | None = None
    counts: tuple[int, ...] | None = None
    patches: tuple[int, ...] | None = None
    num_bytes: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def is_table(self) -> bool:
        """Whether each record is a row."""
        return not self.bands and not self.is_sequence

    @property
    def sizes(self) -> dict[str, tuple[Kind, int]]:
        """The kind and number of values of each band of a patch."""
        pixels = 0 if self.tile is None else self.tile.num_pixels
        return {band.name: (band.kind, pixels * (band.depth or 1)) for band in self.bands}

    @property
    def num_records(self) -> int | None:
        """Number of records; None if they were not counted."""
        return None if self.counts is None else sum(self.counts)

    @property
    def grid(self) -> Grid | None:
        """The grid of patches with the stored margin; None without a mixer."""
        return None if self.mixer is None else self.mixer.grid(self.tile)


class LayoutArguments(TypedDict, total=False):
    """Arguments that describe the records of an export; see ``open_export``."""

    kernel_size: int | Sequence[int] | None
    patch_dimensions: int | Sequence[int] | None
    tensor_depths: Mapping[str, int] | None
    sequence: bool | None


def open_export(
    folder: str | os.PathLike[str] | Store | FoundExport,
    *,
    prefix: str | None = None,
    bands: Sequence[str] | None = None,
    kernel_size: int | Sequence[int] | None = None,
    patch_dimensions: int | Sequence[int] | None = None,
    tensor_depths: Mapping[str, int] | None = None,
    sequence: bool | None = None,
    mixer: Mixer | None = None,
    patches: Sequence[int] | None = None,
    count: bool = False,
    advance: Advance | None = None,
) -> StoredExport:
    """Inspect an export: read its first record, or with ``count`` all records.

    Args:
        folder: path or URL of the folder or of one file of the export, a store, or the result of ``find_export``.
        prefix: prefix of the export, if the folder contains several; ``sub/name`` is the export ``name`` in ``sub``.
        bands: the bands to read, in order; None reads all, sorted by name. For an export with ``collapseBands``, the
            names of the channels.
        kernel_size: width and height in pixels of the export's kernel; None infers it, which requires square patches.
        patch_dimensions: width and height in pixels of a patch without a mixer; None assumes square tiles.
        tensor_depths: number of values of a pixel of each array band, by name; None infers it from other bands.
        sequence: whether each record is a pixel; None infers it from the first record.
        mixer: replaces the mixer next to the files.
        patches: indexes in the grid of the stored patches, ascending, if the export dropped some.
        count: read all records, check that they agree, and compare their number with the mixer. Tables are always
            read completely.
        advance: called with the number of records read since the last call.

    Raises:
        PreparedFormatError: the folder does not contain an export, files are missing or duplicated, a file is empty,
            or the mixer is malformed.
        ShardMismatchError: tiles or records do not agree with the mixer or with each other.
        CorruptRecordError: a file is damaged or truncated; the error names file and record.
        CorruptExampleError: a record is not an Example, or a band does not contain pixels.
        FeatureNotFoundError: a band does not exist.
        UsageError: the folder contains several exports and ``prefix`` is None, options contradict each other or the
            files, or the margin is ambiguous.
        StorageError: a file cannot be read.
    """
    export = folder if isinstance(folder, FoundExport) else find_export(folder, prefix=prefix)
    asked = _Asked(
        bands=read_names(bands, "bands"),
        kernel=_read_side(kernel_size, "kernel_size", least=0),
        patch=_read_side(patch_dimensions, "patch_dimensions", least=1),
        depths=read_depths(tensor_depths or {}),
    )
    mixer = export.mixer if mixer is None else mixer
    patches = None if patches is None else _check_patches(patches, mixer)
    warnings = [*export.notes, *check_files(export)]
    first = next(blocks_of(export, export.filenames[0], most=_LOOKED_AT), None)
    if first is None:
        raise PreparedFormatError(
            f"{export.store.locate(export.filenames[0])} contains no records",
            hint="Download it again.",
            details={"file": export.filenames[0]},
        )
    if export.is_table and mixer is None and sequence is not True and asked.patch is None:
        return _of_table(export, asked, warnings, advance)
    record = first.views()[0]
    if sequence is None:
        sequence = is_of_pixel(record, None if mixer is None else mixer.patch)
    result = (
        _of_sequence(export, mixer, first, asked) if sequence else _of_patches(export, mixer, record, asked, warnings)
    )
    counts, num_bytes = None, 0
    if count:
        counts, num_bytes = count_records(export, None if sequence else result.sizes, advance)
        if mixer is not None:
            check_counts(export, counts, mixer, patches=patches, is_sequence=sequence)
    if mixer is None:
        warnings.append(
            "The export has no mixer, as with maskedThreshold, so the places of its patches are unknown. "
            f"If Earth Engine wrote {export.prefix}-mixer.json, put it next to the files."
        )
    return replace(result, counts=counts, patches=patches, num_bytes=num_bytes, warnings=tuple(warnings))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The options of the caller, checked."""

    bands: tuple[str, ...] | None
    kernel: Size | None
    patch: Size | None
    depths: Mapping[str, int]


def _of_table(export: FoundExport, asked: _Asked, warnings: list[str], advance: Advance | None) -> StoredExport:
    """Inspect a table by reading all rows."""
    if asked.kernel is not None or asked.depths:
        raise UsageError(
            f"kernel_size and tensor_depths do not apply to a table: {export.filenames[0]} has no number and no mixer",
            hint="For a table, give the shapes of columns: shapes={'NAME': (2, 2)}; --shape NAME=2,2. For an image, "
            "give patch_dimensions; --patch WIDTH,HEIGHT.",
            details={"options": ["kernel_size", "tensor_depths"]},
        )
    table = look_at_columns(all_blocks(export, advance))
    columns = {column.name: column for column in table.columns}
    for column in table.columns:
        if column.kind == "mixed":
            raise ShardMismatchError(
                f"{export.store.locate(export.filenames[0])}: column {column.name!r} has different kinds in its rows",
                hint="Export the table again with one kind in each column.",
                details={"feature": column.name},
            )
    for name in asked.bands or ():
        if name not in columns:
            raise FeatureNotFoundError.of(name, list(columns), where=export.store.locate(export.filenames[0]))
    return StoredExport(
        found=export,
        mixer=None,
        columns=table.columns if asked.bands is None else tuple(columns[name] for name in asked.bands),
        counts=(table.num_rows,),
        num_bytes=table.num_bytes,
        warnings=tuple(warnings),
    )


def _of_patches(
    export: FoundExport, mixer: Mixer | None, record: memoryview, asked: _Asked, warnings: list[str]
) -> StoredExport:
    """Inspect an export of patches by its first record."""
    stored = decode_features(record)
    names, collapsed = _names(export, stored, asked)
    kinds: dict[str, Kind] = {}
    sizes: dict[str, int] = {}
    for name in names:
        kinds[name], values = from_flat(stored[name], name)
        depth = asked.depths.get(name, len(collapsed) if collapsed else 1)
        if values.size % depth or not values.size:
            raise ShardMismatchError(
                f"band {name!r}: expected a multiple of its depth {depth}, found {values.size} values",
                hint=f"Give the depth of the export: tensor_depths={{{name!r}: N}}; --depth {name}=N.",
                details={"feature": name, "values": int(values.size), "depth": depth},
            )
        sizes[name] = int(values.size) // depth
    base = min(sizes, key=lambda name: (sizes[name], name))
    patch = _patch_size(mixer, asked, sizes[base])
    tile = infer_tile(sizes[base], patch, asked.kernel, what=f"the band {base!r}")
    bands = []
    for name in names:
        times, rest = divmod(sizes[name], tile.num_pixels)
        is_declared = name in asked.depths or collapsed is not None
        if rest or (is_declared and times != 1):
            raise ShardMismatchError(
                f"the bands have different sizes: {name!r} has {sizes[name]} values"
                f"{' a level' if is_declared else ''}, {base!r} has {sizes[base]}",
                hint=f"Give the depths of array bands: tensor_depths={{{name!r}: N}}; --depth {name}=N.",
                details={"feature": name, "values": sizes[name], "expected": tile.num_pixels},
            )
        depth = asked.depths.get(name, len(collapsed) if collapsed else 1) * times
        if times > 1:
            warnings.append(f"The band {name!r} has {depth} values a pixel, inferred from the size of {base!r}.")
        bands.append(StoredBand(name=name, kind=kinds[name], depth=depth))
    if tile.is_uneven:
        warnings.append(
            f"The tiles are {tile.size.width} x {tile.size.height}, a patch plus its odd kernel: the additional pixels "
            "are assumed to be on the right and at the bottom."
        )
    kernel = asked.kernel or (NO_KERNEL if tile.margin == NO_MARGIN else Size(*(2 * side for side in tile.margin)))
    return StoredExport(found=export, mixer=mixer, bands=tuple(bands), tile=tile, kernel=kernel, collapsed=collapsed)


def _names(
    export: FoundExport, stored: Mapping[str, Any], asked: _Asked
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """The features to read, and the names of the channels if a single feature contains all bands."""
    where = export.store.locate(export.filenames[0])
    if not stored:
        raise CorruptExampleError(
            f"{where}: the first record has no bands", hint="Check that it is an export of an image."
        )
    for name in asked.depths:
        if name not in stored and name not in (asked.bands or ()):
            raise FeatureNotFoundError.of(name, list(stored), where=where)
    if asked.bands is None:
        return tuple(sorted(stored)), None
    if len(asked.bands) > 1 and len(stored) == 1 and asked.bands[0] in stored:
        channels: list[str] = []
        for name in asked.bands:
            depth = asked.depths.get(name)
            channels += [name] if depth is None else [f"{name}_{level}" for level in range(depth)]
        return asked.bands[:1], tuple(channels)
    for name in asked.bands:
        if name not in stored:
            raise FeatureNotFoundError.of(name, list(stored), where=where)
    return asked.bands, None


def _patch_size(mixer: Mixer | None, asked: _Asked, num_pixels: int) -> Size:
    """The size of a patch without its margin."""
    if mixer is not None:
        if asked.patch is not None and asked.patch != mixer.patch:
            raise UsageError(
                f"patch_dimensions: expected {tuple(mixer.patch)} as in the mixer, found {tuple(asked.patch)}",
                hint="Remove patch_dimensions (--patch): the mixer contains them.",
                details={"option": "patch_dimensions"},
            )
        return mixer.patch
    if asked.patch is not None:
        return asked.patch
    side = math.isqrt(num_pixels)
    margin = NO_KERNEL if asked.kernel is None else asked.kernel
    size = Size(side - margin.width // 2 * 2, side - margin.height // 2 * 2)
    if side * side != num_pixels or min(size) < 1:
        raise UsageError(
            f"cannot infer the width of a tile with {num_pixels} pixels, because the mixer is missing",
            hint="Give the size of a patch: patch_dimensions=[width, height]; --patch WIDTH,HEIGHT.",
            details={"option": "patch_dimensions", "values": num_pixels},
        )
    return size


def _of_sequence(export: FoundExport, mixer: Mixer | None, first: RecordBlock, asked: _Asked) -> StoredExport:
    """Inspect an export of pixels by its first records."""
    if asked.kernel not in (None, NO_KERNEL, NO_MARGIN):
        raise UsageError(
            "kernel_size does not apply to an export with sequenceData, which has no margins",
            hint="Remove kernel_size (--kernel).",
            details={"option": "kernel_size"},
        )
    seen = series_of(first)
    bands = {name: StoredBand(name=name, kind=kind) for name, kind in seen.scalars.items()}
    bands |= {
        name: StoredBand(name=name, kind=kind, depth=asked.depths.get(name, depth), is_series=True)
        for name, (kind, depth) in seen.series.items()
    }
    for name, depth in asked.depths.items():
        if name in seen.series and seen.series[name][1] not in (None, depth):
            raise ShardMismatchError(
                f"series {name!r}: expected {depth} steps, found {seen.series[name][1]}",
                hint=f"Remove {name!r} from tensor_depths (--depth): the records contain the number of steps.",
                details={"feature": name, "depth": depth},
            )
    names, _ = _names(export, bands, asked)
    return StoredExport(found=export, mixer=mixer, bands=tuple(bands[name] for name in names), is_sequence=True)


def _check_patches(patches: Sequence[int], mixer: Mixer | None) -> tuple[int, ...]:
    result = tuple(patches)
    total = None if mixer is None else mixer.total_patches
    if (
        total is None
        or not all(type(patch) is int and 0 <= patch < total for patch in result)
        or any(before >= after for before, after in pairwise(result))
    ):
        raise UsageError(
            "patches: expected ascending indexes of patches"
            + ("; the mixer is missing" if total is None else f" from 0 to {total - 1}"),
            hint="Give the indexes of the stored patches, and the mixer: patches=[0, 1, 5], mixer=Mixer(...).",
            details={"option": "patches"},
        )
    return result


def _read_side(value: int | Sequence[int] | None, name: str, *, least: int) -> Size | None:
    return None if value is None else read_size(value, name, least=least)
