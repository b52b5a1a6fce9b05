"""What of a record is content? For each feature the bytes that are equal if, and only if, a reader gets the same value.

Over what is decoded, so that the encoding of a tensor, the compression of a PNG and the order of map keys do not count.
One exception: a JPEG, and a PNG that only Pillow decodes, is its file's bytes, because its pixels differ between
versions of libjpeg. Every form says where it ends, so that two rows of values never give the same bytes.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

from registry.features.codec import Codec, ColumnReader
from registry.features.containers import FeaturesDict
from registry.features.ragged import Ragged
from registry.wire import decode_example

_COUNT: Final = struct.Struct("<Q")


class ContentReader:
    """Takes the content out of the records of one schema; ``paths`` are the features, in the order of what it gives.

    >>> reader = ContentReader(FeaturesDict({"id": "int64", "name": "str"}))
    >>> record = reader.features.encode_example({"id": 7, "name": "x"})
    >>> reader.paths, [content.hex() for content in reader.read(record)]
    (('id', 'name'), ['000700000000000000', '010000000000000078'])
    """

    def __init__(self, features: FeaturesDict) -> None:
        self.features = features
        self._columns: tuple[ColumnReader, ...] = tuple(
            sorted(Codec.of(features).columns, key=lambda column: column.path)
        )
        self.paths = tuple(column.path for column in self._columns)

    def read(self, record: bytes) -> list[bytes]:
        """The content of each feature of ``record``.

        Raises:
            CorruptExampleError: no tf.train.Example, or one that does not hold these features.
            MissingExtraError: an image needs Pillow, and it is not installed.
        """
        flat = decode_example(record)
        return [content_bytes(column.read_content(flat)) for column in self._columns]

    def values(self, record: bytes) -> dict[str, Any]:
        """The decoded value of each feature of ``record``, by its path. Errors as ``read``."""
        flat = decode_example(record)
        return {column.path: column.read(flat) for column in self._columns}

    def __reduce__(self) -> tuple[type[ContentReader], tuple[FeaturesDict]]:
        return ContentReader, (self.features,)


def content_bytes(value: Any) -> bytes:
    """The bytes of a decoded value: the shape, then the values, little-endian.

    The dtype is not in them: values are compared under one schema.
    """
    if isinstance(value, bytes):
        return _COUNT.pack(len(value)) + value
    if isinstance(value, Ragged):
        return b"".join(map(content_bytes, (*value.row_lengths, value.flat_values)))
    if isinstance(value, (list, tuple)):
        return _COUNT.pack(len(value)) + b"".join(map(content_bytes, value))
    if isinstance(value, np.generic):
        return b"\0" + value.astype(value.dtype.newbyteorder("<")).tobytes()
    array = np.asarray(value)
    shape = struct.pack(f"<B{array.ndim}Q", array.ndim, *array.shape)
    if array.dtype == object:
        return shape + b"".join(map(content_bytes, array.flat))
    return shape + array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
