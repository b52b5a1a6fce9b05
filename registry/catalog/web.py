"""``WebCatalog``: a catalog behind ``https://``, which is a site, a folder of files, or a service, ``registry serve``.

Both have ``site.json``: what it says decides, and is remembered. So the first look-up needs no request more than it
would if the kind was known.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, cast

from registry.catalog.remembering import KnownVersions, RememberingCatalog
from registry.catalog.service.catalog import ServiceCatalog
from registry.catalog.service_index import API_VERSION, DATA_PATH
from registry.catalog.site.options import SiteOptions
from registry.catalog.web_urls import site_url
from registry.catalog.wrapper import pass_call
from registry.errors import CatalogError, NotFoundError, RegistryError
from registry.masking import remove_secrets
from registry.storage.location import open_below_with
from registry.storage.memory import Memory

if TYPE_CHECKING:  # they load SQLAlchemy and stores, which a look-up in a service does not need
    from registry.catalog.backend import CatalogBackend
    from registry.catalog.site.catalog import SiteCatalog
    from registry.storage import Store

_NOTE: Final = "service"
_FRESH_SECONDS: Final = 3600
"""How long a service is not asked again for an exact version that it described."""


class WebCatalog(RememberingCatalog):
    """Passes calls to a site or to a service. Threads may share it.

    Attributes:
        url: the URL, without its password.
        file: None.
        options: see ``SiteOptions``.
        is_service: whether it is known to be a service.
    """

    def __init__(self, url: str, options: SiteOptions) -> None:
        """``url`` is that of the folder with ``site.json``; nothing is requested yet.

        Raises:
            UsageError: the URL does not parse.
        """
        address = site_url(url)
        service = ServiceCatalog(
            address, heads=options.heads, token=options.token, on_write=self._doubt, contacted=options.contacted
        )
        super().__init__(service.url, cast("CatalogBackend", service), lambda: options.cache)
        self.options = options
        self._address = address
        self._memory = None if options.cache is None else Memory(options.cache / "services")
        self.is_service = self._memory is not None and self._memory.holds(_NOTE, self.url.encode(), b"")
        self.fresh_seconds = _FRESH_SECONDS
        service_url = remove_secrets(address)
        open_below_with(f"{service_url}{DATA_PATH}", partial(_open_data, service_url, options.token))

    @cached_property
    def _site(self) -> SiteCatalog:
        from registry.catalog.site.catalog import SiteCatalog

        return SiteCatalog(self._address, self.options)

    @property
    def known(self) -> KnownVersions | None:
        """What this machine knows about exact versions of a service; None for a site, which is in the cache itself."""
        return super().known if self.is_service else None

    def close(self) -> None:
        """Close the connections."""
        super().close()
        if "_site" in self.__dict__:
            self._site.close()

    def _call(self, call: str, *args: Any, **kwargs: Any) -> Any:
        if not self.is_service:
            from registry.catalog.policy import READS
            from registry.catalog.site.catalog import ServiceFound

            try:
                if call not in READS:
                    self._site.now()  # a service takes writes
                return pass_call(self._site, call, *args, **kwargs)
            except ServiceFound as answer:
                self._require_version(answer.index)
            self.is_service = True
            if self._memory is not None:
                self._memory.add(_NOTE, self.url.encode(), b"")
        try:
            return super()._call(call, *args, **kwargs)
        except NotFoundError as error:
            if type(error) is NotFoundError:  # also of a service that was upgraded to another version of the interface
                self._require_known_version()
            raise

    def _doubt(self) -> None:
        """After a write of this client, ask about known versions again."""
        if self.known is not None:
            self.known.doubt()

    def _require_known_version(self) -> None:
        from registry.catalog.site.catalog import ServiceFound

        try:
            with suppress(RegistryError):  # without an index, the error of the call says more
                self._site.now()
        except ServiceFound as answer:
            self._require_version(answer.index)

    def _require_version(self, index: dict[str, Any]) -> None:
        versions = index.get("api")
        if not isinstance(versions, list) or API_VERSION not in versions:
            raise CatalogError(
                f"the service at {self.url} has version {', '.join(map(str, versions or ()))!s:.80} of the interface, "
                f"and this release needs version {API_VERSION}",
                hint="Install the release of shardbook that the admin of the catalog recommends.",
            )


def _open_data(service: str, token_of: Callable[[str], str | None], url: str) -> Store:
    from registry.catalog.service.store import open_service_data

    return open_service_data(service, token_of, url)
