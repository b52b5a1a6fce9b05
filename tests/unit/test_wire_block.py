"""A block of records decodes to the same values as decode_example for each record, for every form of records."""

from __future__ import annotations

import numpy as np
import pytest
from support.block_checks import bits, check, joined, values_of

from registry.errors import UsageError
from registry.wire import BlockDecoder, FlatValue, RecordDecoder, decode_example, encode_example, locate
from registry.wire.varint import write_varint


def example(number: int = 0) -> dict[str, FlatValue]:
    return {
        "label": np.array([number]),
        "vec": np.arange(8, dtype=np.float32) + number,
        "id": [f"{number:05}".encode()],
        "score": np.array([0.5], np.float32),
    }


def shuffled(values: dict[str, FlatValue], random: np.random.Generator) -> bytes:
    """A record with keys in any order."""
    entries = [encode_example({key: value})[2:] for key, value in values.items()]
    content = b"".join(entries[place] for place in random.permutation(len(entries)))
    return b"\x0a" + write_varint(len(content)) + content


def test_records_of_one_form() -> None:
    check([encode_example(example(number % 100)) for number in range(100)])


def test_keys_in_any_order() -> None:
    random = np.random.default_rng(0)
    check([shuffled(example(number % 100), random) for number in range(500)])


def test_more_orders_and_lengths_than_are_kept() -> None:
    random = np.random.default_rng(0)
    check([shuffled({key: np.array([7]) for key in "abcdef"}, random) for _ in range(2000)])
    check([encode_example({**example(), "id": [bytes(number % 100)]}) for number in range(3000)])


def test_more_forms_than_are_kept() -> None:
    keys = [f"{number:x}" * (1 + number % 3) for number in range(900)]
    check([encode_example({key: np.array([7]) for key in keys[number:][:20]}) for number in range(0, 800, 2)])
    check([encode_example({key: np.array([7]) for key in keys[number % 200 :][:20]}) for number in range(500)])


@pytest.mark.parametrize("most", [1, 40], ids=["one length", "many lengths"])
def test_each_entry_of_wide_records_is_parsed_once(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    keys, scan, parsed, tried = 300, locate.scan_entry, list[int](), list[object]()
    fit = locate._Step._fit
    monkeypatch.setattr(
        locate, "scan_entry", lambda record, position: (parsed.append(position), scan(record, position))[1]
    )
    monkeypatch.setattr(locate._Step, "_fit", lambda step, form: (tried.append(form), fit(step, form))[1])
    values: dict[str, FlatValue] = {f"feature_{number:03}": np.array([7]) for number in range(keys)}
    check([encode_example({**values, "text": [b"x" * (number % most)]}) for number in range(50)])
    assert (len(parsed), len(tried)) == ((0, 0) if most == 1 else (keys + 1, keys + 1))


def test_a_decoder_decodes_blocks_of_other_forms_than_it_has_learned() -> None:
    decoder = BlockDecoder()
    random = np.random.default_rng(0)
    for size in (5, 200, 20):
        for block in (
            [encode_example(example(number % 100)) for number in range(size)],
            [encode_example({**example(), "id": [bytes(number % 7)]}) for number in range(size)],
            [shuffled(example(number % 100), random) for number in range(size)],
            [SOUND] * size,
        ):
            expected = [bits(decode_example(record)) for record in block]
            assert [bits(values) for values in values_of(decoder.decode(*joined(block)))] == expected


def test_a_thousand_unrequested_keys_of_single_records_are_skipped() -> None:
    records = [encode_example({f"{number}": np.array([5]), "a": np.array([number])}) for number in range(1000)]
    block = BlockDecoder(["a"]).decode(*joined(records))
    assert set(block.columns) == {("a", "int64")}
    assert block.columns["a", "int64"].values.tolist() == list(range(1000))


def test_numbers_and_texts_of_any_size() -> None:
    random = np.random.default_rng(0)
    records = []
    for _ in range(300):
        numbers = random.integers(-(2**63), 2**63, random.integers(0, 4)) >> random.integers(0, 63)
        texts = [bytes(int(random.integers(0, 300))) for _ in range(random.integers(0, 4))]
        floats = random.random(random.integers(0, 3), np.float32)
        records.append(shuffled({"n": numbers, "t": texts, "f": floats, "id": [b"x" * 200]}, random))
    check(records)


@pytest.mark.parametrize("number", [1, 2, 12, 13, 40])
def test_any_number_of_records(number: int) -> None:
    check([encode_example(example(place)) for place in range(number)])


def test_no_records_and_empty_records() -> None:
    assert check([]).num_records == 0
    assert check([b""] * 40).columns == {}
    check([b"", encode_example(example())] * 20)


def test_keys_that_are_missing_in_some_records() -> None:
    check([encode_example({k: v for k, v in example(n).items() if n % 3 or k != "vec"}) for n in range(60)])


def test_one_key_in_several_kinds() -> None:
    kinds: list[FlatValue] = [np.array([1]), np.ones(2, np.float32), [b"a"], [], [b"a", b""], np.empty(0, np.float32)]
    check([encode_example({"a": kinds[place % len(kinds)], "b": np.array([7])}) for place in range(60)])


def entry(key: bytes, feature: bytes) -> bytes:
    name = b"\x0a" + write_varint(len(key)) + key
    content = name + b"\x12" + write_varint(len(feature)) + feature
    return b"\x0a" + write_varint(len(content)) + content


def record(*entries: bytes) -> bytes:
    content = b"".join(entries)
    return b"\x0a" + write_varint(len(content)) + content


def listed(tag: int, content: bytes) -> bytes:
    return bytes([tag]) + write_varint(len(content)) + content


SOUND = record(entry(b"a", listed(0x1A, listed(0x0A, b"\x05"))), entry(b"b", listed(0x12, listed(0x0A, bytes(8)))))

STRANGE = {
    "numbers that are not packed": record(entry(b"a", listed(0x1A, b"\x08\x05\x08\x80\x01"))),
    "floats that are not packed": record(entry(b"b", listed(0x12, b"\x0d\x00\x00\xa0\x7f\x0d\x00\x00\x80\x3f"))),
    "packed and not": record(entry(b"a", listed(0x1A, b"\x08\x05\x0a\x01\x06"))),
    "not packed and packed": record(entry(b"a", listed(0x1A, b"\x0a\x01\x06\x08\x05"))),
    "a key twice": record(entry(b"a", listed(0x1A, listed(0x0A, b"\x05"))), entry(b"a", listed(0x0A, b""))),
    "a key twice, malformed first": record(
        entry(b"a", listed(0x1A, listed(0x0A, b"\x80"))), entry(b"a", listed(0x1A, listed(0x0A, b"\x05")))
    ),
    "no key": b"\x0a\x04\x0a\x02\x12\x00",
    "an empty entry": b"\x0a\x02\x0a\x00",
    "an unknown field": SOUND + b"\x12\x00",
    "an unknown field in a list": record(entry(b"a", listed(0x1A, b"\x0a\x01\x05\x10\x07"))),
    "features in two messages": SOUND + SOUND,
    "a Feature of no kind": record(entry(b"a", b"")),
    "an empty list of each kind": record(*(entry(bytes([97 + tag]), listed(tag, b"")) for tag in (0x0A, 0x12, 0x1A))),
    "empty packed runs": record(entry(b"a", listed(0x1A, b"\x0a\x00")), entry(b"b", listed(0x12, b"\x0a\x00"))),
    "the last of two kinds counts": record(entry(b"a", listed(0x1A, b"\x0a\x01\x05") + listed(0x0A, b"\x0a\x01x"))),
    "lengths of more bytes than needed": b"\x0a\x8e\x00\x0a\x89\x80\x00\x0a\x01a\x12\x04\x1a\x02\x08\x05",
    "a number of more bytes than needed": record(entry(b"a", listed(0x1A, listed(0x0A, b"\x85\x80\x00")))),
    "a number of ten bytes": record(entry(b"a", listed(0x1A, listed(0x0A, b"\xff" * 9 + b"\x01")))),
    "a signalling NaN": record(entry(b"b", listed(0x12, listed(0x0A, b"\x01\x00\xa0\x7f")))),
    "a signalling NaN, not packed": record(entry(b"b", listed(0x12, b"\x0d\x01\x00\xa0\x7f"))),
    "a signalling NaN beside an unknown field": record(
        entry(b"b", listed(0x12, listed(0x0A, b"\x01\x00\xa0\x7f"))), entry(b"c", listed(0x12, b"\x10\x07"))
    ),
    "a signalling NaN before an unknown field": record(
        entry(b"b", listed(0x12, listed(0x0A, b"\x01\x00\xa0\x7f") + b"\x12\x04\x01\x00\xa0\x7f"))
    ),
    "a long key": record(entry(b"k" * 400, listed(0x1A, listed(0x0A, b"\x05")))),
    "an item of a list that is long": record(entry(b"a", listed(0x0A, listed(0x0A, bytes(20000)) + b"\x0a\x00"))),
}

BAD = {
    "a number that is cut off": record(entry(b"a", listed(0x1A, listed(0x0A, b"\x80")))),
    "a number of eleven bytes": record(entry(b"a", listed(0x1A, listed(0x0A, b"\xff" * 10 + b"\x01")))),
    "three bytes for a float": record(entry(b"b", listed(0x12, listed(0x0A, bytes(3))))),
    "a key that is no text": record(entry(b"\xff", listed(0x1A, listed(0x0A, b"\x05")))),
    "a list that ends late": record(b"\x0a\x0a\x0a\x01a\x12\x05\x1a\x04\x0a\x01\x05"),
    "an item that ends late": record(entry(b"a", listed(0x0A, b"\x0a\x05x"))),
    "a record that is cut off": SOUND[:-1],
    "a record that goes on": SOUND + b"\x00",
    "no message at all": b"\xff" * 20,
}


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("common", [0, 5, 40])
def test_an_unusual_record_among_common_ones_is_decoded(name: str, common: int) -> None:
    check([SOUND] * common + [STRANGE[name]] + [SOUND] * common)


@pytest.mark.parametrize("name", STRANGE)
def test_many_strange_records(name: str) -> None:
    check([STRANGE[name]] * 30)
    check([STRANGE[name], SOUND] * 30)


@pytest.mark.parametrize("name", [name for name in STRANGE if "signalling" in name])
def test_a_signalling_nan_keeps_its_bits_in_every_form(name: str) -> None:
    assert decode_example(STRANGE[name])["b"].tobytes() == b"\x01\x00\xa0\x7f"


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("common", [0, 5, 40])
def test_a_bad_record_ends_the_block(name: str, common: int) -> None:
    block = check([SOUND] * common + [BAD[name]] + [SOUND] * common)
    assert block.num_records == common or block.fault is None


def test_the_first_of_several_bad_records_ends_the_block() -> None:
    bad = list(BAD.values())
    for place in range(len(bad)):
        check([SOUND] * 20 + list(STRANGE.values()) + bad[place:] + [SOUND] * 20 + bad[:place])


def test_only_the_requested_keys_are_returned_and_all_are_checked() -> None:
    data, offsets, lengths = joined([SOUND] * 20)
    assert set(BlockDecoder(["b", "c"]).decode(data, offsets, lengths).columns) == {("b", "float")}
    data, offsets, lengths = joined([SOUND] * 20 + [BAD["a number that is cut off"]])
    assert BlockDecoder(["b"]).decode(data, offsets, lengths).num_records == 20


def test_records_may_be_in_any_order_and_repeat() -> None:
    records = [encode_example(example(number)) for number in range(50)]
    data, offsets, lengths = joined(records)
    order = np.random.default_rng(0).integers(0, 50, 200)
    block = BlockDecoder().decode(data, offsets[order], lengths[order])
    expected = [bits(decode_example(records[place])) for place in order]
    assert [bits(values) for values in values_of(block)] == expected


def test_a_record_that_reaches_the_end_of_the_buffer() -> None:
    data, offsets, lengths = joined([SOUND] * 20, gap=b"")
    assert BlockDecoder().decode(data, offsets, lengths).num_records == 20
    assert BlockDecoder().decode(data[: lengths[0]], offsets[:1].repeat(30), lengths[:1].repeat(30)).num_records == 30


@pytest.mark.parametrize(
    ("offsets", "lengths"), [([0], [10**6]), ([-1], [2]), ([2**62], [2**62]), ([5], [2**63 - 1]), ([3], [-1])]
)
def test_records_outside_the_buffer_are_refused(offsets: list[int], lengths: list[int]) -> None:
    with pytest.raises(UsageError, match="a record is outside of the buffer, which has 100 bytes"):
        BlockDecoder().decode(np.zeros(100, np.uint8), np.array(offsets), np.array(lengths))


def test_other_buffers_are_refused() -> None:
    places = np.zeros(1, np.int64)
    with pytest.raises(UsageError, match="a buffer of records must be a contiguous 1-d array of uint8"):
        BlockDecoder().decode(np.zeros(100, np.uint8)[::2], places, places)
    with pytest.raises(UsageError, match="offsets and lengths must be 1-d arrays of int64"):
        BlockDecoder().decode(np.zeros(100, np.uint8), places, places.astype(np.int32))


def test_a_second_record_of_many_keys_is_not_scanned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = RecordDecoder()
    wide = {f"key_{number:03}": np.array([number % 100]) for number in range(300)}
    decoder.decode(encode_example(wide))

    def scan(*_: object) -> None:
        raise AssertionError("the form of an entry is not remembered")

    monkeypatch.setattr("registry.wire.block.scan_entry", scan)
    assert decoder.decode(encode_example(wide)) == wide
