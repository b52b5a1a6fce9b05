"""Tests that freed memory returns to the system, in a process of its own."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

SCRIPT = """
import numpy as np
import pyarrow
from registry.engines.workers import keep_freed_memory
from registry.intake.plan import return_freed_memory

def resident_mb():
    with open("/proc/self/status") as file:
        return int(next(line.split()[1] for line in file if line.startswith("VmRSS"))) // 1024

keep_freed_memory()
before = resident_mb()
arrays = [np.ones(2**20, np.uint8) for _ in range(101)]
last = arrays.pop()  # is behind the others, so that the system gets nothing back by itself
arrays.clear()
kept = resident_mb() - before
return_freed_memory()
print(kept, resident_mb() - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc can be told")
def test_memory_of_freed_arrays_is_kept_until_it_is_returned() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, stdout=subprocess.PIPE, text=True)
    kept, left = map(int, done.stdout.split())
    assert kept > 80
    assert left < 20
