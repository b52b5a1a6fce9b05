"""Pins slices of datasets, and what a catalog says about pins: which are withdrawn, what an update would change."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from registry.errors import (
    BuildError,
    FetchNotAllowedError,
    LockedError,
    NotFoundError,
    NotStoredError,
    RecordsMismatchError,
    ReferenceSyntaxError,
    UsageError,
)
from registry.escaping import printable
from registry.masking import mask
from registry.model import DatasetVersion, Reference, SlicingRule
from registry.pins import AliasEntry, BuilderEntry, Pin, PinFile, PinSource, choose_names, make_entry
from registry.pins.citation import Citation
from registry.pins.create import check_locations, check_names
from registry.pins.layout import config_of, folder_of
from registry.pins.pin_file import name_taken
from registry.splits import ReadInstruction

if TYPE_CHECKING:
    from registry.api.catalog import Catalog
    from registry.api.dataset import Dataset
    from registry.api.provenance import FoundNow
    from registry.order import ReadConfig
    from registry.pins.measure import AdvanceBytes
    from registry.publishing import Advance, VersionDiff
    from registry.reading import ReadableVersion
    from registry.splits import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class PinState:
    """The state of the version of a pin in the catalog today.

    Attributes:
        name, reference, split: the pin.
        state: of the version in the catalog, or ``"unknown"`` where the catalog does not have it.
        message: what its publisher says of that; or that the catalog has other content under the number.
        is_withdrawn: whether the version is yanked, dropped, unknown, or of other content.
    """

    name: str
    reference: Reference
    split: str
    state: str
    message: str
    is_withdrawn: bool

    @property
    def yank_note(self) -> str | None:
        """What its reader should know where it is yanked or dropped."""
        if self.state not in ("yanked", "dropped"):
            return None
        return f"{self.reference} is {self.state}{f': {self.message}' if self.message else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinAudit(PinState):
    """The state of a pin today.

    Attributes:
        folder: where its files lie, or None.
        missing: what of its files is missing; ``""`` where all are there with their sizes. Places that the pin names
            and that were not asked are among it.
        today: what the request gives today, where that is another version, and look-ups are not locked.
    """

    folder: str | None
    missing: str
    today: Reference | None

    @property
    def is_good(self) -> bool:
        """Whether the version may be used and its files are there."""
        return not self.is_withdrawn and not self.missing


@dataclass(frozen=True, slots=True, kw_only=True)
class PinMove:
    """A pin, the version that it would go to, and what differs between the two; None where that cannot be seen."""

    pin: Pin
    dataset: Dataset
    diff: VersionDiff | None
    unseen: str = ""

    @property
    def is_move(self) -> bool:
        """Whether that is another version, or other content."""
        digest = f"sha256:{self.dataset.facts.content_digest}"
        return (self.dataset.reference, digest) != (self.pin.reference, self.pin.entry.version_digest)


class CatalogPins:
    """``catalog.pins``: pin files, seen from a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def states(self, pins: Iterable[Pin]) -> tuple[PinState, ...]:
        """The state of the version of each pin in the catalog."""
        return tuple(PinState(**self._state(pin)) for pin in pins)

    def audit(self, pins: PinFile) -> tuple[PinAudit, ...]:
        """The state of each pin today: that of its version, and whether its files are there."""
        return tuple(map(self._audit, self.place(pins).values()))

    def place(self, pins: PinFile) -> PinFile:
        """``pins``, whose files are looked for where this catalog reads their versions, too."""
        folders: dict[str, str] = {}
        for pin in pins.values():
            try:
                folders[folder_of(pin.entry)] = self._catalog.look_up(pin.reference).folder
            except (NotFoundError, LockedError):  # what a lock answers is placed already
                continue
        return pins.with_places(replace(pins.places, folders=folders))

    def preview_update(
        self,
        pins: PinFile,
        *,
        names: Collection[str] = (),
        to: str | None = None,
        show: int = 5,
        advance: Advance | None = None,
    ) -> tuple[PinMove, ...]:
        """Where pins would go, and what differs record by record. Nothing is written.

        Args:
            pins: the file.
            names: of the pins; none means all.
            to: a reference, or a version request alone (``2.*``, ``@paper``); None looks the pin's request up again.
            show: how many differing records of each split are described.
            advance: called with the number of records read since the last call.

        Raises:
            NotFoundError, VersionWithdrawnError: nothing answers.
            PinNotFoundError: no such pin.
            UsageError: ``to`` names another dataset than a pin is of.
        """
        chosen = [pins[name] for name in names] if names else list(pins.values())
        return tuple(self._preview(pin, to, show=show, advance=advance) for pin in chosen)

    def update(
        self,
        pins: PinFile,
        moves: Sequence[PinMove] = (),
        *,
        names: Collection[str] = (),
        locations: Sequence[str] | None = None,
        processes: int | None = None,
        advance: AdvanceBytes | None = None,
    ) -> PinFile:
        """The file with some pins moved: the same expression, slicing rule and order, resolved in the new version.

        Passwords and signatures in URLs, which older releases let in, are taken out of every pin.

        Args:
            pins: the file.
            moves: what ``preview_update`` gave.
            names: of the pins that get locations where nothing moves; none means all.
            locations: URLs of folders that are added to the pins that move, or, without moves, to those of ``names``;
                None adds none.
            processes: how many hash.
            advance: called with the number of bytes hashed since the last call.

        Raises:
            PinNotFoundError: no such pin.
            UsageError: ``locations`` are no list of lines of text.
            As ``Dataset.pin``.
        """
        check_locations(locations or ())
        pins = pins.without_secrets()
        chosen = {pins[name].name for name in names or pins}
        found: dict[str, dict[str, Any]] = {}
        for move in moves:
            if move.is_move:
                found[move.pin.name] = self._entry(move, locations or (), processes=processes, advance=advance)
        entries = []
        for entry in pins.content["pins"]:
            new = {**entry, **found[entry["name"]]} if entry["name"] in found else entry
            if locations and entry["name"] in (found if moves else chosen):
                new = {**new, "locations": list(dict.fromkeys([*new["locations"], *locations]))}
            entries.append(new)
        return PinFile.of(entries, created_by=software(), places=pins.places, base=pins)

    def from_citation(
        self, text: str | Citation, *, processes: int | None = None, advance: AdvanceBytes | None = None
    ) -> PinFile:
        """The pin that the short form in a paper's text names, made again from the catalog and held against it.

        Raises:
            CitationSyntaxError: the text is no short form.
            NotFoundError: the catalog does not have that version, or the version that split.
            RecordsMismatchError: its records are not those that were cited.
        """
        citation = Citation.parse(text) if isinstance(text, str) else text
        dataset = self._catalog.look_up(citation.reference)
        pins = dataset.pin(
            ReadInstruction.from_spec(citation.split, slicing=citation.slicing),
            slicing=citation.slicing,
            rounding=citation.rounding,
            processes=processes,
            advance=advance,
        )
        differences = citation.differences(next(iter(pins.values())).entry)
        if differences:
            raise RecordsMismatchError(
                f"{citation}: these are not the records that the catalog has: {'; '.join(differences)}",
                hint="Was the text copied right? Else another catalog is meant, or its content is not what was cited.",
                details={"citation": str(citation), "differences": list(differences)},
            )
        return pins

    def _audit(self, pin: Pin) -> PinAudit:
        folder, missing = None, ""
        try:
            folder = mask(pin.store().url)
        except (NotStoredError, FetchNotAllowedError) as error:
            missing = f"{error.message}\n{error.hint}" if isinstance(error, FetchNotAllowedError) else error.message
        return PinAudit(**self._state(pin), folder=folder, missing=missing, today=self._today(pin))

    def _state(self, pin: Pin) -> dict[str, Any]:
        """The values of a ``PinState``."""
        described = partial(dict[str, Any], name=pin.name, reference=pin.reference, split=pin.split)
        try:
            standing = self._catalog.standing(pin.reference.name, pin.reference.config)
        except NotFoundError as error:
            return described(state="unknown", message=error.message, is_withdrawn=True)
        candidate = standing.find(pin.version.version)
        if candidate is None:
            return described(state="unknown", message=f"the catalog has no {pin.reference}", is_withdrawn=True)
        state = standing.status(candidate).value
        if f"sha256:{self._catalog.published_digest(pin.reference)}" != pin.entry.version_digest:
            message = "the catalog has other content under this number than was pinned"
            return described(state=state, message=message, is_withdrawn=True)
        message = candidate.described.partition(": ")[2]
        return described(state=state, message=message, is_withdrawn=candidate.is_withdrawn)

    def _today(self, pin: Pin) -> Reference | None:
        try:
            found = self._catalog.look_up(pin.entry.request).reference
        except (NotFoundError, LockedError):  # under a lock it is nobody's question what a request gives today
            return None
        return None if found == pin.reference else found

    def _preview(self, pin: Pin, to: str | None, *, show: int, advance: Advance | None) -> PinMove:
        wanted = _target(pin, to)
        dataset = self._catalog.look_up(wanted)
        move = PinMove(pin=pin, dataset=dataset, diff=None)
        if not move.is_move:
            return move
        try:
            return replace(move, diff=self._catalog.diff(pin.reference, dataset.reference, show=show, advance=advance))
        except NotFoundError as error:
            return replace(move, unseen=error.message)

    def _entry(
        self, move: PinMove, locations: Sequence[str], *, processes: int | None, advance: AdvanceBytes | None
    ) -> dict[str, Any]:
        old, dataset = move.pin.entry, move.dataset
        plan = dataset.resolve(
            ReadInstruction.from_spec(old.split, slicing=old.slicing), slicing=old.slicing, rounding=old.rounding
        )
        config = config_of(old.order)
        source = _pin_source(dataset, plan, config)
        return make_entry(
            source, old.name, plan, read_config=config, locations=locations, processes=processes, advance=advance
        )


def _target(pin: Pin, to: str | None) -> Reference:
    """The reference that ``to`` is for a pin: its own request, another one of its dataset, or a whole reference."""
    if to is None:
        return Reference.parse(pin.entry.request)
    dataset = pin.reference.dataset
    try:
        wanted = Reference.parse(f"{dataset}{to}" if to.startswith("@") else f"{dataset}:{to}")
    except ReferenceSyntaxError:
        wanted = Reference.parse(to)
    if wanted.name != pin.reference.name:
        raise UsageError(
            f"the pin {pin.name!r} is of {dataset}, and {to} is not",
            hint=f"Pin it by itself: registry pin add {to} {pin.split} -o FILE",
        )
    return wanted


SplitLike: TypeAlias = str | ReadInstruction


def software() -> str:
    """What writes a pin file: this software and its version."""
    from importlib.metadata import version

    return f"shardbook {version('shardbook')}"


def pin_dataset(
    dataset: Dataset,
    splits: Sequence[SplitLike | Mapping[str, SplitLike]],
    *,
    into: PinFile | None,
    slicing: SlicingRule | str | None,
    rounding: str | None,
    read_config: ReadConfig | None,
    locations: Sequence[str],
    processes: int | None,
    advance: AdvanceBytes | None,
) -> PinFile:
    """The pin file of some slices of ``dataset``; see ``Dataset.pin``."""
    check_locations(locations)
    named: dict[str, SplitLike] = {}
    texts: list[SplitLike] = []
    plans: dict[str, Plan] = {}
    for one in splits:
        if isinstance(one, Mapping):
            check_names(one)
            if twice := [name for name in one if name in named and str(named[name]) != str(one[name])]:
                raise UsageError(
                    f"two slices have the name {twice[0]!r}: {named[twice[0]]} and {one[twice[0]]}",
                    hint="Give each slice a name of its own, e.g. train='train[:80%]' test='train[80%:]'.",
                )
            named |= one
        else:
            texts.append(one)
        for split in one.values() if isinstance(one, Mapping) else [one]:
            plan = dataset.resolve(split, slicing=slicing, rounding=rounding)
            if plans.setdefault(str(split), plan).instruction != plan.instruction:
                raise UsageError(
                    f"two slices are both written {split}, and their percents are rounded in different ways",
                    hint="Pin them one after the other, with into=.",
                )
    if not named and not texts:
        raise UsageError("there is nothing to pin", hint='Name split expressions: pin("train[:80%]", "test").')

    chosen = choose_names(
        {name: str(one) for name, one in named.items()},
        [str(one) for one in texts],
        lambda text: "+".join(plans[text].instruction.names),
        _taken_names(into, dataset.reference, set(plans)),
        str(dataset.reference),
    )
    if into is not None:  # before an hour is spent on hashing
        for name, text in chosen.items():
            if name in {*into} and (into[name].reference, into[name].split) != (dataset.reference, text):
                raise name_taken(into[name], text)
    entries = [
        make_entry(
            _pin_source(dataset, plans[text], read_config),
            name,
            plans[text],
            read_config=read_config,
            locations=locations,
            processes=processes,
            advance=advance,
        )
        for name, text in sorted(chosen.items(), key=lambda one: list(plans).index(one[1]))
    ]
    places = dataset.provenance.pin_places()
    made = PinFile.of(entries, created_by=software(), places=places)
    if into is None:
        return made
    return into.merged(made).with_places(replace(into.places, folders={**into.places.folders, **places.folders}))


def _pin_source(dataset: Dataset, plan: Plan, config: ReadConfig | None) -> PinSource:
    found = dataset.provenance
    return found.pin_source(found.readable_for(plan, dataset.features, config))


def _taken_names(into: PinFile | None, reference: Reference, texts: Collection[str]) -> set[str]:
    """The names of a file's pins that are of something else than these expressions of the version."""
    if into is None:
        return set()
    return {pin.name for pin in into.values() if pin.reference != reference or pin.split not in texts}


def catalog_pin_source(found: FoundNow, readable: ReadableVersion) -> PinSource:
    """What a catalog knows of a version that is pinned."""
    facts, wanted = found.facts, found.wanted
    builder = None if facts.version_to_prepare else _find_builder(facts.reference)
    packages = dict([software().split()])
    if builder is not None:
        packages[builder.package] = builder.version
    return PinSource(
        readable=readable,
        request=wanted,
        why=found.why,
        shards=found.all_shards,
        alias=None if wanted.alias is None else _alias_entry(found.catalog, wanted, facts, found.moment),
        builder=builder,
        packages=packages,
    )


def _alias_entry(
    catalog: Catalog, wanted: Reference, version: DatasetVersion, moment: datetime | None
) -> AliasEntry | None:
    """The alias that was named, and the last time, up to ``moment``, that it was set to this version."""
    moves = [
        move
        for move in catalog.aliases.history(wanted)
        if move.after == version.version and (moment is None or move.at <= moment)
    ]
    if not moves or wanted.alias is None:
        return None
    move = moves[-1]
    # In a pin file an actor is one line of text; in the log, whatever REGISTRY_ACTOR claimed.
    actor = " ".join(printable(move.actor).split())[:1000] or "unknown"
    return AliasEntry(name=wanted.alias, set_at=move.at.isoformat(), set_by=actor, message=move.message)


def _find_builder(reference: Reference) -> BuilderEntry | None:
    """The installed code that can build exactly this version, or None."""
    from registry.building import find_builder

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
