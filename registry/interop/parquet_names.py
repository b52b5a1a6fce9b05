"""Which splits do the names of Parquet files make? Those of ``datasets`` and of the hub, in every form they have had.

    train-00000-of-00005.parquet            shards of a split
    train.parquet                           a split that is one file
    train-00000-of-00005-<hash>.parquet     as the hub stored them until 2023: each with a hash of its own
    train/0000.parquet                      as the hub's branch of converted files has them

All may lie in ``data/`` or another folder. The last two are names that no template of ours gives: such files are
cataloged as a copy under names of ours.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from registry.errors import NotStoredError, PreparedFormatError, UsageError
from registry.interop.dataset_card import CARD
from registry.model import ShardedFileTemplate, check_config
from registry.model.split import check_split_name
from registry.prepared.info import FILENAME as INFO_FILENAME
from registry.storage import RenamedStore, Store

FILE_FORMAT: Final = "parquet_columns"
NAMES_HINT: Final = "Shards are named SPLIT-00000-of-00005.parquet, or SPLIT.parquet where a split is one file."

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
    """The files of one split, in order, and the template of their names; None where there is none that gives them."""

    name: str
    filenames: tuple[str, ...]
    template: str | None


def find_splits(store: Store, *, dataset: str = "N") -> list[SplitFiles]:
    """The splits that the names of the Parquet files in ``store`` make: train, validation and test first, then by name.

    Args:
        store: the folder.
        dataset: its name, for the hint.

    Raises:
        PreparedFormatError: there are no such files; their names make no splits, or shards are missing or there twice,
            and each is named; or they are of several configs.
        NotStoredError: there is no such folder.
        StorageError: the folder cannot be listed.
    """
    names = [name for name in store.list() if name.endswith(".parquet")]
    numbered = _numbered_folders(names)
    files = [_parse(name, numbered) for name in names]
    if not files:
        root = store.local_root
        if root is not None and not Path(root).is_dir():
            raise NotStoredError(
                f"{root} is a file, and a folder is expected" if Path(root).exists() else f"there is no folder {root}",
                hint=f"Give the folder of the shards. {NAMES_HINT}",
                details={"path": str(root), "errno": None, "doing": "read"},
            )
        is_tfds = store.exists(INFO_FILENAME)
        raise PreparedFormatError(
            f"{store.url} holds no Parquet files" + (", but what TFDS prepared" if is_tfds else ""),
            hint="Import it with: registry import tfds DIR" if is_tfds else NAMES_HINT,
            details={"folder": store.url, "problems": []},
        )
    if configs := _configs(files):
        raise _several_configs(store, configs, dataset)
    raise_for(store, _problems(files))
    return [_gather(name, own) for name, own in _by_split(files)]


def with_fitting_names(store: Store, *, dataset: str = "N") -> Store:
    """``store``, its Parquet files under names of ours where no template gives theirs. Errors as ``find_splits``."""
    splits = find_splits(store, dataset=dataset)
    if all(split.template is not None for split in splits):
        return store
    files = ShardedFileTemplate(dataset="dataset", template="{SPLIT}-{SHARD_X_OF_Y}.parquet", file_format=FILE_FORMAT)
    names = {
        files.filename(split.name, index, len(split.filenames)): name
        for split in splits
        for index, name in enumerate(split.filenames)
    }
    return RenamedStore(store, names | ({CARD: CARD} if store.exists(CARD) else {}))


def raise_for(store: Store, problems: Sequence[str]) -> None:
    """Refuse the folder where there are ``problems``, and tell the first of them."""
    if problems:
        raise PreparedFormatError(
            f"{store.url}: its Parquet files make no dataset{_listed(problems)}",
            hint=f"{NAMES_HINT} Of several configs each is imported by itself, from its own folder, with --config.",
            details={"folder": store.url, "problems": list(problems[:100])},
        )


def raise_for_names(store: Store, splits: Sequence[SplitFiles]) -> None:
    """Refuse the folder where no template gives the names of a split: nothing could be read where it lies."""
    odd = [name for split in splits if split.template is None for name in split.filenames]
    if odd:
        raise PreparedFormatError(
            f"{store.url}: the names of its Parquet files follow no template of ours{_listed(odd)}",
            hint="Import a copy, in which they get names that do: registry import parquet DIR --copy",
            details={"folder": store.url, "problems": odd[:100]},
        )


class _File(NamedTuple):
    """A file by its name; ``problem`` where that is none of a shard.

    ``num_shards`` is 0 where the name does not tell it. ``pattern`` is what the names of a split have in common, with a
    ``%d`` of some width in the place of the index.
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
    """What the name of a file says; ``numbered`` are the folders in which a number is a shard."""
    shard, number = _SHARD.fullmatch(filename), _NUMBERED.fullmatch(filename)
    found = shard or (number if posixpath.dirname(filename) in numbered else None) or _WHOLE.fullmatch(filename)
    if found is None:
        return _File(filename, problem="its name is none of a shard")
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
        return _File(filename, problem=f"there is no shard {place} of {count}")
    return _File(filename, folder, split, place, count, pattern, template)


def _numbered_folders(filenames: Iterable[str]) -> set[str]:
    """The folders named as a split of which the files are numbered; elsewhere ``2024.parquet`` is the split 2024."""
    found: set[str] = set()
    for filename in filenames:
        match = _NUMBERED.fullmatch(filename)
        if match and (int(match["index"]) == 0 or match["split"].removeprefix("partial-") in _USUAL_SPLITS):
            found.add(posixpath.dirname(filename))
    return found


def _template(template: str) -> ShardedFileTemplate:
    return ShardedFileTemplate(dataset="dataset", template=template, file_format=FILE_FORMAT)


def _problems(files: Sequence[_File]) -> list[str]:
    """What is wrong with the files together: a name that is none, shards that are missing or there twice."""
    problems = [f"{file.filename}: {file.problem}" for file in files if file.problem]
    for name, own in _by_split(file for file in files if not file.problem):
        first = own[0]
        if others := [file for file in own[1:] if file.pattern != first.pattern]:
            problems.append(f"{others[0].filename}: the split {name} is in {first.filename}, too, named in another way")
            continue
        places: dict[int, str] = {}
        problems += [
            f"{file.filename}: the split {name} is there twice, see {twin}"
            for file in own
            if (twin := places.setdefault(file.place, file.filename)) != file.filename  # hashes differ
        ]
        num_shards = first.num_shards or max(places) + 1
        missing = sorted(set(range(min(num_shards, len(own) + _MOST_PROBLEMS))) - set(places))[:_MOST_PROBLEMS]
        problems += [f"{first.pattern % index}: it is missing" for index in missing]
    return problems


def _gather(name: str, files: Sequence[_File]) -> SplitFiles:
    """One split of files that are all there."""
    in_order = sorted(files, key=lambda file: file.place)
    template, num_shards = in_order[0].template, len(files)
    name_shard = _template(template).namer(name, num_shards)
    fits = all(name_shard(file.place) == file.filename for file in in_order)
    return SplitFiles(
        name=name, filenames=tuple(file.filename for file in in_order), template=template if fits else None
    )


def _by_split(files: Iterable[_File]) -> list[tuple[str, list[_File]]]:
    """The files of each split: train, validation and test first, then by name."""
    found: dict[str, list[_File]] = defaultdict(list)
    for file in files:
        found[file.split].append(file)
    usual = {name: place for place, name in enumerate(_USUAL_SPLITS)}
    return sorted(found.items(), key=lambda entry: (usual.get(entry[0], len(usual)), entry[0]))


def _configs(files: Sequence[_File]) -> list[str]:
    """The folders of several configs: side by side, and with a split of one name in more than one of them."""
    folders = {file.folder for file in files}
    if "" in folders or len(folders) < 2:
        return []
    above = posixpath.commonpath(folders)
    start = len(above) + 1 if above else 0
    found: dict[str, set[str]] = defaultdict(set)
    for file in files:
        found[file.folder[:start] + file.folder[start:].partition("/")[0]].add(file.split)
    splits = [split for own in found.values() for split in own]
    return sorted(found) if len(set(splits)) < len(splits) and not {"", f"{above}/"} & set(found) else []


def _several_configs(store: Store, folders: Sequence[str], dataset: str) -> PreparedFormatError:
    shown = ", ".join(folders[:_MOST_CONFIGS])
    more = f" and {len(folders) - _MOST_CONFIGS} more" if len(folders) > _MOST_CONFIGS else ""
    config = posixpath.basename(folders[0])
    return PreparedFormatError(
        f"{store.url} holds {len(folders)} configs: {shown}{more}",
        hint="Each is imported by itself: "
        f"registry import parquet DIR/{folders[0]} --name {dataset} --config {config if _is_config(config) else 'C'}",
        details={"folder": store.url, "problems": [], "configs": list(folders[:100])},
    )


def _is_config(name: str) -> bool:
    try:
        check_config(name)
    except UsageError:
        return False
    return True


def _listed(lines: Sequence[str]) -> str:
    """Some lines, and how many more there are."""
    shown = "".join(f"\n  {line}" for line in lines[:_MOST_PROBLEMS])
    return shown + (f"\n  and {len(lines) - _MOST_PROBLEMS} more" if len(lines) > _MOST_PROBLEMS else "")
