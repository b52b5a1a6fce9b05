"""A training loop that is killed at any moment and resumes from its last state sees every record once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from support import warm_python
from support.levels import cases, either

import registry
from registry.features import FeaturesDict

NUM_EXAMPLES = 6000
EVERY = 100

# A training loop: it processes each example, and after every hundredth saves its results together with its position
# in one file, which appears atomically. Work since the last checkpoint is lost with the process. After each checkpoint
# it waits for a line of the test, so that it cannot end before it is killed; at the end of its input, it runs freely.
LOOP = """
import json, os, sys
import registry

catalog, checkpoint, config = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
saved = json.load(open(checkpoint)) if os.path.exists(checkpoint) else {"state": None, "seen": []}
dataset = registry.connect(catalog).dataset("counts:1.0.0")
reader = dataset.read("train", registry.ReadConfig(**config), state=saved["state"])
seen = saved["seen"]

def save():
    with open(checkpoint + ".new", "w") as file:
        json.dump({"state": reader.state(), "seen": seen}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(checkpoint + ".new", checkpoint)

for example in reader:
    seen.append(int(example["number"]))
    if len(seen) % 100 == 0:
        save()
        print(len(seen), flush=True)
        sys.stdin.readline()
save()
print("done", flush=True)
"""


class Counts(registry.DatasetBuilder):
    """Numbers from 0."""

    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict({"number": "int64"})

    def splits(self) -> dict[str, object]:
        return {"train": ((n, {"number": n}) for n in range(NUM_EXAMPLES))}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("training")
    with registry.connect(folder / "catalog.db") as opened:
        opened.build(Counts(), num_shards=7, processes=1)
    return str(folder / "catalog.db")


@pytest.mark.parametrize(
    ("config", "epochs"),
    cases(
        [
            ({}, 1),
            ({"shuffle_files": True, "shuffle_seed": 5, "interleave_cycle_length": 3}, 1),
            ({"shuffle": "global", "seed": 3, "repeat": 2}, 2),
        ],
        everyday=1,
    ),
)
@pytest.mark.parametrize("most_kills", either(4, 8))
def test_every_record_is_seen_exactly_once(
    catalog: str, tmp_path: Path, config: dict[str, object], epochs: int, most_kills: int
) -> None:
    checkpoint = tmp_path / "checkpoint.json"
    chance = random.Random(len(config))
    kills = 0
    for _ in range(40):
        loop = warm_python.Popen(
            [sys.executable, "-c", LOOP, catalog, str(checkpoint), json.dumps(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"REGISTRY_CACHE": str(tmp_path / "cache")},
        )
        assert loop.stdin is not None
        assert loop.stdout is not None
        last = ""
        for _ in range(chance.randint(1, 12)):
            last = loop.stdout.readline().strip() or last
            with suppress(BrokenPipeError):  # the loop may have ended
                loop.stdin.write("go on\n")
                loop.stdin.flush()
        if kills < most_kills:
            time.sleep(chance.random() * 0.01)
            loop.send_signal(signal.SIGKILL)
        with suppress(BrokenPipeError):
            loop.stdin.close()
        rest = loop.stdout.read()
        code = loop.wait()
        loop.stdout.close()
        if code == -signal.SIGKILL:
            kills += 1
            continue
        assert code == 0
        assert (rest.strip().splitlines() or [last])[-1] == "done"
        break
    saved = json.loads(checkpoint.read_text())
    assert kills >= 3
    assert len(saved["seen"]) == epochs * NUM_EXAMPLES
    for epoch in range(epochs):
        assert sorted(saved["seen"][epoch * NUM_EXAMPLES : (epoch + 1) * NUM_EXAMPLES]) == list(range(NUM_EXAMPLES))
    uncut = registry.connect(catalog).dataset("counts:1.0.0").read("train", registry.ReadConfig(**config))  # type: ignore[arg-type]
    assert saved["seen"] == [int(example["number"]) for example in uncut]
    assert uncut.state() == saved["state"]
    assert len(json.dumps(saved["state"])) < 500
