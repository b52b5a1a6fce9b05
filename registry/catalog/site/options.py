"""``SiteOptions``: where a client keeps what it knows about catalogs on the web, and whom it trusts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from registry.storage.consent import Allowed

if TYPE_CHECKING:
    from registry.catalog.site_index import SiteIndex


def no_token(_url: str) -> None:
    """No access token for any service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteOptions:
    """Where a client keeps what it knows about sites, and whom it trusts.

    Attributes:
        cache: the folder of snapshots, which can be deleted at any time; None without a cache.
        heads: the folder that remembers the heads of logs. It is not a cache: who deletes it trusts each site anew.
        check: called with each index before its catalog is used; raises SignatureError if nobody trusted signed it.
        keys: the public keys that ``check`` accepts, as paths or texts.
        allowed: servers that may get the login for web servers, besides the site's own.
        token: gives the access token for the URL of a service, or None. It can be pickled.
        contacted: called with the URL of a service that has answered, at most once a minute.
    """

    cache: Path | None
    heads: Path
    check: Callable[[SiteIndex], object] | None = None
    keys: tuple[str, ...] = ()
    allowed: Allowed = field(default_factory=Allowed)
    token: Callable[[str], str | None] = no_token
    contacted: Callable[[str], object] = no_token
