"""Files that hold sorted runs of records: without a name on this machine, or with one in a store.

The system removes a file without a name when the process that made it ends for any reason. Other processes of this
machine open it below ``/proc``. Other machines read runs from a store.
"""

from __future__ import annotations

import io
import os
import tempfile
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, cast

from registry.errors import StorageError

if TYPE_CHECKING:
    from registry.storage import Store
    from registry.storage.faults import StoredFile

CAN_SHARE_FILES: Final = os.access("/proc/self/fd", os.R_OK | os.X_OK)
"""Whether other processes can open files without a name: only if ``/proc`` shows the open files of this process."""

KEYS_SUFFIX: Final = ".keys"
DAMAGED_SUFFIX: Final = ".damaged"
_LEAST_BUFFER_BYTES: Final = 4096  # a block of a run is larger, so its body is read at once
_REQUEST_BYTES: Final = 2**20


class RunSource(Protocol):
    """The bytes of one run. Each copy, including an unpickled one, opens the file for itself.

    Attributes:
        name: the name in its store; empty for files without a name.
    """

    name: str

    @abstractmethod
    def read_at(self, start: int, num_bytes: int) -> bytes:
        """Read bytes from ``start`` on; fewer at the end of the file."""

    @abstractmethod
    def stream(self, start: int, stop: int) -> BinaryIO:
        """The bytes from ``start`` on, which are read in order up to ``stop``. Close it; the run stays open."""

    @abstractmethod
    def close(self) -> None:
        """Close the file. For a file without a name, this frees the disk space."""

    @abstractmethod
    def forget(self) -> None:
        """Keep other builds from using this run, which is damaged."""


class RunFile(RunSource, Protocol):
    """The file of one run, written once."""

    @abstractmethod
    def create(self) -> AbstractContextManager[BinaryIO]:
        """The empty file, for a with block. It is complete when the block has ended."""


class UnnamedFile(RunFile):
    """A file without a name that this process made, or another process of this machine.

    Raises:
        StorageError: the folder is not writable, or its disk is full.
    """

    def __init__(self, folder: Path | None) -> None:
        """Make it in ``folder``. None: the system's temporary folder."""
        with storing(folder):
            file = cast("BinaryIO", tempfile.TemporaryFile(dir=folder, buffering=2**20))  # noqa: SIM115 (see close)
        self._file: BinaryIO | None = file
        self._folder = folder
        self._path = ""
        self.name = ""

    def append(self, parts: Iterable[memoryview]) -> None:
        """Append bytes, in the process that made the file. Others see them after ``flush``."""
        with storing(self._folder):
            for part in parts:
                self._opened().write(part)

    def flush(self) -> None:
        """Write what was appended."""
        with storing(self._folder):
            self._opened().flush()

    @contextmanager
    def create(self) -> Iterator[BinaryIO]:
        """See ``RunFile.create``."""
        with storing(self._folder):
            if not self._path:
                yield self._opened()
                self.flush()
            else:
                with Path(self._path).open("wb", buffering=2**20) as file:
                    yield file

    def read_at(self, start: int, num_bytes: int) -> bytes:
        """See ``RunSource.read_at``."""
        file = self._opened()
        file.seek(start)
        return file.read(num_bytes)

    def stream(self, start: int, stop: int) -> BinaryIO:  # noqa: ARG002 (the system reads ahead as it likes)
        """See ``RunSource.stream``. All streams share one position."""
        file = open(self._opened().fileno(), "rb", buffering=_LEAST_BUFFER_BYTES, closefd=False)  # noqa: SIM115
        file.seek(start)
        return file

    def close(self) -> None:
        """See ``RunSource.close``."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def forget(self) -> None:
        """See ``RunSource.forget``. No other build can use a file without a name."""

    def _opened(self) -> BinaryIO:
        if self._file is None:
            if not self._path:
                raise ValueError("the file is closed")
            self._file = Path(self._path).open("rb")  # noqa: SIM115 (see close)
        return self._file

    def __getstate__(self) -> tuple[str, Path | None]:
        return self._path or f"/proc/{os.getpid()}/fd/{self._opened().fileno()}", self._folder

    def __setstate__(self, state: tuple[str, Path | None]) -> None:
        self._file = None
        self._path, self._folder = state
        self.name = ""


class NamedRunFile(RunFile):
    """A file in a store that every process can read. Closing it keeps it."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._file: StoredFile | None = None
        self.name = name

    def create(self) -> AbstractContextManager[BinaryIO]:
        """See ``RunFile.create``. A file of this name is replaced."""
        return self._store.create(self.name, overwrite=True)

    def read_at(self, start: int, num_bytes: int) -> bytes:
        """See ``RunSource.read_at``."""
        file = self._opened()
        ((_, view),) = file.read_ranges([(start, min(start + num_bytes, file.num_bytes))])
        return bytes(view)

    def stream(self, start: int, stop: int) -> BinaryIO:
        """See ``RunSource.stream``. Nothing after ``stop`` is requested."""
        return _stream(self, start, stop)

    def close(self) -> None:
        """See ``RunSource.close``."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def keys(self) -> NamedRunFile:
        """The file of the run of the keys of this run."""
        return NamedRunFile(self._store, self.name + KEYS_SUFFIX)

    @property
    def num_bytes(self) -> int:
        """The size of the file. Raises NotStoredError if it is missing."""
        return self._opened().num_bytes

    def forget(self) -> None:
        """See ``RunSource.forget``: marks the run, which tasks of this build still read, as damaged."""
        with suppress(StorageError):  # the caller raises the error about the damage
            self._store.write_bytes(self.name.removesuffix(KEYS_SUFFIX) + DAMAGED_SUFFIX, b"", overwrite=True)

    def _opened(self) -> StoredFile:
        if self._file is None:
            self._file = self._store.open(self.name)
        return self._file

    def __getstate__(self) -> tuple[Store, str]:
        return self._store, self.name

    def __setstate__(self, state: tuple[Store, str]) -> None:
        self._file = None
        self._store, self.name = state


class ChainedRunFile(RunSource):
    """A run in several files of a store, one after the other. No block of the run is split between two files.

    Args:
        store: contains the files.
        name: the files are ``<name>.0``, ``<name>.1`` and so on.
        sizes: the size of each file in bytes.
    """

    def __init__(self, store: Store, name: str, sizes: Iterable[int]) -> None:
        self._store = store
        self.name = name
        self._ends = list(accumulate(sizes))
        self._opened: tuple[int, NamedRunFile] | None = None

    @staticmethod
    def part(store: Store, name: str, index: int) -> NamedRunFile:
        """The file number ``index``, which a task writes."""
        return NamedRunFile(store, f"{name}.{index}")

    def read_at(self, start: int, num_bytes: int) -> bytes:
        """See ``RunSource.read_at``. No read crosses the end of a file."""
        index = bisect_right(self._ends, start)
        if index == len(self._ends):
            return b""
        before = self._ends[index - 1] if index else 0
        if self._opened is None or self._opened[0] != index:
            self.close()
            self._opened = index, self.part(self._store, self.name, index)
        return self._opened[1].read_at(start - before, num_bytes)

    def stream(self, start: int, stop: int) -> BinaryIO:
        """See ``RunSource.stream``."""
        return _stream(self, start, stop)

    def close(self) -> None:
        """See ``RunSource.close``."""
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None

    def forget(self) -> None:
        """See ``RunSource.forget``. Each build merges its runs again."""

    def __getstate__(self) -> tuple[Store, str, list[int]]:
        return self._store, self.name, self._ends

    def __setstate__(self, state: tuple[Store, str, list[int]]) -> None:
        self._store, self.name, self._ends = state
        self._opened = None


def _stream(source: RunSource, start: int, stop: int) -> BinaryIO:
    """Bytes ``start``..``stop`` of a stored run; each request reads 1 MiB."""
    from registry.storage.remote import RangeReader  # not for local builds

    raw = RangeReader(lambda first, last: source.read_at(first, last - first), num_bytes=stop)
    raw.seek(start)
    return cast("BinaryIO", io.BufferedReader(raw, _REQUEST_BYTES))


@contextmanager
def storing(folder: Path | None) -> Iterator[None]:
    """Report an OSError as the StorageError of sorting in ``folder``."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        where = folder or tempfile.gettempdir()
        raise StorageError(
            f"sorting: cannot write a temporary file in {where}: {error.strerror or error}",
            hint=f"Sorting needs about as much free disk space as the split has bytes. Free space in {where}.",
            details={"folder": str(where)},
        ) from error
