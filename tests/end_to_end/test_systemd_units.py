"""The units of docs/samples: systemd accepts them, and what their timers start does its work."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import registry

SAMPLES = Path(__file__).parents[2] / "docs/samples"
PROGRAM = "/opt/registry/bin/registry"
JOBS = ["backup", "verify", "gc"]


def read_unit(name: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # keys of units have capitals
    unit.read_string((SAMPLES / name).read_text())
    return unit


@pytest.mark.parametrize("job", JOBS)
def test_a_timer_starts_a_service_that_ends(job: str) -> None:
    timer, service = read_unit(f"registry-{job}.timer"), read_unit(f"registry-{job}.service")
    assert timer["Install"]["WantedBy"] == "timers.target"
    assert timer["Timer"]["Persistent"] == "true"
    assert "Unit" not in timer["Timer"]  # it starts the service of its name
    assert service["Service"]["Type"] == "oneshot"
    assert "Install" not in service
    for key in ("User", "StateDirectory", "CacheDirectory", "ProtectSystem"):
        assert service["Service"][key] == read_unit("registry.service")["Service"][key]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="the tests above read them without systemd")
def test_systemd_accepts_every_unit(tmp_path: Path) -> None:
    program = tmp_path / "registry"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    units = []
    for path in sorted((*SAMPLES.glob("*.service"), *SAMPLES.glob("*.timer"))):
        copy = tmp_path / path.name
        copy.write_text(path.read_text().replace(PROGRAM, str(program)))
        units.append(str(copy))
    assert len(units) == 1 + 2 * len(JOBS)
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    assert [line for line in result.stderr.splitlines() if str(tmp_path) in line] == []
    assert result.returncode == 0, result.stderr
    for job in JOBS:
        calendar = read_unit(f"registry-{job}.timer")["Timer"]["OnCalendar"]
        subprocess.run(["systemd-analyze", "calendar", calendar], capture_output=True, check=True)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[registry.Catalog]:
    """A catalog with a version, and one that was dropped."""
    with registry.connect(tmp_path / "catalog.db", create=True) as opened:
        opened.add({"number": range(9)}, name="numbers")
        opened.add({"number": range(5)}, name="old")
        opened.lifecycle.drop("old:1.0.0", reason="old")
        yield opened


def run_unit(job: str, catalog: registry.Catalog, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command of a unit as systemd does, with this program, for a catalog in ``folder``."""
    command = read_unit(f"registry-{job}.service")["Service"]["ExecStart"]
    program = folder / "program"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m registry "$@"\n')
    program.chmod(0o755)
    text = command.replace(PROGRAM, str(program)).replace("/srv", str(folder / "srv"))
    text = text.replace("%S", str(folder / "state")).replace("%%", "%").replace("$$", "$")
    for name in ("srv/backups", "state/registry"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "REGISTRY_CATALOG": catalog.url,
        "XDG_CACHE_HOME": str(folder / "cache"),
        "TMPDIR": str(folder / "srv"),
    }
    # systemd splits words as a shell does, if they have no variables
    return subprocess.run(["/bin/sh", "-c", text], env=environment, capture_output=True, text=True, check=False)


def test_the_backup_can_be_restored_and_is_replaced_a_week_later(catalog: registry.Catalog, tmp_path: Path) -> None:
    for _ in range(2):
        result = run_unit("backup", catalog, tmp_path)
        assert result.returncode == 0, result.stderr
    (file,) = (tmp_path / "srv/backups").iterdir()
    assert file.name in {f"catalog-{day}.gz" for day in range(1, 8)}
    registry.restore(file, tmp_path / "restored.db")
    with registry.connect(tmp_path / "restored.db") as restored:
        assert [summary.name for summary in restored.datasets()] == ["numbers", "old"]


def test_the_verification_fails_if_a_file_is_damaged(catalog: registry.Catalog, tmp_path: Path) -> None:
    assert run_unit("verify", catalog, tmp_path).returncode == 0
    assert (tmp_path / "state/registry/verified.json").exists()
    (shard,) = (tmp_path / "datasets/numbers/1.0.0").glob("*.tfrecord*")
    shard.write_bytes(bytes(shard.stat().st_size))
    (tmp_path / "state/registry/verified.jsonl").unlink()
    assert run_unit("verify", catalog, tmp_path).returncode == 5


def test_garbage_is_collected_with_a_retention(catalog: registry.Catalog, tmp_path: Path) -> None:
    result = run_unit("gc", catalog, tmp_path)
    assert result.returncode == 0, result.stderr
    assert "they are kept until" in result.stdout
    assert (tmp_path / "datasets/old/1.0.0").is_dir()
