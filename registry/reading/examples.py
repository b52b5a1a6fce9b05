"""``ExampleReader``: the examples of a plan, one by one, in batches, by number, or resumed.

``pieces.py`` fetches and decodes records, and ``state.py`` tracks what is left.
"""

from __future__ import annotations

import math
import operator
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from types import FunctionType
from typing import Any, Final, Self, overload

import numpy as np
import numpy.typing as npt

from registry.argument_types import require_type
from registry.errors import UsageError
from registry.features import FeaturesDict, Image, ImageDecoding
from registry.features.containers import columns_of
from registry.markup import Markup, panel
from registry.model import ProgressCallback, count_progress, whole_number
from registry.order import Order, ReadConfig
from registry.reading.column_blocks import BoundedBlock
from registry.reading.conditions import Condition, parse_condition
from registry.reading.keeping import ColumnKeeper, Keep, check_keep
from registry.reading.matches import Matches
from registry.reading.pieces import ItemLists, ItemReader, PieceReader, RecordSource
from registry.reading.readable import ReadableVersion
from registry.reading.state import (
    Cursor,
    Intervals,
    ReadIdentity,
    ReadState,
    State,
    describe_source,
    find_positions,
    read_seed,
    restore,
    size_of,
)
from registry.splits import Plan
from registry.tfrecord import Verify

_FEW_LEFT_OUT: Final = 0.8
"""Reading more than this share of the blocks one by one takes longer than reading all of them."""


class ExampleReader:
    """The examples of a plan, in the order of a ``ReadConfig``. ``Reader`` adds conversions for other frameworks.

    No file is opened before the first example is read. Iterating reads one epoch (``read_config.repeat`` of them).
    Iterating again reads the next epoch, as a tf.data dataset does: each epoch of a shuffle has its own order.
    ``reader[i]`` is example ``i`` of the first epoch.

    Use a reader in one thread at a time. It can be pickled: the copy has no open files and continues at the same place.

    Attributes:
        readable: the version.
        plan: which records of which files are read.
        read_config: the order, with the seed that was drawn if it has a shuffle without a seed.
        process: (index, count): this reader reads share ``index`` of ``count`` equal shares of each epoch.
        matches: which records of the plan it reads, if ``where`` made it; otherwise None.
        store: the folder of the files. Each file is proved to be the published one when it is opened.
    """

    def __init__(
        self,
        readable: ReadableVersion,
        plan: Plan,
        *,
        read_config: ReadConfig | None = None,
        state: State | Sequence[State] | None = None,
        process: tuple[int, int] = (0, 1),
        verify: Verify = "block",
        copy: bool = True,
        keep: Keep | None = None,
        matches: Matches | None = None,
    ) -> None:
        """Create a reader. ``Dataset.read`` and ``registry.load`` are the usual way to get one.

        Args:
            readable: the version.
            plan: which records of which of its files to read.
            read_config: the order; None is the default order of ``readable``.
            state: the ``state()`` of an equal reader, to continue from there. Or the list of states of all processes of
                a read, to continue with another number of processes.
            process: index and count, if several processes share each epoch.
            verify: ``block`` or ``record``, which find the same damage, or ``off``: see ``open_shard``.
            copy: False returns records, text, and tensors stored as bytes as read-only views of the mapped files.
            keep: where decoded columns are kept for the next epoch; see ``Dataset.read``.
            matches: which records of the plan to read; None is all of them. ``where`` is the usual way to filter.

        Raises:
            StateMismatchError: the state belongs to another version, plan, filter or order.
            UsageError: an invalid ``process``, ``verify``, ``copy``, ``keep`` or ``read_config``; or several processes
                and a shuffle without a seed.
        """
        read_config = readable.order(read_config)
        if not isinstance(copy, bool):
            raise UsageError(f"copy must be True or False, not {copy!r:.60}")
        self._asked = read_config
        self.process = _check_process(process)
        if read_config.needs_seed:
            seed = read_seed(state)
            if seed is None and self.process[1] > 1:
                raise UsageError(
                    "several processes share a shuffle without a seed, and each would draw a seed of its own",
                    hint="Give all of them the same seed: ReadConfig(..., shuffle_seed=42), or seed=42.",
                )
            read_config = read_config.with_seed(secrets.randbelow(2**31 - 1) if seed is None else seed)
        self.readable = readable
        self.plan = plan
        self.read_config = read_config
        self.store = readable.files({split.name for split in plan.splits})
        self._verify: Verify = verify
        self._copy = copy
        self.matches = matches
        self._keep = check_keep(keep)
        source = self._open_source()
        self._keeper = ColumnKeeper(self._keep, readable, plan, source, verify)
        self._items = self._items_of(source)
        # Kept columns have no records.
        self._record_items = self._items if self._keeper.mode is None else self._items_of(self._open_source())
        if state is not None:
            self._begin = restore(state, self._source, process=self.process)
        elif matches is None:
            self._begin = self._start(0)  # a sort function fails here, if it does

    # A filtered reader has to read columns to compute these, so it does so only when they are first used.

    @cached_property
    def _order(self) -> Order:
        return self._select(self.plan.order(self.read_config))

    @cached_property
    def _source(self) -> ReadIdentity:
        return describe_source(self.plan, self._order, dataset=self.readable.identity, matches=self.matches)

    @cached_property
    def _share(self) -> Intervals:
        return self._start(0).intervals

    @cached_property
    def _begin(self) -> ReadState:
        return self._start(0)

    @cached_property
    def _cursor(self) -> Cursor:
        return Cursor(self._begin)

    def _open_source(self) -> RecordSource:
        return RecordSource(
            self.plan,
            self.store,
            verify=self._verify,
            indexes=self.readable.indexes,
            file_format=self.readable.file_format,
            features=self.readable.features,
        )

    def _items_of(self, source: RecordSource) -> ItemReader:
        reader = PieceReader(source, self.readable.features, copy=self._copy)
        return ItemReader(reader, add_ids=self.read_config.add_tfds_id)

    @property
    def features(self) -> FeaturesDict:
        """The schema of an example."""
        return self.readable.features

    @property
    def file_format(self) -> str:
        """The format of the files, such as ``tfrecord``; see ``registry.shards``."""
        return self.readable.file_format

    @property
    def num_examples(self) -> int:
        """Number of examples of one epoch, of all processes together."""
        return self._source.num_examples

    def __len__(self) -> int:
        """Number of examples that this reader reads of one epoch."""
        return size_of(self._share)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Read the next epoch, example by example.

        Yields:
            A dict of NumPy arrays and scalars with the shapes and dtypes of ``features``; nested as they are. Text is
            ``bytes``. A missing value of an optional feature is None.

        Raises:
            CorruptRecordError: the framing or the checksum of a record is wrong.
            CorruptExampleError: a record does not fit the features; the message names file and record.
            ShardMismatchError: a file is not the published one, or has another number of records.
            StorageError: a file cannot be read.
        """
        return self._iterate(self._items.examples)

    def records(self) -> Iterator[bytes | memoryview]:
        """Read the next epoch as stored records.

        Yields:
            A serialized tf.train.Example, checked and not decoded: ``bytes``, or a memoryview of the mapped file if the
            reader has ``copy=False``.

        Raises:
            CorruptRecordError: the framing or the checksum of a record is wrong.
            ShardMismatchError: a file is not the published one, or has another number of records.
            StorageError: a file cannot be read.
        """
        return self._iterate(self._record_items.records, is_decoded=False)

    def ids(self) -> Iterator[str]:
        """Iterate over the TFDS ids of the next epoch. No file is opened.

        Yields:
            File name and number of a record, such as ``mnist-train.tfrecord-00003-of-00010__17``.
        """
        return self._iterate(self._items.ids, is_decoded=False)

    def batches(self, batch_size: int, *, drop_remainder: bool = False) -> Iterator[dict[str, Any]]:
        """Read the next epoch in batches. A batch never contains examples of two epochs.

        >>> [batch["image"].shape for batch in digits.read("train[:100]").batches(64)]
        [(64, 8, 8, 1), (36, 8, 8, 1)]

        Args:
            batch_size: number of examples in a batch, at least 1.
            drop_remainder: leave out the last batch of an epoch if it is smaller.

        Yields:
            A dict of arrays, nested as an example is, with a first dimension of ``batch_size``. If the values of a
            feature differ in shape, and for text, it is an object array of arrays or ``bytes``. An optional feature is
            a masked array (``numpy.ma``).

        Raises:
            UsageError: ``batch_size`` is not a whole number, or is below 1. Raised at once, not while iterating.
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: as iterating a reader, after all
                whole batches before the damaged record.
        """
        batch_size = whole_number(batch_size, "batch_size", least=1)
        return self._iterate(partial(self._items.batches, batch_size=batch_size, drop_remainder=drop_remainder))

    def blocks(self) -> Iterator[dict[str, Any]]:
        """Read the next epoch in blocks that are read at once: thousands of small examples, or few large ones.

        Yields:
            A dict of arrays, as ``batches``.
        """
        return self._iterate(self._items.blocks)

    def select(self, *names: str | Sequence[str]) -> Self:
        """Return a reader of some features. The other features are not decoded.

        >>> digits.read("train[:100]").select("label")[0]
        {'label': np.int64(3)}

        Args:
            names: names of features, or one list of them.

        Returns:
            Another reader, which continues at the place of this one. Its features are in the order of ``names``.

        Raises:
            UsageError: no name, or an unknown name.
            WrongTypeError: a name is not a str.
        """
        wanted: list[Any] = [
            name for given in names for name in (given if isinstance(given, list | tuple) else [given])
        ]
        for name in wanted:
            require_type("the name of a feature", name, str)
        return self.decoding(self.features.only(wanted))

    def where(
        self,
        condition: str,
        *,
        state: State | Sequence[State] | None = None,
        progress: ProgressCallback | None = None,
    ) -> Self:
        """Return a reader of the examples that match a condition, in the order of this one.

        >>> some = digits.read("train[:100]").where("label in ('6', '7')")
        >>> len(some), some[0]["label"]
        (21, np.int64(7))

        The condition compares columns with numbers, texts and names of classes, as Python writes it. docs/reading.md
        describes it. A comparison with a missing value does not match, and neither does its negation; ``age is None``
        matches missing values.

        The columns that the condition names are read once, when the number of matching examples is first needed: by
        ``len``, a state, or the first example. A process reads its share of the matching examples, and an epoch of a
        shuffle is that of this reader without the others.

        Args:
            condition: such as ``price > 10 and label in ('cat', 'dog')``.
            state: see ``Reader``; the state of a reader with an equal filter. The filter is applied at once.
            progress: called with a ``Progress``, in records, while the columns are read.

        Returns:
            Another reader, at ``state``. Without one it continues at the place of this reader, with the next example
            that matches; if this reader is not at the beginning of an epoch, the filter is applied at once. It can be
            filtered again.

        Raises:
            UsageError: the condition is malformed, names an unknown feature, or compares values of different types. Or
                this reader shares epochs with other processes, and is in the middle of one: their shares would differ.
            WrongTypeError: ``condition`` is not a str.
            StateMismatchError: the state belongs to another version, plan, filter or order.
        """
        from registry.display import time_types

        place = self._place() if state is None else None
        is_start = place is None or place == self._start(place.epoch)
        if not is_start and self.process[1] > 1:
            raise UsageError(
                "a reader that shares an epoch with other processes cannot be filtered in the middle of it",
                hint="Filter a reader that was not iterated, and pass the state of a filtered one: where(..., state=).",
            )
        parsed = parse_condition(condition, self.features, time_types(self.features, self.readable.facts.metadata))
        columns = self._in_plan_order(self.readable.with_features(parsed.features))
        subject = f"{self.readable.facts.reference} {self.plan.expression}"
        total = self.plan.num_examples if self.matches is None else None
        advance = count_progress(progress, "filtering", subject, total=total)
        matches = Matches(parsed, partial(columns._possible_blocks, parsed), within=self.matches, advance=advance)
        config = self.read_config if state is None else self._asked
        reader = self._again(self.readable, config, state=state, process=self.process, matches=matches)
        if place is not None and not is_start:
            reader._begin = place.among(lambda epoch: self._order_of(epoch).positions_of(matches.selected))
        elif place is not None and place.epoch:
            reader._begin = reader._start(place.epoch)
        return reader

    def without_blocks(self, may_match: Callable[[Sequence[BoundedBlock]], npt.NDArray[np.bool_]]) -> Self:
        """Return a reader without some blocks of kept columns, in the order of this one, or this one if it is faster.

        Args:
            may_match: returns which of some blocks must be read: a bool for each.
        """
        blocks = list(self._in_plan_order(self.readable)._bounded_blocks() or ())
        matching = may_match(blocks)
        if not blocks or matching.mean() > _FEW_LEFT_OUT:
            return self
        matches = Matches.of("some blocks", np.repeat(matching, [size for size, _ in blocks]))
        return self._again(self.readable, self.read_config, process=self.process, matches=matches)

    def _in_plan_order(self, readable: ReadableVersion) -> ExampleReader:
        """A reader of the features of ``readable`` of the same examples, in the order of the plan."""
        config = ReadConfig(interleave_cycle_length=1)
        return ExampleReader(
            readable, self.plan, read_config=config, verify=self._verify, keep=self._keep, matches=self.matches
        )

    def _bounded_blocks(self) -> Iterator[BoundedBlock] | None:
        self._keeper.choose()
        columns = self._keeper.columns
        return None if columns is None or self.matches is not None else columns.bounded_blocks(self._order)

    def _possible_blocks(self, condition: Condition) -> Iterator[int | dict[str, Any]]:
        """The columns in blocks; of kept columns, the number of examples of a block in which none matches."""
        blocks = self._bounded_blocks()
        if blocks is None:
            yield from self.blocks()
            return
        start = 0
        for size, bounds in blocks:
            yield self[start : start + size] if condition.may_match(bounds) else size
            start += size

    def record_numbers(self) -> dict[str, npt.NDArray[np.int64]]:
        """Return the numbers of the records of the first epoch, in the order of the reader. Records are not read.

        >>> digits.read("train[10:13]", ReadConfig(interleave_cycle_length=1)).record_numbers()
        {'train': array([10, 11, 12])}

        Returns:
            An array of int64 for each split that the slice names: record ``n`` of the split ``train`` is
            ``train[n:n+1]``. A filtered reader, or one with a ``process``, gives the records that it reads; if it reads
            none of a split, the array is empty.
        """
        lengths = {split.name: split.shard_lengths for split in self.plan.splits}
        if not self._share:
            return {split: np.empty(0, np.int64) for split in lengths}
        files, records = self._order.locate(self._share[0])
        indices, places = np.unique(files, return_inverse=True)
        instructions = [self.plan[index] for index in indices.tolist()]
        starts = np.array([lengths[each.split].start(each.shard) for each in instructions])
        names = np.array([each.split for each in instructions], object)[places]
        numbers = starts[places] + records
        return {split: numbers[names == split] for split in lengths}

    def state(self) -> dict[str, Any]:
        """Return the place of the iteration that was started last, to be saved with a checkpoint.

            reader = dataset.read("train", config, state=json.loads(saved))

        A reader of the same version, split and order that is created with ``state=`` continues with the very next
        example, batch or record. If the iteration had ended, its first iteration is empty, and then the next epoch
        follows.

        Returns:
            Plain values that JSON can hold: a few numbers and digests.
        """
        return self._cursor.state.to_json(self._source)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | npt.NDArray[np.integer[Any]]) -> dict[str, Any]: ...
    def __getitem__(self, index: Any) -> dict[str, Any]:
        """Read examples of the first epoch by number, in the order of ``read_config``.

        Args:
            index: a number, or a slice, list or array of numbers. Negative numbers count from the end.

        Returns:
            The example for a number, as from iterating; a batch for anything else, as from ``batches``.

        Raises:
            IndexError: a number is out of range.
            TypeError: ``index`` is not a whole number, a slice or a list of whole numbers.
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: as iterating a reader.
        """
        if self._keeper.is_in_use and type(index) is int and len(self._share) == 1:  # the usual case, in a microsecond
            (start, stop) = self._share[0]
            position = index + (start if index >= 0 else stop)
            if start <= position < stop and (example := self._items.kept_example_at(self._order, position)) is not None:
                return example
        positions, is_one = find_positions(self._share, index)
        self._keeper.use(positions.size)
        return (self._items.example_at if is_one else self._items.columns_at)(self._order, positions)

    def examples_at(self, indices: Sequence[int] | npt.NDArray[np.integer[Any]]) -> list[dict[str, Any]]:
        """Read the examples at these positions of the first epoch together, and return them one by one.

        Args:
            indices: positions in the reader's order, in any order; a negative one counts from the end.

        Raises:
            IndexError: a position is outside the epoch.
            TypeError: a position is not a whole number.
            CorruptRecordError, CorruptExampleError, ShardMismatchError, StorageError: a file is damaged or unreadable.
        """
        positions, _ = find_positions(self._share, indices)
        self._keeper.use(positions.size)
        return self._items.examples_at(self._order, positions)

    def seek(self, epoch: int, part: Intervals | None = None) -> None:
        """Make the next iteration read ``epoch`` only.

        Args:
            epoch: its number, from 0.
            part: the positions to read of it; None reads this process's share.

        Raises:
            UsageError: ``epoch`` is not a whole number from 0.
        """
        epoch = whole_number(epoch, "epoch", least=0)
        state = ReadState.start(self._source, epoch=epoch, repeat=1, process=self.process)
        self._begin = state if part is None else replace(state, left=((epoch, part),))
        self._cursor = Cursor(self._begin)

    @property
    def drew_seed(self) -> bool:
        """Whether the seed in ``read_config`` was drawn, because a shuffle had no seed."""
        return self._asked.needs_seed

    def reopened(self, *, process: tuple[int, int] | None = None, state: State | Sequence[State] | None = None) -> Self:
        """Return another reader of the same examples in the same order, at its beginning or at ``state``.

        Args:
            process: index and count of its share; None keeps this reader's.
            state: as for ``Reader``.

        Raises:
            StateMismatchError: the state belongs to another version, plan or order.
            UsageError: an invalid ``process``.
        """
        config = self.read_config if state is None else self._asked
        return self._again(self.readable, config, state=state, process=self.process if process is None else process)

    def missing_as_none(self) -> Self:
        """Return a reader with None for a missing value of an optional feature, and with masked arrays in batches.

        It continues at the place of this one. This is the default, except for readers of ``registry.load``.
        """
        return self.decoding(self.features.missing_as_none())

    def missing_as_tfds(self) -> Self:
        """Return a reader with TFDS's value for a missing value: the lowest number of the dtype, ``b""`` or False.

        It continues at the place of this one. In batches an optional feature is a plain array.
        """
        return self.decoding(self.features.missing_as_tfds())

    def fill_missing(self, values: Mapping[str, Any]) -> Self:
        """Return a reader with ``values`` in place of missing values of optional features.

            reader.fill_missing({"age": -1, "place/name": b"?"})

        It continues at the place of this one. In batches these features are plain arrays.

        Args:
            values: a value for each path of a feature.

        Raises:
            FeatureError: no feature has that path, it is not optional, or the value does not fit it.
            WrongTypeError: ``values`` is not a mapping.
        """
        require_type("values", values, Mapping)
        return self.decoding(self.features.fill_missing(values))

    def decode_images(self, decodings: Mapping[str, ImageDecoding]) -> Self:
        """Return a reader that decodes images at a part of their size, or crops them.

            reader.decode_images({"image": ImageDecoding(ratio=4, crop=(56, 56))})

        It continues at the place of this one. The shapes in ``features`` are those of the decoded images.

        Args:
            decodings: an ``ImageDecoding`` for each path of an image, also in a Sequence or of a Video.

        Raises:
            FeatureError: no feature has that path, it is not an image, or it cannot be scaled or cropped in this way.
                An image that is smaller than a crop is a CorruptExampleError while it is read.
            WrongTypeError: ``decodings`` is not a mapping.
        """
        require_type("decodings", decodings, Mapping)
        return self.decoding(self.features.decode_images(decodings))

    def files_as_bytes(self) -> Self:
        """Return a reader that returns images and stored sounds as the undecoded bytes of their files.

        It continues at the place of this one.
        """
        from registry.display import file_features

        return self.decoding(file_features(self.features))

    def with_ids(self) -> Self:
        """Return a reader that adds each example's TFDS id as the feature ``tfds_id``, at the place of this one."""
        config = replace(self.read_config, add_tfds_id=True)
        reader = self._again(self.readable, config, process=self.process, place=self._place())
        reader._asked = replace(self._asked, add_tfds_id=True)
        return reader

    def __getstate__(self) -> tuple[Any, ...]:
        sort_files = self.read_config.interleave_sort_fn
        if isinstance(sort_files, FunctionType) and "<" in sort_files.__qualname__:
            raise UsageError(
                f"a reader with interleave_sort_fn {sort_files.__qualname__} cannot be sent to another process",
                hint="Define that function with def, at the top level of a module.",
            )
        some = self.readable.within({split.name for split in self.plan.splits})
        options = (self.read_config, self.process, self._verify, self._copy, self._keep, self.matches)
        return (some, self.plan, options, self._asked, self._begin, self._cursor.state)

    def __setstate__(self, sent: tuple[Any, ...]) -> None:
        readable, plan, (read_config, process, verify, copy, keep, matches), asked, begin, place = sent
        self.__init__(  # type: ignore[misc]  # nothing is open yet
            readable,
            plan,
            read_config=read_config,
            process=process,
            verify=verify,
            copy=copy,
            keep=keep,
            matches=matches,
        )
        self._asked, self._begin, self._cursor = asked, begin, Cursor(place)

    def first_rows_html(self) -> Markup:
        """Return the first examples as an HTML table, or the reason why they cannot be read.

        Does not move this reader.
        """
        from registry.display import MOST_ROWS, rows_html

        def read(names: Sequence[str]) -> list[dict[str, Any]]:
            reader = self.reopened() if len(names) == len(self.features) else self.reopened().select(names)
            return reader.files_as_bytes().examples_at(range(min(MOST_ROWS, len(self))))

        return rows_html(self.features, self.readable.facts.metadata, read, len(self))

    def _repr_html_(self) -> str:
        return panel(self, self.first_rows_html())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.title}>"

    @property
    def title(self) -> str:
        """The split expression, the condition, the number of examples if it is known, and how images are decoded."""
        subject = self.plan.expression if self.matches is None else f"{self.plan.expression} where {self.matches.text}"
        count = f": {len(self)} examples" if self.matches is None or self.matches.is_known else ""
        leaves = [(column.path, column.leaf) for column in columns_of(self.features)]
        images = [f", {path}={leaf.decoding}" for path, leaf in leaves if isinstance(leaf, Image) and leaf.stored_shape]
        return "".join([subject, count, *images])

    def decoding(self, features: FeaturesDict) -> Self:
        """Another reader, at the place of this one, that decodes examples by ``features``."""
        readable = self.readable.with_features(features)
        return self._again(readable, self.read_config, process=self.process, place=self._place())

    def _place(self) -> ReadState | None:
        """Return the place at which a view of this reader begins: in the last iteration, or after it if it has ended.

        None means the beginning. The filter is not applied to compute the place.
        """
        if "_begin" not in vars(self):
            return None
        state = self._cursor.state
        is_over = not state.num_left and state.next_epoch(self._order.num_examples) is None
        return self._begin if is_over else state

    def _again(
        self,
        readable: ReadableVersion,
        read_config: ReadConfig,
        *,
        state: State | Sequence[State] | None = None,
        process: tuple[int, int],
        matches: Matches | None = None,
        place: ReadState | None = None,
    ) -> Self:
        """Return another reader of this plan. If the order is the same, the reader knows whether the seed was drawn."""
        reader = type(self)(
            readable,
            self.plan,
            read_config=read_config,
            state=state,
            process=process,
            verify=self._verify,
            copy=self._copy,
            keep=self._keep,
            matches=matches or self.matches,
        )
        if place is not None:
            reader._begin = place
        if read_config is self.read_config:
            reader._asked = self._asked
            if matches is None:  # a loader opens a reader for each epoch, and the order of a filter is long
                vars(reader).update({name: vars(self)[name] for name in ("_order", "_source") if name in vars(self)})
        return reader

    def _iterate(self, item_lists: ItemLists, *, is_decoded: bool = True) -> Iterator[Any]:
        """Start an iteration: of the next epoch, or from the given state."""
        begin = self._begin
        self._cursor = Cursor(begin)
        self._begin = self._start(begin.epoch + 1 if begin.until is None else begin.until)
        return chain.from_iterable(self._run(self._cursor, item_lists, is_decoded=is_decoded))

    def _run(self, cursor: Cursor, item_lists: ItemLists, *, is_decoded: bool) -> Iterator[Iterator[Any]]:
        """Yield lists of items. The cursor derives the place within a list from the rest of its iterator."""
        state: ReadState | None = cursor.state
        while state is not None:
            cursor.set(state)
            if is_decoded:
                self._keeper.choose()
            if state.num_left:
                for item_list in item_lists(self._order_of(state.epoch), state.intervals):
                    started = time.perf_counter()
                    items = cursor.hand_out(item_list.items, positions_each=item_list.positions_each)
                    yield items if item_list.make is None else map(item_list.make, items)
                    state = state.advance(item_list.num_positions)
                    cursor.set(state)
                    self._keeper.count(item_list.num_positions, time.perf_counter() - started)
                self._keeper.count(0, math.inf)
            state = state.next_epoch(self._order.num_examples)

    def _start(self, epoch: int) -> ReadState:
        return ReadState.start(self._source, epoch=epoch, repeat=self.read_config.repeat, process=self.process)

    def _order_of(self, epoch: int) -> Order:
        config = self.read_config
        if self._order.epoch != epoch and (config.shuffle is not None or config.shuffle_files):
            return self._select(self.plan.order(config, epoch=epoch))
        return self._order

    def _select(self, order: Order) -> Order:
        return order if self.matches is None else order.select(self.matches.selected)


def _check_process(process: tuple[int, int]) -> tuple[int, int]:
    try:
        index, count = map(operator.index, process)
    except (TypeError, ValueError):
        raise UsageError(f"process must be (index, count), two whole numbers, not {process!r:.60}") from None
    if not 0 <= index < count:
        raise UsageError(
            f"process index {index} is out of range for {count} processes", hint="Processes are counted from 0."
        )
    return index, count
