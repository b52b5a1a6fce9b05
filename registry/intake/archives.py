"""Extracts zip and tar archives to a temporary folder, whose files are then opened like those of any folder.

Archives come from strangers. The whole archive is refused if a member is a device, would be written outside of the
folder or would replace another member, or if the archive expands to far more than its size. tarfile stops silently at a
damaged header and at the end of the first of several concatenated archives, so the end is checked here.
"""

from __future__ import annotations

import errno
import io
import lzma
import os
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO, Final

from registry.errors import SourceError
from registry.intake.listing import list_folder
from registry.intake.media_bytes import format_of
from registry.intake.source import Files, root_of
from registry.intake.text_files import Pieces, decompress
from registry.storage.faults import storage_errors
from registry.storage.temporary import TemporaryStore, check_free_space

EXTENSIONS: Final = (
    *(".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tbz", ".tar.xz", ".txz", ".tar.zst", ".tzst"),
)

MAX_RATIO: Final = 200
MAX_FREE_BYTES: Final = 2**30
"""An archive may expand to 200 times its size plus one GiB. Text compresses up to 50 times, a bomb a million times."""

_DRIVE: Final = re.compile("[A-Za-z]:/")
_SHARD: Final = re.compile(r"([._-][0-9]+([._-]of[._-][0-9]+)?|(^|/)[0-9]{2,})$")
"""The number of a shard. A single digit without a name may be a class."""

_MOST_NAME: Final = 255  # bytes of one name, and characters of a path: the limits of most disks
_MOST_PATH: Final = 3000

_MAX_HEADER_BYTES: Final = 2**20
_PIECE_BYTES: Final = 2**20
_START_BYTES: Final = 8
_FAULTS: Final = (
    *(tarfile.TarError, zipfile.BadZipFile, EOFError, NotImplementedError, zlib.error, lzma.LZMAError),
    ValueError,
)
_EXTENDED: Final = (*tarfile.GNU_TYPES, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)


def is_archive(name: str) -> bool:
    """Whether a name has the extension of an archive.

    >>> is_archive("photos.tar.gz"), is_archive("data.csv.gz")
    (True, False)
    """
    return name.lower().endswith(EXTENSIONS)


def extract(files: Files, names: Sequence[str], *, beside: Sequence[str] = ()) -> Files:
    """Extract archives of a source and list what they contain.

    If there are several, each is extracted to a folder with its name: ``train.zip`` to ``train/``. Numbered archives
    are shards of one folder: ``train-000.tar`` and ``train-001.tar`` of ``train/``, ``00000.tar`` and ``00001.tar`` of
    the source itself. If two shards have a file of the same name, the shard's name is added to the later file:
    ``cat/00001-1.png``.

    Args:
        files: the files of the source.
        names: the archives among them.
        beside: other files among them, which are copied to the extracted files that they describe.

    Raises:
        SourceError: an archive is damaged, encrypted or unsafe, or contains a file with a name in ``beside``.
        StorageError: an archive cannot be read, or the disk for temporary files is full.
    """
    target = TemporaryStore()
    root = root_of(target)
    folders = _folders_of(names)
    for name, inside in zip(names, folders, strict=True):
        folder = root / inside
        path = root_of(files.store) / name
        with storage_errors("write", str(folder)):
            folder.mkdir(parents=True, exist_ok=True)
        with storage_errors("read", str(path)), path.open("rb") as file:
            shard = _stem(name).rpartition("/")[2] if folders.count(inside) > 1 else ""
            _Extraction(folder, name, path, shard=shard).run(file)
    for name in beside:
        path = root / name
        if os.path.lexists(path):
            raise SourceError(
                f"{name} is both next to the archive and inside it",
                hint="Remove one of them, or extract the archive, then add the folder.",
                details={"file": name},
            )
        with storage_errors("write", str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root_of(files.store) / name, path)
    listed = list_folder(root, files.location)
    skipped = (*files.skipped, *listed.skipped)
    return replace(files, store=target, names=listed.names, sizes=listed.sizes, skipped=skipped)


def open_tar(file: IO[bytes], location: str) -> tarfile.TarFile:
    """Open a tar, compressed or not. Unlike tarfile's own, its iteration raises at a damaged or missing header.

    A compressed tar is read once, from its beginning to its end: each member before the next.

    Raises:
        SourceError: it is not a tar.
    """
    start = file.read(_START_BYTES)
    decompressed = decompress(file.read, start, size=os.fstat(file.fileno()).st_size, name=location)
    with archive_errors(location):
        if decompressed is not None:
            return tarfile.open(fileobj=io.BufferedReader(Pieces(decompressed)), mode="r|", tarinfo=_StrictHeader)
        file.seek(0)
        return tarfile.TarFile(fileobj=file, mode="r", tarinfo=_StrictHeader)


def tar_members(tar: tarfile.TarFile, location: str) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a tar from ``open_tar`` in order, and check that nothing follows its end.

    Members that were yielded are forgotten, so that memory does not grow with their number.

    Raises:
        SourceError: the archive is damaged or truncated, or another archive follows.
    """
    while True:
        with archive_errors(location):
            member = tar.next()
        if member is None:
            break
        member.name = member.name.removeprefix("./")  # `tar -C FOLDER .` writes such a member
        yield member
        tar.members = []  # type: ignore[attr-defined]  # the list is not part of its stubs
    with archive_errors(location):
        while piece := tar.fileobj.read(_PIECE_BYTES):
            if piece.count(0) != len(piece):
                raise SourceError(
                    f"{location}: there is data after the end of the archive",
                    hint="If archives were joined, extract all of them, then add the folder: "
                    f"mkdir data && tar -xif {location} -C data",
                    details={"file": location},
                )


@contextmanager
def archive_errors(location: str) -> Iterator[None]:
    """Convert the errors of archive libraries to SourceError."""
    try:
        yield
    except SourceError:
        raise
    except (*_FAULTS, OSError) as error:
        # bz2 and gzip raise an OSError without a number. zipfile seeks to where a damaged directory points.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise SourceError(
            f"{location}: damaged archive: {str(error) or type(error).__name__}",
            hint="Download or create it again.",
            details={"file": location},
        ) from error


def member_name(name: str, location: str) -> str | None:
    """Return the safe form of a member's name, or None for the folder itself, which many tars contain as ``./``.

    >>> member_name("./a//b.csv", "x.tar")
    'a/b.csv'

    Raises:
        SourceError: the name is absolute, or points outside the folder.
    """
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise _unsafe(location, name, "leads out of the folder")
    if len(name) > _MOST_PATH or any(len(os.fsencode(part)) > _MOST_NAME for part in parts):
        raise _unsafe(location, name, "has a name that is too long for a file")
    return "/".join(part for part in parts if part not in ("", ".")) or None


class _StrictHeader(tarfile.TarInfo):
    """A header whose faults stop the extraction.

    tarfile mistakes a damaged or missing header for the end of the archive.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _StrictHeader:
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # two blocks of zeros
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError("it is truncated" if len(buf) < tarfile.BLOCKSIZE else str(error)) from None
        if header.type in _EXTENDED and header.size > _MAX_HEADER_BYTES:  # tarfile would read it into memory
            raise tarfile.ReadError(f"a header of {header.size:,} bytes")
        return header


def require_ratio(name: str, path: Path, num_bytes: int) -> None:
    """Refuse the archive at ``path``, which users know as ``name``, if ``num_bytes`` are too many for its size."""
    limit = MAX_RATIO * path.stat().st_size + MAX_FREE_BYTES
    if num_bytes > limit:
        raise SourceError(
            f"{name} expands to more than {MAX_RATIO} times its size: a decompression bomb",
            hint="If you trust it, extract it yourself, then add the folder.",
            details={"file": name, "limit": limit},
        )


class _Extraction:
    """Extracts one archive to a folder, with the names and the number of bytes so far."""

    def __init__(self, folder: Path, name: str, path: Path, *, shard: str) -> None:
        self._folder = folder
        self._shard = shard
        self._renamed: dict[str, str] = {}
        self._shown = name
        self._path = path
        self._num_bytes = 0
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def run(self, file: IO[bytes]) -> None:
        start = file.read(4)
        file.seek(0)
        if format_of(start) == "zip":
            self._extract_zip(file)
        else:
            self._extract_tar(file)

    def _extract_zip(self, file: IO[bytes]) -> None:
        with archive_errors(self._shown), zipfile.ZipFile(file) as archive:
            members = [(info, self._admit(info)) for info in archive.infolist()]
            check_free_space(str(self._folder), self._num_bytes, f"extracting {self._shown}")
            for member, name in members:
                if name is not None:
                    with archive.open(member) as content:
                        self._write(name, content)

    def _admit(self, member: zipfile.ZipInfo) -> str | None:
        """Check a member of a zip; returns the name of its file, or None for a folder."""
        path = member.filename.replace("\\", "/")  # some programs on Windows write backslashes
        if _DRIVE.match(path):
            raise _unsafe(self._shown, member.filename, "leads out of the folder")
        name = member_name(path, self._shown)
        if path.endswith("/") or name is None:
            return None
        if member.flag_bits & 1:
            raise SourceError(
                f"{self._shown} is encrypted",
                hint=f"Extract it, then add the folder: unzip {self._path} -d data",
                details={"file": self._shown},
            )
        mode = member.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            kind = "a link" if stat.S_ISLNK(mode) else "a device"
            raise _unsafe(self._shown, member.filename, f"is {kind}")
        return self._take(name, member.file_size)

    def _extract_tar(self, file: IO[bytes]) -> None:
        links: list[tuple[str, str]] = []
        with open_tar(file, self._shown) as archive:
            for member in tar_members(archive, self._shown):
                name = member_name(member.name, self._shown)
                if name is None or member.isdir():
                    continue
                name = self._take(name, member.size if member.isreg() else 0)
                if member.isreg():
                    check_free_space(str(self._folder), member.size, f"extracting {self._shown}")
                    with archive_errors(self._shown):
                        content = archive.extractfile(member)
                        if content is not None:
                            self._write(name, content)
                elif member.islnk() or member.issym():
                    links.append((name, self._target(name, member)))
                else:
                    raise _unsafe(self._shown, member.name, "is a device or pipe")
        # Last, so that no member is written through a link.
        for name, target in links:
            path = self._folder / name
            with storage_errors("write", str(path)):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.symlink_to(os.path.relpath(self._folder / self._renamed.get(target, target), path.parent))

    def _target(self, name: str, member: tarfile.TarInfo) -> str:
        """Return the name that a link points to.

        A hard link names a member; a symbolic link is relative to its own folder.
        """
        start = "" if member.islnk() else name.rpartition("/")[0]
        parts = [part for part in start.split("/") if part]
        for part in PurePosixPath(member.linkname).parts:
            if part == "/" or (part == ".." and not parts):
                raise _unsafe(
                    self._shown, member.name, f"is a link that leads out of the folder, to {member.linkname!r}"
                )
            if part == "..":
                parts.pop()
            else:
                parts.append(part)
        return "/".join(parts)

    def _take(self, name: str, num_bytes: int) -> str:
        """Register a file and its size.

        Returns the name to write, which differs if another shard has a file of that name.
        """
        if self._shard and name not in self._files and os.path.lexists(self._folder / name):
            folder, slash, last = name.rpartition("/")
            self._renamed[name] = name = f"{folder}{slash}{self._shard}-{last}"
        parents = [str(parent) for parent in PurePosixPath(name).parents][:-1]
        if name in self._files:
            raise _unsafe(self._shown, name, "occurs twice")
        if name in self._folders or not self._files.isdisjoint(parents):
            raise _unsafe(self._shown, name, "is both a file and a folder")
        self._files.add(name)
        self._folders.update(parents)
        self._num_bytes += num_bytes
        require_ratio(self._shown, self._path, self._num_bytes)
        return name

    def _write(self, name: str, content: IO[bytes]) -> None:
        path = self._folder / name
        with storage_errors("write", str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("xb")
        with file:
            while piece := content.read(_PIECE_BYTES):
                with storage_errors("write", str(path)):
                    file.write(piece)


def _folders_of(names: Sequence[str]) -> list[str]:
    """The folder that each archive is extracted to.

    >>> _folders_of(["train-000.tar", "train-001.tar", "val-000.tar"]), _folders_of(["00.tar", "01.tar"])
    (['train', 'train', 'val'], ['', ''])
    >>> _folders_of(["cat.tar", "dog.tar"]), _folders_of(["0.tar", "1.tar"])
    (['cat', 'dog'], ['0', '1'])
    """
    if len(names) == 1:
        return [""]
    stems = [_stem(name) for name in names]
    shared = [_SHARD.sub("", stem) for stem in stems]
    if len(set(shared)) < len(set(stems)) == len(names):
        return shared
    return [stem if stems.count(stem) == 1 else name for name, stem in zip(names, stems, strict=True)]


def _stem(name: str) -> str:
    result = max((extension for extension in EXTENSIONS if name.lower().endswith(extension)), key=len, default="")
    return name[: len(name) - len(result)] or name


def _unsafe(location: str, member: str, problem: str) -> SourceError:
    return SourceError(
        f"{location}: unsafe archive: the member {member[:200]!r} {problem}",
        hint="Extract it yourself and check what it contains, then add the folder.",
        details={"file": location, "member": member[:200]},
    )
