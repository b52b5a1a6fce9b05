"""Makes the entry of a pin: hashes every file, compares it with the catalog, and computes the digests of all records.

``api/pinning.py`` calls it with a version and a plan, and puts the entries into a ``PinFile``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from registry.errors import PinFormatError, ShardMismatchError, UsageError, spell
from registry.features import features_from_json
from registry.masking import mask, remove_secrets
from registry.model import Advance, DatasetVersion, Reference, Shard, VersionStatus, tfds_id, version_folder
from registry.order import ReadConfig
from registry.pins.consistency import features_digest, location_problem
from registry.pins.document import (
    AliasEntry,
    BuilderEntry,
    FeaturesEntry,
    FileEntry,
    Line,
    LongLine,
    OrderEntry,
    PinEntry,
    ProvenanceEntry,
    RangeEntry,
    RecordsEntry,
    SourceEntry,
    SplitEntry,
    SpotEntry,
    to_plain,
)
from registry.pins.layout import GENERATORS
from registry.pins.measure import RecordDigests, locate_records, measure_records, spot_places
from registry.reading import ReadableVersion
from registry.splits import Plan
from registry.splits.terms import Rounding
from registry.storage import require_no_secrets

_MOST_SOURCES: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PinSource:
    """The version to pin, and how it was looked up.

    Attributes:
        readable: the version: its facts, the folder of its shards, its default order.
        request: the reference that was requested.
        why: why the request resolved to this version, in sentences.
        shards: returns the stored files of a split.
        alias: the requested alias with the event that set it, or None.
        builder: the code that built the version, or None if it is unknown.
        packages: versions of the packages that were used to build it, by name.
        status: the status of the version when it was found; None derives it from the facts.
        provenance: the provenance in an earlier pin of the version; None collects it from the other fields.
    """

    readable: ReadableVersion
    request: Reference
    why: Sequence[str]
    shards: Callable[[str], Sequence[Shard]]
    alias: AliasEntry | None = None
    builder: BuilderEntry | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    status: VersionStatus | None = None
    provenance: ProvenanceEntry | None = None


@contextmanager
def _refusing_odd_values() -> Iterator[None]:
    """Raise PinFormatError, with key paths, for values that a pin file cannot hold: a name, or facts of the catalog."""
    from pydantic import ValidationError

    try:
        yield
    except ValidationError as error:
        faults = [(".".join(map(str, fault["loc"])), None, fault["msg"]) for fault in error.errors()]
        raise PinFormatError.of("the pin", faults, hint="A pin file cannot contain this value.") from error


@_refusing_odd_values()
def make_entry(
    source: PinSource,
    name: str,
    plan: Plan,
    *,
    read_config: ReadConfig | None = None,
    locations: Sequence[str] = (),
    processes: int | None = None,
    advance: Advance | None = None,
) -> dict[str, Any]:
    """The plain values of a new pin, in the form of a pin file.

    Args:
        source: the version.
        name: the name of the pin.
        plan: the records to pin.
        read_config: the order in which to read them. None means the default order of the version.
        locations: URLs of folders with the files, for other readers.
        processes: number of workers; None uses one for each core if there is enough data.
        advance: called with the number of bytes hashed since the last call.

    Raises:
        ShardMismatchError: the size or sha256 of a file differs from the catalog's.
        CorruptRecordError, CorruptExampleError, StorageError: a record cannot be read.
        UsageError: the order lacks a seed or cannot be written as text, or a location is invalid.
        PinFormatError: a pin file cannot contain the name or a value of the version.
    """
    version = source.readable.facts
    order = _order_entry(source.readable.order(read_config))
    check_locations(locations)
    files = _files(source, plan)
    digests, found = measure_records(
        plan,
        source.readable.store,
        file_format=version.file_format,
        features=features_from_json(version.features_json),
        files={file.name: file.num_bytes for file in files},
        indexes=source.readable.indexes,
        processes=processes,
        advance=advance,
    )
    for file in files:
        if (found[file.name].num_bytes, f"sha256:{found[file.name].sha256}") != (file.num_bytes, file.sha256):
            raise ShardMismatchError(
                f"{file.name}: sha256 mismatch: the catalog has {file.sha256[7:]}, found {found[file.name].sha256}",
                hint=f"Damaged files cannot be pinned. To list all damaged shards: registry verify {version.reference}",
                details={"path": file.name},
            )
    touched = {span.split for span in plan.ranges} | {split.name for split in plan.splits}
    entry = PinEntry(
        name=name,
        request=str(source.request),
        dataset=version.name,
        config=version.config,
        version=str(version.version),
        why=tuple(source.why),
        status=(source.status or version.status).value,  # type: ignore[arg-type]  # a dropped version is given to nobody
        status_message=version.state_message,
        experiments=dict(sorted(version.experiments.items())),
        alias=source.alias,
        version_digest=f"sha256:{version.content_digest}",
        version_slicing=version.slicing.value,
        split=plan.expression,
        slicing=plan.slicing.value,
        rounding=_rounding(plan),
        num_examples=plan.num_examples,
        ranges=tuple(RangeEntry(split=span.split, start=span.start, stop=span.stop) for span in plan.ranges),
        records=_records_entry(plan, digests),
        order=order,
        file_format=version.file_format,  # type: ignore[arg-type]  # one that can be read
        disable_shuffling=version.disable_shuffling,
        splits=tuple(
            SplitEntry(
                name=split.name,
                num_examples=split.num_examples,
                num_bytes=split.num_bytes,
                num_shards=split.num_shards,
                template=split.files.template,
            )
            for split in version.splits
            if split.name in touched
        ),
        locations=(*_own_folder(version), *locations),
        files=tuple(files),
        features=_features_entry(version),
        provenance=source.provenance or _provenance(source),
        license=version.metadata.license,
        citation=version.metadata.citation,
    )
    return to_plain(entry)


def _own_folder(version: DatasetVersion) -> tuple[str, ...]:
    """The folder below a data directory, if its name differs from the version's because the dataset was renamed."""
    is_named = version.locations[0] == version_folder(version.name, version.config, version.version)
    return () if is_named or version.is_elsewhere else version.locations[:1]


def check_names(names: Iterable[Any]) -> None:
    """Raise UsageError for the first invalid name of a pin."""
    for name in names:
        if not _is_form(LongLine, name):
            raise UsageError(
                f"invalid name of a pin: {_shown(name)}; expected one line of text",
                hint='Use e.g. train; in Python pin({"train": "train[:80%]"})',
            )


def check_locations(locations: Sequence[str]) -> None:
    """Raise UsageError for the first invalid location of a pin. The message hides a password in it."""
    if isinstance(locations, str | bytes):
        raise UsageError(
            "locations: expected a list, found one text", hint='Put it in brackets: locations=["https://..."]'
        )
    for location in locations:
        if not _is_form(Line, location):
            raise UsageError(
                f"invalid location of a pin: {_shown(location)}; expected one line of at most 1000 characters"
            )
        if problem := location_problem(location):
            raise UsageError(f"invalid location of a pin: {_shown(location)}: {problem}")
        require_no_secrets(location, "the location")


def _is_form(form: Any, value: Any) -> bool:
    """Whether a value is valid for a field type of pin files."""
    from pydantic import TypeAdapter, ValidationError

    try:
        TypeAdapter(form).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def _shown(value: Any) -> str:
    """A value for an error message: shortened, and without a password."""
    text = repr(mask(value) if isinstance(value, str) else value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def check_order(config: ReadConfig) -> None:
    """Raise UsageError for an order that a pin cannot hold."""
    if config.needs_seed:
        words = spell("shuffle_seed", 42)  # Python spells the seed of a global shuffle: seed=42
        words = words.removeprefix("shuffle_") if config.shuffle == "global" else words
        raise UsageError("a pinned shuffle needs a seed", hint=f"Add {words}.")
    if config.interleave_sort_fn is not None:
        raise UsageError("a pin file cannot store a function: interleave_sort_fn", hint="Leave out interleave_sort_fn.")
    if config.repeat != 1 or config.add_tfds_id:
        raise UsageError("repeat and add_tfds_id cannot be pinned", hint="Use them when the pin is read.")


def choose_names(
    named: Mapping[str, str],
    texts: Sequence[str],
    splits_of: Callable[[str], str],
    taken: Collection[str],
    dataset: str,
) -> dict[str, str]:
    """Choose names for pins: an expression without a name is named by its split if that name is free.

    Args:
        named: expressions by their chosen names.
        texts: expressions without a name.
        splits_of: returns the names of an expression's splits, joined by ``+``.
        taken: names of existing pins with other expressions.
        dataset: the reference of the version; it becomes a prefix if the name is taken.

    Returns:
        The expressions by name, first ``texts``, then ``named``.

    Raises:
        UsageError: an expression is given twice.
    """
    if len({*texts}) != len(texts):
        raise UsageError("a split expression is given twice", hint="Give one of them a name: NAME=SPLIT")
    shorts = [splits_of(text) for text in texts]
    result: dict[str, str] = {}
    for text, short in zip(texts, shorts, strict=True):
        choices = (short, text, f"{dataset} {text}") if shorts.count(short) == 1 else (text, f"{dataset} {text}")
        unused = (name for name in choices if name not in taken and name not in named and name not in result)
        result[next(unused, choices[-1])] = text
    return result | dict(named)


def _sources(version: DatasetVersion) -> tuple[SourceEntry, ...]:
    """The sources of the dataset that its builder recorded in TFDS's ``downloadChecksums``."""
    told = version.metadata.extra.get("downloadChecksums", version.metadata.extra.get("download_checksums"))
    if not isinstance(told, Mapping):
        return ()
    sources = []
    for url, facts in sorted(told.items())[:_MOST_SOURCES]:
        checksum, size = (facts.get("checksum"), facts.get("size")) if isinstance(facts, Mapping) else (facts, None)
        is_sha256 = isinstance(checksum, str) and len(checksum) == 64 and set(checksum) <= set("0123456789abcdef")
        sources.append(
            SourceEntry(
                url=remove_secrets(url),
                sha256=f"sha256:{checksum}" if is_sha256 else None,
                num_bytes=int(size) if isinstance(size, int) or (isinstance(size, str) and size.isdigit()) else None,
            )
        )
    return tuple(sources)


def _rounding(plan: Plan) -> Rounding | None:
    """The rounding of the expression's percents, which its text does not contain; None for the default."""
    roundings = plan.instruction.roundings
    if len(roundings) > 1:
        raise UsageError(
            f"{plan.expression} rounds its percentages in {len(roundings)} ways, which a pin cannot represent",
            hint="Pin each part separately.",
        )
    return roundings[0] if roundings and roundings[0] != "closest" else None


def _order_entry(config: ReadConfig) -> OrderEntry:
    check_order(config)
    shuffle = "global" if config.shuffle == "global" else "files" if config.shuffle_files else "none"
    return OrderEntry(
        shuffle=shuffle,  # type: ignore[arg-type]  # one of three
        seed=config.seed if shuffle == "global" else config.shuffle_seed,
        global_seed=config.global_seed,
        op_seed_index=config.op_seed_index,
        reshuffle_each_iteration=config.shuffle_reshuffle_each_iteration,
        generator=GENERATORS.get(shuffle),
        cycle_length=int(config.interleave_cycle_length),
        block_length=config.interleave_block_length,
    )


def _files(source: PinSource, plan: Plan) -> list[FileEntry]:
    """The files that contain records of the plan, split by split, in shard order."""
    touched = {file.filename for file in plan}
    files = []
    for split in source.readable.facts.splits:
        if not any(span.split == split.name and span.num_examples for span in plan.ranges):
            continue
        for shard in source.shards(split.name):
            name = split.filename(shard.index)
            if name in touched:
                files.append(
                    FileEntry(
                        name=name,
                        split=split.name,
                        index=shard.index,
                        first_example=shard.first_example,
                        num_examples=shard.num_examples,
                        num_bytes=shard.num_bytes,
                        sha256=f"sha256:{shard.sha256}",
                    )
                )
    return files


def _records_entry(plan: Plan, digests: RecordDigests) -> RecordsEntry:
    spots: list[SpotEntry | None] = [None, None, None]
    if digests.spots is not None:
        located = locate_records(plan, spot_places(plan.num_examples))
        spots = [
            SpotEntry(id=tfds_id(filename, record), sha256=digest)
            for (filename, record), digest in zip(located, digests.spots, strict=True)
        ]
    return RecordsEntry(
        ordered=digests.ordered,
        unordered=digests.unordered,
        finder=str(digests.finder),
        features=digests.features,
        first=spots[0],
        middle=spots[1],
        last=spots[2],
    )


def _features_entry(version: DatasetVersion) -> FeaturesEntry:
    labels = {stem: tuple(names) for stem, names in sorted(version.labels.items())}
    digest = features_digest(version.features_json, labels)
    return FeaturesEntry.model_validate({"digest": digest, "labels": labels, "json": version.features_json})


def _provenance(source: PinSource) -> ProvenanceEntry:
    version, builder = source.readable.facts, source.builder
    return ProvenanceEntry(
        homepage=remove_secrets(version.metadata.homepage),
        sources=_sources(version),
        builder=builder,
        version_to_prepare=version.version_to_prepare,
        packages=dict(sorted(source.packages.items())),
    )
