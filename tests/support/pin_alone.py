"""Runs command lines and a read without a catalog, a network or write access to the data: a script.

    python pin_alone.py DATA < [["pin", "show", "FILE"], ...]  ->  [[code, stdout, stderr], ...] as JSON

Opening a socket or a database, or writing below DATA, ends the process with exit code 99 and cannot be caught.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any

WRITES = ("open", "os.mkdir", "os.remove", "os.rename", "os.rmdir")


def refuse(*what: object, **more: object) -> None:
    print(f"refused: {what} {more}", file=sys.__stderr__, flush=True)
    os._exit(99)


def watch(data: str) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook, which sees the actions of every module, including those written in C."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(("socket.", "sqlite3.")):
            refuse(event, arguments)
        if event in ("open", "os.mkdir", "os.remove", "os.rename", "os.rmdir") and isinstance(
            arguments[0], str | bytes
        ):
            path = os.path.abspath(os.fsdecode(arguments[0]))  # noqa: PTH100 (Path looks at the disk)
            mode, flags = (arguments[1], arguments[2]) if event == "open" else ("w", 0)
            writes = any(sign in (mode or "") for sign in "wax+") or bool((flags or 0) & (os.O_WRONLY | os.O_RDWR))
            if writes and path.startswith(data + os.sep):
                refuse(event, path)

    return hook


def main() -> None:
    sys.addaudithook(watch(os.path.abspath(sys.argv[1])))  # noqa: PTH100 (as above)

    import sqlalchemy

    sqlalchemy.create_engine = refuse

    from registry.cli.main import run

    answers = []
    for command in json.load(sys.stdin):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            if command[0] == "python":
                exec(compile(command[1], "given", "exec"), {})  # noqa: S102 (the test's own lines)
                code = 0
            else:
                code = run(command)
        answers.append([code, out.getvalue(), err.getvalue()])
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
