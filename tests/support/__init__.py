"""Shared by several tests: servers, samples, strategies, and the programs that tests start.

A module here is imported as ``support.NAME``; a program that imports it needs TESTS in its PYTHONPATH.
"""

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
TESTS: Final = FOLDER.parent
