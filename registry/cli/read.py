"""``registry read``: examples as JSON lines."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from registry.cli.arguments import reference_argument, rounding_option, slicing_option, split_argument
from registry.cli.options import Session, examples, session_command
from registry.cli.plans import note_overlaps, rule_json


@session_command(
    "read",
    at=True,
    locked=True,
    epilog=examples(
        "registry read digits 'train[:10%]' --take 3",
        "registry read digits train | jq .label | sort | uniq -c",
    ),
)
@reference_argument
@split_argument
@slicing_option
@rounding_option
@click.option("--take", type=click.IntRange(min=0), metavar="N", help="Stop after N examples.  [default: all]")
def command(
    session: Session, reference: str, split: str, slicing: str | None, rounding: str | None, take: int | None
) -> None:
    """Print the examples of a split expression, one JSON object a line.

    Arrays become nested lists, text becomes strings; bytes that are no UTF-8 become {"base64": ...}. With --format json
    the examples stand in one JSON value, under data.examples.
    """
    with session.connect() as catalog:
        dataset = session.look_up(catalog, reference)
        reader = dataset.read(split, slicing=slicing, rounding=rounding)
        note_overlaps(session.out, reader.plan)
        selected = (jsonable(example) for example in islice(reader, take))
        if session.out.as_json:
            data = {
                "dataset": dataset.reference.dataset,
                "version": str(dataset.version),
                "split": reader.plan.expression,
                **rule_json(reader.plan),
                "examples": list(selected),
            }
            session.out.result("read", data, lambda: None)
        else:
            for example in selected:
                session.out.json_line(example)


def jsonable(value: Any) -> Any:
    """``value`` of a decoded example as JSON holds it; floats that JSON has no word for become strings."""
    import base64
    import math

    import numpy as np

    from registry.features import Ragged

    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, Ragged):
        return jsonable(value.to_list())
    if isinstance(value, (np.ndarray, np.generic)):
        return jsonable(value.tolist())
    if isinstance(value, list):
        return [jsonable(item) for item in value]
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
