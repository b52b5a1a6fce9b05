"""``ServiceStore``: the files of a data directory that a service has or signs URLs for, with the token of the client.

    open(name)  ->  HEAD: size and ETag  ->  GET of ranges, each on the condition of that ETag

The token goes to the service and nowhere else. A service may answer with a URL in a bucket that it signed: it is asked
without the token. Other redirects are not followed. Files for a bucket are sent to such URLs, which need encryption:

    POST name  ->  the service signs a URL for these bytes  ->  PUT  ->  412: another POST says whose file is there

The token is never pickled: another process asks
``TokenOf`` again, for the URL of the service.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias, cast
from urllib.parse import quote, urlsplit

from registry.catalog.service.requests import Body, Receive, ServiceServer
from registry.catalog.service_index import DATA_PATH
from registry.catalog.web_urls import is_loopback
from registry.errors import (
    AlreadyStoredError,
    CatalogError,
    CatalogUnavailableError,
    NotFoundError,
    NotStoredError,
    StorageError,
    StorageUnavailableError,
    UsageError,
)
from registry.masking import mask
from registry.storage.faults import StoredFile, already_stored, cannot, replaced
from registry.storage.location import open_below_with
from registry.storage.network import TransientFault, begin
from registry.storage.remote import RemoteFile, RemoteStore
from registry.storage.signed_upload import CONDITIONS, MD5_STORES, Upload, part_headers, upload_headers
from registry.storage.store import Names, Store, check_folder_name, check_relative_name

TokenOf: TypeAlias = Callable[[str], str | None]
"""Gives the access token for the URL of a service, or None. It can be pickled."""


class _Offer(NamedTuple):
    """A URL in a bucket to which a file is sent, the ETag of a file that is there already, and an upload in parts."""

    url: str | None
    tag: str | None
    kind: str
    upload: str | None
    part_bytes: int


_PIECE_BYTES: Final = 2**18
_SPOOL_BYTES: Final = 2**23
_MOST_NAMES: Final = 2**28
_LEAST_BYTES_PER_SECOND: Final = 1024
_OK: Final = 200
_PARTIAL: Final = 206
_ELSEWHERE: Final = 307
_MISSING: Final = 404
_EXPIRED: Final = frozenset({400, 403})
_PASSING: Final = frozenset({429, 500, 502, 503, 504})
_MOST_SIGNED: Final = 4
_SMALL_BYTES: Final = 2**20
"""Smaller files are sent through the service, in one request."""

_MOST_OFFER: Final = 2**16
_STORED: Final = frozenset({200, 201})
_RENEWED: Final = frozenset({400, 403, 412})
"""The URL has expired, other bytes arrived, or the name is taken: the service knows which."""

_CONFLICT: Final = 409
"""Another upload to this name is under way; in Azure, the name is taken."""

_ADMIN: Final = "Ask an admin of the service."
_REFUSED: Final = frozenset({401, 403})
_WRITTEN_BY_SERVICE: Final = "/.config/metadata.json"
"""Where TFDS finds the default config (``prepared.folder``)."""

_TAKERS: Final[set[str]] = set()
"""URLs of services that take files themselves."""

_SERVERS: Final[dict[tuple[str, str | None], ServiceServer]] = {}


def use_service_data(service: str, token_of: TokenOf) -> None:
    """Let this process read the data of the service at this URL, without a password, with its token."""
    open_below_with(f"{service}{DATA_PATH}", partial(open_service_data, service, token_of))


def open_service_data(service: str, token_of: TokenOf, url: str) -> ServiceStore:
    """The store at a URL that is that of the data of the service, or below it."""
    return ServiceStore(service, token_of, url.removeprefix(f"{service}{DATA_PATH}").removeprefix("/"))


class ServiceStore(RemoteStore):
    """The files below one folder of the data directory of a service; it takes those of a place that is reserved."""

    def __init__(self, service: str, token_of: TokenOf, root: str = "") -> None:
        """``service`` is the URL of the service, and ``root`` the folder below its data directory."""
        self._service = service
        self._token_of = token_of
        self._root = check_folder_name(root)
        self._signed: dict[str, str] = {}
        """URLs in a bucket that the service signed for a few minutes: they need no token, and get none."""
        self.url = f"{service}{DATA_PATH}" + (f"/{root}" if root else "")

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._service, self._token_of, self._root)

    def locate(self, name: str) -> str:
        """The URL of ``name``."""
        return f"{self.url}/{name}" if name else self.url

    def child(self, name: str) -> ServiceStore:
        """The store rooted at the folder ``name``."""
        return ServiceStore(self._service, self._token_of, self._name(check_relative_name(name)))

    def open(self, name: str) -> StoredFile:
        """Open a file; each request is on the condition that it was not replaced since."""
        num_bytes, tag = self._facts(name)
        return self.open_known(name, num_bytes=num_bytes, entity_tag=tag)

    def open_known(self, name: str, *, num_bytes: int, entity_tag: str) -> StoredFile:
        """Open a file whose size and ETag are known, without a request."""
        read = partial(self._read_range, check_relative_name(name), entity_tag)
        return RemoteFile(partial(_begin, read), path=self.locate(name), num_bytes=num_bytes, entity_tag=entity_tag)

    def size(self, name: str) -> int:
        """Size of a file, in bytes."""
        return self._facts(name)[0]

    def stamp(self, name: str) -> str:
        """The size and the ETag of a file."""
        return " ".join(map(str, self._facts(name)))

    def entity_tag(self, name: str) -> str:
        """The ETag of the bytes that are stored now."""
        return self._facts(name)[1]

    def exists(self, name: str) -> bool:
        """Whether ``name`` is a file, or a folder with files, of a version that the token covers."""
        try:
            self._facts(name)
        except NotStoredError:
            return bool(self._all_names(name))
        return True

    @contextmanager
    def _create(self, name: str, *, overwrite: bool) -> Iterator[BinaryIO]:
        """Send the file when the block ends. The service itself writes which config is the default one."""
        with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as spool:
            file = cast("BinaryIO", spool)
            yield file
            if name.endswith(_WRITTEN_BY_SERVICE):
                return
            num_bytes = file.tell()
            file.seek(0)
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # it has readinto
            self._put(name, file, num_bytes, sha256, overwrite=overwrite)

    def create_from(
        self,
        name: str,
        source: Store,
        source_name: str,
        *,
        sha256: str | None = None,
        writer: str = "",
        require_reserved: Callable[[], None] | None = None,
    ) -> str | None:
        """Send a file in one request. The service hashes it while it arrives, and knows who reserved the place."""
        del writer, require_reserved
        with source.open(source_name) as file:
            return self._put(name, file, file.num_bytes, sha256 or file.sha256(), overwrite=False)

    def _put(self, name: str, file: Any, num_bytes: int, sha256: str, *, overwrite: bool) -> str:
        if not overwrite and num_bytes > _SMALL_BYTES and self._service not in _TAKERS:
            tag = self._put_past(name, file, num_bytes, sha256)
            if tag is not None:
                return tag
            _TAKERS.add(self._service)
        digest = base64.b64encode(bytes.fromhex(sha256)).decode()
        headers = {"Content-Length": str(num_bytes), "Repr-Digest": f"sha-256=:{digest}:"}
        if not overwrite:
            headers["If-None-Match"] = "*"

        def receive(answer: Any, _end: float) -> str:
            return str(answer.headers["ETag"])

        body = partial(_rewound, file)
        result: str = self._ask("write", "PUT", check_relative_name(name), receive, headers=headers, body=body)
        return result

    def _put_past(self, name: str, file: Any, num_bytes: int, sha256: str) -> str | None:
        """Send a file to a URL in a bucket that the service signs; None if the service takes files itself.

        The URL is all that the service chooses: headers are made here, and the condition is that nothing is replaced.
        """
        upload = Upload(num_bytes=num_bytes, sha256=sha256)
        for _ in range(_MOST_SIGNED):
            offer = self._offer(name, upload)
            if offer.upload is not None:
                return self._put_parts(name, file, upload, offer)
            if (offer.url, offer.tag) == (None, None) and offer.kind in MD5_STORES and not upload.md5:
                md5 = hashlib.file_digest(_rewound(file), partial(hashlib.md5, usedforsecurity=False)).hexdigest()
                upload = replace(upload, md5=md5)
                continue
            if offer.url is None or offer.tag is not None:
                return offer.tag
            headers = upload_headers(offer.kind, upload)
            sent = self._put_to(name, offer.url, offer.kind, headers, partial(_rewound, file))
            if sent is not None:
                return sent
        raise self._useless(name)

    def _put_parts(self, name: str, file: Any, upload: Upload, offer: _Offer) -> str | None:
        """Send a file in parts, each to a URL of its own; the ETag of the file that the service makes of them."""
        for number, start in enumerate(range(0, upload.num_bytes, offer.part_bytes), 1):
            file.seek(start)
            content = file.read(offer.part_bytes)
            part = Upload(num_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
            for _ in range(_MOST_SIGNED):
                url = self._offer(name, part, f"&upload={quote(str(offer.upload), safe='')}&part={number}").url
                if url and self._put_to(name, url, "s3", part_headers(part), partial(bytes, content)) is not None:
                    break
            else:
                raise self._useless(name)
        return self._offer(name, upload, f"&upload={quote(str(offer.upload), safe='')}").tag

    def _offer(self, name: str, upload: Upload, more: str = "") -> _Offer:
        """What the service offers to those who want to send these bytes."""

        def receive(answer: Any, end: float) -> _Offer:
            values = json.loads(_take(answer, end, _MOST_OFFER))
            url, tag = values["url"], values["etag"]  # TypeError unless it is an object
            kind, size = values.get("store", "s3"), values.get("part_bytes", 0)
            offer = _Offer(url, tag, kind, values.get("upload"), size)
            is_text = all(value is None or isinstance(value, str) for value in (offer.url, offer.tag, offer.upload))
            fits = offer.upload is None or (isinstance(size, int) and 2**20 <= size < 2**30)
            if not (is_text and fits and kind in CONDITIONS):
                raise ValueError("an offer has texts, parts that fit into memory, and a store that is known")
            return offer

        query = f"?num_bytes={upload.num_bytes}&sha256={upload.sha256}" + (f"&md5={upload.md5}" if upload.md5 else "")
        return cast("_Offer", self._ask("write", "POST", check_relative_name(name), receive, query=query + more))

    def _put_to(self, name: str, url: str, kind: str, headers: dict[str, str], body: Body) -> str | None:
        """Send bytes to a URL that the service has signed; the ETag, or None if the service has to be asked again."""
        location = self.locate(name)

        def receive(answer: Any, _end: float) -> str | None:
            if answer.status in _STORED:
                return str(answer.headers["ETag"])
            if answer.status in _PASSING or (answer.status == _CONFLICT and kind != "az"):
                raise TransientFault(f"the bucket answered {answer.status}")
            if answer.status in (*_RENEWED, _CONFLICT):
                return None
            raise cannot("write", location, f"the bucket answered {answer.status}", number=errno.EIO, hint=_ADMIN)

        with _store_errors("write", location):
            server, path = self._bucket_of(url, location)
            sent = server.transfer("PUT", path, receive, headers=headers, body=body, any_status=True)
            return cast("str | None", sent)

    def _useless(self, name: str) -> StorageError:
        return cannot("write", self.locate(name), "the URLs that the service signed do not work", hint=_ADMIN)

    def _bucket_of(self, url: str, location: str) -> tuple[ServiceServer, str]:
        """The server of a URL that the service signed, without a token, and the rest of the URL.

        Raises:
            StorageError: bytes would be sent without encryption, or to this machine by a service that is elsewhere.
        """
        parts = urlsplit(url)
        is_near = is_loopback(url) and is_loopback(self._service)
        if (
            not parts.hostname
            or "@" in parts.netloc
            or not (is_near if parts.scheme == "http" else parts.scheme == "https")
        ):
            where = mask(f"{parts.scheme}://{parts.netloc}")[:200]
            hint = "Buckets need https. " + _ADMIN
            raise cannot("write", location, f"no file is sent to {where}, which the service names", hint=hint)
        base = f"{parts.scheme}://{parts.netloc}/"
        return _server_at(base, None), url[len(base) :]

    def remove_tree(self, name: str) -> None:
        """Remove a file that no row names."""
        self._ask("remove", "DELETE", check_relative_name(name), _take_nothing)

    def copy_to(self, name: str, final: str) -> None:
        """Raise StorageError: files are not moved aside here."""
        location, hint = self.locate(check_relative_name(final)), "Publish again on the machine of the service."
        raise cannot("write", location, f"a service does not replace {name}", number=errno.EROFS, hint=hint)

    def _all_names(self, folder: str) -> Names:
        """The files of a version, or of a folder in it; none for any other folder."""
        inside = f"{folder}/" if folder else ""

        def receive(answer: Any, end: float) -> list[str]:
            return sorted(inside + name for name in json.loads(_take(answer, end, _MOST_NAMES)))

        try:
            return list(self._ask("list", "GET", folder, receive, folder=True))
        except NotStoredError:
            return []

    def _facts(self, name: str) -> tuple[int, str]:
        location = self.locate(check_relative_name(name))

        def receive(answer: Any, _end: float) -> tuple[int, str]:
            if answer.status == _OK:
                return int(answer.headers["Content-Length"]), str(answer.headers["ETag"])
            if answer.status == _MISSING:
                raise _missing("read", location)
            if answer.status in _REFUSED:  # a GET says why
                self._ask("read", "GET", name, _take_nothing, headers={"Range": "bytes=0-0"})
            raise TransientFault(f"the server answered {answer.status}")

        return tuple(self._ask("read", "HEAD", name, receive, any_status=True))

    def _read_range(self, name: str, tag: str, start: int, stop: int) -> bytes:
        headers = {"Range": f"bytes={start}-{stop - 1}", "If-Range": tag}

        def receive(answer: Any, end: float) -> bytes | None:
            if answer.status == _ELSEWHERE:
                self._signed[name] = str(answer.headers["Location"])
                return None
            if answer.status in _EXPIRED and name in self._signed:
                self._signed.pop(name, None)
                return None
            if answer.status in _PASSING:
                raise TransientFault(f"the server answered {answer.status}")
            if answer.status == _MISSING:  # a bucket says so of a file that was removed since it was opened
                raise _missing("read", self.locate(name))
            if answer.status != _PARTIAL or answer.headers.get("ETag") != tag:
                answer.close()  # it may have the whole file
                raise replaced(self.locate(name))
            content = _take(answer, end, stop - start)
            if len(content) < stop - start:
                raise TransientFault("the server ended the response too early")
            return content

        for _ in range(_MOST_SIGNED):
            url = self._signed.get(name)
            result: bytes | None
            if url is None:
                result = self._ask("read", "GET", name, receive, headers=headers)
            else:
                host, _, path = url.partition("://")[2].partition("/")
                bucket = f"{url.partition('://')[0]}://{host}/"
                with _store_errors("read", self.locate(name)):
                    result = _server_at(bucket, None).transfer("GET", path, receive, headers=headers, any_status=True)
            if result is not None:
                return result
        raise cannot("read", self.locate(name), "the URLs that the service signed do not work", hint=_ADMIN)

    def _ask(
        self,
        doing: str,
        method: str,
        name: str,
        receive: Receive,
        *,
        headers: dict[str, str] | None = None,
        body: Body | None = None,
        folder: bool = False,
        query: str = "",
        any_status: bool = False,
    ) -> Any:
        path = f"{DATA_PATH}/{quote(self._name(name))}{'/' if folder else ''}{query}"
        with _store_errors(doing, self.locate(name)):
            return self._server.transfer(method, path, receive, headers=headers or {}, body=body, any_status=any_status)

    @cached_property
    def _server(self) -> ServiceServer:
        return _server_at(self._service, self._token_of(self._service))

    def _name(self, name: str) -> str:
        return "/".join(part for part in (self._root, name) if part)


def _reopen(service: str, token_of: TokenOf, root: str) -> ServiceStore:
    use_service_data(service, token_of)
    return ServiceStore(service, token_of, root)


def _server_at(url: str, token: str | None) -> ServiceServer:
    return _SERVERS.get((url, token)) or _SERVERS.setdefault((url, token), ServiceServer(url, token))


def _rewound(file: Any) -> Any:
    file.seek(0)
    return file


def _begin(read: Callable[[int, int], bytes], start: int, stop: int) -> Future[bytes]:
    return begin(asyncio.to_thread(read, start, stop))


def _take(answer: Any, end: float, most_bytes: int) -> bytes:
    """The body of an answer, at most this number of bytes."""
    result = bytearray()
    while len(result) < most_bytes and (piece := answer.read(min(_PIECE_BYTES, most_bytes - len(result)))):
        result += piece
        if time.monotonic() > end + len(result) / _LEAST_BYTES_PER_SECOND:
            raise TransientFault("the server is too slow", number=errno.ETIMEDOUT)
    return bytes(result)


def _take_nothing(_answer: Any, _end: float) -> None:
    return None


def _missing(doing: str, location: str) -> NotStoredError:
    hint = "There is no such file of a version that this token covers. To list the versions: registry list"
    return cannot(doing, location, os.strerror(errno.ENOENT), number=errno.ENOENT, hint=hint, kind=NotStoredError)


@contextmanager
def _store_errors(doing: str, location: str) -> Iterator[None]:
    """Convert errors of a service to those of a store."""
    try:
        yield
    except CatalogUnavailableError as error:
        details = {**error.details, "path": location}
        raise StorageUnavailableError(mask(error.message), hint=error.hint, details=details) from error
    except (NotFoundError, NotStoredError) as error:
        raise _missing(doing, location) from error
    except AlreadyStoredError as error:
        raise already_stored(location) from error
    except (CatalogError, UsageError) as error:
        raise cannot(doing, location, error.message, number=errno.EACCES, hint=error.hint) from error
    except (KeyError, TypeError, ValueError, RecursionError) as error:  # a header or a list of files
        hint = "A program between may have changed it: ask an admin of the catalog."
        raise cannot(doing, location, "the answer of the server is malformed", number=errno.EIO, hint=hint) from error
