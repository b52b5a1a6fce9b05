"""Checks of sites: every link of every page leads to a file, and the files are those that a run should leave."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

LINKS = {"a": "href", "link": "href", "script": "src", "img": "src", "audio": "src", "video": "src", "source": "src"}


class Linked(HTMLParser):
    """The addresses that a page links to or loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == LINKS.get(tag) or name == "action":
                self.links.append(value or "")


def tree_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder by its name, but for unfinished ones and the list of files."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "incomplete." not in str(path) and path.name != "site-files.json"
    }


def without_time(tree: dict[str, bytes]) -> dict[str, bytes]:
    """The files of a site without the time in its index."""
    index = {**json.loads(tree["site.json"]), "made_at": "", "digest": ""}
    return {**tree, "site.json": json.dumps(index).encode()}


def broken_links(folder: Path) -> list[tuple[str, str]]:
    """The links of the pages in a folder that lead to no file."""
    return [
        (path.relative_to(folder).as_posix(), link)
        for path in sorted(folder.rglob("*.html"))
        for link in Linked(path.read_text()).links
        if not link.startswith(("data:", "https://", "http://", "mailto:", "#"))
        if not (path.parent / unquote(urlsplit(link).path)).is_file()
    ]


def follow(url: str, get: Callable[[str], tuple[str, bytes]]) -> dict[str, str]:
    """Every address that a reader reaches from ``url`` by links, with its content type; ``get`` raises for no file."""
    reached: dict[str, str] = {}
    waiting = [url]
    while waiting:
        here = waiting.pop()
        if here in reached:
            continue
        reached[here], content = get(here)
        if reached[here].startswith("text/html"):
            links = [urljoin(here, link).partition("#")[0] for link in Linked(content.decode()).links]
            waiting += [link for link in links if link.startswith(url.rpartition("/")[0])]
    return reached


def get_url(url: str) -> tuple[str, bytes]:
    """The content type and the bytes at an address."""
    with urllib.request.urlopen(url) as answer:  # noqa: S310 (a server of the tests)
        return answer.headers["Content-Type"], answer.read()
