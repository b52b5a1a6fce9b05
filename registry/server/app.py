"""The application that serves pages: it checks requests, answers with HTML, JSON or media, and sets every header.

Only requests whose address begins with the secret, and that name this host, get an answer: no other user of the machine
knows the secret, and a page of another web site that guesses the port is refused by its ``Host`` or ``Origin``.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from registry.api import Catalog
from registry.errors import RegistryError, require_extra
from registry.pages import Media, Visit, answer, json_of, render, rendered_error
from registry.pages.rendering import CONTENT_POLICY

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_STATIC: Final = {"style.css": "text/css", "enhance.js": "text/javascript", "icon.svg": "image/svg+xml"}
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_MEDIA_POLICY: Final = "default-src 'none'; sandbox"
_FOR_EVER: Final = "private, max-age=31536000, immutable"
_JSON: Final = "index.json"


def make_app(catalog: Catalog, *, secret: str, hosts: Collection[str]) -> Starlette:
    """The application for one catalog.

    Args:
        catalog: the catalog; threads share it.
        secret: the first segment of every address.
        hosts: the values of ``Host`` that are answered, such as ``127.0.0.1:8000``.

    Raises:
        MissingExtraError: Starlette or Jinja is not installed (extra ``server``).
    """
    with require_extra("server", package="starlette", needed_for="a server of pages"):
        from starlette.applications import Starlette
        from starlette.responses import PlainTextResponse, Response
        from starlette.routing import Route

    def respond(request: Request) -> Response:
        origin = request.headers.get("origin")
        if request.headers.get("host", "") not in hosts or (origin and origin.partition("://")[2] not in hosts):
            return PlainTextResponse("This host is not served.\n", 403, _HEADERS)
        first, _, path = request.path_params["path"].partition("/")
        if not hmac.compare_digest(first.encode(), secret.encode()):
            return PlainTextResponse("The address lacks the secret that registry browse printed.\n", 404, _HEADERS)
        body, status, headers = _answer(catalog, path, request)
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        if status == 200 and request.headers.get("if-none-match") == tag:
            body, status = b"", 304
        return Response(body, status, {**_HEADERS, "ETag": tag, **headers})

    return Starlette(routes=[Route("/{path:path}", respond, methods=["GET"])])


def _answer(catalog: Catalog, path: str, request: Request) -> tuple[bytes, int, dict[str, str]]:
    """The body, the status and the headers of a page, its JSON, a file of the pages, or media."""
    segments = tuple(segment for segment in path.split("/") if segment)
    if segments[:1] == ("static",):
        return _static(segments[1:])
    is_json = segments[-1:] == (_JSON,)
    visit = Visit(catalog=catalog, path=segments[:-1] if is_json else segments, query=dict(request.query_params))
    headers = {"Content-Security-Policy": CONTENT_POLICY + "; frame-ancestors 'none'", "Cache-Control": "no-cache"}
    try:
        page = answer(visit)
        text = None if isinstance(page, Media) else json_of(page) if is_json else render(page, visit)[0]
    except RegistryError as error:
        page, text = rendered_error(error)
        text = text if is_json else render(page, visit)[0]
    if isinstance(page, Media):
        return page.content, 200, _media_headers(page)
    headers |= {"Cache-Control": _FOR_EVER} if page.is_final else {}
    headers["Content-Type"] = "application/json" if is_json else "text/html; charset=utf-8"
    return (text or "").encode(), page.status, headers


def _static(segments: tuple[str, ...]) -> tuple[bytes, int, dict[str, str]]:
    name = "/".join(segments)
    if name not in _STATIC:
        return b"There is no such file.\n", 404, {"Content-Type": "text/plain"}
    content = files("registry.pages").joinpath("static", name).read_bytes()
    headers = {"Content-Type": f"{_STATIC[name]}; charset=utf-8", "Cache-Control": "no-cache"}
    return content, 200, headers | {"Content-Security-Policy": _MEDIA_POLICY}


def _media_headers(media: Media) -> dict[str, Any]:
    """Media are foreign: a browser shows pictures, sounds and videos, and offers anything else as a download."""
    headers = {"Content-Security-Policy": _MEDIA_POLICY, "Cache-Control": _FOR_EVER}
    if media.content_type is None:
        headers["Content-Disposition"] = "attachment"
    return headers | {"Content-Type": media.content_type or "application/octet-stream"}
