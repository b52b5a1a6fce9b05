"""The page of a catalog's health: contents, locations, verification, and problems that need attention."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from registry.api import Catalog
from registry.api.locations import index_folder, open_data
from registry.catalog import VersionSize
from registry.envelope import fields_of
from registry.errors import RegistryError
from registry.masking import mask
from registry.model import VersionState
from registry.pages.home import shelf_of
from registry.pages.page import Page, Visit, version_path
from registry.pages.previews import Remembered
from registry.publishing.verify_state import last_run, state_file

_MOST_LISTED: Final = 50
_COUNTS: Final = Remembered(8)
_WITHDRAWN: Final = (VersionState.DEPRECATED, VersionState.YANKED)


def health(visit: Visit) -> Page:
    """The health of the catalog. Places and publishers are for those who may see places."""
    catalog = visit.catalog
    newest = next(iter(catalog.log(limit=1)), None)
    values = {
        **_COUNTS.get((visit.memory, newest and newest.hash), lambda: _counts(visit)),  # each change has an event
        "head": None if newest is None else fields_of(newest, "id", "hash", "at"),
        "places": _places(catalog) if visit.shows_places else None,
        "usage": _usage(catalog) if visit.shows_places and visit.query.get("usage") == "1" else None,
    }
    return Page(name="health", title="Health", values=values)


def _counts(visit: Visit) -> dict[str, Any]:
    """The numbers of the catalog, which take a while."""
    datasets, sizes = shelf_of(visit).datasets, visit.catalog.backend.sizes()
    present = [size for size in sizes if size.state is not VersionState.DROPPED]
    bare = [size for size in present if not size.num_statistics]
    withdrawn = [size for size in sizes if size.state in _WITHDRAWN]
    return {
        "num_datasets": len(datasets),
        "num_versions": len(present),
        "num_dropped": len(sizes) - len(present),
        "num_files": sum(size.num_files for size in present),
        "num_bytes": sum(size.num_bytes + size.attachment_bytes for size in present),
        "without_statistics": _listed(bare),
        "withdrawn": _listed(withdrawn),
        "num_without_statistics": len(bare),
        "num_withdrawn": len(withdrawn),
    }


def _listed(sizes: list[VersionSize]) -> list[dict[str, Any]]:
    return [
        {**fields_of(size, "reference", "state", "message"), "path": version_path(size.reference)}
        for size in sizes[:_MOST_LISTED]
    ]


def _places(catalog: Catalog) -> dict[str, Any]:
    """Facts for the owner only: the places of the catalog, current publishers, and the last verification."""
    values: dict[str, Any] = {"catalog": mask(catalog.url), "data_dir": mask(catalog.data_dir), "verified": None}
    reservations = catalog.reservations.list()
    values["num_reservations"] = len(reservations)
    values["reservations"] = [
        {"location": mask(it.location), **fields_of(it, "dataset", "version", "reserved_at", "is_cleaning")}
        for it in reservations[:_MOST_LISTED]
    ]
    with suppress(RegistryError, OSError):
        file = state_file(index_folder(), catalog.backend, open_data(catalog.data_dir))
        run = None if file is None else last_run(file)
        values["verified"] = (
            None if run is None else fields_of(run, "begun_at", "ended_at", "num_versions", "newest_at")
        )
    return values


def _usage(catalog: Catalog) -> list[dict[str, Any]]:
    """The disk space at each location, in which files that versions share count once."""
    locations = catalog.usage().locations
    largest = sorted(locations, key=lambda place: -locations[place].num_bytes)[:_MOST_LISTED]
    numbers = ("num_versions", "num_files", "num_bytes")
    return [{"location": mask(place), **fields_of(locations[place], *numbers)} for place in largest]
