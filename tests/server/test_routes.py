"""Who may use which route: each route with each method, each role and each state of a token, over HTTP.

``test_rights.py`` has the same table for the calls of the protocol, which share one route.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import urllib3
from support.services import TestServer

from registry.catalog import DataDirectory
from registry.catalog.sql_catalog import SqlCatalog
from registry.cli.mcp.protocol import agent_routes
from registry.model import Role, new_secret
from registry.server.data import ServedData
from registry.server.service import make_service_app
from registry.storage import LocalStore

TOOLS_LIST = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
FILE = "lab_digits/plain/1.1.0/features.json"
DATA = "/api/v1/data/{path:path}"

VALID = ("covering all", "covering it", "covering others", "exchanged")
OPEN = {"none": 200, "invalid": 200, "valid": 200}
CALL = {"none": 401, "invalid": 401, "valid": 200}

ROUTES: dict[tuple[str, str], tuple[str, bytes | None, dict[str, int]]] = {
    ("GET", "/site.json"): ("site.json", None, OPEN),
    ("GET", "/health"): ("health", None, OPEN),
    ("GET", "/ready"): ("ready", None, OPEN),
    ("GET", "/metrics"): ("metrics", None, CALL | {"valid": 403, "admin": 200}),
    ("GET", "/api/v1/openapi.json"): ("api/v1/openapi.json", None, OPEN),
    ("GET", "/api/v1/sign-in"): ("api/v1/sign-in", None, OPEN),
    ("POST", "/api/v1/sign-in"): ("api/v1/sign-in", b"{}", dict.fromkeys(OPEN, 400)),
    ("GET", "/api/v1/{call}"): ("api/v1/now", None, CALL),
    ("POST", "/api/v1/{call}"): ("api/v1/now", b"{}", CALL),
    ("GET", DATA): (f"api/v1/data/{FILE}", None, CALL | {"covering others": 404}),
    ("PUT", DATA): (f"api/v1/data/{FILE}", b"{}", CALL | {"valid": 409, "reader": 403}),
    ("POST", DATA): (f"api/v1/data/{FILE}?num_bytes=2&sha256={'0' * 64}", b"", CALL | {"valid": 409, "reader": 403}),
    ("DELETE", DATA): (f"api/v1/data/{FILE}", None, CALL | {"valid": 409, "reader": 403}),
    ("POST", "/mcp"): ("mcp", TOOLS_LIST, CALL),
    # Pages know people by the cookie of a session only: see test_pages.py and test_sign_in.py.
    ("GET", "/sign-in/{issuer}/"): ("sign-in/absent/", None, dict.fromkeys(OPEN, 404)),
    ("POST", "/sign-in/"): ("sign-in/", b"", dict.fromkeys(OPEN, 403)),
    ("POST", "/sign-out/"): ("sign-out/", b"", dict.fromkeys(OPEN, 403)),
    ("GET", "/{path:path}"): ("lab_digits/", None, dict.fromkeys(OPEN, 303)),
    ("POST", "/{path:path}"): ("lab_digits/", b"", dict.fromkeys(OPEN, 303)),
}
"""A request for each route and method, and its status: by the role and the state of the token, or by whether there is a
valid one."""


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    started = TestServer(more_routes=agent_routes)
    data = tmp_path_factory.mktemp("data")
    file = data / FILE
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    started.service.data = ServedData(LocalStore(data), DataDirectory(recorded="data", place=str(data)), started.url)
    yield started
    started.stop()


def test_the_table_has_a_line_for_each_route(own_server: TestServer) -> None:
    routes: Any = make_service_app(own_server.service, more_routes=agent_routes).routes
    methods = {(method, route.path) for route in routes for method in route.methods or {"POST"} if method != "HEAD"}
    assert methods == ROUTES.keys()


@pytest.mark.parametrize("line", ROUTES, ids=" ".join)
def test_each_route_answers_each_token_as_its_line_says(
    line: tuple[str, str], own_server: TestServer, shared: SqlCatalog, tokens: Mapping[tuple[str, str], str]
) -> None:
    own_server.service.catalog = shared
    path, body, statuses = ROUTES[line]
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    if line[0] == "PUT":
        headers["Repr-Digest"] = "sha-256=:RBNvo1WzZ4oRRq0W9+hknpT7T8If536DEMBg9hyq/4o=:"
    cells: dict[str, tuple[str | None, int]] = {
        "no token": (None, statuses["none"]),
        "malformed": ("password", statuses["invalid"]),
        "of another catalog": (new_secret()[1], statuses["invalid"]),
    }
    for (role, state), token in tokens.items():
        status = statuses["invalid"]
        if state in VALID:
            status = statuses.get(role, statuses.get(state, statuses["valid"]))
        cells[f"{role}, {state}"] = token, status
    assert len(cells) == 3 + len(Role) * (len(VALID) + 7)
    answers = {}
    for cell, (token, _) in cells.items():
        sent = headers if token is None else {**headers, "Authorization": f"Bearer {token}"}
        answer = urllib3.request(line[0], own_server.url + path, body=body, headers=sent, redirect=False, retries=False)
        answers[cell] = answer.status
    assert answers == {cell: status for cell, (_, status) in cells.items()}
