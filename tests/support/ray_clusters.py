"""Ray clusters on this machine, programs that use them, and what tests observe of both."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from support import TESTS

STORE_BYTES: Final = 80 * 2**20
"""The object store of a raylet in ``raylets``: Ray's least is 75 MB."""

MOST_SECONDS: Final = 600.0
"""What takes seconds on an idle machine may take this long: a busy machine is not a fault."""


@contextmanager
def two_nodes() -> Iterator[Any]:
    """A cluster of two nodes with two CPUs each, which notices a dead node within seconds."""
    from ray.cluster_utils import Cluster

    checks = {"RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "3"}
    with patch.dict(os.environ, checks):
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=2)
        yield cluster
    finally:
        cluster.shutdown()


@contextmanager
def raylets(count: int) -> Iterator[Any]:
    """A cluster of ``count`` raylets with one CPU each, to which this process is connected."""
    import ray
    from ray.cluster_utils import Cluster

    options: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={**options, "include_dashboard": False})
    try:
        for _ in range(count - 1):
            cluster.add_node(**options)
        ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def run_code(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in another program, which can import ``support``."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS), **environment},
        timeout=MOST_SECONDS,
        check=False,
    )


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for something that another process does. An AssertionError says ``what`` did not happen."""
    deadline = time.monotonic() + MOST_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"after {MOST_SECONDS:.0f} s, this had not happened: {what}"
        time.sleep(0.05)


def wait_for_rest(measure: Callable[[], object]) -> None:
    """Wait until ``measure`` returns the same value for a second and a half: nobody works any more."""
    seen: list[object] = []

    def is_at_rest() -> bool:
        seen.append(measure())
        if len(seen) > 1 and seen[-2] == seen[-1]:
            return True
        time.sleep(1.5)
        return False

    wait_until(is_at_rest, "tasks end")


def session_files_with(secret: str, ray: Any) -> list[Path]:
    """The files of a Ray session, such as its logs, that contain a text."""
    session = Path(ray._private.worker.global_worker.node.get_session_dir_path())
    found, num_files = [], 0
    for path in session.rglob("*"):
        if path.is_file():
            with suppress(FileNotFoundError):  # Ray has just removed it
                num_files += 1
                if secret.encode() in path.read_bytes():
                    found.append(path)
    assert num_files > 10, f"{session} is not the folder of a session"
    return found


def processes_below() -> list[tuple[int, str]]:
    """The processes that this one started, directly or not, and their titles."""
    children: dict[int, list[tuple[int, str]]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with suppress(OSError, IndexError):
                parent = int((path / "stat").read_text().rpartition(") ")[2].split()[1])
                title = (path / "cmdline").read_text(errors="replace")
                children.setdefault(parent, []).append((int(path.name), title))
    found, waiting = [], [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += [pid for pid, _ in below]
    return found
