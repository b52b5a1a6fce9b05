"""Divides a split into equal parts: percent expressions, or exact parts of records or files.

The results are expressions or ReadInstructions, which ``resolve`` and every reader accept.
"""

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

_MAX_LISTED: Final = 1_000_000


class Fold(NamedTuple):
    """One fold of a cross-validation: the part that validates, and the remaining parts, which train."""

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
    """Divide ``split`` into ``n`` parts of about the same size. Each record is in exactly one part.

    Args:
        split: with percent, a split name, ``all`` or a union of names, each of which is divided on its own. With the
            exact units, any expression or ReadInstruction.
        n: number of parts.
        unit: ``%`` returns expressions with whole percent, rounded half up, as in the TFDS splits document; for more
            than 100 parts the percentages have as many decimals as are needed to keep them apart. ``abs`` divides the
            records exactly: sizes differ by at most one over the whole expression, the larger parts first. ``shard``
            divides the files in the same way, so that no two parts open the same file; a file that two slices of a
            union touch counts as two.
        drop_remainder: with the exact units, leave out the last records (or files), so that all parts have one size.

    Returns:
        ``n`` expressions as text with ``unit="%"``, otherwise ``n`` ReadInstructions.

    Under the slicing rule ``tfds-4``, an exact part takes its share of each range of a union (each split of ``all``),
    as TFDS does. Under ``documented``, the ranges are divided as one sequence.

    >>> even_splits("train", n=3)
    ['train[0%:33%]', 'train[33%:67%]', 'train[67%:100%]']
    >>> even_splits("train+test", n=200)[1]
    'train[0.5%:1%]+test[0.5%:1%]'
    >>> [str(part) for part in even_splits("train[:50%]+test", n=2, unit="abs")]
    ['even(train[:50%]+test, 2)[0]', 'even(train[:50%]+test, 2)[1]']

    Raises:
        UsageError: ``n`` is below 1 or above a million, the unit is unknown, or, with percent, ``split`` has slices or
            ``drop_remainder`` is set.
        SplitSyntaxError: ``split`` is malformed.
    """
    n = _check_listed(n, "n")
    if unit != "%":
        whole = _whole(split)
        return [_part(whole, n, place, place + 1, unit, drop_remainder=drop_remainder) for place in range(n)]
    if drop_remainder:
        raise UsageError(
            "drop_remainder requires unit='abs' or unit='shard', not percent",
            hint="Divide exactly: even_splits(split, n, unit='abs', drop_remainder=True).",
        )
    names = _whole_names(split, "even_splits", n)
    return [_union(names, [bounds]) for bounds in pairwise(_percent_bounds(n))]


def split_for_process(
    split: str | ReadInstruction, *, index: int, count: int, unit: PartUnit = "abs", drop_remainder: bool = False
) -> ReadInstruction:
    """The part of ``split`` that process ``index`` of ``count`` reads.

    The same as ``even_splits(split, count, unit=unit, drop_remainder=drop_remainder)[index]``; it follows
    ``tfds.split_for_jax_process``.

    Args:
        split: a split expression or a ReadInstruction.
        index: the process, counted from 0.
        count: the number of processes.
        unit: ``abs`` divides records; ``shard`` divides files, so that no two processes open the same file.
        drop_remainder: leave out the last records (or files), so that all processes read the same number.

    >>> str(split_for_process("train", index=3, count=8, drop_remainder=True))
    'even(train, 8, drop_remainder)[3]'

    Raises:
        UsageError: ``index`` is not in 0..count-1, or the unit is unknown.
        SplitSyntaxError: ``split`` is malformed.
    """
    count, index = check_count(count, "count"), whole_number(index, "index")
    if not 0 <= index < count:
        raise UsageError(
            f"index {shown(index)} is out of range for {count} processes",
            hint="Processes are counted from 0: 0 <= index < count.",
        )
    return _part(_whole(split), count, index, index + 1, unit, drop_remainder=drop_remainder)


def k_fold(split: str | ReadInstruction, k: int, *, unit: Literal["%"] | PartUnit = "%") -> list[Fold]:
    """Divide ``split`` into ``k`` folds for cross-validation: each part validates once while the others train.

    If ``split`` reads a record twice, one copy may validate while the other trains; ``Plan.overlaps`` lists such
    records.

    Args:
        split: what ``even_splits`` accepts for this unit.
        k: number of folds, 2 or more.
        unit: ``%`` returns expressions as text, as in the TFDS splits document; ``abs`` divides the records exactly
            and ``shard`` the files, and both return ReadInstructions.

    Returns:
        ``k`` pairs ``Fold(validation, train)``.

    >>> for fold in k_fold("train", k=3):
    ...     print(fold.validation, fold.train)
    train[0%:33%] train[33%:100%]
    train[33%:67%] train[0%:33%]+train[67%:100%]
    train[67%:100%] train[0%:67%]

    Raises:
        UsageError: ``k`` is below 2 or above a million, the unit is unknown, or, with percent, ``split`` has slices.
        SplitSyntaxError: ``split`` is malformed.
    """
    k = _check_listed(k, "k", least=2)
    if unit == "%":
        names = _whole_names(split, "k_fold", k)
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


def _check_listed(count: int, name: str, *, least: int = 1) -> int:
    """``count`` as an int, if that many parts can be listed."""
    return whole_number(
        check_count(count, name, least=least),
        name,
        below=_MAX_LISTED + 1,
        hint="To get one part of many: split_for_process(split, index=0, count=...).",
    )


def _part(
    whole: str | ReadInstruction, count: int, first: int, stop: int, unit: PartUnit, *, drop_remainder: bool = False
) -> ReadInstruction:
    if isinstance(whole, str):
        return ReadInstruction.of((EvenPart(whole, count, first, stop, unit, drop_remainder),))
    return whole.part(first, stop, of=count, unit=unit, drop_remainder=drop_remainder)


def _whole(split: str | ReadInstruction) -> str | ReadInstruction:
    """``split`` as an instruction, or still as text if only one of the slicing rules can parse it."""
    if isinstance(split, ReadInstruction):
        return split
    read = []
    for rule in (SlicingRule.TFDS_4, SlicingRule.DOCUMENTED):
        try:
            read.append(ReadInstruction.from_spec(split, slicing=rule))
        except SplitSyntaxError:
            if rule is SlicingRule.DOCUMENTED and not read:
                raise  # neither rule can parse it: report the error of the documented rule
    return read[0] if len(read) == 2 else split  # if both rules can parse a text, they give equal instructions


def _whole_names(split: str | ReadInstruction, caller: str, count: int) -> list[str]:
    """The names of a union of whole splits."""
    names = []
    for term in ReadInstruction.from_spec(split).terms:
        if isinstance(term, EvenPart) or not term.is_whole:
            raise UsageError(
                f"{term} is already a slice, and a percentage of a slice cannot be written as an expression",
                hint=f"Pass split names, or divide exactly: {caller}({str(split)!r}, {count}, unit='abs').",
            )
        names.append(term.split_name)
    return names


def _percent_bounds(n: int) -> list[Fraction]:
    """The ``n + 1`` bounds from 0 to 100, rounded half up, with enough decimals to keep them apart."""
    scale = 10 ** max(0, len(str(n - 1)) - 2)
    return [Fraction((200 * scale * place + n) // (2 * n), scale) for place in range(n + 1)]


def _union(names: list[str], bounds: Sequence[tuple[Fraction, Fraction]]) -> str:
    """The expression that reads these percent of every name, without empty slices."""
    return "+".join(str(SplitSlice(name, start, stop, "%")) for name in names for start, stop in bounds if start < stop)
