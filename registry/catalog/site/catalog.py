"""``SiteCatalog``: the catalog protocol, read-only, over a snapshot that a web server has.

    find("digits:1.0.0")  ->  in the cached snapshot?  ->  no request
    any other look-up     ->  site.json, if it changed  ->  304: the cached snapshot
                                                        ->  200: the snapshot that it names, verified, then cached

The server is asked again a minute after its last answer. What it has is compared with what this machine read from it
before (``history.py``), and only then used. If it does not answer, the cached snapshot answers, with a warning. Other
processes share the cache; each file in it has the name of its digest, and is never changed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from pathlib import Path
from threading import RLock
from typing import Any, Final

from registry.catalog.policy import READS
from registry.catalog.revision import HEAD
from registry.catalog.service_index import service_index
from registry.catalog.site.history import Head, KnownHead
from registry.catalog.site.options import SiteOptions
from registry.catalog.site.requests import SiteServer
from registry.catalog.site.snapshot import (
    MissingSnapshot,
    download,
    mismatch,
    open_snapshot,
    require_head,
    verify_snapshot,
    verify_version,
)
from registry.catalog.site_index import INDEX_NAME, MAX_INDEX_BYTES, SiteIndex, parse_site_index
from registry.catalog.sql_catalog import SqlCatalog
from registry.catalog.values import DataDirectory
from registry.catalog.web_urls import site_url
from registry.catalog.wrapper import CatalogWrapper, pass_call
from registry.errors import (
    AlreadyStoredError,
    CatalogNotFoundError,
    CatalogPermissionError,
    CatalogUnavailableError,
    CatalogUnavailableWarning,
    FetchNotAllowedError,
    NotFoundError,
    warn,
)
from registry.masking import mask, remove_secrets
from registry.model import Reference, describe_moment
from registry.storage.consent import entry_for
from registry.storage.faults import storage_errors
from registry.storage.local import LocalStore
from registry.storage.memory import Memory, make_private
from registry.storage.temporary import TemporaryStore

_FRESH_SECONDS: Final = 60
"""How long an answer of the server counts as new."""

_NOTE: Final = "site"
_DIGEST: Final = "digest"
_TRIES_WITH_CACHE: Final = 2
_LEAST_AGE: Final = timedelta(seconds=2)
"""``Last-Modified`` has whole seconds: a file may change again within the second of its last change."""

_LEAST_KEPT_SECONDS: Final = 3600
"""Other processes may have opened a snapshot that was fetched in this time."""

_ABOUT_VERSIONS: Final = frozenset(
    (
        *("fingerprints", "attachments", "experiments.of_version", "locations.data_dir", "shards.between"),
        *("shards.lengths_between", "shards.lengths_at", "shards.empty_between", "shards.version_of"),
    )
)
"""Calls about a version that was looked up, which never changes: the snapshot that is there answers."""


class ServiceFound(Exception):  # noqa: N818 (``WebCatalog`` goes on with the service)
    """The URL is that of a service; ``index`` is what its ``site.json`` says."""

    def __init__(self, index: dict[str, Any]) -> None:
        super().__init__()
        self.index = index


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    """What the cache has about a site: its index, the conditions for the next request, and when it was read."""

    index: str
    conditions: dict[str, str]
    read_at: str


@dataclass(frozen=True, slots=True)
class _State:
    """A snapshot that answers."""

    note: _Note
    index: SiteIndex
    catalog: SqlCatalog


class SiteCatalog(CatalogWrapper):
    """Answers from the snapshot of a site, and refuses to write. Threads may share it.

    Attributes:
        url: the URL of the site, without its password.
        file: None.
        options: see ``SiteOptions``.
    """

    def __init__(self, url: str, options: SiteOptions) -> None:
        """``url`` is that of the folder that has ``site.json``; nothing is requested yet.

        Raises:
            UsageError: the URL does not parse.
        """
        self._url = site_url(url)
        self.url = mask(self._url)
        self.file = None
        self.options = options
        self._public = remove_secrets(self._url)
        self._known = KnownHead(options.heads, self._public)
        self._lock = RLock()
        self._state: _State | None = None
        self._checked = float("-inf")
        folder = options.cache
        if folder is None:
            self._temporary = TemporaryStore()  # which removes its folder with this catalog
            folder = Path(self._temporary.locate(""))
        self._folder = folder / blake2b(self._public.encode(), digest_size=16).hexdigest()
        self._memory = Memory(self._folder)

    def close(self) -> None:
        """Close the snapshot."""
        if self._state is not None:
            self._state.catalog.close()

    def __repr__(self) -> str:
        return f"<SiteCatalog {self.url}>"

    def _call(self, call: str, *args: Any, **kwargs: Any) -> Any:
        if call not in READS:
            raise self._read_only()
        is_exact = call == "find" and _read(args[0]).exact is not None
        state = self._cached() if is_exact or call in _ABOUT_VERSIONS else None
        if state is not None and is_exact:
            with suppress(NotFoundError):
                return self._ask(state, call, *args, **kwargs)
        if state is None or is_exact:  # it may have been published since
            state = self._current()
        if call == "locations.data_dir":
            return self._data_dir(state.index)
        return self._ask(state, call, *args, **kwargs)

    def _ask(self, state: _State, call: str, *args: Any, **kwargs: Any) -> Any:
        """Pass a call to the snapshot; a version that it looks up is proved, once for each snapshot."""
        result = pass_call(state.catalog, call, *args, **kwargs)
        version = result.version if call == "find_at" else result
        if call in ("find", "find_at", "published") and version is not None:
            subject, content = str(version.reference).encode(), state.index.sha256.encode()
            if not self._memory.holds("proved", subject, content):
                verify_version(self.url, state.catalog, version)
                self._memory.add("proved", subject, content)
            for location in version.locations:
                self._keep_login_from(location)
        return result

    def _keep_login_from(self, place: str) -> None:
        """Refuse a place on another web server than the site's if the login of fsspec would be sent there."""
        from fsspec.config import conf

        is_web = place.lower().startswith(("http://", "https://"))
        if not is_web or not conf.get("http", {}).get("client_kwargs"):
            return
        if not self.options.allowed.with_typed(self._url).covers(place):
            raise FetchNotAllowedError(
                f"{mask(place)} was not contacted: the site {self.url} names it, and it would get the login of "
                "FSSPEC_HTTP_CLIENT_KWARGS",
                hint=f"If it may have the login: REGISTRY_ALLOWED_HOSTS={entry_for(place)}",
                details={"path": mask(place), "allow": entry_for(place)},
            )

    def _read_only(self) -> CatalogPermissionError:
        return CatalogPermissionError(
            f"a site is read-only, and {self.url} is one",
            hint="Publish into the catalog from which it was made, and write the site again: registry site. "
            "To have its datasets in a catalog of your own: registry copy",
        )

    def _data_dir(self, index: SiteIndex) -> DataDirectory | None:
        """The URL of the data; the record in the snapshot is that of the publisher's machine."""
        if index.data_url is None:
            return None
        place = index.data_url if "://" in index.data_url else f"{self._public}{index.data_url}"
        self._keep_login_from(place)
        return DataDirectory(recorded=place.rstrip("/"), place=place.rstrip("/"))

    def _current(self) -> _State:
        """The snapshot that the server has, or the cached one if the server does not answer."""
        with self._lock:
            state = self._cached()
            if state is not None and time.monotonic() - self._checked < _FRESH_SECONDS:
                return state
            try:
                state = self._state = self._refresh(state)
            except CatalogUnavailableError as error:
                if state is None:
                    raise
                read_at = describe_moment(datetime.fromisoformat(state.note.read_at).replace(microsecond=0))
                warn(f"{error.message}\n{self.url} is as this machine read it at {read_at}", CatalogUnavailableWarning)
            self._checked = time.monotonic()
            return state

    def _refresh(self, cached: _State | None) -> _State:
        head = self._known.load()  # before the request: another process may read further meanwhile
        server = SiteServer(self._url)
        try:
            for conditions in ({} if cached is None else cached.note.conditions, {}):
                answer = server.get(
                    INDEX_NAME,
                    most_bytes=MAX_INDEX_BYTES,
                    conditions=conditions,
                    most_tries=None if cached is None else _TRIES_WITH_CACHE,
                )
                if answer is None:
                    raise self._absent("the server has no site.json there")
                is_known = cached is not None and answer.is_unchanged
                if not is_known and answer.body.lstrip()[:1] in (b"", b"<"):  # such as the page that asks to sign in
                    raise self._absent("the server answers something else than site.json")
                index = cached.index if cached is not None and is_known else self._parse(answer.body)
                note = _Note(
                    index=index.to_json().decode(),
                    conditions=dict(conditions) if is_known else _conditions(answer.headers),
                    read_at=datetime.now(UTC).isoformat(),
                )
                with suppress(MissingSnapshot):  # the site was written again meanwhile, and has another index now
                    return self._adopt(server, index, note, head, cached)
        finally:
            server.close()
        raise mismatch(self.url, "path", f"is missing: the server does not have {index.path}")

    def _absent(self, reason: str) -> CatalogNotFoundError:
        return CatalogNotFoundError(
            f"there is neither a service nor a site at {self.url}: {reason}",
            hint="Check the URL, also its path. It is the one that `registry serve` prints, or that of the folder that "
            "`registry site` wrote.",
            details={"name": self.url, "known": []},
        )

    def _parse(self, content: bytes) -> SiteIndex:
        if (service := service_index(content)) is not None:
            raise ServiceFound(service)
        index = parse_site_index(content, f"{self.url}{INDEX_NAME}")
        if self.options.check is not None:
            self.options.check(index)
        return index

    def _adopt(
        self, server: SiteServer, index: SiteIndex, note: _Note, head: Head | None, cached: _State | None
    ) -> _State:
        """The snapshot of ``index``, verified and kept in the cache."""
        earlier = None if cached is None else cached.catalog
        file = self._file(index)
        if cached is not None and self._file(cached.index) == file:
            catalog = cached.catalog
        else:
            self._store_snapshot(server, index, file)
            catalog = open_snapshot(self.url, file)
        newest = require_head(index, catalog, self._known, head, earlier)
        self._memory.keep(_NOTE, b"", b"", json.dumps(asdict(note)).encode())
        self._known.keep(newest)
        if earlier is not catalog:
            kept = {file, None if cached is None else self._file(cached.index)}
            for other in set(self._folder.glob("[0-9a-f]*.db")) - kept:
                with suppress(OSError):
                    if time.time() - other.stat().st_mtime > _LEAST_KEPT_SECONDS:
                        other.unlink()
                        self._memory.forget(_DIGEST, other.name.encode())
        return _State(note, index, catalog)

    def _store_snapshot(self, server: SiteServer, index: SiteIndex, file: Path) -> None:
        """Download and verify the snapshot, unless another process has done so. A file that is open is not replaced."""
        if self._is_sound(file):
            return
        with storage_errors("write", str(file)):
            make_private(self._folder)
            file.unlink(missing_ok=True)  # damaged
        with suppress(AlreadyStoredError), LocalStore(self._folder).create_path(file.name) as path:
            download(server, index, Path(path))
            verify_snapshot(self.url, Path(path))
            self._memory.keep(_DIGEST, file.name.encode(), b"", _digest(Path(path)))

    def _cached(self) -> _State | None:
        """The snapshot that answered last, or that the cache has."""
        if self._state is None:  # else nobody waits for a thread that waits for the server
            with self._lock:
                self._state = self._load()
        return self._state

    def _load(self) -> _State | None:
        content = self._memory.load(_NOTE, b"")
        if content is None:
            return None
        try:
            note = _Note(**json.loads(bytes(content)))
            index = self._parse(note.index.encode())
        except (TypeError, ValueError):  # another release wrote it, or the key that is trusted now did not sign it
            return None
        file = self._file(index)
        return _State(note, index, open_snapshot(self.url, file)) if self._is_sound(file) else None

    def _is_sound(self, file: Path) -> bool:
        """Whether a snapshot is as it was verified. One that was upgraded has another digest than the index says."""
        digest = self._memory.load(_DIGEST, file.name.encode())
        return digest is not None and bytes(digest) == _digest(file)

    def _file(self, index: SiteIndex) -> Path:
        """The file of the snapshot, whose name says what was verified: sizes and digests, and the schema."""
        values = index.sha256, index.num_bytes, index.compressed_sha256, index.compressed_bytes, HEAD
        return self._folder / f"{blake2b(json.dumps(values).encode(), digest_size=16).hexdigest()}.db"


def _read(reference: str | Reference) -> Reference:
    return Reference.parse(reference) if isinstance(reference, str) else reference


def _conditions(headers: Mapping[str, str]) -> dict[str, str]:
    """The conditions under which the server need not send the same index again."""
    result = {}
    if tag := headers.get("ETag", ""):
        result["If-None-Match"] = tag
    with suppress(ValueError, TypeError):
        changed, now = headers.get("Last-Modified", ""), parsedate_to_datetime(headers.get("Date", ""))
        if now - parsedate_to_datetime(changed) >= _LEAST_AGE:
            result["If-Modified-Since"] = changed
    return result


def _digest(file: Path) -> bytes:
    """The sha256 of a file; empty if it cannot be read."""
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").digest()
    except OSError:
        return b""
