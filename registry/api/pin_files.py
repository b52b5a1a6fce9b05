"""``load_pin``: opens pin files, and decides where to look for their shards. No catalog is needed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from registry.api.locations import catalog_url, data_folder, index_folder, open_cache
from registry.argument_types import typed_arguments
from registry.errors import UsageError, YankedVersionWarning

if TYPE_CHECKING:  # numpy and pydantic are loaded when a pin file is read
    from registry.api.catalog import Catalog
    from registry.pins import Pin, PinFile, Places
    from registry.storage import Allowed

ALLOWED_HOSTS_VARIABLE: Final = "REGISTRY_ALLOWED_HOSTS"
"""Comma-separated hosts from which the files of any pin may be fetched."""


@typed_arguments
def load_pin(
    path: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    catalog: Catalog | None = None,
    fetch: bool = False,
    allow_hosts: Iterable[str] = (),
) -> PinFile:
    """Open a pin file. No catalog is opened.

    It returns a ``PinFile``, because one file may hold several pins. A version that was yanked when it was pinned
    gives a YankedVersionWarning.

        registry.load_pin("dataset.lock.yaml")["train"].read()

    Args:
        path: path or URL of the pin file.
        data_dir: folder that holds the shards: a data directory, a version folder, or an unpacked bundle. None looks in
            ``data`` next to the file, in ``$REGISTRY_DATA_DIR`` or the default data directory, and in the locations
            that the pin names.
        catalog: an open catalog. It adds warnings about versions that were yanked since, and the folders from which it
            reads the versions. None uses no catalog.
        fetch: allow requests to the locations that the pins name, URLs and folders of this machine. The author of the
            file chose them, so the default is False. Addresses that are not public must be in ``allow_hosts``.
        allow_hosts: allow requests to these: ``example.org``, ``example.org:8443``, an address or network
            (``10.0.0.0/8``), a bucket (``s3://bucket``), a folder (``file:///data``). The comma-separated hosts of
            ``$REGISTRY_ALLOWED_HOSTS`` are always allowed.

    Raises:
        PinFormatError: the file is not a pin file; the message has every fault with its key path.
        PinChangedError: the file was edited.
        NotStoredError: the file does not exist.
        StorageError: the file cannot be read.
        UsageError: an allowed host is not a valid host, bucket or folder.
    """
    pins = open_pin_file(path, data_dir, fetch=fetch, allow_hosts=allow_hosts)
    if catalog is not None:
        pins = catalog.pins.place(pins)
    for note in yank_notes(pins.values(), catalog):
        warnings.warn(note, YankedVersionWarning, stacklevel=3)  # past the check of the arguments
    return pins


def open_pin_file(
    path: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    *,
    fallback: str | None = None,
    fetch: bool = False,
    allow_hosts: Iterable[str] = (),
) -> PinFile:
    """``load_pin`` without warnings. ``fallback`` is a data directory to use instead of the default one."""
    from registry.pins import PinFile

    places = pin_places(path, data_dir, fallback=fallback).allowing(fetch=fetch, hosts=allow_hosts)
    return PinFile.load(path, places=places)


def yank_notes(pins: Iterable[Pin], catalog: Catalog | None = None) -> list[str]:
    """The warnings about versions that were yanked when they were pinned or, by ``catalog``, since."""
    chosen = list(pins)
    notes = {pin.reference: pin.yank_note for pin in chosen}
    if catalog is not None:
        notes |= {one.reference: one.yank_note for one in catalog.pins.states(chosen) if one.yank_note}
    return [note for note in notes.values() if note]


def pin_places(
    path: str | os.PathLike[str], data_dir: str | os.PathLike[str] | None = None, *, fallback: str | None = None
) -> Places:
    """The places to search for the files of the pins at ``path``."""
    from registry.pins import Places

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

    named = os.environ.get(ALLOWED_HOSTS_VARIABLE, "").replace(",", " ").split()
    try:
        return Allowed.of(hosts=named)
    except UsageError as error:
        raise UsageError(f"${ALLOWED_HOSTS_VARIABLE}: {error.message}", hint=error.hint) from error
