"""Functions of pieces of work, in a module that workers can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def kill_once(order: tuple[str, int]) -> int:
    """Kill the worker in the first call for a path; return the number in the second call."""
    path = Path(order[0])
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return order[1]


def node_of(_: int) -> str:
    """The id of the node that runs the piece."""
    import ray

    time.sleep(0.1)
    found: str = ray.get_runtime_context().get_node_id()
    return found


def wait_for(order: tuple[str, int]) -> int:
    """Write where the piece runs, then wait for the file ``go on`` in the folder and write a byte 20 times a second.

    Number 0 is returned at once.
    """
    import ray

    folder, number = Path(order[0]), order[1]
    if number == 0:
        return 0
    (folder / f"part-{number}-{os.getpid()}").write_text(ray.get_runtime_context().get_node_id())
    (folder / f"part-{number}-{os.getpid()}").rename(folder / f"started-{number}-{os.getpid()}")
    while not (folder / "go on").exists():
        with (folder / f"beats-{number}").open("a") as file:
            file.write(".")
        time.sleep(0.05)
    return number


def poll_seconds(_: int) -> float:
    """How often the task asks whether it was cancelled."""
    from registry.engines.ray.worker import _CancelWatch

    return _CancelWatch._current._poll_seconds


def rest(seconds: float) -> float:
    """Sleep for that long, and return the time."""
    time.sleep(seconds)
    return seconds


def read_variable(name: str) -> str | None:
    """The value of a variable of the environment."""
    return os.environ.get(name)


def node_and_times(seconds: float) -> tuple[str, float, float]:
    """Sleep for that long; return the id of the node, and when the piece began and ended."""
    import ray

    started = time.time()
    time.sleep(seconds)
    return ray.get_runtime_context().get_node_id(), started, time.time()


def hold(given: tuple[int, bytes]) -> tuple[int, int]:
    """The number, and the size of the bytes."""
    time.sleep(0.05)
    return given[0], len(given[1])


def wait_until_interrupted(order: tuple[str, int]) -> int:
    """Number 0 is returned at once. The others wait for an hour; an interrupt is noted, and ignored by number 2."""
    folder, number = Path(order[0]), order[1]
    if number == 0:
        return 0
    end = time.monotonic() + 3600
    while time.monotonic() < end:
        try:
            (folder / f"started-{number}-{os.getpid()}").touch()
            time.sleep(3600)
        except KeyboardInterrupt:
            (folder / f"interrupted-{number}").touch()
            if number == 1:
                raise
    return number
