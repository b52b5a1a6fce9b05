"""How do predictions come back to the map? With the mixer of their export: patches to a GeoTIFF, numpy or xarray.

    assemble("predictions/", "patches-mixer.json", "classes.tif", nodata=0)
    assemble((model.predict(batch) for batch in batches), "patches-mixer.json", bands=["class"]).to_array()

The order and the number of the patches are those of the export, in any number of files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

from registry.builders.earth_engine.assembling.assembly import Assembly
from registry.builders.earth_engine.assembling.patch_arrays import ArrayPatches, Layout, check_iterable
from registry.builders.earth_engine.assembling.patch_files import are_files, find_files
from registry.builders.earth_engine.assembling.patch_records import RecordPatches
from registry.builders.earth_engine.exporting.options import read_raster_size, read_size
from registry.builders.earth_engine.places.mixer_source import MixerLike, find_mixer
from registry.errors import UsageError


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
    """Put patches together to the raster that they were cut out of; written to ``output``, a GeoTIFF, if it is given.

    Args:
        predictions: TFRecords: a folder, a file of an export, the beginning of its files' paths, or a list of files in
            their order. Or an iterable of arrays: see ``patch_arrays``. Patches may have a margin or none.
        mixer: of the export that the predictions are of, as a path, text, document or Mixer, or the published version
            that was imported, or its metadata; None takes the one beside the files.
        output: path of the GeoTIFF; None writes none.
        prefix: which files of a folder are meant, where it holds several exports.
        split: which mixer of a version's is meant, where it has several.
        bands: features that are taken, in their order; None takes all, in the order that a published version keeps,
            else sorted. For arrays of several bands, their names.
        kernel_size: that the patches were exported with; needed where the margin cannot be told from the number of
            values.
        tensor_depths: depth of each array band, also of the one feature that a collapsed export has.
        dtypes: one dtype, or one for each band by its name, that int64 or other values are brought to.
        names: of the raster's bands, in their order.
        nodata: the number in the raster that stands for no value.
        crs: instead of the mixer's: anything that rasterio takes.
        size: width and height of the raster, where its last patches were filled up (``edge="pad"``): what was filled is
            cut off. No file tells it; ``Exported.size`` does.
        layout: how the axes of an array's patch lie, ``"HW"``, ``"CHW"`` or ``"HWC"``.
        sequence: whether each record is a pixel; None looks.
        compress: of the GeoTIFF, ``"deflate"``, ``"lzw"``, ``"zstd"`` or ``"none"``.
        predictor: of its compression, see ``create_geotiff``.
        block: side of its tiles.
        overwrite: replace a file of that name.
        advance: called with the number of patches that were written.

    Raises:
        ShardMismatchError: not as many patches as the mixer says, or patches of unequal size.
        UsageError: no mixer, or options that the patches contradict.
        FeatureError: a value that its band cannot hold.
        PreparedFormatError: no such files, lost or doubled ones, or a malformed mixer.
        CorruptRecordError, CorruptExampleError: a damaged record, by its file and number.
        AlreadyStoredError: ``output`` is there already.
        MissingExtraError: rasterio is not installed.
    """
    if output is not None:  # before hours of a model's work
        from registry.builders.earth_engine.assembling.geotiff import check_output

        check_output(output, compress=compress, predictor=predictor, block=block, overwrite=overwrite)
    found, beside = None if mixer is None else find_mixer(mixer, split=split), None
    patches: RecordPatches | ArrayPatches
    files: Any = ()
    if are_files(predictions):
        files, beside = find_files(predictions, prefix=prefix)
    elif prefix is not None:
        raise UsageError(
            "prefix says which files of a folder are meant, and here are arrays",
            hint="Leave prefix out, or give the folder.",
            details={"option": "prefix"},
        )
    found = found or beside
    if found is None:
        raise UsageError(
            "there is no mixer, which says where the patches lie",
            hint="Give the <prefix>-mixer.json that was exported with the patches: mixer=...; --mixer FILE.",
            details={"option": "mixer"},
        )
    depths = dict(tensor_depths or {})
    _check_names("bands", bands)
    _check_names("names", names)
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
        assembly.write_geotiff(
            output, compress=compress, predictor=predictor, block=block, overwrite=overwrite, advance=advance
        )
    return assembly


def _check_names(option: str, names: Any) -> None:
    """Names are a list of different texts, and not one text, which is a list of letters."""
    if names is None:
        return
    given = [] if isinstance(names, str) else list(names)
    if not given or not all(isinstance(name, str) and name for name in given) or len(set(given)) != len(given):
        raise UsageError(
            f"{option} cannot be {names!r:.60}: it is a list of names, each of them once",
            hint=f"Write {option}=['red', 'green'].",
            details={"option": option},
        )
