"""A forked child that runs one action, for tests of what a fork inherits."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

import pytest

# Test runners start threads, and Python 3.12 warns of a fork beside threads; the children here end at once.
FORKING = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def in_child(action: Callable[[], bool]) -> bool:
    """Whether ``action`` returns True in a forked child of this process."""
    child = os.fork()
    if child == 0:
        try:  # the child must not return to pytest
            os._exit(0 if action() else 1)
        finally:
            traceback.print_exc()
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0
