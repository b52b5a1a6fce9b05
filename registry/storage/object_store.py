"""The store for object storage: S3 and compatible servers, Google Cloud Storage and Azure, through obstore.

An object store has no folders, no rename and no lock: names with a common prefix form a folder, and a move is a copy
and a removal. But it decides which of two writers creates a name first, so new objects are created by conditional
requests. The exception is a large object at a name that the caller has reserved.
"""

from __future__ import annotations

import errno
import io
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from operator import attrgetter
from typing import IO, TYPE_CHECKING, BinaryIO, Final

from registry.errors import NotStoredError, StorageError
from registry.masking import has_secret, mask
from registry.storage.faults import HashedFile, StoredFile, already_stored, cannot, storage_errors, too_long
from registry.storage.names import OBJECT_SCHEMES, OWNER_FILE, new_unfinished_name
from registry.storage.object_client import PART_BYTES, BucketClient, ObjectFacts, open_bucket
from registry.storage.object_library import credentials_hint, is_no_bucket
from registry.storage.remote import RemoteFile, RemoteStore
from registry.storage.store import DEFAULT_READ_LIMIT, Names, Store, StoredEntry, check_folder_name, check_relative_name

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_WRITE_BYTES: Final = 2**20


class ObjectStore(RemoteStore):
    """The objects below one prefix of a bucket."""

    keeps_writers = True

    def __init__(self, url: str, *, bucket: BucketClient, root: str) -> None:
        self.url = url
        self._bucket = bucket
        self._root = root

    def locate(self, name: str) -> str:
        """The URL of ``name``."""
        return f"{self.url}/{name}" if name else self.url

    def open(self, name: str) -> StoredFile:
        """Open an object for reading; each request is on the condition that it was not replaced since."""
        return self._open(name, self._facts(name))

    def open_known(self, name: str, *, num_bytes: int, entity_tag: str) -> StoredFile:
        """Open an object whose size and ETag are known, without a request."""
        key = self._key(check_relative_name(name))
        return self._open(name, ObjectFacts(key=key, num_bytes=num_bytes, entity_tag=entity_tag))

    def _open(self, name: str, facts: ObjectFacts) -> RemoteFile:
        location = self.locate(name)
        begin = partial(self._bucket.begin_range, facts, location=location)
        return RemoteFile(begin, path=location, num_bytes=facts.num_bytes, entity_tag=facts.entity_tag)

    def size(self, name: str) -> int:
        """Size of an object, in bytes."""
        return self._facts(name).num_bytes

    def stamp(self, name: str) -> str:
        """A text of the object's size, its ETag and its generation: an ETag may be that of other bytes."""
        facts = self._facts(name)
        return " ".join(filter(None, (str(facts.num_bytes), facts.entity_tag, facts.generation)))

    def entity_tag(self, name: str) -> str | None:
        """The ETag of the object's present bytes."""
        return self._facts(name).entity_tag

    def exists(self, name: str) -> bool:
        """Whether an object has this name, or a name below it."""
        key, location = self._key(check_relative_name(name)), self.locate(name)
        try:
            self._bucket.facts(key, location=location)
        except NotStoredError:
            return bool(self._bucket.list(key, location=location))
        return True

    @contextmanager
    def _create(self, name: str, *, overwrite: bool) -> Iterator[BinaryIO]:
        """Send the object when the block ends: up to 8 MiB from memory, more from a temporary file."""
        location = self.locate(name)
        if not overwrite and self.exists(name):  # early, before the block runs; the writing request decides races
            raise already_stored(location)
        with tempfile.SpooledTemporaryFile(PART_BYTES) as spool:
            file = io.BufferedWriter(_Spooled(spool, location=location), _WRITE_BYTES)
            yield file
            if not file.closed:
                file.flush()
            with _temporary_file_errors(location):
                num_bytes = spool.tell()
                spool.seek(0)
            self._send(name, spool, num_bytes, overwrite=overwrite)

    def _send(self, name: str, spool: IO[bytes], num_bytes: int, *, overwrite: bool) -> None:
        key, location = self._key(name), self.locate(name)
        if num_bytes <= PART_BYTES:
            with storage_errors("write", location):
                content = spool.read()
            self._bucket.put(key, content, overwrite=overwrite, location=location)
        elif overwrite:
            self._bucket.upload(key, spool, num_bytes, overwrite=True, location=location)
        else:
            # An upload in parts cannot be conditional. So the object is uploaded under a unique name, and the store
            # copies it on the condition that the final name is free.
            folder, slash, last_part = key.rpartition("/")
            temporary = folder + slash + new_unfinished_name(last_part)
            try:
                self._bucket.upload(temporary, spool, num_bytes, overwrite=False, location=location)
                self._bucket.copy(temporary, key, location=location)
            finally:
                # Also after an error, which a fault here must not hide. An object that stays is never listed.
                with suppress(StorageError):
                    self._bucket.delete([temporary], location=location)

    def copy_to(self, name: str, final: str) -> None:
        """Copy an object to a free name; the store decides whether it is free, and copies the bytes itself."""
        location = self.locate(check_relative_name(final))
        try:
            self._bucket.copy(self._key(check_relative_name(name)), self._key(final), location=location)
        except NotStoredError as error:
            if not is_no_bucket(error):
                self._facts(name)  # raises if `name` is missing: the store's own error names `final`
            raise

    def scan(self, folder: str = "") -> Iterator[StoredEntry]:
        """Every object below ``folder``, from one listing."""
        key = self._key(check_folder_name(folder))
        yield from self._entries(self._without_markers(self._bucket.list(key, location=self.locate(folder)), key))

    def scan_listable(self, folder: str = "") -> Iterator[StoredEntry]:
        """Every object below ``folder``: from one listing, or from one for each folder if that fails.

        obstore fails to list a folder if it, or any folder in it, has an object with an invalid name.
        """
        yield from self._scan_listable(self._key(check_folder_name(folder)))

    def _scan_listable(self, key: str) -> Iterator[StoredEntry]:
        inside = len(self._root) + 1 if self._root else 0
        location, bad = self.locate(key[inside:]), ""
        folders: Sequence[str] = ()
        found: Sequence[ObjectFacts]
        try:
            try:
                found = self._bucket.list(key, location=location)
            except StorageError as error:
                bad = _bad_key(error)
                folders, found = self._bucket.list_level(key, location=location)
        except StorageError as error:
            first = _bad_key(error)  # the name may be a folder, e.g. data// of data//x
            bad = bad if bad.startswith(first) else first
            yield StoredEntry(name=bad[inside:], num_bytes=0, changed_at=None, unlisted=key[inside:])
            return
        yield from self._entries(self._without_markers(found, key))
        for folder in sorted(folders):
            yield from self._scan_listable(folder)

    def _entries(self, found: Iterable[ObjectFacts]) -> Iterator[StoredEntry]:
        inside = len(self._root) + 1 if self._root else 0
        for facts in sorted(found, key=attrgetter("key")):
            yield StoredEntry(name=facts.key[inside:], num_bytes=facts.num_bytes, changed_at=facts.changed_at)

    def child(self, name: str) -> ObjectStore:
        """The store rooted at the prefix ``name``."""
        key = self._key(check_relative_name(name))
        return type(self)(self.locate(name), bucket=self._bucket, root=key)

    def remove_tree(self, name: str) -> None:
        """Remove an object and every object below it."""
        location, owner = self.locate(check_relative_name(name)), self._key(f"{name}/{OWNER_FILE}")
        keys = [self._key(found) for found in self._all_names(name)]
        self._bucket.delete([self._key(name), *(key for key in keys if key != owner)], location=location)
        if owner in keys:  # last: if the process is killed meanwhile, the rest still names its owner
            self._bucket.delete([owner], location=location)

    def remove(self, name: str) -> None:
        """Remove an object, in one request."""
        self._bucket.delete([self._key(check_relative_name(name))], location=self.locate(name))

    def read_bytes(self, name: str, *, limit: int = DEFAULT_READ_LIMIT) -> bytes:
        """Read a small object, in one request."""
        key, location = self._key(check_relative_name(name)), self.locate(name)
        try:
            content = self._bucket.get(key, limit=limit, location=location)
        except NotStoredError as error:
            if not is_no_bucket(error):
                self._facts(name)  # raises a better error for a folder
            raise
        if content is None:
            raise too_long(location, limit)
        return content

    def write_bytes(self, name: str, content: bytes, *, overwrite: bool = False) -> None:
        """Write a small object, in one request; the store decides whether the name is free."""
        self._bucket.put(self._key(check_relative_name(name)), content, overwrite=overwrite, location=self.locate(name))

    def move_in(self, name: str, source: Store, *, content_type: str) -> None:
        """Upload a local file and replace the object of that name."""
        key, location = self._key(check_relative_name(name)), self.locate(name)
        with source.open(name) as file:
            if file.num_bytes <= PART_BYTES:
                content = file.read()
                self._bucket.put(key, content, overwrite=True, content_type=content_type, location=location)
            else:
                hashed, size = HashedFile(file), file.num_bytes
                self._bucket.upload(key, hashed, size, overwrite=True, content_type=content_type, location=location)

    def require_writable(self, folder: str) -> None:
        """Send one request that would write an object below ``folder``, on a condition that is not fulfilled."""
        name = f"{check_relative_name(folder)}/{new_unfinished_name('probe')}"
        self._bucket.require_writable(self._key(name), location=self.locate(folder))

    def create_from(
        self,
        name: str,
        source: Store,
        source_name: str,
        *,
        sha256: str | None = None,
        writer: str = "",
        require_reserved: Callable[[], None] | None = None,
    ) -> str | None:
        """Upload a file to a free name: in one request up to 8 MiB, more in parts.

        An upload in parts cannot be conditional. If the name is reserved, it goes there directly: one request finds the
        name free before the first part is sent, and another one before the object is completed. Otherwise it goes to a
        unique name, from which the store copies it.
        """
        key, location = self._key(check_relative_name(name)), self.locate(name)
        with source.open(source_name) as opened:
            file, num_bytes = HashedFile(opened), opened.num_bytes
            if num_bytes <= PART_BYTES:
                content = file.read()
                file.require(sha256)
                return self._bucket.put(key, content, overwrite=False, writer=writer, location=location)
            if require_reserved is None:
                return super().create_from(name, source, source_name, sha256=sha256)
            require_free = partial(self._require_free, key, location)
            require_free()

            def before_end() -> None:
                file.require(sha256)
                require_reserved()
                require_free()

            return self._bucket.upload(
                key, file, num_bytes, overwrite=False, writer=writer, before_end=before_end, location=location
            )

    def _require_free(self, key: str, location: str) -> None:
        if self._bucket.has(key, location=location):
            raise already_stored(location)

    def sign(self, name: str, *, seconds: int) -> str:
        """Return a URL with which anybody can read an object for some time.

        No request is sent, so it need not exist.
        """
        return self._bucket.sign(self._key(check_relative_name(name)), seconds=seconds, location=self.locate(name))

    def writer_of(self, name: str) -> str | None:
        """Return the ``writer`` that was passed to ``create_from`` for an object, or None if it is unknown."""
        return self._bucket.writer_of(self._key(check_relative_name(name)), location=self.locate(name))

    def _key(self, name: str) -> str:
        return "/".join(part for part in (self._root, name) if part)

    def _facts(self, name: str) -> ObjectFacts:
        key, location = self._key(check_relative_name(name)), self.locate(name)
        try:
            return self._bucket.facts(key, location=location)
        except NotStoredError:
            if self._bucket.list(key, location=location):
                with storage_errors("read", location):
                    raise IsADirectoryError(errno.EISDIR, "Not a file") from None
            raise

    def _all_names(self, folder: str) -> Names:
        """Every object below ``folder``, including unfinished ones, sorted; relative to the root of the store."""
        key, inside = self._key(folder), len(self._root) + 1 if self._root else 0
        result = self._bucket.list(key, location=self.locate(folder))
        return sorted({facts.key[inside:] for facts in self._without_markers(result, key)})

    def _without_markers(self, found: Sequence[ObjectFacts], key: str) -> Iterator[ObjectFacts]:
        """The objects below ``key`` that are files.

        Web consoles of stores create an empty object for a folder, e.g. ``data/digits/``, and obstore lists it without
        the slash. If nothing is below it, only a request tells it from an empty file of that name.
        """
        inside = len(self._root) + 1 if self._root else 0
        folders = {facts.key.rpartition("/")[0] for facts in found} | {key}
        for entry in found:
            if entry.num_bytes or (
                entry.key not in folders and self._bucket.has(entry.key, location=self.locate(entry.key[inside:]))
            ):
                yield entry


class _Spooled(io.RawIOBase):
    """The temporary file of a new object as a raw file. Closing this one leaves the temporary file open to be sent."""

    def __init__(self, spool: IO[bytes], *, location: str) -> None:
        super().__init__()
        self._spool = spool
        self._shown = location

    def writable(self) -> bool:
        """Always True."""
        return True

    def write(self, data: ReadableBuffer) -> int:
        """Write ``data`` and return the number of bytes written."""
        with _temporary_file_errors(self._shown):
            return self._spool.write(data)

    def tell(self) -> int:
        """The number of bytes written."""
        return self._spool.tell()


def _bad_key(error: StorageError) -> str:
    """The key of the object because of whose name a listing failed; other errors are raised."""
    key = error.details.get("key") if error.errno == errno.EINVAL else None
    if key is None:
        raise error
    return str(key)


@contextmanager
def _temporary_file_errors(location: str) -> Iterator[None]:
    """Convert faults of the temporary file: the disk is local, although ``location`` is on another machine."""
    try:
        yield
    except OSError as error:
        reason = f"{error.strerror or error} in the folder for temporary files"
        hint = "Free some space there, or set TMPDIR to another folder, e.g. TMPDIR=/var/tmp."
        raise cannot("write", location, reason, number=error.errno, hint=hint) from error


def open_objects(url: str) -> ObjectStore:
    """Return the store at ``scheme://bucket/prefix``, for the schemes in ``OBJECT_SCHEMES``. No request is sent.

    Raises:
        MissingExtraError: obstore is not installed.
        StorageError: the URL has no bucket, or contains credentials.
        UsageError: a setting of the limits is invalid.
    """
    scheme, _, rest = url.partition("://")
    bucket, _, root = rest.partition("/")
    if "@" in bucket or has_secret(url):
        masked_url = f"{scheme}://***@{bucket.rpartition('@')[2]}" if "@" in bucket else mask(url)[:200]
        raise StorageError(
            f"cannot open {masked_url}: credentials do not belong in a URL",
            hint=f"Leave them out. {credentials_hint(OBJECT_SCHEMES[scheme])}",
            details={"path": masked_url},
        )
    if not bucket:
        raise StorageError(
            f"cannot open {url[:200]}: the URL has no bucket",
            hint=f"Write {scheme}://bucket/folder.",
            details={"path": url[:200]},
        )
    root = check_folder_name(root.rstrip("/"))
    return ObjectStore(url.rstrip("/"), bucket=open_bucket(OBJECT_SCHEMES[scheme], bucket), root=root)
