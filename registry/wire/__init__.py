"""What do the bytes of a record say? tf.train.Example to and from numpy, without TensorFlow.

One record at a time: a flat mapping of names to lists of int64, float32 or bytes. Many at once: flat columns. Shapes,
dtypes and nesting are what ``registry.features`` makes of them. ``example.proto`` has TensorFlow's fields under a
package name of its own.
"""

from registry.errors import CorruptExampleError
from registry.wire.block import BlockDecoder, FlatBlock, decode_block
from registry.wire.codec import FlatValue, decode_example, encode_example
from registry.wire.columns import BytesColumn, FlatColumn, NumberColumn

__all__ = [
    "BlockDecoder",
    "BytesColumn",
    "CorruptExampleError",
    "FlatBlock",
    "FlatColumn",
    "FlatValue",
    "NumberColumn",
    "decode_block",
    "decode_example",
    "encode_example",
]
