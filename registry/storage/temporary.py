"""Temporary local folders for files that are downloaded, extracted, or prepared for an upload.

A folder is removed when its ``TemporaryStore`` is no longer used, or at the end of the process. The folders that a
killed process left in TMPDIR are removed by the next process.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any, Final

from registry.storage.faults import cannot, storage_errors
from registry.storage.local import LocalStore
from registry.storage.names import FINISHED_FILE, Owner

_PREFIX: Final = "shardbook-"
_SPARE_BYTES: Final = 256 * 2**20
"""The number of bytes that stay free on the disk for other programs."""


class TemporaryStore(LocalStore):
    """The files below a new folder in TMPDIR, which is removed with this object.

    A pickled copy is a plain ``LocalStore``: worker processes read the files and do not remove them.
    """

    def __init__(self, root: str = "") -> None:
        """Create a folder, or take over ``root``, a folder of ``finished_temporary``."""
        with storage_errors("write", tempfile.gettempdir()):
            for path in abandoned_temporary():
                shutil.rmtree(path, ignore_errors=True)
            # The mark of the process shows others whether it is still running.
            root = root or tempfile.mkdtemp(prefix=f"{_PREFIX}{Owner.this_process().mark()}_")
        super().__init__(root)
        self._finalizer = weakref.finalize(self, _remove, self._root, os.getpid())

    def discard(self) -> None:
        """Remove the folder now."""
        self._finalizer()

    def keep(self) -> None:
        """Leave the folder in TMPDIR when this process ends."""
        self._finalizer.detach()

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalStore, (self._root,)


def check_free_space(path: str, num_bytes: int, subject: str) -> None:
    """Check that ``subject``, which takes ``num_bytes``, fits on the disk of ``path``.

    Raises:
        StorageError: there is not enough free space.
    """
    free = shutil.disk_usage(path).free - _SPARE_BYTES
    if num_bytes > free:
        raise cannot(
            "write",
            path,
            f"{subject} needs {num_bytes:,} bytes, but only {max(free, 0):,} are free",
            number=errno.ENOSPC,
            hint="Free some space there, or set TMPDIR to another folder, e.g. TMPDIR=/var/tmp.",
        )


def _remove(root: str, process: int) -> None:
    if os.getpid() == process:  # not in a forked child, which inherits the object
        shutil.rmtree(root, ignore_errors=True)


def abandoned_temporary() -> list[Path]:
    """Find the folders in TMPDIR that killed processes left, without those of finished shards and of other users."""
    here = Owner.this_process()
    return sorted(
        path
        for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}p*_*")
        if here.knows_dead(path.name.removeprefix(_PREFIX).partition("_")[0])
        and os.access(path, os.R_OK | os.W_OK | os.X_OK)
        and not (path / FINISHED_FILE).exists()
    )


def finished_temporary() -> list[Path]:
    """Find the folders of finished shards in TMPDIR. Their owner files show whether a process uses them."""
    return sorted(path.parent for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}p*_*/{FINISHED_FILE}"))
