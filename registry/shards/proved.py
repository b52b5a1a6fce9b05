"""Proves that a file is the published one before its first byte is returned; readers open versions through it.

Record checksums show only that each record is undamaged: they also match if two shards were swapped, or if the file
belongs to another version. So every file of a version is opened through a store that knows its published sha256. Once
for each file and process, the file's state is compared with the stamp that was kept when it was hashed. Without a
stamp, or if the file has changed since, it is hashed again.

    file  --open-->  proved in this process | by a stamp | by its sha256  -->  that very file
    object with a recorded ETag  --open-->  a file of which each request requires that ETag
    object in the cache  --open-->  its blocks, which were kept under its sha256; no request
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event, Lock
from typing import Final, Protocol

from registry.engines import Piece, choose_engine
from registry.errors import RegistryError, ShardMismatchError, StorageError, StorageUnavailableError, VerificationError
from registry.features import FeaturesDict
from registry.model import Promises, Shard, UntaggedShards
from registry.shards.formats import walk_file
from registry.shards.lazy_file import LazyFile
from registry.storage import Store
from registry.storage.cache import CachedBlocks, CachedFile, FileCache
from registry.storage.faults import StoredFile, cannot
from registry.storage.memory import FileState, ObjectState, State
from registry.storage.store import WrappedStore
from registry.tfrecord import IndexFolder
from registry.tfrecord.framing import not_so_many

_MOST_TRIES: Final = 3
_STRIPES: Final = 64


class RecordsProof(Protocol):
    """Proves the records of a pin in files that are not the pinned files."""

    @property
    def key(self) -> bytes:
        """Identifies these records, in at most 64 bytes."""

    def are_in(self, store: Store, indexes: IndexFolder | None) -> bool:
        """Whether the files in ``store`` contain exactly these records.

        Raises:
            CorruptRecordError, ShardMismatchError, StorageError: a record cannot be read.
        """


class ProvedStore(WrappedStore):
    """The files of a version, read-only; each is proved when it is opened.

    Threads may share it, and it can be pickled for other processes.
    """

    def __init__(
        self,
        store: Store,
        promises: Promises,
        *,
        file_format: str,
        features: FeaturesDict | None = None,
        records: RecordsProof | None = None,
        indexes: IndexFolder | None,
        cache: FileCache | None = None,
        hint: str,
    ) -> None:
        """Wrap the files in ``store``.

        Args:
            store: the folder.
            promises: the published shards. A file that is not among them is opened without proof.
            file_format: the files' format, to name the damaged record of a damaged file.
            features: the features of rows of ``parquet_columns``, for the same purpose.
            records: the only records that will be read; another file that contains them is accepted. None accepts only
                the published files.
            indexes: the folder of the stamps; with None, each process hashes every file that it reads.
            cache: keeps the bytes of files of other machines on this one; None keeps nothing.
            hint: the hint of the error for a file that differs.
        """
        super().__init__(store)
        self._promises = promises
        self._file_format = file_format
        self._features = features
        self._records = records
        self._indexes = indexes
        self._cache = cache
        self._hint = hint

    def over(self, store: Store) -> ProvedStore:
        """The same proof for copies of the files in another folder, which have ETags of their own."""
        return ProvedStore(
            store,
            UntaggedShards(self._promises),
            file_format=self._file_format,
            features=self._features,
            records=self._records,
            indexes=self._indexes,
            cache=self._cache,
            hint=self._hint,
        )

    def open(self, name: str) -> StoredFile:
        """Open a file and prove that it is the published one.

        An object is opened with the size and the ETag that were recorded when it was published, without a request. If
        it has another ETag now, the read that finds this out proves the object by its bytes.

        Raises:
            ShardMismatchError: it has another size, number of records or sha256.
            CorruptRecordError: its sha256 differs because a record is damaged; names the first one.
            StorageError: it is missing, or cannot be read.
        """
        promised = self._promises.find(name)
        if promised is None:
            return self._store.open(name)
        file = self._open_cached(name, promised)
        if self._records is None or isinstance(file, CachedFile) or self._is_published(file, name, promised):
            file.published_sha256 = promised.sha256
        return file

    def _open_cached(self, name: str, promised: Shard) -> StoredFile:
        blocks = self._blocks_of(promised)
        if blocks is None:
            return self._open_source(name, promised)
        if self._recorded_tag(promised) is not None:
            self._is_cached(blocks)
            return CachedFile(blocks, self._open_source(name, promised))
        if self._is_cached(blocks):
            return CachedFile(blocks, self._open_later(name, promised))
        file = self._open_proved(name, promised)
        is_stable = file.entity_tag is not None or blocks.is_complete()  # it was cached while it was hashed
        return CachedFile(blocks, file) if is_stable and self._is_published(file, name, promised) else file

    @staticmethod
    def _is_cached(blocks: CachedBlocks, stop: Event | None = None) -> bool:
        """Whether the cache holds a whole file. The first time, its blocks are compared with the sha256."""
        return blocks.is_complete() and (blocks.is_proved() or blocks.prove(stop))

    def _open_source(self, name: str, promised: Shard) -> StoredFile:
        """Open a file without the cache."""
        tag = self._recorded_tag(promised)
        if tag is None:
            return self._open_proved(name, promised)
        recorded = partial(self._store.open_known, name, num_bytes=promised.num_bytes, entity_tag=tag)
        proved = partial(self._open_proved, name, promised)
        return LazyFile([recorded, proved], path=self.locate(name), num_bytes=promised.num_bytes, entity_tag=tag)

    def _open_later(self, name: str, promised: Shard) -> StoredFile:
        """Open a file that is in the cache as a whole: no request is sent unless a block is damaged or evicted."""
        later = partial(self._open_published, name, promised)
        return LazyFile([later], path=self.locate(name), num_bytes=promised.num_bytes, entity_tag=None)

    def _open_published(self, name: str, promised: Shard) -> StoredFile:
        file = self._open_proved(name, promised)
        if not self._is_published(file, name, promised):
            file.close()
            hint = "Run `registry cache clear`, then read it again."
            reason = "the cache holds parts of the published file, and the store another file with the same records"
            raise cannot("read", self.locate(name), reason, hint=hint)
        return file

    def _is_published(self, file: StoredFile, name: str, promised: Shard) -> bool:
        """Whether a proved object is the published file, rather than a different file with the same records."""
        return _proofs.holds(ObjectState(self.locate(name), file.entity_tag or ""), promised.sha256)

    def forget(self, name: str) -> bool:
        """Delete the cached blocks of a file whose records are damaged, perhaps since they were fetched."""
        promised = self._promises.find(name)
        blocks = None if promised is None else self._blocks_of(promised)
        return blocks is not None and blocks.forget()

    def _blocks_of(self, promised: Shard) -> CachedBlocks | None:
        """The cached blocks of a file of another machine; None without a cache."""
        if self._cache is None or self.local_root is not None:
            return None
        return CachedBlocks(self._cache, promised.sha256, promised.num_bytes)

    def _open_proved(self, name: str, promised: Shard, stop: Event | None = None) -> StoredFile:
        """Open a file and prove it now; once ``stop`` is set, hashing ends with an error that the caller drops."""
        file = self._store.open(name)
        try:
            if self.local_root is None:
                self._prove_object(file, name, promised, stop)
            else:
                self._prove_file(file, name, promised, stop)
        except BaseException:
            file.close()
            raise
        return file

    def prove(self, names: Iterable[str]) -> None:
        """Prove files that are about to be opened, several at a time, unless ``open`` needs no proof of their bytes.

        Other errors are raised by ``open``.

        Raises:
            StorageUnavailableError: the store does not answer.
        """
        stop = Event()

        def prove(shards: tuple[str, Shard]) -> None:
            name, promised = shards
            blocks = self._blocks_of(promised)
            if blocks is not None and self._is_cached(blocks, stop):
                return
            try:
                if self._recorded_tag(promised) is None:
                    self._open_proved(name, promised, stop).close()
            except StorageUnavailableError:
                raise  # the other files would wait for the same store
            except RegistryError:
                return

        with choose_engine(num_bytes=None, is_local=self.local_root is not None, is_unlocked=True) as engine:
            found = ((name, self._promises.find(name)) for name in names)
            pieces = (
                Piece(prove, (name, promised))
                for name, promised in found
                if promised is not None and self._needs_proof(promised)
            )
            try:
                for _ in engine.run(pieces, doing="hashed files", failure=StorageError):
                    pass
            except BaseException:  # also Ctrl-C, which should not wait until large files are hashed
                stop.set()
                raise

    def _needs_proof(self, promised: Shard) -> bool:
        blocks = self._blocks_of(promised)
        if blocks is not None and blocks.is_complete():
            return not blocks.is_proved()
        return self._recorded_tag(promised) is None

    def _recorded_tag(self, promised: Shard) -> str | None:
        """The ETag by which an object is proved; None if its bytes have to be."""
        # If other files with the same records are accepted, the object may have another size.
        return promised.entity_tag if self.local_root is None and self._records is None else None

    def _prove_file(self, file: StoredFile, name: str, promised: Shard, stop: Event | None) -> None:
        """Prove an open local file, and leave it at its start. Its descriptor is read, even if the name is reused."""
        for _ in range(_MOST_TRIES):
            since = time.time_ns()
            state = FileState.of(os.fstat(file.fileno()))
            if _proofs.holds(state, promised.sha256):
                return
            with _proofs.alone(state):
                if self._is_known(state, promised):
                    return
                found = _hash(file, stop)
                if FileState.of(os.fstat(file.fileno())) != state:
                    continue  # it was changed meanwhile, or only its name or mode
                self._require(state, name, promised, found, since)
                return
        hint = "Published files never change. Find out what writes to it."
        raise cannot("read", self.locate(name), f"it changed {_MOST_TRIES} times while it was hashed", hint=hint)

    def _prove_object(self, file: StoredFile, name: str, promised: Shard, stop: Event | None) -> None:
        """Prove an open object by the ETag that was recorded when it was published, by a stamp, or by its bytes.

        The store returns only bytes of this ETag. Without ETags, each process reads the object once to prove it.
        """
        tag = file.entity_tag
        state = ObjectState(self.locate(name), tag or "")
        if _proofs.holds(state, promised.sha256):
            return
        with _proofs.alone(state):
            if tag and tag == promised.entity_tag:
                _proofs.add(state, promised.sha256)
                return
            if self._is_known(state, promised):
                return
            self._require(state, name, promised, self._hash_object(file, promised, stop), 0)

    def _hash_object(self, file: StoredFile, promised: Shard, stop: Event | None) -> str:
        """Hash an object, and keep it in the cache meanwhile, so that it is fetched once."""
        blocks = self._blocks_of(promised)
        if blocks is None:
            return _hash(file, stop)
        with blocks.fill() as filling:
            result = _hash(file, stop, filling.add)
            filling.is_right = result == promised.sha256
        return result

    def _is_known(self, state: State, promised: Shard) -> bool:
        """Whether a file in this state is already proved, by this process or by a stamp."""
        if _proofs.holds(state, promised.sha256):
            return True
        if self._records is not None and _proofs.holds(state, self._records.key):
            return True
        if self._indexes is None or not self._indexes.stamps.holds(state, promised.sha256):
            return False
        _proofs.add(state, promised.sha256)
        return True

    def _require(self, state: State, name: str, promised: Shard, found: str, since_ns: int) -> None:
        """Remember that a file, hashed from ``since_ns`` on, is the published one or has the pinned records.

        Otherwise raise the fault: the first damaged record, or that it is another file.
        """
        if found == promised.sha256:
            if state.is_settled(since_ns):  # else it may change without a new state, so it is hashed again
                _proofs.add(state, found)
                if self._indexes is not None:
                    self._indexes.stamps.keep(state, found)
            return
        if self._records is not None and self._records.are_in(self._store, self._indexes):
            _proofs.add(state, self._records.key)
            return
        error = self._fault(name, promised, found)
        error.details |= {"expected_sha256": promised.sha256, "found_sha256": found}
        raise error

    def _fault(self, name: str, promised: Shard, found: str) -> VerificationError:
        path = self.locate(name)
        try:
            facts = walk_file(self._store, name, file_format=self._file_format, features=self._features)
        except VerificationError as error:
            return error
        if facts.num_records != promised.num_examples:
            more = facts.num_records > promised.num_examples
            return not_so_many(
                path, promised.num_examples, found=promised.num_examples if more else facts.num_records, more=more
            )
        return ShardMismatchError(
            f"{path}: sha256 mismatch: expected {promised.sha256}, found {found}",
            hint=self._hint,
            details={"path": path},
        )


class _Proofs:
    """The proofs of this process: file states, each with a sha256 or records. Two threads never hash the same file."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()
        self._locks = [Lock() for _ in range(_STRIPES)]

    def holds(self, state: State, proved: str | bytes) -> bool:
        return self._key(state, proved) in self._known

    def add(self, state: State, proved: str | bytes) -> None:
        self._known.add(self._key(state, proved))

    @contextmanager
    def alone(self, state: State) -> Iterator[None]:
        """Lock a state against other threads; a few other states share the lock."""
        with self._locks[self._key(state, b"")[0] % _STRIPES]:
            yield

    def free(self) -> None:
        """Make new locks in a forked child: a lock that another thread of the parent held would stay locked."""
        self._locks = [Lock() for _ in range(_STRIPES)]

    @staticmethod
    def _key(state: State, proved: str | bytes) -> bytes:
        proved = proved.encode() if isinstance(proved, str) else proved
        return hashlib.blake2b(state.content(), key=proved, digest_size=20).digest()


_proofs: Final = _Proofs()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_proofs.free)


def _hash(file: StoredFile, stop: Event | None, keep: Callable[[memoryview], None] | None = None) -> str:
    """Hash an open file from its start, and seek back to it; raises InterruptedError once ``stop`` is set.

    ``keep`` is called with each piece.
    """
    digest = hashlib.sha256()
    for piece in file.pieces():
        if stop is not None and stop.is_set():
            raise InterruptedError("the read was ended")
        digest.update(piece)
        if keep is not None:
            keep(piece)
    file.seek(0)
    return digest.hexdigest()
