"""dataset_info.json: the fields read, kept and written, and the key path of every fault."""

from __future__ import annotations

import json
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.golden import check_errors
from support.levels import either

from registry.errors import PreparedFormatError, UsageError
from registry.features import FeaturesDict
from registry.model import DatasetMetadata, ShardedFileTemplate, ShardLengths, Split, Version
from registry.prepared import PreparedDataset, info_from_json, info_to_json

GOLDEN = Path(__file__).with_name("golden")

FEATURES = FeaturesDict({"x": "int64"})
CAMEL = {
    "name": "tiny",
    "version": "1.2.3",
    "configName": "en",
    "configDescription": "English.",
    "configTags": ["a", "b"],
    "description": "Tiny.",
    "citation": "@misc{x}",
    "location": {"urls": ["http://example.org"]},
    "redistributionInfo": {"license": "CC0"},
    "releaseNotes": {"1.2.3": "First."},
    "supervisedKeys": {"tuple": {"items": [{"featureKey": "a"}, {"featureKey": "b"}]}},
    "fileFormat": "array_record",
    "disableShuffling": True,
    "downloadSize": "17",
    "moduleName": "builders.tiny",
    "splits": [
        {
            "name": "train",
            "shardLengths": ["2", "0", "3"],
            "numBytes": "99",
            "filepathTemplate": "{SPLIT}-{SHARD_X_OF_Y}.{FILEFORMAT}",
            "statistics": {"numExamples": "5"},
        },
        {"name": "empty", "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"},
    ],
}
SNAKE = {
    "name": "tiny",
    "version": "1.2.3",
    "config_name": "en",
    "config_description": "English.",
    "config_tags": ["a", "b"],
    "description": "Tiny.",
    "citation": "@misc{x}",
    "location": {"urls": ["http://example.org"]},
    "redistribution_info": {"license": "CC0"},
    "release_notes": {"1.2.3": "First."},
    "supervised_keys": {"tuple": {"items": [{"feature_key": "a"}, {"feature_key": "b"}]}},
    "file_format": "array_record",
    "disable_shuffling": True,
    "splits": [
        {
            "name": "train",
            "shard_lengths": [2, 0, 3.0],
            "num_bytes": 99,
            "filepath_template": "{SPLIT}-{SHARD_X_OF_Y}.{FILEFORMAT}",
        },
        {"name": "empty", "filepath_template": "", "shard_lengths": None},
    ],
}


def read(info: Any) -> PreparedDataset:
    return info_from_json(json.dumps(info), FEATURES)


def test_every_field_has_its_place() -> None:
    prepared = read(CAMEL)
    assert str(prepared.reference) == "tiny/en:1.2.3"
    assert prepared.file_format == "array_record"
    assert prepared.disable_shuffling
    train, empty = prepared.splits
    assert (train.num_examples, train.num_bytes, list(train.shard_lengths)) == (5, 99, [2, 0, 3])
    assert train.filename(1) == "train-00001-of-00003.array_record"
    assert (empty.num_shards, empty.files.template) == (0, "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}")
    assert prepared.metadata == DatasetMetadata(
        description="Tiny.",
        homepage="http://example.org",
        citation="@misc{x}",
        license="CC0",
        supervised_keys=("a", "b"),
        config_description="English.",
        config_tags=("a", "b"),
        release_notes={"1.2.3": "First."},
        extra={
            "downloadSize": "17",
            "moduleName": "builders.tiny",
            "splits": {"train": {"statistics": {"numExamples": "5"}}},
        },
    )


def test_what_is_read_is_written_back_equal() -> None:
    assert json.loads(info_to_json(read(CAMEL))) == CAMEL


def test_snake_case_and_numbers_are_read_as_well() -> None:
    known = {name: value for name, value in CAMEL.items() if name not in ("downloadSize", "moduleName")}
    splits = [{key: value for key, value in split.items() if key != "statistics"} for split in CAMEL["splits"]]
    assert json.loads(info_to_json(read(SNAKE))) == known | {"splits": splits}


@pytest.mark.parametrize(
    "field",
    [
        {"location": {"urls": ["http://a", "http://b"], "other": 1}},
        {"redistributionInfo": {"license": "CC0", "more": ["x"]}},
        {"supervisedKeys": {"tuple": {"items": [{"dict": {"dict": {"a": {"featureKey": "x"}}}}]}}},
        {"futureField": {"deep": [None, 1.5, {"a_b": "c"}]}, "snake_future": 1},
    ],
)
def test_what_is_not_known_is_kept_as_it_was(field: Any) -> None:
    info = {"name": "a", "version": "1.0.0", "fileFormat": "tfrecord"} | field
    assert json.loads(info_to_json(read(info))) == info


def test_old_form_of_supervised_keys_is_read() -> None:
    prepared = read({"name": "a", "version": "1.0.0", "supervisedKeys": {"input": "x", "output": "y"}})
    assert prepared.metadata.supervised_keys == ("x", "y")


def test_defaults_are_left_out() -> None:
    prepared = PreparedDataset(name="a", version=Version(1, 0, 0), splits=(), features=FEATURES)
    assert json.loads(info_to_json(prepared)) == {"name": "a", "version": "1.0.0", "fileFormat": "tfrecord"}


BASE = {"name": "a", "version": "1.0.0"}
ONE_FILE = {"shardLengths": ["1"], "filepathTemplate": "{DATASET}.{FILEFORMAT}-{SHARD_X_OF_Y}"}


def test_fault_names_its_key() -> None:
    check_errors(
        GOLDEN / "prepared_info" / "fault_names_its_key.txt",
        (
            partial(read, info)
            for info in [
                [],
                {"version": "1.0.0"},
                {"name": "a"},
                BASE | {"name": "no such/name"},
                BASE | {"version": "1.0"},
                BASE | {"configName": "../x"},
                BASE | {"description": 5},
                BASE | {"fileFormat": "../x"},
                BASE | {"disableShuffling": "yes"},
                BASE | {"configTags": "x"},
                BASE | {"releaseNotes": {"1.0.0": 5}},
                BASE | {"location": {"urls": [5]}},
                BASE | {"supervisedKeys": []},
                BASE | {"splits": {}},
                BASE | {"splits": [{}]},
                BASE | {"splits": [{"name": "all"}]},
                BASE | {"splits": [{"name": "x"}, {"name": "x"}]},
                BASE | {"splits": [{"name": "x", "shardLengths": ["1", "-1"]}]},
                BASE | {"splits": [{"name": "x", "shardLengths": [str(2**62)] * 3}]},
                BASE | {"splits": [{"name": "x", "shardLengths": [str(2**63)]}]},
                BASE | {"splits": [{"name": "x", "shardLengths": [1.5]}]},
                BASE | {"splits": [{"name": "x", "numBytes": "-1"}]},
                BASE | {"splits": [{"name": "x", "filepathTemplate": "../{SHARD_X_OF_Y}"}]},
                BASE | {"splits": [{"name": "x", "numShards": "3"}]},
                BASE | {"splits": [ONE_FILE | {"name": "x"}, ONE_FILE | {"name": "y"}]},
                BASE
                | {
                    "splits": [
                        {"name": "x", "shardLengths": ["1"]},
                        {"name": "y", "shardLengths": ["1"], "filepathTemplate": "a-x.tfrecord-{SHARD_X_OF_Y}"},
                    ]
                },
                BASE
                | {
                    "splits": [
                        {"name": "x", "shardLengths": ["1"], "filepathTemplate": "a-y.tfrecord-{SHARD_X_OF_Y}"},
                        {"name": "y", "shardLengths": ["1"]},
                    ]
                },
                BASE | {"file_format": "tfrecord", "fileFormat": "tfrecord"},
            ]
        ),
        details=["key", "file"],
    )


def test_splits_of_one_template_that_share_no_file_are_read() -> None:
    splits = [ONE_FILE | {"name": "x"}, ONE_FILE | {"name": "y", "shardLengths": ["1", "1"]}, ONE_FILE | {"name": "z"}]
    splits[2] = splits[2] | {"shardLengths": []}
    assert [split.num_shards for split in read(BASE | {"splits": splits}).splits] == [1, 2, 0]


def test_split_name_used_twice_is_refused() -> None:
    split = Split(name="x", shard_lengths=ShardLengths([1]), files=ShardedFileTemplate(dataset="a"))
    with pytest.raises(UsageError, match="a split name is used twice"):
        PreparedDataset(name="a", version=Version(1, 0, 0), splits=(split, split), features=FEATURES)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(data=st.data())
def test_a_mutated_file_is_read_or_refused_with_its_key(data: st.DataObject) -> None:
    info = json.loads(json.dumps(CAMEL))
    place = info
    while isinstance(place, (dict, list)) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], (dict, list)) or data.draw(st.booleans()):
            place[key] = data.draw(json_values)
            break
        place = place[key]
    try:
        prepared = read(info)
    except PreparedFormatError as error:
        assert {"file", "key", "problem"} <= error.details.keys()  # noqa: PT017 - either end is right
    else:
        text = info_to_json(prepared)
        assert info_to_json(info_from_json(text, FEATURES)) == text


def test_a_key_given_twice_among_very_many_is_found() -> None:
    keys = [f'"{number}":0' for number in range(100_000)]
    with pytest.raises(PreparedFormatError, match="the key '99999' is given twice"):
        info_from_json("{" + ",".join([*keys, keys[-1]]) + "}", FeaturesDict({}))


@pytest.mark.parametrize("number", either(100_000, 1_000_000))
def test_a_million_shard_lengths_cost_little_more_than_their_text(number: int) -> None:
    text = '{"name":"x","version":"1.0.0","splits":[{"name":"train","shardLengths":[' + "1," * (number - 1) + '"7"]}]}'
    tracemalloc.start()
    try:
        prepared = info_from_json(text, FeaturesDict({}))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert prepared.splits[0].num_examples == number + 6
    assert peak < 67 * number + 2**20
