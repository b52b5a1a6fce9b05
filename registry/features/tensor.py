"""Tensor and Scalar: arrays of numbers, text or bytes. Most other leaves are based on them.

They are stored as flat numbers (``dtypes``) or, with ``encoding="bytes"`` or ``"zlib"``, as the array's own
little-endian bytes, which keeps float64 exact and allows several unknown dimensions.
"""

from __future__ import annotations

import math
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from registry import wire
from registry.errors import CorruptExampleError, FeatureError
from registry.features.block_columns import ArrayColumn, RaggedColumn, StoredColumn, TextColumn
from registry.features.dtypes import (
    BFLOAT16,
    STRING,
    DtypeField,
    check_shape,
    exact_array,
    from_flat,
    is_bfloat16,
    is_sane_shape,
    lowest_value,
    settle_dtype,
    show_value,
    to_flat,
    wire_kind,
)
from registry.features.feature import (
    TEXT,
    BlockColumn,
    BlockParts,
    Counts,
    Leaf,
    Part,
    Shape,
    corrupt_fault,
    empty_flat,
    feature_fault,
    fits_shape,
    stack_values,
)
from registry.features.stacking import encode_texts, join_alike, stack_alike, type_of_all
from registry.lazy import np, npt
from registry.wire.gather import as_rows, constant, take, take_texts

if TYPE_CHECKING:
    from registry.wire import FlatValue

ENCODINGS: Final = ("none", "bytes", "zlib")
MAX_MISSING: Final = 2**26
"""Maximum number of values of an optional tensor, because a record without it still decodes to all of them."""

MAX_INFLATED: Final = 2**30
"""Maximum size in bytes of a decompressed array whose shape does not determine its size."""

_MANY_UNKNOWN: Final = "Declare the Tensor with encoding='bytes', which also stores the shape."


@dataclass(frozen=True, kw_only=True, repr=False)
class Tensor(Leaf):
    """An array of numbers, text or bytes. Follows ``tfds.features.Tensor``.

    It accepts anything that NumPy converts to an array, and rejects a value that the cast would change (300 to uint8,
    1.5 to int32, 1e39 to float32); floats are rounded to the nearest. It decodes to an array of this dtype and shape,
    or, for the shape ``()``, to a NumPy scalar (``bytes`` for text).

    Attributes:
        shape: the size of each dimension, None if unknown. More than one unknown dimension requires an encoding.
        dtype: bool, any integer, float16, float32, float64, or text (``str``, ``bytes``, ``object``), which decodes to
            ``bytes``. bfloat16 requires an encoding and the package ml_dtypes. As in TFDS, float64 without an encoding
            is stored as float32.
        encoding: ``none``, ``bytes`` or ``zlib``. zlib data is compressed by an encoder in this package, so that the
            same array gives the same bytes on every machine.
        minimum, maximum: 64-bit integer bounds of all numbers, both allowed. NaN is outside no bound.
        optional: whether a value may be None, which is not stored. Requires a known shape.
        missing: what a missing value decodes to: None, or the number, text or bytes that an array of this shape is
            filled with. ``FeaturesDict.missing_as_tfds`` and ``FeaturesDict.fill_missing`` set it.

    >>> Tensor(shape=(2, None), dtype="int32").flatten([[1, 2], [3, 4]], "mat")
    (array([1, 2, 3, 4]),)

    Raises:
        FeatureError: the shape or dtype cannot be stored, or a value does not fit.
        MissingExtraError: the dtype is bfloat16 and ml_dtypes is not installed.
    """

    shape: Shape
    if TYPE_CHECKING:
        dtype: Any
    else:
        dtype: Any = DtypeField()  # an argument without a default
    encoding: str = "none"
    minimum: int | None = None
    maximum: int | None = None
    optional: bool = False
    missing: Any = None
    dtype_name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        settle_dtype(self)
        object.__setattr__(self, "shape", check_shape(self.shape))
        object.__setattr__(self, "minimum", _check_bound(self.minimum))
        object.__setattr__(self, "maximum", _check_bound(self.maximum))
        if self.encoding not in ENCODINGS:
            raise feature_fault("", f"unknown encoding {self.encoding!r}", "Use 'none', 'bytes' or 'zlib'.")
        if self.encoding != "none" and self.dtype_name == STRING:
            raise feature_fault("", f"text cannot have the encoding {self.encoding!r}", "Leave encoding= out.")
        if self.encoding == "none" and self.dtype_name == BFLOAT16:
            raise feature_fault("", "bfloat16 requires an encoding", "Use encoding='bytes' or 'zlib'.")
        if self.optional and None in self.shape:
            raise feature_fault("", f"an optional tensor requires a known shape, not {self.shape}")
        if self.optional and math.prod(size or 0 for size in self.shape) > MAX_MISSING:
            raise feature_fault(
                "", f"an optional tensor can have at most {MAX_MISSING} values, and shape {self.shape} has more"
            )
        if self.encoding == "none" and None in self.shape and 0 in self.shape:
            raise feature_fault(
                "", f"shape {self.shape} cannot be stored: an array without values loses its unknown dimension"
            )
        if self.missing is not None:
            if not self.optional:
                raise feature_fault("", "missing= requires an optional tensor", "Add optional=True.")
            object.__setattr__(self, "missing", self._one_value(self.missing, ""))

    @property
    def has_stored_shape(self) -> bool:
        """Whether the shape is stored too (``k/shape``, ``k/value``), because several dimensions are unknown."""
        return self.shape.count(None) > 1

    @cached_property
    def parts(self) -> tuple[Part, ...]:  # cached, because it is used for every example
        """One flat value, or ``/shape`` and ``/value`` if several dimensions are unknown."""
        if self.encoding != "none":
            value = Part("/value" if self.has_stored_shape else "", "bytes", 1)
            return (Part("/shape", "int64", len(self.shape)), value) if self.has_stored_shape else (value,)
        size = None if None in self.shape else math.prod(s for s in self.shape if s is not None)
        return (Part("", wire_kind(self.dtype_name), size),)

    def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
        """One flat value: the array cast to the dtype without changing a number, in C order."""
        array = exact_array(value, self.dtype, path)
        self._check_fit(array.shape, self.shape, path)
        self._check_limits(array, path)
        if self.encoding == "none":
            return (to_flat(array, path),)
        data = [pack_array(array, self.encoding)]
        return (np.array(array.shape, np.int64), data) if self.has_stored_shape else (data,)

    def flatten_many(self, values: Sequence[Any] | npt.NDArray[Any], path: str) -> tuple[FlatValue, ...]:
        """The flat values of several values; converted in one call unless there is an encoding."""
        if self.encoding != "none":
            return super().flatten_many(values, path)
        if not len(values):
            return (empty_flat(wire_kind(self.dtype_name)),)
        array = exact_array(values, self.dtype, path)
        self._check_fit(array.shape, (len(values), *self.shape), path)
        self._check_limits(array, path)
        return (to_flat(array, path),)

    def flatten_block(
        self, values: Sequence[Any] | npt.NDArray[Any], path: str
    ) -> tuple[tuple[FlatValue, Counts], ...] | None:
        """The flat values of many values; None if the encoding has to be applied to each value alone."""
        if self.encoding == "zlib" or self.has_stored_shape:
            return None
        if self.dtype_name == STRING:
            return self._texts_block(values)
        found, counts = stack_alike(values), None
        if found is None:
            joined = join_alike(values, self.shape)
            if joined is None:
                return None
            found, counts = joined
        elif not fits_shape(found.shape[1:], self.shape):
            return None
        # In a list, NumPy converts integers above 2**63 to floats if there are also smaller ones.
        if found.dtype == np.uint64 and self.dtype.kind not in "iu" and not isinstance(values, np.ndarray):
            return None
        try:
            array = exact_array(found, self.dtype, path)
            self._check_limits(array, path)
            if self.encoding == "none":
                return ((to_flat(array, path), math.prod(array.shape[1:]) if counts is None else counts),)
        except FeatureError:
            return None
        stored = _stored_form(self.dtype, array).tobytes()
        sizes = np.full(len(values), len(stored) // len(values)) if counts is None else counts * self.dtype.itemsize
        ends = sizes.cumsum()
        pieces = map(slice, (ends - sizes).tolist(), ends.tolist())
        return ((list(map(stored.__getitem__, pieces)), 1),)

    def _texts_block(self, values: Sequence[Any] | npt.NDArray[Any]) -> tuple[tuple[FlatValue, Counts], ...] | None:
        counts: Counts = 1
        if self.shape:
            kind = type_of_all(values)
            if len(self.shape) > 1 or (kind is not list and kind is not tuple):
                return None
            counts = np.fromiter(map(len, values), np.int64, len(values))
            if self.shape[0] is not None and (counts != self.shape[0]).any():
                return None
            values = list(chain.from_iterable(values))
        texts = encode_texts(values)
        return None if texts is None else ((texts, counts),)

    def restore(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> Any:
        """An array of the dtype and shape; a NumPy scalar or bytes for shape ``()``."""
        if self.encoding != "none":
            return self._restore_stored(flat, count, path)
        if self.has_stored_shape:
            raise feature_fault(path, f"shape {self.shape} has several unknown dimensions", _MANY_UNKNOWN)
        values = flat[0]
        if count is None and not self.shape:
            if len(values) != 1:
                raise corrupt_fault(path, f"expected 1 value, found {len(values)}")
            return values[0] if isinstance(values, list) else from_flat(values, self.dtype, path)[0]
        if count is None and len(values) == self.parts[0].size and not isinstance(values, list):
            array = from_flat(values, self.dtype, path)  # the usual case, without the checks below
            return array if len(self.shape) == 1 else array.reshape(self.shape)
        known = math.prod(size for size in self.shape if size is not None) * (1 if count is None else count)
        fits = (len(values) == known) if None not in self.shape else (not known or len(values) % known == 0)
        if not fits:
            raise corrupt_fault(path, f"expected values of shape {self.shape}, found {len(values)} values")
        if isinstance(values, list):
            array = np.empty(len(values), TEXT)
            array[:] = values
        else:
            array = from_flat(values, self.dtype, path)
        shape = self.shape if count is None else (count, *self.shape)
        if len(shape) == 1:
            return array
        if None in shape and not known:
            return array.reshape([size or 0 for size in shape])
        return array.reshape([-1 if size is None else size for size in shape])

    def restore_absent(self) -> Any:
        """None, or an array of this shape filled with ``missing``."""
        if self.missing is None or not self.shape:
            return self.missing
        return np.full(self.shape, self.missing, self.dtype)

    def restore_block(self, parts: BlockParts, path: str) -> BlockColumn | None:
        """The column of a block; None if the shapes cannot be derived from the number of values."""
        if len(parts.columns) > 1 or not parts.num_records:
            return None
        if self.encoding != "none":
            return _restore_stored(self, parts) if self.encoding == "bytes" and self.dtype_name != BFLOAT16 else None
        column = parts.columns[0]
        if isinstance(column, wire.BytesColumn):
            if parts.counts is None and not self.shape and has_one_each(column):
                return TextColumn(parts.data, column.starts, column.sizes, parts.copy)
            values = take_texts(parts.data, column.starts, column.sizes)
        else:
            try:
                values = from_flat(column.values, self.dtype, path)
            except CorruptExampleError:
                return None
        return shaped_column(values, column.counts, parts, self.shape)

    @property
    def limits(self) -> str:
        """``minimum`` and ``maximum``; empty without them, and for text."""
        low, high = self.minimum, self.maximum
        if self.dtype_name == STRING or (low is None and high is None):
            return ""
        return f"at most {high}" if low is None else f"at least {low}" if high is None else f"in {low}..{high}"

    def outside(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """A mask for every element: whether it is below ``minimum`` or above ``maximum``."""
        result = np.zeros(values.shape, np.bool_)
        if self.dtype_name == STRING:
            return result
        # A bound above 2**53 may have no float: it is rounded inwards, to the first float that is allowed.
        is_float = values.dtype.kind not in "biu"
        numbers = values.astype(np.float64) if is_float else values
        if self.minimum is not None:
            result |= numbers < (_rounded(self.minimum, math.inf) if is_float else self.minimum)
        if self.maximum is not None:
            result |= numbers > (_rounded(self.maximum, -math.inf) if is_float else self.maximum)
        return result

    @property
    def may_be_absent(self) -> bool:
        """Whether it is optional."""
        return self.optional

    @property
    def may_read_none(self) -> bool:
        """Whether it is optional and ``missing`` is not set."""
        return self.optional and self.missing is None

    @property
    def reads_views(self) -> bool:
        """Whether a value is one text, or stored as the bytes of an array of known shape."""
        if self.dtype_name == STRING:
            return not self.shape
        return self.encoding == "bytes" and None not in self.shape and self.dtype_name != BFLOAT16

    def with_missing(self, value: Any, path: str) -> Tensor:
        """Return a copy of this feature that reads a missing value as ``value``.

        Args:
            value: one number, text or bytes.
            path: the feature's path, for errors.

        Raises:
            FeatureError: the value does not fit the dtype.
        """
        return replace(self, missing=self._one_value(value, path))

    @property
    def lowest_value(self) -> Any:
        """What TFDS reads through TensorFlow for a missing value: the lowest number, ``b""`` or False."""
        return lowest_value(self.dtype, exact=self.encoding != "none")

    def _one_value(self, value: Any, path: str) -> Any:
        array = exact_array(value, self.dtype, path)
        if array.shape:
            raise feature_fault(path, f"expected one number, text or bytes, found {show_value(value)}")
        return array[()]

    def _restore_stored(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> Any:
        blobs, number = flat[-1], 1 if count is None else count
        if len(blobs) != number:
            raise corrupt_fault(path, f"expected {number} stored arrays, found {len(blobs)}")
        if self.has_stored_shape and len(flat[0]) != number * len(self.shape):
            raise corrupt_fault(path, f"expected {number * len(self.shape)} sizes in its shapes, found {len(flat[0])}")
        shapes = np.asarray(flat[0]).reshape(-1, len(self.shape)).tolist() if self.has_stored_shape else None
        arrays = [
            unpack_array(self, blob, None if shapes is None else shapes[index], path)
            for index, blob in enumerate(blobs)
        ]
        if count is None:
            return arrays[0] if self.shape else arrays[0][()]
        return stack_values(arrays, self.shape, self.dtype)

    def _check_limits(self, array: npt.NDArray[Any], path: str) -> None:
        """Refuse one or several values, of the dtype and maybe in one dimension, if a number is outside ``limits``."""
        if self.minimum is None and self.maximum is None:
            return
        outside = self.outside(array)
        if outside.any():
            raise feature_fault(path, f"values must be {self.limits}, found {array[outside].flat[0]}")

    def _check_fit(self, actual: tuple[int, ...], declared: Shape, path: str) -> None:
        if self.has_stored_shape and self.encoding == "none":
            raise feature_fault(path, f"shape {self.shape} has several unknown dimensions", _MANY_UNKNOWN)
        if not fits_shape(actual, declared):
            raise feature_fault(path, f"expected shape {declared}, found {actual}")


@dataclass(frozen=True, repr=False)
class Scalar(Tensor):
    """One number, text or bytes: a Tensor of shape ``()`` with its own class in features.json.

    Follows ``tfds.features.Scalar``. It has the options of a ``Tensor`` except ``shape``.

    >>> Scalar("uint8").flatten(300, "age")
    Traceback (most recent call last):
    ...
    registry.errors.FeatureError: feature 'age': expected dtype uint8, found 300

    Raises:
        FeatureError: the dtype cannot be stored, or a value does not fit.
    """

    dtype: Any = field(kw_only=False)
    shape: Shape = field(default=(), init=False)


@dataclass(frozen=True, kw_only=True, repr=False)
class PlainTensor(Tensor):
    """A tensor without the options of ``Tensor``: the base of features with a meaning, such as a label or a box."""

    encoding: str = field(default="none", init=False)
    minimum: int | None = field(default=None, init=False)
    maximum: int | None = field(default=None, init=False)
    optional: bool = field(default=False, init=False)
    missing: Any = field(default=None, init=False)


def _check_bound(bound: Any) -> int | None:
    if bound is None:
        return None
    is_whole = (
        type(bound) is int
        or isinstance(bound, (int, np.integer))
        or (isinstance(bound, (float, np.floating)) and bound % 1 == 0)
    )
    if not is_whole or not -(2**63) <= bound < 2**63:
        raise feature_fault(
            "",
            f"invalid bound {show_value(bound)}: minimum and maximum must be 64-bit integers",
            "Describe other bounds in value_range=, which is free text.",
        )
    return int(bound)


def _rounded(bound: int, towards: float) -> float:
    """The nearest float64 of ``bound``, or the next one in the direction ``towards`` if that is on the other side."""
    nearest = float(bound)
    is_inside = nearest >= bound if towards > 0 else nearest <= bound
    return nearest if is_inside else math.nextafter(nearest, towards)


def shaped_column(
    values: npt.NDArray[Any], counts: int | npt.NDArray[np.int64], parts: BlockParts, declared: tuple[int | None, ...]
) -> BlockColumn | None:
    """The column of a block: ``counts`` of the ``values`` belong to each record, in the shape ``declared``.

    For a leaf in a Sequence the shape gains a first dimension. None if the counts do not fit the shape.
    """
    shape = declared if parts.counts is None else (None, *declared)
    known = math.prod(size for size in shape if size is not None)
    if isinstance(counts, int):
        if counts != known if None not in shape else not known or counts % known:
            return None
        return ArrayColumn(
            values.reshape(parts.num_records, *(counts // known if size is None else size for size in shape))
        )
    if None not in shape or not known or (counts % known).any():
        return None
    return RaggedColumn(values, counts, shape)


def _restore_stored(tensor: Tensor, parts: BlockParts) -> BlockColumn | None:
    column = parts.columns[0]
    if (
        parts.counts is not None
        or None in tensor.shape
        or not isinstance(column, wire.BytesColumn)
        or not has_one_each(column)
    ):
        return None
    shape = tuple(size for size in tensor.shape if size is not None)
    size = tensor.dtype.itemsize * math.prod(shape)
    if not size or constant(column.sizes) != size:
        return None
    if tensor.dtype == np.bool_ and as_rows(take(parts.data, column.starts, size), np.uint8).max() > 1:
        return None
    result = StoredColumn(parts.data, column.starts, tensor.dtype, shape, parts.copy)
    return result if shape else ArrayColumn(result.array(parts.num_records))


def has_one_each(column: wire.BytesColumn) -> bool:
    """Whether every record holds exactly one item. ``counts`` is an array if records differ."""
    return isinstance(column.counts, int) and column.counts == 1


def pack_array(array: npt.NDArray[Any], encoding: str) -> bytes:
    """The bytes of ``array``, compressed by this package's own encoder, as zlib versions differ in their output."""
    from registry.images.deflate import compress

    data = _stored_form(array.dtype, array).tobytes()
    return compress(data) if encoding == "zlib" else data


def unpack_array(tensor: Tensor, data: bytes | memoryview, stored: list[int] | None, path: str) -> npt.NDArray[Any]:
    """Decode the array in ``data``, as a view if that is a memoryview; ``stored`` is its shape if it is in the record.

    Decompression stops at the size of the shape, or at ``MAX_INFLATED`` bytes if the shape does not determine it, so
    that a small record cannot allocate a lot of memory.

    Raises:
        CorruptExampleError: the bytes, or the decompressed bytes, do not fit the shape.
    """
    dtype = tensor.dtype
    if stored is not None and (
        not fits_shape(tuple(stored), tensor.shape) or min(stored, default=0) < 0 or not is_sane_shape(stored)
    ):
        raise corrupt_fault(path, f"expected shape {tensor.shape}, found {stored}")
    known = math.prod(size for size in tensor.shape if size is not None)
    if tensor.encoding == "zlib":
        sure = math.prod(stored) if stored is not None else known if None not in tensor.shape else None
        most = MAX_INFLATED if sure is None else sure * dtype.itemsize
        data = _inflate(data, most, path)
    num_values, rest = divmod(len(data), dtype.itemsize)
    missing = num_values // known if known else 0
    shape = stored or [missing if size is None else size for size in tensor.shape]
    if rest or math.prod(shape) != num_values:
        raise corrupt_fault(path, f"expected {dtype} of shape {shape}, found {len(data)} bytes")
    if is_bfloat16(dtype):
        halves: npt.NDArray[Any] = np.frombuffer(data, "<u2").astype(np.uint16).view(dtype)
        return halves.reshape(shape)
    array = np.frombuffer(data, dtype.newbyteorder("<")).reshape(shape)
    if dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1:
        raise corrupt_fault(path, "expected bools stored as 0 or 1, found another byte")
    return array.astype(dtype, copy=not isinstance(data, memoryview))


def _stored_form(dtype: np.dtype[Any], array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if is_bfloat16(dtype):
        return np.ascontiguousarray(array).view(np.uint16).astype("<u2", copy=False)
    return array.astype(dtype.newbyteorder("<"), copy=False)


def _inflate(data: bytes | memoryview, most: int, path: str) -> bytes:
    """Decompress the zlib stream ``data``; CorruptExampleError once it exceeds ``most`` bytes."""
    stream = zlib.decompressobj()
    try:
        result = stream.decompress(data, min(most + 1, sys.maxsize))
    except zlib.error as error:
        raise corrupt_fault(path, f"invalid zlib stream: {error}") from error
    if len(result) > most:
        raise corrupt_fault(path, f"expected at most {most} bytes in the zlib stream, found more")
    if not stream.eof or stream.unused_data:
        raise corrupt_fault(path, "the zlib stream is truncated or has trailing bytes")
    return result
