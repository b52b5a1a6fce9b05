"""Who may make which call: each call of the protocol, with each role and each state of a token.

The table of rights is written here a second time, from what the documentation promises. What a token does not cover
looks like what does not exist, and a call that is refused changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from support.service_calls import prepare, rows_of, split_of, values_of

from registry.catalog.service.calls import CALLS
from registry.catalog.service.problems import dump_error
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import RegistryError
from registry.model import Reference, new_secret
from registry.server.service import Service

RIGHTS = {
    ("reader", "catalog"): "now experiments.list experiments.defaults_for locations.data_dir explain_no_hits",
    ("reader", "list"): "published_at sizes datasets search locations.outside",
    ("reader", "dataset"): """
        find find_at published published_digest neighbours standing versions fingerprints attachments producers
        aliases.list aliases.history configs.list configs.protection experiments.of_version lifecycle.removals log.page
        events lifecycle.proposals
        reservations.list shards.between shards.find shards.files_of shards.lengths_between shards.lengths_at
        shards.empty_between shards.version_of
    """,
    ("publisher", "catalog"): "require_publisher",
    ("publisher", "dataset"): "reservations.require",
    ("publisher", "change"): """
        publish attach add_fingerprints add_producer aliases.set aliases.remove configs.set_default lifecycle.promote
        lifecycle.deprecate lifecycle.yank lifecycle.describe locations.add reservations.reserve
        reservations.note_found reservations.take_over reservations.begin_cleaning reservations.end_cleaning
        reservations.leave reservations.release
    """,
    ("publisher", "whole"): "experiments.add",
    ("maintainer", "change"): "lifecycle.approve lifecycle.reject",
    ("admin", "change"): """
        rename configs.set_protection lifecycle.drop lifecycle.undo lifecycle.remove locations.remove
        locations.relocate
    """,
    ("admin", "whole"): """
        access.create_token access.tokens access.revoke_token access.refusals backup snapshot experiments.set_default
        experiments.retire locations.set_data_dir log.verify log.num_rows log.correct_clock webhooks.create
        webhooks.list webhooks.secret webhooks.remove webhooks.resume
    """,
    ("nobody", "whole"): "access.authenticate access.note_refusal",
}
"""The least role and the kind of each call: about the catalog, about lists of datasets that are filtered, about one
dataset, a change of one dataset, or what concerns every dataset."""

LINES = {name: line for line, names in RIGHTS.items() for name in names.split()}
ROLES = ("reader", "publisher", "maintainer", "admin")

WITHOUT_RIGHTS = (
    "expired",
    "revoked",
    "exchanged, expired",
    "ID token",
    "ID token, other audience",
    "ID token, alg=none",
    "ID token, key confusion",
)
"""States of the tokens of each role with which no call is made."""

Tokens = Mapping[tuple[str, str], str]


def test_the_table_has_a_line_for_each_call() -> None:
    assert LINES.keys() == CALLS.keys()
    assert sum(len(names.split()) for names in RIGHTS.values()) == len(CALLS)


def ask(catalog: SqlCatalog, token: str | None, name: str, values: Any, *, anonymous: bool = False) -> tuple[int, str]:
    """The status and the body of an answer; that of a stream is its bytes in Latin-1."""
    service = Service(catalog, anonymous=anonymous)
    try:
        who = service.authenticate("" if token is None else f"Bearer {token}")
        answered = service.answer(who, name, values, key=None, request_id="1")
    except RegistryError as error:
        problem = dump_error(error, request_id="1")
        return problem["status"], json.dumps(problem)
    body = answered.body if isinstance(answered.body, bytes) else b"".join(answered.body)
    return answered.status, body.decode("latin-1")


def expected(name: str, role: str, state: str) -> int:
    """The status of a call about a dataset that ``lab_*`` covers."""
    least, kind = LINES[name]
    if least == "nobody" or ROLES.index(role) < ROLES.index(least):
        return 403
    if state == "covering all" or kind in ("catalog", "list"):
        return 200
    if kind == "whole":
        return 403
    return 200 if state in ("covering it", "exchanged") else {"dataset": 404, "change": 403}[kind]


@pytest.mark.parametrize("name", LINES)
def test_each_role_may_make_the_calls_of_its_line(name: str, shared: SqlCatalog, copy: Any, tokens: Tokens) -> None:
    values = values_of(shared, "lab_digits")[name]
    before = rows_of(shared)
    for role in ROLES:
        for state in ("covering all", "covering it", "covering others", "exchanged"):
            token, status = tokens[role, state], expected(name, role, state)
            if status == 200 and CALLS[name].policy.is_write:
                with copy() as fresh:
                    prepare(fresh, name, "lab_digits")
                    kept = rows_of(fresh)
                    assert ask(fresh, token, name, values)[0] == 200, (role, state, ask(fresh, token, name, values))
                    assert (rows_of(fresh) != kept) == (name not in UNCHANGED), (role, state)
            else:
                answer = ask(shared, token, name, values)
                assert answer[0] == status, (role, state, answer)
    assert rows_of(shared) == before


UNCHANGED = {"reservations.end_cleaning"}
"""Writes that find everything as they want it."""


@pytest.mark.parametrize("name", LINES)
def test_nobody_without_a_valid_token_may_make_a_call(name: str, shared: SqlCatalog, tokens: Tokens) -> None:
    values, before = values_of(shared, "lab_digits")[name], rows_of(shared)
    text = tokens["admin", "covering all"]
    states = {
        "missing": None,
        "malformed": "password",
        "too short": text[:-1],
        "wrong checksum": text[:-1] + ("A" if text[-1] != "A" else "B"),
        "of another catalog": new_secret()[1],
        **{f"{role} {state}": tokens[role, state] for role in ROLES for state in WITHOUT_RIGHTS},
    }
    bodies = set()
    for state, token in states.items():
        status, body = ask(shared, token, name, values)
        assert status == 401, state
        bodies.add(json.loads(body)["details"]["reason"])
    assert bodies == {"missing", "malformed", "unknown", "invalid"}
    # Where everybody may read, a wrong token is still wrong.
    for token in [*states.values()][1:]:
        assert ask(shared, token, name, values, anonymous=True)[0] == 401
    least, _ = LINES[name]
    assert ask(shared, None, name, values, anonymous=True)[0] == (200 if least == "reader" else 403)
    assert rows_of(shared) == before


@pytest.mark.parametrize("name", [name for name, (_, kind) in LINES.items() if kind in ("dataset", "change")])
def test_a_dataset_of_others_looks_like_none(name: str, shared: SqlCatalog, tokens: Tokens) -> None:
    before, answers = rows_of(shared), []
    for dataset in ("secret_digits", "absent_digits"):
        values = values_of(shared, dataset)[name]
        number = split_of(shared, Reference.parse(f"{dataset}/plain:1.1.0"))
        for role in ROLES:
            status, body = ask(shared, tokens[role, "covering it"], name, values)
            assert status in (403, 404)
            answers.append(body.replace(dataset, "DATASET").replace(f"split {number} ", "split N "))
    assert answers[: len(ROLES)] == answers[len(ROLES) :]
    assert rows_of(shared) == before


@pytest.mark.parametrize("name", [name for name, (_, kind) in LINES.items() if kind in ("list", "catalog")])
def test_a_list_lacks_the_datasets_of_others(name: str, shared: SqlCatalog, tokens: Tokens) -> None:
    values = values_of(shared, "secret_digits")[name]
    for state in ("covering it", "covering others"):
        status, body = ask(shared, tokens["admin", state], name, values)
        assert status == 200
        assert "secret" not in body
        assert ("lab_digits" in body) == (name in ("sizes", "datasets", "search", "locations.outside")) * (
            state == "covering it"
        )


@pytest.mark.parametrize("name", ["aliases.list", "lifecycle.removals", "reservations.list", "log.page", "events"])
def test_a_list_without_a_dataset_lacks_those_of_others(name: str, shared: SqlCatalog, tokens: Tokens) -> None:
    values = {"event_filter": {}} if name == "log.page" else {}
    status, body = ask(shared, tokens["reader", "covering it"], name, values)
    assert status == 200
    assert "lab_digits" in body
    assert "secret" not in body
    assert "secret_digits" in ask(shared, tokens["reader", "covering all"], name, values)[1]
