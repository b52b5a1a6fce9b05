"""The store for any other protocol of fsspec, such as ``memory://``. For object stores see ``object_store``.

fsspec has no common rename or lock: names with a common prefix form a folder, and a move is a copy and a removal. A new
object is therefore written under a temporary name and copied to its final name. Two writers may find the same name free
at the same time. Readers are not affected, because they use the catalog, whose row is written last.
"""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from traceback import clear_frames
from typing import Any, BinaryIO, Final

from registry.errors import RegistryError, StorageError
from registry.masking import MASK, mask, may_hide_secret
from registry.storage.faults import StoredFile, TypedFile, already_stored, cannot, printable_cause, storage_error
from registry.storage.names import OWNER_FILE, new_unfinished_name
from registry.storage.remote import PathStore, RemoteFile
from registry.storage.store import Names, StoredEntry, check_folder_name, check_relative_name

_WRITE_BYTES: Final = 2**20


class FsspecStore(PathStore):
    """The objects below one prefix of an fsspec file system."""

    def open(self, name: str) -> StoredFile:
        """Open an object for reading. Requests are sent one after another: not every file system is thread-safe."""
        files, path, facts = self._files, self._path(check_relative_name(name)), self._info(name)
        location = self.locate(name)

        def begin(start: int, stop: int) -> Future[bytes]:
            future: Future[bytes] = Future()
            try:
                with library_errors("read", location):
                    future.set_result(files.cat_file(path, start=start, end=stop))
            except Exception as error:  # noqa: BLE001 (the future raises it to the caller that waits for the bytes)
                future.set_exception(error)
            return future

        return RemoteFile(begin, path=location, num_bytes=int(facts["size"]), entity_tag=_entity_tag(facts))

    def size(self, name: str) -> int:
        """Size of an object, in bytes."""
        return int(self._info(name)["size"])

    def stamp(self, name: str) -> str:
        """A text of the object's size, and its ETag if fsspec reports one."""
        facts = self._info(name)
        return f"{facts['size']} {_entity_tag(facts) or ''}".rstrip()

    def entity_tag(self, name: str) -> str | None:
        """The ETag of the object's present bytes, or None if fsspec does not report one."""
        return _entity_tag(self._info(name))

    def exists(self, name: str) -> bool:
        """Whether an object has this name, or a name below it."""
        with library_errors("read", self.locate(name)):
            self._files.invalidate_cache()
            return bool(self._files.exists(self._path(check_relative_name(name))))

    @contextmanager
    def _create(self, name: str, *, overwrite: bool) -> Iterator[BinaryIO]:
        folder, slash, last_part = name.rpartition("/")
        temporary = self._path(folder + slash + new_unfinished_name(last_part))
        location = self.locate(name)
        self._check_free(name, overwrite=overwrite)
        with library_errors("write", location):
            raw = self._files.open(temporary, "wb")
        try:
            with io.BufferedWriter(TypedFile(raw, path=location, writing=True), _WRITE_BYTES) as file:
                yield file
            self._check_free(name, overwrite=overwrite)
            with library_errors("write", location):
                self._files.cp_file(temporary, self._path(name))
        finally:
            # Also after an error, which a fault here must not hide. A remaining object is never listed.
            with suppress(StorageError), library_errors("remove", location):
                self._files.rm_file(temporary)

    def copy_to(self, name: str, final: str) -> None:
        """Copy an object to a name that is free when this call checks it."""
        self._info(name)
        self._check_free(check_relative_name(final), overwrite=False)
        with library_errors("write", self.locate(final)):
            self._files.cp_file(self._path(name), self._path(final))

    def scan(self, folder: str = "") -> Iterator[StoredEntry]:
        """Every object below ``folder``."""
        with library_errors("list", self.locate(folder)):
            self._files.invalidate_cache()
            inside = len(self._root) + 1
            found = self._files.find(self._path(check_folder_name(folder)), detail=True)
        for path, facts in sorted(found.items()):
            yield StoredEntry(name=path[inside:], num_bytes=int(facts["size"]), changed_at=_changed_at(facts))

    def child(self, name: str) -> FsspecStore:
        """The store rooted at the prefix ``name``."""
        return type(self)(self._files, self._path(check_relative_name(name)), url=self._url(name))

    def remove_tree(self, name: str) -> None:
        """Remove an object and every object below it."""
        with library_errors("remove", self.locate(check_relative_name(name))):
            # The owner file last: if the process is killed meanwhile, the rest still names its owner.
            names = sorted(self._all_names(name), key=lambda found: found.endswith(f"/{OWNER_FILE}"))
            for found in [*names, name]:
                with suppress(FileNotFoundError):
                    self._files.rm_file(self._path(found))

    def _info(self, name: str) -> dict[str, Any]:
        with library_errors("read", self.locate(name)):
            facts: dict[str, Any] = self._files.info(self._path(check_relative_name(name)))
            if facts["type"] != "file":
                raise IsADirectoryError(errno.EISDIR, "Not a file")
            return facts

    def _all_names(self, folder: str) -> Names:
        """Every object below ``folder``, including unfinished ones, sorted; relative to the root of the store."""
        with library_errors("list", self.locate(folder)):
            self._files.invalidate_cache()
            prefix, inside = self._path(folder) + "/", len(self._root) + 1
            return sorted(path[inside:] for path in self._files.find(self._path(folder)) if path.startswith(prefix))

    def _check_free(self, name: str, *, overwrite: bool) -> None:
        if not overwrite and self.exists(name):
            raise already_stored(self.locate(name))


def _entity_tag(facts: dict[str, Any]) -> str | None:
    tag = facts.get("ETag")
    # A weak tag (W/...) does not guarantee equal bytes.
    return tag if isinstance(tag, str) and tag and not tag.startswith("W/") else None


def _changed_at(facts: dict[str, Any]) -> datetime | None:
    """The time of the last change, which file systems give under different names, or None."""
    for name in ("LastModified", "last_modified", "mtime", "modified", "updated", "created"):
        match facts.get(name):
            case datetime() as moment:
                return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
            case int() | float() as seconds:
                return datetime.fromtimestamp(seconds, UTC)
    return None


def open_fsspec(url: str) -> FsspecStore:
    """Return the store at a URL of a protocol of fsspec.

    Raises:
        StorageError: the file system cannot be opened, e.g. its protocol is unknown or its package not installed.
    """
    from fsspec.core import url_to_fs

    masked_url = mask(url)[:200]
    if "::" in url:
        masked_url = (
            f"{url.partition('::')[0].partition('://')[0]}://..."
            if may_hide_secret(url.rpartition("::")[2])
            else masked_url
        )
        raise StorageError(
            f"cannot open {masked_url}: it chains several protocols",
            hint="Pass the URL of the folder itself, e.g. s3://bucket/datasets.",
            details={"path": masked_url},
        )
    try:
        with _quiet_deletion(), library_errors("open", masked_url):
            file_system, root = url_to_fs(url)
    except StorageError as error:
        if error.hint is None:
            hint = "Pass a local path, or a URL such as file:///data, s3://bucket/datasets or gs://bucket/datasets."
            error.rephrase(hint=hint)
        raise
    return FsspecStore(file_system, root, url=url)


@contextmanager
def library_errors(doing: str, path: str) -> Iterator[None]:
    """Convert every error of the block to a StorageError: the file systems of fsspec raise their own, of any type.

    If ``path`` has a masked secret, the text of the library is left out: it may contain parts of the secret.
    """
    try:
        yield
    except RegistryError:
        raise
    except Exception as error:  # noqa: BLE001 (hf:// raises ValueError, jupyter:// TypeError, data:// NotImplementedError)
        if not isinstance(error, OSError):
            text = str(error) or type(error).__name__
            hint = text if isinstance(error, ImportError) else None
            typed: StorageError = cannot(doing, path, text, hint=hint)
        else:
            typed = storage_error(error, doing=doing, path=path)
        if MASK not in path:
            raise typed from printable_cause(error)
        typed.rephrase(text=f"cannot {doing} {path}: {type(error).__name__}")
        raise typed from None


@contextmanager
def _quiet_deletion() -> Iterator[None]:
    """Ignore errors of ``__del__`` of a file system that was not opened: FTP closes a missing connection."""
    hook = sys.unraisablehook

    def report(failure: sys.UnraisableHookArgs) -> None:
        if not str(getattr(failure.object, "__qualname__", "")).endswith("FileSystem.__del__"):
            hook(failure)

    sys.unraisablehook = report
    try:
        yield
    except StorageError as error:
        cause: BaseException | None = error
        while cause is not None:
            clear_frames(cause.__traceback__)  # they refer to the file system
            cause = cause.__context__
        raise
    finally:
        sys.unraisablehook = hook
