"""The catalog of published versions: its protocol, its values, and its implementation in SQL.

Other packages call only ``CatalogBackend`` (``backend.py``). Files are written first and the row last: the row is the
commit. SQLAlchemy and Alembic are used only in this folder, and are loaded when a catalog is opened. Rows never leave
this folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from registry.lazy import lazy_exports, lazy_types

if TYPE_CHECKING:
    from registry.catalog.backend import CatalogBackend as CatalogBackend
    from registry.catalog.backend import EventFilter as EventFilter
    from registry.catalog.backend import EventPage as EventPage
    from registry.catalog.outcomes import AliasChange as AliasChange
    from registry.catalog.outcomes import AliasMove as AliasMove
    from registry.catalog.outcomes import AliasSummary as AliasSummary
    from registry.catalog.outcomes import BackupFacts as BackupFacts
    from registry.catalog.outcomes import Change as Change
    from registry.catalog.outcomes import ClockCorrection as ClockCorrection
    from registry.catalog.outcomes import DataDirectoryChange as DataDirectoryChange
    from registry.catalog.outcomes import DefaultChange as DefaultChange
    from registry.catalog.outcomes import Holder as Holder
    from registry.catalog.outcomes import LocationChange as LocationChange
    from registry.catalog.outcomes import LogReport as LogReport
    from registry.catalog.outcomes import MetadataChange as MetadataChange
    from registry.catalog.outcomes import Origin as Origin
    from registry.catalog.outcomes import Promotion as Promotion
    from registry.catalog.outcomes import Proposal as Proposal
    from registry.catalog.outcomes import ProtectionChange as ProtectionChange
    from registry.catalog.outcomes import PublicationDetails as PublicationDetails
    from registry.catalog.outcomes import Removal as Removal
    from registry.catalog.outcomes import RemovalStep as RemovalStep
    from registry.catalog.outcomes import Renaming as Renaming
    from registry.catalog.outcomes import Reservation as Reservation
    from registry.catalog.outcomes import Unpromoted as Unpromoted
    from registry.catalog.outcomes import VersionSize as VersionSize
    from registry.catalog.outcomes import former_name as former_name
    from registry.catalog.outcomes import is_of_catalog as is_of_catalog
    from registry.catalog.outcomes import refuse_protected as refuse_protected
    from registry.catalog.paging import PublishedShards as PublishedShards
    from registry.catalog.paging import catalog_identity as catalog_identity
    from registry.catalog.paging import follow_events as follow_events
    from registry.catalog.paging import is_published as is_published
    from registry.catalog.paging import load_shards as load_shards
    from registry.catalog.paging import published_version as published_version
    from registry.catalog.paging import stream_events as stream_events
    from registry.catalog.site import SiteOptions
    from registry.catalog.values import ConfigSummary as ConfigSummary
    from registry.catalog.values import DataDirectory as DataDirectory
    from registry.catalog.values import DatasetFilter as DatasetFilter
    from registry.catalog.values import DatasetSummary as DatasetSummary
    from registry.catalog.values import PastLookUp as PastLookUp
    from registry.catalog.values import SearchHit as SearchHit
    from registry.catalog.values import VersionSummary as VersionSummary
    from registry.catalog.web_urls import first_step as first_step
    from registry.catalog.web_urls import is_site as is_site
    from registry.catalog.web_urls import quote_catalog as quote_catalog
else:
    lazy_types(globals(), {"registry.catalog.site": "SiteOptions"})


__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "backend": "CatalogBackend EventFilter EventPage",
        "paging": (
            "PublishedShards catalog_identity follow_events is_published load_shards published_version stream_events"
        ),
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
