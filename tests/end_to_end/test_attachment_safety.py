"""What could lose or hide an attachment: names, kills, moves, places that do not answer, and sizes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.attached_folds import attach_nothing

import registry
from registry import Catalog
from registry.errors import ShardMismatchError, StorageUnavailableError, UsageError
from registry.model import Attachment
from registry.publishing import attachments
from registry.publishing.attachments import attach, attachment_folders, find_files
from registry.storage import StagedFolder, Store, open_store
from registry.storage.local import LocalStore

NOTES = b"some notes"


@pytest.fixture(autouse=True)
def _only_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    attach_nothing(monkeypatch)


def connect(tmp_path: Path, name: str = "catalog") -> Catalog:
    return registry.connect(tmp_path / f"{name}.db", data_dir=tmp_path / f"{name}.data")


def add(catalog: Catalog, name: str = "notes.txt") -> registry.Dataset:
    """Add numbers as ``numbers``, with an attachment."""
    report = catalog.add({"train": {"value": [1, 2, 3]}}, "numbers")
    dataset = catalog.dataset(str(report.reference))
    later(catalog, dataset, name)
    return dataset


def later(catalog: Catalog, dataset: registry.Dataset, name: str, content: bytes = NOTES) -> bool:
    attachment, data = Attachment.of("notes", name, content), open_store(catalog.data_dir)
    return attach(catalog.backend, data, dataset.facts, attachment, content, actor="ann")


def test_no_name_of_an_attachment_is_that_of_a_claim(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        dataset = add(catalog, "notes.txt.claim")
        later(catalog, dataset, "notes.txt")
        assert dataset.verify().faults == ()
        assert [file for file in catalog.collect_garbage(older_than="0") if file.kind == "attachment"] == []
        assert dataset.verify().faults == ()


@pytest.mark.parametrize("call", ["rename", "commit"])
def test_a_kill_while_a_damaged_folder_is_replaced_loses_no_attachment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """``rename`` moves the damaged folder aside, ``commit`` puts the new one into its place."""
    with connect(tmp_path) as catalog:
        catalog.build("digits", processes=1)
        dataset = catalog.dataset("digits")
        later(catalog, dataset, "notes.txt")
        shard, *_ = Path(dataset.folder.removeprefix("file:")).glob("*.tfrecord-*")
        shard.write_bytes(b"damaged")
        rename, commit = LocalStore.rename_folder, StagedFolder.commit

        def rename_last(store: LocalStore, staged: str, final: str) -> None:
            rename(store, staged, final)
            if "damaged." in final:
                raise KeyboardInterrupt

        def commit_last(staged: StagedFolder) -> None:
            commit(staged)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            if call == "rename":
                patched.setattr(LocalStore, "rename_folder", rename_last)
            else:
                patched.setattr(StagedFolder, "commit", commit_last)
            with pytest.raises(KeyboardInterrupt):
                catalog.build("digits", rebuild=True, processes=1)
        with pytest.warns(registry.RegistryWarning, match="finished shards"):
            catalog.build("digits", rebuild=True, processes=1)
        catalog.collect_garbage(older_than="0").require_all()
        assert dataset.verify().faults == ()
        assert dataset.read_attachment("notes", "notes.txt") == NOTES


def test_what_is_too_large_to_be_read_is_not_attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(tmp_path) as catalog:
        dataset = add(catalog)
        monkeypatch.setattr(attachments, "MOST_BYTES", 20)
        with pytest.raises(UsageError, match=r"^the attachment large\.txt has 21 bytes, more than the 20 that"):
            later(catalog, dataset, "large.txt", b"x" * 21)
        assert later(catalog, dataset, "small.txt", b"x" * 20)
        assert [attachment.name for attachment in dataset.attachments] == ["notes.txt", "small.txt"]
        assert dataset.read_attachment("notes", "small.txt") == b"x" * 20


def test_a_folder_that_does_not_answer_does_not_make_an_attachment_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(tmp_path) as catalog:
        dataset = add(catalog)
        folder = tmp_path / "catalog.data" / "numbers" / "1.0.0"
        [attachment], data = dataset.attachments, open_store(catalog.data_dir)

        def be_away(store: Store, name: str) -> int:
            if store.locate(name).startswith(str(folder)):
                raise StorageUnavailableError(f"{name}: no answer")
            return original(store, name)

        original: Callable[[Store, str], int] = LocalStore.size
        monkeypatch.setattr(LocalStore, "size", be_away)
        with pytest.raises(StorageUnavailableError):
            find_files(data, dataset.facts, [attachment])
        catalog.mirrors.add("numbers", shutil.copytree(folder, tmp_path / "mirror"))
        facts = catalog.dataset("numbers").facts
        _, mirror = attachment_folders(data, facts)
        files, notes = find_files(data, facts, [attachment])
        assert ([file.url for file in files.values()], notes) == ([mirror.url], [])


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("place", ["catalog.data/moved", "elsewhere"])
def test_a_move_that_leaves_attachments_behind_is_refused(tmp_path: Path, place: str, every: bool) -> None:
    with connect(tmp_path) as catalog:
        dataset = add(catalog)
        folder, moved = tmp_path / "catalog.data" / "numbers" / "1.0.0", tmp_path / place
        shutil.copytree(folder, moved, ignore=shutil.ignore_patterns(".attachments"))

        def relocate() -> None:
            if every:
                catalog.mirrors.relocate_all(folder, moved).require_all()
            else:
                catalog.mirrors.relocate("numbers", moved)

        [attachment] = dataset.attachments
        for damage in (None, b"some n0tes"):
            if damage is not None:
                (moved / ".attachments").mkdir()
                (moved / attachment.place).write_bytes(damage)
            with pytest.raises(registry.RegistryError) as refused:
                relocate()
            assert attachment.place in str(refused.value)
            assert catalog.dataset("numbers").facts.locations == ("numbers/1.0.0",)
        shutil.copy(folder / attachment.place, moved / attachment.place)
        relocate()
        shutil.rmtree(folder)
        assert catalog.dataset("numbers").read_attachment("notes", "notes.txt") == NOTES
        assert catalog.dataset("numbers").verify().faults == ()


def test_mirrors_tell_of_damaged_attachments_and_of_the_last_place_that_has_them(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        [attachment] = add(catalog).attachments
        folder, mirror = tmp_path / "catalog.data" / "numbers" / "1.0.0", tmp_path / "mirror"
        catalog.mirrors.add("numbers", shutil.copytree(folder, mirror))
        shutil.copytree(folder, bare := tmp_path / "bare", ignore=shutil.ignore_patterns(".attachments"))
        catalog.mirrors.add("numbers", bare)
        assert all(report.is_sound for report in catalog.mirrors.check("numbers"))
        (mirror / attachment.place).write_bytes(b"damaged")
        assert [report.is_sound for report in catalog.mirrors.check("numbers")] == [True, False, True]
        shutil.move(folder / attachment.place, mirror / attachment.place)
        assert [report.is_sound for report in catalog.mirrors.check("numbers")] == [False, True, True]
        with pytest.raises(ShardMismatchError, match=f"without {mirror}, attachments of numbers:1.0.0 would be lost"):
            catalog.mirrors.remove("numbers", mirror)
        catalog.mirrors.remove("numbers", bare)
        shutil.copy(mirror / attachment.place, folder / attachment.place)
        catalog.mirrors.remove("numbers", mirror)
        assert catalog.dataset("numbers").read_attachment("notes", "notes.txt") == NOTES


def test_a_damaged_attachment_comes_with_what_to_do(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        dataset = add(catalog)
        assert dataset.verify().recovery == ""
        dataset.compute_statistics()
        folder = tmp_path / "catalog.data" / "numbers" / "1.0.0"
        notes, statistics = dataset.attachments
        (folder / notes.place).write_bytes(b"damaged")
        assert dataset.verify().recovery == "Restore the files of attachments from a copy of the folder."
        (folder / notes.place).write_bytes(NOTES)
        (folder / statistics.place).write_bytes(b"damaged")
        assert dataset.verify().recovery.splitlines()[1:] == [
            "To compute the statistics again: registry stats numbers:1.0.0 --compute"
        ]
        dataset.compute_statistics()
        assert dataset.verify().faults == ()
