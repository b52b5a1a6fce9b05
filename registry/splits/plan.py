"""Plans: a lazy sequence of FileInstructions for some record ranges, and comparisons of plans.

The last step of ``text -> ReadInstruction -> record ranges -> FileInstructions``; readers run the plan. ``relation``,
``overlaps_between`` and ``uncovered`` compare plans as sets of records, in time that depends on the number of ranges
and not on the number of records. ``Plan.overlaps`` lists the records that one plan reads more than once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

from registry.envelope import fields_of
from registry.errors import SliceError, UsageError
from registry.model import ShardSpan, SlicingRule, counted
from registry.splits.layout import (
    Located,
    Ranges,
    RecordRange,
    ShardedSplit,
    common,
    merged,
    repeated,
    shared,
    without,
)

if TYPE_CHECKING:
    from registry.order import Order, ReadConfig
    from registry.splits.instruction import ReadInstruction


class _Fields(NamedTuple):
    filename: str
    skip: int
    take: int
    examples_in_shard: int
    split: str
    shard: int


class FileInstruction(_Fields):
    """The records to read from one file: skip ``skip`` records, then read ``take``.

    The first four fields are those of TFDS's ``FileInstruction``, except that ``take`` is always a number, never -1 for
    "all". It is a named tuple, because a plan may create hundreds of thousands of them.

    Args:
        filename: the name of the file in the version's folder.
        skip: number of records to skip at the start of the file.
        take: number of records to read after them.
        examples_in_shard: number of records in the file.
        split: name of the split.
        shard: index of the file in the split.

    >>> FileInstruction("train-00000-of-00002", 10, 40, 50, "train", 0).takes_all
    True

    Raises:
        SliceError: ``take`` is below 1, ``skip`` is negative, or the file has too few records.
    """

    __slots__ = ()

    @property
    def takes_all(self) -> bool:
        """Whether it reads all records after the skipped ones. The name is TFDS's."""
        return self.skip + self.take == self.examples_in_shard

    def __new__(
        cls, filename: str, skip: int, take: int, examples_in_shard: int, split: str, shard: int
    ) -> FileInstruction:
        """Check that it reads at least one record and that the file holds all of them."""
        if skip < 0 or take < 1 or skip + take > examples_in_shard:
            raise SliceError(
                f"{filename}: cannot skip {skip} and take {take} of {examples_in_shard} records",
                details={"filename": filename, "skip": skip, "take": take},
            )
        return super().__new__(cls, filename, skip, take, examples_in_shard, split, shard)


class Plan(Sequence[FileInstruction]):
    """A lazy sequence of FileInstructions in reading order: the result of ``resolve``.

    The length is known at once, and an item costs O(log shards) for any number of files. A plan contains no files
    without records, and contains a file twice if two slices of a union touch it. A slice of a plan is a tuple. Plans
    are equal if they read the same ranges of the same files in the same order, even if their expressions differ.

    Attributes:
        instruction: the resolved instruction, with its rounding.
        slicing: the slicing rule that resolved it.
        splits: the splits that the expression names, in that order; ``all`` names every split.
        ranges: the records that are read, in order: one range for each slice (it may be empty), or for each split that
            ``all`` or an exact part touches.
        num_examples: number of records that are read; a record that is read twice counts twice.

    >>> from registry.splits import resolve
    >>> plan = resolve("train[:60]", {"train": [50, 51]})
    >>> len(plan), plan.num_examples, plan[1].filename, plan[1].take
    (2, 60, 'train-00001-of-00002', 10)
    """

    __slots__ = ("_ends", "_overlaps", "_runs", "instruction", "num_examples", "ranges", "slicing", "splits")

    def __init__(
        self,
        instruction: ReadInstruction,
        slicing: SlicingRule,
        splits: tuple[ShardedSplit, ...],
        located: Iterable[Located],
    ) -> None:
        found = tuple(located)
        self.instruction = instruction
        self.slicing = slicing
        self.splits = splits
        self.ranges = tuple(records for records, _ in found)
        self.num_examples = sum(records.stop - records.start for records in self.ranges)
        self._runs = tuple(FileRun.of(records, split) for records, split in found if records.start < records.stop)
        self._ends = list(accumulate(run.count for run in self._runs))
        self._overlaps: tuple[RecordRange, ...] | None = None

    @property
    def expression(self) -> str:
        """The split expression as text. It parses back to the instruction, except that the text has no rounding."""
        return str(self.instruction)

    @property
    def rule(self) -> str:
        """The slicing rule in words, e.g. ``documented slicing``, with the rounding if it is not ``closest``."""
        odd = [rounding for rounding in self.instruction.roundings if rounding != "closest"]
        return ", ".join((f"{self.slicing.value} slicing", *odd))

    @property
    def overlaps(self) -> tuple[RecordRange, ...]:
        """The records that the plan reads more than once, as ranges; only a union may have any."""
        if self._overlaps is None:
            self._overlaps = repeated(self.ranges)
        return self._overlaps

    def order(self, read_config: ReadConfig | None = None, epoch: int = 0) -> Order:
        """The order in which a read with ``read_config`` reads the plan. No file is opened.

        Args:
            read_config: the options of the read; None for the defaults.
            epoch: the epoch of the read, counted from 0.

        Raises:
            UsageError: ``read_config`` shuffles without a seed, so that every read has another order; or its
                ``interleave_sort_fn`` does not return the instructions that it received.
        """
        from registry.order import Order, check_read_config

        config = check_read_config(read_config)
        sort_files = config.interleave_sort_fn
        sorted_files = None if sort_files is None else sorted_places(list(self), sort_files)
        return Order([run.span for run in self._runs], config, epoch=epoch, sorted_files=sorted_files)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> FileInstruction: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[FileInstruction, ...]: ...
    def __getitem__(self, index: int | slice) -> FileInstruction | tuple[FileInstruction, ...]:
        try:
            places = range(len(self))[index]
        except IndexError:
            raise IndexError(f"index {index} is out of range: the plan has {len(self)} file instructions") from None
        except TypeError:
            raise TypeError(f"a plan index must be a whole number or a slice, not {index!r:.40}") from None
        return tuple(map(self._item, places)) if isinstance(places, range) else self._item(places)

    def _item(self, place: int) -> FileInstruction:
        run = bisect_right(self._ends, place)
        return self._runs[run].instruction(place - (self._ends[run - 1] if run else 0))

    def __iter__(self) -> Iterator[FileInstruction]:
        return chain.from_iterable(self._runs)

    def __eq__(self, other: object) -> bool:
        return self._runs == other._runs if isinstance(other, Plan) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(run.records for run in self._runs))

    def _repr_html_(self) -> str:
        from registry.markup import panel, table

        rows = ((file.filename, file.skip, file.take, file.examples_in_shard) for file in self[:20])
        return panel(self, table(("file", "skip", "take", "of"), rows, len(self)))

    def __repr__(self) -> str:
        return (
            f"<Plan {self.expression!r}: {counted(self.num_examples, 'example')} by "
            f"{counted(len(self), 'file instruction')}, {self.rule}>"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """The records that two plans share, and the records that only one of them or neither reads.

    Attributes:
        common: the records that both plans read.
        only_first, only_second: the records that only the first, or only the second plan reads.
        missing: the records that neither plan reads, of the splits that at least one of them names.
    """

    common: Ranges
    only_first: Ranges
    only_second: Ranges
    missing: Ranges

    @property
    def is_disjoint(self) -> bool:
        """Whether no record is in both."""
        return not self.common

    @property
    def is_equal(self) -> bool:
        """Whether both read the same records."""
        return not self.only_first and not self.only_second

    @property
    def is_subset(self) -> bool:
        """Whether every record of the first is in the second."""
        return not self.only_first

    @property
    def is_superset(self) -> bool:
        """Whether every record of the second is in the first."""
        return not self.only_second

    @property
    def is_covering(self) -> bool:
        """Whether they together read every record of the splits that they name; ``all`` names every split."""
        return not self.missing

    @property
    def kind(self) -> str:
        """The first of ``equal``, ``subset``, ``superset``, ``disjoint`` that is true, otherwise ``overlapping``."""
        for kind in ("equal", "subset", "superset", "disjoint"):
            if getattr(self, f"is_{kind}"):
                return kind
        return "overlapping"


def file_values(file: FileInstruction) -> dict[str, Any]:
    """One file of a plan as plain values."""
    return fields_of(file, "filename", "skip", "take", "examples_in_shard")


def rule_values(plan: Plan) -> dict[str, str]:
    """The rule of a plan: ``slicing``, and ``rounding`` if a percentage is not rounded as usual."""
    odd = [rounding for rounding in plan.instruction.roundings if rounding != "closest"]
    return {"slicing": plan.slicing, **({"rounding": odd[0]} if odd else {})}


def range_values(ranges: Sequence[RecordRange]) -> list[dict[str, Any]]:
    """Ranges of records as plain values."""
    return [fields_of(span, "split", "start", "stop") for span in ranges]


def relation(first: Plan, second: Plan) -> Relation:
    """Compare the records of two plans of the same layout.

    Args:
        first: a plan, from ``resolve``.
        second: another plan of the same version.

    Returns:
        A ``Relation``: the common records, the records of only one plan, the records of neither, and predicates.

    >>> from registry.splits import resolve
    >>> layout = {"train": [50, 51]}
    >>> train, validation = resolve("train[:80%]", layout), resolve("train[79%:]", layout)
    >>> found = relation(train, validation)
    >>> found.kind, found.is_covering, found.common
    ('overlapping', True, (RecordRange(split='train', start=80, stop=81),))

    Raises:
        UsageError: an argument is not a Plan, or a split has different shards in the two plans.
    """
    _check_one_layout([first, second])
    return Relation(
        common=common(first.ranges, second.ranges),
        only_first=without(first.ranges, second.ranges),
        only_second=without(second.ranges, first.ranges),
        missing=uncovered([first, second]),
    )


def overlaps_between(plans: Iterable[Plan]) -> dict[tuple[int, int], Ranges]:
    """The records that any two plans share, by the pair of their positions; empty if all plans are disjoint.

    Raises:
        UsageError: an item is not a Plan, or a split has different shards in two plans.
    """
    compared = _check_one_layout(plans)
    return shared([plan.ranges for plan in compared])


def uncovered(plans: Iterable[Plan], *, of: Plan | None = None) -> Ranges:
    """The records that no plan reads, of the plan ``of`` or, without it, of every split that the plans name.

    >>> from registry.splits import resolve
    >>> uncovered([resolve("train[:33]", {"train": [101]}), resolve("train[34:]", {"train": [101]})])
    (RecordRange(split='train', start=33, stop=34),)

    Raises:
        UsageError: an item is not a Plan, or a split has different shards in two plans.
    """
    covering = tuple(plans)
    _check_one_layout([*covering, of] if of is not None else covering)
    whole = merged(of.ranges) if of is not None else _whole_splits(covering)
    return without(whole, [span for plan in covering for span in plan.ranges])


# Creates a FileInstruction without its check, for files that are read whole: plans may have millions of them.
_UNCHECKED: Final[Callable[[tuple[str, int, int, int, str, int]], FileInstruction]] = partial(
    tuple.__new__, FileInstruction
)

_BLOCK: Final = 16_384


@dataclass(frozen=True, slots=True)
class FileRun:
    """A range with at least one record, and the files that it touches: the shards of ``span`` that hold records."""

    records: RecordRange
    split: ShardedSplit
    span: ShardSpan = field(compare=False)

    @classmethod
    def of(cls, records: RecordRange, split: ShardedSplit) -> FileRun:
        """The files of ``split`` that hold ``records``, which must not be empty."""
        return cls(records, split, ShardSpan.of(split.shard_lengths, records.start, records.stop))

    @property
    def count(self) -> int:
        """Number of files that the range touches."""
        return self.span.count

    def instruction(self, place: int) -> FileInstruction:
        """The instruction for file ``place`` of the range, counted from 0."""
        return self._cut(self.span.shard_at(place))

    def records_of(self, start: int, stop: int) -> RecordRange:
        """The records of the range that are in its files ``start``..``stop`` (stop excluded; at least one file)."""
        lengths = self.split.shard_lengths
        first, after = self.span.shard_at(start), self.span.shard_at(stop - 1) + 1
        return RecordRange(
            split=self.split.name,
            start=max(self.records.start, lengths.start(first)),
            stop=min(self.records.stop, lengths.start(after)),
        )

    def __iter__(self) -> Iterator[FileInstruction]:
        """All instructions. Files between the first and the last are read whole, so they need no check."""
        lengths, span = self.split.shard_lengths, self.span
        name = self.records.split
        filename = self.split.files.namer(name, len(lengths))
        yield self._cut(span.first)
        for start in range(span.first + 1, span.last, _BLOCK):
            shards: Iterable[int] = range(start, min(start + _BLOCK, span.last))
            takes: Iterable[int] = lengths[start : min(start + _BLOCK, span.last)]
            if span.empty:
                filled = [(shard, take) for shard, take in zip(shards, takes, strict=True) if take]
                shards, takes = [shard for shard, _ in filled], [take for _, take in filled]
            yield from map(_UNCHECKED, zip(map(filename, shards), repeat(0), takes, takes, repeat(name), shards))
        if span.last > span.first:
            yield self._cut(span.last)

    def _cut(self, shard: int) -> FileInstruction:
        """The instruction for one shard that the range touches."""
        lengths = self.split.shard_lengths
        skip, take = self.span.cut(shard)
        return FileInstruction(
            filename=self.split.files.filename(self.split.name, shard, len(lengths)),
            skip=skip,
            take=take,
            examples_in_shard=lengths[shard],
            split=self.split.name,
            shard=shard,
        )


def sorted_places(
    files: list[FileInstruction], sort_files: Callable[[list[FileInstruction]], Sequence[FileInstruction]]
) -> list[int]:
    """The order in which ``sort_files`` puts ``files``, as positions in ``files``.

    Raises:
        UsageError: ``sort_files`` does not return the same file instructions, each as often as it received it.
    """
    places: dict[FileInstruction, int] = {}
    again: dict[int, int] = {}  # the next place of a file that a union reads more than once
    for place in reversed(range(len(files))):
        if files[place] in places:
            again[place] = places[files[place]]
        places[files[place]] = place
    result: list[int] = []
    try:
        for file in sort_files(list(files)):
            place = places.pop(file)
            result.append(place)
            if place in again:
                places[file] = again[place]
    except (KeyError, TypeError):
        result.clear()
    if len(result) != len(files):
        raise UsageError(
            f"interleave_sort_fn must return the {len(files)} file instructions that it receives, in any order",
            hint="To read fewer files, slice the split expression instead.",
        )
    return result


def _whole_splits(plans: Sequence[Plan]) -> list[RecordRange]:
    sizes = {split.name: split.shard_lengths.num_examples for plan in plans for split in plan.splits}
    return [RecordRange(split=name, start=0, stop=size) for name, size in sizes.items()]


def _check_one_layout(plans: Iterable[Plan]) -> tuple[Plan, ...]:
    """``plans`` as a tuple. Raises UsageError unless all are plans whose splits have the same shards."""
    compared = tuple(plans)
    splits: dict[str, ShardedSplit] = {}
    for plan in compared:
        if not isinstance(plan, Plan):
            raise UsageError(
                f"expected a Plan to compare, found {plan!r:.60}",
                hint="Resolve the expression first, or use dataset.relation(), which accepts text.",
            )
        for split in plan.splits:
            other = splits.setdefault(split.name, split)
            if (split.shard_lengths, split.files) != (other.shard_lengths, other.files):
                raise UsageError(
                    f"these plans belong to different layouts: their shards of split {split.name!r} differ",
                    hint="Resolve both expressions on the same dataset version.",
                )
    return compared
