"""After a wrong clock: events stay as they are, and are read at corrected times."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.catalog_clocks import as_before, freeze_clocks, set_clocks
from support.catalog_samples import execute, logged, publish

from registry.catalog import CatalogBackend, schema
from registry.errors import RegistryError, UsageError
from registry.model import Reference, Standing

AT = Reference.parse
CORRECTED = "0010"
HOUR = timedelta(hours=1)
YEARS = timedelta(days=3652)
START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def alias(catalog: CatalogBackend, name: str, target: str) -> None:
    catalog.aliases.set(name, AT(target), expect=None, message="", actor="ann")


def act(
    catalog: CatalogBackend, moment: datetime, call: Callable[[], object], *, ahead: timedelta | None = None
) -> None:
    """Do something at a moment, by a clock that is ahead, and as older releases did: later events follow it."""
    with as_before(), freeze_clocks(moment + (ahead or timedelta())):
        call()


@pytest.fixture
def distorted(catalog: CatalogBackend) -> CatalogBackend:
    """One publication by a clock that is ten years ahead, the third of six hours; then five more actions."""
    actions: list[Callable[[], object]] = [
        lambda: publish(catalog, "mnist:1.0.0"),
        lambda: alias(catalog, "paper", "mnist:1.0.0"),
        lambda: publish(catalog, "mnist:1.1.0"),
        lambda: publish(catalog, "mnist:1.2.0"),
        lambda: alias(catalog, "paper", "mnist:1.2.0"),
        lambda: catalog.lifecycle.yank(AT("mnist:1.0.0"), "bad", None, actor="ann"),
        lambda: catalog.locations.add(AT("mnist:1.2.0"), "s3://mirror/mnist", actor="bob"),
    ]
    for hour, call in enumerate(actions):
        act(catalog, START + hour * HOUR, call, ahead=YEARS if hour == 2 else None)
    return catalog


def times(catalog: CatalogBackend) -> list[float]:
    """The hours at which the events are read."""
    return [round((one.at - START) / HOUR, 3) for one in logged(catalog)]


def canonical(catalog: CatalogBackend, hour: float) -> str:
    return str(catalog.standing("mnist", at=START + hour * HOUR).canonical)


def test_before_the_correction_look_ups_miss_what_followed_the_wrong_clock(distorted: CatalogBackend) -> None:
    assert [canonical(distorted, hour) for hour in (1, 2, 3, 10)] == ["1.0.0"] * 4
    assert times(distorted)[:2] == [0, 1]
    assert all(hour > 87_000 for hour in times(distorted)[2:])


def test_look_ups_are_right_after_the_correction(distorted: CatalogBackend) -> None:
    before = list(logged(distorted))
    with freeze_clocks(START + 20 * HOUR):
        done = distorted.log.correct_clock(ahead=YEARS, actor="ann")
        publish(distorted, "mnist:1.3.0")

    assert [one.id for one in done.events] == [3, 4, 5, 6, 7]
    # The sixth has no row with a time: it happened before the seventh.
    assert times(distorted) == [0, 1, 2, 3, 4, 6, 6, 20, 20]
    assert [canonical(distorted, hour) for hour in (0, 1, 2, 3, 19, 21)] == [
        "1.0.0", "1.0.0", "1.1.0", "1.2.0", "1.2.0", "1.3.0",
    ]  # fmt: skip
    paper = AT("mnist@paper")
    assert [str(distorted.find_at(paper, START + hour * HOUR).version.version) for hour in (1, 3, 4)] == [
        "1.0.0", "1.0.0", "1.2.0",
    ]  # fmt: skip
    assert [one.at for one in distorted.aliases.history(paper)] == [START + HOUR, START + 4 * HOUR]
    published = {str(one.version): one.published_at for one in distorted.versions("mnist")}
    assert published == {f"1.{minor}.0": START + hour * HOUR for minor, hour in ((0, 0), (1, 2), (2, 3), (3, 20))}
    assert distorted.find("mnist:1.1.0").published_at == START + 2 * HOUR
    after = list(logged(distorted))
    assert [(one.id, one.hash, one.details) for one in after[:7]] == [(one.id, one.hash, one.details) for one in before]
    assert [one.stamped_at for one in after] == [None, None, *(one.at for one in before[2:]), None, None]
    assert [one.id for one in logged(distorted, since=START + 3 * HOUR, until=START + 4 * HOUR)] == [4, 5]
    correction = after[7]
    assert (correction.action, correction.actor, correction.dataset) == ("correct-clock", "ann", "")
    assert correction.details["first"] == 3
    assert correction.details["times"][0] == "2026-03-01T14:00:00.000000+00:00"
    distorted.log.verify().require_sound()


def test_without_the_offset_the_event_of_the_wrong_clock_happened_before_the_next_one(
    distorted: CatalogBackend,
) -> None:
    with freeze_clocks(START + 20 * HOUR):
        distorted.log.correct_clock(actor="ann")
    assert times(distorted) == [0, 1, 3, 3, 4, 6, 6, 20]
    distorted.log.verify().require_sound()


def test_a_dry_run_writes_nothing_and_a_second_correction_corrects_nothing(distorted: CatalogBackend) -> None:
    before = list(logged(distorted))
    with freeze_clocks(START + 20 * HOUR):
        planned = distorted.log.correct_clock(actor="ann", dry_run=True)
        assert list(logged(distorted)) == before
        done = distorted.log.correct_clock(actor="ann")
        again = distorted.log.correct_clock(actor="ann")
    assert planned.events == done.events
    assert (planned.is_dry_run, done.is_dry_run, done.clock) == (True, False, START + 20 * HOUR)
    assert again.events == ()
    assert len(list(logged(distorted))) == len(before) + 1


def test_a_correction_by_a_wrong_clock_is_corrected_by_another_one(distorted: CatalogBackend) -> None:
    with as_before(), freeze_clocks(START - 50 * HOUR):
        distorted.log.correct_clock(actor="ann")  # this clock is behind: everything is in the future
    assert set(times(distorted)) == {-50}
    with freeze_clocks(START + 20 * HOUR):
        distorted.log.correct_clock(first=1, actor="ann")
    assert times(distorted) == [0, 1, 3, 3, 4, 6, 6, 20, 20]
    distorted.log.verify().require_sound()


def test_only_events_of_the_log_are_corrected(distorted: CatalogBackend) -> None:
    for first, last in ((8, None), (1, 8), (4, 3)):
        with pytest.raises(UsageError) as caught:
            distorted.log.correct_clock(first=first, last=last, actor="ann")
        assert str(caught.value) == f"the log has no events {first}..{last or 7}: it has 7"
        assert caught.value.hint == "To list the events: registry log"


def test_an_empty_log_has_nothing_to_correct(catalog: CatalogBackend) -> None:
    assert catalog.log.correct_clock(actor="ann").events == ()


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("DELETE FROM corrected_time WHERE event_id = 3",
         "event 3 is read as it was stamped; the log says 2026-03-01T14:00:00.000000+00:00"),
        ("UPDATE corrected_time SET corrected_by = 7 WHERE event_id = 4",
         "event 4 is read as of 2026-03-01T15:00:00.000000+00:00; the log says 2026-03-01T15:00:00.000000+00:00"),
        ("INSERT INTO corrected_time SELECT 1, at, corrected_by FROM corrected_time WHERE event_id = 3",
         "event 1 is read as of 2026-03-01T14:00:00.000000+00:00; no event corrects it"),
        ("UPDATE corrected_time SET event_id = 2 WHERE event_id = 3",
         "event 2 is read as of 2026-03-01T14:00:00.000000+00:00; no event corrects it"),
    ],
)  # fmt: skip
def test_times_that_no_event_corrects_are_found(
    distorted: CatalogBackend, catalog_url: str, statement: str, fault: str
) -> None:
    with freeze_clocks(START + 20 * HOUR):
        distorted.log.correct_clock(ahead=YEARS, actor="ann")
    execute(catalog_url, statement)
    assert fault in [str(one) for one in distorted.log.verify().faults]


@pytest.mark.parametrize("catalog_url", ["sqlite", "postgresql"], indirect=True)
def test_a_catalog_that_was_taken_back_and_up_again_has_the_corrected_times(
    catalog: CatalogBackend, catalog_url: str
) -> None:
    act(catalog, START, lambda: publish(catalog, "mnist:1.0.0"), ahead=YEARS)
    with freeze_clocks(START + 20 * HOUR):
        catalog.log.correct_clock(ahead=YEARS, actor="ann")
    before = execute(catalog_url, "SELECT * FROM corrected_time")

    schema.downgrade(catalog_url, schema.REVISIONS[schema.REVISIONS.index(CORRECTED) - 1])
    schema.upgrade(catalog_url)

    assert execute(catalog_url, "SELECT * FROM corrected_time") == before
    assert times(catalog) == [0, 20]
    catalog.log.verify().require_sound()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_around_a_wrong_clock_every_moment_is_found_again(catalog: CatalogBackend, seed: int) -> None:
    """Publications and moves of aliases, each by a client whose clock is right or years ahead; all have their time."""
    chance = random.Random(seed)
    ahead = timedelta(days=chance.randint(1, 5000))
    recorded: list[tuple[datetime, Standing]] = []
    for hour in range(12):
        moment = START + hour * HOUR + timedelta(microseconds=chance.randint(0, 10**6))
        if hour == 0 or chance.random() < 0.5:
            call = lambda hour=hour: publish(catalog, f"mnist:1.{hour}.0")  # noqa: E731 (as short as it is)
        else:
            target = chance.choice(catalog.versions("mnist"))
            call = lambda hour=hour, to=target: alias(catalog, f"a{hour % 3}", f"mnist:{to.version}")  # noqa: E731
        wrong = bool(hour) and chance.random() < 0.2
        act(catalog, moment, call, ahead=ahead if wrong else None)
        recorded.append((moment, catalog.standing("mnist")))

    with freeze_clocks(START + 13 * HOUR):
        catalog.log.correct_clock(ahead=ahead, actor="ann")

    for (moment, standing), (later, _) in pairwise([*recorded, (START + 13 * HOUR, None)]):
        for at in (moment, later - timedelta(microseconds=1)):
            assert catalog.standing("mnist", at=at) == standing
    assert [one.at for one in logged(catalog)] == sorted(one.at for one in logged(catalog))
    catalog.log.verify().require_sound()


def test_writing_goes_on_after_the_correction(catalog: CatalogBackend) -> None:
    with set_clocks(YEARS):
        publish(catalog, "mnist:1.0.0")
    with pytest.raises(RegistryError, match="after the clock"):
        publish(catalog, "mnist:1.1.0")

    catalog.log.correct_clock(actor="ann")
    publish(catalog, "mnist:1.1.0")

    first, correction, second = logged(catalog)
    assert first.at <= correction.at < second.at
    assert abs(second.at - datetime.now(UTC)) < timedelta(minutes=5)
    assert str(catalog.find_at(AT("mnist"), datetime.now(UTC)).version.version) == "1.1.0"
    catalog.log.verify().require_sound()


def test_a_downgrade_says_first_that_older_software_reads_the_stamped_times(
    catalog: CatalogBackend, catalog_url: str
) -> None:
    before = schema.REVISIONS[schema.REVISIONS.index(CORRECTED) - 1]
    assert schema.downgrade_notes(catalog_url, before) == []
    act(catalog, START, lambda: publish(catalog, "mnist:1.0.0"), ahead=YEARS)
    with freeze_clocks(START + 20 * HOUR):
        catalog.log.correct_clock(ahead=YEARS, actor="ann")
    assert schema.downgrade_notes(catalog_url, before) == [
        f"the log corrects a wrong clock (events correct-clock: 1): the software for the schema {before} reads "
        "events at the times that the clock stamped, and its `registry log verify` will report their order; after the "
        "next upgrade it is sound again"
    ]
    assert schema.downgrade_notes(catalog_url, "base") == []


EVENT = "INSERT INTO event VALUES ({number}, {at}, 'eve', 'note', '', '', {details}, '{previous}', '{hash}')"
WRONG: dict[str, dict[str, object]] = {
    "a gap in the numbers": {"number": 9},
    "a number that is taken": {"number": 1},
    "another previous hash": {"previous": "1" * 64},
    "a hash of zeros": {"hash": "0" * 64},
    "a hash that is too short": {"hash": "a" * 63},
    "a hash that has other letters": {"hash": "A" * 64},
    "no JSON": {"details": "'x'"},
    "no JSON object": {"details": "'[]'"},
}
TIMES = {"sqlite": "'2026-03-01 12:00:00.000000'", "postgresql": "'2026-03-01 12:00:00+00'"}
WRONG_TIMES = {
    "sqlite": [
        "'yesterday'",
        "'2026-13-01 12:00:00.000000'",
        "1772366400",
        "x'00'",
        "'2026-02-30 00:00:00.000000'",
        "'2026-02-20 24:00:00.000000'",
        "'0000-01-01 00:00:00.000000'",
        "'9999-12-31 23:59:59.999999'",
        "'2026-02-20 12:00:60.000000'",
        "'2026-02-20 12:00:00.0'",
        "'2026-02-20 12:00:00.0000000'",
        "'2026-02-20 12:00:00.000000Z'",
        "'2026-02-20T12:00:00.000000'",
        "' 026-02-20 12:00:00.000000'",
        "CAST('2026-02-20 12:00:00.000000' AS blob)",
    ],
    "postgresql": ["'infinity'", "'-infinity'", "'20000-01-01 00:00:00+00'", "'0044-03-15 12:00:00+00 BC'"],
}


@pytest.mark.parametrize("what", [*WRONG, "a time"])
def test_the_database_refuses_an_event_that_does_not_continue_the_log(
    catalog: CatalogBackend, catalog_url: str, what: str
) -> None:
    publish(catalog, "mnist:1.0.0")
    kind = catalog_url.partition(":")[0]
    right = {
        "number": 2,
        "at": TIMES[kind],
        "details": """'{"@session_user": "postgres"}'""",  # who the server says writes it
        "previous": next(logged(catalog)).hash,
        "hash": "a" * 64,
    }
    wrongs = [WRONG[what]] if what in WRONG else [{"at": at} for at in WRONG_TIMES[kind]]

    refused = (sqlite3.IntegrityError, sqlite3.OperationalError, psycopg.IntegrityError, psycopg.DataError)
    for wrong in wrongs:
        with pytest.raises(refused):
            execute(catalog_url, EVENT.format(**right | wrong))

    publish(catalog, "mnist:1.1.0")
    catalog.log.verify().require_sound()
    right |= {"number": 3, "previous": list(logged(catalog))[-1].hash}
    execute(catalog_url, EVENT.format(**right))  # what continues the log is accepted, and found
    publish(catalog, "mnist:1.2.0")
    assert "was changed: its hash does not match its content" in str(catalog.log.verify().faults[0])


COLUMNS = ("actor", "action", "dataset", "version")


@given(st.binary(max_size=12) | st.text(max_size=12).map(str.encode), st.sampled_from(COLUMNS))
@example(b"\xffA", "actor")
@example("\ufffe\uffff\ufffd".encode(), "actor")
@example(b"a\xc3", "actor")
@example(b"\xa9", "action")
@example(b"a\0b", "version")
def test_sqlite_refuses_events_with_text_that_python_cannot_read(
    bare_log: sqlite3.Connection, text: bytes, column: str
) -> None:
    try:
        is_text = "\0" not in text.decode()
    except UnicodeDecodeError:
        is_text = False
    values = dict.fromkeys(COLUMNS, b"a") | {column: text}
    insert = f"INSERT INTO event VALUES (1, {TIMES['sqlite']}, {', '.join(['CAST(? AS text)'] * 4)}, '{{}}', ?, ?)"  # noqa: S608 (constants)
    bare_log.execute("BEGIN")
    try:
        bare_log.execute(insert, (*values.values(), "0" * 64, "a" * 64))
        is_accepted = True
    except sqlite3.IntegrityError:
        is_accepted = False
    finally:
        bare_log.execute("ROLLBACK")
    assert is_accepted is is_text


@pytest.fixture(scope="module")
def bare_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = tmp_path_factory.mktemp("log") / "catalog.db"
    schema.upgrade(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection
