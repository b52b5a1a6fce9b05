"""Parses split expressions: text to terms, with a caret under the first character that does not fit.

The first step of ``text -> terms -> record ranges``. The parser is a recursive descent over compiled patterns without
backtracking, so it takes linear time. Any text gives terms or one SplitSyntaxError.

The TFDS 4 slicing rule reads a slightly different language; ``_Dialect`` lists the differences.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from registry.errors import SplitSyntaxError, UsageError
from registry.model import SlicingRule
from registry.splits.terms import MAX_DEPTH, MAX_DIGITS, MAX_NAME_LENGTH, EvenPart, PartUnit, SplitSlice, Term, Unit

_NAME_HINT: Final = "A split name consists of letters, digits, '_' and '-'; join splits with '+', e.g. train+test."
_PART_HINT: Final = "An exact part is even(split, number of parts)[part], e.g. even(train, 3)[0]."
_COUNTED: Final = {"abs": "records", "%": "percent", "shard": "shards"}


def parse_terms(text: str, *, slicing: SlicingRule | str = SlicingRule.DOCUMENTED) -> tuple[Term, ...]:
    r"""Parse ``text`` to its terms, in order: slices of splits, and exact parts.

    Grammar (``letter``, ``digit`` and ``space`` are ASCII)::

        expression := term ( space* "+" space* term )*
        term       := slice | part
        slice      := name ( "[" selector "]" )?
        name       := ( letter | digit | "_" | "-" )+             "all" is the union of every split
        selector   := bound? ":" bound? | whole "shard"           the second form is one shard
        bound      := whole | whole "shard" | percent "%"
        whole      := "-"? digits
        percent    := "-"? ( digits ( "." digits? )? | "." digits )
        part       := "even(" space* expression space* "," space* count space* ")" "[" places "]"
        count      := digits "shard"? ( space* "," space* "drop_remainder" )?
        places     := whole | whole? ":" whole?                   negative ones count from the last part
        digits     := [0-9]+ ( "_" [0-9]+ )*

    Every bound has its own unit, and both bounds of a slice must have the same unit: ``train[10:50%]`` and
    ``train[1:3shard]`` are rejected, because they mix a record with a percentage, and a record with a shard.

    >>> [str(part) for part in parse_terms("train[1_000:] + test[-1shard] + all[:2.50%]")]
    ['train[1000:]', 'test[-1shard:]', 'all[:2.5%]']

    With ``slicing="tfds-4"``, the parser accepts what TFDS 4 accepts: letters and digits of any script, one unit for
    both bounds (the unit of the first bound that has one), and one newline at the end. It rejects a slice without
    bounds (``train[:]``), as TFDS does.

    Raises:
        SplitSyntaxError: the text is malformed; ``details`` holds the span and what was expected there.
        UsageError: ``text`` is not a str, or the slicing rule is unknown.
    """
    if not isinstance(text, str):
        raise UsageError(
            f"a split expression must be text or a ReadInstruction, not {type(text).__name__}",
            hint="Write it as text, train[:10%], or as a registry.ReadInstruction, which takes TFDS's arguments.",
        )
    return _SplitParser(text, _DIALECTS[SlicingRule.of(slicing)]).whole()


class _Dialect:
    """The differences between the documented language and the language of TFDS 4."""

    def __init__(self, *, is_tfds: bool) -> None:
        flags = re.NOFLAG if is_tfds else re.ASCII
        self.is_tfds = is_tfds
        self.name = re.compile(r"[\w-]+", flags)
        self.space = re.compile(r"\s*", flags)
        self.digits = re.compile(r"\d+(?:_\d+)*", flags)


_DIALECTS: Final = {SlicingRule.DOCUMENTED: _Dialect(is_tfds=False), SlicingRule.TFDS_4: _Dialect(is_tfds=True)}


@dataclass(frozen=True, slots=True)
class _Bound:
    """A number as written: its value, its unit (None if it has none), and its span in the text."""

    value: int | Fraction
    has_point: bool
    unit: Unit | None
    start: int
    stop: int


class _SplitParser:
    """One pass over one text; ``at`` is the position of the next character to parse."""

    def __init__(self, text: str, dialect: _Dialect) -> None:
        self.text = text
        self.dialect = dialect
        self.at = 0
        self.depth = 0
        self.end = len(text) - 1 if dialect.is_tfds and text.endswith("\n") else len(text)

    def whole(self) -> tuple[Term, ...]:
        """``expression`` up to the end of the text."""
        terms = self.expression()
        if self.at < self.end:
            raise self._refuse(
                f"expected {self._wanted_after_term()} or the end of the expression here", hint=_NAME_HINT
            )
        return terms

    def expression(self) -> tuple[Term, ...]:
        """``expression := term ( space* "+" space* term )*``; ends at the first term that no ``+`` follows."""
        terms = [self.term()]
        while self.at < self.end:
            end_of_term = self.at
            self._skip_space()
            if not self._take("+"):
                self.at = end_of_term
                break
            self._skip_space()
            terms.append(self.term())
        return tuple(terms)

    def term(self) -> Term:
        """``term := name ( "[" selector "]" )? | part``."""
        match = self.dialect.name.match(self.text, self.at, self.end)
        if match is None:
            raise self._refuse("expected a split name here", hint=_NAME_HINT)
        if match.end() - match.start() > MAX_NAME_LENGTH:
            raise self._refuse(
                f"a split name has at most {MAX_NAME_LENGTH} characters", stop=match.end(), hint=_NAME_HINT
            )
        self.at = match.end()
        if match[0] == "even" and self._take("("):
            return self.part(match.start())
        if not self._take("["):
            return SplitSlice(match[0])
        selected = self.selector(match[0])
        if not self._take("]"):
            raise self._refuse("expected ']' here")
        return selected

    def selector(self, name: str) -> SplitSlice:
        """``selector := bound? ":" bound? | whole "shard"``."""
        opening = self.at
        first = self.bound()
        if not self._take(":"):
            if first is None:
                raise self._refuse("expected a number or ':' here")
            if self._peek() == "]":
                return self._single_shard(name, first)
            raise self._refuse(f"expected {_wanted_after(first)}':' here")
        second = self.bound()
        if self._peek() == ":":
            raise self._refuse("a slice has two bounds and cannot have a step")
        if self._peek() != "]":
            wanted = "a number or " if second is None else _wanted_after(second)
            raise self._refuse(f"expected {wanted}']' here")
        if first is None and second is None:
            if self.dialect.is_tfds:
                raise self._refuse("TFDS expects a number before or after ':'", start=opening)
            return SplitSlice(name)
        unit = self._common_unit(first, second)
        return SplitSlice(name, self._value(first, unit), self._value(second, unit), unit)

    def part(self, start: int) -> EvenPart:
        """``part := "even(" space* expression space* "," space* count space* ")" "[" places "]"``."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._refuse(f"parts can be nested at most {MAX_DEPTH} deep", start=start, hint=_PART_HINT)
        self._skip_space()
        terms = self.expression()
        wanted = self._wanted_after_term()
        self._skip_space()
        if not self._take(","):
            raise self._refuse(f"expected {wanted} or ',' here", hint=_PART_HINT)
        self._skip_space()
        count, unit = self._count()
        self._skip_space()
        is_dropping = self._take(",")
        if is_dropping:
            self._skip_space()
            if not self._take("drop_remainder"):
                raise self._refuse("expected 'drop_remainder' here", hint=_PART_HINT)
            self._skip_space()
        if not self._take(")"):
            wanted = "')'" if is_dropping else "',' or ')'" if unit == "shard" else "a digit, 'shard', ',' or ')'"
            raise self._refuse(f"expected {wanted} here", hint=_PART_HINT)
        if not self._take("["):
            raise self._refuse("expected '[' and the number of a part here", hint=_PART_HINT)
        first, stop = self._places(count)
        self.depth -= 1
        return EvenPart(terms, count, first, stop, unit, is_dropping)

    def _count(self) -> tuple[int, PartUnit]:
        """``count``: the number of parts and their unit; ``part`` parses the ``drop_remainder`` after it."""
        start = self.at
        digits = self._digits()
        if not digits:
            raise self._refuse("expected the number of parts here", hint=_PART_HINT)
        if len(digits) > MAX_DIGITS:
            raise self._refuse(f"a number has at most {MAX_DIGITS} digits", start=start)
        if not (count := int(digits)):
            raise self._refuse("a split is divided into 1 part or more", start=start, hint=_PART_HINT)
        return count, "shard" if self._take("shard") else "abs"

    def _places(self, count: int) -> tuple[int, int]:
        """``places := whole | whole? ":" whole?`` and the ``]`` after them, as (first, stop) counted from part 0."""
        start = self.at
        first = self._place(count, is_end=False)
        if not self._take(":"):
            if first is None:
                raise self._refuse("expected the number of a part or ':' here", hint=_PART_HINT)
            if not self._take("]"):
                raise self._refuse("expected a digit, ':' or ']' here", hint=_PART_HINT)
            return first, first + 1
        stop = self._place(count, is_end=True)
        if not self._take("]"):
            raise self._refuse(
                "expected a number or ']' here" if stop is None else "expected a digit or ']' here", hint=_PART_HINT
            )
        first, stop = first or 0, count if stop is None else stop
        if first > stop:
            raise self._refuse(
                f"these parts are reversed: from {first} to {stop}", start=start, stop=self.at - 1, hint=_PART_HINT
            )
        return first, stop

    def _place(self, count: int, *, is_end: bool) -> int | None:
        """The number of a part, or None if no number is here. An end may be one past the last part."""
        start = self.at
        is_negative = self._take("-")
        digits = self._digits()
        if not digits:
            if is_negative:
                raise self._refuse("expected a digit here", hint=_PART_HINT)
            return None
        if len(digits) > MAX_DIGITS:
            raise self._refuse(f"a number has at most {MAX_DIGITS} digits", start=start)
        place = count - int(digits) if is_negative else int(digits)
        # Before a ':' the number is a bound, not a part, so it may be one past the last part as well.
        if not 0 <= place < count + (is_end or self._peek() == ":"):
            raise self._refuse(
                f"there {'is 1 part' if count == 1 else f'are {count} parts'}, counted from 0",
                start=start,
                hint=_PART_HINT,
            )
        return place

    def bound(self) -> _Bound | None:
        """``bound := whole | whole "shard" | percent "%"``; None if no number begins here."""
        start = self.at
        is_negative = self._take("-")
        whole = self._digits()
        has_point = self._take(".")
        fraction = self._digits() if has_point else ""
        if not whole and not fraction:
            if is_negative or has_point:
                raise self._refuse("expected a digit here")
            if self._peek() == "_":
                raise self._refuse("an underscore must be between two digits")
            return None
        if self._peek() == "_":
            raise self._refuse("an underscore must be between two digits")
        if len(whole) + len(fraction) > MAX_DIGITS:
            raise self._refuse(f"a number has at most {MAX_DIGITS} digits", start=start)
        number = int(whole + fraction) * (-1 if is_negative else 1)
        unit: Unit | None = "%" if self._take("%") else "shard" if self._take("shard") else None
        exact = Fraction(number, 10 ** len(fraction)) if fraction else number
        return _Bound(exact, has_point, unit, start, self.at)

    def _digits(self) -> str:
        """``digits := [0-9]+ ( "_" [0-9]+ )*``, without the underscores; empty if no digit is here."""
        match = self.dialect.digits.match(self.text, self.at, self.end)
        if match is None:
            return ""
        self.at = match.end()
        return match[0].replace("_", "")

    def _single_shard(self, name: str, only: _Bound) -> SplitSlice:
        if only.unit != "shard":
            single = "-1:" if only.value == -1 else f"{only.value}:{only.value + 1}"
            raise self._refuse(
                "one number alone selects a shard, e.g. 3shard; records and percent need ':'",
                start=only.start,
                stop=only.stop,
                hint=f"That record alone is {name}[{single}]." if only.unit is None and not only.has_point else None,
            )
        if only.has_point:
            raise self._fraction(only)
        shard = int(only.value)
        if shard >= 10**MAX_DIGITS - 1:  # the number of the next shard, the end bound, would have one digit more
            raise self._refuse(f"a number has at most {MAX_DIGITS} digits", start=only.start, stop=only.stop)
        # The last shard has an open end: as a bound, -1 + 1 = 0 would be the beginning of the split.
        return SplitSlice(name, shard, None if shard == -1 else shard + 1, "shard")

    def _common_unit(self, first: _Bound | None, second: _Bound | None) -> Unit:
        units = [bound.unit for bound in (first, second) if bound is not None]
        if self.dialect.is_tfds:
            return next((unit for unit in units if unit), "abs")
        if first is not None and second is not None and first.unit != second.unit:
            raise self._refuse(
                f"mixed units: this bound counts {_COUNTED[second.unit or 'abs']}, "
                f"the first one counts {_COUNTED[first.unit or 'abs']}",
                start=second.start,
                stop=second.stop,
                hint="Give both bounds the same unit, e.g. train[10%:50%] or train[1shard:3shard].",
            )
        return units[0] or "abs"

    def _value(self, bound: _Bound | None, unit: Unit) -> int | Fraction | None:
        if bound is None:
            return None
        if unit != "%" and bound.has_point:
            raise self._fraction(bound)
        if unit == "%" and not -100 <= bound.value <= 100:
            raise self._refuse(
                "a percentage must be between -100% and 100%",
                start=bound.start,
                stop=bound.stop,
                hint="Write records without '%', e.g. train[:500].",
            )
        return bound.value

    def _fraction(self, bound: _Bound) -> SplitSyntaxError:
        return self._refuse("only a percentage can have a fraction", start=bound.start, stop=bound.stop)

    def _wanted_after_term(self) -> str:
        return "'+'" if self.text[self.at - 1] == "]" else "'[', '+'"

    def _skip_space(self) -> None:
        match = self.dialect.space.match(self.text, self.at, self.end)
        if match is not None:
            self.at = match.end()

    def _peek(self) -> str:
        return self.text[self.at] if self.at < self.end else ""

    def _take(self, word: str) -> bool:
        if not self.text.startswith(word, self.at, self.end):
            return False
        self.at += len(word)
        return True

    def _refuse(
        self, expected: str, *, start: int | None = None, stop: int | None = None, hint: str | None = None
    ) -> SplitSyntaxError:
        """The error of the span ``start``..``stop``.

        ``stop`` defaults to the current position. Without ``start``, the span begins at the current position and is one
        character long unless ``stop`` says otherwise.
        """
        if stop is None:
            stop = self.at + 1 if start is None else self.at
        start = self.at if start is None else start
        return SplitSyntaxError(expected, expression=self.text, start=start, stop=stop, hint=hint)


def _wanted_after(bound: _Bound) -> str:
    """What could also have followed a bound: more digits, or its unit."""
    if bound.unit is not None:
        return ""
    return "a digit, '%' or " if bound.has_point else "a digit, '%', 'shard' or "
