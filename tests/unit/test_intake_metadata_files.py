"""The metadata files of folders of media: how their entries name files, and entries and files without a counterpart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.intake_files import read_all, write_files
from support.media_samples import IMAGES

import registry
from registry.errors import SourceError, UnusableRowsError
from registry.intake.listing import list_files
from registry.intake.media_files import open_media
from registry.intake.options import AddOptions
from registry.intake.source import Source

PNG = IMAGES["png"]
NFC, NFD = "caf\u00e9.png", "cafe\u0301.png"
SUFFIXES = ["csv", "jsonl", "parquet"]


def write_entries(folder: Path, suffix: str, names: Sequence[str | None]) -> None:
    """Write a metadata file with a number for each name."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"metadata.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.table({"file_name": pa.array(names, "string"), "number": range(len(names))}), path)
    elif suffix == "jsonl":
        path.write_text("\n".join(json.dumps({"file_name": one, "number": 1}) for one in names))
    else:
        path.write_text("file_name,number\n" + "".join(f"{one or ''},1\n" for one in names))


def images(folder: Path, files: dict[str, bytes]) -> Source:
    """Write images beside the metadata, and open the folder."""
    write_files(folder, files)
    return open_media(list_files(folder), AddOptions(kind="images"))


def numbers(source: Source) -> dict[str, str]:
    """The number of each image, by the name of its file."""
    return {
        key: str(number)
        for part in source.parts
        for rows in part.read()
        for key, number in zip(rows.keys or (), rows.table.column("number").to_pylist(), strict=True)
    }


def bad(source: Source) -> list[str]:
    return [str(row) for row in read_all(source)[1]]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "name", ["a/1.png", "./a/1.png", "a\\1.png", ".\\a\\1.png", "a//1.png", "a/./1.png", "b/../a/1.png"]
)
def test_a_path_may_be_written_as_on_windows(tmp_path: Path, suffix: str, name: str) -> None:
    write_entries(tmp_path, suffix, [name])
    source = images(tmp_path, {"a/1.png": PNG})
    assert list(numbers(source)) == ["a/1.png"]
    assert bad(source) == []


def test_metadata_may_describe_files_beside_its_folder(tmp_path: Path) -> None:
    write_entries(tmp_path / "labels", "csv", ["..\\images\\1.png"])
    assert list(numbers(images(tmp_path, {"images/1.png": PNG}))) == ["images/1.png"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("C:\\photos\\1.png", "a/1.png"),
        ("/a/1.png", "a/1.png"),
        ("../a/1.png", "a/1.png"),
        ("../../etc/passwd", None),
        ("https://host/photos/1.png?x=1", "a/1.png"),
        ("b/1.png", "a/1.png"),
        ("A/1.PNG", "a/1.png"),
        ("2.png", None),
        ("a", None),
        (" ", None),
    ],
)
def test_metadata_that_matches_no_file_is_refused_with_the_names_of_both_sides(
    tmp_path: Path, suffix: str, name: str, expected: str | None
) -> None:
    write_entries(tmp_path, suffix, [name])
    with pytest.raises(SourceError) as caught:
        images(tmp_path, {"a/1.png": PNG})
    assert caught.value.message == (
        f"{tmp_path}: metadata.{suffix} matches no image\n"
        f"  1 entry has no file: {name!r}\n"
        "  1 image without an entry: 'a/1.png'"
    )
    assert caught.value.hint == (
        f"Paths are relative to the metadata file: write {expected!r} for {name!r}."
        if expected
        else "Write the path of each file, relative to the metadata file, into the column file_name."
    )
    assert caught.value.details == {
        "location": str(tmp_path),
        "files": [f"metadata.{suffix}"],
        "num_missing": 1,
        "missing": [name],
        "num_unlisted": 1,
        "unlisted": ["a/1.png"],
    }


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_entries_without_a_name_match_no_file(tmp_path: Path, suffix: str) -> None:
    write_entries(tmp_path, suffix, [None, None])
    with pytest.raises(SourceError, match=rf"metadata\.{suffix} matches no image\n  2 entries have no file: '', ''"):
        images(tmp_path, {"a/1.png": PNG})


def test_at_most_five_names_of_each_side_are_shown(tmp_path: Path) -> None:
    write_entries(tmp_path, "csv", [f"{number}.gif" for number in range(12)])
    with pytest.raises(SourceError) as caught:
        images(tmp_path, {f"0{number}.png": PNG for number in range(9)})
    assert caught.value.message == (
        f"{tmp_path}: metadata.csv matches no image\n"
        "  12 entries have no file: '0.gif', '1.gif', '2.gif', '3.gif', '4.gif' ...\n"
        "  9 images without an entry: '00.png', '01.png', '02.png', '03.png', '04.png' ..."
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_names_of_both_sides_come_first_if_some_match(tmp_path: Path, suffix: str) -> None:
    write_entries(tmp_path, suffix, ["0.png", *(f"{number}.gif" for number in range(7))])
    source = images(tmp_path, {f"{number}.png": PNG for number in range(8)})
    assert list(numbers(source)) == ["0.png"]
    first = 3 if suffix == "csv" else 2
    missing = [
        f"metadata.{suffix}:{first + number}, column 'file_name': the file '{number}.gif' does not exist"
        for number in range(7)
    ]
    unlisted = [f"{number}.png: metadata.{suffix} has no entry for it" for number in range(1, 8)]
    assert bad(source) == [*missing[:5], *unlisted[:5], *missing[5:], *unlisted[5:]]
    assert source.summary == "8 images (png); metadata from 1 file, 7 entries without a file, 7 images without an entry"


def test_names_that_look_alike_are_suggested(tmp_path: Path) -> None:
    write_entries(tmp_path, "jsonl", ["1.png", NFD, "A.PNG", "x/b.png", "c.png"])
    found = bad(images(tmp_path, {"1.png": PNG, NFC: PNG, "a.png": PNG, "b.png": PNG, "y/c.png": PNG, "z/c.png": PNG}))
    place = "metadata.jsonl:{}, column 'file_name': the file {!r} does not exist"
    assert found[:4] == [
        place.format(2, NFD) + ", but 'caf\\xe9.png' does, which is the same text in another form of Unicode",
        place.format(3, "A.PNG") + "; did you mean 'a.png'?",
        place.format(4, "x/b.png") + "; did you mean 'b.png'?",
        place.format(5, "c.png"),
    ]


def test_metadata_of_splits_and_of_the_whole_folder(tmp_path: Path) -> None:
    write_entries(tmp_path / "train", "csv", ["1.png"])
    write_entries(tmp_path / "test", "csv", ["wrong.png"])
    files = {"train/1.png": PNG, "test/1.png": PNG}
    source = images(tmp_path, files)
    assert list(numbers(source)) == ["train/1.png"]
    assert bad(source) == [
        "test/metadata.csv:2, column 'file_name': the file 'wrong.png' does not exist",
        "test/1.png: no metadata file has an entry for it",
    ]
    (tmp_path / "metadata.csv").write_text("file_name,number\ntrain/1.png,7\ntest/1.png,8\n")
    source = images(tmp_path, files)
    assert numbers(source) == {"test/1.png": "8", "train/1.png": "7"}
    assert bad(source) == [
        "test/metadata.csv:2, column 'file_name': the file 'wrong.png' does not exist",
        "train/metadata.csv:2, column 'file_name': a second entry for '1.png', after metadata.csv:2; "
        "a file has one, whose values may be lists",
    ]


@pytest.mark.parametrize(
    ("suffix", "message"),
    [
        ("csv", "{}: metadata.csv has no rows"),
        ("jsonl", "{}: the JSON file 'metadata.jsonl' has no rows"),
        ("parquet", "{}: the Parquet file 'metadata.parquet' has no rows"),
    ],
)
def test_metadata_without_an_entry_is_refused(tmp_path: Path, suffix: str, message: str) -> None:
    write_entries(tmp_path, suffix, [])
    with pytest.raises(SourceError) as caught:
        images(tmp_path, {"1.png": PNG})
    assert caught.value.message == message.format(tmp_path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_absolute_path_names_a_file_of_the_source(tmp_path: Path, suffix: str) -> None:
    """Of the folder itself, or through a link to it; the metadata file may be in another folder."""
    source = tmp_path / "source"
    (tmp_path / "link").symlink_to(source)
    write_files(source, {"a/1.png": PNG, "a/2.png": PNG, "a/3.png": PNG})
    entries = [str(source / "a/1.png"), str(tmp_path / "link/a/2.png"), f"{source}/b/../a/3.png"]
    write_entries(source / "a", suffix, entries)
    opened = open_media(list_files(tmp_path / "link"), AddOptions(kind="images"))
    assert set(numbers(opened)) == {"a/1.png", "a/2.png", "a/3.png"}
    assert bad(opened) == []


@pytest.mark.parametrize("path", ["/etc/passwd", "{}/outside.png", "{}/source-2/1.png", "/1.png"])
def test_an_absolute_path_out_of_the_source_names_no_file(tmp_path: Path, path: str) -> None:
    write_files(tmp_path, {"outside.png": PNG, "source-2/1.png": PNG})
    write_entries(tmp_path / "source", "csv", [path.format(tmp_path), "1.png"])
    source = images(tmp_path / "source", {"1.png": PNG})
    assert bad(source)[0].startswith(
        f"metadata.csv:2, column 'file_name': the file {path.format(tmp_path)!r} does not exist"
    )
    assert set(numbers(source)) == {"1.png"}


def test_entries_and_files_without_a_counterpart_can_be_skipped(tmp_path: Path) -> None:
    write_entries(tmp_path / "source", "csv", ["1.png", "wrong.png"])
    write_files(tmp_path / "source", {"1.png": PNG, "2.png": PNG})
    with registry.connect(tmp_path / "catalog.db") as catalog:
        with pytest.raises(UnusableRowsError) as caught:
            catalog.add(tmp_path / "source", "x", skip_bad=1)
        assert dict(catalog.add(tmp_path / "source", "x", skip_bad=2).splits) == {"train": 1}
    assert caught.value.message == (
        "2 rows or files cannot be used, and at most 1 may be skipped\n"
        "  metadata.csv:3, column 'file_name': the file 'wrong.png' does not exist\n"
        "  2.png: metadata.csv has no entry for it"
    )


@pytest.mark.parametrize("place", [5, 290])
def test_a_key_of_json_may_be_missing_in_any_entry(tmp_path: Path, place: int) -> None:
    entries = [{"file_name": f"{number}.png", "n": number} for number in range(300)]
    entries[place]["late"] = 7
    files = {f"{number}.png": IMAGES["png"] for number in range(300)}
    source = images(tmp_path, {**files, "metadata.jsonl": "\n".join(map(json.dumps, entries)).encode()})
    rows, _ = read_all(source)
    assert {row["path"]: row["late"] for _, row in rows if row["late"] is not None} == {f"{place}.png": 7}
