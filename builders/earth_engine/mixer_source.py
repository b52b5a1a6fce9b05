"""Which mixer belongs to these predictions? The one that is given, in any form, or the one beside the files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any, TypeAlias

from registry.builders.earth_engine.grid import Size
from registry.builders.earth_engine.mixer import MAX_BYTES, Mixer
from registry.builders.earth_engine.options import read_size
from registry.errors import UsageError
from registry.storage import Store, open_store

MixerLike: TypeAlias = "Mixer | str | PathLike[str] | Mapping[str, Any]"
"""A mixer, its file, its JSON text or document, or what a published version keeps of an import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMixer:
    """A mixer, and what was kept beside it.

    Attributes:
        mixer: the mixer.
        content: its file as it was read, byte for byte; None where it came in another form.
        bands: names of the export's bands in their order, where a published version says so; else empty.
        kernel: that the export was made with, where a published version says so.
        depths: of its array bands.
    """

    mixer: Mixer
    content: bytes | None = None
    bands: Sequence[str] = ()
    kernel: Size | None = None
    depths: Mapping[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The content of a mixer's file: as it was read, or written anew."""
        return self.mixer.to_json().encode() if self.content is None else self.content


def find_mixer(source: MixerLike, *, split: str | None = None) -> FoundMixer:
    """The mixer that ``source`` is, or names.

    Args:
        source: a mixer, a path or URL of its file, a JSON text, a JSON document, or the ``custom`` metadata of a
            version that was imported.
        split: whose mixer it is, where the metadata has several.

    Raises:
        UsageError: no mixer, or metadata of several splits or of an export without one.
        PreparedFormatError: the text or the file is malformed.
        StorageError: the file cannot be read.
    """
    if isinstance(source, Mixer):
        return FoundMixer(mixer=source)
    if isinstance(source, Mapping):
        return _of_document(source, split)
    try:
        text = fspath(source)
    except TypeError as error:
        raise UsageError(
            f"{source!r:.60} is no mixer",
            hint="Give the path of <prefix>-mixer.json, its text, or a Mixer.",
            details={"option": "mixer"},
        ) from error
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        return FoundMixer(mixer=Mixer.from_json(text.removeprefix("\ufeff")), content=text.encode())
    folder, _, name = text.rpartition("/")
    return read_mixer_file(open_store(folder or ("/" if text.startswith("/") else ".")), name)


def read_mixer_file(store: Store, name: str) -> FoundMixer:
    """The mixer in a file, with the bytes of the file. Raises as ``Mixer.read``."""
    return FoundMixer(mixer=Mixer.read(store, name), content=store.read_bytes(name, limit=MAX_BYTES))


def _of_document(source: Mapping[str, Any], split: str | None) -> FoundMixer:
    """A mixer's document; or what an import keeps: ``{"earth_engine": {"splits": {split: {"mixer", ...}}}}``."""
    found: Any = source.get("earth_engine", source)
    if isinstance(found, Mapping) and isinstance(found.get("splits"), Mapping):
        splits = found["splits"]
        if split is None and len(splits) != 1:
            raise UsageError(
                f"the version has the mixers of {len(splits)} splits: {', '.join(sorted(map(str, splits)))}",
                hint="Say of which one the predictions are: split='train'.",
                details={"option": "split", "known": sorted(map(str, splits))},
            )
        name = next(iter(splits)) if split is None else split
        if name not in splits:
            raise UsageError(
                f"the version has no mixer of a split {name!r}; it has {', '.join(sorted(map(str, splits)))}",
                hint="Say of which split the predictions are: split='train'.",
                details={"option": "split", "known": sorted(map(str, splits))},
            )
        found = splits[name]
    if isinstance(found, Mapping) and "projection" not in found and "mixer" in found:
        return _of_split(found)
    return FoundMixer(mixer=Mixer.from_json(json.dumps(found), "mixer"))


def _of_split(kept: Mapping[str, Any]) -> FoundMixer:
    if kept["mixer"] is None:
        raise UsageError(
            "the export has no mixer: patches were dropped where too much was masked, and their places are lost",
            hint="Export again with masked_threshold=1, which writes a mixer.",
            details={"option": "mixer"},
        )
    bands = [band for band in kept.get("bands") or () if isinstance(band, Mapping) and "name" in band]
    kernel = kept.get("kernel_size")
    return FoundMixer(
        mixer=Mixer.from_json(json.dumps(kept["mixer"]), "mixer"),
        bands=tuple(band["name"] for band in bands),
        kernel=None if kernel is None else read_size(kernel, "kernel_size", least=0),
        depths={band["name"]: band["depth"] for band in bands if (band.get("depth") or 1) > 1},
    )
