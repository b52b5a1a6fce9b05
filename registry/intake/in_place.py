"""Plans files that stay where they are: their records are those of the version, in the order of the files.

    Parquet files                           described by their columns: ``interop.parquet``
    a version folder of TFDS                described by its own files, as ``registry import tfds`` does
    other TFRecord and ArrayRecord files    described by the caller's schema: ``record_files``

Nothing is converted, keyed or sorted, so options that change records are refused. ``registry.api`` publishes the plan
with ``publish_next_in_place``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from registry.errors import NotStoredError, PreparedFormatError, SourceError, UsageError
from registry.intake.conversion import ColumnSchema
from registry.intake.feature_text import arrow_type_of, as_optional
from registry.intake.file_parts import refuse_folder_columns
from registry.intake.keys import KeyRule
from registry.intake.options import AddOptions
from registry.intake.plan import BadRows, Plan
from registry.intake.record_files import (
    describe_records,
    explain_records,
    format_of_records,
    order_shards,
    refuse_folders_of_others,
)
from registry.intake.schema import Schema
from registry.intake.source import FileUse, Source, SourcePart, account_for
from registry.intake.split_names import NamedSplits, find_splits
from registry.interop.parquet import FILE_FORMAT, FIRST_VERSION, SplitFiles, describe_parquet
from registry.interop.parquet import find_splits as find_splits_by_file
from registry.interop.tfds import VersionFolder
from registry.masking import mask
from registry.model import Reference, SlicingRule
from registry.prepared import PreparedDataset
from registry.prepared.info import FILENAME as INFO_FILENAME
from registry.shards.arrow_values import import_pyarrow
from registry.shards.asking import find_sizes
from registry.splits import counted
from registry.storage import Store, open_store

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
    """Files that stay in ``store``, their description, the rule of their slices, and what is shown of them."""

    plan: Plan
    store: Store
    prepared: PreparedDataset
    slicing: SlicingRule = SlicingRule.DOCUMENTED


def read_description(source: Any) -> PreparedDataset | None:
    """The description of a version folder of TFDS; None if ``source`` is something else.

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
        described: what ``read_description`` found.
        before: the splits of the version before.

    Raises:
        UsageError: ``source`` is not a path, or an option would change records.
        SourceError: no such files are in the folder, or TFRecord files have no schema.
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
            hint="Name the folder of the files, or leave out --in-place: then the records are copied.",
            details={"path": mask(location)},
        )
    if described is None and not names and store.local_root is None:
        raise NotStoredError(
            f"no files at {mask(location)}",
            hint="Check the URL, and that you may list it.",
            details={"path": mask(location)},
        )
    refuse_folder_columns(
        names, options.splits, hint="Leave out --in-place: then the records are copied, with these columns."
    )
    records = [name for name in names if format_of_records(name) is not None]
    if records and not any(name.endswith(".parquet") for name in names):
        refuse_folders_of_others(store, names)
        if not wishes:
            raise explain_records(store, records[0], location)
        return _plan_records(store, reference, wishes, options)
    if described is not None:
        options.refuse_changes("features", "schema", "splits", "rename_splits")
        prepared = replace(described.renamed(reference.name), config=reference.config, version=FIRST_VERSION)
        return _planned(store, prepared, slicing=SlicingRule.TFDS_4, reason="from the files of TFDS")
    if names and not any(name.endswith(".parquet") for name in names):
        raise SourceError(
            f"{location} contains no files that can be read in place: Parquet, TFRecord or ArrayRecord",
            hint="Leave out --in-place: then the records are copied.",
            details={"path": location},
        )
    splits, named = _find_parquet(store, options, before)
    options.refuse_changes("features", "schema")
    prepared = describe_parquet(
        store, name=reference.name, config=reference.config, version=FIRST_VERSION, splits=splits
    )
    return _planned(store, prepared, split_reason=named.reason, unmatched=named.unmatched)


def _find_parquet(
    store: Store, options: AddOptions, before: Collection[str]
) -> tuple[Sequence[SplitFiles], NamedSplits]:
    """The splits of Parquet files, as copies of them would have.

    ``registry import parquet`` names splits after files, and so did earlier versions of ``add``: ``part-0`` and
    ``part-1``. If the version before has such a split, its rule continues.

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
        named = find_splits(files, options)
        ordered = {split: order_shards(split, names, FILE_FORMAT) for split, names in named.files.items()}
    except SourceError as error:
        if not earlier:
            raise (error if fault is None or len(named.files) > 1 else fault) from error
        ordered = {}
    if earlier - ordered.keys():
        return by_file, replace(named, reason="as in the version before")
    shards = [
        SplitFiles(name=name, filenames=tuple(names), template=template) for name, (template, names) in ordered.items()
    ]
    # The same files under the same names keep the template that versions before have.
    same = {(split.name, split.filenames) for split in by_file} == {(split.name, split.filenames) for split in shards}
    return by_file if same else shards, named


def _is_file(location: str) -> bool:
    folder, _, name = location.rstrip("/").rpartition("/")
    if "://" not in location:
        return os.path.isfile(location)  # noqa: PTH113 (of any length)
    return bool(name) and not folder.endswith(":/") and open_store(folder).exists(name)


def _plan_records(
    store: Store, reference: Reference, wishes: Mapping[str, Wish], options: AddOptions
) -> PlannedInPlace:
    schema = _schema_of(wishes)
    records = describe_records(store, reference, schema.features(), options, skipped=schema.skipped)
    prepared = records.prepared
    if types := schema.arrow_types():
        prepared = replace(prepared, metadata=replace(prepared.metadata, custom={"arrow_types": types}))
    return _planned(store, prepared, schema=schema, files=records.files, split_reason=records.split_reason)


def _schema_of(wishes: Mapping[str, Wish]) -> Schema:
    """The schema of records that are read as they are: every type has to be given."""
    columns = []
    for name, wish in wishes.items():
        if wish.action == "skip":
            continue
        if wish.feature is None:
            raise UsageError(
                f"column {name!r}: files that are read in place need the names of the classes",
                hint=f"For example: --feature {name}='ClassLabel(cat, dog)'",
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
    *,
    schema: Schema | None = None,
    slicing: SlicingRule = SlicingRule.DOCUMENTED,
    files: Sequence[FileUse] | None = None,
    split_reason: str = "from the names of files",
    unmatched: Sequence[str] = (),
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
                *account_for(find_sizes(store, unmatched).items(), "skipped", reason="no --split matches it"),
            ]
            if files is None
            else files,
            split_reason=split_reason,
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
    except SourceError:  # TFDS has features that no column of a table has; the records are not converted
        kind = import_pyarrow().null()
    return ColumnSchema(name=name, feature=feature, arrow_type=kind, reason=reason)
