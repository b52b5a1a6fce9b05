"""Declarations of features: TensorFlow's four specifications and its sparse array, without TensorFlow.

Decoders also accept TensorFlow's own (``tf.io.FixedLenFeature``, ...), and the dtypes of NumPy and TensorFlow.
``parsing`` reads records by these declarations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, UsageError, WrongTypeError, require_extra
from registry.wire import WireKind

if TYPE_CHECKING:
    import scipy.sparse

TEXT: Final = np.dtype(object)
"""The dtype of texts: an array of ``bytes``."""

_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "int64": np.dtype(np.int64),
    **dict.fromkeys(("float32", "float"), np.dtype(np.float32)),  # "float" is float32 in TensorFlow, float64 in NumPy
    **dict.fromkeys(("string", "bytes", "str", "object"), TEXT),
}
_KINDS: Final[dict[str, WireKind]] = {"i": "int64", "f": "float", "O": "bytes"}

_MOST_BYTES: Final = 2**31
"""Maximum size of a dense array, in bytes: a record cannot be longer, and the shape may come from the record."""


@dataclass(frozen=True, slots=True)
class FixedLenFeature:
    """A feature with a fixed number of values, read as an array of ``shape``. Follows ``tf.io.FixedLenFeature``.

    Args:
        shape: the shape of the array; ``()`` for a single value.
        dtype: int64, float32 or string.
        default_value: the values for records without the feature, as many as ``shape`` has; None makes the feature
            required. A feature that is present but empty is an error even with a default. As in TensorFlow, an empty
            default counts as None.

    >>> FixedLenFeature((), "int64", default_value=-1).size
    1

    Raises:
        UsageError: a size is unknown, or the default does not have the shape.
        WrongTypeError: the dtype is not supported, or the default has another type.
    """

    shape: Any
    dtype: Any
    default_value: Any = None

    def __post_init__(self) -> None:
        shape = check_shape(self.shape, "FixedLenFeature")
        dtype = check_dtype(self.dtype)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "dtype", dtype)
        if self.default_value is not None:
            default = _default_of(self.default_value, shape, dtype)
            object.__setattr__(self, "default_value", default if default.size else None)

    @property
    def size(self) -> int:
        """The number of values."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class VarLenFeature:
    """A feature with any number of values. Follows ``tf.io.VarLenFeature``.

    It is read as a ``SparseTensorValue`` with one dimension; in a sequence, with two: steps, and values in each step.

    Args:
        dtype: int64, float32 or string.

    Raises:
        WrongTypeError: the dtype is not supported.
    """

    dtype: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", check_dtype(self.dtype))


@dataclass(frozen=True, slots=True)
class SparseFeature:
    """A sparse array whose values and indices are separate features. Follows ``tf.io.SparseFeature``.

    It is read as a ``SparseTensorValue``.

    Args:
        index_key: the key of the int64 feature with the index of each value; for several dimensions, a list of keys.
        value_key: the key of the feature with the values.
        dtype: the dtype of the values: int64, float32 or string.
        size: the size of the dimension, or a list of sizes. ``to_dense`` checks that the indices are below it.
        already_sorted: whether the indices are stored in ascending order. Otherwise they are sorted.

    Raises:
        UsageError: the number of sizes is not the number of index keys, or a size is unknown.
        WrongTypeError: the dtype is not supported.
    """

    index_key: Any
    value_key: str
    dtype: Any
    size: Any
    already_sorted: bool = False

    def __post_init__(self) -> None:
        keys = (self.index_key,) if isinstance(self.index_key, str) else tuple(self.index_key)
        sizes = (self.size,) if np.ndim(self.size) == 0 else tuple(self.size)
        if len(keys) != len(sizes) or not keys:
            raise UsageError(
                f"SparseFeature has {len(keys)} index keys and {len(sizes)} sizes",
                hint="Pass a size for each index key: SparseFeature(['row', 'column'], 'value', 'float32', [4, 6]).",
            )
        object.__setattr__(self, "index_key", keys)
        object.__setattr__(self, "size", check_shape(sizes, "SparseFeature"))
        object.__setattr__(self, "dtype", check_dtype(self.dtype))


@dataclass(frozen=True, slots=True)
class FixedLenSequenceFeature:
    """A feature with any number of elements, each of ``shape``. Follows ``tf.io.FixedLenSequenceFeature``.

    It is read as an array (n, *shape). In an Example, all elements are in one list, and ``allow_missing`` must be True.
    In a SequenceExample, each element is a step, and without ``allow_missing`` every record must have the list.

    Args:
        shape: the shape of an element.
        dtype: int64, float32 or string.
        allow_missing: whether a record may lack the feature, which then has no elements.
        default_value: accepted but unused; TensorFlow pads batches with it.

    Raises:
        UsageError: a size is unknown, or is 0.
        WrongTypeError: the dtype is not supported.
    """

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", check_shape(self.shape, "FixedLenSequenceFeature"))
        object.__setattr__(self, "dtype", check_dtype(self.dtype))
        if 0 in self.shape:
            raise UsageError(
                f"elements of shape {list(self.shape)} have no values, so they cannot be counted",
                hint="Pass the shape of one element, or () if each is a single value.",
            )

    @property
    def size(self) -> int:
        """The number of values in an element."""
        return prod(self.shape)


FeatureSpec: TypeAlias = FixedLenFeature | VarLenFeature | SparseFeature | FixedLenSequenceFeature

_SPECS: Final[dict[str, type[FeatureSpec]]] = {
    kind.__name__: kind for kind in (FixedLenFeature, VarLenFeature, SparseFeature, FixedLenSequenceFeature)
}


def check_features(keys_to_features: Mapping[str, Any], allowed: Sequence[type[FeatureSpec]]) -> dict[str, FeatureSpec]:
    """The specifications by key; TensorFlow's own are converted.

    Raises:
        UsageError: a value is not a specification, or its kind is not in ``allowed``.
    """
    check_mapping("features", keys_to_features)
    specs: dict[str, FeatureSpec] = {}
    names = [kind.__name__ for kind in allowed]
    for key, keys_to_feature in keys_to_features.items():
        kind = _SPECS.get(type(keys_to_feature).__name__)
        if kind is None or kind not in allowed:
            raise UsageError(
                f"feature {key!r:.80} must be one of {', '.join(names)}, not {keys_to_feature!r:.200}",
                hint="For example: {'label': FixedLenFeature((), 'int64')}. See docs/slim.md.",
            )
        specs[key] = keys_to_feature if isinstance(keys_to_feature, kind) else kind(*keys_to_feature)
    return specs


def check_mapping(name: str, given: Any) -> None:
    """Raise WrongTypeError if ``given`` is not a mapping."""
    if not isinstance(given, Mapping):
        raise WrongTypeError(
            f"{name} must be a dict by name, not {given!r:.80}",
            hint="For example: TFExampleDecoder({'label': FixedLenFeature((), 'int64')}, {'label': Tensor('label')}).",
        )


def check_dtype(dtype: Any) -> np.dtype[Any]:
    """Convert ``dtype`` to int64, float32, or object for strings. Raises WrongTypeError if records cannot store it."""
    name = getattr(dtype, "name", dtype)
    if dtype in (str, bytes, object):
        return TEXT
    if dtype is float:
        return _DTYPES["float"]
    result = _DTYPES.get(name) if isinstance(name, str) else None
    if result is None:
        try:
            made = np.dtype(dtype)
        except TypeError:
            made = None
        result = TEXT if made is not None and made.kind in "SU" else _DTYPES.get("" if made is None else made.name)
    if result is None:
        raise WrongTypeError(
            f"the dtype of a feature must be int64, float32 or string, not {name!r:.60}",
            hint="Declare the stored dtype, and convert the values: array.astype(...), or an ItemHandlerCallback.",
        )
    return result


def check_shape(shape: Any, where: str) -> tuple[int, ...]:
    """``shape`` as a tuple of non-negative ints. Raises UsageError if it is not one."""
    sizes = (shape,) if shape is None or np.ndim(shape) == 0 else tuple(shape)
    try:
        known = tuple(int(size) for size in sizes if size is not None and int(size) == size >= 0)
    except (TypeError, ValueError):
        known = ()
    if len(known) != len(sizes):
        raise UsageError(
            f"{where} needs a shape of known sizes, not {shape!r:.80}",
            hint="If the first size is unknown, use FixedLenSequenceFeature or VarLenFeature.",
        )
    return known


def kind_of(spec: FeatureSpec) -> WireKind:
    """The list of a tf.train.Feature that stores the values."""
    return _KINDS[spec.dtype.kind]


def _default_of(given: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The default as an array of ``shape``. It may have any shape with the same number of values."""
    if dtype is TEXT:
        found = np.array(given, dtype=TEXT)
        texts = [value.encode() if isinstance(value, str) else value for value in found.reshape(-1).tolist()]
        is_right = all(isinstance(value, bytes) for value in texts)
        array = np.fromiter(texts, TEXT, len(texts))
    else:
        array = np.asarray(given)
        is_right = array.dtype.kind in ("iuf" if dtype.kind == "f" else "iu") or not array.size
    if not is_right:
        raise WrongTypeError(
            f"default_value={given!r:.60} does not have the feature's type, {'string' if dtype is TEXT else dtype}",
            hint="Pass a default of the declared type.",
        )
    if array.size != prod(shape):
        raise UsageError(
            f"default_value={given!r:.60} must have {prod(shape)} values for the shape {list(shape)}, not {array.size}",
            hint="Pass a value for each element.",
        )
    default = array.astype(dtype).reshape(shape)
    default.flags.writeable = False
    return default


class SparseTensorValue(NamedTuple):
    """A sparse array of any rank, as its values and their indices. Follows ``tf.compat.v1.SparseTensorValue``.

    Attributes:
        indices: int64 (n, rank), the index of each value.
        values: (n,), int64, float32, or objects of ``bytes``.
        dense_shape: int64 (rank,). It is not checked, so an index may be outside of it.
    """

    indices: npt.NDArray[np.int64]
    values: npt.NDArray[Any]
    dense_shape: npt.NDArray[np.int64]

    def to_dense(self, default_value: Any = None) -> npt.NDArray[Any]:
        """The array of ``dense_shape``, with ``default_value`` where there is no value; None is 0 or ``b""``.

        >>> SparseTensorValue(np.array([[1], [4]]), np.array([2.5, 3.5]), np.array([6])).to_dense(-1)
        array([-1. ,  2.5, -1. , -1. ,  3.5, -1. ])

        Raises:
            CorruptExampleError: an index is outside the shape, indices are not in ascending order, or the number of
                values is not the number of indices.
            WrongTypeError: the default and the values have different types.
        """
        shape = tuple(self.dense_shape.tolist())
        places = self._places(shape)
        dense = np.full(shape, fill_value(default_value, self.values.dtype), self.values.dtype)
        dense.reshape(-1)[places] = self.values
        return dense

    def to_scipy(self) -> scipy.sparse.coo_array:
        """The array as a ``scipy.sparse.coo_array``. It must have two dimensions and hold numbers.

        Raises:
            MissingExtraError: scipy is not installed.
            UsageError: the array has another rank, or holds texts.
        """
        with require_extra("scipy", package="scipy", needed_for="sparse arrays of scipy"):
            from scipy.sparse import coo_array
        if self.dense_shape.size != 2 or self.values.dtype.kind == "O":
            kind = "texts" if self.values.dtype.kind == "O" else "values"
            raise UsageError(
                f"scipy needs numbers in two dimensions, found {kind} in {self.dense_shape.size}",
                hint="Use to_dense(), which returns an array of any rank and type.",
            )
        rows, columns = self.indices.T
        return coo_array((self.values, (rows, columns)), shape=tuple(self.dense_shape.tolist()))

    def _places(self, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """The position of each value in the flattened array."""
        num_bytes = prod(shape) * self.values.itemsize
        counted = prod(size or 1 for size in shape) * self.values.itemsize  # NumPy's limit ignores sizes of 0
        if min(shape, default=0) < 0 or num_bytes > _MOST_BYTES or counted >= 2**63:
            raise CorruptExampleError(
                f"cannot create an array of shape {list(shape)} from this record",
                hint=f"Sizes must be 0 or more, and an array may have at most {_MOST_BYTES} bytes. Keep it sparse.",
            )
        if self.indices.shape[1:] != self.dense_shape.shape:
            raise CorruptExampleError(
                f"the indices have {self.indices.shape[1]} dimensions, and the shape {list(shape)} has {len(shape)}",
                hint="Pass the shape that was written: shape= or shape_key= of the handler.",
            )
        if len(self.indices) != len(self.values):
            raise CorruptExampleError(
                f"expected an index for each value, found {len(self.indices)} indices and {len(self.values)} values",
                hint="The program that wrote this record lost some of them. Write the record again.",
            )
        outside = ((self.indices < 0) | (self.indices >= self.dense_shape)).any(axis=1)
        if outside.any():
            place = int(outside.argmax())
            raise CorruptExampleError(
                f"index {place}, {self.indices[place].tolist()}, is outside of the shape {list(shape)}",
                hint="Pass the shape that was written: shape= or shape_key= of the handler, size of a SparseFeature.",
            )
        places = np.zeros(len(self.indices), np.int64)
        for axis, size in enumerate(shape):
            places = places * size + self.indices[:, axis]
        falls = places[1:] <= places[:-1]
        if falls.any():
            place = int(falls.argmax()) + 1
            raise CorruptExampleError(
                f"index {place}, {self.indices[place].tolist()}, does not come after the one before it",
                hint="Write indices sorted, each once, or read them with SparseFeature, which sorts them.",
            )
        return places


def fill_value(default: Any, dtype: np.dtype[Any]) -> Any:
    """``default`` as a value of ``dtype``; 0 or ``b""`` if it is None.

    Raises:
        WrongTypeError: ``default`` has another type.
    """
    if dtype.kind == "O":
        if default is None:
            return b""
        if isinstance(default, str):
            return default.encode()
        if isinstance(default, bytes):
            return default
        raise WrongTypeError(
            f"default_value={default!r:.60} must be text, as the values are, not {type(default).__name__}",
            hint="Pass default_value='' to the handler of a feature of strings.",
        )
    if default is None:
        return 0
    array = np.asarray(default)
    is_number = array.ndim == 0 and array.dtype.kind in ("biuf" if dtype.kind == "f" else "biu")
    if not is_number:
        kind = "a number" if dtype.kind == "f" else "a whole number"
        raise WrongTypeError(
            f"default_value={default!r:.60} must be {kind} for values of dtype {dtype}",
            hint="Pass a default of the values' type; None is 0.",
        )
    return array.astype(dtype)
