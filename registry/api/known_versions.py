"""What this machine knows about exact versions of catalogs on other machines, to find them while these do not answer.

    look-up of mnist:3.0.1, answered   ->  KnownVersions.keep  ->  a note of the memory
    look-up of mnist:3.0.1, no answer  ->  KnownVersions.find  ->  the same facts, and a warning

A published version never changes, except for its state and the canonical version; the warning says since when these are
known. The notes contain what the catalog says about the version: no password, and no URL of the catalog.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
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
    AbstractShardLengths,
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
from registry.storage.memory import Memory

if TYPE_CHECKING:
    from registry.catalog import CatalogBackend

_SHARD_FIELDS: Final = [field.name for field in fields(Shard)]
MOST_SHARDS: Final = 20_000
"""A look-up keeps the digests of at most this many shards, two megabytes. ``Dataset.fetch`` keeps any number."""


def open_known_versions(url: str, file: Path | None) -> KnownVersions | None:
    """What this machine knows about a catalog; ``url`` has no password.

    None for an SQLite ``file``, which is on this machine, and without a cache.
    """
    return None if file is not None or open_cache() is None else KnownVersions(shared_folder() / "catalogs", url)


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
    """The notes about the versions of one catalog. If their folder cannot be read or written, nothing is known."""

    def __init__(self, folder: Path, url: str) -> None:
        """``url`` is the catalog's URL without its password."""
        self.url = url
        self._folder = folder / blake2b(url.encode(), digest_size=16).hexdigest()
        self._memory = Memory(self._folder)

    def is_empty(self) -> bool:
        """Whether no version of the catalog is known."""
        return not self._folder.is_dir()

    def find(self, reference: Reference) -> KnownVersion | None:
        """What is known about an exact reference; None if nothing is."""
        try:
            since = self._memory.file("version", str(reference).encode()).stat().st_mtime
            values = self._load("version", str(reference))
            shards = {
                split: tuple(Shard(**dict(zip(_SHARD_FIELDS, row, strict=True))) for row in rows)
                for split, rows in self._load("shards", _shards_name(values)).items()
            }
            return KnownVersion(_version_of(values, shards), shards, datetime.fromtimestamp(since, UTC))
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None

    def data_dir(self) -> str | None:
        """The data directory that the catalog records."""
        path = self._load("data_dir", "")
        return None if path is None else str(path)

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
        values = _fields_of(facts)
        name = _shards_name(values)
        try:
            # They never change, and may be many.
            if self._memory.load("shards", name.encode(), self.url.encode()) is None:
                rows = {
                    split.name: [
                        [getattr(shard, field) for field in _SHARD_FIELDS]
                        for shard in load_shards(backend.shards, facts, split.name)
                    ]
                    for split in facts.splits
                }
                self._keep("shards", name, rows)
        except CatalogError:  # the look-up has succeeded
            return
        if data_dir is not None:
            self._keep("data_dir", "", data_dir)
        self._keep("version", str(reference), values)

    def _load(self, kind: str, name: str) -> Any:
        value = self._memory.load(kind, name.encode(), self.url.encode())
        return None if value is None else json.loads(bytes(value))

    def _keep(self, kind: str, name: str, value: Any) -> None:
        subject, catalog = name.encode(), self.url.encode()
        content = json.dumps(value, sort_keys=True, default=_plain).encode()
        before = self._memory.load(kind, subject, catalog)
        if before is not None and bytes(before) == content:
            with suppress(OSError):
                os.utime(self._memory.file(kind, subject))
        else:
            self._memory.keep(kind, subject, catalog, content)


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


def _shards_name(values: Mapping[str, Any]) -> str:
    return json.dumps([values[name] for name in ("name", "config", "version", "content_digest")], default=_plain)


def _fields_of(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _plain(value: Any) -> Any:
    """Values that JSON lacks. The lengths of shards are left out, because they are kept with the shards."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Version):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return None if isinstance(value, AbstractShardLengths) else _fields_of(value)


def _version_of(values: dict[str, Any], shards: Mapping[str, Sequence[Shard]]) -> DatasetVersion:
    """The version with these JSON values. Raises KeyError, TypeError or ValueError if another release wrote them."""
    metadata, published_at = values["metadata"], values["published_at"]
    for name in ("supervised_keys", "config_tags"):
        metadata[name] = None if metadata[name] is None else tuple(metadata[name])
    numbers = ("version", "superseded_by", "canonical")
    return DatasetVersion(
        **{
            **values,
            **{name: None if values[name] is None else Version.parse(values[name]) for name in numbers},
            "splits": tuple(
                Split(
                    **split
                    | {
                        "shard_lengths": ShardLengths(shard.num_examples for shard in shards[split["name"]]),
                        "files": ShardedFileTemplate(**split["files"]),
                    }
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
