"""Reads and writes tf.train.Example and tf.train.SequenceExample as NumPy values, without TensorFlow.

One record at a time: a flat mapping of names to lists of int64, float32 or bytes. Many at once: flat columns. Shapes,
dtypes and nesting are what ``registry.features`` makes of them. ``example.proto`` has TensorFlow's fields under a
package name of its own.
"""

from registry.wire.block import BlockDecoder, BytesColumn, FlatBlock, FlatColumn, NumberColumn
from registry.wire.codec import (
    FlatValue,
    SequenceValues,
    decode_example,
    decode_features,
    decode_sequence_example,
    encode_example,
    encode_sequence_example,
)
from registry.wire.entries import WireKind

__all__ = [
    "BlockDecoder",
    "BytesColumn",
    "FlatBlock",
    "FlatColumn",
    "FlatValue",
    "NumberColumn",
    "SequenceValues",
    "WireKind",
    "decode_example",
    "decode_features",
    "decode_sequence_example",
    "encode_example",
    "encode_sequence_example",
]
