"""How does a sorted run of entries lie on disk while a split is being sorted, and how is it read back?

A run is an unlinked temporary file: it has no name, so it is gone with the process, however that ends. Its format is
private to one build::

    run    := entry*
    entry  := head crc32(head + label + record) label record
    head   := sort_key (16 bytes) label_length (u32) record_length (u64)

Lengths and checksums are checked on the way back: a disk that loses bytes ends the build instead of damaging a dataset.
"""

from __future__ import annotations

import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

from registry.errors import StorageError

_HEAD: Final = struct.Struct("<16sIQ")
_CHECKSUM: Final = struct.Struct("<I")
_PREFIX_BYTES: Final = _HEAD.size + _CHECKSUM.size


class Entry(NamedTuple):
    """One record on its way to its place: where it sorts, what its author called it, its bytes."""

    sort_key: bytes
    label: str
    record: bytes


class Run:
    """One sorted run. Written once by ``write_run``, read once with ``entries``, then closed."""

    __slots__ = ("_file", "level", "num_bytes")

    def __init__(self, file: BinaryIO, *, num_bytes: int, level: int) -> None:
        self._file = file
        self.num_bytes = num_bytes
        self.level = level

    def entries(self, *, buffer_bytes: int) -> Iterator[Entry]:
        """Every entry in the order written, reading ``buffer_bytes`` at a time; closes the run at its end.

        Raises:
            StorageError: bytes are missing or changed.
        """
        # A buffer of our own over the raw file: its size has to follow the number of runs that are read at once.
        with open(self._file.fileno(), "rb", buffering=max(buffer_bytes, 4096), closefd=False) as file:
            file.seek(0)
            position = 0
            while position < self.num_bytes:
                prefix = _read(file, _PREFIX_BYTES, position)
                sort_key, label_length, record_length = _HEAD.unpack_from(prefix)
                size = label_length + record_length
                if position + _PREFIX_BYTES + size > self.num_bytes:
                    raise _damaged(position)
                body = _read(file, size, position)
                (checksum,) = _CHECKSUM.unpack_from(prefix, _HEAD.size)
                if zlib.crc32(body, zlib.crc32(prefix[: _HEAD.size])) != checksum:
                    raise _damaged(position)
                yield Entry(sort_key, body[:label_length].decode(), body[label_length:])
                position += _PREFIX_BYTES + size
        self.close()

    def close(self) -> None:
        """Give the disk space back."""
        self._file.close()


def write_run(entries: Iterable[Entry], *, folder: Path | None, level: int) -> Run:
    """A run that holds ``entries``, which come sorted; ``folder`` None is the system's temporary folder.

    Raises:
        StorageError: the folder is not writable, or its disk is full.
    """
    try:
        file = cast("BinaryIO", tempfile.TemporaryFile(dir=folder, buffering=2**20))  # noqa: SIM115 - the Run closes it
        try:
            for sort_key, label, record in entries:
                label_bytes = label.encode()
                head = _HEAD.pack(sort_key, len(label_bytes), len(record))
                checksum = zlib.crc32(record, zlib.crc32(label_bytes, zlib.crc32(head)))
                file.write(head + _CHECKSUM.pack(checksum) + label_bytes)
                file.write(record)
            file.flush()
            num_bytes = file.tell()
        except BaseException:
            _close_quietly(file)
            raise
    except StorageError:
        raise
    except OSError as error:
        where = folder if folder is not None else tempfile.gettempdir()
        raise StorageError(
            f"sorting: cannot write a temporary file in {where}: {error.strerror or error}",
            hint="Sorting needs about as much free disk space as the split it sorts.",
            details={"folder": str(where)},
        ) from error
    return Run(file, num_bytes=num_bytes, level=level)


def _close_quietly(file: BinaryIO) -> None:
    """Close a file that could not be written; closing tries to write the rest once more, and fails like before."""
    try:
        file.close()
    except OSError:
        return


def _read(file: BinaryIO, size: int, position: int) -> bytes:
    try:
        found = file.read(size)
    except OSError as error:
        raise _damaged(position) from error
    if len(found) != size:
        raise _damaged(position)
    return found


def _damaged(position: int) -> StorageError:
    return StorageError(
        f"sorting: a temporary file came back damaged at byte {position}",
        hint="The disk of the data folder loses data or was written to by somebody else. Check it, then build again.",
        details={"offset": position},
    )
