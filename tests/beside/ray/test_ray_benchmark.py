"""The rows of benchmarks/cluster.py run to their end, and write all records. Nothing is timed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.ray_clusters import MOST_SECONDS

ROOT = Path(__file__).resolve().parents[3]


def test_rows_of_the_benchmark_write_the_same_files_and_a_missing_peer_is_reported(tmp_path: Path) -> None:
    peer = tmp_path / "python"
    command = [sys.executable, str(ROOT / "benchmarks/cluster.py"), "-n", "2000", "--pieces", "4"]
    command += ["--rows", "local 2", "ray 1", "tfds beam", "--peer", str(peer), "--folder", str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=MOST_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    titles, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()]
    local, ray, beam = [dict(zip(titles, row, strict=True)) for row in rows]
    assert (local["row"], ray["row"], beam["row"]) == ("local 2", "ray 1", "tfds beam")
    assert local["records"] == ray["records"] == "2,000"
    assert local["sha256"] == ray["sha256"] != ""
    assert (ray["runs"], ray["spilled MB"]) == ("4", "0")
    assert beam["seconds"] == f"not measured: there is no {peer}; benchmarks/beam_peer.py says how to make it"
    assert list(tmp_path.iterdir()) == [], "files of the rows were left"
