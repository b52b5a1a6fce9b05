"""Where do the records of a plan come from? Its shard files, opened when they are needed, a few of them at a time."""

from __future__ import annotations

import errno
from collections import OrderedDict
from functools import cache
from itertools import pairwise
from typing import Final

import numpy as np

from registry.errors import StorageError
from registry.features import FeaturesDict
from registry.shards import Block, BlockCache, Shard, join_blocks, open_shard
from registry.splits import FileInstruction, Plan
from registry.storage import Store
from registry.tfrecord import IndexFolder, Places, Verify, check_verify

_FEWEST_OPEN: Final = 16
_MOST_OPEN: Final = 4096


class RecordSource:
    """The records of a plan by file instruction and index in the file. Used by one thread at a time.

    ``features`` are needed where the files are of a ``file_format`` that stores no serialized examples.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store,
        *,
        verify: Verify,
        indexes: IndexFolder | None,
        file_format: str = "tfrecord",
        features: FeaturesDict | None = None,
    ) -> None:
        self._plan = plan
        self._file_format = file_format
        self._features = features
        self._cache = BlockCache()
        self._store = store
        self._verify = check_verify(verify)
        self._indexes = indexes
        self._open: OrderedDict[str, Shard] = OrderedDict()
        self._seen: set[int] = set()
        self._most_open = _most_open()
        self._instructions: dict[int, FileInstruction] = {}

    def fetch(self, instructions: Places, records: Places) -> Block:
        """Record ``records[i]`` of the file of ``instructions[i]``, for each i, checked.

        Raises:
            CorruptRecordError: framing or checksum of a record is wrong.
            ShardMismatchError: a file holds fewer records than the catalog says, or is read to its end and holds more.
            StorageError: a file cannot be read.
        """
        if not instructions.size or (instructions == instructions[0]).all():
            return self._fetch_from(int(instructions[0]), records) if instructions.size else join_blocks([])
        by_file = np.argsort(instructions, kind="stable")
        files = instructions[by_file]
        bounds = [0, *(np.flatnonzero(files[1:] != files[:-1]) + 1).tolist(), files.size]
        blocks: list[Block] = []
        some: list[Block] = []
        self._prove_new(files[bounds[:-1]].tolist())
        for start, stop in pairwise(bounds):
            some.append(self._fetch_from(int(files[start]), records[by_file[start:stop]]))
            if len(some) >= self._most_open // 4:  # a block keeps its file mapped, and so open; a copy does not
                blocks.append(join_blocks(some))
                some.clear()
        places = np.empty_like(by_file)
        places[by_file] = np.arange(by_file.size)
        return join_blocks(blocks + some).take(places)

    def instruction(self, index: int) -> FileInstruction:
        """The file instruction at ``index`` of the plan."""
        found = self._instructions.get(index)
        if found is None:
            if len(self._instructions) >= 2 * _MOST_OPEN:
                self._instructions.clear()
            found = self._instructions[index] = self._plan[index]
        return found

    def _prove_new(self, instructions: list[int]) -> None:
        """Have the files that this source opens for the first time proved side by side."""
        new = [index for index in instructions if index not in self._seen]
        if len(new) > 1:
            self._store.prove(dict.fromkeys(self.instruction(index).filename for index in new))
        self._seen.update(new)

    def _fetch_from(self, index: int, records: Places) -> Block:
        while True:
            try:
                return self._read(index, records)
            except StorageError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or self._most_open == 1:
                    raise
                self._most_open //= 2
                self._close_all_but(self._most_open)

    def _read(self, index: int, records: Places) -> Block:
        shard = self._shard(self.instruction(index))
        first, count = int(records[0]), records.size
        if int(records[-1]) == first + count - 1 and (count < 3 or bool((records[1:] - records[:-1] == 1).all())):
            return shard.read(first, count)
        return shard.gather(records)

    def _shard(self, instruction: FileInstruction) -> Shard:
        shard = self._open.get(instruction.filename)
        if shard is not None:
            self._open.move_to_end(instruction.filename)
            return shard
        self._close_all_but(self._most_open - 1)
        shard = self._open[instruction.filename] = open_shard(
            self._store,
            instruction.filename,
            file_format=self._file_format,
            features=self._features,
            num_records=instruction.examples_in_shard,
            verify=self._verify,
            indexes=self._indexes,
            cache=self._cache,
        )
        return shard

    def _close_all_but(self, count: int) -> None:
        """Close the files that were not used for the longest time."""
        while len(self._open) > count:
            self._open.popitem(last=False)


@cache
def _most_open() -> int:
    """How many files a reader tries to keep open: each holds a descriptor, its index another, and others want some."""
    try:
        import resource
    except ImportError:  # not on Windows
        return _FEWEST_OPEN * 8
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_OPEN if limit == resource.RLIM_INFINITY else min(max(limit // 8, _FEWEST_OPEN), _MOST_OPEN)
