"""Opens the store that a path or URL names: a local folder, an object store, a web server, or an fsspec file system."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from registry.errors import StorageError, UsageError
from registry.masking import has_secret, mask, may_hide_secret
from registry.model import is_absolute
from registry.storage.names import OBJECT_SCHEMES

if TYPE_CHECKING:
    from registry.storage.consent import Allowed
    from registry.storage.store import Store

_CREDENTIALS: Final = (
    "Pass passwords through the environment, e.g. AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or through fsspec's "
    "configuration."
)

_FORMS: Final = (
    "Write scheme://host/path, such as s3://bucket/datasets. In a URL, write %40 for @, %3A for :, %2F for /, %3F for "
    "?, %23 for #, %25 for % and %20 for a space. Begin a path that looks like a URL or a password with './'."
)


def require_plain(text: str) -> str:
    """Return ``text`` if it is a path, or a URL that parses; it is refused otherwise, before anything repeats it.

    Raises:
        StorageError: it may contain a password that was not escaped. The message does not repeat it.
    """
    if _is_unsafe(text):
        raise StorageError(f"the text that names the data {_NOT_PLAIN}", hint=_FORMS)
    return text


_NOT_PLAIN: Final = "is neither a path nor a URL that parses; it is not shown, because it may contain a password"


def _is_unsafe(text: str) -> bool:
    """Whether a text may contain a password that ``mask`` does not find. A file that exists has its name."""
    # A chain of protocols, such as zip://*.csv::https://host/x.zip, has an error of its own.
    if not any(map(may_hide_secret, text.split("::") if "[" not in text else [text])):
        return False
    return "://" in text or "\0" in text or not os.path.lexists(os.path.expanduser(text))


# Two letters at least: "C:/data" is a path of Windows.
_LIKE_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>/*)(?P<rest>.*)", re.DOTALL)
_SCHEMES: Final = frozenset((*OBJECT_SCHEMES, "file", "http", "https", "memory"))


def require_well_written(text: str, subject: str) -> str:
    """Return ``text`` unless it is a mistyped URL, such as ``s3:/bucket`` or ``S3://bucket``: each would name a folder.

    Args:
        text: a path or URL.
        subject: its description for the message, e.g. ``"the data directory"``.

    Raises:
        UsageError: it is a mistyped URL; the hint has the right text.
    """
    match = _LIKE_URL.fullmatch(text)
    if match is None:
        return text
    scheme, slashes, rest = match.groups()
    right = scheme.lower()
    num_slashes = len(slashes) if right == "file" else min(len(slashes), 3)
    is_right = scheme == right and num_slashes >= 2 and not (right in OBJECT_SCHEMES and num_slashes == 3)
    if is_right or (not slashes and right not in _SCHEMES):  # a folder may have a colon in its name
        return text
    url = require_no_secrets(f"{right}://{'/' if right == 'file' else ''}{rest}", subject)
    raise UsageError(
        f"{subject} is {mask(text)[:200]}, which is neither a path nor a complete URL",
        hint=f"Write: {url[:200]}",
        details={"path": mask(text)[:200], "suggestion": url[:200]},
    )


def require_no_secrets(url: str | os.PathLike[str], subject: str) -> str:
    """Return ``url`` as text if it may be stored, where others read it for years.

    Args:
        url: a path or URL.
        subject: its description for the message, e.g. ``"the data directory"``.

    Raises:
        UsageError: it contains a user name or password, or a parameter that grants access.
    """
    text = os.fspath(url)
    if _is_unsafe(text):
        raise UsageError(f"{subject} {_NOT_PLAIN}", hint=_FORMS)
    if has_secret(text):
        raise UsageError(f"{subject} {mask(text)[:200]} contains a password or another secret", hint=_CREDENTIALS)
    return text


_OPENERS: Final[dict[str, Callable[[str], Store]]] = {}


def open_below_with(url: str, opener: Callable[[str], Store]) -> None:
    """Let ``opener(url)`` open the folder ``url`` and those below it in this process, for the store of a service."""
    _OPENERS[url] = opener


def _opener(url: str) -> Callable[[str], Store] | None:
    return next((opener for root, opener in _OPENERS.items() if f"{url}/".startswith(f"{root}/")), None)


def open_store(url_or_path: str | os.PathLike[str]) -> Store:
    """Return the store rooted at a folder, given as a local path or a URL.

    ``file://`` is this machine; ``s3://``, ``s3a://``, ``gs://`` and ``az://`` are object stores; ``http://`` and
    ``https://`` are web servers, which are read-only; fsspec opens every other protocol, e.g. ``memory://``.

    This call opens and creates nothing: a folder that does not exist is an empty store until something is written.

    >>> open_store("memory://datasets/mnist").list()
    []

    Raises:
        StorageError: an unknown protocol, or a ``file://`` URL of another machine.
        MissingExtraError: the protocol's package is not installed.
    """
    text = os.fspath(url_or_path)
    path = local_path(text)
    if path is not None:
        from registry.storage.local import LocalStore

        return LocalStore(path)
    if (opener := _opener(text)) is not None:
        return opener(text.rstrip("/"))
    scheme = text.partition("://")[0]
    if scheme in OBJECT_SCHEMES:
        from registry.storage.object_store import open_objects

        return open_objects(text)
    if scheme in ("http", "https"):
        from registry.storage.http import open_http

        try:
            (urlsplit(text).hostname or "").encode("idna")
        except UnicodeError:  # a label is empty or has more than 63 letters; the resolver would raise this
            message = f"cannot open {mask(text)[:200]}: the name of the host is invalid"
            raise StorageError(message, hint="Check the URL.", details={"path": mask(text)[:200]}) from None
        return open_http(text)
    from registry.storage.fsspec_store import open_fsspec

    return open_fsspec(text)


def open_parent(url_or_path: str | os.PathLike[str]) -> tuple[Store, str]:
    """The store of the folder that holds a file, and the name of the file, which is empty if a folder is named.

    >>> store, name = open_parent("memory://datasets/mnist.csv")
    >>> store.url, name
    ('memory://datasets', 'mnist.csv')

    Raises:
        The errors of ``open_store``.
    """
    text = os.fspath(url_or_path)
    text = text if "://" in text else os.path.expanduser(text).replace(os.sep, "/")
    folder, slash, name = text.rpartition("/")
    is_root = folder in ("", "file://") or folder.endswith(":/")
    return open_store(folder + slash if is_root and slash else folder or "."), name


def spell_place(url_or_path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the spellings of the path or URL of a folder. Two texts name the same folder if they share a spelling.

    The first spelling is complete, keeps links, and is meant to be stored. A local path also has a spelling without
    links, because another machine may reach the same folder through other links.

    >>> spell_place("s3a://bucket/data/"), spell_place("file:///srv/data/../data")
    (('s3://bucket/data',), ('/srv/data',))

    Raises:
        StorageError: the text does not name a folder.
    """
    text = os.fspath(url_or_path)
    path = local_path(text)
    if path is not None:
        return tuple(dict.fromkeys((os.path.abspath(path), os.path.realpath(path))))
    scheme, _, rest = text.partition("://")
    return (f"{'s3' if scheme == 's3a' else scheme}://{rest.rstrip('/')}",)


def expand_home(path: str | os.PathLike[str]) -> Path:
    """Expand ``~`` to the home folder. As in a shell, the ``~name`` of an unknown user is the name of a file.

    >>> expand_home("~nobody-has-this-name/train.csv").name
    'train.csv'
    """
    return Path(os.path.expanduser(path))


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Read a file that the caller names.

    Raises:
        OSError: the file cannot be read, or is a pipe, socket or device, from which reading may never end.
    """
    place = Path(path)
    if place.exists() and not place.is_file():
        raise IsADirectoryError(errno.EISDIR, "Not a file", str(path))
    return place.read_bytes()


def local_path(text: str) -> str | None:
    """Return the path that a path or ``file://`` URL names, or None for a URL of another machine.

    Raises:
        StorageError: the text is not a path, or names a file of another machine.
    """
    require_plain(text)
    if not text or "\0" in (unquote(text) if text.startswith("file://") else text) or not _is_encodable(text):
        raise StorageError(f"{text[:200]!a} is not a path", hint="Give a folder or a URL.", details={"path": text})
    if "://" not in text:
        return os.path.expanduser(text)
    if not text.startswith("file://"):
        return None
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise StorageError(
            f"{text[:200]} names a file of the machine {parts.netloc!r}",
            hint=f"For a folder of this machine, write file://{parts.path[:200] or '/folder'}, with three slashes.",
            details={"path": text[:200]},
        )
    if os.name == "nt":
        from urllib.request import url2pathname  # it loads ssl and email, which worker processes do not need

        return url2pathname(parts.path)
    return unquote(parts.path)


def _is_encodable(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:  # the text contains half of a surrogate pair
        return False
    return True


def open_named(url_or_path: str, allowed: Allowed) -> Store:
    """Return the store at a URL that comes from somebody else, such as a location in a pin.

    Args:
        url_or_path: a path or URL.
        allowed: the places that the reader has allowed.

    Raises:
        FetchNotAllowedError: the reader has not allowed this place. Every later request raises it too if the server
            redirects to another host, or if its name resolves to an address that is not public.
        StorageError: an unknown protocol, or a ``file://`` URL of another machine.
        MissingExtraError: the protocol's package is not installed.
    """
    allowed.require(url_or_path)
    scheme, separator, rest = url_or_path.partition("://")
    if separator and scheme.lower() in ("http", "https") and _opener(url_or_path) is None:
        from registry.storage.http import open_http

        return open_http(f"{scheme.lower()}://{rest}", allowed=allowed)
    return open_store(f"{scheme.lower()}://{rest}" if separator else url_or_path)


def open_locations(data: Store, locations: Sequence[str]) -> tuple[Store, tuple[str, ...]]:
    """Return the store of the first location of a version, and the paths and URLs of the others.

    The others are opened when they are needed: their servers may be away, or their packages not installed.
    """
    first, *others = locations
    return open_location(data, first), tuple(
        mirror if is_absolute(mirror) else data.child(mirror).url for mirror in others
    )


def open_location(data: Store, location: str) -> Store:
    """Return the store of a version's ``location``: a name below the folder ``data``, an absolute path, or a URL."""
    return open_store(location) if is_absolute(location) else data.child(location)
