"""Opens folders of Hugging Face: the output of ``save_to_disk``, and clones of repositories.

    dataset_dict.json                  {"splits": ["train", "test"]}; missing if a single split was saved
    train/state.json                   the names of the data files
    train/dataset_info.json            features, description, license, citation
    train/data-00000-of-00002.arrow    an Arrow stream

TFDS writes ``dataset_info.json`` as well, but only Hugging Face writes ``state.json`` next to it. The dataset card of a
repository lists the files of each split and config:

    README.md   ---
                configs:
                - config_name: default
                  data_files:
                  - split: train
                    path: data/train-*.parquet      the glob, or a list of globs
                dataset_info:
                  features:
                  - name: label
                    dtype: {class_label: {names: {'0': cat, '1': dog}}}
                ---

The files themselves are opened by the reader of their kind.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

from registry.errors import FeatureError, SourceError, spell
from registry.features import ClassLabel, Feature
from registry.intake.arrow_files import (
    KIND,
    hints_of,
    kept_features,
    open_arrow,
    refuse_paths,
    split_name,
    with_plain_files,
)
from registry.intake.file_parts import combine_splits
from registry.intake.kinds import KINDS, MEDIA, kind_of, open_kind
from registry.intake.options import CSV_OPTIONS, AddOptions
from registry.intake.source import Files, Rows, Source, explain_choice
from registry.interop.dataset_card import CARD, describe_card, read_card, read_front_matter
from registry.lazy import yaml
from registry.shards.arrow_schema import described_texts
from registry.splits import counted
from registry.storage.local import LocalStore

DICT: Final = "dataset_dict.json"
STATE: Final = "state.json"
INFO: Final = "dataset_info.json"

_MOST_BYTES: Final = 64 * 2**20
"""Most bytes of a JSON file. The description of a million classes takes 20 MB."""

_DEFAULT_SPLIT: Final = "train"
_MOST_SHOWN: Final = 10


class CardConfig(NamedTuple):
    """A config of a dataset card: its name, and the globs of each split, relative to the repository.

    ``*`` does not match ``/``; ``**`` does.
    """

    name: str
    splits: Mapping[str, tuple[str, ...]]


def is_hugging_face(files: Files) -> bool:
    """Whether a folder was written by ``save_to_disk``, or has a dataset card with configs that name their files."""
    return is_saved_dataset(set(files.names)) or has_configs(files)


def open_hugging_face(files: Files, options: AddOptions) -> Source:
    """Open a folder of ``save_to_disk``, or a repository; see ``open_saved_dataset`` and ``open_repository``."""
    return open_saved_dataset(files, options) if is_saved_dataset(set(files.names)) else open_repository(files, options)


def is_saved_dataset(names: frozenset[str] | set[str]) -> bool:
    """Whether a folder with the files ``names`` was written by ``save_to_disk``."""
    return DICT in names or {STATE, INFO} <= names


def open_saved_dataset(files: Files, options: AddOptions) -> Source:
    """Open a folder that ``Dataset.save_to_disk`` or ``DatasetDict.save_to_disk`` wrote.

    Raises:
        SourceError: a file is missing or malformed, or the dataset has no rows.
        UsageError: ``options`` has some for CSV.
    """
    options.require_kind("arrow", CSV_OPTIONS)
    saved = _SavedDataset(files)
    folders = saved.folders()
    described = saved.features(next(iter(folders.values())))
    names: list[str] = []
    splits: dict[str, str] = {}
    for name, folder in folders.items():
        if saved.features(folder) != described:
            raise SourceError(
                f"{files.location}: the features of the split {name!r} differ from those of {next(iter(folders))!r}",
                hint="Cast one of them before saving: dataset.cast(features)",
            )
        if data := saved.data_files(folder):  # none, or one without rows, if the split is empty
            names += data
            splits[name] = f"{escape(folder)}*"
    if not names:
        raise SourceError(f"{files.location}: the dataset has no rows", hint="Save data with at least one row.")
    source = open_arrow(files.only(sorted(names)), replace(options, kind="arrow", splits=splits))
    in_order = sorted(source.parts, key=lambda part: names.index(part.name))
    source = replace(source, parts=[part.mapped(partial(_with_plain_files, described)) for part in in_order])
    first = source.first_rows()
    uses = list(source.files)
    about = {DICT: "the names of the splits", STATE: "the names of the data files", INFO: "features and license"}
    for name in sorted(set(files.names) - set(names)):
        reason = about.get(name.rpartition("/")[2])
        uses += files.uses([name], "metadata" if reason else "skipped", reason=reason or "not listed in state.json")
    texts = described_texts(saved.json(f"{next(iter(folders.values()))}{INFO}"))
    if first is not None and described:  # The library `datasets` reads them here, not in the metadata of the schema.
        source = replace(source, hints=hints_of(described, first.table))
        texts["custom"] = kept_features(described)
    return replace(
        source,
        kind=KIND,
        summary=f"Hugging Face dataset: {counted(len(folders), 'split')}, {counted(len(names), 'Arrow file')}",
        files=(*uses, *files.skipped),
        metadata=replace(source.metadata, **texts),
        split_reason="the splits that were saved",
    )


def _with_plain_files(described: Mapping[str, Any], rows: Rows) -> Rows:
    return replace(rows, table=with_plain_files(rows.table, described, refuse_paths))


class _SavedDataset:
    """The files of a folder that ``save_to_disk`` wrote."""

    def __init__(self, files: Files) -> None:
        self.names = frozenset(files.names)
        self._files = files

    def folders(self) -> dict[str, str]:
        """Return the folder of each split, with its final slash; empty for the folder of a single split."""
        if DICT not in self.names:
            split = split_name(self.json(STATE).get("_split"))
            return {split or "train": ""}
        splits = self.json(DICT).get("splits")
        if not isinstance(splits, list) or not splits or not all(isinstance(name, str) for name in splits):
            raise self._malformed(DICT, "expected a list of names at the key 'splits'")
        return {name: f"{name}/" for name in splits}

    def data_files(self, folder: str) -> list[str]:
        """The names of the Arrow files of a split, in order."""
        name = f"{folder}{STATE}"
        files = self.json(name).get("_data_files")
        result: list[str] = []
        for node in files if isinstance(files, list) else [None]:
            filename = node.get("filename") if isinstance(node, dict) else None
            if not isinstance(filename, str):
                raise self._malformed(name, "expected the names of files at the key '_data_files'")
            if f"{folder}{filename}" not in self.names:  # nor is any path out of the folder
                raise SourceError(
                    f"{self._files.location}: the file {folder}{filename}, which {name} lists, is missing",
                    hint="Copy the whole folder, or save the dataset again.",
                )
            result.append(f"{folder}{filename}")
        if self.json(name).get("_indices_data_files"):
            raise self._malformed(name, "it has an index of rows, which versions of `datasets` before 2.0 wrote")
        return result

    def features(self, folder: str) -> dict[str, Any]:
        """The description of each column of a split; empty if it has none."""
        features = self.json(f"{folder}{INFO}").get("features") or {}
        if not isinstance(features, dict):
            raise self._malformed(f"{folder}{INFO}", "expected an object at the key 'features'")
        return features

    def json(self, name: str) -> dict[str, Any]:
        """The values of a JSON file."""
        if name not in self.names:
            raise SourceError(
                f"{self._files.location}: the file {name} is missing",
                hint="Copy the whole folder, or save the dataset again.",
            )
        try:
            document = json.loads(self._files.store.read_bytes(name, limit=_MOST_BYTES))
        except (ValueError, RecursionError) as error:
            raise self._malformed(name, f"it is not JSON: {error}") from error
        if not isinstance(document, dict):
            raise self._malformed(name, "expected a JSON object")
        return document

    def _malformed(self, name: str, problem: str) -> SourceError:
        return SourceError(
            f"{self._files.location}: {name}: {problem}",
            hint="Save the dataset again with dataset.save_to_disk(...)",
            details={"file": name},
        )


def has_configs(files: Files) -> bool:
    """Whether the folder has a dataset card with configs that name their files."""
    if CARD not in files.names:
        return False
    try:
        return bool(_configs_of(read_front_matter(files.store)))
    except (yaml.YAMLError, SourceError):
        return False


def read_configs(files: Files) -> list[CardConfig]:
    """The configs of the dataset card that name their files.

    Raises:
        SourceError: the card is not YAML, or a config is malformed or names files outside of the repository.
    """
    try:
        front = read_front_matter(files.store)
    except yaml.YAMLError as error:
        raise _malformed(files, f"its front matter is not YAML: {str(error).partition(chr(10))[0]}") from error
    return [_read_config(files, config) for config in _configs_of(front)]


def files_of_config(config: str, folder: Path, names: Sequence[str]) -> list[str] | None:
    """Return the names of the card and of the files of a config, or None if the card does not list the files.

    Args:
        config: the name of the config.
        folder: a folder with the card.
        names: the names of all files of the repository.
    """
    files = Files(store=LocalStore(folder), names=names, sizes=[0] * len(names), location=str(folder))
    try:
        chosen = _choose(files, read_configs(files), config)
        needed = {name for globs in chosen.splits.values() for glob in globs for name in _matches(files, chosen, glob)}
    except SourceError:  # the error is raised again when the files are opened
        return None
    return sorted({CARD, *needed})


def open_repository(files: Files, options: AddOptions) -> Source:
    """Open one config of a repository with a dataset card.

    Raises:
        SourceError: the card is malformed, a glob matches no file, there are several configs and ``options`` name none
            of them, or the reader of the files raises it.
    """
    configs = read_configs(files)
    config = _choose(files, configs, options.source_config())
    if not config.splits:
        raise _malformed(files, f"config {config.name!r}: data_files is empty")
    classes = _classes_of(read_front_matter(files.store), config.name)
    sources: dict[str, Source] = {}
    used: dict[str, str] = {}
    for split, globs in config.splits.items():
        names = sorted({name for glob in globs for name in _matches(files, config, glob)})
        for name in names:
            if used.setdefault(name, split) != split:
                raise _malformed(files, f"{name} is in the splits {used[name]!r} and {split!r} of {config.name!r}")
        own = files.only(names)
        # The kind of the source shows that there is a card, but not the kind of the files.
        forced = None if options.kind == "hugging_face" else options.kind
        kind = forced or _kind_of(files, split, names)
        options.require_kind(kind, CSV_OPTIONS)
        sources[split] = open_kind(kind, own, replace(options, splits={split: "*"}))
    reason = f"the config {config.name!r} of the dataset card"
    source = combine_splits(sources, split_reason=reason)
    others = [name for name in files.names if name not in used and name != CARD]
    metadata = read_card(files.store)
    card = files.uses([CARD], "metadata", reason=describe_card(metadata))
    skipped = files.uses(others, "skipped", reason=f"not in the config {config.name!r} of the dataset card")
    return replace(
        source,
        hints={**classes, **source.hints},
        files=[*source.files, *card, *skipped, *files.skipped],
        metadata=metadata,
    )


def _choose(files: Files, configs: Sequence[CardConfig], name: str | None) -> CardConfig:
    """Return the config ``name``, or the only config."""
    if not configs:
        raise SourceError(
            f"{files.location}: save_to_disk did not write this folder, and no dataset card names its files",
            hint=f"Leave out {spell('kind')}, so that the names of the files decide.",
        )
    if len(configs) == 1:
        return configs[0]
    names = [config.name for config in configs]
    for config in configs:
        if config.name == name:
            return config
    problem, hint = explain_choice(name, names, noun="config", option="config")
    raise SourceError(f"{files.location}: the dataset card {problem}", hint=hint, details={"configs": names[:100]})


def _configs_of(front: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the configs that list files. Other configs only have metadata."""
    result = front.get("configs")
    return [
        node
        for node in (result if isinstance(result, list) else [])
        if isinstance(node, dict) and ("data_files" in node or "data_dir" in node)
    ]


def _read_config(files: Files, found: Mapping[str, Any]) -> CardConfig:
    name = found.get("config_name", "default")
    if not _is_scalar(name):
        raise _malformed(files, "config_name is not text")
    name = str(name)
    folder = found.get("data_dir") or ""
    if not isinstance(folder, str):
        raise _malformed(files, f"config {name!r}: data_dir is not text")
    given = found.get("data_files")
    if given is None:
        given = "**"
    entries: Iterable[tuple[Any, Any]]
    if isinstance(given, list) and all(isinstance(node, dict) for node in given):
        entries = [(node.get("split", _DEFAULT_SPLIT), node.get("path")) for node in given]
    elif isinstance(given, dict):
        entries = given.items()
    else:
        entries = [(_DEFAULT_SPLIT, given)]
    splits: dict[str, tuple[str, ...]] = {}
    for split, paths in entries:
        if not _is_scalar(split):
            raise _malformed(files, f"config {name!r}: the name of a split is not text")
        globs = [paths] if isinstance(paths, str) else paths
        if not isinstance(globs, list) or not globs or not all(isinstance(glob, str) for glob in globs):
            raise _malformed(files, f"config {name!r}: expected a path or a list of paths for the split {split!r}")
        checked = tuple(_check_glob(files, name, posixpath.join(folder, glob)) for glob in globs)
        splits[str(split)] = (*splits.get(str(split), ()), *checked)
    return CardConfig(name=name, splits=splits)


def _check_glob(files: Files, config: str, glob: str) -> str:
    """Check that a glob stays inside the repository. Returns it without ``./``."""
    if "://" in glob or glob.startswith(("/", "~")) or ".." in glob.split("/") or "\\" in glob:
        raise SourceError(
            f"{files.location}: {CARD}: config {config!r} names files outside of the repository: {glob[:200]!r}",
            hint="Download these files into the repository, and name them by their relative paths.",
            details={"file": CARD, "config": config},
        )
    return posixpath.normpath(glob)


def _matches(files: Files, config: CardConfig, glob: str) -> list[str]:
    from fsspec.utils import glob_translate  # imports all compressions

    try:
        pattern = re.compile(glob_translate(glob))
    except ValueError as error:
        raise _malformed(files, f"config {config.name!r}: {error}") from error
    names = [name for name in files.names if name != CARD and pattern.fullmatch(name)]
    if not names:
        raise _malformed(files, f"config {config.name!r}: no file matches {glob!r}")
    return names


def _kind_of(files: Files, split: str, names: Sequence[str]) -> str:
    """Return the kind of the files of a split, by their extensions. Tables next to images are their metadata."""
    found = {kind for name in names if (kind := kind_of(name)) in KINDS}
    media = [kind for kind in MEDIA if kind in found]
    kinds = media or sorted(found)
    if len(kinds) != 1:
        problem = f"of several kinds: {', '.join(kinds)}" if kinds else f"of no known kind, such as {names[0]}"
        raise _malformed(files, f"the files of the split {split!r} are {problem}")
    return kinds[0]


def _classes_of(front: Mapping[str, Any], config: str) -> dict[str, Feature]:
    """The class labels that the card describes, by column."""
    info = front.get("dataset_info")
    infos = [node for node in (info if isinstance(info, list) else [info]) if isinstance(node, dict)]
    info = next((entry for entry in infos if entry.get("config_name", config) == config), {})
    features = info.get("features")
    result: dict[str, Feature] = {}
    for entry in features if isinstance(features, list) else []:
        dtype = entry.get("dtype") if isinstance(entry, dict) else None
        label = dtype.get("class_label") if isinstance(dtype, dict) else None
        names = label.get("names") if isinstance(label, dict) else None
        if isinstance(names, dict):
            names = [names[key] for key in sorted(names, key=lambda key: int(key) if str(key).isdigit() else 0)]
        # YAML reads an unquoted "no" as False: such a column has no hint rather than wrong names.
        if isinstance(names, list) and names and all(map(_is_scalar, names)) and isinstance(entry.get("name"), str):
            try:
                result[entry["name"]] = ClassLabel(names=[str(name) for name in names])
            except FeatureError:  # a label cannot have these names, so the column stays a number
                continue
    return result


def _is_scalar(value: Any) -> bool:
    """Whether a value is text or an integer. The text of nested YAML aliases may be exponentially long."""
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _malformed(files: Files, problem: str) -> SourceError:
    return SourceError(
        f"{files.location}: {CARD}: {problem}",
        hint="Correct the dataset card, or remove `configs` from it so that the names of files decide.",
        details={"file": CARD},
    )
