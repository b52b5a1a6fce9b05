"""URLs of catalogs, without SQLAlchemy: those of sites and services, and commands that name a catalog."""

from __future__ import annotations

import os
import re
import shlex
from typing import Final
from urllib.parse import urlsplit

from registry.errors import UsageError

_SITE: Final = re.compile(
    r"(?P<scheme>https?)://(?:(?P<user>[^\s/?#@]*)@)?(?P<host>\[[0-9A-F:.]+\]|[\w.-]+)(?::(?P<port>\d{1,5}))?"
    r"(?P<path>/[^\s?#@\\]*)?",
    re.IGNORECASE,
)

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def is_site(url: str | os.PathLike[str]) -> bool:
    """Whether ``url`` names a catalog on the web: a site or a service.

    >>> is_site("https://host/datasets/"), is_site("catalog.db")
    (True, False)
    """
    return os.fspath(url).lower().startswith(("http://", "https://"))


def site_url(url: str | os.PathLike[str]) -> str:
    """The one spelling of the URL of a site or a service, which ends with a slash; a user and password stay in it.

    >>> site_url("HTTPS://Example.org:443/datasets/index.html")
    'https://example.org/datasets/'

    Raises:
        UsageError: the text is not such a URL. The message does not repeat it, because it may contain a password.
    """
    match = _SITE.fullmatch(os.fspath(url))
    if match is None or int(match["port"] or 1) not in range(1, 2**16):
        raise UsageError(
            "the URL of the catalog does not parse",
            hint="Write https://host/path/, the URL of a service or of the folder that has site.json, without a query. "
            "A port is a number from 1 to 65535. "
            "In a password, write %40 for @, %2F for /, %3F for ?, %23 for #, %25 for % and %20 for a space.",
        )
    scheme, path = match["scheme"].lower(), re.sub(r"(?<=/)(?:index\.html|site\.json)$", "", match["path"] or "/")
    user = "" if match["user"] is None else f"{match['user']}@"
    is_usual = match["port"] is None or int(match["port"]) == {"http": 80, "https": 443}[scheme]
    port = "" if is_usual else f":{int(match['port'])}"
    return f"{scheme}://{user}{match['host'].lower()}{port}{path.rstrip('/')}/"


def first_step(url: str) -> str:
    """The command that begins an empty catalog; ``url`` is its URL as ``CatalogBackend.url`` gives it.

    The example dataset is for people who try a file of their own: a catalog on a server is shared.
    """
    if is_site(url):
        return (
            "To publish a first dataset to a service: registry add SOURCE --as NAME. Only its publisher fills a site."
        )
    if url.startswith("sqlite:"):
        return "Start with: registry quickstart"
    return "Publish a first dataset: registry add SOURCE --as NAME"


def quote_catalog(url: str) -> str:
    """The option ``--catalog`` for a command in a hint; ``url`` is the URL as ``CatalogBackend.url`` gives it.

    A URL with a masked password cannot be pasted, so the command then reads the URL from the environment.

    >>> quote_catalog("sqlite:////srv/my catalog.db")
    "--catalog 'sqlite:////srv/my catalog.db'"
    >>> quote_catalog("postgresql://ann:***@host/data")
    '--catalog "$REGISTRY_CATALOG"'
    """
    return '--catalog "$REGISTRY_CATALOG"' if "***" in url else f"--catalog {shlex.quote(url)}"


def is_loopback(url: str) -> bool:
    """Whether a URL names this machine.

    >>> is_loopback("http://127.0.0.1:8080/"), is_loopback("https://catalog.example/")
    (True, False)
    """
    return urlsplit(url).hostname in _LOOPBACK
