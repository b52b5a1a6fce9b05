"""Names whose promotion needs two persons: proposals, approvals, and attempts to do without another person."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from support.catalog_clocks import set_clocks
from support.catalog_samples import append, damage, execute, logged, publish
from support.catalog_server import PostgresServer
from support.service_calls import authenticated

from registry.catalog import CatalogBackend, Change, Proposal, open_catalog, schema
from registry.catalog.proposals import is_approved
from registry.catalog.restore import restore_backup
from registry.catalog.snapshot import write_snapshot
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import CatalogPermissionError, ConflictError, ProtectedError, RegistryError, UsageError
from registry.model import Reference, Version, VersionState

ONE, TWO = Version(1, 0, 0), Version(2, 0, 0)
SECOND = Reference.parse("mnist:2.0.0")


@pytest.fixture
def ruled(catalog: CatalogBackend) -> CatalogBackend:
    """A catalog with mnist 1.0.0, which is canonical, and 2.0.0; changes of mnist need two persons."""
    publish(catalog, "mnist:1.0.0")
    publish(catalog, "mnist:2.0.0", promote=False)
    rule(catalog, "mnist")
    return catalog


def rule(catalog: CatalogBackend, dataset: str | None, actor: str = "root") -> None:
    scope = None if dataset is None else Reference.parse(dataset)
    assert catalog.configs.set_protection(scope, protect=True, two_persons=True, actor=actor).is_change


def promote(catalog: CatalogBackend, actor: str, reference: Reference = SECOND, **options: Any) -> Change:
    with authenticated(actor):
        return catalog.lifecycle.promote(reference, actor=actor, **options)


def propose(catalog: CatalogBackend, actor: str, reference: Reference = SECOND) -> Proposal:
    change = promote(catalog, actor, reference)
    assert change.proposal is not None
    assert not change.is_change
    return change.proposal


def approve(catalog: CatalogBackend, actor: str, proposal: Proposal, **options: Any) -> Proposal:
    with authenticated(actor):
        return catalog.lifecycle.approve(proposal, actor=actor, **options)


def refused(error: type[RegistryError], action: Callable[[], Any]) -> str:
    with pytest.raises(error) as caught:
        action()
    return caught.value.message


def events_of(catalog: CatalogBackend) -> list[tuple[str, str, str]]:
    return [(event.action, event.actor, event.version) for event in logged(catalog)][3:]


def test_a_promotion_waits_until_another_person_approves_it(ruled: CatalogBackend) -> None:
    change = promote(ruled, "ann")
    proposal = change.proposal
    assert (str(proposal), proposal.before, proposal.proposed_by) == ("promote mnist:2.0.0", ONE, "ann")
    assert proposal.expires_at - proposal.proposed_at == timedelta(days=14)
    assert (change.is_change, change.after.canonical) == (False, TWO)
    assert ruled.find("mnist").version == ONE
    assert ruled.lifecycle.proposals() == ruled.lifecycle.proposals("mnist") == (proposal,)

    assert approve(ruled, "bob", proposal) == proposal

    assert ruled.find("mnist").version == TWO
    assert ruled.lifecycle.proposals() == ()
    assert events_of(ruled) == [("propose", "ann", "2.0.0"), ("promote", "bob", "2.0.0")]
    *_, told = logged(ruled)
    assert told.details == {"before": "1.0.0", "after": "2.0.0", "proposal": proposal.id, "proposed_by": "ann"}
    ruled.log.verify().require_sound()


@pytest.mark.parametrize("scope", [None, "mnist/plain", "mnist"])
def test_every_scope_that_covers_a_config_has_the_rule(catalog: CatalogBackend, scope: str | None) -> None:
    for name in ("mnist/plain", "letters/plain"):
        publish(catalog, f"{name}:1.0.0")
        publish(catalog, f"{name}:2.0.0", promote=False)
    rule(catalog, scope)
    assert propose(catalog, "ann", Reference.parse("mnist/plain:2.0.0")).dataset == "mnist/plain"
    assert (promote(catalog, "ann", Reference.parse("letters/plain:2.0.0")).proposal is None) == (scope is not None)


def test_the_first_version_of_a_ruled_catalog_needs_two_persons(catalog: CatalogBackend) -> None:
    rule(catalog, None)
    publish(catalog, "mnist:2.0.0", promote=None)
    proposal = propose(catalog, "ann")
    assert proposal.before is None
    approve(catalog, "bob", proposal)
    assert catalog.find("mnist").version == TWO


@pytest.mark.parametrize("other", ["ann", "ANN"])
def test_who_proposed_a_change_cannot_approve_it(ruled: CatalogBackend, other: str) -> None:
    """Not with another token of the same name, either."""
    proposal = propose(ruled, "ann")
    message = refused(CatalogPermissionError, lambda: approve(ruled, other, proposal))
    assert f"{other} cannot approve proposal {proposal.id}, because ann made it: it needs another person" in message
    refused(CatalogPermissionError, lambda: approve(ruled, other, proposal, dry_run=True))
    assert ruled.find("mnist").version == ONE


def test_a_dry_run_writes_nothing(ruled: CatalogBackend) -> None:
    change = promote(ruled, "ann", dry_run=True)
    assert change.proposal.id is None
    proposal = propose(ruled, "ann")
    assert replace(
        change.proposal, id=proposal.id, proposed_at=proposal.proposed_at, expires_at=proposal.expires_at
    ) == (proposal)
    approve(ruled, "bob", proposal, dry_run=True)
    ruled.lifecycle.reject(proposal, actor="bob", dry_run=True)
    assert [action for action, *_ in events_of(ruled)] == ["propose"]
    assert ruled.find("mnist").version == ONE


def test_a_proposal_is_not_repeated(ruled: CatalogBackend) -> None:
    proposal = propose(ruled, "ann")
    assert propose(ruled, "ann") == propose(ruled, "bob") == proposal
    assert [action for action, *_ in events_of(ruled)] == ["propose"]
    assert promote(ruled, "ann", Reference.parse("mnist:1.0.0")).proposal is None  # it is canonical already


def test_a_change_is_approved_once(ruled: CatalogBackend) -> None:
    proposal = propose(ruled, "ann")
    approve(ruled, "bob", proposal)
    for actor in ("bob", "eve"):
        assert f"proposal {proposal.id} does not wait for approval" in refused(
            ConflictError, lambda actor=actor: approve(ruled, actor, proposal)
        )
    assert [action for action, *_ in events_of(ruled)] == ["propose", "promote"]


def test_a_proposal_is_rejected_or_withdrawn(ruled: CatalogBackend) -> None:
    proposal = propose(ruled, "ann")
    ruled.lifecycle.reject(proposal, "labels are shifted", actor="ann")
    assert ruled.lifecycle.proposals() == ()
    refused(ConflictError, lambda: approve(ruled, "bob", proposal))
    refused(ConflictError, lambda: ruled.lifecycle.reject(proposal, actor="bob"))
    *_, told = logged(ruled)
    assert (told.action, told.version, told.details) == (
        "reject",
        "2.0.0",
        {"proposal": proposal.id, "proposed_by": "ann", "message": "labels are shifted"},
    )
    assert propose(ruled, "ann").id != proposal.id


def test_a_proposal_expires(ruled: CatalogBackend) -> None:
    proposal = propose(ruled, "ann")
    with set_clocks(timedelta(days=13)):
        assert ruled.lifecycle.proposals() == (proposal,)
    with set_clocks(timedelta(days=15)):
        assert ruled.lifecycle.proposals() == ()
        refused(ConflictError, lambda: approve(ruled, "bob", proposal))
        again = propose(ruled, "ann")
        refused(ConflictError, lambda: approve(ruled, "bob", proposal))
        approve(ruled, "bob", again)
    assert ruled.find("mnist").version == TWO


CHANGES: dict[str, Callable[[CatalogBackend], Any]] = {
    "deprecated": lambda catalog: catalog.lifecycle.deprecate(SECOND, "use 3", actor="root"),
    "yanked": lambda catalog: catalog.lifecycle.yank(SECOND, "wrong", actor="root"),
    "dropped": lambda catalog: catalog.lifecycle.drop(SECOND, "wrong", actor="root"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_approval_is_for_what_was_proposed(ruled: CatalogBackend, change: str) -> None:
    proposal = propose(ruled, "ann")
    CHANGES[change](ruled)
    with pytest.raises(RegistryError):
        approve(ruled, "bob", proposal)
    assert ruled.standing("mnist").canonical == ONE
    if change == "deprecated":  # it may be proposed as it is now
        again = propose(ruled, "ann")
        assert ruled.lifecycle.proposals() == (again,)
        refused(ConflictError, lambda: approve(ruled, "bob", proposal))
        approve(ruled, "bob", again)
        assert ruled.find("mnist").state is VersionState.DEPRECATED


def test_a_promotion_ends_the_proposals_that_were_made_before_it(ruled: CatalogBackend) -> None:
    publish(ruled, "mnist:3.0.0", promote=False)
    second, third = propose(ruled, "ann"), propose(ruled, "ann", Reference.parse("mnist:3.0.0"))
    assert ruled.lifecycle.proposals() == (second, third)
    approve(ruled, "bob", third)
    assert ruled.lifecycle.proposals() == ()
    refused(ConflictError, lambda: approve(ruled, "bob", second))
    assert ruled.find("mnist").version == Version(3, 0, 0)


@pytest.mark.parametrize(
    "changed",
    [{"version": ONE}, {"dataset": "letters"}, {"proposed_by": "bob"}, {"id": 1}, {"id": 99}, {"action": "unprotect"}],
)
def test_a_proposal_that_was_not_made_is_not_approved(ruled: CatalogBackend, changed: dict[str, Any]) -> None:
    publish(ruled, "letters:2.0.0", promote=False)
    forged = replace(propose(ruled, "ann"), **changed)
    with pytest.raises((ConflictError, LookupError)):
        approve(ruled, "bob", forged)
    assert ruled.find("mnist").version == ONE
    assert ruled.configs.protection("mnist", None) == "mnist"


def test_the_rule_is_ended_by_two_persons_only(ruled: CatalogBackend) -> None:
    def change(actor: str, *, protect: bool, **options: Any) -> Any:
        with authenticated(actor):
            return ruled.configs.set_protection(Reference.parse("mnist"), protect=protect, actor=actor, **options)

    assert not change("ann", protect=True).is_change  # it keeps the rule
    assert change("ann", protect=False, dry_run=True).proposal.id is None
    ended = change("ann", protect=False)
    assert (ended.is_change, str(ended.proposal)) == (False, "unprotect mnist")
    assert change("ann", protect=False).proposal == ended.proposal
    refused(CatalogPermissionError, lambda: approve(ruled, "ann", ended.proposal))
    assert ruled.configs.protection("mnist", None) == "mnist"
    assert propose(ruled, "ann").action == "promote"

    approve(ruled, "bob", ended.proposal)

    assert ruled.configs.protection("mnist", None) is None
    assert promote(ruled, "ann").is_change
    assert change("ann", protect=True).is_change
    assert change("ann", protect=True, two_persons=True).is_change
    assert change("ann", protect=False).proposal is not None
    ruled.log.verify().require_sound()
    with pytest.raises(UsageError):
        change("ann", protect=False, two_persons=True)


def test_another_protection_does_not_weaken_the_rule(ruled: CatalogBackend) -> None:
    assert ruled.configs.set_protection(None, protect=True, actor="ann").is_change
    assert ruled.configs.set_protection(None, protect=False, actor="ann").is_change
    assert propose(ruled, "ann")


def test_a_bare_name_is_not_moved_by_the_default_config(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist/plain:1.0.0", default_config=True)
    publish(catalog, "mnist/small:1.0.0")
    rule(catalog, "mnist")
    with pytest.raises(ProtectedError) as caught:
        catalog.configs.set_default("mnist", "small", actor="ann")
    assert caught.value.message == "the default config of mnist cannot change: changes to mnist need two persons"
    assert caught.value.hint == "Two persons can remove this rule: registry config unprotect mnist"
    with pytest.raises(ProtectedError):
        publish(catalog, "mnist/other:1.0.0", promote=None, default_config=True)
    assert catalog.find("mnist").config == "plain"
    publish(catalog, "mnist/plain:2.0.0", promote=None, default_config=True)  # it has the mark already


def test_a_bare_name_is_not_moved_away_from_a_config_under_the_rule(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist/plain:1.0.0", default_config=True)
    publish(catalog, "mnist/small:1.0.0")
    rule(catalog, "mnist/plain")
    with pytest.raises(ProtectedError) as caught:
        catalog.configs.set_default("mnist", "small", actor="ann")
    assert caught.value.message == "the default config of mnist cannot change: changes to mnist/plain need two persons"
    with pytest.raises(ProtectedError):
        publish(catalog, "mnist/other:1.0.0", promote=None, default_config=True)
    assert catalog.find("mnist").config == "plain"
    publish(catalog, "mnist/other:1.0.0", promote=None)


def test_a_renamed_dataset_keeps_the_rule_and_its_proposals(ruled: CatalogBackend) -> None:
    proposal = propose(ruled, "ann")
    ruled.rename("mnist", "digits", actor="root")
    assert ruled.lifecycle.proposals("digits") == (proposal,)
    assert propose(ruled, "ann", Reference.parse("digits:2.0.0")).dataset == "digits"
    refused(CatalogPermissionError, lambda: approve(ruled, "ann", ruled.lifecycle.proposals()[-1]))
    approve(ruled, "bob", ruled.lifecycle.proposals()[-1])
    assert ruled.find("digits").version == TWO
    ruled.log.verify().require_sound()


# Catalogs that are opened directly, and what others do to them.


@pytest.fixture
def direct(catalog_url: str) -> Iterator[CatalogBackend]:
    with open_catalog(catalog_url) as catalog:
        publish(catalog, "mnist:1.0.0")
        publish(catalog, "mnist:2.0.0", promote=False)
        rule(catalog, "mnist")
        yield catalog


def test_two_who_approve_at_once_have_one_effect(direct: CatalogBackend, catalog_url: str) -> None:
    proposal, results = propose(direct, "ann"), list[str]()
    start = threading.Barrier(4)

    def run(actor: str) -> None:
        with open_catalog(catalog_url) as catalog:
            start.wait()
            try:
                approve(catalog, actor, proposal)
                results.append("approved")
            except ConflictError as error:
                results.append(error.code)

    threads = [threading.Thread(target=run, args=(f"person {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["approved", "conflict", "conflict", "conflict"]
    assert [action for action, *_ in events_of(direct)] == ["propose", "promote"]
    direct.log.verify().require_sound()


def test_a_claimed_name_proves_nobody(direct: CatalogBackend, catalog_url: str) -> None:
    """On SQLite, nobody can propose; on PostgreSQL, whoever logs in as the same user is the same person."""
    if catalog_url.startswith("sqlite"):
        for dry_run in (True, False):
            message = refused(
                CatalogPermissionError,
                lambda dry_run=dry_run: direct.lifecycle.promote(SECOND, actor="ann", dry_run=dry_run),
            )
            assert message == "this change needs two persons, and an SQLite file does not prove who opens it"
        proposal = propose(direct, "ann")
        refused(CatalogPermissionError, lambda: direct.lifecycle.approve(proposal, actor="bob"))
    else:
        proposal = cast("Proposal", direct.lifecycle.promote(SECOND, actor="ann").proposal)
        refused(CatalogPermissionError, lambda: direct.lifecycle.approve(proposal, actor="bob"))
        message = refused(CatalogPermissionError, lambda: approve(direct, "bob", proposal))
        assert message == f"nothing proves that bob is another person than ann, who made proposal {proposal.id}"
    assert direct.find("mnist").version == ONE
    direct.lifecycle.reject(proposal, actor="bob")


def test_a_promotion_past_the_rule_is_found(direct: CatalogBackend, catalog_url: str) -> None:
    canonical = "UPDATE builder_config SET canonical_version_id = (SELECT id FROM dataset_version WHERE major = 2)"
    damage(catalog_url, canonical)
    append(direct, "promote", "mnist", "2.0.0", before="1.0.0", after="2.0.0")
    faults = [str(fault) for fault in direct.log.verify().faults if "search document" not in str(fault)]
    assert faults == ["event 4 (promote mnist:2.0.0) needed two persons, and no other one proposed it"]


def test_a_rule_that_is_changed_past_the_registry_is_found(direct: CatalogBackend, catalog_url: str) -> None:
    damage(catalog_url, "UPDATE protection SET two_persons = false")
    faults = [str(fault) for fault in direct.log.verify().faults]
    assert faults == ["mnist has another rule of two persons than its events say"]


def test_a_backup_has_the_rule_and_its_proposals(direct: CatalogBackend, tmp_path: Path) -> None:
    proposal = propose(direct, "ann")
    path = tmp_path / "backup.jsonl"
    path.write_bytes(gzip.compress(b"".join(direct.backup())))
    restore_backup(str(tmp_path / "restored.db"), lambda: path.open("rb"), shown="backup")
    with open_catalog(tmp_path / "restored.db") as restored:
        assert restored.lifecycle.proposals() == (proposal,)
        approve(restored, "bob", proposal)
        restored.log.verify().require_sound()


@pytest.mark.parametrize("with_actors", [True, False])
def test_a_site_has_neither_proposals_nor_users_of_the_database(
    direct: CatalogBackend, tmp_path: Path, with_actors: bool
) -> None:
    approve(direct, "bob", propose(direct, "ann"))
    publish(direct, "mnist:3.0.0", promote=None)
    propose(direct, "carol", Reference.parse("mnist:3.0.0"))
    path = tmp_path / "snapshot.db"
    write_snapshot(path, direct.snapshot(with_actors=with_actors), source="catalog", verify=True)
    content = path.read_bytes()
    for word in (b"session_user", b"proposed_by", b"propose", b"carol"):
        assert word not in content.replace(b"two_persons", b"")
    assert (b"bob" in content) == with_actors
    with open_catalog(path) as snapshot:
        assert snapshot.lifecycle.proposals() == ()
        assert [event.session_user for event in logged(snapshot)] == [None] * len(list(logged(snapshot)))
        assert any(event.is_verified for event in logged(snapshot)) == with_actors


def test_a_way_back_keeps_the_rule_in_the_log(direct: CatalogBackend, catalog_url: str) -> None:
    proposal = propose(direct, "ann")
    direct.access.create_token("1" * 12, "a" * 64, "eve", cast("Any", "maintainer"), actor="root")
    schema.downgrade(catalog_url, "0014")
    assert execute(catalog_url, "SELECT role FROM access_token") == [("publisher",)]
    schema.upgrade(catalog_url)
    assert schema.check(catalog_url) == []
    with open_catalog(catalog_url) as catalog:
        assert catalog.lifecycle.proposals() == (proposal,)
        approve(catalog, "bob", proposal)
        catalog.log.verify().require_sound()


def test_the_log_has_no_approval_by_who_proposed(ruled: CatalogBackend) -> None:
    approve(ruled, "bob", propose(ruled, "ann"))
    *_, proposed, approved = logged(ruled)
    assert is_approved(proposed, approved)
    assert not is_approved(proposed, replace(approved, actor="Ann"))
    assert not is_approved(proposed, replace(approved, at=proposed.at + timedelta(days=15)))


@contextmanager
def roles(server: PostgresServer, url: str, *names: str) -> Iterator[list[SqlCatalog]]:
    """The catalog as opened by users of the database with these names, who are curators."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        opened = []
        for name in names:
            server.execute(f"CREATE ROLE {name} LOGIN")
            schema.grant_rights(url, name, "curator")
            opened.append(stack.enter_context(open_catalog(url.replace("postgres@", f"{name}@"))))
        yield cast("list[SqlCatalog]", opened)
    for name in names:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP OWNED BY {name}")
        server.execute(f"DROP ROLE {name}")


@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
def test_users_of_the_database_are_persons(
    direct: CatalogBackend, catalog_url: str, postgres_server: PostgresServer
) -> None:
    with roles(postgres_server, catalog_url, "two_ann", "two_bob") as (ann, bob):
        proposal = cast("Proposal", ann.lifecycle.promote(SECOND, actor="somebody").proposal)
        message = refused(CatalogPermissionError, lambda: ann.lifecycle.approve(proposal, actor="else"))
        assert message == (
            f"else cannot approve proposal {proposal.id}, because somebody made it: it needs another person"
        )
        bob.lifecycle.approve(proposal, actor="somebody")
        *_, proposed, promoted = logged(direct)
        assert [event.session_user for event in (proposed, promoted)] == ["two_ann", "two_bob"]
        assert promoted.described_actor.endswith(" as two_bob)")
        direct.log.verify().require_sound()


@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("claim", ['"two_bob"', '"postgres"', "null"])
def test_nobody_appends_an_event_as_another_user(
    direct: CatalogBackend, catalog_url: str, postgres_server: PostgresServer, claim: str
) -> None:
    """Whatever else the process writes, or whichever role it takes."""
    with roles(postgres_server, catalog_url, "two_ann") as (ann,):
        *_, last = logged(direct)
        details = f'{{"@recorded_by": "token 0", "@session_user": {claim}}}'
        connected = psycopg.connect(ann._engine.url.render_as_string(False).replace("+psycopg", ""))
        said = "number, hashes, time, details and user"
        with connected as connection, pytest.raises(psycopg.errors.CheckViolation, match=said):
            connection.execute(
                "INSERT INTO event VALUES (%s, now(), 'bob', 'promote', 'mnist', '2.0.0', %s, %s, %s)",
                (last.id + 1, details, last.hash, "a" * 64),
            )
