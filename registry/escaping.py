r"""Makes text for terminals: escapes control characters, measures and cuts text, draws carets, and writes sizes.

Names, descriptions and values of a dataset come from other people. U+009B starts a terminal command as ESC [ does,
and a bidirectional override displays a line in another order. JSON can escape every character, so its values stay
equal; in other text U+FFFD replaces them.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import accumulate
from typing import Final

REPLACEMENT: Final = "\ufffd"

# DEL and the C1 controls; marks, embeddings, overrides and isolates of bidirectional text, and the deprecated format
# characters; line and paragraph separators; the byte order mark; tags, which are invisible; lone surrogates.
_STEERING: Final = (
    "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff\U000e0000-\U000e007f\ud800-\udfff"  # see above
)
_IN_JSON: Final = f"[{_STEERING}]"
_IN_TEXT: Final = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f{_STEERING}]")

# Soft hyphens, fillers, zero-width spaces, invisible operators, annotations and variation selectors, of which one may
# follow a letter; and joiners, which Persian, Hindi and emoji use between characters that are not ASCII.
_UNSEEN: Final = (
    f"(?:[\x00-\x08\x0b\x0c\x0e-\x1f{_STEERING}"
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u3164\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0080-\U000e0fff]"
    "|(?<=[\ufe00-\ufe0f])[\ufe00-\ufe0f]"
    "|(?<![^\x00-\x7f\u200c\u200d])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f\u200c\u200d]))+"
)


def escape_json(text: str) -> str:
    r"""The JSON text ``text`` with ``\u`` escapes for characters that control a terminal. Its value is the same.

    In JSON these characters occur only in strings, and the C0 controls are always escaped.

    >>> escape_json('{"name": "a\x9b31m"}')
    '{"name": "a\\u009b31m"}'
    """
    if text.isascii() and "\x7f" not in text:  # JSON itself escapes all other control characters of ASCII
        return text
    return re.sub(_IN_JSON, _escape, text)


def without_steering(text: str) -> str:
    r"""``text`` for a file that people read: U+FFFD replaces terminal controls; tabs and newlines are kept.

    >>> without_steering("a\x1b[31m\tb\n")
    'a\ufffd[31m\tb\n'
    """
    return _IN_TEXT.sub(REPLACEMENT, text)


def without_unseen(text: str) -> str:
    r"""``text`` for a program that reads every character: U+FFFD replaces each run of invisible characters.

    A language model reads zero-width characters and tags, which can hide an instruction in a harmless text.

    >>> without_unseen("a\u200bb\x1b[31m\U000e0068\U000e0069"), without_unseen("\u0645\u06cc\u200c\u062e")
    ('a\ufffdb\ufffd[31m\ufffd', '\u0645\u06cc\u200c\u062e')
    """
    return text if text.isascii() and text.isprintable() else re.sub(_UNSEEN, REPLACEMENT, text)


def printable(text: str) -> str:
    r"""``text`` for a terminal: U+FFFD replaces unprintable characters; newlines are kept, tabs become spaces.

    The joiners U+200C and U+200D are kept, too: Persian, Hindi and emoji need them.

    >>> printable("a\u202eb\x00\n")
    'a\ufffdb\ufffd\n'
    """
    text = text.expandtabs(4)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\u200c\u200d" else REPLACEMENT for letter in text)


def text_width(text: str) -> int:
    """Number of columns of ``text`` on a terminal: East Asian wide characters take two, combining accents none."""
    return len(text) if text.isascii() else sum(map(_letter_width, text))


def cut_text(text: str, columns: int) -> str:
    """``text``, cut to at most ``columns`` of a terminal.

    >>> cut_text("a long text", 7), cut_text("数据集", 4), cut_text("short", 7)
    ('a long…', '数…', 'short')
    """
    if text_width(text) <= columns:
        return text
    widths = accumulate(map(_letter_width, text))
    return text[: sum(width < columns for width in widths)] + "…"


def _letter_width(letter: str) -> int:
    return 0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def size(num_bytes: int) -> str:
    """Format a size for people, in binary units.

    >>> size(512), size(57523), size(3 * 2**30)
    ('512 B', '56.2 KiB', '3.0 GiB')
    """
    if num_bytes < 1024:
        return f"{num_bytes} B"
    amount = float(num_bytes)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1024:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1024:.1f} TiB"


def point_at(text: str, start: int, stop: int, *, indent: int = 4, width: int = 72) -> str:
    """Return two lines: ``text``, and a caret and tildes under ``text[start:stop]``.

    Long text is cut to a window around the place, and characters that would break the line are shown as spaces, so the
    result is always two short lines.

    >>> print(point_at("train[:1O%]", 8, 9))
        train[:1O%]
                ^
    """
    listing = "".join(character if character.isprintable() else " " for character in text)
    start = min(max(start, 0), len(listing))
    stop = min(max(stop, start + 1), start + width)
    begin = max(0, min(start - width // 2, len(listing) - width))
    window = listing[begin : begin + width]
    prefix, suffix = ("…" if begin else ""), ("…" if begin + width < len(listing) else "")
    caret_column = indent + len(prefix) + start - begin
    marks = "^" + "~" * max(0, min(stop, begin + width + 1) - start - 1)
    return f"{' ' * indent}{prefix}{window}{suffix}\n{' ' * caret_column}{marks}"


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    if number < 0x10000:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"
