"""Opens pin files, and decides where to look for their shards. No catalog is needed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from registry.api.locations import catalog_url, data_folder, index_folder, open_cache
from registry.environment import read_variable
from registry.errors import UsageError

if TYPE_CHECKING:  # numpy and pydantic are loaded when a pin file is read
    from registry.pins import PinFile, Places
    from registry.storage import Allowed

ALLOWED_HOSTS_VARIABLE: Final = "REGISTRY_ALLOWED_HOSTS"
"""Comma-separated hosts from which the files of any pin may be fetched."""


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
