"""``Reader``: the examples of a plan in the order of a read config, one by one, in batches, by number, or resumed.

It is the last step of a read: ``pieces.py`` fetches and decodes records, ``state.py`` tracks what is left, and
``frameworks/`` turns a reader into tables, tensors and other tools' datasets.
"""

from __future__ import annotations

import operator
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from registry.argument_types import require_type
from registry.errors import UsageError, require_extra, suggest
from registry.features import FeaturesDict
from registry.model import whole_number
from registry.order import Order, ReadConfig
from registry.prepared.info import SupervisedKeys
from registry.reading.frameworks import check_batches, read_ray, read_torch
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
from registry.reading.views import SupervisedReader
from registry.splits import Plan
from registry.tfrecord import Verify

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import ray.data
    import tensorflow as tf

    from registry.reading.frameworks.sharing import ReaderSource
    from registry.reading.frameworks.torch import ReaderDataset, ReaderIterable

TextForm: TypeAlias = Literal["str", "bytes"]
"""What a ``Text`` becomes in a table: ``str``, which refuses invalid UTF-8, or ``bytes`` as they are stored."""

State: TypeAlias = Mapping[str, Any]
"""The value of ``Reader.state``: plain values that JSON can hold."""


class Reader:
    """The examples of a plan, in the order of a ``ReadConfig``. No file is opened before the first example is read.

    Iterating reads one epoch (``read_config.repeat`` of them). Iterating again reads the next epoch, as a tf.data
    dataset does: each epoch of a shuffle has its own order. ``reader[i]`` is example ``i`` of the first epoch.

    Use a reader in one thread at a time. It can be pickled: the copy has no open files and continues at the same place.

    >>> import registry, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> catalog = registry.connect(f"{folder}/catalog.db", data_dir=folder)
    >>> _ = catalog.build("digits")
    >>> reader = catalog.dataset("digits").read("train[:100]")
    >>> example = next(iter(reader))
    >>> example["image"].shape, example["image"].dtype, example["label"]
    ((8, 8, 1), dtype('uint8'), np.int64(3))
    >>> [batch["label"].shape for batch in reader.batches(64)]
    [(64,), (36,)]
    >>> reader[[7, -1]]["label"].tolist(), reader[2:5]["image"].shape
    ([0, 2], (3, 8, 8, 1))
    >>> next(reader.ids())
    'digits-train.tfrecord-00000-of-00004__0'
    >>> reader.select("label")[0], reader.as_supervised("image", "label")[0][1]
    ({'label': np.int64(3)}, np.int64(3))

    Attributes:
        readable: the version.
        plan: which records of which files are read.
        read_config: the order, with the seed that was drawn if it has a shuffle without a seed.
        process: (index, count): this reader reads share ``index`` of ``count`` equal shares of each epoch.
        store: the folder of the files. Each file is proved to be the published one when it is opened.
    """

    def __init__(
        self,
        readable: ReadableVersion,
        plan: Plan,
        *,
        read_config: ReadConfig | None = None,
        state: State | Sequence[State] | None = None,
        process: tuple[int, int] = (0, 1),
        verify: Verify = "block",
        copy: bool = True,
    ) -> None:
        """Create a reader. ``Dataset.read`` and ``registry.load`` are the usual way to get one.

        Args:
            readable: the version.
            plan: which records of which of its files to read.
            read_config: the order; None is the default order of ``readable``.
            state: the ``state()`` of an equal reader, to continue from there. Or the list of states of all processes of
                a read, to continue with another number of processes.
            process: index and count, if several processes share each epoch.
            verify: ``block`` or ``record``, which find the same damage, or ``off``: see ``open_shard``.
            copy: False returns records, text, and tensors stored as bytes as read-only views of the mapped files.

        Raises:
            StateMismatchError: the state belongs to another version, plan or order.
            UsageError: an invalid ``process``, ``verify``, ``copy`` or ``read_config``; or several processes and a
                shuffle without a seed.
        """
        read_config = readable.order(read_config)
        if not isinstance(copy, bool):
            raise UsageError(f"copy must be True or False, not {copy!r:.60}")
        self._asked = read_config
        self.process = _check_process(process)
        if read_config.needs_seed:
            seed = read_seed(state)
            if seed is None and self.process[1] > 1:
                raise UsageError(
                    "several processes share a shuffle without a seed, and each would draw a seed of its own",
                    hint="Give all of them the same seed: ReadConfig(..., shuffle_seed=42), or seed=42.",
                )
            read_config = read_config.with_seed(secrets.randbelow(2**31 - 1) if seed is None else seed)
        self.readable = readable
        self.plan = plan
        self.read_config = read_config
        self.store = readable.files({split.name for split in plan.splits})
        self._verify: Verify = verify
        self._copy = copy
        self._order = plan.order(read_config)
        source = RecordSource(
            plan,
            self.store,
            verify=verify,
            indexes=readable.indexes,
            file_format=readable.file_format,
            features=readable.features,
        )
        self._items = ItemReader(PieceReader(source, readable.features, copy=copy), add_ids=read_config.add_tfds_id)
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
        """The format of the files, such as ``tfrecord``; see ``registry.shards``."""
        return self.readable.file_format

    def __len__(self) -> int:
        """Number of examples that this reader reads of one epoch."""
        return size_of(self._share)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Read the next epoch, example by example.

        Yields:
            A dict of NumPy arrays and scalars with the shapes and dtypes of ``features``; nested as they are. Text is
            ``bytes``. A missing value of an optional feature is None.

        Raises:
            CorruptRecordError: the framing or the checksum of a record is wrong.
            CorruptExampleError: a record does not fit the features; the message names file and record.
            ShardMismatchError: a file is not the published one, or has another number of records.
            StorageError: a file cannot be read.
        """
        return self._iterate(self._items.examples)

    def records(self) -> Iterator[bytes | memoryview]:
        """Read the next epoch as stored records.

        Yields:
            A serialized tf.train.Example, checked and not decoded: ``bytes``, or a memoryview of the mapped file if the
            reader has ``copy=False``.

        Raises:
            CorruptRecordError: the framing or the checksum of a record is wrong.
            ShardMismatchError: a file is not the published one, or has another number of records.
            StorageError: a file cannot be read.
        """
        return self._iterate(self._items.records)

    def ids(self) -> Iterator[str]:
        """Go through the next epoch by TFDS ids. No file is opened.

        Yields:
            File name and number of a record: ``mnist-train.tfrecord-00003-of-00010__17``.
        """
        return self._iterate(self._items.ids)

    def batches(self, batch_size: int, *, drop_remainder: bool = False) -> Iterator[dict[str, Any]]:
        """Read the next epoch in batches. A batch never contains examples of two epochs.

        >>> [batch["image"].shape for batch in digits.read("train[:100]").batches(64)]
        [(64, 8, 8, 1), (36, 8, 8, 1)]

        Args:
            batch_size: number of examples in a batch, at least 1.
            drop_remainder: leave out the last batch of an epoch if it is smaller.

        Yields:
            A dict of arrays, nested as an example is, with a first dimension of ``batch_size``. If the values of a
            feature differ in shape, and for text, it is an object array of arrays or ``bytes``. An optional feature is
            a masked array (``numpy.ma``).

        Raises:
            UsageError: ``batch_size`` is not a whole number, or is below 1. Raised at once, not while iterating.
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: as iterating a reader, after all
                whole batches before the damaged record.
        """
        batch_size = whole_number(batch_size, "batch_size", least=1)
        return self._iterate(partial(self._items.batches, batch_size=batch_size, drop_remainder=drop_remainder))

    def blocks(self) -> Iterator[dict[str, Any]]:
        """Read the next epoch in batches of the size that is read at once: thousands of small examples, few large ones.

        Yields:
            A dict of arrays, as ``batches``.
        """
        return self._iterate(self._items.blocks)

    def select(self, *names: str | Sequence[str]) -> Reader:
        """Return a reader of some features. The other features are not decoded.

        >>> digits.read("train[:100]").select("label")[0]
        {'label': np.int64(3)}

        Args:
            names: names of features, or one list of them.

        Returns:
            Another reader, which continues at the place of this one. Its features are in the order of ``names``.

        Raises:
            UsageError: no name, or an unknown name.
            WrongTypeError: a name is not a str.
        """
        wanted: list[Any] = [
            name for given in names for name in (given if isinstance(given, list | tuple) else [given])
        ]
        if not wanted:
            raise UsageError("select needs at least one feature", hint=f"The features are: {', '.join(self.features)}.")
        for name in wanted:
            require_type("the name of a feature", name, str)
            if name not in self.features:
                raise UsageError(f"no feature {name!r:.80}", hint=suggest(name, list(self.features)))
        some = self.readable.with_features(FeaturesDict({name: self.features[name] for name in wanted}))
        return self._again(some, self._asked, state=self.state(), process=self.process)

    def as_supervised(self, *keys: SupervisedKeys) -> SupervisedReader:
        """Return a view of the examples as tuples, such as (input, target).

        >>> image, label = digits.read("train[:100]").as_supervised("image", "label")[0]
        >>> image.shape, label
        ((8, 8, 1), np.int64(3))

        With a dict, the entry of the tuple is a dict:
        ``as_supervised({"left": "before", "right": "after"}, "label")``.

        Args:
            keys: the name of a feature for each entry of the tuple; or a tuple or dict of names.

        Returns:
            A view. ``registry.load(..., as_supervised=True)`` returns it with the version's own supervised keys.

        Raises:
            UsageError: no name, or an unknown name.
        """
        return SupervisedReader(self, keys)

    def to_numpy(self) -> dict[str, Any]:
        """Read all examples of the first epoch into memory.

        >>> {name: (column.shape, column.dtype) for name, column in digits.read("train[:100]").to_numpy().items()}
        {'image': ((100, 8, 8, 1), dtype('uint8')), 'label': ((100,), dtype('int64'))}

        Returns:
            A dict of arrays, nested as an example is, with a first dimension of ``len(self)``. Arrays and masked arrays
            as ``batches``.

        Raises:
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: as iterating a reader.
        """
        from registry.reading.frameworks.arrays import read_arrays

        return read_arrays(self)

    def to_pandas(self, *, text: TextForm = "str") -> pd.DataFrame:
        """Read all examples of the first epoch into a DataFrame: one row per example, one column per leaf feature.

        Nested names are joined by ``/``. Numbers keep their dtype, except that bfloat16 becomes float32. Values with
        dimensions are arrays in a column of objects (``Ragged`` for a Sequence of Sequences). A ``Text`` feature is
        ``str``; other strings are ``bytes``, because nothing says that they are text. A Dataset becomes what a Sequence
        becomes. An optional feature has a nullable dtype, such as ``Int64`` or ``Float32`` (also for float16), or is a
        column of objects and None.

        Args:
            text: ``bytes`` keeps ``Text`` as it is stored.

        Raises:
            UsageError: ``text`` is neither ``str`` nor ``bytes``.
            FeatureError: a text is not UTF-8, and ``text`` is ``str``.
            MissingExtraError: pandas is not installed (extra ``pandas``).
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: as iterating a reader.
        """
        with require_extra("pandas", package="pandas", needed_for="a read into pandas"):
            from registry.reading.frameworks.pandas import read_frame
        return read_frame(self, text=text)

    def to_arrow(self, *, text: TextForm = "str", batch_size: int | None = None) -> pa.Table:
        """Read the first epoch into an Arrow table; ``to_arrow_batches`` describes its schema.

        Args:
            text: ``str``, or ``bytes`` to keep ``Text`` as it is stored.
            batch_size: rows in each chunk of the table, fewer in the last; None uses the size of ``blocks``.

        Raises:
            MissingExtraError: pyarrow is not installed (extra ``arrow``).
            FeatureError: a text is not UTF-8, and ``text`` is ``str``.
            UsageError: ``batch_size`` is invalid, or a column of one chunk has more than 2 GiB.
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: a file is damaged or unreadable.
        """
        return self.to_arrow_batches(text=text, batch_size=batch_size).read_all()

    def to_arrow_batches(self, *, text: TextForm = "str", batch_size: int | None = None) -> pa.RecordBatchReader:
        """Stream the first epoch as Arrow record batches; a batch is read when it is requested.

        The schema depends on the features only. Null means a missing value of an optional feature.

        - Numbers and bools have Arrow's own types; bfloat16 is ``float``. ``Text`` is ``string``, any other string is
          ``binary``.
        - A dimension of known size, of a tensor, an image or a Sequence, is a fixed-size list; any other is a list.
        - A dict is a struct. A Sequence or Dataset of a dict is a struct of lists, as an example holds it.
        - A feature of an unknown kind has no type and is left out.

        Args:
            text: ``str``, or ``bytes`` to keep ``Text`` as it is stored.
            batch_size: rows in a batch, fewer in the last; None uses the size of ``blocks``.

        Raises:
            MissingExtraError: pyarrow is not installed (extra ``arrow``).
            FeatureError: while reading, a text is not UTF-8, and ``text`` is ``str``.
            UsageError: ``batch_size`` is invalid; or, while reading, a column of one batch has more than 2 GiB.
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: as iterating a reader, while
                it is read.
        """
        with require_extra("arrow", package="pyarrow", needed_for="a read into pyarrow"):
            from registry.reading.frameworks.arrow import read_batches
        return read_batches(self, text=text, batch_size=batch_size)

    @overload
    def to_torch(
        self,
        *,
        transform: Callable[[Any], Any] | None = None,
        pad: Mapping[str, float | None] | None = None,
    ) -> ReaderDataset: ...
    @overload
    def to_torch(
        self,
        *,
        iterable: Literal[True],
        batch_size: int | None = None,
        drop_remainder: bool = False,
        process: tuple[int, int] | None = None,
        transform: Callable[[Any], Any] | None = None,
        pad: Mapping[str, float | None] | None = None,
    ) -> ReaderIterable: ...
    def to_torch(
        self,
        *,
        iterable: bool = False,
        batch_size: int | None = None,
        drop_remainder: bool = False,
        process: tuple[int, int] | None = None,
        transform: Callable[[Any], Any] | None = None,
        pad: Mapping[str, float | None] | None = None,
    ) -> ReaderDataset | ReaderIterable:
        """Return a dataset for ``torch.utils.data.DataLoader``, with any number of workers, forked or spawned.

            dataset = reader.to_torch()
            loader = DataLoader(dataset, batch_size=32, shuffle=True, collate_fn=dataset.collate)

        An example is a dict of tensors with the dtypes of ``features``; text is ``bytes``, a missing value is None.

        By default it is a map-style dataset of the first epoch: ``dataset[i]`` is an example, ``dataset[[i, j]]`` a
        batch, and a loader fetches all examples of a batch at once.

        With ``iterable=True`` it is an ``IterableDataset`` in the order of the reader. All ranks and workers together
        read every example of an epoch once. Each iteration reads the next epoch, the same in all workers;
        ``set_epoch`` chooses one. ``state_dict`` and ``load_state_dict`` are those of torchdata's StatefulDataLoader.

        In a batch (``dataset.collate``, or ``batch_size=``), features of one shape are tensors; text is a list of
        ``bytes``. Features that may differ in shape or may be None are lists, unless ``pad`` names them. The type of
        each feature depends on the schema and on ``pad``, never on the examples in the batch.

        Args:
            iterable: return an iterable dataset.
            batch_size: with ``iterable``, give batches, for ``DataLoader(..., batch_size=None)``. They come in the
                reader's order with any number of workers. Without it, each worker gives the examples of its own run.
            drop_remainder: leave out the last batch of an epoch if it is smaller.
            process: index and number of the ranks; None uses the reader's ``process``, or torch.distributed's rank if
                it is initialised when an iteration starts.
            transform: a function of one example, called in the worker before examples become a batch. For spawned
                workers, define it at the top level of a module.
            pad: numbers to pad features of varying shape with, such as ``{"tokens": 0}``: in a batch these are
                ``registry.torch.Padded`` (values, lengths). None as the number keeps a list. Names are those of
                ``features``, joined by ``/``; with a ``transform``, paths in what it returns.

        Raises:
            UsageError: an invalid option; an option of iterables without ``iterable``; or ``pad`` names a feature that
                does not exist or cannot be padded.
            MissingExtraError: torch is not installed (extra ``torch``).
        """
        return read_torch(
            self,
            None,
            iterable=iterable,
            batch_size=batch_size,
            drop_remainder=drop_remainder,
            process=process,
            transform=transform,
            pad=pad,
        )

    def to_grain(self) -> ReaderSource:
        """Return the first epoch as a random access source of Grain, for threads and processes. It does not need Grain.

            grain.MapDataset.source(reader.to_grain()).shuffle(seed=1).batch(32)

        Examples are dicts as from iterating. A missing value is None, which Grain cannot batch: see ``fill_missing``.

        Raises:
            IndexError: from the source, for a position outside the epoch.
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: from the source, as iterating a
                reader.
        """
        from registry.reading.frameworks.sharing import ReaderSource

        return ReaderSource(self)

    def to_ray(
        self,
        *,
        text: TextForm = "str",
        epoch: int = 0,
        override_num_blocks: int | None = None,
        concurrency: int | None = None,
    ) -> ray.data.Dataset:
        """Return one epoch as a ``ray.data.Dataset``, which tasks on a Ray cluster read: a row for each example.

            rows = reader.to_ray().map_batches(predict)

        The columns are those of ``to_arrow_batches``. Nothing is read before Ray Data executes the dataset, and
        ``count()`` and ``schema()`` never read. A task reads a range of positions, and gives tables of a few MB while
        it reads. If the reader has a ``process``, only its share is read. Its place is ignored.

        Ray Data gives rows in the order in which tasks end. To get them in the order of the reader, set
        ``ray.data.DataContext.get_current().execution_options.preserve_order = True`` before.

        All nodes must be able to read the files. Credentials in the environment of this process are sent to the tasks,
        and are not in Ray's logs or its dashboard. If this program has not called ``ray.init``, Ray does so.

        Args:
            text: ``str``, or ``bytes`` to keep ``Text`` as it is stored.
            epoch: the number of the epoch, from 0. Each epoch of a shuffle has its own order.
            override_num_blocks: the number of tasks. By default Ray Data chooses it, for at most 128 MiB in each task.
            concurrency: the most tasks that run at the same time; None lets Ray Data choose.

        Raises:
            UsageError: an invalid option; the files are in the memory of this process; or no feature has a type in
                Arrow.
            MissingExtraError: Ray, pyarrow or pandas is not installed (extras ``ray``, ``arrow`` and ``pandas``).
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError, FeatureError: while Ray Data
                executes: the error is both this one and a ``ray.exceptions.RayTaskError``.
        """
        return read_ray(self, text=text, epoch=epoch, num_blocks=override_num_blocks, concurrency=concurrency)

    def to_tf_dataset(self, *, batch_size: int | None = None, drop_remainder: bool = False) -> tf.data.Dataset:
        """Return a ``tf.data.Dataset`` in the order of the reader, prefetched, of known cardinality.

        Iterating it reads ``read_config.repeat`` epochs, and iterating it again the next ones. Text is ``tf.string``. A
        feature with unknown dimensions is a tensor with None in its shape, and a Sequence of Sequences a RaggedTensor.
        A Dataset becomes what a Sequence becomes. A feature of an unknown kind is left out.

        Args:
            batch_size: give batches, which is faster than ``batch()``. Every feature must have one shape.
            drop_remainder: leave out the last batch of an epoch if it is smaller.

        Raises:
            UsageError: an invalid option, or a feature that TensorFlow has no tensor for. One is an optional feature,
                whose value may be None; ``fill_missing`` chooses a value.
            MissingExtraError: tensorflow is not installed (extra ``tensorflow``).
            tf.errors.OpError: while iterating, with the message of this reader's error.
        """
        check_batches(batch_size, drop_remainder=drop_remainder)
        with require_extra("tensorflow", package="tensorflow", needed_for="a read into tensorflow"):
            from registry.reading.frameworks.tensorflow import read_dataset
        return read_dataset(self, batch_size=batch_size, drop_remainder=drop_remainder)

    def state(self) -> dict[str, Any]:
        """Return the place of the iteration that was started last, to be saved with a checkpoint.

            reader = dataset.read("train", config, state=json.loads(saved))

        A reader of the same version, split and order that is created with ``state=`` continues with the very next
        example, batch or record. If the iteration had ended, its first iteration is empty, and then the next epoch
        follows.

        Returns:
            Plain values that JSON can hold: a few numbers and digests.
        """
        return self._cursor.state.to_json(self._source)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | npt.NDArray[np.integer[Any]]) -> dict[str, Any]: ...
    def __getitem__(self, index: Any) -> dict[str, Any]:
        """Read examples of the first epoch by number, in the order of ``read_config``.

        Args:
            index: a number, or a slice, list or array of numbers. Negative numbers count from the end.

        Returns:
            The example for a number, as from iterating; a batch for anything else, as from ``batches``.

        Raises:
            IndexError: a number is out of range.
            TypeError: ``index`` is not a whole number, a slice or a list of whole numbers.
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: as iterating a reader.
        """
        positions, is_one = find_positions(self._share, index)
        return (self._items.example_at if is_one else self._items.columns_at)(self._order, positions)

    def examples_at(self, indices: Sequence[int] | npt.NDArray[np.integer[Any]]) -> list[dict[str, Any]]:
        """Read the examples at these positions of the first epoch together, and return them one by one.

        Args:
            indices: positions in the reader's order, in any order; a negative one counts from the end.

        Raises:
            IndexError: a position is outside the epoch.
            TypeError: a position is not a whole number.
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: a file is damaged or unreadable.
        """
        positions, _ = find_positions(self._share, indices)
        return self._items.examples_at(self._order, positions)

    def seek(self, epoch: int, part: Intervals | None = None) -> None:
        """Make the next iteration read ``epoch`` only.

        Args:
            epoch: its number, from 0.
            part: the positions to read of it; None reads this process's share.

        Raises:
            UsageError: ``epoch`` is not a whole number from 0.
        """
        epoch = whole_number(epoch, "epoch", least=0)
        state = ReadState.start(self._source, epoch=epoch, repeat=1, process=self.process)
        self._begin = state if part is None else replace(state, left=((epoch, part),))
        self._cursor = Cursor(self._begin)

    @property
    def drew_seed(self) -> bool:
        """Whether the seed in ``read_config`` was drawn, because a shuffle had no seed."""
        return self._asked.needs_seed

    def reopened(
        self, *, process: tuple[int, int] | None = None, state: State | Sequence[State] | None = None
    ) -> Reader:
        """Return another reader of the same examples in the same order, at its beginning or at ``state``.

        Args:
            process: index and count of its share; None keeps this reader's.
            state: as for ``Reader``.

        Raises:
            StateMismatchError: the state belongs to another version, plan or order.
            UsageError: an invalid ``process``.
        """
        config = self.read_config if state is None else self._asked
        return self._again(self.readable, config, state=state, process=self.process if process is None else process)

    def missing_as_none(self) -> Reader:
        """Return a reader that gives None for a missing value of an optional feature, and a mask in batches.

        It starts at the beginning. This is the default, except for readers of ``registry.load``.
        """
        return self._decoding(self.features.missing_as_none())

    def missing_as_tfds(self) -> Reader:
        """Return a reader that gives TFDS's value for a missing one: the lowest number of the dtype, ``b""`` or False.

        It starts at the beginning. In batches an optional feature is a plain array.
        """
        return self._decoding(self.features.missing_as_tfds())

    def fill_missing(self, values: Mapping[str, Any]) -> Reader:
        """Return a reader that gives ``values`` for missing values of optional features.

            reader.fill_missing({"age": -1, "place/name": b"?"})

        It starts at the beginning. In batches these features are plain arrays.

        Args:
            values: a value for each path of a feature.

        Raises:
            FeatureError: no feature has that path, it is not optional, or the value does not fit it.
            WrongTypeError: ``values`` is not a mapping.
        """
        require_type("values", values, Mapping)
        return self._decoding(self.features.fill_missing(values))

    def with_ids(self) -> Reader:
        """Return a reader that adds each example's TFDS id as the feature ``tfds_id``, at the place of this one."""
        config = replace(self._asked, add_tfds_id=True)
        return self._again(self.readable, config, state=self.state(), process=self.process)

    def __getstate__(self) -> tuple[Any, ...]:
        sort_files = self.read_config.interleave_sort_fn
        if isinstance(sort_files, FunctionType) and "<" in sort_files.__qualname__:
            raise UsageError(
                f"a reader with interleave_sort_fn {sort_files.__qualname__} cannot be sent to another process",
                hint="Define that function with def, at the top level of a module.",
            )
        some = self.readable.within({split.name for split in self.plan.splits})
        options = (self.read_config, self.process, self._verify, self._copy)
        return (some, self.plan, options, self._asked, self._begin, self._cursor.state)

    def __setstate__(self, sent: tuple[Any, ...]) -> None:
        readable, plan, (read_config, process, verify, copy), asked, begin, place = sent
        self.__init__(  # type: ignore[misc]  # nothing is open yet
            readable, plan, read_config=read_config, process=process, verify=verify, copy=copy
        )
        self._asked, self._begin, self._cursor = asked, begin, Cursor(place)

    def __repr__(self) -> str:
        return f"<Reader {self.plan.expression}: {len(self)} examples>"

    def _decoding(self, features: FeaturesDict) -> Reader:
        """Another reader, at its beginning, that decodes examples by ``features``."""
        return self._again(self.readable.with_features(features), self.read_config, state=None, process=self.process)

    def _again(
        self,
        readable: ReadableVersion,
        read_config: ReadConfig,
        *,
        state: State | Sequence[State] | None,
        process: tuple[int, int],
    ) -> Reader:
        """Another reader of this plan. If it has the order of this one, it knows whether the seed was drawn."""
        reader = Reader(
            readable,
            self.plan,
            read_config=read_config,
            state=state,
            process=process,
            verify=self._verify,
            copy=self._copy,
        )
        if read_config is self.read_config:
            reader._asked = self._asked
        return reader

    def _iterate(self, item_lists: ItemLists) -> Iterator[Any]:
        """Start an iteration: of the next epoch, or from the given state."""
        begin = self._begin
        self._cursor = Cursor(begin)
        self._begin = self._start(begin.epoch + 1 if begin.until is None else begin.until)
        return chain.from_iterable(self._run(self._cursor, item_lists))

    def _run(self, cursor: Cursor, item_lists: ItemLists) -> Iterator[Iterator[Any]]:
        """The items in lists. The cursor derives the place within a list from what is left of its iterator."""
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
        return ReadState.start(self._source, epoch=epoch, repeat=self.read_config.repeat, process=self.process)

    def _order_of(self, epoch: int) -> Order:
        config = self.read_config
        if self._order.epoch != epoch and (config.shuffle is not None or config.shuffle_files):
            return self.plan.order(config, epoch=epoch)
        return self._order


def _check_process(process: tuple[int, int]) -> tuple[int, int]:
    try:
        index, count = map(operator.index, process)
    except (TypeError, ValueError):
        raise UsageError(f"process must be (index, count), two whole numbers, not {process!r:.60}") from None
    if not 0 <= index < count:
        raise UsageError(f"there is no process {index} of {count}", hint="Processes are counted from 0.")
    return index, count
