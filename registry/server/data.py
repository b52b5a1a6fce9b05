"""Serves the files of a data directory that is a folder of this server, and accepts files of publishers.

    GET   path  ->  the catalog: a version whose location is a prefix of it  ->  is it covered?  ->  a range
    PUT   path  ->  the catalog: a reservation of the place by this publisher  ->  its bytes, hashed as they arrive
    publish     ->  size and sha256 of every file are compared with the row  ->  one transaction

The catalog decides which files exist, not a listing: only files in the folder of a published version and, for a
publisher, files in a place that it has reserved. A client never names a path or URL of the server, and ``LocalStore``
follows no link that leads out of the data directory. A publisher that dies leaves a reservation, by which
``registry gc`` finds its files.

For a data directory in a bucket, the service signs URLs for ranges and for whole files (``signed_writes``), so that
the bytes pass directly between the client and the bucket.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

from registry.api.locations import ClientDataDirectory, open_data
from registry.catalog import CatalogBackend, DataDirectory
from registry.catalog.service.calls import CALLS
from registry.catalog.service_index import DATA_PATH
from registry.errors import (
    AlreadyStoredError,
    CatalogPermissionError,
    DataDirectoryMissingError,
    NotFoundError,
    NotStoredError,
    RegistryError,
    ReservationLostError,
    ShardMismatchError,
    StorageError,
    StorageUnavailableError,
    UsageError,
)
from registry.model import (
    ATTACHMENTS_FOLDER,
    AccessToken,
    Attachment,
    DatasetVersion,
    Reference,
    Role,
    Shard,
    is_absolute,
    shards_by_filename,
    version_folder,
)
from registry.prepared import write_default_config
from registry.publishing.attachments import CLAIM_SUFFIX, home_of
from registry.publishing.markers import location_key
from registry.publishing.proof import prove_by_fingerprints
from registry.server.places import DataPlaces
from registry.server.rights import GuardedCatalog
from registry.server.signed_writes import SIGNED_SECONDS, SignedWrites
from registry.storage import LocalStore, Store
from registry.storage.faults import StoredFile, already_stored, cannot
from registry.storage.names import MARKER_FILE, is_content
from registry.storage.signed_upload import Upload
from registry.storage.store import check_relative_name

_PIECE_BYTES: Final = 2**18
_MOST_PARTS: Final = 16
"""Parts of a path: each is looked up as the end of a location."""

_MOST_HASHED: Final = 10**6
_AT_ONCE: Final = 16
"""Files that are looked at together before a version is published."""

_DIGEST: Final = re.compile(r"(?:^|,)\s*sha-256=:([A-Za-z0-9+/]{43}=):\s*(?=,|$)")
_ATTACHED: Final = re.compile(
    rf"{re.escape(ATTACHMENTS_FOLDER)}/(?P<sha256>[0-9a-f]{{64}})_[A-Za-z0-9._-]{{1,100}}(?P<claim>{CLAIM_SUFFIX})?"
)
_RANGE: Final = re.compile(r"bytes=(?:(?P<first>[0-9]{1,18})-(?P<last>[0-9]{0,18})|-(?P<suffix>[0-9]{1,18}))")
_NO_FILE: Final = frozenset({None, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
"""Errors for names that do not name a file; a link that leads out of the store has no number."""

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_INSUFFICIENT: Final = 507
_FULL: Final = "the disk of the service is almost full"
_ADMIN: Final = "Ask an admin of the service."
_HEADERS: Final = {
    "Accept-Ranges": "bytes",
    "Cache-Control": "private, no-cache",
    "Content-Disposition": "attachment",
    "Content-Type": "application/octet-stream",
    "Vary": "Authorization",
}


Receiving: TypeAlias = "Generator[None, bytes | None, DataAnswer]"
"""Takes the pieces of a body, and returns the answer. No thread has to wait for the next piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataAnswer:
    """The answer to a request about bytes; ``body`` yields at most 256 KiB at a time."""

    status: int
    headers: Mapping[str, str]
    body: Iterator[bytes] | bytes = b""


class ServedData:
    """A data directory of the server. Threads share it.

    Attributes:
        store: the data directory.
    """

    def __init__(
        self,
        store: Store,
        own: DataDirectory,
        service: str,
        *,
        signs: bool = False,
        signs_writes: bool = False,
        most_bytes: int = 2**40,
        free_bytes: int = 0,
    ) -> None:
        """Describe a data directory.

        Args:
            store: the data directory.
            own: its record in the catalog.
            service: the URL at which clients reach the service; it ends with a slash.
            signs: whether readers get signed URLs in an object store, so that they need no rights of their own there.
            signs_writes: whether publishers get signed URLs as well, including for uploads.
            most_bytes: the maximum size of a file that publishers may send.
            free_bytes: how much of the disk uploads must leave free.

        Raises:
            UsageError, MissingExtraError: see ``SignedWrites``.
            StorageError: no credentials that can sign were found.
        """
        self.store = store
        root = location_key(store) if store.local_root is None else str(store.local_root)
        self._places = DataPlaces(root=root, own=own, url=f"{service}{DATA_PATH}")
        if signs:
            # Without credentials that sign, each reader would get an error.
            store.sign("probe", seconds=SIGNED_SECONDS)
        self._signs = signs
        self._signed = SignedWrites(store) if signs_writes else None
        self._most_bytes = most_bytes
        self._free_bytes = free_bytes
        self._arriving = 0
        """Bytes of files that arrive now."""
        self._lock = threading.Lock()
        self._hashed: dict[str, tuple[str, str]] = {}
        """The stamp and the sha256 of files by their name: what was hashed while it arrived is not read again."""

    def places(self, who: AccessToken) -> DataPlaces | None:
        """Its names, if the holder of a token reads and writes through the service; None if it uses its own rights."""
        writes = self._signed is not None
        signs = {Role.READER: self._signs, Role.PUBLISHER: writes, Role.MAINTAINER: writes}.get(who.role, False)
        return self._places if signs or self.store.local_root is not None else None

    def read(self, catalog: GuardedCatalog, path: str, headers: Mapping[str, str], *, is_head: bool) -> DataAnswer:
        """Answer a GET or a HEAD of a file; of a folder, whose path ends with a slash, its files as JSON.

        Args:
            catalog: the catalog as the client may see it.
            path: below the data directory.
            headers: the headers of the request; ``Range``, ``If-Range`` and ``If-None-Match`` are used.
            is_head: whether the answer has no body.

        Raises:
            NotStoredError: no version that the token covers has such a file.
            StorageError: the file cannot be read.
        """
        folder, name, version = self._find(catalog, path, is_head=is_head)
        if name == "" or name.endswith("/"):
            inside = name.rstrip("/")
            with _without_paths("list", path):
                names = self.store.child(folder).list(inside)
            listing = json.dumps([file[len(inside) + 1 if inside else 0 :] for file in names]).encode()
            return DataAnswer(status=200, headers={"Content-Type": "application/json"}, body=listing)
        digest = _digest_of(catalog, version, name)
        with _without_paths("read", path):
            if not is_head and (url := self.store.sign(f"{folder}/{name}", seconds=SIGNED_SECONDS)) is not None:
                return DataAnswer(status=307, headers={"Location": url, "Cache-Control": "no-store"})
            file = self.store.open(f"{folder}/{name}")
            try:
                return _answer(file, headers, digest, is_head=is_head)
            except BaseException:
                file.close()
                raise

    def _find(
        self, catalog: GuardedCatalog, path: str, *, is_head: bool = False
    ) -> tuple[str, str, DatasetVersion | None]:
        """The location that a path is below, the rest of the path, and the version; None if it has no row yet.

        Only admins find those of dropped versions, and only their sizes: a version is restored if its files are there.
        """
        with suppress(StorageError):
            check_relative_name(path.removesuffix("/"))
            for folder in _folders(path):
                name = path[len(folder) + 1 :]
                for reference in chain(catalog.published_at(folder), _copied(catalog, folder)):
                    with suppress(NotFoundError):  # it is dropped
                        number = reference.exact
                        version = None
                        if is_head and catalog.who.role is Role.ADMIN and number is not None:
                            version = catalog.published(reference.name, reference.config, number)
                        version = version or catalog.find(reference)
                        if _is_readable(catalog, name.removesuffix("/")):
                            return folder, name, version
            with suppress(CatalogPermissionError, ReservationLostError):
                return *self._reserved(catalog, path), None
        raise _no_file(path)

    def _reserved(self, catalog: GuardedCatalog, path: str) -> tuple[str, str]:
        """The place that a path is below, which the publisher has reserved, and the rest of the path.

        Raises:
            CatalogPermissionError: the token has the role reader.
            ReservationLostError: the publisher has not reserved the place, or the path does not name a file.
        """
        catalog.require_role(CALLS["reservations.require"])
        for reservation in catalog.reservations.list():  # a token sees those of the datasets that it covers
            reference, folder = (
                Reference.parse(reservation.reference),
                reservation.location[len(self._places.url) + 1 :],
            )
            if reference.exact is None or folder != version_folder(reference.name, reference.config, reference.exact):
                continue
            is_holder = any(holder.actor == catalog.who.name for holder in reservation.holders)
            name = path[len(folder) + 1 :]
            if is_holder and f"{path}/".startswith(f"{folder}/") and _is_readable(catalog, name.removesuffix("/")):
                return folder, name
        raise _refusal(catalog, path)

    def _beside(self, catalog: GuardedCatalog, path: str) -> tuple[str, str, DatasetVersion]:
        """As ``_find``, for a publisher's files beside a version that is published: attachments and their claims.

        Raises:
            ReservationLostError: the path is that of another file.
        """
        with suppress(NotStoredError):
            folder, name, version = self._find(catalog, path)
            if version is not None and (name == MARKER_FILE or _ATTACHED.fullmatch(name)):
                return folder, name, version
        raise _refusal(catalog, path)

    def write(self, catalog: GuardedCatalog, path: str, headers: Mapping[str, str]) -> Receiving:
        """Answer a PUT: a whole file, with its ``Content-Length`` and its ``Repr-Digest`` or ``Content-Digest``.

        The pieces of the body are sent to the generator as they arrive, and None at its end; it returns the answer.

        Only a name that is free gets it, except for notes of publishers and for attachments, whose names have their
        digests. The same file again is not an error: the first answer may have been lost.

        Args:
            catalog: the catalog as the client may change it.
            path: below the data directory.
            headers: the headers of the request.

        Raises:
            CatalogPermissionError: the token has the role reader.
            ReservationLostError: the publisher has not reserved the place, or another one has published it meanwhile.
            UsageError: a header is missing or invalid, or the file is too large.
            AlreadyStoredError: the name has another file.
            StorageError: the received bytes differ, the file cannot be written, or the disk is almost full.
        """
        sha256, num_bytes = _promised(headers, self._most_bytes)
        name, is_reserved = self._writable(catalog, path, sha256)
        replaces, is_new = (name == MARKER_FILE or not is_reserved) and "if-none-match" not in headers, False
        with self._room_for(num_bytes, path), _without_paths("write", path):
            if not replaces and self.store.exists(path):
                yield from _receive(sha256, num_bytes, lambda _: None)
            else:
                with suppress(AlreadyStoredError):  # another publisher was faster
                    with self.store.create(path, overwrite=replaces) as file:
                        yield from _receive(sha256, num_bytes, file.write)
                        if is_reserved:
                            self._reserved(catalog, path)  # a person may have given the place to another publisher
                    is_new = True
            if is_new:
                self._keep(path, self._stamp(path), sha256)
            elif self._sha256(path) != sha256:
                raise already_stored(path)
            with self.store.open(path) as stored:
                return DataAnswer(status=201 if is_new else 200, headers={"ETag": _tag(stored)})

    @contextmanager
    def _room_for(self, num_bytes: int, path: str) -> Iterator[None]:
        """Keep room for a file that arrives, if the data directory is a folder.

        Raises:
            StorageError: less than ``free_bytes`` would be left on its disk, beside the files that arrive now (507).
        """
        if self.store.local_root is None:
            yield
            return
        root = Path(self.store.local_root)
        folder = next(each for each in (root, *root.parents) if each.exists())
        with self._lock:
            if shutil.disk_usage(folder).free - self._arriving - num_bytes < self._free_bytes:
                raise cannot("write", path, _FULL, number=errno.ENOSPC, hint=_ADMIN, http_status=_INSUFFICIENT)
            self._arriving += num_bytes
        try:
            yield
        finally:
            with self._lock:
                self._arriving -= num_bytes

    def offer(
        self,
        catalog: GuardedCatalog,
        path: str,
        num_bytes: str,
        sha256: str,
        md5: str = "",
        upload_id: str = "",
        part: str = "",
    ) -> DataAnswer:
        """Answer a POST, which requests a URL for sending a file directly to the bucket.

        The answer has its ``url``, or None if the file is to be sent by a PUT; its ``etag`` if it is there already; and
        the kind of the ``store``. ``SignedWrites.offer`` describes uploads in parts, and which kinds need an MD5.

        Args:
            catalog: the catalog as the client may change it.
            path: below the data directory.
            num_bytes: the size of the file.
            sha256: that of its bytes.
            md5: that of its bytes, or "".
            upload_id: the id of an upload in parts, or "".
            part: the number of a part of that upload, whose size and sha256 are given; "" ends the upload.

        Raises:
            CatalogPermissionError, ReservationLostError, AlreadyStoredError, StorageError: see ``write``.
            UsageError: an argument is invalid, or the file is too large.
        """
        takes_parts = self._signed is not None and self._signed.kind == "s3"
        if not (
            re.fullmatch("[0-9]{1,18}", num_bytes)
            and re.fullmatch("[0-9a-f]{64}", sha256)
            and re.fullmatch("([0-9a-f]{32})?", md5)
            and re.fullmatch("[!-~]{0,1024}" if takes_parts else "", upload_id)
            and re.fullmatch("([1-9][0-9]{0,4})?", part)
            and (upload_id or not part)  # a URL of a part has no condition: it must not name an object
        ):
            message = "num_bytes and part must be numbers, sha256 64 digits, md5 32, and parts need an upload to S3"
            raise UsageError(message, details={"path": path[:200]})
        self._writable(catalog, path, None if part else sha256)
        if self._signed is not None:
            self._signed.require_safe()
        answer: dict[str, Any] = {"url": None, "etag": None}
        upload = Upload(num_bytes=int(num_bytes), sha256=sha256, md5=md5)
        with _without_paths("write", path):
            if self._signed is not None:
                answer["store"] = self._signed.kind
                try:
                    if upload_id:  # its end may be asked for again, as the answer was lost: the commit reads the file
                        facts = self.store.size(path), sha256
                        self._signed.abandon(path, upload_id)
                    else:
                        facts = self._facts(path, upload.num_bytes)
                    if part or facts != (upload.num_bytes, sha256):
                        raise already_stored(path)
                except NotStoredError:
                    answer |= self._signed.offer(path, upload, upload_id, int(part or 0))
                if answer["url"] is None and "upload" not in answer:
                    with suppress(NotStoredError):
                        answer["etag"] = self.store.entity_tag(path)
        headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
        return DataAnswer(status=200, headers=headers, body=json.dumps(answer).encode())

    def _writable(self, catalog: GuardedCatalog, path: str, sha256: str | None) -> tuple[str, bool]:
        """The name of a file in its folder, and whether its publisher has reserved that; else it is an attachment.

        ``sha256`` is None for a part of a file, which has another one than the name of an attachment says.
        """
        with _without_paths("write", path):
            check_relative_name(path)
        try:
            return self._reserved(catalog, path)[1], True
        except ReservationLostError:
            name = self._beside(catalog, path)[1]
            match = _ATTACHED.fullmatch(name)
            if match is None or not (match["claim"] or sha256 in (None, match["sha256"])):
                raise
            return name, False

    def remove(self, catalog: GuardedCatalog, path: str) -> DataAnswer:
        """Answer a DELETE, by which a publisher removes a file that no row names.

        Raises:
            CatalogPermissionError: the token has the role reader.
            ReservationLostError: the publisher has not reserved the place, or a row names the file.
        """
        with _without_paths("remove", path):
            check_relative_name(path)
        catalog.require_role(CALLS["reservations.require"])
        folder = next((place for place in _folders(path) if catalog.published_at(place)), None)
        if folder is None:
            self._reserved(catalog, path)
        else:
            _, name, version = self._beside(catalog, path)
            if any(attachment.place == name for attachment in catalog.attachments(version)):
                raise _refusal(catalog, path)
        if self.store.exists(path) and not self.store.is_regular(path):
            raise _refusal(catalog, path)
        with _without_paths("remove", path):
            self.store.remove(path)
        if isinstance(self.store, LocalStore):  # folders that are empty now
            self.store.remove_empty([self.store.locate(parent) for parent in _folders(path)])
        return DataAnswer(status=200, headers={})

    def require_uploaded(
        self, catalog: GuardedCatalog, version: DatasetVersion, shards: Mapping[str, Sequence[Shard]], details: Any
    ) -> Any:
        """Compare the files of a version with the row that is to be written, and its number with its neighbours.

        The files are compared by size and sha256, and the number by fingerprints, except for imports and copies, which
        keep the numbers that others gave them. Returns the details with the neighbours that were compared: the
        transaction requires that they are still these.

        Raises:
            ShardMismatchError: a file is missing, or has another size or sha256.
            StorageError: a file cannot be read.
            VersionTooSmallError: the changes since a neighbour need a larger step.
        """
        is_published = catalog.published_digest(version.name, version.config, version.version) is not None
        if is_published or is_absolute(version.location):  # only an admin names places elsewhere
            return details
        promised = {split.name: shards.get(split.name, ()) for split in version.splits}  # the catalog compares them
        files = {
            name: (shard.num_bytes, shard.sha256)
            for name, shard in shards_by_filename(version.splits, promised).items()
        }
        files |= _facts_of(() if details is None else details.attachments)
        self._require_files(version.location, files, f"{version.reference} was not published")
        if details is None or details.origin is not None or getattr(details.producer, "action", "") == "import":
            return details
        proof = prove_by_fingerprints(catalog, self.store, version, details.fingerprints)
        if proof is None:
            return details
        if proof.refused is not None:
            raise proof.refusal()
        return replace(details, proved_between=proof.neighbours)

    def require_attached(
        self, catalog: GuardedCatalog, version: DatasetVersion, attachments: Sequence[Attachment]
    ) -> None:
        """Compare the files of attachments with the rows that are to be written; raises as ``require_uploaded``."""
        published = catalog.published(version.name, version.config, version.version)
        if published is not None:
            files = _facts_of(attachments)
            self._require_files(home_of(published), files, f"nothing was attached to {published.reference}")

    def _require_files(self, folder: str, files: Mapping[str, tuple[int, str]], refusal: str) -> None:
        if self._signed is not None:
            self._signed.require_safe()

        read = set[str]()

        def find(name: str) -> tuple[int, str] | None:
            path, (num_bytes, _) = f"{folder}/{name}", files[name]
            with _without_paths("read", path), suppress(NotStoredError):
                checked = self._checked(path)
                if checked is None:
                    read.add(name)
                return checked or self._measure(path, num_bytes)
            return None

        names = list(files)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in range(2):
                for name, present in zip(names, pool.map(find, names), strict=True):
                    if present != files[name]:
                        raise ShardMismatchError(
                            f"{refusal}: {name}: {_difference(files[name], present)}",
                            hint="Run the same command again.",
                            details={"file": name},
                        )
                names = sorted(read)  # that takes long, and they may have been replaced meanwhile: compare their stamps

    def _facts(self, path: str, expected_bytes: int) -> tuple[int, str]:
        """The size and the sha256 of a file: from a bucket that has checked it, else the bytes are read."""
        return self._checked(path) or self._measure(path, expected_bytes)

    def _checked(self, path: str) -> tuple[int, str] | None:
        return None if self._signed is None else self._signed.checked(path)

    def _measure(self, path: str, expected_bytes: int) -> tuple[int, str]:
        """The size and the sha256 of a file, which is not read if the size differs; then there is no sha256."""
        num_bytes = self.store.size(path)
        return num_bytes, self._sha256(path) if num_bytes == expected_bytes else ""

    def note_default_config(self, catalog: CatalogBackend, name: str) -> None:
        """Write the file from which TFDS reads the default config of a dataset, if this is a folder of the server.

        Raises:
            StorageError: the file cannot be written.
            RegistryError: the catalog fails.
        """
        if self.store.local_root is None:  # publishers use their own rights
            return
        config = next((entry.config for entry in catalog.configs.list(name) if entry.is_default), None)
        standing = None if config is None else catalog.standing(name, config)
        for folder in () if standing is None else dict.fromkeys((standing.name, *standing.names)):
            if (has_config := self.store.exists(f"{folder}/{config}")) or self.store.exists(folder):
                write_default_config(self.store, folder, config if has_config else None)

    def _sha256(self, path: str) -> str:
        stamp = self._stamp(path)
        known = self._hashed.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        sha256 = self.store.sha256(path)
        if self._stamp(path) == stamp:  # else it was replaced meanwhile
            self._keep(path, stamp, sha256)
        return sha256

    def _stamp(self, path: str) -> str:
        return (self._signed or self.store).stamp(path)

    def _keep(self, path: str, stamp: str, sha256: str) -> None:
        if len(self._hashed) >= _MOST_HASHED:
            self._hashed.clear()
        self._hashed[path] = stamp, sha256


def open_served_data(catalog: CatalogBackend, data_dir: str | None, service: str, **settings: Any) -> ServedData | None:
    """The data directory of a catalog, which ``data_dir`` or the catalog names; None if neither does.

    Args:
        catalog: the catalog.
        data_dir: its path or URL; None is the one that the catalog records.
        service: the URL at which clients reach the service; it ends with a slash.
        settings: those of ``ServedData``.

    Raises:
        OtherDataDirectoryError: the catalog records another one.
        UsageError, StorageError: ``data_dir`` is not usable.
    """
    directory = ClientDataDirectory(catalog, data_dir)
    try:
        own = directory.require()
    except DataDirectoryMissingError:
        return None
    return None if own is None else ServedData(open_data(directory.path), own, service, **settings)


def _answer(file: StoredFile, headers: Mapping[str, str], digest: str | None, *, is_head: bool) -> DataAnswer:
    size, tag = file.num_bytes, _tag(file)
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


def _tag(file: StoredFile) -> str:
    """A strong ETag: it changes whenever the file is rewritten, so that it also proves that a file is as it was."""
    if file.entity_tag is not None:
        return file.entity_tag
    facts = os.fstat(file.fileno())
    state = f"{facts.st_dev} {facts.st_ino} {facts.st_size} {facts.st_ctime_ns}"
    return f'"{hashlib.sha256(state.encode()).hexdigest()[:32]}"'


def _pieces(file: StoredFile, start: int, stop: int) -> Iterator[bytes]:
    with file:
        file.seek(start)
        while start < stop and (piece := file.read(min(_PIECE_BYTES, stop - start))):
            start += len(piece)
            yield piece


def _digest_of(catalog: GuardedCatalog, version: DatasetVersion | None, name: str) -> str | None:
    """The published sha256 of a file; None for a description.

    Raises:
        NotStoredError: it is in the folder of attachments, and no row names it.
    """
    if version is None:
        return None
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


def _facts_of(attachments: Sequence[Attachment]) -> dict[str, tuple[int, str]]:
    """The size and the sha256 of each attachment, by its name in the folder of the version."""
    return {attachment.place: (attachment.num_bytes, attachment.sha256) for attachment in attachments}


def _difference(expected: tuple[int, str], present: tuple[int, str] | None) -> str:
    if present is None:
        return "no such file"
    if present[0] != expected[0]:
        return f"size mismatch: expected {expected[0]} bytes, found {present[0]}"
    return f"sha256 mismatch: expected {expected[1]}, found {present[1]}"


def _no_file(path: str) -> NotStoredError:
    hint = "No version that this token covers has such a file."
    return cannot("read", path[:200], os.strerror(errno.ENOENT), number=errno.ENOENT, hint=hint, kind=NotStoredError)


@contextmanager
def _without_paths(doing: str, path: str) -> Iterator[None]:
    """Convert errors of the store, which name paths of the server, to those that name the path of the client."""
    try:
        yield
    except StorageError as error:
        if isinstance(error, StorageUnavailableError):
            raise
        if isinstance(error, AlreadyStoredError):
            raise already_stored(path) from error
        if isinstance(error, NotStoredError) or error.errno in _NO_FILE:
            raise _no_file(path) from error
        full: dict[str, Any] = {"http_status": _INSUFFICIENT} if error.errno in _NO_ROOM else {}
        reason = os.strerror(error.errno or errno.EIO)
        raise cannot(doing, path, reason, number=error.errno, hint=_ADMIN, **full) from error


def _folders(path: str) -> Iterator[str]:
    """The folders around a path, the innermost first."""
    parts = path.split("/")
    for place in range(min(len(parts) - 1, _MOST_PARTS), 0, -1):
        yield "/".join(parts[:place])


def _copied(catalog: GuardedCatalog, folder: str) -> Iterator[Reference]:
    """The version of which a folder may have a copy: its own files are elsewhere, on the machine that imported them.

    No file outside of the data directory is served, whatever a row names. ``open_version`` reads such a copy, too.
    """
    dataset, _, number = folder.rpartition("/")
    with suppress(RegistryError):  # the folder is not that of a version
        reference = Reference.parse(f"{dataset}:{number}")
        version = catalog.find(reference)
        if folder == version_folder(version.name, version.config, version.version) and version.location.startswith("/"):
            yield reference


def _is_readable(catalog: GuardedCatalog, name: str) -> bool:
    """Whether a name in the folder of a version is that of a file; publishers also have notes there."""
    return is_content(name) or (name == MARKER_FILE and catalog.who.role.includes(Role.PUBLISHER))


def _promised(headers: Mapping[str, str], most_bytes: int) -> tuple[str, int]:
    """The sha256 and the size of a file that a request sends."""
    match = _DIGEST.search(headers.get("repr-digest", "") or headers.get("content-digest", ""))
    length = headers.get("content-length", "")
    if match is None or not re.fullmatch("[0-9]{1,18}", length):
        raise UsageError(
            "a file needs the headers Content-Length and Repr-Digest: sha-256=:...:",
            hint="RFC 9530 describes Repr-Digest.",
        )
    if int(length) > most_bytes:
        raise UsageError(f"the service accepts files of at most {most_bytes:,} bytes, not {int(length):,}", hint=_ADMIN)
    return base64.b64decode(match[1]).hex(), int(length)


def _receive(sha256: str, num_bytes: int, take: Callable[[bytes], object]) -> Generator[None, bytes | None, None]:
    """Take the bytes of a file that are sent to the generator.

    Raises:
        UsageError: they differ from what the headers announced.
    """
    digest, received = hashlib.sha256(), 0
    while (piece := (yield)) is not None:
        received += len(piece)
        if received > num_bytes:
            break
        digest.update(piece)
        take(piece)
    if received != num_bytes:
        raise UsageError(f"expected {num_bytes} bytes, received {received}")
    if digest.hexdigest() != sha256:
        raise UsageError(f"sha256 mismatch: expected {sha256}, received {digest.hexdigest()}")


def _refusal(catalog: GuardedCatalog, path: str) -> ReservationLostError:
    return ReservationLostError(
        f"{catalog.who.name} may not change {path[:200]}: it has not reserved the place, or a version has the file",
        hint="Publish with: registry publish, registry add or registry build",
        details={"path": path[:200]},
    )
