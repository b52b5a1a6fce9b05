"""``DataPlaces``: names of places in a data directory of the server, as its clients and as its catalog write them.

    http://host/api/v1/data/digits/1.0.0   <->   /srv/datasets/digits/1.0.0

Reservations name places. In the catalog they name those of the server, so that ``registry gc`` on the server finds what
a publisher left that has died.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from registry.catalog import DataDirectory, Holder, PublicationDetails, Reservation
from registry.catalog.service_index import DATA_PATH

_WITH_PLACES: Final = ("locations.data_dir", "publish", "published_at", "reservations.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlaces:
    """A folder of the server that is a data directory.

    Attributes:
        root: its path.
        own: its record in the catalog.
        url: where clients have it.
    """

    root: str
    own: DataDirectory
    url: str

    def concern(self, call: str) -> bool:
        """Whether arguments or results of a call name places."""
        return call.startswith(_WITH_PLACES)

    def inward(self, value: Any, actor: str) -> Any:
        """An argument of a client for the catalog. A client may reach the service at another URL than others.

        ``actor`` is who holds what the client reserves.
        """
        match value:
            case str() if f"/{DATA_PATH}/" in value:
                return f"{self.root}/{value.partition(f'/{DATA_PATH}/')[2]}"
            case Reservation():
                return replace(value, location=self.inward(value.location, actor))
            case Holder():
                return replace(value, actor=actor)
            case PublicationDetails():
                held = value.held and (self.inward(value.held[0], actor), self.inward(value.held[1], actor))
                data_dir = None if value.data_dir is None else self.own
                return replace(value, held=held, unreserved=self.inward(value.unreserved, actor), data_dir=data_dir)
            case _:
                return value

    def outward(self, value: Any) -> Any:
        """A result of the catalog for a client."""
        match value:
            case Reservation() if value.location.startswith(f"{self.root}/"):
                return replace(value, location=f"{self.url}{value.location[len(self.root) :]}")
            case tuple():
                return tuple(map(self.outward, value))
            case _:
                return value
