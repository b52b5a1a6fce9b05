"""The base class of decoders, and the stacking of values of many records into one array.

A decoder turns a serialized record into items. Subclasses implement ``decode`` and ``list_items``; the methods that
decode many records at once have defaults here, with exactly the results of ``decode``.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, ItemNotFoundError, UsageError, WrongTypeError, at_record
from registry.features import LimitReader
from registry.tfrecord import RecordBlock

_ONE_OR_MANY: Final = "decode accepts one serialized record; decode_batch accepts a list of records."
_BYTE_FORMATS: Final = ("B", "b", "c")


class DataDecoder(abc.ABC):
    """Decodes records to items. Subclasses implement ``decode`` and ``list_items``.

    Follows ``tf_slim.data.data_decoder.DataDecoder``.
    """

    @abc.abstractmethod
    def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[Any]:
        """Decode one record: the values of ``items``, in that order.

        Args:
            data: the record, a serialized example.
            items: names from ``list_items``; None or an empty list is all of them.
        """

    @abc.abstractmethod
    def list_items(self) -> list[str]:
        """The names of the items that can be decoded."""

    def decode_rows(self, block: RecordBlock, items: Sequence[str]) -> Iterator[list[Any]]:
        """Decode the records of a block, in order.

        Args:
            block: the records.
            items: names from ``list_items``.

        Yields:
            What ``decode`` returns for each record.

        Raises:
            CorruptExampleError: a record does not hold the items. Raised after the rows before it;
                ``details["record"]`` is its index in the block.
        """
        for place, record in enumerate(block.records()):
            try:
                yield self.decode(record, items)
            except CorruptExampleError as error:
                raise at_record(error, place) from error

    def decode_batch(self, records: RecordBlock | Sequence[bytes], items: Sequence[str] | None = None) -> list[Any]:
        """Decode many records: one array for each of ``items``, in that order, whose first dimension counts records.

        ``column[i]`` is the value that ``decode`` returns for record ``i``. If the values differ in shape, or are
        sparse, the column is an object array (records,).

        Args:
            records: a block, or a list of serialized examples.
            items: names from ``list_items``; None or an empty list is all of them.

        Raises:
            CorruptExampleError: a record does not hold the items; ``details["record"]`` is its index.
            ItemNotFoundError: ``items`` has a name that ``list_items`` does not.
            UsageError: ``decode`` does not return one value for each item.
            WrongTypeError: ``records`` is not a list of bytes, or ``items`` not a list or tuple.
        """
        names = self.check_items(items)
        block = as_block(records)
        rows: list[Any] = list(self.decode_rows(block, names))
        if any(not isinstance(row, list | tuple) or len(row) != len(names) for row in rows):
            raise UsageError(
                f"{type(self).__name__}.decode must return a list of {len(names)} values, and returned something else",
                hint="Return a value for each requested item, in the order of items.",
            )
        if len(rows) != block.num_records:
            raise UsageError(
                f"{type(self).__name__}.decode_rows must return {block.num_records} rows, and returned {len(rows)}",
                hint="Return a row for each record of the block, or raise an error.",
            )
        return [self.stack(name, [row[place] for row in rows]) for place, name in enumerate(names)]

    def stack(self, item: str, values: list[Any]) -> npt.NDArray[Any]:  # noqa: ARG002 (for subclasses)
        """Return the column of one item, whose first dimension counts records.

        Args:
            item: the item's name.
            values: what ``decode`` returned for it in each record.
        """
        return stack_items(values)

    def declared_keys(self) -> list[str]:
        """The keys of a record that this decoder reads; empty if the decoder does not declare them."""
        return []

    def stored_keys(self, data: bytes) -> Collection[str]:  # noqa: ARG002 (for subclasses)
        """The keys that a record holds, declared or not; empty if the decoder declares no keys."""
        return ()

    def limits(self) -> LimitReader | None:
        """What finds values that a feature of the records does not allow; None if the decoder has no features."""
        return None

    def check_items(self, items: Sequence[str] | None) -> list[str]:
        """``items`` as a list; all items if ``items`` is None or empty.

        Raises:
            ItemNotFoundError: ``items`` has a name that ``list_items`` does not.
            WrongTypeError: ``items`` is not a list or tuple.
        """
        known = self.list_items()
        check_names([] if items is None else items, known, where="this decoder", example="['image', 'label']")
        return list(items) if items else known


def check_names(items: Any, known: list[str], *, where: str, example: str) -> None:
    """Raise WrongTypeError if ``items`` is not a list or tuple, and ItemNotFoundError if a name is not in ``known``."""
    if not isinstance(items, list | tuple):
        raise WrongTypeError(
            f"items must be a list or tuple, not {items!r:.60}", hint=f"Name the items in brackets: {example}."
        )
    for item in items:
        if item not in known:
            raise ItemNotFoundError.of(item, known, where=where)


def check_record(data: Any) -> bytes | memoryview:
    """The bytes of a record: bytes, or a 1-d uint8 array. Raises WrongTypeError for anything else."""
    if isinstance(data, bytes):
        return data
    # Only these have a buffer of bytes. The buffers of other arrays and of tensors hold numbers or object addresses.
    if isinstance(data, bytearray | memoryview) or (isinstance(data, np.ndarray) and data.dtype == np.uint8):
        view = memoryview(data)  # type: ignore[arg-type,unused-ignore]  # NumPy says that it has one from Python 3.12 on
        if view.format in _BYTE_FORMATS and view.ndim == 1 and view.c_contiguous:
            return view.cast("B")
    raise WrongTypeError(f"a record must be bytes, not {_shown(data)}", hint=_bytes_of(data, "record"))


def check_records(records: Any) -> list[bytes | memoryview]:
    """The records of a list or tuple; WrongTypeError for anything else, also among them."""
    if isinstance(records, np.ndarray) and records.dtype.kind == "S":
        raise WrongTypeError(
            f"an array of the dtype {records.dtype} has lost the NUL bytes that its records may have ended with",
            hint="Make it a list: decode_batch([first, second]); or an array of the dtype object.",
        )
    if not isinstance(records, Sequence | np.ndarray) or isinstance(records, str | bytes | bytearray | memoryview):
        raise WrongTypeError(
            f"records must be a list or tuple, not {_shown(records)}", hint=_bytes_of(records, "records")
        )
    if isinstance(records, np.ndarray) and not records.ndim:
        raise WrongTypeError(f"records must be a list or tuple, not {_shown(records)}", hint=_ONE_OR_MANY)
    return [check_record(record) for record in records]


def as_block(records: RecordBlock | Sequence[bytes]) -> RecordBlock:
    """Some records as a block."""
    if isinstance(records, RecordBlock):
        return records
    checked = check_records(records)
    lengths = np.fromiter(map(len, checked), np.int64, len(checked))
    return RecordBlock(np.frombuffer(b"".join(checked), np.uint8), lengths.cumsum() - lengths, lengths)


def _shown(data: Any) -> str:
    """The repr of ``data`` on one line."""
    return " ".join(f"{data!r:.60}".split())


def _bytes_of(data: Any, name: str) -> str:
    """A hint that shows how to get the bytes in ``data``, if it contains any."""
    if callable(getattr(data, "numpy", None)):
        return f"Pass its value: {name}.numpy()."
    if isinstance(data, np.ndarray) and data.dtype.kind == "O" and data.size == 1:
        return f"Pass its value: {name}.item()."
    return _ONE_OR_MANY


def stack_items(values: list[Any]) -> npt.NDArray[Any]:
    """The values as one array if they have the same shape and dtype; otherwise an object array (n,) of them."""
    first = values[0] if values else None
    if isinstance(first, np.generic) and all(
        type(value) is type(first) and value.dtype == first.dtype for value in values
    ):
        return np.array(values, first.dtype)
    if isinstance(first, np.ndarray) and all(
        isinstance(value, np.ndarray) and value.shape == first.shape and value.dtype == first.dtype for value in values
    ):
        return np.stack(values)
    return np.fromiter(values, object, len(values))


def stack_arrays(arrays: Sequence[npt.NDArray[Any]], *, pad: bool) -> npt.NDArray[Any]:
    """The arrays as one; with ``pad``, smaller arrays are padded to the largest with zeros or ``b""``.

    Raises:
        WrongTypeError: the arrays differ in their number of dimensions or dtype, or, without ``pad``, in shape.
    """
    shapes = {array.shape for array in arrays}
    if len({array.ndim for array in arrays}) > 1:
        raise not_alike("numbers of dimensions", [array.shape for array in arrays])
    if len(shapes) > 1 and not pad:
        raise not_alike("shapes", [array.shape for array in arrays])
    if len({array.dtype for array in arrays}) > 1:
        raise not_alike("dtypes", [str(array.dtype) for array in arrays])
    if len(shapes) == 1:
        return np.stack(arrays)
    largest = np.array(sorted(shapes)).max(axis=0)
    stacked = np.zeros((len(arrays), *largest), arrays[0].dtype)  # zeros of a text dtype are empty texts
    if stacked.dtype.kind == "O":
        stacked[...] = b""
    for place, array in enumerate(arrays):
        inside: tuple[int | slice, ...] = (place, *map(slice, array.shape))
        stacked[inside] = array
    return stacked


def fill_up(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Pad an object array (n,) of arrays to one array, as ``stack_arrays`` does; return any other array unchanged."""
    if isinstance(column, np.ma.MaskedArray):  # its values already have one shape
        return column
    if column.dtype.kind == "O" and column.ndim == 1 and all(isinstance(value, np.ndarray) for value in column):
        return stack_arrays(column.tolist(), pad=True) if column.size else column
    return column


def as_array(value: Any) -> npt.NDArray[Any]:
    """One value as an array; a text as an object array of shape () with its ``bytes``."""
    if isinstance(value, str | bytes):
        array = np.empty((), object)
        array[()] = value.encode() if isinstance(value, str) else value
        return array
    return np.asarray(value)


def not_alike(subject: str, found: Sequence[Any]) -> WrongTypeError:
    """The error for elements that differ in ``subject``; ``found`` lists the differing facts."""
    listing = ", ".join(map(str, dict.fromkeys(map(str, found))))
    return WrongTypeError(
        f"elements of different {subject} cannot be stacked: {listing:.200}",
        hint="Pass dynamic_pad=True to pad shorter elements with zeros, or read the elements one by one."
        if subject == "shapes"
        else "Read the elements one by one, or convert them first.",
    )
