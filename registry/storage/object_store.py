"""Bytes in an object store: S3 and what speaks like it, Google Cloud Storage, Azure. Through obstore.

An object store has no folders, no rename and no lock: names with a common prefix stand for a folder, and a move is a
copy and a removal. It has one thing that disks lack: it decides by itself who creates a name first. New objects are
only ever created under names that the store itself finds free.
"""

from __future__ import annotations

import errno
import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, TYPE_CHECKING, BinaryIO, Final

from registry.errors import AlreadyStoredError, NotStoredError, StorageError
from registry.masking import has_secret, mask
from registry.storage.faults import StoredFile, TypedFile, already_stored, folder_exists, storage_errors
from registry.storage.names import (
    OBJECT_SCHEMES,
    OWNER_FILE,
    check_folder_name,
    check_relative_name,
    new_unfinished_name,
)
from registry.storage.object_client import PART_BYTES, BucketClient, ObjectFacts, open_bucket
from registry.storage.object_library import is_no_bucket
from registry.storage.remote import RemoteFile, RemoteStore
from registry.storage.store import Names

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_WRITE_BYTES: Final = 2**20


class ObjectStore(RemoteStore):
    """The objects below one prefix of a bucket."""

    def __init__(self, url: str, *, bucket: BucketClient, root: str) -> None:
        self.url = url
        self._bucket = bucket
        self._root = root

    def locate(self, name: str) -> str:
        """The URL of ``name``."""
        return f"{self.url}/{name}" if name else self.url

    def open(self, name: str) -> StoredFile:
        """Open an object for reading; each request asks for the bytes that were there when it was opened."""
        shown, facts = self.locate(name), self._facts(name)
        begin = partial(self._bucket.begin_range, facts, shown=shown)
        return RemoteFile(begin, path=shown, num_bytes=facts.num_bytes, entity_tag=facts.entity_tag)

    def size(self, name: str) -> int:
        """Size of an object, in bytes."""
        return self._facts(name).num_bytes

    def stamp(self, name: str) -> str:
        """Of the object's size and its ETag."""
        facts = self._facts(name)
        return f"{facts.num_bytes} {facts.entity_tag or ''}".rstrip()

    def entity_tag(self, name: str) -> str | None:
        """The ETag of the object's present bytes."""
        return self._facts(name).entity_tag

    def exists(self, name: str) -> bool:
        """Whether there is an object of that name, or one below it."""
        key, shown = self._key(check_relative_name(name)), self.locate(name)
        try:
            self._bucket.facts(key, shown=shown)
        except NotStoredError:
            return bool(self._bucket.list(key, shown=shown))
        return True

    @contextmanager
    def _create(self, name: str, *, overwrite: bool) -> Iterator[BinaryIO]:
        """The object is sent when the block ends: up to 8 MiB from memory, more from a temporary file."""
        shown = self.locate(name)
        if not overwrite and self.exists(name):  # before the block runs; the request that writes decides
            raise already_stored(shown)
        with tempfile.SpooledTemporaryFile(PART_BYTES) as spool:
            file = io.BufferedWriter(TypedFile(_Spooled(spool), path=shown, writing=True), _WRITE_BYTES)
            yield file
            if not file.closed:
                file.flush()
            num_bytes = spool.tell()
            spool.seek(0)
            self._send(name, spool, num_bytes, overwrite=overwrite)

    def _send(self, name: str, spool: IO[bytes], num_bytes: int, *, overwrite: bool) -> None:
        key, shown = self._key(name), self.locate(name)
        if num_bytes <= PART_BYTES:
            with storage_errors("write", shown):
                content = spool.read()
            self._bucket.put(key, content, overwrite=overwrite, shown=shown)
        elif overwrite:
            self._bucket.upload(key, spool, num_bytes, overwrite=True, shown=shown)
        else:
            # No store creates a large object on a condition. So it is uploaded under a name that nobody else has, and
            # copied by the store, which can.
            folder, slash, last_part = key.rpartition("/")
            temporary = folder + slash + new_unfinished_name(last_part)
            try:
                self._bucket.upload(temporary, spool, num_bytes, overwrite=False, shown=shown)
                self._bucket.copy(temporary, key, shown=shown)
            finally:
                # Also after an error: what stays behind is never listed, and the first error is the one to tell.
                with suppress(StorageError):
                    self._bucket.delete([temporary], shown=shown)

    def copy_to(self, name: str, final: str) -> None:
        """Copy an object to a name that is free; the store itself decides whether it is, and moves the bytes."""
        shown = self.locate(check_relative_name(final))
        try:
            self._bucket.copy(self._key(check_relative_name(name)), self._key(final), shown=shown)
        except NotStoredError as error:
            if not is_no_bucket(error):
                self._facts(name)  # says which name is missing: the store's own answer names the other one
            raise

    def child(self, name: str) -> ObjectStore:
        """The store rooted at the prefix ``name``."""
        key = self._key(check_relative_name(name))
        return type(self)(self.locate(name), bucket=self._bucket, root=key)

    def remove_tree(self, name: str) -> None:
        """Remove an object and every one below it."""
        shown, owner = self.locate(check_relative_name(name)), self._key(f"{name}/{OWNER_FILE}")
        keys = [self._key(found) for found in self._all_names(name)]
        self._bucket.delete([self._key(name), *(key for key in keys if key != owner)], shown=shown)
        if owner in keys:  # last: killed on the way, it can still be told whose the rest is
            self._bucket.delete([owner], shown=shown)

    def retract(self, name: str) -> None:
        """Remove a folder that was published. There is no step that takes all of it out of sight at once."""
        self.remove_tree(name)

    def publish(self, staged: str, final: str) -> None:
        """Copy every object of ``staged`` to names that are free, then remove those.

        Where a name is taken, the copies made so far are removed again, and nothing of anybody else's.
        """
        copied: Names = []
        try:
            if self.exists(final):
                raise already_stored(self.locate(final))
            for name in self._all_names(check_relative_name(staged)):
                if name != f"{staged}/{OWNER_FILE}":
                    target = final + name[len(staged) :]
                    self.copy_to(name, target)
                    copied.append(target)
        except AlreadyStoredError as error:
            self._bucket.delete([self._key(name) for name in copied], shown=self.locate(final))
            raise folder_exists(self.locate(final)) from error
        self.remove_tree(staged)

    def _key(self, name: str) -> str:
        return "/".join(part for part in (self._root, name) if part)

    def _facts(self, name: str) -> ObjectFacts:
        key, shown = self._key(check_relative_name(name)), self.locate(name)
        try:
            return self._bucket.facts(key, shown=shown)
        except NotStoredError:
            if self._bucket.list(key, shown=shown):
                with storage_errors("read", shown):
                    raise IsADirectoryError(errno.EISDIR, "Not a file") from None
            raise

    def _all_names(self, folder: str) -> Names:
        """Every object below ``folder``, unfinished ones too, sorted; relative to the root of the store."""
        key, inside = self._key(folder), len(self._root) + 1 if self._root else 0
        found = {facts.key: facts for facts in self._bucket.list(key, shown=self.locate(folder))}
        folders = {name.rpartition("/")[0] for name in found} | {key}
        # Consoles of stores make an empty object for a folder; it lists like a file of the folder's name.
        return sorted(name[inside:] for name, facts in found.items() if facts.num_bytes or name not in folders)


class _Spooled(io.RawIOBase):
    """The temporary file of a new object as a raw file. To close this leaves it open: it is still to be sent."""

    def __init__(self, spool: IO[bytes]) -> None:
        super().__init__()
        self._spool = spool

    def write(self, data: ReadableBuffer) -> int:
        """Write ``data``; the number of bytes taken."""
        return self._spool.write(data)

    def tell(self) -> int:
        """How much is written."""
        return self._spool.tell()


def open_objects(url: str) -> ObjectStore:
    """The store at a URL of one of ``OBJECT_SCHEMES``: ``scheme://bucket/prefix``. No request is sent.

    Raises:
        MissingExtraError: obstore is not installed.
        StorageError: the URL names no bucket, or holds credentials.
    """
    scheme, _, rest = url.partition("://")
    bucket, _, root = rest.partition("/")
    if "@" in bucket or has_secret(url):
        shown = f"{scheme}://***@{bucket.rpartition('@')[2]}" if "@" in bucket else mask(url)[:200]
        raise StorageError(
            f"cannot open {shown}: credentials do not belong in a URL",
            hint="Leave them out. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE.",
            details={"path": shown},
        )
    if not bucket:
        raise StorageError(
            f"cannot open {url[:200]}: it names no bucket",
            hint=f"Write {scheme}://bucket/folder.",
            details={"path": url[:200]},
        )
    root = check_folder_name(root.rstrip("/"))
    return ObjectStore(url.rstrip("/"), bucket=open_bucket(OBJECT_SCHEMES[scheme], bucket), root=root)
