"""Laws of limits: every door finds exactly the stored values that a feature does not allow, and nothing else."""

from __future__ import annotations

import json
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from support.feature_strategies import schemas, values
from support.levels import examples
from support.prepared_samples import cut_evenly, prepare
from support.shard_samples import WRITERS, write_columns

from registry.errors import FeatureError, NullLabelWarning
from registry.features import (
    BBox,
    ClassLabel,
    Feature,
    FeaturesDict,
    Image,
    LabeledImage,
    LimitReader,
    Outside,
    Scalar,
    Sequence,
    Tensor,
    Translation,
    TranslationVariableLanguages,
    Video,
    codec_of,
    merge_outside,
)
from registry.features.containers import columns_of
from registry.intake.conversion import ColumnSchema, convert_values
from registry.intake.feature_text import arrow_type_of
from registry.interop.parquet import describe_parquet
from registry.model import ShardedFileTemplate, ShardLengths, Split
from registry.prepared import read_prepared
from registry.publishing import verify_shards
from registry.publishing.fingerprint import StoredSplits, fingerprint_splits
from registry.publishing.outside import ValuesOutside
from registry.shards import decode_block
from registry.storage import open_store
from registry.tfrecord import RecordBlock
from registry.wire import encode_example


def rebuilt(feature: Feature, change: Any) -> Feature:
    """``feature`` with ``change`` applied to each leaf, and to features that are not made of others."""
    if isinstance(feature, TranslationVariableLanguages | Translation | Video) or not isinstance(
        feature, FeaturesDict | Sequence
    ):
        return change(feature)  # type: ignore[no-any-return]
    if isinstance(feature, Sequence):
        return replace(feature, feature=rebuilt(feature.feature, change))
    return FeaturesDict({name: rebuilt(inner, change) for name, inner in feature.items()})


def loosened(feature: Feature) -> Feature:
    """The feature that stores the same values in the same form, and allows every value."""
    match feature:
        case ClassLabel():
            return Scalar("int64")
        case BBox():
            return BBox(bbox_format=None)
        case LabeledImage():
            return Image(shape=feature.shape, dtype=feature.dtype)
        case TranslationVariableLanguages():
            return TranslationVariableLanguages()
        case Tensor(minimum=low, maximum=high) if low is not None or high is not None:
            return replace(feature, minimum=None, maximum=None)
    return feature


@st.composite
def limited(draw: st.DrawFn) -> FeaturesDict:
    """A schema whose tensors may have bounds; 1 is within all of them."""

    def bounded(feature: Feature) -> Feature:
        if type(feature) not in (Tensor, Scalar) or feature.dtype == object or not draw(st.booleans()):
            return feature
        low, high = draw(st.sampled_from([None, -2, 0, 1])), draw(st.sampled_from([None, 1, 5, 2**53 + 1]))
        return replace(feature, minimum=low, maximum=high)  # type: ignore[call-arg]

    found = rebuilt(draw(schemas()), bounded)
    assert isinstance(found, FeaturesDict)
    return found


@st.composite
def planted(draw: st.DrawFn) -> tuple[FeaturesDict, list[bytes], list[dict[str, bool]]]:
    """A schema, records, and for each record whether the encoder refuses each of its top-level features."""
    features = draw(limited())
    loose = rebuilt(features, loosened)
    assert isinstance(loose, FeaturesDict)
    records, refused = [], []
    for _ in range(draw(st.integers(0, 8))):
        example = {name: values(draw, features[name]) for name in features}
        odd = draw(st.sets(st.sampled_from([*features, ""])))
        example |= {name: values(draw, loose[name]) for name in odd if name}
        example = as_stored(features, example)
        refusals = {name: is_refused(features[name], example[name]) for name in features}
        flat: dict[str, Any] = {}
        for name in features:
            kept = FeaturesDict({name: (loose if refusals[name] else features)[name]})
            flat |= codec_of(kept).flatten({name: example[name]})
        records.append(encode_example(flat))
        refused.append(refusals)
    return features, records, refused


def as_stored(feature: Feature, value: Any) -> Any:
    """``value`` without languages that have no text, which are refused and stored nowhere."""
    if isinstance(feature, TranslationVariableLanguages):
        return {language: texts for language, texts in value.items() if texts != []}
    if isinstance(feature, FeaturesDict):
        return {name: as_stored(feature[name], inner) for name, inner in value.items()}
    if isinstance(feature, Sequence) and not isinstance(feature, Video) and isinstance(value, list):
        return [as_stored(feature.feature, inner) for inner in value]
    return value


def is_refused(feature: Feature, value: Any) -> bool:
    try:
        codec_of(FeaturesDict({"it": feature})).encode({"it": value})
    except FeatureError:
        return True
    return False


def blocked(records: list[bytes]) -> RecordBlock:
    lengths = np.array([len(record) for record in records], np.int64)
    return RecordBlock(np.frombuffer(b"".join(records), np.uint8), lengths.cumsum() - lengths, lengths)


def assert_as_refused(
    features: FeaturesDict, found: dict[str, tuple[int, int]], refused: list[dict[str, bool]], start: int = 0
) -> None:
    """Whether ``found``, (count, first record) by path, is what the encoder refuses."""
    assert set(found) <= {column.path for column in columns_of(features) if column.leaf.limits}
    for name, feature in features.items():
        paths = [column.path for column in columns_of(feature, (name,)) if column.leaf.limits]
        rows = [row for row, refusals in enumerate(refused, start) if refusals[name]]
        here = [found[path] for path in paths if path in found]
        if not rows:
            assert here == []
        elif len(paths) == 1:
            assert here == [(len(rows), rows[0])]
        else:  # a record may have values of several features
            assert min(first for _, first in here) == rows[0]
            assert max(count for count, _ in here) <= len(rows) <= sum(count for count, _ in here)


def by_path(found: list[Outside] | tuple[ValuesOutside, ...]) -> dict[str, tuple[int, int]]:
    return {one.feature: (one.num_records, one.first_record) for one in found}


@given(planted(), st.data())
@settings(max_examples=examples(200))
def test_what_encoders_refuse_is_found_in_records(
    given_: tuple[FeaturesDict, list[bytes], list[dict[str, bool]]], data: st.DataObject
) -> None:
    features, records, refused = given_
    reader = LimitReader(features)
    cut = data.draw(st.integers(0, len(records)))
    parts = [(0, records[:cut]), (cut, records[cut:])]
    data.draw(st.randoms()).shuffle(parts)  # runs end in any order
    in_records = [one for start, part in parts for one in reader.in_records(*blocked(part), start=10 + start)]
    assert_as_refused(features, by_path(merge_outside(in_records)), refused, start=10)
    decoded = decode_block(features.missing_as_none(), blocked(records), copy=False)
    assert decoded.fault is None
    assert sorted(by_path(reader.in_columns(decoded.leaves, len(decoded), start=10)).items()) == sorted(
        by_path(merge_outside(in_records)).items()
    )


@given(planted(), st.integers(1, 3))
@settings(max_examples=examples(40))
def test_every_door_of_stored_records_finds_the_same(
    given_: tuple[FeaturesDict, list[bytes], list[dict[str, bool]]], shards: int
) -> None:
    features, records, refused = given_
    if not records or not any(True for _ in columns_of(features)):
        return
    with tempfile.TemporaryDirectory() as folder:
        made = prepare(Path(folder) / "1.0.0", splits={"train": records}, features=features, shards=shards)
        prepared = read_prepared(open_store(made))
        stored = StoredSplits(open_store(made), prepared.splits, features)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fingerprinted = fingerprint_splits(stored, processes=1).outside
            verified = verify_shards(open_store(made), prepared.splits, features=features, processes=1)
        assert verified.faults == ()
        assert_as_refused(features, by_path(fingerprinted), refused)
        assert verified.outside == fingerprinted
        for one in fingerprinted:
            split = prepared.splits[0]
            index = split.shard_lengths.shard_of(one.first_record)
            place = one.first_record - split.shard_lengths.start(index)
            assert (one.filename, one.record, one.num_examples) == (split.filename(index), place, len(records))


@pytest.mark.parametrize(
    ("file_format", "processes", "count"), [*((name, 1, 1100) for name in WRITERS), ("tfrecord", 2, 5000)]
)
def test_files_of_every_format_are_checked_in_the_order_of_the_split(
    tmp_path: Path, file_format: str, processes: int, count: int
) -> None:
    """With two processes, one reads the first 4,096 records, and the other the last ones."""
    limited = {"label": ClassLabel(num_classes=3), "other": Scalar("int64", maximum=count - 2)}
    features = FeaturesDict({"id": "int64", **limited})  # a column without limits comes first
    loose = codec_of(FeaturesDict({"id": "int64", "label": "int64", "other": "int64"}))
    odd = (count - 50, count - 1)
    rows = [{"id": 9, "label": 3 if number in odd else number % 3, "other": number} for number in range(count)]
    records = loose.encode_block(rows).records()
    store = open_store(tmp_path)
    lengths = cut_evenly(len(records), 3)
    files = ShardedFileTemplate(dataset="x", file_format=file_format)
    split = Split(name="train", shard_lengths=ShardLengths(lengths), files=files)
    for index, name in enumerate(split.filenames):
        start = split.shard_lengths.start(index)
        WRITERS[file_format](store, name, records[start : start + lengths[index]])
    found = fingerprint_splits(StoredSplits(store, (split,), features), processes=processes).outside
    last, name = lengths[2], split.filename(2)
    assert list(map(str, found)) == [
        f"feature 'label' must be in 0..2, or -1 for no label: 2 of {count:,} records have other values in the split "
        f"train; the first, record {count - 50} (record {last - 50} of {name}), has 3",
        f"feature 'other' must be at most {count - 2}: 1 of {count:,} records has other values in the split train; "
        f"the first, record {count - 1} (record {last - 1} of {name}), has {count - 1}",
    ]
    assert verify_shards(store, [split], features=features, processes=processes).outside == found


def test_columns_are_checked_by_the_limits_of_their_own_feature(tmp_path: Path) -> None:
    """Rows of typed columns are flattened leaf by leaf; those without limits are before and between the others."""
    limited = {"label": ClassLabel(num_classes=3), "text": "str", "other": Scalar("int64", maximum=4)}
    features = FeaturesDict({"id": "int64", "in": {"x": "float32"}, **limited})
    count = 2000
    rows = [
        {"id": 9, "in": {"x": 9.0}, "label": 7 if i == 1500 else i % 3, "text": "x", "other": 5 if i == 3 else 4}
        for i in range(count)
    ]
    split = Split(
        name="train",
        shard_lengths=ShardLengths([count]),
        files=ShardedFileTemplate(dataset="x", file_format="parquet_columns"),
    )
    schema = pa.schema({"id": pa.int64(), "in": pa.struct({"x": pa.float32()}), "label": pa.int64()})
    schema = pa.schema([*schema, ("text", pa.string()), ("other", pa.int64())])
    parquet.write_table(pa.Table.from_pylist(rows, schema), tmp_path / split.filename(0), row_group_size=700)
    store = open_store(tmp_path)
    for processes in (1, 2):
        outside = fingerprint_splits(StoredSplits(store, (split,), features), processes=processes).outside
        assert [(fault.feature, fault.first_record, fault.value) for fault in outside] == [
            ("label", 1500, "7"),
            ("other", 3, "5"),
        ]


_LABELS = st.integers(0, 1) | st.sampled_from([2, 9, -2, 2**62])


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "label": st.none() | _LABELS,
                "list": st.lists(_LABELS, max_size=3),
                "in": st.fixed_dictionaries({"label": st.none() | _LABELS}),
                "pair": st.lists(_LABELS, min_size=2, max_size=2),
                "text": st.just("x"),
            }
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 3),
    st.integers(1, 4),
)
@settings(max_examples=examples(60))
def test_an_import_of_typed_columns_finds_every_number_of_no_class(
    rows: list[dict[str, Any]], shards: int, group_size: int
) -> None:
    label = {"names": ["a", "b"], "_type": "ClassLabel"}
    declared = {"label": label, "in": {"label": label}}
    declared |= {name: {"feature": label, "_type": "List"} for name in ("list", "pair")}
    schema = pa.schema(
        {
            "label": pa.int64(),
            "list": pa.list_(pa.int64()),
            "in": pa.struct({"label": pa.int64()}),
            "pair": pa.list_(pa.int64(), 2),
            "text": pa.string(),
        },
        metadata={"huggingface": json.dumps({"info": {"features": declared}})},
    )
    with tempfile.TemporaryDirectory() as folder:
        store, start = open_store(folder), 0
        lengths = cut_evenly(len(rows), shards)
        for index, length in enumerate(lengths):
            name = f"train-{index:05}-of-{shards:05}.parquet"
            write_columns(store, name, rows[start : start + length], schema, group_size=group_size)
            start += length
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NullLabelWarning)
            prepared = describe_parquet(store, name="x")
        found = fingerprint_splits(StoredSplits(store, prepared.splits, prepared.features), processes=1).outside
        verified = verify_shards(store, prepared.splits, features=prepared.features, processes=1)
    labels = {
        "label": [[row["label"]] for row in rows],
        "list": [row["list"] for row in rows],
        "in/label": [[row["in"]["label"]] for row in rows],
        "pair": [row["pair"] for row in rows],
    }
    expected = {}
    for path, column in labels.items():
        bad = [row for row, numbers in enumerate(column) if any(one not in (0, 1, None) for one in numbers)]
        if bad:
            expected[path] = (len(bad), bad[0])
    assert by_path(found) == expected
    assert verified.outside == found


def _of_columns() -> st.SearchStrategy[Feature]:
    """Features of a column of a table."""
    bounds = {"minimum": st.none() | st.integers(-2, 1), "maximum": st.none() | st.integers(1, 5)}
    numbers = st.sampled_from(["int8", "uint8", "int64", "uint64", "float32", "float64", "bool"])
    encodings = st.sampled_from(["none", "bytes"])
    inner = st.one_of(
        st.integers(1, 3).map(lambda count: ClassLabel(num_classes=count)),
        st.builds(Scalar, numbers, encoding=encodings, **bounds),
        st.builds(Tensor, shape=st.sampled_from([(2,), (1, 2)]), dtype=st.just("int64"), **bounds),
        st.builds(BBox, bbox_format=st.sampled_from([None, "YXYX", "REL_XYXY", "REL_YXYX"])),
    )
    return st.one_of(
        inner,
        st.builds(Scalar, st.sampled_from(["int16", "float32"]), optional=st.just(True), **bounds),
        inner.map(Sequence),
        inner.map(lambda one: FeaturesDict({"a": one})),
    )


def _value_of_column(draw: st.DrawFn, feature: Feature) -> Any:
    """A value that fits the dtype and the shape, and may be outside the limits."""
    match feature:
        case Sequence():
            return [_value_of_column(draw, feature.feature) for _ in range(draw(st.integers(0, 3)))]
        case FeaturesDict():
            return {name: _value_of_column(draw, inner) for name, inner in feature.items()}
        case BBox():
            return draw(st.lists(st.sampled_from([-0.5, 0.0, 0.25, 1.0, 1.5]), min_size=4, max_size=4))
        case Tensor(shape=(2,)):
            return draw(st.lists(st.integers(-4, 7), min_size=2, max_size=2))
        case Tensor(shape=(1, 2)):
            return [draw(st.lists(st.integers(-4, 7), min_size=2, max_size=2))]
    if isinstance(feature, Tensor) and feature.optional and draw(st.booleans()):
        return None
    if feature.dtype.kind == "f":
        return draw(st.sampled_from([-2.5, -2.0, 0.0, 0.5, 1.0, 5.0, 5.5, float("nan")]))
    if feature.dtype.kind == "b":
        return draw(st.booleans())
    return draw(st.integers(0 if feature.dtype.kind == "u" else -4, 7))


@given(st.data())
@settings(max_examples=examples(200))
def test_add_refuses_the_rows_of_a_table_that_the_encoder_refuses(data: st.DataObject) -> None:
    feature = data.draw(_of_columns())
    rows = [_value_of_column(data.draw, feature) for _ in range(data.draw(st.integers(1, 6)))]
    kind = arrow_type_of(feature)
    _, faults = convert_values(
        pa.array(rows, kind), ColumnSchema(name="x", feature=feature, arrow_type=kind, is_requested=True)
    )
    assert sorted(faults) == [place for place, row in enumerate(rows) if is_refused(feature, row)]
