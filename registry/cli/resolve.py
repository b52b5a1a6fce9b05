"""``registry resolve`` and ``split check``: show the plan of a split expression, and relate several expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.browse import describe_considered, explained_refusal, why_values
from registry.cli.commands import Session, note_overlaps, session_command, version_values
from registry.cli.options import (
    Comparison,
    Slicing,
    comparison_options,
    reference_argument,
    slicing_options,
    split_argument,
    splits_argument,
)
from registry.cli.output import Block, Column, Table
from registry.cli.progress import show_progress
from registry.envelope import fields_of
from registry.errors import UsageError, VerificationError
from registry.splits import Plan, RecordRange, counted, overlaps_between, print_ranges, relation, uncovered
from registry.splits.plan import file_values, range_values, rule_values

if TYPE_CHECKING:
    from registry.api import Dataset
    from registry.model import Reference
    from registry.publishing import SharedValues


_SHOWN: Final = 20
_BROKEN: Final = {
    "disjoint": "are not disjoint",
    "covering": "leave records out",
    "equal": "are not equal",
    "subset": "are not subsets",
}


@session_command("resolve", at=True, locked=True)
@reference_argument
@split_argument
@slicing_options
@click.option("--why", is_flag=True, help="Explain the version, the rounding of every bound, and dropped records.")
def resolve(session: Session, reference: str, split: str, slicing: Slicing, why: bool) -> None:
    """Show which records of which files a split expression names, without opening a file.

    SPLIT is the name of a split (or all for every split), a slice in records, percent or shards (train[100:200],
    train[:33.3%], train[-1shard]), an exact part (even(train, 3)[0]), or several of these joined with '+'. Quote it,
    because shells interpret [ ] as a file name pattern.

    Examples:
        registry resolve digits 'train[:10%]'
        registry resolve digits 'train[:10%]' --why
        registry resolve 'mnist:3.*' 'train[80%:]+test' --format json
        registry resolve digits 'even(train, 3)[0]'
        registry resolve digits 'train[:33%]' --slicing tfds-4
        registry resolve digits 'train[:33%]' --rounding pct1_dropremainder
    """
    with session.connect_unless_pinned() as catalog:
        with explained_refusal(session.out, why):
            dataset = session.look_up(catalog, reference)
        explanation = dataset.explain(split, **slicing) if why else None
        plan = dataset.resolve(split, **slicing) if explanation is None else explanation.plan
        reasons, considered = (dataset.why, dataset.considered) if why else ((), ())
    note_overlaps(session.out, plan)
    value: dict[str, Any] = {
        **version_values(dataset.reference),
        "split": plan.expression,
        "num_examples": plan.num_examples,
        **rule_values(plan),
        "ranges": range_values(plan.ranges),
        "files": [file_values(file) for file in plan],
    }
    if plan.overlaps:
        value["overlaps"] = range_values(plan.overlaps)
    whose = "was chosen for this call" if slicing["slicing"] else f"was published with {dataset.reference}"
    reasons = (*reasons, f"The slicing rule {plan.slicing} {whose}.")
    if explanation is not None:
        from registry.splits.explanation import explanation_values

        value["why"] = {**why_values(reasons, considered), **explanation_values(explanation)}

    def human(it: dict[str, Any]) -> Iterator[Block]:
        yield summarize(dataset.reference, plan)
        if explanation is not None:
            yield from (f"  {reason}" for reason in (*reasons, *explanation.sentences))
            yield from describe_considered(considered)
        yield Table(it["files"], FILE_COLUMNS)

    session.out.present("resolve", value, human)


@click.group("split")
def split() -> None:
    """Check whether split expressions of a dataset overlap, cover or equal each other."""


_CONTENT: Final = "content"
_POSITION: Final = "position"


@session_command("check", group=split, at=True, locked=True, engine="comparing")
@reference_argument
@splits_argument
@click.option(
    "--disjoint", is_flag=True, help="No two of them share a record position.  [default without another check]"
)
@click.option("--covering", is_flag=True, help="Together they read every record of the splits that they name.")
@click.option("--of", "whole", metavar="SPLIT", help="The slice that --covering must cover instead.")
@click.option("--equal", is_flag=True, help="All of them read the same records.")
@click.option("--subset", is_flag=True, help="Every record of the first is in each of the others.")
@comparison_options
@slicing_options
def check(
    session: Session,
    reference: str,
    splits: tuple[str, ...],
    disjoint: bool,
    covering: bool,
    whole: str | None,
    equal: bool,
    subset: bool,
    comparison: Comparison,
    slicing: Slicing,
) -> None:
    """Check whether split expressions are disjoint, covering, equal or subsets.

    The checks compare record positions, without opening a file. A record that is stored twice has two positions; to
    find such duplicates, use --by content. If a check fails, the records are named, and the exit code is 5.

    Examples:
        registry split check digits 'train[:80%]' 'train[80%:]'
        registry split check digits 'train[:80%]' 'train[80%:90%]' 'train[90%:]' --disjoint --covering
        registry split check digits 'train[:10%]' 'train[:50%]' --subset
        registry split check digits 'train[:50%]+train[50%:]' train --equal
        registry split check digits 'train[:33%]' 'train[33%:50%]' --covering --of 'train[:50%]'
        registry split check digits 'train[:80%]' 'train[80%:]' --by content
        registry split check scans train test --by patient
    """
    if comparison["by"] != _POSITION:
        if covering or equal or subset:
            raise UsageError("--by checks only --disjoint", hint="Run the other checks without --by.")
        _check_values(session, reference, splits, slicing, **comparison)
        return
    disjoint = disjoint or not (covering or equal or subset)
    if whole is not None and not covering:
        raise UsageError("--of is an option of --covering", hint="Add --covering.")
    if len(splits) < 2 and (disjoint or equal or subset):
        raise _too_few()
    with session.dataset(reference) as dataset:
        plans = [dataset.resolve(split, **slicing) for split in splits]
        covered = None if whole is None else dataset.resolve(whole, **slicing)
    for plan in plans:
        note_overlaps(session.out, plan)
    checks: dict[str, list[dict[str, Any]]] = {}
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
    columns: dict[str, Column] = {
        "SPLIT": lambda plan: plan.expression,
        "RECORDS": lambda plan: plan.num_examples,
        "RANGES": lambda plan: print_ranges(plan.ranges),
    }
    _present_check(session, dataset, plans, list(map(_plan_values, plans)), Table(plans, columns), checks, by=_POSITION)
    if broken := [name for name, faults in checks.items() if faults]:
        raise VerificationError(
            f"the expressions {' and '.join(_BROKEN[name] for name in broken)}",
            hint="The output names the records. To see how each bound was rounded: registry resolve --why",
            details={"checks": broken},
        )


def _check_values(
    session: Session, reference: str, splits: tuple[str, ...], slicing: Slicing, *, by: str, show: int
) -> None:
    """Check that no two expressions share an equal record, or an equal value of a column."""
    column = None if by == _CONTENT else by.removeprefix("/")
    if len(splits) < 2:
        raise _too_few()
    with session.dataset(reference) as dataset, show_progress(session.out) as progress:
        plans = [dataset.resolve(split, **slicing) for split in splits]
        overlap = dataset.overlap(splits, column=column, show=show, progress=progress, **slicing)
    if column is None and _CONTENT in dataset.features:
        session.out.note("note: whole records are compared. To compare the feature content: --by /content")
    subject = "record" if column is None else f"value of {column}"

    def describe(pair: SharedValues) -> str:
        first, second = splits[pair.first], splits[pair.second]
        return (
            f"{first} and {second} share {_equal(pair.num_values, subject)}: "
            f"{counted(pair.num_first, 'record')} of {first}, {counted(pair.num_second, 'record')} of {second}"
        )

    rows = [
        _plan_values(plan) | fields_of(part, "num_records", "num_repeated", "num_missing")
        for plan, part in zip(plans, overlap.slices, strict=True)
    ]
    columns: dict[str, Column] = {"SPLIT": "split", "RECORDS": "num_records", "REPEATED": "num_repeated"}
    table = Table(rows, columns if column is None else columns | {"NULL": "num_missing"})
    faults = [
        {
            "message": describe(pair),
            "first": plans[pair.first].expression,
            "second": plans[pair.second].expression,
            **fields_of(pair, "num_values", "num_first", "num_second"),
            "pairs": [[{"split": name, "record": record} for name, record in places] for places in pair.pairs],
        }
        for pair in overlap.shared
    ]
    compared = _CONTENT if column is None else column
    _present_check(session, dataset, plans, rows, table, {"disjoint": faults}, by=compared, label=f" by {by}")
    if not overlap.is_disjoint:
        raise VerificationError(
            f"the expressions share equal {'records' if column is None else f'values of {column}'}",
            hint="The output lists the first of them. To list more: --show N",
            details={"checks": ["disjoint"], "by": compared},
        )


def _plan_values(plan: Plan) -> dict[str, Any]:
    return {"split": plan.expression, "num_examples": plan.num_examples, "ranges": range_values(plan.ranges)}


def _present_check(
    session: Session,
    dataset: Dataset,
    plans: Sequence[Plan],
    rows: Sequence[dict[str, Any]],
    table: Table,
    checks: Mapping[str, Sequence[dict[str, Any]]],
    *,
    by: str,
    label: str = "",
) -> None:
    """Print the expressions as ``rows``, for people as ``table``, and the faults that each check found."""
    # All plans have the same rule and rounding. Plans without percentages do not mention the rounding.
    rule = max((rule_values(plan) for plan in plans), key=len)
    value = {
        **version_values(dataset.reference),
        **rule,
        "splits": rows,
        "by": by,
        "checks": [{"check": name, "holds": not faults, "faults": faults} for name, faults in checks.items()],
    }

    def human(_: object) -> Iterator[Block]:
        yield f"{dataset.reference} ({max((plan.rule for plan in plans), key=len)})"
        yield table
        for name, faults in checks.items():
            has_remark = name == "disjoint" and by == _POSITION and not faults
            remark = " (they share no record position; --by content compares the records)" if has_remark else ""
            yield f"{name}{label}: {'no' if faults else 'yes'}{remark}"
            for fault in faults[:_SHOWN]:
                yield f"  {fault['message']}"
                for first, second in fault.get("pairs", ()):
                    yield f"    {first['split']} {first['record']:,} = {second['split']} {second['record']:,}"
            if len(faults) > _SHOWN:
                yield f"  and {len(faults) - _SHOWN:,} more; --format json lists them all"

    session.out.present("split.check", value, human)


def _equal(number: int, subject: str) -> str:
    first, _, rest = subject.partition(" ")
    return f"{number:,} equal {first}{'' if number == 1 else 's'}{f' {rest}' if rest else ''}"


def _too_few() -> UsageError:
    return UsageError(
        "expressions are compared with each other: expected two or more, found one",
        hint="Name another expression, or add --covering.",
    )


def _shared(plans: Sequence[Plan]) -> list[dict[str, Any]]:
    return [
        _fault(f"{plans[first].expression} and {plans[second].expression} share", ranges)
        for (first, second), ranges in overlaps_between(plans).items()
    ]


def _left_out(plans: Sequence[Plan], whole: Plan | None) -> list[dict[str, Any]]:
    ranges = uncovered(plans, of=whole)
    return [_fault("they leave out", ranges)] if ranges else []


def _missing(first: Plan, second: Plan) -> list[dict[str, Any]]:
    ranges = relation(first, second).only_first
    return [_fault(f"in {first.expression} but not in {second.expression}:", ranges)] if ranges else []


def _fault(subject: str, ranges: tuple[RecordRange, ...]) -> dict[str, Any]:
    """A failed check: a sentence with the records, and their ranges."""
    count = sum(span.num_examples for span in ranges)
    return {"message": f"{subject} {print_ranges(ranges)} ({count:,} in all)", "ranges": range_values(ranges)}


FILE_COLUMNS: Final[Mapping[str, str]] = {"FILE": "filename", "SKIP": "skip", "TAKE": "take", "OF": "examples_in_shard"}


def summarize(reference: Reference, plan: Plan) -> str:
    """One line: what a plan reads, and by which rule."""
    size = counted(plan.num_examples, "example")
    return f"{reference} {plan.expression}: {size}, {print_ranges(plan.ranges)} ({plan.rule})"
