"""A builder whose inputs come in pieces, in a module that workers can import. Some inputs are commands.

``built`` builds any builder and discards the version.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from registry.building import DatasetBuilder, Pieces, build_dataset
from registry.features import FeaturesDict, Scalar, Text
from registry.storage import open_store

Input = tuple[str, int]


def generate(given: Input) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ``count`` examples that are made from ``name``; their texts have lengths from 0 to 99."""
    name, count = given
    if "PIECE_CALLS" in os.environ:
        with open(os.environ["PIECE_CALLS"], "a") as calls:  # noqa: PTH123 (appends of a line are not mixed)
            calls.write(f"{name}\n")
    for number in range(count):
        if name.startswith("fail") and number == count - 1 and not os.path.exists(os.environ.get("PIECE_REPAIRED", "")):  # noqa: PTH110
            raise ValueError(f"{name} is damaged")
        if name.startswith("die"):
            os.kill(os.getpid(), 9)
        key = number if name.startswith("twin") else f"{name} {number}"
        yield str(key), {"name": name, "number": number, "text": "x" * (number % 100)}


def generate_bad(given: Input) -> Iterator[tuple[str, dict[str, Any]]]:
    """As ``generate``, but the example before the last has a wrong feature."""
    for key, example in generate(given):
        yield key, example if example["number"] != given[1] - 2 else {**example, "number": "no number"}


def fail_in_some_way(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Fail as the number in ``path`` says."""
    number = int(path[-9:-4])
    if number < 2:
        open(path)  # noqa: PTH123, SIM115 (it does not exist)
    if number == 5:
        raise KeyError("price")
    yield "twice", {"name": "", "number": 0, "text": ""}
    if number < 4:
        raise ValueError(f"the table has too many columns: {number + 100} of them,\nof which {number} have no name")
    yield "twice", {"name": "", "number": 0, "text": ""}


class Pieced(DatasetBuilder):
    """Set ``inputs`` and call ``splits``: in pieces, or from one generator."""

    VERSION = "1.0.0"
    is_pieced = True
    inputs: Sequence[Input] = ()
    generate: Any = staticmethod(generate)

    def features(self) -> FeaturesDict:
        return FeaturesDict({"name": Text(), "number": Scalar("int64"), "text": Text()})

    def splits(self) -> Mapping[str, Any]:
        if self.is_pieced:
            return {"train": Pieces(self.inputs, self.generate)}
        return {"train": (pair for one in self.inputs for pair in self.generate(one))}


class PiecedInOrder(Pieced):
    """The same, stored in the order of the inputs."""

    DISABLE_SHUFFLING = True


class PiecedByNumber(Pieced):
    """The same with numbers as keys, which determine the order."""

    DISABLE_SHUFFLING = True

    def splits(self) -> Mapping[str, Any]:
        return {"train": Pieces(self.inputs, numbered)}


def numbered(given: Input) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the examples of ``generate`` under numbers: those of later inputs come first."""
    for number, (_, example) in enumerate(generate(given)):
        yield number - 1000 * int(given[0]), example


def built(builder: DatasetBuilder, folder: Path, **options: Any) -> Any:
    """The shards and fingerprints of a build, which is then discarded."""
    with build_dataset(builder, open_store(folder), **options) as build:
        return dict(build.shards), dict(build.folded.fingerprints)
