"""Finds the catalog, folders of data and caches, pin files and the actor: from arguments, variables or defaults."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from registry import model
from registry.catalog import is_site, masked_url, sqlite_path
from registry.catalog.service_index import CLIENT_SETTINGS
from registry.environment import read_variable, use_team_defaults
from registry.errors import (
    CatalogError,
    CatalogNotFoundError,
    StorageError,
    UsageError,
    spell,
)
from registry.lazy import lazy_types

if TYPE_CHECKING:  # numpy and pydantic are loaded when something is read
    from registry.api.logins import Logins, TeamSettings
    from registry.catalog import CatalogBackend
    from registry.catalog.site import SiteOptions
    from registry.model import DatasetVersion
    from registry.pins import PinFile, Places
    from registry.storage import Allowed, Store
    from registry.storage.cache import FileCache
    from registry.tfrecord import IndexFolder
else:
    lazy_types(globals(), {"registry.storage.cache": "FileCache"})

CATALOG_VARIABLE: Final = "REGISTRY_CATALOG"
DATA_DIR_VARIABLE: Final = "REGISTRY_DATA_DIR"
CACHE_VARIABLE: Final = "REGISTRY_CACHE"
CACHE_DIR_VARIABLE: Final = "REGISTRY_CACHE_DIR"
CACHE_SHARED_VARIABLE: Final = "REGISTRY_CACHE_SHARED"
CACHE_BYTES_VARIABLE: Final = "REGISTRY_CACHE_BYTES"
TRUSTED_KEYS_VARIABLE: Final = "REGISTRY_TRUSTED_KEYS"
"""Comma-separated public keys, as paths or in OpenSSH format: one of them must have signed each site."""

ALLOWED_HOSTS_VARIABLE: Final = "REGISTRY_ALLOWED_HOSTS"
"""Comma-separated hosts from which the files of any pin may be fetched."""

_TEAM_VARIABLES: Final = frozenset(setting.variable for setting in CLIENT_SETTINGS.values()) - {""}
_OLD_NAME: Final = "dataset-registry"
"""The distribution's name before version 0.2. On PyPI that name belongs to another project."""


def catalog_url(url: str | os.PathLike[str] | None = None) -> str:
    """The catalog that ``connect(url)`` opens: a database URL, or the path of an SQLite file.

    Raises:
        UsageError: ``url`` is empty.
    """
    if url is not None and not os.fspath(url):
        raise UsageError("the catalog's URL is empty", hint="Give a URL or path, or leave it out for the default.")
    chosen = url or read_variable(CATALOG_VARIABLE)
    return os.fspath(chosen) if chosen else str(_user_folder() / "catalog.db")


@contextmanager
def name_origin(url: str | os.PathLike[str] | None, *, given_by: str = "") -> Iterator[None]:
    """Say in the hint of an error where the catalog's URL comes from: ``given_by``, a variable, or the default.

    Nothing is added if the caller itself passed the ``url``.
    """
    try:
        yield
    except (CatalogError, CatalogNotFoundError, UsageError) as error:
        is_missing = isinstance(error, CatalogNotFoundError)
        first, last = "", ""
        if url is not None:
            last = f"This path comes from {given_by}." if given_by and is_missing else ""
        elif read_variable(CATALOG_VARIABLE):
            last = f"The environment variable {CATALOG_VARIABLE} names this catalog."
        elif is_missing:
            # A user without a catalog did not mistype its path.
            first = (
                "This is the default catalog. Start with: registry quickstart (or: registry add SOURCE). "
                f"Or name another catalog with {spell('url')} or {CATALOG_VARIABLE}."
            )
        if first or last:
            error.rephrase(hint="\n".join(line for line in (first, error.hint, last) if line))
        raise


def named_data_folder(data_dir: str | os.PathLike[str] | None = None) -> str | None:
    """The data directory that the caller or the environment names; None if neither does.

    Raises:
        UsageError: the URL contains a password, or is malformed.
    """
    if chosen := data_dir or read_variable(DATA_DIR_VARIABLE):
        from registry.storage import require_no_secrets, require_well_written

        text = require_no_secrets(chosen, "the data directory")
        return require_well_written(text, "the data directory" if data_dir else DATA_DIR_VARIABLE)
    return None


def data_folder(url: str, data_dir: str | os.PathLike[str] | None = None) -> str:
    """The data directory that ``connect(url, data_dir=data_dir)`` uses if the catalog records none.

    Raises:
        UsageError: the URL contains a password.
    """
    if named := named_data_folder(data_dir):
        return named
    return default_data_folder(sqlite_path(url))


def default_data_folder(file: Path | None) -> str:
    """The default data directory: next to the SQLite ``file``, or in the user's data folder."""
    return str((_user_folder() if file is None else file.parent) / "datasets")


def index_folder() -> str:
    """The folder of indexes and stamps (``registry.storage.memory``). It can be deleted at any time."""
    return str(_cache_folder() / "notes")


def open_indexes() -> IndexFolder:
    """The cache of record offsets and stamps of verified files, which readers share."""
    from registry.tfrecord import IndexFolder

    return IndexFolder(index_folder())


def open_cache() -> FileCache | None:
    """The cache of files from other machines, or None if it is switched off or others can write to its folder.

    Raises:
        UsageError: ``$REGISTRY_CACHE_BYTES`` is not a number of bytes.
    """
    files = cache()
    return files if files.is_usable else None


def cache() -> FileCache:
    """The cache of files from other machines, which all processes of a user share.

    Its folder is ``$REGISTRY_CACHE_DIR``, else the user's cache folder. ``$REGISTRY_CACHE_BYTES`` limits its size; 0
    switches the cache off.

    Raises:
        UsageError: ``$REGISTRY_CACHE_BYTES`` is not a number of bytes.
    """
    from registry.storage.cache import FileCache, parse_bytes

    text = read_variable(CACHE_BYTES_VARIABLE).strip()
    max_bytes = parse_bytes(text, CACHE_BYTES_VARIABLE) if text else None
    return FileCache(shared_folder() / "blocks", max_bytes=max_bytes, is_shared=_is_shared())


def shared_folder() -> Path:
    """The folder of cached data from other machines. It can be deleted at any time."""
    from registry.storage import expand_home

    chosen = read_variable(CACHE_DIR_VARIABLE)
    return expand_home(chosen).absolute() if chosen else _cache_folder()


def known_versions_folder() -> Path | None:
    """The folder of remembered versions of catalogs on other machines, or None without a cache."""
    folder = _cache_folder() if _is_shared() else shared_folder()  # a token's view of a catalog is private to its user
    return None if open_cache() is None else folder / "catalogs"


def _is_shared() -> bool:
    """Whether other users of this machine write to ``shared_folder``."""
    return bool(read_variable(CACHE_SHARED_VARIABLE)) and sys.platform != "win32"


def site_options(keys: Sequence[str | os.PathLike[str]]) -> SiteOptions:
    """Where this client stores its knowledge of sites, and the trusted keys that must have signed them, if any.

    Raises:
        UsageError, StorageError: a key is invalid, or its file cannot be read.
        MissingExtraError: there are keys, and ``cryptography`` is not installed.
    """
    from registry.catalog.site import SiteOptions

    variable = read_variable(TRUSTED_KEYS_VARIABLE).split(",")
    texts = tuple(os.fspath(key) for key in keys) or tuple(filter(None, map(str.strip, variable)))
    options = SiteOptions(
        cache=known_versions_folder(),
        heads=_user_folder() / "sites",
        keys=texts,
        allowed=_allowed_by_environment(),
        token=access_token,
        contacted=_refresh_settings,
    )
    if not texts:
        return options
    from registry.pins.keys import load_public_key
    from registry.pins.signature import verify_index

    trusted = [load_public_key(text) for text in texts]
    return replace(options, check=lambda index: verify_index(index, trusted))


def access_token(url: str) -> str | None:
    """The access token of this user for the service at ``url``, or None."""
    return logins().token(url)


def logins() -> Logins:
    """The access tokens of this user for services."""
    from registry.api.logins import Logins

    return Logins(_user_folder(), read_variable(CATALOG_VARIABLE))


def team_settings() -> TeamSettings:
    """The client settings of the services that this user has logged in to."""
    from registry.api.logins import TeamSettings

    return TeamSettings(_user_folder(), read_variable(CATALOG_VARIABLE))


def _refresh_settings(url: str) -> None:
    team_settings().refresh(url)


def _team_default(variable: str) -> str:
    """The default from the team's service. For users without a service, nothing is loaded."""
    if variable not in _TEAM_VARIABLES:
        return ""
    file = _settings_file(os.environ.get("XDG_DATA_HOME", ""), os.environ.get("HOME", ""))
    try:
        changed_at = os.stat(file).st_mtime_ns  # noqa: PTH116 (faster)
    except OSError:
        return ""
    return _kept_default(variable, file, changed_at, read_variable(CATALOG_VARIABLE))


@lru_cache
def _kept_default(variable: str, *_: object) -> str:
    return team_settings().default(variable)


@lru_cache
def _settings_file(*_: str) -> str:
    """The file of the team's settings. Cached by variables, because each transaction of a catalog reads its limits."""
    return str(_user_folder() / "services" / "settings.json")


use_team_defaults(_team_default)


def open_data(data_dir: str, *, catalog: CatalogBackend | None = None) -> Store:
    """Open a data directory. With ``catalog``, unfinished folders in it record the catalog that they belong to."""
    from registry.storage import open_store

    store = open_store(data_dir)
    if catalog is not None:
        from registry.catalog import catalog_identity

        store.catalog = catalog_identity(catalog.log)
    return store


def mirrors_of(data_dir: str, version: DatasetVersion) -> tuple[str, ...]:
    """The paths and URLs of the folders that are read if ``open_version`` fails."""
    if len(version.locations) == 1:
        return ()
    from registry.storage import open_locations

    return open_locations(open_data(data_dir), version.locations)[1]


def open_version(data_dir: str, version: DatasetVersion) -> Store:
    """Open the folder of the shards of ``version``: its first location.

    If the version was imported in place on this machine and that folder is gone, its copy in ``data_dir`` is read.
    """
    from registry.storage import open_location

    data = open_data(data_dir)
    location = version.locations[0]
    result = open_location(data, location)
    root = result.local_root
    if location.startswith("/") and root is not None and not os.path.isdir(root):  # noqa: PTH112 (Path.is_dir raises if a parent is unreadable)
        for name in dict.fromkeys((version.name, *version.names)):
            copy = data.child(model.version_folder(name, version.config, version.version))
            if copy.exists("dataset_info.json"):
                return copy
    return result


def make_catalog_folder(url: str) -> None:
    """Create the folder of an SQLite catalog if it is missing, so that ``connect`` can create the file.

    Raises:
        StorageError: the folder cannot be created.
    """
    path = sqlite_path(url)
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot create the folder {path.parent}: {error.strerror}",
            hint=f"Choose another catalog with {spell('url')} or ${CATALOG_VARIABLE}.",
            details={"path": str(path.parent), "errno": error.errno},
        ) from error


def open_pin_file(
    path: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    *,
    fallback: str | None = None,
    fetch: bool = False,
    allow_hosts: Iterable[str] = (),
) -> PinFile:
    """``registry.load_pin`` without warnings. ``fallback`` is a data directory to use instead of the default one."""
    from registry.pins import PinFile

    places = pin_places(path, data_dir, fallback=fallback).allowing(fetch=fetch, hosts=allow_hosts)
    return PinFile.load(path, places=places)


def pin_places(
    path: str | os.PathLike[str], data_dir: str | os.PathLike[str] | None = None, *, fallback: str | None = None
) -> Places:
    """The places to search for the files of the pins at ``path``."""
    from registry.pins import Places

    if is_site(default := catalog_url()):
        from registry.catalog.service.store import use_service_data

        use_service_data(masked_url(default), access_token)
    text = os.path.expanduser(os.fspath(path))  # noqa: PTH111 (a path, or a URL)
    return Places(
        data_dir=None if data_dir is None else os.fspath(data_dir),
        beside=text.rpartition("/")[0] if "://" in text else str(Path(text).absolute().parent),
        data_dirs=(fallback or data_folder(catalog_url()),),
        index_folder=index_folder(),
        cache=open_cache(),
        allowed=_allowed_by_environment(),
    )


def _allowed_by_environment() -> Allowed:
    from registry.storage import Allowed

    named = read_variable(ALLOWED_HOSTS_VARIABLE).replace(",", " ").split()
    try:
        return Allowed.of(hosts=named)
    except UsageError as error:
        raise UsageError(f"${ALLOWED_HOSTS_VARIABLE}: {error.message}", hint=error.hint) from error


def log_actor() -> str:
    """The name that the event log records: ``$REGISTRY_ACTOR``, else the login name."""
    try:
        return read_variable("REGISTRY_ACTOR") or getpass.getuser()
    except (OSError, KeyError):  # the user id has no entry, as in many containers
        return f"uid {os.getuid()}"


def _cache_folder() -> Path:
    """The folder of all caches. It can be deleted at any time."""
    if chosen := read_variable(CACHE_VARIABLE):
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_cache_dir("shardbook", appauthor=False))


def _user_folder() -> Path:
    """The user's data folder. If it exists under the distribution's former name, it remains in use."""
    import platformdirs

    folder, old = (Path(platformdirs.user_data_dir(name, appauthor=False)) for name in ("shardbook", _OLD_NAME))
    return old if old.is_dir() and not folder.is_dir() else folder
