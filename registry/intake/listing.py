"""Lists the files of a source, given as a path or URL. ``detect`` passes them to the readers.

Hidden files, leftovers of operating systems, and links that lead out of the folder are skipped and reported. Remote
files are downloaded to a temporary folder first, because they are read twice, and because their size and sha256 are
recorded with the version. Readers therefore always receive local files. The name of a dataset is derived from the
location of its source.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import shlex
import stat
from array import array
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

from registry.argument_types import require_path
from registry.engines import call_ahead
from registry.errors import NotStoredError, SourceError, UsageError, spell, suggest
from registry.intake.hub import Choose, describe_origins, download_repository, is_hub, link_files, repository_of
from registry.intake.source import Files, FileUse, Origin, account_for, is_unicode, root_of
from registry.masking import has_secret, mask, remove_secrets
from registry.model import Advance, is_generic, listed, nearest_name
from registry.storage import Store, local_path, open_store, require_plain
from registry.storage.faults import storage_errors
from registry.storage.local import LocalStore
from registry.storage.names import is_unfinished
from registry.storage.temporary import TemporaryStore, check_free_space

MAX_ORIGINS: Final = 1000
"""More downloaded files than this share an ``Origin``, whose sha256 is the digest of the list of their digests."""

_HIDDEN: Final = "a hidden file"
_LEFTOVERS: Final = frozenset({"thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "$recycle.bin", "@eadir"})
_FIRST_LETTERS: Final = frozenset(".i" + "".join(name[0] + name[0].upper() for name in _LEFTOVERS))
_LEFTOVER: Final = "a leftover of an operating system"
_UNSAFE: Final = str.maketrans("/\\\0", "___")
_DOWNLOADS_AT_ONCE: Final = 8


class FileList(os.PathLike[str]):
    """Several local files as one source: the innermost folder that contains all of them, without its other files.

    Raises:
        UsageError: one of ``paths`` is not a path, or is a URL.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        texts = [require_path("source", path) for path in paths]
        if any("://" in text for text in texts):
            raise UsageError("several sources must be local files", hint="Name one URL, or download the files.")
        self.paths = {os.path.abspath(text): text for text in texts}  # noqa: PTH100 (Path keeps "..")
        self.folder = Path(os.path.commonpath(map(os.path.dirname, self.paths)))

    def __fspath__(self) -> str:
        return str(self.folder)

    def list(self) -> Files:
        """List the files. Raises the errors of ``list_files``, and SourceError if a path is a folder."""
        sizes = {}
        for path, text in self.paths.items():
            if os.path.isdir(path):  # noqa: PTH112 (of any length)
                hint = f"Add the folder alone: registry add {shlex.quote(text)}. Or name only files."
                raise SourceError(
                    f"{text} is a folder: several sources must be files", hint=hint, details={"path": text}
                )
            sizes[Path(path).relative_to(self.folder).as_posix()] = list_files(text).sizes[0]
        names = sorted(sizes)
        return Files(
            store=LocalStore(self.folder), names=names, sizes=[sizes[name] for name in names], location=str(self.folder)
        )


def list_files(
    location: str | os.PathLike[str], *, progress: Advance | None = None, choose: Choose | None = None
) -> Files:
    """List the files of a file or folder that a path or URL names. Remote files are downloaded.

    Args:
        location: a path; ``https://`` and a file, or a folder that ends with ``/`` if the server shows its files; or
            ``hf://`` and a repository of the Hugging Face Hub; or any other URL that ``open_store`` accepts.
        progress: called while files are downloaded.
        choose: chooses the files of a repository of the hub that are downloaded. None: all.

    Raises:
        NotStoredError: nothing has this name.
        SourceError: a file name is not UTF-8 or contains a backslash, or the location is not a file or folder.
        StorageError: a folder cannot be listed, a file cannot be downloaded, or the disk for temporary files is full.
    """
    if isinstance(location, FileList):
        return location.list()
    text = require_plain(os.fspath(location))
    if is_hub(text):
        return _list_repository(text, progress or _ignore, choose)
    if "://" in text and not text.startswith("file://"):
        return _download(text, progress or _ignore)
    root = root_of(open_store(text))
    try:
        mode = root.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise _missing(text, root) from None
    except OSError:
        with storage_errors("read", str(root)):
            raise
    if stat.S_ISDIR(mode):
        return list_folder(root, text)
    if not stat.S_ISREG(mode):
        raise SourceError(
            f"{text} is not a file or folder, but a pipe, socket or device",
            hint="Write the data to a file first.",
            details={"path": text},
        )
    _check_names([root.name], text)
    return Files(store=LocalStore(root.parent), names=[root.name], sizes=[root.stat().st_size], location=text)


def why_skipped(name: str) -> str | None:
    """Return the reason why files and folders with this name are skipped, or None.

    >>> why_skipped("photos/.DS_Store"), why_skipped("photos/Thumbs.db"), why_skipped("photos/1.jpg")
    ('a hidden file', 'a leftover of an operating system', None)
    """
    for part in name.split("/"):
        if part[:1] not in _FIRST_LETTERS:  # most names
            continue
        if part.lower() in _LEFTOVERS:
            return _LEFTOVER
        if part.startswith("._"):
            return "a leftover of macOS"
        if part.startswith("."):
            return _HIDDEN
        if is_unfinished(part):
            return "an unfinished file of another program"
    return None


def list_folder(root: Path, location: str) -> Files:
    """List the files below ``root``, which messages call ``location``. Linked folders are not entered.

    Raises:
        SourceError: a file name is not UTF-8 or contains a backslash.
        StorageError: a folder cannot be listed.
    """
    names: list[str] = []
    sizes = array("q")
    skipped: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    folders_skipped: list[FileUse] = []
    waiting = [""]
    # With os.scandir and one lstat per file, a million files take seconds.
    while waiting:
        folder = waiting.pop()
        path = root / folder
        with storage_errors("list", str(path)), os.scandir(path) as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                facts = entry.stat(follow_symlinks=False)
                reason = why_skipped(entry.name)
                if stat.S_ISLNK(facts.st_mode):
                    size, reason = _follow(root, name) if reason is None else (0, reason)
                elif stat.S_ISDIR(facts.st_mode):
                    if reason is None:
                        waiting.append(name)
                    else:
                        folders_skipped.append(_count(root, name, reason.replace("file", "folder")))
                    continue
                else:
                    size = facts.st_size
                    if reason is None and not stat.S_ISREG(facts.st_mode):
                        reason = "a pipe, socket or device"
                if reason is None:
                    names.append(name)
                    sizes.append(size)
                else:
                    skipped[reason].append((name, size))
    _check_names(names, location)
    # An array of numbers needs less memory than a list of pairs.
    order = sorted(range(len(names)), key=names.__getitem__)
    uses = [use for reason, files in sorted(skipped.items()) for use in account_for(files, "skipped", reason=reason)]
    return Files(
        store=LocalStore(root),
        names=[names[place] for place in order],
        sizes=array("q", (sizes[place] for place in order)),
        location=location,
        skipped=(*uses, *sorted(folders_skipped, key=lambda use: use.name)),
    )


def _follow(root: Path, name: str) -> tuple[int, str | None]:
    """Return the size of a link's target, and the reason to skip it, which is None for a file inside the folder."""
    path = root / name
    try:
        target = path.resolve(strict=True)
        facts = target.stat()
    except RuntimeError:
        return 0, "a link that points to itself"
    except OSError:
        return 0, "a link to a missing file"
    if not target.is_relative_to(root):
        return 0, "a link that leads out of the folder"
    if stat.S_ISDIR(facts.st_mode):
        return 0, "a link to a folder"
    return (facts.st_size, None) if stat.S_ISREG(facts.st_mode) else (0, "a pipe, socket or device")


def _count(root: Path, name: str, reason: str) -> FileUse:
    """Count the files of a skipped folder, such as ``.git``. A folder that cannot be listed counts as empty."""
    num_files = num_bytes = 0
    for folder, _, files in os.walk(root / name):
        for file in files:
            num_files += 1
            num_bytes += os.lstat(Path(folder) / file).st_size
    return FileUse(name=name, role="skipped", reason=reason, num_files=num_files, num_bytes=num_bytes)


def _check_names(names: Sequence[str], location: str) -> None:
    """Check that names are text that a store can address and that can be stored as a key."""
    bad = [name for name in names if "\\" in name or not is_unicode(name)]
    if not bad:
        return
    bad.sort()
    names = [repr(os.fsencode(name)) for name in bad]
    raise SourceError(
        f"{location}: a file name must be UTF-8 without a backslash, found {listed(names, 5)}",
        hint="Rename the file. For names in Latin-1: convmv -r -f latin1 -t utf8 --notest DIR",
        details={"path": location, "names": names[:100]},
    )


def _missing(location: str, root: Path) -> NotStoredError:
    """Make the error for a path that does not exist. The caller may have passed the name of a builder."""
    from registry.building.discovery import list_builders

    hint = None
    if location in list_builders():
        hint = f"{location!r} is a builder. To publish its dataset: registry build {location}"
    elif root.parent.is_dir():
        with os.scandir(root.parent) as entries:
            siblings = sorted(entry.name for entry, _ in zip(entries, range(10_000), strict=False))
        hint = suggest(root.name, siblings, have=f"{root.parent} contains", most=5)
        if "*" in root.name:
            hint = f"Name several files without quotes, so that the shell expands the pattern. {hint or ''}".rstrip()
    error = NotStoredError(f"no file or folder {location!r}", hint=hint, details={"path": str(root)})
    error.errno = 2
    return error


def _list_repository(location: str, progress: Advance, choose: Choose | None) -> Files:
    """Download a repository of the hub, and list its files."""
    snapshot = download_repository(location, progress, choose)
    target = TemporaryStore()
    link_files(snapshot, root_of(target))
    files = list_folder(root_of(target), location)
    return replace(files, store=target, origins=describe_origins(snapshot, location, files.names))


def _download(url: str, progress: Advance) -> Files:
    """Download the file or folder at ``url`` to a temporary folder."""
    store, names, is_folder = _list_remote(url)
    skipped: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    wanted = []
    for name in names:
        reason = why_skipped(name) if is_folder else None
        if reason is None:
            wanted.append(name)
        else:
            skipped[reason].append((name, 0))
    target = TemporaryStore()
    with ThreadPoolExecutor(_DOWNLOADS_AT_ONCE) as threads:
        copies = call_ahead(threads, lambda name: _copy(store, name, target, progress), wanted, most=len(wanted))
        copied = [facts for _, facts in copies]
    local = sorted((_local_name(name, store), size) for name, (size, _) in zip(wanted, copied, strict=True))
    return Files(
        store=target,
        names=[name for name, _ in local],
        sizes=[size for _, size in local],
        location=mask(url),
        skipped=tuple(
            use for reason, files in sorted(skipped.items()) for use in account_for(files, "skipped", reason=reason)
        ),
        origins=_origins(url, [(name, *facts) for name, facts in zip(wanted, copied, strict=True)], store),
    )


def _list_remote(url: str) -> tuple[Store, Sequence[str], bool]:
    """Return the store, the names in it (all names of a folder, or that of a file), and whether it is a folder.

    Raises NotStoredError if there are none.
    """
    if url.startswith(("http://", "https://")):
        parts = urlsplit(url)
        folder, _, name = parts.path.rpartition("/")
        if name or parts.query:
            # A slash in the query would be read as part of the path.
            query = "?" + parts.query.replace("/", "%2F").replace("\\", "%5C") if parts.query else ""
            return open_store(f"{parts.scheme}://{parts.netloc}{folder}"), [f"{name or 'index'}{query}"], False
    store = open_store(url)
    names = store.list()
    parent, _, name = url.rpartition("/")
    if not names and name and not parent.endswith(":/"):
        folder_store = open_store(parent)
        if folder_store.exists(name):
            return folder_store, [name], False
    if not names:
        raise no_files(url)
    return store, names, True


def no_files(url: str) -> NotStoredError:
    """Make the error for a URL at which there is nothing."""
    url = mask(url)
    error = NotStoredError(f"no files at {url}", hint="Check the URL, and that you may list it.", details={"path": url})
    error.errno = 2
    return error


def _copy(store: Store, name: str, target: LocalStore, progress: Advance) -> tuple[int, str]:
    """Download one file; returns its size and sha256."""
    root = root_of(target)
    path = root / _local_name(name, store)
    digest, num_bytes = hashlib.sha256(), 0
    with store.open(name) as source:
        check_free_space(str(root), source.num_bytes, f"the download of {store.locate(name)}")
        with storage_errors("write", str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("xb")
        with file:
            for piece in source.pieces():
                digest.update(piece)
                with storage_errors("write", str(path)):
                    file.write(piece)
                num_bytes += len(piece)
                progress(len(piece))
    return num_bytes, digest.hexdigest()


def _local_name(name: str, store: Store) -> str:
    """The name of a downloaded file. Names of web servers are quoted, and may have a query."""
    if not store.url.startswith(("http://", "https://")):
        return name
    parts = [unquote(part).translate(_UNSAFE) for part in name.partition("?")[0].split("/")]
    return "/".join("download" if part in ("", ".", "..") else part for part in parts)


def _origins(url: str, files: Sequence[tuple[str, int, str]], store: Store) -> tuple[Origin, ...]:
    if len(files) <= MAX_ORIGINS:
        return tuple(
            Origin(url=remove_secrets(f"{store.url.rstrip('/')}/{name}"), num_bytes=size, sha256=sha256)
            for name, size, sha256 in files
        )
    digest = hashlib.sha256("".join(f"{sha256}  {name}\n" for name, _, sha256 in files).encode())
    total = sum(size for _, size, _ in files)
    return (Origin(url=remove_secrets(url), num_bytes=total, sha256=digest.hexdigest()),)


def _ignore(num_bytes: int) -> None:
    del num_bytes


_SUFFIXES: Final = re.compile(r"(\.(gz|bz2|xz|zst|zip|tar|tgz))*$", re.IGNORECASE)

_SIGNED: Final = re.compile(  # The signature and the dates of a signed link differ each time.
    r"(x-amz-|x-goog-).*|awsaccesskeyid|googleaccessid|expires|key-pair-id|policy|s[eprtv]|sip|spr|sk[eostv](id)?|sktid",
    re.IGNORECASE,
)
_PORTS: Final = {"http": 80, "https": 443}


def name_of_path(location: str) -> str:
    """Derive the name of a dataset that is added from ``location`` without a name.

    >>> name_of_path("./Sensor Data.csv.gz"), name_of_path("/srv/photos/"), name_of_path("https://host/a/prices.csv?x=1")
    ('sensor_data', 'photos', 'prices')
    >>> name_of_path("titanic/metadata.json"), name_of_path("/srv/flowers/data/train-00000-of-00002.parquet")
    ('titanic', 'flowers')
    >>> name_of_path("s3://flowers/train.csv"), name_of_path("/srv/flowers/data.tar.gz")
    ('flowers', 'flowers')

    Raises:
        StorageError: ``location`` is not a path.
        UsageError: the file and all folders above have generic names, or the first name that is not generic contains no
            letter or digit.
    """
    return derive_name(location)[0]


def derive_name(location: str) -> tuple[str, str]:
    """Return ``name_of_path``, and the origin of the name, which is ``""`` if it is the last part of ``location``.

    >>> derive_name("/srv/flowers/train.csv"), derive_name("/srv/flowers")
    (('flowers', "from the folder 'flowers' above 'train'"), ('flowers', ''))
    """
    parts = _parts(location)
    for part in parts:
        name = nearest_name(part)
        if not name:
            break
        if not is_generic(name):
            return name, "" if part is parts[0] else f"from the folder {part!r} above {parts[0]!r}"
    raise UsageError(f"no name can be derived from {location!r:.200}", hint=f"Name the dataset: {spell('name=NAME')}")


def _parts(location: str) -> list[str]:
    """Return the candidates for the name of the dataset: the file without its extensions, and the folders above."""
    path = None if is_hub(location) else local_path(location)
    if is_hub(location):
        parts = repository_of(location)[0].split("/")
    elif path is None:
        url = urlsplit(location)
        # The name of a bucket may describe the data; the name of a host does not.
        bucket = [] if url.scheme.lower() in _PORTS else [url.netloc.rpartition("@")[2]]
        if "@" in url.netloc and url.scheme.lower() not in _PORTS:  # abfs://container@account/...
            bucket = [url.netloc.partition("@")[0]]
        parts = [*bucket, *filter(None, unquote(url.path).split("/"))]
    else:
        # Path.absolute would keep "..", and Path.resolve would follow a link, which keeps its own name.
        parts = [part for part in os.path.abspath(path).replace("\\", "/").split("/") if part]  # noqa: PTH100
    if not parts:
        return []
    stem = _SUFFIXES.sub("", parts[-1])
    return [stem.rpartition(".")[0] or stem, *reversed(parts[:-1])]


def place_of(location: str) -> str:
    """Return the absolute path of a source without links, or its URL without secrets.

    Different spellings of a place give the same result, and so do different revisions of a repository of the hub.

    >>> place_of("https://ann:PW@Host:443/a/../b.csv?page=2&token=PW"), place_of("s3://flowers/raw/")
    ('https://host/b.csv?page=2', 's3://flowers/raw')

    Raises:
        StorageError: ``location`` is not a path.
    """
    if is_hub(location):
        return f"hf://{repository_of(location)[0]}"
    local = local_path(location)
    if local is not None:
        return os.path.realpath(local)
    url = urlsplit(remove_secrets(location))
    scheme, netloc, path, query = url.scheme.lower(), url.netloc.lower(), url.path, url.query
    if scheme in _PORTS:
        netloc = netloc.removesuffix(f":{_PORTS[scheme]}")
        path = posixpath.normpath(path) if path else ""
    if has_secret(location):
        query = "&".join(pair for pair in query.split("&") if not _SIGNED.fullmatch(pair.partition("=")[0]))
    return urlunsplit((scheme, netloc, path.rstrip("/"), query, ""))
