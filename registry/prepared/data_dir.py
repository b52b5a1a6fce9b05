"""Which version folder of a data directory does a reference name? TFDS's layout, walked from the dataset's name down.

    <data dir>/<name>[/<config>]/<version>/       one prepared version
    <data dir>/<name>/.config/metadata.json       the config that is meant where none is named

The rule is that of a look-up in a catalog, over folders: the highest prepared version that the request allows. A folder
that misses one of its files is no prepared version, and the next lower one is taken; TFDS finds nothing there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from registry.errors import (
    ConfigNotFoundError,
    DatasetNotFoundError,
    NotStoredError,
    PreparedFormatError,
    ReferenceSyntaxError,
    UsageError,
    VersionNotFoundError,
)
from registry.features.json_node import parse_json
from registry.features.schema import FILENAME as FEATURES_FILENAME
from registry.model import Reference, Version, VersionRequest, check_config
from registry.prepared.info import FILENAME as INFO_FILENAME
from registry.storage import Store

METADATA_FILENAME: Final = ".config/metadata.json"
_MAX_METADATA_BYTES: Final = 2**20
_MAX_LISTED: Final = 12


def find_prepared(data_dir: Store, wanted: Reference) -> str:
    """The folder of the version that ``wanted`` names, relative to ``data_dir``, e.g. ``mnist/plain/3.0.1``.

    No request takes the highest; no config the default one, or none where the dataset has none. As in TFDS, an exact
    version without a config is looked for among the versions that were prepared without one first: a dataset that
    gained configs keeps its old versions beside them.

    Raises:
        UsageError: ``wanted`` names an alias, which a folder does not know.
        DatasetNotFoundError, ConfigNotFoundError, VersionNotFoundError: nothing that is prepared answers.
        PreparedFormatError: ``.config/metadata.json`` is malformed.
    """
    if wanted.alias is not None:
        raise UsageError(
            f"{wanted} names an alias, and a data directory has none", hint=f"Name the version: {wanted.dataset}:x.y.z"
        )
    if wanted.config is None and wanted.request is not None and wanted.request.exact is not None:
        exact = next(iter_prepared(data_dir, wanted.name, wanted.request), None)
        if exact is not None:
            return f"{wanted.name}/{exact}"
    config = default_config(data_dir, wanted.name) if wanted.config is None else wanted.config
    folder = wanted.name if config is None else f"{wanted.name}/{config}"
    found = next(iter_prepared(data_dir, folder, wanted.request), None)
    if found is not None:
        return f"{folder}/{found}"
    prepared = [str(version) for version in iter_prepared(data_dir, folder)]
    if prepared:
        more = f" and {len(prepared) - _MAX_LISTED} more" if len(prepared) > _MAX_LISTED else ""
        raise VersionNotFoundError(
            f"no version {str(wanted.request)!r} of {folder} is prepared in {data_dir.url}",
            hint=f"Prepared: {', '.join(prepared[:_MAX_LISTED])}{more}.",
            details={"name": str(wanted.request), "known": prepared[:100]},
        )
    configs = [one for one in data_dir.folders(wanted.name) if next(iter_prepared(data_dir, f"{wanted.name}/{one}"), 0)]
    if configs:
        if config is None:
            raise ConfigNotFoundError(
                f"{wanted.name} has no default config in {data_dir.url}",
                hint=f"Name one: {', '.join(f'{wanted.name}/{one}' for one in configs[:_MAX_LISTED])}.",
                details={"name": "", "known": configs[:100]},
            )
        raise ConfigNotFoundError.of(config, configs, where=f"{data_dir.url}/{wanted.name}")
    datasets = [name for name in data_dir.folders() if not name.startswith(".")]
    if wanted.name in datasets:
        raise DatasetNotFoundError(
            f"nothing of {wanted.name} is prepared in {data_dir.url}", details={"name": wanted.name, "known": []}
        )
    raise DatasetNotFoundError.of(wanted.name, datasets, where=data_dir.url)


def iter_prepared(data_dir: Store, folder: str, request: VersionRequest | None = None) -> Iterator[Version]:
    """The prepared versions in ``folder`` that ``request`` allows, the highest first; each is looked at in its turn."""
    numbers = [Version.parse(name) for name in data_dir.folders(folder) if Version.is_valid(name)]
    for number in sorted(numbers, reverse=True):
        if (request is None or request.allows(number)) and all(
            data_dir.exists(f"{folder}/{number}/{file}") for file in (FEATURES_FILENAME, INFO_FILENAME)
        ):
            yield number


def write_default_config(data_dir: Store, name: str, config: str) -> None:
    """Write down which config of a dataset is the default one, where TFDS looks for it; nothing where it says so.

    Raises:
        StorageError: the file cannot be written.
    """
    path = f"{name}/{METADATA_FILENAME}"
    text = json.dumps({"default_config_name": config}).encode()
    try:
        if data_dir.read_bytes(path, limit=_MAX_METADATA_BYTES) == text:
            return
    except NotStoredError:
        pass
    with data_dir.create(path, overwrite=True) as file:
        file.write(text)


def default_config(data_dir: Store, name: str) -> str | None:
    """The config that TFDS wrote down as the dataset's default, or None.

    Raises:
        PreparedFormatError: the file is malformed.
    """
    path = f"{name}/{METADATA_FILENAME}"
    try:
        text = data_dir.read_bytes(path, limit=_MAX_METADATA_BYTES).decode()
    except NotStoredError:
        return None
    except UnicodeDecodeError as error:
        raise PreparedFormatError(
            f"{path}: no UTF-8 text: {error.reason} at byte {error.start}",
            details={"file": path, "key": "", "problem": error.reason},
        ) from error
    node = parse_json(text, path).entries().get("default_config_name")
    if node is None or node.value is None:
        return None
    try:
        return check_config(node.text())
    except ReferenceSyntaxError as error:
        node.fail(error.message, hint=error.hint, cause=error)
