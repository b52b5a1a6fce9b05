"""Shows values of examples to people: as text, as pictures on a terminal, and as HTML of a notebook.

    values    names of classes, dates and times, and what files are: from their headers, nothing is decoded
    rows      examples as a table in HTML
    pictures  small pictures of stored images, and how terminals draw them

Commands, comparisons of records and the ``_repr_html_`` of readers use it, so a value looks the same everywhere.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.display.pictures import (
        Graphics,
        MarkedImages,
        Pixels,
        as_rgb,
        draw,
        mark_differences,
        shrink,
        terminal_graphics,
    )
    from registry.display.rows import MOST_ROWS, rows_html
    from registry.display.values import (
        Convert,
        Times,
        TimeType,
        converter_of,
        describe_file,
        file_features,
        media_kind,
        moment_text,
        named_types,
        parse_moment_text,
        parse_time_type,
        text_of,
        time_types,
    )

__all__ = [
    "MOST_ROWS", "Convert", "Graphics", "MarkedImages", "Pixels", "TimeType", "Times", "as_rgb", "converter_of",
    "describe_file", "draw", "file_features", "mark_differences", "media_kind", "moment_text", "named_types",
    "parse_moment_text", "parse_time_type", "rows_html", "shrink", "terminal_graphics", "text_of", "time_types",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "pictures": "Graphics MarkedImages Pixels as_rgb draw mark_differences shrink terminal_graphics",
        "rows": "MOST_ROWS rows_html",
        "values": "Convert Times TimeType converter_of describe_file file_features media_kind moment_text "
        "named_types parse_moment_text parse_time_type text_of time_types",
    },
)
