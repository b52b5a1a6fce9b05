"""Exports a raster as Earth Engine does, in one call: patches, files, and the mixer."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from registry.builders.earth_engine.exporting.files import ExportFiles, check_image_prefix
from registry.builders.earth_engine.exporting.options import ExportOptions
from registry.builders.earth_engine.exporting.plan import ExportedBand, ExportPlan, plan_raster
from registry.builders.earth_engine.exporting.raster import ArrayRaster, Raster
from registry.builders.earth_engine.exporting.records import PatchRecord, iterate_patches
from registry.builders.earth_engine.grid import Grid, Size, Transform
from registry.builders.earth_engine.kinds import Kind
from registry.builders.earth_engine.mixer import Mixer
from registry.errors import RegistryWarning, UsageError
from registry.storage import Store, open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """An export that was written.

    Attributes:
        folder: path or URL of the folder.
        prefix: what the names of its files begin with.
        filenames: of the records, in order; none where every patch was left out.
        records: how many records each of them has.
        mixer: the sidecar's content, None without one: patches were, or might have been, left out.
        mixer_filename: its name.
        num_bytes: of all files.
        num_patches: of the grid.
        num_written: patches that were not left out.
        dropped: the patches that were left out, by their number in the grid, because too many pixels are masked.
        bands: in order, the mask band included.
        collapsed: the kind of the one feature of all bands, None where each has its own.
        sequence: whether a record is a pixel's SequenceExample.
        grid: the patches, with their margin.
        kernel: the kernel size of the export.
        size, transform, crs: of the raster.
    """

    folder: str
    prefix: str
    filenames: tuple[str, ...]
    records: tuple[int, ...]
    mixer: Mixer | None
    mixer_filename: str | None
    num_bytes: int
    num_patches: int
    num_written: int
    dropped: tuple[int, ...]
    bands: tuple[ExportedBand, ...]
    collapsed: Kind | None
    sequence: bool
    grid: Grid
    kernel: Size
    size: Size
    transform: Transform
    crs: str

    @property
    def num_records(self) -> int:
        """Records in all files."""
        return sum(self.records)

    @property
    def patches(self) -> tuple[int, ...] | None:
        """The patch of each one written, by its number in the grid; None where none is left out."""
        if not self.dropped:
            return None
        dropped = set(self.dropped)
        return tuple(index for index in range(self.num_patches) if index not in dropped)


def export_image(
    raster: Any,
    folder: str | os.PathLike[str] | Store,
    prefix: str,
    *,
    options: ExportOptions | None = None,
    overwrite: bool = False,
    advance: Callable[[int], None] | None = None,
    bands: Any = None,
    transform: Iterable[float] | None = None,
    crs: Any = None,
    nodata: Any = None,
    mask: Any = None,
    **named: Any,
) -> Exported:
    """Write the patches of a raster as TFRecord files, and the mixer that says where they lie.

    Memory is one row of patches with its margin, whatever the size of the raster.

    Args:
        raster: path of a GeoTIFF, an open dataset of rasterio, a ``Raster``, or numpy arrays as ``ArrayRaster`` takes.
        folder: where the files go: a path, URL or store; it need not exist.
        prefix: what their names begin with, such as ``training_patches``.
        options: all options at once; or give them by name, see ``ExportOptions``, or as Earth Engine calls them.
        overwrite: replace an export of this prefix, when the new one is complete.
        advance: called with the number of patches that are done since the last call.
        bands: of a GeoTIFF: which bands, in which order, see ``GeoTiffRaster``.
        transform: of arrays; of a GeoTIFF instead of its own.
        crs: of arrays; of a GeoTIFF instead of its own.
        nodata: the number that means no data, of arrays, see ``ArrayRaster``; of a GeoTIFF beside its own.
        mask: of arrays: True where masked.
        **named: options by name.

    Raises:
        UsageError: options that contradict each other or the raster, no place on the map, no whole patch.
        FeatureError: a band of numbers that are no pixels.
        AlreadyStoredError: there is an export of this prefix, and ``overwrite`` is False.
        StorageError: a file cannot be read or written. Nothing of the export is left then, as after Ctrl-C.
        MissingExtraError: a GeoTIFF, and rasterio is not installed.

    >>> import numpy as np
    >>> exported = export_image(
    ...     {"b1": np.zeros((5, 7), "uint8")}, "memory://docs", "zeros", patchDimensions=[2, 2],
    ...     transform=(30, 0, 500000, 0, -30, 4100000), crs="EPSG:32610")
    >>> exported.filenames, exported.mixer_filename, exported.num_written
    (('zeros-00000.tfrecord.gz',), 'zeros-mixer.json', 6)
    """
    check_image_prefix(prefix)
    chosen = read_options(options, named)
    store = folder if isinstance(folder, Store) else open_store(folder)
    with open_raster(raster, bands=bands, transform=transform, crs=crs, nodata=nodata, mask=mask) as source:
        plan = plan_raster(source, chosen)
        return _write(source, plan, store, prefix, overwrite=overwrite, advance=advance)


def plan_export(
    raster: Any,
    *,
    options: ExportOptions | None = None,
    bands: Any = None,
    transform: Iterable[float] | None = None,
    crs: Any = None,
    nodata: Any = None,
    mask: Any = None,
    **named: Any,
) -> ExportPlan:
    """What ``export_image`` would write: patches, bands with their kinds, bytes of a record, number of files.

    Arguments and errors are those of ``export_image``; no pixel of a GeoTIFF is read.
    """
    chosen = read_options(options, named)
    with open_raster(raster, bands=bands, transform=transform, crs=crs, nodata=nodata, mask=mask) as source:
        return plan_raster(source, chosen)


def read_options(options: ExportOptions | None, named: Mapping[str, Any]) -> ExportOptions:
    """The options, given at once or by name. Raises UsageError where both ways are used."""
    if options is None:
        return ExportOptions.of(named)
    if named:
        raise UsageError(
            f"options are given at once, and {', '.join(sorted(named))} by name",
            hint="Give them one way: ExportOptions(...), or by name.",
            details={"options": sorted(named)},
        )
    return options


@contextmanager
def open_raster(
    raster: Any,
    *,
    bands: Any = None,
    transform: Iterable[float] | None = None,
    crs: Any = None,
    nodata: Any = None,
    mask: Any = None,
) -> Iterator[Raster]:
    """What ``export_image`` is given as a raster, as one; what is opened here is closed again."""
    is_file = isinstance(raster, str | os.PathLike) or hasattr(raster, "read_masks")
    more = {"bands": bands, "transform": transform, "crs": crs, "nodata": nodata, "mask": mask}
    if is_file:
        from registry.builders.earth_engine.exporting.geotiff_raster import GeoTiffRaster

        if mask is not None:
            raise _not_of("mask", "a GeoTIFF, which has masks of its own")
        with GeoTiffRaster(raster, bands=bands, transform=transform, crs=crs, nodata=nodata) as opened:
            yield opened
    elif isinstance(raster, Raster):
        for name, value in more.items():
            if value is not None:
                raise _not_of(name, f"a {type(raster).__name__}, which has its own")
        yield raster
    else:
        if bands is not None:
            raise _not_of("bands", "arrays: give those that are wanted")
        for name in ("transform", "crs"):
            if more[name] is None:
                raise UsageError(
                    f"no {name}: arrays do not tell where on the map they are",
                    hint="Give transform=(xScale, xShear, xTranslate, yShear, yScale, yTranslate) and crs='EPSG:...'.",
                    details={"option": name},
                )
        yield ArrayRaster(raster, transform=transform or (), crs=crs, nodata=nodata, mask=mask)


def _not_of(name: str, what: str) -> UsageError:
    return UsageError(f"{name} is not for {what}", hint=f"Leave {name} out.", details={"option": name})


def _write(
    raster: Raster,
    plan: ExportPlan,
    store: Store,
    prefix: str,
    *,
    overwrite: bool,
    advance: Callable[[int], None] | None,
) -> Exported:
    options, mixer = plan.options, plan.mixer
    dropped: list[int] = []
    done = 0
    with ExportFiles(
        store, prefix, compressed=options.compressed, max_file_size=options.max_file_size, overwrite=overwrite
    ) as files:
        for patch, record in _iterate_records(raster, plan):
            files.write(record)
            if patch >= done:  # its first record
                dropped.extend(range(done, patch))
                if advance is not None:
                    advance(patch + 1 - done)
                done = patch + 1
        dropped.extend(range(done, plan.grid.num_patches))
        if advance is not None and done < plan.grid.num_patches:
            advance(plan.grid.num_patches - done)
        found = files.commit(None if mixer is None else mixer.to_json().encode())
    if not found.filenames:
        warnings.warn(
            f"all {plan.grid.num_patches} patches of {prefix!r} have more masked pixels than masked_threshold allows; "
            "no file was written",
            RegistryWarning,
            stacklevel=3,
        )
    return Exported(
        folder=store.url if store.local_root is None else str(store.local_root),
        prefix=prefix,
        filenames=found.filenames,
        records=found.records,
        mixer=mixer,
        mixer_filename=found.mixer,
        num_bytes=found.num_bytes,
        num_patches=plan.grid.num_patches,
        num_written=plan.grid.num_patches - len(dropped),
        dropped=tuple(dropped),
        bands=plan.bands,
        collapsed=plan.collapsed,
        sequence=options.sequence_data,
        grid=plan.grid,
        kernel=options.kernel_size,
        size=plan.size,
        transform=plan.transform,
        crs=plan.crs,
    )


def _iterate_records(raster: Raster, plan: ExportPlan) -> Iterator[PatchRecord]:
    if plan.options.sequence_data:
        from registry.builders.earth_engine.exporting.records import iterate_sequences

        return iterate_sequences(raster, plan)
    return iterate_patches(raster, plan)
