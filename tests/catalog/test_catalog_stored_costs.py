"""A slice of very many shards reads those at its ends and no others: as little of 60,000 shards as of 6,000."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
from support.catalog_costs import explain, measuring, rows_read
from support.catalog_samples import execute, publish
from support.catalog_stored import find_stored, small_blocks

from registry.catalog import CatalogBackend, open_catalog, paging
from registry.model import DatasetVersion, ShardLengths
from registry.splits import resolve

BLOCK = paging._BLOCK


@pytest.fixture(scope="module")
def large(lasting_url: str) -> tuple[str, DatasetVersion]:
    """The URL of a catalog, and the version ``large`` in it: 30,000 shards in ``train``, 6,000 in ``test``.

    Some shards are empty in the first and last twentieth of a split, alone and in rows.
    """

    def length(index: int, num_shards: int) -> int:
        is_outside = not num_shards // 20 <= index < num_shards - num_shards // 20
        return 0 if is_outside and (index % 50 == 0 or index % 100 < 9) else 1 + index % 7

    lengths = {
        name: [length(index, num_shards) for index in range(num_shards)]
        for name, num_shards in {"train": 30_000, "test": 6_000}.items()
    }
    with open_catalog(lasting_url) as catalog:
        version = publish(catalog, "large:1.0.0", lengths=lengths)
    return lasting_url, version


def of_shards(first: int, stop: int) -> Callable[[ShardLengths], str]:
    """A slice that begins and ends inside shards ``first`` and ``stop - 1``, counted from the middle of the split."""

    def print_slice(lengths: ShardLengths) -> str:
        middle = len(lengths) // 2 // BLOCK * BLOCK
        return f"[{lengths.start(middle + first) + 1}:{lengths.start(middle + stop) - 1}]"

    return print_slice


@pytest.mark.parametrize(
    ("bounds", "num_selects"),
    [
        (of_shards(11, 21), 1),
        (of_shards(-5, 5), 2),  # in two blocks
        (of_shards(-900, 900), 3),  # the blocks of its ends, and the empty shards between
        (lambda _: "[10%:90%]", 3),
        (lambda lengths: f"[{len(lengths) // 2 - 5}shard:{len(lengths) // 2 + 5}shard]", 1),
        (lambda lengths: f"[{len(lengths) // 10}shard:-{len(lengths) // 10}shard]", 3),
    ],
)
def test_planning_a_slice_reads_as_little_of_many_shards_as_of_few(
    large: tuple[str, DatasetVersion], bounds: Callable[[ShardLengths], str], num_selects: int
) -> None:
    url, published = large
    work = {}
    for split in published.splits:
        expression = split.name + bounds(split.shard_lengths)
        with open_catalog(url) as catalog:
            layout = catalog.find("large").layout
            with measuring() as meter:
                plan = resolve(expression, layout)
                num_files = len(plan)

        assert num_files == len(resolve(expression, published.layout))
        assert len(meter.selects) == num_selects
        assert meter.values <= min(num_selects, 2) * BLOCK
        work[split.name] = meter.steps or rows_read(url, meter)
    # Five times as many shards, and no more to do.
    assert work["train"] == work["test"]


@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("bounds", ["[50%:51%]", "[10%:90%]"])
def test_a_split_unlike_what_statistics_say_is_sliced_as_cheaply(
    catalog: CatalogBackend, catalog_url: str, bounds: str
) -> None:
    execute(catalog_url, "ALTER TABLE shard SET (autovacuum_enabled = false)")
    publish(catalog, "old:1.0.0", lengths={"train": [1, 0, 0, 0] * 4_000})
    execute(catalog_url, "ANALYZE")  # most shards are empty, and there is one split
    publish(catalog, "young:1.0.0", lengths={"train": [1] * 8_000})
    layout = catalog.find("young").layout

    with measuring() as meter:
        resolve(f"train{bounds}", layout)

    assert rows_read(catalog_url, meter) <= 2 * BLOCK + 10
    execute(catalog_url, "ANALYZE")
    assert rows_read(catalog_url, meter) <= 2 * BLOCK + 10


@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
def test_a_record_behind_a_long_row_of_empty_shards_is_found_at_once(catalog: CatalogBackend, catalog_url: str) -> None:
    lengths = ShardLengths([1] * 9 + [0] * 20_000 + [1] * 9)
    publish(catalog, "mnist:1.0.0", lengths={"train": lengths})
    stored = find_stored(catalog, "mnist")

    with measuring() as meter:
        assert stored.shard_of(9) == lengths.shard_of(9)

    assert rows_read(catalog_url, meter) <= 2 * BLOCK


def test_what_is_loaded_is_not_asked_for_again(catalog: CatalogBackend) -> None:
    lengths = ShardLengths([1, 0, 2, 3] * 5)
    publish(catalog, "mnist:1.0.0", lengths={"train": lengths})
    with small_blocks():
        stored = find_stored(catalog, "mnist")
        stored[4:12]
        with measuring() as meter:
            assert [stored.shard_of(position) for position in range(6, 18)] == [
                lengths.shard_of(position) for position in range(6, 18)
            ]
            assert [stored.start(index) for index in range(4, 12)] == [lengths.start(index) for index in range(4, 12)]
            assert (stored[5:11], stored[7]) == (lengths[5:11], lengths[7])
            assert stored.empty_shards(4, 12) == lengths.empty_shards(4, 12)
            assert meter.selects == []

            for _ in range(2):
                assert list(stored) == list(lengths)
                assert len(meter.selects) == 3  # for the blocks 0, 3 and 4


@pytest.mark.parametrize("expression", ["train[10%:90%]", "train", "test[:7%]+train[-30%:]", "all"])
def test_the_files_of_a_wide_slice_are_read_in_few_queries(large: tuple[str, DatasetVersion], expression: str) -> None:
    url, published = large
    with open_catalog(url) as catalog:
        plan = resolve(expression, catalog.find("large").layout)
        with measuring() as meter:
            files = list(plan)

    assert files == list(resolve(expression, published.layout))
    assert len(meter.selects) <= 8
    assert meter.values <= len(files) * 1.2 + 4 * BLOCK


def test_finding_a_version_loads_none_of_its_shard_lengths(large: tuple[str, DatasetVersion]) -> None:
    url, published = large
    with open_catalog(url) as catalog, measuring() as meter:
        found, again = catalog.find("large"), catalog.find("large")

        assert [split.num_shards for split in found.splits] == [30_000, 6_000]
        assert found == again
        assert hash(found.splits[0]) == hash(published.splits[0])
        assert copy.copy(found) == copy.deepcopy(found) == found
        assert len(meter.selects) == 4
        assert meter.values == 0
        assert found.splits == published.splits


def test_statements_find_their_rows_by_an_index(large: tuple[str, DatasetVersion]) -> None:
    url, _ = large
    with open_catalog(url) as catalog, measuring() as meter:
        stored = find_stored(catalog, "large")
        stored.shard_of(100_000)
        stored.empty_shards(10, 50_000)
        stored.start(777)
        selects = [select for select in meter.selects if "FROM shard" in select[0]]
    assert len(selects) == 4

    for _ in range(2):
        assert [scans(url, *select) for select in selects] == [[]] * 4
        assert sum("ix_shard_empty" in line for select in selects for line in explain(url, *select)) == 1
        execute(url, "ANALYZE")  # from now on planners know how many rows there are


def scans(url: str, statement: str, parameters: Any) -> list[str]:
    """Where the database would read all rows of the table ``shard`` to answer."""
    return [line for line in explain(url, statement, parameters) if re.search(r"SCAN shard|Seq Scan on shard", line)]


def test_empty_shards_are_read_from_their_index_alone(large: tuple[str, DatasetVersion]) -> None:
    url, published = large
    with open_catalog(url) as catalog, measuring() as meter:
        stored = find_stored(catalog, "large")
        for first, stop in ((0, 60_000), (2_000, 58_000), (3_000, 57_000)):
            meter.values = meter.steps = 0
            found = stored.empty_shards(first, stop)

            assert found == published.splits[0].shard_lengths.empty_shards(first, stop)
            assert meter.values == len(found)
            assert meter.steps <= 100 + 30 * len(found)
