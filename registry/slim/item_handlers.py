"""Item handlers: each makes one item of the parsed features that it names."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, ClassVar, Final, Protocol

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, RegistryError, UsageError, WrongTypeError
from registry.slim.feature_specs import SparseTensorValue, fill_value
from registry.slim.parsing import Column, DenseColumn, RaggedColumn

_MOST_SIZE: Final = 2**31
"""No record is that long."""

_MOST_DIMENSIONS: Final = 32
"""What NumPy promised in all of its versions."""


class ItemHandler(abc.ABC):
    """Makes an item of the features ``keys``. Subclasses write ``tensors_to_item``.

    Args:
        keys: the name of a feature, or several.
    """

    inflates: ClassVar[bool] = True
    """Whether an item may take much more memory than the record that it is made of."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "tensors_to_item" in cls.__dict__ and "inflates" not in cls.__dict__:
            cls.inflates = True
        if "tensors_to_item" in cls.__dict__ and "columns_to_items" not in cls.__dict__:
            # What a base class does with many records is not what this class does with one.
            cls.columns_to_items = ItemHandler.columns_to_items  # type: ignore[method-assign] # on purpose

    def __init__(self, keys: str | Sequence[str]) -> None:
        self._keys = [keys] if isinstance(keys, str) else list(keys)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self.keys)}>"

    @property
    def keys(self) -> list[str]:
        """The features that are handed to ``tensors_to_item``."""
        return self._keys

    @abc.abstractmethod
    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """The item, from the parsed value of each of ``keys``: an array, ``bytes``, or a ``SparseTensorValue``."""

    def columns_to_items(
        self,
        keys_to_columns: Mapping[str, Column],  # noqa: ARG002 (those who override it need them)
    ) -> npt.NDArray[Any] | Sequence[Any] | Iterator[Any] | None:
        """The items of many records at once, exactly those of ``tensors_to_item``; None where it is done one by one.

        An iterator may go ahead of what is asked for; what it raises belongs to the record that is next.
        """
        return None


class ItemHandlerCallback(ItemHandler):
    """An item made by a function.

    Args:
        keys: the name of a feature, or several.
        func: takes a dict of them, and gives the item.
    """

    def __init__(self, keys: str | Sequence[str], func: Callable[[Mapping[str, Any]], Any]) -> None:
        super().__init__(keys)
        self._func = func

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """What the function gives."""
        return self._func(keys_to_tensors)


class Tensor(ItemHandler):
    """The value of a feature, dense, and reshaped where a shape is given.

    Args:
        tensor_key: the feature.
        shape_keys: the feature that holds the shape of this record's item, or several, whose values are joined.
        shape: of the item; one size may be -1. Neither leaves it as it is: of a VarLenFeature, in one dimension.
        default_value: what fills places of a sparse feature that have no value; None is 0, or ``b""``. It does not
            replace a feature that a record lacks: that is ``FixedLenFeature(default_value=)``.

    Raises:
        UsageError: both ``shape_keys`` and ``shape``.
    """

    inflates = False

    def __init__(
        self,
        tensor_key: str,
        shape_keys: str | Sequence[str] | None = None,
        shape: Any = None,
        default_value: Any = 0,
    ) -> None:
        if shape_keys and shape is not None:
            raise UsageError(
                f"Tensor({tensor_key!r}) was given both shape_keys and shape",
                hint="shape_keys= where each record stores its shape, shape= where all have the same one.",
            )
        self._tensor_key = tensor_key
        self._shape_keys = [shape_keys] if isinstance(shape_keys, str) else list(shape_keys or ())
        self._shape = None if shape is None else check_item_shape(shape)
        self._default_value = default_value
        super().__init__([tensor_key, *self._shape_keys])

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """The array.

        Raises:
            CorruptExampleError: it does not have as many values as the shape takes.
            WrongTypeError: ``default_value`` is of another type than the values.
        """
        tensor = keys_to_tensors[self._tensor_key]
        shape = self._shape
        if self._shape_keys:
            shape = tuple(size for key in self._shape_keys for size in shape_values(keys_to_tensors[key], key))
        if isinstance(tensor, SparseTensorValue):
            tensor = to_dense(tensor, self._default_value, self._tensor_key)
        return tensor if shape is None else reshape_item(tensor, shape, self._tensor_key)

    def columns_to_items(self, keys_to_columns: Mapping[str, Column]) -> npt.NDArray[Any] | Sequence[Any] | None:
        """One array; a list of arrays where records have different numbers of values."""
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
            return None  # which then is told of the record itself


class BackupHandler(ItemHandler):
    """The item of one handler, or of another one where that has no elements.

    Args:
        handler: the first choice.
        backup: asked where the first gives nothing, and only then.

    Raises:
        UsageError: one is no ItemHandler.
    """

    def __init__(self, handler: ItemHandler, backup: ItemHandler) -> None:
        for name, given in (("primary", handler), ("backup", backup)):
            if not isinstance(given, ItemHandler):
                raise UsageError(
                    f"the {name} handler is of type {type(given).__name__} instead of ItemHandler",
                    hint="BackupHandler takes two handlers: BackupHandler(Tensor('label'), Tensor('label/backup')).",
                )
        self._handler = handler
        self._backup = backup
        super().__init__([*handler.keys, *backup.keys])

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """The first item that has elements; the backup's if none has."""
        item = self._handler.tensors_to_item(keys_to_tensors)
        is_empty = 0 in item.dense_shape if isinstance(item, SparseTensorValue) else np.size(item) == 0
        return self._backup.tensors_to_item(keys_to_tensors) if is_empty else item


class SparseTensor(ItemHandler):
    """A sparse array whose places, values and shape are features of their own.

    The last number of each index is what ``indices_key`` holds. The shape is that of ``shape_key``, else ``shape``,
    else that of the list of indices, which is its *length*: right only by chance, so give one of the two. What a record
    says in ``shape_key`` is taken as it is where nothing is made dense, also where indices and shape do not fit.

    Args:
        indices_key: a VarLenFeature; "indices" by default.
        values_key: a VarLenFeature; "values" by default.
        shape_key: the feature that holds the shape.
        shape: of the array, where no feature holds it.
        densify: whether the item is an array, rather than a ``SparseTensorValue``.
        default_value: what fills the places that have no value; None is 0, or ``b""``.
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
        """A ``SparseTensorValue``, or the array.

        Raises:
            CorruptExampleError: ``shape`` has another number of dimensions than the indices; or, with ``densify``, what
                ``SparseTensorValue.to_dense`` refuses.
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
                hint="Give the shape that was written: shape=, or shape_key= where records store it.",
                details={"feature": self._indices_key},
            )
        places[:, -1] = whole_numbers(indices.values, self._indices_key)
        item = SparseTensorValue(places, values.values, shape)
        return to_dense(item, self._default_value, self._indices_key) if self._densify else item


def item_rows(
    item: str, handler: ItemHandler, keys_to_columns: Mapping[str, Column], num_records: int
) -> Iterable[Any]:
    """The ``item`` of each record; made when it is asked for, where the handler does not make many at once."""
    found = handler.columns_to_items(keys_to_columns)
    return _each_item(item, handler, keys_to_columns, num_records) if found is None else found


def make_item(item: str, handler: ItemHandler, keys_to_tensors: Mapping[str, Any]) -> Any:
    """The ``item`` of one record; an error of another package gets a note that names it."""
    try:
        return handler.tensors_to_item(keys_to_tensors)
    except Exception as error:
        if not isinstance(error, RegistryError):
            error.add_note(f"while item {item!r} was made")
        raise


def check_item_shape(shape: Any) -> tuple[int, ...]:
    """``shape`` as a tuple of whole numbers from 0, of which one may be -1; UsageError if it is not one."""
    try:
        given = np.asarray(shape).reshape(-1).tolist()
        sizes = tuple(int(size) for size in given if int(size) == size and -1 <= size < _MOST_SIZE)
    except (TypeError, ValueError, OverflowError):
        given, sizes = [shape], ()
    if len(sizes) != len(given) or sizes.count(-1) > 1 or len(sizes) > _MOST_DIMENSIONS:
        raise UsageError(
            f"shape={shape!r:.80} is no shape",
            hint="Give a list of sizes, e.g. [28, 28, 1]; one of them may be -1, which is worked out.",
        )
    return sizes


def shape_values(stored: Any, key: str) -> list[int]:
    """The sizes that the feature ``key`` holds, in one list; WrongTypeError where they are no int64."""
    values = np.reshape(stored.to_dense() if isinstance(stored, SparseTensorValue) else stored, -1)
    if values.dtype.kind != "i":
        raise WrongTypeError(
            f"feature {key!r} holds {'texts' if values.dtype.kind == 'O' else 'floats'}, and is used for sizes",
            hint="Declare the feature that holds the sizes, as int64.",
            details={"feature": key},
        )
    sizes: list[int] = values.tolist()
    return sizes


def whole_numbers(values: npt.NDArray[Any], key: str) -> npt.NDArray[np.int64]:
    """The numbers of the feature ``key`` as int64; floats are truncated.

    Raises:
        WrongTypeError: they are texts.
        CorruptExampleError: one is not finite, or beyond int64.
    """
    if values.dtype.kind not in "if":
        raise WrongTypeError(
            f"feature {key!r} holds texts, and is used for places",
            hint="Declare the feature that holds the places, as int64.",
            details={"feature": key},
        )
    if values.dtype.kind == "f" and not bool((np.abs(values) < 2.0**63).all()):
        raise CorruptExampleError(
            f"feature {key!r} is used for places, and holds what is no int64",
            hint="Store places as int64.",
            details={"feature": key},
        )
    return values.astype(np.int64)


def reshape_item(values: Any, shape: tuple[int, ...], key: str) -> npt.NDArray[Any]:
    """``values`` in another shape; CorruptExampleError where that takes another number of them."""
    array = np.asarray(values, object if isinstance(values, bytes) else None)
    try:
        if min(shape, default=0) < -1:
            raise ValueError
        if -1 in shape and 0 in shape:
            # As TensorFlow finds it out: sizes of 0 are left out on either side.
            known = -prod(size for size in shape if size)
            missing = prod(size for size in array.shape if size) // known
            shape = tuple(missing if size == -1 else size for size in shape)
        return array.reshape(shape)[()]
    except ValueError as error:
        raise CorruptExampleError(
            f"feature {key!r} has {array.size} values, which the shape {list(shape)} does not take",
            hint="A shape arranges the values that there are: it neither cuts nor fills, nor resizes an image.",
            details={"feature": key, "found": array.size, "expected": list(shape)},
        ) from error


def to_dense(value: SparseTensorValue, default: Any, key: str) -> npt.NDArray[Any]:
    """The array of a sparse one; an error names the feature ``key``."""
    try:
        return value.to_dense(default)
    except CorruptExampleError as error:
        raise CorruptExampleError(
            f"feature {key!r}: {error.message}", hint=error.hint, details={**error.details, "feature": key}
        ) from error


def as_sparse(value: Any, key: str) -> SparseTensorValue:
    """A parsed feature as a sparse array; WrongTypeError for one that was declared otherwise."""
    if not isinstance(value, SparseTensorValue):
        raise WrongTypeError(
            f"feature {key!r} is no sparse array",
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
    """A table of numbers, e.g. one of ``tf.lookup`` that gives numpy arrays."""

    def lookup(self, keys: npt.NDArray[Any], /) -> Any:
        """The number of each of ``keys``, an array of the same shape."""


class LookupTensor(Tensor):
    """The numbers that a vocabulary has for the values of a feature: int64, and -1 for what it does not know.

    Args:
        tensor_key: the feature, usually of strings.
        table: the vocabulary: a list of texts, which are numbered from 0; a dict of numbers; or an object with a method
            ``lookup`` that takes an array.
        shape_keys, shape, default_value: as ``Tensor``; the default is looked up like the values.

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
