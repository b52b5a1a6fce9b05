"""The kind of a source: by names, by content, by force; mixtures, side files, archives, and folders of other tools."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import shlex
import sqlite3
import subprocess
import tarfile
import zipfile
from contextlib import closing
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.feature_strategies import wave_file

from registry.errors import NotStoredError, SourceError, UsageError
from registry.features import ClassLabel
from registry.images.png import encode_png
from registry.intake.detect import open_source
from registry.intake.kinds import KINDS, sniff_kind
from registry.intake.options import AddOptions
from registry.intake.source import Source

PNG = encode_png(np.zeros((2, 2, 3), np.uint8))
CSV = b"name,size\na,1\nb,2\n"


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def make_zip(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


def make_tar(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return file.getvalue()


def keys(source: Source) -> list[str]:
    return [key for part in source.parts for rows in part.read() for key in rows.keys or ()]


def account(source: Source) -> dict[str, tuple[str, str]]:
    return {use.name: (use.role, use.reason) for use in source.files}


def error_of(path: Path, kind: str | None = None) -> SourceError:
    with pytest.raises(SourceError) as caught:
        open_source(path, AddOptions(kind=kind))
    return caught.value


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"a.csv": CSV}, "csv"),
        ({"a.tsv.gz": gzip.compress(CSV.replace(b",", b"\t"))}, "csv"),
        ({"cat/1.png": PNG, "dog/2.PNG": PNG}, "images"),
        ({"1.wav": b"RIFF", "2.mp3": b""}, "audio"),
        ({"1.mp4": b""}, "videos"),
        ({"1.txt": b"", "2.md": b""}, "text"),
        ({"README.md": b""}, "text"),
        ({"1.tar": make_tar({"1.txt": b"", "1.cls": b"1"})}, "webdataset"),
        ({"download": CSV}, "csv"),
        ({"5f0a": PNG, "6f0b": PNG}, "images"),
    ],
)
def test_the_kind_is_detected(tmp_path: Path, files: dict[str, bytes], kind: str) -> None:
    source = open_source(write(tmp_path / "x", files))
    assert source.kind == kind
    assert sum(use.num_files for use in source.files) == len(files)
    assert {use.role for use in source.files} == {"records"}


def test_every_kind_has_a_reader() -> None:
    for kind in KINDS.values():
        module, _, name = kind.opener.partition(":")
        assert callable(getattr(import_module(f"registry.intake.{module}"), name))


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"PAR1", "parquet"),
        (b"ARROW1\0\0", "arrow"),
        (b"\x93NUMPY", "arrays"),
        (b"PK\x03\x04", "archive"),
        (make_tar({"a": b""}), "archive"),
        (gzip.compress(make_tar({"a": b""})), "archive"),
        (gzip.compress(CSV), "csv"),
        (bz2.compress(CSV), "csv"),
        (b'\n{"a": 1}', "json"),
        (b"fLaC", "audio"),
        (b"\x1a\x45\xdf\xa3", "videos"),
        (b"a sentence, of words\nanother", None),
        (b"\0\1\2", None),
        (b"\x1f\x8b", None),
        (b"", None),
    ],
)
def test_first_bytes(tmp_path: Path, content: bytes, kind: str | None) -> None:
    (tmp_path / "x").write_bytes(content)
    assert sniff_kind(tmp_path / "x") == kind


def test_side_files_are_accounted_for(tmp_path: Path) -> None:
    card = b"---\nlicense: mit\n---\n## Dataset Summary\n\nSome things.\n"
    files = {
        "README.md": card,
        "LICENSE": b"",
        "SHA256SUMS": b"",
        "notes.txt": b"",
        "a.csv": CSV,
        "x.bin": b"",
        ".x": b"",
    }
    source = open_source(write(tmp_path, files))
    assert source.kind == "csv"
    assert account(source) == {
        "a.csv": ("records", ""),
        "README.md": ("metadata", "license MIT, a description; no citation"),
        "LICENSE": ("skipped", "documentation"),
        "SHA256SUMS": ("skipped", "checksums"),
        "notes.txt": ("skipped", "a note"),
        "x.bin": ("skipped", "no known kind"),
        ".x": ("skipped", "a hidden file"),
    }
    assert source.metadata.license == "MIT"
    assert source.metadata.description == "Some things."


@pytest.mark.parametrize("table", [{"a.csv": b"file,label\ntexts/1.txt,x\n"}, {"a.jsonl": b'{"file": "1.txt"}\n'}])
def test_a_text_that_a_table_names_is_no_note(tmp_path: Path, table: dict[str, bytes]) -> None:
    error = error_of(write(tmp_path, {"texts/1.txt": b"one", **table}))
    assert error.message.startswith(f"{tmp_path} contains files of several kinds: 1 ")
    assert error.hint.endswith("write each text into a column of the table")


def test_a_text_with_the_name_of_an_image_is_no_note(tmp_path: Path) -> None:
    folder = write(tmp_path / "captions", {"a/1.png": PNG, "a/2.png": PNG, "a/1.txt": b"a cat", "notes.txt": b"x"})
    error = error_of(folder)
    assert str(error) == f"{folder} contains files of several kinds: 2 images, 2 text files"
    command = error.hint.partition("To have a/1.txt and a/1.png in one record, add a tar of the folder: ")[2]
    (tmp_path / "captions/notes.txt").unlink()
    (tmp_path / "captions/a/2.txt").write_bytes(b"a dog")
    subprocess.run(shlex.split(command.replace("NAME", f"{tmp_path}/out")), check=True)
    source = open_source(tmp_path / "out.tar")
    assert (source.kind, keys(source)) == ("webdataset", ["a/1", "a/2"])


def test_a_text_that_names_an_image_is_no_note(tmp_path: Path) -> None:
    files = {"Images/1.png": PNG, "captions.txt": b"image,caption\n1.png,A dog\n", "notes.txt": b"of 2024"}
    error = error_of(write(tmp_path, files))
    assert str(error) == f"{tmp_path} contains files of several kinds: 2 text files, 1 image"
    assert error.hint is not None
    assert error.hint.endswith(
        "If captions.txt describes the images, write it as metadata.csv, with a column file_name"
    )
    (tmp_path / "captions.txt").write_bytes(b"about 11.png and 1.pngs")
    assert account(open_source(tmp_path))["captions.txt"] == ("skipped", "a note")


def test_a_text_may_name_files_without_their_extensions(tmp_path: Path) -> None:
    sound = wave_file(np.zeros((9, 1), np.int16))
    files = {f"19/198/19-198-{number}.wav": sound for number in range(4)}
    source = open_source(write(tmp_path, files | {"about.txt": b"19 speakers, 4 of 2024"}))
    assert account(source)["about.txt"] == ("skipped", "a note")
    write(tmp_path, {"19/198/19-198.trans.txt": b"19-198-0 HELLO\n19-198-1 WORLD\n"})
    assert (error_of(tmp_path).hint or "").endswith(
        ". If 19-198.trans.txt describes the audio files, write it as metadata.csv, with a column file_name"
    )


def test_a_text_that_names_an_image_is_a_note_beside_metadata(tmp_path: Path) -> None:
    files = {"1.png": PNG, "metadata.csv": b"file_name,code\n1.png,7\n", "notes.txt": b"1.png is dark"}
    source = open_source(write(tmp_path, files))
    assert source.kind == "images"
    assert account(source)["notes.txt"] == ("skipped", "a note")


def test_many_texts_beside_images_say_how_to_have_both(tmp_path: Path) -> None:
    pairs = {f"images/{name}.png": PNG for name in range(5)} | {f"labels/{name}.txt": b"0 0.5" for name in range(5)}
    hint = error_of(write(tmp_path, pairs)).hint
    assert hint is not None
    assert hint.endswith(
        ". To have 0.txt and a file of the same name in one record, move them into one folder, and add a tar of it"
    )
    lists = {f"lists/{name}.txt": b"1\n2\n" for name in ("all", "first", "second", "third")}
    error = error_of(write(tmp_path / "others", {"images/1.png": PNG} | lists))
    assert error.hint == "Choose the records; the other files are skipped: kind='text' or kind='images'"


@pytest.mark.parametrize(
    "notes", [["NOTES.md"], ["about/README.md"], ["CONTRIBUTING.md", "tools/a.txt", "tools/b.txt"]]
)
def test_notes_about_files_of_unknown_kinds_are_no_records(tmp_path: Path, notes: list[str]) -> None:
    write(tmp_path, dict.fromkeys(notes, b"How to read the trees.") | {"LICENSE": b"MIT", "b.trees": b"(S (NP"})
    assert open_source(tmp_path).kind == "text"  # the texts are most of the bytes
    write(tmp_path, {"a.trees": b"(S (NP (D the) (N cat)) (VP (V sat)))" * 9})
    assert error_of(tmp_path).message == f"{tmp_path}: the kind of 'a.trees', 'b.trees' is unknown"
    assert open_source(tmp_path, AddOptions(kind="text")).kind == "text"
    write(tmp_path, {f"{number}.txt": b"one" for number in range(4)})
    assert open_source(tmp_path).kind == "text"


def test_the_hint_for_files_of_other_software_fits_all_of_them(tmp_path: Path) -> None:
    idx = write(tmp_path / "idx", {"t10k-images-idx3-ubyte.gz": b"\0\0\x08\3", "t10k-labels-idx1-ubyte": b"\0\0\x08\1"})
    assert error_of(idx).hint == "Read it in Python, and pass arrays: registry.add({'x': array}, 'NAME')"
    boxes = write(tmp_path / "boxes", {f"{number}.xml": b"<a/>" for number in range(4)})
    assert (error_of(boxes).hint or "").endswith(
        "Or read the files in Python, and pass rows: registry.add([{'id': 1}, {'id': 2}], 'NAME')"
    )


def test_yaml_html_and_files_of_r_say_how_to_add_them(tmp_path: Path) -> None:
    ways = {"a.yaml": "yaml.safe_load(open('", "a.html": "pandas.read_html('", "a.rda": "write.csv(FRAME, 'NAME.csv'"}
    for name, way in ways.items():
        folder = write(tmp_path / name, {name: b"- id: 1\n"})
        assert way in (error_of(folder).hint or "")
        write(folder, {"b.trees": b"(S (NP"})  # the others are of another kind
        assert (error_of(folder).hint or "").startswith("Name the kind: kind=KIND")


def test_pictures_and_their_masks_are_no_classes(tmp_path: Path) -> None:
    pairs = {f"{split}/{name}": PNG for split in ("train", "test") for name in ("images/1.png", "Masks/1.png")}
    error = error_of(write(tmp_path, pairs))
    assert error.message.endswith("have files of the same names, so that Masks is probably no class")
    (tmp_path / "train/images/2.png").write_bytes(PNG)  # a picture without a mask
    assert error_of(tmp_path).message == error.message
    (tmp_path / "train/Masks/3.png").write_bytes(PNG)
    assert open_source(tmp_path).hints["label"] == ClassLabel(names=["Masks", "images"])


@pytest.mark.parametrize("mask", ["1_mask", "1-Masks", "1.gt"])
def test_masks_are_recognized_by_the_end_of_their_names(tmp_path: Path, mask: str) -> None:
    error = error_of(write(tmp_path, {"images/1.png": PNG, f"masks/{mask}.png": PNG}))
    assert error.message.endswith("have files of the same names, so that masks is probably no class")


@pytest.mark.parametrize("target", ["{}annot", "{}_masks", "{}-GT"])
def test_a_folder_of_masks_may_be_named_after_the_folder_of_its_pictures(tmp_path: Path, target: str) -> None:
    names = {"roads": ("1", "2"), "parks": ("3", "4")}
    files = [
        f"{form.format(folder)}/{name}.png" for folder in names for name in names[folder] for form in ("{}", target)
    ]
    error = error_of(write(tmp_path, dict.fromkeys(files, PNG)))
    mask = target.format("parks")
    assert error.message == (
        f"{tmp_path}: the folders parks and {mask} have files of the same names, so that {mask} is probably no class"
    )
    (tmp_path / mask / "3.png").rename(tmp_path / mask / "5.png")
    (tmp_path / target.format("roads") / "1.png").rename(tmp_path / target.format("roads") / "6.png")
    label = open_source(tmp_path).hints["label"]
    assert label == ClassLabel(names=sorted(form.format(folder) for form in ("{}", target) for folder in names))


@pytest.mark.parametrize(
    ("name", "negation"), [("mask", "no mask"), ("Mask", "without-mask"), ("mask", "Not_Mask"), ("annot", "no annot")]
)
def test_a_folder_and_its_negation_are_classes(tmp_path: Path, name: str, negation: str) -> None:
    write(tmp_path, {f"{folder}/{file}.png": PNG for folder in (name, negation) for file in "12"})
    assert open_source(tmp_path).hints["label"] == ClassLabel(names=sorted([name, negation]))


TAR = "--sort=name -cf NAME.tar"


def test_an_image_and_its_description_become_a_record_of_a_tar(tmp_path: Path) -> None:
    hint = error_of(write(tmp_path, {"1.png": PNG, "1.json": b"{}", "2.png": PNG, "2.json": b"{}"})).hint
    assert hint is not None
    assert f". To have 1.json and 1.png in one record, add a tar of the folder: tar {TAR} -C {tmp_path} ." in hint


def test_files_of_one_name_in_a_tar_become_a_record(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for name in ("1.png", "1.txt", "2.png"):
            (tmp_path / name).write_bytes(PNG if name.endswith("png") else b"a cat")
            archive.add(tmp_path / name, name)
    hint = error_of(tmp_path / "x.tar").hint
    assert hint is not None
    assert hint.endswith(". To have 1.txt and 1.png in one record: kind='webdataset'")
    assert open_source(tmp_path / "x.tar", AddOptions(kind="webdataset")).summary.startswith("2 samples")


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d7a2146" * 8 + b"\nsize 12345\n"


@pytest.mark.parametrize("name", ["data.csv", "data.parquet", "a.txt", "cat/1.jpg"])
def test_a_pointer_of_git_lfs_is_no_data(tmp_path: Path, name: str) -> None:
    error = error_of(write(tmp_path, {name: POINTER, f"b{name}": POINTER}))
    assert (error.message, error.hint) == (
        f"{min(name, 'b' + name)} is a pointer of Git LFS, not the file itself",
        "Download the files of the repository: git lfs pull",
    )


def test_a_pointer_of_git_lfs_that_is_no_record_does_not_matter(tmp_path: Path) -> None:
    write(tmp_path, {"data.csv": CSV, "model.bin": POINTER})
    assert open_source(tmp_path).kind == "csv"
    write(tmp_path, {"logo.png": POINTER})
    assert open_source(tmp_path, AddOptions(kind="csv")).kind == "csv"


def test_a_text_about_git_lfs_is_data(tmp_path: Path) -> None:
    assert open_source(write(tmp_path, {"a.txt": POINTER[:100], "b.txt": POINTER + b"and so on" * 20})).kind == "text"


WEB_PAGE = "Check the URL, and whether it requires a login. If its first line is data: header=False"


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        (b"\n<!DOCTYPE html>\n<p>404</p>\n", "a web page", WEB_PAGE),
        (b"<html lang='en'>\n", "a web page", WEB_PAGE),
        (
            b"PK\3\4\n,\n",
            "a ZIP archive or an Excel file",
            "Rename it to .zip or .xlsx. To read Excel: registry.add(pandas.read_excel('a.csv'), 'NAME')",
        ),
    ],
)
def test_a_file_with_the_extension_of_a_csv_may_be_another(
    tmp_path: Path, content: bytes, message: str, hint: str
) -> None:
    error = error_of(write(tmp_path, {"a.csv": content}))
    assert (error.message, error.hint) == (f"a.csv is not a CSV file, but {message}", hint)


def test_a_csv_without_a_header_may_start_with_html(tmp_path: Path) -> None:
    write(tmp_path, {"a.csv": b"<html>a</html>,1\n<html>b</html>,2\n"})
    assert open_source(tmp_path, AddOptions(header=False)).kind == "csv"


def test_requested_classes_are_not_taken_for_masks(tmp_path: Path) -> None:
    write(tmp_path, {"shop/1.png": PNG, "target/1.png": PNG})
    assert error_of(tmp_path).message.endswith("so that target is probably no class")
    source = open_source(tmp_path, AddOptions(features={"label": "ClassLabel(shop, target)"}))
    assert source.hints["label"] == ClassLabel(names=["shop", "target"])


@pytest.mark.parametrize("prefix", ["", "scan."])
def test_names_without_extensions_are_compared_whole(tmp_path: Path, prefix: str) -> None:
    names = ("shop/16", "shop/17", "target/18", "target/19")
    files = {f"{folder}/{prefix}{name}": PNG for folder, name in (path.split("/") for path in names)}
    assert open_source(write(tmp_path, files)).hints["label"] == ClassLabel(names=["shop", "target"])


def test_a_mixture_is_an_error_and_a_forced_kind_resolves_it(tmp_path: Path) -> None:
    write(tmp_path, {"1.png": PNG, "2.png": PNG, "a.csv": CSV, "b.zip": b""})
    error = error_of(tmp_path)
    assert str(error) == f"{tmp_path} contains files of several kinds: 2 images, 1 CSV file, 1 archive"
    assert error.hint == (
        "Choose the records; the other files are skipped: kind='images' or kind='csv'. If a.csv describes the images, "
        "call it metadata.csv, with a column file_name"
    )
    source = open_source(tmp_path, AddOptions(kind="images"))
    assert keys(source) == ["1.png", "2.png"]
    assert account(source)["a.csv"] == ("skipped", "not images")
    assert account(source)["b.zip"] == ("skipped", "an archive beside other files")
    source = open_source(tmp_path, AddOptions(kind="csv"))
    assert account(source)["1.png"] == ("skipped", "not csv")


def test_archives_beside_pictures_are_added_by_themselves(tmp_path: Path) -> None:
    error = error_of(write(tmp_path, {"1.png": PNG, "a/b.zip": make_zip({"2.png": PNG})}))
    assert error.hint == (
        "Choose the records; the other files are skipped: kind='images'. To add the files in the archives, name the "
        "archives instead of the folder"
    )


def test_metadata_belongs_to_media(tmp_path: Path) -> None:
    source = open_source(write(tmp_path, {"1.png": PNG, "metadata.csv": b"file_name,code\n1.png,007\n"}))
    assert source.kind == "images"
    assert account(source)["metadata.csv"] == ("metadata", "columns of the records")


def test_a_kind_can_be_forced_on_any_name(tmp_path: Path) -> None:
    (tmp_path / "data.dat").write_bytes(CSV)
    assert open_source(tmp_path / "data.dat", AddOptions(kind="csv")).kind == "csv"


def test_a_kind_that_is_forced_on_unknown_names_reads_neither_documents_nor_files_of_other_kinds(
    tmp_path: Path,
) -> None:
    others = {"README.md": b"# Shops\n", "LICENSE": b"CC0\n", "map.png": PNG}
    source = open_source(write(tmp_path / "shops", {**others, "1.dat": CSV, "2.dat": CSV}), AddOptions(kind="csv"))
    assert [part.name for part in source.parts] == ["1.dat", "2.dat"]
    zipped = write(tmp_path / "zipped", {**others, "shops.zip": make_zip({"1.dat": CSV})})
    assert [part.name for part in open_source(zipped, AddOptions(kind="csv")).parts] == ["1.dat"]
    tables = write(tmp_path / "tables", {**others, "notes.md": b"# Notes\n", "1.dat": CSV, "2.txt": CSV, "3": CSV})
    names = [part.name for part in open_source(tables, AddOptions(kind="csv")).parts]
    assert names == ["1.dat", "2.txt", "3"]  # a table may be called .txt
    only_texts = write(tmp_path / "texts", {"README.md": b"# Shops\n", "a.txt": CSV})
    assert [part.name for part in open_source(only_texts, AddOptions(kind="csv")).parts] == ["a.txt"]
    with pytest.raises(UsageError) as caught:
        open_source(tmp_path, AddOptions(kind="imagse"))
    assert str(caught.value) == "'imagse' is not a kind of source"
    assert caught.value.hint == f"Did you mean 'images'? The kinds are: {', '.join(KINDS)}."


@pytest.mark.parametrize("top", ["", "photos/", "a/b/"])
def test_an_archive_is_opened_like_the_folder_in_it(tmp_path: Path, top: str) -> None:
    inside = {f"{top}train/cat/1.png": PNG, f"{top}train/dog/2.png": PNG, f"{top}test/cat/3.png": PNG}
    for name, content in (("x.zip", make_zip(inside)), ("x.tar.gz", gzip.compress(make_tar(inside)))):
        source = open_source(write(tmp_path / name, {name: content}))
        assert keys(source) == ["train/cat/1.png", "train/dog/2.png", "test/cat/3.png"]
        assert source.splits == ("train", "test")
        assert source.summary == "1 archive: 3 images (png) in 3 folders; label: the names of 2 folders, sorted"
        assert keys(open_source(tmp_path / name, AddOptions(kind="images"))) == keys(source)


def test_archives_named_after_splits(tmp_path: Path) -> None:
    files = {f"{split}.zip": make_zip({"1.csv": CSV}) for split in ("train", "test")}
    source = open_source(write(tmp_path, {**files, "README.md": b""}))
    assert [(part.split, part.name) for part in source.parts] == [("train", "train/1.csv"), ("test", "test/1.csv")]
    assert account(source)["README.md"][0] == "metadata"
    assert open_source(tmp_path / "test.zip").splits == ("train",)


def test_an_archive_in_an_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(make_zip({"y.zip": make_zip({"1.csv": CSV})}))
    error = error_of(tmp_path / "x.zip")
    assert str(error) == f"{tmp_path / 'x.zip'} contains archives in an archive: y.zip"


def test_folders_of_other_tools_name_the_command(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "my data", {"1.0.0/features.json": b"{}", "1.0.0/dataset_info.json": b"{}", "x.tfrecord": b""}
    )
    error = error_of(folder)
    assert str(error) == f"{folder} was prepared by TensorFlow Datasets"
    assert error.hint == f"Import it: registry import tfds '{folder}'"
    archive = write(tmp_path / "z", {"x.zip": make_zip({"x/features.json": b"{}", "x/dataset_info.json": b"{}"})})
    error = error_of(archive / "x.zip")
    assert error.hint == "Extract it to a folder DIR, and import that: registry import tfds DIR"
    folder = write(tmp_path / "ee", {"a-00000.tfrecord.gz": b"", "a-mixer.json": b"{}"})
    error = error_of(folder)
    assert str(error) == f"{folder} is an export of Earth Engine"
    assert error.hint == f"Import it: registry import earth-engine {folder}"


def test_saved_hugging_face_datasets(tmp_path: Path) -> None:
    state = {"_data_files": [{"filename": "data-0.arrow"}]}
    write(tmp_path, {"state.json": json.dumps(state).encode(), "dataset_info.json": b"{}"})
    assert "data-0.arrow" in str(error_of(tmp_path))
    assert "data-0.arrow" in str(error_of(tmp_path, "hugging_face"))


def test_empty_and_unknown_sources(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty", {})
    assert str(error_of(empty)) == f"{empty} contains no files"
    hidden = write(tmp_path / "hidden", {".a": b"", ".b": b"", "Thumbs.db": b""})
    assert str(error_of(hidden)) == (
        f"{hidden} contains no files that can be used; skipped: 2 (a hidden file), "
        "1 (a leftover of an operating system)"
    )
    links = write(tmp_path / "links", {})
    (links / "1.png").symlink_to(hidden / ".a")
    assert error_of(links).hint == f"Copy the files that the links point to, then add the copy: cp -rL {links} COPY"
    unknown = write(tmp_path / "unknown", {"a.bin": b"\0", "b.bin": b"\0"})
    error = error_of(unknown)
    assert str(error) == f"{unknown}: the kind of 'a.bin', 'b.bin' is unknown"
    assert error.hint == (
        f"Name the kind: kind=KIND, with one of {', '.join(KINDS)}. "
        "Or read the files in Python, and pass rows: registry.add([{'id': 1}, {'id': 2}], 'NAME')"
    )
    sheet = write(tmp_path / "sheet", {"a.xlsx": make_zip({"xl/workbook.xml": b""})}) / "a.xlsx"
    assert error_of(sheet).hint == f"Read it with pandas: registry.add(pandas.read_excel('{sheet}'), 'NAME')"
    archive = write(tmp_path / "zipped", {"b.zip": make_zip({"a.xpt": b"\0"})}) / "b.zip"
    assert error_of(archive).hint == "Read it with pandas: registry.add(pandas.read_sas('a.xpt'), 'NAME')"
    database, frame = tmp_path / "a.sqlite", pd.DataFrame({"x": [1, 2]})
    with closing(sqlite3.connect(database)) as connection:
        frame.to_sql("T", connection, index=False)
    hint = error_of(database).hint or ""
    call = hint.removeprefix("Read a table with pandas: registry.add(").removesuffix(", 'NAME')")
    assert eval(call, {"pandas": pd}).equals(frame)  # noqa: S307 - the code of the hint
    with pytest.raises(NotStoredError, match="no file or folder"):
        open_source(tmp_path / "missing")


def test_a_description_for_other_software_is_not_data(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", {"a.csv": b"x,y\n1,2\n", "datapackage.json": b'{\n"resources": []\n}'})
    source = open_source(folder)
    assert (source.kind, [file.reason for file in source.files if file.role == "skipped"]) == (
        "csv",
        ["a description for other software"],
    )


def test_an_archive_of_junk(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(make_zip({"__MACOSX/._1.png": b"", ".DS_Store": b""}))
    assert str(error_of(tmp_path / "x.zip")) == (
        f"{tmp_path / 'x.zip'} contains no files that can be used; skipped: 1 (a hidden file), "
        "1 (a leftover of an operating system)"
    )
