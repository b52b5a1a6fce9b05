"""Exports the records of a version in a format of other tools: decides where files go, and calls the writers.

``Dataset.export`` and ``Dataset.to_hf`` call it. The writers are in ``interop/export_*.py``; every file gets its final
name when all files of the export are complete.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, TypeAlias, cast

from registry.errors import AlreadyStoredError, UsageError, require_extra, spell, suggest
from registry.model import Advance, DatasetVersion, ProgressCallback, count_progress, whole_number
from registry.order import ReadConfig
from registry.storage import Store, expand_home, open_parent, open_store

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

    from registry.features import FeaturesDict
    from registry.interop.export_files import Record
    from registry.reading import Slice
    from registry.reading.frameworks.table_columns import Labels, TableColumns
    from registry.splits import ReadInstruction

ExportKind: TypeAlias = Literal["csv", "jsonl", "parquet", "arrow", "imagefolder", "webdataset"]
"""The formats of ``Dataset.export``."""

SlicesOf: TypeAlias = Callable[["str | ReadInstruction | None"], "Sequence[Slice]"]
"""Gives the slice of an expression, or for None every slice of a version that can be read."""

SUFFIXES: Final[dict[str, tuple[str, ...]]] = {
    "csv": (".csv", ".csv.gz"),
    "jsonl": (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz"),
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".feather", ".ipc"),
}
"""Endings of files of each kind; the first is that of the files in a folder."""

_TEXT_KINDS: Final = ("csv", "jsonl")
_FOLDER_KINDS: Final = ("imagefolder", "webdataset")
_SHARD_BYTES: Final = 512 * 2**20
STORED_ORDER: Final = ReadConfig(interleave_cycle_length=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """A file that an export wrote, or a folder of images.

    Attributes:
        path: its path or URL; ``-`` for a file object. A dry run does not know the number of the tars of a split, and
            gives ``train-*.tar`` for all of them.
        split: the split expression, or the name of the split or pin, whose records it holds.
        num_records: the number of its records.
        num_bytes: its size; None in a dry run.
    """

    path: str
    split: str
    num_records: int
    num_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """The result of ``Dataset.export``.

    Attributes:
        kind: the format.
        files: the files, in the order of the splits.
        dry_run: whether the files were only planned.
    """

    kind: str
    files: tuple[ExportedFile, ...]
    dry_run: bool

    @property
    def num_records(self) -> int:
        """The number of records in all files."""
        return sum(file.num_records for file in self.files)

    @property
    def num_bytes(self) -> int | None:
        """The size of all files; None in a dry run."""
        return None if self.dry_run else sum(file.num_bytes or 0 for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExportedRows:
    """The records to export: slices of a version, and the features to export."""

    version: DatasetVersion
    slices: Sequence[Slice]
    features: FeaturesDict

    @property
    def num_records(self) -> int:
        return sum(part.num_examples for part in self.slices)

    def batches(self, part: Slice, columns: TableColumns, advance: Advance | None) -> Iterator[pa.RecordBatch]:
        """The record batches of a slice."""
        return (columns.batch(block) for block, _ in self.blocks(part, columns.features, advance))

    def blocks(
        self, part: Slice, features: FeaturesDict, advance: Advance | None
    ) -> Iterator[tuple[dict[str, Any], int]]:
        """The examples of a slice in blocks, and their numbers, in the order in which its records are stored."""
        from registry.reading import Reader

        readable = part.readable.with_features(features)
        reader = Reader(readable, part.plan, read_config=STORED_ORDER, matches=part.matches)
        for block in reader.blocks():
            count = _count_rows(block)
            yield block, count
            if advance is not None:
                advance(count)


def export_dataset(
    version: DatasetVersion,
    features: FeaturesDict,
    slices_of: SlicesOf,
    kind: str,
    dest: str | os.PathLike[str] | BinaryIO,
    *,
    split: str | ReadInstruction | None,
    columns: Sequence[str] | None,
    labels: Labels | None,
    shard_bytes: int | None,
    force: bool,
    dry_run: bool,
    progress: ProgressCallback | None,
) -> ExportReport:
    """Export records of ``version``; see ``Dataset.export``."""
    if kind not in SUFFIXES and kind not in _FOLDER_KINDS:
        raise UsageError(f"no export format {kind!r:.80}", hint=suggest(str(kind), [*SUFFIXES, *_FOLDER_KINDS]))
    if labels not in (None, "names", "numbers"):
        raise UsageError(f'labels must be "names" or "numbers", not {labels!r:.60}')
    if shard_bytes is not None:
        whole_number(shard_bytes, "shard_bytes", least=1)
        if kind != "webdataset":
            raise UsageError("shard_bytes is an option of webdataset", hint="Leave it out.")
    with require_extra("arrow", package="pyarrow", needed_for=f"an export to {kind}"):
        from registry.interop.export_tables import WRITERS, compressing
        from registry.reading.frameworks.table_columns import TableColumns, require_flat
    if kind in _FOLDER_KINDS:
        if not isinstance(dest, str | os.PathLike):
            raise UsageError(f"{kind} needs a folder, not a file object", hint="Name a folder.")
        source = _open(version, features, slices_of(split), columns)
        return _export_folder(
            source,
            kind,
            os.fspath(dest),
            is_one=split is not None,
            labels=labels,
            shard_bytes=_SHARD_BYTES if shard_bytes is None else shard_bytes,
            force=force,
            dry_run=dry_run,
            progress=progress,
        )
    is_file = split is not None or not isinstance(dest, str | os.PathLike) or _names_a_file(kind, dest)
    if is_file and split is None:
        split = _only_split(version, dest)
    source = _open(version, features, slices_of(split), columns)
    if kind == "csv":
        require_flat(source.features)
    default: Labels = "names" if kind in _TEXT_KINDS else "numbers"
    converted = TableColumns(source.features, version.metadata, labels=labels or default, as_text=kind in _TEXT_KINDS)
    store, names = _find_place(kind, dest, source.slices, is_file=is_file, force=force)
    files: list[ExportedFile] = []
    advance = count_progress(progress, "exporting", str(version.reference), total=source.num_records)
    with ExitStack() as stack:
        for part, name in zip(source.slices, names, strict=True):
            num_bytes = None
            if not dry_run:
                opened: Any = dest if store is None else stack.enter_context(store.create(name, overwrite=force))
                with (
                    _Counting(opened) as counting,
                    compressing(cast("BinaryIO", counting), gz=name.endswith(".gz")) as file,
                ):
                    WRITERS[kind](source.batches(part, converted, advance), converted.schema, file)
                num_bytes = counting.num_bytes
            path = name if store is None else store.locate(name)
            files.append(ExportedFile(path=path, split=part.name, num_records=part.num_examples, num_bytes=num_bytes))
    return ExportReport(kind=kind, files=tuple(files), dry_run=dry_run)


def _export_folder(
    source: _ExportedRows,
    kind: str,
    dest: str,
    *,
    is_one: bool,
    labels: Labels | None,
    shard_bytes: int,
    force: bool,
    dry_run: bool,
    progress: ProgressCallback | None,
) -> ExportReport:
    """Write a folder of images or of tars under a temporary name, and give it its name when it is complete."""
    from registry.interop.export_files import (
        LEFT_BY,
        class_folders,
        plan_images,
        plan_samples,
        write_images,
        write_samples,
    )

    version = source.version
    as_images = kind == "imagefolder"
    form: Labels = labels or ("names" if as_images else "numbers")
    plan = (plan_images if as_images else plan_samples)(source.features, version.metadata, form)
    if as_images and plan.class_label is not None:
        class_folders(plan.class_label, form)  # raises before anything is written
    parent, name = _split_path(dest)
    replaces = _check_folder(parent, name, LEFT_BY[kind], kind=kind, force=force)
    folders = [("" if as_images else version.name) if is_one else _checked_name(part.name) for part in source.slices]
    advance = count_progress(progress, "exporting", str(version.reference), total=source.num_records)

    def records(part: Slice) -> Iterator[Record]:
        for block, count in source.blocks(part, plan.features, advance):
            yield from plan.records(block, count)

    def place(inside: str) -> str:
        return f"{parent.locate(name)}/{inside}".rstrip("/")

    files: list[ExportedFile] = []

    def add(inside: str, part: Slice, num_records: int, num_bytes: int | None) -> None:
        files.append(ExportedFile(path=place(inside), split=part.name, num_records=num_records, num_bytes=num_bytes))

    if dry_run:
        for one, folder in zip(source.slices, folders, strict=True):
            add(folder if as_images else f"{folder}-*.tar", one, one.num_examples, None)
        return ExportReport(kind=kind, files=tuple(files), dry_run=True)
    with parent.stage(name) as staged:
        for one, folder in zip(source.slices, folders, strict=True):
            count = one.num_examples
            if as_images:
                size = write_images(records(one), plan, staged.store, folder=folder, num_records=count, labels=form)
                add(folder, one, count, size)
                continue
            for tar, num_records, num_bytes in write_samples(
                records(one), plan, staged.store, name=folder, shard_bytes=shard_bytes, labels=form
            ):
                add(tar, one, num_records, num_bytes)
        if replaces:
            parent.remove_tree(name)
        staged.commit()
    return ExportReport(kind=kind, files=tuple(files), dry_run=False)


def _check_folder(store: Store, name: str, is_left: Callable[[str], bool], *, kind: str, force: bool) -> bool:
    """Whether the folder ``name`` has to be removed before an export takes its name.

    Only the files of an earlier export are replaced, so that ``--force`` cannot remove the files of a person.

    Raises:
        AlreadyStoredError: it exists, and ``force`` is not set, or it has other files.
    """
    place = store.locate(name)
    if not store.exists(name):
        return False
    inside = store.list(name)
    result = [path.removeprefix(f"{name}/") for path in inside]
    others = [path for path in result if not is_left(path)]
    if others or (not result and store.local_root is not None and (store.local_root / name).is_file()):
        raise AlreadyStoredError(
            f"{place} already exists" + (f" and has other files than an export, such as {others[0]}" if others else ""),
            hint="Name a folder that does not exist.",
            details={"path": place},
        )
    if result and not force:
        raise AlreadyStoredError(
            f"{place} already exists and has an export of {kind}",
            hint=f"Name another destination, or replace it with {spell('force', True)}.",
            details={"path": place},
        )
    return bool(result)


def to_hugging_face(
    version: DatasetVersion,
    features: FeaturesDict,
    slices_of: SlicesOf,
    split: str | ReadInstruction | None,
    *,
    columns: Sequence[str] | None,
    cache_dir: str | os.PathLike[str] | None,
    progress: ProgressCallback | None,
) -> datasets.Dataset | datasets.DatasetDict:
    """The records of ``version`` for Hugging Face's software; see ``Dataset.to_hf``."""
    with require_extra("huggingface", package="datasets", needed_for="a dataset of Hugging Face"):
        from registry.interop.dataset_card import HUGGING_FACE
        from registry.interop.hugging_face import load_all, load_plan
        from registry.reading.frameworks.table_columns import TableColumns
    source = _open(version, features, slices_of(split), columns)
    converted = TableColumns(source.features, version.metadata, labels="numbers")
    advance = count_progress(progress, "exporting", str(version.reference), total=source.num_records)
    result = {
        part.name: load_plan(
            part.plan,
            partial(source.batches, part, converted, advance),
            converted.schema,
            content_digest=version.content_digest,
            cache_dir=cache_dir,
            kept=version.metadata.custom.get(HUGGING_FACE),
        )
        for part in source.slices
    }
    return load_all(result) if split is None else next(iter(result.values()))


def _open(
    version: DatasetVersion, features: FeaturesDict, slices: Sequence[Slice], columns: Sequence[str] | None
) -> _ExportedRows:
    from registry.features import FeaturesDict
    from registry.reading.frameworks.table_columns import in_source_order

    features = in_source_order(features, version.metadata)
    if columns is not None:
        for name in columns:
            if name not in features:
                raise UsageError(f"no feature {name!r:.80}", hint=suggest(name, list(features)))
        if not columns:
            raise UsageError("columns= names no feature", hint=f"The features are: {', '.join(features)}.")
        features = FeaturesDict({name: features[name] for name in columns})
    return _ExportedRows(version=version, slices=slices, features=features)


def _names_a_file(kind: str, dest: str | os.PathLike[str]) -> bool:
    text = os.fspath(dest)
    return text.lower().endswith(SUFFIXES[kind]) and not _is_folder(text)


def _is_folder(text: str) -> bool:
    return text.endswith("/") or ("://" not in text and os.path.isdir(expand_home(text)))  # noqa: PTH112 (of any length)


def _only_split(version: DatasetVersion, dest: Any) -> str:
    splits = list(version.layout)
    if len(splits) == 1:
        return splits[0]
    named = f"{os.fspath(dest)} is one file" if isinstance(dest, str | os.PathLike) else "the destination is one file"
    first = next(iter(splits), "train")
    raise UsageError(
        f"{named}, and {version.reference} has the splits {', '.join(splits[:20])}",
        hint=f"Name its records, e.g. {spell('split', first)}, or name a folder, which gets a file for each split.",
    )


def _find_place(
    kind: str, dest: Any, slices: Sequence[Slice], *, is_file: bool, force: bool
) -> tuple[Store | None, list[str]]:
    """The store of the files, and the name of the file of each slice; None and ``-`` for a file object.

    Raises:
        UsageError: the destination is a folder, or has an ending that does not fit, or a slice cannot name a file.
        AlreadyStoredError: a file exists, and ``force`` is not set.
    """
    if not isinstance(dest, str | os.PathLike):
        return None, ["-"]
    text = os.fspath(dest)
    if is_file:
        if _is_folder(text):
            raise UsageError(
                f"{text} is a folder, and one split expression is written to one file",
                hint=f"Name a file: {text.rstrip('/')}/{_file_name(slices[0].plan.expression)}{SUFFIXES[kind][0]}",
            )
        if text.lower().endswith(".gz") and kind not in _TEXT_KINDS:
            raise UsageError(
                f"{text}: {kind} files are not compressed as a whole", hint=f"Name a file {SUFFIXES[kind][0]}."
            )
        store, name = _split_path(text)
        names = [name]
    else:
        store, names = open_store(text), [f"{_checked_name(part.name)}{SUFFIXES[kind][0]}" for part in slices]
    if not force:
        for name in names:
            if store.exists(name):
                raise AlreadyStoredError(
                    f"{store.locate(name)} already exists",
                    hint=f"Name another destination, or replace it with {spell('force', True)}.",
                    details={"path": store.locate(name)},
                )
    return store, names


def _split_path(text: str) -> tuple[Store, str]:
    """The store of the parent folder of a path or URL, and the last part of it."""
    is_url = "://" in text
    return open_parent(text.rstrip("/") if is_url else os.path.abspath(expand_home(text)))  # noqa: PTH100 (keeps links)


def _checked_name(name: str) -> str:
    """The name of a split or pin, if a file can have it."""
    if "/" in name or "\0" in name or name in (".", "..") or len(os.fsencode(name)) > 200:
        raise UsageError(f"{name!r:.200} cannot be the name of a file", hint=f"Name the records with {spell('split')}.")
    return name


def _file_name(expression: str) -> str:
    return expression if expression.isidentifier() else "records"


def _count_rows(columns: Mapping[str, Any]) -> int:
    """The number of examples in the columns of a block."""
    first: Any = columns
    while isinstance(first, Mapping):
        first = next(iter(first.values()))
    return len(first)


class _Counting(io.RawIOBase):
    """Writes to ``target`` and counts the bytes. Closing it does not close ``target``, which its owner closes."""

    def __init__(self, target: Any) -> None:
        super().__init__()
        self._target = target
        self.num_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._target.write(view)
        self.num_bytes += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.num_bytes
