"""Which mixer belongs to these predictions? The one that is given, in any form, or the one beside the files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from registry.builders.earth_engine.places.grid import Size
from registry.builders.earth_engine.places.mixer import MAX_BYTES, Mixer
from registry.builders.earth_engine.stored.kept_split import METADATA_KEY, KeptSplit
from registry.errors import UsageError
from registry.storage import Store, open_store

if TYPE_CHECKING:
    from registry.api import Dataset
    from registry.model import DatasetMetadata

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
