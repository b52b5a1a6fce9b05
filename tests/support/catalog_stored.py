"""Splits whose shard lengths stay in the catalog, in blocks that are small enough to test them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from registry.catalog import CatalogBackend, paging, queries
from registry.catalog.paging import LoadedShardLengths


@contextmanager
def small_blocks() -> Iterator[None]:
    """Every split is stored, in blocks of four shards, and two blocks come with one query."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queries, "_EAGER", -1)
        patch.setattr(paging, "_BLOCK", 4)
        patch.setattr(paging, "_BLOCKS_AT_ONCE", 2)
        yield


def find_stored(catalog: CatalogBackend, reference: str, split: str = "train") -> LoadedShardLengths:
    """The shard lengths of one split, of which nothing is loaded yet."""
    lengths = catalog.find(reference).split(split).shard_lengths
    assert isinstance(lengths, LoadedShardLengths)
    return lengths
