"""``Catalog.copy``: a version is in the other catalog as it was in the first, however often a copy was interrupted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from end_to_end.test_shard_formats_published import prepare_as
from support import warm_python
from support.fault_proxy import FaultProxy
from support.object_publishers import fork, wait
from support.prepared_samples import animals, prepare

import registry
from registry.api import Catalog
from registry.catalog import load_shards
from registry.errors import (
    ConflictError,
    MirrorWarning,
    NotFoundError,
    PartialFailureError,
    ShardMismatchError,
    UsageError,
    VersionExistsError,
    WrongTypeError,
)
from registry.features import FeaturesDict
from registry.shards import mirrored, proved
from registry.storage import open_store
from registry.storage.names import MARKER_FILE

SHARDS = 3
NAMES = [f"animals-train.tfrecord-{index:05}-of-{SHARDS:05}" for index in range(SHARDS)]


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(proved, "_proofs", proved._Proofs())
    monkeypatch.setattr(mirrored, "_troubles", mirrored._Troubles())
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("REGISTRY_ACTOR", "ann")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``animals`` 1.0.0 to 2.0.0 in several states with aliases and an experiment; ``words/de``, ``words/en``."""
    folder = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch, registry.connect(folder / "source.db", data_dir=folder / "data") as new:
        patch.setenv("REGISTRY_ACTOR", "ann")
        for version, age in (("1.0.0", 0), ("1.0.1", 0), ("2.0.0", 70)):
            new.publish(prepare(folder / version, version, {"train": animals(30, age=age)}, shards=SHARDS))
        new.experiments.add("fast", "Faster.", default=True)
        for config in ("de", "en"):
            new.publish(prepare(folder / config, splits={"train": animals(20)}, name="words", config=config))
        new.lifecycle.set_default_config("words/en")
        new.lifecycle.promote("animals:1.0.1")
        new.lifecycle.yank("animals:1.0.0", reason="shifted", superseded_by="1.0.1")
        new.aliases.set("paper", "animals:1.0.1", reason="As submitted.")
        new.aliases.set("old", "animals:1.0.1")
        new.aliases.set("old", "animals:2.0.0")
    return folder


@pytest.fixture
def source(tmp_path: Path, published: Path) -> Iterator[Catalog]:
    """A copy of ``published``."""
    shutil.copytree(published, tmp_path, dirs_exist_ok=True)
    with registry.connect(tmp_path / "source.db", data_dir=tmp_path / "data") as opened:
        yield opened


@pytest.fixture(params=["disk", "bucket"])
def data_dir(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The data directory of the other catalog."""
    if request.param == "disk":
        return str(tmp_path / "other-data")
    return f"{request.getfixturevalue('bucket')}/data"


@pytest.fixture
def other(catalog_url: str, data_dir: str) -> Iterator[Catalog]:
    with registry.connect(catalog_url, data_dir=data_dir, create=True) as opened:
        yield opened


def ages(catalog: Catalog, reference: str) -> list[int]:
    return [int(example["age"]) for example in catalog.dataset(reference).read("train")]


def facts(catalog: Catalog, reference: str) -> Any:
    """Everything that a catalog says of a version, except its place, the ETags there, and the canonical version."""
    wanted = registry.Reference.parse(reference)
    assert wanted.exact is not None
    version = catalog.backend.published(wanted.name, wanted.config, wanted.exact)
    shards = {
        split.name: [replace(one, entity_tag=None) for one in load_shards(catalog.backend.shards, version, split.name)]
        for split in version.splits
    }
    return replace(version, location="", canonical=None), shards, catalog.backend.fingerprints(version)


def test_a_copy_is_the_version_with_all_that_belongs_to_it(source: Catalog, other: Catalog, data_dir: str) -> None:
    report = source.copy(None, other)

    copied = ["animals:1.0.0", "animals:1.0.1", "animals:2.0.0", "words/de:1.0.0", "words/en:1.0.0"]
    assert [(str(one.reference), one.outcome.value, one.notes) for one in report] == [
        (reference, "copied", ()) for reference in copied
    ]
    assert str(report) == "<CopyReport: 5 copied>"
    for reference in copied:
        assert facts(other, reference) == facts(source, reference)
    assert ages(other, "animals") == ages(source, "animals")
    assert other.dataset("words").config == "en"
    assert other.standing("animals").aliases == source.standing("animals").aliases
    assert [str(one) for one in (other.dataset("animals@paper").version, other.standing("animals").canonical)] == [
        "1.0.1",
        "1.0.1",
    ]
    assert other.verify_all().is_sound
    assert other.verify_log().faults == ()
    store = open_store(data_dir)
    (statistics,) = other.dataset("animals:2.0.0").attachments
    described = ["dataset_info.json", "features.json", "kind.labels.txt"]
    assert [name for name in store.list() if name.startswith("animals/2.0.0")] == [
        f"animals/2.0.0/{name}" for name in [statistics.place, *NAMES, *described]
    ]
    assert other.reservations.list() == ()


def test_the_log_says_where_a_copy_comes_from(source: Catalog, other: Catalog) -> None:
    source.copy("animals:1.0.0", other)

    publish, *imported = other.log(dataset="animals")
    version = source.backend.find("animals:1.0.0")
    assert (publish.action, publish.actor) == ("publish", "ann")
    assert publish.details["imported_from"] == {
        "catalog": source.url,
        "published_at": version.published_at and version.published_at.isoformat(timespec="microseconds"),
        "published_by": "ann",
    }
    events = [one for one in source.log(dataset="animals") if one.version == "1.0.0"]
    assert [one.action for one in imported] == ["imported"] * len(events)
    assert [one.details["event"]["hash"] for one in imported] == [one.hash for one in events]
    assert [one.details["event"]["action"] for one in imported] == ["publish", "yank"]
    assert all(one.details["catalog"] == source.url for one in imported)
    assert other.backend.experiments.of_version(version) == source.backend.experiments.of_version(version)


def test_a_second_run_changes_nothing(source: Catalog, other: Catalog) -> None:
    source.copy(["animals", "words/de"], other).require_all()
    events = list(other.log())
    source.aliases.set("new", "animals:1.0.1")

    report = source.copy(["animals", "words/de:1.*", "animals@paper"], other)

    assert {one.outcome.value for one in report} == {"known"}
    assert len(report) == 4
    assert list(other.log()) == events


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        ("animals", ["animals:1.0.0", "animals:1.0.1", "animals:2.0.0"]),
        ("animals:1.*", ["animals:1.0.0", "animals:1.0.1"]),
        ("animals:1.0.0", ["animals:1.0.0"]),
        ("animals@old", ["animals:2.0.0"]),
        ("words", ["words/de:1.0.0", "words/en:1.0.0"]),
        (["words/en", "words"], ["words/en:1.0.0", "words/de:1.0.0"]),
    ],
)
def test_references_choose_all_versions_that_match(
    source: Catalog, tmp_path: Path, references: Any, expected: list[str]
) -> None:
    with registry.connect(tmp_path / "empty.db", data_dir=tmp_path / "empty") as empty:
        report = source.copy(references, empty, dry_run=True)
        assert [str(one.reference) for one in report] == expected
        assert {one.outcome.value for one in report} == {"found"}
        assert ((tmp_path / "empty.db").exists(), (tmp_path / "empty").exists()) == (False, False)


def test_one_or_several_versions_are_given_in_any_form(source: Catalog, tmp_path: Path) -> None:
    dataset = source.dataset("animals:2.0.0")
    forms = ["animals:2.0.0", dataset.reference, dataset, dataset.facts]
    with registry.connect(tmp_path / "empty.db", data_dir=tmp_path / "empty") as empty:
        for given in [*forms, forms, tuple(forms)]:
            assert [str(one.reference) for one in source.copy(given, empty, dry_run=True)] == ["animals:2.0.0"]
        for wrong in (5, b"animals", object(), [5], [["animals"]]):
            with pytest.raises(WrongTypeError):
                source.copy(wrong, empty, dry_run=True)  # type: ignore[arg-type] # what it refuses


def test_what_cannot_be_copied_is_refused(source: Catalog, tmp_path: Path) -> None:
    with registry.connect(tmp_path / "empty.db", data_dir=tmp_path / "empty") as empty:
        for reference in ("nobody", "animals:7.*", "animals@nobody", "words/fr"):
            with pytest.raises(NotFoundError):
                source.copy(reference, empty)
    with pytest.raises(UsageError, match="is the catalog itself"):
        source.copy("animals", source)


def test_a_number_with_other_content_is_a_conflict_and_the_next_version_is_copied(
    source: Catalog, other: Catalog, tmp_path: Path
) -> None:
    other.publish(prepare(tmp_path / "rival", "1.0.0", {"train": animals(30, age=9)}, shards=SHARDS))
    before = facts(other, "animals:1.0.0")

    for dry_run in (True, False):
        report = source.copy("animals", other, dry_run=dry_run)
        assert [one.outcome.value for one in report] == ["refused", *(["found" if dry_run else "copied"] * 2)]
        assert isinstance(report[0].error, VersionExistsError)
    with pytest.raises(PartialFailureError, match=r"^1 of 3 versions could not be copied:\n  animals:1.0.0: "):
        report.require_all()
    assert report[1].notes[0].startswith("animals:1.0.1 is too small a number: ")
    assert facts(other, "animals:1.0.0") == before


def test_aliases_of_the_target_stay_where_they_are(source: Catalog, other: Catalog) -> None:
    source.copy("animals:2.0.0", other)
    other.aliases.set("paper", "animals:2.0.0")
    (copied,) = source.copy("animals:1.0.1", other)
    assert copied.notes == ("the alias animals@paper points to 2.0.0 there, and was not moved",)
    assert str(other.dataset("animals@paper").version) == "2.0.0"


def test_an_experiment_that_a_version_overrides_is_added(tmp_path: Path) -> None:
    class Fast(registry.DatasetBuilder):
        """Numbers."""

        name = "fast"
        VERSION = registry.Version("1.0.0", experiments={"new_order": True})

        def features(self) -> Any:
            return FeaturesDict({"number": "int64"})

        def splits(self) -> Any:
            return {"train": [(n, {"number": n}) for n in range(5)]}

    with (
        registry.connect(tmp_path / "a.db", data_dir=tmp_path / "a") as first,
        registry.connect(tmp_path / "b.db", data_dir=tmp_path / "b") as second,
    ):
        first.experiments.add("new_order", "Sort by the hash.")
        first.experiments.add("unrelated", "Something else.")
        first.build(Fast(), processes=1)
        first.copy(None, second).require_all()
        assert [(one.name, one.description, one.default) for one in second.experiments.list()] == [
            ("new_order", "Sort by the hash.", False)
        ]
        assert second.dataset("fast").implements("new_order")
        assert second.verify_log().faults == ()


@pytest.mark.parametrize("file_format", ["array_record", "parquet"])
def test_versions_of_every_format_that_were_imported_in_place_are_copied(
    other: Catalog, tmp_path: Path, file_format: str
) -> None:
    folder = prepare_as(tmp_path / "prepared", file_format)
    (folder / "LICENSE").write_text("Free.")
    with registry.connect(tmp_path / "in-place.db", data_dir=tmp_path / "nowhere") as source:
        source.import_tfds(folder, name="others").require_all()
        source.copy(None, other).require_all()
    shutil.rmtree(folder)
    store = open_store(other.data_dir)
    assert store.read_bytes("others/1.0.0/LICENSE") == b"Free."
    if file_format == "parquet" or store.local_root is not None:  # ArrayRecord is read on this machine only
        assert other.verify_all().is_sound
        assert len(ages(other, "others")) == 50


def test_of_a_folder_in_which_anything_may_be_only_the_files_of_the_version_are_copied(
    source: Catalog, other: Catalog, tmp_path: Path
) -> None:
    folder = prepare(tmp_path / "home", splits={"train": animals(20)}, name="pets")
    source.import_tfds(folder).require_all()
    for name in ("dataset_info.json", "features.json", "kind.labels.txt"):
        (folder / name).unlink()
    (folder / "diary.txt").write_text("Dear diary")
    source.copy("pets", other).require_all()
    assert sorted(open_store(f"{other.data_dir}/pets/1.0.0").list()) == [
        "dataset_info.json",
        "features.json",
        "kind.labels.txt",
        "pets-train.tfrecord-00000-of-00001",
    ]


def test_a_wrong_file_of_the_source_is_not_copied(source: Catalog, other: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "data/animals/2.0.0"
    (folder / NAMES[1]).write_bytes((folder / NAMES[0]).read_bytes())
    (refused,) = source.copy("animals:2.0.0", other)
    assert isinstance(refused.error, ShardMismatchError)
    assert other.published_digest("animals:2.0.0") is None
    assert other.datasets() == ()

    source.mirrors.add("animals:1.0.1", shutil.copytree(tmp_path / "data/animals/1.0.1", tmp_path / "mirror"))
    (tmp_path / "data/animals/1.0.1" / NAMES[1]).unlink()
    with pytest.warns(MirrorWarning):
        (copied,) = source.copy("animals:1.0.1", other)
    assert copied.outcome.value == "copied"


@pytest.mark.parametrize("kind", ["empty", "shards of the same names", "shards of the same sizes"])
def test_other_files_are_only_copied_from_a_folder_that_contains_the_shards(
    source: Catalog, other: Catalog, tmp_path: Path, kind: str
) -> None:
    """A catalog of others may name any folder of this machine, and a mirror that has the shards."""
    folder = tmp_path / "data/animals/1.0.1"
    source.mirrors.add("animals:1.0.1", shutil.copytree(folder, tmp_path / "mirror"))
    for name in NAMES:
        (folder / name).unlink()
        if kind != "empty":
            num_bytes = (tmp_path / "mirror" / name).stat().st_size if "sizes" in kind else 1
            (folder / name).write_bytes(b"x" * num_bytes)
    (folder / "id_rsa").write_text("private")

    with pytest.warns(MirrorWarning):
        (copied,) = source.copy("animals:1.0.1", other)
    assert copied.notes == (f"other files of its folder were not copied: {folder} does not contain its shards",)
    assert not open_store(other.data_dir).exists("animals/1.0.1/id_rsa")
    assert other.verify_all().is_sound


def test_other_files_that_differ_in_a_folder_that_is_in_place_are_named(source: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "data/animals/2.0.0"
    for name in ("LICENSE", "notes.txt"):
        (folder / name).write_text("free")
    there = Path(shutil.copytree(folder, tmp_path / "other-data/animals/2.0.0"))
    (there / "LICENSE").write_text("paid")
    with registry.connect(tmp_path / "other.db", data_dir=tmp_path / "other-data") as other:
        (copied,) = source.copy("animals:2.0.0", other)
    assert copied.notes == ("other files of its folder are missing or differ there, and were not changed: LICENSE",)
    assert (there / "LICENSE").read_text() == "paid"


def test_a_folder_with_other_data_is_left_alone(source: Catalog, tmp_path: Path) -> None:
    prepare(tmp_path / "other-data/animals/2.0.0", "2.0.0", {"train": animals(30)}, shards=SHARDS)
    content = (tmp_path / "other-data/animals/2.0.0" / NAMES[0]).read_bytes()
    with registry.connect(tmp_path / "other.db", data_dir=tmp_path / "other-data") as other:
        (refused,) = source.copy("animals:2.0.0", other)
        assert isinstance(refused.error, ConflictError)
        assert (tmp_path / "other-data/animals/2.0.0" / NAMES[0]).read_bytes() == content
        assert list((tmp_path / "other-data/animals").iterdir()) == [tmp_path / "other-data/animals/2.0.0"]


def test_catalogs_that_share_a_data_directory_share_the_files(source: Catalog, tmp_path: Path) -> None:
    with registry.connect(tmp_path / "other.db", data_dir=tmp_path / "data") as other:
        before = {path: path.stat().st_ino for path in (tmp_path / "data").rglob("*")}
        source.copy("animals", other).require_all()
        assert {path: path.stat().st_ino for path in (tmp_path / "data").rglob("*")} == before
        assert facts(other, "animals:2.0.0") == facts(source, "animals:2.0.0")


def copy_in_two_runs(source: Catalog, other: Catalog, fault_proxy: FaultProxy) -> tuple[Any, set[str], set[str]]:
    """The result of a second copy, after the bucket refused a file of the first; the files that each of them sent."""
    fault_proxy.inject("forbidden", when=lambda request: request.method == "PUT" and request.key.endswith(NAMES[2]))
    (failed,) = source.copy("animals:2.0.0", other)
    assert failed.error is not None
    sent = {one.key.rpartition("/")[2] for one in fault_proxy.requests if one.method == "PUT" and one.fault is None}
    assert sent >= {NAMES[0]}
    fault_proxy.reset()
    (copied,) = source.copy("animals:2.0.0", other)
    again = {one.key.rpartition("/")[2] for one in fault_proxy.requests if one.method == "PUT"}
    assert NAMES[2] in again
    return copied, sent, again


def test_files_that_a_new_data_directory_lacks_are_copied(source: Catalog, data_dir: str, tmp_path: Path) -> None:
    """The catalogs shared their files until somebody named another data directory."""
    url = str(tmp_path / "lab.db")
    (tmp_path / "data/animals/2.0.0/LICENSE").write_text("Free.")
    with registry.connect(url, data_dir=tmp_path / "data") as shared:
        source.copy(None, shared).require_all()
        shared.lifecycle.drop("animals:1.0.0", reason="shifted")
    with registry.connect(url, data_dir=data_dir) as other:
        before = [facts(other, f"animals:{number}") for number in ("1.0.1", "2.0.0")]
        planned = source.copy("animals", other, dry_run=True)
        assert [(one.outcome.value, one.only_files) for one in planned] == [
            ("known", False),
            ("found", True),
            ("found", True),
        ]
        assert open_store(data_dir).list() == []
        report = source.copy("animals", other)
        assert [(one.outcome.value, one.only_files, one.notes) for one in report] == [
            ("known", False, ()),
            ("copied", True, ()),
            ("copied", True, ()),
        ]
        assert report[1].folder == f"{data_dir}/animals/1.0.1"
        assert [one.outcome.value for one in source.copy("animals", other)] == ["known"] * 3
        source.copy("words", other).require_all()
        other.set_data_dir(data_dir)
        shutil.rmtree(tmp_path / "data")
        assert other.verify_all(deep=True).is_sound
        assert len(ages(other, "animals")) == 30
        assert [facts(other, f"animals:{number}") for number in ("1.0.1", "2.0.0")] == before
        assert open_store(data_dir).read_bytes("animals/2.0.0/LICENSE") == b"Free."
        assert not open_store(data_dir).exists(f"animals/2.0.0/{MARKER_FILE}")
        assert other.reservations.list() == ()


def test_files_that_are_there_stay_and_the_others_are_sent(source: Catalog, other: Catalog, data_dir: str) -> None:
    source.copy("animals:2.0.0", other).require_all()
    store = open_store(f"{data_dir}/animals/2.0.0")
    kept = store.entity_tag(NAMES[0])
    for name in (NAMES[1], "features.json"):
        store.remove(name)
    (copied,) = source.copy("animals:2.0.0", other)
    assert (copied.outcome.value, copied.only_files) == ("copied", True)
    assert store.entity_tag(NAMES[0]) == kept
    assert store.exists("features.json")
    assert other.verify_all(deep=True).is_sound


def test_a_file_of_another_content_is_not_replaced(source: Catalog, other: Catalog, data_dir: str) -> None:
    """The data directory may be that of another catalog, which has the same number."""
    source.copy("animals:2.0.0", other).require_all()
    store = open_store(f"{data_dir}/animals/2.0.0")
    for name in NAMES[:2]:
        store.remove(name)
    store.write_bytes(NAMES[0], b"theirs")
    before = store.list()
    (refused,) = source.copy("animals:2.0.0", other)
    assert isinstance(refused.error, ConflictError)
    assert "contains other data" in refused.error.message
    assert store.read_bytes(NAMES[0]) == b"theirs"
    assert store.list() == before
    assert not store.exists(MARKER_FILE)
    assert other.reservations.list() == ()


def test_a_copy_of_missing_files_goes_on_after_an_interruption(
    source: Catalog, bucket: str, fault_proxy: FaultProxy, tmp_path: Path
) -> None:
    with registry.connect(tmp_path / "lab.db", data_dir=tmp_path / "data") as shared:
        source.copy("animals:2.0.0", shared).require_all()
    with registry.connect(tmp_path / "lab.db", data_dir=f"{bucket}/data") as other:
        copied, sent, again = copy_in_two_runs(source, other, fault_proxy)
        assert (copied.outcome.value, copied.only_files) == ("copied", True)
        assert again & sent <= {MARKER_FILE}
        assert other.verify_all(deep=True).is_sound
        assert other.reservations.list() == ()


def test_a_version_that_is_read_from_elsewhere_is_left_alone(source: Catalog, tmp_path: Path) -> None:
    with registry.connect(tmp_path / "lab.db", data_dir=tmp_path / "lab") as other:
        source.copy("animals:2.0.0", other).require_all()
        shutil.move(tmp_path / "lab/animals/2.0.0", tmp_path / "moved")
        other.mirrors.relocate("animals:2.0.0", tmp_path / "moved")
        (known,) = source.copy("animals:2.0.0", other)
        assert (known.outcome.value, known.only_files) == ("known", False)
    assert not (tmp_path / "lab/animals/2.0.0").exists()


def test_empty_objects_that_stand_for_folders_are_no_files(source: Catalog, bucket: str, tmp_path: Path) -> None:
    """Web consoles of stores make them; they cannot be read under the name that a listing shows."""
    import boto3

    client = boto3.client("s3", region_name="us-east-1", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    with (
        registry.connect(tmp_path / "remote.db", data_dir=f"{bucket}/data") as remote,
        registry.connect(tmp_path / "lab.db", data_dir=tmp_path / "lab") as other,
    ):
        source.copy("animals:2.0.0", remote).require_all()
        for name in ("data/animals/", "data/animals/2.0.0/", "data/animals/2.0.0/empty/"):
            client.put_object(Bucket=bucket.removeprefix("s3://"), Key=name, Body=b"")
        store = open_store(f"{bucket}/data/animals/2.0.0")
        for name in ("LICENSE", "empty.txt"):
            store.write_bytes(name, b"Free." if name == "LICENSE" else b"")
        assert "empty" not in store.list()
        assert {one.name for one in store.scan()} == {one.name for one in store.scan_listable()} == set(store.list())
        (copied,) = remote.copy("animals:2.0.0", other)
        assert copied.notes == ()
    there = tmp_path / "lab/animals/2.0.0"
    assert ((there / "LICENSE").read_text(), (there / "empty.txt").read_bytes()) == ("Free.", b"")
    assert not (there / "empty").exists()


def test_a_copy_into_a_bucket_that_both_catalogs_use_finishes_nothing(
    source: Catalog, bucket: str, tmp_path: Path
) -> None:
    with (
        registry.connect(tmp_path / "first.db", data_dir=f"{bucket}/data") as first,
        registry.connect(tmp_path / "second.db", data_dir=f"{bucket}/data") as second,
    ):
        source.copy("animals:2.0.0", first).require_all()
        (copied,) = first.copy("animals:2.0.0", second)
        assert (copied.outcome.value, copied.notes) == ("copied", ())
        assert second.verify_all(deep=True).is_sound


def test_an_object_is_sent_once_and_what_is_there_is_not_sent_again(
    source: Catalog, bucket: str, fault_proxy: FaultProxy, tmp_path: Path
) -> None:
    with registry.connect(tmp_path / "other.db", data_dir=f"{bucket}/data") as other:
        copied, sent, again = copy_in_two_runs(source, other, fault_proxy)
        assert copied.outcome.value == "copied"
        assert again & sent == {MARKER_FILE}
        assert [one for one in copied.notes if one.startswith("finished an earlier run")]


def test_versions_without_fingerprints_are_copied_without(source: Catalog, other: Catalog, tmp_path: Path) -> None:
    folder = prepare(tmp_path / "trusted", splits={"train": animals(20)}, name="trusted")
    source.import_tfds(folder, trust_lengths=True).require_all()
    source.copy("trusted", other).require_all()
    assert facts(other, "trusted:1.0.0") == facts(source, "trusted:1.0.0")
    assert other.backend.fingerprints(other.backend.find("trusted")) == {}
    assert other.verify_log().faults == ()


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_of_copies_that_run_at_once_one_publishes_and_the_others_find_it(
    source: Catalog, other: Catalog, data_dir: str, tmp_path: Path
) -> None:
    def copy() -> object:
        with (
            registry.connect(tmp_path / "source.db", data_dir=tmp_path / "data") as first,
            registry.connect(other.url, data_dir=data_dir) as second,
        ):
            return [[one.outcome.value, str(one.error)] for one in first.copy("animals", second)]

    outcomes = [wait(*one) for one in [fork(copy) for _ in range(4)]]

    for of_version in zip(*outcomes, strict=True):
        assert sorted(of_version) == [["copied", "None"], *([["known", "None"]] * 3)]
    assert other.verify_all(deep=True).is_sound
    assert other.verify_log().faults == ()
    assert other.reservations.list() == ()
    assert ages(other, "animals") == ages(source, "animals")


def test_files_that_a_killed_run_has_copied_to_a_disk_are_taken_over(source: Catalog, tmp_path: Path) -> None:
    with registry.connect(tmp_path / "other.db", data_dir=tmp_path / "other-data"):
        pass
    script = """
import os, sys
from pathlib import Path
import registry
from registry.storage.local import LocalStore
create_from = LocalStore.create_from
def dying(self, name, *source, **options):
    if name.endswith("00002-of-00003"):
        while sum("tfrecord" in one for one in self.list()) < 2:
            pass
        os._exit(9)
    return create_from(self, name, *source, **options)
LocalStore.create_from = dying
top = Path(sys.argv[1])
with registry.connect(top / "source.db", data_dir=top / "data") as source:
    with registry.connect(top / "other.db", data_dir=top / "other-data") as other:
        source.copy("animals:2.0.0", other)
"""
    died = warm_python.run([os.fspath(shutil.which("python") or "python"), "-c", script, str(tmp_path)], check=False)
    assert died.returncode == 9
    (left,) = (tmp_path / "other-data/animals").iterdir()
    kept = {path.name: path.stat().st_ino for path in left.glob("animals*")}
    assert sorted(kept) == NAMES[:2]
    (left / NAMES[1]).write_bytes(b"damaged meanwhile")

    with registry.connect(tmp_path / "other.db", data_dir=tmp_path / "other-data") as other:
        (copied,) = source.copy("animals:2.0.0", other)
        assert copied.outcome.value == "copied"
        assert facts(other, "animals:2.0.0") == facts(source, "animals:2.0.0")
        assert other.verify_all(deep=True).is_sound
    folder = tmp_path / "other-data/animals/2.0.0"
    assert (folder / NAMES[0]).stat().st_ino == kept[NAMES[0]]
    assert (folder / NAMES[1]).stat().st_ino != kept[NAMES[1]]
    assert list((tmp_path / "other-data/animals").iterdir()) == [folder]
