"""Grain reads the examples that iterating gives, by number, from threads and processes."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from framework_samples import plain, wide_reader

from registry.features import FeaturesDict
from registry.order import ReadConfig

IDS = FeaturesDict({"id": "int64"})


def test_a_source_holds_what_iterating_gives() -> None:
    reader = wide_reader([6, 3], ReadConfig(shuffle="global", seed=1, add_tfds_id=True))
    source = reader.to_grain()
    expected = [plain(example) for example in reader]
    assert len(source) == 9
    assert [plain(source[place]) for place in range(9)] == expected
    assert [plain(example) for example in source.__getitems__([7, 0])] == [expected[7], expected[0]]
    assert source.__getitems__([]) == []
    assert sum(source[place]["maybe"] is None for place in range(9)) == 6
    with pytest.raises(IndexError, match=r"^index 9 is out of range: there are 9 examples$"):
        source[9]


def test_the_name_of_a_source_tells_reads_apart(tmp_path: Path) -> None:
    names = [
        repr(wide_reader([6, 3], config, where=tmp_path, features=IDS, published="1.0.0", **options).to_grain())
        for config, options in (
            (None, {}),
            (None, {}),
            (ReadConfig(shuffle="global", seed=1), {}),
            (ReadConfig(shuffle="global", seed=2), {}),
            (None, {"process": (0, 2)}),
        )
    ]
    assert names[0] == names[1]
    assert names[0].startswith("<ReaderSource ids:1.0.0 (sha256:0f0f0f0f0f0f) train plan=sha256:")
    assert len(set(names)) == 4
    source = wide_reader([6, 3], where=tmp_path, features=IDS, published="1.0.0").to_grain()
    assert repr(pickle.loads(pickle.dumps(source))) == names[0]  # noqa: S301 (made here)


def test_threads_may_share_a_source() -> None:
    source = wide_reader([300, 500], ReadConfig(shuffle="global", seed=3), features=IDS).to_grain()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda place: int(source[place]["id"]), range(800)))
    assert sorted(found) == list(range(800))


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
from framework_samples import wide_reader
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
    tests = Path(__file__).parent.parent
    samples = [str(tests / "end_to_end"), str(tests / "property")]
    path = os.pathsep.join([*samples, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(tmp_path / "workers.py"), str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.stdout == f"0 {list(range(40))}\n", done.stderr
