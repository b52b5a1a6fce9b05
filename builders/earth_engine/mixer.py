"""Reads and writes the mixer of an image export, ``<prefix>-mixer.json``, which locates its patches on the map.

    {"projection": {"crs": "EPSG:32610", "affine": {"doubleMatrix": [30, 0, 500000, 0, -30, 4100000]}},
     "patchDimensions": [256, 256], "patchesPerRow": 3, "totalPatches": 6}

Dimensions exclude the margin, and the transform starts at the corner of the first patch without its margin. The file
does not contain the margin, the bands, their types or the size of the raster. Unknown keys are kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from registry.builders.earth_engine.grid import NO_MARGIN, Grid, Size, Tile, Transform
from registry.errors import PreparedFormatError, UsageError
from registry.json_node import JsonNode, parse_json
from registry.storage import Store

MAX_BYTES: Final = 2**20
"""Maximum bytes of a file. A mixer has a few hundred bytes, or a few thousand with a CRS as WKT."""

_MOST: Final = 2**31
"""Maximum of each number in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixer:
    """The places of an export's patches on the map.

    Attributes:
        crs: code or WKT, as in the export.
        transform: maps pixels of the raster to the map.
        patch: width and height of a patch in pixels, without its margin.
        patches_per_row: number of patches in each row.
        total_patches: number of patches, a multiple of ``patches_per_row``.
        document: the JSON document that it was read from, with unknown keys.

    Raises:
        UsageError: a number is below 1, or the last row of patches is incomplete.
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
                raise UsageError(f"{name}: expected a number above 0, found {value}", details={"key": name})
        if self.total_patches % self.patches_per_row:
            raise UsageError(
                f"totalPatches must be a multiple of patchesPerRow ({self.patches_per_row}), found "
                f"{self.total_patches}",
                hint="Use the unchanged mixer of the export.",
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
        """Parse a mixer's JSON text; errors name it ``source``.

        Raises:
            PreparedFormatError: the JSON is malformed or a key is missing or invalid; ``details['key']`` is its path.
        """
        root = parse_json(text, source)
        fields = root.fields()
        projection = _field(root, fields, "projection").fields()
        affine = _field(fields["projection"], projection, "affine").fields()
        matrix = _field(projection["affine"], affine, "doubleMatrix")
        patch = _field(root, fields, "patchDimensions")
        sides = [_positive(side) for side in patch.elements()]
        if len(sides) != 2:
            patch.fail(f"expected two numbers, width and height, found {len(sides)}")
        numbers = [element.number() for element in matrix.elements()]
        try:
            transform = Transform.of(numbers)
        except UsageError as error:
            matrix.fail(error.message, hint=error.hint, cause=error)
        crs = _field(fields["projection"], projection, "crs")
        if not crs.text():
            crs.fail("expected a CRS, found an empty text")
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
        """Read the mixer in the file ``name``.

        Raises:
            PreparedFormatError: the file is not a valid mixer.
            StorageError: the file cannot be read, or is larger than 1 MiB.
        """
        path = store.locate(name)
        try:
            return cls.from_json(store.read_bytes(name, limit=MAX_BYTES).decode("utf-8-sig"), path)
        except UnicodeDecodeError as error:
            raise PreparedFormatError(
                f"{path}: expected UTF-8 text: {error.reason} at byte {error.start}", details={"file": path, "key": ""}
            ) from error

    def to_json(self) -> str:
        """The JSON text of the file, unknown keys included."""
        return json.dumps(self.to_value(), indent=1, allow_nan=False)

    def to_value(self) -> dict[str, Any]:
        """The JSON document, unknown keys included."""
        known = self.document.get("projection", {})
        affine = {**known.get("affine", {}), "doubleMatrix": list(self.transform)}
        return {
            **self.document,
            "projection": {**known, "crs": self.crs, "affine": affine},
            "patchDimensions": list(self.patch),
            "patchesPerRow": self.patches_per_row,
            "totalPatches": self.total_patches,
        }

    def grid(self, tile: Tile | None = None) -> Grid:
        """The grid of patches, with the margin of the stored tiles."""
        return Grid(
            patch=self.patch,
            patches_per_row=self.patches_per_row,
            num_rows=self.total_patches // self.patches_per_row,
            margin=NO_MARGIN if tile is None else tile.margin,
        )


def _field(parent: JsonNode, fields: Mapping[str, JsonNode], name: str) -> JsonNode:
    if name not in fields:
        parent.fail(f"{name!r} is missing", hint="Use the PREFIX-mixer.json that Earth Engine wrote next to the files.")
    return fields[name]


def _positive(node: JsonNode) -> int:
    value = node.integer()
    if not 0 < value <= _MOST:
        node.fail(f"expected a whole number above 0, found {value}")
    return value
