"""Which numbers do texts have? Those of a vocabulary: an item handler, and the tables that it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from registry.errors import UsageError, WrongTypeError
from registry.slim.item_handlers import Tensor
from registry.slim.parsed_block import Column


class LookupTable(Protocol):
    """A table of numbers, e.g. one of ``tf.lookup`` that gives numpy arrays."""

    def lookup(self, keys: npt.NDArray[Any], /) -> Any:
        """The number of each of ``keys``, an array of the same shape."""


class LookupTensor(Tensor):
    """The numbers that a vocabulary has for the values of a feature: int64, and -1 for what it does not know.

    Args:
        tensor_key: the feature, usually of strings.
        table: the vocabulary: a list of texts, which are numbered from 0; a dict of numbers; or an object with a method
            ``lookup`` that takes an array.
        shape_keys: as ``Tensor``.
        shape: as ``Tensor``.
        default_value: as ``Tensor``; it is looked up like the values.

    Raises:
        UsageError: as ``Tensor``, or no table.
    """

    inflates = False

    def __init__(
        self,
        tensor_key: str,
        table: Mapping[Any, int] | Sequence[str | bytes] | LookupTable,
        shape_keys: str | Sequence[str] | None = None,
        shape: Any = None,
        default_value: Any = "",
    ) -> None:
        super().__init__(tensor_key, shape_keys, shape, default_value)
        self._lookup = _lookup_of(table)

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """The numbers, in the shape that ``Tensor`` gives."""
        return self._lookup(super().tensors_to_item(keys_to_tensors))

    def columns_to_items(self, keys_to_columns: Mapping[str, Column]) -> npt.NDArray[Any] | Sequence[Any] | None:
        """The same of many records."""
        found = super().columns_to_items(keys_to_columns)
        try:
            return self._lookup(found) if isinstance(found, np.ndarray) else found and list(map(self._lookup, found))
        except WrongTypeError:
            return None


def _numbered(texts: Sequence[str | bytes]) -> dict[bytes, int]:
    numbers: dict[Any, int] = {}
    for number, text in enumerate(texts):
        key = text.encode() if isinstance(text, str) else text
        if key in numbers:
            raise UsageError(
                f"{text!r:.60} is in the vocabulary twice, as {numbers[key]} and {number}",
                hint="Each text has one number. Give a dict where texts are to share one: {'cat': 0, 'kitten': 0}.",
            )
        numbers[key] = number
    return numbers


def _lookup_of(table: Any) -> Callable[[Any], Any]:
    is_of_tensorflow = type(table).__module__.split(".")[0] == "tensorflow"
    if not isinstance(table, Mapping) and callable(getattr(table, "lookup", None)) and not is_of_tensorflow:
        return lambda keys: np.asarray(table.lookup(keys))
    if isinstance(table, Sequence) and not isinstance(table, str | bytes):
        table = _numbered(table)
    if not isinstance(table, Mapping):
        raise UsageError(
            f"{table!r:.80} is no table",
            hint="Give a list of texts, a dict of numbers, or an object with a method lookup(array) of NumPy.",
        )
    try:
        numbers = {
            key.encode() if isinstance(key, str) else key: int(np.int64(number)) for key, number in table.items()
        }
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            "the numbers of a table are whole numbers, e.g. {'cat': 0, 'dog': 1}",
            hint="To look up anything else, use an ItemHandlerCallback.",
        ) from error

    known = next(iter(numbers), None)

    def look_up(keys: Any) -> Any:
        array = np.asarray(keys, object if isinstance(keys, bytes) else None)
        if known is not None and isinstance(known, bytes) != (array.dtype.kind == "O"):
            raise WrongTypeError(
                f"values of {array.dtype.name.replace('object', 'string')} are looked up in a table of {known!r:.60}",
                hint="Keys of the table are of the feature's type: texts for strings, whole numbers for int64.",
            )
        flat = [numbers.get(key, -1) for key in array.reshape(-1).tolist()]
        return np.array(flat, np.int64).reshape(array.shape)[()]

    return look_up
