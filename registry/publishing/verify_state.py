"""Remembers which versions were verified and when, so that an interrupted ``verify_all`` continues.

The file has one line of JSON for each version that was sound, and a line at the beginning and the end of each run:

    {"begin": "2026-11-23T09:00:00+00:00"}
    {"version": "digits:1.0.0", "content": "...", "locations": [...], "deep": false, "at": "2026-11-23T09:00:07+00:00"}
    {"end": "2026-11-23T09:41:12+00:00"}

Lines are appended, so a killed run keeps what it did. A line that cannot be read is skipped: its version is verified
again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from registry.catalog import CatalogBackend, VersionSummary, catalog_identity
from registry.errors import ContinuedRunWarning, UsageError, spell, warn
from registry.model import Reference, describe_moment, parse_duration, parse_moment
from registry.storage import Store, expand_home, open_store, read_file
from registry.storage.faults import storage_errors

CONTINUED: Final = timedelta(days=7)
"""An interrupted run is continued for this long. Files may have been damaged since an older one."""


def state_file(index_folder: str, backend: CatalogBackend, data: Store) -> Path | None:
    """The file beside ``index_folder`` for a catalog and a data directory; None for a catalog without events.

    The first event identifies the catalog: a path may name another one tomorrow.
    """
    identity = catalog_identity(backend.log)
    if identity is None:
        return None
    name = hashlib.sha256(f"{identity}\n{data.url}".encode()).hexdigest()[:32]
    return Path(index_folder).with_name("verified") / f"{name}.jsonl"


def read_since(since: str | datetime | timedelta, *, now: datetime) -> datetime:
    """The moment that ``since`` means: a moment, a day, or a duration before ``now``.

    Raises:
        UsageError: it is malformed, or a moment without a time zone.
    """
    if isinstance(since, timedelta):
        return now - since
    if isinstance(since, datetime):
        if since.tzinfo is None:
            raise UsageError(f"{since} has no time zone", hint="Pass datetime(..., tzinfo=UTC).")
        return since
    try:
        return now - parse_duration(since) if since[-1:] in tuple("smhdw") else parse_moment(since, end=False)
    except UsageError as error:
        error.rephrase(hint="Write a duration, a day or a moment, e.g. 12h, 7d, 2026-11-21 or 2026-11-21T10:00.")
        raise


class VerifyState:
    """The file of one run of ``verify_all``; without a file, nothing is remembered."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        *,
        since: str | datetime | timedelta | None,
        restart: bool,
        deep: bool,
        catalog: CatalogBackend,
    ) -> None:
        """Read the file, and write it anew with what is still of use.

        Raises:
            UsageError: ``since`` is malformed, or there is no file.
            StorageError: it cannot be read or written.
        """
        self._deep = deep
        self._lines: dict[str, dict[str, Any]] = {}
        self._locations: dict[Reference, tuple[str, ...]] = {}
        self._since: datetime | None = None
        now = datetime.now(UTC)
        moment = None if since is None else read_since(since, now=now)
        if moment is not None and path is None:
            raise UsageError("since needs a state", hint="Pass state=PATH, a file that records verified versions.")
        self._path = None if path is None else expand_home(path).absolute()
        if self._path is None:
            return
        self._locations = {version.reference: version.locations for version in catalog.sizes()}
        begun = self._read(self._path)
        is_recent = begun is not None and now - begun <= CONTINUED
        continues = begun if is_recent and not restart else None
        self._since = min((at for at in (moment, continues) if at is not None), default=None)
        if continues is not None:
            text = f"continues the run of {describe_moment(continues.replace(microsecond=0))}; "
            warn(f"{text}to start over: {spell('restart', True)}", ContinuedRunWarning)
        lines = [*self._lines.values(), {"begin": (continues or now).isoformat()}]
        store = open_store(self._path.parent)
        with store.create(self._path.name, overwrite=True) as file:
            file.write("".join(f"{json.dumps(line)}\n" for line in lines).encode())

    def verified_before(self, version: VersionSummary) -> datetime | None:
        """When a version was found sound, if it need not be verified again."""
        line = self._lines.get(str(version.reference))
        if line is None or self._since is None or line | self._facts_of(version) != line:
            return None
        at = datetime.fromisoformat(line["at"]).astimezone(UTC)
        return at if at >= self._since and (line["deep"] is True or not self._deep) else None

    def keep(self, version: VersionSummary) -> None:
        """Note that a version is sound."""
        self._append(self._facts_of(version) | {"deep": self._deep, "at": datetime.now(UTC).isoformat()})

    def end(self) -> None:
        """Note that the run is complete."""
        self._append({"end": datetime.now(UTC).isoformat()})

    def _facts_of(self, version: VersionSummary) -> dict[str, Any]:
        """The facts that must be the same if the version is not verified again."""
        locations = list(self._locations.get(version.reference, ()))
        return {"version": str(version.reference), "content": version.content_digest, "locations": locations}

    def _append(self, line: Mapping[str, Any]) -> None:
        # A line that is lost means that a version is verified again; it must not end the run.
        if self._path is not None:
            with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(line)}\n")

    def _read(self, path: Path) -> datetime | None:
        """Read the lines; when the last run began, if it did not come to its end."""
        begun: datetime | None = None
        for line in _lines_of(path):
            if "begin" in line:
                begun = datetime.fromisoformat(line["begin"])
            elif "end" in line:
                begun = None
            else:
                self._lines[str(line["version"])] = line
        return None if begun is None else begun.astimezone(UTC)


class VerifyRun(NamedTuple):
    """The last run of ``verify_all``.

    ``ended_at`` is None if it did not come to its end. ``num_versions`` were found sound in it or were remembered, the
    last one at ``newest_at``.
    """

    begun_at: datetime
    ended_at: datetime | None
    num_versions: int
    newest_at: datetime | None


def last_run(path: Path) -> VerifyRun | None:
    """The last run that a file of ``state_file`` remembers; None if nothing was verified.

    Raises:
        StorageError: it cannot be read.
    """
    lines = list(_lines_of(path))
    moments = {
        name: [datetime.fromisoformat(it[name]).astimezone(UTC) for it in lines if name in it]
        for name in ("begin", "end", "at")
    }
    if not moments["begin"]:
        return None
    begun, ended = moments["begin"][-1], max(moments["end"], default=None)
    versions = {str(it["version"]) for it in lines if "version" in it}
    is_over = ended is not None and ended >= begun
    return VerifyRun(begun, ended if is_over else None, len(versions), max(moments["at"], default=None))


def _lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file that are whole; none if there is no file."""
    with storage_errors("read", str(path)):
        lines = read_file(path).decode(errors="replace").splitlines() if path.exists() else []
    for text in lines:
        try:
            line = json.loads(text)
            name = next((name for name in ("begin", "end") if name in line), "at")
            datetime.fromisoformat(line[name]), name != "at" or (line["deep"], line["version"])
            yield line
        except (ValueError, TypeError, LookupError, RecursionError):  # half a line of a run that was killed
            continue
