"""Decoders, features and handlers of TF-Slim: results that the laws do not cover."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from support.slim_record_samples import FLOATS, LABEL, NUMBERS, decode, decode_steps, example, steps

from registry import slim
from registry.errors import CorruptExampleError, ItemNotFoundError
from registry.slim.data_decoder import as_block
from registry.wire import encode_example
from registry.wire.example_pb2 import Example, Feature, SequenceExample


@pytest.mark.parametrize(
    "dtype",
    ["int64", np.int64, int, np.dtype("int64"), type("DType", (), {"name": "int64"})()],
    ids=["name", "numpy", "python", "dtype", "TensorFlow"],
)
def test_dtypes_have_the_names_of_numpy_and_tensorflow(dtype: Any) -> None:
    assert slim.FixedLenFeature((), dtype) == LABEL


@pytest.mark.parametrize("dtype", ["float32", "float", float, np.float32], ids=repr)
def test_floats_equal_those_of_tensorflow(dtype: Any) -> None:
    assert slim.VarLenFeature(dtype).dtype == np.float32


@pytest.mark.parametrize("dtype", ["string", "bytes", str, bytes, object, np.str_, "S", np.dtype("U5")], ids=repr)
def test_strings_are_objects_of_bytes(dtype: Any) -> None:
    assert slim.VarLenFeature(dtype).dtype == object
    assert slim.FixedLenFeature([], dtype, default_value="x").default_value.tolist() == b"x"


def test_a_default_is_handed_out_as_a_copy() -> None:
    decoder = slim.TFExampleDecoder({"a": slim.FixedLenFeature([2], "int64", [1, 2])}, {"a": slim.Tensor("a")})
    (first,) = decoder.decode(b"")
    first += 1
    assert decoder.decode(b"")[0].tolist() == [1, 2]


def test_a_lazy_decoder_skips_items_that_are_not_requested() -> None:
    features, handlers = {"a": LABEL, "b": LABEL}, {"a": slim.Tensor("a"), "b": slim.Tensor("b")}
    lazy = slim.TFExampleDecoder(features, handlers, lazy=True)
    assert lazy.decode(example(a=[3]), ["a"]) == [3]
    assert lazy.decode_batch([example(a=[3])] * 9, ["a"])[0].tolist() == [3] * 9
    for decoding in (lambda: lazy.decode(example(a=[3])), lambda: lazy.decode_batch([example(a=[3])] * 9)):
        with pytest.raises(CorruptExampleError, match="feature 'b'"):
            decoding()


def test_a_failing_handler_names_its_record_of_the_batch() -> None:
    handler = slim.Tensor("a", shape=[2])
    decoder = slim.TFExampleDecoder({"a": NUMBERS}, {"a": handler})
    records = [example(a=[1, 2])] * 5 + [example(a=[1, 2, 3])] + [example(a=[1, 2])] * 3
    with pytest.raises(CorruptExampleError) as caught:
        decoder.decode_batch(records)
    assert caught.value.details["record"] == 5


@pytest.mark.parametrize("items", [["a", "b"], ["b", "a"]])
def test_of_several_records_at_fault_a_batch_names_the_first(items: list[str]) -> None:
    handlers = {"a": slim.Tensor("a", shape=[1]), "b": slim.Tensor("b", shape=[1])}
    decoder = slim.TFExampleDecoder({"a": NUMBERS, "b": NUMBERS}, handlers)
    records = [example(a=[1, 2] if n == 5 else [1], b=[1, 2] if n == 2 else [1]) for n in range(8)]
    with pytest.raises(CorruptExampleError, match="feature 'b': expected values of shape") as caught:
        decoder.decode_batch(records, items)
    assert caught.value.details["record"] == 2


def test_an_error_of_a_function_names_its_item() -> None:
    decoder = slim.TFExampleDecoder({"a": LABEL}, {"odd": slim.ItemHandlerCallback("a", lambda values: values["b"])})
    with pytest.raises(KeyError) as caught:
        decoder.decode(example(a=[1]))
    assert caught.value.__notes__ == ["while computing item 'odd'"]


def test_a_table_of_tensorflow_is_refused() -> None:
    table = type("StaticHashTable", (), {"__module__": "tensorflow.python.ops.lookup_ops", "lookup": print})()
    with pytest.raises(ValueError, match="is not a lookup table"):
        slim.LookupTensor("a", table)


def test_a_decoder_without_items_gives_an_empty_row_for_each_record() -> None:
    decoder = slim.TFExampleDecoder({"a": LABEL}, {})
    block = as_block([example(a=[number]) for number in range(9)])
    assert decoder.decode(example(a=[1])) == []
    assert list(decoder.decode_rows(block, [])) == [[]] * 9
    assert decoder.decode_batch(block) == []


def test_the_backup_handler_is_not_called_if_the_first_has_elements() -> None:
    def never(values: Mapping[str, Any]) -> Any:
        raise AssertionError(values)

    handler = slim.BackupHandler(slim.Tensor("a"), slim.ItemHandlerCallback("b", never))
    assert decode(handler, example(a=[7]), a=NUMBERS, b=NUMBERS).tolist() == [7]


def test_a_sparse_item_without_elements_has_a_backup() -> None:
    handler = slim.BackupHandler(slim.SparseTensor(), slim.Tensor("b", default_value=""))
    features = {"indices": NUMBERS, "values": FLOATS, "b": slim.VarLenFeature("string")}
    assert decode(handler, example(b=[b"x"]), **features).tolist() == [b"x"]


def test_what_a_subclass_does_with_one_record_is_done_with_many() -> None:
    class Doubled(slim.Tensor):
        def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
            return 2 * super().tensors_to_item(keys_to_tensors)

    decoder = slim.TFExampleDecoder({"a": LABEL}, {"a": Doubled("a")})
    assert decoder.decode_batch([example(a=[n]) for n in range(9)])[0].tolist() == list(range(0, 18, 2))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (["cat", b"dog"], [1, 0, -1]),
        ({"cat": 5, "dog": 7}, [7, 5, -1]),
        (type("Table", (), {"lookup": staticmethod(lambda keys: np.char.str_len(keys.astype("S")))})(), [3, 3, 2]),
    ],
    ids=["list", "dict", "object"],
)
def test_tables_are_lists_dicts_and_other_objects_with_a_look_up(table: Any, expected: list[int]) -> None:
    handler = slim.LookupTensor("a", table)
    found = decode(handler, example(a=[b"dog", b"cat", b"ox"]), a=slim.VarLenFeature("string"))
    assert found.tolist() == expected
    assert found.dtype == np.int64


def test_boxes_of_frames_are_padded_or_sparse_on_request() -> None:
    lists = {key: [[1.0, 2.0], []] for key in ("ymin", "xmin", "ymax", "xmax")}
    dense = decode_steps(slim.BoundingBoxSequence(), steps(**lists), **dict.fromkeys(lists, FLOATS))
    assert dense.tolist() == [[[1] * 4, [2] * 4], [[-1] * 4] * 2]
    sparse = decode_steps(slim.BoundingBoxSequence(return_dense=False), steps(**lists), **dict.fromkeys(lists, FLOATS))
    assert sparse.to_dense(-1).tolist() == dense.tolist()


def test_a_decoder_travels_to_another_process() -> None:
    decoder = slim.TFExampleDecoder({"a": LABEL}, {"a": slim.Tensor("a")})
    decoder.decode_batch([example(a=[n]) for n in range(9)])
    assert pickle.loads(pickle.dumps(decoder)).decode(example(a=[3])) == [3]  # noqa: S301 (our own bytes)


def test_a_lazy_decoder_of_steps_decodes_only_the_requested_items() -> None:
    features = {"y": FLOATS, "x": slim.FixedLenSequenceFeature([], "float32")}
    handlers = {key: slim.Tensor(key) for key in features}
    (item,) = slim.TFSequenceExampleDecoder({}, features, handlers, lazy=True).decode(steps(y=[[1.0]]), ["y"])
    assert item.tolist() == [[1.0]]
    with pytest.raises(CorruptExampleError):
        slim.TFSequenceExampleDecoder({}, features, handlers).decode(steps(y=[[1.0]]), ["y"])


def test_records_of_steps_are_decoded_as_a_batch() -> None:
    decoder = slim.TFSequenceExampleDecoder({}, {"y": FLOATS}, {"y": slim.Tensor("y")})
    (same,) = decoder.decode_batch([steps(y=[[number]]) for number in range(5)])
    assert same.tolist() == [[[number]] for number in range(5)]
    (ragged,) = decoder.decode_batch([steps(y=[[1]] * number) for number in range(3)])
    assert [item.shape for item in ragged] == [(0, 0), (1, 1), (2, 1)]


@pytest.mark.parametrize(("is_sorted", "expected"), [(False, [[1], [3]]), (True, [[3], [1]])])
def test_indices_that_are_said_to_be_sorted_are_left_as_they_are(is_sorted: bool, expected: list[list[int]]) -> None:
    spec = slim.SparseFeature("i", "v", "float32", 5, already_sorted=is_sorted)
    handler = slim.ItemHandlerCallback("a", lambda values: values["a"])
    assert decode(handler, example(i=[3, 1], v=[1.0, 2.0]), a=spec).indices.tolist() == expected


def test_places_in_several_dimensions_are_sorted_row_by_row() -> None:
    spec = slim.SparseFeature(["i", "j"], "v", "float32", [4, 4])
    found = decode(slim.Tensor("a"), example(i=[3, 1, 1], j=[0, 2, 1], v=[1.0, 2.0, 3.0]), a=spec)
    assert np.argwhere(found).tolist() == [[1, 1], [1, 2], [3, 0]]
    assert found[found > 0].tolist() == [3, 2, 1]


def test_a_sparse_item_of_steps_has_the_stored_places_in_each_step() -> None:
    features = {"indices": NUMBERS, "values": FLOATS}
    message = SequenceExample()
    for places, values in (([1, 4], [1.0, 2.0]), ([], []), ([2], [3.0])):
        message.feature_lists.feature_list["indices"].feature.add().int64_list.value.extend(places)
        message.feature_lists.feature_list["values"].feature.add().float_list.value.extend(values)
    found = decode_steps(slim.SparseTensor(shape=[3, 6], densify=True), message.SerializeToString(), **features)
    assert found.tolist() == [[0, 1, 0, 0, 2, 0], [0] * 6, [0, 0, 3, 0, 0, 0]]


def test_the_first_failing_item_is_reported_in_a_batch_too() -> None:
    items = {"a": slim.BoundingBox(["a", "a", "b", "b"]), "b": slim.LookupTensor("b", ["x"])}
    decoder = slim.TFExampleDecoder({"a": NUMBERS, "b": LABEL}, items)
    for decoding in (decoder.decode, lambda record: decoder.decode_batch([record] * 9)):
        with pytest.raises(CorruptExampleError, match="expected the same number of values for each side"):
            decoding(example(a=[1, 2], b=[3]))


def test_a_feature_without_a_kind_is_missing_in_a_batch_too() -> None:
    decoder = slim.TFExampleDecoder({"a": slim.FixedLenFeature([0], "string")}, {"a": slim.Tensor("a")})
    record = Example(features={"feature": {"a": Feature()}}).SerializeToString()
    for decoding in (lambda: decoder.decode(record), lambda: decoder.decode_batch([record] * 9)):
        with pytest.raises(CorruptExampleError) as caught:
            decoding()
        assert str(caught.value) == "feature 'a' (string) is required, and the record does not hold it"


def test_an_empty_batch_has_empty_columns() -> None:
    decoder = slim.TFExampleDecoder({"a": LABEL}, {"a": slim.Tensor("a")})
    assert [column.shape for column in decoder.decode_batch([])] == [(0,)]


@pytest.mark.parametrize("stored", [[], [2, 3]])
def test_a_stored_shape_that_does_not_fit_the_indices_is_kept_in_sparse_arrays(stored: list[int]) -> None:
    handler = slim.SparseTensor("i", "v", shape_key="shape")
    record = example(i=[1], v=[0.5], shape=stored) if stored else example(i=[1], v=[0.5])
    found = decode(handler, record, i=NUMBERS, v=FLOATS, shape=NUMBERS)
    assert (found.indices.tolist(), found.values.tolist(), found.dense_shape.tolist()) == ([[1]], [0.5], stored)


@pytest.mark.parametrize(
    ("shape", "expected"), [([0, -1], (0, 3)), ([-1, 0], (3, 0)), ([0, -1, 3], (0, 1, 3)), ([-1, 3], (0, 3))]
)
def test_an_inferred_size_next_to_a_size_of_0_equals_that_of_tensorflow(
    shape: list[int], expected: tuple[int, ...]
) -> None:
    elements = slim.FixedLenSequenceFeature([3], "int64", allow_missing=True)
    for handler in (slim.Tensor("a", shape=shape), slim.Tensor("a", shape_keys="shape")):
        assert decode(handler, example(shape=shape), a=elements, shape=NUMBERS).shape == expected
    with pytest.raises(CorruptExampleError):
        decode(slim.Tensor("a", shape=[0, -1]), example(a=[1, 2, 3]), a=elements)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([[1, 2]], None, [2]),
        ([[]], None, [0]),
        ([[1, 2]], [[1, 2], [1, 2]], [2]),
        ([[1, 2], [1, 2]], [[1, 2]], [2, 2]),
        ([[1], [1, 2]], None, None),
        ([[1], [1]], [[1], [1], [1]], None),
        ([[1]], [[1], [1, 2]], None),
    ],
)
def test_counts_of_one_frame_are_compared_with_those_of_every_frame(
    first: list[list[float]], second: list[list[float]] | None, expected: list[int] | None
) -> None:
    record = steps(x=first) if second is None else steps(x=first, y=second)
    if expected is None:
        with pytest.raises(CorruptExampleError):
            decode_steps(slim.NumBoxesSequence(["x", "y"]), record, x=FLOATS, y=FLOATS)
    else:
        found = decode_steps(slim.NumBoxesSequence(["x", "y"]), record, x=FLOATS, y=FLOATS)
        assert found.tolist() == expected


def test_a_default_value_of_true_fills_numbers_with_one() -> None:
    handler = slim.SparseTensor("i", "v", shape=[3], densify=True, default_value=True)
    assert decode(handler, example(i=[1], v=[0.5]), i=NUMBERS, v=FLOATS).tolist() == [1, 0.5, 1]


def test_the_repr_of_decoders_and_handlers_names_their_items_and_keys() -> None:
    handlers = {"label": slim.Tensor("a"), "boxes": slim.BoundingBox(prefix="b/")}
    assert repr(slim.TFExampleDecoder({"a": LABEL}, handlers)) == "<TFExampleDecoder: label, boxes>"
    assert repr(slim.TFSequenceExampleDecoder({}, {}, handlers)) == "<TFSequenceExampleDecoder: label, boxes>"
    assert repr(handlers["boxes"]) == "<BoundingBox of b/ymin, b/xmin, b/ymax, b/xmax>"


def test_an_empty_default_value_counts_as_no_default() -> None:
    nothing = slim.FixedLenFeature([2, 0], "int64", [[], []])
    with pytest.raises(CorruptExampleError, match=r"^feature 'a' \(int64\) is required"):
        decode(slim.Tensor("a"), example(), a=nothing)
    stored = encode_example({"a": np.empty(0, np.int64)})
    assert decode(slim.Tensor("a"), stored, a=nothing).shape == (2, 0)


@pytest.mark.parametrize("item", [None, 1, b"label", ("label",)])
def test_an_item_name_that_is_not_text_is_not_found(item: Any) -> None:
    decoder = slim.TFExampleDecoder({"a": LABEL}, {"label": slim.Tensor("a")})
    with pytest.raises(ItemNotFoundError) as caught:
        decoder.decode(example(a=[3]), [item])
    assert str(caught.value) == f"no item {item!r} in this decoder"
