"""A version reads the same wherever it was found: in a catalog now or at a moment, in a pin, or in a folder."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from support.prepared_samples import animals, prepare

import registry
from registry.errors import StateMismatchError, UsageError
from registry.prepared import read_prepared
from registry.reading import ReadableVersion, Reader, SplitSource, readable_folder
from registry.storage import open_store


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Catalog]:
    """animals 1.0.0: 60 records of train in 3 shards, 20 of test in 2."""
    folder = tmp_path_factory.mktemp("published")
    with registry.connect(folder / "catalog.db") as opened:
        prepare(folder / "datasets/animals/1.0.0", splits={"train": animals(60), "test": animals(20)}, shards=3)
        opened.publish(folder / "datasets/animals/1.0.0")
        yield opened


@pytest.fixture(scope="module")
def found(catalog: registry.Catalog, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ReadableVersion]:
    """The same version, found in each way."""
    path = tmp_path_factory.mktemp("paper") / "dataset.lock.yaml"
    dataset = catalog.dataset("animals")
    dataset.pin("train", "test").save(path)
    pins = registry.load_pin(path, data_dir=catalog.data_dir)
    with registry.locked(pins):
        by_pins = catalog.dataset("animals")
    store = open_store(f"{catalog.data_dir}/animals/1.0.0")
    return {
        "now": dataset.readable,
        "at a moment": catalog.dataset("animals", at=datetime.now(UTC)).readable,
        "by a pin": pins["train"].readable,
        "by pins": by_pins.readable,
        "in a folder": readable_folder(store, read_prepared(store)),
    }


def ages(reader: Reader) -> list[int]:
    return [int(example["age"]) for example in reader]


def plan_of(readable: ReadableVersion, expression: str) -> registry.Plan:
    return registry.resolve(expression, readable.facts.layout)


def test_a_version_gives_the_same_records_wherever_it_was_found(found: dict[str, ReadableVersion]) -> None:
    read = {how: ages(Reader(one, plan_of(one, "train[10%:60%]"))) for how, one in found.items()}
    assert len(read["now"]) == 30
    assert all(one == read["now"] for one in read.values())
    orders = {how: one.default_order.interleave_cycle_length for how, one in found.items()}
    assert set(orders.values()) == {16}


def test_a_state_belongs_to_a_version_however_it_was_found(found: dict[str, ReadableVersion]) -> None:
    now, pinned = (Reader(found[how], plan_of(found[how], "train")) for how in ("now", "by a pin"))
    iteration = iter(now)
    head = [int(next(iteration)["age"]) for _ in range(7)]
    went_on = Reader(found["by a pin"], plan_of(found["by a pin"], "train"), state=now.state())
    assert head + ages(went_on) == ages(pinned)
    assert found["now"].identity == found["at a moment"].identity == found["by pins"].identity
    with pytest.raises(StateMismatchError):  # there are no recorded digests for a folder that was never published
        Reader(found["in a folder"], plan_of(found["in a folder"], "train"), state=now.state())


def test_only_a_version_in_a_folder_has_no_proof_of_its_files(
    found: dict[str, ReadableVersion],
) -> None:
    assert {how for how, one in found.items() if one.proof is None} == {"in a folder"}
    assert found["in a folder"].identity == ""


def test_a_pickled_reader_has_the_promises_of_its_splits(found: dict[str, ReadableVersion]) -> None:
    readable = found["now"]
    reader = Reader(readable, plan_of(readable, "test"))
    sent: Any = pickle.loads(pickle.dumps(reader))  # noqa: S301 (made in this line)
    assert ages(sent) == ages(reader)
    proof = sent.readable.proof
    assert proof.promises.find(readable.facts.split("test").filename(0)) is not None
    assert proof.promises.find(readable.facts.split("train").filename(0)) is None


def test_everything_with_slices_implements_the_protocol(catalog: registry.Catalog) -> None:
    dataset = catalog.dataset("animals")
    pins = dataset.pin({"few": "train[:5]"})
    sources: list[SplitSource] = [dataset, pins["few"], pins, registry.builder("animals", catalog=catalog)]
    assert all(isinstance(source, SplitSource) for source in sources)
    slices = [dataset.slice_of("train[:5]"), pins["few"].slice_of(), pins.slice_of("train[:5]")]
    assert [ages(Reader(one.readable, one.plan)) for one in slices] == [ages(dataset.read("train[:5]"))] * 3
    with pytest.raises(UsageError) as caught:
        dataset.slice_of()
    assert (caught.value.message, caught.value.hint) == (
        "missing split expression",
        "Name the records of animals:1.0.0, e.g. train[:80%]. It has the splits train, test.",
    )
    with pytest.raises(UsageError, match=r"^the pin 'few' contains train\[:5\], not 'train'(?m:$)"):
        pins["few"].slice_of("train")
