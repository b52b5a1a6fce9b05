"""A builder whose workers have little room on their disks until a file exists."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import registry
from registry.features import FeaturesDict, Scalar, Text

ROOM = 100_000
"""The size in bytes of the largest file that can be written if there is no room."""


class Filling(registry.DatasetBuilder):
    """Eight inputs, of which the sixth needs a larger file. There is room for it if ``folder`` has a file ``room``.

    The folder is not an attribute of the builder, because the names of runs depend on its attributes.
    """

    VERSION = "1.0.0"
    NUM_SHARDS = 2

    @property
    def folder(self) -> Path:
        """The folder in which the builder and the test leave notes for each other."""
        return Path(os.environ["REGISTRY_TEST_FOLDER"])

    def features(self) -> FeaturesDict:
        return FeaturesDict({"number": Scalar("int64"), "text": Text()})

    def splits(self) -> Mapping[str, Any]:
        return {"train": registry.Pieces([(piece, 1000 if piece == 5 else 20) for piece in range(8)], self.generate)}

    def generate(self, given: tuple[int, int]) -> Iterator[tuple[str, dict[str, Any]]]:
        piece, count = given
        (self.folder / f"process {os.getpid()}").touch()
        with (self.folder / "calls").open("a") as calls:
            calls.write(f"{piece}\n")
        if not (self.folder / "room").exists():
            _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, most))
        for number in range(count):
            yield f"{piece} {number}", {"number": number, "text": f"{piece} {number} " * 100}


def make_room(folder: Path) -> None:
    """Lift the limit of all processes that have called ``generate``."""
    (folder / "room").touch()
    for path in folder.glob("process *"):
        try:
            _, most = resource.prlimit(int(path.name.split()[1]), resource.RLIMIT_FSIZE)
            resource.prlimit(int(path.name.split()[1]), resource.RLIMIT_FSIZE, (most, most))
        except ProcessLookupError:
            path.unlink()
