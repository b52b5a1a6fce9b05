"""Collects the values of a column that becomes a ClassLabel on request, and decides the order of its classes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import numpy as np

from registry.errors import FeatureError, SourceError
from registry.features import ClassLabel
from registry.intake.remembered import AS_BEFORE
from registry.intake.value_types import name_type, plain_type
from registry.intake.values import Place, quote, show_place
from registry.shards.arrow_values import import_pyarrow

MAX_CLASSES: Final = 10_000
"""Most classes that are collected. More of them are hardly classes, and all names are kept in memory."""

MAX_NAME: Final = 1_000
"""Most characters of the name of a class."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_NOT_UTF8: Final = "text that is not UTF-8"
BOOLEANS: Final = ("false", "true")
"""The names of the classes of a column of booleans."""


@dataclass(slots=True)
class ClassValues:
    """The distinct values of a column.

    Attributes:
        kinds: the first value of each type, by the name of the type.
        names: the first place of each text; at most ``MAX_CLASSES`` and one more.
        low, high: the bounds of integers.
    """

    kinds: dict[str, Place] = field(default_factory=dict)
    names: dict[str, Place] = field(default_factory=dict)
    low: int | None = None
    high: int | None = None

    def update(self, array: Any, place_of: Callable[[int], Place]) -> None:
        """Add the values of an array."""
        arrow = import_pyarrow()
        kind = plain_type(array.type)
        if array.null_count == len(array):
            return
        valid = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
        array = array.drop_null()
        first = place_of(int(valid[0]))
        self.kinds[str(kind)] = min(self.kinds.get(str(kind), first), first)
        if arrow.types.is_integer(kind):
            bounds = arrow.compute.min_max(array).as_py()
            self._widen(bounds["min"], bounds["max"])
        elif arrow.types.is_string(kind) and len(self.names) <= MAX_CLASSES:
            encoded = array.dictionary_encode()
            _, indices = np.unique(encoded.indices.to_numpy(zero_copy_only=False), return_index=True)
            try:
                texts = encoded.dictionary.to_pylist()
            except UnicodeDecodeError:
                self.kinds[_NOT_UTF8] = min(self.kinds.get(_NOT_UTF8, first), first)
                return
            for text, index in zip(texts, indices.tolist(), strict=True):
                name = text[: MAX_NAME + 1]
                if len(self.names) <= MAX_CLASSES or name in self.names:
                    place = place_of(int(valid[index]))
                    self.names[name] = min(self.names.get(name, place), place)

    def decide(self, column: str, *, is_text: bool, before: ClassLabel | None = None) -> tuple[ClassLabel, str]:
        """The label, and why its classes have this order.

        Args:
            column: the name of the column, for errors.
            is_text: whether texts of integers are the numbers of classes.
            before: the label of the version before, whose classes keep their numbers.

        Raises:
            SourceError: the values cannot be classes.
        """
        if before is not None:
            return self._continue(column, before, is_text=is_text)
        if not self.kinds:
            _refuse(column, "every value is null, so it has no classes")
        if len(self.kinds) > 1 and not self.kinds.keys().isdisjoint(("string", "bool")):
            (first, kind), (second, other) = sorted((place, name) for name, place in self.kinds.items())[:2]
            _refuse(
                column,
                f"it is {name_type(kind)} at {show_place(first)}, and {name_type(other)} at {show_place(second)}",
            )
        if "bool" in self.kinds:
            return ClassLabel(names=BOOLEANS), "classes false and true, as requested"
        if self.low is not None and self.high is not None:
            return self._decide_numbers(column, self.low, self.high)
        if not self.names:
            name, place = max(self.kinds.items())
            _refuse(column, f"{name_type(name)} at {show_place(place)} cannot be a class")
        if len(self.names) > MAX_CLASSES:
            _refuse(column, f"it has more than {MAX_CLASSES:,} different values, which is too many for classes")
        if is_text and all(map(_INTEGER.fullmatch, self.names)) and "-0" not in self.names:
            numbers = list(map(int, self.names))
            return self._decide_numbers(column, min(numbers), max(numbers))
        return self._decide_names(column)

    def _continue(self, column: str, before: ClassLabel, *, is_text: bool) -> tuple[ClassLabel, str]:
        """The label of the version before, with the classes that are new."""
        if not self.kinds:
            return before, AS_BEFORE
        are_few = 0 < len(self.names) <= MAX_CLASSES
        are_names = before.names is not None and are_few and not self.kinds.keys() - {"string"}
        try:
            label, reason = self._decide_names(column) if are_names else self.decide(column, is_text=is_text)
        except SourceError as error:
            more = f"{error.hint}. To infer all types anew, not as in the version before: --retype"
            raise SourceError(error.message, hint=more, details=error.details) from error
        return continue_classes(column, before, label, reason, is_by_name=True)

    def _decide_names(self, column: str) -> tuple[ClassLabel, str]:
        names = sorted(self.names)
        for name in names:
            try:
                if len(name) > MAX_NAME:
                    _refuse(column, f"{quote(name)} at {show_place(self.names[name])} is too long for a class")
                ClassLabel(names=[name])
            except FeatureError as error:
                _refuse(column, f"{error.message} at {show_place(self.names[name])}")
        return ClassLabel(names=names), f"{_count(len(names))} as requested, sorted by name"

    @staticmethod
    def _decide_numbers(column: str, low: int, high: int) -> tuple[ClassLabel, str]:
        if low < -1:
            _refuse(column, f"the number {low} cannot be a class")
        if high >= MAX_CLASSES:
            _refuse(column, f"the number {high} is too large: a ClassLabel has at most {MAX_CLASSES:,} classes")
        note = ", and -1 for no label" if low < 0 else ""
        label = ClassLabel(num_classes=high + 1)
        return label, f"{_count(high + 1)} as requested, numbered from 0 as in the data{note}"

    def _widen(self, low: int, high: int) -> None:
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)


def continue_classes(
    column: str, before: ClassLabel, label: ClassLabel, reason: str, *, is_by_name: bool
) -> tuple[ClassLabel, str]:
    """The classes of the version before, followed by the new ones of ``label``, and why they have this order.

    Args:
        column: the name of the column, for errors.
        before: the label of the version before.
        label: that of the values.
        reason: why ``label`` has its order.
        is_by_name: whether the values are the names of classes, and not their numbers in ``label``.

    Raises:
        SourceError: the classes of the version before have other numbers in ``label``.
    """
    if before.names is not None and label.names is not None:
        known = set(before.names)
        more = [name for name in label.names if name not in known]
        names = [*before.names, *more]
        if is_by_name or names[: len(label.names)] == list(label.names):
            new = f"; new: {', '.join(map(quote, more[:5]))}" + (f" and {len(more) - 5:,} more" if more[5:] else "")
            return ClassLabel(names=names), f"{_count(len(names))}, {AS_BEFORE}{new if more else ''}"
    num_before = before.num_classes or 0
    if label.names is None and (label.num_classes or 0) <= num_before:
        return before, AS_BEFORE
    if before.names is None and label.names is None:
        return label, f"{reason}; {num_before:,} in the version before"
    raise SourceError(
        f"column {quote(column)}: its classes were {_describe(before)} in the version before, and are "
        f"{_describe(label)} now",
        hint="To number the classes anew: --retype",
        details={"column": column},
    )


def _describe(label: ClassLabel) -> str:
    if label.names is None:
        return "numbers"
    return f"the names {', '.join(map(quote, label.names[:5]))}{' ...' if label.names[5:] else ''}"


def _count(number: int) -> str:
    return f"{number:,} class{'es' if number != 1 else ''}"


def _refuse(column: str, problem: str) -> NoReturn:
    raise SourceError(
        f"column {quote(column)}: {problem}",
        hint=f"To store it as text: --feature {shlex.quote(f'{column}=Text')}",
        details={"column": column},
    )
