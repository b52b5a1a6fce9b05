"""What the commands about pins share: the file, the pins that are named, where the shards lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from registry.errors import RegistryError

if TYPE_CHECKING:  # numpy and pydantic are loaded when a pin file is read
    from registry.cli.options import Session
    from registry.pins import Pin, PinFile

DEFAULT_FILE: Final = "dataset.lock.yaml"


def file_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """FILE: a pin file."""
    return click.argument("file", metavar="FILE", type=click.Path(), shell_complete=complete_file)(function)


def names_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """[NAME]...: pins of the file; none means all."""
    return click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_name)(function)


def data_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--data: where the shards lie."""
    return click.option(
        "--data",
        metavar="DIR",
        help="Where the shards lie: a data directory, their own folder, or an unpacked bundle.  [default: 'data' "
        "beside FILE, $REGISTRY_DATA_DIR or your data folder, then where the pin says]",
    )(function)


def fetch_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--fetch and --allow-host: which places that pins name may be asked."""
    for option in (
        click.option(
            "--allow-host",
            "allow_hosts",
            multiple=True,
            metavar="HOST",
            help="Ask this host where a pin names it: example.org, example.org:8443, 10.0.0.0/8, s3://bucket or "
            "file:///folder; may be repeated.  [also: $REGISTRY_ALLOWED_HOSTS]",
        ),
        click.option("--fetch", is_flag=True, help="Ask every place that a pin names, if its address is public."),
    ):
        function = option(function)
    return function


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


def complete_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files: the shell knows best."""
    return [CompletionItem(incomplete, type="file")]


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The pins of the file named before."""
    try:
        names = list(open_pins(str(ctx.params["file"])))
    except (RegistryError, KeyError):
        return []
    # A shell prints what it offers: a name that steers the terminal is typed by who wants it.
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and name.isprintable()]
