"""``TableSource``: what a ``Reader`` and a ``Slice`` give to Arrow, pandas, polars and DuckDB: tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from registry.errors import UsageError, require_extra
from registry.reading.examples import ExampleReader

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from registry.reading.frameworks.arrays import TextForm
    from registry.reading.frameworks.table_columns import Labels


class TableSource(ABC):
    """Examples as a table. Arrow's PyCapsule interface gives it to every library that knows Arrow.

        polars.DataFrame(reader)
        pyarrow.table(reader)
        pandas.DataFrame.from_arrow(reader)
        duckdb.sql("SELECT label, count(*) FROM reader GROUP BY label")

    A table always has the first epoch from its beginning, however much of the reader was iterated before, and making
    one does not move the place of the reader. It is read in bounded memory, a batch at a time, unless the other library
    keeps it.
    """

    __slots__ = ()

    @abstractmethod
    def _readers(self) -> Sequence[ExampleReader]:
        """Readers of one schema, whose rows follow each other."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A capsule of the stream of ``to_arrow_batches``. An error while it is read is an error of the consumer."""
        return self.to_arrow_batches().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """A capsule of the schema of ``to_arrow_batches``. No file is opened."""
        return self.to_arrow_batches().schema.__arrow_c_schema__()

    def to_pandas(self, *, text: TextForm = "str", labels: Labels = "dictionary", decode: bool = False) -> pd.DataFrame:
        """Read the first epoch into a DataFrame with the columns and values of ``to_arrow_batches``.

        Labels are categories. A number or bool that may be missing has a nullable dtype, such as ``Int64`` or
        ``Float32`` (also for float16). An array is an array of NumPy. Dicts and lists of dicts are dicts of Python.

        Args:
            text: see ``to_arrow_batches``.
            labels: see ``to_arrow_batches``.
            decode: see ``to_arrow_batches``.

        Raises:
            UsageError, FeatureError: see ``to_arrow_batches``.
            MissingExtraError: pandas or pyarrow is not installed (extras ``pandas`` and ``arrow``).
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: as iterating a reader.
        """
        with require_extra("pandas", package="pandas", needed_for="a read into pandas"):
            import_module("pandas")
        table = self.to_arrow(text=text, labels=labels, decode=decode)
        from registry.reading.frameworks.tables import to_frame

        return to_frame(table, self._readers()[0].features)

    def to_polars(self, *, text: TextForm = "str", labels: Labels = "dictionary", decode: bool = False) -> pl.DataFrame:
        """Read the first epoch into a DataFrame of polars with the columns and values of ``to_arrow_batches``.

        Args:
            text: see ``to_arrow_batches``.
            labels: see ``to_arrow_batches``. A dictionary is a ``Categorical``.
            decode: see ``to_arrow_batches``.

        Raises:
            UsageError, FeatureError: see ``to_arrow_batches``.
            MissingExtraError: polars or pyarrow is not installed (extras ``polars`` and ``arrow``).
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: as iterating a reader.
        """
        with require_extra("polars", package="polars", needed_for="a read into polars"):
            import polars as pl
        result = pl.from_arrow(self.to_arrow(text=text, labels=labels, decode=decode))
        assert isinstance(result, pl.DataFrame)  # noqa: S101 - of a table
        return result

    def to_arrow(
        self,
        *,
        text: TextForm = "str",
        labels: Labels = "dictionary",
        decode: bool = False,
        batch_size: int | None = None,
    ) -> pa.Table:
        """Read the first epoch into an Arrow table; ``to_arrow_batches`` describes its schema.

        Args:
            text: see ``to_arrow_batches``.
            labels: see ``to_arrow_batches``.
            decode: see ``to_arrow_batches``.
            batch_size: rows in each chunk of the table, fewer in the last; None uses the size of ``blocks``.

        Raises:
            MissingExtraError, UsageError, FeatureError: see ``to_arrow_batches``.
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: a file is damaged or unreadable.
        """
        return self.to_arrow_batches(text=text, labels=labels, decode=decode, batch_size=batch_size).read_all()

    def to_arrow_batches(
        self,
        *,
        text: TextForm = "str",
        labels: Labels = "dictionary",
        decode: bool = False,
        batch_size: int | None = None,
    ) -> pa.RecordBatchReader:
        """Stream the first epoch as Arrow record batches; a batch is read when it is requested.

        The schema depends on the version only. Null means a missing value.

        - Columns are in the order of the source that the version was added from, else in that of ``features``.
        - Numbers and bools have Arrow's own types; bfloat16 is ``float``. Dates, times and decimals have the type that
          they had in the source. Text is ``string``; a string that nothing says is text is ``binary``.
        - A dimension of known size, of a tensor or a Sequence, is a fixed-size list; any other is a list.
        - A dict is a struct. A Sequence or Dataset of a dict is a list of structs.
        - Images and sounds are the stored files: structs of ``bytes`` and ``path``, as in Hugging Face's ``datasets``,
          whose metadata the schema has.
        - A feature of an unknown kind has no type and is left out.

        Args:
            text: ``str``, or ``bytes`` to keep text as it is stored.
            labels: a class label with names becomes a ``dictionary``, ``names`` or ``numbers``; no label (-1) is null,
                unless it is a number.
            decode: images and sounds become lists of numbers in place of files.
            batch_size: rows in a batch, fewer in the last; None uses the size of ``blocks``.

        Raises:
            MissingExtraError: pyarrow is not installed (extra ``arrow``).
            UsageError: an option is invalid, the version has no splits, or no feature has a type; or, while reading, a
                column of one batch has more than 2 GiB.
            FeatureError: while reading, a text is not UTF-8, and ``text`` is ``str``; or a class has no name.
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: as iterating a reader, while
                it is read.
        """
        with require_extra("arrow", package="pyarrow", needed_for="a read into pyarrow"):
            from registry.reading.frameworks.tables import read_batches
        readers = self._readers()
        if not readers:
            raise UsageError("the version has no splits, so it has no table")
        return read_batches(readers, text=text, batch_size=batch_size, labels=labels, decode=decode)


class ChainedTables(TableSource):
    """The tables of several readers of one version, one after the other."""

    def __init__(self, readers: Sequence[ExampleReader]) -> None:
        self._chain = readers

    def _readers(self) -> Sequence[ExampleReader]:
        return self._chain
