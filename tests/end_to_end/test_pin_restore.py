"""A restore takes intact bytes from any location, names faults, and continues after it was killed."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from support import warm_python
from support.pinned_samples import pin, publish_samples, read_all
from support.web_server import Manner, serve

from registry.api import Catalog
from registry.errors import (
    AlreadyStoredError,
    MissingExtraError,
    NotStoredError,
    PinNotFoundError,
    ShardMismatchError,
    StorageError,
    StorageUnavailableError,
)
from registry.pins import PinFile, Places
from registry.pins.places import list_files
from registry.pins.restore import restore
from registry.storage import Allowed, open_store

AGREED = Allowed.of(fetch=True, hosts=["127.0.0.1"])
"""The pins of these tests are the reader's own; test_pin_consent.py has those of strangers."""

WANTED = {
    "train": ("animals:1.0.0", "train[:60%]"),
    "rest": ("animals:1.0.0", "train[60%:]+test[:2]"),
    "wild": ("beasts/wild:1.0.0", "train"),
}
SHARD = "animals/1.0.0/animals-train.tfrecord-00001-of-00004"


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    with publish_samples(tmp_path_factory.mktemp("published")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pins(catalog: Catalog) -> PinFile:
    return pin(catalog, WANTED)


@pytest.fixture
def data(catalog: Catalog, tmp_path: Path) -> Path:
    """A copy of the catalog's data, to be damaged."""
    return Path(shutil.copytree(str(catalog.data_dir), tmp_path / "data"))


def at(pins: PinFile, *folders: Path, named: Path | None = None) -> PinFile:
    """The same pins, looked for elsewhere."""
    places = Places(data_dir=None if named is None else str(named), data_dirs=tuple(map(str, folders)))
    return PinFile.from_yaml(pins.to_yaml().encode(), "pins", places=places)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def flip(path: Path) -> str:
    """Change the last byte; the sha256 that the file has then."""
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_restored_files_are_a_data_directory(pins: PinFile, data: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "restored"
    advanced: list[int] = []
    report = restore(at(pins, data), None, target, advance=advanced.append)
    assert len(report.files) == 4 + 1 + 2  # two pins need the files of train, which exist once
    assert [file.path for file in report.files] == sorted(tree(target))
    assert report.copied == report.files
    assert {file.source for file in report.files} == {str(data / file.path) for file in report.files}
    assert report.num_bytes == report.num_bytes_copied == sum(advanced) == sum(map(len, tree(target).values()))
    assert report.target == target.as_uri()
    shutil.rmtree(data)
    for name in pins:
        assert read_all(at(pins, named=target), name) == read_all(pins, name)


def test_what_is_there_and_right_is_left(pins: PinFile, data: Path, tmp_path: Path) -> None:
    target = tmp_path / "restored"
    first = restore(at(pins, data), ["train"], target)
    assert [file.path.rpartition("/")[2] for file in first.files] == [
        "animals-train.tfrecord-00000-of-00004",
        "animals-train.tfrecord-00001-of-00004",
        "animals-train.tfrecord-00002-of-00004",
    ]
    before = {path: path.stat().st_mtime_ns for path in target.rglob("*-of-*")}
    report = restore(at(pins, data), None, target)
    assert [file.path for file in report.files if file.source is None] == [file.path for file in first.files]
    assert report.num_bytes_copied == report.num_bytes - first.num_bytes
    assert {path: path.stat().st_mtime_ns for path in before} == before
    shutil.rmtree(data)
    assert restore(at(pins, data), None, target).copied == ()


def test_wrong_locations_are_skipped_and_reported(pins: PinFile, data: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(data, tmp_path / "other"))
    third = Path(shutil.copytree(data, tmp_path / "third"))
    good = (data / SHARD).read_bytes()
    (data / SHARD).unlink()
    (other / SHARD).write_bytes(good[:-1])
    bad = flip(third / SHARD)
    fourth = Path(shutil.copytree(pins["train"].store().local_root.parent.parent, tmp_path / "fourth"))  # type: ignore[union-attr]
    report = restore(at(pins, data, other, third, fourth), ["train"], tmp_path / "restored")
    reported = {file.path: file.problems for file in report.files if file.problems}
    assert reported == {
        SHARD: (
            f"{data / SHARD}: no such file",
            f"{other / SHARD}: expected {len(good)} bytes, found {len(good) - 1}",
            f"{third / SHARD}: sha256 mismatch: expected {hashlib.sha256(good).hexdigest()}, found {bad}",
        )
    }
    assert (tmp_path / "restored" / SHARD).read_bytes() == good


def test_without_intact_bytes_every_location_is_reported_and_the_rest_is_restored(
    pins: PinFile, data: Path, tmp_path: Path
) -> None:
    target = tmp_path / "restored"
    good = (data / SHARD).read_bytes()
    sha256 = hashlib.sha256(good).hexdigest()
    bad = flip(data / SHARD)
    with pytest.raises(ShardMismatchError) as caught:
        restore(at(pins, tmp_path / "empty", data), ["train"], target)
    first = (
        "cannot find 1 pinned file with the pinned content"
        f"\n  {SHARD} (sha256:{sha256}, {len(good)} bytes)"
        f"\n    {tmp_path / 'empty' / SHARD}: no such file"
    )
    assert str(caught.value) == f"{first}\n    {data / SHARD}: sha256 mismatch: expected {sha256}, found {bad}"
    assert caught.value.hint == (
        "Name a folder that contains them with data_dir=DIR, or download them yourself: "
        "the right files have the sha256 above. From a catalog: registry pin restore FILE --to DIR --catalog URL"
    )
    assert caught.value.exit_code == 5
    assert len(tree(target)) == 2
    (data / SHARD).unlink()
    with pytest.raises(NotStoredError) as missing:
        restore(at(pins, tmp_path / "empty", data), ["train"], target)
    assert str(missing.value) == f"{first}\n    {data / SHARD}: no such file"
    assert len(tree(target)) == 2
    (data / SHARD).write_bytes(good)
    assert [file.path for file in restore(at(pins, data), ["train"], target).copied] == [SHARD]


def test_wrong_files_in_the_target_are_replaced_only_on_request(pins: PinFile, data: Path, tmp_path: Path) -> None:
    target = tmp_path / "restored"
    (target / SHARD).parent.mkdir(parents=True)
    (target / SHARD).write_bytes(b"mine")
    with pytest.raises(AlreadyStoredError) as caught:
        restore(at(pins, data), None, target)
    assert str(caught.value) == f"1 file exists with other bytes than the pinned ones\n  {target / SHARD}"
    assert caught.value.hint == "Choose another folder, or replace them with force=True."
    assert tree(target) == {SHARD: b"mine"}
    assert len(restore(at(pins, data), None, target, force=True).copied) == 7
    flip(target / SHARD)
    assert [one.path for one in restore(at(pins, data), None, target, force=True).copied] == [SHARD]
    assert (target / SHARD).read_bytes() == (data / SHARD).read_bytes()


def test_a_damaged_data_directory_is_mended_in_place(pins: PinFile, data: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(data, tmp_path / "other"))
    bad = flip(data / SHARD)
    report = restore(at(pins, data, other), ["train"], data, force=True)
    good = hashlib.sha256((other / SHARD).read_bytes()).hexdigest()
    assert [(file.path, file.source, file.problems) for file in report.copied] == [
        (SHARD, str(other / SHARD), (f"{data / SHARD}: sha256 mismatch: expected {good}, found {bad}",))
    ]
    assert tree(data) == tree(other)


def test_a_dry_run_writes_nothing(pins: PinFile, data: Path, tmp_path: Path) -> None:
    target = tmp_path / "restored"
    report = restore(at(pins, data), None, target, dry_run=True)
    assert not target.exists()
    assert report.dry_run
    assert len(report.copied) == 7
    assert {file.source for file in report.copied} == {str(data / file.path) for file in report.files}
    with pytest.raises(NotStoredError, match="cannot find 7 pinned files with"):
        restore(at(pins, tmp_path / "empty"), None, target, dry_run=True)


def test_a_restore_without_results_leaves_no_folders(pins: PinFile, data: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "restored"
    with pytest.raises(NotStoredError, match="cannot find 3 pinned files with"):
        restore(at(pins, tmp_path / "empty"), ["train"], target)
    assert not target.parent.exists()
    for path in (data / SHARD).parent.iterdir():
        if path.is_file():
            flip(path)
    with pytest.raises(ShardMismatchError, match="cannot find 3 pinned files with"):
        restore(at(pins, data), ["train"], target)
    assert not target.parent.exists()
    target.mkdir(parents=True)
    with pytest.raises(ShardMismatchError, match="cannot find 5 pinned files with"):
        restore(at(pins, data), None, target)
    assert {path.name for path in target.rglob("*")} == {
        "beasts",
        "wild",
        "1.0.0",
        "beasts-train.tfrecord-00000-of-00002",
        "beasts-train.tfrecord-00001-of-00002",
    }
    (tmp_path / "other").mkdir()
    with pytest.raises(ShardMismatchError):
        restore(at(pins, data), ["train"], tmp_path / "other")
    assert list((tmp_path / "other").iterdir()) == [], "what was there stays"


def test_names_of_pins(pins: PinFile, data: Path, tmp_path: Path) -> None:
    assert [one.name for one in pins.choose(["train", "train[60%:]+test[:2]"])] == ["train", "rest"]
    with pytest.raises(PinNotFoundError):
        restore(at(pins, data), ["tran"], tmp_path / "restored")


def test_no_name_of_a_pin_leaves_the_target(pins: PinFile, data: Path, tmp_path: Path) -> None:
    for name in ("../../../out", "/etc/passwd", "..", "a\\b", "a\0b"):
        entry = pins["wild"].entry
        files = tuple(file.model_copy(update={"name": name}) for file in entry.files)
        hostile = PinFile(
            pins.content,
            pins.document.model_copy(update={"pins": (entry.model_copy(update={"files": files}),)}),
            at(pins, data).places,
        )
        with pytest.raises(StorageError, match="does not name a file inside its store"):
            restore(hostile, None, tmp_path / "restored")
    (tmp_path / "restored").mkdir()
    (tmp_path / "restored" / "animals").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(StorageError, match="leads out of"):
        restore(at(pins, data), ["train"], tmp_path / "restored")
    assert tree(tmp_path / "elsewhere") == {}


def test_a_target_that_cannot_be_written_is_not_blamed_on_the_sources(
    pins: PinFile, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file"):
        restore(at(pins, data), None, tmp_path / "file" / "restored")
    target = tmp_path / "restored"
    (target / "animals").mkdir(parents=True)
    (target / "animals" / "1.0.0").write_bytes(b"")
    with pytest.raises(StorageError, match=r"animals/1\.0\.0"):
        restore(at(pins, data), ["train"], target)


def test_a_restore_into_an_object_store(pins: PinFile, data: Path) -> None:
    report = restore(at(pins, data), None, "memory://restored")
    store = open_store("memory://restored")
    assert store.list() == [file.path for file in report.files]
    assert store.read_bytes(SHARD) == (data / SHARD).read_bytes()
    assert restore(at(pins, named=data), None, "memory://restored").copied == ()


def test_two_restores_at_once(pins: PinFile, data: Path, tmp_path: Path) -> None:
    target, reports = tmp_path / "restored", []
    threads = [threading.Thread(target=lambda: reports.append(restore(at(pins, data), None, target))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(len(report.copied) for report in reports) == [0, 0, 0, 7]


# --- locations of single files, and web servers ---


@pytest.fixture
def loose(data: Path, tmp_path: Path) -> Path:
    """All files in one folder with a name that must be quoted in a URL."""
    folder = tmp_path / "loose files #1"
    folder.mkdir()
    for path in data.rglob("*-of-*"):
        shutil.copy(path, folder / path.name)
    return folder


def test_locations_of_single_files(catalog: Catalog, loose: Path, tmp_path: Path) -> None:
    pins = pin(
        catalog,
        WANTED,
        places=Places(allowed=AGREED),
        file_locations=["file:///nowhere", f"file://{quote(str(loose))}"],
    )
    report = restore(pins, None, tmp_path / "restored")
    assert [file.source for file in report.files] == [
        str(loose / file.path.rpartition("/")[2]) for file in report.files
    ]
    assert {file.problems[0] for file in report.files} == {
        f"/nowhere/{file.path.rpartition('/')[2]}: no such file" for file in report.files
    }
    named = PinFile.from_yaml(pins.to_yaml().encode(), "pins", places=Places(data_dir=str(tmp_path / "empty")))
    with pytest.raises(NotStoredError):  # one folder was named, so nowhere else is looked
        restore(named, None, tmp_path / "again")


@pytest.mark.parametrize("manner", ["plain", "ranges"])
def test_files_are_fetched_from_a_web_server(
    catalog: Catalog, loose: Path, data: Path, tmp_path: Path, manner: Manner
) -> None:
    with serve(tmp_path, manner) as url:
        pins = pin(
            catalog,
            {"train": WANTED["train"]},
            places=Places(allowed=AGREED),
            file_locations=[f"{url}/{quote(loose.name)}"],
        )
        report = restore(pins, None, tmp_path / "restored")
        assert {file.source for file in report.files} == {
            f"{url}/loose%20files%20%231/{file.path.rpartition('/')[2]}" for file in report.files
        }
        whole = pin(catalog, WANTED, places=Places(allowed=AGREED), locations=[f"{url}/data/animals/1.0.0"])
        assert len(restore(whole, ["rest"], tmp_path / "whole").copied) == 3
        assert tree(tmp_path / "whole") == {
            name: content for name, content in tree(data).items() if name in tree(tmp_path / "whole")
        }


@pytest.mark.parametrize(
    ("manner", "problem"),
    [
        ("error", "the server answered 503 Out of order"),
        ("no length", "the server does not report its size"),
        ("plain", "no such file"),
    ],
)
def test_faults_of_a_web_server_are_reported(
    catalog: Catalog, data: Path, tmp_path: Path, manner: Manner, problem: str
) -> None:
    with serve(data / "beasts" if manner == "plain" else data / "animals" / "1.0.0", manner) as url:
        pins = pin(
            catalog, {"train": ("animals:1.0.0", "train[:5]")}, places=Places(allowed=AGREED), file_locations=[url]
        )
        with pytest.raises(StorageError) as caught:
            restore(pins, None, tmp_path / "restored")
    assert (type(caught.value), caught.value.exit_code) == (
        (StorageUnavailableError, 75) if manner == "error" else (NotStoredError, 1)
    )
    file = pins["train"].entry.files[0]
    place = f"{url}/{file.name}"
    assert str(caught.value) == (
        "cannot find 1 pinned file with the pinned content"
        f"\n  animals/1.0.0/{file.name} ({file.sha256}, {file.num_bytes} bytes)"
        f"\n    {place}: {problem}"
    )


def test_a_truncated_response_is_reported(catalog: Catalog, data: Path, tmp_path: Path) -> None:
    with serve(data / "animals" / "1.0.0", "cut") as url:
        pins = pin(
            catalog, {"train": ("animals:1.0.0", "train[:5]")}, places=Places(allowed=AGREED), file_locations=[url]
        )
        with pytest.raises(StorageUnavailableError) as caught:
            restore(pins, None, tmp_path / "restored")
    place = f"{url}/animals-train.tfrecord-00000-of-00004"
    assert str(caught.value).endswith(f"\n    {place}: the server ended the response too early")
    assert tree(tmp_path / "restored") == {}


def test_an_unreachable_server_is_reported(catalog: Catalog, tmp_path: Path) -> None:
    with serve(tmp_path) as url:
        pass
    pins = pin(catalog, {"train": ("animals:1.0.0", "train[:5]")}, places=Places(allowed=AGREED), file_locations=[url])
    with pytest.raises(StorageUnavailableError, match="the server cannot be reached"):
        restore(pins, None, tmp_path / "restored")
    folder = pin(catalog, {"train": ("animals:1.0.0", "train[:5]")}, places=Places(allowed=AGREED), locations=[url])
    with pytest.raises(StorageUnavailableError, match="the server cannot be reached"):
        folder["train"].verify()


@pytest.mark.parametrize(
    ("manner", "problem"),
    [
        ("silent", "the server sent nothing for 0.5 seconds"),
        ("stall", "the server sent nothing for 0.5 seconds"),
        ("drip", r"the server sent \d+ bytes in \d+ seconds"),
    ],
)
def test_a_silent_server_times_out(
    catalog: Catalog, data: Path, tmp_path: Path, manner: Manner, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_READ_TIMEOUT", "0.5")
    with serve(data / "animals" / "1.0.0", manner) as url:
        pins = pin(
            catalog, {"train": ("animals:1.0.0", "train[:5]")}, places=Places(allowed=AGREED), file_locations=[url]
        )
        with pytest.raises(StorageUnavailableError) as caught:
            restore(pins, None, tmp_path / "restored")
        place = f"{url}/animals-train.tfrecord-00000-of-00004"
        assert re.search(rf"\n    {re.escape(place)}: {problem}\Z", str(caught.value))
        if manner == "silent":
            with pytest.raises(StorageError) as size:
                open_store(url).size("file")
            assert str(size.value) == f"cannot read {url}/file: {problem}"
            assert size.value.errno == errno.ETIMEDOUT


def test_reading_from_the_middle_of_a_file_on_a_web_server(tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "file").write_bytes(content)
    with serve(tmp_path, "ranges") as url, open_store(url).open("file") as file:
        file.seek(2_500_000)
        assert file.read() == content[2_500_000:]
        file.seek(10)
        assert file.read(20) == content[10:30]
    with serve(tmp_path, "plain") as url:
        store = open_store(url)
        assert store.read_bytes("file") == content
        assert store.size("file") == len(content)
        with store.open("file") as file:
            file.seek(2_500_000)
            with pytest.raises(StorageError, match="does not support range requests"):
                file.read(1)
        with pytest.raises(StorageError, match="a web server is read-only"):
            store.create("new")
        with pytest.raises(StorageError, match="a web server is read-only"):
            store.remove_tree("file")


def test_without_aiohttp_the_extra_is_named(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.implementations.http", None)
    with pytest.raises(MissingExtraError) as caught:
        open_store("https://ann:secret@example.org/data")
    assert str(caught.value) == (
        "reading https://***@example.org/data needs the package 'aiohttp', which is not installed"
    )
    assert caught.value.hint == "Install it with: pip install 'shardbook[http]'"
    pins = pin(
        catalog,
        {"train": ("animals:1.0.0", "train[:5]")},
        places=Places(allowed=AGREED),
        locations=["https://example.org/data"],
    )
    with pytest.raises(NotStoredError) as missing:
        restore(pins, None, tmp_path / "restored")
    assert str(missing.value).splitlines()[2:] == [
        "    https://example.org/data: reading https://example.org/data needs the package 'aiohttp', which is not "
        "installed"
    ]
    assert missing.value.hint == "Install it with: pip install 'shardbook[http]'"
    with pytest.raises(NotStoredError) as unread:
        pins["train"].verify()
    assert str(unread.value).splitlines()[-1] == (
        "  https://example.org/data: reading https://example.org/data needs the package 'aiohttp', which is not "
        "installed"
    )
    assert unread.value.hint == "Install it with: pip install 'shardbook[http]'"


# --- killed ---

RESTORE = """
import sys
from registry.pins import PinFile, Places
from registry.pins.restore import restore

pins = PinFile.load(sys.argv[1], places=Places(data_dirs=(sys.argv[2],)))
print("begun", flush=True)
restore(pins, None, sys.argv[3], threads=1, allow_hosts=["127.0.0.1"])
"""


def test_a_killed_restore_is_resumed(catalog: Catalog, data: Path, tmp_path: Path) -> None:
    target = tmp_path / "restored"
    some = tmp_path / "some"
    (some / SHARD).parent.mkdir(parents=True)
    shutil.copy(data / SHARD, some / SHARD)
    with serve(data / "animals" / "1.0.0", "stall") as url:
        pins = pin(catalog, {"train": WANTED["train"]}, places=Places(allowed=AGREED), file_locations=[url])
        path = pins.save(tmp_path / "dataset.lock.yaml")
        (target / SHARD).parent.mkdir(parents=True)
        shutil.copy(data / SHARD, target / SHARD)
        process = warm_python.Popen(
            [sys.executable, "-c", RESTORE, path, str(some), str(target)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "begun\n"
        while not any((target / "animals" / "1.0.0").glob("incomplete.*")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    left = tree(target)
    assert len(left) == 2
    assert left[SHARD] == (data / SHARD).read_bytes()
    found = PinFile.load(path, places=Places(data_dirs=(str(data),)))
    report = restore(found, None, target)
    assert len(report.copied) == 2
    assert tree(target) == {
        file.path: (data / file.path).read_bytes() for file in list_files(pin.entry for pin in pins.values())
    }
