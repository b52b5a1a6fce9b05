"""Pictures of each mode come back with the pixels that their program wrote, or are kept as the bytes of their files."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

import registry
from registry.api import Catalog
from registry.errors import SourceError, UnusableRowsError

MODES = ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"]
SIZE = (7, 5)


def make_picture(mode: str, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    if mode == "I;16":
        return Image.fromarray(rng.integers(0, 2**16, SIZE[::-1]).astype(np.uint16))
    if mode in ("I", "F"):
        return Image.fromarray(rng.integers(0, 2**16, SIZE[::-1]).astype(np.int32 if mode == "I" else np.float32))
    pixels = rng.integers(0, 256, (*SIZE[::-1], 4)).astype(np.uint8)
    picture = Image.fromarray(pixels, "RGBA")
    return picture.convert("RGB").convert(mode) if mode in ("CMYK", "YCbCr", "HSV") else picture.convert(mode)


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
    assert str(caught.value).startswith("b.png has 16 bits per sample, but a.jpg has 8: an Image has a single depth")
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


@pytest.mark.parametrize("file_format", ["png", "jpeg", "webp", "gif", "bmp", "tiff"])
@pytest.mark.parametrize("mode", [*MODES, "CMYK", "YCbCr", "HSV", "I", "F"])
def test_every_mode_in_every_format_is_kept_or_refused(
    tmp_path: Path, catalog: Catalog, mode: str, file_format: str
) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / f"a.{file_format}"
    try:
        with warnings.catch_warnings(action="ignore"):
            make_picture(mode).save(path)
    except (OSError, ValueError, KeyError):  # the format has no such mode
        return
    with Image.open(path) as picture:
        stored = picture.mode
        expected = pixels_of(picture)
    if (stored, file_format) == ("CMYK", "jpeg"):
        with pytest.raises(UnusableRowsError, match=r"a\.jpeg: it has the mode CMYK, which an Image cannot hold"):
            catalog.add(tmp_path / "in", "pictures")
        return
    report = catalog.add(tmp_path / "in", "pictures")
    (row,) = catalog.dataset("pictures").read("train")
    if stored in MODES:
        assert np.array_equal(row["image"], expected)
        assert catalog.dataset("pictures").features["image"].shape == expected.shape
    else:
        assert row["image"] == path.read_bytes()
        assert f"stored as bytes: a.{file_format}: PNG has no mode {stored!r}" in report.plan.source.summary


def test_frames_are_never_dropped(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a.gif"
    make_picture("L").save(path, save_all=True, append_images=[make_picture("L", 1)])
    report = catalog.add(tmp_path / "in", "pictures")
    assert "a.gif: it has 2 frames, but an Image has only one" in report.plan.source.summary
    assert [row["image"] for row in catalog.dataset("pictures").read("train")] == [path.read_bytes()]


def test_a_shape_on_which_all_agree_widens_with_other_sizes(tmp_path: Path, catalog: Catalog) -> None:
    for name in ("cat/a.png", "dog/b.png"):
        (tmp_path / "in" / name).parent.mkdir(parents=True)
        make_picture("RGB").save(tmp_path / "in" / name)
    catalog.add(tmp_path / "in", "pictures")
    first = catalog.dataset("pictures")
    assert first.features["image"].shape == (5, 7, 3)
    assert first.metadata.supervised_keys == ("image", "label")
    make_picture("RGB").resize((9, 5)).save(tmp_path / "in" / "cat" / "c.png")
    report = catalog.add(tmp_path / "in", "pictures")
    assert catalog.dataset("pictures").features["image"].shape == (5, None, 3)
    assert report.plan.schema.columns[0].reason == "other sizes than (5, 7, 3) of the previous version"
    (tmp_path / "in" / "cat" / "c.png").unlink()
    catalog.add(tmp_path / "in", "pictures")
    assert catalog.dataset("pictures").features["image"].shape == (5, None, 3)


@pytest.mark.parametrize(
    ("mode", "word", "fault"),
    [
        ("I;16", "Image", "it has 16 bits per sample, but the Image has 8"),
        ("RGB", "Image[7, 5, 3]", "expected shape (7, 5, 3), found an image of 5 x 7"),
    ],
)
def test_a_requested_type_names_the_files_that_it_cannot_hold(
    tmp_path: Path, catalog: Catalog, mode: str, word: str, fault: str
) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.png", "b.png"):
        make_picture(mode).save(tmp_path / "in" / name)
    with pytest.raises(UnusableRowsError) as caught:
        catalog.add(tmp_path / "in", "pictures", features={"image": word})
    assert fault in str(caught.value)
    assert "  b.png" in str(caught.value)


@pytest.mark.parametrize("shape", [(5, 7, 1), (5, 7, 3), (5, 7, 4), (5, 7)])
@pytest.mark.parametrize("kind", ["arrays", "lists", "int64", "sizes", "frame"])
def test_arrays_of_pixels_become_pictures_if_requested(catalog: Catalog, kind: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 256, (shape[0] + (kind == "sizes") * n, *shape[1:])).astype(np.uint8) for n in range(3)]
    form = {"lists": lambda array: array.tolist(), "int64": lambda array: array.astype(np.int64)}.get(kind, np.array)
    rows: Any = [{"id": n, "image": form(array)} for n, array in enumerate(arrays)]
    if kind == "frame":
        rows = pa.table({"id": [0, 1, 2], "image": [array.tolist() for array in arrays]})
    catalog.add(rows, "pictures", features={"image": "Image"}, key="id")
    dataset = catalog.dataset("pictures")
    assert dataset.features["image"] == registry.features.Image(shape=(None, None, None))
    for row in dataset.read("train"):
        assert np.array_equal(row["image"], np.atleast_3d(arrays[row["id"]]))


@pytest.mark.parametrize("value", [[[0.5]], [[1, 2], [3]], [1, 2], [[None]], [[300]]])
def test_arrays_that_are_no_pictures_are_refused(catalog: Catalog, value: Any) -> None:
    with pytest.raises(UnusableRowsError) as caught:
        catalog.add([{"image": value}], "pictures", features={"image": "Image"})
    assert caught.value.hint == 'No row fits. To keep the arrays of "image", leave out its type'


@pytest.mark.parametrize("wish", ["Image", "Image?"])
def test_a_picture_may_be_missing(catalog: Catalog, wish: str) -> None:
    picture = np.zeros((2, 3, 3), np.uint8)
    for rows in ([picture, None], [None, picture, make_picture("RGB")]):
        catalog.add([{"id": n, "image": row} for n, row in enumerate(rows[:2])], "pictures", features={"image": wish})
        assert sorted(len(row["image"]) for row in catalog.dataset("pictures").read("train")) == [0, 1]
