"""Holds the engine that a block has chosen, and announces the engine of each call or command in one line.

A call of the API or a command opens ``announced``. ``choose_engine`` tells the ``Work`` of that block what it chose.
Without a cluster, nothing is announced. This module imports no engine, because all calls of the API import it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from registry.engines.engine import Engine

_log = logging.getLogger(__name__)

chosen_engine: Final[ContextVar[Engine | None]] = ContextVar("chosen engine", default=None)
"""The engine of the innermost block of ``use_engine``; None: this machine."""

ONE_PROCESS: Final = "only one process was requested"
LITTLE: Final = "there is little to do"
NEEDS_THIS_MACHINE: Final = "it needs files or memory on this machine"
_REASONS: Final = (ONE_PROCESS, LITTLE, NEEDS_THIS_MACHINE)
"""If several apply, the first of them is given: nearly all work has small parts that only this machine can do."""


class Work:
    """The work of one call or command.

    Args:
        doing: what the call does, e.g. ``building prices``.
        tell: called with each line. None: lines are logged.
    """

    def __init__(self, doing: str, tell: Callable[[str], None] | None) -> None:
        self._doing = doing
        self._tell = tell
        self._reasons: set[str] = set()
        self._said: set[str] = set()
        self._is_told = False

    def runs_on(self, engine: Engine) -> None:
        """Say where the work is done. Later calls say nothing."""
        if not self._is_told:
            self._is_told = True
            self._say(logging.INFO, f"{self._doing} on {engine.describe()}")

    def stays(self, reason: str) -> None:
        """Remember why a part of the work is done on this machine: one of the constants above."""
        self._reasons.add(reason)

    def warn(self, text: str) -> None:
        """Say why this machine does work that was meant for the cluster. The same text is printed once."""
        if text not in self._said:
            self._said.add(text)
            self._say(logging.WARNING, text)

    def cancels(self, num_tasks: int) -> None:
        """Say that tasks of a cluster are cancelled, for those who watch no progress."""
        tasks = "1 task" if num_tasks == 1 else f"{num_tasks:,} tasks"
        self._say(logging.INFO, f"cancelling {tasks}; press Ctrl-C again to quit now")

    def end(self) -> None:
        """Say why the cluster did nothing, unless a line has named the engine or given a warning."""
        reason = next((one for one in _REASONS if one in self._reasons), None)
        if reason is not None and not self._is_told and not self._said:
            self._say(logging.INFO, f"{self._doing} on this machine, because {reason}")

    def _say(self, level: int, text: str) -> None:
        if self._tell is None:
            _log.log(level, "%s", text)
        else:
            self._tell(text)


_work: ContextVar[Work | None] = ContextVar("work", default=None)


@contextmanager
def announced(doing: str, *, tell: Callable[[str], None] | None = None, is_new: bool = False) -> Iterator[None]:
    """Announce the engine of the work in the block. A nested block says nothing, unless ``is_new``."""
    if _work.get() is not None and not is_new:
        yield
        return
    work = Work(doing, tell)
    token = _work.set(work)
    try:
        yield
        work.end()
    finally:
        _work.reset(token)


def current_work() -> Work:
    """Return the work of the innermost block. Outside of any block, only warnings are logged."""
    return _work.get() or _Unnamed("", None)


class _Unnamed(Work):
    def runs_on(self, engine: Engine) -> None:
        """Say nothing."""

    def cancels(self, num_tasks: int) -> None:
        """Say nothing."""
