"""The files that data sources match, and the errors for sources that match nothing."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

import pytest

from registry import slim
from registry.errors import NotStoredError, StorageError, UsageError, WrongTypeError
from registry.slim import parallel_reader
from registry.slim.data_files import DataFile, find_data_files, get_data_files
from registry.storage import open_store


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("b", "a", "a[1]", "a1", "x@2", "y-00000-of-00002", "y-00001-of-00002", "incomplete.0a1b2c3d_a"):
        (tmp_path / name).touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("sources", "files"),
    [
        ("b", ["b"]),
        (["b", "a", "b"], ["b", "a", "b"]),
        ("[ab]", ["a", "b"]),
        ("?", ["a", "b"]),
        ("a*", ["a", "a1", "a[1]"]),
        ("a[1]", ["a[1]"]),
        ("*/a", ["sub/a"]),
        (("a*", ["b", ("./b",)]), ["a", "a1", "a[1]", "b", "./b"]),
        ("y@2", ["y-00000-of-00002", "y-00001-of-00002"]),
        ("x@2", ["x@2"]),
        (Path("sub/a"), ["sub/a"]),
        ("./?", ["./a", "./b"]),
        ("*", ["a", "a1", "a[1]", "b", "x@2", "y-00000-of-00002", "y-00001-of-00002"]),
    ],
)
def test_sources_name_files_in_order(folder: Path, sources: object, files: list[str]) -> None:
    assert get_data_files(sources) == files
    assert all(file.store.exists(file.filename) for file in find_data_files(sources))


def test_urls_and_their_patterns_name_objects() -> None:
    root = f"memory://{uuid.uuid4().hex}"
    for name in ("t-1", "t-0", "deep/t-2"):
        with open_store(root).create(name):
            pass
    assert get_data_files(f"{root}/t-*") == [f"{root}/t-0", f"{root}/t-1"]
    assert get_data_files(f"{root}/*/t-?") == [f"{root}/deep/t-2"]
    assert get_data_files(f"{root}/t-1") == [f"{root}/t-1"]
    with pytest.raises(NotStoredError, match=rf"^no such data file: {root}/t-9(?m:$)"):
        get_data_files(f"{root}/t-9")


def test_a_file_url_is_a_path(folder: Path) -> None:
    url = (folder / "b").as_uri()
    assert get_data_files(url) == [url]
    assert get_data_files(f"{folder.as_uri()}/[ab]") == [(folder / "a").as_uri(), url]
    with pytest.raises(NotStoredError, match=r"^no such data file: file:///gone-(?m:$)"):
        get_data_files("file:///gone-")
    with pytest.raises(UsageError, match=r"^no data files found in file:///gone-\*(?m:$)"):
        get_data_files("file:///gone-*")


def test_a_link_out_of_its_folder_is_followed(folder: Path) -> None:
    (folder / "sub" / "link").symlink_to(folder / "b")
    (file,) = find_data_files("sub/link")
    assert file.path == "sub/link"
    assert file.store.locate(file.filename) == os.path.realpath("b")


@pytest.mark.parametrize(
    ("sources", "kind", "message", "hint"),
    [
        (
            "gone",
            NotStoredError,
            "no such data file: gone",
            "Check the paths. A pattern such as folder/train-* reads the files that exist.",
        ),
        (
            ["a", *(f"gone-{number}" for number in range(7))],
            NotStoredError,
            "7 data files are missing: gone-0, gone-1, gone-2, gone-3, gone-4 and 2 more",
            "Check the paths. A pattern such as folder/train-* reads the files that exist.",
        ),
        (
            "y@3",
            NotStoredError,
            "3 data files are missing: y-00000-of-00003, y-00001-of-00003, y-00002-of-00003",
            "Check the paths. A pattern such as folder/train-* reads the files that exist.",
        ),
        (
            "gone-*",
            UsageError,
            "no data files found in gone-*",
            "Check the folder and the pattern: * matches any part of a name, but no '/'.",
        ),
        (
            ["a", []],
            UsageError,
            "no data files found in []",
            "Check the folder and the pattern: * matches any part of a name, but no '/'.",
        ),
        (
            "y@0",
            UsageError,
            "no data files found in y@0",
            "Check the folder and the pattern: * matches any part of a name, but no '/'.",
        ),
        (
            "~nobody-of-that-name/f",
            NotStoredError,
            "no such data file: ~nobody-of-that-name/f",
            "Check the paths. A pattern such as folder/train-* reads the files that exist.",
        ),
        (
            "~nobody-of-that-name/f*",
            UsageError,
            "no data files found in ~nobody-of-that-name/f*",
            "Check the folder and the pattern: * matches any part of a name, but no '/'.",
        ),
        ("sub", StorageError, "sub is a folder", "Give the files in it: sub/*"),
        (
            7,
            WrongTypeError,
            "7 is not a data source",
            "Pass a path, a URL, a pattern such as folder/train-*, path@128, or a list of these.",
        ),
        (
            "",
            WrongTypeError,
            "'' is not a data source",
            "Pass a path, a URL, a pattern such as folder/train-*, path@128, or a list of these.",
        ),
    ],
)
def test_sources_without_files_are_refused_at_once(
    folder: Path, sources: object, kind: type[StorageError], message: str, hint: str
) -> None:
    with pytest.raises(kind) as caught:
        get_data_files(sources)
    assert (type(caught.value), str(caught.value), caught.value.hint) == (kind, message, hint)


def test_a_path_that_cannot_be_looked_at_is_an_error_of_storage() -> None:
    with pytest.raises(StorageError, match="File name too long") as caught:
        get_data_files("x" * 300)
    assert caught.value.errno == errno.ENAMETOOLONG


def test_some_records_of_a_file_are_a_data_source(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    file = DataFile(store=store, filename="f", skip=1, take=2, num_records=4, file_format="array_record")
    assert file.path == store.locate("f")
    assert not file.is_plain
    assert get_data_files([file]) == [store.locate("f")]


def test_a_data_file_reads_no_more_than_it_holds(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(UsageError) as caught:
        DataFile(store=store, filename="f", skip=2, take=3, num_records=4)
    assert str(caught.value) == f"{store.locate('f')}: cannot skip 2 and take 3 of 4 records"


def test_get_data_files_has_the_import_path_of_tf_slim() -> None:
    assert parallel_reader.get_data_files is slim.get_data_files is get_data_files
