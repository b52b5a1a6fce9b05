"""What a version keeps of the export that a split was made of, as JSON, and the search for the mixer of predictions.

    metadata["earth_engine"]["splits"][SPLIT] =
        {"prefix", "mixer": document or null, "kernel_size": [w, h], "patch": [w, h], "tile": [w, h],
         "bands": [{"name", "kind", "dtype", "depth"}], "sequence": bool, "collapsed": [names] or null,
         "patches": [numbers] or null}

The metadata of a version may come from anybody, so it is checked as strictly as a file. A mixer is given in any form (a
path, text, a document, a version), or is the one beside the files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from registry.builders.earth_engine.exporting.options import MAX_SIDE
from registry.builders.earth_engine.grid import Size
from registry.builders.earth_engine.kinds import PROMOTED
from registry.builders.earth_engine.mixer import MAX_BYTES, Mixer
from registry.builders.earth_engine.stored.export import StoredBand, StoredExport
from registry.errors import UsageError
from registry.features.json_node import JsonNode
from registry.storage import Store, open_store

if TYPE_CHECKING:
    from registry.api import Dataset
    from registry.model import DatasetMetadata


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


MixerLike: TypeAlias = "Mixer | str | PathLike[str] | Mapping[str, Any] | Dataset | DatasetMetadata"
"""A mixer, its file, its JSON text or document, or a published version that was imported, or what it keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMixer:
    """A mixer, and what was kept beside it.

    Attributes:
        mixer: the mixer.
        content: its file as it was read, byte for byte; None where it came in another form.
        bands: names of the export's bands in their order, where a published version says so; else empty.
        kernel: that the export was made with, where a published version says so.
        depths: of its array bands.
        channels: names of the channels of its one feature, where a published version has them of a collapsed export.
    """

    mixer: Mixer
    content: bytes | None = None
    bands: Sequence[str] = ()
    kernel: Size | None = None
    depths: Mapping[str, int] = field(default_factory=dict)
    channels: Sequence[str] = ()

    def to_bytes(self) -> bytes:
        """The content of a mixer's file: as it was read, or written anew."""
        return self.mixer.to_json().encode() if self.content is None else self.content


def find_mixer(source: MixerLike, *, split: str | None = None) -> FoundMixer:
    """The mixer that ``source`` is, or names.

    Args:
        source: a mixer, a path or URL of its file or of the export's folder, a JSON text, a JSON document, a published
            version that was imported, or its metadata.
        split: whose mixer it is, where the metadata has several.

    Raises:
        UsageError: no mixer, or metadata of several splits or of an export without one.
        PreparedFormatError: the text or the file is malformed, or the folder holds no export.
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
            f"{source!r:.60} is no mixer",
            hint="Give the path of <prefix>-mixer.json, its text, or a Mixer.",
            details={"option": "mixer"},
        ) from error
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        return FoundMixer(mixer=Mixer.from_json(text.removeprefix("\ufeff")), content=text.encode())
    folder, _, name = text.rpartition("/")
    if not name or ("://" not in text and Path(text).expanduser().is_dir()):
        return _of_folder(text)
    return read_mixer_file(open_store(folder or ("/" if text.startswith("/") else ".")), name)


def _of_folder(text: str) -> FoundMixer:
    """The mixer of the export in a folder."""
    from registry.builders.earth_engine.stored.found_files import find_export

    found = find_export(text)
    if found.mixer_name is None:
        raise UsageError(
            f"{text}: the export has no mixer, which says where its patches lie",
            hint="Give the <prefix>-mixer.json that was exported with the patches: mixer=...; --mixer FILE.",
            details={"option": "mixer"},
        )
    return read_mixer_file(found.store, found.mixer_name)


def read_mixer_file(store: Store, name: str) -> FoundMixer:
    """The mixer in a file, with the bytes of the file. Raises as ``Mixer.read``."""
    return FoundMixer(mixer=Mixer.read(store, name), content=store.read_bytes(name, limit=MAX_BYTES))


def _of_document(source: Mapping[str, Any], split: str | None) -> FoundMixer:
    """A mixer's document, or what an import keeps of one split or of all: see ``KeptSplit``."""
    if "projection" in source or not ({METADATA_KEY, "splits", "mixer"} & set(source)):
        return FoundMixer(mixer=Mixer.from_json(json.dumps(source), "mixer"))
    kept = source.get(METADATA_KEY, source)
    splits = kept.get("splits") if isinstance(kept, Mapping) else None
    if splits is None and "mixer" in source:
        return _of_split(KeptSplit.find({METADATA_KEY: {"splits": {"": source}}}, ""))
    known = sorted(map(str, splits)) if isinstance(splits, Mapping) else []
    if split is None and len(known) != 1:
        raise UsageError(
            f"the version has the mixers of {len(known)} splits: {', '.join(known[:20])}",
            hint="Say of which one the predictions are: split='train'.",
            details={"option": "split", "known": known},
        )
    name = known[0] if split is None else split
    if name not in known:
        raise UsageError(
            f"the version has no mixer of a split {name!r}; it has {', '.join(known[:20])}",
            hint="Say of which split the predictions are: split='train'.",
            details={"option": "split", "known": known},
        )
    return _of_split(KeptSplit.find({METADATA_KEY: kept}, name))


def _of_split(kept: KeptSplit | None) -> FoundMixer:
    if kept is None or kept.mixer is None:
        raise UsageError(
            "the export has no mixer: patches were dropped where too much was masked, and their places are lost",
            hint="Export again with masked_threshold=1, which writes a mixer.",
            details={"option": "mixer"},
        )
    return FoundMixer(
        mixer=Mixer.from_json(json.dumps(kept.mixer), "mixer"),
        bands=tuple(band.name for band in kept.bands),
        kernel=kept.kernel,
        depths={band.name: band.depth for band in kept.bands if (band.depth or 1) > 1 and band.depth is not None},
        channels=kept.collapsed or (),
    )
