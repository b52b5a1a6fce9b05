"""How is a pin file opened? With the places where its shards may lie; without a catalog."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from registry.api.locations import catalog_url, data_folder, index_folder

if TYPE_CHECKING:  # numpy and pydantic are loaded when a pin file is read
    from registry.pins import PinFile, Places


def load_pin(path: str | os.PathLike[str], *, data_dir: str | os.PathLike[str] | None = None) -> PinFile:
    """The pins of a file: ``registry.load_pin("dataset.lock.yaml")["train"].read()``. No catalog is opened.

    Args:
        path: of the pin file, or its URL.
        data_dir: where the shards lie: a data directory, their own folder, or an unpacked bundle. None looks in
            ``data`` beside the file, in ``$REGISTRY_DATA_DIR`` or the default data directory, and where the pin says.

    Raises:
        PinFormatError: it is no pin file; every fault with its key path.
        PinChangedError: it was changed since it was written.
        NotStoredError: there is no such file.
    """
    from registry.pins import PinFile

    return PinFile.load(path, places=pin_places(path, data_dir))


def pin_places(path: str | os.PathLike[str] | None, data_dir: str | os.PathLike[str] | None = None) -> Places:
    """Where the files of the pins at ``path`` are looked for; None is a file that is not saved yet."""
    from registry.pins import Places

    text = "" if path is None else os.fspath(path)
    beside = str(Path(text).absolute().parent) if text and "://" not in text else text.rpartition("/")[0] or None
    return Places(
        data_dir=None if data_dir is None else os.fspath(data_dir),
        beside=beside,
        data_dirs=(data_folder(catalog_url()),),
        index_folder=index_folder(),
    )
