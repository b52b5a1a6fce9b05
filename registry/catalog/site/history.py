"""Remembers how far this machine has read the event log of each site, as ssh remembers the keys of hosts.

Each event is sealed with the hash of the one before it. So the number and hash of one event prove all events up to it:
a log whose event with that number has that hash is a continuation, and every other one was rolled back or rewritten.
There is a small file for each site in the user's data folder, because people delete caches.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Final

from registry.errors import PreparedFormatError, SiteHistoryError, StorageError
from registry.json_node import parse_json
from registry.model import describe_moment
from registry.storage.faults import storage_errors
from registry.storage.local import LocalStore

_log = logging.getLogger(__name__)

_MOST_BYTES: Final = 2**14


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The last event of a log that was read: its number and hash, 0 and 64 zeros for an empty log, and when."""

    event: int
    hash: str
    read_at: datetime


class KnownHead:
    """The head of the log of one site, in a file."""

    def __init__(self, folder: Path, url: str) -> None:
        """``folder`` has the files of all sites; ``url`` is that of the site, without a password."""
        self.url = url
        self._name = f"{blake2b(url.encode(), digest_size=16).hexdigest()}.json"
        self._folder = folder

    @property
    def file(self) -> Path:
        """The file; who removes it trusts the site anew."""
        return self._folder / self._name

    def load(self) -> Head | None:
        """The head; None if this machine has never read the site.

        Raises:
            StorageError: the file cannot be read, or is damaged.
        """
        try:
            with storage_errors("read", str(self.file)), self.file.open("rb") as file:
                content = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return None
        try:
            values = parse_json(content.decode(), str(self.file)).entries()
            number, digest = values["event"].integer(), values["hash"].text()
            return Head(event=number, hash=digest, read_at=datetime.fromisoformat(values["read_at"].text()))
        except (PreparedFormatError, LookupError, ValueError) as error:
            raise StorageError(
                f"{self.file}, which remembers the event log of {self.url}, is damaged",
                hint=f"To trust what the site has now: rm {shlex.quote(str(self.file))}",
                details={"path": str(self.file), "errno": None, "doing": "read"},
            ) from error

    def keep(self, head: Head) -> None:
        """Write the head, unless another process has read further. A folder that cannot be written is logged."""
        text = {"url": self.url, "event": head.event, "hash": head.hash, "read_at": head.read_at.isoformat()}
        try:
            before = self.load()
            if before is not None and before.event >= head.event:
                return
            with storage_errors("write", str(self.file)):
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with LocalStore(self._folder).create_path(self._name, overwrite=True) as path, open(path, "w") as file:  # noqa: PTH123
                file.write(json.dumps(text, indent=2) + "\n")
        except StorageError as error:
            _log.warning("it is not remembered what %s has: %s", self.url, error)

    def refusal(self, before: Head, now: Head, first: int | None) -> SiteHistoryError:
        """The error for a log that ends with ``now`` and does not continue the one of ``before``.

        ``first`` is the number of the first event that differs, if that is known.
        """
        is_shorter = now.event < before.event and first in (None, now.event + 1)
        was = f"event {before.event} of it was read here at {describe_moment(before.read_at.replace(microsecond=0))}"
        if is_shorter:
            kind = "rolled back"
            problem = f"the event log of {self.url} was rolled back to event {now.event}: {was}"
            wait = "A cache between may answer with an older copy: try again later. "
        else:
            kind, wait = "forked", ""
            place = f"event {first}" if first is not None else f"event {min(before.event, now.event)} or before"
            problem = f"the event log of {self.url} was forked at {place}: it has other events than before; {was}"
        return SiteHistoryError(
            problem,
            hint=f"{wait}Ask its publisher, over another channel, whether the catalog was made anew. If so, trust what "
            f"it has now: rm {shlex.quote(str(self.file))}",
            details={
                "url": self.url,
                "kind": kind,
                "event": before.event,
                "hash": before.hash,
                "first": first,
                "file": os.fspath(self.file),
                "faults": [],
            },
        )
