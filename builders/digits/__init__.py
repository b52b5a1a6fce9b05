"""The ``digits`` dataset: 1,797 handwritten digits of 8x8 pixels, small enough to ship, real enough to learn from."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

import numpy as np

from registry import DatasetBuilder
from registry.features import ClassLabel, FeaturesDict, Image

_DIGITS = [str(digit) for digit in range(10)]


class Digits(DatasetBuilder):
    """Optical Recognition of Handwritten Digits (UCI), the copy packaged in scikit-learn.

    One split, ``train``, in four shards. ``image`` is uint8 of shape (8, 8, 1), values 0 (white) to 16 (black);
    ``label`` is the digit. The key of an example is its row in the source file.
    """

    VERSION = "1.0.0"
    RELEASE_NOTES = {"1.0.0": "All 1,797 images of the source, undivided: slice them as you need."}
    DESCRIPTION = (
        "Handwritten digits of 13 writers as 8x8 images of 17 grey levels: each pixel counts the inked dots of a 4x4 "
        "block of a 32x32 scan. The test set of the UCI dataset 'Optical Recognition of Handwritten Digits', as "
        "packaged in scikit-learn."
    )
    HOMEPAGE = "https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits"
    LICENSE = "CC BY 4.0"
    CITATION = """@misc{alpaydin1998digits,
  author = {Alpaydin, E. and Kaynak, C.},
  title = {Optical Recognition of Handwritten Digits},
  year = {1998},
  howpublished = {UCI Machine Learning Repository},
  doi = {10.24432/C50P49}
}"""
    SUPERVISED_KEYS = ("image", "label")
    NUM_SHARDS = 4

    def features(self) -> FeaturesDict:
        """The schema: an image and its label."""
        return FeaturesDict({"image": Image(shape=(8, 8, 1), dtype=np.uint8), "label": ClassLabel(names=_DIGITS)})

    def splits(self) -> Mapping[str, Iterator[tuple[int, dict[str, Any]]]]:
        """The examples, keyed by their row in the source file."""
        return {"train": self._examples()}

    def _examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        packed = files(__package__).joinpath("digits.csv.gz").read_bytes()
        rows = csv.reader(io.StringIO(gzip.decompress(packed).decode("ascii")))
        for key, row in enumerate(rows):
            *pixels, label = map(int, row)
            yield key, {"image": np.array(pixels, np.uint8).reshape(8, 8, 1), "label": label}
