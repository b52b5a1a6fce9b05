"""Notes which files a builder reads, so that a later run can tell whether its inputs are the same.

A builder may read anything. Python reports each file that it opens and each folder that it lists to audit hooks; their
stamps are compared later. What cannot be compared makes the result unknown: a connection to another machine, another
program, a file that changed meanwhile, or very many files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from registry.storage.names import is_unfinished

_MOST_FILES: Final = 1_000_000
_CODE: Final = (".py", ".pyc", ".pyd", ".so")
_SYSTEM: Final = ("/proc/", "/sys/", "/dev/")
_UNKNOWABLE: Final = frozenset(
    {"subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "sqlite3.connect", "registry.request"}
)
_LISTINGS: Final = frozenset({"os.listdir", "os.scandir"})
_WORKER: Final = "from registry.engines.workers import"
_EVENTS: Final = _UNKNOWABLE | _LISTINGS | {"open", "socket.connect"}

_watching: list[Witness] = []
_is_installed = False


class Witness:
    """The files that the code of an author reads in one or more blocks. A context manager.

    Code is left out: ``builder_code`` compares it.

    Attributes:
        has_workers: worker processes were started, whose files are not noted.
    """

    def __init__(self) -> None:
        self._read: dict[str, str] = {}
        self._written: set[str] = set()
        self._is_unknown = False
        self.has_workers = False
        self._ignored: tuple[str, ...] = _SYSTEM

    def ignore(self, folder: str) -> None:
        """Leave out what is in ``folder``, which this process fills."""
        self._ignored += (folder,)

    def __enter__(self) -> Self:
        global _is_installed  # noqa: PLW0603 (a process cannot remove an audit hook, so it installs one)
        if not _is_installed:
            _is_installed = True
            sys.addaudithook(_hook)
        _watching.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _watching.remove(self)

    def stamps(self) -> dict[str, str] | None:
        """The stamp of each file and folder that was read, by path; None if the inputs cannot be compared later."""
        if self._is_unknown:
            return None
        result = {path: stamp for path, stamp in self._read.items() if path not in self._written}
        return result if are_unchanged(result) else None

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note what an audit event reports."""
        if event == "open":
            path, mode, flags = arguments
            is_read = not flags & (os.O_WRONLY | os.O_RDWR) and "w" not in (mode or "") and "a" not in (mode or "")
            self._note_path(path, is_read=is_read)
        elif event in _LISTINGS:
            self._note_path(arguments[0] if arguments[0] is not None else os.curdir, is_read=True)
        elif event == "socket.connect":
            self._is_unknown |= isinstance(arguments[1], tuple)  # not a socket of this machine, which has a path
        elif event in _UNKNOWABLE:
            is_worker = event == "subprocess.Popen" and _WORKER in str(arguments[1])  # the caller knows what they open
            self.has_workers |= is_worker
            self._is_unknown |= not is_worker

    def _note_path(self, path: Any, *, is_read: bool) -> None:
        if isinstance(path, int):
            return
        try:
            name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 (links stay: they may be changed, too)
        except (TypeError, ValueError):
            return
        if name.endswith(_CODE) or name.startswith(self._ignored) or any(map(is_unfinished, Path(name).parts)):
            return
        if not is_read:
            self._written.add(name)
        elif name not in self._read:
            self._read[name] = stamp_of(name)
            self._is_unknown |= len(self._read) > _MOST_FILES


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event in _EVENTS and not sys._getframe(1).f_code.co_filename.startswith("<frozen importlib"):
        for witness in _watching:
            witness.note(event, arguments)


def stamp_of(path: str) -> str:
    """A text that differs if a file was changed or replaced, or if a folder has other names in it.

    It contains the ctime, which programs cannot set back. A path that does not exist has a stamp, too.
    """
    try:
        facts = os.stat(path)  # noqa: PTH116 (called for each file that is opened)
    except OSError:
        return "missing"
    return f"{facts.st_dev} {facts.st_ino} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}"


def are_unchanged(stamps: Mapping[str, str]) -> bool:
    """Whether every path still has its stamp."""
    return all(stamp_of(path) == stamp for path, stamp in stamps.items())


def stamps_below(path: Path) -> dict[str, str] | None:
    """The stamps of a file, or of a folder and all that is in it; None if it has very many files."""
    top = os.path.abspath(path)  # noqa: PTH100 (links stay: they may be changed, too)
    result = {top: stamp_of(top)}
    try:
        for folder, folders, files in os.walk(top):
            for name in (*folders, *files):
                inside = os.path.join(folder, name)  # noqa: PTH118 (faster for many files)
                result[inside] = stamp_of(inside)
            if len(result) > _MOST_FILES:
                return None
    except RecursionError:  # of folders that are nested too deeply for os.walk
        return None
    return result
