"""Collects the elements of a page that a browser would run or load, and has text that tries to inject them."""

from __future__ import annotations

from html.parser import HTMLParser

XSS = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'`--><svg onload=alert(1)>"


class Elements(HTMLParser):
    """Collects what a browser would run or load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.data: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.data.append(data)
