"""The item handler of encoded images, with the options that it has in TF-Slim."""

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
from registry.features.dtypes import as_dtype, is_bfloat16
from registry.slim.data_decoder import check_record
from registry.slim.feature_specs import SparseTensorValue
from registry.slim.image_codec import MAX_PIXELS, ImageFault
from registry.slim.image_formats import CHANNELS, decode_encoded, decode_raw, decode_small_images
from registry.slim.item_handlers import ItemHandler, check_item_shape
from registry.slim.parsing import Column

_RAW: Final = (b"raw", b"RAW")
_METHODS: Final = ("", "INTEGER_FAST", "INTEGER_ACCURATE")
_LARGE: Final = 4096
"""From this mean size on, in bytes, decoding takes so much longer than handing over that threads are worth it."""

_MANY: Final = 32
"""How many small images are decoded together: with more of the larger ones, memory is allocated for each call."""

_TOGETHER: Final = 4
_MOST_UNITS: Final = 4
"""How many images one call of a thread decodes, and how many calls are under way at most."""

_LOOKED_AT: Final = 8


class Image(ItemHandler):
    """Decodes an encoded image, or raw values, to an array (height, width, channels) of ``dtype``.

    The first bytes tell the format, whatever the record says: JPEG, PNG, BMP, GIF or WebP. Only the format ``raw`` or
    ``RAW`` has an effect: the bytes are values, the lowest byte first, in one row unless ``shape`` is given. A GIF and
    a WebP give (frames, height, width, channels). A record may ask for ``MAX_PIXELS`` pixels at most.

    PNG and BMP need nothing else; JPEG, GIF and WebP need Pillow.

    Args:
        image_key: the feature of strings that holds the image; None is ``image/encoded``.
        format_key: the feature of strings that holds its format; None is ``image/format``.
        shape: the shape of the result, into which the values are put in their order, nothing is resized; one size may
            be -1, which is found out.
        channels: 1, 3 or 4; 0 are those of the file.
        dtype: a dtype of NumPy or TensorFlow, or its name. Floats are in 0..1 and integers fill their range, but of a
            JPEG, whose 0..255 are only cast.
        repeated: the feature holds any number of images, which give (n, *shape of one*).
        dct_method: how a JPEG is decoded: ``""`` and ``INTEGER_ACCURATE`` exactly; ``INTEGER_FAST`` with the transform
            that TensorFlow takes for ``""``, to its very pixels, where the extra ``jpeg`` is installed. It is no
            faster here, and elsewhere a hint that is not followed.

    Raises:
        UsageError: an option that means nothing.
        WrongTypeError: an option of another type.
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
                f"channels={channels!r} is no number of channels", hint="Give 1, 3 or 4, or 0 for those of the file."
            )
        self._channels = int(channels)
        if dct_method not in _METHODS:
            raise UsageError(
                f"dct_method={dct_method!r} is not known", hint="Give '', 'INTEGER_FAST' or 'INTEGER_ACCURATE'."
            )
        self._dct_method = dct_method

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> npt.NDArray[Any]:
        """The image, (height, width, channels) or ``shape``; with ``repeated`` all images, stacked.

        Raises:
            CorruptExampleError: the image is empty, damaged, cut off, too large, of no known format, or does not fit
                the options; ``details["feature"]`` is its key.
            MissingExtraError: the image needs Pillow, which is not installed.
        """
        found, form = keys_to_tensors[self._image_key], keys_to_tensors[self._format_key]
        try:
            is_raw = (form if type(form) is bytes else _one(form, self._format_key, is_format=True)) in _RAW
            if self._repeated:
                return self._decode_all(_several(found), is_raw=is_raw)
            data = found if type(found) is bytes else _one(found, self._image_key)
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
        """The images of many records: small ones together, if they are alike, and large ones by several threads."""
        images, formats = keys_to_columns[self._image_key], keys_to_columns[self._format_key]
        sizes = [len(one) for one in islice(images, _LOOKED_AT) if isinstance(one, bytes)]
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
        """The images, each with memory of its own; None where they have to be decoded, or are at fault, one by one."""
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
        """The images before the first that cannot be decoded, and what is wrong with that one."""
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
                    "there are no images, and their shape is not known",
                    "Give Image the shape of one, all sizes, to get an array of none.",
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
                    f"image {place} has the shape {list(image.shape)}, and those before it {list(decoded[0].shape)}",
                    "Images of one record are stacked. Write them in one size, or one to a record.",
                )
            decoded.append(image)
            limit -= image.size // (image.shape[-1] if image.ndim > 2 else 1)
        return np.stack(decoded)


def decode_image(data: bytes, channels: int = 0, dtype: Any = np.uint8, dct_method: str = "") -> npt.NDArray[Any]:
    """The array of one encoded image, for a function or a handler of one's own; options, shape and errors as ``Image``.

    ``data`` are the bytes of a PNG, JPEG, BMP, GIF or WebP.
    """
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
            f"it has {counted}{total} values, and shape={list(shape)} takes "
            + (f"a multiple of {known}" if -1 in shape else f"{known}"),
            "shape only arranges the values: nothing is resized. Give the shape that was stored, or none.",
        )
    return image.reshape(shape)


def _one(found: Any, key: str, *, is_format: bool = False) -> bytes:
    """The one text of a feature; a format may be missing."""
    texts = _several(found)
    if is_format and not texts:
        return b""
    if len(texts) != 1:
        noun = "formats" if is_format else "images"
        hint = "All images of a record have one format." if is_format else "Image(repeated=True) takes several or none."
        raise ImageFault(f"{len(texts)} {noun} in {key!r}, where one belongs", hint)
    return texts[0]


def _several(found: Any) -> list[bytes]:
    """The texts of a feature, however it was parsed."""
    values = found.values if isinstance(found, SparseTensorValue) else found
    texts = [values] if isinstance(values, (bytes, str)) else np.asarray(values).reshape(-1).tolist()
    for text in texts:
        if not isinstance(text, (bytes, str)):
            raise ImageFault(
                f"it holds {type(text).__name__} and no strings", "Parse it with FixedLenFeature((), 'string')."
            )
    return [text.encode() if isinstance(text, str) else text for text in texts]


def _check_dtype(dtype: Any) -> np.dtype[Any]:
    # A dtype of TensorFlow says what it is for NumPy, so that TensorFlow need not be there.
    named = getattr(dtype, "as_numpy_dtype", dtype)
    try:
        found = as_dtype(named)
    except FeatureError as error:
        raise WrongTypeError(f"dtype={dtype!r:.60}: {error.message}", hint="Give a dtype of numbers.") from error
    if found.kind not in "iuf" and not is_bfloat16(found):
        raise WrongTypeError(f"dtype={dtype!r:.60} holds no numbers", hint="Give one that does, e.g. uint8 or float32.")
    return found
