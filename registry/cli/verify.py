"""``registry verify``: every stored shard against the catalog, of one version or of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, examples, session_command
from registry.cli.completion import complete_reference
from registry.cli.output import size
from registry.cli.progress import record_progress
from registry.errors import UsageError, VerificationError
from registry.splits import counted

if TYPE_CHECKING:  # numpy is loaded when something is verified
    from registry.api.catalog import VerifiedVersion


@session_command(
    "verify",
    at=True,
    locked=True,
    epilog=examples("registry verify digits", "registry verify 'mnist:3.*' --deep", "registry verify --all"),
)
@click.argument("reference", metavar="[REF]", required=False, shell_complete=complete_reference)
@click.option("--all", "every", is_flag=True, help="Check every version that is not dropped, yanked ones too.")
@click.option("--deep", is_flag=True, help="Also decode every record.")
@click.pass_context
def verify(ctx: click.Context, session: Session, reference: str | None, every: bool, deep: bool) -> None:
    """Check every shard file of a version: size, number of records, sha256, each record's checksum.

    Ends with exit code 5 where a shard is not as the catalog promises; the shards are named. With --all the
    check goes on after a version that fails.
    """
    if every == (reference is not None) or (every and session.at is not None):
        raise UsageError(
            "name one version, or --all alone", hint="Try: registry verify digits, or: registry verify --all"
        )
    if reference is None:
        ctx.exit(_verify_all(session, deep=deep))
    with session.connect() as catalog:
        dataset = session.look_up(catalog, reference)
        with record_progress(session.out, "verifying", dataset.facts.num_examples) as advance:
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


def _verify_all(session: Session, *, deep: bool) -> int:
    """Verify every version, say of each as it is done what came of it; the exit code."""
    versions: list[dict[str, Any]] = []
    codes = set()
    with session.connect() as catalog, record_progress(session.out, "verifying", None) as advance:
        for one in catalog.verify_all(deep=deep, advance=advance):
            versions.append(_to_json(one))
            if not one.is_sound:
                codes.add(VerificationError.exit_code if one.error is None else one.error.exit_code)
            if not session.out.as_json:
                _print(session, one)
    num_sound = sum(one["is_sound"] for one in versions)
    are = "is" if len(versions) == 1 else "are"
    data = {"deep": deep, "num_versions": len(versions), "num_sound": num_sound, "versions": versions}
    session.out.result(
        "verify.all",
        data,
        lambda: session.out.line(f"{num_sound} of {counted(len(versions), 'version')} {are} as published"),
    )
    return VerificationError.exit_code if VerificationError.exit_code in codes else max(codes, default=0)


def _print(session: Session, one: VerifiedVersion) -> None:
    out, report = session.out, one.report
    if report is None:
        out.line(f"{one.reference}: not verified: {'' if one.error is None else one.error.message}")
        return
    sound = sum(map(len, report.shards.values()))
    out.line(
        f"{one.reference}: {sound} of {report.num_shards} shards are as published "
        f"({counted(report.num_examples, 'example')}, {size(report.num_bytes)})"
    )
    for fault in report.faults:
        out.line(f"  {fault.problem}")


def _to_json(one: VerifiedVersion) -> dict[str, Any]:
    version = one.reference.request.exact if one.reference.request else None
    report, error = one.report, one.error
    return {
        "dataset": one.reference.dataset,
        "version": str(version),
        "state": one.state.value,
        "is_sound": one.is_sound,
        "num_shards": None if report is None else report.num_shards,
        "num_examples": None if report is None else report.num_examples,
        "num_bytes": None if report is None else report.num_bytes,
        "faults": []
        if report is None
        else [{"split": f.split, "filename": f.filename, "code": f.code, "problem": f.problem} for f in report.faults],
        "error": None if error is None else {"code": error.code, "message": error.message, "hint": error.hint},
    }
