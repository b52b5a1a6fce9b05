"""How a version was found, and what a ``Dataset`` can do because of that.

A look-up returns a ``Dataset``: the facts of a version and a ``Provenance``. ``FoundNow`` and ``FoundAt`` are look-ups
in a catalog, now and at a moment. ``FoundBefore`` repeats an earlier look-up while the catalog cannot be reached.
``FoundInPins`` in ``registry.api.pinned`` uses a pin file and no catalog.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from registry.api.locations import index_folder, mirrors_of, open_cache, open_data, open_indexes, open_version
from registry.catalog import PublishedShards, load_shards
from registry.errors import BuildError, NotFoundError, UsageError
from registry.escaping import printable
from registry.model import (
    Candidate,
    Choice,
    Considered,
    DatasetVersion,
    KnownShards,
    Promises,
    Reference,
    Shard,
    SlicingRule,
    UntaggedShards,
    VersionState,
    VersionStatus,
    choose,
    describe_moment,
    describe_trouble,
    is_absolute,
    version_folder,
)
from registry.splits import Plan, ReadInstruction, resolve

if TYPE_CHECKING:  # numpy and protobuf are loaded when something is read
    from registry.api.data_directory import ClientDataDirectory
    from registry.api.known_versions import KnownVersion
    from registry.catalog import CatalogBackend, PastLookUp
    from registry.features import FeaturesDict
    from registry.order import ReadConfig
    from registry.pins import AliasEntry, BuilderEntry, PinSource, Places
    from registry.reading import ReadableVersion, Slice
    from registry.splits import Explanation
    from registry.storage import Store


class Provenance(Protocol):
    """How a version was found, and everything about it that depends on that.

    Attributes:
        wanted: the reference that was looked up.
        moment: the moment as of which it was looked up, or None for now.
    """

    wanted: Reference
    moment: datetime | None

    @property
    def described_by(self) -> str:
        """Where the facts come from, for a message: the version of a catalog, or a pin file."""

    @property
    def flags_from(self) -> str:
        """Where the flags of experiments come from, for a message."""

    @property
    def status(self) -> VersionStatus:
        """The status of the version when it was found."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings for readers: that the version is experimental, deprecated or yanked."""

    @property
    def yank_note(self) -> str | None:
        """The note of a yanked version, None for any other."""

    @property
    def why(self) -> tuple[str, ...]:
        """Why the look-up gave this version, in sentences."""

    @property
    def considered(self) -> tuple[Considered, ...]:
        """Every version that the look-up considered, the highest first, each with its verdict."""

    @property
    def protected(self) -> str | None:
        """What keeps publications from moving the canonical version; see ``Catalog.protection``."""

    @property
    def flags(self) -> Mapping[str, bool]:
        """Every known experiment, and whether it is on in this version."""

    def resolve(self, split: str | ReadInstruction, *, slicing: SlicingRule | str, rounding: str | None) -> Plan:
        """The plan of a split expression."""

    def explain(self, split: str | ReadInstruction, *, slicing: SlicingRule | str, rounding: str | None) -> Explanation:
        """The plan of a split expression, with the reason for every bound."""

    def store(self) -> Store:
        """The folder that holds the shards. It is searched for each time, because a copy may replace a moved folder."""

    def readable(self, features: FeaturesDict) -> ReadableVersion:
        """The value that readers start from: the version, its features, folder and proof of files."""

    def readable_for(self, plan: Plan, features: FeaturesDict, config: ReadConfig | None) -> ReadableVersion:
        """The same for the records of ``plan``, in the order ``config`` if it is given."""

    def slices(self, features: FeaturesDict) -> Iterator[Slice]:
        """The slices to read if no expression is given: every split, or every pin."""

    def known_shards(self, split: str) -> tuple[Shard, ...]:
        """The files of a split whose size and sha256 are known: all files, or those that the pins name."""

    def all_shards(self, split: str) -> tuple[Shard, ...]:
        """All files of a split.

        Raises:
            LockedError: only some of them are known.
        """

    def describe_shards(self, digests: Collection[str]) -> Mapping[str, str]:
        """Descriptions of published shards of the dataset, by sha256, for those in ``digests``."""

    def keep_facts(self) -> None:
        """Keep on this machine what is needed to look the version up again while the catalog cannot be reached."""

    @property
    def recovery(self) -> str:
        """What to do if files of another publication are in the place of this version's."""

    @property
    def is_default_config(self) -> bool:
        """Whether a reference without a config means the config of this version."""

    def pin_source(self, readable: ReadableVersion) -> PinSource:
        """What a pin of slices of ``readable`` records about the version."""

    def pin_places(self) -> Places:
        """The places to search for the files of its pins."""


@dataclass(frozen=True, slots=True)
class CatalogOrigin:
    """The catalog in which versions were found.

    Attributes:
        backend: the catalog protocol.
        directory: the data directory, as its client sees it.
        look_up: the method of the ``Catalog``, with which a copy of a ``Dataset`` looks its version up again.
    """

    backend: CatalogBackend
    directory: ClientDataDirectory
    look_up: Callable[..., Any]


class FoundNow:
    """A version of a catalog, as it is now. ``Provenance`` describes each member."""

    flags_from = "the catalog"

    def __init__(self, facts: DatasetVersion, origin: CatalogOrigin, reference: Reference) -> None:
        self.facts = facts
        self.origin = origin
        self.wanted = reference
        self.moment: datetime | None = None

    @property
    def backend(self) -> CatalogBackend:
        """The catalog protocol."""
        return self.origin.backend

    @property
    def described_by(self) -> str:
        return str(self.facts.reference)

    @property
    def status(self) -> VersionStatus:
        return self.facts.status

    @property
    def notes(self) -> tuple[str, ...]:
        trouble = describe_trouble(self.facts.reference, self.candidate, self.facts.canonical)
        return () if trouble is None else (trouble,)

    @property
    def yank_note(self) -> str | None:
        return self.notes[0] if self.facts.state is VersionState.YANKED else None

    @property
    def why(self) -> tuple[str, ...]:
        """The sentences of the choice, and a note if the reference would give another version by now."""
        sentences, today = self.choice.sentences, self.choice.version
        if today == self.facts.version:
            return sentences
        return (
            *sentences,
            f"That is the answer now. When it was looked up, {self.wanted} gave {self.facts.version}.",
        )

    @property
    def considered(self) -> tuple[Considered, ...]:
        return self.choice.considered

    @cached_property
    def protected(self) -> str | None:
        """What protects the config, now or at the moment of the look-up."""
        return self.backend.configs.protection(self.facts.name, self.facts.config, at=self.moment)

    @cached_property
    def flags(self) -> Mapping[str, bool]:
        return self.backend.experiments.of_version(self.facts)

    @property
    def candidate(self) -> Candidate:
        """The version as the choice of a look-up sees it."""
        result = self.facts
        return Candidate(
            version=result.version, state=result.state, message=result.state_message, superseded_by=result.superseded_by
        )

    @cached_property
    def choice(self) -> Choice:
        """Which version the reference gives, and why."""
        return choose(self.backend.standing(self.facts.name, self.facts.config), self.wanted)

    def resolve(self, split: str | ReadInstruction, *, slicing: SlicingRule | str, rounding: str | None) -> Plan:
        return resolve(split, self.facts.layout, slicing=slicing, rounding=rounding)

    def explain(self, split: str | ReadInstruction, *, slicing: SlicingRule | str, rounding: str | None) -> Explanation:
        from registry.splits import explain

        return explain(split, self.facts.layout, slicing=slicing, rounding=rounding)

    def store(self) -> Store:
        return open_version(self.origin.directory.require_for(self.facts), self.facts)

    def readable(self, features: FeaturesDict) -> ReadableVersion:
        """The version in its folder. Every file is compared with its record in the catalog before it is read."""
        from registry.reading import FileProof, make_readable

        reference = self.facts.reference
        hint = (
            f"This is not the file that was published. `registry verify {reference}` names every such shard. Fetch "
            f"them again, or build them again: registry build {reference} --rebuild"
        )
        return make_readable(
            self.facts,
            self.store(),
            features=features,
            proof=FileProof(promises=self._promises(), hint=hint),
            indexes=open_indexes(),
            cache=open_cache(),
            mirrors=mirrors_of(self.origin.directory.path, self.facts),
        )

    def readable_for(self, plan: Plan, features: FeaturesDict, config: ReadConfig | None) -> ReadableVersion:  # noqa: ARG002 (the same for every slice)
        """The same version: each file is proved when it is opened."""
        return self.readable(features)

    def slices(self, features: FeaturesDict) -> Iterator[Slice]:
        from registry.reading import Slice

        readable = self.readable(features)
        for split in self.facts.splits:
            plan = self.resolve(split.name, slicing=self.facts.slicing, rounding=None)
            yield Slice(name=split.name, readable=readable, plan=plan)

    def known_shards(self, split: str) -> tuple[Shard, ...]:
        return load_shards(self.backend.shards, self.facts, split)

    all_shards = known_shards

    def keep_facts(self) -> None:
        from registry.api.known_versions import open_known_versions

        versions = open_known_versions(self.backend.url, self.backend.file)
        if versions is not None:
            directory = self.origin.directory.recorded()
            versions.keep(self.wanted, self.facts, self.backend, data_dir=directory, most=None)

    def _promises(self) -> Promises:
        """The published size and digest of each file."""
        return PublishedShards.of_version(self.backend.shards, self.facts)

    def describe_shards(self, digests: Collection[str]) -> Mapping[str, str]:
        """The shards of all versions of the dataset in the catalog."""
        facts = self.facts
        result = self.backend.shards.find(facts.name, facts.config, digests) if digests else {}
        return {
            digest: f"shard {index} of split {split}"
            + ("" if number == facts.version else f" of {Reference.exactly(facts.name, facts.config, number)}")
            for digest, (number, split, index) in result.items()
        }

    @property
    def recovery(self) -> str:
        if self.facts.is_elsewhere:
            where = self.facts.locations[0]
            return f"This version was imported in place. Put its files back from a copy: {where}"
        from registry.building import list_builders

        facts, data_dir = self.facts, self.origin.directory.path
        mirrors = [
            location if is_absolute(location) else open_data(data_dir).locate(location)
            for location in facts.locations[1:]
        ]
        folder = shlex.quote(mirrors[0]) if mirrors else "FOLDER"
        ways = [f"from {'its mirror' if mirrors else 'a copy of its folder'}: registry publish {folder}"]
        if facts.name in list_builders():
            ways.insert(0, f"with its builder: registry build {facts.reference} --rebuild")
        else:  # of `registry add`, for example, which publishes nothing if the version is there
            ways.append(
                f"from the same source: registry add SOURCE --as {facts.reference.dataset} --number {facts.version} "
                "--catalog new.db --data-dir NEW, then: registry publish "
                f"NEW/{version_folder(facts.name, facts.config, facts.version)}"
            )
        lines = "".join(f"\n  {way}" for way in ways)
        return (
            "Files that were not published are among those of this version. To restore its own, which moves them aside:"
            + lines
        )

    @property
    def is_default_config(self) -> bool:
        configs = self.backend.configs.list(self.facts.name)
        return any(config.is_default and config.config == self.facts.config for config in configs)

    def pin_source(self, readable: ReadableVersion) -> PinSource:
        """The version, its alias in the catalog, and the installed builder that can make it."""
        from registry.pins import PinSource

        facts, wanted = self.facts, self.wanted
        builder = None if facts.version_to_prepare else _find_builder(facts.reference)
        packages = dict([software().split()])
        if builder is not None:
            packages[builder.package] = builder.version
        return PinSource(
            readable=readable,
            request=wanted,
            why=self.why,
            shards=self.all_shards,
            alias=None if wanted.alias is None else self._alias_entry(wanted.alias),
            builder=builder,
            packages=packages,
        )

    def _alias_entry(self, alias: str) -> AliasEntry | None:
        """The alias in the reference, and when it was last set to this version, up to the moment of the look-up."""
        from registry.pins import AliasEntry

        moves = [
            move
            for move in self.backend.aliases.history(self.wanted)
            if move.after == self.facts.version and (self.moment is None or move.at <= self.moment)
        ]
        if not moves:
            return None
        move = moves[-1]
        # In a pin file an actor is one line of text. In the log it is any text that REGISTRY_ACTOR held.
        actor = " ".join(printable(move.actor).split())[:1000] or "unknown"
        return AliasEntry(name=alias, set_at=move.at.isoformat(), set_by=actor, message=move.message)

    def pin_places(self) -> Places:
        """The folder of the version, and the data directory of the catalog."""
        from registry.pins import Places

        facts = self.facts
        folder = version_folder(facts.name, facts.config, facts.version)
        return Places(
            data_dirs=(self.origin.directory.path,),
            folders={folder: self.store().url},
            index_folder=index_folder(),
            cache=open_cache(),
        )


class FoundAt(FoundNow):
    """A version of a catalog at a moment, with its state and the canonical version at that time."""

    def __init__(self, past: PastLookUp, origin: CatalogOrigin, moment: datetime) -> None:
        super().__init__(past.version, origin, past.choice.wanted)
        self.moment = moment
        self._past = past

    @property
    def notes(self) -> tuple[str, ...]:
        """The warnings at that moment, and the changes of the state since."""
        return tuple(filter(None, (self._note_then, self._note_since, self._note_future)))

    @property
    def yank_note(self) -> str | None:
        """The note of a version that was yanked then, or has been since."""
        if self.facts.state is VersionState.YANKED:
            return self._note_then
        return self._note_since if self._past.now.state is VersionState.YANKED else None

    @property
    def why(self) -> tuple[str, ...]:
        """The sentences of the choice at that moment."""
        return (f"By the event log, at {self._when}:", *self.choice.sentences)

    @cached_property
    def choice(self) -> Choice:
        """Which version the reference gave at that moment."""
        return self._past.choice

    @property
    def _when(self) -> str:
        assert self.moment is not None  # noqa: S101 (for the type checker: __init__ sets it)
        return describe_moment(self.moment)

    @property
    def _note_then(self) -> str | None:
        trouble = describe_trouble(self.facts.reference, self.candidate, self.facts.canonical)
        return None if trouble is None else f"at {self._when}: {trouble}"

    @property
    def _note_since(self) -> str | None:
        now = self._past.now
        if now == self.candidate or now.state is VersionState.SUPPORTED:
            return None
        return f"since then {self.facts.reference} is {now.described}"

    @property
    def _note_future(self) -> str | None:
        is_past = self.moment is not None and self.moment < datetime.now(UTC)
        return None if is_past else f"{self._when} is in the future: the answer may change until then"


class FoundBefore(FoundNow):
    """A version of a catalog that cannot be reached, as this machine knows it from an earlier look-up."""

    flags_from = "what this machine knows about the version"
    protected = None

    def __init__(self, version: KnownVersion, origin: CatalogOrigin, reference: Reference) -> None:
        super().__init__(version.facts, origin, reference)
        self._known = version

    @property
    def why(self) -> tuple[str, ...]:
        since = describe_moment(self._known.since)
        return (f"The catalog cannot be reached. This machine looked up {self.wanted} at {since}.",)

    @property
    def considered(self) -> tuple[Considered, ...]:
        return (Considered(version=self.facts.version, status=self.status, verdict="known on this machine"),)

    @cached_property
    def flags(self) -> Mapping[str, bool]:
        """The experiment flags that the version overrides. Only the catalog knows the others."""
        return self.facts.experiments

    def known_shards(self, split: str) -> tuple[Shard, ...]:
        return self._known.shards[self.facts.split(split).name]

    all_shards = known_shards

    def describe_shards(self, digests: Collection[str]) -> Mapping[str, str]:  # noqa: ARG002 (only the catalog knows)
        return {}

    def keep_facts(self) -> None:
        """They are known already."""

    def _promises(self) -> Promises:
        shards = ((split, shard) for split in self.facts.splits for shard in self._known.shards[split.name])
        result = KnownShards({split.filename(shard.index): shard for split, shard in shards})
        return result if self.facts.locations[0] == self.facts.location else UntaggedShards(result)


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
    from importlib.metadata import entry_points

    from registry.building.discovery import ENTRY_POINT_GROUP

    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
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
