"""Locates each record of a split on the map, from its number in the split and the version's metadata.

A record is identified by its file and its number in the file, so the order of reading does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from registry import Plan, ReadConfig, Reader, ReadInstruction, SlicingRule
from registry.builders.earth_engine.exporting.options import read_names
from registry.builders.earth_engine.grid import Grid, Size, Tile, Transform, Window, tile_of_array
from registry.builders.earth_engine.mixer import Mixer
from registry.builders.earth_engine.stored.kept_split import METADATA_KEY, KeptSplit, MixerLike, find_mixer
from registry.errors import PreparedFormatError, ShardMismatchError, UsageError
from registry.features import FeaturesDict, Tensor
from registry.reading import SplitSource, State
from registry.tfrecord import Verify

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBand:
    """One band that is read: a feature, its depth, and the names of its channels."""

    feature: str
    depth: int
    channels: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SplitPlaces:
    """The places of the patches of one split.

    Attributes:
        mixer: the mixer; None if it is unknown.
        tile: the size of the stored tiles, and the patch in them.
        patches: the numbers of the stored patches if some were left out; None if all are stored.
        bands: the bands in order.
        is_collapsed: whether a single feature contains all channels, which have names.
        is_sequence: whether a record is a pixel.
    """

    mixer: Mixer | None
    tile: Tile | None
    patches: Numbers | None
    bands: tuple[ReadBand, ...]
    is_collapsed: bool = False
    is_sequence: bool = False

    @cached_property
    def grid(self) -> Grid | None:
        """The grid of patches, with the stored margin."""
        return None if self.mixer is None else self.mixer.grid(self.tile)

    def numbers_of(self, records: Numbers) -> Numbers:
        """The numbers of the patches of these records; the numbers of the records if the grid is unknown."""
        return records if self.patches is None else self.patches[records]

    def window(self, number: int, *, margin: bool) -> Window | None:
        """The window of a patch in the raster, in pixels; with ``margin``, of its whole tile."""
        if self.grid is None:
            return None
        core = self.grid.core(number)
        if not margin or self.tile is None:
            return core
        left, top = self.tile.margin
        return Window(core.column - left, core.row - top, *self.tile.size)

    @property
    def transform(self) -> Transform:
        """The transform of the raster; the mixer must be known."""
        if self.mixer is None:
            raise UsageError("the mixer is missing, so the places of the patches are unknown")
        return self.mixer.transform

    def all_bounds(self, numbers: Numbers, *, margin: bool) -> npt.NDArray[np.float64]:
        """The bounds of many patches on the map, shape (N, 4): left, bottom, right, top."""
        windows = (self.window(number, margin=margin) for number in numbers.tolist())
        result = [self.transform.bounds(*window) for window in windows if window is not None]
        return np.array(result, np.float64).reshape(-1, 4)


class RecordNumbers:
    """The numbers of records in their split, by the ids that a reader gives them."""

    def __init__(self, plan: Plan) -> None:
        self._starts: dict[str, tuple[str, int]] = {}
        doubled: set[str] = set()
        for split in plan.splits:
            lengths = split.shard_lengths
            name_shard = split.files.namer(split.name, len(lengths))
            for index in range(len(lengths)):
                name = name_shard(index).rpartition("/")[2]
                if self._starts.setdefault(name, (split.name, lengths.start(index))) != (
                    split.name,
                    lengths.start(index),
                ):
                    doubled.add(name)
        if doubled:
            raise UsageError(
                f"{plan.expression!r} names splits whose files have the same names, such as {min(doubled)}",
                hint="Read each split by itself.",
                details={"files": sorted(doubled)[:100]},
            )

    def find(self, ids: Sequence[bytes | str]) -> tuple[list[str], Numbers]:
        """The split of each record, and its number in the split."""
        splits: list[str] = []
        numbers = np.empty(len(ids), np.int64)
        for place, patch_id in enumerate(ids):
            name, _, record = (patch_id.decode() if isinstance(patch_id, bytes) else patch_id).rpartition("__")
            split, start = self._starts[name]
            splits.append(split)
            numbers[place] = start + int(record)
        return splits, numbers


def places_of_split(
    features: FeaturesDict,
    kept_split: KeptSplit | None,
    *,
    num_records: int | None,
    split: str,
    bands: Sequence[str] | None = None,
    mixer: MixerLike | None = None,
    kernel: Size | None = None,
) -> SplitPlaces:
    """The places of the patches of a split, and its bands.

    Args:
        features: the features of the version.
        kept_split: the facts of the export of this split, from the metadata of the version.
        num_records: number of records of the split; None if it is unknown.
        split: name of the split.
        bands: the bands to read, in this order; None reads all.
        mixer: replaces the mixer in the metadata.
        kernel: replaces the kernel size in the metadata.

    Raises:
        UsageError: the split holds no patches, or no such bands, or a record may lack one of them.
        ShardMismatchError: the mixer is of another export.
        PreparedFormatError: the stored places are malformed.
    """
    kept_split = kept_split or KeptSplit()
    if kept_split.is_table:
        raise UsageError(
            f"split {split} is a table, which does not have patches",
            hint="Read its rows: dataset.read(...).",
            details={"split": split},
        )
    found = None
    if mixer is not None:
        found = find_mixer(mixer, split=split)
    elif kept_split.mixer is not None:
        found = find_mixer(kept_split.mixer)
    kernel = kernel or (None if found is None else found.kernel) or kept_split.kernel
    known = _bands_of(features, kept_split, split)
    names = read_names(bands, "bands")
    chosen = known if names is None else _choose(known, names, is_collapsed=kept_split.collapsed is not None)
    _refuse_optional(features, chosen)
    found_mixer = None if found is None else found.mixer
    places = SplitPlaces(
        mixer=found_mixer,
        tile=None if kept_split.is_sequence else _tile_of(features, known, found_mixer, kernel, kept_split),
        patches=None if kept_split.patches is None else np.array(kept_split.patches, np.int64),
        bands=chosen,
        is_collapsed=kept_split.collapsed is not None and bool(known) and known[0].channels == kept_split.collapsed,
        is_sequence=kept_split.is_sequence,
    )
    if places.patches is not None and num_records is not None and num_records != places.patches.size:
        raise PreparedFormatError(
            f"split {split}: expected {places.patches.size:,} records as in the version's metadata, found "
            f"{num_records:,}",
            details={"key": "patches", "split": split},
        )
    if places.mixer is not None:
        _check_count(places.mixer, places, num_records, split)
    return places


def _check_count(mixer: Mixer, places: SplitPlaces, num_records: int | None, split: str) -> None:
    """Check that the split has as many records as the mixer has patches, or as are stored of them."""
    expected = mixer.total_patches if places.patches is None else places.patches.size
    expected *= mixer.patch.width * mixer.patch.height if places.is_sequence else 1
    is_beyond = places.patches is not None and bool((places.patches >= mixer.total_patches).any())
    if is_beyond or num_records not in (None, expected):
        raise ShardMismatchError(
            f"split {split}: expected {expected:,} records for the mixer's {mixer.total_patches:,} patches, found "
            f"{num_records or 0:,}",
            hint="Check that the mixer belongs to this export.",
            details={"expected": expected, "found": num_records},
        )


def _bands_of(features: FeaturesDict, kept_split: KeptSplit, split: str) -> tuple[ReadBand, ...]:
    """The bands in order."""
    names = [band.name for band in kept_split.bands if not band.is_series]
    if lost := [name for name in names if name not in features or not isinstance(features[name], Tensor)]:
        raise PreparedFormatError(
            f"band {lost[0]!r} of split {split} is in the version's metadata, but not in its examples",
            hint="Choose bands that the version has: bands=[...].",
            details={"key": "bands", "split": split},
        )
    if not kept_split.bands:  # nothing is kept: all that has the form of patches
        names = [name for name, feature in features.items() if isinstance(feature, Tensor) and _is_tile(feature)]
    result = []
    for name in names:
        shape = features[name].shape
        depth = int(shape[0] or 1) if len(shape) in (1, 3) else 1
        channels = (name,) if depth == 1 else tuple(f"{name}_{level}" for level in range(depth))
        if kept_split.collapsed is not None and len(kept_split.collapsed) == depth:
            channels = kept_split.collapsed
        result.append(ReadBand(feature=name, depth=depth, channels=channels))
    return tuple(result)


def _refuse_optional(features: FeaturesDict, bands: Sequence[ReadBand]) -> None:
    """Refuse bands that a record may lack: an array of patches would hold some number in their place."""
    optional = features.optional_paths()
    if lacking := [band.feature for band in bands if band.feature in optional]:
        others = [band.feature for band in bands if band.feature not in optional]
        raise UsageError(
            f"band {lacking[0]!r} is optional, but patches cannot represent a missing band",
            hint=f"Read the others: bands={others!r:.500}." if others else "Read it as a feature: dataset.read(...).",
            details={"option": "bands", "optional": lacking[:100]},
        )


def _is_tile(feature: Tensor) -> bool:
    return len(feature.shape) in (2, 3) and None not in feature.shape and feature.dtype.kind in "biuf"


def _choose(bands: Sequence[ReadBand], wanted: Sequence[str], *, is_collapsed: bool) -> tuple[ReadBand, ...]:
    """The bands of these names, in this order."""
    by_name = {band.feature: band for band in bands}
    if is_collapsed:
        hint = f"All its channels are in one feature: {', '.join(bands[0].channels[:20])}. Read all, and take some."
    else:
        hint = f"The bands are: {', '.join(list(by_name)[:20])}."
    if unknown := [name for name in wanted if name not in by_name]:
        raise UsageError(
            f"band {unknown[0]!r} does not exist",
            hint=hint,
            details={"option": "bands", "known": list(by_name)[:100]},
        )
    return tuple(by_name[name] for name in wanted)


def _tile_of(
    features: FeaturesDict, bands: Sequence[ReadBand], mixer: Mixer | None, kernel: Size | None, split: KeptSplit
) -> Tile:
    """The tile that all bands share."""
    shapes = {features[band.feature].shape[-2:] for band in bands}
    if len(shapes) != 1 or len(shape := next(iter(shapes))) != 2 or None in shape:
        raise UsageError(
            "this version has no patches: its bands do not share a height and width",
            hint="Import an Earth Engine export first: registry import earth-engine DIR",
        )
    size = Size(shape[1], shape[0])
    patch = mixer.patch if mixer is not None else split.patch or size
    return tile_of_array(size, patch, kernel, "the tiles")


def places_of_reader(
    reader: Reader, *, bands: Sequence[str] | None = None, mixer: MixerLike | None = None, kernel: Size | None = None
) -> tuple[KeptSplit | None, dict[str, SplitPlaces]]:
    """The facts of the first export that is read, and the places of each split; see ``places_of_split``."""
    metadata = reader.readable.facts.metadata.custom  # a pin records none
    if isinstance(mixer, Mapping) and METADATA_KEY in mixer:
        metadata, mixer = mixer, None
    kept = {split.name: KeptSplit.find(metadata, split.name) for split in reader.plan.splits}
    places = {
        split.name: places_of_split(
            reader.features,
            kept[split.name],
            num_records=split.shard_lengths.num_examples,
            split=split.name,
            bands=bands,
            mixer=mixer,
            kernel=kernel,
        )
        for split in reader.plan.splits
    }
    return next(iter(kept.values())), places


class ReadArguments(TypedDict, total=False):
    """Arguments of ``Dataset.read``, which describes them."""

    read_config: ReadConfig | None
    state: State | Sequence[State] | None
    process: tuple[int, int]
    verify: Verify
    copy: bool


def open_reader(
    source: Any,
    split: str | ReadInstruction | None,
    *,
    slicing: SlicingRule | str | None,
    rounding: str | None,
    **reading: Unpack[ReadArguments],
) -> Reader:
    """The reader of a published version or of a pin. A reader is returned as it is.

    Raises:
        UsageError: ``source`` is something else.
        The errors of ``Dataset.read``.
    """
    if isinstance(source, Reader):
        return source
    if not isinstance(source, SplitSource):
        raise UsageError(
            f"expected a published version or a pin, found {source!r:.60}",
            hint="Pass catalog.dataset('NAME'); to read a folder, use of_files('FOLDER').",
            details={"option": "source"},
        )
    part = source.slice_of(split, reading.get("read_config"), slicing=slicing, rounding=rounding)
    return Reader(part.readable, part.plan, **reading)
