"""Exports the records of a version in a format of other tools: decides where files go, and calls the writers.

``Dataset.export`` and ``Dataset.to_hf`` call it. The writers are in ``interop/export_*.py``; every file gets its final
name when all files of the export are complete.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, TypeAlias, cast

from registry.errors import AlreadyStoredError, UsageError, require_extra, suggest
from registry.model import Advance, ProgressCallback, count_progress
from registry.order import ReadConfig
from registry.storage import Store, open_store

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

    from registry.api.dataset import Dataset
    from registry.features import FeaturesDict
    from registry.interop.export_columns import ExportColumns, Labels
    from registry.model import SlicingRule
    from registry.reading import Slice
    from registry.splits import ReadInstruction

ExportKind: TypeAlias = Literal["csv", "jsonl", "parquet", "arrow"]
"""The formats of ``Dataset.export``."""

_SUFFIXES: Final[dict[str, tuple[str, ...]]] = {
    "csv": (".csv", ".csv.gz"),
    "jsonl": (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz"),
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".feather", ".ipc"),
}
"""Endings of files of each kind; the first is that of the files in a folder."""

_TEXT_KINDS: Final = ("csv", "jsonl")
_STORED_ORDER: Final = ReadConfig(interleave_cycle_length=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """A file that an export wrote.

    Attributes:
        path: its path or URL; ``-`` for a file object.
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
class _Source:
    """The records to export: slices of a dataset, and the features to export."""

    dataset: Dataset
    slices: Sequence[Slice]
    features: FeaturesDict

    @property
    def num_records(self) -> int:
        return sum(one.plan.num_examples for one in self.slices)

    def batches(self, one: Slice, columns: ExportColumns, advance: Advance | None) -> Iterator[pa.RecordBatch]:
        """The record batches of a slice, in the order in which its records are stored."""
        from registry.reading import Reader

        reader = Reader(one.readable.with_features(columns.features), one.plan, read_config=_STORED_ORDER)
        for block in reader.blocks():
            batch = columns.batch(block)
            yield batch
            if advance is not None:
                advance(batch.num_rows)


def export_dataset(
    dataset: Dataset,
    kind: str,
    dest: str | os.PathLike[str] | BinaryIO,
    *,
    split: str | ReadInstruction | None,
    columns: Sequence[str] | None,
    labels: Labels | None,
    force: bool,
    dry_run: bool,
    slicing: SlicingRule | str | None,
    rounding: str | None,
    progress: ProgressCallback | None,
) -> ExportReport:
    """Export records of ``dataset``; see ``Dataset.export``."""
    if kind not in _SUFFIXES:
        raise UsageError(f"no export format {kind!r:.80}", hint=suggest(str(kind), _SUFFIXES))
    if labels not in (None, "names", "numbers"):
        raise UsageError(f'labels must be "names" or "numbers", not {labels!r:.60}')
    with require_extra("arrow", package="pyarrow", needed_for=f"an export to {kind}"):
        from registry.interop.export_columns import ExportColumns, require_flat
        from registry.interop.export_tables import WRITERS, compressing
    is_file = split is not None or not isinstance(dest, str | os.PathLike) or _names_a_file(kind, dest)
    if is_file and split is None:
        split = _only_split(dataset, dest)
    source = _open(dataset, split, columns, slicing=slicing, rounding=rounding)
    if kind == "csv":
        require_flat(source.features)
    default: Labels = "names" if kind in _TEXT_KINDS else "numbers"
    converted = ExportColumns(source.features, dataset.metadata, labels=labels or default, as_text=kind in _TEXT_KINDS)
    store, names = _find_place(kind, dest, source.slices, is_file=is_file, force=force)
    files: list[ExportedFile] = []
    advance = count_progress(progress, "exporting", str(dataset.reference), total=source.num_records)
    with ExitStack() as stack:
        for one, name in zip(source.slices, names, strict=True):
            num_bytes = None
            if not dry_run:
                opened: Any = dest if store is None else stack.enter_context(store.create(name, overwrite=force))
                with (
                    _Counting(opened) as counting,
                    compressing(cast("BinaryIO", counting), gz=name.endswith(".gz")) as file,
                ):
                    WRITERS[kind](source.batches(one, converted, advance), converted.schema, file)
                num_bytes = counting.num_bytes
            path = name if store is None else store.locate(name)
            files.append(
                ExportedFile(path=path, split=one.name, num_records=one.plan.num_examples, num_bytes=num_bytes)
            )
    return ExportReport(kind=kind, files=tuple(files), dry_run=dry_run)


def to_hugging_face(
    dataset: Dataset,
    split: str | ReadInstruction | None,
    *,
    columns: Sequence[str] | None,
    cache_dir: str | os.PathLike[str] | None,
    slicing: SlicingRule | str | None,
    rounding: str | None,
    progress: ProgressCallback | None,
) -> datasets.Dataset | datasets.DatasetDict:
    """The records of ``dataset`` for Hugging Face's software; see ``Dataset.to_hf``."""
    with require_extra("huggingface", package="datasets", needed_for="a dataset of Hugging Face"):
        from registry.interop.export_columns import ExportColumns
        from registry.interop.hugging_face import load_all, load_plan
    source = _open(dataset, split, columns, slicing=slicing, rounding=rounding)
    converted = ExportColumns(source.features, dataset.metadata, labels="numbers")
    advance = count_progress(progress, "exporting", str(dataset.reference), total=source.num_records)
    found = {
        one.name: load_plan(
            one.plan,
            partial(source.batches, one, converted, advance),
            converted.schema,
            content_digest=dataset.facts.content_digest,
            cache_dir=cache_dir,
        )
        for one in source.slices
    }
    return load_all(found) if split is None else next(iter(found.values()))


def _open(
    dataset: Dataset,
    split: str | ReadInstruction | None,
    columns: Sequence[str] | None,
    *,
    slicing: SlicingRule | str | None,
    rounding: str | None,
) -> _Source:
    from registry.features import FeaturesDict

    features = dataset.features
    if columns is not None:
        for name in columns:
            if name not in features:
                raise UsageError(f"no feature {name!r:.80}", hint=suggest(name, list(features)))
        if not columns:
            raise UsageError("columns= names no feature", hint=f"The features are: {', '.join(features)}.")
        features = FeaturesDict({name: features[name] for name in columns})
    if split is None:
        slices = list(dataset.provenance.slices(dataset.features))
    else:
        slices = [dataset.slice_of(split, _STORED_ORDER, slicing=slicing, rounding=rounding)]
    return _Source(dataset=dataset, slices=slices, features=features)


def _names_a_file(kind: str, dest: str | os.PathLike[str]) -> bool:
    text = os.fspath(dest)
    return text.lower().endswith(_SUFFIXES[kind]) and not _is_folder(text)


def _is_folder(text: str) -> bool:
    return text.endswith("/") or ("://" not in text and Path(text).expanduser().is_dir())


def _only_split(dataset: Dataset, dest: Any) -> str:
    if len(dataset.splits) == 1:
        return next(iter(dataset.splits))
    named = f"{os.fspath(dest)} is one file" if isinstance(dest, str | os.PathLike) else "the destination is one file"
    first = next(iter(dataset.splits), "train")
    raise UsageError(
        f"{named}, and {dataset.reference} has the splits {', '.join(list(dataset.splits)[:20])}",
        hint=f"Name the records of the file, e.g. --split {first}, or name a folder, which gets a file for each split.",
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
                hint=f"Name a file: {text.rstrip('/')}/{_file_name(slices[0].plan.expression)}{_SUFFIXES[kind][0]}",
            )
        if text.lower().endswith(".gz") and kind not in _TEXT_KINDS:
            raise UsageError(
                f"{text}: {kind} files are not compressed as a whole", hint=f"Name a file {_SUFFIXES[kind][0]}."
            )
        folder, _, name = text.rpartition("/")
        store, names = open_store(folder or ("/" if text.startswith("/") else ".")), [name]
    else:
        store, names = open_store(text), [f"{_checked_name(one.name)}{_SUFFIXES[kind][0]}" for one in slices]
    if not force:
        for name in names:
            if store.exists(name):
                raise AlreadyStoredError(
                    f"{store.locate(name)} already exists",
                    hint="Name another destination, or replace it with --force (force=True in Python).",
                    details={"path": store.locate(name)},
                )
    return store, names


def _checked_name(name: str) -> str:
    """The name of a split or pin, if a file can have it."""
    if "/" in name or "\0" in name or name in (".", "..") or len(os.fsencode(name)) > 200:
        raise UsageError(f"{name!r:.200} cannot be the name of a file", hint="Name the records with --split.")
    return name


def _file_name(expression: str) -> str:
    return expression if expression.isidentifier() else "records"


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
