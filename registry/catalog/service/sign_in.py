"""Signs in to a service with an ID token from an issuer that the service trusts, instead of a token from an admin.

    people:   browser -> issuer -> a code, to this program -> service -> issuer -> ID token -> rights
    CI jobs:  issuer of the CI -> ID token -> service -> rights

The text of the access token is generated on this machine, and the service learns only its digest. The operator of a
service sees the codes and ID tokens of its users, so both are bound to the service, and another service refuses them:
the audience of a job's ID token is the URL to which it is sent, and the nonce of a person's ID token is a digest of
that URL.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from registry.catalog.service_index import SIGN_IN_PATH
from registry.catalog.web_urls import is_loopback, site_url
from registry.environment import read_variable
from registry.errors import CatalogRefusedError, CatalogUnavailableError, UsageError, require_extra
from registry.masking import mask, remove_secrets
from registry.model import new_secret

ID_TOKEN_VARIABLE: Final = "REGISTRY_ID_TOKEN"  # noqa: S105 (its name)
"""The ID token of a CI job, with which ``registry login --ci`` signs in."""

_MOST_BYTES: Final = 2**20
_PIECE: Final = 2**16
_SILENCE_SECONDS: Final = 5
_FETCH_SECONDS: Final = 10
_SIGN_IN_SECONDS: Final = 300


def sign_in_with_id_token(url: str, id_token: str) -> str:
    """Exchange an ID token for a new access token for the service at ``url``, and return its text.

    Raises:
        UsageError: the URL does not parse, or names another machine without encryption.
        CatalogRefusedError: the service does not accept the ID token.
        CatalogUnavailableError, CatalogError: the server does not answer, or is not a service.
    """
    return _exchange(site_url(remove_secrets(url)), {"id_token": id_token})


def sign_in_with_browser(
    url: str, issuer: str | None, open_page: Callable[[str], object], pasted: Callable[[float], str] | None = None
) -> str:
    """Let a person sign in with a browser, and return the text of a new access token for the service at ``url``.

    Args:
        url: the URL of the service.
        issuer: the name of the issuer. None means the only issuer that the service offers to people.
        open_page: called with the address at which the person signs in; the issuer redirects the browser to a port of
            this machine (RFC 8252).
        pasted: returns a line from the person, or "" after some seconds. If the browser is on another machine, it
            cannot reach the port, and the person copies the address to which it was redirected. None asks nobody.

    Raises:
        UsageError: the service offers people no issuer, or several; a line is not that address; or see
            ``sign_in_with_id_token``.
        CatalogRefusedError: the issuer or the service refuses, or nobody signed in within five minutes.
        CatalogUnavailableError, CatalogError: see ``sign_in_with_id_token``.
    """
    from registry.catalog.service.requests import ServiceServer

    url = site_url(remove_secrets(url))
    with closing(ServiceServer(url, None, needs_encryption=True)) as server:
        choice = _choose(server.get_json(SIGN_IN_PATH), issuer, url)
    verifier, state, nonce = (secrets.token_urlsafe(32) for _ in range(3))
    with _Listener(state, local_path(url)) as listener:
        open_page(authorization_url(choice, listener.url, state, nonce_of(url, nonce), verifier))
        code = listener.wait(pasted)
    proof = {"issuer": choice["name"], "code": code, "code_verifier": verifier, "redirect_uri": listener.url}
    return _exchange(url, proof | {"nonce": nonce})


def ci_id_token(url: str) -> str:
    """The ID token of this CI job for the service at ``url``, from ``REGISTRY_ID_TOKEN`` or else from GitHub Actions.

    Raises:
        UsageError: the job has no ID token, or the URL does not parse.
        CatalogRefusedError, CatalogUnavailableError: GitHub refuses to issue a token, or does not answer.
    """
    if text := read_variable(ID_TOKEN_VARIABLE).strip():
        return text
    url = site_url(remove_secrets(url))
    address, secret = (os.environ.get(f"ACTIONS_ID_TOKEN_REQUEST_{name}", "") for name in ("URL", "TOKEN"))
    if not address or not secret:
        raise UsageError(
            f"this job has no ID token: {ID_TOKEN_VARIABLE} is not set, and GitHub Actions offers none",
            hint=f"On GitHub, the job needs: permissions: {{id-token: write}}\n"
            f"On GitLab, it needs: id_tokens: {{{ID_TOKEN_VARIABLE}: {{aud: {url}}}}}",
        )
    address += f"{'&' if '?' in address else '?'}audience={quote(url, safe='')}"
    status, values, _ = fetch_json(address, headers={"Authorization": f"Bearer {secret}"})
    if status != 200 or not isinstance(values.get("value"), str):
        raise CatalogRefusedError(
            f"GitHub Actions issued no ID token: it answered {status}",
            hint="The job needs: permissions: {id-token: write}",
            details={"reason": "id_token", "sqlstate": None},
        )
    return str(values["value"])


def authorization_url(issuer: Mapping[str, str], redirect_uri: str, state: str, nonce: str, verifier: str) -> str:
    """The address at an issuer where a person signs in.

    Args:
        issuer: ``authorization_endpoint``, ``client_id`` and ``scope``.
        redirect_uri: the address to which the issuer redirects with a code.
        state: returned with the code.
        nonce: repeated in the ID token.
        verifier: the secret that redeems the code (PKCE, RFC 7636).
    """
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    values = {"response_type": "code", "client_id": issuer["client_id"], "scope": issuer["scope"]}
    values |= {"redirect_uri": redirect_uri, "state": state, "nonce": nonce}
    values |= {"code_challenge": challenge, "code_challenge_method": "S256"}
    address = issuer["authorization_endpoint"]
    return f"{address}{'&' if '?' in address else '?'}{urlencode(values)}"


def nonce_of(url: str, secret: str) -> str:
    """The nonce that binds an ID token to the service at ``url`` and to the holder of ``secret``."""
    return hashlib.sha256(f"{site_url(url)} {secret}".encode()).hexdigest()


def local_path(url: str) -> str:
    """The path of the local address to which an issuer redirects the browser for the service at ``url``.

    It names the service. Otherwise a hostile service could send the browser to the sign-in of another service, with a
    nonce of its own, and would get a code that works there.

    >>> local_path("https://catalog.example:8443/below")
    'catalog.example:8443/below/'
    """
    return quote(site_url(url).partition("://")[2], safe="/:")


def is_secure_url(text: object, *, like: str = "http://localhost") -> bool:
    """Whether a URL is encrypted or, if ``like`` is omitted or an unencrypted local URL, is an unencrypted local URL.

    >>> is_secure_url("https://host/x"), is_secure_url("http://host/x"), is_secure_url("http://127.0.0.1:80/")
    (True, False, True)
    >>> is_secure_url("http://127.0.0.1:80/", like="https://host/")
    False
    """
    if not isinstance(text, str) or not text.isascii() or not text.isprintable() or " " in text:
        return False
    try:
        url, model = urlsplit(text), urlsplit(like)
        is_local = url.scheme == model.scheme == "http" and is_loopback(text) and is_loopback(like)
        is_plain = bool(url.hostname) and "@" not in url.netloc and url.port != 0 and not url.fragment
        return is_plain and (url.scheme == "https" or is_local)
    except ValueError:
        return False


def fetch_json(
    url: str,
    *,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    like: str = "http://localhost",
) -> tuple[int, dict[str, Any], Mapping[str, str]]:
    """Send a GET, or a POST of ``form``, to an issuer, and return the status, the JSON object and the headers.

    Redirects are not followed. The answer is limited to a megabyte and ten seconds.

    Raises:
        CatalogUnavailableError: the issuer does not answer with a JSON object in time, or ``url`` is not secure, see
            ``is_secure_url``.
        MissingExtraError: urllib3 is not installed.
    """
    with require_extra("http", package="urllib3", needed_for="an issuer of ID tokens"):
        import urllib3
    where = mask(url.partition("?")[0])[:200]
    if not is_secure_url(url, like=like):
        raise issuer_fault(f"the issuer names an address without encryption: {where}")
    body = None if form is None else urlencode(form).encode()
    sent = {"Accept": "application/json", "Accept-Encoding": "identity", **(headers or {})}
    sent |= {} if form is None else {"Content-Type": "application/x-www-form-urlencoded"}
    parts = urlsplit(url)
    kind = urllib3.connection.HTTPSConnection if parts.scheme == "https" else urllib3.connection.HTTPConnection
    connection = kind(str(parts.hostname), parts.port, timeout=_SILENCE_SECONDS)
    end, content = time.monotonic() + _FETCH_SECONDS, b""
    timer = threading.Timer(_FETCH_SECONDS, _cut, (connection,))  # its headers may come byte by byte
    timer.start()
    try:
        target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
        method = "GET" if form is None else "POST"
        connection.request(method, target, body, sent, preload_content=False, decode_content=False)
        with closing(connection.getresponse()) as answer:
            while len(content) <= _MOST_BYTES and time.monotonic() < end and (piece := answer.read1(_PIECE)):
                content += piece
        is_complete = len(content) <= _MOST_BYTES and time.monotonic() < end
        values = json.loads(content) if is_complete else None
    except (urllib3.exceptions.HTTPError, HTTPException, OSError, ValueError, RecursionError) as error:
        raise issuer_fault(f"the issuer does not answer at {where}") from error
    finally:
        timer.cancel()
        connection.close()
    if not isinstance(values, dict):
        raise issuer_fault(f"the issuer does not answer with a JSON object at {where}")
    return answer.status, values, answer.headers


def _cut(connection: Any) -> None:
    """Close a connection on which another thread waits."""
    with suppress(OSError):
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)


def issuer_fault(reason: str) -> CatalogUnavailableError:
    """The error for an issuer that does not answer, or violates the standards. Users without rights may see it."""
    hint = "Try again later. If this persists, the service's setting 'issuers' is wrong: ask its admin."
    return CatalogUnavailableError(reason, hint=hint, details={"http_status": 503})


def _exchange(url: str, proof: Mapping[str, str]) -> str:
    """The text of a new access token. Repeating the request with the same ID token returns the first answer."""
    from registry.catalog.service.requests import ServiceServer

    token_id, text, digest = new_secret()
    with closing(ServiceServer(url, None, needs_encryption=True)) as server:
        server.call(SIGN_IN_PATH, {**proof, "token_id": token_id, "digest": digest})
    return text


def _choose(answer: Any, name: str | None, url: str) -> Mapping[str, str]:
    """The issuer of this name among those that the service offers to people."""
    entries = answer.get("issuers") if isinstance(answer, dict) else None
    offered = {
        entry["name"]: entry
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
        and all(isinstance(entry.get(key), str) and entry[key] for key in ("name", "client_id", "scope"))
        and is_secure_url(entry.get("authorization_endpoint"), like=url)
    }
    if name is None and len(offered) == 1:
        return next(iter(offered.values()))
    if name in offered:
        return offered[name]
    names = ", ".join(sorted(offered))
    if not offered:
        reason, hint = "the service offers no browser sign-in", f"Use a token from an admin: registry login {url}"
    else:
        reason = f"there is no issuer {name!r:.80}" if name is not None else "there are several issuers"
        hint = f"Choose one with --issuer: {names}"
    raise UsageError(f"{reason}: {url}", hint=hint)


class _Listener:
    """A port of this machine to which an issuer redirects the browser.

    Attributes:
        url: the address of the port.
    """

    def __init__(self, state: str, path: str) -> None:
        self._path, self._state = path, state
        self._answer: dict[str, str] = {}
        self._is_complete = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _SILENCE_SECONDS

            def do_GET(self) -> None:
                is_ours = outer._take(self.path)
                text = b"Return to the terminal. You can close this page.\n" if is_ours else b"There is nothing here.\n"
                self.send_response(200 if is_ours else 404)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *_: object) -> None:  # noqa: A002 (its name in the base class)
                """Log nothing: the address contains the code."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/{path}"

    def __enter__(self) -> _Listener:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _take(self, address: str) -> bool:
        """Take the answer of the issuer from an address without a host; returns whether it has one."""
        asked, _, query = address.partition("?")
        values = dict(parse_qsl(query))
        is_state = hmac.compare_digest(values.get("state", "").encode(), self._state.encode())
        if asked != f"/{self._path}" or not is_state:
            return False
        if not self._is_complete.is_set():
            self._answer = values
            self._is_complete.set()
        return True

    def wait(self, pasted: Callable[[float], str] | None) -> str:
        """Wait for the redirect, and return its code; see ``sign_in_with_browser``."""
        end = time.monotonic() + _SIGN_IN_SECONDS
        while not self._is_complete.wait(0.1 if pasted else _SIGN_IN_SECONDS) and time.monotonic() < end:
            address = pasted(0.1).strip() if pasted else ""
            if address and not self._take(f"/{address.removeprefix(self.url.removesuffix(self._path))}"):
                raise UsageError(
                    "this is not the address to which the issuer redirected the browser for this sign-in",
                    hint=f"It begins with {self.url}?. Try again: registry login URL --oidc",
                )
        is_complete = self._is_complete.is_set()
        if "code" in self._answer:
            return self._answer["code"]
        reason = f"the issuer answered {self._answer.get('error', '')!r:.80}" if is_complete else "nobody signed in"
        details = {"reason": "id_token", "sqlstate": None}
        raise CatalogRefusedError(reason, hint="Try again: registry login URL --oidc", details=details)
