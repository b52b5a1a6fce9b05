"""Errors of decoders, features and handlers of TF-Slim: whole messages and hints."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.slim_record_samples import FLOATS, LABEL, NUMBERS, decode, decode_steps, example, steps

from registry import slim
from registry.errors import CorruptExampleError, RegistryError, WrongTypeError
from registry.wire.example_pb2 import Example, Feature, SequenceExample

DECODER: Any = slim.TFExampleDecoder({"a": LABEL}, {"item": slim.Tensor("a")})
STEPS_DECODER: Any = slim.TFSequenceExampleDecoder({"a": LABEL}, {}, {"item": slim.Tensor("a")})


class Tensor(ctypes.c_int64 * 1):  # type: ignore[misc] # it has a buffer, as tensors have
    """As TensorFlow's: a buffer of something, and ``numpy``."""

    def numpy(self) -> bytes:
        return b""

    def __repr__(self) -> str:
        return "<a tensor of TensorFlow>"


MAY_GO_WITHOUT = "If records may lack it, declare a default_value, or a VarLenFeature."

WRONG_RECORDS: list[tuple[Callable[[], Any], str, str]] = [
    (
        lambda: decode(slim.Tensor("a"), example(b=[1]), a=LABEL),
        "feature 'a' (int64) is required, and the record does not hold it",
        f"The record holds b. {MAY_GO_WITHOUT}",
    ),
    (
        lambda: decode(slim.Tensor("lable"), example(id=[1], label=[2]), lable=LABEL),
        "feature 'lable' (int64) is required, and the record does not hold it",
        f"Did you mean 'label'? The record holds id, label. {MAY_GO_WITHOUT}",
    ),
    (
        lambda: decode(slim.Tensor("a"), example(**{f"name {number}": [1] for number in range(7)}), a=LABEL),
        "feature 'a' (int64) is required, and the record does not hold it",
        f"The record holds name 0, name 1, name 2, name 3, name 4 and 2 more. {MAY_GO_WITHOUT}",
    ),
    (
        lambda: DECODER.decode(Example(features={"feature": {"a": Feature()}}).SerializeToString()),
        "feature 'a' (int64) is required, and the record does not hold it",
        f"The record holds no features. {MAY_GO_WITHOUT}",
    ),
    (
        lambda: decode(slim.Tensor("a"), example(a=[0.5]), a=LABEL),
        "feature 'a': expected int64 values, found float32",
        "Values are not converted: declare the stored dtype, and convert in a handler.",
    ),
    (
        lambda: decode(slim.Tensor("a"), example(a=[b"x"]), a=FLOATS),
        "feature 'a': expected float32 values, found string",
        "Values are not converted: declare the stored dtype, and convert in a handler.",
    ),
    (
        lambda: decode(slim.Tensor("a"), example(a=[1, 2]), a=LABEL),
        "feature 'a': expected 1 for the shape [], found 2 values",
        "Declare the shape that was written, or a VarLenFeature if records differ.",
    ),
    (
        lambda: decode(slim.Tensor("a"), example(a=[1, 2, 3]), a=slim.FixedLenSequenceFeature([2], "int64", True)),
        "feature 'a': expected elements of shape [2], found 3 values",
        "Declare the shape with which one element was written.",
    ),
    (
        lambda: decode(slim.Tensor("a"), example(i=[1], v=[1.0, 2.0]), a=slim.SparseFeature("i", "v", "float32", 5)),
        "feature 'a' has 2 values in 'v' and 1 indices in 'i'",
        "The program that wrote this record lost some of them. Write the record again.",
    ),
    (
        lambda: decode(slim.Tensor("a"), example(i=[1, 5], v=[1.0, 2.0]), a=slim.SparseFeature("i", "v", "float32", 5)),
        "feature 'a': index 1, [5], is outside of the shape [5]",
        "Pass the shape that was written: shape= or shape_key= of the handler, size of a SparseFeature.",
    ),
    (
        lambda: decode(slim.Tensor("a", shape=[2, 2]), example(a=[1, 2, 3]), a=NUMBERS),
        "feature 'a': expected values of shape [2, 2], found 3 values",
        "A shape only arranges the stored values: it does not crop, pad or resize.",
    ),
    (
        lambda: decode(slim.SparseTensor("s", "a", shape=[9]), example(a=[1], s=[float("inf")]), a=NUMBERS, s=FLOATS),
        "feature 's' must hold indices, found a number that does not fit int64",
        "Store indices as int64.",
    ),
    (
        lambda: decode(
            slim.SparseTensor("s", "a", shape_key="n"), example(a=[1], s=[1], n=[2, 2]), a=NUMBERS, s=NUMBERS, n=NUMBERS
        ).to_dense(),
        "the indices have 1 dimensions, and the shape [2, 2] has 2",
        "Pass the shape that was written: shape= or shape_key= of the handler.",
    ),
    (
        lambda: decode(slim.Tensor("a", shape_keys="s"), example(a=[1], s=[-2]), a=NUMBERS, s=NUMBERS),
        "feature 'a': expected values of shape [-2], found 1 values",
        "A shape only arranges the stored values: it does not crop, pad or resize.",
    ),
    (
        lambda: decode(
            slim.SparseTensor(densify=True), example(indices=[1, 4], values=[1, 2]), indices=NUMBERS, values=NUMBERS
        ),
        "feature 'indices': index 1, [4], is outside of the shape [2]",
        "Pass the shape that was written: shape= or shape_key= of the handler, size of a SparseFeature.",
    ),
    (
        lambda: decode(
            slim.SparseTensor(shape=[6], densify=True),
            example(indices=[4, 1], values=[1, 2]),
            indices=NUMBERS,
            values=NUMBERS,
        ),
        "feature 'indices': index 1, [1], does not come after the one before it",
        "Write indices sorted, each once, or read them with SparseFeature, which sorts them.",
    ),
    (
        lambda: decode(
            slim.SparseTensor(shape=[6], densify=True),
            example(indices=[-1], values=[1]),
            indices=NUMBERS,
            values=NUMBERS,
        ),
        "feature 'indices': index 0, [-1], is outside of the shape [6]",
        "Pass the shape that was written: shape= or shape_key= of the handler, size of a SparseFeature.",
    ),
    (
        lambda: decode(
            slim.SparseTensor(shape=[6], densify=True),
            example(indices=[1, 1], values=[1, 2]),
            indices=NUMBERS,
            values=NUMBERS,
        ),
        "feature 'indices': index 1, [1], does not come after the one before it",
        "Write indices sorted, each once, or read them with SparseFeature, which sorts them.",
    ),
    (
        lambda: decode(
            slim.SparseTensor(shape_key="s", densify=True),
            example(indices=[1], values=[1], s=[2**40]),
            **dict.fromkeys(("indices", "values", "s"), NUMBERS),
        ),
        "feature 'indices': cannot create an array of shape [1099511627776] from this record",
        "Sizes must be 0 or more, and an array may have at most 2147483648 bytes. Keep it sparse.",
    ),
    (
        lambda: decode(
            slim.SparseTensor(shape=[2, 3]), example(indices=[1], values=[1]), indices=NUMBERS, values=NUMBERS
        ),
        "the indices 'indices' have 1 dimensions, and the shape [2, 3] has 2",
        "Pass the shape that was written: shape=, or shape_key= if records store it.",
    ),
    (
        lambda: decode(
            slim.BoundingBox(),
            example(ymin=[0.0, 1.0], xmin=[0.0], ymax=[1.0, 1.0], xmax=[1.0, 1.0]),
            **dict.fromkeys(("ymin", "xmin", "ymax", "xmax"), FLOATS),
        ),
        "expected the same number of values for each side of the boxes, found ymin 2, xmin 1, ymax 2, xmax 2",
        "The program that wrote this record lost some of them. Leave it out, or write it again.",
    ),
    (
        lambda: decode_steps(slim.KeypointsSequence(), steps(y=[[1.0]], x=[[1.0, 2.0]]), y=FLOATS, x=FLOATS),
        "the lists y, x differ in frames, or in the fullest frame: [[1, 1], [1, 2]]",
        "The program that wrote this record lost some of them. Leave it out, or write it again.",
    ),
    (
        lambda: decode_steps(slim.NumBoxesSequence(["y", "x"]), steps(y=[[1.0]], x=[[1.0, 2.0]]), y=FLOATS, x=FLOATS),
        "the frames have [1] values in 'y', and [2] in 'x'",
        "The program that wrote this record lost some of them. "
        "To count only the first list, pass check_consistency=False.",
    ),
    (
        lambda: decode_steps(slim.Tensor("y"), steps(x=[]), y=slim.FixedLenSequenceFeature([], "float32")),
        "feature list 'y' is required, and the record does not hold it",
        "To read a missing list as one without steps, pass allow_missing=True to FixedLenSequenceFeature.",
    ),
    (
        lambda: decode_steps(slim.Tensor("y"), steps(y=[[1], [1, 2]]), y=slim.FixedLenSequenceFeature([], "float32")),
        "step 1: feature list 'y': expected 1 for the shape [], found 2 values",
        "Declare the shape that was written, or a VarLenFeature if records differ.",
    ),
    (
        lambda: decode_steps(slim.Tensor("y"), steps(y=[[1], [1, 2]]), y=NUMBERS),
        "step 0: feature 'y': expected int64 values, found float32",
        "Values are not converted: declare the stored dtype, and convert in a handler.",
    ),
    (
        lambda: slim.TFSequenceExampleDecoder({"a": LABEL}, {}, {"a": slim.Tensor("a")}).decode(
            SequenceExample(context={"feature": {"a": Feature()}}).SerializeToString()
        ),
        "feature 'a' of the context is present, but has no list of values",
        "If a record has no value for it, leave its key out of the context.",
    ),
]


@pytest.mark.parametrize(("decoding", "message", "hint"), WRONG_RECORDS, ids=[one[1][:50] for one in WRONG_RECORDS])
def test_a_record_that_does_not_match_its_declaration_is_refused(
    decoding: Callable[[], Any], message: str, hint: str
) -> None:
    with pytest.raises(CorruptExampleError) as caught:
        decoding()
    assert (str(caught.value), caught.value.hint) == (message, hint)


WRONG_CALLS: list[tuple[Callable[[], Any], type[Exception], str, str]] = [
    (
        lambda: slim.TFExampleDecoder({"a": LABEL}, ["a"]),  # type: ignore[arg-type] # the mistake
        TypeError,
        "items_to_handlers must be a dict by name, not ['a']",
        "For example: TFExampleDecoder({'label': FixedLenFeature((), 'int64')}, {'label': Tensor('label')}).",
    ),
    (
        lambda: slim.TFExampleDecoder(None, {}),  # type: ignore[arg-type] # the mistake
        TypeError,
        "features must be a dict by name, not None",
        "For example: TFExampleDecoder({'label': FixedLenFeature((), 'int64')}, {'label': Tensor('label')}).",
    ),
    (
        lambda: slim.TFExampleDecoder({"a": LABEL}, {"a": slim.Tensor("a")}).decode(b"", "a"),
        TypeError,
        "items must be a list or tuple, not 'a'",
        "Name the items in brackets: ['image', 'label'].",
    ),
    (
        lambda: slim.FixedLenFeature([None], "int64"),
        ValueError,
        "FixedLenFeature needs a shape of known sizes, not [None]",
        "If the first size is unknown, use FixedLenSequenceFeature or VarLenFeature.",
    ),
    (
        lambda: slim.FixedLenFeature([], "float64"),
        TypeError,
        "the dtype of a feature must be int64, float32 or string, not 'float64'",
        "Declare the stored dtype, and convert the values: array.astype(...), or an ItemHandlerCallback.",
    ),
    (
        lambda: slim.FixedLenFeature([2], "int64", default_value=0),
        ValueError,
        "default_value=0 must have 2 values for the shape [2], not 1",
        "Pass a value for each element.",
    ),
    (
        lambda: slim.FixedLenFeature([1], "int64", default_value=0.5),
        TypeError,
        "default_value=0.5 does not have the feature's type, int64",
        "Pass a default of the declared type.",
    ),
    (
        lambda: slim.FixedLenFeature([], "string", default_value=0),
        TypeError,
        "default_value=0 does not have the feature's type, string",
        "Pass a default of the declared type.",
    ),
    (
        lambda: slim.FixedLenSequenceFeature([0], "int64"),
        ValueError,
        "elements of shape [0] have no values, so they cannot be counted",
        "Pass the shape of one element, or () if each is a single value.",
    ),
    (
        lambda: slim.SparseFeature(["i", "j"], "v", "int64", 5),
        ValueError,
        "SparseFeature has 2 index keys and 1 sizes",
        "Pass a size for each index key: SparseFeature(['row', 'column'], 'value', 'float32', [4, 6]).",
    ),
    (
        lambda: slim.TFExampleDecoder({"a": slim.FixedLenSequenceFeature([], "int64")}, {}),
        ValueError,
        "feature 'a' is a FixedLenSequenceFeature, which requires allow_missing=True in an Example",
        "In an Example, an empty list and a missing list are the same. Add allow_missing=True.",
    ),
    (
        lambda: slim.TFSequenceExampleDecoder({}, {"a": LABEL}, {}),
        ValueError,
        "feature 'a' must be one of FixedLenSequenceFeature, VarLenFeature, not "
        "FixedLenFeature(shape=(), dtype=dtype('int64'), default_value=None)",
        "For example: {'label': FixedLenFeature((), 'int64')}. See docs/slim.md.",
    ),
    (
        lambda: slim.TFSequenceExampleDecoder({"a": LABEL}, {"a": NUMBERS}, {}),
        ValueError,
        "context and sequence keys must be unique, found in both: 'a'",
        "A handler identifies a feature by its key. Declare each feature once, where it is stored.",
    ),
    (
        lambda: slim.TFExampleDecoder({"a": LABEL}, {"label": "a"}),  # type: ignore[dict-item] # the mistake
        ValueError,
        "the handler of item 'label' must be an ItemHandler, not 'a'",
        "For example: {'label': Tensor('image/class/label')}.",
    ),
    (
        lambda: slim.Tensor("a", shape_keys="s", shape=[1]),
        ValueError,
        "Tensor('a') accepts shape_keys or shape, not both",
        "Use shape_keys= if each record stores its shape, shape= if all records have the same shape.",
    ),
    (
        lambda: slim.Tensor("a", shape=[-1, -1]),
        ValueError,
        "invalid shape=[-1, -1]",
        "Pass a list of sizes, e.g. [28, 28, 1]; one of them may be -1, which is computed.",
    ),
    (
        lambda: decode(slim.Tensor("a"), example(a=[b"x"]), a=slim.VarLenFeature("string")),
        TypeError,
        "default_value=0 must be text, as the values are, not int",
        "Pass default_value='' to the handler of a feature of strings.",
    ),
    (
        lambda: decode(slim.Tensor("a", default_value=0.5), example(a=[1]), a=NUMBERS),
        TypeError,
        "default_value=0.5 must be a whole number for values of dtype int64",
        "Pass a default of the values' type; None is 0.",
    ),
    (
        lambda: slim.LookupTensor("a", 5),  # type: ignore[arg-type] # the mistake
        ValueError,
        "5 is not a lookup table",
        "Pass a list of texts, a dict of numbers, or an object with a method lookup(array) for NumPy arrays.",
    ),
    (
        lambda: slim.LookupTensor("a", ["x", "y", b"x"]),
        ValueError,
        "b'x' is in the vocabulary twice, as 0 and 2",
        "List each text once. If texts share a number, pass a dict: {'cat': 0, 'kitten': 0}.",
    ),
    (
        lambda: slim.LookupTensor("a", {"x": "y"}),  # type: ignore[dict-item] # the mistake
        ValueError,
        "a table must map to whole numbers, e.g. {'cat': 0, 'dog': 1}",
        "To look up anything else, use an ItemHandlerCallback.",
    ),
    (
        lambda: decode(slim.LookupTensor("a", ["x"], default_value=0), example(a=[1]), a=NUMBERS),
        TypeError,
        "cannot look up int64 values in a table with keys such as b'x'",
        "Use keys of the feature's type: texts for strings, whole numbers for int64.",
    ),
    (
        lambda: slim.BackupHandler(slim.Tensor("a"), "b"),  # type: ignore[arg-type] # the mistake
        ValueError,
        "the backup handler must be an ItemHandler, not str",
        "Pass two handlers: BackupHandler(Tensor('label'), Tensor('label/backup')).",
    ),
    (
        lambda: slim.BoundingBox(["a", "b", "c"]),
        ValueError,
        "BoundingBox expects 4 keys but got 3",
        "Pass a feature for each of ymin, xmin, ymax, xmax, in this order.",
    ),
    (
        lambda: slim.KeypointsSequence("y"),
        ValueError,
        "KeypointsSequence expects 2 keys but got 1",
        "Pass a feature for each of y, x, in this order.",
    ),
    (
        lambda: slim.NumBoxesSequence([]),
        ValueError,
        "NumBoxesSequence requires at least one key",
        "Pass the feature list in which to count boxes, e.g. NumBoxesSequence('bbox/ymin').",
    ),
    (
        lambda: decode(slim.NumBoxesSequence("a"), example(a=[1]), a=NUMBERS),
        TypeError,
        "feature 'a' is not a list of frames with any number of values in each",
        "Declare it in keys_to_sequence_features: {'a': VarLenFeature('float32')}.",
    ),
    (
        lambda: decode(slim.SparseTensor("a", "a"), example(a=[1]), a=LABEL),
        TypeError,
        "feature 'a' is not a sparse array",
        "Declare it as a VarLenFeature: {'a': VarLenFeature(...)}.",
    ),
    (
        lambda: decode(slim.SparseTensor("a", "a", shape=[1]), example(a=[b"x"]), a=slim.VarLenFeature("string")),
        TypeError,
        "feature 'a' must hold int64 indices, found texts",
        "Use the int64 feature that stores the indices.",
    ),
    (
        lambda: decode(slim.Tensor("a", shape_keys="s"), example(a=[1], s=[1.0]), a=NUMBERS, s=FLOATS),
        TypeError,
        "feature 's' must hold int64 sizes, found floats",
        "Use the int64 feature that stores the sizes.",
    ),
    (
        lambda: decode(slim.BoundingBox(["a", "a", "a", "b"]), example(a=[1], b=[0.5]), a=NUMBERS, b=FLOATS),
        TypeError,
        "expected coordinates of one dtype, found a int64, a int64, a int64, b float32",
        "Declare all of them with the same dtype.",
    ),
    (
        lambda: slim.SparseTensorValue(np.zeros((0, 1), int), np.zeros(0), np.array([3])).to_scipy(),
        ValueError,
        "scipy needs numbers in two dimensions, found values in 1",
        "Use to_dense(), which returns an array of any rank and type.",
    ),
    (
        lambda: DECODER.decode("text"),
        TypeError,
        "a record must be bytes, not 'text'",
        "decode accepts one serialized record; decode_batch accepts a list of records.",
    ),
    (
        lambda: DECODER.decode([example(a=[1])]),
        TypeError,
        "a record must be bytes, not [b'\\n\\x0c\\n\\n\\n\\x01a\\x12\\x05\\x1a\\x03\\n\\x01\\x01']",
        "decode accepts one serialized record; decode_batch accepts a list of records.",
    ),
    (
        lambda: STEPS_DECODER.decode(None),
        TypeError,
        "a record must be bytes, not None",
        "decode accepts one serialized record; decode_batch accepts a list of records.",
    ),
    (
        lambda: DECODER.decode_batch([example(a=[1]), "text"]),
        TypeError,
        "a record must be bytes, not 'text'",
        "decode accepts one serialized record; decode_batch accepts a list of records.",
    ),
    (
        lambda: DECODER.decode_batch(b"abc"),
        TypeError,
        "records must be a list or tuple, not b'abc'",
        "decode accepts one serialized record; decode_batch accepts a list of records.",
    ),
    (
        lambda: DECODER.decode(Tensor()),
        TypeError,
        "a record must be bytes, not <a tensor of TensorFlow>",
        "Pass its value: record.numpy().",
    ),
    (
        lambda: DECODER.decode_batch(Tensor()),
        TypeError,
        "records must be a list or tuple, not <a tensor of TensorFlow>",
        "Pass its value: records.numpy().",
    ),
    (
        lambda: DECODER.decode(np.array(example(a=[1]), object)),
        TypeError,
        "a record must be bytes, not array(b'\\n\\x0c\\n\\n\\n\\x01a\\x12\\x05\\x1a\\x03\\n\\x01\\x01', dtype=",
        "Pass its value: record.item().",
    ),
    (
        lambda: DECODER.decode(np.arange(3)),
        TypeError,
        "a record must be bytes, not array([0, 1, 2])",
        "decode accepts one serialized record; decode_batch accepts a list of records.",
    ),
    (
        lambda: DECODER.decode(np.zeros((2, 2), np.uint8)),
        TypeError,
        "a record must be bytes, not array([[0, 0], [0, 0]], dtype=uint8)",
        "decode accepts one serialized record; decode_batch accepts a list of records.",
    ),
    (
        lambda: DECODER.decode_batch(np.array([b"abc", b"a\0"])),
        TypeError,
        "an array of the dtype |S3 has lost the NUL bytes that its records may have ended with",
        "Make it a list: decode_batch([first, second]); or an array of the dtype object.",
    ),
    (
        lambda: DECODER.decode_batch(np.array(b"abc", object)),
        TypeError,
        "records must be a list or tuple, not array(b'abc', dtype=object)",
        "decode accepts one serialized record; decode_batch accepts a list of records.",
    ),
    (
        lambda: DECODER.decode(example(a=[1]), "item"),
        TypeError,
        "items must be a list or tuple, not 'item'",
        "Name the items in brackets: ['image', 'label'].",
    ),
    (
        lambda: DECODER.decode_batch([example(a=[1])], {}.keys()),
        TypeError,
        "items must be a list or tuple, not dict_keys([])",
        "Name the items in brackets: ['image', 'label'].",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message", "hint"), WRONG_CALLS, ids=[one[2][:50] for one in WRONG_CALLS])
def test_a_call_that_cannot_be_meant(call: Callable[[], Any], kind: type[Exception], message: str, hint: str) -> None:
    with pytest.raises(RegistryError) as caught:
        call()
    assert isinstance(caught.value, kind)
    assert (str(caught.value), caught.value.hint) == (message, hint)


def test_the_memory_of_other_than_bytes_is_not_read() -> None:
    for view in (memoryview(np.arange(2)), memoryview(np.zeros(4, np.uint8))[::2], memoryview(np.array([None]))):
        with pytest.raises(WrongTypeError, match=r"^a record must be bytes, not <memory at 0x\w+>(?m:$)"):
            DECODER.decode(view)


def test_a_record_may_be_in_any_bytes() -> None:
    record = example(a=[7])
    stored = np.frombuffer(record, np.uint8)
    for same in (bytearray(record), memoryview(record), stored, memoryview(record).cast("c"), np.bytes_(record)):
        assert DECODER.decode(same) == [7]
        assert DECODER.decode_batch([same, record])[0].tolist() == [7, 7]
    assert DECODER.decode_batch(np.array([record, record], object))[0].tolist() == [7, 7]
    assert DECODER.decode_batch(np.stack([stored, stored]))[0].tolist() == [7, 7]
