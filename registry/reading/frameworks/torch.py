"""Converts a reader for torch: to a map-style dataset, or to an iterable dataset that ranks and workers share.

``Reader.to_torch`` and ``SupervisedReader.to_torch`` create both; ``frameworks/torch_batches.py`` makes tensors and
batches.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
import torch.distributed
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from registry.errors import StateMismatchError, UsageError, suggest, warn
from registry.features import FeaturesDict, RawFeature
from registry.features.containers import Column, columns_of
from registry.features.feature import TEXT
from registry.model import whole_number
from registry.reading.frameworks.sharing import EpochCounter, IterationKey, SharedReader
from registry.reading.frameworks.torch_batches import Collate, GatheredExamples, examples_of, to_tensors
from registry.reading.state import Intervals, cut, divide, size_of
from registry.reading.structure import pick, places_of

if TYPE_CHECKING:
    from registry.prepared.info import SupervisedKeys
    from registry.reading.examples import ExampleReader


_FORMAT: Final = "registry.torch-state/1"
_USE_STATEFUL: Final = (
    "With worker processes read through torchdata.stateful_dataloader.StatefulDataLoader, "
    "and save loader.state_dict() instead."
)
_FIELDS: Final = {"format", "reader", "worker", "batch_size", "drop_remainder", "epoch", "done"}


class ExampleForm:
    """Converts a reader's values to tensors, then to pairs, then by ``transform``, then to batches.

    Attributes:
        collate: merges examples into a batch. Without a transform, the schema determines which values vary in shape or
            may be None, so that every batch has the same types.
    """

    def __init__(
        self,
        features: FeaturesDict,
        *,
        keys: SupervisedKeys | None = None,
        transform: Callable[[Any], Any] | None = None,
        pad: Mapping[str, float | None] | None = None,
    ) -> None:
        if transform is not None and not callable(transform):
            raise UsageError(f"transform must be a function of one example, not {transform!r:.60}")
        if pad is not None and not isinstance(pad, Mapping):
            raise UsageError(
                f"pad must be a dict of feature names and numbers, not {pad!r:.60}",
                hint='Write e.g. pad={"tokens": 0}.',
            )
        self._keys = keys
        self._transform = transform
        if transform is not None:  # a transform may change any shape
            self.collate = Collate(dict(pad or {}))
            self._columns = self.collate
            return
        rules = _rules(features, pad or {})
        self._columns = Collate(rules)
        self.collate = self._columns if keys is None else Collate(_rules_of_pairs(rules, keys))

    def example(self, example: Mapping[str, Any]) -> Any:
        """One example, as a reader decodes it."""
        return self._finish({name: to_tensors(value) for name, value in example.items()})

    def examples(self, columns: Mapping[str, Any]) -> Iterator[Any]:
        """The examples in the columns of a block."""
        return map(self._finish, examples_of(columns))

    def batch(self, columns: Mapping[str, Any]) -> Any:
        """The batch of the columns of a block: equal to ``collate(list(examples(columns)))``."""
        if self._transform is not None:
            return self.collate(list(self.examples(columns)))
        batch = self._columns.columns(columns)
        return batch if self._keys is None else pick(self._keys, batch)

    def gathered(self, columns: Mapping[str, Any], size: int) -> GatheredExamples:
        """The ``size`` examples in the columns of a block, and their batch."""
        return GatheredExamples(
            size,
            examples=lambda: self.examples(columns),
            batch=lambda: self.batch(columns),
            collate=self.collate,
        )

    def _finish(self, example: dict[str, Any]) -> Any:
        result = example if self._keys is None else pick(self._keys, example)
        return result if self._transform is None else self._transform(result)

    def __getstate__(self) -> dict[str, Any]:
        try:
            pickle.dumps(self._transform)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            name = getattr(self._transform, "__qualname__", repr(self._transform))
            raise UsageError(
                f"transform {name:.80} cannot be sent to another process: {error}",
                hint="Define it with def at the top level of a module, not as a lambda or inside a function. "
                'Or fork the workers: DataLoader(..., multiprocessing_context="fork").',
            ) from error
        return self.__dict__


def _rules(features: FeaturesDict, pad: Mapping[str, float | None]) -> dict[str, float | None]:
    """How the features of ``features`` that may differ in shape or may be None are merged, by path.

    Raises:
        UsageError: ``pad`` names a feature that does not exist or cannot be padded.
    """
    leaves = {leaf.path: leaf for leaf in columns_of(features)}
    rules: dict[str, float | None] = {path: None for path, leaf in leaves.items() if _is_list(leaf)}
    for path, filler in pad.items():
        if path not in leaves:
            raise UsageError(f"no feature {path!r:.80} to pad", hint=suggest(path, list(leaves)))
        reason = None if filler is None else _why_not_padded(leaves[path])
        if reason is not None:
            raise UsageError(f"feature {path!r} cannot be padded: {reason[0]}", hint=reason[1])
        rules[path] = filler
    return rules


def _is_list(leaf: Column) -> bool:
    return None in (*leaf.lengths, *leaf.leaf.shape) or len(leaf.lengths) > 1 or leaf.may_read_none


def _why_not_padded(leaf: Column) -> tuple[str, str] | None:
    """Explain why no number can pad the values of ``leaf``. Returns the reason and a hint."""
    as_list = "Leave it out of pad: a batch has a list of its values."
    if isinstance(leaf.leaf, RawFeature) or leaf.leaf.dtype == TEXT:
        return "its values are not numbers", as_list
    if len(leaf.lengths) > 1:
        return "it is a Sequence of Sequences", as_list
    if leaf.may_read_none:
        return "its value may be None", f"Choose a value before: reader.fill_missing({{{leaf.path!r}: 0}})."
    if not _is_list(leaf):
        return f"all its values have the shape {(*leaf.lengths, *leaf.leaf.shape)}", "Leave it out of pad."
    return None


def _rules_of_pairs(rules: Mapping[str, float | None], keys: SupervisedKeys) -> dict[str, float | None]:
    """``rules`` by the paths that the features have in the structure of ``keys``."""
    result = {}
    for name, place in places_of(keys):
        for path, filler in rules.items():
            outermost, *inner = path.split("/")
            if outermost == name:
                result["/".join([*place, *inner])] = filler
    return result


class ReaderDataset(Dataset):
    """A map-style dataset: the examples of a reader's first epoch by number, for samplers of torch.

    ``dataset[i]`` is an example, ``dataset[[i, j]]`` and ``dataset[i:j]`` are batches. It can be pickled, and forked
    workers can share it.

    Attributes:
        collate: the ``collate_fn`` for ``DataLoader(dataset, batch_size=32, collate_fn=dataset.collate)``.
    """

    def __init__(self, reader: ExampleReader, form: ExampleForm) -> None:
        self._reader = SharedReader(reader)
        self._form = form

    @property
    def collate(self) -> Collate:
        """Merges examples of this dataset into a batch; see ``registry.torch.collate``."""
        return self._form.collate

    def __len__(self) -> int:
        """Number of examples."""
        return len(self._reader)

    def __getitem__(self, index: Any) -> Any:
        """An example, or a batch for a slice or a list of numbers; errors as ``Reader.__getitem__``."""
        with self._reader.acquire() as reader:
            result = reader[index]
        is_one = not isinstance(index, slice) and np.ndim(index) == 0  # a number of any kind, also a tensor
        return self._form.example(result) if is_one else self._form.batch(result)

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        """The examples ``indices``, fetched and decoded together; a DataLoader calls it for each of its batches."""
        places = list(indices)
        with self._reader.acquire() as reader:
            columns = reader[places]
        return self._form.gathered(columns, len(places))

    def __repr__(self) -> str:
        return f"<ReaderDataset of {self._reader!r}>"


class ReaderIterable(IterableDataset):
    """The examples or batches of a reader in its order, each in one worker of one rank; see ``Reader.to_torch``.

    Attributes:
        collate: the ``collate_fn`` for a DataLoader that makes the batches, when ``batch_size`` is None.
    """

    def __init__(
        self,
        reader: ExampleReader,
        form: ExampleForm,
        *,
        batch_size: int | None = None,
        drop_remainder: bool = False,
        process: tuple[int, int] | None = None,
    ) -> None:
        shared = reader.process if process is None and reader.process[1] > 1 else process
        self._reader = reader.reopened(process=shared)
        self._form = form
        self._process = shared
        self._batch_size = batch_size
        self._drop_remainder = drop_remainder
        self._epochs = EpochCounter()
        self._seen_epoch = self._epochs.next_epoch  # workers advance the shared counter, not this one
        self._started: dict[int, int] = {}
        self._loaded: Mapping[str, Any] | None = None
        self._place: dict[str, Any] | None = None

    @property
    def collate(self) -> Collate:
        """Merges examples of this dataset into a batch; see ``registry.torch.collate``."""
        return self._form.collate

    @property
    def process(self) -> tuple[int, int]:
        """(index, count) of the rank: the given one, the reader's, or torch.distributed's if it is initialised."""
        if self._process is not None:
            return self._process
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return 0, 1

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration read ``epoch``, counted from 0. By default it reads the epoch after the last one.

        After ``load_state_dict``, the epoch of the loaded state keeps its position. Another epoch starts at its
        beginning, with a ``RegistryWarning``.

        Raises:
            UsageError: ``epoch`` is not a whole number, or is negative.
        """
        number = whole_number(epoch, "epoch", least=0)
        if self._loaded is not None:
            loaded = self._loaded["epoch"]
            if number == loaded:
                return
            warn(
                f"set_epoch({number}) drops the loaded position in epoch {loaded}: the next iteration starts at the "
                f"beginning of epoch {number}. To continue, call set_epoch({loaded}) or leave it out."
            )
        self._epochs.set(number)
        self._seen_epoch = number
        self._place = self._loaded = None

    def __len__(self) -> int:
        """Number of batches that this rank reads in one iteration.

        Raises:
            TypeError: there is no ``batch_size``, so that the loader makes the batches, and their number depends on its
                workers; or the reader repeats for ever.
        """
        repeat = self._reader.read_config.repeat
        if repeat is None:
            raise TypeError("this iterable has no length: it repeats for ever (ReadConfig(repeat=None))")
        if self._batch_size is None:
            raise TypeError(
                "this iterable has no length, because the loader makes the batches: pass to_torch(..., batch_size=N), "
                "and DataLoader(..., batch_size=None)"
            )
        return repeat * self._num_items(self._share(self.process))

    def __iter__(self) -> Iterator[Any]:
        """Start an iteration: of the next epoch, or from the state that was loaded.

        Raises:
            UsageError: several ranks would each draw a seed of their own.
            StateMismatchError: the loaded state belongs to another rank or worker.
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: while iterating, as a ``Reader``.
        """
        worker, workers, key = self._worker()
        loaded, self._loaded = self._loaded, None
        process = self.process
        if process[1] > 1 and self._reader.drew_seed:
            raise UsageError(
                f"{process[1]} ranks read a shuffle without a seed, so each would draw a different seed",
                hint='Pass the same seed to every rank: ReadConfig(shuffle="global", seed=42), or shuffle_seed=42 for '
                "files.",
            )
        reader = self._reader.reopened(process=process, state=None if loaded is None else loaded["reader"])
        if loaded is not None:
            _check_worker(loaded, (worker, workers))
            self._reader = reader.reopened()  # with the seed that was drawn for it
        at = None if loaded is None else reader.state()["left"][0][0]
        begin = self._epochs.take(key, workers=workers, at=at)
        self._seen_epoch = self._epochs.next_epoch
        reader.seek(begin)
        place = self._start_of(reader, begin, (worker, workers))
        if loaded is not None:
            place.update(epoch=loaded["epoch"], done=loaded["done"])
        self._place = place
        return self._run(reader, place, begin)

    def state_dict(self) -> dict[str, Any]:
        """The place of the iteration that was started last in this process: plain values that JSON can hold.

        Before the first iteration it is the beginning of the next epoch.

        Raises:
            StateMismatchError: worker processes read the dataset, so that this process does not know the place.
        """
        info = get_worker_info()
        if info is None and self._epochs.next_epoch != self._seen_epoch:
            raise StateMismatchError(
                "worker processes read this dataset, so this process does not know their places",
                hint=_USE_STATEFUL,
                details={"differs": "worker"},
            )
        if self._loaded is not None:
            return dict(self._loaded)
        if self._place is not None:
            return dict(self._place)
        reader, begin = self._reader.reopened(process=self.process), self._epochs.next_epoch
        reader.seek(begin)
        return self._start_of(reader, begin, (0, 1) if info is None else (info.id, info.num_workers))

    def _start_of(self, reader: ExampleReader, epoch: int, worker: tuple[int, int]) -> dict[str, Any]:
        """The place before the first item of ``epoch``, to which ``reader`` was moved."""
        return {
            "format": _FORMAT,
            "reader": reader.state(),
            "worker": list(worker),
            "batch_size": self._batch_size,
            "drop_remainder": self._drop_remainder,
            "epoch": epoch,
            "done": 0,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next iteration continue after the last example or batch of ``state``, which ``state_dict`` returned.

        Raises:
            StateMismatchError: the state is empty, or belongs to another version, split, order or batch size. When the
                iteration starts: the state belongs to another rank or worker.
        """
        if not state:
            raise StateMismatchError(
                "this state is empty: it has no position to continue from",
                hint=_USE_STATEFUL,
                details={"differs": "format"},
            )
        if set(state) != _FIELDS or state["format"] != _FORMAT:
            raise StateMismatchError(
                "this is not the state of an iterable dataset for torch",
                hint="Pass the unchanged dict that state_dict() returned.",
                details={"differs": "format"},
            )
        for name, mine in (("batch_size", self._batch_size), ("drop_remainder", self._drop_remainder)):
            if state[name] != mine:
                raise StateMismatchError(
                    f"this state was saved with {name}={state[name]!r:.60}, but this dataset has {name}={mine!r}",
                    hint=f"Create the dataset with the same options: to_torch(..., {name}={state[name]!r:.60}).",
                    details={"differs": name, "found": state[name], "expected": mine},
                )
        self._reader.reopened(process=self.process, state=state["reader"])
        self._loaded = dict(state)
        self._seen_epoch = self._epochs.next_epoch

    def __getstate__(self) -> dict[str, Any]:
        # A spawned worker has no process group, so it cannot look its rank up.
        return {
            **self.__dict__,
            "_process": self._process or _rank_in_use(self.process),
            "_started": {},
            "_seen_epoch": self._epochs.next_epoch,
        }

    def __repr__(self) -> str:
        return f"<ReaderIterable of {self._reader!r}>"

    def _run(self, reader: ExampleReader, place: dict[str, Any], begin: int) -> Iterator[Any]:
        repeat = reader.read_config.repeat
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

    def _items(self, reader: ExampleReader) -> Iterator[Any]:
        if self._batch_size is None:
            for block in reader.blocks():
                yield from self._form.examples(block)
        else:
            yield from map(self._form.batch, reader.batches(self._batch_size))

    def _share(self, process: tuple[int, int]) -> Intervals:
        """The positions of an epoch that a rank reads: one interval."""
        size = self._reader.num_examples
        return divide(((0, size),) if size else (), index=process[0], count=process[1])

    def _num_items(self, share: Intervals) -> int:
        """Number of examples or batches of a rank in an epoch."""
        size = self._batch_size or 1
        return size_of(share) // size if self._drop_remainder else -(-size_of(share) // size)

    def _part(self, share: Intervals, *, worker: int, workers: int) -> Intervals:
        """The part of its rank's share that a worker reads: a run of examples, or every n-th batch.

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
        """Index and number of this worker, and the key that identifies its iteration."""
        info = get_worker_info()
        if info is None:
            return 0, 1, None
        before = self._started.get(os.getpid(), 0)
        self._started = {os.getpid(): before + 1}
        return info.id, info.num_workers, IterationKey(info.seed - info.id, before)


def _rank_in_use(process: tuple[int, int]) -> tuple[int, int] | None:
    return process if process[1] > 1 else None


def _check_worker(state: Mapping[str, Any], worker: tuple[int, int]) -> None:
    if tuple(state["worker"]) == worker:
        return
    index, number = state["worker"]
    raise StateMismatchError(
        f"this state was saved by worker {index} of {number}, but this is worker {worker[0]} of {worker[1]}",
        hint=f"Use the number of workers that it was saved with: DataLoader(..., num_workers={number}).",
        details={"differs": "worker", "found": list(state["worker"]), "expected": list(worker)},
    )
