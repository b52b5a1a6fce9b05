"""Defines and checks the options of an export: Earth Engine's own and the additional ones of this package.

``exporting.image`` passes them to ``plan``. Pairs are (width, height); one number, or a list of one, means a square.
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
"""Maximum side of a patch or kernel, in pixels; a larger one is certainly a mistake."""

_LARGEST_RECORD: Final = 2**31 - 1
"""Maximum bytes of a protobuf message."""

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
"""Names of options in Earth Engine's guide, clients and REST interface, mapped to the names of ``ExportOptions``."""


_FLAGS: Final[Mapping[str, str]] = {
    "patch_dimensions": "--patch",
    "kernel_size": "--kernel",
    "masked_threshold": "--masked-threshold",
    "max_file_size": "--max-file-size",
    "default_value": "--default-value",
    "mask_band": "--mask-band",
}
"""Options on the command line, named in hints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The options of an image export. Values and combinations are checked on construction.

    Attributes:
        patch_dimensions: width and height of a patch in pixels, above 0.
        kernel_size: width and height in pixels of the kernel that a model will apply to the patches. Each side of a
            patch gets a margin of half of it, rounded down.
        compressed: compress files with gzip; their names then end in ``.gz``.
        max_file_size: maximum bytes of a file before compression. A larger record is written to its own file.
        default_value: the value of pixels that are masked or outside the raster, clamped to the dtype of each band.
        tensor_depths: the number of elements of each array band to write, by band name. Longer arrays are cut, shorter
            ones are filled with ``default_value``.
        sequence_data: write a SequenceExample for each pixel instead of an Example for each patch.
        collapse_bands: write all bands to one feature, which has the name of the first band.
        masked_threshold: drop a patch if more than this share of its pixels, margin included, is masked; 0 to 1.
        encoding: ``float`` stores all numbers as float32, as the guide specifies; integers beyond 16,777,216 are
            rounded. ``native`` stores uint8 as bytes, other integers as int64 and floats as float32, as real exports
            do.
        masked: ``band`` replaces the masked values of each band. ``pixel`` replaces a pixel in all bands if any band
            masks it.
        mask_band: name of an additional uint8 band that is 1 where no band is masked and 0 elsewhere; None omits it.
        edge: ``drop`` drops pixels at the right and bottom that do not fill a patch; ``pad`` fills up their patches.

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
                raise _refuse(name, getattr(self, name), "expected True or False")
        for name, known in (
            ("encoding", ("float", "native")),
            ("masked", ("band", "pixel")),
            ("edge", ("drop", "pad")),
        ):
            if getattr(self, name) not in known:
                raise _refuse(name, getattr(self, name), f"expected {known[0]!r} or {known[1]!r}")
        object.__setattr__(self, "max_file_size", _read_size_in_bytes(self.max_file_size))
        for name in ("default_value", "masked_threshold"):
            object.__setattr__(self, name, _plain(getattr(self, name)))
            _check_number(name, getattr(self, name))
        if not 0 <= self.masked_threshold <= 1:
            raise _refuse("masked_threshold", self.masked_threshold, "expected a share from 0 to 1")
        object.__setattr__(self, "tensor_depths", read_depths(self.tensor_depths))
        mask_band: Any = self.mask_band
        if mask_band is not None and not (isinstance(mask_band, str) and mask_band):
            raise _refuse("mask_band", self.mask_band, "expected the name of a band")
        self._check_together()

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ExportOptions:
        """Options from a mapping such as the ``formatOptions`` of Earth Engine's clients.

        Keys may be spelled as here (``patch_dimensions``), as in the guide (``patchDimensions``), as in the REST
        interface (``tileDimensions``) or with a prefix as in older code (``tfrecordPatchDimensions``).

        >>> ExportOptions.of({"patchDimensions": [256, 256], "kernelSize": 128}).kernel_size
        Size(width=128, height=128)

        Raises:
            UsageError: an unknown option, with the nearest name; or one option under two names.
        """
        own = [option.name for option in fields(cls)]
        result: dict[str, Any] = {}
        for given, value in options.items():
            bare = given.removeprefix("tfrecord") if given.startswith("tfrecord") else given
            name = given if given in own else NAMES.get(bare[:1].lower() + bare[1:])
            if name is None:
                raise UsageError(
                    f"unknown option {given!r}",
                    hint=suggest(given, [*own, *NAMES]),
                    details={"option": given, "known": own},
                )
            if name in result:
                raise UsageError(
                    f"option {name} is given twice, once as {given!r}",
                    hint=f"Remove {given!r}, or its other spelling.",
                    details={"option": name},
                )
            result[name] = value
        return cls(**result)

    def _check_together(self) -> None:
        """Refuse options that contradict each other."""
        if self.sequence_data and self.kernel_size not in (NO_KERNEL, NO_MARGIN):
            raise UsageError(
                "sequence_data and kernel_size cannot be combined: each record is one pixel, and margins would write "
                "pixels twice",
                hint="Remove kernel_size (--kernel) or sequence_data (--sequence).",
                details={"options": ["kernel_size", "sequence_data"]},
            )
        if self.mask_band is not None and self.mask_band in self.tensor_depths:
            raise UsageError(
                f"mask_band {self.mask_band!r} is also in tensor_depths, but the mask is not an array band",
                hint="Choose another name for the mask: mask_band='mask'; --mask-band mask.",
                details={"options": ["mask_band", "tensor_depths"]},
            )
        width, height = self.patch_dimensions
        if (width + self.kernel_size.width) * (height + self.kernel_size.height) * 4 > _LARGEST_RECORD:
            raise UsageError(
                f"a patch of {width} x {height} pixels with its margin exceeds the maximum size of a record (2 GiB)",
                hint="Choose smaller patches: patch_dimensions=256; --patch 256.",
                details={"options": ["patch_dimensions"]},
            )


def read_size(value: Any, name: str, *, least: int) -> Size:
    """A size from one number, a list of one or two numbers (width first), or REST's ``{"width": w, "height": h}``.

    Raises UsageError that names the option if a number is not an integer from ``least`` to ``MAX_SIDE``.
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
        raise _refuse(name, value, f"expected a number from {least} to {MAX_SIDE}, or two: [width, height]")
    return Size(*numbers)


def read_names(names: Any, option: str) -> tuple[str, ...] | None:
    """Unique names as a tuple; one text is one name, and None stays None. Raises UsageError."""
    if names is None:
        return None
    result = (names,) if isinstance(names, str) else tuple(names)
    if not result or not all(isinstance(name, str) and name for name in result) or len(set(result)) != len(result):
        flag = f"--{option.removesuffix('s')}"
        hint = f"For example: {option}=['red', 'green']; on the command line, {flag} red {flag} green."
        raise _refuse(option, names, "expected one or more names, each only once", hint=hint)
    return result


def _plain(value: Any) -> Any:
    """Convert a numpy scalar to a Python number; return other values unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def read_raster_size(value: Any) -> Size:
    """A raster's size from two numbers above 0. Raises UsageError."""
    numbers = [_plain(number) for number in value] if isinstance(value, Sequence | np.ndarray) else []
    if len(numbers) != 2 or not all(type(number) is int and 0 < number < 2**31 for number in numbers):
        raise _refuse("size", value, "expected [width, height] in pixels")
    return Size(*numbers)


def _read_size_in_bytes(value: Any) -> int:
    """A number of bytes; the REST interface writes 64-bit integers as text."""
    value = _plain(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if type(value) is not int or value < 1:
        raise _refuse("max_file_size", value, "expected a number of bytes above 0")
    return value


def read_depths(value: Any) -> dict[str, int]:
    """The depths of array bands by name. Raises UsageError."""
    if not isinstance(value, Mapping):
        raise _refuse(
            "tensor_depths",
            value,
            "expected a mapping of band to depth",
            hint="For example: {'ndvi': 24}. The guide's table still shows the list of older versions.",
        )
    for name, depth in value.items():
        if not isinstance(name, str) or type(depth) is not int or not 0 < depth <= MAX_SIDE:
            raise _refuse("tensor_depths", value, f"expected a depth from 1 to {MAX_SIDE} for {name!r}")
    return dict(value)


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(name, value, "expected a number")
    if math.isnan(value) and name == "masked_threshold":
        raise _refuse(name, value, "expected a share from 0 to 1")


def _refuse(name: str, value: Any, why: str, *, hint: str | None = None) -> UsageError:
    flag = _FLAGS.get(name)
    hint = hint or (None if flag is None else f"Correct {name}; on the command line, {flag}.")
    return UsageError(f"invalid {name} {value!r:.60}: {why}", hint=hint, details={"option": name})
