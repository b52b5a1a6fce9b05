"""A catalog as its user sees it: look datasets up, list, search and compare them, and read the event log."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

from registry.api.arguments import Moment, log_actor, parse_reference, read_moment
from registry.api.dataset import Dataset
from registry.api.lifecycle import Aliases, Experiments, Lifecycle, Reservations
from registry.api.locations import catalog_url, data_folder, make_catalog_folder, open_indexes
from registry.api.lock import current_lock, refuse_moving
from registry.api.provenance import FoundAt, FoundNow
from registry.api.publishing import Publishing
from registry.catalog import (
    DatasetSummary,
    EventFilter,
    LogReport,
    SearchHit,
    VersionSummary,
    open_catalog,
    stream_events,
)
from registry.errors import (
    CatalogError,
    DatasetNotFoundError,
    NotFoundError,
    RegistryError,
    UsageError,
    YankedVersionWarning,
)
from registry.model import Event, Reference, Standing, VersionState

if TYPE_CHECKING:  # numpy and protobuf are loaded when something is built or published
    from registry.api.pinning import CatalogPins
    from registry.publishing import Advance, VerifyReport, VersionDiff


def connect(url: str | os.PathLike[str] | None = None, *, data_dir: str | os.PathLike[str] | None = None) -> Catalog:
    """Open a catalog.

    Args:
        url: a database URL (``sqlite:///catalog.db``, ``postgresql://host/name``) or the path of an SQLite file, which
            is created where it does not exist. Default: ``$REGISTRY_CATALOG``, else a file in the user's data folder.
        data_dir: the folder or URL below which shards lie. Default: ``$REGISTRY_DATA_DIR``, else the folder
            ``datasets`` beside an SQLite catalog, and in the user's data folder for a PostgreSQL one.

    Raises:
        As ``registry.catalog.open_catalog``.
    """
    chosen = catalog_url(url)
    make_catalog_folder(chosen)
    return Catalog(open_catalog(chosen), data_dir=data_folder(chosen, data_dir))


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedVersion:
    """What became of verifying one version: a report, or the error that prevented one."""

    reference: Reference
    state: VersionState
    report: VerifyReport | None = None
    error: RegistryError | None = None

    @property
    def is_sound(self) -> bool:
        """Whether every shard is as it was published."""
        return self.report is not None and not self.report.faults


class Catalog(Publishing):
    """A catalog and the folder where its datasets' shards lie. Use it as a context manager, or ``close()`` it."""

    @property
    def url(self) -> str:
        """The database's URL, without its password."""
        return self.backend.url

    def dataset(self, reference: str | Reference, *, at: Moment | None = None) -> Dataset:
        """The one published version that ``reference`` names; a yanked one comes with a YankedVersionWarning.

        Args:
            reference: ``name[/config][:request | @alias]``.
            at: the moment at which it is looked up, worked out from the event log: a day means its end, in UTC. None
                is now.

        Raises:
            ReferenceSyntaxError: the reference does not parse.
            NotFoundError: no such dataset, config, version or alias; the nearest are named.
            VersionWithdrawnError: what answers is dropped, or yanked and not named; the hint names what can be read.
            LockedError: look-ups are locked, and the reference does not name one version exactly, or is not pinned.
            UsageError: ``at`` is not a moment.
        """
        found = self.look_up(reference, at=at)
        if found.yank_note is not None:
            warnings.warn(found.yank_note, YankedVersionWarning, stacklevel=2)
        return found

    def look_up(self, reference: str | Reference, *, at: Moment | None = None) -> Dataset:
        """As ``dataset``, without a warning: what is to be known of the version is in its ``notes``."""
        wanted = parse_reference(reference)
        lock = current_lock()
        if lock is not None and lock.pins is not None:
            from registry.api.pinned import find_pinned

            return find_pinned(lock.pins, wanted, at=at)
        moment = read_moment(at)
        if lock is not None and wanted.exact is None:
            raise refuse_moving(wanted, self._given(wanted, moment), moment)
        found = self._find(wanted, moment)
        if lock is not None and found.config != wanted.config:
            raise refuse_moving(wanted, found.reference, moment)
        return found

    def datasets(self) -> tuple[DatasetSummary, ...]:
        """Every dataset and config, by name."""
        return self.backend.datasets()

    def search(self, text: str, *, limit: int = 20) -> tuple[SearchHit, ...]:
        """The datasets that ``text`` is about, the best first; matches and errors as ``CatalogBackend.search``.

        ``dig`` finds digits, ``images`` finds open_images_v4. Matches in a name come first, then those in tags and
        features, in descriptions, and in licence, homepage or citation.
        """
        return self.backend.search(text, limit=limit)

    def explain_no_hits(self, text: str) -> str:
        """Why ``search(text)`` found nothing: the words that nothing has, and what may have been meant."""
        return self.backend.explain_no_hits(text)

    def versions(self, name: str, config: str | None = None, *, at: Moment | None = None) -> tuple[VersionSummary, ...]:
        """Every published version of a dataset, the highest first; ``at`` a moment, as they stood then."""
        return self.backend.versions(name, config, at=read_moment(at))

    def standing(self, name: str, config: str | None = None, *, at: Moment | None = None) -> Standing:
        """The states, canonical version and aliases of a config now, or ``at`` a moment; None is the default config."""
        return self.backend.standing(name, config, at=read_moment(at))

    @cached_property
    def lifecycle(self) -> Lifecycle:
        """Promote, deprecate, yank and drop versions; choose the default config."""
        return Lifecycle(self.backend, data=self.data_store, store_of=self.version_store)

    @cached_property
    def pins(self) -> CatalogPins:
        """Pin files, seen from here: ``audit``, ``preview_update`` and ``update``, ``from_citation``."""
        from registry.api.pinning import CatalogPins

        return CatalogPins(self)

    def published_digest(self, exactly: Reference) -> str | None:
        """The content digest that was ever published under an exact reference, 64 hex digits, or None."""
        version = exactly.exact
        return None if version is None else self.backend.published_digest(exactly.name, exactly.config, version)

    @property
    def aliases(self) -> Aliases:
        """Names for versions, which may be moved: ``set``, ``remove``, ``list``, ``history``."""
        return Aliases(self.backend.aliases, actor=log_actor())

    @cached_property
    def reservations(self) -> Reservations:
        """Who is putting files into object stores: ``list``, ``release``, ``clear``."""
        return Reservations(self.backend, data=self.data_store)

    @property
    def experiments(self) -> Experiments:
        """The flags that versions may override: ``add``, ``list``, ``set_default``, ``retire``."""
        return Experiments(self.backend.experiments, actor=log_actor())

    def protection(self, name: str, config: str | None = None, *, at: Moment | None = None) -> str | None:
        """What keeps publications from moving the canonical version: ``name/config``, ``name``, ``""``: the catalog.

        None where nothing does; ``at`` a moment, what did then.
        """
        return self.backend.configs.protection(name, config, at=read_moment(at))

    def diff(
        self, old: str | Reference, new: str | Reference, *, show: int = 5, advance: Advance | None = None
    ) -> VersionDiff:
        """Everything that differs between two published versions, down to the record, and how much it weighs.

        The versions may be of different datasets. Records are compared by the features that both have; their files are
        read where the fingerprints differ, and only there.

        Args:
            old: the version to start from.
            new: the version to compare with it.
            show: how many differing records of each split are described.
            advance: called with the number of records read since the last call.
        """
        from registry.publishing import Prover, diff_versions

        prover = Prover(catalog=self.backend, data=self.data_store(), indexes=open_indexes(), advance=advance)
        return diff_versions(prover, self.look_up(old).facts, self.look_up(new).facts, show=show)

    def log(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        dataset: str | None = None,
        actions: Collection[str] | None = None,
        limit: int | None = None,
    ) -> Iterator[Event]:
        """Who did what, and when: the events of the catalog, the oldest first, in bounded memory.

        Args:
            since: not before this moment.
            until: not after this moment.
            dataset: of this dataset; a name without a config means all its configs.
            actions: of these kinds, e.g. ``["publish", "yank"]``.
            limit: at most this many events, the newest.

        Raises:
            As ``LogCalls.page``.
        """
        wanted = EventFilter(
            since=since, until=until, dataset=dataset, actions=None if actions is None else tuple(actions)
        )
        return stream_events(self.backend.log, wanted, limit=limit)

    def verify_log(self, *, anchor: str | None = None, advance: Advance | None = None) -> LogReport:
        """Prove that nothing was changed past the registry: neither the event log, nor the rows that it speaks of.

        Every event is sealed with the hash of the one before it; replayed, they have to give what the tables hold, down
        to the sha256 that is recorded of every shard. No file is opened: ``verify_all`` compares those.
        ``require_sound()`` of the report raises where something is wrong.

        Args:
            anchor: the ``head`` of an earlier report: the log has to hold it still.
            advance: called with the number of rows looked at since the last call, of ``num_logged_rows()``.

        Raises:
            UsageError: an anchor that is not a hash, or 64 zeros, the head of an empty log, where there are events.
        """
        if anchor is not None and not re.fullmatch("[0-9a-f]{64}", anchor):
            raise UsageError(f"{anchor!r:.80} is no head of a log", hint="It has 64 hex digits: registry log verify.")
        return self.backend.log.verify(anchor=anchor, advance=advance)

    def verify_all(self, *, deep: bool = False, advance: Advance | None = None) -> Iterator[VerifiedVersion]:
        """Compare the files of every version that is not dropped with the catalog, one after the other.

        A version that fails never stops the next. With ``verify_log`` it proves that what was published is there still.

            for one in catalog.verify_all():
                print(one.reference, one.is_sound)

        Args:
            deep: decode every record, too.
            advance: called with the number of records done since the last call.

        Raises:
            CatalogError: the catalog itself does not answer; anything else is the ``error`` of one version.
        """
        for dataset in self.datasets():
            for one in self.versions(dataset.name, dataset.config):
                if one.state is VersionState.DROPPED:
                    continue
                reference = Reference.exactly(one.name, one.config, one.version)
                try:
                    report = self.look_up(reference).verify(deep=deep, advance=advance)
                except CatalogError:
                    raise
                except RegistryError as error:
                    yield VerifiedVersion(reference=reference, state=one.state, error=error)
                else:
                    yield VerifiedVersion(reference=reference, state=one.state, report=report)

    def num_logged_rows(self) -> int:
        """How many rows ``verify_log`` looks at."""
        return self.backend.log.num_rows()

    def close(self) -> None:
        """Close the database connections."""
        self.backend.close()

    def __enter__(self) -> Catalog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Catalog {self.url}, data in {self.data_dir}>"

    def _find(self, wanted: Reference, moment: datetime | None) -> Dataset:
        try:
            if moment is None:
                facts = self.backend.find(wanted)
                return Dataset(facts, FoundNow(facts, self, wanted))
            past = self.backend.find_at(wanted, moment)
        except DatasetNotFoundError as error:
            raise _offer_builder(error, wanted.name) from error
        return Dataset(past.version, FoundAt(past, self, moment))

    def _given(self, wanted: Reference, moment: datetime | None) -> Reference | None:
        """What a reference gives that may not be looked up, for a hint."""
        try:
            return self._find(wanted, moment).reference
        except NotFoundError:
            return None


def _offer_builder(error: DatasetNotFoundError, name: str) -> DatasetNotFoundError:
    """``error`` with the hint to build the dataset, where an installed builder can."""
    from registry.building import list_builders

    if name not in list_builders():
        return error
    return DatasetNotFoundError(error.message, hint=f"Build it with: registry build {name}", details=error.details)
