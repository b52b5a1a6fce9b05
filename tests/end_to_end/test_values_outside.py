"""Values that a feature does not allow: refused where the caller declares the schema, reported where others did."""

from __future__ import annotations

import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from support.golden import check_errors
from support.prepared_samples import prepare

import registry
from registry import slim
from registry.errors import CorruptExampleError, FeatureError, UnusableRowsError, ValuesOutsideWarning
from registry.features import (
    BBox,
    ClassLabel,
    FeaturesDict,
    Image,
    LabeledImage,
    Scalar,
    Sequence,
    Tensor,
    Text,
    TranslationVariableLanguages,
    codec_of,
)
from registry.wire import encode_example

GOLDEN = Path(__file__).with_name("golden")


PETS = FeaturesDict({"name": Text(), "label": ClassLabel(names=["cat", "dog", "eel"]), "age": Scalar("int64")})
_LOOSE = codec_of(FeaturesDict({"name": Text(), "label": "int64", "age": "int64"}))


def pets(*labels: int) -> list[bytes]:
    """Records with these labels, which may belong to no class."""
    return [_LOOSE.encode({"name": f"pet {row}", "label": label, "age": row}) for row, label in enumerate(labels)]


TRAIN, TEST = pets(0, 1, 2, 3, 1, -1, 7, 3), pets(0, 1, 2)
"""Three of eight labels are outside 0..2, the first in record 3; none of the test split."""

LIMITS = "feature 'label' must be in 0..2, or -1 for no label"
FOUND = (
    f"{LIMITS}: 3 of 8 records have other values in the split train; the first, record 3 "
    "(record 0 of {}-train.tfrecord-00001-of-00003), has 3"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """pets:1.0.0 as others prepared it, with records of no class in the second and third shard of train."""
    splits = {"test": TEST, "train": TRAIN}
    return prepare(tmp_path / "tfds/pets/1.0.0", splits=splits, features=PETS, name="pets", shards=3)


def messages(warned: pytest.WarningsRecorder) -> list[str]:
    return [str(one.message) for one in warned if issubclass(one.category, ValuesOutsideWarning)]


@pytest.mark.parametrize("copy", [False, True])
def test_an_import_of_tfds_warns_and_verify_and_validate_report(
    catalog: registry.Catalog, folder: Path, copy: bool
) -> None:
    with pytest.warns(ValuesOutsideWarning) as warned:
        report = catalog.import_tfds(folder, copy=copy)
    told = FOUND.format("pets")
    assert messages(warned) == [f"pets:1.0.0: {told}"]
    assert [str(one) for one in report[0].outside] == [told]
    report.require_all()
    dataset = catalog.dataset("pets")
    assert [int(one["label"]) for one in dataset.read("train")] == [0, 1, 2, 3, 1, -1, 7, 3], "as it is stored"
    for processes in (1, 2):
        verified = dataset.verify(deep=True, processes=processes)
        assert (list(map(str, verified.outside)), verified.faults) == ([told], ())
    assert dataset.verify().outside == ()
    assert catalog.verify_all(deep=True).is_sound
    with pytest.warns(ValuesOutsideWarning) as warned:
        assert slim.Dataset.from_version(dataset, "train[1:]").validate(deep=True) == 7
    assert messages(warned) == [
        "'label' must be in 0..2, or -1 for no label: 3 of 7 records have other values; the first, record 2, has 3"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert slim.Dataset.from_version(dataset, "test").validate(deep=True) == 3
        assert catalog.import_tfds(folder, copy=copy)[0].outcome == "known"


def test_trusted_lengths_read_no_record_and_verify_finds_the_values(catalog: registry.Catalog, folder: Path) -> None:
    assert catalog.import_tfds(folder, trust_lengths=True)[0].outside == ()
    assert len(catalog.dataset("pets").verify(deep=True).outside) == 1


def test_a_published_folder_of_others_warns_and_so_does_its_preview(catalog: registry.Catalog, folder: Path) -> None:
    with pytest.warns(ValuesOutsideWarning) as warned:
        catalog.preview(folder)
    assert messages(warned) == [f"pets:1.0.0: {FOUND.format('pets')}"]
    with pytest.warns(ValuesOutsideWarning) as warned:
        publication = catalog.publish(folder)
    assert messages(warned) == [f"pets:1.0.0: {FOUND.format('pets')}"]
    assert len(publication.outside) == 1


def hugging_face(features: Any) -> dict[str, str]:
    return {"huggingface": json.dumps({"info": {"features": features}})}


@pytest.fixture
def columns(tmp_path: Path) -> Path:
    """A split of two files of typed columns: labels of a struct and of a list, in small row groups."""
    folder = tmp_path / "columns"
    folder.mkdir()
    label = {"names": ["a", "b"], "_type": "ClassLabel"}
    about = hugging_face({"at": {"label": label}, "tags": {"feature": label, "_type": "List"}})
    rows = [{"at": {"label": row % 2 + (2 if row in (5, 8) else 0)}, "tags": [0, 1][: row % 3]} for row in range(10)]
    rows[7]["tags"] = [0, 2, 9]
    kind = pa.schema([("at", pa.struct({"label": pa.int64()})), ("tags", pa.list_(pa.int64()))], metadata=about)
    for index, part in enumerate((rows[:4], rows[4:])):
        table = pa.Table.from_pylist(part, schema=kind)
        parquet.write_table(table, folder / f"train-0000{index}-of-00002.parquet", row_group_size=2)
    return folder


COLUMNS = [
    "feature 'at/label' must be in 0..1, or -1 for no label: 2 of 10 records have other values in the split train; "
    "the first, record 5 (record 1 of train-00001-of-00002.parquet), has 3",
    "feature 'tags' must be in 0..1, or -1 for no label: 1 of 10 records has other values in the split train; "
    "the first, record 7 (record 3 of train-00001-of-00002.parquet), has 2",
]


def test_an_import_of_parquet_warns_for_labels_in_structs_and_lists(catalog: registry.Catalog, columns: Path) -> None:
    with pytest.warns(ValuesOutsideWarning) as warned:
        publication = catalog.import_parquet(columns)
    assert messages(warned) == [f"columns:1.0.0: {one}" for one in COLUMNS]
    assert list(map(str, publication.outside)) == COLUMNS
    assert list(map(str, catalog.dataset("columns").verify(deep=True).outside)) == COLUMNS


@pytest.mark.parametrize("dry_run", [False, True])
def test_add_in_place_refuses_what_a_schema_of_the_caller_does_not_allow(
    catalog: registry.Catalog, tmp_path: Path, folder: Path, dry_run: bool
) -> None:
    for name in ("dataset_info.json", "features.json", "label.labels.txt"):
        (folder / name).unlink(missing_ok=True)
    features = {"name": "Text", "label": "ClassLabel(cat, dog, eel)", "age": "int64"}
    with pytest.raises(UnusableRowsError) as caught:
        catalog.add(folder, "pets", in_place=True, features=features, dry_run=dry_run)
    assert caught.value.message == (f"records have values that the schema does not allow\n  {FOUND.format('pets')}")
    assert caught.value.hint == "Correct the schema, or write the files again."
    assert caught.value.details["num_bad"] == 3
    assert caught.value.details["bad"] == [
        {"file": "pets-train.tfrecord-00001-of-00003", "record": 0, "reason": "feature 'label' has 3"}
    ]
    assert [(one["split"], one["first_record"]) for one in caught.value.details["outside"]] == [("train", 3)]
    assert not (tmp_path / "data").exists()
    features["label"] = "ClassLabel(cat, dog, eel, a, b, c, d, e)"
    assert catalog.add(folder, "pets", in_place=True, features=features).outcome == "published"


@pytest.mark.parametrize("source", ["tfds", "parquet"])
def test_add_in_place_names_the_import_of_files_that_others_described(
    catalog: registry.Catalog, folder: Path, columns: Path, source: str
) -> None:
    with pytest.raises(UnusableRowsError) as caught:
        catalog.add(folder if source == "tfds" else columns, "pets", in_place=True)
    assert caught.value.hint == (
        f"Write the files again. To publish them unchanged, with a warning: registry import {source} DIR"
    )


_LABELED = hugging_face({"x": {"names": ["a", "b"], "_type": "ClassLabel"}})


@pytest.mark.parametrize(
    ("rows", "feature", "problem"),
    [
        ([0, 5], ClassLabel(num_classes=3), "class number 5 is out of range for 3 classes"),
        ([0, 2], None, "class number 2 is out of range for 2 classes"),  # as the metadata of Hugging Face says
        ([1, 30], Scalar("int64", maximum=9), "must be at most 9, found 30"),
        ([None, -1], Scalar("int8", minimum=0, optional=True), "must be at least 0, found -1"),
        ([float("nan"), 1.5], Scalar("float32", minimum=2), "must be at least 2, found 1.5"),
        ([[1, 2], [3, 9]], Tensor(shape=(2,), dtype="int64", maximum=5), "element 2: must be at most 5, found 9"),
        ([[], [1, 7]], Sequence(ClassLabel(num_classes=3)), "element 2: class number 7 is out of range for 3 classes"),
        (
            [[[1]], [[2], [9]]],
            Sequence(Sequence(Scalar("int64", maximum=5))),
            "element 2: element 1: must be at most 5, ",
        ),
        (
            [[0, 0, 1, 1], [0, 0, 1, 2]],
            BBox(),
            "must be in 0..1, without a minimum above its maximum, found (0.0, 0.0, ",
        ),
        ([[[0, 0, 1, 1]], [[1, 0, 0, 1]]], Sequence(BBox()), "element 1: must be in 0..1, without a minimum above "),
        ([{"x": 1}, {"x": 9}], {"x": Scalar("int64", maximum=5)}, 'field "x": must be at most 5, found 9'),
    ],
)
def test_add_refuses_them_as_unusable_rows_and_skips_them_on_request(
    catalog: registry.Catalog, tmp_path: Path, rows: list[Any], feature: Any, problem: str
) -> None:
    table = pa.table({"x": pa.array(rows), "row": [0, 1]}).replace_schema_metadata(
        _LABELED if feature is None else None
    )
    parquet.write_table(table, tmp_path / "x.parquet")
    features = None if feature is None else {"x": FeaturesDict(feature) if isinstance(feature, dict) else feature}
    with pytest.raises(UnusableRowsError) as caught:
        catalog.add(tmp_path / "x.parquet", features=features)
    assert f"x.parquet:2, column 'x': {problem}" in caught.value.message
    catalog.add(tmp_path / "x.parquet", features=features, skip_bad=1)
    assert [int(one["row"]) for one in catalog.dataset("x").read("train")] == [0]
    assert catalog.dataset("x").verify(deep=True).outside == ()


_BOXES = {
    "good": [(0.0, 0.0, 1.0, 1.0)],
    "none": [],
    "above": [(0.5, 0, 0.25, 1)],
    "wide": [(0, 0, 1, 2), (0, 0, 2, 1)],
}


def test_boxes_bounds_pixels_and_languages_are_compared_too(catalog: registry.Catalog, tmp_path: Path) -> None:
    declared = FeaturesDict(
        {
            "boxes": Sequence(BBox()),
            "height": Scalar("float32", minimum=0, optional=True),
            "mask": LabeledImage(num_classes=2, shape=(1, 2, 1)),
            "steps": {"reward": Sequence(Sequence(Scalar("int8", maximum=5)))},
            "text": TranslationVariableLanguages(languages=["de", "en"]),
        }
    )
    stored = codec_of(
        FeaturesDict(
            {
                "boxes": Sequence(BBox(bbox_format=None)),
                "height": Scalar("float32", optional=True),
                "mask": Image(shape=(1, 2, 1)),
                "steps": {"reward": Sequence(Sequence("int8"))},
                "text": TranslationVariableLanguages(),
            }
        )
    )
    rows: list[dict[str, Any]] = [
        {"boxes": "good", "height": None, "mask": [0, 255], "reward": [[1], []], "text": {"de": "x"}},
        {"boxes": "above", "height": float("nan"), "mask": [1, 2], "reward": [[1], [5, 6]], "text": {}},
        {"boxes": "wide", "height": -0.5, "mask": [1, 0], "reward": [], "text": {"fr": ["x", "y"], "en": "z"}},
        {"boxes": "none", "height": 2.0, "mask": [9, 9], "reward": [[9]], "text": {"it": "x"}},
    ]
    records = [
        stored.encode(
            {
                "boxes": _BOXES[row["boxes"]],
                "height": row["height"],
                "mask": np.array(row["mask"], np.uint8).reshape(1, 2, 1),
                "steps": {"reward": row["reward"]},
                "text": row["text"],
            }
        )
        for row in rows
    ]
    folder = prepare(tmp_path / "all/1.0.0", splits={"train": records}, features=declared, name="all")
    with pytest.warns(ValuesOutsideWarning):
        report = catalog.import_tfds(folder)
    found = [(one.feature, one.limits, one.num_records, one.first_record, one.value) for one in report[0].outside]
    assert found == [
        ("boxes", "in 0..1, without a minimum above its maximum", 2, 1, "(0.5, 0.0, 0.25, 1.0)"),
        ("height", "at least 0", 1, 2, "-0.5"),
        ("mask", "in 0..1, or 255 for no label", 2, 1, "2"),
        ("steps/reward", "at most 5", 2, 1, "6"),
        ("text/language", "one of de, en", 2, 2, "'fr'"),
    ]
    assert catalog.dataset("all").verify(deep=True).outside == report[0].outside


REFUSED: list[tuple[Any, Any]] = [
    *((ClassLabel(num_classes=3), 3), (Scalar("int64", minimum=0, maximum=9), 10)),
    *((Scalar("float32", maximum=2**53 + 1), 2.0**54), (Scalar("uint64", maximum=2**63 - 1), 2**63)),
    (LabeledImage(num_classes=2, shape=(1, 1, 1)), np.full((1, 1, 1), 2, np.uint8)),
    (TranslationVariableLanguages(languages=["de"]), {"language": ["en"], "translation": ["x"]}),
]


def test_encoders_refuse_such_values() -> None:
    codecs = [(codec_of(FeaturesDict({"it": feature})), value) for feature, value in REFUSED]
    check_errors(GOLDEN / "values_outside.txt", (partial(codec.encode, {"it": value}) for codec, value in codecs))
    blocks = [codec.encode_block([{"it": value}] * 20) for codec, value in codecs]

    def refuse(fault: BaseException | None) -> None:
        assert isinstance(fault, FeatureError)
        raise fault

    assert [block.num_records for block in blocks] == [0] * len(blocks)
    check_errors(GOLDEN / "values_outside.txt", (partial(refuse, block.fault) for block in blocks))


def test_a_jpeg_of_another_size_is_refused_by_an_import_as_a_png_is(catalog: registry.Catalog, tmp_path: Path) -> None:
    stored = codec_of(FeaturesDict({"image": Image(encoding_format="jpeg")}))
    declared = FeaturesDict({"image": Image(shape=(2, 2, 3), encoding_format="jpeg")})
    record = stored.encode({"image": np.zeros((4, 4, 3), np.uint8)})
    folder = prepare(tmp_path / "x/1.0.0", splits={"train": [record]}, features=declared, name="x")
    report = catalog.import_tfds(folder)
    assert report[0].error is not None
    assert report[0].error.message == (
        "x-train.tfrecord-00000-of-00001: record 0: feature 'image': expected shape (2, 2, 3), found an image of 4 x 4"
    )


def test_a_decoder_of_ones_own_is_compared_with_the_number_of_classes(folder: Path) -> None:
    decoder = slim.TFExampleDecoder({"label": slim.FixedLenFeature((), "int64")}, {"label": slim.Tensor("label")})
    pattern = str(folder / "pets-train*")
    with pytest.warns(ValuesOutsideWarning) as warned:
        slim.Dataset(pattern, None, decoder, 8, {"label": "the class"}, num_classes=3).validate(deep=True)
    assert messages(warned) == [
        "'label' must be in 0..2, or -1 for no label: 3 of 8 records have other values; the first, record 3, has 3"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        slim.Dataset(pattern, None, decoder, 8, {"label": "the class"}, num_classes=8).validate(deep=True)
        slim.Dataset(pattern, None, decoder, 8, {"label": "the class"}).validate(deep=True)


_IMAGE = codec_of(FeaturesDict({"x": Image()})).encode({"x": np.zeros((4, 4, 3), np.uint8)})


@pytest.mark.parametrize(
    ("feature", "record", "problem"),
    [
        (Scalar("int8"), encode_example({"x": np.array([400])}), "expected dtype int8, found 400"),
        (Scalar("uint8"), encode_example({"x": np.array([-1])}), "expected dtype uint8, found -1"),
        (Scalar("bool"), encode_example({"x": np.array([2])}), "expected dtype bool, found 2"),
        (ClassLabel(num_classes=2), encode_example({"x": np.array([1, 0])}), "expected 1 value, found 2"),
        (ClassLabel(num_classes=2), encode_example({"x": [b"cat"]}), "expected int64 values, found bytes"),
        (ClassLabel(num_classes=2), encode_example({}), "the record has no key 'x'"),
        (Sequence("int64", length=3), encode_example({"x": np.array([1, 2])}), "expected 3 elements, found 2"),
        (BBox(), encode_example({"x": np.zeros(3, np.float32)}), "expected values of shape (4,), found 3 values"),
        (Image(shape=(2, None, 3)), _IMAGE, "expected shape (2, None, 3), found an image of 4 x 4"),
    ],
)
def test_records_of_another_dtype_shape_or_length_are_damage_at_every_door(
    catalog: registry.Catalog, tmp_path: Path, feature: Any, record: bytes, problem: str
) -> None:
    folder = prepare(tmp_path / "x/1.0.0", splits={"train": [record]}, features=FeaturesDict({"x": feature}), name="x")
    message = f"x-train.tfrecord-00000-of-00001: record 0: feature 'x': {problem}"
    error = catalog.import_tfds(folder)[0].error
    assert error.message == message
    for publish in (lambda: catalog.add(folder, "y", in_place=True), lambda: catalog.publish(folder)):
        with pytest.raises(CorruptExampleError) as caught:
            publish()
        assert caught.value.message == message
    catalog.import_tfds(folder, trust_lengths=True)
    assert [one.problem for one in catalog.dataset("x").verify(deep=True).faults] == [message]
    with pytest.raises(CorruptExampleError):
        slim.Dataset.from_version(catalog.dataset("x"), "train").validate(deep=True)


def test_nan_is_outside_every_box_and_no_bound_as_in_tfds(catalog: registry.Catalog, tmp_path: Path) -> None:
    """TFDS refuses a box unless each coordinate is in 0..1, and never compares values with the bounds of a tensor."""
    features = FeaturesDict({"box": BBox(), "age": Tensor(shape=(), dtype="float32", minimum=0, maximum=9)})
    loose = codec_of(FeaturesDict({"box": Tensor(shape=(4,), dtype="float32"), "age": "float32"}))
    records = [loose.encode({"box": [0, 0, 1, 1], "age": np.nan}), loose.encode({"box": [0, np.nan, 1, 1], "age": 3})]
    folder = prepare(tmp_path / "tfds/pets/1.0.0", splits={"train": records}, features=features, name="pets")
    with pytest.warns(ValuesOutsideWarning) as warned:
        report = catalog.import_tfds(folder)
    assert len(messages(warned)) == 1
    assert [(one.feature, one.first_record, one.num_records) for one in report[0].outside] == [("box", 1, 1)]
    assert np.isnan(codec_of(features).decode(codec_of(features).encode({"box": [0, 0, 1, 1], "age": np.nan}))["age"])
    with pytest.raises(FeatureError, match=r"expected relative coordinates in 0\.\.1"):
        codec_of(features).encode({"box": [0, np.nan, 1, 1], "age": 3})


@pytest.mark.parametrize("encoding_format", ["jpeg", "png", None])
def test_the_format_of_image_files_is_no_limit_as_in_tfds(
    catalog: registry.Catalog, tmp_path: Path, encoding_format: str | None
) -> None:
    """TFDS stores files as they are, whatever ``encoding_format`` says: its own data has both formats in one column."""
    features = FeaturesDict({"image": Image(shape=(None, None, 3), encoding_format=encoding_format)})
    pixels = np.full((8, 8, 3), 200, np.uint8)
    encode = {one: codec_of(FeaturesDict({"image": Image(encoding_format=one)})).encode for one in ("jpeg", "png")}
    records = [encode[one]({"image": pixels}) for one in ("jpeg", "png")]
    folder = prepare(tmp_path / "tfds/pets/1.0.0", splits={"train": records}, features=features, name="pets")
    assert catalog.import_tfds(folder)[0].outside == ()
    verified = catalog.dataset("pets").verify(deep=True)
    assert (verified.outside, verified.faults) == ((), ())
    for example in catalog.dataset("pets").read("train"):
        assert np.abs(example["image"].astype(int) - pixels).max() <= 2
