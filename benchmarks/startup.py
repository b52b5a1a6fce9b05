"""Measures the start of the command line: wall time of whole processes, next to the interpreter's own start.

    python benchmarks/startup.py [--runs 15]

Byte code is compiled first, and a throw-away catalog holds the quickstart dataset. Prints the fastest and the median
run in milliseconds, and the ratio of medians to `python -c pass`: the ratio is what can be compared between machines.
"""

from __future__ import annotations

import argparse
import compileall
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REGISTRY = [str(Path(sys.executable).parent / "registry")]
CASES = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import registry": [sys.executable, "-c", "import registry"],
    "registry --help": [*REGISTRY, "--help"],
    "registry resolve digits train[:10%]": [*REGISTRY, "resolve", "digits", "train[:10%]"],
    "registry read digits train[:1]": [*REGISTRY, "read", "digits", "train[:1]"],
}


def measure(command: list[str], environment: dict[str, str], runs: int) -> list[float]:
    """Wall time of each run in milliseconds, after one that is not counted."""
    times = []
    for _ in range(runs + 1):
        started = time.perf_counter()
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        times.append((time.perf_counter() - started) * 1000)
    return times[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    compileall.compile_dir(ROOT / "registry", quiet=1)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        environment["REGISTRY_CATALOG"] = str(Path(folder) / "catalog.db")
        subprocess.run([*REGISTRY, "quickstart"], env=environment, check=True, stdout=subprocess.DEVNULL)
        print(f"{'':<38}{'fastest ms':>12}{'median ms':>12}{'x python':>10}")
        baseline = None
        for name, command in CASES.items():
            times = measure(command, environment, runs)
            median = statistics.median(times)
            baseline = baseline or median
            print(f"{name:<38}{min(times):>12.0f}{median:>12.0f}{median / baseline:>10.1f}")


if __name__ == "__main__":
    main()
