"""Two persons over HTTP: tokens, roles, repeated requests, and attempts to do without another person."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from support.catalog_samples import logged
from support.service_calls import rows_of
from support.services import make_token

from registry.catalog.service.calls import CALLS, kind_of
from registry.catalog.service.messages import Reading, codec, load_value
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import CatalogPermissionError, ConflictError, KeyReusedError
from registry.model import Reference, Role
from registry.server.service import Service

TWO = Reference.parse("lab_digits/strict:2.0.0")
STRICT = Reference.parse("lab_digits/strict")


class Person:
    """Sends calls with a token of their own."""

    def __init__(self, catalog: SqlCatalog, name: str, role: Role = Role.MAINTAINER, *patterns: str) -> None:
        self.service = Service(catalog)
        self.who = self.service.authenticate(f"Bearer {make_token(catalog, name, role, *(patterns or ('lab_*',)))}")

    def send(self, name: str, /, key: str | None = None, **values: Any) -> Any:
        sent = {part: codec(kind_of(CALLS[name].sent[part])).dump(value) for part, value in values.items()}
        answered = self.service.answer(self.who, name, sent, key=key, request_id="1")
        assert isinstance(answered.body, bytes)
        return load_value(
            CALLS[name].answers, json.loads(answered.body), Reading(shards=self.service.catalog.shards), name
        )


def test_the_principal_of_a_token_is_the_person_whatever_else_it_sends(shared: SqlCatalog) -> None:
    (waiting,) = [it for it in shared.lifecycle.proposals() if it.dataset == "lab_digits/strict"]
    assert waiting.proposed_by == "eve"
    before = rows_of(shared)
    for name in ("eve", "Eve"):
        with pytest.raises(CatalogPermissionError, match="because eve made it: it needs another person"):
            Person(shared, name).send("lifecycle.approve", key=f"own {name}", proposal=waiting)
    assert rows_of(shared)["event"] == before["event"]
    Person(shared, "bob").send("lifecycle.approve", key="other", proposal=waiting)
    *_, told = logged(shared)
    assert (told.action, told.actor, told.details["proposed_by"], told.is_verified) == ("promote", "bob", "eve", True)
    assert told.recorded_by.startswith("token ")
    shared.log.verify().require_sound()


def test_a_repeated_request_has_one_effect(shared: SqlCatalog) -> None:
    bob, carol = Person(shared, "bob"), Person(shared, "carol")
    (waiting,) = bob.send("lifecycle.proposals", dataset="lab_digits/strict")
    carol.send("lifecycle.reject", key="1", proposal=waiting, message="")
    first = bob.send("lifecycle.promote", key="2", reference=TWO)
    assert bob.send("lifecycle.promote", key="2", reference=TWO) == first
    assert first.proposal.proposed_by == "bob"
    with pytest.raises(KeyReusedError):  # the answer to Bob's request is not an approval of Carol
        carol.send("lifecycle.promote", key="2", reference=TWO)
    assert carol.send("lifecycle.approve", key="3", proposal=first.proposal) == first.proposal
    assert carol.send("lifecycle.approve", key="3", proposal=first.proposal) == first.proposal
    with pytest.raises(ConflictError):
        carol.send("lifecycle.approve", key="4", proposal=first.proposal)
    actions = [event.action for event in logged(shared, dataset="lab_digits/strict")]
    assert actions[-3:] == ["reject", "propose", "promote"]


@pytest.mark.parametrize(("role", "patterns"), [(Role.PUBLISHER, ("lab_*",)), (Role.ADMIN, ("lab_digits/plain",))])
def test_who_may_not_promote_the_name_neither_proposes_nor_approves(
    shared: SqlCatalog, role: Role, patterns: tuple[str, ...]
) -> None:
    (waiting,) = [it for it in shared.lifecycle.proposals() if it.dataset == "lab_digits/strict"]
    other = Person(shared, "bob", role, *patterns)
    before = rows_of(shared)
    for name, values in (
        ("lifecycle.promote", {"reference": TWO}),
        ("lifecycle.approve", {"proposal": waiting}),
        ("lifecycle.reject", {"proposal": waiting, "message": "no"}),
    ):
        with pytest.raises(CatalogPermissionError):
            other.send(name, **values)
    assert rows_of(shared) == before


def test_who_may_not_promote_the_name_does_not_move_its_default_config(shared: SqlCatalog) -> None:
    before = shared.find(Reference.parse("lab_digits"))
    assert before.config == "plain"
    shared.configs.set_protection(Reference.parse("lab_digits/plain"), protect=True, actor="root")
    bob, carol = Person(shared, "bob", Role.PUBLISHER, "*"), Person(shared, "carol")
    other = replace(before, config="other", location="lab_digits/other/1.0.0")
    for name, values in (
        ("configs.set_default", {"name": "lab_digits", "config": "small"}),
        ("publish", {"version": other, "shards": {}, "promote": None, "default_config": True}),
        (
            "publish",
            {"version": replace(other, config=None, location="lab_digits/1.0.0"), "shards": {}, "promote": None},
        ),
    ):
        with pytest.raises(CatalogPermissionError, match="needs the role maintainer"):
            bob.send(name, key=f"{name} {len(values)}", **values)
    assert bob.send("configs.set_default", key="2", name="lab_digits", config="plain").before.config == "plain"
    assert carol.send("configs.set_default", key="3", name="lab_digits", config="small").after.config == "small"


def test_the_end_of_the_rule_needs_two_admins(shared: SqlCatalog) -> None:
    ann, bob, carol = (Person(shared, name, Role.ADMIN) for name in ("ann", "bob", "carol"))
    ended = ann.send("configs.set_protection", key="1", dataset=STRICT, protect=False)
    assert ended.proposal is not None
    with pytest.raises(CatalogPermissionError, match="this needs the role admin"):
        Person(shared, "dave").send("lifecycle.approve", key="2", proposal=ended.proposal)
    with pytest.raises(CatalogPermissionError, match="it needs another person"):
        ann.send("lifecycle.approve", key="3", proposal=ended.proposal)
    assert shared.configs.protection("lab_digits", "strict") == "lab_digits/strict"
    bob.send("lifecycle.approve", key="4", proposal=ended.proposal)
    assert shared.configs.protection("lab_digits", "strict") is None
    assert carol.send("lifecycle.promote", key="5", reference=TWO).is_change
