"""Writes the records of a source to shards, in a staged folder that readers do not see.

    Source, Schema -> keyed records -> one sorter for each split -> shards

The same input gives the same bytes for any order of files, any memory budget, and any number of processes.
``publishing.numbering`` then chooses the number and writes the row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np

from registry.building import DEFAULT_BUDGET_BYTES, ExternalSorter, KeyedFrames, hash_keys, write_split
from registry.engines import Piece, choose_engine
from registry.errors import DuplicateKeyError, SourceError, UnusableRowsError, UsageError
from registry.intake.keys import KeyRule, Occurrences, content_key, first_words, holdout_fraction
from registry.intake.records import Chunk, ChunkEncoder, Encoded, stored_features
from registry.intake.schema import Schema
from registry.intake.source import BadRow, Source
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
from registry.storage import StagedFolder, Store
from registry.tfrecord import frame_records

MOST_SPLITS: Final = 64
MOST_NAMED: Final = 20
MOST_KEPT: Final = 10_000
"""The bad rows that a version keeps a list of; beyond, only their number is kept."""

_NEXT: Final = Version(1, 0, 0)  # replaced by the number that the proof allows
_FIELD_ORDER: Final = ("train", "validation", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdout:
    """A split that is cut from another by the hash of the key, so that each record stays on its side.

    Attributes:
        split: the name of the new split.
        fraction: its share of the records, above 0 and below 1.
        seed: another seed gives another cut.

    >>> Holdout.parse("test=10%", seed=7)
    Holdout(split='test', fraction=0.1, seed=7)
    """

    split: str
    fraction: float
    seed: int = 0

    @classmethod
    def parse(cls, text: str, *, seed: int = 0) -> Holdout:
        """Read ``NAME=PERCENT%``.

        Raises:
            UsageError: the text has another form, or the percentage is not above 0 and below 100.
        """
        found = re.fullmatch(r"([^=]+)=([0-9]+(?:\.[0-9]+)?)%", text.strip())
        if found is None or not 0 < float(found[2]) < 100:
            raise UsageError(
                f"invalid holdout {text!r}: expected NAME=PERCENT%, with a percentage above 0 and below 100",
                hint="For example: test=10%",
                details={"holdout": text},
            )
        check_split_name(found[1])
        return cls(split=found[1], fraction=float(found[2]) / 100, seed=seed)


@dataclass(slots=True, kw_only=True)
class BadRows:
    """The rows and files that cannot be used: how many, and the first of them."""

    allowed: int = 0
    count: int = 0
    first: list[BadRow] = field(default_factory=list)

    def add(self, rows: Sequence[BadRow]) -> None:
        """Count ``rows``, and keep them while the list is short."""
        self.count += len(rows)
        self.first += rows[: max(0, MOST_KEPT - len(self.first))]

    def require_few(self) -> None:
        """Raise an UnusableRowsError that names the first rows, if there are more than allowed."""
        if self.count <= self.allowed:
            return
        lines = [f"  {one}" for one in self.first[:MOST_NAMED]]
        if self.count > MOST_NAMED:
            lines.append(f"  and {self.count - len(lines):,} more")
        limit = f", and at most {self.allowed:,} may be skipped" if self.allowed else ""
        what = "1 row or file" if self.count == 1 else f"{self.count:,} rows or files"
        raise UnusableRowsError(
            "\n".join([f"{what} cannot be used{limit}", *lines]),
            hint=f"Correct them, or leave them out: --skip-bad {self.count}",
            details={
                "num_bad": self.count,
                "bad": [
                    {"file": one.file, "line": one.line, "column": one.column, "reason": one.reason}
                    for one in self.first[:100]
                ],
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSource:
    """The shards of a source, without a number and a description. A context manager that discards what is staged.

    Attributes:
        store: the folder of the shards.
        staged: the same folder, if it was written; None if the files stay where they are.
        prepared: the description; its number is not final.
        shards: the shards of each split that were written, or None.
        bad: the rows that were left out.
    """

    store: Store
    staged: StagedFolder | None
    prepared: PreparedDataset
    shards: Mapping[str, tuple[Shard, ...]] | None
    bad: BadRows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.staged is not None:
            self.staged.give_up()


def stage_source(
    source: Source,
    schema: Schema,
    rule: KeyRule,
    store: Store,
    *,
    name: str,
    config: str | None = None,
    metadata: DatasetMetadata,
    split_by: str | None = None,
    holdout: Holdout | None = None,
    num_shards: int | None = None,
    bad: BadRows | None = None,
    processes: int | None = None,
    num_rows: int | None = None,
    progress: ProgressCallback | None = None,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
) -> StagedSource:
    """Write the records of ``source`` to shards in a staged folder below ``store``.

    Args:
        source: what to read.
        schema: the types of its columns.
        rule: where the keys of the records come from.
        store: the data directory.
        name: the name of the dataset.
        config: its config, or None.
        metadata: the description of the version; the list of skipped rows is added to it.
        split_by: the column that decides the split; it is not stored.
        holdout: a split to cut from the only other one, or from ``train``.
        num_shards: the number of shards of each split. None: TFDS's rule.
        bad: collects unusable rows, and says how many are allowed.
        processes: the number of processes that encode. None: one for each core once there is enough work.
        num_rows: the number of rows, for progress, if known.
        progress: called with a ``Progress``: rows are ``encoding``, then records of each split ``writing``.
        budget_bytes: memory for sorting.

    Raises:
        UnusableRowsError: more rows cannot be used than ``bad`` allows.
        DuplicateKeyError: two records of a split have the same key; names both places.
        SourceError: a split has no rows, or a part cannot be read.
        UsageError: ``split_by`` or ``holdout`` does not fit the source.
        StorageError: the disk is full or not writable.
    """
    bad = BadRows() if bad is None else bad
    features = stored_features(schema, split_by)
    encoder = ChunkEncoder(schema=schema, rule=rule, split_by=split_by)
    final = version_folder(name, config, _NEXT)
    store.clear_abandoned(final.rpartition("/")[0])
    staged = store.stage(final)
    try:
        with ExitStack() as stack:
            sorters = _Sorters(stack, staged.store, source, holdout, split_by, budget_bytes)
            offsets = _Offsets() if rule.kind == "content" and set(rule.columns) != set(features) else None
            if offsets is not None:
                for encoded, chunk in _encode(source, encoder, processes, None, None):
                    offsets.prepare(sorters.destinations(encoded, chunk), encoded)
            for encoded, chunk in _encode(source, encoder, processes, progress, num_rows):
                bad.add(encoded.bad)
                if bad.count <= bad.allowed:  # else go on only to count the bad rows
                    sorters.add(encoded, chunk, offsets)
            bad.require_few()
            written = sorters.write(name, num_shards, progress)
    except BaseException:
        staged.give_up()
        raise
    if bad.count:
        skipped = [_skipped(one) for one in bad.first]
        custom = {**metadata.custom, "skipped_rows": {"count": bad.count, "rows": skipped}}
        metadata = replace(metadata, custom=custom)
    prepared = PreparedDataset(
        name=name,
        config=config,
        version=_NEXT,
        splits=tuple(split for split, _ in written),
        features=features,
        metadata=metadata,
        file_format="tfrecord",
    )
    shards = MappingProxyType({split.name: made for split, made in written})
    return StagedSource(store=staged.store, staged=staged, prepared=prepared, shards=shards, bad=bad)


def _skipped(row: BadRow) -> dict[str, Any]:
    return {"file": row.file, "line": row.line, "reason": str(row)}


def _encode(
    source: Source,
    encoder: ChunkEncoder,
    processes: int | None,
    progress: ProgressCallback | None,
    num_rows: int | None,
) -> Iterator[tuple[Encoded, Chunk]]:
    advance = count_progress(progress, "encoding", source.kind, total=num_rows, unit="rows", announce=True)

    def pieces() -> Iterator[Piece[Chunk, Encoded]]:
        for part in source.parts:
            for rows in part.read():
                yield Piece(encoder, Chunk(part=part.name, split=part.split, rows=rows))

    with choose_engine(processes, num_bytes=None) as engine:
        for chunk, encoded in engine.run(pieces(), doing="encoded rows", failure=SourceError):
            yield encoded, chunk
            if advance is not None:
                advance(chunk.rows.table.num_rows)


class _Sorters:
    """One sorter for each split, created when the first record of the split arrives."""

    def __init__(
        self,
        stack: ExitStack,
        store: Store,
        source: Source,
        holdout: Holdout | None,
        split_by: str | None,
        budget_bytes: int,
    ) -> None:
        self._stack = stack
        self._store = store
        self._splits = source.splits
        self._split_by = split_by
        self._holdout = holdout
        self._held_from = _held_from(source.splits, holdout) if split_by is None else "train"
        self._budget_bytes = max(4 * 2**20, budget_bytes // max(1, len(source.splits)))
        self._sorters: dict[str, ExternalSorter] = {}
        self._seen: dict[str, Occurrences] = {}

    def destinations(self, encoded: Encoded, chunk: Chunk) -> list[str]:
        """The split of each record."""
        names = list(encoded.splits) if encoded.splits is not None else [chunk.split] * len(encoded.records)
        holdout = self._holdout
        if holdout is None:
            return names
        return [
            holdout.split
            if name == self._held_from and holdout_fraction(key, holdout.seed) < holdout.fraction
            else name
            for name, key in zip(names, _stable_keys(encoded.keys), strict=True)
        ]

    def add(self, encoded: Encoded, chunk: Chunk, offsets: _Offsets | None) -> None:
        """Add the records of a chunk to the sorters of their splits."""
        if not encoded.records:
            return
        destinations = self.destinations(encoded, chunk)
        names = dict.fromkeys(destinations)
        for name in names:
            places = None if len(names) == 1 else [at for at, one in enumerate(destinations) if one == name]
            keys = list(_chosen(encoded.keys, places))
            lines = _chosen(encoded.lines, places)
            if keys and isinstance(keys[0], bytes):
                contents = None if encoded.contents is None else _chosen(encoded.contents, places)
                keys = self._numbered(name, keys, contents, offsets)
            frames = frame_records(_chosen(encoded.records, places))
            self._sorter(name).add(KeyedFrames(hash_keys(name, keys), _Labels(keys, chunk.part, lines), frames))

    def write(
        self, dataset: str, num_shards: int | None, progress: ProgressCallback | None
    ) -> list[tuple[Split, tuple[Shard, ...]]]:
        """Write the shards of every split."""
        for name in [*self._splits, *([self._holdout.split] if self._holdout is not None else [])]:
            if name not in self._sorters and self._split_by is None:
                raise SourceError(
                    f"the split {name!r} has no rows",
                    hint="Every split needs a row. Leave its files out, or choose the splits: --split NAME=GLOB",
                    details={"split": name},
                )
        if not self._sorters:
            raise SourceError("there are no rows", hint="Add a source with one row or more.", details={})
        written = []
        for name in self._order():
            try:
                written.append(
                    write_split(
                        self._sorters[name],
                        split=name,
                        dataset=dataset,
                        reference=dataset,
                        store=self._store,
                        num_shards=num_shards,
                        progress=progress,
                    )
                )
            except DuplicateKeyError as error:
                raise _duplicate(name, error) from error
        return written

    def _order(self) -> list[str]:
        given = [name for name in self._splits if name in self._sorters]
        others = sorted(set(self._sorters) - set(given), key=_field_order)
        return [*given, *others]

    def _sorter(self, name: str) -> ExternalSorter:
        if name not in self._sorters:
            try:
                check_split_name(name)
            except UsageError as error:
                raise SourceError(
                    f"column {self._split_by!r}: {name!r:.60} is not the name of a split",
                    hint=error.hint,
                    details={"split": name[:200]},
                ) from error
            if len(self._sorters) == MOST_SPLITS:
                raise SourceError(
                    f"column {self._split_by!r} names more than {MOST_SPLITS} splits",
                    hint="Choose a column with few values for --split-by.",
                    details={"column": self._split_by},
                )
            folder = self._store.local_root
            sorter = ExternalSorter(split=name, folder=folder, budget_bytes=self._budget_bytes)
            self._sorters[name] = self._stack.enter_context(sorter)
        return self._sorters[name]

    def _numbered(
        self, name: str, hashes: Sequence[Any], contents: Sequence[bytes] | None, offsets: _Offsets | None
    ) -> list[Any]:
        """Content keys: the hash, and for a repeated one how often it occurred before."""
        seen = self._seen.setdefault(name, Occurrences())
        if contents is None or offsets is None:
            numbers = seen.count(first_words(hashes))
        else:
            numbers = seen.count(_pairs(hashes, contents)) + offsets.starts(name, hashes, contents)
        return [content_key(one, number) for one, number in zip(hashes, numbers.tolist(), strict=True)]


class _Offsets:
    """Orders records that are equal in the hashed columns by their other columns, for any order of the input.

    A later version may have more columns than are hashed for the key. Records that were identical may then differ; each
    of them gets a number that depends on its content alone.
    """

    def __init__(self) -> None:
        self._found: dict[str, list[np.ndarray[Any, np.dtype[np.uint64]]]] = {}
        self._sorted: dict[str, tuple[Any, Any]] = {}

    def prepare(self, destinations: Sequence[str], encoded: Encoded) -> None:
        """Take note of the records of a chunk, before any number is asked for."""
        if not encoded.records or encoded.contents is None:
            return
        keys, contents = first_words([*map(bytes, encoded.keys)]), first_words(encoded.contents)  # type: ignore[arg-type]
        pairs = _pairs([*map(bytes, encoded.keys)], encoded.contents)  # type: ignore[arg-type]
        names = np.array(destinations)
        for name in dict.fromkeys(destinations):
            chosen = names == name
            triples = np.stack([keys[chosen], contents[chosen], pairs[chosen]])
            self._found.setdefault(name, []).append(triples)

    def starts(self, name: str, hashes: Sequence[bytes], contents: Sequence[bytes]) -> Any:
        """For each record, the number of records with the same key hash that come before its content."""
        if name not in self._sorted:
            keys, found, pairs = np.concatenate(self._found.pop(name), axis=1)
            order = np.lexsort((found, keys))
            keys, pairs = keys[order], pairs[order]
            is_first = np.r_[True, keys[1:] != keys[:-1]]
            group = np.maximum.accumulate(np.where(is_first, np.arange(len(keys)), 0))
            is_start = np.r_[True, pairs[1:] != pairs[:-1]]
            starts = (np.arange(len(keys)) - group)[is_start]
            pairs = pairs[is_start]
            by_pair = np.argsort(pairs)
            self._sorted[name] = pairs[by_pair], starts[by_pair]
        known, starts = self._sorted[name]
        return starts[np.searchsorted(known, _pairs(hashes, contents))]


def _pairs(hashes: Sequence[bytes], contents: Sequence[bytes]) -> Any:
    multiplier = np.uint64(0x9E3779B97F4A7C15)
    return first_words(hashes) * multiplier ^ first_words(contents)


class _Labels(Sequence[str]):
    """The keys of a chunk as errors show them, made when an error needs them."""

    def __init__(self, keys: Sequence[str], part: str, lines: Sequence[int]) -> None:
        self._keys, self._part, self._lines = keys, part, lines

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        return f"{self._keys[place]!r:.120} ({self._part}:{self._lines[place]})"


def _chosen(values: Sequence[Any], places: Sequence[int] | None) -> Sequence[Any]:
    return values if places is None else [values[place] for place in places]


def _stable_keys(keys: Sequence[str] | Sequence[bytes]) -> list[str]:
    """Keys that do not depend on other records: of content keys, the part before the number."""
    return [key if isinstance(key, str) else key.hex() for key in keys]


def _held_from(splits: Sequence[str], holdout: Holdout | None) -> str:
    """The split from which ``holdout`` is cut."""
    if holdout is None:
        return ""
    if holdout.split in splits:
        raise UsageError(
            f"the source has a split {holdout.split!r} already",
            hint="Leave --holdout out, or choose another name.",
            details={"split": holdout.split},
        )
    if len(splits) == 1:
        return splits[0]
    if "train" in splits:
        return "train"
    raise UsageError(
        f"a holdout is cut from the only split or from 'train'; the splits are {', '.join(splits)}",
        hint="Choose the splits yourself: --split train=GLOB",
        details={"splits": list(splits)},
    )


def _field_order(name: str) -> tuple[int, str]:
    return (_FIELD_ORDER.index(name) if name in _FIELD_ORDER else len(_FIELD_ORDER), name)


def _duplicate(split: str, error: DuplicateKeyError) -> DuplicateKeyError:
    first, second = error.details.get("keys", ["", ""])
    return DuplicateKeyError(
        f"split {split!r}: two records have the same key: {first} and {second}",
        hint="Choose a column without repeated values for --key, or leave --key out: then equal records are counted.",
        details={"split": split, "keys": [first, second]},
    )
