"""``registry read``: prints examples as JSON lines, in the order of a read config."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import islice
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import TYPE_CHECKING, Any, TypeVar

from registry.cli.commands import Session, note_overlaps, session_command, version_values
from registry.cli.options import (
    RecordOptions,
    Slicing,
    order_options,
    record_options,
    reference_argument,
    slicing_options,
    split_argument,
)
from registry.cli.output import Block, JsonText
from registry.cli.progress import progress_bar, show_progress
from registry.envelope import Records
from registry.splits.plan import rule_values

if TYPE_CHECKING:
    from registry.model import DatasetMetadata
    from registry.order import ReadConfig
    from registry.reading import Reader


_T = TypeVar("_T")


@session_command("read", decodes=True, at=True, locked=True)
@reference_argument
@split_argument
@slicing_options
@record_options
@order_options()
def read(
    session: Session,
    reference: str,
    split: str,
    *,
    slicing: Slicing,
    records: RecordOptions,
    order: ReadConfig | None,
) -> None:
    """Print the examples of a split expression, one JSON object per line.

    Arrays become nested lists, text becomes strings, bytes that are not UTF-8 become {"base64": ...}, and NaN and
    infinities become the strings "nan", "inf" and "-inf". A missing value is null. Images and stored sounds are
    described, such as "32x32 px RGB png, 2.1 KiB", unless you add --pixels. With --format json, the examples are in one
    JSON value, under data.examples. The order is that of TFDS, which interleaves 16 files, 16 records at a time. With
    --cycle-length 1, it is the stored order.

    Examples:
        registry read digits 'train[:10%]' --limit 3
        registry read digits train | jq .label | sort | uniq -c
        registry read digits train --columns label --names
        registry read digits train --where "label in ('3', '5')"
        registry read digits train --ids --shuffle-seed 42 --limit 20
        registry read digits train --shuffle global --shuffle-seed 7 > shuffled.jsonl
    """
    with session.dataset(reference) as dataset:
        reader = dataset.read(split, order, **slicing)
        note_overlaps(session.out, reader.plan)
        _note_seed(session, reader, order)
        value = {
            **version_values(dataset.reference),
            "split": reader.plan.expression,
            **rule_values(reader.plan),
        }
        present_records(session, "read", value, reader, records, metadata=dataset.metadata)


def filtered(session: Session, reader: Reader, where: str | None) -> Reader:
    """A reader of the examples that match ``where``. The matches are computed here, with a progress bar."""
    if where is not None:
        with show_progress(session.out) as progress:
            reader = reader.where(where, progress=progress)
            len(reader)
    return reader


def example_converter(
    metadata: DatasetMetadata | None, reader: Reader, *, names: bool, files: bool
) -> Callable[[Any], Any] | None:
    """A function that replaces numbers in an example with names, and ``files`` with descriptions."""
    from registry.display import converter_of, time_types

    times = time_types(reader.features, metadata)
    nullable = metadata.nullable_paths if names and metadata is not None else frozenset()
    return converter_of(reader.features, times, nullable=nullable, names=names, files=files, iso=True)


def present_records(
    session: Session,
    schema: str,
    value: dict[str, Any],
    reader: Reader,
    options: RecordOptions,
    *,
    metadata: DatasetMetadata | None = None,
) -> None:
    """Print examples, or their ids, one per line as they are read; in JSON, they are a list in ``value``.

    Args:
        session: prints them.
        schema: the schema of the JSON output.
        value: the other fields of the JSON output.
        reader: the examples.
        options: see ``record_options``.
        metadata: of the version, which names the types of dates and times; a pin records none.
    """
    limit, columns, where, names, pixels, ids = options
    reader = filtered(session, reader, where)
    value = value if where is None else {**value, "where": where}
    reader = reader if columns is None else reader.select(columns)
    convert = example_converter(metadata, reader, names=names, files=not pixels)
    reader = reader if pixels else reader.files_as_bytes()
    total = len(reader) if limit is None else min(limit, len(reader))
    with progress_bar(session.out, "reading", total, beside_stdout=True) as advance:
        items: Iterable[Any] = reader.ids() if ids else reader if convert is None else map(convert, reader)
        result = _counted(islice(items, limit), advance)

        def human(_: object) -> Iterator[Block]:
            return map(str if ids else partial(JsonText.line, writer=line_writer), result)

        records = Records(result if ids else map(jsonable, result))
        session.out.present(schema, {**value, "ids" if ids else "examples": records}, human)


def _note_seed(session: Session, reader: Reader, order: ReadConfig | None) -> None:
    from registry.reading.state import order_seed

    drawn, asked = order_seed(reader.read_config), None if order is None else order_seed(order)
    if asked is None and drawn is not None:
        session.out.note(f"note: shuffled with the seed {drawn}; --shuffle-seed {drawn} gives this order again")


def _counted(items: Iterable[_T], advance: Callable[[int], None] | None) -> Iterator[_T]:
    """Yield ``items``, and advance the progress bar every now and then."""
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
    """``value`` of a decoded example as JSON; NaN and infinities become strings."""
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


@cache
def line_writer(*, ensure_ascii: bool) -> Callable[[Any], str]:
    """A function that returns ``json.dumps(jsonable(value), ensure_ascii=...)`` for a value of a decoded example.

    It writes JSON directly for each type, without intermediate lists of Python numbers, which for an image take longer
    than the JSON itself. Rare types go through ``jsonable``.
    """
    import numpy as np

    encode = json.JSONEncoder(ensure_ascii=ensure_ascii).encode
    quote: Callable[[str], str] = encode_basestring_ascii if ensure_ascii else encode_basestring
    names: dict[str, str] = {}

    def write_dict(value: dict[str, Any]) -> str:
        return f"{{{', '.join([(names.get(key) or name(key)) + write(item) for key, item in value.items()])}}}"

    def name(key: str) -> str:
        names[key] = result = f"{quote(key)}: "
        return result

    def write_bytes(value: bytes) -> str:
        try:
            return quote(value.decode("utf-8"))
        except UnicodeDecodeError:
            return f'{{"base64": "{base64.b64encode(value).decode("ascii")}"}}'

    def write_float(value: float) -> str:
        return float.__repr__(value) if math.isfinite(value) else f'"{value}"'

    def write_list(value: list[Any]) -> str:
        return f"[{', '.join(map(write, value))}]"

    def write_array(value: Any) -> str:
        kind = value.dtype.kind
        if kind == "O":
            return write(value.tolist())
        if kind in "iu" or (kind == "f" and np.isfinite(value).all()):
            return _template(value.shape) % tuple(value.ravel().tolist())
        return encode(jsonable(value))

    def write(value: Any) -> str:
        result = by_type.get(type(value))
        return encode(jsonable(value)) if result is None else result(value)

    by_type: dict[type, Callable[[Any], str]] = {
        dict: write_dict,
        list: write_list,
        str: quote,
        bytes: write_bytes,
        int: int.__repr__,
        float: write_float,
        bool: lambda value: "true" if value else "false",
        type(None): lambda _: "null",
        np.ndarray: write_array,
        np.bool_: lambda value: "true" if value else "false",
        **{np.dtype(code).type: lambda value: write_float(value.item()) for code in "efd"},
        **{np.dtype(code).type: lambda value: int.__repr__(value.item()) for code in "bhilBHIL"},
    }
    return write


def _template(shape: tuple[int, ...]) -> str:
    """Nested JSON lists with a place for each number; ``%r`` of a number is its JSON.

    >>> _template((2, 1)) % (1, 2.5)
    '[[1], [2.5]]'
    """
    result = "%r"
    for length in reversed(shape):
        result = f"[{', '.join([result] * length)}]"
    return result
