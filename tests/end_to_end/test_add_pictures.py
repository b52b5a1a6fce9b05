"""Pictures of each mode come back with the pixels that their program wrote, or are kept as the bytes of their files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

import registry
from registry.api import Catalog
from registry.errors import SourceError

MODES = ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"]
SIZE = (7, 5)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return registry.connect(f"sqlite:///{tmp_path / 'c.db'}", data_dir=tmp_path / "data", create=True)


def make_picture(mode: str, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    if mode == "I;16":
        return Image.fromarray(rng.integers(0, 2**16, SIZE[::-1]).astype(np.uint16))
    pixels = rng.integers(0, 256, (*SIZE[::-1], 4)).astype(np.uint8)
    return Image.fromarray(pixels, "RGBA").convert(mode)


def pixels_of(picture: Any) -> Any:
    """The pixels of a decoded PNG: palettes as colours, one bit as black and white."""
    if picture.mode in ("1", "P"):
        picture = picture.convert("L" if picture.mode == "1" else "RGBA" if "transparency" in picture.info else "RGB")
    pixels = np.asarray(picture)
    return pixels[..., None] if pixels.ndim == 2 else pixels


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_of_png_comes_back_equal(tmp_path: Path, catalog: Catalog, mode: str) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a.png"
    make_picture(mode).save(path)
    catalog.add(tmp_path / "in", "pictures")
    (row,) = catalog.dataset("pictures").read("train")
    with Image.open(path) as picture:
        expected = pixels_of(picture)
    assert np.array_equal(row["image"], expected)
    assert row["image"].dtype == (np.uint16 if mode == "I;16" else np.uint8)


def test_pictures_of_two_depths_are_refused_or_kept_as_bytes(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "in").mkdir()
    make_picture("I;16").save(tmp_path / "in" / "b.png")
    make_picture("RGB").save(tmp_path / "in" / "a.jpg")
    with pytest.raises(SourceError) as caught:
        catalog.add(tmp_path / "in", "pictures")
    assert str(caught.value).startswith(
        "b.png has 16 bits for each sample, and a.jpg has 8: one Image cannot hold both"
    )
    catalog.add(tmp_path / "in", "pictures", features={"image": "bytes"})
    rows = sorted(row["image"] for row in catalog.dataset("pictures").read("train"))
    assert rows == sorted((tmp_path / "in" / name).read_bytes() for name in ("a.jpg", "b.png"))


@pytest.mark.parametrize("mode", ["I;16", "RGB"])
def test_pictures_in_columns_are_never_reduced(tmp_path: Path, catalog: Catalog, mode: str) -> None:
    stream = io.BytesIO()
    make_picture(mode).save(stream, "PNG")
    rows = [{"image": {"bytes": stream.getvalue(), "path": "a.png"}}]
    described = '{"info": {"features": {"image": {"_type": "Image"}}}}'
    table = pa.Table.from_pylist(rows).replace_schema_metadata({"huggingface": described})
    pa.parquet.write_table(table, tmp_path / "rows.parquet")
    report = catalog.add(tmp_path / "rows.parquet", "rows")
    (row,) = catalog.dataset("rows").read("train")
    if mode == "RGB":
        assert np.array_equal(row["image"], np.asarray(make_picture(mode)))
    else:
        assert row["image"] == stream.getvalue()
        (column,) = report.plan.schema.columns
        assert column.reason.endswith("is neither a JPEG nor a PNG of 8 bits")
