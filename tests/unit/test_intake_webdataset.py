"""WebDataset tars: samples, types by extension, missing files, and samples that cannot be used."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import SourceError
from registry.features import ClassLabel, Image
from registry.images.png import encode_png
from registry.intake.detect import open_source
from registry.intake.listing import list_files
from registry.intake.options import AddOptions
from registry.intake.source import Rows, Source
from registry.intake.webdataset import is_webdataset, open_webdataset

PNG = encode_png(np.zeros((2, 2, 3), np.uint8))


def write_tar(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def rows_of(source: Source) -> list[Rows]:
    return [rows for part in source.parts for rows in part.read()]


@pytest.mark.parametrize("form", ["tar", "gz", "bz2", "xz", "zstd"])
def test_tars_of_any_compression_are_read_in_order(tmp_path: Path, form: str) -> None:
    members = [(f"{key}.{end}", f"{key}{end}".encode() * key) for key in range(1, 700, 7) for end in ("txt", "bin")]
    plain = write_tar(tmp_path / "plain", [*members, ("last.txt", b"x" * 3_000_000), ("last.bin", b"y" * 512)])
    pack = {"tar": bytes, "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}.get(
        form, lambda data: pa.compress(data, "zstd", asbytes=True)
    )
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / f"a.{'tar' if form == 'tar' else f'tar.{form[:3]}'}").write_bytes(pack(plain.read_bytes()))
    rows = [row for rows in rows_of(open_source(tmp_path / "source")) for row in rows.table.to_pylist()]
    assert [row["path"] for row in rows] == [*map(str, range(1, 700, 7)), "last"]
    assert all(row["bin"] == members[2 * place + 1][1] for place, row in enumerate(rows[:-1]))
    assert (len(rows[-1]["txt"]), rows[-1]["bin"]) == (3_000_000, b"y" * 512)


def test_the_number_of_a_class_may_have_any_white_space_around_it(tmp_path: Path) -> None:
    """Text and bytes disagree about white space: U+2028, a separator of lines, was no integer when it was read."""
    write_tar(tmp_path / "a.tar", [("1.txt", b"x"), ("1.cls", "\u20281\xa0\n".encode())])
    (rows,) = rows_of(open_webdataset(list_files(tmp_path), AddOptions(paths=False)))
    assert rows.table.to_pylist() == [{"cls": 1, "txt": "x"}]


@pytest.mark.parametrize("folder", ["val", "data/Test", "split=extra"])
def test_a_tar_whose_folders_are_splits_is_refused(tmp_path: Path, folder: str) -> None:
    keys = ("train/1", f"{folder}/2")
    write_tar(tmp_path / "a.tar", [(f"{key}.{end}", PNG) for key in keys for end in ("image.png", "mask.png")])
    with pytest.raises(SourceError) as caught:
        open_source(tmp_path / "a.tar")
    name = folder.rpartition("/")[2]
    assert (caught.value.message, caught.value.hint) == (
        f"a.tar: the folder {name!r} in the tar names a split, but all samples of a tar are in one split",
        "Make a tar for each split, such as train.tar and test.tar. "
        "If all samples are one split: splits={'train': '*'}",
    )
    assert len(rows_of(open_source(tmp_path / "a.tar", AddOptions(splits={"train": "*"})))) == 1
    write_tar(tmp_path / "a.tar", [("train/1.image.png", PNG), ("train/1.mask.png", PNG)])
    assert open_source(tmp_path / "a.tar").splits == ("train",)


def test_samples(tmp_path: Path) -> None:
    array = b"\x93NUMPY"
    train = [("a/1.PNG", PNG), ("a/1.cls", b"7\n"), ("a/1.json", b'{"x": 1}'), ("a/2.png", PNG), ("a/2.seg.npy", array)]
    write_tar(tmp_path / "train-000000.tar", train)
    write_tar(tmp_path / "train-000001.tgz", [("a/3.png", PNG), ("a/3.txt", "é".encode())])
    write_tar(tmp_path / "test-000000.tar", [(".x", b""), ("a/1.png", PNG), ("a/1.cls", b"8")])
    source = open_webdataset(list_files(tmp_path), AddOptions(paths=False))
    assert source.summary == "4 samples in 3 WebDataset tars, with cls, json, png, seg.npy, txt"
    assert source.hints == {"png": Image(shape=(None, None, None))}
    assert [(part.split, part.name) for part in source.parts] == [
        ("train", "train-000000.tar"),
        ("train", "train-000001.tgz"),
        ("test", "test-000000.tar"),
    ]
    none = dict.fromkeys(["cls", "png", "seg.npy", "txt"])
    first, second, third = rows_of(source)
    assert first.table.to_pylist() == [
        none | {"cls": 7, "png": PNG, "x": 1},
        none | {"png": PNG, "seg.npy": array, "x": None},
    ]
    assert (first.keys, list(first.lines)) == (["a/1", "a/2"], [1, 2])
    assert second.table.to_pylist() == [none | {"png": PNG, "txt": "é"}]
    assert third.table.schema.names == second.table.schema.names
    assert source.may_lack_columns
    assert third.keys == ["a/1"]


def test_keys_that_occur_in_two_tars_start_with_the_name_of_the_tar(tmp_path: Path) -> None:
    for name in "ab":
        write_tar(tmp_path / f"{name}.tar", [("1.txt", b""), ("1.cls", b"1")])
    source = open_webdataset(list_files(tmp_path), AddOptions(paths=False))
    assert [rows.keys for rows in rows_of(source)] == [["a.tar/1"], ["b.tar/1"]]


@pytest.mark.parametrize("name", ["x y.tar", "x y.tar.gz"])
def test_a_tar_sorted_by_endings_is_refused_with_the_way_to_sort_it(tmp_path: Path, name: str) -> None:
    keys = range(300)  # more than the first samples that decide
    members = [(f"{key}.png", PNG) for key in keys] + [(f"{key}.cls", b"1") for key in keys]
    assert is_webdataset(write_tar(tmp_path / name, members))
    with pytest.raises(SourceError) as caught:
        open_source(tmp_path)
    assert str(caught.value) == f"{name}: the files of the sample '0' are not next to each other"
    assert caught.value.hint == (
        f"Sort the tar by name: mkdir data && tar -xf '{name}' -C data && tar --sort=name -cf sorted.tar -C data ."
    )
    assert caught.value.details == {"file": name, "key": "0"}


def test_a_key_that_occurs_twice_in_a_tar_is_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("0.txt", b""), ("0.cls", b"1")])
    members = [(f"a/{key}{end}", b"1") for key in (1, 2, 1) for end in (".txt", ".cls")]
    write_tar(tmp_path / "b.tar", members)
    with pytest.raises(SourceError) as caught:
        open_source(tmp_path)
    assert str(caught.value) == "b.tar: the key 'a/1' occurs twice: two samples have a file 'a/1.cls'"
    assert caught.value.hint == "Rename the files of one of them, or remove them, and make the tar again."
    assert caught.value.details == {"file": "b.tar", "key": "a/1"}


@given(st.permutations([f"{key}.{end}" for key in "123" for end in ("txt", "cls")]))
def test_every_order_of_members_gives_whole_samples_or_an_error(members: list[str]) -> None:
    keys = [name[0] for name in members]
    are_neighbours = all(keys[place] == keys[place + 1] for place in (0, 2, 4))
    with TemporaryDirectory() as folder:
        path = write_tar(Path(folder) / "x.tar", [(name, name[0].encode()) for name in members])
        if not are_neighbours:
            with pytest.raises(SourceError, match="are not next to each other"):
                open_source(path)
            return
        (rows,) = rows_of(open_source(path))
    assert rows.keys == keys[::2]
    assert rows.table.to_pylist() == [{"cls": int(key), "txt": key, "path": key} for key in keys[::2]]


def test_samples_that_cannot_be_used(tmp_path: Path) -> None:
    members = [
        *(
            ("1.json", b'{"a": 1, "a": 2}'),
            ("1.txt", b""),
            ("2.txt", b"\xff"),
            ("3.json", b"{"),
            ("4.png", b"GIF89a"),
            ("5.txt", b""),
        ),
        *(("5.TXT", b""), ("readme", b""), ("6.txt", b"good"), ("7.cls", b"\xff")),
    ]
    write_tar(tmp_path / "x.tar", members)
    source = open_webdataset(list_files(tmp_path), AddOptions(paths=False))
    refused, rows = rows_of(source)
    assert rows.keys == ["6"]
    assert list(rows.lines) == [6]
    assert [str(one) for one in refused.bad] == [
        "x.tar:1, column 'json': the key 'a' occurs twice in an object",
        "x.tar:2, column 'txt': expected UTF-8, found the byte 0xff in line 1",
        "x.tar:3, column 'json': is not JSON: Expecting property name enclosed in double quotes at character 2",
        "x.tar:4, column 'png': expected PNG by its name, found GIF",
        "x.tar:5, column 'txt': it occurs twice in the sample",
        "x.tar/readme: its name has no extension",
        "x.tar:7, column 'cls': expected UTF-8, found the byte 0xff in line 1",
    ]


def test_the_keys_of_json_are_columns_as_in_json_lines(tmp_path: Path) -> None:
    members = [
        *(("1.txt", b"a"), ("1.json", b'{"n": 1, "who": "007", "txt": "t", "box": {"x": [1, 2.5]}}')),
        *(("2.txt", b"b"), ("2.json", b'{"n": null, "extra": [1]}')),
        *(("3.txt", b"c"), ("3.json", b"[1, 2]")),
        *(("4.txt", b"d"), ("4.json", b'{"n": "one"}')),
    ]
    write_tar(tmp_path / "x.tar", members)
    source = open_webdataset(list_files(tmp_path), AddOptions(paths=False))
    assert source.summary == "4 samples in 1 WebDataset tar, with json, txt"
    blocks = rows_of(source)  # a text and a number exclude each other: inference reports their lines
    none = dict.fromkeys(["n", "who", "json.txt", "box", "extra", "json"])
    assert [row for rows in blocks for row in rows.table.to_pylist()] == [
        none | {"txt": "a", "n": 1, "who": "007", "json.txt": "t", "box": {"x": [1.0, 2.5]}},
        none | {"txt": "b", "extra": [1]},
        none | {"txt": "c", "json": [1, 2]},
        none | {"txt": "d", "n": "one"},
    ]
    assert [key for rows in blocks for key in rows.keys or ()] == ["1", "2", "3", "4"]
    assert [line for rows in blocks for line in rows.lines] == [1, 2, 3, 4]
    whole = open_webdataset(list_files(tmp_path), AddOptions(features={"json": "Text"}, paths=False))
    assert rows_of(whole)[0].table.column("json").to_pylist() == [members[place][1].decode() for place in (1, 3, 5, 7)]
    assert not whole.may_lack_columns


def test_samples_of_empty_json_are_rows(tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", [("1.json", b"{}"), ("2.json", b"{}")])
    (rows,) = rows_of(open_webdataset(list_files(tmp_path), AddOptions(paths=False)))
    assert (rows.table.num_rows, rows.keys) == (2, ["1", "2"])


@pytest.mark.parametrize(
    ("contents", "hint", "values"),
    [
        ([b"7\n", b"-1", b"0"], None, [7, -1, 0]),
        ([b"dog", b"cat\n", b"-1"], ClassLabel(names=["cat", "dog"]), ["dog", "cat", None]),
        ([b"007", b"8", b"9"], ClassLabel(names=["007", "8", "9"]), ["007", "8", "9"]),
        ([b"9" * 30, b"1", b"a" * 2000], None, ["9" * 30, "1", "a" * 2000]),
        ([b"dog\nx", b"cat"], None, ["dog\nx", "cat"]),  # a name of a class is one line
    ],
)
def test_classes_are_numbers_or_names(
    tmp_path: Path, contents: list[bytes], hint: ClassLabel | None, values: list[object]
) -> None:
    write_tar(
        tmp_path / "x.tar",
        [(f"{place}{end}", data) for place, one in enumerate(contents) for end, data in ((".txt", b""), (".cls", one))],
    )
    source = open_webdataset(list_files(tmp_path), AddOptions(paths=False))
    assert source.hints == ({} if hint is None else {"cls": hint})
    (rows,) = rows_of(source)
    assert rows.table.column("cls").to_pylist() == values


def test_a_tar_of_a_folder_is_not_a_webdataset(tmp_path: Path) -> None:
    assert not is_webdataset(write_tar(tmp_path / "a.tar", [("cat/1.jpg", b""), ("cat/2.jpg", b"")]))
    assert is_webdataset(write_tar(tmp_path / "b.tar", [("1.jpg", b""), ("1.cls", b"")]))


def test_damaged_and_empty_tars(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [])
    with pytest.raises(SourceError) as caught:
        open_webdataset(list_files(path), AddOptions(paths=False))
    assert str(caught.value) == f"{path}: no samples in 1 tar"
    content = write_tar(path, [("1.jpg", b"x" * 600), ("1.cls", b"")]).read_bytes()
    path.write_bytes(content[:1000])
    with pytest.raises(SourceError) as caught:
        open_webdataset(list_files(path), AddOptions(paths=False))
    assert str(caught.value) == "a.tar: damaged archive: unexpected end of data"
