"""Two catalogs share a data directory: garbage collection of one removes nothing that the other may own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import warm_python
from support.object_publishers import die_before, fork, publish
from support.prepared_samples import animals, prepare

import registry
from registry.api import Catalog
from registry.catalog import catalog_identity
from registry.storage import open_store
from registry.storage.names import Owner

HERE = Owner.this_process()
ELSEWHERE = replace(HERE, host="elsewhere", machine="another")


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "cache"))


@pytest.fixture(params=["disk", "bucket"])
def data_dir(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "data") if request.param == "disk" else f"{request.getfixturevalue('bucket')}/data"


@pytest.fixture
def ours(tmp_path: Path, data_dir: str) -> Iterator[Catalog]:
    """The catalog that collects; it has animals:1.0.0 in the shared directory."""
    with registry.connect(tmp_path / "ours.db", data_dir=data_dir) as catalog:
        catalog.publish(prepare(tmp_path / "given", shards=2))
        yield catalog


@pytest.fixture
def theirs(tmp_path: Path, data_dir: str, ours: Catalog) -> Iterator[Catalog]:
    """The other catalog; it has words:1.0.0 there."""
    with registry.connect(tmp_path / "theirs.db", data_dir=data_dir) as catalog:
        catalog.publish(prepare(tmp_path / "words", splits={"train": animals(9)}, name="words", shards=2))
        yield catalog


def names_below(data_dir: str) -> set[str]:
    return {one.name for one in open_store(data_dir).scan() if not one.is_folder}


def put_copy(source: Path, data_dir: str, name: str) -> None:
    store, folder = open_store(data_dir), open_store(source)
    for one in folder.list():
        store.write_bytes(f"{name}/{one}", folder.read_bytes(one))


NAMES = [
    "animals/incomplete.0a1b2c3d_1.0.0",
    "animals/damaged.0a1b2c3d_1.0.0",
    "animals/leftover.0a1b2c3d_1.0.0",
    "words/incomplete.0a1b2c3d_1.0.0.runs",
    "incomplete.0a1b2c3d_copies/words",
    "incomplete.0a1b2c3dMARK_words",  # of a process on another machine
    "words/9.0.0",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_mirror_of_another_catalog_stays_whatever_its_folder_is_called(
    name: str, ours: Catalog, theirs: Catalog, data_dir: str, tmp_path: Path
) -> None:
    name = name.replace("MARK", ELSEWHERE.mark())
    put_copy(tmp_path / "words", data_dir, name)
    theirs.mirrors.add("words", f"{data_dir}/{name}")
    before = names_below(data_dir)
    report = ours.collect_garbage(older_than="0s")
    assert [one.place for one in report.of("removed") if one.kind != "cache"] == []
    assert any(one.place.startswith(data_dir) and name.startswith(one.place[len(data_dir) + 1 :]) for one in report)
    assert names_below(data_dir) == before
    assert all(one.is_sound for one in theirs.mirrors.check("words"))


@settings(max_examples=10)
@given(
    parts=st.lists(
        st.tuples(
            st.sampled_from(["incomplete.", "damaged.", "leftover."]),
            st.text("0123456789abcdef", min_size=8, max_size=8),
            st.sampled_from(["1.0.0", "2.0.0", "x", "1.0.0.runs"]),
            st.sampled_from(["", "animals/", "words/", "words/config/", "a/b/c/"]),
        ),
        max_size=4,
        unique=True,
    )
)
def test_folders_without_an_owner_are_named_and_stay(
    parts: list[tuple[str, str, str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("shared")
    with registry.connect(folder / "ours.db", data_dir=folder / "data") as ours:
        ours.publish(prepare(folder / "given"))
        for kind, digits, end, parent in parts:
            (folder / f"data/{parent}{kind}{digits}_{end}").mkdir(parents=True)
            (folder / f"data/{parent}{kind}{digits}_{end}/shard").write_text("x")
        before = names_below(str(folder / "data"))
        ours.collect_garbage(older_than="0s")
        assert names_below(str(folder / "data")) == before


def dead_owner() -> Owner:
    with warm_python.Popen([sys.executable, "-c", ""]) as process:
        pass
    return replace(HERE, pid=process.pid, started="1")


@pytest.mark.parametrize("state", ["alive", "dead", "elsewhere"])
@pytest.mark.parametrize("end", ["2.0.0", "2.0.0.runs"])
def test_what_a_process_of_another_catalog_was_making_stays(
    state: str, end: str, ours: Catalog, theirs: Catalog, data_dir: str
) -> None:
    """Its next run goes on from there; on another machine it may be running."""
    owner = {"alive": HERE, "dead": dead_owner(), "elsewhere": ELSEWHERE}[state]
    identity = catalog_identity(theirs.backend.log)
    name = f"words/incomplete.0a1b2c3d_{end}"
    store = open_store(data_dir)
    store.write_bytes(f"{name}/.owner.json", json.dumps(asdict(owner) | {"catalog": identity}).encode())
    store.write_bytes(f"{name}/shard", b"x")
    before = names_below(data_dir)
    report = ours.collect_garbage(older_than="0s")
    (left,) = (one for one in report if one.place == f"{data_dir}/{name}")
    assert (left.outcome.value, left.why) == (
        "unknown",
        f"process {owner.pid} on {owner.host} worked on it for another catalog",
    )
    assert names_below(data_dir) == before
    theirs.collect_garbage(older_than="0s")
    assert (f"{name}/shard" in names_below(data_dir)) == (state == "alive")


@pytest.mark.parametrize("step", [4, 9, 14, 19, 24])
def test_a_killed_publication_of_another_catalog_is_finished_after_it(
    step: int, ours: Catalog, theirs: Catalog, data_dir: str, tmp_path: Path
) -> None:
    folder = str(prepare(tmp_path / "next", "2.0.0", {"train": animals(30)}, name="words", shards=3))

    def killed() -> object:
        die_before(step)
        return publish(theirs_url, data_dir, folder)

    theirs_url = str(tmp_path / "theirs.db")
    child, pipe = fork(killed)
    os.close(pipe)
    os.waitpid(child, 0)
    before = names_below(data_dir)
    ours.collect_garbage(older_than="0s")
    assert names_below(data_dir) == before
    theirs.publish(folder)
    assert theirs.verify_all(deep=True).is_sound
    assert ours.verify_all(deep=True).is_sound
    assert theirs.reservations.list() == ()
