"""Which records and files does an expression name in a given layout? The pure resolver, under either rule."""

from __future__ import annotations

from registry.model import SlicingRule
from registry.splits.division import divide, divide_each
from registry.splits.instruction import ReadInstruction
from registry.splits.layout import Extent, Layout, Located, check_layout, find_extent
from registry.splits.parts import EvenPart, Term
from registry.splits.plan import Plan
from registry.splits.rules import RULES, Rule


def resolve(
    expression: str | ReadInstruction,
    layout: Layout,
    *,
    slicing: SlicingRule | str = SlicingRule.DOCUMENTED,
    rounding: str | None = None,
) -> Plan:
    """The plan that reads ``expression`` from splits laid out as ``layout``.

    Args:
        expression: a split expression (grammar: ``parse_terms``) or a ReadInstruction.
        layout: splits by name, in the order of ``all``: ``model.Split`` values, or the number of records of each shard
            (``ShardLengths`` are used as they are; files are then called ``train-00000-of-00002``).
        slicing: the slicing rule, ``documented`` or ``tfds-4``.
        rounding: ``closest`` or ``pct1_dropremainder`` for every percentage, instead of the instruction's own.

    >>> plan = resolve("train[49%:50%]", {"train": [50, 51]})
    >>> plan.ranges
    (RecordRange(split='train', start=49, stop=51),)
    >>> for file in plan:
    ...     print(file.filename, file.skip, file.take, file.examples_in_shard)
    train-00000-of-00002 49 1 50
    train-00001-of-00002 0 1 51

    Raises:
        SplitSyntaxError: the text is no expression.
        SplitNotFoundError: it names a split that the layout does not have.
        SliceError: a slice that this layout cannot answer: out of range, reversed, too few records.
        UsageError: an unknown rule or rounding.
    """
    finder = Finder(RULES[SlicingRule.of(slicing)], layout)
    return finder.plan(finder.read(expression, rounding))


class Finder:
    """Finds the records of terms in one layout under one rule. A split is looked up once, however often it is named."""

    def __init__(self, rule: Rule, layout: Layout) -> None:
        self.rule = rule
        self._layout = check_layout(layout)
        self._extents: dict[str, Extent] = {}

    def read(self, expression: str | ReadInstruction, rounding: str | None) -> ReadInstruction:
        """The instruction that ``expression`` is under the rule, with ``rounding`` in the place of its own."""
        instruction = ReadInstruction.from_spec(expression, slicing=self.rule.name).read_by(self.rule.name)
        return instruction if rounding is None else instruction.with_rounding(rounding)

    def plan(self, instruction: ReadInstruction) -> Plan:
        """The plan of an instruction that ``read`` gave."""
        located = self.locate(instruction.terms)
        named = {split.name: split for name in instruction.names for split in self.extent(name).splits}
        return Plan(instruction, self.rule.name, tuple(named.values()), located)

    def locate(self, terms: tuple[Term, ...], parts: tuple[EvenPart, ...] = ()) -> list[Located]:
        """The ranges that ``terms`` name, in order, and of each range on its own only what ``parts`` leave of it."""
        located: list[Located] = []
        for term in terms:
            if isinstance(term, EvenPart):
                if self.divides_each(term):
                    located.extend(self.locate(term.terms, (term, *parts)))
                else:
                    located.extend(divide_each(parts, divide(term, self.locate(term.terms))))
                continue
            extent = self.extent(term.split_name)
            if term.is_whole:
                located.extend(divide_each(parts, extent.cut(0, extent.num_examples)))
            elif parts and self.rule.find_part is not None:
                located.extend(extent.cut(*self.rule.find_part(term, extent, parts)))
            else:
                located.extend(extent.cut(*self.rule.find_range(term, extent)))
        return located

    def divides_each(self, part: EvenPart) -> bool:
        """Whether each range is divided on its own; files never are: no two parts are to open the same one."""
        return self.rule.find_part is not None and part.unit == "abs"

    def extent(self, name: str) -> Extent:
        """What ``name`` stands for; errors as ``find_extent``."""
        extent = self._extents.get(name)
        if extent is None:
            extent = self._extents[name] = find_extent(name, self._layout)
        return extent
