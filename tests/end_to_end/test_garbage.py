"""Garbage collection removes what killed processes left, and nothing that is published, in use, or of others."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from support import FOLDER, TESTS, warm_python
from support.catalog_clocks import set_clocks, set_store_clock
from support.catalog_samples import sample
from support.levels import either, every_step
from support.prepared_samples import animals, prepare

import registry
from registry.api.reports import GarbageReport
from registry.catalog import Holder, catalog_identity
from registry.engines.ray.connection import marker_in
from registry.errors import PartialFailureError, StorageError, UsageError
from registry.features import FeaturesDict
from registry.model import Reference
from registry.publishing import garbage
from registry.publishing.garbage import GarbageCollector
from registry.storage import multipart, open_store
from registry.storage.local import LocalStore
from registry.storage.names import Owner

HERE = Owner.this_process()
ELSEWHERE = replace(HERE, host="elsewhere", machine="another")
EVERY = every_step(3)
"""One step in this number is tried in the long level; 1 tries them all."""


@pytest.fixture(scope="module")
def dead() -> Owner:
    """A process of this machine that has ended."""
    with warm_python.Popen([sys.executable, "-c", ""]) as process:
        pass
    return replace(HERE, pid=process.pid, started="1")


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TMPDIR and the cache of the test alone."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[registry.Catalog]:
    """A catalog with animals:1.0.0 on a disk."""
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as made:
        made.publish(prepare(tmp_path / "given", shards=2))
        yield made


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def outcomes(report: GarbageReport) -> dict[str, str]:
    """The outcome of each leftover but the cache, by the end of its place."""
    found = (one for one in report if one.kind != "cache")
    return {"/".join(one.place.rsplit("/", 2)[-2:]): f"{one.kind} {one.outcome}" for one in found}


def removed(report: GarbageReport) -> list[str]:
    """The places that were removed, but for the cache."""
    return [one.place for one in report.of("removed") if one.kind != "cache"]


def write(path: Path, text: str = "x" * 10) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def owner_text(owner: Owner, identity: str | None) -> str:
    return json.dumps(asdict(owner) | ({} if identity is None else {"catalog": identity}))


def stage(folder: Path, owner: Owner | None, identity: str | None = None) -> None:
    """An unfinished folder of a process that worked for the catalog with this identity."""
    write(folder / "shard")
    if owner is not None:
        write(folder / ".owner.json", owner_text(owner, identity))


def identity_of(catalog: registry.Catalog) -> str:
    identity = catalog_identity(catalog.backend.log)
    assert identity is not None
    return identity


def leave_everything(data: Path, dead: Owner, identity: str) -> None:
    """One leftover of every kind and every owner."""
    stage(data / "animals/incomplete.00000001_2.0.0", dead, identity)
    stage(data / "animals/incomplete.00000002_2.0.0", HERE, identity)
    stage(data / "animals/incomplete.00000003_2.0.0", ELSEWHERE, identity)
    stage(data / "animals/incomplete.00000004_2.0.0", None)
    stage(data / "animals/incomplete.AB12CD_2.0.0", None)
    (data / "animals/incomplete.00000005_2.0.0").mkdir()
    stage(data / "other/config/incomplete.00000006_2.0.0", dead)
    stage(data / "animals/incomplete.00000007_2.0.0", dead, "another catalog")
    stage(data / "animals/incomplete.00000008_2.0.0", ELSEWHERE, "another catalog")
    stage(data / "animals/incomplete.00000009_2.0.0", ELSEWHERE)
    write(data / f"other/incomplete.00000001{ELSEWHERE.mark()}_features.json")
    write(data / "other/incomplete.00000002_features.json")
    write(data / f"animals/1.0.0/incomplete.00000001{dead.mark()}_features.json")
    write(data / f"animals/1.0.0/incomplete.00000002{HERE.mark()}_features.json")
    write(data / f"animals/1.0.0/incomplete.00000003{ELSEWHERE.mark()}_features.json")
    write(data / "animals/1.0.0/incomplete.00000004_features.json")
    stage(data / "animals/damaged.00000001_1.0.0", dead, identity)
    stage(data / "animals/damaged.00000002_7.0.0", dead, identity)
    stage(data / "animals/damaged.00000004_1.0.0", dead, "another catalog")
    stage(data / "animals/damaged.00000005_1.0.0", None)
    stage(data / "animals/leftover.00000003_7.0.0", dead, identity)
    stage(data / "animals/leftover.00000006_7.0.0", None)
    write(data / "animals/3.0.0/dataset_info.json")
    write(data / "animals/1.0.0/LICENSE")
    write(data / "animals/notes.txt")
    write(data / "readme.txt")


UNTOUCHED = {
    "animals/incomplete.00000002_2.0.0": "staged kept",
    "animals/incomplete.00000004_2.0.0": "staged unknown",
    "animals/incomplete.00000007_2.0.0": "staged unknown",
    "animals/incomplete.00000008_2.0.0": "staged unknown",
    "other/incomplete.00000002_features.json": "upload unknown",
    "animals/damaged.00000004_1.0.0": "damaged unknown",
    "animals/damaged.00000005_1.0.0": "damaged unknown",
    "animals/leftover.00000006_7.0.0": "leftover unknown",
    "animals/incomplete.AB12CD_2.0.0": "staged unknown",
    f"1.0.0/incomplete.00000002{HERE.mark()}_features.json": "upload kept",
    "animals/damaged.00000002_7.0.0": "damaged unknown",
    "animals/3.0.0": "unpublished unknown",
    "animals/1.0.0": "extra unknown",
}


def test_within_the_grace_period_only_files_that_nobody_can_continue_are_removed(
    catalog: registry.Catalog, tmp_path: Path, dead: Owner
) -> None:
    data = tmp_path / "data"
    leave_everything(data, dead, identity_of(catalog))
    before = files_below(data)

    planned = catalog.collect_garbage(dry_run=True)

    assert files_below(data) == before
    assert outcomes(planned) == UNTOUCHED | {
        "animals/incomplete.00000001_2.0.0": "staged kept",
        "animals/incomplete.00000003_2.0.0": "staged kept",
        "animals/incomplete.00000005_2.0.0": "staged kept",
        "animals/incomplete.00000009_2.0.0": "staged kept",
        f"other/incomplete.00000001{ELSEWHERE.mark()}_features.json": "upload kept",
        "config/incomplete.00000006_2.0.0": "staged kept",
        f"1.0.0/incomplete.00000001{dead.mark()}_features.json": "upload found",
        f"1.0.0/incomplete.00000003{ELSEWHERE.mark()}_features.json": "upload kept",
        "1.0.0/incomplete.00000004_features.json": "upload kept",
        "animals/damaged.00000001_1.0.0": "damaged kept",
        "animals/leftover.00000003_7.0.0": "leftover kept",
    }
    staged = next(one for one in planned if "00000001_2.0.0" in one.place)
    assert (staged.num_files, staged.num_bytes) == (2, 10 + len(owner_text(dead, identity_of(catalog))))
    assert staged.why == f"process {dead.pid} on {dead.host} left it and has ended; its next run may use it"
    assert staged.changed_at is not None
    assert abs(datetime.now(UTC) - staged.changed_at) < timedelta(hours=1)

    done = catalog.collect_garbage()

    assert {**outcomes(planned), **outcomes(done)} == {
        name: word.replace("found", "removed") for name, word in outcomes(planned).items()
    }
    gone = before - files_below(data)
    assert gone == {f"animals/1.0.0/incomplete.00000001{dead.mark()}_features.json"}
    assert catalog.dataset("animals").verify().faults == ()
    assert removed(catalog.collect_garbage()) == []


def test_after_the_grace_period_only_what_is_known_to_be_in_use_or_unknown_is_left(
    catalog: registry.Catalog, tmp_path: Path, dead: Owner
) -> None:
    data = tmp_path / "data"
    leave_everything(data, dead, identity_of(catalog))

    catalog.collect_garbage(older_than="0s").require_all()

    assert outcomes(catalog.collect_garbage(older_than="0s")) == UNTOUCHED | {
        "animals/incomplete.00000009_2.0.0": "staged unknown",
        f"other/incomplete.00000001{ELSEWHERE.mark()}_features.json": "upload unknown",
    }
    left = files_below(data)
    assert {"readme.txt", "animals/notes.txt", "animals/1.0.0/LICENSE", "animals/3.0.0/dataset_info.json"} < left
    assert not (data / "animals/incomplete.00000005_2.0.0").exists()
    assert catalog.dataset("animals").verify().faults == ()


def test_a_grace_period_is_measured_from_the_last_change(catalog: registry.Catalog, tmp_path: Path) -> None:
    stage(tmp_path / "data/animals/incomplete.00000003_2.0.0", ELSEWHERE, identity_of(catalog))

    def verdicts(later: timedelta) -> list[str]:
        store = open_store(tmp_path / "data")
        with set_store_clock(later):
            collector = GarbageCollector(store, catalog.backend, older_than=timedelta(days=7), actor="ann")
            return [one.outcome.value for one in collector.find()]

    assert verdicts(timedelta(days=6)) == ["kept"]
    assert verdicts(timedelta(days=8)) == ["found"]


def test_files_are_kept_if_their_store_cannot_tell_their_age(catalog: registry.Catalog, tmp_path: Path) -> None:
    stage(tmp_path / "data/animals/incomplete.00000003_2.0.0", ELSEWHERE)
    collector = GarbageCollector(
        open_store(tmp_path / "data"), catalog.backend, older_than=timedelta(seconds=1), actor="ann"
    )
    with mock.patch.object(LocalStore, "now", side_effect=StorageError("data/incomplete.1_clock: permission denied")):
        assert [one.outcome.value for one in collector.find()] == ["kept"]
    assert collector.notes == [
        "the age of files is unknown, so they are kept: data/incomplete.1_clock: permission denied"
    ]


@pytest.mark.parametrize("name", ["incomplete.0a1b2c3d_2.0.0", "damaged.0a1b2c3d_1.0.0", "leftover.0a1b2c3d_1.0.0"])
@pytest.mark.parametrize("inside", ["", "/deep/in/it", "/.."])
def test_files_that_a_row_names_stay_whatever_their_folder_is_called(
    catalog: registry.Catalog, tmp_path: Path, dead: Owner, name: str, inside: str
) -> None:
    folder = tmp_path / "data/animals" / name
    stage(folder, dead)
    place = (tmp_path / f"data/animals/{name}{inside}").resolve() if inside != "/.." else tmp_path / "data/animals"
    version, shards = sample("placed:1.0.0", location=str(place), content_digest="0" * 64)
    catalog.backend.publish(version, shards, promote=True, actor="ann")

    report = catalog.collect_garbage(older_than="0s")

    assert folder.joinpath("shard").exists()
    assert removed(report) == []


def test_mirrors_and_places_that_a_version_had_before_stay(catalog: registry.Catalog, tmp_path: Path) -> None:
    data = tmp_path / "data/animals"
    for name in ("damaged.0a1b2c3d_1.0.0", "leftover.0a1b2c3d_1.0.0"):
        shutil.copytree(data / "1.0.0", data / name)
        catalog.mirrors.add("animals:1.0.0", data / name)
    catalog.mirrors.remove("animals:1.0.0", data / "leftover.0a1b2c3d_1.0.0")
    before = files_below(data)

    assert removed(catalog.collect_garbage(older_than="0s")) == []
    assert files_below(data) == before


def test_a_file_that_the_registry_wrote_for_a_version_is_not_extra(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.add([{"x": 1}], "rows")
    (written,) = (tmp_path / "data/rows").iterdir()
    assert (written / "metadata.json").exists()

    assert outcomes(catalog.collect_garbage(older_than="0s")) == {}


def test_the_marker_of_a_program_that_looked_for_shared_folders_disturbs_nothing_and_is_removed_if_it_was_killed(
    catalog: registry.Catalog, tmp_path: Path
) -> None:
    dataset = catalog.dataset("animals")
    folders = [tmp_path / "data", tmp_path / "data/animals/1.0.0"]
    before = files_below(tmp_path / "data")
    with marker_in(str(folders[0])), marker_in(str(folders[1])):
        assert len(files_below(tmp_path / "data") - before) == 2
        dataset.verify(deep=True).raise_for_faults("animals")
        assert set(open_store(tmp_path / "data").list()) == before
        assert removed(catalog.collect_garbage(older_than="0s")) == []
    assert files_below(tmp_path / "data") == before

    program = (
        "import os, sys; from registry.engines.ray.connection import marker_in\n"
        "with marker_in(sys.argv[1]), marker_in(sys.argv[2]): os.kill(os.getpid(), 9)"
    )
    warm_python.run([sys.executable, "-c", program, *map(str, folders)], check=False)
    assert len(files_below(tmp_path / "data") - before) == 2
    dataset.verify(deep=True).raise_for_faults("animals")
    assert len(removed(catalog.collect_garbage())) == 2
    assert files_below(tmp_path / "data") == before


def test_links_are_not_followed(catalog: registry.Catalog, tmp_path: Path, dead: Owner) -> None:
    outside = tmp_path / "outside"
    stage(outside / "incomplete.00000001_2.0.0", dead)
    (tmp_path / "data/linked").symlink_to(outside)
    (tmp_path / "data/animals/incomplete.00000001_2.0.0").mkdir()
    stage(tmp_path / "data/animals/incomplete.00000001_2.0.0", dead)
    (tmp_path / "data/animals/incomplete.00000001_2.0.0/link").symlink_to(outside)

    catalog.collect_garbage(older_than="0s")

    assert files_below(outside) == {"incomplete.00000001_2.0.0/shard", "incomplete.00000001_2.0.0/.owner.json"}
    assert not (tmp_path / "data/animals/incomplete.00000001_2.0.0").exists()


def test_temporary_folders_and_the_cache_are_collected(catalog: registry.Catalog, tmp_path: Path, dead: Owner) -> None:
    write(tmp_path / f"tmp/shardbook-{dead.mark()}_abc/shard")
    write(tmp_path / f"tmp/shardbook-{HERE.mark()}_abc/shard")
    write(tmp_path / "tmp/mine/shard")
    assert len(list(catalog.dataset("animals").read("train"))) == 20
    kept = files_below(tmp_path / "cache")

    assert [f"{one.kind} {one.outcome}" for one in catalog.collect_garbage()] == ["temporary removed"]
    assert files_below(tmp_path / "tmp") == {f"shardbook-{HERE.mark()}_abc/shard", "mine/shard"}
    assert files_below(tmp_path / "cache") == kept
    write(tmp_path / "cache/indexes/ab/abc.index.0123456789abcdef")
    assert "cache removed" in [f"{one.kind} {one.outcome}" for one in catalog.collect_garbage(older_than="0s")]
    assert not [name for name in files_below(tmp_path / "cache") if ".index" in name or ".stamp" in name]
    assert len(list(catalog.dataset("animals").read("train"))) == 20


def test_what_cannot_be_removed_is_told_and_the_rest_is_removed(
    catalog: registry.Catalog, tmp_path: Path, dead: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        stage(tmp_path / f"data/animals/incomplete.0000000{number}_2.0.0", dead)
    remove = LocalStore.remove_tree

    def refuse(self: LocalStore, name: str) -> None:
        if "00000001" in name:
            raise StorageError(f"cannot remove {name}: permission denied")
        remove(self, name)

    monkeypatch.setattr(LocalStore, "remove_tree", refuse)
    report = GarbageReport(one for one in catalog.collect_garbage(older_than="0s") if one.kind != "cache")
    assert [one.outcome for one in report] == ["failed", "removed"]
    with pytest.raises(PartialFailureError, match=r"^1 of 2 leftovers could not be removed:\n  .*00000001_2.0.0"):
        report.require_all()


@pytest.mark.parametrize("wrong", ["7", "d", "-1d", "1.5h", "7 days", timedelta(days=-1)])
def test_a_grace_period_that_is_no_duration_is_refused(catalog: registry.Catalog, wrong: Any) -> None:
    with pytest.raises(UsageError):
        catalog.collect_garbage(older_than=wrong)


# Object stores


@pytest.fixture
def remote(tmp_path: Path, bucket: str, sqlite_template: Path) -> Iterator[registry.Catalog]:
    """An empty catalog whose data is in a bucket."""
    url = shutil.copy(sqlite_template, tmp_path / "remote.db")
    with registry.connect(url, data_dir=f"{bucket}/data") as made:
        yield made


def objects(catalog: registry.Catalog) -> set[str]:
    return {one.name for one in open_store(catalog.data_dir).scan()}


def reserve(catalog: registry.Catalog, owner: Owner, *names: str, version: str = "2.0.0") -> None:
    """What a publisher left that was killed while it put files."""
    location = f"{catalog.data_dir}/animals/{version}"
    holder = replace(Holder.of_this_process("ann"), owner=owner)
    exactly = Reference.parse(f"animals:{version}")
    with set_clocks(timedelta(minutes=-1)):
        held, _ = catalog.backend.reservations.reserve(location, exactly, "1" * 64, holder)
    store = open_store(location)
    content = {"token": held.token, "reference": held.reference, "content_digest": "1" * 64}
    store.write_bytes(".reservation.json", json.dumps(content).encode())
    for name in names:
        source = open_store("memory://garbage")
        source.write_bytes("source", name.encode(), overwrite=True)
        store.create_from(name, source, "source", writer=held.token)


def test_the_objects_of_a_dead_publisher_are_removed_and_those_of_others_stay(
    remote: registry.Catalog, tmp_path: Path, dead: Owner
) -> None:
    remote.publish(prepare(tmp_path / "given", shards=2))
    published = objects(remote)
    reserve(remote, dead, "shard-0", "shard-1")
    open_store(remote.data_dir).write_bytes("animals/2.0.0/mine.txt", b"mine")
    open_store(remote.data_dir).write_bytes("animals/3.0.0/foreign", b"foreign")

    assert outcomes(remote.collect_garbage())["animals/2.0.0"] == "reservation kept"
    done = remote.collect_garbage(older_than="0s")

    assert outcomes(done) == {"animals/2.0.0": "reservation removed", "animals/3.0.0": "unpublished unknown"}
    assert objects(remote) == published | {"animals/2.0.0/mine.txt", "animals/3.0.0/foreign"}
    assert remote.reservations.list() == ()
    assert remote.dataset("animals").verify(deep=True).faults == ()


def test_a_publisher_that_runs_keeps_its_objects_and_one_elsewhere_for_the_grace_period(
    remote: registry.Catalog,
) -> None:
    reserve(remote, HERE, "shard-0")
    reserve(remote, ELSEWHERE, "shard-0", version="3.0.0")
    before = objects(remote)

    (here, there) = remote.collect_garbage(older_than="1h")
    assert (here.outcome, there.outcome) == ("kept", "kept")
    assert here.why.endswith("is publishing animals:2.0.0")
    assert objects(remote) == before

    assert outcomes(remote.collect_garbage(older_than="0s")) == {
        "animals/2.0.0": "reservation kept",
        "animals/3.0.0": "reservation removed",
    }
    assert objects(remote) == {name for name in before if "2.0.0" in name}


@pytest.mark.parametrize(("ahead", "outcome"), [(timedelta(days=-8), "removed"), (timedelta(days=-6), "kept")])
def test_the_age_of_a_reservation_is_that_of_the_catalogs_clock(
    remote: registry.Catalog, ahead: timedelta, outcome: str
) -> None:
    with set_clocks(ahead):
        remote.backend.reservations.reserve(
            f"{remote.data_dir}/animals/2.0.0",
            Reference.parse("animals:2.0.0"),
            "1" * 64,
            replace(Holder.of_this_process("ann"), owner=ELSEWHERE),
        )
    (found,) = remote.collect_garbage(older_than="7d")
    assert found.outcome == outcome


def test_a_reservation_without_objects_is_forgotten(remote: registry.Catalog, dead: Owner) -> None:
    held, holder = None, replace(Holder.of_this_process("ann"), owner=dead)
    held, _ = remote.backend.reservations.reserve(
        f"{remote.data_dir}/animals/2.0.0", Reference.parse("animals:2.0.0"), "1" * 64, holder
    )
    remote.backend.reservations.reserve(
        "s3://elsewhere/animals/2.0.0", Reference.parse("animals:2.0.0"), "1" * 64, holder
    )
    assert outcomes(remote.collect_garbage(older_than="0s")) == {"animals/2.0.0": "reservation removed"}
    assert [one.location for one in remote.reservations.list()] == ["s3://elsewhere/animals/2.0.0"]
    assert held.location not in {one.location for one in remote.reservations.list()}


def test_orphans_beside_a_published_version_are_removed_and_other_files_are_not(
    remote: registry.Catalog, tmp_path: Path, dead: Owner
) -> None:
    folder = prepare(tmp_path / "given", shards=2)
    write(folder / "LICENSE")
    remote.publish(folder)
    published = objects(remote)
    store = open_store(f"{remote.data_dir}/animals/1.0.0")
    source = open_store("memory://garbage")
    source.write_bytes("source", b"late", overwrite=True)
    ours = f"token.{identity_of(remote)[:16]}"
    store.create_from("animals-train.tfrecord-00002-of-00003", source, "source", writer=ours)
    store.create_from("animals-train.tfrecord-00003-of-00004", source, "source", writer="token.0123456789abcdef")
    store.write_bytes("animals-train.tfrecord-00007-of-00009", b"by hand")
    store.write_bytes("incomplete.0a1b2c3d_shard", b"unfinished")

    done = remote.collect_garbage(older_than="0s")

    assert outcomes(done) == {
        "1.0.0/animals-train.tfrecord-00002-of-00003": "orphan removed",
        "1.0.0/incomplete.0a1b2c3d_shard": "upload removed",
        "animals/1.0.0": "extra unknown",
    }
    assert next(one for one in done if one.kind == "extra").num_files == 3
    assert objects(remote) == published | {
        "animals/1.0.0/animals-train.tfrecord-00003-of-00004",  # of a publisher of another catalog
        "animals/1.0.0/animals-train.tfrecord-00007-of-00009",
    }
    assert remote.reservations.list() == ()


def test_a_marker_that_was_left_after_the_row_is_removed_and_one_of_another_catalog_is_not(
    remote: registry.Catalog, tmp_path: Path
) -> None:
    remote.publish(prepare(tmp_path / "given", shards=1))
    published = objects(remote)
    data = open_store(remote.data_dir)
    digest = remote.published_digest("animals:1.0.0")

    def mark(identity: str) -> None:
        marker = {"token": "x", "content_digest": digest, "identity": identity}
        data.write_bytes("animals/1.0.0/.reservation.json", json.dumps(marker).encode())

    mark(identity_of(remote))
    data.write_bytes("animals/2.0.0/.reservation.json", json.dumps({"token": "y", "catalog": "sqlite:///b"}).encode())
    data.write_bytes("animals/2.0.0/shard", b"x")

    done = remote.collect_garbage(older_than="0s")

    assert outcomes(done) == {"animals/1.0.0": "marker removed", "animals/2.0.0": "unpublished unknown"}
    assert next(one for one in done if one.kind == "unpublished").why == "another catalog holds it: sqlite:///b"
    assert objects(remote) == published | {"animals/2.0.0/.reservation.json", "animals/2.0.0/shard"}
    mark("another catalog")  # its publisher puts the same content there
    assert outcomes(remote.collect_garbage(older_than="0s"))["animals/1.0.0"] == "marker unknown"


def test_parts_of_uploads_are_removed(
    remote: registry.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3

    client = boto3.client("s3", region_name="us-east-1", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    bucket = remote.data_dir.split("/")[2]
    reserve(remote, HERE, version="2.0.0")
    for key in (
        "data/animals/1.0.0/shard",
        "data/animals/2.0.0/shard",
        "data/b/7.0.0/shard",
        "data/notes",
        "other/shard",
    ):
        upload = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
        client.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=b"12345")

    remote.publish(prepare(tmp_path / "given", shards=1))
    # The test's server says of every upload that it was begun in 2010.
    assert {one.outcome for one in remote.collect_garbage(older_than="9999d") if one.kind == "multipart"} == {"kept"}
    done = remote.collect_garbage(older_than="0s")

    assert {name: word for name, word in outcomes(done).items() if "multipart" in word} == {
        "1.0.0/shard": "multipart removed",
        "2.0.0/shard": "multipart kept",
        "7.0.0/shard": "multipart unknown",  # perhaps of another catalog
        "data/notes": "multipart unknown",
    }
    assert next(one for one in done if one.place.endswith("1.0.0/shard")).num_bytes == 5
    left = {one["Key"] for one in client.list_multipart_uploads(Bucket=bucket)["Uploads"]}
    assert left == {"data/animals/2.0.0/shard", "data/b/7.0.0/shard", "data/notes", "other/shard"}

    monkeypatch.setitem(sys.modules, "boto3", None)
    (note,) = remote.collect_garbage().notes
    assert "pip install 'shardbook[aws]'" in note
    assert "AbortIncompleteMultipartUpload" in note


def test_an_upload_that_was_begun_within_the_grace_period_keeps_its_reservation(
    remote: registry.Catalog, dead: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its publisher may run on another machine, or a person may send files to the place."""
    import boto3

    client = boto3.client("s3", region_name="us-east-1", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    bucket = remote.data_dir.split("/")[2]
    reserve(remote, dead)
    open_store(remote.data_dir).remove("animals/2.0.0/.reservation.json")
    client.create_multipart_upload(Bucket=bucket, Key="data/animals/2.0.0/shard")
    begun, original = [datetime.now(UTC)], multipart.list_unfinished

    def dated(*args: Any) -> Iterator[multipart.UnfinishedUpload]:  # the test's server says that all began in 2010
        return (replace(upload, begun_at=begun[0]) for upload in original(*args))

    for module in (multipart, garbage):
        monkeypatch.setattr(module, "list_unfinished", dated)
    remote.collect_garbage(older_than="30s")
    assert len(client.list_multipart_uploads(Bucket=bucket).get("Uploads", ())) == 1
    assert [held.version for held in remote.backend.reservations.list()] == ["2.0.0"]

    begun[0] -= timedelta(minutes=1)
    remote.collect_garbage(older_than="30s")
    assert client.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []
    assert remote.backend.reservations.list() == ()


def put(catalog: registry.Catalog, *names: str) -> None:
    """Objects that another program wrote below the data directory, whatever their names."""
    import boto3

    client = boto3.client("s3", region_name="us-east-1", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    _, _, bucket, root = catalog.data_dir.split("/", 3)
    for name in names:
        client.put_object(Bucket=bucket, Key=f"{root}/{name}", Body=b"x")


def test_objects_with_invalid_names_are_told_and_the_rest_is_collected(
    remote: registry.Catalog, tmp_path: Path, dead: Owner
) -> None:
    remote.publish(prepare(tmp_path / "given", shards=1))
    reserve(remote, dead, "shard-0")
    reserve(remote, dead, "shard-0", version="3.0.0")
    put(remote, "other//1.0.0/x", "animals/3.0.0/../b", "odd/a\x01b", "odd/a\x7f", "animals/2.0.0/a\\b", "w\\x/1.0.0/y")

    done = remote.collect_garbage(older_than="0s")

    found = [(one.kind, one.place.removeprefix(remote.data_dir), one.outcome.value) for one in done]
    assert sorted(one for one in found if one[0] != "cache") == [
        ("invalid", "", "unknown"),
        ("invalid", "/animals/3.0.0", "unknown"),
        ("invalid", "/odd", "unknown"),
        ("invalid", "/other", "unknown"),
        ("reservation", "/animals/2.0.0", "removed"),
        ("reservation", "/animals/3.0.0", "kept"),
    ]
    told = {one.place.removeprefix(remote.data_dir): one for one in done if one.kind == "invalid"}
    assert told["/other"].filenames == ("/1.0.0/x",)
    assert told["/other"].why == "because of this name, which is invalid, other files in this folder cannot be listed"
    assert told["/odd"].filenames == ("a\x01b",)
    assert told[""].filenames == ("w\\x/1.0.0/y",)
    assert remote.dataset("animals").verify().faults == ()


def test_an_invalid_name_in_the_data_directory_itself_hides_no_known_dataset(
    remote: registry.Catalog, tmp_path: Path, dead: Owner
) -> None:
    remote.publish(prepare(tmp_path / "given", shards=1))
    reserve(remote, dead, "shard-0")
    put(remote, "/x", "animals//y")

    done = remote.collect_garbage(older_than="0s")

    assert [(one.kind, one.outcome.value, one.filenames) for one in done if one.kind != "cache"] == [
        ("invalid", "unknown", ("/x",)),
        ("invalid", "unknown", ("/y",)),
        ("reservation", "removed", (".reservation.json", "shard-0")),
    ]
    assert remote.dataset("animals").verify().faults == ()


def test_files_with_invalid_names_on_a_disk_are_told_and_left_alone(
    catalog: registry.Catalog, tmp_path: Path, dead: Owner
) -> None:
    data = tmp_path / "data"
    stage(data / "animals/incomplete.00000001_2\\0", dead)
    stage(data / "animals/incomplete.00000002_2.0.0", dead)
    write(data / "b\\c/1.0.0/.reservation.json")
    write(data / "line\nbreak/1.0.0/x")

    assert outcomes(catalog.collect_garbage(older_than="0s")) == {
        "animals/incomplete.00000002_2.0.0": "staged removed",
        "data/animals": "invalid unknown",
        "data/": "invalid unknown",
    }
    left = files_below(data)
    assert {"animals/incomplete.00000001_2\\0/shard", "b\\c/1.0.0/.reservation.json", "line\nbreak/1.0.0/x"} < left


def run_script(*arguments: str) -> Any:
    """The output of ``garbage_collectors.py``, whose TMPDIR and cache are those of the test."""
    done = warm_python.run(
        [sys.executable, str(FOLDER / "garbage_collectors.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(TESTS), "TMPDIR": tempfile.gettempdir()},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def jobs(tmp_path: Path, bucket: str, sqlite_template: Path) -> Any:
    """Makes jobs for the script: each has a catalog and a folder of its own."""
    folder = prepare(tmp_path / "given", splits={"train": animals(20)}, shards=2)

    def job(step: int, **more: int) -> dict[str, Any]:
        url = shutil.copy(sqlite_template, tmp_path / f"job-{step}-{more.get('publisher_step', 0)}.db")
        data_dir = f"{bucket}/{Path(url).stem}"
        with registry.connect(url) as catalog:
            catalog.set_data_dir(data_dir)  # its first event: before it, nothing can name the catalog as its owner
        return {"url": str(url), "data_dir": data_dir, "folder": str(folder), "step": step, **more}

    return job


@pytest.mark.parametrize("every", either(48, EVERY))
def test_after_a_publisher_was_killed_at_any_step_its_garbage_is_found(jobs: Any, every: int) -> None:
    [(whole, clean, _)] = run_script("killed-publishers", json.dumps([jobs(0)]))
    assert clean["outcomes"] == []
    steps = range(every // 2 + 1, whole["steps"] + 1, every)
    for step, (killed, found, again) in zip(
        steps, run_script("killed-publishers", json.dumps([*map(jobs, steps)])), strict=True
    ):
        assert killed is None, step
        assert found["faults"] == [], step
        assert found["reservations"] == 0, step
        assert len(found["objects"]) == len(clean["objects"]) * found["published"], (step, found)
        assert "error" not in again, (step, again)
        assert again["then"] | {"outcomes": []} == clean, step


@pytest.mark.parametrize("every", either(48, EVERY))
def test_a_collector_that_was_killed_at_any_step_loses_nothing(jobs: Any, every: int) -> None:
    [(whole, _, _)] = run_script("killed-publishers", json.dumps([jobs(0)]))
    for publisher_step in [whole["steps"] * 2 // 3, *([whole["steps"]] if every == EVERY else [])]:
        more = {"publisher_step": publisher_step}
        [(counted, _, _)] = run_script("killed-collectors", json.dumps([jobs(0, **more)]))
        steps = range(every // 2 + 1, counted["steps"] + 1, every)
        made = [jobs(step, **more) for step in steps]
        for step, (killed, found, again) in zip(steps, run_script("killed-collectors", json.dumps(made)), strict=True):
            # Publishers put several files at a time, so what a killed one leaves differs a little.
            assert killed is None or killed["steps"] < step
            assert (found["faults"], found["reservations"]) == ([], 0), step
            assert "error" not in again, (step, again)
            assert again["then"]["faults"] == [], step
            assert again["then"]["published"] == 1, step


@pytest.mark.parametrize("every", either(48, EVERY))
def test_a_publisher_during_whose_work_garbage_is_collected_loses_nothing(jobs: Any, every: int) -> None:
    [whole] = run_script("between", json.dumps([jobs(0)]))
    steps = range(every // 2 + 1, whole["steps"] + 1, every)
    for step, done in zip(steps, run_script("between", json.dumps([*map(jobs, steps)])), strict=True):
        assert done["published"].get("newly") is True, (step, done)
        (collected,) = done["collected"]
        # After the row, the marker is removed by whoever comes first.
        harmful = [word for word in collected["outcomes"] if word.endswith("removed") and word != "marker removed"]
        assert not harmful, (step, collected)
        assert done["then"] == whole["then"], step


def test_a_build_on_a_disk_during_which_garbage_is_collected_loses_nothing(tmp_path: Path) -> None:
    class Slow(registry.DatasetBuilder):
        VERSION = "1.0.0"

        def features(self) -> FeaturesDict:
            return FeaturesDict({"x": "int64"})

        def splits(self) -> Any:
            return {"train": self.examples()}

        def examples(self) -> Iterator[tuple[int, dict[str, int]]]:
            for number in range(20):
                with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as other:
                    report = other.collect_garbage(older_than="0s")
                    seen.extend(f"{one.kind} {one.outcome}" for one in report)
                yield number, {"x": number}

    seen: list[str] = []
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data", create=True) as catalog:
        catalog.build(Slow(), processes=1)
        assert catalog.dataset("slow").verify(deep=True).faults == ()
    assert not [word for word in seen if word.endswith("removed") and not word.startswith("cache")]
