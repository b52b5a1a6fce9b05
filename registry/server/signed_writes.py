"""``SignedWrites``: signs URLs by which publishers put files into a bucket, once it was tried that they are safe.

    POST path  ->  the reservation of the place  ->  a URL for these bytes  ->  PUT, past the service  ->  publish

A URL must not replace a file, also if it is used after the version was published, and must take no other bytes than
those that the publisher promised. The store enforces both, so this tries with four requests whether it does.
"""

from __future__ import annotations

import errno
import threading
from contextlib import suppress
from typing import Final

from registry.errors import StorageError, UsageError
from registry.storage import Store
from registry.storage.faults import cannot
from registry.storage.names import new_unfinished_name
from registry.storage.network import Limits, TransientFault, unavailable
from registry.storage.signed_upload import CONDITIONS, MD5_STORES, Upload, open_signer, upload_headers

SIGNED_SECONDS: Final = 300
"""How long a URL is valid. An upload that has begun may take longer."""

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

    def sign(self, path: str, upload: Upload) -> str | None:
        """A URL that takes these bytes, if the path is free; None if their MD5 is missing, which the store compares.

        Raises:
            UsageError: the file is too large for one request.
            StorageError: the store does not enforce what is signed, or does not answer.
        """
        if upload.num_bytes > self._signer.most_bytes:
            raise UsageError(
                f"a bucket takes files of at most {self._signer.most_bytes:,} bytes by a signed URL, "
                f"not of {upload.num_bytes:,}",
                hint="Write the split into more shards.",
            )
        self.require_safe()
        if self.kind in MD5_STORES and not upload.md5:
            return None
        return self._signer.sign(path, upload, seconds=SIGNED_SECONDS)

    def checked(self, path: str) -> tuple[int, str] | None:
        """The size and the sha256 of a file, if the store compared them; see ``UploadSigner.checked``."""
        self.require_safe()
        return self._signer.checked(path)

    def require_safe(self) -> None:
        """Raise StorageError unless the store refuses what it has to. Once it did, it is not asked again."""
        with self._lock:
            if self._is_safe:
                return
            import urllib3

            name, upload = new_unfinished_name("probe"), Upload.of(_PROBE)
            url = self._signer.sign(name, upload, seconds=SIGNED_SECONDS)
            limits = Limits.from_environment()
            timeout = urllib3.Timeout(connect=limits.connect_seconds, read=limits.read_seconds)
            try:
                with urllib3.PoolManager(timeout=timeout, retries=False) as pool:
                    for request, body, is_on_condition, statuses in _EXPECTED:
                        headers = upload_headers(self.kind, upload)
                        if not is_on_condition:
                            del headers[CONDITIONS[self.kind]]
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
