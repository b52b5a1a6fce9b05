"""How is an array stored as bytes? Its own bytes, little-endian, as they are or compressed; and read back, bounded."""

from __future__ import annotations

import math
import sys
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from registry.features.deflate import compress
from registry.features.dtypes import is_bfloat16, is_sane_shape
from registry.features.feature import corrupt_fault, fits_shape

if TYPE_CHECKING:
    from registry.features.tensor import Tensor

MAX_INFLATED: Final = 2**30
"""Most bytes that one compressed array is inflated to where its shape does not say how many they are."""


def pack_array(array: npt.NDArray[Any], encoding: str) -> bytes:
    """The bytes of ``array``. Compressed by this package's own encoder: zlib's differ between its versions."""
    data = _stored_form(array.dtype, array).tobytes()
    return compress(data) if encoding == "zlib" else data


def unpack_array(tensor: Tensor, data: bytes, stored: list[int] | None, path: str) -> npt.NDArray[Any]:
    """The array in ``data``; ``stored`` is its shape where that is stored beside it.

    Raises:
        CorruptExampleError: the bytes, inflated, do not make the shape. No more memory is taken than the shape asks
            for, or ``MAX_INFLATED``, whatever they inflate to.
    """
    dtype = tensor.dtype
    if stored is not None and (
        not fits_shape(tuple(stored), tensor.shape) or min(stored, default=0) < 0 or not is_sane_shape(stored)
    ):
        raise corrupt_fault(path, f"holds the shape {stored}, where {tensor.shape} is declared")
    known = math.prod(size for size in tensor.shape if size is not None)
    if tensor.encoding == "zlib":
        sure = math.prod(stored) if stored is not None else known if None not in tensor.shape else None
        most = MAX_INFLATED if sure is None else sure * dtype.itemsize
        data = _inflate(data, most, path)
    num_values, rest = divmod(len(data), dtype.itemsize)
    missing = num_values // known if known else 0
    shape = stored or [missing if size is None else size for size in tensor.shape]
    if rest or math.prod(shape) != num_values:
        raise corrupt_fault(path, f"holds {len(data)} bytes, which do not make {dtype} of shape {shape}")
    if is_bfloat16(dtype):
        halves: npt.NDArray[Any] = np.frombuffer(data, "<u2").astype(np.uint16).view(dtype)
        return halves.reshape(shape)
    array = np.frombuffer(data, dtype.newbyteorder("<")).reshape(shape)
    if dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1:
        raise corrupt_fault(path, "holds a bool that is neither 0 nor 1")
    return array.astype(dtype)


def _stored_form(dtype: np.dtype[Any], array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if is_bfloat16(dtype):
        return np.ascontiguousarray(array).view(np.uint16).astype("<u2", copy=False)
    return array.astype(dtype.newbyteorder("<"), copy=False)


def _inflate(data: bytes, most: int, path: str) -> bytes:
    """The zlib stream ``data``, refused once it gives more than ``most`` bytes."""
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, min(most + 1, sys.maxsize))
    except zlib.error as error:
        raise corrupt_fault(path, f"holds no sound zlib stream: {error}") from error
    if len(found) > most:
        raise corrupt_fault(path, f"holds a zlib stream of more than {most} bytes")
    if not stream.eof or stream.unused_data:
        raise corrupt_fault(path, "holds a zlib stream that is cut, or has bytes behind it")
    return found
