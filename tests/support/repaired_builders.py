"""A builder with an input that fails until a file exists, so that a second build with the same code succeeds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from registry.building import DatasetBuilder, Pieces
from registry.features import FeaturesDict, Scalar, Text

INPUTS = ("a", "b", "damaged", "c")


def generate(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Forty examples. ``damaged`` fails before the last one, unless the file in ``PIECE_REPAIRED`` exists."""
    for number in range(40):
        if name == "damaged" and number == 39 and not Path(os.environ["PIECE_REPAIRED"]).exists():
            raise ValueError("it is damaged")
        yield f"{name} {number}", {"number": number, "text": name * number}


class Repaired(DatasetBuilder):
    """Four inputs, of which one fails at first."""

    VERSION = "1.0.0"
    NUM_SHARDS = 2

    def features(self) -> FeaturesDict:
        """A number and a text."""
        return FeaturesDict({"number": Scalar("int64"), "text": Text()})

    def splits(self) -> Mapping[str, Any]:
        """One split."""
        return {"train": Pieces(INPUTS, generate)}
