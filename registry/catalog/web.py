"""``WebCatalog``: a catalog behind ``https://``, which is a site, a folder of files, or a service, ``registry serve``.

Both have ``site.json``: what it says decides, and is remembered. So the first look-up needs no request more than it
would if the kind was known.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from registry.catalog.remembering import KnownVersions, RememberingCatalog
from registry.catalog.service.calls import CALLS
from registry.catalog.service.catalog import ServiceCatalog
from registry.catalog.service_index import API_VERSION
from registry.catalog.site.catalog import READS, ServiceFound, SiteCatalog, SiteOptions
from registry.catalog.wrapper import pass_call
from registry.errors import CatalogError
from registry.storage.memory import Memory

_NOTE: Final = "service"
_FRESH_SECONDS: Final = 3600
"""How long a service is not asked again for an exact version that it described."""


class WebCatalog(RememberingCatalog):
    """Passes calls to a site or to a service. Threads may share it.

    Attributes:
        url: the URL, without its password.
        file: None.
        options: see ``SiteOptions``.
    """

    def __init__(self, url: str, options: SiteOptions) -> None:
        """``url`` is that of the folder with ``site.json``; nothing is requested yet.

        Raises:
            UsageError: the URL does not parse.
        """
        site = SiteCatalog(url, options)
        super().__init__(site.url, site, lambda: options.cache)
        self._site: SiteCatalog | None = site
        self._address = url
        self.options = options
        self._memory = None if options.cache is None else Memory(options.cache / "services")
        if self._memory is not None and self._memory.holds(_NOTE, site.url.encode(), b""):
            self._use_service()

    @cached_property
    def known(self) -> KnownVersions | None:
        """What this machine knows about exact versions of a service; None for a site, which is in the cache itself."""
        folder = None if self._site is not None else self._folder()
        return None if folder is None else KnownVersions(folder, self.url)

    def _use_service(self) -> None:
        options = self.options
        self._site, self.fresh_seconds = None, _FRESH_SECONDS
        self.__dict__.pop("known", None)
        self._backend = ServiceCatalog(self._address, options.token(self.url), heads=options.heads)

    def _call(self, call: str, *args: Any, **kwargs: Any) -> Any:
        if self._site is not None:
            try:
                if call not in READS:
                    self._site.now()  # a service takes writes
                return pass_call(self._site, call, *args, **kwargs)
            except ServiceFound as answer:
                self._require_version(answer.index)
            self._use_service()
            if self._memory is not None:
                self._memory.add(_NOTE, self.url.encode(), b"")
        result = super()._call(call, *args, **kwargs)
        if call in CALLS and CALLS[call].policy.is_write and self.known is not None:
            self.known.doubt()
        return result

    def _require_version(self, index: dict[str, Any]) -> None:
        versions = index.get("api")
        if not isinstance(versions, list) or API_VERSION not in versions:
            raise CatalogError(
                f"the service at {self.url} has version {', '.join(map(str, versions or ()))!s:.80} of the interface, "
                f"and this release needs version {API_VERSION}",
                hint="Install the release of shardbook that the admin of the catalog recommends.",
            )
