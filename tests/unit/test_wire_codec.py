"""tf.train.Example bytes: ours, protobuf's and TensorFlow's are the same, and damage is an error."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from support.golden import check_errors

from registry.errors import CorruptExampleError, FeatureError
from registry.storage import open_store
from registry.tfrecord import read_records
from registry.wire import FlatValue, decode_example, decode_features, encode_example
from registry.wire.codec import _decode_any_form, _decode_common_form
from registry.wire.example_pb2 import Example, Feature, SequenceExample
from registry.wire.varint import read_varints, write_varints

GOLDEN = Path(__file__).with_name("golden")

CONFORMANCE = Path(__file__).parents[1] / "conformance" / "tfrecord"
FILES = [name for name in open_store(CONFORMANCE).list() if "tfrecord" in name]


def same(one: dict[str, FlatValue], other: dict[str, FlatValue]) -> bool:
    """Whether two examples are alike in every kind and bit."""
    if one.keys() != other.keys():
        return False
    for key, value in one.items():
        against = other[key]
        if isinstance(value, np.ndarray) and isinstance(against, np.ndarray):
            if value.dtype != against.dtype or value.tobytes() != against.tobytes():
                return False
        elif isinstance(value, np.ndarray) or isinstance(against, np.ndarray) or value != against:
            return False
    return True


EXAMPLE: dict[str, FlatValue] = {
    "é": [b"", b"\x00\xff", b"x" * 300],
    "label": np.array([5]),
    "signs": np.array([-1, 0, 127, 128, 2**63 - 1, -(2**63)]),
    "embedding": np.array([0.5, -0.0, np.inf, 1e-45], np.float32),
    "no bytes": [],
    "no integers": np.array([], np.int64),
    "no floats": np.array([], np.float32),
    "pixels": np.arange(1000) % 256,
    "ids": np.arange(300) * 2**40 - 2**47,
}


def protobuf_of(values: dict[str, FlatValue]) -> Example:
    """The same example, put together by protobuf."""
    example = Example()
    example.features.SetInParent()
    for key, value in values.items():
        feature = example.features.feature[key]
        if isinstance(value, list):
            feature.bytes_list.SetInParent()
            feature.bytes_list.value.extend(value)
        elif value.dtype == np.int64:
            feature.int64_list.SetInParent()
            feature.int64_list.value.extend(value.tolist())
        else:
            feature.float_list.SetInParent()
            feature.float_list.value.extend(value.tolist())
    return example


def test_the_bytes_equal_those_of_protobuf_with_sorted_keys() -> None:
    assert encode_example(EXAMPLE) == protobuf_of(EXAMPLE).SerializeToString(deterministic=True)
    assert encode_example(dict(reversed(EXAMPLE.items()))) == encode_example(EXAMPLE)


def test_a_key_sorts_before_longer_keys_that_begin_with_it() -> None:
    # protobuf's C runtime puts the longer one first, its C++ runtime the shorter: one more reason to write bytes here.
    assert list(decode_example(encode_example({"ab": [], "a": [], "b": [], "": []}))) == ["", "a", "ab", "b"]


def test_an_example_comes_back_as_it_was() -> None:
    assert same(decode_example(encode_example(EXAMPLE)), EXAMPLE)
    assert decode_example(encode_example({})) == decode_example(b"") == {}


def test_decoded_arrays_are_native_and_may_be_written_to() -> None:
    for value in decode_example(encode_example(EXAMPLE)).values():
        if isinstance(value, np.ndarray):
            assert value.flags.writeable
            assert value.flags.owndata or value.base is not None
            assert value.dtype.isnative


def test_strided_and_foreign_arrays_are_encoded_by_value() -> None:
    integers, floats = np.arange(100) * 1000, np.linspace(0, 1, 100, dtype=np.float32)
    plain = encode_example({"i": integers[::3].copy(), "f": floats[::-2].copy()})
    assert encode_example({"i": integers[::3], "f": floats[::-2]}) == plain


@pytest.mark.parametrize("name", FILES)
def test_files_of_tensorflow_are_decoded_without_protobuf_and_as_by_it(name: str) -> None:
    for record in read_records(open_store(CONFORMANCE), name):
        decoded = _decode_common_form(record)
        assert same(decoded, _decode_any_form(record))
        assert same(decode_example(record), decoded)
        again = encode_example(decoded)
        assert len(again) == len(record)
        assert again == Example.FromString(record).SerializeToString(deterministic=True)


def test_the_values_of_a_file_of_tensorflow() -> None:
    store = open_store(CONFORMANCE)
    images = list(map(decode_example, read_records(store, "lab_mnist-test.tfrecord-00001-of-00008")))
    assert {key for image in images for key in image} == {"image", "label"}
    assert all(image["image"][0].startswith(b"\x89PNG\r\n") for image in images)
    assert images[-1]["label"].tolist() == [6]  # type: ignore[union-attr] # int64, so an array
    (*_, patch) = read_records(store, "F1_patch2x2_kernel2x2-00000.tfrecord.gz")
    rows = [24, 25, 26, 27, 34, 35, 36, 37, 44, 45, 46, 47, 54, 55, 56, 57]
    assert decode_example(patch)["b1"].tolist() == rows  # type: ignore[union-attr] # float32, so an array


UNUSUAL: dict[str, tuple[str, dict[str, FlatValue] | None]] = {
    "unpacked": ("0a120a100a0161120b1a09080108ac0208ffff03", {"a": np.array([1, 300, 65535])}),
    "unpacked floats": ("0a130a110a0161120c120a0d0000003f0d000000bf", {"a": np.array([0.5, -0.5], np.float32)}),
    "packed in two runs": ("0a100a0e0a016112091a070a01010a020203", {"a": np.array([1, 2, 3])}),
    "packed and unpacked": ("0a0f0a0d0a016112081a060a0201020803", {"a": np.array([1, 2, 3])}),
    "no kind": ("0a070a050a01611200", {"a": []}),
    "no value": ("0a050a030a0161", {"a": []}),
    "no name": ("0a080a0612041a020a00", {"": np.array([], np.int64)}),
    "value before name": ("0a0c0a0a12051a030a01050a0161", {"a": np.array([5])}),
    "a name twice": ("0a180a0a0a016112051a030a01050a0a0a016112051a030a0106", {"a": np.array([6])}),
    "unknown field in the example": ("0a0c0a0a0a016112051a030a01051001", {"a": np.array([5])}),
    "unknown field in the feature": ("0a0e0a0c0a016112071a030a01052001", {"a": np.array([5])}),
    "unknown kind": ("0a0b0a090a0161120422026162", {"a": []}),
    "two kinds": ("0a110a0f0a0161120a1a030a010512030a0000"[:-2], None),
    "features in two parts": ("0a0c0a0a0a016112051a030a01050a0c0a0a0a016212051a030a0106", None),
    "a long length": ("0a8c000a0a0a016112051a030a0105", {"a": np.array([5])}),
}


@pytest.mark.parametrize(("text", "expected"), UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_forms_are_read_as_protobuf_reads_them(text: str, expected: dict[str, FlatValue] | None) -> None:
    record = bytes.fromhex(text)
    try:
        by_protobuf = _decode_any_form(record)
    except CorruptExampleError:
        assert expected is None
        with pytest.raises(CorruptExampleError):
            decode_example(record)
        return
    assert same(decode_features(record), by_protobuf)
    assert expected is None or same(decode_example(record), expected)


@pytest.mark.parametrize(
    "record",
    [
        b"\x00",
        b"garbage",
        b"\x0a\x05abc",
        bytes.fromhex("0a0c0a0a0a01ff12051a030a0105"),  # the name is not UTF-8
        bytes.fromhex("0a0c0a0a0a016112051a030a0185"),  # a varint without an end
        bytes.fromhex("0a0c0a0a0a0161120512030a0105"),  # a float of one byte
        bytes.fromhex("0a170a150a016112101a0e0a0cffffffffffffffffffffff01"),  # eleven bytes
        encode_example(EXAMPLE)[:-1],
    ],
)
def test_bytes_that_are_not_an_example_are_an_error(record: bytes) -> None:
    with pytest.raises(CorruptExampleError, match=f"these {len(record)} bytes are not a tf.train.Example") as caught:
        decode_example(record)
    assert caught.value.details["num_bytes"] == len(record)
    assert caught.value.hint == (
        "Check whether the file contains another kind of message, or other data, such as lines of text."
    )


def test_other_values_are_refused() -> None:
    check_errors(
        GOLDEN / "wire_codec" / "other_values_are_refused.txt",
        (
            partial(encode_example, {"a": value})
            for value in [
                np.zeros(2, np.int32),
                np.zeros(2),
                np.zeros((1, 2), np.int64),
                np.array(5),
                np.array([b"x"]),
                b"bytes",
                "text",
                ["text"],
                [3],
                (1.5, 2),
                5,
                np.int64(5),
                None,
            ]
        ),
    )


def test_a_name_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(FeatureError, match="is not valid Unicode"):
        encode_example({"\ud800": []})


def test_every_bit_of_a_float_survives() -> None:
    bits = np.array([0x7F800001, 0xFF812345, 0x7FC00000, 0x80000000, 0x00000001, 0xFFFFFFFF], np.uint32)
    decoded = decode_example(encode_example({"a": bits.view(np.float32)}))["a"]
    assert isinstance(decoded, np.ndarray)
    assert decoded.view(np.uint32).tolist() == bits.tolist()


def test_integers_of_every_width() -> None:
    for width, count in product(range(1, 65), (1, 5, 20, 400)):
        low = 1 << width - 1
        values = np.array([low + index % low for index in range(count)], np.uint64).view(np.int64)
        packed = write_varints(values)
        assert len(packed) == count * -(-width // 7)
        assert read_varints(packed, 0, len(packed)).tolist() == values.tolist()
        for cut in range(1, min(len(packed), -(-width // 7))):
            with pytest.raises((ValueError, IndexError)):
                read_varints(packed[:-cut], 0, len(packed) - cut)


def test_a_long_run_of_integers_is_encoded_block_by_block() -> None:
    values = np.arange(200_000) * 7919 - 10**9
    packed = write_varints(values)
    assert (read_varints(b"\x00" + packed + b"\x00", 1, len(packed) + 1) == values).all()


def test_the_bytes_do_not_depend_on_the_process() -> None:
    script = (
        "import numpy as np\n"
        "from registry.wire import encode_example\n"
        "values = {k: np.array([1]) for k in {f'name {i}' for i in range(50)}}\n"
        "print(encode_example(values).hex())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2", "77")
    }
    assert len(outputs) == 1


def test_the_usual_form_needs_no_protobuf() -> None:
    script = (
        "import sys\n"
        "from registry.wire import decode_example, encode_example\n"
        "decode_example(encode_example({'a': [b'x']}))\n"
        "assert 'google.protobuf' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_messages_have_a_package_of_their_own_and_tensorflows_fields() -> None:
    assert Example.DESCRIPTOR.full_name == "registry.wire.Example"
    assert Example.DESCRIPTOR.file.name == "registry/wire/example.proto"
    assert {field.name: field.number for field in Feature.DESCRIPTOR.fields} == {
        "bytes_list": 1,
        "float_list": 2,
        "int64_list": 3,
    }
    sequence = SequenceExample()
    sequence.context.feature["length"].int64_list.value.append(1)
    sequence.feature_lists.feature_list["frames"].feature.add().bytes_list.value.append(b"x")
    assert sequence.SerializeToString().hex() == (
        "0a110a0f0a066c656e67746812051a030a0101" + "12130a110a066672616d657312070a050a030a0178"
    )


def test_importing_the_generated_code_raises_no_warning() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", "import registry.wire.example_pb2"], check=True)
