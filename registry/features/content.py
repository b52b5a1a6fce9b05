"""What of a record is content? For each feature the bytes that are equal if, and only if, a reader gets the same value.

Over what is decoded, so that the encoding of a tensor, the compression of a PNG and the order of map keys do not count.
One exception: a JPEG, and a PNG that only Pillow decodes, is its file's bytes, because its pixels differ between
versions of libjpeg. Every form says where it ends, so that two rows of values never give the same bytes.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from registry.features.codec import Codec, ColumnReader
from registry.features.containers import FeaturesDict, columns_of
from registry.features.ragged import Ragged
from registry.wire import FlatValue, decode_example

_COUNT: Final = struct.Struct("<Q")
_IS_LITTLE: Final = sys.byteorder == "little"
_MOST_PATH_BYTES: Final = 1000


class ContentReader:
    """Takes the content out of the records of one schema; ``paths`` are the features, in the order of what it gives.

    >>> reader = ContentReader(FeaturesDict({"id": "int64", "name": "str"}))
    >>> record = reader.features.encode_example({"id": 7, "name": "x"})
    >>> reader.paths, [content.hex() for content in reader.read(record)]
    (('id', 'name'), ['000700000000000000', '010000000000000078'])
    """

    def __init__(self, features: FeaturesDict) -> None:
        self.features = features
        readers = zip(columns_of(features), Codec.of(features.missing_as_none()).columns, strict=True)
        found = ((content_path(column.names), reader) for column, reader in readers)
        self._columns: dict[str, ColumnReader] = dict(sorted(found, key=lambda pair: pair[0]))
        self.paths = tuple(self._columns)

    def read(self, record: bytes) -> list[bytes]:
        """The content of each feature of ``record``.

        Raises:
            CorruptExampleError: no tf.train.Example, or one that does not hold these features.
        """
        return self.read_flat(decode_example(record))

    def read_flat(self, flat: Mapping[str, FlatValue]) -> list[bytes]:
        """The content of each feature of the record that has these flat values. Errors as ``read``."""
        return [content_bytes(column.read_content(flat)) for column in self._columns.values()]

    def values(self, record: bytes, paths: Iterable[str]) -> dict[str, Any]:
        """The decoded values of the features ``paths`` of ``record``; None for a missing one.

        Raises:
            CorruptExampleError: as ``read``.
            MissingExtraError: an image needs Pillow, and it is not installed.
        """
        flat = decode_example(record)
        return {path: self._columns[path].read(flat) for path in paths}


def content_path(names: Sequence[str]) -> str:
    r"""What the content of a feature is known by: its ``names``, from the outermost dict inwards, joined by ``/``.

    A ``/`` in a name is written ``\/``, and a backslash twice, because a reader finds ``a/b`` and ``a``, ``b`` in
    different places. A path of more than 1,000 bytes ends in its sha256: a database's index holds no longer one.
    """
    path = "/".join(name.replace("\\", r"\\").replace("/", r"\/") for name in names)
    data = path.encode()
    if len(data) <= _MOST_PATH_BYTES:
        return path
    return data[: _MOST_PATH_BYTES - 70].decode("utf-8", "ignore") + "…" + hashlib.sha256(data).hexdigest()


def content_bytes(value: Any) -> bytes:
    """The bytes of a decoded value: the shape, then the values, little-endian.

    The dtype is not in them: values are compared under one schema.
    """
    if isinstance(value, bytes):
        return _COUNT.pack(len(value)) + value
    if isinstance(value, Ragged):
        return b"".join(map(content_bytes, (*value.row_lengths, value.flat_values)))
    if value is None:
        return b"\xff"  # no number of dimensions
    if isinstance(value, dict):
        return content_bytes([part for name, inner in value.items() for part in (name.encode(), inner)])
    if isinstance(value, (list, tuple)):
        return _COUNT.pack(len(value)) + b"".join(map(content_bytes, value))
    if isinstance(value, np.generic):
        return b"\0" + _little_endian(value)
    array = np.asarray(value)
    shape = struct.pack(f"<B{array.ndim}Q", array.ndim, *array.shape)
    if array.dtype == object:
        return shape + b"".join(map(content_bytes, array.flat))
    return shape + _little_endian(array)


def _little_endian(value: Any) -> bytes:
    """The bytes of what was decoded, which is in the machine's order."""
    stored: bytes = value.tobytes() if _IS_LITTLE else value.astype(value.dtype.newbyteorder("<")).tobytes()
    return stored
