"""Small pictures of a dataset: a strip of its first images, or bars of a distribution."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from registry.api import Dataset
from registry.display import shrink
from registry.errors import RegistryError
from registry.features import Image
from registry.images import encode_png
from registry.statistics import Statistics, distribution

_STRIP: Final = 6
_SIDE: Final = 56
_MOST_ROOM: Final = 2**20


def first_split(names: Sequence[str]) -> str | None:
    """The split that pages show first: train, or the first of the version."""
    return "train" if "train" in names else next(iter(names), None)


def near_statistics(dataset: Dataset) -> Statistics | None:
    """The statistics of a version, if they are attached, of ordinary size, and can be read."""
    with suppress(RegistryError, OSError):
        if any(it.kind == "statistics" and it.num_bytes <= _MOST_ROOM for it in dataset.attachments):
            return dataset.statistics
    return None


def preview(dataset: Dataset) -> dict[str, Any] | None:
    """The first ``images`` as PNGs in data URLs, or the ``counts`` of the first feature; None if there is nothing."""
    name = first_split(tuple(dataset.splits))
    if name is None or not dataset.splits[name].num_examples:
        return None
    with suppress(RegistryError, OSError):
        feature = next((it for it, leaf in dataset.features.items() if isinstance(leaf, Image)), None)
        if feature is not None and dataset.folder.startswith("file:"):
            return {"images": _strip(dataset, name, feature), "counts": (), "feature": feature}
    statistics = near_statistics(dataset)
    split = None if statistics is None else statistics.get(name)
    for path, values in ({} if split is None else split.features).items():
        counts = distribution(values)
        if len(counts) > 1:
            return {"images": (), "counts": counts[:64], "feature": path}
    return None


def _strip(dataset: Dataset, split: str, feature: str) -> list[str]:
    reader = dataset.read(f"{split}[:{_STRIP}]").select([feature])
    leaf: Any = reader.features[feature]
    rows = islice(reader.files_as_bytes(), _STRIP)
    pictures = (shrink(leaf, row[feature], _SIDE, grow=True) for row in rows)
    return [data_url(encode_png(picture)) for picture in pictures if picture is not None]


def data_url(png: bytes) -> str:
    """A PNG as a URL of the page itself."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
