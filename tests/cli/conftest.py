from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from support.prepared_samples import ANIMALS, animals, prepare

import registry
from registry.cli.main import run
from registry.features import Audio, ClassLabel, FeaturesDict, Image, Scalar, Sequence, Tensor, Text, codec_of


@dataclass(frozen=True)
class Ran:
    """What a command line printed and how it ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def error(self) -> Any:
        return json.loads(self.err)["error"]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder whose ``catalog.db`` and ``datasets`` every command of the test uses."""
    monkeypatch.setenv("REGISTRY_CATALOG", str(tmp_path / "catalog.db"))
    monkeypatch.setenv("REGISTRY_ACTOR", "tester")
    monkeypatch.delenv("REGISTRY_DATA_DIR", raising=False)
    return tmp_path


@pytest.fixture
def cli(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run one command line in this process."""

    def ran(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run(list(arguments))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return ran


@pytest.fixture
def empty(cli: Callable[..., Ran]) -> Callable[..., Ran]:
    """The same, with a catalog in which nothing is published."""
    cli("db", "upgrade")
    return cli


@pytest.fixture(scope="session")
def published_digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the catalog and the data of the shipped digits, built once."""
    folder = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch, registry.connect(folder / "catalog.db") as catalog:
        patch.setenv("REGISTRY_ACTOR", "tester")
        catalog.build("digits")
    return folder


@pytest.fixture
def digits(cli: Callable[..., Ran], workspace: Path, published_digits: Path) -> Callable[..., Ran]:
    """The same, with the digits published: a copy, for a catalog and its data move together."""
    shutil.copytree(published_digits, workspace, dirs_exist_ok=True)
    return cli


@pytest.fixture(scope="session")
def lock_of_digits(tmp_path_factory: pytest.TempPathFactory, published_digits: Path) -> Path:
    """A pin file with the first 80% and the last 20% of the digits."""
    path = tmp_path_factory.mktemp("pinned") / "dataset.lock.yaml"
    places = ("-o", str(path), "--catalog", f"{published_digits}/catalog.db")
    assert run(["pin", "create", "digits:1.*", "train=train[:80%]", "validation=train[80%:]", *places]) == 0
    return path


@pytest.fixture
def pins(digits: Callable[..., Ran], workspace: Path, lock_of_digits: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The digits in the working folder, with this pin file as ``dataset.lock.yaml``."""
    monkeypatch.chdir(workspace)
    shutil.copy(lock_of_digits, workspace)
    return digits


@pytest.fixture
def prices(cli: Callable[..., Ran], workspace: Path) -> Callable[..., Ran]:
    """An empty catalog beside ``prices.csv``."""
    (workspace / "prices.csv").write_text(
        "item,price,zip,sold\nlamp,19.5,01069,2020-01-31\nchair,42.0,10115,\ndesk,120.25,80331,2021-03-01\n"
    )
    return cli


@pytest.fixture
def animal_folders(cli: Callable[..., Ran], workspace: Path) -> Callable[..., Ran]:
    """Beside prepared versions: 1.0.0 and 1.1.0 in a data_dir of TFDS, ``tfds``, and others in ``more``."""
    places = {"tfds/animals/1.0.0": 3, "tfds/animals/1.1.0": 2, "more/1.0.1": 4, "more/2.0.0": 2, "more/2.0.1": 3}
    for place, shards in places.items():
        prepare(workspace / place, Path(place).name, shards=shards)
    return cli


@pytest.fixture
def dropped(animal_folders: Callable[..., Ran], workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """animals:1.0.0, which is dropped."""
    monkeypatch.setenv("REGISTRY_CACHE", str(workspace / "cache"))
    animal_folders("publish", str(workspace / "tfds/animals/1.0.0"))
    animal_folders("drop", "animals:1.0.0", "--reason", "wrong")
    return animal_folders


@pytest.fixture
def scans(cli: Callable[..., Ran], workspace: Path) -> Callable[..., Ran]:
    """A dataset with one record in both splits, and a patient in both."""
    rows = {
        "train": [{"patient": f"p{n % 4}", "at": n} for n in range(8)] + [{"patient": None, "at": 8}],
        "test": [{"patient": "p9", "at": 20}, {"patient": "p1", "at": 21}, {"patient": "p3", "at": 3}],
        "extra": [{"patient": "p8", "at": 30}, {"patient": None, "at": 31}],
    }
    registry.add(rows, "scans", catalog=registry.connect(workspace / "catalog.db"))
    return cli


class Greetings(registry.DatasetBuilder):
    VERSION = registry.Version("1.0.0", experiments={"new_shuffle": True, "old_order": False})
    BUILDER_CONFIGS = [
        registry.BuilderConfig(name="de", description="German.", tags=["text", "small"]),
        registry.BuilderConfig(name="en"),
    ]

    def features(self) -> FeaturesDict:
        return FeaturesDict({"number": "int64"})

    def splits(self) -> Any:
        return {"train": [(0, {"number": 1})]}


@pytest.fixture
def greetings(cli: Callable[..., Ran]) -> Callable[..., Ran]:
    """A catalog with two configs whose versions override two flags."""
    for name in ("new_shuffle", "old_order"):
        cli("experiment", "add", name, "--description", f"About {name}.")
    with registry.connect() as catalog:
        for config in ("de", "en"):
            catalog.build(Greetings(config=config))
    return cli


@pytest.fixture
def parquet(cli: Callable[..., Ran], workspace: Path) -> Callable[..., Ran]:
    """An empty catalog beside ``animals``, four examples in two Parquet files, and two of a test split."""
    (workspace / "animals").mkdir()
    table = pa.table({"name": ["cat", "dog", "eel", "fox"], "legs": [4, 4, 0, 4]})
    for index in range(2):
        pq.write_table(table.slice(2 * index, 2), workspace / f"animals/train-{index:05}-of-00002.parquet")
    pq.write_table(table.slice(2), workspace / "animals/test.parquet")
    return cli


class FewWords(registry.DatasetBuilder):
    """Ten words for training and three for the test."""

    name = "words"
    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        kind = ClassLabel(names=["noun", "verb"])
        return FeaturesDict({"kind": kind, "length": Scalar("int64", optional=True), "word": Text()})

    def splits(self) -> Any:
        def words(count: int) -> Any:
            return [(n, {"kind": n % 2, "length": n or None, "word": f"w{n}"}) for n in range(count)]

        return {"train": words(10), "test": words(3)}


@pytest.fixture(scope="session")
def published_words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the catalog and the data of the words."""
    folder = tmp_path_factory.mktemp("words")
    with registry.connect(folder / "catalog.db") as catalog:
        catalog.build(FewWords(), processes=1)
    return folder


@pytest.fixture
def words(
    cli: Callable[..., Ran], workspace: Path, published_words: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    """Commands in a folder in which the words are published."""
    monkeypatch.chdir(workspace)
    shutil.copytree(published_words, workspace, dirs_exist_ok=True)
    return cli


@pytest.fixture
def outside(cli: Callable[..., Ran], workspace: Path) -> Callable[..., Ran]:
    """An empty catalog beside pets:1.0.0 of TFDS, whose labels are 0 to 3, of three classes."""
    codec = codec_of(FeaturesDict({"label": "int64"}))
    records = [codec.encode({"label": label}) for label in range(4)]
    features = FeaturesDict({"label": ClassLabel(num_classes=3)})
    prepare(workspace / "tfds/pets/1.0.0", splits={"train": records}, features=features, name="pets")
    return cli


class Zoo(registry.DatasetBuilder):
    """Animals."""

    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict(
            {
                "photo": Image(shape=(None, None, 3)),
                "label": ClassLabel(names=["cat", "数据集"]),
                "boxes": Sequence({"label": ClassLabel(names=["car", "bus"]), "area": "float32"}),
                "born": Tensor(shape=(), dtype="int32", description="date32[day]: days since 1970-01-01."),
                "call": Audio(sample_rate=8000, dtype="int16"),
                "note": Text(),
            }
        )

    def splits(self) -> Any:
        def rows(count: int) -> Any:
            for i in range(count):
                yield (
                    i,
                    {
                        "photo": np.full((20, 30, 3), (i * 40, 99, 200), np.uint8),
                        "label": i % 2,
                        "boxes": [{"label": j % 2, "area": 0.5} for j in range(i)],
                        "born": 19730 + i,
                        "call": np.zeros(4000, np.int16),
                        "note": "\x1b]0;owned\x07 \x9b31m\u202e" + "long " * 100,
                    },
                )

        return {"test": rows(2), "train": rows(6)}


@pytest.fixture
def zoo(cli: Callable[..., Ran], workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """A catalog with these animals."""
    with registry.connect() as catalog:
        catalog.build(Zoo)
    return cli


@pytest.fixture(scope="session")
def prepared_versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with animals:1.0.0 published, 3,000 and 5 examples in 8 shards each, and with other versions of them."""
    folder = tmp_path_factory.mktemp("animals")
    tame = FeaturesDict({**ANIMALS, "tame": "bool"})
    relabelled = FeaturesDict({"name": Text(), "kind": ClassLabel(names=["cat", "fox"]), "tail": "float32"})
    whole = {"train": animals(3000), "test": animals(5)}
    tamed = {name: [{**example, "tame": True} for example in whole[name]] for name in whole}
    changed = {**whole, "train": animals(3000, age=-3)}
    others = {"train": animals(3000, name="somebody else"), "more": animals(7)}
    del others["train"][10]
    foxes = [{"name": f"animal {number}", "kind": number % 2, "tail": 1.5} for number in range(3000)]
    foxes[7]["name"] = "x"
    versions: dict[str, tuple[str, Any, dict[str, Any]]] = {
        "first": ("1.0.0", whole, {"shards": 8}),
        "wrong": ("1.0.0", {"train": whole["train"]}, {}),
        "patch": ("1.0.1", tamed, {"features": tame}),
        "minor": ("1.1.0", tamed, {"features": tame}),
        "changed": ("1.1.0", changed, {"shards": 3, "compress": True}),
        "same": ("1.1.0", whole, {"shards": 5}),
        "above": ("1.2.0", whole, {}),
        "large": ("3.0.0", whole, {"shards": 8}),
        "larger": ("3.0.5", whole, {"shards": 2}),
        "other": ("1.0.1", others, {"description": "New words."}),
        "small": ("1.0.1", changed, {}),
        "major": ("2.0.0", changed, {}),
        "relabelled": ("2.0.0", {"train": foxes}, {"features": relabelled}),
    }
    for name, (version, splits, options) in versions.items():
        prepare(folder / name, version, splits, **options)
    with registry.connect(folder / "catalog.db") as catalog:
        catalog.publish(folder / "first")
    return folder


@pytest.fixture
def versions(cli: Callable[..., Ran], workspace: Path, prepared_versions: Path) -> Callable[..., Ran]:
    """The same in the workspace of this test."""
    shutil.copytree(prepared_versions, workspace, dirs_exist_ok=True)
    return cli


class Numbers(registry.DatasetBuilder):
    """As many numbers as the MAJOR says."""

    VERSION = "1.0.0"
    SUPPORTED_VERSIONS = ["1.1.0", "1.1.1", "2.0.0"]

    def features(self) -> FeaturesDict:
        return FeaturesDict({"number": "int64"})

    def splits(self) -> Any:
        return {"train": [(n, {"number": n}) for n in range(self.version.major)]}


class Words(Numbers):
    """The same in two configs."""

    BUILDER_CONFIGS = [registry.BuilderConfig(name="de"), registry.BuilderConfig(name="en")]


@pytest.fixture(scope="session")
def published_numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with numbers 1.0.0 (canonical), 1.1.0, 1.1.1, 2.0.0; words/de (default) and words/en 1.0.0, 2.0.0."""
    folder = tmp_path_factory.mktemp("numbers")
    with pytest.MonkeyPatch.context() as patch, registry.connect(folder / "catalog.db") as catalog:
        patch.setenv("REGISTRY_ACTOR", "tester")
        for version in ("1.0.0", "1.1.0", "1.1.1", "2.0.0"):
            catalog.build(Numbers(version=version), processes=1)
        for version in ("1.0.0", "2.0.0"):
            for config in ("de", "en"):
                catalog.build(Words(config=config, version=version), processes=1)
    return folder


@pytest.fixture
def numbers(cli: Callable[..., Ran], workspace: Path, published_numbers: Path) -> Callable[..., Ran]:
    """The same in the workspace of this test."""
    shutil.copytree(published_numbers, workspace, dirs_exist_ok=True)
    return cli


@pytest.fixture
def earth_engine(cli: Callable[..., Ran], workspace: Path) -> Callable[..., Ran]:
    """Beside a raster, predictions for an export of Earth Engine, and exports of a table and of an image."""
    import rasterio

    from registry.builders.earth_engine.exporting.image import export_image
    from registry.builders.earth_engine.table import write_table

    files = Path(__file__).parents[1] / "conformance" / "earth_engine" / "files"
    (workspace / "predictions").mkdir()
    for name in ("F12_pred-00000.tfrecord", "F12_pred-00001.tfrecord"):
        shutil.copy(files / name, workspace / "predictions")
    matrix = [30.0, 0.0, 500000.0, 0.0, -30.0, 4100000.0]
    mixer = {"projection": {"crs": "EPSG:32610", "affine": {"doubleMatrix": matrix}}}
    mixer |= {"patchDimensions": [2, 2], "patchesPerRow": 3, "totalPatches": 6}
    (workspace / "predictions/F12_pred-mixer.json").write_text(json.dumps(mixer))
    write_table([{"a": 1.5, "b": "x"}, {"a": 2.5, "b": "y"}], workspace / "table", "t")
    place: dict[str, Any] = {"transform": matrix, "crs": "EPSG:32610"}
    export_image({"b1": np.zeros((2, 2), "uint8")}, workspace / "image", "p", patch_dimensions=2, **place)
    place["transform"], scene = rasterio.Affine(*matrix[:6]), workspace / "scene.tif"
    size: dict[str, Any] = {"width": 7, "height": 5, "count": 3, "dtype": "uint8", "nodata": 0}
    with rasterio.open(scene, "w", driver="GTiff", **size, **place) as data:
        for number, name in enumerate(("red", "green", "nir"), start=1):
            data.write(np.arange(35, dtype="uint8").reshape(5, 7) + number - 1, number)
            data.set_band_description(number, name)
    return cli
