"""What can be asked of a catalog? The SQL catalog as the rest of the registry sees it: one call, one transaction."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import TracebackType

import sqlalchemy as sa

from registry.catalog import queries, schema, writes
from registry.catalog.configs import ConfigSummary, DefaultChange, list_configs, set_default_config
from registry.catalog.lifecycle import SqlLifecycle
from registry.catalog.location import describe_url
from registry.catalog.session import open_engine, reading, use_wal
from registry.catalog.standings import load_standing
from registry.catalog.summaries import DatasetSummary, VersionSummary
from registry.model import DatasetVersion, Reference, Shard, Standing, Use, Version


def open_catalog(url: str | os.PathLike[str]) -> SqlCatalog:
    """Open the catalog at ``url``: ``sqlite:///path``, the path of a file, or ``postgresql[+psycopg]://...``.

    An SQLite file that does not exist, or is empty, becomes a catalog; its folder must exist. Many processes may do so
    at once. A database on a server is never changed here.

    Raises:
        UsageError: text that is no URL of a catalog.
        NotACatalogError: a file that is no database, or a database of something else.
        SchemaBehindError, SchemaAheadError: made by an older or newer registry, or an empty database on a server.
        CatalogUnavailableError: locked, not answering, or refusing the connection.
        MissingExtraError: PostgreSQL without psycopg (extra ``pg``).
    """
    engine = open_engine(url)
    try:
        schema.create_or_require(engine)
        use_wal(engine)
    except BaseException:
        engine.dispose()
        raise
    return SqlCatalog(engine)


class SqlCatalog:
    """An open catalog of the present schema (see ``open_catalog``). Threads may share it; a fork may inherit it."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    @property
    def url(self) -> str:
        """The database's URL, without its password."""
        return describe_url(self._engine.url)

    def find(self, reference: str | Reference) -> DatasetVersion:
        """The one published version that ``reference`` names, with its splits: two queries, however many shards it has.

        Of a split with thousands of shards, the lengths are loaded when they are asked for (``StoredShardLengths``).

        No request gives the canonical version; a wildcard or range the highest that matches and is neither yanked nor
        dropped; an exact number or an alias that very version, unless it is dropped.

        Raises:
            ReferenceSyntaxError: text that is no reference.
            DatasetNotFoundError, ConfigNotFoundError, VersionNotFoundError, AliasNotFoundError: nothing answers; the
                hint names the nearest, or what is published and in which state.
            VersionWithdrawnError: what answers is yanked or dropped; the hint names what can be read.
        """
        wanted = Reference.parse(reference) if isinstance(reference, str) else reference
        with reading(self._engine) as connection:
            return queries.find_version(connection, wanted)

    def datasets(self) -> tuple[DatasetSummary, ...]:
        """Every dataset and config, by name."""
        with reading(self._engine) as connection:
            return queries.list_datasets(connection)

    def versions(self, name: str, config: str | None = None) -> tuple[VersionSummary, ...]:
        """Every published version of a dataset, in any state, the highest first; config None is the default one.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError
        """
        with reading(self._engine) as connection:
            return queries.list_versions(connection, name, config)

    def standing(self, name: str, config: str | None = None) -> Standing:
        """How the versions of a dataset stand now; config None is the default one.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError
        """
        with reading(self._engine, snapshot=True) as connection:
            return load_standing(connection, name, config)

    def shards(self, version: DatasetVersion, split: str) -> tuple[Shard, ...]:
        """The stored files of one split of ``version``, in order.

        Raises:
            SplitNotFoundError: no such split, or the version is not of this catalog.
        """
        with reading(self._engine) as connection:
            return queries.load_shards(connection, version, split)

    def published_digest(self, name: str, config: str | None, version: Version) -> str | None:
        """The content digest that was ever published under this number, or None where the number is free."""
        with reading(self._engine) as connection:
            return queries.find_digest(connection, name, config, version)

    @cached_property
    def lifecycle(self) -> SqlLifecycle:
        """What may be done to published versions."""
        return SqlLifecycle(self._engine)

    def configs(self, name: str) -> tuple[ConfigSummary, ...]:
        """The configs of a dataset, by name; DatasetNotFoundError where there is no such dataset."""
        with reading(self._engine) as connection:
            return list_configs(connection, name)

    def set_default_config(
        self, name: str, config: str, *, actor: str, dry_run: bool = False, uses: Sequence[Use] = ()
    ) -> DefaultChange:
        """Make ``config`` the one that a reference without a config means.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: there is no such config, or the dataset has none.
        """
        return set_default_config(self._engine, name, config, actor=actor, dry_run=dry_run, uses=uses)

    def publish(
        self,
        version: DatasetVersion,
        shards: Mapping[str, tuple[Shard, ...]],
        *,
        promote: bool,
        default_config: bool = False,
        actor: str,
    ) -> bool:
        """Publish ``version`` in one transaction: after it everything is there, before it nothing.

        Args:
            version: what is published; ``canonical``, ``published_at`` and ``published_by`` are the catalog's to say.
            shards: the stored files of each split, in order; they must fit the split's shard lengths.
            promote: make it the version that an unversioned look-up gives.
            default_config: make its config the one that a reference without a config means.
            actor: who publishes.

        Returns:
            True if this call published it; False if the same content digest stands there already, and nothing changed.

        Raises:
            VersionExistsError: the number was used for other content, or for a version that was deleted.
            ConflictError: a config for a dataset without configs, or the other way round.
            UsageError: shards that are not those of the version.
        """
        return writes.publish_version(
            self._engine, version, shards, promote=promote, default_config=default_config, actor=actor
        )

    def close(self) -> None:
        """Close every connection. The catalog must not be used afterwards.

        Versions that it gave may be: what is still to be loaded of them is loaded over a new connection.
        """
        self._engine.dispose()

    def __enter__(self) -> SqlCatalog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SqlCatalog {self.url}>"
