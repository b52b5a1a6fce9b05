"""Exports a raster in one call: it plans the export (``plan``), encodes records (``records``) and writes ``files``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, TypedDict, Unpack

from registry.builders.earth_engine.exporting.files import ExportFiles, check_image_prefix
from registry.builders.earth_engine.exporting.options import Edge, ExportOptions, Masked
from registry.builders.earth_engine.exporting.plan import ExportPlan, plan_raster
from registry.builders.earth_engine.exporting.raster import ArrayRaster, Raster
from registry.builders.earth_engine.exporting.records import PatchRecord, iterate_patches
from registry.builders.earth_engine.kinds import Encoding
from registry.errors import RegistryWarning, UsageError
from registry.storage import Store, open_store


@dataclass(frozen=True, kw_only=True)
class Exported(ExportPlan):
    """What ``export_image`` wrote: the plan, and the files.

    Attributes:
        folder: path or URL of the folder.
        prefix: prefix of the files.
        filenames: names of the TFRecord files, in order; empty if all patches were dropped.
        records: number of records in each file.
        mixer_filename: name of the mixer's file, or None.
        num_bytes: bytes of all files as stored.
        dropped: indexes in the grid of the patches that were dropped because too many pixels are masked.
    """

    folder: str
    prefix: str
    filenames: tuple[str, ...]
    records: tuple[int, ...]
    mixer_filename: str | None
    num_bytes: int
    dropped: tuple[int, ...]

    @property
    def num_records(self) -> int:
        """Number of records in all files."""
        return sum(self.records)

    @property
    def num_patches(self) -> int:
        """Number of patches in the grid."""
        return self.grid.num_patches

    @property
    def num_written(self) -> int:
        """Number of patches written."""
        return self.num_patches - len(self.dropped)

    @property
    def patches(self) -> tuple[int, ...] | None:
        """Indexes in the grid of the patches that were written; None if no patch was dropped."""
        if not self.dropped:
            return None
        dropped = set(self.dropped)
        return tuple(index for index in range(self.num_patches) if index not in dropped)


class RasterArguments(TypedDict, total=False):
    """Arguments that describe a raster; see ``export_image``."""

    bands: Any
    transform: Iterable[float] | None
    crs: Any
    nodata: Any
    mask: Any


class ExportArguments(RasterArguments, total=False):
    """The keywords of ``export_image``: those of the raster, and the fields of ``ExportOptions``."""

    patch_dimensions: int | Sequence[int] | None
    kernel_size: int | Sequence[int] | None
    compressed: bool | None
    max_file_size: int | None
    default_value: float | None
    tensor_depths: Mapping[str, int] | None
    sequence_data: bool | None
    collapse_bands: bool | None
    masked_threshold: float | None
    encoding: Encoding | None
    masked: Masked | None
    mask_band: str | None
    edge: Edge | None


def export_image(
    raster: Any,
    folder: str | os.PathLike[str] | Store,
    prefix: str,
    *,
    options: ExportOptions | Mapping[str, Any] | None = None,
    overwrite: bool = False,
    advance: Callable[[int], None] | None = None,
    **keywords: Unpack[ExportArguments],
) -> Exported:
    """Write the patches of a raster as TFRecord files, and the mixer that locates them.

    The files follow Earth Engine's guide to TFRecord. One row of patches with its margin is in memory at a time.

    Args:
        raster: path of a GeoTIFF, an open dataset of rasterio, a ``Raster``, or numpy arrays (see ``ArrayRaster``).
        folder: path, URL or store to write to; it is created if it does not exist.
        prefix: prefix of the files, such as ``training_patches``.
        options: all options as one value: an ``ExportOptions``, or a mapping such as the ``formatOptions`` of Earth
            Engine's clients, whose camelCase names are accepted. Use it instead of the keywords from
            ``patch_dimensions`` on.
        overwrite: replace an export with this prefix once the new one is complete.
        advance: called with the number of patches done since the last call.
        bands: for a GeoTIFF: the bands to write, see ``GeoTiffRaster``.
        transform: (xScale, xShear, xTranslate, yShear, yScale, yTranslate), required for arrays; replaces the
            transform of a GeoTIFF.
        crs: the coordinate reference system, required for arrays; replaces the CRS of a GeoTIFF.
        nodata: a number that means no data, see ``ArrayRaster``; for a GeoTIFF in addition to its own.
        mask: for arrays: True where masked, see ``ArrayRaster``.
        patch_dimensions: width and height of a patch in pixels; default 256 x 256. This option and the next ones are
            described at ``ExportOptions``; None means the default.
        kernel_size: width and height in pixels of the kernel that determines the margin; default 1 x 1, no margin.
        compressed: compress with gzip; default True.
        max_file_size: maximum bytes of a file before compression; default 1 GiB.
        default_value: the value of pixels that are masked or outside the raster; default 0.
        tensor_depths: number of elements of each array band, by band name.
        sequence_data: write a SequenceExample for each pixel; default False.
        collapse_bands: write all bands to one feature; default False.
        masked_threshold: drop patches with a larger share of masked pixels; default 1.
        encoding: ``"float"`` (default) or ``"native"``.
        masked: ``"band"`` (default) or ``"pixel"``.
        mask_band: name of an additional band with the mask.
        edge: ``"drop"`` (default) or ``"pad"`` for incomplete patches.

    Returns:
        What was written: files, mixer, grid and bands.

    Raises:
        UsageError: an option is invalid or contradicts another one or the raster, the transform or CRS is missing, or
            the raster is smaller than a patch.
        FeatureError: a band has a dtype or shape that cannot be exported, or a number exceeds int64.
        AlreadyStoredError: an export with this prefix exists, and ``overwrite`` is False.
        StorageError: a file cannot be read or written. No file of the export is left then, nor after Ctrl-C.
        MissingExtraError: reading a GeoTIFF requires rasterio, which is not installed.

    >>> import numpy as np
    >>> exported = export_image(
    ...     {"b1": np.zeros((5, 7), "uint8")}, "memory://docs", "zeros", patch_dimensions=[2, 2],
    ...     transform=(30, 0, 500000, 0, -30, 4100000), crs="EPSG:32610")
    >>> exported.filenames, exported.mixer_filename, exported.num_written
    (('zeros-00000.tfrecord.gz',), 'zeros-mixer.json', 6)
    """
    check_image_prefix(prefix)
    named: dict[str, Any] = {name: value for name, value in keywords.items() if value is not None}
    about = {name: named.pop(name) for name in RasterArguments.__annotations__ if name in named}
    chosen = read_options(options, named)
    store = folder if isinstance(folder, Store) else open_store(folder)
    with open_raster(raster, about) as source:
        plan = plan_raster(source, chosen)
        return _write(source, plan, store, prefix, overwrite=overwrite, advance=advance)


def plan_export(
    raster: Any,
    options: ExportOptions | Mapping[str, Any] | None = None,
    **about: Unpack[RasterArguments],
) -> ExportPlan:
    """Plan an export without reading pixels: patches, bands, bytes of a record, number of files.

    The arguments are described at ``export_image``.

    Raises:
        UsageError: an option is invalid or contradicts another one or the raster, the transform or CRS is missing, or
            the raster is smaller than a patch.
        FeatureError: a band has a dtype that cannot be exported.
        StorageError: the file cannot be opened.
        MissingExtraError: reading a GeoTIFF requires rasterio, which is not installed.
    """
    chosen = read_options(options, {})
    with open_raster(raster, {name: value for name, value in about.items() if value is not None}) as source:
        return plan_raster(source, chosen)


def read_options(options: ExportOptions | Mapping[str, Any] | None, named: Mapping[str, Any]) -> ExportOptions:
    """Return the options from one value or from keywords.

    Raises UsageError if both are used, or an option is unknown or invalid.
    """
    if options is None:
        return ExportOptions.of(named)
    if named:
        raise UsageError(
            f"expected either options or keywords, found options and {', '.join(sorted(named))}",
            hint=f"Move {', '.join(sorted(named))} to options, or pass every option as a keyword.",
            details={"options": sorted(named)},
        )
    return options if isinstance(options, ExportOptions) else ExportOptions.of(options)


@contextmanager
def open_raster(raster: Any, about: Mapping[str, Any]) -> Iterator[Raster]:
    """Open the ``raster`` argument of ``export_image`` with the ``RasterArguments`` that are not None.

    A file that is opened here is closed at the end.
    """
    if isinstance(raster, str | os.PathLike) or hasattr(raster, "read_masks"):
        from registry.builders.earth_engine.exporting.geotiff_raster import GeoTiffRaster

        if "mask" in about:
            raise _not_of("mask", "a GeoTIFF, which contains its masks")
        with GeoTiffRaster(raster, **about) as opened:
            yield opened
    elif isinstance(raster, Raster):
        for name in about:
            raise _not_of(name, f"a {type(raster).__name__}, which has its own")
        yield raster
    else:
        if "bands" in about:
            raise _not_of("bands", "arrays: pass only the bands to write")
        for name in ("transform", "crs"):
            if name not in about:
                raise UsageError(
                    f"{name} is required for arrays, because they have no place on the map",
                    hint="For example: transform=(30, 0, 500000, 0, -30, 4100000), crs='EPSG:32610'.",
                    details={"option": name},
                )
        yield ArrayRaster(raster, **about)


def _not_of(name: str, subject: str) -> UsageError:
    return UsageError(f"{name} does not apply to {subject}", hint=f"Remove {name}.", details={"option": name})


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
        result = files.commit(None if mixer is None else mixer.to_json().encode())
    if not result.filenames:
        warnings.warn(
            f"all {plan.grid.num_patches} patches of {prefix!r} have more masked pixels than masked_threshold allows; "
            "no file was written",
            RegistryWarning,
            stacklevel=3,
        )
    return Exported(
        **{field.name: getattr(plan, field.name) for field in fields(plan)},
        folder=store.url if store.local_root is None else str(store.local_root),
        prefix=prefix,
        filenames=result.filenames,
        records=result.records,
        mixer_filename=result.mixer,
        num_bytes=result.num_bytes,
        dropped=tuple(dropped),
    )


def _iterate_records(raster: Raster, plan: ExportPlan) -> Iterator[PatchRecord]:
    if plan.options.sequence_data:
        from registry.builders.earth_engine.exporting.records import iterate_sequences

        return iterate_sequences(raster, plan)
    return iterate_patches(raster, plan)
