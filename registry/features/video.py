"""How is a video stored? Frame by frame, as a Sequence of images."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from registry.features.containers import Sequence
from registry.features.dtypes import as_dtype, check_shape
from registry.features.feature import Shape, feature_fault
from registry.features.image import Image


@dataclass(frozen=True, repr=False)
class Video(Sequence):
    """A video, shape (frames, height, width, channels). Takes and decodes to an array of that shape.

    Takes a list of frames, too: arrays, files, or bytes of files, as ``Image`` does. A video file is not taken apart
    here: give its frames.

    Attributes:
        shape: None where a number differs from example to example.
        encoding_format: what frames become: ``png`` or ``jpeg``; None is PNG.
        ffmpeg_extra_args: what TFDS hands to ffmpeg; kept for it.
        use_colormap, dtype: as of ``Image``.
    """

    feature: Any = field(init=False)
    length: int | None = field(default=None, init=False)
    shape: Shape = field(default=(None, None, None, 3), kw_only=True)
    encoding_format: str | None = field(default="png", kw_only=True)
    ffmpeg_extra_args: tuple[str, ...] = field(default=(), kw_only=True)
    use_colormap: bool = field(default=False, kw_only=True)
    dtype: Any = field(default=np.uint8, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", check_shape(self.shape))
        object.__setattr__(self, "dtype", as_dtype(self.dtype))
        object.__setattr__(self, "ffmpeg_extra_args", tuple(self.ffmpeg_extra_args))
        if len(self.shape) != 4:
            raise feature_fault("", f"{self.shape} is no shape of a video", "It is (frames, height, width, channels).")
        frame = Image(
            shape=self.shape[1:],
            dtype=self.dtype,
            encoding_format=self.encoding_format,
            use_colormap=self.use_colormap,
        )
        object.__setattr__(self, "feature", frame)
        object.__setattr__(self, "length", self.shape[0])
        super().__post_init__()

    def elements_of(self, value: Any, path: str) -> Any:
        """The frames."""
        if isinstance(value, (str, bytes, os.PathLike)) or hasattr(value, "read"):
            raise feature_fault(path, "a video file is not taken apart here", "Give its frames: an array, or a list.")
        return value if not isinstance(value, Iterable) or isinstance(value, np.ndarray) else list(value)
