"""Finds uploads in parts that were never completed: S3 keeps and bills the parts, and listings do not show them.

obstore cannot list such uploads, so boto3 does (extra ``aws``). Google Cloud Storage and Azure remove the parts by a
rule, or automatically after a week.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from registry.errors import StorageError
from registry.storage.faults import cannot
from registry.storage.names import OBJECT_SCHEMES
from registry.storage.network import Limits
from registry.storage.store import Store, warn_of_leftover

_YES: Final = frozenset({"1", "true", "yes", "on", "y", "t"})
_RULE: Final = "a rule of the bucket can remove them: AbortIncompleteMultipartUpload"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedUpload:
    """An upload that was begun but not completed.

    Attributes:
        name: the name of the object, relative to the store.
        upload_id: the id of the upload in S3.
        begun_at: when it was begun.
        num_bytes: the size of the parts that have arrived.
    """

    name: str
    upload_id: str
    begun_at: datetime
    num_bytes: int


def list_unfinished(store: Store, notes: list[str]) -> Iterator[UnfinishedUpload]:
    """List the unfinished uploads below the root of a store. If that is impossible, the reason is added to ``notes``.

    Raises:
        StorageUnavailableError, StorageError: the store does not answer.
    """
    scheme, _, rest = store.url.partition("://")
    if OBJECT_SCHEMES.get(scheme) != "s3":
        return
    bucket, _, root = rest.partition("/")
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        notes.append(f"unfinished uploads in parts cannot be listed without pip install 'shardbook[aws]'; or {_RULE}")
        return
    prefix = f"{root}/" if root else ""
    try:
        client = s3_client(boto3)
        pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix)
        for upload in (upload for page in pages for upload in page.get("Uploads", ())):
            num_bytes = _num_bytes(client, bucket, upload["Key"], upload["UploadId"])
            if num_bytes is not None:
                yield UnfinishedUpload(
                    name=upload["Key"][len(prefix) :],
                    upload_id=upload["UploadId"],
                    begun_at=upload["Initiated"].astimezone(UTC),
                    num_bytes=num_bytes,
                )
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        notes.append(f"unfinished uploads in parts cannot be listed: the server answered {code:.60}; {_RULE}")
    except BotoCoreError as error:
        raise _fault(store, "list", error) from error


def abort_unfinished(store: Store) -> None:
    """Remove the parts of all unfinished uploads below the root of a store. Warns of what it cannot remove."""
    try:
        for upload in list_unfinished(store, []):
            abort_upload(store, upload.name, upload.upload_id)
    except StorageError as error:  # it takes a right of its own
        warn_of_leftover(f"an upload in parts to {store.url}", error)


def abort_upload(store: Store, name: str, upload_id: str) -> None:
    """Remove the parts of an unfinished upload. It is not an error if it was completed or removed meanwhile.

    Raises:
        StorageError: the store refuses, or does not answer.
    """
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, _, root = store.url.partition("://")[2].partition("/")
    key = f"{root}/{name}" if root else name
    try:
        s3_client(boto3).abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)
    except (BotoCoreError, ClientError) as error:
        if getattr(error, "response", {}).get("Error", {}).get("Code") == "NoSuchUpload":
            return
        raise _fault(store, "remove", error) from error


def s3_client(boto3: Any) -> Any:
    """A client of boto3, with the settings and the limits of this project."""
    from botocore import UNSIGNED
    from botocore.config import Config

    limits = Limits.from_environment()
    settings: dict[str, Any] = {
        "signature_version": "s3v4",  # boto3 still uses the older signature for some URLs, which does not cover headers
        "connect_timeout": limits.connect_seconds,
        "read_timeout": limits.read_seconds,
        "retries": {"total_max_attempts": limits.tries, "mode": "standard"},
    }
    if os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in _YES:
        settings["signature_version"] = UNSIGNED
    return boto3.client(
        "s3",
        region_name=os.environ.get("AWS_REGION") or None,
        endpoint_url=os.environ.get("AWS_ENDPOINT_URL") or None,
        config=Config(**settings),
    )


def _num_bytes(client: Any, bucket: str, key: str, upload_id: str) -> int | None:
    """The bytes of the parts; None if the upload was completed or removed meanwhile."""
    try:
        pages = client.get_paginator("list_parts").paginate(Bucket=bucket, Key=key, UploadId=upload_id)
        return sum(int(part["Size"]) for page in pages for part in page.get("Parts", ()))
    except client.exceptions.NoSuchUpload:
        return None


def _fault(store: Store, doing: str, error: Exception) -> StorageError:
    """Make the error without the text of ``error``, which may contain secrets."""
    hint = "Check AWS_ENDPOINT_URL and the credentials, then try again."
    return cannot(doing, store.url, f"the unfinished uploads cannot be reached ({type(error).__name__})", hint=hint)
