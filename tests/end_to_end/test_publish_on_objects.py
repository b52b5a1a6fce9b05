"""A publisher handles every state that the place of a version in a bucket can have."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.clouds import on_clouds
from support.fault_proxy import FaultProxy
from support.prepared_samples import animals, prepare

import registry
from registry.api import Catalog
from registry.errors import ConflictError, NotFoundError, ReservedError, StorageError, UsageError
from registry.model import SlicingRule
from registry.publishing import object_place
from registry.publishing.verify import digest_of
from registry.storage import Store, open_store
from registry.storage.object_store import ObjectStore

SHARDS = [f"animals-train.tfrecord-0000{index}-of-00002" for index in (0, 1)]


@pytest.fixture
def folders(tmp_path: Path) -> Callable[[int], Path]:
    """Makes a folder of animals:1.0.0 in which one age is the given one."""
    return lambda age: prepare(tmp_path / str(age), splits={"train": animals(20, age=age)}, shards=2)


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_place, "WAIT_SECONDS", 0.0)


def upload(folder: Path, url: str, *names: str) -> None:
    """Put files of a folder into a bucket past the registry; without names all of them."""
    source, target = open_store(folder), open_store(url)
    for name in names or source.list():
        with target.create(name, overwrite=True) as file:
            file.write(source.read_bytes(name))


def test_equal_files_that_the_old_code_left_are_completed(
    bucket: str, tmp_path: Path, folders: Callable[[int], Path]
) -> None:
    upload(folders(98), f"{bucket}/animals/1.0.0", *SHARDS)
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        publication = catalog.publish(tmp_path / "98")
        assert publication.notes == ("finished an earlier run: 2 of 6 files were already in place",)
        assert catalog.dataset("animals").verify(deep=True).faults == ()
    assert open_store(bucket).folders("animals") == ["1.0.0"]


def test_uploads_are_a_stage_of_progress_and_files_that_are_there_count(
    bucket: str, tmp_path: Path, folders: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[registry.Progress] = []

    def die(*_: object, **_options: object) -> None:
        raise KeyboardInterrupt

    def last_upload() -> registry.Progress:
        assert seen[0].stage == "verifying"
        uploading = [one for one in seen if one.stage == "uploading"]
        assert uploading == seen[-len(uploading) :]
        seen.clear()
        return uploading[-1]

    with registry.connect(tmp_path / "catalog.db", data_dir=bucket, create=True) as catalog:
        with monkeypatch.context() as patched:
            patched.setattr(type(catalog.backend), "publish", die)
            with pytest.raises(KeyboardInterrupt):
                catalog.publish(folders(98), progress=seen.append)
        sent = last_upload()
        catalog.publish(tmp_path / "98", progress=seen.append)
        found = last_upload()
        num_bytes = sum(shard.num_bytes for shard in catalog.dataset("animals").shards("train"))
    assert str(sent) == f"uploading animals:1.0.0: {num_bytes:,} of {num_bytes:,} bytes, 6 of 6 files"
    assert found == sent


def test_other_files_that_nobody_reserved_are_refused_with_a_way_out_that_works(
    bucket: str, tmp_path: Path, folders: Callable[[int], Path]
) -> None:
    mine, other = folders(98), folders(99)
    upload(other, f"{bucket}/animals/1.0.0", SHARDS[0], SHARDS[1])
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        with pytest.raises(ConflictError) as caught:
            catalog.publish(mine)
        assert str(caught.value) == (
            f"the folder of animals:1.0.0 contains other data: {bucket}/animals/1.0.0\n  {SHARDS[1]}"
        )
        assert caught.value.hint == (
            "These files are not in this catalog. If no other catalog has them, move them aside: "
            f"registry reservation clear animals:1.0.0 --data-dir {bucket}"
        )
        assert catalog.reservations.list() == ()
        assert open_store(f"{bucket}/animals/1.0.0").list() == SHARDS

        assert catalog.reservations.clear("animals:1.0.0", dry_run=True).files == tuple(SHARDS)
        cleared = catalog.reservations.clear("animals:1.0.0")
        assert cleared.files == tuple(SHARDS)
        assert open_store(cleared.moved_to).list() == SHARDS
        assert catalog.publish(mine).newly
        with pytest.raises(ConflictError, match=r"^animals:1\.0\.0 is published: its files are not moved(?m:$)"):
            catalog.reservations.clear("animals:1.0.0")


def test_a_whole_version_of_another_catalog_is_not_moved_unasked(
    bucket: str, tmp_path: Path, folders: Callable[[int], Path]
) -> None:
    mine, other = folders(98), folders(99)
    with registry.connect(tmp_path / "other.db", data_dir=bucket) as catalog:
        catalog.publish(other)
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        with pytest.raises(ConflictError, match="contains other data") as caught:
            catalog.publish(mine)
        assert caught.value.hint == (
            "It is a complete version that is not in this catalog, but may be in another one. To publish it: "
            f"registry publish {bucket}/animals/1.0.0\nOr raise your version."
        )
        with pytest.raises(
            ConflictError, match="contains a complete version, which another catalog may have published"
        ):
            catalog.reservations.clear("animals:1.0.0")
        assert catalog.publish(f"{bucket}/animals/1.0.0").newly, "the hint works"
    with registry.connect(tmp_path / "other.db", data_dir=bucket) as catalog:
        assert catalog.dataset("animals").verify(deep=True).faults == ()


def test_another_catalog_that_is_at_work_is_named(bucket: str, tmp_path: Path, folders: Callable[[int], Path]) -> None:
    marker = {"token": "t", "holder": "ann (process 7 on far)", "catalog": "postgresql://db/one"}
    with open_store(bucket).create("animals/1.0.0/.reservation.json") as file:
        file.write(json.dumps(marker).encode())
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        with pytest.raises(ReservedError) as caught:
            catalog.publish(folders(98))
        assert str(caught.value) == (
            "the place of animals:1.0.0 is reserved for another catalog, postgresql://db/one, by ann "
            f"(process 7 on far): {bucket}/animals/1.0.0"
        )
        assert "registry reservation clear animals:1.0.0 --force" in (caught.value.hint or "")
        assert catalog.reservations.list() == ()
        with pytest.raises(ReservedError):
            catalog.reservations.clear("animals:1.0.0")
        catalog.reservations.clear("animals:1.0.0", force=True)
        assert catalog.publish(tmp_path / "98").newly


def test_a_mixed_version_is_recognised_and_mended_as_the_message_says(
    bucket: str, tmp_path: Path, folders: Callable[[int], Path]
) -> None:
    mine, other = folders(98), folders(99)
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        catalog.publish(mine)
        upload(other, f"{bucket}/animals/1.0.0", SHARDS[1])  # what earlier code did in a race
        report = catalog.dataset("animals").verify()
        (fault,) = report.faults
        assert fault.code == "foreign_shard"
        assert fault.problem.endswith(
            "; the file is intact, but is another file: changed since, or from an unknown publication"
        )
        assert "from a copy of its folder: registry publish FOLDER" in report.recovery
        assert "registry build" not in report.recovery  # it has no builder

        publication = catalog.publish(mine)

        assert publication.newly is False
        (note,) = publication.notes
        kept = note.removeprefix("replaced 1 damaged file, moved to ")
        assert open_store(kept).list() == [SHARDS[1]]
        assert open_store(kept).read_bytes(SHARDS[1]) == (other / SHARDS[1]).read_bytes()
        assert catalog.dataset("animals").verify(deep=True).faults == ()
        assert catalog.reservations.list() == ()


def test_swapped_shards_are_named(tmp_path: Path) -> None:
    folder = prepare(tmp_path / "one", splits={"train": animals(20)}, shards=2)
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.publish(folder)
        place = tmp_path / "data" / "animals" / "1.0.0"
        (place / SHARDS[1]).write_bytes((place / SHARDS[0]).read_bytes())
        (fault,) = catalog.dataset("animals").verify().faults
        assert fault.problem.endswith("; the file is intact, but is another file: shard 0 of split train")


def test_a_rebuild_mends_a_bucket(bucket: str, tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        catalog.build("digits", num_shards=2)
        name = catalog.dataset("digits").splits["train"].filenames[0]
        with open_store(f"{bucket}/digits/1.0.0").create(name, overwrite=True) as file:
            file.write(b"damaged")
        assert len(catalog.dataset("digits").verify().faults) == 1
        assert catalog.build("digits", num_shards=2, rebuild=True).newly is False
        assert catalog.dataset("digits").verify(deep=True).faults == ()


def test_a_reservation_of_another_machine_is_named_and_released(
    bucket: str,
    tmp_path: Path,
    folders: Callable[[int], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The publisher is killed half-way on another machine, so it is unknown whether it is alive."""
    from registry.storage.names import Owner

    mine, other = folders(98), folders(99)
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        with monkeypatch.context() as patch:
            here = Owner.this_process()
            far = Owner(**{**{name: getattr(here, name) for name in Owner.__slots__}, "host": "far", "machine": "m"})
            patch.setattr(Owner, "this_process", lambda: far)
            patch.setattr(object_place.ObjectPlace, "leave", lambda _: None)  # as if it was killed
            patch.setattr(object_place.ObjectPlace, "_require_marker", lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                catalog.publish(mine)
        with pytest.raises(
            ReservedError, match=r"^animals:1\.0\.0 is being published with other content by "
        ) as caught:
            catalog.publish(other)
        assert "on far, since 20" in str(caught.value)
        assert "registry reservation release animals:1.0.0" in (caught.value.hint or "")

        (held,) = catalog.reservations.release("animals:1.0.0")
        assert held.holders[0].owner.host == "far"
        publication = catalog.publish(other)
        assert publication.newly
        assert [note.partition(":")[0] for note in publication.notes] == [
            "removed 2 files of other content that an earlier run left behind",
            "finished an earlier run",
        ]
        assert catalog.dataset("animals").verify(deep=True).faults == ()
        with pytest.raises(NotFoundError, match=r"^animals:1\.0\.0 has no reservation(?m:$)"):
            catalog.reservations.release("animals:1.0.0")
        with pytest.raises(UsageError, match=r"^animals does not name one version by its number(?m:$)"):
            catalog.reservations.release("animals")


@on_clouds
@pytest.mark.parametrize("way", ["publish", "build", "add"])
def test_a_publication_takes_one_request_for_each_file_and_four(
    bucket: str, fault_proxy: FaultProxy, tmp_path: Path, folders: Callable[[int], Path], way: str
) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        folder = folders(98)
        fault_proxy.reset()
        if way == "publish":
            catalog.publish(folder)
        elif way == "build":
            catalog.build("digits", num_shards=4)
        else:
            catalog.add([{"price": 1}, {"price": 2}], "prices")
        requests = list(fault_proxy.requests)
    files = [name for name in open_store(bucket).list() if "/1.0.0/" in name]
    assert len(requests) == len(files) + 4, [(one.method, one.key) for one in requests]
    assert not any("list-type" in one.query for one in requests)
    assert sorted(
        one.key for one in requests if one.method == "PUT" and not one.key.endswith((".json", "_probe"))
    ) == sorted(name for name in files if not name.endswith(".json"))


@pytest.mark.parametrize("way", ["publish", "build", "add"])
def test_who_may_not_write_a_version_learns_it_before_the_work(
    bucket: str,
    fault_proxy: FaultProxy,
    tmp_path: Path,
    folders: Callable[[int], Path],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    from registry.building import build
    from registry.intake import staging
    from registry.publishing import publish

    folder = folders(98)
    ways: dict[str, Callable[[Catalog], object]] = {
        "publish": lambda catalog: catalog.publish(folder),
        "build": lambda catalog: catalog.build("digits"),
        "add": lambda catalog: catalog.add([{"price": number} for number in range(200)], "prices"),
    }
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        fault_proxy.inject("forbidden", when=lambda request: request.method != "GET")
        with monkeypatch.context() as patch:
            patch.setattr(publish, "verify_shards", lambda *_, **__: pytest.fail("the shards are hashed"))
            patch.setattr(build, "write_split", lambda *_, **__: pytest.fail("shards are written"))
            patch.setattr(staging._Sorters, "write", lambda *_, **__: pytest.fail("shards are written"))
            with pytest.raises(StorageError, match="Permission denied"):
                ways[way](catalog)
        assert [request.method for request in fault_proxy.requests] == ["PUT"]
        fault_proxy.reset()
        ways[way](catalog)
        requests = list(fault_proxy.requests)
    assert len(requests) == len(open_store(bucket).list()) + 4


def test_a_large_file_is_uploaded_once_and_in_parts(bucket: str, fault_proxy: FaultProxy, tmp_path: Path) -> None:
    rows = [{"noise": np.random.default_rng(number).bytes(2**20)} for number in range(20)]
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        fault_proxy.reset()
        report = catalog.add(rows, "noise")
        sent = [one for one in fault_proxy.requests if ".tfrecord" in one.key]
        assert [one.method for one in sent if "partNumber" not in one.query] == ["HEAD", "POST", "HEAD", "POST"]
        assert len(sent) <= 4 + 4, "free, begin, parts of up to 8 MiB, still free, end"
        shard = catalog.dataset(report.reference).splits["train"].filenames[0]
        assert sum(len(one.body) for one in sent) < 1.01 * open_store(f"{bucket}/noise/1.0.0").size(shard) + 10_000
        assert catalog.dataset("noise").verify(deep=True).faults == ()


def test_the_shards_of_a_folder_are_uploaded_from_where_they_are(
    bucket: str, tmp_path: Path, folders: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folders(98)
    (folder / "LICENSE").write_text("free")
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    copied = []
    create_from = ObjectStore.create_from

    def watched(store: ObjectStore, *arguments: Any, **options: Any) -> str | None:
        copied.extend(path.name for path in (tmp_path / "scratch").rglob("*") if path.is_file())
        return create_from(store, *arguments, **options)

    monkeypatch.setattr(ObjectStore, "create_from", watched)
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket, create=True) as catalog:
        assert catalog.publish(folder).newly
        assert catalog.dataset("animals").verify(deep=True).faults == ()
    assert {name.partition("_")[2] for name in copied} == {"statistics.json"}, "no shard"
    assert "LICENSE" in open_store(f"{bucket}/animals/1.0.0").list()
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("num_bytes", [1000, 2**20])
def test_a_file_that_changes_before_it_is_uploaded_is_not_published(
    bucket: str, tmp_path: Path, num_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"noise": np.random.default_rng(number).bytes(num_bytes)} for number in range(10)]
    create_from = ObjectStore.create_from

    def changed(store: ObjectStore, name: str, source: Store, source_name: str, **options: Any) -> str | None:
        if ".tfrecord" in name:
            content = bytearray(source.read_bytes(source_name))
            content[100] ^= 1
            source.write_bytes(source_name, content, overwrite=True)
        return create_from(store, name, source, source_name, **options)

    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        with monkeypatch.context() as patch:
            patch.setattr(ObjectStore, "create_from", changed)
            with pytest.raises(StorageError, match="it changed during the copy: expected sha256"):
                catalog.add(rows, "noise")
        assert not any(name.endswith("of-00001") for name in open_store(bucket).list())
        assert catalog.add(rows, "noise").outcome == "published"
        assert catalog.dataset("noise").verify(deep=True).faults == ()


def test_a_large_file_of_others_is_not_replaced(bucket: str, tmp_path: Path) -> None:
    rows = [{"noise": np.random.default_rng(number).bytes(2**20)} for number in range(10)]
    place = open_store(f"{bucket}/noise/1.0.0")
    place.write_bytes("noise-train.tfrecord-00000-of-00001", b"somebody else's")
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        with pytest.raises(ConflictError, match="contains other data"):
            catalog.add(rows, "noise")
        assert catalog.reservations.list() == ()
    assert place.list() == ["noise-train.tfrecord-00000-of-00001"]
    assert place.read_bytes("noise-train.tfrecord-00000-of-00001") == b"somebody else's"


def test_a_marker_that_could_not_be_removed_never_stops_a_repair(
    bucket: str, tmp_path: Path, folders: Callable[[int], Path]
) -> None:
    mine, place = folders(98), open_store(f"{bucket}/animals/1.0.0")
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        catalog.publish(mine)
        digest = catalog.dataset("animals").facts.content_digest
    marker = {"token": "gone", "content_digest": digest, "catalog": "sqlite:///by/another/path.db"}
    with place.create(".reservation.json") as file:
        file.write(json.dumps(marker).encode())
    place.remove_tree(SHARDS[0])
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        assert catalog.publish(mine).newly is False
        assert catalog.dataset("animals").verify(deep=True).faults == ()
    assert not place.exists(".reservation.json")


@pytest.mark.parametrize("who", ["this catalog", "another catalog"])
def test_a_refused_publisher_removes_no_files_that_others_may_need(
    bucket: str, tmp_path: Path, folders: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """Its files are in place when it is refused; by then its number is published, or its marker is another's."""
    from registry.catalog.sql_catalog import SqlCatalog

    mine, place, publish = folders(98), open_store(f"{bucket}/animals/1.0.0"), SqlCatalog.publish

    def refused(self: SqlCatalog, *arguments: object, **options: object) -> bool:
        monkeypatch.setattr(SqlCatalog, "publish", publish)
        if who == "this catalog":
            with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "elsewhere") as elsewhere:
                assert elsewhere.publish(mine).newly
        else:
            place.remove_tree(".reservation.json")
        raise ConflictError("refused for good")

    monkeypatch.setattr(SqlCatalog, "publish", refused)
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        with pytest.raises(ConflictError, match="refused for good"):
            catalog.publish(mine)
        assert len(place.list()) == 6
        assert catalog.publish(mine).newly is (who == "another catalog")
        assert catalog.dataset("animals").verify(deep=True).faults == ()


def test_a_refused_publisher_removes_its_own_files(
    bucket: str, tmp_path: Path, folders: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its files are in place, the number is published with other content in another data directory."""
    from registry.catalog.sql_catalog import SqlCatalog

    mine, other, publish = folders(98), folders(99), SqlCatalog.publish

    def late(self: SqlCatalog, *arguments: object, **options: object) -> bool:
        monkeypatch.setattr(SqlCatalog, "publish", publish)
        with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "elsewhere") as elsewhere:
            assert elsewhere.publish(other).newly
        return publish(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(SqlCatalog, "publish", late)
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        with pytest.raises(ConflictError, match="is published with other content"):
            catalog.publish(mine)
        assert catalog.reservations.list() == ()
        assert catalog.publish(other).newly is False
        assert catalog.dataset("animals").verify(deep=True).faults == ()


def test_a_marker_that_was_taken_over_is_known_after_the_row_was_written(
    bucket: str, tmp_path: Path, folders: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publisher dies half-way, one of other content takes over, and dies between its row and the marker's removal."""
    mine, other, place = folders(98), folders(99), open_store(f"{bucket}/animals/1.0.0")
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        with monkeypatch.context() as patch:
            patch.setattr(object_place.ObjectPlace, "_require_marker", lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                catalog.publish(mine)
        assert place.exists(".reservation.json")
        with monkeypatch.context() as patch:
            patch.setattr(object_place.ObjectPlace, "tidy", lambda _: None)
            assert catalog.publish(other).newly
        assert place.exists(".reservation.json")
        place.remove_tree(SHARDS[0])

        assert not catalog.publish(other).newly
        assert catalog.dataset("animals").verify(deep=True).faults == ()
        assert not place.exists(".reservation.json")


def test_a_publisher_whose_reservation_was_released_while_it_hashed_removes_nothing(
    bucket: str, tmp_path: Path, folders: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is about to remove the files of a dead publisher while a third one publishes the same content."""
    mine, other, compare = folders(98), folders(99), object_place.ObjectPlace._compare
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        with monkeypatch.context() as patch:
            patch.setattr(object_place.ObjectPlace, "_require_marker", lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                catalog.publish(mine)

        def slow(self: object_place.ObjectPlace, present: list[str]) -> object_place._State:
            monkeypatch.setattr(object_place.ObjectPlace, "_compare", compare)
            found = compare(self, present)
            catalog.reservations.release("animals:1.0.0", force=True)
            assert catalog.publish(mine).newly
            return found

        monkeypatch.setattr(object_place.ObjectPlace, "_compare", slow)
        with pytest.raises(ConflictError, match="is published with other content"):
            catalog.publish(other)
        assert catalog.dataset("animals").verify(deep=True).faults == ()
        assert catalog.reservations.list() == ()


def test_clearing_a_place_moves_no_files_of_a_publisher_that_arrived_meanwhile(
    bucket: str, tmp_path: Path, folders: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another catalog's publisher marks the place and puts its files there while the folder is still hashed."""
    place = open_store(f"{bucket}/animals/1.0.0")
    upload(folders(99), f"{bucket}/animals/1.0.0", SHARDS[1])

    def slow(folder: Store, rule: SlicingRule) -> str | None:
        found = digest_of(folder, rule)
        marker = {"token": "t", "holder": "ann (process 7 on far)", "catalog": "postgresql://db/one"}
        with place.create(".reservation.json") as file:
            file.write(json.dumps(marker).encode())
        upload(folders(98), f"{bucket}/animals/1.0.0", SHARDS[0])
        return found

    monkeypatch.setattr("registry.publishing.markers.digest_of", slow)
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket, create=True) as catalog:
        with pytest.raises(ReservedError, match="is reserved for another catalog, postgresql://db/one, by ann"):
            catalog.reservations.clear("animals:1.0.0")
        assert place.list() == SHARDS
        assert place.exists(".reservation.json")
        assert catalog.reservations.list() == ()


@pytest.mark.parametrize("who", ["clear", "a refused publisher"])
def test_objects_that_were_imported_in_place_under_another_name_stay(
    bucket: str, tmp_path: Path, folders: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    from registry.catalog.sql_catalog import SqlCatalog

    mine, place, publish = folders(98), f"{bucket}/animals/1.0.0", SqlCatalog.publish

    def take(catalog: Catalog) -> None:
        (taken,) = catalog.import_tfds(place, name="beasts")
        assert taken.error is None

    def refused(self: SqlCatalog, *arguments: object, **options: object) -> bool:
        monkeypatch.setattr(SqlCatalog, "publish", publish)
        with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
            take(catalog)
        raise ConflictError("refused for good")

    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        if who == "clear":
            upload(mine, place)
            take(catalog)
            with pytest.raises(ConflictError) as caught:
                catalog.reservations.clear("animals:1.0.0", force=True)
            assert str(caught.value) == f"beasts:1.0.0 is published from {place}: its files are not moved"
        else:
            monkeypatch.setattr(SqlCatalog, "publish", refused)
            (one,) = catalog.import_tfds(mine, copy=True)
            assert str(one.error) == "refused for good"
            with pytest.raises(ConflictError, match="contains other data"):
                catalog.publish(folders(99))  # it takes over the files of the refused one
        assert catalog.dataset("beasts").verify(deep=True).faults == ()


def test_a_marker_is_removed_when_files_of_a_dead_publisher_are_published_in_place(
    bucket: str, tmp_path: Path, folders: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, place = folders(98), open_store(f"{bucket}/animals/1.0.0")
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        with monkeypatch.context() as patch:
            patch.setattr(object_place.ObjectPlace, "_require_marker", lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                catalog.publish(mine)
        assert catalog.publish(place.url).newly
        assert catalog.reservations.list() == ()
        assert not place.exists(".reservation.json")
    with registry.connect(tmp_path / "other.db", data_dir=bucket) as catalog:
        assert catalog.publish(place.url).newly


def test_a_publisher_refused_before_its_marker_keeps_the_reservation_of_a_dead_one(
    bucket: str, tmp_path: Path, folders: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the marker of the dead one would be taken for another catalog's."""

    def refuse(_: object_place.ObjectPlace) -> bool:
        raise ConflictError("refused for good")

    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        with monkeypatch.context() as patch:
            patch.setattr(object_place.ObjectPlace, "_require_marker", lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                catalog.publish(folders(98))
        with monkeypatch.context() as patch:
            patch.setattr(object_place.ObjectPlace, "_mark", refuse)
            with pytest.raises(ConflictError, match="refused for good"):
                catalog.publish(folders(99))
        assert catalog.publish(tmp_path / "99").newly
        assert catalog.dataset("animals").verify(deep=True).faults == ()
