"""Image folders and WebDataset's tars hold the stored files, the classes and the values that a read gives."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import datasets
import numpy as np
import pytest

import registry
from registry.errors import AlreadyStoredError, FeatureError, UsageError
from registry.features import Audio, ClassLabel, FeaturesDict, Image, LabeledImage, Scalar, Sequence, Text
from registry.images.png import encode_png
from registry.interop.export_files import class_folders, plan_images, plan_samples
from registry.model import DatasetMetadata
from registry.storage import open_store

STORED = registry.ReadConfig(interleave_cycle_length=1)
NO_METADATA = DatasetMetadata()


def picture(n: int) -> bytes:
    return encode_png(np.full((2, 3, 1), n, np.uint8))


class Photos(registry.DatasetBuilder):
    """Small photos in two classes."""

    VERSION = "1.0.0"
    COUNTS = {"train": 12, "test": 3}

    def features(self) -> FeaturesDict:
        return FeaturesDict({"image": Image(shape=(None, None, 1)), "label": ClassLabel(names=["cat", "dog"])})

    def example(self, n: int) -> dict[str, Any]:
        return {"image": picture(n), "label": n % 3 - 1}

    def splits(self) -> Any:
        return {split: [(n, self.example(n)) for n in range(count)] for split, count in self.COUNTS.items()}


class Labelled(Photos):
    """Photos that all have a class."""

    def example(self, n: int) -> dict[str, Any]:
        return {"image": picture(n), "label": n % 2}


class Scenes(Photos):
    """Photos with everything that a sample can have."""

    def features(self) -> FeaturesDict:
        return FeaturesDict(
            {
                "image": Image(shape=(None, None, 1)),
                "mask": LabeledImage(num_classes=200, shape=(None, None, 1)),
                "label": ClassLabel(names=["cat", "dog"]),
                "caption": Text(),
                "boxes": Sequence({"name": Text(), "x": "float32"}),
                "age": Scalar("int32", optional=True),
            }
        )

    def example(self, n: int) -> dict[str, Any]:
        boxes = [{"name": f"b{place}", "x": place / 2} for place in range(n % 3)]
        caption = f"a phöto {n}"
        return {**super().example(n), "mask": picture(n + 1), "caption": caption, "boxes": boxes, "age": n or None}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Catalog]:
    with registry.connect(tmp_path_factory.mktemp("photos") / "catalog.db") as opened:
        opened.build(Photos(), processes=1)
        opened.build(Scenes(), processes=1)
        opened.build(Labelled(), processes=1)
        yield opened


def stored(dataset: registry.Dataset, split: str) -> list[dict[str, Any]]:
    return list(dataset.read(split, STORED))


def samples(*tars: Path) -> list[dict[str, bytes]]:
    """The records of tars: their members by ending, in the order of the members."""
    found: dict[str, dict[str, bytes]] = {}
    for path in tars:
        with tarfile.open(path) as tar:
            for member in tar:
                key, _, ending = member.name.partition(".")
                content = tar.extractfile(member)
                assert (member.mtime, member.uid, member.gid, member.uname) == (0, 0, 0, "")
                found.setdefault(key, {})[ending] = content.read()
    assert list(found) == [f"{n:09}" for n in range(len(found))]
    return list(found.values())


def test_a_folder_of_images_is_read_by_hugging_face(catalog: registry.Catalog, tmp_path: Path) -> None:
    photos = catalog.dataset("photos")
    report = photos.export("imagefolder", tmp_path / "out")
    assert [(file.path, file.split, file.num_records) for file in report.files] == [
        (f"{tmp_path}/out/train", "train", 12),
        (f"{tmp_path}/out/test", "test", 3),
    ]
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert report.num_bytes == sum(path.stat().st_size for path in files)
    for split in ("train", "test"):
        for number, example in enumerate(stored(photos, split)):
            folder = {-1: ".", 0: "cat", 1: "dog"}[int(example["label"])]
            data = (tmp_path / "out" / split / folder / f"{number:06}.png").read_bytes()
            assert data == picture(int(example["image"][0, 0, 0]))
    labelled = tmp_path / "labelled"
    photos.export("imagefolder", labelled, split="train", columns=["image"])
    read = datasets.load_dataset("imagefolder", data_dir=str(labelled), cache_dir=str(tmp_path / "cache"))["train"]
    assert [np.asarray(one).tolist() for one in read["image"]] == [
        example["image"][:, :, 0].tolist() for example in stored(photos, "train")
    ]


def test_further_features_are_in_metadata_jsonl(catalog: registry.Catalog, tmp_path: Path) -> None:
    scenes = catalog.dataset("scenes")
    scenes.export("imagefolder", tmp_path / "out", split="train[:5]", columns=["image", "label", "caption", "age"])
    lines = [json.loads(line) for line in (tmp_path / "out/metadata.jsonl").read_text(encoding="utf-8").splitlines()]
    expected = []
    for number, example in enumerate(stored(scenes, "train[:5]")):
        name = [None, "cat", "dog"][example["label"] + 1]
        folder = "" if name is None else f"{name}/"
        age = None if example["age"] is None else int(example["age"])
        caption = example["caption"].decode()
        expected.append({"file_name": f"{folder}{number:06}.png", "label": name, "caption": caption, "age": age})
    assert lines == expected
    assert all((tmp_path / "out" / line["file_name"]).is_file() for line in lines)


def test_a_sample_has_a_file_for_each_kind_of_value(catalog: registry.Catalog, tmp_path: Path) -> None:
    scenes = catalog.dataset("scenes")
    report = scenes.export("webdataset", tmp_path / "out")
    assert [Path(file.path).name for file in report.files] == ["train-000000.tar", "test-000000.tar"]
    assert report.num_bytes == sum(path.stat().st_size for path in (tmp_path / "out").iterdir())
    for split in ("train", "test"):
        for found, example in zip(samples(tmp_path / f"out/{split}-000000.tar"), stored(scenes, split), strict=True):
            pixel = int(example["image"][0, 0, 0])
            values = json.loads(found.pop("json"))
            assert found == {
                "png": picture(pixel),
                "mask.png": picture(pixel + 1),
                "cls": str(example["label"]).encode(),
                "txt": example["caption"],
            }
            assert values["age"] == example["age"]
            assert [box["x"] for box in values["boxes"]] == example["boxes"]["x"].tolist()


@pytest.mark.parametrize("labels", ["names", "numbers"])
def test_samples_that_are_added_again_have_the_same_values(
    catalog: registry.Catalog, tmp_path: Path, labels: Any
) -> None:
    scenes = catalog.dataset("scenes")
    scenes.export("webdataset", tmp_path / "out", labels=labels)
    with registry.connect(tmp_path / "catalog.db") as other:
        other.add(tmp_path / "out", "scenes", paths=False)
        again = other.dataset("scenes")
        if labels == "names":
            assert again.features["cls"] == ClassLabel(names=["cat", "dog"])
        for split in ("train", "test"):
            found = {example["txt"]: example for example in again.read(split)}
            for example in stored(scenes, split):
                same = found[example["caption"]]
                assert set(same) == {"png", "mask.png", "cls", "txt", "boxes", "age"}
                assert same["png"].tolist() == example["image"].tolist()
                assert same["mask.png"].tolist() == example["mask"].tolist()
                assert (same["cls"], same["age"]) == (example["label"], example["age"])
                assert same["boxes"]["name"].tolist() == example["boxes"]["name"].tolist()
                assert same["boxes"]["x"].tolist() == example["boxes"]["x"].tolist()


def test_tars_are_bounded_and_the_same_each_time(catalog: registry.Catalog, tmp_path: Path) -> None:
    photos = catalog.dataset("photos")
    for name in ("one", "two"):
        report = photos.export("webdataset", tmp_path / name, split="train", shard_bytes=20_000, labels="names")
    names = [Path(file.path).name for file in report.files]
    assert names == [f"photos-{shard:06}.tar" for shard in range(len(names))]
    assert len(names) > 1
    assert sum(file.num_records for file in report.files) == 12
    assert all(file.num_bytes is not None and file.num_bytes <= 20_000 for file in report.files)
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    found = samples(*(tmp_path / "one" / name for name in names))
    assert [one["cls"] for one in found] == [
        {-1: b"-1", 0: b"cat", 1: b"dog"}[int(example["label"])] for example in stored(photos, "train")
    ]
    tiny = photos.export("webdataset", tmp_path / "tiny", split="train", shard_bytes=1)
    assert [file.num_records for file in tiny.files] == [1] * 12
    empty = photos.export("webdataset", tmp_path / "empty", split="train[:0]+test[:0]")
    assert [file.num_records for file in empty.files] == [0]
    assert samples(Path(empty.files[0].path)) == []


def test_hugging_face_reads_the_tars(catalog: registry.Catalog, tmp_path: Path) -> None:
    photos = catalog.dataset("photos")
    photos.export("webdataset", tmp_path / "out")
    read = datasets.load_dataset("webdataset", data_dir=str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert {split: one["cls"][:] for split, one in read.items()} == {
        split: [int(example["label"]) for example in stored(photos, split)] for split in ("train", "test")
    }


def test_only_the_folder_of_an_export_is_replaced(catalog: registry.Catalog, tmp_path: Path) -> None:
    photos = catalog.dataset("photos")
    (tmp_path / "out").mkdir()  # an empty folder may be filled
    photos.export("imagefolder", tmp_path / "out", split="test")
    with pytest.raises(AlreadyStoredError) as refused:
        photos.export("imagefolder", tmp_path / "out", split="train")
    assert str(refused.value) == f"{tmp_path}/out already exists and has an export of imagefolder"
    photos.export("imagefolder", tmp_path / "out", split="train", force=True)
    assert len(list((tmp_path / "out").rglob("*.png"))) == 12
    (tmp_path / "out/thesis.tex").write_text("")
    with pytest.raises(AlreadyStoredError) as refused:
        photos.export("imagefolder", tmp_path / "out", split="train", force=True)
    assert str(refused.value) == (
        f"{tmp_path}/out already exists and has other files than an export, such as thesis.tex"
    )
    with pytest.raises(AlreadyStoredError):
        photos.export("webdataset", tmp_path / "out/thesis.tex", force=True)


def test_an_export_that_is_interrupted_leaves_nothing(
    catalog: registry.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = catalog.dataset("photos")

    def stop(progress: registry.Progress) -> None:
        raise KeyboardInterrupt

    for kind in ("imagefolder", "webdataset"):
        with pytest.raises(KeyboardInterrupt):
            photos.export(kind, tmp_path / "out", progress=stop)  # type: ignore[arg-type]
        assert list(tmp_path.iterdir()) == []
    report = photos.export("webdataset", tmp_path / "out", dry_run=True)
    assert [file.path for file in report.files] == [f"{tmp_path}/out/train-*.tar", f"{tmp_path}/out/test-*.tar"]
    assert list(tmp_path.iterdir()) == []


def test_classes_that_cannot_be_folders_are_named() -> None:
    for names, problem in (
        (["a", "b/c"], "the class 'b/c' cannot be the name of a folder: it contains a path separator"),
        ([".."], "the class '..' cannot be the name of a folder: it begins like a hidden folder"),
        (["Cat", "cat"], "the class 'cat' cannot be the name of a folder: it differs from 'Cat' only in case"),
        (["ä" * 128], f"the class '{'ä' * 128}' cannot be the name of a folder: it is longer than 255 bytes"),
    ):
        with pytest.raises(UsageError) as refused:
            class_folders(ClassLabel(names=names), "names")
        assert str(refused.value) == problem
        assert refused.value.hint == "Name the folders by the numbers of the classes: labels='numbers'."
        assert class_folders(ClassLabel(names=names), "numbers") == {n: str(n) for n in range(len(names))}
    assert list(class_folders(ClassLabel(num_classes=11), "names").values())[9:] == ["09", "10"]


def test_the_image_and_the_class_of_a_folder_are_chosen_or_asked_for() -> None:
    image, mask, label = Image(), LabeledImage(num_classes=2), ClassLabel(num_classes=2)

    def plan(**features: Any) -> tuple[Any, Any]:
        found = plan_images(FeaturesDict(features), NO_METADATA, "names")
        return found.files[0], found.label

    assert plan(scan=image, mask=mask, kind=label) == ("scan", "kind")
    assert plan(image=image, other=image, label=label, second=label) == ("image", "label")
    assert plan(mask=mask, a=label, b=label) == ("mask", None)
    with pytest.raises(UsageError) as refused:
        plan(left=image, right=image)
    assert (
        str(refused.value)
        == "an image folder has one image for each record, but several features are images: left, right"
    )
    assert refused.value.hint == "Choose one: columns=['left']. Or export webdataset or parquet."
    with pytest.raises(UsageError, match="needs an image feature, but this version has none"):
        plan(id="int64")
    with pytest.raises(UsageError, match=r"metadata.jsonl names the image in the column 'file_name'"):
        plan(image=image, file_name=Text())


def test_sounds_and_several_texts_are_samples_too() -> None:
    features = FeaturesDict({"b": Text(), "a": Text(), "speech": Audio(lazy_decode=True), "image": Image()})
    plan = plan_samples(features, NO_METADATA, "numbers")
    assert (plan.files, plan.label, plan.text) == (("image", "speech"), None, None)
    with pytest.raises(UsageError, match=r"feature 'b/c' cannot be part of the name of a file"):
        plan_samples(FeaturesDict({"a": Image(), "b/c": Image()}), NO_METADATA, "numbers")


def test_options_of_other_formats_are_refused(catalog: registry.Catalog, tmp_path: Path) -> None:
    photos = catalog.dataset("photos")
    with pytest.raises(UsageError, match="shard_bytes is an option of webdataset"):
        photos.export("csv", tmp_path / "x.csv", split="train", shard_bytes=3)
    with pytest.raises(UsageError, match="imagefolder needs a folder, not a file object"):
        photos.export("imagefolder", io.BytesIO(), split="train")


def test_a_class_without_a_folder_is_refused(
    catalog: registry.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = catalog.dataset("photos")
    monkeypatch.setattr("registry.interop.export_files.class_folders", lambda *_: {0: "cat"})
    with pytest.raises(FeatureError, match="feature 'label': class number 1 has no name among 1"):
        photos.export("imagefolder", tmp_path / "out")


@pytest.mark.parametrize("kind", ["imagefolder", "webdataset", "parquet"])
def test_what_was_exported_can_be_added_again(kind: Any, catalog: registry.Catalog, tmp_path: Path) -> None:
    labelled = catalog.dataset("labelled")
    labelled.export(kind, tmp_path / "out")
    image, label = ("png", "cls") if kind == "webdataset" else ("image", "label")
    with registry.connect(tmp_path / "catalog.db") as other:
        other.add(tmp_path / "out", "again", processes=1)
        again = other.dataset("again")
        for split in ("train", "test"):
            found = sorted((one[image].tobytes(), int(one[label])) for one in again.read(split))
            assert found == sorted((one["image"].tobytes(), int(one["label"])) for one in labelled.read(split))
    if kind != "webdataset":
        assert again.features["label"] == labelled.features["label"]


def test_a_destination_may_be_a_store_without_folders(catalog: registry.Catalog) -> None:
    photos = catalog.dataset("photos")
    place = f"memory://{uuid4().hex}"
    photos.export("parquet", f"{place}/a/x.parquet", split="test")
    for count in (3, 2):
        photos.export("webdataset", f"{place}/tars/", split=f"train[:{count}]", force=count == 2)
    report = photos.export("imagefolder", f"{place}/images", split="train[:1]", labels="numbers")
    assert report.files[0].path == f"{place}/images"
    *others, image = sorted(open_store(place).list(), key=lambda name: name.startswith("images"))
    assert others == ["a/x.parquet", "tars/photos-000000.tar"]
    assert image.endswith("000000.png")
    with open_store(place).open("tars/photos-000000.tar") as file, tarfile.open(fileobj=io.BytesIO(file.read())) as tar:
        assert len(tar.getnames()) == 4


def test_without_pyarrow_its_extra_is_named(
    catalog: registry.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("registry.interop.export_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(registry.RegistryError) as refused:
        catalog.dataset("photos").export("csv", tmp_path / "x.csv", split="train", columns=["label"])
    assert str(refused.value) == "an export to csv needs the package 'pyarrow', which is not installed"
    assert refused.value.hint == "Install it with: pip install 'shardbook[arrow]'"
