"""What a service does with clients that ask too much: every answer is a problem document, and none is a status 500."""

from __future__ import annotations

import json
import logging
import os
import re
import select
import socket
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.browse_process import Answer, read_answer
from support.catalog_samples import publish, sample
from support.services import make_token

from registry.catalog import Holder
from registry.catalog.sql_catalog import SqlCatalog, open_sql_catalog
from registry.errors import CatalogUnavailableError
from registry.model import Reference, Role, new_secret
from registry.server import heads
from registry.server.browse import listen
from registry.server.config import ServiceConfig
from registry.server.gate import Buckets
from registry.server.serve import make_settings
from registry.server.service import Answered, Service, make_service_app


class LimitedServer:
    """A service over a new catalog in a thread of this process; ``token`` is that of an admin."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        import uvicorn

        self.catalog: SqlCatalog = open_sql_catalog(folder / "catalog.db", create=True)
        self.token = make_token(self.catalog, "ann")
        self.service = Service(self.catalog, anonymous=settings.get("anonymous_reads", False))
        config = ServiceConfig(**settings)
        self._listener = listen(0)
        self.place = self._listener.getsockname()
        self.url = f"http://127.0.0.1:{self.place[1]}/"
        app = make_service_app(self.service, config, folder=folder)
        self._server = uvicorn.Server(make_settings(config, app, log_config=None))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()
        self.catalog.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.place, timeout=60)

    def send(self, *lines: str, body: bytes = b"", path: str = "/api/v1/now", method: str = "POST") -> socket.socket:
        """A connection over which a request was sent. The lines are headers; ``Content-Length`` is that of the body."""
        names = " ".join(lines).lower()
        head = [f"{method} {path} HTTP/1.1", "Host: test", *lines]
        head += [] if "authorization" in names else [f"Authorization: Bearer {self.token}"]
        head += [] if "content-length" in names or "chunked" in names else [f"Content-Length: {len(body)}"]
        connection = self.connect()
        connection.sendall("\r\n".join([*head, "", ""]).encode("latin-1") + body)
        return connection

    def ask(self, *lines: str, **request: Any) -> Answer:
        with self.send(*lines, **request) as connection:
            return read_answer(connection)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., LimitedServer]]:
    with ExitStack() as stack:

        def start(**settings: Any) -> LimitedServer:
            server = LimitedServer(tmp_path, **settings)
            stack.callback(server.stop)
            return server

        yield start


def problem(answer: Answer) -> tuple[int, str]:
    """The status and the detail of a problem document."""
    assert answer.headers["content-type"] == "application/problem+json"
    value = json.loads(answer.body)
    assert value["status"] == answer.status
    return answer.status, value["detail"]


@contextmanager
def access_log() -> Iterator[list[dict[str, Any]]]:
    """The fields of the lines about requests."""
    lines: list[dict[str, Any]] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(getattr(record, "fields", {"message": record.getMessage()}))

    logger, handler = logging.getLogger("registry.server"), Keep()
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def wait_for(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + 60
    while not (result := condition()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return result


def test_an_answer_has_the_id_of_its_request_and_the_headers_of_safety(serve: Callable[..., LimitedServer]) -> None:
    server = serve()
    answer = server.ask("X-Request-Id: build-7.a_B")
    assert (answer.status, answer.headers["x-request-id"]) == (200, "build-7.a_B")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert answer.headers["cache-control"] == "no-store"
    assert "server" not in answer.headers
    for text in ("a b", "a" * 65, '"', "\xe9"):
        answer = server.ask(f"X-Request-Id: {text}", path="/api/v1/nothing")
        assert re.fullmatch("[0-9a-f]{16}", answer.headers["x-request-id"])
        assert json.loads(answer.body)["request_id"] == answer.headers["x-request-id"]


def test_a_request_is_a_line_of_the_log_without_its_arguments(serve: Callable[..., LimitedServer]) -> None:
    server = serve()
    with access_log() as lines:
        server.ask("X-Request-Id: first", body=b'{"name": "secret_name"}', path="/api/v1/versions")
        server.ask("X-Request-Id: second", "Authorization: Bearer wrong")
        server.ask("X-Request-Id: third", path="/api/nowhere", method="GET")
        wait_for(lambda: len(lines) == 3)
    token_id = server.token.split("_")[1]
    assert all(line.pop("ms") > 0 for line in lines)
    assert lines == [
        {"id": "first", "principal": "ann", "token": token_id, "call": "versions", "status": 404},
        {"id": "second", "principal": None, "token": None, "call": "now", "status": 401, "address": "127.0.0.1"},
        {"id": "third", "principal": None, "token": None, "call": "page", "status": 404},
    ]


def test_the_counts_are_for_admins_and_for_the_secret_of_metrics(
    serve: Callable[..., LimitedServer], tmp_path: Path
) -> None:
    server = serve(metrics_token="0123456789abcdef")  # noqa: S106 (of the test)
    other = {"requests": {'call="now",status="200"': 2}, "seconds": {"now 0": 2, "now sum": 0.002}, "in_flight": 3}
    (tmp_path / "1-other.json").write_text(json.dumps(other), encoding="utf-8")  # process 1 lives
    (tmp_path / "9999999-dead.json").write_text(json.dumps(other), encoding="utf-8")
    server.ask()
    answer = server.ask(path="/metrics", method="GET")
    text = answer.body.decode()
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'registry_requests_total{call="now",status="200"} 5\n' in text
    assert 'registry_request_seconds_bucket{call="now",le="0.005"} ' in text
    assert 'registry_request_seconds_bucket{call="now",le="+Inf"} 5\n' in text
    assert 'registry_request_seconds_count{call="now"} 5\n' in text
    assert "registry_requests_in_flight 4\n" in text  # the dead worker answers none
    secret = server.ask("Authorization: Bearer 0123456789abcdef", path="/metrics", method="GET")
    assert secret.status == 200
    reader = make_token(server.catalog, "bob", Role.READER)
    refusals = [server.ask(f"Authorization: Bearer {text}", path="/metrics", method="GET") for text in (reader, "x")]
    assert [answer.status for answer in refusals] == [403, 401]
    wait_for(lambda: len(list(tmp_path.glob("*-*.json"))) == 3)  # its own, too


def test_rates_are_limited_by_token(serve: Callable[..., LimitedServer]) -> None:
    server = serve(requests_per_minute=3)
    answers = [server.ask() for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    assert answers[0].headers["ratelimit-policy"] == '"default";q=3;w=60'
    assert [re.sub("t=.*", "", answer.headers["ratelimit"]) for answer in answers] == [
        f'"default";r={left};' for left in (2, 1, 0, 0)
    ]
    assert answers[0].headers["ratelimit"] == '"default";r=2;t=20'
    assert 1 <= int(answers[3].headers["retry-after"]) <= 20
    assert problem(answers[3]) == (429, "there were too many requests with this token")
    other = make_token(server.catalog, "bob", Role.READER)
    assert server.ask(f"Authorization: Bearer {other}").status == 200
    assert server.ask(path="/api/v1/data/numbers/1.0.0/file", method="GET").status == 404  # files are not limited


def test_workers_limit_a_rate_together(serve: Callable[..., LimitedServer]) -> None:
    workers = [serve(requests_per_minute=8, failed_logins_per_minute=3) for _ in range(4)]
    login = f"Authorization: Bearer {workers[0].token}"
    statuses = Counter(worker.ask(login).status for worker in workers * 3)
    assert statuses == {200: 8, 429: 4}
    statuses = Counter(worker.ask("Authorization: Bearer x").status for worker in workers)
    assert statuses == {401: 3, 429: 1}


def test_keys_share_no_quota_unless_both_of_their_slots_are_those_of_others(tmp_path: Path) -> None:
    moments = [0.0]
    buckets = Buckets(2, tmp_path / "requests", clock=lambda: moments[0])
    assert sum(buckets.take(f"token {number}") for number in range(1000) for _ in range(2)) > 1980
    assert not any(buckets.take(f"token {number}") for number in range(1000))
    after = Buckets(2, tmp_path / "requests", clock=lambda: moments[0])  # a worker that replaces another one
    assert sum(after.take(f"other {number}") for number in range(1000)) > 970
    assert (after.take("token 1"), after.seconds("token 1")) == (False, 30)
    moments[0] = 30.0
    assert (after.take("token 1"), buckets.take("token 1"), buckets.left("token 1")) == (True, False, 0)
    moments[0] = 1000.0
    assert buckets.left("token 1") == 2  # a quota does not grow


def test_a_worker_counts_alone_if_it_cannot_share_its_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full, or a program that cleans the folder of temporary files has removed that of the service."""
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    for file in (tmp_path / "requests", tmp_path / "removed" / "requests"):
        with access_log() as lines:
            buckets = Buckets(2, file)
        assert [buckets.take("ann") for _ in range(3)] == [True, True, False]
        assert "the workers cannot share requests" in lines[0]["message"]


def test_nobody_can_choose_a_key_with_the_slots_of_another_one() -> None:
    assert Buckets(2)._slots("ann") != Buckets(2)._slots("ann")


def test_a_client_that_is_told_to_wait_asks_again(serve: Callable[..., LimitedServer]) -> None:
    from registry.catalog.service import ServiceCatalog

    server = serve(requests_per_minute=60)
    with access_log() as lines, ServiceCatalog(server.url, token=lambda _: server.token) as client:
        for _ in range(62):
            client.now()
    assert {line["status"] for line in lines} == {200, 429}


def test_failed_logins_are_limited_by_address_but_not_those_who_were_let_in(
    serve: Callable[..., LimitedServer],
) -> None:
    server = serve(failed_logins_per_minute=2)
    assert server.ask().status == 200
    wrong = f"Authorization: Bearer {new_secret()[1]}"
    assert [server.ask(wrong).status for _ in range(3)] == [401, 401, 429]
    other = make_token(server.catalog, "bob", Role.READER)
    refusal = server.ask(f"Authorization: Bearer {other}")
    assert problem(refusal) == (429, "there were too many requests without a valid token from this address")
    assert 1 <= int(refusal.headers["retry-after"]) <= 30
    assert server.ask().status == 200
    server.catalog.access.revoke_token(server.token.split("_")[1], actor="bob")
    assert [server.ask().status for _ in range(2)] == [401, 429]
    assert server.ask(path="/health", method="GET").status == 200


def test_addresses_behind_a_trusted_proxy_are_those_of_its_header(serve: Callable[..., LimitedServer]) -> None:
    server = serve(failed_logins_per_minute=1, trusted_proxies=("127.0.0.0/8",))
    for address in ("10.0.0.1", "10.0.0.2", "2001:db8::1"):
        assert server.ask("Authorization: Bearer x", f"X-Forwarded-For: {address}").status == 401
    statuses = [server.ask(f"X-Forwarded-For: {each}").status for each in ("10.0.0.1", "2001:db8::2", "2001:db9::1")]
    assert statuses == [429, 429, 200]
    assert "strict-transport-security" in server.ask("X-Forwarded-Proto: https").headers


def test_addresses_in_headers_of_others_are_not_believed(serve: Callable[..., LimitedServer]) -> None:
    server = serve(failed_logins_per_minute=1)
    assert server.ask("Authorization: Bearer x", "X-Forwarded-For: 10.0.0.1").status == 401
    answer = server.ask("X-Forwarded-For: 10.0.0.2", "X-Forwarded-Proto: https")
    assert (answer.status, "strict-transport-security" in answer.headers) == (429, False)


def test_requests_by_another_host_are_refused_if_hosts_are_set(serve: Callable[..., LimitedServer]) -> None:
    server = serve(
        host="Localhost",
        allowed_hosts=("Catalog.internal", "::1"),
        public_url="https://catalog.example/",
        anonymous_reads=True,
    )

    def status(host: str, path: str = "/") -> int:
        with server.connect() as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            return read_answer(connection).status

    for host in ("catalog.internal", "CATALOG.internal:8080", "catalog.example", "[::1]:80", "localhost:80"):
        assert status(host) == 200
    for host in ("evil.example", "catalog.internal.evil.example", "127.0.0.2", "evil@catalog.internal", "["):
        assert [status(host), status(host, "/api/v1/datasets"), status(host, "/site.json")] == [421] * 3
        assert [status(host, path) for path in ("/health", "/ready")] == [200, 200]
    assert problem(server.ask("Authorization: "))[0] == 421  # by the host "test"


def test_no_redirect_and_no_cookie_names_the_host_of_a_request(serve: Callable[..., LimitedServer]) -> None:
    server = serve(anonymous_reads=True)
    publish(server.catalog, "digits:1.0.0")
    for path in ("/digits", "/digits/1.0.0", "/log", "/sign-in/", "/log?after=1", "//evil.example/digits"):
        with server.connect() as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: evil.example\r\n\r\n".encode())
            answer = read_answer(connection)
        assert not answer.headers.get("location", "./").startswith(("http", "/")), path
        assert "evil" not in f"{answer.headers.get('location')} {answer.headers.get('set-cookie')}".replace(path, "")


def cross_origin(answer: Answer) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


def test_pages_of_other_origins_read_nothing_by_default(serve: Callable[..., LimitedServer]) -> None:
    server = serve()
    for method in ("GET", "OPTIONS"):
        for path in ("/api/v1/datasets", "/site.json", "/"):
            asked = ("Origin: https://a.example", "Access-Control-Request-Method: GET")
            assert cross_origin(server.ask(*asked, path=path, method=method)) == {}


@pytest.mark.parametrize("origins", [("https://A.example", "https://c.example"), ("*",)])
def test_pages_of_origins_in_the_settings_only_read(
    serve: Callable[..., LimitedServer], origins: tuple[str, ...]
) -> None:
    server, origin = serve(cors_origins=origins), "Origin: https://a.example"
    allowed = {"access-control-allow-origin": "*" if origins == ("*",) else "https://a.example"}
    for path in ("/api/v1/datasets", "/api/v1/data/x", "/site.json", "/api/v1/nothing"):
        answer = server.ask(origin, path=path, method="GET")
        assert cross_origin(answer).items() > allowed.items()
        assert "etag" in cross_origin(answer)["access-control-expose-headers"].lower()
        asked = (origin, "Access-Control-Request-Method: GET", "Access-Control-Request-Headers: authorization")
        question = server.ask(*asked, path=path, method="OPTIONS")
        assert question.status == 200
        assert cross_origin(question).items() > (allowed | {"access-control-allow-methods": "GET, HEAD"}).items()
        assert "credentials" not in str(cross_origin(answer) | cross_origin(question))
        for method in ("POST", "PUT", "DELETE"):
            asked = (origin, f"Access-Control-Request-Method: {method}")
            assert server.ask(*asked, path=path, method="OPTIONS").status == 400
    for other in ("https://b.example", "https://a.example.b.example", "null", "http://a.example"):
        answer = server.ask(f"Origin: {other}", method="GET", path="/api/v1/datasets")
        assert ("access-control-allow-origin" in answer.headers) == (origins == ("*",))


def test_refused_calls_of_known_tokens_are_noted_and_a_flood_is_cut(serve: Callable[..., LimitedServer]) -> None:
    server = serve(failed_logins_per_minute=0)
    reader = make_token(server.catalog, "bob", Role.READER)
    revoked = make_token(server.catalog, "eve")
    server.catalog.access.revoke_token(revoked.split("_")[1], actor="ann")
    publisher = make_token(server.catalog, "pat", Role.PUBLISHER, "lab_*")
    server.ask("Authorization: Bearer x")
    server.ask(f"Authorization: Bearer {revoked}")
    body = b'{"reference": "digits:1.0.0", "reason": "wrong"}'
    assert server.ask(f"Authorization: Bearer {publisher}", body=body, path="/api/v1/lifecycle.yank").status == 403
    for _ in range(70):
        answer = server.ask(f"Authorization: Bearer {reader}", path="/api/v1/access.tokens")
        assert answer.status == 403
    refusals = wait_for(lambda: len(found := server.catalog.access.refusals()) >= 62 and found)
    assert len(refusals) < 66
    assert {(each.principal, each.call, each.dataset) for each in refusals} == {
        ("bob", "access.tokens", ""),
        ("pat", "lifecycle.yank", "digits"),
        ("eve", "now", ""),
    }
    reasons = {each.reason for each in refusals if each.principal == "bob"}
    assert reasons == {
        "bob may not list access tokens: this needs the role admin, but the token has the role reader",
    }


def test_a_body_that_is_too_long_is_refused_before_and_while_it_comes(serve: Callable[..., LimitedServer]) -> None:
    server = serve(body_bytes=2**20)
    too_long = (413, "the body of a call must not exceed 1,048,576 bytes")
    assert problem(server.ask("Content-Length: 1048577")) == too_long
    assert problem(server.ask(f"Content-Length: {10**18}")) == too_long
    with server.send("Transfer-Encoding: chunked") as connection:
        for _ in range(18):
            connection.sendall(b"10000\r\n" + b" " * 2**16 + b"\r\n")
        assert problem(read_answer(connection)) == too_long
    before = resident_bytes()
    with server.send("Transfer-Encoding: chunked") as connection, suppress(OSError):  # it closes the connection
        for _ in range(200):
            connection.sendall(b"100000\r\n" + b" " * 2**20 + b"\r\n")
    assert resident_bytes() - before < 2**26
    assert server.ask(body=b" {} ").status == 200


@pytest.mark.parametrize("value", [b"[]", b"{}", b'{"a":1}', b"1.5"])
def test_a_body_of_very_many_values_is_not_parsed(serve: Callable[..., LimitedServer], value: bytes) -> None:
    """An empty list has three bytes as JSON, and 64 in memory."""
    server = serve()
    answer = server.ask(body=b'{"x": [' + b",".join([value] * (4 * 10**6 // len(value))) + b"]}")
    assert problem(answer) == (413, "the body of the call has too many values")


def test_questions_about_a_version_name_all_of_its_labels_and_shards(serve: Callable[..., LimitedServer]) -> None:
    """Each of them has the whole version in its body; some datasets have 200,000 labels."""
    from registry.catalog.service import ServiceCatalog

    server = serve()
    labels = {"label": tuple(f"n{number}" for number in range(200_000))}
    published = publish(server.catalog, "digits:1.0.0", labels=labels)
    with ServiceCatalog(server.url, token=lambda _: server.token) as client:
        assert [shard.index for shard in client.shards.between(published, "train", 0, 3)] == [0, 1, 2]
        prepared, _ = sample("digits:1.0.0", {"train": [1] * 200_000})
        assert client.attachments(prepared) == ()


def test_a_reservation_has_all_objects_that_were_there_before(serve: Callable[..., LimitedServer]) -> None:
    """Its publisher asks again and again whether it still holds it."""
    from registry.catalog.service import ServiceCatalog

    server, holder = serve(), Holder.of_this_process("ann")
    exactly = Reference.parse("digits:1.0.0")
    with ServiceCatalog(server.url, token=lambda _: server.token) as client:
        held, _ = client.reservations.reserve("s3://lab/digits/1.0.0", exactly, "1" * 64, holder)
        names = [f"digits-train.tfrecord-{number:06}-of-400000-with-a-longer-name" for number in range(300_000)]
        held = client.reservations.note_found(held, holder, names, anew=True)
        assert held.found is not None
        assert len(held.found) == 300_000
        client.reservations.require(held, holder)


def test_the_body_of_a_change_is_read_only_for_those_who_may_make_it(serve: Callable[..., LimitedServer]) -> None:
    server = serve()
    reader = f"Authorization: Bearer {make_token(server.catalog, 'bob', Role.READER)}"
    refused = server.ask(reader, "Content-Length: 100000000", path="/api/v1/publish")
    assert problem(refused)[0] == 403
    too_long = server.ask(reader, "Content-Length: 100000000", path="/api/v1/shards.find")
    assert problem(too_long) == (413, "the body of a call must not exceed 16,777,216 bytes")
    with server.send("Content-Length: 100000000", path="/api/v1/publish") as connection:  # an admin may make it
        assert select.select([connection], [], [], 0.3)[0] == []


def test_bodies_in_memory_are_limited_together(serve: Callable[..., LimitedServer]) -> None:
    server = serve(body_bytes=2**20)
    with ExitStack() as stack:
        connections = [stack.enter_context(server.send("Content-Length: 1000000")) for _ in range(3)]
        for connection in connections:
            connection.sendall(b" " * 999_990)
        (refused,) = select.select(connections, [], [], 60)[0]
        answer = read_answer(refused)
        assert problem(answer) == (503, "the service is busy with other long requests")
        assert answer.headers["retry-after"] == "1"
        connections.remove(refused)
        for connection in connections:
            connection.sendall(b" " * 8 + b"{}")
        assert [read_answer(connection).status for connection in connections] == [200, 200]
    assert server.ask(body=b"{}" + b" " * (2**20 - 2)).status == 200  # their memory is free


def test_a_request_with_two_ends_is_refused_and_ends_the_connection(serve: Callable[..., LimitedServer]) -> None:
    for coding in ("identity", "chunked, chunked", "gzip, chunked"):
        answer = serve().ask(f"Transfer-Encoding: {coding}, chunked", body=b"{}")
        assert problem(answer)[0] == 501
    hidden = b"2\r\n{}\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: test\r\n\r\n"
    with serve().send("Content-Length: 12", "Transfer-Encoding: chunked", body=hidden) as connection:
        content = b"".join(iter(lambda: connection.recv(2**16), b""))
    assert content.startswith(b"HTTP/1.1 400")
    assert content.count(b"HTTP/1.1 ") == 1


def test_a_body_with_a_content_coding_is_refused(serve: Callable[..., LimitedServer]) -> None:
    server = serve()
    bomb = zlib.compress(b" " * 2**20)
    for coding in ("gzip", "deflate", "br, identity"):
        refusal = server.ask(f"Content-Encoding: {coding}", body=bomb)
        assert problem(refusal) == (415, "the body of a request must not have a content coding")
    assert server.ask("Content-Encoding: identity", body=b"{}").status == 200


def test_a_client_that_is_too_slow_is_given_up(
    serve: Callable[..., LimitedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "_HEAD_SECONDS", 0.3)
    server = serve(body_seconds=1)
    with server.send("Content-Length: 20", body=b"{") as slow:
        assert problem(read_answer(slow)) == (408, "the body of the request arrives too slowly")
    with server.connect() as silent, server.connect() as dripping:
        dripping.sendall(b"POST / HTTP/1.1\r\nHost: te")
        assert (silent.recv(100), dripping.recv(100)) == (b"", b"")
    with server.send("Content-Length: 20", body=b"{"):  # it goes away
        pass
    assert server.ask().status == 200


def test_a_head_that_is_too_long_or_malformed_is_refused(serve: Callable[..., LimitedServer]) -> None:
    server = serve()
    lines = [f"X-{number}: {'a' * 1000}" for number in range(2000)]
    with server.connect() as connection:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: test\r\n{lines[0]}".encode() + b"a" * 40_000)
        assert problem(read_answer(connection)) == (431, "the head of the request is too long")
    with server.connect() as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\r\n\r\n")  # the beginning of TLS
        assert problem(read_answer(connection)) == (400, "this is not an HTTP request")
    for request in (b"GET / HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"):
        with server.connect() as connection:
            connection.sendall(request)
            assert problem(read_answer(connection))[0] == 400
    with server.send("Transfer-Encoding: chunked", body=b"zz\r\n") as connection:
        assert problem(read_answer(connection))[0] == 400
    assert server.ask().status == 200


def test_requests_beyond_those_in_flight_are_told_to_come_again(serve: Callable[..., LimitedServer]) -> None:
    server = serve(in_flight=1)
    with server.send("Content-Length: 2", "Expect: 100-continue") as first:
        assert first.recv(100).startswith(b"HTTP/1.1 100 ")
        answer = server.ask()
        assert problem(answer) == (503, "the service is busy")
        assert answer.headers["retry-after"] == "1"
        assert server.ask(path="/health", method="GET").status == 200
        first.sendall(b"{}")
        assert read_answer(first).status == 200
    assert server.ask().status == 200


@pytest.mark.parametrize("is_anonymous", [False, True])
def test_slow_requests_without_a_token_leave_places_for_those_with_one(
    serve: Callable[..., LimitedServer], is_anonymous: bool
) -> None:
    server = serve(in_flight=8, anonymous_reads=is_anonymous)
    form = ("Sec-Fetch-Site: same-origin", "Content-Type: application/x-www-form-urlencoded", "Authorization: ")
    path = "/api/v1/now" if is_anonymous else "/sign-in/"
    with ExitStack() as slow:
        opened = [slow.enter_context(server.send(*form, "Content-Length: 99", body=b"{", path=path)) for _ in range(12)]
        answers = [problem(read_answer(each)) for each in opened if select.select([each], [], [], 2)[0]]
        assert len(answers) >= 10  # a request that is refused may take a place until its body is read, too
        assert {status for status, _ in answers} == {503}
        assert server.ask(body=b"{}").status == 200


def test_slow_requests_with_one_token_leave_places_for_others(serve: Callable[..., LimitedServer]) -> None:
    server = serve(in_flight=8)
    other = f"Authorization: Bearer {make_token(server.catalog, 'bob', Role.READER)}"
    with ExitStack() as slow:
        opened = [slow.enter_context(server.send("Content-Length: 99", body=b"{")) for _ in range(8)]
        answers = [problem(read_answer(each)) for each in opened if select.select([each], [], [], 3)[0]]
        assert answers == [(503, "the service is busy with other requests of this token")] * 4
        assert server.ask(other, body=b"{}").status == 200
    assert [server.ask(body=b"{}").status for _ in range(5)] == [200] * 5  # the places are free again


def test_wrong_addresses_and_methods_are_problems(serve: Callable[..., LimitedServer]) -> None:
    server = serve()
    assert problem(server.ask(path="/api/wrong", method="GET")) == (404, "there is nothing at this address")
    answer = server.ask(method="DELETE")
    assert problem(answer) == (405, "method not allowed")
    assert "POST" in answer.headers["allow"]


def test_a_fault_of_the_service_is_told_by_its_id_only(
    serve: Callable[..., LimitedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()

    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(server.service, "answer", fail)
    with access_log() as lines:
        answer = server.ask("X-Request-Id: broken")
        wait_for(lambda: len(lines) == 2)
    assert problem(answer) == (500, "the service failed. Request broken.")
    assert "ZeroDivisionError: inside" in lines[0]["message"]


def test_it_is_not_ready_while_its_catalog_does_not_answer(
    serve: Callable[..., LimitedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    assert server.ask(path="/ready", method="GET").status == 200

    def fail() -> None:
        raise CatalogUnavailableError("cannot reach postgresql://ann:PW@host/name")

    monkeypatch.setattr(server.catalog, "now", fail)
    assert problem(server.ask(path="/ready", method="GET")) == (503, "the catalog of the service does not answer")
    assert server.ask(path="/health", method="GET").status == 200


def test_a_client_that_does_not_read_its_answer_is_given_up(
    serve: Callable[..., LimitedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(body_seconds=1, in_flight=1)
    monkeypatch.setattr(server.service, "answer", lambda *_, **__: Answered(status=200, body=b'"%s"' % (b"a" * 2**26)))
    with access_log() as lines, server.send("Accept-Encoding: identity"):
        wait_for(lambda: any("does not read its answer" in line.get("message", "") for line in lines))
    monkeypatch.undo()
    assert server.ask().status == 200


def answer_by_streams(server: LimitedServer, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the service answer this person with 64 MiB, as with a file."""
    make_answer = server.service.answer

    def answer(who: Any, *args: Any, **kwargs: Any) -> Answered:
        if who.name != name:
            return make_answer(who, *args, **kwargs)
        return Answered(status=200, body=iter([b"a" * 2**18] * 2**8))

    monkeypatch.setattr(server.service, "answer", answer)


def test_clients_that_do_not_read_their_answers_take_no_places_of_others(
    serve: Callable[..., LimitedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(in_flight=4)
    answer_by_streams(server, monkeypatch, "bob")
    reader = f"Authorization: Bearer {make_token(server.catalog, 'bob', Role.READER)}"
    with ExitStack() as stalled:
        for _ in range(12):
            connection = stalled.enter_context(server.send(reader, "Accept-Encoding: identity"))
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
            wait_for(lambda: server.ask().status == 200)  # the server may not have noticed yet that nobody reads


def test_clients_that_do_not_read_are_given_up_sooner_if_there_are_many(
    serve: Callable[..., LimitedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("registry.server.gate._MOST_READING", 2)
    monkeypatch.setattr("registry.server.gate._IMPATIENCE", 0.2)
    server = serve()
    answer_by_streams(server, monkeypatch, "ann")
    with access_log() as lines, ExitStack() as stack:
        clients = {
            name: stack.enter_context(server.send("Accept-Encoding: identity", f"X-Request-Id: {name}"))
            for name in "ab"
        }
        messages = wait_for(lambda: [line["message"] for line in lines if "not read" in line.get("message", "")])
        reading = clients["b" if "request a:" in messages[0] else "a"]
        assert len(read_answer(reading).body) == 2**26


def test_a_long_answer_in_memory_is_given_up_sooner(
    serve: Callable[..., LimitedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("registry.server.gate._PATIENCE", 1000)
    server = serve(body_seconds=1)
    monkeypatch.setattr(server.service, "answer", lambda *_, **__: Answered(status=200, body=b'"%s"' % (b"a" * 2**26)))
    with access_log() as lines, server.send("Accept-Encoding: identity"):
        wait_for(lambda: any("does not read its answer" in line.get("message", "") for line in lines))
