"""Digests the values that determine shards or runs, so that a later run uses only files of the same values.

    values, and the versions of what encodes records -> key_of_values -> finished.py: shards; run_folder.py: runs

A key depends on values, not on code: whoever lets a build continue (``finished=True``) decides that its code and its
inputs are still the same.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import platform
import sys
import zlib
from importlib import metadata
from typing import Any


def key_of_values(values: Any) -> str | None:
    """Digest the values that determine the content of files, and the versions of encoders.

    Equal values give equal keys, whether or not they share objects. Returns None if a value cannot be pickled.
    """
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=5)
    pickler.fast = True  # does not memoize objects, and refuses objects that contain themselves
    try:
        pickler.dump(values)
    except Exception:  # noqa: BLE001 (pickling calls author code)
        return None
    return hashlib.sha256(file.getvalue() + json.dumps(_encoder_versions(), sort_keys=True).encode()).hexdigest()


class _Pickler(pickle.Pickler):
    """Pickles a path as its text, not as its parts."""

    def persistent_id(self, obj: Any) -> str | None:
        if isinstance(obj, os.PathLike):
            return os.path.join(os.curdir, os.fsdecode(obj))  # noqa: PTH118 (marks it as a path)
        return None


def _encoder_versions() -> dict[str, str | None]:
    """Return the versions of the registry and of packages that determine the bytes of encoded records."""
    versions: dict[str, str | None] = {
        "registry": sys.modules["registry"].__version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
    }
    for package in ("numpy", "pillow"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return versions
