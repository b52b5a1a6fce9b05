"""Keeps the columns of whole splits in the cache of this machine; ``Dataset.keep_columns`` calls it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from registry.columns import KeptColumn, Layout
from registry.errors import UsageError
from registry.features import ImageDecoding, codec_of
from registry.model import ProgressCallback, Reference, count_progress
from registry.reading.source import Slice
from registry.reading.split_columns import SplitColumns
from registry.storage.cache import FileCache


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsReport:
    """The result of ``Dataset.keep_columns`` and ``Dataset.attach_columns``.

    Attributes:
        reference: the version.
        splits: the splits whose columns are kept.
        features: the features.
        num_examples: the number of records of these splits.
        num_columns: the number of kept columns, one for each leaf of the features in each split.
        num_new_columns: the number of columns that were not kept before, or lacked blocks.
        num_bytes: their total size in bytes.
        folder: the folder of the cache, or of the version in the data directory.
    """

    reference: Reference
    splits: tuple[str, ...]
    features: tuple[str, ...]
    num_examples: int
    num_columns: int
    num_new_columns: int
    num_bytes: int
    folder: str


_MOST_PIXELS: Final = 2**30
"""The maximum number of pixels of a block. Its length depends on the size of files, and a small PNG may be large."""


def keep_columns(
    cache: FileCache,
    slices: Sequence[Slice],
    names: Sequence[str] | None,
    pixels: Mapping[str, ImageDecoding],
    *,
    progress: ProgressCallback | None,
) -> ColumnsReport:
    """Fill the columns of the splits of ``slices``; see ``Dataset.keep_columns``."""
    readable = replace(slices[0].readable, cache=cache)
    if not cache.room.may_hold(1):
        raise UsageError("the cache is switched off", hint="Set REGISTRY_CACHE_BYTES, e.g. to 20GB.")
    if not cache.is_usable:
        cache.require_writable()  # it explains why
    features = readable.features if names is None else readable.features.only(names)
    features = features.decode_images(pixels)
    for reader in codec_of(features).columns:
        if reader.path in pixels and not Layout(reader, as_pixels=True).is_dense:
            raise UsageError(
                f"the pixels of feature {reader.path!r} cannot be kept: the images have shape {reader.leaf.shape}",
                hint="Images of one size can be kept: pass ImageDecoding(crop=(height, width)), or keep their files.",
            )
    splits = list(dict.fromkeys(part.split for data in slices for part in data.plan.ranges))
    columns = [SplitColumns(readable, split, features, frozenset(pixels)) for split in splits]
    for reader in codec_of(features).columns if pixels else ():
        size = math.prod(size or 0 for size in reader.leaf.shape) * max(split.block_records for split in columns)
        if reader.path in pixels and size > _MOST_PIXELS:
            raise UsageError(
                f"the pixels of feature {reader.path!r} cannot be kept: a block of them has {size / 2**30:.1f} GiB",
                hint="Scale or crop them: pass ImageDecoding(ratio=4, crop=(height, width)), or keep their files.",
            )
    num_examples = sum(split.num_records for split in columns)
    reference = readable.facts.reference
    advance = count_progress(progress, "keeping columns", str(reference), total=num_examples, announce=True)
    num_new = 0
    kept: list[KeptColumn] = []
    for split in columns:
        old, mended = {folder.key for folder in split.folders() or () if folder.exists()}, set[str]()
        num_new += split.fill(advance=advance)
        # While they are mapped, the next split does not evict them
        kept += split.open(is_whole=True, mended=mended) or ()
        num_new += len(mended & old)
    return ColumnsReport(
        reference=reference,
        splits=tuple(splits),
        features=tuple(features),
        num_examples=num_examples,
        num_columns=len(kept),
        num_new_columns=num_new,
        num_bytes=sum(column.num_bytes for column in kept),
        folder=str(cache.folder),
    )
