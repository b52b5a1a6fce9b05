"""``registry resolve``: the plan of a split expression."""

from __future__ import annotations

from registry.cli.arguments import reference_argument, rounding_option, split_argument
from registry.cli.options import Session, examples, session_command
from registry.splits import Plan


@session_command(
    "resolve",
    epilog=examples(
        "registry resolve digits 'train[:10%]'",
        "registry resolve 'mnist:3.*' 'train[80%:]+test' --format json",
        "registry resolve digits 'train[:33%]' --rounding pct1_dropremainder",
    ),
)
@reference_argument
@split_argument
@rounding_option
def command(session: Session, reference: str, split: str, rounding: str | None) -> None:
    """Show which records of which files a split expression names, without opening a file."""
    with session.connect() as catalog:
        dataset = session.look_up(catalog, reference)
    plan = dataset.resolve(split, rounding=rounding)
    data = {
        "dataset": dataset.reference.dataset,
        "version": str(dataset.version),
        "split": plan.expression,
        "num_examples": plan.num_examples,
        "slicing": plan.slicing.value,
        "ranges": [{"split": part.split, "start": part.start, "stop": part.stop} for part in plan.ranges],
        "files": [
            {
                "filename": file.filename,
                "skip": file.skip,
                "take": file.take,
                "examples_in_shard": file.examples_in_shard,
            }
            for file in plan
        ],
    }

    def human() -> None:
        session.out.line(summary(str(dataset.reference), plan))
        session.out.table(
            ("FILE", "SKIP", "TAKE", "OF"),
            [(file.filename, file.skip, file.take, file.examples_in_shard) for file in plan],
        )

    session.out.result("resolve", data, human)


def summary(reference: str, plan: Plan) -> str:
    """One line: what a plan reads."""
    ranges = " + ".join(f"{part.split} {part.start:,}..{part.stop:,}" for part in plan.ranges)
    rule = f"({plan.slicing.value} slicing)"
    return f"{reference} {plan.expression}: {plan.num_examples:,} examples, records {ranges} {rule}"
