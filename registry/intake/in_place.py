"""Plans versions of files that stay in place: the version has their records, in the order of the files.

    Parquet files                           described by their columns: ``interop.parquet``
    a version folder of TFDS                described by its own files, as ``registry import tfds`` does
    other TFRecord and ArrayRecord files    described by the caller's schema: ``describe_records``

Records are not converted, keyed or sorted, so options that change records are refused. ``registry.api`` publishes the
plan with ``publish_next``. ``detect`` refuses to copy TFRecord and ArrayRecord files; the error of
``explain_records`` shows the command that adds them in place.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from registry.engines import Piece, choose_engine
from registry.errors import (
    CorruptExampleError,
    PreparedFormatError,
    RegistryError,
    SourceError,
    StorageError,
    UsageError,
    spell,
)
from registry.features import FeaturesDict
from registry.intake.conversion import ColumnSchema
from registry.intake.feature_text import arrow_type_of, as_optional
from registry.intake.file_parts import account_for_source, refuse_folder_columns
from registry.intake.listing import no_files
from registry.intake.media_bytes import format_of
from registry.intake.options import AddOptions
from registry.intake.plan import MOST_NAMED, BadRows, Plan, unusable_rows
from registry.intake.records import KeyRule
from registry.intake.schema import Schema
from registry.intake.source import BadRow, Files, FileUse, Source, SourcePart, account_for, list_names
from registry.intake.split_names import NamedSplits, find_splits
from registry.interop.parquet import FILE_FORMAT, FIRST_VERSION, SplitFiles, describe_parquet
from registry.interop.parquet import find_splits as find_splits_by_file
from registry.interop.tfds import VersionFolder
from registry.masking import mask
from registry.model import DatasetMetadata, Reference, ShardedFileTemplate, ShardLengths, SlicingRule, Split, Version
from registry.pins.yaml_text import write_yaml
from registry.prepared import PreparedDataset
from registry.prepared.info import FILENAME as INFO_FILENAME
from registry.shards import decode_block, open_shard, read_records, walk_file
from registry.shards.arrow_values import import_pyarrow
from registry.shards.asking import find_sizes, list_sizes
from registry.splits import counted
from registry.storage import Store, open_store
from registry.wire import FlatValue, decode_example

if TYPE_CHECKING:
    from registry.intake.feature_text import Wish

_NOUNS: Final = {
    "parquet": "Parquet file",
    "parquet_columns": "Parquet file",
    "tfrecord": "TFRecord file",
    "array_record": "ArrayRecord file",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInPlace:
    """Files that stay in ``store``: their description, the rule of their slices, and the summary that is printed."""

    plan: Plan
    store: Store
    prepared: PreparedDataset
    slicing: SlicingRule = SlicingRule.DOCUMENTED


def read_description(source: Any) -> PreparedDataset | None:
    """Read the description of a version folder of TFDS. Returns None if ``source`` is something else.

    Raises:
        PreparedFormatError, StorageError: the description cannot be read.
    """
    if not isinstance(source, str | os.PathLike):
        return None
    store = open_store(source)
    return VersionFolder(store).read() if store.exists(INFO_FILENAME) else None


def plan_in_place(
    source: Any,
    reference: Reference,
    options: AddOptions,
    *,
    described: PreparedDataset | None = None,
    before: Collection[str] = (),
) -> PlannedInPlace:
    """Describe the files of a folder.

    Args:
        source: path or URL of the folder.
        reference: the name and config of the dataset.
        options: the types of the columns of TFRecord and ArrayRecord files, and the globs of splits.
        described: the result of ``read_description``.
        before: the splits of the previous version.

    Raises:
        UsageError: ``source`` is not a path, or an option would change records.
        SourceError: the folder has no such files, or a schema is missing for TFRecord files.
        UnusableRowsError, CorruptRecordError: see ``describe_records``.
        PreparedFormatError, CorruptExampleError, StorageError: see ``Catalog.import_parquet``.
    """
    if not isinstance(source, str | os.PathLike):
        raise UsageError("only files can be read in place", hint="Leave in_place out.", details={})
    options.refuse_changes()
    wishes = options.wishes()
    location = os.fspath(source)
    store = open_store(source)
    names = [] if described is not None else store.list()
    if described is None and not names and _is_file(location):
        raise UsageError(
            f"files that are read in place must be in a folder: {mask(location)} is a file",
            hint=f"Name the folder of the files, or leave out {spell('in_place')}: then the records are copied.",
            details={"path": mask(location)},
        )
    if described is None and not names and store.local_root is None:
        raise no_files(location)
    leave = f"Leave out {spell('in_place')}: then the records are copied"
    refuse_folder_columns(names, options.splits, hint=f"{leave}, with these columns.")
    records = [name for name in names if format_of_records(name) is not None]
    if records and not any(name.endswith(".parquet") for name in names):
        refuse_folders_of_others(names, location)
        if not wishes:
            raise explain_records(store, records[0], location)
        return describe_records(store, reference, wishes, options)
    if described is not None:
        options.refuse_changes("features", "schema", "splits", "rename_splits")
        prepared = replace(described.renamed(reference.name), config=reference.config, version=FIRST_VERSION)
        named = NamedSplits(files={}, reason="from the names of files")
        return _planned(store, prepared, named, slicing=SlicingRule.TFDS_4, reason="from the files of TFDS")
    if names and not any(name.endswith(".parquet") for name in names):
        raise SourceError(
            f"{location} contains no files that can be read in place: Parquet, TFRecord or ArrayRecord",
            hint=f"{leave}.",
            details={"path": location},
        )
    splits, named = _find_parquet(store, options, before)
    options.refuse_changes("features", "schema")
    prepared = describe_parquet(
        store, name=reference.name, config=reference.config, version=FIRST_VERSION, splits=splits
    )
    return _planned(store, prepared, named)


def _find_parquet(
    store: Store, options: AddOptions, before: Collection[str]
) -> tuple[Sequence[SplitFiles], NamedSplits]:
    """Return the splits of Parquet files, which are those that a copy would have.

    ``registry import parquet`` names splits after files, such as ``part-0`` and ``part-1``; earlier releases of ``add``
    did the same. If the previous version has such a split, this rule continues.

    Raises:
        SourceError: the names of splits are ambiguous, or no template matches the files of a split.
        PreparedFormatError: shards are missing, or the folder holds several configs.
    """
    by_file: Sequence[SplitFiles] = ()
    fault: PreparedFormatError | None = None
    try:
        by_file = find_splits_by_file(store)
    except PreparedFormatError as error:
        fault = error
    files = [name for name in store.list() if name.endswith(".parquet")]
    if fault is not None and not files:
        raise fault
    earlier = set() if options.splits or options.rename_splits else {split.name for split in by_file} & {*before}
    named = NamedSplits(files={}, reason="")
    try:
        named = find_splits(files, options).renamed(options)
        ordered = {split: order_shards(split, names, FILE_FORMAT) for split, names in named.files.items()}
    except SourceError as error:
        if not earlier:
            raise (error if fault is None or len(named.files) > 1 else fault) from error
        ordered = {}
    if earlier - ordered.keys():
        return by_file, replace(named, reason="as in the previous version")
    shards = [
        SplitFiles(name=name, filenames=tuple(names), template=template) for name, (template, names) in ordered.items()
    ]
    # The same files under the same names keep the template of previous versions.
    same = {(split.name, split.filenames) for split in by_file} == {(split.name, split.filenames) for split in shards}
    return by_file if same else shards, named


def _is_file(location: str) -> bool:
    folder, _, name = location.rstrip("/").rpartition("/")
    if "://" not in location:
        return os.path.isfile(location)  # noqa: PTH113 (of any length)
    return bool(name) and not folder.endswith(":/") and open_store(folder).exists(name)


def _schema_of(wishes: Mapping[str, Wish]) -> Schema:
    """Return the schema of records that are not converted, for which every type must be requested."""
    columns = []
    for name, wish in wishes.items():
        if wish.action == "skip":
            continue
        if wish.feature is None:
            raise UsageError(
                f"column {name!r}: files that are read in place need the names of the classes",
                hint=f"For example: {spell('features', {name: 'ClassLabel(cat, dog)'})}",
                details={"column": name},
            )
        feature = as_optional(wish.feature) if wish.optional else wish.feature
        kind = arrow_type_of(feature) if wish.arrow_type is None else wish.arrow_type
        columns.append(ColumnSchema(name=name, feature=feature, arrow_type=kind, reason="as requested"))
    if not columns:
        raise UsageError("the schema leaves out every column", hint="Leave at least one of them.", details={})
    return Schema(tuple(columns), skipped=tuple(name for name, wish in wishes.items() if wish.action == "skip"))


def _planned(
    store: Store,
    prepared: PreparedDataset,
    named: NamedSplits,
    *,
    schema: Schema | None = None,
    slicing: SlicingRule = SlicingRule.DOCUMENTED,
    files: Sequence[FileUse] | None = None,
    reason: str = "from the files",
) -> PlannedInPlace:
    names = [name for split in prepared.splits for name in split.filenames]
    noun = _NOUNS.get(prepared.file_format, "file")
    if schema is None:
        schema = Schema(tuple(_column(name, feature, reason) for name, feature in prepared.features.items()))
    plan = Plan(
        source=Source(
            kind=prepared.file_format.removesuffix("_columns"),
            summary=f"{counted(len(names), noun)}, which {'stay' if names[1:] else 'stays'} where "
            f"{'they are' if names[1:] else 'it is'}",
            parts=[
                SourcePart(split=split.name, name=name, read=lambda: iter(()))
                for split in prepared.splits
                for name in split.filenames
            ],
            files=[
                *(
                    FileUse(name=name, role="records", num_bytes=size)
                    for name, size in find_sizes(store, names).items()
                ),
                *account_for(find_sizes(store, named.unmatched).items(), "skipped", reason="no glob matches it"),
            ]
            if files is None
            else files,
            split_reason=named.reason,
        ),
        schema=schema,
        rule=KeyRule(kind="path"),
        rule_reason="records keep their order",
        num_rows=sum(split.num_examples for split in prepared.splits),
        bad=BadRows(),
    )
    return PlannedInPlace(plan=plan, store=store, prepared=prepared, slicing=slicing)


def _column(name: str, feature: Any, reason: str) -> ColumnSchema:
    try:
        kind = arrow_type_of(feature)
    except SourceError:  # A feature of TFDS may have no equivalent in a table, but the records are not converted.
        kind = import_pyarrow().null()
    return ColumnSchema(name=name, feature=feature, arrow_type=kind, reason=reason)


_RECORDS: Final = re.compile(
    r"\.(?:(tfrecords?|tfrec)|array_?records?)(-[0-9]{5,}-of-[0-9]{5,})?(\.gz)?", re.IGNORECASE
)
_SHARD: Final = re.compile(r"(?P<before>.*?)(?P<index>[0-9]{5,})-of-(?P<count>[0-9]{5,})(?P<after>\D.*|)")
_NUMBERED: Final = re.compile(r"(?P<before>(?:.*\D)?)(?P<index>[0-9]{5,})(?P<after>\D*)")
# Spark names files part-00000-UUID
_PART: Final = re.compile(r"(?P<before>(?:.*/)?part-)(?P<index>[0-9]{5,})(?P<after>-.*)")
_DECODED_AT_ONCE: Final = 1024
_MOST_OF_A_FILE: Final = 1000
_NAMES_HINT: Final = (
    "Name the files of a split train-00000-of-00002{0}, train-00001-of-00002{0}, or train{0}. "
    "If each file is a split: {1}"
)


def format_of_records(name: str) -> str | None:
    """Return the format of a file with records, ``tfrecord`` or ``array_record``, or None for other files.

    >>> format_of_records("a/mnist-train.tfrecord-00000-of-00002"), format_of_records("train.csv")
    ('tfrecord', None)
    """
    last = name.rpartition("/")[2]
    result = next((match for match in _RECORDS.finditer(last) if match.end() == len(last)), None)
    return None if result is None else "tfrecord" if result[1] else "array_record"


def describe_records(
    store: Store, reference: Reference, wishes: Mapping[str, Wish], options: AddOptions
) -> PlannedInPlace:
    """Describe the TFRecord or ArrayRecord files in a folder. Reads and decodes every record.

    Args:
        store: the folder.
        reference: the name and config of the dataset.
        wishes: the types of all columns of a record.
        options: the glob of each split, or none to derive splits from the names, and other names for splits.

    Raises:
        SourceError: the files have two formats, splits are ambiguous, no template matches the names of a split, or a
            record has a key that is not in ``wishes``.
        UsageError: a type is unknown, or all columns are skipped.
        UnusableRowsError: records do not match the types; the message names the first of them.
        CorruptRecordError, ShardMismatchError: a file is damaged.
        StorageError: a file cannot be read.
    """
    schema = _schema_of(wishes)
    features = schema.features()
    sizes = list_sizes(store)
    formats = {name: record_format for name in sizes if (record_format := format_of_records(name)) is not None}
    if len(set(formats.values())) > 1:
        raise SourceError(
            f"{store.url} contains both TFRecord and ArrayRecord files",
            hint="Move the files of one format to a folder of their own.",
            details={"folder": store.url},
        )
    file_format = next(iter(formats.values()))
    named = find_splits(list(formats), options).renamed(options)
    ordered = {split: order_shards(split, names, file_format) for split, names in named.files.items()}
    names = [name for _, those in ordered.values() for name in those]
    facts = _count(store, names, _Counter(store, file_format, features, schema.skipped), sizes)
    splits = tuple(
        Split(
            name=split,
            shard_lengths=ShardLengths([facts[name].num_records for name in those]),
            num_bytes=sum(facts[name].num_payload_bytes for name in those),
            files=ShardedFileTemplate(dataset=reference.name, template=template, file_format=file_format),
        )
        for split, (template, those) in ordered.items()
    )
    empty = [split.name for split in splits if not split.num_examples]
    if empty:
        raise SourceError(
            f"{store.url}: the split {empty[0]!r} has no records",
            hint="Every split needs at least one record. Move its files away, or choose the splits: "
            f"{spell('splits', {'NAME': 'GLOB'})}",
            details={"split": empty[0]},
        )
    files = Files(store=store, names=sorted(sizes), sizes=[sizes[name] for name in sorted(sizes)], location=store.url)
    types = schema.arrow_types()
    prepared = PreparedDataset(
        name=reference.name,
        config=reference.config,
        version=Version(1, 0, 0),
        splits=splits,
        features=features,
        metadata=DatasetMetadata(custom={"arrow_types": types} if types else {}),
        file_format=file_format,
    )
    uses = account_for_source(files, named, "file of records")
    return _planned(store, prepared, named, schema=schema, files=uses)


def explain_records(store: Store, name: str, location: str) -> SourceError:
    """Make the error for record files without a schema. Its hint describes the first record of ``name``."""
    noun = "TFRecord" if format_of_records(name) == "tfrecord" else "ArrayRecord"
    command = f"registry add {shlex.quote(location)} --in-place --schema schema.yaml"
    return SourceError(
        f"{location}: {noun} files do not describe their records",
        hint=f"Write the types of the columns to a file schema.yaml, and add the folder where it is: {command}\n"
        f"{_propose_schema(store, name)}",
        details={"location": location, "file": name},
    )


def _propose_schema(store: Store, name: str) -> str:
    """Return a schema file for the first record of a file, or a pointer to the list of types."""
    try:
        record = next(iter(read_records(store, name, file_format=format_of_records(name) or "", take=1)), None)
        columns = {} if record is None else _nest(decode_example(record))
    except RegistryError:
        columns = {}
    if not columns:
        return "docs/adding.md lists the types. For example:\ncolumns:\n  image: Image\n  label: ClassLabel(cat, dog)"
    schema = write_yaml({"columns": columns}).rstrip()
    return f"The first record of {name} has these columns; correct the types:\n{schema}"


def _nest(flat: Mapping[str, FlatValue]) -> dict[str, Any]:
    """Nest the types of the values of a record by column; ``a/b`` becomes the field ``b`` of ``a``."""
    result: dict[str, Any] = {}
    for key, value in sorted(flat.items()):
        *folders, last = key.split("/")
        inside = result
        for folder in folders:
            inner = inside.setdefault(folder, {"fields": {}})
            if not isinstance(inner, dict):  # ``a`` has values of its own, so the whole key is the name of a column
                inside, last = result, key
                break
            inside = inner["fields"]
        inside[last] = _guess_type(value)
    return result


def _guess_type(value: FlatValue) -> str:
    if isinstance(value, list):
        first = value[0] if value else b""
        try:
            word = (
                "Image" if format_of(first) in ("PNG", "JPEG") else "Text" if first.decode() or not first else "bytes"
            )
        except UnicodeDecodeError:
            word = "bytes"
    else:
        word = str(value.dtype)
    return word if len(value) == 1 else f"{word}[]"


def order_shards(split: str, names: Sequence[str], file_format: str) -> tuple[str, list[str]]:
    """Return the template of the names of a split, and the names in the order of their shards.

    Raises SourceError if no template matches the names.
    """
    if len(names) == 1 and not _SHARD.fullmatch(names[0]):
        return _checked(split, names[0], list(names), file_format, count=1)
    for pattern, variable in ((_SHARD, "SHARD_X_OF_Y"), (_NUMBERED, "SHARD_INDEX"), (_PART, "SHARD_INDEX")):
        parsed = [found for name in names if (found := pattern.fullmatch(name)) is not None]
        if len(parsed) == len(names) and len({(match["before"], match["after"]) for match in parsed}) == 1:
            template = f"{parsed[0]['before']}{{{variable}}}{parsed[0]['after']}"
            in_order = [match[0] for match in sorted(parsed, key=lambda match: int(match["index"]))]
            count = int(parsed[0]["count"]) if variable == "SHARD_X_OF_Y" else len(names)
            return _checked(split, template, in_order, file_format, count=count)
    raise _no_template(split, names)


def _checked(split: str, template: str, names: list[str], file_format: str, *, count: int) -> tuple[str, list[str]]:
    """Return the template and the names if they are the names of ``count`` shards."""
    try:
        files = ShardedFileTemplate(dataset="d", template=template, file_format=file_format)
    except UsageError:
        raise _no_template(split, names) from None
    name_shard, present = files.namer(split, count), set(names)
    missing = next((name for index in range(count) if (name := name_shard(index)) not in present), None)
    if missing is not None or len(names) != count:
        raise _no_template(split, names, "" if missing is None else f"; {missing!r} is missing")
    return template, names


def _no_template(split: str, names: Sequence[str], why: str = "") -> SourceError:
    globs = spell("splits", {"NAME": "GLOB"})
    return SourceError(
        f"the files of the split {split!r} are not named like the shards of one split{why}: {list_names(names)}",
        hint=_NAMES_HINT.format(".parquet", globs) + f". Or leave out {spell('in_place')}: then the records are copied"
        if names[0].endswith(".parquet")
        else _NAMES_HINT.format(".tfrecord", globs),
        details={"split": split, "files": list(names[:100])},
    )


def _check_keys(store: Store, name: str, file_format: str, known: Sequence[str]) -> None:
    """Check that the first record of a file has no key that the schema does not name."""
    try:
        keys = decode_example(next(iter(read_records(store, name, file_format=file_format, take=1))))
    except CorruptExampleError as error:
        raise SourceError(
            f"{name}: the records are not tf.train.Examples: {error.message}",
            hint="Only serialized tf.train.Examples can be read.",
            details={"file": name},
        ) from error
    more = sorted(key for key in keys if not any(key == one or key.startswith(f"{one}/") for one in known))
    if more:
        raise SourceError(
            f"{name}: record 0 has a column {more[0]!r} that is not in the schema",
            hint=f"Add it to the schema, with the type `skip` to leave it out. Columns: {', '.join(known)[:200]}.",
            details={"file": name, "column": more[0]},
        )


@dataclass(frozen=True, slots=True)
class _Counted:
    """The result of reading a file. ``faults`` are the first records that do not match the features."""

    num_records: int
    num_payload_bytes: int
    num_faults: int
    faults: tuple[BadRow, ...]


@dataclass(frozen=True, slots=True)
class _Counter:
    """Counts and decodes the records of a file; can be pickled. ``skipped`` are the keys that are left out."""

    store: Store
    file_format: str
    features: FeaturesDict
    skipped: tuple[str, ...]

    def __call__(self, name: str) -> _Counted:
        facts = walk_file(self.store, name, file_format=self.file_format)
        if facts.num_records:
            _check_keys(self.store, name, self.file_format, (*self.features, *self.skipped))
        faults = list(self._faults(name, facts.num_records))
        return _Counted(facts.num_records, facts.num_payload_bytes, len(faults), tuple(faults[:MOST_NAMED]))

    def _faults(self, name: str, num_records: int) -> Iterator[BadRow]:
        shard = open_shard(
            self.store,
            name,
            file_format=self.file_format,
            num_records=num_records,
            verify="off",  # the checksums have just been verified
        )
        start = num_faults = 0
        while start < num_records and num_faults < _MOST_OF_A_FILE:
            block = shard.read(start, min(_DECODED_AT_ONCE, num_records - start))
            decoded = decode_block(self.features, block, copy=False)
            if decoded.fault is None:
                start += block.num_records
                continue
            if not isinstance(decoded.fault, CorruptExampleError):
                raise decoded.fault
            start += int(decoded.fault.details["record"]) + 1
            num_faults += 1
            yield BadRow(file=name, line=None, reason=f"record {start - 1}: {decoded.fault.message}")


def _count(store: Store, names: Sequence[str], counter: _Counter, sizes: Mapping[str, int]) -> dict[str, _Counted]:
    """Read every record of the files; raise an error that names the records that do not match the features."""

    def pieces() -> Iterable[Piece[str, _Counted]]:
        return (Piece(counter, name) for name in names)

    is_local, num_bytes = store.local_root is not None, sum(sizes[name] for name in names)
    with choose_engine(num_bytes=num_bytes, is_local=is_local, reads=(store.url,)) as engine:
        result = dict(engine.run(pieces(), doing="read records", failure=StorageError))
    if bad := [row for name in names for row in result[name].faults]:
        count = sum(fault.num_faults for fault in result.values())
        raise unusable_rows(
            f"{count:,} record{'s do' if count > 1 else ' does'} not match the schema",
            bad,
            count,
            "Correct the schema, or write the files again: files that stay in place keep all records.",
        )
    return result


def refuse_folders_of_others(names: Sequence[str], location: str, *, is_extracted: bool = False) -> None:
    """Raise SourceError if a folder has the files of TFDS or of Earth Engine, which ``registry import`` reads.

    Args:
        names: the names of the files in the folder.
        location: the path or URL of the folder, or of the archive that has them.
        is_extracted: whether the files are in an archive.
    """

    def folders_with(last: str) -> set[str]:
        return {name.removesuffix(last) for name in names if name.endswith(last)}

    if folders_with("features.json") & folders_with("dataset_info.json"):
        raise _other_command(location, "was prepared by TensorFlow Datasets", "tfds", is_extracted=is_extracted)
    if folders_with("mixer.json") and any(".tfrecord" in name for name in names):
        raise _other_command(location, "is an export of Earth Engine", "earth-engine", is_extracted=is_extracted)


def _other_command(location: str, subject: str, kind: str, *, is_extracted: bool) -> SourceError:
    verb, folder = ("Extract it to a folder DIR, and import that", "DIR") if is_extracted else ("Import it", location)
    return SourceError(
        f"{location} {subject}",
        hint=f"{verb}: registry import {kind} {shlex.quote(folder)}",
        details={"location": location, "command": f"registry import {kind}"},
    )
