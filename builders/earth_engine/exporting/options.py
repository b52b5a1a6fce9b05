"""The options of an export: those of Earth Engine's guide, of its clients and of its REST interface, and ours.

Pairs are width first. A whole number means a square, and so does a list of one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from registry.builders.earth_engine.grid import NO_KERNEL, NO_MARGIN, Size
from registry.builders.earth_engine.kinds import Encoding
from registry.errors import UsageError, suggest

Masked: TypeAlias = Literal["band", "pixel"]
Edge: TypeAlias = Literal["drop", "pad"]

DEFAULT_PATCH: Final = Size(256, 256)

MAX_SIDE: Final = 2**16
"""A patch, or a kernel, of 65,536 pixels a side is a mistake."""

_LARGEST_RECORD: Final = 2**31 - 1
"""A message of protobuf has 2 GiB at most."""

NAMES: Final[Mapping[str, str]] = {
    "patchDimensions": "patch_dimensions",
    "patchSize": "patch_dimensions",
    "tileDimensions": "patch_dimensions",
    "kernelSize": "kernel_size",
    "marginDimensions": "kernel_size",
    "compressed": "compressed",
    "compress": "compressed",
    "maxFileSize": "max_file_size",
    "maxSizeBytes": "max_file_size",
    "defaultValue": "default_value",
    "tensorDepths": "tensor_depths",
    "sequenceData": "sequence_data",
    "collapseBands": "collapse_bands",
    "maskedThreshold": "masked_threshold",
    "maxMaskedRatio": "masked_threshold",
}
"""What the guide, the clients and the REST interface call an option, and what it is called here."""


_FLAGS: Final[Mapping[str, str]] = {
    "patch_dimensions": "--patch",
    "kernel_size": "--kernel",
    "masked_threshold": "--masked-threshold",
    "max_file_size": "--max-file-size",
    "default_value": "--default-value",
    "mask_band": "--mask-band",
}
"""What the command line calls an option that is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """How an image becomes patches in files. Everything is checked when it is made; what contradicts itself is refused.

    Attributes:
        patch_dimensions: width and height of a patch, above 0.
        kernel_size: width and height of the kernel that will be run over the patches: a margin of half of it, without
            its fraction, is added on every side.
        compressed: gzip, and file names that end in ``.gz``.
        max_file_size: most bytes of a file before compression; a larger record has a file of its own.
        default_value: the value of pixels that are masked or outside of the raster; cut to the type of each band.
        tensor_depths: how many elements of each array band are written, by its name: more are cut off, fewer filled up.
        sequence_data: a SequenceExample for each pixel instead of an Example for each patch.
        collapse_bands: all bands in one feature, which is named as the first.
        masked_threshold: a patch is left out where more than this share of its tile's pixels is masked.
        encoding: ``float`` stores every number as a float of 32 bits, as the guide says: integers beyond 16,777,216 are
            rounded; ``native`` in the three kinds that real exports have.
        masked: ``band`` puts the default value where a band is masked, ``pixel`` into all bands of a pixel of which any
            is masked.
        mask_band: name of one more band, uint8, 1 where no band is masked and 0 elsewhere; None for none.
        edge: ``drop`` leaves out the pixels at the right and at the bottom that fill no patch, ``pad`` fills one.

    Raises:
        UsageError: an invalid value, or two options that contradict each other.
    """

    patch_dimensions: Size = DEFAULT_PATCH
    kernel_size: Size = NO_KERNEL
    compressed: bool = True
    max_file_size: int = 2**30
    default_value: float = 0
    tensor_depths: Mapping[str, int] = field(default_factory=dict)
    sequence_data: bool = False
    collapse_bands: bool = False
    masked_threshold: float = 1
    encoding: Encoding = "float"
    masked: Masked = "band"
    mask_band: str | None = None
    edge: Edge = "drop"

    def __post_init__(self) -> None:
        object.__setattr__(self, "patch_dimensions", read_size(self.patch_dimensions, "patch_dimensions", least=1))
        object.__setattr__(self, "kernel_size", read_size(self.kernel_size, "kernel_size", least=0))
        for name in ("compressed", "sequence_data", "collapse_bands"):
            if not isinstance(getattr(self, name), bool):
                raise _refuse(name, getattr(self, name), "it is True or False")
        for name, known in (
            ("encoding", ("float", "native")),
            ("masked", ("band", "pixel")),
            ("edge", ("drop", "pad")),
        ):
            if getattr(self, name) not in known:
                raise _refuse(name, getattr(self, name), f"it is {known[0]!r} or {known[1]!r}")
        object.__setattr__(self, "max_file_size", _read_size_in_bytes(self.max_file_size))
        for name in ("default_value", "masked_threshold"):
            object.__setattr__(self, name, _plain(getattr(self, name)))
            _check_number(name, getattr(self, name))
        if not 0 <= self.masked_threshold <= 1:
            raise _refuse("masked_threshold", self.masked_threshold, "it is a share, from 0 to 1")
        object.__setattr__(self, "tensor_depths", _read_depths(self.tensor_depths))
        mask_band: Any = self.mask_band
        if mask_band is not None and not (isinstance(mask_band, str) and mask_band):
            raise _refuse("mask_band", self.mask_band, "it is the name of a band")
        self._check_together()

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ExportOptions:
        """Options by the names that they have here, in the guide (``patchDimensions``), or in the REST interface.

        ``tfrecordPatchDimensions`` and the like, as older code has them, too.

        >>> ExportOptions.of({"patchDimensions": [256, 256], "kernelSize": 128}).kernel_size
        Size(width=128, height=128)

        Raises:
            UsageError: an option of another name, or given twice under two names.
        """
        own = [one.name for one in fields(cls)]
        found: dict[str, Any] = {}
        for given, value in options.items():
            bare = given.removeprefix("tfrecord") if given.startswith("tfrecord") else given
            name = given if given in own else NAMES.get(bare[:1].lower() + bare[1:])
            if name is None:
                raise UsageError(
                    f"no option {given!r}",
                    hint=suggest(given, [*own, *NAMES]),
                    details={"option": given, "known": own},
                )
            if name in found:
                raise UsageError(
                    f"the option {name} is given twice, once as {given!r}",
                    hint="Give it once.",
                    details={"option": name},
                )
            found[name] = value
        return cls(**found)

    def _check_together(self) -> None:
        """Refuse options of which one makes no sense beside another."""
        if self.sequence_data and self.kernel_size not in (NO_KERNEL, NO_MARGIN):
            raise UsageError(
                "sequence_data and kernel_size contradict each other: a sequence is one pixel, and with margins pixels "
                "would be written twice",
                hint="Leave one out: kernel_size (--kernel), or sequence_data (--sequence).",
                details={"options": ["kernel_size", "sequence_data"]},
            )
        if self.mask_band is not None and self.mask_band in self.tensor_depths:
            raise UsageError(
                f"mask_band is {self.mask_band!r}, of which tensor_depths has the depth: the mask is no array band",
                hint="Name the mask otherwise: mask_band='mask'; --mask-band mask.",
                details={"options": ["mask_band", "tensor_depths"]},
            )
        width, height = self.patch_dimensions
        if (width + self.kernel_size.width) * (height + self.kernel_size.height) * 4 > _LARGEST_RECORD:
            raise UsageError(
                f"a patch of {width} x {height} pixels with its margin is more than a record can hold (2 GiB)",
                hint="Take smaller patches: patch_dimensions; --patch.",
                details={"options": ["patch_dimensions"]},
            )


def read_size(value: Any, name: str, *, least: int) -> Size:
    """A size of a whole number, or of one or two of them, width first; or ``{"width": w, "height": h}`` as REST has it.

    Raises UsageError, which names the option.
    """
    if isinstance(value, Mapping) and set(value) == {"width", "height"}:
        numbers = [value["width"], value["height"]]
    elif isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes):
        numbers = list(value)
    else:
        numbers = [value]
    numbers = [_plain(number) for number in numbers]
    if len(numbers) == 1:
        numbers *= 2
    if len(numbers) != 2 or not all(type(number) is int and least <= number <= MAX_SIDE for number in numbers):
        raise _refuse(name, value, f"it is a number from {least} to {MAX_SIDE}, or two: [width, height]")
    return Size(*numbers)


def _plain(value: Any) -> Any:
    """A number of numpy as Python's own, everything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def read_raster_size(value: Any) -> Size:
    """A raster's width and height: two numbers above 0. Raises UsageError."""
    numbers = [_plain(number) for number in value] if isinstance(value, Sequence | np.ndarray) else []
    if len(numbers) != 2 or not all(type(number) is int and 0 < number < 2**31 for number in numbers):
        raise _refuse("size", value, "it is [width, height] in pixels")
    return Size(*numbers)


def _read_size_in_bytes(value: Any) -> int:
    """Bytes; the REST interface has 64-bit integers as text."""
    value = _plain(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if type(value) is not int or value < 1:
        raise _refuse("max_file_size", value, "it is a number of bytes above 0")
    return value


def _read_depths(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise _refuse(
            "tensor_depths",
            value,
            "it is a mapping of band to depth",
            hint="Write {'ndvi': 24}. It used to be a list, and the guide's table still says so.",
        )
    for name, depth in value.items():
        if not isinstance(name, str) or type(depth) is not int or not 0 < depth <= MAX_SIDE:
            raise _refuse("tensor_depths", value, f"a depth is a number from 1 to {MAX_SIDE}, that of {name!r} is not")
    return dict(value)


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(name, value, "it is a number")
    if math.isnan(value) and name == "masked_threshold":
        raise _refuse(name, value, "it is a share, from 0 to 1")


def _refuse(name: str, value: Any, why: str, *, hint: str | None = None) -> UsageError:
    flag = _FLAGS.get(name)
    hint = hint or (None if flag is None else f"Mend {name}=...; on the command line {flag}.")
    return UsageError(f"{name} cannot be {value!r:.60}: {why}", hint=hint, details={"option": name})
