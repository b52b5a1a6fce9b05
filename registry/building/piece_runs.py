"""Generates the inputs of ``Pieces``: each group of them becomes one sorted run, in this process or another.

    inputs -> groups -> generate, encode, sort -> runs -> the sorter of the split

The process that draws the inputs sees counts and errors, never examples. ``build`` calls it; ``example_runs`` does the
same for the examples of one generator, which that process draws itself.
"""

from __future__ import annotations

import pickle
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from registry.building.author_code import add_place, author_error, function_place
from registry.building.encoding import encode_examples
from registry.building.example_runs import MadeRun
from registry.building.generation import Keyer, run_generator
from registry.building.input_failures import MOST_FAILED, Failure, failed_inputs, with_failures
from registry.building.input_labels import InputLabels
from registry.building.keys import label_of
from registry.building.pieces import Pieces
from registry.building.run_files import NamedRunFile, RunFile, UnnamedFile
from registry.building.run_folder import MOST_INPUTS, SplitRuns
from registry.building.run_format import BlockTable, Run, RunEnd, read_end
from registry.building.sorter import ExternalSorter
from registry.building.task_progress import Outcome, StageTasks
from registry.engines import Engine, Piece, TaskWatch, ThisProcess
from registry.errors import BuildError, DuplicateKeyError, FeatureError
from registry.features import Codec
from registry.model import ProgressCallback

_GROUP_SECONDS: Final = 0.5
_MOST_GROUP_SECONDS: Final = 120.0
_MOST_GROUP_BYTES: Final = 512 * 2**20
"""On a cluster, groups grow with the build: otherwise 10 TB are 150,000 runs. The work of a lost task is bounded."""
_KEY_BUDGET_SHARE: Final = 8  # 1/8 of the memory budget is for keys that do not determine the order


class InputGroup(NamedTuple):
    """The input of a piece of work.

    Attributes:
        first: the number of inputs before these.
        inputs: the inputs.
        files: without ``GroupMaker.runs``, the files that receive the runs.
        left: the name of a run of the same inputs that an earlier build may have finished, or ``""``.
    """

    first: int
    inputs: list[Any]
    files: RunFiles | None
    left: str = ""


class RunFiles(NamedTuple):
    """The files of the runs of a group.

    Attributes:
        run: of the records.
        keys: without shuffling, of the keys that do not determine the order.
    """

    run: RunFile
    keys: RunFile | None

    def close(self) -> None:
        """Free what the files hold open."""
        self.run.close()
        if self.keys is not None:
            self.keys.close()


class GroupFacts(NamedTuple):
    """The result of a piece of work.

    Attributes:
        name: the name of the run, if ``GroupMaker.runs`` receives it; else empty.
        table: the blocks of the run; None if an input failed.
        keys_table: the blocks of the run of keys, if there is one.
        num_payload_bytes: the sum of the lengths of the records.
        is_numbered: without shuffling, whether the keys are numbers. None if there is no example.
        failures: the inputs that failed.
        seconds: the time that it took.
    """

    name: str
    table: BlockTable | None
    keys_table: BlockTable | None
    num_payload_bytes: int
    is_numbered: bool | None
    failures: list[Failure]
    seconds: float


@dataclass(frozen=True, slots=True)
class GroupMaker:
    """The function of a piece of work: generates the examples of some inputs, and writes a sorted run of their records.

    Attributes:
        codec: the codec of the examples.
        split: the name of the split.
        shuffled: whether the hash of a key determines the order.
        generate: the author's function.
        folder: receives temporary files. None: the system's temporary folder.
        budget_bytes: memory for sorting.
        runs: receives the runs, which are kept for another build. None: each group has files without names.
    """

    codec: Codec
    split: str
    shuffled: bool
    generate: Callable[[Any], Iterable[tuple[Any, Any]]]
    folder: Path | None
    budget_bytes: int
    runs: SplitRuns | None = None

    def __call__(self, group: InputGroup) -> GroupFacts:
        """Write the runs, unless an earlier build has finished them. Calling it again writes the same records."""
        if self.runs is None:
            return self._make(group, self.files_of(group, ""), "")
        stem = self.runs.stem(group.first, group.inputs)
        if group.left.startswith(f"{stem}.") and (finished := self._load(self.runs.file(group.left))) is not None:
            return finished
        name = self.runs.new_name(stem)
        return self._make(group, self.files_of(group, name), name)

    def _load(self, run: NamedRunFile) -> GroupFacts | None:
        """The facts of a finished run; None if it, or the run of its keys, is damaged."""
        end, keys_end = read_end(run), None if self.shuffled else read_end(run.keys)
        if end is None or (keys_end is None and not self.shuffled):
            return None
        return GroupFacts(run.name, end[0], keys_end and keys_end[0], *end[1], [], 0.0)

    def files_of(self, group: InputGroup, name: str) -> RunFiles:
        """The files of the runs of a group."""
        if self.runs is None:
            assert group.files is not None  # noqa: S101 (for the type checker)
            return group.files
        run = self.runs.file(name)
        return RunFiles(run, None if self.shuffled else run.keys)

    def _make(self, group: InputGroup, files: RunFiles, name: str) -> GroupFacts:
        started = time.monotonic()
        keys_budget = self.budget_bytes // _KEY_BUDGET_SHARE
        failures: list[Failure] = []
        is_numbered: bool | None = None
        with (
            ExternalSorter(split=self.split, folder=self.folder, budget_bytes=self.budget_bytes) as sorter,
            ExternalSorter(split=self.split, folder=self.folder, budget_bytes=keys_budget) as keys,
        ):
            for index, source in enumerate(group.inputs, group.first):
                keyer = Keyer(
                    self.split,
                    shuffled=self.shuffled,
                    unsorted_keys=keys,
                    where=f"split {self.split!r}, input {label_of(source)}",
                    input_number=index,
                )
                keyer.is_numbered = is_numbered
                try:
                    self._add(source, keyer, sorter, is_used=not failures)
                except (BuildError, FeatureError) as error:
                    if {"key", "keys", "position"} & error.details.keys() and "input_numbers" not in error.details:
                        add_place(error, function_place(self.generate))
                    failures.append(Failure.of(source, error, where=keyer.where))
                is_numbered = keyer.is_numbered
                if len(failures) >= MOST_FAILED:  # the build ends with these failures
                    break
            end = RunEnd(sorter.num_payload_bytes, is_numbered) if self.runs is not None else None
            keys_table = None if failures or files.keys is None else keys.write_to(files.keys, end=end)
            return GroupFacts(
                name=name,
                table=None if failures else sorter.write_to(files.run, end=end),
                keys_table=keys_table,
                num_payload_bytes=sorter.num_payload_bytes,
                is_numbered=is_numbered,
                failures=failures,
                seconds=time.monotonic() - started,
            )

    def _add(self, item: Any, keyer: Keyer, sorter: ExternalSorter, *, is_used: bool) -> None:
        """Add the records of an input, or only check whether it fails."""
        with closing(run_generator(self.split, partial(self.generate, item), where=keyer.where)) as items:
            for block in encode_examples(ThisProcess(), self.codec, keyer, items):
                if is_used:
                    sorter.add(block._replace(labels=keyer.stored_labels(block.labels or ())))


def make_group_runs(
    engine: Engine,
    maker: GroupMaker,
    pieces: Pieces,
    labels: InputLabels,
    *,
    watch: TaskWatch[GroupFacts] | None = None,
) -> Iterator[MadeRun]:
    """Yield runs of the records of all inputs, in the order of the inputs. The caller closes the runs.

    Args:
        engine: writes the runs.
        maker: the function that writes one.
        pieces: the inputs.
        labels: receives the inputs as errors show them.
        watch: sees the tasks; ``watch_inputs`` makes it.

    Raises:
        StorageError: the disk is full, or the folder is not writable.
        BuildError: inputs failed; all of them are named, up to 20.
        DuplicateKeyError: a key is used twice in a run.
    """
    waiting: deque[InputGroup] = deque()
    failures: list[Failure] = []
    is_numbered: bool | None = None
    size = _GroupSize(maker.budget_bytes, None if maker.runs is None else engine)
    try:
        groups = _groups(maker, pieces, labels, size, waiting, most_bytes=engine.bytes_of_input)
        for group, facts in engine.run(groups, doing="generated examples", failure=BuildError, watch=watch):
            waiting.popleft()
            failures += [_with_inputs(failure, labels, maker) for failure in facts.failures]
            size.learn(len(group.inputs), facts)
            if facts.is_numbered is not None:
                if is_numbered not in (None, facts.is_numbered):
                    raise _mixed_keys(maker, group)
                is_numbered = facts.is_numbered
            files = maker.files_of(group, facts.name)
            keys = _filled(files.keys, facts.keys_table, is_used=not failures)
            run = _filled(files.run, facts.table, is_used=not failures)
            if run is not None:
                yield MadeRun(run, facts.num_payload_bytes, keys)
            if len(failures) >= MOST_FAILED:
                break
    except BuildError as error:
        if not waiting or not {"attempts", "exit_code"} & error.details.keys():
            raise
        died = _died(maker.split, waiting[0], error)  # the worker of the first group
        if failures:
            died = with_failures(died, failed_inputs(maker.split, failures, is_elsewhere=not engine.shares_files))
        raise died from error
    finally:
        for group in waiting:
            if group.files is not None:
                group.files.close()
    if failures:
        raise failed_inputs(maker.split, failures, is_elsewhere=not engine.shares_files)


def _with_inputs(failure: Failure, labels: InputLabels, maker: GroupMaker) -> Failure:
    """The failure of an input that uses a key twice names both inputs."""
    error = failure.error
    if not isinstance(error, DuplicateKeyError):
        return failure
    before = error.message
    labels.add_to(error)
    problem = failure.problem + error.message.removeprefix(before)
    add_place(error, function_place(maker.generate))
    return failure._replace(problem=problem)


def watch_inputs(progress: ProgressCallback | None, split: str, pieces: Pieces) -> StageTasks[InputGroup, GroupFacts]:
    """Report the inputs that are done: their number is known if ``inputs`` has a length."""
    num_inputs = None
    if isinstance(pieces.inputs, Sized):
        with suppress(Exception):  # the author's own __len__ may fail; without it, only the remaining time is unknown
            num_inputs = len(pieces.inputs)
    return StageTasks(progress, "encoding", split, measure=_measure, unit="inputs", num_units=num_inputs)


def _measure(group: InputGroup, facts: GroupFacts) -> Outcome:
    """Return the counts of a group's task."""
    num_failed = len(facts.failures)
    is_used = facts.table is not None
    return Outcome(
        num_units=len(group.inputs) - num_failed if num_failed < MOST_FAILED else 0,  # otherwise some were not tried
        num_failed=num_failed,
        num_records=facts.table.num_records if facts.table is not None else 0,
        num_bytes=facts.num_payload_bytes if is_used else 0,
    )


def _filled(file: RunFile | None, table: BlockTable | None, *, is_used: bool) -> Run | None:
    """The run in a file, if it has records; otherwise the file is closed."""
    if file is None:
        return None
    if table is not None and is_used:
        run = Run(file, 0, table)
        if run.num_records:
            return run
    file.close()
    return None


class _GroupSize:
    """Decides how many inputs become one run, by what was learned from earlier ones.

    With an ``engine``, a group grows to half of what each of its processes has done so far.
    """

    def __init__(self, least_bytes: int, engine: Engine | None) -> None:
        self._least_bytes = least_bytes
        self._engine = engine
        self._count = 1
        self._num_inputs = 0
        self._num_bytes = 0
        self._seconds = 0.0

    @property
    def count(self) -> int:
        """The number of inputs of the next group."""
        return self._count

    def learn(self, num_inputs: int, facts: GroupFacts) -> None:
        self._num_inputs += num_inputs
        self._num_bytes += facts.num_payload_bytes
        self._seconds += facts.seconds
        seconds, num_bytes = _GROUP_SECONDS, self._least_bytes
        if self._engine is not None and self._engine.width > 1:  # 1: an engine that may use more processes soon
            share = 1 / (2 * self._engine.width)
            seconds = max(seconds, min(_MOST_GROUP_SECONDS, self._seconds * share))
            num_bytes = max(num_bytes, min(_MOST_GROUP_BYTES, int(self._num_bytes * share)))
        parts = max(self._seconds / seconds, self._num_bytes / num_bytes)
        self._count = max(1, min(2 * num_inputs, MOST_INPUTS, int(self._num_inputs / max(parts, 1e-9))))


def _groups(
    maker: GroupMaker,
    pieces: Pieces,
    labels: InputLabels,
    size: _GroupSize,
    waiting: deque[InputGroup],
    *,
    most_bytes: int,
) -> Iterator[Piece[InputGroup, GroupFacts]]:
    """Divide the inputs like an earlier build where its runs are finished, otherwise by measurements and by size."""
    first = 0
    source = _drawn(maker.split, pieces)
    finished: Mapping[int, tuple[int, str]] = {} if maker.runs is None else maker.runs.finished()
    starts = sorted(finished)
    while inputs := _take(
        source,
        _next_count(first, size.count, finished, starts),
        most_bytes=None if first in finished else most_bytes,
    ):
        for one in inputs:
            labels.add(one)
        files = None
        if maker.runs is None:
            files = RunFiles(UnnamedFile(maker.folder), None if maker.shuffled else UnnamedFile(maker.folder))
        group = InputGroup(first, inputs, files, finished[first][1] if first in finished else "")
        waiting.append(group)
        yield Piece(maker, group, num_items=len(inputs))
        first += len(inputs)


def _next_count(first: int, count: int, finished: Mapping[int, tuple[int, str]], starts: Sequence[int]) -> int:
    """The number of inputs of the group that starts with input ``first``: it ends where a finished run starts."""
    if first in finished:
        return finished[first][0]
    later = bisect_right(starts, first)
    return min(count, starts[later] - first) if later < len(starts) else count


def _take(source: Iterator[Any], count: int, *, most_bytes: int | None) -> list[Any]:
    """The next ``count`` inputs; fewer if their messages reach ``most_bytes``."""
    if most_bytes is None:
        return list(islice(source, count))
    inputs, num_bytes = [], 0
    for item in islice(source, count):
        inputs.append(item)
        num_bytes += _size_of(item)
        if num_bytes >= most_bytes:
            break
    return inputs


def _size_of(given: Any) -> int:
    """The size of an input in a message; 0 if it cannot be pickled, and stays in this process."""
    if isinstance(given, str | bytes):
        return len(given)
    try:
        return len(pickle.dumps(given, protocol=5))
    except Exception:  # noqa: BLE001 (pickling calls author code)
        return 0


def _drawn(split: str, pieces: Pieces) -> Iterator[Any]:
    """The inputs; only an exception of the author's iterable is caught."""
    count = 0
    try:
        for source in pieces.inputs:
            yield source
            count += 1
    except (Exception, SystemExit) as error:
        after = f" after {count} input{'' if count == 1 else 's'}"
        raise author_error(f"split {split!r}: the inputs failed", error, after=after) from error


def _mixed_keys(maker: GroupMaker, group: InputGroup) -> BuildError:
    error = BuildError(
        f"split {maker.split!r}, input {label_of(group.inputs[0])} or one that follows: some keys are numbers and some "
        "are not, so they cannot be ordered",
        hint="With DISABLE_SHUFFLING, either all keys are numbers or none is.",
        details={"split": maker.split},
    )
    add_place(error, function_place(maker.generate))
    return error


def _died(split: str, group: InputGroup, error: BuildError) -> BuildError:
    """The error for a worker that ended, with the inputs that it had."""
    first, last = label_of(group.inputs[0]), label_of(group.inputs[-1])
    named = f"input {first}" if len(group.inputs) == 1 else f"inputs {first} to {last}"
    return BuildError(
        f"split {split!r}, {named}: {error.message}",
        hint=error.hint,
        details={**error.details, "split": split, "inputs": [first, last]},
    )
