"""Compares decoded values with those of TF-Slim, and its errors with ours. See PROVENANCE.md."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.slim_cases import GOLDEN, array_of, decoder_of, record_of

from registry.errors import RegistryError
from registry.slim.tfexample_decoder import SparseTensorValue

CASES = GOLDEN["cases"]
KINDS: dict[str, type[Exception]] = {
    "InvalidArgumentError": ValueError,
    "KeyError": KeyError,
    "TypeError": TypeError,
    "ValueError": ValueError,
}
"""Of TensorFlow's errors, the builtin that ours derives from."""

NO_PREFIX = "seq_bbox_no_prefix"
"""TF-Slim adds its own default, None, to a text. Here None is no prefix, so that the keys are not found."""


def is_fast_jpeg(case: dict[str, Any]) -> bool:
    """Whether TensorFlow's default transform made it, which is not ours."""
    return case["name"].startswith("image_jpeg") and case["name"] != "image_jpeg_accurate"


@pytest.mark.parametrize("case", [case for case in CASES if "error" not in case], ids=lambda case: case["name"])
def test_items_equal_those_of_tf_slim(case: dict[str, Any]) -> None:
    decoder = decoder_of(case)
    assert decoder.list_items() == case["list_items"]
    for item, written in zip(decoder.decode(record_of(case), case["request"]), case["outputs"], strict=True):
        if "sparse" in written:
            assert isinstance(item, SparseTensorValue)
            assert item.indices.tolist() == written["indices"]
            assert item.dense_shape.tolist() == written["dense_shape"]
            assert_same(item.values, array_of(written["values"]))
        else:
            assert_same(item, array_of(written), most_apart=15 if is_fast_jpeg(case) else 0)


@pytest.mark.parametrize("case", [case for case in CASES if "error" in case], ids=lambda case: case["name"])
def test_what_tf_slim_refuses_is_refused(case: dict[str, Any]) -> None:
    kind = KeyError if case["name"] == NO_PREFIX else KINDS[case["error"]]
    with pytest.raises(RegistryError) as caught:
        decoder_of(case).decode(record_of(case), case["request"])
    assert isinstance(caught.value, kind)
    assert caught.value.hint


@pytest.mark.parametrize("case", [case for case in CASES if case["kind"] == "example"], ids=lambda case: case["name"])
def test_many_records_at_once_are_decoded_as_each_alone(case: dict[str, Any]) -> None:
    records = [record_of(case)] * 9
    if "error" in case:
        with pytest.raises(RegistryError) as caught:
            decoder_of(case).decode_batch(records, case["request"])
        assert isinstance(caught.value, KINDS[case["error"]])
        return
    decoder = decoder_of(case)
    columns = decoder.decode_batch(records, case["request"])
    for column, item in zip(columns, decoder.decode(records[0], case["request"]), strict=True):
        assert len(column) == len(records)
        for found in column:
            if isinstance(item, SparseTensorValue):
                assert all(np.array_equal(ours, same) for ours, same in zip(found, item, strict=True))
            else:
                assert_same(found, np.asarray(item, object if isinstance(item, bytes) else None))


@pytest.mark.parametrize("case", [case for case in CASES if is_fast_jpeg(case)], ids=lambda case: case["name"])
def test_the_default_transform_of_tensorflow_is_available(case: dict[str, Any]) -> None:
    (item,), (handler,) = case["items_to_handlers"], case["items_to_handlers"].values()
    asked = {**case, "items_to_handlers": {item: {**handler, "dct_method": "INTEGER_FAST"}}}
    (found,), (written,) = decoder_of(asked).decode(record_of(case)), case["outputs"]
    assert_same(found, array_of(written))


def test_every_case_was_run() -> None:
    assert len(CASES) == 92
    assert sum(map(is_fast_jpeg, CASES)) == 4
    assert sum("error" in case for case in CASES) == 22


def assert_same(item: Any, expected: Any, *, most_apart: int = 0) -> None:
    found = np.asarray(item, object if isinstance(item, bytes) else None)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if most_apart:
        assert np.abs(found.astype(float) - expected.astype(float)).max() <= most_apart
    elif found.dtype == object:
        assert found.tolist() == expected.tolist()
    else:
        np.testing.assert_array_equal(found, expected)
