"""Whose clock counts: the server's on PostgreSQL, this machine's on SQLite, and none that contradicts the log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast
from unittest import mock

import pytest
from support.catalog_clocks import set_clocks
from support.catalog_samples import execute, logged, publish, sample

from registry.catalog import CatalogBackend, Holder, clock
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import ClockError
from registry.model import Reference, Role, SplitFingerprint

YEARS = timedelta(days=3652)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
AT = Reference.parse


def is_now(moment: datetime | None) -> bool:
    assert moment is not None
    return abs(moment - datetime.now(UTC)) < timedelta(minutes=5)


def write_everything(catalog: CatalogBackend) -> None:
    """Every call that stores a time."""
    publish(catalog, "mnist/plain:1.0.0", default_config=True)
    publish(catalog, "mnist/noisy:1.0.0")
    catalog.aliases.set("paper", AT("mnist/plain:1.0.0"), expect=None, message="", actor="ann")
    catalog.lifecycle.yank(AT("mnist/plain:1.0.0"), "bad", None, actor="ann")
    catalog.experiments.add("flag", "A flag.", default=True, actor="ann")
    catalog.experiments.retire("flag", actor="ann")
    catalog.configs.set_protection(AT("mnist/plain"), protect=True, actor="ann")
    catalog.configs.set_default("mnist", "noisy", actor="ann")
    catalog.locations.add(AT("mnist/plain:1.0.0"), "s3://mirror/mnist", actor="ann")
    catalog.reservations.reserve("s3://a/b", AT("next:1.0.0"), "0" * 64, Holder.of_this_process("ann"))
    catalog.access.create_token("0" * 12, "0" * 64, "ann", Role.READER, actor="ann")
    catalog.access.revoke_token("0" * 12, actor="ann")
    catalog.access.note_refusal(token=None, principal="", call="find", dataset="", reason="no token")
    cast("SqlCatalog", catalog).webhooks.keys = ("a key of sixteen characters",)
    catalog.webhooks.create("0" * 12, "https://ci.example/", actor="ann")


TIMES = {
    "builder": ["created_at"],
    "builder_config": ["created_at"],
    "dataset_version": ["published_at"],
    "alias": ["set_at"],
    "alias_event": ["at"],
    "experiment": ["created_at", "retired_at"],
    "protection": ["protected_at"],
    "version_ledger": ["used_at"],
    "version_location": ["at"],
    "reservation": ["reserved_at"],
    "access_token": ["created_at", "revoked_at"],
    "refusal": ["at"],
    "webhook": ["created_at"],
    "event": ["at"],
}


def stored_times(url: str) -> dict[str, list[datetime]]:
    found = {}
    for table, columns in TIMES.items():
        for column in columns:
            rows = execute(url, f"SELECT {column} FROM {table}")  # noqa: S608 (names above)
            found[f"{table}.{column}"] = [
                datetime.fromisoformat(at).replace(tzinfo=UTC) if isinstance(at, str) else at for (at,) in rows
            ]
    return found


@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
def test_a_clients_clock_stamps_nothing_on_a_server(
    catalog: CatalogBackend, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class WrongClock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> WrongClock:  # type: ignore[override]  # noqa: ARG003 (as datetime has it)
            return cls.fromtimestamp((datetime.now(UTC) + YEARS).timestamp(), UTC)

    for module in ("clock", "values", "writes", "events", "backup"):
        monkeypatch.setattr(f"registry.catalog.{module}.datetime", WrongClock)

    write_everything(catalog)

    found = stored_times(catalog_url)
    assert all(found.values())
    assert [name for name, times in found.items() if not all(map(is_now, times))] == []
    assert is_now(catalog.reservations.list()[0].holders[0].since)
    assert is_now(catalog.now())
    assert catalog.log.verify().faults == ()


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_the_clock_of_this_machine_stamps_a_file(catalog: CatalogBackend, catalog_url: str) -> None:
    with set_clocks(timedelta(days=-20)):
        write_everything(catalog)

    ago = datetime.now(UTC) - timedelta(days=20)
    found = stored_times(catalog_url)
    assert all(found.values())
    assert all(abs(at - ago) < timedelta(minutes=5) for times in found.values() for at in times)


WRITES: dict[str, Callable[[CatalogBackend], object]] = {
    "publish": lambda it: publish(it, "mnist:1.1.0"),
    "alias": lambda it: it.aliases.set("best", AT("mnist:1.0.0"), expect=None, message="", actor="ann"),
    "promote": lambda it: it.lifecycle.promote(AT("mnist:0.9.0"), actor="ann"),
    "deprecate": lambda it: it.lifecycle.deprecate(AT("mnist:1.0.0"), "old", actor="ann"),
    "experiment": lambda it: it.experiments.add("flag", "A flag.", actor="ann"),
    "protect": lambda it: it.configs.set_protection(None, protect=True, actor="ann"),
    "mirror": lambda it: it.locations.add(AT("mnist:1.0.0"), "s3://mirror/mnist", actor="ann"),
    "fingerprint": lambda it: it.add_fingerprints(
        sample("mnist:1.0.0")[0], {"train": SplitFingerprint(num_examples=7, features={})}, actor="ann"
    ),
    "before the work": lambda it: it.require_publisher(),
    "reserve": lambda it: it.reservations.reserve(
        "s3://a/b", AT("next:1.0.0"), "0" * 64, Holder.of_this_process("ann")
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_no_write_follows_an_event_that_lies_far_after_the_clock(
    catalog: CatalogBackend, catalog_url: str, name: str
) -> None:
    publish(catalog, "mnist:0.9.0")
    with set_clocks(YEARS):
        publish(catalog, "mnist:1.0.0")
    before = stored_times(catalog_url), list(logged(catalog))

    with pytest.raises(ClockError) as caught:
        WRITES[name](catalog)

    whose = "of the database server" if catalog_url.startswith("postgresql") else "of this machine"
    at, now = (datetime.fromisoformat(caught.value.details[key]) for key in ("at", "clock"))
    assert str(caught.value) == (
        f"event 2 of {catalog.url} is dated {at:%Y-%m-%d %H:%M:%S} UTC, 3,652 days after the clock {whose}, "
        f"{now:%Y-%m-%d %H:%M:%S} UTC"
    )
    assert caught.value.hint == (
        f"Compare the clock {whose} with another clock: date -u. If it is behind, set it, and run the command again. "
        "If it is right, a wrong clock dated the event: registry log correct-clock --dry-run"
    )
    assert (caught.value.code, caught.value.exit_code, caught.value.details["event"]) == ("clock", 1, 2)
    assert (stored_times(catalog_url), list(logged(catalog))) == before
    assert catalog.find("mnist").version == sample("mnist:1.0.0")[0].version  # reads go on
    with set_clocks(YEARS - timedelta(minutes=59)):
        WRITES[name](catalog)
    assert catalog.log.verify().faults == ()


@pytest.mark.parametrize(
    ("jump", "words"), [(YEARS, "forward by 3,652 days"), (-2 * timedelta(hours=1), "back by 2 hours")]
)
def test_a_clock_that_jumps_while_a_file_is_open_stops_one_write(
    catalog: CatalogBackend, catalog_url: str, jump: timedelta, words: str
) -> None:
    with set_clocks(jump, jumps=True):
        if catalog_url.startswith("postgresql"):
            publish(catalog, "mnist:1.0.0")  # nobody asks this machine
            return
        with pytest.raises(ClockError) as caught:
            publish(catalog, "mnist:1.0.0")
        now = datetime.fromisoformat(caught.value.details["clock"])
        assert str(caught.value) == (
            f"the clock of this machine was set {words} while this process ran: it shows {now:%Y-%m-%d %H:%M:%S} UTC"
        )
        assert caught.value.hint == ("Compare it with another clock: date -u. If it is right, run the command again.")
        assert list(logged(catalog)) == []
        publish(catalog, "mnist:1.0.0")  # somebody has looked at the clock


@pytest.mark.parametrize(
    ("ahead", "words"), [(YEARS, "3,652 days after"), (-YEARS, "3,652 days before"), (2 * HOUR, "2 hours after")]
)
@pytest.mark.parametrize("name", WRITES)
def test_a_clock_that_differs_from_that_of_the_file_system_writes_nothing(
    catalog: CatalogBackend, catalog_url: str, name: str, ahead: timedelta, words: str
) -> None:
    with set_clocks(-2 * YEARS):  # so that no event lies after the clocks below
        publish(catalog, "mnist:0.9.0")
        publish(catalog, "mnist:1.0.0")
    before = stored_times(catalog_url), list(logged(catalog))
    real = clock._file_clock

    with set_clocks(ahead), mock.patch.object(clock, "_file_clock", real):
        if catalog_url.startswith("postgresql"):
            WRITES[name](catalog)  # nobody asks this machine
            return
        with pytest.raises(ClockError) as caught:
            WRITES[name](catalog)

    folder = Path(catalog_url.removeprefix("sqlite:///")).parent
    now, at = (datetime.fromisoformat(caught.value.details[key]) for key in ("clock", "file_clock"))
    assert is_now(at)
    assert str(caught.value) == (
        f"the clock of this machine shows {now:%Y-%m-%d %H:%M:%S} UTC, {words} the clock of the file system of "
        f"{folder}, {at:%Y-%m-%d %H:%M:%S} UTC"
    )
    assert caught.value.hint == (
        "Compare both with another clock: date -u. Set the wrong clock, of this machine or of the file "
        "server, then run the command again. Nothing was changed."
    )
    assert (caught.value.code, caught.value.exit_code) == ("clock", 1)
    assert (stored_times(catalog_url), list(logged(catalog))) == before
    assert {path.name.removeprefix("catalog.db") for path in folder.glob("*")} <= {"", "-wal", "-shm"}
    with set_clocks(59 * MINUTE), mock.patch.object(clock, "_file_clock", real):
        WRITES[name](catalog)
    assert catalog.log.verify().faults == ()


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_a_folder_in_which_no_file_can_be_created_does_not_stop_a_write(
    catalog: CatalogBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    publish(catalog, "mnist:1.0.0")
    assert is_now(next(logged(catalog)).at)


def test_a_machine_that_slept_has_no_wrong_clock() -> None:
    asleep = timedelta(days=3)
    began = datetime.now(UTC), clock._uptime()
    with (
        mock.patch.object(clock, "_start", began),
        mock.patch.object(clock, "_uptime", return_value=began[1] + asleep.total_seconds()),
    ):
        clock._refuse_jump(began[0] + asleep)
        with pytest.raises(ClockError):
            clock._refuse_jump(began[0])


def test_a_reservation_that_is_released_counts_its_age_anew(catalog: CatalogBackend) -> None:
    with set_clocks(YEARS):
        catalog.reservations.reserve("s3://a/b", AT("next:1.0.0"), "0" * 64, Holder.of_this_process("ann"))

    catalog.reservations.release("next", "1.0.0", force=True)

    assert is_now(catalog.reservations.list()[0].reserved_at)


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_the_clock_is_asked_once_more_for_each_attempt(catalog: CatalogBackend) -> None:
    with mock.patch.object(clock, "_machine_clock", side_effect=lambda: datetime.now(UTC)) as asked:
        publish(catalog, "mnist:1.0.0")
    assert asked.call_count == 2  # for the rows, and for the event, which may have waited for others
