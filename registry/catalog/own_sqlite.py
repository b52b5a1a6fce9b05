"""Python's SQLite, and not the one of TensorFlow, where that was imported before.

TensorFlow carries an SQLite without full-text search, and shows its functions to every library that is loaded later.
Python's module would take them for those of the library that it was made for, and no catalog could be opened.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

_DEEPBIND = getattr(os, "RTLD_DEEPBIND", 0)

if _DEEPBIND and "tensorflow" in sys.modules and "_sqlite3" not in sys.modules:
    _flags = sys.getdlopenflags()
    sys.setdlopenflags(_flags | _DEEPBIND)  # its own libraries before those that are there already
    try:
        import_module("_sqlite3")
    finally:
        sys.setdlopenflags(_flags)

import sqlite3  # noqa: E402 (after the module that it is made of)

__all__ = ["sqlite3"]
