"""Builds in pieces by processes that cannot open the files of this one, as on a cluster: the store keeps the runs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from end_to_end.test_build_pieces import INPUTS, make
from support import warm_python
from support.piece_builders import Input, Pieced, PiecedByNumber, PiecedInOrder, built

import registry
from registry.building import build_dataset, piece_runs, run_merging
from registry.engines import Engine, WorkerProcesses, choice, use_engine
from registry.errors import BuildError, DuplicateKeyError, RegistryWarning, StorageUnavailableError, UsageError
from registry.storage import open_store


class Elsewhere(WorkerProcesses):
    """Worker processes that may not open files of this process."""

    @property
    def shares_files(self) -> bool:
        return False


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Elsewhere(2) as made, use_engine(made):
        yield made


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in which ``generate`` writes the name of each input it is called with."""
    monkeypatch.setenv("PIECE_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("PIECE_REPAIRED", str(tmp_path / "repaired"))
    return tmp_path / "calls"


def repair() -> None:
    """Let no input fail any more."""
    Path(os.environ["PIECE_REPAIRED"]).touch()


def taken(calls: Path) -> list[str]:
    """The inputs of the calls since the last call of this function."""
    names = sorted(calls.read_text().splitlines()) if calls.exists() else []
    calls.unlink(missing_ok=True)
    return names


def finished_runs(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.runs/train/*") if re.match(r"[0-9]+-[0-9]+\.\w+\.\w+$", path.name))


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("kind", [Pieced, PiecedInOrder])
def test_the_files_are_those_of_a_local_build(kind: type[Pieced], tmp_path: Path) -> None:
    with use_engine("local"):
        expected = built(make(kind, INPUTS), tmp_path / "local", num_shards=3)
    assert built(make(kind, INPUTS), tmp_path / "data", processes=2, num_shards=3, budget_bytes=2000) == expected
    assert files(tmp_path) == []


@pytest.mark.usefixtures("engine")
def test_many_runs_are_not_merged_by_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece_runs, "_GROUP_SECONDS", 1e-9)  # one input for each run
    inputs = [(str(index), 2) for index in range(130)]
    for kind in (Pieced, PiecedByNumber):
        with use_engine("local"):
            expected = built(make(kind, inputs), tmp_path / "local", processes=1, num_shards=2)
        with monkeypatch.context() as patch:
            patch.setattr("registry.building.sorter.ExternalSorter._merge_last", None)
            assert built(make(kind, inputs), tmp_path / "data", processes=2, num_shards=2) == expected


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Receives what each piece did whose result came from elsewhere."""
    done: list[str] = []
    run = Elsewhere.run

    def noted(self: Elsewhere, pieces: Any, *, doing: str, **options: Any) -> Any:
        for one in run(self, pieces, doing=doing, **options):
            done.append(doing)
            yield one

    monkeypatch.setattr(Elsewhere, "run", noted)
    return done


@pytest.fixture
def _small_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge runs although they are few and small."""
    monkeypatch.setattr(piece_runs, "_GROUP_SECONDS", 1e-9)  # one input for each run
    for name, value in {"MOST_RUNS": 5, "LEAST_PART_BYTES": 2**40, "_TASK_BYTES": 400, "_LEAST_READ_BYTES": 1}.items():
        monkeypatch.setattr(run_merging, name, value)


@pytest.mark.usefixtures("engine", "_small_merges")
@pytest.mark.parametrize("kind", [Pieced, PiecedInOrder])
def test_runs_that_are_merged_first_give_the_same_files(kind: type[Pieced], tmp_path: Path, done: list[str]) -> None:
    inputs = [(str(index), index % 9) for index in range(40)]
    with use_engine("local"):
        expected = built(make(kind, inputs), tmp_path / "local", processes=1, num_shards=4)
    assert built(make(kind, inputs), tmp_path / "data", processes=2, num_shards=4) == expected
    assert done.count("merged runs") > 10  # more than one level
    assert done.count("wrote shards") == 4
    assert ("checked keys" in done) == (kind is PiecedInOrder)
    assert files(tmp_path) == []


@pytest.mark.usefixtures("engine", "_small_merges")
@pytest.mark.filterwarnings("ignore::registry.errors.LeftoverWarning")  # another task may be writing a shard
@pytest.mark.parametrize("kind", [Pieced, PiecedInOrder])
def test_a_key_of_two_inputs_is_named_by_the_task_that_merges_them(kind: type[Pieced], tmp_path: Path) -> None:
    inputs = [(str(index), 3) for index in range(40)]
    inputs[31] = inputs[2]
    with use_engine("local"), pytest.raises(DuplicateKeyError) as expected:
        built(make(kind, inputs), tmp_path / "local", processes=1, num_shards=4)
    with pytest.raises(DuplicateKeyError) as found:
        built(make(kind, inputs), tmp_path / "data", processes=2, num_shards=4)
    keys = {f"'2 {number}'" for number in range(3)}
    for error in (expected.value, found.value):
        assert set(error.details["keys"]) <= keys, error.details


@pytest.mark.usefixtures("engine")
def test_finished_runs_are_used_although_groups_would_be_larger_now(
    tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs: list[Input] = [("fail", 5), *((str(index), 5) for index in range(9)), ("fail too", 5)]
    builder = make(Pieced, inputs)
    with monkeypatch.context() as patch:
        patch.setattr(piece_runs, "_GROUP_SECONDS", 1e-9)  # one input for each run
        with pytest.raises(BuildError):
            build_dataset(builder, open_store(tmp_path / "data"), processes=2)
    taken(calls)
    monkeypatch.setattr(piece_runs._GroupSize, "count", 4)
    repair()
    built(builder, tmp_path / "data", processes=2, finished=True)
    assert taken(calls) == ["fail", "fail too"]


@pytest.mark.usefixtures("engine")
def test_a_build_in_a_bucket_is_published_and_read(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: list[str]
) -> None:
    monkeypatch.setattr(choice, "_SMALL_BYTES", 0)
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as catalog:
        catalog.build(make(Pieced, INPUTS), processes=2, num_shards=3)
        assert (done.count("wrote shards"), done.count("uploaded files")) == (3, 3)
        dataset = catalog.dataset("pieced")
        dataset.verify(deep=True).raise_for_faults("pieced")
        assert len(list(dataset.read("train"))) == sum(count for _, count in INPUTS)
        with use_engine("local"):
            expected, _ = built(make(Pieced, INPUTS), tmp_path / "local", num_shards=3)
        assert dataset.shards("train") == expected["train"]
        store = open_store(f"{bucket}/data")
        assert [one.name for one in store.scan() if "incomplete" in one.name] == []


@pytest.mark.usefixtures("engine")
def test_a_build_continues_from_finished_runs_if_the_caller_says_so(tmp_path: Path, calls: Path) -> None:
    inputs: list[Input] = [(f"part {index}", 20) for index in range(12)]
    inputs[7] = ("fail", 20)
    builder = make(Pieced, inputs)
    with pytest.raises(BuildError, match="fail is damaged"):
        build_dataset(builder, open_store(tmp_path / "data"), processes=2)
    assert taken(calls) == sorted(name for name, _ in inputs)
    assert finished_runs(tmp_path / "data")

    repair()
    with build_dataset(builder, open_store(tmp_path / "data"), processes=2, finished=True) as build:
        shards = build.shards
    again = taken(calls)
    assert "fail" in again
    assert len(again) < len(inputs)
    assert files(tmp_path / "data") == []
    assert built(builder, tmp_path / "other", processes=1)[0] == shards


@pytest.mark.usefixtures("engine")
def test_a_build_uses_no_runs_of_an_earlier_one_by_default(tmp_path: Path, calls: Path) -> None:
    inputs: list[Input] = [("a", 5), ("fail", 2), ("c", 5)]
    builder = make(Pieced, inputs)
    with pytest.raises(BuildError):
        build_dataset(builder, open_store(tmp_path / "data"), processes=2)
    taken(calls)
    (folder,) = (tmp_path / "data").rglob("*.runs")
    repair()
    message = (
        f"the records are made again, although an earlier run left finished runs of pieced:1.0.0 in {folder}. "
        "If code and inputs are the same, finished=True continues from these"
    )
    with pytest.warns(RegistryWarning, match=f"^{re.escape(message)}$"):
        built(builder, tmp_path / "data", processes=2)
    assert set(taken(calls)) == {"a", "fail", "c"}
    assert files(tmp_path / "data") == []


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", ["elsewhere", "local"])
def test_finished_shards_are_published_instead_of_runs_which_are_removed(
    name: str, tmp_path: Path, calls: Path
) -> None:
    builder = make(Pieced, [("a", 5), ("b", 5)])
    build = build_dataset(builder, open_store(tmp_path / "data"), processes=2)
    with pytest.raises(StorageUnavailableError), build:
        raise StorageUnavailableError("the store is away")
    assert finished_runs(tmp_path / "data")
    taken(calls)
    with ExitStack() as stack:
        if name == "local":
            stack.enter_context(use_engine("local"))
        shards, _ = built(builder, tmp_path / "data", finished=True)
    assert shards == build.shards
    assert taken(calls) == []
    assert files(tmp_path / "data") == []


@pytest.mark.usefixtures("engine")
def test_runs_of_other_inputs_are_not_used(tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece_runs, "_GROUP_SECONDS", 1e-9)  # one input for each run
    inputs: list[Input] = [("a", 5), ("fail", 2), ("c", 5)]
    for finished, changed, expected in (
        (False, inputs, {"a", "fail", "c"}),
        (True, inputs, {"fail"}),
        (True, [("a", 6), *inputs[1:]], {"a", "fail"}),
        (True, [("new", 3), *inputs], {"new", "a", "fail", "c"}),
    ):
        with pytest.raises(BuildError):
            build_dataset(make(Pieced, changed), open_store(tmp_path / "data"), processes=2, finished=finished)
        assert set(taken(calls)) == expected


@pytest.mark.usefixtures("engine")
def test_a_local_build_cannot_continue_from_runs(tmp_path: Path, calls: Path) -> None:
    builder = make(Pieced, [("a", 5), ("fail", 2)])
    with pytest.raises(BuildError):
        build_dataset(builder, open_store(tmp_path / "data"), processes=2)
    before = files(tmp_path / "data")
    taken(calls)
    with use_engine("local"), pytest.raises(UsageError, match="no earlier run left intact shards of"):
        build_dataset(builder, open_store(tmp_path / "data"), finished=True)
    assert taken(calls) == []
    assert files(tmp_path / "data") == before


@pytest.mark.usefixtures("engine")
def test_runs_that_were_cut_off_are_ignored(tmp_path: Path, calls: Path) -> None:
    inputs: list[Input] = [("a", 30), ("fail", 2), ("b", 30)]
    builder = make(Pieced, inputs)
    with pytest.raises(BuildError):
        build_dataset(builder, open_store(tmp_path / "data"), processes=2)
    found = finished_runs(tmp_path / "data")
    found[0].write_bytes(found[0].read_bytes()[:-30])
    taken(calls)
    repair()
    expected, _ = built(builder, tmp_path / "other", processes=1)
    taken(calls)
    with build_dataset(builder, open_store(tmp_path / "data"), processes=2, finished=True) as build:
        assert dict(build.shards) == expected
    assert "a" in taken(calls)


KILLED = """
import os, sys
sys.path[:0] = {paths!r}
from pathlib import Path
from support.piece_builders import Pieced
from end_to_end.test_build_elsewhere import Elsewhere
from registry.building import build_dataset
from registry.engines import use_engine
from registry.storage import open_store

def inputs():
    for index in range(40):
        if index == 30:
            os.kill(os.getpid(), 9)
        yield f"part {{index}}", 200

builder = Pieced()
builder.inputs = inputs()
with Elsewhere(2) as engine, use_engine(engine):
    build_dataset(builder, open_store({folder!r}), processes=2)
"""


@pytest.mark.usefixtures("engine")
def test_runs_of_a_build_that_fails_before_its_catalog_exists_are_garbage_later(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data", create=True) as catalog:
        with pytest.raises(BuildError):
            catalog.build(make(Pieced, [("a", 5), ("fail", 2)]), processes=2)
        catalog.add([{"number": 1}], name="numbers")
        assert any(one.place.endswith(".runs") for one in catalog.collect_garbage().of("kept"))
        removed = catalog.collect_garbage(older_than=timedelta(0)).of("removed")
    assert any(one.place.endswith(".runs") for one in removed)
    assert not [name for name in files(tmp_path / "data") if "incomplete" in name]


@pytest.mark.usefixtures("engine")
def test_a_killed_build_is_continued_and_its_runs_are_garbage_later(tmp_path: Path, calls: Path) -> None:
    data = tmp_path / "data"
    program = KILLED.format(paths=sys.path, folder=str(data))
    assert warm_python.run([sys.executable, "-c", program], check=False, capture_output=True).returncode == -9
    begun = taken(calls)
    assert begun
    assert finished_runs(data)
    with registry.connect(tmp_path / "catalog.db", data_dir=data, create=True) as catalog:
        assert any(one.place.endswith(".runs") for one in catalog.collect_garbage().of("kept"))
        old = catalog.collect_garbage(older_than=timedelta(0), dry_run=True)
        assert any(one.place.endswith(".runs") for one in old.of("found"))
        inputs = [(f"part {index}", 200) for index in range(40)]
        catalog.build(make(Pieced, inputs), processes=2, finished=True)
        assert len(taken(calls)) < len(inputs)
        assert catalog.dataset("pieced").splits["train"].num_examples == 8000
    with use_engine("local"):
        expected, _ = built(make(Pieced, inputs), tmp_path / "local")
    with registry.connect(tmp_path / "catalog.db", data_dir=data) as catalog:
        assert catalog.dataset("pieced").shards("train") == expected["train"]
    assert not [name for name in files(data) if "incomplete" in name]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", ["5-0", "0-999999999999999999", "3-100000"])
def test_files_with_names_that_no_build_writes_are_ignored(name: str, tmp_path: Path) -> None:
    inputs: list[Input] = [("fail", 5), *((str(index), 5) for index in range(30))]
    with pytest.raises(BuildError):
        build_dataset(make(Pieced, inputs), open_store(tmp_path / "data"), processes=2)
    run = finished_runs(tmp_path / "data")[0]
    run.with_name(f"{name}.{'0' * 16}.{'0' * 8}").touch()
    inputs[0] = ("sound", 5)
    shards, _ = built(make(Pieced, inputs), tmp_path / "data", processes=2, finished=True)
    with use_engine("local"):
        assert built(make(Pieced, inputs), tmp_path / "local", processes=1)[0] == shards


def test_another_build_of_the_version_does_not_replace_shards(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Elsewhere.run
    others: list[str] = []

    def build_another(self: Elsewhere, pieces: Any, *, doing: str, **options: Any) -> Any:
        yield from run(self, pieces, doing=doing, **options)
        if doing == "wrote shards" and not others:
            others.append(doing)
            build_dataset(make(Pieced, [("other", 60)]), open_store(f"{bucket}/data"), processes=2, num_shards=3)

    monkeypatch.setattr(Elsewhere, "run", build_another)
    with (
        Elsewhere(2) as engine,
        use_engine(engine),
        registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as catalog,
    ):
        catalog.build(make(Pieced, [("a", 30), ("b", 30)]), processes=2, num_shards=3)
        assert others
        dataset = catalog.dataset("pieced")
        dataset.verify(deep=True).raise_for_faults("pieced")
        assert {example["name"] for example in dataset.read("train")} == {b"a", b"b"}


@pytest.mark.usefixtures("engine")
def test_two_builds_at_once_in_one_folder_give_the_same_version(tmp_path: Path) -> None:
    inputs = [(f"part {index}", 50) for index in range(10)]
    first = build_dataset(make(Pieced, inputs), open_store(tmp_path / "data"), processes=2)
    second = build_dataset(make(Pieced, inputs), open_store(tmp_path / "data"), processes=2)
    with first, second:
        assert first.shards == second.shards
    assert files(tmp_path / "data") == []


@pytest.mark.usefixtures("engine")
def test_a_copy_between_buckets_is_sent_from_elsewhere(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: list[str]
) -> None:
    inputs = [("a", 30), ("b", 20)]
    with (
        registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/one") as first,
        registry.connect(tmp_path / "other.db", data_dir=f"{bucket}/two") as second,
    ):
        with use_engine("local"):
            first.build(make(Pieced, inputs), num_shards=2)
        monkeypatch.setattr(choice, "_SMALL_BYTES", 0)
        first.copy("pieced", second)
        assert done.count("uploaded files") == 2
        second.dataset("pieced").verify(deep=True).raise_for_faults("pieced")
        assert second.dataset("pieced").shards("train") == first.dataset("pieced").shards("train")
