"""MLCommons' package accepts the Croissant document of any features, and it has a field for each leaf."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.feature_strategies import schemas, values
from support.levels import examples

from registry.errors import FeatureError
from registry.features import FeaturesDict, codec_of, features_to_json
from registry.features.containers import columns_of
from registry.interop.croissant import croissant_to_json, describe_croissant
from registry.model import DatasetVersion, Shard, ShardedFileTemplate, ShardLengths, Split, Version
from registry.statistics import StatisticsFold, statistics_of
from registry.tfrecord import frame_records

SPLITS = tuple(
    Split(name=name, shard_lengths=ShardLengths((2, 0)), files=ShardedFileTemplate(dataset="any"))
    for name in ("train", "val-2")
)
SHARDS = {
    split.name: [
        Shard(index=index, first_example=0, num_examples=0, num_bytes=0, sha256="0" * 64) for index in range(2)
    ]
    for split in SPLITS
}


def leaves(fields: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every field without subfields."""
    for field in fields:
        if "subField" in field:
            yield from leaves(field["subField"])
        else:
            yield field


@settings(max_examples=examples(40))
@given(features=schemas(), data=st.data())
def test_every_schema_has_a_document_with_a_field_for_each_leaf(features: FeaturesDict, data: st.DataObject) -> None:
    try:
        features.labels()
    except FeatureError:  # two labels with one file
        assume(condition=False)
    version = DatasetVersion(
        name="any",
        version=Version(1, 0, 0),
        splits=SPLITS,
        features_json=features_to_json(features),
        location="any/1.0.0",
        content_digest="0" * 64,
    )
    fold, encode = StatisticsFold(features), codec_of(features).encode
    results = {}
    for split in SPLITS:
        state = fold.start()
        records = [encode(values(data.draw, features)) for _ in range(data.draw(st.integers(0, 2)))]
        if records:
            fold.add(state, codec_of(features).flat_records(*frame_records(records).payloads()))
        results[split.name] = fold.end(state)
    described = describe_croissant(version, features, SHARDS, statistics=statistics_of(results))
    document = json.loads(croissant_to_json(described))
    (examples,) = [one for one in document["recordSet"] if one["@id"] == "examples"]
    split, *found = leaves(examples["field"])
    assert split["references"] == {"field": {"@id": "splits/name"}}
    assert [one["source"]["extract"]["column"] for one in found] == [column.path for column in columns_of(features)]
    for one in found:
        assert [note["name"] for note in one["annotation"]][:2] == ["valid", "invalid"]
        assert [note["name"] for note in one["annotation"]][-2:] == [split.name for split in SPLITS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its dependencies use their own deprecated names
        import mlcroissant

        assert not mlcroissant.Dataset(jsonld=document).metadata.ctx.issues.errors
