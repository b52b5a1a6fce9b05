"""Builds a dataset: generates, encodes, sorts and writes one split after the other.

    builder -> keyed examples -> records -> sorted by key -> shards, in a staged folder that readers do not see

The folder has TFDS's layout and is complete when ``build_dataset`` returns. ``registry.publishing`` then verifies the
shards, moves the folder into place and writes the row. The same builder gives the same bytes on every run and machine,
for any number of processes and any memory budget.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from registry.building.author_code import add_place
from registry.building.builder import DatasetBuilder, Examples, Generated
from registry.building.encoding import encode_examples
from registry.building.example_runs import MadeRun, make_runs
from registry.building.finished import (
    find_finished,
    forget_finished,
    keep_or_give_up,
    place_of_finished,
    record_finished,
)
from registry.building.generation import Keyer, call_features, call_splits, examples_place, run_generator
from registry.building.input_labels import InputLabels
from registry.building.piece_runs import GroupMaker, make_group_runs, watch_inputs
from registry.building.pieces import Pieces
from registry.building.publication_folds import Folded, publication_kinds
from registry.building.run_files import CAN_SHARE_FILES
from registry.building.run_folder import RunFolder, SplitRuns
from registry.building.run_format import KeyedFrames
from registry.building.run_merging import check_keys, merge_runs
from registry.building.sorter import DEFAULT_BUDGET_BYTES, ExternalSorter
from registry.building.writing import FILE_FORMAT, plan_split, watch_frames, write_runs, write_split
from registry.engines import Engine, ThisProcess, choose_engine, num_cpus
from registry.errors import BuildError, DuplicateKeyError, FeatureError, UsageError, spell, warn
from registry.features import Codec, FeaturesDict, codec_of, features_to_json
from registry.features.fold import SplitFold
from registry.model import ProgressCallback, Reference, Shard, Split, version_folder
from registry.prepared import PreparedDataset, write_prepared
from registry.storage import StagedFolder, Store

_KEY_BUDGET_SHARE: Final = 8  # 1/8 of the memory budget is for keys that do not determine the order
_TASK_BUDGET_SHARE: Final = 4  # generating and encoding examples takes the rest of a task's memory
_INTERPRETER_BYTES: Final = 150 * 2**20
_LEAST_TASK_BUDGET_BYTES: Final = 8 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedBuild:
    """A built version that readers do not see yet. A context manager that discards it unless ``staged.commit()`` ran.

    Attributes:
        staged: the complete folder. ``staged.final`` is its final place below the data folder.
        prepared: the content of its ``dataset_info.json`` and ``features.json``.
        shards: the written shards of each split: sizes in bytes, numbers of examples, and sha256.
        folded: what the folds of a publication computed, if they ran while all splits were written.
        store: the data folder.
        runs: the files of a cluster for this build. They are removed with the staged folder, and with those that
            earlier builds left, unless an error ends the block.
    """

    staged: StagedFolder
    prepared: PreparedDataset
    shards: Mapping[str, tuple[Shard, ...]]
    folded: Folded
    store: Store
    runs: RunFolder | None = None
    is_preview: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        keep_or_give_up(self.staged, error, option=spell("finished", True))
        if self.runs is not None:
            if kind is None:
                self.runs.remove(with_left=not self.is_preview)
            else:
                self.runs.release()
        if kind is not None:
            return
        if not self.is_preview:
            forget_finished(self.store, self.staged.final)


def build_dataset(
    builder: DatasetBuilder,
    store: Store,
    *,
    processes: int | None = None,
    num_shards: int | Mapping[str, int] | None = None,
    finished: bool = False,
    is_preview: bool = False,
    progress: ProgressCallback | None = None,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
) -> StagedBuild:
    """Run ``builder`` and write all its shards into a staged folder below ``store``.

    Args:
        builder: one version of one config.
        store: the data folder, local or remote. If it is remote, sorting writes temporary files to TMPDIR.
        processes: the number of processes that encode and sort examples, and write shards. 1: this process only. None:
            this process, and one worker for each core as soon as encoding proves slow enough. Workers get examples
            through temporary files in ``store``, or in TMPDIR.
        num_shards: the number of shards of each split, or a dict of split -> number. None: ``builder.NUM_SHARDS``, or
            else TFDS's rule of size and count.
        finished: take over the finished shards of an earlier run that could not publish them, instead of running the
            builder; on a cluster, also its finished runs of ``Pieces``. The caller decides whether its code and its
            inputs are still the same.
        is_preview: the version will not be published, so the finished shards of an earlier run stay.
        progress: called with a ``Progress``: each split is encoded, then written, in records and bytes. For ``Pieces``,
            the tasks are inputs; while several processes write, they are shards.
        budget_bytes: memory for sorting, shared by all processes. A build uses about this much, and a few chunks of
            1 MB for each process.

    Raises:
        BuildError: this code cannot prepare the version; author code failed; a split has no examples, which TFDS
            cannot write either, or fewer examples than shards; or a worker process died.
        DuplicateKeyError: a key is used twice in a split.
        FeatureError: an example does not match the features; names split, key and the generator's file and line.
        UsageError: ``num_shards`` contains an unknown split; or ``finished`` is True, and no earlier run with the same
            features, experiments and options left intact shards or runs.
        StorageError: the disk is full or not writable.

    >>> from registry.storage import open_store
    >>> from registry.building import open_builder
    >>> with build_dataset(open_builder("digits"), open_store("memory://docs")) as build:
    ...     build.staged.final, build.prepared.splits[0].num_examples
    ('digits/1.0.0', 1797)
    """
    _refuse_other_code(builder)
    final = version_folder(builder.name, builder.config_name, builder.version)
    store.clear_abandoned(final.rpartition("/")[0])
    features = call_features(builder)
    splits = call_splits(builder)
    counts = _shard_counts(builder, splits, num_shards)
    key = _key_of(builder, features, counts)
    is_pieced = any(isinstance(examples, Pieces) for examples in splits.values())
    runs = RunFolder(store, final, key) if is_pieced else None
    if finished and (build := _finished_build(builder, features, key, store, runs)) is not None:
        return build
    if not finished and not is_preview and (place := place_of_finished(store, final, key=key)):
        _warn_of_left(f"finished shards of {builder.reference} in {place}", "publishes")
    staged = store.stage(final)
    try:
        made: dict[str, tuple[Split, tuple[Shard, ...]]] = {}
        results: dict[str, list[Any] | None] = {}
        with choose_engine(
            processes, num_bytes=None, is_divided=is_pieced, reads=(store.url,) if is_pieced else ()
        ) as engine:
            cluster_runs = None if engine.shares_files else runs
            if not is_preview:
                _continue_or_warn(builder.reference, cluster_runs, store, finished=finished)
            for name, examples in splits.items():
                fold = SplitFold(features, publication_kinds())  # one split at a time, because its states take memory
                with InputLabels() as labels:
                    job = _SplitJob(
                        builder=builder,
                        codec=codec_of(features),
                        split=name,
                        staged=staged,
                        runs=cluster_runs,
                        input_labels=labels,
                        engine=engine,
                        num_shards=counts[name],
                        fold=fold,
                        progress=progress,
                        budget_bytes=budget_bytes,
                    )
                    made[name] = job.run(examples)
                results[name] = fold.results()
        prepared = _describe(builder, features, [split for split, _ in made.values()])
        write_prepared(staged.store, prepared)
        if not is_preview:
            record_finished(staged, list(made.values()), store, key=key)
    except BaseException:
        staged.give_up()
        if runs is not None:
            runs.release()
        raise
    shards = MappingProxyType({name: written for name, (_, written) in made.items()})
    folded = Folded.of(results)
    return StagedBuild(
        staged=staged,
        prepared=prepared,
        shards=shards,
        folded=folded,
        store=store,
        runs=runs,
        is_preview=is_preview,
    )


def _key_of(builder: DatasetBuilder, features: FeaturesDict, counts: Mapping[str, int | None]) -> str:
    """The key of finished shards: everything that their description must fit."""
    # The version has the flags, also those of the catalog, which the ledger will name. A features.json has no labels.
    version = astuple(builder.version)
    parts = [features_to_json(features), features.labels(), dict(counts), builder.DISABLE_SHUFFLING, version]
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


def _finished_build(
    builder: DatasetBuilder, features: FeaturesDict, key: str, store: Store, runs: RunFolder | None
) -> StagedBuild | None:
    """Return the build whose shards an earlier run has written, or None. The folds run over these shards."""
    final = version_folder(builder.name, builder.config_name, builder.version)
    finished = find_finished(store, final, key=key)
    if finished is None:
        return None
    prepared = _describe(builder, features, [split for split, _ in finished.made])
    finished.describe(prepared)
    return StagedBuild(
        staged=finished.staged,
        prepared=prepared,
        shards=MappingProxyType({split.name: shards for split, shards in finished.made}),
        folded=Folded(),
        store=store,
        runs=runs,
    )


def _continue_or_warn(reference: Reference, runs: RunFolder | None, store: Store, *, finished: bool) -> None:
    """Continue from the runs of an earlier build on a cluster if the caller allows it; otherwise tell how."""
    if finished and (runs is None or not runs.take_over()):
        raise UsageError(
            f"no earlier run left intact shards of {reference} with these features, experiments and options",
            hint=f"Leave out {spell('finished')}.",
            details={"reference": str(reference)},
        )
    if not finished and runs is not None and (name := runs.find_left()):
        _warn_of_left(f"finished runs of {reference} in {store.locate(name)}", "continues from")


def _warn_of_left(left: str, action: str) -> None:
    warn(
        f"the records are made again, although an earlier run left {left}. If code and inputs are the same, "
        f"{spell('finished', True)} {action} these"
    )


def _describe(builder: DatasetBuilder, features: FeaturesDict, splits: Sequence[Split]) -> PreparedDataset:
    return PreparedDataset(
        name=builder.name,
        config=builder.config_name,
        version=builder.version.number,
        splits=tuple(splits),
        features=features,
        metadata=builder.metadata,
        file_format=FILE_FORMAT,
        disable_shuffling=builder.DISABLE_SHUFFLING,
        experiments=builder.version.experiments,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _SplitJob:
    """The inputs and options for building a split."""

    builder: DatasetBuilder
    codec: Codec
    split: str
    staged: StagedFolder
    runs: RunFolder | None
    input_labels: InputLabels
    engine: Engine
    num_shards: int | None
    fold: SplitFold
    progress: ProgressCallback | None
    budget_bytes: int

    def run(self, examples: Examples) -> tuple[Split, tuple[Shard, ...]]:
        """Encode, sort and write the split. Faults of examples name the file and line of their generator."""
        try:
            return self._run(examples)
        except (BuildError, FeatureError) as error:
            if isinstance(error, DuplicateKeyError):
                self.input_labels.add_to(error)
            if {"key", "keys", "position", "num_examples"} & error.details.keys():
                add_place(error, examples_place(self.builder, examples))
            raise

    def _run(self, examples: Examples) -> tuple[Split, tuple[Shard, ...]]:
        if isinstance(examples, Pieces) and self.runs is not None:
            return self._run_on_cluster(examples, self.runs)
        with self._sorter(self.budget_bytes) as sorter:
            self._encode(examples, sorter)
            return write_split(
                sorter,
                split=self.split,
                dataset=self.builder.name,
                reference=str(self.builder.reference),
                store=self.staged.store,
                num_shards=self.num_shards,
                fold=self.fold,
                engine=self.engine,
                progress=self.progress,
            )

    def _run_on_cluster(self, examples: Pieces, folder: RunFolder) -> tuple[Split, tuple[Shard, ...]]:
        """Build the split on a cluster, whose machines read the runs and write the shards.

        Records never pass through here.
        """
        folder.open()
        place = folder.of_split(self.split, examples.generate)
        made = list(self._generate_pieces(examples, runs=place))
        runs = [result.run for result in made]
        keys = [result.keys for result in made if result.keys is not None]
        check_keys(self.engine, keys, split=self.split, budget_bytes=self._task_budget_bytes, progress=self.progress)
        # A staged folder in a data directory is on the shared disk, but a folder in TMPDIR is not.
        is_shared = folder.is_local
        store = self.staged.store if is_shared else folder.shards
        split = plan_split(
            num_examples=sum(run.num_records for run in runs),
            num_payload_bytes=sum(result.num_payload_bytes for result in made),
            split=self.split,
            dataset=self.builder.name,
            reference=str(self.builder.reference),
            num_shards=self.num_shards,
        )
        merged = merge_runs(
            self.engine,
            runs,
            place,
            num_shards=split.num_shards,
            budget_bytes=self._task_budget_bytes,
            progress=self.progress,
        )
        shards = write_runs(
            merged,
            split,
            store=store,
            fold=self.fold,
            engine=self.engine,
            budget_bytes=self._task_budget_bytes,
            progress=self.progress,
        )
        if not is_shared:
            for shard in shards:
                self.staged.take(store, split.filename(shard.index), sha256=shard.sha256)
        return split, shards

    def _sorter(self, budget_bytes: int) -> ExternalSorter:
        return ExternalSorter(split=self.split, folder=self._folder, budget_bytes=budget_bytes)

    @property
    def _folder(self) -> Path | None:
        """Return the folder for temporary files, on the local disk that receives the result."""
        return self.staged.store.local_root

    @property
    def _share_bytes(self) -> int:
        """Memory for sorting in each process of this machine."""
        return self.budget_bytes // max(self.engine.width, num_cpus())

    @property
    def _task_budget_bytes(self) -> int:
        """Memory for sorting in each task of a cluster: a share of the memory of a task, if it was set."""
        memory = self.engine.memory_of_piece
        if memory is None:
            return self.budget_bytes
        return max(_LEAST_TASK_BUDGET_BYTES, (memory - _INTERPRETER_BYTES) // _TASK_BUDGET_SHARE)

    def _encode(self, examples: Examples, sorter: ExternalSorter) -> None:
        with self._sorter(self.budget_bytes // _KEY_BUDGET_SHARE) as unsorted_keys:
            for made in self._generate(examples, unsorted_keys):
                if isinstance(made, MadeRun):
                    sorter.add_run(made.run, num_payload_bytes=made.num_payload_bytes)
                    if made.keys is not None:
                        unsorted_keys.add_run(made.keys, num_payload_bytes=0)
                else:
                    sorter.add(made)
            for _ in unsorted_keys.sorted_frames():
                pass  # raises DuplicateKeyError if a key is used twice

    def _generate(self, examples: Examples, unsorted_keys: ExternalSorter) -> Iterator[KeyedFrames | MadeRun]:
        """Yield records in blocks while this process generates and encodes them, then in runs once workers do."""
        is_shared = CAN_SHARE_FILES and self.engine.shares_files
        if isinstance(examples, Pieces):
            yield from self._generate_pieces(examples, runs=None)
        else:
            source = self._encode_generator(examples, unsorted_keys, is_shared=is_shared)
            yield from watch_frames(source, "encoding", self.split, None, self.progress)

    def _encode_generator(
        self, examples: Generated, unsorted_keys: ExternalSorter, *, is_shared: bool
    ) -> Iterator[KeyedFrames | MadeRun]:
        keyer = Keyer(self.split, shuffled=self._is_shuffled, unsorted_keys=unsorted_keys)
        with closing(run_generator(self.split, examples)) as items:
            yield from encode_examples(self.engine, self.codec, keyer, items, until_grown=is_shared)
            if is_shared and self.engine.width > 1:
                yield from make_runs(
                    self.engine,
                    self.codec,
                    keyer,
                    items,
                    folder=self._folder,
                    budget_bytes=self.budget_bytes,
                )

    def _generate_pieces(self, examples: Pieces, *, runs: SplitRuns | None) -> Iterator[MadeRun]:
        """The runs of all inputs: in ``runs``, or in files without names, which other processes here can open."""
        is_shared = CAN_SHARE_FILES and runs is None
        maker = GroupMaker(
            codec=self.codec,
            split=self.split,
            shuffled=self._is_shuffled,
            generate=examples.generate,
            folder=self._folder if runs is None else None,
            budget_bytes=self._share_bytes if is_shared else self._task_budget_bytes,
            runs=runs,
        )
        # Without /proc, other processes of this machine cannot open a file that has no name.
        engine = self.engine if is_shared or runs is not None else ThisProcess()
        with watch_inputs(self.progress, self.split, examples) as stage:
            yield from make_group_runs(engine, maker, examples, self.input_labels, watch=stage.watch)

    @property
    def _is_shuffled(self) -> bool:
        return not self.builder.DISABLE_SHUFFLING


def _refuse_other_code(builder: DatasetBuilder) -> None:
    """Refuse a version that only an older release of the code can prepare."""
    code = builder.version.version_to_prepare
    if code is None:
        return
    others = [str(version) for version in builder.versions(builder.config_name) if version.version_to_prepare is None]
    raise BuildError(
        f"{builder.reference} cannot be prepared by this code; the last version of the code that can is {code}",
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
