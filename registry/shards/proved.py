"""Proves that a file is the published one before the first of its bytes is handed out.

The checksums of its records say only that each record is sound: they are right, too, where two shards were swapped or a
file of another version lies in the place. So every file of a version is opened through a store that knows what was
promised of it. Once for each file and process its state is held against the stamp that was kept when it was hashed; and
where there is no stamp, or the file changed since, it is hashed again.

    file  --open-->  proved in this process | by a stamp | by the recorded ETag | by its sha256  -->  that very file
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Event, Lock
from typing import Final, Protocol

from registry.engines import FileRange, Piece, choose_engine
from registry.errors import RegistryError, ShardMismatchError, StorageError, StorageUnavailableError, VerificationError
from registry.features import FeaturesDict
from registry.model import Promises, Shard
from registry.shards.formats import walk_file
from registry.storage import Store
from registry.storage.faults import StoredFile, cannot
from registry.storage.store import WrappedStore
from registry.tfrecord import IndexFolder
from registry.tfrecord.framing import not_so_many
from registry.tfrecord.stamps import FileState, ObjectState, State

_MOST_TRIES: Final = 3
_STRIPES: Final = 64


class RecordsProof(Protocol):
    """What proves the records that are read where it is not their file that was promised: those of a pin."""

    @property
    def key(self) -> bytes:
        """What tells these records from others, in at most 64 bytes."""

    def are_in(self, store: Store, indexes: IndexFolder | None) -> bool:
        """Whether the files in ``store`` hold these very records.

        Raises:
            CorruptRecordError, ShardMismatchError, StorageError: one cannot be read.
        """


class ProvedStore(WrappedStore):
    """The files of a version, each of which is proved when it is opened. Nothing can be written through it.

    Threads may share it, and it may be sent to other processes.
    """

    refusal = "the files of a published version are only read"

    def __init__(
        self,
        store: Store,
        promises: Promises,
        *,
        file_format: str,
        features: FeaturesDict | None = None,
        records: RecordsProof | None = None,
        indexes: IndexFolder | None,
        hint: str,
    ) -> None:
        """The files in ``store``.

        Args:
            store: the folder.
            promises: what was promised of them. A file that is not in it is opened as it is.
            file_format: what they are, see ``registry.shards``; by it the damaged record of a damaged file is named.
            features: what a row of ``parquet_columns`` is an example of, for the same reason.
            records: where no more than these records is read, a file that is not the promised one may hold them all the
                same; None accepts no other file.
            indexes: where stamps are kept; None keeps none, and each process hashes what it reads.
            hint: what to do where a file is not as promised.
        """
        super().__init__(store)
        self._promises = promises
        self._file_format = file_format
        self._features = features
        self._records = records
        self._indexes = indexes
        self._hint = hint

    def open(self, name: str) -> StoredFile:
        """Open a file that is the promised one.

        Raises:
            ShardMismatchError: it has another size, number of records or sha256.
            CorruptRecordError: the same, and a record is damaged: the first of them.
            StorageError: it is missing, or cannot be read.
        """
        return self._open(name)

    def _open(self, name: str, stop: Event | None = None) -> StoredFile:
        """As ``open``; once ``stop`` is set, hashing ends with an error that nobody sees."""
        promised = self._promises.find(name)
        if promised is None:
            return self._store.open(name)
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
        """Prove files that are about to be opened, several at a time; what is wrong with one is said when it is.

        Raises:
            StorageUnavailableError: the store does not answer.
        """
        stop = Event()

        def prove(name: str) -> None:
            try:
                self._open(name, stop).close()
            except StorageUnavailableError:
                raise  # the others would wait as long for the same store
            except RegistryError:
                return

        with choose_engine(num_bytes=None, is_local=self.local_root is not None, is_unlocked=True) as engine:
            pieces = (Piece(prove, name, (FileRange(self.url, name),)) for name in names)
            try:
                for _ in engine.run(pieces, doing="hashed files", failure=StorageError):
                    pass
            except BaseException:  # also Ctrl-C, which should not wait until large files are hashed
                stop.set()
                raise

    def _prove_file(self, file: StoredFile, name: str, promised: Shard, stop: Event | None) -> None:
        """Prove an open file of this machine, and leave it at its start: that one is read, whatever its name gets."""
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
                    continue  # somebody changed it meanwhile, or only its name or mode
                if found == promised.sha256:
                    self._keep(state, promised, since)
                else:
                    self._require_records(state, name, promised, found)
                return
        hint = "Published files never change. Find out what writes to it."
        raise cannot("read", self.locate(name), "it changed again and again while it was hashed", hint=hint)

    def _prove_object(self, file: StoredFile, name: str, promised: Shard, stop: Event | None) -> None:
        """Prove an open object: by the ETag that was recorded when it was published, by a stamp, or by its bytes.

        The store gives bytes of this ETag or an error. Where it has no ETags, each process reads the object once more.
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
            found = _hash(file, stop)
            if found == promised.sha256:
                self._keep(state, promised, 0)
            else:
                self._require_records(state, name, promised, found)

    def _is_known(self, state: State, promised: Shard) -> bool:
        """Whether a file in this state was hashed before, by this process or by one that left a stamp."""
        if _proofs.holds(state, promised.sha256):
            return True
        if self._records is not None and _proofs.holds(state, self._records.key):
            return True
        if self._indexes is None or not self._indexes.stamps.holds(state, promised.sha256):
            return False
        _proofs.add(state, promised.sha256)
        return True

    def _keep(self, state: State, promised: Shard, since_ns: int) -> None:
        """Remember that a file which was hashed from ``since_ns`` on is the promised one."""
        if not state.is_settled(since_ns):
            return  # it may change yet and look the same: it is hashed again when it is opened again
        _proofs.add(state, promised.sha256)
        if self._indexes is not None:
            self._indexes.stamps.keep(state, promised.sha256)

    def _require_records(self, state: State, name: str, promised: Shard, found: str) -> None:
        """Accept a file that is not the promised one for the records that it is read for, or raise what is wrong.

        That is the damaged record where there is one, else that it is another file.
        """
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
            f"{path}: its sha256 is not the promised one: expected {promised.sha256}, found {found}",
            hint=self._hint,
            details={"path": path},
        )


class _Proofs:
    """What this process has proved: states of files, each with a sha256 or records. Two threads never hash one file."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()
        self._locks = [Lock() for _ in range(_STRIPES)]

    def holds(self, state: State, proved: str | bytes) -> bool:
        return self._key(state, proved) in self._known

    def add(self, state: State, proved: str | bytes) -> None:
        self._known.add(self._key(state, proved))

    @contextmanager
    def alone(self, state: State) -> Iterator[None]:
        """Within the block no other thread is in it for the same state, and few are for others."""
        with self._locks[self._key(state, b"")[0] % _STRIPES]:
            yield

    def free(self) -> None:
        """Make new locks: those that a thread held which a fork left behind are never released."""
        self._locks = [Lock() for _ in range(_STRIPES)]

    @staticmethod
    def _key(state: State, proved: str | bytes) -> bytes:
        proved = proved.encode() if isinstance(proved, str) else proved
        return hashlib.blake2b(state.content(), key=proved, digest_size=20).digest()


_proofs: Final = _Proofs()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_proofs.free)


def _hash(file: StoredFile, stop: Event | None) -> str:
    """The sha256 of an open file's bytes from its start, to which it goes back; it ends once ``stop`` is set."""
    digest = hashlib.sha256()
    for piece in file.pieces():
        if stop is not None and stop.is_set():
            raise InterruptedError("the read was ended")
        digest.update(piece)
    file.seek(0)
    return digest.hexdigest()
