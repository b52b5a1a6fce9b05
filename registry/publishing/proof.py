"""Proves a version number against the next lower and the next higher version.

The step between two numbers is compared with the changes that ``compare_versions`` finds. A step that is too small is
refused; a step that is larger than needed is noted. Withdrawn versions count too, because they may have been read.
``diff_versions`` shows the same changes down to the record. ``publish`` calls this before it writes the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from registry.catalog import CatalogBackend, PublishedShards, load_shards
from registry.envelope import fields_of
from registry.errors import MissingExtraError, StorageError, VerificationError, VersionTooSmallError, spell
from registry.model import Advance, DatasetVersion, SplitFingerprint, Version, whole_number
from registry.publishing.changes import ChangeLevel, Changes, FingerprintedVersion, compare_versions
from registry.publishing.fingerprint import Fingerprints, StoredSplits, fingerprint_splits
from registry.publishing.record_diff import RecordDiff, TooManyRecordsError, diff_records, first_difference
from registry.publishing.verify import verify_shards
from registry.shards import MirroredStore, ProvedStore
from registry.storage import Store, open_location, open_locations
from registry.tfrecord import IndexFolder

_MOST_TOLD: Final = 5
_SUMMARY: Final = {
    ChangeLevel.NONE: "the same content as",
    ChangeLevel.PATCH: "the same records and features as",
    ChangeLevel.MINOR: "the same records, with more features, as",
}


def _reasons(changes: Changes, records: Sequence[RecordDiff]) -> str:
    """The differences that decide the level in one line: ``p is Text, was float64; 1 record added``."""
    of_split = {record.split: record for record in records if not record.is_equal}
    reasons = []
    for change in changes.reasons:
        diff = of_split.get(change.where) if change.kind == "records" else None
        if diff is not None and diff.is_reordered:  # the change says so
            diff = None
        where = f"{change.where}: " if diff is not None and len(changes.differing) > 1 else ""
        reasons.append(change.brief if diff is None else f"{where}{diff}")
    more = len(reasons) - _MOST_TOLD
    return "; ".join(reasons[:_MOST_TOLD]) + (f"; and {more:,} more" if more > 0 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The step from one version up to the next, and its changes."""

    old: DatasetVersion
    new: DatasetVersion
    changes: Changes

    @property
    def says(self) -> ChangeLevel:
        """The changes that the two numbers allow."""
        return ChangeLevel.between(self.old.version, self.new.version)

    def sides(self, version: DatasetVersion, files: StoredSplits) -> tuple[DatasetVersion | StoredSplits, ...]:
        """Both versions, but ``files`` for the one that is ``version``, which is not published yet."""
        return tuple(files if side is version else side for side in (self.old, self.new))

    @property
    def is_too_small(self) -> bool:
        """Whether the changes exceed what the numbers allow."""
        return self.changes.level > self.says


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The result of comparing a version number with the changes.

    Attributes:
        version: the version to publish.
        lower: the step from the next lower version; None for the first version.
        higher: the step to the next higher version; None if that has another MAJOR or does not exist.
        neighbours: the next lower and higher numbers, with any MAJOR.
        is_smallest_taken: whether ``smallest`` is already used.
    """

    version: DatasetVersion
    lower: Step | None
    higher: Step | None
    neighbours: tuple[Version | None, Version | None]
    is_smallest_taken: bool = False

    @property
    def smallest(self) -> Version | None:
        """The smallest number that the changes allow; None if nothing is published below, or no number is left."""
        return None if self.lower is None else self.lower.changes.smallest

    @property
    def refused(self) -> Step | None:
        """The step that is too small; None if the number is allowed."""
        return next((step for step in (self.lower, self.higher) if step is not None and step.is_too_small), None)

    @property
    def note(self) -> str:
        """The result in one line; ``""`` for the first version of a dataset."""
        return "" if self.lower is None else self.describe(self.lower.changes)

    def describe(self, changes: Changes, records: Sequence[RecordDiff] = ()) -> str:
        """The result in one line, with the ``records`` of ``changes``, which are those since the lower version."""
        is_larger = self.smallest not in (None, self.version.version)
        if changes.level is ChangeLevel.MAJOR:
            because = f"MAJOR because: {_reasons(changes, records)}"
            return f"{because} ({self.smallest} would be enough)" if is_larger else because
        summary = f"{_SUMMARY[changes.level]} {changes.old}"
        return f"{summary}: {self.smallest} would be enough" if is_larger else summary

    def refusal(self, first: str = "") -> VersionTooSmallError:
        """The error for a refused number; ``first`` describes the first record that differs."""
        step = self.refused
        if step is None:
            raise AssertionError("the number is not refused")
        changes, is_lower = step.changes, step is self.lower
        heaviest = [change.text for change in changes.changes if change.level is changes.level]
        lines = heaviest[:_MOST_TOLD]
        lines += [f"and {len(heaviest) - _MOST_TOLD} more"] if len(heaviest) > _MOST_TOLD else []
        lines += [first] if first else []
        may = f"the changes {'exceed' if is_lower else 'would exceed'} a {step.says.name} version"
        where = f"since {changes.old} {may}" if is_lower else f"in {changes.new} {may}"
        if not is_lower:
            hint = f"Use a number above {step.new.version}, or another MAJOR number."
        elif self.smallest is None:
            hint = f"No number is left after {step.old.version}. Publish it under another dataset name."
        else:
            hint = f"The smallest number that may follow {step.old.version} is {self.smallest}."
            hint += " It is already used: raise the highest version." if self.is_smallest_taken else ""
        return VersionTooSmallError(
            "\n  ".join([f"{self.version.reference} is too small a number: {where}", *lines]),
            hint=hint,
            details={
                "base": str(changes.old if is_lower else changes.new),
                "level": changes.level.part,
                "smallest": str(self.smallest) if is_lower and self.smallest else None,
                "changes": [change.text for change in changes.changes[:100]],
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prover:
    """Proves numbers against a catalog.

    Attributes:
        data: the data directory: locations of published versions are relative to it.
        actor: recorded with fingerprints that are computed for older versions. None: do not store them.
        processes: the number of processes that compute fingerprints. None: decide by size.
        advance: called with the number of records read since the last call.
    """

    catalog: CatalogBackend
    data: Store
    actor: str | None = None
    processes: int | None = None
    indexes: IndexFolder | None = None
    advance: Advance | None = None

    def fingerprint(self, stored: StoredSplits, *, is_publication: bool = False) -> Fingerprints:
        """Compute the fingerprints of a version from its files, and find values that its features do not allow."""
        return fingerprint_splits(stored, is_publication=is_publication, processes=self.processes, advance=self.advance)

    def describe(self, version: DatasetVersion) -> FingerprintedVersion:
        """Return a published version with its fingerprints: from the catalog, or computed if its files can be read.

        They are computed only from files that are byte for byte the published ones, because later proofs use them.
        """
        result = self.catalog.fingerprints(version)
        if result:
            return FingerprintedVersion(version=version, fingerprints=result)
        try:
            result = dict(self.fingerprint(self._whole_files(version)).folded.fingerprints)
        except (StorageError, VerificationError, MissingExtraError) as error:
            why = error.message.partition("\n")[0]
            return FingerprintedVersion(version=version, fingerprints={}, unread=f"its files cannot be read: {why}")
        if self.actor is not None:
            self.catalog.add_fingerprints(version, result, actor=self.actor)
        return FingerprintedVersion(version=version, fingerprints=result)

    def files(self, version: DatasetVersion | StoredSplits) -> StoredSplits:
        """Return the files of a published version. Each is checked against its published sha256 when it is opened.

        Files that are not published yet are returned as they are.
        """
        if isinstance(version, StoredSplits):
            return version
        first, others = open_locations(self.data, version.locations)
        proved = ProvedStore(
            first,
            PublishedShards.of_version(self.catalog.shards, version),
            file_format=version.file_format,
            indexes=self.indexes,
            hint=f"To list every damaged shard: registry verify {version.reference}",
        )
        store = MirroredStore(proved, others, reference=str(version.reference)) if others else proved
        return StoredSplits.of(version, store)

    def _whole_files(self, version: DatasetVersion) -> StoredSplits:
        """The files at the first location of a published version that has all of them.

        Raises:
            StorageError, VerificationError, MissingExtraError: no location has; the error of the first one.
        """
        promised = {split.name: load_shards(self.catalog.shards, version, split.name) for split in version.splits}
        errors: list[StorageError | VerificationError | MissingExtraError] = []
        for location in version.locations:
            try:
                files = StoredSplits.of(version, open_location(self.data, location))
                report = verify_shards(
                    files.store, version.splits, promised, indexes=self.indexes, advance=self.advance
                )
                report.raise_for_faults(str(version.reference))
            except (StorageError, VerificationError, MissingExtraError) as error:
                errors.append(error)
            else:
                return files
        raise errors[0]

    def prove(self, version: DatasetVersion, fingerprints: Mapping[str, SplitFingerprint]) -> Proof:
        """Compare ``version``, which has these ``fingerprints``, with its neighbours."""
        new = FingerprintedVersion(version=version, fingerprints=fingerprints)
        below, above = self.catalog.neighbours(version.name, version.config, version.version)
        lower = higher = None
        if below is not None:
            lower = Step(old=below, new=version, changes=compare_versions(self.describe(below), new))
        if above is not None and above.version.major == version.version.major:
            higher = Step(old=version, new=above, changes=compare_versions(new, self.describe(above)))
        neighbours = (None if below is None else below.version, None if above is None else above.version)
        smallest = None if lower is None else lower.changes.smallest
        digest = None if smallest is None else self.catalog.published_digest(version.name, version.config, smallest)
        is_taken = digest is not None
        return Proof(version=version, lower=lower, higher=higher, neighbours=neighbours, is_smallest_taken=is_taken)

    def require(
        self, version: DatasetVersion, fingerprints: Mapping[str, SplitFingerprint], files: StoredSplits
    ) -> Proof:
        """Call ``prove``, and refuse a number that is too small. ``files`` are the files of ``version``.

        Raises:
            VersionTooSmallError: names the changes, the first record that differs, and the smallest allowed number.
        """
        proof = self.prove(version, fingerprints)
        step = proof.refused
        if step is None:
            return proof
        try:
            first = first_difference(step.changes, *map(self.files, step.sides(version, files)))
        except (StorageError, VerificationError, MissingExtraError):
            first = None  # the published files cannot be read here, so only blocks of records can be named
        raise proof.refusal("" if first is None else f"{first[0]} {first[1]}")


def prove_by_fingerprints(
    catalog: CatalogBackend, data: Store, version: DatasetVersion, fingerprints: Mapping[str, SplitFingerprint]
) -> Proof | None:
    """Compare a version with its neighbours without reading a file. Returns None if one has no fingerprints."""
    neighbours = catalog.neighbours(version.name, version.config, version.version)
    if not fingerprints or not all(catalog.fingerprints(other) for other in neighbours if other is not None):
        return None
    return Prover(catalog=catalog, data=data).prove(version, fingerprints)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDiff:
    """All differences between two versions.

    ``records`` covers the splits that both have. ``unread`` says why records were not compared, or is ``""``.
    """

    changes: Changes
    records: tuple[RecordDiff, ...]
    unread: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The differences in lines for people: changes, then records."""
        changes = self.changes
        if not changes.changes:
            return (f"{changes.old} and {changes.new} have the same content",)
        lines = [f"{changes.old} -> {changes.new}: {changes.level.name}"]
        lines += [f"  {change.level.name:<5}  {change.text}" for change in changes.changes]
        for diff in self.records:
            if diff.is_equal:
                continue
            counts = fields_of(diff, "changed", "added", "removed", "moved") | {"unchanged": diff.same}
            counted = [f"{number:,} {word}" for word, number in counts.items() if number]
            lines += [f"  {diff.split}: {', '.join(counted)}", *(f"    {record}" for record in diff.first)]
            if diff.first and (more := diff.num_differing - len(diff.first)) > 0:
                lines.append(f"    and {more:,} more: {spell('show', diff.num_differing)}")
        return tuple(lines)

    def to_json(self) -> dict[str, Any]:
        """The differences as plain values."""
        return {
            "level": self.changes.level.name.lower(),
            **fields_of(self.changes, "old", "new", "smallest"),
            "changes": self.changes.to_json(),
            "records": [record.to_json() for record in self.records],
            "unread": self.unread,
        }

    def __str__(self) -> str:
        return "\n".join((*self.lines, *[f"records were not compared one by one: {self.unread}"] * bool(self.unread)))

    def __repr__(self) -> str:
        return f"<VersionDiff {self.changes.old} -> {self.changes.new}: {self.changes.level.name}>"

    def _repr_html_(self) -> str:
        from registry.markup import panel

        return panel(self.lines[0], *str(self).splitlines()[1:])


_MOST_COMPARED: Final = 100_000
_MOST_COMPARED_BYTES: Final = 64 * 2**20
_MOST_DECODED: Final = 4_000
_MOST_DECODED_BYTES: Final = 8 * 2**20
"""What ``diff_few`` compares as bytes of each version, and decodes of both: each takes a fraction of a second."""


def diff_few(
    prover: Prover,
    changes: Changes,
    old: DatasetVersion,
    new: StoredSplits | DatasetVersion,
    *,
    show: int,
    most_bytes: int = _MOST_COMPARED_BYTES,
) -> VersionDiff:
    """``diff_files`` for publishing and showing a version: runs only if few records may differ, so that it is fast.

    At most ``most_bytes`` of each version are compared; the limits of compared and decoded records are in proportion.
    """
    whole_number(show, "show", least=0)
    num_records, num_bytes = [0, 0], [0, 0]
    for place, splits in enumerate((old.splits, new.splits)):
        for split in splits:
            differing = sum(len(pair[place]) for pair in changes.differing.get(split.name, ()))
            num_records[place] += differing
            num_bytes[place] += split.num_bytes * differing // max(1, split.num_examples)
    share = most_bytes / _MOST_COMPARED_BYTES
    most = min(_MOST_DECODED, _MOST_DECODED_BYTES * sum(num_records) // max(1, sum(num_bytes)))
    try:
        if max(num_records) > share * _MOST_COMPARED or max(num_bytes) > most_bytes:
            raise TooManyRecordsError
        return diff_files(prover, changes, old, new, show=show, most_decoded=int(share * most))
    except TooManyRecordsError:
        command = f"registry diff {changes.old} {changes.new}"
        unread = f"{max(num_records):,} may differ, which takes a while: {command}"
    return VersionDiff(changes=changes, records=(), unread=unread)


def diff_versions(
    prover: Prover, old: DatasetVersion, new: DatasetVersion, *, show: int = 5, most_bytes: int | None = None
) -> VersionDiff:
    """Return the differences between two published versions. At most ``show`` records of each split are described.

    ``most_bytes`` limits what is read, see ``Catalog.diff``.

    Raises:
        UsageError: ``show`` is negative.
    """
    if most_bytes is not None:
        first, second = (
            FingerprintedVersion(version=version, fingerprints=prover.catalog.fingerprints(version))
            for version in (old, new)
        )
        return diff_few(prover, compare_versions(first, second), old, new, show=show, most_bytes=most_bytes)
    changes = compare_versions(prover.describe(old), prover.describe(new))
    return diff_files(prover, changes, old, new, show=show)


def diff_files(
    prover: Prover,
    changes: Changes,
    old: DatasetVersion | StoredSplits,
    new: DatasetVersion | StoredSplits,
    *,
    show: int,
    most_decoded: int | None = None,
) -> VersionDiff:
    """Return ``changes`` with the records that differ, if the files of both versions can be read here.

    Raises:
        TooManyRecordsError: more than ``most_decoded`` records would have to be decoded.
    """
    whole_number(show, "show", least=0)
    try:
        records = diff_records(
            changes,
            prover.files(old),
            prover.files(new),
            show=show,
            processes=prover.processes,
            advance=prover.advance,
            most_decoded=most_decoded,
        )
    except (StorageError, VerificationError, MissingExtraError) as error:
        return VersionDiff(changes=changes, records=(), unread=error.message)
    return VersionDiff(changes=_with_orders(changes, records), records=records)


def _with_orders(changes: Changes, records: Sequence[RecordDiff]) -> Changes:
    """``changes``, which say that a split has other values, for splits that only have another order."""
    moved = {record.split: record for record in records if record.is_reordered}
    is_partial = any(change.kind == "features" for change in changes.changes)
    equal = "no value of the other features changed" if is_partial else "no value changed"
    result = []
    for change in changes.changes:
        diff = moved.get(change.where) if change.kind == "records" else None
        if diff is not None:
            text = f"the records of split {diff.split} are in another order ({diff.moved:,} moved), {equal}"
            result.append(replace(change, text=text, brief=text))
        else:
            result.append(change)
    return replace(changes, changes=tuple(result))
