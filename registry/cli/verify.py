"""``registry verify``: every stored shard against the catalog."""

from __future__ import annotations

import click

from registry.cli.arguments import reference_argument
from registry.cli.options import Session, examples, session_command
from registry.cli.output import size
from registry.cli.progress import record_progress
from registry.errors import VerificationError
from registry.splits import counted


@session_command(
    "verify", at=True, locked=True, epilog=examples("registry verify digits", "registry verify 'mnist:3.*' --deep")
)
@reference_argument
@click.option("--deep", is_flag=True, help="Decode every record too.")
@click.pass_context
def command(ctx: click.Context, session: Session, reference: str, deep: bool) -> None:
    """Check every shard file of a version: size, number of records, sha256, each record's checksum.

    Ends with exit code 5 where a shard is not as the catalog promises; the shards are named.
    """
    with session.connect() as catalog:
        dataset = session.look_up(catalog, reference)
        with record_progress(session.out, "verifying", dataset.details.num_examples) as advance:
            report = dataset.verify(deep=deep, advance=advance)
    data = {
        "dataset": dataset.reference.dataset,
        "version": str(dataset.version),
        "deep": deep,
        "num_shards": report.num_shards,
        "num_examples": report.num_examples,
        "num_bytes": report.num_bytes,
        "is_whole": report.is_whole,
        "recovery": report.recovery,
        "faults": [
            {"split": fault.split, "filename": fault.filename, "code": fault.code, "problem": fault.problem}
            for fault in report.faults
        ],
    }

    def human() -> None:
        sound = sum(map(len, report.shards.values()))
        session.out.line(
            f"{dataset.reference}: {sound} of {report.num_shards} shards are as published "
            f"({counted(report.num_examples, 'example')}, {size(report.num_bytes)})"
        )
        for fault in report.faults:
            session.out.line(f"  {fault.problem}")
        if report.recovery:
            session.out.line(report.recovery)
        if not report.is_whole:
            session.out.line("  so many are bad that the others were not looked at")

    session.out.result("verify", data, human)
    if report.faults:
        ctx.exit(VerificationError.exit_code)
