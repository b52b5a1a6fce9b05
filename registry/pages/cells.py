"""Values of records as pages show them: a text, and the pictures, sounds and plots in it.

A cell is plain: it links to media by the segments of their address. The cells of a page share its room for text, so
that a page stays small, whatever the records hold.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import numpy as np

from registry.api import Dataset
from registry.display import converter_of, describe_file, media_kind, shrink, text_of, time_types
from registry.escaping import without_steering
from registry.features import Audio, BBox, ClassLabel, FeaturesDict, Image, LabeledImage, NestedExamples, Tensor, Text
from registry.features.containers import Column, columns_of
from registry.features.feature import TEXT
from registry.order import ReadConfig
from registry.pages.page import version_path
from registry.pages.previews import data_url, shown_png
from registry.reading import Reader
from registry.statistics.media import read_image_header

STORED_ORDER: Final = ReadConfig(interleave_cycle_length=1)
"""Positions in this order are the numbers of the records of a split."""

MOST_PIXELS: Final = 2**24
"""Larger images are described, and not decoded."""

_LETTERS: Final = 60_000
_SHORT: Final = (24, 300)
_NAME: Final = 80
_POINTS: Final = 64
_MOST_POINTS: Final = 20_000
_MOST_MEDIA: Final = 600
_MOST_BOXES: Final = 200
_FEW_BOXES: Final = 16
_ICON_SIDE: Final = 64
_ICON_BYTES: Final = 2**12
_ICONS_BYTES: Final = 2**17
_SAFE: Final = re.compile(r"[A-Za-z_][\w-]{0,79}", re.ASCII)
_TYPES: Final[tuple[tuple[bytes, int, str, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", 0, "png", "image/png"),
    (b"\xff\xd8\xff", 0, "jpg", "image/jpeg"),
    (b"GIF87a", 0, "gif", "image/gif"),
    (b"GIF89a", 0, "gif", "image/gif"),
    (b"WEBP", 8, "webp", "image/webp"),
    (b"WAVE", 8, "wav", "audio/wav"),
    (b"fLaC", 0, "flac", "audio/flac"),
    (b"OggS", 0, "ogg", "audio/ogg"),
    (b"ID3", 0, "mp3", "audio/mpeg"),
    (b"\xff\xfb", 0, "mp3", "audio/mpeg"),
    (b"\xff\xf3", 0, "mp3", "audio/mpeg"),
    (b"ftyp", 4, "mp4", "video/mp4"),
    (b"\x1a\x45\xdf\xa3", 0, "webm", "video/webm"),
)


def media_type(content: bytes) -> tuple[str, str | None]:
    """The ending and the content type of a file that browsers show, by its signature; ``bin`` and None for any other.

    >>> media_type(b"GIF89a..."), media_type(b"<svg onload=alert(1)>")
    (('gif', 'image/gif'), ('bin', None))
    """
    for signature, place, ending, content_type in _TYPES:
        if content.startswith(signature, place) and (place != 8 or content.startswith(b"RIFF")):
            return ending, content_type
    return "bin", None


def feature_segments(features: FeaturesDict, column: Column) -> tuple[str, ...]:
    """The segments of an address that name a feature: its path, or ``~`` and its number if the path is unusual."""
    if all(map(_SAFE.fullmatch, column.names)):
        return column.names
    return (f"~{[each.names for each in columns_of(features)].index(column.names)}",)


def address_names(names: Sequence[str]) -> dict[str, str]:
    """Names by how an address writes them: as they are, or ``~`` and their place if that would be misread."""
    pairs = ((place, name, "," in name or name[:1] in "~-" or cut(name) != name) for place, name in enumerate(names))
    return {f"~{place}" if is_odd else name: name for place, name, is_odd in pairs}


def cut(name: str) -> str:
    """A name as pages show it: at most 80 letters, none of which steers a terminal or a browser."""
    return without_steering(name if len(name) <= _NAME else f"{name[: _NAME - 1]}…")


def find_feature(features: FeaturesDict, segments: Sequence[str]) -> tuple[Column, tuple[int, ...]] | None:
    """The leaf that ``segments`` name, and the place in the lists around it; None if there is none."""
    for column in columns_of(features):
        names = feature_segments(features, column)
        rest = segments[len(names) :]
        is_place = len(rest) == len(column.lengths) and all(re.fullmatch("[0-9]{1,9}", item) for item in rest)
        if tuple(segments[: len(names)]) == names and is_place:
            return column, tuple(map(int, rest))
    return None


def leaf_values(row: Any, column: Column, most: int) -> Iterator[tuple[tuple[int, ...], Any]]:
    """At most ``most`` values of a leaf in an example, each with its place in the lists around it."""
    for name in column.names:
        row = row.columns() if isinstance(row, NestedExamples) else row
        row = None if row is None else row[name]
    return islice(_items(row, len(column.lengths)), most)


def _items(value: Any, depth: int) -> Iterator[tuple[tuple[int, ...], Any]]:
    if value is None:
        return
    if not depth:
        yield (), value
        return
    for place, item in enumerate(value.columns() if isinstance(value, NestedExamples) else value):
        for rest, inner in _items(item, depth - 1):
            yield (place, *rest), inner


def class_name(leaf: ClassLabel, number: Any) -> str:
    """The name of a class; its number if it has none."""
    names, place = leaf.names, int(number)
    return str(names[place] if names is not None and 0 <= place < len(names) else place)


class Cells:
    """Makes the cells of a page from the rows of ``reader``, which gives files as bytes.

    Attributes:
        names: the features, in the order of their source.
    """

    def __init__(self, dataset: Dataset, reader: Reader, *, num_rows: int, most_media: int, is_whole: bool) -> None:
        """``is_whole`` gives each value as much room as the page has; otherwise it is cut to a line."""
        self.names = dataset.metadata.in_source_order(list(reader.features))
        self._features = {name: dataset.features[name] for name in self.names}
        self._all = dataset.features
        self._path = version_path(dataset.reference)
        features = FeaturesDict(self._features)
        times = time_types(features, dataset.metadata)
        nullable = dataset.metadata.nullable_paths
        self._convert = converter_of(features, times, nullable=nullable, objects=True) or (lambda row: row)
        self._columns = {name: columns_of(FeaturesDict({name: it})) for name, it in self._features.items()}
        self._with_media = {name: [*filter(_has_media, columns)] for name, columns in self._columns.items()}
        least, most = _SHORT
        self._short = max(least, min(most, _LETTERS // max(1, num_rows * len(self.names))))
        self._points = max(8, min(_POINTS, _MOST_POINTS // max(1, num_rows * len(self.names))))
        self._room, self._media_room, self._icon_room = _LETTERS, _MOST_MEDIA, _ICONS_BYTES
        self._most_media = most_media
        self._is_whole = is_whole

    def row(self, row: Mapping[str, Any], split: str, index: int) -> list[dict[str, Any]]:
        """The cells of the example at ``index`` of ``split``."""
        named = self._convert(row)
        cells = [self._cell(row, name, named[name], (split, str(index))) for name in self.names]
        items = [item for cell in cells for item in cell["media"] if item["height"]]
        masks = {(item["height"], item["width"]): item["small"] for item in reversed(items) if item["is_mask"]}
        for item in items:
            item["mask"] = None if item["is_mask"] else masks.get((item["height"], item["width"]))
        return cells

    def _cell(self, row: Mapping[str, Any], name: str, named: Any, place: tuple[str, str]) -> dict[str, Any]:
        columns = self._columns[name]
        items = (item for column in self._with_media[name] for item in self._media(row, column, place))
        media = list(islice(items, min(self._most_media, self._media_room)))
        self._media_room -= len(media)
        text = text_of(named, most=self._short)
        more, leaf = "", columns[0].leaf if columns else None
        is_file = bool(media) and len(columns) == 1
        is_nested = hasattr(named, "__len__") and not isinstance(named, str | bytes)
        if not is_file and self._room > 0 and ("…" in text or (self._is_whole and is_nested)):
            more = outline(named, min(self._room, 20_000 if self._is_whole else 1_000))
            self._room -= len(more)
        if is_file and len(media) > 1:
            text = f"{len(named)} files, the first: {media[0]['text']}"
        points = (
            plot_points(row[name], self._points)
            if isinstance(leaf, Tensor) and not isinstance(leaf, BBox) and columns
            else []
        )
        return {"name": cut(name), "text": text, "more": more, "media": media, "points": points}

    def _media(self, row: Mapping[str, Any], column: Column, place: tuple[str, str]) -> Iterator[dict[str, Any]]:
        leaf, kind = column.leaf, media_kind(column.leaf)
        address = (*self._path, "media", *place, *feature_segments(self._all, column))
        for indices, value in leaf_values(row, column, self._most_media):
            folder = (*address, *map(str, indices))
            if not isinstance(value, bytes):
                if getattr(value, "size", 0):
                    is_sound = isinstance(leaf, Audio)
                    yield _item("audio" if is_sound else "image", text_of(value), folder, "wav" if is_sound else "png")
            elif kind or b"\0" in value[:64]:
                ending, content_type = media_type(value)
                word = (content_type or "file").partition("/")[0]
                if kind or content_type:
                    yield {**_item(word, describe_file(value), folder, ending), **self._picture(row, column, value)}

    def _picture(self, row: Mapping[str, Any], column: Column, content: bytes) -> dict[str, Any]:
        """The size of a stored image, and the boxes and the mask to draw over it."""
        header = read_image_header(content)
        if header is None or header.height * header.width > MOST_PIXELS:
            return {"small": None}
        result: dict[str, Any] = {"height": header.height, "width": header.width}
        leaf = column.leaf
        if isinstance(leaf, LabeledImage):
            return {**result, "is_mask": True}
        if isinstance(leaf, Image) and not column.lengths:
            every = [each for inner in self._columns.values() for each in inner]
            most = _MOST_BOXES if self._is_whole else _FEW_BOXES
            result["boxes"] = list(islice(_boxes(row, every, header.height, header.width), most))
        is_icon = max(header.height, header.width) <= _ICON_SIDE and len(content) <= min(_ICON_BYTES, self._icon_room)
        icon = (content if header.mode == "RGB" else _icon(leaf, content)) if is_icon else None
        if icon is not None:  # inside of the page: a request for each of 50 pictures takes ten times as long
            self._icon_room -= len(icon)
            result["small"] = data_url(icon, media_type(icon)[1])
        return result


def _has_media(column: Column) -> bool:
    """Whether the values of a leaf may be pictures, sounds or other files."""
    leaf = column.leaf
    is_other = isinstance(leaf, Tensor) and not isinstance(leaf, Text)
    is_drawn = is_other and (not leaf.shape if leaf.dtype == TEXT else len(leaf.shape) >= 2)
    return is_drawn or bool(media_kind(leaf)) or isinstance(leaf, Audio)


@lru_cache(1000)  # at most 20 MB
def _icon(leaf: Any, content: bytes) -> bytes | None:
    """A picture of a small image with every pixel, as PNG."""
    pixels = shrink(leaf, content, _ICON_SIDE)
    return None if pixels is None else shown_png(pixels)


def _item(kind: str, text: str, folder: tuple[str, ...], ending: str) -> dict[str, Any]:
    small = (*folder, "small.png") if kind == "image" else None
    nothing: dict[str, Any] = {"height": 0, "width": 0, "boxes": [], "mask": None, "is_mask": False}
    return {"kind": kind, "text": text, "small": small, "file": (*folder, f"file.{ending}"), **nothing}


def _boxes(row: Mapping[str, Any], columns: Sequence[Column], height: int, width: int) -> Iterator[dict[str, Any]]:
    """The boxes of a row in parts of the image: left, top, width and height, with the names of their classes."""
    for column in columns:
        if not isinstance(column.leaf, BBox):
            continue
        beside = [it for it in columns if it.names[:-1] == column.names[:-1] and it.lengths == column.lengths]
        label = next((it for it in beside if isinstance(it.leaf, ClassLabel)), None)
        classes = {} if label is None else dict(leaf_values(row, label, _MOST_BOXES))
        for place, value in leaf_values(row, column, _MOST_BOXES):
            box = _relative(column.leaf.bbox_format, [float(number) for number in value], height, width)
            if box is not None:
                name = class_name(label.leaf, classes[place]) if label and place in classes else ""  # type: ignore[arg-type]  # a ClassLabel
                yield {"box": box, "name": cut(name)}


def _relative(form: str | None, box: list[float], height: int, width: int) -> list[float] | None:
    if form is None or len(box) != 4 or not np.isfinite(box).all():
        return None
    left, top, right, bottom = (box[1], box[0], box[3], box[2]) if form.endswith("YXYX") else box
    if form == "XYWH":
        right, bottom = left + right, top + bottom
    across, down = (1, 1) if form.startswith("REL") else (width, height)
    left, right = (min(1.0, max(0.0, number / across)) for number in (left, right))
    top, bottom = (min(1.0, max(0.0, number / down)) for number in (top, bottom))
    return [round(number, 5) for number in (left, top, max(0.0, right - left), max(0.0, bottom - top))]


def plot_points(value: Any, most: int = _POINTS) -> list[float]:
    """At most ``most`` means of consecutive numbers of an array with one dimension; none for anything else.

    >>> plot_points(np.arange(4.0)), plot_points(np.float64(1)), len(plot_points(np.zeros(10**6)))
    ([0.0, 1.0, 2.0, 3.0], [], 64)
    """
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.size < 2 or value.dtype.kind not in "iufV":
        return []
    count = min(most, value.size)
    edges = np.arange(count) * value.size // count
    with np.errstate(all="ignore"):
        numbers = value.astype(np.float64)
        finite = np.isfinite(numbers)
        sums = np.add.reduceat(np.where(finite, numbers, 0), edges)
        means = sums / np.add.reduceat(finite.astype(np.int64), edges)
    return [float(f"{mean:.6g}") for mean in means if np.isfinite(mean)]


def outline(value: Any, most: int) -> str:
    """A value as JSON on several lines, or a text as it is, cut to ``most`` letters.

    >>> outline({"a": np.arange(3), "b": b"x"}, 100)
    '{"a": [0, 1, 2], "b": "x"}'
    """
    left = [most // 2 + 1]  # an item takes two letters at least

    def plain(item: Any) -> Any:
        left[0] -= 1
        if isinstance(item, bytes):
            item = item[: 4 * most].decode("utf-8", "replace")
        if isinstance(item, str):
            return item[:most]
        if isinstance(item, Mapping):
            return {str(name): plain(inner) for name, inner in islice(item.items(), max(0, left[0]))}
        if isinstance(item, np.generic):
            item = item.item()
        if hasattr(item, "__len__") or (hasattr(item, "shape") and item.shape):
            return [plain(inner) for inner in islice(iter(item), max(0, left[0]))]
        is_plain = item is None or isinstance(item, int) or (isinstance(item, float) and math.isfinite(item))
        return item if is_plain else str(item)

    first = plain(value)
    text = first if isinstance(first, str) else json.dumps(first, ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 1]}…"
