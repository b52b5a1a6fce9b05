"""What an export writes is what a read gives: for any schema, any values, and each format of tables."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.feature_strategies import schemas_and_examples
from support.framework_samples import plain, stored, wide_reader
from support.levels import examples

from registry.display import media_kind, parse_time_type
from registry.errors import FeatureError, UsageError
from registry.features import Audio, ClassLabel, FeaturesDict, Image, Leaf, RawFeature, Scalar, Sequence, Tensor, Text
from registry.interop import export_tables
from registry.interop.export_tables import WRITERS, compressing
from registry.model import DatasetMetadata
from registry.reading import Reader
from registry.reading.frameworks.table_columns import Labels, TableColumns, arrow_type, require_flat, temporal_types

NO_METADATA = DatasetMetadata()


def exported(reader: Reader, columns: TableColumns) -> Iterator[pa.RecordBatch]:
    once = Reader(reader.readable.with_features(columns.features), reader.plan)
    return map(columns.batch, once.blocks())


def written(reader: Reader, kind: str, *, labels: Labels = "numbers", metadata: DatasetMetadata = NO_METADATA) -> bytes:
    columns = TableColumns(reader.features, metadata, labels=labels, as_text=kind in ("csv", "jsonl"))
    file = io.BytesIO()
    WRITERS[kind](exported(reader, columns), columns.schema, file)
    return file.getvalue()


def rows(feature: Any, value: Any) -> Any:
    """The value of an example as rows have it: a Sequence of a dict is a list of dicts, not a dict of lists."""
    if isinstance(feature, FeaturesDict):
        return {name: rows(inner, value[name]) for name, inner in feature.items()}
    if isinstance(feature, Sequence) and not isinstance(feature.feature, Leaf):
        first = value
        while isinstance(first, dict):
            first = next(iter(first.values()))
        return [rows(feature.feature, pick(value, place)) for place in range(len(first))]
    return value


def pick(value: Any, place: int) -> Any:
    return {name: pick(inner, place) for name, inner in value.items()} if isinstance(value, dict) else value[place]


def leaves(feature: Any, value: Any, change: Any) -> Any:
    """``value`` with ``change(leaf, value)`` for each value that is not a list or dict."""
    if isinstance(feature, FeaturesDict):
        return {name: leaves(inner, value[name], change) for name, inner in feature.items()}
    if isinstance(feature, Sequence):
        return [leaves(feature.feature, one, change) for one in value]
    return [leaves(feature, one, change) for one in value] if isinstance(value, list) else change(feature, value)


def as_arrow(leaf: Any, value: Any) -> Any:
    if media_kind(leaf):
        return {"bytes": value, "path": None}
    return comparable(str(value, "utf-8") if isinstance(leaf, Text) else value)


def as_json(leaf: Any, value: Any) -> Any:
    if media_kind(leaf):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def comparable(value: Any) -> Any:
    """NaN as a text, which equals itself; -0.0 differs from 0.0."""
    if isinstance(value, dict):
        return {name: comparable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [comparable(inner) for inner in value]
    return str(value) if isinstance(value, float) else value


@given(sample=schemas_and_examples(), number=st.integers(0, 3))
@settings(max_examples=examples(100))
def test_every_schema_is_written_as_it_is_read(sample: tuple[FeaturesDict, dict[str, Any]], number: int) -> None:
    features, example = sample
    if not features:
        with pytest.raises(FeatureError, match="has no features"):
            TableColumns(features, NO_METADATA, labels="names")
        return
    check_tables(stored([example] * number, features))


def test_examples_that_differ_are_written_as_they_are_read() -> None:
    check_tables(wide_reader([7, 0, 5]))


def check_tables(reader: Reader) -> None:
    features = reader.features
    with_files = TableColumns(features, NO_METADATA, labels="names").features
    read = Reader(reader.readable.with_features(with_files), reader.plan)
    expected = [rows(features, plain(one)) for one in read]
    lines = written(reader, "jsonl").decode().split("\n")[:-1]
    assert [json.loads(line) for line in lines] == [leaves(features, one, as_json) for one in expected]
    try:
        arrow = [leaves(features, one, as_arrow) for one in expected]
    except UnicodeDecodeError:
        for kind in ("parquet", "arrow"):
            with pytest.raises(FeatureError, match=r"is not UTF-8: .* at byte \d"):
                written(reader, kind)
        return
    parquet = pa.parquet.read_table(io.BytesIO(written(reader, "parquet")))
    table = pa.ipc.open_file(io.BytesIO(written(reader, "arrow"))).read_all()
    assert comparable(table.to_pylist()) == arrow
    assert comparable(parquet.to_pylist()) == arrow
    assert parquet.schema.metadata == table.schema.metadata


FLAT = FeaturesDict(
    {
        "int": Scalar("int64", optional=True),
        "big": Scalar("uint64"),
        "double": Scalar("float64", encoding="bytes", optional=True),
        "single": Scalar("float32"),
        "half": Scalar("float16", optional=True),
        "flag": Scalar("bool", optional=True),
        "text": Text(),
        "maybe": Scalar("string", optional=True),
        "label": ClassLabel(names=["cat", 'a "big" dog, or two']),
    }
)
FLAT_ROWS = st.fixed_dictionaries(
    {
        "int": st.none() | st.integers(-(2**63), 2**63 - 1),
        "big": st.integers(0, 2**64 - 1),
        "double": st.none() | st.floats(),
        "single": st.floats(width=32),
        "half": st.none() | st.floats(width=16),
        "flag": st.none() | st.booleans(),
        "text": st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('",\r\n')),
        "maybe": st.none() | st.sampled_from(["", "NA", "007", "1e5", "null", " x "]),
        "label": st.integers(-1, 1),
    }
)


@given(table=st.lists(FLAT_ROWS, max_size=5), labels=st.sampled_from(["names", "numbers"]))
def test_csv_gives_back_every_number_text_and_null(table: list[dict[str, Any]], labels: Labels) -> None:
    data = written(stored(table, FLAT), "csv", labels=labels)
    types = {
        "int": pa.int64(), "big": pa.uint64(), "double": pa.float64(), "single": pa.float32(), "half": pa.float32(),
        "flag": pa.bool_(), "text": pa.string(), "maybe": pa.string(),
        "label": pa.string() if labels == "names" else pa.int64(),
    }  # fmt: skip
    options = pa.csv.ConvertOptions(
        column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    parsing = pa.csv.ParseOptions(newlines_in_values=True)
    names = [None if row["label"] < 0 else FLAT["label"].names[row["label"]] for row in table]  # type: ignore[attr-defined]
    read = pa.csv.read_csv(io.BytesIO(data), parse_options=parsing, convert_options=options).to_pylist()
    expected = [row | ({"label": name} if labels == "names" else {}) for row, name in zip(table, names, strict=True)]
    assert comparable(read) == comparable(expected)
    lines = list(csv.reader(io.StringIO(data.decode(), newline=""), strict=True))  # Python's reader takes it, too
    assert lines[0] == list(FLAT)
    assert [line[6] for line in lines[1:]] == [row["text"] for row in table]


PRINTED = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "number": st.floats() | st.floats(1e-6, 1e17) | st.integers(-(10**17), 10**17).map(float),
        "text": st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('",\r\n')),
    }
)


@given(table=st.lists(PRINTED, max_size=5))
def test_an_exported_csv_has_the_bytes_that_python_writes(table: list[dict[str, Any]]) -> None:
    expected = io.StringIO()
    writer = csv.DictWriter(expected, ["id", "number", "text"], quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    features = FeaturesDict({"id": "int64", "number": Scalar("float64", encoding="bytes"), "text": Text()})
    assert written(stored(table, features), "csv") == expected.getvalue().encode()


def test_csv_names_the_columns_that_it_cannot_hold() -> None:
    features = FeaturesDict(
        {
            "id": "int64",
            "picture": Image(),
            "sound": Audio(lazy_decode=True),
            "place": {"x": "int8"},
            "words": Sequence(Text()),
            "vector": Tensor(shape=(3,), dtype="float32"),
            "name": Text(),
        }
    )
    with pytest.raises(UsageError) as refused:
        require_flat(features)
    assert str(refused.value) == (
        "CSV cannot hold the columns picture (an image), sound (a sound), place (a dict), words (a list), "
        "vector (an array of shape (3,))"
    )
    assert refused.value.hint == (
        "Export jsonl or parquet, or imagefolder, or only some columns: columns=['id', 'name']"
    )
    require_flat(FLAT)


def test_bytes_that_are_not_utf8_are_refused_by_csv_and_base64_in_json() -> None:
    reader = stored([{"key": b"ok", "name": b"\xff!"}], FeaturesDict({"key": "string", "name": Text()}))
    with pytest.raises(FeatureError) as refused:
        written(reader, "csv")
    assert str(refused.value) == "feature 'name': b'\\xff!' is not UTF-8: invalid start byte at byte 0"
    assert refused.value.hint == "Export jsonl, where such a value is {'base64': ...}, or parquet."
    assert written(reader, "jsonl") == b'{"key": "ok", "name": {"base64": "/yE="}}\n'
    with pytest.raises(FeatureError) as refused:
        written(reader, "parquet")
    assert refused.value.hint == "Export JSON lines: there, such a value is {'base64': ...}."


def test_json_lines_hold_no_nan_and_no_escaped_letters() -> None:
    features = FeaturesDict({"x": Sequence("float32"), "text": Text(), "label": ClassLabel(names=["ja", "nein"])})
    rows = [
        {"x": [math.nan, math.inf, -math.inf, 0.5], "text": "grün\n", "label": "nein"},
        {"x": [], "text": "", "label": -1},
    ]
    assert written(stored(rows, features), "jsonl", labels="names").decode() == (
        '{"x": ["nan", "inf", "-inf", 0.5], "text": "grün\\n", "label": "nein"}\n{"x": [], "text": "", "label": null}\n'
    )


TIMES = {
    "timestamp[us]": (1_700_000_000_123_456, "2023-11-14T22:13:20.123456"),
    "timestamp[s, tz=Europe/Berlin]": (1_700_000_000, "2023-11-14T22:13:20Z"),
    "timestamp[ns, tz=UTC]": (-1, "1969-12-31T23:59:59.999999999Z"),
    "date32[day]": (19_675, "2023-11-14"),
    "date64[ms]": (19_675 * 86_400_000, "2023-11-14"),
    "time32[ms]": (86_399_999, "23:59:59.999"),
    "time64[ns]": (1, "00:00:00.000000001"),
    "duration[ms]": (-90_500, "-PT90.500S"),
    "duration[s]": (3_600, "PT3600S"),
}


@pytest.mark.parametrize("text", TIMES)
def test_a_temporal_column_gets_its_type_back(text: str) -> None:
    time = parse_time_type(text)
    assert time is not None
    kind = arrow_type(time)
    assert str(kind) == text
    number, iso = TIMES[text]
    dtype = f"int{kind.bit_width}"
    features = FeaturesDict(
        {"at": Scalar(dtype, optional=True), "in": {"times": Sequence(Tensor(shape=(), dtype=dtype))}, "n": "int64"}
    )
    metadata = DatasetMetadata(custom={"arrow_types": {"at": text, "in/times": text, "n": "int64"}})
    reader = stored(
        [{"at": number, "in": {"times": [number]}, "n": 1}, {"at": None, "in": {"times": []}, "n": 2}], features
    )
    table = pa.ipc.open_file(io.BytesIO(written(reader, "arrow", metadata=metadata))).read_all()
    assert table.schema.field("at").type == table["in"].type.field("times").type.value_type == kind
    integers = pa.int32() if kind.bit_width == 32 else pa.int64()
    assert table["at"].combine_chunks().view(integers).to_pylist() == [number, None]
    parquet = pa.parquet.read_table(io.BytesIO(written(reader, "parquet", metadata=metadata)))
    assert parquet["at"].cast(kind).equals(table["at"])
    assert [json.loads(line) for line in written(reader, "jsonl", metadata=metadata).splitlines()] == [
        {"at": iso, "in": {"times": [iso]}, "n": 1},
        {"at": None, "in": {"times": []}, "n": 2},
    ]


@given(number=st.integers(-(2**63) + 1, 2**63 - 1), unit=st.sampled_from(["s", "ms", "us", "ns"]))
def test_the_text_of_an_instant_is_the_instant(number: int, unit: str) -> None:
    metadata = DatasetMetadata(custom={"arrow_types": {"at": f"timestamp[{unit}]", "took": f"duration[{unit}]"}})
    reader = stored([{"at": number, "took": number}], FeaturesDict({"at": "int64", "took": "int64"}))
    line = json.loads(written(reader, "jsonl", metadata=metadata))
    assert int(np.datetime64(line["at"], unit).astype(np.int64)) == number
    sign = -1 if line["took"].startswith("-") else 1
    whole, _, fraction = line["took"].lstrip("-").removeprefix("PT").removesuffix("S").partition(".")
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
    assert sign * int(whole + fraction.ljust(digits, "0")) == number


def test_the_type_of_a_temporal_column_comes_from_the_metadata_or_its_description() -> None:
    def described(text: str, dtype: str = "int64") -> FeaturesDict:
        return FeaturesDict({"at": Tensor(shape=(), dtype=dtype, description=text)})

    imported = "timestamp[us, tz=UTC]: microseconds since 1970-01-01T00:00:00 UTC."
    assert temporal_types(described(imported), NO_METADATA) == {"at": pa.timestamp("us", "UTC")}
    assert temporal_types(described("time32[s]: seconds since midnight.", "int32"), NO_METADATA) == {
        "at": pa.time32("s")
    }
    assert temporal_types(described("duration[ns]: nanoseconds."), NO_METADATA) == {"at": pa.duration("ns")}
    for text in ("The time.", "timestamp[us]: when it was.", "time32[s]: seconds since midnight."):
        assert temporal_types(described(text), NO_METADATA) == {}
    for named in ({"at": "int64"}, {"at": "timestamp[h]"}, {"at": 3}, ["at"], {"other": "date64[ms]"}):
        assert temporal_types(described(""), DatasetMetadata(custom={"arrow_types": named})) == {}


def test_text_that_may_be_missing_is_text_where_the_version_tells() -> None:
    features = FeaturesDict({"blob": Scalar("string", optional=True), "text": Scalar("string", optional=True)})
    reader = stored([{"blob": b"\xff", "text": "x"}, {"blob": None, "text": None}], features)
    added = DatasetMetadata(custom={"intake": {}, "arrow_types": {"blob": "bytes"}})
    for metadata, kind, text in ((added, pa.string(), "x"), (NO_METADATA, pa.binary(), b"x")):
        table = pa.parquet.read_table(io.BytesIO(written(reader, "parquet", metadata=metadata)))
        assert table.schema.types == [pa.binary(), kind]
        assert table.to_pylist() == [{"blob": b"\xff", "text": text}, {"blob": None, "text": None}]


def test_a_time_that_is_no_time_of_day_is_refused_as_text() -> None:
    metadata = DatasetMetadata(custom={"arrow_types": {"at": "time32[s]"}})
    reader = stored([{"at": 86_400}], FeaturesDict({"at": "int32"}))
    with pytest.raises(FeatureError) as refused:
        written(reader, "csv", metadata=metadata)
    assert str(refused.value) == "feature 'at': 86400 is not a value of time32[s]"
    assert refused.value.hint == "Export Parquet or Arrow, which store the number."


def test_the_schema_tells_hugging_face_of_classes_images_and_the_dataset() -> None:
    features = FeaturesDict(
        {
            "image": Image(),
            "label": ClassLabel(names=["cat", "dog"]),
            "sound": Audio(lazy_decode=True, sample_rate=8000),
            "boxes": Sequence({"box": Tensor(shape=(4,), dtype="float32")}),
            "at": Tensor(shape=(), dtype="int32", description="date32[day]: days since 1970-01-01."),
        }
    )
    columns = TableColumns(features, DatasetMetadata(license="MIT"), labels="numbers")
    assert json.loads(columns.schema.metadata[b"huggingface"])["info"] == {
        "features": {
            "image": {"_type": "Image"},
            "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
            "sound": {"sampling_rate": 8000, "_type": "Audio"},
            "boxes": [{"box": {"feature": {"dtype": "float32", "_type": "Value"}, "length": 4, "_type": "Sequence"}}],
            "at": {"dtype": "date32", "_type": "Value"},
        },
        "license": "MIT",
    }


def test_a_feature_of_an_unknown_class_is_refused() -> None:
    own = RawFeature(class_name="my.Own", node={"pythonClassName": "my.Own"})
    with pytest.raises(FeatureError) as refused:
        TableColumns(FeaturesDict({"id": "int64", "place": {"own": own}}), NO_METADATA, labels="names")
    assert str(refused.value) == "feature 'place/own' has the unknown class 'my.Own', so it has no type to export"
    with pytest.raises(FeatureError, match="feature 'place' is an empty dict"):
        TableColumns(FeaturesDict({"id": "int64", "place": {}}), NO_METADATA, labels="names")


def test_a_class_number_without_a_name_is_refused_as_a_name() -> None:
    reader = stored([{"label": 5}], FeaturesDict({"label": "int64"}))
    two = Reader(reader.readable.with_features(FeaturesDict({"label": ClassLabel(names=["a", "b"])})), reader.plan)
    with pytest.raises(FeatureError, match="class number 5 has no name among 2"):
        written(two, "jsonl", labels="names")
    assert written(two, "jsonl") == b'{"label": 5}\n'


@pytest.mark.parametrize("kind", WRITERS)
def test_records_are_written_while_they_are_read(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_tables, "_MOST_ROWS", 2)
    reader = wide_reader([5, 4], features=FeaturesDict({"id": "int64", "name": Text()}))
    columns = TableColumns(reader.features, NO_METADATA, labels="names", as_text=kind in ("csv", "jsonl"))
    file, sizes = io.BytesIO(), []

    def watched() -> Iterator[pa.RecordBatch]:
        for batch in list(exported(reader, columns)) * 4:
            for row in range(batch.num_rows):
                sizes.append(file.tell())
                yield batch.slice(row, 1)

    WRITERS[kind](watched(), columns.schema, file)
    assert sizes[-1] > sizes[len(sizes) // 2] > sizes[0]


def test_a_compressed_file_has_the_same_bytes_each_time() -> None:
    packed = []
    for _ in range(2):
        file = io.BytesIO()
        with compressing(file, gz=True) as target:
            target.write(b"a\n" * 100)
        packed.append(file.getvalue())
    assert packed[0] == packed[1]
    assert packed[0][4:8] == b"\0\0\0\0"  # no time
    assert gzip.decompress(packed[0]) == b"a\n" * 100


def test_decimals_that_were_added_are_decimals_again() -> None:
    features = FeaturesDict({"price": Scalar(str, optional=True), "prices": Sequence(Text())})
    examples = [{"price": "1.10", "prices": ["2.5", "0.0"]}, {"price": None, "prices": []}]
    types = {"price": "decimal128(5, 2)", "prices": "decimal256(40, 1)"}
    metadata = DatasetMetadata(custom={"intake": {}, "arrow_types": types})
    table = pa.parquet.read_table(io.BytesIO(written(stored(examples, features), "parquet", metadata=metadata)))
    assert table.to_pylist() == [
        {"price": Decimal("1.10"), "prices": [Decimal("2.5"), Decimal("0.0")]},
        {"price": None, "prices": []},
    ]
    assert table.schema.field("price").type == pa.decimal128(5, 2)
    wrong = DatasetMetadata(custom={"intake": {}, "arrow_types": {"price": "decimal128(99, 2)"}})
    table = pa.parquet.read_table(io.BytesIO(written(stored(examples, features), "parquet", metadata=wrong)))
    assert table.schema.field("price").type == pa.string()
    with pytest.raises(FeatureError) as refused:
        written(stored([{"price": "x", "prices": []}], features), "parquet", metadata=metadata)
    assert refused.value.message.startswith(
        "feature 'price': a text is not a decimal128(5, 2), which the metadata names"
    )
