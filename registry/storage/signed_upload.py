"""URLs by which others upload to a bucket of S3 without rights of their own: each creates one object, with known bytes.

The signature covers ``upload_headers``: the condition that the name is free, the size and the sha256. S3 compares them
with what arrives, so that a URL can neither replace an object nor store other bytes while it is valid. obstore signs no
headers, so boto3 does (extra ``aws``). Signatures for Google's and Azure's stores cannot have all three.
"""

from __future__ import annotations

import base64
import errno
import os
import threading
from typing import TYPE_CHECKING, Any, Final

from registry.errors import NotStoredError, StorageError, require_extra
from registry.storage.faults import cannot
from registry.storage.multipart import s3_client

if TYPE_CHECKING:
    from registry.storage.store import Store

MOST_UPLOAD_BYTES: Final = 5 * 2**30
"""S3 takes no longer object in one request."""

_TYPE: Final = "application/octet-stream"
_MISSING: Final = frozenset({"404", "NoSuchKey"})
_WHOLE: Final = 44
"""Characters of a sha256 in base64. That of an object in parts ends with their number: it is not that of its bytes."""


def upload_headers(num_bytes: int, sha256: str) -> dict[str, str]:
    """The headers of a PUT to a URL of ``UploadSigner``.

    >>> upload_headers(0, "00" * 32)["If-None-Match"]
    '*'
    """
    return {
        "Content-Length": str(num_bytes),
        "Content-Type": _TYPE,
        "If-None-Match": "*",
        "x-amz-checksum-sha256": base64.b64encode(bytes.fromhex(sha256)).decode(),
    }


class UploadSigner:
    """Signs uploads to a data directory in S3, and says what S3 has checked. Threads share it; no fork does."""

    def __init__(self, store: Store) -> None:
        """``store`` is in a bucket of S3.

        Raises:
            MissingExtraError: boto3 is not installed.
        """
        with require_extra("aws", package="boto3", needed_for="signing uploads"):
            import boto3
        self._boto3 = boto3
        self._store = store
        self._bucket, _, self._root = store.url.partition("://")[2].partition("/")
        self._lock = threading.Lock()
        self._client: Any = None

    def sign(self, name: str, *, num_bytes: int, sha256: str, seconds: int) -> str:
        """A URL by which anybody can create an object with these bytes, once. No request is sent.

        Raises:
            StorageError: there are no credentials.
        """
        headers = upload_headers(num_bytes, sha256)
        return str(
            self._ask(
                "write",
                name,
                "generate_presigned_url",
                ClientMethod="put_object",
                ExpiresIn=seconds,
                Params=self._key(name)
                | {
                    "ContentLength": num_bytes,
                    "ContentType": headers["Content-Type"],
                    "IfNoneMatch": headers["If-None-Match"],
                    "ChecksumSHA256": headers["x-amz-checksum-sha256"],
                },
            )
        )

    def facts(self, name: str) -> tuple[int, str | None]:
        """The size of an object, and its sha256 if S3 compared it with the bytes when they arrived.

        Raises:
            NotStoredError: it does not exist.
            StorageError: it cannot be read.
        """
        facts = self._ask("read", name, "head_object", **self._key(name), ChecksumMode="ENABLED")
        text = facts.get("ChecksumSHA256", "")
        return facts["ContentLength"], base64.b64decode(text).hex() if len(text) == _WHOLE else None

    def _key(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": "/".join(part for part in (self._root, name) if part)}

    def _ask(self, doing: str, name: str, method: str, **options: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        location = self._store.locate(name)
        try:
            with self._lock:  # a client takes half a second to make, and only its requests may run at the same time
                self._client = self._client or s3_client(self._boto3)
            return getattr(self._client, method)(**options)
        except (BotoCoreError, ClientError) as error:
            raise _fault(error, doing, location) from error


def _fault(error: Exception, doing: str, location: str) -> StorageError:
    """The error of an answer. Its text is not repeated: it may contain secrets."""
    code = str(getattr(error, "response", {}).get("Error", {}).get("Code", type(error).__name__))
    if code in _MISSING:
        reason, hint = os.strerror(errno.ENOENT), "Check the name, and that it is in this bucket."
        return cannot(doing, location, reason, number=errno.ENOENT, hint=hint, kind=NotStoredError)
    return cannot(doing, location, f"the store says {code:.60}", number=errno.EIO, hint="Check the credentials.")
