"""Tests Reader: orders, selections, batches, records, and its errors."""

from __future__ import annotations

import errno
import gzip
import os
from itertools import count, islice
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from support.reading_samples import FEATURES, Stored, readable, reader_of, stored

from registry.errors import (
    CorruptExampleError,
    CorruptRecordError,
    NotStoredError,
    ShardMismatchError,
    StorageError,
    UsageError,
)
from registry.features import FeaturesDict, Text, codec_of
from registry.model import ShardedFileTemplate, ShardLengths, Split
from registry.order import ReadConfig
from registry.reading import Batches, Reader
from registry.splits import resolve
from registry.storage import open_store
from registry.tfrecord import RecordWriter, frame_record

IN_TURNS = [0, 1, 20, 21, 2, 3, 22, 23, 4]


@pytest.fixture
def files(tmp_path: Path) -> Stored:
    return stored([20, 20, 0, 7], str(tmp_path / "data"))


def ids(examples: Any) -> list[int]:
    return [int(example["id"]) for example in examples]


def test_the_default_order_is_that_of_tfds(files: Stored) -> None:
    expected = [*range(16), *range(20, 36), *range(40, 47), *range(16, 20), *range(36, 40)]
    assert ids(reader_of("train", files)) == expected
    assert ids(reader_of("train", files, ReadConfig(interleave_cycle_length=1))) == list(range(47))
    turns = ReadConfig(interleave_cycle_length=2, interleave_block_length=2)
    assert ids(islice(reader_of("train", files, turns), 9)) == IN_TURNS


def test_examples_know_their_tfds_id(files: Stored) -> None:
    config = ReadConfig(interleave_cycle_length=2, interleave_block_length=2, add_tfds_id=True)
    reader = reader_of("train", files, config)
    names = [f"ids-train.tfrecord-0000{number // 20}-of-00004__{number % 20}" for number in IN_TURNS]
    assert list(islice(reader.ids(), 9)) == names
    assert [example["tfds_id"] for example in islice(reader, 9)] == [name.encode() for name in names]
    batch = next(reader.batches(9))
    assert batch["tfds_id"].tolist() == [name.encode() for name in names]
    assert reader[3] == {"id": 21, "tfds_id": names[3].encode()}
    assert reader[[3, 0]]["tfds_id"].tolist() == [names[3].encode(), names[0].encode()]


def test_some_features_are_read_from_the_same_place_on(tmp_path: Path) -> None:
    features = FeaturesDict({"id": "int64", "text": Text()})
    store = open_store(tmp_path)
    with store.create("two-train.tfrecord-00000-of-00001") as file:
        writer = RecordWriter(file)
        for number in range(9):
            writer.write(codec_of(features).encode({"id": number, "text": str(number)}))
    split = Split(name="train", shard_lengths=ShardLengths([9]), files=ShardedFileTemplate(dataset="two"))
    reader = Reader(
        readable(store, [split], features), resolve("train", {"train": split}), read_config=ReadConfig(shuffle="global")
    )
    numbers = ids(islice(reader, 4))
    rest = reader.select("id")
    assert rest.drew_seed
    assert [list(example) for example in islice(rest, 1)] == [["id"]]
    assert sorted(numbers + ids(reader.select("id"))) == list(range(9))
    assert list(reader.select(["text", "id"])[0]) == ["text", "id"]
    with pytest.raises(UsageError, match=r"^at least one feature is needed(?m:$)"):
        reader.select()
    with pytest.raises(UsageError, match=r"^the name of a feature must be str, not int(?m:$)"):
        reader.select(5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^no feature 'txt'(?m:$)"):
        reader.as_supervised("id", "txt")
    with pytest.raises(UsageError, match=r"^supervised examples need at least one feature(?m:$)"):
        reader.as_supervised()
    with pytest.raises(UsageError) as caught:
        reader.select("txt")
    assert (caught.value.message, caught.value.hint) == (
        "no feature 'txt'",
        "Did you mean 'text'? There are: id, text.",
    )


def test_batches_end_with_the_epoch(files: Stored) -> None:
    def sizes(**options: Any) -> list[int]:
        return [len(batch["id"]) for batch in reader_of("train", files, ReadConfig(repeat=2)).batches(20, **options)]

    assert sizes() == [20, 20, 7, 20, 20, 7]
    assert sizes(drop_remainder=True) == [20, 20, 20, 20]
    assert [len(batch["id"]) for batch in reader_of("train", files).batches(1000)] == [47]
    for size in (0, -1, True, "5", None, 1.0):
        with pytest.raises(UsageError, match=r"^batch_size must be (a whole number|1 or more), not "):
            Batches(reader_of("train", files), size)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"^batch_size must be (a whole number|1 or more), not "):
            reader_of("train", files).batches(size)  # type: ignore[arg-type]


def test_iterating_again_reads_the_next_epoch(files: Stored) -> None:
    config = ReadConfig(shuffle="global", seed=7)
    reader = reader_of("train", files, config)
    first, second = ids(reader), ids(reader)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(47))
    assert ids(reader_of("train", files, ReadConfig(shuffle="global", seed=7, repeat=2))) == first + second
    for_ever = reader_of("train", files, ReadConfig(shuffle="global", seed=7, repeat=None))
    assert ids(islice(for_ever, 94)) == first + second


def test_an_index_out_of_range_or_of_another_type_is_refused(files: Stored) -> None:
    reader = reader_of("train", files)
    assert int(reader[-1]["id"]) == 39
    for wrong in (47, -48, [0, 47], np.array([-48])):
        with pytest.raises(IndexError, match=r"^index (47|-48) is out of range: there are 47 examples(?m:$)"):
            reader[wrong]
    for kind in (1.0, "1", [1.5], [[1]], None, [True, False]):
        with pytest.raises(TypeError, match=r"^an index must be a whole number, a slice or a list of whole numbers"):
            reader[kind]  # type: ignore[index]
    assert reader[[]]["id"].tolist() == []
    assert reader[[]]["id"].dtype == np.int64
    assert reader[5:2]["id"].tolist() == []


def test_an_empty_slice_reads_nothing(files: Stored) -> None:
    reader = reader_of("train[5:5]", files, ReadConfig(repeat=None))
    assert len(reader) == 0
    assert (list(reader), list(reader.batches(3)), list(reader.records()), list(reader.ids())) == ([], [], [], [])
    with pytest.raises(IndexError, match=r"^index 0 is out of range: there are 0 examples(?m:$)"):
        reader[0]


@pytest.mark.parametrize("process", [(1, 1), (-1, 2), (0, 0), 3, (1,), ("a", 2), (0.5, 2)])
def test_an_invalid_process_is_refused(files: Stored, process: Any) -> None:
    with pytest.raises(UsageError, match=r"process"):
        reader_of("train", files, process=process)


@pytest.mark.parametrize("config", [ReadConfig(shuffle="global"), ReadConfig(shuffle_files=True)])
def test_several_processes_share_a_shuffle_only_with_a_seed(files: Stored, config: ReadConfig) -> None:
    with pytest.raises(UsageError) as caught:
        reader_of("train", files, config, process=(0, 2))
    assert (
        str(caught.value) == "several processes share a shuffle without a seed, and each would draw a seed of its own"
    )
    states = [reader_of("train", files, config).state()]
    shares = [reader_of("train", files, config, process=(index, 2), state=states) for index in range(2)]
    assert sorted(number for reader in shares for number in ids(reader)) == list(range(47))


def test_an_unknown_way_to_verify_is_refused(files: Stored) -> None:
    with pytest.raises(UsageError) as caught:
        reader_of("train", files, verify="never")
    assert str(caught.value) == "unknown verify='never'"
    assert (
        caught.value.hint
        == "'record' checks each record separately, 'block' many in one pass, and 'off' trusts the disk."
    )


@pytest.mark.parametrize(
    "config", [ReadConfig(interleave_cycle_length=1), ReadConfig(), ReadConfig(shuffle="global", seed=1)]
)
@pytest.mark.parametrize("verify", ["block", "record"])
def test_examples_before_a_damaged_record_are_yielded_and_the_state_points_to_it(
    files: Stored, config: ReadConfig, verify: str
) -> None:
    order = ids(reader_of("train", files, config))
    path = Path(files.store.locate(files.split.filename(1)))
    content = bytearray(path.read_bytes())
    size = len(content) // 20
    content[5 * size + 13] ^= 4
    path.write_bytes(bytes(content))
    reader = reader_of("train", files, config, verify=verify)
    found: list[int] = []
    with pytest.raises(CorruptRecordError) as caught:
        found.extend(int(example["id"]) for example in reader)  # extend keeps the records before the error
    assert (caught.value.details["path"], caught.value.details["record"]) == (str(path), 5)
    assert found == order[: order.index(25)]
    content[5 * size + 13] ^= 4
    path.write_bytes(bytes(content))
    assert ids(reader_of("train", files, config, state=reader.state())) == order[len(found) :]


def test_all_batches_before_a_bad_record_are_handed_out(files: Stored) -> None:
    name = files.split.filename(0)
    with files.store.create(name, overwrite=True) as file:
        writer = RecordWriter(file)
        for number in range(20):
            writer.write(b"\xff" if number == 13 else codec_of(FEATURES).encode({"id": number}))
    reader = reader_of("train", files, ReadConfig(interleave_cycle_length=1))
    found = []
    with pytest.raises(CorruptExampleError) as caught:
        found.extend(batch["id"].tolist() for batch in reader.batches(5))  # extend keeps the records before the error
    assert found == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert str(caught.value).startswith(f"{name}: record 13: these 1 bytes are not a tf.train.Example")
    assert caught.value.details["record"] == 13
    examples = []
    with pytest.raises(CorruptExampleError):
        examples.extend(
            int(example["id"]) for example in reader_of("train", files, ReadConfig(interleave_cycle_length=1))
        )  # extend keeps the records before the error
    assert examples == list(range(13))


def test_a_missing_file_is_an_error_when_it_is_reached(files: Stored) -> None:
    files.store.remove_tree(files.split.filename(1))
    reader = reader_of("train", files, ReadConfig(interleave_cycle_length=1))
    assert len(list(islice(reader, 20))) == 20
    with pytest.raises(NotStoredError):
        list(reader_of("train", files))


def test_a_file_that_holds_more_is_refused_before_its_last_record(files: Stored) -> None:
    with files.store.create(files.split.filename(0), overwrite=True) as file:
        writer = RecordWriter(file)
        for number in range(21):
            writer.write(codec_of(FEATURES).encode({"id": number}))
    found = []
    with pytest.raises(ShardMismatchError, match=r"expected 20 records, found more than 20(?m:$)"):
        found.extend(
            int(example["id"]) for example in reader_of("train", files, ReadConfig(interleave_cycle_length=1))
        )  # extend keeps the records before the error
    assert found == list(range(19))


def test_without_copies_records_are_views_of_the_file(files: Stored) -> None:
    reader = reader_of("train", files, copy=False)
    views = list(reader.records())
    assert all(isinstance(view, memoryview) and view.readonly for view in views)
    assert [bytes(view) for view in views] == list(reader_of("train", files).records())


def test_gzip_files_are_read_in_any_order(tmp_path: Path) -> None:
    files = stored([300, 200], str(tmp_path / "data"))
    plain = {
        config: ids(reader_of("train", files, config))
        for config in (ReadConfig(), ReadConfig(shuffle="global", seed=1))
    }
    for index in range(2):
        name = files.split.filename(index)
        records = list(reader_of(f"train[{index}shard]", files).records())
        with files.store.create(name, overwrite=True) as file:
            file.writelines(gzip.compress(frame_record(record)) for record in records)
    for config, expected in plain.items():
        assert ids(reader_of("train", files, config)) == expected
        assert int(reader_of("train", files, config)[400]["id"]) == expected[400]
    assert ids(reader_of("train[90%:]", files, ReadConfig(interleave_cycle_length=1))) == list(range(450, 500))


def test_options_of_a_wrong_type_are_refused(files: Stored) -> None:
    for options, message in (
        ({"config": 3}, "read_config must be a registry.ReadConfig, not 3"),
        ({"copy": "no"}, "copy must be True or False, not 'no'"),
    ):
        with pytest.raises(UsageError) as caught:
            reader_of("train", files, **options)  # type: ignore[arg-type]
        assert str(caught.value) == message


def test_slices_with_steps_equal_those_of_a_list(files: Stored) -> None:
    reader = reader_of("train", files)
    everything = ids(reader)
    for part in (slice(None, None, -1), slice(5, None, 7), slice(40, 3, -5), slice(-3, 100, 2), slice(3, 9, -1)):
        assert reader[part]["id"].tolist() == everything[part]


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def test_more_files_can_be_read_together_than_a_process_can_open(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    files = stored([8] * 300, str(tmp_path / "data"))
    config = ReadConfig(shuffle="global", seed=1)
    expected = ids(reader_of("train", files, config))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = islice(
        (number for number in count() if not is_open(number)), 40
    )  # others may be open above the first of them
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(free) + 1, limits[1]))
    try:
        found = ids(reader_of("train", files, config))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert found == expected


@pytest.mark.shards
def test_a_file_that_is_cut_while_it_is_open_is_an_error(files: Stored) -> None:
    reader = reader_of("train[0shard]", files)
    assert int(reader[19]["id"]) == 19
    path = Path(files.store.locate(files.split.filename(0)))
    size = path.stat().st_size
    os.truncate(path, 30)
    for ask in (lambda: reader[0], lambda: reader[[5, 3]], lambda: list(reader)):
        with pytest.raises(StorageError) as caught:
            ask()
        assert str(caught.value) == f"cannot read {path}: it had {size} bytes when it was opened, but has 30 now"
        assert caught.value.hint == (
            "Published files never change. Fetch it again; `registry verify` names every bad shard."
        )


@pytest.mark.shards
def test_a_gzip_file_that_cannot_be_copied_says_what_to_do(files: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(files.store.locate(files.split.filename(0)))
    path.write_bytes(gzip.compress(path.read_bytes()))
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr("tempfile.TemporaryFile", Mock(side_effect=full))
    with pytest.raises(StorageError) as caught:
        reader_of("train[0shard]", files)[[5, 3]]
    assert str(caught.value) == (f"cannot copy the content of {path} to a temporary file: No space left on device")
    assert caught.value.hint == (
        "Random access needs space for the content of the file: set TMPDIR to a folder with free space."
    )
    assert caught.value.errno == errno.ENOSPC
