"""Opens pin files, with the places where their shards may be; no catalog is needed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from registry.api.locations import catalog_url, data_folder, index_folder
from registry.errors import UsageError, YankedVersionWarning

if TYPE_CHECKING:  # numpy and pydantic are loaded when a pin file is read
    from registry.api.catalog import Catalog
    from registry.pins import Pin, PinFile, Places
    from registry.storage import Allowed

ALLOWED_HOSTS_VARIABLE: Final = "REGISTRY_ALLOWED_HOSTS"
"""Hosts that every pin's files may be fetched from, with commas between."""


def load_pin(
    path: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    catalog: Catalog | None = None,
    fetch: bool = False,
    allow_hosts: Iterable[str] = (),
) -> PinFile:
    """The pins of a file: ``registry.load_pin("dataset.lock.yaml")["train"].read()``. No catalog is opened.

    A version that was yanked when it was pinned comes with a YankedVersionWarning.

    Args:
        path: of the pin file, or its URL.
        data_dir: where the shards lie: a data directory, their own folder, or an unpacked bundle. None looks in
            ``data`` beside the file, in ``$REGISTRY_DATA_DIR`` or the default data directory, and where the pin says.
        catalog: an open catalog, to be warned as well of versions that were yanked since, and to look where it reads
            them; None asks nobody.
        fetch: whether places that the pins name may be asked: URLs, and folders of this machine. Whoever wrote the file
            chose them, so by default none is. Addresses that are not public have to be named in ``allow_hosts``.
        allow_hosts: what may be asked: ``example.org``, ``example.org:8443``, an address or a network
            (``10.0.0.0/8``), a bucket (``s3://bucket``), a folder (``file:///data``). Those of
            ``$REGISTRY_ALLOWED_HOSTS``, with commas between, may be asked always.

    Raises:
        PinFormatError: it is no pin file; every fault with its key path.
        PinChangedError: it was changed since it was written.
        NotStoredError: there is no such file.
        UsageError: an allowed host is not a valid host, bucket or folder.
    """
    pins = open_pin_file(path, data_dir, fetch=fetch, allow_hosts=allow_hosts)
    if catalog is not None:
        pins = catalog.pins.place(pins)
    for note in yank_notes(pins.values(), catalog):
        warnings.warn(note, YankedVersionWarning, stacklevel=2)
    return pins


def open_pin_file(
    path: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    *,
    fallback: str | None = None,
    fetch: bool = False,
    allow_hosts: Iterable[str] = (),
) -> PinFile:
    """As ``load_pin``, without a warning; ``fallback`` is a data directory instead of the default one."""
    from registry.pins import PinFile

    places = pin_places(path, data_dir, fallback=fallback).allowing(fetch=fetch, hosts=allow_hosts)
    return PinFile.load(path, places=places)


def yank_notes(pins: Iterable[Pin], catalog: Catalog | None = None) -> list[str]:
    """What a reader should know of yanked versions: yanked when they were pinned, or, as ``catalog`` has it, since."""
    chosen = list(pins)
    notes = {pin.reference: pin.yank_note for pin in chosen}
    if catalog is not None:
        notes |= {one.reference: one.yank_note for one in catalog.pins.states(chosen) if one.yank_note}
    return [note for note in notes.values() if note]


def pin_places(
    path: str | os.PathLike[str], data_dir: str | os.PathLike[str] | None = None, *, fallback: str | None = None
) -> Places:
    """Where the files of the pins at ``path`` are looked for."""
    from registry.pins import Places

    text = os.path.expanduser(os.fspath(path))  # noqa: PTH111 (a path, or a URL)
    return Places(
        data_dir=None if data_dir is None else os.fspath(data_dir),
        beside=text.rpartition("/")[0] if "://" in text else str(Path(text).absolute().parent),
        data_dirs=(fallback or data_folder(catalog_url()),),
        index_folder=index_folder(),
        allowed=_allowed_by_environment(),
    )


def _allowed_by_environment() -> Allowed:
    from registry.storage import Allowed

    named = os.environ.get(ALLOWED_HOSTS_VARIABLE, "").replace(",", " ").split()
    try:
        return Allowed.of(hosts=named)
    except UsageError as error:
        raise UsageError(f"${ALLOWED_HOSTS_VARIABLE}: {error.message}", hint=error.hint) from error
