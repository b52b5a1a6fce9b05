"""What is published? The SQL catalog, on SQLite and PostgreSQL; the only home of SQLAlchemy and Alembic.

Bytes first, row last: the row is the commit. Rows never leave this folder, frozen values of ``registry.model`` do.
"""

from registry.catalog.configs import (
    ConfigSummary,
    DefaultChange,
    Promotion,
    ProtectionChange,
    Unpromoted,
    refuse_protected,
)
from registry.catalog.history import PastLookUp
from registry.catalog.lifecycle import Change
from registry.catalog.reservations import Holder, Reservation
from registry.catalog.session import sqlite_path
from registry.catalog.sql_catalog import SqlCatalog, open_catalog
from registry.catalog.values import (
    AliasChange,
    AliasMove,
    AliasSummary,
    DatasetSummary,
    LogFault,
    LogReport,
    SearchHit,
    VersionSummary,
)

__all__ = [
    "AliasChange",
    "AliasMove",
    "AliasSummary",
    "Change",
    "ConfigSummary",
    "DatasetSummary",
    "DefaultChange",
    "Holder",
    "LogFault",
    "LogReport",
    "PastLookUp",
    "Promotion",
    "ProtectionChange",
    "Reservation",
    "SearchHit",
    "SqlCatalog",
    "Unpromoted",
    "VersionSummary",
    "open_catalog",
    "refuse_protected",
    "sqlite_path",
]
