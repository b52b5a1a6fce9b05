"""Exchanges ID tokens of other issuers for access tokens of the catalog: for people, and for the jobs of a CI.

    ID token -> signed by a key of its issuer? for this service, now, for the first time? -> its claims -> a binding
             -> an access token in the table of the others: it is listed, expires and can be revoked as they do

No address in a token is opened: an issuer is one of the setting, and names its keys in its discovery document. An ID
token is used once: the exchange is a call whose idempotency key is the digest of what is signed, so that a client
that asks again with the same new access token gets the first answer, and anybody else an error.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote_plus

from registry.api.doctor import Level
from registry.catalog.service.messages import Reading, codec, load_json, load_value
from registry.catalog.service.sign_in import fetch_json, is_secure_url, issuer_fault, local_path, nonce_of
from registry.catalog.service_index import SIGN_IN_PATH
from registry.catalog.web_urls import site_url
from registry.errors import (
    CatalogRefusedError,
    CatalogUnavailableError,
    KeyReusedError,
    NotFoundError,
    UsageError,
    require_extra,
)
from registry.escaping import printable
from registry.model import AccessToken
from registry.server.gate import Gate, Seats, current_exchange
from registry.server.issuers import Binding, Issuer
from registry.splits import counted

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

_ALGORITHMS: Final[Mapping[str, tuple[str, str | None]]] = {
    "RS256": ("RSA", None),
    "PS256": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""The algorithms of signatures, each with the type and the curve of its keys."""

_LEAST_RSA_BITS: Final = 2048
_MOST_TEXT: Final = 2**14
_MOST_BODY: Final = 2**15
_MOST_KEYS: Final = 100
_LEEWAY: Final = 60
_MOST_LIFETIME: Final = 12 * 3600
"""Seconds that an ID token may still be valid. A used one is remembered for a day (``kept_answers``)."""

_REQUIRED: Final = ["iss", "sub", "aud", "exp", "iat"]
_FRESH_SECONDS: Final = 3600
_LEAST_FRESH: Final = 60
_MOST_FRESH: Final = 24 * 3600
_STALE_SECONDS: Final = 24 * 3600
"""How long keys are used after they were read, while their issuer does not answer."""

_PAUSE: Final = 60
_FIRST_PAUSE: Final = 5
"""Seconds between two requests for keys: if there are some, and if there are none."""

_WAIT_SECONDS: Final = 1
"""How long a thread waits for another one that reads the first keys."""

_MOST_AT_ONCE: Final = 10
"""Sign-ins that a worker answers at a time: a quarter of its threads."""

_LOCAL: Final = re.compile(r"http://127\.0\.0\.1:[0-9]{1,5}/(.*)")
_FIELDS: Final = frozenset(
    {"id_token", "issuer", "code", "code_verifier", "redirect_uri", "nonce", "token_id", "digest"}
)
_JSON: Final = {"Content-Type": "application/json"}

_logger = logging.getLogger(__name__)


class _Service(Protocol):
    """What is needed of ``registry.server.service.Service``."""

    catalog: Any


class IssuerKeys:
    """The discovery document and the keys of one issuer, as they were read last. Threads share it.

    They are read again when they are no longer fresh (``Cache-Control``, else an hour), and, at most once a minute,
    for a key that is not among them. While the issuer does not answer, they are used for a day.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._clock = clock
        self._lock = threading.Lock()
        self._document: Mapping[str, Any] = {}
        self._keys: Mapping[str, Mapping[str, Any]] = {}
        self._fresh_until = self._stale_after = self._tried = float("-inf")
        self.seconds_ahead = 0.0
        """How far the clock of the issuer is ahead of that of this machine, as far as it says."""

    @property
    def usable(self) -> Mapping[str, str]:
        """An algorithm of each key that verifies ID tokens, by its id; of those that were read last."""
        result = {}
        for kid, key in self._keys.items():
            for algorithm in _ALGORITHMS:
                with suppress(ValueError):
                    parse_key(key, algorithm)
                    result[kid] = algorithm
        return result

    def find(self, kid: str) -> Mapping[str, Any] | None:
        """The key with this id as a JSON Web Key; None if the issuer has none.

        Raises:
            CatalogUnavailableError: the issuer does not answer, and no keys of it are known.
        """
        if self._clock() >= self._fresh_until or kid not in self._keys:
            self._refresh()
        return self._keys.get(kid)

    def document(self) -> Mapping[str, Any]:
        """The discovery document; raises as ``find``."""
        if self._clock() >= self._fresh_until:
            self._refresh()
        return self._document

    def _refresh(self) -> None:
        # While another thread reads, this one uses what it has. A hanging issuer must not occupy all threads.
        if not self._lock.acquire(timeout=0 if self._keys else _WAIT_SECONDS):
            if not self._keys:
                raise issuer_fault("the issuer does not answer")
            return
        try:
            if self._clock() < self._tried + (_PAUSE if self._keys else _FIRST_PAUSE):
                if not self._keys:
                    raise issuer_fault("the issuer does not answer")
                return
            try:
                self.read()
            except CatalogUnavailableError as error:
                _logger.warning("the keys of %s cannot be read: %s", self._url, error)
                if self._clock() >= self._stale_after:
                    self._keys = {}
                if not self._keys:
                    raise
            finally:
                self._tried = self._clock()
        finally:
            self._lock.release()

    def read(self) -> None:
        """Ask the issuer; raises CatalogUnavailableError."""
        fetch = partial(fetch_json, like=self._url)
        status, document, _ = fetch(f"{self._url.rstrip('/')}/.well-known/openid-configuration")
        if status != 200 or document.get("issuer") != self._url:
            raise issuer_fault(f"the discovery document names {document.get('issuer')!r:.200}, expected {self._url!r}")
        status, answer, headers = fetch(str(document.get("jwks_uri", "")))
        entries = answer.get("keys")
        if status != 200 or not isinstance(entries, list):
            raise issuer_fault(f"the issuer {self._url} has no keys")
        keys = [entry for entry in entries[:_MOST_KEYS] if isinstance(entry, dict)]
        age = re.search(r"\bmax-age=([0-9]{1,9})\b", headers.get("Cache-Control", ""))
        seconds = _FRESH_SECONDS if age is None else min(max(int(age[1]), _LEAST_FRESH), _MOST_FRESH)
        now = self._clock()
        kept = re.fullmatch(r"[0-9]{1,9}", headers.get("Age", "")) or "0"  # seconds in a cache, which keeps the Date
        with suppress(ValueError, OverflowError):
            self.seconds_ahead = parsedate_to_datetime(headers.get("Date", "")).timestamp() + int(kept[0]) - time.time()
        self._document = document
        self._keys = {entry["kid"]: entry for entry in keys if isinstance(entry.get("kid"), str)}
        self._fresh_until, self._stale_after = now + seconds, now + _STALE_SECONDS


class IdTokens:
    """Verifies ID tokens of the issuers of a service, and exchanges them. Threads share it.

    Attributes:
        issuers: those with which people sign in, by name.
    """

    def __init__(
        self, service: _Service, issuers: Sequence[Issuer], url: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``url`` is that of the service: the audience of ID tokens for programs."""
        self._service = service
        self._all = issuers
        self._url = url
        self._keys = {issuer.url: IssuerKeys(issuer.url, clock=clock) for issuer in issuers}
        self._seats = Seats(_MOST_AT_ONCE, "others are signing in")
        self.issuers = {issuer.name: issuer for issuer in issuers if issuer.client_id}

    async def in_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        """What ``work`` returns, in one of few threads: those who wait for an issuer hold up nobody else.

        Raises:
            CatalogUnavailableError: all of them are taken.
        """
        from starlette.concurrency import run_in_threadpool

        with self._seats.take():
            return await run_in_threadpool(work, *args)

    def issuer(self, name: str) -> Issuer:
        """The issuer of this name with which people sign in; raises NotFoundError."""
        if name not in self.issuers:
            raise NotFoundError(f"people do not sign in with {name!r:.80}", details={"name": name[:80]})
        return self.issuers[name]

    def endpoint(self, issuer: Issuer, name: str) -> str:
        """An address of the discovery document.

        Raises:
            CatalogUnavailableError: the issuer does not answer, or names none with encryption.
        """
        address = self._keys[issuer.url].document().get(name)
        if not is_secure_url(address, like=issuer.url):
            raise issuer_fault(f"the discovery document of the issuer {issuer.name} lacks {name}")
        return str(address)

    def describe(self) -> dict[str, Any]:
        """Whose ID tokens are accepted, for clients. Issuers that do not answer have no ``authorization_endpoint``."""
        result = []
        for issuer in self._all:
            entry = {"name": issuer.name, "url": issuer.url, "audience": self._audience(issuer)}
            if issuer.client_id:
                entry |= {"client_id": issuer.client_id, "scope": issuer.scope}
                try:
                    entry["authorization_endpoint"] = self.endpoint(issuer, "authorization_endpoint")
                except CatalogUnavailableError as error:
                    _logger.warning("people cannot sign in with %s: %s", issuer.name, error)
            result.append(entry)
        return {"issuers": result}

    def require_own(self, redirect_uri: str) -> None:
        """Raise UsageError unless a browser was led back to a program that signs in to this service."""
        match, path = _LOCAL.fullmatch(redirect_uri), local_path(self._url)
        if match is None or match[1] != path:
            raise UsageError(f"redirect_uri must be http://127.0.0.1:PORT/{path}", details={"argument": "redirect_uri"})

    def redeem(self, issuer: Issuer, code: str, verifier: str, redirect_uri: str) -> str:
        """The ID token for a code with which an issuer led a browser back (RFC 6749, 4.1.3).

        Raises:
            CatalogRefusedError: the issuer refuses the code.
            CatalogUnavailableError: it does not answer.
        """
        address = self.endpoint(issuer, "token_endpoint")
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
        form |= {"client_id": issuer.client_id, "code_verifier": verifier}
        headers = {}
        if issuer.client_secret:
            methods = self._keys[issuer.url].document().get("token_endpoint_auth_methods_supported")
            if isinstance(methods, list) and "client_secret_basic" not in methods:
                form["client_secret"] = issuer.client_secret
            else:
                pair = f"{quote_plus(issuer.client_id)}:{quote_plus(issuer.client_secret)}"
                headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        status, answer, _ = fetch_json(address, form=form, headers=headers, like=issuer.url)
        if status != 200 or not isinstance(answer.get("id_token"), str):
            raise _refusal(f"the issuer issued no ID token for the code: {answer.get('error', status)!r:.80}", issuer)
        return str(answer["id_token"])

    def exchange(self, text: str, token_id: str, digest: str, *, nonce: str = "") -> AccessToken:
        """Let the holder of an ID token call the catalog with a new access token.

        Args:
            text: the ID token.
            token_id: that of the new access token.
            digest: the sha256 of its text, which only its holder knows.
            nonce: the secret from which the nonce of the ID token was made, see ``nonce_of``; "" if it has none.

        Raises:
            CatalogRefusedError: the ID token is invalid, was used before, or no binding matches.
            CatalogUnavailableError: the issuer does not answer, and its keys are not known.
            UsageError, ConflictError: see ``create_token``.
        """
        issuer, claims = self.verify(text, nonce=nonce)
        binding = next((each for each in issuer.bindings if each.matches(claims)), None)
        if binding is None:
            raise _refusal(f"no binding has its claims: {_describe(issuer, claims)}", issuer)
        name = self._actor(issuer, binding, claims)
        access = self._service.catalog.access

        def make() -> bytes:
            token = access.create_token(
                token_id,
                digest,
                name,
                binding.role,
                datasets=binding.datasets,
                expires_in=timedelta(minutes=issuer.minutes),
                actor=issuer.url,
            )
            return json.dumps(codec(AccessToken).dump(token)).encode()

        # What is signed; the text of a signature can be changed so that it stays valid.
        key = f"id-token-{hashlib.sha256(text.rpartition('.')[0].encode()).hexdigest()}"
        request = hashlib.sha256(f"{token_id} {digest}".encode()).hexdigest()
        try:
            answer, *_ = self._service.catalog.answer_once(key, issuer.url, "sign-in", request, make)
        except KeyReusedError:
            raise _refusal("it was used before", issuer) from None
        reading = Reading(shards=self._service.catalog.shards)
        token: AccessToken = load_value(AccessToken, json.loads(answer), reading, "the answer")
        return token

    def verify(self, text: str, *, nonce: str = "") -> tuple[Issuer, dict[str, Any]]:
        """The issuer and the claims of an ID token; an e-mail address that the issuer has not verified is left out.

        Raises:
            CatalogRefusedError: why it is not valid here.
            CatalogUnavailableError: see ``exchange``.
        """
        if not self._all:
            raise _refusal("this service has no issuers")
        if len(text) > _MOST_TEXT or not text.isascii():
            raise _refusal(f"it is longer than {_MOST_TEXT:,} characters, or no ID token")
        import jwt

        try:
            parts = jwt.decode_complete(text, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise _refusal("it is malformed") from None
        issuer = self._issuer_of(parts["payload"])
        key, algorithm = self._key(issuer, parts["header"])
        try:
            claims = jwt.decode(
                text,
                key,
                algorithms=[algorithm],
                audience=self._audience(issuer),
                issuer=issuer.url,
                leeway=_LEEWAY,
                options={"require": _REQUIRED},
            )
            lifetime = float(claims["exp"]) - time.time()
        except (jwt.PyJWTError, ValueError, TypeError, ArithmeticError) as error:
            raise _refusal(f"{str(error)[:1].lower()}{str(error)[1:200]}", issuer) from error
        if not lifetime < _MOST_LIFETIME:
            raise _refusal("it is valid for more than 12 hours", issuer)
        azp = claims.get("azp")
        is_for_several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        has_client = azp is not None and issuer.client_id != ""
        if (is_for_several or has_client) and azp != (issuer.client_id or self._audience(issuer)):
            raise _refusal(f"it was issued to another client, azp {azp!r:.80}", issuer)
        if (nonce or "nonce" in claims) and claims.get("nonce") != nonce_of(self._url, nonce):
            raise _refusal("its nonce is that of another sign-in, or of another service", issuer)
        if claims.get("email_verified") not in (True, "true"):
            claims.pop("email", None)
        return issuer, claims

    def _issuer_of(self, claims: Mapping[str, Any]) -> Issuer:
        """The issuer that an ID token names, for one of its audiences. Nothing is verified yet."""
        issuers = [issuer for issuer in self._all if issuer.url == claims.get("iss")]
        if not issuers:
            raise _refusal(f"this service does not accept its issuer {claims.get('iss')!r:.200}")
        audiences = claims.get("aud")
        audiences = audiences if isinstance(audiences, list) else [audiences]
        for issuer in issuers:
            if self._audience(issuer) in audiences:
                return issuer
        expected = " or ".join(map(self._audience, issuers))
        raise _refusal(f"its audience is {', '.join(map(str, audiences))!r:.200}, expected {expected!r}", issuers[0])

    def _key(self, issuer: Issuer, header: Mapping[str, Any]) -> tuple[Any, str]:
        """The key that the header of an ID token names, and the algorithm, which fits it."""
        algorithm, kid = str(header.get("alg")), header.get("kid")
        if algorithm not in _ALGORITHMS:
            raise _refusal(f"its algorithm {algorithm!r:.40} is not one of {', '.join(_ALGORITHMS)}", issuer)
        if str(header.get("typ", "JWT")).lower() != "jwt" or "crit" in header:
            raise _refusal("it is another kind of token", issuer)
        key = self._keys[issuer.url].find(kid) if isinstance(kid, str) else None
        if key is None:
            raise _refusal(f"the issuer has no key {kid!r:.80}", issuer)
        try:
            return parse_key(key, algorithm), algorithm
        except ValueError as error:
            raise _refusal(f"the key {kid!r:.80} {error}", issuer) from None

    def _audience(self, issuer: Issuer) -> str:
        return issuer.audience or self._url

    def _actor(self, issuer: Issuer, binding: Binding, claims: Mapping[str, Any]) -> str:
        """The name of the new token. It ends with the issuer, so no two issuers can make the same."""
        actor = binding.actor_of(claims)
        if actor is None:
            raise _refusal(f"it lacks a claim of {binding.actor!r:.80}, or its e-mail address is not verified", issuer)
        return f"{actor} ({issuer.name})"


def parse_key(key: Mapping[str, Any], algorithm: str) -> Any:
    """The key that a JSON Web Key describes, to verify signatures of one of the accepted algorithms.

    Raises:
        ValueError: the key is malformed, too short, or not for this algorithm.
    """
    with require_extra("server", package="PyJWT[crypto]", needed_for="issuers of ID tokens"):
        import jwt

    kind, curve = _ALGORITHMS[algorithm]
    operations = key.get("key_ops", ["verify"])
    is_usable = (
        key.get("kty") == kind
        and key.get("crv") == curve
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and isinstance(operations, list)
        and "verify" in operations
    )
    if not is_usable:
        raise ValueError(f"is not one for {algorithm}")
    try:
        public = {name: value for name, value in key.items() if name in ("kty", "crv", "n", "e", "x", "y")}
        parsed = jwt.PyJWK(public, algorithm=algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        raise ValueError("of the issuer is malformed") from None
    if kind == "RSA" and parsed.key.key_size < _LEAST_RSA_BITS:
        raise ValueError(f"has less than {_LEAST_RSA_BITS} bits")
    return parsed


def examine_issuer(issuer: Issuer) -> tuple[Level, str, str]:
    """Ask an issuer for what the service needs of it; an examination of ``registry.api.doctor``.

    Raises:
        CatalogUnavailableError: it does not answer, or has no keys.
        MissingExtraError: PyJWT is not installed.
    """
    keys = IssuerKeys(issuer.url)
    keys.read()
    document, algorithms = keys.document(), sorted(set(keys.usable.values()))
    if not algorithms:
        hint = "ID tokens of this issuer are refused. Ask its admin for one of these algorithms."
        return Level.PROBLEM, f"{issuer.url} has no key for {', '.join(_ALGORITHMS)}", hint
    for name in ("authorization_endpoint", "token_endpoint") if issuer.client_id else ():
        if not is_secure_url(document.get(name), like=issuer.url):
            hint = "People cannot sign in. Ask the admin of the issuer, or remove client_id."
            return Level.PROBLEM, f"the discovery document of {issuer.url} lacks {name}", hint
    if abs(keys.seconds_ahead) > _LEEWAY:
        side = "behind" if keys.seconds_ahead > 0 else "ahead of"
        text = f"the clock of this machine is {abs(keys.seconds_ahead):.0f} seconds {side} that of {issuer.url}"
        return Level.PROBLEM, text, "Correct the clock: ID tokens that are too new or too old are refused."
    text = f"{issuer.url} answers, its clock agrees, and it has {counted(len(keys.usable), 'key')}"
    return Level.OK, f"{text} for {', '.join(algorithms)}", ""


def sign_in_routes(tokens: IdTokens, gate: Gate) -> list[Route]:
    """GET names the issuers, and POST exchanges an ID token, or the code with which a browser came back."""
    from starlette.responses import Response
    from starlette.routing import Route

    async def sign_in(request: Request) -> Response:
        if request.method != "POST":
            return Response(json.dumps(await tokens.in_thread(tokens.describe)), headers=_JSON)
        body = await gate.read_body(request, _MOST_BODY)
        token = await tokens.in_thread(exchange, _values_of(body))
        return Response(json.dumps(codec(AccessToken).dump(token)), headers=_JSON)

    def exchange(values: Mapping[str, str]) -> AccessToken:
        def enter(_proof: str) -> AccessToken:
            text = values.get("id_token", "")
            if "code" in values:
                issuer = tokens.issuer(values.get("issuer", ""))
                redirect_uri = values.get("redirect_uri", "")
                tokens.require_own(redirect_uri)
                text = tokens.redeem(issuer, values["code"], values.get("code_verifier", ""), redirect_uri)
            return tokens.exchange(text, values["token_id"], values["digest"], nonce=values.get("nonce", ""))

        return gate.authenticate(enter, values.get("id_token") or values.get("code", ""))

    return [Route(f"/{SIGN_IN_PATH}", sign_in, methods=["GET", "POST"])]


def _values_of(body: bytes) -> dict[str, str]:
    """The fields of a request to exchange an ID token.

    Raises:
        UsageError: it is not JSON, or a field is missing, unknown or not a text.
    """
    values = load_json(body, "the body of the request")
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise UsageError("the body of the request must be a JSON object of texts")
    if not values.keys() <= _FIELDS or not {"token_id", "digest"} <= values.keys():
        raise UsageError(
            "the request needs token_id, digest, and id_token or code", hint="docs/sign-in.md has a sample."
        )
    if ("id_token" in values) == ("code" in values):
        raise UsageError("the request must have only one of id_token and code")
    return values


def _describe(issuer: Issuer, claims: Mapping[str, Any]) -> str:
    """The claims of an ID token that bindings of its issuer compare."""
    names = sorted({name for binding in issuer.bindings for name in binding.claims})
    return ", ".join(f"{name} {claims.get(name)!r:.100}" for name in names)


def _refusal(reason: str, issuer: Issuer | None = None) -> CatalogRefusedError:
    """The error for an ID token; the gate notes it for the issuer."""
    current_exchange().principal = "(an ID token)" if issuer is None else f"({issuer.name})"
    return CatalogRefusedError(
        f"the catalog refuses the ID token: {printable(reason)}",
        hint="docs/sign-in.md lists the checks. An admin of the catalog knows the bindings.",
        details={"reason": "id_token", "sqlstate": None},
    )


def url_of_service(public_url: str | None) -> str:
    """The URL for which ID tokens are: ``public_url`` in its one spelling; "" without."""
    return "" if public_url is None else site_url(public_url)
