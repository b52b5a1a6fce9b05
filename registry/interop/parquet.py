"""Which dataset is a folder of Parquet shards? Its splits by the names of the files, its features by their columns.

train-00000-of-00005.parquet ... test.parquet       in the folder, or in ``data/`` or another one below it
"""

from __future__ import annotations

import re
import warnings
from typing import Any, Final

from registry.errors import NullLabelWarning, PreparedFormatError, UsageError
from registry.features import FeaturesDict
from registry.interop.dataset_card import fill_from_card
from registry.interop.parquet_media import Media, look_at_media
from registry.interop.parquet_names import FILE_FORMAT, find_splits, raise_for, raise_for_names
from registry.interop.parquet_schema import features_of_schema, metadata_of_schema
from registry.model import (
    DatasetMetadata,
    ShardedFileTemplate,
    ShardLengths,
    Split,
    Version,
    check_config,
    check_name,
    fold_name,
)
from registry.prepared import PreparedDataset
from registry.shards.nulls import find_nulls
from registry.shards.parquet import open_columns
from registry.shards.row_groups import RowGroupShard
from registry.storage import Store

FIRST_VERSION: Final = Version(1, 0, 0)


def describe_parquet(
    store: Store, *, name: str | None = None, config: str | None = None, version: Version = FIRST_VERSION
) -> PreparedDataset:
    """The dataset version that the Parquet files in the folder ``store`` make; their footers are read, no more.

    Warns of class labels that are null (``NullLabelWarning``).

    Args:
        store: the folder.
        name: of the dataset; None makes one of the folder's name, or of its parent's where that is ``data``.
        config: of the dataset, or None.
        version: its number.

    Raises:
        PreparedFormatError: there are no such files, some are missing or there twice, they have names that no template
            gives (see ``with_fitting_names``), their columns differ, or one has a type that no feature has; each is
            named. Or the folder holds several configs.
        ShardMismatchError: a file is no Parquet file, or damaged.
        StorageError: a file cannot be read.
        ReferenceSyntaxError: a name or config that is none.
        MissingExtraError: pyarrow is not installed.
    """
    if name is not None:
        check_name(name)
    if config is not None:
        check_config(config)
    found = find_splits(store, dataset=name or _name_in_hints(store))
    raise_for_names(store, found)
    named = name_of_folder(store) if name is None else name
    described = _Describer(store)
    splits = []
    for one in found:
        shards = [described.open(filename) for filename in one.filenames]
        splits.append(
            Split(
                name=one.name,
                shard_lengths=ShardLengths([shard.num_records for shard in shards]),
                num_bytes=sum(shard.num_column_bytes for shard in shards),
                files=ShardedFileTemplate(dataset=named, template=one.template or "", file_format=FILE_FORMAT),
            )
        )
    raise_for(store, described.problems)
    for path in sorted(described.null_labels):
        told = f"the label {path!r} is null in some rows: these are stored as -1, which means that there is no label"
        warnings.warn(told, NullLabelWarning, stacklevel=2)
    return PreparedDataset(
        name=named,
        config=config,
        version=version,
        splits=tuple(splits),
        features=described.features(),
        metadata=fill_from_card(described.metadata, store),
        file_format=FILE_FORMAT,
    )


class _Describer:
    """Opens the files one after the other and holds their columns against those of the first."""

    def __init__(self, store: Store) -> None:
        self.problems: list[str] = []
        self.metadata = DatasetMetadata()
        self._store = store
        self._first: RowGroupShard | None = None
        self._first_name = ""
        self._features = FeaturesDict({})
        self._media = Media()
        self._nulls: set[str] = set()
        self.null_labels: set[str] = set()

    def open(self, filename: str) -> RowGroupShard:
        """A shard; what differs is added to ``problems``."""
        shard = open_columns(self._store, filename, None, num_records=None, checksums=True, cache=None)
        if self._first is None:
            self._media = look_at_media(shard)
            self._features = self._features_with(shard.schema)
            self.metadata = metadata_of_schema(shard.schema)
            self._first, self._first_name = shard, filename
        elif not shard.schema.equals(self._first.schema) and (
            difference := _difference(shard.schema, self._first.schema, self._first_name)
        ):
            self.problems.append(f"{filename}: {difference}")
            return shard
        self._nulls |= find_nulls(shard, self._features, known=self._nulls)
        self.null_labels |= find_nulls(shard, self._features, known=self.null_labels, of_labels=True)
        return shard

    def features(self) -> FeaturesDict:
        """What the columns of all files make."""
        if self._first is None:
            return self._features
        return self._features_with(self._first.schema)

    def _features_with(self, schema: Any) -> FeaturesDict:
        media = self._media
        return features_of_schema(schema, as_bytes=media.as_bytes, sounds=media.sounds, optional=self._nulls)


def _difference(found: Any, first: Any, first_name: str) -> str | None:
    """How the columns of a file differ from those of the first, in words; None where they hold the same."""
    ours = {field.name: str(field.type) for field in first}
    theirs = {field.name: str(field.type) for field in found}
    for name, kind in ours.items():
        if name not in theirs:
            return f"it has no column {name!r}, which {first_name} has"
        if theirs[name] != kind:
            return f"its column {name!r} is {theirs[name]}, in {first_name} it is {kind}"
    more = [name for name in theirs if name not in ours]
    return f"it has a column {more[0]!r}, which {first_name} has not" if more else None


def _name_in_hints(store: Store) -> str:
    try:
        return name_of_folder(store)
    except PreparedFormatError:  # what the folder holds is looked at first
        return "N"


def name_of_folder(store: Store) -> str:
    """A dataset's name made of the folder's, or of its parent's where that is ``data``. Raises PreparedFormatError."""
    path = store.url if store.local_root is None else store.local_root.as_posix()
    parts = [part for part in path.rstrip("/").split("/") if part]
    if len(parts) > 1 and parts[-1] == "data":
        parts.pop()
    name = re.sub(r"[^a-zA-Z0-9]+", "_", parts[-1] if parts else "").strip("_")
    try:
        return re.sub("__+", "_", fold_name(check_name(name)))
    except UsageError as error:
        raise PreparedFormatError(
            f"{store.url}: the name of the folder makes no name of a dataset",
            hint="Name the dataset: registry import parquet DIR --name NAME",
            details={"folder": store.url},
        ) from error
