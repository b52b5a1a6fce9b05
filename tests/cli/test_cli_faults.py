"""Faults of the disk, the network, the database and authors: a message with its cause, and never "report it"."""

from __future__ import annotations

import errno
import http.client
import os
import shutil
import socket
import sqlite3
import ssl
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from support import warm_python

from registry.cli.faults import describe_failure

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

PROGRAM = str(Path(sys.executable).parent / "registry")
OURS = "fault of the registry"


DESCRIBED: dict[str, tuple[BaseException, int, str]] = {
    "a full disk": (OSError(errno.ENOSPC, "No space left on device", "x.db"), 1, "x.db: No space left on device"),
    "a used-up quota": (OSError(errno.EDQUOT, "Disk quota exceeded", "x"), 1, "x: Disk quota exceeded"),
    "a limit of file sizes": (OSError(errno.EFBIG, "File too large"), 1, "File too large"),
    "no permission": (PermissionError(errno.EACCES, "Permission denied", "/x"), 1, "/x: Permission denied"),
    "not the owner": (PermissionError(errno.EPERM, "Operation not permitted", "/x"), 1, "/x: Operation not permitted"),
    "a read-only disk": (OSError(errno.EROFS, "Read-only file system", "/x"), 1, "/x: Read-only file system"),
    "no descriptors left": (OSError(errno.EMFILE, "Too many open files"), 1, "Too many open files"),
    "no such file": (FileNotFoundError(errno.ENOENT, "No such file or directory", b"/x"), 1, "/x: No such file"),
    "an error without a number": (OSError("odd"), 1, "odd"),
    "a refused connection": (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), 75, "refused"),
    "a closed connection": (ConnectionResetError(errno.ECONNRESET, "Connection reset"), 75, "Connection reset"),
    "silence": (TimeoutError("timed out"), 75, "timed out"),
    "an unknown host": (socket.gaierror(-2, "Name or service not known"), 75, "Name or service not known"),
    "a certificate": (ssl.SSLError(1, "CERTIFICATE_VERIFY_FAILED"), 75, "CERTIFICATE_VERIFY_FAILED"),
    "half an answer": (http.client.IncompleteRead(b"x"), 75, "the network failed: IncompleteRead"),
    "no memory": (MemoryError(), 75, "not enough memory"),
    "no thread": (RuntimeError("can't start new thread"), 75, "the system cannot start a thread"),
    "another encoding": (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), 1, "a file is not valid utf-8"),
    "an odd argument": (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates"), 1, "a text is not valid Unicode"),
    "deep nesting": (RecursionError("maximum recursion depth exceeded"), 1, "a file or a value is nested too deeply"),
    "a missing module": (ModuleNotFoundError("No module named 'rich'"), 1, "ModuleNotFoundError: No module named"),
    "a lost database": (sa.exc.OperationalError("select 1", {}, Exception("gone")), 75, "the database refuses"),
    "a refused statement": (sa.exc.ProgrammingError("select", {}, Exception("no")), 1, "the database refuses"),
    "a locked database": (sqlite3.OperationalError("database is locked"), 75, "the database refuses"),
    "several at once": (ExceptionGroup("many", [TimeoutError("timed out")]), 75, "timed out"),
    "Ctrl-C": (KeyboardInterrupt(), 130, "interrupted"),
}


@pytest.mark.parametrize("cause", DESCRIBED)
def test_a_fault_from_outside_is_described_by_its_cause(cause: str) -> None:
    error, exit_code, message = DESCRIBED[cause]
    found = describe_failure(error)
    assert found.message.startswith(message)
    assert found.exit_code == exit_code
    assert OURS not in found.hint


def test_a_removed_working_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    error = FileNotFoundError(errno.ENOENT, "No such file or directory")
    assert describe_failure(error).message == "No such file or directory"
    folder = tmp_path / "removed"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert describe_failure(error).message == "the current folder was removed"


def test_a_requests_error_is_an_error_of_the_network() -> None:
    requests = pytest.importorskip("requests")
    for kind in (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError):
        assert describe_failure(kind("no answer")).exit_code == 75


def test_only_a_broken_invariant_is_reported() -> None:
    assert OURS in str(describe_failure(AssertionError("two rows of one version")).hint)
    assert OURS in str(describe_failure(KeyError("gears")).hint)


AUTHOR = """
from registry import DatasetBuilder
from registry.features import FeaturesDict

class Author(DatasetBuilder):
    VERSION = "1.0.0"
    def __init__(self, **options):
        super().__init__(**options)
        {start}
    def features(self):
        {features}
        return FeaturesDict({{"number": "int64"}})
    def splits(self):
        {splits}
        return {{"train": [(n, {{"number": n}}) for n in range(3)]}}
"""


@pytest.mark.parametrize("place", ["start", "features", "splits"])
@pytest.mark.parametrize(
    "statement",
    ["raise KeyError('page')", "raise AssertionError('odd')", "raise RuntimeError", "open('/no/such/file')"],
)
def test_an_author_is_told_the_line_of_the_own_file(
    cli: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch, place: str, statement: str
) -> None:
    lines = {"start": "pass", "features": "pass", "splits": "pass"} | {place: statement}
    source = AUTHOR.format(**lines)
    module = f"author_{place}_{abs(hash(statement))}"
    (workspace / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(str(workspace))
    ran = cli("build", f"{module}:Author")
    line = 1 + source.splitlines().index(f"        {statement}")
    assert ran.code == 1
    assert f"{workspace}/{module}.py, line {line}" in ran.err
    assert OURS not in ran.err


def test_a_fault_in_a_module_of_an_author_is_the_authors(workspace: Path) -> None:
    path = workspace / "theirs.py"
    path.write_text("def fail():\n    return {}['gears']\n")
    module = types.ModuleType("theirs")
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)  # noqa: S102 (our own words)
    with pytest.raises(KeyError) as caught:
        module.fail()
    found = describe_failure(caught.value)
    assert found.message == f"KeyError: 'gears' ({path}, line 2)"
    assert found.hint == f"Correct {path}. Set REGISTRY_DEBUG=1 to see the whole traceback."


def run_as_nobody(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """One command line of a user without rights."""
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0:
        command = [PROGRAM, *arguments]
    elif setpriv is None:
        pytest.skip("the tests run as root, and there is no setpriv")
    else:
        command = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", PROGRAM, *arguments]
    environment = {**os.environ, "HOME": str(cwd), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment)


@pytest.fixture
def open_workspace(digits: Cli, workspace: Path) -> Path:
    """The workspace with the digits, and folders above it that everybody may enter."""
    for folder in workspace.parents:
        if folder.owner() == "root" and not folder.stat().st_mode & 1 and len(folder.parts) > 2:
            folder.chmod(folder.stat().st_mode | 0o011)
    workspace.chmod(0o755)
    return workspace


PROTECTED = {
    "a catalog in a folder that is read-only": (["alias", "set", "paper", "digits"], "", 1),
    "an output in a folder that is read-only": (["export", "croissant", "digits", "-o", "out.json"], "", 1),
    "a pin in a folder that is read-only": (["pin", "create", "digits", "train"], "", 1),
    "a data directory that is read-only": (["build", "digits", "--catalog", "other/catalog.db"], "", 1),
    "shards that may not be read": (["read", "digits", "train", "--limit", "1"], "shards", 1),
    "shards that may not be verified": (["verify", "digits"], "shards", 5),
    "a catalog that may not be read": (["list"], "catalog", 1),
    "a pin file that may not be read": (["pin", "show", "secret.yaml"], "", 2),
    "references that may not be read": (["promote", "digits", "--uses", "secret.yaml"], "", 2),
    "a key that may not be read": (["pin", "sign", "readme.yaml", "--key", "secret.yaml"], "", 2),
}


@pytest.mark.parametrize("case", PROTECTED)
def test_a_missing_permission_is_said(open_workspace: Path, case: str) -> None:
    arguments, closed, code = PROTECTED[case]
    secret = open_workspace / "secret.yaml"
    secret.write_text("version: 1\n")
    secret.chmod(0o600)
    (open_workspace / "readme.yaml").write_text("version: 1\n")
    if closed == "shards":  # an SQLite catalog is read only where its reader may make the files of its journal
        open_workspace.chmod(0o777)
        (open_workspace / "catalog.db").chmod(0o666)
        for shard in open_workspace.glob("datasets/digits/1.0.0/*tfrecord*"):
            shard.chmod(0o600)
    elif closed == "catalog":
        (open_workspace / "catalog.db").chmod(0o600)
    ran = run_as_nobody(*arguments, cwd=open_workspace)
    assert "Traceback" not in ran.stderr, ran.stderr
    assert OURS not in ran.stderr, ran.stderr
    assert ran.returncode == code, (ran.returncode, ran.stderr)
    assert code == 5 or "hint: " in ran.stderr, ran.stderr


FULL = {
    "list": ["list", "--format", "json"],
    "show": ["show", "digits"],
    "read": ["read", "digits", "train"],
    "help": ["--help"],
    "completion": ["completion", "bash"],
}


@pytest.mark.parametrize("case", FULL)
def test_a_full_disk_is_said(digits: Cli, workspace: Path, case: str) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 (a device)
        ran = warm_python.run([PROGRAM, *FULL[case]], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == 1, ran.stderr
    assert "Traceback" not in ran.stderr
    assert OURS not in ran.stderr, ran.stderr
    assert "no space is left in /dev, to which the output is written" in ran.stderr
    assert "Free some space, or write to another disk." in ran.stderr


def test_few_descriptors_are_said(digits: Cli, workspace: Path) -> None:
    script = (
        "import resource, sys\n"
        "import registry.cli.main, registry.api, registry.catalog, registry.reading, registry.publishing\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))\n"
        "registry.cli.main.main()\n"
    )
    for arguments in (["list"], ["verify", "digits"], ["read", "digits", "train", "--limit", "1"]):
        ran = warm_python.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
        assert "Traceback" not in ran.stderr, ran.stderr
        assert OURS not in ran.stderr, ran.stderr


def test_an_argument_in_another_encoding_is_an_error_of_the_call(digits: Cli) -> None:
    for arguments in (["show", b"dig\xffits"], ["search", b"\xff"], ["alias", "set", b"\xff", "digits"]):
        ran = warm_python.run([PROGRAM, *arguments], capture_output=True, check=False)
        assert ran.returncode in (0, 1, 2, 3), ran.stderr
        assert OURS.encode() not in ran.stderr, ran.stderr
        assert b"Traceback" not in ran.stderr


BROKEN_FILES = {
    "a pin file": ["pin", "show", "broken"],
    "references in use": ["promote", "digits", "--uses", "broken"],
    "a signature": ["pin", "check", "dataset.lock.yaml", "--key", "broken"],
    "a key": ["pin", "sign", "dataset.lock.yaml", "--key", "broken"],
}


@pytest.mark.parametrize("content", [b"\xff\xfe\x00\x01" * 50, b"[" * 100_000, b"", b"{" * 100_000])
@pytest.mark.parametrize("case", BROKEN_FILES)
def test_a_file_that_is_not_text_is_said(digits: Cli, workspace: Path, case: str, content: bytes) -> None:
    (workspace / "broken").write_bytes(content)
    (workspace / "dataset.lock.yaml").write_bytes(b"version: 1\n")
    os.chdir(workspace)
    ran = digits(*BROKEN_FILES[case])
    assert ran.code in (0, 1, 2, 3, 5), ran.err
    assert OURS not in ran.err, ran.err
