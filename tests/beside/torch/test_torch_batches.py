"""Examples become batches whose types depend on the schema and the options, never on what is in a batch."""

from __future__ import annotations

import doctest
import functools
import os
import pickle
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import TESTS
from support.framework_samples import FEATURES, negative, plain, stored, wide_reader

import registry
from registry.errors import UsageError
from registry.features import FeaturesDict, Scalar, Sequence, Tensor, Text
from registry.reading import Reader, SupervisedReader

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, Subset  # noqa: E402 (skipped without torch)

from registry.reading.frameworks import torch_batches  # noqa: E402
from registry.torch import Padded, collate  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]

WORDS = FeaturesDict({"id": "int64", "tokens": Sequence(Tensor(shape=(), dtype="int32")), "label": "uint8"})


def words(sizes: list[int]) -> Reader:
    """Examples with as many tokens as ``sizes`` says: 1, 2, 3, ..."""
    return stored(
        [{"id": n, "tokens": list(range(1, size + 1)), "label": n % 2} for n, size in enumerate(sizes)], WORDS
    )


def same(found: Any, expected: Any) -> bool:
    """Whether two batches have the same structure, types, dtypes and values."""
    if type(found) is not type(expected):
        return False
    if isinstance(found, dict):
        return list(found) == list(expected) and all(same(found[name], expected[name]) for name in found)
    if isinstance(found, (list, tuple)):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(found, torch.Tensor):
        return found.dtype == expected.dtype and found.shape == expected.shape and bool(torch.equal(found, expected))
    return bool(found == expected)


def types_in(batch: Any) -> Any:
    """The structure of a batch down to tensors and lists."""
    if isinstance(batch, dict):
        return {name: types_in(inner) for name, inner in batch.items()}
    if isinstance(batch, tuple):
        return (type(batch), *map(types_in, batch))
    return (type(batch), batch.dtype, batch.ndim) if isinstance(batch, torch.Tensor) else type(batch)


@given(st.lists(st.integers(0, 8), min_size=1, max_size=5), st.booleans())
def test_collating_examples_gives_the_batch_that_is_decoded_at_once(places: list[int], is_padded: bool) -> None:
    pad = {"any": 0, "grid": -1, "sound": 0, "mat": 0.5, "boxes/box": 2} if is_padded else None
    dataset = _wide().to_torch(pad=pad)
    batch = dataset.collate([dataset[place] for place in places])
    assert same(batch, dataset[places])
    assert same(batch, dataset.collate(dataset.__getitems__(places)))


@given(st.lists(st.integers(0, 8), min_size=1, max_size=5))
def test_the_types_of_a_batch_do_not_depend_on_its_examples(places: list[int]) -> None:
    dataset = _wide().to_torch(pad={"any": 0, "grid": -1})
    assert types_in(dataset[places]) == types_in(dataset[[0]])
    assert types_in(dataset[0:9])["image"] == (torch.Tensor, torch.uint8, 4)
    assert types_in(dataset[0:1])["picture"] is list


@functools.cache
def _wide() -> Reader:
    return wide_reader([6, 3])


def test_every_dtype_is_stacked_in_workers_too(tmp_path: Path) -> None:
    names = ["half", "flag", "u8", "u16", "u32", "u64", "brain", "zip", "key"]
    dataset = wide_reader([6, 3], where=tmp_path).select(names).to_torch()
    for workers in (0, 2):
        (batch,) = DataLoader(dataset, batch_size=9, num_workers=workers, collate_fn=dataset.collate)
        assert {name: batch[name].dtype for name in names[:-1]} == {
            name: getattr(torch, str(FEATURES[name].dtype)) for name in names[:-1]
        }
        assert batch["u64"].tolist() == [2**64 - 1 - n for n in range(9)]
        assert batch["key"][:2] == [b"\xff\x00\x00", b"\xff\x00\x01"]


def test_varying_shapes_are_lists_unless_they_are_padded() -> None:
    reader = words([3, 0, 2, 2])
    dataset = reader.to_torch()
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):  # torch's own collation
        next(iter(DataLoader(dataset, batch_size=4)))
    (batch,) = DataLoader(dataset, batch_size=4, collate_fn=dataset.collate)
    assert [one.tolist() for one in batch["tokens"]] == [[1, 2, 3], [], [1, 2], [1, 2]]
    assert type(dataset[2:4]["tokens"]) is list
    dataset = reader.to_torch(pad={"tokens": -1})
    (batch,) = DataLoader(dataset, batch_size=4, collate_fn=dataset.collate)
    values, lengths = batch["tokens"]
    assert (values.dtype, values.tolist()) == (torch.int32, [[1, 2, 3], [-1, -1, -1], [1, 2, -1], [1, 2, -1]])
    assert (lengths.dtype, lengths.tolist()) == (torch.int64, [3, 0, 2, 2])
    assert batch["tokens"].mask.tolist() == (values != -1).tolist()
    batches = [*reader.to_torch(iterable=True, batch_size=3, pad={"tokens": -1})]
    assert [type(one["tokens"]) for one in batches] == [Padded, Padded]
    assert batches[1]["tokens"].values.tolist() == [[1, 2]]


def test_padding_of_several_dimensions_has_the_shape_of_each_value() -> None:
    values, shapes = wide_reader([4]).select("mat").to_torch(pad={"mat": 9})[:]["mat"]
    assert (values.shape, shapes.tolist()) == ((4, 2, 2), [[2, 0], [2, 1], [2, 2], [2, 0]])
    assert values[1].tolist() == [[1, 9], [1, 9]]
    mask = Padded(values, shapes).mask
    assert (mask.shape, mask.sum().item(), mask[1].tolist()) == ((4, 2, 2), 6, [[True, False], [True, False]])


def test_supervised_examples_are_pairs() -> None:
    reader = words([3, 1])
    pairs = reader.as_supervised("tokens", "label")
    assert isinstance(pairs, SupervisedReader)
    dataset = pairs.to_torch(pad={"tokens": 0})
    assert plain(tuple(map(torch.Tensor.tolist, dataset[1]))) == [[1], 1]
    (batch,) = DataLoader(dataset, batch_size=2, collate_fn=dataset.collate)
    (tokens, lengths), labels = batch
    assert (tokens.tolist(), lengths.tolist(), labels.tolist()) == ([[1, 2, 3], [1, 0, 0]], [3, 1], [0, 1])
    assert same(dataset[[0, 1]], batch)
    (found,) = pairs.to_torch(iterable=True, batch_size=2, pad={"tokens": 0})
    assert same(found, batch)
    nested = reader.as_supervised({"x": "tokens", "n": "id"}, "label").to_torch(pad={"tokens": 0})
    assert same(nested.collate([nested[0], nested[1]]), nested[:])
    assert type(nested[:][0]["x"]) is Padded


def test_what_load_returns_goes_to_torch(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", create=True, data_dir=tmp_path / "data") as catalog:
        catalog.build("digits")
        dataset = registry.load("digits", split="train[:50]", as_supervised=True, catalog=catalog).to_torch()
        (images, labels), *_ = DataLoader(dataset, batch_size=32)  # torch's own collation, too
        assert (images.shape, labels.dtype, len(dataset)) == ((32, 8, 8, 1), torch.int64, 50)
        batches = registry.load("digits", split="train[:50]", as_supervised=True, batch_size=20, catalog=catalog)
        sizes = [len(labels) for _, labels in DataLoader(batches.to_torch(), batch_size=None)]
        assert sizes == [20, 20, 10]
        assert len(batches.to_torch(drop_remainder=True)) == 2


def resized(pair: tuple[Any, Any]) -> tuple[Any, Any]:
    return torch.zeros(2, 2), pair[1]


@pytest.mark.parametrize("start", [None, "fork", "spawn"])
@pytest.mark.parametrize("iterable", [False, True])
def test_a_transform_runs_in_the_worker_before_collation(start: str | None, iterable: bool, tmp_path: Path) -> None:
    reader = wide_reader([5, 4], where=tmp_path, features=FeaturesDict({"id": "int64"}))
    dataset = reader.to_torch(iterable=True, transform=negative) if iterable else reader.to_torch(transform=negative)
    workers = {"num_workers": 2, "multiprocessing_context": start} if start else {}
    batches = list(DataLoader(dataset, batch_size=4, collate_fn=dataset.collate, **workers))
    assert sorted(chain.from_iterable(batch["id"].tolist() for batch in batches)) == list(range(-8, 1))
    assert (batches[0]["text"][0], batches[0]["twice"][1].dtype) == ("number 0", torch.float64)


def test_a_transform_makes_one_shape_of_many() -> None:
    reader = wide_reader([6])
    dataset = reader.as_supervised("picture", "label").to_torch(transform=resized)
    images, labels = dataset.collate([dataset[0], dataset[1]])
    assert (images.shape, labels.tolist()) == ((2, 2, 2), [0, 1])
    (batch,) = reader.as_supervised("picture", "label").to_torch(iterable=True, batch_size=6, transform=resized)
    assert (batch[0].shape, batch[1].tolist()) == ((6, 2, 2), [0, 1, 0, 1, 0, 1])


def test_an_iterable_with_a_transform_resumes_after_the_last_batch() -> None:
    reader = wide_reader([9], features=FeaturesDict({"id": "int64"}))
    dataset = reader.to_torch(iterable=True, batch_size=2, transform=negative)
    iteration = iter(dataset)
    seen = [next(iteration)["id"].tolist() for _ in range(2)]
    resumed = reader.to_torch(iterable=True, batch_size=2, transform=negative)
    resumed.load_state_dict(dataset.state_dict())
    assert seen + [batch["id"].tolist() for batch in resumed] == [[0, -1], [-2, -3], [-4, -5], [-6, -7], [-8]]


def test_a_transform_that_cannot_be_sent_to_a_worker_is_refused_with_what_to_do() -> None:
    reader = words([1])
    for dataset in (reader.to_torch(transform=lambda one: one), reader.to_torch(iterable=True, transform=lambda x: x)):
        with pytest.raises(UsageError) as refused:
            pickle.dumps(dataset)
        assert refused.value.message.startswith(
            "transform test_a_transform_that_cannot_be_sent_to_a_worker_is_refused_with_what_to_d"
        )
        assert refused.value.hint == (
            "Define it with def at the top level of a module, not as a lambda or inside a function. "
            'Or fork the workers: DataLoader(..., multiprocessing_context="fork").'
        )
    assert pickle.loads(pickle.dumps(reader.to_torch(transform=negative)))[0]["id"] == 0  # noqa: S301 (made here)


def test_collate_takes_any_examples() -> None:
    batch = collate([{"a": 1, "b": "x", "c": (True, None)}, {"a": 2, "b": "y", "c": (False, 5)}], pad={"c/1": None})
    assert same(batch, {"a": torch.tensor([1, 2]), "b": ["x", "y"], "c": (torch.tensor([True, False]), [None, 5])})
    assert same(collate([np.float32(1), np.float32(2)]), torch.tensor([1.0, 2.0]))
    assert collate([]) == []
    dataset = words([1, 2, 3]).to_torch(pad={"tokens": 0})
    loader = DataLoader(Subset(dataset, [2, 0]), batch_size=2, collate_fn=dataset.collate)
    assert next(iter(loader))["tokens"].lengths.tolist() == [3, 1]
    loader = DataLoader(
        words([1, 2]).to_torch(), batch_size=2, collate_fn=functools.partial(collate, pad={"tokens": 0})
    )
    assert next(iter(loader))["tokens"].values.tolist() == [[1, 0], [1, 2]]


ONE, TWO = {"x": torch.zeros(1)}, {"x": torch.zeros(2)}


@pytest.mark.parametrize(
    ("examples", "pad", "message", "hint"),
    [
        (
            [ONE, TWO], {}, "'x' differs in shape within a batch: (1,) and (2,)",
            "Pad it, pad={'x': 0}, or keep a list of tensors, pad={'x': None}. "
            "Or give all values one shape in transform=.",
        ),
        (
            [ONE, {"x": torch.zeros(1, dtype=torch.int64)}], {},
            "'x' differs in dtype within a batch: torch.float32 and torch.int64",
            "Pad it, pad={'x': 0}, or keep a list of tensors, pad={'x': None}. "
            "Or give all values one dtype in transform=.",
        ),
        (
            [{"tokens": one["x"]} for one in (ONE, TWO)], {"token": 0},
            "'tokens' differs in shape within a batch: (1,) and (2,); "
            "and pad names 'token', which the examples do not have",
            "Did you mean 'tokens'? They have: tokens. "
            "Pad it, pad={'tokens': 0}, or keep a list of tensors, pad={'tokens': None}. "
            "Or give all values one shape in transform=.",
        ),
        (
            [{"x": 5}, {"x": None}], {}, "'x' of example 1 of this batch is None, which a tensor cannot represent",
            "Choose a value, reader.fill_missing({'x': 0}), or keep a list, pad={'x': None}.",
        ),
        (
            [ONE, {"y": 1}], {}, "an example: the keys differ within a batch",
            "Return the same structure for every example from transform=.",
        ),
        (
            [(1, 2), (1,)], {}, "an example: the lengths of tuples differ within a batch",
            "Return the same structure for every example from transform=.",
        ),
        (
            [ONE], {"y": 0}, "pad names 'y', which the examples do not have", "They have: x.",
        ),
        (
            [{"x": "a"}], {"x": 0}, "'x' cannot be padded: it is not a tensor in every example",
            "Keep a list: pad={'x': None}.",
        ),
        (
            [{"x": 1}], {"x": 0}, "'x' cannot be padded: it has no dimension", "Keep a list: pad={'x': None}.",
        ),
        (
            [{"x": torch.zeros(1, dtype=torch.uint8)}], {"x": -1}, "'x' is uint8 and cannot be padded with -1",
            "Pad with a number of that dtype, e.g. pad={'x': 0}.",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_merged_is_named(examples: Any, pad: Any, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        collate(examples, pad=pad)
    assert (refused.value.message, refused.value.hint) == (message, hint)


OPTIONAL = FeaturesDict({"age": Scalar(dtype="int32", optional=True), "name": Text(), "ids": Sequence("int64")})


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"pad": {"idz": 0}}, "no feature 'idz' to pad", "Did you mean 'ids'? There are: age, name, ids."),
        (
            {"pad": {"age": 0}}, "feature 'age' cannot be padded: its value may be None",
            "Choose a value before: reader.fill_missing({'age': 0}).",
        ),
        (
            {"pad": {"name": 0}}, "feature 'name' cannot be padded: its values are not numbers",
            "Leave it out of pad: a batch has a list of its values.",
        ),
        ({"pad": 0}, "pad must be a dict of feature names and numbers, not 0", 'Write e.g. pad={"tokens": 0}.'),
        ({"transform": "flip"}, "transform must be a function of one example, not 'flip'", None),
    ],
)  # fmt: skip
def test_wrong_options_are_refused_at_once(options: Any, message: str, hint: str | None) -> None:
    reader = stored([{"age": None, "name": "a", "ids": [1]}], OPTIONAL)
    with pytest.raises(UsageError) as refused:
        reader.to_torch(**options)
    assert (refused.value.message, refused.value.hint) == (message, hint)


RANK = """
import sys
from pathlib import Path

import torch.distributed as dist
from support.framework_samples import wide_reader
from registry.features import FeaturesDict
from registry.order import ReadConfig
from torch.utils.data import DataLoader

if __name__ == "__main__":
    where, rank = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("gloo", init_method=f"file://{where}/meeting", rank=rank, world_size=2)
    config = ReadConfig(shuffle="global", seed=3)
    reader = wide_reader([30, 11], config, where=Path(where), features=FeaturesDict({"id": "int64"}))
    dataset = reader.to_torch(iterable=True, batch_size=4)
    loader = DataLoader(dataset, batch_size=None, num_workers=2)
    for _ in range(2):
        mine = [int(number) for batch in loader for number in batch["id"]]
        shares = [None, None]
        dist.all_gather_object(shares, mine)
        if rank == 0:
            print([len(share) for share in shares], sorted(shares[0] + shares[1]) == list(range(41)))
    dist.destroy_process_group()
"""


def test_two_ranks_of_torch_distributed_read_every_example_once(tmp_path: Path) -> None:
    wide_reader([30, 11], where=tmp_path, features=FeaturesDict({"id": "int64"}))
    (tmp_path / "rank.py").write_text(RANK)
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(tmp_path / "rank.py"), str(tmp_path)]
    ranks = [
        subprocess.Popen(
            [*command, str(rank)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        for rank in range(2)
    ]
    printed = [rank.communicate(timeout=300) for rank in ranks]
    assert printed[0][0] == "[21, 20] True\n[21, 20] True\n", printed


def test_the_examples_in_the_docstrings_are_true() -> None:
    import registry.reading.frameworks.torch as torch_datasets

    for module in (torch_batches, torch_datasets, registry.torch):
        assert doctest.testmod(module).failed == 0
    assert doctest.testmod(torch_batches).attempted > 3
