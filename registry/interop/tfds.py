"""Finds the versions that TFDS prepared in a folder, and writes published versions as folders that TFDS loads.

    <data_dir>/<name>[/<config>]/<version>/      a version folder: dataset_info.json, features.json, shards
    <data_dir>/<name>/.config/metadata.json      the default config

A search may start at any of these levels. Like TFDS, it ignores ``incomplete.*`` and hidden folders.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from registry.errors import ConflictError, FolderExistsError, PreparedFormatError, ShardMismatchError, StorageError
from registry.features import FeaturesDict
from registry.model import (
    Advance,
    DatasetMetadata,
    DatasetVersion,
    Shard,
    ShardedFileTemplate,
    Split,
    Version,
    is_config,
    version_folder,
)
from registry.prepared import (
    PreparedDataset,
    default_config,
    describe,
    extra_files,
    read_prepared,
    write_default_config,
    write_prepared,
)
from registry.prepared.info import FILENAME as INFO_FILENAME
from registry.shards import read_records
from registry.storage import Store, open_store
from registry.storage.faults import storage_errors
from registry.tfrecord import RecordWriter, hash_file, is_gzip

_DEPTH: Final = 3
"""The most levels above a version: name, config, version."""

_UNFINISHED: Final = "incomplete."
"""The prefix of a folder that TFDS is still writing, or was writing when it was killed, at any level."""

_DOWNLOADS: Final = "downloads"
"""The folder of TFDS's downloads, with thousands of files. It is not a dataset unless it has a dataset_info.json."""


@dataclass(frozen=True, slots=True)
class VersionFolder:
    """A folder that should contain a version: it has a dataset_info.json, or its name is a version."""

    store: Store

    @property
    def path(self) -> str:
        """Its local path, or its URL."""
        return self.store.url if self.store.local_root is None else str(self.store.local_root)

    def read(self) -> PreparedDataset:
        """Read the version from its files. If an older TFDS did not record the config, the folder's name is the config.

        Raises:
            PreparedFormatError: it is not a version folder, a file is malformed, or the folder is named after another
                version than its metadata says.
            StorageError: a file cannot be read.
        """
        prepared = read_prepared(self.store)
        name, config, folder = self._names
        if Version.is_valid(folder) and folder != str(prepared.version):
            raise PreparedFormatError(
                f"{self.path}: expected version {folder}, as the folder is named; "
                f"{INFO_FILENAME} has version {prepared.version}",
                hint=f"Rename the folder to {prepared.version}, or prepare version {folder} again.",
                details={"file": INFO_FILENAME, "key": "version", "problem": f"the folder is called {folder}"},
            )
        if prepared.config is None and prepared.name == name and config != name and is_config(config):
            return replace(prepared, config=config)
        return prepared

    def is_default_config(self, prepared: PreparedDataset) -> bool:
        """Whether the config of ``prepared`` is the default one according to the dataset's folder.

        Raises:
            PreparedFormatError, StorageError: the file of the default config cannot be read.
        """
        name, config, folder = self._names  # of the folder, because the version may be published under another name
        if prepared.config is None or (config, folder) != (prepared.config, str(prepared.version)):
            return False
        data_dir = self.path.rstrip("/").rsplit("/", 3)[0]
        return default_config(open_store(data_dir or "/"), name) == prepared.config

    @property
    def dataset_folder(self) -> str:
        """The path or URL one level up: the folder of its config, or of a dataset without configs."""
        return self.path.rstrip("/").rpartition("/")[0] or "/"

    @property
    def _names(self) -> tuple[str, str, str]:
        """The last three parts of its path: in TFDS's layout the dataset's name, its config and its version."""
        *_, name, config, folder = ["", "", *self.path.rstrip("/").split("/")]
        return name, config, folder


def find_version_folders(root: Store) -> Iterator[VersionFolder]:
    """Every version folder at or below ``root``: one dataset after the other, lowest versions first.

    It includes folders that are named like a version but lack files, and folders that cannot be listed: ``read`` raises
    their errors. Local links to folders are followed, since people spread datasets over disks.

    Raises:
        StorageError: ``root`` itself cannot be listed.
    """
    if root.exists(INFO_FILENAME):
        yield VersionFolder(root)
    else:
        yield from _search(root, _folders(root), _DEPTH)


def _search(folder: Store, names: Iterable[str], depth: int) -> Iterator[VersionFolder]:
    versions: list[Version] = []
    others: list[str] = []
    for name in names:
        # Old releases wrote to 1.0.0.incompleteAB12CD.
        if name.startswith((".", _UNFINISHED)) or f".{_UNFINISHED[:-1]}" in name:
            continue
        if Version.is_valid(name):
            versions.append(Version.parse(name))
        elif not (depth == _DEPTH and name == _DOWNLOADS):
            others.append(name)
    for version in sorted(versions):
        yield VersionFolder(_child(folder, str(version)))
    for name in others:
        inner = _child(folder, name)
        try:
            is_version = inner.exists(INFO_FILENAME)
            below = [] if is_version or depth == 1 else _folders(inner)
        except StorageError:
            is_version, below = True, []
        if is_version:
            yield VersionFolder(inner)
        else:
            yield from _search(inner, below, depth - 1)


def _folders(folder: Store) -> list[str]:
    if folder.local_root is None:
        return folder.folders()
    with storage_errors("list", str(folder.local_root)):
        try:
            return sorted(entry.name for entry in folder.local_root.iterdir() if entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []


def _child(folder: Store, name: str) -> Store:
    return folder.child(name) if folder.local_root is None else open_store(folder.local_root / name)


_START_BYTES: Final = 12
_TFDS_FORMATS: Final = ("tfrecord", "array_record", "parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The result of an export.

    Attributes:
        folder: the folder of the version.
        newly: False if the same version was already there.
        num_bytes: the size of its shards.
    """

    folder: str
    newly: bool
    num_bytes: int


def export_tfds(
    version: DatasetVersion,
    source: Store,
    shards: Mapping[str, Sequence[Shard]],
    data_dir: Store,
    *,
    is_default_config: bool = False,
    advance: Advance | None = None,
) -> Exported:
    """Write ``version``, whose shards are in ``source``, below ``data_dir`` in TFDS's layout.

    The folder appears only when it is complete. An existing folder is compared instead. Other files in the source
    folder, such as a licence, are copied too, except links out of the folder and special files.

    Args:
        version: the published version.
        source: the folder of its shards.
        shards: the published shards of each split.
        data_dir: the ``data_dir`` for TFDS.
        is_default_config: record its config as the dataset's default, unless another default is recorded.
        advance: called with the number of bytes exported since the last call.

    Raises:
        ShardMismatchError: a shard differs from the published one.
        ConflictError: the target has other data under that name and version.
        StorageError: a file cannot be read or written.
    """
    place = version_folder(version.name, version.config, version.version)
    prepared = _describe(version)
    stored = _StoredVersion(store=source, splits=version.layout, shards=shards, features=prepared.features)
    data_dir.clear_abandoned(place.rpartition("/")[0])
    newly = not data_dir.exists(place)
    if newly:
        with data_dir.stage(place) as staged:
            written = _write(prepared, stored, staged.store, advance)
            try:
                staged.commit()
            except FolderExistsError:  # another export was faster
                newly = False
    if not newly:
        found = _compare(prepared, stored, data_dir.child(place), advance)
        if found is None:
            raise ConflictError(
                f"{data_dir.locate(place)} contains other data",
                hint="Move it away, or export into another folder.",
                details={"folder": data_dir.locate(place)},
            )
        written = found
    if is_default_config and version.config is not None and default_config(data_dir, version.name) is None:
        write_default_config(data_dir, version.name, version.config)
    return Exported(folder=data_dir.locate(place), newly=newly, num_bytes=written)


def _describe(version: DatasetVersion) -> PreparedDataset:
    """The exported version. Typed Parquet columns become TFRecords, because TFDS cannot read them."""
    prepared = describe(version)
    if version.file_format in _TFDS_FORMATS:
        return prepared
    files = ShardedFileTemplate(dataset=version.name)
    splits = tuple(replace(split, files=files) for split in version.splits)
    return replace(prepared, splits=splits, file_format=files.file_format)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredVersion:
    """The stored shards of a version."""

    store: Store
    splits: Mapping[str, Split]
    shards: Mapping[str, Sequence[Shard]]
    features: FeaturesDict

    def copies(self, filename: str, split: Split) -> bool:
        """Whether TFDS can read the stored file."""
        if split.files.file_format not in _TFDS_FORMATS:
            return False
        with self.store.open(filename) as file:
            return not is_gzip(file.read(_START_BYTES))

    def copy(self, shard: Shard, split: Split, target: BinaryIO) -> tuple[int, int, str]:
        """Write a shard to ``target``.

        Returns:
            The bytes of its records if they were written again, else 0; the size of the file; its sha256.
        """
        filename, file_format = split.filename(shard.index), split.files.file_format
        if self.copies(filename, split):
            return 0, *self._copy_bytes(filename, shard, target)
        self._copy_bytes(filename, shard, None)
        writer, num_records = RecordWriter(target), shard.num_examples
        for record in read_records(
            self.store, filename, file_format=file_format, features=self.features, num_records=num_records
        ):
            writer.write(record)
        return writer.num_payload_bytes, writer.num_bytes, writer.sha256()

    def _copy_bytes(self, filename: str, shard: Shard, target: BinaryIO | None) -> tuple[int, str]:
        digest, num_bytes = hashlib.sha256(), 0
        with self.store.open(filename) as file:
            for piece in file.pieces():
                digest.update(piece)
                num_bytes += len(piece)
                if target is not None:
                    target.write(piece)
        if (num_bytes, digest.hexdigest()) != (shard.num_bytes, shard.sha256):
            raise ShardMismatchError(
                f"{filename}: expected {shard.num_bytes} bytes, sha256 {shard.sha256}; "
                f"found {num_bytes} bytes, sha256 {digest.hexdigest()}",
                hint="Nothing was exported. To list all damaged shards: registry verify REF",
                details={"path": filename, "sha256": digest.hexdigest(), "promised": shard.sha256},
            )
        return num_bytes, digest.hexdigest()


def _write(prepared: PreparedDataset, source: _StoredVersion, target: Store, advance: Advance | None) -> int:
    """Fill the folder ``target`` and return the bytes of its shards."""
    written, splits = 0, []
    for split in prepared.splits:
        stored, num_payload_bytes = source.splits[split.name], 0
        for shard in source.shards[split.name]:
            with target.create(split.filename(shard.index)) as file:
                payload, num_bytes, _ = source.copy(shard, stored, file)
            num_payload_bytes += payload
            written += num_bytes
            if advance is not None:
                advance(shard.num_bytes)
        is_same = prepared.file_format == stored.files.file_format
        splits.append(split if is_same else replace(split, num_bytes=num_payload_bytes))
    write_prepared(target, replace(prepared, splits=tuple(splits)))
    if source.store.exists(INFO_FILENAME):
        stored_as = replace(prepared, splits=tuple(source.splits.values()))
        for name in extra_files(source.store, stored_as):
            if "/" not in name and not target.exists(name):  # metadata.json was written above if it could be read
                target.create_from(name, source.store, name)
    return written


def _compare(prepared: PreparedDataset, source: _StoredVersion, folder: Store, advance: Advance | None) -> int | None:
    """The bytes of the shards in ``folder``; None if it is not the same version."""
    total = 0
    try:
        if _essence(read_prepared(folder)) != _essence(prepared):
            return None
        for split in prepared.splits:
            stored = source.splits[split.name]
            for shard in source.shards[split.name]:
                facts = hash_file(folder, split.filename(shard.index), num_records=0)  # the sha256 covers its records
                expected = shard.sha256
                if not source.copies(stored.filename(shard.index), stored):
                    with Path(os.devnull).open("wb") as nowhere:
                        _, _, expected = source.copy(shard, stored, nowhere)
                if facts.sha256 != expected:
                    return None
                total += facts.num_bytes
                if advance is not None:
                    advance(shard.num_bytes)
    except (PreparedFormatError, StorageError):
        return None
    return total


def _essence(prepared: PreparedDataset) -> PreparedDataset:
    """The facts that decide which records TFDS reads, without metadata."""
    splits = tuple(replace(split, num_bytes=0) for split in prepared.splits)
    return replace(prepared, splits=splits, metadata=DatasetMetadata())
