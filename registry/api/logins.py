"""What this user keeps of services: access tokens, and the settings of a team.

``registry login`` stores a token: in the system's keyring, or in ``services/tokens.json`` in the user's data folder,
readable only by the user. The variable REGISTRY_TOKEN takes precedence. The file is used if no keyring is installed, or
if the keyring is locked or fails. A token in the file is newer than one in the keyring, because a token that is stored
in the keyring is removed from the file.

Settings are defaults of some variables, an announcement, and the minimum release:

    service.yaml  ->  site.json  ->  registry login, then once an hour  ->  services/settings.json of the user

Only a service to which the user has logged in can set anything, and only what ``CLIENT_SETTINGS`` allows. Environment
variables take precedence. The settings of the service that ``REGISTRY_CATALOG`` names apply; without that variable,
those of the only service that is stored.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from registry.catalog.service_index import CLIENT_SETTINGS, client_settings, service_index
from registry.catalog.site_index import INDEX_NAME
from registry.catalog.web_urls import is_site, site_url
from registry.environment import read_variable
from registry.errors import CatalogError, NotFoundError, StorageError, warn
from registry.masking import remove_secrets
from registry.model import digest_of
from registry.storage.faults import storage_errors
from registry.storage.memory import make_private, read_own

TOKEN_VARIABLE: Final = "REGISTRY_TOKEN"  # noqa: S105 (its name)
"""The access token for the opened service, or the one that ``REGISTRY_CATALOG`` names; overrides a stored token."""

_SERVICE: Final = "shardbook"
_MOST_BYTES: Final = 2**20


class Logins:
    """The tokens of one user.

    Attributes:
        file: the file that is used without a keyring.
    """

    def __init__(self, folder: Path, usual: str = "") -> None:
        """``folder`` is the user's data folder, and ``usual`` the value of ``REGISTRY_CATALOG``."""
        self.file = folder / "services" / "tokens.json"
        self._kept = PrivateFile(self.file, subject="access tokens")
        self._usual = usual

    def token(self, url: str) -> str | None:
        """The token for the service at ``url``, or None.

        If ``REGISTRY_CATALOG`` names a catalog on the web, ``REGISTRY_TOKEN`` is sent only to that server.

        Raises:
            UsageError: ``REGISTRY_TOKEN`` is not the text of a token, or ``REGISTRY_CATALOG`` does not parse.
            StorageError: the file cannot be read, or others can write to it.
        """
        is_other = is_site(self._usual) and _server(self._usual) != _server(url)
        if not is_other and (text := read_variable(TOKEN_VARIABLE).strip()):
            digest_of(text)
            return text
        kept = self._kept.load().get(url)
        return (
            kept if isinstance(kept, str) else _in_keyring("read", lambda keyring: keyring.get_password(_SERVICE, url))
        )

    def keep(self, url: str, token: str) -> str:
        """Store the token for the service at ``url``, replacing an earlier one, and return where it is stored.

        Raises:
            StorageError: the file cannot be written.
        """
        is_in_keyring = _in_keyring("write", lambda keyring: keyring.set_password(_SERVICE, url, token) is None)
        self._kept.change(url, None if is_in_keyring else token)
        return "the keyring" if is_in_keyring else str(self.file)

    def forget(self, url: str) -> None:
        """Delete the token for the service at ``url``.

        Raises:
            NotFoundError: no token is stored for this URL.
            StorageError: the file cannot be written.
        """

        def delete(keyring: Any) -> bool:
            has_token = keyring.get_password(_SERVICE, url) is not None
            if has_token:
                keyring.delete_password(_SERVICE, url)
            return has_token

        was_in_keyring = _in_keyring("write", delete)
        if not self._kept.change(url, None) and not was_in_keyring:
            raise NotFoundError(
                f"no token is stored for {url}", hint="Store one: registry login URL", details={"name": url}
            )


class PrivateFile:
    """A JSON file that only this user can read. It contains an object; processes change one entry at a time.

    Attributes:
        path: its path.
    """

    def __init__(self, path: Path, *, subject: str) -> None:
        """``subject`` names the content of the file in messages."""
        self.path = path
        self._subject = subject

    def load(self) -> dict[str, Any]:
        """The entries, which are empty if the file does not exist.

        Raises:
            StorageError: it cannot be read, or others can write to it.
        """
        with storage_errors("read", str(self.path)):
            try:
                make_private(self.path.parent)
                values = json.loads(read_own(self.path, _MOST_BYTES))
            except FileNotFoundError:
                return {}
            except ValueError:
                values = None
        if not isinstance(values, dict):
            raise StorageError(
                f"{self.path}, which contains {self._subject}, is damaged",
                hint="Delete it, and log in again: registry login URL",
                details={"path": str(self.path), "errno": None, "doing": "read"},
            )
        return values

    def change(self, name: str, value: Any) -> bool:
        """Set an entry, or remove it with None, while other processes wait. Returns whether it existed before.

        Raises:
            StorageError: the file cannot be written.
        """
        from registry.storage.local import LocalStore  # reading a token does not need it

        if value is None and not self.path.exists():
            return False
        with storage_errors("write", str(self.path)):
            make_private(self.path.parent)
        with LocalStore(self.path.parent).exclusive(self.path.name):
            before = self.load()
            after = {other: kept for other, kept in before.items() if other != name}
            after |= {} if value is None else {name: value}
            if after != before:
                self._store(after)
        return name in before

    def _store(self, values: dict[str, Any]) -> None:
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with storage_errors("write", str(self.path)):
            temporary.unlink(missing_ok=True)
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:  # noqa: PTH123
                json.dump(values, new, indent=2)
            temporary.replace(self.path)


def log_in(url: str, token: str, logins: Logins) -> tuple[str, str]:
    """Check a token with the service at ``url``, and store it. Returns where it is stored, and the normalized URL.

    Raises:
        UsageError: the URL does not parse, or ``text`` is not the text of a token.
        CatalogRefusedError: the service does not accept the token.
        CatalogUnavailableError, CatalogError: the server does not answer, or is not a service.
        StorageError: the token cannot be stored.
    """
    from registry.catalog.service import ServiceCatalog

    token = token.strip()
    digest_of(token)
    with ServiceCatalog(remove_secrets(url), token=lambda _: token) as service:
        service.now()
        return logins.keep(service.url, token), service.url


def _server(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(site_url(url))
    return parts.scheme, parts.hostname, parts.port


def _in_keyring(doing: str, call: Callable[[Any], Any]) -> Any:
    """The result of a call to the keyring, or None, with a warning, if the keyring is locked or fails."""
    keyring = _keyring()
    if keyring is None:
        return None
    errors: Any = import_module("keyring.errors")
    try:
        return call(keyring)
    except (errors.KeyringError, OSError, RuntimeError) as error:
        reason = str(error).partition("\n")[0][:200] or type(error).__name__
        warn(f"the keyring cannot be {'read' if doing == 'read' else 'written'}: {reason}; a private file is used")
        return None


def _keyring() -> Any:
    """The keyring of the system, or None if the package ``keyring`` is not installed or finds no keyring."""
    try:
        keyring: Any = import_module("keyring")
    except ImportError:
        return None
    return keyring if keyring.get_keyring().priority > 0 else None


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
