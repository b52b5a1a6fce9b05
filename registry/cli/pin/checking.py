"""``registry pin verify``, ``audit`` and ``from-citation``: compare pins with files, catalog and papers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, session_command
from registry.cli.completion import complete_reference
from registry.cli.options import (
    PinPlaces,
    file_argument,
    force_option,
    names_argument,
    pin_data_dir_option,
    places_options,
)
from registry.cli.output import Block, Column, Note, Table, size
from registry.cli.pin.making import present_pins
from registry.cli.pin.showing import note_yanks, open_pins
from registry.cli.progress import show_progress
from registry.envelope import fields_of
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
    from registry.model import DatasetVersion
    from registry.pins import Pin, PinFile
    from registry.pins.citation import Citation
    from registry.pins.verify import PinReport


@session_command("verify", engine="verifying", data_dir=pin_data_dir_option)
@file_argument
@names_argument
@places_options
@click.option("--deep", is_flag=True, help="Also decode every record, and check everything that the pin says about it.")
@click.option("--quick", is_flag=True, help="If all files match the pin, check only three records.")
@click.option(
    "--against",
    metavar="REF",
    shell_complete=complete_reference,
    help="Compare the pins with the records of another version of the catalog.",
)
def verify(
    session: Session,
    file: str,
    names: tuple[str, ...],
    *,
    places: PinPlaces,
    deep: bool,
    quick: bool,
    against: str | None,
) -> int:
    """Prove that the stored records are the pinned ones, for all pins of FILE or only those named NAME.

    Compares every file with its sha256, and the digest of all records with the one that a paper prints. If only the
    files differ, as in a version with other shards, equal records are enough. If records differ, the files, records and
    features are named with both digests, and the exit code is 5. A catalog is opened only for --against, if --catalog
    names one, or if REGISTRY_CATALOG names a service for which you have a token. In these cases, notes name versions
    that were yanked since, and the folders of the catalog are also searched for the files.

    Examples:
        registry pin verify dataset.lock.yaml
        registry pin verify dataset.lock.yaml --data-dir /data/datasets --deep
        registry pin verify dataset.lock.yaml --against digits:1.0.1
    """
    from registry.pins.bundle import check_json

    pins = open_pins(file, places, session)
    check_json(file, pins)
    chosen = pins.choose(names)
    folder = splits = None
    if against is not None:
        with session.connect() as catalog:
            dataset = session.look_up(catalog, against)
            _require_dataset(chosen, dataset.facts)
            folder, splits = dataset.folder, dataset.facts.layout
    note_yanks(session, chosen)
    with show_progress(session.out) as progress:
        reports, refusals = [], []
        for pin in chosen:
            try:
                reports.append(pin.verify(folder=folder, splits=splits, deep=deep, quick=quick, progress=progress))
            except FetchNotAllowedError as error:  # the other pins are verified
                refusals.append(error)
    if refusals and not reports:
        raise _joined(refusals)

    is_sound = all(report.is_sound for report in reports)
    for refusal in refusals if not is_sound else ():
        session.out.note(refusal.message)

    value = {"file": file, "digest": pins.digest, "pins": [_report_values(report) for report in reports]}
    session.out.present("pin.verify", value, lambda it: chain.from_iterable(map(_describe_report, it["pins"])))
    if refusals and is_sound:
        raise _joined(refusals)
    return 0 if is_sound else VerificationError.exit_code


@session_command("audit", data_dir=pin_data_dir_option)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@places_options
def audit(session: Session, files: tuple[str, ...], *, places: PinPlaces) -> int:
    """Show the current state of each pin: the state of its version in the catalog, and whether its files exist.

    The exit code is 6 if a version is yanked, dropped, not in the catalog or has other content there, else 5 if files
    are missing.

    Examples:
        registry pin audit dataset.lock.yaml
        registry pin audit papers/*/*.lock.yaml --format json
    """
    with session.connect() as catalog:
        opened = [(file, open_pins(file, places, session)) for file in files]
        audits = [(file, pin) for file, pins in opened for pin in catalog.pins.audit(pins)]
        corrections = dict.fromkeys(pin.correction for _, pin in audits if pin.correction)
        result = [
            {"file": file}
            | fields_of(pin, "name", "reference", "split", "state", "message", "is_withdrawn", "folder", "missing")
            | fields_of(pin, "today", "is_good", "corrected")
            for file, pin in audits
        ]
    columns: dict[str, Column] = {
        "FILE": "file",
        "PIN": "name",
        "VERSION": "reference",
        "STATE": lambda row: f"{row['state']}: {row['message']}" if row["message"] else row["state"],
        "DATA": lambda row: "missing" if row["missing"] else "there",
        "RESOLVES TO": "today",
    }

    def human(rows: list[dict[str, Any]]) -> Iterator[Block]:
        yield Table(rows, columns)
        yield from map(Note, dict.fromkeys(row["missing"] for row in rows if row["missing"]))
        yield from (Note(f"note: {note}") for note in corrections)

    session.out.present("pin.audit", result, human)
    if any(row["is_withdrawn"] for row in result):
        return LockedError.exit_code
    return VerificationError.exit_code if any(row["missing"] for row in result) else 0


@session_command("from-citation")
@click.argument("citation", metavar="TEXT")
@click.option("-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), help="Write the pin to FILE.")
@force_option
@click.option("--in", "inside", metavar="FILE", type=click.Path(), help="Search a pin file instead of the catalog.")
def from_citation(session: Session, citation: str, *, output: str | None, force: bool, inside: str | None) -> None:
    """Find the pin that a citation in a paper names, and check its number of records and digest.

    TEXT may be copied with line breaks, and with LaTeX's backslashes. The version is looked up in the catalog and its
    records are digested; with --in, a pin file is searched instead, and no catalog is opened.

    Examples:
        registry pin from-citation 'digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac' -o dataset.lock.yaml
        registry pin from-citation 'digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac' --in dataset.lock.yaml
    """
    from registry.pins.citation import Citation

    cited = Citation.parse(citation)
    if inside is not None:
        if output is not None:
            raise UsageError("--in reads an existing file and -o writes a new one", hint="Use only one of them.")
        pins = _find_cited(open_pins(inside), cited)
    else:
        with session.connect() as catalog, show_progress(session.out) as progress:
            pins = catalog.pins.from_citation(cited, progress=progress)
    if output is not None:
        pins.save(output, force=force)
    present_pins(session, "pin.from-citation", pins, output)


def _joined(refusals: Sequence[FetchNotAllowedError]) -> FetchNotAllowedError:
    """A single error for all pins whose files are missing here and may not be fetched."""
    from registry.pins.places import agreement_hint

    if len(refusals) == 1:
        return refusals[0]
    allow = list(dict.fromkeys(detail for refusal in refusals for detail in refusal.details["allow"]))
    return FetchNotAllowedError(
        "\n".join(dict.fromkeys(refusal.message for refusal in refusals)),
        hint=agreement_hint(allow),
        details={"places": [place for refusal in refusals for place in refusal.details["places"]], "allow": allow},
    )


def _find_cited(pins: PinFile, cited: Citation) -> PinFile:
    """The pin that a citation names, as a separate pin file."""
    from registry.pins.citation import Citation

    near = [pin for pin in pins.values() if pin.reference == cited.reference and pin.split == cited.split]
    for pin in near:
        if cited.matches(pin.entry):
            return pins.only([pin.name])
    if not near:
        known = ", ".join(str(Citation.of(pin.entry)) for pin in list(pins.values())[:5])
        raise PinNotFoundError(f"no pin in the file matches {cited}", hint=f"There are: {known}.")
    differences = cited.differences(near[0].entry)
    raise RecordsMismatchError(
        f"{cited}: the pin {near[0].name} differs: {'; '.join(differences)}",
        hint="Check that the whole text was copied from the paper.",
        details={"citation": str(cited), "differences": list(differences)},
    )


def _require_dataset(pins: Sequence[Pin], against: DatasetVersion) -> None:
    """Refuse to compare pins with another dataset, because all records would differ."""
    for pin in pins:
        if not against.is_called(pin.reference.name):
            raise UsageError(
                f"the pin {pin.name} belongs to {pin.reference.name}, but --against names {against.reference}",
                hint=f"Name a version of {pin.reference.name}, or the pins of {against.name}.",
            )


def _report_values(report: PinReport) -> dict[str, Any]:
    return {
        **fields_of(report, "name", "dataset", "split", "num_examples", "folder", "is_sound", "deep"),
        "proved_by": report.proved_by or None,
        **fields_of(report, "num_files", "num_bytes", "notes"),
        "faults": [fault.to_json() for fault in report.faults],
    }


def _describe_report(it: dict[str, Any]) -> Iterator[str]:
    place = it["folder"].removeprefix("file://")
    named = f"{it['name']}: {it['dataset']} {it['split']}"
    if it["is_sound"]:
        how = "every file matches the pin" if it["proved_by"] == "files" else "the records match the pin"
        deep = ", and every record was digested and decoded" if it["deep"] else ""
        read = f"{counted(it['num_files'], 'file')}, {size(it['num_bytes'])} in {place}"
        records = counted(it["num_examples"], "record")
        yield f"{named}: {records} as pinned: {how}{deep} ({read if it['num_files'] else 'no files'})"
        yield from (f"  {note}" for note in it["notes"])
        return
    yield f"{named} in {place} differs from the pin"
    for fault in it["faults"]:
        yield f"  {fault['problem']}"
        for key, pair in fault["features"].items():
            yield f"    {key}: pinned {pair['pinned'] or 'nothing'}, found {pair['found'] or 'nothing'}"
