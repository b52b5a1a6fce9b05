"""Plans Parquet files that stay where they are: their rows are the records, in the order of the files.

``interop.parquet`` describes the files. Nothing is converted, keyed or sorted, so options that change records are
refused. ``registry.api`` publishes the plan with ``publish_next_in_place``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.errors import UsageError
from registry.intake.column_types import arrow_type_of
from registry.intake.keys import KeyRule
from registry.intake.plan import Plan
from registry.intake.schema import ColumnSchema, Schema
from registry.intake.source import FileUse, Part, Source
from registry.intake.staging import BadRows
from registry.interop.parquet import FIRST_VERSION, describe_parquet
from registry.model import Reference
from registry.prepared import PreparedDataset
from registry.storage import Store, open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInPlace:
    """Files that stay in ``store``, their description, and what is shown of them."""

    plan: Plan
    store: Store
    prepared: PreparedDataset


def plan_in_place(source: Any, reference: Reference, *, changing: Sequence[str] = ()) -> PlannedInPlace:
    """Describe the Parquet files of a folder.

    Args:
        source: path or URL of the folder.
        reference: the name and config of the dataset.
        changing: the options that a caller set and that would change records.

    Raises:
        UsageError: ``source`` is not a path, or ``changing`` is not empty.
        PreparedFormatError, CorruptExampleError, StorageError: see ``Catalog.import_parquet``.
    """
    if changing:
        raise UsageError(
            f"files that stay where they are cannot be changed: {', '.join(changing)}",
            hint="Leave out --in-place, or these options.",
            details={"options": [*changing]},
        )
    if not isinstance(source, str | os.PathLike):
        raise UsageError("only files can stay where they are", hint="Leave in_place out.", details={})
    if "://" not in os.fspath(source) and Path(source).is_file():
        raise UsageError(
            f"files that stay where they are have to be in a folder: {os.fspath(source)} is a file",
            hint="Name the folder of the Parquet files, or leave out --in-place: then the records are copied.",
            details={"path": os.fspath(source)},
        )
    store = open_store(source)
    prepared = describe_parquet(store, name=reference.name, config=reference.config, version=FIRST_VERSION)
    names = [name for split in prepared.splits for name in split.filenames]
    columns = [
        ColumnSchema(name=name, feature=feature, arrow_type=arrow_type_of(feature), reason="from the files")
        for name, feature in prepared.features.items()
    ]
    plan = Plan(
        source=Source(
            kind="parquet",
            summary="1 Parquet file, which stays where it is"
            if len(names) == 1
            else f"{len(names):,} Parquet files, which stay where they are",
            parts=[
                Part(split=split.name, name=name, read=lambda: iter(()), is_portable=False)
                for split in prepared.splits
                for name in split.filenames
            ],
            files=[FileUse(name=name, role="records", num_bytes=store.size(name)) for name in names],
            split_reason="from the names of files",
        ),
        schema=Schema(tuple(columns)),
        rule=KeyRule(kind="path"),
        rule_reason="records keep their order",
        num_rows=sum(split.num_examples for split in prepared.splits),
        bad=BadRows(),
    )
    return PlannedInPlace(plan=plan, store=store, prepared=prepared)
