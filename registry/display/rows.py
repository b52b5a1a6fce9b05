"""Rows of examples as HTML of a notebook: a table with small pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from registry.display.pictures import shrink
from registry.display.values import converter_of, text_of, time_types
from registry.errors import RegistryError
from registry.features import FeaturesDict
from registry.images import encode_png
from registry.markup import MOST_COLUMNS, Markup, escape, picture, table
from registry.model import DatasetMetadata

MOST_ROWS: Final = 5
_MOST_PICTURE_BYTES: Final = 30_000
_SIDE: Final = 48


def rows_html(
    features: FeaturesDict,
    metadata: DatasetMetadata,
    read: Callable[[Sequence[str]], Sequence[dict[str, Any]]],
    total: int,
) -> Markup:
    """The rows that ``read`` returns of some features, files as bytes, as a table; or why they cannot be read."""
    names = metadata.in_source_order(list(features))
    first = names[:MOST_COLUMNS]
    try:
        rows = read(first)
    except (RegistryError, OSError) as error:
        return escape(f"The records cannot be read here: {error}", 500)
    times = time_types(features, metadata)
    convert = converter_of(features, times, nullable=metadata.nullable_paths, objects=True) or (lambda row: row)
    room = _MOST_PICTURE_BYTES

    def cell(row: dict[str, Any], named: dict[str, Any], name: str) -> Any:
        nonlocal room
        leaf: Any = features[name]
        pixels = shrink(leaf, row[name], _SIDE, grow=True) if room > 0 else None
        if pixels is None:
            return text_of(named[name], most=max(12, 1100 // len(first)))
        png = encode_png(pixels)
        room -= len(png) * 4 // 3
        return picture(png, named[name]) if room > 0 else named[name]

    pairs = zip(rows, map(convert, rows), strict=True)
    return table(names, ([cell(row, named, name) for name in first] for row, named in pairs), total)
