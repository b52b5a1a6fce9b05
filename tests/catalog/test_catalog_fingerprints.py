"""Fingerprints in the catalog, and the neighbours that a number was proved against."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.catalog_samples import damage, execute, publish, sample

from registry.catalog import CatalogBackend, PublicationDetails, open_catalog
from registry.errors import CatalogError, NeighboursChangedError
from registry.model import FeatureFingerprint, SplitFingerprint, Version


def made_up(num_examples: int, *paths: str) -> SplitFingerprint:
    leaves = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(-(-num_examples // 1024)))
    found = {path: FeatureFingerprint.of_leaves(leaves, num_examples=num_examples) for path in paths}
    return SplitFingerprint(num_examples=num_examples, features=found)


LENGTHS = {"train": [3000, 100], "empty": [0], "test": [1]}
FOUND = {
    "train": made_up(3100, "a", "b/c", "ü'\"%s"),
    "empty": made_up(0, "a", "b/c", "ü'\"%s"),
    "test": made_up(1),
}


def test_fingerprints_are_read_back(catalog: CatalogBackend) -> None:
    version, shards = sample("mnist:1.0.0", LENGTHS)
    assert catalog.fingerprints(version) == {}
    assert catalog.publish(version, shards, promote=True, actor="ann", details=PublicationDetails(fingerprints=FOUND))
    assert catalog.fingerprints(version) == FOUND
    assert list(catalog.fingerprints(version)) == ["train", "empty", "test"]


def test_fingerprints_are_added_once(catalog: CatalogBackend, catalog_url: str) -> None:
    version = publish(catalog, "mnist:1.0.0", lengths=LENGTHS)
    assert catalog.add_fingerprints(version, FOUND, actor="bob")
    assert not catalog.add_fingerprints(version, {}, actor="bob")
    assert catalog.fingerprints(version) == FOUND
    rows = execute(catalog_url, "SELECT actor, action, dataset, version FROM event ORDER BY id")
    assert rows == [("ann", "publish", "mnist", "1.0.0"), ("bob", "fingerprint", "mnist", "1.0.0")]


def test_of_many_that_add_fingerprints_at_once_one_does(catalog: CatalogBackend, catalog_url: str) -> None:
    version = publish(catalog, "mnist:1.0.0", lengths=LENGTHS)

    def add(number: int) -> bool:
        with open_catalog(catalog_url) as own:
            return own.add_fingerprints(version, FOUND, actor=f"actor {number}")

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(add, range(4))) == [False, False, False, True]
    assert catalog.fingerprints(version) == FOUND


def test_fingerprints_of_an_unknown_version_are_refused(catalog: CatalogBackend) -> None:
    version, _ = sample("mnist:1.0.0", LENGTHS)
    assert not catalog.add_fingerprints(version, FOUND, actor="ann")
    assert catalog.fingerprints(version) == {}


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE fingerprint SET digest = 'x' WHERE feature = 'a'", "sha256"),
        ("DELETE FROM fingerprint WHERE feature = 'a' AND algorithm = 'registry.split/1'", "contradict"),
        ("DELETE FROM fingerprint WHERE feature = '' AND num_examples > 1", "contradict each other"),
        ("DELETE FROM fingerprint WHERE first_example = 1024 AND feature = 'a'", "3 block digests for 4 blocks"),
        (
            "UPDATE fingerprint SET digest = replace(digest, '0', '1') WHERE algorithm = 'registry.split/1'",
            "contradict",
        ),
    ],
)
def test_damaged_fingerprints_are_refused(
    catalog: CatalogBackend, catalog_url: str, statement: str, problem: str
) -> None:
    version, shards = sample("mnist:1.0.0", LENGTHS)
    catalog.publish(version, shards, promote=True, actor="ann", details=PublicationDetails(fingerprints=FOUND))
    damage(catalog_url, statement)
    with pytest.raises(CatalogError, match=problem):
        catalog.fingerprints(version)


def test_neighbours_are_the_numbers_right_below_and_above(catalog: CatalogBackend, catalog_url: str) -> None:
    for number in ("1.0.0", "1.2.0", "1.10.0", "2.0.0"):
        publish(catalog, f"mnist:{number}", content=number)
    execute(catalog_url, "UPDATE dataset_version SET state = 'dropped' WHERE minor = 10")
    execute(catalog_url, "UPDATE dataset_version SET state = 'yanked' WHERE minor = 2")

    def neighbours(text: str) -> list[str]:
        found = catalog.neighbours("mnist", None, Version.parse(text))
        return [str(one.version) if one else "none" for one in found]

    assert neighbours("0.9.0") == ["none", "1.0.0"]
    assert neighbours("1.0.0") == ["none", "1.2.0"]
    assert neighbours("1.1.9") == ["1.0.0", "1.2.0"]
    assert neighbours("1.9.0") == ["1.2.0", "1.10.0"]
    assert neighbours("1.11.0") == ["1.10.0", "2.0.0"]
    assert neighbours("3.0.0") == ["2.0.0", "none"]
    assert catalog.neighbours("other", None, Version(1, 0, 0)) == (None, None)


def test_neighbours_are_of_one_config(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist/a:1.0.0")
    publish(catalog, "mnist/b:1.5.0")
    assert catalog.neighbours("mnist", "b", Version(1, 2, 0))[0] is None
    assert catalog.neighbours("mnist", None, Version(2, 0, 0)) == (None, None)


def test_a_number_is_not_published_between_others_than_it_was_proved_against(
    catalog: CatalogBackend, catalog_url: str
) -> None:
    publish(catalog, "mnist:1.0.0")
    version, shards = sample("mnist:1.0.2", content="second")
    alone = PublicationDetails(proved_between=(None, None))
    with pytest.raises(NeighboursChangedError) as caught:
        catalog.publish(version, shards, promote=True, actor="ann", details=alone)
    assert caught.value.message == "an adjacent version was published before mnist:1.0.2"
    assert caught.value.hint == "The number must be compared with it too. Publish again."
    assert (caught.value.code, caught.value.exit_code) == ("neighbours_changed", 4)
    assert execute(catalog_url, "SELECT count(*) FROM version_ledger") == [(1,)]
    assert execute(catalog_url, "SELECT count(*) FROM event") == [(1,)]
    between = PublicationDetails(proved_between=(Version(1, 0, 0), None))
    assert catalog.publish(version, shards, promote=True, actor="ann", details=between)
    assert not catalog.publish(version, shards, promote=True, actor="ann", details=alone), "it is there"
