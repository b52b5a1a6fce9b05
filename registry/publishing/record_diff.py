"""Which records differ between two versions, and in what? The files of both are read where their fingerprints differ.

Records are told apart by a digest of the features that both versions have, 8 bytes each, and aligned in order
(``alignment``); only the few that are shown are decoded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.features.content import ContentReader
from registry.model import LEAF_EXAMPLES
from registry.publishing.alignment import Alignment, Indices, align
from registry.publishing.changes import Changes
from registry.publishing.ranges import (
    Advance,
    RecordRun,
    StoredSplits,
    call_on_runs,
    choose_processes,
    divide_run,
)

_MOST_SHOWN_FEATURES: Final = 20
_MOST_SEARCHED: Final = 64 * LEAF_EXAMPLES

Kind: TypeAlias = Literal["changed", "removed", "added", "moved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChange:
    """One record that differs.

    Attributes:
        kind: ``changed``, ``removed``, ``added``, or ``moved`` (equal, and out of order).
        old, new: its place in the split, before and after; None where it is not there.
        features: for a changed record what differs: (feature, value before, value after), the values in words.
    """

    kind: Kind
    old: int | None
    new: int | None
    features: tuple[tuple[str, str, str], ...] = ()

    def __str__(self) -> str:
        match self.kind:
            case "removed":
                return f"record {self.old} is gone"
            case "added":
                return f"record {self.new} is new"
            case "moved":
                return f"record {self.old} is record {self.new} now"
            case _:
                what = "; ".join(f"{path} is {after}, was {before}" for path, before, after in self.features)
                place = f"record {self.new}" if self.old == self.new else f"record {self.new} (was {self.old})"
                return f"{place}: {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDiff:
    """How the records of one split differ, counted, and the first of them."""

    split: str
    same: int
    changed: int
    moved: int
    removed: int
    added: int
    first: tuple[RecordChange, ...]

    @property
    def is_equal(self) -> bool:
        """Whether the split holds the same records in the same order."""
        return not (self.changed or self.moved or self.removed or self.added)


@dataclass(frozen=True, slots=True)
class RecordHasher:
    """Digests of the records of a run over some features: 8 bytes of sha256 each, one after the other."""

    stored: StoredSplits
    paths: tuple[str, ...]

    def __call__(self, run: RecordRun) -> bytes:
        """The digests, in order."""
        reader = ContentReader(self.stored.features)
        places = [reader.paths.index(path) for path in self.paths]
        digests = []
        for contents in self.stored.contents(run, reader):
            hasher = hashlib.sha256()
            for place in places:
                hasher.update(contents[place])
            digests.append(hasher.digest()[:8])
        return b"".join(digests)


def diff_records(
    changes: Changes,
    old: StoredSplits,
    new: StoredSplits,
    *,
    show: int = 5,
    processes: int | None = None,
    advance: Advance | None = None,
) -> tuple[RecordDiff, ...]:
    """The differing records of each split that both versions have, in the order of ``old``.

    Args:
        changes: what ``compare_versions`` found: it says which records to look at, and by which features.
        old: the files of the one.
        new: the files of the other.
        show: how many differing records of a split are described.
        processes: how many decode; None takes as many as there are cores where there is enough to do.
        advance: called with the number of records read since the last call.

    Raises:
        CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: a record cannot be read.
    """
    return tuple(
        _diff_split(split.name, changes, old, new, show=show, processes=processes, advance=advance)
        for split in old.splits
        if split.name in changes.differing
    )


def first_difference(changes: Changes, old: StoredSplits, new: StoredSplits) -> tuple[str, RecordChange] | None:
    """The split and the first record in it that differs; None where no record does.

    Reads at most 65,536 records of each side, from the first block that differs. Errors as ``diff_records``.
    """
    for name, ranges in changes.differing.items():
        places = [[split.name for split in side.splits].index(name) for side in (old, new)]
        for parts in ranges:
            digests = []
            for side, place, part in zip((old, new), places, parts, strict=True):
                run = RecordRun(place, part.start, min(part.stop, part.start + _MOST_SEARCHED))
                digests.append(_hash_run(side, changes.common, run, processes=1, advance=None))
            earliest = sorted(_earliest(align(*digests), parts[0].start, parts[1].start, 1), key=_position)
            if earliest:
                return name, _Describer(old, new, *places).describe(earliest[0])
    return None


def _diff_split(
    name: str,
    changes: Changes,
    old: StoredSplits,
    new: StoredSplits,
    *,
    show: int,
    processes: int | None,
    advance: Advance | None,
) -> RecordDiff:
    sides = (old, new)
    places = [[split.name for split in side.splits].index(name) for side in sides]
    found: list[tuple[Alignment, int, int]] = []
    num_read = 0
    for ranges in changes.differing[name]:
        digests = []
        for side, place, part in zip(sides, places, ranges, strict=True):
            run = RecordRun(place, part.start, part.stop)
            digests.append(_hash_run(side, changes.common, run, processes=processes, advance=advance))
        num_read += len(ranges[0])
        found.append((align(*digests), ranges[0].start, ranges[1].start))
    describer = _Describer(old, new, *places)
    first = sorted((one for part in found for one in _earliest(*part, show)), key=_position)[:show]
    return RecordDiff(
        split=name,
        same=old.splits[places[0]].num_examples - num_read + sum(len(part.same) for part, _, _ in found),
        changed=sum(len(part.changed) for part, _, _ in found),
        moved=sum(len(part.moved) for part, _, _ in found),
        removed=sum(len(part.removed) for part, _, _ in found),
        added=sum(len(part.added) for part, _, _ in found),
        first=tuple(map(describer.describe, first)),
    )


def _hash_run(
    side: StoredSplits, paths: tuple[str, ...], run: RecordRun, *, processes: int | None, advance: Advance | None
) -> npt.NDArray[np.uint64]:
    chosen = choose_processes(side, processes)
    runs = divide_run(run, processes=chosen)
    pieces = [
        np.frombuffer(digests, np.uint64)
        for _, digests in call_on_runs(RecordHasher(side, paths), runs, processes=chosen, advance=advance)
    ]
    return np.concatenate(pieces) if pieces else np.empty(0, np.uint64)


def _earliest(alignment: Alignment, old_start: int, new_start: int, show: int) -> Iterator[RecordChange]:
    """The first records of each kind."""
    pairs: tuple[tuple[Kind, Indices], ...] = (("changed", alignment.changed), ("moved", alignment.moved))
    for kind, places in pairs:
        for before, after in places[:show].tolist():
            yield RecordChange(kind=kind, old=before + old_start, new=after + new_start)
    for place in alignment.removed[:show].tolist():
        yield RecordChange(kind="removed", old=place + old_start, new=None)
    for place in alignment.added[:show].tolist():
        yield RecordChange(kind="added", old=None, new=place + new_start)


def _position(change: RecordChange) -> tuple[int, str]:
    place = change.new if change.old is None else change.old
    return (0 if place is None else place), change.kind


class _Describer:
    """Decodes two records and says in what they differ."""

    def __init__(self, old: StoredSplits, new: StoredSplits, old_place: int, new_place: int) -> None:
        self._sides = ((old, old_place, ContentReader(old.features)), (new, new_place, ContentReader(new.features)))

    def describe(self, change: RecordChange) -> RecordChange:
        if change.kind != "changed":
            return change
        sides: list[tuple[dict[str, bytes], dict[str, Any]]] = []
        for (stored, place, reader), at in zip(self._sides, (change.old, change.new), strict=True):
            if at is None:
                raise AssertionError("a changed record stands on both sides")
            (record,) = stored.records(RecordRun(place, at, at + 1))
            contents = dict(zip(reader.paths, reader.read(record), strict=True))
            sides.append((contents, reader.values(record)))
        (old_contents, old_values), (new_contents, new_values) = sides
        differing = [
            (path, *_words(old_values[path], new_values[path]))
            for path in old_contents
            if path in new_contents and old_contents[path] != new_contents[path]
        ]
        return RecordChange(
            kind="changed", old=change.old, new=change.new, features=tuple(differing[:_MOST_SHOWN_FEATURES])
        )


def _words(before: Any, after: Any) -> tuple[str, str]:
    """Two values that differ, in a few words each."""
    if isinstance(before, np.ndarray) and isinstance(after, np.ndarray) and before.size > 8:
        if before.shape == after.shape and before.dtype == after.dtype and before.dtype != object:
            places = np.argwhere(before != after)
            if len(places):
                place = tuple(places[0].tolist())
                number = f"{len(places):,} of {before.size:,} values differ, the first at {_index(place)}"
                return str(before[place]), f"{after[place]} there ({number})"
        return _shape(before), _shape(after)
    return _short(before), _short(after)


def _index(place: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, place)) + "]"


def _shape(value: npt.NDArray[Any]) -> str:
    return f"{value.dtype} {value.shape}"


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        text = repr(value.decode("utf-8", "backslashreplace"))
    elif isinstance(value, np.ndarray):
        text = str(value.tolist())
    else:
        text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"
