"""Attaches decoded columns to a published version: the same files as in the cache, next to its shards, for all readers.

shards -> SplitColumns.fill, in a staged folder -> attach_files -> rows, in one transaction
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from registry.catalog import CatalogBackend
from registry.columns import ColumnFolder
from registry.errors import UsageError
from registry.model import Attachment, ProgressCallback, count_progress
from registry.publishing.attachments import attach_files, copy_attachments, home_of, is_intact
from registry.reading import ReadableVersion
from registry.reading.attached import COLUMNS
from registry.reading.column_filling import ColumnsReport
from registry.reading.split_columns import SplitColumns
from registry.storage import Store
from registry.storage.cache import FileCache


def attach_columns(
    catalog: CatalogBackend,
    data: Store,
    readable: ReadableVersion,
    names: Sequence[str] | None,
    *,
    actor: str,
    progress: ProgressCallback | None,
    dry_run: bool,
) -> ColumnsReport:
    """Attach the columns that are not attached, or whose files are damaged; see ``Dataset.attach_columns``."""
    version, features = readable.facts, readable.features if names is None else readable.features.only(names)
    home = home_of(version)
    folder = data.child(home)
    attached = {file.name: file for file in catalog.attachments(version) if file.kind == COLUMNS}

    def is_attached(column: ColumnFolder) -> bool:
        files = map(attached.get, column.attached_names.values())
        return all(file is not None and is_intact(folder, file) for file in files)

    splits = [SplitColumns(readable, split.name, features) for split in version.splits]
    columns = [split.folders() for split in splits]
    if not all(columns):
        raise UsageError(f"the columns of {version.reference} cannot be kept", hint="Read its shards instead.")
    new = [[column.key for column in of_split or () if not is_attached(column)] for of_split in columns]
    if any(new) and not dry_run:
        data.require_writable(f"{home}/new")  # before the work
        data.clear_abandoned(home.rpartition("/")[0])
        total = sum(split.num_records for split, keys in zip(splits, new, strict=True) if keys)
        advance = count_progress(progress, "attaching columns", str(version.reference), total=total, announce=True)
        with data.stage(home) as staged:
            cache = FileCache(staged.store.locate("columns"), max_bytes=2**62)
            files = {}
            for split, keys in zip(splits, new, strict=True):
                if not keys:
                    continue
                filling = SplitColumns(readable, split.split, features, cache=cache)
                filling.fill(advance=advance, is_needed=lambda column, keys=keys: column.key in keys)  # type: ignore[misc]  # the keys of this split
                for column in filling.folders() or ():
                    for file, name in column.attached_names.items() if column.key in keys else ():
                        place = f"columns/{column.key[:2]}/{column.key}/{file}"
                        size, sha256 = staged.store.size(place), staged.store.sha256(place)
                        attachment = Attachment(kind=COLUMNS, name=name, num_bytes=size, sha256=sha256)
                        files[attachment] = partial(copy_attachments, folder, {attachment: (staged.store, place)})
            attach_files(catalog, data, version, files, actor=actor)
        attached |= {file.name: file for file in files}
    every = [column for of_split in columns for column in of_split or ()]
    named = [attached.get(name) for column in every for name in column.attached_names.values()]
    return ColumnsReport(
        reference=version.reference,
        splits=tuple(split.split for split in splits),
        features=tuple(features),
        num_examples=sum(split.num_records for split in splits),
        num_columns=len(every),
        num_new_columns=sum(map(len, new)),
        num_bytes=sum(file.num_bytes for file in named if file is not None),
        folder=folder.locate("").rstrip("/"),
    )
