"""Collects garbage: in the data directory of a catalog, in TMPDIR, and in the index cache of this user."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from registry.api.locations import index_folder, log_actor, open_data
from registry.api.reports import GarbageReport
from registry.catalog import catalog_identity
from registry.errors import StorageError
from registry.storage.faults import storage_errors

if TYPE_CHECKING:  # numpy is loaded when something is collected
    from registry.catalog import CatalogBackend
    from registry.publishing.garbage import Leftover


def collect_garbage(
    backend: CatalogBackend,
    data_dir: str,
    *,
    older_than: timedelta,
    dry_run: bool,
    each: Callable[[Leftover], None] | None,
) -> GarbageReport:
    """See ``Catalog.collect_garbage``."""
    from registry.publishing.garbage import GarbageCollector

    collector = GarbageCollector(open_data(data_dir), backend, older_than=older_than, actor=log_actor())
    result = []
    for leftovers, remove in (
        (collector.find(), collector.remove),
        (_find_local(older_than, catalog_identity(backend.log)), _remove_local),
    ):
        for leftover in leftovers:
            result.append(_collect(leftover, remove, dry_run=dry_run))
            if each is not None:
                each(result[-1])
    return GarbageReport(result, notes=collector.notes)


def _collect(leftover: Leftover, remove: Callable[[Leftover], bool], *, dry_run: bool) -> Leftover:
    """Remove a leftover if it is garbage; returns it with the outcome."""
    from registry.publishing.garbage import GarbageOutcome

    if dry_run or leftover.outcome is not GarbageOutcome.FOUND:
        return leftover
    try:
        return replace(leftover, outcome=GarbageOutcome.REMOVED if remove(leftover) else GarbageOutcome.KEPT)
    except StorageError as fault:
        return replace(leftover, outcome=GarbageOutcome.FAILED, error=fault)


def _find_local(older_than: timedelta, identity: str | None) -> Iterator[Leftover]:
    """What killed processes left in TMPDIR, and index files that have not been used within the grace period."""
    from registry.building.finished import is_left
    from registry.publishing.garbage import GarbageOutcome, Leftover
    from registry.storage.local import LocalStore
    from registry.storage.names import OWNER_FILE
    from registry.storage.staged import read_claim
    from registry.storage.temporary import abandoned_temporary, finished_temporary

    for path in abandoned_temporary():
        files = [facts for _, facts in _walk(path)]
        yield Leftover(
            kind="temporary",
            name=str(path),
            place=str(path),
            outcome=GarbageOutcome.FOUND,
            why="the process that made it has ended",
            num_files=len(files),
            num_bytes=sum(file.st_size for file in files),
        )
    latest = (datetime.now(UTC) - older_than).timestamp()
    for path in finished_temporary():
        if not is_left(LocalStore(path)):
            continue
        files = [facts for _, facts in _walk(path)]
        is_old = max((facts.st_ctime for facts in files), default=0) <= latest
        is_ours = identity is not None and read_claim(LocalStore(path), OWNER_FILE)[1] == identity
        why = "finished shards that could not be published; the same command publishes them"
        if is_old:
            why = "finished shards that nobody published for the grace period"
        if is_old and not is_ours:
            why = "finished shards that another catalog may publish"
        yield Leftover(
            kind="temporary",
            name=str(path),
            place=str(path),
            outcome=GarbageOutcome.KEPT if not is_old else GarbageOutcome.FOUND if is_ours else GarbageOutcome.UNKNOWN,
            why=why,
            num_files=len(files),
            num_bytes=sum(file.st_size for file in files),
        )
    unused = list(_unused(older_than))
    if unused:
        yield Leftover(
            kind="cache",
            name=index_folder(),
            place=index_folder(),
            outcome=GarbageOutcome.FOUND,
            why="these files of the index cache have not been used within the grace period",
            num_files=len(unused),
            num_bytes=sum(facts.st_size for _, facts in unused),
            details={"seconds": str(older_than.total_seconds())},
        )


def _remove_local(leftover: Leftover) -> bool:
    with storage_errors("remove", leftover.place):
        if leftover.kind == "temporary":
            shutil.rmtree(leftover.name)
            return True
        for path, _ in _unused(timedelta(seconds=float(leftover.details["seconds"]))):
            path.unlink(missing_ok=True)
    return True


def _unused(older_than: timedelta) -> Iterator[tuple[Path, os.stat_result]]:
    """The indexes and stamps that nobody has read for a while, and what killed processes left of new ones."""
    latest = (datetime.now(UTC) - older_than).timestamp()
    folder = Path(index_folder())
    for path, facts in (*_walk(folder), *_walk(folder.with_name("indexes"))):  # that of earlier versions, too
        if re.search(r"\.(index|stamp)(\.[0-9a-f]{16})?$", path.name) and max(facts.st_atime, facts.st_mtime) <= latest:
            yield path, facts


def _walk(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in sorted(folder.rglob("*")):
        with suppress(OSError):  # removed just now
            facts = path.lstat()
            if not stat.S_ISDIR(facts.st_mode):
                yield path, facts
