"""What can be done with a catalog and the folder of its data? Look up, list, compare; ``intake`` brings in."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

from registry.api.aliases import Aliases
from registry.api.arguments import Moment, current_actor, parse_reference, read_moment
from registry.api.dataset import Dataset
from registry.api.dataset_at import PastDataset
from registry.api.experiments import Experiments
from registry.api.intake import Intake
from registry.api.lifecycle import Lifecycle
from registry.api.locations import catalog_url, data_folder, index_folder, make_catalog_folder
from registry.api.lock import current_lock, may_be_exact, refuse_moving
from registry.api.reservations import Reservations
from registry.catalog import DatasetSummary, LogReport, SearchHit, SqlCatalog, VersionSummary, open_catalog
from registry.errors import DatasetNotFoundError, NotFoundError, UsageError, YankedVersionWarning
from registry.model import (
    DatasetVersion,
    Event,
    Reference,
    Shard,
    Standing,
    version_folder,
)

if TYPE_CHECKING:  # numpy and protobuf are loaded when something is built or published
    from registry.api.pinning import CatalogPins
    from registry.api.verifying import VerifiedVersion
    from registry.features import FeaturesDict
    from registry.publishing import Advance, VersionDiff
    from registry.storage import Store
    from registry.tfrecord import IndexFolder


def connect(url: str | os.PathLike[str] | None = None, *, data_dir: str | os.PathLike[str] | None = None) -> Catalog:
    """Open a catalog.

    Args:
        url: a database URL (``sqlite:///catalog.db``, ``postgresql://host/name``) or the path of an SQLite file, which
            is created where it does not exist. Default: ``$REGISTRY_CATALOG``, else a file in the user's data folder.
        data_dir: the folder or URL below which shards lie. Default: ``$REGISTRY_DATA_DIR``, else the folder
            ``datasets`` beside an SQLite catalog, and in the user's data folder for a PostgreSQL one.

    Raises:
        NotACatalogError, SchemaBehindError, SchemaAheadError, CatalogUnavailableError: the database cannot be used.
        MissingExtraError: a PostgreSQL URL without the extra ``pg``.
    """
    chosen = catalog_url(url)
    make_catalog_folder(chosen)
    return Catalog(open_catalog(chosen), data_dir=data_folder(chosen, data_dir))


class Catalog(Intake):
    """A catalog and the folder where its datasets' shards lie. Use it as a context manager, or ``close()`` it."""

    def __init__(self, catalog: SqlCatalog, *, data_dir: str) -> None:
        self._catalog = catalog
        self.data_dir = data_dir

    @property
    def url(self) -> str:
        """The database's URL, without its password."""
        return self._catalog.url

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
            UsageError: ``at`` is no moment.
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
        exactly = lock is not None
        if exactly and not may_be_exact(wanted):
            raise refuse_moving(wanted, self._given(wanted, moment), moment)
        found = self._find(wanted, moment)
        if exactly and found.config != wanted.config:
            raise refuse_moving(wanted, found.reference, moment)
        return found

    def datasets(self) -> tuple[DatasetSummary, ...]:
        """Every dataset and config, by name."""
        return self._catalog.datasets()

    def search(self, text: str, *, limit: int = 20) -> tuple[SearchHit, ...]:
        """The datasets that ``text`` is about: the best ``limit`` of which every word matches, the best first.

        A word matches what begins with it, whatever its case and accents: ``dig`` finds digits, ``images`` finds
        open_images_v4. A match in a name stands above one in a tag or feature, that above one in a description, and
        that above one in licence, homepage or citation. ``text`` has no syntax.

        Raises:
            UsageError: no letter or digit in ``text``, or more than a person types; a limit below 1.
        """
        return self._catalog.search(text, limit=limit)

    def explain_no_hits(self, text: str) -> str:
        """Why ``search(text)`` found nothing: the words that nothing has, and what may have been meant."""
        return self._catalog.explain_no_hits(text)

    def versions(self, name: str, config: str | None = None, *, at: Moment | None = None) -> tuple[VersionSummary, ...]:
        """Every published version of a dataset, the highest first; ``at`` a moment, as they stood then."""
        return self._catalog.versions(name, config, at=read_moment(at))

    def standing(self, name: str, config: str | None = None, *, at: Moment | None = None) -> Standing:
        """How the versions of a dataset stand now, or stood ``at`` a moment: states, canonical version, aliases.

        Config None is the default one.
        """
        return self._catalog.standing(name, config, at=read_moment(at))

    @cached_property
    def lifecycle(self) -> Lifecycle:
        """Promote, deprecate, yank and drop versions; choose the default config."""
        return Lifecycle(self._catalog, data=self._store, store_of=self.version_store)

    @cached_property
    def pins(self) -> CatalogPins:
        """Pin files, seen from here: ``audit``, ``preview_update`` and ``update``, ``from_citation``."""
        from registry.api.pinning import CatalogPins

        return CatalogPins(self)

    def published_digest(self, exactly: Reference) -> str | None:
        """The content digest that was ever published under an exact reference, 64 hex digits, or None."""
        version = None if exactly.request is None else exactly.request.exact
        return None if version is None else self._catalog.published_digest(exactly.name, exactly.config, version)

    @property
    def aliases(self) -> Aliases:
        """Names for versions, which may be moved: ``set``, ``remove``, ``list``, ``history``."""
        return Aliases(self._catalog, actor=current_actor())

    @cached_property
    def reservations(self) -> Reservations:
        """Who is putting files into object stores: ``list``, ``release``, ``clear``."""
        return Reservations(self._catalog, data=self._store)

    @property
    def experiments(self) -> Experiments:
        """The flags that versions may override: ``add``, ``list``, ``set_default``, ``retire``."""
        return Experiments(self._catalog, actor=current_actor())

    def implemented(self, version: DatasetVersion) -> Mapping[str, bool]:
        """Every experiment, as it stands for a published version."""
        return self._catalog.implemented(version)

    def protection(self, name: str, config: str | None = None, *, at: Moment | None = None) -> str | None:
        """What keeps publications from moving the canonical version: ``name/config``, ``name``, ``""``: the catalog.

        None where nothing does; ``at`` a moment, what did then.
        """
        return self._catalog.protection(name, config, at=read_moment(at))

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

        prover = Prover(catalog=self._catalog, data=self._store(), indexes=self.indexes(), advance=advance)
        return diff_versions(prover, self.look_up(old).details, self.look_up(new).details, show=show)

    def shards(self, version: DatasetVersion, split: str) -> tuple[Shard, ...]:
        """The stored files of a split: position, size and sha256 of each."""
        return self._catalog.shards(version, split)

    def describe_shards(self, version: DatasetVersion, digests: Collection[str]) -> dict[str, str]:
        """The published shards of the dataset of ``version`` that have some sha256, in words, by their sha256."""
        found = self._catalog.find_shards(version.name, version.config, digests) if digests else {}
        return {
            digest: f"shard {index} of split {split}"
            + ("" if number == version.version else f" of {Reference.exactly(version.name, version.config, number)}")
            for digest, (number, split, index) in found.items()
        }

    def version_store(self, version: DatasetVersion) -> Store:
        """The folder that holds the shards of ``version``.

        Where a version was catalogued in place, on this machine, and that place is gone, a copy in ``data_dir`` does.
        """
        from registry.storage import open_location

        found = open_location(self._store(), version.location)
        if version.location.startswith("/") and found.local_root is not None and not found.local_root.is_dir():
            copy = self._store().child(version_folder(version.name, version.config, version.version))
            return copy if copy.exists("dataset_info.json") else found
        return found

    def proved_store(self, version: DatasetVersion, splits: Collection[str], *, features: FeaturesDict) -> Store:
        """``version_store`` for readers: each shard of ``splits`` is proved to be the published one when opened."""
        from registry.shards import ProvedStore

        return ProvedStore(
            self.version_store(version),
            self._catalog.promises(version, splits),
            file_format=version.file_format,
            features=features,
            indexes=self.indexes(),
            hint=f"This is not the file that was published. `registry verify {version.reference}` names every such "
            f"shard. Fetch them again, or build them again: registry build {version.reference} --rebuild",
        )

    def indexes(self) -> IndexFolder:
        """Where readers keep what they found out of files for the next time: places of records, and stamps."""
        from registry.tfrecord import IndexFolder

        return IndexFolder(index_folder())

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
            limit: the newest so many.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: no such dataset.
            UsageError: a time without a zone, ``since`` later than ``until``, a version behind the dataset's name, or a
                limit below 1.
        """
        return self._catalog.events(since=since, until=until, dataset=dataset, actions=actions, limit=limit)

    def verify_log(self, *, anchor: str | None = None, advance: Advance | None = None) -> LogReport:
        """Prove that nothing was changed past the registry: neither the event log, nor the rows that it speaks of.

        Every event is sealed with the hash of the one before it; replayed, they have to give what the tables hold, down
        to the sha256 that is recorded of every shard. No file is opened: ``verify_all`` compares those.
        ``require_sound()`` of the report raises where something is wrong.

        Args:
            anchor: the ``head`` of an earlier report: the log has to hold it still.
            advance: called with the number of rows looked at since the last call, of ``num_logged_rows()``.

        Raises:
            UsageError: an anchor that is no hash, or 64 zeros, the head of an empty log, where there are events.
        """
        if anchor is not None and not re.fullmatch("[0-9a-f]{64}", anchor):
            raise UsageError(f"{anchor!r:.80} is no head of a log", hint="It has 64 hex digits: registry log verify.")
        return self._catalog.verify_log(anchor=anchor, advance=advance)

    def verify_all(self, *, deep: bool = False, advance: Advance | None = None) -> Iterator[VerifiedVersion]:
        """Compare the files of every version that is not dropped with the catalog, one after the other.

        A version that fails never stops the next. With ``verify_log`` it proves that what was published is there still.

            for one in catalog.verify_all():
                print(one.reference, one.is_sound)

        Args:
            deep: decode every record, too.
            advance: called with the number of records done since the last call.
        """
        from registry.api.verifying import verify_all

        return verify_all(self, deep=deep, advance=advance)

    def num_logged_rows(self) -> int:
        """How many rows ``verify_log`` looks at."""
        return self._catalog.num_logged_rows()

    def close(self) -> None:
        """Close the database connections."""
        self._catalog.close()

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
                return Dataset(self._catalog.find(wanted), catalog=self, wanted=wanted)
            past = self._catalog.find_at(wanted, moment)
        except DatasetNotFoundError as error:
            raise _offer_builder(error, wanted.name) from error
        return PastDataset(past, catalog=self, moment=moment)

    def _given(self, wanted: Reference, moment: datetime | None) -> Reference | None:
        """What a reference gives that may not be looked up, for a hint."""
        try:
            return self._find(wanted, moment).reference
        except NotFoundError:
            return None

    def _store(self) -> Store:
        from registry.storage import open_store

        return open_store(self.data_dir)


def _offer_builder(error: DatasetNotFoundError, name: str) -> DatasetNotFoundError:
    """The error of a dataset that is not in the catalog, with the hint to build it where an installed builder can."""
    from registry.building import list_builders

    if name not in list_builders():
        return error
    return DatasetNotFoundError(error.message, hint=f"Build it with: registry build {name}", details=error.details)
