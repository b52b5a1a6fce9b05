"""Splits the text of datasets and of searches into words, in the same way for both. Pure.

``search.py`` stores these words, not the text: case and accents are removed here, so that SQLite and PostgreSQL cannot
differ about letters, accents or where a word ends. A searched word matches every word that begins with it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from registry.errors import UsageError

FIELDS: Final = ("name", "tags", "features", "description", "details")
"""The fields of a document, the most important first; ``details`` are licence, homepage and citation."""

MAX_CHARACTERS: Final = 1000
MAX_WORDS: Final = 32

_WORD_LENGTH: Final = 64
_READ: Final = 100_000
"""Number of characters of one text that are read."""

# The most bytes of words in a field; their sum is well below the 1 MB to which PostgreSQL limits a tsvector.
_BUDGET: Final = {"name": 20_000, "tags": 20_000, "features": 200_000, "description": 200_000, "details": 50_000}
_WORD_COST: Final = 12  # the most bytes that PostgreSQL adds to each word

# Chinese and Japanese have no spaces between words, so every letter is a word of its own.
_UNSPACED: Final = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD: Final = re.compile(rf"(?=[^\W_])[{_UNSPACED}]|(?:(?![{_UNSPACED}])[^\W_])+")
_PIECE: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Letters that Unicode does not decompose, and what people type who do not have that key.
_PLAIN: Final = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th"}
)
_DROPPED: Final = frozenset({"Mn", "Mc", "Me", "Cf"})  # accents, vowel signs, soft hyphens, joiners


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchWords:
    """A parsed search: ``words``, all of which must match, without repeats; and ``joined``, all of them in one word."""

    words: tuple[str, ...]
    joined: str


def parse_search(text: str) -> SearchWords:
    """Parse the words of a search. ``text`` has no syntax: quotes, stars and operators have no special meaning.

    Raises:
        UsageError: the text has no letter or digit, or it is too long.

    >>> parse_search('"Handwritten" AND digit*').words
    ('handwritten', 'and', 'digit')
    """
    if not isinstance(text, str):
        raise UsageError(
            f"a search must be a str, not {type(text).__name__}", hint='Write words, e.g. "handwritten digits".'
        )
    if len(text) > MAX_CHARACTERS:
        raise UsageError(
            f"a search has at most {MAX_CHARACTERS:,} characters, this one has {len(text):,}",
            hint="A few words will do, e.g. handwritten digits.",
        )
    every = list(_words(text))
    result = tuple(dict.fromkeys(every))
    if not result:
        raise UsageError(
            f"no word to search for in {text[:80]!r}", hint="A word has letters or digits, e.g. handwritten digits."
        )
    if len(result) > MAX_WORDS:
        raise UsageError(
            f"a search has at most {MAX_WORDS} words, this one has {len(result)}",
            hint="A few words will do, e.g. handwritten digits.",
        )
    return SearchWords(words=result, joined="".join(every)[:_WORD_LENGTH])


def document_words(
    name: str,
    config: str,
    *,
    metadata_json: str,
    features_json: str,
    labels_json: str,
    names: Iterable[str] = (),
) -> dict[str, str]:
    """The words of a dataset version by field, each once, separated by spaces: the text that the databases index.

    The arguments are columns of ``dataset_version``, and the ``names`` that the dataset has had. JSON that cannot be
    parsed contributes no words.
    """
    metadata, labels = _load(metadata_json), _load(labels_json)
    texts: dict[str, Iterator[str]] = {
        "name": (word for part in (name, config, *names) for word in name_words(part)),
        "tags": _words_of(metadata.get("config_tags")),
        "features": _feature_words(_load(features_json), labels),
        "description": _words_of([metadata.get("description"), metadata.get("config_description")]),
        "details": _detail_words(metadata),
    }
    return {field: " ".join(_within(texts[field], _BUDGET[field])) for field in FIELDS}


def matched_fields(document: dict[str, str], words: Iterable[str]) -> tuple[str, ...]:
    """The fields of ``document`` that have a word which begins with any of ``words``."""
    begins = tuple(words)
    return tuple(field for field in FIELDS if any(word.startswith(begins) for word in document[field].split(" ")))


def name_words(name: str) -> Iterator[str]:
    """The words of a name: first the whole name as one word, then its parts, then the parts of its parts.

    >>> list(dict.fromkeys(name_words("open_images_v4")))
    ['openimagesv4', 'open', 'images', 'v4', '4']
    """
    parts = list(_words(name))
    if parts:
        yield "".join(parts)[:_WORD_LENGTH]
        yield from parts
    for piece in _PIECE.findall(name[:_READ]):
        if len(piece) > 1 or piece.isdigit():
            yield piece.lower()[:_WORD_LENGTH]


def snippet(text: str, words: Iterable[str], *, limit: int = 80) -> str:
    """One line of ``text``, around the first word that matches one of ``words``; its beginning if no word matches.

    >>> snippet("Small pictures, eight by eight, of written digits.", ["digit"], limit=30)
    '… by eight, of written digits.'
    """
    begins = tuple(words)
    chunks = text[:_READ].split()
    first = next((index for index, chunk in enumerate(chunks) if _matches(chunk, begins)), 0)
    start = first
    room = limit - len(chunks[first]) - 2 if chunks else 0
    # A third of the line is in front of the match, more if the text ends soon after it.
    wanted = max(room // 3, room - sum(len(chunk) + 1 for chunk in chunks[first + 1 : first + limit]))
    while start and len(chunks[start - 1]) + 1 <= wanted:
        start -= 1
        wanted -= len(chunks[start]) + 1
    line = ("… " if start else "") + " ".join(chunks[start : first + limit])
    if len(line) <= limit:
        return line
    cut = line.rfind(" ", 0, limit - 1)
    return f"{line[: cut if cut > 2 else limit - 2]} …"


def _matches(chunk: str, begins: tuple[str, ...]) -> bool:
    return any(word.startswith(begins) for word in _words(chunk))


def _words(text: str) -> Iterator[str]:
    """The words of ``text`` in order, in lower case, without accents, with wide letters and ligatures decomposed."""
    for match in _WORD.finditer(_fold(text[:_READ])):
        yield match[0][:_WORD_LENGTH]


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    # Decompose before folding, because a decomposed sign may have capitals (℡), and again after it, because a folded
    # letter may be decomposable.
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return "".join(letter for letter in folded if unicodedata.category(letter) not in _DROPPED).translate(_PLAIN)


def _words_of(value: Any) -> Iterator[str]:
    """The words of a text or of a list of texts; no words for any other value."""
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str):
            yield from _words(text)


def _detail_words(metadata: dict[str, Any]) -> Iterator[str]:
    yield from _words_of([metadata.get("license"), metadata.get("citation")])
    homepage = metadata.get("homepage")
    if isinstance(homepage, str):
        yield from (word for word in _words(homepage) if word not in ("http", "https", "www"))


def _feature_words(schema: dict[str, Any], labels: dict[str, Any]) -> Iterator[str]:
    """The names of features, then their classes, types and descriptions, then the names of labels."""
    names: list[str] = []
    about: list[str] = []
    messages = [schema]
    for message in messages:  # the list grows during the loop, so that deep nesting needs no recursion
        for written, value in message.items():
            match written.replace("_", "").lower(), value:
                case "pythonclassname", str() if not value.endswith("FeaturesDict"):  # every dataset has one
                    about.extend(name_words(value.rpartition(".")[2].removesuffix("Feature")))
                case "description" | "dtype" | "encodingformat", str():
                    about.extend(_words(value))
                case "featuresdict", {"features": dict(inner)}:
                    for name, feature in inner.items():
                        names.extend(name_words(name))
                        if isinstance(feature, dict):
                            messages.append(feature)
                case _, dict():
                    messages.append(value)
    yield from names
    yield from about
    for stem, of_label in labels.items():
        yield from name_words(stem)
        yield from _words_of(of_label)


def _within(words: Iterable[str], budget: int) -> Iterator[str]:
    """Each of ``words`` once, until ``budget`` bytes are used up."""
    seen: set[str] = set()
    for word in words:
        if word in seen:
            continue
        budget -= len(word.encode()) + _WORD_COST
        if budget < 0:
            return
        seen.add(word)
        yield word


def _load(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
