"""Laws of states: an interrupted read that resumes equals an uninterrupted one, for any layout, order and epoch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.reading_samples import FEATURES, readable, reader_of, stored

from registry.errors import StateMismatchError
from registry.features import FeaturesDict, Image, ImageDecoding, Scalar
from registry.features import Sequence as SequenceFeature
from registry.order import ReadConfig
from registry.reading import Reader
from registry.splits import resolve

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=6)
EXPRESSIONS = st.sampled_from(["train", "train[25%:]", "train[:50%]+train[30%:]", "train[7%:93%]"])
CONFIGS = st.one_of(
    st.builds(
        ReadConfig,
        interleave_cycle_length=st.integers(1, 5),
        interleave_block_length=st.integers(1, 20),
        repeat=st.integers(1, 3),
    ),
    st.builds(
        ReadConfig,
        interleave_cycle_length=st.integers(1, 3),
        shuffle_files=st.just(True),
        shuffle_seed=st.integers(0, 2**40),
        shuffle_reshuffle_each_iteration=st.sampled_from([None, True, False]),
        repeat=st.integers(1, 3),
    ),
    st.builds(ReadConfig, shuffle=st.just("global"), seed=st.integers(0, 2**64 - 1), repeat=st.integers(1, 3)),
)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "select": lambda reader: reader.select("age", "id"),
    "fill_missing": lambda reader: reader.fill_missing({"age": 7}),
    "missing_as_none": lambda reader: reader.missing_as_none(),
    "missing_as_tfds": lambda reader: reader.missing_as_tfds(),
    "decode_images": lambda reader: reader.decode_images({"images": ImageDecoding(ratio=2)}),
    "files_as_bytes": lambda reader: reader.files_as_bytes(),
    "with_ids": lambda reader: reader.with_ids(),
    "two": lambda reader: reader.fill_missing({"age": 7}).select("id"),
}
"""Views that do not change the order."""


def take(items: Iterator[Any], count: int) -> list[Any]:
    return list(islice(items, count))


def ids(examples: Sequence[dict[str, Any]]) -> list[int]:
    return [int(example["id"]) for example in examples]


def saved(reader: Any) -> Any:
    return json.loads(json.dumps(reader.state()))


@given(lengths=LENGTHS, expression=EXPRESSIONS, config=CONFIGS, data=st.data())
def test_an_interrupted_read_continues_with_the_next_example(
    lengths: list[int], expression: str, config: ReadConfig, data: st.DataObject
) -> None:
    dataset = stored(lengths)
    uncut = ids(list(reader_of(expression, dataset, config)))
    first = data.draw(st.integers(0, len(uncut)))
    second = data.draw(st.integers(first, len(uncut)))
    reader = reader_of(expression, dataset, config)
    head = ids(take(iter(reader), first))
    again = reader_of(expression, dataset, config, state=saved(reader))
    assert again.state() == reader.state()
    middle = ids(take(iter(again), second - first))
    last = reader_of(expression, dataset, config, state=saved(again))
    assert head + middle + ids(list(last)) == uncut
    next_iteration = reader_of(expression, dataset, config)
    assert len(list(next_iteration)) == len(uncut)
    assert ids(list(last)) == ids(list(next_iteration))


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@given(lengths=LENGTHS, expression=EXPRESSIONS, config=CONFIGS, data=st.data())
def test_a_view_continues_at_the_place_of_its_reader(
    view: Callable[[Any], Any], lengths: list[int], expression: str, config: ReadConfig, data: st.DataObject
) -> None:
    dataset = stored(lengths)
    features = FeaturesDict({**FEATURES, "age": Scalar("int64", optional=True), "images": SequenceFeature(Image())})
    version = readable(dataset.store, [dataset.split], features)
    whole = Reader(version, resolve(expression, {"train": dataset.split}), read_config=config)
    uncut = ids(list(whole.reopened()))
    place = data.draw(st.integers(0, len(uncut)))
    is_filtered = data.draw(st.booleans())
    if is_filtered:
        whole, uncut = whole.where("id >= 5"), [number for number in uncut if number >= 5]
        place = min(place, len(uncut))
    take(iter(whole), place)
    resumed = whole.reopened(state=saved(whole))
    for reader in (resumed, whole) if place < len(uncut) else (resumed,):
        viewed = view(reader)
        assert saved(viewed) == saved(reader)
        assert ids(list(viewed)) == uncut[place:]
        assert [number for batch in view(reader).batches(7) for number in batch["id"].tolist()] == uncut[place:]
        assert [int(number) for (number,) in view(reader).as_supervised("id")] == uncut[place:]
        assert view(reader).drew_seed == reader.drew_seed
    list(resumed)
    list(resumed)  # the rest, and the next iteration
    assert ids(list(view(resumed))) == ids(list(resumed))


def test_a_view_of_a_filter_that_was_not_used_does_not_apply_it() -> None:
    reader = reader_of("train", stored([5, 4])).where("id > 2")
    viewed = reader.missing_as_none().files_as_bytes().select("id").with_ids()
    assert viewed.matches is reader.matches
    assert not reader.matches.is_known
    assert ids(list(viewed)) == [3, 4, 5, 6, 7, 8]


def test_a_view_of_a_shuffle_without_a_seed_has_the_seed_that_was_drawn() -> None:
    reader = reader_of("train", stored([30, 12]), ReadConfig(shuffle="global"))
    uncut = ids(list(reader.reopened()))
    for view in (lambda: reader.select("id"), reader.with_ids, reader.files_as_bytes):
        viewed = view()
        assert viewed.drew_seed
        assert ids(list(viewed)) == uncut


@given(lengths=LENGTHS, config=CONFIGS, size=st.integers(1, 17), drop=st.booleans(), data=st.data())
def test_an_interrupted_read_continues_with_the_next_batch(
    lengths: list[int], config: ReadConfig, size: int, drop: bool, data: st.DataObject
) -> None:
    dataset = stored(lengths)

    def batches(reader: Any) -> Iterator[list[int]]:
        return (batch["id"].tolist() for batch in reader.batches(size, drop_remainder=drop))

    uncut = list(batches(reader_of("train", dataset, config)))
    cut_at = data.draw(st.integers(0, len(uncut)))
    reader = reader_of("train", dataset, config)
    head = take(batches(reader), cut_at)
    rest = list(batches(reader_of("train", dataset, config, state=saved(reader))))
    assert head + rest == uncut
    if not drop:
        assert list(chain.from_iterable(uncut)) == ids(list(reader_of("train", dataset, config)))


@given(lengths=LENGTHS, config=CONFIGS, before=st.integers(1, 5), after=st.integers(1, 5), data=st.data())
def test_any_number_of_processes_continues_after_the_last_example(
    lengths: list[int], config: ReadConfig, before: int, after: int, data: st.DataObject
) -> None:
    dataset = stored(lengths)
    whole = sorted(ids(list(reader_of("train", dataset, config))))
    readers = [reader_of("train", dataset, config, process=(index, before)) for index in range(before)]
    seen = []
    for reader in readers:
        count = data.draw(st.integers(0, len(reader) * (config.repeat or 1)))
        seen += ids(take(iter(reader), count))
    states = [saved(reader) for reader in readers]
    for index in range(after):
        seen += ids(list(reader_of("train", dataset, config, process=(index, after), state=states)))
    assert sorted(seen) == whole


@given(lengths=LENGTHS, config=CONFIGS, count=st.integers(1, 7))
def test_processes_share_every_epoch_without_gap_or_overlap(lengths: list[int], config: ReadConfig, count: int) -> None:
    dataset = stored(lengths)
    readers = [reader_of("train", dataset, config, process=(index, count)) for index in range(count)]
    sizes = [len(reader) for reader in readers]
    assert max(sizes) - min(sizes) <= 1
    together = [number for reader in readers for number in ids(list(reader))]
    assert sorted(together) == sorted(ids(list(reader_of("train", dataset, config))))


@given(lengths=LENGTHS, config=CONFIGS, data=st.data())
def test_an_example_by_its_number_is_the_one_that_iterating_yields(
    lengths: list[int], config: ReadConfig, data: st.DataObject
) -> None:
    dataset = stored(lengths)
    reader = reader_of("train", dataset, config)
    epoch = ids(take(iter(reader), len(reader)))
    numbers = data.draw(st.lists(st.integers(-len(epoch), len(epoch) - 1), max_size=9)) if epoch else []
    assert [int(reader[number]["id"]) for number in numbers] == [epoch[number] for number in numbers]
    assert reader[numbers]["id"].tolist() == [epoch[number] for number in numbers]
    part = slice(
        data.draw(st.integers(-50, 50)), data.draw(st.integers(-50, 50)), data.draw(st.sampled_from([None, 1, 2, -1]))
    )
    assert reader[part]["id"].tolist() == epoch[part]


def test_a_state_of_another_read_is_refused() -> None:
    dataset = stored([20, 20])
    config = ReadConfig(shuffle="global", seed=1)
    state = reader_of("train", dataset, config, published="1.0.0").state()

    def refused(expression: str, other: ReadConfig, **options: Any) -> str:
        with pytest.raises(StateMismatchError) as caught:
            reader_of(expression, dataset, other, **({"published": "1.0.0", "state": state} | options))
        return str(caught.value)

    digest = "(sha256:0f0f0f0f0f0f)"
    expected = f"this state belongs to ids:1.0.0 {digest}, and this reads ids:1.1.0 {digest}"
    assert refused("train", config, published="1.1.0") == expected
    assert refused("train[1:]", config) == "this state belongs to the records train, and this reads train[1:]"
    expected = (
        "this state belongs to another order, and the read config differs (cycle and block length, shuffle, seed, sort)"
    )
    assert refused("train", ReadConfig(shuffle="global", seed=2)) == expected
    assert refused("train", ReadConfig()) == expected
    expected = "this state was saved by process 0 of 1, and this is process 1 of 2"
    assert refused("train", config, process=(1, 2)) == expected
    for damaged in (7, "state", [], {}, state | {"more": 1}, state | {"format": "registry.read-state/2"}):
        assert refused("train", config, state=damaged) == "this is not the state of a reader"
    for field, value in (("left", [[0, [[5, 3]]]]), ("left", [[0, [[0, 41]]]]), ("process", [1, 1]), ("until", -1)):
        assert refused("train", config, state=state | {field: value}) == "this state of a reader is damaged"
    assert refused("train", config, state=[state, state]) == "expected one state from each process of one read"


def test_a_drawn_seed_is_in_the_state() -> None:
    dataset = stored([50])
    config = ReadConfig(shuffle="global")
    reader = reader_of("train", dataset, config)
    head = ids(take(iter(reader), 10))
    again = reader_of("train", dataset, config, state=saved(reader))
    assert again.read_config.seed == reader.read_config.seed
    assert sorted(head + ids(list(again))) == list(range(50))
    assert reader.features == FEATURES
