"""Calls that change nothing are also answered to a GET, with an ETag."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import urllib3
from support.catalog_samples import publish
from support.service_calls import rows_of, values_of
from support.services import TestServer, make_token

from registry.catalog.service import ServiceCatalog
from registry.catalog.service.calls import CALLS, Call, kind_of
from registry.catalog.service.messages import codec
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import CatalogError
from registry.model import Role, Version

NO_JSON = "invalid JSON: Expecting value in line 1, column 1"

Get = Callable[..., urllib3.BaseHTTPResponse]


@pytest.fixture
def send(server: TestServer, shared: SqlCatalog) -> Get:
    server.service.catalog = shared
    headers = {"Authorization": f"Bearer {make_token(shared, 'ann')}"}

    def request(method: str, name: str, fields: Any = None, **more: str) -> urllib3.BaseHTTPResponse:
        return urllib3.request(method, f"{server.url}api/v1/{name}", fields=fields, headers=headers | more)

    return request


def query_of(name: str, values: dict[str, Any]) -> dict[str, str]:
    """The arguments of a call in a query, as the description says."""
    kinds = {part: codec(kind_of(CALLS[name].sent[part])) for part in values}
    return {part: value if kinds[part].is_text else json.dumps(value) for part, value in values.items()}


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call.is_get and call.policy.role != "nobody"])
def test_a_get_has_the_answer_of_the_post(name: str, send: Get, server: TestServer, shared: SqlCatalog) -> None:
    values = values_of(shared, "lab_digits")[name]
    answer = send("GET", name, query_of(name, values))
    assert answer.status == 200, answer.data
    if name not in ("now", "access.tokens"):  # which are other ones each time
        assert (
            answer.data
            == urllib3.request(
                "POST",
                f"{server.url}api/v1/{name}",
                json=values,
                headers={"Authorization": f"Bearer {make_token(shared, 'bob')}"},
            ).data
        )
        again = send("GET", name, query_of(name, values), **{"If-None-Match": answer.headers["ETag"]})
        assert (again.status, again.data, again.headers["ETag"]) == (304, b"", answer.headers["ETag"])
    assert "Authorization" in answer.headers["Vary"]


def test_only_a_digest_that_was_published_is_kept_for_ever(send: Get) -> None:
    published = {"name": "lab_digits", "config": "plain", "version": "1.1.0"}
    forever, asked = "private, max-age=31536000, immutable", "no-cache"
    assert send("GET", "published_digest", published).headers["Cache-Control"] == forever
    assert send("GET", "published_digest", published | {"version": "8.0.0"}).headers["Cache-Control"] == asked
    assert send("GET", "find", {"reference": "lab_digits:1.1.0"}).headers["Cache-Control"] == asked
    assert send("GET", "find", {"reference": "missing"}).headers["Cache-Control"] == "no-store"


def test_a_change_is_seen_by_a_client_that_asks_with_an_old_etag(send: Get, shared: SqlCatalog) -> None:
    before = send("GET", "versions", {"name": "lab_digits"})
    shared.lifecycle.deprecate(shared.find("lab_digits").reference, "old", actor="ann")
    after = send("GET", "versions", {"name": "lab_digits"}, **{"If-None-Match": before.headers["ETag"]})
    assert after.status == 200
    assert after.headers["ETag"] != before.headers["ETag"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_writes_and_streams_are_not_answered_to_a_get(method: str, send: Get, shared: SqlCatalog) -> None:
    before, arguments = rows_of(shared), values_of(shared, "lab_digits")
    for name, call in CALLS.items():
        if not call.is_get:
            answer = send(method, name, query_of(name, arguments[name]))
            assert (answer.status, answer.headers["Allow"]) == (405, "POST"), name
    assert rows_of(shared) == before


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("versions", [("name", "a"), ("name", "b")], "the query has 'name' twice"),
        (
            "versions",
            [("name", "lab_digits"), ("limit", "one")],
            f"limit: {NO_JSON}",
        ),
        ("versions", [("name", "lab_digits"), ("limit", "NaN")], "limit: NaN is not a JSON number"),
        ("versions", [("name", "lab_digits"), ("limits", "1")], "versions takes no argument 'limits'"),
        ("versions", [], "versions needs the argument 'name'"),
        ("published", [("name", "lab_digits")], "published needs the argument 'version'"),
        ("nothing", [], "no call 'nothing'"),
    ],
)
def test_a_wrong_query_says_what_is_wrong(name: str, fields: Any, message: str, send: Get) -> None:
    answer = send("GET", name, fields)
    assert answer.json()["detail"] == message
    assert answer.status == (404 if name == "nothing" else 400)


def test_long_lists_come_in_pages(
    send: Get, server: TestServer, shared: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        publish(shared, f"lab_birds_{number}:1.0.0")
        publish(shared, f"lab_birds_0:1.{number}.1")
    monkeypatch.setattr("registry.catalog.service.calls.MOST_ITEMS", 2)
    monkeypatch.setattr("registry.server.rights._PAGE", 3)
    everything = [it.dataset for it in shared.datasets()]
    expected = {
        ("datasets", "after", "lab_*"): [name for name in everything if name.startswith("lab_")],
        ("datasets", "after", "lab_birds_1 lab_birds_3"): ["lab_birds_1", "lab_birds_3"],
        ("datasets", "after", "*"): everything,
        ("versions", "below", "*"): [str(it.version) for it in shared.versions("lab_birds_0")],
    }
    assert len(everything) > len(expected["datasets", "after", "lab_*"]) > 6
    for (name, argument, pattern), items in expected.items():
        token = make_token(shared, "ann", Role.READER, *pattern.split())
        values: dict[str, Any] = {"name": "lab_birds_0"} if name == "versions" else {}
        seen: list[str] = []
        while True:
            page = json.loads(send("GET", name, values, Authorization=f"Bearer {token}").data)
            assert len(page["items"]) <= 2
            seen += [f"{it['name']}/{it['config']}".removesuffix("/None") for it in page["items"] if name == "datasets"]
            seen += [it["version"] for it in page["items"] if name == "versions"]
            if page["next"] is None:
                break
            assert page["next"] == seen[-1]
            values[argument] = page["next"]
        assert seen == items
        with ServiceCatalog(server.url, token=lambda _, text=token: text) as client:
            whole = client.datasets() if name == "datasets" else client.versions("lab_birds_0")
            assert [getattr(it, "dataset" if name == "datasets" else "version") for it in whole] == [
                it if name == "datasets" else Version.parse(it) for it in items
            ]
            for limit in (0, 1, 2, 3, 4, 99):
                assert (
                    client.datasets(limit=limit) if name == "datasets" else client.versions("lab_birds_0", limit=limit)
                ) == (whole[:limit])


def test_a_client_leaves_pages_that_do_not_end(
    server: TestServer, shared: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.service.catalog, token = shared, make_token(shared, "ann")
    monkeypatch.setattr("registry.catalog.service.catalog._MOST_ITEMS", 20)
    for items in ((), shared.datasets()[:1]):
        page = CALLS["datasets"].answers(items=items, next="lab_digits")
        monkeypatch.setattr(Call, "page_of", lambda *_, page=page: page)
        with ServiceCatalog(server.url, token=lambda _: token) as client, pytest.raises(CatalogError) as caught:
            client.datasets()
        assert caught.value.message == f"the service at {server.url} answered datasets with pages that do not end"
