"""Restores a backup in a process of its own, which is killed before its n-th statement: URL FILE N."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import sqlalchemy as sa

from registry.catalog.restore import restore_backup


def main(url: str, file: str, number: str) -> None:
    left = [int(number)]

    def count(*_: object) -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    sa.event.listen(sa.Engine, "before_cursor_execute", count)
    restore_backup(url, lambda: Path(file).open("rb"), shown=file)  # noqa: SIM115 (the caller closes it)


if __name__ == "__main__":
    main(*sys.argv[1:])
