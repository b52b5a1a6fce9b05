"""Records and features for the tests of decoders, and short ways to decode one item."""

from __future__ import annotations

from typing import Any

import numpy as np

from registry import slim
from registry.wire import encode_example
from registry.wire.example_pb2 import SequenceExample

LABEL = slim.FixedLenFeature((), "int64")
FLOATS = slim.VarLenFeature("float32")
NUMBERS = slim.VarLenFeature("int64")


def example(**values: Any) -> bytes:
    def flat(value: Any) -> Any:
        if isinstance(value[0] if value else b"", bytes):
            return list(value)
        return np.array(value, np.int64 if isinstance(value[0], int) else np.float32)

    return encode_example({key: flat(value) for key, value in values.items()})


def steps(**lists: list[list[float]]) -> bytes:
    message = SequenceExample()
    for key, values in lists.items():
        message.feature_lists.feature_list[key].SetInParent()
        for step in values:
            feature = message.feature_lists.feature_list[key].feature.add()
            feature.float_list.SetInParent()
            feature.float_list.value.extend(step)
    return bytes(message.SerializeToString())


def decode(handler: slim.ItemHandler, record: bytes, **features: Any) -> Any:
    (item,) = slim.TFExampleDecoder(features, {"item": handler}).decode(record)
    return item


def decode_steps(handler: slim.ItemHandler, record: bytes, **features: Any) -> Any:
    (item,) = slim.TFSequenceExampleDecoder({}, features, {"item": handler}).decode(record)
    return item
