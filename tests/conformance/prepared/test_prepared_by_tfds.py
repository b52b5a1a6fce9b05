"""The prepared datasets decode to the values that TFDS read, and are written back as TFDS wrote them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.block_checks import joined

from registry.features import Audio, FeaturesDict, NestedExamples, Ragged, codec_of, features_to_json
from registry.prepared import info_to_json, read_prepared, write_prepared
from registry.storage import open_store
from registry.tfrecord import read_records
from registry.wire import decode_example

FOLDER = Path(__file__).parent
EVERYTHING = "lab_features/1.0.0"
VERSIONS = ["lab_mnist/3.0.1", "lab_text/1.0.0", EVERYTHING]


def describe(value: Any) -> Any:
    """A decoded value in the form of the expected files."""
    if isinstance(value, dict):
        return {name: describe(inner) for name, inner in value.items()}
    if isinstance(value, NestedExamples):
        return {"examples": [describe(example) for example in value]}
    if isinstance(value, Ragged):
        lengths = [level.tolist() for level in value.row_lengths]
        return {"ragged": describe(value.flat_values), "row_lengths": lengths}
    if isinstance(value, bytes):
        return {"dtype": "string", "shape": [], "sha256": hashlib.sha256(value).hexdigest()}
    if value.dtype == object:
        data = b"".join(len(item).to_bytes(8, "little") + item for item in value.flat)
        return {"dtype": "string", "shape": list(value.shape), "sha256": hashlib.sha256(data).hexdigest()}
    data = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<")).tobytes()
    return {"dtype": value.dtype.name, "shape": list(value.shape), "sha256": hashlib.sha256(data).hexdigest()}


def without_values(expected: Any) -> Any:
    if isinstance(expected, dict):
        return {k: without_values(v) for k, v in expected.items() if not (k == "value" and "sha256" in expected)}
    return [without_values(inner) for inner in expected] if isinstance(expected, list) else expected


def expected_examples(version: str) -> dict[str, Any]:
    lines = (FOLDER / f"{version}.expected.jsonl").read_text().splitlines()
    return {line["tfds_id"]: without_values(line["features"]) for line in map(json.loads, lines)}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def records_by_id(version: str) -> dict[str, bytes]:
    store = open_store(str(FOLDER / version))
    return {
        f"{name}__{place}": record
        for split in read_prepared(store).splits
        for name in split.filenames
        for place, record in enumerate(read_records(store, name))
    }


def test_every_record_decodes_to_what_tfds_read(version: str) -> None:
    features = read_prepared(open_store(str(FOLDER / version))).features.missing_as_tfds()
    decoded = {name: describe(codec_of(features).decode(record)) for name, record in records_by_id(version).items()}
    assert decoded == expected_examples(version)


def test_a_block_of_records_decodes_to_what_tfds_read(version: str) -> None:
    features = read_prepared(open_store(str(FOLDER / version))).features.missing_as_tfds()
    records = records_by_id(version)
    found = codec_of(features).decode_block(*joined(list(records.values()) * 20)).examples()
    expected = expected_examples(version)
    assert [describe(example) for example in found] == [expected[name] for name in records] * 20


def test_everything_that_can_be_encoded_again_is_decoded_to_the_same() -> None:
    prepared = read_prepared(open_store(str(FOLDER / EVERYTHING)))
    assert prepared.features.unknown_features() == {"own": "lab_features.Own"}
    features = FeaturesDict(
        {
            name: feature
            for name, feature in prepared.features.items()
            if name != "own" and not (isinstance(feature, Audio) and feature.lazy_decode)
        }
    )
    for record in records_by_id(EVERYTHING).values():
        again = codec_of(features).encode(codec_of(features).decode(record))
        as_tfds = features.missing_as_tfds()
        assert describe(codec_of(as_tfds).decode(again)) == describe(codec_of(as_tfds).decode(record))
        assert decode_example(again).keys() == {key for key in decode_example(record) if key.split("/")[0] in features}


@pytest.mark.parametrize("version", VERSIONS[:2])
def test_encoding_a_decoded_record_gives_the_same_flat_values(version: str) -> None:
    features = read_prepared(open_store(str(FOLDER / version))).features
    for record in records_by_id(version).values():
        theirs, ours = (
            decode_example(record),
            decode_example(codec_of(features).encode(codec_of(features).decode(record))),
        )
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            if key == "image":  # another PNG of the same pixels; keeping the file keeps its bytes, as below
                continue
            np.testing.assert_array_equal(ours[key], value)
            assert type(ours[key]) is type(value)


def test_an_encoded_image_is_kept_byte_for_byte() -> None:
    features = read_prepared(open_store(str(FOLDER / "lab_mnist/3.0.1"))).features
    for record in records_by_id("lab_mnist/3.0.1").values():
        flat = decode_example(record)
        example = {"image": flat["image"][0], "label": int(flat["label"][0])}
        again = decode_example(codec_of(features).encode(example))
        assert again["image"] == flat["image"]
        np.testing.assert_array_equal(again["label"], flat["label"])


def test_shard_lengths_and_bytes_match_the_files(version: str) -> None:
    store = open_store(str(FOLDER / version))
    for split in read_prepared(store).splits:
        shards = [list(read_records(store, name)) for name in split.filenames]
        assert [len(shard) for shard in shards] == list(split.shard_lengths)
        assert sum(len(record) for shard in shards for record in shard) == split.num_bytes


def test_features_json_is_written_byte_for_byte(version: str) -> None:
    prepared = read_prepared(open_store(str(FOLDER / version)))
    assert features_to_json(prepared.features) == (FOLDER / version / "features.json").read_text()


def test_dataset_info_json_is_written_byte_for_byte(version: str) -> None:
    prepared = read_prepared(open_store(str(FOLDER / version)))
    assert info_to_json(prepared) == (FOLDER / version / "dataset_info.json").read_text()


def test_written_folder_holds_the_same_files(version: str, tmp_path: Path) -> None:
    prepared = read_prepared(open_store(str(FOLDER / version)))
    for name in write_prepared(open_store(str(tmp_path)), prepared):
        assert (tmp_path / name).read_bytes() == (FOLDER / version / name).read_bytes()


def test_label_names_come_from_their_file() -> None:
    labels = read_prepared(open_store(str(FOLDER / "lab_mnist/3.0.1"))).features.labels()
    assert labels == {"label": [str(digit) for digit in range(10)]}
