"""Sources that cannot be read as they are: pipes, loops of links, files that vanish or are not readable, holes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.levels import either

import registry
from registry.errors import DatasetNotFoundError, NotStoredError, SourceError, StorageError, UnusableRowsError


def test_pipes_and_loops_of_links_are_accounted_for_and_never_opened(catalog: registry.Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    (folder / "a").mkdir(parents=True)
    (folder / "x.csv").write_text("a\n1\n")
    os.mkfifo(folder / "pipe.csv")
    os.mkfifo(folder / "README.md")
    (folder / "a/back").symlink_to("..")
    (folder / "self.csv").symlink_to("self.csv")
    (folder / "out.csv").symlink_to("/etc/passwd")
    report = catalog.add(folder, "x")
    assert dict(report.splits) == {"train": 1}
    assert {one.name: one.reason for one in report.files if one.role == "skipped"} == {
        "README.md": "a pipe, socket or device",
        "pipe.csv": "a pipe, socket or device",
        "a/back": "a link to a folder",
        "self.csv": "a link that points to itself",
        "out.csv": "a link that leads out of the folder",
    }


def test_a_pipe_or_a_loop_as_the_source_is_refused(catalog: registry.Catalog, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(SourceError, match=r"pipe\.csv is not a file or folder, but a pipe, socket or device"):
        catalog.add(tmp_path / "pipe.csv")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StorageError, match="Too many levels of symbolic links"):
        catalog.add(tmp_path / "loop")
    (tmp_path / "shards").mkdir()
    os.mkfifo(tmp_path / "shards/train.parquet")
    with pytest.raises(StorageError, match=r"cannot read .*/train\.parquet: Not a file"):
        catalog.add(tmp_path / "shards", in_place=True)


def _write(path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"a": [1]}), path)
    elif path.suffix == ".npy":
        np.save(path, np.arange(3))
    elif path.suffix == ".png":
        Image.new("RGB", (4, 4)).save(path)
    else:
        path.write_bytes({".csv": b"a\n1\n", ".jsonl": b'{"a": 1}\n', ".txt": b"text"}[path.suffix])


@pytest.mark.parametrize(
    ("suffix", "error"),
    [
        (".csv", NotStoredError),
        (".jsonl", NotStoredError),
        (".parquet", NotStoredError),
        (".npy", NotStoredError),
        (".png", UnusableRowsError),
        (".txt", UnusableRowsError),
    ],
)
def test_a_file_that_vanishes_between_listing_and_reading_is_named(
    catalog: registry.Catalog, tmp_path: Path, suffix: str, error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("registry.intake.plan.KEPT_BYTES", 0)  # rows of a small text file are kept
    folder = tmp_path / "source"
    folder.mkdir()
    for name in ("a", "b"):
        _write(folder / f"{name}{suffix}")
    addition = catalog.plan_add(folder, "x")
    (folder / f"b{suffix}").unlink()
    with pytest.raises(error, match=rf"b\{suffix}.*No such file or directory"):
        addition.publish()
    with pytest.raises(DatasetNotFoundError):
        catalog.dataset("x")
    assert [path for path in (tmp_path / "data").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("name", either("zeros.jsonl", "zeros.csv"))
def test_four_gigabytes_of_zeros_are_refused_in_bounded_memory(tmp_path: Path, name: str) -> None:
    with (tmp_path / name).open("wb") as file:
        file.truncate(4 * 2**30)
    code = (
        "import sys, registry\n"
        "with registry.connect(sys.argv[1]) as catalog:\n"
        "    try:\n        catalog.add(sys.argv[2])\n"
        "    except registry.errors.RegistryError as error:\n        print(error.code, error.message)\n"
        "with open('/proc/self/status') as file:\n"  # not ru_maxrss, which starts at the memory of the parent process
        "    print(next(line.split()[1] for line in file if line.startswith('VmHWM')))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "catalog.db"), str(tmp_path / name)],
        capture_output=True,
        text=True,
        check=True,
    )
    told, memory = ran.stdout.splitlines()
    assert told == f"source {name}:1: the row that starts here is longer than 67,108,864 bytes"
    assert int(memory) * 1024 < 500_000_000


@pytest.mark.parametrize("place", ["a file", "a folder", "one of two images"])
def test_what_may_not_be_read_is_named(tmp_path: Path, place: str) -> None:
    command = [str(Path(sys.executable).with_name("registry")), "add", "source", "--as", "x"]
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("the tests run as root, and there is no setpriv")
        command[:0] = [setpriv, "--bounding-set=-dac_override,-dac_read_search"]
    folder = tmp_path / "source"
    (folder / "in").mkdir(parents=True)
    if place == "one of two images":
        for name in ("a.png", "b.png"):
            _write(folder / name)
        (folder / "b.png").chmod(0)
        told = "1 row or file cannot be used\n  b.png: it cannot be read: Permission denied"
    else:
        for name in ("a.csv", "in/b.csv"):
            _write(folder / name)
        locked = folder / ("a.csv" if place == "a file" else "in")
        locked.chmod(0)
        told = f"cannot {'read' if place == 'a file' else 'list'} {locked}: Permission denied"
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "REGISTRY_CATALOG": str(tmp_path / "catalog.db"), "REGISTRY_CACHE": str(tmp_path / "cache")},
    )
    (folder / "in").chmod(0o755)
    assert f"error: {told}\n" in ran.stderr
    assert ran.returncode == 1
