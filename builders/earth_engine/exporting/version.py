"""Writes a published version as files of Earth Engine again: its records unchanged, and the mixer that it keeps."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from registry.builders.earth_engine.exporting.files import ExportFiles
from registry.builders.earth_engine.exporting.record_file import RecordFile, check_prefix
from registry.builders.earth_engine.mixer import Mixer
from registry.builders.earth_engine.stored.kept_split import KeptSplit
from registry.errors import SplitNotFoundError, UsageError
from registry.order import ReadConfig
from registry.storage import Store, open_store

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.api import Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedSplit:
    """A split that was written.

    Attributes:
        split: its name.
        prefix: what the names of its files begin with.
        filenames: of the records, in order.
        mixer_filename: None of a table, and of an export that had no mixer.
        num_records: in all files.
        num_bytes: of all files.
    """

    split: str
    prefix: str
    filenames: tuple[str, ...]
    mixer_filename: str | None
    num_records: int
    num_bytes: int


def export_version(
    dataset: Dataset,
    folder: str | os.PathLike[str] | Store,
    *,
    splits: Sequence[str] | None = None,
    compressed: bool = True,
    max_file_size: int = 2**30,
    overwrite: bool = False,
    advance: Callable[[int], None] | None = None,
) -> tuple[ExportedSplit, ...]:
    """Write splits of a version as the exports that they were made of, one prefix each: the split's name.

        export_version(catalog.dataset("earth_patches"), "exports/", splits=["china"])

    Args:
        dataset: a version that was imported from Earth Engine, or keeps what such a one does: see ``kept_split``.
        folder: where the files go.
        splits: names of splits; None for all.
        compressed: gzip; a table always is.
        max_file_size: most bytes of a file before compression.
        overwrite: replace exports of these prefixes.
        advance: called with the number of records written since the last call.

    Raises:
        UsageError: a split that is no export of Earth Engine.
        SplitNotFoundError: the version has no such split.
        AlreadyStoredError: there are files of such a prefix.
        VerificationError: a stored record is damaged. Nothing of its split is left then.
    """
    store = folder if isinstance(folder, Store) else open_store(folder)
    chosen = list(dataset.splits) if splits is None else list(splits)
    kept = {split: _kept(dataset, split) for split in chosen}
    return tuple(
        _write(dataset, split, one, store, compressed, max_file_size, overwrite=overwrite, advance=advance)
        for split, one in kept.items()
    )


def _kept(dataset: Dataset, split: str) -> KeptSplit:
    if split not in dataset.splits:
        raise SplitNotFoundError.of(split, dataset.splits, where=str(dataset.reference))
    found = KeptSplit.find(dataset.metadata.custom, split)
    if found is None:
        raise UsageError(
            f"the split {split} of {dataset.reference} is no export of Earth Engine: the version keeps no mixer of it",
            hint="Write it for others: registry export tfds REF DIR.",
            details={"split": split, "reference": str(dataset.reference)},
        )
    return found


def _write(
    dataset: Dataset,
    split: str,
    kept: KeptSplit,
    store: Store,
    compressed: bool,
    max_file_size: int,
    *,
    overwrite: bool,
    advance: Callable[[int], None] | None,
) -> ExportedSplit:
    prefix = check_prefix(split)
    # One file after the other: the order of the export, whatever the order of other reads.
    reader = dataset.read(split, ReadConfig(interleave_cycle_length=1))
    mixer = None if kept.mixer is None else Mixer.from_json(json.dumps(kept.mixer), f"the mixer of {split}")
    if kept.is_table:
        filename = f"{prefix}.tfrecord.gz"
        with store.create(filename, overwrite=overwrite) as file, RecordFile(file, compressed=True) as records:
            for record in reader.records():
                records.write(bytes(record))
                if advance is not None:
                    advance(1)
        return ExportedSplit(
            split=split,
            prefix=prefix,
            filenames=(filename,),
            mixer_filename=None,
            num_records=records.num_records,
            num_bytes=store.size(filename),
        )
    with ExportFiles(store, prefix, compressed=compressed, max_file_size=max_file_size, overwrite=overwrite) as files:
        for record in reader.records():
            files.write(bytes(record))
            if advance is not None:
                advance(1)
        written = files.commit(None if mixer is None else mixer.to_json().encode())
    return ExportedSplit(
        split=split,
        prefix=prefix,
        filenames=written.filenames,
        mixer_filename=written.mixer,
        num_records=sum(written.records),
        num_bytes=written.num_bytes,
    )
