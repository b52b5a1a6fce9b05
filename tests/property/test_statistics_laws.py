"""Statistics equal brute force over the decoded examples, and do not depend on how the records are divided."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.feature_strategies import schemas, values

from registry.features import Audio, ClassLabel, FeaturesDict, Image, NestedExamples, Ragged, codec_of
from registry.features.codec import FlatRecords
from registry.features.containers import Column, columns_of, content_path
from registry.statistics import (
    NumberStatistics,
    SplitStatistics,
    StatisticsFold,
    parse_statistics,
    statistics_documents,
    statistics_of,
)
from registry.statistics.numbers import BUCKET_ERROR, MOST_DISTINCT, PERCENTAGES, Numbers
from registry.statistics.sums import SCALE, exact_sums
from registry.tfrecord import frame_records


@st.composite
def schemas_and_records(draw: st.DrawFn) -> tuple[FeaturesDict, list[dict[str, Any]], list[int]]:
    features = draw(schemas())
    examples = [values(draw, features) for _ in range(draw(st.integers(0, 5)))]
    cuts = draw(st.lists(st.integers(0, len(examples)), max_size=3).map(sorted))
    return features, examples, cuts


@given(case=schemas_and_records(), is_sent=st.booleans())
@settings(deadline=None)
def test_statistics_equal_brute_force_for_any_division_of_the_records(
    case: tuple[FeaturesDict, list[dict[str, Any]], list[int]], is_sent: bool
) -> None:
    features, examples, cuts = case
    codec = codec_of(features)
    records = [codec.encode(example) for example in examples]
    whole = fold_parts(features, records, [], is_sent=is_sent)
    divided = fold_parts(features, records, cuts, is_sent=is_sent)
    documents = statistics_documents({"train": whole})
    assert documents == statistics_documents({"train": divided})
    assert parse_statistics(documents["statistics.json"])["train"] == whole
    decoded = [codec_of(features.missing_as_none()).decode(record) for record in records]
    assert whole.num_examples == len(records)
    assert list(whole) == [content_path(names) for names in sorted(column.names for column in columns_of(features))]
    for column in columns_of(features):
        check_leaf(column, whole, [pick(example, column.names) for example in decoded])


def fold_parts(features: FeaturesDict, records: list[bytes], cuts: list[int], *, is_sent: bool) -> SplitStatistics:
    """Fold the parts of the records between ``cuts``, each from its own state, and merge them."""
    fold = StatisticsFold(features)
    result = fold.start()
    for start, stop in zip([0, *cuts], [*cuts, len(records)], strict=True):
        state = fold.start()
        for place in range(start, stop, 2):
            fold.add(state, flat_block(features, records[place : min(place + 2, stop)]))
        fold.merge(result, pickle.loads(pickle.dumps(state)) if is_sent else state)  # noqa: S301 (our own)
    return statistics_of({"train": fold.end(result)})["train"]


def flat_block(features: FeaturesDict, records: list[bytes]) -> FlatRecords:
    return codec_of(features).flat_records(*frame_records(records).payloads())


def pick(example: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        example = (example.columns() if isinstance(example, NestedExamples) else example)[name]
    return example.columns() if isinstance(example, NestedExamples) else example


def scalars(value: Any, least: int = 0) -> Iterator[Any]:
    """The values in ``value``: numbers and bytes, or arrays of ``least`` dimensions."""
    if isinstance(value, Ragged):
        yield from scalars(value.flat_values, least)
    elif isinstance(value, np.ndarray) and (value.ndim > least or value.dtype == object):
        for inner in value:
            yield from scalars(inner, least)
    elif value is not None:
        yield value


def check_leaf(column: Column, statistics: SplitStatistics, decoded: list[Any]) -> None:
    result, leaf = statistics[content_path(column.names)], column.leaf
    assert result.nulls == sum(value is None for value in decoded)
    if isinstance(leaf, Image):
        images = [image for value in decoded for image in scalars(value, 3)]
        assert result.kind == "image"
        assert result.heights is not None
        assert result.widths is not None
        check_numbers(result.heights, [image.shape[0] for image in images])
        check_numbers(result.widths, [image.shape[1] for image in images])
        assert sum((result.modes or {}).values()) == len(images)
        assert set(result.formats or {}) <= {"png"}
        return
    if isinstance(leaf, Audio) and leaf.lazy_decode:
        assert result.kind == "audio"
        assert result.sample_rates.count == result.count
        return
    flat = [scalar for value in decoded for scalar in scalars(value)]
    assert result.count == len(flat)
    if leaf.dtype == object:
        assert result.kind == "text"
        assert result.distinct.count == len(set(flat))
        assert sum(entry.count for entry in result.frequent) == sum(n for n in Counter(flat).values() if n > 1)
        assert result.text_lengths is not None
        check_numbers(result.text_lengths, [len([b for b in text if b & 0xC0 != 0x80]) for text in flat])
        return
    assert result.kind == ("label" if isinstance(leaf, ClassLabel) else "number")
    check_numbers(result, [scalar.item() if hasattr(scalar, "item") else scalar for scalar in flat])
    if column.lengths and column.lengths[0] is None:
        lengths = [len(value) for value in decoded]
        check_numbers(result.lengths[0], lengths)
    elif leaf.shape and leaf.shape[0] is None and not column.lengths:
        check_numbers(result.lengths[0], [len(value) for value in decoded if value is not None])


def check_numbers(result: NumberStatistics, numbers: list[Any]) -> None:
    """Compare with what the definitions say, in Python's own integers and fractions."""
    finite = sorted(number for number in map(float_or_int, numbers) if math.isfinite(number))
    assert result.count == len(numbers)
    assert result.nan == sum(map(math.isnan, numbers))
    assert result.infinities == sum(number == math.inf for number in numbers)
    assert result.negative_infinities == sum(number == -math.inf for number in numbers)
    assert result.zeros == finite.count(0)
    assert result.distinct.count == len(set(finite))
    if not finite:
        assert result.min is result.max is result.mean is result.std is result.histogram is None
        return
    assert (result.min, result.max) == (finite[0], finite[-1])
    exact = list(map(Fraction, finite))
    mean = sum(exact) / len(exact)
    assert result.mean == float(mean)
    assert result.std == pytest.approx(root(sum((value - mean) ** 2 for value in exact) / len(exact)), rel=1e-15, abs=0)
    quantiles = {str(p): finite[math.ceil(Fraction(p * len(finite), 100)) - 1] for p in PERCENTAGES}
    assert result.quantiles == quantiles
    assert result.histogram is not None
    check_histogram(result, finite)
    often = sorted(((n, value) for value, n in Counter(finite).items() if n > 1), key=lambda pair: (-pair[0], pair[1]))
    assert [(entry.count, entry.value) for entry in result.frequent] == often[:50]


def check_histogram(result: NumberStatistics, finite: list[Any]) -> None:
    edges, counts = result.histogram.edges, result.histogram.counts
    assert len(counts) == len(edges) - 1 <= 32
    assert edges[0] == finite[0]
    assert list(edges) == sorted(set(edges)) or edges[0] == edges[1]
    places = np.searchsorted(np.array(edges[1:-1], object), np.array(finite, object), side="right")
    assert list(counts) == np.bincount(places.astype(np.int64), minlength=len(counts)).tolist()


def float_or_int(number: Any) -> Any:
    return number if isinstance(number, int | float) else float(number)


def root(square: Fraction) -> float:
    return math.isqrt(square.numerator * square.denominator << 400) / (square.denominator << 200)


@given(
    data=st.data(),
    dtype=st.sampled_from(["float16", "float32", "float64", "int8", "uint16", "int32", "int64", "uint64", "bool"]),
)
@settings(deadline=None)
def test_hostile_numbers_have_exact_statistics(data: st.DataObject, dtype: str) -> None:
    numbers = data.draw(hnp.arrays(dtype, st.integers(0, 30)))
    if numbers.dtype.kind == "f":
        numbers = np.concatenate([numbers, data.draw(hnp.arrays(dtype, 3, elements=hostile_floats(numbers.dtype)))])
    result = Numbers(numbers.dtype, buffer=data.draw(st.integers(1, 40)))
    for part in np.array_split(numbers, data.draw(st.integers(1, 4))):
        result.add(part)
    with np.errstate(all="ignore"):
        check_numbers(result.end(), numbers.tolist())


def hostile_floats(dtype: np.dtype[Any]) -> st.SearchStrategy[float]:
    limits = np.finfo(dtype)
    largest, smallest = float(limits.max), float(limits.smallest_subnormal)
    return st.sampled_from([-0.0, 0.0, math.nan, math.inf, -math.inf, largest, -largest, smallest, -smallest])


SPREADS = ["normal", "narrow", "wide", "int32", "int64", "uint64", "signed", "float32", "moments"]


@pytest.mark.parametrize("name", SPREADS)
@pytest.mark.parametrize("seed", [0])
def test_many_distinct_numbers_have_the_stated_errors_for_any_division(name: str, seed: int) -> None:
    numbers = spread_numbers(name, np.random.default_rng(seed))
    chance = np.random.default_rng(seed + 1)
    results = []
    for buffer, num_parts in [(2**20, 1), (2**13, 1), (2**10, 7), (2**15, 3)]:
        parts = []
        for part in np.array_split(chance.permutation(numbers) if num_parts > 1 else numbers, num_parts):
            state = Numbers(numbers.dtype, buffer=buffer)
            for some in np.array_split(part, 9):
                state.add(some)
            parts.append(pickle.loads(pickle.dumps(state)))  # noqa: S301 (our own)
        for later in parts[1:]:
            parts[0].merge(later)
        results.append(parts[0].end())
    result = results[0]
    assert all(other == result for other in results)
    finite = np.sort(numbers).tolist()
    exact = list(map(Fraction, finite))
    mean = sum(exact) / len(exact)
    assert (result.min, result.max, result.count) == (finite[0], finite[-1], len(finite))
    assert result.mean == float(mean)
    assert result.std == pytest.approx(root(sum((value - mean) ** 2 for value in exact) / len(exact)), rel=1e-15)
    assert result.quantile_error == BUCKET_ERROR
    for percent, value in result.quantiles.items():
        expected = finite[math.ceil(Fraction(int(percent) * len(finite), 100)) - 1]
        assert abs(value - expected) <= BUCKET_ERROR * abs(expected) * 1.0000001
    check_histogram(result, finite)
    assert abs(result.distinct.count / len(set(finite)) - 1) < 4 * result.distinct.error
    assert not result.frequent


def spread_numbers(name: str, chance: np.random.Generator) -> Any:
    size = 12_000 if name == "wide" else 30_000
    match name:
        case "normal":
            return chance.normal(size=size)
        case "float32":
            return chance.normal(size=size).astype(np.float32)
        case "narrow":
            return 1e9 + chance.normal(size=size)
        case "wide":
            return chance.normal(size=size) * 10.0 ** chance.integers(-300, 300, size)
        case "int32":
            return chance.integers(0, 10**6, size).astype(np.int32)
        case "int64":
            return chance.integers(-(2**52), 2**52, size)
        case "uint64":
            return chance.integers(0, 2**53, size, dtype=np.uint64)
        case "signed":
            return np.concatenate([np.arange(-15_000, 15_000), np.zeros(5000, np.int64)])
    return chance.integers(1_700_000_000, 1_700_086_400, size)  # the seconds of one day


FLOAT_EXTREMES: dict[str, list[float]] = {
    "normal": [],
    "zeros": [0.0, -0.0],
    "subnormal": [1e-38],
    "least": [1e-45, 0.0],
    "negative least": [-1e-45],
    "both least": [-1e-45, 1e-45, 0.0],
    "greatest": [3.4e38, -3.4e38],
    "infinite": [math.inf, math.nan],
}


@pytest.mark.parametrize("sign", ["both", "positive", "negative"])
@pytest.mark.parametrize("extremes", FLOAT_EXTREMES)
def test_blocks_of_many_floats_of_32_bits_are_counted_like_small_blocks(extremes: str, sign: str) -> None:
    numbers = np.random.default_rng(0).normal(size=70_000).astype(np.float32)
    if sign != "both":
        numbers = np.abs(numbers) * np.float32(1 if sign == "positive" else -1)
    numbers = np.concatenate([numbers, np.array(FLOAT_EXTREMES[extremes] * 3, np.float32)])
    results = []
    for buffer in (2**18, 2**12):
        state = Numbers(np.float32, buffer=buffer)
        state.add(numbers)
        results.append(state.end())
    assert results[0] == results[1]
    finite = numbers[np.isfinite(numbers)].tolist()
    assert results[0].zeros == finite.count(0)
    total = sum(int(number * 2.0**149) for number in finite)
    squares = sum(int(number * 2.0**149) ** 2 for number in finite)
    assert sum(results[0].histogram.counts) == len(finite)
    assert results[0].mean == float(Fraction(total, len(finite) << 149))
    deviation = math.isqrt(len(finite) * squares - total**2 << 60) / (len(finite) << 179)
    assert results[0].std == pytest.approx(deviation, rel=1e-15)


def test_the_seconds_of_a_day_have_quantiles_within_minutes() -> None:
    numbers = spread_numbers("moments", np.random.default_rng(0))
    state = Numbers(np.int64)
    state.add(numbers)
    median = (state.end().quantiles or {})["50"]
    assert abs(median - int(np.median(numbers))) < 60


@pytest.mark.parametrize("exponents", [(0, 0), (-20, 20), (-350, 350), (-1074, 970)])
@pytest.mark.parametrize("is_full", [True, False])
def test_sums_of_many_floats_are_exact(exponents: tuple[int, int], *, is_full: bool) -> None:
    chance = np.random.default_rng(0)
    size = 2**16 + 9  # the sum of a whole chunk of the greatest fractions nearly fills its integers
    fractions = np.full(size, np.nextafter(1.0, 0.0)) if is_full else chance.normal(size=size)
    numbers = np.ldexp(fractions, chance.integers(*exponents, size, endpoint=True))
    units = [int(number * 2**53) << exponent + SCALE - 53 for number, exponent in map(math.frexp, numbers.tolist())]
    assert exact_sums(numbers) == (sum(units), sum(unit * unit for unit in units))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint64"])
def test_a_block_of_zeros_after_many_distinct_numbers_is_counted(dtype: str) -> None:
    numbers = np.arange(20_000).astype(dtype)
    zeros = np.zeros(500, dtype)
    if zeros.dtype.kind == "f":
        zeros[::2] = -0.0
    apart = Numbers(dtype, buffer=20_000)
    apart.add(numbers)
    apart.add(zeros)
    together = Numbers(dtype)
    together.add(np.concatenate([zeros, numbers]))
    result = apart.end()
    assert result == together.end()
    assert (result.count, result.zeros, result.min) == (20_500, 501, 0)


@pytest.mark.parametrize("sign", [1, -1])
def test_many_large_integers_that_few_floats_tell_apart_have_statistics(sign: int) -> None:
    numbers = sign * (2**62 + np.arange(20_000))
    state = Numbers(np.int64)
    state.add(numbers)
    result = state.end()
    assert (result.min, result.max) == (int(numbers.min()), int(numbers.max()))
    assert result.mean == float(Fraction(sum(numbers.tolist()), 20_000))
    assert sum(result.histogram.counts) == 20_000


@pytest.mark.parametrize("excess", [0, 1])
def test_the_limit_of_exact_counts_does_not_depend_on_the_division(excess: int) -> None:
    numbers = np.arange(MOST_DISTINCT + excess) * 2**40
    results = []
    for num_parts in (1, 2, 5):
        merged = Numbers(np.int64, buffer=100)
        for part in np.array_split(np.concatenate([numbers, numbers[:7]]), num_parts):
            state = Numbers(np.int64, buffer=1000)
            state.add(part)
            merged.merge(state)
        results.append(merged.end())
    assert results[0] == results[1] == results[2]
    assert results[0].distinct is not None
    assert (results[0].distinct.error == 0) == (excess == 0)
    assert len(results[0].frequent) == (0 if excess else 7)
