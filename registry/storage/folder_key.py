"""The secret key of a cache folder, which seals what this user keeps there, and the writing of its small files.

A seal is a keyed digest. It detects damage, and nobody without the key can forge it. A key of another user, one that
the group or others can write to, or one of another length, as a power cut may leave it, is not used: a new one takes
its place, and what the old one sealed is made again.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

_KEY_BYTES: Final = 32
_WITHOUT_WAITING: Final = getattr(os, "O_NONBLOCK", 0)
"""To open a pipe would wait for a writer."""

_REPLACING: Final = threading.Lock()
"""Held while a key is replaced: two threads that met a damaged key made one each, and the seals of one were lost."""

_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class FolderKey:
    """The key of a folder: made when it is first needed, then read once for each process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: bytes | None = None

    def read(self, *, make: bool) -> bytes:
        """Return the key, which is needed to make a seal.

        Raises:
            FileNotFoundError: the key does not exist, and ``make`` is False.
            InvalidKeyError: it is not trusted, or has another length, and ``make`` is False.
            OSError: it cannot be read or written.
        """
        if self._known is None:
            self._known = self._read(make=make)
        return self._known

    def read_again(self, *, make: bool) -> bytes:
        """Return the key that the folder has now: it may have been deleted and made again. Raises as ``read``."""
        self._known = None
        return self.read(make=make)

    def remove(self) -> None:
        """Delete the key, if it exists. What it sealed becomes invalid. Raises OSError."""
        self._known = None
        (self._folder / "key").unlink(missing_ok=True)

    def __reduce__(self) -> tuple[type[FolderKey], tuple[Path]]:
        return FolderKey, (self._folder,)  # a pickled reader must not contain the key

    def _read(self, *, make: bool) -> bytes:
        file = self._folder / "key"
        try:
            return _read_trusted(file)
        except FileNotFoundError:
            if not make:
                raise
            is_replaced = False
        except InvalidKeyError:
            if not make:
                raise
            is_replaced = True
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f"key.{secrets.token_hex(8)}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as out:
                out.write(secrets.token_bytes(_KEY_BYTES))
            if is_replaced:
                with _REPLACING:
                    with suppress(OSError):
                        return _read_trusted(file)  # that of another thread, which was faster and seals with it
                    temporary.replace(file)
            else:
                with suppress(FileExistsError):
                    os.link(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)
        return _read_trusted(file)


class InvalidKeyError(OSError):
    """The file is not a key that can be used; a new key replaces it."""


class _UntrustedKeyError(InvalidKeyError, PermissionError):
    """Another user may know or have written the key, and may have sealed files with it."""


def _read_trusted(file: Path) -> bytes:
    descriptor = os.open(file, os.O_RDONLY | _WITHOUT_WAITING)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(f"{file} is not a regular file")
        if sys.platform != "win32" and (facts.st_uid != os.geteuid() or facts.st_mode & _WRITABLE_BY_OTHERS):
            raise _UntrustedKeyError(f"{file} belongs to another user, or others can write to it")
        key = os.read(descriptor, _KEY_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(key) != _KEY_BYTES:
        raise InvalidKeyError(f"{file} is not a key of {_KEY_BYTES} bytes")
    return key


def replace_file(target: Path, *parts: bytes | memoryview) -> None:
    """Write a temporary file next to ``target``, then rename it. Raises OSError.

    It is not synced: after a power cut, a damaged file has the wrong seal and is made again.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            file.writelines(parts)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
