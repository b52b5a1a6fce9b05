"""``conftest.py`` needs no more than the smallest environment that runs tests: those beside PyTorch and TFDS."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_conftest_needs_no_package_that_only_the_extra_test_brings() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "shardbook[bfloat16,grain,image,torch]" in extras["torch-tests"]  # none of these brings a package of these:
    absent = ["boto3", "cryptography", "duckdb", "flask", "jwt", "moto", "obstore", "psycopg", "pyarrow", "starlette"]
    code = "; ".join(["import sys", *(f"sys.modules[{name!r}] = None" for name in absent), "import conftest"])
    subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tests", check=True)
