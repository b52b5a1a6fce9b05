"""The files that data sources match, and the errors for sources that match nothing."""

from __future__ import annotations

import errno
import os
import uuid
from functools import partial
from pathlib import Path

import pytest
from support.golden import check_errors

from registry import slim
from registry.errors import NotStoredError, StorageError, UsageError
from registry.slim import parallel_reader
from registry.slim.data_files import DataFile, find_data_files, get_data_files
from registry.storage import open_store

GOLDEN = Path(__file__).with_name("golden")


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


def test_sources_without_files_are_refused_at_once(folder: Path) -> None:
    check_errors(
        GOLDEN / "slim_data_files" / "sources_without_files_are_refused_at_once.txt",
        (
            partial(get_data_files, sources)
            for sources in [
                "gone",
                ["a", *(f"gone-{number}" for number in range(7))],
                "y@3",
                "gone-*",
                ["a", []],
                "y@0",
                "~nobody-of-that-name/f",
                "~nobody-of-that-name/f*",
                "sub",
                7,
                "",
            ]
        ),
    )


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
