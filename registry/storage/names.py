"""Names inside a store, and the processes that own unfinished files.

Checks that a relative name stays inside its store, makes and recognizes the names of unfinished files and folders, and
tells whether the process that wrote one has ended (``Owner``). Nothing here knows a store.
"""

from __future__ import annotations

import os
import platform
import re
import secrets
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

from registry.errors import StorageError

OWNER_FILE: Final = ".owner.json"
"""Who is writing a staged folder; see ``store``. Never listed as content."""

MARKER_FILE: Final = ".reservation.json"
"""Which catalog holds a version's place in an object store until its row is written. Never listed as content."""

OBJECT_SCHEMES: Final = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az"}
"""The schemes of URLs that lead to object stores, and which kind each of them is."""

_OWN = re.compile(r"incomplete\.[0-9a-f]{8}(?P<owner>p[0-9a-f]+t[0-9]*)?_.*", flags=re.DOTALL)
_UNFINISHED = re.compile(r"incomplete\.[0-9A-Za-z]+_.*", flags=re.DOTALL)


def check_relative_name(name: str) -> str:
    """``name`` if it names something below a store's root: parts joined by ``/``, none of them empty, ``.`` or ``..``.

    A backslash is refused too: it separates folders on one system and is a letter on the next.

    >>> check_relative_name("1.0.0/features.json")
    '1.0.0/features.json'

    Raises:
        StorageError: the name is empty, absolute, or could leave the root.
    """
    parts = name.split("/")
    if "\0" in name or "\\" in name or any(part in ("", ".", "..") for part in parts):
        raise StorageError(
            f"{name[:200]!r} does not name a file inside its store",
            hint="Names are relative to the store: parts joined by '/', without '..', '.' or a leading '/'.",
            details={"path": name[:200]},
        )
    return name


def check_folder_name(name: str) -> str:
    """Like ``check_relative_name``, and ``""`` names the root."""
    return name and check_relative_name(name)


def new_unfinished_name(last_part: str) -> str:
    """A fresh name ``incomplete.<8 hex>_<last part>``, the form that TFDS ignores too.

    The last part is shortened where the whole would be longer than file systems allow (255 bytes).
    """
    shortened = last_part.encode("utf-8", "surrogateescape")[:230].decode("utf-8", "ignore")
    return f"incomplete.{secrets.token_hex(4)}_{shortened}"


def new_unfinished_file(last_part: str, owner: str) -> str:
    """As ``new_unfinished_name``, for a file: ``incomplete.<8 hex><owner>_<last part>``, with the mark of its owner.

    A folder holds a file that says who writes it; for a file only its name can.
    """
    shortened = last_part.encode("utf-8", "surrogateescape")[:180].decode("utf-8", "ignore")
    return f"incomplete.{secrets.token_hex(4)}{owner}_{shortened}"


def owner_of_file(part: str) -> str | None:
    """The mark of the owner in a name that ``new_unfinished_file`` made, or None.

    >>> owner_of_file("incomplete.0a1b2c3dp00aat17_paper.tar"), owner_of_file("incomplete.0a1b2c3d_1.0.0")
    ('p00aat17', None)
    """
    found = _OWN.fullmatch(part)
    return None if found is None else found["owner"]


def is_unfinished(part: str) -> bool:
    """Whether one part of a name marks a file or folder that is still being written, or was left by a dead process.

    >>> is_unfinished("incomplete.0a1b2c3d_1.0.0"), is_unfinished("1.0.0")
    (True, False)
    """
    return _UNFINISHED.fullmatch(part) is not None


def is_own_staged(part: str) -> bool:
    """Whether ``new_unfinished_name`` or ``new_unfinished_file`` made this name: TFDS's have another form.

    >>> is_own_staged("incomplete.0a1b2c3d_1.0.0"), is_own_staged("incomplete.AB12CD_1.0.0")
    (True, False)
    """
    return _OWN.fullmatch(part) is not None


def is_content(name: str) -> bool:
    """Whether a relative file name belongs to what is stored: no part is unfinished, no owner file, no marker."""
    parts = name.split("/")
    return parts[-1] not in (OWNER_FILE, MARKER_FILE) and not any(map(is_unfinished, parts))


_MARK = re.compile(r"p(?P<place>[0-9a-f]{8})(?P<boot>[0-9a-f]{8})(?P<pid>[0-9a-f]{1,8})t(?P<started>[0-9]{0,20})")


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
        return replace(self, pid=0, started="") == replace(Owner.this_process(), pid=0, started="")

    def is_dead(self) -> bool:
        """Whether this process is known to have ended. False in every case of doubt."""
        here = Owner.this_process()
        if (self.host, self.machine) != (here.host, here.machine):
            return False
        if self.boot != here.boot:
            return bool(self.boot and here.boot)
        if self.namespace != here.namespace:
            return False
        return _has_ended(self.pid, self.started)

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
        return _has_ended(int(found["pid"], 16), found["started"])

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


def _has_ended(pid: int, started: str) -> bool:
    return not _is_running(pid) or (bool(started) and _start_of(pid) not in ("", started))


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
