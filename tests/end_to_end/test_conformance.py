"""The suite that others run against their service: ours passes it, and each kind of a wrong service is found."""

from __future__ import annotations

import os
import re
import sys
import zlib
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support import warm_python
from support.services import TestServer, make_token

import registry
from registry.catalog import CatalogBackend, open_catalog
from registry.catalog.outcomes import RemovalStep
from registry.errors import CatalogPermissionError, RegistryError
from registry.model import AccessToken, Role
from registry.server.config import ServiceConfig
from registry.server.data import open_served_data
from registry.server.rights import GuardedCatalog

App = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]
Wrap = Callable[[App], App]


class Proxy:
    """Something in front of the service; a test says how it changes requests and answers."""

    def __init__(self) -> None:
        self.wrap: Wrap = lambda app: app

    def __call__(self, app: App) -> App:
        async def answer(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
            await self.wrap(app)(scope, receive, send)

        return answer


@pytest.fixture(scope="module")
def proxy() -> Proxy:
    return Proxy()


@pytest.fixture(scope="module")
def server(proxy: Proxy) -> Iterator[TestServer]:
    started = TestServer(wrap=proxy)
    yield started
    started.stop()


def offer(server: TestServer, catalog: CatalogBackend, data_dir: str | None = None) -> None:
    server.service.catalog = catalog  # type: ignore[assignment]  # it is in a database
    server.service.data = open_served_data(catalog, data_dir, server.url)


@pytest.fixture
def home(tmp_path: Path, server: TestServer, proxy: Proxy) -> Iterator[CatalogBackend]:
    """The catalog behind the service, which has the files of a folder."""
    with registry.connect(tmp_path / "server" / "catalog.db", create=True) as opened:
        offer(server, opened.backend)
        yield opened.backend
        server.service.data = None
        proxy.wrap = lambda app: app


def conformance(url: str, folder: Path, *options: str, token: str = "") -> tuple[int, str]:
    """The exit code and the output of the suite, as somebody else runs it."""
    folder.mkdir(exist_ok=True)
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("PYTEST", "REGISTRY"))}
    program = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short", "-rs"]
    ran = warm_python.run(
        [*program, "--pyargs", "registry.conformance", "--url", url, *options],
        cwd=folder,
        env=environment | {"REGISTRY_TOKEN": token, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


def counts(output: str) -> dict[str, int]:
    """How many checks passed, failed and were skipped."""
    summary = output.strip().splitlines()[-1]
    return {word: int(number) for number, word in re.findall(r"([0-9]+) (passed|failed|skipped|error)", summary)}


def test_the_service_passes_and_nothing_of_the_run_stays(
    server: TestServer, home: CatalogBackend, tmp_path: Path
) -> None:
    code, output = conformance(server.url, tmp_path / "run", token=make_token(home, "root"))
    assert code == 0, output
    passed = counts(output)
    assert passed.keys() == {"passed"}, output
    assert passed["passed"] > 250
    assert {str(each.status) for each in home.datasets()} == {"dropped"}
    steps = [removal.step for removal in home.lifecycle.removals()]
    assert steps == [RemovalStep.BEGUN] * 4  # `registry gc` of the server ends them
    made = [token for token in home.access.tokens() if token.name.startswith("conformance_")]
    assert len(made) == 2 * len(Role) + 3
    assert all(token.revoked_at is not None for token in made)


@pytest.mark.long
@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
def test_the_service_passes_on_postgresql(
    server: TestServer, home: CatalogBackend, catalog_url: str, tmp_path: Path
) -> None:
    with open_catalog(catalog_url) as catalog:
        offer(server, catalog, str(tmp_path / "data"))
        code, output = conformance(server.url, tmp_path / "run", token=make_token(catalog, "root"))
    assert (code, counts(output).keys()) == (0, {"passed"}), output


def test_without_an_admin_only_reading_is_checked(home: CatalogBackend, server: TestServer, tmp_path: Path) -> None:
    before = home.log.num_rows()
    for token, options in ((make_token(home, "ann", Role.READER), ()), (make_token(home, "root"), ("--read-only",))):
        code, output = conformance(server.url, tmp_path / "run", *options, token=token)
        assert code == 0, output
        assert counts(output).keys() == {"passed", "skipped"}, output
        assert "needs an admin token: --admin-token" in output or "the run is --read-only" in output
    assert home.log.num_rows() == before


@pytest.mark.long
def test_a_service_that_everybody_may_read_passes(tmp_path: Path) -> None:
    limits = {"requests_per_minute": 10**6, "failed_logins_per_minute": 10**6}
    server = TestServer(ServiceConfig(anonymous_reads=True, **limits))
    with registry.connect(tmp_path / "catalog.db", create=True) as opened:
        offer(server, opened.backend)
        for token in ("", make_token(opened.backend, "root")):
            code, output = conformance(server.url, tmp_path / "run", token=token)
            assert code == 0, output
    server.stop()


def test_it_needs_a_url(tmp_path: Path) -> None:
    code, output = conformance("", tmp_path / "run", "-k", "site_json")
    assert code != 0
    assert "--url is missing: the URL of the service" in output


def changed_request(change: Callable[[MutableMapping[str, Any]], None]) -> Wrap:
    """A proxy that changes the path or the headers of requests."""

    def wrap(app: App) -> App:
        async def answer(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
            scope = {**scope, "headers": [*scope["headers"]]}
            change(scope)
            await app(scope, receive, send)

        return answer

    return wrap


def changed_answer(change: Callable[[str, int, dict[str, str], bytes], tuple[int, dict[str, str], bytes]]) -> Wrap:
    """A proxy that reads an answer to its end, and changes its status, its headers or its body."""

    def wrap(app: App) -> App:
        async def answer(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
            start: dict[str, Any] = {}
            body = bytearray()

            async def keep(message: dict[str, Any]) -> None:
                start.update(message if message["type"] == "http.response.start" else {})
                body.extend(message.get("body", b""))

            coded = (b"accept-encoding", b"identity")
            await app(
                {**scope, "headers": [each for each in scope["headers"] if each[0] != coded[0]] + [coded]},
                receive,
                keep,
            )
            headers = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
            is_head = scope["method"] == "HEAD"
            status, headers, content = change(scope["path"], start["status"], headers, bytes(body))
            if not is_head:
                headers["content-length"] = str(len(content))
            lines = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
            await send({"type": "http.response.start", "status": status, "headers": lines})
            await send({"type": "http.response.body", "body": b"" if is_head else content})

        return answer

    return wrap


def loses_request(name: bytes) -> Wrap:
    def change(scope: MutableMapping[str, Any]) -> None:
        scope["headers"] = [each for each in scope["headers"] if each[0] != name]

    return changed_request(change)


def loses_answer(name: str) -> Wrap:
    return changed_answer(
        lambda _, status, headers, body: (status, {k: v for k, v in headers.items() if k != name}, body)
    )


def replaces(path: str, old: str, new: bytes) -> Wrap:
    """Replaces what a pattern matches in the bodies of answers."""
    return changed_answer(
        lambda at, status, headers, body: (
            status,
            headers,
            re.sub(old.encode(), new, body, flags=re.DOTALL) if re.fullmatch(path, at) else body,
        )
    )


def rewrites_the_log() -> Wrap:
    """An event has another hash each time."""
    numbers = count()

    def change(path: str, status: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        new = b'"hash": "%04d' % next(numbers)
        return status, headers, re.sub(b'"hash": "....', new, body) if path.endswith("/log.page") else body

    return changed_answer(change)


def for_errors(status: int, kind: str) -> Wrap:
    """Answers errors with a page of its own."""
    return changed_answer(
        lambda _, was, headers, body: (
            (was, headers, body) if was < 400 else (status or was, {**headers, "content-type": kind}, b"x")
        )
    )


def merges_slashes(scope: MutableMapping[str, Any]) -> None:
    scope["path"] = re.sub("//+", "/", scope["path"])


def names_keys_anew(scope: MutableMapping[str, Any]) -> None:
    """A key for each path."""
    path = zlib.crc32(scope["path"].encode() + dict(scope["headers"]).get(b"content-length", b""))
    scope["headers"] = [
        (name, value + b"%d" % path if name == b"idempotency-key" else value) for name, value in scope["headers"]
    ]


PROXIES: dict[str, tuple[Wrap, str]] = {
    "loses keys": (loses_request(b"idempotency-key"), "repeated_has_its_first"),
    "names keys anew": (changed_request(names_keys_anew), "key_is_for_one_request"),
    "loses conditions": (loses_request(b"if-none-match"), "conditions_count"),
    "loses ranges": (loses_request(b"range"), "ranges_and_conditions"),
    "loses conditions of ranges": (loses_request(b"if-range"), "ranges_and_conditions"),
    "loses ids": (loses_request(b"x-request-id"), "request_has_an_id"),
    "loses codings": (loses_request(b"content-encoding"), "content_coding"),
    "loses etag": (loses_answer("etag"), "etag"),
    "loses vary": (loses_answer("vary"), "etag"),
    "loses digest": (loses_answer("repr-digest"), "has_its_digest"),
    "loses policy": (loses_answer("content-security-policy"), "headers_for_browsers"),
    "loses allow": (loses_answer("allow"), "problem_document"),
    "loses challenge": (loses_answer("www-authenticate"), "token_that_does_not_count"),
    "merges slashes": (changed_request(merges_slashes), "problem_document"),
    "answers 500": (for_errors(500, "text/plain"), "problem_document"),
    "has pages of its own": (for_errors(0, "text/html"), "problem_document"),
    "has another api": (replaces("/site.json", r"\[1\]", b"[2]"), "site_json"),
    "lacks a call": (replaces("/api/v1/openapi.json", '"/api/v1/lifecycle.yank"', b'"/api/v1/yank"'), "every_call"),
    "has no openapi": (replaces("/api/v1/openapi.json", '"responses"', b'"answers"'), "valid_openapi"),
    "has other results": (replaces("/api/v1/datasets", r"\A.*", b"{}"), "result_of_the_post"),
    "cuts streams": (replaces("/api/v1/snapshot", r"\0{4}\Z", b""), "stream_is_complete"),
    "changes files": (replaces("/api/v1/data/.*-of-00001", r"\A.", b"!"), "has_its_digest"),
    "rewrites the log": (rewrites_the_log(), "log_goes_on"),
}


@pytest.mark.parametrize("fault", PROXIES)
def test_a_proxy_that_changes_requests_or_answers_is_found(
    fault: str, home: CatalogBackend, server: TestServer, proxy: Proxy, tmp_path: Path
) -> None:
    proxy.wrap, check = PROXIES[fault]
    require_found(home, server, check, tmp_path)


def require_found(home: CatalogBackend, server: TestServer, check: str, folder: Path) -> None:
    token = make_token(home, "root")
    code, output = conformance(server.url, folder / "run", "-x", "-k", check, token=token)
    assert code == 1, output
    assert re.search(r"^E +AssertionError: |^E +Failed: DID NOT", output, flags=re.MULTILINE), output


def tell(guarded: GuardedCatalog, name: str) -> RegistryError:
    return CatalogPermissionError(f"{name} has {len(guarded._catalog.published(name, None, '1.0.0') or ())} versions")


SERVICES: dict[str, tuple[Any, str, Any, str]] = {
    "ignores revocation": (AccessToken, "is_valid", lambda *_: True, "token_that_does_not_count or at_once"),
    "forgets roles": (GuardedCatalog, "require_role", lambda *_: None, "call_needs_its_role"),
    "leaks a name": (GuardedCatalog, "_unseen", tell, "dataset_of_others"),
    "lists what others have": (GuardedCatalog, "_is_covered", lambda *_: True, "list_lacks"),
}


@pytest.mark.parametrize("fault", SERVICES)
def test_a_service_that_forgets_rights_is_found(
    fault: str, home: CatalogBackend, server: TestServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    owner, name, function, check = SERVICES[fault]
    monkeypatch.setattr(owner, name, function)
    require_found(home, server, check, tmp_path)
