"""Paths that no file can have, or that do not lead to a file, for the laws about arguments."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

NO_FILES: Final = {
    "NUL": "a\0b.csv",
    "a lone surrogate": "\ud800.csv",
    "5,000 characters": "a" * 5000,
    "a name of 300 characters": f"{'b' * 300}/c.csv",
    "a home of nobody": "~nobody-has-this-name/x.csv",
    "empty": "",
    "NUL in a URL": "file:///a%00b.csv",
}
"""Texts that name no file on any machine."""

OTHERS: Final = {
    "a folder": "folder",
    "a device": "/dev/null",
    "a pipe": "pipe",
    "a socket": "socket",
    "a link to nothing": "nothing",
    "a circle of links": "circle",
    "a file that cannot be read": "/proc/self/mem",
}
"""Paths in the folder that ``make_others`` fills."""

ODD: Final = NO_FILES | OTHERS


def make_others(folder: Path) -> None:
    """Create what ``OTHERS`` names in ``folder``."""
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(folder)  # the path of a socket has at most 107 bytes
        listener.bind("socket")
        os.chdir(here)
    (folder / "nothing").symlink_to("missing")
    (folder / "circle").symlink_to("circle")


@contextmanager
def without_waiting(seconds: int = 60) -> Iterator[None]:
    """Fail if the block waits forever, like a read from a pipe without a writer."""

    def stop(number: int, frame: object) -> None:
        raise AssertionError("it waits for ever")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
