"""Nonsense from a client: every call answers with a result or a typed error, and an error changes no row."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, cast

import pytest
import urllib3
from hypothesis import given, settings
from hypothesis import strategies as st
from support.levels import examples
from support.service_calls import fill, rows_of, values_of
from support.services import TestServer, make_token

from registry.catalog import open_catalog
from registry.catalog.service.calls import CALLS
from registry.catalog.service.messages import load_json
from registry.catalog.service.problems import dump_error, status_of
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import RegistryError
from registry.model import Role
from registry.server.service import Service

NAMES = [name for name, call in CALLS.items() if call.policy.role != "nobody"]
DEEP: Any = 1
for _ in range(90):
    DEEP = [DEEP]

LENGTHS = {"split_id": 10**20, "name": "\0", "num_shards": 2**62, "num_examples": -1}

NASTY: list[Any] = [None, True, 0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**300, 1.5, 1e308]
NASTY += ["", " ", "\0", "a\0b", "\x7f\u202e", "é" * 300, "\U0010ffff", "x" * 100_000, "../..", "/etc/passwd", "'; --"]
NASTY += ["lab_digits", "lab_digits:*", "lab_digits@x", "secret/plain:1.1.0", "9" * 30 + ".0.0", "1.1.0", "none"]
NASTY += ["0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59.999999-23:59", "2026-01-01", "a" * 64, "==", "QQ=="]
NASTY += [[], [[]], [None], {}, {"": ""}, DEEP, [2**62, 2**62, 2**62], ["a"] * 999, LENGTHS]
NASTY += [{"split_id": 1, "name": "train", "num_shards": 3, "num_examples": 7}]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of a JSON document."""
    result = [path]
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        result += places(part, (*path, key))
    return result


def changed(value: Any, path: tuple[Any, ...], to: Any) -> Any:
    """The document with another value at a place."""
    if not path:
        return to
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(copy[path[0]], path[1:], to)
    return copy


@st.composite
def mutated(draw: st.DrawFn, values: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call, of which some were exchanged, left out or added."""
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(places(values)))
        kind = draw(st.sampled_from(["exchange", "exchange", "exchange", "leave out", "add"]))
        to = draw(st.sampled_from(NASTY) | st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False))
        if not path:
            kind = "add"
        if kind == "leave out" and isinstance(path[-1], str):
            parent = values
            for part in path[:-1]:
                parent = parent[part]
            values = changed(values, path[:-1], {key: part for key, part in parent.items() if key != path[-1]})
        elif kind == "add":
            values = {**values, draw(st.sampled_from(["dry_run", "limit", "at", "config", "force", "x", "uses"])): to}
        else:
            values = changed(values, path, to)
    return values


@pytest.mark.parametrize("role", [Role.ADMIN, Role.PUBLISHER])
def test_nonsense_gives_typed_errors_and_changes_nothing(catalog_url: str, role: Role) -> None:
    with open_catalog(catalog_url) as opened:
        catalog = cast("SqlCatalog", opened)
        fill(catalog, "lab_digits")
        service = Service(catalog)
        token = make_token(catalog, "eve", role, "*" if role is Role.ADMIN else "lab_*")
        who = service.authenticate(f"Bearer {token}")
        arguments = values_of(catalog, "lab_digits")

        @settings(max_examples=examples(len(NAMES) * 8))
        @given(st.sampled_from(NAMES).flatmap(lambda name: st.tuples(st.just(name), mutated(arguments[name]))))
        def attack(sent: tuple[str, dict[str, Any]]) -> None:
            name, values = sent
            before = rows_of(catalog)
            try:
                loaded = load_json(json.dumps(values).encode(), "the body of the call")
                answered = service.answer(who, name, loaded, key=None, request_id="1")
                if not isinstance(answered.body, bytes):
                    sum(map(len, answered.body))
                return
            except RegistryError as error:
                status = status_of(error)
                json.dumps(dump_error(error, request_id="1"))
            assert 400 <= status < 500
            assert rows_of(catalog) == before

        attack()


def test_no_long_text_keeps_the_service_busy(shared: SqlCatalog) -> None:
    """To search 200,000 characters for secrets took 35 s, and four times as long for twice as many."""
    service = Service(shared)
    who = service.authenticate(f"Bearer {make_token(shared, 'ann', Role.ADMIN, 'lab_*')}")
    arguments = values_of(shared, "lab_digits")
    for name in NAMES:
        for path in places(arguments[name]):
            if path and isinstance(path[-1], str):
                values = changed(arguments[name], path, "a:" * 100_000)
                with suppress(RegistryError):
                    service.answer(who, name, values, key=None, request_id="1")


def test_a_body_that_is_no_object_of_arguments_is_refused(server: TestServer, shared: SqlCatalog) -> None:
    server.service.catalog = shared
    headers = {"Authorization": f"Bearer {make_token(shared, 'ann')}"}
    before = rows_of(shared)
    values = [b"NaN", b'"\\ud800"', b'"\xff"', b"[" * 100_000 + b"]" * 100_000, b"9" * 10_000, b"1e999"]
    values += [b'"' + b"a" * 10_000_000 + b'"', b'"lab_digits\\u0000"', b'"lab_digits", "reference": "secret_digits"']
    bodies = [b"", b"[]", b"null", b'"find"', b"{", "{}".encode("utf-16")]
    for body in (*bodies, *(b'{"reference": ' + value + b"}" for value in values)):
        for name in ("find", "aliases.set"):
            answer = urllib3.request("POST", f"{server.url}api/v1/{name}", body=body, headers=headers)
            assert answer.status == 400, (body[:30], answer.data[:300])
            assert len(answer.data) < 2000
            assert answer.json()["code"] in ("usage", "reference_syntax"), (body[:30], answer.data[:300])
    assert rows_of(shared) == before
