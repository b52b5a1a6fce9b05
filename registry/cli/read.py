"""``registry read``: examples as JSON lines, in the order of a read config."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from registry.cli.commands import Session, examples, session_command
from registry.cli.options import order_options, reference_argument, rounding_option, slicing_option, split_argument
from registry.cli.progress import record_progress
from registry.cli.resolve import note_overlaps, rule_json

if TYPE_CHECKING:
    from registry.order import ReadConfig
    from registry.reading import Reader


_T = TypeVar("_T")


@session_command(
    "read",
    at=True,
    locked=True,
    epilog=examples(
        "registry read digits 'train[:10%]' --take 3",
        "registry read digits train | jq .label | sort | uniq -c",
        "registry read digits train --ids --shuffle-seed 42 --take 20",
        "registry read digits train --shuffle global --shuffle-seed 7 > shuffled.jsonl",
    ),
)
@reference_argument
@split_argument
@slicing_option
@rounding_option
@click.option("--take", type=click.IntRange(min=0), metavar="N", help="Stop after N examples.  [default: all]")
@click.option("--ids", is_flag=True, help="Print the TFDS id of each example instead, without opening a file.")
@order_options()
def read(
    session: Session,
    reference: str,
    split: str,
    *,
    slicing: str | None,
    rounding: str | None,
    take: int | None,
    ids: bool,
    cycle_length: int | None,
    block_length: int | None,
    shuffle: str | None,
    shuffle_seed: int | None,
) -> None:
    """Print the examples of a split expression, one JSON object a line.

    Arrays become nested lists, text becomes strings; bytes that are no UTF-8 become {"base64": ...}, NaN and infinities
    the strings "nan", "inf" and "-inf". A missing value is null. With --format json the examples stand in one JSON
    value, under data.examples. They come in the order of TFDS: 16 files in turns, 16
    records of each; --cycle-length 1 reads them as they are stored.
    """
    with session.connect_unless_pinned() as catalog:
        dataset = session.look_up(catalog, reference)
        config = make_read_config(cycle_length, block_length, shuffle, shuffle_seed)
        reader = dataset.read(split, config, slicing=slicing, rounding=rounding)
        note_overlaps(session.out, reader.plan)
        _note_seed(session, reader, shuffle_seed)
        total = len(reader) if take is None else min(take, len(reader))
        with record_progress(session.out, "reading", total, beside_stdout=True) as advance:
            selected: Iterable[Any] = reader.ids() if ids else map(jsonable, reader)
            selected = _counted(islice(selected, take), advance)
            if session.out.as_json:
                data = {
                    "dataset": dataset.reference.dataset,
                    "version": str(dataset.version),
                    "split": reader.plan.expression,
                    **rule_json(reader.plan),
                    "ids" if ids else "examples": list(selected),
                }
                session.out.result("read", data, lambda: None, has_records=True)
            else:
                for item in selected:
                    session.out.line(item) if ids else session.out.json_line(item)


def _note_seed(session: Session, reader: Reader, asked: int | None) -> None:
    drawn = reader.config.seed if reader.config.shuffle == "global" else reader.config.shuffle_seed
    if asked is None and drawn is not None:
        session.out.note(f"note: shuffled with the seed {drawn}; --shuffle-seed {drawn} gives this order again")


def _counted(items: Iterable[_T], advance: Callable[[int], None] | None) -> Iterator[_T]:
    """``items``, with a word to the progress bar now and then."""
    count = 0
    for item in items:
        yield item
        count += 1
        if advance is not None and count == 100:
            advance(count)
            count = 0
    if advance is not None:
        advance(count)


def jsonable(value: Any) -> Any:
    """``value`` of a decoded example as JSON holds it; floats that JSON has no word for become strings."""
    import numpy as np

    from registry.features import NestedExamples, Ragged

    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, Ragged):
        return jsonable(value.to_list())
    if isinstance(value, (np.ndarray, np.generic)):
        return jsonable(value.tolist())
    if isinstance(value, (list, NestedExamples)):
        return [jsonable(item) for item in value]
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def make_read_config(
    cycle_length: int | None, block_length: int | None, shuffle: str | None, seed: int | None
) -> ReadConfig | None:
    """The config that the options ask for; None where they ask for nothing, for the version has a default."""
    from registry.order import ReadConfig

    options: dict[str, Any] = {}
    if cycle_length is not None:
        options["interleave_cycle_length"] = cycle_length
    if block_length is not None:
        options["interleave_block_length"] = block_length
    if shuffle == "global":
        options |= {"shuffle": "global", "seed": seed}
    elif shuffle == "files" or seed is not None:
        options |= {"shuffle_files": True, "shuffle_seed": seed}
    return ReadConfig(**options) if options else None
