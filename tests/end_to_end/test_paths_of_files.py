"""The name of each file is a column ``path``: a picture can be traced, and a changed file has a name in a diff."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from registry.api import Catalog
from registry.cli.main import run
from registry.errors import SourceError, UsageError
from registry.intake.detect import open_source
from registry.intake.options import AddOptions
from registry.intake.schema import describe_type


def png(value: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((2, 3), value, np.uint8)).save(file, "PNG")
    return file.getvalue()


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def write_tar(path: Path, files: dict[str, bytes], prefix: str = "") -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def paths_of(catalog: Catalog, name: str) -> list[str]:
    dataset = catalog.dataset(name)
    return sorted(row["path"].decode() for split in dataset.splits for row in dataset.read(split))


PETS = {"train/cat/1.png": png(1), "train/dog/2.png": png(2), "test/cat/1.png": png(3)}
KINDS: dict[str, dict[str, bytes]] = {
    "images": PETS,
    "text": {name.replace("png", "txt"): name.encode() for name in PETS},
    "videos": {name.replace("png", "mp4"): b"\0\0\0\x18ftypmp42" + name.encode() for name in PETS},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["folder", "zip"])
def test_each_record_has_the_name_of_its_file(tmp_path: Path, catalog: Catalog, kind: str, form: str) -> None:
    source = write(tmp_path / "pets", KINDS[kind])
    if form == "zip":
        import shutil

        source = Path(shutil.make_archive(str(tmp_path / "pets"), "zip", source))
    report = catalog.add(source, "pets")
    assert report.plan.source.kind == kind
    assert list(report.plan.schema.features())[-2:] == ["label", "path"]
    words = {"images": "Image[2, 3, 1]", "text": "Text", "videos": "bytes"}
    assert describe_type(report.plan.schema.columns[0]) == words[kind]
    assert paths_of(catalog, "pets") == sorted(KINDS[kind])
    assert catalog.add(source, "pets").outcome == "unchanged"


def test_the_samples_of_a_webdataset_have_their_keys(tmp_path: Path, catalog: Catalog) -> None:
    files = {"a/1.txt": b"one", "a/1.json": b'{"path": "x", "n": 1}', "a/2.txt": b"two", "a/2.json": b'{"n": 2}'}
    catalog.add(write_tar(tmp_path / "s.tar", files), "samples")
    assert paths_of(catalog, "samples") == ["a/1", "a/2"]
    assert catalog.dataset("samples").features.keys() == {"txt", "n", "json.path", "path"}
    assert catalog.add(write_tar(tmp_path / "s.tar", files, "./"), "samples").outcome == "unchanged"


def test_a_column_of_metadata_stays_what_it_is(tmp_path: Path, catalog: Catalog) -> None:
    files = {"1.png": png(1), "metadata.csv": b"file_name,path\n1.png,somewhere\n"}
    catalog.add(write(tmp_path / "pets", files), "pets")
    assert paths_of(catalog, "pets") == ["somewhere"]


def test_the_version_before_decides_unless_the_caller_does(tmp_path: Path, catalog: Catalog) -> None:
    source = write(tmp_path / "pets", PETS)
    assert "path" not in catalog.add(source, "pets", paths=False).plan.schema.features()
    assert catalog.add(source, "pets").outcome == "unchanged"
    report = catalog.add(source, "pets", paths=True)
    assert (str(report.reference), [one.text for one in report.changes.changes]) == (
        "pets:1.1.0", ["feature path is new (Text)"]
    )  # fmt: skip
    assert catalog.add(source, "pets").outcome == "unchanged"
    assert str(catalog.add(source, "pets", paths=False).reference) == "pets:2.0.0"


def test_a_diff_names_the_file_that_changed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = ["--catalog", str(tmp_path / "catalog.db"), "--data-dir", str(tmp_path / "data")]
    source = write(tmp_path / "pets", PETS)
    assert run(["add", str(source), *options]) == 0
    write(tmp_path / "pets", {"train/dog/2.png": png(9), "train/dog/3.png": png(4)})
    assert run(["add", str(source), *options]) == 0
    assert run(["diff", "pets:1.0.0", "pets:2.0.0", *options]) == 0
    shown = capfd.readouterr().out
    assert "record 0 with path 'train/dog/2.png': image is " in shown
    assert "record 1 with path 'train/dog/3.png' is new: image " in shown


@pytest.mark.parametrize("options", [{}, {"paths": False}])
def test_equal_files_of_two_splits_are_found_whatever_their_names_are(
    tmp_path: Path, catalog: Catalog, options: dict[str, Any]
) -> None:
    files = {"train/cat/1.png": png(1), "train/cat/2.png": png(2), "test/cat/9.png": png(2)}
    report = catalog.add(write(tmp_path / "pets", files), "pets", **options)
    assert len(report.overlap.shared) == 1
    assert not catalog.dataset("pets").overlap(["train", "test"]).is_disjoint
    (tmp_path / "pets/test/cat/9.png").write_bytes(png(3))
    assert catalog.add(tmp_path / "pets", "pets").overlap is None
    assert catalog.dataset("pets").overlap(["train", "test"]).is_disjoint


def test_folders_of_a_dict_of_splits_have_paths_too(tmp_path: Path, catalog: Catalog) -> None:
    write(tmp_path, {"a/1.png": png(1), "a/2.png": png(2), "b/9.png": png(2)})
    given = {"train": tmp_path / "a", "test": tmp_path / "b"}
    report = catalog.add(given, "pets")
    assert paths_of(catalog, "pets") == ["1.png", "2.png", "9.png"]
    assert report.overlap is not None
    catalog.add(given, "others", features={"path": "skip"})
    assert "path" not in catalog.add(given, "others").plan.schema.features()


TABLES: dict[str, dict[str, bytes]] = {
    "csv": {"a/sums.csv": b"n\n1\n2\n", "b/logic.csv": b"n\n1\n"},
    "json": {"a/sums.json": b'[{"n": 1}, {"n": 2}]', "b/logic.json": b'[{"n": 1}]'},
    "lines": {"a/sums.txt": b"1\n2\n", "b/logic.txt": b"1\n"},
}


@pytest.mark.parametrize("kind", TABLES)
def test_the_rows_of_tables_have_the_names_of_their_files_on_request(
    tmp_path: Path, catalog: Catalog, kind: str
) -> None:
    source = write(tmp_path / "tasks", TABLES[kind])
    report = catalog.add(source, "plain", kind=kind)
    assert "path" not in report.plan.schema.features()
    assert report.plan.source.split_reason.endswith("; to store the file of each row: paths=True")
    catalog.add(source, "tasks", kind=kind, paths=True)
    first, second = sorted(TABLES[kind])
    assert paths_of(catalog, "tasks") == [first, first, second]
    assert catalog.add(source, "tasks", kind=kind).outcome == "unchanged"
    report = catalog.add(source, "tasks", kind=kind, paths=False)
    assert "path" not in report.plan.schema.features()
    assert catalog.add(source, "tasks", kind=kind).outcome == "unchanged"


def test_remembered_paths_have_no_effect_on_files_that_have_their_own_or_cannot_have_any(
    tmp_path: Path, catalog: Catalog
) -> None:
    catalog.add(write(tmp_path / "tasks", TABLES["csv"]), "tasks", paths=True)
    catalog.dataset("tasks").export("csv", tmp_path / "exported")
    assert catalog.add(tmp_path / "exported", "tasks").outcome == "unchanged"
    assert catalog.add({"train": tmp_path / "exported" / "train.csv"}, "tasks").outcome == "unchanged"
    np.savez(tmp_path / "n.npz", n=np.arange(3))
    assert list(catalog.add(tmp_path / "n.npz", "tasks").plan.schema.features()) == ["n"]


def test_the_names_of_files_are_offered_unless_they_are_parts_of_one_table(tmp_path: Path) -> None:
    parts = ["train.csv test.csv", "data-00000-of-00002.csv data-00001-of-00002.csv", "2024-01.csv 2024-02.csv"]
    parts.append("year=2024/a.csv year=2025/b.csv")
    others = ["en/train.csv de/train.csv", "train.de.csv train.en.csv", "rows.csv rows.tsv"]
    for place, names in enumerate([*parts, *others]):
        folder = write(tmp_path / str(place), dict.fromkeys(names.split(), b"n\n1\n"))
        assert open_source(folder).split_reason.endswith("paths=True") == (names in others), names
        assert not open_source(folder, AddOptions(paths=False)).split_reason.endswith("paths=True")


def test_a_dict_of_tables_has_no_paths_unless_they_were_requested(tmp_path: Path, catalog: Catalog) -> None:
    write(tmp_path, TABLES["csv"])
    given = {"train": tmp_path / "a", "test": tmp_path / "b"}
    assert list(catalog.add(given, "tasks").plan.schema.features()) == ["n"]


def test_paths_that_cannot_be_stored_are_refused(tmp_path: Path, catalog: Catalog) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    with pytest.raises(UsageError, match=r"^files of the kind arrays cannot be read with these options: `paths`"):
        catalog.add(tmp_path / "x.npy", "points", paths=True)
    assert catalog.add(tmp_path / "x.npy", "points", paths=False).plan.source.path_column == ""
    pq.write_table(pa.table({"n": [1]}), tmp_path / "n.parquet")
    with pytest.raises(UsageError, match=r"^files that are read in place cannot be changed by these options: `paths`"):
        catalog.add(tmp_path / "n.parquet", "numbers", paths=True, in_place=True)
    own = write(tmp_path / "own", {"x.csv": b"path,n\n/home,1\n"})
    with pytest.raises(SourceError) as caught:
        catalog.add(own, "own", paths=True)
    assert (caught.value.message, caught.value.hint) == (
        "x.csv: paths=True stores the name of the file in the column 'path', but the column 'path' of the file has "
        "'/home', in line 2 or later",
        "Rename the column in the file, or leave out paths=True.",
    )
    assert paths_of(catalog, catalog.add(own, "own").reference.dataset) == ["/home"]


def test_an_exported_folder_is_added_as_the_same_classes(tmp_path: Path, catalog: Catalog) -> None:
    catalog.add(write(tmp_path / "pets", PETS), "pets")
    catalog.dataset("pets").export("imagefolder", tmp_path / "out")
    assert not list((tmp_path / "out").rglob("metadata.jsonl"))
    again = catalog.add(tmp_path / "out", "again").plan.schema.features()
    assert again == catalog.dataset("pets").features
    catalog.dataset("pets").export("webdataset", tmp_path / "tars")
    assert list(catalog.add(tmp_path / "tars", "tars").plan.schema.features()) == ["cls", "png", "path"]
