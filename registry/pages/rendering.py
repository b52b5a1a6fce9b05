"""Renders pages: templates of Jinja over the values of a page, or these values as JSON.

Every value is escaped where it is inserted. Descriptions are Markdown: HTML in them becomes text, and the result is
cleaned once more. Nothing that comes from a dataset is a style or a script, or makes the browser load anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from registry.catalog.site_index import ANONYMOUS
from registry.envelope import error_envelope, result_envelope, to_plain
from registry.errors import (
    CatalogError,
    CatalogNotFoundError,
    CatalogPermissionError,
    CatalogRefusedError,
    ConflictError,
    FetchNotAllowedError,
    LockedError,
    NotFoundError,
    NotStoredError,
    RegistryError,
    StorageError,
    UsageError,
    require_extra,
)
from registry.escaping import size, without_steering
from registry.pages.page import Links, Page, Visit
from registry.splits import counted

if TYPE_CHECKING:
    import jinja2
    from markdown_it import MarkdownIt

CONTENT_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; media-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'"
)
"""What a browser may load for a page: files beside it, and pictures inside of it, but no style and no script."""

_MOST_MARKDOWN: Final = 100_000
_MOST_PARAGRAPH: Final = 1000
_TAGS: Final = {
    *("a", "br", "code", "em", "strong"),
    *("blockquote", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "ul"),
    *("table", "tbody", "td", "th", "thead", "tr"),
}
_STATUS: Final[Mapping[type[RegistryError], int]] = {
    CatalogNotFoundError: 503,  # it was there when the server started
    CatalogPermissionError: 403,
    CatalogRefusedError: 401,
    CatalogError: 503,
    NotStoredError: 404,
    FetchNotAllowedError: 403,
    StorageError: 503,
    NotFoundError: 404,
    UsageError: 400,
    LockedError: 403,
    ConflictError: 409,
}


_ABOUT_REQUESTS: Final = (
    NotFoundError,
    UsageError,
    ConflictError,
    LockedError,
    CatalogPermissionError,
    CatalogRefusedError,
)
"""Errors about what a visitor asked for. Others may name files and databases of the server."""


def render(page: Page, visit: Visit, *, root: str | None = None) -> tuple[str, set[tuple[str, ...]]]:
    """The HTML of a page, and the addresses of the pages and files that it links to.

    ``root`` is the address of the home page, for a page that a server shows at any address; None makes relative links.

    Raises:
        MissingExtraError: Jinja, markdown-it-py or nh3 is not installed (extra ``pages``).
    """
    links = Links(visit.path, is_live=visit.is_live, site=visit.site, root=root)
    text = (
        _environment()
        .get_template(f"{page.name}.html")
        .render(
            **page.values,
            title=page.title,
            path=visit.path,
            query=visit.query,
            is_live=visit.is_live,
            visitor=visit.visitor,
            may_read_much=visit.may_read_much,
            link=links.page,
            file=links.file,
            catalog_name=catalog_name(visit),
            content_policy=CONTENT_POLICY,
            layout="base.html",
            is_alone=False,
            canonical=None if visit.site is None or root is not None else visit.site.address(visit.path),
        )
    )
    return text, links.targets


def render_alone(page: Page) -> str:
    """The HTML of a page as one file: with its style, and without links, so that it can be sent or kept anywhere.

    Raises:
        MissingExtraError: see ``render``.
    """
    style = files("registry.pages").joinpath("static", "style.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    template = _environment().get_template(f"{page.name}.html")
    values = {"layout": "alone.html", "is_alone": True, "is_live": False, "content_policy": policy}
    return template.render(**page.values, title=page.title, style=_safe(style), **values)


def json_of(page: Page) -> str:
    """The values of a page as JSON: ``{"schema": "registry.page.NAME/1", "data": ...}``."""
    text = json.dumps(result_envelope(f"page.{page.name}", page.values, ()), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode() + "\n"  # half a character of UTF-16 becomes its escape


def rendered_error(error: RegistryError, visit: Visit) -> tuple[Page, str]:
    """The page that explains an error, and the error as JSON."""
    status, values = status_of(error), error_values(error, visit)
    page = Page(name="error", title="Not found" if status == 404 else "Error", values=values, status=status)
    text = json.dumps(error_envelope(**values, details=to_plain(error.details) if _is_public(error, visit) else {}))
    return page, text + "\n"


def error_values(error: RegistryError, visit: Visit) -> dict[str, Any]:
    """The code, the message and the hint of an error; only the code if the others may name places of the server."""
    if _is_public(error, visit):
        return {"code": error.code, "message": str(error), "hint": error.hint}
    message = "the server could not read the data for this page"
    hint = "Ask an admin of the catalog, who can see the reason on this page."
    return {"code": error.code, "message": message, "hint": hint}


def _is_public(error: RegistryError, visit: Visit) -> bool:
    return visit.visitor is None or visit.shows_places or is_about_request(error)


def is_about_request(error: Exception) -> bool:
    """Whether an error is about the request, so that it does not name places of the server."""
    is_ours = isinstance(error, _ABOUT_REQUESTS) and not isinstance(error, NotStoredError)
    return is_ours or (isinstance(error, RegistryError) and "http_status" in error.details)


def status_of(error: RegistryError) -> int:
    """The HTTP status of a page that explains an error."""
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
    return int(error.details.get("http_status", status))


def catalog_name(visit: Visit) -> str:
    """The name of the catalog on pages: the name of its file or database, without local paths."""
    if visit.site is not None:
        return visit.site.name
    file = visit.catalog.backend.file
    path = urlsplit(visit.catalog.url).path.rstrip("/")  # without user and host, even if it names no database
    return file.stem if file is not None else path.rpartition("/")[2].removesuffix(".db") or "catalog"


@cache
def _environment() -> jinja2.Environment:
    with require_extra("pages", package="jinja2", needed_for="a page"):
        import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("registry.pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        cache_size=-1,  # all of them, without the lock of a cache that forgets
    )
    environment.filters |= {"markdown": markdown, "size": size, "day": _day, "clean": without_steering, "data": _data}
    environment.filters |= {"polyline": polyline, "bar_path": bar_path, "by": _by, "counted": counted}
    environment.filters["number"] = lambda value: f"{value:,}"
    return environment


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    parser.render("a")  # it collects its rules now: threads that share it must not see a part of them
    return parser


def markdown(text: str) -> Any:
    """Text in Markdown as HTML. HTML in it becomes text, and pictures become their links.

    >>> str(markdown("*a* <script>b</script>")).strip()
    '<p><em>a</em> &lt;script&gt;b&lt;/script&gt;</p>'
    """
    import nh3

    html = _parser().render(without_steering(text[:_MOST_MARKDOWN]))
    schemes = {"http", "https", "mailto"}
    cleaned = nh3.clean(html, tags=_TAGS, attributes={"a": {"href", "title"}}, url_schemes=schemes)
    return _safe(cleaned)


def first_words(text: str, most: int) -> str:
    r"""The first paragraph of a text in Markdown, as plain text of at most ``most`` characters with an ellipsis.

    >>> first_words("# Rain\n\nMade **by**\n[us](https://example.org).\n\n| a |\n|---|", 100)
    'Made by us.'
    >>> first_words("Made by us.", 8)
    'Made by…'
    """
    tokens = _parser().parse(without_steering(text[:_MOST_PARAGRAPH]))
    block = next((token for before, token in pairwise(tokens) if before.type == "paragraph_open"), None)
    block = block or next((token for token in tokens if token.type == "inline"), None)
    parts = [] if block is None else [" " if it.type.endswith("break") else it.content for it in block.children or ()]
    words = " ".join("".join(parts).split())
    return words if len(words) <= most else words[: most - 1].rstrip() + "…"


def polyline(points: Sequence[float], width: int, height: int) -> str:
    """The ``points`` of an SVG polyline through numbers from left to right, which fills the height.

    >>> polyline([1, 3, 2], 10, 8)
    '1.0,6.0 5.0,2.0 9.0,4.0'
    """
    low, span = min(points), max(points) - min(points) or 1
    step = (width - 2) / max(1, len(points) - 1)
    tall = height - 4  # numbers are divided first: a span may be infinite
    pairs = ((1 + place * step, height - 2 - tall * (point / span - low / span)) for place, point in enumerate(points))
    return " ".join(f"{across:.1f},{down:.1f}" for across, down in pairs)


def bar_path(counts: Sequence[int], height: int, width: int, step: int, highest: int = 0) -> str:
    """The path of an SVG with a bar for each count, which fills the height for the highest, and has a pixel at least.

    >>> bar_path([2, 0, 1], 10, 3, 4)
    'M0 10v-10h3v10zM8 10v-5h3v5z'
    """
    most = highest or max(counts, default=0)
    bars = ((place, round(max(1.0, height * count / most), 1)) for place, count in enumerate(counts) if count)
    return "".join(f"M{place * step} {height}v-{tall:g}h{width}v{tall:g}z" for place, tall in bars)


def _day(moment: datetime | str | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d}" if isinstance(moment, datetime) else moment[:10]


def _by(person: str | None) -> str:
    """The actor of an action, or nothing if a site leaves out names."""
    return "" if person in (None, "", ANONYMOUS) else f" by {without_steering(person):.60}"


def _data(value: Any) -> Any:
    """A value as JSON inside of a ``<script>`` of data, which a browser does not run."""
    text = json.dumps(to_plain(value), ensure_ascii=True)
    return _safe(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _safe(text: str) -> Any:
    """Text that is inserted unchanged, because it was cleaned or is our own."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 (see above)
