"""Builds a dataset: generates, encodes, sorts and writes one split after the other.

    builder -> keyed examples -> records -> sorted by key -> shards, in a staged folder that readers do not see

The folder has TFDS's layout and is complete when ``build_dataset`` returns. ``registry.publishing`` then verifies the
shards, moves the folder into place and writes the row. The same builder gives the same bytes on every run and machine,
for any number of processes and any memory budget. The number and lengths of shards follow TFDS 4.9, so that the same
records give the same shards (``plan_num_shards``, ``plan_shards``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Final, Self

from registry.building.author_code import add_place
from registry.building.builder import DatasetBuilder, Examples
from registry.building.encoding import encode_examples
from registry.building.generation import call_features, call_splits, examples_place, key_examples
from registry.building.sorter import DEFAULT_BUDGET_BYTES, Entry, ExternalSorter
from registry.engines import Engine, choose_engine
from registry.errors import BuildError, FeatureError, UsageError
from registry.features import Codec, codec_of
from registry.model import (
    ProgressCallback,
    Shard,
    ShardedFileTemplate,
    ShardLengths,
    Split,
    count_progress,
    version_folder,
)
from registry.prepared import PreparedDataset, write_prepared
from registry.storage import StagedFolder, Store
from registry.tfrecord import RecordWriter

FILE_FORMAT: Final = "tfrecord"
_KEY_BUDGET_SHARE: Final = 8  # 1/8 of the memory budget is for keys that do not determine the order
_PROGRESS_SECONDS: Final = 0.05

MIN_SHARD_BYTES: Final = 64 * 2**20
MAX_SHARD_BYTES: Final = 2**30
_FRAMING_BYTES: Final = 16  # of one TFRecord: length, its checksum, the payload's checksum
_PREFERRED: Final = 1024  # enough for many readers, and divisible by every smaller power of two


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedBuild:
    """A built version that readers do not see yet. A context manager that discards it unless ``staged.commit()`` ran.

    Attributes:
        staged: the complete folder. ``staged.final`` is its final place below the data folder.
        prepared: the content of its ``dataset_info.json`` and ``features.json``.
        shards: the written shards of each split: sizes in bytes, numbers of examples, and sha256.
    """

    staged: StagedFolder
    prepared: PreparedDataset
    shards: Mapping[str, tuple[Shard, ...]]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.staged.give_up()


def build_dataset(
    builder: DatasetBuilder,
    store: Store,
    *,
    processes: int | None = None,
    num_shards: int | Mapping[str, int] | None = None,
    progress: ProgressCallback | None = None,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
) -> StagedBuild:
    """Run ``builder`` and write all its shards into a staged folder below ``store``.

    Args:
        builder: one version of one config.
        store: the data folder, local or remote. If it is remote, sorting writes temporary files to TMPDIR.
        processes: the number of processes that encode examples. 1: this process only. None: this process, and one
            worker for each core as soon as encoding proves slow enough.
        num_shards: the number of shards of each split, or a dict of split -> number. None: ``builder.NUM_SHARDS``, or
            else TFDS's rule of size and count.
        progress: called with a ``Progress``: each split is encoded, then written, in records.
        budget_bytes: memory for sorting. A build uses about this much, and a few chunks of 1 MB for each process.

    Raises:
        BuildError: this code cannot prepare the version; author code failed; a split has no examples, which TFDS
            cannot write either, or fewer examples than shards; or a worker process died.
        DuplicateKeyError: a key is used twice in a split.
        FeatureError: an example does not match the features; names split, key and the generator's file and line.
        UsageError: ``num_shards`` contains an unknown split.
        StorageError: the disk is full or not writable.

    >>> from registry.storage import open_store
    >>> from registry.building import open_builder
    >>> with build_dataset(open_builder("digits"), open_store("memory://docs")) as build:
    ...     build.staged.final, build.prepared.splits[0].num_examples
    ('digits/1.0.0', 1797)
    """
    _refuse_other_code(builder)
    features = call_features(builder)
    splits = call_splits(builder)
    counts = _shard_counts(builder, splits, num_shards)
    final = version_folder(builder.name, builder.config_name, builder.version)
    store.clear_abandoned(final.rpartition("/")[0])
    staged = store.stage(final)
    try:
        made: dict[str, tuple[Split, tuple[Shard, ...]]] = {}
        with choose_engine(processes, num_bytes=None) as engine:
            for name, examples in splits.items():
                job = _SplitJob(
                    builder=builder,
                    codec=codec_of(features),
                    split=name,
                    store=staged.store,
                    engine=engine,
                    num_shards=counts[name],
                    progress=progress,
                    budget_bytes=budget_bytes,
                )
                made[name] = job.run(examples)
        prepared = PreparedDataset(
            name=builder.name,
            config=builder.config_name,
            version=builder.version.number,
            splits=tuple(split for split, _ in made.values()),
            features=features,
            metadata=builder.metadata,
            file_format=FILE_FORMAT,
            disable_shuffling=builder.DISABLE_SHUFFLING,
            experiments=builder.version.experiments,
        )
        write_prepared(staged.store, prepared)
    except BaseException:
        staged.give_up()
        raise
    shards = MappingProxyType({name: written for name, (_, written) in made.items()})
    return StagedBuild(staged=staged, prepared=prepared, shards=shards)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SplitJob:
    """Everything needed to build one split."""

    builder: DatasetBuilder
    codec: Codec
    split: str
    store: Store
    engine: Engine
    num_shards: int | None
    progress: ProgressCallback | None
    budget_bytes: int

    def run(self, examples: Examples) -> tuple[Split, tuple[Shard, ...]]:
        """Encode, sort and write the split. Faults of examples name the file and line of their generator."""
        try:
            return self._run(examples)
        except (BuildError, FeatureError) as error:
            if {"key", "keys", "position", "num_examples"} & error.details.keys():
                add_place(error, examples_place(self.builder, examples))
            raise

    def _run(self, examples: Examples) -> tuple[Split, tuple[Shard, ...]]:
        with self._sorter(self.budget_bytes) as sorter:
            self._encode(examples, sorter)
            split = Split(
                name=self.split,
                shard_lengths=self._plan(sorter),
                num_bytes=sorter.num_payload_bytes,
                files=ShardedFileTemplate(dataset=self.builder.name, file_format=FILE_FORMAT),
            )
            watched = self._watched(sorter.sorted_entries(), "writing", sorter.num_examples)
            return split, self._write(split, watched)

    def _sorter(self, budget_bytes: int) -> ExternalSorter:
        return ExternalSorter(split=self.split, folder=self.store.local_root, budget_bytes=budget_bytes)

    def _encode(self, examples: Examples, sorter: ExternalSorter) -> None:
        with self._sorter(self.budget_bytes // _KEY_BUDGET_SHARE) as unsorted_keys:
            keyed = key_examples(
                self.split, examples, shuffled=not self.builder.DISABLE_SHUFFLING, unsorted_keys=unsorted_keys
            )
            with closing(keyed):
                encoded = encode_examples(self.engine, self.codec, self.split, keyed)
                for entry in self._watched(encoded, "encoding", None):  # the author's code alone knows the number
                    sorter.add(entry)
            for _ in unsorted_keys.sorted_entries():
                pass  # raises DuplicateKeyError if a key is used twice

    def _plan(self, sorter: ExternalSorter) -> ShardLengths:
        if sorter.num_examples == 0:
            raise BuildError(
                f"split {self.split!r} of {self.builder.reference} has no examples",
                hint="Check that the paths it reads match files, and that the generator yields. To have no such split, "
                "leave it out of splits().",
                details={"split": self.split, "num_examples": 0},
            )
        try:
            num_shards = self.num_shards or plan_num_shards(
                num_examples=sorter.num_examples, num_payload_bytes=sorter.num_payload_bytes
            )
            return plan_shards(num_examples=sorter.num_examples, num_shards=num_shards)
        except BuildError as error:
            message = f"split {self.split!r} of {self.builder.reference}: {error.message}"
            raise BuildError(message, hint=error.hint, details={**error.details, "split": self.split}) from error

    def _write(self, split: Split, entries: Iterator[Entry]) -> tuple[Shard, ...]:
        shards = []
        for index, length in enumerate(split.shard_lengths):
            with self.store.create(split.filename(index)) as file:
                writer = RecordWriter(file)
                for entry in islice(entries, length):
                    writer.write(entry.record)
            shards.append(
                Shard(
                    index=index,
                    first_example=split.shard_lengths.start(index),
                    num_examples=writer.num_records,
                    num_bytes=writer.num_bytes,
                    sha256=writer.sha256(),
                )
            )
        next(entries, None)  # no entry is left: this ends the merge, and reports the last progress
        return tuple(shards)

    def _watched(self, entries: Iterator[Entry], stage: str, total: int | None) -> Iterator[Entry]:
        """``entries``, reported a few times a second: drawing a bar takes longer than encoding one example."""
        advance = count_progress(self.progress, stage, self.split, total=total, announce=True)
        if advance is None:
            yield from entries
            return
        num_examples, reported = 0, time.monotonic()
        for entry in entries:
            yield entry
            num_examples += 1
            if time.monotonic() - reported > _PROGRESS_SECONDS:
                advance(num_examples)
                num_examples, reported = 0, time.monotonic()
        advance(num_examples)


def _refuse_other_code(builder: DatasetBuilder) -> None:
    """Refuse a version that only older code can prepare."""
    code = builder.version.version_to_prepare
    if code is None:
        return
    others = [str(version) for version in builder.versions(builder.config_name) if version.version_to_prepare is None]
    raise BuildError(
        f"{builder.reference} cannot be prepared by this code; the last code that can is {code}",
        hint=f"Prepare it with that code, then publish the folder: registry publish FOLDER --version-to-prepare {code}"
        + (f"\nThis code can build: {', '.join(others)}." if others else ""),
        details={"reference": str(builder.reference), "version_to_prepare": code, "buildable": others},
    )


def _shard_counts(
    builder: DatasetBuilder, splits: Mapping[str, Examples], num_shards: int | Mapping[str, int] | None
) -> dict[str, int | None]:
    """The requested number of shards by split; None if ``plan_num_shards`` decides."""
    wanted = builder.NUM_SHARDS if num_shards is None else num_shards
    if not isinstance(wanted, Mapping):
        return dict.fromkeys(splits, wanted)
    if unknown := sorted(set(wanted) - set(splits)):
        raise UsageError(
            f"num_shards contains {unknown[0]!r}, which is not a split of {builder.reference}",
            hint=f"The splits are: {', '.join(splits)}.",
            details={"split": unknown[0]},
        )
    return {name: wanted.get(name) for name in splits}


def plan_num_shards(*, num_examples: int, num_payload_bytes: int, beam: bool = False) -> int:
    """Return the number of shards for ``num_examples`` records with ``num_payload_bytes`` serialized bytes in total.

    ``beam=True`` follows TFDS's writer for Apache Beam, which keeps files below 0.9 GiB. Its shards differ in length,
    because the hash of a record determines its shard (``beam_bucket``).

    >>> plan_num_shards(num_examples=1797, num_payload_bytes=400_000)
    1
    >>> plan_num_shards(num_examples=1_281_167, num_payload_bytes=150 * 2**30)
    1024

    Raises:
        BuildError: the records take more than 1 TiB and are fewer than the shards needed (TFDS loops forever).
    """
    num_bytes = num_payload_bytes + _FRAMING_BYTES * num_examples
    fewest = num_bytes * 10 // (9 * MAX_SHARD_BYTES) if beam else num_bytes // MAX_SHARD_BYTES
    most = num_bytes // MIN_SHARD_BYTES
    if fewest > _PREFERRED:
        num_shards = max(2, -(-fewest // _PREFERRED)) * _PREFERRED
        if num_shards > num_examples:
            raise BuildError(
                f"{num_bytes} bytes require {num_shards} shards, but there are only {num_examples} examples",
                hint="Set the number of shards with --shards N or NUM_SHARDS, or make the examples smaller.",
                details={"num_bytes": num_bytes, "num_examples": num_examples, "num_shards": num_shards},
            )
        return num_shards
    for num_shards in (_PREFERRED, 512, 256, 128, 64, 32, 16, 8, 4, 2):
        if fewest <= num_shards <= most and num_shards <= num_examples:
            return num_shards
    return 1


def plan_shards(*, num_examples: int, num_shards: int) -> ShardLengths:
    """Return the number of records in each of ``num_shards`` shards.

    Shard i starts at ``num_examples * i / num_shards``, rounded half to even, as in TFDS.

    >>> list(plan_shards(num_examples=10, num_shards=4))
    [2, 3, 3, 2]

    Raises:
        BuildError: ``num_shards`` is below 1 or above ``num_examples``. Every shard has at least one record.
    """
    if not 1 <= num_shards <= num_examples:
        raise BuildError(
            f"{num_examples} examples cannot be written as {num_shards} shards",
            hint=f"Every shard needs an example. Set --shards or NUM_SHARDS to a number from 1 to {num_examples}.",
            details={"num_examples": num_examples, "num_shards": num_shards},
        )
    parts = [divmod(num_examples * index, num_shards) for index in range(num_shards + 1)]
    starts = [whole + (2 * rest + (whole & 1) > num_shards) for whole, rest in parts]
    return ShardLengths(stop - start for start, stop in pairwise(starts))


def beam_bucket(key_hash: int, *, num_buckets: int, max_hash: int = 2**128 - 1) -> int:
    """Return which of ``num_buckets`` files, or buckets of its sorter, TFDS puts a record in whose key has this hash.

    Divides floats, as TFDS does.

    >>> beam_bucket(2**127, num_buckets=1000)
    500
    """
    return min(int(key_hash * num_buckets / max_hash), num_buckets - 1)
