"""Audio: stored as a tensor of samples, or as the bytes of an audio file that is decoded when it is read.

WAV files with integer samples are decoded here and other files by soundfile, to the samples that TFDS gets from pydub.
pydub has samples of 8, 16 or 32 bits: 24-bit samples are shifted up by 8, and the lowest byte of a negative sample is
255. Channels are mixed and duplicated like pydub's ``set_channels``.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from registry.errors import require_extra
from registry.features.dtypes import STRING, DtypeField, exact_array
from registry.features.feature import (
    BlockColumn,
    BlockParts,
    Counts,
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
from registry.lazy import np, npt

if TYPE_CHECKING:
    from registry.wire import FlatValue

MAX_SAMPLES: Final = 2**28
"""Most samples, over all channels, that are decoded from one file: 51 minutes of CD audio in stereo."""

_INTEGERS: Final = 1
_EXTENSIBLE: Final = 0xFFFE
"""Format codes of a WAV file: integer samples, and "the format code is in a later field"."""

_READ_AS: Final = {"PCM_24": "int32", "PCM_32": "int32", "FLOAT": "float64", "DOUBLE": "float64"}
"""The dtype in which soundfile returns samples, int16 by default. Floats, in -1..1, are then scaled to 32 bits."""

_NARROW: Final = ("PCM_S8", "PCM_U8")


@dataclass(frozen=True, kw_only=True, repr=False)
class Audio(Tensor):
    """Audio samples of shape (length,) or (length, channels). Decodes to an array of that shape.

    Follows ``tfds.features.Audio``. It accepts an array, the bytes of an audio file, a path to one (``str`` or
    ``Path``), or an open binary file. This package decodes WAV files with integer samples; other files require the
    package soundfile. If the shape has fewer or more channels than the file, they are mixed to one, or one is
    duplicated.

    Attributes:
        shape: the length may be None if it differs.
        dtype: the dtype of the samples, a number. Samples from files are integers of 8, 16 or 32 bits.
        encoding: ``none``, ``bytes`` or ``zlib``, as in ``Tensor``; must be ``none`` with ``lazy_decode``.
        file_format: the format of the files, e.g. ``wav``; kept for TFDS and not used here.
        sample_rate: samples per second (Hz); information for readers, samples are never resampled.
        lazy_decode: store the bytes of the file and decode them when they are read: writing checks only their header.
            Arrays are then not accepted.

    >>> Audio(sample_rate=16_000, dtype="int16").flatten([0, 1, -1], "speech")
    (array([ 0,  1, -1]),)

    Raises:
        FeatureError: the options contradict each other, or a value does not fit.
        MissingExtraError: a file is not a WAV file with integer samples, and soundfile is not installed.
    """

    shape: Shape = (None,)
    dtype: Any = DtypeField("int64")  # noqa: RUF009 - a descriptor
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
            raise feature_fault("", f"invalid audio shape {self.shape}", "Pass (length,) or (length, channels).")
        if self.dtype_name == STRING:
            raise feature_fault("", "audio samples must be numbers, not text")
        if self.lazy_decode and self.encoding != "none":
            raise feature_fault(
                "", f"lazy_decode stores files unchanged, so encoding={self.encoding!r} is not possible"
            )
        if self.sample_rate is not None and not 0 <= self.sample_rate < 2**63:
            raise feature_fault("", f"invalid sample rate {self.sample_rate}")

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of a Tensor, or the bytes of the file with ``lazy_decode``."""
        return (Part("", "bytes", 1),) if self.lazy_decode else super().parts

    def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
        """The samples, or the bytes of the file with ``lazy_decode``."""
        data = file_bytes(value, path)
        if self.lazy_decode:
            if data is None:
                raise feature_fault(
                    path,
                    f"lazy_decode stores files: expected an audio file, found {type(value).__name__}",
                    "Pass its bytes or its path, or leave lazy_decode out to store samples.",
                )
            self._check_file(data, path)
            return ([data],)
        if data is not None:
            value = exact_array(self._decode(data, path, feature_fault), self.dtype, path)
        return super().flatten(value, path)

    def flatten_many(self, values: Sequence[Any] | npt.NDArray[Any], path: str) -> tuple[FlatValue, ...]:
        """The flat values of several values, one after the other."""
        if self.lazy_decode or (not isinstance(values, np.ndarray) and any(map(is_file, values))):
            return super(Tensor, self).flatten_many(values, path)
        return super().flatten_many(values, path)

    def flatten_block(
        self, values: Sequence[Any] | npt.NDArray[Any], path: str
    ) -> tuple[tuple[FlatValue, Counts], ...] | None:
        """The samples of many arrays; None for files."""
        if self.lazy_decode or not (
            isinstance(values, np.ndarray) or set(map(type, values)) <= {np.ndarray, list, tuple}
        ):
            return None
        return super().flatten_block(values, path)

    def restore(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> Any:
        """The samples; with ``count``, an array of ``count`` values."""
        if not self.lazy_decode:
            return super().restore(flat, count, path)
        arrays = [self._samples(data, path) for data in take_files(flat, count, "audio files", path)]
        return arrays[0] if count is None else stack_values(arrays, self.shape, self.dtype)

    def restore_content(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> Any:
        """The samples, or the bytes of a file that is not WAV, because the samples then depend on the decoder."""
        if not self.lazy_decode:
            return super().restore_content(flat, count, path)
        return [
            (b"samples", self._samples(data, path)) if is_wave(data) else (b"file", data)
            for data in take_files(flat, count, "audio files", path)
        ]

    @property
    def reads_views(self) -> bool:
        """As for a Tensor; False with ``lazy_decode``."""
        return not self.lazy_decode and super().reads_views

    def restore_block(self, parts: BlockParts, path: str) -> BlockColumn | None:
        """The column of a block, as for a Tensor; None with ``lazy_decode``."""
        return None if self.lazy_decode else super().restore_block(parts, path)

    def _check_file(self, data: bytes, path: str) -> None:
        """Check the header of a file that is stored unchanged. Like the pixels of an image, samples are not decoded."""
        has_channels = len(self.shape) == 2
        try:
            sound = measure_sound(data, self.shape[1] if has_channels else 1)
        except SoundError as error:
            raise feature_fault(path, str(error)) from error
        shape = sound if has_channels else sound[:1]
        if not fits_shape(shape, self.shape):
            raise feature_fault(path, f"expected shape {self.shape}, found audio of shape {shape}")

    def _samples(self, data: bytes, path: str) -> npt.NDArray[Any]:
        with np.errstate(over="ignore"):
            return self._decode(data, path, corrupt_fault).astype(self.dtype)

    def _decode(self, data: bytes, path: str, fault: Any) -> npt.NDArray[Any]:
        """The samples of a file in this shape, not cast yet. ``fault`` creates the error that is raised."""
        has_channels = len(self.shape) == 2
        channels = self.shape[1] if has_channels else 1
        try:
            samples = decode_sound(data, channels)
        except SoundError as error:
            raise fault(path, str(error)) from error
        if not has_channels:
            samples = samples[:, 0]
        if not fits_shape(samples.shape, self.shape):
            raise fault(path, f"expected shape {self.shape}, found audio of shape {samples.shape}")
        return samples


class SoundError(ValueError):
    """The bytes are not an audio file that can be read, or the file is damaged."""


def is_wave(data: bytes) -> bool:
    """Whether ``data`` starts as a WAV file."""
    return data[:4] == b"RIFF" and data[8:12] == b"WAVE"


def decode_sound(data: bytes, channels: int | None) -> npt.NDArray[Any]:
    """The samples of an audio file: int8, int16 or int32, shape (length, channels).

    Args:
        data: the bytes of the file.
        channels: the number of channels to convert to; None keeps the channels of the file.

    Raises:
        SoundError: ``data`` is not a sound audio file, or its channels cannot be converted.
        MissingExtraError: it is not a WAV file with integer samples, and soundfile is not installed.
    """
    wave = _read_wave(data) if is_wave(data) else None
    samples = _read_with_soundfile(data) if wave is None else wave
    if channels is None:
        return samples
    if len(samples) * channels > MAX_SAMPLES:
        raise SoundError(
            f"expected at most {MAX_SAMPLES} samples, found an audio file of {len(samples)} in {channels} channels"
        )
    return _set_channels(samples, channels)


def measure_sound(data: bytes, channels: int | None) -> tuple[int, int]:
    """The shape that ``decode_sound`` returns, (length, channels), from the header of the file alone.

    Raises:
        SoundError: ``data`` is not an audio file, or its channels cannot be converted.
        MissingExtraError: it is not a WAV file with integer samples, and soundfile is not installed.
    """
    samples = _read_wave(data) if is_wave(data) else None
    if samples is not None:  # whose bytes are the samples
        length, found = samples.shape
    else:
        with _open_with_soundfile(data) as file:
            length, found = file.frames, file.channels
    if channels not in (None, 1, found) and found != 1:
        raise SoundError(f"expected {channels} channels, found {found}, which cannot be converted")
    wanted = found if channels is None else channels
    # Samples of other files are decoded in all their channels, before these are converted.
    num_samples = length * max(found if samples is None else 0, wanted)
    if num_samples > MAX_SAMPLES:
        raise SoundError(f"expected at most {MAX_SAMPLES} samples, found an audio file of {num_samples}")
    return length, wanted


def read_sample_rate(data: bytes) -> int:
    """The sample rate of an audio file, in samples per second.

    Raises:
        SoundError: ``data`` is not a sound audio file.
        MissingExtraError: it is not WAV, and soundfile is not installed.
    """
    if is_wave(data):
        form, _ = _wave_chunks(data)
        return int.from_bytes(form[4:8], "little")
    with _open_with_soundfile(data) as file:
        rate: int = file.samplerate
        return rate


def _read_wave(data: bytes) -> npt.NDArray[Any] | None:
    """The samples of a WAV file with integer samples; None for other sample formats."""
    form, frames = _wave_chunks(data)
    coding, channels, _, _, _, bits = struct.unpack_from("<HHIIHH", form)
    if coding == _EXTENSIBLE and len(form) >= 26:
        coding = int.from_bytes(form[24:26], "little")
    if coding != _INTEGERS:
        return None
    width = bits // 8
    if not channels or bits not in (8, 16, 24, 32):
        raise SoundError(f"unsupported WAV file: {channels} channels of {bits} bits per sample")
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
    """The bodies of the chunks ``fmt`` (at least 16 bytes) and ``data`` of a WAV file."""
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
        raise SoundError("damaged WAV file: the fmt or data chunk is missing")
    return form, frames


@contextmanager
def _open_with_soundfile(data: bytes) -> Iterator[Any]:
    """Open ``data`` as a ``soundfile.SoundFile``. Errors in the block are raised as SoundError."""
    try:
        with require_extra("audio", package="soundfile", needed_for="decoding audio other than WAV with integers"):
            import soundfile
    except OSError as error:  # the package is installed, but the library libsndfile is not
        raise SoundError(f"soundfile cannot be loaded: {error}") from error
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            yield file
    except (soundfile.SoundFileError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, SoundError):
            raise
        raise SoundError(f"cannot read the audio file: {error}") from error


def _read_with_soundfile(data: bytes) -> npt.NDArray[Any]:
    with _open_with_soundfile(data) as file:
        if file.frames * file.channels > MAX_SAMPLES:
            raise SoundError(
                f"expected at most {MAX_SAMPLES} samples, "
                f"found an audio file of {file.frames} in {file.channels} channels"
            )
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
        raise SoundError(f"expected {channels} channels, found {found}, which cannot be converted")
    if found == 2:
        mixed = (samples[:, 0].astype(np.int64) + samples[:, 1]) >> 1
    else:
        # The dtype must also hold the number of channels, by which the samples are divided.
        wide = np.promote_types(samples.dtype, np.min_scalar_type(-found - 1))
        mixed = (samples // np.array(found, wide)).sum(axis=1)
    found_mono: npt.NDArray[Any] = mixed.astype(samples.dtype)[:, np.newaxis]
    return found_mono
