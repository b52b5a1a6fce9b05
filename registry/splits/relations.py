"""How do the records of two plans stand to each other? Disjoint, covering, equal, subset: decided on ranges.

A plan is taken as the set of records that it reads; order and repetition do not matter here (``Plan.overlaps`` names
what is read twice). A proof costs the same for a thousand records and for a million million.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from registry.errors import UsageError
from registry.splits.layout import RecordRange, ShardedSplit
from registry.splits.plan import Plan
from registry.splits.ranges import Ranges, common, merged, shared, without


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """What two plans have in common, and what only one of them has.

    Attributes:
        common: the records that both read.
        only_first, only_second: the records that only one of them reads.
        missing: the records, of the splits that either of them names, that neither reads.
    """

    common: Ranges
    only_first: Ranges
    only_second: Ranges
    missing: Ranges

    @property
    def is_disjoint(self) -> bool:
        """No record is in both."""
        return not self.common

    @property
    def is_equal(self) -> bool:
        """Both read the same records."""
        return not self.only_first and not self.only_second

    @property
    def is_subset(self) -> bool:
        """Every record of the first is in the second."""
        return not self.only_first

    @property
    def is_superset(self) -> bool:
        """Every record of the second is in the first."""
        return not self.only_second

    @property
    def is_covering(self) -> bool:
        """Together they read every record of the splits that they name; ``all`` names every split."""
        return not self.missing

    @property
    def kind(self) -> str:
        """``equal``, ``subset``, ``superset``, ``disjoint`` or ``overlapping``: the first that is true."""
        for kind in ("equal", "subset", "superset", "disjoint"):
            if getattr(self, f"is_{kind}"):
                return kind
        return "overlapping"


def relation(first: Plan, second: Plan) -> Relation:
    """How the records of two plans of the same layout stand to each other.

    >>> from registry.splits import resolve
    >>> layout = {"train": [50, 51]}
    >>> train, validation = resolve("train[:80%]", layout), resolve("train[79%:]", layout)
    >>> found = relation(train, validation)
    >>> found.kind, found.is_covering, found.common
    ('overlapping', True, (RecordRange(split='train', start=80, stop=81),))

    Raises:
        UsageError: no plan, or plans of different layouts: a split has other shards in the second.
    """
    _check_one_layout([first, second])
    return Relation(
        common=common(first.ranges, second.ranges),
        only_first=without(first.ranges, second.ranges),
        only_second=without(second.ranges, first.ranges),
        missing=uncovered([first, second]),
    )


def overlaps_between(plans: Iterable[Plan]) -> dict[tuple[int, int], Ranges]:
    """What any two plans have in common, by their places; empty where all are disjoint. Errors as ``relation``."""
    compared = _check_one_layout(plans)
    return shared([plan.ranges for plan in compared])


def uncovered(plans: Iterable[Plan], *, of: Plan | None = None) -> Ranges:
    """The records of ``of`` that no plan reads; without it, of every split that the plans name. Errors as ``relation``.

    >>> from registry.splits import resolve
    >>> uncovered([resolve("train[:33]", {"train": [101]}), resolve("train[34:]", {"train": [101]})])
    (RecordRange(split='train', start=33, stop=34),)
    """
    covering = tuple(plans)
    _check_one_layout([*covering, of] if of is not None else covering)
    whole = merged(of.ranges) if of is not None else _whole_splits(covering)
    return without(whole, [one for plan in covering for one in plan.ranges])


def _whole_splits(plans: Sequence[Plan]) -> list[RecordRange]:
    sizes = {split.name: split.shard_lengths.num_examples for plan in plans for split in plan.splits}
    return [RecordRange(split=name, start=0, stop=size) for name, size in sizes.items()]


def _check_one_layout(plans: Iterable[Plan]) -> tuple[Plan, ...]:
    """``plans``, which may be read once only, after a look at their splits."""
    compared = tuple(plans)
    known: dict[str, ShardedSplit] = {}
    for plan in compared:
        if not isinstance(plan, Plan):
            raise UsageError(
                f"plans are compared, not {plan!r:.60}",
                hint="Resolve the expression first, or use dataset.relation(), which takes texts.",
            )
        for split in plan.splits:
            other = known.setdefault(split.name, split)
            if (split.shard_lengths, split.files) != (other.shard_lengths, other.files):
                raise UsageError(
                    f"these plans are of different layouts: they do not have the same shards of {split.name!r}",
                    hint="Resolve both expressions on the same dataset version.",
                )
    return compared
