"""Reads a dataset card, the README.md of a Hugging Face dataset.

---
license: cc-by-4.0        the front matter: YAML, with the licence, the tags, the homepage and the name for people
tags: [animals]
pretty_name: Animals
---
# Animals                 the text below the title is the description
## Dataset Summary        unless there is text below this heading, or "Dataset Description"
- **Homepage:** https://  the homepage, unless the front matter names it
```bibtex                 the first such block is the citation
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from registry.lazy import yaml
from registry.model import DatasetMetadata, spdx_license
from registry.storage import Store

CARD: Final = "README.md"

HUGGING_FACE: Final = "hugging_face"
"""The entry of a version's custom metadata with the features of columns that had one of ``KEPT``."""

KEPT: Final = frozenset(
    {
        *("Array2D", "Array3D", "Array4D", "Array5D", "Json", "LargeList"),
        *("Translation", "TranslationVariableLanguages"),
    }
)
"""Features of Hugging Face that are stored as arrays, lists, texts and dicts."""
_MOST_BYTES: Final = 2**20
_MOST_TEXT: Final = 10_000
_MOST_NESTED: Final = 100
_MOST_TAGS: Final = 100
_MOST_ITEMS: Final = 1_000
_MOST_NAME: Final = 200
PRETTY_NAME: Final = "pretty_name"
"""The entry of a version's custom metadata with its name for people."""

_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t#]*$", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_BIBTEX = re.compile(r"```[a-zA-Z]*[ \t]*\n\s*(@[a-zA-Z]+\s*\{[^`]*)```")
_SUMMARIES: Final = ("dataset summary", "summary", "dataset description", "description")
_NOTHING: Final = "[more information needed]"
_HOMEPAGE = re.compile(r"\*\*Homepage:?\*\*:?[ \t]*(?:\[[^\]\n]*\]\(|<)?(https?://[^\s)>\]]+)", re.IGNORECASE)
_URL = re.compile(r"https?://\S+", re.IGNORECASE)
_NO_TEXT: Final = ("#", "!", "[!", "<", "|", "---", "```", "- **", "* **")
"""How paragraphs begin that are left out: headings, pictures, HTML, tables, code and lists of facts."""

_log = logging.getLogger(__name__)


def read_card(store: Store) -> DatasetMetadata:
    """The metadata in the card of ``store``; empty if there is no card.

    A card is text for people, so unreadable parts are logged and left out.

    Raises:
        StorageError: the file cannot be read.
    """
    text = _read_text(store)
    front = _FRONT_MATTER.match(text)
    fields: dict[str, Any] = {}
    if front is not None:
        try:
            fields = _load(front[1], "BaseLoader")  # texts as they are written, such as the tag "no"
        except yaml.YAMLError as error:
            problem = str(error).partition("\n")[0][:200]
            _log.warning("%s: its front matter was not read, because it is not YAML: %s", store.locate(CARD), problem)
    body = text[front.end() :] if front else text
    cited, linked = _BIBTEX.search(body), _HOMEPAGE.search(body)
    homepage, name = (next(iter(_texts(fields.get(key))), "") for key in ("homepage", PRETTY_NAME))
    tags = (tag.strip() for tag in _texts(fields.get("tags")) if _is_said(tag) and len(tag) <= _MOST_NAME)
    return DatasetMetadata(
        description=_description(body),
        citation=cited[1].strip()[:_MOST_TEXT] if cited else "",
        license=_license(fields),
        homepage=homepage if _URL.fullmatch(homepage) else linked[1] if linked else "",
        config_tags=tuple(dict.fromkeys(tags))[:_MOST_TAGS],
        custom={PRETTY_NAME: name.strip()[:_MOST_NAME]} if _is_said(name) else {},
    )


def read_front_matter(store: Store) -> dict[str, Any]:
    """All values of the front matter of the card, such as ``configs``; empty if there is no card or no front matter.

    Raises:
        StorageError: the file cannot be read.
        yaml.YAMLError: the front matter is not YAML.
    """
    front = _FRONT_MATTER.match(_read_text(store))
    return {} if front is None else _load(front[1], "SafeLoader")


def _load(text: str, kind: str) -> dict[str, Any]:
    """The mapping in ``text``; empty if it is something else. Raises a YAMLError."""
    loader = getattr(yaml, f"C{kind}", getattr(yaml, kind))  # ten times as fast, if libyaml is there
    try:
        _refuse_deep(yaml.parse(text, Loader=loader))
        result = yaml.load(text, loader)
    except yaml.MarkedYAMLError as error:
        if "nesting depth" in str(error.problem):  # PyYAML 6.0.4 has a limit of its own
            raise _too_deep() from error
        raise
    except (RecursionError, ValueError) as error:
        raise yaml.YAMLError(str(error)) from error
    return result if isinstance(result, dict) else {}


def _refuse_deep(events: Iterable[Any]) -> None:
    """Raise a YAMLError if values are nested too deeply: old versions of libyaml would end the process."""
    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MOST_NESTED:
            raise _too_deep()


def _too_deep() -> yaml.YAMLError:
    return yaml.YAMLError(f"more than {_MOST_NESTED} levels of mappings and lists")


def _read_text(store: Store) -> str:
    """The text of the card; empty if the card is missing or too long."""
    if not store.exists(CARD):
        return ""
    with store.open(CARD) as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        _log.warning("%s was not read: it is longer than %d bytes", store.locate(CARD), _MOST_BYTES)
        return ""
    return data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")


def describe_card(card: DatasetMetadata) -> str:
    """What a card states, and what it does not state, for people.

    >>> describe_card(DatasetMetadata(license="CC-BY-4.0", citation="@article{a, title={A}}", config_tags=("legs",)))
    'license CC-BY-4.0, 1 citation, 1 tag; no description'
    """
    num_cited, num_tags = len(re.findall(r"@[a-zA-Z]+\s*\{", card.citation)), len(card.config_tags)
    remark = "" if spdx_license(card.license) else " (not an SPDX expression)"
    facts = {
        "license": f"license {card.license:.60}{remark}" if card.license else "",
        "citation": f"{num_cited} citation{'' if num_cited == 1 else 's'}" if num_cited else "",
        "description": "a description" if card.description else "",
    }
    more = {
        "the name": f"the name {card.custom[PRETTY_NAME]!r:.60}" if PRETTY_NAME in card.custom else "",
        "tags": f"{num_tags} tag{'' if num_tags == 1 else 's'}" if num_tags else "",
        "homepage": "a homepage" if card.homepage else "",
    }
    stated = ", ".join(filter(None, (facts | more).values()))
    missing = ", ".join(f"no {name}" for name, text in facts.items() if not text)
    return "; ".join(filter(None, (stated, missing)))


def fill_from_card(metadata: DatasetMetadata, card: DatasetMetadata) -> DatasetMetadata:
    """``metadata`` with its empty fields filled from ``card``."""
    return replace(
        metadata,
        description=metadata.description or card.description,
        citation=metadata.citation or card.citation,
        license=metadata.license or card.license,
        homepage=metadata.homepage or card.homepage,
        config_tags=metadata.config_tags or card.config_tags,
        custom={**card.custom, **metadata.custom},
    )


def _texts(value: object) -> tuple[str, ...]:
    """A text, or the texts in a list. They are cut, because aliases repeat a long text at no cost."""
    items = value if isinstance(value, list) else [value]
    return tuple(item[:_MOST_TEXT] for item in items[:_MOST_ITEMS] if isinstance(item, str))


def _license(fields: Mapping[str, Any]) -> str:
    result = _texts(fields.get("license"))
    if result == ("other",):
        result = _texts(fields.get("license_name", "other"))
    text = ", ".join(filter(_is_said, result))[:_MOST_TEXT]
    return spdx_license(text) or text


def _is_said(value: str) -> bool:
    return value.strip() not in ("", "null", "~")


def _description(body: str) -> str:
    """The text below the heading that is most likely a summary, else below the title; without comments."""
    parts = _HEADING.split(_COMMENT.sub("", body))
    texts = dict(zip(map(str.lower, reversed(parts[1::2])), reversed(parts[2::2]), strict=True))  # the first counts
    for text in (*(texts.get(heading, "") for heading in _SUMMARIES), parts[0], *parts[2:3]):
        paragraphs = (paragraph.strip() for paragraph in re.split(r"\n[ \t]*\n", text))
        readable = [text for text in paragraphs if re.search(r"\w", text) and not text.startswith(_NO_TEXT)]
        if readable and readable[0].lower() != _NOTHING:
            return "\n\n".join(readable)[:_MOST_TEXT]
    return ""
