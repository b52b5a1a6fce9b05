"""A catalog on another machine, which this machine remembers: exact versions are found while it does not answer.

    find("mnist:3.0.1"), answered   ->  KnownVersions.keep  ->  a note of the memory
    find("mnist:3.0.1"), no answer  ->  KnownVersions.find  ->  the same facts, and a warning

A published version never changes, except for its state and the canonical version; the warning says since when these are
known. The notes contain what the catalog says about the version: no password, and no URL of the catalog.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from registry.catalog.paging import load_shards
from registry.catalog.service.messages import Reading, codec, load_value
from registry.catalog.values import DataDirectory
from registry.catalog.wrapper import IS_BRIEF, CatalogWrapper, pass_call
from registry.errors import CatalogError, CatalogUnavailableError, CatalogUnavailableWarning, UsageError, warn
from registry.model import DatasetVersion, Reference, Shard, ShardLengths, describe_moment
from registry.storage.memory import Memory

if TYPE_CHECKING:
    from registry.catalog.backend import CatalogBackend

_SHARD_FIELDS: Final = [field.name for field in fields(Shard)]
_DOUBT: Final = "doubt"
MOST_SHARDS: Final = 20_000
"""A look-up keeps the digests of at most this many shards, two megabytes. ``remember`` keeps any number."""

_AWAY_SECONDS: Final = 30
"""How long a catalog that did not answer is not asked again for what is known."""

_AWAY: Final[dict[str, tuple[float, CatalogUnavailableError]]] = {}
"""When a catalog last did not answer this process, by its URL, and its error."""


class RememberingCatalog(CatalogWrapper):
    """Passes calls to a catalog on another machine, and answers those about known versions while it is unreachable.

    Attributes:
        url: as ``CatalogBackend.url``.
        file: None.
        fresh_seconds: how long the catalog is not asked again for an exact version that it described.
    """

    fresh_seconds = 0

    def __init__(
        self, url: str, backend: CatalogBackend | CatalogUnavailableError, folder: Callable[[], Path | None]
    ) -> None:
        """``backend`` is the catalog, or why it could not be opened; ``folder()`` has the notes, if they are kept."""
        self.url = url
        self.file = None
        self._backend = backend
        self._folder = folder
        self._recalled: set[Reference] = set()

    @cached_property
    def known(self) -> KnownVersions | None:
        """What this machine knows about exact versions; None if it keeps no notes."""
        folder = self._folder()
        return None if folder is None else KnownVersions(folder, self.url)

    def remember(self, reference: Reference, version: DatasetVersion, *, most: int | None = None) -> None:
        """Keep what the catalog answered to ``reference``, if the version has at most ``most`` shards.

        What was recalled itself is not kept again: the warning says when the catalog last answered.
        """
        if self.known is None or reference.exact is None or version.reference in self._recalled:
            return
        if most is None or sum(split.num_shards for split in version.splits) <= most:
            with suppress(CatalogError, UsageError):  # the look-up has succeeded
                self.known.keep(reference, version, cast("CatalogBackend", self))

    def is_recalled(self, version: DatasetVersion) -> bool:
        """Whether the last look-up of ``version`` was answered without the catalog."""
        return version.reference in self._recalled

    def close(self) -> None:
        """Close the connections, if there are any."""
        if not isinstance(self._backend, CatalogUnavailableError):
            self._backend.close()

    def _call(self, call: str, *args: Any, **kwargs: Any) -> Any:
        if call == "find" and self.fresh_seconds and self.known is not None:
            version = self.known.find(_read(args[0]), max_seconds=self.fresh_seconds)
            if version is not None:
                return version.facts
        is_known = self._is_known(call, args)
        try:
            with self._patience(is_known=is_known):
                result = pass_call(cast("CatalogBackend", self._backend), call, *args, **kwargs)
        except CatalogUnavailableError as error:
            known = self._recall(self.known, call, args, error) if is_known and self.known is not None else None
            if known is None:
                raise
            return known
        if call == "find":
            self._recalled.discard(result.reference)
            self.remember(_read(args[0]), result, most=MOST_SHARDS)
        return result

    @contextmanager
    def _patience(self, *, is_known: bool) -> Iterator[None]:
        """Ask the catalog in the block; only briefly, or not at all, if it is away and the answer is known."""
        moment, error = _AWAY.get(self.url, (float("-inf"), None))
        if isinstance(self._backend, CatalogUnavailableError):
            error = self._backend
        elif not is_known or time.monotonic() - moment > _AWAY_SECONDS:
            error = None
        if error is not None:
            raise CatalogUnavailableError(error.message, hint=error.hint, details=error.details)
        before = IS_BRIEF.set(is_known)
        try:
            yield
            _AWAY.pop(self.url, None)
        except CatalogUnavailableError as raised:
            _AWAY[self.url] = time.monotonic(), raised.with_traceback(None)
            raise
        finally:
            IS_BRIEF.reset(before)

    def _is_known(self, call: str, args: tuple[Any, ...]) -> bool:
        """Whether there is a note that answers a call without the catalog."""
        if self.known is None:
            return False
        match call:
            case "find":
                return self.known.holds(_read(args[0]))
            case "shards.between":
                return self.known.holds_shards(args[0])
            case "locations.data_dir":  # the caller looks into the notes itself
                return self.known.data_dir() is not None
        return False

    def _recall(self, known: KnownVersions, call: str, args: tuple[Any, ...], error: CatalogUnavailableError) -> Any:
        """The answer to ``call`` without the catalog; None if it is not known."""
        match call:
            case "find":
                version = known.find(_read(args[0]))
                if version is None:
                    return None
                self._recalled.add(version.facts.reference)
                since = describe_moment(version.since.replace(microsecond=0))
                warn(
                    f"{error.message}\n{version.facts.reference} is as this machine looked it up at {since}",
                    CatalogUnavailableWarning,
                )
                return version.facts
            case "shards.between":
                facts, split, first, stop = args
                with suppress(ValueError, LookupError, TypeError, AttributeError):  # another release wrote the note
                    shards = known.shards(facts)
                    return None if shards is None else shards[split][first:stop]
        return None


@dataclass(frozen=True, slots=True)
class KnownVersion:
    """A version, and when the catalog last said so."""

    facts: DatasetVersion
    since: datetime


class KnownVersions:
    """The notes about the versions of one catalog. If their folder cannot be read or written, nothing is known."""

    def __init__(self, folder: Path, url: str) -> None:
        """``url`` is the catalog's URL without its password."""
        self.url = url
        self._folder = folder / blake2b(url.encode(), digest_size=16).hexdigest()
        self._memory = Memory(self._folder)
        self._shards: dict[str, Mapping[str, tuple[Shard, ...]]] = {}

    def is_empty(self) -> bool:
        """Whether no version of the catalog is known."""
        return not self._folder.is_dir()

    def doubt(self) -> None:
        """Let ``find`` with ``max_seconds`` know nothing of before: this machine has changed the catalog."""
        self._memory.keep(_DOUBT, b"", b"", str(time.time()).encode())

    def holds(self, reference: Reference) -> bool:
        """Whether there is a note about an exact reference."""
        return reference.exact is not None and self._memory.file("version", str(reference).encode()).is_file()

    def holds_shards(self, version: DatasetVersion) -> bool:
        """Whether there is a note about the shards of a version."""
        return self._memory.file("shards", _shards_name(version).encode()).is_file()

    def find(self, reference: Reference, *, max_seconds: float | None = None) -> KnownVersion | None:
        """What is known about an exact reference; None if nothing is, or nothing since ``max_seconds`` ago."""
        if reference.exact is None:
            return None
        try:
            since = self._memory.file("version", str(reference).encode()).stat().st_mtime
            if max_seconds is not None:
                doubted = self._memory.load(_DOUBT, b"", b"")
                if since < max(time.time() - max_seconds, float(bytes(doubted)) if doubted is not None else 0):
                    return None
            facts: DatasetVersion = self._load_value(DatasetVersion, "version", str(reference))
            shards = self.shards(facts)
            if shards is None:
                return None
            lengths = {split: ShardLengths(shard.num_examples for shard in rows) for split, rows in shards.items()}
            return KnownVersion(_with_lengths(facts, lengths.__getitem__), datetime.fromtimestamp(since, UTC))
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None

    def shards(self, version: DatasetVersion) -> Mapping[str, tuple[Shard, ...]] | None:
        """The shards of each split of a version; None if they are not known."""
        name = _shards_name(version)
        if name not in self._shards:
            rows = self._load("shards", name)
            if rows is None:
                return None
            self._shards[name] = {
                split: tuple(Shard(**dict(zip(_SHARD_FIELDS, row, strict=True))) for row in of_split)
                for split, of_split in rows.items()
            }
        return self._shards[name]

    def data_dir(self) -> DataDirectory | None:
        """The data directory that the catalog recorded at the last look-up; None if that is not known."""
        try:
            known: DataDirectory | None = self._load_value(DataDirectory | None, "directory", "")
        except ValueError:
            return None
        return known

    def keep(self, reference: Reference, facts: DatasetVersion, backend: CatalogBackend) -> None:
        """Keep what the catalog answered to an exact reference, and the data directory that it records."""
        name = _shards_name(facts)
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
        version = _with_lengths(facts, lambda _: ShardLengths(()))  # which are kept with the shards
        self._keep("version", str(reference), codec(DatasetVersion).dump(version))
        self._keep("directory", "", codec(DataDirectory | None).dump(backend.locations.data_dir()))

    def _load(self, kind: str, name: str) -> Any:
        value = self._memory.load(kind, name.encode(), self.url.encode())
        return None if value is None else json.loads(bytes(value))

    def _load_value(self, type_: Any, kind: str, name: str) -> Any:
        """A value that ``_keep`` stored as its message. Raises UsageError if another release wrote it."""
        return load_value(type_, self._load(kind, name), Reading(shards=cast("Any", None), is_strict=False), kind)

    def _keep(self, kind: str, name: str, value: Any) -> None:
        subject, catalog = name.encode(), self.url.encode()
        content = json.dumps(value, sort_keys=True).encode()
        before = self._memory.load(kind, subject, catalog)
        if before is not None and bytes(before) == content:
            with suppress(OSError):
                os.utime(self._memory.file(kind, subject))
        else:
            self._memory.keep(kind, subject, catalog, content)


def _read(reference: str | Reference) -> Reference:
    return Reference.parse(reference) if isinstance(reference, str) else reference


def _shards_name(version: DatasetVersion) -> str:
    return json.dumps([version.name, version.config, str(version.version), version.content_digest])


def _with_lengths(version: DatasetVersion, lengths: Callable[[str], ShardLengths]) -> DatasetVersion:
    """The version with other lengths of shards, by the name of the split."""
    splits = tuple(replace(split, shard_lengths=lengths(split.name)) for split in version.splits)
    return replace(version, splits=splits)
