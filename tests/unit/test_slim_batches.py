"""Batches of a provider: the same records as one by one, as arrays, and the handling of bad records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.golden import check_errors

from registry.errors import (
    CorruptExampleError,
    CorruptRecordError,
    OutOfRangeError,
    UsageError,
    WrongTypeError,
)
from registry.slim.data_decoder import DataDecoder
from registry.slim.dataset_data_provider import DatasetDataProvider
from registry.slim.feature_specs import FixedLenFeature, SparseTensorValue, VarLenFeature
from registry.slim.item_handlers import ItemHandler, ItemHandlerCallback, Tensor
from registry.slim.tfexample_decoder import TFExampleDecoder
from registry.tfrecord import RecordBlock, frame_record
from registry.wire import encode_example

GOLDEN = Path(__file__).with_name("golden")


NUM_RECORDS = 23


def make_record(number: int) -> bytes:
    return encode_example(
        {
            "number": np.array([number]),
            "some": np.arange(number % 3, dtype=np.float32),
            "words": [b"%d" % number] * (number % 2 + 1),
        }
    )


def decoder_of(**handlers: Any) -> TFExampleDecoder:
    features = {
        "number": FixedLenFeature((), "int64"),
        "some": VarLenFeature("float32"),
        "words": VarLenFeature("string"),
    }
    handlers = handlers or {
        "number": Tensor("number"),
        "some": Tensor("some"),
        "words": Tensor("words", None, None, ""),
    }
    return TFExampleDecoder(features, handlers)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(map(make_record, range(NUM_RECORDS)))


def write(records: Any) -> None:
    Path("f").write_bytes(b"".join(map(frame_record, records)))


def provider_of(decoder: Any = None, **options: Any) -> DatasetDataProvider:
    dataset = SimpleNamespace(data_sources="f", reader=None, decoder=decoder or decoder_of(), num_samples=NUM_RECORDS)
    return DatasetDataProvider(dataset, **{"shuffle": False, "num_epochs": 1, **options})


@pytest.mark.parametrize("size", [1, 2, 5, 23, 24, 1000])
def test_batches_are_the_records_in_order(size: int) -> None:
    batches = [numbers for (numbers,) in provider_of().batches(["number"], size)]
    assert [number for numbers in batches for number in numbers.tolist()] == list(range(NUM_RECORDS))
    assert {len(numbers) for numbers in batches[:-1]} <= {size}
    assert all(numbers.dtype == np.int64 and numbers.ndim == 1 for numbers in batches)


def test_items_are_returned_in_the_requested_order() -> None:
    provider = provider_of()
    numbers, keys, again = next(provider.batches(("number", "record_key", "number"), 3))
    assert numbers.tolist() == again.tolist() == [0, 1, 2]
    assert keys.tolist() == [b"f:0", b"f:%d" % (16 + len(make_record(0))), keys[2]]
    (only_keys,) = next(provider.batches(["record_key"], 2))
    assert only_keys.shape == (2,)
    assert next(provider.batches(["number"], 2))[0].tolist() == [5, 6]
    assert next(provider.batches([], 2)) == []
    assert provider.get(["number"]) == [9]


def test_values_of_other_shapes_are_objects_unless_they_are_filled_up() -> None:
    (some,) = next(provider_of().batches(["some"], 5))
    assert (some.dtype, some.shape) == (object, (5,))
    assert [values.tolist() for values in some] == [[], [0], [0, 1], [], [0]]
    some, words = next(provider_of().batches(["some", "words"], 5, dynamic_pad=True))
    assert some.dtype == np.float32
    assert some.tolist() == [[0, 0], [0, 0], [0, 1], [0, 0], [0, 0]]
    assert words.tolist() == [[b"0", b""], [b"1", b"1"], [b"2", b""], [b"3", b"3"], [b"4", b""]]


def test_a_batch_does_not_depend_on_other_batches() -> None:
    # Records are decoded ahead together; different records among them must not affect a batch of similar records.
    write([make_record(number) for number in (0, 3, 6, 1, 1, 4, 4, 2, 5)])
    shapes = [some.shape for (some,) in provider_of().batches(["some"], 3)]
    assert shapes == [(3, 0), (3, 1), (3,)]


def test_sparse_values_are_objects() -> None:
    decoder = decoder_of(some=ItemHandlerCallback(["some"], lambda features: features["some"]))
    (some,) = next(provider_of(decoder).batches(["some"], 4, dynamic_pad=True))
    assert some.shape == (4,)
    assert all(isinstance(value, SparseTensorValue) for value in some)


def test_a_smaller_batch_comes_last_or_not_at_all() -> None:
    assert [len(numbers) for (numbers,) in provider_of().batches(["number"], 10)] == [10, 10, 3]
    provider = provider_of()
    batches = provider.batches(["number"], 10, drop_remainder=True)
    assert [len(numbers) for (numbers,) in batches] == [10, 10]
    with pytest.raises(OutOfRangeError):
        provider.get(["number"])


def test_a_batch_may_reach_over_the_end_of_an_epoch() -> None:
    batches = [numbers.tolist() for (numbers,) in provider_of(num_epochs=2).batches(["number"], 20)]
    assert batches[1] == [20, 21, 22, *range(17)]
    assert list(map(len, batches)) == [20, 20, 6]


def test_who_asks_in_turns_loses_no_record() -> None:
    provider = provider_of()
    found: list[int] = []
    for size in (1, 4, 0, 2, 2, 0, 5, 3, 0):
        if size:
            found += next(provider.batches(["number"], size))[0].tolist()
        else:
            found += [int(provider.get(["number"])[0])]
    assert found == list(range(20))


def test_a_record_that_cannot_be_decoded_is_an_error_once_and_takes_no_other_with_it() -> None:
    bad = encode_example({"number": [b"seven"]})
    write([make_record(number) for number in range(7)] + [bad] + [make_record(number) for number in range(8, 12)])
    batches = provider_of().batches(["number", "record_key"], 5)
    assert next(batches)[0].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(CorruptExampleError) as caught:
        next(batches)
    offset = sum(16 + len(make_record(number)) for number in range(7))
    assert caught.value.details["offset"] == offset
    assert str(caught.value) == (f"f: record at byte {offset}: feature 'number': expected int64 values, found string")
    assert [numbers.tolist() for numbers, _ in batches] == [[5, 6, 8, 9, 10], [11]]


@pytest.mark.parametrize("drop_remainder", [False, True])
def test_items_before_a_damaged_record_are_returned(drop_remainder: bool) -> None:
    content = bytearray(Path("f").read_bytes())
    content[sum(16 + len(make_record(number)) for number in range(7)) + 13] ^= 1
    Path("f").write_bytes(content)
    batches = provider_of().batches(["number"], 5, drop_remainder=drop_remainder)
    assert next(batches)[0].tolist() == [0, 1, 2, 3, 4]
    if not drop_remainder:
        assert next(batches)[0].tolist() == [5, 6]
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=r"^f: record 7 at byte"):
            next(batches)


class Texts(DataDecoder):
    """Raise the text of the record as its fault."""

    def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[Any]:  # noqa: ARG002 (there is one)
        if data == b"stop":
            raise KeyboardInterrupt
        if data == b"odd":
            raise LookupError("an odd one")
        return [data, data] if data == b"two" else [data]

    def list_items(self) -> list[str]:
        return ["text"]


def test_what_a_decoder_of_ones_own_does_wrong_is_said_of_the_record() -> None:
    write([b"a", b"two", b"b", b"odd", b"c"])
    batches = provider_of(Texts()).batches(["text"], 5)
    with pytest.raises(UsageError) as caught:
        next(batches)
    assert caught.value.message == "f: record at byte 17: the decoder Texts returned 2 values for the items text"
    with pytest.raises(LookupError, match=r"^an odd one") as odd:
        next(batches)
    assert odd.value.__notes__ == ["while decoding the record at byte 53 of f"]
    assert next(batches)[0].tolist() == [b"a", b"b", b"c"]


def test_a_decoder_that_gives_too_few_rows_has_its_records_decoded_alone() -> None:
    class Lazy(Texts):
        def decode_rows(self, block: RecordBlock, items: Sequence[str]) -> Iterator[list[Any]]:
            return iter(list(super().decode_rows(block, items))[1:])

    write([b"a", b"b", b"c"])
    assert next(provider_of(Lazy()).batches(["text"], 3))[0].tolist() == [b"a", b"b", b"c"]


def test_an_interrupt_while_a_batch_is_decoded_loses_no_records() -> None:
    write([b"a", b"b", b"stop", b"c"])
    provider = provider_of(Texts())
    batches = provider.batches(["text"], 3)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            next(batches)
    assert provider.get(["text"]) == [b"a"]


def test_arrays_that_cannot_be_padded_are_reported_and_no_record_is_lost() -> None:
    ranks = ItemHandlerCallback("number", lambda features: np.zeros((1,) * int(features["number"] + 1)))
    provider = provider_of(decoder_of(ranks=ranks, number=Tensor("number")))
    batches = provider.batches(["ranks"], 2, dynamic_pad=True)
    for _ in range(2):
        with pytest.raises(WrongTypeError) as caught:
            next(batches)
        assert caught.value.message == "elements of different numbers of dimensions cannot be stacked: (1,), (1, 1)"
        assert caught.value.hint == "Read the elements one by one, or convert them first."
    assert provider.get(["number"]) == [0]


@pytest.mark.parametrize(
    ("make", "filled"),
    [
        (lambda number: np.array(["a"] * (number + 1)), [["a", ""], ["a", "a"]]),
        (lambda number: np.array([b"a"] * (number + 1)), [[b"a", b""], [b"a", b"a"]]),
        (lambda number: np.array([b"a"] * (number + 1), object), [[b"a", b""], [b"a", b"a"]]),
        (lambda number: np.array([True] * (number + 1)), [[True, False], [True, True]]),
    ],
)
def test_arrays_are_padded_with_the_empty_value_of_their_dtype(make: Any, filled: list[Any]) -> None:
    decoder = decoder_of(some=ItemHandlerCallback("number", lambda features: make(int(features["number"]))))
    assert next(provider_of(decoder).batches(["some"], 2, dynamic_pad=True))[0].tolist() == filled


@pytest.mark.parametrize("kind", [np.str_, np.bytes_])
def test_texts_of_numpy_are_not_cut_off(kind: Any) -> None:
    decoder = decoder_of(some=ItemHandlerCallback("number", lambda features: kind(str(10 ** features["number"]))))
    (column,) = next(provider_of(decoder).batches(["some"], 4))
    assert list(column) == [kind(str(10**number)) for number in range(4)]


@pytest.mark.parametrize("change", [-1, 1, -8])
def test_a_handler_that_gives_another_number_of_items_is_not_believed(change: int) -> None:
    class Odd(ItemHandler):
        def __init__(self) -> None:
            super().__init__("number")

        def tensors_to_item(self, keys_to_tensors: Any) -> Any:
            return np.full(3, keys_to_tensors["number"])

        def columns_to_items(self, keys_to_columns: Any) -> Any:
            numbers = list(keys_to_columns["number"])
            return (np.full(3, number) for number in (numbers + numbers)[: len(numbers) + change])

    (column,) = next(provider_of(decoder_of(some=Odd())).batches(["some"], 8))
    assert column.tolist() == [[number] * 3 for number in range(8)]


def test_bad_records_cost_each_other_record_one_decoding() -> None:
    decoded: list[bytes] = []

    class Counting(Texts):
        def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[Any]:
            decoded.append(data)
            return super().decode(data, items)

        def decode_batch(self, records: Any, items: Sequence[str] | None = None) -> list[Any]:  # noqa: ARG002
            raise CorruptExampleError("one of them is bad")

    write([b"odd" if number % 5 == 4 else b"%d" % number for number in range(200)])
    batches, found, num_bad = provider_of(Counting()).batches(["text"], 50), [], 0
    while True:
        try:
            found += next(batches)[0].tolist()
        except LookupError:
            num_bad += 1
        except OutOfRangeError:
            break
    assert found == [b"%d" % number for number in range(200) if number % 5 != 4]
    assert num_bad == 40
    assert len(decoded) == 200


@pytest.mark.parametrize("columns", [[[1, 2, 3]], None, (np.zeros(2),), iter([np.zeros(3), np.zeros(3)])], ids=range(4))
def test_invalid_columns_are_replaced_by_decoding_record_by_record(columns: Any) -> None:
    class Odd(Texts):
        def decode_batch(self, records: Any, items: Sequence[str] | None = None) -> Any:  # noqa: ARG002
            return columns

    write([b"a", b"b", b"c"])
    assert next(provider_of(Odd()).batches(["text"], 3))[0].tolist() == [b"a", b"b", b"c"]


def test_a_decoder_that_raises_the_end_of_the_records_is_named() -> None:
    decoder = decoder_of(some=ItemHandlerCallback("number", lambda _: next(iter(()))))
    with pytest.raises(UsageError) as caught:
        next(provider_of(decoder).batches(["some"], 5))
    assert caught.value.message == "f: record at byte 0: the decoder TFExampleDecoder raised StopIteration"
    assert (
        caught.value.hint == "StopIteration means the end of the records. Perhaps a next() without a default raised it."
    )


def test_few_records_with_large_items_are_decoded_ahead() -> None:
    seen: list[int] = []

    class Counting(TFExampleDecoder):
        def decode_batch(self, records: Any, items: Sequence[str] | None = None) -> list[Any]:
            seen.append(records.num_records)
            return super().decode_batch(records, items)

    write(map(make_record, range(400)))
    features = {"number": FixedLenFeature((), "int64")}
    handlers = {
        "number": Tensor("number"),
        "image": ItemHandlerCallback("number", lambda _: np.zeros(2**17)),  # 1 MiB each, of 16 MiB in all
    }
    for item, most in (("number", 200), ("image", 16)):
        seen.clear()
        decoder = Counting(features, handlers)
        assert sum(len(column) for (column,) in provider_of(decoder).batches([item], 4)) == 400
        assert most // 2 < max(seen) <= most


def test_records_that_are_far_larger_than_those_before_are_not_decoded_together() -> None:
    seen: list[list[int]] = []

    class Sizes(Texts):
        def decode_batch(self, records: Any, items: Sequence[str] | None = None) -> list[Any]:
            seen.append(records.lengths.tolist())
            return super().decode_batch(records, items)

    write([b"a" * 20] * 300 + [b"b" * 2000] * 60)
    batches = [column.tolist() for (column,) in provider_of(Sizes()).batches(["text"], 4)]
    assert [text for batch in batches for text in batch] == [b"a" * 20] * 300 + [b"b" * 2000] * 60
    assert max(map(len, seen)) > 100
    assert len(next(lengths for lengths in seen if 2000 in lengths)) == 4


def test_an_invalid_request_is_refused_at_once() -> None:
    requests: list[tuple[Any, Any]] = [
        (["number"], 0),
        (["number"], 2.5),
        (["number"], True),
        (["numbre"], 2),
        ("number", 2),
    ]
    check_errors(GOLDEN / "slim_batches.txt", (partial(provider_of().batches, *request) for request in requests))


def test_a_closed_provider_gives_no_batch() -> None:
    provider = provider_of()
    batches = provider.batches(["number"], 2)
    next(batches)
    provider.close()
    with pytest.raises(UsageError, match=r"^this reader was closed(?m:$)"):
        next(batches)


def test_large_records_are_decoded_ahead_a_megabyte_at_a_time() -> None:
    seen = []

    class Counting(Texts):
        def decode_batch(self, records: Any, items: Sequence[str] | None = None) -> list[Any]:
            seen.append(records.num_records)
            return super().decode_batch(records, items)

    write([b"%0300000d" % number for number in range(20)])
    texts = [text for (texts,) in provider_of(Counting()).batches(["text"], 2) for text in texts]
    assert [int(text[-2:]) for text in texts] == list(range(20))
    assert max(seen) == 2
    write([b"%d" % number for number in range(200)])
    seen.clear()
    assert sum(len(texts) for (texts,) in provider_of(Counting()).batches(["text"], 2)) == 200
    assert (seen[0], max(seen) > 30, {count % 2 for count in seen}) == (2, True, {0})


def test_no_more_batches_are_decoded_ahead_than_some_megabytes_take() -> None:
    seen = []

    class Inflating(Texts):
        num_shapes = 1

        def decode_batch(self, records: Any, items: Sequence[str] | None = None) -> list[Any]:
            seen.append(records.num_records)
            return super().decode_batch(records, items)

        def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[Any]:  # noqa: ARG002 (there is one)
            return [np.zeros((int(data) % self.num_shapes + 1, 2**20), np.uint8)]

    write([b"%d" % number for number in range(60)])
    decoder = Inflating()
    for decoder.num_shapes in (1, 2):
        seen.clear()
        assert sum(len(texts) for (texts,) in provider_of(decoder).batches(["text"], 3)) == 60
        assert 3 < max(seen) <= 16


def test_arrays_of_other_dtypes_are_not_made_alike() -> None:
    kinds = ItemHandlerCallback("number", lambda features: np.zeros(2, "iuf"[features["number"] % 3] + "4"))
    (column,) = next(provider_of(decoder_of(kinds=kinds)).batches(["kinds"], 6))
    assert [value.dtype.kind for value in column] == list("iufiuf")
    (column,) = next(provider_of(decoder_of(kinds=kinds)).batches(["kinds"], 1))
    assert (column.dtype.kind, column.shape) == ("i", (1, 2))


@pytest.mark.parametrize("option", ["drop_remainder", "dynamic_pad"])
def test_a_text_is_refused_as_a_flag(option: str) -> None:
    with pytest.raises(WrongTypeError, match=rf"^{option} must be True or False, not 'no'(?m:$)"):
        provider_of().batches(["number"], 2, **{option: "no"})
