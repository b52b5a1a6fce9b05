"""No Parquet or ArrayRecord file from a stranger ends the process: each gives values or a typed error.

The files are read by child processes, so that one which does end its process fails this test and not the whole suite.
REGISTRY_MUTATED_FILES=20000 reads that many; the same seeds give the same files.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support import FOLDER, TESTS
from support.levels import either
from support.warm_python import run

NUM_FILES = int(os.environ.get("REGISTRY_MUTATED_FILES", "1500"))
MOST_MEMORY = 2**30
MOST_SECONDS = 3600
"""Of all files: what does not end is ended."""
TYPED = {"values", "shard_mismatch", "corrupt_record", "corrupt_example", "prepared_format"}


def read_files(first: int, count: int, folder: Path, script_name: str = "mutated_files.py") -> dict[str, object]:
    """The report of the child for these seeds; fails with the seed at which the child ended."""
    script = FOLDER / script_name
    done = run(
        [sys.executable, str(script), str(first), str(count), str(folder)],
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    if done.returncode:
        seed = (folder / "seed").read_text().strip() if (folder / "seed").exists() else "none"
        pytest.fail(f"exit code {done.returncode} at seed {seed}:\n{done.stderr[-3000:]}")
    reported: dict[str, object] = json.loads(done.stdout)
    return reported


@pytest.mark.parametrize("number", either(40, NUM_FILES))
def test_every_mutated_file_gives_values_or_a_typed_error(
    tmp_path: Path, record_property: Callable[[str, object], None], number: int
) -> None:
    found = read_files(0, number, tmp_path)
    reported = Counter(found["told"])
    assert found["untyped"] == []
    assert set(reported) <= TYPED, reported
    assert reported.total() == number
    assert reported["values"] > number // 20  # the changes reach deeper than the first check
    assert reported["shard_mismatch"] > number // 20
    assert reported["corrupt_record"] > number // 20
    assert isinstance(found["memory"], int)
    assert found["memory"] < MOST_MEMORY
    record_property("mutated files read, by what they gave", dict(reported.most_common()))


@pytest.mark.parametrize("number", either(25, NUM_FILES))
def test_every_mutated_source_is_added_or_refused_with_its_place(tmp_path: Path, number: int) -> None:
    """Of every kind that ``add`` takes: no other error, nothing published beside one, bounded time and memory."""
    report = read_files(0, number, tmp_path, "mutated_sources.py")
    assert report["untyped"] == []
    assert isinstance(report["memory"], int)
    assert report["memory"] < MOST_MEMORY


def test_a_file_that_kills_the_process_fails_with_its_seed(tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    script.write_text(
        "import os, sys\n"
        f"sys.path.insert(0, {str(TESTS)!r})\n"
        "from pathlib import Path\n"
        "from support.mutated_files import main\n"
        "main(0, 9, Path(sys.argv[1]), lambda seed, _: os.abort() if seed == 5 else 'values')\n"
    )
    done = run([sys.executable, str(script), str(tmp_path)], capture_output=True, timeout=300)
    assert done.returncode == -6
    assert (tmp_path / "seed").read_text().strip() == "5"


@pytest.mark.parametrize("seed", [1846, 4772, 5572, 10855])
def test_a_file_that_once_gave_an_untyped_error(tmp_path: Path, seed: int) -> None:
    """Two columns of one name, an image without bytes, no first row, an extension type that creates no array."""
    found = read_files(seed, 1, tmp_path)
    assert found["untyped"] == []
    assert set(Counter(found["told"])) <= TYPED
