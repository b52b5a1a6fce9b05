"""Zip and tar archives as sources: what they contain, and the hostile and damaged ones that are refused."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import SourceError, StorageError
from registry.intake import archives
from registry.intake.archives import extract
from registry.intake.detect import open_source
from registry.intake.listing import list_files
from registry.intake.source import Files

MEMBERS = {"photos/cat/1.jpg": b"one", "photos/dog/2.jpg": b"two" * 1000, "photos/.DS_Store": b"", "a.txt": b""}


def make_tar(members: dict[str, bytes], *special: tarfile.TarInfo) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for info in special:
            tar.addfile(info)
    return file.getvalue()


def make_zip(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def link(name: str, target: str, *, hard: bool = False) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.LNKTYPE if hard else tarfile.SYMTYPE, target
    return info


def opened(folder: Path, name: str, content: bytes) -> Files:
    path = folder / name
    path.write_bytes(content)
    files = list_files(path)
    return extract(files, files.names)


def message(folder: Path, name: str, content: bytes) -> str:
    with pytest.raises(SourceError) as caught:
        opened(folder, name, content)
    assert caught.value.hint
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("x.zip", make_zip),
        ("x.tar", make_tar),
        ("x.tar.gz", lambda members: gzip.compress(make_tar(members))),
        ("x.tar.bz2", lambda members: bz2.compress(make_tar(members))),
        ("x.tar.xz", lambda members: lzma.compress(make_tar(members))),
        ("x.tar.zst", lambda members: pa.compress(make_tar(members), "zstd", asbytes=True)),
        ("x.tgz", lambda members: gzip.compress(make_tar({f"./{name}": one for name, one in members.items()}))),
    ],
)
def test_an_archive_is_a_folder(tmp_path: Path, name: str, make: Callable[[dict[str, bytes]], bytes]) -> None:
    found = opened(tmp_path, name, make(MEMBERS))
    assert found.names == ["a.txt", "photos/cat/1.jpg", "photos/dog/2.jpg"]
    assert list(found.sizes) == [0, 3, 3000]
    assert found.store.read_bytes("photos/dog/2.jpg") == b"two" * 1000
    assert [(use.name, use.reason) for use in found.skipped] == [("photos/.DS_Store", "a hidden file")]
    assert found.location == str(tmp_path / name)


def test_several_archives_are_folders_with_their_names(tmp_path: Path) -> None:
    (tmp_path / "train.zip").write_bytes(make_zip({"1.csv": b""}))
    (tmp_path / "test.tar.gz").write_bytes(gzip.compress(make_tar({"1.csv": b""})))
    files = list_files(tmp_path)
    assert extract(files, files.names).names == ["test/1.csv", "train/1.csv"]


def opened_shards(folder: Path, shards: dict[str, bytes]) -> Files:
    for name, content in shards.items():
        (folder / name).write_bytes(content)
    files = list_files(folder)
    return extract(files, files.names)


@pytest.mark.parametrize(
    ("names", "folders"),
    [
        (["00000.tar", "00001.tar"], {""}),
        (["shard-000000.zip", "shard-000001.tar"], {"shard/"}),
        (["train-000.tar", "train-001.tar", "val-000.tar"], {"train/", "val/"}),
        (["train-00000-of-00002.tar", "train-00001-of-00002.tar", "test.tar"], {"train/", "test/"}),
        (["cat.tar", "dog_1.tar", "dog_2.tar"], {"cat/", "dog/"}),
        (["cat.tar", "dog.tar"], {"cat/", "dog/"}),
        (["cat-2023.zip", "dog-2024.zip"], {"cat-2023/", "dog-2024/"}),
        (["0.tar", "1.tar"], {"0/", "1/"}),
        (["n01440764.tar", "n01443537.tar"], {"n01440764/", "n01443537/"}),
    ],
)
def test_numbered_archives_are_shards_of_one_folder(tmp_path: Path, names: list[str], folders: set[str]) -> None:
    shards = {
        name: (make_zip if name.endswith("zip") else make_tar)({f"{place}.x": b"1"}) for place, name in enumerate(names)
    }
    found = opened_shards(tmp_path, shards).names
    assert sorted(name.rpartition("/")[2] for name in found) == [f"{place}.x" for place in range(len(names))]
    assert {name.rpartition("/")[0] + "/" * ("/" in name) for name in found} == folders


def test_shards_of_classes_keep_their_classes_and_every_file(tmp_path: Path) -> None:
    tars = {
        "a-00.tar": make_tar({"cat/1.txt": b"one", "dog/1.txt": b"two"}),
        "a-01.tar.gz": gzip.compress(make_tar({"cat/1.txt": b"three"}, link("cat/2.txt", "1.txt"))),
    }
    files = opened_shards(tmp_path, tars)
    assert {name: files.store.read_bytes(name) for name in files.names} == {
        "a/cat/1.txt": b"one",
        "a/cat/a-01-1.txt": b"three",
        "a/cat/2.txt": b"three",
        "a/dog/1.txt": b"two",
    }
    source = open_source(tmp_path)
    assert (
        source.summary
        == "2 archives: 4 text files in 2 folders, each of which is a record; label: the names of 2 folders, sorted"
    )


def test_numbered_tars_of_texts_have_no_label_and_the_splits_of_their_names(tmp_path: Path) -> None:
    names = ["train-000.tar", "train-001.tar", "val-000.tar"]
    opened_shards(tmp_path, {name: make_tar({f"{place}.txt": b"1"}) for place, name in enumerate(names)})
    source = open_source(tmp_path)
    assert (source.splits, source.split_reason) == (("train", "validation"), "from the names of folders")
    assert list(source.hints) == ["text", "path"]


@given(st.lists(st.sets(st.sampled_from(["1.x", "2.x", "cat/1.x", "cat/2.x"])), min_size=2, max_size=4))
def test_no_file_of_a_shard_is_lost_or_changes_its_folder(shards: list[set[str]]) -> None:
    contents = {
        f"{place:02}.tar": {name: f"{place}/{name}".encode() for name in some} for place, some in enumerate(shards)
    }
    with TemporaryDirectory() as folder:
        files = opened_shards(Path(folder), {name: make_tar(members) for name, members in contents.items()})
        found = [(name.rpartition("/")[0], files.store.read_bytes(name)) for name in files.names]
    assert sorted(found) == sorted(
        (name.rpartition("/")[0], content) for members in contents.values() for name, content in members.items()
    )


def test_a_zip_of_windows_has_folders(tmp_path: Path) -> None:
    files = opened(
        tmp_path, "x.zip", make_zip({"photos\\": b"", "photos\\cat\\1.jpg": b"one", "photos/dog/2.jpg": b"two"})
    )
    assert files.names == ["photos/cat/1.jpg", "photos/dog/2.jpg"]


@pytest.mark.parametrize(
    "name", ["C:\\x.csv", "c:/x.csv", "\\x.csv", "\\\\server\\x.csv", "..\\x.csv", "a\\..\\..\\x.csv"]
)
def test_members_of_a_zip_of_windows_outside_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    told = message(tmp_path, "x", make_zip({name: b"data"}))
    assert told.startswith("x: unsafe archive: the member ")
    assert told.endswith(" leads out of the folder")
    assert list(tmp_path.iterdir()) == [tmp_path / "x"]


def test_links_inside_a_tar(tmp_path: Path) -> None:
    special = [link("b/hard", "a/1", hard=True), link("b/soft", "../a/1"), link("loop", "loop")]
    found = opened(tmp_path, "x.tar", make_tar({"a/1": b"12"}, *special))
    assert found.names == ["a/1", "b/hard", "b/soft"]
    assert found.store.read_bytes("b/hard") == found.store.read_bytes("b/soft") == b"12"


@pytest.mark.parametrize("name", ["../a", "a/../../b", "/etc/passwd", "a/.."])
@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_members_outside_of_the_folder_are_refused(
    tmp_path: Path, name: str, make: Callable[[dict[str, bytes]], bytes]
) -> None:
    assert message(tmp_path, "x", make({"good": b"", name: b"bad"})) == (
        f"x: unsafe archive: the member {name!r} leads out of the folder"
    )
    assert {path.name for path in tmp_path.iterdir()} == {"x"}


def test_links_out_of_a_tar_are_refused(tmp_path: Path) -> None:
    for name, target, is_hard in (
        *(("out", "../x", False), ("a/out", "../../x", False), ("out", "/etc/passwd", False), ("out", "../x", True)),
    ):
        assert message(tmp_path, "x.tar", make_tar({}, link(name, target, hard=is_hard))) == (
            f"x.tar: unsafe archive: the member {name!r} is a link that leads out of the folder, to {target!r}"
        )


def test_devices_and_links_in_zips_are_refused(tmp_path: Path) -> None:
    for kind in (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
        info = tarfile.TarInfo("null")
        info.type = kind
        problem = "x.tar: unsafe archive: the member 'null' is a device or pipe"
        assert message(tmp_path, "x.tar", make_tar({}, info)) == problem
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        info_of_link = zipfile.ZipInfo("link")
        info_of_link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info_of_link, "/etc/passwd")
    assert message(tmp_path, "x.zip", file.getvalue()) == "x.zip: unsafe archive: the member 'link' is a link"


def test_members_that_replace_others_are_refused(tmp_path: Path) -> None:
    twice = make_tar({"a": b"1"})[:1024] + make_tar({"./a": b"2"})
    assert message(tmp_path, "x.tar", twice) == "x.tar: unsafe archive: the member 'a' occurs twice"
    both = "x.zip: unsafe archive: the member {!r} is both a file and a folder"
    assert message(tmp_path, "x.zip", make_zip({"a": b"", "a/b": b""})) == both.format("a/b")
    assert message(tmp_path, "x.zip", make_zip({"a/b": b"", "a": b""})) == both.format("a")
    through = make_tar({}, link("a", "."), tarfile.TarInfo("a/b"))
    assert message(tmp_path, "x.tar", through) == "x.tar: unsafe archive: the member 'a/b' is both a file and a folder"


@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz"])
def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(archives, "MAX_FREE_BYTES", 0)
    members = {str(number): bytes(100_000) for number in range(20)}
    content = make_zip(members) if name == "x.zip" else gzip.compress(make_tar(members))
    assert message(tmp_path, name, content) == f"{name} expands to more than 200 times its size: a decompression bomb"


def test_encrypted_zips_are_refused(tmp_path: Path) -> None:
    content = bytearray(make_zip({"a": b"1"}))
    content[content.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(SourceError) as caught:
        opened(tmp_path, "x.zip", bytes(content))
    assert str(caught.value) == "x.zip is encrypted"
    assert caught.value.hint == f"Extract it, then add the folder: unzip {tmp_path / 'x.zip'} -d data"


def test_truncated_and_damaged_tars_are_refused(tmp_path: Path) -> None:
    content = make_tar({"a": b"1" * 600, "b": b"2"})
    for stop in (0, 100, 512, 700, 1536, 2000, 2048):
        assert message(tmp_path, "x.tar", content[:stop]) in (
            "x.tar: damaged archive: it is truncated",
            "x.tar: damaged archive: unexpected end of data",
        )
    damaged = content[:1536] + b"\xff" + content[1537:]
    assert message(tmp_path, "x.tar", damaged) == "x.tar: damaged archive: bad checksum"
    joined = make_tar({"a": b"1"}) * 2
    assert message(tmp_path, "x.tar", joined) == "x.tar: there is data after the end of the archive"
    packed = gzip.compress(content)
    assert message(tmp_path, "x.tgz", packed[:-20]) == "x.tgz: the gzip stream ends too early"
    damaged = bz2.compress(content)[:40] + b"x" * 40
    assert message(tmp_path, "x.tbz", damaged) == "x.tbz: the bzip2 stream is damaged or ends too early"
    assert message(tmp_path, "x.tar", b"not a tar" * 100) == "x.tar: damaged archive: invalid header"


@pytest.mark.parametrize("name", ["x" * 256, "é" * 128, "/".join(["x" * 200] * 20)])
@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_a_name_that_no_disk_takes_is_refused(tmp_path: Path, make: Any, name: str) -> None:
    found = message(tmp_path, "x.bin", make({name: b"1"}))
    assert found == f"x.bin: unsafe archive: the member {name[:200]!r} has a name that is too long for a file"


def test_damaged_zips_are_refused(tmp_path: Path) -> None:
    content = make_zip({"a": b"1" * 600})
    assert message(tmp_path, "x.zip", content[:-5]) == "x.zip: damaged archive: File is not a zip file"
    damaged = content[:35] + bytes([content[35] ^ 0xFF]) + content[36:]
    assert message(tmp_path, "x.zip", damaged).startswith("x.zip: damaged archive: ")


def test_a_header_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 2**32
    assert message(tmp_path, "x.tar", info.tobuf() + bytes(2048)) == (
        "x.tar: damaged archive: a header of 4,294,967,296 bytes"
    )


FLIPS = st.lists(st.tuples(st.integers(0, 2**16), st.integers(1, 255)), min_size=1, max_size=4)


@pytest.mark.parametrize("make", [make_zip, make_tar, lambda members: gzip.compress(make_tar(members), mtime=0)])
@given(flips=FLIPS, stop=st.integers(0, 2**16))
def test_a_damaged_archive_gives_files_or_a_typed_error(
    tmp_path_factory: pytest.TempPathFactory,
    make: Callable[[dict[str, bytes]], bytes],
    flips: list[tuple[int, int]],
    stop: int,
) -> None:
    content = bytearray(make(MEMBERS))
    for place, change in flips:
        content[place % len(content)] ^= change
    folder = tmp_path_factory.mktemp("damaged")
    try:
        found = opened(folder, "x", bytes(content[: stop % (2 * len(content))]))
    except (SourceError, StorageError):
        return
    assert all(".." not in name.split("/") for name in found.names)
