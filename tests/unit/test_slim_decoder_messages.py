"""Errors of decoders, features and handlers of TF-Slim: whole messages and hints."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.golden import check_errors
from support.slim_record_samples import FLOATS, LABEL, NUMBERS, decode, decode_steps, example, steps

from registry import slim
from registry.errors import WrongTypeError
from registry.wire.example_pb2 import Example, Feature, SequenceExample

DECODER: Any = slim.TFExampleDecoder({"a": LABEL}, {"item": slim.Tensor("a")})
PLACES = {
    "places": slim.SparseFeature(["row", "column"], "value", "int64", [9, 9]),
    "values": slim.VarLenFeature("float32"),
    "shape": slim.FixedLenFeature([2], "int64"),
}
PLACES_DECODER = slim.TFExampleDecoder(
    PLACES, {"x": slim.SparseTensor("places", "values", shape_key="shape", densify=True)}
)
STEPS_DECODER: Any = slim.TFSequenceExampleDecoder({"a": LABEL}, {}, {"item": slim.Tensor("a")})


class Tensor(ctypes.c_int64 * 1):  # type: ignore[misc] # it has a buffer, as tensors have
    """As TensorFlow's: a buffer of something, and ``numpy``."""

    def numpy(self) -> bytes:
        return b""

    def __repr__(self) -> str:
        return "<a tensor of TensorFlow>"


GOLDEN = Path(__file__).with_name("golden")

WRONG_RECORDS: list[Callable[[], Any]] = [
    lambda: decode(slim.Tensor("a"), example(b=[1]), a=LABEL),
    lambda: decode(slim.Tensor("lable"), example(id=[1], label=[2]), lable=LABEL),
    lambda: decode(slim.Tensor("a"), example(**{f"name {number}": [1] for number in range(7)}), a=LABEL),
    lambda: DECODER.decode(Example(features={"feature": {"a": Feature()}}).SerializeToString()),
    lambda: decode(slim.Tensor("a"), example(a=[0.5]), a=LABEL),
    lambda: decode(slim.Tensor("a"), example(a=[b"x"]), a=FLOATS),
    lambda: decode(slim.Tensor("a"), example(a=[1, 2]), a=LABEL),
    lambda: decode(slim.Tensor("a"), example(a=[1, 2, 3]), a=slim.FixedLenSequenceFeature([2], "int64", True)),
    lambda: decode(slim.Tensor("a"), example(i=[1], v=[1.0, 2.0]), a=slim.SparseFeature("i", "v", "float32", 5)),
    lambda: decode(slim.Tensor("a"), example(i=[1, 5], v=[1.0, 2.0]), a=slim.SparseFeature("i", "v", "float32", 5)),
    lambda: decode(slim.Tensor("a", shape=[2, 2]), example(a=[1, 2, 3]), a=NUMBERS),
    lambda: decode(slim.SparseTensor("s", "a", shape=[9]), example(a=[1], s=[float("inf")]), a=NUMBERS, s=FLOATS),
    lambda: decode(
        slim.SparseTensor("s", "a", shape_key="n"), example(a=[1], s=[1], n=[2, 2]), a=NUMBERS, s=NUMBERS, n=NUMBERS
    ).to_dense(),
    lambda: decode(slim.Tensor("a", shape_keys="s"), example(a=[1], s=[-2]), a=NUMBERS, s=NUMBERS),
    lambda: decode(
        slim.SparseTensor(densify=True), example(indices=[1, 4], values=[1, 2]), indices=NUMBERS, values=NUMBERS
    ),
    lambda: decode(
        slim.SparseTensor(shape=[6], densify=True),
        example(indices=[4, 1], values=[1, 2]),
        indices=NUMBERS,
        values=NUMBERS,
    ),
    lambda: decode(
        slim.SparseTensor(shape=[6], densify=True),
        example(indices=[-1], values=[1]),
        indices=NUMBERS,
        values=NUMBERS,
    ),
    lambda: decode(
        slim.SparseTensor(shape=[6], densify=True),
        example(indices=[1, 1], values=[1, 2]),
        indices=NUMBERS,
        values=NUMBERS,
    ),
    lambda: decode(
        slim.SparseTensor(shape_key="s", densify=True),
        example(indices=[1], values=[1], s=[2**40]),
        **dict.fromkeys(("indices", "values", "s"), NUMBERS),
    ),
    lambda: decode(slim.SparseTensor(shape=[2, 3]), example(indices=[1], values=[1]), indices=NUMBERS, values=NUMBERS),
    lambda: decode(
        slim.BoundingBox(),
        example(ymin=[0.0, 1.0], xmin=[0.0], ymax=[1.0, 1.0], xmax=[1.0, 1.0]),
        **dict.fromkeys(("ymin", "xmin", "ymax", "xmax"), FLOATS),
    ),
    lambda: decode_steps(slim.KeypointsSequence(), steps(y=[[1.0]], x=[[1.0, 2.0]]), y=FLOATS, x=FLOATS),
    lambda: decode_steps(slim.NumBoxesSequence(["y", "x"]), steps(y=[[1.0]], x=[[1.0, 2.0]]), y=FLOATS, x=FLOATS),
    lambda: decode_steps(slim.Tensor("y"), steps(x=[]), y=slim.FixedLenSequenceFeature([], "float32")),
    lambda: decode_steps(slim.Tensor("y"), steps(y=[[1], [1, 2]]), y=slim.FixedLenSequenceFeature([], "float32")),
    lambda: decode_steps(slim.Tensor("y"), steps(y=[[1], [1, 2]]), y=NUMBERS),
    lambda: slim.TFSequenceExampleDecoder({"a": LABEL}, {}, {"a": slim.Tensor("a")}).decode(
        SequenceExample(context={"feature": {"a": Feature()}}).SerializeToString()
    ),
    lambda: DECODER.decode(example(a=[3]), ["itme"]),
    *(partial(PLACES_DECODER.decode, example(shape=shape)) for shape in ([0, 2**62], [2**61, 0])),
    lambda: slim.TFExampleDecoder({"image/a": LABEL}, {"a": slim.Tensor("image/b")}).decode(example(a=[3])),
]


def test_a_record_that_does_not_match_its_declaration_is_refused() -> None:
    check_errors(GOLDEN / "slim_wrong_records.txt", WRONG_RECORDS)


WRONG_CALLS: list[Callable[[], Any]] = [
    lambda: slim.TFExampleDecoder({"a": LABEL}, ["a"]),
    lambda: slim.TFExampleDecoder(None, {}),
    lambda: slim.TFExampleDecoder({"a": LABEL}, {"a": slim.Tensor("a")}).decode(b"", "a"),
    lambda: slim.FixedLenFeature([None], "int64"),
    lambda: slim.FixedLenFeature([], "float64"),
    lambda: slim.FixedLenFeature([2], "int64", default_value=0),
    lambda: slim.FixedLenFeature([1], "int64", default_value=0.5),
    lambda: slim.FixedLenFeature([], "string", default_value=0),
    lambda: slim.FixedLenSequenceFeature([0], "int64"),
    lambda: slim.SparseFeature(["i", "j"], "v", "int64", 5),
    lambda: slim.TFExampleDecoder({"a": slim.FixedLenSequenceFeature([], "int64")}, {}),
    lambda: slim.TFSequenceExampleDecoder({}, {"a": LABEL}, {}),
    lambda: slim.TFSequenceExampleDecoder({"a": LABEL}, {"a": NUMBERS}, {}),
    lambda: slim.TFExampleDecoder({"a": LABEL}, {"label": "a"}),
    lambda: slim.Tensor("a", shape_keys="s", shape=[1]),
    lambda: slim.Tensor("a", shape=[-1, -1]),
    lambda: decode(slim.Tensor("a"), example(a=[b"x"]), a=slim.VarLenFeature("string")),
    lambda: decode(slim.Tensor("a", default_value=0.5), example(a=[1]), a=NUMBERS),
    lambda: slim.LookupTensor("a", 5),
    lambda: slim.LookupTensor("a", ["x", "y", b"x"]),
    lambda: slim.LookupTensor("a", {"x": "y"}),
    lambda: decode(slim.LookupTensor("a", ["x"], default_value=0), example(a=[1]), a=NUMBERS),
    lambda: slim.BackupHandler(slim.Tensor("a"), "b"),
    lambda: slim.BoundingBox(["a", "b", "c"]),
    lambda: slim.KeypointsSequence("y"),
    lambda: slim.NumBoxesSequence([]),
    lambda: decode(slim.NumBoxesSequence("a"), example(a=[1]), a=NUMBERS),
    lambda: decode(slim.SparseTensor("a", "a"), example(a=[1]), a=LABEL),
    lambda: decode(slim.SparseTensor("a", "a", shape=[1]), example(a=[b"x"]), a=slim.VarLenFeature("string")),
    lambda: decode(slim.Tensor("a", shape_keys="s"), example(a=[1], s=[1.0]), a=NUMBERS, s=FLOATS),
    lambda: decode(slim.BoundingBox(["a", "a", "a", "b"]), example(a=[1], b=[0.5]), a=NUMBERS, b=FLOATS),
    lambda: slim.SparseTensorValue(np.zeros((0, 1), int), np.zeros(0), np.array([3])).to_scipy(),
    lambda: DECODER.decode("text"),
    lambda: DECODER.decode([example(a=[1])]),
    lambda: STEPS_DECODER.decode(None),
    lambda: DECODER.decode_batch([example(a=[1]), "text"]),
    lambda: DECODER.decode_batch(b"abc"),
    lambda: DECODER.decode(Tensor()),
    lambda: DECODER.decode_batch(Tensor()),
    lambda: DECODER.decode(np.array(example(a=[1]), object)),
    lambda: DECODER.decode(np.arange(3)),
    lambda: DECODER.decode(np.zeros((2, 2), np.uint8)),
    lambda: DECODER.decode_batch(np.array([b"abc", b"a\0"])),
    lambda: DECODER.decode_batch(np.array(b"abc", object)),
    lambda: DECODER.decode(example(a=[1]), "item"),
    lambda: DECODER.decode_batch([example(a=[1])], {}.keys()),
]


def test_a_call_that_cannot_be_meant() -> None:
    check_errors(GOLDEN / "slim_wrong_calls.txt", WRONG_CALLS)


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
