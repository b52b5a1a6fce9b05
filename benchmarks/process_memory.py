"""Samples the memory of a process that a benchmark started, and of all that it starts, from outside.

A page that several processes share counts for none of them, so that the sum over processes counts no page twice. Pages
of the object store of a Ray node are shared as soon as two processes have opened it.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

_SECONDS: Final = 0.2


class MemorySampler:
    """The most memory of a session of processes, sampled five times a second while the block runs.

    Attributes:
        most_bytes: the most that all processes of the session, and those below them, had at one moment.
        driver_bytes: the most that the first process of the session had.
    """

    def __init__(self, session: int) -> None:
        """``session`` is the process that began it, as with ``Popen(start_new_session=True)``."""
        self.most_bytes = 0
        self.driver_bytes = 0
        self._session = session
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> MemorySampler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(_SECONDS):
            sizes = {pid: own_bytes(pid) for pid in session_pids(self._session)}
            self.most_bytes = max(self.most_bytes, sum(sizes.values()))
            self.driver_bytes = max(self.driver_bytes, sizes.get(self._session, 0))


def session_pids(session: int) -> list[int]:
    """The processes of a session, and those below them: Ray starts sessions of its own."""
    parents: dict[int, list[int]] = {}
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with suppress(OSError, IndexError):
                fields = (path / "stat").read_text().rpartition(") ")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(path.name))
                if int(fields[3]) == session:
                    found.append(int(path.name))
    waiting = list(found)
    while waiting:
        for child in parents.get(waiting.pop(), []):
            if child not in found:
                found.append(child)
                waiting.append(child)
    return found


def own_bytes(pid: int) -> int:
    """The memory that only this process has."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
    return 0
