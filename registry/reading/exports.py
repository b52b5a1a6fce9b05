"""How do examples get into the tools people use? One method for each; what it needs is imported when it is called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from registry.errors import MissingExtraError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

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

        All of them are in memory, decoded. Errors as iterating.
        """
        from registry.reading.frameworks.arrays import read_arrays

        return read_arrays(self._reading)

    def to_pandas(self, *, text: TextForm = "str") -> pd.DataFrame:
        """All examples of the first epoch as a DataFrame: a row for each, a column for each leaf.

        A column is named by the names on the way to the leaf, joined by ``/``. Numbers keep their dtype; values with
        dimensions stand in a column of objects, as arrays (``Ragged`` where they are ragged). A feature ``Text`` is
        ``str``; other strings are ``bytes``, because nothing says that they are text. All of it is in memory.

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

        The schema follows from the features alone, and no value is null:

        - numbers and bools are Arrow's own; ``Text`` is ``string``, and any other string ``binary``;
        - a dimension of known size, of a tensor, an image or a Sequence, is a fixed-size list; any other is a list;
        - a dict is a struct, and a Sequence of a dict is a struct of lists, as an example holds them.

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

    @property
    def _reading(self) -> Reader:
        return cast("Reader", self)


@contextmanager
def _needs(package: str, *, extra: str) -> Iterator[None]:
    """Say which extra holds ``package`` where it is not there."""
    try:
        yield
    except ImportError as error:
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise MissingExtraError(package=package, extra=extra, needed_for=f"a read into {package}") from error
