"""``registry resolve``: the plan of a split expression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from registry.cli.arguments import reference_argument, rounding_option, slicing_option, split_argument
from registry.cli.considered import explained_refusal, print_considered, why_json
from registry.cli.options import Session, examples, session_command
from registry.cli.plans import note_overlaps, ranges_json, rule_json, summary

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
def command(session: Session, reference: str, split: str, slicing: str | None, rounding: str | None, why: bool) -> None:
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
