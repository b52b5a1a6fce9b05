"""Statistics of stored images and audio files, from the first bytes of each, without decoding.

No library is used, so that the result does not depend on installed libraries. A file with an unknown header is counted
as ``unknown``.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from registry.images import JPEG_SIGNATURE, read_jpeg_header

_PNG: Final = struct.Struct(">8s8xIIBB")
_PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_PNG_MODES: Final = {0: "L", 2: "RGB", 3: "P", 4: "LA", 6: "RGBA"}
_JPEG_MODES: Final = {1: "L", 3: "RGB", 4: "CMYK"}
_HEAD: Final = 2**16
"""The bytes of a JPEG that are searched first for its frame header. Photographs begin with previews and profiles."""

_MOST_PARTS: Final = 1000
"""The number of segments of a JPEG, or chunks of a WAV file, that are searched for its header."""

_SOUND_SIGNATURES: Final = ((b"OggS", "ogg"), (b"ID3", "mp3"), (b"\xff\xfb", "mp3"), (b"FORM", "aiff"), (b".snd", "au"))


class ImageHeader(NamedTuple):
    """The facts in the header of an image. A mode is named as in Pillow, with the bits per sample if they are not 8."""

    format: str
    height: int
    width: int
    mode: str


class SoundHeader(NamedTuple):
    """The facts in the header of an audio file. The length in samples per channel is None if it is missing.

    ``sample_rate`` and ``channels`` are 0 if only the format is recognized.
    """

    format: str
    length: int | None = None
    sample_rate: int = 0
    channels: int = 0


def read_image_header(data: bytes) -> ImageHeader | None:
    """Read the header of a PNG or JPEG. Returns None for other bytes.

    >>> read_image_header(b"GIF89a") is None
    True
    """
    if data.startswith(_PNG_SIGNATURE) and len(data) >= _PNG.size:
        _, width, height, bits, color = _PNG.unpack_from(data)
        mode = _PNG_MODES.get(color)
        if not (mode and height and width):
            return None
        return ImageHeader("png", height, width, mode if bits == 8 else f"{mode};{bits}")
    if data.startswith(JPEG_SIGNATURE):
        jpeg = read_jpeg_header(data[:_HEAD], most_segments=_MOST_PARTS) or read_jpeg_header(
            data, most_segments=_MOST_PARTS
        )
        if jpeg is not None and jpeg.height and jpeg.width:
            return ImageHeader("jpeg", jpeg.height, jpeg.width, _JPEG_MODES[jpeg.components])
    return None


def read_sound_header(data: bytes) -> SoundHeader | None:
    """Read the header of a WAV or FLAC file, or the format of other audio. Returns None for other bytes."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return _read_wave_header(data)
    if data[:4] == b"fLaC" and len(data) >= 26:
        packed = int.from_bytes(data[18:26], "big")  # 20 bits of rate, 3 of channels, 5 of sample size, 36 of length
        return SoundHeader("flac", packed & 2**36 - 1 or None, packed >> 44, (packed >> 41 & 7) + 1)
    return next((SoundHeader(name) for signature, name in _SOUND_SIGNATURES if data.startswith(signature)), None)


def _read_wave_header(data: bytes) -> SoundHeader | None:
    place, form = 12, b""
    for _ in range(_MOST_PARTS):
        if place + 8 > len(data):
            break
        name, size = data[place : place + 4], int.from_bytes(data[place + 4 : place + 8], "little")
        if name == b"fmt " and size >= 16:
            form = data[place + 8 : place + 24]
        elif name == b"data" and len(form) == 16:
            _, channels, rate, _, block, _ = struct.unpack("<HHIIHH", form)
            size = min(size, len(data) - place - 8)  # a stream has no known size, and states a large number
            return SoundHeader("wav", size // block, rate, channels) if block else None
        place += 8 + size + size % 2
    return None


class Media:
    """The state of the statistics of stored files; can be pickled. ``names`` has the dtypes of its numbers by name."""

    def __init__(self, *, buffer: int, **names: Any) -> None:
        dtypes = {"file_sizes": np.int64, **names}
        from registry.statistics.numbers import Numbers  # reading a header needs none

        self.numbers = {name: Numbers(dtype, buffer=buffer) for name, dtype in dtypes.items()}
        self.formats: Counter[str] = Counter()

    def merge(self, later: Media) -> None:
        """Add the files of another state."""
        for name, numbers in self.numbers.items():
            numbers.merge(later.numbers[name])
        self.formats.update(later.formats)

    def end(self) -> dict[str, Any]:
        """The fields of ``FeatureStatistics``."""
        fields: dict[str, Any] = {name: numbers.end() for name, numbers in self.numbers.items()}
        return {"count": fields["file_sizes"].count, **fields, "formats": dict(sorted(self.formats.items()))}

    def add_sizes(self, files: Sequence[bytes], formats: Iterable[str]) -> None:
        """Add the sizes and formats of files."""
        self.numbers["file_sizes"].add(np.fromiter(map(len, files), np.int64, len(files)))
        self.formats.update(formats)


class Images(Media):
    """The state of the statistics of stored images."""

    def __init__(self, *, buffer: int) -> None:
        super().__init__(buffer=buffer, heights=np.int64, widths=np.int64)
        self.modes: Counter[str] = Counter()

    def add(self, files: Sequence[bytes]) -> None:
        """Add image files."""
        headers = list(map(read_image_header, files))
        self.add_sizes(files, (header.format if header else "unknown" for header in headers))
        sound = [header for header in headers if header]
        self.numbers["heights"].add(np.array([header.height for header in sound], np.int64))
        self.numbers["widths"].add(np.array([header.width for header in sound], np.int64))
        self.modes.update(header.mode for header in sound)

    def merge(self, later: Media) -> None:
        """Add the images of another state."""
        super().merge(later)
        if isinstance(later, Images):
            self.modes.update(later.modes)

    def end(self) -> dict[str, Any]:
        """The fields of ``FeatureStatistics``."""
        return {**super().end(), "modes": dict(sorted(self.modes.items()))}


class Sounds(Media):
    """The state of the statistics of stored audio files."""

    def __init__(self, *, buffer: int) -> None:
        super().__init__(buffer=buffer, seconds=np.float64, sample_rates=np.int64, channels=np.int64)

    def add(self, files: Sequence[bytes]) -> None:
        """Add audio files."""
        headers = list(map(read_sound_header, files))
        self.add_sizes(files, (header.format if header else "unknown" for header in headers))
        sound = [header for header in headers if header and header.sample_rate]
        seconds = [header.length / header.sample_rate for header in sound if header.length is not None]
        self.numbers["seconds"].add(np.array(seconds, np.float64))
        self.numbers["sample_rates"].add(np.array([header.sample_rate for header in sound], np.int64))
        self.numbers["channels"].add(np.array([header.channels for header in sound], np.int64))
