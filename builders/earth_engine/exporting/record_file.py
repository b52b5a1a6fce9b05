"""How is one file of an export written? Frames of records, as they are or in one gzip member.

The same records give the same bytes: gzip without name and time, by zlib at its usual level, which every unpacker
takes, and whose bytes, to 1 MiB of content, are those of TensorFlow's writer.
"""

from __future__ import annotations

from types import TracebackType
from typing import BinaryIO, Final, Self

from registry.builders.earth_engine.exporting.gzip_stream import GzipStream
from registry.errors import UsageError
from registry.storage.names import is_unfinished
from registry.tfrecord import frame_record

FRAME_BYTES: Final = 16
"""What a frame adds to a record: its length, and two checksums."""


class RecordFile:
    """Writes records to a binary file that is open for writing; who opened it closes it.

    Attributes:
        num_records: records written.
        num_content_bytes: bytes of their frames, before compression.

    >>> import io
    >>> file = io.BytesIO()
    >>> with RecordFile(file, compressed=False) as records:
    ...     records.write(b"one")
    >>> records.num_records, records.num_content_bytes, len(file.getvalue())
    (1, 19, 19)
    """

    def __init__(self, file: BinaryIO, *, compressed: bool) -> None:
        self._target: BinaryIO | GzipStream = GzipStream(file) if compressed else file
        self.num_records = 0
        self.num_content_bytes = 0

    def write(self, record: bytes) -> None:
        """Append one record."""
        frame = frame_record(record)
        self._target.write(frame)
        self.num_records += 1
        self.num_content_bytes += len(frame)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None and isinstance(self._target, GzipStream):
            self._target.finish()


def check_prefix(prefix: str) -> str:
    """``prefix`` if the names of an export's files may begin with it: one name, and no path.

    Raises:
        UsageError: it is empty, hidden, holds a character that no file name has everywhere, or is a name that this
            registry gives to unfinished files.
    """
    is_text = not any(0xD800 <= ord(letter) < 0xE000 for letter in prefix)  # halves of pairs are none
    if not prefix or prefix[0] == "." or set(prefix) & set('/\\\0:*?"<>|\r\n') or not is_text:
        raise UsageError(
            f"{prefix!r:.120} is no prefix of file names",
            hint="Write a name such as 'Predict1'; the folder is given apart from it.",
            details={"prefix": prefix[:120]},
        )
    if is_unfinished(f"{prefix}-"):
        raise UsageError(
            f"{prefix!r:.120} is no prefix of file names: files of such a name are unfinished ones",
            hint="Write a name such as 'Predict1'.",
            details={"prefix": prefix[:120]},
        )
    return prefix
