"""What obstore's errors mean: it writes them as text, in which the status and the kind of a fault are found."""

from __future__ import annotations

import errno
import os
import re
from typing import Any, Final

from registry.errors import NotStoredError, StorageError
from registry.storage.bucket_credentials import no_credentials
from registry.storage.faults import already_stored
from registry.storage.network import TransientFault

_STATUS: Final = re.compile(r"status code: (\d{3})(?: ([A-Za-z][A-Za-z \-]*))?")
_KIND: Final = re.compile(r"\bkind: (Timeout|Connect)\b")
_RETRIES: Final = re.compile(r"\bmax_retries: (\d+)")
_PASSING: Final = frozenset({408, 409, 425, 429})  # 409: another conditional request for that name is under way
_REFUSED: Final = frozenset({401, 403})
_FIRST_SERVER_FAULT: Final = 500
_METADATA_SERVICES: Final = ("169.254.169.254", "/latest/api/token", "metadata.google.internal")


def typed_fault(error: Exception, *, doing: str, path: str, bucket: str) -> StorageError | TransientFault:
    """The error to raise for one of obstore's; ``doing`` and ``path`` complete "cannot <doing> <path>: ...".

    A TransientFault is what another try may mend: no answer, half an answer, a server that is overloaded or broken.
    The text of ``error`` is not repeated: it is long, and names more than a reader may see.
    """
    text, name = str(error), type(error).__name__
    found = _STATUS.search(text)
    status = int(found[1]) if found else None
    answered = f"the server answered {status} {(found[2] or '').strip()}".rstrip() if found else ""

    def refusal(reason: str, hint: str | None, number: int, **details: Any) -> StorageError:
        kind = NotStoredError if number == errno.ENOENT else StorageError
        told = kind(
            f"cannot {doing} {path}: {reason}",
            hint=hint,
            details={"path": path, "errno": number, "doing": doing, **details},
        )
        told.errno = number
        return told

    if "NoSuchBucket" in text:
        hint = "Check its name, and AWS_ENDPOINT_URL where the store is not Amazon's."
        return refusal(f"there is no bucket {bucket!r}", hint, errno.ENOENT, bucket=bucket)
    if name == "AlreadyExistsError":
        return already_stored(path)
    if name == "PreconditionError":
        hint = "Read it again. `registry verify` says whether it is what was published."
        return refusal("it was replaced while it was read", hint, errno.EIO)
    if isinstance(error, FileNotFoundError):
        return refusal(os.strerror(errno.ENOENT), "Check the name, and that the bucket holds it.", errno.ENOENT)
    if any(service in text for service in _METADATA_SERVICES):
        return no_credentials(path, doing=doing)
    if status in _REFUSED:
        hint = "The store refuses these credentials. Check them, and what they may do in this bucket."
        return refusal(f"{os.strerror(errno.EACCES)} ({answered})", hint, errno.EACCES, status=status)
    if "Could not parse path" in text or "Error parsing Path" in text:
        hint = "Names of objects have no empty parts and no control characters."
        return refusal("an object store cannot hold that name", hint, errno.EINVAL)
    if status is not None and status < _FIRST_SERVER_FAULT and status not in _PASSING:
        moved = "Set AWS_REGION to the region of the bucket." if status in (301, 307) else None
        return refusal(answered, moved, errno.EIO, status=status)
    return _transient(text, answered)


def is_no_bucket(error: NotStoredError) -> bool:
    """Whether it is the bucket that is missing, and not an object in it."""
    return "bucket" in error.details


def _transient(text: str, answered: str) -> TransientFault:
    kind = found[1] if (found := _KIND.search(text)) else ""
    reason, number = answered or "the connection broke off", errno.EIO if answered else errno.ECONNRESET
    if not answered and kind == "Timeout":
        reason, number = "the server did not answer in time", errno.ETIMEDOUT
    elif not answered and kind == "Connect":
        reason, number = "the server cannot be reached", errno.ECONNREFUSED
    retries = _RETRIES.search(text)
    return TransientFault(reason, number=number, was_retried=retries is not None and retries[1] != "0")
