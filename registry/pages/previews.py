"""A small picture of a version, for its card and its first page."""

from __future__ import annotations

import base64
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from registry.api import Dataset
from registry.display import shrink
from registry.errors import NotFoundError, RegistryError
from registry.features import Image
from registry.images import encode_png
from registry.pages.page import Media, Visit
from registry.statistics import FeatureStatistics, Statistics, distribution

if TYPE_CHECKING:
    import numpy.typing as npt

_STRIP: Final = 6
_SIDE: Final = 56
_GAP: Final = 4
_WIDTH: Final = 256
_ACCENT: Final = (42, 154, 150, 255)
"""A colour that is seen on the light and on the dark background."""

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

_PREVIEWS: Final = Remembered(2**24, len)
_EMPTY: Final = encode_png(np.zeros((1, 1, 4), np.uint8))


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


def preview(_visit: Visit, dataset: Dataset, rest: tuple[str, ...]) -> Media:
    """A strip of the first images, or bars of the first distribution; an empty picture if there is neither.

    It has an address of its own, so that no page waits for it. An empty picture is not final, because statistics may be
    attached later, and a file that cannot be read now may be readable later.
    """
    if rest:
        raise NotFoundError(f"{dataset.reference} has no page {'/'.join(('preview.png', *rest))!r:.80}")
    picture = _PREVIEWS.get(dataset.facts.content_digest, lambda: _draw(dataset))
    return Media(content=picture or _EMPTY, content_type="image/png", is_final=picture is not None)


def _draw(dataset: Dataset) -> bytes | None:
    name = first_split(tuple(dataset.splits))
    if name is None or not dataset.splits[name].num_examples:
        return None
    with suppress(RegistryError, OSError):
        images = {it: leaf.shape[-1] for it, leaf in dataset.features.items() if isinstance(leaf, Image)}
        # Masks and depths have one channel: what they belong to says more.
        feature = next((it for it, channels in images.items() if channels == 3), next(iter(images), None))
        if feature is not None and dataset.folder.startswith("file:"):
            return _strip(dataset, name, feature)
    statistics = near_statistics(dataset)
    split = None if statistics is None else statistics.get(name)
    columns = sorted(({} if split is None else split.features).values(), key=_rank)
    counts = next((counts[:64] for counts in map(distribution, columns) if len(counts) > 1), ())
    return _bars(counts) if any(counts) else None


def _rank(column: FeatureStatistics) -> int:
    """Classes say most about a version, then numbers that are not keys, then lengths of texts."""
    num_distinct = 0 if column.distinct is None else column.distinct.count
    is_key = column.dtype.startswith(("int", "uint")) and num_distinct >= column.count > 1
    return 0 if column.classes is not None else 1 if column.kind == "number" and not is_key else 2


def _strip(dataset: Dataset, split: str, feature: str) -> bytes | None:
    most = min(_STRIP, dataset.splits[split].num_examples)
    reader = dataset.read(f"{split}[:{most}]", keep=None).select([feature])
    leaf: Any = reader.features[feature]
    rows = islice(reader.files_as_bytes(), most)
    pictures = (shrink(leaf, row[feature], _SIDE) for row in rows)
    tiles = [_tile(picture) for picture in pictures if picture is not None]
    return shown_png(np.hstack(tiles)) if tiles else None


def _tile(picture: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A picture that fills a transparent square in one direction, with a gap to the next one."""
    sides = picture.shape[:2]
    rows, columns = (np.arange(max(1, _SIDE * side // max(sides))) * max(sides) // _SIDE for side in sides)
    opaque = np.pad(picture[rows][:, columns], ((0, 0), (0, 0), (0, 1)), constant_values=255)
    high, wide = _SIDE - rows.size, _SIDE - columns.size
    return np.pad(opaque, ((high // 2, high - high // 2), (wide // 2, wide - wide // 2 + _GAP), (0, 0)))


def _bars(counts: Sequence[int]) -> bytes:
    heights = [max(bool(count), _SIDE * count // max(counts)) for count in counts]
    filled = (np.arange(_SIDE)[::-1, None] < heights).repeat(wide := min(24, max(2, _WIDTH // len(counts))), axis=1)
    filled[:, wide - 1 :: wide] = False
    return shown_png(filled[..., None] * np.array(_ACCENT, np.uint8))


def shown_png(pixels: npt.NDArray[Any]) -> bytes:
    """A picture of a page as PNG. The encoder whose bytes are the same on every machine takes ten times as long.

    Level 4 takes a third of the time of the default, for pictures that are 5% larger.
    """
    return encode_png(pixels, compress=lambda rows: zlib.compress(rows, 4))


def data_url(picture: bytes, content_type: str | None = "image/png") -> str:
    """A picture as a URL, inside of the page itself."""
    return f"data:{content_type};base64,{base64.b64encode(picture).decode('ascii')}"
