"""A catalog is opened by the SQLite of Python, also after TensorFlow, which shows its own to what is loaded later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

AFTER_TENSORFLOW = """
import os, sys, types
sys.modules["tensorflow"] = types.ModuleType("tensorflow")
used, setdlopenflags = [], sys.setdlopenflags
sys.setdlopenflags = lambda flags: used.append(flags) or setdlopenflags(flags)
before = sys.getdlopenflags()
import registry
registry.connect(sys.argv[1]).close()
print(used == [before | os.RTLD_DEEPBIND, before] if hasattr(os, "RTLD_DEEPBIND") else used == [])
"""


def test_pythons_own_library_is_bound_first_and_for_nobody_else(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AFTER_TENSORFLOW, str(tmp_path / "catalog.db")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True\n"
