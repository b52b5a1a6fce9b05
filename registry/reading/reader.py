"""The examples of a plan in the order of a read config: one by one, in batches, by number, or from a saved place on."""

from __future__ import annotations

import operator
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from registry.errors import UsageError, require_extra, suggest
from registry.features import FeaturesDict
from registry.model import whole_number
from registry.order import Order, ReadConfig
from registry.reading.pieces import ItemLists, ItemReader, PieceReader, RecordSource
from registry.reading.readable import ReadableVersion
from registry.reading.state import (
    Cursor,
    Intervals,
    ReadState,
    describe_source,
    find_positions,
    read_seed,
    restore,
    size_of,
)
from registry.splits import Plan
from registry.tfrecord import Verify

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import tensorflow as tf

    from registry.reading.frameworks.sharing import ReaderSource
    from registry.reading.frameworks.torch import ReaderDataset, ReaderIterable

TextForm: TypeAlias = Literal["str", "bytes"]
"""What a ``Text`` becomes in a table: ``str``, which refuses invalid UTF-8, or ``bytes`` as they are stored."""

State: TypeAlias = Mapping[str, Any]
"""What ``Reader.state`` gives: plain values that JSON can hold."""


class Reader:
    """The examples of a plan, in the order of a ``ReadConfig``. Nothing is opened before the first is asked for.

    Iterating reads an epoch (``config.repeat`` of them), and iterating again the next, as a dataset of tf.data does:
    where files are reshuffled each has an order of its own. ``reader[i]`` is example ``i`` of the first epoch.

    One thread uses it at a time. It can be pickled: what is open stays behind, and its place comes along.

    Attributes:
        readable: the version that is read.
        plan: which records of which files.
        config: the order; with the seed that was drawn, where a shuffle was asked for without one.
        process: (index, count): of each epoch, the share that is read here, one of ``count`` equal ones.
        store: the folder that holds the files, each of which is proved when it is opened.
    """

    def __init__(
        self,
        readable: ReadableVersion,
        plan: Plan,
        *,
        config: ReadConfig | None = None,
        state: State | Sequence[State] | None = None,
        process: tuple[int, int] = (0, 1),
        verify: Verify = "block",
        copy: bool = True,
    ) -> None:
        """The reader of ``plan``.

        Args:
            readable: the version.
            plan: which records of which of its files.
            config: the order; None is the default order of ``readable``.
            state: what ``state`` of an equal reader gave, to read on from there; or the list of the states of all
                processes of a read, to go on with another number of them.
            process: index and count, where several processes share each epoch.
            verify: ``block`` or ``record``, which find the same damage, or ``off``: see ``open_shard``.
            copy: False gives records, text, and tensors stored as bytes as read-only views of the mapped files.

        Raises:
            StateMismatchError: the state is of another version, plan or order.
            UsageError: no such process, no such ``verify``, or no config at all; or several processes, and a shuffle
                without a seed.
        """
        config = readable.order(config)
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
        self.readable = readable
        self.plan = plan
        self.config = config
        self.store = readable.files({split.name for split in plan.splits})
        self._verify: Verify = verify
        self._copy = copy
        self._order = plan.order(config)
        source = RecordSource(
            plan,
            self.store,
            verify=verify,
            indexes=readable.indexes,
            file_format=readable.file_format,
            features=readable.features,
        )
        self._items = ItemReader(PieceReader(source, readable.features, copy=copy), add_ids=config.add_tfds_id)
        self._source = describe_source(plan, self._order, dataset=readable.identity)
        self._share = self._start(0).intervals
        self._begin = self._start(0) if state is None else restore(state, self._source, process=self.process)
        self._cursor = Cursor(self._begin)

    @property
    def features(self) -> FeaturesDict:
        """The schema of an example."""
        return self.readable.features

    @property
    def file_format(self) -> str:
        """What the files are, see ``registry.shards``."""
        return self.readable.file_format

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
        An optional feature is a masked array (``numpy.ma``). Batches before one with a bad record are handed out.
        """
        size = whole_number(size, "batch_size", least=1)

        return self._iterate(partial(self._items.batches, size=size, drop_remainder=drop_remainder))

    def blocks(self) -> Iterator[dict[str, Any]]:
        """As ``batches``, of as many examples as are read at once: thousands of small ones, a few of large ones."""
        return self._iterate(self._items.blocks)

    def to_numpy(self) -> dict[str, Any]:
        """All examples of the first epoch at once, as a dict of arrays, nested as an example is; see ``batches``.

        An optional feature is a masked array. Errors as iterating.
        """
        from registry.reading.frameworks.arrays import read_arrays

        return read_arrays(self)

    def to_pandas(self, *, text: TextForm = "str") -> pd.DataFrame:
        """All examples of the first epoch as a DataFrame: a row for each, a column for each leaf.

        A column is named by the names on the way to the leaf, joined by ``/``. Numbers keep their dtype; values with
        dimensions stand in a column of objects, as arrays (``Ragged`` where they are ragged). A feature ``Text`` is
        ``str``; other strings are ``bytes``, because nothing says that they are text. A Dataset is as a Sequence, and
        bfloat16 is float32. An optional feature has a nullable dtype of pandas, such as ``Int64`` or ``Float32`` (which
        float16 becomes, too), or is a column of objects and None.

        Raises:
            FeatureError: a text is not UTF-8; ``text="bytes"`` takes it as it is.
            MissingExtraError: pandas is not installed (extra ``pandas``).
            As iterating.
        """
        with require_extra("pandas", package="pandas", needed_for="a read into pandas"):
            from registry.reading.frameworks.pandas import read_frame
        return read_frame(self, text=text)

    def to_arrow(self, *, text: TextForm = "str", batch_size: int | None = None) -> pa.Table:
        """All examples of the first epoch as an Arrow table, in memory; schema and errors as ``to_arrow_batches``."""
        return self.to_arrow_batches(text=text, batch_size=batch_size).read_all()

    def to_arrow_batches(self, *, text: TextForm = "str", batch_size: int | None = None) -> pa.RecordBatchReader:
        """The examples of the first epoch as a stream of record batches, each read when it is asked for.

        The schema follows from the features. Only missing values of optional features are null:

        - numbers and bools are Arrow's own; ``Text`` is ``string``, and any other string ``binary``;
        - a dimension of known size, of a tensor, an image or a Sequence, is a fixed-size list; any other is a list;
        - a dict is a struct, and a Sequence of a dict is a struct of lists, as an example holds them; so is a Dataset;
        - bfloat16 is ``float``; a feature that is not known here has no type, and is left out.

        Args:
            text: ``str`` or ``bytes``.
            batch_size: rows of a batch, fewer in the last; None is as many as are read at once.

        Raises:
            FeatureError: a text is not UTF-8; ``text="bytes"`` takes it as it is.
            UsageError: a column of one batch holds more than 2 GiB of text or bytes.
            MissingExtraError: pyarrow is not installed (extra ``arrow``).
            As iterating, while it is read.
        """
        with require_extra("arrow", package="pyarrow", needed_for="a read into pyarrow"):
            from registry.reading.frameworks.arrow import read_batches
        return read_batches(self, text=text, batch_size=batch_size)

    @overload
    def to_torch(self) -> ReaderDataset: ...
    @overload
    def to_torch(
        self,
        *,
        iterable: Literal[True],
        batch_size: int | None = None,
        drop_remainder: bool = False,
        process: tuple[int, int] | None = None,
    ) -> ReaderIterable: ...
    def to_torch(
        self,
        *,
        iterable: bool = False,
        batch_size: int | None = None,
        drop_remainder: bool = False,
        process: tuple[int, int] | None = None,
    ) -> ReaderDataset | ReaderIterable:
        """A dataset for ``torch.utils.data.DataLoader``, with any number of workers, forked or spawned.

        Numbers and arrays become tensors, text and bytes stay ``bytes``, and where shapes differ there are lists. A
        Dataset is as a Sequence. A missing value is None, and an optional feature is a list of tensors and None in a
        batch; ``Reader.fill_missing`` gives tensors.

        Without ``iterable`` it is a map-style dataset of the first epoch, for samplers: ``dataset[i]`` is an example,
        ``dataset[[i, j]]`` a batch, and a loader fetches each of its batches at once.

        With it, it is an ``IterableDataset`` in the order of the reader: every example of an epoch is given once by all
        ranks and workers together. Each iteration reads the next epoch, the same in all workers (``set_epoch`` chooses
        one). ``state_dict`` and ``load_state_dict`` are those that torchdata's StatefulDataLoader calls.

        Args:
            iterable: which of the two.
            batch_size: give batches of so many examples, for a ``DataLoader(..., batch_size=None)``: they come in the
                order of the reader whatever the number of workers. Without it each worker gives the examples of a run
                of its own, and the loader takes them in turns.
            drop_remainder: leave out a smaller last batch of each epoch.
            process: index and number of the ranks; None is the reader's ``process``, or else that of torch.distributed
                where it is initialised when an iteration begins.

        Raises:
            UsageError: an option of iterables without ``iterable``, or a batch size below 1.
            MissingExtraError: torch is not installed (extra ``torch``).
        """
        with require_extra("torch", package="torch", needed_for="a read into torch"):
            from registry.reading.frameworks.torch import ReaderDataset, ReaderIterable
        if iterable:
            check_batches(batch_size, drop_remainder=drop_remainder)
            return ReaderIterable(self, batch_size=batch_size, drop_remainder=drop_remainder, process=process)
        if batch_size is not None or drop_remainder or process is not None:
            raise UsageError(
                "batch_size, drop_remainder and process are options of iterable=True",
                hint="Of a dataset by number the DataLoader makes batches, and its sampler divides them among ranks.",
            )
        return ReaderDataset(self)

    def to_grain(self) -> ReaderSource:
        """The examples of the first epoch as a random access source of Grain, which is not needed to make one.

        For ``grain.MapDataset.source(...)`` and ``grain.DataLoader(data_source=...)``, with threads and processes. A
        missing value is None, which Grain does not batch: see ``Reader.fill_missing``.
        """
        from registry.reading.frameworks.sharing import ReaderSource

        return ReaderSource(self)

    def to_tf_dataset(self, *, batch_size: int | None = None, drop_remainder: bool = False) -> tf.data.Dataset:
        """The examples as a ``tf.data.Dataset``, in the order of the reader, prefetched, of known cardinality.

        Iterating it reads ``config.repeat`` epochs, and iterating it again the next ones. A feature of unknown
        dimensions is a tensor with None in its shape, a Sequence of Sequences a RaggedTensor, text is ``tf.string``. A
        Dataset is as a Sequence, but what may differ in shape in its examples is refused. A feature that is not known
        here, which has no type, is left out. What the reader raises comes as TensorFlow's error, with its message.

        Args:
            batch_size: give batches, where every feature has one shape in all examples: faster than ``batch()``.
            drop_remainder: leave out a smaller last batch of each epoch.

        Raises:
            UsageError: an option or a feature that TensorFlow has no tensor for, as an optional one of which a value
                may be None; ``Reader.fill_missing`` chooses another.
            MissingExtraError: tensorflow is not installed (extra ``tensorflow``).
        """
        check_batches(batch_size, drop_remainder=drop_remainder)
        with require_extra("tensorflow", package="tensorflow", needed_for="a read into tensorflow"):
            from registry.reading.frameworks.tensorflow import read_dataset
        return read_dataset(self, batch_size=batch_size, drop_remainder=drop_remainder)

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
        positions, is_one = find_positions(self._share, index)
        return (self._items.example_at if is_one else self._items.columns_at)(self._order, positions)

    def examples_at(self, indices: Sequence[int] | npt.NDArray[np.integer[Any]]) -> list[dict[str, Any]]:
        """The examples ``indices`` of the first epoch, fetched together; numbers and errors as ``reader[indices]``."""
        positions, _ = find_positions(self._share, indices)
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
        config = self.config if state is None else self._asked
        return self._again(self.readable, config, state=state, process=self.process if process is None else process)

    def missing_as_none(self) -> Reader:
        """These examples, with None where an optional feature has no value, and a mask in batches.

        Another reader, at its beginning. Only ``missing_as_tfds``, ``fill_missing`` and ``load`` make other readers.
        """
        return self._decoding(self.features.missing_as_none())

    def missing_as_tfds(self) -> Reader:
        """These examples, with what TFDS reads where an optional feature has no value: the lowest number of its dtype.

        Another reader, at its beginning. In batches such a feature is a plain array.
        """
        return self._decoding(self.features.missing_as_tfds())

    def fill_missing(self, values: Mapping[str, Any]) -> Reader:
        """These examples, with ``values`` where an optional feature has none: ``{"age": -1, "place/name": b"?"}``.

        Another reader, at its beginning. In batches such a feature is a plain array.

        Raises:
            FeatureError: no feature has that path, it is not optional, or the value does not fit it.
        """
        return self._decoding(self.features.fill_missing(values))

    def with_ids(self) -> Reader:
        """These examples with their TFDS ids as the feature ``tfds_id``, from the same place on."""
        config = replace(self._asked, add_tfds_id=True)
        return self._again(self.readable, config, state=self.state(), process=self.process)

    def only(self, names: Sequence[str]) -> Reader:
        """These examples with some of their features, from the same place on: the others are not decoded.

        Raises:
            UsageError: no feature of that name.
        """
        for name in names:
            if name not in self.features:
                raise UsageError(f"no feature {name!r:.80}", hint=suggest(name, list(self.features)))
        some = self.readable.with_features(FeaturesDict({name: self.features[name] for name in names}))
        return self._again(some, self._asked, state=self.state(), process=self.process)

    def __getstate__(self) -> tuple[Any, ...]:
        sort_files = self.config.interleave_sort_fn
        if isinstance(sort_files, FunctionType) and "<" in sort_files.__qualname__:
            raise UsageError(
                f"a reader with interleave_sort_fn {sort_files.__qualname__} cannot be sent to another process",
                hint="Define that function with def, at the top level of a module.",
            )
        some = self.readable.within({split.name for split in self.plan.splits})
        options = (self.config, self.process, self._verify, self._copy)
        return (some, self.plan, options, self._asked, self._begin, self._cursor.state)

    def __setstate__(self, sent: tuple[Any, ...]) -> None:
        readable, plan, (config, process, verify, copy), asked, begin, place = sent
        self.__init__(readable, plan, config=config, process=process, verify=verify, copy=copy)  # type: ignore[misc]  # nothing is open yet
        self._asked, self._begin, self._cursor = asked, begin, Cursor(place)

    def __repr__(self) -> str:
        return f"<Reader {self.plan.expression}: {len(self)} examples>"

    def _decoding(self, features: FeaturesDict) -> Reader:
        """Another reader, at its beginning, whose examples are decoded by ``features``."""
        return self._again(self.readable.with_features(features), self.config, state=None, process=self.process)

    def _again(
        self,
        readable: ReadableVersion,
        config: ReadConfig,
        *,
        state: State | Sequence[State] | None,
        process: tuple[int, int],
    ) -> Reader:
        """Another reader of this plan; in the order of this one, it knows whether its seed was drawn."""
        reader = Reader(
            readable, self.plan, config=config, state=state, process=process, verify=self._verify, copy=self._copy
        )
        if config is self.config:
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


def _check_process(process: tuple[int, int]) -> tuple[int, int]:
    try:
        index, count = map(operator.index, process)
    except (TypeError, ValueError):
        raise UsageError(f"process is (index, count), two whole numbers, not {process!r:.60}") from None
    if not 0 <= index < count:
        raise UsageError(f"there is no process {index} of {count}", hint="Processes are counted from 0.")
    return index, count


def check_batches(batch_size: int | None, *, drop_remainder: bool) -> None:
    """Refuse options of batches that mean nothing."""
    if batch_size is not None:
        whole_number(batch_size, "batch_size", least=1)
    if drop_remainder and batch_size is None:
        raise UsageError("drop_remainder leaves out a batch, and there are none without batch_size")
