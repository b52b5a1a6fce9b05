"""An issuer of ID tokens (OpenID Connect) on this machine: its discovery document, keys, sign-in and token endpoint."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from html import escape
from typing import Any
from urllib.parse import parse_qsl, quote_plus, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from support import http_servers
from support.http_servers import running

AUDIENCE = "https://catalog.example/"


@cache
def private_key(algorithm: str, number: int = 0) -> Any:
    """A key of this process for an algorithm."""
    if algorithm == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=1024 if algorithm == "short" else 2048)


def public_jwk(algorithm: str, number: int = 0, **changes: Any) -> dict[str, Any]:
    """The JSON Web Key of ``private_key``; its ``kid`` is e.g. ``RS256-0``."""
    name = "RS256" if algorithm == "short" else algorithm
    encoder = jwt.get_algorithm_by_name(name)
    values = json.loads(encoder.to_jwk(private_key(algorithm, number).public_key()))
    values = {key: value for key, value in values.items() if key != "key_ops"}
    values |= {"kid": f"{algorithm}-{number}", "use": "sig", "alg": name}
    return {key: value for key, value in (values | changes).items() if value is not None}


@dataclass
class LocalIssuer:
    """A running issuer.

    Attributes:
        url: the claim ``iss``.
        keys: the keys that it publishes.
        headers: the headers of the response with the keys.
        document: values that its discovery document has in addition to, or in place of, the usual ones.
        seen: the path of each request.
        is_down: whether it answers 500 to everything.
        is_hanging: it answers when this is set.
        person: the claims of the person who signs in, or None if they refuse.
        client_secret: the secret of its clients; None for public ones.
        host: the name of this machine in its URL.
        clock: how many seconds its clock is ahead of that of this machine.
        date: the header ``Date`` of its answers; "" for that of its clock.
        asks: whether it shows a page with a link before it leads a browser back.
    """

    url: str = ""
    host: str = "127.0.0.1"
    asks: bool = False
    clock: int = 0
    date: str = ""
    keys: list[dict[str, Any]] = field(default_factory=lambda: [public_jwk("RS256")])
    headers: dict[str, str] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    is_down: bool = False
    is_hanging: threading.Event | None = None
    person: dict[str, Any] | None = field(
        default_factory=lambda: {"sub": "1", "email": "ann@example.org", "email_verified": True}
    )
    client_secret: str | None = None
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)
    _server: ExitStack = field(default_factory=ExitStack)

    def start(self) -> LocalIssuer:
        issuer = self

        class Handler(http_servers.Handler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                issuer.seen.append(urlsplit(self.path).path)
                form = dict(parse_qsl(self.body().decode()))
                status, content, headers = issuer.answer(self.path, form, self.headers)
                self.answer(status, headers, content)

            do_POST = do_GET

            def date_time_string(self, timestamp: float | None = None) -> str:
                return issuer.date or super().date_time_string((timestamp or time.time()) + issuer.clock)

        self.url = f"http://{self.host}:{self._server.enter_context(running(Handler))}"
        return self

    def stop(self) -> None:
        self._server.close()

    def answer(
        self, address: str, form: dict[str, str], headers: Mapping[str, str]
    ) -> tuple[int, bytes, dict[str, str]]:
        """The status, the body and the headers of an answer."""
        path, query = urlsplit(address).path, dict(parse_qsl(urlsplit(address).query))
        if self.is_hanging is not None:
            self.is_hanging.wait(30)
        if self.is_down:
            return 500, b"", {}
        match path:
            case "/.well-known/openid-configuration":
                document = {
                    "issuer": self.url,
                    "jwks_uri": f"{self.url}/keys",
                    "authorization_endpoint": f"{self.url}/authorize?tenant=1",
                    "token_endpoint": f"{self.url}/token",
                }
                return 200, json.dumps(document | self.document).encode(), {}
            case "/keys":
                return 200, json.dumps({"keys": self.keys}).encode(), self.headers
            case "/authorize" if self.asks:
                text = f'<!doctype html><title>x</title><a href="{escape(self._authorize(query))}">Yes, it is me</a>'
                return 200, text.encode(), {"Content-Type": "text/html"}
            case "/authorize":
                return 302, b"", {"Location": self._authorize(query)}
            case "/token":
                return self._redeem(form, headers)
            case "/ci":  # as GitHub Actions answers to a job
                if headers.get("Authorization") != "Bearer secret of the job":
                    return 403, b"{}", {}
                token = self.sign({"sub": "ci", "repository": "lab/digits"}, aud=query["audience"])
                return 200, json.dumps({"value": token}).encode(), {}
        return 404, b"{}", {}

    def _authorize(self, query: dict[str, str]) -> str:
        """Return the address to which the browser is redirected, if the person signs in without a prompt."""
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        if self.person is None:
            return f"{query['redirect_uri']}?{urlencode({'error': 'access_denied', 'state': query['state']})}"
        code = secrets.token_urlsafe(8)
        self._codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state'], 'iss': self.url})}"

    def _redeem(self, form: dict[str, str], headers: Mapping[str, str]) -> tuple[int, bytes, dict[str, str]]:
        query = self._codes.pop(form.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if self.client_secret is not None:
            pair = ":".join(map(quote_plus, (form["client_id"], self.client_secret))).encode()
            if headers.get("Authorization") != f"Basic {base64.b64encode(pair).decode()}":
                return 401, b'{"error": "invalid_client"}', {}
        if (
            query is None
            or form["redirect_uri"] != query["redirect_uri"]
            or query["code_challenge"] != challenge.decode().rstrip("=")
        ):
            return 400, b'{"error": "invalid_grant"}', {}
        token = self.sign({**(self.person or {}), "nonce": query["nonce"]}, aud=query["client_id"])
        return 200, json.dumps({"id_token": token, "access_token": "unused"}).encode(), {}

    def sign(
        self,
        claims: Mapping[str, Any] | None = None,
        *,
        algorithm: str = "RS256",
        number: int = 0,
        key: Any = None,
        header: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> str:
        """An ID token. A claim or a field of the header that is None is left out."""
        now = int(time.time())
        values = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "ci",
            "iat": now,
            "exp": now + 300,
            "jti": secrets.token_hex(8),
        }
        values |= {**(claims or {}), **changes}
        fields = {"kid": f"{algorithm}-{number}", **(header or {})}
        name = "RS256" if algorithm == "short" else algorithm
        return str(
            jwt.encode(
                {name: value for name, value in values.items() if value is not None},
                private_key(algorithm, number) if key is None else key,
                algorithm=name,
                headers={name: value for name, value in fields.items() if value is not None},
            )
        )


def none_of(text: str) -> str:
    """The same claims with ``alg`` none and without a signature."""
    claims = text.split(".")[1]
    header = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT","kid":"RS256-0"}').rstrip(b"=").decode()
    return f"{header}.{claims}."


def confused(issuer: LocalIssuer, encoding: str) -> str:
    """An ID token with an HMAC whose key is the public key of the issuer, which everybody knows."""
    public = private_key("RS256").public_key()
    if encoding == "PEM":
        key = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    else:
        key = json.dumps(public_jwk("RS256")).encode()
    parts = issuer.sign().split(".")
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT","kid":"RS256-0"}').rstrip(b"=").decode()
    signature = hmac.new(key, f"{header}.{parts[1]}".encode(), hashlib.sha256).digest()
    return f"{header}.{parts[1]}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
