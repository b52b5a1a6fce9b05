"""Sites made from SQLite catalogs, and a web server for them that records requests and can be controlled by tests."""

from __future__ import annotations

import gzip
import hashlib
import sqlite3
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path
from typing import Any, cast

from registry.catalog import CatalogBackend
from registry.catalog.events import event_hash
from registry.catalog.site import SiteCatalog, SiteOptions
from registry.catalog.site.catalog import READS
from registry.catalog.site_index import SiteIndex
from registry.catalog.wrapper import CatalogWrapper, pass_call
from registry.errors import LogTamperedError, SiteMismatchError
from support import http_servers
from support.http_servers import running

Files = dict[str, bytes]
"""The files of a site, by their path."""

MADE_AT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
CHANGED_AT = 1_700_000_000


def snapshot(file: Path) -> bytes:
    """The bytes of an SQLite file, complete without its log."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return file.read_bytes()


def head_of(content: bytes) -> tuple[int, str]:
    """The number and the hash of the last event of a catalog."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(_without_wal(content))
        row = connection.execute("SELECT id, hash FROM event ORDER BY id DESC LIMIT 1").fetchone()
    return row or (0, "0" * 64)


def make_site(content: bytes, *, compressed: bytes | None = None, **changes: Any) -> Files:
    """The files of a site whose catalog has this content; ``changes`` are other values for its index."""
    compressed = gzip.compress(content, 1, mtime=0) if compressed is None else compressed
    try:
        num_events, head = head_of(content)
    except (sqlite3.Error, ValueError):
        num_events, head = 1, "1" * 64
    index = replace(
        SiteIndex(
            sha256=hashlib.sha256(content).hexdigest(),
            num_bytes=len(content),
            compressed_sha256=hashlib.sha256(compressed).hexdigest(),
            compressed_bytes=len(compressed),
            head=head,
            num_events=num_events,
            made_at=MADE_AT,
            made_by="shardbook 1.0",
            data_url="data/",
        ),
        **changes,
    )
    return {"site.json": index.to_json(), index.path: compressed}


def changed(content: bytes, *statements: str, triggers: bool = False) -> bytes:
    """A catalog after these statements; its triggers are off meanwhile, unless ``triggers``."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.deserialize(_without_wal(content))
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        rows = [] if triggers else rows
        for name, _ in rows:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for _, sql in rows:
            connection.execute(sql)
        return connection.serialize()


def truncated(content: bytes, num_events: int) -> bytes:
    """A catalog whose log ends after ``num_events`` events."""
    return changed(content, f"DELETE FROM event WHERE id > {num_events}")  # noqa: S608 (a number)


def forked(content: bytes, number: int) -> bytes:
    """A catalog whose event of this ``number`` has another actor; all hashes after it fit."""
    statements = []
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(_without_wal(content))
        connection.row_factory = sqlite3.Row
        previous = None
        for row in connection.execute("SELECT * FROM event WHERE id >= ? ORDER BY id", (number,)):
            values = {**row, "at": datetime.fromisoformat(row["at"]).replace(tzinfo=UTC)}
            if previous is None:
                values["actor"] = "eve"
            else:
                values["previous_hash"] = previous
            previous = event_hash(values)
            statements.append(
                f"UPDATE event SET actor = '{values['actor']}', previous_hash = '{values['previous_hash']}', "  # noqa: S608
                f"hash = '{previous}' WHERE id = {row['id']}"
            )
    return changed(content, *statements)


def _without_wal(content: bytes) -> bytes:
    """SQLite opens no database in memory that says that it has a log beside it."""
    return content[:18] + b"\x01\x01" + content[20:]


@dataclass
class WebServer:
    """The files and the requests of a server.

    Attributes:
        url: the URL of the server's root, with a slash.
        files: the files, by path.
        seen: path, status and headers of each request.
        redirects: where a path leads to.
        login: the ``Authorization`` that it requires.
        status: the status of all of its responses.
        has_tags: whether it sends ETags; it always sends ``Last-Modified``.
    """

    url: str = ""
    files: Files = field(default_factory=dict)
    seen: list[tuple[str, int, Mapping[str, str]]] = field(default_factory=list)
    redirects: dict[str, str] = field(default_factory=dict)
    login: str | None = None
    status: int | None = None
    has_tags: bool = True

    def requests(self) -> list[tuple[str, int]]:
        """Path and status of each request since the last call."""
        result = [(path, status) for path, status, _ in self.seen]
        self.seen.clear()
        return result

    def answer(self, path: str, asked: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body."""
        if self.status is not None:
            return self.status, {}, b""
        if path in self.redirects:
            return 302, {"Location": self.redirects[path]}, b""
        if self.login is not None and asked.get("Authorization") != self.login:
            return 401, {}, b""
        if path not in self.files:
            return 404, {}, b""
        headers = {"Last-Modified": formatdate(CHANGED_AT, usegmt=True)}
        if self.has_tags:
            headers = {"ETag": f'"{hashlib.sha256(self.files[path]).hexdigest()}"'}
        if asked.get("If-None-Match", "-") == headers.get("ETag"):
            return 304, headers, b""
        if asked.get("If-Modified-Since", "-") == headers.get("Last-Modified"):
            return 304, headers, b""
        return 200, headers, self.files[path]


@contextmanager
def web_server(certificate: Path | None = None) -> Iterator[WebServer]:
    """A server that runs for as long as the block; with a ``certificate`` and its key in one file, by https."""
    state = WebServer()

    class Handler(http_servers.Handler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.lstrip("/")
            status, headers, body = state.answer(path, self.headers)
            state.seen.append((path, status, dict(self.headers)))
            self.answer(status, headers, body)

    tls = None
    if certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
    with running(Handler, tls) as port:
        state.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}/"
        yield state


@dataclass(slots=True)
class Client:
    """A machine that reads a site: its cache and what it remembers are in ``folder``."""

    url: str
    folder: Path
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def heads(self) -> Path:
        return self.folder / "heads"

    def open(self) -> SiteCatalog:
        """The site, as a new process sees it."""
        return SiteCatalog(self.url, SiteOptions(cache=self.cache, heads=self.heads, **self.options))


class SitedCatalog(CatalogWrapper):
    """Passes writes to an SQLite catalog, and reads it as a site, which is written again when the file has changed."""

    def __init__(self, catalog: CatalogBackend, server: WebServer, folder: Path) -> None:
        assert catalog.file is not None
        self.url, self.file = catalog.url, catalog.file
        self._catalog = catalog
        self._server = server
        self._client = Client(server.url, folder)
        self._content = b""
        self._site: Any = None

    def _call(self, call: str, *args: Any, **kwargs: Any) -> Any:
        if call not in READS or call in ("now", "locations.data_dir", "reservations.list"):  # about the publisher
            return pass_call(self._catalog, call, *args, **kwargs)
        content = snapshot(self.file)
        if content != self._content:
            self._content, self._site = content, self._client.open()
            self._server.files = make_site(content)
            try:
                self._site._current()  # an exact version that is in the cache would be answered without a request
            except SiteMismatchError as error:
                if error.details["field"] not in ("schema", "location"):
                    raise
                self._site = self._catalog  # a test has put there what no site may have
        try:
            return pass_call(self._site, call, *args, **kwargs)
        except LogTamperedError:  # some tests publish versions with digests that are made up
            return pass_call(self._catalog, call, *args, **kwargs)


@contextmanager
def sited(catalog: CatalogBackend, folder: Path) -> Iterator[CatalogBackend]:
    """A catalog whose reading calls go over a web server."""
    with web_server() as server:
        yield cast("CatalogBackend", SitedCatalog(catalog, server, folder))
