"""Assembles predictions with the mixer of their export into a GeoTIFF, numpy arrays or a DataArray.

    assemble("predictions/", "patches-mixer.json", "classes.tif", nodata=0)
    assemble((model.predict(batch) for batch in batches), "patches-mixer.json", bands=["class"]).to_array()

Predictions must have the order and number of the export's patches, in any number of files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeAlias

from registry.builders.earth_engine.assembling.assembly import Assembly
from registry.builders.earth_engine.assembling.patches import ArrayPatches, Layout, RecordPatches, check_iterable
from registry.builders.earth_engine.exporting.options import read_names, read_raster_size, read_size
from registry.builders.earth_engine.stored.found_files import MIXER, FoundExport, find_export
from registry.builders.earth_engine.stored.kept_split import FoundMixer, MixerLike, find_mixer, read_mixer_file
from registry.errors import PreparedFormatError, UsageError
from registry.storage import Store, open_parent

if TYPE_CHECKING:
    from registry.builders.earth_engine.assembling.geotiff import GeoTiffArguments


def assemble(
    predictions: Any,
    mixer: MixerLike | None = None,
    output: str | PathLike[str] | None = None,
    *,
    prefix: str | None = None,
    split: str | None = None,
    bands: Sequence[str] | None = None,
    kernel_size: Any = None,
    tensor_depths: Mapping[str, int] | None = None,
    dtypes: Any = None,
    names: Sequence[str] | None = None,
    nodata: float | None = None,
    crs: Any = None,
    size: Any = None,
    layout: Layout | None = None,
    sequence: bool | None = None,
    compress: str = "deflate",
    predictor: int | None = None,
    block: int = 256,
    overwrite: bool = False,
    advance: Callable[[int], None] | None = None,
) -> Assembly:
    """Assemble patches into a georeferenced raster, and write it to the GeoTIFF ``output`` if it is not None.

    Args:
        predictions: TFRecords: a folder, one file of an export, the common prefix of its paths, or a list of files in
            order. Or an iterable of arrays of shape (H, W), (C, H, W) or (H, W, C), of batches of them, or of mappings
            of band to array. Patches may include the margin.
        mixer: the mixer of the export as a path, JSON text, document or Mixer; or the imported version, or its
            metadata. None uses the mixer next to the files.
        output: path of the GeoTIFF, or None.
        prefix: prefix of the export, if the folder contains several.
        split: the split whose mixer to use, if the version has several.
        bands: the features to use, in order. None uses all, in the order of the imported version, else sorted. For
            arrays, the names of their bands.
        kernel_size: width and height in pixels of the export's kernel; required if the margin is ambiguous.
        tensor_depths: depth of each array band, also of a collapsed export's single feature.
        dtypes: the dtype of the raster, or a mapping of band to dtype.
        names: names of the raster's bands, in order.
        nodata: the pixel value that means no data.
        crs: replaces the CRS of the mixer; any value that rasterio accepts.
        size: width and height of the raster in pixels, if it was exported with ``edge="pad"``, to cut off the padding.
            No file contains it; ``Exported.size`` does.
        layout: the axes of one patch in an array: ``"HW"``, ``"CHW"`` or ``"HWC"``.
        sequence: whether each record is a pixel; None infers it.
        compress: compression of the GeoTIFF: ``"deflate"``, ``"lzw"``, ``"zstd"`` or ``"none"``.
        predictor: 1, 2 or 3, see ``create_geotiff``.
        block: side of the GeoTIFF's tiles in pixels, a multiple of 16.
        overwrite: replace ``output`` if it exists.
        advance: called with the number of patches written since the last call.

    Returns:
        The raster, which is read when its rows or arrays are requested.

    Raises:
        ShardMismatchError: the number of patches differs from the mixer, or patches differ in size.
        UsageError: the mixer is missing, or options contradict the patches.
        FeatureError: a value does not fit the dtype of its band.
        PreparedFormatError: files are missing or duplicated, or the mixer is malformed.
        CorruptRecordError, CorruptExampleError: a record is damaged; the error names file and record.
        AlreadyStoredError: ``output`` exists, and ``overwrite`` is False.
        MissingExtraError: rasterio is not installed.
    """
    geotiff: GeoTiffArguments = {
        "compress": compress,
        "predictor": predictor,
        "block": block,
        "overwrite": overwrite,
    }
    if output is not None:  # fail before the model runs for hours
        from registry.builders.earth_engine.assembling.geotiff import check_output

        check_output(output, **geotiff)
    found, beside = None if mixer is None else find_mixer(mixer, split=split), None
    patches: RecordPatches | ArrayPatches
    files: Any = ()
    if are_files(predictions):
        files, beside = find_files(predictions, prefix=prefix)
    elif prefix is not None:
        raise UsageError(
            "prefix does not apply to arrays",
            hint="Remove prefix, or pass the folder of TFRecords.",
            details={"option": "prefix"},
        )
    found = found or beside
    if found is None:
        raise UsageError(
            "the mixer is missing, so the places of the patches are unknown",
            hint="Give the mixer of the export: mixer='PREFIX-mixer.json'; --mixer PREFIX-mixer.json.",
            details={"option": "mixer"},
        )
    depths = dict(tensor_depths or {})
    bands, names = read_names(bands, "bands"), read_names(names, "names")
    if files:
        patches = RecordPatches(files=files, patch=found.mixer.patch, bands=bands, sequence=sequence)
    else:
        array_bands = {**found.depths, **depths}
        patches = ArrayPatches(
            items=check_iterable(predictions),
            bands=bands,
            depths=array_bands,
            layout=layout,
            channels=getattr(predictions, "channels", ()),  # of Patches
        )
    assembly = Assembly(
        patches,
        found,
        bands=bands,
        kernel=found.kernel if kernel_size is None else read_size(kernel_size, "kernel_size", least=0),
        depths=depths,
        dtypes=dtypes,
        names=names,
        nodata=nodata,
        crs=crs,
        size=None if size is None else read_raster_size(size),
    )
    if output is not None:
        assembly.write_geotiff(output, advance=advance, **geotiff)
    return assembly


Files: TypeAlias = Sequence[tuple[Store, str]]


def is_path(value: Any) -> bool:
    """Whether ``value`` is a path or URL."""
    return isinstance(value, str | PathLike)


def are_files(value: Any) -> bool:
    """Whether ``value`` names files: a path, a list of paths, or a ``FoundExport``."""
    if is_path(value) or isinstance(value, FoundExport):
        return True
    return isinstance(value, list | tuple) and bool(value) and all(map(is_path, value))


def find_files(source: Any, *, prefix: str | None = None) -> tuple[Files, FoundMixer | None]:
    """Find the files of predictions, and the mixer next to them or None.

    A folder, one file or a common prefix of paths is searched for a complete export. A list of files is used in its
    order; it may contain a mixer.

    Raises:
        PreparedFormatError: there are no files, or files are missing or duplicated.
        UsageError: a folder contains several exports, a list contains several mixers, or ``prefix`` was passed with a
            list.
        StorageError: the folder cannot be read.
    """
    if not isinstance(source, FoundExport) and not is_path(source):
        if prefix is not None:
            raise UsageError(
                "prefix does not apply to a list of files",
                hint="Remove prefix, or pass the folder.",
                details={"option": "prefix"},
            )
        if folders := [fspath(path) for path in source if fspath(path).endswith("/")]:
            raise PreparedFormatError(f"expected a file, found the folder {folders[0]!r}", details={"path": folders[0]})
        listed = [open_parent(path) for path in source]
        files = [(store, name) for store, name in listed if not MIXER.fullmatch(name)]
        mixers = [(store, name) for store, name in listed if MIXER.fullmatch(name)]
        if not files or len(mixers) > 1:
            raise UsageError(
                f"the list contains {len(mixers)} mixers" if files else "the list contains no TFRecord file",
                hint="List the files of one export in order, with or without its mixer.",
                details={"files": [store.locate(name) for store, name in listed[:100]]},
            )
        return files, read_mixer_file(*mixers[0]) if mixers else _mixer_beside(*files[0])
    result = source if isinstance(source, FoundExport) else _find(fspath(source), prefix)
    mixer = None if result.mixer_name is None else read_mixer_file(result.store, result.mixer_name)
    return [(result.store, name) for name in result.filenames], mixer


def _find(text: str, prefix: str | None) -> FoundExport:
    if prefix is None and not text.endswith("/"):
        store, name = open_parent(text)
        if not store.exists(name) and any(file.startswith(name) for file in store.list() if "/" not in file):
            return find_export(store, prefix=name.removesuffix("-"))
    return find_export(text, prefix=prefix)


def _mixer_beside(store: Store, filename: str) -> FoundMixer | None:
    """Return the mixer next to a file whose prefix matches the file name. The longest prefix wins."""
    folder, slash, last = filename.rpartition("/")
    known = [
        (match["prefix"], name)
        for name in store.list(folder)
        if (match := MIXER.fullmatch(name.removeprefix(folder + slash))) and last.startswith(match["prefix"])
    ]
    return read_mixer_file(store, max(known)[1]) if known else None
