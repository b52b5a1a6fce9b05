"""Kills parts of a Ray cluster during builds. Run by hand:

python tests/ray/ray_kills.py [TIMES]     kills a worker, a node and the driver, each at 20 moments; prints a report

After each kill, a build on the cluster must give the files of a local build, or end with a typed error, and the next
build must give them. Between two builds, no part of a version is visible. ``test_ray_builds.py`` tries a few moments.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":  # pytest finds these by itself
    sys.path.append(str(Path(__file__).parent))

from ray_builders import Slow

import registry
from registry.errors import RegistryError

WHATS: Final = ("worker", "node", "driver")
_SECONDS: Final = 4.0

_DRIVER: Final = """
import sys
import registry
from ray_builders import Slow

with registry.connect(sys.argv[1]) as catalog, registry.use_engine("ray", address=sys.argv[2]):
    catalog.build(Slow, processes=4)
"""


def digests(catalog: registry.Catalog) -> list[str]:
    """The sha256 of each shard that is published."""
    return [shard.sha256 for shard in catalog.dataset("slow").shards("train")]


def expected_digests(folder: Path) -> list[str]:
    """Those of a local build."""
    with registry.connect(folder / "local.db") as catalog:
        catalog.build(Slow, processes=2)
        return digests(catalog)


def try_kill(what: str, seconds: float, cluster: Any, folder: Path, expected: list[str]) -> str:
    """Kill ``what`` after ``seconds`` of a build; returns how the build ended.

    Raises:
        AssertionError: part of a version is visible, or the files differ.
    """
    with registry.connect(folder / "catalog.db") as catalog:
        outcome = _build_killed(what, seconds, cluster, catalog)
        published = [str(one) for one in catalog.datasets()]
        if outcome != "published":
            assert not published, "a row without a build"
            assert not list(folder.rglob("dataset_info.json")) or not _final_folder(folder), (
                "a visible part of a version"
            )
            with registry.use_engine("ray", address=cluster.address):
                catalog.build(Slow, processes=4)
        assert digests(catalog) == expected, "other files than those of a local build"
        catalog.dataset("slow").verify().raise_for_faults("slow")
    left = [path for path in folder.rglob("*.facts") if path.is_file()]
    assert not left, "runs were left after the version was published"
    return outcome


def _final_folder(folder: Path) -> bool:
    return any(path.parent.name == "1.0.0" for path in folder.rglob("dataset_info.json"))


def _build_killed(what: str, seconds: float, cluster: Any, catalog: registry.Catalog) -> str:
    if what == "driver":
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
        driver = subprocess.Popen(
            [sys.executable, "-c", _DRIVER, catalog.url, cluster.address],
            env=environment,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        with suppress(subprocess.TimeoutExpired):
            driver.wait(seconds + 2.0)  # the interpreter and the connection take about two seconds
        driver.kill()
        return "published" if driver.wait() == 0 else "killed"
    node = cluster.add_node(num_cpus=2) if what == "node" else None
    timer = threading.Timer(seconds, _kill, [what, cluster, node])
    timer.start()
    try:
        with registry.use_engine("ray", address=cluster.address):
            catalog.build(Slow, processes=4)
    except RegistryError as error:
        return error.code
    finally:
        timer.join()
    return "published"


def _kill(what: str, cluster: Any, node: Any) -> None:
    if what == "node":
        cluster.remove_node(node, allow_graceful=False)
        return
    workers = [pid for pid, title in _processes() if re.match(r"ray::(generated|wrote|encoded|call)", title)]
    if workers:
        with suppress(ProcessLookupError):
            os.kill(random.Random(workers[0]).choice(workers), signal.SIGKILL)


def _processes() -> list[tuple[int, str]]:
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with suppress(OSError):
                found.append((int(path.name), (path / "cmdline").read_text(errors="replace")))
    return found


def moments(what: str, count: int) -> list[float]:
    """Seeded moments of a build, in seconds."""
    rng = random.Random(what)
    return [rng.uniform(0.2, _SECONDS) for _ in range(count)]


def main(count: int) -> None:
    """Try ``count`` moments of each, and print how the builds ended."""
    from ray.cluster_utils import Cluster

    os.environ |= {"RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "3"}
    started = time.monotonic()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    cluster.add_node(num_cpus=2)
    outcomes: Counter[str] = Counter()
    problems = []
    with tempfile.TemporaryDirectory() as scratch:
        expected = expected_digests(Path(scratch))
        for what in WHATS:
            for number, seconds in enumerate(moments(what, count)):
                folder = Path(scratch) / f"{what} {number}"
                folder.mkdir()
                try:
                    outcomes[f"{what}: {try_kill(what, seconds, cluster, folder, expected)}"] += 1
                except Exception as error:  # noqa: BLE001 (the next moments are tried, too)
                    problems.append(f"{what} after {seconds:.2f} s: {type(error).__name__}: {error}")
                sys.stderr.write(f"{what} {number + 1} of {count}, {len(problems)} problems\n")
    cluster.shutdown()
    report = {"outcomes": outcomes, "problems": problems, "seconds": round(time.monotonic() - started)}
    sys.stdout.write(json.dumps(report, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
