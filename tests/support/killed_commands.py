"""Runs a command line repeatedly, killed at each of its writing calls in turn: a script, one process for all runs.

    python killed_commands.py FOLDER < {"command": [...], "restore": {"name": "content"}}  ->  a JSON line for each kill

Each run is a fork of this process. SIGKILL ends it just before its n-th call of ``os`` that changes a disk, or its
n-th write to a file. After each killed run, the same command runs to its end, and the files in FOLDER are listed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from registry.cli.main import run
from registry.storage import local

CALLS = ("open", "write", "link", "unlink", "replace", "rename", "fsync", "mkdir", "rmdir", "close")
MOST = 200


def kill_at(number: int, calls: Sequence[tuple[Any, str]] = [(os, name) for name in CALLS]) -> list[str]:
    """End this process before its ``number``-th of these calls or writes, counted from 1. Returns those so far."""
    steps: list[str] = []

    def note(name: str) -> None:
        steps.append(name)
        if len(steps) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def call(*given: Any, **options: Any) -> Any:
            note(name)
            return function(*given, **options)

        setattr(owner, name, call)

    for owner, name in calls:
        watch(owner, name)

    class File(io.FileIO):
        def write(self, data: Any, /) -> int:
            note("file write")
            return super().write(data)

    opened = local.open_raw
    local.open_raw = lambda path, mode: File(path, mode) if "x" in mode else opened(path, mode)  # type: ignore[assignment]
    return steps


def run_forked(command: list[str], number: int | None) -> int:
    """The exit code of the command in its own process; negative if a signal ended it."""
    pid = os.fork()
    if not pid:
        code = 70
        with contextlib.suppress(BaseException), open(os.devnull, "w") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            if number is not None:
                kill_at(number)
            code = run(command)
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def tidy(folder: Path, before: set[str], asked: dict[str, Any]) -> None:
    """Remove the files that runs created, and restore those that they changed."""
    for path in folder.iterdir():
        if path.name not in before:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, content in asked["restore"].items():
        (folder / name).write_text(content)


def main() -> None:
    folder, asked = Path(sys.argv[1]), json.load(sys.stdin)
    before = {path.name for path in folder.iterdir()}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        run(asked["command"])  # every fork inherits the imported modules
    tidy(folder, before, asked)
    for number in range(1, MOST):
        code = run_forked(asked["command"], number)
        left = sorted({path.name for path in folder.iterdir()} - before)
        again = run_forked(asked["command"], None)
        behind = sorted({path.name for path in folder.iterdir()} - before)
        row = {"number": number, "code": code, "left": left, "again": again, "behind": behind}
        sys.stdout.write(json.dumps(row) + "\n")
        tidy(folder, before, asked)
        if code >= 0:
            return


if __name__ == "__main__":
    main()
