"""Downloads the snapshot that the index of a site names, and verifies it: an SQLite file that somebody else wrote.

    catalog/<digest>.db.gz  ->  sizes and sha256, while it arrives  ->  schema, triggers, locations  ->  the chain

The sizes that the index declares are limits, so that no small file fills the disk or the memory. A snapshot of an older
release is upgraded; the file in the cache then differs from the one that was downloaded.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import sqlalchemy as sa

from registry.catalog.events import FIRST_PREVIOUS, Faults, events_of_version, walk_chain
from registry.catalog.queries import find_version_id
from registry.catalog.revision import read_status
from registry.catalog.schema import upgrade, wrong_triggers
from registry.catalog.search import OWN_TABLES, SQLITE_INDEX, missing_parts
from registry.catalog.session import opened_engine, reading
from registry.catalog.site.history import Head, KnownHead
from registry.catalog.site_index import is_local
from registry.catalog.sql_catalog import SqlCatalog, open_sql_catalog
from registry.catalog.stored_content import recompute_contents
from registry.catalog.tables import dataset_version, event, version_location, whole_metadata
from registry.catalog.urls import describe_url, parse_url
from registry.catalog.values import stored_values
from registry.errors import (
    CatalogError,
    CatalogUnavailableError,
    LogTamperedError,
    SchemaAheadError,
    SiteMismatchError,
)
from registry.inflate import inflate_library
from registry.storage.faults import storage_errors

if TYPE_CHECKING:
    from registry.catalog.site.requests import SiteServer
    from registry.catalog.site_index import SiteIndex
    from registry.model import DatasetVersion

MOST_BYTES: Final = 2**32
"""A snapshot of a thousand datasets with ten versions each has about 50 megabytes."""

_PIECE_BYTES: Final = 2**18
_OTHER_TABLES: Final = frozenset({"alembic_version", "sqlite_sequence", "sqlite_stat1", "sqlite_stat4"})
_GZIP_WINDOW: Final = 31
_HINT: Final = "The site is damaged, or was changed. What was read before is kept. Ask its publisher to write it again."


def mismatch(url: str, field: str, problem: str, *, expected: Any = None, found: Any = None) -> SiteMismatchError:
    """The error for a site at ``url``, without its password, whose catalog does not fit its index."""
    values = "" if expected is None else f": expected {expected}, found {found}"
    details = {"url": url, "field": field, "expected": expected, "found": found}
    return SiteMismatchError(f"the catalog of {url} {problem}{values}", hint=_HINT, details=details)


class MissingSnapshot(Exception):  # noqa: N818 (it never leaves this folder)
    """The server does not have the file that the index names."""


def download(server: SiteServer, index: SiteIndex, file: Path) -> None:
    """Write the decompressed snapshot to ``file``.

    Raises:
        MissingSnapshot: the server does not have it.
        SiteMismatchError: it is not the file that the index names.
        CatalogUnavailableError, CatalogRefusedError, CatalogError: see ``SiteServer.get``.
        StorageError: the file cannot be written.
    """
    for name in ("num_bytes", "compressed_bytes"):
        if getattr(index, name) > MOST_BYTES:
            found = f"{getattr(index, name):,} bytes"
            raise mismatch(server.url, name, "is too large", expected=f"at most {MOST_BYTES:,}", found=found)
    with storage_errors("write", str(file)), file.open("wb") as target:
        inflating = _Inflating(server.url, index, target)
        if server.get(index.path, most_bytes=index.compressed_bytes, start=inflating.start) is None:
            raise MissingSnapshot
        inflating.finish()


class _Inflating:
    """Receives the compressed bytes, and writes and counts the decompressed ones."""

    def __init__(self, url: str, index: SiteIndex, target: BinaryIO) -> None:
        self._url, self._index, self._target = url, index, target

    def start(self) -> Callable[[bytes], object]:
        """Begin anew; the result receives the pieces."""
        self._target.truncate(self._target.seek(0))
        make, self._fault = inflate_library()
        self._inflater = make(_GZIP_WINDOW)
        self._compressed, self._plain = hashlib.sha256(), hashlib.sha256()
        self._compressed_bytes = self._num_bytes = 0
        return self._take

    def _take(self, piece: bytes) -> None:
        self._compressed.update(piece)
        self._compressed_bytes += len(piece)
        self._limit("compressed_bytes", self._compressed_bytes)
        try:
            while piece and not self._inflater.eof:
                self._write(self._inflater.decompress(piece, _PIECE_BYTES))
                piece = self._inflater.unconsumed_tail
        except self._fault as error:
            raise mismatch(self._url, "compressed_sha256", f"does not decompress ({error})") from error

    def finish(self) -> None:
        """Compare the sizes and digests with those of the index."""
        if not self._inflater.eof:
            self._write(self._inflater.flush())
        for field, found in (
            ("compressed_bytes", self._compressed_bytes),
            ("compressed_sha256", self._compressed.hexdigest()),
            ("num_bytes", self._num_bytes),
            ("sha256", self._plain.hexdigest()),
        ):
            expected = getattr(self._index, field)
            if found != expected:
                raise mismatch(self._url, field, f"has another {field}", expected=expected, found=found)

    def _write(self, content: bytes) -> None:
        self._num_bytes += len(content)
        self._limit("num_bytes", self._num_bytes)
        self._plain.update(content)
        self._target.write(content)

    def _limit(self, field: str, found: int) -> None:
        expected = getattr(self._index, field)
        if found > expected:
            raise mismatch(self._url, field, f"has another {field}", expected=expected, found=f"more than {expected}")


def verify_snapshot(url: str, file: Path) -> None:
    """Bring the downloaded snapshot of the site at ``url`` to the schema of this release, and verify what it has.

    The chain of 10,000 events takes about half a second.

    Raises:
        SchemaAheadError: a newer release made it.
        SiteMismatchError: it is not a catalog, or has views, triggers or locations that a site must not have.
        LogTamperedError: the chain of its event log is broken.
    """
    faults = Faults()
    with _named(url, file):
        with opened_engine(str(file), frozen=True) as engine:
            is_behind = read_status(engine).state == "behind"
        if is_behind:
            upgrade(str(file))
        with open_snapshot(url, file) as catalog, reading(catalog._engine) as connection:
            _check_schema(url, connection)
            _check_locations(url, connection)
            walk_chain(connection, faults, anchor=None, advance=lambda _: None)
    if faults.num_faults:
        raise LogTamperedError(
            f"the event log of {url} is broken: {faults.kept[0]}",
            hint=_HINT,
            details={"faults": [str(fault) for fault in faults.kept]},
        )


def open_snapshot(url: str, file: Path) -> SqlCatalog:
    """The catalog in a file that was verified; nobody writes to it."""
    with _named(url, file):
        return open_sql_catalog(str(file), create=False, frozen=True)


def verify_version(url: str, catalog: SqlCatalog, version: DatasetVersion) -> None:
    """Compare the content of a version with the event that published it: the chain proves events, and not rows.

    Raises:
        LogTamperedError: its schema, labels or shards are not those that were published.
    """
    with reading(catalog._engine) as connection, stored_values():
        version_id = find_version_id(connection, version.name, version.config, version.version)
        rows = connection.execute(sa.select(dataset_version).where(dataset_version.c.id == version_id)).all()
        contents = recompute_contents(connection, rows, lambda _: None).values()
        events = events_of_version(connection, version.reference.dataset, str(version.version), "publish")
        published = {event.details.get("content_digest") for event in events}
    digests = {version.content_digest, *(content.hasher.hexdigest() for content in contents)}
    if published != digests or any(content.contradictory for content in contents):
        raise LogTamperedError(
            f"{version.reference} in the catalog of {url} has other content than was published",
            hint=_HINT,
            details={"faults": [str(version.reference)]},
        )


def require_head(
    index: SiteIndex, catalog: SqlCatalog, known: KnownHead, before: Head | None, earlier: SqlCatalog | None
) -> Head:
    """The head of the snapshot's log, whose chain was verified.

    It must be the one of the index, and the log must continue the one that was read ``before``; ``earlier`` is the
    snapshot that was.

    Raises:
        SiteMismatchError: the head or the number of events is not that of the index.
        SiteHistoryError: the log was rolled back or rewritten.
    """
    with ExitStack() as stack:
        log = stack.enter_context(reading(catalog._engine))
        head = head_of(log)
        for field, found in (("num_events", head.event), ("head", head.hash)):
            expected = getattr(index, field)
            if found != expected:
                raise mismatch(known.url, field, f"has another {field}", expected=expected, found=found)
        of_before = sa.select(event.c.hash).where(event.c.id == (0 if before is None else before.event))
        if before is not None and before.event and log.execute(of_before).scalar() != before.hash:
            log_before = None if earlier is None else stack.enter_context(reading(earlier._engine))
            raise known.refusal(before, head, None if log_before is None else _first_difference(log_before, log))
    return head


def head_of(log: sa.Connection) -> Head:
    """The last event of a log."""
    row = log.execute(sa.select(event.c.id, event.c.hash).order_by(event.c.id.desc()).limit(1)).first()
    now = datetime.now(UTC)
    return (
        Head(event=0, hash=FIRST_PREVIOUS, read_at=now) if row is None else Head(event=row[0], hash=row[1], read_at=now)
    )


def _first_difference(earlier: sa.Connection, log: sa.Connection) -> int | None:
    """The number of the first event of ``earlier`` that ``log`` lacks, or has with another hash."""
    query = sa.select(event.c.id, event.c.hash).order_by(event.c.id)
    after = iter(log.execute(query))
    return next((row[0] for row in earlier.execute(query) if next(after, None) != row), None)


def _check_schema(url: str, connection: sa.Connection) -> None:
    """Refuse what a catalog of the registry does not have: somebody else's code may run when it is read."""
    tables = {table.name for table in whole_metadata().sorted_tables} | OWN_TABLES | _OTHER_TABLES
    query = "SELECT type, name, coalesce(sql, '') AS sql FROM sqlite_master WHERE type NOT IN ('index', 'trigger')"
    for row in connection.exec_driver_sql(query):
        is_virtual = row.sql != SQLITE_INDEX and re.match(r"\s*CREATE\s+VIRTUAL", row.sql, re.IGNORECASE)
        if row.type != "table" or row.name not in tables or is_virtual:
            raise mismatch(url, "schema", f"has a {row.type} that is not part of a catalog ({row.name!r:.80})")
    generated = (
        "SELECT m.name FROM sqlite_master m, pragma_table_xinfo(m.name) c WHERE m.type = 'table' AND c.hidden > 1"
    )
    for name in connection.exec_driver_sql(generated).scalars():
        raise mismatch(url, "schema", f"has a table with columns that are computed ({name})")
    for problem in (*wrong_triggers(connection), *missing_parts(connection)):
        raise mismatch(url, "schema", f"has another schema than a catalog ({problem:.200})")


def _check_locations(url: str, connection: sa.Connection) -> None:
    for column in (dataset_version.c.location, version_location.c.location):
        is_outside = sa.or_(column.like("/%"), column.like("%://%"))
        for location in connection.execute(sa.select(column).where(is_outside).distinct()).scalars():
            if is_local(location):
                raise mismatch(url, "location", f"has a version whose files are not on a server ({location!r:.200})")


@contextmanager
def _named(url: str, file: Path) -> Iterator[None]:
    """Errors of the block are about the site, and not about the file in the cache."""
    try:
        yield
    except SchemaAheadError as error:
        error.rephrase(text=error.message.replace(describe_url(parse_url(file)), f"the catalog of {url}"))
        raise
    except CatalogUnavailableError:  # the disk is full
        raise
    except CatalogError as error:
        problem = error.message.replace(describe_url(parse_url(file)), "it")
        raise mismatch(url, "schema", f"is not one of the registry: {problem}") from error
