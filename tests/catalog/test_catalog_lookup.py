from __future__ import annotations

import dataclasses
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.catalog_samples import execute, make_shards, publish, sample
from support.golden import check_errors

from registry.catalog import CatalogBackend, load_shards, sqlite_path
from registry.errors import (
    CatalogError,
    ConfigNotFoundError,
    DatasetNotFoundError,
    NotFoundError,
    SplitNotFoundError,
    VersionNotFoundError,
    VersionWithdrawnError,
)
from registry.model import (
    DatasetMetadata,
    Reference,
    ShardedFileTemplate,
    ShardLengths,
    SlicingRule,
    Split,
    Version,
    VersionState,
    VersionStatus,
    version_status,
)

GOLDEN = Path(__file__).with_name("golden")


def set_state(url: str, number: str, state: str, message: str = "") -> None:
    major, minor, patch = number.split(".")
    execute(
        url,
        f"UPDATE dataset_version SET state = '{state}', state_message = '{message}' "  # noqa: S608 (a test's own values)
        f"WHERE major = {major} AND minor = {minor} AND patch = {patch}",
    )


def test_what_was_published_is_found_as_it_was(catalog: CatalogBackend) -> None:
    version, shards = sample(
        "mnist/plain:3.0.1",
        {"train": [3, 0, 4], "empty": [], "test": [0]},
        slicing=SlicingRule.TFDS_4,
        disable_shuffling=True,
        version_to_prepare=Version(2, 9, 0),
        experiments={"new_hash": True, "old_order": False},
        metadata=DatasetMetadata(
            description="Zahlen \U0001f522 with a NUL \0 inside",
            homepage="https://example.org",
            citation="@misc{x}",
            license="CC BY 4.0",
            supervised_keys=("image", "label"),
            config_description="Plain.",
            config_tags=("small", "images"),
            release_notes={"3.0.1": "Labels fixed.", "3.0.0": "New."},
            extra={"moduleName": "x", "nested": {"a": [1, 2.5, None]}},
        ),
    )
    files = ShardedFileTemplate(
        dataset="renamed", template="{SPLIT}/{SHARD_INDEX}.{FILEFORMAT}", file_format="tfrecord"
    )
    other = Split(name="other", shard_lengths=ShardLengths([9]), num_bytes=2**40, files=files)
    version = dataclasses.replace(version, splits=(*version.splits, other))
    shards = {**shards, "other": make_shards([9], "other")}
    for flag in version.experiments:
        catalog.experiments.add(flag, "About it.", actor="ann")
    catalog.publish(version, shards, promote=True, default_config=True, actor="ann")

    found = catalog.find("mnist")

    for name in version.__dataclass_fields__.keys() - {"canonical", "published_at", "published_by"}:
        assert getattr(found, name) == getattr(version, name), name
    assert [split.name for split in found.splits] == ["train", "empty", "test", "other"]
    assert found.canonical == Version(3, 0, 1)
    assert found.status is VersionStatus.CANONICAL
    assert found.published_by == "ann"
    assert found.published_at.tzinfo is UTC
    assert abs(datetime.now(UTC) - found.published_at) < timedelta(minutes=5)
    assert {name: load_shards(catalog.shards, found, name) for name in shards} == shards


@pytest.mark.parametrize("reference", ["digits", "digits:1.0.0", "digits:1.*", "digits:^1,<9", "digits@paper"])
def test_a_look_up_is_two_queries(
    catalog: CatalogBackend, catalog_url: str, queries: list[str], reference: str
) -> None:
    publish(catalog, "digits:1.0.0", experiments={"flag": True})
    execute(
        catalog_url,
        "INSERT INTO alias (config_id, name, version_id, set_at, set_by) VALUES (1, 'paper', 1, CURRENT_TIMESTAMP, '')",
    )
    catalog.find("digits")
    queries.clear()

    assert catalog.find(reference).num_examples == 9

    assert len(queries) == 2, queries


def test_each_request_finds_its_version(catalog: CatalogBackend, catalog_url: str) -> None:
    for number in ("1.0.0", "2.0.0", "3.0.0", "3.0.10", "3.1.1", "3.1.2", "4.0.0"):
        publish(catalog, f"mnist:{number}", promote=number == "3.0.0", content=number)
    set_state(catalog_url, "1.0.0", "deprecated", "use 3")
    set_state(catalog_url, "3.1.2", "yanked", "wrong labels")
    set_state(catalog_url, "4.0.0", "dropped", "gone")

    found = {
        request: str(catalog.find(f"mnist{request}").version)
        for request in (
            "",
            ":3.*.*",
            ":3",
            ":3.0.*",
            ":~3.0",
            ":^3.0",
            ":>=3,<3.1",
            ":!=3.1.1",
            ":*",
            ":<3",
            ":1.0.0",
            ":3.1.2",
        )
    }

    assert found == {
        "": "3.0.0",
        ":3.*.*": "3.1.1",
        ":3": "3.1.1",
        ":3.0.*": "3.0.10",
        ":~3.0": "3.0.10",
        ":^3.0": "3.1.1",
        ":>=3,<3.1": "3.0.10",
        ":!=3.1.1": "3.0.10",
        ":*": "3.1.1",
        ":<3": "2.0.0",
        ":1.0.0": "1.0.0",
        ":3.1.2": "3.1.2",
    }
    statuses = {number: catalog.find(f"mnist:{number}").status.value for number in ("1.0.0", "2.0.0", "3.1.1", "3.1.2")}
    assert statuses == {"1.0.0": "deprecated", "2.0.0": "supported", "3.1.1": "experimental", "3.1.2": "yanked"}
    yanked = catalog.find("mnist:3.1.2")
    assert (yanked.state, yanked.state_message) == (VersionState.YANKED, "wrong labels")


REFUSED = [
    "mnist:2.0.0",  # dropped
    "gone@paper",  # an alias of a dropped version
    "mnist:2.*",  # a range whose versions are all withdrawn
    "wrong",  # the canonical version is yanked
    "fresh",  # no version is canonical
    "mnist:3.0.0",
    "mnist:3.*",
    "mnits",
    "turned/rotted",
    "loose",  # no config is the default
    "mnist/1.0.0",  # a version after the wrong character
    "mnist/3",
    "mnist/plain",  # of a dataset without configs
    "mnist@tlak",
]


def test_what_cannot_be_found_is_refused_with_what_is_there(catalog: CatalogBackend, catalog_url: str) -> None:
    for number in ("1.0.0", "2.0.0", "2.0.1"):
        publish(catalog, f"mnist:{number}", promote=number == "1.0.0", content=number)
    publish(catalog, "gone:7.0.0")
    publish(catalog, "wrong:8.0.0")
    publish(catalog, "fresh:1.1.0", promote=False)
    publish(catalog, "turned/plain:1.1.0", default_config=True)
    publish(catalog, "turned/rotated:2.2.0", content="r")
    publish(catalog, "loose/plain:1.1.0")
    publish(catalog, "loose/rotated:1.1.0")
    for name, version in (("paper", "gone"), ("talk", "mnist")):
        execute(
            catalog_url,
            "INSERT INTO alias (config_id, name, version_id, set_at, set_by) "  # noqa: S608 (a test's own values)
            f"SELECT v.config_id, '{name}', v.id, CURRENT_TIMESTAMP, '' FROM dataset_version v JOIN builder_config c "
            f"ON c.id = v.config_id JOIN builder b ON b.id = c.builder_id WHERE b.name = '{version}' AND v.major <> 2",
        )
    set_state(catalog_url, "7.0.0", "yanked", "wrong labels")
    assert catalog.find("gone@paper").version == Version(7, 0, 0)
    for number in ("2.0.0", "7.0.0"):
        set_state(catalog_url, number, "dropped", "its licence ended")
    for number in ("2.0.1", "8.0.0"):
        set_state(catalog_url, number, "yanked", "wrong labels")

    check_errors(GOLDEN / "catalog_lookup" / "refused.txt", (partial(catalog.find, name) for name in REFUSED))

    assert (VersionWithdrawnError.code, VersionWithdrawnError.exit_code) == ("version_withdrawn", 6)
    assert catalog.find("wrong:8.0.0").status is VersionStatus.YANKED
    assert catalog.find("mnist@talk").version == Version(1, 0, 0)
    assert catalog.find("turned").config == "plain"
    assert catalog.find("turned/rotated").version == Version(2, 2, 0)


def test_an_unknown_version_lists_what_is_published(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    publish(catalog, "mnist:1.1.0", promote=False, content="2")

    with pytest.raises(VersionNotFoundError) as exact:
        catalog.find("mnist:2.0.0")

    assert exact.value.details == {
        "name": "2.0.0",
        "known": ["1.1.0", "1.0.0"],
        "versions": [{"version": "1.1.0", "status": "experimental"}, {"version": "1.0.0", "status": "canonical"}],
        "considered": [
            {"version": "1.1.0", "status": "experimental", "verdict": "not 2.0.0"},
            {"version": "1.0.0", "status": "canonical", "verdict": "not 2.0.0"},
        ],
        "num_considered": 2,
    }


def test_an_empty_catalog_says_how_to_begin(catalog: CatalogBackend) -> None:
    with pytest.raises(DatasetNotFoundError) as caught:
        catalog.find("mnist")

    step = "Start with: registry quickstart"
    if catalog.url.startswith("postgresql"):  # the example does not belong into a catalog that others use
        step = "Publish a first dataset: registry add SOURCE --as NAME"
    assert caught.value.hint == f"The catalog is empty. {step}"
    assert catalog.datasets() == ()


def test_the_default_config_moves(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist/plain:1.0.0", default_config=True)
    publish(catalog, "mnist/rotated:1.0.0", default_config=True)

    assert catalog.find("mnist").config == "rotated"
    assert [(summary.config, summary.is_default) for summary in catalog.datasets()] == [
        ("plain", False),
        ("rotated", True),
    ]


def test_lists_show_the_canonical_version_and_the_latest(
    catalog: CatalogBackend, catalog_url: str, queries: list[str]
) -> None:
    publish(catalog, "mnist/plain:1.0.0", default_config=True)
    publish(catalog, "mnist/plain:1.1.0", lengths={"train": [5]}, promote=False)
    publish(catalog, "mnist/plain:2.0.0", lengths={"train": [6]}, promote=False)
    publish(catalog, "digits:0.1.0", lengths={"all_of_it": [7, 8]}, promote=False)
    set_state(catalog_url, "2.0.0", "yanked", "wrong")
    queries.clear()

    datasets = catalog.datasets()

    assert 2 <= len(queries) <= 3  # a page of a service reads its names first
    assert [
        (one.dataset, one.canonical, str(one.latest), one.num_versions, one.num_examples, one.splits, one.description)
        for one in datasets
    ] == [
        ("digits", None, "0.1.0", 1, 15, ("all_of_it",), "About digits."),
        ("mnist/plain", Version(1, 0, 0), "1.1.0", 3, 9, ("train", "test"), "About mnist."),
    ]


def test_lists_and_searches_name_no_version_that_a_look_up_refuses(catalog: CatalogBackend, catalog_url: str) -> None:
    """The law, for all states of two versions, of which the lower, the higher or none is canonical."""
    names = {}
    for number, (lower, higher, canonical) in enumerate(product(VersionState, VersionState, (None, "1.0.0", "2.0.0"))):
        name = f"set_{number}"
        names[name] = {"1.0.0": lower, "2.0.0": higher}
        for version in names[name]:
            publish(catalog, f"{name}:{version}", promote=version == canonical, content=f"{name} {version}")
        if canonical is None:
            execute(
                catalog_url,
                "UPDATE builder_config SET canonical_version_id = NULL WHERE id = (SELECT max(id) FROM builder_config)",
            )
    for version in ("1.0.0", "2.0.0"):
        for state in VersionState:
            listed = ", ".join(f"'{name}'" for name, states in names.items() if states[version] is state)
            execute(
                catalog_url,
                f"UPDATE dataset_version SET state = '{state.value}' WHERE major = {version[0]} AND config_id IN "  # noqa: S608 (a test's own values)
                f"(SELECT c.id FROM builder_config c JOIN builder b ON b.id = c.builder_id WHERE b.name IN ({listed}))",
            )

    datasets = catalog.datasets()
    hits = {hit.name: hit for hit in catalog.search("set", limit=1000)}

    assert sorted(names) == sorted(one.name for one in datasets) == sorted(hits)
    is_last = [hit.is_withdrawn for hit in hits.values()]
    assert is_last == sorted(is_last)
    for one in datasets:
        try:
            found = catalog.find(one.name).version
        except NotFoundError:
            found = None
        standing = catalog.standing(one.name)
        readable = [str(each.version) for each in standing.candidates if not each.is_withdrawn]
        assert one.canonical == standing.usable_canonical == found
        assert one.withdrawn == (standing.canonical if found is None else None)
        assert str(one.latest) == (readable or ["2.0.0"])[0]
        listed_version = one.canonical or one.latest
        assert one.status == version_status(listed_version, names[one.name][str(listed_version)], one.canonical)
        assert one.is_withdrawn == hits[one.name].is_withdrawn == (not readable)
        (config,) = catalog.configs.list(one.name)
        assert (config.canonical, config.withdrawn) == (one.canonical, one.withdrawn)
        offer = standing.next_canonical
        assert (offer is None) == (not readable)
        if offer is not None:
            catalog.lifecycle.promote(standing.exactly(offer), actor="ann")
            assert catalog.find(one.name).version == offer


def test_versions_are_listed_the_highest_first(catalog: CatalogBackend, catalog_url: str, queries: list[str]) -> None:
    publish(catalog, "mnist/plain:1.0.0", default_config=True)
    publish(catalog, "mnist/plain:1.10.0", lengths={"train": [5]}, promote=False)
    publish(catalog, "mnist/plain:1.9.0", lengths={"train": [6]}, promote=False)
    set_state(catalog_url, "1.9.0", "yanked", "wrong")
    queries.clear()

    versions = catalog.versions("mnist")

    assert len(queries) == 2
    assert versions == catalog.versions("mnist", "plain")
    assert [
        (str(one.version), one.status.value, one.state_message, one.num_examples, one.num_bytes) for one in versions
    ] == [
        ("1.10.0", "experimental", "", 5, 500),
        ("1.9.0", "yanked", "wrong", 6, 600),
        ("1.0.0", "canonical", "", 9, 900),
    ]
    assert [one.release_note for one in versions] == ["As it is."] * 3
    assert all(one.published_at.tzinfo is UTC and one.published_by == "ann" for one in versions)
    with pytest.raises(DatasetNotFoundError):
        catalog.versions("mnits")
    with pytest.raises(ConfigNotFoundError):
        catalog.versions("mnist", "other")


def test_shards_of_an_unknown_split_or_a_foreign_version_are_refused(catalog: CatalogBackend) -> None:
    version = publish(catalog, "mnist:1.0.0")
    stranger, _ = sample("other:1.0.0")

    with pytest.raises(SplitNotFoundError, match=r"no split 'trian' in mnist:1.0.0"):
        load_shards(catalog.shards, version, "trian")
    with pytest.raises(SplitNotFoundError, match=r"does not hold the shards of other:1.0.0 train"):
        load_shards(catalog.shards, stranger, "train")


def test_many_shards_keep_their_order(catalog: CatalogBackend) -> None:
    lengths = [(index * 7919) % 1000 for index in range(25_000)]
    version = publish(catalog, "big:1.0.0", lengths={"train": lengths, "test": [1]})

    assert catalog.find("big").splits == version.splits
    assert [shard.num_examples for shard in load_shards(catalog.shards, version, "train")] == lengths


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("metadata_json", "'{'"),
        ("metadata_json", "'[]'"),
        ("metadata_json", "'{\"description\": 5}'"),
        ("metadata_json", f"'{'[' * 50_000}'"),
        ("labels_json", "'{\"label\": 5}'"),
        ("release_notes_json", "'[1]'"),
        ("published_at", "'yesterday'"),
        ("published_at", "5"),
        ("slicing", "'weird'"),
        ("state", "'weird'"),
        ("location", "x'ff'"),
        ("version_to_prepare", "'x'"),
    ],
)
def test_a_damaged_row_is_an_error_of_the_catalog(
    catalog: CatalogBackend, catalog_url: str, column: str, value: str
) -> None:
    publish(catalog, "mnist:1.0.0")
    path = sqlite_path(catalog_url)
    assert path is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as stranger:
        stranger.execute("DROP TRIGGER dataset_version_no_update")
        stranger.execute("PRAGMA ignore_check_constraints=ON")
        stranger.execute(f"UPDATE dataset_version SET {column} = {value}")  # noqa: S608 (a test's own values)
    with pytest.raises(CatalogError, match="the catalog is damaged: a stored value cannot be read"):
        catalog.find("mnist")
    for look_up in (catalog.datasets, lambda: catalog.versions("mnist")):
        with suppress(CatalogError):
            look_up()


def test_sizes_are_those_of_the_files_of_every_version_in_any_state(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0", lengths={"train": [3, 0, 4], "test": [2]})
    publish(catalog, "mnist:2.0.0", lengths={"train": [0]}, content="other")
    publish(catalog, "apes/big:1.0.0", lengths={"train": [1] * 100}, location="/elsewhere")
    catalog.lifecycle.drop(Reference.parse("mnist:1.0.0"), "private", actor="ann")

    assert [
        (str(one.reference), one.state.value, one.locations, one.num_files, one.num_bytes) for one in catalog.sizes()
    ] == [
        ("apes/big:1.0.0", "supported", ("/elsewhere",), 100, 1700),
        ("mnist:1.0.0", "dropped", ("mnist/1.0.0",), 4, 17 * 9),
        ("mnist:2.0.0", "supported", ("mnist/2.0.0",), 1, 0),
    ]


@pytest.mark.parametrize(
    "page",
    [{"limit": 0}, {"limit": 1}, {"below": Version(9, 0, 0)}, {"at": datetime(2100, 1, 1, tzinfo=UTC), "limit": 0}],
)
def test_no_page_of_versions_hides_that_a_dataset_does_not_exist(catalog: CatalogBackend, page: Any) -> None:
    publish(catalog, "mnist/plain:1.0.0")
    for name, config, error in (
        ("mnits", None, DatasetNotFoundError),
        ("mnits", "plain", DatasetNotFoundError),
        ("mnist", "plane", ConfigNotFoundError),
    ):
        with pytest.raises(error):
            catalog.versions(name, config, **page)
    assert catalog.versions("mnist", "plain", limit=0) == ()
    assert catalog.versions("mnist", "plain", below=Version(1, 0, 0)) == ()
