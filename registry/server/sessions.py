"""The pages of a service: who sees them, how people sign in and out, and what a session is.

    access token -> /sign-in/ -> a cookie -> each request: is the cookie ours? is its token valid? -> ``GuardedCatalog``

A session is not stored. Its cookie has the digest of an access token, its end and a random number, with an HMAC by a
key that the workers of a service share. So every worker accepts it, and each request looks up the token: a session ends
at once when its token is revoked or expires. Nobody who only reads the database, which has the digests, can make a
cookie, and nobody who has a cookie can compute the token. The cookie of somebody who signs out is deleted, but a copy
of it stays valid until its end, 12 hours after the sign-in: to end it before, revoke the token. Without the setting
``session_key``, the key is new whenever a service starts.

Whoever signs in with an issuer of ID tokens gets an access token for this session only, whose text nobody knows; to
sign out revokes it. A second cookie binds the way to the issuer and back to the browser: another browser, to which
somebody sends the address of the way back, lacks it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Protocol
from urllib.parse import urlencode, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from registry.api import Catalog
from registry.api.locations import ClientDataDirectory
from registry.catalog import EventFilter
from registry.catalog.service.sign_in import authorization_url, nonce_of
from registry.errors import CatalogRefusedError, CatalogUnavailableError, RegistryError
from registry.escaping import printable
from registry.model import AccessToken, Role, digest_of, new_secret
from registry.pages import Page, Visit, Visitor, error_values, rendered_error, status_of
from registry.pages.page import SIGN_IN
from registry.server.app import Entry, address_of, read_form, respond_with_pages, show
from registry.server.config import ServiceConfig
from registry.server.gate import current_exchange
from registry.server.oidc import IdTokens
from registry.server.rights import GuardedCatalog

_SECONDS: Final = 12 * 3600
_WAY_SECONDS: Final = 600
_NEXT: Final = re.compile(r"(?!/)[A-Za-z0-9._~%!$&'()*+,;=:@/?-]{0,2000}")
"""An address below the root, as browsers send it. It follows ``../``, so it names no other host."""

_REFUSED: Final = {"WWW-Authenticate": "Bearer"}
_OPERATIONS: Final = frozenset({"health", "ready", "metrics", "site.json"})
_HEADERS: Final = {"Cache-Control": "private, no-cache", "Vary": "Cookie"}
"""Of every page and picture: browsers ask again, so that they show nothing to the next person who signs in."""

_NOBODY: Final = AccessToken(
    id="0" * 12,
    name="nobody",
    role=Role.READER,
    datasets=("_",),
    created_at=datetime(2000, 1, 1, tzinfo=UTC),
    created_by="",
)
"""The rights of those who have to sign in: no name of a dataset begins with ``_``."""


class _Service(Protocol):
    """What is needed of ``registry.server.service.Service``."""

    catalog: Any
    is_anonymous: bool

    def authenticate(self, header: str) -> AccessToken: ...

    def authenticate_session(self, digest: str) -> AccessToken: ...

    def enter(self, make: Callable[[str], AccessToken], proof: str) -> AccessToken: ...


class Sessions:
    """Makes and checks the cookies of sessions.

    >>> sessions = Sessions("a key of at least 16 characters", clock=lambda: 1_800_000_000)
    >>> cookie = sessions.start("ab" * 32)
    >>> sessions.digest(cookie) == "ab" * 32, sessions.digest(cookie.replace("ab", "cd")), sessions.digest("")
    (True, None, None)
    """

    def __init__(self, key: str, *, clock: Callable[[], float] = time.time) -> None:
        self._key = key.encode()
        self._clock = clock

    def start(self, digest: str) -> str:
        """A new cookie for the token with this digest."""
        return self._make("session", f"{secrets.token_hex(16)}.{digest}", _SECONDS)

    def digest(self, cookie: str) -> str | None:
        """The digest of the token of a session; None if the cookie was not made here, or has ended."""
        return self._read("session", cookie)

    def start_way(self, issuer: str, target: str) -> str:
        """A new cookie for a browser on its way to an issuer and back, and then to ``target``."""
        target = base64.urlsafe_b64encode(target.encode()).decode()
        return self._make(f"way {issuer}", f"{secrets.token_hex(32)}.{target}", _WAY_SECONDS)

    def target(self, issuer: str, cookie: str) -> str | None:
        """Where a browser goes after its way; None if this is not a cookie of its way to this issuer, or is too old."""
        target = self._read(f"way {issuer}", cookie)
        return None if target is None else base64.urlsafe_b64decode(target).decode()

    def _make(self, purpose: str, text: str, seconds: int) -> str:
        """A cookie: a number and a value, its end, and a signature."""
        text = f"{text}.{int(self._clock()) + seconds}"
        return f"{text}.{self._sign(purpose, text)}"

    def _read(self, purpose: str, cookie: str) -> str | None:
        """The value of a cookie; None if it was not made here for this purpose, or has ended."""
        text, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(self._sign(purpose, text).encode(), signature.encode()):
            return None
        _, value, end = text.split(".")
        return value if self._clock() < int(end) else None

    def secret(self, purpose: str, cookie: str) -> str:
        """A secret of one way: its state, what makes its nonce, or what redeems its code."""
        return self._sign(purpose, cookie)

    def seal(self, cookie: str) -> str:
        """What the forms of a session send: a page of another site, which has the cookie sent, does not know it."""
        return self._sign("form", cookie)

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose} {text}".encode(), hashlib.sha256).hexdigest()


def page_routes(service: _Service, config: ServiceConfig, id_tokens: IdTokens) -> list[Route]:
    """The pages, at every address that nothing else answers; and what signs people in and out."""
    door = _Door(service, config, id_tokens)
    return [
        Route(f"/{SIGN_IN}/{{issuer}}/", door.sign_in_with, methods=["GET"]),
        Route(f"/{SIGN_IN}/", door.sign_in, methods=["POST"]),
        Route("/sign-out/", door.sign_out, methods=["POST"]),
        Route("/{path:path}", respond_with_pages(door.enter), methods=["GET", "POST"]),
    ]


class _Door:
    """Lets people in, and sends others to the page to sign in."""

    def __init__(self, service: _Service, config: ServiceConfig, id_tokens: IdTokens) -> None:
        self._service = service
        self._id_tokens = id_tokens
        self._config = config
        self._sessions = Sessions(config.session_key or secrets.token_urlsafe(32))

    def enter(self, request: Request) -> Entry | Response:
        """See ``respond_with_pages``."""
        path, is_form = address_of(request), request.method == "POST"
        first, url = path.partition("/")[0], self._url(request)
        if path.startswith("api/") or (is_form and path in _OPERATIONS):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"}) if is_form else HTTPException(404)
        try:
            who, seal = self._person(request.cookies.get(_cookie_of(url)["key"], ""))
            if who is None and first not in ("static", SIGN_IN):
                return self._ask(request, path, url)
            visit = self._visit(url, who, seal)
        except RegistryError as error:  # too many requests, or the catalog does not answer
            visit = self._visit(url)
            return _response(rendered_error(error, visit)[0], visit)
        note = partial(setattr, current_exchange(), "error")  # a refusal is audited
        return Entry(path=path, visit=visit, hosts=self._hosts(request), headers=_HEADERS, note=note)

    def _person(self, cookie: str) -> tuple[AccessToken | None, str]:
        """Who sends a request, and the seal of the session."""
        if (digest := self._sessions.digest(cookie)) is not None:
            with suppress(CatalogRefusedError):  # the token was revoked, or has expired
                return self._service.authenticate_session(digest), self._sessions.seal(cookie)
        return (self._service.authenticate("") if self._service.is_anonymous else None), ""

    def _visit(self, url: str, who: AccessToken | None = None, seal: str = "") -> Visit:
        catalog = self._service.catalog
        rights: list[Any] = [] if who is None else [who.role, *who.datasets]
        if who is not None and not who.covers_all:  # who does not see every event does not see each change of a list
            rights += (event.hash for event in catalog.log.page(EventFilter(), newest=1))
        guarded: Any = GuardedCatalog(catalog, who or _NOBODY)
        # Files are read where this server has them, and not through the service.
        seen = Catalog(guarded, directory=ClientDataDirectory(catalog, self._config.data_dir))
        return Visit(
            catalog=seen,
            visitor=Visitor(url=url, who=who, seal=seal, rights=tuple(rights), issuers=tuple(self._id_tokens.issuers)),
        )

    def _ask(self, request: Request, path: str, url: str) -> Response:
        """Lead to the page to sign in, and from there back; programs, which want JSON, get the error."""
        if path.rpartition("/")[2] == "index.json":
            error = CatalogRefusedError("you are not signed in", hint="Open the page in a browser, and sign in.")
            headers = {"Content-Type": "application/json", **_REFUSED}
            return Response(rendered_error(error, self._visit(url))[1], 401, headers)
        query = request.scope["query_string"].decode("latin-1")
        target = f"{path}?{query}" if query else path
        there = "../" * path.count("/") + f"{SIGN_IN}/"
        if request.method != "POST" and target and _NEXT.fullmatch(target):
            there += f"?{urlencode({'next': target})}"
        answer = RedirectResponse(there, 303)
        answer.delete_cookie(**_cookie_of(url))
        return answer

    async def sign_in(self, request: Request) -> Response:
        """Start a session for the token of a form, and lead to where its sender wanted to go."""
        form = await read_form(request, self._hosts(request))
        return form if isinstance(form, Response) else await run_in_threadpool(self._start, request, form)

    def _start(self, request: Request, form: Mapping[str, str]) -> Response:
        url, text, target = self._url(request), form.get("token", "").strip(), form.get("next", "")
        target = target if _NEXT.fullmatch(target) else ""
        try:
            self._service.authenticate(f"Bearer {text}")
        except RegistryError as error:
            return self._refused(url, (SIGN_IN,), target, error)
        return self._started(url, f"../{target}", digest_of(text))

    def _started(self, url: str, place: str, digest: str) -> Response:
        """A session for the token with this digest; ``place`` is where it begins, from here."""
        answer = RedirectResponse(place, 303)
        answer.set_cookie(value=self._sessions.start(digest), max_age=_SECONDS, **_cookie_of(url))
        return answer

    def _refused(self, url: str, path: tuple[str, ...], target: str, error: RegistryError) -> Response:
        """The page to sign in, at the address ``path``, with the reason why nobody did."""
        current_exchange().error = error
        visit = replace(self._visit(url), path=path)
        values = {"next": target, "problem": error_values(error, visit)["message"]}
        return _response(Page(name="sign_in", title="Sign in", values=values, status=status_of(error)), visit)

    async def sign_in_with(self, request: Request) -> Response:
        """Lead to an issuer of ID tokens; and, when a browser comes back from it, start a session."""
        comes_back = {"state", "code", "error"} & {*request.query_params}
        try:
            answer: Response = await self._id_tokens.in_thread(self._come_back if comes_back else self._lead, request)
        except CatalogUnavailableError as error:  # too many sign in
            place = (SIGN_IN, request.path_params["issuer"])
            answer = await run_in_threadpool(self._refused, self._url(request), place, "", error)
        return answer

    def _lead(self, request: Request) -> Response:

        url, name, target = self._url(request), request.path_params["issuer"], request.query_params.get("next", "")
        try:
            issuer = self._id_tokens.issuer(name)
            endpoint = self._id_tokens.endpoint(issuer, "authorization_endpoint")
        except RegistryError as error:
            return self._refused(url, (SIGN_IN, name), "", error)
        way = self._sessions.start_way(issuer.name, target if _NEXT.fullmatch(target) else "")
        state, nonce, verifier = (self._sessions.secret(purpose, way) for purpose in ("state", "nonce", "verifier"))
        values = {"authorization_endpoint": endpoint, "client_id": issuer.client_id, "scope": issuer.scope}
        back = f"{url}{SIGN_IN}/{issuer.name}/"
        answer = RedirectResponse(authorization_url(values, back, state, nonce_of(url, nonce), verifier), 303)
        answer.set_cookie(value=way, max_age=_WAY_SECONDS, **_cookie_of(url, "way"))
        return answer

    def _come_back(self, request: Request) -> Response:
        url, name, query = self._url(request), request.path_params["issuer"], request.query_params
        cookie = _cookie_of(url, "way")
        way, target = request.cookies.get(cookie["key"], ""), ""
        token_id, _, digest = new_secret()  # nobody sends its text: the session knows its digest

        def exchange(code: str) -> AccessToken:
            verifier, nonce = self._sessions.secret("verifier", way), self._sessions.secret("nonce", way)
            text = self._id_tokens.redeem(issuer, code, verifier, f"{url}{SIGN_IN}/{issuer.name}/")
            return self._id_tokens.exchange(text, token_id, digest, nonce=nonce)

        try:
            issuer = self._id_tokens.issuer(name)
            target = self._sessions.target(issuer.name, way) or ""
            state = self._sessions.secret("state", way)
            if self._sessions.target(issuer.name, way) is None or not hmac.compare_digest(
                state.encode(), query.get("state", "").encode()
            ):
                raise _not_signed_in("this sign-in was started in another browser, or more than ten minutes ago")
            if query.get("iss", issuer.url) != issuer.url or "code" not in query:
                raise _not_signed_in(f"{issuer.name} answered {printable(query.get('error', 'nothing'))[:80]!r}")
            self._service.enter(exchange, query["code"])
            answer = self._started(url, f"../../{target}", digest)
        except RegistryError as error:
            answer = self._refused(url, (SIGN_IN, name), target, error)
        answer.delete_cookie(**cookie)
        return answer

    async def sign_out(self, request: Request) -> Response:
        """Delete the cookie, and what the browser keeps; revoke a token that only this session has."""
        cookie = _cookie_of(self._url(request))
        seal = self._sessions.seal(request.cookies.get(cookie["key"], ""))
        form = await read_form(request, self._hosts(request), seal)
        if isinstance(form, Response):
            return form
        await run_in_threadpool(self._revoke, request.cookies.get(cookie["key"], ""))
        answer = RedirectResponse("../", 303, {"Clear-Site-Data": '"cache"'})
        answer.delete_cookie(**cookie)
        return answer

    def _revoke(self, cookie: str) -> None:
        with suppress(RegistryError):  # the browser forgets the session nevertheless
            who, _ = self._person(cookie)
            if who is not None and who.is_exchanged:
                self._service.catalog.access.revoke_token(who.id, actor=who.name)

    def _url(self, request: Request) -> str:
        """The address of the service, as browsers know it."""
        return (self._config.public_url or str(request.base_url)).rstrip("/") + "/"

    def _hosts(self, request: Request) -> set[str]:
        """The hosts whose pages may send forms: a proxy may pass on another one than browsers know."""
        return {urlsplit(self._config.public_url or "").netloc, request.headers.get("host", "")} - {""}


def _response(page: Page, visit: Visit) -> Response:

    body, status, headers = show(page, visit)
    headers |= _REFUSED if status == 401 else {"Retry-After": "1"} if status in (429, 503) else {}
    return Response(body, status, headers)


def _not_signed_in(reason: str) -> CatalogRefusedError:
    return CatalogRefusedError(reason, hint="Sign in again.", details={"reason": "id_token", "sqlstate": None})


def _cookie_of(url: str, kind: str = "session") -> dict[str, Any]:
    """The name of a cookie, and what browsers may do with it. No other host and no script can read or set it."""
    is_secure = url.startswith("https:")
    name = f"__Host-registry-{kind}" if is_secure else f"registry-{kind}"
    return {"key": name, "path": "/", "secure": is_secure, "httponly": True, "samesite": "lax"}
