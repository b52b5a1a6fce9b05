"""``registry head``: shows the first rows of a version as people read them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.commands import Session, session_command, version_values
from registry.cli.completion import complete_split
from registry.cli.options import columns_option, reference_argument, spell_name, where_option
from registry.cli.output import Block, Drawing, Table, can_print, terminal_columns
from registry.cli.read import example_converter, filtered, jsonable
from registry.splits.plan import rule_values

if TYPE_CHECKING:
    from registry.api import Catalog, Dataset
    from registry.features import FeaturesDict
    from registry.reading import Reader

_MOST_COLUMNS: Final = 50
_SIDE: Final = 96
_TEXT_SIDE: Final = 24
"""Size in pixels of a picture in a terminal that draws pixels, and in one that draws characters."""


@session_command("head", decodes=True, at=True, locked=True)
@reference_argument
@click.argument("split", metavar="[SPLIT]", required=False, shell_complete=complete_split)
@click.option("-n", "--limit", "number", type=click.IntRange(0, 1000), default=5, show_default=True, help="Rows.")
@columns_option
@where_option
def head(
    session: Session,
    reference: str,
    split: str | None,
    *,
    number: int,
    columns: list[str] | None,
    where: str | None,
) -> None:
    """Show the first rows of a split, with class names, dates and times, and shortened texts.

    SPLIT may be a slice. By default, the rows are those of train, or else of the first split. Images and sounds are
    described from their headers; on a terminal, the first column of images is also drawn. To print whole values, use
    registry read.

    Examples:
        registry head digits
        registry head digits 'train[80%:]' -n 10 --columns label
        registry head digits --where "label in ('3', '5')"
        registry head digits --format json
    """
    from registry.display import converter_of, text_of, time_types

    with session.connect_unless_pinned() as catalog:
        dataset, reader = open_rows(session, catalog, reference, split)
        reader = filtered(session, reader, where)
        reader = reader if columns is None else reader.select(columns)
        metadata, total = dataset.metadata, len(reader)
        names = metadata.in_source_order(list(reader.features))
        others, names = names[_MOST_COLUMNS:], names[:_MOST_COLUMNS]
        reader = reader.select(names) if others and not session.out.as_json else reader
        rows = list(islice(reader.files_as_bytes(), number))
    features, program = reader.features, example_converter(metadata, reader, names=True, files=True)
    people = converter_of(features, time_types(features, metadata), nullable=metadata.nullable_paths, objects=True)
    examples = [jsonable(row if program is None else program(row)) for row in rows] if session.out.as_json else []
    value = row_values(dataset, reader, where, examples)

    def human(_: Any) -> Iterator[Block]:
        condition = "" if where is None else f" where {where}"
        yield f"{dataset.reference} {reader.plan.expression}{condition}: {len(rows):,} of {total:,} rows"
        yield ""
        texts = [
            {name: text_of(row[name]) for name in names} for row in (rows if people is None else map(people, rows))
        ]
        yield Table(texts, {name: name for name in names}, fits=True)
        if others:
            yield f"and {len(others):,} more columns: --columns {shlex.quote(spell_name(others[0]))}"
        if sys.stdout.isatty():
            yield from _pictures(features, rows)

    session.out.present("head", value, human)


def open_rows(session: Session, catalog: Catalog | None, reference: str, split: str | None) -> tuple[Dataset, Reader]:
    """A version and a reader of a slice of it; without one, of train, or of the first split."""
    dataset = session.look_up(catalog, reference)
    if split is not None:
        return dataset, dataset.read(split)
    readers = dataset.read_slices()
    name = "train" if "train" in readers else next(iter(readers), "train")
    return dataset, readers[name] if readers else dataset.read(name)


def row_values(dataset: Dataset, reader: Reader, where: str | None, examples: Any) -> dict[str, Any]:
    """The result for programs: ``examples`` are rows as JSON."""
    return {
        **version_values(dataset.reference),
        "split": reader.plan.expression,
        **rule_values(reader.plan),
        **({} if where is None else {"where": where}),
        "num_examples": len(reader),
        "examples": examples,
    }


def _pictures(features: FeaturesDict, rows: list[dict[str, Any]]) -> Iterator[Block]:
    """The images of the first column that has some, as this terminal draws them."""
    from registry.display import Graphics, draw, shrink, terminal_graphics
    from registry.features import Image

    name = next((name for name, feature in features.items() if isinstance(feature, Image)), None)
    if name is None:
        return
    graphics = terminal_graphics(os.environ)
    is_text = graphics in (Graphics.COLORS, Graphics.SHADES)
    shades = " ░▒▓█" if can_print("░▒▓█") else " .:*#"
    if graphics is Graphics.COLORS and not can_print("▀"):
        graphics = Graphics.SHADES
    side = _SIDE if not is_text else _TEXT_SIDE if graphics is Graphics.COLORS else _TEXT_SIDE // 2
    leaf: Any = features[name]
    pictures = [shrink(leaf, row[name], side, grow=not is_text) for row in rows]
    sound = [picture for picture in pictures if picture is not None]
    wide = max((picture.shape[1] for picture in sound), default=1)
    columns = wide * (1 + (graphics is Graphics.SHADES)) + 4 if is_text else wide // 8 + 1
    each = max(1, (terminal_columns() + 4) // columns)
    for start in range(0, len(sound), each):
        yield ""
        yield Drawing(draw(sound[start : start + each], graphics, shades=shades))
    if sound:
        yield f"{name}, from the first row on"
