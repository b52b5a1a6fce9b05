"""Where the files of a published version are: mirrors and moved folders, as appended rows with their events."""

from __future__ import annotations

import pytest
from support.catalog_samples import damage, logged, publish

from registry.catalog import CatalogBackend, open_catalog, schema
from registry.errors import ConflictError, NotFoundError, UsageError, VersionNotFoundError, VersionWithdrawnError
from registry.model import Reference

MNIST = Reference.parse("mnist:1.0.0")
HOME, MIRROR, MOVED = "mnist/1.0.0", "s3://mirror/mnist/1.0.0", "/archive/mnist/1.0.0"


@pytest.fixture
def mnist(catalog: CatalogBackend) -> CatalogBackend:
    publish(catalog, "mnist:1.0.0")
    publish(catalog, "digits/plain:2.0.0", location="/imported/digits")
    return catalog


def test_a_mirror_is_read_after_the_published_location(mnist: CatalogBackend) -> None:
    change = mnist.locations.add(MNIST, MIRROR, actor="ann")

    assert (change.reference, change.before, change.after) == (MNIST, (HOME,), (HOME, MIRROR))
    found = mnist.find("mnist")
    assert (found.location, found.locations, found.is_elsewhere) == (HOME, (HOME, MIRROR), False)
    assert mnist.published("mnist", None, found.version) == found
    assert mnist.neighbours("mnist", None, found.version) == (None, None)
    assert not mnist.locations.add(MNIST, MIRROR, actor="ann").is_change


def test_a_moved_folder_takes_the_place_of_the_location_that_it_had(mnist: CatalogBackend) -> None:
    mnist.locations.add(MNIST, MIRROR, actor="ann")

    assert mnist.locations.relocate(MNIST, HOME, MOVED, actor="ann").after == (MOVED, MIRROR)
    assert mnist.locations.relocate(MNIST, MIRROR, "gs://other/mnist", actor="bob").after == (MOVED, "gs://other/mnist")
    found = mnist.find("mnist")
    assert (found.location, found.locations, found.is_elsewhere) == (HOME, (MOVED, "gs://other/mnist"), True)
    assert not mnist.locations.relocate(MNIST, MOVED, MOVED, actor="ann").is_change
    with pytest.raises(ConflictError, match=r"^mnist/1.0.0 is no longer a location of mnist:1.0.0\n"):
        mnist.locations.relocate(MNIST, HOME, "/elsewhere", actor="ann")


def test_any_location_but_the_last_one_may_be_withdrawn_and_recorded_again(mnist: CatalogBackend) -> None:
    mnist.locations.add(MNIST, MIRROR, actor="ann")
    assert mnist.locations.remove(MNIST, HOME, actor="ann").after == (MIRROR,)

    with pytest.raises(ConflictError) as caught:
        mnist.locations.remove(MNIST, MIRROR, actor="ann")
    assert caught.value.message == "s3://mirror/mnist/1.0.0 is the only location of mnist:1.0.0"
    assert caught.value.hint == "Record another one first: registry mirror add mnist:1.0.0 URL"
    with pytest.raises(NotFoundError, match=r"^mnist/1.0.0 is not a location of mnist:1.0.0\n"):
        mnist.locations.remove(MNIST, HOME, actor="ann")

    assert mnist.locations.add(MNIST, HOME, actor="ann").after == (MIRROR, HOME)


def test_a_dry_run_has_the_same_result_and_errors_and_writes_nothing(mnist: CatalogBackend) -> None:
    events = list(logged(mnist))

    assert mnist.locations.add(MNIST, MIRROR, actor="ann", dry_run=True).after == (HOME, MIRROR)
    assert mnist.locations.relocate(MNIST, HOME, MOVED, actor="ann", dry_run=True).after == (MOVED,)
    with pytest.raises(ConflictError):
        mnist.locations.remove(MNIST, HOME, actor="ann", dry_run=True)

    assert mnist.find("mnist").locations == (HOME,)
    assert list(logged(mnist)) == events


def test_each_change_is_an_event_and_the_log_agrees_with_the_rows(mnist: CatalogBackend, catalog_url: str) -> None:
    mnist.locations.add(MNIST, MIRROR, actor="ann")
    mnist.locations.relocate(MNIST, HOME, MOVED, actor="bob")
    mnist.locations.relocate(MNIST, MIRROR, "gs://other/mnist", actor="bob")
    mnist.locations.remove(MNIST, MOVED, actor="cid")

    told = [(one.action, one.actor, one.dataset, one.version, one.details) for one in logged(mnist)][2:]
    assert told == [
        ("mirror-add", "ann", "mnist", "1.0.0", {"location": MIRROR}),
        ("relocate", "bob", "mnist", "1.0.0", {"before": HOME, "after": MOVED, "is_first": True}),
        ("relocate", "bob", "mnist", "1.0.0", {"before": MIRROR, "after": "gs://other/mnist", "is_first": False}),
        ("mirror-remove", "cid", "mnist", "1.0.0", {"location": MOVED}),
    ]
    assert mnist.log.verify().faults == ()

    damage(catalog_url, "UPDATE version_location SET location = 's3://evil/mnist' WHERE change = 'first'")

    (fault,) = mnist.log.verify().faults
    assert str(fault) == "mnist:1.0.0 has other changes of its locations than its events say"


def test_versions_are_found_by_the_locations_that_they_have_now(mnist: CatalogBackend) -> None:
    digits = Reference.parse("digits/plain:2.0.0")
    mnist.locations.add(MNIST, MIRROR, actor="ann")
    assert mnist.published_at("/imported/digits") == (digits,)
    assert mnist.published_at(MIRROR) == (MNIST,)
    assert mnist.locations.outside() == ((digits, ("/imported/digits",)), (MNIST, (HOME, MIRROR)))

    mnist.locations.relocate(digits, "/imported/digits", MOVED, actor="ann")
    mnist.locations.remove(MNIST, MIRROR, actor="ann")

    assert mnist.published_at("/imported/digits") == mnist.published_at(MIRROR) == ()
    assert mnist.published_at(MOVED) == (digits,)
    assert mnist.locations.outside() == ((digits, (MOVED,)),)


def test_only_versions_that_can_be_looked_up_get_locations(mnist: CatalogBackend) -> None:
    with pytest.raises(VersionNotFoundError):
        mnist.locations.add(Reference.parse("mnist:9.9.9"), MIRROR, actor="ann")
    mnist.lifecycle.yank(MNIST, "bad", actor="ann")
    assert mnist.locations.add(MNIST, MIRROR, actor="ann").is_change
    mnist.lifecycle.drop(MNIST, "law", actor="ann")
    with pytest.raises(VersionWithdrawnError):
        mnist.locations.remove(MNIST, MIRROR, actor="ann")
    assert [str(reference) for reference, _ in mnist.locations.outside()] == ["digits/plain:2.0.0"]


@pytest.mark.parametrize("location", ["https://ann:PW@host/mnist", "https://host/mnist?token=PW"])
def test_no_secret_is_stored(mnist: CatalogBackend, location: str) -> None:
    with pytest.raises(UsageError, match="contains a password or another secret, which is never stored") as caught:
        mnist.locations.add(MNIST, location, actor="ann")
    with pytest.raises(UsageError):
        mnist.locations.relocate(MNIST, HOME, location, actor="ann")
    assert "PW" not in str(caught.value)
    assert mnist.find("mnist").locations == (HOME,)


def test_locations_come_back_from_the_log_after_a_way_down_and_up(database_url: str) -> None:
    schema.upgrade(database_url)
    with open_catalog(database_url) as catalog:
        publish(catalog, "mnist:1.0.0")
        publish(catalog, "digits/plain:2.0.0")
        catalog.locations.add(MNIST, MIRROR, actor="ann")
        catalog.locations.relocate(MNIST, HOME, MOVED, actor="bob")
        catalog.locations.add(Reference.parse("digits/plain:2.0.0"), "s3://mirror/digits", actor="ann")
        catalog.locations.remove(Reference.parse("digits/plain:2.0.0"), "s3://mirror/digits", actor="ann")
        before = catalog.find("mnist"), catalog.find("digits/plain")

    schema.downgrade(database_url, "0008")
    schema.upgrade(database_url)

    assert schema.check(database_url) == []
    with open_catalog(database_url) as catalog:
        assert (catalog.find("mnist"), catalog.find("digits/plain")) == before
        assert catalog.log.verify().faults == ()
