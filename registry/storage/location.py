"""Where a path or URL leads: to a folder of this machine, an object store, a web server, or what fsspec knows."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from registry.errors import StorageError, UsageError
from registry.masking import has_secret, mask
from registry.storage.consent import Allowed
from registry.storage.local import LocalStore
from registry.storage.names import OBJECT_SCHEMES
from registry.storage.store import Store

_CREDENTIALS: Final = (
    "Pass passwords through the environment, e.g. AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or through fsspec's "
    "configuration."
)


def require_no_secrets(url: str | os.PathLike[str], what: str) -> str:
    """``url`` if it can be stored: others read it, for years. ``what`` says what it is, e.g. ``"the data directory"``.

    Raises:
        UsageError: it holds a user's name or password, or a parameter that grants access.
    """
    text = os.fspath(url)
    if has_secret(text):
        raise UsageError(f"{what} {mask(text)[:200]} holds a password or another secret", hint=_CREDENTIALS)
    return text


def open_store(url_or_path: str | os.PathLike[str]) -> Store:
    """The store rooted at a folder: a local path, or a URL.

    ``file://`` is this machine; ``s3://``, ``s3a://``, ``gs://`` and ``az://`` are object stores; ``http://`` and
    ``https://`` are web servers, which are only read; everything else is asked of fsspec, e.g. ``memory://``.

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
    scheme = text.partition("://")[0]
    if scheme in OBJECT_SCHEMES:
        from registry.storage.object_store import open_objects

        return open_objects(text)
    if scheme in ("http", "https"):
        from registry.storage.http import open_http

        return open_http(text)
    if scheme != "file":
        from registry.storage.fsspec_store import open_fsspec

        return open_fsspec(text)
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise StorageError(
            f"{text[:200]} names a file of the machine {parts.netloc!r}",
            hint="A path of this machine is written file:///folder, with three slashes.",
            details={"path": text[:200]},
        )
    return LocalStore(url2pathname(parts.path) if os.name == "nt" else unquote(parts.path))


def open_named(url_or_path: str, allowed: Allowed) -> Store:
    """The store at a place that a stranger named, such as the location of a pin.

    Raises:
        FetchNotAllowedError: the reader did not agree to it; the same, at any request, where the server redirects to
            another host, or a name leads to an address that is not public.
        As ``open_store``.
    """
    allowed.require(url_or_path)
    scheme, separator, rest = url_or_path.partition("://")
    if separator and scheme.lower() in ("http", "https"):
        from registry.storage.http import open_http

        return open_http(f"{scheme.lower()}://{rest}", allowed=allowed)
    return open_store(f"{scheme.lower()}://{rest}" if separator else url_or_path)


def open_location(data: Store, location: str) -> Store:
    """The store of a version's ``location``: below the data folder ``data``, or an absolute path or URL."""
    return open_store(location) if "://" in location or location.startswith("/") else data.child(location)
