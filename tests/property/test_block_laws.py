"""Laws of blocks: a record decoded in a block gives the same values as one decoded alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property.test_wire_laws import EXAMPLES
from support.block_checks import check, joined
from support.feature_strategies import schemas, values

from registry.errors import CorruptExampleError
from registry.features import (
    FeaturesDict,
    Image,
    NestedExamples,
    Ragged,
    codec_of,
    features_from_json,
    features_to_json,
)
from registry.features.content import ContentReader
from registry.shards.blocks import ScatteredBlock, decode_block
from registry.slim.data_decoder import DataDecoder
from registry.slim.versions import FeaturesDecoder
from registry.tfrecord import RecordBlock
from registry.wire import decode_example, encode_example


@st.composite
def schemas_and_records(draw: st.DrawFn) -> tuple[FeaturesDict, list[bytes]]:
    """A schema and records of it; a few different ones, each of them maybe many times."""
    features = draw(schemas())
    different = [codec_of(features).encode(values(draw, features)) for _ in range(draw(st.integers(0, 4)))]
    order = draw(st.lists(st.sampled_from(range(len(different))), max_size=40)) if different else []
    return features, [different[place] for place in order] * draw(st.sampled_from([1, 2, 5, 10]))


def exact(value: Any) -> Any:
    """A key that is equal for two decoded values with equal types, dtypes, shapes and bits."""
    if isinstance(value, dict):
        return {name: exact(inner) for name, inner in value.items()}
    if isinstance(value, NestedExamples):
        return NestedExamples, repr(value._tree), exact(value.columns())
    if isinstance(value, Ragged):
        return Ragged, exact(value.flat_values), [exact(level) for level in value.row_lengths]
    if isinstance(value, np.ma.MaskedArray):
        return np.ma.MaskedArray, value.mask.shape, value.mask.tolist(), exact(value.data)
    if isinstance(value, np.ndarray):
        content = [exact(item) for item in value.flat] if value.dtype == object else value.tobytes()
        return np.ndarray, value.dtype, value.shape, value.flags.writeable, content
    if isinstance(value, np.generic):
        return type(value), value.tobytes()
    return type(value), value


def one_by_one(features: FeaturesDict, records: list[bytes]) -> tuple[list[Any], CorruptExampleError | None]:
    examples = []
    for record in records:
        try:
            examples.append(codec_of(features).restore(decode_example(record)))
        except CorruptExampleError as error:
            return examples, error
    return examples, None


def check_block(features: FeaturesDict, records: list[bytes]) -> None:
    """A block of ``records`` gives the same examples, the same columns and the same error as one record at a time."""
    expected, error = one_by_one(features, records)
    block = codec_of(features).decode_block(*joined(records))
    found = []
    if error is None:
        found.extend(block.examples())
        assert block.fault is None
    else:
        with pytest.raises(CorruptExampleError) as caught:
            found.extend(block.examples())
        assert (caught.value.message, caught.value.hint) == (error.message, error.hint)
        assert caught.value.details == {**error.details, "record": len(expected)}
        with pytest.raises(CorruptExampleError):
            block.columns()
    assert len(block) == len(expected)
    assert [exact(example) for example in found] == [exact(example) for example in expected]
    check_columns(block.sound.columns(), expected)


def check_scattered(features: FeaturesDict, records: list[bytes], order: list[int], num_parts: int) -> None:
    """Records of several buffers give the examples and the error of one record at a time, with and without copies."""
    parts = [RecordBlock(*joined(records[start::num_parts])) for start in range(num_parts)]
    in_parts = [number for start in range(num_parts) for number in range(start, len(records), num_parts)]
    block = ScatteredBlock(tuple(parts), np.array([in_parts.index(number) for number in order], np.int64))
    ordered = [records[number] for number in order]
    assert block.records() == ordered
    assert block.num_bytes == sum(map(len, ordered))
    expected, error = one_by_one(features, ordered)
    for copy in (True, False):
        decoded = decode_block(features, block, copy=copy)
        assert (decoded.fault and decoded.fault.details) == (error and {**error.details, "record": len(expected)})
        examples = [exact(example if copy else as_bytes(example)) for example in decoded.sound.examples()]
        assert examples == [exact(example) for example in expected]
        check_columns(decoded.sound.columns(), expected)


def test_images_of_several_buffers_are_decoded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    features = FeaturesDict({"image": Image(shape=(4, 4, 3))})
    records = [codec_of(features).encode({"image": np.full((4, 4, 3), number, np.uint8)}) for number in range(60)]
    block = ScatteredBlock(tuple(RecordBlock(*joined(records[start::3])) for start in range(3)), np.arange(60)[::-1])
    calls, restore = [], Image.restore_block
    monkeypatch.setattr(Image, "restore_block", lambda *args: calls.append(args) or restore(*args))
    images = decode_block(features, block).columns()["image"]
    assert images[:, 0, 0, 0].tolist() == [number for start in (2, 1, 0) for number in range(57 + start, -1, -3)]
    assert len(calls) == 1, "not once for each buffer, and then copied into one array"


def check_columns(columns: dict[str, Any], examples: list[dict[str, Any]]) -> None:
    for name, column in columns.items():
        inner = [example[name] for example in examples]
        inner = [value.columns() if isinstance(value, NestedExamples) else value for value in inner]
        if isinstance(column, dict):
            check_columns(column, inner)
        else:
            assert len(column) == len(examples)
            assert [exact(as_bytes(value)) for value in values_in(column)] == [exact(value) for value in inner]


def values_in(column: Any) -> list[Any]:
    """The values of a column, one by one; None if masked. A value is masked completely or not at all."""
    if not isinstance(column, np.ma.MaskedArray):
        return list(column)
    assert column.mask.shape == column.shape
    missing = [bool(np.all(row)) for row in column.mask]
    assert missing == [bool(np.any(row)) for row in column.mask]
    return [None if lost else value for value, lost in zip(column.data, missing, strict=True)]


def as_bytes(value: Any) -> Any:
    """The same with memoryviews as bytes and arrays that may be written to."""
    if isinstance(value, dict):
        return {name: as_bytes(inner) for name, inner in value.items()}
    if isinstance(value, memoryview):
        assert value.readonly
        return bytes(value)
    return value.copy() if isinstance(value, np.ndarray) else value


@given(schemas_and_records())
def test_a_block_without_copies_has_the_same_values(given_: tuple[FeaturesDict, list[bytes]]) -> None:
    features, records = given_
    expected, _ = one_by_one(features, records)
    block = codec_of(features).decode_block(*joined(records), copy=False)
    assert [exact(as_bytes(example)) for example in block.examples()] == [exact(example) for example in expected]
    check_columns(block.columns(), expected)


@given(schemas_and_records(), st.booleans())
def test_a_record_alone_without_a_copy_has_the_same_value(
    given_: tuple[FeaturesDict, list[bytes]], is_damaged: bool
) -> None:
    features, records = given_
    for record in records:
        damaged_record = record[:-1] if is_damaged else record
        expected, error = one_by_one(features, [damaged_record])
        for form, copy in ((bytes, True), (memoryview, True), (memoryview, False)):
            if error is not None:
                with pytest.raises(CorruptExampleError) as caught:
                    codec_of(features).decode(form(damaged_record), copy=copy)
                assert caught.value.message == error.message
                continue
            example = codec_of(features).decode(form(damaged_record), copy=copy)
            assert exact(example if copy else as_bytes(example)) == exact(expected[0])


@given(schemas_and_records(), st.data(), st.integers(1, 4))
def test_records_of_several_buffers_are_the_records_one_by_one(
    given_: tuple[FeaturesDict, list[bytes]], data: st.DataObject, num_parts: int
) -> None:
    features, records = given_
    if data.draw(st.booleans()):
        records = data.draw(damaged(records))
    order = data.draw(st.lists(st.sampled_from(range(len(records))), max_size=100)) if records else []
    check_scattered(features, records, order, num_parts)


@given(schemas_and_records())
def test_a_block_is_its_records_one_by_one(given_: tuple[FeaturesDict, list[bytes]]) -> None:
    check_block(*given_)


@given(schemas_and_records(), st.data())
def test_a_block_with_unknown_features_is_its_records_one_by_one(
    given_: tuple[FeaturesDict, list[bytes]], data: st.DataObject
) -> None:
    features, records = given_
    tree = json.loads(features_to_json(features))
    entries = tree["featuresDict"].get("features", {})
    for name in data.draw(st.lists(st.sampled_from(sorted(entries)), max_size=2) if entries else st.just([])):
        entries[name]["pythonClassName"] = "my.Own"
    check_block(features_from_json(json.dumps(tree)), records)


@given(schemas_and_records())
def test_a_block_with_the_missing_values_of_tfds_is_its_records_one_by_one(
    given_: tuple[FeaturesDict, list[bytes]],
) -> None:
    features, records = given_
    check_block(features.missing_as_tfds(), records)


@st.composite
def damaged(draw: st.DrawFn, records: list[bytes]) -> list[bytes]:
    """The records, some of them many times, with a few bytes changed in some, or cut, or doubled."""
    order = draw(st.lists(st.sampled_from(range(len(records))), max_size=50)) if records else []
    found = [records[place] for place in order] * draw(st.integers(1, 12))
    byte = st.one_of(st.integers(0, 255), st.sampled_from([0x0A, 0x12, 0x1A, 0x08, 0x0D, 0x80, 0x00, 0x01]))
    for _ in range(draw(st.integers(0, 3))):
        if found:
            place = draw(st.integers(0, len(found) - 1))
            record = bytearray(found[place])
            at = draw(st.integers(0, len(record)))
            match draw(st.sampled_from(["change", "cut", "insert", "double"])):
                case "change" if at < len(record):
                    record[at] = draw(byte)
                case "cut":
                    del record[at:]
                case "insert":
                    record.insert(at, draw(byte))
                case "double":
                    record += bytes(record)
            found[place] = bytes(record)
    return found


@given(st.lists(EXAMPLES, max_size=4), st.data())
def test_flat_values_of_damaged_records_equal_those_of_each_record_alone(
    examples: list[Any], data: st.DataObject
) -> None:
    check(data.draw(damaged([encode_example(values) for values in examples])))


@given(st.lists(st.binary(max_size=20), max_size=4), st.data())
def test_flat_values_of_any_bytes_equal_those_of_each_record_alone(records: list[bytes], data: st.DataObject) -> None:
    check(data.draw(damaged([b"", b"\x0a\x07\x0a\x05\x0a\x01a\x12\x00", *records])))


def check_content(features: FeaturesDict, records: list[bytes]) -> None:
    """The content of a block equals that of its records in order, unless one of them has no content alone."""
    reader = ContentReader(features)
    try:
        expected = [b"".join(column) for column in zip(*map(reader.read, records), strict=True)]
    except CorruptExampleError:
        expected = None
    try:
        block = codec_of(features).flat_records(*joined(records))
        runs = reader.read_block(block, [0, len(records)])
        reported = [b"".join(bytes(buffer) for buffers in run for buffer in buffers) for run in runs]
    except CorruptExampleError:
        reported = None
    assert reported == (expected if records else [b""] * len(reader.paths))


@given(schemas_and_records())
def test_the_content_of_a_block_equals_that_of_its_records(given_: tuple[FeaturesDict, list[bytes]]) -> None:
    check_content(*given_)


@given(schemas_and_records(), st.data())
def test_damaged_records_have_no_content_in_a_block_if_they_have_none_alone(
    given_: tuple[FeaturesDict, list[bytes]], data: st.DataObject
) -> None:
    features, records = given_
    check_content(features, data.draw(damaged(records)))


@given(schemas_and_records(), st.data())
def test_a_block_of_damaged_records_is_its_records_one_by_one(
    given_: tuple[FeaturesDict, list[bytes]], data: st.DataObject
) -> None:
    features, records = given_
    check_block(features, data.draw(damaged(records)))


@given(schemas_and_records(), st.randoms(use_true_random=False))
def test_columns_of_a_version_for_tf_slim_are_its_rows(drawn: tuple[FeaturesDict, list[bytes]], random: Any) -> None:
    features, records = drawn
    decoder = FeaturesDecoder(features)
    items = random.choices(list(features), k=random.randint(1, 4)) if features else []
    columns, by_rows = (
        kind.decode_batch(decoder, records, items)  # type: ignore[arg-type]  # the second is its base class
        for kind in (FeaturesDecoder, DataDecoder)
    )
    assert [exact(column) for column in columns] == [exact(column) for column in by_rows]
