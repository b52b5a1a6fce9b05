"""What the runs of an interrupted build depend on: inputs, the files that they name, and the code with its values."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from registry.building.builder import DatasetBuilder
from registry.building.run_folder import RunFolder, SplitRuns
from registry.features import FeaturesDict
from registry.storage import open_store


@dataclass(frozen=True)
class Part:
    path: Path
    number: int = 0


class Holder:
    """An input of an author's own class."""

    def __init__(self, path: Path) -> None:
        self.inner = [{"path": str(path)}]


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
    builder = Builder()
    return RunFolder(open_store(folder), "builder/1.0.0", builder, builder.features()).of_split("train", generate)


@pytest.mark.parametrize(
    "named",
    [
        str,
        lambda path: path,
        lambda path: [str(path), 3],
        lambda path: {"file": path},
        lambda path: {path: 1},
        lambda path: frozenset({path}),
        Part,
        lambda path: path.parent,
        lambda path: (1, {"deep": [Part(path.parent)]}),
    ],
)
def test_a_file_that_an_input_names_is_part_of_its_digest(named: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "inputs" / "folder" / "part.csv"
    path.parent.mkdir(parents=True)
    path.write_text("one")
    found = runs(tmp_path / "data")
    before = found.digest([named(path)])
    assert found.digest([named(path)]) == before
    facts = path.stat()
    path.write_text("two")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 10**9))
    assert found.digest([named(path)]) != before


def test_a_new_file_in_a_folder_is_part_of_its_digest(tmp_path: Path) -> None:
    (tmp_path / "inputs" / "deep").mkdir(parents=True)
    found = runs(tmp_path / "data")
    before = found.digest([tmp_path / "inputs"])
    (tmp_path / "inputs" / "deep" / "new").touch()
    assert found.digest([tmp_path / "inputs"]) != before


def test_inputs_that_are_other_values_or_in_another_order_have_another_digest(tmp_path: Path) -> None:
    found = runs(tmp_path)
    digests = [found.digest(inputs) for inputs in ([1, 2], [2, 1], ["1", 2], [1], [1, 2, None])]
    assert len(set(digests)) == 5


def test_what_cannot_be_pickled_has_a_new_digest_each_time(tmp_path: Path) -> None:
    found = runs(tmp_path)
    assert found.digest([lambda: 1]) != found.digest([lambda: 1])
    assert runs(tmp_path, lambda one: [one]).key is None
    found = runs(tmp_path, lambda one: [one])
    assert found.digest([1]) != found.digest([1])


def test_values_of_the_function_are_part_of_its_key(tmp_path: Path) -> None:
    functions = (read, partial(read, language="de"), Builder().read, Builder("de").read)
    keys = [runs(tmp_path, function).key for function in functions]
    assert None not in keys
    assert len(set(keys)) == 4
    assert keys[3] == runs(tmp_path, Builder("de").read).key


def test_the_code_of_a_function_in_another_module_is_part_of_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    code = tmp_path / "other_reader.py"
    keys = []
    for text in ("def read(one): yield one, {}", "def read(one): yield one, {'a': 1}"):
        code.write_text(text)
        monkeypatch.delitem(sys.modules, "other_reader", raising=False)
        importlib.invalidate_caches()
        keys.append(runs(tmp_path, importlib.import_module("other_reader").read).key)
    assert None not in keys
    assert keys[0] != keys[1]


def test_an_object_that_was_replaced_has_another_digest(bucket: str, tmp_path: Path) -> None:
    store = open_store(f"{bucket}/inputs")
    store.write_bytes("part.csv", b"one")
    found, url = runs(tmp_path), f"{bucket}/inputs/part.csv"
    before = found.digest([url])
    assert found.digest([url]) == before
    store.write_bytes("part.csv", b"two", overwrite=True)
    assert found.digest([url]) != before


def test_files_of_other_inputs_and_tasks_have_other_names(tmp_path: Path) -> None:
    found = runs(tmp_path)
    first, second = (found.facts(0, 7, found.digest(list(range(start, start + 7)))) for start in (0, 1))
    names = [one.new_file().name for one in (first, second, first)]
    assert len(set(names)) == 3
    assert names[0][:-8] == names[2][:-8] != names[1][:-8]


def test_paths_in_objects_and_in_the_builder_are_part_of_a_digest(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text("one")

    def digests() -> tuple[str, str | None, str | None]:
        found = runs(tmp_path / "data")
        methods = (Builder(str(path)).read, partial(read, language=f"file://{path}"))
        return found.digest([Holder(path)]), *(runs(tmp_path / "data", method).key for method in methods)  # type: ignore[return-value]

    before = digests()
    assert digests() == before
    facts = path.stat()
    path.write_text("two")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 10**9))
    assert all(new != old for new, old in zip(digests(), before, strict=True))
