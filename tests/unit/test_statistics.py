"""Statistics of texts, classes, stored files and wide schemas, and the document that holds them."""

from __future__ import annotations

import io
import json
import struct
import time
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.feature_strategies import wave_file
from support.golden import check_errors

from registry.errors import CorruptExampleError
from registry.features import (
    Audio,
    ClassLabel,
    FeaturesDict,
    Image,
    Scalar,
    Sequence,
    Tensor,
    Text,
    Video,
    codec_of,
    features_from_json,
)
from registry.features.codec import FlatRecords
from registry.images import encode_png
from registry.statistics import (
    Duplicates,
    FeatureStatistics,
    Frequent,
    SplitStatistics,
    Statistics,
    StatisticsFold,
    duplicate_sentences,
    parse_statistics,
    statistics_documents,
    statistics_of,
)
from registry.statistics.distinct import Registers, equal_places, hash_numbers
from registry.statistics.duplicates import find_duplicates, pile_of_split
from registry.statistics.media import ImageHeader, SoundHeader, read_image_header, read_sound_header
from registry.statistics.texts import Texts
from registry.tfrecord import frame_records

GOLDEN = Path(__file__).with_name("golden")


PICTURE = encode_png(np.zeros((2, 3, 3), np.uint8))


def blocks_of(features: FeaturesDict, examples: list[dict[str, Any]]) -> list[FlatRecords]:
    codec = codec_of(features)
    records = [codec.encode(example) for example in examples]
    return [codec.flat_records(*frame_records(records).payloads())] if records else []


def describe(features: FeaturesDict, examples: list[dict[str, Any]]) -> SplitStatistics:
    fold = StatisticsFold(features)
    state = fold.start()
    for block in blocks_of(features, examples):
        fold.add(state, block)
    return statistics_of({"train": fold.end(state)})["train"]


def test_the_fields_of_a_table_can_be_used_by_name() -> None:
    features = FeaturesDict({"price": "float32", "shop": Text(), "rating": Scalar("int8", optional=True)})
    examples = [{"price": price, "shop": "north", "rating": None if price else 5} for price in (0.0, 1.5, 3.0, np.nan)]
    split = describe(features, examples)
    assert list(split) == ["price", "rating", "shop"]  # sorted, as in the published schema
    assert (split["price"].mean, split["price"].nan, split["price"].zeros) == (1.5, 1, 1)
    assert split["shop"].frequent == (Frequent(value="north", count=4),)
    assert (split["rating"].count, split["rating"].nulls) == (1, 3)
    assert split.num_examples == 4


def test_an_empty_split_has_the_kinds_of_its_features_and_no_values() -> None:
    features = FeaturesDict({"x": "float64", "label": ClassLabel(names=["cat", "dog"]), "image": Image()})
    split = describe(features, [])
    assert [(path, split[path].kind, split[path].count) for path in split] == [
        ("image", "image", 0),
        ("label", "label", 0),
        ("x", "number", 0),
    ]
    assert split["label"].classes is not None
    assert split["label"].classes.unused == ("cat", "dog")
    assert json.loads(statistics_documents({"test": split})["statistics.json"])["splits"]["test"]["features"]["x"] == {
        "kind": "number",
        "dtype": "float64",
        "count": 0,
        "distinct": {"count": 0},
    }


def test_integers_keep_all_their_digits_in_the_document() -> None:
    extremes = [-(2**63), 2**63 - 1, 2**53 + 1]
    features = FeaturesDict({"signed": "int64", "unsigned": "uint64"})
    split = describe(features, [{"signed": value, "unsigned": value % 2**64} for value in extremes])
    document = statistics_documents({"train": split})["statistics.json"]
    assert b'"min":-9223372036854775808,"max":9223372036854775807' in document
    assert (split["unsigned"].max, split["unsigned"].min) == (2**63, 2**53 + 1)
    assert parse_statistics(document)["train"] == split


def test_classes_that_never_occur_are_named() -> None:
    label = ClassLabel(names=["cat", "dog", "fish"])
    split = describe(FeaturesDict({"label": label}), [{"label": name} for name in ("dog", "dog", "cat", -1)])
    classes = split["label"].classes
    assert (classes.counts, classes.unused, classes.num_unused, classes.num_unlabeled) == ((1, 2, 0), ("fish",), 1, 1)
    assert split["label"].frequent == (Frequent(value=1, count=2, name="dog"),)


@pytest.mark.parametrize(("num_classes", "num_unused"), [(2**20, 2**20 - 12_000), (2**30, None)])
def test_a_million_classes_are_counted_and_more_are_not(num_classes: int, num_unused: int | None) -> None:
    features = FeaturesDict({"label": ClassLabel(num_classes=num_classes)})
    split = describe(features, [{"label": place * 7} for place in range(12_000)])
    classes = split["label"].classes
    assert (classes.num_classes, classes.num_unused, classes.counts) == (num_classes, num_unused, None)
    assert len(statistics_documents({"train": split})["statistics.json"]) < 4000


def test_texts_have_lengths_in_characters_and_escaped_bytes() -> None:
    texts = ["", "grün", b"\xff\xfe", b"\xff\xfe", "x" * 79 + "ü" + "y" * 300, "x" * 79 + "ü" + "y" * 300]
    split = describe(FeaturesDict({"text": Text()}), [{"text": text} for text in texts])
    lengths = split["text"].text_lengths
    assert (lengths.count, lengths.zeros, lengths.max) == (6, 1, 380)
    assert split["text"].frequent == (
        Frequent(value="x" * 79, count=2, num_bytes=381),
        Frequent(value="\\xff\\xfe", count=2),
    )
    assert split["text"].distinct is not None
    assert split["text"].distinct.count == 4


@pytest.mark.parametrize("num_texts", [10_000, 10_001, 100_000])
def test_distinct_texts_are_exact_to_the_limit_and_estimated_beyond(num_texts: int) -> None:
    texts = [b"text %d" % place for place in range(num_texts)]
    whole, *parts = (Texts(buffer=100) for _ in range(4))
    whole.add(texts)
    for place, part in enumerate(parts):
        part.add(texts[place::3])
    for later in parts[:0:-1]:
        parts[0].merge(later)
    result = whole.end()
    assert parts[0].end() == result
    assert (result["distinct"].error == 0) == (num_texts == 10_000)
    assert abs(result["distinct"].count / num_texts - 1) <= 3 * result["distinct"].error


@pytest.mark.parametrize("num_hashes", [0, 1, 4096, 4097, 30_000])
def test_registers_are_those_of_each_hash_alone(num_hashes: int) -> None:
    hashes = hash_numbers(np.arange(num_hashes))
    expected = np.zeros(4096, np.uint8)
    for number in [*hashes.tolist(), 5 << 52]:  # the last has no bit below those of its register
        zeros = next((place for place in range(52) if number >> place & 1), 52)
        expected[number >> 52] = max(expected[number >> 52], zeros + 1)
    registers = Registers()
    for part in np.array_split(np.append(hashes, np.uint64(5 << 52)), 3):
        registers.add(part)
    assert registers.ranks.tolist() == expected.tolist()


@pytest.mark.parametrize("lowest", [0, 1, 7, 31, 40])
def test_registers_of_numbers_are_those_of_their_hashes(lowest: int) -> None:
    numbers = np.arange(30_000)
    by_number, by_hash = Registers(), Registers()
    for registers in (by_number, by_hash):
        registers.ranks[:] = lowest
    for part in np.array_split(numbers, 3):
        by_number.add_numbers(part)
    by_hash.add(hash_numbers(numbers))
    assert by_number.ranks.tolist() == by_hash.ranks.tolist()


def test_large_texts_are_not_kept_to_count_them() -> None:
    features = FeaturesDict({"text": Text()})
    examples = [{"text": f"{place} {'x' * 10_000}"} for place in range(2000)]
    distinct = describe(features, examples)["text"].distinct
    assert distinct.error > 0
    assert abs(distinct.count / 2000 - 1) <= 3 * distinct.error


@pytest.mark.parametrize("texts", [["ü" * 2_000_000], ["", "grün" * 300_000, "", "\0" * 9, ""], ["", "ü", ""]])
def test_characters_are_counted_in_little_memory(texts: list[str]) -> None:
    encoded = [text.encode() for text in texts]
    state = Texts(buffer=100)
    tracemalloc.start()
    state.add(encoded)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**18 + 3 * sum(map(len, encoded))
    lengths = state.end()["text_lengths"]
    assert (lengths.mean, lengths.max) == (sum(map(len, texts)) / len(texts), max(map(len, texts)))


@pytest.mark.parametrize(("num_features", "error"), [(4, 0), (25, 0.01625)])
def test_text_features_share_the_memory(num_features: int, error: float) -> None:
    features = FeaturesDict({f"t{place}": Text() for place in range(num_features)})
    split = describe(features, [dict.fromkeys(features, f"{place} {'x' * 100_000}") for place in range(30)])
    assert {leaf.distinct.error for leaf in split.values() if leaf.distinct is not None} == {error}


def test_headers_of_many_parts_are_given_up() -> None:
    segments, chunks = b"\xff\xe0\0\2", b"JUNK" + bytes(4)
    frame = b"\xff\xc0\0\x0b\x08\0\4\0\5\1" + bytes(3)
    wave = wave_file(np.zeros((7, 2), np.int16))
    for number, is_read in ((900, True), (1100, False)):
        assert (read_image_header(b"\xff\xd8" + segments * number + frame) is not None) is is_read
        assert (read_sound_header(wave[:12] + chunks * number + wave[12:]) is not None) is is_read
    start = time.process_time()
    assert read_image_header(b"\xff\xd8" + segments * 2**20) is None
    assert read_sound_header(wave[:12] + bytes(2**23)) is None
    assert time.process_time() - start < 0.2


def test_headers_of_images_say_format_size_and_mode() -> None:
    from PIL import Image as Pillow

    def encode(mode: str, kind: str) -> bytes:
        file = io.BytesIO()
        Pillow.new(mode, (5, 4)).save(file, kind)
        return file.getvalue()

    assert read_image_header(PICTURE) == ImageHeader("png", 2, 3, "RGB")
    assert read_image_header(encode("P", "PNG")) == ImageHeader("png", 4, 5, "P;1")
    assert read_image_header(encode("I;16", "PNG")) == ImageHeader("png", 4, 5, "L;16")
    assert read_image_header(encode("1", "PNG")) == ImageHeader("png", 4, 5, "L;1")
    assert read_image_header(encode("L", "JPEG")) == ImageHeader("jpeg", 4, 5, "L")
    assert read_image_header(encode("CMYK", "JPEG")) == ImageHeader("jpeg", 4, 5, "CMYK")
    for damaged in (b"", PICTURE[:20], b"\xff\xd8\xff\xe0", encode("RGB", "GIF"), PICTURE[:16] + bytes(9)):
        assert read_image_header(damaged) is None


def test_headers_of_audio_files_say_length_rate_and_channels() -> None:
    wave = wave_file(np.zeros((7, 2), np.int16))
    flac = b"fLaC\0\0\0\x22" + bytes(10) + (44100 << 44 | 1 << 41 | 15 << 36 | 88200).to_bytes(8, "big")
    assert read_sound_header(wave) == SoundHeader("wav", 7, 8000, 2)
    assert read_sound_header(wave[:-4]) == SoundHeader("wav", 6, 8000, 2), "the file is truncated"
    assert read_sound_header(flac) == SoundHeader("flac", 88200, 44100, 2)
    assert read_sound_header(b"OggS") == SoundHeader("ogg")
    assert read_sound_header(b"RIFF\0\0\0\0WAVEdata\0\0\0\0") is None
    assert read_sound_header(b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<I", 16) + bytes(16) + b"data\0\0\0\0") is None


def test_stored_files_that_cannot_be_read_are_counted_as_unknown() -> None:
    stored = FeaturesDict({"image": Text(), "sound": Text(), "clip": Sequence(Text())})
    features = FeaturesDict({"image": Image(), "sound": Audio(lazy_decode=True), "clip": Video(shape=(None, 2, 3, 3))})
    sound = wave_file(np.zeros((4000, 1), np.int16))
    examples = [
        {"image": PICTURE, "sound": sound, "clip": [PICTURE, PICTURE]},
        {"image": b"x", "sound": b"", "clip": []},
    ]
    fold = StatisticsFold(features)
    state = fold.start()
    for block in blocks_of(stored, examples):
        fold.add(state, block)
    split = fold.end(state).statistics
    assert split["image"].formats == {"png": 1, "unknown": 1}
    assert split["sound"].formats == {"unknown": 1, "wav": 1}
    assert split["sound"].seconds is not None
    assert (split["sound"].seconds.mean, split["sound"].seconds.count) == (0.5, 1)
    assert (split["clip"].formats, split["clip"].lengths[0].mean) == ({"png": 2}, 1.0)


def test_samples_with_a_rate_have_a_duration() -> None:
    features = FeaturesDict({"sound": Audio(sample_rate=8000, dtype="int16")})
    split = describe(features, [{"sound": np.zeros(length, np.int16)} for length in (4000, 8000, 12000)])
    seconds, lengths = split["sound"].seconds, split["sound"].lengths[0]
    assert (seconds.min, seconds.mean, seconds.max, lengths.max) == (0.5, 1.0, 1.5, 12000)
    assert split["sound"].zeros == 24_000


def test_a_feature_of_an_unknown_class_is_only_counted() -> None:
    node = {"pythonClassName": "lab.Lidar", "content": "{}"}
    known = {"pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict"}
    features = features_from_json(json.dumps({**known, "featuresDict": {"features": {"x": node}}}))
    fold = StatisticsFold(features)
    state = fold.start()
    records = [codec_of(FeaturesDict({"x": "int64"})).encode({"x": number}) for number in (1, 2, 1)]
    fold.add(state, codec_of(features).flat_records(*frame_records(records).payloads()))
    split = statistics_of({"train": fold.end(state)})["train"]
    assert split["x"] == FeatureStatistics(kind="other", dtype="", count=3)
    assert str(split["x"]) == "<FeatureStatistics: other, 3 values, nulls 0>"
    assert split.duplicates == Duplicates(num_repeated=1, num_groups=1)


def test_a_record_that_does_not_hold_the_feature_is_corrupt() -> None:
    fold = StatisticsFold(FeaturesDict({"x": "int64"}))
    (block,) = blocks_of(FeaturesDict({"x": Text()}), [{"x": "text"}])
    with pytest.raises(CorruptExampleError):
        fold.add(fold.start(), block)


def test_a_stored_bool_that_is_neither_0_nor_1_is_an_error() -> None:
    """Unlike other stored numbers, it is not used as it was read for the digests."""
    features = FeaturesDict({"x": Scalar("bool", encoding="bytes")})
    codec = codec_of(FeaturesDict({"x": Scalar("uint8", encoding="bytes")}))
    records = [codec.encode({"x": number}) for number in (0, 1, 2)]
    fold = StatisticsFold(features)
    with pytest.raises(CorruptExampleError):
        fold.add(fold.start(), codec_of(features).flat_records(*frame_records(records).payloads()))


def test_a_wide_schema_has_a_small_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("registry.statistics.fold.MOST_LEAVES", 20)
    monkeypatch.setattr("registry.statistics.fold.MOST_DETAILED", 10)
    features = FeaturesDict({f"x{place:02}": "int64" for place in reversed(range(25))})
    split = describe(features, [dict.fromkeys(features, place) for place in range(3)])
    assert list(split) == [f"x{place:02}" for place in range(20)]
    assert split.num_omitted == 5
    assert split["x09"].histogram is not None
    assert split["x10"].histogram is None
    assert split["x10"].mean == 1.0


def test_a_large_tensor_of_nested_arrays_is_counted_value_by_value() -> None:
    tensor = Tensor(shape=(None, None), dtype="float64", encoding="bytes")
    features = FeaturesDict({"maps": tensor, "steps": Sequence(Sequence("int32"))})
    examples = [{"maps": np.ones((2, 3)), "steps": [[1, 2], []]}, {"maps": np.zeros((4, 1)), "steps": [[3]]}]
    split = describe(features, examples)
    assert (split["maps"].count, split["maps"].zeros) == (10, 4)
    assert [lengths.max for lengths in split["maps"].lengths] == [4, 3]
    assert [(lengths.count, lengths.max) for lengths in split["steps"].lengths] == [(2, 2), (3, 2)]


UNREADABLE = [
    *(b"{}", b'{"format":2,"splits":{}}', b"\xff", b'{"splits":{"train":{"num_examples":NaN,"features":{}}}}'),
    b'{"splits":{"train":{"num_examples":1,"features":{"x":{"count":1,"kind":1}}}}}',
    b'{"splits":{"train":{"num_examples":18446744073709551616,"features":{}}}}',
    b'{"splits":{"train":{"num_examples":true,"features":{}}}}',
    b'{"splits":{"train":{"num_examples":null,"features":{}}}}',
    b'{"splits":{"train":{"num_examples":1,"features":{"x":{"count":1,"kind":"number","dtype":"int8",'
    b'"histogram":{"edges":[0,true],"counts":[1]}}}}}}',
]


def test_a_document_that_cannot_be_read_is_refused() -> None:
    check_errors(GOLDEN / "statistics.txt", (partial(parse_statistics, document) for document in UNREADABLE))


def test_fields_of_a_later_version_are_ignored() -> None:
    assert parse_statistics(b'{"format":1,"later":[],"splits":{"train":{"num_examples":3,"features":{}}}}')[
        "train"
    ] == (SplitStatistics(num_examples=3, features={}))


def test_sentences_name_duplicates_within_splits_and_once_for_each_pair() -> None:
    def split(num_examples: int, **counts: Any) -> SplitStatistics:
        return SplitStatistics(num_examples=num_examples, features={}, duplicates=Duplicates(**counts))

    train = split(4000, num_repeated=3, num_groups=2, shared={"test": 5, "dev": 1})
    test, dev = split(500, shared={"train": 2}), split(500, shared={"train": 1})
    older = SplitStatistics(num_examples=9, features={})
    statistics = Statistics(splits={"train": train, "test": test, "dev": dev, "older": older})
    assert duplicate_sentences(statistics) == [
        "duplicates within train: 3 of 4,000 records",
        "records of test that are also in train: 2",
        "records of dev that are also in train: 1",
    ]
    assert duplicate_sentences(statistics, ["train"]) == [
        "duplicates within train: 3 of 4,000 records",
        "records of train that are also in test: 5",
        "records of train that are also in dev: 1",
    ]
    assert "records of test that are also in train: 2" in statistics._repr_html_()
    many = {f"part{place}": split(place + 2, num_repeated=1, num_groups=1) for place in range(13)}
    assert duplicate_sentences(Statistics(splits=many))[9:] == [
        "duplicates within part9: 1 of 11 records",
        "and 3 more such lines",
    ]


@pytest.mark.parametrize("num_firsts", [1, 7, 100_000])
def test_equal_hashes_have_the_same_place_even_if_they_were_chosen_to_collide(num_firsts: int) -> None:
    chance = np.random.default_rng(num_firsts)
    firsts = hash_numbers(chance.integers(0, num_firsts, 3000))
    seconds = hash_numbers(chance.integers(0, 500, 3000))
    places = equal_places(firsts, seconds)
    assert (firsts[places] == firsts).all()
    assert (seconds[places] == seconds).all()
    pairs = set(zip(firsts.tolist(), seconds.tolist(), strict=True))
    assert len(set(places.tolist())) == len(pairs)


def test_duplicates_of_a_million_records_in_thousands_of_splits_are_counted() -> None:
    digests = hash_numbers(np.arange(2**21 - 4)).tobytes() + b"a" * 16
    splits = {str(place): b"" for place in range(2098)} | {"last but one": digests, "last": b"a" * 16}
    duplicates = find_duplicates(list(splits), [pile_of_split(content) for content in splits.values()])
    assert duplicates[-2:] == [
        Duplicates(num_repeated=0, num_groups=0, shared={"last": 1}),
        Duplicates(num_repeated=0, num_groups=0, shared={"last but one": 1}),
    ]
