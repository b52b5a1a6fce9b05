"""``LazyFile``: a published file of another machine, opened at the first read from the first source that works.

ProvedStore.open  ->  LazyFile  ->  an object with the recorded size and ETag, or else an object proved by its bytes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, TypeAlias

from registry.errors import NotStoredError, ReplacedError, StorageError, VerificationError
from registry.storage.faults import Range, StoredFile, check_ranges
from registry.storage.remote import RangedFile

OpenSource: TypeAlias = Callable[[], StoredFile]


class LazyFile(RangedFile):
    """A file of known size that several sources can deliver. A read that fails continues with the next source.

    The sources have to prove that they deliver the same bytes.
    """

    faults: ClassVar[tuple[type[StorageError | VerificationError], ...]] = (NotStoredError, ReplacedError)
    """The errors of a source that let the next one take over."""

    def __init__(self, sources: Sequence[OpenSource], *, path: str, num_bytes: int, entity_tag: str | None) -> None:
        """Open nothing yet.

        Args:
            sources: functions that open the file, in the order in which they are tried.
            path: the whole path or URL, for messages.
            num_bytes: the size of the file.
            entity_tag: its ETag at the first source; the attribute is that of the present source.
        """
        super().__init__(path=path, num_bytes=num_bytes, entity_tag=entity_tag)
        self._waiting = list(sources)
        self._source: StoredFile | None = None

    def read_ranges(self, ranges: Sequence[Range], *, in_order: bool = False) -> Iterator[tuple[int, memoryview]]:
        """Yield the bytes of ``ranges``."""
        self._require_open()
        check_ranges(ranges, self.num_bytes, self.path)
        return self._read(ranges, *self._begin(ranges, in_order=in_order), in_order=in_order)

    def close(self) -> None:
        """Close the file."""
        source = getattr(self, "_source", None)  # the base class closes a file whose __init__ failed
        if source is not None:
            source.close()
        super().close()

    def _read(
        self, ranges: Sequence[Range], source: StoredFile, views: Iterator[tuple[int, memoryview]], *, in_order: bool
    ) -> Iterator[tuple[int, memoryview]]:
        left = dict.fromkeys(range(len(ranges)))
        while True:
            wanted = list(left)
            try:
                for place, view in views:
                    del left[wanted[place]]
                    yield wanted[place], view
            except self.faults as error:
                self._leave(source, error)
            else:
                return
            source, views = self._begin([ranges[index] for index in left], in_order=in_order)

    def _begin(self, ranges: Sequence[Range], *, in_order: bool) -> tuple[StoredFile, Iterator[tuple[int, memoryview]]]:
        """Begin to read ``ranges`` from the present source, or from the first one that can be opened."""
        while True:
            source = self._open_source()
            try:
                return source, source.read_ranges(ranges, in_order=in_order)
            except self.faults as error:
                self._leave(source, error)

    def _open_source(self) -> StoredFile:
        if self._source is None:
            self._source = self._waiting[0]()  # if this fails, the next read tries it again
            self._waiting = self._waiting[1:]
            self.entity_tag = self._source.entity_tag
        return self._source

    def _leave(self, source: StoredFile, error: StorageError | VerificationError) -> None:
        """Let the next source take over from one that failed; raises ``error`` if it was the last one."""
        if source is not self._source:
            return  # another iterator has done so
        if not self._waiting:
            raise error
        self._source = None
        source.close()
