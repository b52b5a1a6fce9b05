"""Where is a read? A small value that is saved with a checkpoint, and from which another process reads on.

It holds no record and no seed of a generator that has moved: an order is a function of the plan, the read config and
the epoch, so a place in it is a few numbers. Digests of what they are numbers of stand beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from registry.errors import StateMismatchError
from registry.reading.shares import Intervals, cut, divide, is_well_formed, join, size_of

FORMAT: Final = "registry.read-state/1"
_FIELDS: Final = ("format", "dataset", "split", "plan", "order", "seed", "process", "until", "left")
_HINT: Final = "Give what Reader.state() gave, as it was."


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a read is of. ``plan`` and ``order`` are digests; ``seed`` is what was drawn where none was given."""

    dataset: str
    split: str
    plan: str
    order: str
    seed: int | None
    num_examples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadState:
    """What is left to read.

    Attributes:
        process: (index, count): which share of a whole epoch this reader reads.
        until: the epoch before which the iteration ends; None where it never does.
        left: for each epoch that has begun, or that is shared out in another way than into equal parts, its number and
            the positions left in it. After the last of them come whole epochs.
    """

    process: tuple[int, int]
    until: int | None
    left: tuple[tuple[int, Intervals], ...]

    @classmethod
    def start(cls, source: Source, *, epoch: int, repeat: int | None, process: tuple[int, int]) -> ReadState:
        """The beginning of an iteration of ``repeat`` epochs."""
        until = None if repeat is None else epoch + repeat
        return cls(process=process, until=until, left=()).entering(epoch, source.num_examples)

    @property
    def epoch(self) -> int:
        """The epoch that is read."""
        return self.left[0][0]

    @property
    def intervals(self) -> Intervals:
        """The positions left of the epoch that is read."""
        return self.left[0][1]

    @property
    def num_left(self) -> int:
        """Number of them."""
        return size_of(self.intervals)

    def advance(self, count: int) -> ReadState:
        """The state after ``count`` more positions of this epoch."""
        (epoch, intervals), *later = self.left
        return replace(self, left=((epoch, cut(intervals, count, size_of(intervals))), *later))

    def entering(self, epoch: int, num_examples: int) -> ReadState:
        """The beginning of ``epoch``."""
        whole: Intervals = ((0, num_examples),) if num_examples else ()
        return replace(self, left=((epoch, divide(whole, index=self.process[0], count=self.process[1])),))

    def next_epoch(self, num_examples: int) -> ReadState | None:
        """The beginning of the epoch after this one; None where the iteration ends, or would never give anything."""
        if len(self.left) > 1:
            return replace(self, left=self.left[1:])
        if self.until is not None and self.epoch + 1 >= self.until:
            return None
        following = self.entering(self.epoch + 1, num_examples)
        return following if following.num_left else None

    def to_json(self, source: Source) -> dict[str, Any]:
        """As plain values."""
        return {
            "format": FORMAT,
            "dataset": source.dataset,
            "split": source.split,
            "plan": source.plan,
            "order": source.order,
            "seed": source.seed,
            "process": list(self.process),
            "until": self.until,
            "left": [[epoch, [list(interval) for interval in intervals]] for epoch, intervals in self.left],
        }

    @classmethod
    def from_json(cls, value: object, source: Source) -> ReadState:
        """The state in ``value``, which must be of ``source``.

        Raises:
            StateMismatchError: it is no state, or one of another version, plan or order.
        """
        if not isinstance(value, Mapping) or value.get("format") != FORMAT or set(value) != set(_FIELDS):
            raise StateMismatchError("this is no state of a reader", hint=_HINT, details={"differs": "format"})
        _check_source(value, source)
        state = _parse(value, source.num_examples)
        if state is None:
            raise StateMismatchError("this state of a reader is damaged", hint=_HINT, details={"differs": "numbers"})
        return state


def read_seed(value: object) -> int | None:
    """The seed that the reader of a state had drawn, or was given; None where it is no state, or had none."""
    first = value[0] if isinstance(value, Sequence) and not isinstance(value, str) and value else value
    seed = first.get("seed") if isinstance(first, Mapping) else None
    return seed if type(seed) is int else None


def restore(value: object, source: Source, *, process: tuple[int, int]) -> ReadState:
    """The state to read on from: of one reader, or of all processes of a read, which are shared out anew.

    Raises:
        StateMismatchError: as ``from_json``; a state of one process of several, given to another; or a list that is not
            that of all processes.
    """
    if isinstance(value, Mapping):
        state = ReadState.from_json(value, source)
        if state.process != process:
            index, count = state.process
            raise StateMismatchError(
                f"this state is of process {index} of {count}, and this is process {process[0]} of {process[1]}",
                hint="To go on with another number of processes, give the list of the states of all of them.",
                details={"differs": "process", "found": list(state.process), "expected": list(process)},
            )
        return state
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
        raise StateMismatchError("this is no state of a reader", hint=_HINT, details={"differs": "format"})
    return _share_out([ReadState.from_json(one, source) for one in value], source, process)


def _share_out(states: Sequence[ReadState], source: Source, process: tuple[int, int]) -> ReadState:
    counts = {state.process[1] for state in states}
    if sorted(state.process[0] for state in states) != list(range(len(states))) or counts != {len(states)}:
        raise StateMismatchError(
            "these are not the states of all processes of one read, one each",
            hint=f"A state says in 'process' which one it is of: {[list(state.process) for state in states][:8]}.",
            details={"differs": "process", "found": [list(state.process) for state in states][:100]},
        )
    if len({state.until for state in states}) > 1:
        raise StateMismatchError("these states are of different iterations", hint=_HINT, details={"differs": "until"})
    until = states[0].until
    first = min(state.epoch for state in states)
    last = max(state.left[-1][0] for state in states)
    left = []
    for epoch in range(first, last + 1):
        parts = [_left_in(state, epoch, source.num_examples) for state in states]
        together = join(parts)
        if together is None:
            raise StateMismatchError(
                "two of these states have the same records left", hint=_HINT, details={"differs": "left"}
            )
        left.append((epoch, divide(together, index=process[0], count=process[1])))
    return ReadState(process=process, until=until, left=tuple(left))


def _left_in(state: ReadState, epoch: int, num_examples: int) -> Intervals:
    """What ``state`` has left of ``epoch``: nothing of one that is over, all of its share of one to come."""
    for number, intervals in state.left:
        if number == epoch:
            return intervals
    return () if epoch < state.epoch else state.entering(epoch, num_examples).left[0][1]


def _check_source(value: Mapping[str, Any], source: Source) -> None:
    if value["dataset"] != source.dataset:
        what = f"of {value['dataset']}", f"this reads {source.dataset}"
        differs = "dataset"
    elif value["plan"] != source.plan:
        what = f"of the records {value['split']}", f"this reads {source.split}"
        if value["split"] == source.split:
            what = "of other records of that name", f"the shards or ranges of {source.split} differ"
        differs = "plan"
    elif value["order"] != source.order:
        what = "of another order", "the read config differs (cycle and block length, shuffle, seed, sort)"
        differs = "order"
    else:
        return
    raise StateMismatchError(
        f"this state is {str(what[0])[:200]}, and {what[1]}",
        hint="Read on with the version, split and read config that the state was taken of, or start without a state.",
        details={"differs": differs},
    )


def _parse(value: Mapping[str, Any], num_examples: int) -> ReadState | None:
    """The numbers of a state, or None where one of them cannot be."""
    process, until, left = value["process"], value["until"], value["left"]
    if not _is_numbers(process, 2) or not 0 <= process[0] < process[1] or not isinstance(left, list) or not left:
        return None
    if until is not None and (type(until) is not int or until < 0):
        return None
    epochs: list[tuple[int, Intervals]] = []
    for entry in left:
        if not isinstance(entry, list) or len(entry) != 2 or type(entry[0]) is not int or entry[0] < 0:
            return None
        epoch, intervals = entry
        if not isinstance(intervals, list) or not all(_is_numbers(interval, 2) for interval in intervals):
            return None
        follows = not epochs or epoch == epochs[-1][0] + 1
        if not follows or not is_well_formed(intervals, num_examples):
            return None
        epochs.append((epoch, tuple((start, stop) for start, stop in intervals)))
    return ReadState(process=(process[0], process[1]), until=until, left=tuple(epochs))


def _is_numbers(value: object, length: int) -> bool:
    return isinstance(value, list) and len(value) == length and all(type(number) is int for number in value)
