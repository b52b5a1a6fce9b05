"""The base class of decoders, and the stacking of values of many records into one array.

A decoder turns a serialized record into items. Subclasses write ``decode`` and ``list_items``; the ways to decode many
records at once have defaults here, which give exactly what ``decode`` gives.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, ItemNotFoundError, UsageError, WrongTypeError
from registry.features.codec import at_record
from registry.tfrecord import RecordBlock

_ONE_OR_MANY: Final = "decode takes one record, as it was serialized; decode_batch takes a list of them."
_BYTE_FORMATS: Final = ("B", "b", "c")

_MOST_AT_ONCE: Final = 2**28
"""No more is asked for before all values are known to be alike: one of them may be much larger than the others."""


class DataDecoder(abc.ABC):
    """Decodes records into the items that it lists. Subclasses write ``decode`` and ``list_items``."""

    @abc.abstractmethod
    def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[Any]:
        """The values of ``items`` in one record, in that order; of all items where that is None or empty."""

    @abc.abstractmethod
    def list_items(self) -> list[str]:
        """The names of the items that can be decoded."""

    def decode_rows(self, block: RecordBlock, items: Sequence[str]) -> Iterator[list[Any]]:
        """What ``decode`` gives for each record of a block, in order.

        Raises:
            CorruptExampleError: a record does not hold the items, after those of all before it; ``details["record"]``
                is its place in the block.
        """
        for place, record in enumerate(block.records()):
            try:
                yield self.decode(record, items)
            except CorruptExampleError as error:
                raise at_record(error, place) from error

    def decode_batch(self, records: RecordBlock | Sequence[bytes], items: Sequence[str] | None = None) -> list[Any]:
        """The values of ``items`` in many records, in that order: for each item an array, its first dimension records.

        An object array (records,) of the values where their shapes differ, or they are sparse. ``column[i]`` is what
        ``decode`` gives for record ``i``. Errors as ``decode``; ``details["record"]`` is the record's place. UsageError
        where ``decode`` gives another number of values.
        """
        names = self.check_items(items)
        block = as_block(records)
        rows: list[Any] = list(self.decode_rows(block, names))
        if any(not isinstance(row, list | tuple) or len(row) != len(names) for row in rows):
            raise UsageError(
                f"{type(self).__name__}.decode gave something else than a list of {len(names)} values",
                hint="decode gives a value for each item that it is asked for, in their order.",
            )
        if len(rows) != block.num_records:
            raise UsageError(
                f"{type(self).__name__}.decode_rows gave {len(rows)} rows of {block.num_records} records",
                hint="decode_rows gives a row for each record of the block, or raises.",
            )
        return [self.stack(name, [row[place] for row in rows]) for place, name in enumerate(names)]

    def stack(self, item: str, values: list[Any]) -> npt.NDArray[Any]:  # noqa: ARG002 (for those who know more of it)
        """The column of ``values``, which ``decode`` gave for ``item`` in many records."""
        return stack_items(values)

    def inflates(self, items: Sequence[str]) -> bool:  # noqa: ARG002 (those who know better need them)
        """Whether the values of ``items`` may take much more memory than their record: then few are decoded ahead."""
        return True

    def declared_keys(self) -> list[str]:
        """The features of a record that this decoder looks for; none where it does not say."""
        return []

    def stored_keys(self, data: bytes) -> Collection[str]:  # noqa: ARG002 (those who declare keys need it)
        """Those that a record holds, declared or not; none where the decoder declares none."""
        return ()

    def check_items(self, items: Sequence[str] | None) -> list[str]:
        """``items``, or all there are where that is None or empty.

        Raises:
            ItemNotFoundError: one of them is not listed.
            WrongTypeError: they are no list or tuple.
        """
        known = self.list_items()
        check_names([] if items is None else items, known, where="this decoder", example="['image', 'label']")
        return list(items) if items else known


def check_names(items: Any, known: list[str], *, where: str, example: str) -> None:
    """Refuse ``items`` that are no list or tuple (WrongTypeError) of names in ``known`` (ItemNotFoundError)."""
    if not isinstance(items, list | tuple):
        raise WrongTypeError(
            f"items must be a list or tuple, not {items!r:.60}", hint=f"Name the items in brackets: {example}."
        )
    for item in items:
        if item not in known:
            raise ItemNotFoundError.of(item, known, where=where)


def check_record(data: Any) -> bytes | memoryview:
    """``data`` where they are the bytes of a record, a 1-d array of uint8 too; WrongTypeError for anything else."""
    if isinstance(data, bytes):
        return data
    # Not all that has a buffer: that of other arrays, and of tensors, holds numbers, or addresses of objects.
    if isinstance(data, bytearray | memoryview) or (isinstance(data, np.ndarray) and data.dtype == np.uint8):
        view = memoryview(data)  # type: ignore[arg-type,unused-ignore]  # NumPy says that it has one from Python 3.12 on
        if view.format in _BYTE_FORMATS and view.ndim == 1 and view.c_contiguous:
            return view.cast("B")
    raise WrongTypeError(f"a record is bytes, and {_shown(data)} is none", hint=_bytes_of(data, "record"))


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
    """``data`` on one line."""
    return " ".join(f"{data!r:.60}".split())


def _bytes_of(data: Any, name: str) -> str:
    """How bytes are made of ``data``, where they hold some."""
    if callable(getattr(data, "numpy", None)):
        return f"Give what it holds: {name}.numpy()."
    if isinstance(data, np.ndarray) and data.dtype.kind == "O" and data.size == 1:
        return f"Give what it holds: {name}.item()."
    return _ONE_OR_MANY


def stack_items(values: list[Any]) -> npt.NDArray[Any]:
    """The values as one array, where they are of one shape and dtype; else an object array (n,) of them."""
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


def stack_each(values: Iterator[Any], count: int) -> npt.NDArray[Any]:
    """The same of ``count`` values that are put in place as they come, so that they need not be held twice.

    Raises:
        UsageError: they are more, or fewer.
    """
    first = next(values, None)
    if not isinstance(first, np.ndarray) or first.dtype.kind == "O" or count * first.nbytes > _MOST_AT_ONCE:
        found = [first, *values]
        return stack_items(found) if len(found) == count else _raise_other_number(count)
    stacked = np.empty((count, *first.shape), first.dtype)
    stacked[0], place = first, 0
    for place, value in enumerate(values, 1):
        is_alike = isinstance(value, np.ndarray) and value.shape == first.shape and value.dtype == first.dtype
        if not is_alike or place == count:
            found = [*(row.copy() for row in stacked[:place]), value, *values]
            return stack_items(found) if len(found) == count else _raise_other_number(count)
        stacked[place] = value
    return stacked if place + 1 == count else _raise_other_number(count)


def stack_arrays(arrays: Sequence[npt.NDArray[Any]], *, pad: bool) -> npt.NDArray[Any]:
    """The arrays as one; with ``pad`` those of other sizes are filled up with zeros, or ``b""``, to the largest.

    Raises:
        WrongTypeError: their shapes differ, and ``pad`` is off; or they differ in dimensions or dtype.
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
    stacked = np.zeros((len(arrays), *largest), arrays[0].dtype)  # of texts of fixed size the empty ones
    if stacked.dtype.kind == "O":
        stacked[...] = b""
    for place, array in enumerate(arrays):
        inside: tuple[int | slice, ...] = (place, *map(slice, array.shape))
        stacked[inside] = array
    return stacked


def _raise_other_number(count: int) -> NoReturn:
    raise UsageError(
        f"a handler gave another number of items than the {count} records that it was given",
        hint="columns_to_items gives an item for each record, or None.",
    )


def fill_up(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An object array (n,) of arrays as one array, filled up as ``stack_arrays`` does; any other array as it is."""
    if isinstance(column, np.ma.MaskedArray):  # its values are alike
        return column
    if column.dtype.kind == "O" and column.ndim == 1 and all(isinstance(value, np.ndarray) for value in column):
        return stack_arrays(column.tolist(), pad=True) if column.size else column
    return column


def as_array(value: Any) -> npt.NDArray[Any]:
    """One value as an array; a text as an array of one object of ``bytes``, without a dimension."""
    if isinstance(value, str | bytes):
        array = np.empty((), object)
        array[()] = value.encode() if isinstance(value, str) else value
        return array
    return np.asarray(value)


def not_alike(what: str, found: Sequence[Any]) -> WrongTypeError:
    """What is raised where the ``what`` of elements, which were ``found``, are not the same."""
    shown = ", ".join(map(str, dict.fromkeys(map(str, found))))
    return WrongTypeError(
        f"elements of different {what} cannot be stacked: {shown:.200}",
        hint="Give dynamic_pad=True to fill up with zeros what is shorter, or take the elements one by one."
        if what == "shapes"
        else "Take the elements one by one, or make them alike.",
    )
