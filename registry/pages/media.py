"""The files of records: stored pictures, sounds and videos, and small pictures of images and arrays."""

from __future__ import annotations

import io
import wave
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from registry.api import Dataset
from registry.display import as_rgb, shrink
from registry.errors import NotFoundError
from registry.features import Audio, Image, LabeledImage
from registry.pages.cells import MOST_PIXELS, STORED_ORDER, find_feature, leaf_values, media_type
from registry.pages.page import Media, Visit
from registry.pages.previews import shown_png
from registry.reading import ReadableVersion, Reader
from registry.statistics.media import read_image_header

_SIDE: Final = 192
_NO_LABEL: Final = (255, 255, 255, 160)

_READABLES: Final = WeakKeyDictionary[Dataset, ReadableVersion]()
"""Those of the versions that ``routes`` remembers, so that the digests of shards are looked up once."""


def media(_visit: Visit, dataset: Dataset, rest: tuple[str, ...]) -> Media:
    """``SPLIT/INDEX/FEATURE/small.png``, a small picture, or ``.../file.EXT``, the stored bytes or an array as PNG."""
    split, index, *segments, name = (*rest, *[""] * (4 - len(rest)))
    found = find_feature(dataset.features, segments)
    num_examples = dataset.splits[split].num_examples if split in dataset.splits else 0
    if found is None or not index.isdecimal() or int(index[:18]) >= num_examples:
        raise NotFoundError(f"{dataset.reference} has no file {'/'.join(rest)!r:.200}")
    column, place = found
    expression = f"{split}[{int(index)}:{int(index) + 1}]"
    readable = _READABLES.get(dataset) or _READABLES.setdefault(dataset, dataset.readable)
    reader = Reader(readable, dataset.resolve(expression), read_config=STORED_ORDER).select(column.names[0])
    values = dict(leaf_values(reader.files_as_bytes()[0], column, max(place, default=0) + 1 if place else 1))
    value = values.get(place)
    content: bytes | None = None
    if name == "small.png":
        content = _small(column.leaf, value)
    elif isinstance(value, bytes):
        ending, content_type = media_type(value)
        if name == f"file.{ending}":
            return Media(content=value, content_type=content_type)
    elif isinstance(value, np.ndarray):
        if name == "file.wav" and isinstance(column.leaf, Audio):
            return Media(content=_wave(value, column.leaf.sample_rate or 16_000), content_type="audio/wav")
        content = _picture(value, MOST_PIXELS) if name == "file.png" else None
    if content is None:
        raise NotFoundError(f"there is no {name!r:.80} of {'/'.join(rest[:-1])!r:.200}")
    return Media(content=content, content_type="image/png")


def _small(leaf: Any, value: Any) -> bytes | None:
    if isinstance(leaf, LabeledImage):
        return _mask(leaf, value)
    if isinstance(leaf, Image):
        pixels = shrink(leaf, value, _SIDE)
        return None if pixels is None else shown_png(pixels)
    return _picture(value, _SIDE**2) if isinstance(value, np.ndarray) else None


def _picture(value: npt.NDArray[Any], most: int) -> bytes | None:
    """An array of two or more dimensions as a picture of at most ``most`` pixels: one with three as an image."""
    if value.ndim < 2 or value.dtype.kind not in "biufV" or not value.size:
        return None
    is_image = value.ndim == 3 and value.shape[2] in (1, 3, 4)
    pixels = value if is_image else value.reshape(-1, value.shape[-1], 1)  # rows of all dimensions below each other
    while pixels.shape[0] * pixels.shape[1] > most:
        pixels = pixels[:: 2 if pixels.shape[0] > 1 else 1, :: 2 if pixels.shape[1] > 1 else 1]
    return shown_png(as_rgb(pixels if pixels.dtype.kind in "iuf" else pixels.astype(np.float32)))


def _mask(leaf: LabeledImage, value: Any) -> bytes | None:
    """A label image in colours, class 0 transparent, to be drawn over an image."""
    header = read_image_header(value) if isinstance(value, bytes) else None
    if header is None or header.height * header.width > MOST_PIXELS:
        return None
    labels = leaf.restore(([value],), None, "")[..., 0].astype(np.int64)
    step = -(-max(labels.shape) // _SIDE)
    labels = labels[::step, ::step]
    turns = labels * 0.618034 % 1  # colours of neighbours differ most by the golden ratio
    hues = [np.clip(np.abs((turns + shift) % 1 * 6 - 3) - 1, 0, 1) * 255 for shift in (0, 2 / 3, 1 / 3)]
    pixels = np.stack([*hues, np.full(labels.shape, 255.0)], axis=-1).astype(np.uint8)
    pixels[labels == 0] = 0
    pixels[(labels < 0) | (labels >= max(1, leaf.num_classes or 2**31))] = _NO_LABEL
    return shown_png(pixels)


def _wave(samples: npt.NDArray[Any], rate: int) -> bytes:
    """Samples as a WAV file of 16 bits; numbers that do not fit are scaled."""
    numbers = np.nan_to_num(samples.astype(np.float64), posinf=0, neginf=0)
    loudest = float(np.abs(numbers).max(initial=0))
    if samples.dtype.kind == "f" and loudest <= 1:
        numbers *= 32767
    elif loudest > 32767:
        numbers *= 32767 / loudest
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1 if samples.ndim == 1 else max(1, samples.shape[1]))
        file.setsampwidth(2)
        file.setframerate(min(max(1, rate), 384_000))
        file.writeframes(numbers.astype("<i2").tobytes())
    return buffer.getvalue()
