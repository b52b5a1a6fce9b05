"""Which examples does a plan give, and in which order? One by one, in batches, by number, and on from a saved place."""

from __future__ import annotations

import operator
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from types import FunctionType
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from registry.errors import UsageError, suggest
from registry.features import FeaturesDict
from registry.model import whole_number
from registry.order import Order, ReadConfig, check_config
from registry.reading.exports import Exports
from registry.reading.pieces import ItemLists, ItemReader, PieceReader, RecordSource
from registry.reading.state import Cursor, Intervals, ReadState, describe_source, places_in, read_seed, restore, size_of
from registry.splits import Plan
from registry.storage import Store
from registry.tfrecord import IndexFolder, Places, Verify

State: TypeAlias = Mapping[str, Any]
"""What ``Reader.state`` gives: plain values that JSON can hold."""


class Reader(Exports):
    """The examples of a plan, in the order of a ``ReadConfig``. Nothing is opened before the first is asked for.

    Iterating reads an epoch (``config.repeat`` of them), and iterating again the next, as a dataset of tf.data does:
    where files are reshuffled each has an order of its own. ``reader[i]`` is example ``i`` of the first epoch.

    A reader is used by one thread at a time. It can be pickled: what is open stays behind, and its place comes along.

    Attributes:
        plan: which records of which files.
        features: the schema of an example.
        config: the order; with the seed that was drawn, where a shuffle was asked for without one.
        process: (index, count): of each epoch, the share that is read here, one of ``count`` equal ones.
        store: the folder that holds the files.
        file_format: what the files are, see ``registry.shards``.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        store: Store,
        features: FeaturesDict,
        config: ReadConfig | None = None,
        state: State | Sequence[State] | None = None,
        process: tuple[int, int] = (0, 1),
        dataset: str = "",
        verify: Verify = "block",
        copy: bool = True,
        indexes: IndexFolder | None = None,
        file_format: str = "tfrecord",
    ) -> None:
        """The reader of ``plan``.

        Args:
            plan: which records of which files.
            store: the folder that holds them.
            features: the schema of an example.
            config: the order; None is TFDS's default, ``ReadConfig()``.
            state: what ``state`` of an equal reader gave, to read on from there; or the list of the states of all
                processes of a read, to go on with another number of them.
            process: index and count, where several processes share each epoch.
            dataset: the exact version and its content, which a state is held against.
            verify: ``block`` or ``record``, which find the same damage, or ``off``: see ``open_shard``.
            copy: False gives records, text, and tensors stored as bytes as read-only views of the mapped files.
            indexes: where the places of records are kept for the next time.
            file_format: what the files of the plan are, see ``registry.shards``.

        Raises:
            StateMismatchError: the state is of another version, plan or order.
            UsageError: no such process, no such ``verify``, or no config at all; or several processes, and a shuffle
                without a seed.
        """
        config = check_config(config)
        if not isinstance(copy, bool):
            raise UsageError(f"copy is True or False, not {copy!r:.60}")
        self._asked = config
        self.process = _check_process(process)
        if config.needs_seed:
            seed = read_seed(state)
            if seed is None and self.process[1] > 1:
                raise UsageError(
                    "processes that share a shuffle without a seed would each draw another one",
                    hint="Give the same seed to all of them: ReadConfig(..., shuffle_seed=42), or seed=42.",
                )
            config = config.with_seed(secrets.randbelow(2**31 - 1) if seed is None else seed)
        self.plan = plan
        self.features = features
        self.store = store
        self.file_format = file_format
        self.config = config
        self._options: dict[str, Any] = {
            "store": store,
            "dataset": dataset,
            "verify": verify,
            "copy": copy,
            "indexes": indexes,
            "file_format": file_format,
        }
        self._order = plan.order(config)
        source = RecordSource(plan, store, verify=verify, indexes=indexes, file_format=file_format, features=features)
        self._items = ItemReader(PieceReader(source, features, copy=copy), add_ids=config.add_tfds_id)
        self._source = describe_source(plan, self._order, dataset=dataset)
        self._share = self._start(0).intervals
        self._begin = self._start(0) if state is None else restore(state, self._source, process=self.process)
        self._cursor = Cursor(self._begin)

    def __len__(self) -> int:
        """Number of examples that are read of one epoch."""
        return size_of(self._share)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Examples as dicts of numpy arrays, shaped and typed as ``features`` says; None where a value is missing.

        Raises:
            CorruptRecordError: framing or checksum of a record is wrong.
            CorruptExampleError: a record does not hold the features; the message names file and record.
            ShardMismatchError: a file does not hold as many records as the catalog says.
            StorageError: a file cannot be read.
        """
        return self._iterate(self._items.examples)

    def records(self) -> Iterator[bytes | memoryview]:
        """The stored records in this order, serialized tf.train.Examples, checked and not decoded. Errors as iterating.

        ``bytes``; memoryviews of the mapped files where the reader was made with ``copy=False``.
        """
        return self._iterate(self._items.records)

    def ids(self) -> Iterator[str]:
        """The TFDS id of each example in this order: ``mnist-train.tfrecord-00003-of-00010__17``. No file is opened."""
        return self._iterate(self._items.ids)

    def batches(self, size: int, *, drop_remainder: bool = False) -> Iterator[dict[str, Any]]:
        """``size`` examples at a time as a dict of arrays, the first dimension of which counts examples.

        A batch never reaches over the end of an epoch: the last one of each is smaller, or is left out.

        A feature whose values have one shape is one array; else an object array of arrays, and of ``bytes`` for text.
        An optional feature is always a masked array (``numpy.ma``), whose mask says which values are missing.
        Errors as iterating; batches before the one that holds a bad record are handed out.
        """
        size = whole_number(size, "batch_size", least=1)

        return self._iterate(partial(self._items.batches, size=size, drop_remainder=drop_remainder))

    def blocks(self) -> Iterator[dict[str, Any]]:
        """As ``batches``, of as many examples as are read at once: thousands of small ones, a few of large ones."""
        return self._iterate(self._items.blocks)

    def state(self) -> dict[str, Any]:
        """The place of the iteration that was begun last: plain values, small, to be saved with a checkpoint.

        A reader of the same version, split and config that is made with ``state=`` this goes on with the very next
        example, batch or record; where the iteration had ended its first one is empty, and the next epoch follows.
        """
        return self._cursor.state.to_json(self._source)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | npt.NDArray[np.integer[Any]]) -> dict[str, Any]: ...
    def __getitem__(self, index: Any) -> dict[str, Any]:
        """Example ``index`` of the first epoch; with a slice, a list or an array of numbers, a batch of them.

        Numbers count in the order of the config, as iterating does; negative ones from the end.

        Raises:
            IndexError: there is no such example.
            TypeError: no whole number, slice, or list of whole numbers.
            As iterating.
        """
        positions, is_one = self._positions(index)
        return (self._items.example_at if is_one else self._items.columns_at)(self._order, positions)

    def examples_at(self, indices: Sequence[int] | npt.NDArray[np.integer[Any]]) -> list[dict[str, Any]]:
        """The examples ``indices`` of the first epoch, fetched together; numbers and errors as ``reader[indices]``."""
        positions, _ = self._positions(indices)
        return self._items.examples_at(self._order, positions)

    def seek(self, epoch: int, part: Intervals | None = None) -> None:
        """Let the next iteration read ``epoch`` and no other: the positions ``part``, or this process's share of it."""
        state = ReadState.start(self._source, epoch=epoch, repeat=1, process=self.process)
        self._begin = state if part is None else replace(state, left=((epoch, part),))
        self._cursor = Cursor(self._begin)

    @property
    def drew_seed(self) -> bool:
        """Whether the seed in ``config`` was drawn, because a shuffle was asked for without one."""
        return self._asked.needs_seed

    def reopened(
        self, *, process: tuple[int, int] | None = None, state: State | Sequence[State] | None = None
    ) -> Reader:
        """Another reader of the same examples in the same order, at its beginning or at ``state``; it shares no file.

        Raises:
            StateMismatchError, UsageError: as ``Reader``.
        """
        reader = Reader(
            self.plan,
            features=self.features,
            config=self.config if state is None else self._asked,
            state=state,
            process=self.process if process is None else process,
            **self._options,
        )
        reader._asked = self._asked
        return reader

    def missing_as_none(self) -> Reader:
        """These examples, with None where an optional feature has no value, and a mask in batches.

        Another reader, at its beginning. That is what a reader gives, unless ``missing_as_tfds`` or ``fill_missing``
        made it, or ``registry.load``.
        """
        return self._with_features(self.features.missing_as_none())

    def missing_as_tfds(self) -> Reader:
        """These examples, with what TFDS reads where an optional feature has no value: the lowest number of its dtype.

        Another reader, at its beginning. In batches such a feature is a plain array. Nobody can tell a missing value
        from an equal one that is there.
        """
        return self._with_features(self.features.missing_as_tfds())

    def fill_missing(self, values: Mapping[str, Any]) -> Reader:
        """These examples, with ``values`` where an optional feature has none: ``{"age": -1, "place/name": b"?"}``.

        Another reader, at its beginning. In batches such a feature is a plain array.

        Raises:
            FeatureError: no feature has that path, it is not optional, or the value does not fit it.
        """
        return self._with_features(self.features.fill_missing(values))

    def only(self, names: Sequence[str]) -> Reader:
        """These examples with some of their features, from the same place on: the others are not decoded.

        Raises:
            UsageError: no feature of that name.
        """
        for name in names:
            if name not in self.features:
                raise UsageError(f"no feature {name!r:.80}", hint=suggest(name, list(self.features)))
        return Reader(
            self.plan,
            features=FeaturesDict({name: self.features[name] for name in names}),
            config=self._asked,
            state=self.state(),
            process=self.process,
            **self._options,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        sort_files = self.config.interleave_sort_fn
        if isinstance(sort_files, FunctionType) and "<" in sort_files.__qualname__:
            raise UsageError(
                f"a reader with interleave_sort_fn {sort_files.__qualname__} cannot be sent to another process",
                hint="Define that function with def, at the top level of a module.",
            )
        arguments = (self.plan, self.features, self._asked, self.config, self.process, self._options)
        return _restore_reader, (*arguments, self._begin, self._cursor.state)

    def __repr__(self) -> str:
        return f"<Reader {self.plan.expression}: {len(self)} examples>"

    def _with_features(self, features: FeaturesDict) -> Reader:
        """Another reader, at its beginning, whose examples are decoded by ``features``."""
        reader = Reader(self.plan, features=features, config=self.config, process=self.process, **self._options)
        reader._asked = self._asked
        return reader

    def _iterate(self, item_lists: ItemLists) -> Iterator[Any]:
        """Begin an iteration: the next epoch, or where the state says."""
        begin = self._begin
        self._cursor = Cursor(begin)
        self._begin = self._start(begin.epoch + 1 if begin.until is None else begin.until)
        return chain.from_iterable(self._run(self._cursor, item_lists))

    def _run(self, cursor: Cursor, item_lists: ItemLists) -> Iterator[Iterator[Any]]:
        """The items in lists; what is handed out of one is told by what is left of its iterator."""
        state: ReadState | None = cursor.state
        while state is not None:
            cursor.set(state)
            if state.num_left:
                for found in item_lists(self._order_of(state.epoch), state.intervals):
                    yield cursor.hand_out(found.items, positions_each=found.positions_each)
                    state = state.advance(found.num_positions)
                    cursor.set(state)
            state = state.next_epoch(self._order.num_examples)

    def _start(self, epoch: int) -> ReadState:
        return ReadState.start(self._source, epoch=epoch, repeat=self.config.repeat, process=self.process)

    def _order_of(self, epoch: int) -> Order:
        if self._order.epoch != epoch and (self.config.shuffle is not None or self.config.shuffle_files):
            return self.plan.order(self.config, epoch=epoch)
        return self._order

    def _positions(self, index: Any) -> tuple[Places, bool]:
        """The positions in the order that ``index`` asks for, and whether it is a single number."""
        share = self._share
        size = size_of(share)
        if type(index) is int and -size <= index < size:  # the usual case, which costs a tenth of what follows
            return places_in(share, np.array([index if index >= 0 else index + size])), True
        if isinstance(index, slice):
            return places_in(share, np.arange(*index.indices(size))), False
        found = np.asarray(index, None if np.size(index) else np.int64)
        if found.ndim > 1 or found.dtype.kind not in "iu":
            raise TypeError(f"examples are asked for by a whole number, a slice or a list of them, not {index!r:.60}")
        places = found.reshape(-1).astype(np.int64)
        places = np.where(places < 0, places + size, places)
        if places.size and not 0 <= int(places.min()) <= int(places.max()) < size:
            wrong = found.reshape(-1)[(places < 0) | (places >= size)][0]
            raise IndexError(f"index {wrong} is out of range: there are {size} examples")
        return places_in(share, places), not found.ndim


def _restore_reader(
    plan: Plan,
    features: FeaturesDict,
    asked: ReadConfig,
    config: ReadConfig,
    process: tuple[int, int],
    options: dict[str, Any],
    begin: ReadState,
    place: ReadState,
) -> Reader:
    """The reader that was pickled, with nothing open."""
    reader = Reader(plan, features=features, config=config, process=process, **options)
    reader._asked, reader._begin, reader._cursor = asked, begin, Cursor(place)
    return reader


def _check_process(process: tuple[int, int]) -> tuple[int, int]:
    try:
        index, count = map(operator.index, process)
    except (TypeError, ValueError):
        raise UsageError(f"process is (index, count), two whole numbers, not {process!r:.60}") from None
    if not 0 <= index < count:
        raise UsageError(f"there is no process {index} of {count}", hint="Processes are counted from 0.")
    return index, count
