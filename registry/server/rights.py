"""``GuardedCatalog``: a catalog as the holder of a token may see and change it.

``registry.catalog.service.calls.POLICY`` is the table of rights; it is applied here to the arguments and the result of
each call, for calls over HTTP and for pages. A dataset that a token does not cover looks like one that does not exist.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from registry.catalog import CatalogBackend, DataDirectory
from registry.catalog.events import recorder
from registry.catalog.service.calls import ADMIN, CALLS, NOBODY, Call
from registry.catalog.wrapper import CatalogWrapper, pass_call
from registry.errors import CatalogPermissionError, DatasetNotFoundError, NotFoundError
from registry.model import AccessToken, DatasetVersion, Reference, Role
from registry.server.places import DataPlaces

_MOST_PAGES: Final = 100
"""Pages of the log that are read for one page of those who see few datasets."""

_ASK: Final = "Ask an admin of the catalog: registry token create"


class GuardedCatalog(CatalogWrapper):
    """Passes the calls that the holder of a token may make, with its name as the actor. It is made for one request.

    Attributes:
        url, file: those of the catalog, without a path of the server.
        who: the token.

    Raises, at a call:
        CatalogPermissionError: the role of the token is too low, or the call would change what it does not cover.
        DatasetNotFoundError: the dataset does not exist, or the token does not cover it.
    """

    def __init__(self, catalog: CatalogBackend, who: AccessToken, places: DataPlaces | None = None) -> None:
        """``places`` is the data directory, if it is a folder of the server."""
        self.url, self.file = catalog.url, None
        self.who = who
        self._catalog = catalog
        self._places = places
        self._covered: dict[tuple[str, str | None], bool] = {}

    def close(self) -> None:
        """Do nothing: the catalog serves others."""

    def _call(self, call: str, *args: Any, **kwargs: Any) -> Any:
        protocol_call = CALLS[call]
        self.require(protocol_call, args, kwargs)
        places = self._places if self._places is not None and self._places.concern(call) else None
        if places is not None:
            args = tuple(places.inward(value, self.who.name) for value in args)
            kwargs = {name: places.inward(value, self.who.name) for name, value in kwargs.items()}
        if protocol_call.takes_actor:
            kwargs["actor"] = self.who.name
        before = recorder.set(f"token {self.who.id}")
        try:
            if call == "log.page" and not self.who.covers_all:
                return self._visible_events(*args, **kwargs)
            if call == "locations.data_dir" and places is not None:
                return DataDirectory(recorded=places.url, place=places.url)
            result = self._visible(protocol_call, pass_call(self._catalog, call, *args, **kwargs))
            return result if places is None else places.outward(result)
        except DatasetNotFoundError as error:  # its hint names other datasets
            if self.who.covers_all:
                raise
            raise _unseen(str(error.details.get("name", ""))) from None
        finally:
            recorder.reset(before)

    def require_role(self, call: Call, role: str | None = None) -> None:
        """Raise CatalogPermissionError unless the role of the token allows the call."""
        least = role or call.policy.role
        if least == NOBODY or not self.who.role.includes(Role(least)):
            raise self._refusal(call, least, f"it needs the role {least}, and this token has the role {self.who.role}")

    def require(self, call: Call, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Check that the token may make the call with these arguments.

        Raises:
            CatalogPermissionError, DatasetNotFoundError: see the class.
        """
        self.require_role(call)
        arguments = call.signature.bind_partial(*args, **kwargs).arguments
        value = None if call.policy.subject is None else arguments.get(call.policy.subject)
        if call.name == "lifecycle.promote":
            for name, config in self._datasets_of(value, None):
                if self._catalog.configs.protection(name, config) is not None:
                    self.require_role(call, ADMIN)
        if self.who.covers_all:
            return
        is_change = call.policy.is_write or call.policy.role == ADMIN
        covered = f"this token covers only {', '.join(self.who.datasets)}"
        if value is None and is_change:
            raise self._refusal(call, call.policy.role, f"it concerns the whole catalog, and {covered}")
        for name, config in self._datasets_of(value, arguments.get("config")):
            if not self._covers(name, config):
                if is_change:
                    dataset = name if config is None else f"{name}/{config}"
                    raise self._refusal(call, call.policy.role, f"it would change {dataset}, and {covered}")
                raise _unseen(name)

    def _visible(self, call: Call, result: Any) -> Any:
        """The result without what the token does not cover."""
        if self.who.covers_all:
            return result
        if isinstance(result, DatasetVersion) and not self._covers(result.name, result.config):
            raise _unseen(result.name)
        if call.name == "explain_no_hits":  # it would name words of other datasets
            return "No dataset that this token can read matches."
        return tuple(filter(self._is_covered, result)) if call.policy.filters else result

    def _visible_events(self, *args: Any, limit: int = 1000, **options: Any) -> tuple[Any, ...]:
        """``log.page`` with only what the token covers. The page is full unless the log ends.

        The events of the catalog itself, such as those about experiments, are for everybody.
        """
        result: list[Any] = []
        for _ in range(_MOST_PAGES):
            page = self._catalog.log.page(*args, limit=limit, **options)
            result += filter(self._is_covered, page)
            if len(result) >= limit or len(page) < limit or options.get("newest") is not None:
                break
            options["after"] = page[-1].id
        return tuple(result[:limit])

    def _refusal(self, call: Call, role: str, reason: str) -> CatalogPermissionError:
        return CatalogPermissionError(
            f"{self.who.name} may not call {call.name}: {reason}", hint=_ASK, details={"call": call.name, "role": role}
        )

    def _is_covered(self, value: Any) -> bool:
        return all(self._covers(name, config) for name, config in self._datasets_of(value, None))

    def _covers(self, name: str, config: str | None) -> bool:
        """Whether the token covers a dataset, which may have been renamed; without a config, its default one."""
        if (name, config) not in self._covered:
            try:
                standing = self._catalog.standing(name, config)
                covers = self.who.covers(standing.name, standing.config)
            except NotFoundError:
                covers = self.who.covers(name, config)
            self._covered[name, config] = covers
        return self._covered[name, config]

    def _datasets_of(self, value: Any, config: str | None) -> Iterator[tuple[str, str | None]]:
        """The name and the config of each dataset that an argument or a result is about."""
        match value:
            case None | "":  # the whole catalog
                return
            case int():
                reference = self._catalog.shards.version_of(value)
                yield from () if reference is None else ((reference.name, reference.config),)
            case str():
                reference = Reference.parse(value)
                yield reference.name, config if reference.config is None else reference.config
            case Reference() | DatasetVersion():
                yield value.name, value.config if value.config is not None else config
            case tuple() if value and isinstance(value[0], Reference):  # of locations.outside
                yield value[0].name, value[0].config
            case Collection():
                for part in value:
                    yield from self._datasets_of(part, config)
            case _ if hasattr(value, "dataset") and not hasattr(value, "config"):
                yield from self._datasets_of(value.dataset, config)
            case _ if hasattr(value, "config"):
                yield value.name, value.config
            case _:
                yield from self._datasets_of(value.reference, config)


def _unseen(name: str) -> DatasetNotFoundError:
    """The error for a dataset that does not exist, or that the token does not cover."""
    return DatasetNotFoundError(
        f"there is no dataset {name!r:.210} that this token can read",
        hint="To see those that it can read: registry list",
        details={"name": name[:200]},
    )
