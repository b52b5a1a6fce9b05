"""``connect`` and ``Catalog``: look up, list, search and compare datasets, and read the event log.

A ``Catalog`` passes values to the catalog protocol (``registry.catalog``) and returns ``Dataset`` objects.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from threading import Event as ThreadEvent
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from registry import model
from registry.api.adding import Adding
from registry.api.arguments import (
    exact_version,
    make_uses,
    read_dataset,
    read_duration,
    read_exact_reference,
    read_moment,
    read_reference,
)
from registry.api.locations import (
    ClientDataDirectory,
    catalog_url,
    index_folder,
    known_versions_folder,
    log_actor,
    make_catalog_folder,
    name_origin,
    open_cache,
    open_data,
    open_indexes,
    site_options,
)
from registry.api.lock import current_lock, refuse_moving
from registry.argument_types import takes_fields, typed_arguments, typed_methods
from registry.catalog import (
    DatasetFilter,
    is_site,
    masked_url,
    open_catalog,
    sqlite_path,
)
from registry.catalog.absent import absent_catalog, publishes
from registry.engines import announces
from registry.errors import (
    CatalogError,
    CatalogNotFoundError,
    CatalogUnavailableError,
    DatasetNotFoundError,
    NotFoundError,
    RegistryError,
    SchemaBehindError,
    UsageError,
    YankedVersionWarning,
    spell,
    suggest,
    warn,
)
from registry.masking import MASK
from registry.model import Description, DescriptionArguments, Reference, VersionState, parse_duration, whole_number

if TYPE_CHECKING:  # numpy and protobuf are loaded when something is built or published
    from registry.api.arguments import DatasetLike, Moment
    from registry.api.backups import Backup
    from registry.api.dataset import Dataset
    from registry.api.lifecycle import Aliases, Experiments, Lifecycle, Reservations, Uses
    from registry.api.mirrors import Mirrors
    from registry.api.pinning import CatalogPins
    from registry.api.provenance import CatalogSource
    from registry.api.reports import CatalogReport, CopiedVersion, CopyReport, GarbageReport, VerifiedVersion
    from registry.api.team import Tokens, Webhooks
    from registry.catalog import (
        CatalogBackend,
        ClockCorrection,
        DataDirectoryChange,
        DatasetSummary,
        LogReport,
        MetadataChange,
        Renaming,
        SearchHit,
        VersionSummary,
    )
    from registry.model import DatasetVersion, Event, Progress, ProgressCallback, Standing, Version
    from registry.publishing import VersionDiff
    from registry.publishing.garbage import Leftover
    from registry.publishing.removal import RemovalReport, Remover
    from registry.publishing.usage import Usage


SORTS: Final = {
    "name": "dataset",
    "date": "published_at",
    "size": "num_bytes",
    "examples": "num_examples",
    "versions": "num_versions",
}
"""The sort orders of a list of datasets, and the field of a summary that each compares."""


@typed_arguments
def connect(
    url: str | os.PathLike[str] | None = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    create: bool | None = None,
    key: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
) -> Catalog:
    """Open a catalog.

    An SQLite file that does not exist is created by the first publication. Until then, every other call raises
    CatalogNotFoundError, whose hint names the file with the most similar name in the folder.

    A site, which ``registry site`` wrote and any web server serves, is opened read-only, with the data directory that
    it names. Nothing is requested before the first look-up. The first look-up needs at most two requests, later ones
    need one, and a look-up of an exact version in the cache needs none. If the server does not answer, the cached
    catalog is used, with a CatalogUnavailableWarning. The head of the site's event log is stored in the user's data
    folder, and a site whose log does not continue from it is refused. The first look-up therefore trusts the server,
    unless ``key`` requires a signature.

    Args:
        url: a database URL (``sqlite:///catalog.db``, ``postgresql://host/name``), the path of an SQLite file, or
            ``https://host/path/`` of a service or a site. A user and password in it are sent to that server only.
            Default: ``$REGISTRY_CATALOG``, else a file in the user's data folder.
        data_dir: path or URL of the data directory, which contains the shards. Default: ``$REGISTRY_DATA_DIR``, else
            the directory that the catalog records, else the folder ``datasets`` next to an SQLite catalog. Versions can
            be read from another directory, such as a copy, but are published only into the recorded one.
        create: True creates the SQLite file and its folder at once if they do not exist. False raises at once if the
            file does not exist.
        key: trusted public keys, as paths or texts: Ed25519 keys as written by ``registry pin keygen`` or ssh-keygen.
            One of them must have signed the site. Default: ``$REGISTRY_TRUSTED_KEYS``. Without keys, sites need no
            signature.

    Raises:
        UsageError: ``url`` is empty or malformed, ``data_dir`` contains a password, or ``key`` is given for a catalog
            that is not a site.
        CatalogNotFoundError: the SQLite file does not exist, and ``create`` is False.
        MissingExtraError: the driver of the database is not installed, or urllib3 for a site.
        StorageError: the folder of the SQLite file cannot be created.
        NotACatalogError: the database or file is not a catalog.
        SchemaBehindError, SchemaAheadError: the catalog was created by an older or a newer release.
        CatalogUnavailableError: the database does not answer. If this machine remembers versions of the catalog, the
            error is raised later, by every call except the look-up of such a version.

        Raises, for a site, at the first call that sends a request:
        CatalogNotFoundError: the server has no ``site.json`` there.
        CatalogUnavailableError: the server does not answer, and the cache has no catalog of the site.
        CatalogRefusedError: the server requires a login.
        SiteFormatError: ``site.json`` is malformed, or is not the index of a site.
        SignatureError: no trusted key signed the site.
        SiteMismatchError: the catalog differs from the description in the index, or contains what a site must not
            contain.
        LogTamperedError: the event log is broken.
        SiteHistoryError: the event log was rolled back, or does not continue the log that was read before.
        SchemaAheadError: a newer release wrote the site.
        CatalogPermissionError: the call would write.

    Examples:
        >>> catalog = registry.connect()
        >>> [one.dataset for one in catalog.datasets()]
        ['digits']
    """
    chosen = catalog_url(url)
    keys = () if key is None else (key,) if isinstance(key, str | os.PathLike) else tuple(key)
    if is_site(chosen):
        with name_origin(url):
            site = open_catalog(chosen, site=site_options(keys))
        return Catalog(site, directory=ClientDataDirectory(site, data_dir))
    if keys:
        raise UsageError(
            f"a key checks the signature of a site, and {masked_url(chosen)} is not one",
            hint="Leave it out, or name a site: https://host/path/",
        )
    open_file = partial(_open_file, chosen, url)
    try:
        backend = open_file(create=bool(create))
    except (CatalogNotFoundError, SchemaBehindError) as error:
        is_empty = sqlite_path(chosen) is not None and error.details.get("revision") is None
        if create is not None or not is_empty:
            raise
        backend = absent_catalog(chosen, open_file)
    except CatalogUnavailableError as error:
        if sqlite_path(chosen) is not None:
            raise
        backend = remembering(masked_url(chosen), error)
    else:
        if backend.file is None:
            backend = remembering(backend.url, backend)
    return Catalog(backend, directory=ClientDataDirectory(backend, data_dir))


def _open_file(chosen: str, url: str | os.PathLike[str] | None, *, create: bool) -> CatalogBackend:
    """Open the catalog at ``chosen``, which is ``url`` or the default."""
    with name_origin(url):
        if create:
            make_catalog_folder(chosen)
        return open_catalog(chosen, create=create)


def remembering(url: str, backend: CatalogBackend | CatalogUnavailableError) -> CatalogBackend:
    """A catalog on another machine, with the facts that this machine remembers of it; the error if it has none."""
    from registry.catalog.remembering import RememberingCatalog

    result = RememberingCatalog(url, backend, known_versions_folder)
    if isinstance(backend, CatalogUnavailableError) and (result.known is None or result.known.is_empty()):
        raise backend
    return cast("CatalogBackend", result)


@typed_methods
class Catalog(Adding):
    """A catalog, and the data directory that holds the shards of its datasets.

    Use it as a context manager, or call ``close()``. Threads may share it.

    Every method that queries the database raises ``CatalogUnavailableError`` if the database is locked or does not
    answer, and ``CatalogError`` if its file is damaged, or was deleted or replaced while it was open.

    >>> with registry.connect() as catalog:
    ...     digits = catalog.dataset("digits")
    ...     print(digits.reference, digits.splits["train"].num_examples)
    digits:1.0.0 1797

    Attributes:
        backend: the catalog protocol. ``registry.catalog`` describes it; it is internal.
        data_dir: path or URL of the data directory that this client uses.
    """

    @property
    def url(self) -> str:
        """The database's URL, without its password."""
        return self.backend.url

    def __reduce__(self) -> tuple[Any, ...]:
        # For spawned workers and deepcopy: the copy opens the catalog again. Passwords are never pickled.
        file = self.backend.file
        url = self.url if file is None else str(file.absolute())
        if MASK in url and masked_url(catalog_url()) != url:
            raise UsageError(
                f"the catalog {url} cannot be pickled, because its URL contains a password",
                hint="Set REGISTRY_CATALOG to this URL, which the other process reads as well; or move the password "
                "from the URL to ~/.pgpass or PGPASSWORD. A reader (dataset.read) can always be pickled.",
            )
        data_dir = self.data_dir if "://" in self.data_dir else os.path.abspath(self.data_dir)  # noqa: PTH100 (a text)
        return _open_again, (url, data_dir, cast("Any", self.backend).options.keys if is_site(url) else ())

    def dataset(self, reference: DatasetLike, *, at: Moment | None = None) -> Dataset:
        """Look up the published version that ``reference`` names.

        A yanked version is returned only for its exact number or an alias, with a YankedVersionWarning.

        >>> str(catalog.dataset("digits:1.*").reference)
        'digits:1.0.0'

        Args:
            reference: ``name[/config][:request | @alias]``, a ``Reference``, or a ``Dataset`` or ``DatasetVersion``,
                which means exactly that version.
            at: look the reference up as of this moment, using the event log. A day means its end, in UTC. None means
                now.

        Raises:
            ReferenceSyntaxError: the reference does not parse.
            NotFoundError: the dataset, config, version or alias does not exist; the hint suggests the nearest name.
            VersionWithdrawnError: the version is dropped, or is yanked and not named exactly; the hint names versions
                that can be read.
            LockedError: look-ups are locked, and the reference is not exact, or is not pinned.
            UsageError: ``reference`` or ``at`` has a wrong type.
        """
        dataset = self.look_up(reference, at=at)
        if dataset.yank_note is not None:
            warn(dataset.yank_note, YankedVersionWarning)
        return dataset

    def look_up(self, reference: DatasetLike, *, at: Moment | None = None) -> Dataset:
        """Look up a version without a warning: ``Dataset.notes`` says if it is yanked, deprecated or experimental.

        Args:
            reference: see ``dataset``.
            at: see ``dataset``.

        Raises:
            ReferenceSyntaxError, NotFoundError, VersionWithdrawnError, LockedError, UsageError: see ``dataset``.
        """
        wanted = read_reference(reference)
        lock = current_lock()
        if lock is not None and lock.pins is not None:
            from registry.api.pinned import find_pinned

            return find_pinned(lock.pins, wanted, at=at)
        moment = read_moment(at)
        if lock is not None and wanted.exact is None:
            raise refuse_moving(wanted, self._given(wanted, moment), moment)
        result = self._find(wanted, moment)
        if lock is not None and result.config != wanted.config:
            raise refuse_moving(wanted, result.reference, moment)
        return result

    @takes_fields(Description, DescriptionArguments)
    def describe(
        self,
        reference: DatasetLike,
        *,
        remove_tags: Sequence[str] = (),
        dry_run: bool = False,
        **description: Unpack[DescriptionArguments],
    ) -> MetadataChange:
        """Correct the metadata of a published version. Its records, its number and its files do not change.

        The event log records who changed what. Pins keep the metadata that they recorded, and the next ``add`` inherits
        the corrected metadata.

        >>> change = catalog.describe("digits:1.0.0", license="cc-by-4.0", tags=["images"], dry_run=True)
        >>> change.fields, change.after.license
        (('license', 'config_tags', 'described'), 'CC-BY-4.0')

        Args:
            reference: one version, exact or an alias.
            description: text for people.
            license: an SPDX licence expression, such as ``CC-BY-4.0``. Other text causes a warning.
            citation: usually BibTeX.
            homepage: a URL.
            tags: tags to add.
            supervised: the names of the input and target features, such as ``["image", "label"]``.
            remove_tags: tags to remove. A tag that the version does not have causes a warning.
            dry_run: compute the change, and write nothing.

        Returns:
            The metadata before and after. An argument of None changes nothing, and an empty argument removes the value.
            If nothing changed, ``is_change`` is False, and nothing was logged.

        Raises:
            NotFoundError: the dataset, config, version or alias does not exist.
            UsageError: ``reference`` does not name one version, no change is requested, a feature does not exist, or a
                text is too long.
        """
        changes = Description(remove_tags=remove_tags, **description)
        if changes.is_empty:
            raise UsageError("describe needs at least one change", hint=f"For example: {spell('license', 'MIT')}")
        changes.warn_of_license()
        wanted = read_reference(reference)
        change = self.backend.lifecycle.describe(wanted, changes, actor=log_actor(), dry_run=dry_run)
        tags = change.before.config_tags
        for tag in (tag for tag in changes.remove_tags if tag not in tags):
            warn(
                f"{change.reference} has no tag {tag!r:.80}. {suggest(tag, tags, have='It has:') or 'It has no tags.'}"
            )
        return change

    def rename(self, dataset: DatasetLike, name: str, *, dry_run: bool = False) -> Renaming:
        """Give a dataset another name. References and pins with a former name continue to work, with a note.

        Versions, numbers and aliases do not change, and files are not moved. New versions are published only under the
        new name. No other dataset can take a former name, but the dataset can be renamed back.

        >>> catalog.rename("digits", "numerals", dry_run=True).names
        ('digits', 'numerals')

        Args:
            dataset: its name, or a former one.
            name: the new name, in the folded form, such as ``open_images_v4``.
            dry_run: compute the change, and write nothing.

        Returns:
            The names before and after. If the dataset already has that name, ``is_change`` is False, and nothing was
            logged.

        Raises:
            DatasetNotFoundError: the dataset does not exist.
            DatasetRenamedError: another dataset has or had the new name.
            ReservedError: a publisher is sending files of the dataset to an object store.
            ReferenceSyntaxError, UsageError: the new name is not a valid dataset name, or ``dataset`` names a config or
                a version.
        """
        wanted = read_dataset(dataset)
        if wanted.config is not None:
            raise UsageError(f"{wanted} names a config", hint=f"A dataset is renamed as a whole: name {wanted.name}.")
        return self.backend.rename(wanted.name, name, actor=log_actor(), dry_run=dry_run)

    def datasets(
        self,
        *,
        tags: Sequence[str] = (),
        like: str | None = None,
        owner: str | None = None,
        state: str | None = None,
        sort: str = "name",
    ) -> tuple[DatasetSummary, ...]:
        """Every dataset and config that meets all conditions. The conditions apply to the version that a list shows.

        >>> [(one.dataset, str(one.canonical)) for one in catalog.datasets(like="dig*")]
        [('digits', '1.0.0')]

        Args:
            tags: only those with all of these tags.
            like: only those whose name, ``name`` or ``name/config``, matches this glob.
            owner: only those whose version this person or service published.
            state: only those whose version is ``supported``, ``deprecated``, ``yanked`` or ``dropped``.
            sort: sort by ``name``; or by ``date``, ``size``, ``examples`` or ``versions``, newest or largest first.

        Raises:
            UsageError: the state or order is unknown.
        """
        if sort not in SORTS or state not in (None, *VersionState):
            name, value, names = ("sort", sort, SORTS) if sort not in SORTS else ("state", state, VersionState)
            raise UsageError(f"unknown {name} {value!r:.60}", hint=f"Write {' or '.join(names)}.")
        states = None if state is None else VersionState(state)
        found = self.backend.datasets(DatasetFilter(tags=tags, like=like, owner=owner, state=states))
        return found if sort == "name" else tuple(sorted(found, key=attrgetter(SORTS[sort]), reverse=True))

    def search(self, text: str, *, limit: int = 20) -> tuple[SearchHit, ...]:
        """Search the datasets for words, best match first.

        Every word must match the beginning of a word in the name, tags, features, labels, description, licence,
        homepage or citation; case and accents do not matter. ``dig`` finds digits, ``images`` finds open_images_v4.
        Matches in a name come first, then tags and features, then descriptions, then the rest.

        >>> [hit.dataset for hit in catalog.search("handwritten digits")]
        ['digits']

        Args:
            text: words. There is no query syntax.
            limit: return at most this many datasets.

        Raises:
            UsageError: ``text`` has no letter or digit or is too long, or ``limit`` is below 1.
        """
        return self.backend.search(text, limit=limit)

    def versions(
        self,
        reference: DatasetLike,
        *,
        at: Moment | None = None,
        below: Version | None = None,
        limit: int | None = None,
    ) -> tuple[VersionSummary, ...]:
        """Every published version of a dataset, highest first, including dropped ones.

        >>> [str(one.version) for one in catalog.versions("digits")]
        ['1.0.0']

        Args:
            reference: the dataset, ``name[/config]``, or a value that names it, see ``dataset``. A version in it is
                ignored. Without a config it means the default config.
            at: list the versions that were published at this moment, in their state at that time. None means now.
            below: only versions with a lower number.
            limit: at most this many versions, the highest ones.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: the dataset does not exist, or did not at that moment.
            UsageError: ``reference`` or ``at`` has a wrong type.
        """
        wanted = read_reference(reference)
        return self.backend.versions(wanted.name, wanted.config, at=read_moment(at), below=below, limit=limit)

    def standing(self, reference: DatasetLike, *, at: Moment | None = None) -> Standing:
        """The states of all versions of a dataset, its canonical version and its aliases.

        Args:
            reference: the dataset, see ``versions``.
            at: as of this moment. None means now.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: the dataset does not exist, or did not at that moment.
            UsageError: ``reference`` or ``at`` has a wrong type.
        """
        wanted = read_reference(reference)
        return self.backend.standing(wanted.name, wanted.config, at=read_moment(at))

    @cached_property
    def lifecycle(self) -> Lifecycle:
        """Promote, deprecate, yank and drop versions; protect datasets; choose the default config."""
        from registry.api.lifecycle import Lifecycle

        return Lifecycle(self.backend, data_dir=self.data_dir)

    @cached_property
    def pins(self) -> CatalogPins:
        """Check pin files against this catalog, and update them: ``audit``, ``preview_update``, ``update``."""
        from registry.api.pinning import CatalogPins

        return CatalogPins(self.backend, look_up=self.look_up, diff=self.diff)

    def published_digest(self, reference: DatasetLike) -> str | None:
        """The content digest of an exact version, 64 hex digits, or None if the number is free.

        Dropped versions keep their digest: a number is never used twice.

        Args:
            reference: exactly one version, see ``dataset``.

        Raises:
            UsageError: ``reference`` has a wrong type or does not name one version by its number.
        """
        exact_reference = read_exact_reference(reference)
        return self.backend.published_digest(
            exact_reference.name, exact_reference.config, exact_version(exact_reference)
        )

    @property
    def aliases(self) -> Aliases:
        """Aliases of versions, which can be moved: ``set``, ``remove``, ``list``, ``history``."""
        from registry.api.lifecycle import Aliases

        return Aliases(self.backend.aliases)

    @cached_property
    def mirrors(self) -> Mirrors:
        """The locations of the files of a version: ``list``, ``add``, ``remove``, ``check``, ``relocate``."""
        from registry.api.mirrors import Mirrors

        recorded = self.directory.recorded()
        return Mirrors(self.backend, data_dir=recorded or self.data_dir, is_recorded=recorded is not None)

    @cached_property
    def reservations(self) -> Reservations:
        """The publishers that are writing to object stores: ``list``, ``release``, ``clear``."""
        from registry.api.lifecycle import Reservations

        return Reservations(self.backend, data_dir=self.data_dir)

    @property
    def tokens(self) -> Tokens:
        """The access tokens for the server of a shared catalog: ``create``, ``list``, ``revoke``."""
        from registry.api.team import Tokens

        return Tokens(self.backend.access)

    @property
    def webhooks(self) -> Webhooks:
        """Receivers of events by HTTP: ``create``, ``list``, ``secret``, ``remove``, ``resume``, ``test``."""
        from registry.api.team import Webhooks

        return Webhooks(self.backend)

    @property
    def experiments(self) -> Experiments:
        """The flags that versions may override: ``add``, ``list``, ``set_default``, ``retire``."""
        from registry.api.lifecycle import Experiments

        return Experiments(self.backend)

    @property
    def recorded_data_dir(self) -> str | None:
        """Path or URL of the data directory that the catalog records; None before the first publication into one."""
        return self.directory.recorded()

    @publishes
    def set_data_dir(
        self, data_dir: str | os.PathLike[str], *, force: bool = False, dry_run: bool = False
    ) -> DataDirectoryChange:
        """Record the data directory of the catalog for all clients, e.g. after all its files were moved.

        A folder below the folder of an SQLite catalog is recorded relative to it, so that both can be moved together.
        The event log records absolute paths.

        Args:
            data_dir: path or URL of the folder.
            force: record the directory even if files of versions are missing there.
            dry_run: compute the change, and write nothing.

        Raises:
            ConflictError: a version below the data directory has no files there, and ``force`` is False.
            UsageError: ``data_dir`` contains a password or another secret.
            StorageError: the folder cannot be listed.
        """
        return self.directory.record(data_dir, force=force, dry_run=dry_run)

    def protection(self, reference: DatasetLike, *, at: Moment | None = None) -> str | None:
        """The protection that keeps publications from changing the canonical version of a dataset, or None.

        Args:
            reference: the dataset, see ``versions``.
            at: at this moment. None is now.

        Returns:
            ``"name/config"`` if the config is protected, ``"name"`` if the dataset is, ``""`` if the whole catalog is.

        Raises:
            UsageError: ``reference`` or ``at`` has a wrong type.
        """
        wanted = read_reference(reference)
        return self.backend.configs.protection(wanted.name, wanted.config, at=read_moment(at))

    @announces("comparing", "new")
    def diff(
        self,
        old: DatasetLike,
        new: DatasetLike,
        *,
        show: int = 5,
        most_bytes: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> VersionDiff:
        """Compare two published versions, down to records, and compute the step of the number that the changes require.

        The versions may belong to different datasets. Records are compared by the features that both versions have.
        Files are read only if the fingerprints differ.

        Args:
            old: the version to start from, see ``dataset``.
            new: the version to compare with it.
            show: describe at most this many differing records of each split.
            most_bytes: do not compare records if more than this number of bytes of a version may differ; in that case
                ``VersionDiff.unread`` says so, and fingerprints that the catalog lacks are not computed either. None
                compares all records.
            progress: called with a ``Progress``, in records.

        Raises:
            NotFoundError, VersionWithdrawnError, LockedError, UsageError: see ``dataset``.
            ShardMismatchError, CorruptRecordError, StorageError: a file is damaged or cannot be read.
        """
        from registry.publishing import Prover, diff_versions

        first, second = self.look_up(old), self.look_up(new)
        advance = model.count_progress(progress, "comparing", f"{first.reference} {second.reference}")
        prover = Prover(catalog=self.backend, data=open_data(self.data_dir), indexes=open_indexes(), advance=advance)
        return diff_versions(prover, first.facts, second.facts, show=show, most_bytes=most_bytes)

    def log(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        dataset: DatasetLike | None = None,
        actions: Collection[str] | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> Iterator[Event]:
        """Iterate over the events of the catalog, oldest first, in bounded memory.

        >>> [(event.action, event.dataset, str(event.version)) for event in catalog.log()]
        [('data-dir', '', ''), ('publish', 'digits', '1.0.0')]

        Args:
            since: only events at or after this moment, a datetime with a time zone.
            until: only events at or before this moment.
            dataset: only events of this dataset. A name without a config means all its configs.
            actions: only events of these kinds, e.g. ``["publish", "yank"]``.
            before: only events with a smaller ``id``. Together with ``limit``, this gives the page before that event.
            limit: only this number of the newest events.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: the dataset does not exist.
            UsageError: a moment has no time zone, ``since`` is after ``until``, ``dataset`` names a version, or
                ``limit`` is below 1.
        """
        from registry.catalog import EventFilter, stream_events

        wanted = EventFilter(
            since=since,
            until=until,
            dataset=None if dataset is None else read_dataset(dataset).dataset,
            actions=None if actions is None else tuple(actions),
            before=before,
        )
        return stream_events(self.backend.log, wanted, limit=limit)

    def follow(
        self,
        *,
        after: int | None = None,
        dataset: DatasetLike | None = None,
        actions: Collection[str] | None = None,
    ) -> Iterator[Event]:
        """Iterate over events as they happen, each once and in order, until you stop.

        It sends one request every ten seconds to wait for the next event. If the catalog does not answer, it warns,
        retries for an hour, and then raises. A program that stores the ``id`` of the last event that it handled misses
        no event when it is restarted.

        >>> next(catalog.follow(after=1)).action
        'publish'

        Args:
            after: the ``id`` of the event to continue after; 0 means all events, and None begins with the next event.
            dataset: only events of this dataset. A name without a config means all its configs.
            actions: only events of these kinds, e.g. ``["publish", "yank"]``.

        Raises:
            DatasetNotFoundError, ConfigNotFoundError: the dataset does not exist.
            UsageError: ``dataset`` names a version, or the log ends before ``after``, e.g. because it was restored.
            CatalogUnavailableError: the catalog has not answered for an hour.
        """
        from registry.catalog import follow_events

        return follow_events(
            self.backend,
            after=after,
            dataset=None if dataset is None else read_dataset(dataset).dataset,
            actions=None if actions is None else tuple(actions),
        )

    def verify_log(self, *, anchor: str | None = None, progress: ProgressCallback | None = None) -> LogReport:
        """Verify that no other software changed the event log of the catalog, or the rows that the events describe.

        Every event is sealed with the hash of the event before it. Replaying the events must give the rows of the
        tables, down to the recorded sha256 of every shard. No file is opened: ``verify_all`` compares the files.
        ``LogReport.require_sound()`` raises if something is wrong.

        Args:
            anchor: the ``head`` of an earlier report. The log must still contain it.
            progress: called with a ``Progress``, in rows.

        Raises:
            UsageError: ``anchor`` is not a hash of 64 hex digits, or is the head of an empty log (64 zeros) although
                there are events.
        """
        if anchor is not None and not re.fullmatch("[0-9a-f]{64}", anchor):
            raise UsageError(
                f"{anchor!r:.80} is not the head of a log", hint="A head has 64 hex digits: registry log verify"
            )
        total = None if progress is None else self.backend.log.num_rows()
        advance = model.count_progress(progress, "verifying", "the log", total=total, unit="rows")
        return self.backend.log.verify(anchor=anchor, advance=advance)

    def correct_clock(
        self,
        *,
        first: int | None = None,
        last: int | None = None,
        ahead: str | timedelta | None = None,
        dry_run: bool = False,
    ) -> ClockCorrection:
        """Correct the times of events that a wrong clock dated, by adding a ``correct-clock`` event.

        The events themselves do not change. Look-ups at a moment, histories and ``log`` use the corrected times from
        now on, and new events follow them. The corrected time of an event is the time in the row that it describes, if
        that is earlier than the event's own time; else the event's time minus ``ahead``, if given; else the time of the
        next event, which is when it happened at the latest.

        Args:
            first: the id of the first wrong event; by default, the first event that is dated in the future.
            last: the id of the last wrong event; by default, the newest event.
            ahead: how far the wrong clock was ahead, e.g. ``"3652d"``.
            dry_run: only compute the times.

        Raises:
            UsageError: the log has no such events, or ``ahead`` is not a duration.
        """
        return self.backend.log.correct_clock(
            first=first,
            last=last,
            ahead=parse_duration(ahead) if isinstance(ahead, str) else ahead,
            actor=log_actor(),
            dry_run=dry_run,
        )

    def backup(
        self,
        path: str | os.PathLike[str],
        *,
        force: bool = False,
        dry_run: bool = False,
        progress: ProgressCallback | None = None,
    ) -> Backup:
        """Write a backup of the catalog while it is in use; ``registry.restore`` restores it into either database.

        The backup contains every row as of one moment, but no files of datasets and no passwords. Back up the data
        directory after the catalog, because files are written before their row.

        Args:
            path: path or URL of the new file, which appears only when it is complete.
            force: replace the file if it exists.
            dry_run: read all rows, and write nothing.
            progress: called with a ``Progress``, in rows.

        Raises:
            AlreadyStoredError: the file exists, and ``force`` is False.
            StorageError: the file cannot be written.
        """
        from registry.api.backups import write_backup

        advance = model.count_progress(progress, "backing up", os.fspath(path), unit="rows")
        return write_backup(path, self.backend.backup(advance=advance), force=force, dry_run=dry_run)

    def usage(self, reference: DatasetLike | None = None, *, check: bool = False) -> Usage:
        """The disk space of versions in any state, by version, dataset and location. Shared files are counted once.

        >>> total = catalog.usage("digits").total
        >>> total.num_versions, total.num_files, total.num_bytes
        (1, 5, 346244)

        Args:
            reference: only these versions: all versions of a dataset, or those that a request or an alias names. A name
                without a config means all its configs.
            check: also list every location, and compare sizes; ``StoredUsage.error`` says why a location cannot be
                listed. Without it, no file system or store is accessed.

        Raises:
            VersionNotFoundError: no such version is published.
            AliasNotFoundError: the alias does not exist.
        """
        from registry.publishing.usage import measure_usage

        wanted = None if reference is None else read_reference(reference)
        if wanted is not None and wanted.alias is not None:
            wanted = self.look_up(wanted).reference
        named = reference if isinstance(reference, str) else str(wanted)
        return measure_usage(self.backend, open_data(self.data_dir), wanted, named=named, check=check)

    def collect_garbage(
        self,
        *,
        older_than: str | timedelta = "7d",
        dropped_after: str | timedelta | None = None,
        datasets: Sequence[str] = ("*",),
        uses: Uses = (),
        dry_run: bool = False,
        each: Callable[[Leftover], None] | None = None,
    ) -> GarbageReport:
        """Remove unneeded files from the data directory, TMPDIR and the index cache of this user.

        Garbage is: unfinished files and folders, folders that were moved aside, leftovers of publishers to object
        stores, unused files of the cache, and files of dropped versions whose removal is due (see ``remove``).
        Other files that the row of any version names are never removed. Neither are files that belong to a running
        process, that may belong to another catalog with the same data directory, or that the registry did not create:
        such files are only listed.

        >>> catalog.collect_garbage(dry_run=True).of("found")
        ()

        Args:
            older_than: the grace period, e.g. ``"12h"``. It applies to files of processes that may still be running on
                another machine, and to folders that were moved aside.
            dropped_after: also remove the files of versions that were dropped longer ago than this, e.g. ``"90d"``,
                without a call of ``remove``. Protected versions, and versions that an alias or ``uses`` names, keep
                their files.
            datasets: patterns of the datasets to which ``dropped_after`` applies: ``name`` or ``name/config``, with
                ``*``.
            uses: references in use, see ``Lifecycle``.
            dry_run: list the garbage, and remove nothing.
            each: called with each ``Leftover`` as soon as it is known.

        Returns:
            All leftovers. ``require_all()`` raises if one could not be removed.

        Raises:
            UsageError: ``older_than`` or ``dropped_after`` is malformed or negative.
            StorageError: the data directory cannot be listed.
            StorageUnavailableError: its store does not answer.
        """
        from registry.publishing.collecting import collect_garbage

        grace, remover = read_duration(older_than, "older_than"), self._remover
        if dropped_after is not None:
            from registry.publishing.removal import Retention

            after = read_duration(dropped_after, "dropped_after")
            policy = Retention(after=after, datasets=tuple(datasets), uses=tuple(make_uses(uses)))
            remover = replace(remover, retention=policy)
        leftovers, notes = collect_garbage(
            open_data(self.data_dir),
            self.backend,
            Path(index_folder()),
            older_than=grace,
            actor=log_actor(),
            dry_run=dry_run,
            each=each,
            removals=remover,
        )
        from registry.api.reports import GarbageReport

        return GarbageReport(leftovers, notes=notes)

    def remove(
        self,
        reference: DatasetLike,
        *,
        grace: str | timedelta | None = None,
        now: bool = False,
        force: bool = False,
        dry_run: bool = False,
        uses: Uses = (),
    ) -> RemovalReport:
        """Remove the files of a dropped version: in the data directory, at its mirrors, and in the cache of this user.

        Before the grace period ends, the removal is only planned; ``collect_garbage``, or the same call again, carries
        it out later. ``lifecycle.undo("drop", ...)`` cancels a planned removal, and is refused once the removal has
        begun. The version keeps its rows, its number and its events. Files that were published in place, and files that
        the catalog does not record, are reported but not removed. If a call was killed, repeat it to finish the
        removal.

        Args:
            reference: one version, exactly or an alias.
            grace: how long files are kept after the drop, e.g. ``"30d"``. None means as planned before, or ``"7d"``.
            now: remove the files at once.
            force: continue even if another version shares the files, if an alias or ``uses`` names the version, or if a
                location is on another machine, is behind a link or cannot be written; such a location is skipped.
            dry_run: return what would be removed, and change nothing.
            uses: references in use, see ``Lifecycle``.

        Returns:
            The progress of the removal, and what was removed in each location. ``require_all()`` raises if a location
            could not be cleared. In that case the removal is not finished, and the same call continues it.

        Raises:
            NotFoundError: the dataset, config, version or alias does not exist.
            ConflictError: the version is not dropped, or is in use.
            ReservedError: a publisher is uploading the files again.
            UsageError: ``reference`` does not name one version, or ``grace`` is malformed, negative, or given with
                ``now``.
        """
        if now and grace is not None:
            raise UsageError("a removal has a grace period or happens now, not both", hint="Pass only one of the two.")
        duration = timedelta(0) if now else None if grace is None else read_duration(grace, "grace")
        return self._remover.remove(
            read_reference(reference), grace=duration, force=force, dry_run=dry_run, uses=make_uses(uses)
        )

    @announces("verifying", other="every version")
    def verify_all(
        self,
        *,
        deep: bool = False,
        processes: int | None = None,
        since: str | datetime | timedelta | None = None,
        state: str | os.PathLike[str] | None = None,
        restart: bool = False,
        progress: ProgressCallback | None = None,
        each: Callable[[VerifiedVersion], None] | None = None,
    ) -> CatalogReport:
        """Compare the files of every version with the catalog. Nothing is changed.

        Dropped versions are skipped. If a version fails, the others are still compared. Together with ``verify_log``,
        this proves that everything that was published still exists unchanged.

        >>> report = catalog.verify_all()
        >>> len(report), report.failed
        (1, ())

        Args:
            deep: also decode every record.
            processes: the number of threads, each of which compares one version at a time; with ``deep``, the number of
                worker processes that together decode one version after the other. None compares one version after the
                other.
            since: skip versions that were found sound since this moment, or within this duration (``"7d"``), with the
                same files at the same locations. Needs ``state``.
            state: a file that records which versions were sound, and when. If the last run with this file was
                interrupted less than a week ago, this run continues it. None records nothing.
            restart: do not continue an interrupted run.
            progress: called with a ``Progress``, in records. ``subject`` is the version, or ``""`` if several are
                compared at the same time.
            each: called with the result of each version, in the order of the catalog, as soon as it is known.

        Returns:
            One result for each version; ``require_sound()`` raises if a version does not match.

        Raises:
            CatalogError: the catalog itself failed. Any other failure is the ``error`` of one version.
            UsageError: ``processes`` is not a positive integer, ``since`` is malformed, or ``since`` is given without
                ``state``.
            StorageError: the state cannot be read or written.
        """
        from registry.api.reports import CatalogReport, VerifiedVersion
        from registry.engines import Piece, ThisProcess, has_engine_of_block
        from registry.publishing.verify_state import VerifyState

        if processes is not None:
            whole_number(processes, "processes", least=1)
        remembered = VerifyState(state, since=since, restart=restart, deep=deep, catalog=self.backend)
        versions = [
            version
            for dataset in self.datasets()
            for version in self.backend.versions(dataset.name, dataset.config)
            if version.state is not VersionState.DROPPED
        ]
        width = 1
        if processes is not None and not deep and not has_engine_of_block():
            width = max(1, min(processes, len(versions)))
        for_each = None if processes is None else max(1, processes // width)
        added_up = None
        if progress is not None and width > 1:
            added_up = _add_up(progress, sum(version.num_examples for version in versions))
        stop = ThreadEvent()

        def verify(version: VersionSummary) -> VerifiedVersion:
            before = remembered.verified_before(version)
            if before is not None:
                return VerifiedVersion(reference=version.reference, state=version.state, verified_before=before)
            report = progress if added_up is None else added_up()

            def watched(progressed: Progress) -> None:
                if stop.is_set():
                    raise KeyboardInterrupt
                if report is not None:
                    report(progressed)

            return self._verify(version, deep=deep, processes=for_each, progress=watched)

        found = []
        with ThisProcess(threads=width) as threads:
            pieces = (Piece(verify, version) for version in versions)
            try:
                for one, result in threads.run(pieces, doing="verified versions", failure=CatalogError):
                    found.append(result)
                    if result.is_sound and result.verified_before is None:
                        remembered.keep(one)
                    if each is not None:
                        each(result)
            finally:
                stop.set()  # each thread stops after its current file, not after its current version
        remembered.end()
        return CatalogReport(found)

    @announces("copying", "references", other="versions")
    def copy(
        self,
        references: DatasetLike | Sequence[DatasetLike] | None,
        to: Catalog,
        *,
        dry_run: bool = False,
        progress: ProgressCallback | None = None,
        each: Callable[[CopiedVersion], None] | None = None,
    ) -> CopyReport:
        """Copy versions to another catalog: first their files, into its data directory, then their rows.

        A copy keeps the version's number, time and publisher, its fingerprints, its state, the experiments that it
        overrides, its aliases, and its events, which are recorded as imported. A version that already exists in the
        target is not changed. If a version is refused, the others are still copied. If a run was killed, repeat the
        call: files that arrived with the right sha256 are not sent again.

            with registry.connect("postgresql://host/lab", data_dir="s3://bucket/data") as other:
                catalog.copy("mnist:3.*", other).require_all()

        Args:
            references: one or several references, see ``dataset``. A reference without a version, or with a range,
                means every matching version that is not dropped; without a config, it means all configs. None copies
                everything.
            to: the other catalog.
            dry_run: return what would be copied, and write nothing.
            progress: called with a ``Progress``, in bytes of files; ``subject`` is the version.
            each: called with the result of each version as soon as it is known.

        Returns:
            One result for each version. ``require_all()`` raises if a version was refused, e.g. because its number is
            published in the target with other content.

        Raises:
            NotFoundError, VersionWithdrawnError: a reference matches no version.
            UsageError: ``to`` is this catalog, or a reference has a wrong type.
            CatalogError: a catalog failed. Versions that were copied before remain copied.
        """
        from registry.api.copying import copy_versions

        return copy_versions(self, references, to, dry_run=dry_run, progress=progress, each=each)

    def close(self) -> None:
        """Close the database connections."""
        self.backend.close()

    def __enter__(self) -> Catalog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """The first datasets, for a notebook."""
        from registry.markup import panel, table

        try:
            datasets = self.datasets()
        except RegistryError as error:
            return panel(self, error.message)
        rows = ((it.dataset, it.canonical or it.latest, it.num_examples, it.description) for it in datasets[:20])
        return panel(self, table(("dataset", "version", "examples", "description"), rows, len(datasets)))

    def __repr__(self) -> str:
        return f"<Catalog {self.url}, data in {self.directory}>"

    def _find(self, reference: Reference, moment: datetime | None) -> Dataset:
        from registry.api.dataset import Dataset
        from registry.api.provenance import Provenance

        try:
            if moment is None:
                now = self._source(self.backend.find(reference))
                return Dataset(now.facts, Provenance.of_today(now, reference))
            past = self.backend.find_at(reference, moment)
        except DatasetNotFoundError as error:
            raise _offer_builder(error, reference.name) from error
        return Dataset(past.version, Provenance.of_past(self._source(past.version), past, moment))

    @property
    def _remover(self) -> Remover:
        from registry.publishing.removal import Remover

        # Uses the data directory that the catalog records, because the client's own may be a copy.
        data = open_data(self.directory.recorded() or self.data_dir, catalog=self.backend)
        return Remover(self.backend, data, log_actor(), open_cache())

    def _source(self, version: DatasetVersion) -> CatalogSource:
        from registry.api.provenance import CatalogSource

        return CatalogSource(version, self.backend, self.directory, self.look_up)

    def _verify(
        self, version: VersionSummary, *, deep: bool, processes: int | None, progress: ProgressCallback
    ) -> VerifiedVersion:
        from registry.api.reports import VerifiedVersion

        reference = version.reference
        report, failed, started = None, None, time.monotonic()
        try:
            report = self.look_up(reference).verify(deep=deep, processes=processes, progress=progress)
        except CatalogError:
            raise
        except RegistryError as error:
            failed = error
        seconds = time.monotonic() - started
        return VerifiedVersion(reference=reference, state=version.state, report=report, error=failed, seconds=seconds)

    def _given(self, reference: Reference, moment: datetime | None) -> Reference | None:
        """The version that a refused reference resolves to at that moment, for the hint."""
        try:
            return self._find(reference, moment).reference
        except NotFoundError:
            return None


def _open_again(url: str, data_dir: str, keys: tuple[str, ...] = ()) -> Catalog:
    """Open the catalog of a pickle. If its URL had a password, the URL is read from this process's environment."""
    if MASK in url:  # the password is not in the pickle
        if masked_url(catalog_url()) != url:
            raise UsageError(
                f"the catalog {url} cannot be opened here: the password of its URL is not in the pickle",
                hint="Set REGISTRY_CATALOG to this URL in the environment of this process, too.",
            )
        url = catalog_url()
    return connect(url, data_dir=data_dir, key=keys or None)


def _add_up(progress: ProgressCallback, total: int) -> Callable[[], ProgressCallback]:
    """Make a progress callback for each of several versions; ``progress`` is called with the sum of their records."""
    lock, sums = Lock(), [0]

    def make() -> ProgressCallback:
        before = 0

        def add(progressed: Progress) -> None:
            nonlocal before
            with lock:
                sums[0] += progressed.done - before
                before = progressed.done
                progress(model.Progress(stage=progressed.stage, done=sums[0], total=total))

        return add

    return make


def _offer_builder(error: DatasetNotFoundError, name: str) -> DatasetNotFoundError:
    """``error`` with the hint to build the dataset, if an installed builder has that name."""
    from registry.building import list_builders

    is_uncovered = "known" not in error.details  # the token does not cover the dataset, which may exist
    if is_uncovered or name not in list_builders():
        return error
    return DatasetNotFoundError(error.message, hint=f"Build it with: registry build {name}", details=error.details)
