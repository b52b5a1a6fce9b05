"""Missing values of a published version are None in TF-Slim, and masked in batches of any kind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.framework_samples import FEATURES, plain, stored, stored_records, wide_reader

from registry import slim
from registry.errors import CorruptExampleError, WrongTypeError
from registry.features import FeaturesDict, Scalar, codec_of
from registry.reading import Reader, Slice

SOME = FeaturesDict({name: FEATURES[name] for name in ("id", "maybe", "corners", "name")})
TEXT = FeaturesDict({"id": "int64", "text": Scalar("string", optional=True)})


def provider_of(reader: Reader) -> Any:
    """The records of a reader, in their order."""
    version = SimpleNamespace(slice_of=lambda name: Slice(name=name, readable=reader.readable, plan=reader.plan))
    dataset = slim.Dataset.from_version(version, "train")
    return slim.dataset_data_provider.DatasetDataProvider(dataset, shuffle=False, num_epochs=1)


def test_items_are_none_and_batches_are_masked() -> None:
    reader = wide_reader([9], features=SOME)
    expected = list(reader)
    items = list(SOME)
    with provider_of(reader) as provider:
        rows = list(provider.iter(items))
    assert [plain(row) for row in rows] == [plain([one[name] for name in items]) for one in expected]
    for size in (1, 2, 4, 9):
        for pad in (False, True):
            with provider_of(reader) as provider:
                batches = list(provider.batches(items, size, dynamic_pad=pad))
            for columns in batches:
                kinds = [(type(column), column.dtype) for column in columns]
                assert kinds[:3] == [
                    (np.ndarray, np.int64), (np.ma.MaskedArray, np.int32), (np.ma.MaskedArray, np.int8),
                ]  # fmt: skip
            whole = [plain(np.ma.concatenate([columns[place] for columns in batches])) for place in range(3)]
            assert whole == [[plain(one[name]) for one in expected] for name in items[:3]]


def test_texts_are_masked_in_slices_of_a_decoded_block() -> None:
    texts = [None if n % 3 == 1 else f"t{n}" for n in range(50)]
    reader = stored([{"id": n, "text": text} for n, text in enumerate(texts)], TEXT)
    for pad in (False, True):
        with provider_of(reader) as provider:
            columns = [column for (column,) in provider.batches(["text"], 1, dynamic_pad=pad)]
        assert {type(column) for column in columns} == {np.ma.MaskedArray}
        assert [column.tolist() for column in columns] == [[text if text is None else text.encode()] for text in texts]


def test_a_faulty_record_does_not_change_the_type_of_its_batch() -> None:
    records = [codec_of(TEXT).encode({"id": n, "text": None}) for n in range(6)]
    records[3] = b"\x0a\x07\x0a\x05\x0a\x01a\x12\x00"  # holds none of the features
    reader = stored_records(records, TEXT)
    with provider_of(reader) as provider:
        batches = provider.batches(["id", "text"], 6)
        with pytest.raises(CorruptExampleError):
            next(batches)
        ids, column = next(batches)
    assert ids.tolist() == [0, 1, 2, 4, 5]
    assert (type(column), column.tolist()) == (np.ma.MaskedArray, [None] * 5)


def test_a_queue_of_single_items_refuses_to_stack_none_with_numbers() -> None:
    with (
        provider_of(wide_reader([9], features=SOME)) as provider,
        slim.prefetch_queue(provider.iter(["id", "maybe"]), capacity=4) as queue,
        pytest.raises(WrongTypeError, match="elements of different dtypes cannot be stacked: int32, object"),
    ):
        queue.dequeue_many(4)
