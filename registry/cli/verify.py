"""``registry verify``: compare the stored shards of one version, or of all, with the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, examples, joint_exit_code, session_command, version_values
from registry.cli.completion import complete_reference
from registry.cli.output import size
from registry.cli.progress import show_progress
from registry.envelope import fields_of
from registry.errors import UsageError, VerificationError
from registry.splits import counted

if TYPE_CHECKING:  # numpy is loaded when something is verified
    from registry.api.reports import VerifiedVersion
    from registry.model import Reference
    from registry.publishing import VerifyReport


@session_command(
    "verify",
    at=True,
    locked=True,
    epilog=examples("registry verify digits", "registry verify 'mnist:3.*' --deep", "registry verify --all"),
)
@click.argument("reference", metavar="[REF]", required=False, shell_complete=complete_reference)
@click.option("--all", "every", is_flag=True, help="Check every version that is not dropped, yanked ones too.")
@click.option("--deep", is_flag=True, help="Also decode every record.")
def verify(session: Session, reference: str | None, every: bool, deep: bool) -> int:
    """Check every shard file of a version: size, number of records, sha256, each record's checksum.

    Ends with exit code 5 where a shard is not as the catalog promises; the shards are named. With --all the
    check goes on after a version that fails.
    """
    if every == (reference is not None) or (every and session.at is not None):
        raise UsageError(
            "name one version, or --all alone", hint="Try: registry verify digits, or: registry verify --all"
        )
    if reference is None:
        return _verify_all(session, deep=deep)
    with session.connect() as catalog:
        dataset = session.look_up(catalog, reference)
        with show_progress(session.out) as progress:
            report = dataset.verify(deep=deep, progress=progress)
    value = {
        **version_values(dataset.reference),
        "deep": deep,
        **fields_of(report, "num_shards", "num_examples", "num_bytes", "is_whole", "recovery"),
        "faults": _fault_values(report),
    }

    def human(it: dict[str, Any]) -> Iterator[str]:
        yield from _describe(dataset.reference, report)
        if it["recovery"]:
            yield it["recovery"]
        if not it["is_whole"]:
            yield "  so many are bad that the others were not looked at"

    session.out.present("verify", value, human)
    return VerificationError.exit_code if report.faults else 0


def _verify_all(session: Session, *, deep: bool) -> int:
    """Verify every version, and tell people of each as it is done; the exit code."""

    def tell(one: VerifiedVersion) -> None:
        if one.report is not None:
            session.out.tell(_describe(one.reference, one.report))
        else:
            session.out.tell([f"{one.reference}: not verified: {'' if one.error is None else one.error.message}"])

    with session.connect() as catalog, show_progress(session.out) as progress:
        report = catalog.verify_all(deep=deep, progress=progress, each=tell)
    versions = list(map(_version_values, report))
    num_sound = report.num_sound
    exit_codes = [(one.error or VerificationError).exit_code for one in report.failed]
    value = {"deep": deep, "num_versions": len(versions), "num_sound": num_sound, "versions": versions}
    are = "is" if len(versions) == 1 else "are"
    told = f"{num_sound} of {counted(len(versions), 'version')} {are} as published"
    session.out.present("verify.all", value, lambda _: [told])
    return joint_exit_code(exit_codes)


def _describe(reference: Reference, report: VerifyReport) -> Iterator[str]:
    sound = sum(map(len, report.shards.values()))
    yield (
        f"{reference}: {sound} of {report.num_shards} shards are as published "
        f"({counted(report.num_examples, 'example')}, {size(report.num_bytes)})"
    )
    yield from (f"  {fault.problem}" for fault in report.faults)


def _fault_values(report: VerifyReport) -> list[dict[str, Any]]:
    return [fields_of(fault, "split", "filename", "code", "problem") for fault in report.faults]


def _version_values(one: VerifiedVersion) -> dict[str, Any]:
    report, error = one.report, one.error
    sizes = ("num_shards", "num_examples", "num_bytes")
    return {
        **version_values(one.reference),
        **fields_of(one, "state", "is_sound"),
        **(dict.fromkeys(sizes) if report is None else fields_of(report, *sizes)),
        "faults": [] if report is None else _fault_values(report),
        "error": None if error is None else fields_of(error, "code", "message", "hint"),
    }
