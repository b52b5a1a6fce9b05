"""What does a version keep of the export that a split of it was made of? What no record tells, as JSON.

    metadata["earth_engine"]["splits"][SPLIT] =
        {"prefix", "mixer": document or null, "kernel_size": [w, h], "patch": [w, h], "tile": [w, h],
         "bands": [{"name", "kind", "dtype", "depth"}], "sequence": bool, "collapsed": [names] or null,
         "patches": [numbers] or null}

The metadata of a version may come from anybody, so it is read as carefully as a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from registry.builders.earth_engine.exporting.options import MAX_SIDE
from registry.builders.earth_engine.kinds import PROMOTED
from registry.builders.earth_engine.places.grid import Size
from registry.builders.earth_engine.stored.export import StoredBand, StoredExport
from registry.features.json_node import JsonNode

METADATA_KEY: Final = "earth_engine"
"""Where in a version's metadata (``DatasetMetadata.custom``) its exports are described."""

_MOST_WIDE: Final = 4 * MAX_SIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSplit:
    """What a version keeps of one split.

    Attributes:
        prefix: of the files, as they were found.
        mixer: the document, as it was read; None where there was none.
        kernel: None where it is not known, or there are no tiles.
        patch, tile: without and with the margin; None where records are no patches.
        bands: in order.
        is_sequence: whether a record is a pixel.
        collapsed: names of the channels of the one feature; None where each band has its own.
        patches: numbers of the patches that are stored; None of all.
        is_table: whether a record is a row; then there is nothing else.
        columns: of a table, as JSON.
    """

    prefix: str = ""
    mixer: Mapping[str, Any] | None = None
    kernel: Size | None = None
    patch: Size | None = None
    tile: Size | None = None
    bands: tuple[StoredBand, ...] = ()
    is_sequence: bool = False
    collapsed: tuple[str, ...] | None = None
    patches: tuple[int, ...] | None = None
    is_table: bool = False
    columns: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(cls, export: StoredExport) -> KeptSplit:
        """What is to be kept of an export."""
        if export.is_table:
            columns = tuple(column.to_value() for column in export.columns)
            return cls(prefix=export.found.prefix, is_table=True, columns=columns)
        return cls(
            prefix=export.found.prefix,
            mixer=None if export.mixer is None else export.mixer.to_value(),
            kernel=export.kernel,
            patch=None if export.tile is None else export.tile.patch,
            tile=None if export.tile is None else export.tile.size,
            bands=export.bands,
            is_sequence=export.is_sequence,
            collapsed=export.collapsed,
            patches=export.patches,
        )

    def to_value(self) -> dict[str, Any]:
        """As JSON."""
        if self.is_table:
            return {"prefix": self.prefix, "mixer": None, "table": True, "columns": list(self.columns)}
        return {
            "prefix": self.prefix,
            "mixer": None if self.mixer is None else dict(self.mixer),
            "kernel_size": None if self.kernel is None else list(self.kernel),
            "patch": None if self.patch is None else list(self.patch),
            "tile": None if self.tile is None else list(self.tile),
            "bands": [band.to_value() | ({"series": True} if band.is_series else {}) for band in self.bands],
            "sequence": self.is_sequence,
            "collapsed": None if self.collapsed is None else list(self.collapsed),
            "patches": None if self.patches is None else list(self.patches),
        }

    @classmethod
    def find(cls, custom: Mapping[str, Any], split: str) -> KeptSplit | None:
        """What a version with the metadata ``custom`` keeps of a split; None where it keeps nothing.

        Raises:
            PreparedFormatError: it has another form; ``details['key']`` is the path.
        """
        if METADATA_KEY not in custom:
            return None
        root = JsonNode(custom[METADATA_KEY], METADATA_KEY, "the version's metadata")
        splits = root.entries().get("splits")
        found = None if splits is None else splits.entries().get(split)
        return None if found is None or found.value is None else cls._read(found)

    @classmethod
    def _read(cls, node: JsonNode) -> KeptSplit:
        fields = node.fields()
        mixer = fields.get("mixer")
        if "table" in fields and fields["table"].boolean():
            return cls(prefix=fields["prefix"].text() if "prefix" in fields else "", is_table=True)
        return cls(
            prefix=fields["prefix"].text() if "prefix" in fields else "",
            mixer=None if mixer is None else {name: one.value for name, one in mixer.entries().items()},
            kernel=_size(fields.get("kernelSize"), least=0),
            patch=_size(fields.get("patch"), least=1),
            tile=_size(fields.get("tile"), least=1),
            bands=tuple(map(_band, fields["bands"].elements())) if "bands" in fields else (),
            is_sequence="sequence" in fields and fields["sequence"].boolean(),
            collapsed=tuple(one.text() for one in fields["collapsed"].elements()) if "collapsed" in fields else None,
            patches=_numbers(fields.get("patches")),
        )


def _size(node: JsonNode | None, *, least: int) -> Size | None:
    if node is None:
        return None
    sides = [side.integer() for side in node.elements()]
    if len(sides) != 2 or not all(least <= side <= _MOST_WIDE for side in sides):
        node.fail(f"it is no width and height from {least} to {_MOST_WIDE}")
    return Size(*sides)


def _band(node: JsonNode) -> StoredBand:
    fields = node.fields()
    for name in ("name", "kind"):
        if name not in fields:
            node.fail(f"it has no {name!r}")
    kind = next((kind for kind in PROMOTED if kind == fields["kind"].text()), None)
    if kind is None:
        fields["kind"].fail(f"it is one of {', '.join(PROMOTED)}")
    depth = fields["depth"].integer() if "depth" in fields else None
    if depth is not None and depth < 1:
        fields["depth"].fail("it is a number above 0")
    is_series = "series" in fields and fields["series"].boolean()
    return StoredBand(name=fields["name"].text(), kind=kind, depth=depth, is_series=is_series)


def _numbers(node: JsonNode | None) -> tuple[int, ...] | None:
    if node is None:
        return None
    found = tuple(node.integers())
    if any(number < 0 for number in found):
        node.fail("the number of a patch is never negative")
    return found
