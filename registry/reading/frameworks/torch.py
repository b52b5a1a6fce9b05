"""A reader for torch: a dataset by number, or an iterable that ranks and workers share."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
import torch.distributed
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from registry.errors import StateMismatchError, UsageError
from registry.features import NestedExamples, Ragged
from registry.features.dtypes import is_bfloat16
from registry.model import whole_number
from registry.reading.frameworks.arrays import missing_rows
from registry.reading.frameworks.sharing import EpochCounter, IterationKey, SharedReader
from registry.reading.state import Intervals, cut, divide, size_of

if TYPE_CHECKING:
    from registry.reading.reader import Reader


_FORMAT: Final = "registry.torch-state/1"
_FIELDS: Final = {"format", "reader", "worker", "batch_size", "drop_remainder", "epoch", "done"}


class ReaderDataset(Dataset):
    """The examples of a reader's first epoch by number: what a sampler of torch chooses from.

    ``dataset[i]`` is an example, ``dataset[[i, j]]`` a batch. Picklable, and safe to share with forked workers.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = SharedReader(reader)

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, index: Any) -> dict[str, Any]:
        """An example, or a batch for a slice or a list of numbers; errors as ``Reader.__getitem__``."""
        with self._reader.acquire() as reader:
            found: dict[str, Any] = to_tensors(reader[index])
        return found

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """The examples ``indices``, fetched and decoded together; a DataLoader calls it for each of its batches."""
        with self._reader.acquire() as reader:
            columns = reader[list(indices)]
        return list(examples_of(columns))

    def __repr__(self) -> str:
        return f"<ReaderDataset of {self._reader!r}>"


class ReaderIterable(IterableDataset):
    """The examples or batches of a reader in its order, each in one worker of one rank; see ``Reader.to_torch``."""

    def __init__(
        self,
        reader: Reader,
        *,
        batch_size: int | None = None,
        drop_remainder: bool = False,
        process: tuple[int, int] | None = None,
    ) -> None:
        shared = reader.process if process is None and reader.process[1] > 1 else process
        self._reader = reader.reopened(process=shared)
        self._process = shared
        self._batch_size = batch_size
        self._drop_remainder = drop_remainder
        self._epochs = EpochCounter()
        self._begun_by: dict[int, int] = {}
        self._loaded: Mapping[str, Any] | None = None
        self._place: dict[str, Any] | None = None

    @property
    def process(self) -> tuple[int, int]:
        """(index, count) of the rank: as given, or the reader's, or that of torch.distributed where it is in use."""
        if self._process is not None:
            return self._process
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return 0, 1

    def set_epoch(self, epoch: int) -> None:
        """Let the iteration that is begun next read ``epoch``; without it, each reads the one after the last."""
        self._epochs.set(whole_number(epoch, "epoch", least=0))
        self._place = self._loaded = None

    def __len__(self) -> int:
        """Number of batches that this rank reads in one iteration.

        Raises:
            TypeError: without ``batch_size`` it is the loader that makes batches, and how many depends on its workers;
                or the reader repeats for ever.
        """
        repeat = self._reader.config.repeat
        if self._batch_size is None or repeat is None:
            raise TypeError("this iterable has no length: it has no batch_size, or repeats for ever")
        return repeat * self._num_items(self._share(self.process))

    def __iter__(self) -> Iterator[Any]:
        """Begin an iteration: the next epoch, or where the state says that was loaded. Errors as ``Reader``'s."""
        worker, workers, key = self._worker()
        loaded, self._loaded = self._loaded, None
        process = self.process
        if process[1] > 1 and self._reader.drew_seed:
            raise UsageError(
                f"a shuffle without a seed, read by {process[1]} ranks: each would draw one of its own",
                hint="Give the ReadConfig its seed (shuffle_seed for files), the same in every rank.",
            )
        reader = self._reader.reopened(process=process, state=None if loaded is None else loaded["reader"])
        if loaded is not None:
            _check_worker(loaded, (worker, workers))
            self._reader = reader.reopened()  # with the seed that was drawn for it
        at = None if loaded is None else reader.state()["left"][0][0]
        begin = self._epochs.take(key, workers=workers, at=at)
        reader.seek(begin)
        place = {
            "format": _FORMAT,
            "reader": reader.state(),
            "worker": [worker, workers],
            "batch_size": self._batch_size,
            "drop_remainder": self._drop_remainder,
            "epoch": begin if loaded is None else loaded["epoch"],
            "done": 0 if loaded is None else loaded["done"],
        }
        self._place = place
        return self._run(reader, place, begin)

    def state_dict(self) -> dict[str, Any]:
        """The place of the iteration that was begun last in this process: plain values, of constant size."""
        if self._loaded is not None:
            return dict(self._loaded)
        if self._place is None:
            return {}
        return dict(self._place)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on with the very next example or batch; ``state`` is what ``state_dict`` gave.

        Raises:
            StateMismatchError: it is of another version, split, order or batch size; when the iteration begins, also
                where it is of another rank, or of another worker.
        """
        if not state:  # of a dataset that nobody had iterated
            self._loaded = self._place = None
            return
        if set(state) != _FIELDS or state["format"] != _FORMAT:
            raise StateMismatchError(
                "this is no state of an iterable for torch",
                hint="Give what state_dict() gave, as it was.",
                details={"differs": "format"},
            )
        for name, mine in (("batch_size", self._batch_size), ("drop_remainder", self._drop_remainder)):
            if state[name] != mine:
                raise StateMismatchError(
                    f"this state was taken with {name}={state[name]!r:.60}, and this is {mine!r}",
                    hint="Go on with the options that it was taken with.",
                    details={"differs": name, "found": state[name], "expected": mine},
                )
        self._reader.reopened(process=self.process, state=state["reader"])
        self._loaded = dict(state)

    def __getstate__(self) -> dict[str, Any]:
        # A spawned worker knows no rank.
        return {**self.__dict__, "_process": self._process or _rank_in_use(self.process), "_begun_by": {}}

    def __repr__(self) -> str:
        return f"<ReaderIterable of {self._reader!r}>"

    def _run(self, reader: Reader, place: dict[str, Any], begin: int) -> Iterator[Any]:
        repeat = reader.config.repeat
        share = self._share(reader.process)
        per_epoch = self._num_items(share)
        worker, workers = place["worker"]
        if self._batch_size is None:
            per_epoch = size_of(divide(share, index=worker, count=workers))
        if not per_epoch:
            return
        for epoch in count(place["epoch"]) if repeat is None else range(place["epoch"], begin + repeat):
            done = place["done"] if epoch == place["epoch"] else 0
            place.update(epoch=epoch, done=done)
            turn = worker if self._batch_size is None else worker - (epoch - begin) * per_epoch
            part = self._part(share, worker=turn, workers=workers)
            reader.seek(epoch, cut(part, done * (self._batch_size or 1), size_of(part)))
            for item in self._items(reader):
                place["done"] += 1
                yield item

    def _items(self, reader: Reader) -> Iterator[Any]:
        if self._batch_size is None:
            for block in reader.blocks():
                yield from examples_of(block)
        else:
            yield from map(to_tensors, reader.batches(self._batch_size))

    def _share(self, process: tuple[int, int]) -> Intervals:
        """The positions of an epoch that a rank reads: one interval."""
        size = self._reader.plan.num_examples
        return divide(((0, size),) if size else (), index=process[0], count=process[1])

    def _num_items(self, share: Intervals) -> int:
        """Number of examples or batches of a rank in an epoch."""
        size = self._batch_size or 1
        return size_of(share) // size if self._drop_remainder else -(-size_of(share) // size)

    def _part(self, share: Intervals, *, worker: int, workers: int) -> Intervals:
        """What of its rank's share a worker reads: a run of examples, or every n-th batch.

        A loader takes batches from its workers in turns, so that they come in the order of the reader.
        """
        size = self._batch_size
        if size is None:
            return divide(share, index=worker % workers, count=workers)
        if not share:
            return ()
        (start, stop) = share[0]
        stop = min(stop, start + self._num_items(share) * size)
        if workers == 1:
            return ((start, stop),) if start < stop else ()
        begins = range(start + worker % workers * size, stop, workers * size)
        return tuple((begin, min(begin + size, stop)) for begin in begins)

    def _worker(self) -> tuple[int, int, IterationKey | None]:
        """Index and number of this worker, and what its iteration is known by."""
        info = get_worker_info()
        if info is None:
            return 0, 1, None
        before = self._begun_by.get(os.getpid(), 0)
        self._begun_by = {os.getpid(): before + 1}
        return info.id, info.num_workers, IterationKey(info.seed - info.id, before)


def _rank_in_use(process: tuple[int, int]) -> tuple[int, int] | None:
    return process if process[1] > 1 else None


def _check_worker(state: Mapping[str, Any], worker: tuple[int, int]) -> None:
    if tuple(state["worker"]) == worker:
        return
    index, number = state["worker"]
    raise StateMismatchError(
        f"this state is of worker {index} of {number}, and this is worker {worker[0]} of {worker[1]}",
        hint="Go on with as many workers as it was taken with.",
        details={"differs": "worker", "found": list(state["worker"]), "expected": list(worker)},
    )


def to_tensors(value: Any) -> Any:
    """``value`` of an example or of a batch, with tensors for numbers and arrays of them.

    What has no tensor is a list: of ``bytes``, of tensors whose shapes differ, of such lists for a Ragged. A Dataset is
    as a Sequence. A missing value is None, and a column of which values may be missing is a list of tensors and None.
    """
    if isinstance(value, dict):
        return {name: to_tensors(inner) for name, inner in value.items()}
    if isinstance(value, NestedExamples):
        return to_tensors(value.columns())
    if value is None:
        return None
    if isinstance(value, np.ma.MaskedArray):
        return _with_none(value)
    if isinstance(value, np.ndarray) and value.dtype == object and value.size and isinstance(value.flat[0], bytes):
        return value.tolist()  # text, without a look at each
    if isinstance(value, np.generic):
        return to_tensors(np.array(value))
    if isinstance(value, Ragged) or (isinstance(value, np.ndarray) and value.dtype == object):
        return [to_tensors(inner) for inner in value]
    if isinstance(value, np.ndarray) and is_bfloat16(value.dtype):
        return torch.from_numpy(value.view(np.int16).copy()).view(torch.bfloat16)
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value if value.flags.writeable else value.copy())
    return bytes(value)


def _with_none(column: np.ma.MaskedArray[Any, Any]) -> list[Any]:
    found = to_tensors(column.data)
    rows = found if isinstance(found, list) else list(found.unbind())
    for place in np.flatnonzero(missing_rows(column)).tolist():
        rows[place] = None
    return rows


def examples_of(columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The examples of a batch, as tensors: views of the batch's."""
    lists = _lists(columns)
    for place in range(_size(lists)):
        yield _pick(lists, place)


def _lists(columns: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, column in columns.items():
        if isinstance(column, Mapping):
            found[name] = _lists(column)
        else:
            values = to_tensors(column)
            found[name] = values if isinstance(values, list) else values.unbind()
    return found


def _pick(lists: Mapping[str, Any], place: int) -> dict[str, Any]:
    return {name: _pick(one, place) if isinstance(one, dict) else one[place] for name, one in lists.items()}


def _size(lists: Mapping[str, Any]) -> int:
    return max((_size(one) if isinstance(one, dict) else len(one) for one in lists.values()), default=0)
