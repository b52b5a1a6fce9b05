"""Writes the records of a source to shards in a staged folder, which is invisible to readers.

    Source, Schema -> keyed records -> one sorter for each split -> shards

The same input gives the same bytes for any order of files, any memory budget, and any number of processes.
``publishing.numbering`` then chooses the number and writes the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from registry.building import DEFAULT_BUDGET_BYTES, ExternalSorter, KeyedFrames, SortKeys, write_split
from registry.building.finished import find_finished, forget_finished, keep_or_give_up, record_finished
from registry.building.publication_folds import Folded, publication_kinds
from registry.building.value_keys import key_of_values
from registry.engines import Engine, Piece, choose_engine, has_engine_of_block, watch_tasks
from registry.errors import DuplicateKeyError, SourceError, UsageError, spell, suggest
from registry.features import FeaturesDict
from registry.features.fold import SplitFold
from registry.intake.plan import BadRows, Plan, return_freed_memory
from registry.intake.records import (
    MULTIPLIER,
    Chunk,
    ChunkEncoder,
    Encoded,
    Hashes,
    Holdout,
    Keyed,
    Occurrences,
    first_words,
    sort_keys_of_repeated,
)
from registry.intake.source import BadRow, Source
from registry.intake.split_names import check_cases
from registry.model import (
    DatasetMetadata,
    ProgressCallback,
    Shard,
    Split,
    Version,
    check_split_name,
    count_progress,
    version_folder,
)
from registry.prepared import PreparedDataset
from registry.publishing.fingerprint import StoredSplits
from registry.publishing.record_overlap import RecordOverlap, compare_slices, record_marks
from registry.splits import RecordRange
from registry.storage import StagedFolder, Store

MOST_SPLITS: Final = 64
_MANY_ROWS: Final = 2_000_000
"""From this number of rows on, workers save more time than their start takes (measured on two cores), although a row is
encoded in little more than a microsecond."""

SORTING_BYTES: Final = 4 * DEFAULT_BUDGET_BYTES
"""Memory for sorting: a source whose records fit is not written to runs and merged, which takes a tenth of the time."""

_LEAST_BUDGET_BYTES: Final = 4 * 2**20
_NEXT: Final = Version(1, 0, 0)  # The proof replaces it by the final number.
_FIELD_ORDER: Final = ("train", "validation", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSource:
    """The shards of a source, without a number and a description. As a context manager, it discards the staged files.

    Attributes:
        store: the folder of the shards.
        staged: the same folder, if it was written; None if the files stay in place.
        prepared: the description, with a preliminary number.
        shards: the written shards of each split, or None.
        bad: the rows that were left out.
        folded: the results of the folds of a publication, if they ran while all splits were written.
        overlap: equal records of different splits, if any; the slices are the splits.
        data: the data directory, if shards of an addition that fails are kept for the next run.
    """

    store: Store
    staged: StagedFolder | None
    prepared: PreparedDataset
    shards: Mapping[str, tuple[Shard, ...]] | None
    bad: BadRows
    folded: Folded = field(default_factory=Folded)
    overlap: RecordOverlap | None = None
    data: Store | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self.staged is None:
            return
        keep_or_give_up(self.staged, error)
        if kind is None and self.data is not None:
            forget_finished(self.data, self.staged.final)


def stage_source(
    plan: Plan,
    store: Store,
    *,
    name: str,
    config: str | None = None,
    num_shards: int | None = None,
    processes: int | None = None,
    inputs: Mapping[str, str] | None = None,
    progress: ProgressCallback | None = None,
    budget_bytes: int = SORTING_BYTES,
) -> StagedSource:
    """Write the records of ``plan.source`` to shards in a staged folder below ``store``.

    Args:
        plan: the source, its schema and its keys. ``plan.bad`` collects unusable rows.
        store: the data directory.
        name: the name of the dataset.
        config: its config, or None.
        num_shards: the number of shards of each split. None: TFDS's rule.
        processes: the number of processes that encode. None: one per core once there is enough work.
        inputs: the stamps of all files of the source before they were read. With them, shards that an earlier run of
            the same addition finished are used again, and those of this run are kept if it fails. None disables both.
        progress: called with a ``Progress``: rows are ``encoding``, then records of each split ``writing``.
        budget_bytes: memory for sorting.

    Raises:
        UnusableRowsError: more rows cannot be used than the plan allows.
        DuplicateKeyError: two records of a split have the same key; the message names both places.
        SourceError: a split has no rows, a part cannot be read, or the source changed since the rows were counted.
        UsageError: ``plan.holdout`` does not fit the source.
        StorageError: the disk is full or not writable.
    """
    source, rule, bad, features, num_rows = plan.source, plan.rule, plan.bad, plan.stored(), plan.num_rows
    encoder = ChunkEncoder(
        schema=plan.schema,
        rule=rule,
        split_by=plan.split_by,
        renamed=plan.renamed,
        holdout=plan.holdout,
        held_from=_held_from(source.splits, plan.holdout) if plan.split_by is None else "train",
        path_column=plan.path_column if plan.has_splits else "",
    )
    final = version_folder(name, config, _NEXT)
    store.clear_abandoned(final.rpartition("/")[0])
    values = [
        encoder,
        plan.metadata(),
        num_shards,
        bad.allowed,
        source.kind,
        [(part.name, part.split) for part in source.parts],
    ]
    key = None if inputs is None else key_of_values(values)
    finished = None if key is None else find_finished(store, final, key=key, is_numbered=False)
    results: dict[str, list[Any] | None] = {}
    staged = store.stage(final) if finished is None else finished.staged
    try:
        if finished is not None:
            written = list(finished.made)
            bad.add([BadRow(**row) for row in finished.more["bad"]])
            bad.count, may_overlap = finished.more["num_bad"], finished.more["may_overlap"]
        else:
            with ExitStack() as stack:
                engine = stack.enter_context(_choose_engine(processes, num_rows))
                sorters = _Sorters(stack, staged.store, plan, budget_bytes)
                offsets = _Offsets() if rule.kind == "content" and set(rule.columns) != set(features) else None
                if offsets is not None:
                    for encoded, _ in _encode(source, encoder, engine, None, None):
                        offsets.prepare(encoded)
                num_read = num_usable = 0
                for encoded, chunk in _encode(source, encoder, engine, progress, num_rows):
                    bad.add(encoded.bad)
                    num_read += chunk.rows.table.num_rows
                    num_usable += sum(len(keyed.lines) for keyed in encoded.by_split.values())
                    if bad.count <= bad.allowed:  # otherwise continue only to count the bad rows
                        sorters.add(encoded, chunk, offsets)
                bad.require_few(num_usable, plan.schema.columns)
                if num_rows is not None and num_read != num_rows:
                    raise _changed(f"expected {num_rows:,} usable rows, found {num_read:,}")
                may_overlap = sorters.may_overlap()
                sorters.end_adding()
                written = sorters.write(name, num_shards, features, results, engine, progress)
            return_freed_memory()  # the sorters are closed; verification may start workers
        overlap = _find_overlap(staged, written, features, plan.path_column, processes) if may_overlap else None
        if finished is None and key is not None and inputs is not None:
            rows = [asdict(row) for row in bad.first]
            more = {"num_bad": bad.count, "bad": rows, "may_overlap": may_overlap}
            record_finished(staged, written, store, key=key, inputs=inputs, more=more)
    except BaseException:
        staged.give_up()
        raise
    prepared = PreparedDataset(
        name=name,
        config=config,
        version=_NEXT,
        splits=tuple(split for split, _ in written),
        features=features,
        metadata=_with_skipped(plan.metadata(), bad),
        file_format="tfrecord",
    )
    return StagedSource(
        store=staged.store,
        staged=staged,
        prepared=prepared,
        shards=MappingProxyType({split.name: made for split, made in written}),
        bad=bad,
        folded=Folded.of(results),
        overlap=overlap,
        data=None if key is None else store,
    )


def _choose_engine(processes: int | None, num_rows: int | None) -> Engine:
    """Choose the engine that encodes the rows."""
    if num_rows is None or num_rows < _MANY_ROWS or has_engine_of_block():
        return choose_engine(processes, num_bytes=None, reads=())
    return choose_engine(processes, num_bytes=0, num_items=num_rows, reads=())


def _find_overlap(
    staged: StagedFolder,
    written: Sequence[tuple[Split, tuple[Shard, ...]]],
    features: FeaturesDict,
    path_column: str,
    processes: int | None,
) -> RecordOverlap:
    """Find equal records of different splits. Their paths may differ."""
    splits = tuple(split for split, _ in written)
    return compare_slices(
        StoredSplits(staged.store, splits, features),
        [[RecordRange(split=split.name, start=0, stop=split.num_examples)] for split in splits],
        is_one_encoding=not path_column,
        path_column=path_column or None,
        show=1,
        processes=processes,
    )


def _with_skipped(metadata: DatasetMetadata, bad: BadRows) -> DatasetMetadata:
    """Add the rows that were left out to the description."""
    if not bad.count:
        return metadata
    rows = [{"file": row.file, "line": row.line, "reason": str(row)} for row in bad.first]
    return replace(metadata, custom={**metadata.custom, "skipped_rows": {"count": bad.count, "rows": rows}})


def _encode(
    source: Source,
    encoder: ChunkEncoder,
    engine: Engine,
    progress: ProgressCallback | None,
    num_rows: int | None,
) -> Iterator[tuple[Encoded, Chunk]]:
    advance = count_progress(progress, "encoding", source.kind, total=num_rows, unit="rows", announce=True)

    def pieces() -> Iterator[Piece[Chunk, Encoded]]:
        for part in source.parts:
            for rows in part.read():
                chunk = Chunk(part=part.name, split=part.split, rows=rows)
                yield Piece(encoder, chunk, num_items=rows.table.num_rows)

    watch = watch_tasks(advance, are_results_small=False)
    for chunk, encoded in engine.run(pieces(), doing="encoded rows", failure=SourceError, watch=watch):
        yield encoded, chunk
        if advance is not None:
            advance(chunk.rows.table.num_rows)


@dataclass(slots=True)
class _Sorters:
    """One sorter for each split, created when the first record of the split arrives."""

    stack: ExitStack
    store: Store
    plan: Plan
    budget_bytes: int
    sorters: dict[str, ExternalSorter] = field(default_factory=dict)
    seen: dict[str, Occurrences] = field(default_factory=dict)
    marks: dict[str, list[Hashes]] = field(default_factory=dict)
    has_splits: bool = field(init=False)

    def __post_init__(self) -> None:
        self.has_splits = self.plan.has_splits  # found by a walk over all parts

    def add(self, encoded: Encoded, chunk: Chunk, offsets: _Offsets | None) -> None:
        """Add the records of a chunk to the sorters of their splits."""
        for name, keyed in encoded.by_split.items():
            if keyed.keys is None:
                sort_keys, labels = self._numbered(name, keyed, offsets), None
            else:
                sort_keys, labels = keyed.sort_keys, _Labels(keyed.keys, chunk.part, keyed.lines)
            self._sorter(name).add(KeyedFrames(sort_keys, labels, keyed.frames))
            if self.has_splits:
                marks = record_marks(keyed.frames.payloads()) if keyed.marks is None else keyed.marks
                self.marks.setdefault(name, []).append(marks)

    def may_overlap(self) -> bool:
        """Whether records of different splits have equal marks and so may be equal.

        Equal records have equal bytes here.
        """
        if len(self.marks) < 2:
            return False
        marks = np.sort(np.concatenate([_distinct(np.concatenate(mark)) for mark in self.marks.values()]))
        return bool((marks[1:] == marks[:-1]).any())

    def end_adding(self) -> None:
        """Free the memory that only ``add`` needs."""
        self.seen.clear()
        self.marks.clear()
        return_freed_memory()

    def write(
        self,
        dataset: str,
        num_shards: int | None,
        features: FeaturesDict,
        results: dict[str, list[Any] | None],
        engine: Engine,
        progress: ProgressCallback | None,
    ) -> list[tuple[Split, tuple[Shard, ...]]]:
        """Write the shards of every split, and put the results of the folds of a publication into ``results``."""
        for name in self.plan.source.splits if self.plan.split_by is None else ():
            if name not in self.sorters:
                first = next(part.name for part in self.plan.source.parts if part.split == name)
                raise SourceError(
                    f"{first}: the split {name!r} has no rows",
                    hint="Every split needs at least one row. Leave its files out, or choose the splits: "
                    f"{spell('splits', {'NAME': 'GLOB'})}",
                    details={"split": name},
                )
        for old, new in self.plan.new_names.items():
            if new not in self.sorters:
                raise UsageError(
                    f"the column {self.plan.split_by!r} has no split {old!r} to rename",
                    hint=suggest(old, list(self.sorters), have="The splits are:"),
                    details={"split": old, "splits": list(self.sorters)},
                )
        if self.plan.holdout is not None and self.plan.holdout.split not in self.sorters:
            raise SourceError(
                f"the holdout {self.plan.holdout.split!r} has no rows",
                hint=f"Choose a larger percentage, or leave out {spell('holdout')}."
                if self.plan.split_by is None
                else f"With {spell('split_by')}, it is part of 'train'. Choose a larger percentage, or leave it out.",
                details={"split": self.plan.holdout.split},
            )
        if not self.sorters:
            raise SourceError("there are no rows", hint="Add a source with one row or more.", details={})
        written = []
        for name in self._order():
            fold = SplitFold(features, publication_kinds())  # one split at a time, because its states take memory
            try:
                written.append(
                    write_split(
                        self.sorters[name],
                        split=name,
                        dataset=dataset,
                        reference=dataset,
                        store=self.store,
                        num_shards=num_shards,
                        fold=fold,
                        engine=engine,
                        progress=progress,
                    )
                )
            except DuplicateKeyError as error:
                raise _duplicate(name, error) from error
            results[name] = fold.results()
        return written

    def _order(self) -> list[str]:
        names = [name for name in self.plan.source.splits if name in self.sorters]
        others = sorted(set(self.sorters) - set(names), key=_field_order)
        return [*names, *others]

    def _sorter(self, name: str) -> ExternalSorter:
        if name not in self.sorters:
            check_cases([*self.sorters, name], column=self.plan.split_by)
            try:
                check_split_name(name)
            except UsageError as error:
                raise SourceError(
                    f"column {self.plan.split_by!r}: {name!r:.60} is not the name of a split",
                    hint=f"{error.hint} To give it another name: {spell('rename_splits', {name[:60]: 'NAME'})}",
                    details={"split": name[:200]},
                ) from error
            if len(self.sorters) == MOST_SPLITS:
                raise SourceError(
                    f"column {self.plan.split_by!r} names more than {MOST_SPLITS} splits",
                    hint=f"Choose a column with few values for {spell('split_by')}.",
                    details={"column": self.plan.split_by},
                )
            folder = self.store.local_root
            # All sorters share the memory. If a column names the splits, the number of sorters is known only at the
            # end.
            num_splits = max(len(self.plan.source.splits), len(self.sorters) + 1)
            share = max(_LEAST_BUDGET_BYTES, self.budget_bytes // num_splits)
            for other in self.sorters.values():
                other.reduce_budget(share)
            sorter = ExternalSorter(split=name, folder=folder, budget_bytes=share)
            self.sorters[name] = self.stack.enter_context(sorter)
        return self.sorters[name]

    def _numbered(self, name: str, keyed: Keyed, offsets: _Offsets | None) -> SortKeys:
        """Return the sort keys of content keys. A record that occurred before gets a new key."""
        if name not in self.seen:
            self.seen[name] = Occurrences(0 if self.has_splits else self.plan.num_rows or 0)
        seen, hashes = self.seen[name], first_words(keyed.sort_keys)
        if keyed.contents is None or offsets is None:
            numbers = seen.count(hashes)
        else:
            pairs = _pairs(hashes, keyed.contents)
            numbers = seen.count(pairs) + offsets.starts(name, pairs)
        places = np.flatnonzero(numbers)
        if not places.size:
            return keyed.sort_keys
        sort_keys = keyed.sort_keys.copy()
        sort_keys[places] = sort_keys_of_repeated(sort_keys[places], numbers[places].tolist())
        return sort_keys


def _distinct(hashes: Hashes) -> Hashes:
    """Return ``hashes`` sorted and without duplicates, five times as fast as ``np.unique``."""
    ordered = np.sort(hashes)
    return ordered[np.r_[True, ordered[1:] != ordered[:-1]]]


class _Offsets:
    """Orders records with equal hashed columns by their other columns, independent of the order of the input.

    A later version may have more columns than those that are hashed for the key. Records that were identical may then
    differ. Each of them gets a number that depends only on its content.
    """

    def __init__(self) -> None:
        self._found: dict[str, list[Hashes]] = {}
        self._sorted: dict[str, tuple[Hashes, npt.NDArray[np.int64]]] = {}

    def prepare(self, encoded: Encoded) -> None:
        """Add the records of a chunk. All chunks must be added before ``starts`` is called."""
        for name, keyed in encoded.by_split.items():
            if keyed.contents is not None:
                hashes = first_words(keyed.sort_keys)
                pairs = _pairs(hashes, keyed.contents)
                self._found.setdefault(name, []).append(np.stack([hashes, *keyed.contents, pairs]))

    def starts(self, name: str, pairs: Hashes) -> npt.NDArray[np.int64]:
        """Return, for each record, the number of records with the same key hash whose content is ordered before it."""
        if name not in self._sorted:
            if name not in self._found:
                raise _changed(f"the split {name!r} had no rows before")
            keys, *contents, known = np.concatenate(self._found.pop(name), axis=1)
            order = np.lexsort((*reversed(contents), keys))
            keys, known = keys[order], known[order]
            places = np.arange(len(keys))
            groups = np.maximum.accumulate(np.where(np.r_[True, keys[1:] != keys[:-1]], places, 0))
            is_start = np.r_[True, known[1:] != known[:-1]]
            known, starts = known[is_start], (places - groups)[is_start]
            by_pair = np.argsort(known)
            self._sorted[name] = known[by_pair], starts[by_pair]
        known, starts = self._sorted[name]
        places = np.searchsorted(known, pairs)
        places[places == len(known)] = 0
        if not np.array_equal(known[places], pairs):
            raise _changed("the values of a row changed")
        return starts[places]


def _changed(found: str) -> SourceError:
    return SourceError(
        f"the source changed while it was added: {found}",
        hint="Nothing was published. Wait until the program that writes the source has ended, then try again.",
        details={},
    )


def _pairs(hashes: Hashes, contents: Hashes) -> Hashes:
    """One hash of all."""
    for content in contents:
        hashes = hashes * MULTIPLIER ^ content
    return hashes


class _Labels(Sequence[str]):
    """The keys of a chunk in the form that errors show, created only for an error."""

    def __init__(self, keys: Sequence[str], part: str, lines: Sequence[int]) -> None:
        self._keys, self._part, self._lines = keys, part, lines

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[index] for index in range(*place.indices(len(self)))]
        return f"{self._keys[place]!r:.120} ({self._part}:{self._lines[place]})"


def _held_from(splits: Sequence[str], holdout: Holdout | None) -> str:
    """Return the split from which ``holdout`` is taken."""
    if holdout is None:
        return ""
    if holdout.split in splits:
        raise UsageError(
            f"the source has a split {holdout.split!r} already",
            hint=f"Choose another name, or leave out {spell('holdout')}.",
            details={"split": holdout.split},
        )
    if len(splits) == 1:
        return splits[0]
    if "train" in splits:
        return "train"
    raise UsageError(
        f"a holdout is taken from the only split or from 'train'; the splits are {', '.join(splits)}",
        hint=f"Choose the splits yourself: {spell('splits', {'train': 'GLOB'})}",
        details={"splits": list(splits)},
    )


def _field_order(name: str) -> tuple[int, str]:
    return (_FIELD_ORDER.index(name) if name in _FIELD_ORDER else len(_FIELD_ORDER), name)


def _duplicate(split: str, error: DuplicateKeyError) -> DuplicateKeyError:
    first, second = error.details.get("keys", ["", ""])
    return DuplicateKeyError(
        f"split {split!r}: two records have the same key: {first} and {second}",
        hint=f"Choose a column of unique values: {spell('key=COLUMN')}. "
        f"Or allow equal records: {spell('key_by', 'content')}",
        details={"split": split, "keys": [first, second]},
    )
