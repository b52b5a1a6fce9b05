"""How is a shard file written? Record after record into an open file, counted and hashed on the way."""

from __future__ import annotations

import hashlib
from typing import BinaryIO

from registry.errors import BuildError
from registry.tfrecord.faults import MAX_RECORD_BYTES
from registry.tfrecord.framing import frame_record


class RecordWriter:
    """Writes records to a binary file that is open for writing; the caller opens it, and closes it.

    The same records give the same bytes on every machine. Nothing is compressed.

    Attributes:
        num_records: records written.
        num_payload_bytes: sum of their lengths, without framing: what TFDS calls a split's ``numBytes``.
        num_bytes: bytes written, framing included.

    >>> import io
    >>> file = io.BytesIO()
    >>> writer = RecordWriter(file)
    >>> writer.write(b"one"), writer.write(b"three")
    (None, None)
    >>> writer.num_records, writer.num_payload_bytes, writer.num_bytes
    (2, 8, 40)

    Raises:
        BuildError: a record is longer than 2 GiB, more than a protobuf message can hold.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.num_records = 0
        self.num_payload_bytes = 0
        self.num_bytes = 0

    def write(self, record: bytes) -> None:
        """Append one record."""
        if len(record) > MAX_RECORD_BYTES:
            raise BuildError(
                f"record {self.num_records} is {len(record)} bytes long; a record has {MAX_RECORD_BYTES} at most",
                hint="Split the example, or store the large value in a file of its own.",
                details={"record": self.num_records, "num_bytes": len(record)},
            )
        frame = frame_record(record)
        self._file.write(frame)
        self._digest.update(frame)
        self.num_records += 1
        self.num_payload_bytes += len(record)
        self.num_bytes += len(frame)

    def sha256(self) -> str:
        """sha256 of all bytes written so far, 64 hex digits."""
        return self._digest.hexdigest()
