"""Describes a folder of Parquet files as a dataset: file names give its splits, columns give its features.

train-00000-of-00005.parquet ... test.parquet       in the folder, or in ``data/`` or another one below it
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from registry.errors import NotStoredError, NullLabelWarning, PreparedFormatError, UsageError, spell, warn
from registry.features import FeaturesDict
from registry.interop.dataset_card import CARD, fill_from_card, read_card
from registry.model import (
    DatasetMetadata,
    ShardedFileTemplate,
    ShardLengths,
    Split,
    Version,
    check_config,
    check_name,
    fold_name,
    is_config,
    is_generic,
    listed,
    listed_below,
    plain_name,
)
from registry.model.split import check_split_name
from registry.prepared import PreparedDataset
from registry.prepared.info import FILENAME as INFO_FILENAME
from registry.shards.arrow_schema import Media, detect_media, features_of_schema, metadata_of_schema
from registry.shards.parquet import find_nulls, open_columns
from registry.shards.row_groups import RowGroupShard, ShardFile
from registry.storage import RenamedStore, Store

FIRST_VERSION: Final = Version(1, 0, 0)


def describe_parquet(
    store: Store,
    *,
    name: str | None = None,
    config: str | None = None,
    version: Version = FIRST_VERSION,
    splits: Sequence[SplitFiles] | None = None,
) -> PreparedDataset:
    """The dataset version in the Parquet files of the folder ``store``. It reads only footers and first rows.

    Issues a ``NullLabelWarning`` for class labels that are null.

    Args:
        store: the folder.
        name: the name of the dataset; None derives it from the folder, or from its parent if the folder is ``data``.
        config: the config of the dataset, or None.
        version: the version number.
        splits: the files of each split. None derives them from the names; see ``find_splits``.

    Raises:
        PreparedFormatError: the folder has no Parquet files, or several configs; shards are missing or duplicated;
            file names match no template (see ``with_fitting_names``); columns differ between files, or the type of a
            column is not supported. The message names each file.
        ShardMismatchError: a file is damaged, or is not a Parquet file.
        StorageError: a file cannot be read.
        ReferenceSyntaxError: the name or config is invalid.
        MissingExtraError: pyarrow is not installed.
    """
    if name is not None:
        check_name(name)
    if config is not None:
        check_config(config)
    hinted = name
    with suppress(PreparedFormatError):  # faults of the files are reported first
        hinted = name or name_of_folder(store)
    found = find_splits(store, dataset=hinted or "N") if splits is None else splits
    raise_for_names(store, found)
    named = name_of_folder(store) if name is None else name
    described = _Describer(store)
    described_splits = []
    for file in found:
        shards = [described.open(filename) for filename in file.filenames]
        described_splits.append(
            Split(
                name=file.name,
                shard_lengths=ShardLengths([shard.num_records for shard in shards]),
                num_bytes=sum(shard.num_column_bytes for shard in shards),
                files=ShardedFileTemplate(dataset=named, template=file.template or "", file_format=FILE_FORMAT),
            )
        )
    raise_for(store, described.problems)
    for path in sorted(described.null_labels):
        told = f"the label {path!r} is null in some rows; it is stored there as -1, which means no label"
        warn(told, NullLabelWarning)
    return PreparedDataset(
        name=named,
        config=config,
        version=version,
        splits=tuple(described_splits),
        features=described.features(),
        metadata=fill_from_card(described.metadata, read_card(store)),
        file_format=FILE_FORMAT,
    )


class _Describer:
    """Opens the files one by one, and compares their columns with the columns of the first file."""

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
        """Open a shard. If its columns differ from the first file's, the difference is added to ``problems``."""
        shard = open_columns(ShardFile(self._store, filename))
        if self._first is None:
            self._media = detect_media(shard)
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
        """The features of the columns of all files."""
        return self._features if self._first is None else self._features_with(self._first.schema)

    def _features_with(self, schema: Any) -> FeaturesDict:
        media = self._media
        return features_of_schema(schema, as_bytes=media.as_bytes, sounds=media.sounds, optional=self._nulls)


def _difference(found: Any, first: Any, first_name: str) -> str | None:
    """How the columns of a file differ from those of the first file, in words, or None."""
    ours = {field.name: str(field.type) for field in first}
    theirs = {field.name: str(field.type) for field in found}
    for name, kind in ours.items():
        if name not in theirs:
            return f"it has no column {name!r}, which {first_name} has"
        if theirs[name] != kind:
            return f"column {name!r}: expected {kind}, as in {first_name}, found {theirs[name]}"
    more = [name for name in theirs if name not in ours]
    return f"it has a column {more[0]!r}, which {first_name} lacks" if more else None


def name_of_folder(store: Store) -> str:
    """A dataset name derived from the folder, or from the first one above that does not have a name such as ``data``.

    Raises:
        PreparedFormatError: the folder's name cannot become the name of a dataset.
    """
    path = store.url if store.local_root is None else store.local_root.as_posix()
    parts = [part for part in path.split("/") if part and not part.endswith(":")]
    names = [plain_name(part) for part in reversed(parts)]
    name = next((name for name in names if not name[:1].isalpha() or not is_generic(name)), "")
    try:
        return re.sub("__+", "_", fold_name(check_name(name)))
    except UsageError as error:
        raise PreparedFormatError(
            f"{store.url}: cannot derive a dataset name from the folder",
            hint="Name the dataset: registry import parquet DIR --name NAME",
            details={"folder": store.url},
        ) from error


FILE_FORMAT: Final = "parquet_columns"
NAMES_HINT: Final = "Name shards SPLIT-00000-of-00005.parquet, or SPLIT.parquet if a split is one file."

_FOLDER: Final = r"(?P<folder>(?:[^/]+/)*)"
_SHARD = re.compile(
    _FOLDER + r"(?P<split>[^/]+?)-(?P<index>[0-9]{5,})-of-(?P<count>[0-9]{5,})(?P<hash>-[0-9a-f]{8,64})?\.parquet"
)
_NUMBERED = re.compile(_FOLDER + r"(?P<split>[^/]+)/(?P<index>[0-9]{4,10})\.parquet")
_WHOLE = re.compile(_FOLDER + r"(?P<split>[^/]+)\.parquet")
_USUAL_SPLITS: Final = ("train", "validation", "valid", "dev", "test")
_MOST_PROBLEMS: Final = 10
_MOST_CONFIGS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFiles:
    """The files of one split, in order, and the template of their names; None if no template matches them."""

    name: str
    filenames: tuple[str, ...]
    template: str | None


def find_splits(store: Store, *, dataset: str = "N") -> list[SplitFiles]:
    """The splits of the Parquet files in ``store``, from the file names: train, validation and test first, then sorted.

    Args:
        store: the folder.
        dataset: the name of the dataset, for the hint.

    Raises:
        PreparedFormatError: the folder has no Parquet files, or several configs; or names are not names of shards, or
            shards are missing or duplicated. The message names each file.
        NotStoredError: the folder does not exist.
        StorageError: the folder cannot be listed.
    """
    names = [name for name in store.list() if name.endswith(".parquet")]
    numbered = _numbered_folders(names)
    files = [_parse(name, numbered) for name in names]
    if not files:
        root = store.local_root
        if root is not None and not Path(root).is_dir():
            raise NotStoredError(
                f"expected a folder, found a file: {root}" if Path(root).exists() else f"there is no folder {root}",
                hint=f"Name the folder of the shards. {NAMES_HINT}",
                details={"path": str(root), "errno": None, "doing": "read"},
            )
        is_tfds = store.exists(INFO_FILENAME)
        raise PreparedFormatError(
            f"{store.url} contains no Parquet files" + (", but a version prepared by TFDS" if is_tfds else ""),
            hint="Import it with: registry import tfds DIR" if is_tfds else NAMES_HINT,
            details={"folder": store.url, "problems": []},
        )
    if configs := _configs(files):
        raise _several_configs(store, configs, dataset)
    raise_for(store, _problems(files))
    return [_gather(name, own) for name, own in _by_split(files)]


def with_fitting_names(store: Store, *, dataset: str = "N") -> Store:
    """``store``, with its Parquet files renamed if no template matches their names. Raises as ``find_splits``."""
    splits = find_splits(store, dataset=dataset)
    if all(split.template is not None for split in splits):
        return store
    files = _template("{SPLIT}-{SHARD_X_OF_Y}.parquet")
    names = {
        files.filename(split.name, index, len(split.filenames)): name
        for split in splits
        for index, name in enumerate(split.filenames)
    }
    return RenamedStore(store, names | ({CARD: CARD} if store.exists(CARD) else {}))


def raise_for(store: Store, problems: Sequence[str]) -> None:
    """Raise a PreparedFormatError that lists the first of ``problems``, if there are any."""
    if problems:
        raise PreparedFormatError(
            f"{store.url}: the Parquet files cannot be read as one dataset{listed_below(problems, _MOST_PROBLEMS)}",
            hint=f"{NAMES_HINT} Import each config from its own folder, with {spell('config=CONFIG')}.",
            details={"folder": store.url, "problems": list(problems[:100])},
        )


def raise_for_names(store: Store, splits: Sequence[SplitFiles]) -> None:
    """Raise PreparedFormatError if no template matches the names of a split: such files cannot be read in place."""
    odd = [name for split in splits if split.template is None for name in split.filenames]
    if odd:
        raise PreparedFormatError(
            f"{store.url}: no known template matches the names of the Parquet files{listed_below(odd, _MOST_PROBLEMS)}",
            hint="Import a copy, in which the files are renamed: registry import parquet DIR --copy",
            details={"folder": store.url, "problems": odd[:100]},
        )


class _File(NamedTuple):
    """The facts in a file name, or the ``problem`` if it is not the name of a shard.

    ``num_shards`` is 0 if the name does not contain it. ``pattern`` is the common form of the names of a split, with
    ``%d`` of some width in place of the index.
    """

    filename: str
    folder: str = ""
    split: str = ""
    place: int = 0
    num_shards: int = 1
    pattern: str = ""
    template: str = ""
    problem: str = ""


def _parse(filename: str, numbered: Collection[str]) -> _File:
    """The facts in a file name. In the folders ``numbered``, a number is the index of a shard."""
    shard, number = _SHARD.fullmatch(filename), _NUMBERED.fullmatch(filename)
    found = shard or (number if posixpath.dirname(filename) in numbered else None) or _WHOLE.fullmatch(filename)
    if found is None:
        return _File(filename, problem="not the name of a shard")
    folder, split = found["folder"], found["split"]
    place, count = (int(found["index"]), 0) if found in (shard, number) else (0, 1)
    before = folder.replace("%", "%%")
    if shard:
        count, mark = int(shard["count"]), shard["hash"] or ""
        template = f"{folder}{{SPLIT}}-{{SHARD_X_OF_Y}}{mark}.parquet"
        pattern = f"{before}{split}-%0{len(shard['index'])}d-of-{shard['count']}{mark and '-*'}.parquet"
    elif found is number:
        template = f"{folder}{{SPLIT}}/{{SHARD_INDEX}}.parquet"
        pattern = f"{before}{split}/%0{len(found['index'])}d.parquet"
    else:
        template, pattern = f"{folder}{{SPLIT}}.parquet", f"{before}{split}.parquet"
    try:
        check_split_name(split)
        files = _template(template)
    except UsageError as error:
        return _File(filename, problem=error.message)
    if shard and (files.filename(split, place, count) != filename or place >= count):
        return _File(filename, problem=f"invalid shard: {place} of {count}")
    return _File(filename, folder, split, place, count, pattern, template)


def _numbered_folders(filenames: Iterable[str]) -> set[str]:
    """The folders of splits with numbered files. In other folders, ``2024.parquet`` is the split 2024."""
    result: set[str] = set()
    for filename in filenames:
        match = _NUMBERED.fullmatch(filename)
        if match and (int(match["index"]) == 0 or match["split"].removeprefix("partial-") in _USUAL_SPLITS):
            result.add(posixpath.dirname(filename))
    return result


def _template(template: str) -> ShardedFileTemplate:
    return ShardedFileTemplate(dataset="dataset", template=template, file_format=FILE_FORMAT)


def _problems(files: Sequence[_File]) -> list[str]:
    """The problems of the files together: invalid names, missing and duplicate shards."""
    problems = [f"{file.filename}: {file.problem}" for file in files if file.problem]
    for name, own in _by_split(file for file in files if not file.problem):
        first = own[0]
        if others := [file for file in own[1:] if file.pattern != first.pattern]:
            problems.append(f"{others[0].filename}: named differently from {first.filename} of the same split {name}")
            continue
        places: dict[int, str] = {}
        problems += [
            f"{file.filename}: duplicate shard of the split {name}; the other is {twin}"
            for file in own
            if (twin := places.setdefault(file.place, file.filename)) != file.filename  # hashes differ
        ]
        num_shards = first.num_shards or max(places) + 1
        missing = sorted(set(range(min(num_shards, len(own) + _MOST_PROBLEMS))) - set(places))[:_MOST_PROBLEMS]
        problems += [f"{first.pattern % index}: missing" for index in missing]
    return problems


def _gather(name: str, files: Sequence[_File]) -> SplitFiles:
    """One split with all its files."""
    in_order = sorted(files, key=lambda file: file.place)
    template, filenames = in_order[0].template, tuple(file.filename for file in in_order)
    name_shard = _template(template).namer(name, len(files))
    fits = all(name_shard(file.place) == file.filename for file in in_order)
    return SplitFiles(name=name, filenames=filenames, template=template if fits else None)


def _by_split(files: Iterable[_File]) -> list[tuple[str, list[_File]]]:
    """The files of each split: train, validation and test first, then by name."""
    result: dict[str, list[_File]] = defaultdict(list)
    for file in files:
        result[file.split].append(file)
    usual = {name: place for place, name in enumerate(_USUAL_SPLITS)}
    return sorted(result.items(), key=lambda entry: (usual.get(entry[0], len(usual)), entry[0]))


def _configs(files: Sequence[_File]) -> list[str]:
    """The folders of several configs: sibling folders, of which at least two have a split of the same name."""
    folders = {file.folder for file in files}
    if "" in folders or len(folders) < 2:
        return []
    above = posixpath.commonpath(folders)
    start = len(above) + 1 if above else 0
    result: dict[str, set[str]] = defaultdict(set)
    for file in files:
        result[file.folder[:start] + file.folder[start:].partition("/")[0]].add(file.split)
    splits = [split for own in result.values() for split in own]
    return sorted(result) if len(set(splits)) < len(splits) and not {"", f"{above}/"} & set(result) else []


def _several_configs(store: Store, folders: Sequence[str], dataset: str) -> PreparedFormatError:
    config = posixpath.basename(folders[0])
    first = shlex.quote(f"DIR/{folders[0]}")
    return PreparedFormatError(
        f"{store.url} contains {len(folders)} configs: {listed(folders, _MOST_CONFIGS)}",
        hint="Import each config separately: "
        f"registry import parquet {first} --name {dataset} --config {config if is_config(config) else 'C'}",
        details={"folder": store.url, "problems": [], "configs": list(folders[:100])},
    )
