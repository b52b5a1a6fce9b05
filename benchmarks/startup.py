"""Measures the CPU of whole commands, next to an interpreter that imports SQLAlchemy and click and does nothing else.

    python benchmarks/startup.py [--runs 15] [--instructions]

Byte code is compiled first, and a throw-away catalog holds the quickstart dataset. The cases take turns, so that a busy
machine slows all of them. Prints the median CPU time (user and system) of each, and its ratio to that of the
interpreter, as the median over the rounds. ``--instructions`` counts the instructions of one run of each instead, with
valgrind: slow, but the same on every run.
"""

from __future__ import annotations

import argparse
import compileall
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASELINE = "import sqlalchemy, click"
PROGRAM = str(Path(sys.executable).parent / "registry")
COMMANDS = {
    "list": ["list"],
    "resolve": ["resolve", "digits", "train[:10%]"],
    "versions": ["versions", "digits"],
    "log": ["log"],
    "show": ["show", "digits"],
    "read": ["read", "digits", "train[:1]"],
    "TAB": [],
}
COUNTER = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]


def measure_cpu(command: list[str], environment: dict[str, str]) -> float:
    """The CPU time of one run in milliseconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def count_instructions(command: list[str], environment: dict[str, str]) -> float:
    """The instructions of one run, in millions."""
    ran = subprocess.run([*COUNTER, sys.executable, *command], env=environment, check=True, capture_output=True)
    number = re.search(rb"I +refs: +([0-9,]+)", ran.stderr)
    assert number is not None, ran.stderr
    return int(number[1].replace(b",", b"")) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--instructions", action="store_true")
    arguments = parser.parse_args()
    measure, unit = (count_instructions, "million") if arguments.instructions else (measure_cpu, "CPU ms")
    start = [] if arguments.instructions else [sys.executable]
    compileall.compile_dir(ROOT / "registry", quiet=1)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    cases = {BASELINE: ([*start, "-c", BASELINE], environment)}
    with tempfile.TemporaryDirectory() as folder:
        environment |= {"REGISTRY_CATALOG": f"{folder}/catalog.db", "REGISTRY_DATA_DIR": f"{folder}/datasets"}
        subprocess.run([sys.executable, PROGRAM, "quickstart"], env=environment, check=True, stdout=subprocess.DEVNULL)
        completing = {"_REGISTRY_COMPLETE": "bash_complete", "COMP_WORDS": "registry show d", "COMP_CWORD": "2"}
        for name, words in COMMANDS.items():
            cases[name] = ([*start, PROGRAM, *words], environment if words else environment | completing)
        results: dict[str, list[float]] = {name: [] for name in cases}
        for number in range(1 if arguments.instructions else arguments.runs + 1):  # the first round is not counted
            for name, (command, variables) in cases.items():
                result = measure(command, variables)
                if number or arguments.instructions:
                    results[name].append(result)
    print(f"{'':<28}{unit:>10}{'ratio':>8}")
    for name, values in results.items():
        ratio = statistics.median(value / base for value, base in zip(values, results[BASELINE], strict=True))
        print(f"{name:<28}{statistics.median(values):>10.0f}{ratio:>8.2f}")


if __name__ == "__main__":
    main()
