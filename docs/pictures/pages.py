"""Makes the pictures of pages in docs and the README: ``.venv/bin/python docs/pictures/pages.py [PAGE ...]``.

It needs Chromium and Pillow. The catalog has the digits in two versions, of which the second one corrects a few
records, and two more datasets; the pictures are ``pages-NAME.png`` in this folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image as Picture

import registry
from registry.builders.digits import Digits
from registry.features import BBox, ClassLabel, FeaturesDict, Image, Scalar, Sequence, Text

HERE = Path(__file__).parent
SIZES = {
    "home": ("", 900),
    "dataset": ("datasets/digits/2.0.0/", 1000),
    "records": ("datasets/shapes/1.0.0/records/train/", 900),
    "statistics": ("datasets/shapes/1.0.0/statistics/", 900),
    "splits": ("datasets/shapes/1.0.0/splits/?split=train%5B%3A80%25%5D%2Btest%5B-20%3A%5D", 1000),
    "changes": ("datasets/digits/2.0.0/changes/", 900),
}
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars")
QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync")
NAMES = ("circle", "square", "triangle")


class CorrectedDigits(Digits):
    """The digits, with corrected records."""

    name = "digits"
    VERSION = "2.0.0"
    RELEASE_NOTES: ClassVar = {"1.0.0": "First release", "2.0.0": "Three labels corrected, and two pictures cleaned"}

    def splits(self) -> Any:
        """The same splits."""
        return {name: corrected(rows) for name, rows in super().splits().items()}


def corrected(rows: Any) -> Iterator[Any]:
    """The rows, of which each 300th has another label, and each 500th another picture."""
    for place, (key, values) in enumerate(rows):
        row = dict(values)
        if place % 300 == 7:
            row["label"] = (int(row["label"]) + 1) % 10
        if place % 500 == 40:
            row["image"] = np.array(row["image"])
            row["image"][:2] = 0
        yield key, row


class Shapes(registry.DatasetBuilder):
    """Shapes on a coloured ground, with their boxes, areas and captions."""

    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        """Pictures with boxes."""
        boxes = Sequence({"bbox": BBox(), "shape": ClassLabel(names=NAMES)})
        return FeaturesDict(
            {"area": Scalar("float32"), "caption": Text(), "image": Image(shape=(64, 64, 3)), "objects": boxes}
        )

    def splits(self) -> Any:
        """Two splits."""
        return {"train": self._rows(240, 1), "test": self._rows(60, 2)}

    def _rows(self, number: int, seed: int) -> Iterator[Any]:
        chance = np.random.default_rng(seed)
        rows, columns = np.mgrid[0:64, 0:64]
        for key in range(number):
            ground, color = chance.integers(170, 245, 3), chance.integers(20, 140, 3)
            y, x, size = (
                int(chance.integers(20, 44)),
                int(chance.integers(20, 44)),
                int(np.clip(chance.normal(12, 2.5), 6, 18)),
            )
            kind = int(chance.choice(3, p=[0.5, 0.3, 0.2]))
            inside = (
                (rows - y) ** 2 + (columns - x) ** 2 < size**2,
                (abs(rows - y) < size) & (abs(columns - x) < size),
                (abs(columns - x) < (rows - y + size) / 2) & (abs(rows - y) < size),
            )[kind]
            image = np.where(inside[:, :, None], color, ground).astype(np.uint8)
            box = [max(0, y - size) / 64, max(0, x - size) / 64, min(64, y + size) / 64, min(64, x + size) / 64]
            objects = [{"bbox": box, "shape": kind}]
            caption = f"A {NAMES[kind]} of {2 * size} pixels"
            yield key, {"image": image, "objects": objects, "caption": caption, "area": float(inside.sum())}


def make_catalog(file: Path) -> None:
    """A catalog with something to see."""
    os.environ["REGISTRY_ACTOR"] = "ann"
    with registry.connect(file, create=True) as catalog:
        for builder in ("digits", CorrectedDigits, "earth_patches", Shapes):
            catalog.build(builder)
        catalog.describe("shapes:1.0.0", license="CC0-1.0", tags=["images", "boxes", "synthetic"])
        for reference in ("digits:1.0.0", "digits:2.0.0", "earth_patches", "shapes"):
            catalog.dataset(reference).compute_statistics()


def photograph(url: str, file: Path, height: int, profile: Path) -> None:
    """A picture of a page, with 96 colours."""
    place = (f"--user-data-dir={profile}", f"--screenshot={file}", f"--window-size=1200,{height}")
    subprocess.run(["chromium", *OPTIONS, *QUIET, *place, url], check=True, capture_output=True)  # noqa: S603, S607
    with Picture.open(file) as picture:
        picture.convert("RGB").quantize(96, dither=Picture.Dither.NONE).save(file, optimize=True)


def main() -> None:
    """Make the pictures that are named, or all of them."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "catalog.db")
        make_catalog(file)
        program = str(Path(sys.executable).with_name("registry"))
        environment = os.environ | {"REGISTRY_CATALOG": str(file)}
        command = [program, "browse", "--no-open"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:  # noqa: S603
            assert server.stdout is not None  # noqa: S101
            url = server.stdout.readline().strip()
            for name in sys.argv[1:] or SIZES:
                address, height = SIZES[name]
                photograph(url + address, HERE / f"pages-{name}.png", height, Path(folder, "profile"))
            server.terminate()


if __name__ == "__main__":
    main()
