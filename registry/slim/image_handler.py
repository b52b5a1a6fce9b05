"""The item handler of encoded images, with the options of TF-Slim. ``image_formats`` decodes the bytes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.engines import call_ahead, shared_threads
from registry.errors import CorruptExampleError, FeatureError, RegistryError, UsageError, WrongTypeError
from registry.features import as_dtype
from registry.slim.data_decoder import check_record
from registry.slim.feature_specs import SparseTensorValue
from registry.slim.image_codec import MAX_PIXELS, ImageFault
from registry.slim.image_formats import CHANNELS, decode_encoded, decode_raw, decode_small_images
from registry.slim.item_handlers import ItemHandler, check_item_shape
from registry.slim.parsing import Column

_RAW: Final = (b"raw", b"RAW")
_METHODS: Final = ("", "INTEGER_FAST", "INTEGER_ACCURATE")
_LARGE: Final = 4096
"""Mean size, in bytes, from which images are decoded in threads. Below it, the hand-over costs more than it gains."""

_MANY: Final = 32
"""Number of small images that are decoded together. With more, the buffers of larger ones are reallocated each time."""

_TOGETHER: Final = 4
_MOST_UNITS: Final = 4
"""Number of images per call in a thread, and maximum number of calls in progress."""

_LOOKED_AT: Final = 8


class Image(ItemHandler):
    """Decodes an encoded image, or raw values, to an array (height, width, channels) of ``dtype``.

    Follows ``tf_slim.data.tfexample_decoder.Image``. The first bytes determine the format: JPEG, PNG, BMP, GIF or WebP.
    The stored format is ignored, except ``raw`` and ``RAW``: the bytes are then little-endian values, in one dimension
    unless ``shape`` is given. A GIF or a WebP gives (frames, height, width, channels). The images of a record may have
    at most 178,956,970 pixels.

    JPEG, GIF and WebP require Pillow.

    Args:
        image_key: the key of the string feature with the image; None is ``image/encoded``.
        format_key: the key of the string feature with its format; None is ``image/format``.
        shape: the shape of the result. The values are arranged in their order, and nothing is resized. One size may be
            -1, which is computed.
        channels: 1, 3 or 4; 0 keeps the channels of the file.
        dtype: a dtype of NumPy or TensorFlow, or its name. Floats are in 0..1 and integers fill their range, except for
            a JPEG, whose 0..255 are cast.
        repeated: the feature holds any number of images, which are stacked along a new first dimension.
        dct_method: ``""`` and ``INTEGER_ACCURATE`` decode a JPEG exactly. ``INTEGER_FAST`` decodes to the same pixels
            as TensorFlow's default, if the extra ``jpeg`` is installed, and otherwise has no effect. It is not faster.

    Raises:
        UsageError: an option has an invalid value.
        WrongTypeError: ``dtype`` is not a dtype of numbers.
    """

    def __init__(
        self,
        image_key: str | None = None,
        format_key: str | None = None,
        shape: Sequence[int] | None = None,
        channels: int = 3,
        dtype: Any = np.uint8,
        repeated: bool = False,
        dct_method: str = "",
    ) -> None:
        self._image_key = image_key or "image/encoded"
        self._format_key = format_key or "image/format"
        super().__init__([self._image_key, self._format_key])
        self._shape = None if shape is None else check_item_shape(shape)
        self._dtype = _check_dtype(dtype)
        self._repeated = repeated
        if channels not in CHANNELS:
            raise UsageError(
                f"channels must be 0, 1, 3 or 4, not {channels!r}", hint="0 keeps the channels of the file."
            )
        self._channels = int(channels)
        if dct_method not in _METHODS:
            raise UsageError(
                f"unknown dct_method={dct_method!r}", hint="Pass '', 'INTEGER_FAST' or 'INTEGER_ACCURATE'."
            )
        self._dct_method = dct_method

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> npt.NDArray[Any]:
        """The image, (height, width, channels) or ``shape``; with ``repeated`` all images, stacked.

        Raises:
            CorruptExampleError: the image is empty, damaged, truncated, too large, of an unknown format, or does not
                fit the options; ``details["feature"]`` is its key.
            MissingExtraError: the image needs Pillow, which is not installed.
        """
        result, form = keys_to_tensors[self._image_key], keys_to_tensors[self._format_key]
        try:
            is_raw = (form if type(form) is bytes else _one(form, self._format_key, is_format=True)) in _RAW
            if self._repeated:
                return self._decode_all(_several(result), is_raw=is_raw)
            data = result if type(result) is bytes else _one(result, self._image_key)
            return self._decode(data, is_raw=is_raw, limit=MAX_PIXELS)
        except ImageFault as error:
            raise CorruptExampleError(
                f"feature {self._image_key!r}: {error.problem}",
                hint=error.hint,
                details={"feature": self._image_key, "problem": error.problem},
            ) from error
        except MemoryError as error:
            raise CorruptExampleError(
                f"feature {self._image_key!r}: there is not enough memory for this image",
                hint="Store it smaller, or as several records.",
                details={"feature": self._image_key},
            ) from error

    def columns_to_items(self, keys_to_columns: Mapping[str, Column]) -> Iterator[npt.NDArray[Any]] | None:
        """The images of many records: small ones of one kind are decoded together, large ones in several threads."""
        images, formats = keys_to_columns[self._image_key], keys_to_columns[self._format_key]
        sizes = [len(image) for image in islice(images, _LOOKED_AT) if isinstance(image, bytes)]
        if not sizes:
            return None
        values = zip(images, formats, strict=True)
        return self._decode_together(values) if sum(sizes) < _LARGE * len(sizes) else self._decode_ahead(values)

    def _decode_together(self, values: Iterator[tuple[Any, Any]]) -> Iterator[npt.NDArray[Any]]:
        while some := list(islice(values, _MANY)):
            alike = self._decode_alike(some)
            if alike is None:
                alike = (self.tensors_to_item({self._image_key: image, self._format_key: form}) for image, form in some)
            yield from alike

    def _decode_alike(self, values: list[tuple[Any, Any]]) -> Iterator[npt.NDArray[Any]] | None:
        """The images, each with its own memory; None if they have to be decoded one by one, e.g. to report an error."""
        if self._repeated or not all(map(_is_plain, values)):
            return None
        encoded = [image for image, _ in values]
        try:
            images = decode_small_images(encoded, channels=self._channels, dtype=self._dtype, limit=MAX_PIXELS)
            if images is not None and self._shape is not None:
                images = images.reshape(len(values), *_reshape(images[0], self._shape).shape)
        except ImageFault:
            return None
        return None if images is None else (image.copy() for image in images)

    def _decode_ahead(self, values: Iterator[tuple[Any, Any]]) -> Iterator[npt.NDArray[Any]]:
        units = iter(lambda: list(islice(values, _TOGETHER)), [])
        for _, (images, fault) in call_ahead(shared_threads(os.getpid()), self._decode_unit, units, most=_MOST_UNITS):
            yield from images
            if fault is not None:
                raise fault

    def _decode_unit(self, values: list[tuple[Any, Any]]) -> tuple[list[npt.NDArray[Any]], RegistryError | None]:
        """The images before the first one that cannot be decoded, and the error of that one."""
        images: list[npt.NDArray[Any]] = []
        for image, form in values:
            try:
                images.append(self.tensors_to_item({self._image_key: image, self._format_key: form}))
            except RegistryError as error:
                return images, error
        return images, None

    def _decode(self, data: bytes, *, is_raw: bool, limit: int) -> npt.NDArray[Any]:
        if is_raw:
            image = decode_raw(data, self._dtype)
        else:
            image = decode_encoded(
                data, channels=self._channels, dtype=self._dtype, limit=limit, method=self._dct_method
            )
        if self._shape is None or image.shape == self._shape:
            return image
        return _reshape(image, self._shape)

    def _decode_all(self, images: list[bytes], *, is_raw: bool) -> npt.NDArray[Any]:
        if not images:
            if self._shape is None or -1 in self._shape:
                raise ImageFault(
                    "there are no images, so the shape of the result is unknown",
                    "Pass Image(shape=...) with all sizes of one image, to get an empty array.",
                )
            return np.empty((0, *self._shape), self._dtype)
        limit = MAX_PIXELS
        decoded: list[npt.NDArray[Any]] = []
        for place, data in enumerate(images):
            try:
                image = self._decode(data, is_raw=is_raw, limit=limit)
            except ImageFault as error:
                raise ImageFault(f"image {place}: {error.problem}", error.hint) from error
            if decoded and image.shape != decoded[0].shape:
                raise ImageFault(
                    f"image {place}: expected shape {list(decoded[0].shape)}, found {list(image.shape)}",
                    "The images of one record are stacked. Write them in one size, or one per record.",
                )
            decoded.append(image)
            limit -= image.size // (image.shape[-1] if image.ndim > 2 else 1)
        return np.stack(decoded)


def decode_image(data: bytes, channels: int = 0, dtype: Any = np.uint8, dct_method: str = "") -> npt.NDArray[Any]:
    """Decode one image to an array (height, width, channels), or (frames, height, width, channels) for GIF and WebP.

    Args:
        data: the bytes of a PNG, JPEG, BMP, GIF or WebP file.
        channels: 1, 3 or 4; 0 keeps the channels of the file.
        dtype: a dtype of NumPy or TensorFlow, or its name. Floats are in 0..1 and integers fill their range, except for
            a JPEG, whose 0..255 are cast.
        dct_method: ``""``, ``INTEGER_ACCURATE`` or ``INTEGER_FAST``, for JPEG.

    >>> from registry.images import encode_png
    >>> decode_image(encode_png(np.zeros((2, 3, 1), np.uint8)), channels=3).shape
    (2, 3, 3)

    Raises:
        CorruptExampleError: the image is damaged, too large, of an unknown format, or does not have these channels.
        MissingExtraError: JPEG, GIF and WebP require Pillow, which is not installed.
        UsageError: an option has an invalid value.
        WrongTypeError: ``data`` is not bytes, or ``dtype`` is not a dtype of numbers.
    """
    if isinstance(data, str | os.PathLike):
        raise WrongTypeError(
            f"an image must be bytes, not the path {os.fspath(data)!r:.100}",
            hint="Read the file: decode_image(pathlib.Path(...).read_bytes())",
        )
    handler = Image("image", channels=channels, dtype=dtype, dct_method=dct_method)
    return handler.tensors_to_item({"image": bytes(check_record(data)), "image/format": b""})


def _is_plain(value: tuple[Any, Any]) -> bool:
    image, form = value
    return type(image) is bytes and type(form) is bytes and form not in _RAW


def _reshape(image: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    known = math.prod(size for size in shape if size >= 0)
    fits = (known > 0 and image.size % known == 0) if -1 in shape else known == image.size
    if not fits:
        counted = " x ".join(str(size) for size in image.shape)
        total = f" = {image.size}" if image.ndim > 1 else ""
        raise ImageFault(
            f"shape={list(shape)} requires {f'a multiple of {known}' if -1 in shape else known} values, "
            f"found {counted}{total}",
            "shape only arranges the values: nothing is resized. Pass the shape that was stored, or none.",
        )
    return image.reshape(shape)


def _one(found: Any, key: str, *, is_format: bool = False) -> bytes:
    """The one text of a feature; a format may be missing."""
    texts = _several(found)
    if is_format and not texts:
        return b""
    if len(texts) != 1:
        noun = "format" if is_format else "image"
        hint = "All images of a record have one format." if is_format else "Image(repeated=True) reads any number."
        raise ImageFault(f"expected 1 {noun} in {key!r}, found {len(texts)}", hint)
    return texts[0]


def _several(found: Any) -> list[bytes]:
    """The texts of a feature, parsed to any form."""
    values = found.values if isinstance(found, SparseTensorValue) else found
    texts = [values] if isinstance(values, (bytes, str)) else np.asarray(values).reshape(-1).tolist()
    for text in texts:
        if not isinstance(text, (bytes, str)):
            raise ImageFault(
                f"expected strings, found {type(text).__name__}", "Declare it as FixedLenFeature((), 'string')."
            )
    return [text.encode() if isinstance(text, str) else text for text in texts]


def _check_dtype(dtype: Any) -> np.dtype[Any]:
    # A dtype of TensorFlow has its NumPy dtype as an attribute, so TensorFlow need not be installed.
    named = getattr(dtype, "as_numpy_dtype", dtype)
    try:
        result = as_dtype(named)
    except FeatureError as error:
        raise WrongTypeError(f"dtype={dtype!r:.60}: {error.message}", hint="Pass a dtype of numbers.") from error
    if result.kind not in "iuf" and result.name != "bfloat16":  # its kind is V
        raise WrongTypeError(f"dtype={dtype!r:.60} is not a dtype of numbers", hint="Use e.g. uint8 or float32.")
    return result
