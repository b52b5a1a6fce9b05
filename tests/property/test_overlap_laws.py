"""The law of slices that are compared by their records: the same as comparing all pairs of decoded values."""

from __future__ import annotations

import hashlib
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.feature_strategies import schemas_and_examples, values

from registry.features import FeaturesDict, codec_of
from registry.features.containers import columns_of, content_path
from registry.features.content import ContentReader, content_bytes
from registry.model import ShardedFileTemplate, ShardLengths, Split
from registry.publishing import compare_slices, fingerprint
from registry.publishing.fingerprint import StoredSplits
from registry.splits import RecordRange
from registry.storage import open_store
from registry.tfrecord import frame_records

_NUMBERS = count()


def store_records(features: FeaturesDict, splits: dict[str, list[bytes]], cut: int) -> StoredSplits:
    """The splits, each in two shards."""
    store = open_store(f"memory://overlap/{next(_NUMBERS)}")
    found = []
    for name, records in splits.items():
        parts = [part for part in (records[:cut], records[cut:]) if part] or [[]]
        split = Split(
            name=name,
            shard_lengths=ShardLengths(map(len, parts)),
            num_bytes=sum(map(len, records)),
            files=ShardedFileTemplate(dataset="made", file_format="tfrecord"),
        )
        for filename, part in zip(split.filenames, parts, strict=True):
            with store.create(filename) as file:
                file.write(frame_records(part).data)
        found.append(split)
    return StoredSplits(store, tuple(found), features)


@st.composite
def ranges_in(draw: st.DrawFn, sizes: dict[str, int]) -> list[RecordRange]:
    found = []
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(sorted(sizes)))
        start, stop = sorted(draw(st.tuples(*[st.integers(0, sizes[name])] * 2)))
        found.append(RecordRange(split=name, start=start, stop=stop))
    return found


@given(schemas_and_examples(), st.data())
def test_slices_share_what_all_pairs_of_records_say(
    given_: tuple[FeaturesDict, dict[str, Any]], data: st.DataObject
) -> None:
    features, example = given_
    several = [example, *(values(data.draw, features) for _ in range(2))]
    distinct = [codec_of(features).encode(one) for one in several]
    lists = st.lists(st.sampled_from(distinct), max_size=8)
    splits = {"train": data.draw(lists), "test": data.draw(lists)}
    sizes = {name: len(records) for name, records in splits.items()}
    stored = store_records(features, splits, data.draw(st.integers(0, 8)))
    slices = data.draw(st.lists(ranges_in(sizes), min_size=2, max_size=3))
    reader = ContentReader(features)
    column = data.draw(st.sampled_from([None, *(path for path in reader.paths if not _is_float(features, path))]))

    found = compare_slices(stored, slices, column=column, show=100, processes=1)

    is_optional = all(one.may_be_absent for one in columns_of(features) if content_path(one.names) == column)

    def is_missing(value: Any) -> bool:
        return column is not None and is_optional and value == content_bytes([])

    def value(name: str, record: int) -> Any:
        contents = dict(zip(reader.paths, reader.read(splits[name][record]), strict=True))
        return tuple(contents.values()) if column is None else contents[column]

    places = [sorted({(one.split, at) for one in ranges for at in range(one.start, one.stop)}) for ranges in slices]
    read = [[value(*place) for place in ours] for ours in places]
    sets = [{one for one in ours if not is_missing(one)} for ours in read]
    for summary, ours, has in zip(found.slices, read, sets, strict=True):
        missing = sum(map(is_missing, ours))
        assert (summary.num_records, summary.num_missing) == (len(ours), missing)
        assert summary.num_repeated == len(ours) - missing - len(has)
    shared = {(one.first, one.second): one for one in found.shared}
    for second in range(len(slices)):
        for first in range(second):
            both = sets[first] & sets[second]
            assert ((first, second) in shared) is bool(both)
            if both:
                one = shared[first, second]
                assert one.num_values == len(both)
                assert one.num_first == sum(item in both for item in read[first])
                assert one.num_second == sum(item in both for item in read[second])
                assert [pair[0] for pair in one.pairs] == [
                    place for place, item in zip(places[first], read[first], strict=True) if item in both
                ]
                assert all(value(*left) == value(*right) for left, right in one.pairs)
                assert all(pair[1] in places[second] for pair in one.pairs)
    assert found.is_disjoint is (not shared)


def _is_float(features: FeaturesDict, path: str) -> bool:
    """NaN equals nothing, but its content equals itself; test_overlap.py compares columns of numbers."""
    return "float" in str(features.dtype) if path else False


@pytest.mark.parametrize("column", [None, "id"])
def test_records_whose_first_eight_bytes_of_sha256_agree_are_not_taken_for_equal(
    monkeypatch: pytest.MonkeyPatch, column: str | None
) -> None:
    sha256 = hashlib.sha256

    class Weak:
        def __init__(self, data: bytes = b"") -> None:
            self._hash = sha256(data)

        def update(self, data: Any) -> None:
            self._hash.update(data)

        def digest(self) -> bytes:
            return b"12345678" + self._hash.digest()[8:]

    features = FeaturesDict({"id": "int64"})
    records = [codec_of(features).encode({"id": number}) for number in (1, 2, 3, 2)]
    stored = store_records(features, {"train": records[:2], "test": records[2:]}, 1)
    monkeypatch.setattr(fingerprint.hashlib, "sha256", Weak)
    slices = [[RecordRange(split=name, start=0, stop=2)] for name in ("train", "test")]
    (shared,) = compare_slices(stored, slices, column=column, processes=1).shared
    assert (shared.num_values, shared.num_first, shared.num_second) == (1, 1, 1)
    assert shared.pairs == ((("train", 1), ("test", 1)),)
