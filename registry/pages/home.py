"""The home page: the datasets of the catalog as cards, with search and filters that are part of the address."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

from registry.api import Catalog, Dataset
from registry.catalog import DatasetSummary
from registry.envelope import fields_of
from registry.errors import RegistryError
from registry.pages.page import DATASETS, Page, Visit
from registry.pages.previews import preview

_CARDS: Final = 24
_SORTS: Final = ("name", "date", "size", "examples", "versions")
_STATES: Final = ("supported", "deprecated", "experimental", "yanked")


def home(visit: Visit) -> Page:
    """The datasets that meet the conditions of the address, 24 to a page."""
    query = visit.query
    words, tag, state = query.get("q", "").strip(), query.get("tag", ""), query.get("state", "")
    sort = query["sort"] if query.get("sort") in _SORTS else "name"
    datasets = visit.catalog.datasets(tags=[tag] if tag else (), state=state or None, sort=sort)
    tags = sorted({name for summary in datasets for name in summary.config_tags})[:200]
    if words:
        ranks = {hit.dataset: place for place, hit in enumerate(visit.catalog.search(words, limit=1000))}
        datasets = tuple(sorted((it for it in datasets if it.dataset in ranks), key=lambda it: ranks[it.dataset]))
    if not state:
        datasets = tuple(summary for summary in datasets if not summary.is_withdrawn)
    first = _first(query.get("after", ""), datasets) if visit.is_live else 0
    cards = datasets[first : first + _CARDS] if visit.is_live else datasets
    newest = max((event.id for event in visit.catalog.log(limit=1)), default=0)
    follows = visit.is_live and len(datasets) > first + _CARDS
    values = {
        "datasets": [_card(visit, summary, newest) for summary in cards],
        "num_datasets": len(datasets),
        "first": first,
        "after": cards[-1].dataset if follows else None,
        "words": words,
        "conditions": {"tag": tag, "state": state, "sort": sort},
        "tags": tags,
        "sorts": _SORTS,
        "states": _STATES,
    }
    return Page(name="home", title="Datasets", values=values)


def _first(after: str, datasets: Sequence[DatasetSummary]) -> int:
    """The place behind the dataset ``after``, which is the last one of the page before."""
    return next((place + 1 for place, summary in enumerate(datasets) if summary.dataset == after), 0)


def _card(visit: Visit, summary: DatasetSummary, newest: int) -> dict[str, Any]:
    version = summary.canonical or summary.latest
    name = summary.name if summary.config is None else f"{summary.name}/{summary.config}"
    card: dict[str, Any] = {
        **fields_of(summary, "dataset", "status", "num_versions", "num_examples", "num_bytes", "splits"),
        **fields_of(summary, "published_at", "description", "config_tags", "is_empty"),
        "version": version,
        "path": (DATASETS, *name.split("/"), str(version)),
        "preview": None,
        "license": "",
    }
    with suppress(RegistryError, OSError):
        card |= _details(visit.catalog, f"{name}:{version}", newest)
    return card


@lru_cache(maxsize=1_000)
def _details(catalog: Catalog, reference: str, _newest: int) -> dict[str, Any]:
    """What no summary has. It takes 10 ms, so it is kept until the next event of the catalog."""
    dataset: Dataset = catalog.look_up(reference)
    return {"license": dataset.metadata.license, "preview": preview(dataset)}
