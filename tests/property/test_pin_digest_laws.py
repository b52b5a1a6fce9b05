"""The digests of a pin equal those computed from the definition, however the records are stored."""

from __future__ import annotations

import gzip
import hashlib
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import CorruptExampleError
from registry.model import ShardedFileTemplate, ShardLengths, Split
from registry.pins import measure
from registry.pins.measure import RecordDigests, measure_records
from registry.pins.record_digests import PRIME
from registry.splits import resolve
from registry.storage import Store, open_store
from registry.tfrecord import IndexFolder, frame_record

Example = dict[str, tuple[str, list[Any]]]
"""What a record holds: kind and values by key."""

NUMBERS = {"bytes": 1, "float": 2, "int64": 3}


# The records, written by hand


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    found = b""
    while number >= 128:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def message(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def serialize(example: Example, *, keys: Sequence[str] = (), is_packed: bool = True) -> bytes:
    """A tf.train.Example with keys in the order ``keys``, and with packed or unpacked numbers."""
    entries = []
    for key in keys or [*example]:
        kind, values = example[key]
        if kind == "bytes":
            content = b"".join(message(1, value) for value in values)
        else:
            one = {"float": lambda value: struct.pack("<f", value), "int64": varint}[kind]
            tag = {"float": b"\x0d", "int64": b"\x08"}[kind]
            packed = message(1, b"".join(map(one, values))) if values else b""
            content = packed if is_packed else b"".join(tag + one(value) for value in values)
        entries.append(message(1, message(1, key.encode()) + message(2, message(NUMBERS[kind], content))))
    return message(1, b"".join(entries))


# The definition, implemented with the standard library alone (registry/pins/document.py, feature_digest.py)


def walk(file: bytes) -> Iterator[bytes]:
    """The records of a TFRecord file: length, its checksum, the record, its checksum."""
    data = gzip.decompress(file) if file[:2] == b"\x1f\x8b" else file
    place = 0
    while place < len(data):
        (size,) = struct.unpack_from("<Q", data, place)
        yield data[place + 12 : place + 12 + size]
        place += size + 16


def sums_of(digests: Sequence[bytes]) -> str:
    numbers = [int.from_bytes(digest, "big") for digest in digests]
    weighted = sum(weight * number for weight, number in enumerate(numbers, 1))
    return f"{sum(numbers) % PRIME:064x}-{weighted % PRIME:064x}"


def features_of(examples: Sequence[Example], leaf: int) -> dict[str, str]:
    found = {}
    for key in sorted({key for example in examples for key in example}):
        leaves = b""
        for start in range(0, len(examples), leaf):
            hasher = hashlib.sha256()
            for kind in ("bytes", "float", "int64"):
                held = [example.get(key, (kind, [])) for example in examples[start : start + leaf]]
                rows = [values if one == kind else [] for one, values in held]
                values = [value for row in rows for value in row]
                if not values:
                    continue
                hasher.update(kind.encode() + b"\0" + struct.pack(f"<{len(rows)}Q", *map(len, rows)))
                if kind == "bytes":
                    hasher.update(struct.pack(f"<{len(values)}Q", *map(len, values)) + b"".join(values))
                else:
                    hasher.update(struct.pack(f"<{len(values)}{'f' if kind == 'float' else 'q'}", *values))
            leaves += hasher.digest()
        found[key] = "sha256:" + hashlib.sha256(leaves).hexdigest()
    return found


def by_definition(records: Sequence[bytes], examples: Sequence[Example], leaf: int) -> RecordDigests:
    digests = [hashlib.sha256(record).digest() for record in records]
    reported = ["sha256:" + digest.hex() for digest in digests]
    return RecordDigests(
        num_examples=len(records),
        ordered="sha256:" + hashlib.sha256(b"".join(digests)).hexdigest(),
        unordered="sha256:" + hashlib.sha256(b"".join(sorted(digests))).hexdigest(),
        finder=measure.RecordSums.parse(sums_of(digests)),
        features=features_of(examples, leaf),
        spots=(reported[0], reported[len(reported) // 2], reported[-1]) if reported else None,
    )


# Stored


def store_records(
    records: Sequence[bytes], lengths: Sequence[int], *, is_gzip: bool = False, where: str | None = None
) -> tuple[Store, Split]:
    """``records`` in shards of ``lengths``; the last shard holds the rest."""
    store = open_store(where or f"memory://{uuid4().hex}")
    cuts = [0]
    for length in lengths:
        cuts.append(min(cuts[-1] + length, len(records)))
    cuts.append(len(records))
    shards = [records[start:stop] for start, stop in pairwise(cuts)]
    split = Split(
        name="train",
        shard_lengths=ShardLengths([len(shard) for shard in shards]),
        files=ShardedFileTemplate(dataset="numbers"),
    )
    for index, shard in enumerate(shards):
        data = b"".join(map(frame_record, shard))
        with store.create(split.filename(index)) as file:
            file.write(gzip.compress(data) if is_gzip else data)
    return store, split


def measured(store: Store, split: Split, expression: str = "train", **options: Any) -> RecordDigests:
    return measure_records(resolve(expression, {"train": split}), store, **{"processes": 1} | options)[0]


@contextmanager
def small_steps(*, leaf: int = 4, task_bytes: int = 1) -> Iterator[None]:
    """Leaves and runs as small as these, so that few records make many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "LEAF_RECORDS", leaf)
        patch.setattr(measure, "_TASK_BYTES", task_bytes)
        yield


FLOATS = st.floats(width=32, allow_nan=False)
VALUES = st.one_of(
    st.tuples(st.just("bytes"), st.lists(st.binary(max_size=5), max_size=3)),
    st.tuples(st.just("float"), st.lists(FLOATS, max_size=3)),
    st.tuples(st.just("int64"), st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9), max_size=3)),
)
EXAMPLES = st.lists(st.dictionaries(st.sampled_from(["a", "b/c", "é", ""]), VALUES, max_size=4), max_size=14)
SHARDS = st.lists(st.integers(0, 5), max_size=5)


@given(examples=EXAMPLES, lengths=SHARDS, is_gzip=st.booleans(), task_bytes=st.sampled_from([1, 200, 2**20]))
def test_the_digests_equal_those_of_the_definition(
    examples: list[Example], lengths: list[int], is_gzip: bool, task_bytes: int
) -> None:
    records = [serialize(example) for example in examples]
    store, split = store_records(records, lengths, is_gzip=is_gzip)
    read = [record for name in split.filenames for record in walk(store.read_bytes(name))]
    assert read == records
    with small_steps(task_bytes=task_bytes):
        assert measured(store, split) == by_definition(read, examples, 4)


@given(examples=EXAMPLES, lengths=SHARDS, others=SHARDS, data=st.data())
def test_the_digests_of_a_slice_do_not_depend_on_how_its_records_are_stored(
    examples: list[Example], lengths: list[int], others: list[int], data: st.DataObject
) -> None:
    records = [serialize(example) for example in examples]
    start = data.draw(st.integers(0, len(records)))
    stop = data.draw(st.integers(start, len(records)))
    expression = f"train[{start}:{stop}]+train[:{start}]+train[{start}:]"
    place = [*range(start, stop), *range(start), *range(start, len(records))]
    with small_steps():
        one = measured(*store_records(records, lengths), expression)
        assert measured(*store_records(records, others, is_gzip=True), expression) == one
        assert one == by_definition([records[at] for at in place], [examples[at] for at in place], 4)


@given(examples=EXAMPLES, data=st.data())
def test_the_order_free_digest_is_that_of_any_order(examples: list[Example], data: st.DataObject) -> None:
    records = [serialize(example) for example in examples]
    shuffled = data.draw(st.permutations(records))
    one, two = (measured(*store_records(given_, [3])) for given_ in (records, shuffled))
    assert one.unordered == two.unordered
    assert (one.ordered == two.ordered) == (records == shuffled)


@given(examples=EXAMPLES, data=st.data())
def test_features_count_and_their_serialization_does_not(examples: list[Example], data: st.DataObject) -> None:
    records = [serialize(example) for example in examples]
    again = [
        serialize(example, keys=data.draw(st.permutations([*example])), is_packed=data.draw(st.booleans()))
        for example in examples
    ]
    with small_steps():
        one, two = (measured(*store_records(given_, [3])) for given_ in (records, again))
    assert one.features == two.features == features_of(examples, 4)
    assert (one.ordered == two.ordered) == (records == again) == (one.unordered == two.unordered)


@given(examples=EXAMPLES.filter(len), data=st.data())
def test_a_changed_byte_of_one_record_is_found_with_the_digest_it_had(
    examples: list[Example], data: st.DataObject
) -> None:
    records = [serialize(example) for example in examples]
    place = data.draw(st.integers(0, len(records) - 1))
    at = data.draw(st.integers(0, len(records[place]) - 1))
    new = bytearray(records[place])
    new[at] ^= data.draw(st.integers(1, 255))
    changed = [*records[:place], bytes(new), *records[place + 1 :]]
    with small_steps():
        before, after = (measured(*store_records(given_, [3]), verify="off") for given_ in (records, changed))
    assert before.ordered != after.ordered
    assert before.unordered != after.unordered
    assert after.find_changed(before.finder) == place
    now = hashlib.sha256(new).digest()
    assert before.finder.hash_before(after.finder, now) == hashlib.sha256(records[place]).digest()


@given(examples=EXAMPLES.filter(len), data=st.data())
def test_a_changed_value_changes_the_digest_of_its_key_and_of_no_other(
    examples: list[Example], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(examples) - 1))
    key = data.draw(st.sampled_from(["a", "b/c", "new"]))
    value = data.draw(VALUES)
    changed = [*examples[:place], {**examples[place], key: value}, *examples[place + 1 :]]
    with small_steps():
        one, two = (measured(*store_records([*map(serialize, given_)], [3])).features for given_ in (examples, changed))
    differ = {name for name in {**one, **two} if one.get(name) != two.get(name)}
    old = examples[place].get(key)
    if repr(old) == repr(value):
        assert not differ
    elif old is not None and not old[1] and not value[1]:
        assert not differ  # no values of one kind, or of another
    elif old is None and not value[1]:
        assert differ <= {key}  # it counts if no other record has the key
    else:
        assert differ == {key}


def test_records_that_differ_only_in_a_kind_of_values_have_different_digests() -> None:
    """A key that holds bytes in one record and numbers in the next."""
    examples: list[Example] = [
        {"a": ("bytes", [b"1"])},
        {"a": ("int64", [1, -1])},
        {"a": ("float", [0.5])},
        {"a": ("bytes", [])},
        {},
        {"a": ("int64", [])},
    ] * 5
    for leaf in (1, 2, 7, 1024):
        with small_steps(leaf=leaf):
            found = measured(*store_records([*map(serialize, examples)], [4, 4]))
        assert found == by_definition([*map(serialize, examples)], examples, leaf)


@pytest.mark.parametrize("is_gzip", [False, True])
def test_thousands_of_records_have_the_same_digests_whichever_process_hashes_them(
    tmp_path: Path, is_gzip: bool
) -> None:
    examples: list[Example] = [
        {"id": ("int64", [number]), "text": ("bytes", [b"x" * (number % 7)] * (number % 3))} for number in range(5000)
    ]
    records = [serialize(example, is_packed=number % 5 != 0) for number, example in enumerate(examples)]
    wanted = by_definition(records, examples, 1024)
    folder = tmp_path / "data"
    store, split = store_records(records, [1500, 0, 1024, 2000], is_gzip=is_gzip, where=str(folder))
    indexes = IndexFolder(tmp_path / "index")
    assert measured(store, split) == wanted
    assert measured(store, split, indexes=indexes) == wanted
    assert measured(store, split, indexes=indexes) == wanted
    assert measured(store, split, processes=2, indexes=indexes) == wanted
    with small_steps(leaf=1024, task_bytes=1):
        assert measured(store, split, indexes=indexes) == wanted
    assert measured(*store_records(records, [5000])) == wanted


def test_the_hashed_bytes_are_reported_and_the_files_are_measured() -> None:
    records = [serialize({"id": ("int64", [number])}) for number in range(10)]
    store, split = store_records(records, [4, 4])
    plan = resolve("train[2:]", {"train": split})
    reported: list[int] = []
    sizes = dict.fromkeys(split.filenames[:2], 100)
    found, files = measure_records(plan, store, files=sizes, processes=1, advance=reported.append)
    assert found == measured(store, split, "train[2:]")
    for name, facts in files.items():
        data = store.read_bytes(name)
        assert (facts.num_bytes, facts.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert sum(reported) == sum(file.num_bytes for file in files.values()) + sum(map(len, records[2:]))


def test_a_record_that_is_not_an_example_has_digests_only_without_verification() -> None:
    records = [serialize({"id": ("int64", [1])}), b"\xff\xff", serialize({"id": ("int64", [2])})]
    store, split = store_records(records, [2])
    found = measured(store, split, verify="off")
    assert found == by_definition(records, [], 1024)
    with pytest.raises(CorruptExampleError) as caught:
        measured(store, split)
    where = "numbers-train.tfrecord-00000-of-00002: record 1: these 2 bytes are not a tf.train.Example"
    assert caught.value.message.startswith(where)
    assert (caught.value.details["path"], caught.value.details["record"]) == (split.filenames[0], 1)
