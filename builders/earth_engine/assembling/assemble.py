"""Brings predictions back to the map with the mixer of their export: as a GeoTIFF, numpy arrays or for xarray.

    assemble("predictions/", "patches-mixer.json", "classes.tif", nodata=0)
    assemble((model.predict(batch) for batch in batches), "patches-mixer.json", bands=["class"]).to_array()

The predictions have the order and the number of the patches of the export, in any number of files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, TypeAlias

from registry.builders.earth_engine.assembling.assembly import Assembly
from registry.builders.earth_engine.assembling.patches import ArrayPatches, Layout, RecordPatches, check_iterable
from registry.builders.earth_engine.exporting.options import read_raster_size, read_size
from registry.builders.earth_engine.stored.found_files import FoundExport, find_export
from registry.builders.earth_engine.stored.kept_split import FoundMixer, MixerLike, find_mixer, read_mixer_file
from registry.errors import PreparedFormatError, UsageError
from registry.storage import Store, open_store

_MIXER = re.compile(r"(.*?)-?mixer\.json", re.I | re.S)


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
            their order. Or an iterable of arrays: see ``patches``. Patches may have a margin or none.
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
        nodata: the number in the raster that means no value.
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


def to_xarray(
    predictions: Any,
    mixer: MixerLike | None = None,
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
) -> Any:
    """The raster that predictions make, as a DataArray; all of it in memory. Arguments as ``assemble``.

    Returns:
        A DataArray of dims (band, y, x). ``band`` has the names. ``x`` and ``y`` are the centres of the pixels; where
        the raster is turned or sheared they depend on both, and are coordinates ``xc`` and ``yc`` of dims (y, x), as
        rioxarray names them. ``attrs`` has ``crs`` (text), ``transform`` (six numbers) and, if there is one,
        ``nodata``. Where rioxarray is installed, ``.rio.crs`` and ``.rio.transform()`` say the same.

    Raises:
        MissingExtraError: xarray is not installed.
        Otherwise as ``assemble`` and ``Assembly.rows``.
    """
    return assemble(
        predictions,
        mixer,
        prefix=prefix,
        split=split,
        bands=bands,
        kernel_size=kernel_size,
        tensor_depths=tensor_depths,
        dtypes=dtypes,
        names=names,
        nodata=nodata,
        crs=crs,
        size=size,
        layout=layout,
        sequence=sequence,
    ).to_xarray()


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


Files: TypeAlias = Sequence[tuple[Store, str]]


def is_path(value: Any) -> bool:
    """Whether it is a path or URL, and not patches."""
    return isinstance(value, str | PathLike)


def are_files(value: Any) -> bool:
    """Whether it names files: a path, a list of paths, or an export that was found."""
    if is_path(value) or isinstance(value, FoundExport):
        return True
    return isinstance(value, list | tuple) and bool(value) and all(map(is_path, value))


def find_files(source: Any, *, prefix: str | None = None) -> tuple[Files, FoundMixer | None]:
    """The files that a folder, a prefix, a file or a list of files names, and the mixer beside them if there is one.

    A folder, a file of an export, or the beginning of a path that an export's files have, is searched: files are
    ordered by their numbers, and none may be missing. A list is taken as it is; a mixer may be among it.

    Raises:
        PreparedFormatError: no files, lost ones, doubled ones.
        UsageError: several exports in one folder, several mixers in a list, or ``prefix`` with a list.
        StorageError: the folder cannot be read.
    """
    if not isinstance(source, FoundExport) and not is_path(source):
        if prefix is not None:
            raise UsageError(
                "prefix says which files of a folder are meant, and here files are listed",
                hint="Leave prefix out, or give the folder.",
                details={"option": "prefix"},
            )
        listed = [split_path(fspath(path)) for path in source]
        files = [(store, name) for store, name in listed if not _MIXER.fullmatch(name)]
        mixers = [(store, name) for store, name in listed if _MIXER.fullmatch(name)]
        if not files or len(mixers) > 1:
            raise UsageError(
                f"the list holds {len(mixers)} mixers" if files else "the list holds no file of records",
                hint="List the files of one export in their order, with its mixer or without.",
                details={"files": [store.locate(name) for store, name in listed[:100]]},
            )
        return files, read_mixer_file(*mixers[0]) if mixers else _mixer_beside(*files[0])
    found = source if isinstance(source, FoundExport) else _find(fspath(source), prefix)
    mixer = None if found.mixer_name is None else read_mixer_file(found.store, found.mixer_name)
    return [(found.store, name) for name in found.filenames], mixer


def split_path(text: str) -> tuple[Store, str]:
    """The folder of a file, and its name.

    Raises:
        PreparedFormatError: the path ends with a slash.
    """
    if "://" not in text:
        text = os.path.expanduser(text)  # noqa: PTH111 - text stays text: "~" of nobody is a name, and no error
    folder, slash, name = text.rpartition("/")
    if not name:
        raise PreparedFormatError(f"{text!r} names a folder, and no file", details={"path": text})
    return open_store(folder + slash if folder in ("", "file://") and slash else folder or "."), name


def _find(text: str, prefix: str | None) -> FoundExport:
    if prefix is None and not text.endswith("/"):
        store, name = split_path(text)
        if not store.exists(name) and any(file.startswith(name) for file in store.list() if "/" not in file):
            return find_export(store, prefix=name.removesuffix("-"))
    return find_export(text, prefix=prefix)


def _mixer_beside(store: Store, filename: str) -> FoundMixer | None:
    """The mixer that lies beside a file and begins as its name does; of several, the one of the longest prefix."""
    folder, slash, last = filename.rpartition("/")
    known = [
        (match[1], name)
        for name in store.list(folder)
        if (match := _MIXER.fullmatch(name.removeprefix(folder + slash))) and last.startswith(match[1])
    ]
    return read_mixer_file(store, max(known)[1]) if known else None
