"""Class attributes of builders: which are refused, and which version and config is built."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.golden import check_errors

from registry.building import BuilderConfig, DatasetBuilder
from registry.errors import BuildError, ConfigNotFoundError, UsageError, VersionNotFoundError
from registry.model import Reference, Version, VersionRequest

GOLDEN = Path(__file__).with_name("golden")


class Plain(DatasetBuilder):
    VERSION = "2.0.0"
    SUPPORTED_VERSIONS = ("1.0.0", "2.1.0", "1.1.0")
    RELEASE_NOTES = {"2.0.0": "New.", "1.0.0": "First."}
    DESCRIPTION = "About."

    def features(self) -> Any:
        raise NotImplementedError

    def splits(self) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Language(BuilderConfig):
    language: str = "en"


class Translated(Plain):
    BUILDER_CONFIGS = (
        Language(name="en", description="English", tags=("text",)),
        Language(name="de", language="de", version="3.0.0", release_notes={"3.0.0": "Neu."}),
        Language(name="fr", language="fr", version=Version(1, 2, 3), supported_versions=("1.2.2",)),
    )
    DEFAULT_CONFIG = "de"


def define(**attributes: Any) -> type[DatasetBuilder]:
    return type("Bad", (Plain,), attributes)


@pytest.mark.parametrize(
    ("class_name", "name"),
    [
        ("Mnist", "mnist"),
        ("OpenImagesV4", "open_images_v4"),
        ("MNISTPlain", "mnist_plain"),
        ("Imagenet2012", "imagenet2012"),
        ("C4", "c4"),
        ("open_images", "open_images"),
    ],
)
def test_the_name_is_the_class_name_in_snake_case(class_name: str, name: str) -> None:
    assert type(class_name, (Plain,), {}).name == name


def test_a_given_name_stays_and_is_not_inherited() -> None:
    named = type("First", (Plain,), {"name": "something"})
    assert named.name == "something"
    assert type("Second", (named,), {}).name == "second"


def test_a_wrong_attribute_is_refused_when_the_class_is_used() -> None:
    rows: list[dict[str, Any]] = [
        {"name": "my-data"},
        {"name": "MyData"},
        {"VERSION": "1.0"},
        {"VERSION": 1},
        {"SUPPORTED_VERSIONS": "1.0.0"},
        {"SUPPORTED_VERSIONS": ["1.0.0", "1.0.0"]},
        {"SUPPORTED_VERSIONS": ["1.*.*"]},
        {"RELEASE_NOTES": {"v1": "x"}},
        {"RELEASE_NOTES": {"1.0.0": 3}},
        {"RELEASE_NOTES": ["First."]},
        {"DESCRIPTION": None},
        {"CITATION": b"x"},
        {"SUPERVISED_KEYS": "label"},
        {"DISABLE_SHUFFLING": 1},
        {"NUM_SHARDS": 0},
        {"NUM_SHARDS": {"train": "4"}},
        {"BUILDER_CONFIGS": ["en"]},
        {"BUILDER_CONFIGS": BuilderConfig(name="en")},
        {"DEFAULT_CONFIG": "en"},
        {"BUILDER_CONFIGS": [BuilderConfig(name="en"), BuilderConfig(name="en", version="2.0.0")]},
    ]
    classes = [define(**row) for row in rows]
    check_errors(GOLDEN / "building_builder" / "a_wrong_attribute_is_refused.txt", classes)
    for bad in classes:
        messages = set()
        for use in (bad, bad.configs, bad.versions, lambda bad=bad: bad.pick("bad")):
            with pytest.raises(BuildError) as caught:
                use()
            messages.add(str(caught.value))
        assert len(messages) == 1


def test_a_wrong_config_is_refused() -> None:
    check_errors(
        GOLDEN / "building_builder" / "a_wrong_config_is_refused.txt",
        (
            partial(BuilderConfig, **fields)
            for fields in [
                {"name": "1.0.0"},
                {"name": "v2.1"},
                {"name": "a/b"},
                {"name": None},
                {"name": "en", "version": "1"},
                {"name": "en", "tags": "text"},
                {"name": "en", "supported_versions": "1.0.0"},
                {"name": "en", "description": 3},
            ]
        ),
    )


@pytest.mark.parametrize("name", ["2017", "v2", "20220301.simple", "en-de", "cifar10.1k"])
def test_config_names_may_consist_of_digits(name: str) -> None:
    assert BuilderConfig(name=name).name == name


def test_a_builder_without_any_version_cannot_be_made() -> None:
    with pytest.raises(BuildError) as caught:
        define(VERSION=None)()
    assert str(caught.value).startswith(f"Bad.VERSION = None: a builder needs a version ({__file__}, line ")
    assert caught.value.hint == 'Add to the class: VERSION = "1.0.0"'


def test_a_version_in_every_config_is_enough() -> None:
    builder = define(VERSION=None, BUILDER_CONFIGS=[BuilderConfig(name="en", version="1.0.0")])()
    assert str(builder.reference) == "bad/en:1.0.0"


@pytest.mark.parametrize(
    ("wanted", "version"),
    [
        (None, "2.0.0"),
        ("2.0.0", "2.0.0"),
        ("1.1.0", "1.1.0"),
        (Version(1, 0, 0), "1.0.0"),
        (VersionRequest.parse("1"), "1.1.0"),
        ("1.*.*", "1.1.0"),
        ("*", "2.1.0"),
        ("^2.0", "2.1.0"),
        ("<2", "1.1.0"),
    ],
)
def test_a_request_takes_the_highest_version_this_code_builds(wanted: Any, version: str) -> None:
    assert str(Plain(version=wanted).version) == version


@pytest.mark.parametrize("wanted", ["3.0.0", "3.*", ">2.1"])
def test_a_version_that_this_code_cannot_build_is_refused_with_the_buildable_ones(wanted: str) -> None:
    with pytest.raises(VersionNotFoundError) as caught:
        Plain(version=wanted)
    assert str(caught.value) == f"the builder of plain cannot build version {VersionRequest.parse(wanted)}"
    assert caught.value.hint == "This code can build: 2.0.0, 1.0.0, 2.1.0, 1.1.0."


def test_a_config_may_have_versions_of_its_own() -> None:
    assert [str(version) for version in Translated.versions("en")] == ["2.0.0", "1.0.0", "2.1.0", "1.1.0"]
    assert [str(version) for version in Translated.versions("de")] == ["3.0.0", "1.0.0", "2.1.0", "1.1.0"]
    assert [str(version) for version in Translated.versions("fr")] == ["1.2.3", "1.2.2"]
    with pytest.raises(VersionNotFoundError, match=r"^the builder of translated/fr cannot build version 2\.0\.0(?m:$)"):
        Translated(config="fr", version="2.0.0")


def test_the_default_config_is_the_one_named_or_the_first() -> None:
    assert str(Translated().reference) == "translated/de:3.0.0"
    assert type("First", (Translated,), {"DEFAULT_CONFIG": None})().config_name == "en"
    assert Plain().config is None


def test_a_builder_sees_the_fields_of_its_config() -> None:
    assert Translated(config="fr").config.language == "fr"


def test_an_unknown_config_offers_the_nearest() -> None:
    with pytest.raises(ConfigNotFoundError) as caught:
        Translated(config="den")
    assert caught.value.hint == "Did you mean 'en'? There are: en, de, fr."
    with pytest.raises(ConfigNotFoundError) as caught:
        Plain(config="en")
    assert caught.value.hint == "plain has no configs: write plain[:version]."


def test_a_reference_picks_config_and_version() -> None:
    assert str(Translated.pick("translated/en:1.*").reference) == "translated/en:1.1.0"
    assert str(Translated.pick(Reference.parse("translated")).reference) == "translated/de:3.0.0"
    assert Translated.pick("translated:1.0.0").canonical_version == Version(3, 0, 0)
    with pytest.raises(UsageError, match="translated@paper is an alias of a published version"):
        Translated.pick("translated@paper")


def test_metadata_is_what_the_author_wrote_and_notes_of_a_config_replace_it() -> None:
    english, german = Translated(config="en").metadata, Translated(config="de").metadata
    assert english.description == "About."
    assert english.config_description == "English"
    assert english.config_tags == ("text",)
    assert list(english.release_notes.items()) == [("2.0.0", "New."), ("1.0.0", "First.")]
    assert german.release_notes == {"3.0.0": "Neu."}


def test_a_builder_without_features_or_splits_cannot_be_made() -> None:
    with pytest.raises(BuildError, match=r"^Empty does not define features\(\) and splits\(\) "):
        type("Empty", (DatasetBuilder,), {"VERSION": "1.0.0"})()


def test_naming_a_builder_loads_neither_numpy_nor_storage() -> None:
    code = "import sys, registry.building as b; b.list_builders(); b.DatasetBuilder; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    assert {"registry.building.builder"} <= set(loaded)
    assert not {"numpy", "registry.features", "registry.storage", "fsspec"} & set(loaded)


def test_the_sources_of_a_dataset_are_kept_as_tfds_writes_them() -> None:
    class Sourced(Plain):
        SOURCES = {"https://example.org/b.zip": "b" * 64, "https://example.org/a.zip": "a" * 64}

    assert list(Sourced().metadata.extra["downloadChecksums"].items()) == [
        ("https://example.org/a.zip", "a" * 64),
        ("https://example.org/b.zip", "b" * 64),
    ]


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ("https://example.org", "Bad.SOURCES = 'https://example.org': expected a dict of URL -> sha256"),
        (
            {"https://example.org": "sha256:12"},
            "Bad.SOURCES['https://example.org'] = 'sha256:12': expected a sha256: 64 hex digits in lower case",
        ),
    ],
)
def test_sources_without_a_sha256_are_refused(sources: Any, message: str) -> None:
    with pytest.raises(BuildError) as caught:
        type("Bad", (Plain,), {"SOURCES": sources})()
    assert str(caught.value).startswith(f"{message} ({__file__}, line ")
