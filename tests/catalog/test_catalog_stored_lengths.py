"""Shard lengths that stay in the catalog until they are asked for, and then answer as those in memory."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.catalog_forking import FORKING, in_child
from support.catalog_samples import damage, execute, publish, sample
from support.catalog_stored import find_stored, small_blocks
from support.levels import examples
from support.strategies import read_instructions, shard_lengths

from registry.catalog import CatalogBackend, load_shards, open_catalog, queries
from registry.catalog.paging import LoadedShardLengths
from registry.errors import RegistryError, UsageError
from registry.model import ShardLengths, SlicingRule
from registry.splits import Layout, Plan, ReadInstruction, resolve

NAMES = ("train", "test", "more")


@pytest.fixture(scope="module")
def publish_layout(lasting_url: str) -> Iterator[Callable[[Mapping[str, ShardLengths]], tuple[CatalogBackend, str]]]:
    """Publish a layout as a dataset of its own, and give the catalog and the dataset's name."""
    numbers = itertools.count(1)
    with open_catalog(lasting_url) as catalog:

        def publish_one(layout: Mapping[str, ShardLengths]) -> tuple[CatalogBackend, str]:
            name = f"layout_{next(numbers)}"
            publish(catalog, f"{name}:1.0.0", lengths=layout)
            return catalog, name

        yield publish_one


def layouts() -> st.SearchStrategy[dict[str, ShardLengths]]:
    return st.dictionaries(st.sampled_from(NAMES), shard_lengths(max_shards=30), min_size=1)


def questions(lengths: ShardLengths) -> st.SearchStrategy[Callable[[ShardLengths], Any]]:
    """What may be asked of shard lengths, as functions of them."""
    indices = st.integers(-len(lengths), len(lengths) - 1) if len(lengths) else st.nothing()
    positions = st.integers(0, lengths.num_examples - 1) if lengths.num_examples else st.nothing()
    bounds = st.tuples(st.integers(0, len(lengths)), st.integers(0, len(lengths)))
    return st.one_of(
        st.integers(-len(lengths) - 1, len(lengths)).map(lambda index: lambda asked: asked.start(index)),
        indices.map(lambda index: lambda asked: asked[index]),
        st.slices(len(lengths)).map(lambda chosen: lambda asked: asked[chosen]),
        st.slices(len(lengths)).map(lambda chosen: lambda asked: asked[chosen.start : chosen.stop]),
        positions.map(lambda position: lambda asked: asked.shard_of(position)),
        bounds.map(lambda pair: lambda asked: list(asked.empty_shards(*pair))),
        st.sampled_from([repr, list, len, hash, lambda asked: list(reversed(asked)), lambda asked: asked.num_examples]),
    )


@settings(max_examples=examples(30))
@given(layouts(), st.data())
def test_stored_lengths_answer_as_those_in_memory(publish_layout, layout, data: st.DataObject) -> None:
    catalog, name = publish_layout(layout)
    with small_blocks():
        for split, in_memory in layout.items():
            stored = find_stored(catalog, name, split)
            for question in data.draw(st.lists(questions(in_memory), max_size=12)):
                assert question(stored) == question(in_memory)
            assert stored == in_memory
            assert in_memory == stored
            assert stored == list(in_memory)
            assert stored != ShardLengths([*in_memory, 0])


@settings(max_examples=examples(30))
@given(layouts(), st.lists(read_instructions(st.sampled_from(NAMES)), min_size=1, max_size=8))
def test_slices_of_stored_lengths_are_those_of_lengths_in_memory(publish_layout, layout, instructions) -> None:
    catalog, name = publish_layout(layout)
    with small_blocks():
        in_memory = sample(f"{name}:1.0.0", layout)[0].layout
        for instruction, rule in itertools.product([*instructions, *layout, "all"], SlicingRule):
            found = plan_or_mistake(instruction, catalog.find(name).layout, rule)
            expected = plan_or_mistake(instruction, in_memory, rule)
            assert list(found) == list(expected)
            assert len(found) == len(expected)
            assert found == expected


def plan_or_mistake(instruction: str | ReadInstruction, layout: Layout, rule: SlicingRule) -> Plan | str:
    """The plan, or the name and message of the error where there is none."""
    try:
        return resolve(instruction, layout, slicing=rule)
    except RegistryError as error:
        return f"{type(error).__name__}: {error}"


def test_a_split_of_few_shards_comes_with_its_lengths(catalog: CatalogBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "_EAGER", 3)
    publish(catalog, "mnist:1.0.0", lengths={"train": [1, 0, 2, 3], "test": [1, 0, 2], "none": []})

    kinds = {split.name: type(split.shard_lengths) for split in catalog.find("mnist").splits}

    assert kinds == {"train": LoadedShardLengths, "test": ShardLengths, "none": ShardLengths}


def test_a_position_beyond_the_records_is_refused(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    with small_blocks():
        stored = find_stored(catalog, "mnist")

    for position in (-1, 7, 2**70):
        with pytest.raises(UsageError, match=f"split 'train' has 7 records, but none at {position}"):
            stored.shard_of(position)


def test_shards_keep_their_order_however_their_rows_lie(catalog: CatalogBackend, catalog_url: str) -> None:
    lengths = ShardLengths([index % 100 for index in range(20_000)])
    publish(catalog, "mnist:1.0.0", lengths={"train": lengths})
    damage(catalog_url, "UPDATE shard SET num_bytes = 5 WHERE shard_index % 3 = 0")  # PostgreSQL writes them anew
    execute(catalog_url, "ANALYZE")

    stored = find_stored(catalog, "mnist")
    assert stored.empty_shards(3_000, 20_000) == lengths.empty_shards(3_000, 20_000)
    assert stored == lengths


def test_stored_lengths_travel_as_lengths_in_memory(catalog: CatalogBackend) -> None:
    lengths = ShardLengths([3, 0, 4, 5, 1, 0])
    publish(catalog, "mnist:1.0.0", lengths={"train": lengths})
    with small_blocks():
        stored = find_stored(catalog, "mnist")
        sent = pickle.loads(pickle.dumps(stored))  # noqa: S301 (made here)

    assert type(sent) is ShardLengths
    assert (sent, hash(sent)) == (lengths, hash(stored))
    assert copy.copy(stored) is copy.deepcopy(stored) is stored


def test_threads_share_stored_lengths(lasting_url: str) -> None:
    lengths = ShardLengths([(index * 7919) % 5 for index in range(900)])
    barrier = Barrier(8, timeout=60)
    with open_catalog(lasting_url) as catalog, small_blocks():
        publish(catalog, "threads:1.0.0", lengths={"train": lengths})
        stored = find_stored(catalog, "threads")

        def ask(number: int) -> bool:
            barrier.wait()
            positions = range(number, lengths.num_examples, 97)
            return (
                all(stored.shard_of(position) == lengths.shard_of(position) for position in positions)
                and list(stored) == list(lengths)
                and list(stored.empty_shards(0, 900)) == list(lengths.empty_shards(0, 900))
            )

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(ask, range(8)))
        assert stored == lengths


@FORKING
def test_a_forked_child_and_its_parent_both_go_on_loading(catalog: CatalogBackend) -> None:
    lengths = list(range(40))
    publish(catalog, "mnist:1.0.0", lengths={"train": lengths})
    with small_blocks():
        stored = find_stored(catalog, "mnist")
        assert stored[:5] == ShardLengths(lengths)[:5]

        assert in_child(lambda: list(stored) == lengths)
        assert list(stored) == lengths


def test_what_a_closed_catalog_gave_still_loads(catalog_url: str) -> None:
    with open_catalog(catalog_url) as catalog, small_blocks():
        published = publish(catalog, "mnist:1.0.0")
        found = catalog.find("mnist")
        catalog.close()

        assert resolve("train[1:5]", found.layout) == resolve("train[1:5]", published.layout)


def test_a_version_with_stored_lengths_is_published_like_any_other(catalog: CatalogBackend, tmp_path: Path) -> None:
    version, shards = sample("mnist:1.0.0", {"train": [3, 0, 4, 1, 0, 2], "test": []})
    catalog.publish(version, shards, promote=True, actor="ann")
    with small_blocks(), open_catalog(tmp_path / "other.db") as other:
        found = catalog.find("mnist")

        assert not catalog.publish(found, shards, promote=True, actor="bob"), "it is there already"
        assert other.publish(found, shards, promote=True, actor="bob")
        assert {name: load_shards(other.shards, found, name) for name in shards} == shards
        assert other.find("mnist").splits == version.splits
        wrong = {**shards, "train": (*shards["train"][:5], shards["train"][4])}
        with pytest.raises(UsageError, match="shard 5 does not fit"):
            catalog.publish(found, wrong, promote=True, actor="bob")


def test_a_split_that_does_not_exist_has_no_lengths(catalog: CatalogBackend) -> None:
    assert catalog.shards.lengths_at(999_999, 0, 512) is None
    block = catalog.shards.lengths_between(999_999, 0, 3)
    assert (block.first, block.start, tuple(block.lengths), block.following) == (0, 0, (), None)
