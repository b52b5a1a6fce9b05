"""Reads and writes tf.train.Example and tf.train.SequenceExample as NumPy values, without TensorFlow.

A single record is a flat mapping of names to lists of int64, float32 or bytes; many records are flat columns.
``registry.features`` adds shapes, dtypes and nesting. ``example.proto`` has TensorFlow's fields under another package
name.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.wire.block import BlockDecoder, BytesColumn, FlatBlock, FlatColumn, NumberColumn, RecordDecoder
    from registry.wire.block_writer import EncodedBlock, encode_block
    from registry.wire.codec import (
        FlatValue,
        SequenceValues,
        Steps,
        decode_example,
        decode_features,
        decode_sequence_example,
        encode_example,
        encode_sequence_example,
    )
    from registry.wire.entries import WireKind
    from registry.wire.gather import take_texts

__all__ = [
    "BlockDecoder", "BytesColumn", "EncodedBlock", "FlatBlock", "FlatColumn", "FlatValue", "NumberColumn",
    "RecordDecoder", "SequenceValues", "Steps", "WireKind", "decode_example", "decode_features",
    "decode_sequence_example", "encode_block", "encode_example", "encode_sequence_example", "take_texts",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "block": "BlockDecoder BytesColumn FlatBlock FlatColumn NumberColumn RecordDecoder",
        "block_writer": "EncodedBlock encode_block",
        "codec": (
            "FlatValue SequenceValues Steps decode_example decode_features decode_sequence_example "
            "encode_example encode_sequence_example"
        ),
        "entries": "WireKind",
        "gather": "take_texts",
    },
)
