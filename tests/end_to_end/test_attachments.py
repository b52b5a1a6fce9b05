"""Documents of folds that are attached to versions, from the records to a reader."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.attached_folds import KIND, NAME, attach_counts, document
from support.prepared_samples import animals, prepare

import registry
from registry import Catalog
from registry.cli.main import run
from registry.errors import ConflictError, NotFoundError, NotStoredError, ShardMismatchError
from registry.model import Attachment
from registry.publishing.attachments import attach
from registry.storage import open_store


@pytest.fixture(autouse=True)
def _counts(monkeypatch: pytest.MonkeyPatch) -> None:
    attach_counts(monkeypatch)


def connect(tmp_path: Path, name: str = "catalog") -> Catalog:
    return registry.connect(tmp_path / f"{name}.db", data_dir=tmp_path / f"{name}.data")


def add(catalog: Catalog, count: int = 5, **options: object) -> registry.Dataset:
    """Add numbers as ``numbers``."""
    report = catalog.add({"train": {"value": list(range(count))}, "test": {"value": [7]}}, "numbers", **options)
    return catalog.dataset(str(report.reference))


def files_of(dataset: registry.Dataset) -> list[Path]:
    return sorted(Path(dataset.folder.removeprefix("file:"), ".attachments").iterdir())


def test_what_is_added_has_the_documents_of_its_folds(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        dataset = add(catalog)
        expected = document({"train": 5, "test": 1})
        assert dataset.attachments == (Attachment.of(KIND, NAME, expected),)
        assert dataset.read_attachment(KIND, NAME) == expected
        [event] = (event for event in catalog.log() if event.action == "publish")
        assert event.details["attachments"][0]["name"] == NAME
        assert catalog.verify_log().faults == ()
        assert dataset.verify().faults == ()
        assert len(list(dataset.read("train"))) == 5


def test_what_is_built_has_the_documents_of_its_folds(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        catalog.build("digits", processes=1)
        dataset = catalog.dataset("digits")
        assert dataset.read_attachment(KIND, NAME) == document({"train": 1797})
        assert not catalog.build("digits", rebuild=True, processes=1).newly
        assert [file.name for file in files_of(dataset)] == [f"{dataset.attachments[0].sha256}_{NAME}"]


def test_a_folder_that_is_published_is_folded_from_its_shards(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        folder = prepare(tmp_path / "elsewhere", splits={"train": animals(5)})
        catalog.publish(folder)
        dataset = catalog.dataset("animals")
        assert dataset.read_attachment(KIND, NAME) == document({"train": 5})
        assert not (Path(folder) / ".attachments").exists()


def test_a_folder_of_the_data_directory_gets_its_documents_where_it_is(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        folder = Path(prepare(tmp_path / "elsewhere", splits={"train": animals(5)}))
        home = tmp_path / "catalog.data" / "animals" / "1.0.0"
        shutil.copytree(folder, home)
        catalog.publish(home)
        assert catalog.dataset("animals").read_attachment(KIND, NAME) == document({"train": 5})
        assert len(files_of(catalog.dataset("animals"))) == 1


def test_a_read_only_folder_of_the_data_directory_is_published_without_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(tmp_path) as catalog:
        home = tmp_path / "catalog.data" / "animals" / "1.0.0"
        shutil.copytree(prepare(tmp_path / "elsewhere", splits={"train": animals(5)}), home)
        (home / ".attachments").write_bytes(b"not a folder")
        publication = catalog.publish(home)
        assert publication.newly
        assert [note.partition(":")[0] for note in publication.notes] == ["nothing was attached"]
        assert catalog.dataset("animals").attachments == ()


def test_versions_in_place_get_their_attachments_later_in_the_data_directory(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        folder = Path(prepare(tmp_path / "elsewhere", splits={"train": animals(5)}))
        catalog.import_tfds(folder).require_all()
        dataset = catalog.dataset("animals")
        assert dataset.attachments == ()
        content = b"later"
        assert later(catalog, dataset, content)
        assert dataset.read_attachment("notes", "notes.txt") == content
        home = tmp_path / "catalog.data" / "animals" / "1.0.0" / ".attachments"
        assert [file.read_bytes() for file in home.iterdir()] == [content]
        assert not (folder / ".attachments").exists()
        assert dataset.verify().faults == ()


def later(catalog: Catalog, dataset: registry.Dataset, content: bytes) -> bool:
    attachment, data = Attachment.of("notes", "notes.txt", content), open_store(catalog.data_dir)
    return attach(catalog.backend, data, dataset.facts, attachment, content, actor="ann")


def test_a_later_attachment_is_attached_once_and_never_changes(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        dataset = add(catalog)
        assert later(catalog, dataset, b"first")
        assert not later(catalog, dataset, b"first")
        with pytest.raises(ConflictError):
            later(catalog, dataset, b"second")
        assert dataset.read_attachment("notes", "notes.txt") == b"first"
        assert [attachment.kind for attachment in dataset.attachments] == [KIND, "notes"]


@pytest.mark.parametrize("content", [b"", b"x" * 23, b"x" * 1000])
def test_a_damaged_attachment_is_never_returned(tmp_path: Path, content: bytes) -> None:
    with connect(tmp_path) as catalog:
        dataset = add(catalog)
        [file] = files_of(dataset)
        file.write_bytes(content)
        with pytest.raises(registry.RegistryError) as caught:
            dataset.read_attachment(KIND, NAME)
        assert file.name in str(caught.value)
        [fault] = dataset.verify().faults
        assert fault.filename == f".attachments/{file.name}"
        assert "mismatch: expected" in fault.problem
        assert catalog.verify_all().is_sound is False


def test_a_changed_byte_is_a_sha256_mismatch(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        dataset = add(catalog)
        [file] = files_of(dataset)
        file.write_bytes(file.read_bytes().replace(b"5", b"6"))
        with pytest.raises(ShardMismatchError, match=f"sha256 mismatch: expected {dataset.attachments[0].sha256}"):
            dataset.read_attachment(KIND, NAME)


def test_a_missing_attachment_says_where_it_belongs(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        dataset = add(catalog)
        [file] = files_of(dataset)
        file.unlink()
        with pytest.raises(NotStoredError) as caught:
            dataset.read_attachment(KIND, NAME)
        assert caught.value.message == f"the attachment {NAME} of numbers:1.0.0 is in none of its folders"
        [fault] = dataset.verify().faults
        assert fault.problem == f".attachments/{file.name}: no such file"


def test_an_unknown_attachment_names_the_others(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog, pytest.raises(NotFoundError) as caught:
        add(catalog).read_attachment("statistics", "statistics.json")
    assert caught.value.message == "numbers:1.0.0 has no attachment 'statistics/statistics.json'"
    assert caught.value.hint == "Attached are: counts/counts.json."


def test_show_lists_attachments_if_there_are_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(tmp_path) as catalog:
        [attachment] = add(catalog).attachments
        monkeypatch.undo()
        catalog.add({"value": [1]}, "others")
    options = ["--catalog", str(tmp_path / "catalog.db")]
    assert run(["show", "numbers", *options]) == 0
    assert "attachments  counts: counts.json, 23 B" in capsys.readouterr().out
    assert run(["show", "numbers", "--format", "json", *options]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["attachments"] == [
        {"kind": KIND, "name": NAME, "num_bytes": attachment.num_bytes, "sha256": attachment.sha256}
    ]
    assert run(["show", "others", "--format", "json", *options]) == 0
    assert "attachments" not in json.loads(capsys.readouterr().out)["data"]
