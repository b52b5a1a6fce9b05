"""Kept columns of pixels: a reader with the same setting decodes nothing, and every other reader is as before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

import registry
from registry.api import Catalog
from registry.cli.main import run
from registry.columns import layout
from registry.errors import FeatureError, RegistryWarning, UsageError
from registry.features import Image, ImageDecoding
from registry.reading import split_columns

COUNT = 60
HALF = ImageDecoding(ratio=2, crop=(10, 12))


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "indexes"))
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "100MB")
    monkeypatch.setattr(split_columns, "_BLOCK_RECORDS", (16, 16))


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    folder = tmp_path / "pictures" / "a"
    folder.mkdir(parents=True)
    for place in range(COUNT):
        pixels = np.random.default_rng(place).integers(0, 256, (24, 30 + place % 2, 3), dtype=np.uint8)
        Pillow.fromarray(pixels).save(folder / f"{place:02}.{'png' if place % 3 else 'jpg'}")
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as opened:
        opened.add(tmp_path / "pictures", name="pictures")
        yield opened


def images_of(dataset: Any, decoding: ImageDecoding | None = HALF, **options: Any) -> tuple[Any, Any]:
    """A reader, and its images one after the other."""
    reader = dataset.read("train", **options)
    reader = reader if decoding is None else reader.decode_images({"image": decoding})
    return reader, [example["image"] for example in reader]


def count_decoded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    decoded: list[Any] = []
    read = Image._decode

    def decode(self: Image, *arguments: Any) -> Any:
        decoded.append(self)
        return read(self, *arguments)

    monkeypatch.setattr(Image, "_decode", decode)
    return decoded


def test_a_reader_with_the_same_setting_decodes_nothing(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = catalog.dataset("pictures")
    _, expected = images_of(dataset, keep=None)
    report = dataset.keep_columns("train", pixels={"image": HALF})
    assert (report.num_columns, report.num_new_columns) == (2, 2)
    assert report.num_bytes >= COUNT * 10 * 12 * 3
    assert dataset.keep_columns("train", pixels={"image": HALF}).num_new_columns == 0
    decoded = count_decoded(monkeypatch)
    reader, images = images_of(dataset)
    np.testing.assert_array_equal(images, expected)
    np.testing.assert_array_equal(reader.reopened().to_numpy()["image"], expected)
    np.testing.assert_array_equal(reader[7]["image"], expected[7])
    np.testing.assert_array_equal(reader[[9, 2, 9]]["image"], np.stack(expected)[[9, 2, 9]])
    shuffled = dataset.read("train[10:50]", registry.ReadConfig(shuffle="global", seed=1)).decode_images(
        {"image": HALF}
    )
    assert sum(batch["image"].shape[0] for batch in shuffled.batches(16)) == 40
    view = dataset.read("train", copy=False).decode_images({"image": HALF})
    assert not next(view.batches(5))["image"].flags.writeable
    assert decoded == []


def test_other_settings_read_the_stored_files(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = catalog.dataset("pictures")
    others = [ImageDecoding(ratio=2, crop=(10, 11)), ImageDecoding(ratio=4), ImageDecoding(crop=(10, 12)), None]
    expected = [images_of(dataset, other, keep=None)[1] for other in others]
    files = [example["image"] for example in dataset.read("train").files_as_bytes()]
    dataset.keep_columns("train", pixels={"image": HALF})
    for kept in (False, True):  # without and with columns of the stored files
        if kept:
            assert dataset.keep_columns("train").num_new_columns == 1
        decoded = count_decoded(monkeypatch)
        for other, images in zip(others, expected, strict=True):
            reader, found = images_of(dataset, other)
            assert all(map(np.array_equal, found, images))
            assert reader._keeper.is_in_use == kept
        assert len(decoded) >= COUNT * len(others)
    assert [example["image"] for example in dataset.read("train").files_as_bytes()] == files
    decoded.clear()
    images_of(dataset)
    assert decoded == []


def test_whole_pixels_are_read_without_a_setting(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "same" / "a").mkdir(parents=True)
    for place in range(40):
        Pillow.new("RGB", (5, 6), (place, 0, 0)).save(tmp_path / "same" / "a" / f"{place:02}.png")
    catalog.add(tmp_path / "same", name="same")
    dataset = catalog.dataset("same")
    dataset.keep_columns(pixels={"image": ImageDecoding()})
    decoded = count_decoded(monkeypatch)
    _, images = images_of(dataset, None)
    assert sorted(int(image[0, 0, 0]) for image in images) == list(range(40))
    assert decoded == []


def test_images_of_different_sizes_need_a_crop(catalog: Catalog) -> None:
    dataset = catalog.dataset("pictures")
    with pytest.raises(UsageError) as caught:
        dataset.keep_columns(pixels={"image": ImageDecoding(ratio=2)})
    assert caught.value.message == "the pixels of feature 'image' cannot be kept: the images have shape (12, None, 3)"
    assert caught.value.hint == (
        "Images of one size can be kept: pass ImageDecoding(crop=(height, width)), or keep their files."
    )
    for pixels, message in (
        ({"pictur": HALF}, "feature 'pictur': unknown feature"),
        ({"path": HALF}, "feature 'path': it is a Text, and only images can be scaled and cropped"),
        ({"image": 2}, "feature 'image': expected an ImageDecoding, found 2"),
    ):
        with pytest.raises(FeatureError) as refused:
            dataset.keep_columns(pixels=pixels)
        assert refused.value.message == message


def test_small_files_with_many_pixels_are_scaled_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that is sized by their files would have gigabytes of pixels."""
    monkeypatch.setattr(split_columns, "_BLOCK_RECORDS", (1, 8192))
    (tmp_path / "blank").mkdir()
    Pillow.new("RGB", (2048, 2048)).save(tmp_path / "blank" / "0.png")
    with registry.connect(tmp_path / "catalog.db", create=True, data_dir=tmp_path / "data") as catalog:
        dataset = catalog.dataset(catalog.add(tmp_path / "blank", name="blank").reference)
        with pytest.raises(UsageError, match=r"cannot be kept: a block of them has \d+\.\d GiB"):
            dataset.keep_columns(pixels={"image": ImageDecoding()})
        assert dataset.keep_columns(pixels={"image": ImageDecoding(ratio=8)}).num_new_columns


@pytest.mark.parametrize(
    ("text", "decoding"),
    [
        ("image=24x30", ImageDecoding(crop=(24, 30))),
        ("image=1/2,10x12", HALF),
        ("image=1/8,2x2", ImageDecoding(ratio=8, crop=(2, 2))),
    ],
)
def test_the_command_line_keeps_pixels(catalog: Catalog, text: str, decoding: ImageDecoding) -> None:
    command = ["cache", "build", "pictures", "train", "--columns", "image", "--pixels", text]
    assert run([*command, "--catalog", catalog.url]) == 0
    _, expected = images_of(catalog.dataset("pictures"), decoding, keep=None)
    _, images = images_of(catalog.dataset("pictures"), decoding)
    assert all(map(np.array_equal, images, expected))
    assert catalog.dataset("pictures").keep_columns(columns=["image"], pixels={"image": decoding}).num_new_columns == 0


@pytest.mark.parametrize(
    "text", ["image=1/3", "image=", "=1/2", "image=5x", "image=1/4,", "image=1/456x56", "image=-1x2"]
)
def test_a_malformed_setting_says_what_to_write(
    catalog: Catalog, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert run(["cache", "build", "pictures", "--pixels", text, "--catalog", catalog.url]) == 2
    assert f"cannot read --pixels {text!r}" in (error := capsys.readouterr().err)
    assert "image=1/4,56x56" in error


def test_a_damaged_block_of_pixels_is_made_again(catalog: Catalog, tmp_path: Path) -> None:
    dataset = catalog.dataset("pictures")
    _, expected = images_of(dataset, keep=None)
    dataset.keep_columns("train", pixels={"image": HALF})
    (document,) = [
        path for path in (tmp_path / "cache").rglob("column.json") if '"image' in json.loads(path.read_text())["layout"]
    ]
    (file,) = document.parent.glob("*.npy")
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    with pytest.warns(RegistryWarning, match="a block of the kept column 'image' of pictures:1.0.0 is damaged"):
        _, images = images_of(dataset)
    np.testing.assert_array_equal(images, expected)


def test_pixels_of_another_version_of_a_library_are_not_used(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = catalog.dataset("pictures")
    dataset.keep_columns("train", pixels={"image": HALF})
    monkeypatch.setattr(layout, "jpeg_versions", lambda: ["9.9", "9.9"])
    decoded = count_decoded(monkeypatch)
    images_of(dataset)
    assert len(decoded) == COUNT
