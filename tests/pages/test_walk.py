"""Every page that links reach is answered, its links lead somewhere, and nothing that it shows leaves its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import pytest
from support.browse_process import Browse
from support.page_samples import OWNED, make_catalog
from support.page_walk import Walk, walk

from registry.escaping import without_steering

RUNNING = {"iframe", "object", "embed", "base", "style", "frame", "applet", "foreignobject", "animate", "set"}
CODE = ("javascript:", "data:text", "vbscript:")


class Faults(HTMLParser):
    """Collects what a browser would run, or load from elsewhere."""

    def __init__(self, base: str, root: str, text: str) -> None:
        super().__init__()
        self.base, self.root, self.faults = base, root, list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        text = self.get_starttag_text() or ""
        values = {name: value or "" for name, value in attrs}
        urls = {name: values[name] for name in ("src", "href", "action", "data", "xlink:href") if name in values}
        is_data = tag == "script" and values.get("type") == "application/ld+json"
        is_outside = any(urlsplit(urljoin(self.base, url)).scheme not in ("http", "data") for url in urls.values())
        if (
            tag in RUNNING
            or any(name.startswith("on") or name in ("style", "srcdoc", "formaction") for name in values)
            or any(url.strip().lower().startswith(CODE) for url in urls.values())
            or (tag == "script" and not is_data and not self._is_ours(urls.get("src", "")))
            or (tag not in ("a", "script") and any(not self._is_ours(url) for url in urls.values()))
            or (is_outside and tag != "a")
        ):
            self.faults.append(text[:200])

    def handle_data(self, data: str) -> None:
        if without_steering(data) != data.replace(
            "\r", ""
        ):  # a form keeps them in what was typed, which is an attribute
            self.faults.append(data[:200])

    def _is_ours(self, url: str) -> bool:
        return url.startswith("data:image/png;base64,") or urljoin(self.base, url).startswith(self.root)


@pytest.fixture(scope="module")
def browse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browse]:
    with Browse(make_catalog(tmp_path_factory.mktemp("walk")), "--no-open") as browse:
        yield browse


@pytest.fixture(scope="module")
def walked(browse: Browse) -> Walk:
    return walk(browse, most=1)


def test_every_link_leads_somewhere(browse: Browse, walked: Walk) -> None:
    assert walked.broken == []
    assert walked.num_links > 100
    assert browse.printed() == "Press Ctrl-C to stop.\n"  # no fault, and no warning


def test_nothing_leaves_its_place(browse: Browse, walked: Walk) -> None:
    faults = {}
    hostile = 0
    for address in walked.pages:
        text = browse.get(address).body.decode()
        hostile += OWNED.replace("'", "&#39;") in text
        faults[address.removeprefix(browse.url)] = Faults(address, browse.url, text).faults
    assert {address: found for address, found in faults.items() if found} == {}
    assert hostile >= 3  # it is shown, as text


def test_every_page_is_json_too(browse: Browse, walked: Walk) -> None:
    for address in walked.pages:
        folder, question, query = address.partition("?")
        document = json.loads(browse.get(f"{folder}index.json{question}{query}").body)
        assert document["schema"].startswith("registry.page.")
