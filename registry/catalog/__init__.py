"""The catalog of published versions: its protocol, its values, and its implementation in SQL.

Other packages call only ``CatalogBackend`` (``backend.py``). Files are written first and the row last: the row is the
commit. SQLAlchemy and Alembic are used only in this folder, and are loaded when a catalog is opened. Rows never leave
this folder.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from pathlib import Path

    from registry.catalog.backend import CatalogBackend, EventFilter, EventPage
    from registry.catalog.outcomes import (
        AliasChange,
        AliasMove,
        AliasSummary,
        BackupFacts,
        Change,
        ClockCorrection,
        DataDirectoryChange,
        DefaultChange,
        Holder,
        LocationChange,
        LogReport,
        MetadataChange,
        Origin,
        Promotion,
        Proposal,
        ProtectionChange,
        PublicationDetails,
        Removal,
        RemovalStep,
        Renaming,
        Reservation,
        Unpromoted,
        VersionSize,
        former_name,
        is_of_catalog,
        refuse_protected,
    )
    from registry.catalog.paging import (
        PublishedShards,
        catalog_identity,
        follow_events,
        is_published,
        load_shards,
        stream_events,
    )
    from registry.catalog.site import SiteOptions
    from registry.catalog.values import (
        ConfigSummary,
        DataDirectory,
        DatasetFilter,
        DatasetSummary,
        PastLookUp,
        SearchHit,
        VersionSummary,
    )
    from registry.catalog.web_urls import first_step, is_site, quote_catalog

__all__ = [
    "AliasChange", "AliasMove", "AliasSummary", "BackupFacts", "CatalogBackend", "Change", "ClockCorrection",
    "ConfigSummary", "DataDirectory", "DataDirectoryChange", "DatasetFilter", "DatasetSummary", "DefaultChange",
    "EventFilter", "EventPage", "Holder", "LocationChange", "LogReport", "MetadataChange", "Origin", "PastLookUp",
    "Promotion", "Proposal", "ProtectionChange", "PublicationDetails", "PublishedShards", "Removal", "RemovalStep",
    "Renaming", "Reservation", "SearchHit", "Unpromoted", "VersionSize", "VersionSummary", "catalog_identity",
    "first_step", "follow_events", "former_name", "is_of_catalog", "is_published", "is_site", "load_shards",
    "masked_url", "open_catalog", "quote_catalog", "refuse_protected", "sqlite_path", "stream_events",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "backend": "CatalogBackend EventFilter EventPage",
        "paging": ("PublishedShards catalog_identity follow_events is_published load_shards stream_events"),
        "outcomes": (
            "AliasChange AliasMove AliasSummary BackupFacts Change ClockCorrection DataDirectoryChange "
            "DefaultChange Holder LocationChange LogReport MetadataChange Origin Promotion Proposal "
            "ProtectionChange PublicationDetails Removal RemovalStep Renaming Reservation Unpromoted VersionSize "
            "former_name is_of_catalog refuse_protected"
        ),
        "values": "ConfigSummary DataDirectory DatasetFilter DatasetSummary PastLookUp SearchHit VersionSummary",
        "web_urls": "first_step is_site quote_catalog",
    },
)


def open_catalog(
    url: str | os.PathLike[str], *, create: bool = True, site: SiteOptions | None = None
) -> CatalogBackend:
    """Open the catalog at ``url``: ``sqlite:///path``, the path of a file, or ``postgresql[+psycopg]://...``.

    With the options for a ``site``, also ``http(s)://...``, read-only. Nothing is requested before the first use.

    With ``create``, an SQLite file that does not exist, or is empty, becomes a catalog; its folder must exist. Several
    processes may do so at the same time. A database on a server is never changed here.

    Raises:
        CatalogNotFoundError: the SQLite file does not exist, and ``create`` is False.
        UsageError: the text is not a URL of a catalog.
        NotACatalogError: the file is not a database, or the database is not a catalog.
        SchemaBehindError, SchemaAheadError: an older or newer release made the catalog, or a database on a server is
            empty.
        CatalogUnavailableError: the database is locked, does not answer, or refuses the connection.
        MissingExtraError: psycopg is not installed (extra ``pg``).
    """
    from registry.catalog.web_urls import is_site

    if site is not None and is_site(url):
        from registry.catalog.web import WebCatalog

        return cast("CatalogBackend", WebCatalog(os.fspath(url), site))
    from registry.catalog.sql_catalog import open_sql_catalog

    return open_sql_catalog(url, create=create)


def sqlite_path(url: str | os.PathLike[str]) -> Path | None:
    """The file of an SQLite catalog, or None for a catalog on a server.

    >>> from pathlib import Path
    >>> sqlite_path("sqlite:////srv/catalog.db") == sqlite_path("/srv/catalog.db") == Path("/srv/catalog.db")
    True
    >>> sqlite_path("postgresql://host/name") is None
    True
    """
    from registry.catalog.web_urls import is_site

    if is_site(url):  # before SQLAlchemy is loaded
        return None
    from registry.catalog import urls

    return urls.sqlite_path(url)


def masked_url(url: str | os.PathLike[str]) -> str:
    """The URL of a catalog for messages, like ``CatalogBackend.url``: without passwords.

    >>> masked_url("postgresql+psycopg://ann:secret@host/data")
    'postgresql://ann:***@host/data'
    """
    from registry.catalog import urls

    return urls.masked_url(url)
