"""Runs a program of which one output is a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Sequence
from typing import Any

from support import warm_python


def drawn_on_terminal(command: Sequence[str], stream: str, *, columns: int | None = None, **options: Any) -> bytes:
    """What a program that succeeds draws on a terminal, which is its ``stream``: stdout or stderr."""
    main, terminal = pty.openpty()
    if columns is not None:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    running = warm_python.Popen(list(command), **{stream: terminal}, **options)
    os.close(terminal)
    drawn = b""
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError:  # how Linux says that nobody has the other end open
            break
        if not piece:
            break
        drawn += piece
    os.close(main)
    assert running.wait() == 0
    return drawn
