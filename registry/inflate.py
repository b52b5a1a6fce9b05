"""Chooses the library that decompresses gzip files and the rows of PNG files."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any


def inflate_library() -> tuple[Callable[[int], Any], type[Exception]]:
    """Return isal if the extra ``gzip`` is installed (about twice as fast), else zlib; the results are the same."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.decompressobj, zlib.error
    return isal_zlib.decompressobj, isal_zlib.error  # type: ignore[return-value] # the stub says an instance
