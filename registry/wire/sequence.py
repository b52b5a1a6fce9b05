"""What does a record of steps hold? One tf.train.SequenceExample as flat values: the context's, and those of each step.

Its context has the form of an Example, so it is read as one is; feature lists are read here in the form that every
known writer produces, and by protobuf in any other.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from registry.wire.codec import (
    FIELD_1,
    FIELD_2,
    FlatValue,
    OtherFormError,
    enter_field,
    message_value,
    message_values,
    parse_message,
    read_feature,
    read_features,
    read_map,
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
