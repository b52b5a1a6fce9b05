"""What did a process leave that died while it gave its files their names? A note of what it had begun, to be ended.

When the note is there, all files of the new export are complete in the staged folder, so what was begun is ended: files
of the export that is replaced go, and the others get their names. Whoever writes to the folder next does so first.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from registry.builders.earth_engine.exporting.prefixes import check_image_prefix, find_files
from registry.errors import StorageError, UsageError
from registry.storage import StagedFolder, Store
from registry.storage.staging import abandoned_folders

_NOTE: Final = "commit.json"
_MOST_BYTES: Final = 10_000
_SUFFIXES: Final = (".tfrecord", ".tfrecord.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunCommit:
    """Which files an export has: staged as ``00000``, ``00001``, ..., and ``mixer.json``.

    Attributes:
        prefix, suffix: of their names.
        count: files of records.
        mixer: whether there is one.
    """

    prefix: str
    suffix: str
    count: int
    mixer: bool

    @property
    def filenames(self) -> list[str]:
        """The files of records by the names they get."""
        return [f"{self.prefix}-{number:05}{self.suffix}" for number in range(self.count)]

    @property
    def mixer_name(self) -> str | None:
        """The name that the sidecar gets."""
        return f"{self.prefix}-mixer.json" if self.mixer else None

    def moves(self, folder: str) -> list[tuple[str, str]]:
        """The files in the staged ``folder`` with the names they get: the first and the mixer last."""
        pairs = [(f"{folder}/{number:05}", name) for number, name in enumerate(self.filenames)]
        sidecar = [(f"{folder}/mixer.json", name) for name in [self.mixer_name] if name is not None]
        return pairs[1:][::-1] + pairs[:1] + sidecar

    def note(self, folder: StagedFolder) -> None:
        """Write down in the staged folder that the names are given from now on."""
        with folder.store.create(_NOTE) as file:
            file.write(json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, store: Store, folder: str) -> BegunCommit | None:
        """The note in a staged folder; None where there is none, or it is none of ours."""
        try:
            content: Any = json.loads(store.read_bytes(f"{folder}/{_NOTE}", limit=_MOST_BYTES))
            made = cls(**content)
            is_ours = (
                check_image_prefix(made.prefix).rpartition("/")[0] == folder.rpartition("/")[0]
                and made.suffix in _SUFFIXES
                and type(made.count) is int
                and type(made.mixer) is bool
            )
        except (StorageError, UsageError, ValueError, TypeError, AttributeError, RecursionError):
            return None
        return made if is_ours else None


def end_begun(store: Store, parent: str) -> None:
    """End what dead processes had begun in the folder ``parent``, which the caller has locked."""
    for folder in abandoned_folders(store, parent):
        begun = BegunCommit.read(store, folder)
        if begun is None:
            continue
        found = find_files(store, begun.prefix)
        if begun.count > len(store.child(folder).list()) + len(found):  # a note may say anything
            continue
        moves = begun.moves(folder)
        left = {name: staged for staged, name in moves if store.exists(staged)}
        if not left or not all(name in left or store.exists(name) for _, name in moves):
            continue  # it was done; or these are not all of its files
        names = {name for _, name in moves}
        for name in found:
            if name in left or name not in names:
                store.remove_tree(name)
        for staged, name in moves:
            if name in left:
                store.move(staged, name)
