"""Reads and writes the folders of prepared versions, and finds them in a data directory.

    <data dir>/<name>[/<config>]/<version>/       one prepared version
    <data dir>/<name>/.config/metadata.json       the default config

A look-up in a data directory follows the rule of a catalog: it finds the highest prepared version that the request
allows. A folder without one of its files is not a prepared version, and the next lower one is used. TFDS finds nothing
in this case.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from registry.errors import (
    ConfigNotFoundError,
    DatasetNotFoundError,
    FeatureError,
    NotStoredError,
    PreparedFormatError,
    StorageError,
    UsageError,
    VersionNotFoundError,
)
from registry.features import FeaturesDict, features_from_json, features_to_json
from registry.features.schema import FILENAME as FEATURES_FILENAME
from registry.json_node import parse_json
from registry.model import ATTACHMENTS_FOLDER, Reference, Version, VersionRequest, check_config, listed
from registry.prepared.info import FILENAME as INFO_FILENAME
from registry.prepared.info import PreparedDataset, checked, info_from_json, info_to_json
from registry.storage import Store

MAX_BYTES: Final = 2**26
"""The largest description file that is read: 64 MiB, enough for the lengths of four million shards."""

METADATA_FILENAME: Final = "metadata.json"
"""TFDS's file of values that the author of a dataset attaches."""

MAX_METADATA_BYTES: Final = 2**20
"""The largest ``metadata.json`` that is stored in a catalog's row; a larger one is only kept as a file."""


def write_prepared(store: Store, prepared: PreparedDataset) -> list[str]:
    """Write label files, ``metadata.json``, ``features.json`` and ``dataset_info.json``; return their names.

    The same dataset gives the same bytes.

    Raises:
        StorageError: a file cannot be written, or exists already.
    """
    texts = {_label_file(stem): "\n".join(names) + "\n" for stem, names in sorted(prepared.features.labels().items())}
    if prepared.metadata.custom:
        texts[METADATA_FILENAME] = json.dumps(dict(prepared.metadata.custom), sort_keys=True, allow_nan=False)
    texts |= {FEATURES_FILENAME: features_to_json(prepared.features), INFO_FILENAME: info_to_json(prepared)}
    for name, text in texts.items():
        with store.create(name) as file:
            file.write(text.encode())
    return list(texts)


def read_prepared(store: Store) -> PreparedDataset:
    """Return the prepared dataset in the folder ``store``.

    Raises:
        PreparedFormatError: the folder is not a prepared dataset, or one of its files is malformed; ``details`` has
            ``file`` and ``key``.
        StorageError: a file cannot be read, or is longer than ``MAX_BYTES``.
    """
    info, schema = _read_text(store, INFO_FILENAME), _read_text(store, FEATURES_FILENAME)
    missing = [name for name, text in ((INFO_FILENAME, info), (FEATURES_FILENAME, schema)) if text is None]
    if info is None or schema is None:
        raise PreparedFormatError(
            f"{store.url} is not a prepared dataset: it has no {' and no '.join(missing)}",
            hint=_where_to_look(store),
            details={"folder": store.url, "missing": missing},
        )
    prepared = info_from_json(info, read_labels(store, features_from_json(schema)))
    return replace(prepared, metadata=replace(prepared.metadata, custom=_read_metadata(store)))


def extra_files(store: Store, prepared: PreparedDataset) -> list[str]:
    """Return the other files in the folder of ``prepared``, such as a licence or TFDS's metadata.json.

    Excludes shards, the description, attachments, which a row of a catalog names, and everything that is not a regular
    file within the folder, such as a named pipe or a link that leads out of it: the records do not depend on it.
    """
    shards = {name for split in prepared.splits for name in split.filenames}
    return [
        name
        for name in store.list()
        if name not in shards
        and not is_description(name)
        and not name.startswith(f"{ATTACHMENTS_FOLDER}/")
        and "\\" not in name
        and store.is_regular(name)
    ]


def is_description(name: str) -> bool:
    """Return whether a file of a version folder is one of those that ``write_prepared`` writes (without metadata)."""
    return name in (INFO_FILENAME, FEATURES_FILENAME) or ("/" not in name and name.endswith(_label_file("")))


def read_labels(store: Store, features: FeaturesDict) -> FeaturesDict:
    """Return ``features`` with the names of its labels, from the label files in the folder.

    Raises:
        PreparedFormatError: a file does not match its ClassLabel: another number of names, or a name twice.
    """
    result: dict[str, list[str]] = {}
    for stem in features.class_labels():
        text = _read_text(store, _label_file(stem))
        if text is not None:
            result[stem] = [line.strip() for line in text.split("\n") if line.strip()]
    try:
        return features.with_labels(result)  # all at once, because each call creates the whole schema again
    except FeatureError:
        for stem, labels in result.items():
            _check_labels(features, stem, labels)
        raise


def _check_labels(features: FeaturesDict, stem: str, labels: list[str]) -> None:
    """Refuse names that do not match their label; the error names their file."""
    try:
        features.with_labels({stem: labels})
    except FeatureError as error:
        name = _label_file(stem)
        raise PreparedFormatError(
            f"{name}: {error.message}", hint=error.hint, details={"file": name, "key": "", "problem": error.message}
        ) from error


def _read_metadata(store: Store) -> dict[str, Any]:
    """The values in ``metadata.json``; {} if it is not a JSON object or too large, because no record depends on it."""
    try:
        text = store.read_bytes(METADATA_FILENAME, limit=MAX_METADATA_BYTES).decode()
        result = parse_json(text, METADATA_FILENAME).value
    except (StorageError, PreparedFormatError, UnicodeDecodeError):
        return {}
    return result if isinstance(result, dict) else {}


def _label_file(stem: str) -> str:
    return f"{stem}.labels.txt"


def _read_text(store: Store, name: str, *, limit: int | None = None) -> str | None:
    """The text of a file, or None if it does not exist."""
    try:
        return store.read_bytes(name, limit=MAX_BYTES if limit is None else limit).decode()
    except NotStoredError:
        return None
    except UnicodeDecodeError as error:
        raise PreparedFormatError(
            f"{name}: invalid UTF-8: {error.reason} at byte {error.start}",
            details={"file": name, "key": "", "problem": error.reason},
        ) from error


def _where_to_look(store: Store) -> str:
    versions = [Version.parse(name) for name in store.folders() if Version.is_valid(name)]
    looked_for = f"Looked for {INFO_FILENAME} and {FEATURES_FILENAME}."
    if versions:
        return f"{looked_for} This folder contains versions. Name one of them, e.g. {store.locate(str(max(versions)))}"
    return f"{looked_for} Name the folder of a version: <data dir>/<name>[/<config>]/<version>"


DEFAULT_CONFIG_FILENAME: Final = ".config/metadata.json"
_MAX_DEFAULT_CONFIG_BYTES: Final = 2**20
_MAX_LISTED: Final = 12


def find_prepared(data_dir: Store, reference: Reference) -> str:
    """Return the folder of the version that ``reference`` names, relative to ``data_dir``, e.g. ``mnist/plain/3.0.1``.

    Without a request, the highest version is found; without a config, the default config, if the dataset has configs.
    As in TFDS, an exact version without a config is first searched among the versions without a config: a dataset that
    gained configs keeps its old versions next to them.

    Raises:
        UsageError: ``reference`` contains an alias; aliases exist only in catalogs.
        DatasetNotFoundError, ConfigNotFoundError, VersionNotFoundError: no prepared version matches.
        PreparedFormatError: ``.config/metadata.json`` is malformed.
    """
    if reference.alias is not None:
        raise UsageError(
            f"{reference} is an alias, but a data directory has no aliases",
            hint=f"Write the version, e.g. {reference.dataset}:1.0.0",
        )
    if reference.config is None and reference.request is not None and reference.request.exact is not None:
        exact = next(iter_prepared(data_dir, reference.name, reference.request), None)
        if exact is not None:
            return f"{reference.name}/{exact}"
    config = default_config(data_dir, reference.name) if reference.config is None else reference.config
    folder = reference.name if config is None else f"{reference.name}/{config}"
    result = next(iter_prepared(data_dir, folder, reference.request), None)
    if result is not None:
        return f"{folder}/{result}"
    prepared = [str(version) for version in iter_prepared(data_dir, folder)]
    if prepared:
        raise VersionNotFoundError(
            f"no version {str(reference.request)!r} of {folder} is prepared in {data_dir.url}",
            hint=f"Prepared: {listed(prepared, _MAX_LISTED)}.",
            details={"name": str(reference.request), "known": prepared[:100]},
        )
    configs = [
        child
        for child in data_dir.folders(reference.name)
        if next(iter_prepared(data_dir, f"{reference.name}/{child}"), 0)
    ]
    if configs:
        if config is None:
            raise ConfigNotFoundError(
                f"{reference.name} has no default config in {data_dir.url}",
                hint=f"Name one: {', '.join(f'{reference.name}/{name}' for name in configs[:_MAX_LISTED])}.",
                details={"name": "", "known": configs[:100]},
            )
        raise ConfigNotFoundError.of(config, configs, where=f"{data_dir.url}/{reference.name}")
    datasets = [name for name in data_dir.folders() if not name.startswith(".")]
    if reference.name in datasets:
        raise DatasetNotFoundError(
            f"nothing of {reference.name} is prepared in {data_dir.url}", details={"name": reference.name, "known": []}
        )
    raise DatasetNotFoundError.of(reference.name, datasets, where=data_dir.url)


def iter_prepared(data_dir: Store, folder: str, request: VersionRequest | None = None) -> Iterator[Version]:
    """Yield the prepared versions in ``folder`` that ``request`` allows, the highest first. Checks each when needed."""
    numbers = [Version.parse(name) for name in data_dir.folders(folder) if Version.is_valid(name)]
    for number in sorted(numbers, reverse=True):
        if (request is None or request.allows(number)) and all(
            data_dir.exists(f"{folder}/{number}/{file}") for file in (FEATURES_FILENAME, INFO_FILENAME)
        ):
            yield number


def write_default_config(data_dir: Store, name: str, config: str | None) -> None:
    """Write the default config of a dataset to the file that TFDS reads, unless it is already there.

    None removes the file: the default config has no version in this folder, but in that of another name.

    Raises:
        StorageError: the file cannot be written.
    """
    path = f"{name}/{DEFAULT_CONFIG_FILENAME}"
    if config is None:
        if data_dir.exists(path):
            data_dir.remove(path)
        return
    text = json.dumps({"default_config_name": config}).encode()
    try:
        if data_dir.read_bytes(path, limit=_MAX_DEFAULT_CONFIG_BYTES) == text:
            return
    except NotStoredError:
        pass
    with data_dir.create(path, overwrite=True) as file:
        file.write(text)


def default_config(data_dir: Store, name: str) -> str | None:
    """Return the default config that TFDS recorded for the dataset, or None.

    Raises:
        PreparedFormatError: the file is malformed.
    """
    path = f"{name}/{DEFAULT_CONFIG_FILENAME}"
    text = _read_text(data_dir, path, limit=_MAX_DEFAULT_CONFIG_BYTES)
    node = None if text is None else parse_json(text, path).entries().get("default_config_name")
    return None if node is None or node.value is None else checked(node, check_config)
