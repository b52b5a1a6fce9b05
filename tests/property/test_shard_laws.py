"""Files of every format read alike: any slice, any order, in batches, and by number."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.levels import examples
from support.reading_samples import readable
from support.shard_samples import WRITERS, assert_same

from registry.features import FeaturesDict, Sequence, Text, codec_of
from registry.model import ShardedFileTemplate, ShardLengths, Split
from registry.order import ReadConfig
from registry.reading import Reader
from registry.splits import resolve
from registry.storage import open_store

FEATURES = FeaturesDict({"id": "int64", "name": Text(), "parts": Sequence("float32")})
CONFIGS = st.one_of(
    st.builds(ReadConfig, interleave_cycle_length=st.integers(1, 4), interleave_block_length=st.integers(1, 4)),
    st.builds(ReadConfig, shuffle_files=st.just(True), shuffle_seed=st.integers(0, 99)),
    st.builds(ReadConfig, shuffle=st.just("global"), seed=st.integers(0, 99), repeat=st.integers(1, 2)),
)


@contextmanager
def readers(file_format: str, lengths: list[int], expression: str, config: ReadConfig) -> Iterator[tuple[Reader, ...]]:
    """A reader of TFRecord files, and one of files of the other format with the same records."""
    with tempfile.TemporaryDirectory() as folder:
        made = []
        for one in ("tfrecord", file_format):
            files = ShardedFileTemplate(dataset="ids", file_format=one)
            split = Split(name="train", shard_lengths=ShardLengths(lengths), files=files)
            store = open_store(Path(folder) / one)
            number = 0
            for index, length in enumerate(lengths):
                examples = [_example(number + place) for place in range(length)]
                WRITERS[one](store, split.filename(index), list(map(codec_of(FEATURES).encode, examples)))
                number += length
            plan = resolve(expression, {"train": split})
            made.append(Reader(readable(store, [split], FEATURES), plan, read_config=config))
        yield tuple(made)


def _example(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"number {number}" * (number % 3), "parts": [number / 2] * (number % 4)}


@pytest.mark.parametrize("file_format", ["array_record", "parquet"])
@settings(max_examples=examples(20))
@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    bounds=st.tuples(st.integers(0, 100), st.integers(0, 100)).map(sorted),
    config=CONFIGS,
    size=st.integers(1, 5),
    data=st.data(),
)
def test_every_format_is_read_alike(
    file_format: str, lengths: list[int], bounds: list[int], config: ReadConfig, size: int, data: st.DataObject
) -> None:
    with readers(file_format, lengths, f"train[{bounds[0]}%:{bounds[1]}%]", config) as (ours, theirs):
        assert list(ours.records()) == list(theirs.records())
        assert [name.replace("tfrecord", file_format) for name in ours.ids()] == list(theirs.ids())
        for first, second in zip(ours, theirs, strict=True):
            assert_same(first, second)
        for first, second in zip(ours.batches(size), theirs.batches(size), strict=True):
            assert_same(first, second)
        if len(ours):
            indices = np.array(data.draw(st.lists(st.integers(0, len(ours) - 1), min_size=1, max_size=6)))
            assert_same(ours[indices], theirs[indices])
            assert_same(ours[int(indices[0])], theirs[int(indices[0])])
            begun = iter(theirs)
            next(begun)
            resumed = theirs.reopened(state=theirs.state())
            assert [int(one["id"]) for one in resumed] == [int(one["id"]) for one in begun]
