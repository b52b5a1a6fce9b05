"""ID tokens of an issuer on this machine: which are exchanged, which are refused, and with which keys."""

from __future__ import annotations

import base64
import itertools
import json
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, cast

import jwt
import pytest
import urllib3
from support.issuers import AUDIENCE, LocalIssuer, confused, none_of, private_key, public_jwk
from support.services import TestServer

from registry.catalog import open_catalog
from registry.catalog.service.sign_in import fetch_json, local_path
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import CatalogRefusedError, CatalogUnavailableError, ConflictError, KeyRunningError, RegistryError
from registry.model import AccessToken, Role, digest_of, new_secret
from registry.server.issuers import Binding, Issuer
from registry.server.oidc import IdTokens
from registry.server.service import Service

AT_PORT = "http://127.0.0.1:9/"


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    started = LocalIssuer(keys=[public_jwk(name) for name in ("RS256", "ES256", "EdDSA", "PS256")]).start()
    yield started
    started.stop()


def issuer_of(issuer: LocalIssuer, *bindings: Binding, **options: Any) -> Issuer:
    usual = Binding(claims={"sub": "ci"}, role=Role.PUBLISHER, datasets=("lab_*", "new_digits"))
    return Issuer(name="local", url=issuer.url, bindings=bindings or (usual,), **options)


@pytest.fixture
def exchange(issuer: LocalIssuer, shared: SqlCatalog) -> Callable[..., AccessToken]:
    """Exchanges an ID token; ``of`` is other issuers than the usual."""
    service = Service(shared)
    usual = IdTokens(service, [issuer_of(issuer)], AUDIENCE)

    def run(text: str, *, of: IdTokens | None = None, nonce: str = "") -> AccessToken:
        token_id, _, digest = new_secret()
        return (of or usual).exchange(text, token_id, digest, nonce=nonce)

    return run


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
def test_an_id_token_gives_the_rights_of_its_binding(
    algorithm: str, issuer: LocalIssuer, exchange: Any, shared: SqlCatalog
) -> None:
    token = exchange(issuer.sign(algorithm=algorithm))
    assert token in shared.access.tokens()
    assert (token.name, token.role, token.datasets) == ("ci (local)", Role.PUBLISHER, ("lab_*", "new_digits"))
    assert token.created_by == issuer.url
    assert token.expires_at is not None
    assert (token.expires_at - token.created_at).total_seconds() == 900
    assert token.is_exchanged


def test_a_binding_covers_a_dataset_that_does_not_exist_yet(issuer: LocalIssuer, exchange: Any) -> None:
    token = exchange(issuer.sign())
    assert token.covers("new_digits", "plain")
    assert not token.covers("secret_digits")


NOW = time.time
WRONG: dict[str, tuple[Callable[[LocalIssuer], str], str]] = {
    "empty": (lambda _: "", "it is malformed"),
    "no ID token": (lambda _: "a.b", "it is malformed"),
    "an access token": (lambda _: new_secret()[1], "it is malformed"),
    "other characters": (lambda it: f"\u00e9{it.sign()}", "it is longer than 16,384 characters, or no ID token"),
    "huge": (lambda it: it.sign(x="x" * 20_000), "it is longer than 16,384 characters, or no ID token"),
    "nested": (lambda it: f"{it.sign().split('.')[0]}.{'W1tb' * 3000}.AA", "it is malformed"),
    "alg none": (lambda it: none_of(it.sign()), "its algorithm 'none' is not one of RS256, PS256, ES256, EdDSA"),
    "key confusion, PEM": (lambda it: confused(it, "PEM"), "its algorithm 'HS256' is not one of"),
    "key confusion, JWK": (lambda it: confused(it, "JWK"), "its algorithm 'HS256' is not one of"),
    "RS512": (
        lambda it: jwt.encode({"iss": it.url, "aud": AUDIENCE}, private_key("RS256"), "RS512", {"kid": "RS256-0"}),
        "its algorithm 'RS512' is not one of",
    ),
    "key of another type": (lambda it: it.sign(header={"kid": "ES256-0"}), "the key 'ES256-0' is not one for RS256"),
    "key for another algorithm": (
        lambda it: it.sign(header={"kid": "PS256-0"}),
        "the key 'PS256-0' is not one for RS256",
    ),
    "unknown key": (lambda it: it.sign(number=7), "the issuer has no key 'RS256-7'"),
    "no kid": (lambda it: it.sign(header={"kid": None}), "the issuer has no key None"),
    "another key": (lambda it: it.sign(key=private_key("RS256", 9)), "signature verification failed"),
    "changed claims": (
        lambda it: ".".join(
            a if n != 1 else it.sign(sub="root").split(".")[1] for n, a in enumerate(it.sign().split("."))
        ),
        "signature verification failed",
    ),
    "access token of the issuer": (lambda it: it.sign(header={"typ": "at+jwt"}), "it is another kind of token"),
    "critical extension": (lambda it: it.sign(header={"crit": ["x"], "x": 1}), ""),
    "issuer": (
        lambda it: it.sign(iss="https://evil.example"),
        "this service does not accept its issuer 'https://evil.example'",
    ),
    "issuer with a slash": (
        lambda it: it.sign(iss=f"{it.url}/"),
        "this service does not accept its issuer 'http://127.0.0.1:",
    ),
    "no issuer": (lambda it: it.sign(iss=None), "this service does not accept its issuer None"),
    "list of issuers": (
        lambda it: jwt.PyJWS().encode(json.dumps({"iss": [it.url]}).encode(), private_key("RS256"), "RS256"),
        "this service does not accept its issuer ['http://127.0.0.1:",
    ),
    "audience": (lambda it: it.sign(aud="other"), f"its audience is 'other', expected '{AUDIENCE}'"),
    "no audience": (lambda it: it.sign(aud=None), f"its audience is 'None', expected '{AUDIENCE}'"),
    "two audiences": (lambda it: it.sign(aud=[AUDIENCE, "other"]), "it was issued to another client, azp None"),
    "audience of objects": (lambda it: it.sign(aud=[AUDIENCE, {}]), ""),
    "expired": (lambda it: it.sign(exp=int(NOW()) - 61), "signature has expired"),
    "not valid yet": (lambda it: it.sign(nbf=int(NOW()) + 90), "the token is not yet valid (nbf)"),
    "issued in the future": (lambda it: it.sign(iat=int(NOW()) + 90), "the token is not yet valid (iat)"),
    "too long": (lambda it: it.sign(exp=int(NOW()) + 13 * 3600), "it is valid for more than 12 hours"),
    "infinite": (lambda it: it.sign(exp=float("inf")), ""),
    "no number": (lambda it: it.sign(exp=float("nan")), ""),
    "no exp": (lambda it: it.sign(exp=None), 'token is missing the "exp" claim'),
    "no iat": (lambda it: it.sign(iat=None), 'token is missing the "iat" claim'),
    "no sub": (lambda it: it.sign(sub=None), 'token is missing the "sub" claim'),
    "a number as sub": (lambda it: it.sign(sub=5), "subject must be a string"),
    "a nonce": (lambda it: it.sign(nonce="x"), "its nonce is that of another sign-in, or of another service"),
    "no binding": (lambda it: it.sign(sub="cd"), "no binding has its claims: sub 'cd'"),
}


@pytest.mark.parametrize("state", WRONG)
def test_a_wrong_id_token_is_refused(state: str, issuer: LocalIssuer, exchange: Any, shared: SqlCatalog) -> None:
    before = shared.access.tokens()
    make, reason = WRONG[state]
    text = make(issuer)
    with pytest.raises(CatalogRefusedError) as caught:
        exchange(text)
    assert caught.value.message.startswith(f"the catalog refuses the ID token: {reason}")
    assert text == "" or text not in caught.value.message
    assert caught.value.details == {"reason": "id_token", "sqlstate": None}
    assert shared.access.tokens() == before


KEYS: dict[str, tuple[dict[str, Any], str]] = {
    "for encryption": ({"use": "enc"}, "is not one for RS256"),
    "that only signs": ({"key_ops": ["sign"]}, "is not one for RS256"),
    "with odd operations": ({"key_ops": "verify"}, "is not one for RS256"),
    "of bytes": ({"kty": "oct", "k": "AAAA"}, "is not one for RS256"),
    "without a number": ({"n": None}, "of the issuer is malformed"),
    "with an odd number": ({"n": 5}, "of the issuer is malformed"),
}


@pytest.mark.parametrize("state", KEYS)
def test_a_wrong_key_of_the_issuer_is_not_used(state: str, issuer: LocalIssuer, exchange: Any) -> None:
    changes, reason = KEYS[state]
    issuer.keys = [public_jwk("RS256", **changes)]
    with pytest.raises(CatalogRefusedError, match=reason):
        exchange(issuer.sign())


def test_a_short_key_is_not_used(issuer: LocalIssuer, exchange: Any) -> None:
    issuer.keys = [public_jwk("short")]
    with (
        pytest.warns(Warning, match="1024|2048|below"),
        pytest.raises(CatalogRefusedError, match="less than 2048 bits"),
    ):
        exchange(issuer.sign(algorithm="short"))


def test_no_address_in_a_token_is_opened(issuer: LocalIssuer, exchange: Any) -> None:
    other = LocalIssuer(keys=[public_jwk("RS256", 5)]).start()
    text = issuer.sign(number=5, header={"jku": f"{other.url}/keys", "x5u": f"{other.url}/keys", "jwk": other.keys[0]})
    with pytest.raises(CatalogRefusedError, match="the issuer has no key 'RS256-5'"):
        exchange(text)
    other.stop()
    assert other.seen == []


def test_an_id_token_is_used_once(issuer: LocalIssuer, exchange: Any, shared: SqlCatalog) -> None:
    text = issuer.sign(algorithm="ES256")
    exchange(text)
    before = shared.access.tokens()
    head, _, signature = text.rpartition(".")
    r, s = (int.from_bytes(part) for part in (base64.urlsafe_b64decode(signature + "==")[i : i + 32] for i in (0, 32)))
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    other = base64.urlsafe_b64encode(r.to_bytes(32) + (order - s).to_bytes(32)).rstrip(b"=").decode()
    for again in (text, f"{head}.{other}"):  # everybody can make the second valid signature of an elliptic curve
        with pytest.raises(CatalogRefusedError, match="it was used before"):
            exchange(again)
    assert shared.access.tokens() == before


def test_whoever_got_no_answer_asks_again(issuer: LocalIssuer, shared: SqlCatalog) -> None:
    tokens, text = IdTokens(Service(shared), [issuer_of(issuer)], AUDIENCE), issuer.sign()
    token_id, _, digest = new_secret()
    first = tokens.exchange(text, token_id, digest)
    assert tokens.exchange(text, token_id, digest) == first
    with pytest.raises(ConflictError):  # another ID token does not take it over
        tokens.exchange(issuer.sign(), token_id, digest)


def test_of_many_uses_at_once_one_succeeds(issuer: LocalIssuer, catalog_url: str) -> None:
    with open_catalog(catalog_url) as opened:
        catalog = cast("SqlCatalog", opened)
        tokens, text = IdTokens(Service(catalog), [issuer_of(issuer)], AUDIENCE), issuer.sign()
        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(lambda _: is_exchanged(tokens, text), range(16))) == 1
        (token,) = catalog.access.tokens()
        assert token.name == "ci (local)"
        assert not is_exchanged(tokens, text)


def is_exchanged(tokens: IdTokens, text: str) -> bool:
    token_id, _, digest = new_secret()
    with suppress(CatalogRefusedError, KeyRunningError):
        tokens.exchange(text, token_id, digest)
        return True
    return False


def test_an_issuer_that_hangs_does_not_stop_the_service(issuer: LocalIssuer, shared: SqlCatalog) -> None:
    issuer.is_hanging = threading.Event()
    tokens = IdTokens(Service(shared), [issuer_of(issuer)], AUDIENCE)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(tokens.verify, issuer.sign())
        while not issuer.seen:
            time.sleep(0.01)
        with pytest.raises(CatalogUnavailableError, match="the issuer does not answer"):  # the first one still waits
            tokens.verify(issuer.sign())
        assert not first.done()
        issuer.is_hanging.set()
        first.result()
    tokens.verify(issuer.sign())
    assert issuer.seen == ["/.well-known/openid-configuration", "/keys"]


def test_sign_ins_that_wait_for_an_issuer_hold_up_nobody_else(service: TestServer, issuer: LocalIssuer) -> None:
    redirect_uri = AT_PORT + local_path(service.url)
    values = {"token_id": "1", "digest": "2", "code": "x", "issuer": "local", "redirect_uri": redirect_uri}
    assert post(service, values)[0] == 401  # the addresses of the issuer are known now
    issuer.is_hanging = threading.Event()
    with ThreadPoolExecutor(60) as pool:
        answers = [pool.submit(post, service, values) for _ in range(45)]
        while sum(map(Future.done, answers)) < 35:  # ten wait for the issuer
            time.sleep(0.01)
        assert {answer.result()[0] for answer in answers if answer.done()} == {503}
        assert urllib3.request("GET", f"{service.url}ready", timeout=5).status == 200
        issuer.is_hanging.set()
    assert post(service, values)[0] == 401


def test_keys_are_read_once_and_again_for_a_new_one(issuer: LocalIssuer, shared: SqlCatalog) -> None:
    clock = Clock()
    tokens = IdTokens(Service(shared), [issuer_of(issuer)], AUDIENCE, clock=clock)
    for _ in range(3):
        tokens.verify(issuer.sign())
    assert issuer.seen == ["/.well-known/openid-configuration", "/keys"]
    issuer.keys.append(public_jwk("RS256", 1))
    with pytest.raises(CatalogRefusedError, match="no key 'RS256-1'"):  # at most once a minute
        tokens.verify(issuer.sign(number=1))
    clock.now += 60
    tokens.verify(issuer.sign(number=1))
    assert issuer.seen.count("/keys") == 2
    for _ in range(5):
        with pytest.raises(CatalogRefusedError, match="no key 'RS256-2'"):
            tokens.verify(issuer.sign(number=2))
    assert issuer.seen.count("/keys") == 2
    issuer.keys.pop(0)  # a key that is no longer published is no longer used when the hour is over
    clock.now += 3600
    with pytest.raises(CatalogRefusedError, match="no key 'RS256-0'"):
        tokens.verify(issuer.sign())
    assert issuer.seen.count("/keys") == 3


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("max-age=600, public", 600), ("no-store", 3600), ("max-age=0", 60), ("max-age=999999999", 24 * 3600)],
)
def test_keys_are_fresh_for_as_long_as_the_issuer_says(
    header: str, seconds: int, issuer: LocalIssuer, shared: SqlCatalog
) -> None:
    clock, issuer.headers = Clock(), {"Cache-Control": header}
    tokens = IdTokens(Service(shared), [issuer_of(issuer)], AUDIENCE, clock=clock)
    tokens.verify(issuer.sign())
    clock.now += seconds - 1
    tokens.verify(issuer.sign())
    assert issuer.seen.count("/keys") == 1
    clock.now += 1
    tokens.verify(issuer.sign())
    assert issuer.seen.count("/keys") == 2


@pytest.mark.parametrize(
    "date", ["Mon, 30 Nov 2026 08:00:00 +99999999999999", "Mon, 30 Nov 99999999999999999999 08:00:00 GMT"]
)
def test_keys_are_read_whatever_date_the_issuer_sends(date: str, issuer: LocalIssuer, exchange: Any) -> None:
    issuer.date = date
    assert exchange(issuer.sign()).name == "ci (local)"


def test_known_keys_are_used_for_a_day_while_the_issuer_is_down(issuer: LocalIssuer, shared: SqlCatalog) -> None:
    clock = Clock()
    tokens = IdTokens(Service(shared), [issuer_of(issuer)], AUDIENCE, clock=clock)
    tokens.verify(issuer.sign())
    issuer.is_down = True
    clock.now += 24 * 3600 - 1
    tokens.verify(issuer.sign())
    assert len(issuer.seen) == 3
    tokens.verify(issuer.sign())
    assert len(issuer.seen) == 3  # it is not asked each time
    clock.now += 60
    with pytest.raises(CatalogUnavailableError):
        tokens.verify(issuer.sign())
    issuer.is_down = False
    clock.now += 5
    tokens.verify(issuer.sign())


def test_without_keys_the_service_says_to_try_again(issuer: LocalIssuer, shared: SqlCatalog) -> None:
    issuer.is_down, clock = True, Clock()
    tokens = IdTokens(Service(shared), [issuer_of(issuer)], AUDIENCE, clock=clock)
    for _ in range(2):
        with pytest.raises(CatalogUnavailableError, match="the issuer does not answer"):
            tokens.verify(issuer.sign())
    assert len(issuer.seen) == 1


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"issuer": "https://other.example"}, "names 'https://other.example'"),
        ({"issuer": None}, "names None"),
        ({"jwks_uri": "http://elsewhere.example/keys"}, "an address without encryption: http://elsewhere.example/keys"),
        ({"jwks_uri": "file:///etc/passwd"}, "an address without encryption"),
        ({"jwks_uri": None}, "an address without encryption"),
    ],
)
def test_a_wrong_discovery_document_is_refused(
    document: dict[str, Any], reason: str, issuer: LocalIssuer, exchange: Any
) -> None:
    issuer.document = document
    with pytest.raises(CatalogUnavailableError, match=reason):
        exchange(issuer.sign())


def test_answers_of_an_issuer_are_limited(issuer: LocalIssuer, exchange: Any) -> None:
    issuer.keys = [public_jwk("RS256", x5c="x" * 2**20)]
    with pytest.raises(CatalogUnavailableError):
        exchange(issuer.sign())
    with pytest.raises(CatalogUnavailableError, match="without encryption"):
        fetch_json("http://127.0.0.1:1/keys", like="https://issuer.example")


@pytest.mark.parametrize(
    ("scheme", "beginning"), [("http", b"HTTP/1.1 200 OK\r\n"), ("https", b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc")]
)
def test_an_issuer_that_sends_its_headers_or_its_handshake_byte_by_byte_is_left(
    monkeypatch: pytest.MonkeyPatch, scheme: str, beginning: bytes
) -> None:
    monkeypatch.setattr("registry.catalog.service.sign_in._FETCH_SECONDS", 0.5)
    monkeypatch.setattr(
        "registry.catalog.service.sign_in._SILENCE_SECONDS", 0.5
    )  # also of a whole handshake, which no timer cuts
    pieces = itertools.chain([beginning], itertools.repeat(b"a"))
    ended = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            while not ended.wait(0.05):
                connection.sendall(next(pieces))
        ended.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,), daemon=True)
        thread.start()
        with pytest.raises(CatalogUnavailableError, match="the issuer does not answer"):
            fetch_json(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/keys")
        thread.join(10)
        assert ended.is_set()  # its connection was closed


def test_an_issuer_that_redirects_is_not_followed(issuer: LocalIssuer) -> None:
    query = "response_type=code&code_challenge_method=S256&redirect_uri=http://evil.example/&state=1"
    with pytest.raises(CatalogUnavailableError):
        fetch_json(f"{issuer.url}/authorize?{query}")
    assert issuer.seen == ["/authorize"]


def test_an_address_that_was_not_verified_has_no_rights(issuer: LocalIssuer, shared: SqlCatalog, exchange: Any) -> None:
    binding = Binding(claims={"email": "*@example.org"}, role=Role.READER, actor="{email}")
    tokens = IdTokens(Service(shared), [issuer_of(issuer, binding)], AUDIENCE)
    assert (
        exchange(issuer.sign(email="ann@example.org", email_verified=True), of=tokens).name == "ann@example.org (local)"
    )
    for verified in (False, None, "yes", 1.5):
        with pytest.raises(CatalogRefusedError, match="no binding has its claims: email None"):
            exchange(issuer.sign(email="ann@example.org", email_verified=verified), of=tokens)


def test_the_first_binding_that_matches_counts(issuer: LocalIssuer, shared: SqlCatalog, exchange: Any) -> None:
    bindings = [
        Binding(claims={"groups": "data", "level": "5", "is_staff": "true"}, role=Role.ADMIN, actor="staff {level}"),
        Binding(claims={"groups": "data"}, role=Role.PUBLISHER, datasets=("lab_*",)),
        Binding(claims={"repository": "lab/*"}, role=Role.READER, actor="{repository}@{ref}"),
    ]
    tokens = IdTokens(Service(shared), [issuer_of(issuer, *bindings)], AUDIENCE)
    token = exchange(issuer.sign(groups=["web", "data"], level=5, is_staff=True), of=tokens)
    assert (token.name, token.role) == ("staff 5 (local)", Role.ADMIN)
    assert exchange(issuer.sign(groups=["data"], repository="lab/x"), of=tokens).role is Role.PUBLISHER
    token = exchange(issuer.sign(repository="lab/x", ref="refs/heads/main", groups={"data": 1}), of=tokens)
    assert (token.name, token.role) == ("lab/x@refs/heads/main (local)", Role.READER)
    with pytest.raises(CatalogRefusedError, match=re.escape("it lacks a claim of '{repository}@{ref}'")):
        exchange(issuer.sign(repository="lab/x"), of=tokens)
    with pytest.raises(RegistryError):
        exchange(issuer.sign(repository="lab/x", ref="\u202e"), of=tokens)
    with pytest.raises(CatalogRefusedError, match="no binding has its claims"):
        exchange(issuer.sign(groups="database", repository="elsewhere/lab/x"), of=tokens)


def test_a_client_accepts_only_its_own_tokens(issuer: LocalIssuer, shared: SqlCatalog, exchange: Any) -> None:
    tokens = IdTokens(Service(shared), [issuer_of(issuer, client_id="app")], AUDIENCE)
    assert exchange(issuer.sign(aud=["app", "other"], azp="app"), of=tokens).role is Role.PUBLISHER
    for claims in (
        {"aud": "app", "azp": "other"},
        {"aud": ["app", "other"], "azp": "other"},
        {"aud": ["app", "other"]},
    ):
        with pytest.raises(CatalogRefusedError, match="it was issued to another client"):
            exchange(issuer.sign(claims), of=tokens)
    with pytest.raises(CatalogRefusedError, match="expected 'app'"):
        exchange(issuer.sign(), of=tokens)


# Over HTTP.


@pytest.fixture
def service(issuer: LocalIssuer, shared: SqlCatalog) -> Iterator[TestServer]:
    people = issuer_of(issuer, Binding(claims={"email": "ann@example.org"}, role=Role.READER), client_id="app")
    started = TestServer(issuers=(issuer_of(issuer), people))
    started.service.catalog = shared
    yield started
    started.stop()


def post(service: TestServer, values: Any) -> tuple[int, Any]:
    body = values if isinstance(values, bytes) else json.dumps(values).encode()
    answer = urllib3.request("POST", f"{service.url}api/v1/sign-in", body=body, retries=False)
    return answer.status, answer.json()


def test_a_job_signs_in_over_http_and_publishes(service: TestServer, issuer: LocalIssuer, shared: SqlCatalog) -> None:
    token_id, text, digest = new_secret()
    status, values = post(service, {"id_token": issuer.sign(aud=service.url), "token_id": token_id, "digest": digest})
    assert (status, values["id"], values["name"]) == (200, token_id, "ci (local)")
    login = {"Authorization": f"Bearer {text}"}
    answer = urllib3.request("POST", f"{service.url}api/v1/require_publisher", body=b"{}", headers=login)
    assert answer.status == 200
    assert text not in json.dumps(values)
    assert shared.access.authenticate(digest_of(text)) is not None


def test_refused_id_tokens_are_in_the_audit_log(service: TestServer, issuer: LocalIssuer, shared: SqlCatalog) -> None:
    token_id, _, digest = new_secret()
    for text, principal in ((issuer.sign(aud="other"), "(local)"), ("x", "(an ID token)")):
        status, values = post(service, {"id_token": text, "token_id": token_id, "digest": digest})
        assert (status, values["title"]) == (401, "CatalogRefusedError")
        end = time.monotonic() + 30
        while principal not in {refusal.principal for refusal in shared.access.refusals()}:  # noted after the answer
            assert time.monotonic() < end
            time.sleep(0.01)
        refusal = shared.access.refusals()[0]
        assert (refusal.token, refusal.principal, refusal.call) == (None, principal, "sign_in")
        assert refusal.reason == values["detail"]
        assert text == "x" or text not in refusal.reason


@pytest.mark.parametrize(
    ("values", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"{" * 20_000, 400),
        (b"x" * 40_000, 413),
        ({}, 400),
        ({"id_token": "x", "token_id": "1"}, 400),
        ({"id_token": 1, "token_id": "1", "digest": "2"}, 400),
        ({"id_token": "x", "code": "x", "token_id": "1", "digest": "2"}, 400),
        ({"id_token": "x", "token_id": "1", "digest": "2", "role": "admin"}, 400),
        ({"token_id": "1", "digest": "2", "code": "x"}, 404),
        ({"token_id": "1", "digest": "2", "code": "x", "issuer": "local"}, 400),
        (
            {"token_id": "1", "digest": "2", "code": "x", "issuer": "local", "redirect_uri": "https://evil.example/"},
            400,
        ),
        (
            {"token_id": "1", "digest": "2", "code": "x", "issuer": "local", "redirect_uri": "http://127.0.0.1:9/"},
            400,
        ),
        (  # of a sign-in to another service, which has the code and all the rest
            {"token_id": "1", "digest": "2", "code": "x", "issuer": "local", "redirect_uri": f"{AT_PORT}evil.example/"},
            400,
        ),
        ({"token_id": "1", "digest": "2", "code": "x", "issuer": "local", "redirect_uri": "that of the service"}, 401),
    ],
)
def test_a_malformed_request_is_refused(service: TestServer, values: Any, status: int) -> None:
    if isinstance(values, dict) and values.get("redirect_uri") == "that of the service":
        values = values | {"redirect_uri": AT_PORT + local_path(service.url)}
    assert post(service, values)[0] == status


def test_the_access_token_has_to_be_well_formed(service: TestServer, issuer: LocalIssuer) -> None:
    for token_id, digest in (("x", "0" * 64), ("0" * 12, "x")):
        text = issuer.sign(aud=service.url)
        status, _ = post(service, {"id_token": text, "token_id": token_id, "digest": digest})
        assert status == 400
    token_id, _, digest = new_secret()  # what was refused for another reason was not used
    assert post(service, {"id_token": text, "token_id": token_id, "digest": digest})[0] == 200


def test_clients_learn_the_issuers(service: TestServer, issuer: LocalIssuer) -> None:
    values = urllib3.request("GET", f"{service.url}api/v1/sign-in").json()
    assert values == {
        "issuers": [
            {"name": "local", "url": issuer.url, "audience": service.url},
            {
                "name": "local",
                "url": issuer.url,
                "audience": "app",
                "client_id": "app",
                "scope": "openid email",
                "authorization_endpoint": f"{issuer.url}/authorize?tenant=1",
            },
        ]
    }


def test_a_service_without_issuers_refuses_every_id_token(server: TestServer, issuer: LocalIssuer, shared: Any) -> None:
    server.service.catalog = shared
    assert urllib3.request("GET", f"{server.url}api/v1/sign-in").json() == {"issuers": []}
    status, values = post(server, {"id_token": issuer.sign(), "token_id": secrets.token_hex(6), "digest": "0" * 64})
    assert (status, values["detail"]) == (401, "the catalog refuses the ID token: this service has no issuers")
