"""Writes the catalog of a site: a snapshot of the chosen datasets, compressed, and the index that names it.

    snapshot  ->  catalog/<digest>.db.gz, catalog.db  ->  SiteIndex  ->  site.json, which the caller writes last

``registry.catalog.snapshot`` says what the snapshot contains.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from registry.catalog.site_index import INDEX_NAME, MAX_INDEX_BYTES, SiteIndex, parse_site_index, require_data_url
from registry.errors import ConflictError, NotStoredError, SiteFormatError, spell
from registry.model import count_progress

if TYPE_CHECKING:  # fsspec is loaded when a store is opened
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from registry.catalog import CatalogBackend
    from registry.model import ProgressCallback
    from registry.storage import Store

CATALOG_NAME: Final = "catalog.db"
"""The uncompressed snapshot, for other programs that read SQLite. Readers of the site fetch the compressed file."""

_LEVEL: Final = 6


def write_index(
    catalog: CatalogBackend,
    store: Store,
    *,
    datasets: Collection[str] | None = None,
    data_url: str | None = None,
    with_actors: bool = False,
    key: Ed25519PrivateKey | None = None,
    new_log: bool = False,
    place: str | None = None,
    progress: ProgressCallback | None = None,
) -> SiteIndex:
    """Write a snapshot of ``catalog`` to a site, and return the index, which the caller stores as ``site.json``.

    A snapshot with new content gets a new name, so the site stays readable until its index is replaced. If the log has
    not grown since the index in ``store`` was written, nothing is written, and that index is returned.

    Args:
        catalog: the catalog.
        store: the site.
        datasets: the names of datasets. None means all.
        data_url: the data directory, as a URL or a path relative to the site that ends with ``/``, or None.
        with_actors: include the names of people who published or changed something.
        key: the key that signs the index.
        new_log: replace a site even if the new log does not continue its log. Readers of the site will refuse it.
        place: the path or URL of the site for errors, if ``store`` is a copy that is not in place yet.
        progress: called with a ``Progress``, in rows.

    Raises:
        DatasetNotFoundError: one of ``datasets`` does not exist.
        UsageError: one of ``datasets`` names a config or version, or ``data_url`` is a path of this machine.
        ConflictError: the snapshot does not continue the log of the site, because the site has another catalog or other
            datasets; and ``new_log`` is False.
        LogTamperedError: other software changed the events of the catalog.
        StorageError: a file cannot be written.
    """
    from registry.catalog.revision import HEAD
    from registry.catalog.snapshot import read_log_lines, write_snapshot

    require_data_url(data_url)
    previous = _read_previous(store)
    made_by = f"shardbook {version('shardbook')}, schema {HEAD}"
    advance = count_progress(progress, "writing the catalog of", store.url, unit="rows")
    lines = catalog.snapshot(datasets=datasets, with_actors=with_actors, advance=advance)
    log = read_log_lines(lines, None if previous is None else previous.head)
    if previous is not None and not (log.has_anchor or new_log):
        raise ConflictError(
            f"the snapshot does not continue the log of the site {place or store.locate('')}: it was written with "
            "another choice of datasets or of names of people, or from another catalog",
            hint="Repeat the earlier choice, write to another place, or replace the log with "
            f"{spell('new_log', True)}, after which existing readers will refuse the site.",
            details={"expected": previous.head, "found": log.head},
        )
    if (
        previous is not None
        and (log.head, made_by, data_url) == (previous.head, previous.made_by, previous.data_url)
        and all(map(store.exists, (previous.path, CATALOG_NAME)))
    ):
        return _sign(replace(previous, signature=None), key)
    with TemporaryDirectory(prefix="registry-") as folder:
        plain, packed = Path(folder, CATALOG_NAME), Path(folder, f"{CATALOG_NAME}.gz")
        write_snapshot(plain, chain(log.pieces, lines), source=catalog.url)
        with (
            plain.open("rb") as source,
            packed.open("wb") as target,
            gzip.GzipFile(filename="", fileobj=target, mode="wb", compresslevel=_LEVEL, mtime=0) as compressed,
        ):
            shutil.copyfileobj(source, compressed)
        index = SiteIndex(
            sha256=_sha256(plain),
            num_bytes=plain.stat().st_size,
            compressed_sha256=_sha256(packed),
            compressed_bytes=packed.stat().st_size,
            head=log.head,
            num_events=log.num_events,
            made_at=datetime.now(UTC).replace(microsecond=0),
            made_by=made_by,
            data_url=data_url,
        ).made_as(previous)
        if not store.exists(index.path):
            _copy(packed, store, index.path)
        if previous is None or previous.sha256 != index.sha256 or not store.exists(CATALOG_NAME):
            _copy(plain, store, CATALOG_NAME)
    return _sign(index, key)


def _sign(index: SiteIndex, key: Ed25519PrivateKey | None) -> SiteIndex:
    if key is None:
        return index
    from registry.pins.signature import sign_index

    return sign_index(index, key)


def _read_previous(store: Store) -> SiteIndex | None:
    try:
        return parse_site_index(store.read_bytes(INDEX_NAME, limit=MAX_INDEX_BYTES), store.locate(INDEX_NAME))
    except (NotStoredError, SiteFormatError):
        return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(path: Path, store: Store, name: str) -> None:
    with path.open("rb") as source, store.create(name, overwrite=True) as target:
        shutil.copyfileobj(source, target)
