"""Progress bars in notebooks: a long call of the API in the kernel of a notebook shows one automatically."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

from registry.markup import Markup, escape

if TYPE_CHECKING:
    from registry.model import Progress

_PATIENCE: Final = 1.0
"""Seconds before a bar appears: most calls end earlier."""

_PERIOD: Final = 0.3


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
