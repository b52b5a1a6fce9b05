"""Serves the files of a data directory that is a folder of this server, to those whose tokens cover their versions.

    path  ->  the catalog: a version whose location is a prefix of it  ->  may they see it?  ->  LocalStore  ->  a range

The catalog decides, and no listing: only files in the folder of a published version exist. A client names no path and
no URL of the server, and ``LocalStore`` follows no link that leads out of the data directory.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from registry.catalog import DataDirectory
from registry.catalog.service_index import DATA_PATH
from registry.errors import NotFoundError, NotStoredError, StorageError
from registry.model import ATTACHMENTS_FOLDER, DatasetVersion
from registry.server.rights import GuardedCatalog
from registry.storage import LocalStore
from registry.storage.faults import StoredFile, cannot
from registry.storage.names import check_relative_name, is_content

_PIECE_BYTES: Final = 2**18
_MOST_PARTS: Final = 16
"""Parts of a path: each is looked up as the end of a location."""

_RANGE: Final = re.compile(r"bytes=(?:(?P<first>[0-9]{1,18})-(?P<last>[0-9]{0,18})|-(?P<suffix>[0-9]{1,18}))")
_NO_FILE: Final = frozenset({None, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
"""Errors for names that do not name a file; a link that leads out of the store has no number."""

_ADMIN: Final = "Ask an admin of the service."
_HEADERS: Final = {
    "Accept-Ranges": "bytes",
    "Cache-Control": "private, no-cache",
    "Content-Disposition": "attachment",
    "Content-Type": "application/octet-stream",
    "Vary": "Authorization",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataAnswer:
    """The answer to a request about bytes; ``body`` yields at most 256 KiB at a time."""

    status: int
    headers: Mapping[str, str]
    body: Iterator[bytes] | bytes = b""


class ServedData:
    """A data directory that is a folder of this server.

    Attributes:
        store: the folder.
        record: how clients see it: the URL of the service.
    """

    def __init__(self, store: LocalStore, service: str) -> None:
        """``service`` is the URL at which clients reach the service; it ends with a slash."""
        self.store = store
        self.record = DataDirectory(recorded=f"{service}{DATA_PATH}", place=f"{service}{DATA_PATH}")

    def read(self, catalog: GuardedCatalog, path: str, headers: Mapping[str, str], *, is_head: bool) -> DataAnswer:
        """Answer a GET or a HEAD of a file; of a folder, whose path ends with a slash, its files as JSON.

        Args:
            catalog: the catalog as the client may see it.
            path: below the data directory.
            headers: of the request; ``Range``, ``If-Range`` and ``If-None-Match`` count.
            is_head: whether the answer has no body.

        Raises:
            NotStoredError: there is no such file of a version that the token covers.
            StorageError: the file cannot be read.
        """
        folder, name, version = self._find(catalog, path)
        if name == "" or name.endswith("/"):
            inside = name.rstrip("/")
            with _without_paths("list", path):
                names = self.store.child(folder).list(inside)
            listing = json.dumps([file[len(inside) + 1 if inside else 0 :] for file in names]).encode()
            return DataAnswer(status=200, headers={"Content-Type": "application/json"}, body=listing)
        digest = _digest_of(catalog, version, name)
        with _without_paths("read", path):
            file = self.store.open(f"{folder}/{name}")
            try:
                return _answer(file, headers, digest, is_head=is_head)
            except BaseException:
                file.close()
                raise

    def _find(self, catalog: GuardedCatalog, path: str) -> tuple[str, str, DatasetVersion]:
        """The location that a path is below, the rest of the path, and the version."""
        parts = path.split("/")
        with suppress(StorageError):
            check_relative_name(path.removesuffix("/"))
            for place in range(min(len(parts) - 1, _MOST_PARTS), 0, -1):
                folder, name = "/".join(parts[:place]), "/".join(parts[place:])
                for reference in catalog.published_at(folder):
                    with suppress(NotFoundError):  # it is dropped
                        version = catalog.find(reference)
                        if is_content(name.removesuffix("/")):
                            return folder, name, version
        raise _no_file(path)


def _answer(file: StoredFile, headers: Mapping[str, str], digest: str | None, *, is_head: bool) -> DataAnswer:
    size = file.num_bytes
    facts = os.fstat(file.fileno())
    state = f"{facts.st_dev} {facts.st_ino} {size} {facts.st_ctime_ns}"
    tag = f'"{hashlib.sha256(state.encode()).hexdigest()[:32]}"'
    fields = {**_HEADERS, "ETag": tag}
    if digest is not None:
        fields["Repr-Digest"] = f"sha-256=:{base64.b64encode(bytes.fromhex(digest)).decode()}:"
    if {tag, "*"} & set(re.split(r"[ ,]+|W/", headers.get("if-none-match", ""))):
        file.close()
        return DataAnswer(status=304, headers=fields)
    start, stop, status = 0, size, 200
    match = None if is_head or headers.get("if-range", tag) != tag else _RANGE.fullmatch(headers.get("range", ""))
    if match is not None and int(match["last"] or match["first"] or 0) >= int(match["first"] or 0):
        start = max(0, size - int(match["suffix"])) if match["suffix"] else int(match["first"])
        stop = min(int(match["last"] or size) + 1, size)
        if start >= size:
            file.close()
            return DataAnswer(status=416, headers={**fields, "Content-Range": f"bytes */{size}"})
        status = 206
        fields["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    fields["Content-Length"] = str(stop - start)
    if is_head:
        file.close()
        return DataAnswer(status=status, headers=fields)
    return DataAnswer(status=status, headers=fields, body=_pieces(file, start, stop))


def _pieces(file: StoredFile, start: int, stop: int) -> Iterator[bytes]:
    with file:
        file.seek(start)
        while start < stop and (piece := file.read(min(_PIECE_BYTES, stop - start))):
            start += len(piece)
            yield piece


def _digest_of(catalog: GuardedCatalog, version: DatasetVersion, name: str) -> str | None:
    """The published sha256 of a file; None for a description.

    Raises:
        NotStoredError: it is in the folder of attachments, and no row names it.
    """
    if name.startswith(f"{ATTACHMENTS_FOLDER}/"):
        for attachment in catalog.attachments(version):
            if attachment.place == name:
                digest: str = attachment.sha256
                return digest
        raise _no_file(name)
    for split in version.splits:
        match = split.files.parse(name)
        if match is not None and match[1] < split.num_shards and split.filename(match[1]) == name:
            shard = catalog.shards.between(version, split.name, match[1], match[1] + 1)
            return str(shard[0].sha256)
    return None


def _no_file(path: str) -> NotStoredError:
    hint = "There is no such file of a version that this token covers."
    return cannot("read", path[:200], os.strerror(errno.ENOENT), number=errno.ENOENT, hint=hint, kind=NotStoredError)


@contextmanager
def _without_paths(doing: str, path: str) -> Iterator[None]:
    """Convert errors of the store, which name paths of the server, to those that name the path of the client."""
    try:
        yield
    except StorageError as error:
        if isinstance(error, NotStoredError) or error.errno in _NO_FILE:
            raise _no_file(path) from error
        raise cannot(doing, path, os.strerror(error.errno or errno.EIO), number=error.errno, hint=_ADMIN) from error
