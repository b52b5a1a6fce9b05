"""Statistics of numbers and of the classes of labels, in a state whose size does not depend on their number.

    numbers -> buffer -> up to 10,000 distinct values: each with its count    -> NumberStatistics
                      -> more of them: buckets, exact sums, HyperLogLog       -> NumberStatistics

The second form can be computed from the first without loss, so the result depends on the values alone, regardless of
which part of the records has too many distinct values. A bucket is a run of floats with the same leading bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.features.dtypes import is_bfloat16
from registry.features.feature import LabelNames
from registry.statistics.distinct import ERROR, Registers, equal_places, hash_numbers
from registry.statistics.sums import SCALE, Magnitudes, deviation_of, exact_sums, magnitudes_of, mean_of, weighted_sums
from registry.statistics.values import Classes, Distinct, Frequent, Histogram, Number, NumberStatistics

MOST_DISTINCT: Final = 10_000
"""The maximum number of distinct values that are counted individually. Dtypes of 16 bits have no limit."""

MOST_FREQUENT: Final = 50
MOST_CLASSES: Final = 2**20
"""The maximum number of classes that are counted individually."""

_MOST_COUNTS: Final = 1000
PERCENTAGES: Final = (1, 5, 10, 25, 50, 75, 90, 95, 99)
BUCKET_ERROR: Final = 2**-8
"""The relative error of the middle of a bucket, which is the sign, the exponent and 7 more bits of a float64."""

_BINS: Final = 32
_SHIFT: Final = 45
_BUCKET_BITS: Final = 13
"""Buckets are smaller than for _SHIFT if all values are in 2**13 such buckets, such as the moments of a year."""

_SUBNORMAL: Final = 127
"""The greatest of the leading 16 bits of subnormal float32."""

_NARROW_FIRST: Final = ((1023 - 127) << 7) + 1
"""The leading bits of the float64 that follow those of 2**-127, where the leading 16 bits of float32 begin."""

_BUFFER: Final = 2**18
_PART: Final = 2**16
"""The number of values per step: their arrays stay in the processor's cache and rarely need new pages of memory."""

_SPAN: Final = 2**18
"""Integers in a range of at most this size are counted without sorting."""

_Array = npt.NDArray[Any]
_Counts = npt.NDArray[np.int64]


class Numbers:
    """The state of the statistics of numbers of one ``dtype``. It can be pickled.

    Args:
        dtype: the dtype of the numbers: bool, an integer or a float.
        most_distinct: the maximum number of distinct values that are counted individually.
        buffer: the maximum number of values that are buffered, because counting them together is faster.
    """

    def __init__(self, dtype: Any, *, most_distinct: int = MOST_DISTINCT, buffer: int = _BUFFER) -> None:
        self.dtype = np.dtype(dtype)
        self.is_float = self.dtype.kind == "f" or is_bfloat16(self.dtype)
        self._wide = np.dtype(np.float64 if self.is_float else np.uint64 if self.dtype == np.uint64 else np.int64)
        self._most = 2**16 if self.dtype.itemsize <= 2 else most_distinct
        self._buffer = buffer
        self._waiting: _Array = np.empty(0, self.dtype)
        self._num_waiting = 0
        self.not_finite = [0, 0, 0]
        self._values: _Array = np.empty(0, self._wide)
        self._counts: _Counts = np.empty(0, np.int64)
        self._spread: _Spread | None = None

    def __getstate__(self) -> dict[str, Any]:
        self._count_waiting()
        return {**self.__dict__, "_waiting": self._waiting[:0]}

    def add(self, values: _Array) -> None:
        """Add numbers of the dtype, in an array of any shape, which is copied."""
        values = values.reshape(-1)
        if not self._waiting.size:
            self._waiting = np.empty(self._buffer, self._waiting.dtype)
        while values.size:
            room = self._waiting[self._num_waiting :][: values.size]
            room[:] = values[: room.size]
            values = values[room.size :]
            self._num_waiting += room.size
            if self._num_waiting == self._buffer:
                self._count_waiting()

    def merge(self, later: Numbers) -> None:
        """Add the numbers of another state."""
        self._count_waiting()
        later._count_waiting()
        self.not_finite = [here + there for here, there in zip(self.not_finite, later.not_finite, strict=True)]
        if later._spread is None:
            self._add_pairs(later._values, later._counts)
        else:
            self._as_spread().merge(later._spread)

    def end(self) -> NumberStatistics:
        """The statistics of all numbers."""
        self._count_waiting()
        nan, positive, negative = self.not_finite
        infinite: dict[str, Any] = {"nan": nan, "infinities": positive, "negative_infinities": negative}
        if self._spread is not None:
            return self._spread.describe(infinite)
        values, counts = self._values, self._counts
        if not values.size:
            return NumberStatistics(count=sum(self.not_finite), distinct=Distinct(count=0), **infinite)
        count = int(counts.sum())
        total, squares = weighted_sums(values, counts)
        numbers = (values != 0 if self.dtype == np.bool_ else values).tolist()
        order = np.argsort(-counts, kind="stable")[:MOST_FREQUENT].tolist()
        return NumberStatistics(
            count=count + sum(self.not_finite),
            **infinite,
            zeros=int(counts[values == 0].sum()),
            **_moments(values, count, total, squares),
            quantiles={str(percent): values[place].item() for percent, place in _quantile_places(counts)},
            histogram=_histogram(values, counts, values[0].item(), values[-1].item()),
            distinct=Distinct(count=values.size),
            frequent=tuple(
                Frequent(value=numbers[place], count=int(counts[place])) for place in order if counts[place] > 1
            ),
        )

    def pairs(self) -> tuple[_Array, _Counts] | None:
        """Return the distinct finite values, ascending, and their counts, or None if there are too many."""
        self._count_waiting()
        return None if self._spread is not None else (self._values, self._counts)

    def _count_waiting(self) -> None:
        if not self._num_waiting:
            return
        values, self._num_waiting = self._waiting[: self._num_waiting], 0
        if values.dtype.itemsize <= 2:
            unsigned = np.uint8 if values.dtype.itemsize == 1 else np.uint16
            counts = np.bincount(values.view(unsigned))
            bits = np.flatnonzero(counts)
            values, counts = bits.astype(unsigned).view(values.dtype), counts[bits]
            if self.is_float:
                values = values.astype(np.float32)
                is_finite = self._count_infinite(values, counts)
                values, counts = values[is_finite], counts[is_finite]
            self._add_pairs(values.astype(self._wide) + self._wide.type(0), counts)
            return
        low, high = values.min(), values.max()  # not a number if a value is not
        if self.is_float and not (np.isfinite(low) and np.isfinite(high)):
            values = values[self._count_infinite(values, np.broadcast_to(1, values.shape))]
            if not values.size:
                return
            low, high = values.min(), values.max()
        if self.is_float and low <= 0 <= high:
            values += values.dtype.type(0)  # this turns -0.0 into 0.0
        if self._spread is None:
            pairs = _count_distinct(values, self._most, int(low), int(high))
            if pairs is not None:
                self._add_pairs(pairs[0].astype(self._wide), pairs[1])
                return
        self._as_spread().add(values, bounds=(low.item() + 0, high.item() + 0))

    def _count_infinite(self, values: _Array, counts: _Counts) -> npt.NDArray[np.bool_]:
        for place, is_such in enumerate((np.isnan(values), np.isposinf(values), np.isneginf(values))):
            self.not_finite[place] += int(counts[is_such].sum())
        return np.isfinite(values)

    def _add_pairs(self, values: _Array, counts: _Counts) -> None:
        if not values.size:
            return
        if self._spread is not None:
            self._spread.add(values, counts)
            return
        self._values, self._counts = add_counts(self._values, self._counts, values, counts)
        if self._values.size > self._most:
            self._as_spread()

    def _as_spread(self) -> _Spread:
        if self._spread is None:
            self._spread = _Spread(self._wide)
            if self._values.size:
                self._spread.add(self._values, self._counts)
            self._values, self._counts = self._values[:0], self._counts[:0]
        return self._spread


class _Spread:
    """Numbers with too many distinct values: their buckets, sums and registers."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.count = self.zeros = self.total = self.squares = 0
        self.low: Number | None = None
        self.high: Number | None = None
        self.shift = 0
        self.keys: _Array = np.empty(0, np.int64)
        self.counts: _Counts = np.empty(0, np.int64)
        self.registers = Registers()

    def add(self, values: _Array, counts: _Counts | None = None, bounds: tuple[Number, Number] | None = None) -> None:
        """Add finite numbers, each once, or ascending ones, each ``counts`` times. ``bounds`` are their extremes."""
        low, high = bounds or (values[0].item(), values[-1].item())
        self._widen(low, high)
        if counts is not None:
            self._add_moments(*weighted_sums(values, counts), int(counts.sum()))
        # Keys are the leading bits of absolute values, less those of the least, plus 1; 0 is the key of zero. Keys of
        # negative numbers follow. So the table has no room for numbers between the least ones and zero.
        table: _Array
        narrow = _count_narrow(values) if counts is None and self.shift == _SHIFT else None
        if narrow is not None:
            table, least = narrow
            magnitudes: Magnitudes = (least, max(abs(low), abs(high)))
            first, width, num_zeros = _NARROW_FIRST, 2**15, int(table[0])
        else:
            is_zero = values == 0
            num_zeros = int(np.count_nonzero(is_zero) if counts is None else counts[is_zero].sum())
            magnitudes = magnitudes_of(values, low, high)
            first, last = (np.array(magnitudes, np.float64).view(np.int64) >> self.shift).tolist()
            width = last - first + 2
            table = np.zeros(2 * width)
        self.zeros += num_zeros
        step = max(_PART, table.size)
        for start in range(0, values.size, step):
            part = values[start : start + step].astype(self.dtype, copy=False)
            if counts is None:
                self._add_moments(*exact_sums(part, magnitudes), part.size)
            self.registers.add_numbers(part)
            if narrow is not None:
                continue
            keys = part.astype(np.float64, copy=False).view(np.int64) >> self.shift
            if low < 0:
                keys += keys >> 63 & np.uint64((1 << 63 - self.shift) + width).view(np.int64)  # modulo 2**64
            keys -= first - 1
            if num_zeros:
                np.maximum(keys, 0, out=keys)
            # Weights are added as float64, which is exact below 2**53.
            table += np.bincount(keys, None if counts is None else counts[start : start + step], minlength=table.size)
        # For few numbers in a large table, several times as fast as searching the numbers
        used = np.flatnonzero(table != 0)
        used = np.concatenate([used[used > width][::-1], used[used < width]])  # ascending numbers
        counts = table[used].astype(np.int64)
        used = np.where(used < width, used, width - used)
        used += np.sign(used) * (first - 1) + (used >> 63)
        self.keys, self.counts = add_counts(self.keys, self.counts, used, counts)

    def merge(self, later: _Spread) -> None:
        """Add the numbers of another state."""
        self._add_moments(later.total, later.squares, later.count)
        self.zeros += later.zeros
        self.registers.merge(later.registers)
        if later.low is not None and later.high is not None:
            self._widen(later.low, later.high)
        keys = later.keys >> (self.shift - later.shift)
        self.keys, self.counts = add_counts(self.keys, self.counts, keys, later.counts)

    def describe(self, infinite: Mapping[str, Any]) -> NumberStatistics:
        """Return the statistics. ``infinite`` has the counts of values that are not finite."""
        is_float = self.dtype.kind == "f"
        low, high = self.low or 0, self.high or 0
        bottoms, tops = _from_ordered(self.keys << self.shift), _from_ordered((self.keys + 1) << self.shift)
        middles = _from_ordered((self.keys << self.shift) + (1 << self.shift >> 1))
        quantiles: dict[str, Number] = {}
        for percent, place in _quantile_places(self.counts):
            # The only integer in a small bucket is the end that is nearer to zero.
            middle = middles[place].item() if is_float else int(middles[place])
            quantiles[str(percent)] = min(max(middle, low), high)
        return NumberStatistics(
            count=self.count + sum(infinite.values()),
            **infinite,
            zeros=self.zeros,
            **_moments(np.array([low, high], self.dtype), self.count, self.total, self.squares),
            quantiles=quantiles,
            quantile_error=BUCKET_ERROR,
            histogram=_histogram(bottoms, self.counts, low, high, tops),
            distinct=Distinct(count=max(self.registers.estimate(), MOST_DISTINCT + 1), error=ERROR),
        )

    def _add_moments(self, total: int, squares: int, count: int) -> None:
        self.total, self.squares, self.count = self.total + total, self.squares + squares, self.count + count

    def _widen(self, low: Number, high: Number) -> None:
        """Enlarge the buckets for all values from ``low`` to ``high``. Their size depends only on the extremes."""
        self.low = low if self.low is None else min(low, self.low)
        self.high = high if self.high is None else max(high, self.high)
        first, last = _ordered(np.array([self.low, self.high], self.dtype)).tolist()
        shift = min(_SHIFT, max(0, (last - first).bit_length() - _BUCKET_BITS))
        if shift > self.shift:
            keys = self.keys >> (shift - self.shift)
            self.keys, self.counts = add_counts(keys[:0], self.counts[:0], keys, self.counts)
            self.shift = shift


def describe_classes(label: LabelNames, numbers: Numbers, frequent: Sequence[Frequent]) -> dict[str, Any]:
    """Return the fields of ``FeatureStatistics`` for the classes of a label: their balance, and the names of numbers.

    ``frequent`` are the most frequent of its ``numbers``.
    """
    pairs, size = numbers.pairs(), label.num_classes or 0
    if pairs is None or size > MOST_CLASSES:
        return {"classes": Classes(num_classes=size)}
    values, counts = pairs
    is_class = (values >= 0) & (values < size)
    of_classes = np.zeros(size, np.int64)
    of_classes[values[is_class]] = counts[is_class]
    unused = np.flatnonzero(of_classes == 0)
    classes = Classes(
        num_classes=size,
        num_unlabeled=int(counts[values == -1].sum()),
        num_unused=unused.size,
        unused=tuple(_class_name(label, place) or str(place) for place in unused[:MOST_FREQUENT].tolist()),
        counts=tuple(of_classes.tolist()) if size <= _MOST_COUNTS else None,
    )
    named = tuple(replace(entry, name=_class_name(label, int(entry.value))) for entry in frequent)
    return {"frequent": named, "classes": classes}


def _class_name(label: LabelNames, number: int) -> str | None:
    return str(label.names[number]) if label.names is not None and 0 <= number < len(label.names) else None


def _ordered(values: _Array) -> _Array:
    """Map numbers to integers in the same order: the bits of their float64, the lower 63 inverted if it is negative."""
    bits = values.astype(np.float64, copy=False).view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(2**63 - 1))


def _from_ordered(ordered: _Array) -> npt.NDArray[np.float64]:
    values: npt.NDArray[np.float64] = (ordered ^ ((ordered >> 63) & np.int64(2**63 - 1))).view(np.float64)
    return values


def _count_narrow(values: _Array) -> tuple[_Counts, float] | None:
    """Count many normal float32 by their leading 16 bits, which tell the bucket. Return None for other numbers.

    Also return the beginning of the bucket of the least absolute value other than zero.
    """
    if values.dtype != np.float32 or values.size < _PART:
        return None
    table = np.zeros(2**16, np.int64)
    for start in range(0, values.size, 2 * _PART):
        table += np.bincount(values[start : start + 2 * _PART].view(np.uint32) >> np.uint32(16), minlength=table.size)
    least = (np.flatnonzero(table[1 : 2**15] + table[2**15 + 1 :])[:1] + 1).astype(np.uint32)
    is_small = not least.size or least[0] <= _SUBNORMAL or table[2**15]  # -0.0 does not occur
    if is_small or (table[0] and table[0] != np.count_nonzero(values == 0)):
        return None
    return table, (least << np.uint32(16)).view(np.float32).item()


def _count_distinct(values: _Array, most: int, low: int, high: int) -> tuple[_Array, _Counts] | None:
    """Return the distinct values, ascending, and their counts, or None if there are more than ``most``.

    Integers are from ``low`` to ``high``.
    """
    if values.dtype.kind != "f" and high - low <= min(_SPAN, 4 * values.size):
        table = np.bincount((values - values.dtype.type(low)).astype(np.int64))
        used = np.flatnonzero(table)
        return None if used.size > most else (used.astype(values.dtype) + values.dtype.type(low), table[used])
    wide = values.astype(f"{values.dtype.kind}8", copy=False)
    if values.size > most:
        # If there are many distinct numbers, the hashes of a few are enough to see it; of more if many are the same.
        is_used = np.zeros(2**16, np.bool_)
        for size in (most + most // 4, 4 * most):
            is_used[(hash_numbers(wide[:size]) >> np.uint64(48)).view(np.int64)] = True
            num_used = np.count_nonzero(is_used)
            if num_used > most:
                return None
            if num_used < most // 4:
                break
    counts = np.bincount(equal_places(hash_numbers(wide)))
    used = np.flatnonzero(counts)
    if used.size > most:
        return None
    used = used[np.argsort(values[used])]
    return values[used], counts[used]


def add_counts(values: _Array, counts: _Counts, more: _Array, more_counts: _Counts) -> tuple[_Array, _Counts]:
    """Merge two ascending runs of distinct values, and add their counts."""
    joined, joined_counts = np.concatenate([values, more]), np.concatenate([counts, more_counts])
    order = np.argsort(joined, kind="stable")  # linear in two ascending runs
    joined, joined_counts = joined[order], joined_counts[order]
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, joined.size), np.bool_), joined[1:] != joined[:-1]]))
    return joined[starts], np.add.reduceat(joined_counts, starts) if starts.size else joined_counts


def _moments(values: _Array, count: int, total: int, squares: int) -> dict[str, Any]:
    scale = SCALE if values.dtype.kind == "f" else 0
    return {
        "min": values[0].item(),
        "max": values[-1].item(),
        "mean": mean_of(total, count, scale),
        "std": deviation_of(total, squares, count, scale),
    }


def _quantile_places(counts: _Counts) -> list[tuple[int, int]]:
    """Return the index of the first value that, for each percentage, this share of all values does not exceed."""
    ends = counts.cumsum()
    ranks = [-(-percent * int(ends[-1]) // 100) for percent in PERCENTAGES]
    return list(zip(PERCENTAGES, np.searchsorted(ends, ranks).tolist(), strict=True))


def _histogram(values: _Array, counts: _Counts, low: Number, high: Number, tops: _Array | None = None) -> Histogram:
    """Return the histogram of ascending values, or of buckets that begin at ``values`` and end before ``tops``.

    Bins are equally wide, except that an edge within a bucket is moved to its end, so that the counts are exact.
    """
    if isinstance(low, int) and isinstance(high, int):
        high, width = high + 1, high + 1 - low
        inner: list[Number] = [low + width * place // _BINS for place in range(1, _BINS)]
    else:
        # Fractions of integers are rounded once, like Fraction, which takes ten times as long.
        (first, scale), (last, last_scale) = float(low).as_integer_ratio(), float(high).as_integer_ratio()
        unit = max(scale, last_scale)
        first *= unit // scale
        step = last * (unit // last_scale) - first
        inner = [(first * _BINS + step * place) / (unit * _BINS) for place in range(1, _BINS)]
    places = np.searchsorted(values, np.array(inner, values.dtype))
    ends = np.concatenate([np.zeros(1, np.int64), counts.cumsum()])
    before = {low: 0}
    for edge, place in zip(inner, places.tolist(), strict=True):
        if place and tops is not None and tops[place - 1] > edge:
            edge = math.ceil(tops[place - 1]) if isinstance(high, int) else float(tops[place - 1])  # noqa: PLW2901
        if low < edge < high:
            before[edge] = int(ends[place])
    edges = (*before, high)
    return Histogram(edges=edges, counts=tuple(np.diff([*before.values(), int(ends[-1])]).tolist()))
