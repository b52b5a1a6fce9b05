"""Keeps the finished shards of a version that could not be published, so that a later run can publish them.

    shards written -> recorded in their folder -> published
                                               -> the catalog or the store was away, or the process was killed:
                                                  the folder stays, and a later run takes it over

The record has a key of the options and the version. ``registry add`` knows all files that it reads: it records their
stamps, and takes over shards whose stamps and key are the same. A builder may read anything, so a build takes over
shards only if the caller says so. Each shard must match its sha256. `registry gc` removes folders that no run takes
over.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from registry.errors import (
    CatalogError,
    NotStoredError,
    RegistryError,
    RegistryWarning,
    StorageError,
    StorageUnavailableError,
    warn,
)
from registry.model import Shard, ShardedFileTemplate, ShardLengths, Split
from registry.prepared import PreparedDataset, write_prepared
from registry.storage import StagedFolder, Store
from registry.storage.local import LocalStore, PlacedFolder, StagedOnDisk
from registry.storage.names import FINISHED_FILE, OWNER_FILE, is_own_staged, is_unfinished
from registry.storage.staged import is_left, owner_text, read_claim
from registry.storage.temporary import finished_temporary
from registry.storage.upload import StagedUpload

_FORMAT: Final = 1
_MOST_RECORD_BYTES: Final = 2**30
_SHA256_DIGITS: Final = 64
_MOST_INPUTS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The shards of a version, and the folder that contains them.

    Attributes:
        staged: the folder, which belongs to this process.
        made: each split and its shards, in order.
        more: the values that were passed to ``record_finished``.
    """

    staged: StagedFolder
    made: tuple[tuple[Split, tuple[Shard, ...]], ...]
    more: Any = None

    def describe(self, prepared: PreparedDataset) -> None:
        """Write the description again, unless the folder has its final place: only shards were compared."""
        if isinstance(self.staged, PlacedFolder):
            return
        shards = {split.filename(shard.index) for split, of_split in self.made for shard in of_split}
        for name in self.staged.store.list():
            if name not in shards:
                self.staged.store.remove(name)
        write_prepared(self.staged.store, prepared)


def record_finished(
    staged: StagedFolder,
    made: Sequence[tuple[Split, tuple[Shard, ...]]],
    store: Store,
    *,
    key: str,
    inputs: Mapping[str, str] = MappingProxyType({}),
    more: Any = None,
) -> None:
    """Record that all shards of ``staged`` are written; an older folder of the same version is removed.

    Nothing is recorded if a shard is in another store, or an input was changed meanwhile.
    """
    names = {split.filename(shard.index) for split, shards in made for shard in shards}
    if not are_unchanged(inputs) or any(not Path(staged.store.locate(name)).is_file() for name in names):
        return
    _remove_left(store, staged.final)
    content = json.dumps(
        {
            "format": _FORMAT,
            "key": _key_at(key, store, staged.final),
            "catalog": store.catalog,
            "inputs": dict(inputs),
            "more": more,
            "splits": [_describe(split, shards) for split, shards in made],
        }
    ).encode()
    digest = hashlib.sha256(content).hexdigest().encode()
    _own(staged.store, store.catalog)
    staged.store.write_bytes(FINISHED_FILE, digest + content, overwrite=True)


def find_finished(store: Store, final: str, *, key: str, is_numbered: bool = True) -> Finished | None:
    """Take over the finished shards of the same build, if a process that has ended, or has given up, left them.

    ``is_numbered`` is False if the number of the version is chosen later, so that they may be in any of its folders.
    """
    for name, folder, record in _recorded(store, final, key):
        if not are_unchanged(record["inputs"]):
            continue  # the next record, or a publication, removes such folders
        staged = _take_over(store, final, name, folder, is_numbered=is_numbered)
        if staged is None:
            continue
        try:
            result = tuple(map(_parse, record["splits"]))
            if all(_is_whole(staged.store, split, shards) for split, shards in result):
                return Finished(staged=staged, made=result, more=record["more"])
        except (StorageError, RegistryError, KeyError, TypeError, ValueError):
            pass  # the folder is damaged, so the records are made again
        staged.give_up()
    return None


def place_of_finished(store: Store, final: str, *, key: str) -> str | None:
    """Return the folder that ``find_finished`` would take over, or None."""
    return next((folder.locate("") for _, folder, _ in _recorded(store, final, key) if is_left(folder)), None)


def keep_or_give_up(staged: StagedFolder, error: BaseException | None, *, option: str = "") -> None:
    """Keep finished shards at the end of a publication if a later run may publish them, else discard them.

    An error that the shards cause would recur. The hint of any other error names their folder, and the ``option`` that
    a later run needs.
    """
    is_kept = (
        isinstance(error, CatalogError | StorageUnavailableError)
        or (error is not None and not isinstance(error, Exception))  # Ctrl-C, or the end of the process
    )
    if not is_kept or not staged.store.exists(FINISHED_FILE):
        staged.give_up()
        return
    place = staged.keep()
    way = f"the same command with {option}" if option else "the same command"
    text = f"The finished shards stay in {place}: {way} will publish them without making the records again."
    if isinstance(error, RegistryError):
        error.rephrase(hint=text if error.hint is None else f"{error.hint}\n{text}")
    else:
        with suppress(RegistryWarning):  # a filter that makes warnings errors must not hide the interrupt
            warn(text)


def is_damaged(folder: Store) -> bool:
    """Return whether a folder has the record of an earlier run, and a shard that differs from it."""
    record = _read(folder)
    if record is None:
        return False
    try:
        return not all(_is_whole(folder, split, shards) for split, shards in map(_parse, record["splits"]))
    except NotStoredError:
        return True


def is_superseded(folder: Store, catalog: str | None) -> bool:
    """Return whether a folder has the record of an earlier run for this catalog, which did not write its row."""
    record = _read(folder)
    return record is not None and catalog is not None and record.get("catalog") == catalog


def forget_finished(store: Store, final: str) -> None:
    """After a publication: remove finished shards of other contents for its place, and the record of its own."""
    if isinstance(store, LocalStore):
        with suppress(StorageError):
            store.remove(f"{final}/{FINISHED_FILE}")
    _remove_left(store, final)


def _remove_left(store: Store, final: str) -> None:
    for name, folder in _candidates(store, final):
        is_staged = not isinstance(store, LocalStore) or is_own_staged(name.rpartition("/")[2])
        if is_staged and is_left(folder) and (staged := _take_over(store, final, name, folder)) is not None:
            staged.give_up()


def _stamp_of(path: str) -> str:
    """A text that differs if a file was changed or replaced, or if a folder has other names in it.

    It contains the ctime, which programs cannot set back. A path that does not exist has a stamp, too.
    """
    try:
        facts = os.stat(path)  # noqa: PTH116 (called for each file of a source)
    except OSError:
        return "missing"
    return f"{facts.st_dev} {facts.st_ino} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}"


def are_unchanged(stamps: Mapping[str, str]) -> bool:
    """Whether every path still has its stamp."""
    return all(_stamp_of(path) == stamp for path, stamp in stamps.items())


def stamps_below(path: Path) -> dict[str, str] | None:
    """The stamps of a file, or of a folder and all that is in it; None if it has very many files."""
    top = os.path.abspath(path)  # noqa: PTH100 (links stay: they may be changed, too)
    result = {top: _stamp_of(top)}
    try:
        for folder, folders, files in os.walk(top):
            for name in (*folders, *files):
                inside = os.path.join(folder, name)  # noqa: PTH118 (faster for many files)
                result[inside] = _stamp_of(inside)
            if len(result) > _MOST_INPUTS:
                return None
    except RecursionError:  # of folders that are nested too deeply for os.walk
        return None
    return result


def _recorded(store: Store, final: str, key: str) -> Iterator[tuple[str, LocalStore, dict[str, Any]]]:
    """The folders with a record of this key, and their records."""
    for name, folder in _candidates(store, final):
        record = _read(folder)
        if record is not None and record["key"] == _key_at(key, store, final):
            yield name, folder, record


def _key_at(key: str, store: Store, final: str) -> str:
    return hashlib.sha256(json.dumps([key, store.url, final]).encode()).hexdigest()


def _candidates(store: Store, final: str) -> Iterator[tuple[str, LocalStore]]:
    """The folders that may contain finished shards of a version, with their names or paths; none of other catalogs."""
    for name, folder in _recorded_folders(store, final):
        if read_claim(folder, OWNER_FILE)[1] in (None, store.catalog):
            yield name, folder


def _recorded_folders(store: Store, final: str) -> Iterator[tuple[str, LocalStore]]:
    if not isinstance(store, LocalStore):
        for path in finished_temporary():
            yield str(path), LocalStore(path)
        return
    parent, _, last_part = final.rpartition("/")
    with suppress(StorageError):
        for name in store.folders(parent):
            if is_own_staged(name) and not name.endswith(f"_{last_part}"):
                continue
            if store.exists(f"{parent}/{name}/{FINISHED_FILE}"):
                yield f"{parent}/{name}", store.child(f"{parent}/{name}")


def _take_over(
    store: Store, final: str, name: str, folder: LocalStore, *, is_numbered: bool = True
) -> StagedFolder | None:
    """Take over the folder for this process. Returns it, or None if another process was faster."""
    if isinstance(store, LocalStore) and not is_own_staged(name.rpartition("/")[2]):
        if is_numbered:
            return PlacedFolder(store, final=final)
        # The version may get another number, so the folder is copied: another catalog may know it.
        staged = store.stage(final)
        for file in folder.list():
            staged.take(folder, file)
        return staged
    is_local = isinstance(store, LocalStore)
    around = store if isinstance(store, LocalStore) else LocalStore(tempfile.gettempdir())
    with around.exclusive(name if is_local else Path(name).name):
        if not folder.exists(FINISHED_FILE) or not is_left(folder):
            return None
        _remove_unfinished(folder)
        if isinstance(store, LocalStore):
            return StagedOnDisk(store, final=final, name=name)
        _own(folder, store.catalog)
        return StagedUpload(store, final=final, path=name)


def _remove_unfinished(folder: LocalStore) -> None:
    """Remove unfinished files of a killed process from the folder, because a rename will publish it."""
    for entry in list(folder.scan()):
        if not entry.is_folder and is_unfinished(entry.name.rpartition("/")[2]):
            folder.remove(entry.name)


def _own(folder: Store, catalog: str | None) -> None:
    """Write the name of this process into a folder, so that no other process takes it over."""
    folder.write_bytes(OWNER_FILE, owner_text(catalog), overwrite=True)


def _is_whole(folder: Store, split: Split, shards: Sequence[Shard]) -> bool:
    for shard in shards:
        name = split.filename(shard.index)
        if folder.size(name) != shard.num_bytes or folder.sha256(name) != shard.sha256:
            return False
    return True


def _read(folder: Store) -> dict[str, Any] | None:
    """Read the record in a folder. Returns None if it is damaged, or from another release."""
    try:
        content = folder.read_bytes(FINISHED_FILE, limit=_MOST_RECORD_BYTES)
        if hashlib.sha256(content[_SHA256_DIGITS:]).hexdigest().encode() != content[:_SHA256_DIGITS]:
            return None
        record: dict[str, Any] = json.loads(content[_SHA256_DIGITS:])
    except (StorageError, ValueError, RecursionError):
        return None
    return record if record.get("format") == _FORMAT else None


def _describe(split: Split, shards: Sequence[Shard]) -> dict[str, Any]:
    return {
        "name": split.name,
        "shard_lengths": [shard.num_examples for shard in shards],
        "num_bytes": split.num_bytes,
        "files": asdict(split.files),
        "shards": [[shard.num_bytes, shard.sha256] for shard in shards],
    }


def _parse(value: Any) -> tuple[Split, tuple[Shard, ...]]:
    split = Split(
        name=value["name"],
        shard_lengths=ShardLengths(value["shard_lengths"]),
        num_bytes=value["num_bytes"],
        files=ShardedFileTemplate(**value["files"]),
    )
    shards = tuple(
        split.shard(index, num_bytes=num_bytes, sha256=sha256)
        for index, (num_bytes, sha256) in enumerate(value["shards"])
    )
    return split, shards
