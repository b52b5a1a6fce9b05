"""Every example of TFDS's document on dataset versions, run: built, published and looked up, on both databases."""

from __future__ import annotations

import enum
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import registry
from registry.building import BuilderConfig, DatasetBuilder
from registry.catalog import sqlite_path
from registry.errors import (
    BuildError,
    ConflictError,
    ExperimentNotFoundError,
    NotFoundError,
    ReferenceSyntaxError,
    VersionNotFoundError,
)
from registry.features import FeaturesDict, Scalar, Tensor
from registry.model import Version, VersionStatus


class Experiment(enum.Enum):
    """As TFDS code has it."""

    S3 = enum.auto()


class Numbers(DatasetBuilder):
    """A number that differs from MAJOR to MAJOR, and from flag to flag."""

    name = "numbers"
    VERSION: Any = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict({"number": Scalar("int64")})

    def splits(self) -> Mapping[str, Any]:
        return {"train": self.generate()}

    def generate(self) -> Iterator[tuple[int, dict[str, int]]]:
        yield 0, {"number": self.version.major * 100}


def builder(name: str, **attributes: Any) -> type[DatasetBuilder]:
    return type("Made", (Numbers,), {"name": name, **attributes})


@pytest.fixture
def catalog(catalog_url: str, tmp_path: Path) -> Iterator[registry.Catalog]:
    with registry.connect(catalog_url, data_dir=tmp_path / "datasets") as opened:
        yield opened


def numbers(dataset: registry.Dataset) -> list[int]:
    return [int(example["number"]) for example in dataset.read("train")]


def execute(catalog: registry.Catalog, url: str, statement: str) -> None:
    """One statement past the registry, as a stranger would."""
    import sqlite3

    import psycopg

    path = sqlite_path(url)
    if path is None:
        with psycopg.connect(url) as server:
            server.execute(statement)
    else:
        with sqlite3.connect(path) as file:
            file.execute(statement)
        file.close()


IMAGENET = builder(
    "imagenet2012",
    VERSION=Version("2.0.1"),
    SUPPORTED_VERSIONS=[Version("3.0.0"), Version("1.0.0"), Version("0.0.9", tfds_version_to_prepare="v1.0.0")],
    RELEASE_NOTES={"2.0.1": "Encoding fix. No changes from user POV", "3.0.0": "S3"},
)


def test_a_builder_supports_versions_above_and_below_the_canonical_one(catalog: registry.Catalog) -> None:
    for number in ("2.0.1", "3.0.0", "1.0.0"):
        assert catalog.build(IMAGENET(version=number)).newly
    assert catalog.dataset("imagenet2012").version == "2.0.1"
    assert numbers(catalog.dataset("imagenet2012:1.0.0")) == [100]
    statuses = {str(one.version): one.status for one in catalog.versions("imagenet2012")}
    assert statuses == {
        "3.0.0": VersionStatus.EXPERIMENTAL,
        "2.0.1": VersionStatus.CANONICAL,
        "1.0.0": VersionStatus.SUPPORTED,
    }
    assert catalog.dataset("imagenet2012:2.0.1").metadata.release_notes["2.0.1"].startswith("Encoding fix.")


def test_a_wildcard_gives_3_0_0_and_3_1_1_once_that_is_there(catalog: registry.Catalog) -> None:
    catalog.build(IMAGENET)
    catalog.build(IMAGENET(version="3.0.0"))
    assert catalog.dataset("imagenet2012:3.*.*").version == "3.0.0"
    catalog.build(builder("imagenet2012", VERSION="3.1.1")())
    assert catalog.dataset("imagenet2012:3.*.*").version == "3.1.1"
    assert catalog.dataset("Imagenet2012/version=3.*.*").version == "3.1.1"


def test_the_error_for_an_unsupported_version_names_the_supported_ones(catalog: registry.Catalog) -> None:
    catalog.build(IMAGENET)
    catalog.build(IMAGENET(version="3.0.0"))
    with pytest.raises(VersionNotFoundError) as caught:
        catalog.dataset("imagenet2012:2.0.0")
    assert caught.value.message == "no version '2.0.0' in imagenet2012"
    assert caught.value.hint == "Published: 3.0.0 (experimental), 2.0.1 (canonical)."
    with pytest.raises(VersionNotFoundError) as caught:
        IMAGENET(version="2.0.0")
    assert caught.value.hint == "This code can build: 2.0.1, 3.0.0, 1.0.0."


def test_a_version_of_older_code_is_read_if_prepared_and_never_built(catalog: registry.Catalog, tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        catalog.build(IMAGENET(version="0.0.9"))
    assert caught.value.message == (
        "imagenet2012:0.0.9 cannot be prepared by this code; the last version of the code that can is 1.0.0"
    )
    assert caught.value.hint == (
        "Prepare it with that code, then publish the folder: registry publish FOLDER --version-to-prepare 1.0.0\n"
        "This code can build: 2.0.1, 3.0.0, 1.0.0."
    )
    with pytest.raises(NotFoundError):
        catalog.dataset("imagenet2012:0.0.9")

    with registry.connect(tmp_path / "old" / "catalog.db") as old:
        old.build(builder("imagenet2012", VERSION="0.0.9"))
    folder = tmp_path / "old" / "datasets" / "imagenet2012" / "0.0.9"
    assert catalog.publish(folder, promote=False, version_to_prepare="v1.0.0").newly

    found = catalog.dataset("imagenet2012:0.0.9")
    assert (numbers(found), found.facts.version_to_prepare) == ([0], "1.0.0")
    assert not catalog.build(IMAGENET(version="0.0.9")).newly
    with pytest.raises(BuildError):
        catalog.build(IMAGENET(version="0.0.9"), rebuild=True)


def test_what_is_said_of_the_code_is_published_once(catalog: registry.Catalog, tmp_path: Path) -> None:
    with registry.connect(tmp_path / "old" / "catalog.db") as old:
        old.build(builder("imagenet2012", VERSION="0.0.9"))
    folder = tmp_path / "old" / "datasets" / "imagenet2012" / "0.0.9"
    catalog.publish(folder, version_to_prepare="1.0.0")
    assert not catalog.publish(folder, version_to_prepare="v1.0.0").newly
    assert not catalog.publish(folder).newly
    with pytest.raises(ConflictError) as caught:
        catalog.publish(folder, version_to_prepare="2.0.0")
    assert caught.value.message == "imagenet2012:0.0.9 is already published with version_to_prepare 1.0.0"
    with pytest.raises(ReferenceSyntaxError, match=r"^invalid version of builder code 'soon'(?m:$)"):
        catalog.publish(folder, version_to_prepare="soon")


def test_a_range_takes_the_highest_that_can_be_built() -> None:
    only_read = [Version("3.0.0", version_to_prepare="1.0.0"), Version("1.1.0", version_to_prepare="1.0.0"), "1.0.0"]
    made = builder("numbers", VERSION="2.0.0", SUPPORTED_VERSIONS=only_read)
    assert made(version="*").version == "2.0.0"
    assert made(version="1.*").version == "1.0.0"
    assert made(version="3.*").version == "3.0.0"
    assert made(version="1.1.0").version.version_to_prepare == "1.0.0"
    with pytest.raises(VersionNotFoundError) as caught:
        made(version="4")
    assert caught.value.hint == "This code can build: 2.0.0, 1.0.0."


class Flagged(Numbers):
    """Generates other numbers if the flag is on."""

    def generate(self) -> Iterator[tuple[int, dict[str, int]]]:
        yield 0, {"number": int(self.version.implements(Experiment.S3))}


def flagged(**attributes: Any) -> type[DatasetBuilder]:
    return type("Mnist", (Flagged,), attributes)


def test_a_future_version_opts_in_to_a_flag_that_is_off_by_default(catalog: registry.Catalog) -> None:
    mnist = flagged(VERSION=Version("1.0.0"), SUPPORTED_VERSIONS=[Version("2.0.0", experiments={Experiment.S3: True})])
    catalog.experiments.add("s3", "The slicing API of tensorflow.org/datasets/splits.")
    catalog.build(mnist)
    catalog.build(mnist(version="2.0.0"))

    canonical, future = catalog.dataset("mnist"), catalog.dataset("mnist:2.0.0")
    assert (numbers(canonical), numbers(future)) == ([0], [1])
    assert (dict(canonical.experiments), dict(future.experiments)) == ({}, {"s3": True})
    assert (canonical.implements("s3"), future.implements(Experiment.S3)) == (False, True)

    # The default flips: published versions do not change, and can be rebuilt byte for byte.
    catalog.experiments.set_default("s3", True)
    assert not catalog.dataset("mnist:1.0.0").implements("s3")
    assert not catalog.build(mnist, rebuild=True).newly
    catalog.build(flagged(VERSION="3.0.0"))
    assert numbers(catalog.dataset("mnist:3.0.0")) == [1]


def test_a_version_opts_out_of_a_flag_that_is_on_by_default_until_it_is_withdrawn(
    catalog: registry.Catalog, catalog_url: str
) -> None:
    mnist = flagged(VERSION=Version("1.0.0", experiments={Experiment.S3: False}), SUPPORTED_VERSIONS=["2.0.0"])
    catalog.experiments.add("s3", "The slicing API of tensorflow.org/datasets/splits.", default=True)
    catalog.build(mnist)
    catalog.build(mnist(version="2.0.0"))
    assert numbers(catalog.dataset("mnist:1.0.0")) == [0]
    assert numbers(catalog.dataset("mnist:2.0.0")) == [1]

    with pytest.raises(ConflictError, match=r"^s3 is switched off by mnist:1\.0\.0(?m:$)"):
        catalog.experiments.retire("s3")
    execute(catalog, catalog_url, "UPDATE dataset_version SET state = 'yanked' WHERE major = 1")
    assert catalog.experiments.retire("s3").after.is_retired

    # Code that still reads the flag gets True; code that still switches it off is refused.
    catalog.build(flagged(VERSION="3.0.0"))
    assert numbers(catalog.dataset("mnist:3.0.0")) == [1]
    with pytest.raises(ConflictError, match="new versions cannot override it"):
        catalog.build(flagged(VERSION=Version("4.0.0", experiments={Experiment.S3: False})))


def test_a_build_uses_the_flag_that_it_received_although_it_changes_meanwhile(catalog: registry.Catalog) -> None:
    def splits(self: Any) -> Mapping[str, Any]:
        catalog.experiments.set_default("s3", True)
        return {"train": [(0, {"number": int(self.version.implements("s3"))})]}

    catalog.experiments.add("s3", "A flag.")
    catalog.build(flagged(splits=splits))
    assert numbers(catalog.dataset("mnist")) == [0]
    assert not catalog.dataset("mnist").implements("s3")
    assert not catalog.build(flagged(splits=splits), rebuild=True).newly


def test_a_published_version_is_built_again_with_a_flag_that_is_retired_by_now(catalog: registry.Catalog) -> None:
    mnist = flagged(VERSION=Version("1.0.0", experiments={"s3": True}))
    catalog.experiments.add("s3", "A flag.")
    catalog.build(mnist)
    catalog.experiments.set_default("s3", True)
    catalog.experiments.retire("s3")
    assert not catalog.build(mnist, rebuild=True).newly


def test_a_flag_that_nobody_added_is_refused_before_anything_is_generated(catalog: registry.Catalog) -> None:
    def generate(self: Any) -> Any:
        raise AssertionError

    mnist = flagged(VERSION=Version("1.0.0", experiments={"s3": True}), generate=generate)
    with pytest.raises(ExperimentNotFoundError) as caught:
        catalog.build(mnist)
    assert caught.value.message == "no experiment 's3' in the catalog"
    assert caught.value.hint == "Add it with: registry experiment add s3 --description TEXT"
    assert catalog.experiments.list() == ()


def test_an_unknown_flag_fails_where_it_is_read(catalog: registry.Catalog) -> None:
    with pytest.raises(BuildError) as caught:
        catalog.build(flagged())
    assert "ExperimentNotFoundError: no experiment 's3' in version 1.0.0" in caught.value.message
    assert caught.value.hint == "Add it with: registry experiment add s3 --description TEXT"
    catalog.experiments.add("s4", "Another.")
    catalog.build(Numbers)
    with pytest.raises(ExperimentNotFoundError) as caught_too:
        catalog.dataset("numbers").implements("s3")
    assert caught_too.value.message == "no experiment 's3' in the catalog"
    assert not catalog.dataset("numbers").implements("s4")


def test_a_later_flag_does_not_change_an_existing_builder(catalog: registry.Catalog) -> None:
    catalog.experiments.add("s3", "A flag.", default=True)
    made = flagged()()
    catalog.build(made)
    assert numbers(catalog.dataset("mnist")) == [1]
    with pytest.raises(ExperimentNotFoundError):
        made.version.implements("s3")


def test_the_version_that_is_looked_up_is_the_mere_number(catalog: registry.Catalog) -> None:
    catalog.experiments.add("s3", "A flag.")
    publication = catalog.build(flagged(VERSION=Version("1.0.0", experiments={"s3": True})))
    for version in (publication.version.version, catalog.dataset("mnist").version):
        assert repr(version) == "Version(major=1, minor=0, patch=0)"


def test_a_flag_is_known_in_worker_processes(
    catalog: registry.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # A value that is computed in the encoding process, of a class that the workers can import.
    (tmp_path / "late_values.py").write_text(
        "import os\n"
        "import numpy as np\n"
        "class Late:\n"
        "    def __init__(self, version):\n"
        "        self.version = version\n"
        "    def __array__(self, dtype=None, copy=None):\n"
        "        sum(range(5000))  # cheap values are not sent to workers\n"
        "        return np.array([self.version.implements('s3'), os.getpid()])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from late_values import Late  # type: ignore[import-not-found]

    catalog.experiments.add("s3", "A flag.", default=True)
    made = flagged(
        features=lambda _: FeaturesDict({"asked": Tensor(shape=(2,), dtype="int64")}),
        splits=lambda self: {"train": ((n, {"asked": Late(self.version)}) for n in range(4000))},
    )
    with caplog.at_level(logging.WARNING):
        catalog.build(made, processes=2)
    assert caplog.messages == []
    asked = [example["asked"].tolist() for example in catalog.dataset("mnist").read("train")]
    assert {on for on, _ in asked} == {1}
    assert {process for _, process in asked} - {os.getpid()}  # the first examples are encoded here, to time them


OPEN_IMAGES = builder(
    "open_images_v4",
    VERSION=None,
    BUILDER_CONFIGS=[
        BuilderConfig(
            name="original",
            version=Version("0.2.0"),
            supported_versions=[Version("1.0.0"), Version("1.1.0")],
            description="Images at their original resolution and quality.",
            tags=["images", "large"],
        ),
        BuilderConfig(name="300k", version=Version("0.2.1"), description="Images of about 300,000 pixels."),
    ],
)


def test_configs_have_versions_of_their_own_and_the_same_rules(catalog: registry.Catalog) -> None:
    for config in ("300k", "original"):
        for version in OPEN_IMAGES.versions(config):
            catalog.build(OPEN_IMAGES(config=config, version=version))
    assert str(catalog.dataset("open_images_v4/original:1.*.*").reference) == "open_images_v4/original:1.1.0"
    assert str(catalog.dataset("OpenImagesV4").reference) == "open_images_v4/original:0.2.0"
    assert str(catalog.dataset("open_images_v4/config=300k").reference) == "open_images_v4/300k:0.2.1"
    assert catalog.dataset("open_images_v4/original:1.0.0").status is VersionStatus.EXPERIMENTAL
    with pytest.raises(VersionNotFoundError) as caught:
        catalog.dataset("open_images_v4/300k:1.*.*")
    assert caught.value.hint == "Published: 0.2.1 (canonical)."

    listed = {one.config: one for one in catalog.datasets()}
    assert {name: one.is_default for name, one in listed.items()} == {"original": True, "300k": False}
    assert listed["original"].config_tags == ("images", "large")
    assert listed["300k"].config_description == "Images of about 300,000 pixels."
    assert catalog.dataset("open_images_v4").metadata.config_tags == ("images", "large")


@pytest.mark.parametrize("dataset", ["with_configs/only", "without_configs"])
def test_the_same_rules_hold_with_and_without_configs(catalog: registry.Catalog, dataset: str) -> None:
    name, _, config = dataset.partition("/")
    attributes = {"VERSION": "2.0.0", "SUPPORTED_VERSIONS": ["3.0.0", "1.0.0", "1.2.0"]}
    made = builder(name, **attributes, BUILDER_CONFIGS=[BuilderConfig(name=config)] if config else [])
    for version in made.versions():
        catalog.build(made(version=version))
    found = {
        request: str(catalog.dataset(f"{dataset}{request}").version)
        for request in ("", ":1.0.0", ":1.*.*", ":*.*.*", ":^1", ":<3", "/version=1.*")
    }
    assert found == {
        "": "2.0.0",
        ":1.0.0": "1.0.0",
        ":1.*.*": "1.2.0",
        ":*.*.*": "3.0.0",
        ":^1": "1.2.0",
        ":<3": "2.0.0",
        "/version=1.*": "1.2.0",
    }
    with pytest.raises(VersionNotFoundError) as caught:
        catalog.dataset(f"{dataset}:2.0.1")
    assert caught.value.message == f"no version '2.0.1' in {dataset}"


def test_a_prepared_folder_with_a_dataset_name_that_cannot_be_looked_up_is_refused(
    catalog: registry.Catalog, tmp_path: Path
) -> None:
    with registry.connect(tmp_path / "old" / "catalog.db") as old:
        old.build(Numbers)
    folder = tmp_path / "old" / "datasets" / "numbers" / "1.0.0"
    info = folder / "dataset_info.json"
    info.write_text(info.read_text().replace('"numbers"', '"MyNumbers"'))
    with pytest.raises(ReferenceSyntaxError) as caught:
        catalog.publish(folder)
    assert caught.value.message == (
        "a dataset cannot be named 'MyNumbers': look-ups fold names to lower case, as TFDS does"
    )
    assert caught.value.hint == "Use the name my_numbers."
    assert catalog.datasets() == ()


def test_a_number_says_one_thing_of_itself(catalog: registry.Catalog) -> None:
    made = builder("numbers", VERSION="1.0.0", SUPPORTED_VERSIONS=[Version("1.0.0", experiments={"s3": True})])
    with pytest.raises(registry.RegistryError) as caught:
        catalog.build(made)
    assert caught.value.message.startswith(
        "Made.SUPPORTED_VERSIONS = '1.0.0': this is the canonical version, which has other experiments or another "
        f"version_to_prepare ({__file__}, line "
    )
