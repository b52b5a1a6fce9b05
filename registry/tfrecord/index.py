"""Finds the positions of a file's records by walking its frames, and keeps them in an index for the next time.

Indexes are kept in the user's cache folder, one file for each shard, never next to the data. An index is valid only for
the file from which it was made (it contains size, times and inode, or the URL and the ETag of an object), and only if
this user made it: it is sealed with the key in that folder. It only saves the walk: every frame that is read is still
checked.

    seal | identity | number of starts | tag of each 4,096 starts | starts, int64

The seal covers everything after it except the starts. They are checked by their tags when they are used, so that
opening the index of a large shard is cheap.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np

from registry.storage.folder_key import FolderKey, replace_file
from registry.tfrecord.block import Octets, Places, find_fault, walk_frames
from registry.tfrecord.framing import FRAMING_BYTES
from registry.tfrecord.stamps import PublishedState, StampFolder, State

_MAGIC: Final = b"shardix1"
_TAG_BYTES: Final = 16
_STARTS_IN_TAG: Final = 4096
_IDENTITY_BYTES: Final = 40
_COUNT: Final = struct.Struct("<q")


class KeptIndex:
    """An index that was kept for a file: ``num_starts`` positions, read and checked when they are needed."""

    def __init__(self, key: bytes, tags: bytes, starts: Places) -> None:
        self.num_starts = starts.size
        self.starts = starts
        self._key = key
        self._tags = tags
        self._checked = np.zeros(len(tags) // _TAG_BYTES, bool)
        self._is_checked = False

    def check(self, first: int, last: int) -> bool:
        """Whether starts ``first`` to ``last`` (included) match their tags."""
        return self.check_groups(np.arange(first // _STARTS_IN_TAG, last // _STARTS_IN_TAG + 1))

    def check_records(self, records: Places) -> bool:
        """Whether the starts of ``records``, and of the records after them, match their tags."""
        if self._is_checked:
            return True
        return self.check_groups(np.unique(np.concatenate([records, records + 1]) // _STARTS_IN_TAG))

    def check_groups(self, groups: Places) -> bool:
        """Whether these groups of starts match their tags."""
        if self._is_checked:
            return True
        for group in groups[~self._checked[groups]].tolist():
            if _tag(self._key, self.starts, group) != self._tags[group * _TAG_BYTES : (group + 1) * _TAG_BYTES]:
                return False
            self._checked[group] = True
        self._is_checked = bool(self._checked.all())
        return True


class IndexFolder:
    """The folder in which indexes are kept. If it cannot be read or written, nothing is kept, and files are walked.

    Attributes:
        stamps: the files that were already hashed, kept in the same folder under the same key.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._key = FolderKey(self._folder)
        self.stamps = StampFolder(self._folder, self._key)

    def load(self, path: str, state: State) -> KeptIndex | None:
        """Load the index of the file at ``path`` in this ``state``; None if it is missing or invalid."""
        try:
            key = self._key.read(make=False)
            with self._file(path, state).open("rb") as file:
                data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        except (OSError, ValueError):  # an empty file cannot be mapped
            return None
        head = _TAG_BYTES + len(_MAGIC) + _IDENTITY_BYTES + _COUNT.size
        if data.size < head or bytes(data[_TAG_BYTES : _TAG_BYTES + len(_MAGIC)]) != _MAGIC:
            return None
        (num_starts,) = _COUNT.unpack_from(data.data, head - _COUNT.size)
        num_tags = -(-num_starts // _STARTS_IN_TAG)
        sealed = head + num_tags * _TAG_BYTES
        if num_starts < 1 or data.size != sealed + 8 * num_starts:
            return None
        seal = blake2b(bytes(data[_TAG_BYTES:sealed]), key=key, digest_size=_TAG_BYTES).digest()
        identity = bytes(data[_TAG_BYTES + len(_MAGIC) : head - _COUNT.size])
        if not secrets.compare_digest(seal, bytes(data[:_TAG_BYTES])) or identity != _identity(state):
            return None
        return KeptIndex(key, bytes(data[head:sealed]), data[sealed:].view("<i8"))

    def keep(self, path: str, state: State, starts: Places) -> None:
        """Keep ``starts`` for the file at ``path``, which was in this ``state`` when it was opened."""
        with suppress(OSError):
            key = self._key.read(make=True)
            starts = np.ascontiguousarray(starts, "<i8")
            tags = b"".join(_tag(key, starts, group) for group in range(-(-starts.size // _STARTS_IN_TAG)))
            sealed = _MAGIC + _identity(state) + _COUNT.pack(starts.size) + tags
            seal = blake2b(sealed, key=key, digest_size=_TAG_BYTES).digest()
            replace_file(self._file(path, state), seal, sealed, starts.data)

    def forget(self, path: str, state: State) -> None:
        """Delete the index of the file at ``path``."""
        with suppress(OSError):
            self._file(path, state).unlink(missing_ok=True)

    def _file(self, path: str, state: State) -> Path:
        """The index of a published file has the name of its content, so that every location has the same one."""
        place = state.place() if isinstance(state, PublishedState) else os.fsencode(path)
        name = blake2b(place, digest_size=20).hexdigest()
        return self._folder / name[:2] / f"{name}.index"


def _identity(state: State) -> bytes:
    """The state in 40 bytes: as it is for a file, hashed for an object."""
    content = state.content()
    return content if len(content) == _IDENTITY_BYTES else blake2b(content, digest_size=_IDENTITY_BYTES).digest()


def _tag(key: bytes, starts: Places, group: int) -> bytes:
    part = starts[group * _STARTS_IN_TAG : (group + 1) * _STARTS_IN_TAG]
    return blake2b(part.data, key=key, digest_size=_TAG_BYTES, person=group.to_bytes(8, "little")).digest()


_STEP: Final = 2**16
"""The number of frames that are walked, then checked, at a time."""

_MANY_RECORDS: Final = 4096
_MANY_BYTES: Final = 2**23
"""Walking a local file with fewer records and fewer bytes takes less time than writing its index."""


class _Starts:
    """The starts of the frames of one file that are known, from the first one on, and the end of the last of them."""

    def __init__(
        self,
        path: str,
        state: State | None,
        *,
        num_bytes: int,
        indexes: IndexFolder | None,
    ) -> None:
        self._path = path
        self._num_bytes = num_bytes
        self._kept_for = None if indexes is None or state is None else (indexes, state)
        self._buffer: Places = np.zeros(1, np.int64)  # only the first `_size` are valid
        self._size = 1
        self._num_kept = 0

    def _load(self) -> KeptIndex | None:
        return None if self._kept_for is None else self._kept_for[0].load(self._path, self._kept_for[1])

    def _forget(self) -> None:
        self._buffer, self._size = np.zeros(1, np.int64), 1
        if self._kept_for is not None:
            self._kept_for[0].forget(self._path, self._kept_for[1])

    def _append(self, starts: Places) -> None:
        size = self._size + starts.size
        if size > self._buffer.size:
            grown = np.empty(max(size, 2 * self._buffer.size), np.int64)
            grown[: self._size] = self._buffer[: self._size]
            self._buffer = grown
        self._buffer[self._size : size] = starts
        self._size = size

    def _write(self) -> None:
        """Write the index whenever the known part has doubled, and at the end of the file."""
        num_known = self._size - 1
        if self._kept_for is None or num_known <= self._num_kept:
            return
        is_long = num_known >= _MANY_RECORDS or self._buffer[num_known] >= _MANY_BYTES
        if (is_long and num_known >= 2 * self._num_kept) or self._buffer[num_known] == self._num_bytes:
            indexes, state = self._kept_for
            indexes.keep(self._path, state, self._buffer[: self._size])
            self._num_kept = num_known


class StreamPlaces(_Starts):
    """The starts of the frames of a file that is read forwards: those of its index, and those that were read."""

    def __init__(
        self,
        path: str,
        state: State | None,
        *,
        num_bytes: int,
        indexes: IndexFolder | None,
    ) -> None:
        super().__init__(path, state, num_bytes=num_bytes, indexes=indexes)
        kept = self._load()
        if kept is not None and kept.check(0, kept.num_starts - 1) and int(kept.starts[-1]) <= num_bytes:
            self._append(kept.starts[1:])
            self._num_kept = kept.num_starts - 1

    @property
    def known(self) -> Places:
        """The starts of the first frames, and the end of the last of them; int64, in bytes."""
        return self._buffer[: self._size]

    def add(self, first: int, bounds: Places) -> None:
        """Add the bounds of sound frames from record ``first`` on: their starts, and the end of the last one."""
        new = self._size - 1 - first
        if 0 <= new < bounds.size - 1:
            self._append(bounds[new + 1 :])
            self._write()

    def distrust(self) -> None:
        """Forget all starts, and the index: one of them is wrong, or its frame is damaged."""
        self._forget()
        self._num_kept = 0


class FramePlaces(_Starts):
    """The starts of the frames of one mapped file, found as far as they were needed.

    They were checked by the checksums of all lengths before them, or come from an index that this user made of this
    file. A caller who finds a wrong start calls ``distrust`` and tries again.
    """

    def __init__(
        self,
        data: Octets,
        path: str,
        state: State | None,
        *,
        num_records: int | None,
        indexes: IndexFolder | None,
    ) -> None:
        may_be_kept = num_records is None or num_records >= _MANY_RECORDS or data.size >= _MANY_BYTES
        super().__init__(path, state, num_bytes=data.size, indexes=indexes if may_be_kept else None)
        self._data = data
        self._kept = self._load()
        self._is_own = True
        self._ended = False

    def up_to(self, stop: int, *, first: int | None = None, records: Places | None = None) -> Places:
        """Return the starts of at least frames ``first`` to ``stop`` (included), or fewer if the file ends before.

        With ``records`` instead of ``first``: the starts of at least these frames and of the frames after them.
        """
        first = stop if first is None else first
        if self._kept is not None:
            is_sound = stop < self._kept.num_starts and (
                self._kept.check(first, stop) if records is None else self._kept.check_records(records)
            )
            if is_sound:
                return self._kept.starts
            self._take_over()
        return self._walk(first, stop)

    def distrust(self) -> bool:
        """Drop the index that was loaded; False if there was none, so that the file itself is at fault."""
        if self._is_own and self._kept is None:
            return False
        self._kept, self._is_own, self._ended = None, True, False
        self._forget()
        return True

    def end_at(self, record: int) -> None:
        """Drop the starts after ``record``: it is damaged, and they were found by its length."""
        self._size = min(self._size, record + 1)
        self._ended = False

    def keep(self) -> None:
        """Write the index, unless it was loaded."""
        if self._kept is None:
            self._write()

    def _take_over(self) -> None:
        """Continue at the end of the loaded index, or start from the beginning if it is damaged."""
        kept = self._kept
        if kept is not None and kept.check(0, kept.num_starts - 1):
            self._buffer, self._size, self._is_own = np.array(kept.starts), kept.num_starts, False
            self._num_kept, self._kept = kept.num_starts - 1, None
        else:
            self.distrust()

    def _walk(self, first: int, stop: int) -> Places:
        """Walk until frame ``stop``. Frames before ``first`` are checked here; the caller checks the others."""
        while self._size <= stop and not self._ended:
            known = self._size - 1
            start = int(self._buffer[known])
            most = min(stop - known, _STEP)
            frames = walk_frames(self._data, start, limit=self._data.size, most=most)
            skipped = frames[: max(0, first - known) + 1]
            if skipped.size > 1:
                fault = find_fault(self._data, skipped[:-1], np.diff(skipped) - FRAMING_BYTES, verify="off")
                if fault is not None:
                    frames = frames[: fault.place + 1]
            self._ended = frames.size - 1 < most
            self._append(frames[1:])
        return self._buffer[: self._size]
