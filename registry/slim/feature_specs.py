"""Declarations of features: TensorFlow's four specifications and its sparse array, without TensorFlow.

A decoder takes TensorFlow's own as well (``tf.io.FixedLenFeature``, ...), and dtypes as numpy and TensorFlow name them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, UsageError, WrongTypeError, require_extra
from registry.features.feature import TEXT
from registry.wire import WireKind

if TYPE_CHECKING:
    import scipy.sparse


_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "int64": np.dtype(np.int64),
    **dict.fromkeys(("float32", "float"), np.dtype(np.float32)),  # "float" is float64 to NumPy, and not to TensorFlow
    **dict.fromkeys(("string", "bytes", "str", "object"), TEXT),
}
_KINDS: Final[dict[str, WireKind]] = {"i": "int64", "f": "float", "O": "bytes"}

_MOST_BYTES: Final = 2**31
"""What a dense array may take: a record cannot be longer, and the shape comes out of it."""


@dataclass(frozen=True, slots=True)
class FixedLenFeature:
    """A feature of always as many values, read as an array of ``shape``: ``tf.io.FixedLenFeature``.

    Args:
        shape: of the array; ``()`` for a single value.
        dtype: int64, float32 or string.
        default_value: the values where a record does not have the feature, as many as ``shape`` takes; None for a
            feature that every record must have. A feature that is there and empty is an error all the same. No values
            are no default, as in TensorFlow.

    Raises:
        UsageError: the shape is not known, or does not take the default.
        WrongTypeError: another dtype, or a default of another type.
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
    """A feature of any number of values, read as a ``SparseTensorValue`` of one dimension: ``tf.io.VarLenFeature``.

    In a sequence it has two: the steps, and the values of each.
    """

    dtype: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", check_dtype(self.dtype))


@dataclass(frozen=True, slots=True)
class SparseFeature:
    """Values, and their places, stored as features of their own: ``tf.io.SparseFeature``.

    Args:
        index_key: the int64 feature that has the place of each value; a list of them for several dimensions.
        value_key: the feature that has the values.
        dtype: of the values.
        size: of the dimension, or a list of sizes. That indices are below it is checked where it is made dense.
        already_sorted: whether the indices are stored in ascending order; they are sorted if not.
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
                hint="Give a size for each index key: SparseFeature(['row', 'column'], 'value', 'float32', [4, 6]).",
            )
        object.__setattr__(self, "index_key", keys)
        object.__setattr__(self, "size", check_shape(sizes, "SparseFeature"))
        object.__setattr__(self, "dtype", check_dtype(self.dtype))


@dataclass(frozen=True, slots=True)
class FixedLenSequenceFeature:
    """A feature of any number of elements, each of ``shape``: ``tf.io.FixedLenSequenceFeature``.

    Read as an array (n, *shape). In an Example all elements stand in one list, and ``allow_missing`` has to be True; in
    a SequenceExample each is a step, and without ``allow_missing`` every record must have the list.

    Args:
        shape: of an element.
        dtype: int64, float32 or string.
        allow_missing: whether a record may go without the feature, which then has no elements.
        default_value: accepted and not used: TensorFlow pads batches with it, which have no such padding here.
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
                f"elements of the shape {list(self.shape)} hold nothing, so that nobody could count them",
                hint="Give the shape of one element; () where each is a single value.",
            )

    @property
    def size(self) -> int:
        """The number of values of an element."""
        return prod(self.shape)


FeatureSpec: TypeAlias = FixedLenFeature | VarLenFeature | SparseFeature | FixedLenSequenceFeature

_SPECS: Final[dict[str, type[FeatureSpec]]] = {
    kind.__name__: kind for kind in (FixedLenFeature, VarLenFeature, SparseFeature, FixedLenSequenceFeature)
}


def check_features(keys_to_features: Mapping[str, Any], allowed: Sequence[type[FeatureSpec]]) -> dict[str, FeatureSpec]:
    """The specifications by key; TensorFlow's own are taken over.

    Raises:
        UsageError: one is not a specification, or not of an ``allowed`` kind.
    """
    check_mapping("features", keys_to_features)
    found: dict[str, FeatureSpec] = {}
    names = [kind.__name__ for kind in allowed]
    for key, given in keys_to_features.items():
        kind = _SPECS.get(type(given).__name__)
        if kind is None or kind not in allowed:
            raise UsageError(
                f"feature {key!r:.80} is {given!r:.200}, and has to be one of {', '.join(names)}",
                hint="e.g. {'label': FixedLenFeature((), 'int64')}. See docs/slim.md.",
            )
        found[key] = given if isinstance(given, kind) else kind(*given)
    return found


def check_mapping(name: str, given: Any) -> None:
    """WrongTypeError for anything but a mapping by names."""
    if not isinstance(given, Mapping):
        raise WrongTypeError(
            f"{name} are given as a dict by their names, not as {given!r:.80}",
            hint="e.g. TFExampleDecoder({'label': FixedLenFeature((), 'int64')}, {'label': Tensor('label')}).",
        )


def check_dtype(dtype: Any) -> np.dtype[Any]:
    """int64, float32, or object for strings, whatever it is called; WrongTypeError for what records cannot store."""
    name = getattr(dtype, "name", dtype)
    if dtype in (str, bytes, object):
        return TEXT
    if dtype is float:
        return _DTYPES["float"]
    found = _DTYPES.get(name) if isinstance(name, str) else None
    if found is None:
        try:
            made = np.dtype(dtype)
        except TypeError:
            made = None
        found = TEXT if made is not None and made.kind in "SU" else _DTYPES.get("" if made is None else made.name)
    if found is None:
        raise WrongTypeError(
            f"features are int64, float32 or string, not {name!r:.60}",
            hint="Declare what is stored, and convert what was read: array.astype(...), or an ItemHandlerCallback.",
        )
    return found


def check_shape(shape: Any, where: str) -> tuple[int, ...]:
    """``shape`` as a tuple of whole numbers from 0; UsageError if it is not one."""
    sizes = (shape,) if shape is None or np.ndim(shape) == 0 else tuple(shape)
    try:
        known = tuple(int(size) for size in sizes if size is not None and int(size) == size >= 0)
    except (TypeError, ValueError):
        known = ()
    if len(known) != len(sizes):
        raise UsageError(
            f"{where} needs a shape of known sizes, not {shape!r:.80}",
            hint="Where the first size is not known, use FixedLenSequenceFeature or VarLenFeature.",
        )
    return known


def kind_of(spec: FeatureSpec) -> WireKind:
    """In which kind of list the values of the feature are stored."""
    return _KINDS[spec.dtype.kind]


def _default_of(given: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The default as an array of ``shape``: as many values are needed as that takes, in any shape."""
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
            f"default_value={given!r:.60} is not of the feature's type, {'string' if dtype is TEXT else dtype}",
            hint="Give a default of the type that is declared.",
        )
    if array.size != prod(shape):
        raise UsageError(
            f"default_value={given!r:.60} has {array.size} values, and the shape {list(shape)} takes {prod(shape)}",
            hint="Give a value for each element.",
        )
    default = array.astype(dtype).reshape(shape)
    default.flags.writeable = False
    return default


class SparseTensorValue(NamedTuple):
    """A sparse array of any rank: values and their places; other places are empty, or have a default.

    Attributes:
        indices: int64 (n, rank), the place of each value.
        values: (n,), int64, float32, or objects of ``bytes``.
        dense_shape: int64 (rank,). It may be smaller than the indices ask for: what made it was not checked.
    """

    indices: npt.NDArray[np.int64]
    values: npt.NDArray[Any]
    dense_shape: npt.NDArray[np.int64]

    def to_dense(self, default_value: Any = None) -> npt.NDArray[Any]:
        """The array of ``dense_shape``, with ``default_value`` at places without a value; None is 0, or ``b""``.

        >>> SparseTensorValue(np.array([[1], [4]]), np.array([2.5, 3.5]), np.array([6])).to_dense(-1)
        array([-1. ,  2.5, -1. , -1. ,  3.5, -1. ])

        Raises:
            CorruptExampleError: an index that the shape does not have, indices that do not ascend, or another number of
                values than of indices.
            WrongTypeError: a default of another type than the values.
        """
        shape = tuple(self.dense_shape.tolist())
        places = self._places(shape)
        dense = np.full(shape, fill_value(default_value, self.values.dtype), self.values.dtype)
        dense.reshape(-1)[places] = self.values
        return dense

    def to_scipy(self) -> scipy.sparse.coo_array:
        """The ``scipy.sparse.coo_array`` of a sparse array of two dimensions that holds numbers.

        Raises:
            MissingExtraError: scipy is not installed.
            UsageError: it has another rank, or holds texts.
        """
        with require_extra("scipy", package="scipy", needed_for="sparse arrays of scipy"):
            from scipy.sparse import coo_array
        if self.dense_shape.size != 2 or self.values.dtype.kind == "O":
            kind = "texts" if self.values.dtype.kind == "O" else "values"
            raise UsageError(
                f"scipy holds numbers in two dimensions, and these are {kind} in {self.dense_shape.size}",
                hint="to_dense() gives an array of any rank and type.",
            )
        rows, columns = self.indices.T
        return coo_array((self.values, (rows, columns)), shape=tuple(self.dense_shape.tolist()))

    def _places(self, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """The place of each value in the flattened array."""
        num_bytes = prod(shape) * self.values.itemsize
        counted = prod(size or 1 for size in shape) * self.values.itemsize  # NumPy counts so, also where one is 0
        if min(shape, default=0) < 0 or num_bytes > _MOST_BYTES or counted >= 2**63:
            raise CorruptExampleError(
                f"an array of the shape {list(shape)} cannot be made of this record",
                hint=f"Sizes are 0 or more, and an array takes {_MOST_BYTES} bytes at most. Keep it sparse.",
            )
        if self.indices.shape[1:] != self.dense_shape.shape:
            raise CorruptExampleError(
                f"the indices have {self.indices.shape[1]} dimensions, and the shape {list(shape)} has {len(shape)}",
                hint="Give the shape that was written: shape= or shape_key= of the handler.",
            )
        if len(self.indices) != len(self.values):
            raise CorruptExampleError(
                f"{len(self.indices)} indices and {len(self.values)} values",
                hint="Each value needs an index. What wrote this record lost some.",
            )
        outside = ((self.indices < 0) | (self.indices >= self.dense_shape)).any(axis=1)
        if outside.any():
            place = int(outside.argmax())
            raise CorruptExampleError(
                f"index {place}, {self.indices[place].tolist()}, is outside of the shape {list(shape)}",
                hint="Give the shape that was written: shape= or shape_key= of the handler, size of a SparseFeature.",
            )
        places = np.zeros(len(self.indices), np.int64)
        for axis, size in enumerate(shape):
            places = places * size + self.indices[:, axis]
        falls = places[1:] <= places[:-1]
        if falls.any():
            place = int(falls.argmax()) + 1
            raise CorruptExampleError(
                f"index {place}, {self.indices[place].tolist()}, does not come after the one before it",
                hint="Indices ascend. Write them sorted, each once, or read them with SparseFeature, which sorts.",
            )
        return places


def fill_value(default: Any, dtype: np.dtype[Any]) -> Any:
    """What fills places without a value in an array of ``dtype``: ``default``, or 0 or ``b""`` where that is None.

    Raises:
        WrongTypeError: it is of another type.
    """
    if dtype.kind == "O":
        if default is None:
            return b""
        if isinstance(default, str):
            return default.encode()
        if isinstance(default, bytes):
            return default
        raise WrongTypeError(
            f"texts cannot be filled up with default_value={default!r:.60}, a {type(default).__name__}",
            hint="Give default_value='' to the handler of a feature of strings.",
        )
    if default is None:
        return 0
    found = np.asarray(default)
    is_number = found.ndim == 0 and found.dtype.kind in ("biuf" if dtype.kind == "f" else "biu")
    if not is_number:
        kind = "a number" if dtype.kind == "f" else "a whole number"
        raise WrongTypeError(
            f"default_value={default!r:.60} is not {kind}, as values of {dtype} need",
            hint="Give a default of the values' type; None is 0.",
        )
    return found.astype(dtype)
