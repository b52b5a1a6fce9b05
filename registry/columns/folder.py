"""The files of one column in the cache: written block by block, then mapped by every process that reads them.

    cache/ab/abcdef...(sha256 of what the column is)/values.npy, ends.npy, ...   the arrays, as NumPy writes them
                                                     column.json                 what they are, and digests of blocks

``column.json`` is written last. Until then, the arrays have temporary names, and a journal has a line for each finished
block, from which another process continues if this one is killed. The journal is locked while a process fills the
column. Each file is locked while a process maps it, so that it is not evicted.

The same files may be attached to a version. ``AttachedFolder`` maps local attachments in place. Those of another
machine are fetched block by block: ``ColumnFolder.reserve`` creates sparse files, whose holes do not match the digests
of their blocks.
"""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from fastcrc.crc32 import iscsi

from registry.columns.layout import Array, ArrayForm, Layout
from registry.storage.cache import FileCache
from registry.storage.cache.folder import lock_file, unlock_file
from registry.storage.faults import StoredFile
from registry.storage.memory import open_own, read_own, replace_file

FORMAT: Final = "registry.column/1"
_UNFINISHED: Final = "0" * 16
"""A name that is the same for all processes, so that another process can continue."""

_MOST_JSON_BYTES: Final = 2**28
DOCUMENT: Final = "column.json"
_FAULTS: Final = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
_MOST_NAME: Final = 40


class Block(NamedTuple):
    """A finished block of a column.

    Attributes:
        lengths: the number of entries of each array up to the end of the block, without an entry 0.
        digests: the CRC32C of the entries of each array in the block, or their sha256 if other users can write the
            files.
        bounds: the minimum and the maximum, without NaN. None if the block has only NaN, or if the column does not have
            exactly one number in each record. Filters use them to skip blocks.
    """

    lengths: list[int]
    digests: list[int | str]
    bounds: list[Any] | None


Blocks: TypeAlias = Sequence[Block]
"""The finished blocks of a column."""


class ColumnFolder:
    """The folder of one column: the values of one leaf in all records of a split, which ``source`` identifies."""

    def __init__(
        self,
        cache: FileCache,
        source: str,
        layout: Layout,
        num_records: int,
        block_records: int,
        *,
        is_shared: bool = False,
    ) -> None:
        """``is_shared`` is for a folder to which other users can write: each block gets a sha256."""
        self.is_shared = is_shared
        self.layout = layout
        self.source = source
        self.num_records = num_records
        self.block_records = block_records
        self.facts = {
            "format": FORMAT,
            "source": source,
            "layout": layout.identity,
            "num_records": num_records,
            "block_records": block_records,
        }
        self.key = hashlib.sha256(json.dumps(self.facts, sort_keys=True).encode()).hexdigest()
        self.cache = cache
        self.folder = cache.folder / self.key[:2] / self.key

    @property
    def num_blocks(self) -> int:
        """Number of blocks of all records."""
        return -(-self.num_records // self.block_records)

    @property
    def attached_names(self) -> dict[str, str]:
        """The name of the attachment for each file: readable, and unique for the source of the column."""
        readable = re.sub("[^A-Za-z0-9_]+", "-", f"{json.loads(self.source)[1]}-{self.layout.path}")[:_MOST_NAME]
        files = (*(f"{form.name}.npy" for form in self.layout.forms), DOCUMENT)
        return {file: f"{readable.strip('-') or '_'}.{self.key[:16]}.{file}" for file in files}

    def exists(self) -> bool:
        """Whether the file of a finished column exists. Its content is not checked."""
        return (self.folder / DOCUMENT).exists()

    def num_written_bytes(self) -> int:
        """The size of the journal, which grows with each block, or 0 without a journal."""
        with suppress(OSError):
            return self._file(None).stat().st_size
        return 0

    def open(self) -> KeptColumn | None:
        """Map the column. Returns None if it is missing or incomplete."""
        try:
            self.cache.require_own()
            mapped = _lock(self.folder / DOCUMENT)
            blocks = self.read(mapped[:])
            arrays = [_array(_lock(self._file(form)), form, length) for form, length in self.lengths(blocks)]
        except _FAULTS:
            return None
        return KeptColumn(self.layout, arrays, self, blocks, mapped)

    def read(self, document: bytes) -> Blocks:
        """Parse the blocks of ``column.json``. Raises one of ``_FAULTS`` if it does not belong to this column."""
        facts = json.loads(document)
        blocks: list[Block] = []
        for line in facts["blocks"]:
            self.add(blocks, line)
        if {name: facts.get(name) for name in self.facts} != self.facts or len(blocks) != self.num_blocks:
            raise ValueError("another column")
        return blocks

    def lengths(self, blocks: Blocks) -> list[tuple[ArrayForm, int]]:
        """Return each array with the number of its entries in all blocks."""
        return list(zip(self.layout.forms, self.before(blocks, self.num_blocks), strict=True))

    def before(self, blocks: Blocks, block: int) -> list[int]:
        """The entries of each array before a block."""
        return blocks[block - 1].lengths if block else [0] * len(self.layout.forms)

    def reserve(self, document: bytes) -> KeptColumn | None:
        """Create the column of an attached ``column.json``. Its blocks are missing until ``put`` writes them.

        Returns None if the cache lacks room for the column, if a process is filling it, or if the document is damaged.
        """
        try:
            blocks = self.read(document)
            self.cache.require_own()
            num_bytes = sum(_offset(form, length) for form, length in self.lengths(blocks))
            if not self.cache.room.may_hold(num_bytes) or not self.cache.room.reserve(num_bytes):
                return None
            if (writer := self.write()) is not None:
                with writer:
                    writer.adopt(blocks)
        except _FAULTS:
            return None
        return self.open()

    def ranges(self, blocks: Blocks, missing: Mapping[int, int]) -> dict[str, list[tuple[int, int]]]:
        """Return the bytes of each file to fetch. ``missing`` has the number of arrays to fetch for each block."""
        result: dict[str, list[tuple[int, int]]] = {}
        for block, num_arrays in missing.items():
            starts, stops = self.before(blocks, block), blocks[block].lengths
            for form, start, stop in list(zip(self.layout.forms, starts, stops, strict=True))[:num_arrays]:
                # The entry with the start of a block is the last entry of the block before.
                part = _offset(form, start - form.has_zero), _offset(form, stop)
                result.setdefault(f"{form.name}.npy", []).append(part)
        return result

    def read_hole(self, form: ArrayForm, start: int, stop: int) -> Array | None:
        """Read entries of which some were never written. Returns None if all were written.

        On a file system in memory, reading a hole through a map allocates memory, and crashes the process if there is
        none.
        """
        begin, end = _offset(form, start), _offset(form, stop)
        with suppress(OSError, AttributeError):  # the system does not support SEEK_HOLE, or the file was deleted
            descriptor = os.open(self.folder / f"{form.name}.npy", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if os.lseek(descriptor, begin, os.SEEK_HOLE) < end:
                    content = os.pread(descriptor, end - begin, begin).ljust(end - begin, b"\0")
                    return np.frombuffer(content, form.dtype).reshape(-1, *form.shape)
            finally:
                os.close(descriptor)
        return None

    def put(self, file: str, offset: int, content: memoryview | Array) -> None:
        """Write fetched bytes, which are later compared with the digest of their block. Raises OSError."""
        descriptor = os.open(self.folder / file, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            _write(descriptor, np.asarray(content), offset)
        finally:
            os.close(descriptor)

    def write(self) -> ColumnWriter | None:
        """Begin to fill the column, or continue where another process stopped. Returns None if a process is filling it.

        Raises:
            OSError: the folder cannot be written.
        """
        self.cache.require_own()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._file(None)
        journal = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            lock_file(journal)
            if os.fstat(journal).st_nlink and self.open() is not None:  # it was finished since the caller checked
                path.unlink()
            if not os.fstat(journal).st_nlink:  # another process has just finished it
                raise BlockingIOError
        except OSError as error:
            os.close(journal)
            if isinstance(error, BlockingIOError):
                return None
            raise
        return ColumnWriter(self, journal)

    def seal(self, place: int, block: Block) -> list[Any]:
        """Return the line of a block in the journal and the document.

        Its checksum is valid only for this column and place.
        """
        return [*block, iscsi(json.dumps([self.key, place, block]).encode())]

    def add(self, blocks: list[Block], line: Any) -> None:
        """Add the block of a line. Raises ValueError or TypeError if it is not the next block of this column."""
        lengths, digests, bounds, _ = line
        block = Block(lengths, digests, bounds)
        if self.seal(len(blocks), block) != line:
            raise ValueError("not the next block")
        blocks.append(block)

    def discard(self) -> None:
        """Delete the finished column, because it is damaged. Processes that map its files keep them."""
        for name in (DOCUMENT, *(f"{form.name}.npy" for form in self.layout.forms)):
            with suppress(OSError):
                (self.folder / name).unlink()

    def mend(self, column: KeptColumn, block: int, entries: Sequence[Array]) -> bool:
        """Write the entries of a damaged block again. Returns False if they do not match the stored digests."""
        if not all(map(_has_digest, entries, column.blocks[block].digests)):
            return False
        starts = column.entries_before(block)
        for place, (form, start, array) in enumerate(zip(self.layout.forms, starts, entries, strict=True)):
            if form.has_zero:  # an entry begins at the end of the previous entry
                array = np.concatenate([[starts[place + 1]], array])  # noqa: PLW2901
            with suppress(OSError, ValueError):  # a different file has that name now
                self._mend(column, place, start, array)
        return True

    def _mend(self, _column: KeptColumn, place: int, first: int, entries: Array) -> None:
        form = self.layout.forms[place]
        self.put(f"{form.name}.npy", _offset(form, first - form.has_zero), entries)

    def _file(self, form: ArrayForm | None, *, is_finished: bool = True) -> Path:
        if form is None:
            return self.folder / f"{DOCUMENT}.{_UNFINISHED}"
        return self.folder / (f"{form.name}.npy" if is_finished else f"{form.name}.npy.{_UNFINISHED}")


class AttachedFolder(ColumnFolder):
    """A column whose files are attachments on this machine: mapped where they are, and never written.

    Damaged blocks are repaired only in the memory of this process.
    """

    def __init__(self, folder: ColumnFolder, document: bytes, open_file: Callable[[str], StoredFile]) -> None:
        """Use ``open_file`` to open a file of the column, such as ``values.npy``."""
        super().__init__(folder.cache, folder.source, folder.layout, folder.num_records, folder.block_records)
        self._content = document
        self._open_file = open_file
        self._private: set[int] = set()
        self._identities: dict[str, tuple[int, int]] = {}

    def open(self) -> KeptColumn | None:
        """Map the column. Returns None if its files are missing, or do not match ``column.json``."""
        try:
            blocks = self.read(self._content)
            arrays = [self._map(form, length, mmap.ACCESS_READ) for form, length in self.lengths(blocks)]
        except _FAULTS:
            return None
        return KeptColumn(self.layout, arrays, self, blocks)

    def ranges(self, _blocks: Blocks, _missing: Mapping[int, int]) -> dict[str, list[tuple[int, int]]]:
        """Return nothing, because the files are not fetched."""
        return {}

    def read_hole(self, _form: ArrayForm, _start: int, _stop: int) -> None:
        """Return None, because attached files have no holes."""

    def discard(self) -> None:
        """Do nothing, because the files are published."""

    def _mend(self, column: KeptColumn, place: int, first: int, entries: Array) -> None:
        if place not in self._private:
            column.replace(place, self._map(*self.lengths(column.blocks)[place], mmap.ACCESS_COPY))
            self._private.add(place)
        array = column.arrays[place]
        array.flags.writeable = True
        array[first : first + len(entries)] = entries
        array.flags.writeable = False

    def _map(self, form: ArrayForm, length: int, access: int) -> Array:
        with self._open_file(f"{form.name}.npy") as file:
            facts = os.fstat(file.fileno())
            identity = facts.st_dev, facts.st_ino
            if self._identities.setdefault(form.name, identity) != identity:  # the other blocks were never verified
                raise ValueError("another file")
            return _array(mmap.mmap(file.fileno(), 0, access=access), form, length)


class KeptColumn:
    """A column that is mapped, or in memory. Readers of a mapped column must verify a block before they use it.

    Attributes:
        folder: its folder; None if it is in memory.
        values: its values.
        arrays: its arrays.
        num_bytes: the total size of the arrays in bytes.
        is_dense: whether values are stored in the form in which they are read.
        is_searched: whether a binary search for a row may access ``rows`` of any block.
    """

    def __init__(
        self,
        layout: Layout,
        arrays: Sequence[Array],
        folder: ColumnFolder | None,
        blocks: Blocks,
        document: mmap.mmap | None = None,
    ) -> None:
        """``document`` is the map of ``column.json``, which keeps its lock."""
        self.folder = folder
        self.num_bytes = sum(array.nbytes for array in arrays)
        self._layout = layout
        self.values = layout.column(arrays)
        self.blocks = blocks
        self.is_dense = layout.is_dense
        self.is_searched = layout.forms[0].name == "rows"
        self.arrays = list(arrays)
        self._document = document

    def is_missing(self, block: int) -> bool:
        """Whether the entries of a block that do not match the digests were never written."""
        for place, form in enumerate(self._layout.forms):
            # The last entry of a block may have been written with the next block.
            part = self._entries(block, place)[form.has_zero : -1 if form.has_zero else None]
            if part.any() and not self._is_sound(block, place):
                return False
        return True

    def replace(self, place: int, array: Array) -> None:
        """Replace the map of an array."""
        self.arrays[place] = array
        self.values = self._layout.column(self.arrays)

    def entries_before(self, block: int) -> list[int]:
        """The entries of each array before a block."""
        return self.blocks[block - 1].lengths if block else [0] * len(self.arrays)

    def is_sound(self, block: int, num_arrays: int | None = None) -> bool:
        """Whether the entries of all arrays, or of the first arrays, in a block match the digests."""
        return self.folder is None or all(self._is_sound(block, at) for at in range(len(self.arrays))[:num_arrays])

    def _is_sound(self, block: int, place: int) -> bool:
        entries, has_zero = self._entries(block, place), self._layout.forms[place].has_zero
        if has_zero and entries[0] != self.entries_before(block)[place + 1]:  # the end of the previous block
            return False
        return _has_digest(entries[has_zero:], self.blocks[block].digests[place])

    def _entries(self, block: int, place: int) -> Array:
        """Return the entries of an array in a block.

        If the array begins with 0, include the last one of the block before.
        """
        start, stop = self.entries_before(block)[place], self.blocks[block].lengths[place]
        form = self._layout.forms[place]
        hole = None if self.folder is None else self.folder.read_hole(form, start - form.has_zero, stop)
        return self.arrays[place][start : stop + form.has_zero] if hole is None else hole


class ColumnWriter:
    """Fills a column. If the context ends without ``finish``, a later writer continues after the finished blocks."""

    def __init__(self, folder: ColumnFolder, journal: int) -> None:
        self._folder = folder
        self._journal = journal
        self._blocks: list[Block] = []
        self._files: list[int] = []
        try:
            self._continue()
        except BaseException:
            self.__exit__()
            raise

    @property
    def num_records(self) -> int:
        """The number of written records."""
        return min(len(self._blocks) * self._folder.block_records, self._folder.num_records)

    @property
    def lengths(self) -> list[int]:
        """The present number of entries of each array."""
        return self._folder.before(self._blocks, len(self._blocks))

    def restart(self, num_records: int) -> None:
        """Drop the blocks after ``num_records``."""
        del self._blocks[-(-num_records // self._folder.block_records) :]
        self._write_journal()

    def append(self, entries: Sequence[Array]) -> bool:
        """Write the next block. Returns False if the cache lacks room. Raises OSError."""
        if not self._folder.cache.room.reserve(sum(array.nbytes for array in entries)):
            return False
        lengths = self.lengths
        for descriptor, form, length, array in zip(
            self._files, self._folder.layout.forms, lengths, entries, strict=True
        ):
            _write(descriptor, array, _offset(form, length))
        block = Block(
            [length + len(array) for length, array in zip(lengths, entries, strict=True)],
            [_digest(array, is_shared=self._folder.is_shared) for array in entries],
            _bounds(entries[0]) if self._folder.layout.is_dense else None,
        )
        self._blocks.append(block)
        os.write(self._journal, _line(self._folder.seal(len(self._blocks) - 1, block)))
        return True

    def adopt(self, blocks: Blocks) -> None:
        """Finish the column with the blocks of another document.

        Entries that were not written are holes. Raises OSError.
        """
        self._blocks = list(blocks)
        self.finish()

    def finish(self) -> None:
        """Rename the files to their final names. Raises OSError."""
        folder = self._folder
        for descriptor, form, length in zip(self._files, folder.layout.forms, self.lengths, strict=True):
            os.ftruncate(descriptor, _offset(form, length))
            os.pwrite(descriptor, _header(form, length), 0)
            folder._file(form, is_finished=False).replace(folder._file(form))
        blocks = self._lines()
        arrays = {f"{form.name}.npy": [form.dtype.str, list(form.shape)] for form in folder.layout.forms}
        document = json.dumps({**folder.facts, "arrays": arrays, "blocks": blocks})
        replace_file(folder.folder / DOCUMENT, document.encode())
        folder._file(None).unlink()

    def __enter__(self) -> ColumnWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (*self._files, self._journal):
            unlock_file(descriptor)
            os.close(descriptor)

    def _continue(self) -> None:
        """Read the journal, and open the arrays. Blocks after a damaged line are written again."""
        folder, blocks = self._folder, self._blocks
        with suppress(ValueError, TypeError, RecursionError):
            for line in os.pread(self._journal, _MOST_JSON_BYTES, 0).split(b"\n")[:-1]:
                folder.add(blocks, json.loads(line))
        for form, length in zip(folder.layout.forms, self.lengths, strict=True):
            path = folder._file(form, is_finished=False)
            self._files.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            lock_file(self._files[-1], is_shared=True)  # it is not deleted, and readers may map it once it is finished
            if os.fstat(self._files[-1]).st_size < _offset(form, length):
                blocks.clear()
        for descriptor, form in zip(self._files, folder.layout.forms, strict=True):
            os.pwrite(descriptor, bytes(_offset(form, 0)), 0)
        self._write_journal()

    def _write_journal(self) -> None:
        os.ftruncate(self._journal, 0)
        os.lseek(self._journal, 0, os.SEEK_SET)
        os.write(self._journal, b"".join(map(_line, self._lines())))

    def _lines(self) -> list[Any]:
        return [self._folder.seal(place, facts) for place, facts in enumerate(self._blocks)]


def forget_columns(cache: FileCache, content_digest: str) -> None:
    """Delete the columns of a content digest, and interrupted fillings, which do not say whose columns they are.

    Processes that map the files keep them, and a process that is filling columns finishes them.
    """
    for folder in cache.folder.glob(f"??/{'?' * 64}"):
        digest = None
        with suppress(*_FAULTS):
            digest = json.loads(json.loads(read_own(folder / DOCUMENT, _MOST_JSON_BYTES))["source"])[0]
        for path in folder.glob("*.[nj]*") if digest in (None, content_digest) else ():  # arrays and documents
            with suppress(OSError), os.fdopen(open_own(path), "rb") as file:
                if digest is None:
                    lock_file(file.fileno())
                path.unlink()
        with suppress(OSError):  # it contains other files
            folder.rmdir()


def _line(facts: list[Any]) -> bytes:
    return json.dumps(facts).encode() + b"\n"


def _bounds(values: Array) -> list[Any] | None:
    """Return the minimum and the maximum of a column with one number in each record, without NaN."""
    if values.ndim > 1 or not values.size:
        return None
    least, greatest = np.fmin.reduce(values).item(), np.fmax.reduce(values).item()
    if values.dtype.kind == "f":  # processors disagree on whether -0.0 or 0.0 is the minimum
        least, greatest = least + 0.0, greatest + 0.0
    return None if least != least else [least, greatest]  # noqa: PLR0124 (NaN: the block has nothing else)


def _array(mapped: mmap.mmap, form: ArrayForm, length: int) -> Array:
    """Return the entries of a finished file. Raises ValueError."""
    header = _header(form, length)
    if len(mapped) != _offset(form, length) or mapped[: len(header)] != header:
        raise ValueError("another array")
    array = np.ndarray((length + form.has_zero, *form.shape), form.dtype, buffer=mapped, offset=len(header))
    array.flags.writeable = False
    return array


def _lock(path: Path) -> mmap.mmap:
    """Map a file, and lock it while the map exists, so that it is not evicted. Raises OSError or ValueError."""
    descriptor = open_own(path)
    try:
        lock_file(descriptor, is_shared=True)
        with suppress(OSError):  # the disk of a cache that is only read may be mounted read-only
            os.utime(descriptor)
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(descriptor)


@lru_cache
def _header(form: ArrayForm, length: int) -> bytes:
    """Return the header of an array of ``length`` entries. It has the same size for any length."""
    header = io.BytesIO()
    shape = (length + form.has_zero, *form.shape)
    facts = {"descr": np.lib.format.dtype_to_descr(form.dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, facts)
    return header.getvalue()


def _offset(form: ArrayForm, length: int) -> int:
    """Return the position of entry ``length`` in its file."""
    return len(_header(form, 0)) + (length + form.has_zero) * form.entry_bytes


def _write(descriptor: int, array: Array, offset: int) -> None:
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    while content:
        written = os.pwrite(descriptor, content, offset)
        content, offset = content[written:], offset + written


def _digest(array: Array, *, is_shared: bool) -> int | str:
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return hashlib.sha256(content).hexdigest() if is_shared else iscsi(content)


def _has_digest(array: Array, digest: int | str) -> bool:
    return _digest(array, is_shared=isinstance(digest, str)) == digest
