"""A builder that counts how often its records are made. A process without pytest can import it.

It is outside the package ``support``: a build depends on all files of the package of its builder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from registry import DatasetBuilder, Pieces
from registry.features import FeaturesDict, Image

CALLS: list[str] = []


class Read(DatasetBuilder):
    """Reads its numbers from a file that an attribute names."""

    VERSION = "1.0.0"

    def __init__(self, *arguments: Any, path: Path | None = None, scale: int = 1, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.source = path
        self.scale = scale

    def features(self) -> FeaturesDict:
        return FeaturesDict({"number": "int64"})

    def splits(self) -> dict[str, Any]:
        return {"train": self.examples()}

    def examples(self) -> Iterator[tuple[int, dict[str, int]]]:
        CALLS.append("train")
        numbers = range(3) if self.source is None else map(int, self.source.read_text().split())
        yield from ((place, {"number": number * self.scale}) for place, number in enumerate(numbers))


class ReadInWorkers(Read):
    """Reads a file that no argument names, in the process that generates or encodes."""

    name = "read"

    def splits(self) -> dict[str, Any]:
        return {"train": Pieces([0, 1], read_numbers)}


def read_numbers(piece: int) -> Iterator[tuple[int, dict[str, int]]]:
    yield piece, {"number": int(Path("numbers.txt").read_text())}


class Pictures(Read):
    """Its values are paths."""

    name = "read"

    def features(self) -> FeaturesDict:
        return FeaturesDict({"number": Image(shape=(1, 1, 1))})

    def examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for place in range(4):
            yield place, {"number": Path("n.png")}
