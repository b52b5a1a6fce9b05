"""Exports as Earth Engine writes them, made pixel by pixel: slow, and plain to see that they are right."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from registry.tfrecord import frame_record
from registry.wire import encode_example

MATRIX = (30.0, 0.0, 500000.0, 0.0, -30.0, 4100000.0)
CRS = "EPSG:32610"
Bands = Mapping[str, npt.NDArray[Any]]


def ramp(width: int, height: int, dtype: str = "float32") -> npt.NDArray[Any]:
    """Pixels with their position as value: 10 * (row + 1) + (column + 1), as in the guide's fixtures."""
    rows, columns = np.mgrid[1 : height + 1, 1 : width + 1]
    return (10 * rows + columns).astype(dtype)


def mixer_of(patch: tuple[int, int], per_row: int, total: int) -> dict[str, Any]:
    return {
        "projection": {"crs": CRS, "affine": {"doubleMatrix": list(MATRIX)}},
        "patchDimensions": list(patch),
        "patchesPerRow": per_row,
        "totalPatches": total,
    }


def tiles_of(
    bands: Bands, patch: tuple[int, int], margin: tuple[int, int] = (0, 0)
) -> list[dict[str, npt.NDArray[Any]]]:
    """The tiles of each patch, row by row; pixels outside the raster are 0. Array bands are (depth, H, W)."""
    height, width = next(iter(bands.values())).shape[-2:]
    tiles = []
    for row in range(height // patch[1]):
        for column in range(width // patch[0]):
            tile = {}
            for name, pixels in bands.items():
                size = (*pixels.shape[:-2], patch[1] + 2 * margin[1], patch[0] + 2 * margin[0])
                values = np.zeros(size, pixels.dtype)
                for y in range(size[-2]):
                    for x in range(size[-1]):
                        at_y, at_x = row * patch[1] - margin[1] + y, column * patch[0] - margin[0] + x
                        if 0 <= at_y < height and 0 <= at_x < width:
                            values[..., y, x] = pixels[..., at_y, at_x]
                tile[name] = values
            tiles.append(tile)
    return tiles


def record_of(tile: Mapping[str, npt.NDArray[Any]], *, native: bool = False) -> bytes:
    """The Example of one patch."""
    flat: dict[str, Any] = {}
    for name, values in tile.items():
        if native and values.dtype == np.uint8:
            flat[name] = [values.tobytes()]
        elif native and values.dtype.kind in "iu":
            flat[name] = values.reshape(-1).astype(np.int64)
        else:
            flat[name] = values.reshape(-1).astype(np.float32)
    return encode_example(flat)


def write_records(
    folder: Path, prefix: str, records: Sequence[bytes], *, shards: int = 1, suffix: str = ".tfrecord.gz"
) -> None:
    """Shard files of about as many records each."""
    folder.mkdir(parents=True, exist_ok=True)
    bounds = [len(records) * index // shards for index in range(shards + 1)]
    for index in range(shards):
        content = b"".join(map(frame_record, records[bounds[index] : bounds[index + 1]]))
        name = f"{prefix}-{index:05d}{suffix}"
        (folder / name).write_bytes(gzip.compress(content, mtime=0) if suffix.lower().endswith(".gz") else content)


def write_image(
    folder: Path,
    prefix: str,
    bands: Bands,
    patch: tuple[int, int],
    *,
    margin: tuple[int, int] = (0, 0),
    native: bool = False,
    shards: int = 1,
    suffix: str = ".tfrecord.gz",
    mixer: bool = True,
) -> Path:
    """An export of an image; its folder."""
    tiles = tiles_of(bands, patch, margin)
    write_records(folder, prefix, [record_of(tile, native=native) for tile in tiles], shards=shards, suffix=suffix)
    width = next(iter(bands.values())).shape[-1]
    if mixer:
        (folder / f"{prefix}-mixer.json").write_text(json.dumps(mixer_of(patch, width // patch[0], len(tiles))))
    return folder


def sequence_record(context: Mapping[str, Any], lists: Mapping[str, Sequence[float]]) -> bytes:
    """The SequenceExample of one pixel, built from its parts, each of which is a message."""
    from registry.wire.example_pb2 import SequenceExample

    message = SequenceExample()
    for name, value in sorted(context.items()):
        message.context.feature[name].float_list.value.append(value)
    for name, steps in sorted(lists.items()):
        made = message.feature_lists.feature_list[name]
        for step in steps:
            made.feature.add().float_list.value.append(step)
    return message.SerializeToString(deterministic=True)
