"""Maps addresses to the functions that make their pages.

Addresses below the root, and what they show::

()  list/from-N                            home, and the datasets that follow
log  pins  health                          pages of the whole catalog
sign-in                                    of a service
datasets/NAME[/CONFIG]                     the version that a look-up gives
datasets/NAME[/CONFIG]/VERSION             a version
datasets/NAME[/CONFIG]/VERSION/PART/...    a part of it: records, statistics, splits, changes, files, media, preview.png
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from registry.api import Catalog, Dataset
from registry.errors import NotFoundError, StorageError, UsageError, suggest
from registry.model import Reference
from registry.pages.page import DATASETS, LISTED, SIGN_IN, Media, Page, Visit

Answer: TypeAlias = Page | Media
CatalogPage: TypeAlias = Callable[[Visit], Answer]

CATALOG_PAGES: Final = {
    "": "home:home",
    "log": "log:log",
    "pins": "pins:pins",
    "health": "health:health",
    SIGN_IN: "sign_in:sign_in",
    LISTED: "home:home",
}
"""The pages of the whole catalog by the first segment of their address: module and function."""

_WITH_PARTS: Final = {"log", LISTED}
"""Those that have further pages, by the segments of ``Visit.path`` behind the first one."""

FORM_PAGES: Final = {("pins",)}
"""The addresses of pages that answer a form, ``Visit.form``, whose values are too long for an address."""

VERSION_PAGES: Final = {
    "": "dataset:overview",
    "versions": "dataset:versions",
    "statistics": "statistics:statistics",
    "splits": "splits:splits",
    "changes": "changes:changes",
    "files": "files:version_files",
    "records": "records:records",
    "media": "media:media",
    "preview.png": "previews:preview",
}
"""The pages of a version by the segment behind its number. Their functions get the segments that follow."""

PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "home:home": ("q", "kind", "license", "tag", "size", "state", "sort", "after"),
    "log:log": ("dataset", "action", "after", "verify=1"),
    "health:health": ("usage=1",),
    "sign_in:sign_in": ("next",),
    "statistics:statistics": ("feature",),
    "splits:splits": ("split", "other", "of", "n", "by", "unit", "drop_remainder"),
    "changes:changes": ("records=1",),
    "records:records": ("split", "where", "q", "sort", "columns", "after", "before", "sha256", "search=1"),
}
"""What the addresses of these pages may ask for; of some, the only value."""

VERSION_ACTIONS: Final = {"records": "records:build"}
"""What the buttons of these pages do: functions as those of pages, which return nothing."""

_DATASETS: Final = WeakKeyDictionary[Catalog, OrderedDict[Reference, Dataset]]()
_MOST_DATASETS: Final = 16

_VERSION: Final = re.compile(r"\d+\.\d+\.\d+")


def answer(visit: Visit) -> Answer:
    """The page of an address.

    Raises:
        NotFoundError: the page, dataset or version does not exist.
        UsageError: the address has a parameter that the page does not have.
        RegistryError: any other error of the call that the page shows.
    """
    first, *rest = visit.path or ("",)
    if first == DATASETS and rest:
        page: Answer = _of_version(visit, rest, VERSION_PAGES)
        return page
    if first not in CATALOG_PAGES or (rest and first not in _WITH_PARTS):
        raise NotFoundError(f"there is no page {'/'.join(visit.path)!r:.200}", hint="Begin at the home page.")
    _check_query(visit, CATALOG_PAGES[first])
    make: CatalogPage = _load(CATALOG_PAGES[first])
    return make(visit)


def act(visit: Visit) -> None:
    """Perform the action of a page's button. The server has checked the request.

    Raises:
        NotFoundError: the page has no such button.
        RegistryError: any other error of the action.
    """
    first, *rest = visit.path or ("",)
    if first != DATASETS or not rest:
        raise NotFoundError(f"the page {'/'.join(visit.path)!r:.200} has no button")
    _of_version(visit, rest, VERSION_ACTIONS)


def _check_query(visit: Visit, page: str) -> None:
    """Refuse an address with parameters that the page does not have, instead of ignoring them."""
    allowed = {name: value for name, _, value in (it.partition("=") for it in PARAMETERS.get(page, ()))}
    for name, value in visit.query.items() if visit.is_live else ():
        if name not in allowed:
            hint = suggest(name, allowed, have="Possible are:") or "It has none."
            raise UsageError(f"this page has no parameter {name!r:.80}", hint=hint)
        if allowed[name] not in ("", value):
            raise UsageError(f"{name} has the value {value!r:.80}", hint=f"Write {name}={allowed[name]}.")


def _of_version(visit: Visit, segments: list[str], table: Mapping[str, str]) -> Any:
    name, *rest = segments
    numbers = [bool(_VERSION.fullmatch(segment)) for segment in rest[:2]]
    # A config may look like a number; then the number behind it is that of the version.
    config = rest.pop(0) if rest and (not numbers[0] or numbers[1:] == [True]) else None
    version = rest.pop(0) if rest and _VERSION.fullmatch(rest[0]) else None
    text = (name if config is None else f"{name}/{config}") + ("" if version is None else f":{version}")
    part, *arguments = rest or [""]
    if part not in table:
        names = ", ".join(name for name in table if name not in ("", "media", "preview.png"))
        raise NotFoundError(f"{text} has no page {part!r:.80}", hint=f"Its pages: {names}")
    reference = Reference.parse(text)
    _check_query(visit, VERSION_PAGES[part])
    make = _load(table[part])
    if part == "media" and visit.visitor is None:  # a page asks for 50 of them; no state or right changes them
        with suppress(StorageError):  # it was moved since it was looked up
            return make(visit, _look_up_once(visit.catalog, reference), tuple(arguments))
        _DATASETS[visit.catalog].pop(reference, None)
    return make(visit, visit.catalog.look_up(reference), tuple(arguments))


def _look_up_once(catalog: Catalog, reference: Reference) -> Dataset:
    datasets = _DATASETS.setdefault(catalog, OrderedDict())
    dataset = datasets.pop(reference, None) or catalog.look_up(reference)
    datasets[reference] = dataset  # the last one used
    if len(datasets) > _MOST_DATASETS:
        with suppress(KeyError):  # another thread took the last one
            datasets.popitem(last=False)
    return dataset


def _load(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    result: Callable[..., Any] = getattr(import_module(f"registry.pages.{module}"), name)
    return result
