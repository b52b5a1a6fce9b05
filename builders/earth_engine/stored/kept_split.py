"""Stores facts of an export in a version's metadata, as JSON, and finds the mixer for predictions.

    metadata["earth_engine"]["splits"][SPLIT] =
        {"prefix", "mixer": document or null, "kernel_size": [w, h], "patch": [w, h], "tile": [w, h],
         "bands": [{"name", "kind", "dtype", "depth"}], "sequence": bool, "collapsed": [names] or null,
         "patches": [numbers] or null}

Metadata may come from an untrusted source, so it is checked as strictly as a file. A mixer can be a path, text,
document or version, or the file next to the predictions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from os.path import isdir
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from registry.builders.earth_engine.exporting.options import MAX_SIDE
from registry.builders.earth_engine.grid import Size
from registry.builders.earth_engine.kinds import PROMOTED
from registry.builders.earth_engine.mixer import MAX_BYTES, Mixer
from registry.builders.earth_engine.stored.export import StoredBand, StoredExport
from registry.errors import UsageError
from registry.json_node import JsonNode
from registry.storage import Store, expand_home, open_parent

if TYPE_CHECKING:
    from registry import Dataset
    from registry.model import DatasetMetadata


METADATA_KEY: Final = "earth_engine"
"""The key in a version's metadata (``DatasetMetadata.custom``) under which its exports are described."""

_MOST_WIDE: Final = 4 * MAX_SIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSplit:
    """The facts of an export that a version keeps for one split.

    Attributes:
        prefix: prefix of the files when they were imported.
        mixer: the mixer's document; None if the export had no mixer.
        kernel: kernel size; None if it is unknown, or there are no tiles.
        patch: size of a patch without its margin; None if records are not patches.
        tile: size of a patch with its margin; None if records are not patches.
        bands: the bands in order.
        is_sequence: whether a record is a pixel.
        collapsed: names of the channels of a collapsed export's single feature, else None.
        patches: indexes in the grid of the stored patches; None if all are stored.
        is_table: whether a record is a row of a table; the other attributes are then empty.
        columns: the columns of a table, as JSON.
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
        """The facts of ``export``."""
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
        """The facts of a split in the metadata ``custom`` of a version, or None.

        Raises:
            PreparedFormatError: the metadata is malformed; ``details['key']`` is the path.
        """
        if METADATA_KEY not in custom:
            return None
        root = JsonNode(custom[METADATA_KEY], METADATA_KEY, "the version's metadata")
        splits = root.entries().get("splits")
        result = None if splits is None else splits.entries().get(split)
        return None if result is None or result.value is None else cls._read(result)

    @classmethod
    def _read(cls, node: JsonNode) -> KeptSplit:
        fields = node.fields()
        mixer = fields.get("mixer")
        if "table" in fields and fields["table"].boolean():
            return cls(prefix=fields["prefix"].text() if "prefix" in fields else "", is_table=True)
        return cls(
            prefix=fields["prefix"].text() if "prefix" in fields else "",
            mixer=None if mixer is None else {name: entry.value for name, entry in mixer.entries().items()},
            kernel=_size(fields.get("kernelSize"), least=0),
            patch=_size(fields.get("patch"), least=1),
            tile=_size(fields.get("tile"), least=1),
            bands=tuple(map(_band, fields["bands"].elements())) if "bands" in fields else (),
            is_sequence="sequence" in fields and fields["sequence"].boolean(),
            collapsed=tuple(element.text() for element in fields["collapsed"].elements())
            if "collapsed" in fields
            else None,
            patches=_numbers(fields.get("patches")),
        )


def _size(node: JsonNode | None, *, least: int) -> Size | None:
    if node is None:
        return None
    sides = [side.integer() for side in node.elements()]
    if len(sides) != 2 or not all(least <= side <= _MOST_WIDE for side in sides):
        node.fail(f"expected a width and height from {least} to {_MOST_WIDE}")
    return Size(*sides)


def _band(node: JsonNode) -> StoredBand:
    fields = node.fields()
    for name in ("name", "kind"):
        if name not in fields:
            node.fail(f"{name!r} is missing")
    kind = next((kind for kind in PROMOTED if kind == fields["kind"].text()), None)
    if kind is None:
        fields["kind"].fail(f"expected one of {', '.join(PROMOTED)}")
    depth = fields["depth"].integer() if "depth" in fields else None
    if depth is not None and depth < 1:
        fields["depth"].fail("expected a number above 0")
    is_series = "series" in fields and fields["series"].boolean()
    return StoredBand(name=fields["name"].text(), kind=kind, depth=depth, is_series=is_series)


def _numbers(node: JsonNode | None) -> tuple[int, ...] | None:
    if node is None:
        return None
    result = tuple(node.integers())
    if any(number < 0 for number in result):
        node.fail("the index of a patch must not be negative")
    return result


MixerLike: TypeAlias = "Mixer | str | PathLike[str] | Mapping[str, Any] | Dataset | DatasetMetadata"
"""A mixer, its file, JSON text or document, or an imported version or its metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMixer:
    """A mixer, with facts of its export if they are known.

    Attributes:
        mixer: the mixer.
        content: the bytes of its file; None if it was not read from a file or text.
        bands: names of the export's bands in order, from a published version; else empty.
        kernel: kernel size of the export, from a published version; else None.
        depths: depths of its array bands, by name.
        channels: names of the channels of a collapsed export, from a published version; else empty.
    """

    mixer: Mixer
    content: bytes | None = None
    bands: Sequence[str] = ()
    kernel: Size | None = None
    depths: Mapping[str, int] = field(default_factory=dict)
    channels: Sequence[str] = ()

    def to_bytes(self) -> bytes:
        """The content of a mixer's file: the bytes that were read, or new JSON."""
        return self.mixer.to_json().encode() if self.content is None else self.content


def find_mixer(source: MixerLike, *, split: str | None = None) -> FoundMixer:
    """Find the mixer that ``source`` is or names.

    Args:
        source: a mixer, a path or URL of its file or of the export's folder, a JSON text, a JSON document, a published
            version that was imported, or its metadata.
        split: the split whose mixer to use, if the metadata has several.

    Raises:
        UsageError: ``source`` is not a mixer, the export has no mixer, or ``split`` is required.
        PreparedFormatError: the text or file is malformed, or the folder does not contain an export.
        StorageError: the file cannot be read.
    """
    if isinstance(source, Mixer):
        return FoundMixer(mixer=source)
    custom = getattr(getattr(source, "metadata", source), "custom", source)  # of a Dataset, or of its metadata
    if isinstance(custom, Mapping):
        source = custom
    if isinstance(source, Mapping):
        return _of_document(source, split)
    path: Any = source
    try:
        text = fspath(path)
    except TypeError as error:
        raise UsageError(
            f"expected a mixer (a path, a JSON text or document, a Mixer or a published version), found {source!r:.60}",
            hint="Give the path of the mixer: mixer='PREFIX-mixer.json'.",
            details={"option": "mixer"},
        ) from error
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        return FoundMixer(mixer=Mixer.from_json(text.removeprefix("\ufeff")), content=text.encode())
    if text.endswith("/") or ("://" not in text and isdir(expand_home(text))):  # noqa: PTH112 (of any length)
        return _of_folder(text)
    return read_mixer_file(*open_parent(text))


def _of_folder(text: str) -> FoundMixer:
    """The mixer of the export in a folder."""
    from registry.builders.earth_engine.stored.found_files import find_export

    export = find_export(text)
    if export.mixer_name is None:
        raise UsageError(
            f"{text}: the export has no mixer, so the places of its patches are unknown",
            hint="Give the mixer of the export: mixer='PREFIX-mixer.json'; --mixer PREFIX-mixer.json.",
            details={"option": "mixer"},
        )
    return read_mixer_file(export.store, export.mixer_name)


def read_mixer_file(store: Store, name: str) -> FoundMixer:
    """Read a mixer and the bytes of its file. Raises the errors of ``Mixer.read``."""
    return FoundMixer(mixer=Mixer.read(store, name), content=store.read_bytes(name, limit=MAX_BYTES))


def _of_document(source: Mapping[str, Any], split: str | None) -> FoundMixer:
    """The mixer in a mixer's document, or in the metadata of one or several splits (see ``KeptSplit``)."""
    if "projection" in source or not ({METADATA_KEY, "splits", "mixer"} & set(source)):
        return FoundMixer(mixer=Mixer.from_json(json.dumps(source), "mixer"))
    result = source.get(METADATA_KEY, source)
    splits = result.get("splits") if isinstance(result, Mapping) else None
    if splits is None and "mixer" in source:
        return _of_split(KeptSplit.find({METADATA_KEY: {"splits": {"": source}}}, ""))
    known = sorted(map(str, splits)) if isinstance(splits, Mapping) else []
    if split is None and len(known) != 1:
        raise UsageError(
            f"the version has the mixers of {len(known)} splits: {', '.join(known[:20])}",
            hint="Name the split of the predictions: split='train'.",
            details={"option": "split", "known": known},
        )
    name = known[0] if split is None else split
    if name not in known:
        raise UsageError(
            f"the version does not have a mixer for split {name!r}, only for {', '.join(known[:20])}",
            hint="Name the split of the predictions: split='train'.",
            details={"option": "split", "known": known},
        )
    return _of_split(KeptSplit.find({METADATA_KEY: result}, name))


def _of_split(split: KeptSplit | None) -> FoundMixer:
    if split is None or split.mixer is None:
        raise UsageError(
            "the export has no mixer: maskedThreshold dropped patches, so the places of the others are unknown",
            hint="Export again with masked_threshold=1 (--masked-threshold 1), which writes a mixer.",
            details={"option": "mixer"},
        )
    return FoundMixer(
        mixer=Mixer.from_json(json.dumps(split.mixer), "mixer"),
        bands=tuple(band.name for band in split.bands),
        kernel=split.kernel,
        depths={band.name: band.depth for band in split.bands if (band.depth or 1) > 1 and band.depth is not None},
        channels=split.collapsed or (),
    )
