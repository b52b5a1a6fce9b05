"""The state of a read: a small value to save with a checkpoint, from which another process can continue.

An order is a function of the plan, the read config and the epoch, so a place in it is a few numbers. The state holds
these numbers with digests of the plan and the order, and no record and no state of a random generator.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import length_hint
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import StateMismatchError
from registry.order import Order, ReadConfig
from registry.reading.matches import Matches
from registry.splits import Plan

FORMAT: Final = "registry.read-state/1"
_FIELDS: Final = ("format", "dataset", "split", "plan", "order", "seed", "process", "until", "left")
_HINT: Final = "Pass the unchanged value that Reader.state() returned."


_ORDER_FIELDS: Final = (
    "interleave_cycle_length",
    "interleave_block_length",
    "shuffle_files",
    "shuffle_seed",
    "shuffle_reshuffle_each_iteration",
    "shuffle",
    "seed",
    "global_seed",
    "op_seed_index",
)


State: TypeAlias = Mapping[str, Any]
"""The value of ``Reader.state``: plain values that JSON can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadIdentity:
    """Identifies what is read. ``plan`` and ``order`` are digests; ``seed`` may have been drawn by the reader."""

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
        process: (index, count): this reader reads share ``index`` of ``count`` of a whole epoch.
        until: the epoch before which the iteration ends; None if it never ends.
        left: (epoch, positions that are left of it) for each epoch that has started, or that is not divided into equal
            shares. The epochs after the last one are whole.
    """

    process: tuple[int, int]
    until: int | None
    left: tuple[tuple[int, Intervals], ...]

    @classmethod
    def start(cls, source: ReadIdentity, *, epoch: int, repeat: int | None, process: tuple[int, int]) -> ReadState:
        """The beginning of an iteration of ``repeat`` epochs."""
        until = None if repeat is None else epoch + repeat
        return cls(process=process, until=until, left=()).entering(epoch, source.num_examples)

    @property
    def epoch(self) -> int:
        """The epoch that is read."""
        return self.left[0][0]

    @property
    def intervals(self) -> Intervals:
        """The positions that are left of the epoch that is read."""
        return self.left[0][1]

    @property
    def num_left(self) -> int:
        """Number of positions that are left of the epoch that is read."""
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
        """The beginning of the next epoch; None if the iteration ends, or if no epoch has examples for this process."""
        if len(self.left) > 1:
            return replace(self, left=self.left[1:])
        if self.until is not None and self.epoch + 1 >= self.until:
            return None
        following = self.entering(self.epoch + 1, num_examples)
        return following if following.num_left else None

    def among(self, positions_of: Callable[[int], npt.NDArray[np.int64]]) -> ReadState:
        """The same place in an order of some of the positions: ``positions_of(epoch)``, ascending."""
        left = []
        for epoch, intervals in self.left:
            bounds = np.searchsorted(positions_of(epoch), np.array(intervals, np.int64).reshape(-1, 2)).tolist()
            left.append((epoch, join([[(start, stop) for start, stop in bounds if start < stop]]) or ()))
        return replace(self, left=tuple(left))

    def to_json(self, source: ReadIdentity) -> dict[str, Any]:
        """The state as plain values that JSON can hold."""
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
    def from_json(cls, value: object, source: ReadIdentity) -> ReadState:
        """The state in ``value``, which must belong to ``source``.

        Raises:
            StateMismatchError: it is not a state, or belongs to another version, plan or order.
        """
        if not isinstance(value, Mapping) or value.get("format") != FORMAT or set(value) != set(_FIELDS):
            raise StateMismatchError("this is not the state of a reader", hint=_HINT, details={"differs": "format"})
        _check_source(value, source)
        state = _parse(value, source.num_examples)
        if state is None:
            raise StateMismatchError("this state of a reader is damaged", hint=_HINT, details={"differs": "numbers"})
        return state


def read_seed(value: object) -> int | None:
    """The seed in a state, whether it was drawn or given; None if ``value`` is not a state or has no seed."""
    first = value[0] if isinstance(value, Sequence) and not isinstance(value, str) and value else value
    seed = first.get("seed") if isinstance(first, Mapping) else None
    return seed if type(seed) is int else None


def restore(value: object, source: ReadIdentity, *, process: tuple[int, int]) -> ReadState:
    """The state to continue from: the state of one reader, or what all processes of a read have left, divided anew.

    Raises:
        StateMismatchError: as ``from_json``; the state belongs to another process; or the list does not have the states
            of all processes.
    """
    if isinstance(value, Mapping):
        state = ReadState.from_json(value, source)
        if state.process != process:
            index, count = state.process
            raise StateMismatchError(
                f"this state was saved by process {index} of {count}, and this is process {process[0]} of {process[1]}",
                hint="To continue with another number of processes, pass a list of the states of all of them.",
                details={"differs": "process", "found": list(state.process), "expected": list(process)},
            )
        return state
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
        raise StateMismatchError("this is not the state of a reader", hint=_HINT, details={"differs": "format"})
    return _share_out([ReadState.from_json(node, source) for node in value], source, process)


def _share_out(states: Sequence[ReadState], source: ReadIdentity, process: tuple[int, int]) -> ReadState:
    counts = {state.process[1] for state in states}
    if sorted(state.process[0] for state in states) != list(range(len(states))) or counts != {len(states)}:
        raise StateMismatchError(
            "expected one state from each process of one read",
            hint=f"The 'process' fields of these states are {[list(state.process) for state in states][:8]}.",
            details={"differs": "process", "found": [list(state.process) for state in states][:100]},
        )
    if len({state.until for state in states}) > 1:
        raise StateMismatchError(
            "these states belong to different iterations", hint=_HINT, details={"differs": "until"}
        )
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
    """The positions that ``state`` has left of ``epoch``: none of a past epoch, its whole share of a future one."""
    for number, intervals in state.left:
        if number == epoch:
            return intervals
    return () if epoch < state.epoch else state.entering(epoch, num_examples).left[0][1]


def _check_source(value: Mapping[str, Any], source: ReadIdentity) -> None:
    # Number and content are compared: a read of a dataset that was renamed meanwhile goes on.
    if str(value["dataset"]).partition(":")[2] != source.dataset.partition(":")[2]:
        subject = f"to {value['dataset']}", f"this reads {source.dataset}"
        differs = "dataset"
    elif value["plan"] != source.plan:
        subject = f"to the records {value['split']}", f"this reads {source.split}"
        if value["split"] == source.split:
            subject = "to other records of that name", f"the shards or ranges of {source.split} differ"
        differs = "plan"
    elif value["order"] != source.order:
        subject = "to another order", "the read config differs (cycle and block length, shuffle, seed, sort)"
        differs = "order"
    else:
        return
    raise StateMismatchError(
        f"this state belongs {str(subject[0])[:200]}, and {subject[1]}",
        hint="Continue with the version, split, filter and read config of the state, or start without a state.",
        details={"differs": differs},
    )


def _parse(value: Mapping[str, Any], num_examples: int) -> ReadState | None:
    """The numbers of a state, or None if one of them is invalid."""
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


Intervals: TypeAlias = tuple[tuple[int, int], ...]
"""Positions ``start`` to ``stop`` (stop excluded), ascending, none empty, none touching the next."""


def divide(intervals: Intervals, *, index: int, count: int) -> Intervals:
    """Share ``index`` of ``count`` equal ones: sizes differ by one at most, the larger first.

    >>> divide(((0, 4), (10, 13)), index=0, count=2), divide(((0, 4), (10, 13)), index=1, count=2)
    (((0, 4),), ((10, 13),))
    """
    small, extra = divmod(size_of(intervals), count)
    start = small * index + min(index, extra)
    return cut(intervals, start, start + small + (index < extra))


def cut(intervals: Intervals, start: int, stop: int) -> Intervals:
    """The ``start``-th to the ``stop``-th (excluded) position of ``intervals``.

    >>> cut(((0, 4), (10, 13)), 3, 6)
    ((3, 4), (10, 12))
    """
    result, passed = [], 0
    for first, end in intervals:
        begin, last = max(start - passed, 0), min(stop - passed, end - first)
        if begin < last:
            result.append((first + begin, first + last))
        passed += end - first
    return tuple(result)


def places_in(intervals: Intervals, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The positions that are the ``places``-th of ``intervals``.

    >>> places_in(((0, 4), (10, 13)), np.array([6, 0])).tolist()
    [12, 0]
    """
    if len(intervals) == 1:
        return intervals[0][0] + places
    starts = np.array([start for start, _ in intervals] or [0], np.int64)
    sizes = np.array([stop - start for start, stop in intervals] or [0], np.int64)
    passed = np.cumsum(sizes) - sizes
    which = np.searchsorted(passed, places, side="right") - 1
    return starts[which] + places - passed[which]


def find_positions(share: Intervals, index: Any) -> tuple[npt.NDArray[np.int64], bool]:
    """The positions in an order that ``index`` selects from a ``share`` of it, and whether it is a single number.

    Raises:
        IndexError: a number is out of range.
        TypeError: ``index`` is not a whole number, a slice or a list of whole numbers.
    """
    size = size_of(share)
    if type(index) is int and -size <= index < size:  # the usual case, which costs a tenth of what follows
        return places_in(share, np.array([index if index >= 0 else index + size])), True
    if isinstance(index, slice):
        return places_in(share, np.arange(*index.indices(size))), False
    array = np.asarray(index)
    if not array.size:
        array = array.astype(np.int64)  # an empty list becomes an array of floats
    if array.ndim > 1 or array.dtype.kind not in "iu":
        raise TypeError(f"an index must be a whole number, a slice or a list of whole numbers, not {index!r:.60}")
    places = array.reshape(-1).astype(np.int64, copy=False)
    if places.size and int(places.view(np.uint64).max()) >= size:  # one is negative, or too large
        places = np.where(places < 0, places + size, places)
        is_wrong = (places < 0) | (places >= size)
        if is_wrong.any():
            raise IndexError(f"index {array.reshape(-1)[is_wrong][0]} is out of range: there are {size} examples")
    return places_in(share, places), not array.ndim


def join(parts: Iterable[Iterable[tuple[int, int]]]) -> Intervals | None:
    """All positions of ``parts``; None if two parts share one.

    >>> join([((4, 6),), ((0, 4), (9, 10))])
    ((0, 6), (9, 10))
    """
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(interval for part in parts for interval in part):
        if joined and start < joined[-1][1]:
            return None
        if joined and start == joined[-1][1]:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return tuple(joined)


def size_of(intervals: Intervals) -> int:
    """Number of positions."""
    return sum(stop - start for start, stop in intervals)


def is_well_formed(intervals: Sequence[Sequence[int]], num_positions: int) -> bool:
    """Whether these are ``Intervals`` of positions below ``num_positions``."""
    previous = -1
    for start, stop in intervals:
        if not previous < start < stop <= num_positions:
            return False
        previous = stop
    return True


class Cursor:
    """The place of one iteration: a state, and the list of the next items, some of which may be handed out already."""

    def __init__(self, state: ReadState) -> None:
        self._state = state
        self._items: Iterator[Any] = iter(())
        self._num_items = 0
        self._positions_each = 0

    @property
    def state(self) -> ReadState:
        """What is left after the items that were handed out."""
        handed_out = self._num_items - length_hint(self._items)
        return self._state.advance(handed_out * self._positions_each) if handed_out else self._state

    def hand_out(self, items: list[Any], *, positions_each: int = 1) -> Iterator[Any]:
        """An iterator of the next ``items``. Each takes ``positions_each`` positions; the last may take fewer."""
        self._items, self._num_items, self._positions_each = iter(items), len(items), positions_each
        return self._items

    def set(self, state: ReadState) -> None:
        """Continue from ``state``."""
        self._state, self._items, self._num_items = state, iter(()), 0


def describe_source(plan: Plan, order: Order, *, dataset: str, matches: Matches | None = None) -> ReadIdentity:
    """The source of a read of ``plan`` in ``order``, the order of its first epoch.

    ``dataset`` is the exact version, and ``matches`` are the records that are read if the reader is filtered.
    """
    return ReadIdentity(
        dataset=dataset,
        split=plan.expression if matches is None else f"{plan.expression} where {matches.text}",
        plan=_digest(
            {
                "ranges": [[part.split, part.start, part.stop] for part in plan.ranges],
                "splits": [
                    [split.name, len(split.shard_lengths), split.shard_lengths.num_examples] for split in plan.splits
                ],
                **({} if matches is None else {"matches": matches.digest}),
            }
        ),
        order=_digest({"config": _order_fields(order.config), "files": _sorted_files(order)}),
        seed=order_seed(order.config),
        num_examples=order.num_examples,
    )


def _order_fields(config: ReadConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in _ORDER_FIELDS}


def order_seed(config: ReadConfig) -> int | None:
    """The seed of an order; None if it has none."""
    return config.seed if config.shuffle == "global" else config.shuffle_seed


def _sorted_files(order: Order) -> str | None:
    """A digest of the sorted files: a function cannot be digested, but its result can."""
    if order.config.interleave_sort_fn is None or order.file_order is None:
        return None
    return hashlib.sha256(order.file_order.astype("<i8").tobytes()).hexdigest()


def _digest(value: object) -> str:
    return "sha256:" + hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
