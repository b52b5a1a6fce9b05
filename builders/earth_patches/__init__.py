"""The ``earth_patches`` dataset: two photographs as Earth Engine would export them, small enough to ship.

So the whole loop can be run from a fresh install: patches with their places, predictions, and back to the map. The
pictures are real; where they lie on the map is invented.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry import DatasetBuilder
from registry.builders.earth_engine.grid import Grid, Size, Transform
from registry.builders.earth_engine.mixer import Mixer
from registry.builders.earth_engine.stored.export import StoredBand
from registry.builders.earth_engine.stored.kept_split import METADATA_KEY, KeptSplit
from registry.features import FeaturesDict, Tensor
from registry.images import decode_picture, read_picture

BANDS: Final = ("red", "green", "blue")
RASTER: Final = Size(640, 427)
PATCH: Final = Size(32, 32)
KERNEL: Final = Size(8, 8)
GRID: Final = Grid.over(RASTER, PATCH, kernel=KERNEL)
"""20 patches a row, 13 rows; the last 11 rows of pixels fill no patch. Tiles are 40 x 40."""

PLACES: Final[Mapping[str, tuple[str, Transform]]] = {
    "china": ("EPSG:32650", Transform(10, 0, 440000, 0, -10, 4430000)),
    "flower": ("EPSG:32631", Transform(5, 0, 500000, 0, -5, 5300000)),
}
"""CRS and transform of each picture: valid, and invented."""


class EarthPatches(DatasetBuilder):
    """Two photographs in patches of 32 x 32 pixels, laid out as Earth Engine exports images.

    Two splits, ``china`` and ``flower``, of 260 patches each. ``red``, ``green`` and ``blue`` are uint8 of shape
    (40, 40): a patch, and around it a margin of 4 pixels for kernels of 8 x 8. The key of a patch is its number in the
    grid, row by row, and the records are in that order.
    """

    VERSION = "1.0.0"
    RELEASE_NOTES = {"1.0.0": "All whole patches of both photographs."}
    DESCRIPTION = (
        "Two photographs, a temple in China and a flower, as an export of Earth Engine has images: 260 patches of "
        "32 x 32 pixels each, with a margin of 4 pixels, in three bands of uint8, and a mixer that says where they lie "
        "on the map. The pictures are real, their places on the map are invented."
    )
    HOMEPAGE = "https://scikit-learn.org/stable/datasets/loading_other_datasets.html#sample-images"
    LICENSE = "CC BY 2.0"
    CITATION = """@misc{sklearn_sample_images,
  title = {china.jpg and flower.jpg},
  note = {Photographs by danielbuechele and vultilion on Flickr, CC BY 2.0, as packaged in scikit-learn}
}"""
    DISABLE_SHUFFLING = True
    METADATA = {
        METADATA_KEY: {
            "splits": {
                split: KeptSplit(
                    prefix=split,
                    mixer=Mixer.of(GRID, crs, transform).to_value(),
                    kernel=KERNEL,
                    patch=PATCH,
                    tile=GRID.tile,
                    bands=tuple(StoredBand(name=name, kind="bytes") for name in BANDS),
                ).to_value()
                for split, (crs, transform) in PLACES.items()
            }
        }
    }

    def features(self) -> FeaturesDict:
        """The schema: a tile of each band, stored as its bytes."""
        return FeaturesDict({name: Tensor(shape=GRID.tile[::-1], dtype=np.uint8, encoding="bytes") for name in BANDS})

    def splits(self) -> Mapping[str, Iterator[tuple[int, dict[str, Any]]]]:
        """The patches of each picture, by their numbers."""
        return {split: self._patches(split) for split in PLACES}

    def _patches(self, split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        left, top = GRID.margin
        pixels = np.pad(read_pixels(split), ((top, top), (left, left), (0, 0)))  # 0 is what lies outside
        for number in range(GRID.num_patches):
            window = GRID.window(number)
            row, column = window.row + top, window.column + left
            tile = pixels[row : row + window.height, column : column + window.width]
            yield number, {name: tile[..., place] for place, name in enumerate(BANDS)}


def read_pixels(split: str) -> npt.NDArray[np.uint8]:
    """The whole picture of a split: uint8 of shape (427, 640, 3), red, green, blue."""
    picture = read_picture(files(__package__).joinpath(f"{split}.png").read_bytes())
    return decode_picture(picture, channels=len(BANDS), wide=False)
