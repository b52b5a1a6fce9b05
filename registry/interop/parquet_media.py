"""Which images and sounds in the columns of a Parquet file can be decoded? Its first row tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from registry.errors import CorruptExampleError, MissingExtraError
from registry.features import Audio, FeaturesDict, Image
from registry.features.audio import SoundError, decode_sound, read_sample_rate
from registry.features.containers import Column, columns_of
from registry.interop.parquet_schema import features_of_schema, sounds_of_schema
from registry.shards.row_groups import RowGroupShard
from registry.shards.tables import TableBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """What becomes of files in columns, by the path of the column.

    ``as_bytes`` are images that are neither PNG nor JPEG, ``sounds`` is the Audio that can be decoded; other Audio is
    bytes.
    """

    as_bytes: frozenset[str] = frozenset()
    sounds: Mapping[str, Audio] = field(default_factory=dict)


def look_at_media(shard: RowGroupShard) -> Media:
    """What the images and sounds in the first row of a file of typed columns are.

    Raises:
        PreparedFormatError: as ``features_of_schema``.
        CorruptRecordError: the row cannot be read.
        StorageError: the file cannot be read.
    """
    hints = sounds_of_schema(shard.schema)
    features = features_of_schema(shard.schema)
    wanted = [column for column in columns_of(features) if isinstance(column.leaf, Image) or column.path in hints]
    if not wanted or not shard.filled_groups:
        return Media()
    table = next(shard.read_tables(shard.filled_groups[0], list({column.names[0] for column in wanted}))).slice(0, 1)
    as_bytes: set[str] = set()
    sounds: dict[str, Audio] = {}
    for column in wanted:
        data = _first_file(table, features, column)
        if data is None:
            continue
        if column.path not in hints:
            if not _is_image(data, column):
                as_bytes.add(column.path)
        elif (sound := _sound(data, hints[column.path])) is not None:
            sounds[column.path] = sound
    return Media(as_bytes=frozenset(as_bytes), sounds=sounds)


def _first_file(table: Any, features: FeaturesDict, column: Column) -> bytes | None:
    """The first file that the row has in a column; None where there is none, or the row is no example."""
    name = column.names[0]
    try:
        flats = TableBlock(table, FeaturesDict({name: features[name]})).flat_values()
    except CorruptExampleError:  # who reads it will be told
        return None
    if not flats:  # the first rows that a damaged file gives may be none
        return None
    (part,) = column.leaf.parts
    files = flats[0].get(column.keys(part)[0])
    return files[0] if isinstance(files, list) and files else None


def _is_image(data: bytes, column: Column) -> bool:
    try:
        column.leaf.restore(([data],), None, column.path)
    except MissingExtraError:  # it is one, and who reads it will be told
        return True
    except CorruptExampleError:
        return False
    return True


def _sound(data: bytes, hint: Mapping[str, Any]) -> Audio | None:
    """The feature of sounds of which ``data`` is the first; None where nobody knows how fast it is to be played."""
    try:
        rate, samples = read_sample_rate(data), decode_sound(data, None)
    except (SoundError, MissingExtraError):
        return None
    if hint.get("sampling_rate") not in (None, rate):  # Hugging Face's software resamples, and nothing here does
        return None
    is_mono = samples.shape[1] == 1 or hint.get("mono") is True or hint.get("num_channels") == 1
    # Other files may have wider samples than the first: 32 bits hold them all.
    return Audio(
        shape=(None,) if is_mono else (None, samples.shape[1]), dtype=np.int32, sample_rate=rate, lazy_decode=True
    )
