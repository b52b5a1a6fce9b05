"""The removal of the files of dropped versions, in the catalog: what is planned, begun, ended and refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from support.catalog_samples import execute, logged, publish, sample

from registry.catalog import CatalogBackend, Holder, RemovalStep, is_published
from registry.errors import ConflictError, NotFoundError, ReservedError, VersionExistsError, VersionWithdrawnError
from registry.model import Attachment, Reference, Use

MNIST = Reference.parse("mnist:1.0.0")
NOW = timedelta(0)


def drop(catalog: CatalogBackend, reference: Reference = MNIST) -> None:
    publish(catalog, str(reference))
    catalog.lifecycle.drop(reference, "its licence ended", actor="ann")


def state(catalog: CatalogBackend) -> str:
    found = catalog.published("mnist", None, MNIST.exact)  # type: ignore[arg-type]
    return f"{found.state}: {found.state_message}"


def test_a_removal_is_planned_for_a_week_after_the_drop(catalog: CatalogBackend) -> None:
    drop(catalog)
    dropped = next(event.at for event in logged(catalog) if event.action == "drop")
    removal = catalog.lifecycle.remove(MNIST, actor="bob")
    assert (removal.step, removal.due, removal.actor) == (RemovalStep.PLANNED, dropped + timedelta(days=7), "bob")
    assert not catalog.lifecycle.remove(MNIST, actor="carl").is_change
    later = catalog.lifecycle.remove(MNIST, grace=timedelta(days=30), actor="carl")
    assert (later.due, later.actor) == (dropped + timedelta(days=30), "bob")
    assert catalog.lifecycle.remove(MNIST, actor="carl") == replace(later, is_change=False)
    assert state(catalog) == "dropped: its licence ended"
    assert [event.action for event in logged(catalog)][-2:] == ["remove", "remove"]
    assert catalog.log.verify().faults == ()


def test_dropping_again_with_another_reason_does_not_begin_the_grace_time_anew(catalog: CatalogBackend) -> None:
    drop(catalog)
    first = catalog.lifecycle.remove(MNIST, actor="bob")
    catalog.lifecycle.drop(MNIST, "its licence ended in May", actor="ann")
    assert catalog.lifecycle.remove(MNIST, grace=timedelta(days=7), actor="bob").due == first.due


def test_undoing_the_drop_cancels_the_plan(catalog: CatalogBackend) -> None:
    drop(catalog)
    first = catalog.lifecycle.remove(MNIST, grace=timedelta(days=1), actor="bob")
    catalog.lifecycle.undo("drop", MNIST, actor="ann")
    assert catalog.lifecycle.removals() == ()
    with pytest.raises(ConflictError, match=r"^mnist:1\.0\.0 is canonical: only the files of a dropped version can be"):
        catalog.lifecycle.remove(MNIST, actor="bob")
    catalog.lifecycle.drop(MNIST, "again", actor="ann")
    assert catalog.lifecycle.remove(MNIST, actor="bob").due > first.due
    assert catalog.log.verify().faults == ()


def test_the_tombstone_says_who_removed_the_files_and_when(catalog: CatalogBackend, catalog_url: str) -> None:
    drop(catalog)
    begun = catalog.lifecycle.remove(MNIST, grace=NOW, actor="bob")
    assert begun.step is RemovalStep.BEGUN
    assert state(catalog).startswith("dropped: its licence ended; bob began to remove its files at 20")
    assert catalog.lifecycle.remove(MNIST, is_done=True, actor="gc").step is RemovalStep.ENDED
    assert state(catalog).startswith("dropped: its licence ended; bob removed its files at 20")
    assert not catalog.lifecycle.remove(MNIST, is_done=True, actor="gc").is_change
    with pytest.raises(VersionWithdrawnError, match=r"is dropped: its licence ended; bob removed its files at 20"):
        catalog.find(MNIST)
    assert execute(catalog_url, "SELECT count(*) FROM version_ledger") == [(1,)]
    assert catalog.log.verify().faults == ()


def test_after_the_removal_has_begun_nothing_brings_the_version_back(catalog: CatalogBackend) -> None:
    drop(catalog)
    version, shards = sample("mnist:1.0.0")
    assert is_published(catalog, version)
    catalog.lifecycle.remove(MNIST, grace=NOW, actor="bob")
    why = r"^mnist:1\.0\.0 is dropped: its licence ended; bob began to remove its files at "
    with pytest.raises(VersionExistsError, match=why):
        catalog.lifecycle.undo("drop", MNIST, actor="ann")
    with pytest.raises(VersionExistsError, match=why):
        catalog.lifecycle.drop(MNIST, "another reason", actor="ann")
    with pytest.raises(VersionExistsError, match=why):
        catalog.publish(version, shards, promote=None, actor="ann")
    with pytest.raises(VersionExistsError, match=why):
        is_published(catalog, version)
    with pytest.raises(VersionExistsError, match=why):
        catalog.attach(version, Attachment.of("notes", "notes.txt", b"notes"), actor="ann")
    with pytest.raises(VersionExistsError, match=why):
        catalog.reservations.reserve("s3://data/mnist", MNIST, version.content_digest, Holder.of_this_process("ann"))
    assert catalog.reservations.list() == ()
    assert catalog.log.verify().faults == ()


def test_what_an_alias_or_a_use_names_is_removed_only_if_it_is_forced(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    catalog.aliases.set("paper", MNIST, expect=None, message="", actor="ann")
    catalog.lifecycle.drop(MNIST, "its licence ended", actor="ann")
    with pytest.raises(ConflictError, match=r"^mnist:1\.0\.0 is in use: the alias mnist@paper"):
        catalog.lifecycle.remove(MNIST, actor="bob")
    catalog.aliases.remove(Reference.parse("mnist@paper"), expect=None, message="", actor="ann")
    uses = [
        Use(reference=Reference.parse(text), place="p.yaml") for text in ("mnist:1.0.0", "mnist:1.*", "cifar:1.0.0")
    ]
    with pytest.raises(ConflictError, match=r"^mnist:1\.0\.0 is in use: mnist:1\.0\.0 in p\.yaml"):
        catalog.lifecycle.remove(MNIST, actor="bob", uses=uses)
    assert catalog.lifecycle.removals() == ()
    assert catalog.lifecycle.remove(MNIST, force=True, actor="bob", uses=uses).force
    with pytest.raises(ConflictError, match="is in use"):  # a plan does not remember force
        catalog.lifecycle.remove(MNIST, grace=NOW, actor="bob", uses=uses)
    begun = catalog.lifecycle.remove(MNIST, grace=NOW, force=True, actor="bob", uses=uses)
    assert (begun.step, begun.force) == (RemovalStep.BEGUN, True)


def test_a_publisher_that_sends_the_files_again_is_not_disturbed(catalog: CatalogBackend) -> None:
    drop(catalog)
    version, _ = sample("mnist:1.0.0")
    holder = Holder.of_this_process("ann")
    held, _ = catalog.reservations.reserve("s3://data/mnist", MNIST, version.content_digest, holder)
    with pytest.raises(ReservedError, match=r"mnist:1\.0\.0 is being published"):
        catalog.lifecycle.remove(MNIST, grace=NOW, actor="bob")
    assert catalog.lifecycle.removals() == ()
    catalog.reservations.leave(held, holder, forget=True)
    assert catalog.lifecycle.remove(MNIST, grace=NOW, actor="bob").step is RemovalStep.BEGUN


def test_a_dry_run_writes_nothing(catalog: CatalogBackend) -> None:
    drop(catalog)
    events = len(list(logged(catalog)))
    assert catalog.lifecycle.remove(MNIST, grace=NOW, actor="bob", dry_run=True).step is RemovalStep.BEGUN
    assert (len(list(logged(catalog))), catalog.lifecycle.removals()) == (events, ())
    with pytest.raises(NotFoundError):
        catalog.lifecycle.remove(Reference.parse("mnist:2.0.0"), actor="bob")


def test_an_earlier_moment_knows_nothing_of_the_removal(catalog: CatalogBackend) -> None:
    drop(catalog)
    moment = datetime.now(UTC) + timedelta(microseconds=1)
    moment = max(moment, list(logged(catalog))[-1].at)
    catalog.lifecycle.remove(MNIST, grace=NOW, actor="bob")
    [before] = catalog.standing("mnist", at=moment).candidates
    [after] = catalog.standing("mnist").candidates
    assert before.message == "its licence ended"
    assert "bob began" in after.message
