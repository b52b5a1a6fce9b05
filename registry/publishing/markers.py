"""Marks locations in an object store, so that two catalogs never fill the same location, and frees them.

A marker is an object that names the catalog, the publisher and the content that is being uploaded. ``object_place``
writes it before the first file and removes it after the row. ``clear_place`` (``registry reservation clear``) moves
aside files that no run can finish.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from registry.catalog import CatalogBackend, Holder, Reservation, catalog_identity
from registry.errors import AlreadyStoredError, ConflictError, NotStoredError, ReservedError, StorageError, UsageError
from registry.masking import remove_secrets
from registry.model import DatasetVersion, Reference, SlicingRule, Version, version_folder
from registry.publishing.verify import digest_of
from registry.storage import Store
from registry.storage.multipart import abort_unfinished
from registry.storage.names import MARKER_FILE
from registry.storage.staged import write_owner
from registry.storage.store import warn_of_leftover

_NO_CONTENT: Final = "0" * 64
_MAX_MARKER_BYTES: Final = 2**16
_TRIES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """The files that were moved aside, or would be in a dry run, and both folders."""

    reference: Reference
    folder: str
    moved_to: str
    files: tuple[str, ...]
    is_dry_run: bool


def clear_place(
    store: Store, catalog: CatalogBackend, exactly: Reference, *, actor: str, force: bool = False, dry_run: bool = False
) -> Cleared:
    """Move the files at the place of an unpublished version to ``leftover.<random>_<version>`` next to it.

    Args:
        store: the data directory, in an object store.
        catalog: the catalog, in which the version is not published.
        exactly: the version.
        actor: the actor, for the event log.
        force: also move a complete version, and files of another catalog's publisher or of one that may still be
            running.
        dry_run: only list the files.

    Raises:
        UsageError: the data directory is a local folder, which needs no reservations.
        ConflictError: the version is published; or ``force`` is needed.
        ReservedError: a publisher that may still be running is uploading files there.
    """
    number = exactly.request.exact if exactly.request is not None else None
    if number is None:
        raise UsageError(
            f"{exactly} does not name one version", hint=f"Write the full version, e.g. {exactly.dataset}:1.0.0"
        )
    location = version_folder(exactly.name, exactly.config, number)
    final = store.child(location)
    if store.local_root is not None:
        raise UsageError(
            f"{final.url} is on this machine, but reservations exist only in object stores",
            hint="Move or remove the folder yourself.",
        )
    _refuse_published(final, catalog, exactly, number)
    listed = tuple(final.list())
    marker, ours = read_marker(final), {reservation.token for reservation in catalog.reservations.list()}
    is_foreign = marker is not None and marker.get("token") not in ours
    if not force:
        if marker is not None and is_foreign:
            raise foreign_error(marker, exactly, final)
        if marker is None and digest_of(final, SlicingRule.DOCUMENTED) is not None:
            raise ConflictError(
                f"{final.url} contains a complete version, which another catalog may have published",
                hint=f"To publish it: registry publish {shlex.quote(final.url)}\n"
                f"If it is not needed: registry reservation clear {exactly} --force",
            )
    parent, _, last_part = location.rpartition("/")
    holder = Holder.of_this_process(actor)
    folder = store.locate(location)
    if dry_run:
        aside = store.locate(f"{parent}/leftover.<random>_{last_part}")
        return Cleared(reference=exactly, folder=folder, moved_to=aside, files=listed, is_dry_run=True)
    for reservation in catalog.reservations.list() if force and ours else ():
        if reservation.location == location_key(final):
            catalog.reservations.release(reservation.dataset, reservation.version, force=True)
    held, before = catalog.reservations.reserve(location_key(final), exactly, _NO_CONTENT, holder)
    try:
        if is_foreign:
            final.remove(MARKER_FILE)
        is_new = mark(final, held, holder, catalog, exactly)
        aside, names = f"{parent}/leftover.{held.token[:8]}_{last_part}", tuple(final.list())
        if not force and not set(names).issubset(listed):
            if is_new:
                final.remove(MARKER_FILE)
            raise ConflictError(
                f"files were added to {final.url} in the meantime",
                hint="Nothing was moved. Another catalog may have published it. To list the files: "
                f"registry reservation clear {exactly} --dry-run",
            )
        abort_unfinished(final)  # what nobody has reserved, gc leaves to other catalogs
        for name in names:
            with suppress(AlreadyStoredError):  # copied by a run that was killed before it removed the object
                store.copy_to(f"{location}/{name}", f"{aside}/{name}")
        for name in names:
            final.remove_tree(name)
        with suppress(StorageError):  # without it, the folder is never garbage
            write_owner(store, aside)
        final.remove(MARKER_FILE)
    except (ReservedError, ConflictError):  # nothing was touched
        catalog.reservations.leave(held, holder, forget=before is None)
        raise
    except BaseException:
        catalog.reservations.leave(held, holder, forget=False)
        raise
    catalog.reservations.leave(held, holder, forget=True)
    return Cleared(reference=exactly, folder=folder, moved_to=store.locate(aside), files=names, is_dry_run=False)


def location_key(folder: Store) -> str:
    """Return the URL that identifies a folder of an object store in reservations, without user name and password."""
    scheme, separator, rest = remove_secrets(folder.url).partition("://")
    host, slash, path = rest.partition("/")
    return f"{'s3' if scheme == 's3a' else scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


def require_unmarked(folder: Store, catalog: CatalogBackend, version: DatasetVersion) -> None:
    """Refuse to publish a folder in place while another catalog's publisher puts files there.

    Raises:
        ReservedError: the folder has the marker of another catalog.
    """
    try:
        marker = read_marker(folder)
    except StorageError:  # a store without listings may refuse requests for missing files
        return
    if marker is None or is_left_after_row(marker, catalog, version):
        return
    if marker.get("token") not in {reservation.token for reservation in catalog.reservations.list()}:
        raise foreign_error(marker, version.reference, folder)


def remove_marker(folder: Store, catalog: CatalogBackend, version: DatasetVersion) -> None:
    """After publishing files in place: remove the marker of the dead publisher that uploaded them.

    Otherwise the marker would block other catalogs forever. Warns if it cannot be removed.
    """
    try:
        marker = read_marker(folder)
    except StorageError:  # as in require_unmarked
        return
    if marker is None or not is_left_after_row(marker, catalog, version):
        return
    try:
        folder.remove(MARKER_FILE)
    except StorageError as error:
        warn_of_leftover(folder.locate(MARKER_FILE), error)


def write_marker(
    folder: Store, reservation: Reservation, holder: Holder, catalog: CatalogBackend, *, overwrite: bool = False
) -> None:
    """Mark a location for this catalog. ``overwrite`` replaces the marker of the same reservation.

    Raises:
        AlreadyStoredError: the location has a marker.
    """
    # The catalog has stamped the holder by its own clock.
    holder = next((living for living in reservation.holders if living.name == holder.name), holder)
    content = {
        "token": reservation.token,
        "reference": reservation.reference,
        "content_digest": reservation.content_digest,
        "catalog": catalog.url,
        "identity": catalog_identity(catalog.log),
        "holder": str(holder),
    }
    folder.write_bytes(MARKER_FILE, json.dumps(content, sort_keys=True).encode(), overwrite=overwrite)


def read_marker(folder: Store) -> dict[str, Any] | None:
    """Return the content of a location's marker, None without a marker, or an empty dict for a foreign object."""
    try:
        content = json.loads(folder.read_bytes(MARKER_FILE, limit=_MAX_MARKER_BYTES))
    except NotStoredError:
        return None
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def is_left_after_row(marker: Mapping[str, Any], catalog: CatalogBackend, version: DatasetVersion) -> bool:
    """Return whether a marker was left by a publisher that wrote the row, and then could not remove the marker.

    Decides by the content alone, because a catalog can have several URLs. If the marker belongs to another catalog's
    publisher that is putting the same content there, that publisher ends without a row, removes nothing, and finishes
    when it is run again.
    """
    digest = marker.get("content_digest")
    if not isinstance(digest, str):
        return False
    if any(reservation.token == marker.get("token") for reservation in catalog.reservations.list()):
        return False
    return catalog.published_digest(version.name, version.config, version.version) == digest


def foreign_error(marker: Mapping[str, Any], exactly: Reference, folder: Store) -> ReservedError:
    """Return the error for a location that is marked for another catalog."""
    holder, catalog = (str(marker.get(key, "unknown"))[:300] for key in ("holder", "catalog"))
    place = folder_name(folder)
    return ReservedError(
        f"the place of {exactly} is reserved for another catalog, {catalog}, by {holder}: {place}",
        hint="Two catalogs share this store. Wait until that publisher has ended, then run the same command again. If "
        f"it has died, run it again with its own catalog, or free the place: "
        f"registry reservation clear {exactly} --force",
        details={"location": place, "holder": holder, "catalog": catalog},
    )


def folder_name(folder: Store) -> str:
    """Return the path or URL of a folder for messages."""
    return folder.locate("x")[:-2]


def is_promised(catalog: CatalogBackend, version: DatasetVersion) -> bool:
    """Return whether the catalog has a row with the same content by now."""
    return catalog.published_digest(version.name, version.config, version.version) == version.content_digest


def _refuse_published(final: Store, catalog: CatalogBackend, exactly: Reference, number: Version) -> None:
    if catalog.published_digest(exactly.name, exactly.config, number) is not None:
        raise ConflictError(
            f"{exactly} is published: its files are not moved",
            hint=f"To replace damaged files: registry build {exactly} --rebuild",
        )
    if others := catalog.published_at(final.url):
        raise ConflictError(
            f"{others[0]} is published from {final.url}: its files are not moved",
            hint="It was imported in place. Raise your version number, or publish to another data directory.",
        )


def mark(
    final: Store,
    reservation: Reservation,
    holder: Holder,
    catalog: CatalogBackend,
    exactly: Reference,
    *,
    is_left: Callable[[Mapping[str, Any]], bool] = lambda _: False,
) -> bool:
    """Mark a place; False if a publisher with our reservation has marked it. A marker that ``is_left`` is replaced.

    Raises:
        ReservedError: another catalog's publisher has marked it.
    """
    marker: Mapping[str, Any] | None = None
    for _ in range(_TRIES):
        try:
            write_marker(final, reservation, holder, catalog)
        except AlreadyStoredError:
            marker = read_marker(final)
            if marker is None:
                continue  # removed just now
            if marker.get("token") == reservation.token:
                return False
            if not is_left(marker):
                break
            final.remove(MARKER_FILE)
        else:
            return True
    raise foreign_error(marker or {}, exactly, final)
