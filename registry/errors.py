"""Every exception of the registry, and the exit code and hint that go with it.

    RegistryError
    ├── UsageError (ValueError)                 the call itself is wrong
    │   ├── ReferenceSyntaxError                a reference, version or request that does not parse
    │   ├── SplitSyntaxError                    a split expression that does not parse
    │   ├── SliceError                          a slice that parses and cannot be resolved
    │   ├── CitationSyntaxError                 a citation of a pin that does not parse
    │   ├── StateMismatchError                  a state of another read than the one that is to go on
    │   └── WrongTypeError (TypeError)          a value of a type that cannot be used there
    ├── NotFoundError (LookupError)             nothing of that name
    │   ├── DatasetNotFoundError
    │   ├── ConfigNotFoundError
    │   ├── VersionNotFoundError
    │   │   └── VersionWithdrawnError           what answers is yanked or dropped
    │   ├── AliasNotFoundError
    │   ├── SplitNotFoundError
    │   ├── ExperimentNotFoundError
    │   ├── BuilderNotFoundError
    │   ├── PinNotFoundError (KeyError)
    │   ├── ItemNotFoundError (KeyError, ValueError)
    │   └── FeatureNotFoundError (KeyError)
    ├── ConflictError                           somebody was there before
    │   ├── VersionExistsError                  that number is published with other content
    │   ├── AliasMovedError                     an alias stands elsewhere than the caller expected
    │   ├── ProtectedError                      a canonical version that only a promotion moves
    │   ├── NeighboursChangedError              a version beside it was published meanwhile: prove again
    │   └── ReservedError                       others hold the place of a version in an object store
    │       └── ReservationLostError            it was ours, and was taken away
    ├── LockedError                             a reference that may move, where look-ups have to be exact
    ├── VerificationError (ValueError)          stored bytes are not what was promised
    │   ├── CorruptRecordError                  framing or checksum of one record
    │   ├── CorruptExampleError                 a record that is no example, or not of these features
    │   ├── ShardMismatchError                  size, count or sha256 of a shard
    │   │   └── ForeignShardError               a whole file of records that were not promised
    │   ├── LogTamperedError                    the event log, or rows, were changed past the registry
    │   ├── PinChangedError                     a pin file that is not as it was written
    │   ├── RecordsMismatchError                records that are not those of a pin
    │   ├── SignatureError                      a signature that does not hold
    │   └── VersionTooSmallError                what changed asks for a larger step of the version number
    ├── PreparedFormatError (ValueError)        a folder or file that is no prepared dataset
    ├── PinFormatError (ValueError)             a file that is no pin file; every fault with its key path
    ├── FeatureError (ValueError)               a value that does not fit its feature, or a bad schema
    ├── BuildError                              a builder that cannot be run to its end
    │   └── DuplicateKeyError
    ├── StorageError (OSError)                  bytes could not be read or written
    │   ├── AlreadyStoredError (FileExistsError)
    │   │   └── FolderExistsError               the final name of a staged folder is taken
    │   ├── NotStoredError (FileNotFoundError)
    │   ├── FetchNotAllowedError (PermissionError)  a place that somebody else named, and the reader did not agree to
    │   └── StorageUnavailableError             a store that is unreachable, silent or overloaded: try again
    ├── CatalogError                            the SQL catalog
    │   ├── NotACatalogError                    a database that holds something else
    │   ├── SchemaBehindError                   run `registry db upgrade`
    │   ├── SchemaAheadError                    written by a newer registry
    │   └── CatalogUnavailableError             busy, locked, or not answering: try again
    ├── OutOfRangeError (StopIteration)         a data provider has handed out its last record
    ├── ReaderFailedError (RuntimeError)        a reader of somebody's own failed in the middle of a file
    └── MissingExtraError (ImportError)         an optional dependency is not installed

Warnings are ``RegistryWarning`` (UserWarning), of which there are ``UnknownFeatureWarning``, ``YankedVersionWarning``,
``TwoRecordsWarning``, ``AbsentFeatureWarning``, ``NullLabelWarning`` and ``LeftoverWarning``.

Fields come first, prose second: ``code`` is stable and machine-readable, ``details`` holds the place
(span, key path, file and offset) as plain values, ``hint`` says what to do now. ``str(error)`` is the
message alone; the command line prints the hint below it. Passwords in URLs are masked in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from registry.masking import mask, mask_all


class RegistryWarning(UserWarning):
    """Base of every warning of the registry: what was asked for was done, and there is something to know."""


class YankedVersionWarning(RegistryWarning):
    """A look-up gave a version that was yanked: it was named exactly, or by an alias."""


class UnknownFeatureWarning(RegistryWarning):
    """A dataset has features of a class or form that is not known here, which are read as the raw values stored."""


class TwoRecordsWarning(RegistryWarning):
    """Items were asked for one after the other, and so they are of two records: TF-Slim gives those of one."""


class AbsentFeatureWarning(RegistryWarning):
    """A feature was declared that no record holds, so that there is nothing of it but defaults."""


class NullLabelWarning(RegistryWarning):
    """A class label is null in some rows of an import, and is stored as -1: no label."""


class LeftoverWarning(RegistryWarning):
    """Files that nobody needs any more could not be removed; a later run removes them."""


class RegistryError(Exception):
    """Base of everything the registry raises on purpose.

    Attributes:
        code: stable, machine-readable name of the fault, the same for every instance of a class.
        message: what is wrong, in one or more lines.
        hint: what to do now, or None where there is nothing to suggest.
        details: the fault's place and values, JSON-able.
    """

    code: ClassVar[str] = "registry_error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None, details: Mapping[str, Any] | None = None) -> None:
        message = mask(message)
        super().__init__(message)
        self.message = message
        self.hint = None if hint is None else mask(hint)
        self.details: dict[str, Any] = mask_all(dict(details or {}))

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # By its fields, not by __init__, whose arguments differ: a worker process sends errors home.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[RegistryError], arguments: tuple[Any, ...], fields: dict[str, Any]) -> RegistryError:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(fields)
    return error


class UsageError(RegistryError, ValueError):
    """The call itself is wrong: an option, a value or a combination that means nothing."""

    code = "usage"
    exit_code = 2


class ReferenceSyntaxError(UsageError):
    """A dataset reference, a version or a version request that does not parse."""

    code = "reference_syntax"


class SplitSyntaxError(UsageError):
    """A split expression that does not parse; the message draws a caret under the place.

    ``details`` holds ``expression``, ``start`` and ``stop`` (the span, in characters) and ``expected``.
    """

    code = "split_syntax"

    def __init__(self, expected: str, *, expression: str, start: int, stop: int, hint: str | None = None) -> None:
        super().__init__(
            f"{expected}\n{point_at(expression, start, stop)}",
            hint=hint or "Write a slice as name[from:to], e.g. train[:10%].",
            details={"expression": expression, "start": start, "stop": stop, "expected": expected},
        )


class SliceError(UsageError):
    """A slice that parses and cannot be resolved: out of range, reversed, too few records."""

    code = "slice"


class CitationSyntaxError(UsageError):
    """A citation of a pin that does not parse; the message draws a caret under the place.

    ``details`` holds ``citation``, ``start`` and ``stop`` (the span, in characters) and ``expected``.
    """

    code = "citation_syntax"

    def __init__(self, expected: str, *, citation: str, start: int, stop: int, hint: str | None = None) -> None:
        super().__init__(
            f"{expected}\n{point_at(citation, start, stop)}",
            hint=hint
            or "Write dataset@version split #records sha256:digits, "
            "e.g. digits@1.0.0 train[:80%] #1438 sha256:f9c5a485541c42ac.",
            details={"citation": citation, "start": start, "stop": stop, "expected": expected},
        )


class StateMismatchError(UsageError):
    """A reader's state that is of another version, plan or order, or is none; ``details['differs']`` says which."""

    code = "state_mismatch"


class WrongTypeError(UsageError, TypeError):
    """A value of a type that cannot be used there, e.g. a number where texts are to be filled in."""

    code = "wrong_type"


class NotFoundError(RegistryError, LookupError):
    """Nothing of that name; the hint offers the nearest names there are."""

    code = "not_found"
    exit_code = 3
    noun: ClassVar[str] = "name"

    @classmethod
    def of(cls, name: str, known: Iterable[str], *, where: str = "", hint: str | None = None) -> NotFoundError:
        """The error for ``name`` that is not among ``known``; ``where`` names the place that was searched."""
        names = list(known)
        message = f"no {cls.noun} {name!r}" + (f" in {where}" if where else "")
        return cls(message, hint=hint or suggest(name, names), details={"name": name, "known": names[:100]})


class DatasetNotFoundError(NotFoundError):
    """No dataset of that name in the catalog."""

    code = "dataset_not_found"
    noun = "dataset"


class ConfigNotFoundError(NotFoundError):
    """The dataset has no config of that name, or needs one to be named."""

    code = "config_not_found"
    noun = "config"


class VersionNotFoundError(NotFoundError):
    """No published version answers the request."""

    code = "version_not_found"
    noun = "version"


class VersionWithdrawnError(VersionNotFoundError):
    """What answers the request is yanked or dropped; the hint names what can be read instead."""

    code = "version_withdrawn"
    exit_code = 6


class AliasNotFoundError(NotFoundError):
    """The dataset has no alias of that name."""

    code = "alias_not_found"
    noun = "alias"


class SplitNotFoundError(NotFoundError):
    """The dataset version has no split of that name."""

    code = "split_not_found"
    noun = "split"


class ExperimentNotFoundError(NotFoundError):
    """No experiment of that name was added to the catalog, or was handed to the version that is built."""

    code = "experiment_not_found"
    noun = "experiment"


class BuilderNotFoundError(NotFoundError):
    """No installed package offers a builder of that name."""

    code = "builder_not_found"
    noun = "builder"


class PinNotFoundError(NotFoundError, KeyError):
    """The pin file has no pin of that name or expression: the error of a mapping that does not have a key."""

    code = "pin_not_found"
    noun = "pin"


class ItemNotFoundError(NotFoundError, KeyError, ValueError):
    """The decoder or provider has no item of that name."""

    code = "item_not_found"
    noun = "item"


class FeatureNotFoundError(NotFoundError, KeyError):
    """An item handler asks for a feature that the decoder does not parse."""

    code = "feature_not_found"
    noun = "feature"


class ConflictError(RegistryError):
    """Somebody was there before: what was asked for contradicts what is published."""

    code = "conflict"
    exit_code = 4


class VersionExistsError(ConflictError):
    """That version number is published, with other content. A number is never used twice."""

    code = "version_exists"


class AliasMovedError(ConflictError):
    """An alias stands elsewhere than the caller expected; somebody moved it meanwhile.

    ``details`` holds ``alias``, ``expected`` and ``found`` (numbers, or None for no alias), and ``by`` and ``at``: who
    moved it, and when.
    """

    code = "alias_moved"


class ProtectedError(ConflictError):
    """A publication was told to become canonical, and its dataset, config or catalog is protected.

    ``details`` holds ``version``, the reference, and ``protected``: ``name/config``, ``name``, or ``""`` for the whole
    catalog.
    """

    code = "protected"


class NeighboursChangedError(ConflictError):
    """While a version number was proved, another version was published right below or above it."""

    code = "neighbours_changed"


class ReservedError(ConflictError):
    """Others hold the place of a version in an object store, or took it over; ``details`` says who and since when."""

    code = "reserved"


class ReservationLostError(ReservedError):
    """The reservation under which files were put in place is not ours any more: the version was not published by us."""

    code = "reservation_lost"


class LockedError(RegistryError):
    """A reference that does not name one version exactly, where look-ups are locked; the hint names what it gives."""

    code = "locked"
    exit_code = 6


class VerificationError(RegistryError, ValueError):
    """Stored bytes are not what the catalog promises."""

    code = "verification_failed"
    exit_code = 5


class CorruptRecordError(VerificationError):
    """Framing or checksum of one record is wrong: truncated, a flipped bit, a wrong length.

    ``details`` holds ``path``, ``record`` (index in the file, from 0) and ``offset`` (of the record's first byte).
    """

    code = "corrupt_record"

    def __init__(self, problem: str, *, path: str, record: int, offset: int | None) -> None:
        where = "" if offset is None else f" at byte {offset}"
        super().__init__(
            f"{path}: record {record}{where}: {problem}",
            hint="The file is damaged or truncated. Fetch or build it again; `registry verify` names every bad shard.",
            details={"path": path, "record": record, "offset": offset, "problem": problem},
        )


class CorruptExampleError(VerificationError):
    """A record that is no tf.train.Example, or one that does not hold the dataset's features."""

    code = "corrupt_example"


class ShardMismatchError(VerificationError):
    """A shard whose size, number of records or sha256 is not the catalog's."""

    code = "shard_mismatch"


class ForeignShardError(ShardMismatchError):
    """A shard that is whole, every record with its checksum, and is another file than the catalog's."""

    code = "foreign_shard"


class VersionTooSmallError(VerificationError):
    """What changed since the version below (or until the one above) asks for a larger step of the number.

    ``details`` holds ``base``, ``level`` (patch, minor, major), ``smallest`` and ``changes``.
    """

    code = "version_too_small"


class LogTamperedError(VerificationError):
    """The event log, or rows of the catalog, were changed past the registry; ``details`` holds ``faults``."""

    code = "log_tampered"


class PinChangedError(VerificationError):
    """A pin file was changed since it was written; ``details['key']`` is the path of the field, where one was."""

    code = "pin_changed"


class RecordsMismatchError(VerificationError):
    """Records that are not those of a pin; ``details['faults']`` has file, record, features and digests of each."""

    code = "records_mismatch"


class SignatureError(VerificationError):
    """A signature that is not of this file, not of this key, or is none."""

    code = "signature"


class PinFormatError(RegistryError, ValueError):
    """A file that is no pin file, or holds values that cannot be; every fault with its key path.

    ``details['faults']`` lists them: ``key`` (``pins[0].files[2].num_bytes``), ``line`` (from 1, or None), ``problem``.
    """

    code = "pin_format"
    exit_code = VerificationError.exit_code

    @classmethod
    def of(
        cls, source: str, faults: Iterable[tuple[str, int | None, str]], *, hint: str | None = None
    ) -> PinFormatError:
        """The error for ``faults`` of the file ``source``: key path (``""`` for the whole file), line, problem."""
        found = list(faults)
        told = []
        for key, line, problem in found[:20]:
            where = ", ".join(filter(None, (f"line {line}" if line else "", key)))
            told.append(f"{where}: {problem}" if where else problem)
        if len(found) > 20:
            told.append(f"and {len(found) - 20} more")
        body = told[0] if len(told) == 1 else "".join(f"\n  {one}" for one in told)
        return cls(
            f"{source}: {body}" if len(told) == 1 else f"{source}: {len(found)} faults{body}",
            hint=hint or "Take the file again from where it was published, or make a new one: registry pin create",
            details={
                "file": source,
                "faults": [{"key": key, "line": line, "problem": problem} for key, line, problem in found[:1000]],
            },
        )


class PreparedFormatError(RegistryError, ValueError):
    """A folder that is no prepared dataset, or one of its JSON files is malformed (``details['key']`` is the path)."""

    code = "prepared_format"


class FeatureError(RegistryError, ValueError):
    """A value that does not fit its feature, or a feature schema that contradicts itself.

    ``details['feature']`` is the feature's path, nested names joined by ``/``.
    """

    code = "feature"


class BuildError(RegistryError):
    """A builder that cannot be run to its end."""

    code = "build"


class DuplicateKeyError(BuildError):
    """Two examples of a split have the same key, or keys that hash alike; the message names both."""

    code = "duplicate_key"


class StorageError(RegistryError, OSError):
    """Bytes could not be read or written: permission, disk full, a path that leaves its folder.

    ``errno`` is the operating system's number where there is one; ``details`` holds ``path``, ``errno`` and ``doing``.
    """

    code = "storage"


class AlreadyStoredError(StorageError, FileExistsError):
    """A file or folder of that name is stored already, and stored bytes are not replaced unasked."""

    code = "already_stored"


class FolderExistsError(AlreadyStoredError):
    """The name that a staged folder was to have is taken: somebody else published there, or a run died after it did."""

    code = "folder_exists"


class NotStoredError(StorageError, FileNotFoundError):
    """No file of that name is stored."""

    code = "not_stored"


class FetchNotAllowedError(StorageError, PermissionError):
    """A place that a pin names was not asked, because its reader did not agree to that.

    ``details['allow']`` is what ``--allow-host`` takes to agree, or None where nothing does.
    """

    code = "fetch_not_allowed"
    exit_code = 6


class StorageUnavailableError(StorageError):
    """A store cannot be reached, is silent or overloaded, or breaks off its answers; trying again may help.

    Raised after the retries that ``registry.storage.network.Limits`` allows; ``details['tries']`` says how many.
    """

    code = "storage_unavailable"
    exit_code = 75


class CatalogError(RegistryError):
    """The SQL catalog cannot do what was asked."""

    code = "catalog"


class NotACatalogError(CatalogError):
    """The database holds something else than a registry catalog, or the file is no database."""

    code = "not_a_catalog"


class SchemaBehindError(CatalogError):
    """The catalog was made by an older registry and has to be upgraded first."""

    code = "schema_behind"
    exit_code = 8


class SchemaAheadError(CatalogError):
    """The catalog was made by a newer registry than this one."""

    code = "schema_ahead"
    exit_code = 8


class CatalogUnavailableError(CatalogError):
    """The database is busy, locked or not answering; trying again may help."""

    code = "catalog_unavailable"
    exit_code = 75


class OutOfRangeError(RegistryError, StopIteration):
    """A data provider has handed out its last record: TensorFlow's name for the end of the data."""

    code = "out_of_range"


class ReaderFailedError(RegistryError, RuntimeError):
    """A reader of somebody's own failed while it read a file; ``__cause__`` is what it raised.

    ``details`` holds ``path``, ``reader``, ``record`` (how many it gave before) and ``key`` (of the last of them).
    """

    code = "reader_failed"


class MissingExtraError(RegistryError, ImportError):
    """An optional dependency is not installed; the hint holds the line that installs it."""

    code = "missing_extra"

    def __init__(self, *, package: str, extra: str, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs the package {package!r}, which is not installed",
            hint=f"Install it with: pip install 'shardbook[{extra}]'",
            details={"package": package, "extra": extra},
        )


def point_at(text: str, start: int, stop: int, *, indent: int = 4, width: int = 72) -> str:
    """Two lines: ``text`` and a caret under ``text[start:stop]``, tildes over the rest of the span.

    Long text is cut to a window around the place, and characters that would break the line are shown as spaces,
    so that the answer stays two short lines whatever was typed.

    >>> print(point_at("train[:1O%]", 8, 9))
        train[:1O%]
                ^
    """
    shown = "".join(character if character.isprintable() else " " for character in text)
    start = min(max(start, 0), len(shown))
    stop = min(max(stop, start + 1), start + width)
    begin = max(0, min(start - width // 2, len(shown) - width))
    window = shown[begin : begin + width]
    prefix, suffix = ("…" if begin else ""), ("…" if begin + width < len(shown) else "")
    caret_column = indent + len(prefix) + start - begin
    marks = "^" + "~" * max(0, min(stop, begin + width + 1) - start - 1)
    return f"{' ' * indent}{prefix}{window}{suffix}\n{' ' * caret_column}{marks}"


def suggest(name: str, known: Iterable[str], *, have: str = "There are:", most: int = 10) -> str | None:
    """The hint for an unknown ``name``: the nearest of ``known``, or the names there are, ``most`` of them.

    >>> suggest("tran", ["train", "test"])
    "Did you mean 'train'? There are: train, test."
    """
    import difflib  # 7 ms that nobody spends who makes no mistake

    names = list(map(str, known))
    if not names:
        return None
    listed = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
    nearest = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    return (f"Did you mean {nearest[0]!r}? " if nearest else "") + f"{have} {listed}."
