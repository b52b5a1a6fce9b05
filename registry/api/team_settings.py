"""Settings of a team's service for its clients: defaults of some variables, an announcement, the minimum release.

    service.yaml  ->  site.json  ->  registry login, then once an hour  ->  services/settings.json of the user

Only a service to which the user has logged in can set anything, and only what ``CLIENT_SETTINGS`` allows. Environment
variables take precedence. The settings of the service that ``REGISTRY_CATALOG`` names apply; without that variable,
those of the only service that is stored.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from registry.api.logins import PrivateFile
from registry.catalog.service_index import CLIENT_SETTINGS, client_settings, service_index
from registry.catalog.site_index import INDEX_NAME
from registry.catalog.web_urls import is_site, site_url
from registry.errors import CatalogError, StorageError, warn
from registry.masking import remove_secrets

_VARIABLES: Final = {setting.variable: name for name, setting in CLIENT_SETTINGS.items() if setting.variable}
_FRESH: Final = timedelta(hours=1)
_MOST_INDEX_BYTES: Final = 2**16


class TeamSettings:
    """The settings of services that this user has logged in to.

    Attributes:
        file: the file that stores them.
    """

    def __init__(self, folder: Path, usual: str = "") -> None:
        """``folder`` is the user's data folder, and ``usual`` the value of ``REGISTRY_CATALOG``."""
        self.file = PrivateFile(folder / "services" / "settings.json", subject="settings of services")
        self._usual = usual

    def current(self) -> tuple[str, dict[str, str]]:
        """The URL of the service whose settings apply, and the settings; two empty values without a service."""
        with suppress(StorageError, OSError):
            kept = _load(self.file.path, self.file.path.stat().st_mtime_ns)
            url = remove_secrets(site_url(self._usual)) if is_site(self._usual) else ""
            url = next(iter(kept)) if not self._usual and len(kept) == 1 else url
            if url in kept:
                return url, kept[url]
        return "", {}

    def default(self, variable: str) -> str:
        """The default of a variable, or ``""`` if the service sets none."""
        return self.current()[1].get(_VARIABLES[variable], "") if variable in _VARIABLES else ""

    def keep(self, url: str) -> None:
        """Read and store the settings of a service that the user logs in to.

        Raises:
            CatalogError: the service does not answer.
            StorageError: the settings cannot be stored.
        """
        values = client_settings(read_service_index(url))
        before = self.file.load().get(url, {}).get("settings", {})
        self.file.change(url, {"settings": values, "read_at": datetime.now(UTC).isoformat()})
        announcement, least = values.get("announcement", ""), values.get("least_release", "")
        if announcement and announcement != before.get("announcement"):
            warn(f"{url} announces: {announcement}")
        release = metadata.version("shardbook") if least else ""  # importing registry would be a circular import
        if is_older(release, least):
            warn(f"{url} requires shardbook {least} or later, but this is {release}")

    def refresh(self, url: str) -> None:
        """Read the settings of a service again, if the user has logged in and they are older than an hour."""
        with suppress(StorageError, CatalogError, ValueError, TypeError, AttributeError, KeyError):
            kept = self.file.load().get(url) if self.file.path.exists() else None
            if kept is not None and datetime.now(UTC) - datetime.fromisoformat(kept["read_at"]) > _FRESH:
                self.keep(url)

    def forget(self, url: str) -> None:
        """Delete the settings of a service. Raises StorageError."""
        self.file.change(url, None)


@cache
def _load(path: Path, _state: int) -> dict[str, dict[str, str]]:
    """The settings in a file. Malformed and forbidden settings are left out."""
    entries = PrivateFile(path, subject="settings of services").load().items()
    return {
        url: client_settings({"clients": entry.get("settings")}) for url, entry in entries if isinstance(entry, dict)
    }


def is_older(release: str, least: str) -> bool:
    """Whether a release of this software is older than another release; False if the other one is ``""``.

    >>> is_older("0.2.0", "0.10"), is_older("0.10.0", "0.10"), is_older("1.0", "")
    (True, False, False)
    """

    def numbers(text: str) -> list[int]:
        return [*map(int, re.findall(r"\d+", text.partition("+")[0])), 0, 0, 0][:3]

    return bool(least) and numbers(release) < numbers(least)


def read_service_index(url: str) -> dict[str, Any]:
    """Read the ``site.json`` of a service. The result is empty if it is not a service.

    Raises:
        CatalogUnavailableError, CatalogError: the server does not answer, or refuses.
    """
    from registry.catalog.service.requests import ServiceServer

    server = ServiceServer(site_url(url), None)
    try:
        content = server.transfer("GET", INDEX_NAME, lambda answer, _: answer.read(_MOST_INDEX_BYTES), headers={})
    finally:
        server.close()
    return service_index(content) or {}
