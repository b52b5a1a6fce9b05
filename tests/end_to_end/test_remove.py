"""``Catalog.remove``: the files of a dropped version go, everywhere that is known, and nothing else does."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.catalog_clocks import set_clocks
from support.prepared_samples import animals, prepare
from support.ready_catalogs import copy_built

import registry
from registry import Catalog
from registry.catalog import RemovalStep
from registry.cli.main import run
from registry.columns import ColumnWriter
from registry.errors import ConflictError, StorageError, UsageError, VersionExistsError, VersionWithdrawnError
from registry.model import Attachment, DatasetVersion
from registry.publishing import copying, removal
from registry.publishing.attachments import attach
from registry.publishing.removal import Remover
from registry.storage import open_store
from registry.storage.local import LocalStore


def build(folder: Path) -> None:
    with registry.connect(folder / "catalog.db", data_dir=folder / "data") as opened:
        opened.add({"train": {"value": [1, 2, 3]}, "test": {"value": [7]}}, "numbers")
        opened.dataset("numbers").compute_statistics()
        opened.lifecycle.drop("numbers:1.0.0", reason="a person asked")


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """A catalog with numbers:1.0.0, which is dropped and has an attachment."""
    copy_built(build, tmp_path)
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "cache"))
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as opened:
        yield opened


def below(folder: Path) -> list[str]:
    """The names of everything below a folder."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def require_removed(catalog: Catalog, reference: str = "numbers:1.0.0") -> None:
    """No file of a version is left, its tombstone says so, and nothing brings it back."""
    again = catalog.remove(reference, now=True).require_all()
    assert (again.removal.step, again.removal.is_change) == (RemovalStep.ENDED, False)
    assert sum(place.num_files for place in again.places) == 0
    with pytest.raises(VersionWithdrawnError, match="removed its files at"):
        catalog.dataset(reference)
    with pytest.raises(VersionExistsError, match="removed its files at"):
        catalog.lifecycle.undo("drop", reference)
    catalog.verify_log().require_sound()


def test_every_file_that_the_catalog_records_goes(catalog: Catalog, tmp_path: Path) -> None:
    planned = catalog.remove("numbers:1.0.0", now=True, dry_run=True)
    assert [(place.num_files, place.left) for place in planned.places] == [(6, ())]
    assert len([path for path in (tmp_path / "data").rglob("*") if path.is_file()]) == 6
    report = catalog.remove("numbers:1.0.0", now=True).require_all()
    assert report.places == planned.places
    assert below(tmp_path / "data") == ["numbers"]
    require_removed(catalog)
    assert catalog.usage().total.num_bytes == 0
    assert catalog.collect_garbage().of("unknown") == ()
    assert len(catalog.verify_all()) == 0


def test_a_pin_stays_valid_and_its_audit_says_who_removed_the_files(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.publish(prepare(tmp_path / "given", shards=2))
        catalog.dataset("animals").pin({"all": "train"}).save(tmp_path / "paper.lock.yaml")
        pins = registry.load_pin(tmp_path / "paper.lock.yaml")
        copy = shutil.copytree(tmp_path / "data", tmp_path / "copy")
        catalog.lifecycle.drop("animals:1.0.0", reason="a person asked")
        with pytest.raises(ConflictError, match=r"^animals:1\.0\.0 is in use: animals:1\.0\.0"):
            catalog.remove("animals:1.0.0", now=True, uses=[pin.reference for pin in pins.values()])
        catalog.remove("animals:1.0.0", now=True).require_all()
        [audited] = catalog.pins.audit(pins)
        assert "a person asked; " in audited.message
        assert " removed its files at " in audited.message
        assert registry.load_pin(tmp_path / "paper.lock.yaml", data_dir=copy)["all"].verify().faults == ()


def test_a_number_is_never_used_again_and_the_content_is_published_under_a_higher_one(catalog: Catalog) -> None:
    catalog.remove("numbers:1.0.0", now=True)
    report = catalog.add({"train": {"value": [1, 2, 3]}, "test": {"value": [7]}}, "numbers", bump="patch")
    assert str(report.reference) == "numbers:1.0.1"
    assert catalog.dataset("numbers:1.0.1").verify().faults == ()
    require_removed(catalog)


def test_the_same_files_are_not_published_again(tmp_path: Path) -> None:
    folder = prepare(tmp_path / "given", shards=2)
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.publish(folder)
        catalog.lifecycle.drop("animals:1.0.0", reason="wrong")
        catalog.remove("animals:1.0.0", now=True)
        with pytest.raises(VersionExistsError, match=r"^animals:1\.0\.0 is dropped: wrong; .* removed its files at"):
            catalog.publish(folder)
        require_removed(catalog, "animals:1.0.0")
        assert below(tmp_path / "data") == ["animals"]


def test_garbage_collection_removes_the_files_when_the_grace_time_has_passed(catalog: Catalog, tmp_path: Path) -> None:
    catalog.remove("numbers:1.0.0", grace="2d")
    [removal] = [leftover for leftover in catalog.collect_garbage() if leftover.kind == "removal"]
    assert (removal.outcome, removal.num_files) == ("kept", 0)
    assert len(below(tmp_path / "data/numbers/1.0.0")) == 7
    with set_clocks(timedelta(days=3)):
        [removal] = [leftover for leftover in catalog.collect_garbage(dry_run=True) if leftover.kind == "removal"]
        assert (removal.outcome, removal.name) == ("found", "numbers:1.0.0")
        [removal] = [leftover for leftover in catalog.collect_garbage() if leftover.kind == "removal"]
        assert removal.outcome == "removed"
        assert below(tmp_path / "data") == ["numbers"]
        require_removed(catalog)


@pytest.mark.usefixtures("own_temporary_folder")
def test_retention_removes_what_was_dropped_long_ago_and_nothing_that_is_in_use(
    catalog: Catalog, tmp_path: Path
) -> None:
    for name in ("named", "cited", "guarded", "other"):
        catalog.add({"value": [4, 5]}, name)
        if name == "named":
            catalog.aliases.set("paper", "named:1.0.0")
        catalog.lifecycle.drop(f"{name}:1.0.0", reason="old")
    catalog.lifecycle.protect("guarded")
    policy: dict[str, Any] = {"dropped_after": "90d", "datasets": ["n*", "cited", "guarded"], "uses": ["cited:1.0.0"]}
    before, events = below(tmp_path / "data"), len(list(catalog.log()))
    report = catalog.collect_garbage(**policy)
    assert {leftover.name for leftover in report.of("kept")} == {
        "numbers:1.0.0",
        "named:1.0.0",
        "cited:1.0.0",
        "guarded:1.0.0",
    }
    assert report.of("removed") == ()
    assert (below(tmp_path / "data"), len(list(catalog.log()))) == (before, events)  # nothing is planned, either

    with set_clocks(timedelta(days=91)):
        planned = catalog.collect_garbage(**policy, dry_run=True)
        assert [leftover.name for leftover in planned.of("found")] == ["numbers:1.0.0"]
        assert (planned.of("found")[0].num_files, len(list(catalog.log()))) == (6, events)
        report = catalog.collect_garbage(**policy)
        assert [leftover.name for leftover in report.of("removed")] == ["numbers:1.0.0"]
        assert {leftover.name: leftover.why.partition("version: ")[2][:36] for leftover in report.of("kept")} == {
            "named:1.0.0": "named:1.0.0 is in use: the alias nam",
            "cited:1.0.0": "cited:1.0.0 is in use: cited:1.0.0",
            "guarded:1.0.0": "it is protected; registry remove rem",
        }
        assert [event.action for event in catalog.log()][-2:] == ["remove", "remove"]
        assert catalog.collect_garbage(**policy).of("removed") == ()
        require_removed(catalog)
    assert (tmp_path / "data" / "other" / "1.0.0").is_dir()


def test_a_grace_time_that_a_person_asked_for_is_not_shortened_by_retention(catalog: Catalog) -> None:
    catalog.remove("numbers:1.0.0", grace="200d")
    with set_clocks(timedelta(days=91)):
        assert catalog.collect_garbage(dropped_after="90d").of("removed") == ()
    with set_clocks(timedelta(days=201)):
        assert [it.name for it in catalog.collect_garbage(dropped_after="300d").of("removed")] == ["numbers:1.0.0"]


def test_a_retention_that_is_negative_or_about_nothing_is_refused(
    catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="dropped_after is negative"):
        catalog.collect_garbage(dropped_after=timedelta(days=-1))
    assert run(["gc", "--dataset", "lab_*", "--catalog", catalog.url]) == 2
    assert "--dataset and --uses need --dropped-after" in capsys.readouterr().err
    assert run(["gc", "--dropped-after", "0", "--dataset", "numbers", "--catalog", catalog.url]) == 0
    assert "removal" in capsys.readouterr().out
    require_removed(catalog)


def test_garbage_collection_leaves_what_is_only_dropped(catalog: Catalog, tmp_path: Path) -> None:
    before = below(tmp_path / "data")
    catalog.collect_garbage(older_than="0s").require_all()
    assert below(tmp_path / "data") == before
    catalog.lifecycle.undo("drop", "numbers:1.0.0")
    assert catalog.dataset("numbers").verify().faults == ()


def test_unknown_files_and_links_are_left_and_named(catalog: Catalog, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "data/numbers/1.0.0", tmp_path / "elsewhere"
    (folder / "LICENSE").write_text("mine")
    (folder / "notes").mkdir()
    (folder / "notes/a.txt").write_text("mine")
    [shard, *_] = sorted(folder.glob("*train.tfrecord*"))
    elsewhere.write_bytes(shard.read_bytes())
    shard.unlink()
    shard.symlink_to(elsewhere)
    [place] = catalog.remove("numbers:1.0.0", now=True).require_all().places
    assert place.left == ("LICENSE", "notes/a.txt", shard.name)
    assert below(folder) == ["LICENSE", "notes", "notes/a.txt", shard.name]
    assert elsewhere.exists()
    require_removed(catalog)


@pytest.mark.parametrize("inside", [True, False])
def test_a_folder_that_became_a_link_is_left(catalog: Catalog, tmp_path: Path, inside: bool) -> None:
    folder = tmp_path / "data/numbers/1.0.0"
    moved = folder.rename(tmp_path / "data/other" if inside else tmp_path / "other")
    folder.symlink_to(moved)
    before = below(moved)
    report = catalog.remove("numbers:1.0.0", now=True)
    with pytest.raises(StorageError, match="a link leads to another folder" if inside else "leads out of"):
        report.require_all()
    assert report.removal.step is RemovalStep.BEGUN
    if inside:
        [place] = catalog.remove("numbers:1.0.0", now=True, force=True).require_all().places
        assert place.why_left == "a link leads to another folder"
        require_removed(catalog)
    assert below(moved) == before


def test_a_place_that_is_not_on_this_machine_is_not_taken_for_cleared(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.publish(prepare(tmp_path / "given", shards=2))
        mirror = shutil.copytree(tmp_path / "data/animals/1.0.0", tmp_path / "mirror")
        catalog.mirrors.add("animals", mirror)
        catalog.lifecycle.drop("animals:1.0.0", reason="wrong")
        for place in (tmp_path / "data", tmp_path / "data/animals", mirror):
            away = place.rename(tmp_path / "away")
            report = catalog.remove("animals:1.0.0", now=True)
            assert report.removal.step is RemovalStep.BEGUN
            with pytest.raises(StorageError, match="cannot be cleared: it is not on this machine") as refused:
                report.require_all()
            assert refused.value.hint == "If its files are gone or may remain, continue with force=True."
            away.rename(place)
            if place == mirror:
                (tmp_path / "mirror").rename(tmp_path / "gone")
                assert catalog.remove("animals:1.0.0", now=True, force=True).removal.step is RemovalStep.ENDED


def test_a_folder_with_the_name_of_a_shard_is_left(catalog: Catalog, tmp_path: Path) -> None:
    [shard, *_] = sorted((tmp_path / "data/numbers/1.0.0").glob("*train.tfrecord*"))
    shard.unlink()
    shard.mkdir()
    (shard / "mine.txt").write_text("mine")
    catalog.remove("numbers:1.0.0", now=True).require_all()
    assert below(shard) == ["mine.txt"]


def test_mirrors_are_cleared_and_former_locations_are_named(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.publish(prepare(tmp_path / "given", shards=2))
        folder = tmp_path / "data/animals/1.0.0"
        mirror, former = shutil.copytree(folder, tmp_path / "mirror"), shutil.copytree(folder, tmp_path / "former")
        catalog.mirrors.add("animals", mirror)
        catalog.mirrors.add("animals", former)
        catalog.mirrors.remove("animals", former)
        catalog.lifecycle.drop("animals:1.0.0", reason="wrong")
        places = catalog.remove("animals:1.0.0", now=True).require_all().places
        assert [(place.place, place.why_left) for place in places] == [
            (str(folder), ""),
            (str(mirror), ""),
            (str(former), "it is no longer a location of the version"),
        ]
        # A mirror may have descriptions of somebody else: nothing says whose they are.
        assert below(mirror) == ["dataset_info.json", "features.json", "kind.labels.txt"]
        assert not folder.exists()
        assert len(below(former)) > 2
        require_removed(catalog, "animals:1.0.0")


def test_files_that_were_published_in_place_are_left(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        folder = prepare(tmp_path / "mine/animals/1.0.0", shards=2)
        before = below(folder)
        catalog.import_tfds(tmp_path / "mine")
        dataset = catalog.dataset("animals:1.0.0")
        notes = Attachment.of("notes", "notes.txt", b"notes")
        attach(catalog.backend, open_store(catalog.data_dir), dataset.facts, notes, b"notes", actor="ann")
        catalog.lifecycle.drop("animals:1.0.0", reason="wrong")
        places = catalog.remove("animals:1.0.0", now=True).require_all().places
        assert [(place.num_files, place.why_left[:27]) for place in places] == [
            (0, "it was published in place, "),
            (1, ""),
        ]
        assert (below(folder), below(tmp_path / "data")) == (before, ["animals"])
        require_removed(catalog, "animals:1.0.0")


def test_a_folder_that_two_versions_share_keeps_the_files_of_the_other(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        for name, age in (("one", 1), ("two", 2)):
            catalog.publish(prepare(tmp_path / name, name=name, splits={"train": animals(9, age=age)}, shards=2))
        mirror = shutil.copytree(tmp_path / "data/one/1.0.0", tmp_path / "mirror")
        shutil.copytree(tmp_path / "data/two/1.0.0", mirror, dirs_exist_ok=True)
        catalog.mirrors.add("one", mirror)
        catalog.mirrors.add("two", mirror)
        catalog.lifecycle.drop("one:1.0.0", reason="wrong")
        catalog.remove("one:1.0.0", now=True).require_all()  # other names in one folder
        assert {name.partition("-")[0] for name in below(mirror) if "tfrecord" in name} == {"two"}
        assert {"dataset_info.json", "features.json"} < set(below(mirror))
        assert all(report.is_sound for report in catalog.mirrors.check("two"))


def test_files_that_another_version_names_are_removed_only_if_it_is_forced(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        for number in ("1.0.0", "1.0.1"):
            catalog.publish(prepare(tmp_path / number, version=number, shards=2))
        mirror = shutil.copytree(tmp_path / "data/animals/1.0.0", tmp_path / "mirror")
        for number in ("1.0.0", "1.0.1"):
            catalog.mirrors.add(f"animals:{number}", mirror)
        catalog.lifecycle.drop("animals:1.0.0", reason="wrong")
        before = below(tmp_path / "data"), below(mirror)
        with pytest.raises(ConflictError) as refused:
            catalog.remove("animals:1.0.0", now=True)
        assert refused.value.message == "the files of animals:1.0.0 are in use by animals:1.0.1"
        assert refused.value.details == {"versions": ["animals:1.0.1"]}
        assert (below(tmp_path / "data"), below(mirror)) == before
        assert catalog.lifecycle.drop("animals:1.0.0", reason="still wrong").is_change  # the removal has not begun
        catalog.remove("animals:1.0.0", now=True, force=True).require_all()
        descriptions = ["dataset_info.json", "features.json", "kind.labels.txt"]
        assert [name for name in below(mirror) if not name.startswith(".attachments")] == descriptions
        assert catalog.dataset("animals:1.0.1").verify().faults == ()
        require_removed(catalog, "animals:1.0.0")
        catalog.lifecycle.drop("animals:1.0.1", reason="wrong")
        catalog.remove("animals:1.0.1", now=True).require_all()  # the other one is removed
        assert below(mirror) == descriptions


def test_a_version_that_is_not_dropped_is_refused(catalog: Catalog) -> None:
    catalog.lifecycle.undo("drop", "numbers:1.0.0")
    with pytest.raises(ConflictError) as refused:
        catalog.remove("numbers:1.0.0", now=True)
    assert refused.value.message == "numbers:1.0.0 is canonical: only the files of a dropped version can be removed"
    assert refused.value.hint == "Drop it first: registry drop numbers:1.0.0 --reason TEXT"
    assert catalog.dataset("numbers").verify().faults == ()


def test_a_grace_time_and_now_are_not_given_together(catalog: Catalog) -> None:
    for options in ({"now": True, "grace": "1d"}, {"grace": "soon"}, {"grace": timedelta(days=-1)}):
        with pytest.raises(UsageError):
            catalog.remove("numbers:1.0.0", **options)  # type: ignore[arg-type]


def test_a_place_that_cannot_be_cleared_is_cleared_by_the_same_call_later(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: LocalStore, name: str) -> None:
        raise StorageError(f"{name} is locked")

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "remove", refuse)
        report = catalog.remove("numbers:1.0.0", now=True)
        assert (report.removal.step, report.places[0].num_files) == (RemovalStep.BEGUN, 0)
        with pytest.raises(StorageError, match="is locked"):
            report.require_all()
        [failed] = [leftover for leftover in catalog.collect_garbage() if leftover.kind == "removal"]
        assert failed.outcome == "failed"
    [done] = [leftover for leftover in catalog.collect_garbage() if leftover.kind == "removal"]
    assert done.outcome == "removed"
    assert below(tmp_path / "data") == ["numbers"]
    require_removed(catalog)


def test_a_copy_of_the_data_directory_is_not_taken_for_the_recorded_one(catalog: Catalog, tmp_path: Path) -> None:
    copy = shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with registry.connect(tmp_path / "catalog.db", data_dir=copy) as other:
        other.remove("numbers:1.0.0", now=True).require_all()
    assert below(tmp_path / "data") == ["numbers"]
    assert len(below(copy)) == 9


def test_the_cache_of_this_machine_forgets_the_files(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "100MB")
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as catalog:
        catalog.add({"train": {"value": [1, 2, 3]}}, "numbers")
        assert len(list(catalog.dataset("numbers").read("train"))) == 3
        assert registry.cache().usage().num_blocks == 1
        catalog.lifecycle.drop("numbers:1.0.0", reason="a person asked")
        catalog.remove("numbers:1.0.0", now=True).require_all()
        assert registry.cache().usage().num_blocks == 0
        assert [entry.name for entry in open_store(f"{bucket}/data").scan()] == []
        require_removed(catalog)


def test_the_cache_of_this_machine_forgets_decoded_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "100MB")

    def interrupt(_: ColumnWriter) -> None:
        raise OSError("interrupted")

    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        for name, values in (("numbers", [1, 2, 3]), ("others", [4, 5, 6])):
            catalog.add({"train": {"value": values}}, name)
        dataset = catalog.dataset("numbers")
        with monkeypatch.context() as patch:
            patch.setattr(ColumnWriter, "finish", interrupt)
            with pytest.raises(StorageError, match="interrupted"):
                dataset.keep_columns()
        interrupted = below(tmp_path / "cache")
        catalog.lifecycle.drop("numbers:1.0.0", reason="a person asked")
        catalog.remove("numbers:1.0.0", now=True).require_all()
        assert len(interrupted) > 4
        assert [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()] == ["size"]
        catalog.add({"train": {"value": [1, 2, 3]}}, "again")
        for name in ("again", "others"):
            catalog.dataset(name).keep_columns()
        reader = catalog.dataset("again").read("train", copy=False)
        views = [batch["value"] for batch in reader.batches(2)]
        values = [view.tolist() for view in views]
        catalog.lifecycle.drop("again:1.0.0", reason="a person asked")
        catalog.remove("again:1.0.0", grace="1d").require_all()
        assert registry.cache().usage().num_columns == 2
        catalog.remove("again:1.0.0", now=True).require_all()
        assert registry.cache().usage().num_columns == 1
        assert [view.tolist() for view in views] == values
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert catalog.dataset("others").keep_columns().num_new_columns == 0


def test_an_attachment_that_another_version_names_at_a_shared_mirror_stays(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        mirror = tmp_path / "mirror"
        for name in ("cats", "dogs"):
            catalog.add([{"legs": 4}], name)
            shutil.copytree(tmp_path / f"data/{name}/1.0.0", mirror, dirs_exist_ok=True)
            catalog.mirrors.add(name, mirror)
        catalog.lifecycle.drop("cats:1.0.0", reason="wrong")
        catalog.remove("cats:1.0.0", now=True).require_all()
        shutil.rmtree(tmp_path / "data/dogs")
        assert catalog.dataset("dogs").statistics["train"]["legs"].mean == 4
        assert not list(mirror.glob("cats-*"))


def test_a_plan_forgets_force_so_gc_keeps_files_that_others_use_by_now(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.publish(prepare(tmp_path / "given", shards=2))
        catalog.lifecycle.drop("animals:1.0.0", reason="wrong")
        assert catalog.remove("animals:1.0.0", grace="1s", force=True).removal.step is RemovalStep.PLANNED
        catalog.import_tfds(tmp_path / "data/animals/1.0.0", name="others")
        with set_clocks(timedelta(days=1)):
            catalog.collect_garbage()
        assert catalog.dataset("others").verify().faults == ()


def test_a_removal_that_another_process_ended_meanwhile_is_no_error(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Remover._places

    def come_late(self: Remover, version: DatasetVersion) -> Iterator[tuple[str, str]]:
        monkeypatch.setattr(Remover, "_places", places)
        assert catalog.remove("numbers:1.0.0", now=True).require_all().removal.step is RemovalStep.ENDED
        return places(self, version)

    monkeypatch.setattr(Remover, "_places", come_late)
    assert catalog.remove("numbers:1.0.0", now=True).require_all().removal.step is RemovalStep.ENDED
    require_removed(catalog)


@pytest.mark.parametrize("step", ["_take_others", "_attach_others"])
def test_a_copy_brings_no_file_back_into_a_version_whose_removal_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    going_on = getattr(copying._Copy, step)
    with (
        registry.connect(tmp_path / "source.db", data_dir=tmp_path / "source") as source,
        registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog,
    ):
        source.add([{"legs": 4}], "cats")
        source.copy("cats", catalog)
        [shard] = (tmp_path / "data/cats/1.0.0").glob("*tfrecord*")
        shard.unlink()

        def come_late(*arguments: Any, **options: Any) -> Any:
            monkeypatch.setattr(copying._Copy, step, going_on)
            catalog.lifecycle.drop("cats:1.0.0", reason="a person asked")
            catalog.remove("cats:1.0.0", now=True).require_all()
            return going_on(*arguments, **options)

        monkeypatch.setattr(copying._Copy, step, come_late)
        [copied] = source.copy("cats", catalog)
        assert "removed its files at" in (str(copied.error) if copied.error else " ".join(copied.notes))
        assert [path for path in (tmp_path / "data").rglob("*") if path.is_file()] == []
        require_removed(catalog, "cats:1.0.0")


def test_files_that_another_version_names_stay_if_the_dataset_is_renamed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = removal.find_neighbours
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        for name in ("cats", "dogs"):
            catalog.publish(prepare(tmp_path / name, name=name, shards=2))
        catalog.import_tfds(tmp_path / "data/cats/1.0.0", name="lions")
        catalog.lifecycle.drop("cats:1.0.0", reason="wrong")
        before = below(tmp_path / "data")

        def rename_first(*arguments: Any, **options: Any) -> Any:
            monkeypatch.setattr(removal, "find_neighbours", find)
            catalog.rename("cats", "house_cats")
            return find(*arguments, **options)

        monkeypatch.setattr(removal, "find_neighbours", rename_first)
        for message in (r"^cats:1\.0\.0 was renamed in the meantime", r"are in use by lions:1\.0\.0"):
            with pytest.raises(ConflictError, match=message):
                catalog.remove("cats:1.0.0", now=True)
        assert below(tmp_path / "data") == before
