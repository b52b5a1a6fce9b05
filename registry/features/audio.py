"""Audio: stored as a tensor of samples, or as the bytes of a file that is decoded when it is read.

WAV files of integers are decoded here, all others by soundfile, to the samples that TFDS gets from pydub. pydub has
integers of 8, 16 or 32 bits: samples of 24 bits are shifted up by 8, and the lowest byte of a negative one is 255.
Channels are mixed and doubled as pydub's ``set_channels`` does it.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import require_extra
from registry.features.block_columns import BlockColumn, BlockParts
from registry.features.dtypes import exact_array, wire_kind
from registry.features.feature import (
    Part,
    Shape,
    corrupt_fault,
    feature_fault,
    file_bytes,
    fits_shape,
    is_file,
    stack_values,
    take_files,
)
from registry.features.tensor import Tensor
from registry.wire import FlatValue

MAX_SAMPLES: Final = 2**28
"""Most samples, of all channels, that are decoded from one file: 93 minutes of CD sound in stereo."""

_INTEGERS: Final = 1
_EXTENSIBLE: Final = 0xFFFE
"""Codings of a WAV file: samples are integers; the coding is in a later field."""

_READ_AS: Final = {"PCM_24": "int32", "PCM_32": "int32", "FLOAT": "float64", "DOUBLE": "float64"}
"""What samples are read as, int16 where nothing is said; floats, which are in -1..1, become 32 bits."""

_NARROW: Final = ("PCM_S8", "PCM_U8")


@dataclass(frozen=True, kw_only=True, repr=False)
class Audio(Tensor):
    """Samples of sound, shape (length,) or (length, channels). Decodes to an array of that shape.

    Takes an array; the bytes of an audio file; a path (``str`` or ``Path``) or an open binary file of one. WAV files of
    integers are read here, any other by the package soundfile. Channels are mixed into one, or
    one is doubled, where the shape asks for it. With ``lazy_decode`` the file is stored as it is, so no array is taken.

    Attributes:
        shape: the number of samples is None where it differs.
        dtype: of the samples, a number; those of a file are integers of 8, 16 or 32 bits.
        encoding: of the samples, as of a ``Tensor``; none with ``lazy_decode``.
        file_format: what files are, e.g. ``wav``; kept for TFDS.
        sample_rate: samples a second; kept for readers.
        lazy_decode: whether the file's bytes are stored, and decoded when they are read.

    Raises:
        FeatureError: a contradiction in these, or a value that does not fit.
        MissingExtraError: a file is not WAV, and soundfile is not installed.
    """

    shape: Shape = (None,)
    dtype: Any = np.int64
    minimum: int | None = field(default=None, init=False)
    maximum: int | None = field(default=None, init=False)
    optional: bool = field(default=False, init=False)
    missing: Any = field(default=None, init=False)
    file_format: str | None = None
    sample_rate: int | None = None
    lazy_decode: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.shape) not in (1, 2):
            raise feature_fault("", f"{self.shape} is no shape of audio", "It is (length,) or (length, channels).")
        if wire_kind(self.dtype) == "bytes":
            raise feature_fault("", "samples of audio are numbers, not text")
        if self.lazy_decode and self.encoding != "none":
            raise feature_fault("", f"a file that is stored as it is has no encoding {self.encoding!r}")
        if self.sample_rate is not None and not 0 <= self.sample_rate < 2**63:
            raise feature_fault("", f"{self.sample_rate} is no sample rate")

    @property
    def parts(self) -> tuple[Part, ...]:
        """Those of a Tensor; the file's bytes where it is decoded when it is read."""
        return (Part("", "bytes", 1),) if self.lazy_decode else super().parts

    def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
        """The samples, or the file's bytes."""
        data = file_bytes(value, path)
        if self.lazy_decode:
            if data is None:
                raise feature_fault(
                    path,
                    f"{type(value).__name__} is no audio file, and it is stored as a file",
                    "Give its bytes or its path; or leave lazy_decode out, which stores samples.",
                )
            self._decode(data, path, feature_fault)
            return ([data],)
        if data is not None:
            value = exact_array(self._decode(data, path, feature_fault), self.dtype, path)
        return super().flatten(value, path)

    def flatten_many(self, values: Sequence[Any] | npt.NDArray[Any], path: str) -> tuple[FlatValue, ...]:
        """All values, one after the other."""
        if self.lazy_decode or (not isinstance(values, np.ndarray) and any(map(is_file, values))):
            return super(Tensor, self).flatten_many(values, path)
        return super().flatten_many(values, path)

    def restore(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> Any:
        """The samples; with ``count`` an array of as many."""
        if not self.lazy_decode:
            return super().restore(flat, count, path)
        arrays = [self._samples(data, path) for data in take_files(flat, count, "audio files", path)]
        return arrays[0] if count is None else stack_values(arrays, self.shape, self.dtype)

    def restore_content(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> Any:
        """Samples; of files that are no WAV the bytes, because their decoders differ."""
        if not self.lazy_decode:
            return super().restore_content(flat, count, path)
        return [
            (b"samples", self._samples(data, path)) if is_wave(data) else (b"file", data)
            for data in take_files(flat, count, "audio files", path)
        ]

    def restore_block(self, parts: BlockParts, path: str) -> BlockColumn | None:
        """As a Tensor; None for files."""
        return None if self.lazy_decode else super().restore_block(parts, path)

    def _samples(self, data: bytes, path: str) -> npt.NDArray[Any]:
        with np.errstate(over="ignore"):
            return self._decode(data, path, corrupt_fault).astype(self.dtype)

    def _decode(self, data: bytes, path: str, fault: Any) -> npt.NDArray[Any]:
        """The samples of a file in this shape, not cast yet. Raises what ``fault`` makes."""
        has_channels = len(self.shape) == 2
        channels = self.shape[1] if has_channels else 1
        try:
            samples = decode_sound(data, channels)
        except SoundError as error:
            raise fault(path, f"holds {error}" if fault is corrupt_fault else str(error)) from error
        if not has_channels:
            samples = samples[:, 0]
        if not fits_shape(samples.shape, self.shape):
            raise fault(path, f"audio of shape {samples.shape} does not fit the declared shape {self.shape}")
        return samples


class SoundError(ValueError):
    """Bytes that are no audio file we read, or a damaged one."""


def is_wave(data: bytes) -> bool:
    """Whether ``data`` starts as a WAV file."""
    return data[:4] == b"RIFF" and data[8:12] == b"WAVE"


def decode_sound(data: bytes, channels: int | None) -> npt.NDArray[Any]:
    """The samples of an audio file: int8, int16 or int32, shape (length, ``channels``), or as many as the file has.

    Raises:
        SoundError: no audio file, a damaged one, or one whose channels cannot be made ``channels``.
        MissingExtraError: it is not WAV, and soundfile is not installed.
    """
    found = _read_wave(data) if is_wave(data) else None
    samples = _read_with_soundfile(data) if found is None else found
    if channels is None:
        return samples
    if len(samples) * channels > MAX_SAMPLES:
        raise SoundError(f"an audio file of {len(samples)} samples, more than {MAX_SAMPLES} in {channels} channels")
    return _set_channels(samples, channels)


def read_sample_rate(data: bytes) -> int:
    """How many samples a second an audio file is played at. Errors as ``decode_sound``."""
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
        with require_extra("audio", package="soundfile", needed_for="decoding audio that is no WAV of integers"):
            import soundfile
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
