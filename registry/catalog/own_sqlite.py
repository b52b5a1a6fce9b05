"""Imports Python's SQLite even if TensorFlow was imported before.

TensorFlow contains an SQLite without full-text search and exports its functions to every library that is loaded later.
Python's module would bind to them instead of its own library, and no catalog could be opened.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

_DEEPBIND = getattr(os, "RTLD_DEEPBIND", 0)

if _DEEPBIND and "tensorflow" in sys.modules and "_sqlite3" not in sys.modules:
    _flags = sys.getdlopenflags()
    sys.setdlopenflags(_flags | _DEEPBIND)  # bind to its own library before libraries that are loaded already
    try:
        import_module("_sqlite3")
    finally:
        sys.setdlopenflags(_flags)

import sqlite3  # noqa: E402 (after _sqlite3, which it wraps)

__all__ = ["sqlite3"]
