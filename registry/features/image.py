"""Images, images of classes, videos and boxes. An image is stored as the bytes of a PNG or JPEG file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from collections.abc import Sequence as AnySequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from registry.features.containers import Sequence
from registry.features.dtypes import as_dtype, check_shape, exact_array
from registry.features.feature import (
    Leaf,
    Part,
    Shape,
    corrupt_fault,
    feature_fault,
    file_bytes,
    fits_shape,
    stack_values,
    take_files,
)
from registry.features.pictures import Picture, PictureError, decode_picture, encode_jpeg, read_picture
from registry.features.png import encode_png
from registry.features.tensor import PlainTensor
from registry.features.text import ClassLabel
from registry.wire import FlatValue

MAX_UNDECLARED_PIXELS: Final = 2**26
"""Largest image (8192 x 8192) that is decoded where the shape does not declare both height and width."""

BBOX_FORMATS: Final = ("XYXY", "YXYX", "XYWH", "REL_XYXY", "REL_YXYX")
_RELATIVE: Final = ("REL_XYXY", "REL_YXYX")
_ORDERED: Final = ("YXYX", "REL_YXYX")

_DTYPES: Final = {None: ("uint8", "uint16", "float32"), "png": ("uint8", "uint16", "float32"), "jpeg": ("uint8",)}
_CHANNELS: Final = {None: (None, 1, 2, 3, 4), "png": (None, 1, 2, 3, 4), "jpeg": (None, 1, 3)}


@dataclass(frozen=True, kw_only=True, repr=False)
class Image(Leaf):
    """An image, shape (height, width, channels). Decodes to an array of that shape.

    Takes an array; the bytes of a PNG or JPEG file; a path (``str`` or ``Path``) or an open binary file of one. Files
    are kept byte for byte. An array is written in ``encoding_format``: as PNG with the same bytes on every machine, as
    JPEG (quality 95) by Pillow. It is cast where that changes no value, so whole floats in 0..255 do as well.

    Attributes:
        shape: height, width and channels (1 to 4); None where they differ, or for the file's own channels.
        dtype: uint8; uint16 (PNG); float32 (PNG, one channel, its bits kept in four channels of 8 bits, as TFDS does).
        encoding_format: ``png`` (also where it is None) or ``jpeg``: what arrays become. Files may be of either format.
        use_colormap: show a one-channel image in colours; kept for viewers.

    Raises:
        FeatureError: a contradiction in these, or a value that does not fit.
    """

    shape: Shape = (None, None, 3)
    dtype: Any = np.uint8
    encoding_format: str | None = None
    use_colormap: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", as_dtype(self.dtype))
        object.__setattr__(self, "shape", check_shape(self.shape))
        if self.encoding_format not in _DTYPES:
            raise feature_fault("", f"unknown image format {self.encoding_format!r}", "Use 'png' or 'jpeg'.")
        if self.dtype.name not in _DTYPES[self.encoding_format]:
            raise feature_fault("", f"an image stored as {self.encoding_format or 'png'} cannot be {self.dtype}")
        if len(self.shape) != 3 or self.shape[2] not in _CHANNELS[self.encoding_format]:
            raise feature_fault(
                "", f"{self.shape} is no shape of an image", "It is (height, width, channels), e.g. (None, None, 3)."
            )
        if self._is_float and self.shape[2] != 1:
            raise feature_fault("", f"an image of float32 has one channel, not {self.shape[2]}")

    @property
    def parts(self) -> tuple[Part, ...]:
        """The file's bytes."""
        return (Part("", "bytes", 1),)

    def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
        """The bytes of a PNG or JPEG file."""
        if isinstance(value, np.ndarray):
            return ([self._encode(value, path)],)
        data = file_bytes(value, path)
        if data is None:
            raise feature_fault(
                path,
                f"{type(value).__name__} is no image",
                "Give an array, a path, or the bytes of a PNG or JPEG file.",
            )
        try:
            picture = read_picture(data)
        except PictureError as error:
            raise feature_fault(path, f"{error}", "Give an array, or the bytes of a PNG or JPEG file.") from error
        if not fits_shape((picture.height, picture.width), self.shape[:2]):
            raise feature_fault(
                path, f"an image of {picture.height} x {picture.width} does not fit the declared shape {self.shape}"
            )
        return ([data],)

    def restore(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> Any:
        """An array (height, width, channels); with ``count`` an array of images."""
        files = take_files(flat, count, "images", path)
        if count is None:
            return self._decode(files[0], path)
        return stack_values([self._decode(file, path) for file in files], self.shape, self.dtype)

    def restore_content(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> Any:
        """For each image its pixels where this software decodes them, else the bytes of its file.

        JPEG has many decoders, which differ. What comes first tells the two apart.
        """
        return [self._content(data, path) for data in take_files(flat, count, "images", path)]

    @property
    def _is_float(self) -> bool:
        return bool(self.dtype.kind == "f")

    def _encode(self, value: npt.NDArray[Any], path: str) -> bytes:
        array = exact_array(value, self.dtype, path)
        if not fits_shape(array.shape, self.shape) or not array.size or array.shape[2] > 4:
            raise feature_fault(path, f"shape {array.shape} does not fit the declared shape {self.shape}")
        if self._is_float:
            array = np.ascontiguousarray(array, "<f4").view(np.uint8)
        return encode_jpeg(array) if self.encoding_format == "jpeg" else encode_png(array)

    def _content(self, data: Any, path: str) -> tuple[bytes, Any]:
        picture = self._read(data, path)
        if picture.png is None or not picture.png.is_simple:
            return b"file", data
        return b"pixels", self._decode_picture(picture, path)

    def _decode(self, data: Any, path: str) -> npt.NDArray[Any]:
        return self._decode_picture(self._read(data, path), path)

    def _read(self, data: Any, path: str) -> Picture:
        try:
            return read_picture(data)
        except PictureError as error:
            raise corrupt_fault(path, f"holds {error}") from error

    def _decode_picture(self, picture: Picture, path: str) -> npt.NDArray[Any]:
        try:
            size = f"{picture.height} x {picture.width}"
            if not fits_shape((picture.height, picture.width), self.shape[:2]):
                raise PictureError(f"an image of {size}, where the declared shape is {self.shape}")
            if None in self.shape[:2] and picture.height * picture.width > MAX_UNDECLARED_PIXELS:
                raise PictureError(f"an image of {size}: more than {MAX_UNDECLARED_PIXELS} pixels")
            channels = 4 if self._is_float else self.shape[2]
            pixels = decode_picture(picture, channels=channels, wide=self.dtype == np.uint16)
        except PictureError as error:
            raise corrupt_fault(path, f"holds {error}") from error
        return np.ascontiguousarray(pixels).view("<f4").astype(self.dtype) if self._is_float else pixels


@dataclass(frozen=True, kw_only=True, repr=False)
class LabeledImage(Image):
    """An image of one channel, whose pixels are numbers of classes, e.g. of a segmentation. Decodes as an ``Image``.

    Give ``names`` or ``num_classes`` (0 where it is not known) as for a ``ClassLabel``; ``label`` is that one.

    >>> LabeledImage(names=["background", "car"], shape=(4, 4, 1)).label.int2str(1)
    'car'

    Raises:
        FeatureError: as for ``Image`` and ``ClassLabel``; more than one channel.
    """

    num_classes: int | None = None
    names: Any = None
    shape: Shape = (None, None, 1)
    use_colormap: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shape[2] != 1:
            raise feature_fault("", f"an image of classes has one channel, not {self.shape[2]}")
        label = ClassLabel(num_classes=self.num_classes, names=self.names)
        object.__setattr__(self, "names", label.names)
        object.__setattr__(self, "num_classes", label.num_classes)

    @property
    def class_label(self) -> ClassLabel:
        """As ``label``."""
        return self.label

    def with_label_names(self, names: tuple[str, ...]) -> Self:
        """This feature with ``names`` for its classes."""
        return replace(self, num_classes=None, names=names)

    @property
    def label(self) -> ClassLabel:
        """What a pixel is."""
        return ClassLabel(num_classes=self.num_classes, names=self.names)


@dataclass(frozen=True, repr=False)
class Video(Sequence):
    """A video, shape (frames, height, width, channels). Takes and decodes to an array of that shape.

    Takes a list of frames, too: arrays, files, or bytes of files, as ``Image`` does. A video file is not taken apart
    here: give its frames.

    Attributes:
        shape: None where a number differs from example to example.
        encoding_format: what frames become: ``png`` or ``jpeg``; None is PNG.
        ffmpeg_extra_args: what TFDS hands to ffmpeg; kept for it.
        use_colormap, dtype: as of ``Image``.
    """

    feature: Any = field(init=False)
    length: int | None = field(default=None, init=False)
    shape: Shape = field(default=(None, None, None, 3), kw_only=True)
    encoding_format: str | None = field(default="png", kw_only=True)
    ffmpeg_extra_args: tuple[str, ...] = field(default=(), kw_only=True)
    use_colormap: bool = field(default=False, kw_only=True)
    dtype: Any = field(default=np.uint8, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", check_shape(self.shape))
        object.__setattr__(self, "dtype", as_dtype(self.dtype))
        object.__setattr__(self, "ffmpeg_extra_args", tuple(self.ffmpeg_extra_args))
        if len(self.shape) != 4:
            raise feature_fault("", f"{self.shape} is no shape of a video", "It is (frames, height, width, channels).")
        frame = Image(
            shape=self.shape[1:], dtype=self.dtype, encoding_format=self.encoding_format, use_colormap=self.use_colormap
        )
        object.__setattr__(self, "feature", frame)
        object.__setattr__(self, "length", self.shape[0])
        super().__post_init__()

    def elements_of(self, value: Any, path: str) -> Any:
        """The frames."""
        if isinstance(value, (str, bytes, os.PathLike)) or hasattr(value, "read"):
            raise feature_fault(path, "a video file is not taken apart here", "Give its frames: an array, or a list.")
        return value if not isinstance(value, Iterable) or isinstance(value, np.ndarray) else list(value)


@dataclass(frozen=True, kw_only=True, repr=False)
class BBox(PlainTensor):
    """A box of four numbers, as ``bbox_format`` says; by default ``(ymin, xmin, ymax, xmax)``, each in 0..1.

    Decodes to a float32 array of shape (4,). The numbers are stored as they are given. As in TFDS, those of
    ``REL_YXYX`` and ``REL_XYXY`` have to be in 0..1, and in ``REL_YXYX`` and ``YXYX`` no minimum may be above its
    maximum.

    Attributes:
        bbox_format: ``XYXY``, ``YXYX``, ``XYWH``, ``REL_XYXY``, ``REL_YXYX``; None where it is not known.

    >>> BBox().flatten((0.5, 0.0, 0.25, 1.0), "box")
    Traceback (most recent call last):
    ...
    registry.errors.FeatureError: feature 'box': the box (0.5, 0.0, 0.25, 1.0) has a minimum above its maximum
    """

    shape: Shape = field(default=(4,), init=False)
    dtype: Any = field(default=np.float32, init=False)
    bbox_format: str | None = "REL_YXYX"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bbox_format is not None and self.bbox_format not in BBOX_FORMATS:
            raise feature_fault(
                "", f"unknown box format {self.bbox_format!r}", f"There are: {', '.join(BBOX_FORMATS)}."
            )

    def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
        """Four float32."""
        return self.flatten_many([value], path)

    def flatten_many(self, values: AnySequence[Any] | npt.NDArray[Any], path: str) -> tuple[FlatValue, ...]:
        """Four float32 for each box."""
        flat = super().flatten_many(values, path)
        if self.bbox_format not in (*_RELATIVE, *_ORDERED):
            return flat
        for box in np.asarray(flat[0]).reshape(-1, 4).tolist():
            shown = tuple(round(number, 6) for number in box)
            if self.bbox_format in _RELATIVE and not all(0 <= number <= 1 for number in box):
                raise feature_fault(path, f"the box {shown} leaves 0..1", "Divide by the image's height and width.")
            if self.bbox_format in _ORDERED and (box[0] > box[2] or box[1] > box[3]):
                raise feature_fault(
                    path, f"the box {shown} has a minimum above its maximum", "The order is ymin, xmin, ymax, xmax."
                )
        return flat
