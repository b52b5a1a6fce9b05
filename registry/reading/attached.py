"""Reads columns that are attached to a version, in place on this machine, or by ranges from another machine.

    column.json  -> proved by the sha256 of its row
    .npy files   -> on this machine: mapped         -> a block that differs is decoded from the shards
                 -> elsewhere: holes in the cache   -> a block that is missing is fetched, else decoded from the shards

Every block is compared with its digest in ``column.json`` when a process first reads it, regardless of its source.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property, partial
from typing import Final, TypeAlias

from registry.columns import DOCUMENT, AttachedFolder, ColumnFolder, KeptColumn
from registry.errors import NotStoredError, RegistryError, StorageError, warn
from registry.model import Attachment
from registry.storage import Store
from registry.storage.faults import StoredFile

COLUMNS: Final = "columns"
"""The kind of the attachments."""

Damaged: TypeAlias = Mapping[KeptColumn, Mapping[int, int]]
"""The missing or damaged blocks of each column, with the number of its first arrays that are needed."""

_Facts: TypeAlias = tuple[Sequence[Attachment], Sequence[Store]]

_MOST_DOCUMENT: Final = 2**28
_FILES_AT_ONCE: Final = 8
"""The number of files that are fetched at the same time. Each may hold 32 MiB that were fetched ahead."""


class AttachedColumns:
    """The columns that are attached to a version. A pickled copy no longer needs the catalog."""

    def __init__(self, reference: str, load: Callable[[], _Facts]) -> None:
        """``load`` returns the attachments of the version, and the folders that may contain them. It is called once."""
        self._reference = reference
        self._load = load
        self._tags: dict[tuple[str, str], str] = {}
        self.problem = ""
        """The reason why the last blocks were not fetched, in parentheses, or empty."""

    def names(self) -> frozenset[str]:
        """The names of the files that are attached."""
        return frozenset(self._facts[0])

    def open(self, folder: ColumnFolder, *, in_place: bool = True) -> KeptColumn | None:
        """Open the column in place, or in the cache with missing blocks.

        Returns None if it is not attached or unreadable.

        Without ``in_place``, columns on this machine are left out.
        """
        attachments, stores = self._facts
        names = folder.attached_names
        if not attachments.keys() >= set(names.values()):
            return None
        problem = "no folder has its files"
        for store in stores:
            is_local = store.local_root is not None
            if not (in_place if is_local else folder.cache.is_usable):
                problem = ""
                continue
            try:
                document = self._read(store, attachments[names[DOCUMENT]])
            except StorageError as error:
                problem = problem if isinstance(error, NotStoredError) else error.message
                continue
            if is_local:
                files = {file: attachments[name].place for file, name in names.items()}
                column = AttachedFolder(folder, document, lambda file: store.open(files[file])).open()  # noqa: B023 (returned in this turn)
                problem = f"its files in {store.locate('')} are damaged or missing"
            else:  # if the cache lacks room, the shards are read
                column, problem = folder.reserve(document), ""
            if column is not None:
                return column
        if problem:
            warn(f"the column {folder.layout.path!r} that is attached to {self._reference} is not used: {problem}")
        return None

    def fetch(self, damaged: Damaged) -> bool:
        """Fetch blocks into the cache from the first folder that provides them. Returns False if nothing was fetched.

        The fetched bytes are not checked here.
        """
        attachments, stores = self._facts
        parts = [
            (folder, file, attachments[name], ranges)
            for column, blocks in damaged.items()
            if (folder := column.folder) is not None
            for file, ranges in folder.ranges(column.blocks, blocks).items()
            if (name := folder.attached_names[file]) in attachments
        ]
        self.problem = ""
        for store in stores if parts else ():
            try:
                for first in range(0, len(parts), _FILES_AT_ONCE):
                    self._fetch(store, parts[first : first + _FILES_AT_ONCE])
            except OSError as error:
                self.problem = f" ({error.message if isinstance(error, RegistryError) else error})"
            else:
                return True
        return False

    def _fetch(
        self, store: Store, parts: Sequence[tuple[ColumnFolder, str, Attachment, Sequence[tuple[int, int]]]]
    ) -> None:
        with ExitStack() as files, ThreadPoolExecutor(_FILES_AT_ONCE) as threads:
            opened = threads.map(partial(self._open, store), [attachment for _, _, attachment, _ in parts])
            begun = [
                files.enter_context(file).read_ranges(ranges)  # the requests of all files run at the same time
                for file, (_, _, _, ranges) in zip(opened, parts, strict=True)
            ]
            for views, (folder, file, _, ranges) in zip(begun, parts, strict=True):
                for index, view in views:
                    folder.put(file, ranges[index][0], view)

    def _open(self, store: Store, attachment: Attachment) -> StoredFile:
        """Open a file. Its ETag is requested only the first time; a file that was replaced since raises an error."""
        key = store.url, attachment.place
        if (tag := self._tags.get(key)) is not None:
            return store.open_known(attachment.place, num_bytes=attachment.num_bytes, entity_tag=tag)
        file = store.open(attachment.place)
        if file.entity_tag is not None and file.num_bytes == attachment.num_bytes:
            self._tags[key] = file.entity_tag
        return file

    def _read(self, store: Store, attachment: Attachment) -> bytes:
        """Read a small file and verify it against its row. Raises StorageError."""
        content = store.read_bytes(attachment.place, limit=min(attachment.num_bytes, _MOST_DOCUMENT))
        if hashlib.sha256(content).hexdigest() != attachment.sha256:
            raise StorageError(f"{store.locate(attachment.place)} is not the file that was attached")
        return content

    @cached_property
    def _facts(self) -> tuple[dict[str, Attachment], tuple[Store, ...]]:
        try:
            attachments, stores = self._load()
        except RegistryError:  # if the catalog does not answer, the shards are read
            return {}, ()
        return {file.name: file for file in attachments if file.kind == COLUMNS}, tuple(stores)

    def __reduce__(self) -> tuple[type[AttachedColumns], tuple[str, Callable[[], _Facts]]]:
        attachments, stores = self._facts
        return AttachedColumns, (self._reference, partial(_same, (tuple(attachments.values()), stores)))


def _same(facts: _Facts) -> _Facts:
    return facts
