"""``registry pin create``, ``add`` and ``update``: create pin files, and move pins to other versions."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.browse import describe_diff
from registry.cli.commands import Session, note_overlaps, session_command, version_values
from registry.cli.options import (
    PIN_FILE,
    Slicing,
    check_output,
    confirm,
    file_argument,
    force_option,
    names_argument,
    order_options,
    reference_argument,
    show_option,
    slicing_options,
    splits_argument,
)
from registry.cli.output import Block, Note, size
from registry.cli.pin.showing import count_bytes, open_pins, pin_values
from registry.cli.progress import show_progress
from registry.errors import AlreadyStoredError, RegistryError, UsageError
from registry.splits import counted, print_ranges
from registry.splits.plan import range_values

if TYPE_CHECKING:  # numpy and pydantic are loaded when something is pinned
    from registry.api import Dataset
    from registry.api.pinning import PinMove
    from registry.order import ReadConfig
    from registry.pins import PinFile
    from registry.splits import Plan


_location_option: Final = click.option(
    "--location",
    "locations",
    multiple=True,
    metavar="URL",
    help="A folder from which others can get the files, e.g. https://... or s3://...; may be repeated.",
)
_output_option: Final = click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    default=PIN_FILE,
    show_default=True,
    help="The pin file.",
)
_dry_run_option: Final = click.option(
    "--dry-run", is_flag=True, help="Show what would be pinned, without reading or writing files."
)


@session_command("create", engine="pinning", at=True, locked=True)
@reference_argument
@splits_argument
@_output_option
@force_option
@_location_option
@slicing_options
@order_options(seed="[needed for a shuffle]")
@_dry_run_option
def create(session: Session, *, output: str, **options: Any) -> None:
    """Pin slices of a version in a new file.

    To name a pin, write NAME=SPLIT. Every file with records of a slice is hashed and compared with the catalog, and
    every record is hashed as well. The same version and slices give the same file, byte for byte.

    Examples:
        registry pin create 'mnist:3.*' 'train[:80%]' test -o dataset.lock.yaml
        registry pin create digits train='train[:80%]' validation='train[80%:]'
        registry pin create digits train --shuffle-seed 42 --location https://example.org/digits/1.0.0
    """
    check_output(output, option="-o", force=True)  # before hashing, which may take an hour
    _pin(session, output, None, **options)


@session_command("add", at=True, locked=True)
@reference_argument
@splits_argument
@_output_option
@_location_option
@slicing_options
@order_options(seed="[needed for a shuffle]")
@_dry_run_option
def add(session: Session, *, output: str, **options: Any) -> None:
    """Pin more slices in a file, of the same or of another dataset. Existing pins do not change.

    Examples:
        registry pin add digits 'train[80%:]' -o dataset.lock.yaml
        registry pin add mnist@paper eval=test
    """
    _pin(session, output, open_pins(output), force=True, **options)


@session_command("update")
@file_argument
@names_argument
@click.option(
    "--to", metavar="REQUEST", help="A version (2.0.0, 2.*, @paper) or a reference, instead of the pin's request."
)
@_location_option
@show_option
@click.option("--dry-run", is_flag=True, help="Show what changes, and write nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def update(
    session: Session,
    file: str,
    names: tuple[str, ...],
    *,
    to: str | None,
    locations: tuple[str, ...],
    show: int,
    dry_run: bool,
    yes: bool,
) -> None:
    """Move pins, or only NAME, to the version that their request, or REQUEST, resolves to today.

    First shows the changes, down to records, and writes them after you confirm. Without a terminal, --yes is required.
    With only --location, pins do not move, and the locations are added.

    Examples:
        registry pin update dataset.lock.yaml --dry-run
        registry pin update dataset.lock.yaml train --to '2.*' --yes
        registry pin update dataset.lock.yaml --location https://example.org/digits/1.0.0
    """
    from registry.pins.create import check_locations

    pins = open_pins(file)
    chosen = pins.choose(names)
    check_locations(locations)
    has_secrets = pins.without_secrets() is not pins
    if has_secrets:
        done = "would be removed" if dry_run else "are removed"
        session.out.note(
            f"note: secrets in URLs of {file} {done}; everyone who had the file may know them: change them"
        )
    with session.connect() as catalog:
        moves: tuple[PinMove, ...] = ()
        if to is not None or not locations:
            with show_progress(session.out) as progress:
                moves = catalog.pins.preview_update(pins, names=names, to=to, show=show, progress=progress)
        going = [move for move in moves if move.is_move]
        session.out.tell(_describe_moves(moves))
        is_change = bool(going or (locations and not moves) or has_secrets)
        question = f"{counted(len(going), 'pin')} would read other records or files"
        if is_change and not dry_run and (yes or not going or confirm(question)):
            with show_progress(session.out) as progress:
                updated = catalog.pins.update(pins, moves, names=names, locations=locations, progress=progress)
            updated.save(file, force=True, expected=pins.digest)
            written = updated != pins
        else:
            updated, written = pins, False
    value = {
        "file": file,
        "written": written,
        "dry_run": dry_run,
        "digest": {"before": pins.digest, "after": updated.digest},
        "pins": [_move_values(move) for move in moves],
    }

    def human(it: dict[str, Any]) -> Iterator[str]:
        if it["written"]:
            yield f"wrote {file} ({it['digest']['after'][:19]})"
        elif not is_change or (not going and not dry_run):
            yield "nothing changes"
        elif dry_run and not going:
            yield f"would add {counted(len(locations), 'location')} to {', '.join(pin.name for pin in chosen)}"

    session.out.present("pin.update", value, human)


def _pin(
    session: Session,
    output: str,
    into: PinFile | None,
    *,
    reference: str,
    splits: Sequence[str],
    locations: tuple[str, ...],
    slicing: Slicing,
    order: ReadConfig | None,
    force: bool,
    dry_run: bool,
) -> None:
    """Pin the requested slices in a new file, or add them to the existing pins ``into``."""
    from registry.order import check_read_config
    from registry.pins.create import check_locations, check_names, check_order

    schema = "pin.create" if into is None else "pin.add"
    slices = [_named(text) for text in splits]
    check_names(name for part in slices if isinstance(part, Mapping) for name in part)
    check_locations(locations)
    check_order(check_read_config(order))
    _note_paths(session, locations, output)
    with session.connect() as catalog:
        dataset = session.look_up(catalog, reference)
        texts = [text for part in slices for text in ([part] if isinstance(part, str) else part.values())]
        plans = [dataset.resolve(text, **slicing) for text in texts]
        for plan in plans:
            note_overlaps(session.out, plan)
        if dry_run:
            _present_plans(session, schema, dataset, plans)
            return
        if into is None and not force:
            _refuse_other(output, dataset, plans, splits)
        with show_progress(session.out) as progress:
            pins = dataset.pin(*slices, **slicing, read_config=order, locations=locations, into=into, progress=progress)
    if into is None:
        pins.save(output, force=force)
    else:
        pins = pins.add_to(output, into)
    if dataset.facts.is_elsewhere:
        folder = dataset.local_folder or dataset.folder
        option = f"--data-dir {shlex.quote(folder)}"
        session.out.note(f"note: the files are in {folder}, which the pin does not name; to verify it, add {option}")
    present_pins(session, schema, pins, output)


def present_pins(session: Session, schema: str, pins: PinFile, path: str | None) -> None:
    """Print the pins of a file that was written, or would be."""
    from registry.pins.citation import Citation

    value = {"file": path, "digest": pins.digest, "pins": [pin_values(pin) for pin in pins.values()]}

    def human(it: dict[str, Any]) -> Iterator[str]:
        if path is not None:
            yield f"wrote {path} ({counted(len(pins), 'pin')}, {it['digest'][:19]})"
        for pin in pins.values():
            files = f"{counted(len(pin.entry.files), 'file')}, {size(count_bytes([pin]))}"
            yield f"{pin.name}: {Citation.of(pin.entry)} ({files})"

    session.out.present(schema, value, human)


def _note_paths(session: Session, locations: Sequence[str], output: str) -> None:
    """Note each location that is probably a URL without its scheme: it means a folder next to the pin file."""
    for location in locations:
        if "://" not in location and not location.startswith("/") and not (Path(output).parent / location).exists():
            session.out.note(
                f"note: the location {location} means a folder next to {Path(output).name}, which does not exist. "
                f"For an address, write https://{location}"
            )


def _named(text: str) -> str | Mapping[str, str]:
    """Parse ``NAME=SPLIT``, or a split expression, which has no ``=`` outside of brackets."""
    name, sign, split = text.partition("=")
    if not sign or "(" in name or "[" in name:
        return text
    if not name.strip() or not split.strip():
        raise UsageError(f"{text!r} lacks a name or a split", hint="Write NAME=SPLIT, e.g. train='train[:80%]'.")
    return {name.strip(): split}


def _refuse_other(output: str, dataset: Dataset, plans: Sequence[Plan], splits: Sequence[str]) -> None:
    """Refuse an existing file with other pins, before hashing. A file with the same pins is accepted.

    The hint repeats ``splits``, the arguments with the names of the slices.
    """
    if not Path(output).exists():
        return
    try:
        there = {(pin.reference, pin.split) for pin in open_pins(output).values()}
    except RegistryError:
        there = set()
    if there != {(dataset.reference, plan.expression) for plan in plans}:
        add = shlex.join(["registry", "pin", "add", str(dataset.reference), *splits])
        raise AlreadyStoredError(
            f"{output} already exists and contains other pins" if there else f"{output} already exists",
            hint=f"Name another file with -o, replace it with --force, or add to it: {add} -o {shlex.quote(output)}",
            details={"path": output},
        )


def _present_plans(session: Session, schema: str, dataset: Dataset, plans: Sequence[Plan]) -> None:
    pins = [
        {
            **version_values(dataset.reference),
            "split": plan.expression,
            "num_examples": plan.num_examples,
            "ranges": range_values(plan.ranges),
            "num_files": len(plan),
        }
        for plan in plans
    ]

    def human(_: object) -> Iterator[str]:
        for plan in plans:
            yield (
                f"would pin {dataset.reference} {plan.expression}: {counted(plan.num_examples, 'record')}, "
                f"{print_ranges(plan.ranges)}, in {counted(len(plan), 'file')}"
            )

    session.out.present(schema, {"dry_run": True, "pins": pins}, human)


def _describe_moves(moves: Sequence[PinMove]) -> Iterator[Block]:
    for move in moves:
        if not move.is_move:
            yield f"{move.pin.name}: {move.pin.reference} does not change"
            continue
        yield f"{move.pin.name}: {move.pin.reference} -> {move.dataset.reference}"
        if move.diff is not None:
            yield from describe_diff(move.diff)
        elif move.unseen:
            yield Note(f"the changes cannot be shown: {move.unseen}")


def _move_values(move: PinMove) -> dict[str, Any]:
    return {
        "name": move.pin.name,
        "before": move.pin.reference,
        "after": move.dataset.reference,
        "changes": move.is_move,
        "diff": None if move.diff is None else move.diff.to_json(),
    }
