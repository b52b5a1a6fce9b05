"""Who wrote what lies in a cache folder? A secret key in the folder itself, readable for its user only, seals it."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

_KEY_BYTES: Final = 32


class FolderKey:
    """The key of a folder, made when something is sealed there for the first time, and read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: bytes | None = None

    def seal(self, content: bytes, *, num_bytes: int, make: bool = False) -> bytes:
        """The seal of ``content``: nobody who cannot read the key can make it.

        Raises:
            OSError: there is no key yet and ``make`` is False, or it cannot be read or written.
        """
        return blake2b(content, key=self.read(make=make), digest_size=num_bytes).digest()

    def read(self, *, make: bool) -> bytes:
        """The key itself. Errors as ``seal``."""
        if self._known is None:
            self._known = self._read(make=make)
        return self._known

    def __reduce__(self) -> tuple[type[FolderKey], tuple[Path]]:
        return FolderKey, (self._folder,)  # who holds a pickled reader does not get the key

    def _read(self, *, make: bool) -> bytes:
        file = self._folder / "key"
        if make and not file.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary = file.with_name(f"key.{secrets.token_hex(8)}")
            try:
                descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "wb") as out:
                    out.write(secrets.token_bytes(_KEY_BYTES))
                with suppress(FileExistsError):
                    os.link(temporary, file)
            finally:
                temporary.unlink(missing_ok=True)
        key = file.read_bytes()
        if len(key) != _KEY_BYTES:
            raise OSError(f"{file} is not a key of {_KEY_BYTES} bytes")
        return key
