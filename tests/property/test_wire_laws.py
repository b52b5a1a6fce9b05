"""Laws of the tf.train.Example codec, over any flat values and any bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import CorruptExampleError
from registry.wire import (
    FlatValue,
    RecordDecoder,
    decode_example,
    decode_features,
    decode_sequence_example,
    encode_example,
    encode_sequence_example,
)
from registry.wire.codec import _decode_any_form, _decode_any_sequence
from registry.wire.example_pb2 import Example, Feature, SequenceExample
from registry.wire.gather import take_ragged

NUMBERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(0, 300))
INTEGERS = st.lists(NUMBERS, max_size=40).map(lambda values: np.array(values, np.int64))
# Bit patterns, so that NaN payloads, signalling NaNs and -0.0 are all among them.
BITS = st.one_of(st.integers(0, 2**32 - 1), st.integers(0x7F800000, 0x7FFFFFFF), st.just(0x80000000))
FLOATS = st.lists(BITS, max_size=40).map(lambda bits: np.array(bits, np.uint32).view(np.float32))
BYTES = st.lists(st.binary(max_size=150), max_size=5)
FLAT_VALUES = st.one_of(INTEGERS, FLOATS, BYTES)
EXAMPLES = st.dictionaries(st.text(max_size=10).filter(str.isprintable), FLAT_VALUES, max_size=6)


def bits_of(values: dict[str, FlatValue]) -> dict[str, object]:
    """A key that is equal for two examples with equal kinds, lengths and bits."""
    return {
        key: (value.dtype, value.tobytes()) if isinstance(value, np.ndarray) else value for key, value in values.items()
    }


def decoded_or_none(decode: object, record: bytes) -> dict[str, object] | None:
    try:
        return bits_of(decode(record))  # type: ignore[operator] # one of two functions
    except CorruptExampleError:
        return None


@given(EXAMPLES)
def test_an_example_comes_back_bit_for_bit(values: dict[str, FlatValue]) -> None:
    assert bits_of(decode_example(encode_example(values))) == bits_of(values)


@given(EXAMPLES, st.randoms())
def test_the_order_of_the_keys_changes_nothing(values: dict[str, FlatValue], random: object) -> None:
    keys = list(values)
    random.shuffle(keys)  # type: ignore[attr-defined] # a random.Random
    assert encode_example({key: values[key] for key in keys}) == encode_example(values)


@given(EXAMPLES)
def test_protobuf_reads_what_is_encoded_and_would_write_the_same(values: dict[str, FlatValue]) -> None:
    assert set(Example.FromString(encode_example(values)).features.feature) == set(values)
    for key, value in values.items():  # one by one: protobuf orders "ab" before "a"
        record = encode_example({key: value})
        # Signalling NaNs keep their bits in protobuf's own memory, so its bytes are ours.
        assert Example.FromString(record).SerializeToString() == record
    assert [key.encode() for key in decode_example(encode_example(values))] == sorted(key.encode() for key in values)


@given(EXAMPLES, st.data())
def test_damaged_bytes_are_read_as_protobuf_reads_them(values: dict[str, FlatValue], data: st.DataObject) -> None:
    record = bytearray(encode_example(values))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(record) - 1))
        record[place] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from([0x0A, 0x12, 0x1A, 0x80, 0x01])))
    ours = decoded_or_none(decode_features, bytes(record))
    theirs = decoded_or_none(_decode_any_form, bytes(record))
    assert quiet(ours) == quiet(theirs)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_protobuf_reads_them(record: bytes) -> None:
    ours = decoded_or_none(decode_features, record)
    assert quiet(ours) == quiet(decoded_or_none(_decode_any_form, record))


@given(st.lists(EXAMPLES, max_size=4), st.data())
def test_a_decoder_that_remembers_other_records_reads_the_same(
    examples: list[dict[str, FlatValue]], data: st.DataObject
) -> None:
    decoder = RecordDecoder()
    records = [encode_example(values) for values in examples]
    for record in [*records, *records]:
        changed = bytearray(record)
        for _ in range(data.draw(st.integers(0, 2)) if record else 0):
            changed[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
        expected = decoded_or_none(decode_example, bytes(changed))
        assert decoded_or_none(decoder.decode, bytes(changed)) == expected
        assert decoded_or_none(decoder.decode, memoryview(bytes(changed))) == expected


def quiet(values: dict[str, object] | None) -> dict[str, object] | None:
    """The same with every NaN quiet: protobuf's Python hands floats out as doubles, which makes them so."""
    if values is None:
        return None
    made = dict(values)
    for key, value in values.items():
        if isinstance(value, tuple) and value[0] == np.float32:
            bits = np.frombuffer(value[1], np.uint32).copy()
            bits[(bits & 0x7FFFFFFF) > 0x7F800000] |= 0x00400000
            made[key] = (value[0], bits.tobytes())
    return made


STEPS = st.lists(st.one_of(FLAT_VALUES, st.none()), max_size=4)
LISTS = st.dictionaries(st.text(max_size=6).filter(str.isprintable), STEPS, max_size=3)


def feature_of(value: FlatValue | None) -> Feature:
    """The message of one value."""
    if value is None:
        return Feature()
    return Example.FromString(encode_example({"x": value})).features.feature["x"]


def sequence_bits(record: bytes, decode: object) -> object:
    """A key that is equal for two equal SequenceExamples; None for invalid bytes."""
    try:
        context, lists = decode(record)  # type: ignore[operator] # one of two functions
    except CorruptExampleError:
        return None
    steps = {(key, at): step for key, values in lists.items() for at, step in enumerate(values)}
    sizes = {key: len(values) for key, values in lists.items()}
    return quiet(bits_of(context)), quiet(bits_of(steps)), sizes


@given(EXAMPLES, LISTS, st.data())
def test_steps_are_read_as_protobuf_reads_them(
    context: dict[str, FlatValue], lists: dict[str, list[FlatValue | None]], data: st.DataObject
) -> None:
    message = SequenceExample()
    for key, value in context.items():
        message.context.feature[key].CopyFrom(feature_of(value))
    for key, values in lists.items():
        message.feature_lists.feature_list[key].feature.extend(map(feature_of, values))
    record = message.SerializeToString()
    decoded = decode_sequence_example(record)
    assert {key: len(steps) for key, steps in decoded.lists.items()} == {key: len(lists[key]) for key in lists}
    for key, values in lists.items():
        for ours, given_ in zip(decoded.lists[key], values, strict=True):
            assert bits_of({"x": ours}) == bits_of({"x": given_})
    assert bits_of(decoded.context) == bits_of(context)
    damaged = bytearray(record)
    for _ in range(data.draw(st.integers(0, 3)) if record else 0):
        place = data.draw(st.integers(0, len(record) - 1))
        damaged[place] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from([0x0A, 0x12, 0x1A, 0x80, 0x01])))
    for some in (bytes(damaged), record[: data.draw(st.integers(0, len(record)))]):
        assert sequence_bits(some, decode_sequence_example) == sequence_bits(some, _decode_any_sequence)


KINDLESS = st.one_of(st.none(), FLAT_VALUES)
NAMES = st.text(max_size=10).filter(str.isprintable)
SEQUENCES = st.tuples(
    st.dictionaries(NAMES, KINDLESS, max_size=4),
    st.dictionaries(NAMES, st.lists(KINDLESS, max_size=4), max_size=4),
)
Sequences = tuple[dict[str, FlatValue | None], dict[str, list[FlatValue | None]]]


def values_bits(context: dict[str, FlatValue | None], lists: dict[str, list[FlatValue | None]]) -> object:
    """A key that is equal for two equal ones."""
    return bits_of(context), {key: list(bits_of(dict(enumerate(steps))).items()) for key, steps in lists.items()}  # type: ignore[arg-type] # any keys, and None


@given(SEQUENCES)
def test_a_sequence_example_comes_back_bit_for_bit(values: Sequences) -> None:
    decoded = decode_sequence_example(encode_sequence_example(*values))
    assert values_bits(*decoded) == values_bits(*values)
    assert [key.encode() for key in decoded.lists] == sorted(key.encode() for key in values[1])


@given(SEQUENCES)
def test_protobuf_would_write_the_same_sequence_example(values: Sequences) -> None:
    context, lists = values
    message = SequenceExample.FromString(encode_sequence_example(context, lists))
    assert (set(message.context.feature), set(message.feature_lists.feature_list)) == (set(context), set(lists))
    for one in ({key: context[key]} for key in [*context][:1]):  # one by one: protobuf orders "ab" before "a"
        for few in [{key: lists[key]} for key in lists] or [{}]:
            record = encode_sequence_example(one, few)
            assert SequenceExample.FromString(record).SerializeToString(deterministic=True) == record


@given(SEQUENCES, st.randoms())
def test_the_order_of_keys_changes_no_sequence_example(values: Sequences, random: object) -> None:
    shuffled = []
    for one in values:
        keys = list(one)
        random.shuffle(keys)  # type: ignore[attr-defined] # a random.Random
        shuffled.append({key: one[key] for key in keys})  # type: ignore[index] # both are by name
    assert encode_sequence_example(*shuffled) == encode_sequence_example(*values)  # type: ignore[arg-type]


@given(
    st.lists(st.tuples(st.integers(0, 9999), st.one_of(st.integers(0, 40), st.integers(0, 9999))), max_size=30),
    st.sampled_from([1, 100]),
    st.sampled_from([1, 5]),
)
def test_pieces_of_any_sizes_are_copied_one_after_the_other(
    pieces: list[tuple[int, int]], repeats: int, unit: int
) -> None:
    data = np.random.default_rng(0).integers(0, 256, 10_000, np.uint8)
    pieces = [(start, min(size, (data.size - start)) // unit) for start, size in pieces] * repeats
    starts, counts = np.array(pieces, np.int64).reshape(-1, 2).T
    expected = b"".join(data[start : start + count * unit].tobytes() for start, count in pieces)
    assert take_ragged(data, starts.copy(), counts.copy(), unit).tobytes() == expected
