"""How do examples get into the tools people use? One method for each; what it needs is imported when it is called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, overload

from registry.errors import MissingExtraError, UsageError
from registry.model import whole_number

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import tensorflow as tf

    from registry.reading.frameworks.sharing import ReaderSource
    from registry.reading.frameworks.torch import ReaderDataset, ReaderIterable
    from registry.reading.reader import Reader

TextForm: TypeAlias = Literal["str", "bytes"]
"""What a ``Text`` becomes in a table: ``str``, which refuses what is no UTF-8, or ``bytes`` as they are stored."""


class Exports:
    """The part of a ``Reader`` that hands its examples to other software.

    All of a table or an array is the first epoch of the reader, in its order: of ``reader[i]``, and of iterating once.
    Nothing of this moves the place of the reader.
    """

    def to_numpy(self) -> dict[str, Any]:
        """All examples of the first epoch at once, as a dict of arrays, nested as an example is; see ``batches``.

        All of them are in memory, decoded. An optional feature is a masked array. Errors as iterating.
        """
        from registry.reading.frameworks.arrays import read_arrays

        return read_arrays(self._reading)

    def to_pandas(self, *, text: TextForm = "str") -> pd.DataFrame:
        """All examples of the first epoch as a DataFrame: a row for each, a column for each leaf.

        A column is named by the names on the way to the leaf, joined by ``/``. Numbers keep their dtype; values with
        dimensions stand in a column of objects, as arrays (``Ragged`` where they are ragged). A feature ``Text`` is
        ``str``; other strings are ``bytes``, because nothing says that they are text. A Dataset is as a Sequence, and
        bfloat16 is float32. An optional feature has a nullable dtype of pandas, such as ``Int64`` or ``Float32`` (which
        float16 becomes, too), or is a column of objects and None. All of it is in memory.

        Raises:
            FeatureError: a text is no UTF-8; ``text="bytes"`` takes it as it is.
            MissingExtraError: pandas is not installed (extra ``pandas``).
            As iterating.
        """
        with _needs("pandas", extra="pandas"):
            from registry.reading.frameworks.pandas import read_frame
        return read_frame(self._reading, text=text)

    def to_arrow(self, *, text: TextForm = "str", batch_size: int | None = None) -> pa.Table:
        """All examples of the first epoch as an Arrow table, in memory; schema and errors as ``to_arrow_batches``."""
        return self.to_arrow_batches(text=text, batch_size=batch_size).read_all()

    def to_arrow_batches(self, *, text: TextForm = "str", batch_size: int | None = None) -> pa.RecordBatchReader:
        """The examples of the first epoch as a stream of record batches, each read when it is asked for.

        The schema follows from the features alone. No value is null, but the missing ones of optional features:

        - numbers and bools are Arrow's own; ``Text`` is ``string``, and any other string ``binary``;
        - a dimension of known size, of a tensor, an image or a Sequence, is a fixed-size list; any other is a list;
        - a dict is a struct, and a Sequence of a dict is a struct of lists, as an example holds them; so is a Dataset;
        - bfloat16 is ``float``; a feature that is not known here has no type, and is left out.

        Args:
            text: ``str`` or ``bytes``.
            batch_size: rows of a batch, fewer in the last; None is as many as are read at once.

        Raises:
            FeatureError: a text is no UTF-8; ``text="bytes"`` takes it as it is.
            UsageError: a column of one batch holds more than 2 GiB of text or bytes.
            MissingExtraError: pyarrow is not installed (extra ``arrow``).
            As iterating, while it is read.
        """
        with _needs("pyarrow", extra="arrow"):
            from registry.reading.frameworks.arrow import read_batches
        return read_batches(self._reading, text=text, batch_size=batch_size)

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
        with _needs("torch", extra="torch"):
            from registry.reading.frameworks.torch import ReaderDataset, ReaderIterable
        if iterable:
            check_batches(batch_size, drop_remainder=drop_remainder)
            return ReaderIterable(self._reading, batch_size=batch_size, drop_remainder=drop_remainder, process=process)
        if batch_size is not None or drop_remainder or process is not None:
            raise UsageError(
                "batch_size, drop_remainder and process are options of iterable=True",
                hint="Of a dataset by number the DataLoader makes batches, and its sampler divides them among ranks.",
            )
        return ReaderDataset(self._reading)

    def to_grain(self) -> ReaderSource:
        """The examples of the first epoch as a random access source of Grain, which is not needed to make one.

        For ``grain.MapDataset.source(...)`` and ``grain.DataLoader(data_source=...)``, with threads and processes. A
        missing value is None, which Grain does not batch: see ``Reader.fill_missing``.
        """
        from registry.reading.frameworks.sharing import ReaderSource

        return ReaderSource(self._reading)

    def to_tf_dataset(self, *, batch_size: int | None = None, drop_remainder: bool = False) -> tf.data.Dataset:
        """The examples as a ``tf.data.Dataset``, in the order of the reader, prefetched, of known cardinality.

        Iterating it reads ``config.repeat`` epochs, and iterating it again the next ones. A feature of unknown
        dimensions is a tensor with None in its shape, a Sequence of Sequences a RaggedTensor, text is ``tf.string``. A
        Dataset is as a Sequence, but what may differ in shape in its examples is refused. A feature that is not known
        here, which has no type, is left out.
        What the reader raises comes as TensorFlow's error, with the message in it.

        Args:
            batch_size: give batches, where every feature has one shape in all examples: faster than ``batch()``.
            drop_remainder: leave out a smaller last batch of each epoch.

        Raises:
            UsageError: an option or a feature that TensorFlow has no tensor for, as an optional one of which a value
                may be None; ``Reader.fill_missing`` chooses another.
            MissingExtraError: tensorflow is not installed (extra ``tensorflow``).
        """
        check_batches(batch_size, drop_remainder=drop_remainder)
        with _needs("tensorflow", extra="tensorflow"):
            from registry.reading.frameworks.tensorflow import read_dataset
        return read_dataset(self._reading, batch_size=batch_size, drop_remainder=drop_remainder)

    @property
    def _reading(self) -> Reader:
        return cast("Reader", self)


def check_batches(batch_size: int | None, *, drop_remainder: bool) -> None:
    """Refuse options of batches that mean nothing."""
    if batch_size is not None:
        whole_number(batch_size, "batch_size", least=1)
    if drop_remainder and batch_size is None:
        raise UsageError("drop_remainder leaves out a batch, and there are none without batch_size")


@contextmanager
def _needs(package: str, *, extra: str) -> Iterator[None]:
    """Say which extra holds ``package`` where it is not there."""
    try:
        yield
    except ImportError as error:
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise MissingExtraError(package=package, extra=extra, needed_for=f"a read into {package}") from error
