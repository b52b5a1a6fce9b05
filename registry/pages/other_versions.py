"""Where other versions have a record: by its key if a feature is the key of both, otherwise by its digest.

A record at the same place with the same digest is the same record. Otherwise, the split of the other version is
searched if it is small or the visitor requests it; without a search, the page shows the record at the same place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np

from registry.api import Dataset
from registry.display import time_types
from registry.errors import RegistryError
from registry.features.containers import columns_of, content_path
from registry.pages.cells import STORED_ORDER
from registry.pages.page import Visit, version_path
from registry.pages.previews import Remembered
from registry.pages.selection import Question, select
from registry.publishing.changes import common_features, common_key
from registry.reading.conditions import column_text, is_comparable, text_literal

_MOST_VERSIONS: Final = 5
_AT_ONCE: Final = 4 * 2**20
_ON_REQUEST: Final = 2**30
"""How many bytes of records are searched in all of these versions: at once, and if the visitor asks for it."""

_DIGESTS: Final = Remembered(2**26, lambda digests: digests.nbytes)


def digest_of(record: bytes | memoryview[int]) -> str:
    """The sha256 of a stored record."""
    return hashlib.sha256(record).hexdigest()


def other_versions(
    visit: Visit, dataset: Dataset, split: str, index: int, digest: str, example: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Where the newest five other versions have a record, which is ``example``; those on this machine that can be read.

    ``index`` of each is the number of the record there, or None. ``by`` says how it was found: ``place``, ``key`` or
    ``digest``; ``place`` without ``is_equal`` is another record, whose split was not searched.
    """
    room = _ON_REQUEST if visit.may_read_much and visit.query.get("search") == "1" else _AT_ONCE
    brief = () if visit.site is None else visit.site.brief  # their records have no pages
    summaries = visit.catalog.versions(dataset.reference, limit=_MOST_VERSIONS + 1)
    paths = {version_path(it.reference): it for it in summaries if str(it.status) != "dropped"}
    result: list[dict[str, Any]] = []
    for path, summary in paths.items():
        if path in brief or summary.version == dataset.version or len(result) == _MOST_VERSIONS:
            continue
        place, by, key = index, "place", None
        is_equal = summary.content_digest == dataset.facts.content_digest  # then, no look at the record is needed
        with suppress(RegistryError, OSError):
            if not is_equal:
                other = visit.catalog.look_up(summary.reference)
                if not other.folder.startswith("file:") or split not in other.splits:
                    continue
                is_there = index < other.splits[split].num_examples
                is_equal = is_there and _digest_at(other, split, index) == digest
                room -= 0 if is_equal else other.splits[split].num_bytes
                if not is_equal and room >= 0:
                    place, by, key = _search(dataset, other, split, example, digest)
                    is_equal = place >= 0 and _digest_at(other, split, place) == digest
                elif not is_there:
                    place = -1
            row = {"version": summary.version, "path": path, "index": place if place >= 0 else None, "by": by}
            is_linked = visit.is_live or visit.most_records is None or place < visit.most_records
            result.append({**row, "key": key, "is_equal": is_equal, "is_linked": is_linked})
    return result


def _search(
    dataset: Dataset, other: Dataset, split: str, example: Mapping[str, Any], digest: str
) -> tuple[int, str, str | None]:
    """The number of the record in another version, or -1; how it was searched for; and the key."""
    key = common_key(other.facts, dataset.facts, common_features(other.facts, dataset.features))
    condition = None if key is None else _condition(dataset, key, example)
    if condition is not None:
        found = select(other, other.resolve(split), Question(where=condition), -1, 1)
        if not found.missing:
            return next(iter(found.positions), -1), "key", key

    def make() -> Any:
        pieces = (bytes.fromhex(digest_of(record))[:8] for record in _records(other, split))
        return np.frombuffer(b"".join(pieces), np.uint64)

    digests = _DIGESTS.get((other.reference, other.facts.content_digest, split), make)
    places = np.flatnonzero(digests == np.frombuffer(bytes.fromhex(digest)[:8], np.uint64))
    return int(places[0]) if places.size else -1, "digest", None


def _condition(dataset: Dataset, key: str, example: Mapping[str, Any]) -> str | None:
    """The condition that selects the record with the key of an example; None if no condition can."""
    column = next(it for it in columns_of(dataset.features) if content_path(it.names) == key)
    if not is_comparable(column) or column.path in time_types(dataset.features, dataset.metadata):
        return None
    name, value = column_text(column.path), example[column.names[0]]
    with suppress(UnicodeDecodeError):
        literal = text_literal(value.decode()) if isinstance(value, bytes) else str(value)
        return None if name is None or isinstance(value, float | np.floating) else f"{name} == {literal}"
    return None


def _records(dataset: Dataset, expression: str) -> Iterator[bytes | memoryview[int]]:
    return dataset.read(expression, STORED_ORDER, keep=None).records()


def _digest_at(dataset: Dataset, split: str, index: int) -> str:
    return digest_of(next(_records(dataset, f"{split}[{index}:{index + 1}]")))
