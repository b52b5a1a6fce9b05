"""A folder of Parquet shards: splits derived from names, features derived from columns, and refused folders."""

from __future__ import annotations

import datetime as dt
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image as PillowImage
from pyarrow import parquet
from support.golden import check_errors
from support.levels import either

from registry.errors import (
    NullLabelWarning,
    PreparedFormatError,
    ReferenceSyntaxError,
    ShardMismatchError,
    VerificationError,
)
from registry.features import (
    ClassLabel,
    Feature,
    FeaturesDict,
    Image,
    Scalar,
    Sequence,
    Tensor,
    Text,
    codec_of,
    features_from_json,
    features_to_json,
)
from registry.images.png import encode_png
from registry.interop.parquet import describe_parquet
from registry.model import Version
from registry.prepared import PreparedDataset
from registry.shards import decode_block, open_shard
from registry.shards.arrow_schema import features_of_schema, metadata_of_schema
from registry.shards.arrow_values import flatten_table
from registry.shards.blocks import TableBlock
from registry.storage import open_store
from registry.wire import decode_example

GOLDEN = Path(__file__).parent / "golden" / "parquet_import"
NUMBER = pa.table({"id": [1, 2, 3]})


def write(folder: Path, *names: str, table: pa.Table = NUMBER) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, path)
    return folder


def describe(folder: Path, **options: Any) -> PreparedDataset:
    return describe_parquet(open_store(folder), **options)


def hugging_face(features: dict[str, Any], **info: str) -> dict[bytes, bytes]:
    """The metadata that Hugging Face's software writes."""
    return {b"huggingface": json.dumps({"info": {"features": features, **info}, "fingerprint": ""}).encode()}


def read(folder: Path, split: str = "train") -> list[dict[str, Any]]:
    """The examples of the first shard of a split."""
    prepared = describe(folder)
    found = next(one for one in prepared.splits if one.name == split)
    shard = open_shard(
        open_store(folder),
        found.filename(0),
        file_format=prepared.file_format,
        features=features_from_json(features_to_json(prepared.features)),
    )
    return list(decode_block(prepared.features, shard.read(0, found.shard_lengths[0])).examples())


def test_splits_come_from_the_names_of_the_files(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "My-Numbers",
        *(f"data/train-{index:05}-of-00003.parquet" for index in range(3)),
        "data/extra-00000-of-00001.parquet",
        "data/validation-00000-of-00001.parquet",
        "test.parquet",
    )
    (folder / "README.md").write_text("Numbers.")
    prepared = describe(folder)
    assert (prepared.name, prepared.config, prepared.version) == ("my_numbers", None, Version(1, 0, 0))
    assert prepared.file_format == "parquet_columns"
    assert {split.name: tuple(split.shard_lengths) for split in prepared.splits} == {
        "train": (3, 3, 3),
        "validation": (3,),
        "test": (3,),
        "extra": (3,),
    }
    assert prepared.splits[0].filenames == [f"data/train-{index:05}-of-00003.parquet" for index in range(3)]
    assert prepared.splits[2].filenames == ["test.parquet"]
    assert all(split.num_bytes > 0 for split in prepared.splits)


def test_name_config_and_version_are_given(tmp_path: Path) -> None:
    folder = write(tmp_path / "numbers" / "data", "train.parquet")
    assert describe(folder).name == "numbers"
    assert describe(write(tmp_path / "cars" / "data" / "train", "train.parquet")).name == "cars"
    prepared = describe(folder, name="other", config="small", version=Version(2, 1, 0))
    assert str(prepared.reference) == "other/small:2.1.0"
    with pytest.raises(ReferenceSyntaxError, match="invalid dataset name 'no name'"):
        describe(folder, name="no name")


def test_files_that_make_no_dataset_are_named(tmp_path: Path) -> None:
    files = [
        ["train-00000-of-00004.parquet", "train-00003-of-00004.parquet"],
        ["train-00000-of-00001.parquet", "train-00000-of-00002.parquet"],
        ["data/train.parquet", "train.parquet"],
        ["train-00002-of-00002.parquet"],
        ["train-000000-of-000001.parquet"],
        ["all.parquet", "a b.parquet", "train.parquet"],
        [".parquet", "train.parquet"],
        [f"train {number}.parquet" for number in range(12)],
    ]
    calls = (partial(describe, write(tmp_path / str(place), *names)) for place, names in enumerate(files))
    check_errors(GOLDEN / "files_that_make_no_dataset.txt", calls, details=["problems"], folder=tmp_path)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    for name in ("empty", "prepared/1.0.0"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "train.parquet").touch()
    (tmp_path / "prepared/1.0.0/dataset_info.json").write_text("{}")
    (tmp_path / "prepared/1.0.0/numbers-train.parquet-00000-of-00001").touch()
    write(tmp_path / "2024", "train.parquet")
    places = ("empty", "nowhere", "train.parquet", "prepared/1.0.0", "2024")
    calls = (partial(describe, tmp_path / place) for place in places)
    check_errors(GOLDEN / "a_folder_of_something_else.txt", calls, folder=tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "numbers", "train.parquet")
    (folder / "test.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(ShardMismatchError) as caught:
        describe(folder)
    assert str(caught.value) == f"{folder}/test.parquet: not a parquet file, or a damaged one"


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ({"id": ["a"]}, "column 'id': expected int64, as in train.parquet, found string"),
        ({"name": [1]}, "it has no column 'id', which train.parquet has"),
        ({"id": [1], "more": [1]}, "it has a column 'more', which train.parquet lacks"),
    ],
)
def test_files_with_other_columns_are_named(tmp_path: Path, other: dict[str, Any], problem: str) -> None:
    folder = write(tmp_path / "numbers", "train.parquet")
    write(folder, "test.parquet", table=pa.table(other))
    with pytest.raises(PreparedFormatError) as caught:
        describe(folder)
    assert caught.value.details["problems"] == [f"test.parquet: {problem}"]


def number(dtype: str, **options: Any) -> Tensor:
    return Tensor(shape=(), dtype=dtype, **options)


@pytest.mark.parametrize(
    ("kind", "feature"),
    [
        (pa.bool_(), number("bool")),
        (pa.uint8(), number("uint8")),
        (pa.float16(), number("float16")),
        (pa.float32(), number("float32")),
        (pa.float64(), number("float64", encoding="bytes")),
        (pa.string(), Text()),
        (pa.string_view(), Text()),
        (pa.binary(16), number("string")),
        (pa.dictionary(pa.int8(), pa.string()), Text()),
        (pa.list_(pa.int16()), Sequence("int16")),
        (pa.large_list(pa.list_(pa.string())), Sequence(Sequence(Text()))),
        (pa.list_(pa.int32(), 3), Tensor(shape=(3,), dtype="int32")),
        (pa.list_(pa.list_(pa.float64(), 2), 3), Tensor(shape=(3, 2), dtype="float64", encoding="bytes")),
        (pa.list_(pa.list_(pa.float32(), 4)), Sequence(Tensor(shape=(4,), dtype="float32"))),
        (pa.list_(pa.list_(pa.int8()), 2), Sequence(Sequence("int8"), length=2)),
        (
            pa.struct({"a": pa.int64(), "b": pa.struct({"c": pa.string()})}),
            FeaturesDict({"a": "int64", "b": {"c": Text()}}),
        ),
        (pa.list_(pa.struct({"a": pa.int64()})), Sequence({"a": "int64"})),
        (pa.date32(), number("int32", description="date32[day]: days since 1970-01-01.")),
        (pa.date64(), number("int64", description="date64[ms]: milliseconds since 1970-01-01.")),
        (pa.time32("s"), number("int32", description="time32[s]: seconds since midnight.")),
        (pa.duration("ms"), number("int64", description="duration[ms]: milliseconds.")),
        (
            pa.timestamp("us", "Europe/Berlin"),
            number(
                "int64",
                description="timestamp[us, tz=Europe/Berlin]: microseconds since 1970-01-01T00:00:00 UTC.",
            ),
        ),
        (
            pa.timestamp("ns"),
            number("int64", description="timestamp[ns]: nanoseconds since 1970-01-01T00:00:00, in no time zone."),
        ),
        (pa.uuid(), number("string")),
    ],
    ids=str,
)
def test_types_make_features(kind: pa.DataType, feature: Feature) -> None:
    features = features_of_schema(pa.schema({"x": kind}))
    assert features == FeaturesDict({"x": feature})
    assert features_from_json(features_to_json(features)) == features


def test_types_without_a_feature_are_refused_by_column() -> None:
    schemas = [
        *(pa.schema({"x": pa.decimal128(10, 2)}), pa.schema({"x": pa.null()}), pa.schema({"x": pa.struct([])})),
        pa.schema({"x": pa.map_(pa.string(), pa.int8())}),
        pa.schema({"x": pa.list_(pa.struct({"y": pa.decimal128(4)}))}),
        pa.schema([("x", pa.int8()), ("x", pa.int8())]),
        pa.schema({"a/b": pa.int8(), "a": pa.struct({"b": pa.int8()})}),
    ]
    calls = (partial(features_of_schema, schema) for schema in schemas)
    check_errors(GOLDEN / "types.txt", calls)
    with pytest.raises(PreparedFormatError, match=r"^column 'x': fixed_size_list<\w+: int8>\[0\] has size 0"):
        features_of_schema(pa.schema({"x": pa.list_(pa.int8(), 0)}))


def test_files_without_columns_are_refused() -> None:
    with pytest.raises(PreparedFormatError, match="the files have no columns"):
        features_of_schema(pa.schema({}))


def test_types_that_are_nested_without_end_are_refused() -> None:
    kind = pa.int8()
    for _ in range(60):
        kind = pa.list_(kind)
    with pytest.raises(PreparedFormatError, match="column 'x': it is nested too deeply"):
        features_of_schema(pa.schema({"x": kind}))


def test_hugging_face_names_classes_and_files() -> None:
    file = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    schema = pa.schema(
        {
            "label": pa.int64(),
            "labels": pa.list_(pa.int64()),
            "odd": pa.int32(),
            "image": file,
            "frames": pa.list_(file),
            "sound": file,
            "pixels": pa.list_(pa.list_(pa.uint8())),
            "boxes": pa.struct({"kind": pa.list_(pa.int64()), "box": pa.list_(pa.list_(pa.float32(), 4))}),
        },
        hugging_face(
            {
                "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
                "labels": {"feature": {"names": ["a", "b"], "_type": "ClassLabel"}, "_type": "Sequence"},
                "odd": {"names": ["same", "same"], "_type": "ClassLabel"},
                "image": {"_type": "Image"},
                "frames": [{"_type": "Image"}],
                "sound": {"sampling_rate": 16000, "_type": "Audio"},
                "pixels": {"shape": [2, 3], "dtype": "uint8", "_type": "Array2D"},
                "boxes": {
                    "feature": {"kind": {"names": ["x"], "_type": "ClassLabel"}, "box": {"_type": "Sequence"}},
                    "_type": "Sequence",
                },
            },
            description="Animals.",
            license="cc0",
        ),
    )
    assert features_of_schema(schema, as_bytes=["frames"]) == FeaturesDict(
        {
            "label": ClassLabel(names=["cat", "dog"]),
            "labels": Sequence(ClassLabel(names=["a", "b"])),
            "odd": "int32",
            "image": Image(shape=(None, None, None)),
            "frames": Sequence(Tensor(shape=(), dtype=bytes, description="The bytes of an image file.")),
            "sound": Tensor(shape=(), dtype=bytes, description="The bytes of an audio file."),
            "pixels": Tensor(shape=(2, 3), dtype="uint8"),
            "boxes": {
                "kind": Sequence(ClassLabel(names=["x"])),
                "box": Sequence(Tensor(shape=(4,), dtype="float32")),
            },
        }
    )
    found = metadata_of_schema(schema)
    assert (found.description, found.license, found.citation) == ("Animals.", "cc0", "")


@pytest.mark.parametrize(
    "text", [b"no json", b"[]", b'{"info": 1}', b'{"info": {"features": [1]}}', b"[" * 100_000, b"\xff"]
)
def test_unreadable_metadata_next_to_the_schema_is_ignored(text: bytes) -> None:
    schema = pa.schema({"x": pa.int8()}, {b"huggingface": text})
    assert features_of_schema(schema) == FeaturesDict({"x": "int8"})
    assert metadata_of_schema(schema).description == ""


def test_labels_images_and_arrays_are_read(tmp_path: Path) -> None:
    pixels = [np.full((2, 3, 1), shade, np.uint8) for shade in (7, 200)]
    table = pa.table(
        {
            "label": pa.array([1, 0], pa.int64()),
            "image": [{"bytes": encode_png(one), "path": None} for one in pixels],
            "square": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
            "rows": [[[1.5, 2.5]], [[1.0, 2.0], [3.0, 4.0]]],
        }
    ).replace_schema_metadata(
        hugging_face(
            {
                "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
                "image": {"_type": "Image"},
                "square": {"shape": [2, 2], "dtype": "int64", "_type": "Array2D"},
                "rows": {"shape": [None, 2], "dtype": "float64", "_type": "Array2D"},
            }
        )
    )
    folder = write(tmp_path / "animals", "train.parquet", table=table)
    assert describe(folder).features.labels() == {"label": ["cat", "dog"]}
    first, second = read(folder)
    assert (first["label"], second["label"]) == (1, 0)
    assert np.array_equal(first["image"], pixels[0])
    assert np.array_equal(second["image"], pixels[1])
    assert np.array_equal(second["square"], [[5, 6], [7, 8]])
    assert np.array_equal(first["rows"], [[1.5, 2.5]])
    assert np.array_equal(second["rows"], [[1, 2], [3, 4]])
    assert second["rows"].dtype == np.float64


def test_an_array_of_another_shape_than_it_says_is_named(tmp_path: Path) -> None:
    table = pa.table({"square": [[[1, 2], [3, 4]], [[5, 6]]]}).replace_schema_metadata(
        hugging_face({"square": {"shape": [2, 2], "dtype": "int64", "_type": "Array2D"}})
    )
    folder = write(tmp_path / "squares", "train.parquet", table=table)
    prepared = describe(folder)
    shard = open_shard(
        open_store(folder), "train.parquet", file_format=prepared.file_format, features=prepared.features
    )
    decoded = decode_block(prepared.features, shard.read(0, 2))
    assert len(decoded) == 1
    assert str(decoded.fault) == "feature 'square': expected 2 values, found 1"


def test_images_that_are_not_decoded_stay_bytes(tmp_path: Path) -> None:
    file = io.BytesIO()
    PillowImage.new("RGB", (2, 2)).save(file, "WEBP")
    table = pa.table({"image": [{"bytes": file.getvalue(), "path": "a.webp"}]})
    table = table.replace_schema_metadata(hugging_face({"image": {"_type": "Image"}}))
    folder = write(tmp_path / "pictures", "train.parquet", table=table)
    assert describe(folder).features["image"] == Tensor(
        shape=(), dtype=bytes, description="The bytes of an image file."
    )
    assert read(folder) == [{"image": file.getvalue()}]


WITH_NULLS = pa.table(
    {
        "number": pa.array([None, 2, 3], pa.uint8()),
        "precise": pa.array([0.1, None, 0.3], pa.float64()),
        "flag": pa.array([None, True, False]),
        "text": ["a", None, ""],
        "kind": pa.array(["x", None, "x"]).dictionary_encode(),
        "bytes": pa.array([b"1", b"2", None], pa.binary(1)),
        "day": pa.array([None, 5, None], pa.date32()),
        "in": pa.array(
            [{"a": {"x": None}}, {"a": {"x": 1}}, {"a": {"x": 2}}], pa.struct({"a": pa.struct({"x": "int64"})})
        ),
        "nothing": pa.array([None] * 3, pa.float32()),
        "label": pa.array([1, None, 0], pa.uint8()),
        "full": [1, 2, 3],
        "list": [[1], [], [2]],
    }
).replace_schema_metadata(hugging_face({"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}))


@pytest.mark.parametrize("statistics", [True, False, ["text", "in.a.x"]], ids=["given", "not given", "partly given"])
def test_scalars_with_nulls_are_optional(tmp_path: Path, statistics: Any) -> None:
    folder = tmp_path / "things"
    folder.mkdir()
    parquet.write_table(WITH_NULLS, folder / "test.parquet", write_statistics=statistics, row_group_size=1)
    train = WITH_NULLS.slice(1, 1).set_column(3, "text", pa.array(["no null here"]))
    parquet.write_table(train, folder / "train.parquet", write_statistics=statistics)
    with pytest.warns(NullLabelWarning) as warned:
        features = describe(folder).features
    assert [str(one.message) for one in warned] == [
        "the label 'label' is null in some rows; it is stored there as -1, which means no label"
    ]
    assert features == FeaturesDict(
        {
            "number": Scalar("uint8", optional=True),
            "precise": Scalar("float64", encoding="bytes", optional=True),
            "flag": Scalar("bool", optional=True),
            "text": Scalar("string", optional=True),
            "kind": Scalar("string", optional=True),
            "bytes": Scalar("string", optional=True),
            "day": Scalar("int32", optional=True, description="date32[day]: days since 1970-01-01."),
            "in": {"a": {"x": Scalar("int64", optional=True)}},
            "nothing": Scalar("float32", optional=True),
            "label": ClassLabel(names=["cat", "dog"]),
            "full": "int64",
            "list": Sequence("int64"),
        }
    )
    with pytest.warns(NullLabelWarning):
        first, second, third = read(folder, "test")
    assert first == {
        "number": None,
        "precise": 0.1,
        "flag": None,
        "text": b"a",
        "kind": b"x",
        "bytes": b"1",
        "day": None,
        "in": {"a": {"x": None}},
        "nothing": None,
        "label": 1,
        "full": 1,
        "list": [1],
    }
    assert (second["precise"], second["label"], second["day"], second["text"]) == (None, -1, 5, None)
    (block,) = [TableBlock(WITH_NULLS, features)]
    assert [sorted(set(features) - set(flat)) for flat in map(decode_example, block.records())] == [
        ["day", "flag", "in", "nothing", "number"],
        ["in", "kind", "nothing", "precise", "text"],
        ["bytes", "day", "in", "nothing"],
    ]
    as_tfds = features.missing_as_tfds()
    one, *_ = [codec_of(as_tfds).decode(record) for record in block.records()]
    assert one == first | {
        "number": 0,
        "flag": False,
        "day": -(2**31),
        "in": {"a": {"x": -(2**63)}},
        "nothing": np.finfo(np.float32).min,
    }
    assert next(TableBlock(WITH_NULLS, as_tfds).decode().examples()) == one
    assert (third["text"], third["bytes"]) == (b"", None)


def test_nulls_are_found_in_columns_whose_names_contain_dots(tmp_path: Path) -> None:
    schema = pa.schema({"a.b": pa.int8(), "a": pa.struct({"b": pa.int8(), "c": pa.list_(pa.int8())}), "z": pa.int8()})
    rows = [{"a.b": 1, "a": {"b": None, "c": [1]}, "z": 1}, {"a.b": 2, "a": {"b": 1, "c": []}, "z": 2}]
    for name, statistics in (("told", True), ("read", False)):
        folder = tmp_path / name
        folder.mkdir()
        parquet.write_table(pa.Table.from_pylist(rows, schema), folder / "x.parquet", write_statistics=statistics)
        assert describe(folder).features == FeaturesDict(
            {"a.b": "int8", "a": {"b": Scalar("int8", optional=True), "c": Sequence("int8")}, "z": "int8"}
        )


def test_an_image_without_its_bytes_is_refused(tmp_path: Path) -> None:
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    table = pa.table({"image": pa.array([{"bytes": b"1", "path": None}, {"bytes": None, "path": "a.png"}], kind)})
    table = table.replace_schema_metadata(hugging_face({"image": {"_type": "Image"}}))
    fault = (
        TableBlock(table, describe(write(tmp_path / "pictures", "train.parquet", table=table)).features).decode().fault
    )
    assert str(fault) == "feature 'image': has the path of a file, but not its bytes"
    assert fault.hint == "Write the bytes of the files into the column, as push_to_hub of Hugging Face's datasets does."
    assert fault.details["record"] == 1


def test_times_are_counts_of_their_units(tmp_path: Path) -> None:
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 600_000, dt.UTC)
    table = pa.table(
        {
            "at": pa.array([moment], pa.timestamp("ms", "UTC")),
            "day": pa.array([moment.date()], pa.date32()),
            "clock": pa.array([moment.time()], pa.time64("us")),
            "took": pa.array([dt.timedelta(seconds=90)], pa.duration("s")),
        }
    )
    (found,) = read(write(tmp_path / "times", "train.parquet", table=table))
    assert found["at"] == int(moment.timestamp() * 1000)
    assert found["day"] == (moment.date() - dt.date(1970, 1, 1)).days
    assert found["day"].dtype == np.int32
    assert found["clock"] == ((3 * 60 + 4) * 60 + 5) * 10**6 + 600_000
    assert found["took"] == 90


@pytest.mark.parametrize("step", either(3, 1))
def test_damaged_columns_are_read_or_refused(tmp_path: Path, step: int) -> None:
    """A small file with some byte changed returns the right number of rows, or raises a typed error."""
    table = pa.table(
        {
            "id": pa.array(range(9), pa.int32()),
            "text": [f"text {number}" for number in range(9)],
            "kind": pa.array(["a", "b", "c"] * 3).dictionary_encode(),
            "lists": [[["x"] * place for place in range(number % 3)] for number in range(9)],
        }
    )
    folder = write(tmp_path / "things", "train.parquet", table=table)
    features = describe(folder).features
    path, store = folder / "train.parquet", open_store(folder)
    content = path.read_bytes()
    refused = 0
    for place in range(0, len(content), 2 * step):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 7
        path.write_bytes(damaged)
        try:
            shard = open_shard(store, "train.parquet", file_format="parquet_columns", features=features, num_records=9)
            decoded = decode_block(features, shard.read(0, 9))
        except VerificationError:
            refused += 1
            continue
        if decoded.fault is None:
            assert len(list(decoded.examples())) == 9
        else:
            assert isinstance(decoded.fault, VerificationError)
    assert refused > len(content) // 20 // step


def test_the_names_of_many_columns_are_listed_once() -> None:
    table = pa.table({f"c{place}": [place] for place in range(50)})
    features = features_of_schema(table.schema)
    asked: list[int] = []

    class Counted:
        """A table that counts how often its columns are listed."""

        num_rows = table.num_rows

        @property
        def schema(self) -> pa.Schema:
            asked.append(1)
            return table.schema

        def column(self, name: str) -> pa.ChunkedArray:
            return table.column(name)

    assert len(flatten_table(Counted(), features)) == 50
    assert len(asked) == 1
