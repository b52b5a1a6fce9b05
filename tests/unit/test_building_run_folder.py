"""What the runs of an interrupted build depend on: inputs and values; and from which folder a later build continues."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from registry.building.builder import DatasetBuilder
from registry.building.run_folder import RunFolder, SplitRuns
from registry.features import FeaturesDict
from registry.storage import Store, open_store

KEY = "0" * 64


def read(one: Any, language: str = "en") -> Iterator[Any]:
    yield one, language


class Builder(DatasetBuilder):
    VERSION = "1.0.0"

    def __init__(self, language: str = "en") -> None:
        super().__init__()
        self.language = language

    def features(self) -> FeaturesDict:
        return FeaturesDict({"number": "int64"})

    def splits(self) -> Any:
        return {}

    def read(self, one: Any) -> Iterator[Any]:
        yield one, self.language


def runs(folder: Path, generate: Callable[..., Any] = read) -> SplitRuns:
    return RunFolder(open_store(folder), "builder/1.0.0", KEY).of_split("train", generate)


def test_inputs_that_are_other_values_or_in_another_order_have_another_digest(tmp_path: Path) -> None:
    found = runs(tmp_path)
    digests = [found.stem(0, inputs).partition(".")[2] for inputs in ([1, 2], [2, 1], ["1", 2], [1], [1, 2, None])]
    assert len(set(digests)) == 5


def test_what_cannot_be_pickled_has_a_new_digest_each_time(tmp_path: Path) -> None:
    found = runs(tmp_path)
    assert found.stem(0, [lambda: 1]) != found.stem(0, [lambda: 1])
    assert runs(tmp_path, lambda one: [one]).key is None
    found = runs(tmp_path, lambda one: [one])
    assert found.stem(0, [1]) != found.stem(0, [1])


def test_values_of_the_function_are_part_of_its_key(tmp_path: Path) -> None:
    functions = (read, partial(read, language="de"), Builder().read, Builder("de").read)
    keys = [runs(tmp_path, function).key for function in functions]
    assert None not in keys
    assert len(set(keys)) == 4
    assert keys[3] == runs(tmp_path, Builder("de").read).key


def test_files_of_other_inputs_and_tasks_have_other_names(tmp_path: Path) -> None:
    found = runs(tmp_path)
    first, second = (found.stem(0, list(range(start, start + 7))) for start in (0, 1))
    names = [found.new_name(stem) for stem in (first, second, first)]
    assert len(set(names)) == 3
    assert names[0][:-8] == names[2][:-8] != names[1][:-8]


def left(store: Store, *, key: str = KEY, final: str = "builder/1.0.0", num_files: int = 1) -> str:
    """The place of a folder that a build has left."""
    folder = RunFolder(store, final, key)
    folder.open()
    for number in range(num_files):
        folder.store.write_bytes(f"train/{number}", b"run")
    folder.release()
    return folder.store.locate("")


def test_a_build_continues_from_the_largest_folder_with_its_key(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    folder = RunFolder(store, "builder/1.0.0", KEY)
    assert not folder.take_over()
    left(store)
    largest = left(store, num_files=3)
    left(store, num_files=2)
    left(store, key="1" * 64, num_files=4)
    left(store, final="builder/1.0.1", num_files=4)
    assert folder.take_over()
    assert folder.store.locate("") == largest


def test_a_folder_that_a_process_uses_is_not_taken_over_or_removed(tmp_path: Path) -> None:
    first, second, third = (RunFolder(open_store(tmp_path), "builder/1.0.0", KEY) for _ in range(3))
    first.open()
    assert not second.take_over()
    third.open()
    third.remove(with_left=True)
    assert list(first.store.list())


def test_of_builds_that_continue_at_once_only_one_takes_a_folder_over(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for _ in range(10):
        left(store)
        folders = [RunFolder(store, "builder/1.0.0", KEY) for _ in range(4)]
        barrier = Barrier(4)

        def take_over(folder: RunFolder, barrier: Barrier = barrier) -> bool:
            barrier.wait(30)
            return folder.take_over()

        with ThreadPoolExecutor(4) as threads:
            assert sum(threads.map(take_over, folders)) == 1
        for folder in folders:
            folder.remove(with_left=False)


def test_a_folder_of_another_machine_is_taken_over_and_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (RunFolder(open_store(tmp_path), "builder/1.0.0", KEY) for _ in range(3))
    with monkeypatch.context() as patch:
        patch.setattr(platform, "node", lambda: "another-node")
        first.open()
    third.open()
    third.remove(with_left=True)
    assert second.take_over()
    assert second.store.locate("") == first.store.locate("")


def test_folders_that_earlier_builds_left_are_removed_with_the_own_folder(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    left(store)
    left(store, key="1" * 64)
    other = left(store, final="builder/1.0.1")
    folder = RunFolder(store, "builder/1.0.0", KEY)
    folder.open()
    folder.remove(with_left=True)
    assert [store.locate(f"builder/{name}") for name in store.folders("builder")] == [other.rstrip("/")]
