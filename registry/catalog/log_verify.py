"""Verifies the event log: its chain, and then each dataset, whose events are replayed and compared with its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.aliases import read_targets, select_moves
from registry.catalog.configs import PROTECT, scopes
from registry.catalog.corrections import compare_corrections
from registry.catalog.event_words import or_none
from registry.catalog.events import UNREADABLE, Faults, describe_event, in_json, read_events, walk_chain
from registry.catalog.faults import decoded_text
from registry.catalog.history import Replayed, ReplayedConfig, ReplayedVersion, describe_refusal
from registry.catalog.names import in_present, present_names
from registry.catalog.outcomes import LogReport
from registry.catalog.proposals import PROMOTE, PROPOSE, REJECT, UNPROTECT, end_proposals, is_approved
from registry.catalog.rows import fingerprint_seals, read_attachment, read_canonical, version_seal
from registry.catalog.schema import wrong_triggers
from registry.catalog.search import stale_documents
from registry.catalog.selection import CANONICAL_NUMBER, NUMBER, canonical_version, published_versions, read_candidate
from registry.catalog.stored_content import recompute_contents
from registry.catalog.tables import (
    alias,
    alias_event,
    attachment,
    builder,
    builder_config,
    dataset_name,
    dataset_version,
    experiment,
    fingerprint,
    protection,
    version_experiment,
    version_ledger,
    version_location,
)
from registry.catalog.values import stored_values
from registry.catalog.writes import ALGORITHMS, load_fingerprints
from registry.errors import CatalogError
from registry.model import Advance, Candidate, Event, Reference, Version

_VERSIONS: Final = 100
"""Number of versions that one query reads; their schemas are in memory together."""

_ALIAS_ACTIONS: Final = ("alias-set", "alias-remove")


def verify_log(
    connection: sa.Connection,
    *,
    anchor: str | None = None,
    advance: Advance | None = None,
    index: Sequence[str] = (),
) -> LogReport:
    """Verify every event and every row that events describe, in one snapshot (``reading(engine)``).

    ``index`` are faults of the search index, which another transaction checked (``search.index_faults``).

    If an event cannot be read, the log cannot be replayed, and the tables are not compared.
    """
    told = advance or (lambda _count: None)
    faults = Faults()
    chain = walk_chain(connection, faults, anchor=anchor, advance=told)
    tables = TableComparison(connection, faults, told)
    if chain.is_readable:
        tables.run(chain.datasets)
    for line in (*wrong_triggers(connection), *index):
        faults.add("the schema", line)
    return LogReport(
        num_events=chain.num_events,
        num_versions=tables.num_versions,
        num_shards=tables.num_shards,
        head=chain.head,
        faults=tuple(faults.kept),
        num_faults=faults.num_faults,
    )


class TableComparison:
    """Compares the tables with the log. Memory: the replayed events of one dataset, and a batch of rows."""

    def __init__(self, connection: sa.Connection, faults: Faults, advance: Advance) -> None:
        self._connection = connection
        self._faults = faults
        self._advance = advance
        self.num_versions = 0
        self.num_shards = 0

    def run(self, datasets: dict[str, set[str]]) -> None:
        """Compare everything; ``datasets`` has the names of each dataset in events, by the name of the dataset."""
        try:
            with stored_values(), decoded_text():
                names = self._connection.execute(sa.select(builder.c.name, builder.c.id).order_by(builder.c.id)).all()
                present = present_names(self._connection)
        except CatalogError as error:
            self._faults.add("the catalog", f"cannot be read: {error}")
            return
        known: dict[str, int] = dict(map(tuple, names))
        told = {present.get(name, name): set[str]() for name in (*known, *datasets)}
        for name, in_events in datasets.items():
            told[present.get(name, name)] |= in_events
        for name, in_events in told.items():
            try:
                with stored_values(), decoded_text():
                    every_name = [former for former in present if present[former] == name]
                    self._compare_dataset(name, known.get(name), every_name, sorted(in_events))
            except CatalogError as error:
                self._faults.add(name, f"cannot be read: {error}")
        try:
            with stored_values(), decoded_text():
                compare_corrections(self._connection, self._faults)
                self._compare_experiments()
                self._compare_protection()
                self._compare_ledger()
                self._compare_positions()
                self._compare_documents()
        except CatalogError as error:
            self._faults.add("the catalog", f"cannot be read: {error}")

    def _compare_dataset(self, name: str, builder_id: int | None, names: list[str], told: list[str]) -> None:
        found = self._connection.execute(sa.select(builder).where(builder.c.id == builder_id)).first()
        replayed = self._replay(name, builder_id, told)
        if found is not None and (name, names) != (replayed.name or name, replayed.names):
            had, told_names = (
                f" among its names {', '.join(known)}" if known else "" for known in (names, replayed.names)
            )
            self._faults.add(name, f"has the name {name}{had}; its events say {replayed.name}{told_names}")
        query = (
            sa.select(builder_config, *CANONICAL_NUMBER)
            .outerjoin(canonical_version, canonical_version.c.id == builder_config.c.canonical_version_id)
            .where(builder_config.c.builder_id == builder_id)
            .order_by(builder_config.c.id)
        )
        configs = [] if builder_id is None else self._connection.execute(query).all()
        default = next((row.name for row in configs if row.is_default), None)
        if default != replayed.default_config:
            self._faults.add(
                name,
                f"has {_config(default)} as its default config; its events say {_config(replayed.default_config)}",
            )
        published = [version.published for config in replayed.configs.values() for version in config.versions.values()]
        self._compare_origin(name, found, published, has_configs=any(replayed.configs))
        for row in configs:
            dataset = f"{name}/{row.name}" if row.name else name
            told_of = replayed.configs.pop(row.name, None) or ReplayedConfig()
            if published:  # else the dataset is reported, which is enough
                self._compare_origin(dataset, row, [version.published for version in told_of.versions.values()])
            canonical = read_canonical(row)
            if canonical != told_of.canonical:
                self._faults.add(
                    dataset,
                    f"has the canonical version {or_none(canonical)}; its events say {or_none(told_of.canonical)}",
                )
            self._compare_aliases(row, dataset, told_of)
            self._compare_versions(row.id, name, names, row.name or None, told_of)
        for config, told_of in replayed.configs.items():  # configs that have no row
            self._report_missing(name, config or None, told_of)

    def _compare_origin(
        self, dataset: str, found: Any, published: list[Event], *, has_configs: bool | None = None
    ) -> None:
        """Compare the row of a dataset or config with the event of its first version."""
        if found is None:
            return
        first = min(published, key=attrgetter("id"), default=None)
        if first is None:
            self._faults.add(dataset, "exists, but no event published a version of it")
            return
        if has_configs is not None and bool(found.has_configs) is not has_configs:
            says, told = ("has", "has none") if found.has_configs else ("has no", "has some")
            self._faults.add(dataset, f"{says} configs; its events say that it {told}")
        self._compare_time(dataset, "was created", found.created_at, first)

    def _compare_time(self, where: str, subject: str, at: datetime, event: Event) -> None:
        """Compare the time in a row with the event that describes it.

        A migration that restores rows from the log dates them by the event. Events of older releases do not tell the
        time of their rows, which is never later.
        """
        stamp = event.at if event.stamped_at is None else event.stamped_at
        if at > stamp if event.rows_at is None else at not in (event.rows_at, stamp):
            says = stamp if event.rows_at is None else event.rows_at
            self._faults.add(where, f"{subject} at {in_json(at)}; its events say {in_json(says)}")

    def _replay(self, name: str, builder_id: int | None, told: list[str]) -> Replayed:
        """The state of a dataset after its events; its history of aliases is compared with them."""
        replayed = Replayed()
        history = _alias_history(self._connection, builder_id)
        is_told = True
        for event in read_events(self._connection, datasets=told) if told else ():
            try:
                replayed.apply(event)
            except UNREADABLE as error:
                self._faults.add(describe_event(event), f"cannot have happened: {describe_refusal(error)}")
                continue
            if event.action in _ALIAS_ACTIONS and is_told:
                row = next(history, None)
                is_told = row is not None and _told_by_row(row) == _told_by_event(event)
                if not is_told:  # report once: every later row is shifted against its event
                    self._faults.add(describe_event(event), "differs from the history of aliases")
                elif row is not None:
                    self._compare_time(f"{event.dataset}@{row.name}", "was moved", row.at, event)
        for row in history if is_told else ():
            dataset = f"{name}/{row.config}" if row.config else name
            self._faults.add(f"{dataset}@{row.name}", f"was moved by {row.actor} without an event")
        return replayed

    def _compare_aliases(self, config: Any, dataset: str, told_of: ReplayedConfig) -> None:
        rows = self._connection.execute(
            sa.select(alias.c.name, alias.c.set_by, alias.c.set_at, *NUMBER)
            .join_from(alias, dataset_version, dataset_version.c.id == alias.c.version_id)
            .where(alias.c.config_id == config.id)
            .order_by(alias.c.name)
        )
        for row in rows:
            told, event = told_of.aliases.pop(row.name, (None, None))
            version = Version(row.major, row.minor, row.patch)
            where = f"{dataset}@{row.name}"
            if told != version or event is None:
                self._faults.add(where, f"points to {version}; its events say {or_none(told)}")
                continue
            if event.actor != row.set_by:
                self._faults.add(where, f"was set by {row.set_by}; its events say somebody else")
            self._compare_time(where, "was set", row.set_at, event)
        for name, (version, _) in told_of.aliases.items():
            self._faults.add(f"{dataset}@{name}", f"does not exist; its events say it points to {version}")

    def _compare_versions(
        self, config_id: int, name: str, names: Sequence[str], config: str | None, told_of: ReplayedConfig
    ) -> None:
        overrides, steps, attachments = (
            _rows_by_version(self._connection, query, config_id) for query in (_OVERRIDES, _STEPS, _ATTACHMENTS)
        )
        last = -1
        while rows := self._connection.execute(_version_query(config_id, {name, *names}, config, last)).all():
            last = rows[-1].id
            contents = recompute_contents(self._connection, rows, self._advance)
            for row in rows:
                self.num_versions += 1
                version = Version(row.major, row.minor, row.patch)
                where = str(Reference.exactly(name, config, version))
                content = contents[row.id]
                self.num_shards += content.num_shards
                for torn in content.contradictory:
                    self._faults.add(f"{where} {torn}", "has rows of splits and shards that contradict each other")
                told = told_of.versions.pop(version, None)
                if told is None:
                    self._faults.add(where, "is published, but no event says so")
                else:
                    flags = {each.name: bool(each.enabled) for each in overrides.get(row.id, ())}
                    self._compare_version(where, row, told, content.hasher.hexdigest(), flags)
                    self._compare_seals(where, row, told, content.splits, flags)
                    self._compare_steps(where, steps.get(row.id, ()), told)
                    self._compare_attachments(where, attachments.get(row.id, ()), told)
                    if told.published.rows_at is not None and content.tags.hexdigest() != told.entity_tags:
                        self._faults.add(where, "has other ETags of its shards than were published")
        self._report_missing(name, config, told_of)

    def _compare_steps(self, where: str, steps: Sequence[Any], version: ReplayedVersion) -> None:
        found = [(step.change, step.location, step.actor) for step in steps]
        if found != [(kind, location, event.actor) for kind, location, event in version.steps]:
            self._faults.add(where, "has other changes of its locations than its events say")
            return
        for step, (_, _, event) in zip(steps, version.steps, strict=True):
            self._compare_time(where, f"changed its location {step.location}", step.at, event)

    def _compare_attachments(self, where: str, rows: Sequence[Any], version: ReplayedVersion) -> None:
        stored = {read_attachment(row._mapping): row for row in rows}
        if stored.keys() != version.attachments.keys():
            self._faults.add(where, "has other attachments than its events say")
            return
        for file, row in stored.items():
            event, subject = version.attachments[file], f"got the attachment {file.name}"
            if row.added_by != event.actor:
                self._faults.add(where, f"{subject} by {row.added_by}; its events say somebody else")
            self._compare_time(where, subject, row.added_at, event)

    def _compare_version(
        self, where: str, row: Any, version: ReplayedVersion, digest: str, overrides: dict[str, bool]
    ) -> None:
        candidate = read_candidate(row)
        if candidate != version.candidate:
            self._faults.add(where, f"is {_described(candidate)}; its events say {_described(version.candidate)}")
        if row.published_by != version.published_by:
            self._faults.add(where, f"was published by {row.published_by}; its events say {version.published_by}")
        if row.used_digest is None:
            self._faults.add(where, "is published, but its number is not in the ledger")
        elif (row.used_digest, row.used_by) != (version.content_digest, version.published_by):
            self._faults.add(where, "has other content or another publisher in the ledger than in its event")
        elif row.used_name != version.published.dataset.partition("/")[0]:
            self._faults.add(where, f"is in the ledger as one of {row.used_name}; its event has another name")
        else:
            self._compare_time(where, "took its number", row.used_at, version.published)
        if row.content_digest != version.content_digest:
            self._faults.add(where, "has another content digest than in its event")
        if digest != version.content_digest:
            self._faults.add(where, "has other content than was published: schema, labels, slicing rule or shards")
        built_with = overrides if version.experiments is None else version.experiments
        for flag, enabled in overrides.items():
            if built_with.get(flag) is not enabled:
                self._faults.add(where, f"overrides the experiment {flag} with another value than in its event")

    def _compare_seals(
        self, where: str, row: Any, version: ReplayedVersion, splits: list[Any], overrides: dict[str, bool]
    ) -> None:
        """Facts that events of older registries lack are not compared; those registries stored no fingerprints."""
        if version.seal is not None:
            seal = version_seal(row._mapping, (split._mapping for split in splits), overrides)
            if seal != version.seal:
                self._faults.add(
                    where,
                    "differs from what was published in its place, files' names, metadata, time or experiments",
                )
        try:
            found = fingerprint_seals(load_fingerprints(self._connection, row.id))
        except CatalogError as error:
            self._faults.add(where, f"has fingerprints that cannot be read: {error}")
            return
        if found != version.fingerprints:
            self._faults.add(where, "has other fingerprints than were computed when it was published")

    def _report_missing(self, name: str, config: str | None, told_of: ReplayedConfig) -> None:
        for version in told_of.versions:
            where = str(Reference.exactly(name, config, version))
            self._faults.add(where, "was published by an event but does not exist")

    def _compare_experiments(self) -> None:
        """Flags that an older registry added implicitly have no event; they are off and have no description."""
        told: dict[str, tuple[str, bool, bool]] = {}
        dated: dict[tuple[str, bool], Event] = {}
        actions = ("experiment-add", "experiment-set-default", "experiment-retire")
        for change in read_events(self._connection, actions=actions):
            try:
                name = change.details["name"]
                description, default, retired = told.get(name, ("", False, False))
                told[name] = (
                    change.details.get("description", description),
                    bool(change.details.get("default", default)),
                    retired or change.action == "experiment-retire",
                )
                if change.rows_at is not None:
                    dated[name, change.action == "experiment-retire"] = change
            except UNREADABLE as error:
                self._faults.add(describe_event(change), f"cannot have happened: {error}")
        rows = self._connection.execute(sa.select(experiment).order_by(experiment.c.id))
        for row in rows:
            found = (row.description, bool(row.default_enabled), row.retired_at is not None)
            if found != told.pop(row.name, ("", False, False)):
                self._faults.add(f"the experiment {row.name}", "is not what its events say")
                continue
            for subject, at, event in (
                ("was added", row.created_at, dated.get((row.name, False))),
                ("was retired", row.retired_at, dated.get((row.name, True))),
            ):
                if event is not None:
                    self._compare_time(f"the experiment {row.name}", subject, at, event)
        for name in told:
            self._faults.add(f"the experiment {name}", "was added by an event but does not exist")

    def _compare_protection(self) -> None:
        events: dict[str, Event] = {}
        waiting: dict[int, Event] = {}
        present = present_names(self._connection)
        for change in read_events(self._connection, actions=[PROTECT, UNPROTECT, PROMOTE, PROPOSE, REJECT]):
            scope = in_present(present, change.dataset)
            self._compare_approval(change, scope, events, waiting.get(change.details.get("proposal", 0)))
            end_proposals(waiting, change)
            if change.action in (PROTECT, UNPROTECT):
                events.pop(scope, None)
            if change.action == PROTECT:
                events[scope] = change
        for row in self._connection.execute(sa.select(protection).order_by(protection.c.scope)):
            event = events.pop(row.scope, None)
            if event is None or event.actor != row.protected_by:
                self._faults.add(_scope(row.scope), f"was protected by {row.protected_by}, but no event says so")
            else:
                self._compare_time(_scope(row.scope), "was protected", row.protected_at, event)
                if row.two_persons is not event.details.get("two_persons", False):
                    self._faults.add(_scope(row.scope), "has another rule of two persons than its events say")
        for scope in events:
            self._faults.add(_scope(scope), "was protected by an event but is not protected")

    def _compare_approval(self, change: Event, scope: str, protected: dict[str, Event], proposal: Event | None) -> None:
        """Report a change that needed two persons, according to the events before it, and was made by one."""
        name, _, config = scope.partition("/")
        covering = {PROMOTE: scopes(name, config or None), UNPROTECT: (scope,)}.get(change.action, ())
        if not any(it in protected and protected[it].details.get("two_persons") for it in covering):
            return
        if proposal is None or not is_approved(proposal, change):
            self._faults.add(describe_event(change), "needed two persons, and no other one proposed it")

    def _compare_positions(self) -> None:
        """The positions of the names of a renamed dataset count from 0; their order is compared with its events."""
        is_wrong = sa.func.max(dataset_name.c.position) >= sa.func.count()
        named = sa.select(builder.c.name).join(dataset_name, dataset_name.c.builder_id == builder.c.id)
        for name in self._connection.execute(named.group_by(builder.c.name).having(is_wrong)).scalars():
            self._faults.add(name, "has names at positions that do not count from 0")

    def _compare_documents(self) -> None:
        """The documents that are searched, and fingerprints that no look-up reads."""
        for _, name in stale_documents(self._connection):
            self._faults.add(f"the search document of {name}", "is not made from its rows: registry db reindex")

        kinds = sa.select(fingerprint.c.split_id, fingerprint.c.algorithm).distinct()
        for split_id, kind in self._connection.execute(kinds.where(fingerprint.c.algorithm.not_in(ALGORITHMS))):
            self._faults.add(f"split {split_id}", f"has fingerprints of the unknown kind {kind!r:.60}")

    def _compare_ledger(self) -> None:
        """Numbers in the ledger that no version has. A number stays there with the name that its dataset had."""
        had_name = (
            sa.exists()
            .where(dataset_name.c.builder_id == builder.c.id, dataset_name.c.name == version_ledger.c.builder_name)
            .correlate(builder, version_ledger)
        )
        has_version = (
            sa.select(dataset_version.c.id)
            .select_from(published_versions())
            .where(
                sa.or_(builder.c.name == version_ledger.c.builder_name, had_name),
                builder_config.c.name == version_ledger.c.config_name,
                *(column == version_ledger.c[column.name] for column in NUMBER),
            )
            .correlate(version_ledger)
            .exists()
        )
        unused = sa.select(version_ledger).where(sa.not_(has_version)).order_by(*version_ledger.primary_key.columns)
        for row in self._connection.execute(unused):
            reference = Reference.exactly(
                row.builder_name, row.config_name or None, Version(row.major, row.minor, row.patch)
            )
            self._faults.add(str(reference), "is in the ledger of used numbers but does not exist")


def _version_query(config_id: int, names: Collection[str], config: str | None, last: int) -> sa.Select[Any]:
    of_number = (column == version_ledger.c[column.name] for column in NUMBER)
    return (
        sa.select(dataset_version)
        .add_columns(
            version_ledger.c.builder_name.label("used_name"),
            version_ledger.c.content_digest.label("used_digest"),
            version_ledger.c.used_by,
            version_ledger.c.used_at,
        )
        .outerjoin(
            version_ledger,
            sa.and_(
                version_ledger.c.builder_name.in_(names), version_ledger.c.config_name == (config or ""), *of_number
            ),
        )
        .where(dataset_version.c.config_id == config_id, dataset_version.c.id > last)
        .order_by(dataset_version.c.id)
        .limit(_VERSIONS)
    )


_OVERRIDES: Final = (
    sa.select(version_experiment.c.version_id, experiment.c.name, version_experiment.c.enabled)
    .join_from(version_experiment, experiment)
    .join(dataset_version, dataset_version.c.id == version_experiment.c.version_id)
)
_STEPS: Final = sa.select(version_location).join(dataset_version).order_by(version_location.c.id)
_ATTACHMENTS: Final = sa.select(attachment).join(dataset_version)


def _rows_by_version(connection: sa.Connection, query: sa.Select[Any], config_id: int) -> dict[int, list[Any]]:
    """The rows of a query that belong to versions of a config, in order, by the version's id."""
    result: dict[int, list[Any]] = {}
    for row in connection.execute(query.where(dataset_version.c.config_id == config_id)):
        result.setdefault(row.version_id, []).append(row)
    return result


def _alias_history(connection: sa.Connection, builder_id: int | None) -> Iterator[Any]:
    """The history of the aliases of a dataset, in order, in batches."""
    moves = select_moves(alias_event.c.id, alias_event.c.at, alias_event.c.name, builder_config.c.name.label("config"))
    query = moves.where(builder_config.c.builder_id == builder_id)
    query = query.order_by(alias_event.c.id).limit(_VERSIONS)
    last = -1
    while rows := connection.execute(query.where(alias_event.c.id > last)).all() if builder_id is not None else []:
        yield from rows
        last = rows[-1].id


def _told_by_row(row: Any) -> tuple[Any, ...]:
    before, after = (None if number is None else str(number) for number in read_targets(row).values())
    return row.config, row.name, before, after, row.actor, row.message


def _told_by_event(event: Event) -> tuple[Any, ...]:
    told, config = event.details, event.dataset.partition("/")[2]  # the dataset may have had another name
    return config, told["alias"], told.get("before"), told.get("after"), event.actor, told.get("message", "")


def _described(candidate: Candidate) -> str:
    text = replace(candidate, superseded_by=None).described
    return text if candidate.superseded_by is None else f"{text} (superseded by {candidate.superseded_by})"


def _scope(scope: str) -> str:
    return scope or "the whole catalog"


def _config(name: str | None) -> str:
    return {None: "none", "": "the one without a name"}.get(name) or str(name)
