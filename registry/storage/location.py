"""Where does a path or URL lead? To a folder of this machine, or to an object store."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from registry.errors import StorageError
from registry.storage.local import LocalStore
from registry.storage.store import Store


def open_store(url_or_path: str | os.PathLike[str]) -> Store:
    """The store rooted at a folder: a local path, ``file://``, or a URL that fsspec knows (``s3://``, ``memory://``).

    Nothing is opened or made: a folder that does not exist is an empty store, until something is written to it.

    >>> open_store("memory://datasets/mnist").list()
    []

    Raises:
        StorageError: an unknown protocol, or a ``file://`` URL of another machine.
        MissingExtraError: the protocol's package is not installed.
    """
    text = os.fspath(url_or_path)
    if "://" not in text:
        if not text or "\0" in text:
            raise StorageError(f"{text!r} is no path", hint="Give a folder or a URL.", details={"path": text})
        return LocalStore(os.path.expanduser(text))
    if not text.startswith("file://"):
        from registry.storage.remote import open_remote

        return open_remote(text)
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise StorageError(
            f"{text[:200]} names a file of the machine {parts.netloc!r}",
            hint="A path of this machine is written file:///folder, with three slashes.",
            details={"path": text[:200]},
        )
    return LocalStore(url2pathname(parts.path) if os.name == "nt" else unquote(parts.path))


def open_location(data: Store, location: str) -> Store:
    """The store of a version's ``location``: below the data folder ``data``, or an absolute path or URL."""
    return open_store(location) if "://" in location or location.startswith("/") else data.child(location)
