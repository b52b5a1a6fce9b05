"""``registry pin verify``, ``audit`` and ``from-citation``: is this what was pinned, and is it still good?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, examples, session_command
from registry.cli.completion import complete_file, complete_reference
from registry.cli.options import data_option, fetch_options, file_argument, names_argument
from registry.cli.output import size
from registry.cli.pin.making import print_pins
from registry.cli.pin.showing import count_bytes, note_yanks, open_pins
from registry.cli.progress import byte_progress
from registry.errors import (
    FetchNotAllowedError,
    LockedError,
    PinNotFoundError,
    RecordsMismatchError,
    UsageError,
    VerificationError,
)
from registry.splits import counted

if TYPE_CHECKING:  # numpy and pydantic are loaded when a pin file is read
    from registry.model import Reference
    from registry.pins import Pin, PinFile
    from registry.pins.citation import Citation
    from registry.pins.report import PinReport


@session_command(
    "verify",
    epilog=examples(
        "registry pin verify dataset.lock.yaml",
        "registry pin verify dataset.lock.yaml --data /data/datasets --deep",
        "registry pin verify dataset.lock.yaml --against digits:1.0.1",
    ),
)
@file_argument
@names_argument
@data_option
@fetch_options
@click.option("--deep", is_flag=True, help="Decode every record too, and check all that the pin says of them.")
@click.option("--quick", is_flag=True, help="Where all files are the pinned ones, look at three records, not at all.")
@click.option(
    "--against",
    metavar="REF",
    shell_complete=complete_reference,
    help="Hold the records of another version of the catalog against the pins.",
)
@click.pass_context
def verify(
    ctx: click.Context,
    session: Session,
    file: str,
    names: tuple[str, ...],
    *,
    data: str | None,
    fetch: bool,
    allow_hosts: tuple[str, ...],
    deep: bool,
    quick: bool,
    against: str | None,
) -> None:
    """Prove that the stored records are the pinned ones: all pins of FILE, or those of NAME.

    Every file is compared with its sha256, and the digest over all records with the one that a paper prints. Where
    files differ, as those of a version with other shards do, the records are the proof. What differs is named: file,
    record, feature, and both digests. Ends with exit code 5 where it does. No catalog is opened, unless --against asks
    for it, or --catalog names one: then you are told of versions that were yanked since, and files are looked for where
    the catalog reads them, too.
    """
    from registry.pins.bundle import check_json

    pins = open_pins(file, data, session, fetch=fetch, allow_hosts=allow_hosts)
    check_json(file, pins)
    chosen = pins.choose(names)
    folder = None
    if against is not None:
        if data is not None:
            raise UsageError("--data and --against both say what is verified", hint="Give one of them.")
        with session.connect() as catalog:
            found = session.look_up(catalog, against)
            _require_dataset(chosen, found.reference)
            folder = found.folder
    note_yanks(session, chosen)
    with byte_progress(session.out, "verifying", count_bytes(chosen) * (1 if quick else 2)) as advance:
        reports, refusals = [], []
        for pin in chosen:
            try:
                reports.append(pin.verify(folder=folder, deep=deep, quick=quick, advance=advance))
            except FetchNotAllowedError as error:  # the other pins are verified
                refusals.append(error)
    if refusals and not reports:
        raise _joined(refusals)

    is_sound = all(report.is_sound for report in reports)
    for refusal in refusals if not is_sound else ():
        session.out.note(refusal.message)

    def human() -> None:
        for report in reports:
            _print_report(session, report)

    data_ = {"file": file, "digest": pins.digest, "pins": [_report_json(report) for report in reports]}
    session.out.result("pin.verify", data_, human)
    if refusals and is_sound:
        raise _joined(refusals)
    if not is_sound:
        ctx.exit(VerificationError.exit_code)


@session_command(
    "audit",
    epilog=examples("registry pin audit dataset.lock.yaml", "registry pin audit papers/*/*.lock.yaml --format json"),
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(), shell_complete=complete_file)
@data_option
@fetch_options
@click.pass_context
def audit(
    ctx: click.Context,
    session: Session,
    files: tuple[str, ...],
    *,
    data: str | None,
    fetch: bool,
    allow_hosts: tuple[str, ...],
) -> None:
    """Show how each pin stands today: the state of its version in the catalog, and whether its files are there.

    Ends with exit code 6 where a version is yanked, dropped, unknown to the catalog or of other content, else with 5
    where files are missing.
    """
    with session.connect() as catalog:
        opened = [(file, open_pins(file, data, session, fetch=fetch, allow_hosts=allow_hosts)) for file in files]
        found = [(file, one) for file, pins in opened for one in catalog.pins.audit(pins)]
    rows = [
        (
            file,
            one.name,
            str(one.reference),
            f"{one.state}{f': {one.message}' if one.message else ''}",
            "missing" if one.missing else "there",
            str(one.today or ""),
        )
        for file, one in found
    ]
    told = [
        {
            "file": file,
            "name": one.name,
            "reference": str(one.reference),
            "split": one.split,
            "state": one.state,
            "message": one.message,
            "is_withdrawn": one.is_withdrawn,
            "folder": one.folder,
            "missing": one.missing,
            "today": None if one.today is None else str(one.today),
            "is_good": one.is_good,
        }
        for file, one in found
    ]

    def human() -> None:
        session.out.table(("FILE", "PIN", "VERSION", "STATE", "DATA", "RESOLVES TO"), rows)
        for text in dict.fromkeys(one.missing for _, one in found if one.missing):
            session.out.note(text)

    session.out.result("pin.audit", told, human)
    if any(one.is_withdrawn for _, one in found):
        ctx.exit(LockedError.exit_code)
    if any(one.missing for _, one in found):
        ctx.exit(VerificationError.exit_code)


@session_command(
    "from-citation",
    epilog=examples(
        "registry pin from-citation 'digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac' -o dataset.lock.yaml",
        "registry pin from-citation 'digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac' --in dataset.lock.yaml",
    ),
)
@click.argument("citation", metavar="TEXT")
@click.option("-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), help="Write the pin to FILE.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--in", "inside", metavar="FILE", type=click.Path(), help="Look in a pin file, not in the catalog.")
def from_citation(session: Session, citation: str, *, output: str | None, force: bool, inside: str | None) -> None:
    """Find the pin that the short form in a paper's text names, and check it: number of records and digest.

    TEXT may come as it stands in the paper, with LaTeX's backslashes. The version is looked up in the catalog and its
    records are digested; with --in, a pin file is searched instead, and no catalog is opened.
    """
    from registry.pins.citation import Citation

    cited = Citation.parse(citation)
    if inside is not None:
        if output is not None:
            raise UsageError("--in looks in a file that is there, and -o writes a new one", hint="Give one of them.")
        pins = _find_cited(open_pins(inside), cited)
    else:
        with session.connect() as catalog, byte_progress(session.out, "hashing", None) as advance:
            pins = catalog.pins.from_citation(cited, advance=advance)
    if output is not None:
        pins.save(output, overwrite=force)
    print_pins(session.out, pins, output, schema="pin.from-citation")


def _joined(refusals: Sequence[FetchNotAllowedError]) -> FetchNotAllowedError:
    """One error for pins whose files are not here, and may not be fetched."""
    from registry.pins.places import agreement_hint

    if len(refusals) == 1:
        return refusals[0]
    allow = list(dict.fromkeys(one for refusal in refusals for one in refusal.details["allow"]))
    return FetchNotAllowedError(
        "\n".join(dict.fromkeys(refusal.message for refusal in refusals)),
        hint=agreement_hint(allow),
        details={"places": [place for refusal in refusals for place in refusal.details["places"]], "allow": allow},
    )


def _find_cited(pins: PinFile, cited: Citation) -> PinFile:
    """The pin of a file that a citation is of, as a file of its own."""
    from registry.pins.citation import Citation

    near = [pin for pin in pins.values() if pin.reference == cited.reference and pin.split == cited.split]
    for pin in near:
        if cited.matches(pin.entry):
            return pins.only([pin.name])
    if not near:
        known = ", ".join(str(Citation.of(pin.entry)) for pin in list(pins.values())[:5])
        raise PinNotFoundError(f"no pin of the file is {cited}", hint=f"There are: {known}.")
    differences = cited.differences(near[0].entry)
    raise RecordsMismatchError(
        f"{cited}: the pin {near[0].name} is another one: {'; '.join(differences)}",
        hint="Was the text copied right?",
        details={"citation": str(cited), "differences": list(differences)},
    )


def _require_dataset(pins: Sequence[Pin], against: Reference) -> None:
    """Refuse to hold pins against another dataset: all of it would differ, and that says nothing."""
    for pin in pins:
        if pin.reference.name != against.name:
            raise UsageError(
                f"the pin {pin.name} is of {pin.reference.name}, and --against names {against}",
                hint=f"Name a version of {pin.reference.name}, or the pins of {against.name}.",
            )


def _print_report(session: Session, report: PinReport) -> None:
    place = report.folder.removeprefix("file://")
    if report.is_sound:
        how = "every file is the pinned one" if report.proved_by == "files" else "the records are the pinned ones"
        deep = ", and every record was digested and decoded" if report.deep else ""
        session.out.line(
            f"{report.name}: {report.dataset} {report.split}: {counted(report.num_examples, 'record')} as pinned: "
            f"{how}{deep} ({counted(report.num_files, 'file')}, {size(report.num_bytes)} in {place})"
        )
        for note in report.notes:
            session.out.line(f"  {note}")
        return
    session.out.line(f"{report.name}: {report.dataset} {report.split} in {place} is not what was pinned")
    for fault in report.faults:
        session.out.line(f"  {fault.problem}")
        for key, (pinned, found) in fault.features.items():
            session.out.line(f"    {key}: pinned {pinned or 'nothing'}, found {found or 'nothing'}")


def _report_json(report: PinReport) -> dict[str, Any]:
    return {
        "name": report.name,
        "dataset": report.dataset,
        "split": report.split,
        "num_examples": report.num_examples,
        "folder": report.folder,
        "is_sound": report.is_sound,
        "proved_by": report.proved_by or None,
        "deep": report.deep,
        "num_files": report.num_files,
        "num_bytes": report.num_bytes,
        "notes": list(report.notes),
        "faults": [fault.to_json() for fault in report.faults],
    }
