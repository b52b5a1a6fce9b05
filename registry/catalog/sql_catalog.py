"""What can be asked of a catalog? The SQL catalog as the rest of the registry sees it: one call, one transaction."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from types import TracebackType

import sqlalchemy as sa

from registry.catalog import aliases, events, experiments, history, log_verify, queries, schema, search, writes
from registry.catalog.configs import (
    ConfigSummary,
    DefaultChange,
    Promotion,
    ProtectionChange,
    find_protection,
    list_configs,
    protection_at,
    set_default_config,
    set_protection,
)
from registry.catalog.history import PastLookUp
from registry.catalog.lifecycle import SqlLifecycle
from registry.catalog.promised import PublishedShards
from registry.catalog.reservations import Holder, Reservation, SqlReservations
from registry.catalog.selection import find_standing, load_standing
from registry.catalog.session import describe_url, open_engine, reading, use_wal
from registry.catalog.values import (
    AliasChange,
    AliasMove,
    AliasSummary,
    DatasetSummary,
    LogReport,
    SearchHit,
    VersionSummary,
)
from registry.model import (
    DatasetVersion,
    Event,
    Experiment,
    ExperimentChange,
    Reference,
    Shard,
    SplitFingerprint,
    Standing,
    Use,
    Version,
)


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

    def find_at(self, wanted: Reference, moment: datetime) -> PastLookUp:
        """What ``wanted`` gave at ``moment``, worked out from the event log; see ``history.find_at``."""
        with reading(self._engine) as connection:
            return history.find_at(connection, wanted, moment)

    def versions(
        self, name: str, config: str | None = None, *, at: datetime | None = None
    ) -> tuple[VersionSummary, ...]:
        """Every published version of a dataset, in any state, the highest first; config None is the default one.

        ``at``: those that were published at that moment, as they stood then.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError
        """
        if at is not None:
            with reading(self._engine) as connection:
                return history.versions_at(connection, name, config, at)
        with reading(self._engine) as connection:
            return queries.list_versions(connection, name, config)

    def search(self, text: str, *, limit: int = 20) -> tuple[SearchHit, ...]:
        """The datasets that ``text`` is about: the best ``limit`` of which every word matches, the best first.

        A word matches what begins with it, in names, tags, features and their labels, descriptions, licence, homepage
        or citation, whatever its case and accents. ``text`` has no syntax.

        Raises:
            UsageError: no letter or digit in ``text``, or more than a person types; a limit below 1.
        """
        with reading(self._engine) as connection:
            return search.find_hits(connection, text, limit)

    def explain_no_hits(self, text: str) -> str:
        """Why ``search(text)`` found nothing: the words that nothing has, and what may have been meant."""
        with reading(self._engine) as connection:
            return search.explain_no_hits(connection, text)

    def standing(self, name: str, config: str | None = None, *, at: datetime | None = None) -> Standing:
        """How the versions of a dataset stand now, or stood ``at`` a moment; config None is the default one.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError
        """
        with reading(self._engine) as connection:
            if at is not None:
                return history.standing_at(connection, name, config, at)
            return load_standing(connection, name, config)

    def shards(self, version: DatasetVersion, split: str) -> tuple[Shard, ...]:
        """The stored files of one split of ``version``, in order.

        Raises:
            SplitNotFoundError: no such split, or the version is not of this catalog.
        """
        with reading(self._engine) as connection:
            return queries.load_shards(connection, version, split)

    def promises(self, version: DatasetVersion, splits: Collection[str] | None = None) -> PublishedShards:
        """What is promised of the files of these ``splits`` of ``version``, or of all; loaded as they are asked for.

        Raises:
            SplitNotFoundError: at the first file that is asked for: the version is not of this catalog.
        """
        chosen = [split for split in version.splits if splits is None or split.name in splits]
        return PublishedShards(self._engine, version, chosen)

    def find_shards(
        self, name: str, config: str | None, digests: Collection[str]
    ) -> dict[str, tuple[Version, str, int]]:
        """The version, split and index of published shards of one dataset, by their sha256."""
        with reading(self._engine) as connection:
            return queries.find_shards(connection, name, config, digests)

    def published_digest(self, name: str, config: str | None, version: Version) -> str | None:
        """The content digest that was ever published under this number, or None where the number is free."""
        with reading(self._engine) as connection:
            return queries.find_digest(connection, name, config, version)

    def published(self, name: str, config: str | None, version: Version) -> DatasetVersion | None:
        """The version of exactly this number in any state, dropped ones too; None where there is none."""
        with reading(self._engine) as connection:
            return queries.find_published(connection, name, config, version)

    def published_at(self, location: str) -> tuple[Reference, ...]:
        """The versions whose files lie at an absolute ``location``, in any state: those that were imported in place."""
        with reading(self._engine) as connection:
            return queries.find_located(connection, location)

    def neighbours(
        self, name: str, config: str | None, version: Version
    ) -> tuple[DatasetVersion | None, DatasetVersion | None]:
        """The versions published right below and right above ``version``, in any state, dropped ones too."""
        with reading(self._engine) as connection:
            numbers = queries.find_neighbours(connection, name, config, version)
            lower, higher = (
                None if number is None else queries.find_published(connection, name, config, number)
                for number in numbers
            )
            return lower, higher

    def fingerprints(self, version: DatasetVersion) -> dict[str, SplitFingerprint]:
        """The fingerprint of each split of a published version; empty where none were computed."""
        with reading(self._engine) as connection:
            version_id = queries.find_version_id(connection, version.name, version.config, version.version)
            return {} if version_id is None else writes.load_fingerprints(connection, version_id)

    def add_fingerprints(self, version: DatasetVersion, found: Mapping[str, SplitFingerprint], *, actor: str) -> bool:
        """Store the fingerprints of a version that was published without; False where they are there already."""
        return writes.add_fingerprints(self._engine, version, found, actor=actor)

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

    def protection(self, name: str, config: str | None, *, at: datetime | None = None) -> str | None:
        """What protects a config from being promoted by publications: itself, its dataset, or ``""``, the catalog.

        None where nothing does; ``at`` a moment, what did then.
        """
        with reading(self._engine) as connection:
            if at is not None:
                return protection_at(connection, name, config, at)
            return find_protection(connection, name, config)

    def set_protection(
        self, dataset: Reference | None, *, protect: bool, actor: str, dry_run: bool = False
    ) -> ProtectionChange:
        """Protect a dataset, one of its configs, or with None the whole catalog; or take that back.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: there is none.
        """
        return set_protection(self._engine, dataset, protect=protect, actor=actor, dry_run=dry_run)

    def canonical(self, name: str, config: str | None) -> Version | None:
        """The canonical version of a config; None where there is none, or no such config."""
        with reading(self._engine) as connection:
            found = find_standing(connection, name, config)
            return None if found is None else found.canonical

    def publish(
        self,
        version: DatasetVersion,
        shards: Mapping[str, tuple[Shard, ...]],
        *,
        promote: bool | None,
        default_config: bool = False,
        actor: str,
        found: Mapping[str, SplitFingerprint] | None = None,
        proved_between: writes.Neighbours | None = None,
        experiment_defaults: Mapping[str, bool] | None = None,
        held: tuple[Reservation, Holder] | None = None,
        unreserved: str | None = None,
    ) -> Promotion | None:
        """Publish ``version`` in one transaction: after it everything is there, before it nothing.

        Args:
            version: what is published; ``canonical``, ``published_at`` and ``published_by`` are the catalog's to say.
            shards: the stored files of each split, in order; they must fit the split's shard lengths.
            promote: make it the version that an unversioned look-up gives; None does so where it is at least as high as
                that one and nothing protects it.
            default_config: make its config the one that a reference without a config means.
            actor: who publishes.
            found: the fingerprint of each split, to prove later numbers against; None stores none.
            proved_between: the numbers right below and above, against which this number was proved.
            experiment_defaults: the flags that the build was given beside what the version overrides, kept with its
                event; None are those of this moment.
            held: the reservation of its location and who holds it; it goes in this transaction.
            unreserved: the location of files that were in place before, in an object store: refused where other content
                is being put there.

        Returns:
            What became of the canonical version; None if the same content digest is there already, and nothing changed.

        Raises:
            VersionExistsError: the number was used for other content, or for a version that was deleted.
            NeighboursChangedError: ``proved_between`` are not the neighbours any more: prove again.
            ReservedError: ``held`` was taken away, or others put files at ``unreserved``.
            ProtectedError: it is to be promoted, and its dataset, config or catalog is protected.
            ConflictError: a config for a dataset without configs, or the other way round; or it overrides a flag that
                is retired.
            ExperimentNotFoundError: it overrides a flag that was never added.
            UsageError: shards that are not those of the version, or a name that look-ups would fold to another.
        """
        return writes.publish_version(
            self._engine,
            version,
            shards,
            promote=promote,
            default_config=default_config,
            actor=actor,
            found=found,
            proved_between=proved_between,
            experiment_defaults=experiment_defaults,
            held=held,
            unreserved=unreserved,
        )

    @cached_property
    def reservations(self) -> SqlReservations:
        """Who is putting files into object stores."""
        return SqlReservations(self._engine)

    def experiments(self) -> tuple[Experiment, ...]:
        """Every flag, by name, with its default and the number of live versions that override it."""
        with reading(self._engine) as connection:
            return experiments.list_experiments(connection)

    def experiment_defaults(self, overrides: Mapping[str, bool]) -> dict[str, bool]:
        """What a build is given: whether each flag is on for a version that does not say; a retired one is on.

        Raises:
            ExperimentNotFoundError: the version's ``overrides`` name a flag that was never added.
            ConflictError: they name one that is retired.
        """
        with reading(self._engine) as connection:
            experiments.check_overrides(connection, overrides)
            return experiments.current_defaults(connection)

    def implemented(self, version: DatasetVersion) -> dict[str, bool]:
        """Every flag, as it stands for a published version: its override, or the default that its build was given."""
        with reading(self._engine) as connection:
            return experiments.implemented(connection, version)

    def add_experiment(
        self, name: str, description: str, *, default: bool = False, actor: str, dry_run: bool = False
    ) -> ExperimentChange:
        """Add a flag; see ``experiments.add_experiment``."""
        return experiments.add_experiment(
            self._engine, name, description, default=default, actor=actor, dry_run=dry_run
        )

    def set_experiment_default(
        self, name: str, default: bool, *, actor: str, dry_run: bool = False
    ) -> ExperimentChange:
        """Flip a flag's default; see ``experiments.set_default``."""
        return experiments.set_default(self._engine, name, default=default, actor=actor, dry_run=dry_run)

    def retire_experiment(self, name: str, *, actor: str, dry_run: bool = False) -> ExperimentChange:
        """Switch a flag on for good; see ``experiments.retire``."""
        return experiments.retire(self._engine, name, actor=actor, dry_run=dry_run)

    def events(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        dataset: str | None = None,
        actions: Collection[str] | None = None,
        limit: int | None = None,
    ) -> Iterator[Event]:
        """The events of the log, the oldest first, in bounded memory; ``limit`` keeps the newest of them.

        ``since`` and ``until`` are included; ``dataset`` without a config means all its configs.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: no such dataset.
            UsageError: a version behind the dataset's name, or a limit below 1.
        """
        datasets = None
        if dataset is not None:
            with reading(self._engine) as connection:
                datasets = events.find_datasets(connection, dataset)
        wanted = events.Filter(since=since, until=until, datasets=datasets, actions=actions)
        return events.stream_events(self._engine, wanted, limit=limit)

    def set_alias(
        self,
        name: str,
        wanted: Reference,
        *,
        expect: aliases.Expected,
        message: str,
        actor: str,
        dry_run: bool = False,
    ) -> AliasChange:
        """Let an alias stand for the version that ``wanted`` names; see ``registry.api.Aliases.set``."""
        return aliases.set_alias(
            self._engine, name, wanted, expect=expect, message=message, actor=actor, dry_run=dry_run
        )

    def remove_alias(
        self, wanted: Reference, *, expect: aliases.Expected, message: str, actor: str, dry_run: bool = False
    ) -> AliasChange:
        """Remove an alias; see ``registry.api.Aliases.remove``."""
        return aliases.remove_alias(self._engine, wanted, expect=expect, message=message, actor=actor, dry_run=dry_run)

    def aliases(self, dataset: str | None = None) -> tuple[AliasSummary, ...]:
        """Every alias by dataset and name, or those of ``name[/config]``; a name alone stands for all its configs."""
        with reading(self._engine) as connection:
            return aliases.list_aliases(connection, dataset)

    def alias_history(self, wanted: Reference) -> tuple[AliasMove, ...]:
        """Everything that was done to an alias, the oldest first.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError, AliasNotFoundError: there was never one.
        """
        with reading(self._engine) as connection:
            return aliases.read_history(connection, wanted)

    def verify_log(self, *, anchor: str | None = None, advance: Callable[[int], None] | None = None) -> LogReport:
        """Compare the event log with itself, and replay it against every row; ``anchor`` is a head noted down before.

        ``advance`` is called with the number of rows looked at since the last call, of ``num_logged_rows``.
        """
        with reading(self._engine) as connection:
            return log_verify.verify_log(connection, anchor=anchor, advance=advance)

    def num_logged_rows(self) -> int:
        """How many rows ``verify_log`` looks at."""
        with reading(self._engine) as connection:
            return log_verify.count_rows(connection)

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
