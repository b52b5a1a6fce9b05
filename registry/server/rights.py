"""``GuardedCatalog``: a catalog as the holder of a token may see and change it.

``registry.catalog.policy.POLICY`` is the table of rights; it is applied here to the arguments and the result of
each call, for calls over HTTP and for pages. A dataset that a token does not cover looks like one that does not exist:
its calls have the same answers, and it is missing from every list, hint and page of the log. What remains visible is
that events of others exist, since the ids of events are consecutive, and how many versions override a flag.

A token that does not cover every dataset, or is not that of an admin, names only places in the data directory, in the
folder of the dataset that it changes. Otherwise the files of another dataset, or of the machine that serves, could be
read under a name that the token covers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from inspect import BoundArguments
from shlex import quote
from typing import Any, Final

from registry.catalog import (
    CatalogBackend,
    DataDirectory,
    DatasetSummary,
    EventFilter,
    EventPage,
    PastLookUp,
    SearchHit,
    VersionSize,
)
from registry.catalog.events import recorder
from registry.catalog.pages import fill_page
from registry.catalog.policy import ADMIN, EVERY_CONFIG, MAINTAINER, NOBODY, SOME_CONFIG
from registry.catalog.service.calls import CALLS, Call
from registry.catalog.wrapper import CatalogWrapper, pass_call
from registry.errors import (
    CatalogPermissionError,
    ConfigNotFoundError,
    DatasetNotFoundError,
    NotFoundError,
    OtherSourceError,
    SplitNotFoundError,
    UsageError,
)
from registry.model import AccessToken, DatasetVersion, Event, Reference, Role, Standing, is_absolute
from registry.server.places import DataPlaces

_PAGE: Final = 1000
"""Events that are read at once for those who see few of them."""

_ASK: Final = "Ask an admin of the catalog for a token with more rights: "


class GuardedCatalog(CatalogWrapper):
    """Passes the calls that the holder of a token may make, with its name as the actor. It is made for one request.

    Attributes:
        url, file: those of the catalog, without a path of the server.
        who: the token.

    Raises, at a call:
        CatalogPermissionError: the role of the token is too low, or the call would change what it does not cover.
        DatasetNotFoundError, SplitNotFoundError: it does not exist, or the token does not cover it.
    """

    def __init__(self, catalog: CatalogBackend, who: AccessToken, places: DataPlaces | None = None) -> None:
        """``places`` is the data directory, if it is a folder of the server."""
        self.url, self.file = catalog.url, None
        self.who = who
        self._catalog = catalog
        self._places = places
        self._standings: dict[tuple[str, str | None], Standing | None] = {}

    def close(self) -> None:
        """Do nothing: the catalog serves others."""

    def _call(self, call: str, *args: Any, **kwargs: Any) -> Any:
        protocol_call = CALLS[call]
        places = self._places if self._places is not None and self._places.concern(call) else None
        bound = self._bind(protocol_call, args, kwargs)
        arguments = bound.arguments
        datasets = self._require(protocol_call, arguments)
        if protocol_call.takes_actor:
            arguments["actor"] = self.who.name
        if "holder" in arguments and self.who.role is not Role.ADMIN:
            arguments["holder"] = replace(arguments["holder"], actor=self.who.name)

        def passed(**changes: Any) -> Any:
            arguments.update(changes)
            return pass_call(self._catalog, call, *bound.args, **bound.kwargs)

        before = recorder.set(f"token {self.who.id}")
        try:
            if call == "locations.data_dir" and places is not None:
                return DataDirectory(recorded=places.url, place=places.url)
            if self.who.covers_all:
                return passed() if places is None else places.outward(passed())
            match call:
                case "search" if arguments.get("limit", 1) > 0:  # hits of other datasets do not take the place of those
                    limit = arguments.get("limit", protocol_call.signature.parameters["limit"].default)
                    return tuple(filter(self._is_covered, passed(limit=2**31 - 1)))[:limit]
                case "explain_no_hits":  # it would name words of other datasets
                    return "No dataset that this token can read matches."
                case "log.page":
                    return self._visible_events(passed, **arguments)
                case "datasets":  # a page of it is full unless the list ends
                    result = pass_call(self._catalog, call, *bound.args, **bound.kwargs, covered_by=self.who.datasets)
                    return tuple(filter(self._is_covered, result))
            result = self._visible(protocol_call, passed, arguments)
            return result if places is None else places.outward(result)
        except (DatasetNotFoundError, ConfigNotFoundError) as error:  # their hints name other datasets and configs
            if self.who.covers_all:
                raise
            name, config = datasets[0] if datasets else (str(error.details.get("name", "")), None)
            is_about_config = isinstance(error, ConfigNotFoundError) and self.who.covers(name)
            if is_about_config or self._standing(name, config) is not None:
                raise
            raise self._unseen(name) from None
        except OtherSourceError as error:  # of a new config, it is about another one
            if self.who.covers_all or self._covers_text(str(error.details["dataset"])):
                raise
            raise OtherSourceError(
                "the name belongs to a dataset with another source", hint=f"{_ASK}registry token create --help"
            ) from None
        finally:
            recorder.reset(before)

    def require_role(self, call: Call, role: str | None = None, *, why: str = "") -> None:
        """Raise CatalogPermissionError, which says ``why``, unless the role of the token allows the call."""
        least = role or call.policy.role
        if least == NOBODY or not self.who.role.includes(Role(least)):
            reason = f"{why}this needs the role {least}, but the token has the role {self.who.role}"
            raise self._refusal(call, least, reason)

    def require(self, call: Call, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Check that the token may make the call with these arguments.

        Raises:
            CatalogPermissionError, DatasetNotFoundError, SplitNotFoundError: see the class.
        """
        self._require(call, self._bind(call, args, kwargs).arguments)

    def _bind(self, call: Call, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> BoundArguments:
        """The arguments by name, with the places that the catalog knows."""
        bound = call.signature.bind_partial(*args, **kwargs)
        if call.name == "find" and isinstance(bound.arguments["reference"], str):
            bound.arguments["reference"] = Reference.parse(bound.arguments["reference"])
        if self._places is not None and self._places.concern(call.name):
            for name, value in bound.arguments.items():
                bound.arguments[name] = self._places.inward(value, self.who.name)
        return bound

    def _require(self, call: Call, arguments: Mapping[str, Any]) -> list[tuple[str, str | None]]:
        """Check that the token may make the call with these arguments; the datasets that it is about, if it matters."""
        self.require_role(call)
        is_promotion = call.name == "lifecycle.promote"
        subject = None if call.policy.subject is None else arguments.get(call.policy.subject)
        datasets: list[tuple[str, str | None]] = []
        if is_promotion or not (self.who.covers_all or isinstance(subject, int)):
            datasets += self._datasets_of(subject, arguments.get("config"))
        if not self.who.covers_all:
            self._require_covered(call, subject, datasets, arguments)
        if not self.who.covers_all or self.who.role is not Role.ADMIN:
            self._require_places(call, datasets, arguments)
        for name, config in datasets if is_promotion else self._moved_defaults(call, arguments):
            if self._catalog.configs.protection(*self._standing_name(name, config)) is not None:
                self.require_role(call, MAINTAINER, why=f"{name} is protected, so ")
        if "proposal" in arguments and arguments["proposal"].action != "promote":
            self.require_role(call, ADMIN)
        return datasets

    def _moved_defaults(self, call: Call, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
        """The default config of a dataset if the call makes another one the default: its bare name is promoted, too."""
        if call.name == "configs.set_default":
            name, config = Reference.parse(arguments["name"]).name, arguments["config"]
        elif call.name == "publish" and (arguments.get("default_config") or arguments["version"].config is None):
            name, config = arguments["version"].name, arguments["version"].config
        else:
            return
        standing = self._standing(name, None)
        if standing is not None and standing.config != config:
            yield standing.name, standing.config

    def _require_covered(
        self, call: Call, subject: Any, datasets: list[tuple[str, str | None]], arguments: Mapping[str, Any]
    ) -> None:
        """Check that the token covers the datasets that the call is about."""
        is_change = call.policy.is_write or call.policy.role == ADMIN
        covered = f"this token covers only {', '.join(self.who.datasets)}"
        if is_change and not datasets:
            raise self._refusal(call, call.policy.role, f"it concerns the whole catalog, and {covered}")
        if isinstance(subject, int):  # the number of a split
            reference = self._catalog.shards.version_of(subject) if 0 < subject < 2**31 else None
            if reference is None or not self.who.covers(reference.name, reference.config):
                raise SplitNotFoundError(f"no split {subject} that this token can read")
            return
        every, meant = call.policy.configs == EVERY_CONFIG, [*datasets]
        if call.name == "rename":
            meant.append((arguments["after"], None))
        if call.name == "configs.set_default" or arguments.get("default_config") is True:
            every, meant = True, [(name, None) for name, _ in datasets]
        for name, config in meant:
            if config is None and every:
                is_covered = self._covers_every(name)
            elif config is None and call.policy.configs == SOME_CONFIG:
                is_covered = self._covers_some(name)
            else:
                is_covered = self._covers(name, config)
            if is_covered:
                continue
            if is_change:
                dataset = name if config is None else f"{name}/{config}"
                reason = f"it would change {dataset}, and {covered}"
                raise self._refusal(call, call.policy.role, reason, dataset)
            raise self._unseen(name)

    def _require_places(self, call: Call, datasets: list[tuple[str, str | None]], arguments: Mapping[str, Any]) -> None:
        """Check that the call names only places in the folder of its dataset; see the top of the file."""
        details, reservation = arguments.get("details"), arguments.get("reservation")
        places = [arguments["location"]] if call.name in ("locations.add", "reservations.reserve") else []
        places += [arguments["version"].location] if call.name == "publish" else []
        places += [arguments["after"]] if call.name == "locations.relocate" else []
        places += [] if reservation is None else [reservation.location]
        if not places:
            return
        data_dir = self._catalog.locations.data_dir()
        if details is not None:
            places += [details.unreserved, None if details.held is None else details.held[0].location]
            if details.origin is not None:
                self._require_admin(call, "only an admin may state who published a version elsewhere")
            if details.data_dir is not None and data_dir is None and self._places is None:  # else it is the server's
                self._require_admin(call, "only an admin may set the data directory")
        folders = [folder for name, config in datasets for folder in self._folders(name, config)]
        root = "" if data_dir is None else data_dir.place
        root = root if self._places is None else self._places.root
        for place in filter(None, places):
            path = _below(root, place)
            if path is None or not (self.who.covers_all or path.startswith(tuple(folders))):
                self._require_admin(call, "it names a place that is not in the folder of its dataset")

    def _require_admin(self, call: Call, reason: str) -> None:
        """Raise unless it is an admin of every dataset."""
        if self.who.role is not Role.ADMIN or not self.who.covers_all:
            raise self._refusal(call, ADMIN, reason)

    def _visible(self, call: Call, passed: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """The result of a call without what the token does not cover. A page of it is full unless the list ends."""
        pages, limit = call.pages, arguments.get("limit")
        if pages is None:
            return self._covered_part(call, passed())

        def read(last: Any, size: int | None) -> Any:
            return passed(**{pages.argument: last, "limit": size})

        choose = partial(self._covered_part, call)
        return fill_page(read, choose, pages.name, after=arguments.get(pages.argument), limit=limit)

    def _covered_part(self, call: Call, result: Any) -> Any:
        subject = result.version if isinstance(result, PastLookUp) else result
        if isinstance(subject, DatasetVersion | Standing) and not self._covers(subject.name, subject.config):
            raise self._unseen(subject.name)  # the default config may have been another one then
        if isinstance(result, EventPage):
            return replace(result, events=tuple(filter(self._is_covered, result.events)))
        if call.name == "configs.protection" and isinstance(result, str) and "/" in result:
            return result if self._covers_text(result) else None
        return tuple(filter(self._is_covered, result)) if call.policy.filters else result

    def _visible_events(
        self,
        page_of: Callable[..., tuple[Event, ...]],
        event_filter: EventFilter,
        *,
        after: int = 0,
        limit: int = _PAGE,
        newest: int | None = None,
    ) -> tuple[Event, ...]:
        """``log.page`` with only the events that the token covers, and those of the catalog itself.

        A page is full unless the log ends.
        """
        result: list[Event] = []
        wanted = limit if newest is None else newest
        if min(wanted, limit) < 1:
            raise UsageError("the number of events must be at least 1")
        while True:
            if newest is None:
                page = page_of(after=after, limit=_PAGE)
                result += filter(self._is_covered, page)
            else:
                page = page_of(event_filter=event_filter, after=after, limit=_PAGE, newest=_PAGE)
                result[:0] = filter(self._is_covered, page)
            if len(result) >= wanted or len(page) < _PAGE:
                return tuple(result[:limit] if newest is None else result[-newest:][:limit])
            after = page[-1].id if newest is None else after
            event_filter = replace(event_filter, before=page[0].id)

    def _refusal(self, call: Call, role: str, reason: str, dataset: str = "") -> CatalogPermissionError:
        details = {"call": call.name, "role": role, "dataset": dataset}
        options = f" --role {role}" + (f" --dataset {quote(dataset)}" if dataset else "")
        hint = f"{_ASK}registry token create NAME{options}" if role != NOBODY else None
        return CatalogPermissionError(f"{self.who.name} may not {call.action}: {reason}", hint=hint, details=details)

    def _unseen(self, name: str) -> DatasetNotFoundError:
        """The error for a dataset that does not exist, or that the token does not cover."""
        return DatasetNotFoundError(
            f"no dataset {name!r:.210} that this token covers",
            hint=f"The token covers {', '.join(self.who.datasets)}. To list these datasets: registry list",
            details={"name": name[:200]},
        )

    def _is_covered(self, value: Any) -> bool:
        """Whether the token covers what a value of a result is about. Events and some others have names of then."""
        is_present = isinstance(value, DatasetSummary | SearchHit | VersionSize | tuple)
        covers = self.who.covers if is_present else self._covers
        return all(covers(name, config) for name, config in self._datasets_of(value, None))

    def _covers_text(self, dataset: str) -> bool:
        name, _, config = dataset.partition("/")
        return self._covers(name, config or None)

    def _covers(self, name: str, config: str | None) -> bool:
        """Whether the token covers a dataset, which may have been renamed; without a config, its default one."""
        return self.who.covers(*self._standing_name(name, config))

    def _covers_every(self, name: str) -> bool:
        """Whether the token covers each config of a dataset, also those of later."""
        return self.who.covers(self._standing_name(name, None)[0])

    def _covers_some(self, name: str) -> bool:
        """Whether the token covers a config of a dataset."""
        try:
            return any(self.who.covers(part.name, part.config) for part in self._catalog.configs.list(name))
        except NotFoundError:
            return self.who.covers(name)

    def _standing_name(self, name: str, config: str | None) -> tuple[str, str | None]:
        """The name and the config that a dataset has now; as given if there is none."""
        standing = self._standing(name, config)
        return (name, config) if standing is None else (standing.name, standing.config)

    def _standing(self, name: str, config: str | None) -> Standing | None:
        if (name, config) not in self._standings:
            try:
                self._standings[name, config] = self._catalog.standing(name, config)
            except NotFoundError:
                self._standings[name, config] = None
        return self._standings[name, config]

    def _folders(self, name: str, config: str | None) -> Iterator[str]:
        """The folders of a dataset or a config in the data directory, under each name that it has had."""
        standing = self._standing(name, config)
        config = config if standing is None else standing.config
        for each in (name,) if standing is None else (standing.name, *standing.names):
            yield f"{each}/" if config is None else f"{each}/{config}/"

    def _datasets_of(self, value: Any, config: str | None) -> Iterator[tuple[str, str | None]]:
        """The name and the config of each dataset that an argument or a result is about."""
        match value:
            case None | "":  # the whole catalog
                return
            case str():
                reference = Reference.parse(value)
                name = re.split("[/:@]", value, maxsplit=1)[0]  # not folded: some names have capital letters
                yield name, config if reference.config is None else reference.config
            case Reference() | DatasetVersion():
                yield value.name, value.config if value.config is not None else config
            case tuple() if value and isinstance(value[0], Reference):  # of locations.outside and producers
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


def _below(data_dir: str, place: str) -> str | None:
    """The path of a place below the data directory; None if it is elsewhere."""
    data_dir, place = (text.replace("s3a://", "s3://", 1) for text in (data_dir.rstrip("/"), place))
    path = place.removeprefix(f"{data_dir}/") if data_dir else place
    is_path = not is_absolute(path) and not {"", ".", ".."} & {*path.split("/")} and not {"\\", "\0"} & {*path}
    return path if is_path else None
