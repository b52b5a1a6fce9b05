"""Which files hold the predictions, in which order, and which mixer lies beside them?"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from os import PathLike, fspath
from typing import Any, TypeAlias

from registry.builders.earth_engine.places.mixer_source import FoundMixer, read_mixer_file
from registry.builders.earth_engine.stored.found_files import FoundExport, find_export
from registry.errors import PreparedFormatError, UsageError
from registry.storage import Store, open_store

Files: TypeAlias = Sequence[tuple[Store, str]]

_MIXER = re.compile(r"(.*?)-?mixer\.json", re.I | re.S)


def is_path(value: Any) -> bool:
    """Whether it is a path or URL, and not patches."""
    return isinstance(value, str | PathLike)


def are_files(value: Any) -> bool:
    """Whether it names files: a path, a list of paths, or an export that was found."""
    if is_path(value) or isinstance(value, FoundExport):
        return True
    return isinstance(value, list | tuple) and bool(value) and all(map(is_path, value))


def find_files(source: Any, *, prefix: str | None = None) -> tuple[Files, FoundMixer | None]:
    """The files that a folder, a prefix, a file or a list of files names, and the mixer beside them if there is one.

    A folder, a file of an export, or the beginning of a path that an export's files have, is searched: files are
    ordered by their numbers, and none may be missing. A list is taken as it is; a mixer may be among it.

    Raises:
        PreparedFormatError: no files, lost ones, doubled ones.
        UsageError: several exports in one folder, several mixers in a list, or ``prefix`` with a list.
        StorageError: the folder cannot be read.
    """
    if not isinstance(source, FoundExport) and not is_path(source):
        if prefix is not None:
            raise UsageError(
                "prefix says which files of a folder are meant, and here files are listed",
                hint="Leave prefix out, or give the folder.",
                details={"option": "prefix"},
            )
        listed = [split_path(fspath(path)) for path in source]
        files = [(store, name) for store, name in listed if not _MIXER.fullmatch(name)]
        mixers = [(store, name) for store, name in listed if _MIXER.fullmatch(name)]
        if not files or len(mixers) > 1:
            raise UsageError(
                f"the list holds {len(mixers)} mixers" if files else "the list holds no file of records",
                hint="List the files of one export in their order, with its mixer or without.",
                details={"files": [store.locate(name) for store, name in listed[:100]]},
            )
        return files, read_mixer_file(*mixers[0]) if mixers else _mixer_beside(*files[0])
    found = source if isinstance(source, FoundExport) else _find(fspath(source), prefix)
    mixer = None if found.mixer_name is None else read_mixer_file(found.store, found.mixer_name)
    return [(found.store, name) for name in found.filenames], mixer


def split_path(text: str) -> tuple[Store, str]:
    """The folder of a file, and its name.

    Raises:
        PreparedFormatError: the path ends with a slash.
    """
    if "://" not in text:
        text = os.path.expanduser(text)  # noqa: PTH111 - text stays text: "~" of nobody is a name, and no error
    folder, slash, name = text.rpartition("/")
    if not name:
        raise PreparedFormatError(f"{text!r} names a folder, and no file", details={"path": text})
    return open_store(folder + slash if folder in ("", "file://") and slash else folder or "."), name


def _find(text: str, prefix: str | None) -> FoundExport:
    if prefix is None and not text.endswith("/"):
        store, name = split_path(text)
        if not store.exists(name) and any(file.startswith(name) for file in store.list() if "/" not in file):
            return find_export(store, prefix=name.removesuffix("-"))
    return find_export(text, prefix=prefix)


def _mixer_beside(store: Store, filename: str) -> FoundMixer | None:
    """The mixer that lies beside a file and begins as its name does; of several, the one of the longest prefix."""
    folder, slash, last = filename.rpartition("/")
    known = [
        (match[1], name)
        for name in store.list(folder)
        if (match := _MIXER.fullmatch(name.removeprefix(folder + slash))) and last.startswith(match[1])
    ]
    return read_mixer_file(store, max(known)[1]) if known else None
