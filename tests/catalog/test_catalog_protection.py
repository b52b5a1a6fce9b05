"""A protected dataset, config or catalog: only a promotion moves its canonical version."""

from __future__ import annotations

import pytest
from support.catalog_samples import damage, execute, logged, publish, sample

from registry.catalog import CatalogBackend, Promotion, Unpromoted, schema
from registry.errors import DatasetNotFoundError, ProtectedError, VersionNotFoundError
from registry.model import Reference, Version

ONE, TWO = Version(1, 0, 0), Version(2, 0, 0)


def protect(catalog: CatalogBackend, dataset: str | None = None, *, on: bool = True, dry_run: bool = False) -> bool:
    wanted = None if dataset is None else Reference.parse(dataset)
    return catalog.configs.set_protection(wanted, protect=on, actor="ann", dry_run=dry_run).is_change


def offer(catalog: CatalogBackend, reference: str, *, promote: bool | None = None) -> Promotion | None:
    version, shards = sample(reference)
    return catalog.publish(version, shards, promote=promote, actor="ann")


def test_a_publication_says_what_became_canonical_and_what_it_replaced(catalog: CatalogBackend) -> None:
    assert offer(catalog, "mnist:1.0.0") == Promotion(before=None, after=ONE)
    assert offer(catalog, "mnist:2.0.0") == Promotion(before=ONE, after=TWO)
    assert offer(catalog, "mnist:1.1.0") == Promotion(before=TWO, after=TWO, reason=Unpromoted.LOWER)
    assert offer(catalog, "mnist:3.0.0", promote=False) == Promotion(before=TWO, after=TWO, reason=Unpromoted.NOT_ASKED)
    assert offer(catalog, "mnist:2.0.0") is None


@pytest.mark.parametrize(
    ("scope", "name", "config", "is_protected"),
    [
        (None, "mnist/plain", "plain", True),
        ("mnist", "mnist/plain", "plain", True),
        ("mnist/plain", "mnist/plain", "plain", True),
        ("mnist/other", "mnist/plain", "plain", False),
        ("mnist_2", "mnist/plain", "plain", False),
    ],
)
def test_what_is_protected_becomes_canonical_only_by_a_promotion(
    catalog: CatalogBackend, scope: str | None, name: str, config: str, is_protected: bool
) -> None:
    for reference in ("mnist/plain:1.0.0", "mnist/other:1.0.0", "mnist_2:1.0.0"):
        publish(catalog, reference)
    assert protect(catalog, scope)
    assert catalog.configs.protection("mnist", config) == ((scope or "") if is_protected else None)
    assert [one.is_protected for one in catalog.configs.list("mnist") if one.config == config] == [is_protected]
    assert [one.is_protected for one in catalog.datasets() if one.dataset == name] == [is_protected]

    promotion = offer(catalog, f"{name}:2.0.0")

    if not is_protected:
        assert promotion == Promotion(before=ONE, after=TWO)
        return
    assert promotion == Promotion(before=ONE, after=ONE, reason=Unpromoted.PROTECTED, protected=scope or "")
    assert catalog.find(f"{name}").version == ONE
    catalog.lifecycle.promote(Reference.parse(f"{name}:2.0.0"), actor="ann")
    assert catalog.find(f"{name}").version == TWO


def test_a_publication_that_is_told_to_promote_what_is_protected_is_refused(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    protect(catalog, "mnist")

    with pytest.raises(ProtectedError) as caught:
        offer(catalog, "mnist:2.0.0", promote=True)

    error = caught.value
    assert error.message == "mnist:2.0.0 cannot be made canonical by publishing it: mnist is protected"
    assert error.hint == "Publish it with promote=False, then: registry promote mnist:2.0.0"
    assert (error.code, error.exit_code) == ("protected", 4)
    assert catalog.published_digest("mnist", None, TWO) is None


def test_the_first_version_in_a_protected_catalog_is_found_by_its_number_alone(catalog: CatalogBackend) -> None:
    protect(catalog)
    promotion = offer(catalog, "mnist:1.0.0")

    assert promotion == Promotion(before=None, after=None, reason=Unpromoted.PROTECTED, protected="")
    assert catalog.find("mnist:1.0.0").version == ONE
    with pytest.raises(VersionNotFoundError) as caught:
        catalog.find("mnist")
    assert caught.value.message == "mnist has no canonical version"
    assert caught.value.hint == "Published: 1.0.0 (experimental). Make one canonical: registry promote mnist:1.0.0"


def test_protecting_again_changes_nothing_and_a_dry_run_writes_nothing(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    assert protect(catalog, "mnist", dry_run=True)
    assert catalog.configs.protection("mnist", None) is None
    assert protect(catalog, "mnist")
    assert not protect(catalog, "mnist")
    assert protect(catalog)
    assert protect(catalog, "mnist", on=False)
    assert catalog.configs.protection("mnist", None) == ""
    assert protect(catalog, on=False)
    assert not protect(catalog, on=False)
    told = [(event.action, event.dataset) for event in logged(catalog)][1:]
    assert told == [("protect", "mnist"), ("protect", ""), ("unprotect", "mnist"), ("unprotect", "")]
    with pytest.raises(DatasetNotFoundError):
        protect(catalog, "mnits")


def test_what_was_protected_at_a_moment_is_in_the_log(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    protect(catalog, "mnist")
    protect(catalog)
    protect(catalog, "mnist", on=False)
    moments = [event.at for event in logged(catalog)]
    assert [catalog.configs.protection("mnist", None, at=moment) for moment in moments] == [None, "mnist", "", ""]


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("DELETE FROM protection WHERE scope = 'mnist'", "mnist was protected by an event but is not protected"),
        (
            "UPDATE protection SET protected_by = 'eve' WHERE scope = ''",
            "the whole catalog was protected by eve, but no event says so",
        ),
    ],
)
def test_a_protection_that_is_changed_past_the_registry_is_named(
    catalog: CatalogBackend, catalog_url: str, statement: str, fault: str
) -> None:
    publish(catalog, "mnist:1.0.0")
    protect(catalog, "mnist")
    protect(catalog)
    assert catalog.log.verify().faults == ()

    damage(catalog_url, statement)

    assert [str(one) for one in catalog.log.verify().faults] == [fault]


def test_a_catalog_that_was_taken_back_and_up_again_is_protected_as_before(
    catalog: CatalogBackend, catalog_url: str
) -> None:
    publish(catalog, "mnist:1.0.0")
    for dataset in ("mnist", None):
        protect(catalog, dataset)
    protect(catalog, "mnist", on=False)
    catalog.close()
    schema.downgrade(catalog_url, "0006")

    schema.upgrade(catalog_url)

    assert execute(catalog_url, "SELECT scope, protected_by FROM protection") == [("", "ann")]
    assert catalog.log.verify().faults == ()
    assert schema.check(catalog_url) == []
