"""How a version was looked up, and where it is read from.

A look-up returns a ``Dataset``: the facts of a version and a ``Provenance``, whose ``source`` answers everything that
depends on where the version was looked up: a ``CatalogSource``, or a ``PinFileSource`` of ``registry.api.pinned``.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar

from registry.api.locations import (
    index_folder,
    log_actor,
    mirrors_of,
    open_cache,
    open_data,
    open_indexes,
    open_version,
)
from registry.errors import BuildError, CatalogUnavailableError, NotFoundError, UsageError
from registry.escaping import printable
from registry.model import (
    Candidate,
    Considered,
    Reference,
    VersionState,
    VersionStatus,
    choose,
    describe_moment,
    describe_trouble,
    is_absolute,
    rename_note,
    version_folder,
)
from registry.plugins import BUILDERS, list_plugins

if TYPE_CHECKING:  # numpy and protobuf are loaded when something is read
    from registry.api.locations import ClientDataDirectory
    from registry.catalog import CatalogBackend, PastLookUp
    from registry.features import FeaturesDict
    from registry.model import Attachment, DatasetVersion, ProgressCallback, Shard, SlicingRule, Version
    from registry.order import ReadConfig
    from registry.pins import AliasEntry, BuilderEntry, PinSource, Places
    from registry.publishing import ShardFault, VerifyReport
    from registry.reading import ReadableVersion, Slice
    from registry.reading.column_filling import ColumnsReport
    from registry.splits import Explanation, Plan, ReadInstruction
    from registry.storage import Store


T = TypeVar("T")

Reasons: TypeAlias = tuple[tuple[str, ...], tuple[Considered, ...]]
"""Why a look-up returned a version, in sentences, and every version that it considered, highest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """How a version was looked up, and its state according to that look-up.

    Attributes:
        source: where it was looked up: in a catalog or in a pin file.
        wanted: the reference that was looked up.
        moment: the moment as of which it was looked up, or None for now.
        status: the status of the version.
        notes: warnings for readers: that the version is experimental, deprecated or yanked.
        yank_note: the note of a yanked version, None for any other.
        reasons: why the look-up returned this version; None if the source computes it on request.
    """

    source: VersionSource
    wanted: Reference
    moment: datetime | None = None
    status: VersionStatus
    notes: tuple[str, ...]
    yank_note: str | None
    reasons: Reasons | None = None

    @classmethod
    def of_today(cls, source: CatalogSource, wanted: Reference) -> Provenance:
        """The provenance of a version of a catalog, as it is now."""
        facts, trouble = source.facts, None
        status = facts.status
        if status not in (VersionStatus.CANONICAL, VersionStatus.SUPPORTED):
            trouble = describe_trouble(facts.reference, _candidate(facts), facts.canonical)
        return cls(
            source=source,
            wanted=wanted,
            status=status,
            notes=tuple(note for note in (rename_note(facts.name, wanted.name), trouble) if note is not None),
            yank_note=trouble if facts.state is VersionState.YANKED else None,
        )

    @classmethod
    def of_past(cls, source: CatalogSource, past: PastLookUp, moment: datetime) -> Provenance:
        """The provenance of a version of a catalog as of a moment. The notes say how its state changed since."""
        facts, now, when = source.facts, past.now, describe_moment(moment)
        candidate = _candidate(facts)
        trouble = describe_trouble(facts.reference, candidate, facts.canonical)
        then = None if trouble is None else f"at {when}: {trouble}"
        is_changed = now != candidate and now.state is not VersionState.SUPPORTED
        since = f"since then {facts.reference} is {now.described}" if is_changed else None
        is_future = moment >= datetime.now(UTC)
        future = f"{when} is in the future: the answer may change until then" if is_future else None
        is_yanked_now = now.state is VersionState.YANKED
        return cls(
            source=source,
            wanted=past.choice.wanted,
            moment=moment,
            status=facts.status,
            notes=tuple(
                note
                for note in (rename_note(facts.name, past.choice.wanted.name), then, since, future)
                if note is not None
            ),
            yank_note=then if facts.state is VersionState.YANKED else since if is_yanked_now else None,
            reasons=((f"By the event log, at {when}:", *past.choice.sentences), past.choice.considered),
        )


class VersionSource(Protocol):
    """Where one version was looked up, and everything that depends on that."""

    @property
    def name(self) -> str:
        """``the catalog`` or ``the pin file``, for messages."""

    def reasons(self, wanted: Reference) -> Reasons:
        """Why ``wanted`` resolves to this version."""

    def protection(self, moment: datetime | None) -> str | None:
        """The protection of the canonical version; see ``Catalog.protection``."""

    def flags(self) -> Mapping[str, bool]:
        """Every known experiment, and whether it is on in this version."""

    def resolve(self, split: str | ReadInstruction, *, slicing: SlicingRule | str, rounding: str | None) -> Plan:
        """The plan of a split expression."""

    def explain(self, split: str | ReadInstruction, *, slicing: SlicingRule | str, rounding: str | None) -> Explanation:
        """The plan of a split expression, with the reason for every bound."""

    def store(self) -> Store:
        """The folder of the shards. It is searched for each time, because a copy may have replaced a moved folder."""

    def readable(
        self, features: FeaturesDict, plan: Plan | None = None, config: ReadConfig | None = None
    ) -> ReadableVersion:
        """The value that readers start from, for all records or those of ``plan``, in the order ``config``."""

    def slices(self, features: FeaturesDict) -> Iterator[Slice]:
        """The slices to read if no expression is given: every split, or every pin."""

    def shards(self, split: str, *, all_shards: bool = False) -> tuple[Shard, ...]:
        """The files of a split whose size and sha256 are known: all files, or those that the pins name.

        Raises:
            LockedError: ``all_shards`` is True, and only some of them are known.
        """

    def attachments(self) -> tuple[Attachment, ...]:
        """The files, other than shards, that are stored with the version."""

    def read_attachment(self, attachment: Attachment) -> bytes:
        """The bytes of one of ``attachments``, verified by sha256."""

    def require_publisher(self) -> None:
        """Check that ``attach`` may write, before any work is done.

        Raises:
            CatalogPermissionError: the database user lacks a right, or the catalog is read-only.
            OtherDataDirectoryError: the client's data directory is not the one that the catalog records.
        """

    def attach(self, attachment: Attachment, content: bytes) -> None:
        """Attach a file to a version of a catalog. For a version from a pin file, this does nothing.

        Raises:
            ConflictError: the version has another attachment of this kind and name.
            StorageError: the file cannot be written.
        """

    def attach_columns(
        self,
        readable: ReadableVersion,
        names: Sequence[str] | None,
        *,
        progress: ProgressCallback | None,
        dry_run: bool,
    ) -> ColumnsReport:
        """Attach the columns of some features of ``readable``, which is this version.

        Raises:
            OtherDataDirectoryError: see ``require_publisher``.
            UsageError: the version comes from a pin file.
        """

    def attachment_faults(self) -> Iterator[ShardFault]:
        """The fault of each attachment whose file is missing or differs."""

    def describe_foreign(self, report: VerifyReport) -> VerifyReport:
        """Add to ``report`` what every foreign file is, and how to restore the published file."""

    def remember(self, wanted: Reference) -> None:
        """Remember on this machine what a look-up of the version needs while the catalog cannot be reached."""

    def is_default_config(self) -> bool:
        """Whether a reference without a config means the config of this version."""

    def pin_source(self, provenance: Provenance, readable: ReadableVersion) -> PinSource:
        """The facts that a pin of slices of ``readable`` records about the version."""

    def pin_places(self) -> Places:
        """The places to search for the files of its pins."""


@dataclass(frozen=True, slots=True)
class CatalogSource:
    """A version of a catalog. ``VersionSource`` describes each method.

    Attributes:
        facts: everything that is recorded about the version.
        backend: the catalog protocol.
        directory: the data directory, as its client sees it.
        look_up: the method of the ``Catalog``, with which a copy of a ``Dataset`` looks its version up again; None if
            there is no ``Dataset``.
    """

    name: ClassVar[str] = "the catalog"

    facts: DatasetVersion
    backend: CatalogBackend
    directory: ClientDataDirectory
    look_up: Callable[..., Any] | None = None

    def reasons(self, wanted: Reference) -> Reasons:
        """Explain the choice as of now, with a note if the reference now resolves to another version."""
        facts = self.facts
        standing = self._ask(lambda: self.backend.standing(facts.name, facts.config), recalled=None)
        if standing is None:
            sentence = f"{wanted} names exactly {facts.version}. The catalog cannot be reached."
            considered = Considered(version=facts.version, status=facts.status, verdict="known on this machine")
            return (sentence,), (considered,)
        choice = choose(standing, wanted)
        sentences = choice.sentences
        if choice.version != facts.version:
            sentences += (f"This is the answer now. When it was looked up, {wanted} resolved to {facts.version}.",)
        return sentences, choice.considered

    def protection(self, moment: datetime | None) -> str | None:
        """The protection of the config, now or at the moment of the look-up; None for a remembered version."""
        configs, facts = self.backend.configs, self.facts
        return self._ask(lambda: configs.protection(facts.name, facts.config, at=moment), recalled=None)

    def flags(self) -> Mapping[str, bool]:
        """Every experiment or, for a remembered version, only those that it overrides: the catalog has the others."""
        return self._ask(lambda: self.backend.experiments.of_version(self.facts), recalled=self.facts.experiments)

    def _ask(self, call: Callable[[], T], *, recalled: T) -> T:
        """What the catalog answers, or ``recalled`` if it does not answer and this machine remembered the version."""
        try:
            return call()
        except CatalogUnavailableError:
            if not self._is_recalled():
                raise
            return recalled

    def _is_recalled(self) -> bool:
        """Whether this machine remembered the version, because the catalog did not answer."""
        from registry.catalog.remembering import RememberingCatalog

        backend: object = self.backend
        return isinstance(backend, RememberingCatalog) and backend.is_recalled(self.facts)

    def resolve(self, split: str | ReadInstruction, *, slicing: SlicingRule | str, rounding: str | None) -> Plan:
        from registry.splits import resolve

        return resolve(split, self.facts.layout, slicing=slicing, rounding=rounding)

    def explain(self, split: str | ReadInstruction, *, slicing: SlicingRule | str, rounding: str | None) -> Explanation:
        from registry.splits import explain

        return explain(split, self.facts.layout, slicing=slicing, rounding=rounding)

    def store(self) -> Store:
        return open_version(self.directory.require_for(self.facts), self.facts)

    def readable(
        self,
        features: FeaturesDict,
        plan: Plan | None = None,  # noqa: ARG002 (the same for every slice: each file is proved when it is opened)
        config: ReadConfig | None = None,  # noqa: ARG002 (the same)
    ) -> ReadableVersion:
        """The version in its folder. Every file is verified against the catalog before it is read."""
        from registry.catalog import PublishedShards
        from registry.reading import AttachedColumns, FileProof, make_readable

        facts = self.facts
        hint = (
            f"This is not the file that was published. `registry verify {facts.reference}` names every such shard. "
            f"Fetch them again, or build them again: registry build {facts.reference} --rebuild"
        )
        return make_readable(
            facts,
            self.store(),
            features=features,
            proof=FileProof(promises=PublishedShards.of_version(self.backend.shards, facts), hint=hint),
            indexes=open_indexes(),
            cache=open_cache(),
            mirrors=mirrors_of(self.directory.path, facts),
            attached=AttachedColumns(str(facts.reference), self._attachments_in_folders),
        )

    def _attachments_in_folders(self) -> tuple[tuple[Attachment, ...], tuple[Store, ...]]:
        from registry.reading.attached import COLUMNS

        # Do not wait again for a catalog that does not answer
        attachments = () if self._is_recalled() else self.attachments()
        if not any(file.kind == COLUMNS for file in attachments):
            return (), ()
        from registry.publishing.attachments import attachment_folders

        data = open_data(self.directory.require_for(self.facts))
        return attachments, tuple(attachment_folders(data, self.facts))

    def slices(self, features: FeaturesDict) -> Iterator[Slice]:
        from registry.reading import Slice

        readable = self.readable(features)
        for split in self.facts.splits:
            plan = self.resolve(split.name, slicing=self.facts.slicing, rounding=None)
            yield Slice(name=split.name, readable=readable, plan=plan)

    def shards(self, split: str, *, all_shards: bool = False) -> tuple[Shard, ...]:  # noqa: ARG002 (all are known)
        from registry.catalog import load_shards

        return load_shards(self.backend.shards, self.facts, split)

    def attachments(self) -> tuple[Attachment, ...]:
        """See ``VersionSource``. Empty for a remembered version: only the catalog knows its attachments."""
        return self._ask(lambda: self.backend.attachments(self.facts), recalled=())

    def read_attachment(self, attachment: Attachment) -> bytes:
        from registry.publishing.attachments import read_attachment

        return read_attachment(open_data(self.directory.require_for(self.facts)), self.facts, attachment)

    def require_publisher(self) -> None:
        self.backend.require_publisher()
        self.directory.require()

    def attach(self, attachment: Attachment, content: bytes) -> None:
        from registry.publishing.attachments import attach

        data = open_data(self.directory.require_for(self.facts), catalog=self.backend)
        attach(self.backend, data, self.facts, attachment, content, actor=log_actor())

    def attach_columns(
        self,
        readable: ReadableVersion,
        names: Sequence[str] | None,
        *,
        progress: ProgressCallback | None,
        dry_run: bool,
    ) -> ColumnsReport:
        from registry.publishing.attached_columns import attach_columns

        data = open_data(self.directory.require_for(self.facts), catalog=self.backend)
        self.require_publisher()
        return attach_columns(
            self.backend, data, readable, names, actor=log_actor(), progress=progress, dry_run=dry_run
        )

    def attachment_faults(self) -> Iterator[ShardFault]:
        from registry.publishing.attachments import find_faults, home_of

        if attachments := self.attachments():
            places = (*self.facts.locations, home_of(self.facts))
            yield from find_faults(open_data(self.directory.require_for(self.facts)), places, attachments)

    def remember(self, wanted: Reference) -> None:
        from registry.catalog.remembering import RememberingCatalog

        backend: object = self.backend
        if isinstance(backend, RememberingCatalog):
            backend.remember(wanted, self.facts)

    def describe_foreign(self, report: VerifyReport) -> VerifyReport:
        """``report``, with foreign files identified as shards of other versions of the dataset, by their digests."""
        return report.name_foreign(self._describe_shards, self._recovery())

    def _describe_shards(self, digests: Collection[str]) -> Mapping[str, str]:
        facts = self.facts
        result: Mapping[str, tuple[Version, str, int]] = {}
        with suppress(CatalogUnavailableError):
            result = self.backend.shards.find(facts.name, facts.config, digests)
        return {
            digest: f"shard {index} of split {split}"
            + ("" if number == facts.version else f" of {Reference.exactly(facts.name, facts.config, number)}")
            for digest, (number, split, index) in result.items()
        }

    def _recovery(self) -> str:
        """How to restore the files of this version if files of another publication are in their place."""
        if self.facts.is_elsewhere:
            where = self.facts.locations[0]
            return f"This version was imported in place. Restore its files from a copy: {where}"
        from registry.building import list_builders

        facts, data_dir = self.facts, self.directory.path
        mirrors = [
            location if is_absolute(location) else open_data(data_dir).locate(location)
            for location in facts.locations[1:]
        ]
        folder = shlex.quote(mirrors[0]) if mirrors else "FOLDER"
        ways = [f"from {'its mirror' if mirrors else 'a copy of its folder'}: registry publish {folder}"]
        # Uses the name that the dataset had when its folder was made.
        name = facts.name if is_absolute(facts.location) else facts.location.partition("/")[0]
        made = replace(facts.reference, name=name)
        if name in list_builders():
            ways.insert(0, f"with its builder: registry build {made} --rebuild")
        else:  # e.g. `registry add`, which publishes nothing if the version exists, so another catalog is needed
            ways.append(
                f"from the same source: registry add SOURCE --as {made.dataset} --number {facts.version} "
                "--catalog new.db --data-dir NEW, then: registry publish "
                f"NEW/{version_folder(name, facts.config, facts.version)}"
            )
        lines = "".join(f"\n  {way}" for way in ways)
        return (
            "The folder of this version contains foreign files. To restore its own files, and move foreign ones aside:"
            + lines
        )

    def is_default_config(self) -> bool:
        configs = self.backend.configs.list(self.facts.name)
        return any(config.is_default and config.config == self.facts.config for config in configs)

    def pin_source(self, provenance: Provenance, readable: ReadableVersion) -> PinSource:
        """The version, its alias in the catalog, and the installed builder that can make it."""
        from registry.pins import PinSource

        facts = self.facts
        builder = None if facts.version_to_prepare else _find_builder(facts.reference)
        packages = dict([software().split()])
        if builder is not None:
            packages[builder.package] = builder.version
        return PinSource(
            readable=readable,
            request=replace(provenance.wanted, name=facts.name),  # it may be a former name
            why=(provenance.reasons or self.reasons(provenance.wanted))[0],
            shards=self.shards,
            alias=self._alias_entry(provenance),
            builder=builder,
            packages=packages,
        )

    def _alias_entry(self, provenance: Provenance) -> AliasEntry | None:
        """The alias in the reference, and when it was last set to this version, up to the moment of the look-up."""
        from registry.pins import AliasEntry

        if provenance.wanted.alias is None:
            return None
        moves = [
            move
            for move in self.backend.aliases.history(provenance.wanted)
            if move.after == self.facts.version and (provenance.moment is None or move.at <= provenance.moment)
        ]
        if not moves:
            return None
        move = moves[-1]
        # In a pin file an actor is one line of text. In the log it is any text that REGISTRY_ACTOR contained.
        actor = " ".join(printable(move.actor).split())[:1000] or "unknown"
        return AliasEntry(name=provenance.wanted.alias, set_at=move.at.isoformat(), set_by=actor, message=move.message)

    def pin_places(self) -> Places:
        """The folder of the version, and the data directory of the catalog."""
        from registry.pins import Places

        facts = self.facts
        folder = version_folder(facts.name, facts.config, facts.version)
        return Places(
            data_dirs=(self.directory.path,),
            folders={folder: self.store().url},
            index_folder=index_folder(),
            cache=open_cache(),
        )


def _candidate(facts: DatasetVersion) -> Candidate:
    """The version as a candidate of a look-up."""
    return Candidate(
        version=facts.version, state=facts.state, message=facts.state_message, superseded_by=facts.superseded_by
    )


def software() -> str:
    """The name and version of this software, as pin files record it."""
    from importlib.metadata import version

    return f"shardbook {version('shardbook')}"


def _find_builder(reference: Reference) -> BuilderEntry | None:
    """The installed code that can build exactly this version, or None."""
    from registry.building import find_builder
    from registry.pins import BuilderEntry

    try:
        builder = find_builder(reference.name)
        builder.pick(reference)
    except (NotFoundError, BuildError, UsageError):
        return None
    package, version = _package_of(reference.name)
    return BuilderEntry(
        code=f"{builder.__module__}:{builder.__qualname__}",
        package=package,
        version=version,
        sha256=_source_digest(builder),
    )


def _package_of(name: str) -> tuple[str, str]:
    for point in list_plugins(BUILDERS, name):
        if point.dist is not None:
            return point.dist.name, point.dist.version
    return "unknown", "unknown"


def _source_digest(code: type) -> str | None:
    import inspect

    try:
        path = inspect.getsourcefile(code)
        return None if path is None else f"sha256:{hashlib.sha256(Path(path).read_bytes()).hexdigest()}"
    except (OSError, TypeError):
        return None
