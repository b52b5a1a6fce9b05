"""How long are the shards of a split that has very many? Loaded in blocks when they are asked for, and kept for good.

A slice of a million shards needs the few at its ends, which one query finds by the first record, and the empty ones
between them, which have an index of their own. Published rows never change, so what was loaded stays right.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from operator import index as whole_number
from typing import Any, Final, NamedTuple, overload

import sqlalchemy as sa

from registry.catalog.rows import damaged, json_agg, read_json, stored_values
from registry.catalog.session import reading
from registry.catalog.tables import shard
from registry.errors import UsageError
from registry.model import ShardLengths

_BLOCK: Final = 512
"""Shards of a block: few enough that reading them costs less than the query around it."""

_BLOCKS_AT_ONCE: Final = 128
"""Blocks of one query at most: what the driver and the JSON parser hold meanwhile stays at a few megabytes."""


class _Block(NamedTuple):
    """Shards ``number * _BLOCK`` and those after it; record ``start`` of the split is the first of theirs."""

    start: int
    lengths: ShardLengths

    @property
    def stop(self) -> int:
        """Position of the record after their last."""
        return self.start + self.lengths.num_examples


class StoredShardLengths(ShardLengths):
    """The shard lengths of a published split, loaded when they are asked for: two numbers until then, 17 bytes a shard.

    Equal to an in-memory ``ShardLengths`` of the same lengths, and pickled as one. Threads may share it and a fork may
    inherit it: there is no lock that a fork could find taken, two threads at worst load the same block twice.

    Raises, wherever something is loaded:
        CatalogError: the rows contradict each other or their split; they are damaged.
        CatalogUnavailableError: locked, not answering, or refusing the connection.
    """

    __slots__ = ("_blocks", "_engine", "_name", "_num_examples", "_num_shards", "_order", "_split_id")

    def __init__(self, engine: sa.Engine, *, split_id: int, name: str, num_shards: int, num_examples: int) -> None:
        """What the row of the split ``name`` says; its shards are loaded over connections of ``engine``."""
        # Not super().__init__(), which stores what it is given: every method that reads its arrays is defined anew.
        self._engine = engine
        self._split_id = split_id
        self._name = name
        self._num_shards = whole_number(num_shards)
        self._num_examples = whole_number(num_examples)
        self._blocks: dict[int, _Block] = {}
        self._order: list[int] = []  # the numbers of the blocks, sorted

    @property
    def num_examples(self) -> int:
        """Number of records in all shards; nothing is loaded."""
        return self._num_examples

    def start(self, index: int) -> int:
        """Position in the split of the first record of shard ``index``; ``start(len(self))`` is ``num_examples``."""
        place = range(len(self) + 1)[index]
        if place == len(self):
            return self._num_examples
        block = self._block(place // _BLOCK)
        return block.start + block.lengths.start(place % _BLOCK)

    def shard_of(self, position: int) -> int:
        """Index of the shard that holds record ``position`` (0 <= position < num_examples); empty shards hold none.

        At most one query, which finds the shard's block by an index and loads it.
        """
        if not 0 <= position < self._num_examples:
            raise UsageError(f"split {self._name!r} has {self._num_examples} records, and none at {position}")
        number = self._loaded_at(position)
        if number is None:
            number = self._load_at(position)
        block = self._blocks[number]
        return number * _BLOCK + block.lengths.shard_of(position - block.start)

    def empty_shards(self, first: int, stop: int) -> Sequence[int]:
        """Indices of the shards ``first``..``stop`` (stop excluded) that hold no record, in order.

        At most one query, which reads no other shard than those.
        """
        first, stop = max(first, 0), min(stop, len(self))
        numbers = _numbers(first, stop)
        if all(number in self._blocks for number in numbers):
            empty = array("q")
            for number in numbers:
                before = number * _BLOCK
                places = self._blocks[number].lengths.empty_shards(first - before, stop - before)
                empty.extend(before + place for place in places)
            return empty
        found = self._query(_empty_shards_query(), first=first, stop=stop)
        with stored_values():
            return array("q", read_json(found.empty) or ())

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        chosen = range(len(self))[index]
        if isinstance(chosen, int):
            return self._block(chosen // _BLOCK).lengths[chosen % _BLOCK]
        if not chosen:
            return array("q")
        first, last = sorted((chosen[0], chosen[-1]))
        return self._between(first, last + 1)[:: chosen.step]

    def __len__(self) -> int:
        return self._num_shards

    def __iter__(self) -> Iterator[int]:
        step = _BLOCK * _BLOCKS_AT_ONCE
        for first in range(0, len(self), step):
            yield from self._between(first, min(first + step, len(self)))

    def __eq__(self, other: object) -> bool:
        if (
            isinstance(other, StoredShardLengths)
            and (self._engine, self._split_id) == (other._engine, other._split_id)
            and (len(self), self.num_examples) == (len(other), other.num_examples)
        ):
            return True  # the same rows, found by two look-ups: nothing has to be loaded
        return super().__eq__(other)

    __hash__ = ShardLengths.__hash__

    def __copy__(self) -> StoredShardLengths:
        return self  # nobody can change it, and what one loads serves all

    def __deepcopy__(self, memo: dict[int, Any]) -> StoredShardLengths:
        return self

    def _between(self, first: int, stop: int) -> array[int]:
        """The lengths of shards ``first``..``stop`` (stop excluded, at least one)."""
        numbers = _numbers(first, stop)
        self._load(numbers)
        lengths = array("q")
        for number in numbers:
            before = number * _BLOCK
            lengths.extend(self._blocks[number].lengths[max(first - before, 0) : stop - before])
        return lengths

    def _block(self, number: int) -> _Block:
        if number not in self._blocks:
            self._load(range(number, number + 1))
        return self._blocks[number]

    def _loaded_at(self, position: int) -> int | None:
        """The number of the loaded block that holds record ``position``, or None."""
        # Of blocks that start at one record, the last one holds it; those before it hold empty shards only.
        order = self._order
        place = bisect_right(order, position, key=lambda number: self._blocks[number].start)
        return order[place - 1] if place and position < self._blocks[order[place - 1]].stop else None

    def _load(self, numbers: range) -> None:
        """Load what is missing of the blocks ``numbers``; those between the missing ones come along in one query."""
        missing = [number for number in numbers if number not in self._blocks]
        if not missing:
            return
        for number in range(missing[0], missing[-1] + 1, _BLOCKS_AT_ONCE):
            stop = min(number + _BLOCKS_AT_ONCE, missing[-1] + 1) * _BLOCK
            self._keep(self._query(_range_query(), first=number * _BLOCK, stop=min(stop, len(self))))

    def _load_at(self, position: int) -> int:
        """Load the block that holds record ``position``; its number."""
        row = self._query(_position_query(), position=position, block=_BLOCK)
        if row is not None:
            self._keep(row)
            block = self._blocks[row.first // _BLOCK]
            if block.start <= position < block.stop:
                return int(row.first // _BLOCK)
        raise damaged(f"no shard of split {self._name!r} holds its record {position}")

    def _query(self, query: sa.Select[Any], **parameters: int) -> Any:
        """The one row that answers ``query``, or None."""
        with reading(self._engine) as connection, stored_values():
            return connection.execute(query, {"split_id": self._split_id, **parameters}).first()

    def _keep(self, row: Any) -> None:
        """Keep the blocks of a row of ``_lengths_query``.

        Both ends are tied to the shards beside them, so that blocks fit together in whatever order they come.
        """
        loaded: dict[int, _Block] = {}
        with stored_values():
            lengths = read_json(row.lengths) or []
            stop = min(row.stop, len(self))
            contradiction = f"the shards {row.first}..{stop} of split {self._name!r} contradict those beside them"
            if len(lengths) != stop - row.first or (row.following is None) != (stop == len(self)):
                raise damaged(contradiction)
            position = row.start
            for place in range(0, len(lengths), _BLOCK):
                block = _Block(position, ShardLengths(lengths[place : place + _BLOCK]))
                loaded[(row.first + place) // _BLOCK] = block
                position = block.stop
        end = self._num_examples if row.following is None else row.following
        if position != end or (row.first == 0 and row.start != 0):
            raise damaged(contradiction)
        self._blocks.update(loaded)
        # Where two threads are here at once, the list that is set last may lack a block: then it is loaded again.
        self._order = sorted(self._blocks)


def _numbers(first: int, stop: int) -> range:
    """The numbers of the blocks that shards ``first``..``stop`` (stop excluded) lie in."""
    return range(first // _BLOCK, -(-stop // _BLOCK))


# A subquery, so that PostgreSQL plans for a split of average size. Of one that is younger than its statistics it would
# expect a single shard, take any index that begins with the split, and read a million.
_SPLIT: Final = shard.c.split_id == sa.select(sa.bindparam("split_id", type_=sa.Integer)).scalar_subquery()


@cache
def _range_query() -> sa.Select[Any]:
    """The lengths of shards ``first``..``stop``."""
    return _lengths_query(sa.bindparam("first", type_=sa.Integer), sa.bindparam("stop", type_=sa.Integer))


@cache
def _position_query() -> sa.Select[Any]:
    """The lengths of the ``block`` shards among which the record ``position`` lies."""
    block = sa.bindparam("block", type_=sa.Integer)
    # The filled shard of those that start there. Ordered by the index alone: ordered by number too, PostgreSQL would
    # read and sort the whole run of empty shards before it.
    found = (
        sa.select((shard.c.shard_index // block * block).label("first"))
        .where(_SPLIT, shard.c.first_example <= sa.bindparam("position", type_=sa.BigInteger), shard.c.num_examples > 0)
        .order_by(shard.c.first_example.desc())
        .limit(1)
        .subquery("found")
    )
    return _lengths_query(found.c.first, found.c.first + block)


def _lengths_query(first: sa.ColumnElement[int], stop: sa.ColumnElement[int]) -> sa.Select[Any]:
    """Of shards ``first``..``stop``: the first record, the lengths as JSON, and the first record of the shard after."""
    in_order = (
        sa.select(shard.c.num_examples)
        .where(_SPLIT, shard.c.shard_index >= first, shard.c.shard_index < stop)
        .order_by(shard.c.shard_index)
        .correlate_except(shard)
        .subquery("in_order")
    )
    return sa.select(
        first.label("first"),
        stop.label("stop"),
        _first_example(first).label("start"),
        sa.select(json_agg(in_order.c.num_examples)).scalar_subquery().label("lengths"),
        _first_example(stop).label("following"),
    )


def _first_example(index: sa.ColumnElement[int]) -> sa.ScalarSelect[int]:
    return (
        sa.select(shard.c.first_example)
        .where(_SPLIT, shard.c.shard_index == index)
        .correlate_except(shard)
        .scalar_subquery()
    )


@cache
def _empty_shards_query() -> sa.Select[Any]:
    """The empty ones of shards ``first``..``stop``, as JSON."""
    in_order = (
        sa.select(shard.c.shard_index)
        .where(
            _SPLIT,
            # A literal, as in ix_shard_empty: a plan made for any parameters cannot use a partial index.
            shard.c.num_examples == sa.literal_column("0"),
            shard.c.shard_index >= sa.bindparam("first", type_=sa.Integer),
            shard.c.shard_index < sa.bindparam("stop", type_=sa.Integer),
        )
        .order_by(shard.c.shard_index)
        .subquery("in_order")
    )
    return sa.select(json_agg(in_order.c.shard_index).label("empty"))
