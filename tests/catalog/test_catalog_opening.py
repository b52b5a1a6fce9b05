from __future__ import annotations

import gc
import inspect
import os
import re
import sys
import tempfile
import traceback
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from support.catalog_forking import FORKING, in_child
from support.catalog_samples import execute, publish, sample

import registry
from registry.catalog import open_catalog, schema, session, sqlite_path, urls
from registry.catalog.backend import CatalogBackend
from registry.catalog.session import open_engine, write
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import (
    CatalogError,
    CatalogUnavailableError,
    MissingExtraError,
    NotACatalogError,
    RegistryError,
    UsageError,
)


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}", "sqlite+pysqlite:///{}"])
def test_an_sqlite_catalog_is_created_on_first_use_and_there_afterwards(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a catalog, 100%.db"
    with open_catalog(form.format(path)) as catalog:
        publish(catalog, "mnist:1.0.0")
        assert sqlite_path(catalog.url) == path
        assert repr(catalog) == f"<SqlCatalog {catalog.url}>"

    with open_catalog(path) as again:
        assert again.find("mnist").num_examples == 9
    assert execute(str(path), "PRAGMA journal_mode") == [("wal",)]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_an_empty_file_becomes_a_catalog(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    path.touch()

    open_catalog(path).close()

    assert schema.status(path).state == "current"


@pytest.mark.parametrize("prefix", ["postgresql://", "postgresql+psycopg://"])
@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
def test_both_spellings_of_a_postgresql_url_are_understood(catalog_url: str, prefix: str) -> None:
    with open_catalog(catalog_url.replace("postgresql://", prefix)) as catalog:
        assert catalog.datasets() == ()


def test_an_invalid_catalog_url_is_refused_without_repeating_it() -> None:
    for url in (
        *("mysql://ann:secret@host/x", "sqlite://", "sqlite:///:memory:", "sqlite:///x.db?mode=ro"),
        *("sqlite:///file:x.db", "postgresql://ann:secret@host:port/x", "://secret", "", "a\0b"),
    ):
        with pytest.raises(UsageError) as caught:
            open_catalog(url)

        assert str(caught.value.hint).startswith(
            "Write sqlite:///catalog.db, the path of a file, postgresql://user@host/database, or https://host/path/."
        )
        assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_a_text_file_is_refused_as_a_catalog_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary, " * 100)

    for action in (open_catalog, schema.status, schema.upgrade, schema.check):
        with pytest.raises(NotACatalogError, match=r"notes.txt is not a database(?m:$)"):
            action(path)
    assert path.read_text() == "Dear diary, " * 100


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"cannot be opened: its folder does not exist(?m:$)") as caught:
        open_catalog(tmp_path / "missing/catalog.db")

    assert caught.value.hint == f"Create it with: mkdir -p {tmp_path / 'missing'}"


def test_a_folder_is_refused_as_a_catalog(tmp_path: Path) -> None:
    with pytest.raises(NotACatalogError, match=r"is a folder(?m:$)") as caught:
        open_catalog(tmp_path)

    assert caught.value.hint == "Name a file in it, e.g. catalog.db."


def _everything_said(error: RegistryError) -> str:
    return " ".join([str(error), repr(error), str(error.hint), repr(error.details), *traceback.format_exception(error)])


def test_no_message_repeats_the_password(postgres_server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_TRIES", "1")
    folder = postgres_server.folder
    urls = [
        f"postgresql://locked:hunter2@/postgres?host={folder}",  # the wrong one, to a real server
        f"postgresql://locked@/postgres?host={folder}&password=hunter2",
        f"postgresql://postgres:hunter2@/no_such_database?host={folder}",
        f"postgresql://ann:hunter2@/x?host={tmp_path}",  # nobody listens there
        f"postgresql://ann:hunter2@/x?host={tmp_path}&sslpassword=hunter2",
        "postgresql://ann:hunter2@localhost:1/x",
    ]
    for url in urls:
        for action in (open_catalog, schema.status, schema.upgrade, schema.check):
            with pytest.raises(CatalogError, match=r"refuses the connection|cannot be reached") as caught:
                action(url)
            assert "hunter2" not in _everything_said(caught.value)
    shown = SqlCatalog(open_engine("postgresql://ann:hunter2@host/x?sslpassword=hunter2")).url
    assert shown == "postgresql://ann:***@host/x?sslpassword=***"


def test_a_user_without_rights_on_the_tables_is_told_so(postgres_server) -> None:
    url = postgres_server.create_database(template="catalog_template").replace("postgres@", "locked:right@")

    with pytest.raises(CatalogError, match=r"^postgresql://locked:\*\*\*@.* refuses it: permission denied") as caught:
        open_catalog(url)

    assert "Your database user lacks this right." in str(caught.value.hint)


def test_postgresql_without_its_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(MissingExtraError) as caught:
        open_catalog("postgresql://host/x")

    assert caught.value.details == {"package": "psycopg", "extra": "pg"}


def test_a_catalog_locked_by_another_is_busy_and_not_broken(catalog_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocker = open_engine(catalog_url)
    monkeypatch.setenv("REGISTRY_LOCK_TIMEOUT", "0.02")
    engine = open_engine(catalog_url)

    def block(connection: sa.Connection) -> None:
        connection.exec_driver_sql(
            "SELECT 1" if connection.dialect.name == "sqlite" else "LOCK TABLE builder IN ACCESS EXCLUSIVE MODE"
        )
        with pytest.raises(CatalogUnavailableError, match=r"is locked|is busy") as caught:
            publish(SqlCatalog(engine), "mnist:1.0.0")
        assert caught.value.exit_code == 75
        assert caught.value.hint == "Another process is writing to it. Try again; nothing was changed."

    write(blocker, block)
    publish(SqlCatalog(engine), "mnist:1.0.0")
    engine.dispose()
    blocker.dispose()


@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_a_serialization_failure_or_deadlock_is_tried_again_a_few_times(catalog_url: str, state: str) -> None:
    engine = open_engine(catalog_url)
    attempts: list[int] = []

    def fail(connection: sa.Connection, times: int) -> int:
        attempts.append(len(attempts))
        if len(attempts) <= times:
            connection.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION 'rival' USING ERRCODE = '{state}'; END $$")
        return len(attempts)

    assert write(engine, lambda connection: fail(connection, 2)) == 3
    attempts.clear()
    with pytest.raises(CatalogUnavailableError, match="is busy: rival"):
        write(engine, lambda connection: fail(connection, 99))
    assert len(attempts) == 5
    engine.dispose()


def test_connections_have_what_sqlite_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_catalog(tmp_path / "catalog.db").close()
    monkeypatch.setenv("REGISTRY_LOCK_TIMEOUT", "7")
    engine = open_engine(tmp_path / "catalog.db")
    with engine.connect() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("foreign_keys", "busy_timeout", "journal_mode")
        }
    engine.dispose()

    assert pragmas == {"foreign_keys": 1, "busy_timeout": 7000, "journal_mode": "wal"}


def test_a_reader_does_not_wait_for_a_writer(catalog_url: str) -> None:
    with open_catalog(catalog_url) as catalog:
        publish(catalog, "mnist:1.0.0")
        blocker = open_engine(catalog_url)

        def read_meanwhile(connection: sa.Connection) -> int:
            connection.exec_driver_sql("UPDATE dataset_version SET state = 'yanked'")
            return catalog.find("mnist").num_examples  # still the canonical version, as it was committed

        assert write(blocker, read_meanwhile) == 9
        blocker.dispose()


def test_a_catalog_on_a_network_file_system_does_without_wal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "network_filesystem", lambda _path: "nfs4")
    path = tmp_path / "catalog.db"

    with open_catalog(path) as catalog:
        publish(catalog, "mnist:1.0.0")

    assert execute(str(path), "PRAGMA journal_mode") == [("delete",)]


def test_a_wal_catalog_on_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "catalog.db"
    open_catalog(path).close()
    monkeypatch.setattr(session, "network_filesystem", lambda _path: "nfs4")

    with pytest.raises(
        CatalogError, match="is in WAL mode, which is not safe on the network file system nfs4"
    ) as caught:
        open_catalog(path)

    assert str(caught.value.hint).startswith(f"On the machine that has the disk, run: sqlite3 {path} ")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/x/catalog.db", None),
        ("/mnt/share/x/catalog.db", "nfs4"),
        ("/mnt/share/x/local/catalog.db", None),
        ("/mnt/with space/catalog.db", "cifs"),
        ("/mnt/ssh/catalog.db", "fuse.sshfs"),
        ("/mnt/windows/catalog.db", None),
        ("/mnt/shareholder/catalog.db", None),
    ],
)
def test_network_file_systems_are_recognized_by_their_mounts(tmp_path: Path, path: str, expected: str | None) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
        "30 22 0:40 / /mnt/share rw - nfs4 server:/x rw\n"
        "31 30 8:2 / /mnt/share/x/local rw master:2 - xfs /dev/sdb1 rw\n"
        "32 22 0:41 / /mnt/with\\040space rw - cifs //server/x rw\n"
        "33 22 0:42 / /mnt/ssh rw - fuse.sshfs host: rw\n"
        "34 22 8:3 / /mnt/windows rw - fuseblk /dev/sdc1 rw\n"
        "broken line\n"
    )

    assert urls.network_filesystem(Path(path), mounts=mounts) == expected
    assert urls.network_filesystem(Path(path), mounts=tmp_path / "none") is None


@FORKING
def test_a_forked_child_and_its_parent_both_go_on(catalog_url: str) -> None:
    with open_catalog(catalog_url) as catalog:
        publish(catalog, "mnist:1.0.0")

        def read_and_publish() -> bool:
            version, shards = sample("mnist:2.0.0", content="child")
            found = catalog.find("mnist").num_examples == 9
            return catalog.publish(version, shards, promote=True, actor="child") and found

        assert in_child(read_and_publish)
        assert catalog.find("mnist").published_by == "child"
        publish(catalog, "mnist:3.0.0", content="parent")


@FORKING
def test_a_catalog_that_nobody_closes_leaves_no_connection(catalog_url: str) -> None:
    held = [open_catalog(catalog_url)]
    publish(held[0], "mnist:1.0.0")
    connections: list[Any] = []
    engine = held[0]._engine  # type: ignore[attr-defined]
    sa.event.listen(engine, "close", lambda connection, _record: connections.append(connection))
    del engine

    def dropped_by_a_child() -> bool:
        held.clear()
        gc.collect()
        return connections == []  # the parent's, which it still uses

    assert in_child(dropped_by_a_child)
    assert held[0].find("mnist").num_examples == 9
    assert connections == []
    held.clear()
    gc.collect()
    assert len(connections) == 1


def test_a_copy_made_without_wal_is_put_back_into_it(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    with open_catalog(path) as catalog:
        publish(catalog, "mnist:1.0.0")
    copy = tmp_path / "copy.db"
    execute(str(path), f"VACUUM INTO '{copy}'")
    assert execute(str(copy), "PRAGMA journal_mode") == [("delete",)]

    with open_catalog(copy) as catalog:
        assert catalog.find("mnist").num_examples == 9
    assert execute(str(copy), "PRAGMA journal_mode") == [("wal",)]


@FORKING
def test_a_file_that_cannot_be_written_can_be_read(tmp_path: Path) -> None:
    with open_catalog(tmp_path / "catalog.db") as catalog:
        publish(catalog, "mnist:1.0.0")
    with tempfile.TemporaryDirectory() as name:  # not below tmp_path, which other users may not enter
        copy = Path(name, "copy.db")
        execute(str(tmp_path / "catalog.db"), f"VACUUM INTO '{copy}'")
        copy.chmod(0o444)
        Path(name).chmod(0o555)

        def read_only() -> bool:
            if os.geteuid() == 0:  # root may write anywhere
                os.setuid(65534)
            with open_catalog(copy) as catalog:
                found = catalog.find("mnist").num_examples == 9
                with pytest.raises(CatalogError, match="is read-only"):
                    publish(catalog, "mnist:2.0.0")
            return found

        assert in_child(read_only)


def test_a_catalog_on_a_read_only_file_system_is_read_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a catalog, 100%.db"
    with open_catalog(path) as catalog:
        publish(catalog, "mnist:1.0.0")

    facts = os.statvfs_result((*os.statvfs(path)[:8], os.ST_RDONLY, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: facts)
    with open_catalog(path) as catalog:
        assert catalog.find("mnist").num_examples == 9
        assert [file.name for file in tmp_path.iterdir()] == [path.name], "no -wal, no -shm"
        with pytest.raises(CatalogError, match="is read-only"):
            publish(catalog, "mnist:1.0.1")


def test_a_relative_path_is_that_of_the_folder_in_which_the_catalog_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for another thread, which connects anew after the program has changed its folder."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with registry.connect("catalog.db", create=True) as catalog, ThreadPoolExecutor(1) as thread:
        catalog.build("digits")
        monkeypatch.chdir("elsewhere")
        assert str(thread.submit(catalog.dataset, "digits").result().version) == "1.0.0"
        with registry.connect(tmp_path / "catalog.db") as same, pytest.raises(UsageError, match="the catalog itself"):
            catalog.copy("digits", to=same)


def test_calls_that_are_loaded_later_have_the_signatures_of_the_protocol() -> None:
    def unqualified(text: str) -> str:
        """The protocol names its values by their module."""
        return re.sub(r"\b(model|outcomes|values)\.", "", text)

    later = 0
    for name, call in inspect.getmembers(CatalogBackend, inspect.isfunction):
        implementation = getattr(SqlCatalog, name)
        if implementation.__qualname__.startswith(("_call.", "_look_up.")):
            home = inspect.getclosurevars(implementation).nonlocals
            implementation = getattr(import_module(f"registry.catalog.{home['module']}"), home["name"])
            _, *expected = inspect.signature(call).parameters.values()
            _, *parameters = inspect.signature(implementation).parameters.values()
            if name == "datasets":  # the server also says which names a token covers
                assert parameters.pop().name == "covered_by"
            assert [(it.kind, str(it)) for it in parameters] == [(it.kind, unqualified(str(it))) for it in expected]
            result = inspect.signature(call).return_annotation
            assert inspect.signature(implementation).return_annotation == unqualified(result)
            later += 1
    assert later > 22
