"""What a page is: the visit that asks for it, and the values that it shows.

The address of a page is a tuple of segments below the root; the page is the ``index.html`` of that folder, and its
values are the ``index.json`` beside it. Links between pages are relative, so that the same HTML works on a server,
below any prefix, and in a folder of files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from registry.api import Catalog
from registry.model import Reference

DATASETS: Final = "datasets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A request for a page.

    Attributes:
        catalog: the catalog that pages show.
        path: the segments of the address below the root, decoded; ``()`` is the home page.
        query: the values of the form in the address, by name.
        form: the values of a form that was sent with the request, because they are too long for an address.
        is_live: whether a server answers. In a site of files, pages have no forms, and no address has a query.
        most_records: in a site of files, how many records of each split have pages; None for all.
    """

    catalog: Catalog
    path: tuple[str, ...] = ()
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    is_live: bool = True
    most_records: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The values of a page.

    Attributes:
        name: the name of its template, and of its schema: ``registry.page.NAME/1``.
        title: its title, without the name of the catalog.
        values: what the template shows, as values that ``envelope.to_plain`` converts to JSON.
        is_final: whether the values are those of a published version and never change, so that they may be cached.
        status: the HTTP status.
    """

    name: str
    title: str
    values: Mapping[str, Any]
    is_final: bool = False
    status: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """The bytes of a picture, a sound or another file of a record. They are foreign: a browser must not run them.

    Attributes:
        content: the bytes.
        content_type: a type of pictures, sounds or videos that browsers show; None for anything else, which is offered
            as a download.
    """

    content: bytes
    content_type: str | None


def version_path(reference: Reference) -> tuple[str, ...]:
    """The address of a version: ``datasets/mnist/3.0.1`` or ``datasets/mnist/plain/3.0.1``.

    >>> version_path(Reference.parse("mnist/plain:3.0.1"))
    ('datasets', 'mnist', 'plain', '3.0.1')
    """
    config = () if reference.config is None else (reference.config,)
    return (DATASETS, reference.name, *config, str(reference.exact))


class Links:
    """The links of one page, relative to its address. ``targets`` are the addresses that they lead to.

    >>> links = Links(("datasets", "mnist", "3.0.1"), is_live=True)
    >>> links.page(["datasets", "mnist", "3.0.1"], "records", split="train[:10%]")
    'records/?split=train%5B%3A10%25%5D'
    >>> links.page(), links.file("static", "style.css"), Links(("log",), is_live=False).page()
    ('../../../', '../../../static/style.css', '../index.html')
    """

    def __init__(self, path: tuple[str, ...], *, is_live: bool = True) -> None:
        self._path, self._is_live = path, is_live
        self.targets: set[tuple[str, ...]] = set()

    def page(self, *segments: Any, **query: Any) -> str:
        """The link to a page. A segment may be a list of segments. Values of the query that are None are left out."""
        values = {name: value for name, value in query.items() if value is not None}
        if values and not self._is_live:
            raise AssertionError("a page of a site links to no address with a query")
        path = _flat(segments)
        self.targets.add(path)
        folder = self._relative(path)
        text = f"{folder}/" if folder else "./"
        return text + ("" if self._is_live else "index.html") + (f"?{urlencode(values)}" if values else "")

    def file(self, *segments: Any) -> str:
        """The link to a file: a style sheet, a picture of a record, the JSON of a page."""
        path = _flat(segments)
        if path[-1] != "index.json":  # it is written with its page
            self.targets.add(path)
        return self._relative(path)

    def _relative(self, path: tuple[str, ...]) -> str:
        common = 0
        while common < min(len(path), len(self._path)) and path[common] == self._path[common]:
            common += 1
        up = [".."] * (len(self._path) - common)
        rest = [quote(segment, safe="") for segment in path[common:]]
        if not up and rest and ":" in path[common]:
            up = ["."]
        return "/".join((*up, *rest))


def _flat(segments: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(
        str(item) for segment in segments for item in (segment if isinstance(segment, list | tuple) else [segment])
    )
