"""What turns a record into items? Anything that names its items and decodes some of them: one record, or many."""

from __future__ import annotations

import abc
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, ItemNotFoundError, UsageError, WrongTypeError
from registry.slim.stacking import stack_items
from registry.tfrecord import RecordBlock

_ONE_OR_MANY: Final = "decode takes one record, as it was serialized; decode_batch takes a list of them."
_BYTE_FORMATS: Final = ("B", "b", "c")


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
                raise at_place(error, place) from error

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
        if items is not None and not isinstance(items, list | tuple):
            raise WrongTypeError(
                f"items must be a list or tuple, not {items!r:.60}",
                hint="Name the items in brackets: ['image', 'label'].",
            )
        known = self.list_items()
        for item in items or ():
            if item not in known:
                raise ItemNotFoundError.of(item, known, where="this decoder")
        return list(items) if items else known


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
    """The records of a list or tuple; WrongTypeError for anything else, and for one that is no record."""
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


def at_place(error: CorruptExampleError, place: int) -> CorruptExampleError:
    """``error`` of the record at ``place`` of a block, which ``details["record"]`` then says."""
    return CorruptExampleError(error.message, hint=error.hint, details={**error.details, "record": place})


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
