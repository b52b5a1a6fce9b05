"""What does a look-up give that is answered from a pin file? The pinned version: its pinned records, and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from registry.api.arguments import Moment
from registry.api.dataset import Dataset
from registry.errors import LockedError, SliceError, SplitNotFoundError
from registry.model import Considered, Reference, SlicingRule, Split, VersionStatus, no_experiment
from registry.pins import Pin, PinFile
from registry.pins.layout import counts_shards, splits_of
from registry.splits import Plan, ReadInstruction, RecordRange, resolve
from registry.splits.layout import common, without
from registry.splits.terms import ALL

if TYPE_CHECKING:
    from registry.order import ReadConfig
    from registry.reading import Reader
    from registry.splits import Explanation
    from registry.storage import Store


def find_pinned(pins: PinFile, wanted: Reference, *, at: Moment | None = None) -> PinnedDataset:
    """The pinned version that a reference names: the only one that it allows, or the one that was pinned for it.

    Raises:
        LockedError: none is pinned that it allows, or several are; or it is asked for ``at`` a moment.
    """
    if at is not None:
        raise LockedError(
            f"{wanted} is asked for as it stood at {at}, and look-ups are locked to a pin file, which knows no past",
            hint="Leave the moment out, or unlock.",
            details={"reference": str(wanted), "at": str(at)},
        )
    of_dataset = [pin for pin in pins.values() if pin.reference.dataset == wanted.dataset or _is_bare(pin, wanted)]
    allowed = [pin for pin in of_dataset if _answers(pin, wanted)]
    asked = [pin for pin in allowed if pin.entry.request == str(wanted)]
    found = list(dict.fromkeys(pin.reference for pin in asked or allowed))
    if len(found) != 1:
        known = list(dict.fromkeys(str(pin.reference) for pin in pins.values()))
        what = f"{wanted} could be {' or '.join(map(str, found))}" if found else f"{wanted} is not pinned"
        raise LockedError(
            f"{what}, and look-ups are locked to a pin file",
            hint=f"Pinned are: {', '.join(known[:12])}{' and more' if len(known) > 12 else ''}. "
            f"Add it with: registry pin add {wanted} SPLIT -o FILE",
            details={"reference": str(wanted), "pinned": known[:100]},
        )
    return PinnedDataset([pin for pin in of_dataset if pin.reference == found[0]], wanted=wanted)


class PinnedDataset(Dataset):
    """One version as some pins know it. Slices within the pinned records can be resolved and read; no catalog is asked.

    Attributes:
        pins: the pins of this version.
    """

    def __init__(self, pins: Sequence[Pin], *, wanted: Reference) -> None:
        self.pins = tuple(pins)
        self._joined = self.pins[0].joined(self.pins[1:])
        self._version = self._joined.version
        self._wanted = wanted

    @property
    def status(self) -> VersionStatus:
        """How it stood to the canonical version when it was pinned."""
        return VersionStatus(self.pins[0].entry.status)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know: that it was yanked, deprecated or experimental when it was pinned."""
        entry = self.pins[0].entry
        if entry.status in ("canonical", "supported"):
            return ()
        message = f": {entry.status_message}" if entry.status_message else ""
        return (f"{self.reference} was {entry.status} when it was pinned{message}",)

    @property
    def yank_note(self) -> str | None:
        """The note of a version that was yanked when it was pinned."""
        return self.notes[0] if self.pins[0].entry.status == "yanked" else None

    @cached_property
    def protected(self) -> str | None:
        """Nothing: pins name versions exactly."""
        return None

    @cached_property
    def why(self) -> tuple[str, ...]:
        """Why the look-up gave this version, in sentences."""
        names = ", ".join(pin.name for pin in self.pins)
        return (f"Look-ups are locked to a pin file, and its pins {names} are of it.", *self.pins[0].entry.why)

    @cached_property
    def considered(self) -> tuple[Considered, ...]:
        """Every version that the look-up considered: this one."""
        return (Considered(version=self.version, status=self.status, verdict="pinned"),)

    def implements(self, flag: str | Enum) -> bool:
        """Whether the version overrides an experiment, and how; what it does not override is not in its pins."""
        name = flag.name.lower() if isinstance(flag, Enum) else flag
        if name not in self.experiments:
            raise no_experiment(str(name), self.experiments, where=f"the pins of {self.reference}")
        return self.experiments[name]

    def resolve(
        self,
        split: str | ReadInstruction,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Plan:
        """The plan of a split expression, which may name pinned records only.

        Raises:
            LockedError: it names records that are not pinned.
            As ``Dataset.resolve``.
        """
        rule = self.slicing if slicing is None else SlicingRule.of(slicing)
        instruction = ReadInstruction.from_spec(split, slicing=rule).read_by(rule)
        if rounding is not None:
            instruction = instruction.with_rounding(rounding)
        for pin in self.pins:
            if (pin.plan.instruction, pin.plan.slicing) == (instruction, rule):
                return pin.plan
        if ALL in instruction.names or counts_shards(instruction.terms):
            raise self._not_pinned(split, "what it stands for hangs on splits or shards that are not in the pins")
        try:
            plan = resolve(instruction, self._layout, slicing=rule)
        except (SplitNotFoundError, SliceError) as error:
            raise self._not_pinned(split, error.message) from error
        if missing := without(plan.ranges, [one for pin in self.pins for one in pin.plan.ranges]):
            raise self._not_pinned(split, f"{_told(missing)} are not among the pinned records")
        return plan

    def explain(
        self,
        split: str | ReadInstruction,
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Explanation:
        """The plan of a split expression that names pinned records, with the reason for every bound.

        Raises:
            LockedError: it names records that are not pinned, or its reasons hang on shards that are not.
            As ``Dataset.explain``.
        """
        from registry.splits import explain

        plan = self.resolve(split, slicing=slicing, rounding=rounding)
        if ALL in plan.instruction.names or counts_shards(plan.instruction.terms):
            raise self._not_pinned(split, "its reasons hang on splits or shards that are not in the pins")
        return explain(plan.instruction, self._layout, slicing=plan.slicing)

    @cached_property
    def _layout(self) -> Mapping[str, Split]:
        """The splits with lengths for every shard, where those that are not pinned are only laid into their gap."""
        return {split.name: split for split in splits_of(self._joined.entry)}

    def _read_plan(self, plan: Plan, read_config: ReadConfig | None, **options: Any) -> Reader:
        """The examples of a plan of pinned records; in the pinned order, where it is a pin's own.

        Raises:
            LockedError: two pins have it in different orders.
            RecordsMismatchError: the stored files hold other records than were pinned.
        """
        own = [pin for pin in self.pins if (pin.plan.instruction, pin.plan.slicing) == (plan.instruction, plan.slicing)]
        if len({pin.read_config for pin in own}) > 1 and read_config is None:
            raise LockedError(
                f"{self.reference} {plan.expression} is pinned in several orders: {', '.join(pin.name for pin in own)}",
                hint="Read the pin itself, registry.load_pin(FILE)[NAME].read(), or give a read_config.",
                details={"reference": str(self.reference), "pins": [pin.name for pin in own]},
            )
        if own:
            return own[0].read(read_config, **options)
        # The files of other pins need not be there.
        whole = [pin for pin in self.pins if not without(plan.ranges, pin.plan.ranges)]
        holders = whole[:1] or [pin for pin in self.pins if common(plan.ranges, pin.plan.ranges)]
        for pin in holders:
            pin.check_samples()
        return holders[0].joined(holders[1:]).read_plan(plan, read_config, **options)

    @property
    def _catalog(self) -> NoReturn:
        """Nothing here asks a catalog; what does, as pinning and verifying whole versions, is refused."""
        raise LockedError(
            f"{self.reference} was answered from a pin file, and this needs the catalog",
            hint="Do it outside the lock. Pins are verified by themselves: registry.load_pin(FILE)[NAME].verify().",
        )

    def _store(self) -> Store:
        return self._joined.store()

    def _not_pinned(self, split: str | ReadInstruction, why: str) -> LockedError:
        texts = ", ".join(pin.split for pin in self.pins)
        return LockedError(
            f"{self.reference} {split} is not pinned: {why}",
            hint=f"Pinned are {texts}, and slices within them.",
            details={"reference": str(self.reference), "split": str(split), "pinned": [pin.split for pin in self.pins]},
        )


def _is_bare(pin: Pin, wanted: Reference) -> bool:
    """Whether the reference leaves the config open, and names the pin's dataset."""
    return wanted.config is None and pin.reference.name == wanted.name


def _answers(pin: Pin, wanted: Reference) -> bool:
    if wanted.alias is not None:
        return pin.entry.alias is not None and pin.entry.alias.name == wanted.alias
    return wanted.request is None or wanted.request.allows(pin.version.version)


def _told(ranges: Sequence[RecordRange]) -> str:
    shown = ", ".join(f"records {one.start}..{one.stop} of {one.split}" for one in ranges[:3])
    return f"{shown} and more" if len(ranges) > 3 else shown
