"""``ReadInstruction``: the public value of a split expression, before the number of records is known.

Text becomes a ReadInstruction (``from_spec``), and ``resolve`` makes a plan of it once the layout is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from registry.errors import SplitSyntaxError, UsageError
from registry.model import SlicingRule
from registry.splits.grammar import parse_terms
from registry.splits.terms import (
    BoundLike,
    EvenPart,
    PartUnit,
    Rounding,
    SplitSlice,
    Term,
    Unit,
    check_rounding,
    print_bound,
)


class ReadInstruction:
    """One slice of one split, or the sum of several, read one after the other. Immutable, compared by value.

    Bounds are whole numbers of records (``unit="abs"``) or shards (``unit="shard"``), or percent, where floats,
    decimals and fractions are taken by their exact decimal text. ``rounding`` is for percent only and has no text form:
    it is lost by ``str()``, kept by ``repr()``, and can be given to ``resolve`` instead. A name with letters beyond
    ASCII, which TFDS allows, is read back by the slicing rule ``tfds-4`` only. The signature is TFDS's.

    >>> half = ReadInstruction("train", to=50, unit="%")
    >>> both = half + ReadInstruction("test", from_=-100)
    >>> str(both)
    'train[:50%]+test[-100:]'
    >>> ReadInstruction.from_spec(str(both)) == both
    True

    Raises:
        SliceError: a percentage beyond -100..100, or a bound that its unit cannot have.
        UsageError: an unknown unit or rounding, or a name that no split has.
    """

    __slots__ = ("_terms",)
    _terms: tuple[Term, ...]

    def __init__(
        self,
        split_name: str,
        from_: BoundLike | None = None,
        to: BoundLike | None = None,
        unit: Unit = "abs",
        rounding: Rounding = "closest",
    ) -> None:
        # SplitSlice turns whatever a caller may give into exact numbers.
        self._terms: tuple[Term, ...] = (SplitSlice(split_name, from_, to, unit, rounding),)  # type: ignore[arg-type]

    @classmethod
    def from_spec(
        cls, spec: str | ReadInstruction, *, slicing: SlicingRule | str = SlicingRule.DOCUMENTED
    ) -> ReadInstruction:
        """The instruction that a split expression spells (grammar: ``parse_terms``); an instruction is given back.

        Raises:
            SplitSyntaxError: the text is malformed; the message draws a caret under the place.
        """
        return spec if isinstance(spec, ReadInstruction) else cls.of(parse_terms(spec, slicing=slicing))

    @classmethod
    def of(cls, terms: tuple[Term, ...]) -> ReadInstruction:
        """The sum of ``terms``, in order; UsageError where there are none."""
        if not terms:
            raise UsageError("an instruction reads at least one slice")
        instruction = cls.__new__(cls)
        instruction._terms = terms
        return instruction

    @property
    def terms(self) -> tuple[Term, ...]:
        """What is read, in order: slices of splits, and exact parts."""
        return self._terms

    @property
    def names(self) -> tuple[str, ...]:
        """The names of splits that it mentions, once each, in order."""
        return tuple(dict.fromkeys(part.split_name for part in _slices_of(self._terms)))

    @property
    def roundings(self) -> tuple[Rounding, ...]:
        """How its percentages are rounded, each way once; empty where it has none."""
        return tuple(dict.fromkeys(part.rounding for part in _slices_of(self._terms) if part.unit == "%"))

    def part(
        self, first: int, stop: int | None = None, *, of: int, unit: PartUnit = "abs", drop_remainder: bool = False
    ) -> ReadInstruction:
        """Part ``first`` (0..of-1) of ``of`` equal parts of what this reads, or parts ``first``..``stop``.

        What ``even_splits`` makes many of; units and remainder are explained there.

        >>> str(ReadInstruction("train").part(0, of=3))
        'even(train, 3)[0]'

        Raises:
            UsageError: a part that is not there, or an unknown unit.
        """
        return ReadInstruction.of(
            (EvenPart(self._terms, of, first, first + 1 if stop is None else stop, unit, drop_remainder),)
        )

    def with_rounding(self, rounding: str) -> ReadInstruction:
        """The same instruction, all its percentages rounded by ``rounding``."""
        checked = check_rounding(rounding)
        try:
            read = self.read_by(SlicingRule.DOCUMENTED)
        except SplitSyntaxError:  # a text within ``even_splits`` that only the other rule reads
            read = self.read_by(SlicingRule.TFDS_4)
        return ReadInstruction.of(tuple(_round_term(term, checked) for term in read.terms))

    def read_by(self, slicing: SlicingRule | str) -> ReadInstruction:
        """The same instruction, with every text that ``even_splits`` had to leave to a slicing rule read by this one.

        Raises:
            SplitSyntaxError: the rule cannot read it.
        """
        if not any(isinstance(term, EvenPart) for term in self._terms):
            return self
        return ReadInstruction.of(tuple(_read_term(term, slicing) for term in self._terms))

    def __add__(self, other: ReadInstruction | str) -> ReadInstruction:
        if not isinstance(other, ReadInstruction | str):
            return NotImplemented
        return ReadInstruction.of(self._terms + ReadInstruction.from_spec(other).terms)

    def __radd__(self, other: str) -> ReadInstruction:
        if not isinstance(other, str):
            return NotImplemented
        return ReadInstruction.from_spec(other) + self

    def __eq__(self, other: object) -> bool:
        return self._terms == other._terms if isinstance(other, ReadInstruction) else NotImplemented

    def __hash__(self) -> int:
        return hash((ReadInstruction, self._terms))

    def __str__(self) -> str:
        return "+".join(map(str, self._terms))

    def __repr__(self) -> str:
        return " + ".join(map(_print_call, self._terms))


def _slices_of(terms: tuple[Term, ...]) -> Iterator[SplitSlice]:
    """The slices of ``terms``, those inside parts included."""
    for term in terms:
        if isinstance(term, EvenPart):
            yield from _slices_of(term.terms)
        else:
            yield term


def _read_term(term: Term, slicing: SlicingRule | str) -> Term:
    if isinstance(term, SplitSlice):
        return term
    terms = parse_terms(term.split, slicing=slicing) if isinstance(term.split, str) else term.split
    return replace(term, split=tuple(_read_term(one, slicing) for one in terms))


def _round_term(term: Term, rounding: Rounding) -> Term:
    if isinstance(term, SplitSlice):
        return replace(term, rounding=rounding) if term.unit == "%" else term
    return replace(term, split=tuple(_round_term(one, rounding) for one in term.terms))


def _print_call(term: Term) -> str:
    """The call that makes ``term``."""
    return _print_part(term) if isinstance(term, EvenPart) else _print_slice(term)


def _print_part(part: EvenPart) -> str:
    if isinstance(part.split, str):
        if part.stop != part.first + 1:
            return f"ReadInstruction.of(({part!r},))"
        unit = f"unit={part.unit!r}{', drop_remainder=True' if part.drop_remainder else ''}"
        return f"even_splits({part.split!r}, n={part.count}, {unit})[{part.first}]"
    whole = " + ".join(map(_print_call, part.split))
    arguments = [f"{part.first}"]
    if part.stop != part.first + 1:
        arguments.append(f"{part.stop}")
    arguments.append(f"of={part.count}")
    if part.unit != "abs":
        arguments.append(f"unit={part.unit!r}")
    if part.drop_remainder:
        arguments.append("drop_remainder=True")
    return f"{f'({whole})' if len(part.split) > 1 else whole}.part({', '.join(arguments)})"


def _print_slice(part: SplitSlice) -> str:
    """Fractions as Decimal texts, which are exact."""
    arguments = [repr(part.split_name)]
    for name, bound in (("from_", part.from_), ("to", part.to)):
        if bound is not None:
            text = print_bound(bound, "abs")
            arguments.append(f"{name}={text}" if isinstance(bound, int) else f"{name}=Decimal('{text}')")
    if part.unit != "abs":
        arguments.append(f"unit={part.unit!r}")
    if part.rounding != "closest":
        arguments.append(f"rounding={part.rounding!r}")
    return f"ReadInstruction({', '.join(arguments)})"
