"""Shards changed behind the catalog's back: what contradicts itself is an error of the catalog, and no wrong answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from support.catalog_samples import damage, publish
from support.catalog_stored import find_stored, small_blocks

from registry.catalog import CatalogBackend
from registry.errors import CatalogError
from registry.model import ShardLengths
from registry.splits import resolve

DAMAGED = [3, 0, 4, 5, 1, 1, 0, 2, 6, 0, 0, 7, 8, 0]
SHARDS = [
    "DELETE FROM shard",
    "DELETE FROM shard WHERE shard_index = 0",
    "DELETE FROM shard WHERE shard_index = 5",
    "DELETE FROM shard WHERE shard_index = 13",
    "DELETE FROM shard WHERE shard_index >= 8",
    "INSERT INTO shard SELECT split_id, 14, 37, 0, 0, sha256, NULL FROM shard WHERE shard_index = 13",
    "UPDATE shard SET shard_index = 20 WHERE shard_index = 7",
    "UPDATE shard SET num_examples = 2 WHERE shard_index = 5",
    "UPDATE shard SET num_examples = 0 WHERE shard_index = 5",
    "UPDATE shard SET num_examples = 9 WHERE shard_index = 13",
    "UPDATE shard SET first_example = 1 WHERE shard_index = 0",
    "UPDATE shard SET first_example = 13 WHERE shard_index = 4",
    "UPDATE shard SET first_example = 0",
]
# What shows where it begins or ends, and not between.
WHOLES = [
    "UPDATE shard SET first_example = first_example + 1 WHERE shard_index >= 8",
    "UPDATE split SET num_examples = num_examples + 1",
    "UPDATE split SET num_examples = num_examples - 9",
    "UPDATE split SET num_shards = num_shards + 1",
    "UPDATE split SET num_shards = num_shards - 1",
    "UPDATE split SET num_shards = 8",
    "UPDATE split SET num_shards = 400",
]
# What only SQLite stores, which looks at no type.
TYPES = [
    "UPDATE shard SET num_examples = -1 WHERE shard_index = 5",
    "UPDATE shard SET num_examples = 1.5 WHERE shard_index = 5",
    "UPDATE shard SET num_examples = 'many' WHERE shard_index = 5",
    "UPDATE shard SET num_examples = x'ff' WHERE shard_index = 5",
    "UPDATE shard SET first_example = 'there' WHERE shard_index = 4",
    "UPDATE shard SET first_example = 13.5 WHERE shard_index = 4",
    "UPDATE shard SET shard_index = 'five' WHERE shard_index = 5",
    "UPDATE split SET num_shards = 'many'",
    "UPDATE split SET num_shards = 14.5",
    "UPDATE split SET num_examples = 'many'",
]
# What only some questions come across.
HALF_SEEN = [
    "INSERT INTO shard SELECT split_id, 999, 5, 9, 0, sha256, NULL FROM shard WHERE shard_index = 13",
    "UPDATE shard SET first_example = 30 WHERE shard_index = 5",
    "UPDATE shard SET first_example = 2 WHERE shard_index = 8",
]


def ask_everything(catalog: CatalogBackend) -> None:
    """Ask for every record and every shard, each time of an object that has loaded nothing yet."""
    stored = find_stored(catalog, "mnist")
    for position in range(stored.num_examples):
        stored.shard_of(position)
    stored = find_stored(catalog, "mnist")
    for index in range(len(stored)):
        stored.start(index)
    list(find_stored(catalog, "mnist"))


@pytest.mark.parametrize("statement", [*SHARDS, *WHOLES])
def test_damaged_rows_are_an_error_of_the_catalog(catalog: CatalogBackend, catalog_url: str, statement: str) -> None:
    publish(catalog, "mnist:1.0.0", lengths={"train": DAMAGED})
    damage(catalog_url, statement)

    with small_blocks(), pytest.raises(CatalogError, match=r"^the catalog is damaged: ") as caught:
        ask_everything(catalog)

    assert caught.value.hint == "Restore it from a copy; registry db check looks at the rest."


@pytest.mark.parametrize(
    ("statement", "question"),
    [
        ("UPDATE shard SET first_example = first_example + 1", lambda lengths: lengths.start(0)),
        ("UPDATE shard SET first_example = first_example + 1", lambda lengths: lengths.start(13)),
        ("INSERT INTO shard SELECT split_id, 14, 37, 0, 0, sha256, NULL FROM shard WHERE shard_index = 13", list),
    ],
)
def test_shards_that_do_not_fill_their_split_from_end_to_end_are_damaged(
    catalog: CatalogBackend, catalog_url: str, statement: str, question: Callable[[ShardLengths], Any]
) -> None:
    publish(catalog, "mnist:1.0.0", lengths={"train": DAMAGED})
    damage(catalog_url, statement)

    with small_blocks(), pytest.raises(CatalogError, match=r"contradict the adjacent ones(?m:$)"):
        question(find_stored(catalog, "mnist"))


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("statement", TYPES)
def test_values_of_another_type_are_an_error_of_the_catalog(
    catalog: CatalogBackend, catalog_url: str, statement: str
) -> None:
    publish(catalog, "mnist:1.0.0", lengths={"train": DAMAGED})
    damage(catalog_url, statement)

    with small_blocks(), pytest.raises(CatalogError):
        ask_everything(catalog)


@pytest.mark.parametrize("statement", [*SHARDS, *HALF_SEEN])
def test_whatever_is_asked_of_damaged_rows_is_answered_right_or_refused(
    catalog: CatalogBackend, catalog_url: str, statement: str
) -> None:
    published = publish(catalog, "mnist:1.0.0", lengths={"train": DAMAGED})
    in_memory = published.splits[0].shard_lengths
    asked: list[Callable[[ShardLengths], Any]] = [
        *(lambda lengths, position=position: lengths.shard_of(position) for position in range(37)),
        *(lambda lengths, index=index: lengths.start(index) for index in range(14)),
        *(lambda lengths, index=index: lengths[index : index + 5] for index in range(14)),
        *(lambda lengths, start=start: list(resolve(f"train[{start}:30]", {"train": lengths})) for start in range(30)),
    ]
    with small_blocks():
        fresh = [find_stored(catalog, "mnist") for _ in asked]
        damage(catalog_url, statement)

        for question, stored in zip(asked, fresh, strict=True):
            with suppress(CatalogError):
                assert question(stored) == question(in_memory)
