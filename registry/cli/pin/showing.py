"""``registry pin show``, ``explain``, ``cite``, ``diff`` and ``read``: show, compare and read pin files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, session_command, version_values
from registry.cli.completion import complete_name
from registry.cli.options import (
    ANYWHERE,
    PinPlaces,
    RecordOptions,
    check_output,
    file_argument,
    force_option,
    html_option,
    names_argument,
    pin_data_dir_option,
    places_options,
    record_options,
    write_file,
)
from registry.cli.output import Block, Column, Table, size
from registry.cli.read import present_records
from registry.envelope import fields_of
from registry.errors import CatalogError
from registry.splits import print_ranges

if TYPE_CHECKING:  # numpy and pydantic are loaded when a pin file is read
    from registry.pins import Pin, PinFile


@session_command("show", catalog=False)
@file_argument
def show(session: Session, file: str) -> None:
    """Show the pins of a file: versions, slices, number of records, digests. With --format json, everything.

    Examples:
        registry pin show dataset.lock.yaml
    """
    pins = open_pins(file)
    columns: dict[str, Column] = {
        "NAME": lambda pin: pin.name,
        "VERSION": lambda pin: pin.reference,
        "SPLIT": lambda pin: pin.split,
        "RECORDS": lambda pin: print_ranges(pin.plan.ranges),
        "NUMBER": lambda pin: pin.num_examples,
        "FILES": lambda pin: size(count_bytes([pin])),
        "DIGEST": lambda pin: pin.entry.records.ordered[:19],
    }

    def human(_: object) -> Iterator[Block]:
        yield f"{file}: {pins.digest}, by {pins.document.created_by}"
        yield Table(list(pins.values()), columns)

    session.out.present("pin.show", pins.content, human)


@session_command("explain", catalog=False)
@file_argument
@names_argument
def explain(session: Session, file: str, names: tuple[str, ...]) -> None:
    """Explain in sentences what was requested, which version and records it resolved to and why, and what proves them.

    Examples:
        registry pin explain dataset.lock.yaml
        registry pin explain dataset.lock.yaml train
    """
    from registry.pins.compare import explain_pin

    pins = open_pins(file)
    told = {pin.name: explain_pin(pin) for pin in pins.choose(names)}

    def human(it: dict[str, Sequence[str]]) -> Iterator[str]:
        for name, sentences in it.items():
            yield f"{name}:"
            yield from (f"  {sentence}" for sentence in sentences)

    session.out.present("pin.explain", told, human)


@session_command("cite", catalog=False)
@file_argument
@click.option("--text", "form", flag_value="text", default="text", help="Sentences.  [default]")
@click.option("--latex", "form", flag_value="latex", help="Print the text for LaTeX.")
@click.option("--bibtex", "form", flag_value="bibtex", help="Print entries for a bibliography.")
def cite(session: Session, file: str, form: str) -> None:
    """Print the text that a paper needs to cite its data: the short form of each pin, and the digest of the file.

    Examples:
        registry pin cite dataset.lock.yaml
        registry pin cite dataset.lock.yaml --bibtex >> paper.bib
    """
    from registry.pins import cite as forms
    from registry.pins.citation import Citation

    pins = open_pins(file)
    if form == "bibtex":
        text = forms.cite_bibtex(pins)
    else:
        text = {"text": forms.cite_text, "latex": forms.cite_latex}[form](pins, file.rpartition("/")[2])
    citations = {pin.name: str(Citation.of(pin.entry)) for pin in pins.values()}
    value = {"form": form, "text": text, "citations": citations}
    session.out.present("pin.cite", value, lambda it: [it["text"].rstrip("\n")])


@session_command("diff", catalog=False)
@click.argument("old", metavar="OLD", type=click.Path())
@click.argument("new", metavar="NEW", type=click.Path())
@click.option("--exit-code", is_flag=True, help="Exit with code 1 if a pin reads other records.")
@html_option
@force_option
def diff(session: Session, old: str, new: str, exit_code: bool, html: str | None, force: bool) -> int:
    """Compare the pins of two files by name: other records, the same records in other files, or other wording.

    Examples:
        registry pin diff old.lock.yaml dataset.lock.yaml
        registry pin diff old.lock.yaml dataset.lock.yaml --html pins.html
    """
    from registry.pins.compare import compare_pins

    if html is not None:
        check_output(html, option="--html", force=force)
    found = [
        {"records": pin.records or None, **fields_of(pin, "name", "kind", "lines")}
        for pin in compare_pins(open_pins(old), open_pins(new))
    ]
    words = {"same": "the same records", "reordered": "the same records in another order", "other": "other records"}
    if html is not None:
        from registry.pages import Page, render_alone

        values = {"pins": found, "words": words | {"": "only one of the files has it"}}
        page = Page(name="pin_diff", title=" to ".join(file.rpartition("/")[2] for file in (old, new)), values=values)
        write_file(html, render_alone(page).encode(), force=force, option="--html")

    def human(rows: list[dict[str, Any]]) -> Iterator[str]:
        for row in rows:
            if row["kind"] == "same":
                yield f"{row['name']}: the same"
            else:
                records = f", {words[row['records']]}" if row["records"] else ""
                yield f"{row['name']}: {row['kind']}{records}"
                yield from (f"  {line}" for line in row["lines"])

    session.out.present("pin.diff", found, human)
    differs = any(row["kind"] in ("added", "removed") or row["records"] != "same" for row in found)
    return 1 if exit_code and differs else 0


@session_command("read", data_dir=pin_data_dir_option)
@file_argument
@click.argument("name", metavar="NAME", shell_complete=complete_name)
@places_options
@record_options
def read(session: Session, file: str, name: str, *, places: PinPlaces, records: RecordOptions) -> None:
    """Print the examples of the pin NAME in its order, one JSON object per line, like `registry read`.

    Images and stored sounds are described unless you add --pixels.

    The checksum of every record is checked; `registry pin verify` proves that the files are the pinned ones. A catalog
    is opened if --catalog names one, or if REGISTRY_CATALOG names a service for which you have a token. In these cases,
    notes name versions that were yanked since, and the folders of the catalog are also searched for the files.

    Examples:
        registry pin read dataset.lock.yaml train --limit 3
        registry pin read paper/dataset.lock.yaml train --ids
    """
    pin = open_pins(file, places, session)[name]
    note_yanks(session, [pin])
    present_records(session, "pin.read", pin_values(pin), pin.read(), records)


def open_pins(file: str, places: PinPlaces = ANYWHERE, session: Session | None = None) -> PinFile:
    """Open the pin file ``file``, whose shards are searched for in ``places`` and in the folders of the session."""
    from registry.api.locations import data_folder, open_pin_file

    url = None if session is None else session.url
    fallback = data_folder(url) if url else None
    data_dir = None if session is None else session.data_dir
    pins = open_pin_file(file, data_dir, fallback=fallback, fetch=places.fetch, allow_hosts=places.allow_hosts)
    if session is not None and _asks_catalog(session):
        with _lenient(session), session.connect() as catalog:
            pins = catalog.pins.place(pins)
    return pins


def note_yanks(session: Session, pins: Sequence[Pin]) -> None:
    """Note which versions were yanked when they were pinned or, if a catalog is named, since then."""
    from registry.api.loading import yank_notes

    notes = yank_notes(pins)
    if _asks_catalog(session):
        with _lenient(session), session.connect() as catalog:
            notes = yank_notes(pins, catalog)
    session.out.notes(notes)


def _asks_catalog(session: Session) -> bool:
    """Whether a catalog is used for pins: the one of ``--catalog``, or a service in ``REGISTRY_CATALOG``.

    A database is not opened, because pins know where their files are. Pins of a service need it.
    """
    from registry.api.locations import access_token
    from registry.catalog import is_site, masked_url

    usual = "" if session.url else session.catalog_url
    return bool(session.url) or (is_site(usual) and access_token(masked_url(usual)) is not None)


@contextmanager
def _lenient(session: Session) -> Iterator[None]:
    """Let the block fail with a note if only ``REGISTRY_CATALOG`` names the catalog, whose pins may be elsewhere."""
    try:
        yield
    except CatalogError as error:
        if session.url:
            raise
        session.out.note(f"note: {session.catalog_url} is not used for the pins: {error.message}")


def pin_values(pin: Pin) -> dict[str, Any]:
    """The fields that identify a pin in a result."""
    return {
        "name": pin.name,
        **version_values(pin.reference),
        "split": pin.split,
        "slicing": pin.entry.slicing,
        "num_examples": pin.num_examples,
        "records": fields_of(pin.entry.records, "ordered", "unordered"),
    }


def count_bytes(pins: Sequence[Pin]) -> int:
    """The number of bytes in the files of these pins."""
    return sum(file.num_bytes for pin in pins for file in pin.entry.files)
