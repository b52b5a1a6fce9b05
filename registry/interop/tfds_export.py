"""How does a published version become a folder that TFDS loads? Its shards copied, its description written anew.

    <data_dir>/<name>[/<config>]/<version>/ dataset_info.json  features.json  *.labels.txt  shards  LICENSE ...
    <data_dir>/<name>/.config/metadata.json   where the config is the default one

Every byte that is copied is hashed and compared with what was published. Shards that TFDS cannot read, because they are
compressed, are written as it writes them: the same records in shards of the same lengths.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from registry.errors import ConflictError, FolderExistsError, PreparedFormatError, ShardMismatchError, StorageError
from registry.features import features_from_json
from registry.model import DatasetMetadata, DatasetVersion, Shard, Split, version_folder
from registry.prepared import PreparedDataset, default_config, read_prepared, write_default_config, write_prepared
from registry.storage import Store
from registry.tfrecord import RecordWriter, hash_file, is_gzip, read_records

AdvanceBytes: TypeAlias = Callable[[int], None]
"""Called with the number of bytes of the published shards that were done since the last call."""

_PIECE_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What came of an export: the version's ``folder``, and ``newly`` False where the same lay there before."""

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
    advance: AdvanceBytes | None = None,
) -> Exported:
    """Write ``version``, whose shards lie in ``source``, below ``data_dir`` as TFDS lays it out.

    The folder appears when it is complete. Exporting again is harmless: what is there is compared.

    Args:
        version: the published version.
        source: the folder of its shards.
        shards: those of each split, as they were published.
        data_dir: a folder that TFDS is given as its ``data_dir``.
        is_default_config: write down that its config is the dataset's default, where no other one is.
        advance: called with the number of bytes done since the last call.

    Raises:
        ShardMismatchError: a shard is not what was published.
        ConflictError: another version of that name and number lies there.
        StorageError: a file cannot be read or written.
    """
    place = version_folder(version.name, version.config, version.version)
    prepared = describe(version)
    data_dir.clear_abandoned(place.rpartition("/")[0])
    newly = not data_dir.exists(place)
    if newly:
        with data_dir.stage(place) as staged:
            written = _write(prepared, source, shards, staged.store, advance)
            try:
                staged.commit()
            except FolderExistsError:  # another export of it was faster
                newly = False
    if not newly:
        found = _compare(prepared, source, shards, data_dir.child(place), advance)
        if found is None:
            raise ConflictError(
                f"other data lies at {data_dir.locate(place)}",
                hint="Move it away, or export into another folder.",
                details={"folder": data_dir.locate(place)},
            )
        written = found
    if is_default_config and version.config is not None and default_config(data_dir, version.name) is None:
        write_default_config(data_dir, version.name, version.config)
    return Exported(folder=data_dir.locate(place), newly=newly, num_bytes=written)


def describe(version: DatasetVersion) -> PreparedDataset:
    """What the files of a prepared folder say of ``version``."""
    return PreparedDataset(
        name=version.name,
        config=version.config,
        version=version.version,
        splits=version.splits,
        features=features_from_json(version.features_json).with_labels(version.labels),
        metadata=version.metadata,
        file_format=version.file_format,
        disable_shuffling=version.disable_shuffling,
    )


def _write(
    prepared: PreparedDataset,
    source: Store,
    shards: Mapping[str, Sequence[Shard]],
    target: Store,
    advance: AdvanceBytes | None,
) -> int:
    written = 0
    for split in prepared.splits:
        for shard in shards[split.name]:
            written += _copy_shard(source, target, split, shard)
            if advance is not None:
                advance(shard.num_bytes)
    described = set(write_prepared(target, prepared))
    shard_files = {name for split in prepared.splits for name in split.filenames}
    for name in source.list():
        if "/" not in name and name not in shard_files and name not in described and not name.endswith(".labels.txt"):
            source.copy(name, target)  # a licence, or TFDS's metadata.json
    return written


def _copy_shard(source: Store, target: Store, split: Split, shard: Shard) -> int:
    """Copy a shard, or write its records anew where TFDS would not read it; the bytes written."""
    filename = split.filename(shard.index)
    digest, num_bytes = hashlib.sha256(), 0
    with source.open(filename) as file:
        start = file.read(_PIECE_BYTES)
        if is_gzip(start):
            return _write_records(source, target, filename, shard)
        with target.create(filename) as copy:
            piece = start
            while piece:
                digest.update(piece)
                copy.write(piece)
                num_bytes += len(piece)
                piece = file.read(_PIECE_BYTES)
    _check(filename, num_bytes, digest.hexdigest(), shard)
    return num_bytes


def _write_records(source: Store, target: Store, filename: str, shard: Shard) -> int:
    found = hash_file(source, filename, num_records=shard.num_examples)
    _check(filename, found.num_bytes, found.sha256, shard)
    with target.create(filename) as file:
        return _write_again(source, filename, shard, file).num_bytes


def _write_again(source: Store, filename: str, shard: Shard, file: BinaryIO) -> RecordWriter:
    writer = RecordWriter(file)
    for record in read_records(source, filename, num_records=shard.num_examples):
        writer.write(record)
    return writer


def _check(filename: str, num_bytes: int, sha256: str, shard: Shard) -> None:
    if (num_bytes, sha256) != (shard.num_bytes, shard.sha256):
        raise ShardMismatchError(
            f"{filename}: it is not what was published: {num_bytes} bytes, sha256 {sha256}",
            hint="Nothing was exported. Which shards are bad says: registry verify REF",
            details={"path": filename, "sha256": sha256, "promised": shard.sha256},
        )


def _compare(
    prepared: PreparedDataset,
    source: Store,
    shards: Mapping[str, Sequence[Shard]],
    folder: Store,
    advance: AdvanceBytes | None,
) -> int | None:
    """The bytes of the shards in ``folder``; None where it is not this very version."""
    num_bytes = 0
    try:
        if _essence(read_prepared(folder)) != _essence(prepared):
            return None
        for split in prepared.splits:
            for shard in shards[split.name]:
                filename = split.filename(shard.index)
                facts = hash_file(folder, filename, num_records=shard.num_examples)
                if facts.sha256 != _sha256_to_be(source, filename, shard):
                    return None
                num_bytes += facts.num_bytes
                if advance is not None:
                    advance(shard.num_bytes)
    except (PreparedFormatError, StorageError):
        return None
    return num_bytes


def _sha256_to_be(source: Store, filename: str, shard: Shard) -> str:
    """That of the shard as it is exported."""
    with source.open(filename) as file:
        if not is_gzip(file.read(_PIECE_BYTES)):
            return shard.sha256
    with Path(os.devnull).open("wb") as nowhere:
        return _write_again(source, filename, shard, nowhere).sha256()


def _essence(prepared: PreparedDataset) -> PreparedDataset:
    """What decides which records TFDS reads: nothing that is said about them."""
    splits = tuple(replace(split, num_bytes=0) for split in prepared.splits)
    return replace(prepared, splits=splits, metadata=DatasetMetadata())
