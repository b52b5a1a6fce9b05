"""``add`` of TFRecord and ArrayRecord files that stay where they are: by a schema, or by the description of TFDS."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.golden import check_errors
from support.prepared_samples import animals, prepare

import registry
from registry.errors import CorruptRecordError, SourceError, UnusableRowsError, UsageError
from registry.publishing.proof import Prover
from registry.publishing.publish import Target
from registry.tfrecord import RecordWriter
from registry.wire import encode_example

GOLDEN = Path(__file__).with_name("golden")


SCHEMA = """\
columns:
  name: Text
  label: ClassLabel(cat, dog)
  size: float32
  image: skip
"""


def record(number: int) -> bytes:
    values = {
        "name": [f"animal {number}".encode()],
        "label": np.array([number % 2]),
        "size": np.array([number / 2], np.float32),
        "image/encoded": [b"\x89PNG\r\n\x1a\n"],
        "image/shape": np.array([8, 8, 1]),
    }
    return encode_example(values)


def write(path: Path, records: Sequence[bytes]) -> None:
    """Write a TFRecord file, or an ArrayRecord file if it is named so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if "array" in path.name:
        from array_record.python.array_record_module import ArrayRecordWriter

        writer = ArrayRecordWriter(str(path), "group_size:1")
        for one in records:
            writer.write(one)
        writer.close()
        return
    with path.open("wb") as file:
        frames = RecordWriter(file)
        for one in records:
            frames.write(one)


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "schema.yaml"
    path.write_text(SCHEMA)
    return path


def test_files_are_verified_and_folded_once_before_their_number_is_chosen(
    catalog: registry.Catalog, tmp_path: Path, schema: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for owner, name in ((Prover, "fingerprint"), (Target, "verify")):
        call = getattr(owner, name)

        def counted(*args: Any, _call: Any = call, _name: str = name, **options: Any) -> Any:
            calls.append(_name)
            return _call(*args, **options)

        monkeypatch.setattr(owner, name, counted)
    write(tmp_path / "shards" / "my-train.tfrecord", [record(number) for number in range(5)])
    report = catalog.add(tmp_path / "shards", "pets", in_place=True, schema=schema)
    assert (report.num_examples, sorted(calls)) == (5, ["fingerprint", "verify"])


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_the_schema_describes_files_that_stay_and_the_proof_numbers_them(
    catalog: registry.Catalog, tmp_path: Path, schema: Path, file_format: str
) -> None:
    folder = tmp_path / "shards"
    for index in (0, 1):
        shard = [record(number) for number in range(index * 5, index * 5 + 5)]
        write(folder / f"my-train.{file_format}-0000{index}-of-00002", shard)
    write(folder / f"my-test.{file_format}", [record(number) for number in range(3)])
    (folder / "notes.txt").write_text("not records")

    def add(**options: Any) -> tuple[str, str]:
        report = catalog.add(folder, "pets", in_place=True, schema=schema, **options)
        return str(report.reference), report.outcome

    assert add(dry_run=True) == ("pets:1.0.0", "would_publish")
    assert add() == ("pets:1.0.0", "published")
    dataset = catalog.dataset("pets")
    assert [one["name"] for one in dataset.read("train")] == [f"animal {n}".encode() for n in range(10)]
    assert dict(next(iter(dataset.read("test")))) == {"name": b"animal 0", "label": 0, "size": 0.0}
    assert dataset.verify(deep=True).faults == ()
    assert not list((tmp_path / "data").rglob("*record*"))
    report = catalog.add(folder, "pets", in_place=True, schema=schema)
    assert (str(report.reference), report.outcome) == ("pets:1.0.0", "unchanged")
    assert [(one.name, one.reason) for one in report.files if one.role == "skipped"] == [
        ("notes.txt", "not a file of records by its name")
    ]
    noun = {"tfrecord": "TFRecord", "array_record": "ArrayRecord"}[file_format]
    assert report.plan.source.summary == f"3 {noun} files, which stay where they are"

    schema.write_text(SCHEMA.replace("image: skip", "image:\n    fields:\n      encoded: bytes\n      shape: int64[3]"))
    report = catalog.add(folder, "pets", in_place=True, schema=schema)
    assert (str(report.reference), report.outcome) == ("pets:1.1.0", "published"), "a new column of the same records"
    assert report.publication.notes == ()
    assert catalog.dataset("pets").verify(deep=True).faults == ()
    write(folder / f"my-test.{file_format}", [record(number) for number in range(4)])
    report = catalog.add(folder, "pets", in_place=True, schema=schema)
    assert (str(report.reference), report.outcome) == ("pets:2.0.0", "published")
    assert report.publication.notes == tuple(
        f"pets:{one} was published from the same files, which have changed since, so it can no longer be read"
        for one in ("1.0.0", "1.1.0")
    )


def test_numbered_files_in_folders_of_splits_are_shards(
    catalog: registry.Catalog, tmp_path: Path, schema: Path
) -> None:
    for name, numbers in {"train/00000": [1, 2], "train/00001": [3], "val/00000": [4]}.items():
        write(tmp_path / f"shards/{name}.tfrecord", [record(number) for number in numbers])
    report = catalog.add(tmp_path / "shards", in_place=True, schema=schema)
    assert dict(report.splits) == {"train": 3, "validation": 1}
    assert [one["name"] for one in catalog.dataset("shards").read("train")] == [b"animal 1", b"animal 2", b"animal 3"]


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("is_file", [True, False])
def test_without_a_schema_the_error_proposes_one(
    catalog: registry.Catalog, tmp_path: Path, in_place: bool, is_file: bool
) -> None:
    folder = tmp_path / "shards"
    write(folder / "train.tfrecord", [record(1)])
    (folder / "labels.txt").write_text("cat\ndog\n")
    with pytest.raises(SourceError if not (in_place and is_file) else UsageError) as caught:
        catalog.add(folder / "train.tfrecord" if is_file else folder, "pets", in_place=in_place)
    if in_place and is_file:
        assert "files that are read in place must be in a folder" in caught.value.message
        return
    assert caught.value.message == f"{folder}: TFRecord files do not describe their records"
    told, _, proposal = (caught.value.hint or "").partition("correct the types:\n")
    assert f"registry add {folder} --in-place --schema schema.yaml\n" in told
    assert proposal == (
        "columns:\n  image:\n    fields:\n      encoded: Image\n      shape: int64[]\n"
        "  label: int64\n  name: Text\n  size: float32"
    )
    (tmp_path / "schema.yaml").write_text(proposal.replace("Image", "bytes"))
    assert catalog.add(folder, "pets", in_place=True, schema=tmp_path / "schema.yaml").outcome == "published"


def test_every_record_is_compared_with_the_schema(catalog: registry.Catalog, tmp_path: Path, schema: Path) -> None:
    other = encode_example({"name": [b"x"], "label": [b"cat"], "size": np.array([1], np.float32)})
    write(tmp_path / "shards/train.tfrecord", [*[record(n) for n in range(3000)], other, record(1), other])
    with pytest.raises(UnusableRowsError) as caught:
        catalog.add(tmp_path / "shards", in_place=True, schema=schema)
    assert caught.value.message == (
        "2 records do not match the schema\n"
        "  train.tfrecord: record 3000: feature 'label': expected int64 values, found bytes\n"
        "  train.tfrecord: record 3002: feature 'label': expected int64 values, found bytes"
    )
    assert caught.value.details["num_bad"] == 2


def test_a_schema_that_does_not_fit_is_refused(catalog: registry.Catalog, tmp_path: Path) -> None:
    write(tmp_path / "shards/train.tfrecord", [record(1)])
    schemas = [
        {"name": "Text", "label": "int64", "image": "skip"},
        {"name": "Text", "label": "ClassLabel", "size": "float32", "image": "skip"},
        *({"name": "skip"}, {"name": "Text", "label": "int64", "size": "float32", "image": "skip", "more": "int64"}),
    ]
    calls = (partial(catalog.add, tmp_path / "shards", in_place=True, features=schema) for schema in schemas)
    check_errors(GOLDEN / "add_in_place.txt", calls, folder=tmp_path)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["x-00001-of-00002.tfrecord"], "; 'x-00000-of-00002.tfrecord' is missing: 'x-00001-of-00002.tfrecord'"),
        (["a.tfrecord", "b.tfrecord"], ": 'a.tfrecord', 'b.tfrecord'"),
        (["a{1}.tfrecord"], ": 'a{1}.tfrecord'"),
    ],
)
def test_names_that_are_not_those_of_shards_are_refused(
    catalog: registry.Catalog, tmp_path: Path, schema: Path, names: list[str], message: str
) -> None:
    for name in names:
        write(tmp_path / "shards" / name, [record(1)])
    with pytest.raises(SourceError) as caught:
        catalog.add(tmp_path / "shards", in_place=True, schema=schema)
    assert caught.value.message == (
        f"the files of the split 'train' are not named like the shards of one split{message}"
    )


def test_damaged_and_empty_files_and_other_records_are_refused(
    catalog: registry.Catalog, tmp_path: Path, schema: Path
) -> None:
    path = tmp_path / "shards/train.tfrecord"
    write(path, [])
    with pytest.raises(SourceError, match="the split 'train' has no records"):
        catalog.add(path.parent, in_place=True, schema=schema)
    write(path, [b"these are not examples"])
    with pytest.raises(SourceError, match=r"^train\.tfrecord: the records are not tf\.train\.Examples"):
        catalog.add(path.parent, in_place=True, schema=schema)
    path.write_bytes(b"garbage" * 10)
    with pytest.raises(CorruptRecordError):
        catalog.add(path.parent, in_place=True, schema=schema)
    write(path.with_name("test.array_record"), [record(1)])
    with pytest.raises(SourceError, match="contains both TFRecord and ArrayRecord files"):
        catalog.add(path.parent, in_place=True, schema=schema)


def test_a_folder_of_tfds_is_described_by_its_own_files(catalog: registry.Catalog, tmp_path: Path) -> None:
    folder = prepare(tmp_path / "tfds/animals/3.0.1", "3.0.1", splits={"train": animals(8)}, shards=2)
    report = catalog.add(folder, in_place=True)
    assert (str(report.reference), report.outcome, dict(report.splits)) == (
        "animals:1.0.0",
        "published",
        {"train": 8},
    )
    assert [(one.name, type(one.feature).__name__) for one in report.plan.schema.columns] == [
        ("age", "Tensor"),
        ("kind", "ClassLabel"),
        ("name", "Text"),
    ]
    added = catalog.dataset("animals")
    assert (added.slicing, added.metadata.description) == ("tfds-4", "Animals.")
    catalog.import_tfds(folder, name="imported")
    assert added.features == catalog.dataset("imported").features
    assert catalog.add(folder, in_place=True).outcome == "unchanged"
    assert str(catalog.add(folder, "beasts", in_place=True).reference) == "beasts:1.0.0"
    with pytest.raises(UsageError, match="cannot be changed by these options: `features`"):
        catalog.add(folder, in_place=True, features={"age": "int8"})
    with pytest.raises(SourceError, match="was prepared by TensorFlow Datasets"):
        catalog.add(tmp_path / "tfds", in_place=True)
    shutil.rmtree(folder)
    prepare(folder, "3.0.1", splits={"train": animals(9)}, shards=2)
    assert str(catalog.add(folder, in_place=True).reference) == "animals:2.0.0"


def test_other_files_cannot_stay(catalog: registry.Catalog, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/a.csv").write_text("a\n1\n")
    with pytest.raises(SourceError) as caught:
        catalog.add(tmp_path / "tables", in_place=True)
    assert caught.value.message == (
        f"{tmp_path}/tables contains no files that can be read in place: Parquet, TFRecord or ArrayRecord"
    )
