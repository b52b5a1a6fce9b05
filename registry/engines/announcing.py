"""Stores the engine that a block has chosen, and announces the engine of each call or command in one line.

A call of the API (``announces``) or a command opens ``announced``. ``choose_engine`` reports its choice to the ``Work``
of that block. Without a cluster, nothing is announced. In the kernel of a notebook, a long call of the API shows a
progress bar. Every call of the API imports this module, so it imports little itself.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from registry.markup import Markup, escape
from registry.masking import mask

if TYPE_CHECKING:
    from registry.engines.engine import Engine
    from registry.model import Progress

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

chosen_engine: Final[ContextVar[Engine | None]] = ContextVar("chosen engine", default=None)
"""The engine of the innermost block of ``use_engine``; None: this machine."""

ONE_PROCESS: Final = "only one process was requested"
LITTLE: Final = "there is little to do"
NEEDS_THIS_MACHINE: Final = "it needs files or memory on this machine"
_REASONS: Final = (ONE_PROCESS, LITTLE, NEEDS_THIS_MACHINE)
"""If several apply, the first is reported: nearly all work has small parts that only this machine can do."""

_PATIENCE: Final = 1.0
"""Seconds before a bar appears: most calls end earlier."""

_PERIOD: Final = 0.3


class Work:
    """The work of one call or command.

    Args:
        doing: what the call does, e.g. ``building prices``.
        tell: called with each line. If None, lines are logged.
    """

    def __init__(self, doing: str, tell: Callable[[str], None] | None) -> None:
        self._doing = doing
        self._tell = tell
        self._reasons: set[str] = set()
        self._said: set[str] = set()
        self._is_told = False

    def runs_on(self, engine: Engine) -> None:
        """Announce the engine of the work. Later calls have no effect."""
        if not self._is_told:
            self._is_told = True
            self._say(f"{self._doing} on {engine.describe()}")

    def stays(self, reason: str) -> None:
        """Record why a part of the work is done on this machine: one of the constants above."""
        self._reasons.add(reason)

    def warn(self, text: str) -> None:
        """Warn why this machine does work that was meant for the cluster. Each text is printed only once."""
        if text not in self._said:
            self._said.add(text)
            self._say(text, is_warning=True)

    def cancels(self, num_tasks: int) -> None:
        """Announce that tasks of a cluster are being cancelled, if no progress is displayed."""
        tasks = "1 task" if num_tasks == 1 else f"{num_tasks:,} tasks"
        self._say(f"cancelling {tasks}; press Ctrl-C again to quit now")

    def end(self) -> None:
        """Explain why the cluster was not used, unless a line has already named the engine or warned."""
        reason = next((known_reason for known_reason in _REASONS if known_reason in self._reasons), None)
        if reason is not None and not self._is_told and not self._said:
            self._say(f"{self._doing} on this machine, because {reason}")

    def _say(self, text: str, *, is_warning: bool = False) -> None:
        if self._tell is None:
            import logging

            logging.getLogger(__name__).log(logging.WARNING if is_warning else logging.INFO, "%s", text)
        else:
            self._tell(text)


_work: ContextVar[Work | None] = ContextVar("work", default=None)


@contextmanager
def announced(doing: str, *, tell: Callable[[str], None] | None = None) -> Iterator[None]:
    """Announce the engine of the work in the block. Nested blocks announce nothing."""
    if _work.get() is not None:
        yield
        return
    work = Work(doing, tell)
    token = _work.set(work)
    try:
        yield
        work.end()
    finally:
        _work.reset(token)


def announces(
    doing: str, *subjects: str, other: str = "data"
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Decorate a public call whose work a cluster may do, so that a line of the log names the engine.

    In a notebook, a call without ``progress`` draws a bar.

        building prices on Ray, with 8 CPUs on 2 nodes

    Args:
        doing: what the call does, e.g. ``building``.
        subjects: the arguments that may name the object of the work, e.g. ``builder``. The line has the first that was
            passed.
        other: the object of the line if none was passed.
    """

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        takes_progress = "progress" in (getattr(inspect.unwrap(function), "__kwdefaults__", None) or ())

        @wraps(function)
        def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            bar = notebook_bar() if takes_progress and kwargs.get("progress") is None else None
            if bar is None:
                return run(*args, **kwargs)
            kwargs["progress"] = bar
            try:
                return run(*args, **kwargs)
            finally:
                bar.close()

        def run(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            if chosen_engine.get() is None:
                return function(*args, **kwargs)
            given = inspect.signature(function).bind_partial(*args, **kwargs).arguments
            named = next((name for subject in subjects if (name := _name_of(given.get(subject)))), other)
            with announced(f"{doing} {named}"):
                return function(*args, **kwargs)

        return call

    return decorate


def _name_of(value: object) -> str | None:
    """Describe an argument in the line that names the engine. Returns None if the argument has no name."""
    if isinstance(value, str | os.PathLike):
        return mask(os.fsdecode(value))
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, Sequence) and len(value) == 1:
        return _name_of(value[0])
    reference = getattr(value, "reference", None)
    return None if reference is None else str(reference)


def current_work() -> Work:
    """Return the work of the innermost block. Outside of any block, only warnings are logged."""
    return _work.get() or _Unnamed("", None)


class _Unnamed(Work):
    def runs_on(self, engine: Engine) -> None:
        """Say nothing."""

    def cancels(self, num_tasks: int) -> None:
        """Say nothing."""


class NotebookBar:
    """A ``progress`` callback that shows a bar in the output of the cell, and removes it when the call ends."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._handle: Any = None
        self._next = time.monotonic() + _PATIENCE

    def __call__(self, progress: Progress) -> None:
        """Draw ``progress``, at most three times a second."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _PERIOD
        done = "" if progress.fraction is None else f' value="{progress.fraction:.3f}"'
        self._draw(str(progress), Markup(f"<div><progress{done}></progress> {escape(progress)}</div>"))

    def close(self) -> None:
        """Remove the bar."""
        if self._handle is not None:
            self._draw("", Markup())

    def _draw(self, text: str, markup: Markup) -> None:
        bundle = {"text/plain": text, "text/html": markup}
        if self._handle is None:
            self._handle = self._display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


def notebook_bar() -> NotebookBar | None:
    """Return a bar if this process is the kernel of a notebook, else None. IPython is never imported for this."""
    ipython = sys.modules.get("IPython")
    shell = getattr(ipython, "get_ipython", lambda: None)()
    return NotebookBar(ipython.display.display) if ipython is not None and hasattr(shell, "kernel") else None
