"""What samples does an audio file hold? WAV is taken apart here, anything else by soundfile, as pydub gives them.

TFDS decodes audio with pydub, which has integers of 8, 16 or 32 bits: samples of 24 bits are shifted up by 8, and the
lowest byte of a negative one is 255. Channels are mixed and doubled as pydub's ``set_channels`` does it.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import MissingExtraError

MAX_SAMPLES: Final = 2**28
"""Most samples, of all channels, that are decoded from one file: 93 minutes of CD sound in stereo."""

_INTEGERS: Final = 1
_EXTENSIBLE: Final = 0xFFFE
"""Codings of a WAV: samples are integers; the coding stands further behind."""

_READ_AS: Final = {"PCM_24": "int32", "PCM_32": "int32", "FLOAT": "float64", "DOUBLE": "float64"}
"""What samples are read as, int16 where nothing is said; floats, which are in -1..1, become 32 bits."""

_NARROW: Final = ("PCM_S8", "PCM_U8")


class SoundError(ValueError):
    """Bytes that are no audio file we read, or a damaged one."""


def is_wave(data: bytes) -> bool:
    """Whether ``data`` starts as a WAV file."""
    return data[:4] == b"RIFF" and data[8:12] == b"WAVE"


def decode_sound(data: bytes, channels: int | None) -> npt.NDArray[Any]:
    """The samples of an audio file: int8, int16 or int32, shape (length, ``channels``), or as many as the file has.

    Raises:
        SoundError: no audio file, a damaged one, or one whose channels cannot be made ``channels``.
        MissingExtraError: it is no WAV, and soundfile is not installed.
    """
    found = _read_wave(data) if is_wave(data) else None
    samples = _read_with_soundfile(data) if found is None else found
    if channels is None:
        return samples
    if len(samples) * channels > MAX_SAMPLES:
        raise SoundError(f"an audio file of {len(samples)} samples, more than {MAX_SAMPLES} in {channels} channels")
    return _set_channels(samples, channels)


def read_sample_rate(data: bytes) -> int:
    """How many samples a second an audio file is played at.

    Raises:
        SoundError: no audio file, or a damaged one.
        MissingExtraError: it is no WAV, and soundfile is not installed.
    """
    if is_wave(data):
        form, _ = _wave_chunks(data)
        return int.from_bytes(form[4:8], "little")
    with _open_with_soundfile(data) as file:
        rate: int = file.samplerate
        return rate


def _read_wave(data: bytes) -> npt.NDArray[Any] | None:
    """The samples of a WAV file of integers; None for one of another coding."""
    form, frames = _wave_chunks(data)
    coding, channels, _, _, _, bits = struct.unpack_from("<HHIIHH", form)
    if coding == _EXTENSIBLE and len(form) >= 26:
        coding = int.from_bytes(form[24:26], "little")
    if coding != _INTEGERS:
        return None
    width = bits // 8
    if not channels or bits not in (8, 16, 24, 32):
        raise SoundError(f"a WAV of {channels} channels with {bits} bits a sample")
    raw = np.frombuffer(frames[: len(frames) // (channels * width) * channels * width], np.uint8)
    match width:
        case 1:
            samples: npt.NDArray[Any] = (raw ^ 0x80).view(np.int8)
        case 2:
            samples = raw.view("<i2").astype(np.int16)
        case 3:
            wide = np.empty((raw.size // 3, 4), np.uint8)
            wide[:, 1:] = raw.reshape(-1, 3)
            wide[:, 0] = np.where(wide[:, 3] > 0x7F, 0xFF, 0)
            samples = wide.view("<i4")[:, 0].astype(np.int32)
        case _:
            samples = raw.view("<i4").astype(np.int32)
    return samples.reshape(-1, channels)


def _wave_chunks(data: bytes) -> tuple[bytes, bytes]:
    """The format of a WAV file, at least 16 bytes, and its samples."""
    form = frames = None
    place = 12
    while place + 8 <= len(data) and frames is None:
        name, size = data[place : place + 4], int.from_bytes(data[place + 4 : place + 8], "little")
        if name == b"fmt ":
            form = data[place + 8 : place + 8 + size]
        elif name == b"data":
            frames = data[place + 8 : place + 8 + size]
        place += 8 + size + size % 2
    if form is None or len(form) < 16 or frames is None:
        raise SoundError("a damaged WAV: it has no format, or no samples")
    return form, frames


@contextmanager
def _open_with_soundfile(data: bytes) -> Iterator[Any]:
    """A ``soundfile.SoundFile``; what goes wrong in the block is a SoundError."""
    try:
        import soundfile
    except ImportError as error:
        raise MissingExtraError(
            package="soundfile", extra="audio", needed_for="decoding audio that is no WAV of integers"
        ) from error
    except OSError as error:  # its library is not there
        raise SoundError(f"audio that soundfile cannot read: {error}") from error
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            yield file
    except (soundfile.SoundFileError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, SoundError):
            raise
        raise SoundError(f"no audio file that can be read: {error}") from error


def _read_with_soundfile(data: bytes) -> npt.NDArray[Any]:
    with _open_with_soundfile(data) as file:
        if file.frames * file.channels > MAX_SAMPLES:
            raise SoundError(f"an audio file of {file.frames} samples in {file.channels} channels, too long")
        samples: npt.NDArray[Any] = file.read(dtype=_READ_AS.get(file.subtype, "int16"), always_2d=True)
        narrow = file.subtype in _NARROW
    if samples.dtype == np.float64:
        wide: npt.NDArray[Any] = np.clip(np.rint(samples * 2**31), -(2**31), 2**31 - 1).astype(np.int32)
        return wide
    return (samples >> 8).astype(np.int8) if narrow else samples


def _set_channels(samples: npt.NDArray[Any], channels: int) -> npt.NDArray[Any]:
    found = samples.shape[1]
    if channels == found:
        return samples
    if found == 1:
        return np.repeat(samples, channels, axis=1)
    if channels != 1:
        raise SoundError(f"an audio file of {found} channels, which cannot be made {channels}")
    if found == 2:
        mixed = (samples[:, 0].astype(np.int64) + samples[:, 1]) >> 1
    else:
        wide = np.promote_types(samples.dtype, np.min_scalar_type(-found - 1))  # which holds the number of channels
        mixed = (samples // np.array(found, wide)).sum(axis=1)
    found_mono: npt.NDArray[Any] = mixed.astype(samples.dtype)[:, np.newaxis]
    return found_mono
