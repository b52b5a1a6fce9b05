"""Follows the links of served pages from home, so that tests cover every page, including pages that are added later."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urldefrag, urlencode, urljoin, urlsplit

from support.browse_process import Browse

LINKS: Final = {"a": "href", "img": "src", "link": "href", "script": "src", "audio": "src", "video": "src"} | {
    "source": "src",
    "image": "href",
    "use": "href",
    "form": "action",
    "iframe": "src",
    "object": "data",
}
ENTRIES: Final = ("input", "select", "textarea")
VERSION: Final = re.compile(r"\d+\.\d+\.\d+")


class Html(HTMLParser):
    """The title of a page, its links, and those that a browser loads. A form is a link, with the values that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.title, self.links, self.loaded = "", list[str](), list[str]()
        self._place, self._form, self._has_title = "", None, False
        self._values: list[tuple[str, str]] = []
        self._select: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        fields = {name: value or "" for name, value in attrs}
        self._place = tag
        if tag == "form":
            self._form, self._values = fields.get("action", ""), []
        elif LINKS.get(tag) in fields:
            self.links.append(fields[LINKS[tag]])
            if tag not in ("a", "link") or fields.get("rel") in ("stylesheet", "icon"):
                self.loaded.append(fields[LINKS[tag]])
        if tag == "select":
            self._select = fields.get("name")
        elif tag == "option" and self._select:
            first = all(name != self._select for name, _ in self._values)
            if first or "selected" in fields:
                self._values = [pair for pair in self._values if pair[0] != self._select]
                self._values.append((self._select, fields.get("value", "")))
        elif tag == "input" and fields.get("type") not in ("checkbox", "radio", "file", "submit") and "name" in fields:
            self._values.append((fields["name"], fields.get("value", "")))

    def handle_endtag(self, tag: str) -> None:
        self._place = ""
        self._has_title = self._has_title or tag == "title"
        if tag == "form" and self._form is not None:
            self.links.append(f"{self._form}?{urlencode(self._values)}")
            self._form = None
        if tag == "select":
            self._select = None

    def handle_data(self, data: str) -> None:
        if self._place == "title" and not self._has_title:  # pictures have titles, too
            self.title += data


class Walk(NamedTuple):
    """The pages by their address, and the answers that are no page: addresses with what they gave, and who links."""

    pages: dict[str, Html]
    broken: list[tuple[str, int, str]]
    num_links: int


def kind_of(root: str, address: str) -> tuple[str, ...]:
    """What pages have in common that differ only by their version, split, record or values of the query."""
    url = urlsplit(address.removeprefix(root))
    segments = [unquote(segment) for segment in url.path.split("/")]
    if segments[0] != "datasets":
        segments = [re.sub(r"\d+", "N", segment) for segment in segments]
    at = next((place for place, segment in enumerate(segments) if VERSION.fullmatch(segment)), len(segments))
    names = sorted({name for name, value in parse_qsl(url.query) if value})
    return (*segments[:at], *segments[at + 1 : at + 2], str(len(segments) - at), *names)


def walk(
    browse: Browse, *, most: int, most_answers: int = 2_000, follows: Callable[[str], bool] = lambda _address: True
) -> Walk:
    """Follow links from home, breadth first.

    Args:
        browse: the server.
        most: how many pages of a kind are followed; of four times as many the status is asked for.
        most_answers: how many addresses are asked for altogether.
        follows: whether an address is asked for.
    """
    root = browse.url
    pages: dict[str, Html] = {}
    broken: list[tuple[str, int, str]] = []
    kinds: Counter[tuple[str, ...]] = Counter()
    seen, queue = {root}, deque([(root, "")])
    num_answers = 0
    while queue and num_answers < most_answers:
        address, parent = queue.popleft()
        kind = kind_of(root, address)
        kinds[kind] += 1
        if kinds[kind] > 5 * most:
            continue
        num_answers += 1
        answer = browse.get(address, method="GET" if kinds[kind] <= most else "HEAD")
        if answer.status != 200:
            broken.append((address.removeprefix(root), answer.status, parent.removeprefix(root)))
            continue
        if not answer.headers["content-type"].startswith("text/html") or not answer.body:
            continue
        pages[address] = html = Html(answer.body.decode())
        for link in html.links:
            target = urldefrag(urljoin(address, link)).url
            if target not in seen and target.startswith(root) and follows(target):
                seen.add(target)
                queue.append((target, address))
    return Walk(pages, broken, num_answers)
