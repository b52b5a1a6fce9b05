"""Exact duplicates equal brute force over the stored records, in any order, division, and amount of memory."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.feature_strategies import schemas, values

from registry.features import FeaturesDict, Scalar, Sequence, Tensor, Text, codec_of
from registry.features.codec import FlatRecords
from registry.statistics import Duplicates, StatisticsFold, parse_statistics, statistics_documents, statistics_of
from registry.statistics import duplicates as duplicates_module
from registry.statistics.duplicates import DIGEST_BYTES, RecordDigester, find_duplicates, pile_of_split
from registry.tfrecord import frame_records


def expected(splits: dict[str, list[bytes]]) -> dict[str, Duplicates]:
    """Brute force: counts of whole records."""
    counts = {name: Counter(records) for name, records in splits.items()}
    result = {}
    for name, own in counts.items():
        shared = {other: sum(n for record, n in own.items() if record in counts[other]) for other in counts}
        result[name] = Duplicates(
            num_repeated=sum(own.values()) - len(own),
            num_groups=sum(n > 1 for n in own.values()),
            shared={other: n for other, n in shared.items() if n and other != name},
        )
    return result


def flatten(features: FeaturesDict, records: list[bytes]) -> FlatRecords:
    return codec_of(features).flat_records(*frame_records(records).payloads())


def digests_of(features: FeaturesDict, records: list[bytes]) -> list[bytes]:
    digests = bytes(RecordDigester(features).digests(flatten(features, records))[0])
    return [digests[place : place + DIGEST_BYTES] for place in range(0, len(digests), DIGEST_BYTES)]


@st.composite
def versions(draw: st.DrawFn) -> tuple[FeaturesDict, dict[str, list[bytes]]]:
    """A schema, and splits whose records are taken from a few different ones."""
    features = draw(schemas())
    encode = codec_of(features).encode
    pool = [encode(values(draw, features)) for _ in range(draw(st.integers(1, 6)))]
    names = draw(st.lists(st.sampled_from(["train", "test", "dev"]), min_size=1, max_size=3, unique=True))
    return features, {name: draw(st.lists(st.sampled_from(pool), max_size=8)) for name in names}


@given(version=versions(), data=st.data(), is_sent=st.booleans())
@settings(deadline=None)
def test_duplicates_equal_brute_force_in_any_order_and_division(
    version: tuple[FeaturesDict, dict[str, list[bytes]]], data: st.DataObject, *, is_sent: bool
) -> None:
    features, splits = version
    fold = StatisticsFold(features)
    results = {}
    for name, records in splits.items():
        shuffled = data.draw(st.permutations(records))
        cuts = data.draw(st.lists(st.integers(0, len(records)), max_size=3).map(sorted))
        state = fold.start()
        for start, stop in zip([0, *cuts], [*cuts, len(records)], strict=True):
            part = fold.start()
            if start < stop:
                fold.add(part, flatten(features, shuffled[start:stop]))
            fold.merge(state, pickle.loads(pickle.dumps(part)) if is_sent else part)  # noqa: S301 (our own)
        results[name] = fold.end(state)
    statistics = statistics_of(results)
    assert {name: split.duplicates for name, split in statistics.items()} == expected(splits)
    assert parse_statistics(statistics_documents(statistics)["statistics.json"]) == statistics


@given(
    splits=st.dictionaries(
        st.sampled_from(["a", "b", "c", "d"]),
        st.lists(st.sampled_from([bytes([n % 5]) * 8 + bytes([n]) * 8 for n in range(14)]), max_size=40),
        min_size=1,
    ),
    most=st.integers(1, 12),
)
def test_duplicates_do_not_depend_on_how_many_digests_are_in_memory(splits: dict[str, list[bytes]], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates_module, "_MOST_IN_MEMORY", most)
        patch.setattr(duplicates_module, "_MOST_SORTED", most)
        patch.setattr(duplicates_module, "_MOST_CELLS", 10 * most)
        piles = [pile_of_split(b"".join(digests)) for digests in splits.values()]
        assert dict(zip(splits, find_duplicates(list(splits), piles), strict=True)) == expected(splits)


def test_records_that_are_mostly_equal_are_all_counted() -> None:
    """Beside a split of different records, of which few are compared."""
    different = [number.to_bytes(16, "big") for number in range(1000)]
    splits = {"train": [bytes(16)] * 1000 + different[-1:], "test": different}
    piles = [pile_of_split(b"".join(digests)) for digests in splits.values()]
    assert dict(zip(splits, find_duplicates(list(splits), piles), strict=True)) == expected(splits)


@pytest.mark.parametrize("most", [2**20, 2**13])
@pytest.mark.parametrize("num_bits", [64, 16])
def test_few_duplicates_among_many_records_equal_brute_force(
    monkeypatch: pytest.MonkeyPatch, most: int, num_bits: int
) -> None:
    """Of 16 random bits, many different digests have the same first word, or the same first bits."""
    monkeypatch.setattr(duplicates_module, "_MOST_SORTED", most)
    chance = np.random.default_rng(num_bits)
    rows = chance.integers(0, 2**64, (60_000, 2), np.uint64)
    rows[:, 0] &= np.uint64(2**64 - 2 ** (64 - num_bits))
    places = iter(chance.permutation(np.arange(16_384, 60_000)))
    for repetitions in (2, 16, 255, 256, 257, 513):  # a count of one byte would be 0 or 1 again
        rows[[next(places) for _ in range(repetitions - 1)]] = rows[repetitions]
    rows[:40_000] = chance.permutation(rows[:40_000])
    splits = {"train": rows[:40_000], "test": rows[40_000:], "empty": rows[:0], "again": rows[20_000:20_100]}
    piles = [pile_of_split(split.tobytes()) for split in splits.values()]
    records = {name: [row.tobytes() for row in split] for name, split in splits.items()}
    assert dict(zip(splits, find_duplicates(list(splits), piles), strict=True)) == expected(records)


HARD = {
    "zeros": (FeaturesDict({"x": Text()}), [{"x": b"\0" * size} for size in range(300)]),
    "beginnings": (
        FeaturesDict({"x": Text()}),
        [{"x": b"abcdefghij" * 30}] + [{"x": b"abcdefghij" * n} for n in range(30)],
    ),
    "bits": (FeaturesDict({"x": Text()}), [{"x": (1 << place).to_bytes(40, "little")} for place in range(320)]),
    "long bits": (FeaturesDict({"x": Text()}), [{"x": (1 << place).to_bytes(300, "little")} for place in range(2400)]),
    "signs": (
        FeaturesDict({"x": Tensor(shape=(8,), dtype="float32")}),
        [{"x": np.where((number >> np.arange(8)) & 1, 1, -1).astype(np.float32)} for number in range(256)],
    ),
    "cuts": (
        FeaturesDict({"x": Sequence(Text())}),
        [{"x": texts} for texts in ([], [""], ["", ""], ["ab"], ["a", "b"], ["b", "a"], ["ab", ""], ["", "ab"])],
    ),
    "neighbours": (
        FeaturesDict({"x": Sequence("int64"), "y": Sequence("int64"), "z": "int64"}),
        [{"x": [1] * n, "y": [1] * (5 - n), "z": 1} for n in range(6)]
        + [{"x": [1], "y": [1], "z": n} for n in range(6)],
    ),
    "columns": (
        FeaturesDict({"x": "int64", "y": "int64"}),
        [{"x": x, "y": y} for x in (-1, 0, 1, 2**62) for y in (-1, 0, 1, 2**62)],
    ),
    "missing": (
        FeaturesDict({"x": Scalar("int64", optional=True), "y": Scalar("int64", optional=True)}),
        [{"x": x, "y": y} for x in (None, 0, 1) for y in (None, 0, 1)],
    ),
    "nested": (
        FeaturesDict({"x": Sequence(Sequence("int64"))}),
        [{"x": lists} for lists in ([], [[]], [[], []], [[1, 2]], [[1], [2]], [[], [1, 2]], [[1, 2], []])],
    ),
    "floats": (FeaturesDict({"x": "float32"}), [{"x": np.float32(x)} for x in (0.0, -0.0, np.nan, np.inf)]),
}


@pytest.mark.parametrize("name", HARD)
def test_similar_records_have_different_digests_that_do_not_depend_on_their_neighbours(name: str) -> None:
    features, examples = HARD[name]
    records = [codec_of(features).encode(example) for example in examples]
    digests = digests_of(features, records)
    assert len(set(digests)) == len(records)
    step = 1 + len(records) // 400
    assert [digest for record in records[::step] for digest in digests_of(features, [record])] == digests[::step]
    assert digests_of(features, records[::-1]) == digests[::-1]


def test_records_whose_keys_have_another_order_are_equal() -> None:
    features = FeaturesDict({"a": "int64", "b": "int64"})
    parts = [codec_of(FeaturesDict({name: "int64"})).encode({name: 7}) for name in "ab"]
    entries = [part[2:] for part in parts]  # without the tag and the length of Features
    records = [bytes([10, sum(map(len, order))]) + b"".join(order) for order in (entries, entries[::-1])]
    assert records[0] != records[1]
    one, other = digests_of(features, records)
    assert one == other


def test_many_records_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    import tracemalloc

    monkeypatch.setattr(duplicates_module, "_MOST_IN_MEMORY", 2**12)
    monkeypatch.setattr(duplicates_module, "_MOST_SORTED", 2**14)
    chance = np.random.default_rng(0)
    piles: list[Any] = []
    tracemalloc.start()
    try:
        for _ in range(2):
            pile = pile_of_split()
            for _ in range(64):
                pile.add(chance.bytes(2**12 * DIGEST_BYTES))
            pile.add(b"x" * DIGEST_BYTES * 3)
            piles.append(pile)
        first, second = find_duplicates(["first", "second"], piles)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert first == Duplicates(num_repeated=2, num_groups=1, shared={"second": 3})
    assert second == Duplicates(num_repeated=2, num_groups=1, shared={"first": 3})
    assert most < 6 * 2**20, "the digests have 8 MiB, and 12 MiB with their counts"


def test_a_split_names_the_splits_that_share_most() -> None:
    names = [f"part{place}" for place in range(120)]
    piles = [pile_of_split(b"a" * DIGEST_BYTES + (b"b" * DIGEST_BYTES) * (place >= 110)) for place in range(120)]
    found = find_duplicates(names, piles)
    assert list(found[119].shared) == [*names[:91], *names[110:119]]
    assert set(found[0].shared.values()) == {1}
    assert found[119].shared["part110"] == 2
