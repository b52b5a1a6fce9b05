"""Which files are read, and what of each? Record ranges as a lazy sequence of FileInstructions.

The last step of ``text -> ReadInstruction -> record ranges -> FileInstructions``, and all that a reader needs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, overload

from registry.model import SlicingRule
from registry.splits.files import FileInstruction, FileRun, sorted_places
from registry.splits.instruction import ReadInstruction
from registry.splits.layout import Located, RecordRange, ShardedSplit
from registry.splits.ranges import repeated
from registry.splits.wording import counted

if TYPE_CHECKING:
    from registry.order import Order, ReadConfig


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
        from registry.order import Order, check_config

        config = check_config(read_config)
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
