"""A page: the visit that requests it, and the values that it shows.

The address of a page is a tuple of segments below the root; the page is the ``index.html`` of that folder, and its
values are the ``index.json`` beside it. Links between pages are relative, so that the same HTML works on a server,
below any prefix, and in a folder of files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote, urlencode

from registry.api import Catalog
from registry.model import AccessToken, Reference, Role, is_absolute

DATASETS: Final = "datasets"
SIGN_IN: Final = "sign-in"

LISTED: Final = "list"
"""The first segment of the addresses ``list/from-200``, which have all datasets without a query."""


_PLAIN: Final = re.compile(
    r"[\w+=@,-]{1,150}(?:\.(?:\d{1,9}|png|jpg|jpeg|gif|webp|bmp|wav|mp3|ogg|flac|mp4|webm|txt|bin))*", re.ASCII
)
"""The segments that are names of files as they are. Others could be hidden, special, or run by a browser."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteView:
    """Facts about a site of files for its pages.

    Attributes:
        name: the name of the catalog.
        url: the address of the site, which ends with ``/``; None if it is unknown.
        data_url: the URL of the data directory, or its path relative to the site, which ends with ``/``; or None.
        brief: the addresses of the versions that have one short page: a link to a part of one leads to that page.
    """

    name: str
    url: str | None = None
    data_url: str | None = None
    brief: Collection[tuple[str, ...]] = frozenset()

    def folder(self, location: str) -> str | None:
        """The URL of the files of a version, given its location, or None."""
        if is_absolute(location):
            return None if location.startswith(("/", "file:")) else location
        root = (
            self.data_url if self.data_url is None or "://" in self.data_url else self.url and self.url + self.data_url
        )
        return None if root is None else root + quote(location)

    def address(self, path: tuple[str, ...]) -> str | None:
        """The URL of the page at ``path``, or None if the URL of the site is unknown."""
        return None if self.url is None else self.url + "/".join(map(quote, (*file_names(path), "index.html")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """A visitor of the pages of a service.

    Attributes:
        url: the address of the service, which ends with ``/``.
        who: the token; None before the visitor signs in.
        seal: a value that forms send along with the cookie of the session; empty without a session.
        rights: the key of cached lists: visitors with equal ``rights`` see the same lists.
        issuers: the names of the issuers with which people can sign in instead of a token.
    """

    url: str
    who: AccessToken | None
    seal: str = ""
    rights: Hashable = ()
    issuers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A request for a page.

    Attributes:
        catalog: the catalog that pages show.
        path: the segments of the address below the root, decoded; ``()`` is the home page.
        query: the values of the form in the address, by name.
        form: the values of a form that was sent with the request, because they are too long for an address.
        is_live: whether a server answers. In a site of files, pages have no forms, and addresses have no queries.
        most_records: in a site of files, how many records of each split have pages. None means all.
        site: the site of files, or None if a server answers.
        visitor: the visitor, if a service answers; None for the owner of the catalog, and in a site of files.
    """

    catalog: Catalog
    path: tuple[str, ...] = ()
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    is_live: bool = True
    most_records: int | None = None
    site: SiteView | None = None
    visitor: Visitor | None = None

    @property
    def shows_places(self) -> bool:
        """Whether pages show places of the server: paths, and URLs of databases and stores. Admins see them."""
        who = None if self.visitor is None else self.visitor.who
        return self._may(Role.ADMIN) and (who is None or who.covers_all)

    @property
    def may_read_much(self) -> bool:
        """Whether the visitor may have the server read up to a gigabyte, and keep columns in its cache."""
        return self._may(Role.PUBLISHER)

    def _may(self, role: Role) -> bool:
        who = None if self.visitor is None else self.visitor.who
        return self.is_live and (self.visitor is None or (who is not None and who.role.includes(role)))

    @property
    def memory(self) -> Hashable:
        """The key of cached lists."""
        return self.catalog.url, () if self.visitor is None else self.visitor.rights


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The values of a page.

    Attributes:
        name: the name of its template, and of its schema: ``registry.page.NAME/1``.
        title: its title, without the name of the catalog.
        values: what the template shows, as values that ``envelope.to_plain`` converts to JSON.
        status: the HTTP status.
    """

    name: str
    title: str
    values: Mapping[str, Any]
    status: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """The bytes of a picture, a sound or another file of a record. They are foreign: a browser must not run them.

    Attributes:
        content: the bytes.
        content_type: the type of a picture, sound or video that browsers show; None for anything else, which is offered
            as a download.
        is_final: whether the address has the same bytes for ever.
    """

    content: bytes
    content_type: str | None
    is_final: bool = True


def version_path(reference: Reference) -> tuple[str, ...]:
    """The address of a version: ``datasets/mnist/3.0.1`` or ``datasets/mnist/plain/3.0.1``.

    >>> version_path(Reference.parse("mnist/plain:3.0.1"))
    ('datasets', 'mnist', 'plain', '3.0.1')
    """
    config = () if reference.config is None else (reference.config,)
    return (DATASETS, reference.name, *config, str(reference.exact))


def file_names(path: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the folders, and of the file, that have an address in a site of files.

    A segment may be the name of a split or a feature, and contain anything. No name begins with a dot, is that of a
    page, or has an ending for which a browser would run the file. Disks that ignore case see different names, too.

    >>> file_names(("datasets", "mnist", "3.0.1", "media", "Train", "0", "a/b.html"))
    ('datasets', 'mnist', '3.0.1', 'media', '~Train', '0', 'a%2Fb%2Ehtml')
    """
    return path if path[:1] == ("static",) else tuple(map(_file_name, path))


def _file_name(segment: str) -> str:
    odd = rb"[A-Z]" if _PLAIN.fullmatch(segment) else rb"[^a-z0-9_-]"
    plain = re.sub(odd, _escaped, segment.encode("utf-8", "surrogatepass")).decode()
    return plain if len(plain) <= 150 else f"{plain[:100]}~{sha256(plain.encode()).hexdigest()[:32]}"


def _escaped(match: re.Match[bytes]) -> bytes:
    return b"~" + match[0] if match[0].isupper() else b"%%%02X" % ord(match[0])


@lru_cache(4096)
def _quoted(segment: str, is_plain: bool) -> str:
    return quote(segment if is_plain else _file_name(segment), safe="")


class Links:
    """The links of one page, relative to its address. ``targets`` are the addresses that they lead to.

    >>> links = Links(("datasets", "mnist", "3.0.1"), is_live=True)
    >>> links.page(["datasets", "mnist", "3.0.1"], "records", split="train[:10%]")
    'records/?split=train%5B%3A10%25%5D'
    >>> links.page(), links.file("static", "style.css"), Links(("log",), is_live=False).page()
    ('../../../', '../../../static/style.css', '../index.html')
    """

    def __init__(
        self, path: tuple[str, ...], *, is_live: bool = True, site: SiteView | None = None, root: str | None = None
    ) -> None:
        """``root`` begins every link, of a page that has no address of its own."""
        self._path, self._is_live, self._root = path, is_live, root
        self._brief = frozenset[tuple[str, ...]]() if site is None else site.brief
        self.targets: set[tuple[str, ...]] = set()

    def page(self, *segments: Any, **query: Any) -> str:
        """The link to a page. A segment may be a list of segments. Values of the query that are None are left out."""
        values = {name: value for name, value in query.items() if value is not None}
        if values and not self._is_live:
            raise AssertionError("a page of a site links to no address with a query")
        path = _flat(segments)
        path = next((path[:stop] for stop in (3, 4) if path[:stop] in self._brief), path) if self._brief else path
        self.targets.add(path)
        folder = self._relative(path)
        text = f"{folder}/" if folder else "./"
        return text + ("" if self._is_live else "index.html") + (f"?{urlencode(values)}" if values else "")

    def file(self, *segments: Any) -> str:
        """The link to a file: a style sheet, a picture of a record, the JSON of a page."""
        path = _flat(segments)
        if path[-1] == "index.json":  # it is written with its page
            return "/".join(filter(None, (self._relative(path[:-1]), path[-1])))
        self.targets.add(path)
        return self._relative(path)

    def _relative(self, path: tuple[str, ...]) -> str:
        common, stop = 0, 0 if self._root is not None else min(len(path), len(self._path))
        while common < stop and path[common] == self._path[common]:
            common += 1
        is_plain = self._is_live or path[:1] == ("static",)
        rest = [_quoted(name, is_plain) for name in path[common:]]
        if self._root is not None:
            return "/".join((self._root.rstrip("/"), *rest))
        up = [".."] * (len(self._path) - common)
        if not up and rest and ":" in path[common]:
            up = ["."]
        return "/".join((*up, *rest))


def _flat(segments: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(
        str(item) for segment in segments for item in (segment if isinstance(segment, list | tuple) else [segment])
    )
