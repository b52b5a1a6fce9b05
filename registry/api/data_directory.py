"""The data directory of an open catalog: the client's choice, or else the one that the catalog records.

    named (argument, $REGISTRY_DATA_DIR)  ->  else recorded in the catalog  ->  else the default folder

A client may read from another folder, such as a copy. New versions are published only into the recorded directory:
their rows name a place below it, which would be wrong for every other reader. The first publication records it.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from registry.api.locations import DATA_DIR_VARIABLE, default_data_folder, log_actor, named_data_folder, open_data
from registry.catalog import DataDirectory, is_site, quote_catalog
from registry.errors import (
    CatalogNotFoundError,
    CatalogUnavailableError,
    ConflictError,
    DataDirectoryMissingError,
    OtherDataDirectoryError,
    SchemaBehindError,
    UsageError,
    spell,
)
from registry.model import VersionState, is_absolute, listed

if TYPE_CHECKING:
    from registry.catalog import CatalogBackend, DataDirectoryChange
    from registry.model import DatasetVersion, Reference

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

        Returns False if there is no version to look for and therefore nothing was listed.
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
