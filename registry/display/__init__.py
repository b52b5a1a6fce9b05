"""Shows values of examples to people: as text, as pictures on a terminal, and as HTML of a notebook.

    values    names of classes, dates and times, and what files are: from their headers, nothing is decoded
    rows      examples as a table in HTML
    pictures  small pictures of stored images, and how terminals draw them

Commands, comparisons of records and the ``_repr_html_`` of readers use it, so a value looks the same everywhere.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.display.pictures import Graphics as Graphics
    from registry.display.pictures import MarkedImages as MarkedImages
    from registry.display.pictures import Pixels as Pixels
    from registry.display.pictures import as_rgb as as_rgb
    from registry.display.pictures import draw as draw
    from registry.display.pictures import mark_differences as mark_differences
    from registry.display.pictures import shrink as shrink
    from registry.display.pictures import terminal_graphics as terminal_graphics
    from registry.display.rows import MOST_ROWS as MOST_ROWS
    from registry.display.rows import rows_html as rows_html
    from registry.display.values import Convert as Convert
    from registry.display.values import Times as Times
    from registry.display.values import TimeType as TimeType
    from registry.display.values import converter_of as converter_of
    from registry.display.values import describe_file as describe_file
    from registry.display.values import file_features as file_features
    from registry.display.values import media_kind as media_kind
    from registry.display.values import moment_text as moment_text
    from registry.display.values import named_types as named_types
    from registry.display.values import parse_moment_text as parse_moment_text
    from registry.display.values import parse_time_type as parse_time_type
    from registry.display.values import text_of as text_of
    from registry.display.values import time_type_of as time_type_of
    from registry.display.values import time_types as time_types


__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "pictures": "Graphics MarkedImages Pixels as_rgb draw mark_differences shrink terminal_graphics",
        "rows": "MOST_ROWS rows_html",
        "values": "Convert Times TimeType converter_of describe_file file_features media_kind moment_text "
        "named_types parse_moment_text parse_time_type text_of time_type_of time_types",
    },
)
