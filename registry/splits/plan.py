"""Plans: record ranges as a lazy sequence of FileInstructions, and how the records of two plans relate.

The last step of ``text -> ReadInstruction -> record ranges -> FileInstructions``, and all that a reader needs.
``relation``, ``overlaps_between`` and ``uncovered`` compare plans as sets of records, in time that depends on the
number of ranges and not on the number of records; ``Plan.overlaps`` names what a plan reads twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Final, NamedTuple, overload

from registry.errors import SliceError, UsageError
from registry.model import ShardSpan, SlicingRule
from registry.splits.instruction import ReadInstruction
from registry.splits.layout import (
    Located,
    Ranges,
    RecordRange,
    ShardedSplit,
    common,
    counted,
    merged,
    repeated,
    shared,
    without,
)

if TYPE_CHECKING:
    from registry.order import Order, ReadConfig


class _Fields(NamedTuple):
    filename: str
    skip: int
    take: int
    examples_in_shard: int
    split: str
    shard: int


class FileInstruction(_Fields):
    """Of the file ``filename``, skip ``skip`` records and read ``take``; it holds ``examples_in_shard``.

    The first four fields are TFDS's, and ``take`` is always the number itself. ``shard`` is the index of the file in
    ``split``. A named tuple, because a plan may make hundreds of thousands of them.

    Raises:
        SliceError: it reads nothing, or beyond the file's records.
    """

    __slots__ = ()

    @property
    def takes_all(self) -> bool:
        """Whether everything after the skipped records is read, as TFDS calls it."""
        return self.skip + self.take == self.examples_in_shard

    def __new__(
        cls, filename: str, skip: int, take: int, examples_in_shard: int, split: str, shard: int
    ) -> FileInstruction:
        """Check that there is something to read, and that the file holds it."""
        if skip < 0 or take < 1 or skip + take > examples_in_shard:
            raise SliceError(
                f"{filename}: cannot skip {skip} and take {take} of {examples_in_shard} records",
                details={"filename": filename, "skip": skip, "take": take},
            )
        return super().__new__(cls, filename, skip, take, examples_in_shard, split, shard)


class Plan(Sequence[FileInstruction]):
    """What to read for an instruction: FileInstructions in reading order, made when they are asked for.

    The length is known at once and an item costs O(log shards), however many files the plan touches. Files without
    records are never in it; a file is in it twice where two slices of a union touch it. A slice of a plan is a tuple.
    Plans are equal when they read the same ranges of the same files in the same order, whatever expression they are of.

    Attributes:
        instruction: what was resolved, with its rounding.
        slicing: the rule by which it was resolved.
        splits: the splits that the expression names, in that order; ``all`` names every one.
        ranges: the records that are read, in order: one range for each slice (maybe empty), or for each split that
            ``all`` or an exact part touches.
        num_examples: number of records that are read, counted as often as they are.
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
        """The split expression, printed from the instruction: it parses back, but for a rounding that has no text."""
        return str(self.instruction)

    @property
    def rule(self) -> str:
        """The rule in words, with the rounding where it is not the usual one: ``documented slicing``."""
        odd = [rounding for rounding in self.instruction.roundings if rounding != "closest"]
        return ", ".join((f"{self.slicing.value} slicing", *odd))

    @property
    def overlaps(self) -> tuple[RecordRange, ...]:
        """The records that are read more than once, as ranges; a union may do so, and then reads them as often."""
        if self._overlaps is None:
            self._overlaps = repeated(self.ranges)
        return self._overlaps

    def order(self, read_config: ReadConfig | None = None, epoch: int = 0) -> Order:
        """The order in which ``read_config`` reads the plan in its epoch ``epoch``: a value, and nothing is read.

        Raises:
            UsageError: a shuffle without a seed, which every read draws anew; or an ``interleave_sort_fn`` that
                returns something else than the instructions it was given.
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
            raise TypeError(f"a plan is indexed by a whole number or a slice, not {index!r:.40}") from None
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

    def __repr__(self) -> str:
        return (
            f"<Plan {self.expression!r}: {counted(self.num_examples, 'example')} by "
            f"{counted(len(self), 'file instruction')}, {self.rule}>"
        )


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
    """The relation of the records of two plans of the same layout.

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


_UNCHECKED: Final[Callable[[tuple[str, int, int, int, str, int]], FileInstruction]] = partial(
    tuple.__new__, FileInstruction
)

_BLOCK: Final = 16_384


@dataclass(frozen=True, slots=True)
class FileRun:
    """A range that holds records, and the files that it touches, which are the filled shards of ``span``."""

    records: RecordRange
    split: ShardedSplit
    span: ShardSpan = field(compare=False)

    @classmethod
    def of(cls, records: RecordRange, split: ShardedSplit) -> FileRun:
        """The files of ``split`` that hold ``records``, of which there are some."""
        return cls(records, split, ShardSpan.of(split.shard_lengths, records.start, records.stop))

    @property
    def count(self) -> int:
        """Number of files that the range touches."""
        return self.span.count

    def instruction(self, place: int) -> FileInstruction:
        """The instruction for the file that has ``place`` others before it."""
        return self._cut(self.span.shard_at(place))

    def records_of(self, start: int, stop: int) -> RecordRange:
        """The records of the range that lie in its files ``start``..``stop`` (stop excluded; at least one file)."""
        lengths = self.split.shard_lengths
        first, after = self.span.shard_at(start), self.span.shard_at(stop - 1) + 1
        return RecordRange(
            split=self.split.name,
            start=max(self.records.start, lengths.start(first)),
            stop=min(self.records.stop, lengths.start(after)),
        )

    def __iter__(self) -> Iterator[FileInstruction]:
        """All instructions. Files between the first and the last are read whole, so they are made without a look."""
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
        """What the range takes of one shard that it touches."""
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
    """The places in ``files`` of what ``sort_files`` makes of them, which are the same files in another order.

    Raises:
        UsageError: it leaves a file out, names one more often than it was given, or returns something else.
    """
    places: dict[FileInstruction, int] = {}
    again: dict[int, int] = {}  # the next place of a file that a union reads more than once
    for place in reversed(range(len(files))):
        if files[place] in places:
            again[place] = places[files[place]]
        places[files[place]] = place
    found: list[int] = []
    try:
        for file in sort_files(list(files)):
            place = places.pop(file)
            found.append(place)
            if place in again:
                places[file] = again[place]
    except (KeyError, TypeError):
        found.clear()
    if len(found) != len(files):
        raise UsageError(
            f"interleave_sort_fn was given {len(files)} file instructions and returned something else",
            hint="It returns the same ones in another order; to read fewer, slice the expression.",
        )
    return found


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
