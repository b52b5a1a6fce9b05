"""What could lose or hide an attachment: names, kills, moves, places that do not answer, and sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

import registry
from registry import Catalog
from registry.model import Attachment
from registry.publishing.attachments import attach
from registry.storage import StagedFolder, open_store
from registry.storage.local import LocalStore

NOTES = b"some notes"


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
        catalog.build("digits", rebuild=True, processes=1)
        catalog.collect_garbage(older_than="0").require_all()
        assert dataset.verify().faults == ()
        assert dataset.read_attachment("notes", "notes.txt") == NOTES
