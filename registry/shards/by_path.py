"""How does a library that opens files by itself get the very file that the store opened, and may have proved?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from registry.errors import StorageError
from registry.storage.faults import storage_errors
from registry.tfrecord.stamps import FileState


@contextmanager
def opened_by_path(file: BinaryIO, path: str) -> Iterator[None]:
    """Within the block ``path`` is opened by a library: it leads to the open ``file`` of this machine.

    After the block it must lead to that file in the same state: a file that was put in its place for a moment, and the
    right one back, would have changed its times.

    Raises:
        StorageError: it cannot be looked at, or was replaced within the block.
    """
    with storage_errors("read", path):
        before = FileState.of(os.fstat(file.fileno()))
    yield
    with storage_errors("read", path):
        after = FileState.of(os.stat(path))  # noqa: PTH116 (a text, as the store has it)
    if after != before:
        raise StorageError(
            f"cannot read {path}: it was replaced while it was opened",
            hint="Published files never change. Find out what writes to it, then try again.",
            details={"path": path, "errno": None, "doing": "read"},
        )
