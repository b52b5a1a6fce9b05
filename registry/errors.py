"""Every exception and warning of the registry, with its code, its exit code and its hint.

    RegistryError
    ├── UsageError (ValueError)                 the call itself is wrong
    │   ├── ReferenceSyntaxError                a malformed reference, version or request
    │   ├── SplitSyntaxError                    a malformed split expression
    │   ├── SliceError                          a slice that cannot be resolved: out of range, reversed ...
    │   ├── CitationSyntaxError                 a malformed citation of a pin
    │   ├── QueryError                          a query in SQL that is invalid, or cannot be computed
    │   ├── StateMismatchError                  a saved state that belongs to another read
    │   ├── DataDirectoryMissingError           a server's catalog without a data directory
    │   └── WrongTypeError (TypeError)          a value of the wrong type
    ├── NotFoundError (LookupError)             no such name
    │   ├── CatalogNotFoundError
    │   ├── DatasetNotFoundError
    │   ├── ConfigNotFoundError
    │   ├── VersionNotFoundError
    │   │   └── VersionWithdrawnError           the version is yanked or dropped
    │   ├── AliasNotFoundError
    │   ├── TokenNotFoundError
    │   ├── WebhookNotFoundError
    │   ├── SplitNotFoundError (KeyError)
    │   ├── ExperimentNotFoundError
    │   ├── BuilderNotFoundError
    │   ├── PinNotFoundError (KeyError)
    │   ├── ItemNotFoundError (KeyError, ValueError)
    │   └── FeatureNotFoundError (KeyError)
    ├── ConflictError                           the call contradicts what is published
    │   ├── VersionExistsError                  the number is published with other content
    │   ├── AliasMovedError                     an alias points elsewhere than the caller expected
    │   ├── ProtectedError                      only `registry promote` may change this canonical version
    │   ├── OtherSourceError                    the dataset of that name comes from another source
    │   ├── DatasetRenamedError                 the name is a former name, or belongs or belonged to another dataset
    │   ├── NeighboursChangedError              an adjacent version was published meanwhile: prove again
    │   ├── CatalogNotEmptyError                a backup is restored only into an empty catalog
    │   ├── OtherDataDirectoryError             the catalog's files belong in another data directory
    │   ├── KeyReusedError                      the idempotency key was used for another call
    │   └── ReservedError                       another publisher holds the version's place in an object store
    │       └── ReservationLostError            our reservation was released by somebody else
    ├── PartialFailureError                     some of several versions could not be imported or verified
    ├── LockedError                             a reference that is not exact, while look-ups are locked
    ├── VerificationError (ValueError)          stored bytes differ from what was published
    │   ├── CorruptRecordError                  the framing or checksum of one record is wrong
    │   ├── CorruptExampleError                 a record that is not an example of these features
    │   ├── ShardMismatchError                  size, record count or sha256 of a shard differs
    │   │   └── ForeignShardError               an intact file with other records
    │   ├── LogTamperedError                    the event log, or rows, were changed by other software
    │   │   └── SiteHistoryError                a site was rolled back, or its log was rewritten
    │   ├── SiteMismatchError                   the catalog of a site differs from the one that its index describes
    │   ├── PinChangedError                     a pin file was edited
    │   ├── RecordsMismatchError                records differ from those of a pin
    │   ├── SignatureError                      an invalid signature
    │   └── VersionTooSmallError                the changes require a larger step of the version number
    ├── PreparedFormatError (ValueError)        not a prepared dataset
    ├── PinFormatError (ValueError)             not a pin file; lists every fault with its key path
    ├── BackupFormatError (ValueError)          not a backup of a catalog, or a damaged one
    ├── SiteFormatError (ValueError)            not the index of a site, or a damaged one
    ├── FeatureError (ValueError)               a value that does not fit its feature, or an invalid schema
    ├── SourceError (ValueError)                data that cannot be added: unreadable, ambiguous, or of no known kind
    │   └── UnusableRowsError                   rows or files that cannot be used; reports all of them
    ├── BuildError                              a builder failed
    │   └── DuplicateKeyError
    ├── StorageError (OSError)                  bytes could not be read or written
    │   ├── AlreadyStoredError (FileExistsError)
    │   │   └── FolderExistsError               the final name of a staged folder is taken
    │   ├── NotStoredError (FileNotFoundError)
    │   ├── FetchNotAllowedError (PermissionError)  a pin names a URL that the reader did not allow
    │   ├── ReplacedError                       a file was replaced after it was opened
    │   └── StorageUnavailableError             a store is unreachable, silent or overloaded: try again
    ├── CatalogError                            the SQL catalog
    │   ├── NotACatalogError                    the database is not a catalog
    │   ├── SchemaBehindError                   run `registry db upgrade`
    │   ├── SchemaAheadError                    written by a newer registry
    │   ├── ClockError                          the clock contradicts the event log, or jumped
    │   ├── CatalogPermissionError (PermissionError)  the database user lacks a right, or the catalog is read-only
    │   ├── CatalogRefusedError                 the server does not accept this user, password or database
    │   └── CatalogUnavailableError             busy, locked, or not answering: try again
    │       └── KeyRunningError                 the call with this idempotency key is still running
    ├── OutOfRangeError (StopIteration)         a data provider has returned its last record
    ├── ReaderFailedError (RuntimeError)        a user-defined reader failed in the middle of a file
    └── MissingExtraError (ImportError)         an optional dependency is not installed

Programs read the fields: ``code`` is stable, ``details`` contains the location (span, key path, file and offset) as
plain values, and ``hint`` says what to do. ``str(error)`` is the message without the hint. Passwords in URLs are masked
in all of them. Warnings derive from ``RegistryWarning``. A bug of the registry, a broken invariant, is an
``AssertionError``: the command line asks for a bug report only in that case.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from registry.envelope import to_plain
from registry.escaping import point_at, printable
from registry.masking import mask


class RegistryWarning(UserWarning):
    """Base of the registry's warnings: the call succeeded, but there is something to note."""


class YankedVersionWarning(RegistryWarning):
    """A look-up by an exact number or an alias returned a yanked version."""


class CatalogUnavailableWarning(RegistryWarning):
    """The catalog cannot be reached; a version is described from what this machine remembers of it."""


class SchemaAheadWarning(RegistryWarning):
    """The catalog has the next schema, from a newer release; this release can read it, but does not change it."""


class UnknownFeatureWarning(RegistryWarning):
    """A dataset has features of an unknown class or form; they are read as their stored values."""


class TwoRecordsWarning(RegistryWarning):
    """Items were requested in separate calls and belong to two records; TF-Slim returns items of one record."""


class AbsentFeatureWarning(RegistryWarning):
    """No record contains a declared feature, so all its values are defaults."""


class NullLabelWarning(RegistryWarning):
    """A class label is null in some rows of an import; it is stored as -1, which means no label."""


class ValuesOutsideWarning(RegistryWarning):
    """Records have values that their feature does not allow, such as a number that belongs to no class."""


class ContinuedRunWarning(RegistryWarning):
    """A verification of all versions continues an interrupted run, and skips the versions that it has verified."""


class LeftoverWarning(RegistryWarning):
    """Files that are no longer needed could not be removed; a later run removes them."""


class WaitingWarning(RegistryWarning):
    """A publication waits, because the database or the store does not answer; see ``REGISTRY_PUBLISH_TIMEOUT``."""


class MirrorWarning(RegistryWarning):
    """A location of a version failed, and its files are read from another location instead."""


class RegistryError(Exception):
    """Base of every error of the registry.

    Attributes:
        code: stable, machine-readable name of the error. A class without its own has the code of its base.
        exit_code: exit code of the command line.
        noun: the kind of name that was not found, for the message of ``NotFoundError``.
        message: what is wrong, in one or more lines.
        hint: what to do, or None. A traceback shows it below the message.
        details: location and values, as plain JSON.
    """

    code: ClassVar[str] = "registry_error"
    exit_code: ClassVar[int] = 1
    noun: ClassVar[str] = "name"

    def __init_subclass__(cls, code: str | None = None, exit_code: int | None = None, noun: str | None = None) -> None:
        super().__init_subclass__()
        cls.code = cls.code if code is None else code
        cls.exit_code = cls.exit_code if exit_code is None else exit_code
        cls.noun = cls.noun if noun is None else noun

    def __init__(self, message: str, *, hint: str | None = None, details: Mapping[str, Any] | None = None) -> None:
        message = mask(message)
        super().__init__(message)
        self.message = message
        self.hint = None if hint is None else mask(hint)
        self.details: dict[str, Any] = to_plain(details or {})
        if self.hint is not None:
            self.add_note(f"hint: {self.hint}")  # a traceback shows notes; the command line prints the hint itself

    def __str__(self) -> str:
        return self.message

    def rephrase(self, *, text: str | None = None, hint: str | None = None) -> None:
        """Reword the error for another kind of caller. Its code and details do not change.

        Args:
            text: the new message. None keeps the message.
            hint: the new hint. None keeps the hint.
        """
        if text is not None:
            self.message = mask(text)
            self.args = (self.message,)
        if hint is not None:
            before, self.hint = f"hint: {self.hint}", mask(hint)
            self.__notes__ = [note for note in getattr(self, "__notes__", []) if note != before]
            self.add_note(f"hint: {self.hint}")

    def _render_traceback_(self) -> list[str]:
        """The traceback that IPython prints: the caller's frames, the error and its hint, and what caused it.

        IPython's own traceback shows the registry's frames with the code around each line, which took 20 KB.
        """
        import traceback

        folder = __file__.removesuffix("errors.py")
        frames = [
            frame
            for frame in traceback.extract_tb(self.__traceback__)
            if not frame.filename.startswith(folder) and "/IPython/core/" not in frame.filename
        ]
        lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
        lines += traceback.format_exception_only(self)
        cause = self.__cause__
        for _ in range(10):  # an error may be its own cause: raise error from error
            cause = cause.__cause__ if isinstance(cause, RegistryError) else cause
        if cause is not None and not isinstance(cause, RegistryError):
            lines += ["caused by:\n", *traceback.format_exception_only(cause)]
        return mask(printable("".join(lines))).splitlines()

    def __reduce__(self) -> tuple[Any, ...]:
        # Worker processes send errors back. Pickled by fields, because subclasses take different arguments.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[RegistryError], arguments: tuple[Any, ...], fields: dict[str, Any]) -> RegistryError:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(fields)
    return error


class UsageError(RegistryError, ValueError, code="usage", exit_code=2):
    """The call itself is wrong: an invalid option, value or combination."""


class ReferenceSyntaxError(UsageError, code="reference_syntax"):
    """A dataset reference, a version or a version request that does not parse."""


class SplitSyntaxError(UsageError, code="split_syntax"):
    """A split expression that does not parse; the message shows the place with a caret.

    ``details`` contains ``expression``, ``start`` and ``stop`` (the span, in characters) and ``expected``.
    """

    def __init__(self, expected: str, *, expression: str, start: int, stop: int, hint: str | None = None) -> None:
        super().__init__(
            f"{expected}\n{point_at(expression, start, stop)}",
            hint=hint or "Write a slice as name[from:to], e.g. train[:10%].",
            details={"expression": expression, "start": start, "stop": stop, "expected": expected},
        )


class SliceError(UsageError, code="slice"):
    """A slice that parses but cannot be resolved: out of range, reversed, or with too few records."""


class QueryError(UsageError, code="query"):
    """An SQL query that is not a single valid SELECT, names a column that does not exist, or cannot be computed."""


class CitationSyntaxError(UsageError, code="citation_syntax"):
    """A citation of a pin that does not parse; the message shows the place with a caret.

    ``details`` contains ``citation``, ``start`` and ``stop`` (the span, in characters) and ``expected``.
    """

    def __init__(self, expected: str, *, citation: str, start: int, stop: int, hint: str | None = None) -> None:
        super().__init__(
            f"{expected}\n{point_at(citation, start, stop)}",
            hint=hint
            or "Write dataset@version split #records sha256:digits, "
            "e.g. digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac. "
            "Undo what a PDF changed, such as hyphens at line breaks.",
            details={"citation": citation, "start": start, "stop": stop, "expected": expected},
        )


class StateMismatchError(UsageError, code="state_mismatch"):
    """A malformed state, or the state of another version, plan or order; ``details['differs']`` says which."""


class DataDirectoryMissingError(UsageError, code="data_directory_missing"):
    """A server's catalog records no data directory, and none was named. Local folders are not used as a default."""


class WrongTypeError(UsageError, TypeError, code="wrong_type"):
    """A value of the wrong type, e.g. a number where text is expected."""


class NotFoundError(RegistryError, LookupError, code="not_found", exit_code=3):
    """A name does not exist; the hint suggests the nearest existing names."""

    @classmethod
    def of(cls, name: str, known: Iterable[str], *, where: str = "", hint: str | None = None) -> NotFoundError:
        """The error for a ``name`` that is not in ``known``; ``where`` is the place that was searched."""
        names = list(known)
        message = f"no {cls.noun} {name!r}" + (f" in {where}" if where else "")
        return cls(message, hint=hint or suggest(name, names), details={"name": name, "known": names[:100]})


class CatalogNotFoundError(NotFoundError, code="catalog_not_found", noun="catalog"):
    """The SQLite file of a catalog does not exist, and the call does not create one."""


class DatasetNotFoundError(NotFoundError, code="dataset_not_found", noun="dataset"):
    """The catalog has no dataset of that name."""


class ConfigNotFoundError(NotFoundError, code="config_not_found", noun="config"):
    """The dataset has no config of that name, or the reference must name a config."""


class VersionNotFoundError(NotFoundError, code="version_not_found", noun="version"):
    """No published version matches the request."""


class VersionWithdrawnError(VersionNotFoundError, code="version_withdrawn", exit_code=6):
    """The requested version is yanked or dropped; the hint names versions that can be read instead."""


class AliasNotFoundError(NotFoundError, code="alias_not_found", noun="alias"):
    """The dataset has no alias of that name."""


class TokenNotFoundError(NotFoundError, code="token_not_found", noun="token"):
    """The catalog has no access token with that id."""


class WebhookNotFoundError(NotFoundError, code="webhook_not_found", noun="webhook"):
    """The catalog has no webhook with that id."""


class SplitNotFoundError(NotFoundError, KeyError, code="split_not_found", noun="split"):
    """The dataset version has no split of that name."""


class ExperimentNotFoundError(NotFoundError, code="experiment_not_found", noun="experiment"):
    """No experiment of that name was added to the catalog, or passed to the build of the version."""


class BuilderNotFoundError(NotFoundError, code="builder_not_found", noun="builder"):
    """No installed package offers a builder of that name."""


class PinNotFoundError(NotFoundError, KeyError, code="pin_not_found", noun="pin"):
    """The pin file has no pin of that name or expression."""


class ItemNotFoundError(NotFoundError, KeyError, ValueError, code="item_not_found", noun="item"):
    """The decoder or provider has no item of that name."""


class FeatureNotFoundError(NotFoundError, KeyError, code="feature_not_found", noun="feature"):
    """The dataset has no feature of that name, or an item handler asks for one that the decoder does not parse."""


class ConflictError(RegistryError, code="conflict", exit_code=4):
    """The call contradicts what is published."""


class VersionExistsError(ConflictError, code="version_exists"):
    """The version number is published with other content. A number is never used twice."""


class AliasMovedError(ConflictError, code="alias_moved"):
    """An alias does not point to the version that the caller expected: somebody moved it in the meantime.

    ``details`` has ``alias``, ``expected`` and ``found`` (numbers, or None for no alias), and ``by`` and ``at``: who
    moved it, and when.
    """


class ProtectedError(ConflictError, code="protected"):
    """A publication with ``promote=True``, although its dataset, config or catalog is protected.

    ``details`` contains ``version``, the reference, and ``protected``: ``name/config``, ``name``, or ``""`` for the
    whole catalog.
    """


class OtherSourceError(ConflictError, code="other_source"):
    """An addition has the name of a dataset from another source, and ``replace`` was not passed.

    ``details`` contains ``dataset`` and ``version``, its newest one; ``producer``, which made that version, and
    ``source``, which would be added, each with ``action``, ``kind`` and ``place``; and ``options``, the two ways out.
    """


class DatasetRenamedError(ConflictError, code="dataset_renamed"):
    """Publishing under a former name of a dataset, or renaming to a name that another dataset has or had."""


class NeighboursChangedError(ConflictError, code="neighbours_changed"):
    """Another version was published directly below or above this one while its number was being proved."""


class CatalogNotEmptyError(ConflictError, code="catalog_not_empty"):
    """A backup cannot be restored into a catalog that has rows; ``details['table']`` names a table with rows."""


class OtherDataDirectoryError(ConflictError, code="other_data_directory"):
    """The files of the catalog belong in another data directory than the named one."""


class KeyReusedError(ConflictError, code="idempotency_key_reused"):
    """The idempotency key of a call was already used for another call, whose answer is stored."""


class ReservedError(ConflictError, code="reserved"):
    """Another publisher holds a version's place in an object store; ``details`` says who and since when."""


class ReservationLostError(ReservedError, code="reservation_lost"):
    """The reservation for the files was released by somebody else: this process did not publish the version."""


class PartialFailureError(RegistryError, code="partial_failure"):
    """Some of several versions could not be imported or verified; ``__cause__`` is the first error.

    ``details['failed']`` lists the ``version`` and ``code`` of at most 100 of them.
    """


class LockedError(RegistryError, code="locked", exit_code=6):
    """A reference does not name an exact version while look-ups are locked; the hint names the exact version."""


class VerificationError(RegistryError, ValueError, code="verification_failed", exit_code=5):
    """Stored bytes differ from what was published."""


class CorruptRecordError(VerificationError, code="corrupt_record"):
    """The framing or checksum of a record is wrong: it is truncated, or has a flipped bit or a wrong length.

    ``details`` has ``path``, ``record`` (index in the file, from 0) and ``offset`` (of the record's first byte). They
    are empty if a DataLoader of torch has made the error again from the text of that of its worker.
    """

    def __init__(self, problem: str, *, path: str = "", record: int | None = None, offset: int | None = None) -> None:
        where = "" if offset is None else f" at byte {offset}"
        super().__init__(
            problem if not path else f"{path}: record {record}{where}: {problem}",
            hint="The file is damaged or truncated. Fetch or build it again; `registry verify` names every bad shard.",
            details={"path": path, "record": record, "offset": offset, "problem": problem},
        )


class CorruptExampleError(VerificationError, code="corrupt_example"):
    """A record that is not a tf.train.Example, or does not contain the dataset's features."""


class ShardMismatchError(VerificationError, code="shard_mismatch"):
    """A shard whose size, number of records or sha256 differs from the one in the catalog."""


class ForeignShardError(ShardMismatchError, code="foreign_shard"):
    """An intact shard, in which every checksum is correct, but which is not the published file."""


class VersionTooSmallError(VerificationError, code="version_too_small"):
    """The changes since the next lower version, or up to the next higher one, require a larger step of the number.

    ``details`` contains ``base``, ``level`` (patch, minor, major), ``smallest`` and ``changes``.
    """


class LogTamperedError(VerificationError, code="log_tampered"):
    """The event log or rows of the catalog were changed by other software; ``details['faults']`` lists the places."""


class SiteHistoryError(LogTamperedError, code="site_history"):
    """The event log of a site does not continue the log that this machine read from it before.

    ``details`` contains ``url``; ``event`` and ``hash`` of the last event that was read before; ``kind``:
    ``rolled back`` or ``forked``; ``first``, the first event that is missing or differs, or None if it is unknown; and
    ``file``, which stores the head of the log.
    """


class SiteMismatchError(VerificationError, code="site_mismatch"):
    """The catalog of a site differs from the description in its index, or contains what a site must not contain.

    ``details`` contains ``url``; ``field``, such as ``sha256``, ``num_bytes``, ``head`` or ``num_events``; and
    ``expected`` and ``found``, if they are known.
    """


class PinChangedError(VerificationError, code="pin_changed"):
    """A pin file was edited; ``details['key']`` is the path of the changed field, if it can be determined."""


class RecordsMismatchError(VerificationError, code="records_mismatch"):
    """Records differ from the pinned ones; ``details['faults']`` has the file, record, features and digests of each."""


class SignatureError(VerificationError, code="signature"):
    """A signature that is invalid, or belongs to another file or key."""


class PinFormatError(RegistryError, ValueError, code="pin_format", exit_code=VerificationError.exit_code):
    """A file that is not a pin file, or contains invalid values; the message lists every fault with its key path.

    ``details['faults']`` lists them: ``key`` (``pins[0].files[2].num_bytes``), ``line`` (from 1, or None), ``problem``.
    """

    @classmethod
    def of(
        cls, source: str, faults: Iterable[tuple[str, int | None, str]], *, hint: str | None = None
    ) -> PinFormatError:
        """The error for a file; each fault is key path (``""`` for the whole file), line and problem."""
        result = list(faults)
        told = []
        for key, line, problem in result[:20]:
            where = ", ".join(filter(None, (f"line {line}" if line else "", key)))
            told.append(f"{where}: {problem}" if where else problem)
        if len(result) > 20:
            told.append(f"and {len(result) - 20} more")
        body = told[0] if len(told) == 1 else "".join(f"\n  {fault}" for fault in told)
        return cls(
            f"{source}: {body}" if len(told) == 1 else f"{source}: {len(result)} faults{body}",
            hint=hint or "Get the file again from where it was published, or create a new one: registry pin create",
            details={
                "file": source,
                "faults": [{"key": key, "line": line, "problem": problem} for key, line, problem in result[:1000]],
            },
        )


class BackupFormatError(RegistryError, ValueError, code="backup_format", exit_code=VerificationError.exit_code):
    """A file that is not a backup of a catalog, or is damaged, truncated or changed.

    ``details`` contains ``file``, ``line`` (from 1) and ``problem``.
    """


class SiteFormatError(RegistryError, ValueError, code="site_format", exit_code=VerificationError.exit_code):
    """A file that is not the index of a site, or is damaged; ``details`` has ``file``, ``key`` and ``problem``."""


class PreparedFormatError(RegistryError, ValueError, code="prepared_format"):
    """A folder that is not a prepared dataset, or a malformed JSON file in it (``details['key']`` is the path)."""


class FeatureError(RegistryError, ValueError, code="feature"):
    """A value that does not fit its feature, or a feature schema that contradicts itself.

    ``details['feature']`` is the feature's path, nested names joined by ``/``.
    """


class SourceError(RegistryError, ValueError, code="source"):
    """Data that cannot be added: unreadable, ambiguous, or of no known kind; the message names the file and line."""


class UnusableRowsError(SourceError, code="unusable_rows"):
    """Rows or files that cannot be used. Names the first 20; ``details`` holds ``num_bad`` and ``bad``."""


class BuildError(RegistryError, code="build"):
    """A builder that failed."""


class DuplicateKeyError(BuildError, code="duplicate_key"):
    """Two examples of a split have the same key, or keys with the same hash; the message names both."""


class StorageError(RegistryError, OSError, code="storage"):
    """Bytes could not be read or written: permission denied, disk full, a path that leaves its folder.

    ``errno`` is the number from the operating system, if any; ``details`` contains ``path``, ``errno`` and ``doing``.
    """


class AlreadyStoredError(StorageError, FileExistsError, code="already_stored"):
    """A file or folder of that name exists, and is replaced only on request."""


class FolderExistsError(AlreadyStoredError, code="folder_exists"):
    """The final name of a staged folder is taken: another process, or an earlier run, published there."""


class NotStoredError(StorageError, FileNotFoundError, code="not_stored"):
    """No file of that name is stored."""


class FetchNotAllowedError(StorageError, PermissionError, code="fetch_not_allowed", exit_code=6):
    """A URL that a pin names was not requested, because the reader did not allow it.

    ``details['allow']`` is the value for ``--allow-host``, or None if nothing can allow it.
    """


class ReplacedError(StorageError, code="replaced"):
    """A file was replaced after it was opened, or after its ETag was recorded."""


class StorageUnavailableError(StorageError, code="storage_unavailable", exit_code=75):
    """A store cannot be reached, does not answer, is overloaded, or cuts off its answers; trying again may help.

    Raised after the retries that ``registry.storage.network.Limits`` allows; ``details['tries']`` says how many.
    """


class CatalogError(RegistryError, code="catalog"):
    """The SQL catalog failed."""


class NotACatalogError(CatalogError, code="not_a_catalog"):
    """The database does not hold a catalog, or the file is not a database."""


class SchemaBehindError(CatalogError, code="schema_behind", exit_code=8):
    """The catalog was created by an older release and must be upgraded first."""


class SchemaAheadError(CatalogError, code="schema_ahead", exit_code=8):
    """The catalog was created by a newer release."""


class ClockError(CatalogError, code="clock"):
    """A write was refused, because the clock that would date it contradicts the event log, or jumped.

    ``details`` contains ``clock``, its time, and either ``event`` and ``at``, or ``seconds``, the length of a jump.
    """


class CatalogPermissionError(CatalogError, PermissionError, code="catalog_permission_denied"):
    """The database user lacks a right, or the catalog is read-only; the hint says how to change that."""


class CatalogRefusedError(CatalogError, PermissionError, code="catalog_refused"):
    """The database server refuses the connection, and would refuse it again.

    ``details`` contains ``reason``: ``password`` (missing or wrong), ``user``, ``database`` (it does not exist),
    ``rule`` (of pg_hba.conf, or of an option in the URL) or ``other``; and ``sqlstate``, or None if libpq does not
    report it.
    """


class CatalogUnavailableError(CatalogError, code="catalog_unavailable", exit_code=75):
    """The database is busy, locked or not answering; trying again may help."""


class KeyRunningError(CatalogUnavailableError, code="idempotency_key_running", exit_code=75):
    """The call with this idempotency key is still running: request its answer again later.

    ``details['retry_after']`` is the number of seconds to wait.
    """


class OutOfRangeError(RegistryError, StopIteration, code="out_of_range"):
    """A data provider has returned its last record; the name is TensorFlow's."""


class ReaderFailedError(RegistryError, RuntimeError, code="reader_failed"):
    """A user-defined reader failed while it read a file; ``__cause__`` is the exception that it raised.

    ``details`` contains ``path``, ``reader``, ``record`` (the number of records before) and ``key`` (of the last one).
    """


class MissingExtraError(RegistryError, ImportError, code="missing_extra"):
    """An optional dependency is not installed; the hint contains the command that installs it."""

    def __init__(self, *, package: str, extra: str, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs the package {package!r}, which is not installed",
            hint=f"Install it with: pip install 'shardbook[{extra}]'",
            details={"package": package, "extra": extra},
        )


_spelling: Callable[[str, Any], str | None] | None = None
"""How hints spell arguments while a command runs. All threads of the process share it."""


def spell(name: str, value: Any = None) -> str:
    """How a hint spells an argument of a public call: ``skip_bad=3``, or ``--skip-bad 3`` while a command runs.

    Args:
        name: the name of the argument in Python; ``key=COLUMN`` means any value.
        value: its value, which is quoted; None for the argument's name alone.

    >>> spell("features", {"unit price": "Text"})
    "features={'unit price': 'Text'}"
    >>> spell("key=COLUMN"), spell("split_by")
    ('key=COLUMN', '`split_by`')
    """
    lone = name if "=" in name else f"`{name}`"
    words = lone if value is None else f"{name}={value!r}"
    return words if _spelling is None else _spelling(name, value) or f"{words} in Python"


@contextmanager
def hints_spelled_by(spelling: Callable[[str, Any], str | None]) -> Iterator[None]:
    """Let hints that are created in the block spell arguments with ``spelling(name, value)``; see ``spell``.

    If it returns None, they name the argument of Python.
    """
    global _spelling  # noqa: PLW0603 (there is one command in a process)
    before, _spelling = _spelling, spelling
    try:
        yield
    finally:
        _spelling = before


_PASSED_ON: Final = frozenset({"registry", "contextlib", "functools"})


def warn(message: str, category: type[RegistryWarning] = RegistryWarning) -> None:
    """Issue a warning that points to the innermost caller outside of this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED_ON:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def at_record(error: RegistryError, place: int) -> RegistryError:
    """Add the index of the record in the block to the details of an error about a damaged record; return the error."""
    if not isinstance(error, CorruptExampleError):
        return error
    fault = CorruptExampleError(error.message, hint=error.hint, details={**error.details, "record": place})
    fault.__cause__ = error
    return fault


@contextmanager
def require_extra(extra: str, *, package: str, needed_for: str) -> Iterator[None]:
    """Turn a failing import of ``package`` in the block into a MissingExtraError that names the ``extra``.

    >>> try:
    ...     with require_extra("torch", package="no_such_package", needed_for="a read into torch"):
    ...         import no_such_package
    ... except MissingExtraError as error:
    ...     print(error)
    a read into torch needs the package 'no_such_package', which is not installed
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "registry":
            raise  # a failing import of another module is not a missing extra
        raise MissingExtraError(package=package, extra=extra, needed_for=needed_for) from error


def suggest(name: str, known: Iterable[str], *, have: str = "There are:", most: int = 10) -> str | None:
    """The hint for an unknown ``name``: the nearest known name, and a list of at most ``most`` known names.

    >>> suggest("tran", ["train", "test"])
    "Did you mean 'train'? There are: train, test."
    """
    import difflib  # takes 7 ms, and is needed only after a mistake

    names = list(map(str, known))
    if not names:
        return None
    listed = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
    nearest = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    return (f"Did you mean {nearest[0]!r}? " if nearest else "") + f"{have} {listed}."
