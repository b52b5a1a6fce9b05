"""Builders in pieces of several kinds, in a module that workers can import. Their inputs take time, so that they can be
interrupted."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import registry
from registry.features import FeaturesDict, Image, Scalar, Sequence, Text

Generated = Iterator[tuple[str, dict[str, Any]]]


class Pieced(registry.DatasetBuilder):
    """Examples with texts; ``COUNTS`` are the numbers of examples of the inputs."""

    VERSION = "1.0.0"
    NUM_SHARDS = 3
    COUNTS: ClassVar[tuple[int, ...]] = (100,) * 30
    SECONDS: ClassVar[float] = 0.0
    is_pieced = True

    def features(self) -> FeaturesDict:
        return FeaturesDict({"number": Scalar("int64"), "text": Text()})

    def splits(self) -> Mapping[str, Any]:
        if self.is_pieced:
            return {"train": registry.Pieces(list(enumerate(self.COUNTS)), self.generate)}
        return {"train": (pair for one in enumerate(self.COUNTS) for pair in self.generate(one))}

    def generate(self, given: tuple[int, int]) -> Generated:
        time.sleep(self.SECONDS)
        for number in range(given[1]):
            yield f"{given[0]} {number}", self.example(given[0], number)

    def example(self, piece: int, number: int) -> dict[str, Any]:
        return {"number": number, "text": f"{piece} " * (number % 40)}


class ManySmall(Pieced):
    COUNTS = (2,) * 600


class FewLarge(Pieced):
    COUNTS = (1500, 1500, 1500)


class Skewed(Pieced):
    COUNTS = (*(0, 3, 0, 1) * 10, 4000, *(1,) * 20)


class OneGiant(Pieced):
    COUNTS = (6000,)


class InOrder(Pieced):
    DISABLE_SHUFFLING = True
    COUNTS = (200,) * 8


class Nested(Pieced):
    COUNTS = (60,) * 6

    def features(self) -> FeaturesDict:
        return FeaturesDict({"words": Sequence({"word": Text(), "place": Scalar("int32")}), "piece": Scalar("int64")})

    def example(self, piece: int, number: int) -> dict[str, Any]:
        words = [{"word": f"word {place}", "place": place} for place in range(number % 7)]
        return {"words": words, "piece": piece}


class Pictures(Pieced):
    COUNTS = (25,) * 6

    def features(self) -> FeaturesDict:
        return FeaturesDict({"image": Image(shape=(8, 8, 3))})

    def example(self, piece: int, number: int) -> dict[str, Any]:
        return {"image": np.full((8, 8, 3), (piece * 31 + number) % 256, np.uint8)}


class Slow(Pieced):
    """Takes about three seconds on four CPUs, so that something can be killed meanwhile."""

    COUNTS = (50,) * 60
    SECONDS = 0.2


KINDS = {one.__name__: one for one in (Pieced, ManySmall, FewLarge, Skewed, OneGiant, InOrder, Nested, Pictures)}


class Told(Pieced):
    """Does what the files in the folder of ``REGISTRY_TEST_FOLDER`` say, and tells there that it works.

    Input 0 waits for the file ``go on``. Input 5 kills its worker once. Inputs 7 and 8 fail if there is ``fail``.
    """

    COUNTS = (10,) * 24

    def generate(self, given: tuple[int, int]) -> Generated:
        folder, number = Path(os.environ["REGISTRY_TEST_FOLDER"]), given[0]
        (folder / f"started-{number}").touch()
        deadline = time.monotonic() + 60
        while number == 0 and not (folder / "go on").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        if number == 5 and not (folder / "killed").exists():
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if number in (7, 8) and (folder / "fail").exists():
            raise ValueError("it is damaged")
        time.sleep(0.3)  # so that each input is a task of its own
        yield from super().generate(given)


class Talking(Pieced):
    """Prints, logs and warns while it works, and tells in the folder of ``REGISTRY_TEST_FOLDER`` that it works."""

    COUNTS = (4,) * 600
    NUM_SHARDS = 1200

    def generate(self, given: tuple[int, int]) -> Generated:
        folder, number = Path(os.environ["REGISTRY_TEST_FOLDER"]), given[0]
        print(f"printed for input {number}")  # noqa: T201 (what authors do)
        print(f"on stderr for input {number}", file=sys.stderr)  # noqa: T201
        logging.getLogger("author").warning("logged for input %d", number)
        warnings.warn(f"warned for input {number}", stacklevel=1)
        with (folder / f"beats-{os.getpid()}").open("a") as file:
            file.write(".")
        time.sleep(float(os.environ.get("REGISTRY_TEST_SECONDS", "0")))
        yield from super().generate(given)


class TalkingLittle(Talking):
    """As ``Talking``, with few inputs."""

    COUNTS = (4,) * 12
    NUM_SHARDS = 2
