"""The files of a site: those of an earlier run, and their replacement while people read the site.

    new files in a staged folder  ->  media, catalog, pages, site.json, index.html  ->  files of old pages are removed

``site-files.json`` lists the files that are the site's own, so that nothing else in the folder is ever replaced or
removed. It is written before the first file is replaced, without the digests of those that are about to be, and again
at the end. So the next run finishes what a killed one began.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from registry.catalog.site_index import INDEX_NAME
from registry.errors import AlreadyStoredError, ConflictError, NotStoredError, StorageError, spell
from registry.model import Advance
from registry.storage import LocalStore, Store, is_unfinished

MANIFEST: Final = "site-files.json"
LOCK: Final = "site-files.lock"
DATA: Final = "data"

_SCHEMA: Final = "registry.site-files/1"
_MOST_BYTES: Final = 2**31
_REQUESTS: Final = 16
_MOST_LOCKED: Final = timedelta(hours=1)
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "json": "application/json",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "xml": "application/xml",
    "txt": "text/plain; charset=utf-8",
    "gz": "application/gzip",
}


class FileFacts(NamedTuple):
    """The size of a file in bytes, and its sha256; ``""`` for a file that may be replaced at this moment."""

    num_bytes: int
    sha256: str


@dataclass(slots=True)
class FileGroup:
    """The files of one dataset, or those of the whole catalog.

    Attributes:
        key: changes with everything that the files are made of; ``""`` if they have to be made again.
        files: by name.
        links: the addresses in other groups that its pages lead to.
    """

    key: str = ""
    files: dict[str, FileFacts] = field(default_factory=dict)
    links: set[tuple[str, ...]] = field(default_factory=set)


@dataclass(slots=True)
class SiteFiles:
    """Every file of a site, by group, and ``key``, which changes with everything that the site is made of."""

    key: str = ""
    groups: dict[str, FileGroup] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, FileFacts]:
        """All files by name."""
        return {name: facts for group in self.groups.values() for name, facts in group.files.items()}

    def to_json(self) -> bytes:
        """The document ``site-files.json``."""
        groups = {
            name: {"key": group.key, "files": group.files, "links": sorted(group.links)}
            for name, group in self.groups.items()
        }
        return json.dumps({"schema": _SCHEMA, "key": self.key, "groups": groups}, separators=(",", ":")).encode()

    @classmethod
    def read(cls, store: Store, *, force: bool = False) -> SiteFiles:
        """What an earlier run wrote to ``store``; nothing if it is empty.

        Raises:
            ConflictError: it has files, but none says that they are a site, and ``force`` is False.
        """
        with_files = False
        try:
            document = json.loads(store.read_bytes(MANIFEST, limit=_MOST_BYTES))
            if document.pop("schema") == _SCHEMA:
                groups = {
                    name: FileGroup(
                        group["key"],
                        {file: FileFacts(*facts) for file, facts in group["files"].items()},
                        {tuple(path) for path in group["links"]},
                    )
                    for name, group in document["groups"].items()
                }
                return cls(document["key"], groups)
            with_files = True
        except NotStoredError:
            with_files = any(not is_unfinished(entry.name.partition("/")[0]) for entry in store.scan())
        except (ValueError, TypeError, AttributeError, LookupError):
            with_files = True
        if with_files and not force:
            raise ConflictError(
                f"{store.locate('')} contains files, but is not a site",
                hint=f"Name an empty folder, or add the site to these files with {spell('force', True)}, which "
                "replaces files that have the name of a page.",
                details={"path": store.locate("")},
            )
        return cls()


def sizes_of(store: Store, names: Iterable[str]) -> dict[str, int]:
    """The sizes of the files in the folders of ``names``, and of those of ``names`` at the top that exist."""
    result: dict[str, int] = {}
    for top in sorted({name.partition("/")[0] for name in names}):
        entries = list(store.scan(top))
        result.update((entry.name, entry.num_bytes) for entry in entries if not entry.is_folder)
        if not entries:
            try:
                result[top] = store.size(top)
            except StorageError:  # missing, or an empty folder
                continue
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """The names of files that were written and removed, and of those that others own and that stay as they are."""

    written: tuple[str, ...]
    removed: tuple[str, ...]
    foreign: tuple[str, ...]


def place_files(
    store: Store,
    staged: Store,
    old: SiteFiles,
    new: SiteFiles,
    *,
    types: Mapping[str, str],
    force: bool = False,
    dry_run: bool = False,
    advance: Advance | None = None,
) -> Placed:
    """Move the files of a staged folder to their places, then remove the files of ``old`` that ``new`` lacks.

    Args:
        store: the site.
        staged: a folder of this machine with the new files, and those that differ from the files in ``store``.
        old: the files of the earlier run.
        new: all files of this run. Files that others own are taken out of it.
        types: the content types of media.
        force: replace files of others that have the names of pages.
        dry_run: write nothing.
        advance: called with the number of files that were moved.

    Raises:
        ConflictError: another run wrote to the store at the same time.
    """
    before, changed = old.files, staged.list()
    unknown = [name for name in changed if name not in before]
    present = sizes_of(store, unknown)
    foreign = () if force else tuple(name for name in unknown if name in present)
    for group in new.groups.values():
        group.files = {name: facts for name, facts in group.files.items() if name not in foreign}
    after = new.files
    written = sorted({*changed} - {*foreign}, key=_turn)
    removed = tuple(name for name in before if name not in after)
    result = Placed(written=tuple(written), removed=removed, foreign=foreign)
    if dry_run or not (written or removed or new.to_json() != old.to_json()):
        return result
    with _writing(store, old, force=force):
        plan = _plan(old, new, {*written})
        store.write_bytes(MANIFEST, plan, overwrite=True)
        steps = Counter(written)
        if isinstance(store, LocalStore):  # the folders of a first site would be made again, and removed one by one
            folders = {name: "/".join(name.split("/")[:2]) for name in written}
            exists = {folder: store.exists(folder) for folder in {*folders.values()}}
            steps = Counter(name if exists[folder] else folder for name, folder in folders.items())
        move = partial(_move, store, staged, types, advance, steps)
        for turn in range(max(map(_turn, written), default=0) + 1):
            _each(store, [name for name in steps if _turn(name) == turn], move)
        _each(store, removed, store.remove)
        if isinstance(store, LocalStore):
            left = {place for name in removed for place in Path(name).parents if place.name}
            store.remove_empty([store.locate(str(place)) for place in sorted(left, key=str, reverse=True)])
        if store.read_bytes(MANIFEST, limit=_MOST_BYTES) != plan:
            raise _conflict(store, "wrote to {} at the same time, so the site may be a mixture of both")
        store.write_bytes(MANIFEST, new.to_json(), overwrite=True)
    return result


@contextmanager
def _writing(store: Store, old: SiteFiles, *, force: bool) -> Iterator[None]:
    """Refuse to write to a bucket, which has no locks, while another run does: only one of them can create a file.

    A folder was locked before ``old`` was read; to a bucket, another run may have written since.
    """
    if store.local_root is not None:
        yield
        return
    now = since = datetime.now(UTC)
    try:
        store.write_bytes(LOCK, now.isoformat().encode(), overwrite=force)
    except AlreadyStoredError as error:
        with suppress(NotStoredError, ValueError):
            since = datetime.fromisoformat(store.read_bytes(LOCK, limit=100).decode())
        if now - since < _MOST_LOCKED:
            raise _conflict(store, f"has been writing to {{}} since {since:%H:%M} UTC") from error
        store.write_bytes(LOCK, now.isoformat().encode(), overwrite=True)  # that of a run that was killed
    try:
        if SiteFiles.read(store, force=True) != old:
            raise _conflict(store, "wrote to {} since this run began; this run has written nothing")
        yield
    finally:
        store.remove(LOCK)


def _conflict(store: Store, what: str) -> ConflictError:
    return ConflictError(
        f"another run {what.format(store.locate(''))}",
        hint="Repeat the command when the other run has ended. If it was killed, write now with "
        f"{spell('force', True)}.",
        details={"path": store.locate("")},
    )


def _plan(old: SiteFiles, new: SiteFiles, changed: set[str]) -> bytes:
    """The list of files while they are replaced: those of both runs, and no digest of what is about to change."""
    after = new.files
    gone = {name: FileFacts(facts.num_bytes, "") for name, facts in old.files.items() if name not in after}
    groups = {"/removed": FileGroup(files=gone)} if gone else {}
    for name, group in new.groups.items():
        files = {file: FileFacts(facts[0], "") if file in changed else facts for file, facts in group.files.items()}
        groups[name] = FileGroup("" if changed & files.keys() else group.key, files, group.links)
    return SiteFiles("", groups).to_json()


def _turn(name: str) -> int:
    """When a file is written: what others lead to comes first, and the first page last."""
    if name in ("index.json", "index.html", INDEX_NAME):
        return {"index.json": 2, INDEX_NAME: 3, "index.html": 4}[name]
    is_page = name.endswith(("/index.html", "/index.json")) or "/" not in name
    return 2 if is_page and name != "catalog.db" else 1 if name.startswith("catalog") else 0


def _each(store: Store, names: Iterable[str], call: Callable[[str], object]) -> None:
    """Call a function with each name; several at a time if each call is a request."""
    if store.local_root is not None:
        for name in names:
            call(name)
        return
    with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="registry-site") as threads:
        for _ in threads.map(call, names):
            pass


def _move(
    store: Store, staged: Store, types: Mapping[str, str], advance: Advance | None, sizes: Mapping[str, int], name: str
) -> None:
    content_type = types.get(name) or _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
    store.move_in(name, staged, content_type=content_type)
    if advance is not None:
        advance(sizes[name])
