"""What this machine knows about exact versions of catalogs on other machines, to find them while these do not answer.

    look-up of mnist:3.0.1, answered   ->  KnownVersions.keep  ->  a sealed file in the cache folder
    look-up of mnist:3.0.1, no answer  ->  KnownVersions.find  ->  the same facts, and a warning

A published version never changes, except for its state and the canonical version; the warning says since when these are
known. The files contain what the catalog says about the version: no password, and no URL of the catalog.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from registry.api.locations import open_cache, shared_folder
from registry.catalog import load_shards
from registry.errors import CatalogError, CatalogUnavailableError
from registry.model import (
    DatasetMetadata,
    DatasetVersion,
    LocationStep,
    Reference,
    Shard,
    ShardedFileTemplate,
    ShardLengths,
    SlicingRule,
    Split,
    Version,
    VersionState,
)
from registry.storage.folder_key import FolderKey, replace_file

if TYPE_CHECKING:
    from registry.catalog import CatalogBackend

_SEAL_BYTES: Final = 32
MOST_SHARDS: Final = 20_000
"""A look-up keeps the digests of at most this many shards, two megabytes. ``Dataset.fetch`` keeps any number."""


def open_known_versions(url: str) -> KnownVersions | None:
    """What this machine knows about a catalog on a server; ``url`` has no password. None without a cache."""
    return None if open_cache() is None else KnownVersions(shared_folder() / "catalogs", url)


def unreachable(url: str, error: CatalogUnavailableError) -> CatalogBackend:
    """A backend for a catalog that cannot be reached: every call raises the error of the connection."""
    return cast("CatalogBackend", _Unreachable(url, error))


@dataclass(frozen=True, slots=True)
class KnownVersion:
    """A version, the shards of each split, and when the catalog last said so."""

    facts: DatasetVersion
    shards: Mapping[str, tuple[Shard, ...]]
    since: datetime


class KnownVersions:
    """The folder with the known versions of one catalog. If it cannot be read or written, nothing is known."""

    def __init__(self, folder: Path, url: str) -> None:
        """``url`` is the catalog's URL without its password."""
        self.url = url
        self._key = FolderKey(folder)
        self._folder = folder / blake2b(url.encode(), digest_size=16).hexdigest()

    def is_empty(self) -> bool:
        """Whether no version of the catalog is known."""
        return not self._folder.is_dir()

    def find(self, reference: Reference) -> KnownVersion | None:
        """What is known about an exact reference; None if nothing is, or the files are damaged."""
        file = self._file(str(reference), "version")
        try:
            since = file.stat().st_mtime
            values = self._read(file)
            rows = self._read(self._shards_file(values))
            facts = _version_of(values, rows)
            shards = {split.name: _shards_of(split, rows[split.name]) for split in facts.splits}
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return KnownVersion(facts, shards, datetime.fromtimestamp(since, UTC))

    def data_dir(self) -> str | None:
        """The data directory that the catalog records."""
        try:
            return str(self._read(self._file("", "data_dir"))["path"])
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def keep(
        self,
        reference: Reference,
        facts: DatasetVersion,
        backend: CatalogBackend,
        *,
        data_dir: str | None = None,
        most: int | None = MOST_SHARDS,
    ) -> None:
        """Keep what the catalog answered to ``reference``, and the data directory that it records, if that is used.

        Nothing is kept if the reference does not name one version by its number, or if the version has more than
        ``most`` shards.
        """
        if reference.exact is None or (most is not None and sum(split.num_shards for split in facts.splits) > most):
            return
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            key = self._key.read_again(make=True)
            values = _values_of(facts)
            shards_file = self._shards_file(values)
            if not self._is_sound(shards_file):  # they never change, and may be many
                rows = {
                    split.name: [
                        [shard.num_examples, shard.num_bytes, shard.sha256, shard.entity_tag]
                        for shard in load_shards(backend.shards, facts, split.name)
                    ]
                    for split in facts.splits
                }
                self._write(shards_file, rows, key)
            if data_dir is not None:
                self._write(self._file("", "data_dir"), {"path": data_dir}, key)
            self._write(self._file(str(reference), "version"), values, key)
        except (OSError, CatalogError):  # the look-up has succeeded
            return

    def _file(self, name: str, kind: str) -> Path:
        digest = blake2b(name.encode(), digest_size=16).hexdigest()
        return self._folder / f"{digest}.{kind}"

    def _shards_file(self, values: Mapping[str, Any]) -> Path:
        names = [values[name] for name in ("name", "config", "version", "content_digest")]
        return self._file(json.dumps(names), "shards")

    def _write(self, file: Path, value: Any, key: bytes) -> None:
        content = json.dumps(value, sort_keys=True).encode()
        sealed = self._seal(file, content, key) + content
        with suppress(OSError):
            if file.read_bytes() == sealed:
                os.utime(file)
                return
        replace_file(file, sealed)

    def _is_sound(self, file: Path) -> bool:
        try:
            self._content(file)
        except (OSError, ValueError):
            return False
        return True

    def _read(self, file: Path) -> Any:
        return json.loads(self._content(file))

    def _content(self, file: Path) -> bytes:
        sealed = file.read_bytes()
        seal, content = sealed[:_SEAL_BYTES], sealed[_SEAL_BYTES:]
        if not secrets.compare_digest(seal, self._seal(file, content, self._key.read_again(make=False))):
            raise ValueError(f"{file} is damaged")
        return content

    def _seal(self, file: Path, content: bytes, key: bytes) -> bytes:
        """A keyed digest of the content, the catalog and the name, so that no file can take the place of another."""
        named = f"{self.url}\0{file.name}\0".encode()
        return blake2b(named + content, key=key, digest_size=_SEAL_BYTES).digest()


class _Unreachable:
    def __init__(self, url: str, error: CatalogUnavailableError) -> None:
        self.url = url
        self.file = None
        self._error = error

    def close(self) -> None:
        """Nothing is open."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # e.g. asked by pickle
            raise AttributeError(name)
        raise self._again()

    def _again(self) -> CatalogUnavailableError:
        error = self._error
        return CatalogUnavailableError(error.message, hint=error.hint, details=error.details)


def _values_of(facts: DatasetVersion) -> dict[str, Any]:
    """A version as JSON values, without the lengths of its shards."""
    values = {field.name: getattr(facts, field.name) for field in fields(facts)}
    numbers = ("version", "superseded_by", "canonical")
    return values | {
        **{name: None if values[name] is None else str(values[name]) for name in numbers},
        "splits": [
            {
                "name": split.name,
                "num_bytes": split.num_bytes,
                "files": {field.name: getattr(split.files, field.name) for field in fields(split.files)},
            }
            for split in facts.splits
        ],
        "labels": dict(facts.labels),
        "experiments": dict(facts.experiments),
        "metadata": {field.name: _plain(getattr(facts.metadata, field.name)) for field in fields(facts.metadata)},
        "published_at": None if facts.published_at is None else facts.published_at.isoformat(),
    }


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _version_of(values: dict[str, Any], rows: dict[str, list[Any]]) -> DatasetVersion:
    """The version with these JSON values. Raises KeyError, TypeError or ValueError if another release wrote them."""
    metadata, published_at = dict(values["metadata"]), values["published_at"]
    for name in ("supervised_keys", "config_tags"):
        metadata[name] = None if metadata[name] is None else tuple(metadata[name])
    numbers = ("version", "superseded_by", "canonical")
    return DatasetVersion(
        **{
            **values,
            **{name: None if values[name] is None else Version.parse(values[name]) for name in numbers},
            "splits": tuple(
                Split(
                    name=split["name"],
                    shard_lengths=ShardLengths(num_examples for num_examples, *_ in rows[split["name"]]),
                    num_bytes=split["num_bytes"],
                    files=ShardedFileTemplate(**split["files"]),
                )
                for split in values["splits"]
            ),
            "state": VersionState(values["state"]),
            "slicing": SlicingRule(values["slicing"]),
            "location_steps": tuple(LocationStep(*step) for step in values["location_steps"]),
            "labels": {name: tuple(names) for name, names in values["labels"].items()},
            "metadata": DatasetMetadata(**metadata),
            "published_at": None if published_at is None else datetime.fromisoformat(published_at),
        }
    )


def _shards_of(split: Split, rows: list[Any]) -> tuple[Shard, ...]:
    return tuple(
        split.shard(index, num_bytes=num_bytes, sha256=sha256, entity_tag=entity_tag)
        for index, (_, num_bytes, sha256, entity_tag) in enumerate(rows)
    )
