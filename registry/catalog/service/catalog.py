"""``ServiceCatalog``: the catalog protocol over HTTP, as the client of ``registry serve``.

    find("digits:1.0.0")  ->  POST api/v1/find {"reference": "digits:1.0.0"}  ->  JSON  ->  DatasetVersion

Before the first call of a process, and a minute after the last time, the end of the event log that this machine knows
is compared with that of the service, so that no rollback and no fork stays unseen.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from registry.catalog.service_index import API_PATH, DATA_PATH
from registry.catalog.web_urls import is_loopback, site_url
from registry.catalog.wrapper import CatalogWrapper
from registry.errors import CatalogError, NotFoundError, UsageError, spell
from registry.masking import mask, remove_secrets

if TYPE_CHECKING:
    from registry.catalog.pages import Pages
    from registry.catalog.service.calls import Call
    from registry.catalog.service.requests import ServiceServer
    from registry.catalog.site.history import KnownHead
    from registry.catalog.values import DataDirectory

_FRESH_SECONDS: Final = 60
_MOST_EVENTS: Final = 1000
_MOST_ITEMS: Final = 10**7

_IN_BLOCKS: Final = {"shards.find": "digests", "shards.files_of": "references"}
"""Calls whose answer has an entry for each value of this argument."""

_BLOCK: Final = 2**16
"""Values in one request: a service refuses a question of a reader with more than 2**17."""


class ServiceCatalog(CatalogWrapper):
    """Sends each call to a service. Threads may share it, and a forked process may use it.

    Attributes:
        url: the URL of the service, without a password.
        file: None.

    Raises, at the first call:
        UsageError: the token would be sent without encryption to another machine.
        MissingExtraError: urllib3 is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        token: Callable[[str], str | None],
        heads: Path | None = None,
        on_write: Callable[[], None] = lambda: None,
        contacted: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Nothing is requested yet.

        Args:
            url: the URL of the service.
            token: called before the first request with ``url``, as the attribute; gives an access token, or None.
            heads: the folder that remembers the ends of event logs; None remembers nothing.
            on_write: called after a call that changed the catalog.
            contacted: called with the URL when the service has answered, at most once a minute.

        Raises:
            UsageError: the URL does not parse.
        """
        self._address = site_url(url)
        self.url = mask(self._address)
        self.file = None
        self._token, self._heads, self._on_write, self._contacted = token, heads, on_write, contacted
        self._checked = float("-inf")

    @cached_property
    def _server(self) -> ServiceServer:
        from registry.catalog.service.requests import ServiceServer  # it loads asyncio, and a known version needs none

        return ServiceServer(self._address, self._token(self.url))

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        if "_server" in self.__dict__:
            self._server.close()

    def __repr__(self) -> str:
        return f"<ServiceCatalog {self.url}>"

    def _call(self, call: str, *args: Any, **kwargs: Any) -> Any:
        from registry.catalog.service.calls import CALLS  # the answer about a known version needs none of the calls

        if call not in CALLS:
            raise AttributeError(call)
        if self._heads is not None and time.monotonic() - self._checked > _FRESH_SECONDS:
            from registry.catalog.site.history import KnownHead

            self._checked = time.monotonic()
            self._require_history(KnownHead(self._heads, f"{remove_secrets(self._address)}#{self._server.token_id}"))
            self._contacted(self.url)
        return self._send(call, *args, **kwargs)

    def _send(self, call: str, *args: Any, **kwargs: Any) -> Any:
        from registry.catalog.service.calls import CALLS

        protocol_call = CALLS[call]
        body = protocol_call.dump(*args, **kwargs)
        if protocol_call.returns is None:
            return self._server.stream(f"{API_PATH}{call}", body)
        if call in _IN_BLOCKS:
            argument, entries = _IN_BLOCKS[call], dict[Any, Any]()
            for start in range(0, len(body[argument]) or 1, _BLOCK):
                entries |= self._ask(protocol_call, {**body, argument: body[argument][start : start + _BLOCK]})
            return entries
        result = self._ask(protocol_call, body)
        if protocol_call.pages is not None:
            result = self._all_pages(protocol_call, protocol_call.pages, body, result)
        return result if call != "locations.data_dir" or result is None else self._usable(result)

    def _ask(self, call: Call, body: dict[str, Any]) -> Any:
        """What the service answers to a call, built as this release knows it."""
        from registry.catalog.service.messages import Reading, load_value

        try:
            answer = self._server.call(f"{API_PATH}{call.name}", body, is_write=call.policy.is_write)
        except NotFoundError as error:
            if type(error) is NotFoundError and "call" in error.details:
                raise CatalogError(
                    f"the service at {self.url} is of an older release than this one, and does not know {call.name}",
                    hint="Ask an admin of the catalog to upgrade the service, or use its release: registry doctor",
                ) from error
            raise
        if call.policy.is_write:
            self._on_write()
        try:
            return load_value(call.answers, answer, Reading(shards=self.shards, is_strict=False), "the answer")
        except UsageError as error:
            raise CatalogError(
                f"the service at {self.url} answered {call.name} with what this release does not know: {error.message}",
                hint="The service may be of a newer release: pip install --upgrade shardbook",
            ) from error

    def _all_pages(self, call: Call, pages: Pages, body: dict[str, Any], page: Any) -> tuple[Any, ...]:
        """The items of a page and of those that follow it. A change meanwhile is in some of them."""
        result = list(page.items)
        while page.next is not None:
            if not page.items or len(result) > _MOST_ITEMS:
                raise CatalogError(
                    f"the service at {self.url} answered {call.name} with pages that do not end",
                    hint="Ask an admin of the catalog.",
                )
            body = call.after_page(pages, body, page)
            page = self._ask(call, body)
            result += page.items
        return tuple(result)

    def _usable(self, data_dir: DataDirectory) -> DataDirectory:
        """The data directory as this client reaches it.

        Raises:
            CatalogError: it is a folder of this machine. A server may not choose where a client writes and removes.
        """
        from registry.catalog.site_index import is_local

        if data_dir.place.endswith(f"/{DATA_PATH}"):
            place = f"{remove_secrets(self._address)}{DATA_PATH}"  # only this URL gets the token
            return replace(data_dir, recorded=place, place=place)
        if not is_loopback(self._address) and (is_local(data_dir.recorded) or is_local(data_dir.place)):
            raise CatalogError(
                f"the service at {self.url} names a data directory of this machine: {data_dir.recorded!r:.200}",
                hint="A service that is started again offers the files of its folder itself: ask its admin.\n"
                f"To read a copy of the files, name it: {spell('data_dir=FOLDER')}, or the variable REGISTRY_DATA_DIR.",
                details={"place": data_dir.recorded[:200]},
            )
        return data_dir

    def _require_history(self, known: KnownHead) -> None:
        """Compare the end of the log that is known with the log of the service, and remember its end.

        Raises:
            SiteHistoryError: the log was rolled back or rewritten.
        """
        from registry.catalog.backend import EventFilter
        from registry.catalog.site.history import Head

        before = known.load()
        if before is None or before.event == 0:
            events = self._send("log.page", EventFilter(), newest=1)
        else:
            events = self._send("log.page", EventFilter(), after=before.event - 1, limit=_MOST_EVENTS)
        now = datetime.now(UTC)
        end = Head(event=events[-1].id, hash=events[-1].hash, read_at=now) if events else None
        if (
            before is not None
            and before.event
            and (not events or (events[0].id, events[0].hash) != (before.event, before.hash))
        ):
            self._checked = float("-inf")
            raise known.refusal(before, end or Head(event=0, hash="0" * 64, read_at=now), None)
        if end is not None:
            known.keep(end)
