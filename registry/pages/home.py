"""The home page: the datasets of the catalog as cards, with search and filters that are part of the address."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from registry.api import Catalog
from registry.api.catalog import SORTS
from registry.catalog import DatasetSummary
from registry.envelope import fields_of
from registry.errors import NotFoundError, UsageError, suggest
from registry.model import Reference
from registry.pages.page import LISTED, Page, Visit, version_path
from registry.pages.previews import Remembered
from registry.pages.rendering import first_words

_CARDS: Final = 24
_LISTED: Final = 200
_MOST_CHOICES: Final = 200
_MOST_HITS: Final = 240
_MOST_EVENTS: Final = 51
_STATES: Final = ("supported", "deprecated", "experimental", "yanked")
_KINDS: Final = ("image", "audio", "text", "table")
_SIZES: Final = {"below 1 MB": (0, 10**6), "1 MB to 1 GB": (10**6, 10**9), "1 GB or more": (10**9, None)}


@dataclass(frozen=True, slots=True)
class _Shelf:
    """All datasets of a catalog by name, as its event ``head`` left them, and the values that filters offer."""

    head: Hashable
    datasets: Sequence[DatasetSummary]
    tags: list[str]
    licenses: list[str]


_SHELVES: Final = Remembered(4)
"""Listing 10,000 datasets takes half a second; most visits follow another one, with few events in between."""


def home(visit: Visit) -> Page:
    """The datasets that meet the conditions of the address, 24 to a page; in a site of files all, 200 to a page."""
    query, shelf = visit.query, shelf_of(visit)
    names = ("q", "tag", "state", "kind", "license", "size")
    conditions = {name: query.get(name, "").strip() for name in names if visit.is_live and not visit.path}
    sort = (conditions and query.get("sort")) or "name"
    for name, choices in (("kind", _KINDS), ("size", _SIZES), ("state", _STATES), ("sort", SORTS)):
        if (value := {**conditions, "sort": sort}.get(name)) and value not in choices:
            raise UsageError(f"unknown {name} {value!r:.60}", hint=suggest(value, choices, have="Possible are:"))
    datasets = list(_matching(visit, shelf, conditions))
    if sort != "name" and not conditions["q"]:
        datasets.sort(key=attrgetter(SORTS[sort]), reverse=True)
    first, most = (_first(query.get("after", ""), datasets), _CARDS) if conditions else (_start(visit.path), _LISTED)
    cards = datasets[first : first + most]
    if first and not cards:
        raise NotFoundError(f"there is no page {'/'.join(visit.path)!r:.200}", hint="Begin at the home page.")
    follows = len(datasets) > first + most
    values = {
        "datasets": [_card(summary) for summary in cards],
        "num_datasets": len(datasets),
        "is_cut": bool(conditions.get("q")) and len(datasets) == _MOST_HITS,
        "first": first,
        "after": cards[-1].dataset if follows and conditions else None,
        "next_page": (LISTED, f"from-{first + most}") if follows and not conditions else None,
        "conditions": dict.fromkeys(names, "") | conditions | {"sort": sort},
        "is_filtered": any(conditions.values()),
        "choices": {
            "kind": _KINDS,
            "license": shelf.licenses,
            "tag": shelf.tags,
            "size": list(_SIZES),
            "state": _STATES,
            "sort": list(SORTS),
        },
    }
    return Page(name="home", title="Datasets", values=values)


def shelf_of(visit: Visit) -> _Shelf:
    """All datasets that the visitor may see, as the newest event left them."""
    shelf: _Shelf | None = _SHELVES.get(visit.memory, lambda: None)
    event = next(iter(visit.catalog.log(limit=1)), None)
    if shelf is None or shelf.head != (event and event.hash):
        shelf = _make_shelf(visit.catalog, event and event.hash, shelf)
        _SHELVES.keep(visit.memory, shelf)
    return shelf


def _make_shelf(catalog: Catalog, head: Hashable, before: _Shelf | None) -> _Shelf:
    """The current datasets. Those that events since ``before`` name are listed again; all if there are other events."""
    events = () if before is None else tuple(catalog.log(limit=_MOST_EVENTS))
    heads: list[Hashable] = [event.hash for event in events]
    new = events[heads.index(before.head) + 1 :] if before is not None and before.head in heads else ()
    if before is not None and new and all(event.dataset for event in new):
        names = {event.dataset.partition("/")[0] for event in new}
        names |= {event.details["after"] for event in new if event.action == "rename"}
        listed = [summary for name in names for summary in catalog.datasets(like=f"{name}*") if summary.name == name]
        listed += [summary for summary in before.datasets if summary.name not in names]
        datasets: Sequence[DatasetSummary] = sorted(listed, key=lambda summary: (summary.name, summary.config or ""))
        head = heads[-1]
    else:
        datasets = catalog.datasets()
    tags = sorted({tag for summary in datasets for tag in summary.config_tags})[:_MOST_CHOICES]
    licenses = Counter(summary.license for summary in datasets if summary.license).most_common(_MOST_CHOICES)
    return _Shelf(head, datasets, tags, sorted(name for name, _ in licenses))


def _matching(visit: Visit, shelf: _Shelf, conditions: dict[str, str]) -> Iterator[DatasetSummary]:
    """The datasets that meet the conditions, the best match of a search first."""
    datasets: Sequence[DatasetSummary] = shelf.datasets
    if words := conditions.get("q", ""):
        by_name = {summary.dataset: summary for summary in datasets}
        hits = visit.catalog.search(words, limit=_MOST_HITS)
        datasets = [by_name[hit.dataset] for hit in hits if hit.dataset in by_name]
    tag, state, kind, license_ = (conditions.get(name, "") for name in ("tag", "state", "kind", "license"))
    low, high = _SIZES.get(conditions.get("size", ""), (0, None))
    for summary in datasets:
        is_state = state == ("supported" if summary.status == "canonical" else summary.status)
        if (
            (not is_state if state else summary.is_withdrawn)
            or (tag and tag not in summary.config_tags)
            or (license_ and license_ != summary.license)
            or (kind and kind not in (summary.kinds or ("table",)))
            or summary.num_bytes < low
            or (high is not None and summary.num_bytes >= high)
        ):
            continue
        yield summary


def _start(path: tuple[str, ...]) -> int:
    """The place of the first dataset at the address ``list/from-200``."""
    match = re.fullmatch(rf"{LISTED}/from-(\d{{1,9}})", "/".join(path)) if path else None
    if path and match is None:
        raise NotFoundError(f"there is no page {'/'.join(path)!r:.200}", hint="Begin at the home page.")
    return 0 if match is None else int(match[1])


def _first(after: str, datasets: Sequence[DatasetSummary]) -> int:
    """The place after the dataset ``after``, which is the last one of the previous page."""
    places = (place + 1 for place, summary in enumerate(datasets) if summary.dataset == after)
    if (place := next(places, None) if after else 0) is None:
        raise NotFoundError(f"no dataset {after!r:.80} meets these conditions", hint="Begin at the first page.")
    return place


def _card(summary: DatasetSummary) -> dict[str, Any]:
    version = summary.canonical or summary.latest
    path = version_path(Reference.exactly(summary.name, summary.config, version))
    return {
        **fields_of(summary, "dataset", "status", "num_versions", "num_examples", "num_bytes", "splits"),
        "description": first_words(summary.description, 160),
        **fields_of(summary, "published_at", "config_tags", "is_empty", "license"),
        "version": version,
        "kinds": summary.kinds or ("table",),
        "path": path,
        "preview": (*path, "preview.png"),
    }
