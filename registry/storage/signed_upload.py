"""Signs URLs with which others upload to a bucket without rights of their own.

Each URL creates one object, with known bytes.

The signature covers ``upload_headers``: the condition that the name is free, the size, and a digest. The store compares
them with the bytes that arrive, so a valid URL can neither replace an object nor store other bytes. obstore does not
sign headers, so boto3 does this for S3 (extra ``aws``), and this module for Google Cloud Storage. In Azure, a signature
does not cover headers, but a permission: to create an object with any bytes, and not to replace one.

S3 accepts longer objects in parts: each URL stores the known bytes of a part, and the service combines the parts to an
object, if its name is free. S3 keeps the verified sha256 of an object that was sent in one request. The other stores
verify an MD5, which proves nothing, so the service reads their objects later, like objects that were sent in parts.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import hmac
import json
import os
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

from registry.errors import NotStoredError, StorageError, UsageError, require_extra
from registry.storage.faults import already_stored, cannot
from registry.storage.multipart import s3_client
from registry.storage.names import OBJECT_SCHEMES

if TYPE_CHECKING:
    from registry.storage.store import Store

MD5_STORES: Final = frozenset({"az", "gs"})
"""Kinds of stores that verify the MD5 of an upload, because they do not support sha256."""

CONDITIONS: Final = {"s3": "If-None-Match", "gs": "x-goog-if-generation-match", "az": "If-None-Match"}
"""The header with which each kind of store creates an object without replacing one."""

_TYPE: Final = "application/octet-stream"
_MISSING: Final = frozenset({"404", "NoSuchKey", "NoSuchUpload"})
_TAKEN: Final = "PreconditionFailed"
_PART_BYTES: Final = 64 * 2**20
_MOST_PARTS: Final = 10_000
_WHOLE: Final = 44
"""Characters of a sha256 in base64. That of an object in parts is not that of its bytes, and ends with the number of
parts, as its ETag does; some servers leave it out of the sha256."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """The bytes that a URL accepts: their size, their sha256, and their MD5 for ``MD5_STORES``; digests in hex."""

    num_bytes: int
    sha256: str
    md5: str = ""

    @classmethod
    def of(cls, content: bytes) -> Upload:
        """Describe some bytes."""
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        return cls(num_bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), md5=md5)


def upload_headers(kind: str, upload: Upload) -> dict[str, str]:
    """Return the headers of a PUT to a URL that an ``UploadSigner`` for this kind of store has signed.

    >>> upload_headers("s3", Upload.of(b""))["If-None-Match"]
    '*'
    """
    headers = {"Content-Length": str(upload.num_bytes), "Content-Type": _TYPE}
    if kind == "s3":
        return headers | {CONDITIONS[kind]: "*", "x-amz-checksum-sha256": _base64(upload.sha256)}
    headers["Content-MD5"] = _base64(upload.md5)
    if kind == "az":
        return headers | {CONDITIONS[kind]: "*", "x-ms-blob-type": "BlockBlob"}
    return headers | {
        CONDITIONS[kind]: "0",
        "x-goog-content-length-range": f"{upload.num_bytes},{upload.num_bytes}",
    }


def part_headers(part: Upload) -> dict[str, str]:
    """Return the headers of a PUT to a URL that ``S3Signer.sign_part`` has signed."""
    return {"Content-Length": str(part.num_bytes), "x-amz-checksum-sha256": _base64(part.sha256)}


class UploadSigner(ABC):
    """Signs uploads to a data directory. Threads may share it, but not forked processes.

    Attributes:
        kind: the kind of the store, as in ``OBJECT_SCHEMES``.
        most_bytes: the size of the largest object that the store accepts in one request.
    """

    kind: str
    most_bytes: int

    def __init__(self, store: Store) -> None:
        """Sign for ``store``, which is in a bucket of this kind.

        Raises:
            MissingExtraError: a package is not installed.
            UsageError: the key that signs URLs is missing.
        """
        self._store = store
        self._bucket, _, self._root = store.url.partition("://")[2].partition("/")

    @abstractmethod
    def sign(self, name: str, upload: Upload, *, seconds: int) -> str:
        """Return a URL with which anybody can create an object with these bytes, once. No request is sent.

        Raises:
            StorageError: there are no credentials.
        """

    def checked(self, name: str) -> tuple[int, str] | None:
        """Return the size of an object, and its sha256 if the store verified it when the bytes arrived.

        Raises:
            NotStoredError: it does not exist.
            StorageError: it cannot be read.
        """
        del name
        return None

    def stamp(self, name: str) -> str:
        """A text that changes when an object is replaced by one of other bytes; raises as ``checked``."""
        return self._store.stamp(name)

    def _key(self, name: str) -> str:
        return "/".join(part for part in (self._root, name) if part)


class S3Signer(UploadSigner):
    """Signs with boto3, and returns the digests that S3 has verified."""

    kind = "s3"
    most_bytes = 5 * 2**30

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        with require_extra("aws", package="boto3", needed_for="signing uploads"):
            import boto3
        self._boto3 = boto3
        self._lock = threading.Lock()
        self._client: Any = None

    def sign(self, name: str, upload: Upload, *, seconds: int) -> str:
        """See ``UploadSigner``."""
        headers = upload_headers(self.kind, upload)
        options = {"ContentType": headers["Content-Type"], "IfNoneMatch": headers["If-None-Match"]}
        return self._sign("put_object", name, upload, seconds, **options)

    def begin(self, name: str, num_bytes: int) -> tuple[str, int]:
        """Begin an upload in parts. Returns its id, and the size of each part except for the last.

        Raises:
            StorageError: the upload cannot be started.
        """
        options = self._place(name) | {"ChecksumAlgorithm": "SHA256", "ContentType": _TYPE}
        upload_id = self._ask("write", name, "create_multipart_upload", **options)["UploadId"]
        return str(upload_id), max(_PART_BYTES, -(-num_bytes // _MOST_PARTS))

    def sign_part(self, name: str, upload_id: str, number: int, part: Upload, *, seconds: int) -> str:
        """Return a URL that stores a part (numbered from 1) with these bytes; it may be used repeatedly.

        No request is sent.
        """
        return self._sign("upload_part", name, part, seconds, UploadId=upload_id, PartNumber=number)

    def end(self, name: str, upload_id: str, num_bytes: int) -> None:
        """Combine the parts that have arrived to an object.

        Raises:
            AlreadyStoredError: the name is taken.
            NotStoredError: there is no such upload.
            StorageError: parts are missing.
        """
        place, parts, page = self._place(name) | {"UploadId": upload_id}, list[Any](), {"NextPartNumberMarker": 0}
        while page:
            page = self._ask("write", name, "list_parts", **place, PartNumberMarker=page["NextPartNumberMarker"])
            parts += page.get("Parts", ())
            page = page if page["IsTruncated"] else {}
        if sum(part["Size"] for part in parts) != num_bytes:
            reason, hint = "parts of it are missing", "Publish it again."
            raise cannot("write", self._store.locate(name), reason, number=errno.EIO, hint=hint)
        names = ("PartNumber", "ETag", "ChecksumSHA256")
        listed = {"Parts": [{key: part[key] for key in names if key in part} for part in parts]}
        self._ask("write", name, "complete_multipart_upload", **place, IfNoneMatch="*", MultipartUpload=listed)

    def checked(self, name: str) -> tuple[int, str] | None:
        """See ``UploadSigner``."""
        facts = self._head(name)
        text = facts.get("ChecksumSHA256", "")
        is_whole = len(text) == _WHOLE and "-" not in facts["ETag"]
        return (facts["ContentLength"], base64.b64decode(text).hex()) if is_whole else None

    def stamp(self, name: str) -> str:
        """See ``UploadSigner``. S3 dates an object in parts when it was begun, and has a sha256 of those parts."""
        facts = self._head(name)
        names = ("ContentLength", "ETag", "LastModified", "VersionId", "ChecksumSHA256")
        return " ".join(str(facts.get(key)) for key in names)

    def _head(self, name: str) -> Any:
        return self._ask("read", name, "head_object", **self._place(name), ChecksumMode="ENABLED")

    def _sign(self, method: str, name: str, upload: Upload, seconds: int, **options: Any) -> str:
        known = {"ContentLength": upload.num_bytes, "ChecksumSHA256": _base64(upload.sha256)}
        params = self._place(name) | known | options
        ask = {"ClientMethod": method, "ExpiresIn": seconds, "Params": params}
        return str(self._ask("write", name, "generate_presigned_url", **ask))

    def _place(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._key(name)}

    def _ask(self, doing: str, name: str, method: str, **options: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        location = self._store.locate(name)
        try:
            with self._lock:  # creating a client takes half a second, and is not thread-safe, unlike its requests
                self._client = self._client or s3_client(self._boto3)
            return getattr(self._client, method)(**options)
        except (BotoCoreError, ClientError) as error:
            raise _fault(error, doing, location) from error


class GoogleSigner(UploadSigner):
    """Signs with the key of a service account by Google's V4 process, which needs no library."""

    kind = "gs"
    most_bytes = 5 * 2**40

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        with require_extra("server", package="cryptography", needed_for="signing uploads"):
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        try:
            key = _service_account()
            self._email = str(key["client_email"])
            self._key_of_account: Any = load_pem_private_key(str(key["private_key"]).encode(), None)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _no_key(
                store, "the key of a service account", "GOOGLE_APPLICATION_CREDENTIALS to the file of one"
            ) from error

    def sign(self, name: str, upload: Upload, *, seconds: int) -> str:
        """See ``UploadSigner``."""
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        base = os.environ.get("GOOGLE_BASE_URL", "https://storage.googleapis.com").rstrip("/")
        parts, path = urlsplit(base), f"/{self._bucket}/{quote(self._key(name), safe='/~')}"
        headers = {key.lower(): text for key, text in upload_headers(self.kind, upload).items()}
        del headers["content-length"]  # the range contains it
        headers = dict(sorted((headers | {"host": parts.netloc}).items()))
        now = datetime.now(UTC)
        scope, moment = f"{now:%Y%m%d}/auto/storage/goog4_request", f"{now:%Y%m%dT%H%M%SZ}"
        query = urlencode(
            {
                "X-Goog-Algorithm": "GOOG4-RSA-SHA256",
                "X-Goog-Credential": f"{self._email}/{scope}",
                "X-Goog-Date": moment,
                "X-Goog-Expires": seconds,
                "X-Goog-SignedHeaders": ";".join(headers),
            },
            quote_via=quote,
            safe="",
        )
        lines = [f"{key}:{text}" for key, text in headers.items()]
        request = ["PUT", f"{parts.path}{path}", query, *lines, "", ";".join(headers), "UNSIGNED-PAYLOAD"]
        digest = hashlib.sha256("\n".join(request).encode()).hexdigest()
        text = f"GOOG4-RSA-SHA256\n{moment}\n{scope}\n{digest}"
        signature = self._key_of_account.sign(text.encode(), PKCS1v15(), SHA256()).hex()
        return f"{base}{path}?{query}&X-Goog-Signature={signature}"


class AzureSigner(UploadSigner):
    """Signs a SAS with the key of the account, which can only create one blob."""

    kind = "az"
    most_bytes = 5000 * 2**20

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        try:
            self._account = os.environ["AZURE_STORAGE_ACCOUNT_NAME"]
            self._key_of_account = base64.b64decode(os.environ["AZURE_STORAGE_ACCOUNT_KEY"], validate=True)
        except (KeyError, ValueError) as error:
            setting = "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
            raise _no_key(store, "the key of the account", setting) from error

    def sign(self, name: str, upload: Upload, *, seconds: int) -> str:
        """See ``UploadSigner``. The MD5 is verified only if the header is sent, which the URL cannot require."""
        del upload
        url = str(self._store.sign(name, seconds=seconds)).partition("?")[0]  # obstore knows the endpoint
        fields = {
            "sp": "c",
            "st": "",
            "se": f"{datetime.now(UTC) + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}",
            "resource": f"/blob/{self._account}/{self._bucket}/{self._key(name)}",
            "si": "",
            "sip": "",
            "spr": "https" if url.startswith("https:") else "https,http",
            "sv": "2020-12-06",
            "sr": "b",
        }
        text = "\n".join([*fields.values(), *[""] * 7])  # no snapshot, no scope, and no headers of responses
        signature = hmac.digest(self._key_of_account, text.encode(), "sha256")
        query = {key: value for key, value in fields.items() if value and key != "resource"}
        return f"{url}?{urlencode(query | {'sig': base64.b64encode(signature)})}"


_SIGNERS: Final = {signer.kind: signer for signer in (S3Signer, GoogleSigner, AzureSigner)}


def open_signer(store: Store) -> UploadSigner:
    """Return the signer for the bucket of a store.

    Raises:
        UsageError: the store is not in a bucket, or a key is missing.
        MissingExtraError: a package is not installed.
    """
    signer = _SIGNERS.get(OBJECT_SCHEMES.get(store.url.partition("://")[0], ""))
    if signer is None:
        raise UsageError(
            f"signed_writes requires a data directory in a bucket, not {store.url}",
            hint="Leave it out. Publishers then send the files through the service.",
            details={"name": "signed_writes"},
        )
    return signer(store)


def _service_account() -> dict[str, Any]:
    """Return the key that obstore also reads from the environment."""
    text = os.environ.get("GOOGLE_SERVICE_ACCOUNT_KEY")
    names = ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_APPLICATION_CREDENTIALS")
    if text is None:
        path = next(filter(None, map(os.environ.get, names)), "")
        text = Path(path).read_text(encoding="utf-8")
    result: dict[str, Any] = json.loads(text)
    return result


def _no_key(store: Store, key: str, setting: str) -> UsageError:
    return UsageError(
        f"signed_writes to {store.url} requires {key}, which signs URLs, but it was not found",
        hint=f"Set {setting}, or leave signed_writes out.",
        details={"name": "signed_writes"},
    )


def _base64(digest: str) -> str:
    return base64.b64encode(bytes.fromhex(digest)).decode()


def _fault(error: Exception, doing: str, location: str) -> StorageError:
    """Convert an error response, without its text, which may contain secrets."""
    code = str(getattr(error, "response", {}).get("Error", {}).get("Code", type(error).__name__))
    if code == _TAKEN:
        return already_stored(location)
    if code in _MISSING:
        reason, hint = os.strerror(errno.ENOENT), "Check the name, and that it is in this bucket."
        return cannot(doing, location, reason, number=errno.ENOENT, hint=hint, kind=NotStoredError)
    return cannot(doing, location, f"the store answered {code:.60}", number=errno.EIO, hint="Check the credentials.")
