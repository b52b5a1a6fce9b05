"""``ReadInstruction``: the public value of a split expression, before the number of records is known.

``from_spec`` parses text to a ReadInstruction, and ``resolve`` turns it into a plan once the layout is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from registry.errors import SplitSyntaxError, UsageError
from registry.model import SlicingRule, whole_number
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
    """One slice of one split, or the sum of several slices, read one after the other. Immutable, compared by value.

    The signature is that of ``tfds.core.ReadInstruction`` in TFDS 4.

    Args:
        split_name: name of a split, or ``all`` for the union of all splits. The text of a name with letters beyond
            ASCII, which TFDS allows, is only parsed by the slicing rule ``tfds-4``.
        from_: the first bound, included; None reads from the start. Negative bounds count from the end.
        to: the second bound, excluded; None reads to the end.
        unit: ``abs`` counts records, ``shard`` counts files, ``%`` is percent. Percent may be floats, decimals and
            fractions: their exact decimal text is used, so 33.3 means 33.3 and not the nearest binary fraction.
        rounding: how percentages are rounded to records, ``closest`` or ``pct1_dropremainder``. It has no text form:
            ``repr()`` shows it, ``str()`` loses it. To round an expression that is text, pass it to ``resolve``.

    >>> half = ReadInstruction("train", to=50, unit="%")
    >>> both = half + ReadInstruction("test", from_=-100)
    >>> str(both)
    'train[:50%]+test[-100:]'
    >>> ReadInstruction.from_spec(str(both)) == both
    True

    Raises:
        SliceError: a percentage is outside -100..100, or a bound is not a valid number of its unit.
        UsageError: the unit or the rounding is unknown, or the split name is invalid.
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
        # SplitSlice converts any accepted number to an exact one.
        self._terms: tuple[Term, ...] = (SplitSlice(split_name, from_, to, unit, rounding),)  # type: ignore[arg-type]

    @classmethod
    def from_spec(
        cls, spec: str | ReadInstruction, *, slicing: SlicingRule | str = SlicingRule.DOCUMENTED
    ) -> ReadInstruction:
        """Parse a split expression such as ``train[:80%]+test``. A ReadInstruction is returned unchanged.

        Args:
            spec: the expression. A term is ``name``, ``name[from:to]`` with bounds in records (``10``), percent
                (``10%``) or shards (``1shard``), or ``even(expression, count)[part]``; ``+`` joins terms.
            slicing: the slicing rule, ``documented`` or ``tfds-4``, whose language is parsed.

        >>> ReadInstruction.from_spec("train[10%:]")
        ReadInstruction('train', from_=10, unit='%')

        Raises:
            SplitSyntaxError: the text is malformed; the message draws a caret under the place.
            UsageError: ``spec`` is neither text nor a ReadInstruction, or the slicing rule is unknown.
        """
        return spec if isinstance(spec, ReadInstruction) else cls.of(parse_terms(spec, slicing=slicing))

    @classmethod
    def of(cls, terms: tuple[Term, ...]) -> ReadInstruction:
        """The sum of ``terms``, in order. Raises UsageError if ``terms`` is empty."""
        if not terms:
            raise UsageError("an instruction must read at least one slice")
        instruction = cls.__new__(cls)
        instruction._terms = terms
        return instruction

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms that are read, in order: slices of splits, and exact parts."""
        return self._terms

    @property
    def names(self) -> tuple[str, ...]:
        """The split names that it mentions, in order, each once."""
        return tuple(dict.fromkeys(part.split_name for part in _slices_of(self._terms)))

    @property
    def roundings(self) -> tuple[Rounding, ...]:
        """The roundings of its percentages, each once; empty if it has no percentages."""
        return tuple(dict.fromkeys(part.rounding for part in _slices_of(self._terms) if part.unit == "%"))

    def part(
        self, first: int, stop: int | None = None, *, of: int, unit: PartUnit = "abs", drop_remainder: bool = False
    ) -> ReadInstruction:
        """Part ``first`` of ``of`` equal parts of this instruction, or parts ``first``..``stop`` (stop excluded).

        ``even_splits`` returns a list of such parts.

        Args:
            first: the first part, counted from 0.
            stop: the part to stop before; without it, only part ``first`` is read.
            of: the number of parts.
            unit: ``abs`` divides records, ``shard`` divides whole files. Sizes differ by at most one.
            drop_remainder: leave out the last records or files, so that all parts have the same size.

        >>> str(ReadInstruction("train").part(0, of=3))
        'even(train, 3)[0]'

        Raises:
            UsageError: a part does not exist, or the unit is unknown.
        """
        first = whole_number(first, "first")
        return ReadInstruction.of(
            (EvenPart(self._terms, of, first, first + 1 if stop is None else stop, unit, drop_remainder),)
        )

    def with_rounding(self, rounding: str) -> ReadInstruction:
        """The same instruction with ``rounding`` for all its percentages. Raises UsageError for an unknown rounding."""
        checked = check_rounding(rounding)
        try:
            read = self.read_by(SlicingRule.DOCUMENTED)
        except SplitSyntaxError:  # a text inside an exact part that only the other rule can parse
            read = self.read_by(SlicingRule.TFDS_4)
        return ReadInstruction.of(tuple(_round_term(term, checked) for term in read.terms))

    def read_by(self, slicing: SlicingRule | str) -> ReadInstruction:
        """The same instruction, with the texts inside exact parts parsed by the rule ``slicing``.

        ``even_splits`` keeps a text as text if the two slicing rules read it differently.

        Raises:
            SplitSyntaxError: the rule cannot parse a text.
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
    """The slices of ``terms``, including the slices inside parts."""
    for term in terms:
        if isinstance(term, EvenPart):
            yield from _slices_of(term.terms)
        else:
            yield term


def _read_term(term: Term, slicing: SlicingRule | str) -> Term:
    if isinstance(term, SplitSlice):
        return term
    terms = parse_terms(term.split, slicing=slicing) if isinstance(term.split, str) else term.split
    return replace(term, split=tuple(_read_term(inner, slicing) for inner in terms))


def _round_term(term: Term, rounding: Rounding) -> Term:
    if isinstance(term, SplitSlice):
        return replace(term, rounding=rounding) if term.unit == "%" else term
    return replace(term, split=tuple(_round_term(inner, rounding) for inner in term.terms))


def _print_call(term: Term) -> str:
    """The Python call that constructs ``term``."""
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
    """The call that constructs a slice. Fractions are printed as Decimal texts, which are exact."""
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
