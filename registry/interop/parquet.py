"""Which dataset is a folder of Parquet shards? Its splits by the names of the files, its features by their columns.

train-00000-of-00005.parquet ... test.parquet       in the folder, or in ``data/`` or another one below it
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from registry.errors import PreparedFormatError, UsageError
from registry.features import FeaturesDict
from registry.interop.parquet_media import Media, look_at_media
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

FILE_FORMAT: Final = "parquet_columns"
FIRST_VERSION: Final = Version(1, 0, 0)

_SHARD = re.compile(r"(?P<folder>(?:[^/]+/)*)(?P<split>[^/]+?)-(?P<index>[0-9]{5,})-of-(?P<count>[0-9]{5,})\.parquet")
_WHOLE = re.compile(r"(?P<folder>(?:[^/]+/)*)(?P<split>[^/]+)\.parquet")
_USUAL_SPLITS: Final = ("train", "validation", "valid", "dev", "test")
_MOST_PROBLEMS: Final = 10
_NAMES_HINT: Final = "Shards are named SPLIT-00000-of-00005.parquet, or SPLIT.parquet where a split is one file."


def describe_parquet(
    store: Store, *, name: str | None = None, config: str | None = None, version: Version = FIRST_VERSION
) -> PreparedDataset:
    """The dataset version that the Parquet files in the folder ``store`` make; their footers are read, no more.

    Args:
        store: the folder.
        name: of the dataset; None makes one of the folder's name, or of its parent's where that is ``data``.
        config: of the dataset, or None.
        version: its number.

    Raises:
        PreparedFormatError: there are no such files, some are missing or there twice, their columns differ, or one has
            a type that no feature has; each is named.
        ShardMismatchError: a file is no Parquet file, or damaged.
        StorageError: a file cannot be read.
        ReferenceSyntaxError: a name or config that is none.
        MissingExtraError: pyarrow is not installed.
    """
    named = _name_of(store) if name is None else check_name(name)
    if config is not None:
        check_config(config)
    files = [_parse(one, named) for one in store.list() if one.endswith(".parquet")]
    if not files:
        raise PreparedFormatError(
            f"{store.url} holds no Parquet files", hint=_NAMES_HINT, details={"folder": store.url, "problems": []}
        )
    _raise_for(store, _problems(files))
    described = _Describer(store)
    splits = []
    for split_name, own in _by_split(files):
        shards = [described.open(file.filename) for file in sorted(own, key=lambda file: file.place)]
        splits.append(
            Split(
                name=split_name,
                shard_lengths=ShardLengths([shard.num_records for shard in shards]),
                num_bytes=sum(shard.num_column_bytes for shard in shards),
                files=ShardedFileTemplate(dataset=named, template=own[0].template, file_format=FILE_FORMAT),
            )
        )
    _raise_for(store, described.problems)
    return PreparedDataset(
        name=named,
        config=config,
        version=version,
        splits=tuple(splits),
        features=described.features(),
        metadata=described.metadata,
        file_format=FILE_FORMAT,
    )


class _File(NamedTuple):
    """A file by its name; ``problem`` where that is none of a shard."""

    filename: str
    split: str = ""
    place: int = 0
    num_shards: int = 1
    template: str = ""
    problem: str = ""


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


def _parse(filename: str, dataset: str) -> _File:
    """What the name of a file says."""
    match = _SHARD.fullmatch(filename)
    found = match or _WHOLE.fullmatch(filename)
    if found is None:
        return _File(filename, problem="its name is none of a shard")
    numbers = "-{SHARD_X_OF_Y}" if match else ""
    template = f"{found['folder']}{{SPLIT}}{numbers}.parquet"
    index, count = (int(match["index"]), int(match["count"])) if match else (0, 1)
    try:
        files = ShardedFileTemplate(dataset=dataset, template=template, file_format=FILE_FORMAT)
        Split(name=found["split"], shard_lengths=ShardLengths(()), files=ShardedFileTemplate(dataset=dataset))
        is_right = files.filename(found["split"], index, count) == filename and index < count
    except UsageError as error:
        return _File(filename, problem=error.message)
    if not is_right:
        return _File(filename, problem=f"there is no shard {index} of {count}")
    return _File(filename, found["split"], index, count, template)


def _problems(files: Sequence[_File]) -> list[str]:
    """What is wrong with the files together: a name that is none, shards that are missing or there twice."""
    problems = [f"{file.filename}: {file.problem}" for file in files if file.problem]
    for name, own in _by_split(file for file in files if not file.problem):
        first = own[0]
        others = [file for file in own if (file.num_shards, file.template) != (first.num_shards, first.template)]
        if others:
            problems.append(f"{others[0].filename}: the split {name} is in {first.filename}, too, named in another way")
            continue
        missing = sorted(set(range(first.num_shards)) - {file.place for file in own})[:_MOST_PROBLEMS]
        template = ShardedFileTemplate(dataset="dataset", template=first.template, file_format=FILE_FORMAT)
        problems += [f"{template.filename(name, index, first.num_shards)}: it is missing" for index in missing]
    return problems


def _by_split(files: Iterable[_File]) -> list[tuple[str, list[_File]]]:
    """The files of each split: train, validation and test first, then by name."""
    found: dict[str, list[_File]] = defaultdict(list)
    for file in files:
        found[file.split].append(file)
    usual = {name: place for place, name in enumerate(_USUAL_SPLITS)}
    return sorted(found.items(), key=lambda entry: (usual.get(entry[0], len(usual)), entry[0]))


def _raise_for(store: Store, problems: Sequence[str]) -> None:
    if problems:
        shown = "".join(f"\n  {problem}" for problem in problems[:_MOST_PROBLEMS])
        more = f"\n  and {len(problems) - _MOST_PROBLEMS} more" if len(problems) > _MOST_PROBLEMS else ""
        raise PreparedFormatError(
            f"{store.url}: its Parquet files make no dataset{shown}{more}",
            hint=f"{_NAMES_HINT} Of several configs each is imported by itself, from its own folder, with --config.",
            details={"folder": store.url, "problems": list(problems[:100])},
        )


def _name_of(store: Store) -> str:
    """A dataset's name made of the folder's."""
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
