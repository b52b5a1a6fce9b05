"""Imports a folder of prepared datasets into a catalog: every version is found, verified, and read in place."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import warm_python
from support.levels import cases
from support.prepared_samples import ANIMALS, animals, prepare
from support.web_server import serve

import registry
from registry.api.reports import ImportedVersion, ImportOutcome
from registry.engines import choice, workers
from registry.errors import (
    CatalogError,
    CatalogNotFoundError,
    ConfigNotFoundError,
    NotStoredError,
    PreparedFormatError,
    ReferenceSyntaxError,
    ShardMismatchError,
    StorageUnavailableError,
    UnknownFeatureWarning,
    UsageError,
    VersionExistsError,
    YankedVersionWarning,
)
from registry.features import FeaturesDict, Scalar
from registry.model import ATTACHMENTS_FOLDER, SlicingRule, Version
from registry.prepared import read_prepared
from registry.publishing import fingerprint
from registry.publishing.fingerprint import StoredSplits
from registry.publishing.proof import Prover
from registry.publishing.publish import Target
from registry.storage import open_store

GOLDEN = Path(__file__).parent.parent / "conformance" / "prepared"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[registry.Catalog]:
    with registry.connect(tmp_path / "catalog" / "catalog.db") as opened:
        yield opened


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A folder of TFDS as it looks after some years."""
    root = tmp_path / "tfds"
    prepare(root / "animals/1.0.0", "1.0.0", shards=3)
    prepare(root / "animals/1.1.0", "1.1.0", shards=2)
    prepare(root / "pets/plain/2.0.0", "2.0.0", name="pets", config="plain")
    prepare(root / "pets/tall/2.0.0", "2.0.0", {"train": animals(30)}, name="pets", config="tall")
    (root / "pets/.config").mkdir()
    (root / "pets/.config/metadata.json").write_text('{"default_config_name": "tall"}')
    shutil.copytree(root / "animals/1.1.0", root / "animals/incomplete.9C2FWQ_1.2.0")
    shutil.copytree(root / "animals/1.1.0", root / "animals/1.1.0.incompleteQ7XZ2B")  # as TFDS 3 called it
    shutil.copytree(root / "animals", root / "incomplete.3F9A")
    shutil.copytree(root / "animals/1.0.0", root / "downloads/animals/9.0.0")
    (root / "downloads/extracted").mkdir(parents=True)
    (root / "notes.txt").write_text("mine")
    return root


def outcomes(versions: Iterator[ImportedVersion]) -> dict[str, str]:
    return {str(one.reference): str(one.outcome) for one in versions}


def edit_info(folder: Path, **fields: object) -> None:
    """Change the dataset_info.json of a folder; None removes a field."""
    path = folder / "dataset_info.json"
    info = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in info.items() if value is not None}))


def test_every_version_of_a_data_dir_is_imported_in_place(catalog: registry.Catalog, data_dir: Path) -> None:
    assert outcomes(catalog.import_tfds(data_dir)) == dict.fromkeys(
        ["animals:1.0.0", "animals:1.1.0", "pets/plain:2.0.0", "pets/tall:2.0.0"], "imported"
    )
    assert not Path(catalog.data_dir).exists()
    animals_dataset = catalog.dataset("animals")
    assert (str(animals_dataset.version), animals_dataset.slicing) == ("1.1.0", SlicingRule.TFDS_4)
    assert animals_dataset.folder == (data_dir / "animals/1.1.0").as_uri()
    assert [example["age"] for example in animals_dataset.read("train[:3]")] == [0, 1, 2]
    assert not animals_dataset.verify(deep=True).faults


def test_the_default_config_is_the_one_that_tfds_wrote_down(catalog: registry.Catalog, data_dir: Path) -> None:
    list(catalog.import_tfds(data_dir))
    assert catalog.dataset("pets").config == "tall"


@pytest.mark.parametrize("copy", [False, True])
def test_a_dataset_that_gained_configs_comes_in_under_two_names(
    catalog: registry.Catalog, tmp_path: Path, copy: bool
) -> None:
    root = tmp_path / "tfds" / "gained"
    for version in ("0.0.1", "0.1.0"):
        prepare(root / version, version, {"train": animals(20)}, name="gained")
    prepare(root / "en/1.0.0", "1.0.0", {"train": animals(30)}, name="gained", config="en", shards=2)
    prepare(root / "de/1.0.0", "1.0.0", {"train": animals(40)}, name="gained", config="de")
    (root / ".config").mkdir()
    (root / ".config/metadata.json").write_text('{"default_config_name": "en"}')
    found = {str(one.reference): one for one in catalog.import_tfds(root.parent, copy=copy)}
    assert {name: str(one.outcome) for name, one in found.items()} == {
        "gained:0.0.1": "imported",
        "gained:0.1.0": "imported",
        "gained/de:1.0.0": "refused",
        "gained/en:1.0.0": "refused",
    }
    error = found["gained/en:1.0.0"].error
    assert (error.code, error.message) == (
        "conflict",
        "gained is published without configs, gained/en:1.0.0 comes with one",
    )
    assert error.hint == (
        "All versions of a dataset must have configs, or none of them. Import these under another name: "
        f"registry import tfds {root}/en --name gained_configs"
    )
    for config in ("en", "de"):
        assert outcomes(catalog.import_tfds(root / config, name="gained_configs", copy=copy)) == {
            f"gained_configs/{config}:1.0.0": "imported"
        }
    renamed = catalog.dataset("gained_configs")
    assert (renamed.config, renamed.splits["train"].num_examples) == ("en", 30)
    assert [file.filename for file in renamed.resolve("train")] == [
        "gained-train.tfrecord-00000-of-00002",
        "gained-train.tfrecord-00001-of-00002",
    ]
    assert [example["age"] for example in renamed.read("train[:3]")] == [0, 1, 2]
    assert not renamed.verify(deep=True).faults
    assert catalog.dataset("gained").version == Version(0, 1, 0)
    assert outcomes(catalog.import_tfds(root / "en", name="gained_configs", copy=copy)) == {
        "gained_configs/en:1.0.0": "known"
    }
    if copy:  # the copy says its new name, and a later import of it finds the same version
        with registry.connect(tmp_path / "other" / "catalog.db") as other:
            copied = Path(catalog.data_dir) / "gained_configs"
            assert outcomes(other.import_tfds(copied)) == dict.fromkeys(
                ["gained_configs/en:1.0.0", "gained_configs/de:1.0.0"], "imported"
            )
            assert other.dataset("gained_configs").config == "en"


def test_a_name_for_several_datasets_is_refused(catalog: registry.Catalog, data_dir: Path) -> None:
    with pytest.raises(UsageError) as caught:
        catalog.import_tfds(data_dir, name="both")
    assert caught.value.message == "the folder contains 2 datasets, animals, pets: both can name only one"
    with pytest.raises(ReferenceSyntaxError, match="invalid dataset name 'a/b'"):
        catalog.import_tfds(data_dir / "animals", name="a/b")


@pytest.mark.parametrize("copy", [False, True])
def test_a_default_config_that_cannot_be_read_is_noted_and_no_version_is_refused(
    catalog: registry.Catalog, data_dir: Path, copy: bool
) -> None:
    metadata = data_dir / "pets/.config/metadata.json"
    metadata.write_text('{"default_config_name": ')
    found = {str(one.reference): one for one in catalog.import_tfds(data_dir, copy=copy)}
    assert {one.outcome for one in found.values()} == {ImportOutcome.IMPORTED}
    note = (
        "cannot read which config is the default: "
        "pets/.config/metadata.json: invalid JSON: Expecting value in line 1, column 25"
    )
    assert [one.notes for one in found.values()] == [(), (), (note,), (note,)]
    metadata.write_text('{"default_config_name": "tall"}')
    assert [one.notes for one in catalog.import_tfds(data_dir / "pets", copy=copy)] == [(), ()]


def test_without_a_default_config_a_look_up_names_the_configs(catalog: registry.Catalog, data_dir: Path) -> None:
    shutil.rmtree(data_dir / "pets/.config")
    list(catalog.import_tfds(data_dir))
    with pytest.raises(ConfigNotFoundError) as error:
        catalog.dataset("pets")
    assert error.value.hint == "Name one: pets/plain, pets/tall."


@pytest.mark.parametrize(
    ("folder", "found"),
    [
        ("animals", ["animals:1.0.0", "animals:1.1.0"]),
        ("animals/1.0.0", ["animals:1.0.0"]),
        ("pets", ["pets/plain:2.0.0", "pets/tall:2.0.0"]),
        ("pets/tall", ["pets/tall:2.0.0"]),
        ("pets/tall/2.0.0", ["pets/tall:2.0.0"]),
    ],
)
def test_any_level_of_a_data_dir_may_be_given(
    catalog: registry.Catalog, data_dir: Path, folder: str, found: list[str]
) -> None:
    assert list(outcomes(catalog.import_tfds(data_dir / folder))) == found
    if "pets" in folder:
        assert catalog.dataset("pets").config == "tall"


def test_importing_again_changes_nothing(catalog: registry.Catalog, data_dir: Path) -> None:
    list(catalog.import_tfds(data_dir))
    events = list(catalog.log())
    again = list(catalog.import_tfds(data_dir))
    assert {one.outcome for one in again} == {ImportOutcome.KNOWN}
    assert list(catalog.log()) == events


def test_versions_added_later_are_found_by_the_next_import(catalog: registry.Catalog, data_dir: Path) -> None:
    list(catalog.import_tfds(data_dir / "animals"))
    prepare(data_dir / "animals/2.0.0", "2.0.0", {"train": animals(40)})
    assert outcomes(catalog.import_tfds(data_dir / "animals")) == {
        "animals:1.0.0": "known",
        "animals:1.1.0": "known",
        "animals:2.0.0": "imported",
    }
    assert str(catalog.dataset("animals").version) == "2.0.0"


def test_an_older_version_that_comes_later_does_not_become_canonical(catalog: registry.Catalog, data_dir: Path) -> None:
    list(catalog.import_tfds(data_dir / "animals/1.1.0"))
    list(catalog.import_tfds(data_dir / "animals/1.0.0"))
    assert str(catalog.dataset("animals").version) == "1.1.0"


def test_a_copy_has_the_layout_of_tfds_in_the_data_directory(catalog: registry.Catalog, data_dir: Path) -> None:
    list(catalog.import_tfds(data_dir, copy=True))
    copied = Path(catalog.data_dir)
    for folder in ("animals/1.0.0", "animals/1.1.0", "pets/plain/2.0.0", "pets/tall/2.0.0"):
        assert {path.name for path in (copied / folder).iterdir()} == {
            ATTACHMENTS_FOLDER,
            *(path.name for path in (data_dir / folder).iterdir()),
        }
    assert json.loads((copied / "pets/.config/metadata.json").read_text()) == {"default_config_name": "tall"}
    shutil.rmtree(data_dir)
    assert len(list(catalog.dataset("pets").read("train"))) == 30


@pytest.mark.parametrize("kind", ["link", "pipe", "dangling"])
def test_a_licence_outside_the_folder_is_not_copied(catalog: registry.Catalog, tmp_path: Path, kind: str) -> None:
    folder = prepare(tmp_path / "animals/1.0.0", shards=2)
    (folder / "NOTES").write_text("mine")
    (folder / "README").symlink_to("NOTES")
    outside = tmp_path / "LICENSE"
    outside.write_text("secret")
    if kind == "pipe":
        os.mkfifo(folder / "LICENSE")
    else:
        (folder / "LICENSE").symlink_to(outside if kind == "link" else tmp_path / "nowhere")
    whole = {path.name for path in folder.iterdir()} - {"LICENSE"} | {ATTACHMENTS_FOLDER}
    assert outcomes(catalog.import_tfds(folder, copy=True)) == {"animals:1.0.0": "imported"}
    copied = Path(catalog.data_dir) / "animals/1.0.0"
    assert {path.name for path in copied.iterdir()} == whole
    assert (copied / "README").read_text() == "mine"


def test_a_shard_that_is_a_link_out_of_its_folder_is_refused(catalog: registry.Catalog, tmp_path: Path) -> None:
    folder = prepare(tmp_path / "animals/1.0.0")
    shard = folder / "animals-train.tfrecord-00000-of-00001"
    shard.rename(tmp_path / "shard")
    shard.symlink_to(tmp_path / "shard")
    for copy in (False, True):
        (refused,) = catalog.import_tfds(folder, copy=copy)
        assert refused.error.message == (
            f"{folder.as_uri()}: 1 of 1 shards do not match their description\n  {shard} leads out of {folder}"
        )


def test_a_new_default_config_is_written_to_the_data_directory(catalog: registry.Catalog, data_dir: Path) -> None:
    list(catalog.import_tfds(data_dir / "pets", copy=True))
    metadata = Path(catalog.data_dir) / "pets/.config/metadata.json"
    catalog.lifecycle.set_default_config("pets/plain", dry_run=True)
    assert json.loads(metadata.read_text()) == {"default_config_name": "tall"}
    catalog.lifecycle.set_default_config("pets/plain")
    assert json.loads(metadata.read_text()) == {"default_config_name": "plain"}
    prepare(data_dir / "pets/tall/2.0.1", "2.0.1", {"train": animals(30)}, name="pets", config="tall", shards=2)
    list(catalog.import_tfds(data_dir / "pets", copy=True))
    assert json.loads(metadata.read_text()) == {"default_config_name": "plain"}
    assert catalog.dataset("pets").config == "plain"


def test_a_folder_that_was_moved_is_read_from_a_copy(catalog: registry.Catalog, data_dir: Path, tmp_path: Path) -> None:
    list(catalog.import_tfds(data_dir / "animals/1.0.0"))
    moved = shutil.move(data_dir, tmp_path / "moved")
    dataset = catalog.dataset("animals")
    assert dataset.verify().faults
    assert outcomes(catalog.import_tfds(Path(moved) / "animals/1.0.0", copy=True)) == {"animals:1.0.0": "known"}
    assert not dataset.verify(deep=True).faults


def test_a_moved_folder_is_recognised_and_its_note_says_how_to_read_it_again(
    catalog: registry.Catalog, data_dir: Path, tmp_path: Path
) -> None:
    list(catalog.import_tfds(data_dir / "animals/1.0.0"))
    moved = Path(shutil.move(data_dir, tmp_path / "moved"))
    (known,) = catalog.import_tfds(moved / "animals/1.0.0")
    assert known.notes == (
        f"the catalog reads it from {data_dir / 'animals/1.0.0'}, which is gone: restore that folder, or import with "
        "copy=True to read the copy",
    )
    (copied,) = catalog.import_tfds(moved / "animals/1.0.0", copy=True)
    (known,) = catalog.import_tfds(moved / "animals/1.0.0")
    assert (copied.notes, known.notes) == ((), ())


def test_a_pin_of_a_version_elsewhere_is_read_from_the_place_that_the_catalog_reads(
    catalog: registry.Catalog, data_dir: Path, tmp_path: Path
) -> None:
    list(catalog.import_tfds(data_dir / "animals"))
    pins = catalog.dataset("animals:1.0.0").pin({"first": "train[:5]"})
    pins = catalog.dataset("animals:1.1.0").pin({"second": "train[:7]"}, into=pins)
    catalog.lifecycle.yank("animals:1.0.0", reason="bad")
    assert [one.missing for one in catalog.pins.audit(pins)] == ["", ""]
    assert [len(list(one.read())) for one in pins.values()] == [5, 7]
    path = tmp_path / "paper.lock.yaml"
    pins.save(path)
    assert str(tmp_path) not in path.read_text()
    with pytest.raises(NotStoredError):
        registry.load_pin(path)["second"].read()
    with pytest.warns(YankedVersionWarning):
        loaded = registry.load_pin(path, catalog=catalog)
    assert [len(list(one.read())) for one in loaded.values()] == [5, 7]


def test_links_to_datasets_on_other_disks_are_followed(
    catalog: registry.Catalog, data_dir: Path, tmp_path: Path
) -> None:
    links = tmp_path / "links"
    (links / "pets").mkdir(parents=True)
    (links / "animals").symlink_to(data_dir / "animals")
    (links / "pets/tall").symlink_to(data_dir / "pets/tall")
    (links / "round").symlink_to(links)
    assert list(outcomes(catalog.import_tfds(links)))[:3] == ["animals:1.0.0", "animals:1.1.0", "pets/tall:2.0.0"]


def test_a_config_that_an_older_tfds_did_not_write_is_derived_from_the_folders(
    catalog: registry.Catalog, data_dir: Path
) -> None:
    edit_info(data_dir / "pets/tall/2.0.0", configName=None)
    assert outcomes(catalog.import_tfds(data_dir / "pets/tall/2.0.0")) == {"pets/tall:2.0.0": "imported"}


def test_folders_with_unrelated_names_are_not_taken_as_a_config(catalog: registry.Catalog, tmp_path: Path) -> None:
    folder = prepare(tmp_path / "archive/old/1.0.0", "1.0.0")
    assert outcomes(catalog.import_tfds(folder)) == {"animals:1.0.0": "imported"}


def test_a_dry_run_finds_and_writes_nothing(catalog: registry.Catalog, data_dir: Path) -> None:
    (data_dir / "animals/1.1.0/animals-train.tfrecord-00000-of-00002").unlink()
    found = list(catalog.import_tfds(data_dir, dry_run=True))
    assert [(str(one.reference), one.num_examples, one.num_shards, str(one.outcome)) for one in found] == [
        ("animals:1.0.0", 20, 3, "found"),
        ("animals:1.1.0", 20, 2, "found"),
        ("pets/plain:2.0.0", 20, 1, "found"),
        ("pets/tall:2.0.0", 30, 1, "found"),
    ]
    with pytest.raises(CatalogNotFoundError):
        catalog.datasets()


def test_a_folder_that_contradicts_its_metadata_is_refused_shard_by_shard_and_the_others_are_imported(
    catalog: registry.Catalog, data_dir: Path
) -> None:
    folder = prepare(data_dir / "animals/1.2.0", "1.2.0", shards=5)
    shards = sorted(folder.glob("*.tfrecord-*"))
    shards[0].unlink()
    shards[1].write_bytes(shards[1].read_bytes()[:-3])
    shards[2].write_bytes(shards[3].read_bytes() * 2)
    found = {str(one.reference): one for one in catalog.import_tfds(data_dir)}
    assert [str(one.outcome) for one in found.values()] == ["imported", "imported", "refused", "imported", "imported"]
    refused = found["animals:1.2.0"].error
    assert isinstance(refused, ShardMismatchError)
    assert refused.message.splitlines()[0] == f"{folder.as_uri()}: 3 of 5 shards do not match their description"
    assert [(fault["filename"][-5 - len("-of-") - 5 :], fault["code"]) for fault in refused.details["faults"]] == [
        ("00000-of-00005", "not_stored"),
        ("00001-of-00005", "corrupt_record"),
        ("00002-of-00005", "shard_mismatch"),
    ]
    assert refused.details["faults"][2]["problem"].endswith(": expected 4 records, found 8")
    assert [str(one.version) for one in catalog.versions("animals")] == ["1.1.0", "1.0.0"]


@pytest.mark.parametrize("compress", [False, True])
def test_damaged_records_are_named_in_every_shard_although_files_are_first_only_hashed(
    catalog: registry.Catalog, tmp_path: Path, compress: bool
) -> None:
    folder = prepare(tmp_path / "animals/1.0.0", shards=[5, 5, 5, 0, 5], compress=compress)
    shards = sorted(folder.glob("*.tfrecord-*"))
    whole = [shard.read_bytes() for shard in shards]
    for shard in (shards[0], shards[2]):
        content = bytearray(shard.read_bytes())
        content[len(content) // 2] ^= 4
        shard.write_bytes(content)
    (refused,) = catalog.import_tfds(folder)
    faults = refused.error.details["faults"]
    assert [(fault["filename"][-14:], fault["code"]) for fault in faults] == [
        ("00000-of-00005", "corrupt_record"),
        ("00002-of-00005", "corrupt_record"),
    ]
    for shard, content in zip(shards, [*whole[:3], whole[4], whole[4]], strict=True):
        shard.write_bytes(content)
    (refused,) = catalog.import_tfds(folder)
    assert [(fault["filename"][-14:], fault["code"]) for fault in refused.error.details["faults"]] == [
        ("00003-of-00005", "shard_mismatch")
    ]
    shards[3].write_bytes(whole[3])
    assert outcomes(catalog.import_tfds(folder)) == {"animals:1.0.0": "imported"}
    shards[0].write_bytes(whole[0][:-3])
    (refused,) = catalog.import_tfds(folder)
    assert isinstance(refused.error, ShardMismatchError), "damage of a published version, and no other content"


def test_files_whose_records_were_checked_are_not_read_again_to_refuse_other_content(
    catalog: registry.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.import_tfds(prepare(tmp_path / "first/animals/1.0.0"))
    other = prepare(tmp_path / "second/animals/1.0.0", splits={"train": animals(20, age=99)})
    calls: list[str] = []
    verify = Target.verify

    def counted(target: Target, *args: Any, **options: Any) -> Any:
        calls.append("verify")
        return verify(target, *args, **options)

    monkeypatch.setattr(Target, "verify", counted)
    (refused,) = catalog.import_tfds(other, copy=True)
    assert (type(refused.error), calls) == (VersionExistsError, ["verify"])


def test_up_to_some_millions_of_records_are_folded_by_threads_and_more_by_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepare(tmp_path / "animals/1.0.0", splits={"train": animals(10_000)}, shards=3)
    started: list[Any] = []
    start = workers.WorkerProcesses._start
    monkeypatch.setattr(choice, "num_cpus", lambda: 2)
    monkeypatch.setattr(choice, "_SMALL_ITEMS", 0)
    monkeypatch.setattr(workers.WorkerProcesses, "_start", lambda self: started.append(start(self)) or started[-1])
    store, results = open_store(folder), []
    stored = StoredSplits(store, read_prepared(store).splits, ANIMALS)
    cost = stored.splits[0].num_bytes + 512 * 10_000
    for most, num_workers in ((cost, 0), (cost - 1, 2)):
        monkeypatch.setattr(fingerprint, "_QUICK_BYTES", most)
        results.append(fingerprint.fingerprint_splits(stored, is_publication=True).folded)
        assert len(started) == num_workers
    assert results[0] == results[1]


def test_trusted_lengths_skip_only_the_check_of_the_records(catalog: registry.Catalog, data_dir: Path) -> None:
    shard = data_dir / "animals/1.1.0/animals-train.tfrecord-00001-of-00002"
    shard.write_bytes(shard.read_bytes()[:-3])
    found = {str(one.reference): one for one in catalog.import_tfds(data_dir / "animals", trust_lengths=True)}
    assert {one.outcome for one in found.values()} == {ImportOutcome.IMPORTED}
    faults = catalog.dataset("animals").verify().faults
    assert [fault.filename for fault in faults] == [shard.name]
    (data_dir / "animals/1.0.0/animals-train.tfrecord-00001-of-00003").unlink()
    missing = prepare(data_dir / "animals/3.0.0", "3.0.0", shards=2) / "animals-train.tfrecord-00001-of-00002"
    missing.unlink()
    (refused,) = catalog.import_tfds(data_dir / "animals/3.0.0", trust_lengths=True)
    assert refused.error.details["faults"][0]["code"] == "not_stored"


@pytest.mark.parametrize("compress", [False, True])
def test_trusted_lengths_are_refused_if_a_file_is_too_short_for_them(
    catalog: registry.Catalog, tmp_path: Path, compress: bool
) -> None:
    folder = prepare(tmp_path / "animals/1.0.0", shards=4, compress=compress)
    splits = json.loads((folder / "dataset_info.json").read_text())["splits"]
    edit_info(folder, splits=[splits[0] | {"shardLengths": ["5", str(2**60), "5", str(2**60)]}])
    (refused,) = catalog.import_tfds(folder, trust_lengths=True)
    assert refused.error is not None
    names = [f"animals-train.tfrecord-0000{index}-of-00004" for index in (1, 3)]
    assert [fault["problem"] for fault in refused.error.details["faults"]] == [
        f"{name}: it is {(folder / name).stat().st_size} bytes long, too few for {2**60} records" for name in names
    ]


def test_fingerprints_of_believed_versions_are_computed_when_they_are_needed(
    catalog: registry.Catalog, data_dir: Path
) -> None:
    list(catalog.import_tfds(data_dir / "animals", trust_lengths=True))
    diff = catalog.diff("animals:1.0.0", "animals:1.1.0")
    assert diff.changes.level.name == "PATCH"


def test_imported_versions_keep_their_number_and_too_large_a_change_is_noted(
    catalog: registry.Catalog, data_dir: Path
) -> None:
    prepare(data_dir / "animals/1.1.1", "1.1.1", {"train": animals(20, age=99)})
    *_, last = catalog.import_tfds(data_dir / "animals")
    assert (str(last.reference), str(last.outcome)) == ("animals:1.1.1", "imported")
    assert last.notes == ("the changes from 1.1.0 to 1.1.1 exceed a PATCH step",)


def test_other_content_under_a_published_number_is_refused(catalog: registry.Catalog, data_dir: Path) -> None:
    list(catalog.import_tfds(data_dir / "animals"))
    shutil.rmtree(data_dir / "animals/1.0.0")
    prepare(data_dir / "animals/1.0.0", "1.0.0", {"train": animals(7)})
    refused, known = catalog.import_tfds(data_dir / "animals")
    assert isinstance(refused.error, VersionExistsError)
    assert refused.error.hint == (
        "The content of a published version cannot change. registry show animals:1.0.0 names its folder. Import "
        "this one into another "
        "catalog: url=FILE"
    )
    assert str(known.outcome) == "known"


def test_the_same_shards_under_another_slicing_rule_are_named_as_such(
    catalog: registry.Catalog, data_dir: Path
) -> None:
    catalog.publish(data_dir / "animals/1.0.0")
    (refused,) = catalog.import_tfds(data_dir / "animals/1.0.0")
    assert refused.error.message == ("animals:1.0.0 is published with the same shards and the slicing rule documented")
    assert refused.error.hint == "To read it with the other rule, pass slicing='tfds-4' to the call."


def test_an_invalid_version_folder_is_named_with_the_missing_files(catalog: registry.Catalog, data_dir: Path) -> None:
    (data_dir / "animals/1.0.0/features.json").unlink()
    (data_dir / "animals/1.1.0/dataset_info.json").write_text('{"name": "animals", "version": 3}')
    (data_dir / "birds/1.0.0").mkdir(parents=True)
    found = list(catalog.import_tfds(data_dir))
    reported = {Path(one.folder).relative_to(data_dir).as_posix(): one.error for one in found if one.error is not None}
    assert {folder: error.message for folder, error in reported.items()} == {
        "animals/1.0.0": f"{(data_dir / 'animals/1.0.0').as_uri()} is not a prepared dataset: it has no features.json",
        "animals/1.1.0": "dataset_info.json: version: expected text, found a number",
        "birds/1.0.0": f"{(data_dir / 'birds/1.0.0').as_uri()} is not a prepared dataset: "
        "it has no dataset_info.json and no features.json",
    }
    assert [str(one.reference) for one in found if one.error is None] == ["pets/plain:2.0.0", "pets/tall:2.0.0"]


def test_a_folder_that_cannot_be_looked_into_is_refused_and_the_others_are_imported(
    catalog: registry.Catalog, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data_dir / "birds").mkdir()
    (data_dir / "birds/dataset_info.json").symlink_to("/etc/hostname")
    (data_dir / "lost+found").mkdir()
    look_into = Path.iterdir

    def iterdir(folder: Path) -> Iterator[Path]:  # the owner of all files may look into every folder
        if folder.name == "lost+found":
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return look_into(folder)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    found = list(catalog.import_tfds(data_dir))
    reported = {Path(one.folder).name: one.error for one in found if one.error is not None}
    assert {folder: error.message for folder, error in reported.items()} == {
        "birds": f"{data_dir}/birds/dataset_info.json leads out of {data_dir}/birds",
        "lost+found": f"{(data_dir / 'lost+found').as_uri()} is not a prepared dataset: "
        "it has no dataset_info.json and no features.json",
    }
    assert [str(one.outcome) for one in found if one.error is None] == ["imported"] * 4


def test_a_number_too_large_for_the_schema_is_refused_before_publishing(
    catalog: registry.Catalog, data_dir: Path
) -> None:
    path = data_dir / "animals/1.0.0/features.json"
    path.write_text('{"theirs": 1e999, ' + path.read_text().lstrip()[1:])
    edit_info(data_dir / "animals/1.1.0", theirs=0.5)
    info = data_dir / "animals/1.1.0/dataset_info.json"
    info.write_text(info.read_text().replace("0.5", "1e999"))
    found = list(catalog.import_tfds(data_dir / "animals"))
    assert [one.error.message if one.error else "" for one in found] == [
        "features.json: 1e999 is too large for a number",
        "dataset_info.json: 1e999 is too large for a number",
    ]


def test_a_folder_below_the_name_of_another_version_is_refused(catalog: registry.Catalog, data_dir: Path) -> None:
    (data_dir / "animals/1.1.0").rename(data_dir / "animals/1.5.0")
    _, refused = catalog.import_tfds(data_dir / "animals")
    assert refused.error.message == (
        f"{data_dir}/animals/1.5.0: expected version 1.5.0, as the folder is named; dataset_info.json has version 1.1.0"
    )
    assert refused.error.hint == "Rename the folder to 1.1.0, or prepare version 1.5.0 again."


@pytest.mark.parametrize("kind", ["empty", "missing", "file"])
def test_a_folder_without_versions_is_an_error(catalog: registry.Catalog, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "here"
    if kind == "empty":
        folder.mkdir()
    if kind == "file":
        folder.write_text("no folder")
    with pytest.raises(PreparedFormatError) as error:
        catalog.import_tfds(folder)
    problem = f"{folder} contains nothing that TFDS prepared" if kind == "empty" else f"there is no folder {folder}"
    assert error.value.message == problem
    assert error.value.hint == "Specify a data_dir of TFDS, the folder of a dataset in it, or the folder of a version."


def test_versions_that_tfds_itself_prepared_are_read_as_tfds_read_them(catalog: registry.Catalog) -> None:
    assert set(outcomes(catalog.import_tfds(GOLDEN)).values()) == {"imported"}
    for version in ("lab_mnist/3.0.1", "lab_text/1.0.0"):
        dataset = catalog.dataset(version.replace("/", ":"))
        lines = [json.loads(line) for line in (GOLDEN / f"{version}.expected.jsonl").read_text().splitlines()]
        for split in dataset.splits:
            expected = [line["tfds_id"] for line in lines if line["split"] == split]
            assert list(dataset.read(split).ids()) == expected


def test_the_catalog_has_the_fields_that_tfds_wrote(catalog: registry.Catalog) -> None:
    list(catalog.import_tfds(GOLDEN / "lab_mnist"))
    dataset = catalog.dataset("lab_mnist")
    info = json.loads((GOLDEN / "lab_mnist/3.0.1/dataset_info.json").read_text())
    assert dataset.metadata.description == info["description"]
    assert dataset.metadata.citation == info.get("citation", "")
    assert dataset.metadata.supervised_keys == ("image", "label")
    assert dict(dataset.metadata.release_notes) == info["releaseNotes"]
    assert dataset.metadata.license == info["redistributionInfo"]["license"]
    assert list(dataset.splits) == [split["name"] for split in info["splits"]]


def lidar(folder: Path) -> Path:
    """A prepared folder with one feature of an unknown class."""
    prepare(folder, "1.0.0")
    schema = json.loads((folder / "features.json").read_text())
    schema["featuresDict"]["features"]["name"] = {
        "pythonClassName": "lab.features.Lidar",
        "jsonFeature": {"json": '{"beams": 64}'},
    }
    (folder / "features.json").write_text(json.dumps(schema))
    return folder


def test_a_feature_that_is_not_known_is_noted_once_and_read_as_it_is_stored(
    catalog: registry.Catalog, tmp_path: Path
) -> None:
    note = "the class of feature 'name' (lab.features.Lidar) is unknown: its stored values are returned unchanged"
    (imported,) = catalog.import_tfds(lidar(tmp_path / "animals/1.0.0"))
    assert (imported.outcome, imported.notes) == (ImportOutcome.IMPORTED, (note,))
    dataset = catalog.dataset("animals")
    with pytest.warns(UnknownFeatureWarning) as warned:
        readers = [dataset.read(split) for split in ("train[:2]", "train")]
    first, second = readers[0]
    assert len(list(readers[1])) == 20
    assert [str(one.message) for one in warned] == [f"animals:1.0.0: {note}"]
    assert (first["name"].tolist(), second["name"].tolist()) == ([b"animal 0"], [b"animal 1"])
    assert not catalog.dataset("animals").verify().faults
    dataset.export_tfds(tmp_path / "out")
    exported = json.loads((tmp_path / "out/animals/1.0.0/features.json").read_text())
    assert exported["featuresDict"]["features"]["name"]["jsonFeature"] == {"json": '{"beams": 64}'}


def test_a_folder_in_an_object_store_is_read_in_place(
    catalog: registry.Catalog, data_dir: Path, request: pytest.FixtureRequest
) -> None:
    bucket = open_store(f"memory://{request.node.name}")
    for name in (local := open_store(data_dir)).list():
        bucket.create_from(name, local, name)
    assert set(outcomes(catalog.import_tfds(bucket.url)).values()) == {"imported"}
    dataset = catalog.dataset("pets")
    assert (dataset.folder, dataset.config) == (f"{bucket.url}/pets/tall/2.0.0", "tall")
    assert [example["age"] for example in dataset.read("train[:2]")] == [0, 1]


def test_two_imports_at_once_publish_each_version_once(tmp_path: Path, data_dir: Path) -> None:
    command = [sys.executable, "-m", "registry", "import", "tfds", str(data_dir), "--copy", "--format", "json"]
    environment = {**os.environ, "REGISTRY_CATALOG": str(tmp_path / "catalog.db")}
    started = [warm_python.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(3)]
    answers = [json.loads(process.communicate()[0])["data"]["versions"] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    for versions in zip(*answers, strict=True):
        assert sorted(version["outcome"] for version in versions) == ["imported", "known", "known"]
    with registry.connect(tmp_path / "catalog.db") as opened:
        assert not opened.dataset("pets/tall").verify(deep=True).faults
        assert len([event for event in opened.log() if event.action == "publish"]) == 4


@pytest.mark.parametrize("copy", cases([False, True], everyday=1))
def test_an_import_that_was_killed_is_finished_by_the_next_one(tmp_path: Path, data_dir: Path, copy: bool) -> None:
    prepare(data_dir / "zebras/1.0.0", "1.0.0", {"train": animals(12_000)}, name="zebras", shards=8)
    command = [sys.executable, "-m", "registry", "import", "tfds", str(data_dir)] + ["--copy"] * copy
    environment = {**os.environ, "REGISTRY_CATALOG": str(tmp_path / "catalog.db")}
    catalog = tmp_path / "catalog.db"
    process = warm_python.Popen(command, env=environment, stdout=subprocess.PIPE)
    while not catalog.exists() or len(_published(catalog)) < 2:  # in the middle of the third version, or of the last
        assert process.poll() is None or len(_published(catalog)) >= 2, "it ended before its second version"
        time.sleep(0.01)
    process.kill()
    process.communicate()
    with registry.connect(catalog) as opened:
        known = {str(one.reference) for one in opened.import_tfds(data_dir, copy=copy) if str(one.outcome) == "known"}
        assert known >= {"animals:1.0.0", "animals:1.1.0"}
        assert {summary.dataset for summary in opened.datasets()} == {"animals", "pets/plain", "pets/tall", "zebras"}
        assert not opened.dataset("zebras").verify(deep=True).faults
        assert not list(Path(opened.data_dir).rglob("incomplete.*"))


def _published(catalog: Path) -> list[str]:
    try:
        with registry.connect(catalog) as opened:
            return [event.dataset for event in opened.log() if event.action == "publish"]
    except CatalogError:  # it is being made
        return []


def test_missing_values_are_read_as_in_tfds_or_as_none(catalog: registry.Catalog, tmp_path: Path) -> None:
    features = FeaturesDict({"id": "int64", "age": Scalar("int8", optional=True)})
    examples = [{"id": n, "age": None if n % 2 else n} for n in range(4)]
    prepare(tmp_path / "people/1.0.0", "1.0.0", {"train": examples}, features=features, name="people")
    list(catalog.import_tfds(tmp_path / "people"))
    config = registry.ReadConfig(shuffle_files=True, shuffle_seed=1)
    reader = catalog.dataset("people").read("train", config)
    assert [example["age"] for example in reader] == [0, None, 2, None]
    (batch,) = reader.missing_as_none().batches(4)
    assert batch["age"].tolist() == [0, None, 2, None]
    assert pickle.loads(pickle.dumps(reader))[1] == {"id": 1, "age": None}  # noqa: S301 (made here)
    loaded = registry.load("people", split="train", read_config=config, catalog=catalog)
    for reported in (loaded, reader.missing_as_tfds(), pickle.loads(pickle.dumps(loaded))):  # noqa: S301 (made here)
        assert [int(example["age"]) for example in reported] == [0, -128, 2, -128]
        assert (reported[1]["age"].dtype, type(reported[[1]]["age"])) == (np.int8, np.ndarray)
        assert reported.read_config == reader.read_config
    assert [example["age"] for example in loaded.missing_as_none()] == [0, None, 2, None]
    builder = registry.builder("people", catalog=catalog)  # as in TFDS: its datasets have the number, its sources None
    assert [int(example["age"]) for example in builder.as_dataset("train")] == [0, -128, 2, -128]
    source = builder.as_data_source("train")
    assert sorted((example["id"], example["age"]) for example in source) == [(0, 0), (1, None), (2, 2), (3, None)]
    assert [int(example["age"]) for example in reader.fill_missing({"age": 99})] == [0, 99, 2, 99]


def test_a_version_stored_elsewhere_is_not_read_for_another_data_dir(
    catalog: registry.Catalog, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_CATALOG", str(tmp_path / "catalog" / "catalog.db"))
    list(catalog.import_tfds(data_dir))
    assert len(registry.load("animals", split="train", data_dir=data_dir)) == 20
    with pytest.raises(UsageError) as error:
        registry.load("animals", split="train", data_dir=tmp_path / "other")
    folder = (data_dir / "animals/1.1.0").as_uri()
    assert error.value.message == (
        f"animals:1.1.0 is stored in {folder}, which is not below the data_dir {tmp_path / 'other'}"
    )
    assert error.value.hint == (f"Leave data_dir out; or import that folder: registry import tfds {tmp_path / 'other'}")
    catalog.publish(prepare(tmp_path / "ours", "1.0.0", name="ours"))
    assert len(registry.load("ours", split="train", data_dir=catalog.data_dir)) == 20


def test_a_web_server_is_asked_for_one_version(catalog: registry.Catalog, tmp_path: Path) -> None:
    with serve(tmp_path) as url, pytest.raises(PreparedFormatError) as error:
        catalog.import_tfds(f"{url}/datasets")
    assert error.value.hint == "A web server does not list its folders: specify the folder of one version."


def test_a_web_server_that_cannot_be_reached_is_not_taken_for_one_without_versions(
    catalog: registry.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_TRIES", "1")
    with pytest.raises(StorageUnavailableError, match="the server cannot be reached") as error:
        catalog.import_tfds("http://127.0.0.1:9/datasets")
    assert error.value.exit_code == 75


@pytest.mark.parametrize("put_back", [False, True])
def test_a_shard_that_is_changed_while_it_is_imported_is_found(
    catalog: registry.Catalog, data_dir: Path, monkeypatch: pytest.MonkeyPatch, put_back: bool
) -> None:
    shard = data_dir / "animals/1.0.0/animals-train.tfrecord-00000-of-00003"
    other = prepare(data_dir.parent / "other", "1.0.0", {"train": animals(20, age=99)}, shards=3) / shard.name
    fingerprint, whole, times = Prover.fingerprint, shard.read_bytes(), shard.stat()

    def change_first(prover: Prover, stored: StoredSplits, **options: Any) -> Any:
        shard.write_bytes(other.read_bytes())
        found = fingerprint(prover, stored, **options)
        if put_back:
            shard.write_bytes(whole)
            os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Prover, "fingerprint", change_first)
        (refused,) = catalog.import_tfds(data_dir / "animals/1.0.0")
    folder = (data_dir / "animals/1.0.0").as_uri()
    assert refused.error.message == f"{folder}: a shard was changed during the publication"
    assert refused.error.hint == "Nothing was published. Try again when no program is writing to the folder."
    shard.write_bytes(whole)
    assert outcomes(catalog.import_tfds(data_dir / "animals/1.0.0")) == {"animals:1.0.0": "imported"}
