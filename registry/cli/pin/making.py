"""``registry pin create``, ``add`` and ``update``: pin files are made, and moved to other versions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, examples, session_command
from registry.cli.diff import diff_json, print_diff
from registry.cli.options import (
    DEFAULT_FILE,
    file_argument,
    names_argument,
    order_options,
    reference_argument,
    rounding_option,
    show_option,
    slicing_option,
    splits_argument,
)
from registry.cli.output import Output, size
from registry.cli.pin.showing import count_bytes, open_pins, pin_json
from registry.cli.progress import byte_progress, record_progress
from registry.cli.read import make_read_config
from registry.cli.resolve import note_overlaps
from registry.errors import AlreadyStoredError, RegistryError, UsageError
from registry.splits import counted, print_ranges

if TYPE_CHECKING:  # numpy and pydantic are loaded when something is pinned
    from registry.api import Dataset
    from registry.api.pinning import PinMove
    from registry.pins import PinFile
    from registry.splits import Plan


def _location_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--location",
        "locations",
        multiple=True,
        metavar="URL",
        help="A folder in which others find the files, e.g. https://... or s3://...; may be repeated.",
    )(function)


def _output_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "-o",
        "--output",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        default=DEFAULT_FILE,
        show_default=True,
        help="The pin file.",
    )(function)


def _pin_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--dry-run", is_flag=True, help="Say what would be pinned; no file is read or written."),
        order_options(seed="[needed for a shuffle]"),
        rounding_option,
        slicing_option,
        _location_option,
    ):
        function = option(function)
    return function


@session_command(
    "create",
    at=True,
    locked=True,
    epilog=examples(
        "registry pin create 'mnist:3.*' 'train[:80%]' test -o dataset.lock.yaml",
        "registry pin create digits train='train[:80%]' validation='train[80%:]'",
        "registry pin create digits train --shuffle-seed 42 --location https://example.org/digits/1.0.0",
    ),
)
@reference_argument
@splits_argument
@_output_option
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@_pin_options
def create(
    session: Session, reference: str, splits: tuple[str, ...], *, output: str, force: bool, **options: Any
) -> None:
    """Pin slices of a version in a new file.

    SPLIT may be given a name: NAME=SPLIT. Every file that holds records of a slice is hashed and compared
    with the catalog, and every record is digested. The same version and slices give the same file, byte for byte.
    """
    _require_folder(output)
    _pin(session, reference, splits, output, None, force=force, verb="create", **options)


@session_command(
    "add",
    at=True,
    locked=True,
    epilog=examples(
        "registry pin add digits 'train[80%:]' -o dataset.lock.yaml", "registry pin add mnist@paper eval=test"
    ),
)
@reference_argument
@splits_argument
@_output_option
@_pin_options
def add(session: Session, reference: str, splits: tuple[str, ...], *, output: str, **options: Any) -> None:
    """Pin more slices in a file, of the same or of another dataset. Pins that are there stay as they are."""
    _pin(session, reference, splits, output, open_pins(output), force=True, verb="add", **options)


@session_command(
    "update",
    epilog=examples(
        "registry pin update dataset.lock.yaml --dry-run",
        "registry pin update dataset.lock.yaml train --to '2.*' --yes",
        "registry pin update dataset.lock.yaml --location https://example.org/digits/1.0.0",
    ),
)
@file_argument
@names_argument
@click.option(
    "--to", metavar="REQUEST", help="A version (2.0.0, 2.*, @paper) or a reference, instead of the pin's own."
)
@_location_option
@show_option
@click.option("--dry-run", is_flag=True, help="Show what changes, and write nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
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
    """Move pins to the version that their request gives today, or to REQUEST; all pins, or those of NAME.

    What changes is shown first, down to the record. Then it is written, once you confirm: on a terminal you are asked,
    elsewhere it takes --yes. With --location alone, nothing moves, and the locations are added.
    """
    from registry.pins.create import check_locations

    pins = open_pins(file)
    chosen = pins.choose(names)
    check_locations(locations)
    has_secrets = pins.without_secrets() is not pins
    if has_secrets:
        taken = "would be taken" if dry_run else "are taken"
        session.out.note(f"note: secrets in URLs of {file} {taken} out; whoever had the file knows them: change them")
    with session.connect() as catalog:
        moves: tuple[PinMove, ...] = ()
        if to is not None or not locations:
            with record_progress(session.out, "comparing", None) as advance:
                moves = catalog.pins.preview_update(pins, names=names, to=to, show=show, advance=advance)
        going = [move for move in moves if move.is_move]
        if not session.out.as_json:
            _print_moves(session.out, moves)
        is_change = bool(going or (locations and not moves) or has_secrets)
        if is_change and not dry_run and _agreed(yes, going):
            total = sum(2 * count_bytes([move.pin]) for move in going)
            with byte_progress(session.out, "hashing", total) as advance_bytes:
                updated = catalog.pins.update(pins, moves, names=names, locations=locations, advance=advance_bytes)
            updated.save(file, overwrite=True, expected=pins.digest)
            written = updated != pins
        else:
            updated, written = pins, False
    data = {
        "file": file,
        "written": written,
        "dry_run": dry_run,
        "digest": {"before": pins.digest, "after": updated.digest},
        "pins": [_move_json(move) for move in moves],
    }

    def human() -> None:
        if written:
            session.out.line(f"wrote {file} ({updated.digest[:19]})")
        elif not is_change or (not going and not dry_run):
            session.out.line("nothing changes")
        elif dry_run and not going:
            told = ", ".join(pin.name for pin in chosen)
            session.out.line(f"would add {counted(len(locations), 'location')} to {told}")

    session.out.result("pin.update", data, human)


def _pin(
    session: Session,
    reference: str,
    splits: Sequence[str],
    output: str,
    into: PinFile | None,
    *,
    force: bool,
    verb: str,
    locations: tuple[str, ...],
    slicing: str | None,
    rounding: str | None,
    cycle_length: int | None,
    block_length: int | None,
    shuffle: str | None,
    shuffle_seed: int | None,
    dry_run: bool,
) -> None:
    from registry.order import check_config
    from registry.pins.create import check_locations, check_names, check_order

    wanted = [_named(text) for text in splits]
    check_names(name for one in wanted if isinstance(one, Mapping) for name in one)
    read_config = make_read_config(cycle_length, block_length, shuffle, shuffle_seed)
    check_locations(locations)
    check_order(check_config(read_config))
    with session.connect() as catalog:
        dataset = session.look_up(catalog, reference)
        plans = _plans(session, dataset, wanted, slicing=slicing, rounding=rounding)
        if dry_run:
            _print_plans(session, dataset, plans, verb=verb)
            return
        if into is None and not force:
            _refuse_other(output, dataset, plans)
        total = _num_bytes(dataset, plans)
        with byte_progress(session.out, "hashing", total) as advance:
            pins = dataset.pin(
                *wanted,
                slicing=slicing,
                rounding=rounding,
                read_config=read_config,
                locations=locations,
                into=into,
                advance=advance,
            )
    if into is None:
        pins.save(output, overwrite=force)
    else:
        pins = pins.add_to(output, into)
    if dataset.facts.is_elsewhere:
        folder = dataset.local_folder or dataset.folder
        session.out.note(f"note: the files lie in {folder}, which the pin does not name: verify with --data {folder}")
    print_pins(session.out, pins, output, schema=f"pin.{verb}")


def print_pins(out: Output, pins: PinFile, path: str | None, *, schema: str) -> None:
    """Say what is pinned in a file that was written, or would be."""
    from registry.pins.citation import Citation

    data = {"file": path, "digest": pins.digest, "pins": [pin_json(pin) for pin in pins.values()]}

    def human() -> None:
        if path is not None:
            out.line(f"wrote {path} ({counted(len(pins), 'pin')}, {pins.digest[:19]})")
        for pin in pins.values():
            out.line(
                f"{pin.name}: {Citation.of(pin.entry)} "
                f"({counted(len(pin.entry.files), 'file')}, {size(count_bytes([pin]))})"
            )

    out.result(schema, data, human)


def _named(text: str) -> str | Mapping[str, str]:
    """``NAME=SPLIT``, or a split expression, which holds no ``=`` outside of brackets."""
    name, sign, split = text.partition("=")
    if not sign or "(" in name or "[" in name:
        return text
    if not name.strip() or not split.strip():
        raise UsageError(f"{text!r} names no pin and split", hint="Write NAME=SPLIT, e.g. train='train[:80%]'.")
    return {name.strip(): split}


def _require_folder(output: str) -> None:
    """Refuse a file that cannot be written before an hour is spent on hashing."""
    path = Path(output)
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent} for {path.name}", hint="Make it, or name another file.")


def _plans(
    session: Session,
    dataset: Dataset,
    wanted: Sequence[str | Mapping[str, str]],
    *,
    slicing: str | None,
    rounding: str | None,
) -> list[Plan]:
    texts = [text for one in wanted for text in ([one] if isinstance(one, str) else one.values())]
    plans = [dataset.resolve(text, slicing=slicing, rounding=rounding) for text in texts]
    for plan in plans:
        note_overlaps(session.out, plan)
    return plans


def _num_bytes(dataset: Dataset, plans: Sequence[Plan]) -> int:
    """How many bytes are hashed: of whole files, and of records."""
    total = 0
    for plan in plans:
        touched = {file.filename for file in plan}
        for split in plan.splits:
            found = dataset.splits[split.name]
            sizes = [shard.num_bytes for shard in dataset.shards(split.name) if found.filename(shard.index) in touched]
            taken = sum(one.num_examples for one in plan.ranges if one.split == split.name)
            total += sum(sizes) + found.num_bytes * taken // max(found.num_examples, 1)
    return total


def _refuse_other(output: str, dataset: Dataset, plans: Sequence[Plan]) -> None:
    """Refuse another file instead of the new one before an hour is spent; the same pins are the same later."""
    if not Path(output).exists():
        return
    try:
        there = {(pin.reference, pin.split) for pin in open_pins(output).values()}
    except RegistryError:
        there = set()
    if there != {(dataset.reference, plan.expression) for plan in plans}:
        raise AlreadyStoredError(
            f"{output} already exists and holds other pins" if there else f"{output} already exists",
            hint="Name another file with -o, add to it with registry pin add, or replace it with --force.",
            details={"path": output},
        )


def _print_plans(session: Session, dataset: Dataset, plans: Sequence[Plan], *, verb: str) -> None:
    pins = [
        {
            "dataset": dataset.reference.dataset,
            "version": str(dataset.version),
            "split": plan.expression,
            "num_examples": plan.num_examples,
            "ranges": [{"split": one.split, "start": one.start, "stop": one.stop} for one in plan.ranges],
            "num_files": len(plan),
        }
        for plan in plans
    ]

    def human() -> None:
        for plan in plans:
            session.out.line(
                f"would pin {dataset.reference} {plan.expression}: {counted(plan.num_examples, 'record')}, "
                f"{print_ranges(plan.ranges)}, in {counted(len(plan), 'file')}"
            )

    session.out.result(f"pin.{verb}", {"dry_run": True, "pins": pins}, human)


def _print_moves(out: Output, moves: Sequence[PinMove]) -> None:
    for move in moves:
        if not move.is_move:
            out.line(f"{move.pin.name}: {move.pin.reference} stays")
            continue
        out.line(f"{move.pin.name}: {move.pin.reference} -> {move.dataset.reference}")
        if move.diff is not None:
            print_diff(out, move.diff)
        elif move.unseen:
            out.note(f"what changes cannot be shown: {move.unseen}")


def _move_json(move: PinMove) -> dict[str, Any]:
    return {
        "name": move.pin.name,
        "before": str(move.pin.reference),
        "after": str(move.dataset.reference),
        "changes": move.is_move,
        "diff": None if move.diff is None else diff_json(move.diff),
    }


def _agreed(yes: bool, moves: Sequence[PinMove]) -> bool:
    """Whether the pins are to be moved: said, asked for on a terminal, or nothing moves."""
    if yes or not moves:
        return True
    if not sys.stdin.isatty():
        raise UsageError(
            f"{counted(len(moves), 'pin')} would read other records or files: say so",
            hint="Add --yes to write it, or --dry-run to see it.",
        )
    return click.confirm("Write it?", err=True)
