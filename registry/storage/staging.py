"""How does a folder of many files become visible at once? It is filled under another name, then renamed.

    store.stage("mnist/1.0.0")  ->  mnist/incomplete.5f0a9c31_1.0.0/  ->  .commit()  ->  mnist/1.0.0/

While it is filled, an owner file in it says which process does so, on which machine. A later run clears folders whose
owner is dead, and never one whose owner lives, or may live: a folder of another machine, or with files and without an
owner file, stays. A single file that is being written has the mark of its owner in its name, and is cleared alike.
"""

from __future__ import annotations

import json
import os
import platform
import re
import uuid
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from registry.errors import LeftoverWarning, NotStoredError, StorageError
from registry.storage.names import (
    OWNER_FILE,
    check_folder_name,
    check_relative_name,
    is_own_staged,
    is_unfinished,
    new_unfinished_name,
    owner_of_file,
)

if TYPE_CHECKING:
    from registry.storage.store import Store


_ATTEMPTS: Final = 10
_MARK = re.compile(r"p(?P<place>[0-9a-f]{8})(?P<boot>[0-9a-f]{8})(?P<pid>[0-9a-f]{1,8})t(?P<started>[0-9]{0,20})")


class StagedFolder:
    """A folder being filled beside the name it will have. Leaving its ``with`` block without ``commit`` discards it.

    Attributes:
        store: rooted at the staged folder; what is written there is published by ``commit``.
        name: the staged folder's name, relative to the store that staged it.
        final: the name it will have.
    """

    def __init__(self, parent: Store, *, name: str, final: str) -> None:
        self._parent = parent
        self._open = True
        self.name = name
        self.final = final
        self.store = parent.child(name)

    def commit(self) -> None:
        """Make the folder visible under its final name, complete and on disk.

        On this machine's disks that is one rename. An object store has none: there the files are copied, one visible
        after the other, then the staged ones removed; whoever goes by the catalog sees none of them before its row.

        Raises:
            FolderExistsError: something is stored under the final name. The staged folder is left as it is.
            StorageError: the folder was committed or discarded before.
        """
        if not self._open:
            raise StorageError(
                f"{self._parent.locate(self.name)} was committed or discarded before",
                hint="Stage a new folder.",
                details={"path": self._parent.locate(self.name)},
            )
        self._parent.publish_folder(self.name, self.final)
        self._open = False

    def discard(self) -> None:
        """Remove the folder and all that is in it; after ``commit`` or another ``discard``, nothing."""
        if self._open:
            self._open = False
            self._parent.remove_tree(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_up()

    def give_up(self) -> None:
        """``discard``, at the end of the work: what cannot be removed is a warning, for the work was done, or failed.

        The error that ended the work stays the one that is told.
        """
        try:
            self.discard()
        except StorageError as error:
            warn_of_leftover(self._parent.locate(self.name), error)


def stage_folder(store: Store, final: str) -> StagedFolder:
    """Make a staged folder for ``final``, with this process as its owner."""
    parent, _, last_part = check_relative_name(final).rpartition("/")
    for attempt in range(1, _ATTEMPTS + 1):
        name = f"{parent}/{new_unfinished_name(last_part)}" if parent else new_unfinished_name(last_part)
        try:
            with store.create(f"{name}/{OWNER_FILE}") as file:
                file.write(json.dumps(asdict(Owner.this_process()), sort_keys=True).encode())
        except NotStoredError:  # a rival took the empty folder for a dead process's and removed it: once more
            if attempt == _ATTEMPTS:
                raise
        else:
            break
    return StagedFolder(store, name=name, final=final)


def warn_of_leftover(place: str, error: StorageError) -> None:
    """Warn that files which nobody needs could not be removed."""
    warnings.warn(
        f"{place} is not needed any more and could not be removed ({error.message}); a later run removes it",
        LeftoverWarning,
        stacklevel=2,
    )


def abandoned_folders(store: Store, parent: str) -> Iterator[str]:
    """The staged folders directly in ``parent`` whose owner is dead, relative to the store."""
    prefix = f"{check_folder_name(parent)}/" if parent else ""
    for folder in filter(is_unfinished, store.folders(parent)):
        owner = _read_owner(store, f"{prefix}{folder}/{OWNER_FILE}")
        if owner is not None and owner.is_dead():
            yield prefix + folder


def clear_abandoned(store: Store, parent: str) -> list[str]:
    """Remove the staged folders directly in ``parent`` whose owner is dead; their names, relative to the store.

    One that cannot be removed is left, with a warning: nobody reads it, and the work can go on.
    """
    prefix = f"{check_folder_name(parent)}/" if parent else ""
    removed = []
    for folder in store.folders(parent):
        if is_unfinished(folder):
            owner = _read_owner(store, f"{prefix}{folder}/{OWNER_FILE}")
            if owner is not None and owner.is_dead():
                try:
                    store.remove_tree(prefix + folder)
                except StorageError as error:
                    warn_of_leftover(store.locate(prefix + folder), error)
                else:
                    removed.append(prefix + folder)
            elif owner is None and is_own_staged(folder) and store.remove_stump(prefix + folder):
                removed.append(prefix + folder)
    return removed


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One process of one machine, told apart from a later one that was given the same number.

    Attributes:
        host, machine: the machine's name and its own id; two machines of one name may share a disk.
        boot: id of the machine's present run, ``""`` where the system has none. After a restart every owner is dead.
        namespace: the process numbers' namespace, ``""`` where unknown: containers count from 1 each.
        pid, started: the process number and when it was started, in the system's own unit, ``""`` where unknown.
    """

    host: str
    machine: str
    boot: str
    namespace: str
    pid: int
    started: str

    @classmethod
    def this_process(cls) -> Owner:
        """The running process."""
        pid = os.getpid()
        return cls(
            host=platform.node(),  # the name alone: code that may open no socket names its files, too
            machine=_read_line("/etc/machine-id") or f"{uuid.getnode():012x}",
            boot=_read_line("/proc/sys/kernel/random/boot_id"),
            namespace=_read_link("/proc/self/ns/pid"),
            pid=pid,
            started=_start_of(pid),
        )

    def is_of_this_machine(self) -> bool:
        """Whether it is, or was, a process that can be looked for here: ``is_dead`` is certain then."""
        here = Owner.this_process()
        return (self.host, self.machine, self.boot, self.namespace) == (
            here.host,
            here.machine,
            here.boot,
            here.namespace,
        )

    def is_dead(self) -> bool:
        """Whether this process is known to have ended. False in every case of doubt."""
        here = Owner.this_process()
        if (self.host, self.machine) != (here.host, here.machine):
            return False
        if self.boot != here.boot:
            return bool(self.boot and here.boot)
        if self.namespace != here.namespace:
            return False
        return not _is_running(self.pid) or (bool(self.started) and _start_of(self.pid) not in ("", self.started))

    def mark(self) -> str:
        """This process in few letters and digits, for names of files: ``p<place><boot><pid>t<started>``."""
        return f"p{self._place_mark()}{_short(self.boot)}{self.pid:x}t{self.started}"

    def knows_dead(self, mark: str) -> bool:
        """Whether the process of another ``mark`` is known, from this one, to have ended. False in case of doubt."""
        found = _MARK.fullmatch(mark)
        if found is None or found["place"] != self._place_mark():
            return False
        if found["boot"] != _short(self.boot):
            return _short("") not in (found["boot"], _short(self.boot))
        pid = int(found["pid"], 16)
        return not _is_running(pid) or (bool(found["started"]) and _start_of(pid) not in ("", found["started"]))

    def _place_mark(self) -> str:
        return _short("\0".join((self.host, self.machine, self.namespace)))


def clear_abandoned_files(folder: str) -> None:
    """Remove the unfinished files directly in a folder of this machine that killed processes left there.

    What cannot be listed or removed stays: whoever writes there next is told.
    """
    here = None
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if (mark := owner_of_file(entry.name)) is not None and entry.is_file(follow_symlinks=False):
                here = here or Owner.this_process()
                if here.knows_dead(mark):
                    with suppress(OSError):
                        Path(entry.path).unlink()


def _short(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()


def _read_owner(store: Store, name: str) -> Owner | None:
    """The owner of a staged folder, or None where its file is missing or is not ours."""
    try:
        content: Any = json.loads(store.read_bytes(name, limit=10_000))
        owner = Owner(**content)
    except (StorageError, ValueError, TypeError, RecursionError):  # a folder of TFDS's own, or one being removed
        return None
    texts = (owner.host, owner.machine, owner.boot, owner.namespace, owner.started)
    if not all(isinstance(text, str) for text in texts) or type(owner.pid) is not int or owner.pid <= 0:
        return None
    return owner


def _is_running(pid: int) -> bool:
    if Path("/proc/self").is_dir():
        return Path(f"/proc/{pid}").is_dir()
    if os.name == "nt":  # os.kill(pid, 0) is no question there
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _start_of(pid: int) -> str:
    """When the process was started, in clock ticks since the machine's start (proc(5), field 22); "" where unknown."""
    fields = _read_line(f"/proc/{pid}/stat").rpartition(")")[2].split()  # the name, in brackets, may hold anything
    return fields[19] if len(fields) > 19 else ""


def _read_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _read_link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
