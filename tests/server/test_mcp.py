"""The tools for agents below a service: who may call them, and that they show nothing that a token does not cover."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pytest
import urllib3
from support.agents import calling, calling_each, over_http, over_stdio
from support.browse_process import Serve
from support.services import TestServer, make_token

import registry
from registry.catalog import open_catalog
from registry.catalog.sql_catalog import SqlCatalog
from registry.cli.mcp.answers import CapturedOutput
from registry.cli.mcp.protocol import agent_routes
from registry.cli.mcp.tools import TOOLS, ToolSession, Turns
from registry.errors import CatalogUnavailableError
from registry.model import Role
from registry.server.config import ServiceConfig

HIDDEN = "kingfisher"
PUBLIC_URL = "https://catalog.example/"
EVERY_TOOL: dict[str, dict[str, Any]] = {
    "list": {},
    "search": {"text": HIDDEN},
    "show": {"reference": "secret_birds:1.0.0"},
    "versions": {"dataset": "secret_birds"},
    "diff": {"old": "lab_birds:1.0.0", "new": "secret_birds:1.0.0"},
    "statistics": {"reference": "secret_birds"},
    "records": {"reference": "secret_birds"},
    "resolve": {"reference": "secret_birds", "split": "train"},
    "sql": {"sql": 'SELECT a.name FROM "lab_birds[train]" a, "secret_birds[train]" b'},
    "pin": {"reference": "secret_birds", "splits": ["train"]},
    "explain_error": {"code": "not_found"},
}
"""Each tool, asked for what a token may not cover, if it takes a name."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    path = tmp_path_factory.mktemp("hidden-place") / "catalog.db"
    with registry.connect(path, create=True) as catalog:
        for name, words in (("lab_birds", ["robin", "wren"]), ("secret_birds", [HIDDEN, "heron"])):
            catalog.add({"name": words, "size": [1, 2]}, name=name, description=f"Birds such as {words[0]}.")
        catalog.add({"name": [HIDDEN, "heron", "owl"], "size": [1, 2, 3]}, name="secret_birds")
        catalog.aliases.set("paper", "secret_birds:1.0.0")
    with open_catalog(path) as backend:
        yield cast("SqlCatalog", backend)


@pytest.fixture(scope="module")
def agents(lab: SqlCatalog) -> Iterator[TestServer]:
    config = ServiceConfig(mcp=True, requests_per_minute=0, failed_logins_per_minute=0, public_url=PUBLIC_URL)
    server = TestServer(config, agent_routes)
    server.service.catalog = lab
    yield server
    server.stop()


@pytest.fixture(scope="module")
def ann(lab: SqlCatalog) -> str:
    return make_token(lab, "ann", Role.READER, "lab_*")


def posted(server: TestServer, token: str | None, method: str = "POST", **headers: str) -> Any:
    """The answer to one request of the newest revision."""
    fields = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    fields |= {} if token is None else {"Authorization": f"Bearer {token}"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    return urllib3.request(method, f"{server.url}mcp", headers=fields, body=json.dumps(body), retries=False)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_each_tool_answers_the_holder_of_a_token(agents: TestServer, lab: SqlCatalog, mode: str) -> None:
    token = make_token(lab, "root", Role.READER)
    calls = {name: (name, arguments) for name, arguments in EVERY_TOOL.items()}
    assert EVERY_TOOL.keys() == TOOLS.keys()
    results = over_http(calling_each(calls), agents.url, token, mode=mode)
    assert {name: result.structured_content for name, result in results.items() if result.is_error} == {}
    documents = {name: result.structured_content for name, result in results.items()}
    assert {document["untrusted"] for document in documents.values()} == {True}
    assert [hit["dataset"] for hit in documents["search"]["data"]] == ["secret_birds"]
    assert documents["diff"]["schema"] == "registry.diff/1"
    assert len(documents["sql"]["data"]["rows"]) == 6
    assert documents["pin"]["data"]["text"].startswith("# The exact records")


def test_a_restricted_token_sees_no_other_dataset_through_any_tool(
    agents: TestServer, ann: str, lab: SqlCatalog, tmp_path: Path
) -> None:
    absent = {
        name: (name, json.loads(json.dumps(arguments).replace("secret_birds", "no_birds").replace(HIDDEN, "nothing")))
        for name, arguments in EVERY_TOOL.items()
    }
    asked = over_http(calling_each({name: (name, it) for name, it in EVERY_TOOL.items()}), agents.url, ann)
    unknown = over_http(calling_each(absent), agents.url, ann)
    for name, result in asked.items():
        text = json.dumps(result.structured_content) + result.content[0].text
        assert HIDDEN not in text
        assert "heron" not in text
        expected = json.dumps(unknown[name].structured_content).replace("no_birds", "secret_birds")
        if name not in ("explain_error", "list"):
            assert json.dumps(result.structured_content) == expected  # as if it did not exist
    assert [row["dataset"] for row in asked["list"].structured_content["data"]] == ["lab_birds"]
    refused = [name for name, result in asked.items() if result.is_error]
    assert refused == ["show", "versions", "diff", "statistics", "records", "resolve", "sql", "pin"]


def test_no_token_a_revoked_one_and_an_expired_one_are_refused(agents: TestServer, lab: SqlCatalog) -> None:
    revoked = make_token(lab, "bob", Role.ADMIN)
    assert posted(agents, revoked).status == 200
    lab.access.revoke_token(revoked.split("_")[1], actor="root")
    for token in (None, "shb_nonsense", revoked):
        answer = posted(agents, token)
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert answer.json()["code"] == "catalog_refused"


def test_pages_of_web_sites_and_other_methods_are_refused(agents: TestServer, ann: str) -> None:
    assert posted(agents, ann, Origin=PUBLIC_URL.rstrip("/")).status == 200
    for origin in ("https://evil.example", "null", agents.url.rstrip("/"), "http://catalog.example"):
        answer = posted(agents, ann, Origin=origin)
        assert (answer.status, answer.json()["code"]) == (403, "catalog_permission_denied")
    for method in ("GET", "DELETE", "PUT"):
        answer = posted(agents, ann, method)
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")


def test_the_tools_are_off_unless_the_setting_is_on(lab: SqlCatalog, ann: str) -> None:
    assert not ServiceConfig().mcp
    server = TestServer()
    server.service.catalog = lab
    try:
        assert posted(server, ann).status in (303, 403, 404, 405)
    finally:
        server.stop()


def test_no_answer_has_a_place_of_the_server(agents: TestServer, lab: SqlCatalog) -> None:
    token = make_token(lab, "admin", Role.ADMIN)
    calls = {name: (name, arguments) for name, arguments in EVERY_TOOL.items()}
    settings = (
        *("SELECT current_setting('memory_limit')", "FROM duckdb_settings()", "FROM duckdb_extensions()"),
        *("SELECT * FROM system.main.Duckdb_Settings()", "FROM query('FROM duckdb_settings()')"),
        *("WITH a AS (FROM duckdb_settings()) FROM a", "SELECT 1 UNION ALL SELECT count(*) FROM pragma_version()"),
        "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('FROM duckdb_settings()'))",
        *("FROM histogram_values('pg_settings', 'setting')", "FROM histogram('pg_settings', 'setting', [''])"),
        "SELECT json_serialize_plan('SELECT current_setting(''temp_directory'')', optimize := true)",
        "WITH pg_settings AS (SELECT 1) FROM pg_catalog.pg_settings",
        "WITH pg_settings AS (SELECT 1) FROM (SUMMARIZE system.pg_catalog.pg_settings)",
        "FROM pg_settings, (WITH pg_settings AS (SELECT 1 AS a) FROM pg_settings)",
        "FROM PG_settings, (WITH PG_settings AS (SELECT 1 AS a) FROM PG_settings)",
    )
    calls |= {sql: ("sql", {"sql": sql}) for sql in settings}
    results = over_http(calling_each(calls), agents.url, token)
    messages = {results[sql].structured_content["error"]["message"] for sql in settings}
    assert all(message.startswith("a query may not ") for message in messages), messages
    text = "".join(result.content[0].text for result in results.values())
    assert "hidden-place" not in text
    assert "folder" not in results["show"].structured_content["data"]


def test_a_damaged_file_is_an_error_without_its_path(
    lab: SqlCatalog, agents: TestServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "damaged-place" / "catalog.db"
    path.parent.mkdir()
    with registry.connect(path, create=True) as catalog:
        catalog.add({"x": [1, 2, 3]}, name="numbers")
        (shard,) = Path(catalog.dataset("numbers").local_folder or "").glob("*tfrecord*")
    shard.chmod(0o644)
    shard.write_bytes(shard.read_bytes()[:-9])
    with open_catalog(path) as backend, caplog.at_level(logging.ERROR, logger="registry.cli.mcp"):
        agents.service.catalog = cast("SqlCatalog", backend)
        try:
            token = make_token(backend, "ann", Role.READER)
            result = over_http(calling("records", reference="numbers"), agents.url, token)
        finally:
            agents.service.catalog = lab
    assert result.is_error
    assert result.structured_content["error"]["message"] == "the server could not read the data for this tool"
    assert "damaged-place" not in result.content[0].text
    assert "damaged-place" in caplog.text  # the admin sees the reason


def test_readers_cannot_have_the_server_read_much(
    agents: TestServer, lab: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("registry.cli.mcp.protocol._READERS_BYTES", 10)
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "sql": ("sql", {"sql": 'SELECT * FROM "lab_birds[train]"'}),
        "where": ("records", {"reference": "lab_birds", "where": "size > 1"}),
        "pin": ("pin", {"reference": "lab_birds", "splits": ["train"]}),
    }
    refused = over_http(calling_each(calls), agents.url, make_token(lab, "ann", Role.READER))
    for result in refused.values():
        assert result.structured_content["error"]["message"].startswith("the server would have to read ")
        assert result.structured_content["error"]["hint"].endswith("registry mcp --catalog URL")
    diff = over_http(
        calling("diff", old="secret_birds:1.0.0", new="secret_birds:2.0.0"),
        agents.url,
        make_token(lab, "bob", Role.READER),
    )
    assert not diff.is_error
    answered = over_http(calling_each(calls), agents.url, make_token(lab, "eve", Role.PUBLISHER))
    assert not any(result.is_error for result in answered.values())


def test_limits_and_the_log_of_the_service_apply(lab: SqlCatalog, ann: str, caplog: pytest.LogCaptureFixture) -> None:
    server = TestServer(ServiceConfig(mcp=True, requests_per_minute=4, failed_logins_per_minute=0), agent_routes)
    server.service.catalog = lab
    try:
        with caplog.at_level(logging.INFO, logger="registry.server.gate"):
            result = over_http(calling("show", reference="lab_birds"), server.url, ann, mode="2026-07-28")
            statuses = [posted(server, ann).status for _ in range(6)]
    finally:
        server.stop()
    assert not result.is_error
    assert statuses[-1] == 429
    fields: list[Any] = [getattr(record, "fields", {}) for record in caplog.records]
    assert ("mcp.show", "ann", 200) in {
        (line.get("call"), line.get("principal"), line.get("status")) for line in fields
    }


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE a.range % 7 = b.range % 11",
        "SELECT levenshtein(repeat('a', 3000000), repeat('b', 3000000))",  # DuckDB cannot interrupt it
    ],
)
def test_a_query_that_does_not_end_is_stopped_and_others_go_on(
    agents: TestServer, lab: SqlCatalog, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    token = make_token(lab, "ann", Role.READER)
    assert not over_http(calling("sql", sql="SELECT 1"), agents.url, token).is_error  # a worker is there
    monkeypatch.setattr("registry.cli.mcp.protocol._SERVICE_SECONDS", 1.0)
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(over_http(calling("sql", sql=sql), agents.url, token)))
    thread.start()
    time.sleep(0.3)
    quick = over_http(calling("list"), agents.url, token)
    thread.join()
    assert not quick.is_error
    assert results[0].structured_content["error"]["message"] == "the tool was stopped after 1 seconds"
    monkeypatch.undo()
    assert not over_http(calling("sql", sql='FROM "lab_birds[train]"'), agents.url, token).is_error


def test_a_body_that_is_no_call_is_refused(agents: TestServer, ann: str) -> None:
    for body in (b"", b"{", b"[]", b'{"jsonrpc": "2.0"}', b"\xff" * 100, b"{" * 100_000):
        answer = urllib3.request(
            "POST",
            f"{agents.url}mcp",
            headers={
                "Authorization": f"Bearer {ann}",
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
            },
            body=body,
            retries=False,
        )
        assert 400 <= answer.status < 500
        assert b"Traceback" not in answer.data
    long = urllib3.request(
        "POST",
        f"{agents.url}mcp",
        headers={"Authorization": f"Bearer {ann}", "Content-Type": "application/json"},
        body=b" " * 2_000_000,
        retries=False,
    )
    assert long.status == 413


def test_one_token_does_not_keep_the_others_waiting() -> None:
    turns = Turns()

    def take(holder: str, seconds: float = 0.01) -> AbstractContextManager[None]:
        return turns.take(ToolSession(url=None, data_dir=None, out=CapturedOutput(seconds=seconds), holder=holder))

    with take("ann"):
        with pytest.raises(CatalogUnavailableError, match="other tools are running"), take("ann"):
            pass
        with take("bob"):
            with pytest.raises(CatalogUnavailableError), take("eve"):
                pass
            with pytest.raises(CatalogUnavailableError), take(""):
                pass
        with take("eve"):
            pass
    with take(""), take(""):  # the owner
        pass


def test_one_token_holds_one_thread_that_waits() -> None:
    turns, refused = Turns(), list[float]()

    def take() -> None:
        before = time.monotonic()
        try:
            with turns.take(ToolSession(url=None, data_dir=None, out=CapturedOutput(seconds=3), holder="ann")):
                pass
        except CatalogUnavailableError:
            refused.append(time.monotonic() - before)

    with turns.take(ToolSession(url=None, data_dir=None, out=CapturedOutput(seconds=3), holder="ann")):
        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 30
        while len(refused) < 7 and time.monotonic() < end:
            time.sleep(0.01)
    for thread in threads:
        thread.join()
    assert len(refused) == 7  # the one that waited had its turn
    assert max(refused) < 3


def test_a_client_over_stdio_has_the_rights_of_its_token(agents: TestServer, ann: str) -> None:
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "list": ("list", {}),
        "records": ("records", {"reference": "secret_birds"}),
    }
    results = over_stdio(calling_each(calls), agents.url, REGISTRY_TOKEN=ann)
    assert [row["dataset"] for row in results["list"].structured_content["data"]] == ["lab_birds"]
    assert results["records"].structured_content["error"]["code"] == "dataset_not_found"
    assert not any(ann in result.content[0].text for result in results.values())


def test_the_workers_of_registry_serve_offer_the_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.add({"x": [1, 2]}, name="numbers")
    monkeypatch.setenv("REGISTRY_SERVE_MCP", "true")
    with Serve(tmp_path / "catalog.db", "--init") as server:
        calls: dict[str, tuple[str, dict[str, Any]]] = {
            "records": ("records", {"reference": "numbers"}),
            "sql": ("sql", {"sql": 'SELECT sum(x) AS total FROM "numbers[train]"'}),
        }
        results = over_http(calling_each(calls), server.url, server.token)
        code, log = server.end(signal.SIGTERM)
    assert results["records"].structured_content["data"]["num_examples"] == 2
    assert results["sql"].structured_content["data"]["rows"] == [{"total": 3}]
    assert code == 0
    assert '"call": "mcp.sql"' in log
    assert server.token not in log
