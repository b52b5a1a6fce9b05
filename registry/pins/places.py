"""Where do the files of a pin lie? Looked for in folders of this machine, then where the pin says.

A location of a pin is a URL or path of the folder that holds its files, or a path below a data directory. A folder
counts where it holds every file of the pin with the pinned size; what is in them, ``verify`` proves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from registry.errors import MissingExtraError, NotStoredError, StorageError
from registry.masking import mask
from registry.pins.document import PinEntry
from registry.pins.layout import folder_of, reference_of
from registry.prepared.info import FILENAME as INFO_FILENAME
from registry.storage import Store, open_store
from registry.tfrecord import IndexFolder


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Places:
    """Where to look, in this order.

    Attributes:
        data_dir: the folder that was named: a data directory, or the folder of the files itself. Where it is given,
            nowhere else is looked.
        beside: the folder of the pin file; a bundle holds its shards in ``data`` beside it.
        data_dirs: data directories of this machine.
        folders: where a catalog reads versions that lie elsewhere, by their place below a data directory.
        index_folder: where readers keep the places of records, or None.
    """

    data_dir: str | None = None
    beside: str | None = None
    data_dirs: tuple[str, ...] = ()
    folders: Mapping[str, str] = field(default_factory=dict)
    index_folder: str | None = None

    def __repr__(self) -> str:
        return mask(f"<Places {self.data_dir or [self.beside, *self.data_dirs, *self.folders.values()]}>")

    def indexes(self) -> IndexFolder | None:
        """Where the places of records are kept for the next time."""
        return None if self.index_folder is None else IndexFolder(self.index_folder)

    def find(self, entry: PinEntry) -> Store:
        """The first folder that holds all files of a pin.

        Raises:
            NotStoredError: none does; the message names them all, with what each lacks.
        """
        told = []
        for store in self.candidates(entry):
            lacking = first_missing(store, entry)
            if lacking is None:
                return store
            told.append(f"{store.url}: {lacking}")
        listed = "".join(f"\n  {line}" for line in dict.fromkeys(told))
        raise NotStoredError(
            f"the files of {reference_of(entry)} {entry.split} are in none of the folders that were looked at{listed}",
            hint="Name their folder with --data DIR (data_dir= in Python), or get them with: registry pin restore",
            details={"places": told[:100]},
        )

    def find_any(self, entry: PinEntry) -> Store:
        """As ``find``; where nobody has all files as pinned, the first folder that has one of them, or a version.

        Raises:
            NotStoredError: none has anything.
        """
        try:
            return self.find(entry)
        except NotStoredError:
            for store in self.candidates(entry):
                if any(_has(store, name) for name in (*(file.name for file in entry.files[:100]), INFO_FILENAME)):
                    return store
            raise

    def candidates(self, entry: PinEntry) -> Iterator[Store]:
        """The folders that may hold the files of a pin, the nearest first; each once."""
        seen = set()
        for url in self._urls(entry):
            try:
                store = open_store(url)
            except (StorageError, MissingExtraError):
                continue
            if store.url not in seen:
                seen.add(store.url)
                yield store

    def _urls(self, entry: PinEntry) -> Iterator[str]:
        relative = [folder_of(entry), *(text for text in entry.locations if not _is_absolute(text))]
        roots = [self.data_dir] if self.data_dir is not None else []
        if self.data_dir is not None:
            yield self.data_dir
            roots.append(f"{self.data_dir}/data")  # an unpacked bundle
        else:
            if self.beside is not None:
                roots.append(f"{self.beside}/data")
            roots += self.data_dirs
        for root in roots:
            for folder in relative:
                yield f"{root.rstrip('/')}/{folder}"
        if self.data_dir is None:
            if folder_of(entry) in self.folders:
                yield self.folders[folder_of(entry)]
            yield from (text for text in entry.locations if _is_absolute(text))


def first_missing(store: Store, entry: PinEntry) -> str | None:
    """What of a pin's files ``store`` lacks first, in words; None where all are there with their sizes."""
    for file in entry.files:
        try:
            num_bytes = store.size(file.name)
        except NotStoredError:
            return f"no {file.name}"
        except StorageError as error:
            return error.message
        if num_bytes != file.num_bytes:
            return f"{file.name} has {num_bytes} bytes, {file.num_bytes} are pinned"
    return None


def _has(store: Store, name: str) -> bool:
    try:
        return store.size(name) >= 0
    except StorageError:
        return False


def _is_absolute(location: str) -> bool:
    return "://" in location or location.startswith("/")
