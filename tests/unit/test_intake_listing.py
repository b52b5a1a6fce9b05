"""Files of a folder, a file or a URL: what is skipped and why, hostile names, downloads."""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pytest

from registry.errors import NotStoredError, SourceError, StorageError
from registry.intake.listing import list_files
from registry.intake.source import MAX_FILES, MAX_FOLDERS, FileUse, Origin, account_for
from registry.storage.names import Owner
from registry.storage.temporary import check_free_space


def write(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def reasons(skipped: tuple[FileUse, ...]) -> dict[str, str]:
    return {use.name: use.reason for use in skipped}


def test_a_folder_and_a_file(tmp_path: Path) -> None:
    write(tmp_path, **{"b/1.csv": "12", "a.csv": "1", "b-c/2.csv": "", "b/d/1": "123"})
    found = list_files(tmp_path)
    assert found.names == ["a.csv", "b-c/2.csv", "b/1.csv", "b/d/1"]
    assert list(found.sizes) == [1, 0, 2, 3]
    assert (found.skipped, found.origins, found.location) == ((), (), str(tmp_path))
    assert found.store.read_bytes("b/d/1") == b"123"
    found = list_files((tmp_path / "b/1.csv").as_uri())
    assert (found.names, list(found.sizes)) == (["1.csv"], [2])
    assert pickle.loads(pickle.dumps(found.store)).read_bytes("1.csv") == b"12"  # noqa: S301 (our own)


def test_hidden_files_and_leftovers_are_skipped_with_the_reason(tmp_path: Path) -> None:
    names = [".hidden", ".git/a", ".git/b/c", "x/Thumbs.db", "desktop.ini", "__MACOSX/._1.jpg", "._1.jpg"]
    write(tmp_path, **dict.fromkeys([*names, "x/.DS_Store", "1.jpg", "incomplete.0a1b2c3d_x"], "12"))
    found = list_files(str(tmp_path))
    assert found.names == ["1.jpg"]
    assert reasons(found.skipped) == {
        ".hidden": "a hidden file",
        "x/.DS_Store": "a hidden file",
        ".git": "a hidden folder",
        "x/Thumbs.db": "a leftover of an operating system",
        "desktop.ini": "a leftover of an operating system",
        "__MACOSX": "a leftover of an operating system",
        "._1.jpg": "a leftover of macOS",
        "incomplete.0a1b2c3d_x": "an unfinished file of another program",
    }
    assert sum(use.num_files for use in found.skipped) == 9
    assert sum(use.num_bytes for use in found.skipped) == 18
    assert list_files(tmp_path / ".hidden").names == [".hidden"]


def test_links_and_other_things_that_are_not_files(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", **{"a/1.csv": "12"})
    write(tmp_path, **{"out.csv": "1"})
    links = {
        "inside": "a/1.csv",
        "outside": "../out.csv",
        "loop": "loop",
        "broken": "nothing",
        "up": "..",
        "again": "a",
    }
    for name, target in links.items():
        (folder / name).symlink_to(target)
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket"))
        found = list_files(folder)
    assert found.names == ["a/1.csv", "inside"]
    assert list(found.sizes) == [2, 2]
    loop = "a link that points to itself" if sys.version_info < (3, 13) else "a link to a missing file"
    assert reasons(found.skipped) == {
        "outside": "a link that leads out of the folder",
        "up": "a link that leads out of the folder",
        "loop": loop,
        "broken": "a link to a missing file",
        "again": "a link to a folder",
        "pipe": "a pipe, socket or device",
        "socket": "a pipe, socket or device",
    }
    with pytest.raises(SourceError) as caught:
        list_files(folder / "pipe")
    assert str(caught.value) == f"{folder / 'pipe'} is not a file or folder, but a pipe, socket or device"


def test_hostile_names_are_listed(tmp_path: Path) -> None:
    names = [
        "photo of a train.jpg",
        "test",
        "🚂.jpg",
        "new\nline.jpg",
        "a" * 251 + ".jpg",
        "A.jpg",
        "a.jpg",
        " ",
        "%2e",
    ]
    write(tmp_path, **dict.fromkeys(names, "x"))
    found = list_files(tmp_path)
    assert found.names == sorted(names)
    assert [found.store.read_bytes(name) for name in found.names] == [b"x"] * len(names)


def test_names_that_cannot_be_stored_are_an_error(tmp_path: Path) -> None:
    for name in (b"caf\xe9.csv", b"a\\b.csv"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).touch()
    with pytest.raises(SourceError) as caught:
        list_files(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: a file name must be UTF-8 without a backslash, found b'a\\\\b.csv', b'caf\\xe9.csv'"
    )
    assert caught.value.hint == "Rename the file. For names in Latin-1: convmv -r -f latin1 -t utf8 --notest DIR"


def test_a_missing_path_suggests_what_is_there(tmp_path: Path) -> None:
    write(tmp_path, **{"photos/1.jpg": "", "b": ""})
    with pytest.raises(NotStoredError) as caught:
        list_files(tmp_path / "photo")
    assert str(caught.value) == f"no file or folder '{tmp_path / 'photo'}'"
    assert caught.value.hint == f"Did you mean 'photos'? {tmp_path} contains b, photos."
    with pytest.raises(NotStoredError) as caught:
        list_files("digits")
    assert caught.value.hint == "'digits' is a builder. To publish its dataset: registry build digits"


def test_many_files_are_accounted_for_by_folder() -> None:
    assert len(account_for([(f"a/{n}", 1) for n in range(MAX_FILES)], "records")) == MAX_FILES
    (one,) = account_for([(f"a/{n}", 1) for n in range(MAX_FILES + 1)], "records", split="train")
    assert one == FileUse(name="a", role="records", split="train", num_files=MAX_FILES + 1, num_bytes=MAX_FILES + 1)
    many = [(f"{top}/{n}/x", 2) for n in range(MAX_FOLDERS) for top in "ab"] + [("c", 1)] * 20
    assert [(use.name, use.num_files) for use in account_for(many, "records")] == [(".", 20), ("a", 100), ("b", 100)]


def test_a_remote_folder_is_downloaded_with_its_digests() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe({"/listing/train/1.csv": b"12", "/listing/.x": b"", "/listing/b.csv": b"1"})
    try:
        arrived: list[int] = []
        found = list_files("memory://listing", progress=arrived.append)
        assert (found.names, list(found.sizes)) == (["b.csv", "train/1.csv"], [1, 2])
        assert found.store.read_bytes("train/1.csv") == b"12"
        assert reasons(found.skipped) == {".x": "a hidden file"}
        assert sum(arrived) == 3
        assert found.origins == (
            Origin(url="memory://listing/b.csv", num_bytes=1, sha256=hashlib.sha256(b"1").hexdigest()),
            Origin(url="memory://listing/train/1.csv", num_bytes=2, sha256=hashlib.sha256(b"12").hexdigest()),
        )
        assert list_files("memory://listing/b.csv").names == ["b.csv"]
        with pytest.raises(NotStoredError) as caught:
            list_files("memory://listing/none")
        assert str(caught.value) == "no files at memory://listing/none"
    finally:
        memory.rm("/listing", recursive=True)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name of the base class)
        del format, args


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as one:
        thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{one.server_port}"
        one.shutdown()
        thread.join()


def test_a_web_file_is_downloaded_and_its_password_is_masked(tmp_path: Path, server: str) -> None:
    write(tmp_path, **{"a b.csv": "x,y\n"})
    found = list_files(f"http://{server}/a%20b.csv?token=PW&path=a/b")
    assert (found.names, list(found.sizes)) == (["a b.csv"], [4])
    assert found.location == f"http://{server}/a%20b.csv?token=***&path=a/b"
    assert found.origins == (
        Origin(
            url=f"http://{server}/a%20b.csv?path=a%2Fb",
            num_bytes=4,
            sha256=hashlib.sha256(b"x,y\n").hexdigest(),
        ),
    )
    with pytest.raises(NotStoredError, match=r"none\.csv"):
        list_files(f"http://{server}/none.csv")


def test_a_download_is_removed_with_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    fsspec.filesystem("memory").pipe("/gone/a.csv", b"1")
    abandoned = tmp_path / "shardbook-p00000000000000001t1_x"
    abandoned.mkdir()
    killed = tmp_path / f"shardbook-{replace(Owner.this_process(), pid=2**30, started='1').mark()}_x"
    killed.mkdir()
    found = list_files("memory://gone/a.csv")
    (folder,) = set(tmp_path.iterdir()) - {abandoned}  # of another machine: kept
    assert not killed.exists()
    copy = pickle.loads(pickle.dumps(found.store))  # noqa: S301 (our own)
    assert copy.read_bytes("a.csv") == b"1"
    del copy
    gc.collect()
    assert folder.exists()
    del found
    gc.collect()
    assert not folder.exists()


def test_a_disk_that_is_too_small(tmp_path: Path) -> None:
    with pytest.raises(
        StorageError, match=r"cannot write .*: the download of x needs 1,152,921,504,606,846,976 bytes, but"
    ):
        check_free_space(str(tmp_path), 2**60, "the download of x")
