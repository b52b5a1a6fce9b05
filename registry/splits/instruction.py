"""What is to be read, before anyone knows how many records there are? The public value of a split expression.

Text becomes a ReadInstruction (``from_spec``), and ``resolve`` makes a plan of it once the layout is known.
"""

from __future__ import annotations

from registry.errors import UsageError
from registry.model import SlicingRule
from registry.splits.grammar import parse_slices
from registry.splits.slices import BoundLike, Rounding, SplitSlice, Unit, check_rounding, print_bound


class ReadInstruction:
    """One slice of one split, or the sum of several, read one after the other. Immutable, compared by value.

    Bounds are whole numbers of records (``unit="abs"``) or shards (``unit="shard"``), or percent, where floats,
    decimals and fractions are taken by their exact decimal text. ``rounding`` is for percent only and has no text form:
    it is lost by ``str()``, kept by ``repr()``, and can be given to ``resolve`` instead. The signature is TFDS's.

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

    __slots__ = ("_slices",)
    _slices: tuple[SplitSlice, ...]

    def __init__(
        self,
        split_name: str,
        from_: BoundLike | None = None,
        to: BoundLike | None = None,
        unit: Unit = "abs",
        rounding: Rounding = "closest",
    ) -> None:
        # SplitSlice turns whatever a caller may give into exact numbers.
        self._slices = (SplitSlice(split_name, from_, to, unit, rounding),)  # type: ignore[arg-type]

    @classmethod
    def from_spec(
        cls, spec: str | ReadInstruction, *, slicing: SlicingRule = SlicingRule.DOCUMENTED
    ) -> ReadInstruction:
        """The instruction that a split expression spells (grammar: ``parse_slices``); an instruction is given back.

        Raises:
            SplitSyntaxError: the text is no expression; the message draws a caret under the place.
        """
        return spec if isinstance(spec, ReadInstruction) else cls.of(parse_slices(spec, slicing=slicing))

    @classmethod
    def of(cls, slices: tuple[SplitSlice, ...]) -> ReadInstruction:
        """The sum of ``slices``, in order; UsageError where there are none."""
        if not slices:
            raise UsageError("an instruction reads at least one slice")
        instruction = cls.__new__(cls)
        instruction._slices = slices
        return instruction

    @property
    def slices(self) -> tuple[SplitSlice, ...]:
        """The slices that are read, in order."""
        return self._slices

    def with_rounding(self, rounding: str) -> ReadInstruction:
        """The same instruction, all its percentages rounded by ``rounding``."""
        checked = check_rounding(rounding)
        return ReadInstruction.of(
            tuple(
                SplitSlice(part.split_name, part.from_, part.to, part.unit, checked) if part.unit == "%" else part
                for part in self._slices
            )
        )

    def __add__(self, other: ReadInstruction | str) -> ReadInstruction:
        if not isinstance(other, ReadInstruction | str):
            return NotImplemented
        return ReadInstruction.of(self._slices + ReadInstruction.from_spec(other).slices)

    def __radd__(self, other: str) -> ReadInstruction:
        if not isinstance(other, str):
            return NotImplemented
        return ReadInstruction.from_spec(other) + self

    def __eq__(self, other: object) -> bool:
        return self._slices == other._slices if isinstance(other, ReadInstruction) else NotImplemented

    def __hash__(self) -> int:
        return hash((ReadInstruction, self._slices))

    def __str__(self) -> str:
        return "+".join(map(str, self._slices))

    def __repr__(self) -> str:
        return " + ".join(map(_print_call, self._slices))


def _print_call(part: SplitSlice) -> str:
    """The call that makes ``part``; fractions as Decimal texts, which are exact."""
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
