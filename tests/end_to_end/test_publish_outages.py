"""The database or the store is away for a while at the end of a publication: it waits, and publishes once."""

from __future__ import annotations

import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.catalog_fault_proxy import CUT, CUT_ANSWER, PostgresProxy, proxied
from support.catalog_server import PostgresServer
from support.fault_proxy import FaultProxy, Request
from support.levels import cases, either
from support.prepared_samples import animals, prepare

import registry
from registry import Catalog, DatasetBuilder, Progress
from registry.errors import CatalogUnavailableError, RegistryError, StorageUnavailableError, WaitingWarning
from registry.features import FeaturesDict
from registry.publishing import Patience, patience


class Counted(DatasetBuilder):
    """Counts how often its records are generated, and calls ``at_end`` when they are."""

    VERSION = "1.0.0"
    calls = 0
    at_end: Callable[[], None] = staticmethod(lambda: None)

    def features(self) -> FeaturesDict:
        return FeaturesDict({"day": "int64"})

    def splits(self) -> dict[str, Any]:
        return {"train": self.examples()}

    def examples(self) -> Iterator[tuple[int, dict[str, int]]]:
        Counted.calls += 1
        yield from ((day, {"day": day}) for day in range(3))
        Counted.at_end()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers are away for moments, and are asked again soon."""
    monkeypatch.setattr(Counted, "calls", 0)
    monkeypatch.setattr(Counted, "at_end", staticmethod(lambda: None))
    monkeypatch.setattr(patience, "_FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(patience, "_LONGEST_PAUSE_SECONDS", 0.2)
    monkeypatch.setenv("REGISTRY_PUBLISH_TIMEOUT", "60")
    monkeypatch.setenv("REGISTRY_LOCK_TIMEOUT", "0.1")
    monkeypatch.setenv("REGISTRY_CONNECT_TIMEOUT", "2")
    monkeypatch.setenv("REGISTRY_TRIES", "1")


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A PostgreSQL that a test may stop."""
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        server = PostgresServer(Path(folder))
        server.start()
        yield server
        server.stop()


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[PostgresProxy]:
    with tempfile.TemporaryDirectory(prefix="pg-") as folder, proxied(Path(folder), postgres_server.folder) as made:
        yield made


def check_published_once(catalog: Catalog, publication: registry.publishing.Publication) -> None:
    """The caller has seen it succeed, and everybody sees one publication."""
    assert publication.newly
    assert publication.promotion.reason is None
    assert [one.action for one in catalog.log(dataset="counted")] == ["publish"]
    assert Counted.calls == 1
    assert catalog.dataset("counted").verify(deep=True).faults == ()
    assert catalog.reservations.list() == ()
    assert catalog.verify_log().is_sound


def go_away(proxy: FaultProxy, fault: Any, index: int) -> None:
    """The store is away for half a second, from the request with this index on."""
    begun: list[float] = []

    def is_away(request: Request) -> bool:
        if request.index < index:
            return False
        begun.append(time.monotonic())
        return begun[-1] - begun[0] < 0.5

    proxy.reset()
    proxy.inject(fault, when=is_away)


def later(seconds: float, action: Callable[[], object]) -> None:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()


def test_a_build_waits_for_a_postgresql_that_is_restarted(own_server: PostgresServer, tmp_path: Path) -> None:
    from registry.catalog import schema

    url = own_server.create_database()
    schema.upgrade(url)

    def fail_over() -> None:
        own_server.stop()
        later(1.0, own_server.resume)

    Counted.at_end = staticmethod(fail_over)
    seen: list[Progress] = []
    with registry.connect(url, data_dir=tmp_path) as catalog:
        with pytest.warns(WaitingWarning, match=r"; will keep trying for \d+ s$"):
            publication = catalog.build(Counted, processes=1, progress=seen.append)
        check_published_once(catalog, publication)
    assert [note.partition(" ")[0] for note in publication.notes] == ["waited"]
    assert publication.notes[0].endswith(" s for the catalog")
    waiting = [one for one in seen if one.stage == "waiting for the catalog"]
    assert waiting
    assert (waiting[0].done, waiting[0].total, waiting[0].unit) == (0, 60, "seconds")


def test_a_build_waits_for_an_sqlite_file_that_is_locked(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:

        def lock() -> None:
            def hold() -> None:
                with closing(sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)) as other:
                    other.execute("BEGIN IMMEDIATE")
                    held.set()
                    time.sleep(1)

            held = threading.Event()
            threading.Thread(target=hold, daemon=True).start()
            held.wait(10)

        Counted.at_end = staticmethod(lock)
        with pytest.warns(WaitingWarning, match=r"catalog\.db is locked; will keep trying for 60 s$"):
            publication = catalog.build(Counted, processes=1)
        check_published_once(catalog, publication)


STATEMENTS = (
    b"INSERT INTO builder ",
    b"INSERT INTO version_ledger",
    b"INSERT INTO dataset_version",
    b"INSERT INTO event",
    b"INSERT INTO reservation",
    b"UPDATE reservation",
    b"DELETE FROM reservation",
    b"COMMIT",
    b"pg_advisory_xact_lock",
)


@pytest.mark.parametrize("times", either(3, 1))
@pytest.mark.parametrize("statement", cases(STATEMENTS, everyday=3))
@pytest.mark.parametrize("fault", [CUT, CUT_ANSWER])
@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_a_connection_that_is_lost_at_any_statement_publishes_once(
    proxy: PostgresProxy,
    postgres_server: PostgresServer,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    place: str,
    fault: str,
    statement: bytes,
    times: int,
) -> None:
    database = postgres_server.create_database(template="catalog_template").partition("@/")[2].partition("?")[0]
    data_dir = str(tmp_path) if place == "disk" else request.getfixturevalue("bucket")

    def break_it() -> None:
        proxy.trigger, proxy.fault, proxy.times = statement, fault, times

    Counted.at_end = staticmethod(break_it)
    with registry.connect(proxy.url(database), data_dir=data_dir) as catalog:
        publication = catalog.build(Counted, processes=1)
        proxy.trigger = None
        check_published_once(catalog, publication)


@pytest.mark.parametrize("index", cases(range(9), everyday=4))
@pytest.mark.filterwarnings("ignore::registry.errors.LeftoverWarning")  # the marker, if the store is away after the row
@pytest.mark.parametrize("fault", ["error", "drop", "cut"])
def test_a_bucket_that_is_away_from_any_request_on_publishes_once(
    fault_proxy: FaultProxy, bucket: str, tmp_path: Path, fault: Any, index: int
) -> None:
    Counted.at_end = staticmethod(lambda: go_away(fault_proxy, fault, index))
    with registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog:
        publication = catalog.build(Counted, processes=1)
        fault_proxy.reset()
        check_published_once(catalog, publication)


@pytest.mark.parametrize("way", ["add", "publish", "import", "copy"])
def test_every_command_that_publishes_waits_for_the_store(
    fault_proxy: FaultProxy, bucket: str, tmp_path: Path, way: str
) -> None:
    folder = prepare(tmp_path / "animals", splits={"train": animals(5)})
    ways: dict[str, Callable[[Catalog], Any]] = {
        "add": lambda catalog: catalog.add([{"price": 1}], "animals").publication,
        "publish": lambda catalog: catalog.publish(folder),
        "import": lambda catalog: next(iter(catalog.import_tfds(folder, copy=True))),
        "copy": lambda catalog: next(iter(other.copy("animals", catalog).require_all() or [None])),
    }
    with (
        registry.connect(tmp_path / "other.db") as other,
        registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog,
    ):
        other.publish(folder)
        go_away(fault_proxy, "error", 2)
        with pytest.warns(WaitingWarning):
            ways[way](catalog)
        assert catalog.dataset("animals").verify(deep=True).faults == ()
        assert [one.action for one in catalog.log(dataset="animals")].count("publish") == 1


def test_without_a_budget_nothing_waits(
    fault_proxy: FaultProxy, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_PUBLISH_TIMEOUT", "0")
    Counted.at_end = staticmethod(lambda: fault_proxy.inject("error"))
    with (
        registry.connect(tmp_path / "catalog.db", data_dir=bucket) as catalog,
        pytest.raises(StorageUnavailableError),
    ):
        catalog.build(Counted, processes=1)


def test_refusals_do_not_wait(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.build(Counted, processes=1)
        folder = prepare(tmp_path / "counted", splits={"train": animals(5)})
        begun = time.monotonic()
        with pytest.raises(RegistryError) as caught:
            catalog.publish_prepared(registry.storage.open_store(folder), renamed(folder))
        assert not isinstance(caught.value, CatalogUnavailableError)
    assert time.monotonic() - begun < 30


def renamed(folder: Path) -> Any:
    from registry.prepared import read_prepared
    from registry.storage import open_store

    return read_prepared(open_store(folder)).renamed("counted")


@pytest.mark.parametrize(
    ("text", "seconds"), [("", 600.0), ("0", 0.0), ("90", 90.0), ("1.5", 1.5), ("10m", 600.0), ("2h", 7200.0)]
)
def test_the_budget_is_seconds_or_a_duration(monkeypatch: pytest.MonkeyPatch, text: str, seconds: float) -> None:
    monkeypatch.setenv("REGISTRY_PUBLISH_TIMEOUT", text)
    assert Patience.from_environment().seconds == seconds


@pytest.mark.parametrize("text", ["-1", "soon", "1e3", "10 m", "1.2.3", "²"])
def test_another_budget_is_refused_before_the_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    monkeypatch.setenv("REGISTRY_PUBLISH_TIMEOUT", text)
    with registry.connect(tmp_path / "catalog.db") as catalog, pytest.raises(registry.RegistryError) as caught:
        catalog.build(Counted)
    assert str(caught.value) == f"REGISTRY_PUBLISH_TIMEOUT is {text!r}: expected seconds or a duration"
    assert caught.value.hint == (
        "Set it to seconds or a duration, e.g. REGISTRY_PUBLISH_TIMEOUT=10m, or unset it. 0 does not wait."
    )
    assert Counted.calls == 0


def test_ctrl_c_ends_the_waiting_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def interrupt(seconds: float) -> None:
        slept.append(seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr(patience.time, "sleep", interrupt)

    def step() -> None:
        raise CatalogUnavailableError("it is away")

    with pytest.warns(WaitingWarning), pytest.raises(KeyboardInterrupt):
        Patience(600).call(step)
    assert len(slept) == 1
