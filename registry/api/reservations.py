"""Who is putting files into object stores, and what to do about one who died there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from registry.api.arguments import log_actor, parse_reference
from registry.catalog import CatalogBackend, Reservation
from registry.errors import UsageError
from registry.model import Reference

if TYPE_CHECKING:  # numpy is loaded when something is published
    from registry.publishing import Cleared
    from registry.storage import Store


class Reservations:
    """The reservations of a catalog: ``catalog.reservations``.

    A publisher reserves the place of a version in an object store before it puts a file there; the row that publishes
    the version ends it. One that stays is of a publisher who was killed, and the next run of it goes on there.
    """

    def __init__(self, catalog: CatalogBackend, *, data: Callable[[], Store]) -> None:
        self._catalog = catalog
        self._data = data

    def list(self, dataset: str | None = None) -> tuple[Reservation, ...]:
        """Every reservation, or those of ``name[/config]``."""
        return self._catalog.reservations.list(None if dataset is None else parse_reference(dataset).dataset)

    def release(
        self, reference: str | Reference, *, force: bool = False, dry_run: bool = False
    ) -> tuple[Reservation, ...]:
        """Take the reservations of a version away from publishers that died on other machines; gives them as they were.

        What they put into the store stays: the next publisher finishes it, or removes it and says so.

        Raises:
            NotFoundError: there is no reservation of that version.
            ConflictError: its publisher is a process of this machine that lives, and ``force`` is False.
            UsageError: the reference does not name one version.
        """
        wanted = _exactly(reference)
        return self._catalog.reservations.release(wanted.dataset, str(wanted.request), force=force, dry_run=dry_run)

    def clear(self, reference: str | Reference, *, force: bool = False, dry_run: bool = False) -> Cleared:
        """Move what lies at the place of an unpublished version aside; see ``publishing.clear_place``."""
        from registry.publishing import clear_place

        wanted = _exactly(reference)
        return clear_place(self._data(), self._catalog, wanted, actor=log_actor(), force=force, dry_run=dry_run)


def _exactly(reference: str | Reference) -> Reference:
    wanted = parse_reference(reference)
    if wanted.request is None or wanted.request.exact is None:
        raise UsageError(
            f"{wanted} does not name one version by its number",
            hint=f"Write {wanted.dataset}:1.0.0. See what is reserved: registry reservation list",
        )
    return wanted
