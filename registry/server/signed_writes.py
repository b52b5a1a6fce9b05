"""``SignedWrites``: signs URLs by which publishers put files into a bucket, once it was tried that they are safe.

    POST path  ->  the reservation of the place  ->  a URL for these bytes  ->  PUT, past the service  ->  publish

A URL must not replace a file, also if it is used after the version was published, and must take no other bytes than
those that the publisher promised. The store enforces both, so this tries with four requests whether it does.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from registry.errors import AlreadyStoredError, NotStoredError, StorageError, UsageError
from registry.storage import Store
from registry.storage.faults import cannot
from registry.storage.multipart import abort_upload
from registry.storage.names import new_unfinished_name
from registry.storage.network import Limits, TransientFault, unavailable
from registry.storage.signed_upload import (
    CONDITIONS,
    MD5_STORES,
    S3Signer,
    Upload,
    open_signer,
    part_headers,
    upload_headers,
)

SIGNED_SECONDS: Final = 300
"""How long a URL is valid. An upload that has begun may take longer."""

_MOST_PARTS: Final = 1000
"""Parts of a file, each as long as a file may be that is sent at once: S3's limit is near 5 TiB."""

_PROBE: Final = b"probe"
_OK, _REFUSED, _TAKEN = frozenset({200, 201}), frozenset({400, 403}), frozenset({403, 409, 412})
_EXPECTED: Final = (
    ("an upload of other bytes than its headers promise", b"other", True, _REFUSED),
    ("an upload to a signed URL", _PROBE, True, _OK),
    ("a second upload to a signed URL", _PROBE, True, _TAKEN),
    ("a second upload without the condition", _PROBE, False, _REFUSED),
)
"""Requests, with their bytes and whether they have the condition, and the statuses of a store that is safe."""


class SignedWrites:
    """Signs uploads to a data directory in a bucket. Threads share it.

    Attributes:
        kind: of the store, by which clients choose their headers.
    """

    def __init__(self, store: Store) -> None:
        """``store`` is the data directory.

        Raises:
            UsageError, MissingExtraError: see ``open_signer``.
        """
        self._store = store
        self._signer = open_signer(store)
        self.kind = self._signer.kind
        self._lock = threading.Lock()
        self._is_safe = False

    def offer(self, path: str, upload: Upload, upload_id: str = "", part: int = 0) -> dict[str, Any]:
        """What a client gets for bytes that it wants to send, as JSON.

        Its ``url`` takes these bytes, if the path is free; there is none if their MD5 is missing, which the store
        compares. For a file that a store takes in parts only, ``upload`` is the id of one with ``part_bytes``.

        Args:
            path: below the data directory.
            upload: the file, or a part of it.
            upload_id: the id of an upload in parts, or "".
            part: the number of a part, from 1, for which the URL is; 0 makes a file of the parts that have arrived.

        Raises:
            UsageError: the store does not take such files.
            AlreadyStoredError, NotStoredError, StorageError: see ``S3Signer.end``; or the store does not enforce what
                is signed.
        """
        self.require_safe()
        signer, num_bytes = self._signer, upload.num_bytes
        most_bytes = signer.most_bytes * (_MOST_PARTS if isinstance(signer, S3Signer) else 1)
        if num_bytes > (most_bytes if not part else signer.most_bytes):
            raise UsageError(
                f"a bucket accepts files of at most {most_bytes:,} bytes by a signed URL, not {num_bytes:,}",
                hint="Write the split with more shards.",
            )
        if isinstance(signer, S3Signer) and part:
            return {"url": signer.sign_part(path, upload_id, part, upload, seconds=SIGNED_SECONDS)}
        if isinstance(signer, S3Signer) and upload_id:
            try:
                signer.end(path, upload_id, num_bytes)
            except AlreadyStoredError:
                self.abandon(path, upload_id)
                raise
            except NotStoredError:  # an earlier request, whose answer was lost, may have made the file meanwhile
                self._store.size(path)
            return {}
        if isinstance(signer, S3Signer) and num_bytes > signer.most_bytes:
            self._require_safe_parts(signer)
            return dict(zip(("upload", "part_bytes"), signer.begin(path, num_bytes), strict=True))
        is_described = bool(upload.md5) or self.kind not in MD5_STORES
        return {"url": signer.sign(path, upload, seconds=SIGNED_SECONDS) if is_described else None}

    def abandon(self, path: str, upload_id: str) -> None:
        """Remove the parts of an upload whose name is taken; an upload that made the file has none."""
        with suppress(StorageError):  # ``registry gc`` finds them
            abort_upload(self._store, path, upload_id)

    def _require_safe_parts(self, signer: S3Signer) -> None:
        """Raise StorageError unless the store refuses to make a file of parts whose name is taken."""
        name = new_unfinished_name("probe")
        upload_id, _ = signer.begin(name, 0)
        try:
            self._store.write_bytes(name, _PROBE)
            url = signer.sign_part(name, upload_id, 1, Upload.of(_PROBE), seconds=SIGNED_SECONDS)
            headers = part_headers(Upload.of(_PROBE))
            with self._pool() as pool:
                status = pool.request("PUT", url, body=_PROBE, headers=headers, redirect=False).status
            if status not in _OK:
                raise _unsafe(self._store.url, "a part to a signed URL", status)
            with suppress(AlreadyStoredError):
                signer.end(name, upload_id, len(_PROBE))
                raise _unsafe(self._store.url, "the end of an upload in parts to a name that is taken", 200)
        finally:
            self.abandon(name, upload_id)
            with suppress(StorageError):
                self._store.remove(name)

    def checked(self, path: str) -> tuple[int, str] | None:
        """The size and the sha256 of a file, if the store compared them; see ``UploadSigner.checked``."""
        self.require_safe()
        return self._signer.checked(path)

    def stamp(self, path: str) -> str:
        """A text that changes when a file is replaced by one of other bytes; see ``UploadSigner.stamp``."""
        return self._signer.stamp(path)

    def require_safe(self) -> None:
        """Raise StorageError unless the store refuses what it has to. Once it did, it is not asked again."""
        with self._lock:
            if self._is_safe:
                return
            name, upload = new_unfinished_name("probe"), Upload.of(_PROBE)
            url = self._signer.sign(name, upload, seconds=SIGNED_SECONDS)
            try:
                with self._pool() as pool:
                    for request, body, is_on_condition, statuses in _EXPECTED:
                        headers = upload_headers(self.kind, upload)
                        if not is_on_condition:
                            del headers[CONDITIONS[self.kind]]
                        status = pool.request("PUT", url, body=body, headers=headers, redirect=False).status
                        if status not in statuses:
                            raise _unsafe(self._store.url, request, status)
            finally:
                with suppress(StorageError):
                    self._store.remove(name)
            self._is_safe = True

    @contextmanager
    def _pool(self) -> Iterator[Any]:
        """What sends requests to signed URLs; StorageUnavailableError if one cannot be sent."""
        import urllib3

        limits = Limits.from_environment()
        timeout = urllib3.Timeout(connect=limits.connect_seconds, read=limits.read_seconds)
        try:
            with urllib3.PoolManager(timeout=timeout, retries=False) as pool:
                yield pool
        except urllib3.exceptions.HTTPError as error:
            fault = TransientFault(f"the bucket cannot be reached ({type(error).__name__})")
            raise unavailable(fault, doing="write", path=self._store.url, tries=1) from error


def _unsafe(url: str, request: str, status: int) -> StorageError:
    return cannot(
        "sign uploads to",
        url,
        f"the store answered {status} to {request}",
        number=errno.EACCES,
        hint="Ask an admin of the service to remove the setting signed_writes.",
        status=status,
    )
