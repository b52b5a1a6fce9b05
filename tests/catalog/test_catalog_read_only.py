"""SQLite catalogs that this process, or the disk, cannot write: queries work, and writes say why they do not."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from support.catalog_forking import FORKING, in_child
from support.catalog_samples import execute, publish

import registry
from registry.catalog import open_catalog
from registry.catalog.session import open_engine, reading, write
from registry.cli.main import run
from registry.errors import CatalogError, CatalogPermissionError, CatalogUnavailableError
from registry.storage.names import Owner
from registry.storage.temporary import TemporaryStore

pytestmark = FORKING

QUERIES = ["list", "search digits", "show digits", "versions digits", "resolve digits train", "read digits train[:2]"]
QUERIES += [
    "log",
    "log verify",
    "du",
    "db status",
    "db check",
    "alias list digits",
    "config list digits",
]
QUERIES += ["experiment list", "mirror list digits", "gc --dry-run", "diff digits:1.0.0 digits:1.0.0"]
QUERIES += ["reservation list", "backup {}/b.gz", "pin create digits train[:2] -o {}/p.yaml", "pin verify {}/p.yaml"]
QUERIES += ["copy --all --to {}/other.db", "export jsonl digits {}/x.jsonl --columns label"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a catalog of the digits, which this process has never opened."""
    folder = tmp_path_factory.mktemp("built")
    assert in_child(lambda: run(["quickstart", "--catalog", str(folder / "catalog.db")]) == 0)
    assert sorted(os.listdir(folder)) == ["catalog.db", "datasets"]  # noqa: PTH208 (names suffice)
    return folder


@pytest.fixture
def shared(built: Path) -> Iterator[Path]:
    """A copy of it that others may enter; below tmp_path they may not."""
    with tempfile.TemporaryDirectory(prefix="read-only-") as name:
        folder = Path(name)
        shutil.copytree(built, folder, dirs_exist_ok=True)
        folder.chmod(0o755)
        yield folder


def as_reader(action: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run ``action`` as a user who owns nothing but the folder that it gets."""
    with tempfile.TemporaryDirectory(prefix="reader-") as name:
        if os.geteuid() == 0:
            os.chown(name, 65534, 65534)
        monkeypatch.setenv("HOME", name)
        monkeypatch.setenv("REGISTRY_CACHE", f"{name}/cache")

        def act() -> bool:
            signal.alarm(60)  # nobody else ends a reader that waits for a writer
            if os.geteuid() == 0:  # root may do everything
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            action(Path(name))
            return True

        return in_child(act)


def ask_everything(catalog: Path, folder: Path) -> None:
    for query in QUERIES:
        arguments = query.format(*[folder] * query.count("{}")).split()
        assert run([*arguments, "--catalog", str(catalog)]) == 0, query
    with registry.connect(catalog) as opened:
        assert opened.dataset("digits").verify(processes=1).num_examples == 1797


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_catalog_in_a_folder_of_others_is_read(
    shared: Path, tmp_path: Path, journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shared / "catalog.db"
    ask_everything(path, tmp_path)  # also imports modules from folders that another user may not enter
    execute(str(path), f"PRAGMA journal_mode = {journal}")
    path.chmod(0o444)
    shared.chmod(0o555)

    def query_and_try_to_write(folder: Path) -> None:
        ask_everything(path, folder)
        for command in (
            "yank digits:1.0.0 --reason wrong",
            "experiment add fast --description x",
            "config protect digits",
        ):
            assert run([*command.split(), "--catalog", str(path)]) == 1, command
        with open_catalog(path) as catalog:
            with pytest.raises(CatalogPermissionError) as caught:
                publish(catalog, "mnist:1.0.0")
            assert caught.value.message == f"sqlite:///{path} is read-only"
            assert caught.value.exit_code == 1

    assert as_reader(query_and_try_to_write, monkeypatch)
    shared.chmod(0o755)
    assert sorted(os.listdir(shared)) == ["catalog.db", "datasets"]  # noqa: PTH208 (names suffice)


def test_the_temporary_folder_of_a_killed_process_of_another_user_is_left_alone(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(shared))
    killed = shared / f"shardbook-{replace(Owner.this_process(), pid=2**30, started='1').mark()}_x"
    killed.mkdir()
    (killed / "shard").touch()
    killed.chmod(0o000)
    shared.chmod(0o1777)

    def collect_and_make_another(folder: Path) -> None:
        tempfile.tempdir = None
        assert run(["gc", "--dry-run", "--catalog", str(shared / "catalog.db")]) == 0
        assert Path(TemporaryStore().url.removeprefix("file://")).parent == shared

    assert as_reader(collect_and_make_another, monkeypatch)
    killed.chmod(0o700)
    assert (killed / "shard").exists()


def test_a_full_disk_lets_a_catalog_be_read_and_saved_elsewhere(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shared / "catalog.db"

    def query_and_try_to_write() -> bool:
        sys.dont_write_bytecode = True  # Python would leave halves of files for the next processes
        # SQLite's files are larger than this, so it fails to create them, as on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        for query in ("list", "show digits", "read digits train[:2]", "log verify", "du", "db check"):
            assert run([*query.split(), "--catalog", str(path)]) == 0, query
        assert run(["backup", str(shared / "b.gz"), "--catalog", str(path)]) == 0
        with open_catalog(path) as catalog:
            with pytest.raises(CatalogError, match=" cannot be written: disk I/O error") as caught:
                publish(catalog, "mnist:1.0.0")
            assert str(caught.value.hint).startswith("Nothing was changed. Check that the disk has space left")
        return True

    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "0")
    assert in_child(query_and_try_to_write)
    with open_catalog(path) as catalog:  # what the attempts left behind does no harm
        publish(catalog, "mnist:1.0.0")


def test_a_writer_is_seen_by_readers_who_cannot_lock_the_file(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shared / "catalog.db"
    path.chmod(0o644)
    (to_writer, from_reader), (to_reader, from_writer) = os.pipe(), os.pipe()

    def writer() -> bool:
        for minor in range(1, 3):
            os.read(to_writer, 1)
            with open_catalog(path) as catalog:
                publish(catalog, f"mnist:1.{minor}.0")
            os.write(from_writer, b"x")
        return True

    def read(_folder: Path) -> None:
        with open_catalog(path) as catalog:
            assert [one.name for one in catalog.datasets()] == ["digits"]
            os.write(from_reader, b"x")
            os.read(to_reader, 1)
            assert [one.name for one in catalog.datasets()] == ["digits", "mnist"]
        engine = open_engine(path)

        def meet_a_writer() -> None:
            with reading(engine) as connection:
                connection.exec_driver_sql("SELECT 1 FROM builder").fetchall()
                os.write(from_reader, b"x")
                os.read(to_reader, 1)

        with pytest.raises(CatalogUnavailableError, match="was changed by another process while it was read"):
            meet_a_writer()
        engine.dispose()

    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if writer() else 1)
        finally:
            os._exit(2)
    shared.chmod(0o555)
    try:
        assert as_reader(read, monkeypatch)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        status = os.waitpid(child, 0)[1]
    assert status == 0


def test_changes_that_only_a_log_contains_are_not_left_out(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shared / "catalog.db"

    def die_while_it_is_open() -> bool:
        catalog = open_catalog(path)
        publish(catalog, "mnist:1.0.0")
        os._exit(0)

    assert in_child(die_while_it_is_open)
    (shared / "catalog.db-shm").unlink()
    shared.chmod(0o555)

    def read(_folder: Path) -> None:
        with pytest.raises(CatalogError) as caught:
            open_catalog(path)
        assert caught.value.message == (
            f"sqlite:///{path} cannot be opened: its newest changes are in catalog.db-wal, "
            "and you may not write to its folder"
        )
        assert str(caught.value.hint).endswith(f"cp {path} {path}-wal FOLDER")

    assert as_reader(read, monkeypatch)
    shared.chmod(0o755)
    with open_catalog(path) as catalog:
        assert len(catalog.datasets()) == 2


def test_a_reader_waits_for_a_lock_no_longer_than_it_may(catalog_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_LOCK_TIMEOUT", "0.2")
    with open_catalog(catalog_url) as catalog:
        publish(catalog, "mnist:1.0.0")
        if catalog_url.startswith("sqlite"):
            # With a log, no reader waits. Without it, it waits for a writer that commits.
            catalog.close()
            path = catalog_url.removeprefix("sqlite:///")
            execute(path, "PRAGMA journal_mode = DELETE")
            with closing(sqlite3.connect(path, isolation_level=None)) as rival:
                rival.execute("BEGIN EXCLUSIVE")
                with pytest.raises(CatalogUnavailableError, match="is locked"):
                    open_catalog(path)
            return

        def look_meanwhile(connection: sa.Connection) -> None:
            connection.exec_driver_sql("LOCK TABLE builder IN ACCESS EXCLUSIVE MODE")  # as a migration does
            for look in (lambda: catalog.find("mnist"), catalog.datasets, lambda: list(catalog.backup())):
                with pytest.raises(CatalogUnavailableError, match=r"is busy: canceling statement due to lock timeout"):
                    look()

        rival_engine = open_engine(catalog_url)
        write(rival_engine, look_meanwhile)
        rival_engine.dispose()
