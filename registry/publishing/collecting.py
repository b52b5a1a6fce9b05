"""Collects garbage: removals that are due, in the data directory, in TMPDIR, and in the index cache of this user."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from registry.catalog import CatalogBackend, catalog_identity
from registry.errors import StorageError
from registry.publishing.garbage import GarbageCollector, GarbageOutcome, Leftover, judge_finished
from registry.publishing.removal import Remover
from registry.storage import Store
from registry.storage.faults import storage_errors
from registry.storage.local import LocalStore
from registry.storage.names import OWNER_FILE
from registry.storage.staged import is_left, read_claim
from registry.storage.temporary import abandoned_temporary, finished_temporary


def collect_garbage(
    store: Store,
    catalog: CatalogBackend,
    index_folder: Path,
    *,
    older_than: timedelta,
    actor: str,
    dry_run: bool,
    each: Callable[[Leftover], None] | None,
    removals: Remover,
) -> tuple[list[Leftover], list[str]]:
    """Every leftover with its outcome, and notes about what could not be searched for.

    See ``Catalog.collect_garbage``. ``index_folder`` is the index cache of this user.
    """
    collector = GarbageCollector(store, catalog, older_than=older_than, actor=actor)
    local = _LocalGarbage(index_folder, older_than, catalog_identity(catalog.log))
    result = []
    for leftovers, remove in (
        (removals.find(), removals.collect),
        (collector.find(), collector.remove),
        (local.find(), local.remove),
    ):
        for leftover in leftovers:
            result.append(_collect(leftover, remove, dry_run=dry_run))
            if each is not None:
                each(result[-1])
    return result, collector.notes


def _collect(leftover: Leftover, remove: Callable[[Leftover], bool], *, dry_run: bool) -> Leftover:
    """Remove a leftover if it is garbage; returns it with the outcome."""
    if dry_run or leftover.outcome is not GarbageOutcome.FOUND:
        return leftover
    try:
        return replace(leftover, outcome=GarbageOutcome.REMOVED if remove(leftover) else GarbageOutcome.KEPT)
    except StorageError as fault:
        return replace(leftover, outcome=GarbageOutcome.FAILED, error=fault)


@dataclass(frozen=True, slots=True)
class _LocalGarbage:
    """Leftovers of killed processes in TMPDIR, and index files that were not used within the grace period."""

    folder: Path
    older_than: timedelta
    identity: str | None

    def find(self) -> Iterator[Leftover]:
        for path in abandoned_temporary():
            why = "the process that made it has ended"
            yield _leftover("temporary", path, GarbageOutcome.FOUND, why, [facts for _, facts in _walk(path)])
        latest = (datetime.now(UTC) - self.older_than).timestamp()
        for path in finished_temporary():
            if not is_left(LocalStore(path)):
                continue
            files = [facts for _, facts in _walk(path)]
            is_old = max((facts.st_ctime for facts in files), default=0) <= latest
            is_ours = self.identity is not None and read_claim(LocalStore(path), OWNER_FILE)[1] == self.identity
            yield _leftover("temporary", path, *judge_finished(is_old=is_old, is_ours=is_ours), files)
        unused = [facts for _, facts in self._unused()]
        if unused:
            why = "these files of the index cache have not been used within the grace period"
            yield _leftover("cache", self.folder, GarbageOutcome.FOUND, why, unused)

    def remove(self, leftover: Leftover) -> bool:
        with storage_errors("remove", leftover.place):
            if leftover.kind == "temporary":
                shutil.rmtree(leftover.name)
                return True
            for path, _ in self._unused():
                path.unlink(missing_ok=True)
        return True

    def _unused(self) -> Iterator[tuple[Path, os.stat_result]]:
        """The indexes and stamps that were not read for a while, and unfinished ones of killed processes."""
        latest = (datetime.now(UTC) - self.older_than).timestamp()
        for path, facts in (*_walk(self.folder), *_walk(self.folder.with_name("indexes"))):  # of earlier versions, too
            last_use = max(facts.st_atime, facts.st_mtime)
            if re.search(r"\.(index|stamp)(\.[0-9a-f]{16})?$", path.name) and last_use <= latest:
                yield path, facts


def _leftover(kind: str, path: Path, outcome: GarbageOutcome, why: str, files: list[os.stat_result]) -> Leftover:
    return Leftover(
        kind=kind,
        name=str(path),
        place=str(path),
        outcome=outcome,
        why=why,
        num_files=len(files),
        num_bytes=sum(file.st_size for file in files),
    )


def _walk(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in sorted(folder.rglob("*")):
        with suppress(OSError):  # removed just now
            facts = path.lstat()
            if not stat.S_ISDIR(facts.st_mode):
                yield path, facts
