"""Laws of decoding: records are decoded together as each alone, and a request selects items without changing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.slim_samples import (
    KINDS,
    element_features,
    examples,
    feature_maps,
    sequences,
    sound_examples,
    var_len_features,
)

from registry.errors import RegistryError
from registry.slim import (
    BackupHandler,
    BoundingBox,
    FixedLenSequenceFeature,
    ItemHandler,
    ItemHandlerCallback,
    KeypointsSequence,
    LookupTensor,
    NumBoxesSequence,
    SparseTensor,
    SparseTensorValue,
    Tensor,
    TFExampleDecoder,
    TFSequenceExampleDecoder,
    VarLenFeature,
)
from registry.tfrecord import RecordBlock

ITEM_SHAPES = st.sampled_from([None, [-1], [], [2], [2, -1], [1, -1, 1], [4], [0]])
DEFAULTS = st.sampled_from([None, 0, 1.5, "", "x"])


def handlers(keys: Sequence[str]) -> st.SearchStrategy[ItemHandler]:
    key = st.sampled_from(keys)
    simple = st.one_of(
        st.builds(Tensor, key, shape=ITEM_SHAPES, default_value=DEFAULTS),
        st.builds(Tensor, key, shape_keys=key | st.lists(key, min_size=1, max_size=2), default_value=st.none()),
        st.builds(LookupTensor, key, st.just(["dog", "x"])),
        st.builds(LookupTensor, key, st.just({0: 7, 300: 1}), default_value=st.just(0)),
        st.builds(BoundingBox, st.lists(key, min_size=4, max_size=4)),
        st.builds(BoundingBox, key.map(lambda one: [one] * 4)),
        st.builds(SparseTensor, key, key, shape=st.sampled_from([None, [6], [400]]), densify=st.booleans()),
        st.builds(ItemHandlerCallback, st.lists(key, max_size=2), st.just(list)),
        st.builds(ItemHandlerCallback, key, st.just(lambda values: next(iter(values.values())))),
    )
    return st.one_of(simple, st.builds(BackupHandler, simple, simple))


def outcome(decode: Any, *arguments: Any) -> tuple[Any, str]:
    """The result or the error of a call."""
    try:
        return decode(*arguments), ""
    except RegistryError as error:
        return None, f"{type(error).__name__}: {error.message}"


def plain(item: Any) -> Any:
    """An item as values that can be compared."""
    if isinstance(item, SparseTensorValue):
        return tuple(map(plain, item))
    if isinstance(item, np.ndarray | np.generic):
        return item.dtype.str, item.shape, item.tolist()
    return item


def block_of(records: list[bytes]) -> RecordBlock:
    lengths = np.array([len(record) for record in records], np.int64)
    return RecordBlock(np.frombuffer(b"".join(records), np.uint8), lengths.cumsum() - lengths, lengths)


@given(st.data())
def test_many_records_are_decoded_as_each_alone(data: st.DataObject) -> None:
    features = data.draw(feature_maps())
    items = {f"item {n}": data.draw(handlers(list(features))) for n in range(data.draw(st.integers(1, 3)))}
    records = data.draw(st.lists(examples(features), max_size=10))
    decoder = TFExampleDecoder(features, items, lazy=data.draw(st.booleans()))
    request = data.draw(st.lists(st.sampled_from(list(items)), max_size=4))
    alone = [outcome(decoder.decode, record, request) for record in records]
    faults = [place for place, (_, error) in enumerate(alone) if error]
    num_sound = faults[0] if faults else len(records)

    rows = decoder.decode_rows(block_of(records), request or list(items))
    for place in range(num_sound):
        assert [plain(item) for item in next(rows)] == [plain(item) for item in alone[place][0]]
    if faults:
        with pytest.raises(RegistryError) as caught:
            next(rows)
        assert f"{type(caught.value).__name__}: {caught.value.message}" == alone[num_sound][1]
        assert caught.value.code != "corrupt_example" or caught.value.details["record"] == num_sound
    else:
        assert list(rows) == []

    columns, error = outcome(decoder.decode_batch, records, request)
    assert bool(error) == bool(faults)
    for place, column in enumerate(columns or ()):
        assert len(column) == len(records)
        assert [plain(item) for item in column] == [plain(values[place]) for values, _ in alone]


@given(st.data())
def test_a_lazy_decoder_gives_the_same_items_as_an_eager_one(data: st.DataObject) -> None:
    features = data.draw(feature_maps())
    items = {key: ItemHandlerCallback(key, lambda values: next(iter(values.values()))) for key in features}
    record = data.draw(sound_examples(features))
    request = data.draw(st.lists(st.sampled_from(list(items)), min_size=1))
    all_items = TFExampleDecoder(features, items).decode(record)
    some = TFExampleDecoder(features, items, lazy=True).decode(record, request)
    assert [plain(item) for item in some] == [plain(all_items[list(items).index(name)]) for name in request]


@given(st.data())
def test_steps_are_counted_and_laid_out_as_they_were_written(data: st.DataObject) -> None:
    features = data.draw(st.dictionaries(st.sampled_from("xyz"), var_len_features() | element_features(), min_size=1))
    record = data.draw(sequences(features))
    items = {key: ItemHandlerCallback(key, lambda values: next(iter(values.values()))) for key in features}
    found, error = outcome(TFSequenceExampleDecoder({}, features, items).decode, record)
    for spec, item in zip(features.values(), found or (), strict=False):
        if isinstance(spec, FixedLenSequenceFeature):
            assert item.dtype == spec.dtype
            assert item.shape[1:] == spec.shape
        else:
            assert item.dense_shape[0] == 0 or item.indices[:, 0].max(initial=0) < item.dense_shape[0]
            dense = item.to_dense()
            assert dense.shape == tuple(item.dense_shape)
            assert dense[tuple(item.indices.T)].tolist() == item.values.tolist()
    assert found is not None or error.startswith("CorruptExampleError")


@given(st.data())
def test_points_of_frames_are_dense_where_they_are_sparse(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS[:2]))
    features = {"y": VarLenFeature(kind), "x": VarLenFeature(kind)}
    record = data.draw(sequences(features))
    filler = data.draw(st.sampled_from([-1, 0, None]))
    items = {
        "dense": KeypointsSequence(default_value=filler),
        "sparse": KeypointsSequence(return_dense=False),
        "numbers": NumBoxesSequence(["y", "x"]),
    }
    decoder = TFSequenceExampleDecoder({}, features, items)
    found, error = outcome(decoder.decode, record, ["sparse", "dense"])
    if error:
        return
    sparse, dense = found
    assert dense.tolist() == sparse.to_dense(filler).tolist()
    counts, _ = outcome(decoder.decode, record, ["numbers"])
    if counts is not None:
        assert (counts[0] * 2).tolist() == [int((sparse.indices[:, 0] == t).sum()) for t in range(dense.shape[0])]


@given(st.data())
def test_a_sparse_array_is_its_values_at_their_places(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    size = int(np.prod(shape))
    places = sorted(data.draw(st.sets(st.integers(0, max(size - 1, 0)), max_size=min(size, 6)))) if size else []
    values = np.array([data.draw(st.integers(-9, 9)) for _ in places], np.int64)
    indices = np.stack(np.unravel_index(np.array(places, np.int64), shape), 1) if size else np.empty((0, len(shape)))
    sparse = SparseTensorValue(indices.astype(np.int64), values, np.array(shape))
    filler = data.draw(st.integers(-3, 3))
    dense = sparse.to_dense(filler)
    expected = np.full(size, filler)
    expected[places] = values
    assert dense.tolist() == expected.reshape(shape).tolist()
    if len(shape) == 2:
        assert sparse.to_scipy().toarray().tolist() == sparse.to_dense().tolist()
