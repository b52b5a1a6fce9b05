"""What decoders, features and handlers of TF-Slim say of what is wrong: whole messages, and what to do now."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from slim_record_samples import FLOATS, LABEL, NUMBERS, decode, decode_steps, example, steps

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


MAY_GO_WITHOUT = "What records may go without is a FixedLenFeature with a default_value, or a VarLenFeature."

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
        "feature 'a' holds float32 values, where int64 was declared",
        "Nothing is converted: declare the dtype that is stored, and convert in a handler.",
    ),
    (
        lambda: decode(slim.Tensor("a"), example(a=[b"x"]), a=FLOATS),
        "feature 'a' holds string values, where float32 was declared",
        "Nothing is converted: declare the dtype that is stored, and convert in a handler.",
    ),
    (
        lambda: decode(slim.Tensor("a"), example(a=[1, 2]), a=LABEL),
        "feature 'a' has 2 values, where the shape [] takes 1",
        "Declare the shape that was written, or a VarLenFeature where records differ.",
    ),
    (
        lambda: decode(slim.Tensor("a"), example(a=[1, 2, 3]), a=slim.FixedLenSequenceFeature([2], "int64", True)),
        "feature 'a' has 3 values, which elements of the shape [2] do not divide",
        "Declare the shape that one element was written with.",
    ),
    (
        lambda: decode(slim.Tensor("a"), example(i=[1], v=[1.0, 2.0]), a=slim.SparseFeature("i", "v", "float32", 5)),
        "feature 'a' has 2 values in 'v' and 1 indices in 'i'",
        "Each value needs an index. What wrote this record lost some.",
    ),
    (
        lambda: decode(slim.Tensor("a"), example(i=[1, 5], v=[1.0, 2.0]), a=slim.SparseFeature("i", "v", "float32", 5)),
        "feature 'a': index 1, [5], is outside of the shape [5]",
        "Give the shape that was written: shape= or shape_key= of the handler, size of a SparseFeature.",
    ),
    (
        lambda: decode(slim.Tensor("a", shape=[2, 2]), example(a=[1, 2, 3]), a=NUMBERS),
        "feature 'a' has 3 values, which the shape [2, 2] does not take",
        "A shape arranges the values that there are: it neither cuts nor fills, nor resizes an image.",
    ),
    (
        lambda: decode(slim.SparseTensor("s", "a", shape=[9]), example(a=[1], s=[float("inf")]), a=NUMBERS, s=FLOATS),
        "feature 's' is used for places, and holds what is no int64",
        "Store places as int64.",
    ),
    (
        lambda: decode(
            slim.SparseTensor("s", "a", shape_key="n"), example(a=[1], s=[1], n=[2, 2]), a=NUMBERS, s=NUMBERS, n=NUMBERS
        ).to_dense(),
        "the indices have 1 dimensions, and the shape [2, 2] has 2",
        "Give the shape that was written: shape= or shape_key= of the handler.",
    ),
    (
        lambda: decode(slim.Tensor("a", shape_keys="s"), example(a=[1], s=[-2]), a=NUMBERS, s=NUMBERS),
        "feature 'a' has 1 values, which the shape [-2] does not take",
        "A shape arranges the values that there are: it neither cuts nor fills, nor resizes an image.",
    ),
    (
        lambda: decode(
            slim.SparseTensor(densify=True), example(indices=[1, 4], values=[1, 2]), indices=NUMBERS, values=NUMBERS
        ),
        "feature 'indices': index 1, [4], is outside of the shape [2]",
        "Give the shape that was written: shape= or shape_key= of the handler, size of a SparseFeature.",
    ),
    (
        lambda: decode(
            slim.SparseTensor(shape=[6], densify=True),
            example(indices=[4, 1], values=[1, 2]),
            indices=NUMBERS,
            values=NUMBERS,
        ),
        "feature 'indices': index 1, [1], does not come after the one before it",
        "Indices ascend. Write them sorted, each once, or read them with SparseFeature, which sorts.",
    ),
    (
        lambda: decode(
            slim.SparseTensor(shape=[6], densify=True),
            example(indices=[-1], values=[1]),
            indices=NUMBERS,
            values=NUMBERS,
        ),
        "feature 'indices': index 0, [-1], is outside of the shape [6]",
        "Give the shape that was written: shape= or shape_key= of the handler, size of a SparseFeature.",
    ),
    (
        lambda: decode(
            slim.SparseTensor(shape=[6], densify=True),
            example(indices=[1, 1], values=[1, 2]),
            indices=NUMBERS,
            values=NUMBERS,
        ),
        "feature 'indices': index 1, [1], does not come after the one before it",
        "Indices ascend. Write them sorted, each once, or read them with SparseFeature, which sorts.",
    ),
    (
        lambda: decode(
            slim.SparseTensor(shape_key="s", densify=True),
            example(indices=[1], values=[1], s=[2**40]),
            **dict.fromkeys(("indices", "values", "s"), NUMBERS),
        ),
        "feature 'indices': an array of the shape [1099511627776] cannot be made of this record",
        "Sizes are 0 or more, and an array takes 2147483648 bytes at most. Keep it sparse.",
    ),
    (
        lambda: decode(
            slim.SparseTensor(shape=[2, 3]), example(indices=[1], values=[1]), indices=NUMBERS, values=NUMBERS
        ),
        "the indices 'indices' have 1 dimensions, and the shape [2, 3] has 2",
        "Give the shape that was written: shape=, or shape_key= where records store it.",
    ),
    (
        lambda: decode(
            slim.BoundingBox(),
            example(ymin=[0.0, 1.0], xmin=[0.0], ymax=[1.0, 1.0], xmax=[1.0, 1.0]),
            **dict.fromkeys(("ymin", "xmin", "ymax", "xmax"), FLOATS),
        ),
        "a box needs all of its sides, and there are different numbers of them: ymin 2, xmin 1, ymax 2, xmax 2",
        "What wrote this record lost some. Leave it out, or write it again.",
    ),
    (
        lambda: decode_steps(slim.KeypointsSequence(), steps(y=[[1.0]], x=[[1.0, 2.0]]), y=FLOATS, x=FLOATS),
        "the lists y, x differ in frames, or in the fullest frame: [[1, 1], [1, 2]]",
        "What wrote this record lost some. Leave it out, or write it again.",
    ),
    (
        lambda: decode_steps(slim.NumBoxesSequence(["y", "x"]), steps(y=[[1.0]], x=[[1.0, 2.0]]), y=FLOATS, x=FLOATS),
        "the frames have [1] values in 'y', and [2] in 'x'",
        "What wrote this record lost some. check_consistency=False counts the first list alone.",
    ),
    (
        lambda: decode_steps(slim.Tensor("y"), steps(x=[]), y=slim.FixedLenSequenceFeature([], "float32")),
        "feature list 'y' is required, and the record does not hold it",
        "FixedLenSequenceFeature(..., allow_missing=True) reads a missing list as one of no steps.",
    ),
    (
        lambda: decode_steps(slim.Tensor("y"), steps(y=[[1], [1, 2]]), y=slim.FixedLenSequenceFeature([], "float32")),
        "step 1: feature list 'y' has 2 values, where the shape [] takes 1",
        "Declare the shape that was written, or a VarLenFeature where records differ.",
    ),
    (
        lambda: decode_steps(slim.Tensor("y"), steps(y=[[1], [1, 2]]), y=NUMBERS),
        "step 0: feature 'y' holds float32 values, where int64 was declared",
        "Nothing is converted: declare the dtype that is stored, and convert in a handler.",
    ),
    (
        lambda: slim.TFSequenceExampleDecoder({"a": LABEL}, {}, {"a": slim.Tensor("a")}).decode(
            SequenceExample(context={"feature": {"a": Feature()}}).SerializeToString()
        ),
        "feature 'a' of the context is there, and holds values of no kind",
        "To do without it, leave its key out of the context.",
    ),
]


@pytest.mark.parametrize(("decoding", "message", "hint"), WRONG_RECORDS, ids=[one[1][:50] for one in WRONG_RECORDS])
def test_a_record_that_does_not_hold_what_was_declared(decoding: Callable[[], Any], message: str, hint: str) -> None:
    with pytest.raises(CorruptExampleError) as caught:
        decoding()
    assert (str(caught.value), caught.value.hint) == (message, hint)


WRONG_CALLS: list[tuple[Callable[[], Any], type[Exception], str, str]] = [
    (
        lambda: slim.TFExampleDecoder({"a": LABEL}, ["a"]),  # type: ignore[arg-type] # the mistake
        TypeError,
        "items_to_handlers are given as a dict by their names, not as ['a']",
        "e.g. TFExampleDecoder({'label': FixedLenFeature((), 'int64')}, {'label': Tensor('label')}).",
    ),
    (
        lambda: slim.TFExampleDecoder(None, {}),  # type: ignore[arg-type] # the mistake
        TypeError,
        "features are given as a dict by their names, not as None",
        "e.g. TFExampleDecoder({'label': FixedLenFeature((), 'int64')}, {'label': Tensor('label')}).",
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
        "Where the first size is not known, use FixedLenSequenceFeature or VarLenFeature.",
    ),
    (
        lambda: slim.FixedLenFeature([], "float64"),
        TypeError,
        "features are int64, float32 or string, not 'float64'",
        "Declare what is stored, and convert what was read: array.astype(...), or an ItemHandlerCallback.",
    ),
    (
        lambda: slim.FixedLenFeature([2], "int64", default_value=0),
        ValueError,
        "default_value=0 has 1 values, and the shape [2] takes 2",
        "Give a value for each element.",
    ),
    (
        lambda: slim.FixedLenFeature([1], "int64", default_value=0.5),
        TypeError,
        "default_value=0.5 is not of the feature's type, int64",
        "Give a default of the type that is declared.",
    ),
    (
        lambda: slim.FixedLenFeature([], "string", default_value=0),
        TypeError,
        "default_value=0 is not of the feature's type, string",
        "Give a default of the type that is declared.",
    ),
    (
        lambda: slim.FixedLenSequenceFeature([0], "int64"),
        ValueError,
        "elements of the shape [0] hold nothing, so that nobody could count them",
        "Give the shape of one element; () where each is a single value.",
    ),
    (
        lambda: slim.SparseFeature(["i", "j"], "v", "int64", 5),
        ValueError,
        "SparseFeature has 2 index keys and 1 sizes",
        "Give a size for each index key: SparseFeature(['row', 'column'], 'value', 'float32', [4, 6]).",
    ),
    (
        lambda: slim.TFExampleDecoder({"a": slim.FixedLenSequenceFeature([], "int64")}, {}),
        ValueError,
        "feature 'a' is a FixedLenSequenceFeature, which in an Example needs allow_missing=True",
        "In an Example an empty list and a missing one are the same.",
    ),
    (
        lambda: slim.TFSequenceExampleDecoder({}, {"a": LABEL}, {}),
        ValueError,
        "feature 'a' is FixedLenFeature(shape=(), dtype=dtype('int64'), default_value=None), and has to be one of "
        "FixedLenSequenceFeature, VarLenFeature",
        "e.g. {'label': FixedLenFeature((), 'int64')}. See docs/slim.md.",
    ),
    (
        lambda: slim.TFSequenceExampleDecoder({"a": LABEL}, {"a": NUMBERS}, {}),
        ValueError,
        "context and sequence keys are not unique: 'a' in both",
        "A handler names a feature by its key alone. Declare each where it is stored.",
    ),
    (
        lambda: slim.TFExampleDecoder({"a": LABEL}, {"label": "a"}),  # type: ignore[dict-item] # the mistake
        ValueError,
        "item 'label' has 'a', which is no ItemHandler",
        "e.g. {'label': Tensor('image/class/label')}.",
    ),
    (
        lambda: slim.Tensor("a", shape_keys="s", shape=[1]),
        ValueError,
        "Tensor('a') was given both shape_keys and shape",
        "shape_keys= where each record stores its shape, shape= where all have the same one.",
    ),
    (
        lambda: slim.Tensor("a", shape=[-1, -1]),
        ValueError,
        "shape=[-1, -1] is no shape",
        "Give a list of sizes, e.g. [28, 28, 1]; one of them may be -1, which is worked out.",
    ),
    (
        lambda: decode(slim.Tensor("a"), example(a=[b"x"]), a=slim.VarLenFeature("string")),
        TypeError,
        "texts cannot be filled up with default_value=0, a int",
        "Give default_value='' to the handler of a feature of strings.",
    ),
    (
        lambda: decode(slim.Tensor("a", default_value=0.5), example(a=[1]), a=NUMBERS),
        TypeError,
        "default_value=0.5 is not a whole number, as values of int64 need",
        "Give a default of the values' type; None is 0.",
    ),
    (
        lambda: slim.LookupTensor("a", 5),  # type: ignore[arg-type] # the mistake
        ValueError,
        "5 is no table",
        "Give a list of texts, a dict of numbers, or an object with a method lookup(array) of NumPy.",
    ),
    (
        lambda: slim.LookupTensor("a", ["x", "y", b"x"]),
        ValueError,
        "b'x' is in the vocabulary twice, as 0 and 2",
        "Each text has one number. Give a dict where texts are to share one: {'cat': 0, 'kitten': 0}.",
    ),
    (
        lambda: slim.LookupTensor("a", {"x": "y"}),  # type: ignore[dict-item] # the mistake
        ValueError,
        "the numbers of a table are whole numbers, e.g. {'cat': 0, 'dog': 1}",
        "To look up anything else, use an ItemHandlerCallback.",
    ),
    (
        lambda: decode(slim.LookupTensor("a", ["x"], default_value=0), example(a=[1]), a=NUMBERS),
        TypeError,
        "values of int64 are looked up in a table of b'x'",
        "Keys of the table are of the feature's type: texts for strings, whole numbers for int64.",
    ),
    (
        lambda: slim.BackupHandler(slim.Tensor("a"), "b"),  # type: ignore[arg-type] # the mistake
        ValueError,
        "the backup handler is of type str instead of ItemHandler",
        "BackupHandler takes two handlers: BackupHandler(Tensor('label'), Tensor('label/backup')).",
    ),
    (
        lambda: slim.BoundingBox(["a", "b", "c"]),
        ValueError,
        "BoundingBox expects 4 keys but got 3",
        "Give a feature for each of ymin, xmin, ymax, xmax, in this order.",
    ),
    (
        lambda: slim.KeypointsSequence("y"),
        ValueError,
        "KeypointsSequence expects 2 keys but got 1",
        "Give a feature for each of y, x, in this order.",
    ),
    (
        lambda: slim.NumBoxesSequence([]),
        ValueError,
        "NumBoxesSequence was given no keys",
        "Give the feature list that boxes are counted in, e.g. NumBoxesSequence('bbox/ymin').",
    ),
    (
        lambda: decode(slim.NumBoxesSequence("a"), example(a=[1]), a=NUMBERS),
        TypeError,
        "feature 'a' is no list of frames with any number of values in each",
        "Declare it in keys_to_sequence_features: {'a': VarLenFeature('float32')}.",
    ),
    (
        lambda: decode(slim.SparseTensor("a", "a"), example(a=[1]), a=LABEL),
        TypeError,
        "feature 'a' is no sparse array",
        "Declare it as a VarLenFeature: {'a': VarLenFeature(...)}.",
    ),
    (
        lambda: decode(slim.SparseTensor("a", "a", shape=[1]), example(a=[b"x"]), a=slim.VarLenFeature("string")),
        TypeError,
        "feature 'a' holds texts, and is used for places",
        "Declare the feature that holds the places, as int64.",
    ),
    (
        lambda: decode(slim.Tensor("a", shape_keys="s"), example(a=[1], s=[1.0]), a=NUMBERS, s=FLOATS),
        TypeError,
        "feature 's' holds floats, and is used for sizes",
        "Declare the feature that holds the sizes, as int64.",
    ),
    (
        lambda: decode(slim.BoundingBox(["a", "a", "a", "b"]), example(a=[1], b=[0.5]), a=NUMBERS, b=FLOATS),
        TypeError,
        "coordinates of one thing are of one dtype, and these are of several: a int64, a int64, a int64, b float32",
        "Declare all of them with the same dtype.",
    ),
    (
        lambda: slim.SparseTensorValue(np.zeros((0, 1), int), np.zeros(0), np.array([3])).to_scipy(),
        ValueError,
        "scipy holds numbers in two dimensions, and these are values in 1",
        "to_dense() gives an array of any rank and type.",
    ),
    (
        lambda: DECODER.decode("text"),
        TypeError,
        "a record is bytes, and 'text' is none",
        "decode takes one record, as it was serialized; decode_batch takes a list of them.",
    ),
    (
        lambda: DECODER.decode([example(a=[1])]),
        TypeError,
        "a record is bytes, and [b'\\n\\x0c\\n\\n\\n\\x01a\\x12\\x05\\x1a\\x03\\n\\x01\\x01'] is none",
        "decode takes one record, as it was serialized; decode_batch takes a list of them.",
    ),
    (
        lambda: STEPS_DECODER.decode(None),
        TypeError,
        "a record is bytes, and None is none",
        "decode takes one record, as it was serialized; decode_batch takes a list of them.",
    ),
    (
        lambda: DECODER.decode_batch([example(a=[1]), "text"]),
        TypeError,
        "a record is bytes, and 'text' is none",
        "decode takes one record, as it was serialized; decode_batch takes a list of them.",
    ),
    (
        lambda: DECODER.decode_batch(b"abc"),
        TypeError,
        "records must be a list or tuple, not b'abc'",
        "decode takes one record, as it was serialized; decode_batch takes a list of them.",
    ),
    (
        lambda: DECODER.decode(Tensor()),
        TypeError,
        "a record is bytes, and <a tensor of TensorFlow> is none",
        "Give what it holds: record.numpy().",
    ),
    (
        lambda: DECODER.decode_batch(Tensor()),
        TypeError,
        "records must be a list or tuple, not <a tensor of TensorFlow>",
        "Give what it holds: records.numpy().",
    ),
    (
        lambda: DECODER.decode(np.array(example(a=[1]), object)),
        TypeError,
        "a record is bytes, and array(b'\\n\\x0c\\n\\n\\n\\x01a\\x12\\x05\\x1a\\x03\\n\\x01\\x01', dtype= is none",
        "Give what it holds: record.item().",
    ),
    (
        lambda: DECODER.decode(np.arange(3)),
        TypeError,
        "a record is bytes, and array([0, 1, 2]) is none",
        "decode takes one record, as it was serialized; decode_batch takes a list of them.",
    ),
    (
        lambda: DECODER.decode(np.zeros((2, 2), np.uint8)),
        TypeError,
        "a record is bytes, and array([[0, 0], [0, 0]], dtype=uint8) is none",
        "decode takes one record, as it was serialized; decode_batch takes a list of them.",
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
        "decode takes one record, as it was serialized; decode_batch takes a list of them.",
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
        with pytest.raises(WrongTypeError, match=r"^a record is bytes, and <memory at 0x\w+> is none$"):
            DECODER.decode(view)


def test_a_record_may_be_in_any_bytes() -> None:
    record = example(a=[7])
    stored = np.frombuffer(record, np.uint8)
    for same in (bytearray(record), memoryview(record), stored, memoryview(record).cast("c"), np.bytes_(record)):
        assert DECODER.decode(same) == [7]
        assert DECODER.decode_batch([same, record])[0].tolist() == [7, 7]
    assert DECODER.decode_batch(np.array([record, record], object))[0].tolist() == [7, 7]
    assert DECODER.decode_batch(np.stack([stored, stored]))[0].tolist() == [7, 7]
