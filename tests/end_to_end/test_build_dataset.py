"""Builds staged folders from builder classes: their content, their order, and the files left after a failure."""

from __future__ import annotations

import hashlib
import itertools
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import TESTS, warm_python
from support.golden import check_errors

import registry
from registry.building import BuilderConfig, DatasetBuilder, StagedBuild, build_dataset
from registry.building.keys import hash_key
from registry.engines import choice
from registry.errors import BuildError, DuplicateKeyError, FeatureError, UsageError
from registry.features import ClassLabel, FeaturesDict, Image, Scalar, Text, codec_of
from registry.prepared import read_prepared
from registry.publishing.fingerprint import StoredSplits, fingerprint_splits
from registry.storage import open_store
from registry.tfrecord import read_records, walk_file

GOLDEN = Path(__file__).with_name("golden")


class Squares(DatasetBuilder):
    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict({"number": Scalar(np.int64), "square": Scalar(np.int64)})

    def splits(self) -> Mapping[str, Any]:
        return {"train": ((n, {"number": n, "square": n * n}) for n in range(100))}


class Words(DatasetBuilder):
    """Everything an author may say, and splits from a generator, a function and a list."""

    VERSION = "2.1.0"
    SUPPORTED_VERSIONS = ("2.0.0",)
    RELEASE_NOTES = {"2.1.0": "More words."}
    BUILDER_CONFIGS = (BuilderConfig(name="en", description="English", tags=("text",)),)
    DESCRIPTION = "Words."
    HOMEPAGE = "https://example.org/words"
    LICENSE = "CC0"
    CITATION = "@misc{words}"
    SUPERVISED_KEYS = ("word", "label")
    NUM_SHARDS = {"train": 4}

    def features(self) -> FeaturesDict:
        return FeaturesDict({"word": Text(), "label": ClassLabel(names=["odd", "even"])})

    def splits(self) -> Mapping[str, Any]:
        return {"train": self.generate(1000), "validation": lambda: self.generate(30), "test": list(self.generate(3))}

    def generate(self, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
        for number in range(count):
            yield f"word_{number}", {"word": f"word {number} of {self.version}", "label": ("even", "odd")[number % 2]}


def builder_of(examples: Any, *, features: FeaturesDict | None = None, **attributes: Any) -> DatasetBuilder:
    """A builder of one split ``train`` with the feature ``number``."""
    schema = features or FeaturesDict({"number": Scalar(np.int64)})
    methods = {"features": lambda _: schema, "splits": lambda _: {"train": examples}}
    return type("Made", (DatasetBuilder,), {"VERSION": "1.0.0", **methods, **attributes})()


def numbers(build: StagedBuild, split: str = "train") -> list[int]:
    """The feature ``number`` of every stored example, in stored order."""
    (stored,) = (stored for stored in build.prepared.splits if stored.name == split)
    records = (record for name in stored.filenames for record in read_records(build.staged.store, name))
    return [int(codec_of(build.prepared.features).decode(record)["number"]) for record in records]


def digests(folder: Path) -> dict[str, str]:
    """sha256 of every file that a build leaves, by its name in the version folder."""
    names = open_store(folder).list()
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def test_ten_lines_make_a_dataset(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with build_dataset(Squares(), store) as build:
        assert build.staged.final == "squares/1.0.0"
        assert str(build.prepared.reference) == "squares:1.0.0"
        assert numbers(build) == sorted(range(100), key=lambda number: hash_key("train", number))
        build.staged.commit()
    assert store.list() == [
        "squares/1.0.0/dataset_info.json",
        "squares/1.0.0/features.json",
        "squares/1.0.0/squares-train.tfrecord-00000-of-00001",
    ]
    assert read_prepared(store.child("squares/1.0.0")) == build.prepared


def test_what_the_author_says_is_in_the_folder(tmp_path: Path) -> None:
    with build_dataset(Words(), open_store(tmp_path)) as build:
        build.staged.commit()
    prepared = read_prepared(open_store(tmp_path / "words" / "en" / "2.1.0"))
    assert prepared == build.prepared
    assert [(split.name, list(split.shard_lengths)) for split in prepared.splits] == [
        ("train", [250, 250, 250, 250]),
        ("validation", [30]),
        ("test", [3]),
    ]
    assert prepared.metadata == Words().metadata
    assert prepared.metadata.config_tags == ("text",)
    assert prepared.features.labels() == {"label": ["odd", "even"]}


def test_shards_are_described_as_they_were_written(tmp_path: Path) -> None:
    with build_dataset(Words(), open_store(tmp_path)) as build:
        for split in build.prepared.splits:
            facts = [walk_file(build.staged.store, name) for name in split.filenames]
            for index, (shard, fact) in enumerate(zip(build.shards[split.name], facts, strict=True)):
                assert (shard.index, shard.first_example) == (index, split.shard_lengths.start(index))
                assert (shard.num_examples, shard.num_bytes) == (fact.num_records, fact.num_bytes)
                assert shard.sha256 == fact.sha256
            assert split.num_bytes == sum(fact.num_payload_bytes for fact in facts)


def test_fingerprints_are_those_of_the_written_files(tmp_path: Path) -> None:
    with build_dataset(Words(), open_store(tmp_path), budget_bytes=10_000) as build:
        stored = StoredSplits(build.staged.store, build.prepared.splits, build.prepared.features)
        assert dict(build.folded.fingerprints) == fingerprint_splits(stored).folded.fingerprints


def test_fingerprints_that_workers_compute_are_the_same(tmp_path: Path) -> None:
    features = FeaturesDict({"number": Scalar(np.int64), "text": Text()})
    examples = [(number, {"number": number, "text": "x" * (number % 900)}) for number in range(7000)]
    found = []
    for processes in (1, 2):
        builder = builder_of(examples, features=features, NUM_SHARDS=3)
        with build_dataset(builder, open_store(tmp_path), processes=processes) as build:
            found.append((build.shards, build.folded.fingerprints))
    assert found[0] == found[1]
    assert found[0][1].keys() == {"train"}


@pytest.mark.parametrize("name", ["numbers", "images"])
def test_workers_write_the_same_runs_and_shards(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_TRIAL_SECONDS", 0.0)
    monkeypatch.setattr(choice, "_SLOW_SECONDS", 0.0)
    features: Any = {"numbers": Scalar(np.int64), "images": Image(shape=(2, 2, 1))}[name]
    values = {"numbers": int, "images": lambda number: np.full((2, 2, 1), number % 256, np.uint8)}[name]
    found = []
    for processes, budget_bytes in ((1, 10**9), (2, 100_000), (3, 10_000), (None, 50_000)):
        examples = ((number, {"value": values(number)}) for number in range(4000))
        builder = builder_of(examples, features=FeaturesDict({"value": features}), NUM_SHARDS=5)
        with build_dataset(builder, open_store(tmp_path), processes=processes, budget_bytes=budget_bytes) as build:
            found.append((build.shards, build.folded.fingerprints))
    assert found[0] == found[1] == found[2] == found[3]
    assert [shard.num_examples for shard in found[0][0]["train"]] == [800] * 5


@pytest.mark.parametrize("num_shards", [1, 3])
def test_workers_find_a_key_that_is_used_in_two_runs(tmp_path: Path, num_shards: int) -> None:
    examples = [(number % 3999, {"number": number}) for number in range(4000)]
    with pytest.raises(DuplicateKeyError, match=r"^split 'train': the key 0 is used twice \("):
        build_dataset(builder_of(examples), open_store(tmp_path), processes=2, budget_bytes=1000, num_shards=num_shards)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(("size", "names"), [(2, ["train"]), (150, [])])
def test_fingerprints_of_small_images_only_are_computed_while_they_are_written(
    size: int, names: list[str], tmp_path: Path
) -> None:
    """A leaf of large ones would take too much memory to send: processes that read the files compute theirs."""
    features = FeaturesDict({"image": Image(shape=(size, size, 1))})
    examples = [(1, {"image": np.random.default_rng(0).integers(0, 256, (size, size, 1), np.uint8)})]
    with build_dataset(builder_of(examples, features=features), open_store(tmp_path)) as build:
        assert list(build.folded.fingerprints) == names


def test_the_author_sees_the_version_that_is_built(tmp_path: Path) -> None:
    with build_dataset(Words.pick("words:2.0.0"), open_store(tmp_path)) as build:
        record = next(read_records(build.staged.store, build.prepared.splits[0].filename(0)))
    assert bytes(codec_of(build.prepared.features).decode(record)["word"]).endswith(b" of 2.0.0")


def test_bytes_depend_on_nothing_but_the_builder(tmp_path: Path) -> None:
    script = (
        "import sys; from registry.building import build_dataset, load_builder\n"
        "from registry.storage import open_store\n"
        "processes, budget, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]\n"
        "builder = load_builder('end_to_end.test_build_dataset:Words')()\n"
        "with build_dataset(builder, open_store(folder), processes=processes, budget_bytes=budget) as build:\n"
        "    build.staged.commit()\n"
    )
    found = []
    for seed, processes, budget in (("0", "1", "100000000"), ("1", "2", "5000"), ("77", "3", "1")):
        folder = tmp_path / seed
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(TESTS), "PATH": "", "LC_ALL": "C"}
        subprocess.run(
            [sys.executable, "-c", script, processes, budget, str(folder)], check=True, timeout=600, env=environment
        )
        found.append(digests(folder / "words" / "en" / "2.1.0"))
    assert len(found[0]) == 9
    assert found[0] == found[1] == found[2]


def test_the_order_of_generation_does_not_matter(tmp_path: Path) -> None:
    def build(keys: Any, name: str) -> dict[str, str]:
        builder = builder_of([(key, {"number": key}) for key in keys])
        with build_dataset(builder, open_store(tmp_path / name)) as built:
            built.staged.commit()
        return digests(tmp_path / name / "made" / "1.0.0")

    assert build(range(500), "up") == build(reversed(range(500)), "down")


@pytest.mark.parametrize("budget_bytes", [10**8, 1])
def test_without_shuffling_numbers_order_and_other_keys_keep_the_order_of_generation(
    tmp_path: Path, budget_bytes: int
) -> None:
    rows = [(key, {"number": key}) for key in (30, -2, 500, 4)]
    names = [(f"{key:x}", {"number": key}) for key in (30, 2, 500, 4)]
    for examples, expected in ((rows, [-2, 4, 30, 500]), (names, [30, 2, 500, 4])):
        builder = builder_of(examples, DISABLE_SHUFFLING=True)
        with build_dataset(builder, open_store(tmp_path), budget_bytes=budget_bytes) as build:
            assert numbers(build) == expected
            assert build.prepared.disable_shuffling


def test_a_store_in_memory_takes_a_build(tmp_path: Path) -> None:
    with build_dataset(Squares(), open_store("memory://building"), budget_bytes=100) as build:
        assert sorted(numbers(build)) == list(range(100))


@pytest.mark.parametrize(
    ("num_shards", "lengths"), [(3, [33, 34, 33]), ({"train": 2}, [50, 50]), ({}, [100]), (None, [100])]
)
def test_the_number_of_shards_can_be_chosen(tmp_path: Path, num_shards: Any, lengths: list[int]) -> None:
    with build_dataset(Squares(), open_store(tmp_path), num_shards=num_shards) as build:
        assert list(build.prepared.splits[0].shard_lengths) == lengths


def test_progress_counts_each_split_as_it_is_encoded_and_written(tmp_path: Path) -> None:
    seen: list[registry.Progress] = []
    with build_dataset(Words(), open_store(tmp_path), progress=seen.append):
        pass
    phases = list(dict.fromkeys((one.subject, one.stage, one.total) for one in seen))
    assert phases[:3] == [("train", "encoding", None), ("train", "writing", 1000), ("validation", "encoding", None)]
    assert seen[0].done == 0
    done = [[one.done for one in seen if (one.subject, one.stage) == (split, stage)] for split, stage, _ in phases]
    assert [numbers[-1] for numbers in done] == [1000, 1000, 30, 30, 3, 3]
    assert all(numbers == sorted(numbers) for numbers in done)


def broken_generator() -> Iterator[Any]:
    yield 0, {"number": 0}
    yield 1, {"number": 1}
    raise ValueError("no more")


def mixed(*keys: Any) -> list[Any]:
    return [(key, {"number": 0}) for key in keys]


FAULTS: list[Callable[[], DatasetBuilder]] = [
    lambda: builder_of(mixed("a", "b", "a")),
    lambda: builder_of(mixed(1, 2, "1")),
    lambda: builder_of(mixed("a", "b", "a"), DISABLE_SHUFFLING=True),
    lambda: builder_of(mixed(3, 3), DISABLE_SHUFFLING=True),
    lambda: builder_of(mixed(3, "4"), DISABLE_SHUFFLING=True),
    lambda: builder_of([]),
    lambda: builder_of(mixed(1, 2), NUM_SHARDS=3),
    lambda: builder_of(mixed(1), NUM_SHARDS={"tran": 3}),
    lambda: builder_of(broken_generator),
    lambda: builder_of(7),
    lambda: builder_of([{"number": 1}]),
    lambda: builder_of(mixed(1.5)),
    lambda: builder_of([("a", {"number": 1}), ("b", {"number": "x"})]),
    lambda: builder_of(mixed(1), SUPERVISED_KEYS=("number", "label")),
    lambda: builder_of(mixed(1), features=lambda _: {"number": np.int64}),
    lambda: builder_of(mixed(1), splits=lambda _: {}),
    lambda: builder_of(mixed(1), splits=lambda _: []),
    lambda: builder_of(mixed(1), splits=lambda _: 1 / 0),
    lambda: builder_of(mixed(1), splits=lambda _: {"all": mixed(1)}),
]


@pytest.mark.parametrize("processes", [None, 2])
def test_a_fault_is_named_and_leaves_no_files(tmp_path: Path, processes: int | None) -> None:
    def build(make: Callable[[], DatasetBuilder]) -> None:
        build_dataset(make(), open_store(tmp_path), processes=processes)

    check_errors(
        GOLDEN / "build_dataset" / "a_fault_is_named_and_leaves_no_files.txt",
        (partial(build, make) for make in FAULTS),
        folder=tmp_path,
    )
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_authors_own_error_is_the_cause(tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        build_dataset(builder_of(broken_generator), open_store(tmp_path))
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_authors_open_files_are_closed_when_a_build_fails(tmp_path: Path) -> None:
    closed = []

    def examples() -> Iterator[Any]:
        try:
            for number in itertools.count():
                yield number, {"number": number if number < 10 else "x"}
        finally:
            closed.append(True)

    with pytest.raises(FeatureError):
        build_dataset(builder_of(examples), open_store(tmp_path))
    assert closed == [True]


def test_ctrl_c_raises_keyboard_interrupt_and_leaves_no_files(tmp_path: Path) -> None:
    def examples() -> Iterator[Any]:
        yield 1, {"number": 1}
        signal.raise_signal(signal.SIGINT)
        yield 2, {"number": 2}

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            build_dataset(builder_of(examples), open_store(tmp_path))
    finally:
        signal.signal(signal.SIGINT, before)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_build_that_is_left_uncommitted_is_discarded(tmp_path: Path) -> None:
    with build_dataset(Squares(), open_store(tmp_path)):
        pass
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_a_killed_build_left_is_cleared_by_the_next(tmp_path: Path) -> None:
    script = (
        "import os, sys; from registry.building import build_dataset; from registry.storage import open_store\n"
        "from end_to_end.test_build_dataset import builder_of\n"
        "def examples():\n"
        "    yield 1, {'number': 1}\n"
        "    os.kill(os.getpid(), 9)\n"
        "build_dataset(builder_of(examples), open_store(sys.argv[1]))\n"
    )
    environment = {"PYTHONPATH": str(TESTS)}
    done = warm_python.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=600, env=environment)
    assert done.returncode == -signal.SIGKILL
    assert len(list((tmp_path / "made").glob("incomplete.*"))) == 1
    with build_dataset(builder_of(mixed(1)), open_store(tmp_path)) as build:
        build.staged.commit()
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["1.0.0"]


@pytest.mark.parametrize(
    ("budget_bytes", "processes"),
    [(10**9, 1), (200_000, 1), (10**9, 2)],
    ids=["writing shards", "sorting", "sending examples"],
)
def test_a_disk_that_takes_no_more_is_a_storage_error(tmp_path: Path, budget_bytes: int, processes: int) -> None:
    script = (
        "import resource, sys; from registry.building import build_dataset; from registry.errors import StorageError\n"
        "from registry.storage import open_store; from end_to_end.test_build_dataset import builder_of\n"
        "from registry.features import FeaturesDict, Text\n"
        "examples = [(n, {'text': 'x' * 1000}) for n in range(2000)]\n"
        "builder = builder_of(examples, features=FeaturesDict({'text': Text()}))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # every file, as a full disk is for all\n"
        "options = {'budget_bytes': int(sys.argv[2]), 'processes': int(sys.argv[3])}\n"
        "try: build_dataset(builder, open_store(sys.argv[1]), **options)\n"
        "except StorageError as error: print(type(error).__mro__, error)\n"
    )
    done = warm_python.run(
        [sys.executable, "-c", script, str(tmp_path), str(budget_bytes), str(processes)],
        check=True,
        timeout=600,
        env={"PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert "too large" in done.stdout
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_reference_of_another_type_is_a_typed_error(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog, pytest.raises(UsageError) as caught:
        catalog.dataset(5)  # type: ignore[arg-type]  # the mistake under test

    assert caught.value.message == "expected a str, Reference, Dataset or DatasetVersion, not int"
    assert caught.value.hint == 'Write name[/config][:request | @alias], e.g. "mnist:3.*".'
