"""Encodes and decodes one tf.train.Example or tf.train.SequenceExample: a mapping of flat values.

This module implements the form that every known writer produces: all values of a list in one packed run. That keeps
every bit of a float (protobuf for Python returns doubles, which turns signalling NaNs quiet), copies an array instead
of creating one Python object for each value, and gives reproducible bytes: protobuf's "deterministic" output is stable
within one version only, and its runtimes sort "a" and "ab" differently. protobuf itself reads any other valid form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt

from registry.errors import CorruptExampleError, FeatureError
from registry.wire.varint import (
    FIELD_1,
    FIELD_2,
    OtherFormError,
    read_varint,
    read_varints,
    write_varint,
    write_varints,
)

if TYPE_CHECKING:
    from google.protobuf.message import Message


M = TypeVar("M", bound="Message")
T = TypeVar("T")

FlatValue: TypeAlias = npt.NDArray[Any] | list[bytes]
"""A 1-d array of int64 or float32, or a list of bytes."""

_BYTES_LIST: Final = 0x0A
_FLOAT_LIST: Final = 0x12
_INT64_LIST: Final = 0x1A
_INT64: Final = np.dtype(np.int64)
_FLOAT32: Final = np.dtype(np.float32)
_STORED_FLOAT: Final = np.dtype("<f4")


def encode_example(values: Mapping[str, FlatValue]) -> bytes:
    """The serialized tf.train.Example of ``values``: the same values give the same bytes, in any order.

    Keys are sorted by their UTF-8 bytes. An empty array or list keeps its kind.

    >>> encode_example({"label": np.array([5])}).hex()
    '0a100a0e0a056c6162656c12051a030a0105'

    Raises:
        FeatureError: a value is neither a 1-d array of int64 or float32 nor a list of bytes.
    """
    pieces = features_pieces(values, feature_pieces)
    return b"".join([write_head(FIELD_1, sum(map(len, pieces))), *pieces])


def features_pieces(
    values: Mapping[str, T], pieces_of: Callable[[str, T], tuple[bytes, list[bytes], int]]
) -> list[bytes]:
    """A message Features, or FeatureLists, of ``values``, in pieces; ``pieces_of`` makes those of one."""
    entries = []
    for key, value in values.items():
        name = write_key(key)
        list_head, content, size = pieces_of(key, value)
        # The fields around the list, from the inside out: only their heads, so that large bytes are copied once.
        value_head = write_head(FIELD_2, size + len(list_head))
        entry_start = write_head(FIELD_1, len(name)) + name + value_head + list_head
        entries.append((name, [write_head(FIELD_1, len(entry_start) + size), entry_start, *content]))
    entries.sort()
    return [piece for _, entry in entries for piece in entry]


def feature_pieces(key: str, value: FlatValue) -> tuple[bytes, list[bytes], int]:
    """A message Feature: the head of its list, the content of the list in pieces, and their total length."""
    kind, content = _list_of(key, value)
    size = sum(map(len, content))
    return write_head(kind, size), content, size


def write_key(key: str) -> bytes:
    """Encode the key of a map. Raises FeatureError if it is not valid UTF-8."""
    try:
        return key.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FeatureError(f"feature name {key!r} is not valid Unicode", details={"feature": key}) from error


def decode_example(record: bytes | memoryview) -> dict[str, FlatValue]:
    """The flat values of a serialized tf.train.Example. Arrays are new and writable, and bytes are copied.

    A feature without a kind is an empty list. Values may be packed or not. Unknown fields are skipped. If a key occurs
    twice, the last one counts.

    >>> decode_example(encode_example({"label": np.array([5]), "image": [b"png"]}))
    {'image': [b'png'], 'label': array([5])}

    Raises:
        CorruptExampleError: the bytes are not a tf.train.Example.
    """
    return {key: [] if value is None else value for key, value in decode_features(record).items()}


def decode_features(record: bytes | memoryview) -> dict[str, FlatValue | None]:
    """Decode like ``decode_example``, with None for a feature without a list."""
    try:
        return _decode_common_form(record)
    except (OtherFormError, IndexError, ValueError):  # ValueError: a name that is not UTF-8, or a bad varint
        return _decode_any_form(record)


def write_head(tag: int, size: int) -> bytes:
    """The head of a field: its tag and the length of its content."""
    return bytes((tag, size)) if size < 0x80 else bytes((tag,)) + write_varint(size)


def _list_of(key: str, value: FlatValue) -> tuple[int, list[bytes]]:
    """The list for ``value``, as the tag of its field in Feature, and the list's content in pieces."""
    if isinstance(value, np.ndarray):
        if value.ndim == 1 and value.dtype == _INT64:
            return _INT64_LIST, _packed(write_varints(value))
        if value.ndim == 1 and value.dtype == _FLOAT32:
            return _FLOAT_LIST, _packed(value.astype(_STORED_FLOAT, copy=False).tobytes())
        kind = f"an array of {value.dtype} with the shape {value.shape}"
    elif _is_bytes_list(value):
        return _BYTES_LIST, [piece for item in value for piece in (write_head(FIELD_1, len(item)), item)]
    else:
        kind = f"of the type {type(value).__name__}"
    raise FeatureError(
        f"feature {key!r} is {kind}; a record stores 1-d arrays of int64 or float32, and lists of bytes",
        hint=_to_write(value),
        details={"feature": key},
    )


def _to_write(value: object) -> str:
    """The hint for a ``value`` that a record cannot store."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "iubf":
        return f"Write array.ravel().astype(np.{'float32' if value.dtype.kind == 'f' else 'int64'})."
    first = value[0] if isinstance(value, list | tuple) and value else value
    match first:
        case int() | np.integer():
            return "Write whole numbers as np.array([3])."
        case float() | np.floating():
            return "Write numbers as np.array([1.5], np.float32)."
        case str() | bytes():
            return 'Write texts as a list of bytes: [b"abc"], or ["é".encode()].'
    return 'Write np.array([3]), np.array([1.5], np.float32) or [b"abc"].'


def _packed(content: bytes) -> list[bytes]:
    return [write_head(FIELD_1, len(content)), content] if content else []


def _is_bytes_list(value: object) -> TypeGuard[list[bytes]]:
    return isinstance(value, list) and all([isinstance(item, bytes) for item in value])  # noqa: C419 - twice as fast


def _decode_common_form(record: bytes | memoryview) -> dict[str, FlatValue | None]:
    """The values, where each field occurs once, in the order of its number, and lists are packed.

    Raises:
        OtherFormError, IndexError, ValueError: anything else.
    """
    if not len(record):
        return {}
    return read_map(record, enter_field(record, FIELD_1, 0, len(record)), len(record), read_feature)


def read_map(
    record: bytes | memoryview, position: int, end: int, read_value: Callable[[bytes | memoryview, int, int], T]
) -> dict[str, T]:
    """The entries of a message whose only field is a map, ``record[position:end]``. Raises as above."""
    values: dict[str, T] = {}
    while position < end:
        if record[position] != FIELD_1:
            raise OtherFormError
        size, position = read_varint(record, position + 1)
        entry_end = position + size
        if entry_end > end or record[position] != FIELD_1:
            raise OtherFormError
        size, position = read_varint(record, position + 1)
        name = str(record[position : position + size], "utf-8")
        position = enter_field(record, FIELD_2, position + size, entry_end)
        values[name] = read_value(record, position, entry_end)
        position = entry_end
    return values


def read_feature(record: bytes | memoryview, position: int, end: int) -> FlatValue | None:
    """Decode a message Feature, ``record[position:end]``: None if it has no list. Raises as above."""
    if position == end:
        return None
    kind = record[position]
    position = enter_field(record, kind, position, end)
    if kind == _BYTES_LIST:
        return list(map(bytes, read_items(record, position, end)))
    if kind not in (_FLOAT_LIST, _INT64_LIST):
        raise OtherFormError
    if position < end:
        position = enter_field(record, FIELD_1, position, end)
    if kind == _INT64_LIST:
        return read_varints(record, position, end)
    # frombuffer refuses a size that is not a multiple of 4; the copy is writable and in native byte order
    return np.frombuffer(record[position:end], dtype=_STORED_FLOAT).astype(_FLOAT32)


def read_items(record: bytes | memoryview, position: int, end: int) -> list[Any]:
    """The items of a list of bytes, ``record[position:end]``, as slices of ``record``. Raises as above."""
    items = []
    while position < end:
        if record[position] != FIELD_1:
            raise OtherFormError
        size, start = read_varint(record, position + 1)
        position = start + size
        items.append(record[start:position])
    if position != end:
        raise OtherFormError
    return items


def enter_field(record: bytes | memoryview, tag: int, position: int, end: int) -> int:
    """The start of the content of the field at ``position``, which must end at ``end``."""
    if position >= end or record[position] != tag:
        raise OtherFormError
    size, start = read_varint(record, position + 1)
    if start + size != end:
        raise OtherFormError
    return start


def _decode_any_form(record: bytes | memoryview) -> dict[str, FlatValue | None]:
    """The values as protobuf reads them. Raises CorruptExampleError."""
    from registry.wire.example_pb2 import Example

    return message_values(parse_message(Example, record).features)


def parse_message(kind: type[M], record: bytes | memoryview) -> M:
    """Parse ``record`` as a message of this ``kind``; raises CorruptExampleError if it is invalid."""
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(bytes(record))
    except DecodeError as error:
        raise CorruptExampleError(
            f"these {len(record)} bytes are not a tf.train.{kind.__name__}: {error}",
            hint="Check whether the file contains another kind of message, or other data, such as lines of text.",
            details={"num_bytes": len(record), "start": record[:16].hex()},
        ) from error


def message_values(features: Any) -> dict[str, FlatValue | None]:
    """The values of a message Features."""
    return {name: message_value(feature) for name, feature in features.feature.items()}


def message_value(feature: Any) -> FlatValue | None:
    """The values of a message Feature, or None if it has no list."""
    match feature.WhichOneof("kind"):
        case "int64_list":
            integers = feature.int64_list.value
            return np.fromiter(integers, dtype=np.int64, count=len(integers))
        case "float_list":
            return _floats(feature.float_list)
        case "bytes_list":
            return list(feature.bytes_list.value)
    return None


def _floats(float_list: Any) -> npt.NDArray[np.float32]:
    """The values of a message FloatList with all bits as stored: read from its serialized bytes, one packed run."""
    float_list.DiscardUnknownFields()
    size = _STORED_FLOAT.itemsize * len(float_list.value)
    packed = float_list.SerializeToString()
    return np.frombuffer(packed[len(packed) - size :], dtype=_STORED_FLOAT).astype(_FLOAT32)


Steps: TypeAlias = list[FlatValue | None]
"""The flat values of one feature list, one for each step; None for a step without a list."""


class SequenceValues(NamedTuple):
    """The values of a tf.train.SequenceExample.

    Attributes:
        context: flat values by key; None for a feature without a kind.
        lists: the steps of each feature list, by key.
    """

    context: dict[str, FlatValue | None]
    lists: dict[str, Steps]


def encode_sequence_example(
    context: Mapping[str, FlatValue | None], lists: Mapping[str, Sequence[FlatValue | None]]
) -> bytes:
    """The serialized tf.train.SequenceExample of ``context`` and ``lists``: the same values give the same bytes.

    Keys are sorted by their UTF-8 bytes. An empty array or list keeps its kind; None is a feature without a kind. A
    feature list may have zero steps. An empty context and empty lists take no bytes.

    >>> import numpy as np
    >>> encode_sequence_example({"s": np.array([5])}, {"t": [[b"a"], [b"b"]]}).hex()
    '0a0c0a0a0a017312051a030a010512150a130a0174120e0a050a030a01610a050a030a0162'

    Raises:
        FeatureError: a value is neither a 1-d array of int64 or float32 nor a list of bytes.
    """
    pieces = features_pieces(context, _pieces_of)
    if pieces:
        pieces.insert(0, write_head(FIELD_1, sum(map(len, pieces))))
    if found := features_pieces(lists, _pieces_of_steps):
        pieces += [write_head(FIELD_2, sum(map(len, found))), *found]
    return b"".join(pieces)


def _pieces_of(key: str, value: FlatValue | None) -> tuple[bytes, list[bytes], int]:
    return (b"", [], 0) if value is None else feature_pieces(key, value)


def _pieces_of_steps(key: str, steps: Sequence[FlatValue | None]) -> tuple[bytes, list[bytes], int]:
    """A message FeatureList in pieces: a head and a Feature for each step."""
    result: list[bytes] = []
    for head, content, size in (_pieces_of(key, step) for step in steps):
        result += [write_head(FIELD_1, len(head) + size), head, *content]
    return b"", result, sum(map(len, result))


def decode_sequence_example(record: bytes | memoryview) -> SequenceValues:
    """The flat values of a serialized tf.train.SequenceExample. Arrays are new, and bytes are copied.

    Values may be packed or not. Unknown fields are skipped. If a key occurs twice, the last one counts.

    Raises:
        CorruptExampleError: the bytes are not a tf.train.SequenceExample.
    """
    try:
        return _decode_common_sequence(record)
    except (OtherFormError, IndexError, ValueError):  # ValueError: a name that is not UTF-8, or a bad varint
        return _decode_any_sequence(record)


def _decode_common_sequence(record: bytes | memoryview) -> SequenceValues:
    """The values, where each field occurs once, in the order of its number, and lists are packed.

    Raises:
        OtherFormError, IndexError, ValueError: anything else.
    """
    end, position = len(record), 0
    context: dict[str, FlatValue | None] = {}
    lists: dict[str, Steps] = {}
    if position < end and record[position] == FIELD_1:
        size, start = read_varint(record, position + 1)
        position = start + size
        if position > end:
            raise OtherFormError
        context = read_map(record, start, position, read_feature)
    if position < end:
        lists = read_map(record, enter_field(record, FIELD_2, position, end), end, _read_steps)
    return SequenceValues(context, lists)


def _read_steps(record: bytes | memoryview, position: int, end: int) -> Steps:
    """The steps of a message FeatureList, ``record[position:end]``."""
    steps: Steps = []
    while position < end:
        if record[position] != FIELD_1:
            raise OtherFormError
        size, start = read_varint(record, position + 1)
        position = start + size
        if position > end:
            raise OtherFormError
        steps.append(read_feature(record, start, position))
    return steps


def _decode_any_sequence(record: bytes | memoryview) -> SequenceValues:
    """The values as protobuf reads them. Raises CorruptExampleError."""
    from registry.wire.example_pb2 import SequenceExample

    message = parse_message(SequenceExample, record)
    result = message.feature_lists.feature_list.items()
    return SequenceValues(
        message_values(message.context),
        {name: [message_value(step) for step in steps.feature] for name, steps in result},
    )
