"""Measures reading of records, examples and batches, next to tf.data, TFDS, Grain, HF datasets, MDS, Lance and others.

    python benchmarks/reading.py                                         A, B, C at a tenth of their size, best peers
    python benchmarks/reading.py --sets all --scale 1 --folder DIR       the figures to quote, on an idle machine
    python benchmarks/reading.py --sets all --scale 1 --folder DIR --peers all --rounds 3       hours
    python benchmarks/reading.py --proof                                 what proving the published files costs
    python benchmarks/reading.py --filling --sets A,B --scale 1          what filling kept columns costs
    python benchmarks/reading.py --sets A --jobs i,iii --peers registry,view,tf.data,+unbatch,limit
    python benchmarks/reading.py --clock cpu --peers "registry,kept,+cache,Grain,HF,MDS,lance,take"      a second epoch

Jobs: (i) raw records, (ii) examples as dicts of NumPy values one by one, (iii) columns of 256, (iv) random access one
by one, (ivb) by 256, (v) opening ``train[50%:]`` up to its first example. "kept" reads from columns that were kept
before, as a second epoch does, and "take" is numpy on arrays in memory. Sets: see readers/sets.py. Every figure is a
process of its own on a warm page cache, which checks its first answer and then measures for ``--seconds``, three
passes at least; the median of them, and of the rounds, in which peers take turns. ``cores`` is processor time by
time: what threads made of the machine, and other programs left of it.

Peers are the extra ``peers``; MosaicML streaming, whose requirements exclude recent NumPy, is used where it is there
(pip install --no-deps mosaicml-streaming, and what its import asks for), and so are Lance and webdataset (pip install
pylance webdataset). "+cache" reads batches that ``cache()`` of tf.data keeps in memory. Whether a peer checks what it
reads is found out: one bit of an example is flipped.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks.readers import PEERS
from benchmarks.readers.filling import measure_filling, print_filling, read_epochs
from benchmarks.readers.measure import measure_job, probe_checks
from benchmarks.readers.peer import JOBS
from benchmarks.readers.proof import measure_proof, print_proof
from benchmarks.readers.report import print_checks, print_set
from benchmarks.readers.sets import FULL_SIZES, SampleSet, flip_bit, prepare

QUIET: Final = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "PYTHONWARNINGS": "ignore",
}
PACKAGES: Final = (
    "numpy",
    "tensorflow",
    "tensorflow-datasets",
    "grain",
    "array_record",
    "datasets",
    "pyarrow",
    "tfrecord",
    "pylance",
    "webdataset",
)
DEFAULT_PEERS: Final = [
    "registry",
    "view",
    "kept",
    "kept view",
    "take",
    "+unbatch",
    "TFDS source",
    "Grain",
    "HF",
    "limit",
]
TIMEOUT: Final = 300


def run_worker(task: dict[str, Any], variables: dict[str, str] | None = None) -> dict[str, Any]:
    """What a process of its own answers, with more ``variables`` in its environment."""
    command = [sys.executable, __file__, "--worker", json.dumps(task)]
    root = task["sample"]["root"]
    environment = os.environ | QUIET | {"REGISTRY_CACHE": f"{root}/cache", "REGISTRY_CACHE_DIR": f"{root}/columns"}
    environment |= variables or {}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer in {TIMEOUT} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def work(task: dict[str, Any]) -> dict[str, Any]:
    """A worker's part."""
    sample = SampleSet(**task["sample"])
    if "format" in task:
        num_bytes = prepare(sample, task["format"])
        if task["flip"]:
            flip_bit(sample, task["format"])
        return {"num_bytes": num_bytes}
    if "filling" in task:
        return read_epochs(sample, task["filling"], task["keep"])
    peer = PEERS[task["peer"]](sample)
    return probe_checks(peer) if task["job"] == "probe" else measure_job(peer, task["job"], task["seconds"])


def find_missing(peer: str) -> list[str]:
    """The modules that a peer needs and that are not installed."""
    return [name for name in PEERS[peer].modules if find_spec(name) is None]


def prepare_formats(sample: SampleSet, peers: list[str], *, flip: bool = False) -> list[str]:
    """Write the files of a set; the peers whose files are there."""
    sizes = {}
    for name in dict.fromkeys(PEERS[peer].format for peer in peers):
        answer = run_worker({"sample": vars(sample), "format": name, "flip": flip})
        if "error" in answer:
            print(f"{sample.name}: no {name} files: {answer['error']}")
        else:
            sizes[name] = answer["num_bytes"]
    if not flip:
        shown = ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in sizes.items())
        print(f"\n{sample.name}: {sample.num_examples:,} examples, {sample.num_shards} shards; {shown}")
    return [peer for peer in peers if PEERS[peer].format in sizes]


def probe(peers: list[str], root: str) -> dict[str, dict[str, Any]]:
    """Which peers notice that one bit of an example is flipped."""
    with tempfile.TemporaryDirectory(dir=root) as folder:
        sample = SampleSet("A", 2000, 1, folder)
        present = prepare_formats(sample, [peer for peer in peers if peer != "limit"], flip=True)
        return {peer: run_worker({"sample": vars(sample), "peer": peer, "job": "probe"}) for peer in present}


def measure_set(sample: SampleSet, peers: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every job by every peer that has it."""
    results: list[dict[str, Any]] = []
    for job in options.jobs:
        having = [peer for peer in peers if job in PEERS[peer].jobs()]
        runs: dict[str, list[dict[str, Any]]] = {peer: [] for peer in having}
        for _ in range(options.rounds):
            for peer in having:
                task = {"sample": vars(sample), "peer": peer, "job": job, "seconds": options.seconds}
                runs[peer].append(run_worker(task))
        for peer, answers in runs.items():
            found: dict[str, Any] = {"set": sample.name, "job": job, "peer": peer}
            sound = [answer for answer in answers if "error" not in answer]
            if len(sound) < len(answers):
                found["error"] = next(answer["error"] for answer in answers if "error" in answer)
            if sound:
                found |= {name: statistics.median(answer[name] for answer in sound) for name in sound[0]}
                found |= {"value": found[options.clock], "runs": sound}
            results.append(found)
    return results


def describe_machine() -> dict[str, Any]:
    """Where and with what this was measured."""
    packages = {}
    for name in (*PACKAGES, "mosaicml-streaming"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "packages": packages,
    }


def make_sample(name: str, options: argparse.Namespace, root: str) -> SampleSet:
    """The set at the scale of the options."""
    number = max(2000, round(FULL_SIZES[name] * options.scale / 8) * 8)
    return SampleSet(name, number, options.shards if name == "C" else 1, root)


def choose(text: str, known: list[str], default: list[str]) -> list[str]:
    """The names of a comma-separated option."""
    chosen = {"": default, "all": known}.get(text, text.split(","))
    if unknown := [name for name in chosen if name not in known]:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1, help="1.0 is 1,000,000, 200,000 and 20,000 examples")
    parser.add_argument("--sets", default="", help=f"of {', '.join(FULL_SIZES)}, or all")
    parser.add_argument("--jobs", default="", help=f"of {', '.join(JOBS)}")
    parser.add_argument(
        "--peers", default="", help=f"of {', '.join(PEERS)}, or all; {', '.join(DEFAULT_PEERS)} if not given"
    )
    parser.add_argument("--rounds", type=int, default=1, help="processes for each figure")
    parser.add_argument("--seconds", type=float, default=0.5, help="measured in each process")
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu: the busy time of all threads, for busy machines",
    )
    parser.add_argument("--shards", type=int, default=4, help="shards of C")
    parser.add_argument("--folder", help="keep the files here for the next run")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument(
        "--no-probe", action="store_true", help="do not find out who checks what it reads; no ratios to those"
    )
    parser.add_argument(
        "--proof", action="store_true", help="measure only what it costs to prove the files that are read"
    )
    parser.add_argument("--filling", action="store_true", help="measure only what it costs to fill kept columns")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(json.loads(options.worker))))
        return
    if options.proof:
        with tempfile.TemporaryDirectory() as scratch:
            print_proof(measure_proof(options.folder or scratch, rounds=options.rounds))
        return
    sets = choose(options.sets, list(FULL_SIZES), ["A", "B", "C"])
    if options.filling:
        with tempfile.TemporaryDirectory() as scratch:
            samples = [make_sample(name, options, options.folder or scratch) for name in sets]
            for sample in samples:
                prepare_formats(sample, ["registry"])
            print_filling(measure_filling(samples, run_worker, rounds=options.rounds))
        return
    options.jobs = choose(options.jobs, list(JOBS), list(JOBS))
    peers = choose(options.peers, list(PEERS), DEFAULT_PEERS)
    for peer in peers:
        if missing := find_missing(peer):
            print(f"{peer} is left out: {', '.join(missing)} not installed")
    peers = [peer for peer in peers if not find_missing(peer)]
    machine = describe_machine()
    print(f"Python {machine['python']}, {machine['cores']} cores, load {machine['load']:.1f}; {options.clock} time")
    print(", ".join(f"{name} {number}" for name, number in machine["packages"].items()))
    with tempfile.TemporaryDirectory() as scratch:
        root = options.folder or scratch
        Path(root).mkdir(parents=True, exist_ok=True)
        checks = {} if options.no_probe else probe(peers, root)
        print_checks(checks)
        results: list[dict[str, Any]] = []
        for name in sets:
            sample = make_sample(name, options, root)
            fitting = [peer for peer in peers if PEERS[peer].reads_gzip or not sample.is_gzip]
            found = measure_set(sample, prepare_formats(sample, fitting), options)
            print_set(name, found, checks)
            results += found
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "checks": checks, "results": results}, indent=1))


if __name__ == "__main__":
    main()
