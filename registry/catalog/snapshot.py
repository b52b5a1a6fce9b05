"""Writes a snapshot of a catalog for others: chosen datasets, without anything private, as an SQLite file.

    one read transaction  ->  rows of the chosen datasets, without private values  ->  lines of a backup  ->  restore

Left out are reservations, access tokens, everything of other datasets, the data directory, and places on machines:
paths, ``file://`` URLs, and sources of additions. ``anonymous`` replaces the names of people, unless the caller wants
them.

The events get numbers and a chain of hashes of their own. An event of the snapshot depends only on its event in the
catalog and on those before it, so a later snapshot of the same choice extends the chain of an earlier one. Details are
copied by name: what a later release adds to an event stays private until somebody lists it here.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from registry.catalog.attachments import ATTACH
from registry.catalog.backup import DERIVED, backup_rows, in_order, read_batches, reading_tables
from registry.catalog.configs import PROTECT
from registry.catalog.corrections import CORRECT_CLOCK
from registry.catalog.events import FIRST_PREVIOUS, RECORDED_BY, ROWS_AT, event_hash
from registry.catalog.history import DESCRIBE
from registry.catalog.lifecycle import UNDO
from registry.catalog.locations import MIRROR_ADD, MIRROR_REMOVE, RELOCATE, told_steps
from registry.catalog.names import RENAME, in_present, is_named, present_names, told_as
from registry.catalog.own_sqlite import sqlite3
from registry.catalog.proposals import UNPROTECT
from registry.catalog.removals import REMOVE
from registry.catalog.restore import restore_backup
from registry.catalog.revision import HEAD, read_status, read_status_of, require_current
from registry.catalog.rows import canonical_json
from registry.catalog.selection import NUMBER, explain_dataset, parse_dataset, published_versions
from registry.catalog.site_index import ANONYMOUS, is_local
from registry.catalog.tables import (
    access_token,
    alias,
    alias_event,
    attachment,
    builder,
    builder_config,
    corrected_time,
    dataset_name,
    dataset_version,
    event,
    experiment,
    fingerprint,
    metadata,
    protection,
    refusal,
    reservation,
    shard,
    split,
    version_experiment,
    version_ledger,
    version_location,
    webhook,
)
from registry.errors import LogTamperedError, UsageError
from registry.masking import has_secret
from registry.model import Advance, LocationStep, Version, current_locations, is_absolute

if TYPE_CHECKING:
    from registry.catalog.outcomes import BackupFacts

_FROM_CATALOG: Final = "copied from "
_OTHER_CATALOG: Final = "another catalog"

_CHANGE: Final = frozenset({"before", "after"})
_ALIAS: Final = _CHANGE | {"alias", "message"}
_EXPERIMENT: Final = frozenset({"name", "description", "default"})
_ATTACHED: Final = frozenset({"kind", "name", "num_bytes", "sha256"})
_PUBLISHED: Final = frozenset(
    ("attachments", "content_digest", "default_config", "entity_tags", "experiments", "fingerprints", "imported_from")
) | {"message", "num_examples", "promote", "seal", "state", "superseded_by"}

_DETAILS: Final[Mapping[str, frozenset[str]]] = {
    "publish": _PUBLISHED,
    ATTACH: _ATTACHED,
    "remove-secrets": frozenset({"columns", "seal"}),
    DESCRIBE: _CHANGE | {"seal"},
    **dict.fromkeys(("promote", "default-config", RENAME, "deprecate", "yank", "drop"), _CHANGE),
    REMOVE: _CHANGE | {"step", "due", "requested_by", "force", "reason"},
    **dict.fromkeys(("alias-set", "alias-remove"), _ALIAS),
    **dict.fromkeys((PROTECT, UNPROTECT), frozenset[str]()),
    **dict.fromkeys(("experiment-add", "experiment-set-default", "experiment-retire"), _EXPERIMENT),
}
"""The public details of events. Other events are left out, but for those that ``_PublicLog`` writes anew."""

_MOVES: Final = (MIRROR_ADD, MIRROR_REMOVE, RELOCATE)

_PARENTS: Final = {
    dataset_name: ("builder_id", builder),
    builder_config: ("builder_id", builder),
    dataset_version: ("config_id", builder_config),
    alias: ("config_id", builder_config),
    alias_event: ("config_id", builder_config),
    version_experiment: ("version_id", dataset_version),
    attachment: ("version_id", dataset_version),
    split: ("version_id", dataset_version),
    shard: ("split_id", split),
    fingerprint: ("split_id", split),
}
"""The column through which the rows of a table belong to a dataset, and the table that it names."""

_NAMED: Final = {protection: "scope", version_ledger: "builder_name"}
"""The column that names the dataset of a row."""

_WHOLE: Final = (experiment,)

_ACTORS: Final = frozenset({"published_by", "set_by", "added_by", "used_by", "protected_by", "actor"})
"""Columns that name people."""


def snapshot_lines(
    engine: sa.Engine,
    *,
    datasets: Collection[str] | None = None,
    with_actors: bool = False,
    advance: Advance | None = None,
) -> Iterator[bytes]:
    """The lines of a backup of the snapshot; see ``CatalogBackend.snapshot`` and ``backup_file``.

    Args:
        engine: the catalog, of the current schema.
        datasets: the names of datasets, present or former ones; None for the whole catalog.
        with_actors: keep who published and changed something.
        advance: called with the number of rows that were read since its last call.

    Raises:
        LogTamperedError: the chain of the catalog's events is broken. A new one would hide it.
    """
    names = None if datasets is None else [_parse_name(dataset) for dataset in datasets]
    require_current(read_status(engine))  # before a connection creates the file
    with reading_tables(engine) as connection:
        require_current(read_status_of(connection))
        choice = _Choice() if names is None else _choose(connection, names)
        log = _PublicLog(connection, choice, with_actors=with_actors)
        yield from backup_rows(HEAD, _tables(connection, choice, log), lambda: log.head, advance)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLines:
    """The beginning of the lines of a snapshot, which is its log: every change of a catalog is an event.

    Attributes:
        pieces: the lines that were read.
        head: the hash of the last event, 64 zeros if there is none.
        num_events: their number.
        has_anchor: whether the hash that the caller named is that of an event, or of the beginning of every log.
    """

    pieces: tuple[bytes, ...]
    head: str
    num_events: int
    has_anchor: bool


def read_log_lines(lines: Iterator[bytes], anchor: str | None = None) -> LogLines:
    """Read the lines of ``snapshot_lines`` up to the table that follows the log."""
    pieces, num_events, last, is_log = [], 0, b"", False
    has_anchor, ending = anchor in (None, FIRST_PREVIOUS), f'"{anchor}"]'.encode()
    for piece in lines:
        pieces.append(piece)
        if piece.startswith(b'{"table"'):
            if is_log:
                break
            is_log = True
        rows = [line for line in piece.splitlines() if line.startswith(b"[")]
        num_events += len(rows)
        has_anchor = has_anchor or any(row.endswith(ending) for row in rows)
        last = rows[-1] if rows else last
    head = json.loads(last)[-1] if last else FIRST_PREVIOUS  # the hash is the last column
    return LogLines(pieces=tuple(pieces), head=head, num_events=num_events, has_anchor=has_anchor)


def write_snapshot(path: Path, lines: Iterable[bytes], *, source: str, verify: bool = False) -> BackupFacts:
    """Make a new SQLite file of the lines of a snapshot. The same rows give the same bytes.

    Args:
        path: the new file.
        lines: of ``snapshot_lines``.
        source: the catalog that they come from, for messages.
        verify: compare every row with the event log, which takes longer than the rest.

    Raises:
        LogTamperedError: with ``verify``, rows differ from the event log: other software changed the catalog.
    """
    with TemporaryDirectory(dir=path.parent) as folder:
        spool = Path(folder, "lines.gz")
        with gzip.open(spool, "wb", compresslevel=1) as packed:
            packed.writelines(lines)
        restored = restore_backup(str(path), lambda: spool.open("rb"), shown=source, verify=verify)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA journal_mode=DELETE")  # readers of a file in WAL mode write beside it
        file.execute("VACUUM")
    return restored.facts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """The datasets of a snapshot: the ids of their rows, and every name that they have had. Without ids: all."""

    ids: tuple[int, ...] | None = None
    names: frozenset[str] = frozenset()

    def covers(self, text: str) -> bool:
        """Whether ``name[/config]``, or ``""`` for the whole catalog, belongs to the snapshot."""
        return self.ids is None or text == "" or text.partition("/")[0] in self.names


def _parse_name(text: str) -> str:
    reference = parse_dataset(text)
    if reference.config is not None:
        raise UsageError(
            f"{text}: a snapshot contains whole datasets, not single configs", hint=f"Name it: {reference.name}"
        )
    return reference.name


def _choose(connection: sa.Connection, names: Iterable[str]) -> _Choice:
    found: dict[int, str] = {}
    for name in names:
        row = connection.execute(sa.select(builder.c.id, builder.c.name).where(is_named(name))).first()
        if row is None:
            raise explain_dataset(connection, parse_dataset(name))
        found[row.id] = row.name
    return _Choice(ids=tuple(found), names=frozenset(told_as(connection, *found.values())))


def _tables(
    connection: sa.Connection, choice: _Choice, log: _PublicLog
) -> Iterator[tuple[sa.Table, Iterable[Sequence[Sequence[Any]]]]]:
    """The rows of every table; those of the log first, because others depend on it."""
    yield event, log.read()
    yield corrected_time, [[(number, *values) for number, values in sorted(log.corrected.items())]]
    yield version_location, [log.steps]
    private = (access_token, refusal, reservation, webhook)
    yield from ((table, ()) for table in private)
    done = {event, corrected_time, version_location, *private}
    for table in metadata.sorted_tables:
        if table in done or table.name in DERIVED:
            continue
        query = in_order(connection, table)
        if choice.ids is not None and table not in _NAMED and table not in _WHOLE:
            query = query.where(_is_of(table, choice.ids))
        batches = read_batches(connection, query)
        if table in _NAMED:
            name = _NAMED[table]
            batches = ([row for row in batch if choice.covers(getattr(row, name))] for batch in batches)
        yield table, log.make_public(table, batches)


def _is_of(table: sa.Table, ids: Sequence[int]) -> sa.ColumnElement[bool]:
    """The condition for the rows of ``table`` that belong to these datasets."""
    if table is builder:
        return builder.c.id.in_(ids)
    name, parent = _PARENTS[table]
    return table.c[name].in_(sa.select(parent.c.id).where(_is_of(parent, ids)))


@dataclass(slots=True, kw_only=True)
class _Places:
    """The locations of one version, while the events are read: in the catalog and in the snapshot.

    ``folder`` is the place below the data directory that takes the place of a path which is read first: the one in the
    row, or else the one that TFDS would use, with the name of the dataset at the time of the publication.
    """

    version_id: int
    published: str
    folder: str
    steps: tuple[LocationStep, ...] = ()
    public: tuple[str, ...] = ()

    @property
    def was_local(self) -> bool:
        return is_local(self.published)

    @property
    def home(self) -> str:
        """The location in the row of the snapshot."""
        return self.folder if self.was_local else self.published

    def start(self, folder: str) -> None:
        """The version is published."""
        if is_absolute(self.published):
            self.folder = folder
        self.public = (self.home,)

    def move(self, steps: tuple[LocationStep, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
        """The events that a change of the locations in the catalog is in the snapshot."""
        self.steps += steps
        present = current_locations(self.published, self.steps)
        first = self.folder if is_local(present[0]) else present[0]
        after = [first, *(at for at in present[1:] if not is_local(at))]
        gone = [at for at in self.public if at not in after]
        added = [at for at in dict.fromkeys(after) if at not in self.public]
        moves: list[tuple[str, dict[str, Any]]] = []
        if gone and added:
            before, to = gone.pop(0), added.pop(0)
            moves.append((RELOCATE, {"before": before, "after": to, "is_first": to == after[0]}))
        moves += [(MIRROR_ADD, {"location": at}) for at in added]
        moves += [(MIRROR_REMOVE, {"location": at}) for at in gone]
        self.public = current_locations(
            self.public[0],
            [LocationStep("add", at) for at in self.public[1:]]
            + [step for action, details in moves for step in told_steps(action, details)],
        )
        yield from moves


class _PublicLog:
    """The events of a snapshot, and the values of other rows that depend on them once ``read`` has ended.

    Attributes:
        head: the hash of the last event.
        corrected: the corrected time of events, and the event that corrects it, by number.
        steps: the rows of ``version_location``.
    """

    def __init__(self, connection: sa.Connection, choice: _Choice, *, with_actors: bool) -> None:
        self.head = FIRST_PREVIOUS
        self.corrected: dict[int, tuple[datetime, int]] = {}
        self.steps: list[tuple[Any, ...]] = []
        self._connection = connection
        self._choice = choice
        self._with_actors = with_actors
        self._sources: list[int] = []  # for each event, its number in the catalog
        self._before = (0, FIRST_PREVIOUS)
        self._present = present_names(connection)
        self._messages: dict[tuple[str, str], dict[str, str]] = {}
        query = sa.select(builder_config.c.id, builder_config.c.name, builder.c.name.label("dataset"))
        configs = connection.execute(query.join_from(builder_config, builder))
        self._datasets = {row.id: f"{row.dataset}/{row.name}" if row.name else row.dataset for row in configs}
        self._places = dict(self._read_places())

    def read(self) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of ``event``, some at a time."""
        with closing(read_batches(self._connection, sa.select(event).order_by(event.c.id))) as batches:
            for batch in batches:
                yield [public for row in batch for public in self._public_rows(row)]

    def _public_rows(self, row: Any) -> Iterator[tuple[Any, ...]]:
        event_columns = dict(zip(event.columns.keys(), row, strict=True))  # its own mappings are slow
        self._check_chain(row, event_columns)
        if not self._choice.covers(row.dataset):
            return
        for action, details in self._public(row, json.loads(row.details_json)):
            values = {
                **event_columns,
                "id": len(self._sources) + 1,
                "action": action,
                "actor": row.actor if self._with_actors else ANONYMOUS,
                "details_json": canonical_json(details),
                "previous_hash": self.head,
            }
            self.head = values["hash"] = event_hash(values)
            self._sources.append(row.id)
            yield tuple(values.values())

    def _check_chain(self, row: Any, columns: Mapping[str, Any]) -> None:
        """The new chain must not hide that the catalog's own is broken."""
        if (row.id - 1, row.previous_hash) != self._before or event_hash(columns) != row.hash:
            raise LogTamperedError(
                f"event {row.id} of the catalog was changed, or does not follow event {self._before[0]}",
                hint="See which events and rows other software changed: registry log verify",
                details={"event": row.id, "faults": []},
            )
        self._before = (row.id, row.hash)

    def make_public(self, table: sa.Table, batches: Iterable[Sequence[Any]]) -> Iterable[Sequence[Sequence[Any]]]:
        """Rows of another table without private values."""
        people = {} if self._with_actors else dict.fromkeys(_ACTORS & set(table.columns.keys()), ANONYMOUS)
        if not people and table not in (dataset_version, alias_event, protection):
            return batches
        return ([self._public_row(table, row, people) for row in batch] for batch in batches)

    def _public_row(self, table: sa.Table, row: Any, people: dict[str, Any]) -> Sequence[Any]:
        values = dict(zip(table.columns.keys(), row, strict=True)) | people
        if table is alias_event:
            values["message"] = _public_message(row.message)
        if table is protection:
            values["two_persons"] = False  # readers of a site promote nothing, and the proposals are not in it
        if table is dataset_version:
            version = self._datasets[row.config_id], str(Version(row.major, row.minor, row.patch))
            values["state_message"] = self._messages.get(version, {}).get(row.state_message, row.state_message)
            if version in self._places:
                values["location"] = self._places[version].home
        return tuple(values.values())

    def _read_places(self) -> Iterator[tuple[tuple[str, str], _Places]]:
        """The versions with another location than one below the data directory, or with changes of it."""
        is_changed = sa.exists().where(version_location.c.version_id == dataset_version.c.id)
        is_outside = sa.or_(dataset_version.c.location.like("/%"), dataset_version.c.location.like("%://%"))
        query = sa.select(dataset_version.c.id, dataset_version.c.config_id, dataset_version.c.location, *NUMBER)
        for row in self._connection.execute(query.select_from(published_versions()).where(is_outside | is_changed)):
            dataset, number = self._datasets[row.config_id], str(Version(row.major, row.minor, row.patch))
            folder = f"{dataset}/{number}" if is_absolute(row.location) else row.location
            yield (dataset, number), _Places(version_id=row.id, published=row.location, folder=folder)

    def _public(self, row: Any, told: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """The events of the snapshot for an event of the catalog: one, or none; rarely several."""
        version = in_present(self._present, row.dataset), row.version
        kept = (ROWS_AT, RECORDED_BY) if self._with_actors else (ROWS_AT,)
        own: dict[str, Any] = {name: told[name] for name in kept if name in told}
        if row.action == CORRECT_CLOCK:
            yield from self._correct(told, own)
        elif row.action in _MOVES:
            yield from self._move(row, version, told, own)
        elif row.action == "fingerprint":
            yield row.action, {name: seal for name, seal in told.items() if not name.startswith("@")} | own
        elif (names := _DETAILS.get(row.action.removeprefix(UNDO))) is not None:
            details = {name: value for name, value in told.items() if name in names}
            self._hide(row, version, details)
            yield row.action, details | own

    def _hide(self, row: Any, version: tuple[str, str], details: dict[str, Any]) -> None:
        """Replace what is private in the details of an event."""
        places = self._places.get(version)
        if places is not None and row.action == "publish":
            places.start(f"{row.dataset}/{row.version}")
        if places is not None and places.was_local:
            details.pop("seal", None)  # it seals the path
        if "imported_from" in details:
            origin = details["imported_from"]
            by = origin["published_by"] if self._with_actors else ANONYMOUS
            catalog = _public_catalog(origin["catalog"])
            details["imported_from"] = {"catalog": catalog, "published_at": origin["published_at"], "published_by": by}
        if row.action.startswith("alias-"):
            details["message"] = _public_message(details.get("message", ""))
        if not self._with_actors:
            self._hide_remover(row, version, details)

    def _hide_remover(self, row: Any, version: tuple[str, str], details: dict[str, Any]) -> None:
        """A message such as "bad; ann removed its files at ..." is in the row, too, and in the events that follow."""
        if row.action == REMOVE:
            begin = f"{details['reason']}; "
            message, named = details["after"]["message"], f"{begin}{details['requested_by']} "
            if message.startswith(named):
                new = f"{begin}{ANONYMOUS} {message[len(named) :]}"
                self._messages.setdefault(version, {})[message] = new
            details["requested_by"] = ANONYMOUS
        messages = self._messages.get(version, {})
        for name in _CHANGE & details.keys() if messages else ():
            message = details[name]["message"]
            details[name] = {**details[name], "message": messages.get(message, message)}

    def _move(
        self, row: Any, version: tuple[str, str], told: Mapping[str, Any], own: dict[str, Any]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        places = self._places.get(version)
        if places is None or not places.public:
            return  # other software removed its rows or the event of its publication
        at = datetime.fromisoformat(own[ROWS_AT]) if ROWS_AT in own else row.at
        by = row.actor if self._with_actors else ANONYMOUS
        for action, details in places.move(told_steps(row.action, told)):
            for kind, location in told_steps(action, details):
                self.steps.append((len(self.steps) + 1, places.version_id, kind, location, at, by))
            yield action, details | own

    def _correct(self, told: Mapping[str, Any], own: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """A correction of the clock lists the times of all events between two; those of other datasets are left out."""
        first, times = told["first"], told["times"]
        start, stop = (bisect_left(self._sources, number) for number in (first, first + len(times)))
        chosen = [times[source - first] for source in self._sources[start:stop]]
        if chosen:
            number = len(self._sources) + 1
            for place, at in enumerate(chosen, start + 1):
                self.corrected[place] = datetime.fromisoformat(at), number
            yield CORRECT_CLOCK, {"first": start + 1, "times": chosen} | own


def _public_catalog(url: str) -> str:
    """The catalog that a version was copied from: a site, or another one that others cannot open."""
    is_site = url.startswith(("https://", "http://")) and not has_secret(url)
    return url if is_site else _OTHER_CATALOG


def _public_message(message: str) -> str:
    """The message of a change of an alias. A copy names the catalog that it comes from."""
    url = message.removeprefix(_FROM_CATALOG)
    return _FROM_CATALOG + _public_catalog(url) if url != message and is_absolute(url) else message
