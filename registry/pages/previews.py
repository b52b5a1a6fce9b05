"""Small pictures of a dataset: a strip of its first images, or bars of a distribution."""

from __future__ import annotations

import base64
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar

from registry.api import Dataset
from registry.display import shrink
from registry.errors import RegistryError
from registry.features import Image
from registry.images import encode_png
from registry.statistics import Statistics, distribution

if TYPE_CHECKING:
    import numpy.typing as npt

_STRIP: Final = 6
_SIDE: Final = 56
_MOST_ROOM: Final = 2**20


Value = TypeVar("Value")


class Remembered:
    """Results for published content, by a key that names it exactly; the least recently used are forgotten.

    Threads share it. A result of None is computed again: statistics may be attached later.

    Args:
        most: the room for results.
        size: how much of it a result takes; by default, ``most`` is their number. A larger result is not remembered.
    """

    def __init__(self, most: int, size: Callable[[Any], int] = lambda _: 1) -> None:
        self._most, self._size, self._used = most, size, 0
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The result of ``make``, which is called if the result for ``key`` is not remembered."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                remembered: Value = self._values[key]
                return remembered
        value = make()
        if value is not None:
            self.keep(key, value)
        return value

    def keep(self, key: Hashable, value: Any) -> None:
        """Remember another result for ``key``."""
        with self._lock:
            if key in self._values:
                self._used -= self._size(self._values.pop(key))
            if self._size(value) <= self._most:
                self._values[key] = value
                self._used += self._size(value)
            while self._used > self._most:
                self._used -= self._size(self._values.popitem(last=False)[1])


_STATISTICS: Final = Remembered(8)
_LARGE: Final = Remembered(1)
"""The last statistics with more than a megabyte. Parsed, they take about 15 times as much memory as their document."""

_PREVIEWS: Final = Remembered(2000)
_ABSENT: Final = Remembered(2000)


def first_split(names: Sequence[str]) -> str | None:
    """The split that pages show first: train, or the first of the version."""
    return "train" if "train" in names else next(iter(names), None)


def near_statistics(dataset: Dataset, *, most: int = _MOST_ROOM) -> Statistics | None:
    """The statistics of a version, if they are attached, have at most ``most`` bytes, and can be read."""
    with suppress(RegistryError, OSError):
        for file in dataset.attachments:
            if file.kind == "statistics" and file.num_bytes <= most:
                key = (dataset.reference, dataset.facts.content_digest, file.sha256)
                memory = _STATISTICS if file.num_bytes <= _MOST_ROOM else _LARGE
                return memory.get(key, lambda: dataset.statistics)
    return None


def remembered_preview(content_digest: str, event: Hashable, load: Callable[[], Dataset]) -> dict[str, Any] | None:
    """The preview of the version with this content, which is loaded if its preview is not remembered.

    A missing preview is remembered until ``event`` changes, because statistics may be attached later. A look-up that
    fails is tried again.
    """

    def make() -> dict[str, Any] | None:
        with suppress(RegistryError, OSError):
            return preview(load()) or {}
        return None

    key = (content_digest, event)
    return _PREVIEWS.get(content_digest, lambda: _ABSENT.get(key, make) or None)


def preview(dataset: Dataset) -> dict[str, Any] | None:
    """The first ``images`` as PNGs in data URLs, or the ``counts`` of the first feature; None if there is nothing."""
    name = first_split(tuple(dataset.splits))
    if name is None or not dataset.splits[name].num_examples:
        return None
    with suppress(RegistryError, OSError):
        feature = next((it for it, leaf in dataset.features.items() if isinstance(leaf, Image)), None)
        if feature is not None and dataset.folder.startswith("file:"):
            return {"images": _strip(dataset, name, feature), "counts": (), "feature": feature}
    statistics = near_statistics(dataset)
    split = None if statistics is None else statistics.get(name)
    for path, values in ({} if split is None else split.features).items():
        counts = distribution(values)
        if len(counts) > 1:
            return {"images": (), "counts": counts[:64], "feature": path}
    return None


def _strip(dataset: Dataset, split: str, feature: str) -> list[str]:
    most = min(_STRIP, dataset.splits[split].num_examples)
    reader = dataset.read(f"{split}[:{most}]", keep=None).select([feature])
    leaf: Any = reader.features[feature]
    rows = islice(reader.files_as_bytes(), most)
    pictures = (shrink(leaf, row[feature], _SIDE, grow=True) for row in rows)
    return [data_url(shown_png(picture)) for picture in pictures if picture is not None]


def shown_png(pixels: npt.NDArray[Any]) -> bytes:
    """A picture of a page as PNG. The encoder whose bytes are the same on every machine takes ten times as long."""
    return encode_png(pixels, compress=zlib.compress)


def data_url(picture: bytes, content_type: str | None = "image/png") -> str:
    """A picture as a URL, inside of the page itself."""
    return f"data:{content_type};base64,{base64.b64encode(picture).decode('ascii')}"
