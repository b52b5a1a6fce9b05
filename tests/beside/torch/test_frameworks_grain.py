"""Grain reads the examples that iterating a reader gives, in this process and in worker processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import TESTS
from support.framework_samples import wide_reader

from registry.features import FeaturesDict
from registry.order import ReadConfig

pytestmark = pytest.mark.torch

IDS = FeaturesDict({"id": "int64"})


def test_grain_reads_a_source(tmp_path: Path) -> None:
    grain = pytest.importorskip("grain")
    reader = wide_reader([30, 10], ReadConfig(interleave_block_length=3), where=tmp_path, features=IDS)
    expected = [int(example["id"]) for example in reader]
    source = reader.to_grain()
    mapped = grain.MapDataset.source(source)
    assert [int(example["id"]) for example in mapped] == expected
    batches = mapped.shuffle(seed=1).to_iter_dataset().batch(8)
    assert sorted(int(number) for batch in batches for number in batch["id"]) == list(range(40))
    loader = grain.DataLoader(
        data_source=source,
        sampler=grain.samplers.IndexSampler(num_records=len(source), shuffle=False, num_epochs=1, seed=0),
        worker_count=0,
    )
    assert [int(example["id"]) for example in loader] == expected


WORKERS = """
import sys
from pathlib import Path

import grain
from absl import app
from support.framework_samples import wide_reader
from registry.features import FeaturesDict


def main(arguments):
    source = wide_reader([30, 10], where=Path(arguments[1]), features=FeaturesDict({"id": "int64"})).to_grain()
    first = int(source[0]["id"])
    sampler = grain.samplers.IndexSampler(num_records=len(source), shuffle=True, num_epochs=1, seed=0)
    loader = grain.DataLoader(data_source=source, sampler=sampler, worker_count=2)
    print(first, sorted(int(example["id"]) for example in loader))


if __name__ == "__main__":
    app.run(main)
"""


def test_worker_processes_of_grain_read_a_source(tmp_path: Path) -> None:
    pytest.importorskip("grain")
    (tmp_path / "workers.py").write_text(WORKERS)
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(tmp_path / "workers.py"), str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.stdout == f"0 {list(range(40))}\n", done.stderr
