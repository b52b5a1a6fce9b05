"""Datasets of Hugging Face, in memory and saved: values, types, splits and class names come in equal."""

from __future__ import annotations

import io
import json
import sys
import wave
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image as Pillow
from support.golden import check_errors

from registry.errors import SourceError, UsageError
from registry.features import Audio, ClassLabel, FeaturesDict, Image, Sequence, Tensor
from registry.intake.detect import open_source
from registry.intake.hugging_face_folders import is_saved_dataset, open_saved_dataset
from registry.intake.listing import list_files
from registry.intake.objects import open_object
from registry.intake.options import AddOptions
from registry.intake.source import Source
from registry.shards.arrow_values import import_pyarrow

GOLDEN = Path(__file__).with_name("golden")


@pytest.fixture(scope="module")
def hf() -> Any:
    """The package, which takes 1.4 s to import: only in the process that runs these tests."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    return datasets


def png(value: int) -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(np.full((2, 2, 3), value, np.uint8)).save(file, "PNG")
    return file.getvalue()


def wav() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(b"\0\1" * 10)
    return file.getvalue()


@pytest.fixture(scope="module")
def dataset(hf: Any) -> Any:
    features = hf.Features(
        {
            "text": hf.Value("string"),
            "label": hf.ClassLabel(names=["cat", "dog"]),
            "image": hf.Image(),
            "pages": hf.List(hf.Image()),
            "matrix": hf.Array2D((2, 2), "uint8"),
            "numbers": hf.List(hf.Value("int16")),
            "box": {"x": hf.Value("float32"), "kind": hf.ClassLabel(names=["a", "b"])},
            "when": hf.Value("timestamp[s, tz=UTC]"),
        }
    )
    rows = [
        {
            "text": f"row {i}" if i else None,
            "label": i % 2,
            "image": {"bytes": png(i), "path": None},
            "pages": [{"bytes": png(i), "path": None}] * i,
            "matrix": [[i, 1], [2, 3]],
            "numbers": [i] * i,
            "box": {"x": i / 2, "kind": 1},
            "when": 1_700_000_000 + i,
        }
        for i in range(5)
    ]
    info = hf.DatasetInfo(features=features, license="mit", citation="@misc{x}", description="Five rows.")
    table = hf.Dataset.from_list(rows, features=features).data.table
    return hf.Dataset(table, info=info, split=hf.Split.TRAIN)


HINTS = {
    "label": ClassLabel(names=["cat", "dog"]),
    "image": Image(shape=(None, None, None)),
    "pages": Sequence(Image(shape=(None, None, None))),
    "matrix": Tensor(shape=(2, 2), dtype="uint8"),
    "box": FeaturesDict({"x": "float32", "kind": ClassLabel(names=["a", "b"])}),
}


def rows_of(source: Source | None, split: str) -> list[dict[str, Any]]:
    return [
        row for part in source.parts if part.split == split for rows in part.read() for row in rows.table.to_pylist()
    ]


def want(dataset: Any) -> list[dict[str, Any]]:
    rows = dataset.with_format("arrow")[:].to_pylist()
    return [row | {"image": row["image"]["bytes"], "pages": [page["bytes"] for page in row["pages"]]} for row in rows]


def test_a_dataset_comes_in_equal_with_its_features_and_metadata(hf: Any, dataset: Any) -> None:
    source = open_object(dataset)
    assert (source.kind, source.summary) == ("hugging_face", "Hugging Face Dataset: 5 rows, 8 columns")
    assert (source.splits, source.split_reason) == (("train",), "the split that the dataset names")
    assert source.hints == HINTS
    assert (source.metadata.license, source.metadata.description) == ("mit", "Five rows.")
    assert rows_of(source, "train") == want(dataset)
    shuffled = dataset.shuffle(seed=1)
    assert rows_of(open_object(shuffled), "train") == want(shuffled) != want(dataset)
    transformed = dataset.with_transform(lambda batch: {"other": [1] * len(batch["text"])})
    assert rows_of(open_object(transformed), "train") == want(dataset)


def test_a_dict_of_datasets_is_splits(hf: Any, dataset: Any) -> None:
    both = hf.DatasetDict({"train": dataset, "test": dataset.select([1, 3])})
    source = open_object(both)
    assert source.splits == ("train", "test")
    assert rows_of(source, "test") == want(dataset.select([1, 3]))
    streams = hf.IterableDatasetDict({"train": dataset.to_iterable_dataset(), "test": dataset.to_iterable_dataset()})
    source = open_object(streams)
    assert source.hints == HINTS
    assert rows_of(source, "test") == want(dataset)


def numbers() -> Iterator[dict[str, Any]]:
    yield {"x": 1}
    yield {"x": 2, "y": "late"}
    raise ZeroDivisionError("no luck")


def test_an_iterable_dataset_may_lack_features_and_names_the_row_at_which_it_fails(hf: Any) -> None:
    source = open_object(hf.IterableDataset.from_generator(numbers))
    assert source.may_lack_columns
    with pytest.raises(SourceError) as caught:
        rows_of(source, "train")
    assert str(caught.value) == "the Hugging Face IterableDataset raised ZeroDivisionError after row 0: no luck"


def test_files_that_are_stored_as_paths_are_read_from_memory_only(hf: Any, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav())
    given = hf.Dataset.from_dict({"sound": [str(tmp_path / "a.wav"), None]}).cast_column("sound", hf.Audio())
    source = open_object(given)
    assert rows_of(source, "train") == [{"sound": wav()}, {"sound": None}]
    assert source.hints == {"sound": Audio(shape=(None,), dtype="int32", sample_rate=8000, lazy_decode=True)}
    missing = hf.Dataset.from_dict({"sound": ["/missing.wav"]}).cast_column("sound", hf.Audio())
    with pytest.raises(SourceError) as caught:
        open_object(missing)
    assert str(caught.value) == "column 'sound': the file /missing.wav cannot be read: No such file or directory"


def test_a_saved_dict_comes_in_equal(hf: Any, dataset: Any, tmp_path: Path) -> None:
    hf.DatasetDict({"train": dataset, "test": dataset.select([4])}).save_to_disk(
        tmp_path, num_shards={"train": 2, "test": 1}
    )
    files = list_files(tmp_path)
    assert is_saved_dataset(set(files.names))
    source = open_saved_dataset(files, AddOptions())
    assert source.summary == "Hugging Face dataset: 2 splits, 3 Arrow files"
    assert source.splits == ("train", "test")
    assert source.hints == HINTS
    assert (source.metadata.license, source.metadata.citation) == ("mit", "@misc{x}")
    assert (rows_of(source, "train"), rows_of(source, "test")) == (want(dataset), want(dataset.select([4])))
    assert {(use.role, use.num_files) for use in source.files} == {("records", 1), ("metadata", 1)}
    assert sum(use.num_files for use in source.files) == len(files.names)


def test_a_saved_split_has_the_name_it_was_saved_with(hf: Any, dataset: Any, tmp_path: Path) -> None:
    hf.Dataset(dataset.data.table, info=dataset.info, split=hf.Split.TEST).save_to_disk(tmp_path)
    source = open_saved_dataset(list_files(tmp_path), AddOptions())
    assert source.splits == ("test",)
    assert rows_of(source, "test") == want(dataset)
    (tmp_path / "cache-1.arrow").write_bytes(b"")
    source = open_saved_dataset(list_files(tmp_path), AddOptions())
    assert [(use.name, use.reason) for use in source.files if use.role == "skipped"] == [
        ("cache-1.arrow", "not listed in state.json")
    ]


def test_a_saved_split_may_be_empty(hf: Any, dataset: Any, tmp_path: Path) -> None:
    both = {"train": dataset, "test": dataset.select([])}
    hf.DatasetDict(both).save_to_disk(tmp_path / "none", num_shards={"train": 1, "test": 0})
    hf.DatasetDict(both).save_to_disk(tmp_path / "one", num_shards={"train": 1, "test": 1})
    for folder in ("none", "one"):
        source = open_saved_dataset(list_files(tmp_path / folder), AddOptions())
        assert source.splits == ("train",)
        assert rows_of(source, "train") == want(dataset)
        assert sum(use.num_files for use in source.files) == len(list_files(tmp_path / folder).names)


def test_a_saved_dataset_has_the_order_and_the_classes_that_its_json_gives(hf: Any, tmp_path: Path) -> None:
    features = hf.Features({"x": hf.Value("int64"), "y": hf.ClassLabel(names=["a", "b"])})
    data = hf.Dataset.from_dict({"x": [1, 2], "y": [0, 1]}, features=features)
    hf.DatasetDict({"train": data, "test": data}).save_to_disk(tmp_path, num_shards={"train": 2, "test": 1})
    state = json.loads((tmp_path / "train/state.json").read_text())
    state["_data_files"].reverse()
    (tmp_path / "train/state.json").write_text(json.dumps(state))
    for split in ("train", "test"):
        info = tmp_path / split / "dataset_info.json"
        info.write_text(info.read_text().replace('"a"', '"cat"'))
        if split == "train":
            with pytest.raises(SourceError, match="the features of the split 'test' differ from those of 'train'"):
                open_saved_dataset(list_files(tmp_path), AddOptions())
    source = open_saved_dataset(list_files(tmp_path), AddOptions())
    assert rows_of(source, "train") == [{"x": 2, "y": 1}, {"x": 1, "y": 0}]
    assert source.hints == {"y": ClassLabel(names=["cat", "b"])}


def test_a_folder_of_tfds_is_not_a_saved_dataset() -> None:
    assert not is_saved_dataset({"dataset_info.json", "features.json", "mnist-train.tfrecord-00000-of-00001"})


def saved(folder: Path, **changes: Any) -> Path:
    state = {"_data_files": [{"filename": "data.arrow"}], "_split": "train"} | changes
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    (folder / "data.arrow").write_bytes(b"no stream")
    return folder


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    check_errors(
        GOLDEN / "intake_hugging_face" / "damaged_folders_are_refused.txt",
        (
            partial(lambda changes: open_saved_dataset(list_files(saved(tmp_path, **changes)), AddOptions()), changes)
            for changes in [
                {},
                {"_data_files": 1},
                {"_data_files": [{"filename": "../x.arrow"}]},
                {"_data_files": [{"filename": "b.arrow"}]},
                {"_data_files": []},
            ]
        ),
        folder=tmp_path,
    )


def test_globs_for_splits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        open_source(saved(tmp_path), AddOptions(splits={"train": "*"}))
    assert (caught.value.message, caught.value.hint) == (
        "files of the kind hugging_face cannot be read with these options: `splits`",
        "Leave them out. The source names its splits. To read its files by their names: kind=KIND",
    )


def test_a_path_in_a_saved_dataset_is_never_opened(tmp_path: Path) -> None:
    saved(tmp_path)
    described = json.dumps({"info": {"features": {"image": {"_type": "Image"}}}})
    table = pa.table({"image": [{"bytes": b"1", "path": "a.png"}, {"bytes": None, "path": "/etc/hostname"}]})
    table = table.replace_schema_metadata({"huggingface": described})
    with pa.ipc.new_stream(tmp_path / "data.arrow", table.schema) as writer:
        writer.write(table)
    with pytest.raises(SourceError) as caught:
        open_saved_dataset(list_files(tmp_path), AddOptions())
    assert str(caught.value) == "data.arrow: column 'image' has the path '/etc/hostname', but not the bytes of the file"


def test_pyarrow_comes_with_its_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """``import pyarrow`` alone leaves ``pyarrow.compute`` undefined, until some other package imports it."""
    monkeypatch.delattr(pa, "compute")
    monkeypatch.delitem(sys.modules, "pyarrow.compute")
    assert import_pyarrow().compute.sum(pa.array([1, 2])).as_py() == 3
    monkeypatch.delattr(pa, "compute")
    monkeypatch.delitem(sys.modules, "pyarrow.compute")
    assert import_pyarrow().compute.sum(pa.array([1, 2])).as_py() == 3


def test_options_for_csv_are_refused(hf: Any, tmp_path: Path) -> None:
    hf.Dataset.from_dict({"a": [1]}).save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(UsageError) as caught:
        open_saved_dataset(list_files(tmp_path / "saved"), AddOptions(nulls=("NA",)))
    assert caught.value.message == "files of the kind arrow cannot be read with these options: `nulls`"
