"""Builders in pieces of several kinds, in a module that workers can import. Some take time, so that tests can
interrupt them."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

import registry
from registry.features import FeaturesDict, Image, Scalar, Sequence, Text
from support.ray_clusters import MOST_SECONDS

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


class Told(Pieced):
    """Is controlled by files in the folder ``REGISTRY_TEST_FOLDER``, and notes there which inputs it has started.

    Input 0 waits for the file ``go on``. Input 5 kills its worker once. Inputs 7 and 8 fail if ``fail`` exists.
    """

    COUNTS = (10,) * 24

    def generate(self, given: tuple[int, int]) -> Generated:
        folder, number = Path(os.environ["REGISTRY_TEST_FOLDER"]), given[0]
        (folder / f"started-{number}").touch()
        deadline = time.monotonic() + MOST_SECONDS
        while number == 0 and not (folder / "go on").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        if number == 5 and not (folder / "killed").exists():
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if number in (7, 8) and (folder / "fail").exists():
            raise ValueError("it is damaged")
        time.sleep(0.3)  # so that each input is a task of its own
        yield from super().generate(given)


class Behind(Pieced):
    """Input 0 waits until 30 inputs have started, which they note in the folder ``REGISTRY_TEST_FOLDER``."""

    COUNTS = (3,) * 60

    def generate(self, given: tuple[int, int]) -> Generated:
        folder = Path(os.environ["REGISTRY_TEST_FOLDER"])
        (folder / f"started-{given[0]}").touch()
        deadline = time.monotonic() + MOST_SECONDS / 4
        while given[0] == 0 and len(list(folder.iterdir())) < 30:
            if time.monotonic() > deadline:
                raise ValueError("the others stopped behind this input")
            time.sleep(0.05)
        yield from super().generate(given)


class Talking(Pieced):
    """Prints, logs and warns for each input, and notes its progress in the folder ``REGISTRY_TEST_FOLDER``."""

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
    """Like ``Talking``, with few inputs."""

    COUNTS = (4,) * 12
    NUM_SHARDS = 2


class AllButOneEmpty(Pieced):
    """Inputs without examples, except one."""

    COUNTS = (*(0,) * 25, 70, *(0,) * 25)


class SeveralSplits(Pieced):
    """Three splits with inputs and numbers of shards of their own; two of them have more shards than inputs."""

    NUM_SHARDS = {"train": 4, "test": 1, "tiny": 5}

    def splits(self) -> Mapping[str, Any]:
        return {
            name: registry.Pieces(inputs, self.generate)
            if self.is_pieced
            else (pair for one in inputs for pair in self.generate(one))
            for name, inputs in (("train", [(0, 900), (1, 40)]), ("test", [(2, 0), (3, 60)]), ("tiny", [(4, 5)]))
        }


class DrawnInputs(Pieced):
    """Inputs from a generator, so that their number is unknown."""

    def splits(self) -> Mapping[str, Any]:
        if self.is_pieced:
            return {"train": registry.Pieces(iter(enumerate(self.COUNTS)), self.generate)}
        return super().splits()


class Unsendable(NamedTuple):
    """An input that cannot be pickled."""

    piece: int
    count: int

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("it belongs to this process")


class UnsendableInputs(Pieced):
    """Every third input cannot be pickled."""

    def splits(self) -> Mapping[str, Any]:
        inputs = [one if one[0] % 3 else Unsendable(*one) for one in enumerate(self.COUNTS)]
        if self.is_pieced:
            return {"train": registry.Pieces(inputs, self.generate)}
        return super().splits()


class LargeInputs(Pieced):
    """Inputs of four megabytes each, which are sent to the workers."""

    COUNTS = (40,) * 30
    NUM_BYTES = 2**22

    def splits(self) -> Mapping[str, Any]:
        inputs = ((*one, bytes([one[0]]) * self.NUM_BYTES) for one in enumerate(self.COUNTS))
        if self.is_pieced:
            return {"train": registry.Pieces(inputs, self.generate)}
        return {"train": (pair for one in inputs for pair in self.generate(one))}

    def generate(self, given: Any) -> Generated:
        piece, count, content = given
        for number in range(count):
            yield f"{piece} {number}", {"number": content[number], "text": f"{piece} " * (number % 40)}


class DataInputs(LargeInputs):
    """Inputs of eight megabytes each: those that wait for two tasks are more than an object store of 80 MB can hold."""

    COUNTS = (40,) * 60
    NUM_BYTES = 2**23


class Megabytes(Pieced):
    """Megabytes of different texts: about one for each input."""

    NUM_SHARDS = 4
    COUNTS = (500,) * 200

    def example(self, piece: int, number: int) -> dict[str, Any]:
        return {"number": number, "text": f"{piece:05} {number:05} " * 167}


class Fewer(Megabytes):
    """A quarter of the inputs of ``Megabytes``."""

    COUNTS = (500,) * 50


class Generator(Megabytes):
    """Half of the examples of ``Megabytes``, from one generator: the cluster only encodes them."""

    COUNTS = (500,) * 100
    is_pieced = False


class Failing(Pieced):
    """Two inputs fail."""

    def example(self, piece: int, number: int) -> dict[str, Any]:
        if piece in (3, 17) and number == 50:
            raise ValueError("it is damaged")
        return super().example(piece, number)


class ManyFail(Pieced):
    """Twenty-five inputs fail."""

    COUNTS = (3,) * 25

    def example(self, piece: int, number: int) -> dict[str, Any]:
        raise ValueError(f"input {piece} is damaged at {number}")


class Absent(Pieced):
    """Inputs are paths that exist on the machine of the test, and which the nodes do not find."""

    def __init__(self, inputs: list[str]) -> None:
        super().__init__()
        self.inputs = inputs

    def splits(self) -> Mapping[str, Any]:
        return {"train": registry.Pieces(self.inputs, self.generate)}

    def generate(self, path: Any) -> Generated:
        if Path(path).is_absolute():  # the nodes of the tests are on the same machine
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        yield path, {"number": 0, "text": Path(path).read_text()}


class Doubled(Pieced):
    """Two inputs that are far apart give the same key."""

    COUNTS = (1,) * 200

    def generate(self, given: tuple[int, int]) -> Generated:
        for key, example in super().generate(given):
            yield "twin" if given[0] in (3, 190) else key, example


class AllEmpty(Pieced):
    """No input has an example."""

    COUNTS = (0,) * 20


KINDS = {
    one.__name__: one
    for one in (
        *(Pieced, ManySmall, FewLarge, Skewed, OneGiant, InOrder, Nested, Pictures, AllButOneEmpty, SeveralSplits),
        *(DrawnInputs, UnsendableInputs),
    )
}
LARGE_KINDS = {one.__name__: one for one in (LargeInputs, DataInputs, Fewer, Megabytes, Generator)}
"""Builders with more data than an object store of 80 MB can hold, except ``Fewer``."""
