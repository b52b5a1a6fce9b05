"""Webhooks: each event is sent at least once and in order, to receivers that fail in every way; and to nobody else."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.catalog_samples import execute
from support.catalog_server import PostgresServer
from support.http_servers import running
from support.levels import either
from support.receivers import Handler, Receiver, receiver, wait_until

import registry
from registry.catalog import open_catalog
from registry.catalog import webhooks as sql_webhooks
from registry.catalog.events import append_event
from registry.catalog.session import write
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import SignatureError, UsageError, WebhookNotFoundError
from registry.model import Webhook, sign_message, webhook_secret
from registry.server import webhooks as server_webhooks
from registry.server.metrics import Metrics
from registry.server.webhooks import Deliverer, Refused

KEY = "a key of sixteen characters"
LOOPBACK = ("127.0.0.0/8", "::1")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        yield server.take_catalog()
    else:
        yield str(tmp_path / "catalog.db")


@pytest.fixture
def catalog(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlCatalog]:
    monkeypatch.setenv("REGISTRY_SERVE_WEBHOOK_KEY", KEY)
    monkeypatch.setattr(sql_webhooks, "_FIRST_PAUSE", 0.05)
    monkeypatch.setattr(server_webhooks, "_PAUSE_SECONDS", 0.1)
    with open_catalog(url) as opened:
        yield cast("SqlCatalog", opened)


def append(catalog: SqlCatalog, number: int = 1, *, action: str = "note", dataset: str = "") -> None:
    """Append events as the registry does."""
    for _ in range(number):
        write(catalog._engine, lambda connection: append_event(connection, action, dataset, {}, actor="ann"))


def create(catalog: SqlCatalog, at: Receiver, number: int = 1, **options: Any) -> Webhook:
    webhook = catalog.webhooks.create(f"{number:012}", at.url, after=0, actor="carol", **options)
    at.secret = catalog.webhooks.secret(webhook.id)
    return webhook


def state(catalog: SqlCatalog, number: int = 1) -> Webhook:
    return next(webhook for webhook in catalog.webhooks.list() if webhook.id == f"{number:012}")


async def _in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return await asyncio.to_thread(function, *args, **kwargs)


async def _wait(_after: int, _seconds: float) -> bool:
    await asyncio.sleep(0.05)
    return True


@contextmanager
def delivering(catalog: SqlCatalog, *, hosts: tuple[str, ...] = LOOPBACK) -> Iterator[Metrics]:
    """A worker that delivers, for the block."""
    metrics, loop = Metrics(), asyncio.new_event_loop()
    task: asyncio.Task[None] | None = None

    def run() -> None:
        nonlocal task
        deliverer = Deliverer(lambda: catalog.webhooks, _in_thread, _wait, metrics, hosts)
        task = loop.create_task(deliverer.run())
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield metrics
    finally:
        wait_until(lambda: task is not None)
        loop.call_soon_threadsafe(lambda: task is not None and task.cancel())
        thread.join()


def attempt(catalog: SqlCatalog, url: str, hosts: tuple[str, ...] = ()) -> str:
    """Why one attempt to deliver an event is refused; "" if it was delivered."""
    event = catalog.events(limit=1).events[0]
    webhook = Webhook(id="0" * 12, url=url, created_at=event.at, created_by="ann", delivered_through=0)

    async def run() -> str:
        deliverer = Deliverer(lambda: catalog.webhooks, _in_thread, _wait, Metrics(), hosts)
        try:
            await deliverer.send(webhook, event, catalog.webhooks.secrets(webhook.id))
        except Refused as refused:
            return str(refused)
        return ""

    return asyncio.run(run())


@pytest.mark.parametrize("half", either(150, 500))  # more than are read at once
def test_many_events_are_delivered_in_order_and_signed(catalog: SqlCatalog, half: int) -> None:
    append(catalog, half)
    with receiver() as at, delivering(catalog) as metrics:
        create(catalog, at)
        append(catalog, half)
        wait_until(lambda: state(catalog).delivered_through == 2 * half)
        assert at.ids == [*range(1, 2 * half + 1)]  # one worker, so each once
        message = at.accepted[6]
        event = catalog.events(after=6, limit=1).events[0]
        assert (message["type"], message["timestamp"]) == ("note", event.at.isoformat())
        assert message["data"]["hash"] == event.hash
        assert len({headers["webhook-id"] for headers, _ in at.requests}) == 2 * half
        assert f'deliveries_total{{outcome="delivered"}} {2 * half}' in metrics.text()
        wait_until(lambda: "events_behind 0" in metrics.text())


def test_events_of_other_datasets_and_kinds_are_passed_over(catalog: SqlCatalog) -> None:
    with receiver() as at, delivering(catalog):
        create(catalog, at, datasets=("lab_*", "c4/en"), actions=("yank",))
        for dataset in ("lab_a/plain", "c4/en", "c4/de", "other", "", "c4"):
            append(catalog, dataset=dataset, action="yank")
            append(catalog, dataset=dataset, action="publish")
        wait_until(lambda: state(catalog).delivered_through == 12)
        assert at.ids == [1, 3]


def test_an_event_of_a_transaction_that_is_rolled_back_is_not_delivered(catalog: SqlCatalog) -> None:
    def give_up(connection: Any) -> None:
        append_event(connection, "abandoned", "", {}, actor="ann")
        time.sleep(0.3)
        raise UsageError("it gives up")

    with receiver() as at, delivering(catalog):
        create(catalog, at)
        for _ in range(3):
            with pytest.raises(UsageError):
                write(catalog._engine, give_up)
            append(catalog)
        at.wait_for(3)
        assert [message["type"] for message in at.accepted] == ["note"] * 3


def test_a_receiver_that_fails_gets_the_event_again_before_the_next(catalog: SqlCatalog) -> None:
    statuses = [500, 503, 404, 302, 204, 500, 200, 200]
    append(catalog, 3)
    with receiver(lambda _, number: statuses[number]) as at, delivering(catalog) as metrics:
        create(catalog, at)
        at.wait_for(3)
        wait_until(lambda: state(catalog).failures == 0)
        assert at.ids == [1, 2, 3]
        ids = [headers["webhook-id"] for headers, _ in at.requests]
        assert len(set(ids[:5])) == 1
        assert len(set(ids)) == 3
        assert 'deliveries_total{outcome="failed"} 5' in metrics.text()


def drop(handler: Handler, number: int) -> int | None:
    """Close the connection after the message was read, twice."""
    if number >= 2:
        return 204
    handler.connection.shutdown(socket.SHUT_RDWR)
    return None


def trickle(handler: Handler, number: int) -> int | None:
    """Never end the headers, the first time."""
    if number:
        return 204
    try:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            handler.wfile.write(b"X-More: and more\r\n" * 100)
    except OSError:
        return None


def flood(handler: Handler, number: int) -> int | None:
    """Never end the body: what is after the status is not read."""
    handler.receiver.accept(dict(handler.headers.items()), handler.receiver.requests[number][1])
    try:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            handler.wfile.write(b"x" * 2**16)
    except OSError:
        return None


def babble(handler: Handler, number: int) -> int | None:
    """Answer with something that is not HTTP, the first time."""
    if number:
        return 204
    handler.wfile.write(b"220 mail.example ESMTP\r\n\r\n")
    return None


@pytest.mark.parametrize("behaviour", [drop, trickle, flood, babble])
def test_a_receiver_that_answers_wrongly_gets_each_event_nevertheless(catalog: SqlCatalog, behaviour: Any) -> None:
    append(catalog, 3)
    with receiver(behaviour) as at, delivering(catalog):
        create(catalog, at)
        at.wait_for(1, 2, 3)
        wait_until(lambda: state(catalog).delivered_through == 3)
        assert sorted(set(at.ids)) == [1, 2, 3]


def test_a_receiver_that_hangs_holds_up_no_other_one(catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_webhooks, "_ATTEMPT_SECONDS", 1)
    is_over = threading.Event()

    def hang(_handler: Handler, _number: int) -> int | None:
        is_over.wait(60)
        return None

    append(catalog, 1)
    with receiver(hang) as hanging, receiver() as quick, delivering(catalog):
        for number in range(2, 7):
            create(catalog, hanging, number)
        create(catalog, quick, 1)
        append(catalog, 30)
        quick.wait_for(*range(1, 32))
        wait_until(lambda: all(state(catalog, number).failures for number in range(2, 7)))
        assert state(catalog, 2).last_error == "it did not answer within 1 seconds"
        assert state(catalog, 2).delivered_through == 0
        is_over.set()


def test_a_receiver_that_is_gone_gets_no_more_until_it_is_resumed(catalog: SqlCatalog) -> None:
    append(catalog, 2)
    with receiver(lambda _, number: 410 if number == 0 else 204) as at, delivering(catalog):
        create(catalog, at)
        wait_until(lambda: state(catalog).disabled_at is not None)
        assert state(catalog).disabled_because == "it answered with the status 410"
        append(catalog)
        time.sleep(0.3)
        assert len(at.requests) == 1
        catalog.webhooks.resume("1".zfill(12), actor="carol")
        at.wait_for(1, 2, 3)
        assert state(catalog).disabled_at is None
        catalog.webhooks.resume("1".zfill(12), after=1, actor="carol")  # sends 2 and 3 again
        wait_until(lambda: at.ids == [1, 2, 3, 2, 3])


def test_after_days_of_failures_no_more_attempts_are_made(catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_webhooks, "_PATIENCE", timedelta(seconds=0.3))
    append(catalog)
    with receiver(lambda *_: 500) as at, delivering(catalog):
        create(catalog, at)
        wait_until(lambda: state(catalog).disabled_at is not None)
        because = state(catalog).disabled_because or ""
        assert because.startswith("it has failed since ")
        assert because.endswith("UTC: it answered with the status 500")


def test_two_workers_share_the_work_without_doing_it_twice(catalog: SqlCatalog, url: str) -> None:
    append(catalog, 100)
    with open_catalog(url) as other, receiver() as at, receiver() as second:
        with delivering(catalog), delivering(cast("SqlCatalog", other)):
            create(catalog, at, 1)
            create(catalog, second, 2)
            append(catalog, 100)
            at.wait_for(200)
            second.wait_for(200)
        assert at.ids == second.ids == [*range(1, 201)]


def test_a_worker_whose_lease_ended_does_not_move_the_webhook(catalog: SqlCatalog, url: str) -> None:
    append(catalog, 5)
    with receiver() as at:
        create(catalog, at)
    claim = catalog.webhooks.claim("1".zfill(12), "first")
    assert [event.id for event in claim.events] == [1, 2, 3, 4, 5]
    assert catalog.webhooks.claim("1".zfill(12), "second") is None
    assert catalog.webhooks.due()[0] == ()
    moment = "'2020-01-01 00:00:00+00'" if url.startswith("postgresql") else "'2020-01-01 00:00:00.000000'"
    execute(url, f"UPDATE webhook SET leased_until = {moment}")  # noqa: S608 (a text above)
    second = catalog.webhooks.claim("1".zfill(12), "second")
    assert second is not None
    assert not catalog.webhooks.settle(claim, 5)
    assert state(catalog).delivered_through == 0
    assert catalog.webhooks.settle(second, 3)
    assert state(catalog).delivered_through == 3


def test_a_worker_that_ends_notes_what_it_has_delivered(catalog: SqlCatalog) -> None:
    is_over = threading.Event()

    def slow(_handler: Handler, number: int) -> int:
        if number == 2:
            is_over.wait(60)
        return 204

    append(catalog, 5)
    with receiver(slow) as at:
        create(catalog, at)
        with delivering(catalog):
            wait_until(lambda: len(at.requests) == 3)
        assert state(catalog).delivered_through == 2
        is_over.set()
        with delivering(catalog):
            at.wait_for(3, 4, 5)


NOT_PUBLIC = [
    *("localhost", "[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[64:ff9b::10.0.0.1]", "[2002:7f00:1::]"),
    *("[fe80::1]", "[fd00:ec2::254]", "10.1.2.3", "172.16.0.1", "192.168.0.1", "100.100.100.200", "169.254.169.254"),
    *("168.63.129.16", "0.0.0.0", "224.0.0.1", "255.255.255.255", "[ff02::1]"),  # noqa: S104 (it is refused)
]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_an_address_that_is_not_public_is_not_contacted(catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it was contacted")

    monkeypatch.setattr(asyncio, "open_connection", refuse)
    append(catalog)
    reasons = {
        "https://127.0.0.1/x": "127.0.0.1 has the address 127.0.0.1, which is not public: see the setting",
        "https://[::1]/x": "has the address ::1, which is not public",
        "http://8.8.8.8/x": "it has no encryption: other machines must use https",
        "https://no-such-name.invalid/x": "the name no-such-name.invalid has no address",
        **dict.fromkeys((f"https://{host}/x" for host in NOT_PUBLIC), ", which is not public"),
    }
    for host in ("127.1", "2130706433", "0x7f.1"):
        reasons[f"https://{host}/x"] = "has the address 127.0.0.1, which is not public"
    for target, reason in reasons.items():
        assert reason in attempt(catalog, target), target


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_name_is_resolved_once_and_each_of_its_addresses_is_checked(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [["8.8.8.8", "10.0.0.1"], ["8.8.8.8"], ["10.0.0.1"]]
    contacted: list[str] = []

    async def resolve(_loop: object, _host: str, port: int, **_: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in answers.pop(0)]

    async def connect(address: str, _port: int, **options: Any) -> None:
        contacted.append(address)
        assert options["server_hostname"] == "rebound.example"
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", resolve)
    monkeypatch.setattr(asyncio, "open_connection", connect)
    append(catalog)
    assert "rebound.example has the address 10.0.0.1" in attempt(catalog, "https://rebound.example/")
    assert contacted == []
    assert attempt(catalog, "https://rebound.example/") == "the connection failed: Connection refused"
    assert contacted == ["8.8.8.8"]
    assert len(answers) == 1


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_without_the_setting_no_receiver_of_the_machine_is_contacted(catalog: SqlCatalog) -> None:
    append(catalog)
    with receiver() as at:
        assert "not public" in attempt(catalog, at.url)
        assert "certificate" in attempt(catalog, at.url.replace("http:", "https:"), LOOPBACK)  # it speaks no TLS
        assert at.requests == []
        assert attempt(catalog, at.url, LOOPBACK) == ""
        assert attempt(catalog, at.url.replace("127.0.0.1", "localhost"), ("localhost",)) == ""
    assert "the connection failed" in attempt(catalog, at.url, LOOPBACK)


def certificate(folder: Path) -> Path:
    """A file with a key and a certificate of its own for localhost."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    signed_by_itself = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    path = folder / "localhost.pem"
    path.write_bytes(secret + signed_by_itself.public_bytes(pem))
    return path


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_https_needs_a_certificate_that_is_trusted_and_of_the_name(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(path)
    append(catalog)
    with receiver(tls=tls) as at:
        named, hosts = at.url.replace("127.0.0.1", "localhost"), (*LOOPBACK, "localhost")
        assert "certificate is not trusted" in attempt(catalog, named, hosts)
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        assert "certificate is not trusted" in attempt(catalog, at.url, hosts)  # it is that of another name
        assert at.requests == []
        assert attempt(catalog, named, hosts) == ""
        assert len(at.requests) == 1


# The catalog: how far a webhook is


class Model:
    """What receivers may have got, while workers claim, deliver, fail, die and lose their leases."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self.catalog = catalog
        self.delivered: set[int] = set()
        self.claims: list[Any] = []

    def step(self, step: tuple[str, int]) -> None:
        name, number = step
        match name:
            case "append":
                append(self.catalog, number, action="publish" if number % 2 else "yank")
            case "claim":
                claim = self.catalog.webhooks.claim("1".zfill(12), f"lease {len(self.claims)} {number}")
                self.claims += [claim] if claim is not None else []
            case "die":  # after it has delivered some
                claim = self.claims.pop() if self.claims else None
                self.delivered |= {event.id for event in claim.events[:number]} if claim else set()
                self.expire()
            case "late":  # another one may have the webhook, too
                self.expire()
            case "settle" | "fail":
                claim = self.claims.pop(0) if self.claims else None
                if claim is None:
                    return
                done = claim.events if name == "settle" else claim.events[:number]
                self.delivered |= {event.id for event in done}
                is_whole = len(done) == len(claim.events)
                through = claim.through if is_whole else claim.events[len(done)].id - 1
                self.catalog.webhooks.settle(claim, through, None if is_whole else "it failed")
                self.expire(retry=True)

    def expire(self, *, retry: bool = False) -> None:
        column = "next_try_at" if retry else "leased_until"
        execute(self.catalog.url, f"UPDATE webhook SET {column} = NULL")  # noqa: S608 (names above)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["append", "claim", "die", "late", "settle", "fail"]), st.integers(1, 5)), max_size=25
    ),
    actions=st.sampled_from([(), ("publish",)]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_webhook_never_passes_an_event_that_it_wants_and_has_not_got(
    catalog: SqlCatalog, steps: list[tuple[str, int]], actions: tuple[str, ...]
) -> None:
    if catalog.webhooks.list():
        catalog.webhooks.remove("1".zfill(12), actor="carol")
    start = catalog.webhooks.create("1".zfill(12), "https://ci.example/", actions=actions, actor="c").delivered_through
    model = Model(catalog)
    for step in steps:
        model.step(step)
        at = state(catalog).delivered_through
        passed = [event for event in catalog.events(after=start).events if event.id <= at]
        wanted = {event.id for event in passed if not actions or event.action in actions}
        assert wanted <= model.delivered


def test_pauses_grow_to_an_hour() -> None:
    pauses = [sql_webhooks._pause(failures).total_seconds() for failures in range(1, 200)]
    assert 2.5 <= pauses[0] <= 5
    assert min(pauses[11:]) >= 1800
    assert max(pauses) <= 3600


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_webhook_that_cannot_be_created_says_why(catalog: SqlCatalog) -> None:
    append(catalog, 3)
    wrong: dict[str, dict[str, Any]] = {
        "invalid webhook URL": {"url": "ftp://ci.example/"},
        "invalid webhook URL 'https://": {"url": "https://ci.example/a b"},
        "a webhook needs https, not 'http://ci.example/x': others could read": {"url": "http://ci.example/x"},
        "a webhook needs https, not 'http://8.8.8.8/'": {"url": "http://8.8.8.8/"},
        "must not contain a password, a key or a fragment": {"url": "https://ann:pw@ci.example/"},
        "a key or a fragment, because it is stored": {"url": "https://ci.example/?token=abc"},
        "invalid pattern 'a b' of a token": {"datasets": ["a b"]},
        "no action 'sing'": {"actions": ["sing"]},
        "expected the id of an event, 0 to 3, not 4": {"after": 4},
        "the id of a webhook must be 12": {"webhook_id": "x"},
    }
    for message, options in wrong.items():
        with pytest.raises(UsageError, match=message):
            catalog.webhooks.create(
                **{"webhook_id": "1".zfill(12), "url": "https://ci.example/", "actor": "ann", **options}
            )
    assert catalog.webhooks.create("1".zfill(12), "https://ci.example/", actor="ann", dry_run=True).id == "1".zfill(12)
    assert catalog.webhooks.list() == ()
    with pytest.raises(WebhookNotFoundError, match="no webhook '1'"):
        catalog.webhooks.resume("1", actor="ann")
    catalog.webhooks.keys = ()
    with pytest.raises(UsageError, match="this service has no key for that"):
        catalog.webhooks.create("1".zfill(12), "https://ci.example/", actor="ann")


# Receivers


def signed(secret: str, body: bytes, *, at: float | None = None, message_id: str = "evt_1") -> dict[str, str]:
    timestamp = int(time.time() if at is None else at)
    signature = sign_message(secret, message_id, timestamp, body)
    return {"Webhook-Id": message_id, "Webhook-Timestamp": str(timestamp), "Webhook-Signature": f"v1,AAAA {signature}"}


def test_a_receiver_believes_what_the_service_has_signed_and_nothing_else() -> None:
    secret, body = webhook_secret(KEY, "1" * 12), b'{"type": "publish"}'
    right = signed(secret, body)
    assert registry.verify_webhook(secret, right, body) == {"type": "publish"}
    wrong: dict[str, tuple[dict[str, str], bytes]] = {
        "lacks the headers": ({}, body),
        "lacks the headers of a webhook": (right | {"Webhook-Timestamp": "1e9"}, body),
        "older than five minutes": (signed(secret, body, at=time.time() - 301), body),
        "or from the future": (signed(secret, body, at=time.time() + 301), body),
        "the signature": (right, body + b" "),
        "the signature of": (right | {"Webhook-Id": "evt_2"}, body),
        "the signature of the": (signed(webhook_secret(KEY, "2" * 12), body), body),
        "the signature of the webhook's": (right | {"Webhook-Signature": "v1a,x \u00e9"}, body),
    }
    for message, (headers, content) in wrong.items():
        with pytest.raises(SignatureError, match=message):
            registry.verify_webhook(secret, headers, content)
    for unset in ("whsec_!", "whsec_", ""):  # anybody can sign with an empty key
        with pytest.raises(UsageError, match="this is not the secret of a webhook"):
            registry.verify_webhook(unset, right, body)


def test_the_signature_is_that_of_the_specification() -> None:
    # The example of the specification's reference libraries.
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    signature = sign_message(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_the_receiver_of_the_page_accepts_what_is_signed(
    catalog: SqlCatalog, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs/webhooks.md").read_text(encoding="utf-8")
    lines = page.split("```py\n")[1].split("```")[0].splitlines()
    names: dict[str, Any] = {"SECRET": catalog.webhooks.secrets("1".zfill(12))[0]}
    exec("\n".join(lines[:-1]), names)  # noqa: S102 (our own page, without its last line)
    assert lines[-1].endswith("Receiver).serve_forever()")
    append(catalog, action="yank", dataset="lab_a")
    with running(names["Receiver"]) as port:
        with delivering(catalog):
            catalog.webhooks.create("1".zfill(12), f"http://127.0.0.1:{port}/", after=0, actor="ann")
            wait_until(lambda: state(catalog).delivered_through == 1)
        assert capsys.readouterr().out == "yank lab_a \n"
        names["SECRET"] = catalog.webhooks.secrets("2".zfill(12))[0]
        assert attempt(catalog, f"http://127.0.0.1:{port}/", LOOPBACK) == "it answered with the status 401"
