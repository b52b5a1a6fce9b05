"""Functions of pieces of work, in a module that workers can import."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from registry.errors import RegistryError, StorageError


def square(number: int) -> int:
    return number * number


def work_for(seconds: float) -> None:
    """Use the processor for some time."""
    started = time.thread_time()
    while time.thread_time() - started < seconds:
        pass


def follow(order: Any) -> Any:
    """Carry out the command in the input; most inputs are only returned."""
    match order:
        case "refuse":
            raise StorageError("a.tfrecord: record 7 is damaged", hint="Fetch it again.", details={"record": 7})
        case "refuse from":
            raise StorageError("a.tfrecord: record 7 is damaged") from ValueError("bad checksum")
        case "fail":
            raise ZeroDivisionError("by zero")
        case "own":
            raise type("NeverError", (RegistryError,), {})("only here")  # a class that cannot be imported
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit":
            sys.exit("no data")
        case "leave":
            os._exit(3)
        case "print":
            sys.stdout.write("printed by a piece\n")
        case "pid":
            return os.getpid()
        case "slow pid":
            time.sleep(0.02)
            return os.getpid()
        case "generator":
            return (number for number in range(3))
        case ("bytes", size):
            return bytes(size)
    return order


class Unreadable:
    """Can be pickled, but not unpickled."""

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise ImportError("only in the other process")


def await_file(path: str) -> str:
    """Wait for a file, up to ten minutes, if the path is absolute."""
    deadline = time.monotonic() + 600
    while path.startswith("/") and not os.path.exists(path) and time.monotonic() < deadline:  # noqa: PTH110 (a str)
        time.sleep(0.01)
    return path
