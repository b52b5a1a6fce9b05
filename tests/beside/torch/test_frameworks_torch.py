"""torch reads every example once over ranks, workers and epochs, in the reader's order, and resumes exactly."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.framework_samples import FEATURES, WithMaps, plain, wide_reader

import registry
from registry.errors import CorruptRecordError, RegistryWarning, StateMismatchError, UsageError
from registry.features import FeaturesDict
from registry.order import ReadConfig
from registry.reading import Reader

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402 (skipped without torch)

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]

IDS = FeaturesDict({"id": "int64"})
RESHUFFLED = ReadConfig(shuffle="global", seed=11)
CONFIGS = st.one_of(
    st.builds(ReadConfig, interleave_cycle_length=st.integers(1, 3), repeat=st.integers(1, 3)),
    st.builds(ReadConfig, shuffle=st.just("global"), seed=st.integers(0, 9), repeat=st.integers(1, 3)),
)
LENGTHS = st.lists(st.integers(0, 25), min_size=1, max_size=4)
FILTERS = st.sampled_from([None, "id >= 4 and id not in (7, 11, 30)", "id < 0"])


def filtered(reader: Reader, condition: str | None) -> Reader:
    return reader if condition is None else reader.where(condition)


def ids_of(items: Any) -> list[int]:
    """The ids in examples or batches."""
    return list(chain.from_iterable(np.atleast_1d(item["id"].numpy()).tolist() for item in items))


def read(reader: Reader) -> list[int]:
    return [int(example["id"]) for example in reader]


class Workers:
    """What a loader does, in one process: each worker has a copy of the dataset, and gives its items in its turn."""

    def __init__(self, dataset: Any, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.copies = [pickle.loads(pickle.dumps(dataset)) for _ in range(number)]  # noqa: S301 (made here)
        self.number = number
        self.monkeypatch = monkeypatch

    def iterate(self, drawn: int) -> list[Iterator[Any]]:
        found = []
        for index, copy in enumerate(self.copies):
            info = SimpleNamespace(id=index, num_workers=self.number, seed=drawn + index)
            self.monkeypatch.setattr("registry.reading.frameworks.torch.get_worker_info", lambda info=info: info)
            found.append(iter(copy))
        return found


def in_turns(streams: list[Iterator[Any]]) -> list[Any]:
    found, going = [], list(streams)
    while going:
        for stream in list(going):
            try:
                found.append(next(stream))
            except StopIteration:
                going.remove(stream)
    return found


def test_examples_are_tensors_and_bytes() -> None:
    reader = wide_reader([6, 3])
    dataset = reader.to_torch()
    expected = [plain(example) for example in reader]
    for found in (
        [dataset[place] for place in range(len(dataset))],
        dataset.__getitems__(range(9)),
        list(reader.to_torch(iterable=True)),
    ):
        assert [plain(untorch(example)) for example in found] == expected
        for name in ("id", "half", "flag", "u8", "u16", "u32", "u64"):
            assert found[0][name].dtype == getattr(torch, str(FEATURES[name].dtype))
        assert type(found[2]["name"]) is bytes
        assert [row.tolist() for row in found[2]["deep"][0]] == [[2], []]
    batch = dataset[[1, 3]]
    assert (batch["image"].shape, batch["name"], [one.shape for one in batch["mat"]]) == (
        (2, 2, 3, 1), ["grün 1".encode(), "grün 3".encode()], [(2, 1), (2, 0)],
    )  # fmt: skip
    # A tensor holds no null: what may be missing is a list, whatever is missing in this batch.
    assert (batch["maybe"][0], batch["maybe"][1].item()) == (None, 3)
    assert [one.dtype for one in dataset[[0, 3]]["maybe"]] == [torch.int32] * 2
    assert dataset[[1, 3]]["corners"] == [None, None]
    assert [one.tolist() for one in dataset[[0, 2]]["corners"]] == [[0, -1], [2, -1]]
    filled = reader.fill_missing({"maybe": -1}).to_torch()[[1, 3]]["maybe"]
    assert (filled.dtype, filled.tolist()) == (torch.int32, [-1, 3])


def untorch(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: untorch(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [untorch(inner) for inner in value]
    if isinstance(value, torch.Tensor):
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()[()]  # of which NumPy has none
    return value


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=LENGTHS,
    config=CONFIGS,
    ranks=st.integers(1, 3),
    workers=st.integers(1, 4),
    size=st.none() | st.integers(1, 9),
    condition=FILTERS,
)
def test_ranks_and_workers_together_give_every_example_once_an_epoch(
    lengths: list[int], config: ReadConfig, ranks: int, workers: int, size: int | None, condition: str | None
) -> None:
    whole = wide_reader(lengths, config, features=IDS)
    reader = filtered(whole, condition)
    found: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        for rank in range(ranks):
            dataset = reader.to_torch(iterable=True, batch_size=size, process=(rank, ranks))
            items = in_turns(Workers(dataset, workers, patch).iterate(7))
            mine = ids_of(items)
            expected = read(reader.reopened(process=(rank, ranks)))
            if size is None:
                assert Counter(mine) == Counter(expected)
            else:
                assert mine == expected
                assert len(items) == len(dataset)
            found += mine
    matching = (number for number in range(sum(lengths)) if number >= 4 and number not in (7, 11, 30))
    expected = list(range(sum(lengths))) if condition is None else list(matching) if condition[3] == ">" else []
    assert Counter(found) == Counter(expected * config.repeat)


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_a_loader_gives_batches_in_the_order_of_the_reader(workers: int, tmp_path: Path) -> None:
    reader = wide_reader([30, 41], RESHUFFLED, where=tmp_path, features=IDS)
    loader = DataLoader(reader.to_torch(iterable=True, batch_size=4), batch_size=None, num_workers=workers)
    assert len(loader) == 18
    for _ in range(3):
        assert ids_of(loader) == read(reader)


@pytest.mark.parametrize(("start", "persistent"), [("fork", False), ("fork", True), ("spawn", False), ("spawn", True)])
def test_each_iteration_of_a_loader_is_the_next_epoch_in_all_of_its_workers(
    start: str, persistent: bool, tmp_path: Path
) -> None:
    reader = wide_reader([9, 14], RESHUFFLED, where=tmp_path, features=IDS)
    dataset = reader.to_torch(iterable=True, batch_size=3)
    loader = DataLoader(
        dataset, batch_size=None, num_workers=2, multiprocessing_context=start, persistent_workers=persistent
    )
    epochs = [read(reader) for _ in range(6)]
    assert [ids_of(loader) for _ in range(2)] == epochs[:2]
    dataset.set_epoch(5)
    assert ids_of(loader) == epochs[5]
    if start == "fork":
        dataset.set_epoch(2)
        assert ids_of(islice(loader, 2)) == epochs[2][:6]
        assert ids_of(loader) == epochs[3]


def test_loaders_with_different_workers_can_share_a_dataset(tmp_path: Path) -> None:
    reader = wide_reader([9, 14], RESHUFFLED, where=tmp_path, features=IDS)
    dataset = reader.to_torch(iterable=True, batch_size=3)
    loaders = [DataLoader(dataset, batch_size=None, num_workers=workers) for workers in (2, 0, 3, 2)]
    assert [ids_of(loader) for loader in loaders] == [read(reader) for _ in range(4)]


def test_a_loader_reads_examples_and_makes_the_batches_itself(tmp_path: Path) -> None:
    reader = wide_reader([30, 7], where=tmp_path, features=IDS)
    batches = list(DataLoader(reader.to_torch(iterable=True), batch_size=5, num_workers=2))
    assert sorted(ids_of(batches)) == list(range(37))
    by_number = DataLoader(reader.to_torch(), batch_size=5, num_workers=2)
    assert ids_of(by_number) == read(reader)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_every_process_opens_a_map_style_dataset_itself(start: str, tmp_path: Path) -> None:
    reader = wide_reader([30, 7], where=tmp_path, features=IDS)
    dataset = reader.to_torch()
    assert dataset[36]["id"] == reader[36]["id"]
    loader = DataLoader(dataset, batch_size=5, num_workers=2, shuffle=True, multiprocessing_context=start)
    assert sorted(ids_of(loader)) == list(range(37))


@pytest.mark.parametrize("keep", [None, "memory"])
def test_a_damaged_record_is_the_same_kind_of_error_in_workers(keep: Any, tmp_path: Path) -> None:
    reader = wide_reader([30], where=tmp_path, features=IDS, keep=keep)
    (shard,) = tmp_path.glob("*.tfrecord*")
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    for dataset, size in ((reader.to_torch(), 4), (reader.to_torch(iterable=True, batch_size=4), None)):
        with pytest.raises(CorruptRecordError, match="record 29"):
            list(DataLoader(dataset, batch_size=size, num_workers=2))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux lists the maps of a process")
@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("copy", [True, False])
def test_workers_map_kept_columns_and_send_tensors_in_shared_memory(
    start: str, copy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "1GB")
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path) as catalog:
        catalog.build("digits")
        digits = catalog.dataset("digits")
        num_bytes = digits.keep_columns().num_bytes
        reader = digits.read("train", keep="disk", copy=copy)
        images = reader[:64]["image"]
        dataset = reader.to_torch()
        assert len(dataset[[0, 1]]["image"]) == 2  # its own reader has the columns, too
        assert len(pickle.dumps(dataset)) < num_bytes // 20
        loader = DataLoader(
            dataset, 64, num_workers=2, multiprocessing_context=start, collate_fn=WithMaps(dataset.collate, tmp_path)
        )
        batches = iter(loader)
        batch, num_maps = next(batches)
        assert num_maps == 3  # labels, and the bytes of images with their ends
        assert all(tensor.is_shared() for tensor in batch.values())
        assert np.array_equal(batch["image"].numpy(), images)
        del batches


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_share_a_filtered_reader(start: str, tmp_path: Path) -> None:
    reader = wide_reader([30, 7], RESHUFFLED, where=tmp_path, features=IDS).where("id >= 10 and id != 20")
    if start == "fork":
        by_number = DataLoader(reader.to_torch(), batch_size=5, num_workers=2)
        assert ids_of(by_number) == read(reader.reopened())
    batches = reader.to_torch(iterable=True, batch_size=5)
    loader = DataLoader(batches, batch_size=None, num_workers=2, multiprocessing_context=start)
    again = reader.reopened()
    for _ in range(2 if start == "fork" else 1):
        assert ids_of(loader) == read(again)
    assert len(loader) == 6


@settings(deadline=None, max_examples=40)
@given(
    lengths=LENGTHS,
    config=CONFIGS,
    size=st.none() | st.integers(1, 9),
    workers=st.integers(1, 3),
    condition=FILTERS,
    data=st.data(),
)
def test_an_interrupted_iteration_continues_with_the_next_item(
    lengths: list[int],
    config: ReadConfig,
    size: int | None,
    workers: int,
    condition: str | None,
    data: st.DataObject,
) -> None:
    reader = filtered(wide_reader(lengths, config, features=IDS), condition)

    def make() -> Any:
        return reader.to_torch(iterable=True, batch_size=size, process=(0, 2))

    with pytest.MonkeyPatch.context() as patch:
        uncut = Workers(make(), workers, patch)
        epochs = [[ids_of(stream) for stream in uncut.iterate(drawn)] for drawn in (5, 6, 7)]
        first = Workers(make(), workers, patch)
        list(map(list, first.iterate(5)))
        heads, states = [], []
        for stream, copy in zip(first.iterate(6), first.copies, strict=True):
            heads.append(ids_of(islice(stream, data.draw(st.integers(0, 8)))))
            states.append(json.loads(json.dumps(copy.state_dict())))
        second = Workers(make(), workers, patch)
        for copy, state in zip(second.copies, states, strict=True):
            copy.load_state_dict(state)
            assert copy.state_dict() == state
        tails = [ids_of(stream) for stream in second.iterate(1)]
        assert [head + tail for head, tail in zip(heads, tails, strict=True)] == epochs[1]
        assert [ids_of(stream) for stream in second.iterate(2)] == epochs[2]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [None, 4])
@pytest.mark.parametrize("cut", [0, 1, 5, 6, 12])
def test_torchdata_resumes_exactly(workers: int, size: int | None, cut: int, tmp_path: Path) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    reader = wide_reader([20, 23], RESHUFFLED, where=tmp_path, features=IDS)

    def loader() -> Any:
        return stateful.StatefulDataLoader(
            reader.to_torch(iterable=True, batch_size=size), batch_size=None if size else 4, num_workers=workers
        )

    uncut = loader()
    epochs = [ids_of(uncut) for _ in range(3)]
    first = loader()
    assert ids_of(first) == epochs[0]
    iteration = iter(first)
    head = ids_of(islice(iteration, cut))
    state = first.state_dict()
    second = loader()
    second.load_state_dict(state)
    if cut == 12:  # an epoch that is over
        assert head == epochs[1]
        assert ids_of(second) in ([], epochs[2])
    else:
        assert head + ids_of(second) == epochs[1]
        assert ids_of(second) == epochs[2]


def test_the_state_contains_a_drawn_seed() -> None:
    files = [40, 30, 20]
    first = wide_reader(files, ReadConfig(shuffle="global"), features=IDS)
    dataset = first.to_torch(iterable=True)
    items = iter(dataset)
    head = ids_of(islice(items, 10))
    again = Reader(first.readable, first.plan, read_config=ReadConfig(shuffle="global"))
    resumed = again.to_torch(iterable=True)
    resumed.load_state_dict(dataset.state_dict())
    rest = ids_of(resumed)
    assert rest == ids_of(items)
    assert sorted(head + rest) == list(range(90))
    assert ids_of(resumed) == ids_of(dataset)


def test_ranks_are_those_of_torch_distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = wide_reader([10], features=IDS)
    dataset = reader.to_torch(iterable=True)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    assert ids_of(dataset) == [5, 6, 7, 8, 9]
    sent = pickle.dumps(dataset)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)
    assert ids_of(pickle.loads(sent)) == [5, 6, 7, 8, 9]  # noqa: S301 (made here)
    assert ids_of(dataset) == list(range(10))
    assert ids_of(reader.reopened(process=(0, 3)).to_torch(iterable=True)) == [0, 1, 2, 3]


@pytest.mark.parametrize("config", [ReadConfig(shuffle="global"), ReadConfig(shuffle_files=True)])
def test_ranks_do_not_draw_a_seed_each(config: ReadConfig) -> None:
    dataset = wide_reader([10], config, features=IDS).to_torch(iterable=True, process=(0, 2))
    with pytest.raises(UsageError) as refused:
        iter(dataset)
    assert str(refused.value) == "2 ranks read a shuffle without a seed, so each would draw a different seed"


def test_a_state_of_something_else_is_refused() -> None:
    dataset = wide_reader([10], features=IDS).to_torch(iterable=True, batch_size=2)
    next(iter(dataset))
    state = dataset.state_dict()
    other = wide_reader([9], features=IDS).to_torch(iterable=True, batch_size=2)
    with pytest.raises(StateMismatchError, match=r"^this state belongs to other records of that name"):
        other.load_state_dict(state)
    with pytest.raises(StateMismatchError) as refused:
        wide_reader([10], features=IDS).to_torch(iterable=True, batch_size=3).load_state_dict(state)
    assert str(refused.value) == "this state was saved with batch_size=2, but this dataset has batch_size=3"
    with pytest.raises(StateMismatchError, match=r"^this is not the state of an iterable dataset for torch(?m:$)"):
        dataset.load_state_dict({"format": "registry.read-state/1"})
    dataset.load_state_dict({**state, "worker": [1, 2]})
    with pytest.raises(StateMismatchError) as refused:
        iter(dataset)
    assert str(refused.value) == "this state was saved by worker 1 of 2, but this is worker 0 of 1"


@pytest.mark.parametrize("is_read_before", [False, True])
def test_the_main_process_has_no_state_of_its_workers(is_read_before: bool, tmp_path: Path) -> None:
    dataset = wide_reader([10, 7], where=tmp_path, features=IDS).to_torch(iterable=True, batch_size=4)
    if is_read_before:
        ids_of(dataset)
    assert dataset.state_dict()["done"] == (5 if is_read_before else 0)
    items = iter(DataLoader(dataset, batch_size=None, num_workers=2))
    next(items)
    with pytest.raises(StateMismatchError) as refused:
        dataset.state_dict()
    assert str(refused.value) == "worker processes read this dataset, so this process does not know their places"
    assert "torchdata.stateful_dataloader.StatefulDataLoader" in refused.value.hint
    list(items)
    dataset.set_epoch(3)
    assert dataset.state_dict()["epoch"] == 3


def test_a_state_before_the_first_item_is_complete_and_an_empty_one_is_refused() -> None:
    reader = wide_reader([10, 7], RESHUFFLED, features=IDS)
    dataset, resumed = (reader.to_torch(iterable=True) for _ in range(2))
    dataset.set_epoch(2)
    resumed.load_state_dict(dataset.state_dict())
    assert ids_of(resumed) == ids_of(dataset)
    with pytest.raises(StateMismatchError, match=r"^this state is empty: it has no position to continue from(?m:$)"):
        dataset.load_state_dict({})


def test_set_epoch_keeps_the_loaded_position_of_that_epoch_and_warns_for_another() -> None:
    reader = wide_reader([10, 7], RESHUFFLED, features=IDS)
    uncut = reader.to_torch(iterable=True)
    epochs = [ids_of(uncut) for _ in range(3)]
    dataset = reader.to_torch(iterable=True)
    dataset.set_epoch(1)
    assert ids_of(islice(dataset, 5)) == epochs[1][:5]
    state = dataset.state_dict()
    resumed = reader.to_torch(iterable=True)
    resumed.load_state_dict(state)
    resumed.set_epoch(1)
    assert ids_of(resumed) == epochs[1][5:]
    resumed.load_state_dict(state)
    with pytest.warns(RegistryWarning, match=r"^set_epoch\(2\) drops the loaded position in epoch 1: "):
        resumed.set_epoch(2)
    assert ids_of(resumed) == epochs[2]


def test_options_without_effect_are_refused() -> None:
    reader = wide_reader([10], ReadConfig(repeat=None), features=IDS)
    with pytest.raises(UsageError, match=r"^batch_size, drop_remainder and process are options of iterable=True(?m:$)"):
        reader.to_torch(batch_size=3)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match=r"^batch_size must be 1 or more, not 0(?m:$)"):
        reader.to_torch(iterable=True, batch_size=0)
    with pytest.raises(UsageError, match=r"^drop_remainder requires batch_size, without which there are no batches"):
        reader.to_torch(iterable=True, drop_remainder=True)
    with pytest.raises(TypeError, match=r"^this iterable has no length: it repeats for ever \(ReadConfig"):
        len(reader.to_torch(iterable=True, batch_size=3))
    with pytest.raises(TypeError, match=r"the loader makes the batches: pass to_torch\(\.\.\., batch_size=N\)"):
        len(DataLoader(wide_reader([10], features=IDS).to_torch(iterable=True), batch_size=4))
    forever = reader.to_torch(iterable=True, batch_size=4, drop_remainder=True)
    assert ids_of(islice(forever, 5)) == [*range(8), *range(8), *range(4)]
