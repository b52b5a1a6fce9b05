"""Equal parts of a split: as percent expressions, or as exact parts of records or files."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Final, Literal, NamedTuple, overload

from registry.errors import SplitSyntaxError, UsageError
from registry.model import SlicingRule, shown, whole_number
from registry.splits.instruction import ReadInstruction
from registry.splits.terms import EvenPart, PartUnit, SplitSlice, check_count

_START: Final = Fraction(0)
_END: Final = Fraction(100)


class Fold(NamedTuple):
    """One fold of a cross-validation: what validates, and all the rest, which trains."""

    validation: str | ReadInstruction
    train: str | ReadInstruction


@overload
def even_splits(split: str | ReadInstruction, n: int, *, unit: Literal["%"] = "%") -> list[str]: ...
@overload
def even_splits(
    split: str | ReadInstruction, n: int, *, unit: PartUnit, drop_remainder: bool = False
) -> list[ReadInstruction]: ...
def even_splits(
    split: str | ReadInstruction, n: int, *, unit: Literal["%"] | PartUnit = "%", drop_remainder: bool = False
) -> list[str] | list[ReadInstruction]:
    """``n`` parts of ``split`` of about the same size, each record in exactly one of them.

    Args:
        split: with percent a name, ``all``, or a union of names, each of which is divided on its own. With the exact
            units any expression, or an instruction.
        n: number of parts.
        unit: ``%`` gives expressions with whole percent, halves up, as the TFDS documents print them; more than 100
            parts get enough decimals to keep all boundaries apart. ``abs`` divides the records exactly: sizes differ
            by at most one over the whole expression, the larger parts first. ``shard`` divides the files in the same
            way, so that no two parts open the same one; a file that two slices of a union touch counts as two.
        drop_remainder: with the exact units, leave the last records (or files) out, so that all parts have one size.

    Under the slicing rule ``tfds-4`` an exact part takes its share of each range of a union (each split of ``all``),
    as TFDS divides them; under ``documented`` of all ranges together.

    >>> even_splits("train", n=3)
    ['train[0%:33%]', 'train[33%:67%]', 'train[67%:100%]']
    >>> even_splits("train+test", n=200)[1]
    'train[0.5%:1%]+test[0.5%:1%]'
    >>> [str(part) for part in even_splits("train[:50%]+test", n=2, unit="abs")]
    ['even(train[:50%]+test, 2)[0]', 'even(train[:50%]+test, 2)[1]']

    Raises:
        UsageError: ``n`` is below 1, an unknown unit, or percent of what is sliced already, or with a remainder.
        SplitSyntaxError: ``split`` is malformed.
    """
    n = check_count(n, "n")
    if unit != "%":
        whole = _whole(split)
        return [_part(whole, n, place, place + 1, unit, drop_remainder=drop_remainder) for place in range(n)]
    if drop_remainder:
        raise UsageError(
            "percent leave no remainder to drop",
            hint="Divide exactly: even_splits(split, n, unit='abs', drop_remainder=True).",
        )
    names = _whole_names(split, "even_splits")
    return [_union(names, [bounds]) for bounds in pairwise(_percent_bounds(n))]


def split_for_process(
    split: str | ReadInstruction, *, index: int, count: int, unit: PartUnit = "abs", drop_remainder: bool = False
) -> ReadInstruction:
    """What process ``index`` of ``count`` reads of ``split``: ``even_splits(split, count, unit=unit)[index]``.

    >>> str(split_for_process("train", index=3, count=8, drop_remainder=True))
    'even(train, 8, drop_remainder)[3]'

    Raises:
        UsageError: not 0 <= index < count, or an unknown unit.
        SplitSyntaxError: ``split`` is malformed.
    """
    count, index = check_count(count, "count"), whole_number(index, "index")
    if not 0 <= index < count:
        raise UsageError(
            f"there is no process {shown(index)} of {count}",
            hint="Processes are counted from 0: 0 <= index < count.",
        )
    return _part(_whole(split), count, index, index + 1, unit, drop_remainder=drop_remainder)


def k_fold(split: str | ReadInstruction, k: int, *, unit: Literal["%"] | PartUnit = "%") -> list[Fold]:
    """``k`` folds for cross-validation: each part of ``split`` validates once, and the others train.

    Parts are those of ``even_splits``; with percent the expressions are texts, as the TFDS documents write them down.
    Where ``split`` reads a record twice, one may validate and the other train: ``Plan.overlaps`` names such records.

    >>> for fold in k_fold("train", k=3):
    ...     print(fold.validation, fold.train)
    train[0%:33%] train[33%:100%]
    train[33%:67%] train[0%:33%]+train[67%:100%]
    train[67%:100%] train[0%:67%]

    Raises:
        UsageError: ``k`` is below 2, an unknown unit, or percent of what is sliced already.
        SplitSyntaxError: ``split`` is malformed.
    """
    k = check_count(k, "k", least=2)
    if unit == "%":
        names = _whole_names(split, "k_fold")
        return [
            Fold(_union(names, [(start, stop)]), _union(names, [(_START, start), (stop, _END)]))
            for start, stop in pairwise(_percent_bounds(k))
        ]
    whole = _whole(split)
    folds = []
    for place in range(k):
        others = [_part(whole, k, *bounds, unit) for bounds in ((0, place), (place + 1, k)) if bounds[0] < bounds[1]]
        folds.append(Fold(_part(whole, k, place, place + 1, unit), sum(others[1:], others[0])))
    return folds


def _part(
    whole: str | ReadInstruction, count: int, first: int, stop: int, unit: PartUnit, *, drop_remainder: bool = False
) -> ReadInstruction:
    if isinstance(whole, str):
        return ReadInstruction.of((EvenPart(whole, count, first, stop, unit, drop_remainder),))
    return whole.part(first, stop, of=count, unit=unit, drop_remainder=drop_remainder)


def _whole(split: str | ReadInstruction) -> str | ReadInstruction:
    """What is divided: a text only where one slicing rule alone reads it, and so it has to wait for its rule."""
    if isinstance(split, ReadInstruction):
        return split
    read = []
    for rule in (SlicingRule.TFDS_4, SlicingRule.DOCUMENTED):
        try:
            read.append(ReadInstruction.from_spec(split, slicing=rule))
        except SplitSyntaxError:
            if rule is SlicingRule.DOCUMENTED and not read:
                raise  # no expression at all: this rule says why
    return read[0] if len(read) == 2 else split  # what both read, they read alike


def _whole_names(split: str | ReadInstruction, caller: str) -> list[str]:
    """The names of a union of whole splits."""
    names = []
    for term in ReadInstruction.from_spec(split).terms:
        if isinstance(term, EvenPart) or not term.is_whole:
            raise UsageError(
                f"{term} is sliced already, and percent of a slice have no expression",
                hint=f"Give names of splits, or divide exactly: {caller}({str(split)!r}, ..., unit='abs').",
            )
        names.append(term.split_name)
    return names


def _percent_bounds(n: int) -> list[Fraction]:
    """0, n - 1 boundaries, and 100, halves up, with enough decimals to keep them apart."""
    scale = 10 ** max(0, len(str(n - 1)) - 2)
    return [Fraction((200 * scale * place + n) // (2 * n), scale) for place in range(n + 1)]


def _union(names: list[str], bounds: Sequence[tuple[Fraction, Fraction]]) -> str:
    """The expression of these percent of every name; bounds without anything between them are left out."""
    return "+".join(str(SplitSlice(name, start, stop, "%")) for name in names for start, stop in bounds if start < stop)
