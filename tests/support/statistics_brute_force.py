"""The statistics of examples by brute force: what docs/statistics.md says, in numpy and Python's exact numbers.

    schema, examples of each split -> the leaves' values -> the tree of statistics.json

Nothing of ``registry.statistics``, of encoders or of decoders is used. Where the document may choose (the edges of
histograms) or estimates (beyond 10,000 distinct values), ``require_equal`` checks its numbers instead of comparing.
"""

from __future__ import annotations

import codecs
import io
import json
import math
import wave
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
from PIL import Image as Pillow

from registry.features import Audio, ClassLabel, Feature, FeaturesDict, Image, Leaf
from registry.features import Sequence as SequenceFeature

PERCENTAGES: Final = (1, 5, 10, 25, 50, 75, 90, 95, 99)
MOST_DISTINCT: Final = 10_000
MOST_TEXT_BYTES: Final = 2**26
MOST_BYTES_OF_TEXT: Final = 2**24
QUANTILE_ERROR: Final = 2**-8
DISTINCT_ERROR: Final = 0.01625


class NumberTree(dict[str, Any]):
    """The expected tree of numbers.

    Attributes:
        finite: the finite values, ascending, as Python numbers.
        is_exact: whether the distinct values are counted one by one.
    """

    finite: list[Any]
    is_exact: bool


def describe(features: FeaturesDict, splits: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """The expected tree of the document."""
    records = {name: Counter(_stored(features, row) for row in rows) for name, rows in splits.items()}
    trees = {
        name: {**_describe_split(features, rows), "duplicates": _describe_duplicates(name, records)}
        for name, rows in splits.items()
    }
    return {"format": 1, "splits": trees}


def _describe_duplicates(name: str, records: Mapping[str, Counter[Any]]) -> dict[str, Any]:
    counts = records[name]
    tree = {"num_repeated": counts.total() - len(counts), "num_groups": sum(times > 1 for times in counts.values())}
    shared = {
        other: sum(times for record, times in counts.items() if record in others)
        for other, others in records.items()
        if other != name
    }
    shared = {other: times for other, times in shared.items() if times}
    return {field: number for field, number in tree.items() if number} | ({"shared": shared} if shared else {})


def _stored(feature: Feature, value: Any) -> Any:
    """What is stored for a value: equal only for the same bits of numbers, texts and files."""
    if isinstance(feature, FeaturesDict):
        return tuple(_stored(feature[name], value[name]) for name in feature)
    if isinstance(feature, SequenceFeature):
        return tuple(_stored(feature.feature, element) for element in value)
    assert isinstance(feature, Leaf)
    if value is None or _is_file(feature):
        return value
    if _is_text(feature):
        return tuple(map(_as_bytes, value)) if feature.shape else _as_bytes(value)
    array = np.asarray(value, feature.dtype)
    return array.shape, array.tobytes()


def _describe_split(features: FeaturesDict, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    leaves = sorted(_leaves(features, (), list(rows), []), key=lambda leaf: leaf[0])
    num_texts = sum(_is_text(leaf) for _, leaf, *_ in leaves)
    most_bytes = min(MOST_BYTES_OF_TEXT, MOST_TEXT_BYTES // max(1, num_texts))
    trees = {
        "/".join(name.replace("\\", r"\\").replace("/", r"\/") for name in names): _describe_leaf(
            leaf, values, lengths, most_bytes
        )
        for names, leaf, values, lengths in leaves
    }
    return {"num_examples": len(rows), "features": trees}


def _leaves(
    feature: Feature, names: tuple[str, ...], values: list[Any], lengths: list[list[int]]
) -> Iterator[tuple[tuple[str, ...], Leaf, list[Any], list[list[int]]]]:
    """Each leaf with its values in all examples, and the lengths of each unknown level of Sequences around it."""
    if isinstance(feature, FeaturesDict):
        for name in feature:
            yield from _leaves(feature[name], (*names, name), [value[name] for value in values], lengths)
    elif isinstance(feature, SequenceFeature):
        level = [] if feature.length is not None else [[len(value) for value in values]]
        yield from _leaves(feature.feature, names, list(chain.from_iterable(values)), lengths + level)
    else:
        assert isinstance(feature, Leaf)
        yield names, feature, values, lengths


def _is_file(leaf: Leaf) -> bool:
    return isinstance(leaf, Image) or (isinstance(leaf, Audio) and leaf.lazy_decode)


def _is_text(leaf: Leaf) -> bool:
    return leaf.dtype == np.dtype(object) and not _is_file(leaf)


def _describe_leaf(leaf: Leaf, values: list[Any], lengths: list[list[int]], most_bytes: int) -> dict[str, Any]:
    present = [value for value in values if value is not None]
    common: dict[str, Any] = {"dtype": "string" if leaf.dtype == np.dtype(object) else np.dtype(leaf.dtype).name}
    if len(present) < len(values):
        common["nulls"] = len(values) - len(present)
    sizes = [] if _is_file(leaf) else [place for place, size in enumerate(leaf.shape) if size is None]
    lengths = lengths + [[_shape(value)[place] for value in present] for place in sizes]
    if lengths:
        common["lengths"] = [describe_numbers(level, np.int64) for level in lengths]
    if isinstance(leaf, Image):
        return {**common, "kind": "image", **_describe_images(present)}
    if isinstance(leaf, Audio) and leaf.lazy_decode:
        return {**common, "kind": "audio", **_describe_sounds(present)}
    if _is_text(leaf):
        flat = list(chain.from_iterable(present)) if leaf.shape else present
        return {**common, "kind": "text", **_describe_texts(list(map(_as_bytes, flat)), most_bytes)}
    arrays = [np.asarray(value, leaf.dtype).reshape(-1) for value in present]
    numbers = np.concatenate([np.empty(0, leaf.dtype), *arrays])
    if isinstance(leaf, ClassLabel):
        return _merge({**common, "kind": "label"}, _describe_classes(leaf, numbers))
    tree: dict[str, Any] = {**common, "kind": "number"}
    if isinstance(leaf, Audio) and leaf.sample_rate:
        tree["seconds"] = _divide(common["lengths"][-1], leaf.sample_rate)
    return _merge(tree, describe_numbers(numbers, leaf.dtype))


def _shape(value: Any) -> tuple[int, ...]:
    return (len(value),) if isinstance(value, list) else np.shape(value)


def _as_bytes(text: Any) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)


def _merge(tree: dict[str, Any], numbers: NumberTree) -> NumberTree:
    result = NumberTree({**tree, **numbers})
    result.finite, result.is_exact = numbers.finite, numbers.is_exact
    return result


def describe_numbers(values: Any, dtype: Any, *, most_distinct: int = MOST_DISTINCT) -> NumberTree:
    """The expected tree of numbers of ``dtype``."""
    dtype = np.dtype(dtype)
    array = np.asarray(values, dtype)
    if dtype.kind not in "biu":
        array = array.astype(np.float64)
    with np.errstate(invalid="ignore"):
        counts = {
            "nan": int(np.isnan(array).sum()) if array.dtype.kind == "f" else 0,
            "infinities": int((array == np.inf).sum()),
            "negative_infinities": int((array == -np.inf).sum()),
        }
    finite = np.sort(array[np.isfinite(array)])
    finite += finite.dtype.type(0)  # -0.0 is 0.0
    result = NumberTree(count=int(array.size), **{name: count for name, count in counts.items() if count})
    distinct, occurrences = np.unique(finite, return_counts=True)
    result.finite = (finite.astype(np.int64) if dtype == np.bool_ else finite).tolist()
    result.is_exact = dtype.itemsize <= 2 or distinct.size <= most_distinct
    result["distinct"] = {"count": int(distinct.size)}
    if not finite.size:
        return result
    if zeros := int((finite == 0).sum()):
        result["zeros"] = zeros
    pairs = list(zip(distinct.tolist(), occurrences.tolist(), strict=True))
    count = int(finite.size)
    mean = sum(Fraction(value) * times for value, times in pairs) / count
    variance = sum((Fraction(value) - mean) ** 2 * times for value, times in pairs) / count
    low, high = (int(pairs[0][0]), int(pairs[-1][0])) if dtype.kind == "b" else (pairs[0][0], pairs[-1][0])
    result |= {"min": low, "max": high, "mean": float(mean), "std": root_of(variance)}
    if result.is_exact:
        ranks = {str(percent): -(-percent * count // 100) - 1 for percent in PERCENTAGES}
        result["quantiles"] = {percent: result.finite[rank] for percent, rank in ranks.items()}
        often = sorted((pair for pair in pairs if pair[1] > 1), key=lambda pair: (-pair[1], pair[0]))[:50]
        if often:
            result["frequent"] = [{"value": value, "count": times} for value, times in often]
    else:
        result["quantile_error"] = QUANTILE_ERROR
    return result


def root_of(square: Fraction) -> float:
    """The square root, rounded once."""
    return math.isqrt((square.numerator << 6000) // square.denominator) / (1 << 3000)


def _describe_texts(texts: list[bytes], most_bytes: int) -> dict[str, Any]:
    lengths = [sum(byte & 0xC0 != 0x80 for byte in text) for text in texts]
    counts = Counter(texts)
    tree: dict[str, Any] = {"count": len(texts), "text_lengths": describe_numbers(lengths, np.int64)}
    if len(counts) > MOST_DISTINCT or sum(map(len, counts)) + 100 * len(counts) > most_bytes:
        return {**tree, "distinct": {"count": len(counts), "error": DISTINCT_ERROR}}
    tree["distinct"] = {"count": len(counts)}
    often = sorted((-times, text) for text, times in counts.items() if times > 1)[:50]
    if often:
        tree["frequent"] = [_frequent(text, -times) for times, text in often]
    return tree


def _frequent(text: bytes, count: int) -> dict[str, Any]:
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    if len(text) <= 80:
        return {"value": decoder.decode(text, final=True), "count": count}
    return {"value": decoder.decode(text[:80]), "count": count, "num_bytes": len(text)}


def _describe_classes(label: ClassLabel, numbers: Any) -> NumberTree:
    tree = describe_numbers(numbers, np.int64)
    size = label.num_classes or 0
    names = list(label.names) if label.names is not None else None
    of_classes = np.bincount(numbers[numbers >= 0], minlength=size).tolist()
    unused = [place for place, count in enumerate(of_classes) if not count]
    classes: dict[str, Any] = {"num_classes": size, "num_unused": len(unused), "counts": of_classes}
    if unlabeled := int((numbers == -1).sum()):
        classes["num_unlabeled"] = unlabeled
    if unused:
        classes["unused"] = [names[place] if names else str(place) for place in unused[:50]]
    for entry in tree.get("frequent", ()):
        if names and entry["value"] >= 0:
            entry["name"] = names[entry["value"]]
    return _merge({"classes": classes}, tree)


def _describe_images(files: list[bytes]) -> dict[str, Any]:
    headers = Counter(files)
    heights, widths, modes, formats = [], [], Counter[str](), Counter[str]()
    for file, times in headers.items():
        with Pillow.open(io.BytesIO(file)) as picture:
            mode, kind = picture.mode, (picture.format or "").lower()
            bits = file[24] if kind == "png" else 8
            modes[mode.partition(";")[0].replace("I", "L") + (f";{bits}" if bits != 8 else "")] += times
            formats[kind] += times
            widths += [picture.size[0]] * times
            heights += [picture.size[1]] * times
    return {
        "count": len(files),
        **_sizes(files),
        "heights": describe_numbers(heights, np.int64),
        "widths": describe_numbers(widths, np.int64),
        "modes": dict(modes),
        "formats": dict(formats),
    }


def _sizes(files: list[bytes]) -> dict[str, Any]:
    return {"file_sizes": describe_numbers(list(map(len, files)), np.int64)}


def _describe_sounds(files: list[bytes]) -> dict[str, Any]:
    seconds, rates, channels = [], [], []
    for file, times in Counter(files).items():
        with wave.open(io.BytesIO(file)) as sound:
            seconds += [sound.getnframes() / sound.getframerate()] * times
            rates += [sound.getframerate()] * times
            channels += [sound.getnchannels()] * times
    return {
        "count": len(files),
        **_sizes(files),
        "formats": {"wav": len(files)} if files else {},
        "seconds": describe_numbers(seconds, np.float64),
        "sample_rates": describe_numbers(rates, np.int64),
        "channels": describe_numbers(channels, np.int64),
    }


def _divide(numbers: NumberTree, divisor: int) -> NumberTree:
    """The numbers divided by ``divisor``."""
    if not numbers.finite:
        return _merge({}, numbers)
    tree = {**numbers, **{name: numbers[name] / divisor for name in ("min", "max", "mean", "std")}}
    tree.pop("frequent", None)
    tree["quantiles"] = {percent: value / divisor for percent, value in numbers["quantiles"].items()}
    result = NumberTree(tree)
    result.finite, result.is_exact = [value / divisor for value in numbers.finite], True
    return result


def require_equal(actual: Any, expected: Any, path: str = "") -> None:
    """Require that a document says what brute force says; AssertionError names the first difference."""
    if not isinstance(expected, dict):
        assert json.dumps(actual) == json.dumps(expected), f"{path}: expected {expected}, found {actual}"
        return
    if isinstance(expected, NumberTree) and expected.finite:
        expected = _settle(actual, expected, path)
    if isinstance(expected.get("distinct"), dict) and "error" in expected["distinct"]:
        expected = {**expected, "distinct": _settle_distinct(actual["distinct"], expected["distinct"]["count"], path)}
    assert actual.keys() == expected.keys(), f"{path}: expected {sorted(expected)}, found {sorted(actual)}"
    for name, inner in expected.items():
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            assert len(actual[name]) == len(inner), f"{path}/{name}: expected {inner}, found {actual[name]}"
            for place, (left, right) in enumerate(zip(actual[name], inner, strict=True)):
                require_equal(left, right, f"{path}/{name}[{place}]")
        else:
            require_equal(actual[name], inner, f"{path}/{name}")


def _settle(actual: Any, expected: NumberTree, path: str) -> dict[str, Any]:
    """``expected`` with the fields of ``actual`` that brute force can only check."""
    check_histogram(actual["histogram"], expected, path)
    result = {**expected, "histogram": actual["histogram"]}
    if not expected.is_exact:
        result["distinct"] = _settle_distinct(actual["distinct"], expected["distinct"]["count"], path)
        check_quantiles(actual["quantiles"], expected.finite, path)
        result["quantiles"] = actual["quantiles"]
    return result


def _settle_distinct(actual: Any, count: int, path: str) -> dict[str, Any]:
    assert actual["count"] > MOST_DISTINCT, path
    assert abs(actual["count"] / count - 1) < 4 * DISTINCT_ERROR, f"{path}: expected about {count}, found {actual}"
    return {"count": actual["count"], "error": DISTINCT_ERROR}


def check_quantiles(quantiles: Mapping[str, Any], finite: Sequence[Any], path: str) -> None:
    """Check estimated quantiles: the relative error is at most 2**-8."""
    assert list(quantiles) == [str(percent) for percent in PERCENTAGES], path
    for percent, value in quantiles.items():
        exact = finite[-(-int(percent) * len(finite) // 100) - 1]
        assert abs(value - exact) <= QUANTILE_ERROR * abs(exact) * 1.0000001, f"{path}: expected {exact}, found {value}"


def check_histogram(histogram: Mapping[str, Any], numbers: NumberTree, path: str) -> None:
    """Check the edges of a histogram, and that its counts are those of the values between them."""
    edges, counts, finite = histogram["edges"], histogram["counts"], numbers.finite
    if not numbers.is_exact:  # integers beyond 2**53 are compared as float64
        finite = np.array(finite).astype(np.float64).tolist()
    assert len(counts) == len(edges) - 1 <= 32, path
    assert edges[0] == numbers.finite[0], f"{path}: expected {numbers.finite[0]} as the first edge, found {edges[0]}"
    assert edges[-1] >= numbers.finite[-1], path
    assert all(left < right for left, right in pairwise(edges[:-1])), f"{path}: {edges}"
    assert edges[-2] <= edges[-1], path
    places = [0, *(bisect_left(finite, edge) for edge in edges[1:-1]), len(finite)]
    assert counts == np.diff(places).tolist(), f"{path}: expected {np.diff(places).tolist()}, found {counts}"
    widths = [Fraction(right) - Fraction(left) for left, right in pairwise(edges)]
    if numbers.is_exact and len(counts) == 32:
        assert max(widths) - min(widths) <= max(1, max(widths) / 1000) or finite[-1] < 1e-300, f"{path}: {edges}"
