"""The provider: the items it decodes, of which record, and when; errors of records with their place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.golden import check_errors
from support.slim_provider_samples import NUM_RECORDS, RECORD_BYTES, Numbers, provider_of, write

from registry.errors import (
    CorruptExampleError,
    CorruptRecordError,
    OutOfRangeError,
    TwoRecordsWarning,
    UsageError,
    WrongTypeError,
)
from registry.slim.data_files import DataFile
from registry.slim.dataset_data_provider import DatasetDataProvider
from registry.slim.readers import TextLineReader
from registry.storage import open_store
from registry.tfrecord import RecordBlock, frame_record

GOLDEN = Path(__file__).with_name("golden")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("f", range(NUM_RECORDS))


def test_items_are_returned_in_the_requested_order() -> None:
    provider = provider_of()
    assert provider.get(["double", "number"]) == [0, 0]
    assert provider.get(("number", "record_key", "double", "number")) == [1, b"f:19", 2, 1]
    assert provider.get(["record_key"]) == [b"f:38"]
    assert provider.get([]) == []
    number, text = provider.get(["number", "text"])
    assert (number, text) == (4, b"  4")


def test_a_provider_lists_the_items_and_descriptions_of_its_dataset() -> None:
    provider = provider_of(record_key="where")
    assert provider.list_items() == ["number", "double", "text", "where"]
    assert provider.num_samples() == 7
    assert provider.get(["where"]) == [b"f:0"]


def test_iterating_gives_dicts_of_all_items() -> None:
    examples = list(provider_of())
    assert examples[3] == {"number": 3, "double": 6, "text": b"  3", "record_key": b"f:57"}
    assert [example["number"] for example in examples] == list(range(NUM_RECORDS))


def test_iterating_over_some_items_gives_lists() -> None:
    provider = provider_of()
    assert [number for (number,) in provider.iter(["number"])] == list(range(NUM_RECORDS))
    for _ in range(2):
        with pytest.raises(OutOfRangeError, match=r"^there are no more records(?m:$)"):
            provider.get(["number"])
    assert list(provider.iter(["text"])) == []


def test_no_record_is_lost_or_repeated_for_any_requested_items() -> None:
    asked = [["number"], ["number", "double"], ["number"], ["number"], ["number"], ["number", "record_key"]]
    provider = provider_of()
    assert [provider.get(asked[turn % 6])[0] for turn in range(NUM_RECORDS)] == list(range(NUM_RECORDS))


def test_only_requested_items_and_returned_records_are_decoded_at_first() -> None:
    decoder = Numbers()
    provider = provider_of(decoder=decoder)
    assert decoder.decoded == []
    provider.get(["double"])
    assert decoder.decoded == [("double",)]
    next(provider.iter(["record_key"]))
    assert decoder.decoded == [("double",)]


def test_repeated_requests_for_the_same_items_are_decoded_together() -> None:
    decoder = Numbers()
    provider = provider_of(decoder=decoder)
    for _ in range(NUM_RECORDS):
        provider.get(["number"])
    assert decoder.most_together == 16
    assert len(decoder.decoded) == NUM_RECORDS


def test_no_more_records_are_decoded_together_than_a_megabyte_holds() -> None:
    Path("large").write_bytes(b"".join(frame_record(b"%400000d" % number) for number in range(9)))
    decoder = Numbers()
    provider = provider_of("large", decoder=decoder)
    assert [number for (number,) in provider.iter(["number"])] == list(range(9))
    assert decoder.most_together <= 2


def test_a_bad_record_is_named_and_the_next_call_continues_after_it() -> None:
    numbers = list(range(NUM_RECORDS))
    bad = [0, 5, 6, 30, 39]
    for number in bad:
        numbers[number] = -1
    write("f", numbers)
    provider = provider_of()
    found, faults = [], []
    while True:
        try:
            found.append(provider.get(["number"])[0])
        except CorruptExampleError as error:
            faults.append(error)
        except StopIteration:
            break
    assert found == [number for number in numbers if number >= 0]
    assert [fault.details for fault in faults] == [
        {"number": -1, "path": "f", "offset": place * RECORD_BYTES} for place in bad
    ]
    assert str(faults[1]) == "f: record at byte 95: it is below zero"
    assert faults[1].hint == "Count up."
    assert isinstance(faults[1].__cause__, CorruptExampleError)


def test_iterating_continues_after_a_bad_record_too() -> None:
    write("f", [1, -1, 3])
    rows = provider_of().iter(["number"])
    assert next(rows) == [1]
    with pytest.raises(CorruptExampleError, match=r"^f: record at byte 19: it is below zero(?m:$)"):
        next(rows)
    assert list(rows) == [[3]]


def test_a_bad_record_of_another_reader_is_named_by_its_line_or_key() -> None:
    Path("lines").write_bytes(b"1\n-2\n")
    provider = provider_of("lines", reader=TextLineReader)
    provider.get(["number"])
    with pytest.raises(CorruptExampleError, match=r"^lines: record at line 2: it is below zero(?m:$)") as caught:
        provider.get(["number"])
    assert caught.value.details == {"number": -2, "path": "lines", "line": 2}
    provider = provider_of("lines", reader=lambda _: iter([("mine", "-1")]))
    with pytest.raises(CorruptExampleError, match=r"^lines: record at key 'mine': it is below zero(?m:$)") as caught:
        provider.get(["number"])
    assert caught.value.details == {"number": -1, "path": "lines", "key": "mine"}


def test_any_other_error_of_a_decoder_is_raised_with_a_note_of_the_record() -> None:
    Path("f").write_bytes(frame_record(b"1") + frame_record(b"x") + frame_record(b"3"))
    provider = provider_of()
    assert provider.get(["number"]) == [1]
    with pytest.raises(ValueError, match="invalid literal") as caught:
        provider.get(["number"])
    assert caught.value.__notes__ == ["while decoding the record at byte 17 of f"]
    assert provider.get(["number"]) == [3]


@pytest.mark.parametrize("items", [["number", "double"], ["record_key", "number", "double"]])
def test_a_decoder_that_gives_another_number_of_values_is_refused_and_no_record_lost(items: list[str]) -> None:
    class Short(Numbers):
        def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[Any]:
            row = super().decode(data, items)
            return {1: row[:1], 2: [*row, "more"]}.get(int(data), row)

    rows = provider_of(decoder=Short()).iter(items)
    assert next(rows)[-2:] == [0, 0]
    for given, byte in ((1, 19), (3, 38)):
        with pytest.raises(UsageError) as caught:
            next(rows)
        assert caught.value.message == (
            f"f: record at byte {byte}: the decoder Short returned {given} value{'s' * (given > 1)} for the items "
            "number, double"
        )
        assert (
            caught.value.hint
            == "Return a list from decode with a value for each requested item, in the order of items."
        )
    assert next(rows)[-2:] == [3, 6]


def test_a_decoder_that_gives_too_few_rows_is_refused() -> None:
    class Lazy(Numbers):
        def decode_rows(self, block: RecordBlock, items: Sequence[str]) -> Iterator[list[Any]]:
            return iter(list(super().decode_rows(block, items))[1:])

    provider = provider_of(decoder=Lazy())
    assert [provider.get(["number"]), provider.get(["number"])] == [[0], [2]]
    pattern = r"^Lazy.decode_rows must return a row for each record, and returned fewer(?m:$)"
    with pytest.raises(UsageError, match=pattern):
        provider.get(["number"])


def test_a_damaged_file_is_the_same_error_again() -> None:
    content = bytearray(Path("f").read_bytes())
    content[2 * RECORD_BYTES + 13] ^= 1
    Path("f").write_bytes(content)
    provider = provider_of()
    assert [provider.get(["number"]), provider.get(["number"])] == [[0], [1]]
    for _ in range(3):
        with pytest.raises(CorruptRecordError) as caught:
            provider.get(["number"])
        assert caught.value.details["offset"] == 2 * RECORD_BYTES


def test_records_of_a_data_file_are_those_it_takes() -> None:
    file = DataFile(store=open_store("."), filename="f", skip=3, take=2, num_records=NUM_RECORDS, path="digits")
    assert list(provider_of([file]).iter(["number", "record_key"])) == [[3, b"digits:57"], [4, b"digits:76"]]


def test_items_that_there_are_not_are_refused_and_cost_no_record() -> None:
    provider = provider_of()
    asks: list[Any] = [provider.get, provider.iter]
    calls = (partial(ask, items) for items in ("number", ["numbr"]) for ask in asks)
    check_errors(GOLDEN / "slim_providers_items.txt", calls)
    assert provider.get(["number"]) == [0]


def test_what_cannot_be_is_refused() -> None:
    check_errors(
        GOLDEN / "slim_providers" / "what_cannot_be_is_refused.txt",
        (
            partial(lambda options: provider_of(**options), row)
            for row in [
                {"record_key": "text"},
                {"shuffle": True, "common_queue_capacity": 8, "common_queue_min": 8},
                {"common_queue_capacity": 0},
                {"num_readers": 0},
            ]
        ),
    )


def test_a_small_buffer_is_enough_without_shuffling() -> None:
    assert len(list(provider_of(common_queue_capacity=1, num_readers=3))) == NUM_RECORDS


def test_the_seed_of_an_order_can_be_read_and_given_again() -> None:
    first = provider_of(shuffle=True)
    numbers = [number for (number,) in first.iter(["number"])]
    again = provider_of(shuffle=True, seed=first.seed)
    assert [number for (number,) in again.iter(["number"])] == numbers
    assert numbers != sorted(numbers)


def test_items_of_two_records_are_warned_of_once() -> None:
    provider = provider_of()
    assert provider.get(["number", "text"]) == [0, b"  0"]
    assert provider.get(["text"]) == [b"  1"]
    with pytest.warns(TwoRecordsWarning) as warned:
        assert provider.get(["double"]) == [4]
    assert str(warned[0].message) == (
        "text and double come from two different records, because two calls requested them; "
        "request both at once: get(['text', 'double'])"
    )
    assert warned[0].filename == __file__
    assert provider.get(["text"]) == [b"  3"]


@pytest.mark.parametrize(
    ("row", "what"), [({"number": 1}, "a dict"), ("n", "a str"), ((value for value in "n"), "a generator")]
)
def test_a_row_that_is_not_a_list_is_refused(row: Any, what: str) -> None:
    class Named(Numbers):
        def decode(self, data: bytes, items: Sequence[str] | None = None) -> Any:
            return row if int(data) == 1 else super().decode(data, items)

    for make in (DatasetDataProvider.iter, lambda provider, items: provider.batches(items, 3)):
        rows = make(provider_of(decoder=Named()), ["number"])
        if make is DatasetDataProvider.iter:
            assert next(rows) == [0]
        with pytest.raises(WrongTypeError) as caught:
            next(rows)
        assert caught.value.message == (
            f"f: record at byte 19: the decoder Named returned {what}, not a list, for the items number"
        )
        assert (
            caught.value.hint
            == "Return a list from decode with a value for each requested item, in the order of items."
        )
        assert caught.value.__notes__ == [f"hint: {caught.value.hint}"]


@pytest.mark.parametrize("listed", ["number", [1, 2]])
def test_items_that_are_not_names_are_refused(listed: Any) -> None:
    decoder = Numbers()
    decoder.list_items = lambda: listed  # type: ignore[method-assign]
    with pytest.raises(WrongTypeError, match=rf"^Numbers.list_items returned {re.escape(repr(listed))}(?m:$)"):
        provider_of(decoder=decoder)


class Version:
    def slice_of(self, split: str) -> None: ...


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (Version(), "Create one from the version: slim.Dataset.from_version(version, 'train')."),
        ("f", "Pass a slim.Dataset: slim.Dataset(files, ...), or slim.Dataset.from_version(version, split)."),
    ],
)
def test_a_value_that_is_not_a_slim_dataset_is_refused(given: Any, hint: str) -> None:
    with pytest.raises(WrongTypeError) as caught:
        DatasetDataProvider(given)
    assert caught.value.message == f"{given!r:.100} is not a TF-Slim dataset"
    assert caught.value.hint == hint


def test_flags_and_numbers_are_not_mistaken_for_each_other() -> None:
    check_errors(
        GOLDEN / "slim_providers" / "flags_and_numbers_are_not_mistaken_for_each_other.txt",
        (
            partial(provider_of, **options)
            for options in [
                {"shuffle": "False"},
                {"deterministic": 1},
                {"mix_epochs": None},
                {"num_epochs": True},
                {"num_readers": True},
            ]
        ),
    )
    assert provider_of(shuffle=np.True_).get(["number"])


def test_the_repr_of_a_provider_names_its_items() -> None:
    assert repr(provider_of(seed=3)) == "<DatasetDataProvider: number, double, text, record_key; seed 3>"
