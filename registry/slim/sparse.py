"""What is a list of values with their places? A sparse array of any rank, in coordinates, as TensorFlow has it."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, MissingExtraError, UsageError, WrongTypeError

if TYPE_CHECKING:
    import scipy.sparse


_MOST_BYTES: Final = 2**31
"""What a dense array may take: a record cannot be longer, and the shape comes out of it."""


class SparseTensorValue(NamedTuple):
    """The values of an array that stand somewhere; elsewhere there is nothing, or a default.

    Attributes:
        indices: int64 (n, rank), where each value stands.
        values: (n,), int64, float32, or objects of ``bytes``.
        dense_shape: int64 (rank,). It may be smaller than the indices ask for: what made it was not checked.
    """

    indices: npt.NDArray[np.int64]
    values: npt.NDArray[Any]
    dense_shape: npt.NDArray[np.int64]

    def to_dense(self, default_value: Any = None) -> npt.NDArray[Any]:
        """The array of ``dense_shape``, with ``default_value`` where there is no value; None is 0, or ``b""``.

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
        try:
            from scipy.sparse import coo_array
        except ImportError as error:
            raise MissingExtraError(package="scipy", extra="scipy", needed_for="sparse arrays of scipy") from error
        if self.dense_shape.size != 2 or self.values.dtype.kind == "O":
            kind = "texts" if self.values.dtype.kind == "O" else "values"
            raise UsageError(
                f"scipy holds numbers in two dimensions, and these are {kind} in {self.dense_shape.size}",
                hint="to_dense() gives an array of any rank and type.",
            )
        rows, columns = self.indices.T
        return coo_array((self.values, (rows, columns)), shape=tuple(self.dense_shape.tolist()))

    def _places(self, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """Where in the array, laid out in one run, each value stands."""
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
    """What fills an array of ``dtype`` where nothing stands: ``default``, or 0 or ``b""`` where that is None.

    Raises:
        WrongTypeError: it is none of this type.
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
