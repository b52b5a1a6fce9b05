"""Names of unfinished files and folders in a store, and the processes that own them.

Makes and recognizes these names, and tells whether the process that wrote such a file has ended (``Owner``). Every kind
of store uses it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

OWNER_FILE: Final = ".owner.json"
"""The file that names the process that writes a staged folder; see ``store``. Never listed as content."""

FINISHED_FILE: Final = ".finished.json"
"""The file that describes finished shards in a staged folder; see ``building.finished``. Never listed as content."""

MARKER_FILE: Final = ".reservation.json"
"""The file that names the catalog that reserves a version's place in an object store. Never listed as content."""

RUNS_SUFFIX: Final = ".runs"
"""The end of the name of an unfinished folder from which a later build continues; only ``registry gc`` removes it."""

OBJECT_SCHEMES: Final = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az"}
"""The URL schemes of object stores, and the kind of store of each."""

_OWN = re.compile(r"incomplete\.[0-9a-f]{8}(?P<owner>p[0-9a-f]+t[0-9]*)?_.*", flags=re.DOTALL)
_UNFINISHED = re.compile(r"incomplete\.[0-9A-Za-z]+_.*", flags=re.DOTALL)


def new_unfinished_name(last_part: str) -> str:
    """Make a fresh name ``incomplete.<8 hex>_<last part>``, a form that TFDS ignores too.

    The last part is shortened if the name would be longer than file systems allow (255 bytes).
    """
    shortened = last_part.encode("utf-8", "surrogateescape")[:230].decode("utf-8", "ignore")
    return f"incomplete.{os.urandom(4).hex()}_{shortened}"


def new_unfinished_file(last_part: str, owner: str) -> str:
    """Make a fresh name for a file: ``incomplete.<8 hex><owner>_<last part>``, with the mark of its owner.

    A staged folder contains an owner file; a single file can name its owner only in its own name.
    """
    shortened = last_part.encode("utf-8", "surrogateescape")[:180].decode("utf-8", "ignore")
    return f"incomplete.{os.urandom(4).hex()}{owner}_{shortened}"


def owner_of_file(part: str) -> str | None:
    """Return the owner's mark in a name that ``new_unfinished_file`` made, or None.

    >>> owner_of_file("incomplete.0a1b2c3dp00aat17_paper.tar"), owner_of_file("incomplete.0a1b2c3d_1.0.0")
    ('p00aat17', None)
    """
    match = _OWN.fullmatch(part)
    return None if match is None else match["owner"]


def is_unfinished(part: str) -> bool:
    """Whether one part of a name marks a file or folder that is being written, or that a dead process has left.

    >>> is_unfinished("incomplete.0a1b2c3d_1.0.0"), is_unfinished("1.0.0")
    (True, False)
    """
    return _UNFINISHED.fullmatch(part) is not None


def is_own_staged(part: str) -> bool:
    """Whether ``new_unfinished_name`` or ``new_unfinished_file`` made this name; TFDS's names have another form.

    >>> is_own_staged("incomplete.0a1b2c3d_1.0.0"), is_own_staged("incomplete.AB12CD_1.0.0")
    (True, False)
    """
    return _OWN.fullmatch(part) is not None


def is_content(name: str) -> bool:
    """Whether a relative file name is stored content: not unfinished, and no note of a publisher."""
    parts = name.split("/")
    return parts[-1] not in (OWNER_FILE, MARKER_FILE, FINISHED_FILE) and not any(map(is_unfinished, parts))


_MARK = re.compile(r"p(?P<place>[0-9a-f]{8})(?P<boot>[0-9a-f]{8})(?P<pid>[0-9a-f]{1,8})t(?P<started>[0-9]{0,20})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One process of one machine, distinguished from a later process with the same number.

    Attributes:
        host, machine: the machine's name and its id; two machines with the same name may share a disk.
        boot: id of the machine's present boot, or ``""`` if the system has no such id. After a restart every owner is
            dead.
        namespace: namespace of the process number, or ``""`` if unknown; each container counts from 1.
        pid, started: the process number, and the start time in the system's own unit, or ``""`` if unknown.
    """

    host: str
    machine: str
    boot: str
    namespace: str
    pid: int
    started: str

    @classmethod
    def this_process(cls) -> Owner:
        """Describe the running process."""
        import platform  # These modules are slow to import, and only publishers need them.
        import uuid

        pid = os.getpid()
        return cls(
            host=platform.node(),  # Not socket.getfqdn(), because code that must not open a socket also names files.
            machine=_read_line("/etc/machine-id") or f"{uuid.getnode():012x}",
            boot=_read_line("/proc/sys/kernel/random/boot_id"),
            namespace=_read_link("/proc/self/ns/pid"),
            pid=pid,
            started=_start_of(pid),
        )

    def is_of_this_machine(self) -> bool:
        """Whether it is, or was, a process of this machine, boot and namespace; ``is_dead`` is then certain."""
        return replace(self, pid=0, started="") == replace(Owner.this_process(), pid=0, started="")

    def is_dead(self) -> bool:
        """Whether this process is known to have ended. False in case of doubt."""
        here = Owner.this_process()
        if (self.host, self.machine) != (here.host, here.machine):
            return False
        if self.boot != here.boot:
            return bool(self.boot and here.boot)
        if self.namespace != here.namespace:
            return False
        return _has_ended(self.pid, self.started)

    def can_judge(self, mark: str) -> bool:
        """Whether ``mark`` belongs to this machine, boot and namespace, so that ``knows_dead`` is certain."""
        match = _MARK.fullmatch(mark)
        return match is not None and (match["place"], match["boot"]) == (self._place_mark(), _short(self.boot))

    def mark(self) -> str:
        """Describe this process in a few letters and digits for file names: ``p<place><boot><pid>t<started>``."""
        return f"p{self._place_mark()}{_short(self.boot)}{self.pid:x}t{self.started}"

    def knows_dead(self, mark: str) -> bool:
        """Whether the process with the given ``mark`` is known to have ended. False in case of doubt."""
        match = _MARK.fullmatch(mark)
        if match is None or match["place"] != self._place_mark():
            return False
        if match["boot"] != _short(self.boot):
            return _short("") not in (match["boot"], _short(self.boot))
        return _has_ended(int(match["pid"], 16), match["started"])

    def _place_mark(self) -> str:
        return _short("\0".join((self.host, self.machine, self.namespace)))


def clear_abandoned_files(folder: str) -> None:
    """Remove the unfinished files that killed processes left directly in a local folder.

    Files that cannot be listed or removed stay: the next write to the folder reports the fault.
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
    if os.name == "nt":  # on Windows, os.kill(pid, 0) would end the process
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _start_of(pid: int) -> str:
    """Start time of a process, in clock ticks since boot (proc(5), field 22), or "" if unknown."""
    fields = _read_line(f"/proc/{pid}/stat").rpartition(")")[2].split()  # the name, in brackets, may contain spaces
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
