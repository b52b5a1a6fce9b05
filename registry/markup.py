"""HTML for notebooks: small tables, bars and pictures. Everything is escaped and bounded, and nothing is a script.

Colours are those of the page (``currentColor``), with transparent greys, so that light and dark themes both work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from registry.escaping import without_steering

MOST_BYTES: Final = 50_000
"""The maximum size of the HTML of one object, in bytes."""

_MOST_ROWS: Final = 20
MOST_COLUMNS: Final = 20
_MOST_LETTERS: Final = 200
_CELL: Final = "text-align:left;vertical-align:top;padding:2px 8px;border-bottom:1px solid rgba(128,128,128,.3);"


class Markup(str):
    """HTML that is complete and safe. Any other text is escaped where it is inserted."""

    __slots__ = ()


def escape(value: Any, most: int = _MOST_LETTERS) -> Markup:
    """Escape ``value`` and cut it to ``most`` characters. Markup is returned unchanged.

    >>> escape("<script>"), escape("a" * 9, most=4)
    ('&lt;script&gt;', 'aaa…')
    """
    if isinstance(value, Markup):
        return value
    text = f"{value:,}" if type(value) is int else "" if value is None else str(value)
    cut = text if len(text) <= most else text[: most - 1] + "…"
    from html import escape as escape_html  # look-ups do not need it

    return Markup(escape_html(without_steering(cut)).replace("\n", "<br>"))


def table(heads: Sequence[Any], rows: Iterable[Sequence[Any]], total: int | None = None) -> Markup:
    """A table of the first rows and columns; a line below counts the others. ``total`` is the number of all rows."""
    listed = list(rows)
    total = len(listed) if total is None else total
    cut = min(len(heads), MOST_COLUMNS)
    first = listed[:_MOST_ROWS]

    def line(kind: str, cells: Sequence[Any], most: int) -> str:
        inner = "".join(f'<{kind} style="{_CELL}">{escape(cell, most)}</{kind}>' for cell in cells[:cut])
        return f"<tr>{inner}</tr>"

    lines = "".join(line("td", row, _MOST_LETTERS) for row in first)
    more = [f"{total - len(first):,} more rows"] * (total > len(first))
    more += [f"{len(heads) - cut:,} more columns"] * (len(heads) > cut)
    note = f"<div>and {' and '.join(more)}</div>" if more else ""
    body = f"<thead>{line('th', heads, 60)}</thead><tbody>{lines}</tbody>"
    return Markup(
        f'<table style="border-collapse:collapse;margin:4px 0;background:none;color:inherit">{body}</table>{note}'
    )


def bars(counts: Sequence[int], most: int = 32) -> Markup:
    """Draw counts as bars in an SVG. If there are more than ``most`` counts, neighbours share a bar."""
    joined = -(-len(counts) // most) or 1
    sums = [sum(counts[start : start + joined]) for start in range(0, len(counts), joined)]
    highest = max(sums, default=0) or 1
    drawn = "".join(
        f"M{5 * place} 20v-{height}h4v{height}z"
        for place, count in enumerate(sums)
        if (height := -(-20 * count // highest))
    )
    size = f'width="{5 * len(sums)}" height="20"'
    return Markup(f'<svg {size} fill="currentColor" style="opacity:.6"><path d="{drawn}"/></svg>')


def picture(png: bytes, title: str = "") -> Markup:
    """A PNG as an image in the page."""
    import base64

    data = base64.b64encode(png).decode("ascii")
    return Markup(f'<img title="{escape(title)}" alt="{escape(title)}" src="data:image/png;base64,{data}">')


def panel(title: Any, *parts: Any) -> str:
    """The HTML of an object: a title and parts. Rows and parts that would exceed the maximum size are left out."""

    def bounded() -> Iterator[str]:
        room = MOST_BYTES - 1000
        for part in parts:
            text = (part if isinstance(part, Markup) else f"<div>{escape(part, 2000)}</div>").encode()
            if len(text) > room:
                end = text.rfind(b"</tr>", 0, room)
                if text.find(b"<tbody>") < end:
                    yield f"{text[:end].decode()}</tr></tbody></table>"
                yield "<div>The rest is too long to be shown here.</div>"
                return
            room -= len(text)
            yield text.decode()

    name = f'<div style="font-weight:bold">{escape(str(title).strip("<>"), 100)}</div>'
    return f'<div style="font-size:90%;line-height:1.5;overflow-x:auto">{name}{"".join(bounded())}</div>'
