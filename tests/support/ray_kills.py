"""Kills parts of a Ray cluster during builds. Run by hand:

python tests/support/ray_kills.py [TIMES]  kills a worker, a node and the driver, each at 20 moments; prints a report
python tests/support/ray_kills.py [TIMES] --s3  the same with versions in a bucket of an S3 server on this machine

The driver is also killed TIMES times after the cluster has merged some runs, after it has written a shard, and between
the last shard and the row; with a bucket, also after it has uploaded a shard. After each kill, a build on the cluster
must give the files of a local build, or end with a typed error; then the next build must give them. Half of these
builds continue from the runs that the killed one has left. Between two builds, no part of a version is visible.
``test_ray_builds.py`` tries a few.
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
import uuid
import warnings
from collections import Counter
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":  # pytest finds these by itself
    sys.path.append(str(Path(__file__).parents[1]))

import registry
from registry.errors import RegistryError, RegistryWarning
from registry.storage import Store, open_store
from registry.storage.names import is_unfinished
from support import TESTS
from support.ray_builders import ManySmall, Slow
from support.ray_clusters import MOST_SECONDS, processes_below, two_nodes, wait_until
from support.s3_server import S3Server

WHATS: Final = ("worker", "node", "driver")
PHASES: Final = ("driver that merges", "driver that writes", "driver before the row")
UPLOADS: Final = "driver that uploads"
"""A phase that only versions in a bucket have."""
_IN_PLACE: Final = ("driver before the row", UPLOADS)
"""Phases in which files of the version are in their place. They come first, and the row last."""
_SECONDS: Final = 4.0

_DRIVER: Final = """
import os, sys
import registry
from support.ray_kills import build_of
from registry.catalog.sql_catalog import SqlCatalog
from registry.engines import choice
from registry.engines.ray.tasks import RayTasks

url, data_dir, address, what = sys.argv[1:]
run = RayTasks.run
phases = {
    "driver that merges": "merged runs",
    "driver that writes": "wrote shards",
    "driver that uploads": "uploaded files",
}

def watched(self, pieces, *, doing, failure, **options):
    for one in run(self, pieces, doing=doing, failure=failure, **options):
        yield one
        if doing == phases.get(what):
            os.kill(os.getpid(), 9)

def killed(self, *arguments, **options):
    os.kill(os.getpid(), 9)

RayTasks.run = watched
if what == "driver before the row":
    SqlCatalog.publish = killed
if what == "driver that uploads":
    choice._SMALL_BYTES = 0  # so that the cluster uploads little data, too
builder, _, processes = build_of(what)
with registry.connect(url, data_dir=data_dir) as catalog, registry.use_engine("ray", address=address):
    catalog.build(builder, processes=processes)
"""


def build_of(what: str) -> tuple[type[registry.DatasetBuilder], str, int]:
    """The builder, the name of its dataset, and the number of processes. Merging needs many runs, so many inputs."""
    return (ManySmall, "many_small", 70) if what == "driver that merges" else (Slow, "slow", 4)


def digests(catalog: registry.Catalog, name: str) -> list[str]:
    """The sha256 of each shard that is published."""
    return [shard.sha256 for shard in catalog.dataset(name).shards("train")]


def expected_digests(folder: Path, what: str) -> list[str]:
    """Those of a local build."""
    builder, name, _ = build_of(what)
    with registry.connect(folder / f"{name}.db", create=True, data_dir=folder / f"{name} data") as catalog:
        catalog.build(builder, processes=2)
        return digests(catalog, name)


def try_kill(
    what: str, seconds: float, cluster: Any, folder: Path, expected: list[str], *, data_dir: str | None = None
) -> str:
    """Kill ``what`` during a build; returns how the build ended.

    Args:
        what: one of ``WHATS``; or of ``PHASES``, whose moment is not a time; in a bucket, also ``UPLOADS``.
        seconds: the moment.
        cluster: the cluster.
        folder: receives the catalog.
        expected: the sha256 of the shards.
        data_dir: receives the version. None: a folder beside the catalog.

    Raises:
        AssertionError: part of a version is visible, or the files differ.
    """
    data_dir = data_dir or str(folder / "data")
    builder, name, processes = build_of(what)
    place = f"{name}/1.0.0/"
    with registry.connect(folder / "catalog.db", create=True, data_dir=data_dir) as catalog:
        store = open_store(data_dir)
        outcome = _build_killed(what, seconds, cluster, catalog, data_dir)
        if outcome != "published":
            assert not [str(one) for one in catalog.datasets()], "a row without a build"
            if what not in _IN_PLACE:
                assert not _others(store, but="incomplete."), "part of a version is visible"
            has_runs = any(one.name.endswith(".key") for one in store.scan())
            with registry.use_engine("ray", address=cluster.address), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "the records are made again", RegistryWarning)
                catalog.build(builder, processes=processes, finished=has_runs and int(10 * seconds) % 2 == 0)
        assert digests(catalog, name) == expected, "other files than those of a local build"
        catalog.dataset(name).verify().raise_for_faults(name)
        left = _others(store, but=place)
        if left:  # the version was complete, so that the next build had nothing to do; or the probe of a shared folder
            is_probe = what == "driver" and all("/" not in file and is_unfinished(file) for file in left)
            assert is_probe or what == "driver before the row", f"files were left after publishing: {left[:3]}"
            catalog.collect_garbage(older_than=timedelta(0))
            assert not _others(store, but=place), "gc leaves files"
            return f"{outcome}, gc removed what was left"
    return outcome


def _others(store: Store, *, but: str) -> list[str]:
    """The files whose names do not contain ``but``."""
    return [one.name for one in store.scan() if not one.is_folder and but not in one.name]


def _build_killed(what: str, seconds: float, cluster: Any, catalog: registry.Catalog, data_dir: str) -> str:
    if what.startswith("driver"):
        try:
            return _build_killed_driver(what, seconds, cluster, catalog, data_dir)
        finally:  # a file that one of them writes after the next build would look like a file of that build
            wait_until(lambda: not _working(), "the tasks of the killed driver end")
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


def _build_killed_driver(what: str, seconds: float, cluster: Any, catalog: registry.Catalog, data_dir: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    driver = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, catalog.url, data_dir, cluster.address, what],
        env=environment,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    if what in (*PHASES, UPLOADS):
        try:
            assert driver.wait(MOST_SECONDS) == -signal.SIGKILL, "the driver did not reach the phase"
        finally:
            driver.kill()
        return "killed"
    with suppress(subprocess.TimeoutExpired):
        driver.wait(seconds + 2.0)  # the interpreter and the connection take about two seconds
    driver.kill()
    code = driver.wait()
    return {0: "published", -signal.SIGKILL: "killed"}.get(code, f"ended with exit code {code}")


def _kill(what: str, cluster: Any, node: Any) -> None:
    if what == "node":
        cluster.remove_node(node, allow_graceful=False)
        return
    workers = _working()
    if workers:
        with suppress(ProcessLookupError):
            os.kill(random.Random(workers[0]).choice(workers), signal.SIGKILL)


def _working() -> list[int]:
    """The workers of the cluster that run a task."""
    return [
        pid
        for pid, title in processes_below()
        if re.match(r"ray::(generated|merged|wrote|uploaded|encoded|call)", title)
    ]


def moments(what: str, count: int) -> list[float]:
    """Seeded moments of a build, in seconds."""
    rng = random.Random(what)
    return [rng.uniform(0.2, _SECONDS) for _ in range(count)]


def main(count: int, *, is_remote: bool) -> None:
    """Try ``count`` moments of each, and print how the builds ended."""
    started = time.monotonic()
    outcomes: Counter[str] = Counter()
    problems = []
    with ExitStack() as stack:
        cluster = stack.enter_context(two_nodes())
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        server = stack.enter_context(S3Server()) if is_remote else None
        for what in (*WHATS, *PHASES, *([UPLOADS] if is_remote else [])):
            expected = expected_digests(Path(scratch), what)
            for number, seconds in enumerate(moments(what, count)):
                folder = Path(scratch) / f"{what} {number}"
                folder.mkdir()
                place = None
                if server is not None:
                    bucket = f"kill-{uuid.uuid4().hex}"
                    server.create_bucket(bucket)
                    os.environ |= server.environment()
                    place = f"s3://{bucket}/data"
                try:
                    outcomes[f"{what}: {try_kill(what, seconds, cluster, folder, expected, data_dir=place)}"] += 1
                except Exception as error:  # noqa: BLE001 (the next moments are tried, too)
                    problems.append(f"{what} after {seconds:.2f} s: {type(error).__name__}: {error}")
                sys.stderr.write(f"{what} {number + 1} of {count}, {len(problems)} problems\n")
    report = {"outcomes": outcomes, "problems": problems, "seconds": round(time.monotonic() - started)}
    sys.stdout.write(json.dumps(report, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    times = [one for one in sys.argv[1:] if one.isdecimal()]
    main(int(times[0]) if times else 20, is_remote="--s3" in sys.argv)
