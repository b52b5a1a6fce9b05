"""Pins slices of a dataset, and checks and updates pin files against a catalog.

``Dataset.pin`` calls ``pin_dataset``, and ``Catalog.pins`` is a ``CatalogPins``. Pin files are read and written in
``registry.pins``, which also measures the records.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from registry.api.arguments import read_reference
from registry.api.provenance import software
from registry.argument_types import typed_methods
from registry.engines import announces
from registry.errors import (
    FetchNotAllowedError,
    LockedError,
    NotFoundError,
    NotStoredError,
    RecordsMismatchError,
    ReferenceSyntaxError,
    UsageError,
    WrongTypeError,
)
from registry.masking import mask
from registry.model import Reference, count_progress
from registry.pins import Pin, PinFile, choose_names, make_entry
from registry.pins.citation import Citation
from registry.pins.create import check_locations, check_names
from registry.pins.layout import config_of, folder_of
from registry.pins.pin_file import name_taken
from registry.splits import ReadInstruction

if TYPE_CHECKING:
    from registry.api.arguments import DatasetLike
    from registry.api.sliced_version import SlicedVersion
    from registry.catalog import CatalogBackend
    from registry.model import Advance, ProgressCallback, SlicingRule
    from registry.order import ReadConfig
    from registry.pins import PinSource
    from registry.publishing import VersionDiff
    from registry.splits import Plan


SplitLike: TypeAlias = str | ReadInstruction


@dataclass(frozen=True, slots=True, kw_only=True)
class PinState:
    """The state that the version of a pin has in the catalog today.

    Attributes:
        name, reference, split: the pin.
        state: state of the version in the catalog, or ``"unknown"`` if the catalog does not have it.
        message: the reason for that state; or that the catalog has other content under the number.
        is_withdrawn: whether the version is yanked, dropped or unknown, or has other content.
        corrected: ``license`` and ``citation``, if they differ in the catalog from what was pinned.
    """

    name: str
    reference: Reference
    split: str
    state: str
    message: str
    is_withdrawn: bool
    corrected: tuple[str, ...] = ()

    @property
    def correction(self) -> str | None:
        """A note that the metadata was corrected since it was pinned, or None. The pin itself does not change."""
        if not self.corrected:
            return None
        return f"the {' and '.join(self.corrected)} of {self.reference} changed in the catalog since it was pinned"

    @property
    def yank_note(self) -> str | None:
        """The warning for readers of a yanked or dropped version, or None."""
        if self.state not in ("yanked", "dropped"):
            return None
        return f"{self.reference} is {self.state}{f': {self.message}' if self.message else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinAudit(PinState):
    """The state of a pin today.

    Attributes:
        folder: path or URL of the folder with its files, or None.
        missing: which files are missing, and which locations in the pin were not requested because they are not
            allowed; ``""`` if all files exist and have the right size.
        today: the version that the request resolves to today, or None if that is the pinned one or look-ups are locked.
    """

    folder: str | None
    missing: str
    today: Reference | None

    @property
    def is_good(self) -> bool:
        """Whether the version may be used and its files exist."""
        return not self.is_withdrawn and not self.missing


@dataclass(frozen=True, slots=True, kw_only=True)
class PinMove:
    """A pin and the version that it would move to.

    Attributes:
        pin: the pin.
        dataset: the version that it would move to.
        diff: the differences between the two versions; None if the pin does not move or they cannot be compared.
        unseen: why the versions cannot be compared, or ``""``.
    """

    pin: Pin
    dataset: SlicedVersion
    diff: VersionDiff | None
    unseen: str = ""

    @property
    def is_move(self) -> bool:
        """Whether the pin would move to another version, or to other content."""
        digest = f"sha256:{self.dataset.facts.content_digest}"
        return (self.dataset.reference, digest) != (self.pin.reference, self.pin.entry.version_digest)


@typed_methods
class CatalogPins:
    """``catalog.pins``: check and update pin files against the catalog."""

    def __init__(
        self, backend: CatalogBackend, *, look_up: Callable[..., SlicedVersion], diff: Callable[..., VersionDiff]
    ) -> None:
        """``look_up`` and ``diff`` are the methods of the ``Catalog``."""
        self._backend = backend
        self._look_up = look_up
        self._diff = diff

    def states(self, pins: Iterable[Pin]) -> tuple[PinState, ...]:
        """The state that the version of each pin has in the catalog.

        Args:
            pins: pins of one or more files, such as ``pins.values()`` of a ``PinFile``.

        Raises:
            WrongTypeError: an item is not a Pin.
        """
        pins = list(pins)
        _require_all(pins, Pin, "pins", hint="The pins of a file are its values: pin_file.values().")
        return tuple(PinState(**self._state(pin)) for pin in pins)

    def audit(self, pins: PinFile) -> tuple[PinAudit, ...]:
        """Check every pin of a file: the state of its version today, and whether its files exist.

        Args:
            pins: the file.
        """
        return tuple(map(self._audit, self.place(pins).values()))

    def place(self, pins: PinFile) -> PinFile:
        """The same pins, with the folders from which this catalog reads the versions added to the places to search.

        Args:
            pins: the file.
        """
        folders: dict[str, str] = {}
        for pin in pins.values():
            try:
                folders[folder_of(pin.entry)] = self._look_up(pin.reference).folder
            except (NotFoundError, LockedError):  # under a lock, the version already has its folder
                continue
        return pins.with_places(replace(pins.places, folders=folders))

    @announces("comparing", other="pins")
    def preview_update(
        self,
        pins: PinFile,
        *,
        names: Collection[str] = (),
        to: DatasetLike | None = None,
        show: int = 5,
        progress: ProgressCallback | None = None,
    ) -> tuple[PinMove, ...]:
        """Find the versions that pins would move to, and compare them record by record. Nothing is written.

        Args:
            pins: the file.
            names: names of the pins to move. Empty means all.
            to: the version to move to, as in ``Catalog.dataset``, or only a version request (``"2.*"``, ``"@paper"``).
                None looks up the request of each pin again.
            show: describe at most this many differing records of each split.
            progress: called with a ``Progress``, in records.

        Raises:
            NotFoundError, VersionWithdrawnError: no version matches.
            PinNotFoundError: the file has no pin of that name.
            UsageError: ``to`` names another dataset, or has a wrong type.
        """
        chosen = [pins[name] for name in names] if names else list(pins.values())
        return tuple(self._preview(pin, to, show=show, progress=progress) for pin in chosen)

    @announces("pinning", other="moved versions")
    def update(
        self,
        pins: PinFile,
        moves: Sequence[PinMove] = (),
        *,
        names: Collection[str] = (),
        locations: Sequence[str] | None = None,
        processes: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> PinFile:
        """Move pins: resolve the same expression, slicing rule and order in the new version, and hash its records.

        Passwords and signatures in URLs, which older releases accepted, are removed from every pin.

        Args:
            pins: the file. It is not changed.
            moves: the result of ``preview_update``.
            names: names of the pins that get ``locations`` if nothing moves. Empty means all.
            locations: URLs of folders to add to the pins that move, or, without moves, to the pins of ``names``.
            processes: number of processes that hash. None decides by size.
            progress: called with a ``Progress``, in bytes.

        Returns:
            The updated pins; ``save`` writes them.

        Raises:
            PinNotFoundError: the file has no pin of that name.
            UsageError: ``locations`` is not a list of lines of text, or ``moves`` is not a list of PinMoves.
            SplitNotFoundError, SliceError: the new version does not have these records.
            ShardMismatchError, CorruptRecordError, StorageError: a file differs from the published one, or cannot be
                read.
        """
        check_locations(locations or ())
        _require_all(moves, PinMove, "moves", hint="Pass the result of preview_update.")
        pins = pins.without_secrets()
        chosen = {pins[name].name for name in names or pins}
        total = sum(2 * file.num_bytes for move in moves if move.is_move for file in move.pin.entry.files)
        advance = count_progress(progress, "hashing", "pinned files", total=total, unit="bytes")  # files, then records
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

    @announces("pinning", other="the cited records")
    def from_citation(
        self,
        text: str | Citation,
        *,
        processes: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> PinFile:
        """Create the pin that a citation in a paper names, and compare its records with the citation.

        Args:
            text: the short form, e.g. ``digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac``.
            processes: number of processes that hash. None decides by size.
            progress: called with a ``Progress``, in bytes.

        Raises:
            CitationSyntaxError: the text is not a citation.
            NotFoundError: the catalog does not have the version, or the version does not have the split.
            SliceError: the split has fewer records than the citation names.
            RecordsMismatchError: the records differ from the cited ones.
            ShardMismatchError, CorruptRecordError, StorageError: a file differs from the published one, or cannot be
                read.
        """
        citation = Citation.parse(text) if isinstance(text, str) else text
        dataset = self._look_up(citation.reference)
        pins = pin_dataset(
            dataset,
            [ReadInstruction.from_spec(citation.split, slicing=citation.slicing)],
            slicing=citation.slicing,
            rounding=citation.rounding,
            processes=processes,
            progress=progress,
        )
        renamed = citation
        if dataset.reference.config == citation.reference.config:  # a paper keeps the former name of the dataset
            renamed = replace(citation, reference=dataset.reference)
        differences = renamed.differences(next(iter(pins.values())).entry)
        if differences:
            raise RecordsMismatchError(
                f"{citation}: the records in the catalog differ: {'; '.join(differences)}",
                hint="Compare the text with the paper. If the text is right, the paper cites another catalog.",
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
        dataset = pin.reference
        try:
            standing = self._backend.standing(dataset.name, dataset.config)
        except NotFoundError as error:
            return described(state="unknown", message=error.message, is_withdrawn=True)
        candidate = standing.find(pin.version.version)
        if candidate is None:
            return described(state="unknown", message=f"the catalog has no {pin.reference}", is_withdrawn=True)
        state = standing.status(candidate).value
        version = self._backend.published(dataset.name, dataset.config, pin.version.version)
        if version is None or f"sha256:{version.content_digest}" != pin.entry.version_digest:
            message = "the content under this number in the catalog differs from the pinned content"
            return described(state=state, message=message, is_withdrawn=True)
        message = candidate.described.partition(": ")[2]
        names = ("license", "citation")
        corrected = tuple(name for name in names if getattr(version.metadata, name) != getattr(pin.entry, name))
        return described(state=state, message=message, is_withdrawn=candidate.is_withdrawn, corrected=corrected)

    def _today(self, pin: Pin) -> Reference | None:
        try:
            result = self._look_up(pin.entry.request).reference
        except (NotFoundError, LockedError):  # a locked program must not depend on today's answer
            return None
        return None if result == pin.reference else result

    def _preview(self, pin: Pin, to: DatasetLike | None, *, show: int, progress: ProgressCallback | None) -> PinMove:
        wanted = _target(pin, to)
        dataset = self._look_up(wanted)
        if not dataset.facts.is_called(pin.reference.name):
            raise UsageError(
                f"the pin {pin.name!r} belongs to {pin.reference.dataset}, and {wanted} is another dataset",
                hint=f"Pin it separately: registry pin add {shlex.join([str(wanted), pin.split])} -o FILE",
            )
        move = PinMove(pin=pin, dataset=dataset, diff=None)
        if not move.is_move:
            return move
        try:
            result = self._diff(pin.reference, dataset, show=show, progress=progress)
            return replace(move, diff=result)
        except NotFoundError as error:
            return replace(move, unseen=error.message)

    def _entry(
        self, move: PinMove, locations: Sequence[str], *, processes: int | None, advance: Advance | None
    ) -> dict[str, Any]:
        old, dataset = move.pin.entry, move.dataset
        plan = dataset.resolve(
            ReadInstruction.from_spec(old.split, slicing=old.slicing), slicing=old.slicing, rounding=old.rounding
        )
        config = config_of(old.order)
        source = _source_of(dataset, plan, config)
        return make_entry(
            source, old.name, plan, read_config=config, locations=locations, processes=processes, advance=advance
        )


def pin_dataset(
    dataset: SlicedVersion,
    splits: Sequence[SplitLike | Mapping[str, SplitLike]],
    *,
    into: PinFile | None = None,
    slicing: SlicingRule | str | None,
    rounding: str | None,
    read_config: ReadConfig | None = None,
    locations: Sequence[str] = (),
    processes: int | None,
    progress: ProgressCallback | None,
) -> PinFile:
    """The pin file of some slices of ``dataset``; see ``Dataset.pin``."""
    check_locations(locations)
    named: dict[str, SplitLike] = {}
    texts: list[SplitLike] = []
    plans: dict[str, Plan] = {}
    for argument in splits:
        if isinstance(argument, Mapping):
            check_names(argument)
            if twice := [name for name in argument if name in named and str(named[name]) != str(argument[name])]:
                raise UsageError(
                    f"two slices have the name {twice[0]!r}: {named[twice[0]]} and {argument[twice[0]]}",
                    hint="Give each slice its own name, e.g. train='train[:80%]' test='train[80%:]'.",
                )
            named |= argument
        else:
            texts.append(argument)
        for split in argument.values() if isinstance(argument, Mapping) else [argument]:
            plan = dataset.resolve(split, slicing=slicing, rounding=rounding)
            if plans.setdefault(str(split), plan).instruction != plan.instruction:
                raise UsageError(
                    f"two slices have the text {split}, but round percentages differently",
                    hint="Pin them one after the other, with into=.",
                )
    if not named and not texts:
        raise UsageError("no slices to pin", hint='Pass split expressions: pin("train[:80%]", "test").')

    chosen = choose_names(
        {name: str(expression) for name, expression in named.items()},
        [str(expression) for expression in texts],
        lambda text: "+".join(plans[text].instruction.names),
        _taken_names(into, dataset.reference, set(plans)),
        str(dataset.reference),
    )
    if into is not None:  # hashing may take an hour: check this first
        for name, text in chosen.items():
            if name in {*into} and (into[name].reference, into[name].split) != (dataset.reference, text):
                raise name_taken(into[name], text)
    total = None if progress is None else _num_bytes(dataset, [plans[text] for text in chosen.values()])
    advance = count_progress(progress, "hashing", str(dataset.reference), total=total, unit="bytes")
    entries = [
        make_entry(
            _source_of(dataset, plans[text], read_config),
            name,
            plans[text],
            read_config=read_config,
            locations=locations,
            processes=processes,
            advance=advance,
        )
        for name, text in sorted(chosen.items(), key=lambda pair: list(plans).index(pair[1]))
    ]
    places = dataset.provenance.source.pin_places()
    result = PinFile.of(entries, created_by=software(), places=places)
    if into is None:
        return result
    return into.merged(result).with_places(replace(into.places, folders={**into.places.folders, **places.folders}))


def _num_bytes(dataset: SlicedVersion, plans: Sequence[Plan]) -> int:
    """The number of bytes to hash: whole files, and then the records of the plans."""
    total = 0
    for plan in plans:
        touched = {file.filename for file in plan}
        for split in plan.splits:
            found = dataset.splits[split.name]
            sizes = [shard.num_bytes for shard in dataset.shards(split.name) if found.filename(shard.index) in touched]
            taken = sum(span.num_examples for span in plan.ranges if span.split == split.name)
            total += sum(sizes) + found.num_bytes * taken // max(found.num_examples, 1)
    return total


def _source_of(dataset: SlicedVersion, plan: Plan, config: ReadConfig | None) -> PinSource:
    """The facts that a pin records about the version and its catalog, with the features that were read."""
    provenance = dataset.provenance
    return provenance.source.pin_source(provenance, provenance.source.readable(dataset.features, plan, config))


def _taken_names(into: PinFile | None, reference: Reference, texts: Collection[str]) -> set[str]:
    """The names in a file that are taken by pins of another version or another expression."""
    if into is None:
        return set()
    return {pin.name for pin in into.values() if pin.reference != reference or pin.split not in texts}


def _require_all(values: Sequence[Any], kind: type, name: str, *, hint: str) -> None:
    for value in values:
        if not isinstance(value, kind):
            raise WrongTypeError(f"{name} must contain {kind.__name__} values, not {type(value).__name__}", hint=hint)


def _target(pin: Pin, to: DatasetLike | None) -> Reference:
    """The reference that a pin moves to: its own request, another request of its dataset, or a whole reference."""
    if to is None:
        return Reference.parse(pin.entry.request)
    dataset = pin.reference.dataset
    try:
        wanted = Reference.parse(f"{dataset}{to if to.startswith('@') else f':{to}'}") if isinstance(to, str) else None
    except ReferenceSyntaxError:
        wanted = None
    return wanted or read_reference(to)
