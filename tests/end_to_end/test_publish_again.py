"""Finished shards that could not be published stay, and a later run publishes them."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import pytest
from counted_builders import CALLS, Pictures, Read, ReadInWorkers
from support import TESTS, warm_python
from support.levels import cases, either

import registry
from registry import Catalog
from registry.catalog import schema
from registry.errors import CatalogUnavailableError, RegistryError, UsageError
from registry.features import ClassLabel, FeaturesDict


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    CALLS.clear()
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    monkeypatch.setenv("REGISTRY_LOCK_TIMEOUT", "0.1")
    monkeypatch.setenv("REGISTRY_TRIES", "1")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program writes to the catalog."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def build_in_vain(catalog: Catalog, path: Path, builder: Any, **options: Any) -> RegistryError:
    with locked(path), pytest.raises(CatalogUnavailableError) as caught:
        catalog.build(builder, processes=1, **options)
    return caught.value


def numbers_of(catalog: Catalog) -> list[int]:
    return sorted(int(one["number"]) for one in catalog.dataset("read").read("train"))


def left_behind(tmp_path: Path) -> list[str]:
    """The hidden and unfinished files of the data directory and of TMPDIR."""
    places = [*(tmp_path / "datasets").rglob("*"), *(tmp_path / "scratch").rglob("*")]
    names = [(str(one), one.name) for one in places if one.name != ".attachments"]
    return [path for path, name in names if name.startswith(".") or "incomplete." in name]


@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_the_next_build_publishes_what_the_first_has_made(
    tmp_path: Path, request: pytest.FixtureRequest, place: str
) -> None:
    data_dir = tmp_path / "datasets" if place == "disk" else request.getfixturevalue("bucket")
    schema.upgrade(tmp_path / "catalog.db")
    with registry.connect(tmp_path / "catalog.db", data_dir=data_dir) as catalog:
        error = build_in_vain(catalog, tmp_path / "catalog.db", Read())
        folder = "datasets/read/1.0.0" if place == "disk" else "scratch/"
        assert f"The finished shards stay in {tmp_path}/{folder}" in str(error.hint)
        assert str(error.hint).endswith(
            ": the same command with finished=True will publish them without making the records again."
        )
        assert catalog.build(Read(), processes=1, finished=True).newly
        assert CALLS == ["train"]
        assert numbers_of(catalog) == [0, 1, 2]
        assert catalog.dataset("read").verify(deep=True).faults == ()
    assert left_behind(tmp_path) == []


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "an attribute": ({"scale": 1}, {"scale": 2}, {}),
    "the number of shards": ({}, {}, {"num_shards": 2}),
}


@pytest.mark.parametrize("place", ["disk", "bucket"])
@pytest.mark.parametrize("change", CHANGES)
def test_another_build_makes_its_own_records(
    tmp_path: Path, request: pytest.FixtureRequest, place: str, change: str
) -> None:
    before, after, options = CHANGES[change]
    bucket = None if place == "disk" else request.getfixturevalue("bucket")
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        with pytest.MonkeyPatch.context() as patch:  # before the folder has its final name
            patch.setattr("registry.publishing.publish.place_folder", _away)
            with pytest.raises(CatalogUnavailableError):
                catalog.build(Read(**before), processes=1)
        if options:  # the shards have another form, so they are not those of this build
            with pytest.raises(UsageError, match="no earlier run left intact shards of read:"):
                catalog.build(Read(**after), processes=1, finished=True, **options)
        with warns_of_finished() if not options else nullcontext():
            catalog.build(Read(**after), processes=1, **options)
        assert CALLS == ["train", "train"]
        assert numbers_of(catalog) == [number * after.get("scale", 1) for number in range(3)]
        assert len(catalog.dataset("read").splits["train"].filenames) == options.get("num_shards", 1)
    assert left_behind(tmp_path) == [], "the shards of the other build are removed"


class Named(Read):
    """Its records depend on the names of labels and on an experiment."""

    name = "read"
    labels: ClassVar = ["cat", "dog"]

    def features(self) -> FeaturesDict:
        return FeaturesDict({"number": ClassLabel(names=self.labels)})

    def examples(self) -> Iterator[tuple[int, dict[str, str]]]:
        CALLS.append("train")
        yield 0, {"number": "dog" if self.version.implements("dogs") else "cat"}


@pytest.mark.parametrize("change", ["labels", "experiment"])
def test_shards_of_other_labels_or_experiments_are_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.experiments.add("dogs", "Only dogs.")
        with monkeypatch.context() as patch:
            patch.setattr("registry.publishing.publish.place_folder", _away)
            with pytest.raises(CatalogUnavailableError):
                catalog.build(Named, processes=1)
        if change == "labels":
            monkeypatch.setattr(Named, "labels", ["dog", "cat"])
        else:
            catalog.experiments.set_default("dogs", True)
        with pytest.raises(UsageError, match="no earlier run left intact shards of read:"):
            catalog.build(Named, processes=1, finished=True)
        catalog.build(Named, processes=1)
        (record,) = catalog.dataset("read").read("train")
        assert Named.labels[record["number"]] == ("cat" if change == "labels" else "dog")
    assert left_behind(tmp_path) == []


def warns_of_finished() -> Any:
    text = (
        r"^the records are made again, although an earlier run left finished shards of read:1\.0\.0 in .*\. "
        "If code and inputs are the same, finished=True publishes these$"
    )
    return pytest.warns(registry.RegistryWarning, match=text)


def _away(*_: object, **__: object) -> Any:
    raise CatalogUnavailableError("it is away")


def _rewrite_in_secret(path: Path) -> None:
    facts = path.stat()
    path.write_text(path.read_text()[::-1].strip().rjust(facts.st_size) if path.suffix == ".txt" else "a\n2\n1\n")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit": _flip,
    "a truncated file": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "a missing file": lambda path: path.unlink(),
    "a damaged record": lambda path: _flip(path.with_name(".finished.json")),
    "a damaged description": lambda path: path.with_name("features.json").write_text("{}"),
    "another file": lambda path: path.with_name("extra").write_text("x"),
}


@pytest.mark.parametrize("damage", ["a flipped bit", "a truncated file", "a missing file"])
def test_shards_that_are_damaged_at_their_final_place_are_built_again(tmp_path: Path, damage: str) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("registry.catalog.writes.publish", _away)
            with pytest.raises(CatalogUnavailableError):
                catalog.build(Read(), processes=1)
        (shard,) = tmp_path.rglob("read-train.tfrecord-*")
        assert shard.parent.name == "1.0.0"
        DAMAGES[damage](shard)
        with pytest.raises(UsageError, match="no earlier run left intact shards"):
            catalog.build(Read(), processes=1, finished=True)
        with warns_of_finished():
            publication = catalog.build(Read(), processes=1)
        assert publication.newly
        assert CALLS == ["train", "train"]
        assert publication.notes[0].startswith("replaced a damaged folder, which was moved to ")
        assert catalog.dataset("read").verify(deep=True).faults == ()


@pytest.mark.parametrize("place", ["disk", "bucket"])
@pytest.mark.parametrize("damage", cases(DAMAGES, everyday=3))
def test_damaged_shards_are_noticed_and_built_again(
    tmp_path: Path, request: pytest.FixtureRequest, place: str, damage: str
) -> None:
    bucket = None if place == "disk" else request.getfixturevalue("bucket")
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("registry.publishing.publish.place_folder", _away)
            with pytest.raises(CatalogUnavailableError):
                catalog.build(Read(), processes=1)
        (shard,) = tmp_path.rglob("read-train.tfrecord-*")
        DAMAGES[damage](shard)
        is_harmless = damage in ("a damaged description", "another file")
        if not is_harmless:
            with pytest.raises(UsageError, match="no earlier run left intact shards"):
                catalog.build(Read(), processes=1, finished=True)
        assert catalog.build(Read(), processes=1, finished=is_harmless).newly
        assert numbers_of(catalog) == [0, 1, 2]
        assert catalog.dataset("read").verify(deep=True).faults == ()
    assert len(CALLS) == (1 if is_harmless else 2)
    assert left_behind(tmp_path) == []


def _build_other_content_after_the_move(tmp_path: Path) -> None:
    """Leave a folder at its final place without a row."""
    (tmp_path / "numbers.txt").write_text("3 4 5")
    with registry.connect(tmp_path / "catalog.db") as catalog, pytest.MonkeyPatch.context() as patch:
        catalog.add([{"price": 1}], "prices", processes=1)  # a catalog without an event has no identity
        patch.setattr("registry.catalog.writes.publish", _away)
        with pytest.raises(CatalogUnavailableError):
            catalog.build(Read(path=tmp_path / "numbers.txt"), processes=1)
    assert (tmp_path / "datasets/read/1.0.0/.finished.json").exists()
    (tmp_path / "numbers.txt").write_text("7 8")


def test_other_content_takes_the_place_of_a_folder_that_was_not_published(tmp_path: Path) -> None:
    _build_other_content_after_the_move(tmp_path)
    with registry.connect(tmp_path / "catalog.db") as catalog:
        with warns_of_finished():
            publication = catalog.build(Read(path=tmp_path / "numbers.txt"), processes=1)
        assert publication.newly
        (aside,) = (tmp_path / "datasets/read").glob("leftover.*_1.0.0")
        assert publication.notes == (
            f"replaced the folder of an earlier run that was not published, which was moved to {aside}",
        )
        assert numbers_of(catalog) == [7, 8]
        assert catalog.dataset("read").verify(deep=True).faults == ()
        assert not (tmp_path / "datasets/read/1.0.0/.finished.json").exists()


def test_after_other_content_was_moved_aside_a_killed_build_is_published_by_the_next(tmp_path: Path) -> None:
    _build_other_content_after_the_move(tmp_path)
    with registry.connect(tmp_path / "catalog.db") as catalog:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("registry.publishing.placing.write_owner", _interrupt)  # the place is empty now
            with pytest.warns(registry.RegistryWarning), pytest.raises(KeyboardInterrupt):
                catalog.build(Read(path=tmp_path / "numbers.txt"), processes=1)
        assert not (tmp_path / "datasets/read/1.0.0").exists()
        assert catalog.build(Read(path=tmp_path / "numbers.txt"), processes=1, finished=True).newly
        assert numbers_of(catalog) == [7, 8]
    assert CALLS == ["train", "train"], "the third build publishes what the second has made"


def _interrupt(*_: object, **__: object) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("other", ["the folder of another catalog", "a folder that another version names"])
def test_other_content_never_takes_the_place_of_a_folder_that_may_be_named(tmp_path: Path, other: str) -> None:
    _build_other_content_after_the_move(tmp_path)
    path = tmp_path / ("other.db" if other == "the folder of another catalog" else "catalog.db")
    with registry.connect(path, data_dir=tmp_path / "datasets") as catalog:
        if path.name == "catalog.db":
            catalog.import_tfds(tmp_path / "datasets/read/1.0.0")
        with warns_of_finished(), pytest.raises(registry.errors.ConflictError):
            catalog.build(Read(path=tmp_path / "numbers.txt"), processes=1, rebuild=True)
    assert list((tmp_path / "datasets/read").glob("leftover.*")) == []


KILLED = """
import os, signal, sys
import registry
from registry import publishing
sys.path.insert(0, {tests!r})
from counted_builders import Read
import registry.publishing.publish as publish
import registry.catalog.writes as writes
def die(*_, **__):
    os.kill(os.getpid(), getattr(signal, {signal!r}))
    import time; time.sleep(10)
if {place!r} == "before the move":
    publish.place_folder = die
else:
    writes.publish = die
registry.connect({catalog!r}, data_dir={data_dir!r}).build(Read(), processes=1)
"""


@pytest.mark.parametrize("sent", either("SIGKILL", "SIGINT"))
@pytest.mark.parametrize("place", ["before the move", "after the move"])
@pytest.mark.parametrize("where", ["disk", "bucket"])
def test_the_shards_of_a_killed_build_are_published_by_another_process(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, sent: str, place: str, where: str
) -> None:
    data_dir = str(tmp_path / "datasets") if where == "disk" else request.getfixturevalue("bucket")
    script = KILLED.format(
        tests=str(TESTS),
        signal=sent,
        place=place,
        catalog=str(tmp_path / "catalog.db"),
        data_dir=data_dir,
    )
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    done = warm_python.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode in (-getattr(signal, sent), 1, 130), done.stderr
    with registry.connect(tmp_path / "catalog.db", data_dir=data_dir) as catalog:
        assert catalog.build(Read(), processes=1, finished=True).newly
        assert CALLS == [], "the records are those of the other process"
        assert numbers_of(catalog) == [0, 1, 2]
        assert catalog.reservations.list() == ()
    assert left_behind(tmp_path) == []


def test_garbage_collection_names_finished_shards_and_removes_old_ones(tmp_path: Path, bucket: str) -> None:
    from datetime import timedelta

    for data_dir in (str(tmp_path / "datasets"), bucket):
        with registry.connect(tmp_path / "catalog.db", data_dir=data_dir) as catalog:
            catalog.set_data_dir(data_dir)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("registry.publishing.publish.place_folder", _away)
                with pytest.raises(CatalogUnavailableError):
                    catalog.build(Read(), processes=1)
            kept = [one for one in catalog.collect_garbage(dry_run=True) if "finished shards" in one.why]
            assert [(str(one.outcome), one.why) for one in kept] == [
                ("kept", "finished shards that could not be published; a later run may publish them")
            ]
            assert kept[0].num_bytes > 0
            removed = catalog.collect_garbage(older_than=timedelta(0))
            assert "finished shards that nobody published for the grace period" in {one.why for one in removed}
            assert left_behind(tmp_path) == []


def add(catalog: Catalog, path: Path, **options: Any) -> tuple[Any, bool]:
    """Add a file; its report, and whether its rows were encoded."""
    stages: list[str] = []
    report = catalog.add(path, "prices", progress=lambda one: stages.append(one.stage), processes=1, **options)
    return report, "encoding" in stages


def add_in_vain(catalog: Catalog, path: Path, place: str, **options: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if place == "before the move":
            patch.setattr("registry.publishing.publish.place_folder", _away)
        else:
            patch.setattr("registry.catalog.writes.publish", _away)
        with pytest.raises(CatalogUnavailableError) as caught:
            add(catalog, path, **options)
    assert "The finished shards stay in " in str(caught.value.hint)


@pytest.mark.parametrize("moment", ["before the move", "after the move"])
@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_the_next_addition_publishes_what_the_first_has_encoded(
    tmp_path: Path, request: pytest.FixtureRequest, place: str, moment: str
) -> None:
    bucket = None if place == "disk" else request.getfixturevalue("bucket")
    path = tmp_path / "prices.csv"
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        for number, text in enumerate(("a,b\n1,2\n3,x\n,\n", "a,b\n1,2\n5,6\n7,8\n,\n"), start=1):
            path.write_text(text)
            add_in_vain(catalog, path, moment)
            report, is_encoded = add(catalog, path, reason="again")
            assert not is_encoded
            assert str(report.reference) == f"prices:{number}.0.0"
            assert report.num_examples == text.count("\n") - 1
            assert catalog.dataset(report.reference).metadata.release_notes == {f"{number}.0.0": "again"}
            assert catalog.dataset(report.reference).verify(deep=True).faults == ()
            assert left_behind(tmp_path) == []


OTHER_ADDITIONS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "another content": lambda path: {"": path.write_text("a,b\n3,4\n")},
    "as many bytes at the same time": lambda path: {"": _rewrite_in_secret(path)},
    "another type": lambda _: {"features": {"a": "Text"}},
    "another key": lambda _: {"key": "a"},
    "other shards": lambda _: {"num_shards": 1},
}


@pytest.mark.parametrize("change", cases(OTHER_ADDITIONS, everyday=2))
def test_another_addition_encodes_its_own_rows(tmp_path: Path, change: str) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("a\n1\n2\n")
    with registry.connect(tmp_path / "catalog.db") as catalog:
        add_in_vain(catalog, path, "before the move")
        options = {name: value for name, value in OTHER_ADDITIONS[change](path).items() if name}
        report, is_encoded = add(catalog, path, **options)
        assert is_encoded
        assert catalog.dataset(report.reference).verify(deep=True).faults == ()
        assert left_behind(tmp_path) == []


def test_a_dry_run_leaves_finished_shards_alone(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("a,b\n1,2\n")
    with registry.connect(tmp_path / "catalog.db") as catalog:
        add_in_vain(catalog, path, "before the move")
        assert add(catalog, path, dry_run=True)[0].outcome == "would_publish"
        assert add(catalog, path)[1] is False


def test_the_rows_that_were_left_out_are_named_again(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("a,b\n1,2\n3\n4,5\n")
    with registry.connect(tmp_path / "catalog.db") as catalog:
        add_in_vain(catalog, path, "before the move", skip_bad=1)
        report, is_encoded = add(catalog, path, skip_bad=1)
        assert not is_encoded
        assert report.num_bad == 1
        assert [(one.file, one.line) for one in report.bad] == [("prices.csv", 3)]
        assert catalog.dataset("prices").metadata.custom["skipped_rows"]["count"] == 1


def test_objects_of_python_are_read_again(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("registry.publishing.publish.place_folder", _away)
            with pytest.raises(CatalogUnavailableError):
                catalog.add([{"a": 1}], "prices")
        assert left_behind(tmp_path) == []
        assert catalog.add([{"a": 2}], "prices").outcome == "published"
        assert [int(one["a"]) for one in catalog.dataset("prices").read("train")] == [2]


def test_an_addition_that_is_killed_is_published_by_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("a,b\n1,2\n")
    script = f"""
import os, signal
import registry, registry.publishing.publish as publish
publish.place_folder = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
registry.connect({str(tmp_path / "catalog.db")!r}).add({str(path)!r}, "prices")
"""
    done = warm_python.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with registry.connect(tmp_path / "catalog.db") as catalog:
        report, is_encoded = add(catalog, path)
        assert not is_encoded
        assert report.outcome == "published"
    assert left_behind(tmp_path) == []


RACER = """
import json, sys, time
sys.path.insert(0, {tests!r})
from counted_builders import CALLS, Read
import registry
catalog = registry.connect({catalog!r})
while time.time() < {start!r}: pass
try:
    newly = catalog.build(Read(), processes=1, finished=True).newly
except registry.errors.UsageError:  # the other process has taken them over
    newly = catalog.build(Read(), processes=1).newly
print(json.dumps([newly, len(CALLS)]))
"""


@pytest.mark.parametrize("moment", ["before the move", "after the move"])
def test_of_two_processes_one_takes_the_shards_over_and_one_version_is_published(tmp_path: Path, moment: str) -> None:
    import json
    import subprocess
    import time

    with registry.connect(tmp_path / "catalog.db") as catalog:
        with pytest.MonkeyPatch.context() as patch:
            if moment == "before the move":
                patch.setattr("registry.publishing.publish.place_folder", _away)
            else:
                patch.setattr("registry.catalog.writes.publish", _away)
            with pytest.raises(CatalogUnavailableError):
                catalog.build(Read(), processes=1)
        script = RACER.format(tests=str(TESTS), catalog=str(tmp_path / "catalog.db"), start=time.time() + 2)
        # Both wait for a lock as long as it takes.
        environment = {**os.environ, "REGISTRY_LOCK_TIMEOUT": "60"}
        racers = [
            warm_python.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
            for _ in range(2)
        ]
        outcomes = [json.loads(one.communicate()[0]) for one in racers]
        assert sorted(newly for newly, _ in outcomes) == [False, True]
        assert min(calls for _, calls in outcomes) == 0, "one of them uses what is there"
        assert [one.action for one in catalog.log(dataset="read")] == ["publish"]
        assert catalog.dataset("read").verify(deep=True).faults == ()
    assert left_behind(tmp_path) == []


def test_after_ctrl_c_a_note_says_where_the_shards_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    with registry.connect(tmp_path / "catalog.db") as catalog:
        with monkeypatch.context() as patch:
            patch.setattr("registry.publishing.publish.place_folder", interrupt)
            with (
                pytest.warns(
                    registry.RegistryWarning, match=r"^The finished shards stay in .*/incomplete\.\w+_1\.0\.0: "
                ),
                pytest.raises(KeyboardInterrupt),
            ):
                catalog.build(Read(), processes=1)
        assert catalog.build(Read(), processes=1, finished=True).newly
    assert CALLS == ["train"]


def test_a_dry_run_of_a_build_leaves_finished_shards_alone(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("registry.publishing.publish.place_folder", _away)
            with pytest.raises(CatalogUnavailableError):
                catalog.build(Read(), processes=1)
        assert catalog.preview_build(Read(), processes=1) is not None
        assert catalog.build(Read(), processes=1, finished=True).newly
    assert CALLS == ["train", "train"]
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("processes", [2, None])
def test_a_build_with_workers_is_published_by_the_next_one(tmp_path: Path, processes: int | None) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("registry.publishing.publish.place_folder", _away)
            with pytest.raises(CatalogUnavailableError):
                catalog.build(Read(), processes=processes)
        assert catalog.build(Read(), processes=1, finished=True).newly, "the number of processes does not matter"
    assert CALLS == ["train"]


@pytest.mark.parametrize("builder", [ReadInWorkers, Pictures])
def test_what_worker_processes_have_made_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, builder: type[Read]
) -> None:
    import PIL.Image

    monkeypatch.chdir(tmp_path)
    with registry.connect(tmp_path / "catalog.db") as catalog:
        (tmp_path / "numbers.txt").write_text("3")
        PIL.Image.new("L", (1, 1), 3).save("n.png")
        with monkeypatch.context() as patch:
            patch.setattr("registry.publishing.publish.place_folder", _away)
            with pytest.raises(CatalogUnavailableError):
                catalog.build(builder, processes=2)
        (tmp_path / "numbers.txt").unlink()
        Path("n.png").unlink()
        assert catalog.build(builder, processes=2, finished=True).newly
        assert {int(one["number"].item()) for one in catalog.dataset("read").read("train")} == {3}
