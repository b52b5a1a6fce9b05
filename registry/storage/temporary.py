"""Temporary folders on this machine: for what is downloaded or extracted, and for what is uploaded when it is complete.

A folder is removed when its ``TemporaryStore`` is no longer used, or at the end of the process. What a killed process
leaves in TMPDIR, the next one removes.
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
"""The disk is not filled beyond this: other programs need it, too."""


class TemporaryStore(LocalStore):
    """The files below a new folder in TMPDIR, which is removed with this object.

    A pickled copy is a plain ``LocalStore``: worker processes read the files and do not remove them.
    """

    def __init__(self, root: str = "") -> None:
        """``root`` is a folder of ``finished_temporary``, which this process takes over."""
        with storage_errors("write", tempfile.gettempdir()):
            for path in abandoned_temporary():
                shutil.rmtree(path, ignore_errors=True)
            # A mark of the process, so that others see whether it is still running.
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
    """Check that ``num_bytes`` more fit on the disk of ``path``; ``subject`` needs them.

    Raises:
        StorageError: they do not.
    """
    free = shutil.disk_usage(path).free - _SPARE_BYTES
    if num_bytes > free:
        raise cannot(
            "write",
            path,
            f"{subject} needs {num_bytes:,} bytes, and {max(free, 0):,} are free",
            number=errno.ENOSPC,
            hint="Free some space there, or set TMPDIR to another folder, e.g. TMPDIR=/var/tmp.",
        )


def _remove(root: str, process: int) -> None:
    if os.getpid() == process:  # not in a forked child, which inherits the object
        shutil.rmtree(root, ignore_errors=True)


def abandoned_temporary() -> list[Path]:
    """The folders in TMPDIR that killed processes left, without those of finished shards."""
    here = Owner.this_process()
    return sorted(
        path
        for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}p*_*")
        if here.knows_dead(path.name.removeprefix(_PREFIX).partition("_")[0]) and not (path / FINISHED_FILE).exists()
    )


def finished_temporary() -> list[Path]:
    """The folders of finished shards in TMPDIR; their owner files say whether a process uses them."""
    return sorted(path.parent for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}p*_*/{FINISHED_FILE}"))
