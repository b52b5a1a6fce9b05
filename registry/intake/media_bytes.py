"""Recognizes media files by their first bytes, and checks that images and sounds are complete, without decoding them.

Pillow images, and pictures in formats that only Pillow reads, become the bytes of PNG or JPEG files.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from registry.errors import FeatureError, MissingExtraError, RegistryError
from registry.features import Audio, Feature, FeaturesDict, Image, Tensor
from registry.features import Sequence as SequenceFeature
from registry.features.audio import SoundError, read_sample_rate
from registry.images.pictures import JPEG_SIGNATURE, Picture, PictureError, read_jpeg_header, read_picture
from registry.images.pillow import import_pillow
from registry.images.png import SIGNATURE as PNG_SIGNATURE
from registry.images.png import encode_png
from registry.intake.source import BadFileError
from registry.shards.arrow_values import import_pyarrow, plain_array, plain_type

DECODED: Final = ("WebP", "GIF", "BMP", "TIFF")
"""The formats whose pictures become PNG."""

IMAGE_FAULTS: Final = (OSError, SyntaxError, ValueError)

_CHANNELS: Final = {"1": 1, "L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "I;16": 1, "I;16B": 1}
_BITS_PER_SAMPLE: Final = 258
"""The tag of a TIFF."""


def image_file(image: Any) -> bytes:
    """Return the bytes of a Pillow image: those of the PNG or JPEG file that it was opened from, or of a new PNG.

    The file is used only if Pillow has not decoded it yet, because a decoded image may have been changed in place.

    Raises:
        ValueError: PNG cannot store the mode of the image.
        OSError: the image cannot be read.
    """
    if image.format in ("PNG", "JPEG") and getattr(image, "tile", None) and not getattr(image, "is_animated", False):
        file = image.fp
        if file is not None and getattr(image, "decoderconfig", ()) == ():
            place = file.tell()
            try:
                file.seek(0)
                return bytes(file.read())
            finally:
                file.seek(place)
    mode = _mode_of(image)
    pixels = np.asarray(image if mode == image.mode else image.convert(mode))
    return encode_png(pixels[..., None] if pixels.ndim == 2 else pixels)


def image_feature(image: Any) -> Image:
    """Return the feature of a column of images like this one."""
    is_wide = image.mode.startswith("I;16")
    return Image(shape=(None, None, 1 if is_wide else None), dtype=np.uint16 if is_wide else np.uint8)


def as_png(data: bytes) -> bytes:
    """Convert a picture in one of the formats of ``DECODED`` to PNG.

    Raises:
        ValueError, OSError, SyntaxError: the picture is damaged, has several frames, or a mode that PNG cannot store.
        MissingExtraError: Pillow is not installed.
    """
    with _faults_of_pillow(), _open(io.BytesIO(data)) as image:
        return image_file(image)


@contextmanager
def _faults_of_pillow() -> Iterator[None]:
    """Convert Pillow's errors for a damaged file, such as IndexError for a short GIF, to ValueError.

    Hide its warnings.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (RegistryError, MemoryError, *IMAGE_FAULTS):
        raise
    except Exception as error:
        raise ValueError(f"it is damaged: {error}") from error


def _open(file: Any) -> Any:
    pillow = import_pillow("decoding WebP, GIF, BMP and TIFF")
    image = pillow.open(file, formats=[name.upper() for name in DECODED])
    if getattr(image, "n_frames", 1) > 1:
        raise ValueError(f"it has {image.n_frames} frames, but an Image has only one")
    return image


def _mode_of(image: Any) -> str:
    """Return the mode in which a PNG stores all values of an image."""
    mode = str(image.mode)
    if mode in ("1", "P"):
        mode = "L" if mode == "1" else "RGBA" if "transparency" in image.info else "RGB"
    if mode not in _CHANNELS:
        raise ValueError(f"PNG has no mode {image.mode!r}; use image.convert('RGB')")
    bits = getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE, (1,))
    if max(bits) > 8 and not mode.startswith("I;16"):  # Pillow drops the lower bytes of such a sample
        raise ValueError(f"it has {max(bits)} bits per sample, but Pillow keeps only 8 in the mode {mode!r}")
    return mode


IMAGES: Final = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ico", ".heic", ".heif"),
    *(".avif", ".avifs", ".jp2", ".j2k", ".jpx", ".jxl", ".ppm", ".pgm", ".pbm", ".pnm"),
    *(".apng", ".mpo", ".tga", ".qoi", ".dds", ".psd", ".exr"),
)
AUDIO: Final = (
    *(".wav", ".mp3", ".flac", ".ogg", ".oga", ".opus", ".m4a", ".aac", ".aif", ".aiff", ".aifc", ".au", ".wma"),
)
VIDEOS: Final = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".ogv", ".wmv", ".flv", ".3gp")

_PICTURES: Final = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".jpe": "JPEG", ".jfif": "JPEG"}
_UNDECODED_SOUNDS: Final = (".m4a", ".aac", ".wma")
_ENDINGS: Final = {".gif": "GIF", ".webp": "WebP", ".bmp": "BMP", ".wav": "WAV", ".flac": "FLAC", ".avi": "AVI"}
_EXPECTED: Final = {
    **_PICTURES,
    **_ENDINGS,
    **dict.fromkeys((".tif", ".tiff"), "TIFF"),
    **dict.fromkeys((".ogg", ".oga", ".opus", ".ogv"), "Ogg"),
    **dict.fromkeys((".aif", ".aiff"), "AIFF"),
    **dict.fromkeys((".mkv", ".webm"), "Matroska"),
    ".flv": "FLV",
}
_SIGNATURES: Final = (
    *((PNG_SIGNATURE, "PNG"), (JPEG_SIGNATURE, "JPEG"), (b"GIF87a", "GIF"), (b"GIF89a", "GIF"), (b"BM", "BMP")),
    *((b"II*\0", "TIFF"), (b"MM\0*", "TIFF"), (b"II+\0", "TIFF"), (b"MM\0+", "TIFF"), (b"fLaC", "FLAC")),
    *((b"OggS", "Ogg"), (b"ID3", "MP3"), (b"\x1a\x45\xdf\xa3", "Matroska"), (b"FLV", "FLV"), (b"%PDF", "PDF")),
    *((b"<!DOCTYPE", "HTML"), (b"<!doctype", "HTML"), (b"<html", "HTML"), (b"<svg", "SVG"), (b"<?xml", "XML")),
    *((b"PK\x03\x04", "zip"), (b"PK\x05\x06", "zip"), (b"\x1f\x8b", "gzip"), (b"PAR1", "Parquet")),
    *((b"ARROW1", "Arrow"), (b"\xff\xff\xff\xff", "Arrow"), (b"\x93NUMPY", "NumPy")),
    (b"version https://git-lfs", "Git LFS pointer"),
)
_START_BYTES: Final = 64
_DEPTH_PLACE: Final = 24
"""The place of the bits per sample in a PNG, after its signature and the width and height of the chunk IHDR."""

_HEADER_BYTES: Final = 2**16
"""The number of bytes that are read first to measure a picture. Few pictures have longer headers."""

_PNG_CHANNELS: Final = {0: 1, 2: 3, 4: 2, 6: 4}
_FRAMES: Final = "it has several frames, but an Image has only one"
_OWN: Final = "; convert it, or keep the files as they are with the type bytes"
_NO_MEDIA: Final = ("HTML", "Git LFS pointer")
_RIFF: Final = {b"WEBP": "WebP", b"WAVE": "WAV", b"AVI ": "AVI"}
_RIFF_SIGNATURES: Final = (b"RIFF", b"RIFX", b"RF64")  # TIFF in the other byte order, and BigTIFF


def format_of(data: bytes) -> str | None:
    """Return the format that the first bytes of a file show, or None if it is unknown.

    >>> format_of(b"RIFF....WEBPVP8 "), format_of(b"GIF89a"), format_of(b"hello")
    ('WebP', 'GIF', None)
    """
    if data.startswith(_RIFF_SIGNATURES):
        return _RIFF.get(data[8:12])
    if data.startswith(b"FORM"):
        return "AIFF" if data[8:12] in (b"AIFF", b"AIFC") else None
    return next((name for signature, name in _SIGNATURES if data.startswith(signature)), None)


def measure_picture(file: Any) -> tuple[int, tuple[int | None, int | None, int | None]] | None:
    """Return the bits per sample, 8 or 16, and the shape of a picture in an open file, from its header.

    Returns None for a PNG or JPEG that is damaged.

    Raises:
        ValueError, OSError, SyntaxError: an Image cannot represent the picture.
        MissingExtraError: the picture requires Pillow, which is not installed.
    """
    start = file.read(_HEADER_BYTES)
    picture_format = format_of(start)
    if picture_format == "PNG" and len(start) > _DEPTH_PLACE + 1:
        width, height = int.from_bytes(start[16:20], "big"), int.from_bytes(start[20:24], "big")
        channels = _PNG_CHANNELS.get(start[_DEPTH_PLACE + 1])
        head, pixels, _ = start.partition(b"IDAT")
        if b"acTL" in head:
            raise ValueError(_FRAMES)
        if channels is None and pixels:  # a palette
            channels = 4 if b"tRNS" in head else 3
        return 16 if start[_DEPTH_PLACE] == 16 else 8, (height, width, channels)
    if picture_format == "JPEG":
        header = read_jpeg_header(start) or read_jpeg_header(start + file.read())
        return None if header is None else (8, (header.height, header.width, header.components))
    if picture_format in DECODED:
        file.seek(0)
        with _faults_of_pillow(), _open(file) as image:
            mode = _mode_of(image)
            return 16 if mode.startswith("I;16") else 8, (image.height, image.width, _CHANNELS[mode])
    if picture_format in ("PNG", *_NO_MEDIA) or not start:
        return None
    raise ValueError(f"it is {picture_format or 'in another format'}")


def common_picture(first: Image, second: Image) -> Image:
    """Return the Image for both, which have the same dtype. A size is None if they differ."""
    pairs = zip(first.shape, second.shape, strict=True)
    return replace(first, shape=tuple(size if size == other else None for size, other in pairs))


def widen_picture(feature: Image, files: Any) -> Image:
    """Return ``feature`` without the sizes that some pictures of an Arrow array of files do not have."""
    for file in files:
        if not any(feature.shape):
            break
        try:
            measured = measure_picture(import_pyarrow().BufferReader(file.as_buffer())) if file.is_valid else None
            if measured is not None:
                feature = common_picture(feature, replace(feature, shape=measured[1]))
        except (MissingExtraError, FeatureError, *IMAGE_FAULTS):  # a later check names the file
            continue
    return feature


def picture_fault(feature: Image, picture: Picture) -> str | None:
    """Explain why decoding a PNG or JPEG as ``feature`` would lose or change values. Returns None if it would not.

    A declared number of channels is a request to convert the picture.
    """
    data = picture.data
    depth = 16 if picture.png is not None and picture.png.bit_depth == 16 else 8
    bits = 8 * feature.dtype.itemsize
    if feature.dtype.kind == "u" and bits != depth:
        return f"it has {depth} bits per sample, but the Image has {bits}{_OWN}"
    if picture.png is not None and data.find(b"acTL", 0, data.find(b"IDAT")) > 0:
        return f"{_FRAMES}{_OWN}"
    header = None if picture.png is not None or feature.shape[2] is not None else read_jpeg_header(data)
    if header is not None and header.components == 4:
        return f"it has the mode CMYK, which an Image cannot hold{_OWN}"
    return None


def is_picture(name: str) -> bool:
    """Whether a file is a PNG or JPEG by its name. The feature Image has these formats.

    >>> is_picture("a/1.JPG"), is_picture("a/1.gif")
    (True, False)
    """
    return extension_of(name) in _PICTURES


def is_decodable_sound(name: str) -> bool:
    """Whether the feature Audio may decode a file with this name: libsndfile has no decoder for AAC and WMA.

    >>> is_decodable_sound("a/1.OGG"), is_decodable_sound("a/1.m4a")
    (True, False)
    """
    return extension_of(name) not in _UNDECODED_SOUNDS


def extension_of(name: str) -> str:
    """Return the extension of a name in lower case, with its dot, or ``""``.

    >>> extension_of("a.b/X.Tar.GZ"), extension_of("a.b/x")
    ('.gz', '')
    """
    stem, dot, extension = name.rpartition("/")[2].rpartition(".")
    return f".{extension.lower()}" if dot and stem else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckMedia:
    """Checks that the content of a file matches its name, and returns its bytes.

    Attributes:
        picture: the feature of pictures, or None to accept any file. Pictures that are neither PNG nor JPEG become
            PNGs. A PNG may be named like a JPEG and vice versa, which is frequent and harmless.
        are_sounds: whether all files must be sounds that can be decoded; only their headers are read.
        sample_rate: the sample rate that sounds must have, or None if it differs.
    """

    picture: Image | None = None
    are_sounds: bool = False
    sample_rate: int | None = None

    def __call__(self, name: str, data: bytes) -> bytes:
        """Check the bytes of one file.

        Raises:
            BadFileError: the content does not match the name, or the file is truncated.
        """
        expected, actual = _EXPECTED.get(extension_of(name)), format_of(data[:_START_BYTES])
        is_swapped = expected in ("PNG", "JPEG") and actual in ("PNG", "JPEG")
        if expected is not None and actual != expected and not is_swapped:
            raise BadFileError(f"expected {expected} by its name, found {actual or 'other bytes'}")
        if actual in _NO_MEDIA:  # A failed download may have any name.
            raise BadFileError(f"expected media, found {actual}")
        if actual in DECODED and self.picture is not None:
            try:
                data, actual = as_png(data), "PNG"
            except IMAGE_FAULTS as error:
                raise BadFileError(f"{error}{_OWN}") from error
        if actual in ("PNG", "JPEG") and (self.picture is not None or expected is not None):
            picture = check_picture(data)
            if self.picture is not None and (fault := picture_fault(self.picture, picture)):
                raise BadFileError(fault)
        if self.are_sounds:
            rate = _sample_rate(data)
            if self.sample_rate not in (None, rate):
                raise BadFileError(f"expected {self.sample_rate} samples per second as in other files, found {rate}")
        elif actual == "WAV" and len(data) < 44:
            raise BadFileError("it is truncated")
        return data


def files_of(feature: Feature, array: Any, rows: Any, path: str = "") -> Iterator[tuple[str, Feature, Any, Any]]:
    """Yield the columns of images and sounds that are stored as files, in a column of ``feature``.

    Args:
        feature: the feature of the column.
        array: its values, as an Arrow array.
        rows: the row of each value.
        path: the path of the column.

    Yields:
        The path, the feature, the Arrow array of the bytes, and the row of each value.
    """
    arrow = import_pyarrow()
    array = plain_array(array)
    if isinstance(feature, FeaturesDict) and arrow.types.is_struct(array.type):
        for name, inner in feature.items():
            if array.type.get_field_index(name) >= 0:
                yield from files_of(inner, arrow.compute.struct_field(array, name), rows, f"{path}/{name}")
    elif isinstance(feature, SequenceFeature) and arrow.types.is_nested(array.type):
        parents = arrow.compute.list_parent_indices(array).to_numpy()
        yield from files_of(feature.feature, array.flatten(), rows[parents], path)
    elif is_file_feature(feature) and arrow.types.is_struct(array.type) and array.type.get_field_index("bytes") >= 0:
        yield path, feature, plain_array(arrow.compute.struct_field(array, "bytes")), rows
    elif is_file_feature(feature) and plain_type(array.type) == arrow.binary():
        yield path, feature, array, rows


def other_files(feature: Feature, array: Any) -> Iterator[int]:
    """Yield the places of files that ``feature`` cannot decode, although their first bytes show no damage."""
    arrow = import_pyarrow()
    array = array.cast(arrow.large_binary())
    starts = arrow.compute.binary_slice(array, 0, _START_BYTES)  # not whole files, which have many megabytes in a block
    for place, start in enumerate(starts.to_pylist()):
        if start and format_of(start) not in _NO_MEDIA:
            data = start if isinstance(feature, Image) else array[place].as_py()
            if not _is_decodable(feature, data):
                yield place


def _is_decodable(feature: Feature, data: bytes) -> bool:
    if isinstance(feature, Image):
        is_wide = data.startswith(PNG_SIGNATURE) and data[_DEPTH_PLACE : _DEPTH_PLACE + 1] == b"\x10"
        is_reduced = is_wide and feature.dtype == np.uint8
        return data.startswith((PNG_SIGNATURE, JPEG_SIGNATURE)) and not is_reduced
    try:
        rate = read_sample_rate(data)
    except (SoundError, MissingExtraError):
        return False
    return not isinstance(feature, Audio) or feature.sample_rate in (None, rate)


def describe_other(feature: Feature) -> str:
    """Describe one of the ``other_files`` for messages."""
    if isinstance(feature, Image):
        return "neither a JPEG nor a PNG of 8 bits"
    rate = getattr(feature, "sample_rate", None)
    of_rate = "" if rate is None else f" of {rate} samples per second"
    return f"not a sound{of_rate} that can be decoded here"


def is_file_feature(feature: Feature) -> bool:
    """Whether values of ``feature`` are stored as files of their own."""
    return isinstance(feature, Image) or (isinstance(feature, Audio) and feature.lazy_decode)


def without_decoding(feature: Feature, paths: Container[str], path: str = "") -> Feature:
    """Replace the images and sounds at ``paths`` of ``feature`` by the bytes of their files."""
    if isinstance(feature, FeaturesDict):
        return FeaturesDict({name: without_decoding(inner, paths, f"{path}/{name}") for name, inner in feature.items()})
    if type(feature) is SequenceFeature:
        return SequenceFeature(without_decoding(feature.feature, paths, path), length=feature.length)
    return bytes_of("an image" if isinstance(feature, Image) else "an audio") if path in paths else feature


def bytes_of(noun: str) -> Tensor:
    """Return the feature of files that are stored as bytes."""
    return Tensor(shape=(), dtype=bytes, description=f"The bytes of {noun} file.")


def check_picture(data: bytes) -> Picture:
    """Read a picture, and check the structure of a PNG or JPEG. Pixels are not decoded.

    Raises:
        BadFileError: it is damaged or truncated.
    """
    try:
        picture = read_picture(data)
    except PictureError as error:
        raise BadFileError(str(error)) from error
    if picture.format == "jpeg" and not _has_end(data):
        raise BadFileError("damaged JPEG: it is truncated")
    return picture


def _has_end(data: bytes) -> bool:
    """Whether an end marker follows the first scan of a JPEG. The end markers of thumbnails are inside segments."""
    place = 2
    while place + 4 <= len(data):
        if data[place] != 0xFF:
            return data.find(b"\xff\xd9", place) >= 0
        marker = data[place + 1]
        if marker == 0xDA:  # start of scan; inside its data, 0xFF is followed by 0 or a restart
            return data.find(b"\xff\xd9", place) >= 0
        if marker == 0xFF:  # a fill byte
            place += 1
        else:
            place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return False


def _sample_rate(data: bytes) -> int | None:
    try:
        return read_sample_rate(data)
    except SoundError as error:
        raise BadFileError(str(error)) from error
    except MissingExtraError:
        return None
