"""Frees a place in an object store that no run can finish: what lies there is moved aside, when a person says so."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from registry.catalog import Holder, Reservation, SqlCatalog
from registry.errors import AlreadyStoredError, ConflictError, ReservedError, UsageError
from registry.model import Reference, SlicingRule, Version, version_folder
from registry.publishing.measured import digest_of
from registry.publishing.placing import foreign_error, location_key, read_marker, write_marker
from registry.storage import Store
from registry.storage.names import MARKER_FILE

_NO_CONTENT: Final = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """What was moved aside, or would be: the files, from which folder to which."""

    reference: Reference
    folder: str
    moved_to: str
    files: tuple[str, ...]
    is_dry_run: bool


def clear_place(
    store: Store, catalog: SqlCatalog, exactly: Reference, *, actor: str, force: bool = False, dry_run: bool = False
) -> Cleared:
    """Move what lies at the place of a version that is not published to ``leftover.<random>_<version>`` beside it.

    Args:
        store: the data directory, in an object store.
        catalog: the catalog that names no version there.
        exactly: the version.
        actor: who does it.
        force: also a whole version, and what another catalog's publisher put there, or one who may be alive.
        dry_run: look, and move nothing.

    Raises:
        UsageError: the data directory is a folder of this machine, where any file manager does it.
        ConflictError: the version is published; or ``force`` is needed.
        ReservedError: a publisher puts files there who may be alive.
    """
    number = exactly.request.exact if exactly.request is not None else None
    if number is None:
        raise UsageError(f"{exactly} does not name one version", hint=f"Name it exactly, e.g. {exactly.dataset}:1.0.0.")
    location = version_folder(exactly.name, exactly.config, number)
    final = store.child(location)
    if store.local_root is not None:
        raise UsageError(
            f"{final.url} is on this machine, and reservations are for object stores",
            hint="Move or remove the folder yourself.",
        )
    _refuse_published(final, catalog, exactly, number)
    listed = tuple(final.list())
    marker, ours = read_marker(final), {one.token for one in catalog.reservations.list()}
    is_foreign = marker is not None and marker.get("token") not in ours
    if not force:
        if marker is not None and is_foreign:
            raise foreign_error(marker, exactly, final)
        if marker is None and digest_of(final, SlicingRule.DOCUMENTED) is not None:
            raise ConflictError(
                f"{final.url} holds a whole version, which another catalog may have published",
                hint=f"Publish it with: registry publish {final.url}. If nobody needs it, add --force.",
            )
    parent, _, last_part = location.rpartition("/")
    holder = Holder.of_this_process(actor)
    if dry_run:
        aside = f"{parent}/leftover.<random>_{last_part}"
        return _cleared(exactly, store, location, aside, listed, dry_run=True)
    if force and ours:
        _release(catalog, location_key(final))
    held, before = catalog.reservations.reserve(location_key(final), exactly, _NO_CONTENT, holder)
    try:
        if is_foreign:
            final.remove_tree(MARKER_FILE)
        is_new = _mark(final, held, holder, catalog, exactly)
        aside, names = f"{parent}/leftover.{held.token[:8]}_{last_part}", tuple(final.list())
        if not force and not set(names).issubset(listed):
            if is_new:
                final.remove_tree(MARKER_FILE)
            raise ConflictError(
                f"{final.url} was filled while it was looked at",
                hint="Nothing was moved. Look again: another catalog may have published it.",
            )
        for name in names:
            with suppress(AlreadyStoredError):  # copied by a run that was killed before it removed the object
                store.copy_to(f"{location}/{name}", f"{aside}/{name}")
        for name in names:
            final.remove_tree(name)
        final.remove_tree(MARKER_FILE)
    except (ReservedError, ConflictError):  # nothing was touched
        catalog.reservations.leave(held, holder, forget=before is None)
        raise
    except BaseException:
        catalog.reservations.leave(held, holder, forget=False)
        raise
    catalog.reservations.leave(held, holder, forget=True)
    return _cleared(exactly, store, location, aside, names, dry_run=False)


def _refuse_published(final: Store, catalog: SqlCatalog, exactly: Reference, number: Version) -> None:
    if catalog.published_digest(exactly.name, exactly.config, number) is not None:
        raise ConflictError(
            f"{exactly} is published: its files stay where they are",
            hint=f"Damaged files are replaced by: registry build {exactly} --rebuild, or registry publish of a copy.",
        )
    if others := catalog.published_at(final.url):
        raise ConflictError(
            f"{others[0]} is published from {final.url}: its files stay where they are",
            hint="It was imported in place. Raise your version, or publish into another data directory.",
        )


def _mark(final: Store, held: Reservation, holder: Holder, catalog: SqlCatalog, exactly: Reference) -> bool:
    """Mark the place; False where a publisher of our reservation did.

    Raises:
        ReservedError: another catalog's publisher did meanwhile.
    """
    try:
        write_marker(final, held, holder, catalog)
    except AlreadyStoredError:
        marker = read_marker(final)
        if marker is None or marker.get("token") != held.token:
            raise foreign_error(marker or {}, exactly, final) from None
        return False
    return True


def _release(catalog: SqlCatalog, location: str) -> None:
    for one in catalog.reservations.list():
        if one.location == location:
            catalog.reservations.release(one.dataset, one.version, force=True)


def _cleared(
    exactly: Reference, store: Store, location: str, aside: str, names: tuple[str, ...], *, dry_run: bool
) -> Cleared:
    return Cleared(
        reference=exactly,
        folder=store.locate(location),
        moved_to=store.locate(aside),
        files=names,
        is_dry_run=dry_run,
    )
