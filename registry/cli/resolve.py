"""``registry resolve``: the plan of a split expression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.browse import explained_refusal, print_considered, why_json
from registry.cli.commands import Session, examples, session_command
from registry.cli.options import reference_argument, rounding_option, slicing_option, split_argument, splits_argument
from registry.cli.output import Output
from registry.errors import UsageError, VerificationError
from registry.splits import Plan, RecordRange, counted, overlaps_between, print_ranges, relation, uncovered

if TYPE_CHECKING:
    from registry.model import Considered
    from registry.splits import Explanation


@session_command(
    "resolve",
    at=True,
    locked=True,
    epilog=examples(
        "registry resolve digits 'train[:10%]'",
        "registry resolve digits 'train[:10%]' --why",
        "registry resolve 'mnist:3.*' 'train[80%:]+test' --format json",
        "registry resolve digits 'even(train, 3)[0]'",
        "registry resolve digits 'train[:33%]' --slicing tfds-4",
        "registry resolve digits 'train[:33%]' --rounding pct1_dropremainder",
    ),
)
@reference_argument
@split_argument
@slicing_option
@rounding_option
@click.option("--why", is_flag=True, help="Say why: the version, how every bound was rounded, what was dropped.")
def resolve(session: Session, reference: str, split: str, slicing: str | None, rounding: str | None, why: bool) -> None:
    """Show which records of which files a split expression names, without opening a file.

    SPLIT is a name (train, or all for every split), a slice of it in records, percent or shards (train[100:200],
    train[:33.3%], train[-1shard]), an exact part (even(train, 3)[0]), or several of these joined with '+'. Quote it: a
    shell takes [ ] for a pattern of file names.
    """
    with session.connect_unless_pinned() as catalog:
        with explained_refusal(session.out, why):
            dataset = session.look_up(catalog, reference)
        explanation = dataset.explain(split, slicing=slicing, rounding=rounding) if why else None
        plan = dataset.resolve(split, slicing=slicing, rounding=rounding) if explanation is None else explanation.plan
        version_reasons, considered = (dataset.why, dataset.considered) if why else ((), ())
    note_overlaps(session.out, plan)
    files = list(plan)
    data: dict[str, Any] = {
        "dataset": dataset.reference.dataset,
        "version": str(dataset.version),
        "split": plan.expression,
        "num_examples": plan.num_examples,
        **rule_json(plan),
        "ranges": ranges_json(plan.ranges),
        "files": [
            {
                "filename": file.filename,
                "skip": file.skip,
                "take": file.take,
                "examples_in_shard": file.examples_in_shard,
            }
            for file in files
        ],
    }
    if plan.overlaps:
        data["overlaps"] = ranges_json(plan.overlaps)
    whose = "was chosen for this call" if slicing else f"was published with {dataset.reference}"
    version_reasons = (*version_reasons, f"The slicing rule {plan.slicing.value} {whose}.")
    if explanation is not None:
        data["why"] = _why_json(version_reasons, considered, explanation)

    def human() -> None:
        session.out.line(summary(str(dataset.reference), plan))
        if explanation is not None:
            for reason in (*version_reasons, *explanation.sentences):
                session.out.line(f"  {reason}")
            print_considered(session.out, considered)
        session.out.table(
            ("FILE", "SKIP", "TAKE", "OF"),
            [(file.filename, file.skip, file.take, file.examples_in_shard) for file in files],
        )

    session.out.result("resolve", data, human)


def _why_json(version: tuple[str, ...], considered: tuple[Considered, ...], explanation: Explanation) -> dict[str, Any]:
    return {
        **why_json(version, considered),
        "terms": [
            {
                "term": term.term,
                "bounds": [
                    {"bound": bound.bound, "exact": bound.exact, "record": bound.record, "why": bound.why}
                    for bound in term.bounds
                ],
                "ranges": ranges_json(term.ranges),
                "why": list(term.why),
            }
            for term in explanation.terms
        ],
        "files": list(explanation.files),
    }


_SHOWN: Final = 20
_BROKEN: Final = {
    "disjoint": "are not disjoint",
    "covering": "leave records out",
    "equal": "are not equal",
    "subset": "are no subsets",
}


@click.group("split")
def split() -> None:
    """Prove how split expressions of a dataset stand to each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Records that break what was to be proved, and the sentence that says so."""

    text: str
    ranges: tuple[RecordRange, ...]


@session_command(
    "check",
    at=True,
    locked=True,
    epilog=examples(
        "registry split check digits 'train[:80%]' 'train[80%:]'",
        "registry split check digits 'train[:80%]' 'train[80%:90%]' 'train[90%:]' --disjoint --covering",
        "registry split check digits 'train[:10%]' 'train[:50%]' --subset",
        "registry split check digits 'train[:50%]+train[50%:]' train --equal",
        "registry split check digits 'train[:33%]' 'train[33%:50%]' --covering --of 'train[:50%]'",
    ),
)
@reference_argument
@splits_argument
@click.option("--disjoint", is_flag=True, help="No record is in two of them.  [default, where nothing else is asked]")
@click.option("--covering", is_flag=True, help="Together they read every record of the splits that they name.")
@click.option("--of", "whole", metavar="SPLIT", help="What --covering is to cover instead.")
@click.option("--equal", is_flag=True, help="All of them read the same records.")
@click.option("--subset", is_flag=True, help="Every record of the first is in each of the others.")
@slicing_option
@rounding_option
def check(
    session: Session,
    reference: str,
    splits: tuple[str, ...],
    disjoint: bool,
    covering: bool,
    whole: str | None,
    equal: bool,
    subset: bool,
    slicing: str | None,
    rounding: str | None,
) -> None:
    """Prove that expressions are disjoint, covering, equal or subsets.

    Decided on ranges of records, without opening a file. Ends with exit code 5 where what was asked does not hold, and
    names the records.
    """
    disjoint = disjoint or not (covering or equal or subset)
    if whole is not None and not covering:
        raise UsageError("--of says what --covering is to cover", hint="Add --covering.")
    if len(splits) < 2 and (disjoint or equal or subset):
        raise UsageError(
            "expressions are compared with one another, and here is one alone",
            hint="Name two or more, or ask for --covering.",
        )
    with session.connect_unless_pinned() as catalog:
        dataset = session.look_up(catalog, reference)
        plans = [dataset.resolve(split, slicing=slicing, rounding=rounding) for split in splits]
        covered = None if whole is None else dataset.resolve(whole, slicing=slicing, rounding=rounding)
    for plan in plans:
        note_overlaps(session.out, plan)
    checks: dict[str, list[Fault]] = {}
    if disjoint:
        checks["disjoint"] = _shared(plans)
    if covering:
        checks["covering"] = _left_out(plans, covered)
    if equal:
        checks["equal"] = [
            fault for plan in plans[1:] for fault in (*_missing(plans[0], plan), *_missing(plan, plans[0]))
        ]
    if subset:
        checks["subset"] = [fault for plan in plans[1:] for fault in _missing(plans[0], plan)]
    rule = max(map(rule_json, plans), key=len)  # one rule and one rounding for all; some may have nothing to round
    data = {
        "dataset": dataset.reference.dataset,
        "version": str(dataset.version),
        **rule,
        "splits": [_plan_json(plan) for plan in plans],
        "checks": [
            {
                "check": name,
                "holds": not faults,
                "faults": [{"message": fault.text, "ranges": ranges_json(fault.ranges)} for fault in faults],
            }
            for name, faults in checks.items()
        ],
    }

    def human() -> None:
        session.out.line(f"{dataset.reference} ({max((plan.rule for plan in plans), key=len)})")
        session.out.table(
            ("SPLIT", "RECORDS", "RANGES"),
            [(plan.expression, plan.num_examples, print_ranges(plan.ranges)) for plan in plans],
        )
        for name, faults in checks.items():
            session.out.line(f"{name}: {'no' if faults else 'yes'}")
            for fault in faults[:_SHOWN]:
                session.out.line(f"  {fault.text}")
            if len(faults) > _SHOWN:
                session.out.line(f"  and {len(faults) - _SHOWN:,} more; --format json lists them all")

    session.out.result("split.check", data, human)
    if broken := [name for name, faults in checks.items() if faults]:
        raise VerificationError(
            f"the expressions {' and '.join(_BROKEN[name] for name in broken)}",
            hint="The records are named in the answer; registry resolve --why explains each bound.",
            details={"checks": broken},
        )


split.add_command(check)


def _shared(plans: Sequence[Plan]) -> list[Fault]:
    return [
        _fault(f"{plans[first].expression} and {plans[second].expression} share", ranges)
        for (first, second), ranges in overlaps_between(plans).items()
    ]


def _left_out(plans: Sequence[Plan], whole: Plan | None) -> list[Fault]:
    ranges = uncovered(plans, of=whole)
    return [_fault("they leave out", ranges)] if ranges else []


def _missing(first: Plan, second: Plan) -> list[Fault]:
    ranges = relation(first, second).only_first
    return [_fault(f"{first.expression} has, and {second.expression} has not,", ranges)] if ranges else []


def _fault(what: str, ranges: tuple[RecordRange, ...]) -> Fault:
    count = sum(one.num_examples for one in ranges)
    return Fault(text=f"{what} {print_ranges(ranges)} ({count:,} in all)", ranges=ranges)


def _plan_json(plan: Plan) -> dict[str, Any]:
    return {"split": plan.expression, "num_examples": plan.num_examples, "ranges": ranges_json(plan.ranges)}


def summary(reference: str, plan: Plan) -> str:
    """One line: what a plan reads, and by which rule."""
    size = counted(plan.num_examples, "example")
    return f"{reference} {plan.expression}: {size}, {print_ranges(plan.ranges)} ({plan.rule})"


def note_overlaps(out: Output, plan: Plan) -> None:
    """A note where ``plan`` reads records more than once."""
    if plan.overlaps:
        out.note(f"note: {plan.expression} reads more than once: {print_ranges(plan.overlaps)}")


def rule_json(plan: Plan) -> dict[str, str]:
    """The rule of a plan for programs: ``slicing``, and ``rounding`` where a percentage is not rounded as usual."""
    odd = [rounding for rounding in plan.instruction.roundings if rounding != "closest"]
    return {"slicing": plan.slicing.value, **({"rounding": odd[0]} if odd else {})}


def ranges_json(ranges: Sequence[RecordRange]) -> list[dict[str, Any]]:
    """Ranges for programs."""
    return [{"split": one.split, "start": one.start, "stop": one.stop} for one in ranges]
