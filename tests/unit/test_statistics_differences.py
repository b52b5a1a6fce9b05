"""What differs between splits: missing classes, shifted means, other shares of nulls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from registry.features import ClassLabel, FeaturesDict, Scalar, Text, codec_of
from registry.features.fold import SplitFold
from registry.statistics import Statistics, StatisticsFold, find_differences
from registry.statistics import statistics_of as describe
from registry.tfrecord import frame_records


def statistics_of(features: FeaturesDict, **splits: list[dict[str, Any]]) -> Statistics:
    result = {}
    for name, rows in splits.items():
        fold = SplitFold(features, [StatisticsFold])
        if rows:
            fold.add(*frame_records([codec_of(features).encode(row) for row in rows]).payloads())
        result[name] = (fold.results() or [])[0]
    return describe(result)


def texts(statistics: Statistics) -> list[tuple[str, str, str]]:
    return [tuple(difference) for difference in find_differences(statistics)]


def test_classes_that_only_one_split_has_are_named() -> None:
    features = FeaturesDict({"pet": ClassLabel(names=["cat", "dog", "hen", "fox"])})
    train = [{"pet": number % 3} for number in range(9)]
    test = [{"pet": "cat"}, {"pet": "fox"}]
    assert texts(statistics_of(features, train=train, test=test)) == [
        ("test", "pet", "lacks dog, hen"),
        ("test", "pet", "has fox, which train lacks"),
    ]


def test_the_features_that_are_named_are_compared() -> None:
    features = FeaturesDict({"pet": ClassLabel(names=["cat", "dog"]), "toy": ClassLabel(names=["ball", "bone"])})
    train = [{"pet": number % 2, "toy": number % 2} for number in range(9)]
    statistics = statistics_of(features, train=train, test=[{"pet": "cat", "toy": "ball"}])
    assert [tuple(difference) for difference in find_differences(statistics, ["toy", "yarn"])] == [
        ("test", "toy", "lacks bone")
    ]
    assert len(find_differences(statistics)) == 2


@pytest.mark.parametrize(("shift", "is_shifted"), [(0.0, False), (0.1, False), (1.0, True), (-1.0, True)])
def test_a_mean_is_shifted_beyond_a_quarter_of_the_deviation(shift: float, is_shifted: bool) -> None:
    features = FeaturesDict({"price": "float64"})
    values = np.random.default_rng(5).normal(size=4000)
    train, test = ([{"price": value} for value in part] for part in (values[:3000], values[3000:] + shift))
    found = texts(statistics_of(features, train=train, test=test))
    assert bool(found) is is_shifted
    side = "above" if shift > 0 else "below"
    assert not is_shifted or found[0][2] == f"the mean is 1.0 standard deviations {side} that of train"


def test_a_mean_that_is_far_away_has_no_absurd_number() -> None:
    features = FeaturesDict({"price": "float64"})
    train = [{"price": float(number % 7)} for number in range(100)]
    [(*_, text)] = texts(statistics_of(features, train=train, test=[{"price": -1e15}] * 40))
    assert text == "the mean is more than 100 standard deviations below that of train"


def test_few_values_are_not_called_shifted() -> None:
    features = FeaturesDict({"price": "float64"})
    train = [{"price": float(number)} for number in range(100)]
    assert texts(statistics_of(features, train=train, test=[{"price": 95.0}])) == []


def test_another_share_of_nulls_is_named_and_an_empty_split_is_not_compared() -> None:
    features = FeaturesDict({"price": Scalar("float32", optional=True)})
    train = [{"price": 1.0}] * 10
    test = [{"price": None}, {"price": 1.0}]
    assert texts(statistics_of(features, train=train, test=test, none=[])) == [
        ("test", "price", "50% nulls, 0% in train")
    ]
    assert texts(statistics_of(features, train=train)) == []


def test_of_texts_the_lengths_are_compared() -> None:
    train, test = ([{"note": "x" * length}] * 20 for length in (3, 5))
    assert texts(statistics_of(FeaturesDict({"note": Text()}), train=train, test=test)) == [
        ("test", "note", "the mean length is 5, but all values in train are 3")
    ]
