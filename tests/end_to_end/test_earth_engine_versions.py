"""A published version becomes files of Earth Engine again: its records, in their order, with the mixer it keeps."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from support import warm_python

import registry
from registry.builders import earth_engine
from registry.errors import AlreadyStoredError, CorruptRecordError, SplitNotFoundError, UsageError
from registry.storage import open_store
from registry.tfrecord import read_records

TRANSFORM = (30, 0, 500000, 0, -30, 4100000)


def records_of(folder: Path, names: tuple[str, ...]) -> list[bytes]:
    return [record for name in names for record in read_records(open_store(folder), name)]


def test_an_imported_export_is_exported_again(catalog: registry.Catalog, tmp_path: Path) -> None:
    bands = {"b": np.arange(35, dtype="uint8").reshape(5, 7), "a": np.arange(35, dtype="int16").reshape(5, 7)}
    given = earth_engine.export_image(
        bands,
        tmp_path / "in",
        "area",
        patch_dimensions=2,
        kernel_size=2,
        max_file_size=200,
        encoding="native",
        compressed=False,
        transform=TRANSFORM,
        crs="EPSG:32610",
    )
    assert len(given.filenames) == 3
    earth_engine.import_export(catalog, tmp_path / "in", split="train")
    (one,) = earth_engine.export_version(
        catalog.dataset("area"), tmp_path / "out", compressed=False, max_file_size=200, overwrite=False
    )
    assert (one.split, one.filenames[-1], one.mixer) == ("train", "train-00002.tfrecord", "train-mixer.json")
    assert (one.num_records, one.num_bytes) == (6, given.num_bytes)
    assert [(tmp_path / "out" / name).read_bytes() for name in one.filenames] == [
        (tmp_path / "in" / name).read_bytes() for name in given.filenames
    ]
    mixers = [json.loads(path.read_text()) for path in tmp_path.glob("*/*-mixer.json")]
    assert mixers[0] == mixers[1]


def test_an_imported_table_is_exported_again(catalog: registry.Catalog, tmp_path: Path) -> None:
    given = earth_engine.write_table([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], tmp_path / "in", "rows")
    earth_engine.import_export(catalog, tmp_path / "in", split="train")
    (one,) = earth_engine.export_version(catalog.dataset("rows"), tmp_path / "out")
    assert (one.filenames, one.mixer, one.num_records) == (("train.tfrecord.gz",), None, 2)
    assert (tmp_path / "out/train.tfrecord.gz").read_bytes() == (tmp_path / "in" / given.filename).read_bytes()


def test_splits_are_chosen_and_existing_files_are_kept(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.build("earth_patches")
    catalog.build("digits")
    dataset = catalog.dataset("earth_patches")
    reported: list[int] = []
    (one,) = earth_engine.export_version(dataset, tmp_path / "out", splits=["flower"], advance=reported.append)
    assert (one.split, sum(reported)) == ("flower", 260)
    assert records_of(tmp_path / "out", one.filenames) == list(map(bytes, dataset.read("flower").records()))
    with pytest.raises(AlreadyStoredError):
        earth_engine.export_version(dataset, tmp_path / "out", splits=["flower"])
    earth_engine.export_version(dataset, tmp_path / "out", splits=["flower"], overwrite=True)
    with pytest.raises(SplitNotFoundError):
        earth_engine.export_version(dataset, tmp_path / "out", splits=["chine"])
    with pytest.raises(UsageError) as caught:
        earth_engine.export_version(catalog.dataset("digits"), tmp_path / "out")
    assert caught.value.message == (
        "split train of digits:1.0.0 was not imported from Earth Engine: the version has no mixer for it"
    )


def test_every_split_is_an_export_of_its_own(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.build("earth_patches")
    dataset = catalog.dataset("earth_patches")
    exported = earth_engine.export_version(dataset, tmp_path / "out")
    assert [(one.split, one.mixer) for one in exported] == [
        ("china", "china-mixer.json"),
        ("flower", "flower-mixer.json"),
    ]
    for one in exported:
        assert records_of(tmp_path / "out", one.filenames) == list(map(bytes, dataset.read(one.split).records()))


def test_a_damaged_record_leaves_no_files(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.build("earth_patches")
    (shard,) = (tmp_path / "data").rglob("*china*")
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(CorruptRecordError):
        earth_engine.export_version(catalog.dataset("earth_patches"), tmp_path / "out", splits=["china"])
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


def test_the_command_says_what_it_wrote(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.build("earth_patches")
    command = [sys.executable, "-m", "registry", "export", "earth-engine", "earth_patches", "out", "--split", "china"]
    command += ["--catalog", str(tmp_path / "catalog.db"), "--data-dir", str(tmp_path / "data"), "--no-compress"]
    done = warm_python.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout == (
        "exported earth_patches:1.0.0: out\n  china: 260 records in 1 file and china-mixer.json, 1.2 MiB\n"
    )
    again = warm_python.run(
        [*command, "--overwrite", "--format", "json"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    found = json.loads(again.stdout)
    assert found["schema"] == "registry.export.earth-engine/1"
    assert found["data"]["splits"] == [
        {
            "split": "china",
            "filenames": ["china-00000.tfrecord"],
            "mixer": "china-mixer.json",
            "num_records": 260,
            "num_bytes": sum(path.stat().st_size for path in (tmp_path / "out").iterdir()),
        }
    ]


def test_files_of_many_records_are_exported_one_after_the_other(catalog: registry.Catalog, tmp_path: Path) -> None:
    bands = {"b": np.arange(144, dtype="uint8").reshape(12, 12)}
    given = earth_engine.export_image(
        bands, tmp_path / "in", "area", patch_dimensions=1, max_file_size=2000, transform=TRANSFORM, crs="EPSG:32610"
    )
    assert len(given.filenames) > 2
    assert min(given.records[:-1]) > 16  # the number of records read from one file before the next, in the usual order
    earth_engine.import_export(catalog, tmp_path / "in", split="train")
    (one,) = earth_engine.export_version(catalog.dataset("area"), tmp_path / "out")
    assert records_of(tmp_path / "out", one.filenames) == records_of(tmp_path / "in", given.filenames)
