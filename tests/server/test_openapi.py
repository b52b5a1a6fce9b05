"""The description of the service: a valid OpenAPI document, which all calls and their answers keep."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import urllib3
from openapi_spec_validator import validate
from support.service_calls import prepare, values_of
from support.services import TestServer, make_token

from registry.catalog.service.calls import CALLS
from registry.catalog.sql_catalog import SqlCatalog
from registry.server.openapi import make_openapi
from registry.server.service import Service

DOCUMENT = json.loads(make_openapi("shardbook"))
SERVED = [name for name, call in CALLS.items() if call.policy.role != "nobody"]


def keeps(value: Any, schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(value)


def test_the_description_is_valid() -> None:
    validate(DOCUMENT)


def test_it_has_every_call_but_those_that_only_the_service_makes() -> None:
    assert set(DOCUMENT["paths"]) == {f"/api/v1/{name}" for name in SERVED}
    assert set(CALLS) - set(SERVED) == {"access.authenticate", "access.note_refusal"}
    operations = [operation for path in DOCUMENT["paths"].values() for operation in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    for path, methods in DOCUMENT["paths"].items():
        assert ("get" in methods) == CALLS[path.removeprefix("/api/v1/")].is_get
        assert methods["post"]["summary"], path


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


def test_it_is_served_to_everybody(server: TestServer, shared: SqlCatalog) -> None:
    server.service.catalog = shared
    url = f"{server.url}api/v1/openapi.json"
    answer = urllib3.request("GET", url)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json()["paths"].keys() == DOCUMENT["paths"].keys()
    again = urllib3.request("GET", url, headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status, again.data) == (304, b"")


def test_problems_keep_their_schema(server: TestServer, shared: SqlCatalog) -> None:
    server.service.catalog = shared
    token = make_token(shared, "ann")
    schema = DOCUMENT["components"]["schemas"]["Problem"]
    for name, values, status in (
        ("find", {"reference": "missing"}, 404),
        ("find", {"reference": "a b"}, 400),
        ("find", {}, 400),
        ("nothing", {}, 404),
        ("lifecycle.promote", {"reference": "lab_digits:3.0.0"}, 404),
    ):
        headers = {"Authorization": f"Bearer {token}"}
        answer = urllib3.request("POST", f"{server.url}api/v1/{name}", json=values, headers=headers)
        assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json"), answer.data
        keeps(answer.json(), schema)
        assert answer.json()["status"] == status
    answer = urllib3.request("POST", f"{server.url}api/v1/find", json={"reference": "lab_digits"})
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    keeps(answer.json(), schema)
