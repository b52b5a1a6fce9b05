"""TFDS opens our published versions unchanged, with the same values in the same order."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tfds_samples import EveryFeature, Ordered, Tongues, exact, theirs

import registry
from registry import ReadConfig
from registry.errors import SliceError
from registry.images.png import encode_png

pytestmark = [pytest.mark.tfds, pytest.mark.filterwarnings("ignore")]

BUILDERS: dict[str, Any] = {"digits": "digits", "every_feature": EveryFeature, "ordered": Ordered}


def ours(dataset: registry.Dataset, split: str, config: ReadConfig) -> list[Any]:
    return [exact(example) for example in dataset.read(split, config, slicing="tfds-4").missing_as_tfds()]


def published(catalog: registry.Catalog, name: str, num_shards: int = 5) -> registry.Dataset:
    catalog.build(BUILDERS[name], num_shards=num_shards)
    return catalog.dataset(name)


@pytest.mark.parametrize("name", BUILDERS)
def test_values_and_order_are_the_same(tfds: Any, catalog: registry.Catalog, name: str) -> None:
    dataset = published(catalog, name)
    builder = tfds.builder_from_directory(dataset.info.data_dir)
    for split in dataset.splits:
        found = theirs(tfds, builder, split)
        assert len(found) == dataset.splits[split].num_examples
        assert ours(dataset, split, ReadConfig(add_tfds_id=True)) == found


@pytest.mark.parametrize("seed", [0, 42, -7])
@pytest.mark.parametrize("name", ["digits", "every_feature"])
def test_seeded_shuffles_are_the_same(tfds: Any, catalog: registry.Catalog, name: str, seed: int) -> None:
    dataset = published(catalog, name)
    builder = tfds.builder_from_directory(dataset.info.data_dir)
    for cycle, block in ((16, 16), (3, 2), (1, 1)):
        options: dict[str, Any] = {"interleave_cycle_length": cycle, "interleave_block_length": block}
        config = ReadConfig(shuffle_files=True, shuffle_seed=seed, add_tfds_id=True, **options)
        assert ours(dataset, "train", config) == theirs(tfds, builder, "train", shuffle_seed=seed, **options)


@pytest.mark.parametrize(
    "split",
    [
        *(
            "train[:10%]",
            "train[48%:50%]",
            "train[-1%:]",
            "train[17:]",
            "train[:-3]",
            "train[1shard]",
            "train[-1shard]",
        ),
        *("train[2shard:4shard]", "train[:5]+test[1:3]", "train[33.3%:66.6%]", "all", "train[10%:]+train[:10%]"),
    ],
)
def test_slices_are_the_same(
    tfds: Any, tmp_path_factory: pytest.TempPathFactory, every: tuple[registry.Dataset, Any], split: str
) -> None:
    dataset, builder = every
    instructions = builder.info.splits[split].file_instructions
    plan = dataset.resolve(split, slicing="tfds-4")
    assert [(Path(one.filename).name, one.skip, one.take, one.examples_in_shard) for one in instructions] == [
        (one.filename, one.skip, one.take, one.examples_in_shard) for one in plan
    ]
    found = [example["id"] for example in tfds.as_numpy(builder.as_dataset(split=split))]
    assert [int(example["id"]) for example in dataset.read(split, slicing="tfds-4")] == found


@pytest.fixture(scope="module")
def every(tfds: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[registry.Dataset, Any]:
    folder = tmp_path_factory.mktemp("every")
    catalog = registry.connect(folder / "catalog.db", create=True)
    dataset = published(catalog, "every_feature", 4)
    return dataset, tfds.builder_from_directory(dataset.info.data_dir)


def test_files_that_neither_can_read_are_refused(tfds: Any, every: tuple[registry.Dataset, Any]) -> None:
    dataset, builder = every
    with pytest.raises(ValueError, match="incompatible with 61 examples"):
        builder.info.splits["train[:62]"]
    with pytest.raises(SliceError):
        dataset.resolve("train[:62]", slicing="tfds-4")


def test_what_is_said_of_the_dataset_arrives(every: tuple[registry.Dataset, Any]) -> None:
    dataset, builder = every
    info = builder.info
    assert (info.name, str(info.version), info.description) == ("every_feature", "1.0.0", dataset.metadata.description)
    assert info.citation == "@misc{every}"
    assert info.supervised_keys == ("text", "label")
    assert info.features["label"].names == ["cat", "dog"]
    assert info.features["mask"].names == ["sky", "road"]
    assert info.features["boxes"]["name"].names == ["a", "b", "c"]
    assert {name: split.num_bytes for name, split in info.splits.items()} == {
        name: split.num_bytes for name, split in dataset.splits.items()
    }


def test_datasets_are_loaded_by_name_with_their_default_config(tfds: Any, catalog: registry.Catalog) -> None:
    for config in ("de", "en"):
        catalog.build(Tongues(config=config))
    for name, text in (("tongues", b"en"), ("tongues/de", b"de"), ("tongues/en:1.0.0", b"en")):
        data = tfds.load(name, data_dir=catalog.data_dir, split="train")
        assert {example["text"].split()[0] for example in tfds.as_numpy(data)} == {text}


def test_supervised_pairs_and_infos_are_the_same(tfds: Any, every: tuple[registry.Dataset, Any]) -> None:
    dataset, builder = every
    source: Any = dataset.provenance.source
    catalog = source.look_up.__self__
    reader = registry.load("every_feature", split="test", as_supervised=True, catalog=catalog)
    pairs = tfds.as_numpy(builder.as_dataset(split="test", as_supervised=True))
    assert [tuple(map(exact, pair)) for pair in reader] == [tuple(map(exact, pair)) for pair in pairs]
    assert dataset.info.splits["train[5:9]"].num_examples == builder.info.splits["train[5:9]"].num_examples


def test_an_exported_version_is_loaded_by_name(tfds: Any, every: tuple[registry.Dataset, Any], tmp_path: Path) -> None:
    dataset, builder = every
    dataset.export_tfds(tmp_path)
    exported = tfds.builder("every_feature", data_dir=tmp_path)
    assert theirs(tfds, exported, "test") == theirs(tfds, builder, "test")


def test_what_was_added_is_read_as_it_came(tfds: Any, catalog: registry.Catalog, tmp_path: Path) -> None:
    """Tables, nested values, times, classes and images that were published without a builder class."""
    when = dt.datetime(2026, 5, 1, 12, 30, tzinfo=dt.UTC)
    rows = [
        {
            "id": n,
            "price": n / 7,
            "name": f"item {n}",
            "tags": [f"tag {tag}" for tag in range(n % 3)],
            "size": {"width": n, "height": n * 2},
            "when": when + dt.timedelta(seconds=n),
            "vector": np.arange(4, dtype=np.float32) * n,
        }
        for n in range(50)
    ]
    catalog.add({"train": rows[:40], "test": rows[40:]}, "things")
    for label in ("cat", "dog"):
        folder = tmp_path / "photos" / label
        folder.mkdir(parents=True)
        for n in range(4):
            (folder / f"{n}.png").write_bytes(encode_png(np.full((4, 5, 3), n * 50, np.uint8)))
    catalog.add(tmp_path / "photos", "photos")
    for name in ("things", "photos"):
        dataset = catalog.dataset(name)
        builder = tfds.builder_from_directory(dataset.info.data_dir)
        for split in dataset.splits:
            assert ours(dataset, split, ReadConfig(add_tfds_id=True)) == theirs(tfds, builder, split)
    found = {
        int(one["id"]): one
        for one in tfds.as_numpy(
            tfds.builder_from_directory(catalog.dataset("things").info.data_dir).as_dataset(split="train")
        )
    }
    assert set(found) == set(range(40))
    for n, one in found.items():
        assert (one["name"].decode(), float(one["price"])) == (rows[n]["name"], rows[n]["price"])
        assert [tag.decode() for tag in one["tags"]] == rows[n]["tags"]
        assert one["vector"].tolist() == rows[n]["vector"].tolist()
        assert int(one["when"]) == int((when.timestamp() + n) * 1_000_000)
