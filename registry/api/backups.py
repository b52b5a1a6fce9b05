"""Backs up catalogs to files, and restores them: ``Catalog.backup`` and ``registry.restore``.

A backup has every row of a catalog but no files of datasets. ``registry.catalog.backup_file`` describes the format.
"""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from registry.api.locations import catalog_url, make_catalog_folder, name_origin, site_options
from registry.argument_types import typed_arguments
from registry.catalog import is_site, open_catalog
from registry.errors import AlreadyStoredError, UsageError, spell
from registry.masking import has_secret
from registry.model import ProgressCallback, count_progress

if TYPE_CHECKING:  # fsspec is loaded when a store is opened
    from _typeshed import ReadableBuffer

    from registry.catalog import BackupFacts, LogReport
    from registry.catalog.schema import RemovedSecrets
    from registry.storage import Store

_LEVEL: Final = 6

_WITHOUT_SECRETS: Final = "0008"
"""Since this revision of the schema, no row contains a password in a URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A backup that was written.

    Attributes:
        path: the path or URL of the file.
        num_bytes: its size.
        facts: the schema of the catalog, the number of rows of each table, the head of the event log, and the sha256 of
            the lines.
        num_secret_rows: the number of rows with a password or token in a URL, which were possible before schema 0008.
            They are saved unchanged, because the event log seals them.
    """

    path: str
    num_bytes: int
    facts: BackupFacts
    num_secret_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """A catalog that was restored.

    Attributes:
        url: the database, without its password.
        facts: the facts that the backup states about itself.
        log: the comparison of the rows with the event log; None with ``verify=False``.
        secrets_removed: the versions, from an older schema, from whose URLs passwords or tokens were removed.
    """

    url: str
    facts: BackupFacts
    log: LogReport | None
    secrets_removed: tuple[RemovedSecrets, ...] = ()


@typed_arguments
def back_up(
    path: str | os.PathLike[str],
    url: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    dry_run: bool = False,
    progress: ProgressCallback | None = None,
) -> Backup:
    """Write a backup of the catalog at ``url``, which may have an older schema than this registry.

    ``Catalog.backup`` does the same for an open catalog.

    Args:
        path: the new file, a path or URL.
        url: the catalog, see ``connect``.
        force: replace the file if it exists.
        dry_run: read all rows, and write nothing; the result describes the backup that would be written.
        progress: called with a ``Progress``, in rows.

    Raises:
        AlreadyStoredError: the file exists, and ``force`` is False.
        CatalogNotFoundError, NotACatalogError, SchemaAheadError: there is no catalog that this release can read.
        StorageError: the file cannot be written.
    """
    from registry.catalog.backup import open_backup

    chosen, advance = catalog_url(url), _count(progress, "backing up", path)
    with name_origin(url), ExitStack() as stack:
        if is_site(chosen):
            lines = stack.enter_context(open_catalog(chosen, site=site_options(()))).backup(advance=advance)
        else:
            lines = stack.enter_context(open_backup(chosen, advance=advance))
        return write_backup(path, lines, force=force, dry_run=dry_run)


@typed_arguments
def restore(
    path: str | os.PathLike[str],
    url: str | os.PathLike[str] | None = None,
    *,
    verify: bool = True,
    anchor: str | None = None,
    dry_run: bool = False,
    progress: ProgressCallback | None = None,
) -> Restoration:
    """Restore a backup into an empty catalog, of the same or the other kind of database, in one transaction.

    The database is a new SQLite file, a database without tables, or a catalog without rows. A backup of an older schema
    is upgraded. The whole file is checked first; if anything is wrong, nothing is restored.

    Restore only backups whose origin you trust: the rows name the places from which readers fetch files.

    Args:
        path: the backup, a path or URL.
        url: the catalog to create, see ``connect``.
        verify: compare the rows with the event log, and refuse a backup of a catalog that was tampered with.
        anchor: the ``head`` of the log when the backup was made, or an earlier head. The log must contain it.
        dry_run: check the backup in a temporary SQLite file, check that the catalog is empty, and restore nothing.
        progress: called with a ``Progress``, in rows.

    Raises:
        UsageError: ``anchor`` is given, and ``verify`` is False.
        NotStoredError: the file does not exist.
        BackupFormatError: the file is not a backup, or is damaged, truncated or changed; the message names the line.
        CatalogNotEmptyError: the catalog has rows.
        LogTamperedError: the rows differ from the event log, or the log does not contain ``anchor``.
        SchemaAheadError: a newer registry made the backup or the catalog.
        NotACatalogError: the database contains other tables.
        CatalogUnavailableError: the database does not answer, or is in use.

    Examples:
        >>> _ = catalog.backup("catalog.backup.gz")
        >>> restored = registry.restore("catalog.backup.gz", "restored.db")
        >>> restored.facts.rows["dataset_version"], restored.log.is_sound
        (1, True)
    """
    from registry.catalog.restore import require_empty, restore_backup, shown_url

    chosen = catalog_url(url)
    store, name = _store_of(path)
    with name_origin(url), ExitStack() as stack:
        with store.open(name):  # before the folder of the catalog is created
            pass
        if dry_run:
            require_empty(chosen)
            folder = stack.enter_context(TemporaryDirectory(prefix="registry-"))
        else:
            make_catalog_folder(chosen)
        done = restore_backup(
            f"{folder}/catalog.db" if dry_run else chosen,
            lambda: store.open(name),
            shown=store.locate(name),
            verify=verify,
            anchor=anchor,
            advance=_count(progress, "restoring", path),
        )
    url_shown = shown_url(chosen) if dry_run else done.url
    return Restoration(url=url_shown, facts=done.facts, log=done.log, secrets_removed=done.secrets_removed)


def write_backup(path: str | os.PathLike[str], lines: Iterable[bytes], *, force: bool, dry_run: bool = False) -> Backup:
    """Write the lines of a backup to a new file, which appears only when it is complete."""
    from registry.catalog.backup_file import facts_of

    store, name = _store_of(path)
    head = last = b""
    num_secret_rows = 0
    counted = _Counted()
    try:
        if dry_run and not force and store.exists(name):
            raise AlreadyStoredError("the file exists")
        # The name and time in gzip's header are left out: the last line of the backup has the time.
        with (
            nullcontext(counted) if dry_run else store.create(name, overwrite=force) as file,
            gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_LEVEL, mtime=0) as packed,
        ):
            for piece in lines:
                head, last = head or piece, piece
                if _may_have_secrets(head):
                    num_secret_rows += sum(has_secret(line.decode()) for line in piece.splitlines() if b"://" in line)
                packed.write(piece)
    except AlreadyStoredError as error:
        raise AlreadyStoredError(
            f"{store.locate(name)} already exists",
            hint=f"Name another file, or replace it with {spell('force', True)}.",
            details={"path": store.locate(name)},
        ) from error
    num_bytes = counted.num_bytes if dry_run else store.size(name)
    facts = facts_of(head, last)
    return Backup(path=store.locate(name), num_bytes=num_bytes, facts=facts, num_secret_rows=num_secret_rows)


def _may_have_secrets(head: bytes) -> bool:
    """Whether the backup with this first line has a schema from before secrets were removed from URLs."""
    schema: str = json.loads(head)["schema"]
    return schema < _WITHOUT_SECRETS


class _Counted(io.RawIOBase):
    """Counts the bytes that are written to it, and discards them."""

    num_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer) -> int:
        written = memoryview(data).nbytes
        self.num_bytes += written
        return written


def _store_of(path: str | os.PathLike[str]) -> tuple[Store, str]:
    """The folder of a file, as a store, and the name of the file."""
    from registry.storage import open_store, require_plain

    text = require_plain(os.fspath(path))
    if "://" not in text:
        text = os.path.abspath(os.path.expanduser(text)) if text and not text.endswith("/") else ""  # noqa: PTH100, PTH111
    folder, _, name = text.rpartition("/")
    if not name:
        raise UsageError(f"{os.fspath(path)!r} does not name a file", hint="Name a file, e.g. catalog.backup.gz.")
    return open_store(folder if folder.strip("/") and not folder.endswith("/") else f"{folder}/"), name


def _count(progress: ProgressCallback | None, doing: str, path: str | os.PathLike[str]) -> Callable[[int], None] | None:
    return count_progress(progress, doing, os.fspath(path), unit="rows")
