"""Finds out what an export holds: its bands, their kinds and the size of its tiles, from its records and its mixer.

    files, mixer (found_files) -> first record -> bands, tile, kernel      (open_export)
                               -> every record -> counts, and whether all are alike

Only the number of values tells the margin of a patch. Where it is ambiguous, ``kernel_size`` and ``tensor_depths`` have
to be given.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from registry.builders.earth_engine.exporting.options import read_size
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
    has_feature_lists,
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
from registry.wire.codec import decode_features

_LOOKED_AT: Final = 256
"""Records of which an export of series is known: the first series of a band may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBand:
    """One band, as it is stored.

    Attributes:
        name: of the feature.
        kind: ``bytes``, ``int64`` or ``float``.
        depth: values of a pixel; None in a series whose length differs from pixel to pixel.
        is_series: whether it is a feature list, of an export with ``sequenceData``.
    """

    name: str
    kind: Kind
    depth: int | None = 1
    is_series: bool = False

    @property
    def dtype(self) -> str:
        """What its numbers are read as: uint8, int64 or float32."""
        return STORED[self.kind].name

    def to_value(self) -> dict[str, Any]:
        """As JSON."""
        return {"name": self.name, "kind": self.kind, "dtype": self.dtype, "depth": self.depth}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredExport:
    """What the files of an export hold.

    Attributes:
        found: the files.
        mixer: where its patches lie on the map; None of a table, and of an image that has none.
        bands: of an image, in the order in which they are read; none of a table.
        columns: of a table, sorted by name; none of an image.
        tile: the stored tiles; None of a table, and of an export with ``sequenceData``.
        kernel: which margins of a tile are meant; inferred, it is twice the margin. None where there is no tile.
        is_sequence: whether each record is a pixel (``sequenceData``), a SequenceExample.
        collapsed: the names of the channels that one feature holds, where these were given (``bands``).
        counts: records of each file, where they were counted.
        patches: the numbers of the stored patches, where some were left out; None of all.
        num_bytes: of all records, where they were counted: without what frames them.
        warnings: what there is to know: one sentence each.
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
        """The kind of each band of a patch, and the number of its values."""
        pixels = 0 if self.tile is None else self.tile.num_pixels
        return {band.name: (band.kind, pixels * (band.depth or 1)) for band in self.bands}

    @property
    def num_records(self) -> int | None:
        """Records in all; None where nobody counted them."""
        return None if self.counts is None else sum(self.counts)

    @property
    def grid(self) -> Grid | None:
        """The patches, with the margin that is stored; None without a mixer."""
        if self.mixer is None:
            return None
        grid = self.mixer.grid()
        margin = NO_MARGIN if self.tile is None else self.tile.margin
        return Grid(patch=grid.patch, patches_per_row=grid.patches_per_row, num_rows=grid.num_rows, margin=margin)

    @property
    def num_channels(self) -> int | None:
        """Channels of a patch, bands one after the other; None where the length of a series differs."""
        depths = [band.depth for band in self.bands]
        return None if None in depths else sum(depth for depth in depths if depth is not None)


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
    """What an export holds: its first record is read, or with ``count`` all of them.

    Args:
        folder: as ``find_export`` takes it, or what that found.
        prefix: as ``find_export``.
        bands: those to read, in this order; None takes all, sorted by name. More names than there are features name
            the channels of the only one: an export with ``collapseBands``.
        kernel_size: that it was exported with; None infers it, which needs square patches.
        patch_dimensions: of an export that has no mixer; None takes its tiles to be square.
        tensor_depths: values of a pixel of each array band, by name; None infers them by the other bands.
        sequence: whether each record is a pixel; None looks for the lists that such a record has.
        mixer: instead of the one that lies beside the files.
        patches: the numbers of the patches that are stored, ascending, where an export left some out.
        count: read all records, check that all are alike, and as many as the mixer says. Of a table always.
        advance: called with the number of records read since the last call.

    Raises:
        PreparedFormatError: as ``find_export``; or a file is empty.
        ShardMismatchError: tiles or records are not those of the mixer, or not alike.
        CorruptRecordError: a file is damaged or cut off; it names file and record.
        CorruptExampleError: a record is not an Example, or a band holds no pixels.
        FeatureNotFoundError: a band that is not there.
        UsageError: options that contradict each other or what is stored, or the margin cannot be told.
        StorageError: a file cannot be read.
    """
    found = folder if isinstance(folder, FoundExport) else find_export(folder, prefix=prefix)
    asked = _Asked(
        bands=None if bands is None else _check_bands(bands),
        kernel=None if kernel_size is None else read_size(kernel_size, "kernel_size", least=0),
        patch=None if patch_dimensions is None else read_size(patch_dimensions, "patch_dimensions", least=1),
        depths=_check_depths(tensor_depths),
    )
    mixer = found.mixer if mixer is None else mixer
    patches = None if patches is None else _check_patches(patches, mixer)
    warnings = [*found.notes, *check_files(found)]
    first = next(blocks_of(found, found.filenames[0], most=_LOOKED_AT), None)
    if first is None:
        raise PreparedFormatError(
            f"{found.store.locate(found.filenames[0])} holds no records",
            hint="Download it again.",
            details={"file": found.filenames[0]},
        )
    if found.is_table and mixer is None and sequence is not True and asked.patch is None:
        return _of_table(found, asked, warnings, advance)
    record = first.views()[0]
    if sequence is None:
        sequence = has_feature_lists(record) or (mixer is not None and _is_one_pixel(record, mixer))
    made = _of_sequence(found, mixer, first, asked) if sequence else _of_patches(found, mixer, record, asked, warnings)
    counts, num_bytes = None, 0
    if count:
        counts, num_bytes = count_records(found, None if sequence else made.sizes, advance)
        if mixer is not None:
            check_counts(found, counts, mixer, patches=patches, is_sequence=sequence)
    if mixer is None:
        warnings.append(
            "There is no mixer, as of an export with maskedThreshold: where a patch lies is not "
            f"known. If there was one, put {found.prefix}-mixer.json beside the files."
        )
    return StoredExport(
        found=found,
        mixer=mixer,
        bands=made.bands,
        tile=made.tile,
        kernel=made.kernel,
        is_sequence=sequence,
        collapsed=made.collapsed,
        counts=counts,
        patches=patches,
        num_bytes=num_bytes,
        warnings=tuple(warnings),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What the caller says."""

    bands: tuple[str, ...] | None
    kernel: Size | None
    patch: Size | None
    depths: Mapping[str, int]


def _of_table(found: FoundExport, asked: _Asked, warnings: list[str], advance: Advance | None) -> StoredExport:
    """A table, by all of its rows."""
    if asked.kernel is not None or asked.depths:
        raise UsageError(
            f"{found.filenames[0]} is a table: one file without a number, and without a mixer",
            hint="Its columns have shapes: shapes={...}; --shape NAME=2,2. If it is an image, give patch_dimensions; "
            "--patch WIDTH,HEIGHT.",
            details={"options": ["kernel_size", "tensor_depths"]},
        )
    table = look_at_columns(all_blocks(found, advance))
    columns = {column.name: column for column in table.columns}
    for name in asked.bands or ():
        if name not in columns:
            raise FeatureNotFoundError.of(name, list(columns), where=found.store.locate(found.filenames[0]))
    return StoredExport(
        found=found,
        mixer=None,
        columns=table.columns if asked.bands is None else tuple(columns[name] for name in asked.bands),
        counts=(table.num_rows,),
        num_bytes=table.num_bytes,
        warnings=tuple(warnings),
    )


def _of_patches(
    found: FoundExport, mixer: Mixer | None, record: memoryview, asked: _Asked, warnings: list[str]
) -> StoredExport:
    """An export whose records are patches, by the first of them."""
    stored = decode_features(record)
    names, collapsed = _names(found, stored, asked)
    kinds: dict[str, Kind] = {}
    sizes: dict[str, int] = {}
    for name in names:
        kinds[name], values = from_flat(stored[name], name)
        depth = asked.depths.get(name, len(collapsed) if collapsed else 1)
        if values.size % depth or not values.size:
            raise ShardMismatchError(
                f"the band {name!r} has {values.size} values, which are no pixels of depth {depth}",
                hint="Give the depth that it was exported with: tensor_depths={...}; --depth BAND=N.",
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
                f"the band {name!r} has {sizes[name]} values"
                f"{' a level' if is_declared else ''}, and {base!r} has {sizes[base]}: they are of several sizes",
                hint="Give the depths of array bands: tensor_depths={...}; --depth BAND=N.",
                details={"feature": name, "values": sizes[name], "expected": tile.num_pixels},
            )
        depth = asked.depths.get(name, len(collapsed) if collapsed else 1) * times
        if times > 1:
            warnings.append(f"The band {name!r} has {depth} values a pixel, as told by the size of {base!r}.")
        bands.append(StoredBand(name=name, kind=kinds[name], depth=depth))
    if tile.is_uneven:
        warnings.append(
            f"The tiles are {tile.size.width} x {tile.size.height}, a patch and its odd kernel: the pixels beyond "
            "twice half a kernel are taken to be on the right and below."
        )
    kernel = asked.kernel or (NO_KERNEL if tile.margin == NO_MARGIN else Size(*(2 * one for one in tile.margin)))
    return StoredExport(found=found, mixer=mixer, bands=tuple(bands), tile=tile, kernel=kernel, collapsed=collapsed)


def _names(
    found: FoundExport, stored: Mapping[str, Any], asked: _Asked
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """The features that are read, and the names of the channels where one feature holds them all."""
    where = found.store.locate(found.filenames[0])
    if not stored:
        raise CorruptExampleError(f"{where}: its first record holds no bands", hint="Is it an export of an image?")
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
                f"patch_dimensions is {tuple(asked.patch)}, and the mixer has {tuple(mixer.patch)}",
                hint="Leave patch_dimensions out: the mixer tells them.",
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
            f"a tile has {num_pixels} pixels, and nothing tells its width: there is no mixer",
            hint="Give the size of a patch: patch_dimensions=[width, height]; --patch WIDTH,HEIGHT.",
            details={"option": "patch_dimensions", "values": num_pixels},
        )
    return size


def _is_one_pixel(record: memoryview, mixer: Mixer) -> bool:
    """Whether a record of a patch of several pixels holds one of each band: it is a pixel of an export of series."""
    if mixer.patch == (1, 1):
        return False
    values = list(decode_features(record).values())
    return bool(values) and all(value is not None and len(value) == 1 and _is_number(value[0]) for value in values)


def _is_number(value: Any) -> bool:
    return not isinstance(value, bytes) or len(value) == 1


def _of_sequence(found: FoundExport, mixer: Mixer | None, first: RecordBlock, asked: _Asked) -> StoredExport:
    """An export whose records are pixels, by the first of them."""
    if asked.kernel not in (None, NO_KERNEL, NO_MARGIN):
        raise UsageError(
            "an export with sequenceData has no margins, and kernel_size says that this one has",
            hint="Leave kernel_size out; --kernel.",
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
                f"the series {name!r} has {seen.series[name][1]} steps, and its depth is said to be {depth}",
                hint="Leave its depth out: the records tell it.",
                details={"feature": name, "depth": depth},
            )
    names, _ = _names(found, bands, asked)
    return StoredExport(found=found, mixer=mixer, bands=tuple(bands[name] for name in names), is_sequence=True)


def _check_patches(patches: Sequence[int], mixer: Mixer | None) -> tuple[int, ...]:
    found = tuple(patches)
    total = None if mixer is None else mixer.total_patches
    if (
        total is None
        or not all(type(patch) is int and 0 <= patch < total for patch in found)
        or any(before >= after for before, after in pairwise(found))
    ):
        raise UsageError(
            "patches are no numbers of patches, ascending"
            + ("; there is no mixer" if total is None else f" from 0 to {total - 1}"),
            hint="Give those of the grid that are stored, with its mixer: patches=[0, 1, 5], mixer=Mixer(...).",
            details={"option": "patches"},
        )
    return found


def _check_bands(bands: Sequence[str]) -> tuple[str, ...]:
    names = (bands,) if isinstance(bands, str) else tuple(bands)
    twice = [name for name in names if names.count(name) > 1]
    if not names or twice:
        raise UsageError(
            f"the band {twice[0]!r} is asked for twice" if twice else "no band is asked for",
            hint="Leave bands out to have all of them; --band.",
            details={"option": "bands"},
        )
    return names


def _check_depths(depths: Mapping[str, int] | None) -> dict[str, int]:
    found = dict(depths or {})
    for name, depth in found.items():
        if type(depth) is not int or depth < 1:
            raise UsageError(
                f"the depth of {name!r} is {depth!r:.40}; it is a whole number above 0",
                details={"option": "tensor_depths"},
            )
    return found
