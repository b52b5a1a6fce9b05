"""A version with several locations is read while one of them has each file; the others are named in a warning."""

from __future__ import annotations

import errno
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from end_to_end.test_shard_formats_published import prepare_as
from end_to_end.test_wrong_files import COUNT, FIRST, READS, SECOND, SHARDS, WRONG, publish_animals
from support.fault_proxy import FaultProxy
from support.prepared_samples import animals, prepare
from support.web_server import serve

import registry
from registry.api import Catalog
from registry.errors import (
    ConflictError,
    MirrorWarning,
    NotFoundError,
    NotStoredError,
    PartialFailureError,
    RegistryError,
    ShardMismatchError,
    StorageError,
    StorageUnavailableError,
    UsageError,
)
from registry.shards import mirrored, proved
from registry.storage import Store, network, open_store
from registry.storage.faults import cannot

REFERENCE = "animals:1.0.0"
NAMES = [f"animals-train.tfrecord-{index:05}-of-{SHARDS:05}" for index in range(SHARDS)]


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test reads as a new process on a new machine does."""
    monkeypatch.setattr(proved, "_proofs", proved._Proofs())
    monkeypatch.setattr(mirrored, "_troubles", mirrored._Troubles())
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_animals(tmp_path_factory.mktemp("published"))


@pytest.fixture
def catalog(published: Path, tmp_path: Path) -> Iterator[Catalog]:
    """A copy of this folder: a catalog and its data move together."""
    shutil.copytree(published, tmp_path, dirs_exist_ok=True)
    with registry.connect(tmp_path / "catalog.db") as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "datasets/animals/1.0.0"


@pytest.fixture
def mirror(catalog: Catalog, folder: Path, tmp_path: Path) -> Path:
    """A folder with a copy of 1.0.0, recorded as a mirror."""
    copy = Path(shutil.copytree(folder, tmp_path / "mirror"))
    assert catalog.mirrors.add(REFERENCE, copy).is_change
    return copy


def ages(dataset: Any) -> list[int]:
    return [int(example["age"]) for example in dataset.read("train")]


def plain(value: Any) -> Any:
    """Records as values that can be compared."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return str(value)


def put_into(store: Store, folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            store.write_bytes(path.relative_to(folder).as_posix(), path.read_bytes())


@pytest.mark.parametrize("way", READS)
@pytest.mark.parametrize("make_wrong", WRONG)
def test_every_way_of_reading_takes_the_file_of_a_mirror_where_it_is_wrong_or_missing(
    catalog: Catalog, folder: Path, mirror: Path, make_wrong: Callable[[Path], None], way: str
) -> None:
    del mirror
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of slim, of the sound files
        expected = plain(READS[way](catalog.dataset(REFERENCE)))
    make_wrong(folder)
    with pytest.warns(MirrorWarning):
        found = READS[way](catalog.dataset(REFERENCE))
    assert plain(found) == expected


@pytest.mark.parametrize("file_format", ["array_record", "parquet"])
def test_files_of_every_format_are_read_from_a_mirror(catalog: Catalog, tmp_path: Path, file_format: str) -> None:
    folder = prepare_as(tmp_path / "prepared", file_format)
    dataset = catalog.dataset(catalog.import_tfds(folder, name="others")[0].reference)
    expected = ages(dataset)
    catalog.mirrors.add(dataset, shutil.copytree(folder, tmp_path / "copy"))
    (path,) = folder.glob("*00001-of*")
    path.unlink()
    with pytest.warns(MirrorWarning, match="the location .*/prepared failed .*; reading from .*/copy instead"):
        assert ages(catalog.dataset(dataset)) == expected


def test_the_warning_names_both_locations_once(catalog: Catalog, folder: Path, mirror: Path) -> None:
    (folder / FIRST).unlink()
    (folder / SECOND).unlink()
    dataset = catalog.dataset(REFERENCE)
    with pytest.warns(MirrorWarning) as told:
        list(dataset.read("train"))
    assert [str(one.message) for one in told] == [
        f"animals:1.0.0: the location {folder} failed (cannot read {folder / FIRST}: No such file or "
        f"directory); reading from {mirror} instead. To check every location: registry mirror check animals:1.0.0"
    ]
    assert len(ages(catalog.dataset(REFERENCE))) == COUNT  # and no further warning, which would be an error


def test_if_every_location_fails_the_error_is_that_of_the_first(catalog: Catalog, folder: Path, mirror: Path) -> None:
    (folder / FIRST).unlink()
    (mirror / FIRST).write_bytes((mirror / SECOND).read_bytes())
    with pytest.warns(MirrorWarning), pytest.raises(NotStoredError) as caught:
        list(catalog.dataset(REFERENCE).read("train"))
    assert str(folder / FIRST) in caught.value.message
    assert (caught.value.hint or "").endswith(
        "\nAll 2 locations failed. To see why: registry mirror check animals:1.0.0"
    )


# In object stores


@pytest.fixture
def stored(bucket: str, folder: Path, mirror: Path, tmp_path: Path) -> Iterator[Catalog]:
    """``animals:1.0.0`` in a bucket, with shards of several requests; the mirror is on this machine."""
    del folder, mirror
    prepared = prepare(tmp_path / "large", splits={"train": large()}, shards=SHARDS)
    with registry.connect(tmp_path / "stored.db", data_dir=f"{bucket}/data") as opened:
        opened.publish(prepared)
        opened.mirrors.add(REFERENCE, prepared)
        yield opened


def large() -> list[dict[str, Any]]:
    """Few animals with long names: a shard has 6 MB."""
    return [{"name": chr(97 + number) * 3_000_000, "kind": 0, "age": number} for number in range(2 * SHARDS)]


def contents(dataset: Any) -> list[tuple[int, int, str]]:
    return [(int(one["age"]), len(one["name"]), str(one["name"])[:1]) for one in dataset.read("train")]


def test_a_bucket_that_breaks_off_in_the_middle_of_a_read_is_replaced_by_its_mirror(
    stored: Catalog, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = contents(stored.dataset(REFERENCE))
    num_requests = fault_proxy.count()
    assert num_requests >= 2 * SHARDS
    for index in range(num_requests):
        monkeypatch.setattr(proved, "_proofs", proved._Proofs())
        monkeypatch.setattr(mirrored, "_troubles", mirrored._Troubles())
        network._GIVEN_UP.clear()
        fault_proxy.reset()
        fault_proxy.inject("drop", when=lambda request, index=index: request.index >= index)  # type: ignore[misc]
        with pytest.warns(MirrorWarning) as told:
            found = contents(stored.dataset(REFERENCE))
        assert (index, found) == (index, expected)
        assert len(told) == 1


@pytest.mark.parametrize(
    "fault", ["cut", "forbidden", "error", "slow down", "too many", "truncate", "silence", "corrupt"]
)
def test_whatever_goes_wrong_with_a_bucket_the_mirror_gives_the_published_records(
    stored: Catalog, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    expected = contents(stored.dataset(REFERENCE))
    for index in (0, 3, 2 * SHARDS - 1):
        monkeypatch.setattr(proved, "_proofs", proved._Proofs())
        monkeypatch.setattr(mirrored, "_troubles", mirrored._Troubles())
        network._GIVEN_UP.clear()
        fault_proxy.reset()
        fault_proxy.inject(fault, when=lambda request, index=index: request.index >= index)  # type: ignore[misc]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MirrorWarning)  # bytes are read in advance, which need not be used
            assert (index, contents(stored.dataset(REFERENCE))) == (index, expected)


def test_a_file_that_is_damaged_after_it_was_opened_is_read_from_the_mirror(
    catalog: Catalog, folder: Path, mirror: Path
) -> None:
    del mirror
    reader = catalog.dataset(REFERENCE).read("train", registry.ReadConfig(interleave_cycle_length=1))
    iteration = iter(reader)
    first = next(iteration)
    with (folder / FIRST).open("r+b") as file:
        file.seek(-20, 2)
        file.write(b"damaged")
    with pytest.warns(MirrorWarning, match=f"{FIRST} is damaged"):
        found = [int(one["age"]) for one in [first, *iteration, *reader]]
    assert found == [*range(10, 10 + COUNT)] * 2


def test_a_store_that_does_not_answer_is_asked_last_for_a_while(stored: Catalog, fault_proxy: FaultProxy) -> None:
    fault_proxy.inject("drop")
    with pytest.warns(MirrorWarning):
        expected = contents(stored.dataset(REFERENCE))
    fault_proxy.requests.clear()
    assert contents(stored.dataset(REFERENCE)) == expected
    assert fault_proxy.count() == 0


def test_an_object_that_is_replaced_while_it_is_read_is_read_from_the_mirror(
    stored: Catalog, fault_proxy: FaultProxy, bucket: str
) -> None:
    del fault_proxy
    store = open_store(f"{bucket}/data/animals/1.0.0")
    reader = iter(stored.dataset(REFERENCE).read("train", registry.ReadConfig(interleave_cycle_length=1)))
    next(reader)
    for name in store.list():
        if "tfrecord" in name:
            store.write_bytes(name, b"other", overwrite=True)
    with pytest.warns(MirrorWarning):
        assert [int(one["age"]) for one in reader] == list(range(1, 2 * SHARDS))


def test_a_mirror_in_a_bucket_is_read_where_a_file_of_this_machine_is_missing(
    catalog: Catalog, folder: Path, bucket: str
) -> None:
    expected = ages(catalog.dataset(REFERENCE))
    put_into(open_store(f"{bucket}/copy"), folder)
    catalog.mirrors.add(REFERENCE, f"{bucket}/copy")
    shutil.rmtree(folder)
    with pytest.warns(MirrorWarning, match=f"reading from {bucket}/copy instead"):
        assert ages(catalog.dataset(REFERENCE)) == expected


def test_a_mirror_that_was_proved_once_is_not_hashed_again(
    catalog: Catalog, folder: Path, bucket: str, fault_proxy: FaultProxy
) -> None:
    put_into(open_store(f"{bucket}/copy"), folder)
    catalog.mirrors.add(REFERENCE, f"{bucket}/copy")
    (folder / FIRST).unlink()
    fault_proxy.reset()
    with pytest.warns(MirrorWarning):
        list(catalog.dataset(REFERENCE).read("train[:1]"))
    assert [one.method for one in fault_proxy.requests] == ["HEAD", "GET"]


def test_a_mirror_whose_package_is_not_installed_does_not_keep_the_first_location_from_being_read(
    catalog: Catalog, folder: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del mirror
    catalog.backend.locations.add(catalog.dataset(REFERENCE).reference, "nosuch://host/copy", actor="ann")
    assert len(ages(catalog.dataset(REFERENCE))) == COUNT
    monkeypatch.setattr(mirrored, "_troubles", mirrored._Troubles())
    (folder / FIRST).unlink()
    with pytest.warns(MirrorWarning):
        assert len(ages(catalog.dataset(REFERENCE))) == COUNT


def test_what_came_from_a_mirror_is_cached_and_what_is_cached_is_read_without_any_location(
    stored: Catalog, bucket: str, fault_proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "100MB")
    put_into(open_store(f"{bucket}/copy"), tmp_path / "large")
    stored.mirrors.remove(REFERENCE, tmp_path / "large")
    stored.mirrors.add(REFERENCE, f"{bucket}/copy")
    fault_proxy.inject("forbidden", when=lambda request: request.key.startswith("data/"))
    with pytest.warns(MirrorWarning):
        expected = contents(stored.dataset(REFERENCE))
    assert len(expected) == 2 * SHARDS

    fault_proxy.reset()
    assert contents(stored.dataset(REFERENCE)) == expected
    assert fault_proxy.count() == 0


def test_a_mirror_may_be_a_web_server(
    catalog: Catalog, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = ages(catalog.dataset(REFERENCE))
    copy = shutil.copytree(folder, tmp_path / "www/copy")
    with serve(tmp_path / "www", "ranges") as url:
        catalog.mirrors.add(REFERENCE, f"{url}/copy")
        (folder / FIRST).unlink()
        with pytest.warns(MirrorWarning, match="reading from http://127.0.0.1"):
            assert ages(catalog.dataset(REFERENCE)) == expected
        (copy / FIRST).write_bytes((copy / SECOND).read_bytes())
        monkeypatch.setattr(proved, "_proofs", proved._Proofs())  # without ETags, each process hashes a file once
        with pytest.warns(MirrorWarning), pytest.raises(NotStoredError):
            ages(catalog.dataset(REFERENCE))


def test_a_recorded_path_cannot_lead_out_of_the_data_directory(catalog: Catalog, folder: Path, tmp_path: Path) -> None:
    reference = catalog.dataset(REFERENCE).reference
    shutil.copytree(folder, tmp_path / "outside")
    catalog.backend.locations.add(reference, "../outside", actor="eve")
    (folder / FIRST).unlink()
    with pytest.raises(RegistryError, match=r"\.\./outside"):
        ages(catalog.dataset(REFERENCE))


def test_a_dropped_version_is_restored_if_a_mirror_has_its_files(catalog: Catalog, folder: Path, mirror: Path) -> None:
    catalog.lifecycle.drop(REFERENCE, reason="private")
    shutil.rmtree(folder)
    (mirror / SECOND).rename(mirror / "aside")
    with pytest.raises(ShardMismatchError, match="4 of its 4 files are missing"):
        catalog.lifecycle.undo("drop", REFERENCE)
    (mirror / "aside").rename(mirror / SECOND)
    assert catalog.lifecycle.undo("drop", REFERENCE).is_change


def test_too_many_open_files_are_no_fault_of_a_location(
    catalog: Catalog, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del mirror

    def refuse(_store: object, name: str) -> Any:
        raise cannot("read", name, "Too many open files", number=errno.EMFILE, hint=None, kind=StorageError)

    monkeypatch.setattr(proved.ProvedStore, "open", refuse)
    with pytest.raises(StorageError, match="Too many open files"):
        ages(catalog.dataset(REFERENCE))


def test_after_ctrl_c_no_other_location_is_read(
    stored: Catalog, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault_proxy.inject("drop")
    monkeypatch.setattr(network, "is_interrupted", lambda: True)
    with pytest.raises(StorageUnavailableError):
        contents(stored.dataset(REFERENCE))


# Adding, removing, checking, relocating


def test_a_folder_that_is_no_copy_is_not_recorded(catalog: Catalog, folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / FIRST).write_bytes((copy / SECOND).read_bytes())
    (copy / SECOND).unlink()
    for dry_run in (True, False):
        with pytest.raises(ShardMismatchError) as caught:
            catalog.mirrors.add(REFERENCE, copy, dry_run=dry_run)
        assert caught.value.message.startswith(
            f"{copy} is not a copy of animals:1.0.0: 2 of 4 shards do not match their description"
        )
        assert caught.value.hint == (
            f"Copy the files of {folder} there first, then run the same command again. Nothing was changed."
        )
    assert [one.location for one in catalog.mirrors.list(REFERENCE)] == ["animals/1.0.0"]
    with pytest.raises(UsageError, match="contains a password"):
        catalog.mirrors.add(REFERENCE, "s3://ann:PW@bucket/copy")


def test_a_location_below_the_data_directory_moves_with_it(catalog: Catalog, folder: Path, tmp_path: Path) -> None:
    inside = Path(str(catalog.data_dir)) / "copies/animals"
    shutil.copytree(folder, inside)
    assert catalog.mirrors.add(REFERENCE, inside).after == ("animals/1.0.0", "copies/animals")
    assert catalog.mirrors.list(REFERENCE)[1].url == str(inside)
    Path(str(catalog.data_dir)).rename(tmp_path / "renamed")
    with registry.connect(tmp_path / "catalog.db") as again:
        again.set_data_dir(tmp_path / "renamed")
        (tmp_path / "renamed/animals/1.0.0" / FIRST).unlink()
        with pytest.warns(MirrorWarning, match="renamed/copies/animals instead"):
            assert len(ages(again.dataset(REFERENCE))) == COUNT
        assert again.mirrors.remove(REFERENCE, tmp_path / "renamed/copies/animals").after == ("animals/1.0.0",)


def test_a_withdrawn_location_is_not_read(catalog: Catalog, folder: Path, mirror: Path) -> None:
    assert catalog.mirrors.remove(REFERENCE, mirror).after == ("animals/1.0.0",)
    (folder / FIRST).unlink()
    with pytest.raises(NotStoredError):
        ages(catalog.dataset(REFERENCE))
    with pytest.raises(NotFoundError, match=r"is not a location of animals:1\.0\.0"):
        catalog.mirrors.remove(REFERENCE, mirror)
    with pytest.raises(ConflictError, match=r"is the only location of animals:1\.0\.0"):
        catalog.mirrors.remove(REFERENCE, "animals/1.0.0")


def test_check_compares_every_location(
    catalog: Catalog, folder: Path, mirror: Path, bucket: str, fault_proxy: FaultProxy
) -> None:
    put_into(open_store(f"{bucket}/copy"), folder)
    catalog.mirrors.add(REFERENCE, f"{bucket}/copy")
    assert [one.is_sound for one in catalog.mirrors.check(REFERENCE)] == [True, True, True]

    (mirror / SECOND).unlink()
    fault_proxy.inject("drop")
    first, second, third = catalog.mirrors.check(REFERENCE)

    assert (first.is_sound, second.is_sound, third.is_sound) == (True, False, False)
    assert [fault.filename for fault in second.report.faults] == [SECOND]
    assert (third.url, third.report) == (f"{bucket}/copy", None)
    assert isinstance(third.error, StorageUnavailableError)
    assert [one.url for one in catalog.mirrors.check(REFERENCE, mirror)] == [str(mirror)]
    with pytest.raises(NotFoundError):
        catalog.mirrors.check(REFERENCE, folder.parent)


def test_a_folder_that_was_moved_by_hand_is_read_where_it_is(catalog: Catalog, folder: Path, tmp_path: Path) -> None:
    expected = ages(catalog.dataset(REFERENCE))
    moved = tmp_path / "archive/animals"
    moved.parent.mkdir()
    folder.rename(moved)
    with pytest.raises(NotStoredError):
        ages(catalog.dataset(REFERENCE))

    assert catalog.mirrors.relocate(REFERENCE, moved, dry_run=True).after == (str(moved),)
    assert catalog.mirrors.relocate(REFERENCE, moved).is_change

    dataset = catalog.dataset(REFERENCE)
    assert ages(dataset) == expected
    assert (dataset.local_folder, dataset.facts.location) == (str(moved), "animals/1.0.0")
    assert dataset.verify().faults == ()
    assert not catalog.mirrors.relocate(REFERENCE, moved).is_change
    assert catalog.verify_log().faults == ()


def test_everything_below_a_folder_is_relocated_and_what_is_not_there_is_refused(
    catalog: Catalog, tmp_path: Path
) -> None:
    for name in ("cats", "dogs"):
        prepare(tmp_path / f"old/{name}/1.0.0", splits={"train": animals(20)}, shards=2, name=name)
    catalog.import_tfds(tmp_path / "old").require_all()
    catalog.mirrors.add("cats", shutil.copytree(tmp_path / "old/cats/1.0.0", tmp_path / "older/cats"))
    (tmp_path / "old").rename(tmp_path / "new")
    (tmp_path / "new/dogs/1.0.0/dogs-train.tfrecord-00001-of-00002").unlink()

    for dry_run in (True, False):
        report = catalog.mirrors.relocate_all(tmp_path / "old", tmp_path / "new", dry_run=dry_run)
        assert [(str(one.reference), one.before, one.after, one.is_dry_run) for one in report] == [
            (f"{name}:1.0.0", f"{tmp_path}/old/{name}/1.0.0", f"{tmp_path}/new/{name}/1.0.0", dry_run)
            for name in ("cats", "dogs")
        ]
        assert [str(one.reference) for one in report.failed] == ["dogs:1.0.0"]
    with pytest.raises(PartialFailureError, match=r"1 of 2 versions could not be relocated:\n  dogs:1.0.0: "):
        report.require_all()

    assert [one.url for one in catalog.mirrors.list("cats")] == [
        f"{tmp_path}/new/cats/1.0.0",
        f"{tmp_path}/older/cats",
    ]
    assert len(ages(catalog.dataset("cats"))) == 20
    again = catalog.mirrors.relocate_all(tmp_path / "old", tmp_path / "new")
    assert [str(one.reference) for one in again] == ["dogs:1.0.0"]


def test_an_etag_belongs_to_the_place_where_a_version_was_published(
    stored: Catalog, bucket: str, tmp_path: Path
) -> None:
    moved = open_store(f"{bucket}/moved")
    put_into(moved, tmp_path / "large")
    for attachment in stored.dataset(REFERENCE).attachments:
        moved.create_from(attachment.place, open_store(f"{bucket}/data/animals/1.0.0"), attachment.place)
    stored.mirrors.relocate(REFERENCE, f"{bucket}/moved")
    readable = stored.dataset(REFERENCE).readable
    assert readable.proof is not None
    assert [readable.proof.promises.find(name).entity_tag for name in NAMES] == [None] * SHARDS  # type: ignore[union-attr]
    assert len(contents(stored.dataset(REFERENCE))) == 2 * SHARDS
