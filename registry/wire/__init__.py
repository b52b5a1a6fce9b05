"""What do the bytes of a record say? tf.train.Example to and from numpy, without TensorFlow.

One record at a time: a flat mapping of names to lists of int64, float32 or bytes. Shapes, dtypes and nesting are what
``registry.features`` makes of them. ``example.proto`` has TensorFlow's fields under a package name of its own.
"""

from registry.errors import CorruptExampleError
from registry.wire.codec import FlatValue, decode_example, encode_example

__all__ = ["CorruptExampleError", "FlatValue", "decode_example", "encode_example"]
