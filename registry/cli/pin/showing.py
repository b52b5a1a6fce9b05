"""``registry pin show``, ``explain``, ``cite``, ``diff`` and ``read``: what stands in pin files."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, examples, session_command
from registry.cli.completion import complete_file, complete_name
from registry.cli.options import data_option, fetch_options, file_argument, names_argument
from registry.cli.output import size
from registry.cli.progress import record_progress
from registry.cli.read import jsonable
from registry.splits import print_ranges

if TYPE_CHECKING:
    from registry.cli.commands import Session
    from registry.pins import Pin, PinFile


@session_command("show", catalog=False, epilog=examples("registry pin show dataset.lock.yaml"))
@file_argument
def show(session: Session, file: str) -> None:
    """Show the pins of a file: versions, slices, number of records, digests. With --format json, everything."""
    pins = open_pins(file)
    rows = [
        (
            pin.name,
            str(pin.reference),
            pin.split,
            print_ranges(pin.plan.ranges),
            pin.num_examples,
            size(count_bytes([pin])),
            pin.entry.records.ordered[:19],
        )
        for pin in pins.values()
    ]

    def human() -> None:
        session.out.line(f"{file}: {pins.digest}, by {pins.document.created_by}")
        session.out.table(("NAME", "VERSION", "SPLIT", "RECORDS", "NUMBER", "FILES", "DIGEST"), rows)

    session.out.result("pin.show", dict(pins.content), human)


@session_command(
    "explain",
    catalog=False,
    epilog=examples("registry pin explain dataset.lock.yaml", "registry pin explain dataset.lock.yaml train"),
)
@file_argument
@names_argument
def explain(session: Session, file: str, names: tuple[str, ...]) -> None:
    """Say in sentences what was asked for, what that gave and why, which records those are, and what proves them."""
    from registry.pins.compare import explain_pin

    pins = open_pins(file)
    told = {pin.name: explain_pin(pin) for pin in pins.choose(names)}

    def human() -> None:
        for name, sentences in told.items():
            session.out.line(f"{name}:")
            for sentence in sentences:
                session.out.line(f"  {sentence}")

    session.out.result("pin.explain", {name: list(sentences) for name, sentences in told.items()}, human)


@session_command(
    "cite",
    catalog=False,
    epilog=examples("registry pin cite dataset.lock.yaml", "registry pin cite dataset.lock.yaml --bibtex >> paper.bib"),
)
@file_argument
@click.option("--text", "form", flag_value="text", default="text", help="Sentences.  [default]")
@click.option("--latex", "form", flag_value="latex", help="The same for LaTeX.")
@click.option("--bibtex", "form", flag_value="bibtex", help="Entries for a bibliography.")
def cite(session: Session, file: str, form: str) -> None:
    """Print what a paper says about its data: the short form of each pin, and the digest of the file."""
    from registry.pins import cite as forms
    from registry.pins.citation import Citation

    pins = open_pins(file)
    make = {"text": forms.cite_text, "latex": forms.cite_latex, "bibtex": forms.cite_bibtex}[form]
    text = make(pins)
    data = {"form": form, "text": text, "citations": {pin.name: str(Citation.of(pin.entry)) for pin in pins.values()}}
    session.out.result("pin.cite", data, lambda: session.out.line(text.rstrip("\n")))


@session_command("diff", catalog=False, epilog=examples("registry pin diff old.lock.yaml dataset.lock.yaml"))
@click.argument("old", metavar="OLD", type=click.Path(), shell_complete=complete_file)
@click.argument("new", metavar="NEW", type=click.Path(), shell_complete=complete_file)
@click.option("--exit-code", is_flag=True, help="End with 1 where a pin of the two reads other records.")
@click.pass_context
def diff(ctx: click.Context, session: Session, old: str, new: str, exit_code: bool) -> None:
    """Show how the pins of two files differ, by their names: other records, the same in other files, other words."""
    from registry.pins.compare import compare_pins

    found = compare_pins(open_pins(old), open_pins(new))
    data = [
        {"name": one.name, "kind": one.kind, "records": one.records or None, "lines": list(one.lines)} for one in found
    ]
    words = {"same": "the same records", "reordered": "the same records in another order", "other": "other records"}

    def human() -> None:
        for one in found:
            if one.kind == "same":
                session.out.line(f"{one.name}: the same")
                continue
            session.out.line(f"{one.name}: {one.kind}{f', {words[one.records]}' if one.records else ''}")
            for line in one.lines:
                session.out.line(f"  {line}")

    session.out.result("pin.diff", data, human)
    if exit_code and any(one.kind in ("added", "removed") or one.records != "same" for one in found):
        ctx.exit(1)


@session_command(
    "read",
    epilog=examples(
        "registry pin read dataset.lock.yaml train --take 3", "registry pin read paper/dataset.lock.yaml train --ids"
    ),
)
@file_argument
@click.argument("name", metavar="NAME", shell_complete=complete_name)
@data_option
@fetch_options
@click.option("--take", type=click.IntRange(min=0), metavar="N", help="Stop after N examples.  [default: all]")
@click.option("--ids", is_flag=True, help="Print the TFDS id of each example instead.")
def read(
    session: Session,
    file: str,
    name: str,
    *,
    data: str | None,
    fetch: bool,
    allow_hosts: tuple[str, ...],
    take: int | None,
    ids: bool,
) -> None:
    """Print the examples of the pin NAME in its order, one JSON object a line.

    Every record is held against its checksums; that the files are the pinned ones, `registry pin verify` proves. No
    catalog is opened, unless --catalog names one: then you are told of versions that were yanked since, and files are
    looked for where the catalog reads them, too.
    """
    pin = open_pins(file, data, session, fetch=fetch, allow_hosts=allow_hosts)[name]
    note_yanks(session, [pin])
    reader = pin.read()
    total = len(reader) if take is None else min(take, len(reader))
    items: Any = reader.ids() if ids else map(jsonable, reader)
    with record_progress(session.out, "reading", total, beside_stdout=True) as advance:
        if session.out.as_json:
            key = "ids" if ids else "examples"
            found = {**pin_json(pin), key: list(islice(items, take))}
            session.out.result("pin.read", found, lambda: None, has_records=True)
            return
        for item in islice(items, take):
            session.out.line(item) if ids else session.out.json_line(item)
            if advance is not None:
                advance(1)


def open_pins(
    file: str,
    data: str | None = None,
    session: Session | None = None,
    *,
    fetch: bool = False,
    allow_hosts: tuple[str, ...] = (),
) -> PinFile:
    """The pin file at ``file``, with its shards in ``data``, or also in the data directory that a session names."""
    from registry.api.locations import catalog_url, data_folder
    from registry.api.pin_files import open_pin_file

    is_named = session is not None and (session.url or session.data_dir)
    fallback = data_folder(catalog_url(session.url), session.data_dir) if session is not None and is_named else None
    pins = open_pin_file(file, data, fallback=fallback, fetch=fetch, allow_hosts=allow_hosts)
    if session is None or session.url is None:
        return pins
    with session.connect() as catalog:
        return catalog.pins.place(pins)


def note_yanks(session: Session, pins: Sequence[Pin]) -> None:
    """Note which versions were yanked when they were pinned, or, where a catalog was named, since."""
    from registry.api.pin_files import yank_notes

    if session.url is None:
        notes = yank_notes(pins)
    else:
        with session.connect() as catalog:
            notes = yank_notes(pins, catalog)
    for note in notes:
        session.out.note(f"note: {note}")


def pin_json(pin: Pin) -> dict[str, Any]:
    """What identifies a pin, for programs."""
    return {
        "name": pin.name,
        "dataset": pin.reference.dataset,
        "version": str(pin.version.version),
        "split": pin.split,
        "slicing": pin.entry.slicing,
        "num_examples": pin.num_examples,
        "records": {"ordered": pin.entry.records.ordered, "unordered": pin.entry.records.unordered},
    }


def count_bytes(pins: Sequence[Pin]) -> int:
    """Bytes of the files of these pins."""
    return sum(file.num_bytes for pin in pins for file in pin.entry.files)
