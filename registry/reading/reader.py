"""``Reader``: the examples of a plan, for a loop of Python, NumPy and other frameworks; and ``Batches`` of a reader.

``examples.py`` reads, and ``frameworks/`` makes tables, tensors and other tools' datasets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from registry.features import FeaturesDict
from registry.model import whole_number
from registry.order import ReadConfig
from registry.prepared.info import SupervisedKeys
from registry.reading.examples import ExampleReader
from registry.reading.frameworks import read_ray
from registry.reading.tables import TableSource
from registry.reading.tensors import TensorSource
from registry.reading.views import SupervisedReader
from registry.splits import Plan

if TYPE_CHECKING:
    import ray.data
    import tensorflow as tf

    from registry.reading.frameworks.arrays import TextForm
    from registry.reading.frameworks.sharing import ReaderSource
    from registry.reading.frameworks.torch import ReaderIterable


class Reader(ExampleReader, TableSource, TensorSource):
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
        matches: which records of the plan it reads, if ``where`` made it; otherwise None.
        store: the folder of the files. Each file is proved to be the published one when it is opened.
    """

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

        The columns are those of ``to_arrow_batches(labels="numbers", decode=True)``. Nothing is read before Ray Data
        executes the dataset, and ``count()`` and ``schema()`` never read. A task reads a range of positions, and gives
        tables of a few MB while it reads. If the reader has a ``process``, only its share is read. Its place is
        ignored.

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

    def _decoded(self) -> tuple[ExampleReader, SupervisedKeys | None]:
        return self, None

    def _readers(self) -> Sequence[ExampleReader]:
        return (self,)


class Batches:
    """The examples of a reader in batches; the last batch of an epoch may be smaller.

    Attributes:
        source: the reader or the supervised view. The batches share its place.
        batch_size: number of examples in a batch.

    Raises:
        UsageError: ``batch_size`` is not a whole number, or is below 1.
    """

    def __init__(self, source: Reader | SupervisedReader, batch_size: int) -> None:
        self.source = source
        self.batch_size = whole_number(batch_size, "batch_size", least=1)

    def __len__(self) -> int:
        """Number of batches of one epoch."""
        return (len(self.source) + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[Any]:
        """Read the batches of the next epoch. Errors as iterating the reader."""
        return self.source.batches(self.batch_size)

    def to_torch(
        self,
        *,
        drop_remainder: bool = False,
        process: tuple[int, int] | None = None,
        transform: Callable[[Any], Any] | None = None,
        pad: Mapping[str, float | None] | None = None,
    ) -> ReaderIterable:
        """Return an iterable dataset of these batches, for ``DataLoader(dataset, batch_size=None)``.

        Args:
            drop_remainder: leave out the last batch of an epoch if it is smaller.
            process: index and number of the ranks; None uses the reader's ``process``, or torch.distributed's rank.
            transform: a function of one example, called in the worker before examples become a batch.
            pad: numbers to pad features of varying shape with, by name, such as ``{"tokens": 0}``.

        Raises:
            UsageError: an invalid option, or ``pad`` names what does not exist or cannot be padded.
            MissingExtraError: torch is not installed (extra ``torch``).
        """
        return self.source.to_torch(
            iterable=True,
            batch_size=self.batch_size,
            drop_remainder=drop_remainder,
            process=process,
            transform=transform,
            pad=pad,
        )

    def to_tf_dataset(self, *, drop_remainder: bool = False) -> tf.data.Dataset:
        """Return these batches as a ``tf.data.Dataset``.

        Args:
            drop_remainder: leave out the last batch of an epoch if it is smaller.

        Raises:
            UsageError: a feature that TensorFlow has no tensor for.
            MissingExtraError: tensorflow is not installed (extra ``tensorflow``).
        """
        return self.source.to_tf_dataset(batch_size=self.batch_size, drop_remainder=drop_remainder)

    def state(self) -> dict[str, Any]:
        """The place of the reader's iteration: see ``Reader.state``."""
        return self.source.state()

    @property
    def plan(self) -> Plan:
        """Which records of which files are read."""
        return self.source.plan

    @property
    def features(self) -> FeaturesDict:
        """The schema of the examples."""
        return self.source.features

    @property
    def read_config(self) -> ReadConfig:
        """The order."""
        return self.source.read_config

    def __repr__(self) -> str:
        return f"<Batches of {self.batch_size}: {len(self)} of {self.source!r}>"
