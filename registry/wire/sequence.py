"""What does a record of steps hold? One tf.train.SequenceExample as flat values: the context's, and those of each step.

Its context has the form of an Example, so it is read as one is; feature lists are read here in the form that every
known writer produces, and by protobuf in any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from registry.wire.codec import (
    FIELD_1,
    FIELD_2,
    FlatValue,
    OtherFormError,
    enter_field,
    feature_pieces,
    features_pieces,
    message_value,
    message_values,
    parse_message,
    read_feature,
    read_features,
    read_map,
    write_head,
    write_key,
)
from registry.wire.varint import read_varint

Steps: TypeAlias = list[FlatValue | None]
"""The flat values of one feature list, step by step; None for a step of no kind."""


class SequenceValues(NamedTuple):
    """What a tf.train.SequenceExample holds.

    Attributes:
        context: flat values by key; None for a feature of no kind.
        lists: the steps of each feature list by its key.
    """

    context: dict[str, FlatValue | None]
    lists: dict[str, Steps]


def encode_sequence_example(
    context: Mapping[str, FlatValue | None], lists: Mapping[str, Sequence[FlatValue | None]]
) -> bytes:
    """The serialized tf.train.SequenceExample of ``context`` and ``lists``: the same bytes for the same values.

    Keys are sorted by their UTF-8 bytes. An empty array or list keeps its kind, None is a feature of no kind. A feature
    list may have no steps; no context, or no lists at all, take no bytes.

    >>> import numpy as np
    >>> encode_sequence_example({"s": np.array([5])}, {"t": [[b"a"], [b"b"]]}).hex()
    '0a0c0a0a0a017312051a030a010512150a130a0174120e0a050a030a01610a050a030a0162'

    Raises:
        FeatureError: a value is neither a 1-d array of int64 or float32 nor a list of bytes.
    """
    pieces = features_pieces(context, _pieces_of)
    if pieces:
        pieces.insert(0, write_head(FIELD_1, sum(map(len, pieces))))
    entries = []
    for key, steps in lists.items():
        name, content = write_key(key), b"".join([_encode_step(key, step) for step in steps])
        entry_start = write_head(FIELD_1, len(name)) + name + write_head(FIELD_2, len(content))
        entries.append((name, [write_head(FIELD_1, len(entry_start) + len(content)), entry_start, content]))
    if entries:
        entries.sort()
        found = [piece for _, entry in entries for piece in entry]
        pieces += [write_head(FIELD_2, sum(map(len, found))), *found]
    return b"".join(pieces)


def _pieces_of(key: str, value: FlatValue | None) -> tuple[bytes, list[bytes], int]:
    return (b"", [], 0) if value is None else feature_pieces(key, value)


def _encode_step(key: str, step: FlatValue | None) -> bytes:
    """One step of a message FeatureList, with its head."""
    head, content, size = _pieces_of(key, step)
    return b"".join([write_head(FIELD_1, len(head) + size), head, *content])


def decode_sequence_example(record: bytes | memoryview) -> SequenceValues:
    """The flat values of a serialized tf.train.SequenceExample; arrays are new, and bytes are copied.

    Values may be packed or not; unknown fields are passed over; of a key that stands twice, the last counts.

    Raises:
        CorruptExampleError: the bytes are no tf.train.SequenceExample.
    """
    try:
        return _decode_common_form(record)
    except (OtherFormError, IndexError, ValueError):  # ValueError: a name that is not UTF-8, or a bad varint
        return _decode_any_form(record)


def _decode_common_form(record: bytes | memoryview) -> SequenceValues:
    """The values, where each field stands once, in the order of its number, and lists are packed.

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
        context = read_features(record, start, position)
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


def _decode_any_form(record: bytes | memoryview) -> SequenceValues:
    """The values as protobuf reads them, or the error that there are none."""
    from registry.wire.example_pb2 import SequenceExample

    message = parse_message(SequenceExample, record)
    found = message.feature_lists.feature_list.items()
    return SequenceValues(
        message_values(message.context),
        {name: [message_value(step) for step in steps.feature] for name, steps in found},
    )
