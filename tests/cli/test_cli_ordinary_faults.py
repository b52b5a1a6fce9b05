"""Faults that a network or a disk can cause end every command with a typed error, a hint and nothing half-written."""

from __future__ import annotations

import errno
import io
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from registry.storage import local
from registry.storage.faults import RawFile

from .conftest import Ran

Cli = Callable[..., Ran]
NOBODY = 65534

WRITES = {
    "build": ["build", "digits", "--rebuild", "--data-dir", "{to}/data"],
    "export tfds": ["export", "tfds", "digits", "{to}/out"],
    "export croissant": ["export", "croissant", "digits", "-o", "{to}/croissant.json"],
    "pin create": ["pin", "create", "digits", "train[:10%]", "-o", "{to}/new.lock.yaml"],
    "pin bundle": ["pin", "bundle", "{pin}", "-o", "{to}/paper.tar"],
    "pin restore": ["pin", "restore", "{pin}", "--to", "{to}/restored"],
    "pin keygen": ["pin", "keygen", "{to}/paper.key"],
}
"""Commands that write below ``{to}``; ``{pin}`` is a pin file."""


@pytest.fixture
def pinned(digits: Cli, workspace: Path) -> tuple[Cli, Path]:
    """The command line, and a pin of ``digits``."""
    path = workspace / "dataset.lock.yaml"
    assert digits("pin", "create", "digits", "train[:30%]", "-o", str(path)).code == 0
    return digits, path


def run_in(cli: Cli, arguments: list[str], *, to: Path, pin: Path) -> Ran:
    return cli(*(argument.format(to=to, pin=pin) for argument in arguments))


def check_fault(ran: Ran, message: str, *, code: int = 1) -> None:
    assert ran.code == code, ran.err
    assert "fault of the registry" not in ran.err
    assert "Traceback" not in ran.err
    assert message in ran.err
    assert "\nhint: " in ran.err


def visible_names(folder: Path) -> list[str]:
    """Files in ``folder`` and below that a reader would take for finished."""
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return sorted(str(name) for name in names if not any(part.startswith("incomplete.") for part in name.parts))


@pytest.fixture
def full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on a disk without free space: a tmpfs, or, if the tests may not mount one, files that refuse bytes."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "false", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    if mount and subprocess.run(command, capture_output=True, check=False).returncode == 0:
        with (folder / "ballast").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            any(file.write(bytes(4096)) == 0 for _ in range(100))
        yield folder
        subprocess.run(["umount", folder], check=True)
        return

    class Full(io.FileIO):
        def write(self, _: Any) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open_full(path: str, mode: str) -> RawFile:
        is_full = "x" in mode and path.startswith(str(folder))
        return Full(path, mode) if is_full else io.FileIO(path, mode)

    (folder / "ballast").touch()
    monkeypatch.setattr(local, "open_raw", open_full)
    yield folder


@pytest.mark.parametrize("command", WRITES)
def test_a_full_disk(pinned: tuple[Cli, Path], full_disk: Path, command: str) -> None:
    cli, pin = pinned
    ran = run_in(cli, WRITES[command], to=full_disk, pin=pin)
    # 1, not 75: the same command fails again until somebody frees space.
    check_fault(ran, "No space left on device")
    assert "cannot write " in ran.err
    assert visible_names(full_disk) == ["ballast"]


@pytest.fixture
def open_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that every user of this machine can enter; pytest's own folders are private."""
    folder = Path(tempfile.mkdtemp(prefix="registry-"))
    folder.chmod(0o777)
    monkeypatch.setenv("REGISTRY_CACHE", str(folder / "cache"))
    yield folder
    for path in folder.rglob("*"):
        if path.is_dir():
            path.chmod(0o700)
    shutil.rmtree(folder)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run the block without the rights of root, who may read and write everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public_digits(pinned: tuple[Cli, Path], open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Cli, Path]:
    """The command line on a copy of digits and its pin that belongs to an unprivileged user."""
    cli, pin = pinned
    shutil.copytree(pin.parent, open_folder, dirs_exist_ok=True)
    monkeypatch.setenv("REGISTRY_CATALOG", str(open_folder / "catalog.db"))
    if os.geteuid() == 0:
        for path in [open_folder, *open_folder.rglob("*")]:
            os.chown(path, NOBODY, NOBODY)
    return cli, open_folder


@pytest.mark.parametrize("command", WRITES)
def test_a_folder_without_write_permission(public_digits: tuple[Cli, Path], command: str) -> None:
    cli, folder = public_digits
    target = folder / "private"
    target.mkdir()
    target.chmod(0o555)
    with unprivileged():
        ran = run_in(cli, WRITES[command], to=target, pin=folder / "dataset.lock.yaml")
    check_fault(ran, "Permission denied")
    assert "hint: Permission is missing. Check who owns the file and its folder, or choose another" in ran.err
    assert visible_names(target) == []


READS = {
    "read": (["read", "digits", "train[:3]"], 1),
    "verify": (["verify", "digits"], 5),
    "pin verify": (["pin", "verify", "{pin}"], 1),
    "pin read": (["pin", "read", "{pin}", "train", "--take", "3"], 1),
    "pin bundle": (["pin", "bundle", "{pin}", "-o", "{to}/paper.tar"], 1),
    "export tfds": (["export", "tfds", "digits", "{to}/out"], 1),
    "import tfds": (["import", "tfds", "{to}/datasets/digits", "--catalog", "{to}/other.db"], 5),
}


@pytest.mark.parametrize("command", READS)
def test_a_shard_without_read_permission(public_digits: tuple[Cli, Path], command: str) -> None:
    cli, folder = public_digits
    arguments, code = READS[command]
    run_in(cli, arguments, to=folder / "warm", pin=folder / "dataset.lock.yaml")  # imports modules that only root reads
    (folder / "datasets/digits/1.0.0/digits-train.tfrecord-00000-of-00004").chmod(0)
    with unprivileged():
        ran = run_in(cli, arguments, to=folder, pin=folder / "dataset.lock.yaml")
    assert ran.code == code, ran.err
    assert "Permission denied" in ran.out + ran.err
    assert "fault of the registry" not in ran.err
    assert "Fetch or build" not in ran.out + ran.err  # the file may be sound
    assert not (folder / "paper.tar").exists()
    assert not (folder / "out/digits/1.0.0").exists()


@pytest.mark.parametrize("command", WRITES)
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("a file", ("Not a directory", "is a file", "File exists", "does not exist")),
        ("long", ("File name too long",)),
    ],
)
def test_a_path_that_no_folder_can_have(
    pinned: tuple[Cli, Path], tmp_path: Path, command: str, kind: str, reason: tuple[str, ...]
) -> None:
    cli, pin = pinned
    target = tmp_path / ("file" if kind == "a file" else "x" * 300)
    if kind == "a file":
        target.write_bytes(b"content")
    ran = run_in(cli, WRITES[command], to=target, pin=pin)
    check_fault(ran, str(target), code=ran.code)
    assert ran.code in (1, 2)  # 2: the command has looked at the folder before any work
    assert any(text in ran.err for text in reason)
    if kind == "a file":
        assert target.read_bytes() == b"content"


@pytest.mark.parametrize(
    "arguments",
    [
        ["pin", "verify", "{to}"],
        ["pin", "create", "digits", "train", "-o", "{to}"],
        ["export", "croissant", "digits", "-o", "{to}"],
        ["pin", "bundle", "{pin}", "-o", "{to}"],
        ["pin", "sign", "{pin}", "--key", "{to}"],
    ],
)
def test_a_folder_where_a_file_should_be(pinned: tuple[Cli, Path], tmp_path: Path, arguments: list[str]) -> None:
    cli, pin = pinned
    folder = tmp_path / "folder"
    folder.mkdir()
    ran = run_in(cli, arguments, to=folder, pin=pin)
    check_fault(ran, str(folder), code=ran.code)
    assert ran.code in (1, 2)  # 2: click has looked at the option
    assert list(folder.iterdir()) == []


NETWORK = {
    "import tfds": ["import", "tfds", "{url}/digits/1.0.0"],
    "import parquet": ["import", "parquet", "{url}/table", "--name", "table", "--version", "1.0.0"],
    "publish": ["publish", "{url}/digits/1.0.0"],
    "pin verify": ["pin", "verify", "{pin}", "--data-dir", "{url}"],
}


@pytest.fixture(params=["refused", "silent", "unknown host"])
def dead_host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that refuses connections, accepts them and never answers, or has no address."""
    for name, value in (("CONNECT_TIMEOUT", "0.5"), ("READ_TIMEOUT", "0.2"), ("TRIES", "2")):
        monkeypatch.setenv(f"REGISTRY_{name}", value)
    if request.param == "silent":
        with socket.create_server(("127.0.0.1", 0)) as server:
            yield f"127.0.0.1:{server.getsockname()[1]}"
    else:
        yield "127.0.0.1:9" if request.param == "refused" else "host.invalid"


@pytest.mark.parametrize("command", NETWORK)
@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_a_server_that_does_not_answer(
    pinned: tuple[Cli, Path], dead_host: str, scheme: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli, pin = pinned
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{dead_host}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tester")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    url = f"http://{dead_host}/data" if scheme == "http" else "s3://bucket/data"
    ran = cli(*(argument.format(url=url, pin=pin) for argument in NETWORK[command]))
    check_fault(ran, f"{url}", code=75)
    assert "Try again later." in ran.err or command == "pin verify"  # which may find the files in another folder
