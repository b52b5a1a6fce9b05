"""Images, label images, videos and bounding boxes. An image is stored as the bytes of a PNG or JPEG file."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from collections.abc import Sequence as AnySequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final, Self

from registry import engines, images, wire
from registry.errors import CorruptExampleError, FeatureError, RegistryError
from registry.features.block_columns import ArrayColumn
from registry.features.containers import Sequence
from registry.features.dtypes import DtypeField, check_shape, exact_array, settle_dtype
from registry.features.feature import (
    BlockColumn,
    BlockParts,
    Counts,
    Feature,
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
from registry.features.stacking import type_of_all
from registry.features.tensor import PlainTensor, has_one_each, shaped_column
from registry.features.text import ClassLabel
from registry.lazy import np, npt

if TYPE_CHECKING:
    from registry.images import Picture
    from registry.wire import FlatValue

MAX_UNDECLARED_PIXELS: Final = 2**26
"""Most pixels (8192 x 8192) that are decoded if the shape does not declare both height and width."""

_MOST_TOGETHER: Final = 2**30
"""Most values of images that are decoded into one array before the first of them is known to be sound."""

_UNITS: Final = 16
_UNIT_BYTES: Final = 2**17
"""A batch is decoded in at least this number of units, of at most this size of files; a smaller batch by one thread."""

_SMALL_FILE: Final = 2**11
"""Images whose files have fewer bytes on average are decoded by one thread: most of their time is Python."""

BBOX_FORMATS: Final = ("XYXY", "YXYX", "XYWH", "REL_XYXY", "REL_YXYX")
_RELATIVE: Final = ("REL_XYXY", "REL_YXYX")
_ORDERED: Final = ("YXYX", "REL_YXYX")

_DTYPES: Final = {None: ("uint8", "uint16", "float32"), "png": ("uint8", "uint16", "float32"), "jpeg": ("uint8",)}
_CHANNELS: Final = {None: (None, 1, 2, 3, 4), "png": (None, 1, 2, 3, 4), "jpeg": (None, 1, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDecoding:
    """How images are decoded to fewer pixels: at a part of their size, and then cropped.

    An image of height h and width w is decoded to ceil(h / ratio) and ceil(w / ratio) pixels. JPEG is scaled by libjpeg
    in the transform of each block, as by ``ratio`` of ``tf.io.decode_jpeg``, which takes less time the smaller the
    result. A PNG is decoded whole. Then each pixel is the mean of a box of ratio x ratio pixels (fewer at the right and
    the bottom), for each channel on its own, with halves rounded up. The pixels depend on nothing but the file, the
    setting and, for a JPEG, the version of libjpeg-turbo.

    Attributes:
        ratio: 1, 2, 4 or 8.
        crop: (height, width) to keep the centre, or (top, left, height, width) to keep a window, in pixels of the
            scaled image; None keeps all of it. An odd pixel is cut off at the bottom or right.

    >>> ImageDecoding(ratio=2, crop=(112, 112)).shape_of((None, 500, 3))
    (112, 112, 3)

    Raises:
        FeatureError: the ratio or the crop is invalid.
    """

    ratio: int = 1
    crop: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if type(self.ratio) is not int or self.ratio not in (1, 2, 4, 8):
            raise feature_fault("", f"invalid ratio {self.ratio!r:.40}", "Use 1, 2, 4 or 8: 2 gives a half.")
        crop: Any = self.crop
        if crop is None:
            return
        is_crop = isinstance(crop, list | tuple) and len(crop) in (2, 4)
        if not is_crop or any(type(size) is not int or size < 0 for size in crop) or 0 in crop[-2:]:
            hint = "Pass (height, width), or (top, left, height, width), in pixels of the scaled image."
            raise feature_fault("", f"invalid crop {crop!r:.80}", hint)
        object.__setattr__(self, "crop", tuple(crop))

    def shape_of(self, shape: Shape) -> Shape:
        """The shape of a decoded image whose file has ``shape``: height, width (None if unknown) and channels."""
        scaled = tuple(None if size is None else -(-size // self.ratio) for size in shape[:2])
        return (*(scaled if self.crop is None else self.crop[-2:]), shape[2])

    def window(self, height: int, width: int) -> tuple[slice, slice] | None:
        """The rows and columns of a scaled image that are kept; None if the crop is not within it.

        Args:
            height: of the scaled image, in pixels.
            width: of the scaled image, in pixels.
        """
        if self.crop is None:
            return slice(height), slice(width)
        *corner, rows, columns = self.crop
        top, left = corner or ((height - rows) // 2, (width - columns) // 2)
        if min(top, left) < 0 or top + rows > height or left + columns > width:
            return None
        return slice(top, top + rows), slice(left, left + columns)


@dataclass(frozen=True, kw_only=True, repr=False)
class Image(Leaf):
    """An image of shape (height, width, channels). Decodes to an array of that shape. Follows ``tfds.features.Image``.

    It accepts an array, the bytes of a PNG or JPEG file, a path to one (``str`` or ``Path``), or an open binary file.
    Files are stored byte for byte. Arrays are encoded as ``encoding_format``: PNG by this package, with the same bytes
    on every machine, or JPEG (quality 95) by Pillow. An array is cast if that changes no value, so whole floats in
    0..255 are accepted for uint8.

    Attributes:
        shape: height, width and channels (1 to 4). None for a height or width that differs, or to keep the channels of
            the file.
        dtype: uint8; uint16 (PNG only); float32 (PNG only, one channel, stored as four 8-bit channels, as in TFDS).
        encoding_format: ``png`` or ``jpeg``, the encoding of arrays; None is ``png``. Files may have either format.
        use_colormap: whether viewers should show a one-channel image in colours.
        decoding: how a reader scales and crops it; ``shape`` is then that of the result, and ``stored_shape`` that of
            the files. ``FeaturesDict.decode_images`` sets both.

    >>> import numpy as np
    >>> from registry.features import FeaturesDict, codec_of
    >>> codec = codec_of(FeaturesDict({"image": Image(shape=(28, 28, 1))}))
    >>> image = codec.decode(codec.encode({"image": np.zeros((28, 28, 1), np.uint8)}))["image"]
    >>> image.shape, image.dtype
    ((28, 28, 1), dtype('uint8'))

    Raises:
        FeatureError: the options contradict each other, or a value does not fit.
        MissingExtraError: Pillow is needed to encode or decode, and is not installed.
    """

    shape: Shape = (None, None, 3)
    dtype: Any = DtypeField("uint8")  # noqa: RUF009 - a descriptor
    encoding_format: str | None = None
    use_colormap: bool = False
    decoding: ImageDecoding = ImageDecoding()
    stored_shape: Shape | None = None
    dtype_name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        settle_dtype(self)
        object.__setattr__(self, "shape", check_shape(self.shape))
        if self.encoding_format not in _DTYPES:
            raise feature_fault("", f"unknown image format {self.encoding_format!r}", "Use 'png' or 'jpeg'.")
        if self.dtype_name not in _DTYPES[self.encoding_format]:
            raise feature_fault(
                "", f"an image stored as {self.encoding_format or 'png'} cannot have the dtype {self.dtype_name}"
            )
        if len(self.shape) != 3 or self.shape[2] not in _CHANNELS[self.encoding_format]:
            raise feature_fault(
                "", f"invalid image shape {self.shape}", "Pass (height, width, channels), e.g. (None, None, 3)."
            )
        if self._is_float and self.shape[2] != 1:
            raise feature_fault("", f"a float32 image must have 1 channel, not {self.shape[2]}")
        if self.stored_shape is None and self.decoding != ImageDecoding():
            raise feature_fault("", "decoding= is for readers", "Call reader.decode_images, or FeaturesDict's.")

    def with_decoding(self, decoding: Any, path: str) -> Self:
        """A copy of this feature that is decoded by an ``ImageDecoding``; it replaces an earlier one.

        Args:
            decoding: the ``ImageDecoding``.
            path: the path of the feature, for messages.

        Raises:
            FeatureError: the crop is larger than the image, or floats or class numbers would be scaled.
        """
        if not isinstance(decoding, ImageDecoding):
            raise feature_fault(path, f"expected an ImageDecoding, found {decoding!r:.60}")
        if decoding.ratio > 1 and (self._is_float or self.class_label is not None):
            noun = "float32 pixels" if self._is_float else "class numbers"
            raise feature_fault(path, f"{noun} cannot be scaled, only cropped", "Leave ratio= out.")
        stored = self.stored_shape or self.shape
        height, width = (2**31 if size is None else -(-size // decoding.ratio) for size in stored[:2])
        if decoding.window(height, width) is None:
            raise feature_fault(path, f"the crop {decoding.crop} is not within {height} x {width} pixels")
        return replace(self, shape=decoding.shape_of(stored), decoding=decoding, stored_shape=stored)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The bytes of the file."""
        return (Part("", "bytes", 1),)

    def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
        """The bytes of a PNG or JPEG file."""
        if isinstance(value, np.ndarray):
            return ([self._encode(value, path)],)
        data = file_bytes(value, path)
        if data is None:
            raise feature_fault(
                path,
                f"expected an image, found {type(value).__name__}",
                "Pass an array, a path, or the bytes of a PNG or JPEG file.",
            )
        try:
            picture = images.read_picture(data)
        except images.PictureError as error:
            raise feature_fault(path, f"{error}", "Pass an array, or the bytes of a PNG or JPEG file.") from error
        shape = self.stored_shape or self.shape
        if not fits_shape((picture.height, picture.width), shape[:2]):
            raise feature_fault(path, f"expected shape {shape}, found an image of {picture.height} x {picture.width}")
        return ([data],)

    def flatten_block(
        self, values: AnySequence[Any] | npt.NDArray[Any], path: str
    ) -> tuple[tuple[FlatValue, Counts], ...] | None:
        """The bytes of many files; None for arrays, which take long to encode one by one, and for bad files."""
        if type_of_all(values) is not bytes:
            return None
        try:
            return ((list(chain.from_iterable([self.flatten(value, path)[0] for value in values])), 1),)
        except FeatureError:
            return None

    def restore(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> Any:
        """An array (height, width, channels); with ``count``, an array of ``count`` images."""
        files = take_files(flat, count, "images", path)
        if count is None:
            return self._decode(files[0], path)
        return stack_values([self._decode(file, path) for file in files], self.shape, self.dtype)

    @property
    def decodes_files(self) -> bool:
        """Always True."""
        return True

    def restore_block(self, parts: BlockParts, path: str) -> BlockColumn | None:
        """The images of a block, decoded by all cores if there are many or large ones; None if one may be damaged."""
        column = parts.columns[0]
        if not isinstance(column, wire.BytesColumn) or (parts.counts is None and not has_one_each(column)):
            return None
        batch = None
        if None not in self.shape:
            shape = (column.starts.size, *(size for size in self.shape if size is not None))
            if math.prod(shape) > _MOST_TOGETHER:
                return None
            batch = np.empty(shape, self.dtype)
        num_bytes, view = int(column.sizes.sum()), parts.data.data
        starts, stops = column.starts.tolist(), (column.starts + column.sizes).tolist()

        def decode(rows: range) -> list[npt.NDArray[Any]]:
            images = []
            for row in rows:
                place = None if batch is None else batch[row]
                image = self._decode(bytes(view[starts[row] : stops[row]]), path, place)
                if place is None:
                    images.append(image)
                elif not np.may_share_memory(image, place):
                    place[...] = image
            return images

        unit = max(1, min(len(starts) // _UNITS, _UNIT_BYTES * len(starts) // max(1, num_bytes)))
        units = [range(start, min(start + unit, len(starts))) for start in range(0, len(starts), unit)]
        try:
            if num_bytes < max(_UNIT_BYTES, _SMALL_FILE * len(starts)):
                images = decode(range(len(starts)))
            else:
                calls = engines.call_ahead(engines.shared_threads(os.getpid()), decode, units, most=len(units))
                images = [image for _, some in calls for image in some]
        except RegistryError:
            return None
        if parts.counts is None:
            return ArrayColumn(stack_values(images, self.shape, self.dtype) if batch is None else batch)
        if batch is not None:
            return shaped_column(batch.reshape(-1), parts.counts * math.prod(shape[1:]), parts, self.shape)
        ends = np.broadcast_to(parts.counts, parts.num_records).cumsum().tolist()
        values = [stack_values(images[start:stop], self.shape, self.dtype) for start, stop in pairwise([0, *ends])]
        return ArrayColumn(stack_values(values, (None, *self.shape), self.dtype))

    def restore_content(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> Any:
        """For each image, a tag and its pixels if this package decodes it, otherwise a tag and the bytes of its file.

        The pixels of a JPEG depend on the decoder, so its bytes are compared. The tag distinguishes the two forms.
        """
        return [self._content(data, path) for data in take_files(flat, count, "images", path)]

    @property
    def _is_float(self) -> bool:
        return self.dtype_name == "float32"

    def _encode(self, value: npt.NDArray[Any], path: str) -> bytes:
        array = exact_array(value, self.dtype, path)
        shape = self.stored_shape or self.shape
        if not fits_shape(array.shape, shape) or not array.size or array.shape[2] > 4:
            raise feature_fault(path, f"expected shape {shape}, found {array.shape}")
        if self._is_float:
            array = np.ascontiguousarray(array, "<f4").view(np.uint8)
        return images.encode_jpeg(array) if self.encoding_format == "jpeg" else images.encode_png(array)

    def _content(self, data: Any, path: str) -> tuple[bytes, Any]:
        picture = self._read(data, path)
        if picture.png is None or not picture.png.is_simple:
            self._check_size(picture, path)
            return b"file", data
        return b"pixels", self._decode_picture(picture, path)

    def _decode(self, data: Any, path: str, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        return self._decode_picture(self._read(data, path), path, out)

    def _read(self, data: Any, path: str) -> Picture:
        try:
            return images.read_picture(data)
        except images.PictureError as error:
            raise corrupt_fault(path, f"{error}") from error

    def _check_size(self, picture: Picture, path: str) -> None:
        shape, problem = self.stored_shape or self.shape, ""
        if shape[0] not in (None, picture.height) or shape[1] not in (None, picture.width):
            problem = f"expected shape {shape}"
        elif None in shape[:2] and picture.height * picture.width > MAX_UNDECLARED_PIXELS:
            problem = f"expected at most {MAX_UNDECLARED_PIXELS} pixels"
        if problem:
            raise corrupt_fault(path, f"{problem}, found an image of {picture.height} x {picture.width}")

    def _decode_picture(self, picture: Picture, path: str, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """The pixels, maybe in ``out``, which has their shape and dtype."""
        self._check_size(picture, path)
        ratio, crop, window = self.decoding.ratio, self.decoding.crop, None
        if crop:
            height, width = -(-picture.height // ratio), -(-picture.width // ratio)
            window = self.decoding.window(height, width)
            if window is None:
                problem = f"the crop {crop} is not within an image of {height} x {width} pixels"
                raise corrupt_fault(path, problem, "Choose a smaller crop or ratio.")
        try:
            channels = 4 if self._is_float else self.shape[2]
            out = None if self._is_float or crop else out
            is_wide = self.dtype_name == "uint16"
            pixels = images.decode_picture(picture, channels=channels, wide=is_wide, ratio=ratio, out=out)
        except images.PictureError as error:
            raise corrupt_fault(path, f"{error}") from error
        if self._is_float:
            pixels = np.ascontiguousarray(pixels).view("<f4").astype(self.dtype)
        return pixels if window is None else pixels[window].copy()  # a view would keep the whole image in memory


@dataclass(frozen=True, kw_only=True, repr=False)
class LabeledImage(Image):
    """A one-channel image whose pixels are class numbers, such as a segmentation mask. Decodes like an ``Image``.

    Follows ``tfds.features.LabeledImage``.

    Attributes:
        num_classes: the number of classes; 0 if it is not known yet, which allows every pixel.
        names: the class names; None if the classes have no names. Pass ``names`` or ``num_classes``.
            A pixel is the number of a class, or the highest value of the dtype for no label: masks use 255 for borders.
        shape: (height, width, 1); None for a height or width that differs.
        dtype, encoding_format: as in ``Image``.

    >>> LabeledImage(names=["background", "car"], shape=(4, 4, 1)).label.int2str(1)
    'car'

    Raises:
        FeatureError: there is more than one channel, the options contradict each other, a class name is invalid, or a
            value does not fit.
        MissingExtraError: Pillow is needed to encode or decode, and is not installed.
    """

    num_classes: int | None = None
    names: Any = None
    shape: Shape = (None, None, 1)
    use_colormap: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shape[2] != 1:
            raise feature_fault("", f"a LabeledImage must have 1 channel, not {self.shape[2]}")
        label = ClassLabel(num_classes=self.num_classes, names=self.names)
        object.__setattr__(self, "names", label.names)
        object.__setattr__(self, "num_classes", label.num_classes)

    def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
        """The bytes of a PNG or JPEG file, whose pixels are decoded to check them."""
        flat = super().flatten(value, path)
        if self.limits:
            try:
                pixels = value if isinstance(value, np.ndarray) else self.restore(flat, None, path)
            except CorruptExampleError as error:
                raise feature_fault(path, error.details["problem"]) from error
            outside = self.outside(pixels)
            if outside.any():
                raise feature_fault(path, f"pixels must be {self.limits}, found {pixels[outside][0]}")
        return flat

    flatten_block = Image.flatten_block  # it calls ``flatten``

    @property
    def limits(self) -> str:
        """The numbers of the classes; empty if their number is not known yet."""
        if not self.num_classes:
            return ""
        return f"in 0..{self.num_classes - 1}, or {self._no_label} for no label"

    def outside(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """A mask for every pixel: whether it is neither the number of a class nor that of no label."""
        return np.asarray(((values < 0) | (values >= (self.num_classes or 0))) & (values != self._no_label))

    @property
    def _no_label(self) -> int:
        return -1 if self._is_float else int(np.iinfo(self.dtype).max)

    @property
    def class_label(self) -> ClassLabel:
        """The label of a pixel, the same as ``label``."""
        return self.label

    def with_label_names(self, names: tuple[str, ...]) -> Self:
        """A copy of this feature with ``names`` for its classes."""
        return replace(self, num_classes=None, names=names)

    @property
    def label(self) -> ClassLabel:
        """The ClassLabel of a pixel."""
        return ClassLabel(num_classes=self.num_classes, names=self.names)


@dataclass(frozen=True, kw_only=True, repr=False)
class Video(Sequence):
    """A video of shape (frames, height, width, channels). Decodes to an array of that shape.

    Follows ``tfds.features.Video``. It accepts an array, or a list of frames: arrays, PNG or JPEG files, or their
    bytes. It does not decode video files: pass the frames.

    Attributes:
        shape: frames, height, width and channels; None for a number that differs from example to example.
        encoding_format: ``png`` or ``jpeg``, the encoding of frames; None is ``png``.
        ffmpeg_extra_args: arguments that TFDS passes to ffmpeg; kept for TFDS and not used here.
        use_colormap: whether viewers should show one-channel frames in colours.
        dtype: uint8; uint16 (PNG only); float32 (PNG only, one channel).

    >>> Video(shape=(None, 64, 64, 3)).shape
    (None, 64, 64, 3)

    Raises:
        FeatureError: the options contradict each other, or a value does not fit.
        MissingExtraError: Pillow is needed to encode or decode, and is not installed.
    """

    feature: Any = field(init=False)
    length: int | None = field(default=None, init=False)
    shape: Shape = (None, None, None, 3)
    encoding_format: str | None = "png"
    ffmpeg_extra_args: tuple[str, ...] = ()
    use_colormap: bool = False
    dtype: Any = DtypeField("uint8")  # noqa: RUF009 - a descriptor
    dtype_name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", check_shape(self.shape))
        settle_dtype(self)
        object.__setattr__(self, "ffmpeg_extra_args", tuple(self.ffmpeg_extra_args))
        if len(self.shape) != 4:
            raise feature_fault(
                "",
                f"invalid video shape {self.shape}",
                "Pass (frames, height, width, channels), e.g. (None, 64, 64, 3).",
            )
        frame = Image(
            shape=self.shape[1:],
            dtype=self.dtype_name,
            encoding_format=self.encoding_format,
            use_colormap=self.use_colormap,
        )
        object.__setattr__(self, "feature", frame)
        object.__setattr__(self, "length", self.shape[0])
        super().__post_init__()

    def elements_of(self, value: Any, path: str) -> Any:
        """The frames of ``value``: an array or a list."""
        if isinstance(value, (str, bytes, os.PathLike)) or hasattr(value, "read"):
            raise feature_fault(
                path,
                "expected the frames of a video, found a file",
                "Decode it, and pass an array or a list of images.",
            )
        return value if not isinstance(value, Iterable) or isinstance(value, np.ndarray) else list(value)

    def with_feature(self, feature: Feature) -> Sequence:
        """A Sequence of frames that are decoded by ``feature``, to the same arrays."""
        return Sequence(feature, length=self.length, description=self.description, value_range=self.value_range)


@dataclass(frozen=True, kw_only=True, repr=False)
class BBox(PlainTensor):
    """A bounding box of four numbers; by default ``(ymin, xmin, ymax, xmax)``, each in 0..1.

    Follows ``tfds.features.BBoxFeature``. Decodes to a float32 array of shape (4,). The numbers are stored unchanged.
    As in TFDS, the numbers of ``REL_YXYX`` and ``REL_XYXY`` must be in 0..1, and in ``REL_YXYX`` and ``YXYX`` a minimum
    must not exceed its maximum.

    Attributes:
        bbox_format: ``REL_YXYX`` (the default), ``REL_XYXY``, ``YXYX``, ``XYXY`` (in pixels) or ``XYWH`` (a corner,
            width and height); None if it is unknown.

    >>> try:
    ...     BBox().flatten((0.5, 0.0, 0.25, 1.0), "box")
    ... except ValueError as error:
    ...     print(error)
    feature 'box': the box (0.5, 0.0, 0.25, 1.0) has a minimum above its maximum

    Raises:
        FeatureError: the format is unknown, or a value is not four numbers that are valid in it.
    """

    shape: Shape = field(default=(4,), init=False)
    dtype: Any = field(default=DtypeField("float32"), init=False)
    bbox_format: str | None = "REL_YXYX"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bbox_format is not None and self.bbox_format not in BBOX_FORMATS:
            raise feature_fault(
                "", f"unknown box format {self.bbox_format!r}", f"Known formats: {', '.join(BBOX_FORMATS)}."
            )

    def _check_limits(self, array: npt.NDArray[Any], path: str) -> None:
        boxes = array.reshape(-1, 4)
        outside = self.outside(boxes)
        if not outside.any():
            return
        box = boxes[outside][0].tolist()
        rounded = tuple(round(number, 6) for number in box)
        if self.bbox_format in _RELATIVE and not all(0 <= number <= 1 for number in box):
            raise feature_fault(
                path,
                f"expected relative coordinates in 0..1, found the box {rounded}",
                "Divide by the height and width of the image.",
            )
        raise feature_fault(
            path, f"the box {rounded} has a minimum above its maximum", "The order is ymin, xmin, ymax, xmax."
        )

    @property
    def limits(self) -> str:
        """The requirements of the format, or empty."""
        is_ordered = self.bbox_format in _ORDERED
        if self.bbox_format in _RELATIVE:
            return "in 0..1, without a minimum above its maximum" if is_ordered else "in 0..1"
        return "a box without a minimum above its maximum" if is_ordered else ""

    def outside(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which boxes, of shape (n, 4), are invalid in the format."""
        result = np.zeros(len(values), np.bool_)
        if self.bbox_format in _RELATIVE:
            result |= ~((values >= 0) & (values <= 1)).all(axis=1)
        if self.bbox_format in _ORDERED:
            result |= (values[:, :2] > values[:, 2:]).any(axis=1)
        return result
