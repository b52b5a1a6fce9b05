"""URLs of catalogs on the web: of sites and of services. Nothing here loads SQLAlchemy."""

from __future__ import annotations

import os
import re
from typing import Final

from registry.errors import UsageError

_SITE: Final = re.compile(
    r"(?P<scheme>https?)://(?:(?P<user>[^\s/?#@]*)@)?(?P<host>\[[0-9A-F:.]+\]|[\w.-]+)(?::(?P<port>\d{1,5}))?"
    r"(?P<path>/[^\s?#@\\]*)?",
    re.IGNORECASE,
)


def is_site(url: str | os.PathLike[str]) -> bool:
    """Whether ``url`` names a catalog on the web: a site or a service."""
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
            "In a password, write %40 for @, %2F for /, %3F for ?, %23 for #, %25 for % and %20 for a space.",
        )
    scheme, path = match["scheme"].lower(), re.sub(r"(?<=/)(?:index\.html|site\.json)$", "", match["path"] or "/")
    user = "" if match["user"] is None else f"{match['user']}@"
    is_usual = match["port"] is None or int(match["port"]) == {"http": 80, "https": 443}[scheme]
    port = "" if is_usual else f":{int(match['port'])}"
    return f"{scheme}://{user}{match['host'].lower()}{port}{path.rstrip('/')}/"
