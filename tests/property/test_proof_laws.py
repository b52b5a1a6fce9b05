"""Laws of the proof: the definition of content, the input of fingerprints, and the alignment of records."""

from __future__ import annotations

import dataclasses
import io
import pickle
import tempfile
import zlib
from collections import Counter
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image as Pillow
from support.feature_strategies import schemas_and_examples, tensors, values
from support.levels import examples
from support.prepared_samples import prepare

from registry.errors import CorruptRecordError, StorageError
from registry.features import FeaturesDict, Image, Ragged, Sequence, Tensor, Text, codec_of
from registry.features.content import ContentReader, content_bytes
from registry.features.fold import FingerprintFold, SplitFold
from registry.images.png import SIGNATURE
from registry.model import ShardedFileTemplate, ShardLengths, Split, SplitFingerprint
from registry.prepared import read_prepared
from registry.publishing import alignment
from registry.publishing import fingerprint as fingerprints
from registry.publishing.alignment import Alignment, align
from registry.publishing.fingerprint import RecordRun, StoredSplits, divide_run, fingerprint_splits
from registry.publishing.record_diff import tell_apart
from registry.storage import Store, open_store
from registry.tfrecord import frame_records
from registry.wire import encode_example

_NUMBERS = count()

# Content


def bits(value: Any) -> Any:
    """A decoded value as plain data that is equal if its bits are equal, computed without ``content_bytes``."""
    if isinstance(value, Ragged):
        return [level.tolist() for level in value.row_lengths], bits(value.flat_values)
    if isinstance(value, np.ndarray) and value.dtype == object:
        return value.shape, [bits(item) for item in value.flat]
    if isinstance(value, (np.ndarray, np.generic)):
        return value.shape, [f"{item:x}" for item in np.atleast_1d(value).tobytes()]
    return value


def content_of(features: FeaturesDict, record: bytes) -> dict[str, bytes]:
    reader = ContentReader(features)
    return dict(zip(reader.paths, reader.read(record), strict=True))


@given(schemas_and_examples(), st.data())
def test_contents_are_equal_if_decoded_values_are_equal(
    given_: tuple[FeaturesDict, dict[str, Any]], data: st.DataObject
) -> None:
    features, example = given_
    other = values(data.draw, features)
    mixed = {name: data.draw(st.sampled_from([example, other]))[name] for name in features}
    reader = ContentReader(features)
    records = [codec_of(features).encode(one) for one in (example, mixed)]
    contents = [content_of(features, record) for record in records]
    decoded = [reader.values(record, reader.paths) for record in records]
    assert len(reader.paths) == len(set(reader.paths))
    for path in reader.paths:
        is_equal = bits(decoded[0][path]) == bits(decoded[1][path])
        assert (contents[0][path] == contents[1][path]) is is_equal
        if not is_equal:
            before, after = tell_apart(decoded[0][path], decoded[1][path])
            assert before != after, "what is told of two values always differs"


@given(schemas_and_examples())
def test_the_order_of_keys_does_not_change_the_content(given_: tuple[FeaturesDict, dict[str, Any]]) -> None:
    features, example = given_
    flat = codec_of(features).flatten(example)
    # Messages one after the other are one message: here with the last key first.
    turned = b"".join(encode_example({key: flat[key]}) for key in sorted(flat, reverse=True))
    assert content_of(features, turned) == content_of(features, codec_of(features).encode(example))


@given(schemas_and_examples())
def test_an_absent_key_is_an_empty_list(given_: tuple[FeaturesDict, dict[str, Any]]) -> None:
    features, example = given_
    flat = codec_of(features).flatten(example)
    optional = {
        key
        for column in codec_of(features).columns
        if column.may_be_missing
        for _, keys in column.parts
        for key in keys
    }
    left = {key: value for key, value in flat.items() if key not in optional or len(value)}
    assert content_of(features, encode_example(left)) == content_of(features, encode_example(flat))


@given(schemas_and_examples(), st.data())
def test_hashing_records_as_they_are_written_gives_the_fingerprint_of_their_files(
    given_: tuple[FeaturesDict, dict[str, Any]], data: st.DataObject
) -> None:
    features, example = given_
    other = values(data.draw, features)
    records = [codec_of(features).encode(one) for one in (example, other)] * data.draw(st.sampled_from([1, 520]))
    fold, frames = SplitFold(features, [FingerprintFold]), frame_records(records)
    cut = data.draw(st.integers(0, len(records)))
    for part in (frames.part(0, cut), frames.part(cut, len(records))):
        fold.add(*part.payloads())
    written = fold.results()
    store = open_store(f"memory://hashed/{next(_NUMBERS)}")
    split = Split(
        name="train",
        shard_lengths=ShardLengths([len(records)]),
        num_bytes=frames.num_payload_bytes,
        files=ShardedFileTemplate(dataset="made", file_format="tfrecord"),
    )
    with store.create(split.filename(0)) as file:
        file.write(frames.data)
    stored = StoredSplits(store, (split,), features)
    assert written == [fingerprint_splits(stored, processes=1).folded.fingerprints["train"]]


@given(tensors(), st.data())
def test_the_encoding_of_a_tensor_does_not_change_the_content(tensor: Tensor, data: st.DataObject) -> None:
    if tensor.dtype == object or tensor.has_stored_shape or (None in tensor.shape and 0 in tensor.shape):
        return
    value = values(data.draw, tensor)
    encodings = ("bytes", "zlib") if tensor.dtype.name == "bfloat16" else ("none", "bytes", "zlib")
    schemas = [FeaturesDict({"x": dataclasses.replace(tensor, encoding=encoding)}) for encoding in encodings]
    contents = [content_of(features, codec_of(features).encode({"x": value})) for features in schemas]
    assert all(content == contents[0] for content in contents)


@given(st.lists(st.binary(max_size=3), min_size=1, max_size=4), st.lists(st.binary(max_size=3), min_size=1, max_size=4))
def test_texts_in_a_row_never_run_together(first: list[bytes], second: list[bytes]) -> None:
    """Rows of one text each, hashed one after the other, and one row with all of them: their lengths are in them."""
    joined = [b"".join(content_bytes(text) for text in texts) for texts in (first, second)]
    assert (joined[0] == joined[1]) is (first == second)
    arrays = [content_bytes(np.array(texts, object)) for texts in (first, second)]
    assert (arrays[0] == arrays[1]) is (first == second)


@pytest.mark.parametrize(
    ("feature", "one", "other"),
    [
        (Text(), b"a", b"a\0"),
        (Text(), b"", b"\0" * 8),
        (Sequence(Text()), [b"ab", b"c"], [b"a", b"bc"]),
        (Sequence(Text()), [b"\1\0\0\0\0\0\0\0a"], [b"", b"a"]),
        (Sequence(Text()), [], [b""]),
        (Sequence(Sequence("int64")), [[1], [2]], [[1, 2], []]),
        (Sequence(Sequence("int64")), [[], []], [[]]),
        (Sequence(Sequence("int64")), [], [[]]),
        (Tensor(shape=(None, None), dtype="uint8", encoding="bytes"), np.zeros((2, 3)), np.zeros((3, 2))),
        (Tensor(shape=(None, None), dtype="uint8", encoding="bytes"), np.zeros((0, 3)), np.zeros((0, 2))),
        (Tensor(shape=(), dtype="float32"), np.float32(0.0), np.float32(-0.0)),
        (Tensor(shape=(), dtype="float32"), np.float32("nan"), np.uint32(0x7FC00001).view(np.float32)),
        (Image(shape=(None, None, 1)), np.zeros((2, 3, 1), np.uint8), np.zeros((3, 2, 1), np.uint8)),
    ],
)
def test_values_that_are_nearly_alike_have_other_contents(feature: Any, one: Any, other: Any) -> None:
    features = FeaturesDict({"x": feature})
    assert content_of(features, codec_of(features).encode({"x": one})) != content_of(
        features, codec_of(features).encode({"x": other})
    )


def test_a_nan_is_the_same_content_as_itself() -> None:
    features = FeaturesDict({"x": "float32"})
    records = [codec_of(features).encode({"x": np.float32("nan")}) for _ in range(2)]
    assert content_of(features, records[0]) == content_of(features, records[1])


@settings(max_examples=examples(50))
@given(st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 3, 4])), st.data(), st.integers(0, 9))
def test_the_filters_and_the_compression_of_a_png_do_not_change_the_content(
    shape: tuple[int, int, int], data: st.DataObject, level: int
) -> None:
    pixels = data.draw(hnp.arrays(np.uint8, shape))
    features = FeaturesDict({"x": Image(shape=(None, None, shape[2]))})
    expected = content_of(features, codec_of(features).encode({"x": pixels}))
    file = io.BytesIO()
    Pillow.fromarray(pixels[:, :, 0] if shape[2] == 1 else pixels).save(file, "PNG", compress_level=level)
    by_hand = filtered_png(pixels, [data.draw(st.integers(0, 4)) for _ in range(shape[0])], level)
    for png in (file.getvalue(), by_hand):
        assert content_of(features, codec_of(features).encode({"x": png})) == expected
    pixels[-1, -1, -1] ^= 1
    assert content_of(features, codec_of(features).encode({"x": pixels})) != expected


def filtered_png(pixels: np.ndarray[Any, Any], filters: list[int], level: int) -> bytes:
    """A PNG with these filters of rows, written byte by byte according to the specification."""
    height, width, channels = pixels.shape
    above = [0] * (width * channels)
    out = bytearray()
    for row, kind in zip(pixels.reshape(height, -1).tolist(), filters, strict=True):
        out.append(kind)
        for place, value in enumerate(row):
            left = row[place - channels] if place >= channels else 0
            corner = above[place - channels] if place >= channels else 0
            up = above[place]
            nearest = min((left, up, corner), key=lambda one: abs(left + up - corner - one))
            out.append((value - (0, left, up, (left + up) // 2, nearest)[kind]) % 256)
        above = row
    header = b"".join(
        [width.to_bytes(4, "big"), height.to_bytes(4, "big"), bytes([8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0])]
    )
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(out), level)), (b"IEND", b""))
    return SIGNATURE + b"".join(
        len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big") for kind, body in chunks
    )


def test_the_content_of_a_jpeg_is_its_file() -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    files = []
    for comment in (b"", b"x"):
        file = io.BytesIO()
        Pillow.fromarray(pixels).save(file, "JPEG", comment=comment)
        files.append(file.getvalue())
    features = FeaturesDict({"x": Image()})
    records = [codec_of(features).encode({"x": file}) for file in files]
    assert content_of(features, records[0]) != content_of(features, records[1])
    np.testing.assert_array_equal(
        codec_of(features).decode(records[0])["x"], codec_of(features).decode(records[1])["x"]
    )


# Fingerprints


ROWS = FeaturesDict({"number": "int64", "text": Text()})


def rows(count: int) -> list[dict[str, Any]]:
    return [{"number": number % 7, "text": f"text {number}"} for number in range(count)]


def fingerprint(examples: list[dict[str, Any]], *, processes: int = 1, **how: Any) -> SplitFingerprint:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(prepare(Path(folder) / "x", splits={"train": examples}, features=ROWS, **how))
        stored = StoredSplits(store, read_prepared(store).splits, ROWS)
        seen: list[int] = []
        found = fingerprint_splits(stored, processes=processes, advance=seen.append).folded.fingerprints["train"]
    assert sum(seen) == len(examples), "progress counts every record once"
    return found


@st.composite
def cuts(draw: st.DrawFn, count: int) -> list[int]:
    """Shard lengths of ``count`` records, some of them 0."""
    places = sorted(draw(st.lists(st.integers(0, count), max_size=5)))
    return [stop - start for start, stop in zip([0, *places], [*places, count], strict=True)]


@settings(max_examples=examples(15))
@given(st.sampled_from([0, 1, 1023, 1024, 1025, 2500]).flatmap(lambda n: st.tuples(st.just(n), cuts(n))), st.booleans())
def test_shards_and_compression_do_not_change_a_fingerprint(sizes: tuple[int, list[int]], compress: bool) -> None:
    count, lengths = sizes
    assert fingerprint(rows(count), shards=lengths, compress=compress) == fingerprint(rows(count))


@settings(max_examples=examples(15))
@given(st.integers(0, 2499), st.sampled_from(["number", "text"]))
def test_a_changed_value_changes_its_feature_and_its_block_and_nothing_else(place: int, path: str) -> None:
    examples = rows(2500)
    before = fingerprint(examples)
    examples[place] = examples[place] | {"number": 9} if path == "number" else examples[place] | {"text": "else"}
    after = fingerprint(examples)
    (other,) = {"number", "text"} - {path}
    assert after.features[other] == before.features[other]
    assert after.features[path].digest != before.features[path].digest
    assert after.digest != before.digest
    pairs = zip(before.features[path].blocks, after.features[path].blocks, strict=True)
    assert [index for index, (old, new) in enumerate(pairs) if old != new] == [place // 1024]


def test_the_order_of_records_is_in_the_fingerprint() -> None:
    examples = rows(20)
    turned = [examples[1], examples[0], *examples[2:]]
    assert fingerprint(examples).features["number"] != fingerprint(turned).features["number"]


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_do_not_change_a_fingerprint(processes: int) -> None:
    assert fingerprint(rows(10_000), processes=processes, shards=3) == fingerprint(rows(10_000))


@pytest.mark.parametrize("compress", [False, True])
def test_the_next_run_goes_on_in_the_shard_of_the_last_unless_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: bool
) -> None:
    folder = prepare(
        tmp_path / "x", splits={"train": rows(9000)}, features=ROWS, shards=[5000, 0, 4000], compress=compress
    )
    stored = StoredSplits(open_store(folder), read_prepared(open_store(folder)).splits, ROWS)
    stored = pickle.loads(pickle.dumps(stored))  # noqa: S301 (as worker processes are sent it)
    opened: list[str] = []
    open_shard = fingerprints.open_shard

    def counted(store: Store, name: str, **options: Any) -> Any:
        opened.append(name)
        return open_shard(store, name, **options)

    monkeypatch.setattr(fingerprints, "open_shard", counted)
    runs = [RecordRun(0, start, min(start + 1024, 9000)) for start in range(0, 9000, 1024)]

    def read(run: RecordRun) -> list[bytes]:
        return [record for _, block in stored.blocks(run) for record in block.records()]

    whole = read(RecordRun(0, 0, 9000))
    assert (len(whole), len(opened)) == (9000, 2)
    assert [record for run in runs for record in read(run)] == whole
    assert len(opened) == 4
    if compress:  # a small file is read whole when it is opened
        return
    read(runs[0])
    first = folder / opened[0]
    content = first.read_bytes()
    first.write_bytes(content[: len(content) // 3])
    with pytest.raises((CorruptRecordError, StorageError)):
        read(runs[3])
    first.write_bytes(content)
    assert read(runs[3]) == whole[3072:4096]
    assert len(opened) == 6


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 64))
def test_runs_cover_every_record_once_and_start_at_a_leaf(start: int, count: int, width: int) -> None:
    start *= 1024
    runs = list(divide_run(RecordRun(0, start, start + count), width=width))
    places = [start, *(run.stop for run in runs)]
    assert [run.start for run in runs] == places[:-1]
    assert places[-1] == start + count
    assert all(run.start % 1024 == 0 and run.start < run.stop for run in runs)
    assert len(runs) <= max(8 * width, count // (512 * 1024) + 1)


# Alignment of two lists of records


def digests(items: list[int]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.array(items, np.uint64)


def check_alignment(old: list[int], new: list[int], found: Alignment) -> None:
    """Every place is in exactly one class, and the classes match their definition."""
    pairs = [*found.same.tolist(), *found.changed.tolist(), *found.moved.tolist()]
    assert sorted([one for one, _ in pairs] + found.removed.tolist()) == list(range(len(old)))
    assert sorted([other for _, other in pairs] + found.added.tolist()) == list(range(len(new)))
    assert all(old[one] == new[other] for one, other in [*found.same.tolist(), *found.moved.tolist()])
    assert all(old[one] != new[other] for one, other in found.changed.tolist())
    assert len(found.same) + len(found.moved) == sum((Counter(old) & Counter(new)).values())
    for classes in (found.same, found.changed):
        assert (np.diff(classes, axis=0) > 0).all(), "both sides rise"


few_values = st.lists(st.integers(0, 4), max_size=30)


@given(few_values, few_values)
def test_every_place_of_two_lists_is_in_one_class(old: list[int], new: list[int]) -> None:
    check_alignment(old, new, align(digests(old), digests(new)))


@settings(max_examples=examples(20))
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 40, 2000]), st.integers(0, 5000), st.integers(0, 5000))
def test_long_lists_of_few_values_are_aligned(seed: int, kinds: int, old_length: int, new_length: int) -> None:
    random = np.random.default_rng(seed)
    old, new = (random.integers(0, kinds, length).tolist() for length in (old_length, new_length))
    check_alignment(old, new, align(digests(old), digests(new)))


@given(st.lists(few_values, min_size=1, max_size=4), st.lists(few_values, min_size=4, max_size=4))
def test_nothing_is_the_same_beyond_a_fence(old: list[list[int]], new: list[list[int]]) -> None:
    new = new[: len(old)]
    fences = [(sum(map(len, old[:count])), sum(map(len, new[:count]))) for count in range(1, len(old))]
    flat_old, flat_new = list(chain(*old)), list(chain(*new))
    found = align(digests(flat_old), digests(flat_new), fences)
    check_alignment(flat_old, flat_new, found)
    for one, other in [*found.same.tolist(), *found.changed.tolist()]:
        assert all((one >= first) == (other >= second) for first, second in fences)


@given(st.integers(5, 3000), st.data())
def test_edits_of_different_records_are_found_exactly(count: int, data: st.DataObject) -> None:
    """Each edit has unchanged neighbours, so that no two edits can be reported as one."""
    places = data.draw(st.lists(st.integers(0, (count - 1) // 3), unique=True, max_size=30))
    kinds = {3 * place: data.draw(st.sampled_from(["drop", "insert", "replace"])) for place in places}
    old = list(range(count))
    new: list[int] = []
    expected = Counter(kinds.values())
    for item in old:
        kind = kinds.get(item)
        if kind == "insert":
            new += [10**6 + item, item]
        elif kind == "replace":
            new.append(10**6 + item)
        elif kind is None:
            new.append(item)
    found = align(digests(old), digests(new))
    check_alignment(old, new, found)
    assert len(found.same) == count - expected["drop"] - expected["replace"]
    assert found.removed.tolist() == sorted(place for place, kind in kinds.items() if kind == "drop")
    assert [new[place] - 10**6 for place in found.added.tolist()] == sorted(
        place for place, kind in kinds.items() if kind == "insert"
    )
    assert [(one, new[other] - 10**6) for one, other in found.changed.tolist()] == [
        (place, place) for place in sorted(kinds) if kinds[place] == "replace"
    ]


@given(st.integers(3, 200), st.data())
def test_a_record_that_was_put_elsewhere_has_moved(count: int, data: st.DataObject) -> None:
    start, stop = data.draw(st.integers(0, count - 1)), data.draw(st.integers(0, count - 1))
    old = list(range(count))
    new = old.copy()
    new.insert(stop, new.pop(start))
    found = align(digests(old), digests(new))
    check_alignment(old, new, found)
    assert len(found.moved) == (start != stop)
    assert (len(found.changed), len(found.removed), len(found.added)) == (0, 0, 0)


def test_gaps_within_gaps_end_somewhere() -> None:
    """Made so that each record is single only within the gap that the one before it leaves."""
    items = [2, 1, *(one for number in range(3, 5000) for one in (number, number - 1))]
    old = [one for place, item in enumerate(items) for one in (item, 10**9 + 2 * place)]
    new = [one for place, item in enumerate(items) for one in (item, 10**9 + 2 * place + 1)]
    check_alignment(old, new, align(digests(old), digests(new)))


def test_very_many_records_in_another_order_are_aligned_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "_EXACT", 1000)
    shuffled = np.random.default_rng(0).permutation(20_000).tolist()
    check_alignment(list(range(20_000)), shuffled, align(digests(list(range(20_000))), digests(shuffled)))
