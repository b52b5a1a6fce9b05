"""``SignedWrites``: signs URLs by which publishers put files into a bucket, once it was tried that they are safe.

    POST path  ->  the reservation of the place  ->  a URL for these bytes  ->  PUT, past the service  ->  publish

A URL must not replace a file, also if it is used after the version was published, and must take no other bytes than
those that the publisher promised. The store enforces both, so this tries with four requests whether it does.
"""

from __future__ import annotations

import errno
import hashlib
import threading
from contextlib import suppress
from typing import Final

from registry.errors import StorageError, UsageError
from registry.storage import Store
from registry.storage.faults import cannot
from registry.storage.names import OBJECT_SCHEMES, new_unfinished_name
from registry.storage.network import Limits, TransientFault, unavailable
from registry.storage.signed_upload import MOST_UPLOAD_BYTES, UploadSigner, upload_headers

SIGNED_SECONDS: Final = 300
"""How long a URL is valid. An upload that has begun may take longer."""

_PROBE: Final = b"probe"
_OK, _REFUSED, _TAKEN = frozenset({200, 201}), frozenset({400, 403}), frozenset({412})
_EXPECTED: Final = (
    ("an upload without the condition that was signed", _PROBE, "x-unsigned", _REFUSED),
    ("an upload of other bytes than were signed", b"other", "If-None-Match", _REFUSED),
    ("an upload to a signed URL", _PROBE, "If-None-Match", _OK),
    ("a second upload to a signed URL", _PROBE, "If-None-Match", _TAKEN),
)
"""Requests, with their bytes and the header that has the condition, and the statuses of a store that is safe."""


class SignedWrites:
    """Signs uploads to a data directory in S3. Threads share it."""

    def __init__(self, store: Store) -> None:
        """``store`` is the data directory.

        Raises:
            UsageError: it is not in a bucket of S3: other stores cannot refuse what a URL must not do.
            MissingExtraError: boto3 is not installed.
        """
        if OBJECT_SCHEMES.get(store.url.partition("://")[0]) != "s3":
            raise UsageError(
                f"signed_writes needs a data directory in a bucket of S3, not {store.url}",
                hint="Leave it out. Publishers send files of a folder through the service, and need rights of their "
                "own in other buckets.",
                details={"name": "signed_writes"},
            )
        self._store = store
        self._signer = UploadSigner(store)
        self._lock = threading.Lock()
        self._is_safe = False

    def sign(self, path: str, *, num_bytes: int, sha256: str) -> str:
        """A URL that takes these bytes, if the path is free.

        Raises:
            UsageError: the file is too large for one request.
            StorageError: the store does not enforce what is signed, or does not answer.
        """
        if num_bytes > MOST_UPLOAD_BYTES:
            raise UsageError(
                f"a bucket takes files of at most {MOST_UPLOAD_BYTES:,} bytes by a signed URL, not of {num_bytes:,}",
                hint="Write the split into more shards.",
            )
        self.require_safe()
        return self._signer.sign(path, num_bytes=num_bytes, sha256=sha256, seconds=SIGNED_SECONDS)

    def facts(self, path: str) -> tuple[int, str | None]:
        """The size of a file, and its sha256 if the store compared it with the bytes; see ``UploadSigner.facts``."""
        self.require_safe()
        return self._signer.facts(path)

    def require_safe(self) -> None:
        """Raise StorageError unless the store refuses what it has to. Once it did, it is not asked again."""
        with self._lock:
            if self._is_safe:
                return
            import urllib3

            name, sha256 = new_unfinished_name("probe"), hashlib.sha256(_PROBE).hexdigest()
            url = self._signer.sign(name, num_bytes=len(_PROBE), sha256=sha256, seconds=SIGNED_SECONDS)
            limits = Limits.from_environment()
            timeout = urllib3.Timeout(connect=limits.connect_seconds, read=limits.read_seconds)
            try:
                with urllib3.PoolManager(timeout=timeout, retries=False) as pool:
                    for request, body, condition, statuses in _EXPECTED:
                        headers = upload_headers(len(_PROBE), sha256)
                        headers[condition] = headers.pop("If-None-Match")
                        status = pool.request("PUT", url, body=body, headers=headers, redirect=False).status
                        if status not in statuses:
                            raise _unsafe(self._store.url, request, status)
            except urllib3.exceptions.HTTPError as error:
                fault = TransientFault(f"the bucket cannot be reached ({type(error).__name__})")
                raise unavailable(fault, doing="write", path=self._store.url, tries=1) from error
            finally:
                with suppress(StorageError):
                    self._store.remove(name)
            self._is_safe = True


def _unsafe(url: str, request: str, status: int) -> StorageError:
    return cannot(
        "sign uploads to",
        url,
        f"the store answered {status} to {request}",
        number=errno.EACCES,
        hint="Ask an admin of the service to leave out the setting signed_writes.",
        status=status,
    )
