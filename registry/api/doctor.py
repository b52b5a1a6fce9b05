"""Examines a client's environment: the catalog, rights, the clock, the data directory, the cache, the installation.

Each examination runs in a separate thread with a time limit: a server that accepts connections but never answers
would otherwise block it for minutes.
"""

from __future__ import annotations

import os
import platform
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Final

import registry
from registry.api.catalog import Catalog, connect
from registry.api.locations import cache, catalog_url, logins, open_data, team_settings
from registry.api.logins import is_older, read_service_index
from registry.catalog import is_site, masked_url
from registry.catalog.service_index import API_VERSION, CLIENT_SETTINGS
from registry.errors import CatalogPermissionError, RegistryError
from registry.model import Role
from registry.splits import counted

_SECONDS: Final = 20.0
_CLOCK_SECONDS: Final = 30
_NEAR_EXPIRY: Final = timedelta(days=7)


class Level(StrEnum):
    """The severity of a finding: nothing to do, something to know, or something that will fail."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one examination.

    Attributes:
        subject: what was examined, e.g. ``clock``.
        level: see ``Level``.
        text: what was found, and what it means.
        hint: what to do; ``""`` if there is nothing to do.
    """

    subject: str
    level: Level
    text: str
    hint: str = ""


def examine(
    url: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    seconds: float = _SECONDS,
) -> Iterator[Finding]:
    """Examine a catalog and this machine. Yields each finding as soon as it is available.

    Args:
        url: the catalog, see ``connect``.
        data_dir: see ``connect``.
        seconds: how long each examination may take.
    """
    yield within(seconds, "versions", _versions)
    opened: list[Catalog] = []
    finding = within(seconds, "catalog", lambda: _catalog(url, data_dir, opened))
    yield finding
    if opened and finding.level is not Level.PROBLEM:
        catalog = opened[0]
        for subject, examination in (("rights", _rights), ("clock", _clock), ("data directory", _data_directory)):
            yield within(seconds, subject, lambda examination=examination: examination(catalog))  # type: ignore[misc]
        webhooks = within(seconds, "webhooks", lambda: _webhooks(catalog))
        if webhooks.level is not Level.OK:  # most catalogs have none
            yield webhooks
        catalog.close()
    yield within(seconds, "cache", _cache)
    if team_settings().current()[0]:
        yield within(seconds, "team settings", _team_settings)


def within(seconds: float, subject: str, examination: Callable[[], tuple[Level, str, str]]) -> Finding:
    """The finding of an examination. An examination that raises an error or exceeds its time limit is a problem."""
    results: list[tuple[Level, str, str]] = []

    def run() -> None:
        try:
            results.append(examination())
        except RegistryError as error:
            results.append((Level.PROBLEM, error.message, error.hint or ""))

    thread = threading.Thread(target=run, daemon=True)  # the process may end before it
    thread.start()
    thread.join(seconds)
    late = (Level.PROBLEM, f"no answer within {seconds:g} seconds", "Try again later. If this persists, ask its admin.")
    level, text, hint = results[0] if results else late
    return Finding(subject=subject, level=level, text=text, hint=hint)


def _versions() -> tuple[Level, str, str]:
    extras = ", ".join(_extras()) or "none"
    text = f"shardbook {registry.__version__}, Python {platform.python_version()}, extras: {extras}"
    return Level.OK, text, ""


def _extras() -> Iterator[str]:
    """The extras of the distribution whose packages are all installed."""
    packages: dict[str, list[str]] = {}
    for line in metadata.requires("shardbook") or ():
        match = re.match(r"([\w.-]+).*\bextra == ['\"]([\w-]+)['\"]", line)
        if match is not None:
            packages.setdefault(match[2], []).append(match[1])
    for extra, names in packages.items():
        with suppress(metadata.PackageNotFoundError):
            for name in names:
                metadata.version(name)
            yield extra


def _catalog(
    url: str | os.PathLike[str] | None, data_dir: str | os.PathLike[str] | None, opened: list[Catalog]
) -> tuple[Level, str, str]:
    catalog = connect(url, data_dir=data_dir, create=False)
    opened.append(catalog)
    catalog.backend.now()
    chosen = catalog_url(url)
    if not is_site(chosen):
        from registry.catalog import schema

        kind = "a PostgreSQL database" if catalog.backend.file is None else "an SQLite file"
        status = schema.status(chosen)
        text = f"{masked_url(chosen)} answers: {kind} with schema {status.revision}"
        if status.state == "ahead":
            hint = "Install a newer version: pip install --upgrade shardbook"
            return Level.WARNING, f"{text}, which this release ({status.head}) only reads", hint
        return Level.OK, text, ""
    if not _is_service(catalog):
        return Level.OK, f"{masked_url(chosen)} answers: a site, which is read-only", ""
    index = read_service_index(chosen)
    versions = ", ".join(map(str, index.get("api", ())))
    text = f"{masked_url(chosen)} answers: a service of {index.get('made_by')!s:.80} with interface {versions}"
    if API_VERSION in index.get("api", ()):
        return Level.OK, text, ""
    return Level.PROBLEM, f"{text}; this release needs {API_VERSION}", "Install the release that its admin recommends."


def _is_service(catalog: Catalog) -> bool:
    return bool(getattr(catalog.backend, "is_service", False))


def _rights(catalog: Catalog) -> tuple[Level, str, str]:
    if is_site(catalog.url) and not _is_service(catalog):
        return Level.OK, "everybody who can reach the site may read it; nobody may write", ""
    text = logins().token(catalog.url) if _is_service(catalog) else None
    holder = f"the token {text.split('_')[1]}" if text else "without a token, this user" if _is_service(catalog) else ""
    holder = holder or "this user"
    try:
        catalog.backend.require_publisher()
    except CatalogPermissionError as error:
        if "role" in error.details:
            return (
                Level.OK,
                f"{holder} may read, but not publish",
                "To publish, ask an admin for a token with that role.",
            )
        return Level.WARNING, f"{holder} may read, but not publish: {error.message}", error.hint or ""
    if text is None:
        return Level.OK, f"{holder} may read and publish", ""
    try:
        tokens = {token.id: token for token in catalog.tokens.list()}
    except CatalogPermissionError:
        return Level.OK, f"{holder} may read and publish", ""
    token = tokens[text.split("_")[1]]
    role = f"{holder} of {token.name} has the role {Role.ADMIN}"
    if token.expires_at is None:
        return Level.OK, f"{role} and does not expire", ""
    is_near = token.expires_at - catalog.backend.now() < _NEAR_EXPIRY
    hint = "Create another token in time: registry token create NAME" if is_near else ""
    return Level.WARNING if is_near else Level.OK, f"{role} until {token.expires_at:%Y-%m-%d %H:%M} UTC", hint


def _clock(catalog: Catalog) -> tuple[Level, str, str]:
    if is_site(catalog.url) and not _is_service(catalog):
        return Level.OK, "a site has no clock", ""
    before = datetime.now(UTC)
    there = catalog.backend.now()
    after = datetime.now(UTC)
    seconds = (there - before - (after - before) / 2).total_seconds()
    if abs(seconds) <= _CLOCK_SECONDS:
        return Level.OK, "the clocks of this machine and of the catalog agree", ""
    side = "behind" if seconds > 0 else "ahead of"
    text = f"the clock of this machine is {abs(seconds):.0f} seconds {side} that of the catalog"
    return Level.WARNING, text, "Correct the wrong clock: dates of --at and the expiry of signed URLs depend on both."


def _data_directory(catalog: Catalog) -> tuple[Level, str, str]:
    recorded, path = catalog.recorded_data_dir, catalog.data_dir
    where = f"{path}, which the catalog records" if recorded == path else f"{path}, which the catalog does not record"
    if recorded is None and catalog.backend.file is None:
        hint = "Record the data directory for all clients: registry config data-dir URL"
        return Level.WARNING, "the catalog records no data directory, and none was named", hint
    store = open_data(path)
    if store.local_root is None:
        store.exists("registry-doctor")  # any answer shows that the place is reachable and accepts this user
        return Level.OK, f"{where}, answers", ""
    if not Path(path).is_dir():
        if not catalog.datasets():
            return Level.OK, f"{where}, will be created by the first publication", ""
        return (
            Level.PROBLEM,
            f"there is no folder {where}",
            "Mount its disk, or specify a copy of the files: --data-dir DIR",
        )
    if not os.access(path, os.R_OK | os.X_OK):
        return Level.PROBLEM, f"{where}, cannot be read by this user", "Ask its owner for read access."
    if not os.access(path, os.W_OK):
        return (
            Level.WARNING,
            f"{where}, can be read, but not written",
            "To publish, ask its owner for write access.",
        )
    return Level.OK, f"{where}, can be read and written", ""


def _webhooks(catalog: Catalog) -> tuple[Level, str, str]:
    try:
        webhooks = catalog.webhooks.list()
    except CatalogPermissionError:  # only admins see them
        return Level.OK, "", ""
    hint = "Correct the receiver, then: registry webhook test ID"
    for webhook in webhooks:
        if webhook.disabled_at is not None:
            return Level.WARNING, f"{webhook.id} is disabled: {webhook.disabled_because}", hint
        if webhook.failures:
            times = counted(webhook.failures, "time")
            return Level.WARNING, f"{webhook.id} has failed {times}: {webhook.last_error}", hint
    return Level.OK, f"{counted(len(webhooks), 'webhook')}", ""


def _team_settings() -> tuple[Level, str, str]:
    """The settings of the team's service, and which of them an environment variable overrides."""
    url, _ = team_settings().current()
    team_settings().keep(url)
    _, values = team_settings().current()
    if not values:
        return Level.OK, f"{url} has no settings for this machine", ""
    texts = []
    for name, value in values.items():
        variable = CLIENT_SETTINGS[name].variable
        own = os.environ.get(variable, "")
        texts.append(f"{name} {value}" + (f" ({variable}={own} is used)" if own and variable else ""))
    text = f"of {url}: {', '.join(texts)}"
    if is_older(registry.__version__, values.get("least_release", "")):
        return Level.WARNING, text, "Install a newer release: pip install --upgrade shardbook"
    return Level.OK, text, ""


def _cache() -> tuple[Level, str, str]:
    files = cache()
    if not files.is_usable:
        hint = "Set REGISTRY_CACHE_BYTES, e.g. to 20GB, and allow only this user to write to the folder, or set "
        hint += "REGISTRY_CACHE_SHARED=1 for a folder of a group."
        return Level.WARNING, f"{files.folder} is not used: it is switched off, or others can write to it", hint
    files.require_writable()
    usage = files.usage()
    room = f"{usage.num_bytes:,} of {usage.max_bytes:,} bytes are used"
    whose = "is shared with its group and is writable" if files.is_shared else "is writable"
    return Level.OK, f"{files.folder} {whose}: {counted(usage.num_files, 'file')}, {room}", ""
