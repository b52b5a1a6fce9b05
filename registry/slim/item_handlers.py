"""Item handlers: each one computes an item from the parsed features that it names.

The decoders of ``tfexample_decoder`` call them. They follow the handlers of ``tf_slim.data.tfexample_decoder``.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, RegistryError, UsageError, WrongTypeError
from registry.slim.feature_specs import SparseTensorValue, fill_value
from registry.slim.parsing import Column, DenseColumn, RaggedColumn

_MOST_SIZE: Final = 2**31
"""Longer than any record."""

_MOST_DIMENSIONS: Final = 32
"""The number of dimensions that every version of NumPy supports."""


class ItemHandler(abc.ABC):
    """Computes an item from the features ``keys``. Subclasses implement ``tensors_to_item``.

    Args:
        keys: the key of a feature, or a list of keys.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "tensors_to_item" in cls.__dict__ and "columns_to_items" not in cls.__dict__:
            # A subclass that overrides only tensors_to_item must not inherit a columns_to_items with other results.
            cls.columns_to_items = ItemHandler.columns_to_items  # type: ignore[method-assign] # deliberate reset

    def __init__(self, keys: str | Sequence[str]) -> None:
        self._keys = [keys] if isinstance(keys, str) else list(keys)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self.keys)}>"

    @property
    def keys(self) -> list[str]:
        """The keys of the features that are passed to ``tensors_to_item``."""
        return self._keys

    @abc.abstractmethod
    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Compute the item of one record.

        Args:
            keys_to_tensors: the parsed value of each of ``keys``: an array, ``bytes`` or a ``SparseTensorValue``.
        """

    def columns_to_items(
        self,
        keys_to_columns: Mapping[str, Column],  # noqa: ARG002 (for subclasses)
    ) -> npt.NDArray[Any] | Sequence[Any] | Iterator[Any] | None:
        """Compute the items of many records at once, equal to those of ``tensors_to_item``.

        Returns None if the items have to be computed one by one. An iterator may work ahead; an error that it raises
        belongs to the next record.
        """
        return None


class ItemHandlerCallback(ItemHandler):
    """An item computed by a function.

    Args:
        keys: the key of a feature, or a list of keys.
        func: gets a dict of the parsed values by key, and returns the item.

    >>> handler = ItemHandlerCallback(["height", "width"], lambda values: values["height"] * values["width"])
    >>> handler.tensors_to_item({"height": 4, "width": 6})
    24
    """

    def __init__(self, keys: str | Sequence[str], func: Callable[[Mapping[str, Any]], Any]) -> None:
        super().__init__(keys)
        self._func = func

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """The result of the function."""
        return self._func(keys_to_tensors)


class Tensor(ItemHandler):
    """The value of a feature as a dense array, reshaped if a shape is given.

    Args:
        tensor_key: the key of the feature.
        shape_keys: the key of the feature that stores the shape of each record's item, or a list of keys, whose values
            are concatenated.
        shape: the shape of the item; one size may be -1. Without ``shape_keys`` and ``shape`` the shape is unchanged; a
            VarLenFeature has one dimension.
        default_value: the value at places of a sparse feature that have none; None is 0 or ``b""``. To replace a
            feature that a record lacks, use ``FixedLenFeature(default_value=...)``.

    Raises:
        UsageError: ``shape_keys`` and ``shape`` are both given, or ``shape`` is invalid.
    """

    def __init__(
        self,
        tensor_key: str,
        shape_keys: str | Sequence[str] | None = None,
        shape: Any = None,
        default_value: Any = 0,
    ) -> None:
        if shape_keys and shape is not None:
            raise UsageError(
                f"Tensor({tensor_key!r}) accepts shape_keys or shape, not both",
                hint="Use shape_keys= if each record stores its shape, shape= if all records have the same shape.",
            )
        self._tensor_key = tensor_key
        self._shape_keys = [shape_keys] if isinstance(shape_keys, str) else list(shape_keys or ())
        self._shape = None if shape is None else check_item_shape(shape)
        self._default_value = default_value
        super().__init__([tensor_key, *self._shape_keys])

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """The array.

        Raises:
            CorruptExampleError: the number of values does not fit the shape.
            WrongTypeError: ``default_value`` and the values have different types.
        """
        tensor = keys_to_tensors[self._tensor_key]
        shape = self._shape
        if self._shape_keys:
            shape = tuple(size for key in self._shape_keys for size in shape_values(keys_to_tensors[key], key))
        if isinstance(tensor, SparseTensorValue):
            tensor = to_dense(tensor, self._default_value, self._tensor_key)
        return tensor if shape is None else reshape_item(tensor, shape, self._tensor_key)

    def columns_to_items(self, keys_to_columns: Mapping[str, Column]) -> npt.NDArray[Any] | Sequence[Any] | None:
        """One array, or a list of arrays if records have different numbers of values."""
        column = keys_to_columns[self._tensor_key]
        if self._shape_keys:
            return None
        try:
            if isinstance(column, RaggedColumn):
                fill_value(self._default_value, column.values.dtype)
                if column.same_count is None:
                    return column.pieces if self._shape is None else None
                column = DenseColumn(column.values.reshape(column.counts.size, column.same_count))
            if not isinstance(column, DenseColumn):
                return None
            values = column.values
            if self._shape is None:
                return values
            shape = np.shape(reshape_item(values[0], self._shape, self._tensor_key))
            return values.reshape(len(values), *shape)
        except (CorruptExampleError, WrongTypeError):
            return None  # tensors_to_item then reports the error for the record


class BackupHandler(ItemHandler):
    """The item of one handler or, if that has no elements, of another handler.

    Args:
        handler: the first handler.
        backup: the second handler, called only if the item of the first one is empty.

    Raises:
        UsageError: an argument is not an ItemHandler.
    """

    def __init__(self, handler: ItemHandler, backup: ItemHandler) -> None:
        for name, given in (("primary", handler), ("backup", backup)):
            if not isinstance(given, ItemHandler):
                raise UsageError(
                    f"the {name} handler must be an ItemHandler, not {type(given).__name__}",
                    hint="Pass two handlers: BackupHandler(Tensor('label'), Tensor('label/backup')).",
                )
        self._handler = handler
        self._backup = backup
        super().__init__([*handler.keys, *backup.keys])

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """The item of the first handler if it has elements, otherwise that of the backup."""
        item = self._handler.tensors_to_item(keys_to_tensors)
        is_empty = 0 in item.dense_shape if isinstance(item, SparseTensorValue) else np.size(item) == 0
        return self._backup.tensors_to_item(keys_to_tensors) if is_empty else item


class SparseTensor(ItemHandler):
    """A sparse array whose indices, values and shape are separate features.

    Pass ``shape_key`` or ``shape``. Without them the shape is the *number* of indices, as in TF-Slim, which is rarely
    right. A shape from ``shape_key`` is checked against the indices only with ``densify``.

    Args:
        indices_key: the key of a VarLenFeature with the indices; "indices" by default.
        values_key: the key of a VarLenFeature with the values; "values" by default.
        shape_key: the key of the feature that stores the shape.
        shape: the shape of the array, if no feature stores it.
        densify: return an array instead of a ``SparseTensorValue``.
        default_value: the value at places that have none; None is 0 or ``b""``.

    Raises:
        UsageError: ``shape`` is invalid.
    """

    def __init__(
        self,
        indices_key: str | None = None,
        values_key: str | None = None,
        shape_key: str | None = None,
        shape: Any = None,
        densify: bool = False,
        default_value: Any = 0,
    ) -> None:
        self._indices_key = indices_key or "indices"
        self._values_key = values_key or "values"
        self._shape_key = shape_key
        self._shape = check_item_shape(shape) if shape is not None else ()
        self._densify = densify
        self._default_value = default_value
        super().__init__([self._indices_key, self._values_key, *([shape_key] if shape_key else [])])

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """A ``SparseTensorValue``; an array with ``densify``.

        Raises:
            CorruptExampleError: ``shape`` and the indices have different numbers of dimensions. With ``densify`` also
                if an index is outside the shape, indices are not in ascending order, or their number is not the number
                of values.
        """
        indices = as_sparse(keys_to_tensors[self._indices_key], self._indices_key)
        values = as_sparse(keys_to_tensors[self._values_key], self._values_key)
        if self._shape_key:
            shape = np.array(shape_values(keys_to_tensors[self._shape_key], self._shape_key), np.int64)
        else:
            shape = np.array(self._shape, np.int64) if self._shape else indices.dense_shape
        places = indices.indices.copy()
        if shape.size != places.shape[1] and not self._shape_key:
            raise CorruptExampleError(
                f"the indices {self._indices_key!r} have {places.shape[1]} dimensions, and the shape {shape.tolist()} "
                f"has {shape.size}",
                hint="Pass the shape that was written: shape=, or shape_key= if records store it.",
                details={"feature": self._indices_key},
            )
        places[:, -1] = whole_numbers(indices.values, self._indices_key)
        item = SparseTensorValue(places, values.values, shape)
        return to_dense(item, self._default_value, self._indices_key) if self._densify else item


def item_rows(
    item: str, handler: ItemHandler, keys_to_columns: Mapping[str, Column], num_records: int
) -> Iterable[Any]:
    """The ``item`` of each record. If the handler cannot compute many at once, each is computed on request."""
    result = handler.columns_to_items(keys_to_columns)
    return _each_item(item, handler, keys_to_columns, num_records) if result is None else result


def make_item(item: str, handler: ItemHandler, keys_to_tensors: Mapping[str, Any]) -> Any:
    """The ``item`` of one record. A note that names the item is added to errors that are not RegistryErrors."""
    try:
        return handler.tensors_to_item(keys_to_tensors)
    except Exception as error:
        if not isinstance(error, RegistryError):
            error.add_note(f"while computing item {item!r}")
        raise


def check_item_shape(shape: Any) -> tuple[int, ...]:
    """``shape`` as a tuple of non-negative ints, one of which may be -1. Raises UsageError if it is invalid."""
    try:
        given = np.asarray(shape).reshape(-1).tolist()
        sizes = tuple(int(size) for size in given if int(size) == size and -1 <= size < _MOST_SIZE)
    except (TypeError, ValueError, OverflowError):
        given, sizes = [shape], ()
    if len(sizes) != len(given) or sizes.count(-1) > 1 or len(sizes) > _MOST_DIMENSIONS:
        raise UsageError(
            f"invalid shape={shape!r:.80}",
            hint="Pass a list of sizes, e.g. [28, 28, 1]; one of them may be -1, which is computed.",
        )
    return sizes


def shape_values(stored: Any, key: str) -> list[int]:
    """The sizes stored in the feature ``key``, as one list. Raises WrongTypeError if they are not int64."""
    values = np.reshape(stored.to_dense() if isinstance(stored, SparseTensorValue) else stored, -1)
    if values.dtype.kind != "i":
        raise WrongTypeError(
            f"feature {key!r} must hold int64 sizes, found {'texts' if values.dtype.kind == 'O' else 'floats'}",
            hint="Use the int64 feature that stores the sizes.",
            details={"feature": key},
        )
    sizes: list[int] = values.tolist()
    return sizes


def whole_numbers(values: npt.NDArray[Any], key: str) -> npt.NDArray[np.int64]:
    """The numbers of the feature ``key`` as int64; floats are truncated.

    Raises:
        WrongTypeError: the feature holds texts.
        CorruptExampleError: a number is not finite or does not fit int64.
    """
    if values.dtype.kind not in "if":
        raise WrongTypeError(
            f"feature {key!r} must hold int64 indices, found texts",
            hint="Use the int64 feature that stores the indices.",
            details={"feature": key},
        )
    if values.dtype.kind == "f" and not bool((np.abs(values) < 2.0**63).all()):
        raise CorruptExampleError(
            f"feature {key!r} must hold indices, found a number that does not fit int64",
            hint="Store indices as int64.",
            details={"feature": key},
        )
    return values.astype(np.int64)


def reshape_item(values: Any, shape: tuple[int, ...], key: str) -> npt.NDArray[Any]:
    """``values`` reshaped to ``shape``. Raises CorruptExampleError if their number does not fit."""
    array = np.asarray(values, object if isinstance(values, bytes) else None)
    try:
        if min(shape, default=0) < -1:
            raise ValueError
        if -1 in shape and 0 in shape:
            # TensorFlow computes the size of -1 without the sizes that are 0, on either side.
            known = -prod(size for size in shape if size)
            missing = prod(size for size in array.shape if size) // known
            shape = tuple(missing if size == -1 else size for size in shape)
        return array.reshape(shape)[()]
    except ValueError as error:
        raise CorruptExampleError(
            f"feature {key!r}: expected values of shape {list(shape)}, found {array.size} values",
            hint="A shape only arranges the stored values: it does not crop, pad or resize.",
            details={"feature": key, "found": array.size, "expected": list(shape)},
        ) from error


def to_dense(value: SparseTensorValue, default: Any, key: str) -> npt.NDArray[Any]:
    """Convert a sparse array to a dense one; errors name the feature ``key``."""
    try:
        return value.to_dense(default)
    except CorruptExampleError as error:
        raise CorruptExampleError(
            f"feature {key!r}: {error.message}", hint=error.hint, details={**error.details, "feature": key}
        ) from error


def as_sparse(value: Any, key: str) -> SparseTensorValue:
    """A parsed feature as a sparse array. Raises WrongTypeError if it was not declared as one."""
    if not isinstance(value, SparseTensorValue):
        raise WrongTypeError(
            f"feature {key!r} is not a sparse array",
            hint=f"Declare it as a VarLenFeature: {{{key!r}: VarLenFeature(...)}}.",
            details={"feature": key},
        )
    return value


def _each_item(
    item: str, handler: ItemHandler, keys_to_columns: Mapping[str, Column], num_records: int
) -> Iterator[Any]:
    columns = {key: iter(column) for key, column in keys_to_columns.items()}
    for _ in range(num_records):
        yield make_item(item, handler, {key: next(values) for key, values in columns.items()})


class LookupTable(Protocol):
    """A table that maps values to numbers, and accepts and returns NumPy arrays."""

    def lookup(self, keys: npt.NDArray[Any], /) -> Any:
        """The number of each of ``keys``, an array of the same shape."""


class LookupTensor(Tensor):
    """The number of each value of a feature in a vocabulary: int64, -1 for unknown values.

    Args:
        tensor_key: the key of the feature, usually of strings.
        table: the vocabulary: a list of texts, numbered from 0; a dict from values to numbers; or an object with a
            method ``lookup`` that accepts and returns NumPy arrays.
        shape_keys: the key of the feature that stores the shape of each record's item, or a list of keys.
        shape: the shape of the item; one size may be -1.
        default_value: the value at places of a sparse feature that have none; it is looked up like the other values.

    >>> LookupTensor("animal", ["cat", "dog"]).tensors_to_item({"animal": b"dog"})
    np.int64(1)

    Raises:
        UsageError: ``table`` is invalid, ``shape_keys`` and ``shape`` are both given, or ``shape`` is invalid.
    """

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
        """The numbers, in the shape of the item of ``Tensor``."""
        return self._lookup(super().tensors_to_item(keys_to_tensors))

    def columns_to_items(self, keys_to_columns: Mapping[str, Column]) -> npt.NDArray[Any] | Sequence[Any] | None:
        """The numbers of many records."""
        result = super().columns_to_items(keys_to_columns)
        try:
            return (
                self._lookup(result) if isinstance(result, np.ndarray) else result and list(map(self._lookup, result))
            )
        except WrongTypeError:
            return None


def _numbered(texts: Sequence[str | bytes]) -> dict[bytes, int]:
    numbers: dict[Any, int] = {}
    for number, text in enumerate(texts):
        key = text.encode() if isinstance(text, str) else text
        if key in numbers:
            raise UsageError(
                f"{text!r:.60} is in the vocabulary twice, as {numbers[key]} and {number}",
                hint="List each text once. If texts share a number, pass a dict: {'cat': 0, 'kitten': 0}.",
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
            f"{table!r:.80} is not a lookup table",
            hint="Pass a list of texts, a dict of numbers, or an object with a method lookup(array) for NumPy arrays.",
        )
    try:
        numbers = {
            key.encode() if isinstance(key, str) else key: int(np.int64(number)) for key, number in table.items()
        }
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            "a table must map to whole numbers, e.g. {'cat': 0, 'dog': 1}",
            hint="To look up anything else, use an ItemHandlerCallback.",
        ) from error

    known = next(iter(numbers), None)

    def look_up(keys: Any) -> Any:
        array = np.asarray(keys, object if isinstance(keys, bytes) else None)
        if known is not None and isinstance(known, bytes) != (array.dtype.kind == "O"):
            raise WrongTypeError(
                f"cannot look up {array.dtype.name.replace('object', 'string')} values in a table with keys such as "
                f"{known!r:.60}",
                hint="Use keys of the feature's type: texts for strings, whole numbers for int64.",
            )
        flat = [numbers.get(key, -1) for key in array.reshape(-1).tolist()]
        return np.array(flat, np.int64).reshape(array.shape)[()]

    return look_up
