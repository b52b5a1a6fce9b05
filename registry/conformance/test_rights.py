"""Who may do what: each call with each role, with tokens that do not count, and about datasets of others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from registry.catalog.service.calls import CALLS
from registry.catalog.service_index import API_PATH
from registry.conformance.conftest import Run
from registry.conformance.peer import Peer
from registry.model import Role, new_secret

ROLES = [role.value for role in Role]
STATES: dict[str, Any] = {
    "missing": None,
    "malformed": "password",
    "of another catalog": new_secret()[1],
    "expired": "expired",
    "revoked": "revoked",
}
CELLS = {(name, [*STATES][place % len(STATES)]) for place, name in enumerate(CALLS)}
CELLS |= {(name, state) for name in ("find", "aliases.set", "backup") for state in STATES}


@pytest.mark.parametrize(("name", "state"), sorted(CELLS))
def test_a_token_that_does_not_count_gets_no_answer(name: str, state: str, run: Run) -> None:
    token = STATES[state]
    if token is None and run.peer.call("now", {}, None).status == 200:
        role = CALLS[name].policy.role
        run.peer.call(name, {}, None).expect(*(200, 400) if role == "reader" else (403,), why="anonymous reading is on")
        return
    answer = run.peer.call(name, {}, run.tokens.get(token, token) if token else None)
    answer.problem(401)
    answer.require(
        answer.headers.get("WWW-Authenticate", "").startswith("Bearer"), "expected a challenge", "RFC 6750, 3"
    )


@pytest.mark.parametrize("name", CALLS)
def test_a_call_needs_its_role(name: str, run: Run) -> None:
    """Without arguments: a service that forgets the role answers 400, and nothing is changed."""
    least = CALLS[name].policy.role
    for place, role in enumerate(ROLES):
        answer = run.peer.call(name, {}, run.tokens[role])
        if least == "nobody" or place < ROLES.index(least):
            problem = answer.problem(403)
            answer.require(problem["title"] == "CatalogPermissionError", f"expected a refusal: it needs {least}")
        else:
            answer.expect(200, 400, why=f"a {role} may make the call")


ABOUT = [
    name for name, call in CALLS.items() if call.policy.subject is not None and not name.startswith("reservations.")
]


@pytest.mark.parametrize("name", ABOUT)
def test_a_dataset_of_others_looks_like_one_that_does_not_exist(name: str, run: Run) -> None:
    for role in ROLES[ROLES.index(CALLS[name].policy.role) :]:
        texts = []
        for dataset in (f"{run.prefix}secret", f"{run.prefix}absent"):
            values = run.peer.example(name, dataset)
            if dataset not in json.dumps(values):
                return
            answer = run.peer.call(name, values, run.tokens[f"{role} of open"]).expect(403, 404)
            document = {part: value for part, value in answer.json.items() if part != "request_id"}
            texts.append((answer.status, json.dumps(document).replace(dataset, "DATASET")))
            answer.require(texts[0] == texts[-1], f"expected the answer about a private dataset: {texts[0]}")


LISTS = {
    "datasets": {},
    "search": {"text": "conformance"},
    "sizes": {},
    "log.page": {"event_filter": {}, "newest": 100},
    "published_at": {"location": ""},
    "aliases.list": {},
    "reservations.list": {},
    "lifecycle.removals": {},
    "locations.outside": {},
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_lacks_the_datasets_of_others(name: str, run: Run) -> None:
    for role in ROLES:
        answer = run.peer.call(name, LISTS[name], run.tokens[f"{role} of open"]).expect(200)
        answer.require(b"secret" not in answer.body, "expected no dataset that the token does not cover")
        if name in ("datasets", "sizes", "log.page"):
            answer.require(f"{run.prefix}open".encode() in answer.body, "expected the dataset that the token covers")


def test_a_token_ends_at_once_when_it_is_revoked(run: Run) -> None:
    text = run.make_token("short", Role.READER)
    for _ in range(8):  # each worker may remember it
        run.peer.call("now", {}, text).expect(200)
    run.revoke(run.made[-1])
    for _ in range(8):
        run.peer.call("now", {}, text).problem(401)


def test_the_token_says_who_changed_something(run: Run) -> None:
    exactly = f"{run.prefix}open:1.0.0"
    forged = run.peer.call("lifecycle.deprecate", {"reference": exactly, "actor": "root"}, run.tokens["publisher"])
    forged.problem(400)
    run.peer.call("lifecycle.deprecate", {"reference": exactly, "message": "old"}, run.tokens["publisher"]).expect(200)
    undone = {"reference": exactly, "action": "deprecate"}
    run.peer.call("lifecycle.undo", undone, run.tokens["admin"]).expect(200)
    page = run.peer.call("log.page", {"event_filter": {"dataset": f"{run.prefix}open"}}, run.tokens["reader"])
    actors = {event["action"]: event["actor"] for event in page.expect(200).json}
    wanted = {"publish": "publisher", "deprecate": "publisher", "undo-deprecate": "admin"}
    for action, role in wanted.items():
        page.require(actors.get(action) == run.prefix + role, f"expected {action} by {run.prefix}{role}: {actors}")


def test_reading_needs_a_token_or_is_open_to_everybody(peer: Peer) -> None:
    answer = peer.ask("GET", f"{API_PATH}datasets")
    if answer.status == 200:
        peer.call("access.tokens", {}, None).problem(403)
    else:
        answer.problem(401)
        answer.header("WWW-Authenticate", "Bearer", "RFC 6750, 3")
        answer.header("Cache-Control", "no-store")
