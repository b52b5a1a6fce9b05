"""Finds the catalog, folders of data and caches, pin files and the actor: from arguments, variables or defaults.

For the data directory of an open catalog, see ``ClientDataDirectory``:

    named (argument, $REGISTRY_DATA_DIR)  ->  else recorded in the catalog  ->  else the default folder

A client may read from another folder, such as a copy. New versions are published only into the recorded directory:
their rows name a place below it, which would be wrong for every other reader. The first publication records it.
"""

from __future__ import annotations

import getpass
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from registry import model
from registry.catalog import DataDirectory, is_site, masked_url, quote_catalog, sqlite_path
from registry.catalog.service_index import CLIENT_SETTINGS
from registry.environment import read_variable, use_team_defaults
from registry.errors import (
    CatalogError,
    CatalogNotFoundError,
    CatalogUnavailableError,
    ConflictError,
    DataDirectoryMissingError,
    OtherDataDirectoryError,
    SchemaBehindError,
    StorageError,
    UsageError,
    spell,
)
from registry.lazy import lazy_types
from registry.model import VersionState, is_absolute, listed

if TYPE_CHECKING:  # numpy and pydantic are loaded when something is read
    from registry.api.logins import Logins, TeamSettings
    from registry.catalog import CatalogBackend, DataDirectoryChange
    from registry.catalog.site import SiteOptions
    from registry.model import DatasetVersion, Reference
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


_SHOWN: Final = 5


class ClientDataDirectory:
    """The data directory of an open catalog, as one client sees it."""

    def __init__(self, backend: CatalogBackend, data_dir: str | os.PathLike[str] | None) -> None:
        """``data_dir`` is the argument of the client."""
        self._backend = backend
        self._named = named_data_folder(data_dir)
        self._by_variable = not data_dir
        self._path = self._named
        self._recorded: str | None = None

    @property
    def path(self) -> str:
        """The path or URL that is opened. It does not change, even if the catalog records another one meanwhile."""
        if self._path is None:
            try:
                self._recorded = self.recorded()
            except (CatalogNotFoundError, SchemaBehindError):  # the first publication may record another one
                return default_data_folder(self._backend.file)
            except CatalogUnavailableError:
                if self._backend.file is not None:
                    raise
                self._recorded = self._remembered()
                if self._recorded is None:  # versions that were published in place are found without it
                    return default_data_folder(None)
            self._path = self._recorded or default_data_folder(self._backend.file)
        return self._path

    def __str__(self) -> str:
        return self._path or "the recorded data directory"

    def _remembered(self) -> str | None:
        """The path or URL that a catalog on another machine recorded at the last look-up."""
        from registry.catalog.remembering import RememberingCatalog

        backend: object = self._backend
        if not isinstance(backend, RememberingCatalog) or backend.known is None:
            return None
        return resolve_data_dir(None, backend.known.data_dir())

    def recorded(self) -> str | None:
        """The path or URL that the catalog records, or None if it records none that can be used on this machine."""
        return resolve_data_dir(self._backend.file, self._backend.locations.data_dir())

    def require_for(self, version: DatasetVersion) -> str:
        """``path``, to read the files of ``version``.

        Raises:
            DataDirectoryMissingError: the files are below the data directory, but its place is unknown: the default
                folder of this machine does not contain the files of a catalog on a server.
        """
        path = self.path
        is_unknown = self._named is None and self._recorded is None and self._backend.file is None
        if is_unknown and not any(map(is_absolute, version.locations)):
            name = f"{spell('data_dir=URL')}, or the environment variable {DATA_DIR_VARIABLE}."
            raise DataDirectoryMissingError(
                f"{self._backend.url} records no data directory, so the files of {version.reference} cannot be found",
                hint="Ask the publisher of the site to write it with --with-data or --data-url.\n"
                f"Or specify a copy of the files: {name}"
                if is_site(self._backend.url) and not getattr(self._backend, "is_service", False)
                else "Record the data directory for all clients: registry config data-dir URL "
                f"{quote_catalog(self._backend.url)}\nOr specify it for this client: {name}",
                details={"catalog": self._backend.url, "variable": DATA_DIR_VARIABLE},
            )
        return path

    def require(self, *, for_new: bool = True) -> DataDirectory | None:
        """The record of the data directory for a publication into ``path``: the existing record, or a new one.

        ``for_new`` is False if only the files of a published version are made again, e.g. on another machine.

        Raises:
            DataDirectoryMissingError: the catalog is on a server, records no data directory, and none was named.
            UsageError: the catalog is on a server, records no data directory, and the named path is relative.
            OtherDataDirectoryError: the catalog records another data directory, or its versions are elsewhere.
        """
        from registry.storage import spell_place

        present = self._backend.locations.data_dir()
        recorded = resolve_data_dir(self._backend.file, present)
        if recorded is None and self._backend.file is None:
            if self._named is None:
                raise self._missing()
            self._require_complete(self._named, DATA_DIR_VARIABLE if self._by_variable else "the data directory")
        if not for_new:
            return present
        if recorded is not None:
            if set(spell_place(recorded)).isdisjoint(spell_place(self.path)):
                raise self._other(recorded)
            return present
        offered = self._describe(self.path)
        self._require_some_version(offered)
        return replace(offered, is_new=True)

    def record(self, data_dir: str | os.PathLike[str], *, force: bool, dry_run: bool) -> DataDirectoryChange:
        """See ``Catalog.set_data_dir``."""
        from registry.storage import require_no_secrets, require_well_written

        text = require_well_written(require_no_secrets(data_dir, "the data directory"), "the data directory")
        if not text:
            raise UsageError("the data directory is empty", hint="Give a path or URL.")
        if self._backend.file is None:
            self._require_complete(text, "the data directory")
        after = self._describe(text)
        present = self._backend.locations.data_dir()
        open_data(after.place)  # refuses a URL with an unknown protocol, even if nothing is listed there
        is_checked = False
        if not force and (present is None or present.recorded != after.recorded):
            is_checked = self._require_all_versions(after)
        change = self._backend.locations.set_data_dir(after, actor=log_actor(), dry_run=dry_run)
        change = replace(change, is_checked=is_checked)
        if self._named is None and not dry_run:
            self._path = self._recorded = after.place
        if change.before is None:
            return change
        # Resolved again, because the folder of an SQLite catalog may have been moved since.
        place = resolve_data_dir(self._backend.file, change.before) or change.before.place
        return replace(change, before=replace(change.before, place=place))

    def _describe(self, text: str) -> DataDirectory:
        """How the catalog records a place: relative if it is below the folder of the SQLite file."""
        from registry.storage import spell_place

        place, *others = spell_place(text)
        folder = _folder_of(self._backend.file)
        if folder is not None and place.startswith("/"):
            # Links above the folder are resolved, but the folder itself may be a link to a larger disk.
            parent, name = os.path.split(place)
            for spelling in (str(Path(os.path.realpath(parent)) / name), place, *others):
                inside = os.path.relpath(spelling, folder)
                if inside != ".." and not inside.startswith("../"):
                    return DataDirectory(recorded=inside, place=place)
        return DataDirectory(recorded=place, place=place)

    @staticmethod
    def _require_complete(text: str, subject: str) -> None:
        """Refuse to record a relative path: each client would look below its own working directory."""
        if is_absolute(text) or os.path.isabs(os.path.expanduser(text)):  # noqa: PTH111, PTH117 (a text, not a file)
            return
        plain = os.path.normpath(text)
        bucket = "" if plain.startswith(".") else f"for a bucket, s3://{plain}; "
        raise UsageError(
            f"{subject} is {text[:200]}, a relative path, which means another folder for each client of the catalog",
            hint=f"Write a complete URL or path: {bucket}for a folder that all machines reach, {os.path.abspath(text)}",  # noqa: PTH100 (a text)
            details={"path": text[:200]},
        )

    def _inside(self) -> list[tuple[Reference, str]]:
        """The locations below the data directory, with their versions, in the order of publication."""
        return [
            (version.reference, location)
            for version in self._backend.sizes()
            if version.state is not VersionState.DROPPED
            for location in version.locations
            if not is_absolute(location)
        ]

    def _require_some_version(self, offered: DataDirectory) -> None:
        """Refuse a place that has none of the versions that were published before data directories were recorded."""
        inside, data = self._inside(), open_data(offered.place)
        if inside and not any(data.child(location).list() for _, location in reversed(inside)):
            from registry.splits import counted

            num_versions = len({reference for reference, _ in inside})
            raise OtherDataDirectoryError(
                f"the catalog has {counted(num_versions, 'version')}, and none of them is in {offered.place}",
                hint="Record the data directory that contains their files: "
                f"registry config data-dir DIR {quote_catalog(self._backend.url)}\n"
                f"If the files are lost, record this one with {spell('force', True)}.",
                details={"named": offered.place},
            )

    def _require_all_versions(self, after: DataDirectory) -> bool:
        """Refuse a place that lacks the folder of a version. The place is listed only once, for all versions.

        Returns False without listing anything if there is no version to look for.
        """
        inside = self._inside()
        if not inside:
            return False
        folders = {name.rpartition("/")[0] for name in open_data(after.place).list()}
        missing = [str(reference) for reference, location in inside if location not in folders]
        if missing:
            raise ConflictError(
                f"{after.place} has no files of {listed(missing, _SHOWN)}",
                hint=f"Copy the files there first, then try again. If they are lost, add {spell('force', True)}.",
                details={"data_dir": after.place, "missing": missing[:100], "num_missing": len(missing)},
            )
        return True

    def _missing(self) -> DataDirectoryMissingError:
        return DataDirectoryMissingError(
            f"{self._backend.url} records no data directory, and other clients cannot read a folder of this machine",
            hint="Record a data directory for all clients, e.g.: registry config data-dir s3://BUCKET/datasets "
            f"{quote_catalog(self._backend.url)}\n"
            f"Or specify it: {spell('data_dir=DIR')}, or the environment variable {DATA_DIR_VARIABLE}. "
            "The first publication records it.",
            details={"catalog": self._backend.url, "variable": DATA_DIR_VARIABLE},
        )

    def _other(self, recorded: str) -> OtherDataDirectoryError:
        source = f"{DATA_DIR_VARIABLE} is" if self._by_variable else "the data directory that was named is"
        leave = f"Unset {DATA_DIR_VARIABLE}" if self._by_variable else "Leave it out"
        if self._named is None:
            source, leave = "the catalog was opened with", "Open the catalog again"
        return OtherDataDirectoryError(
            f"{source} {self.path}, but the catalog's data directory is {recorded}",
            hint=f"{leave} to publish to the catalog's own data directory.\nIf its files were moved: "
            f"registry config data-dir {shlex.quote(self.path)} {quote_catalog(self._backend.url)}",
            details={"data_dir": recorded, "named": self.path},
        )


def resolve_data_dir(file: Path | None, present: DataDirectory | None) -> str | None:
    """The path or URL that a record means for the SQLite catalog in ``file``, or on a server; None if it means none."""
    if present is None or is_absolute(present.recorded):
        return None if present is None else present.recorded
    folder = _folder_of(file)  # None: a backup of an SQLite catalog was restored into a server
    return None if folder is None else os.path.normpath(Path(folder) / present.recorded)


def _folder_of(file: Path | None) -> str | None:
    """The folder of an SQLite file, without links; None for a catalog on a server."""
    return None if file is None else str(Path(os.path.realpath(file)).parent)
