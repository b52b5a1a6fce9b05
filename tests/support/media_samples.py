"""Real files of media formats: images by Pillow, sounds by soundfile, and videos put together from their containers."""

from __future__ import annotations

import io
import struct
from typing import Any, Final

import numpy as np
import soundfile
from PIL import Image

PIXELS: Final = np.arange(6 * 5 * 3, dtype=np.uint8).reshape(6, 5, 3)
"""Not a gradient alone: its values exceed 127, so that no format writes them as ASCII."""


def picture(file_format: str, mode: str = "RGB", **options: Any) -> bytes:
    """The bytes of an image file."""
    file = io.BytesIO()
    image = Image.fromarray(255 - PIXELS).convert(mode)
    image.save(file, file_format, **options)
    return file.getvalue()


def sound(file_format: str, subtype: str | None = None, *, rate: int = 8000, channels: int = 1) -> bytes:
    """The bytes of a sound file."""
    file = io.BytesIO()
    samples = np.sin(np.arange(800 * channels)).reshape(800, channels)
    soundfile.write(file, samples, rate, format=file_format, subtype=subtype)
    return file.getvalue()


def _box(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", 8 + len(content)) + name + content


def _frames() -> bytes:
    return bytes(range(256)) * 2


def mp4(brand: bytes = b"isom") -> bytes:
    """An ISO media file: the boxes ``ftyp``, ``moov`` with its header, and ``mdat``."""
    header = _box(b"mvhd", bytes(12) + struct.pack(">II", 1000, 40) + bytes(80))
    return _box(b"ftyp", brand + bytes(4) + brand) + _box(b"moov", header) + _box(b"mdat", _frames())


def matroska(kind: bytes = b"webm") -> bytes:
    """An EBML header with its document type, and an empty segment."""
    content = b"\x42\x82" + bytes([0x80 | len(kind)]) + kind
    return b"\x1a\x45\xdf\xa3" + bytes([0x80 | len(content)]) + content + b"\x18\x53\x80\x67\x80"


def avi() -> bytes:
    """A RIFF of the form AVI with a header list and a list of frames."""
    frames = b"movi00dc" + struct.pack("<I", len(_frames())) + _frames()
    header = b"hdrlavih" + struct.pack("<I", 56) + bytes(56)
    lists = b"".join(b"LIST" + struct.pack("<I", len(one)) + one for one in (header, frames))
    return b"RIFF" + struct.pack("<I", 4 + len(lists)) + b"AVI " + lists


IMAGES: Final = {
    "apng": picture("PNG", save_all=True, append_images=[Image.new("RGB", (5, 6))]),
    "avif": picture("AVIF"),
    "bmp": picture("BMP"),
    "dds": picture("DDS"),
    "gif": picture("GIF", save_all=True, append_images=[Image.new("RGB", (5, 6))]),
    "ico": picture("ICO"),
    "jp2": picture("JPEG2000"),
    "jpg": picture("JPEG"),
    "mpo": picture("MPO"),
    "pgm": picture("PPM", "L"),
    "png": picture("PNG"),
    "ppm": picture("PPM"),
    "qoi": picture("QOI"),
    "tga": picture("TGA"),
    "tif": picture("TIFF", compression="tiff_lzw"),
    "webp": picture("WEBP", lossless=True),
    # No library here writes HEIC: these are its outer boxes.
    "heic": mp4(b"heic"),
}
SOUNDS: Final = {
    "aiff": sound("AIFF"),
    "au": sound("AU"),
    "flac": sound("FLAC"),
    "mp3": sound("MP3", rate=16000),
    "ogg": sound("OGG", rate=16000),
    "opus": sound("OGG", "OPUS", rate=16000),
    "wav": sound("WAV"),
    "m4a": mp4(b"M4A "),
    "wma": b"\x30\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9\x00\xaa\x00\x62\xce\x6c" + _frames(),
}
VIDEOS: Final = {
    "3gp": mp4(b"3gp4"),
    "avi": avi(),
    "flv": b"FLV\x01\x05\x00\x00\x00\x09\x00\x00\x00\x00" + _frames(),
    "mkv": matroska(b"matroska"),
    "mov": mp4(b"qt  "),
    "mp4": mp4(),
    "mpg": b"\x00\x00\x01\xba\x44" + _frames(),
    "webm": matroska(),
}
