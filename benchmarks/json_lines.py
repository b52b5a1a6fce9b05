"""Measures `registry read` compared with `json.dumps` of the same lines, in one run.

    python benchmarks/json_lines.py

Seconds of CPU time, fastest of three rounds: of the command, with look-up, reading, decoding and printing, and of
`json.dumps` of the values of its lines. The ratio should be about 3 or below.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import registry
from registry.cli.main import run

ROUNDS = 3


def samples() -> dict[str, Any]:
    """Datasets of other kinds of values."""
    chance = np.random.default_rng(0)
    return {
        "rows": {"id": np.arange(100_000), "x": chance.random(100_000), "name": [f"name {n}" for n in range(100_000)]},
        "images": {
            "image": chance.integers(0, 256, (2000, 28, 28, 1), np.uint8),
            "label": chance.integers(0, 10, 2000),
        },
        "vectors": {"vector": chance.random((5000, 64), np.float32), "label": chance.integers(0, 10, 5000)},
        "texts": {"text": ["some words of a text " * 30] * 20_000, "tags": [["a", "b", "c"]] * 20_000},
    }


def fastest(function: Callable[[], object]) -> float:
    """The shortest CPU time of a call, in seconds."""
    seconds = []
    for _ in range(ROUNDS):
        started = time.process_time()
        function()
        seconds.append(time.process_time() - started)
    return min(seconds)


def read_lines(name: str) -> list[str]:
    """The lines that the command prints."""
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(stdout):
        if run(["read", name, "train"]) != 0:
            raise SystemExit(f"registry read {name} failed")
    stdout.seek(0)
    return stdout.read().splitlines()


def main() -> None:
    """Print a table."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"REGISTRY_CATALOG": f"{folder}/catalog.db", "REGISTRY_DATA_DIR": f"{folder}/datasets"}
        print(f"{'DATASET':<10}{'LINES':>9}{'READ':>8}{'DUMPS':>8}{'RATIO':>8}")
        for name, columns in samples().items():
            registry.add(columns, name)
            values = [json.loads(line) for line in read_lines(name)]
            read = fastest(partial(read_lines, name))
            dumps = fastest(lambda: [*map(json.dumps, values)])  # noqa: B023 (called at once)
            print(f"{name:<10}{len(values):>9,}{read:>8.2f}{dumps:>8.2f}{read / dumps:>8.1f}")


if __name__ == "__main__":
    main()
