"""Publishes a prepared folder as a version: verifies it, proves its number, moves it into place, and writes one row.

    folder -> shards verified -> number proved -> moved into place -> row        (Candidate)

``registry.api`` calls it for builds, ``registry publish`` and imports. The number is proved before anything is moved
(``proof``). Files come first and the row last. If a run is killed, the next one finds:

    while staging        an ``incomplete.*`` folder, or one in TMPDIR, that readers do not see; the next run removes it
    while placing        on a disk nothing, because it is one rename; in an object store some files (``object_place``)
    after the move       a complete folder without a row; the next run verifies it and writes the row
    in the transaction   the same as after the move
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from registry.building.publication_folds import NOT_FOLDED, Folded
from registry.catalog import (
    CatalogBackend,
    DataDirectory,
    Promotion,
    PublicationDetails,
    Unpromoted,
    is_published,
)
from registry.engines import Piece, choose_engine
from registry.errors import (
    ConflictError,
    CorruptRecordError,
    NeighboursChangedError,
    NotFoundError,
    NotStoredError,
    OtherDataDirectoryError,
    PreparedFormatError,
    ShardMismatchError,
    StorageError,
    StorageUnavailableError,
    VersionExistsError,
    VersionTooSmallError,
    warn,
)
from registry.model import (
    DESCRIBED_FIELDS,
    Advance,
    Attachment,
    DatasetMetadata,
    DatasetVersion,
    Description,
    NameUse,
    Producer,
    ProgressCallback,
    Shard,
    SlicingRule,
    Split,
    SplitFingerprint,
    check_new_name,
    count_progress,
    is_absolute,
    rename_note,
    shards_by_filename,
    version_folder,
)
from registry.prepared import (
    PreparedDataset,
    extra_files,
    is_description,
    read_prepared,
    write_default_config,
    write_prepared,
)
from registry.prepared.info import FILENAME as INFO_FILENAME
from registry.publishing.attachments import put_attachments, with_contents
from registry.publishing.fingerprint import StoredSplits
from registry.publishing.markers import location_key, remove_marker, require_unmarked
from registry.publishing.outside import ValuesOutside, warn_outside
from registry.publishing.patience import Patience
from registry.publishing.placing import place_folder
from registry.publishing.proof import Proof, Prover, VersionDiff, diff_files
from registry.publishing.verify import (
    VerifyReport,
    absolute_location,
    describe_version,
    name_rule,
    stamp_shards,
    verify_shards,
)
from registry.shards import check_file_format
from registry.storage import StagedFolder, Store
from registry.tfrecord import IndexFolder

_MOST_RIVALS: Final = 100
_MOST_WORDS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The result of publishing.

    ``newly`` is False if the same content was published before; then nothing is proved. ``promotion`` says which
    version was canonical before, which is now, and why it did not change if they are the same. ``notes`` describe files
    that an earlier run left, and what was done with them. ``outside`` lists values that a feature does not allow, if
    the records were read. ``recorded_data_dir`` is the data directory that the catalog records since this publication,
    if it was the first.
    """

    version: DatasetVersion
    newly: bool
    num_bytes: int
    promotion: Promotion
    proof: Proof | None = None
    notes: tuple[str, ...] = ()
    outside: tuple[ValuesOutside, ...] = ()
    recorded_data_dir: str | None = None

    def __repr__(self) -> str:  # the one of the dataclass fills a screen of a notebook
        splits = ", ".join(f"{split.name} {split.num_examples:,}" for split in self.version.splits)
        return f"<Publication {self.version.reference} {'published' if self.newly else 'as before'}: {splits}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The result that publishing would have. ``diff`` is None for the first version of a dataset."""

    proof: Proof
    is_published: bool
    diff: VersionDiff | None

    @property
    def refusal(self) -> VersionTooSmallError | None:
        """Why the number would be refused, or None if it is allowed or the same content is already published."""
        return None if self.is_published or self.proof.refused is None else self.proof.refusal()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The destination and the options of a publication.

    Attributes:
        store: the data directory.
        catalog: receives the row.
        data_dir: returns the record of ``store`` in the catalog, for versions that are published below it. None leaves
            the record alone.
        promote: make the version canonical. None: do so if it is at least as high as the canonical version, which is
            not protected.
        actor: the publisher, for the event log.
        default_config: make its config the default config.
        processes: the number of processes that compute fingerprints. None: decide by size.
        slicing: the rule of its split expressions.
        experiment_defaults: the defaults of experiments that the build used. None: those at the time of publication.
        requires_number: refuse a number that is too small for the changes. If False, ``Publication.proof`` reports it:
            for imports, whose numbers were chosen elsewhere.
        trust_lengths: hash the shards without reading records, and trust the recorded shard lengths. The number is then
            not proved, values are not checked, and fingerprints are computed later.
        indexes: records which files were hashed, so that readers on this machine need not hash them again.
        advance: called with the number of records done since the last call.
        patience: repeats the steps after the work while the catalog or the store does not answer. The default does not
            wait.
        progress: called with a ``Progress`` while shards are uploaded to an object store.
        producer: the producer of the version, for the event of the publication.
        name_use: the origin of its name, if the catalog checks that ``producer`` may continue the dataset.
        description: metadata that people gave, independent of its folder.
    """

    store: Store
    catalog: CatalogBackend
    promote: bool | None
    actor: str
    data_dir: Callable[[], DataDirectory | None] | None = None
    default_config: bool = False
    processes: int | None = None
    slicing: SlicingRule = SlicingRule.DOCUMENTED
    experiment_defaults: Mapping[str, bool] | None = None
    requires_number: bool = True
    trust_lengths: bool = False
    indexes: IndexFolder | None = None
    advance: Advance | None = None
    progress: ProgressCallback | None = None
    producer: Producer | None = None
    name_use: NameUse | None = None
    description: Description = field(default_factory=Description)
    patience: Patience = field(default_factory=Patience)

    def data_dir_of(self, version: DatasetVersion) -> DataDirectory | None:
        """The record of the data directory for the row of a new ``version``; None if its files are elsewhere.

        Raises:
            DataDirectoryMissingError, OtherDataDirectoryError: the row would name a place that other clients do not
                use.
        """
        if self.data_dir is None or is_absolute(version.location):
            return None
        return self.data_dir()

    def write_row(
        self,
        version: DatasetVersion,
        shards: Mapping[str, tuple[Shard, ...]],
        details: PublicationDetails,
        *,
        has_row: bool = False,
    ) -> Publication:
        """Publish the version in the catalog with these options, and return the result.

        ``has_row`` means that the same content was published before, which needs no record of the data directory.
        """
        while True:
            data_dir = None if has_row else self.patience.call(partial(self.data_dir_of, version))
            call = partial(
                self.catalog.publish,
                version,
                shards,
                promote=self.promote,
                default_config=self.default_config,
                actor=self.actor,
                details=replace(details, experiment_defaults=self.experiment_defaults, data_dir=data_dir),
            )
            try:
                promotion = self.patience.call(call)
                break
            except OtherDataDirectoryError:
                if data_dir == self.data_dir_of(version):  # else it was recorded meanwhile
                    raise
        is_recorded = promotion is not None and data_dir is not None and data_dir.is_new
        return Publication(
            version=version,
            newly=promotion is not None,
            recorded_data_dir=data_dir.place if data_dir is not None and is_recorded else None,
            num_bytes=sum(shard.num_bytes for of_split in shards.values() for shard in of_split),
            promotion=promotion or self.patience.call(partial(unchanged, self.catalog, version)),
        )

    def prover(self, *, actor: str | None = None) -> Prover:
        """Return the prover. It stores fingerprints of older versions if ``actor`` is given."""
        return Prover(
            catalog=self.catalog,
            data=self.store,
            actor=actor,
            processes=self.processes,
            indexes=self.indexes,
            advance=self.advance,
        )

    def verify(
        self,
        folder: Store,
        splits: Sequence[Split],
        promised: Mapping[str, Sequence[Shard]] | None,
        *,
        what: str,
        walk: bool = True,
    ) -> VerifyReport:
        """Call ``verify_shards``, and raise an error that names ``what`` if there are faults.

        Without ``walk``, files are only hashed, because the frames of their records were checked or made before they
        were written, or folds will check them. If there are faults, they are walked to report what is wrong.
        """
        is_walk = walk and not self.trust_lengths
        report = verify_shards(folder, splits, promised, walk=is_walk, indexes=self.indexes, advance=self.advance)
        if report.faults and not walk:
            return self.verify(folder, splits, promised, what=what)
        report.raise_for_faults(what)
        return report


def publish_staged(
    staged: StagedFolder,
    prepared: PreparedDataset,
    shards: Mapping[str, tuple[Shard, ...]],
    target: Target,
    *,
    measured: tuple[VerifyReport, Folded] | None = None,
    folded: Folded = NOT_FOLDED,
) -> Publication:
    """Verify the shards of ``staged`` against ``shards``, move the folder into place, and write the row.

    Args:
        staged: the folder.
        prepared: its description.
        shards: its shards as they were written.
        target: the destination and the options.
        measured: the report and what the folds computed, if the caller verified the shards a moment ago.
        folded: what the folds of a publication computed of the records that were written. If a split is missing, they
            run over the shards.

    Raises:
        ShardMismatchError: a shard on disk differs from what was written.
        VersionExistsError: the number is published with other content.
        VersionTooSmallError: the number is too small for the changes since the next lower version.
        ReservedError: another publisher has reserved the version's place in the object store.
        OtherSourceError: the dataset comes from another source.
        ConflictError: the version's folder contains other data that is not in the catalog.
    """
    patience = target.patience
    if measured is None:
        what = str(prepared.reference)
        report = patience.call(lambda: target.verify(staged.store, prepared.splits, shards, what=what, walk=False))
    else:
        report, folded = measured
    measured_candidate = Candidate.of(target, prepared, report, staged.store)
    candidate = patience.call(partial(measured_candidate.proved, folded))
    version = candidate.version
    contents = with_contents(folded.documents if candidate.has_row else candidate.folded.documents)
    if candidate.has_row:  # its files may be damaged, and replaced
        published = patience.call(partial(target.catalog.attachments, version))
        contents = {attachment: contents[attachment] for attachment in published if attachment in contents}
    put_attachments(staged.store, contents)
    sent = count_progress(target.progress, "uploading", str(version.reference), total=report.num_bytes, unit="bytes")
    placing = place_folder(
        staged, target.store, target.catalog, version, shards, actor=target.actor, sent=sent, patience=patience
    )
    with placing as placement:
        known = patience.call(partial(target.catalog.published, version.name, version.config, version.version))
        # The folder of a version that is published already has another name if its dataset was renamed.
        home = version.location if known is None or is_absolute(known.location) else known.location
        candidate = candidate.moved(target.store.child(home))
        shards = tag_shards(version.splits, shards, placement.entity_tags)
        contents = patience.call(partial(_fold_missing, candidate, contents))
        if candidate.has_row or target.store.local_root is not None:  # the folder of an earlier run may lack them
            patience.call(partial(put_attachments, candidate.files.store, contents))
        details = PublicationDetails(held=placement.held, attachments=tuple(contents))
        publication = candidate.write_row(shards, details)
    tell_default_config(candidate.version, target)
    warn_outside(candidate.version.reference, publication.outside)
    return replace(publication, notes=(*publication.notes, *patience.take_notes(), *placement.notes))


def _fold_missing(candidate: Candidate, contents: dict[Attachment, bytes]) -> dict[Attachment, bytes]:
    """``contents``, or those of the placed files if the row names an attachment that the folder lacks."""
    if not candidate.has_row:
        return contents
    attachments, folder = candidate.target.catalog.attachments(candidate.version), candidate.files.store
    if any(file not in contents and not folder.exists(file.place) for file in attachments):
        contents = with_contents(candidate.fingerprinted().folded.documents)
    return {attachment: contents[attachment] for attachment in attachments if attachment in contents}


def publish_folder(
    source: Store,
    target: Target,
    *,
    prepared: PreparedDataset | None = None,
    in_place: bool = False,
    version_to_prepare: str | None = None,
    stamp: str | None = None,
    measured: Candidate | None = None,
) -> Publication:
    """Publish the prepared version folder ``source``: in place if it has its final place, or else a copy of it.

    Args:
        source: the folder.
        target: the destination and the options.
        prepared: the description of the folder, if it should not be read from its files.
        in_place: leave the files where they are, and write nothing there.
        version_to_prepare: the last version of the builder's code that can prepare it, if the current code cannot.
        stamp: the result of ``stamp_shards`` before the caller measured the files.
        measured: these files under another number, if the caller verified and folded them.

    Raises:
        PreparedFormatError: the folder is not a prepared dataset.
        ReferenceSyntaxError: the dataset's name is invalid for a new dataset.
        ShardMismatchError: shards contradict ``dataset_info.json``; each is named. Or a shard changed meanwhile.
        VersionExistsError: the number is published with other content.
        VersionTooSmallError: the number is too small for the changes since the next lower version.
        ReservedError: another publisher has reserved the version's place in the object store.
        ConflictError: the version's folder contains other data that is not in the catalog.
    """
    patience = target.patience
    if in_place:
        absolute_location(source)  # refuses a URL with a password now, not after an hour of hashing
    prepared = replace(prepared or read_prepared(source), version_to_prepare=version_to_prepare)
    is_at_home = source.url == target.store.child(version_folder(prepared.name, prepared.config, prepared.version)).url
    stamp = stamp or stamp_shards(source, prepared)
    report = None if measured is None else measured.report
    candidate = _measure(source, prepared, target, report, walk=not (is_at_home or in_place))
    candidate = replace(candidate, is_in_place=not is_at_home and in_place)
    folded = NOT_FOLDED if measured is None or not candidate.is_in_place else measured.folded
    version = candidate.version
    if not is_at_home and not in_place:
        target.store.clear_abandoned(version.location.rpartition("/")[0])
        with target.store.stage(version.location) as staged:
            _take_files(source, staged, candidate.prepared)
            return publish_staged(staged, candidate.prepared, candidate.report.shards, target)
    if not is_at_home:
        version = replace(version, location=absolute_location(source))
    unproved = replace(candidate, version=version)
    candidate = patience.call(partial(unproved.proved, folded))
    # Read the ETags before the second stamp: if both stamps are equal, the ETags belong to the bytes that were hashed.
    tags = patience.call(lambda: read_tags(source, version.splits))
    tagged = tag_shards(version.splits, candidate.report.shards, tags)
    if stamp_shards(source, prepared) != stamp:  # then hashes and fingerprints may belong to different records
        raise ShardMismatchError(
            f"{source.url}: a shard was changed during the publication",
            hint="Nothing was published. Try again when no program is writing to the folder.",
            details={"folder": source.url},
        )
    unreserved = None
    if source.local_root is None and not source.url.startswith(("http://", "https://")):
        patience.call(lambda: require_unmarked(source, target.catalog, version))
        unreserved = location_key(source)
    contents, attach_notes = _put_at_home(candidate) if is_at_home else ({}, [])
    details = PublicationDetails(unreserved=unreserved, attachments=tuple(contents))
    publication = candidate.write_row(tagged, details)
    if unreserved is not None:
        remove_marker(source, target.catalog, version)
    tell_default_config(candidate.version, target)
    warn_outside(candidate.version.reference, publication.outside)
    notes = patience.take_notes() + attach_notes
    if not is_at_home and publication.newly:
        notes += _note_changed_files(target.catalog, version, candidate.report.shards)
    return replace(publication, notes=(*publication.notes, *notes))


def _put_at_home(candidate: Candidate) -> tuple[dict[Attachment, bytes], list[str]]:
    """The attachments of a new version whose folder has its final place; none, and a note, if it is read-only."""
    contents = with_contents(candidate.folded.documents)
    try:
        candidate.target.patience.call(partial(put_attachments, candidate.files.store, contents))
    except StorageUnavailableError:
        raise
    except StorageError as error:
        kinds = ", ".join(sorted({attachment.kind for attachment in contents}))
        return {}, [
            f"its {kinds} were not attached, because its folder cannot be written: {error.message}; to attach them "
            f"from a machine that can write it: registry stats {candidate.version.reference} --compute"
        ]
    return contents, []


def _note_changed_files(
    catalog: CatalogBackend, version: DatasetVersion, shards: Mapping[str, Sequence[Shard]]
) -> list[str]:
    """A note for each version that was published from the same files and names other bytes of them."""
    present = shards_by_filename(version.splits, shards)
    notes = []
    for reference in sorted(catalog.published_at(version.location), key=str):
        if reference == version.reference:
            continue
        try:
            other = catalog.find(reference)
        except NotFoundError:  # dropped: nobody reads it
            continue
        if any(
            present.get(split.filename(shard.index), shard).sha256 != shard.sha256
            for split in other.splits
            for shard in catalog.shards.between(other, split.name, 0, split.num_shards)
        ):
            notes.append(
                f"{reference} was published from the same files, which have changed since, so it can no longer be read"
            )
    return notes


def preview_folder(source: Store, target: Target, *, show: int = 5) -> Preview:
    """Return the effect of ``publish_folder``, and all changes since the next lower version. Writes nothing.

    At most ``show`` differing records of each split are described.

    Raises:
        PreparedFormatError: the folder is not a prepared dataset.
        ShardMismatchError: shards contradict ``dataset_info.json``; each is named.
        VersionExistsError: the number is published with other content.
    """
    candidate = _measure(source, read_prepared(source), replace(target, indexes=None), walk=False)
    candidate = replace(candidate, is_in_place=True).fingerprinted()
    version, prover, files = candidate.version, target.prover(), candidate.files
    warn_outside(version.reference, candidate.outside)
    proof = prover.prove(version, candidate.fingerprints)
    step = proof.refused or proof.lower
    if step is None:
        return Preview(proof=proof, is_published=candidate.has_row, diff=None)
    diff = diff_files(prover, step.changes, *step.sides(version, files), show=show)
    return Preview(proof=proof, is_published=candidate.has_row, diff=diff)


def _measure(
    source: Store, prepared: PreparedDataset, target: Target, report: VerifyReport | None = None, *, walk: bool
) -> Candidate:
    """The version in ``source``, with verified shards. Refused if its number is published with other content.

    Without ``walk``, TFRecord files are only hashed: the folds of the candidate read them, and check every record.
    """
    check_file_format(prepared.file_format, source.url)
    if not prepared.splits:
        raise PreparedFormatError(
            f"{source.url}: dataset_info.json lists no splits",
            hint="There is nothing to publish. Prepare the dataset again.",
            details={"key": "splits"},
        )
    if target.catalog.published_digest(prepared.name, prepared.config, prepared.version) is None:
        check_new_name(prepared.name)  # now, not after an hour of verifying
    verify = partial(target.verify, source, prepared.splits, None, what=source.url)
    are_checked = walk or report is not None or prepared.file_format != "tfrecord"
    report = report or target.patience.call(lambda: verify(walk=are_checked))
    candidate = Candidate.of(target, prepared, report, source)
    try:
        has_row = target.patience.call(lambda: is_published(target.catalog, candidate.version))
    except VersionExistsError as error:
        if not are_checked:  # the content may only differ because a shard is damaged
            target.patience.call(verify)
        raise name_rule(error, prepared, report, target.slicing) from error
    return replace(candidate, has_row=has_row)


def _take_files(source: Store, staged: StagedFolder, prepared: PreparedDataset) -> None:
    """Take the shards, the description (or write one if it is missing), and other files next to the description.

    Other files that are not regular files within the folder, such as a link that leads out of it, are not taken.
    """
    for split in prepared.splits:
        for name in split.filenames:
            staged.take(source, name)
    if not source.exists(INFO_FILENAME):
        write_prepared(staged.store, prepared)
        return
    description = list(filter(is_description, source.list()))
    if read_prepared(source).name != prepared.name:  # published under a name that differs from the one in its files
        description = []
    written = [] if description else write_prepared(staged.store, prepared)
    for name in [*description, *(extra for extra in extra_files(source, prepared) if extra not in written)]:
        staged.take(source, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A verified version that has no row yet.

    Attributes:
        files: its files, which are read to prove its number, and again if adjacent versions are published in the
            meantime.
        folded: what the folds of a publication computed; nothing if nothing has to be proved.
        proof: the latest proof.
        outside: the values that a feature does not allow, if the records were read.
        has_row: whether the same content was published before.
        is_in_place: whether its files stay where they are: nothing is attached then, and so only fingerprints are
            computed.
    """

    target: Target
    prepared: PreparedDataset
    report: VerifyReport
    version: DatasetVersion
    files: StoredSplits
    folded: Folded = NOT_FOLDED
    proof: Proof | None = None
    outside: tuple[ValuesOutside, ...] = ()
    has_row: bool = False
    is_in_place: bool = False

    @classmethod
    def of(cls, target: Target, prepared: PreparedDataset, report: VerifyReport, store: Store) -> Candidate:
        """The version of a report without faults, whose files are in ``store``."""
        target.description.require_features(prepared.features)
        prepared = replace(prepared, metadata=target.description.apply(prepared.metadata))
        version = describe_version(prepared, report, target.slicing)
        files = StoredSplits(store, prepared.splits, prepared.features)
        return cls(target=target, prepared=prepared, report=report, version=version, files=files)

    @property
    def fingerprints(self) -> Mapping[str, SplitFingerprint]:
        """The fingerprints of all its splits; empty if nothing has to be proved."""
        return self.folded.fingerprints

    def fingerprinted(self, folded: Folded = NOT_FOLDED) -> Candidate:
        """This candidate with what the folds computed; they run over its files if a split is missing."""
        if folded.fingerprints.keys() == {split.name for split in self.files.splits}:
            return replace(self, folded=folded)
        try:
            folded, outside = self.target.prover().fingerprint(self.files, is_publication=not self.is_in_place)
        except (CorruptRecordError, ShardMismatchError):
            # Name every damaged shard.
            self.target.verify(self.files.store, self.files.splits, None, what=self.files.store.url)
            raise
        return replace(self, folded=folded, outside=outside)

    def proved(self, folded: Folded = NOT_FOLDED) -> Candidate:
        """This candidate with fingerprints and a proof, unless the same content is published or lengths are trusted."""
        if self.has_row or is_published(self.target.catalog, self.version):
            return replace(self, has_row=True)
        return self if self.target.trust_lengths else self.fingerprinted(folded)._proved()

    def moved(self, store: Store) -> Candidate:
        """This candidate with its files at their final place, where they are read if its number is proved again."""
        return replace(self, files=replace(self.files, store=store))

    def write_row(self, shards: Mapping[str, tuple[Shard, ...]], place: PublicationDetails) -> Publication:
        """Publish, and prove again whenever adjacent versions were published meanwhile.

        ``place`` has the reservation of its location, or the location that must not be reserved.
        """
        target, candidate = self.target, self
        for _ in range(_MOST_RIVALS):
            proof = candidate.proof
            details = replace(
                place,
                fingerprints=candidate.fingerprints,
                proved_between=None if proof is None else proof.neighbours,
                producer=target.producer,
                name_use=target.name_use,
            )
            try:
                result = target.write_row(self.version, shards, details, has_row=self.has_row)
            except NeighboursChangedError:
                if not candidate.fingerprints:
                    raise
                candidate = target.patience.call(candidate._proved)
            else:
                result = replace(result, outside=self.outside)
                return replace(result, proof=proof) if result.newly else self._with_notes(result)
        raise ConflictError(
            f"{self.version.reference}: adjacent versions were published {_MOST_RIVALS} times while its number was "
            "proved",
            hint="Nothing was changed. Try again later.",
        )

    def _with_notes(self, publication: Publication) -> Publication:
        """``publication``, which changed nothing, of the dataset as it is called now, with notes on what differs."""
        version, catalog = self.version, self.target.catalog
        published = catalog.published(version.name, version.config, version.version)
        if published is None:
            return publication
        notes = note_metadata(published, version.metadata)
        if (renamed := rename_note(published.name, version.name)) is None:
            return replace(publication, notes=notes)
        return replace(publication, version=published, notes=(renamed, *notes))

    def _proved(self) -> Candidate:
        prover = self.target.prover(actor=self.target.actor)
        if self.target.requires_number:
            return replace(self, proof=prover.require(self.version, self.fingerprints, self.files))
        return replace(self, proof=prover.prove(self.version, self.fingerprints))


def note_metadata(published: DatasetVersion, metadata: DatasetMetadata) -> tuple[str, ...]:
    """A note on what to do if the same content comes with other ``metadata`` than was published.

    Metadata that people gave for the published version takes precedence, unless they give other metadata now.
    """
    other = {
        name: value
        for name, field in DESCRIBED_FIELDS.items()
        if (value := getattr(metadata, field))
        and value != getattr(published.metadata, field)
        and (field in metadata.described or field not in published.metadata.described)
    }
    missing = [tag for tag in other.pop("tags", ()) if tag not in published.metadata.config_tags]
    if missing:  # describe adds tags
        other["tags"] = missing
    texts = [(name, value if isinstance(value, str) else ",".join(value)) for name, value in other.items()]
    tags = [("tag", tag) for tag in missing]
    words = " ".join(f"--{name} {shlex.quote(text)}" for name, text in [*texts, *tags] if name != "tags")
    command = f"registry describe {published.reference} {words if len(words) < _MOST_WORDS else '--help'}"
    differences = " and ".join(other)
    note = f"{published.reference} keeps its metadata. This source differs in {differences}. To change it: {command}"
    return (note,) if other else ()


def tell_default_config(version: DatasetVersion, target: Target) -> None:
    """Write the name of the default config for programs that read the data folder without the catalog, as TFDS."""
    is_at_home = version.location == version_folder(version.name, version.config, version.version)
    if version.config is None or not is_at_home:
        return
    if any(entry.is_default and entry.config == version.config for entry in target.catalog.configs.list(version.name)):
        try:
            write_default_config(target.store, version.name, version.config)
        except StorageError as error:  # the row is written: the version is published
            warn(
                f"{version.reference} is published, but TFDS will not find its default config: {error.message}; "
                "publish it again to write that file"
            )


def unchanged(catalog: CatalogBackend, version: DatasetVersion) -> Promotion:
    """The promotion of a publication that changes nothing, because the same content was published before."""
    published = catalog.published(version.name, version.config, version.version)
    canonical = None if published is None else published.canonical
    return Promotion(before=canonical, after=canonical, reason=Unpromoted.PUBLISHED_BEFORE)


def read_tags(store: Store, splits: Sequence[Split]) -> dict[str, str | None]:
    """Return the current ETag of each shard in ``store`` by file name. Empty for local folders, which have no ETags.

    Raises:
        StorageError: the store does not answer.
    """
    if store.local_root is not None:
        return {}

    def read(name: str) -> str | None:
        try:
            return store.entity_tag(name)
        except NotStoredError:
            return None

    pieces = (Piece(read, name) for split in splits for name in split.filenames)
    with choose_engine(num_bytes=None, is_local=False, is_unlocked=True) as engine:
        return dict(engine.run(pieces, doing="asked for ETags", failure=StorageError))


def tag_shards(
    splits: Sequence[Split], shards: Mapping[str, Sequence[Shard]], tags: Mapping[str, str | None]
) -> dict[str, tuple[Shard, ...]]:
    """Return ``shards`` with the ETags in ``tags``, which are listed by file name."""
    return {
        split.name: tuple(
            replace(shard, entity_tag=tags.get(split.filename(shard.index))) if tags else shard
            for shard in shards[split.name]
        )
        for split in splits
    }
