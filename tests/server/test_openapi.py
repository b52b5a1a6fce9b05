"""The description of the service, which all calls and their answers keep; ``registry.conformance`` validates it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from support.service_calls import prepare, values_of
from support.services import make_token

from registry.catalog.service.calls import CALLS
from registry.catalog.sql_catalog import SqlCatalog
from registry.server.openapi import make_openapi
from registry.server.service import Service, make_service_app

DOCUMENT = json.loads(make_openapi("shardbook"))
SERVED = [name for name, call in CALLS.items() if call.policy.role != "nobody"]

OTHERS = {path for path in DOCUMENT["paths"] if path.removeprefix("/api/v1/") not in CALLS}


def keeps(value: Any, schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(value)


def test_it_has_every_call_but_those_that_only_the_service_makes() -> None:
    assert set(DOCUMENT["paths"]) == {f"/api/v1/{name}" for name in SERVED} | OTHERS
    assert set(CALLS) - set(SERVED) == {"access.authenticate", "access.note_refusal"}
    operations = [operation for path in DOCUMENT["paths"].values() for operation in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    for name in SERVED:
        methods = DOCUMENT["paths"][f"/api/v1/{name}"]
        assert ("get" in methods) == CALLS[name].is_get
        assert methods["post"]["summary"], name


def test_it_has_every_route_of_the_service_but_pages(shared: SqlCatalog) -> None:
    routes = {route.path.replace(":path", ""): route.methods for route in make_service_app(Service(shared)).routes}  # type: ignore[attr-defined]
    pages = {"/sign-in/{issuer}/", "/sign-in/", "/sign-out/", "/{path}", "/api/v1/{call}"}
    assert {path: {method.upper() for method in DOCUMENT["paths"][path]} for path in OTHERS} == {
        path: methods - {"HEAD"} for path, methods in routes.items() if path not in pages
    }
    assert len(OTHERS) == 7


@pytest.mark.parametrize("name", SERVED)
def test_a_call_and_its_answer_keep_their_schemas(name: str, shared: SqlCatalog) -> None:
    operation = DOCUMENT["paths"][f"/api/v1/{name}"]["post"]
    takes = operation["requestBody"]["content"]["application/json"]
    keeps(takes["example"], takes["schema"])
    prepare(shared, name, "lab_digits")
    values = values_of(shared, "lab_digits")[name]
    keeps(values, takes["schema"])
    service = Service(shared)
    who = service.authenticate(f"Bearer {make_token(shared, 'ann')}")
    answered = service.answer(who, name, values, key=None, request_id="1")
    content = operation["responses"]["200"]["content"]
    if isinstance(answered.body, bytes):
        keeps(json.loads(answered.body), content["application/json"]["schema"])
    else:
        assert b"".join(answered.body)[-4:] == bytes(4)
        assert list(content) == ["application/octet-stream"]


def test_the_schemas_refuse_what_a_call_refuses() -> None:
    schema = DOCUMENT["paths"]["/api/v1/versions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    for values in ({}, {"name": 1}, {"name": "digits", "limit": "1"}, {"name": "digits", "more": 1}):
        with pytest.raises(jsonschema.ValidationError):
            keeps(values, schema)
