"""Writes a raster to a GeoTIFF row by row: each block once, under a temporary name until the file is on disk.

Rows of patches rarely coincide with rows of blocks, so rows are buffered until a row of blocks is complete. A block
that is written twice would be compressed twice, and the file would keep both versions.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final, TypedDict

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.grid import Size, Transform
from registry.engines import num_cpus
from registry.errors import AlreadyStoredError, StorageError, UsageError, require_extra
from registry.storage import LocalStore

COMPRESSIONS: Final = ("deflate", "lzw", "zstd", "none")
PREDICTORS: Final = (1, 2, 3)

_OTHERS: Final = frozenset(
    {".csv", ".geojson", ".gz", ".img", ".jpeg", ".jpg", ".json", ".nc", ".npy", ".png", ".vrt", ".zarr"}
)
"""Suffixes of other formats."""

_MOST_PIXELS: Final = 2**31 - 1
"""Of a side of the raster."""

_MOST_BANDS: Final = 2**16 - 1

_CRS_TEXT = re.compile(r"""\s*(\w+\s*\[ | [{+] | \w+=  | [\w-]+ (::?[\w.,+-]+)* \s*\Z)""", re.ASCII | re.VERBOSE)
"""WKT, JSON and strings of PROJ, codes of authorities, and names such as WGS84."""

_SETTINGS: Final = {
    "GDAL_CACHEMAX": 2**26,  # by default it is a twentieth of the machine's memory, even if little of it is available
    "GDAL_PAM_ENABLED": "NO",  # no second file next to the first, which would have the temporary name
}


class GeoTiffArguments(TypedDict, total=False):
    """Arguments that describe the file of a GeoTIFF; see ``create_geotiff``."""

    compress: str
    predictor: int | None
    block: int
    overwrite: bool


def import_rasterio(needed_for: str = "writing a GeoTIFF") -> Any:
    """The package rasterio. Raises MissingExtraError if it is not installed."""
    with require_extra("earth-engine", package="rasterio", needed_for=needed_for):
        import rasterio
    return rasterio


def read_crs(crs: Any) -> Any:
    """The ``rasterio.crs.CRS`` of an authority's code, of WKT, or of anything else that rasterio accepts.

    Raises:
        UsageError: the CRS is invalid, or PROJ does not know it, such as SR-ORG codes.
    """
    rasterio = import_rasterio("reading a CRS")
    if isinstance(crs, str) and not _CRS_TEXT.match(crs):  # GDAL would open the file, or ask the server, of that name
        raise UsageError(
            f"unknown CRS {crs!r:.120}: it is neither a code nor WKT",
            hint="Give the CRS as a code or as WKT: crs='EPSG:32610'; --crs EPSG:32610.",
            details={"option": "crs"},
        )
    try:
        return rasterio.crs.CRS.from_user_input(crs)
    except (rasterio.errors.RasterioError, ValueError, TypeError) as error:
        raise UsageError(
            f"unknown CRS {crs!r:.120}: {error}",
            hint="Give the CRS as a code or as WKT: crs='EPSG:32610'; --crs EPSG:32610.",
            details={"option": "crs"},
        ) from error


def check_output(
    path: str | PathLike[str],
    *,
    compress: str = "deflate",
    predictor: int | None = None,
    block: int = 256,
    overwrite: bool = False,
) -> None:
    """Check the arguments of ``create_geotiff`` before anything is read. Raises the same errors."""
    import_rasterio()
    if compress not in COMPRESSIONS:
        raise _refuse("compress", compress, f"expected one of {', '.join(COMPRESSIONS)}")
    if predictor is not None and predictor not in PREDICTORS:
        raise _refuse("predictor", predictor, "expected 1 (none), 2 (differences) or 3 (differences of floats)")
    if predictor in (2, 3) and compress == "none":
        raise _refuse("predictor", predictor, "it requires compression")
    if type(block) is not int or not 16 <= block <= 2**14 or block % 16:
        raise _refuse("block", block, "expected a multiple of 16, from 16 to 16384")
    target = _local_path(path)
    if target.suffix.lower() in _OTHERS:
        raise UsageError(
            f"expected the name of a GeoTIFF, found {target.name:.120}",
            hint="Use the suffix .tif: output='classes.tif'; -o classes.tif.",
            details={"option": "output"},
        )
    if not overwrite and os.path.lexists(target):
        raise AlreadyStoredError(
            f"{target} already exists",
            hint="Choose another file, or replace it: overwrite=True; --overwrite.",
            details={"path": str(target)},
        )


class GeoTiffRows:
    """An open GeoTIFF to which rows are written from the top on; ``create_geotiff`` creates it.

    Attributes:
        path: the final path of the file.
    """

    def __init__(self, dataset: Any, path: str, block: int) -> None:
        self.path = path
        self._dataset = dataset
        self._block = block
        self._written = 0
        self._waiting: list[npt.NDArray[Any]] | None = None
        self._num_waiting = 0

    def write(self, bands: Sequence[npt.NDArray[Any]]) -> None:
        """Write the next rows of every band: arrays of shape (rows, width) and the file's dtype."""
        start, num_rows = 0, len(bands[0])
        if self._num_waiting:
            start = min(self._block - self._num_waiting, num_rows)
            self._wait_for([band[:start] for band in bands])
            if self._num_waiting < self._block and self._written + self._num_waiting < self._dataset.height:
                return
            self.flush()
        last = self._written + num_rows - start >= self._dataset.height
        whole = num_rows - start if last else (num_rows - start) // self._block * self._block
        if whole:
            self._write([band[start : start + whole] for band in bands])
        if start + whole < num_rows:
            self._wait_for([band[start + whole :] for band in bands])

    def flush(self) -> None:
        """Write the buffered rows."""
        if self._waiting is not None and self._num_waiting:
            rows = self._num_waiting
            self._num_waiting = 0
            self._write([band[:rows] for band in self._waiting])

    def _wait_for(self, bands: Sequence[npt.NDArray[Any]]) -> None:
        if self._waiting is None:
            shape = (self._block, self._dataset.width)
            self._waiting = [np.empty(shape, band.dtype) for band in bands]
        stop = self._num_waiting + len(bands[0])
        for held, band in zip(self._waiting, bands, strict=True):
            held[self._num_waiting : stop] = band
        self._num_waiting = stop

    def _write(self, bands: Sequence[npt.NDArray[Any]]) -> None:
        """Write rows that begin with a block: a row of blocks at a time, so that a raster makes one file only."""
        rasterio = import_rasterio()
        for start in range(0, len(bands[0]), self._block):
            rows = [band[start : start + self._block] for band in bands]
            window = rasterio.windows.Window(0, self._written, self._dataset.width, len(rows[0]))
            with _rasterio_errors(self.path):
                for number, values in enumerate(rows, 1):
                    self._dataset.write(values, number, window=window)
            self._written += len(rows[0])


@contextmanager
def create_geotiff(
    path: str | PathLike[str],
    *,
    size: Size,
    names: Sequence[str],
    dtype: npt.DTypeLike,
    transform: Transform,
    crs: Any,
    nodata: float | None = None,
    compress: str = "deflate",
    predictor: int | None = None,
    block: int = 256,
    overwrite: bool = False,
) -> Iterator[GeoTiffRows]:
    """Create a GeoTIFF: a context manager whose value writes rows. At its end the file is on disk under its name.

    The file is tiled, has one band after another, and is a BigTIFF if it may exceed 4 GiB. If the with block raises, no
    new file is left, and an existing file is unchanged.

    Args:
        path: path of the file, on this machine.
        size: width and height in pixels.
        names: names of the bands, stored as their descriptions.
        dtype: dtype of all bands.
        transform: the transform from pixels to the map.
        crs: anything that rasterio accepts.
        nodata: the number that means "no value".
        compress: ``"deflate"``, ``"lzw"``, ``"zstd"`` or ``"none"``.
        predictor: 2 stores differences of neighbours, 3 those of floats: smaller files of smooth pictures; 1 stores
            values. None is 3 for floats, which is several times faster for them, and 1 for others.
        block: side of a tile of the file, a multiple of 16.
        overwrite: replace a file of that name.

    Raises:
        UsageError: an invalid option, or an unknown CRS.
        AlreadyStoredError: the file is there already.
        StorageError: it cannot be written.
        MissingExtraError: rasterio is not installed.
    """
    check_output(path, compress=compress, predictor=predictor, block=block, overwrite=overwrite)
    rasterio = import_rasterio()
    target = _local_path(path)
    if max(size) > _MOST_PIXELS or len(names) > _MOST_BANDS:
        raise UsageError(
            f"{len(names):,} bands of {size.width:,} x {size.height:,} pixels are more than a GeoTIFF can have",
            hint="Check that the mixer belongs to these patches, or choose fewer bands: bands=[...]; --band NAME.",
            details={"size": list(size), "bands": len(names)},
        )
    if predictor == 3 and np.dtype(dtype).kind != "f":
        raise _refuse("predictor", predictor, f"the raster is {np.dtype(dtype)}; 3 is for floats")
    profile: dict[str, Any] = {
        "driver": "GTiff",
        "width": size.width,
        "height": size.height,
        "count": len(names),
        "dtype": str(np.dtype(dtype)),
        "crs": read_crs(crs),
        "transform": rasterio.Affine(*transform),
        "nodata": nodata,
        "tiled": True,
        "blockxsize": block,
        "blockysize": block,
        "interleave": "band",  # so that blocks of each band can be written separately
        "BIGTIFF": "IF_SAFER",
        "alpha": "no",  # by default GDAL treats the fourth band of bytes as alpha, which masks the others
    }
    if compress != "none":
        default = 3 if np.dtype(dtype).kind == "f" else 1
        profile |= {"compress": compress, "predictor": default if predictor is None else predictor}
        profile["num_threads"] = min(4, num_cpus())  # the bytes are those of one thread
    store = LocalStore(target.parent)
    with store.create_path(target.name, overwrite=overwrite) as temporary:
        with _rasterio_errors(str(target)), warnings.catch_warnings():
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)  # of an identity that is meant
            dataset = rasterio.open(temporary, "w", **profile)
        rows = GeoTiffRows(dataset, str(target), block)
        try:
            with _rasterio_errors(str(target)):
                for number, name in enumerate(names, 1):
                    dataset.set_band_description(number, name)
            yield rows
            rows.flush()
        finally:
            with _rasterio_errors(str(target)):
                dataset.close()
        _check_written(temporary, target)


def _check_written(temporary: str, target: Path) -> None:
    """Check that GDAL wrote the last block: on a full disk it reports no error."""
    rasterio = import_rasterio()
    num_bytes = Path(temporary).stat().st_size
    with _rasterio_errors(str(target)), warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        dataset = rasterio.open(temporary)
    with _rasterio_errors(str(target)), dataset:
        for band in dataset.indexes:
            rows, columns = (
                -(-side // block) for side, block in zip(dataset.shape, dataset.block_shapes[0], strict=True)
            )
            place = f"{columns - 1}_{rows - 1}"
            offset = int(dataset.get_tag_item(f"BLOCK_OFFSET_{place}", "TIFF", bidx=band) or 0)
            length = int(dataset.get_tag_item(f"BLOCK_SIZE_{place}", "TIFF", bidx=band) or 0)
            if not offset or offset + length > num_bytes:
                raise StorageError(
                    f"cannot write {target}: its last block is missing",
                    hint="The disk may be full: free some space, or choose another folder.",
                    details={"path": str(target), "errno": None, "doing": "write"},
                )


@contextmanager
def _rasterio_errors(path: str) -> Iterator[None]:
    """Apply our settings of GDAL in the block, and raise its errors as StorageErrors that name the file."""
    rasterio = import_rasterio()
    try:
        with rasterio.Env(**_SETTINGS):
            yield
    except (rasterio.errors.RasterioError, OSError, ValueError) as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(
            f"cannot write {path}: {error}",
            hint="Check the free space on the disk, and the permissions of the folder.",
            details={"path": path, "errno": getattr(error, "errno", None), "doing": "write"},
        ) from error


def _local_path(path: str | PathLike[str]) -> Path:
    text = fspath(path)
    if "://" in text:
        raise UsageError(
            f"expected a local path of a GeoTIFF, found {text:.200}",
            hint="Write a local file, and copy it afterwards.",
            details={"option": "output"},
        )
    if not text or "\0" in text or text.endswith("/"):
        raise UsageError(
            f"expected the path of a GeoTIFF, found {text!r:.200}",
            hint="For example: output='classes.tif'.",
            details={"option": "output"},
        )
    return Path(os.path.expanduser(text)).absolute()  # noqa: PTH111 - unlike Path.expanduser, it keeps "~" of an unknown user as a name


def _refuse(name: str, value: Any, why: str) -> UsageError:
    return UsageError(f"invalid {name} {value!r:.60}: {why}", details={"option": name})
