"""Reads large parts of a catalog in pieces: events by pages, shards and their lengths by blocks.

It uses the catalog protocol only. A reader touches few of a million shards, so a block of rows is loaded when one of
its rows is first used, and kept, because published rows never change. A slice needs the lengths of the shards at its
ends, which one call finds by the position of a record, and the empty shards between them, which one call lists.
"""

from __future__ import annotations

import operator
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, overload

from registry.catalog.backend import CatalogBackend, EventFilter, EventPage, LengthBlock, LogCalls, ShardCalls
from registry.catalog.values import damaged, stored_values
from registry.errors import (
    CatalogUnavailableError,
    CatalogUnavailableWarning,
    SplitNotFoundError,
    UsageError,
    warn,
)
from registry.lazy import lazy_types
from registry.model import AbstractShardLengths, Shard, ShardLengths, Split, UntaggedShards, VersionState

if TYPE_CHECKING:
    from registry.model import DatasetVersion, Event, Promises, Reference
else:
    lazy_types(globals(), {"registry.model": "DatasetVersion Event Reference"})

_EVENTS: Final = 1000
"""Number of events on a page."""

_WAIT_SECONDS: Final = 10
_LEAST_PAUSE: Final = 0.5
_MOST_PAUSE: Final = 30
_PATIENCE_SECONDS: Final = 3600
"""How long those who follow the log ask a catalog that does not answer."""

_SHARDS: Final = 20_000
"""Number of shards that one call loads if all are read."""

_BLOCK: Final = 512
"""Number of shards in a block: reading them costs less than the call itself."""

_BLOCKS_AT_ONCE: Final = 128
"""At most this many blocks of lengths in one call: the answer has a few megabytes."""

_DIGEST_BYTES: Final = 32

_LoadShards: TypeAlias = Callable[[Split, int, int], tuple[Shard, ...]]
"""Loads the shards of a split from one index to another, which is excluded."""


def stream_events(log: LogCalls, event_filter: EventFilter, *, limit: int | None = None) -> Iterator[Event]:
    """Iterate over the events of ``event_filter``, oldest first, in bounded memory; ``limit`` keeps the newest N.

    Raises:
        The errors of ``LogCalls.page``, when it is called and not at the first event.
    """
    return _events(log, event_filter, log.page(event_filter, limit=_EVENTS, newest=limit))


def _events(log: LogCalls, event_filter: EventFilter, page: tuple[Event, ...]) -> Iterator[Event]:
    yield from page
    while len(page) == _EVENTS:
        page = log.page(event_filter, after=page[-1].id, limit=_EVENTS)
        yield from page


def follow_events(
    catalog: CatalogBackend, *, after: int | None, dataset: str | None, actions: tuple[str, ...] | None
) -> Iterator[Event]:
    """The events after the one with the id ``after``, then new ones as they happen; None begins with the next one.

    If the catalog does not answer, it is asked again for an hour after its last answer.

    Raises:
        The errors of ``CatalogBackend.events``, when it is called and not at the first event.
    """
    if after is None:
        newest = catalog.log.page(EventFilter(), newest=1)
        after = newest[-1].id if newest else 0
    ask = partial(catalog.events, dataset=dataset, actions=actions)
    return _followed(ask, ask(after=after))


def _followed(ask: Callable[..., EventPage], page: EventPage) -> Iterator[Event]:
    answered_at, pause = time.monotonic(), _LEAST_PAUSE
    while True:
        yield from page.events
        try:
            page = ask(after=page.after, wait=_WAIT_SECONDS)
        except CatalogUnavailableError as error:
            if time.monotonic() - answered_at > _PATIENCE_SECONDS:
                raise
            if pause == _LEAST_PAUSE:
                warn(f"{error.message}; new events are shown when it answers again", CatalogUnavailableWarning)
            time.sleep(pause)
            page, pause = EventPage(events=(), after=page.after), min(2 * pause, _MOST_PAUSE)
        else:
            answered_at, pause = time.monotonic(), _LEAST_PAUSE


def catalog_identity(log: LogCalls) -> str | None:
    """The hash of the first event, which tells a catalog from others whatever its URL; None without an event."""
    first = log.page(EventFilter(), limit=1)
    return first[0].hash if first else None


def load_shards(shards: ShardCalls, version: DatasetVersion, split_name: str) -> tuple[Shard, ...]:
    """The stored files of one split of ``version``, in order.

    Raises:
        SplitNotFoundError: the split does not exist, or the version comes from another catalog.
    """
    split = version.split(split_name)
    return tuple(
        shard
        for first in range(0, split.num_shards, _SHARDS)
        for shard in _load_range(shards, version, split, first, min(first + _SHARDS, split.num_shards))
    )


def _load_range(shards: ShardCalls, version: DatasetVersion, split: Split, first: int, stop: int) -> tuple[Shard, ...]:
    result = shards.between(version, split.name, first, stop)
    if [shard.index for shard in result] != list(range(first, stop)):
        raise SplitNotFoundError(
            f"the catalog does not hold the shards of {version.reference} {split.name}",
            hint="The version comes from another catalog. Look it up in this one.",
            details={"name": split.name},
        )
    return result


@dataclass(frozen=True, slots=True)
class _ShardBlock:
    """The sizes, sha256 and ETags of consecutive shards; ``tags`` is empty if none has an ETag."""

    sizes: array[int]
    digests: bytes
    tags: tuple[str | None, ...]

    @classmethod
    def of(cls, shards: Sequence[Shard]) -> _ShardBlock:
        tags = tuple(shard.entity_tag for shard in shards)
        return cls(
            sizes=array("q", (shard.num_bytes for shard in shards)),
            digests=b"".join(bytes.fromhex(shard.sha256) for shard in shards),
            tags=tags if any(tags) else (),
        )


class PublishedShards:
    """The published sizes and digests of the files of some splits, by file name (``registry.model.Promises``).

    Blocks of rows are loaded when they are used; 50 bytes are kept for each shard. Threads may share it, and a forked
    process may use it. A pickled copy has the rows of all shards of its splits and no longer needs the catalog.

    Raises, whenever rows are loaded:
        SplitNotFoundError: the version comes from another catalog.
        CatalogError: a row is damaged.
        CatalogUnavailableError: locked, not answering, or refusing the connection.
    """

    def __init__(
        self, load: _LoadShards | None, splits: tuple[Split, ...], blocks: dict[tuple[str, int], _ShardBlock]
    ) -> None:
        """The files of ``splits``; ``load`` is None if ``blocks`` has all of them."""
        self._load = load
        self._splits = splits
        self._blocks = blocks

    @classmethod
    def of_version(cls, shards: ShardCalls, version: DatasetVersion) -> Promises:
        """The files of ``version``, without ETags if its folder was moved; nothing is loaded yet."""
        result = cls(partial(_load_range, shards, version), version.splits, {})
        return result if version.locations[0] == version.location else UntaggedShards(result)

    def find(self, name: str) -> Shard | None:
        """The published facts of the file ``name``, or None if it is not a shard of these splits."""
        for split in self._splits:
            parsed = split.files.parse(name)
            if parsed is None:
                continue
            index = parsed[1]
            if index < split.num_shards and split.filename(index) == name:
                return self._shard(split, index)
        return None

    def within(self, splits: Collection[str]) -> PublishedShards:
        """The files of some of the splits, with the blocks that are loaded."""
        return PublishedShards(self._load, tuple(split for split in self._splits if split.name in splits), self._blocks)

    def _shard(self, split: Split, index: int) -> Shard:
        number, place = divmod(index, _BLOCK)
        block = self._block(split, number)
        return split.shard(
            index,
            num_bytes=block.sizes[place],
            sha256=block.digests[place * _DIGEST_BYTES : (place + 1) * _DIGEST_BYTES].hex(),
            entity_tag=block.tags[place] if block.tags else None,
        )

    def _block(self, split: Split, number: int) -> _ShardBlock:
        result = self._blocks.get((split.name, number))
        if result is None:  # at worst, two threads load the same block
            if self._load is None:
                raise damaged(f"the shards of split {split.name!r} were not sent along")
            first, stop = number * _BLOCK, min((number + 1) * _BLOCK, split.num_shards)
            result = _ShardBlock.of(self._load(split, first, stop))
            self._blocks[split.name, number] = result
        return result

    def __reduce__(self) -> tuple[type[PublishedShards], tuple[Any, ...]]:
        own = {
            (split.name, number): self._block(split, number)
            for split in self._splits
            for number in range(-(-split.num_shards // _BLOCK))
        }
        return PublishedShards, (None, self._splits, own)


class _Lengths(NamedTuple):
    """The shards from ``number * _BLOCK`` on; their first record is record ``start`` of the split."""

    start: int
    lengths: ShardLengths

    @property
    def stop(self) -> int:
        """Position of the record after their last one."""
        return self.start + self.lengths.num_examples


class LoadedShardLengths(AbstractShardLengths):
    """The shard lengths of a published split, loaded in blocks when they are used; 17 bytes are kept for each shard.

    Threads may share it, and a forked process may use it: it has no lock that a fork could copy while it is held. At
    worst, two threads load the same block.

    Raises, whenever lengths are loaded:
        CatalogError: the rows are damaged: they contradict each other or their split.
        CatalogUnavailableError: locked, not answering, or refusing the connection.
    """

    __slots__ = ("_blocks", "_num_examples", "_num_shards", "_order", "name", "shards", "split_id")

    def __init__(self, shards: ShardCalls, *, split_id: int, name: str, num_shards: int, num_examples: int) -> None:
        """The split ``name``, whose id in the catalog is ``split_id``; ``shards`` loads its lengths."""
        self.shards = shards
        self.split_id = split_id
        self.name = name
        self._num_shards = operator.index(num_shards)
        self._num_examples = operator.index(num_examples)
        self._blocks: dict[int, _Lengths] = {}
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
        """Index of the shard that contains record ``position`` (0 <= position < num_examples).

        At most one call, which finds the shard's block and loads it.
        """
        if not 0 <= position < self._num_examples:
            raise UsageError(f"split {self.name!r} has {self._num_examples} records, but none at {position}")
        number = self._loaded_at(position)
        if number is None:
            number = self._load_at(position)
        block = self._blocks[number]
        return number * _BLOCK + block.lengths.shard_of(position - block.start)

    def empty_shards(self, first: int, stop: int) -> Sequence[int]:
        """Indices of the shards ``first``..``stop`` (stop excluded) that hold no record, in order: at most one call."""
        first, stop = max(first, 0), min(stop, len(self))
        numbers = _numbers(first, stop)
        if all(number in self._blocks for number in numbers):
            empty = array("q")
            for number in numbers:
                before = number * _BLOCK
                places = self._blocks[number].lengths.empty_shards(first - before, stop - before)
                empty.extend(before + place for place in places)
            return empty
        with stored_values():
            return array("q", self.shards.empty_between(self.split_id, first, stop))

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
            isinstance(other, LoadedShardLengths)
            and self.shards == other.shards
            and (self.split_id, len(self), self.num_examples) == (other.split_id, len(other), other.num_examples)
        ):
            return True  # the same rows, found by two look-ups: no need to load them
        return super().__eq__(other)

    __hash__ = AbstractShardLengths.__hash__

    def __copy__(self) -> LoadedShardLengths:
        return self  # it is immutable, and a copy would load the same blocks again

    def __deepcopy__(self, memo: dict[int, Any]) -> LoadedShardLengths:
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

    def _block(self, number: int) -> _Lengths:
        if number not in self._blocks:
            self._load(range(number, number + 1))
        return self._blocks[number]

    def _loaded_at(self, position: int) -> int | None:
        """The number of the loaded block that contains record ``position``, or None."""
        # If several blocks start at one record, the last one contains it; the others have empty shards only.
        order = self._order
        place = bisect_right(order, position, key=lambda number: self._blocks[number].start)
        return order[place - 1] if place and position < self._blocks[order[place - 1]].stop else None

    def _load(self, numbers: range) -> None:
        """Load the missing blocks among ``numbers`` in one call, with those in between."""
        missing = [number for number in numbers if number not in self._blocks]
        if not missing:
            return
        for number in range(missing[0], missing[-1] + 1, _BLOCKS_AT_ONCE):
            stop = min(min(number + _BLOCKS_AT_ONCE, missing[-1] + 1) * _BLOCK, len(self))
            self._keep(self.shards.lengths_between(self.split_id, number * _BLOCK, stop), stop)

    def _load_at(self, position: int) -> int:
        """Load the block that contains record ``position``; returns its number."""
        result = self.shards.lengths_at(self.split_id, position, _BLOCK)
        if result is not None:
            self._keep(result, min(result.first + _BLOCK, len(self)))
            block = self._blocks[result.first // _BLOCK]
            if block.start <= position < block.stop:
                return result.first // _BLOCK
        raise damaged(f"no shard of split {self.name!r} contains its record {position}")

    def _keep(self, length_block: LengthBlock, stop: int) -> None:
        """Keep the blocks of shards ``found.first``..``stop`` (stop excluded).

        Both ends are compared with the adjacent blocks, so that blocks fit together in any order of loading.
        """
        loaded: dict[int, _Lengths] = {}
        with stored_values():
            contradiction = (
                f"the shards {length_block.first}..{stop} of split {self.name!r} contradict the adjacent ones"
            )
            if len(length_block.lengths) != stop - length_block.first or (length_block.following is None) != (
                stop == len(self)
            ):
                raise damaged(contradiction)
            position = length_block.start
            for place in range(0, len(length_block.lengths), _BLOCK):
                block = _Lengths(position, ShardLengths(length_block.lengths[place : place + _BLOCK]))
                loaded[(length_block.first + place) // _BLOCK] = block
                position = block.stop
        end = self._num_examples if length_block.following is None else length_block.following
        if position != end or (length_block.first == 0 and length_block.start != 0):
            raise damaged(contradiction)
        self._blocks.update(loaded)
        # If two threads are here at once, the list that is set last may lack a block, which is then loaded again.
        self._order = sorted(self._blocks)


def _numbers(first: int, stop: int) -> range:
    """The numbers of the blocks that contain the shards ``first``..``stop`` (stop excluded)."""
    return range(first // _BLOCK, -(-stop // _BLOCK))


def published_version(catalog: CatalogBackend, exactly: Reference) -> DatasetVersion:
    """The version of an exact reference that the catalog has just named, in any state."""
    version = None if exactly.exact is None else catalog.published(exactly.name, exactly.config, exactly.exact)
    if version is None:
        raise AssertionError(f"the catalog has just named {exactly}")
    return version


def is_published(catalog: CatalogBackend, version: DatasetVersion) -> bool:
    """Whether the number of ``version`` is published with the same content; False if the number is free.

    Raises:
        VersionExistsError: it is published with other content, or its files are removed.
    """
    digest = catalog.published_digest(version.name, version.config, version.version)
    if digest is not None and digest != version.content_digest:
        from registry.catalog.outcomes import other_content

        raise other_content(version.reference, digest, version.content_digest)
    published = None if digest is None else catalog.published(version.name, version.config, version.version)
    if published is not None and published.state is VersionState.DROPPED:
        removals = catalog.lifecycle.removals(version.reference.dataset)
        if any(removal.reference == published.reference and removal.step != "planned" for removal in removals):
            from registry.catalog.outcomes import removed_error

            raise removed_error(version.reference, published.state_message)
    return digest is not None
