"""``Attachment``: a file other than a shard that is stored with a published version, such as its statistics."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from registry.errors import UsageError

ATTACHMENTS_FOLDER: Final = ".attachments"
"""The folder of attachments in the folder of a version: hidden, so that TFDS and other readers of shards ignore it."""

_PART: Final = re.compile("[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_SHA256: Final = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Attachment:
    """A file that is stored with a published version. It never changes: a new form of it gets a new name.

    Attributes:
        kind: the kind of the file, such as ``statistics``.
        name: the name of the file, such as ``statistics.json``; unique within its kind.
        num_bytes: the size of the file.
        sha256: the digest of the file's bytes, 64 hex digits.

    >>> Attachment.of("statistics", "statistics.json", b"{}").place[:30]
    '.attachments/44136fa355b3678a1'

    Raises:
        UsageError: the kind or name is not 1 to 100 letters, digits, ``.``, ``_`` or ``-``, without a leading dot; or
            the size or the digest is invalid.
    """

    kind: str
    name: str
    num_bytes: int
    sha256: str

    def __post_init__(self) -> None:
        for text in (self.kind, self.name):
            if not _PART.fullmatch(text):
                raise UsageError(
                    f"{text[:120]!r} is not a valid kind or name of an attachment",
                    hint="Write 1 to 100 letters, digits, '.', '_' or '-', without a leading dot.",
                    details={"name": text[:120]},
                )
        if not _SHA256.fullmatch(self.sha256) or not 0 <= self.num_bytes < 2**63:
            raise UsageError(f"the attachment {self.name} has no valid size or sha256")

    @classmethod
    def of(cls, kind: str, name: str, content: bytes) -> Attachment:
        """The attachment with these bytes."""
        return cls(kind=kind, name=name, num_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())

    @property
    def place(self) -> str:
        """The file, relative to the folder of a version.

        Its name contains the digest, so two publishers never write different bytes to the same place, and a file that a
        killed publisher left behind never blocks another one.
        """
        return f"{ATTACHMENTS_FOLDER}/{self.sha256}_{self.name}"
