"""A catalog knows its data directory: a version is never published where other clients do not look for it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from support.catalog_server import PostgresServer
from support.object_publishers import fork, wait
from support.prepared_samples import animals, prepare

import registry
from registry.api import Catalog
from registry.catalog import quote_catalog, schema
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import ConflictError, DataDirectoryMissingError, OtherDataDirectoryError, StorageError, UsageError
from registry.publishing import Target, publish_folder
from registry.storage import open_store, require_well_written, spell_place


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("REGISTRY_DATA_DIR", raising=False)
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))


@pytest.fixture(params=["disk", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A data directory."""
    return str(tmp_path / "data") if request.param == "disk" else f"{request.getfixturevalue('bucket')}/data"


@pytest.fixture
def server(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty catalog on a server."""
    url = postgres_server.take_catalog()
    yield url
    postgres_server.give_back(url)


def folder_of(path: Path, version: str = "1.0.0", count: int = 20) -> Path:
    return prepare(path / f"source {version}", version, {"train": animals(count)})


def table_in(path: Path) -> Path:
    folder = path / "table"
    folder.mkdir(exist_ok=True)
    parquet.write_table(pa.table({"a": [1, 2]}), folder / "train-00000-of-00001.parquet")
    return folder


DOORS: dict[str, Callable[[Catalog, Path], object]] = {
    "build": lambda catalog, _: catalog.build("digits"),
    "preview of a build": lambda catalog, _: catalog.preview_build("digits"),
    "publish": lambda catalog, path: catalog.publish(folder_of(path)),
    "preview": lambda catalog, path: catalog.preview(folder_of(path)),
    "add": lambda catalog, _: catalog.add([{"a": 1}], "rows"),
    "add --dry-run": lambda catalog, _: catalog.add([{"a": 1}], "rows", dry_run=True),
    "import tfds --copy": lambda catalog, path: catalog.import_tfds(folder_of(path), copy=True).require_all(),
    "import parquet --copy": lambda catalog, path: catalog.import_parquet(table_in(path), name="table", copy=True),
}


def files_in(path: Path) -> list[str]:
    return sorted(str(one) for one in path.rglob("*") if one.is_file())


def copied_from(path: Path, to: Catalog, *, dry_run: bool) -> None:
    with registry.connect(path / "source.db", data_dir=path / "source data") as source:
        source.publish(folder_of(path))
        source.copy(None, to, dry_run=dry_run).require_all()


DOORS["copy --to"] = lambda catalog, path: copied_from(path, catalog, dry_run=False)
DOORS["copy --to --dry-run"] = lambda catalog, path: copied_from(path, catalog, dry_run=True)


@pytest.mark.parametrize("door", DOORS)
def test_a_catalog_on_a_server_takes_no_local_folder_that_nobody_named(door: str, server: str, tmp_path: Path) -> None:
    with registry.connect(server) as catalog:
        with pytest.raises(DataDirectoryMissingError) as caught:
            DOORS[door](catalog, tmp_path)
        assert caught.value.message == (
            f"{catalog.url} records no data directory, and other clients cannot read a folder of this machine"
        )
        assert caught.value.hint == (
            "Record a data directory for all clients, e.g.: registry config data-dir s3://BUCKET/datasets "
            f"{quote_catalog(catalog.url)}\n"
            "Or specify it: data_dir=DIR, or the environment variable REGISTRY_DATA_DIR. "
            "The first publication records it."
        )
        assert caught.value.exit_code == 2
        assert [one.action for one in catalog.log()] == []
        assert catalog.datasets() == ()
    assert files_in(tmp_path / "home") == []


@pytest.mark.parametrize("door", DOORS)
def test_another_data_directory_is_refused_before_the_work(door: str, catalog_url: str, tmp_path: Path) -> None:
    with registry.connect(catalog_url) as catalog:
        catalog.set_data_dir(tmp_path / "team")
    with registry.connect(catalog_url, data_dir=tmp_path / "mistyped") as catalog:
        with pytest.raises(OtherDataDirectoryError) as caught:
            DOORS[door](catalog, tmp_path)
        assert caught.value.message == (
            f"the data directory that was named is {tmp_path}/mistyped, "
            f"but the catalog's data directory is {tmp_path}/team"
        )
        assert caught.value.hint == (
            "Leave it out to publish to the catalog's own data directory.\n"
            f"If its files were moved: registry config data-dir {tmp_path}/mistyped {quote_catalog(catalog.url)}"
        )
        assert (caught.value.exit_code, caught.value.code) == (4, "other_data_directory")
        assert catalog.datasets() == ()
    assert not (tmp_path / "mistyped").exists()


@pytest.mark.parametrize("door", [name for name in DOORS if "pre" not in name and "dry" not in name])
def test_the_first_publication_records_the_data_directory(
    door: str, catalog_url: str, place: str, tmp_path: Path
) -> None:
    with registry.connect(catalog_url, data_dir=place) as catalog:
        assert catalog.recorded_data_dir is None
        DOORS[door](catalog, tmp_path)
        first, second = (one for one in catalog.log() if one.action in ("data-dir", "publish"))
        assert (first.action, first.dataset, first.details["place"]) == ("data-dir", "", place)
        assert second.details["location"] == f"{place}/{catalog.datasets()[0].name}/{second.version}"
        assert catalog.verify_log().is_sound
        (dataset,) = (one.dataset for one in catalog.datasets())
    with registry.connect(catalog_url) as other:  # on a machine without the variable
        assert other.data_dir == other.recorded_data_dir == place
        other.dataset(dataset).verify(deep=True).raise_for_faults(dataset)
        assert other.mirrors.list(dataset)[0].url.startswith(f"{place}/")
        other.publish(folder_of(tmp_path / "later", "7.0.0", 3))
        assert [one.action for one in other.log(actions=["data-dir"])] == ["data-dir"]


def test_files_that_stay_where_they_are_need_no_data_directory(server: str, tmp_path: Path) -> None:
    with registry.connect(server) as catalog:
        catalog.import_tfds(folder_of(tmp_path)).require_all()
        catalog.import_parquet(table_in(tmp_path), name="table")
        assert [one.action for one in catalog.log()] == ["publish", "publish"]
        assert [one.details["location"] for one in catalog.log()] == [
            str(tmp_path / "source 1.0.0"),
            str(tmp_path / "table"),
        ]
    with registry.connect(server, data_dir=tmp_path / "mistyped") as catalog:
        assert len(list(catalog.dataset("animals").read("train"))) == 20
        assert catalog.recorded_data_dir is None


def test_a_version_is_read_from_a_copy_of_the_data_directory(catalog_url: str, place: str, tmp_path: Path) -> None:
    with registry.connect(catalog_url, data_dir=tmp_path / "team") as catalog:
        catalog.publish(folder_of(tmp_path))
    shutil.move(tmp_path / "team", tmp_path / "copy")
    with registry.connect(catalog_url, data_dir=tmp_path / "copy") as catalog:
        assert len(list(catalog.dataset("animals").read("train"))) == 20
        assert catalog.mirrors.list("animals")[0].url == str(tmp_path / "team/animals/1.0.0")


def test_the_same_place_in_other_words_is_the_same(tmp_path: Path, bucket: str, catalog_url: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "data")
    local = (
        tmp_path / "data",
        f"{tmp_path}/data/",
        f"{tmp_path}/other/../data",
        (tmp_path / "data").as_uri(),
        tmp_path / "link",
    )
    with registry.connect(catalog_url, data_dir=local[0]) as catalog:
        catalog.publish(folder_of(tmp_path, "1.0.0"))
    for number, spelling in enumerate(local, 2):
        with registry.connect(catalog_url, data_dir=spelling) as catalog:
            catalog.publish(folder_of(tmp_path, f"{number}.0.0", number))
            assert [one.action for one in catalog.log(actions=["data-dir"])] == ["data-dir"]
    for number, spelling in enumerate((bucket, f"{bucket}/", bucket.replace("s3://", "s3a://")), 20):
        with registry.connect(tmp_path / "objects.db", data_dir=spelling) as catalog:
            catalog.publish(folder_of(tmp_path, f"{number}.0.0", number))
            assert catalog.recorded_data_dir == bucket


@given(
    st.lists(st.sampled_from(["a", "b c", "..", ".", "d%20", "e#f"]), max_size=5),
    st.sampled_from(["", "/", "//"]),
    st.booleans(),
)
def test_spellings_of_a_path_have_a_text_in_common(parts: list[str], end: str, as_uri: bool) -> None:
    path = "/".join(("/nowhere", *parts))
    written = f"{Path(path).as_uri()}{end}" if as_uri else f"{path}{end}"
    assert spell_place(written)[0] == os.path.normpath(path)
    assert set(spell_place(written)) & set(spell_place(os.path.realpath(path)))


def test_a_project_folder_is_moved_and_copied_as_a_whole(tmp_path: Path) -> None:
    project = tmp_path / "project"
    with registry.connect(project / "catalog.db") as catalog:
        catalog.publish(folder_of(tmp_path))
    shutil.copytree(project, tmp_path / "copy")
    project.rename(tmp_path / "moved")
    for number, place in enumerate(("copy", "moved"), 2):
        with registry.connect(tmp_path / place / "catalog.db") as catalog:
            assert catalog.recorded_data_dir == str(tmp_path / place / "datasets")
            assert len(list(catalog.dataset("animals").read("train"))) == 20
            catalog.publish(folder_of(tmp_path, f"{number}.0.0", number))
            assert catalog.dataset("animals").folder == (tmp_path / place / f"datasets/animals/{number}.0.0").as_uri()
            assert catalog.verify_log().is_sound


def test_links_of_the_folders_are_followed_once(tmp_path: Path) -> None:
    """A link to the project, a link to a larger disk in it, and a link to the file of the catalog."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project/datasets").symlink_to(tmp_path / "disk")
    (tmp_path / "link").symlink_to(tmp_path / "project")
    with registry.connect(tmp_path / "link/catalog.db") as catalog:
        catalog.publish(folder_of(tmp_path))
        assert catalog.backend.locations.data_dir().recorded == "datasets"  # type: ignore[union-attr]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/alias.db").symlink_to(tmp_path / "project/catalog.db")
    with registry.connect(tmp_path / "elsewhere/alias.db") as catalog:
        assert catalog.data_dir == str(tmp_path / "project/datasets")
        catalog.publish(folder_of(tmp_path, "2.0.0", 5))


def test_the_variable_is_named_if_it_names_another_place(
    catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry.connect(catalog_url) as catalog:
        catalog.set_data_dir(tmp_path / "team")
    monkeypatch.setenv("REGISTRY_DATA_DIR", str(tmp_path / "mistyped"))
    with registry.connect(catalog_url) as catalog, pytest.raises(OtherDataDirectoryError) as caught:
        catalog.publish(folder_of(tmp_path))
    assert caught.value.message.startswith(f"REGISTRY_DATA_DIR is {tmp_path}/mistyped, ")
    assert str(caught.value.hint).startswith(
        "Unset REGISTRY_DATA_DIR to publish to the catalog's own data directory.\n"
    )


def test_a_new_place_must_have_the_files(catalog_url: str, place: str, tmp_path: Path) -> None:
    with registry.connect(catalog_url, data_dir=tmp_path / "old") as catalog:
        catalog.publish(folder_of(tmp_path))
        catalog.publish(folder_of(tmp_path, "2.0.0", 5))
        with pytest.raises(ConflictError) as caught:
            catalog.set_data_dir(place)
        assert caught.value.message == f"{place} has no files of animals:1.0.0, animals:2.0.0"
        assert catalog.recorded_data_dir == str(tmp_path / "old")
        with registry.connect(tmp_path / "source.db", data_dir=place) as bystander:
            catalog.copy("animals:2.0.0", bystander).require_all()
        with pytest.raises(ConflictError, match=r"has no files of animals:1\.0\.0(?m:$)"):
            catalog.set_data_dir(place)
        with registry.connect(tmp_path / "source.db", data_dir=place) as bystander:
            catalog.copy("animals", bystander).require_all()
        assert catalog.set_data_dir(place, dry_run=True).is_change
        assert catalog.recorded_data_dir == str(tmp_path / "old")
        change = catalog.set_data_dir(place)
        assert (change.before.place if change.before else None, change.after.place) == (str(tmp_path / "old"), place)
        assert not catalog.set_data_dir(place).is_change
        with pytest.raises(OtherDataDirectoryError):  # it was opened with the old one
            catalog.publish(folder_of(tmp_path, "3.0.0", 6))
    shutil.rmtree(tmp_path / "old")
    with registry.connect(catalog_url) as catalog:
        assert catalog.verify_all(deep=True).is_sound
        catalog.publish(tmp_path / "source 3.0.0")
        assert catalog.set_data_dir(tmp_path / "lost", force=True).is_change
        assert [one.details["place"] for one in catalog.log(actions=["data-dir"])] == [
            str(tmp_path / "old"),
            place,
            str(tmp_path / "lost"),
        ]


def test_a_place_with_a_secret_is_never_recorded(catalog_url: str) -> None:
    with registry.connect(catalog_url) as catalog:
        for url in ("s3://ann:hunter2@bucket/data", "memory://data?token=hunter2"):
            with pytest.raises(UsageError) as caught:
                catalog.set_data_dir(url)
            assert "hunter2" not in caught.value.message + str(caught.value.hint)
        with pytest.raises(UsageError, match="the data directory is empty"):
            catalog.set_data_dir("")
        with pytest.raises(StorageError):
            catalog.set_data_dir("file://elsewhere/data")
        assert list(catalog.log()) == []


def publish_without_record(catalog: Catalog, folder: Path, place: str | Path) -> None:
    """As an earlier release did, which recorded no data directory."""
    target = Target(store=open_store(place), catalog=catalog.backend, promote=None, actor="ann")
    assert publish_folder(open_store(folder), target).newly


def test_a_catalog_of_an_earlier_release_records_the_place_that_has_its_versions(
    catalog_url: str, place: str, tmp_path: Path
) -> None:
    with registry.connect(catalog_url) as catalog:
        publish_without_record(catalog, folder_of(tmp_path), place)
        publish_without_record(catalog, folder_of(tmp_path, "2.0.0", 5), tmp_path / "laptop")
        catalog.import_tfds(folder_of(tmp_path, "3.0.0", 6)).require_all()
        assert catalog.recorded_data_dir is None
    with registry.connect(catalog_url, data_dir=tmp_path / "mistyped") as catalog:
        with pytest.raises(OtherDataDirectoryError) as caught:
            catalog.publish(folder_of(tmp_path, "4.0.0", 7))
        assert caught.value.message == (f"the catalog has 2 versions, and none of them is in {tmp_path}/mistyped")
        assert caught.value.hint == (
            "Record the data directory that contains their files: registry config data-dir DIR "
            f"{quote_catalog(catalog.url)}\n"
            "If the files are lost, record this one with force=True."
        )
        assert not (tmp_path / "mistyped").exists()
    with registry.connect(catalog_url, data_dir=place) as catalog:
        catalog.publish(tmp_path / "source 4.0.0")
        assert catalog.recorded_data_dir == place


def test_a_backup_keeps_the_place(catalog_url: str, place: str, tmp_path: Path, server: str) -> None:
    with registry.connect(catalog_url, data_dir=place) as catalog:
        catalog.publish(folder_of(tmp_path))
        catalog.backup(tmp_path / "backup.gz")
    for target in (server, str(tmp_path / "other folder/new.db")):
        Path(tmp_path / "other folder").mkdir(exist_ok=True)
        registry.restore(tmp_path / "backup.gz", target)
        with registry.connect(target) as restored:
            if catalog_url.startswith("sqlite") and "://" not in place:  # beside the file, so it moves with it
                beside = None if target == server else str(tmp_path / "other folder/data")
                assert restored.recorded_data_dir == beside
                if target == server:
                    with pytest.raises(DataDirectoryMissingError):
                        restored.build("digits")
                    restored.set_data_dir(place)
                else:
                    shutil.copytree(place, tmp_path / "other folder/data")
            else:
                assert restored.recorded_data_dir == place
        with registry.connect(target) as restored:
            restored.dataset("animals").verify(deep=True).raise_for_faults("animals")


def test_the_status_names_it_at_every_schema(database_url: str, tmp_path: Path) -> None:
    schema.upgrade(database_url)
    assert schema.recorded_data_dir(database_url) is None
    with registry.connect(database_url, data_dir="memory://team") as catalog:
        catalog.publish(folder_of(tmp_path))
    schema.downgrade(database_url, "0007")
    record = schema.recorded_data_dir(database_url)
    assert record.place == "memory://team"
    schema.upgrade(database_url)
    with registry.connect(database_url) as catalog:
        assert catalog.data_dir == "memory://team"
        assert catalog.verify_log().is_sound


def test_a_publisher_that_is_killed_before_its_row_records_nothing(
    catalog_url: str, place: str, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path)

    def killed() -> None:
        SqlCatalog.publish = lambda *_, **__: os._exit(9)  # type: ignore[assignment]
        with registry.connect(catalog_url, data_dir=place) as catalog:
            catalog.publish(folder)

    child, pipe = fork(killed)
    os.close(pipe)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    with registry.connect(catalog_url) as catalog:
        assert (catalog.recorded_data_dir, catalog.datasets()) == (None, ())
    with registry.connect(catalog_url, data_dir=tmp_path / "other") as catalog:
        catalog.publish(folder)
        assert catalog.recorded_data_dir == str(tmp_path / "other")


def test_two_first_publications_at_once_agree(catalog_url: str, tmp_path: Path, place: str) -> None:
    """Each has another data directory: one wins, and the other one is refused without a row or a file."""
    folders = [folder_of(tmp_path, "1.0.0"), folder_of(tmp_path, "2.0.0", 5)]
    places = [place, f"{place}-other"]

    def publish(number: int) -> str:
        with registry.connect(catalog_url, data_dir=places[number]) as catalog:
            assert catalog.data_dir == places[number]
            try:
                catalog.publish(folders[number])
            except OtherDataDirectoryError:
                return "refused"
            return "published"

    outcomes = [wait(*one) for one in [fork(lambda: publish(0)), fork(lambda: publish(1))]]
    with registry.connect(catalog_url) as catalog:
        assert sorted(outcomes) == ["published", "refused"]
        winner = outcomes.index("published")
        assert catalog.recorded_data_dir == places[winner]
        assert [str(one.version) for one in catalog.versions("animals")] == [f"{winner + 1}.0.0"]
        assert catalog.verify_all(deep=True).is_sound
        assert catalog.verify_log().is_sound
        assert catalog.reservations.list() == ()


def test_without_a_record_a_mirror_is_a_complete_place(server: str, tmp_path: Path) -> None:
    """Other clients of the catalog have other data directories."""
    with registry.connect(server, data_dir=tmp_path / "mine") as catalog:
        catalog.import_tfds(folder_of(tmp_path)).require_all()
        shutil.copytree(tmp_path / "source 1.0.0", tmp_path / "mine/copy")
        catalog.mirrors.add("animals", tmp_path / "mine/copy")
    with registry.connect(server, data_dir=tmp_path / "theirs") as catalog:
        assert [one.location for one in catalog.mirrors.list("animals")] == [
            str(tmp_path / "source 1.0.0"),
            str(tmp_path / "mine/copy"),
        ]


MISTYPED = {
    "s3:/my-datasets": "s3://my-datasets",
    "s3:my-datasets/a": "s3://my-datasets/a",
    "S3://my-datasets": "s3://my-datasets",
    "s3:///my-datasets": "s3://my-datasets",
    "Gs:/b": "gs://b",
    "file:/srv/data": "file:///srv/data",
    "xyz:/b": "xyz://b",
}


@pytest.mark.parametrize("text", MISTYPED)
def test_a_mistyped_url_is_no_folder_below_the_working_directory(
    text: str, catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with registry.connect(catalog_url) as catalog, pytest.raises(UsageError) as caught:
        catalog.set_data_dir(text)
    assert caught.value.message == f"the data directory is {text}, which is neither a path nor a complete URL"
    assert caught.value.hint == f"Write: {MISTYPED[text]}"
    monkeypatch.setenv("REGISTRY_DATA_DIR", text)
    with pytest.raises(UsageError, match=r"^REGISTRY_DATA_DIR is "), registry.connect(catalog_url) as catalog:
        catalog.publish(folder_of(tmp_path))
    monkeypatch.delenv("REGISTRY_DATA_DIR")
    with registry.connect(catalog_url) as catalog:
        assert list(catalog.log()) == []


def test_an_unknown_protocol_is_not_recorded(catalog_url: str) -> None:
    with registry.connect(catalog_url) as catalog, pytest.raises(StorageError, match="Protocol not known: xyz"):
        catalog.set_data_dir("xyz://b")


@pytest.mark.parametrize(
    "text", ["/srv/a:b", "C:/data", "with:colon", "./s3:/x", "file:///srv", "s3a://b/c", "abc://b"]
)
def test_a_text_that_is_a_path_or_url_stays(text: str) -> None:
    assert require_well_written(text, "it") == text


@pytest.mark.parametrize("door", [name for name in DOORS if "pre" not in name and "dry" not in name])
def test_a_relative_path_is_no_data_directory_of_a_server(
    door: str, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGISTRY_DATA_DIR", "my-datasets")
    with registry.connect(server) as catalog:
        with pytest.raises(UsageError) as caught:
            DOORS[door](catalog, tmp_path)
        assert caught.value.message == (
            "REGISTRY_DATA_DIR is my-datasets, a relative path, "
            "which means another folder for each client of the catalog"
        )
        assert caught.value.hint == (
            "Write a complete URL or path: for a bucket, s3://my-datasets; "
            f"for a folder that all machines reach, {tmp_path}/my-datasets"
        )
        with pytest.raises(UsageError, match=r"^the data directory is ./x, a relative path"):
            catalog.set_data_dir("./x")
        assert list(catalog.log()) == []
    assert not (tmp_path / "my-datasets").exists()


def test_the_first_publication_says_what_it_recorded(catalog_url: str, place: str, tmp_path: Path) -> None:
    with registry.connect(catalog_url, data_dir=place) as catalog:
        assert catalog.publish(folder_of(tmp_path)).recorded_data_dir == place
        assert catalog.publish(folder_of(tmp_path, "2.0.0", 5)).recorded_data_dir is None


def test_files_of_a_server_without_a_data_directory_are_not_looked_for_here(server: str, tmp_path: Path) -> None:
    """A project on a laptop becomes a catalog on a server: its record is relative to the file, and means nothing."""
    project = tmp_path / "project/catalog.db"
    with registry.connect(project) as catalog:
        catalog.publish(folder_of(tmp_path))
    registry.api.back_up(tmp_path / "backup.gz", project)
    registry.api.restore(tmp_path / "backup.gz", server)
    with registry.connect(server) as catalog:
        with pytest.raises(DataDirectoryMissingError) as caught:
            list(catalog.dataset("animals").read("train"))
        assert caught.value.message == (
            f"{catalog.url} records no data directory, so the files of animals:1.0.0 cannot be found"
        )
        assert caught.value.hint == (
            "Record the data directory for all clients: registry config data-dir URL "
            f"{quote_catalog(catalog.url)}\n"
            "Or specify it for this client: data_dir=URL, or the environment variable REGISTRY_DATA_DIR."
        )
        catalog.set_data_dir(tmp_path / "project/datasets")
        assert len(list(catalog.dataset("animals").read("train"))) == 20
