"""An open file that continues in another copy of it if it can no longer be read.

``shards.mirrored`` opens the files of a version that has several locations like this.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from registry.errors import StorageError, VerificationError
from registry.storage.faults import Range, StoredFile, check_ranges
from registry.storage.remote import cut

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER_BYTES: Final = 2**16


class FallOverFile(StoredFile):
    """A stored file, and the function that opens its next copy after an error.

    The copies have the same bytes. After a fault, only the bytes that have not arrived are requested again.
    """

    def __init__(self, file: StoredFile, open_next: Callable[[StorageError | VerificationError], StoredFile]) -> None:
        """``open_next`` gets the error of the present copy, and raises one if no copy is left."""
        self._copies = _Copies(file, open_next)
        super().__init__(_InOrder(self._copies), path=file.path, buffer_bytes=_BUFFER_BYTES, entity_tag=file.entity_tag)
        self._num_bytes = file.num_bytes

    @property
    def num_bytes(self) -> int:
        """Size of the file, in bytes."""
        return self._num_bytes

    def read_ranges(self, ranges: Sequence[Range], *, in_order: bool = False) -> Iterator[tuple[int, memoryview]]:
        """Yield the bytes of ``ranges``; after a fault, the missing ones are requested from the next copy."""
        if self.closed:
            raise ValueError("read of closed file")  # the words of Python's own files
        return self._copies.read_ranges(check_ranges(ranges, self._num_bytes, self.path), in_order=in_order)

    def pieces(self) -> Iterator[memoryview]:
        """Yield all bytes from the start; the next pieces are fetched while one is used."""
        return (view for _, view in self.read_ranges(cut(0, self._num_bytes), in_order=True))

    def read(self, size: int | None = -1, /) -> bytes:
        """Read the next ``size`` bytes; if it is negative or None, read the rest by concurrent requests."""
        if size is not None and size >= 0:
            return super().read(size)
        rest = cut(self.tell(), self._num_bytes)
        content = b"".join(view for _, view in self.read_ranges(rest, in_order=True))
        self.seek(0, io.SEEK_END)
        return content


class _Copies:
    """The copy that is read now."""

    def __init__(self, file: StoredFile, open_next: Callable[[StorageError | VerificationError], StoredFile]) -> None:
        self.file = file
        self._open_next = open_next

    def leave(self, file: StoredFile, error: StorageError | VerificationError) -> None:
        """Replace ``file``, which failed, by the next copy, unless another iterator has done so."""
        if self.file is file:
            self.file = self._open_next(error)
            file.close()

    def read_ranges(self, ranges: Sequence[Range], *, in_order: bool) -> Iterator[tuple[int, memoryview]]:
        # The request starts now: the iterator may be used after the file is closed.
        file = self.file
        return self._views(file, file.read_ranges(ranges, in_order=in_order), ranges, in_order=in_order)

    def _views(
        self, file: StoredFile, views: Iterator[tuple[int, memoryview]], ranges: Sequence[Range], *, in_order: bool
    ) -> Iterator[tuple[int, memoryview]]:
        left: Sequence[int] = range(len(ranges))
        while True:
            arrived = set()
            try:
                for place, view in views:
                    arrived.add(place)
                    yield left[place], view
            except (StorageError, VerificationError) as error:
                self.leave(file, error)
            else:
                return
            left = [index for place, index in enumerate(left) if place not in arrived]
            file = self.file
            views = file.read_ranges([ranges[index] for index in left], in_order=in_order)


class _InOrder(io.RawIOBase):
    """The present copy as a raw file with a position of its own."""

    def __init__(self, copies: _Copies) -> None:
        super().__init__()
        self._copies = copies
        self._place = 0

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read the next bytes."""
        view = memoryview(buffer)
        while True:
            file = self._copies.file
            try:
                if file.tell() != self._place:
                    file.seek(self._place)
                count = file.readinto(view)
            except (StorageError, VerificationError) as error:
                self._copies.leave(file, error)
            else:
                self._place += count
                return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Change the position."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._copies.file.num_bytes}[whence]
        self._place = start + offset
        return self._place

    def tell(self) -> int:
        """The position of the next byte."""
        return self._place

    def close(self) -> None:
        """Close the present copy."""
        if not self.closed:
            self._copies.file.close()
        super().close()
