"""Reads and writes the sidecar of an image export, ``<prefix>-mixer.json``: where its patches lie on the map.

    {"projection": {"crs": "EPSG:32610", "affine": {"doubleMatrix": [30, 0, 500000, 0, -30, 4100000]}},
     "patchDimensions": [256, 256], "patchesPerRow": 3, "totalPatches": 6}

Dimensions are without the margin. The file does not hold the margin, bands, types or the size of the raster. The first
corner is that of the first patch without its margin. Unknown keys are kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from registry.builders.earth_engine.grid import NO_KERNEL, Grid, Size, Transform, margin_of
from registry.errors import PreparedFormatError, UsageError
from registry.features.json_node import JsonNode, parse_json
from registry.storage import Store

MAX_BYTES: Final = 2**20
"""A mixer has some hundred bytes; a CRS as WKT some thousand."""

_MOST: Final = 2**31
"""No patch is wider, and no export has more of them in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixer:
    """Where the patches of an export lie.

    Attributes:
        crs: code of an authority or WKT, as the export has it.
        transform: of the raster's pixels.
        patch: size of a patch without its margin.
        patches_per_row, total_patches: the second is a multiple of the first.
        document: the whole JSON document that it was read from, with what is not known here.

    Raises:
        UsageError: a number below 1, or a last row of patches that is not complete.
    """

    crs: str
    transform: Transform
    patch: Size
    patches_per_row: int
    total_patches: int
    document: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for name, value in (
            ("patchDimensions", min(self.patch)),
            ("patchesPerRow", self.patches_per_row),
            ("totalPatches", self.total_patches),
        ):
            if not 0 < value <= _MOST**2:
                raise UsageError(f"{name} is {value}; a mixer has numbers above 0", details={"key": name})
        if self.total_patches % self.patches_per_row:
            raise UsageError(
                f"the last row of patches is not complete: totalPatches is {self.total_patches}, and patchesPerRow is "
                f"{self.patches_per_row}",
                hint="Take the mixer as it was exported: it is written for one export, and not for a part of it.",
                details={"key": "totalPatches"},
            )

    @classmethod
    def of(cls, grid: Grid, crs: str, transform: Transform) -> Mixer:
        """The mixer of an export of ``grid``."""
        return cls(
            crs=crs,
            transform=transform,
            patch=grid.patch,
            patches_per_row=grid.patches_per_row,
            total_patches=grid.num_patches,
        )

    @classmethod
    def from_json(cls, text: str, source: str = "mixer.json") -> Mixer:
        """The mixer in a JSON text; ``source`` is what errors call it.

        Raises:
            PreparedFormatError: no JSON, or not of this form; ``details['key']`` is the path.
        """
        root = parse_json(text, source)
        fields = root.fields()
        projection = _field(root, fields, "projection").fields()
        affine = _field(fields["projection"], projection, "affine").fields()
        matrix = _field(projection["affine"], affine, "doubleMatrix")
        patch = _field(root, fields, "patchDimensions")
        sides = [_positive(side) for side in patch.elements()]
        if len(sides) != 2:
            patch.fail(f"it has {len(sides)} numbers; it has two, width and height")
        numbers = [element.number() for element in matrix.elements()]
        try:
            transform = Transform.of(numbers)
        except UsageError as error:
            matrix.fail(error.message, hint=error.hint, cause=error)
        crs = _field(fields["projection"], projection, "crs")
        if not crs.text():
            crs.fail("it is empty")
        try:
            return cls(
                crs=crs.text(),
                transform=transform,
                patch=Size(*sides),
                patches_per_row=_positive(_field(root, fields, "patchesPerRow")),
                total_patches=_positive(_field(root, fields, "totalPatches")),
                document=root.value,
            )
        except UsageError as error:
            root.fail(error.message, hint=error.hint, cause=error)

    @classmethod
    def read(cls, store: Store, name: str) -> Mixer:
        """The mixer in the file ``name``.

        Raises:
            PreparedFormatError: as ``from_json``.
            StorageError: the file cannot be read, or is longer than 1 MiB.
        """
        path = store.locate(name)
        try:
            return cls.from_json(store.read_bytes(name, limit=MAX_BYTES).decode("utf-8-sig"), path)
        except UnicodeDecodeError as error:
            raise PreparedFormatError(
                f"{path}: no UTF-8 text: {error.reason} at byte {error.start}", details={"file": path, "key": ""}
            ) from error

    def to_json(self) -> str:
        """The text of the file, with what was read and is not known here."""
        return json.dumps(self.to_value(), indent=1, allow_nan=False)

    def to_value(self) -> dict[str, Any]:
        """The JSON document."""
        known = self.document.get("projection", {})
        affine = {**known.get("affine", {}), "doubleMatrix": list(self.transform)}
        return {
            **self.document,
            "projection": {**known, "crs": self.crs, "affine": affine},
            "patchDimensions": list(self.patch),
            "patchesPerRow": self.patches_per_row,
            "totalPatches": self.total_patches,
        }

    def grid(self, kernel: Size = NO_KERNEL) -> Grid:
        """The patches, with the margin of ``kernel``."""
        return Grid(
            patch=self.patch,
            patches_per_row=self.patches_per_row,
            num_rows=self.total_patches // self.patches_per_row,
            margin=margin_of(kernel),
        )


def _field(parent: JsonNode, fields: Mapping[str, JsonNode], name: str) -> JsonNode:
    if name not in fields:
        parent.fail(
            f"it has no {name!r}", hint="Give the <prefix>-mixer.json that Earth Engine wrote beside the files."
        )
    return fields[name]


def _positive(node: JsonNode) -> int:
    value = node.integer()
    if not 0 < value <= _MOST:
        node.fail(f"it is {value}; it is a whole number above 0")
    return value
