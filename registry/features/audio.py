"""How is audio stored? As a tensor of its samples, or as the bytes of its file, which readers decode."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from registry.features.casts import exact_array
from registry.features.dtypes import wire_kind
from registry.features.feature import FlatValue, Part, Shape, corrupt_fault, feature_fault, fits_shape, stack_values
from registry.features.image import read_file
from registry.features.sound import SoundError, decode_sound, is_wave
from registry.features.tensor import Tensor

if TYPE_CHECKING:
    from registry.features.block_columns import BlockColumn, BlockParts


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
        lazy_decode: whether the file's bytes are stored, and decoded by whoever reads.

    Raises:
        FeatureError: a contradiction in these, or a value that does not fit.
        MissingExtraError: a file that is no WAV, and soundfile is not installed.
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
        data = _file_bytes(value, path)
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
        if self.lazy_decode or (not isinstance(values, np.ndarray) and any(map(_is_file, values))):
            return super(Tensor, self).flatten_many(values, path)
        return super().flatten_many(values, path)

    def restore(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> Any:
        """The samples; with ``count`` an array of as many."""
        if not self.lazy_decode:
            return super().restore(flat, count, path)
        arrays = [self._samples(data, path) for data in self._files(flat, count, path)]
        return arrays[0] if count is None else stack_values(arrays, self.shape, self.dtype)

    def restore_content(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> Any:
        """Samples; of files that are no WAV the bytes, because their decoders differ."""
        if not self.lazy_decode:
            return super().restore_content(flat, count, path)
        return [
            (b"samples", self._samples(data, path)) if is_wave(data) else (b"file", data)
            for data in self._files(flat, count, path)
        ]

    def restore_block(self, parts: BlockParts, path: str) -> BlockColumn | None:
        """As a Tensor; None for files."""
        return None if self.lazy_decode else super().restore_block(parts, path)

    def _files(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> FlatValue:
        files, expected = flat[0], 1 if count is None else count
        if len(files) != expected:
            raise corrupt_fault(path, f"holds {len(files)} audio files, where {expected} belong")
        return files

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


def _is_file(value: Any) -> bool:
    return isinstance(value, (str, bytes, os.PathLike)) or hasattr(value, "read")


def _file_bytes(value: Any, path: str) -> bytes | None:
    """The bytes of the audio file that ``value`` is, or None where it is none."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, (str, os.PathLike)):
        return read_file(Path(value), path)
    if not hasattr(value, "read"):
        return None
    data = value.read()
    if not isinstance(data, bytes):
        raise feature_fault(path, "the file was opened as text", "Open it with 'rb'.")
    return data
