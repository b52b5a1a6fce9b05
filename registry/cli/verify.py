"""``registry verify``: compares the stored shards of one version, or of all versions, with the catalog."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, joint_exit_code, session_command, version_values
from registry.cli.completion import complete_reference
from registry.cli.options import check_output, force_option, processes_option, write_file
from registry.cli.output import size
from registry.cli.progress import show_progress
from registry.envelope import fields_of, result_envelope
from registry.errors import NotStoredError, UsageError, VerificationError
from registry.splits import counted

if TYPE_CHECKING:  # numpy is loaded when something is verified
    from registry.api import Catalog
    from registry.api.reports import VerifiedVersion
    from registry.model import Reference
    from registry.publishing import VerifyReport


@session_command("verify", engine="verifying", at=True, locked=True)
@click.argument("reference", metavar="[REF]", required=False, shell_complete=complete_reference)
@click.option("--all", "every", is_flag=True, help="Check every version that is not dropped, including yanked ones.")
@click.option("--deep", is_flag=True, help="Also decode every record, and compare its values with the schema.")
@processes_option("Check N versions, or N files of one version, at the same time.")
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="With --all: also write the result to FILE as JSON, even after Ctrl-C.",
)
@force_option
@click.option(
    "--since",
    metavar="TIME",
    help="With --all: skip versions that were found sound since this day or moment, or within this duration, e.g. 7d.",
)
@click.option(
    "--state",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="With --all: the file that records which versions were sound, and when.  [default: a file in your cache]",
)
@click.option("--restart", is_flag=True, help="With --all: do not continue an interrupted run.")
def verify(
    session: Session,
    reference: str | None,
    *,
    every: bool,
    deep: bool,
    processes: int | None,
    report: str | None,
    force: bool,
    **remembered: Any,
) -> int:
    """Check every shard file of a version: size, number of records, sha256, each record's checksum.

    If files differ from the catalog, they are named, and the exit code is 5. With --deep, values that a feature does
    not allow are also reported, such as a label without a class; they do not change the exit code, because the files
    are unchanged. With --all, checks every version, even if some fail. After Ctrl-C, the results so far are kept, and a
    run within a week continues from there.

    Examples:
        registry verify digits
        registry verify 'mnist:3.*' --deep
        registry verify --all
        registry verify --all -j 8 --report report.json
        registry verify imagenet --deep --engine ray --address 10.0.0.1:6379
    """
    if every == (reference is not None) or (every and session.at is not None):
        raise UsageError(
            "name one version, or --all alone", hint="Try: registry verify digits, or: registry verify --all"
        )
    if report is not None and not every:
        raise UsageError("--report writes the result of --all", hint="Leave it out, or try: --format json > FILE")
    if not every and any(value not in (None, False) for value in remembered.values()):
        raise UsageError("--since, --state and --restart belong to --all", hint="Try: registry verify --all --since 7d")
    if remembered["since"] is not None:
        from registry.publishing.verify_state import read_since

        read_since(
            remembered["since"], now=datetime.now(UTC)
        )  # checked first: an invalid value is not an interrupted run
    if reference is None:
        return _verify_all(session, report, force=force, deep=deep, processes=processes, **remembered)
    with session.connect() as catalog:
        dataset = session.look_up(catalog, reference)
        with show_progress(session.out) as progress:
            result = dataset.verify(deep=deep, processes=processes, progress=progress)
    value = {
        **version_values(dataset.reference),
        "deep": deep,
        **fields_of(result, "num_shards", "num_examples", "num_bytes", "num_attachments", "is_whole", "recovery"),
        "faults": _fault_values(result),
        "outside": list(map(fields_of, result.outside)),
    }

    def human(it: dict[str, Any]) -> Iterator[str]:
        yield from _describe(dataset.reference, result)
        if it["recovery"]:
            yield it["recovery"]
        if not it["is_whole"]:
            yield "  the other shards were not checked: too many failed"

    session.out.present("verify", value, human)
    return VerificationError.exit_code if result.faults else 0


def _verify_all(session: Session, path: str | None, *, force: bool, **options: Any) -> int:
    """Verify every version, and print each result as soon as it is known; returns the exit code.

    The results so far are printed and written even if an error or Ctrl-C ends the command.
    """
    if path is not None:
        force = force or _is_unfinished(path)
        check_output(path, option="--report", force=force)
    started_at, started = datetime.now(UTC), time.monotonic()
    versions: list[VerifiedVersion] = []

    def tell(version: VerifiedVersion) -> None:
        versions.append(version)
        if version.report is not None:
            session.out.tell(_describe(version.reference, version.report))
        elif version.verified_before is not None:
            session.out.tell(
                [f"{version.reference}: skipped, as published on {version.verified_before:%Y-%m-%d %H:%M} UTC"]
            )
        else:
            session.out.tell(
                [f"{version.reference}: not verified: {'' if version.error is None else version.error.message}"]
            )

    is_complete = False
    try:
        with session.connect() as catalog, show_progress(session.out) as progress:
            options["state"] = options["state"] or _usual_state(session, catalog)
            catalog.verify_all(progress=progress, each=tell, **options)
        is_complete = True
    finally:
        value: dict[str, Any] = {
            "deep": options["deep"],
            "num_versions": len(versions),
            "num_sound": sum(version.is_sound for version in versions),
            "versions": list(map(_version_values, versions)),
        }
        report = value | {
            "is_complete": is_complete,
            "started_at": started_at,
            "seconds": round(time.monotonic() - started, 3),
            "num_damaged": sum(_is_damaged(version) for version in versions),
            "num_skipped": sum(version.verified_before is not None for version in versions),
            "num_unchecked": sum(not version.is_sound and not _is_damaged(version) for version in versions),
            "versions": [_version_values(version) | {"seconds": round(version.seconds, 3)} for version in versions],
        }
        if path is not None:
            text = json.dumps(result_envelope("verify.report", report, []), indent=2)
            write_file(path, f"{text}\n".encode(), force=force, option="--report")
        if not is_complete:
            value["is_complete"] = False
        session.out.present("verify.all", value, lambda _: _summarize(report, path))
    return joint_exit_code(
        (version.error or VerificationError).exit_code for version in versions if not version.is_sound
    )


def _is_unfinished(path: str) -> bool:
    """Whether a file is the report of an interrupted run, which the next run replaces."""
    from registry.storage import expand_home

    try:
        document = json.loads(expand_home(path).read_bytes())
        return bool(document["schema"] == "registry.verify.report/1" and document["data"]["is_complete"] is False)
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _usual_state(session: Session, catalog: Catalog) -> str | None:
    """The file of this user that records runs, or None if it cannot be written, as on machines without a home."""
    from registry.api.locations import index_folder, open_data
    from registry.publishing.verify_state import state_file

    path = state_file(index_folder(), catalog.backend, open_data(catalog.data_dir))
    if path is None:
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        session.out.note(f"note: this run cannot be continued: {path} cannot be written: {error.strerror}")
        return None
    return str(path)


def _is_damaged(version: VerifiedVersion) -> bool:
    """Whether files differ from the catalog. Files that could not be checked do not count."""
    if version.report is not None:
        return bool(version.report.faults)
    return isinstance(version.error, VerificationError | NotStoredError)


def _summarize(it: dict[str, Any], path: str | None) -> Iterator[str]:
    are = "is" if it["num_versions"] == 1 else "are"
    kinds = {"damaged": it["num_damaged"], "could not be checked": it["num_unchecked"]}
    bad = "".join(f", {count:,} {kind}" for kind, count in kinds.items() if count)
    bad += f", {it['num_skipped']:,} of them verified before" if it["num_skipped"] else ""
    result = f"{it['num_sound']:,} of {counted(it['num_versions'], 'version')} {are} as published{bad}"
    if not it["is_complete"]:
        result = f"stopped early: {result if it['num_versions'] else 'no version was verified'}"
    yield f"{result} ({it['seconds']:.1f} s)"
    if path is not None:
        yield f"wrote {path}"


def _describe(reference: Reference, report: VerifyReport) -> Iterator[str]:
    sound = sum(map(len, report.shards.values()))
    attachments = f" and {counted(report.num_attachments, 'attachment')}" if report.num_attachments else ""
    yield (
        f"{reference}: {sound} of {report.num_shards} shards{attachments} are as published "
        f"({counted(report.num_examples, 'example')}, {size(report.num_bytes)} of files)"
    )
    yield from (f"  {fault.problem}" for fault in report.faults)
    yield from (f"  {found}" for found in report.outside)


def _fault_values(report: VerifyReport) -> list[dict[str, Any]]:
    return [fields_of(fault, "split", "filename", "code", "problem") for fault in report.faults]


def _version_values(version: VerifiedVersion) -> dict[str, Any]:
    report = version.report
    sizes = ("num_shards", "num_examples", "num_bytes", "num_attachments")
    return {
        **version_values(version.reference),
        **fields_of(version, "state", "is_sound"),
        **({} if version.verified_before is None else fields_of(version, "verified_before")),
        **(dict.fromkeys(sizes) if report is None else fields_of(report, *sizes)),
        "faults": [] if report is None else _fault_values(report),
        "outside": [] if report is None else list(map(fields_of, report.outside)),
        "error": version.error,
    }
