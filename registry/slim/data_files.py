"""Resolves data sources (paths, URLs, patterns and sharded names) to the list of files to read.

Sources are checked when a provider is created, because they are the most frequent mistake: a missing file, or a pattern
that matches nothing, is an error at once and not an empty stream later.
"""

from __future__ import annotations

import errno
import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from registry.errors import NotStoredError, StorageError, UsageError, WrongTypeError
from registry.features import FeaturesDict
from registry.storage import Store, expand_home, is_unfinished, open_parent, open_store, storage_errors

_WILD = re.compile(r"[*?\[]")
_SHARDED = re.compile(r"(?P<stem>.+)@(?P<count>[0-9]{1,5})", flags=re.DOTALL)
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file to read, or consecutive records in it, with the facts that a path does not contain.

    Attributes:
        store: the folder.
        filename: the name of the file in the folder.
        skip: number of records to skip at the start.
        take: number of records to read after them; None reads to the end.
        num_records: number of records in the file; None if it is unknown. Reading checks it.
        file_format: one of ``registry.shards.FILE_FORMATS``.
        features: the schema of the rows of a ``parquet_columns`` file; not needed for other formats.
        path: the name of the file in keys and errors; by default its location in the store.

    Raises:
        UsageError: ``skip`` or ``take`` is negative, or the file has too few records.
    """

    store: Store
    filename: str
    skip: int = 0
    take: int | None = None
    num_records: int | None = None
    file_format: str = "tfrecord"
    features: FeaturesDict | None = None
    path: str = ""

    def __post_init__(self) -> None:
        if not self.path:
            object.__setattr__(self, "path", self.store.locate(self.filename))
        stop = self.skip + (self.take or 0)
        if self.skip < 0 or (self.take or 0) < 0 or (self.num_records is not None and stop > self.num_records):
            raise UsageError(
                f"{self.path}: cannot skip {self.skip} and take {self.take} of {self.num_records} records",
                details={"path": self.path, "skip": self.skip, "take": self.take},
            )

    @property
    def is_plain(self) -> bool:
        """Whether its path is enough to read it: a whole TFRecord file, or a file in a reader's own format."""
        return self.skip == 0 and self.take is None and self.file_format == "tfrecord"


class PlannedFiles(tuple[DataFile, ...]):
    """The files of a plan. Unlike data sources that a user wrote, they may be empty: an empty slice has no records."""

    __slots__ = ()


def get_data_files(data_sources: Any) -> list[str]:
    """The paths of the files in ``data_sources``, in reading order.

    Follows ``get_data_files`` of ``tf_slim.data.parallel_reader``.

    Args:
        data_sources: a path; a URL that fsspec supports; a pattern with ``*``, ``?`` or ``[``, whose files are sorted;
            ``path@128``, which means ``path-00000-of-00128`` to ``path-00127-of-00128``; a ``DataFile``; or a list or
            tuple of these. A file with exactly this name takes precedence over a pattern or a sharded name.

    Raises:
        NotStoredError: files are missing; the message names them.
        UsageError: there are no data sources, or a pattern matches nothing.
        StorageError: a source is a folder, or its folder cannot be listed.
        WrongTypeError: a source has another type.
    """
    return [file.path for file in find_data_files(data_sources)]


def find_data_files(data_sources: Any) -> list[DataFile]:
    """The files in ``data_sources``, as values that can be opened. It raises the errors of ``get_data_files``."""
    missing: list[str] = []
    result = list(_find(data_sources, missing))
    if missing:
        named = ", ".join(missing[:_SHOWN]) + (f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else "")
        error = NotStoredError(
            f"no such data file: {named}" if len(missing) == 1 else f"{len(missing)} data files are missing: {named}",
            hint="Check the paths. A pattern such as folder/train-* reads the files that exist.",
            details={"paths": missing[:100], "errno": errno.ENOENT, "doing": "read"},
        )
        error.errno = errno.ENOENT
        raise error
    return result


def _find(source: Any, missing: list[str]) -> Iterator[DataFile]:
    if isinstance(source, DataFile):
        yield source
    elif isinstance(source, list | tuple):
        if not source and not isinstance(source, PlannedFiles):
            raise _nothing_in(source)
        for pattern in source:
            yield from _find(pattern, missing)
    else:
        text = os.fspath(source) if isinstance(source, str | os.PathLike) else None
        if not isinstance(text, str) or not text:
            raise WrongTypeError(
                f"{source!r:.100} is not a data source",
                hint="Pass a path, a URL, a pattern such as folder/train-*, path@128, or a list of these.",
            )
        yield from _find_path(text, missing)


def _find_path(text: str, missing: list[str]) -> Iterator[DataFile]:
    if (file := _literal(text)) is not None:
        yield file
    elif _WILD.search(text):
        matches = [match for path in _matches(text) if (match := _literal(path)) is not None]
        if not matches:
            raise _nothing_in(text)
        yield from matches
    elif sharded := _SHARDED.fullmatch(text):
        stem, count = sharded["stem"], int(sharded["count"])
        if not count:
            raise _nothing_in(f"{stem}@0")
        for path in (f"{stem}-{shard:05d}-of-{count:05d}" for shard in range(count)):
            if (file := _literal(path)) is not None:
                yield file
            else:
                missing.append(path)
    else:
        missing.append(text)


def _literal(text: str) -> DataFile | None:
    """The file of exactly this name; None if it does not exist.

    Raises:
        StorageError: it is a folder, or its path cannot be accessed.
    """
    if _is_remote(text):
        store, name = open_parent(text)
        if not name or not store.exists(name):
            return None
        return DataFile(store=store, filename=name, path=text)
    # As in a shell, ~name is an ordinary path if there is no such user.
    path = (text.startswith("file://") and open_store(text).local_root) or expand_home(text)
    with storage_errors("read", text):
        is_folder, is_there = path.is_dir(), path.exists()
    if is_folder:
        raise StorageError(
            f"{text} is a folder",
            hint=f"Give the files in it: {text.rstrip('/')}/*",
            details={"path": text, "errno": errno.EISDIR, "doing": "read"},
        )
    if not is_there:
        return None
    # A symbolic link may point anywhere, and a store reads only below its root, so the root is the real file's folder.
    real = path.resolve()
    return DataFile(store=open_store(real.parent), filename=real.name, path=text)


def _matches(pattern: str) -> list[str]:
    """The files that match a pattern, sorted, without folders and without files that are still being written."""
    if _is_remote(pattern):
        wild = _WILD.search(pattern)
        root = pattern[: wild.start() if wild else None].rpartition("/")[0]
        parts = pattern[len(root) + 1 :].split("/")
        names = [name.split("/") for name in open_store(root).list()]
        alike = [name for name in names if len(name) == len(parts) and all(map(fnmatchcase, name, parts))]
        return [f"{root}/{'/'.join(name)}" for name in alike]
    if pattern.startswith("file://"):
        return [Path(path).as_uri() for path in _matches(unquote(pattern.removeprefix("file://")))]
    result = glob.glob(str(expand_home(pattern)) if pattern.startswith("~") else pattern)  # noqa: PTH207 (./ is kept)
    return sorted(path for path in result if Path(path).is_file() and not is_unfinished(Path(path).name))


def _is_remote(text: str) -> bool:
    return "://" in text and not text.startswith("file://")


def _nothing_in(source: Any) -> UsageError:
    return UsageError(
        f"no data files found in {source if isinstance(source, str) else f'{source!r:.200}'}",
        hint="Check the folder and the pattern: * matches any part of a name, but no '/'.",
        details={"data_sources": str(source)[:1000]},
    )
