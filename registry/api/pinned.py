"""Answers look-ups from a pin file: ``find_pinned`` finds the pinned version, and ``PinFileSource`` is its source.

Only slices within the pinned records can be resolved and read.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from registry.api.dataset import Dataset
from registry.api.provenance import Provenance
from registry.errors import LockedError, SliceError, SplitNotFoundError, UsageError
from registry.model import Considered, Reference, SlicingRule, VersionStatus, content_digest
from registry.pins.layout import counts_shards, shards_of, splits_of
from registry.pins.pin import join_pins
from registry.splits import ReadInstruction, resolve
from registry.splits.layout import common, without
from registry.splits.terms import ALL

if TYPE_CHECKING:
    from registry.api.arguments import Moment
    from registry.api.provenance import Reasons
    from registry.features import FeaturesDict
    from registry.model import Attachment, Shard, Split
    from registry.order import ReadConfig
    from registry.pins import Pin, PinFile, PinSource, Places
    from registry.publishing import ShardFault, VerifyReport
    from registry.reading import ReadableVersion, Slice
    from registry.reading.column_filling import ColumnsReport
    from registry.splits import Explanation, Plan, RecordRange
    from registry.storage import Store


def find_pinned(pins: PinFile, reference: Reference, *, at: Moment | None = None) -> Dataset:
    """The pinned version that a reference resolves to: the only match, or the version that was pinned for it.

    Raises:
        LockedError: no version in the pins matches, or several do; or ``at`` is given.
    """
    if at is not None:
        raise LockedError(
            f"cannot look up {reference} as of {at}: look-ups are locked to a pin file, which does not record the past",
            hint="Leave out the moment, or do the look-up outside of the lock.",
            details={"reference": str(reference), "at": str(at)},
        )
    of_dataset = [
        pin for pin in pins.values() if pin.reference.dataset == reference.dataset or _is_bare(pin, reference)
    ]
    allowed = [pin for pin in of_dataset if _answers(pin, reference)]
    asked = [pin for pin in allowed if pin.entry.request == str(reference)]
    found = list(dict.fromkeys(pin.reference for pin in asked or allowed))
    if len(found) != 1:
        known = list(dict.fromkeys(str(pin.reference) for pin in pins.values()))
        subject = f"{reference} could be {' or '.join(map(str, found))}" if found else f"{reference} is not pinned"
        raise LockedError(
            f"{subject}, and look-ups are locked to a pin file",
            hint=f"The file pins: {', '.join(known[:12])}{' and more' if len(known) > 12 else ''}. "
            f"Add it with: registry pin add {shlex.quote(str(reference))} SPLIT -o FILE",
            details={"reference": str(reference), "pinned": known[:100]},
        )
    pinned = [pin for pin in of_dataset if pin.reference == found[0]]
    source, entry = PinFileSource(pinned), pinned[0].entry
    status = VersionStatus(entry.status)
    notes: tuple[str, ...] = ()
    if status not in (VersionStatus.CANONICAL, VersionStatus.SUPPORTED):
        message = f": {entry.status_message}" if entry.status_message else ""
        notes = (f"{found[0]} was {entry.status} when it was pinned{message}",)
    provenance = Provenance(
        source=source,
        wanted=reference,
        status=status,
        notes=notes,
        yank_note=notes[0] if status is VersionStatus.YANKED else None,
    )
    return Dataset(source.facts, provenance)


class PinFileSource:
    """A version as some pins record it. No catalog is used.

    ``VersionSource`` describes each method.

    Attributes:
        pins: the pins of this version.
        facts: what they record about it.
    """

    name = "the pin file"

    def __init__(self, pins: Sequence[Pin]) -> None:
        self.pins = tuple(pins)
        self._joined = join_pins(self.pins)
        self.facts = self._joined.version

    def reasons(self, wanted: Reference) -> Reasons:  # noqa: ARG002 (the pins have this version)
        """A sentence that look-ups are locked, and the reasons why the version was chosen when it was pinned."""
        names, entry = ", ".join(pin.name for pin in self.pins), self.pins[0].entry
        locked = f"Look-ups are locked to a pin file, and its pins {names} have this version."
        considered = Considered(version=self.facts.version, status=VersionStatus(entry.status), verdict="pinned")
        return (locked, *entry.why), (considered,)

    def protection(self, moment: datetime | None) -> None:
        """Pins do not record it."""

    def flags(self) -> Mapping[str, bool]:
        """The experiment flags that the version overrides. Pins do not record defaults."""
        return self.facts.experiments

    def resolve(self, split: str | ReadInstruction, *, slicing: SlicingRule | str, rounding: str | None) -> Plan:
        """The plan of a split expression that names pinned records only.

        Raises:
            LockedError: it names other records.
        """
        rule = SlicingRule.of(slicing)
        instruction = ReadInstruction.from_spec(split, slicing=rule).read_by(rule)
        if rounding is not None:
            instruction = instruction.with_rounding(rounding)
        for pin in self.pins:
            if (pin.plan.instruction, pin.plan.slicing) == (instruction, rule):
                return pin.plan
        if ALL in instruction.names or counts_shards(instruction.terms):
            raise self._not_pinned(split, "its records depend on splits or shards that are not pinned")
        try:
            plan = resolve(instruction, self._layout, slicing=rule)
        except (SplitNotFoundError, SliceError) as error:
            raise self._not_pinned(split, error.message) from error
        if missing := without(plan.ranges, [span for pin in self.pins for span in pin.plan.ranges]):
            raise self._not_pinned(split, f"{_describe_ranges(missing)} are not among the pinned records")
        return plan

    def explain(self, split: str | ReadInstruction, *, slicing: SlicingRule | str, rounding: str | None) -> Explanation:
        """The plan, with the reason for every bound.

        Raises:
            LockedError: it names records that are not pinned, or its reasons depend on shards that are not pinned.
        """
        from registry.splits import explain

        plan = self.resolve(split, slicing=slicing, rounding=rounding)
        if ALL in plan.instruction.names or counts_shards(plan.instruction.terms):
            raise self._not_pinned(split, "its reasons depend on splits or shards that are not pinned")
        return explain(plan.instruction, self._layout, slicing=plan.slicing)

    def store(self) -> Store:
        """The folder in which the files of the pins were found. It is searched for only once."""
        return self._store

    @cached_property
    def _store(self) -> Store:
        return self._joined.store()

    def readable(
        self,
        features: FeaturesDict,  # noqa: ARG002 (pins decode their own schema)
        plan: Plan | None = None,
        config: ReadConfig | None = None,
    ) -> ReadableVersion:
        """The files that a plan of pinned records needs, in the pinned order if the plan is that of a pin.

        The first, the middle and the last record of every pin involved are compared with the pin.

        Raises:
            LockedError: several pins have this plan in different orders, and ``config`` is None.
            RecordsMismatchError: the stored files contain other records than the pinned ones.
        """
        if plan is None:
            return self._joined.readable
        own = [pin for pin in self.pins if (pin.plan.instruction, pin.plan.slicing) == (plan.instruction, plan.slicing)]
        if len({pin.read_config for pin in own}) > 1 and config is None:
            raise LockedError(
                f"{self.facts.reference} {plan.expression} is pinned in several orders: "
                f"{', '.join(pin.name for pin in own)}",
                hint="Read the pin itself, registry.load_pin(FILE)[NAME].read(), or pass a read_config.",
                details={"reference": str(self.facts.reference), "pins": [pin.name for pin in own]},
            )
        # The files of other pins need not exist.
        whole = own or [pin for pin in self.pins if not without(plan.ranges, pin.plan.ranges)]
        holders = whole[:1] or [pin for pin in self.pins if common(plan.ranges, pin.plan.ranges)]
        for pin in holders:
            pin.check_samples()
        return join_pins(holders).readable

    def slices(self, features: FeaturesDict) -> Iterator[Slice]:  # noqa: ARG002 (the same)
        for pin in self.pins:
            yield pin.slice_of()

    def shards(self, split: str, *, all_shards: bool = False) -> tuple[Shard, ...]:
        """The shards that the pins name. If they are all shards of the version, its content digest proves that.

        Raises:
            LockedError: ``all_shards`` is True, and the pins name only some of them.
        """
        if all_shards and not self._are_whole:
            raise LockedError(
                f"{self.facts.reference} was found in a pin file that does not name every shard of the version",
                hint="Do this outside of the lock. To verify a pin: registry.load_pin(FILE)[NAME].verify()",
                details={"reference": str(self.facts.reference), "split": split},
            )
        return shards_of(self._joined.entry, split)

    def attachments(self) -> tuple[Attachment, ...]:
        """None: pins do not record them."""
        return ()

    def read_attachment(self, attachment: Attachment) -> bytes:
        raise AssertionError(f"pins do not record {attachment.name}")

    def require_publisher(self) -> None:
        """Nothing is written."""

    def attach(self, attachment: Attachment, content: bytes) -> None:
        """Do nothing: a pin file cannot have attachments."""

    def attach_columns(self, readable: ReadableVersion, *_: Any, **__: Any) -> ColumnsReport:
        raise UsageError(
            f"{readable.facts.reference} comes from a pin file, to which nothing can be attached",
            hint="Look the version up in its catalog.",
        )

    def attachment_faults(self) -> Iterator[ShardFault]:
        yield from ()

    def describe_foreign(self, report: VerifyReport) -> VerifyReport:
        return report.name_foreign(lambda _: {}, "Get the pinned files again: registry pin restore FILE")

    def remember(self, wanted: Reference) -> None:
        """Do nothing: the pin file has the facts."""

    def is_default_config(self) -> bool:
        return False

    def pin_source(self, provenance: Provenance, readable: ReadableVersion) -> PinSource:
        """The version as it was pinned. A pin of another slice records the same origin."""
        from registry.pins import PinSource

        entry = self.pins[0].entry
        return PinSource(
            readable=readable,
            request=Reference.parse(entry.request),
            why=entry.why,
            shards=self.shards,
            alias=entry.alias,
            status=provenance.status,
            provenance=entry.provenance,
        )

    def pin_places(self) -> Places:
        return self._joined.places

    @cached_property
    def _layout(self) -> Mapping[str, Split]:
        """The splits with a length for every shard. Shards that are not pinned only fill the gaps."""
        return {split.name: split for split in splits_of(self._joined.entry)}

    @cached_property
    def _are_whole(self) -> bool:
        """Whether the pins name every shard of every split of the version."""
        facts, layout = self.facts, self._layout
        shards = {name: self.shards(name) for name in layout}
        return all(len(shards[name]) == split.num_shards for name, split in layout.items()) and (
            facts.content_digest
            == content_digest(
                features_json=facts.features_json,
                labels=facts.labels,
                file_format=facts.file_format,
                slicing=facts.slicing,
                disable_shuffling=facts.disable_shuffling,
                splits=tuple(layout.values()),
                shards=shards,
            )
        )

    def _not_pinned(self, split: str | ReadInstruction, why: str) -> LockedError:
        texts = ", ".join(pin.split for pin in self.pins)
        return LockedError(
            f"{self.facts.reference} {split} is not pinned: {why}",
            hint=f"Slices within these are pinned: {texts}.",
            details={
                "reference": str(self.facts.reference),
                "split": str(split),
                "pinned": [pin.split for pin in self.pins],
            },
        )


def _is_bare(pin: Pin, reference: Reference) -> bool:
    """Whether the reference has no config, and names the dataset of the pin."""
    return reference.config is None and pin.reference.name == reference.name


def _answers(pin: Pin, reference: Reference) -> bool:
    if reference.alias is not None:
        return pin.entry.alias is not None and pin.entry.alias.name == reference.alias
    return reference.request is None or reference.request.allows(pin.version.version)


def _describe_ranges(ranges: Sequence[RecordRange]) -> str:
    listing = ", ".join(f"records {span.start}..{span.stop} of {span.split}" for span in ranges[:3])
    return f"{listing} and more" if len(ranges) > 3 else listing
