"""Results of calls that process several versions: frozen sequences with one result for each version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self, TypeVar

from registry.errors import PartialFailureError, VerificationError
from registry.lazy import lazy_types
from registry.model import listed_below
from registry.splits import counted

if TYPE_CHECKING:  # numpy is loaded when something is verified
    from registry.catalog import Promotion
    from registry.errors import RegistryError
    from registry.intake.plan import Plan
    from registry.intake.source import BadRow, FileUse
    from registry.model import DatasetVersion, Reference, VersionState
    from registry.publishing import Publication, RecordOverlap, ValuesOutside, VerifyReport, VersionDiff
    from registry.publishing.changes import Changes
    from registry.publishing.garbage import Leftover
else:
    lazy_types(
        globals(),
        {
            "registry.intake.plan": "Plan",
            "registry.intake.source": "BadRow FileUse",
            "registry.model": "DatasetVersion Reference",
            "registry.publishing": "Publication RecordOverlap VersionDiff",
            "registry.publishing.changes": "Changes",
        },
    )

_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class AddReport:
    """What ``Catalog.add`` did, or would do.

    Attributes:
        reference: the version that was published or would be published, or the version that already has this content.
        outcome: ``published``; ``unchanged`` if the highest version already has this content; or, for a dry run,
            ``would_publish``.
        plan: the source, its schema and its keys.
        splits: the number of records of each split.
        bad: the rows and files that were left out, at most 10,000 of them.
        num_bad: their number.
        latest: the previous highest version, or None.
        changes: the changes since ``latest``, which decide the number; None for the first version.
        diff: the same changes, down to records. When a version is published, a large number of records is not compared:
            ``diff.unread`` says how to compare them.
        publication: what was published; None for a dry run, or if nothing was published.
        notes: what to do if the same content comes with other metadata.
        overlap: the equal records of different splits; its slices are ``splits``. None if the splits have no records in
            common, or if the files stay in place.
    """

    reference: Reference
    outcome: Literal["published", "unchanged", "would_publish"]
    plan: Plan
    splits: Mapping[str, int]
    bad: tuple[BadRow, ...]
    num_bad: int
    latest: DatasetVersion | None
    changes: Changes | None
    diff: VersionDiff | None = None
    publication: Publication | None = None
    overlap: RecordOverlap | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:  # the repr of the dataclass would fill a screen of a notebook
        splits = ", ".join(f"{name} {number:,}" for name, number in self.splits.items())
        return f"<AddReport {self.reference} {self.outcome}: {splits}>"

    def _repr_html_(self) -> str:
        from registry.markup import panel, table

        lines = () if self.diff is None else self.diff.lines
        bad = f"{self.num_bad:,} rows were left out" * bool(self.num_bad)
        title = f"{self.reference}: {self.outcome.replace('_', ' ')}"
        return panel(title, table(("split", "examples"), self.splits.items()), *lines, bad)

    @property
    def num_examples(self) -> int:
        """The number of records."""
        return sum(self.splits.values())

    @property
    def suggested_key(self) -> str | None:
        """A unique column that could be the key; see ``Plan``."""
        return self.plan.suggested_key

    @property
    def has_grown(self) -> bool:
        """Whether records were added and, as far as they were compared, nothing else changed."""
        from registry.publishing import ChangeLevel

        if self.latest is None or self.changes is None or self.changes.level is not ChangeLevel.MAJOR:
            return False
        if any(change.kind not in ("records", "metadata", "storage") for change in self.changes.changes):
            return False
        before = {split.name: split.num_examples for split in self.latest.splits}
        is_larger = all(self.splits[name] >= number for name, number in before.items()) and self.num_examples > sum(
            before.values()
        )
        records = () if self.diff is None else self.diff.records
        return is_larger and not any(record.changed or record.removed or record.moved for record in records)

    @property
    def files(self) -> tuple[FileUse, ...]:
        """What happened to each file, or to the files of each folder."""
        return tuple(self.plan.source.files)


class _Result(Protocol):
    @property
    def error(self) -> RegistryError | None: ...


class _ResultWithOutcome(_Result, Protocol):
    @property
    def outcome(self) -> StrEnum: ...


Result = TypeVar("Result", bound=_Result)
ResultWithOutcome = TypeVar("ResultWithOutcome", bound=_ResultWithOutcome)


class _Report(tuple[Result, ...]):
    """A frozen sequence of results."""

    __slots__ = ()
    _noun, _done = "version", ""  # the subject of a result, and the participle of the action, for messages

    @property
    def failed(self) -> tuple[Result, ...]:
        """The results that were refused or are not sound."""
        return tuple(result for result in self if self._error_of(result) is not None)

    def require_all(self) -> Self:
        """Return the report, or raise if something was refused.

        Raises:
            PartialFailureError: something was refused. The message lists the versions and reasons.
        """
        errors = [(self._name_of(result), error) for result in self if (error := self._error_of(result)) is not None]
        if not errors:
            return self
        lines = listed_below([f"{name}: {error.message}" for name, error in errors], _SHOWN)
        first = errors[0][1]
        raise PartialFailureError(
            f"{len(errors):,} of {counted(len(self), self._noun)} could not be {self._done}:{lines}",
            hint=first.hint,
            details={"failed": [{self._noun: name, "code": error.code} for name, error in errors[:100]]},
        ) from first

    def _error_of(self, result: Result) -> RegistryError | None:
        return result.error

    def _name_of(self, result: Result) -> str:
        return str(getattr(result, "reference", result))


class _OutcomeReport(_Report[ResultWithOutcome]):
    """A report whose results have one of several outcomes."""

    @property
    def counts(self) -> Mapping[StrEnum, int]:
        """The number of results for each outcome that occurred."""
        outcomes = [result.outcome for result in self]
        kinds = type(outcomes[0]) if outcomes else ()
        return {outcome: outcomes.count(outcome) for outcome in kinds if outcome in outcomes}

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in self.counts.items())
        return f"<{type(self).__name__}: {counts or 'no versions'}>"


class ImportOutcome(StrEnum):
    """The outcome for one version folder.

    ``imported``: it was published now. ``known``: the same content was published before. ``found``: a dry run found it.
    ``refused``: it was not published, and ``ImportedVersion.error`` says why.
    """

    IMPORTED = "imported"
    KNOWN = "known"
    FOUND = "found"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedVersion:
    """One version folder that an import found.

    Attributes:
        folder: the path or URL of the folder.
        outcome: see ``ImportOutcome``.
        reference: the version, or None if the files that describe it could not be read.
        num_examples, num_shards: numbers of records and files, from the files that describe the version.
        num_bytes: bytes of the shard files if they were read, else of the serialized records.
        promotion: the effect on the canonical version if it was imported or known, else None.
        notes: what readers of the version should know.
        outside: values that a feature does not allow; each is also a ``ValuesOutsideWarning``.
        error: the reason for a refusal, else None.
    """

    folder: str
    outcome: ImportOutcome
    reference: Reference | None = None
    num_examples: int = 0
    num_shards: int = 0
    num_bytes: int = 0
    promotion: Promotion | None = None
    notes: tuple[str, ...] = field(default=())
    outside: tuple[ValuesOutside, ...] = ()
    error: RegistryError | None = None


class ImportReport(_OutcomeReport[ImportedVersion]):
    """The result of ``Catalog.import_tfds``: one ``ImportedVersion`` for each version folder, in the order found.

    report = catalog.import_tfds("~/tensorflow_datasets")
    print(report)               # <ImportReport: 12 imported, 1 refused>
    for version in report.failed:
        print(version.folder, version.error)
    report.require_all()        # raises if a version was refused
    """

    _done = "imported"

    def _name_of(self, result: ImportedVersion) -> str:
        return str(result.reference or result.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedVersion:
    """The result of verifying one version: a report, or the error that prevented it.

    Attributes:
        reference: the version.
        state: its state in the catalog, e.g. ``supported`` or ``yanked``.
        report: what was compared and what differs, or None if there is an error.
        error: why the version could not be verified, or None.
        seconds: the duration.
        verified_before: the time of an earlier run that found the version sound, if it was skipped for this reason.
    """

    reference: Reference
    state: VersionState
    report: VerifyReport | None = None
    error: RegistryError | None = None
    seconds: float = field(default=0.0, compare=False)
    verified_before: datetime | None = None

    @property
    def is_sound(self) -> bool:
        """Whether every shard matches the published one, now or when an earlier run compared it."""
        if self.verified_before is not None:
            return True
        return self.report is not None and not self.report.faults


class CatalogReport(_Report[VerifiedVersion]):
    """The result of ``Catalog.verify_all``: one ``VerifiedVersion`` for each version that is not dropped.

    report = catalog.verify_all()
    print(report)               # <CatalogReport: 41 of 42 versions match what was published>
    report.require_sound()      # raises if one does not
    """

    _done = "verified"

    @property
    def num_sound(self) -> int:
        """The number of versions whose shards all match what was published."""
        return sum(result.is_sound for result in self)

    @property
    def is_sound(self) -> bool:
        """Whether all versions match what was published."""
        return self.num_sound == len(self)

    def require_sound(self) -> Self:
        """Return the report, or raise if a version does not match what was published.

        Raises:
            PartialFailureError: a version does not match, or could not be verified. The message lists the versions and
                reasons.
        """
        return self.require_all()

    def _error_of(self, result: VerifiedVersion) -> RegistryError | None:
        if result.is_sound:
            return None
        if result.error is not None or result.report is None:
            return result.error or VerificationError("not verified")
        problems = [fault.problem for fault in result.report.faults]
        return VerificationError(f"{problems[0]}{f', and {len(problems) - 1:,} more' if len(problems) > 1 else ''}")

    def __repr__(self) -> str:
        return f"<CatalogReport: {self.num_sound:,} of {counted(len(self), 'version')} match what was published>"


class CopyOutcome(StrEnum):
    """The outcome for one version.

    ``copied``: the version, or files that the target lacked, were copied. ``known``: the target already had it.
    ``found``: a dry run would copy it. ``refused``: it was not copied, and ``CopiedVersion.error`` says why.
    """

    COPIED = "copied"
    KNOWN = "known"
    FOUND = "found"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedVersion:
    """One version that was copied or refused.

    Attributes:
        reference: the version.
        outcome: see ``CopyOutcome``.
        folder: the path or URL of its folder in the target.
        num_examples, num_shards, num_bytes: records, files and bytes of files.
        num_attachments: attachments that the target lacked, which were or would be copied.
        only_files: the target already had the version, but lacked files, which were or would be copied.
        promotion: the effect on the canonical version of the target if it was copied or known, else None.
        notes: what readers of the version should know.
        error: the reason for a refusal, else None.
    """

    reference: Reference
    outcome: CopyOutcome
    folder: str
    num_examples: int
    num_shards: int
    num_bytes: int
    num_attachments: int = 0
    only_files: bool = False
    promotion: Promotion | None = None
    notes: tuple[str, ...] = field(default=())
    error: RegistryError | None = None


class CopyReport(_OutcomeReport[CopiedVersion]):
    """The result of ``Catalog.copy``: one ``CopiedVersion`` for each version, in the order of copying.

    report = catalog.copy("mnist", other)
    print(report)               # <CopyReport: 3 copied, 1 known>
    report.require_all()        # raises if a version was refused
    """

    _done = "copied"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocationReport:
    """The result of comparing the files at one location of a version: a report, or the error that prevented it.

    Attributes:
        location: the location as the catalog records it.
        url: the complete path or URL.
        report: what was compared and what differs, or None if there is an error.
        error: why the location could not be compared, or None.
        num_lacking: the number of attachments that a mirror lacks, which is allowed; readers find them elsewhere.
    """

    location: str
    url: str
    report: VerifyReport | None = None
    error: RegistryError | None = None
    num_lacking: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether every file there is the published one."""
        return self.report is not None and not self.report.faults


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocatedVersion:
    """One location below a folder that was moved.

    Attributes:
        reference: the version.
        before, after: the location before and after.
        is_dry_run: whether this was a dry run, which writes nothing.
        error: the reason for a refusal, else None.
    """

    reference: Reference
    before: str
    after: str
    is_dry_run: bool = False
    error: RegistryError | None = None


class RelocationReport(_Report[RelocatedVersion]):
    """The result of ``catalog.mirrors.relocate_all``: one ``RelocatedVersion`` for each location that was found."""

    _done = "relocated"

    def __repr__(self) -> str:
        return f"<RelocationReport: {len(self) - len(self.failed):,} of {counted(len(self), 'version')} relocated>"


class GarbageReport(_OutcomeReport["Leftover"]):
    """The result of ``Catalog.collect_garbage``: one ``Leftover`` for each piece of garbage.

    report = catalog.collect_garbage(dry_run=True)
    print(report)              # <GarbageReport: 3 found, 1 kept>
    report.require_all()       # raises if something could not be removed

    ``notes`` say what could not be searched for.
    """

    _noun, _done = "leftover", "removed"
    notes: tuple[str, ...]

    def __new__(cls, results: Iterable[Leftover], *, notes: Iterable[str] = ()) -> Self:
        """``notes`` are sentences about what could not be searched for."""
        report = super().__new__(cls, results)
        report.notes = tuple(notes)
        return report

    def of(self, outcome: str) -> tuple[Leftover, ...]:
        """The leftovers with this outcome: ``found``, ``removed``, ``kept``, ``unknown`` or ``failed``."""
        return tuple(result for result in self if result.outcome == outcome)

    def _name_of(self, result: Leftover) -> str:
        return result.place

    def __repr__(self) -> str:
        return super().__repr__().replace("no versions", "clean")
