"""The application that serves pages: it checks each request, answers with HTML, JSON or media, and sets every header.

Only requests whose address begins with the secret, and that name this host, are answered: other users of the machine do
not know the secret, and a page of another web site that guesses the port is refused by its ``Host``, its ``Origin`` or
its ``Sec-Fetch-Site``.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

from registry.api import Catalog
from registry.errors import NotFoundError, RegistryError, UsageError, require_extra
from registry.masking import mask
from registry.pages import FORM_PAGES, Media, Page, Visit, act, answer, json_of, render, rendered_error
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
_MOST_ADDRESS: Final = 8_000
"""Bytes of an address with its query. Browsers send more, but no page has a longer link."""

_MOST_FORM: Final = 2**20
"""Bytes of a form."""

_RANGE: Final = re.compile(r"bytes=(\d{1,15})-(\d{0,15})")

_logger = logging.getLogger(__name__)

_Answer = tuple[bytes, int, dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A request that may see pages.

    Attributes:
        path: the address of the page below the root, as it was sent.
        visit: the catalog and the visitor, without an address.
        hosts: the hosts whose pages may send forms.
        headers: headers of the answer, which replace the default ones.
        note: called with the error that a page shows.
    """

    path: str
    visit: Visit
    hosts: Collection[str]
    headers: Mapping[str, str] = field(default_factory=dict)
    note: Callable[[RegistryError], None] = lambda _: None


def make_app(catalog: Catalog, *, secret: str, hosts: Collection[str], invitation: str | None = None) -> Starlette:
    """The application for one catalog.

    Args:
        catalog: the catalog; threads share it.
        secret: the first segment of every address.
        hosts: the accepted values of ``Host``, such as ``127.0.0.1:8000``.
        invitation: a first segment that redirects to the secret once. The browser is started with it, because other
            users of the machine can see the arguments of programs.

    Raises:
        MissingExtraError: Starlette or Jinja is not installed (extra ``server``).
    """
    with require_extra("server", package="starlette", needed_for="a server of pages"):
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.middleware import Middleware
        from starlette.middleware.gzip import GZipMiddleware
        from starlette.routing import Route

    invitations = iter((secret,))  # the next() of an iterator gives it to one thread only

    def enter(request: Request) -> Entry | Response:
        if (reason := _foreign(request.headers, hosts)) is not None:
            return refuse(reason, 403)
        first, _, path = address_of(request).partition("/")
        if invitation is not None and _equal(first, invitation):
            if (target := next(invitations, None)) is None:
                return refuse("This address was already used. Open the address that registry browse printed.", 410)
            return refuse("See the pages.", 303, Location=f"/{target}/{path}")
        if not _equal(first, secret):
            return refuse("The address lacks the secret that registry browse printed.", 404)
        return Entry(path=path, visit=Visit(catalog=catalog), hosts=hosts)

    def refuse_request(_request: Request, error: Any) -> Response:
        return refuse(f"{error.detail}.", error.status_code, **(error.headers or {}))

    return Starlette(
        routes=[Route("/{path:path}", respond_with_pages(enter), methods=["GET", "POST"])],
        middleware=[Middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)],
        exception_handlers={HTTPException: refuse_request},
    )


def respond_with_pages(
    enter: Callable[[Request], Entry | Response],
) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """The endpoint that serves pages. ``enter`` checks each request in a thread, and may answer it itself."""
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import Response

    async def page(request: Request) -> Response:
        if len(request.scope["raw_path"]) + len(request.scope["query_string"]) > _MOST_ADDRESS:
            return refuse("The address is too long.", 414)
        entry = await run_in_threadpool(enter, request)
        if isinstance(entry, Response):
            return entry
        form: dict[str, str] = {}
        if request.method == "POST":
            sealed = None if entry.visit.visitor is None else entry.visit.visitor.seal
            sent = await read_form(request, entry.hosts, sealed, is_bare=sealed is None and not _takes_form(entry.path))
            if isinstance(sent, Response):
                return sent
            form = sent
        return await run_in_threadpool(reply, request, entry, form)

    def reply(request: Request, entry: Entry, form: Mapping[str, str]) -> Response:
        try:
            body, status, headers = _answer(request, entry, form)
        except Exception as error:  # noqa: BLE001 (the visitor gets a page)
            body, status, headers = _report(entry, error)
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        if status == 200 and tag in re.split(r"[ ,]+|W/", request.headers.get("if-none-match", "")):
            body, status = b"", 304
        headers = {**_HEADERS, "ETag": f"W/{tag}", **headers, **entry.headers}  # weak: it may be compressed
        return Response(body, status, headers)

    return page


def address_of(request: Request) -> str:
    """The path of a request as it was sent, without the first slash."""
    return str(request.scope["raw_path"].decode("latin-1")).removeprefix("/")


def refuse(text: str, status: int, **headers: str) -> Response:
    """An answer without a page."""
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(text + "\n", status, {**_HEADERS, "Cache-Control": "no-store", **headers})


async def read_form(
    request: Request, hosts: Collection[str], seal: str | None = None, *, is_bare: bool = False
) -> dict[str, str] | Response:
    """The values of a form that a page of one of ``hosts`` sent; the answer to any other request.

    ``seal`` is what the form must have under this name. ``is_bare``: the form is a button without values.
    """
    if "same-origin" not in _senders(request.headers, hosts):
        return refuse("Only a button of the pages can do this.", 403)
    form = {} if is_bare else await _form_of(request)
    if form is None:
        return refuse("This page takes no such form, or the form is too long.", 405, Allow="GET, HEAD")
    if seal and not _equal(form.pop("seal", ""), seal):
        return refuse("This page was loaded before you signed in. Load it again.", 403)
    return form


def _report(entry: Entry, error: Exception) -> _Answer:
    """The page for a fault of the registry."""
    incident = secrets.token_hex(4)
    _logger.error("incident %s: %s", incident, _traceback(error))
    fault = RegistryError(
        f"The registry could not create this page. Incident {incident}.",
        hint="The server logged the cause to its standard error.",
        details={"http_status": 500},
    )
    visit = replace(entry.visit, path=tuple(entry.path.removesuffix("/").split("/")))
    return show(rendered_error(fault, visit)[0], visit)


def show(page: Page, visit: Visit) -> _Answer:
    """The body, the status and the headers of a page that browsers do not keep."""
    headers = {**_HEADERS, **_page_headers(), "Cache-Control": "no-store"}
    return render(page, visit)[0].encode(), page.status, headers


def _equal(text: str, secret: str) -> bool:
    return hmac.compare_digest(text.encode(), secret.encode())  # its time does not depend on the place of a difference


def _foreign(headers: Mapping[str, str], hosts: Collection[str]) -> str | None:
    """Why a request is refused that another web site made, or that names another host; None if it is not."""
    senders = _senders(headers, hosts)
    if headers.get("host", "") not in hosts or not senders:
        return "This host is not served."
    if not senders <= {"none", "same-origin"}:
        return "Links from other web sites are refused. To see the page, paste its address into a new tab."
    return None


def _takes_form(path: str) -> bool:
    return tuple(path.removesuffix("/").split("/")) in FORM_PAGES


async def _form_of(request: Request) -> dict[str, str] | None:
    """The values of a form; None if the request is not a form, or is too long."""
    length, kind = request.headers.get("content-length", ""), request.headers.get("content-type", "")
    if not re.fullmatch("[0-9]{1,9}", length) or int(length) > _MOST_FORM:
        return None
    if kind.partition(";")[0].strip() != "application/x-www-form-urlencoded":
        return None
    try:
        text = (await request.body()).decode("ascii")
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=10, errors="replace"))
    except ValueError:
        return None


def _senders(headers: Mapping[str, str], hosts: Collection[str]) -> set[str]:
    """Who made a request, by its headers, in the words of ``Sec-Fetch-Site``; nobody for the page of another host.

    Forms of pages that send no referrer have the origin ``null``: then the browser has to say that it is this site.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if origin is not None and origin.partition("://")[2] not in hosts and (origin, site) != ("null", "same-origin"):
        return set()
    return {site or ("none" if origin is None else "same-origin")}


def _answer(request: Request, entry: Entry, form: Mapping[str, str]) -> _Answer:
    """The body, the status and the headers of a page, its JSON, a file of the pages, or media."""
    address, query = request.scope["raw_path"].decode("latin-1"), request.scope["query_string"].decode("latin-1")
    here = f"./{address.rpartition('/')[2]}" + (f"?{query}" if query else "")  # names no host, and works below a prefix
    try:
        segments = [unquote_to_bytes(segment).decode() for segment in entry.path.split("/")]
    except UnicodeDecodeError:
        segments = ["\0"]
    segments = segments[:-1] if segments[-1] == "" else segments
    if segments[:1] == ["static"]:
        return _static(segments[1:])
    is_json = segments[-1:] == [_JSON]
    values: dict[str, str] = {}
    for name, value in request.query_params.multi_items():  # the values of checkboxes are joined
        values[name] = f"{values[name]},{value}" if name in values else value
    visit = replace(entry.visit, path=tuple(segments[:-1] if is_json else segments), query=values, form=form)
    text = ""
    try:
        if any("\0" in value for value in (*segments, *values, *values.values())):
            raise UsageError("the address is not UTF-8 text")
        if "" in segments:
            raise NotFoundError("no page has an empty name")
        if request.method == "POST" and not _takes_form(entry.path):
            act(visit)
            return b"", 303, {"Location": here}
        page = answer(visit)
        if isinstance(page, Media):
            return _media(page, request.headers.get("range", ""))
        text = json_of(page) if is_json else render(page, visit)[0]
    except RegistryError as error:
        entry.note(error)
        page, text = rendered_error(error, visit)
        text = text if is_json else render(page, visit)[0]
    if not is_json and not address.endswith("/"):  # links are relative to the folder of the page
        return b"", 308, {"Location": here.replace("?", "/?", 1) if query else f"{here}/"}
    headers = _page_headers() | {"Cache-Control": "no-cache"}
    return text.encode(), page.status, headers | ({"Content-Type": "application/json"} if is_json else {})


def _page_headers() -> dict[str, str]:
    policy = f"{CONTENT_POLICY}; frame-ancestors 'none'"
    return {"Content-Security-Policy": policy, "Content-Type": "text/html; charset=utf-8"}


def _static(segments: list[str]) -> _Answer:
    name = "/".join(segments)
    if name not in _STATIC:
        return b"There is no such file.\n", 404, {"Content-Type": "text/plain"}
    content = files("registry.pages").joinpath("static", name).read_bytes()
    headers = {"Content-Type": f"{_STATIC[name]}; charset=utf-8", "Cache-Control": "no-cache"}
    return content, 200, headers | {"Content-Security-Policy": _MEDIA_POLICY}


def _media(media: Media, wanted_range: str) -> _Answer:
    """Media are foreign: a browser shows pictures, sounds and videos, and offers anything else as a download.

    Browsers request ranges of sounds and videos for seeking; Safari does not play anything without ranges.
    """
    content, status = media.content, 200
    headers: dict[str, Any] = {"Content-Security-Policy": _MEDIA_POLICY}
    headers |= {"Cache-Control": _FOR_EVER if media.is_final else "no-cache"}
    headers |= {"Content-Type": media.content_type or "application/octet-stream", "Accept-Ranges": "bytes"}
    if media.content_type is None:
        headers["Content-Disposition"] = "attachment"
    match = _RANGE.fullmatch(wanted_range)
    if match is not None:
        start, last = int(match[1]), min(int(match[2] or len(content)), len(content) - 1)
        if start > last:
            return b"", 416, headers | {"Content-Range": f"bytes */{len(content)}"}
        headers["Content-Range"] = f"bytes {start}-{last}/{len(content)}"
        content, status = content[start : last + 1], 206
    return content, status, headers


def _traceback(error: Exception) -> str:
    """The traceback with masked secrets."""
    import traceback

    return mask("".join(traceback.format_exception(error)))
