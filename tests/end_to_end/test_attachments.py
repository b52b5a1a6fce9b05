"""Documents of folds that are attached to versions, from the records to a reader."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import TESTS
from support.attached_folds import KIND, NAME, attach_counts, attach_nothing, document
from support.killed_attachments import NOTES, attach_notes
from support.prepared_samples import animals, prepare

import registry
from registry import Catalog
from registry.catalog import catalog_identity
from registry.cli.main import run
from registry.errors import ConflictError, NotFoundError, NotStoredError, ShardMismatchError
from registry.model import Attachment
from registry.publishing.attachments import CLAIM_SUFFIX, attach
from registry.publishing.garbage import GarbageCollector, Leftover
from registry.storage import open_store
from registry.storage.staged import owner_text


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
        [note] = publication.notes
        assert note.startswith("its counts were not attached, because its folder cannot be written: ")
        assert note.endswith("registry stats animals:1.0.0 --compute")
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
    assert caught.value.hint == "Its attachments are: counts/counts.json."


def test_show_lists_attachments_if_there_are_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(tmp_path) as catalog:
        [attachment] = add(catalog).attachments
        attach_nothing(monkeypatch)
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


def leftovers(catalog: Catalog) -> list[tuple[str, str]]:
    """What the garbage collector says without removing something, without a grace period."""
    return [(one.kind, one.outcome.value) for one in collected(catalog, dry_run=True)]


def collected(catalog: Catalog, *, dry_run: bool = False) -> list[Leftover]:
    """What the garbage collector says about the data directory."""
    report = catalog.collect_garbage(older_than="0", dry_run=dry_run)
    return [one for one in report.require_all() if one.kind not in ("cache", "temporary")]


def kill(tmp_path: Path, *arguments: str, data_dir: str = "") -> None:
    """Run the program that is killed."""
    command = [sys.executable, "-m", "support.killed_attachments", str(tmp_path / "catalog.db")]
    command += [data_dir or str(tmp_path / "catalog.data"), *arguments]
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(TESTS)}, check=False)
    assert ended.returncode == 9


@pytest.mark.parametrize(("call", "when"), [("put", "before"), ("put", "after"), ("row", "before"), ("row", "after")])
@pytest.mark.parametrize("goes_on", [False, True])
def test_after_a_kill_the_next_call_attaches_or_gc_removes_what_was_left(
    tmp_path: Path, call: str, when: str, goes_on: bool
) -> None:
    with connect(tmp_path) as catalog:
        dataset = add(catalog)
        kill(tmp_path, "attach", call, when)
        has_row = (call, when) == ("row", "after")
        assert len(dataset.attachments) == 1 + has_row
        assert dataset.verify().faults == ()
        assert leftovers(catalog) == [("attachment", "found")]
        if goes_on:
            assert attach_notes(catalog) is not has_row
        else:
            assert len(collected(catalog)) == 1
        assert leftovers(catalog) == []
        assert len(files_of(dataset)) == len(dataset.attachments) == 1 + (has_row or goes_on)
        assert dataset.verify().faults == ()
        assert catalog.verify_log().faults == ()


@pytest.mark.parametrize(("call", "when"), [("put", "before"), ("put", "after"), ("publish", "before")])
def test_after_a_kill_the_next_addition_publishes_with_its_attachments(tmp_path: Path, call: str, when: str) -> None:
    with connect(tmp_path) as catalog:
        kill(tmp_path, "add", call, when)
        assert not (tmp_path / "catalog.db").exists() or catalog.datasets() == ()
        report = catalog.add({"train": {"value": [1, 2, 3]}, "test": {"value": [7]}}, "numbers")
        dataset = catalog.dataset(str(report.reference))
        assert dataset.read_attachment(KIND, NAME) == document({"train": 3, "test": 1})
        assert len(files_of(dataset)) == 1
        assert leftovers(catalog) == []


def test_gc_names_what_it_cannot_judge_and_keeps_attachments(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        dataset = add(catalog)
        [file] = files_of(dataset)
        stranger = file.with_name("0" * 64 + "_of_another_catalog.json")
        stranger.write_bytes(b"?")
        [extra] = collected(catalog)
        assert (extra.kind, extra.outcome, extra.filenames) == ("extra", "unknown", (f".attachments/{stranger.name}",))
        assert files_of(dataset) == sorted([file, stranger])


def test_a_claim_of_another_catalog_is_left_alone(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        add(catalog)
        kill(tmp_path, "attach", "row", "before")
    shutil.copytree(tmp_path / "catalog.data", tmp_path / "other.data")
    with registry.connect(tmp_path / "other.db", data_dir=tmp_path / "other.data") as other:
        other.publish(tmp_path / "other.data" / "numbers" / "1.0.0")
        assert leftovers(other) == [("attachment", "unknown")]


def test_du_counts_attachments_once(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        dataset = add(catalog)
        folder = tmp_path / "catalog.data" / "numbers" / "1.0.0"
        size = sum(file.stat().st_size for file in folder.rglob("*") if "tfrecord" in file.name or NAME in file.name)
        catalog.mirrors.add("numbers", shutil.copytree(folder, tmp_path / "mirror"))
        usage = catalog.usage(check=True)
        first, mirror = usage.versions
        assert (first.num_files, first.num_bytes) == (3, size)
        assert mirror.num_bytes == size - dataset.attachments[0].num_bytes
        assert usage.total.num_files == 5
        assert [stored.num_faults for stored in usage.stored] == [0, 0]


def test_a_mirror_has_the_attachments_if_the_folder_is_gone(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        dataset = add(catalog)
        folder = tmp_path / "catalog.data" / "numbers" / "1.0.0"
        catalog.mirrors.add("numbers", shutil.copytree(folder, tmp_path / "mirror"))
        shutil.rmtree(folder)
        assert catalog.dataset("numbers").read_attachment(KIND, NAME) == document({"train": 5, "test": 1})
        assert dataset.version is not None


def test_copies_between_catalogs_carry_rows_and_files(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog, connect(tmp_path, "lab") as lab:
        dataset = add(catalog)
        assert later(catalog, dataset, b"early")
        catalog.copy("numbers", lab).require_all()
        copied = lab.dataset("numbers")
        assert copied.attachments == dataset.attachments
        assert copied.read_attachment("notes", "notes.txt") == b"early"
        assert copied.read_attachment(KIND, NAME) == document({"train": 5, "test": 1})
        assert lab.verify_log().faults == ()
        assert copied.verify().faults == ()
        assert leftovers(lab) == []
        assert len(files_of(copied)) == 2


def test_a_second_copy_carries_what_was_attached_since(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog, connect(tmp_path, "lab") as lab:
        dataset = add(catalog)
        catalog.copy("numbers", lab).require_all()
        later(catalog, dataset, b"since then")
        [again] = catalog.copy("numbers", lab)
        assert (again.outcome, again.notes) == ("known", ())
        assert lab.dataset("numbers").read_attachment("notes", "notes.txt") == b"since then"
        assert lab.verify_log().faults == ()


def test_a_copy_says_why_an_attachment_could_not_be_read(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog, connect(tmp_path, "lab") as lab:
        [file] = files_of(add(catalog))
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
        [copied] = catalog.copy("numbers", lab)
        [note] = copied.notes
        assert note.startswith(f"the attachment {NAME} was not copied: {file} leads out of ")
        file.unlink()
        (tmp_path / "elsewhere").rename(file)
        [again] = catalog.copy("numbers", lab)
        assert (again.outcome, again.notes) == ("known", ())
        assert lab.dataset("numbers").verify().faults == ()


def test_a_copy_tells_of_attachments_that_it_cannot_take(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog, connect(tmp_path, "lab") as lab:
        dataset = add(catalog)
        [file] = files_of(dataset)
        file.write_bytes(b"damaged")
        [copied] = catalog.copy("numbers", lab)
        assert copied.outcome == "copied"
        assert copied.notes == (f"the attachment {NAME} was not copied: its file is damaged or missing",)
        assert lab.dataset("numbers").attachments == ()
        file.write_bytes(document({"train": 5, "test": 1}))
        assert later(lab, lab.dataset("numbers"), b"theirs")
        assert later(catalog, dataset, b"ours")
        [again] = catalog.copy("numbers", lab)
        assert [note.partition(":")[0] for note in again.notes] == ["the attachment notes.txt was not copied"]
        assert lab.dataset("numbers").read_attachment(KIND, NAME) == document({"train": 5, "test": 1})
        assert lab.dataset("numbers").read_attachment("notes", "notes.txt") == b"theirs"
        assert leftovers(lab) == []


def test_a_restored_catalog_reads_the_same_attachments(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        add(catalog)
    backup, restored = tmp_path / "backup.gz", tmp_path / "restored.db"
    assert run(["backup", str(backup), "--catalog", str(tmp_path / "catalog.db")]) == 0
    assert run(["restore", str(backup), "--catalog", str(restored)]) == 0
    with registry.connect(restored, data_dir=tmp_path / "catalog.data") as again:
        assert again.dataset("numbers").read_attachment(KIND, NAME) == document({"train": 5, "test": 1})


def test_a_damaged_folder_that_is_replaced_keeps_its_attachments(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        catalog.build("digits", processes=1)
        dataset = catalog.dataset("digits")
        assert later(catalog, dataset, b"kept")
        shard, *_ = Path(dataset.folder.removeprefix("file:")).glob("*.tfrecord-*")
        shard.write_bytes(b"damaged")
        catalog.build("digits", rebuild=True, processes=1)
        assert dataset.verify().faults == ()
        assert dataset.read_attachment("notes", "notes.txt") == b"kept"


def test_what_is_exported_for_tfds_has_no_attachments(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        exported = add(catalog).export_tfds(tmp_path / "exported")
        assert exported
        assert not list((tmp_path / "exported").rglob(".attachments"))


def test_in_a_bucket_attachments_are_put_in_place_with_the_shards(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **_options: object) -> None:
        raise KeyboardInterrupt

    with registry.connect(tmp_path / "catalog.db", data_dir=bucket, create=True) as catalog:
        with monkeypatch.context() as patched:
            patched.setattr(type(catalog.backend), "publish", die)
            with pytest.raises(KeyboardInterrupt):
                add(catalog)
        place = f"numbers/1.0.0/{Attachment.of(KIND, NAME, document({'train': 5, 'test': 1})).place}"
        assert open_store(bucket).exists(place)
        dataset = add(catalog)
        assert dataset.read_attachment(KIND, NAME) == document({"train": 5, "test": 1})
        assert dataset.verify().faults == ()
        assert leftovers(catalog) == []
        open_store(bucket).write_bytes(place, b"damaged", overwrite=True)
        assert len(dataset.verify().faults) == 1


def test_in_a_bucket_gc_removes_what_a_killed_program_was_about_to_attach(bucket: str, tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket, create=True) as catalog:
        dataset = add(catalog)
        kill(tmp_path, "attach", "row", "before", data_dir=bucket)
        assert leftovers(catalog) == [("attachment", "found")]
        assert len(collected(catalog)) == 1
        assert leftovers(catalog) == []
        assert attach_notes(catalog)
        assert dataset.verify().faults == ()
        with connect(tmp_path, "lab") as lab:
            catalog.copy("numbers", lab).require_all()
            assert lab.dataset("numbers").attachments == dataset.attachments
            assert lab.dataset("numbers").verify().faults == ()


def test_of_two_programs_that_attach_the_same_name_one_does_and_the_other_leaves_nothing(tmp_path: Path) -> None:
    with connect(tmp_path) as catalog:
        dataset = add(catalog)

    def attach_number(number: int) -> bool:
        with connect(tmp_path) as own:
            try:
                return later(own, dataset, b"%d" % (number % 2))
            except ConflictError:
                return False

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(attach_number, range(4))) == 1
    with connect(tmp_path) as catalog:
        dataset = catalog.dataset("numbers")
        assert dataset.read_attachment("notes", "notes.txt") in (b"0", b"1")
        assert len(files_of(dataset)) == len(dataset.attachments) == 2
        assert leftovers(catalog) == []
        assert catalog.verify_log().faults == ()


def test_gc_leaves_a_file_that_a_running_program_has_claimed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(tmp_path) as catalog:
        dataset = add(catalog)
        kill(tmp_path, "attach", "row", "before")
        remove, notes = GarbageCollector.remove, Attachment.of("notes", "notes.txt", NOTES)

        def claim_first(collector: GarbageCollector, leftover: Leftover) -> bool:
            claim = files_of(dataset)[0].with_name(f"{notes.sha256}_{notes.name}{CLAIM_SUFFIX}")
            claim.write_bytes(owner_text(catalog_identity(catalog.backend.log)))
            return remove(collector, leftover)

        with monkeypatch.context() as patched:
            patched.setattr(GarbageCollector, "remove", claim_first)
            assert [one.outcome.value for one in collected(catalog) if one.kind == "attachment"] == ["kept"]
        assert attach_notes(catalog)
        assert leftovers(catalog) == []
        assert dataset.verify().faults == ()
