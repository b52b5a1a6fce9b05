"""Writes splits of a published version as Earth Engine exports: the stored records unchanged, and the kept mixer."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from registry import ReadConfig
from registry.builders.earth_engine.exporting.files import ExportFiles, WrittenFiles
from registry.builders.earth_engine.exporting.record_file import RecordFile, advancing, check_prefix
from registry.builders.earth_engine.mixer import Mixer
from registry.builders.earth_engine.stored.kept_split import KeptSplit
from registry.errors import SplitNotFoundError, UsageError
from registry.storage import Store, open_store

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry import Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedSplit(WrittenFiles):
    """The files of one split, as ``export_version`` wrote it; their prefix is the name ``split``."""

    split: str


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
    """Write splits of a version as Earth Engine exports. The prefix of each export is the name of its split.

        export_version(catalog.dataset("earth_patches"), "exports/", splits=["china"])

    Args:
        dataset: a version that ``import_export`` published, or whose metadata has the same ``earth_engine`` entry.
        folder: path, URL or store to write to; it is created if it does not exist.
        splits: names of the splits to write; None writes all.
        compressed: compress image exports with gzip; tables are always compressed.
        max_file_size: maximum bytes of a file before compression.
        overwrite: replace existing exports with these prefixes.
        advance: called with the number of records written since the last call.

    Returns:
        One ``ExportedSplit`` for each split, in order.

    Raises:
        UsageError: a split was not imported from Earth Engine.
        SplitNotFoundError: the version does not have one of the splits.
        AlreadyStoredError: an export with one of the prefixes exists, and ``overwrite`` is False.
        VerificationError: a stored record is damaged. No file of its split is left then.
        StorageError: a file cannot be read or written.
    """
    store = folder if isinstance(folder, Store) else open_store(folder)
    chosen = {split: _kept(dataset, split) for split in (dataset.splits if splits is None else splits)}
    exported = []
    for split, kept_split in chosen.items():
        prefix = check_prefix(split)
        # Read one file after another: assembly depends on the order of the export, and interleaving would change it.
        reader = dataset.read(split, ReadConfig(interleave_cycle_length=1))
        records = advancing(map(bytes, reader.records()), advance)
        if kept_split.is_table:
            written = _write_table(records, store, f"{prefix}.tfrecord.gz", overwrite=overwrite)
        else:
            mixer = None
            if kept_split.mixer is not None:
                mixer = Mixer.from_json(json.dumps(kept_split.mixer), f"the mixer of {split}").to_json().encode()
            with ExportFiles(
                store, prefix, compressed=compressed, max_file_size=max_file_size, overwrite=overwrite
            ) as files:
                for record in records:
                    files.write(record)
                written = files.commit(mixer)
        exported.append(ExportedSplit(**asdict(written), split=split))
    return tuple(exported)


def _kept(dataset: Dataset, split: str) -> KeptSplit:
    if split not in dataset.splits:
        raise SplitNotFoundError.of(split, dataset.splits, where=str(dataset.reference))
    result = KeptSplit.find(dataset.metadata.custom, split)
    if result is None:
        raise UsageError(
            f"split {split} of {dataset.reference} was not imported from Earth Engine: the version has no mixer for it",
            hint=f"Write it in the layout of TFDS instead: registry export tfds {dataset.reference} DIR",
            details={"split": split, "reference": str(dataset.reference)},
        )
    return result


def _write_table(records: Iterable[bytes], store: Store, filename: str, *, overwrite: bool) -> WrittenFiles:
    with store.create(filename, overwrite=overwrite) as file, RecordFile(file, compressed=True) as written:
        for record in records:
            written.write(record)
    num_bytes = store.size(filename)
    return WrittenFiles(filenames=(filename,), records=(written.num_records,), mixer=None, num_bytes=num_bytes)
