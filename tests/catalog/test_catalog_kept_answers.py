"""Safe retries: every call that writes takes effect once per idempotency key, whatever fails and whoever repeats it."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest
import sqlalchemy as sa
from support.catalog_backups import fill
from support.catalog_samples import execute, publish, sample
from support.killed_answers import set_alias
from support.service_calls import KEYS, authenticated
from support.services import ServedCatalog, TestServer, cutting_proxy

from registry.catalog import Holder, Proposal, Reservation, backend, kept_answers
from registry.catalog.session import reading, write
from registry.catalog.sql_catalog import SqlCatalog, open_sql_catalog
from registry.catalog.tables import metadata
from registry.catalog.values import DataDirectory
from registry.errors import (
    CatalogUnavailableError,
    DatasetNotFoundError,
    KeyReusedError,
    KeyRunningError,
    UsageError,
    VersionExistsError,
)
from registry.model import (
    Attachment,
    Description,
    FeatureFingerprint,
    Producer,
    Reference,
    Role,
    SplitFingerprint,
    Version,
)

AT = Reference.parse
DIGEST = "0" * 64


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[SqlCatalog]:
    with open_sql_catalog(catalog_url) as opened:
        yield opened


@pytest.fixture(autouse=True)
def webhook_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Webhooks are created only where their messages can be signed."""
    monkeypatch.setenv("REGISTRY_SERVE_WEBHOOK_KEY", KEYS[0])


def count(catalog: SqlCatalog, table: str) -> int:
    with reading(catalog._engine) as connection:
        number: int = connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one()  # noqa: S608 (names of ours)
    return number


# Every call that writes, on a catalog of ``fill``

HOLDER = Holder.of_this_process("ann")


def _publish(catalog: SqlCatalog) -> object:
    version, shards = sample("numbers:2.0.0", content="new")
    return catalog.publish(version, shards, promote=True, actor="ann")


def _reserve(catalog: SqlCatalog) -> Any:
    return catalog.reservations.reserve("s3://bucket/x", AT("later:1.0.0"), DIGEST, HOLDER)


def _held(catalog: SqlCatalog, dataset: str = "next") -> tuple[Reservation, Holder]:
    (held,) = (one for one in catalog.reservations.list() if one.dataset == dataset)
    return held, held.holders[0] if held.holders else HOLDER


def _fingerprints(catalog: SqlCatalog) -> object:
    leaf = FeatureFingerprint(digest="1" * 64, blocks=("2" * 64,))
    version = catalog.find("numbers:1.1.0")
    given = {
        split.name: SplitFingerprint(num_examples=split.num_examples, features={"label": leaf})
        for split in version.splits
    }
    return catalog.add_fingerprints(version, given, actor="ann")


def _proposal(catalog: SqlCatalog) -> Proposal:
    (proposal,) = catalog.lifecycle.proposals()
    return proposal


def _approve(catalog: SqlCatalog) -> object:
    with authenticated("ann"):
        return catalog.lifecycle.approve(_proposal(catalog), actor="ann")


CALLS: dict[str, Callable[[SqlCatalog], object]] = {
    "access.create_token": lambda it: it.access.create_token("1" * 12, "1" * 64, "ann", Role.READER, actor="ann"),
    "access.revoke_token": lambda it: it.access.revoke_token("2" * 12, actor="bob"),
    "access.note_refusal": lambda it: it.access.note_refusal(
        token=None, principal="", call="find", dataset="", reason="x"
    ),
    "add_fingerprints": _fingerprints,
    "add_producer": lambda it: it.add_producer(
        AT("numbers:1.1.0"), Producer(action="add", kind="csv", place="/x.csv"), "replace", actor="ann"
    ),
    "aliases.remove": lambda it: it.aliases.remove(AT("numbers@paper"), expect=None, message="", actor="ann"),
    "aliases.set": lambda it: it.aliases.set("new", AT("numbers:1.1.0"), expect="none", message="", actor="ann"),
    "attach": lambda it: it.attach(it.find("numbers:1.1.0"), Attachment.of("statistics", "x.json", b"[]"), actor="ann"),
    "configs.set_default": lambda it: it.configs.set_default("mnist", "plain", actor="ann"),
    "configs.set_protection": lambda it: it.configs.set_protection(AT("numbers"), protect=True, actor="ann"),
    "experiments.add": lambda it: it.experiments.add("slow", "Slow.", actor="ann"),
    "experiments.retire": lambda it: it.experiments.retire("ready", actor="ann"),
    "experiments.set_default": lambda it: it.experiments.set_default("other", True, actor="ann"),
    "lifecycle.approve": _approve,
    "lifecycle.deprecate": lambda it: it.lifecycle.deprecate(AT("numbers:1.1.0"), "old", actor="ann"),
    "lifecycle.describe": lambda it: it.lifecycle.describe(
        AT("numbers:1.1.0"), Description(description="Other."), actor="ann"
    ),
    "lifecycle.drop": lambda it: it.lifecycle.drop(AT("numbers:1.1.0"), "private", actor="ann"),
    "lifecycle.promote": lambda it: it.lifecycle.promote(AT("numbers:1.3.0"), actor="ann"),
    "lifecycle.reject": lambda it: it.lifecycle.reject(_proposal(it), "wrong", actor="ann"),
    "lifecycle.remove": lambda it: it.lifecycle.remove(
        AT("numbers:1.4.0"), grace=timedelta(days=3), force=True, actor="ann"
    ),
    "lifecycle.undo": lambda it: it.lifecycle.undo("yank", AT("numbers:1.2.0"), actor="ann"),
    "lifecycle.yank": lambda it: it.lifecycle.yank(AT("numbers:1.1.0"), "wrong", Version(1, 3, 0), actor="ann"),
    "locations.add": lambda it: it.locations.add(AT("numbers:1.1.0"), "s3://mirror/numbers", actor="ann"),
    "locations.relocate": lambda it: it.locations.relocate(
        AT("proved:1.0.0"), "/archive/proved", "/third/proved", actor="ann"
    ),
    "locations.remove": lambda it: it.locations.remove(AT("pudding:1.0.0"), "s3://mirror/dessert", actor="ann"),
    "locations.set_data_dir": lambda it: it.locations.set_data_dir(
        DataDirectory(recorded="/data/here", place="/data/here"), actor="ann"
    ),
    "log.correct_clock": lambda it: it.log.correct_clock(first=2, last=3, ahead=timedelta(seconds=1), actor="ann"),
    "publish": _publish,
    "rename": lambda it: it.rename("numbers", "digits", actor="ann"),
    "reservations.begin_cleaning": lambda it: it.reservations.begin_cleaning(*_held(it)),
    "reservations.end_cleaning": lambda it: it.reservations.end_cleaning(*_held(it, "cleaned")),
    "reservations.leave": lambda it: it.reservations.leave(*_held(it), forget=True),
    "reservations.note_found": lambda it: it.reservations.note_found(*_held(it), ["c"], anew=True),
    "reservations.release": lambda it: it.reservations.release("next", "1.0.0", force=True),
    "reservations.reserve": _reserve,
    "reservations.take_over": lambda it: it.reservations.take_over(*_held(it, "left"), older_than=timedelta(0)),
    "webhooks.create": lambda it: it.webhooks.create("3" * 12, "https://ci.example/new", actor="ann"),
    "webhooks.remove": lambda it: it.webhooks.remove("2" * 12, actor="ann"),
    "webhooks.resume": lambda it: it.webhooks.resume("2" * 12, after=1, actor="ann"),
}


def prepare(catalog: SqlCatalog) -> None:
    fill(catalog)
    catalog.access.create_token("2" * 12, "2" * 64, "bob", Role.READER, actor="ann")
    catalog.experiments.add("other", "Other.", actor="ann")
    catalog.experiments.add("ready", "Ready.", default=True, actor="ann")
    publish(catalog, "duo:1.0.0")
    publish(catalog, "duo:2.0.0", promote=False)
    catalog.configs.set_protection(AT("duo"), protect=True, two_persons=True, actor="ann")
    with authenticated("eve"):
        catalog.lifecycle.promote(AT("duo:2.0.0"), actor="eve")
    catalog.webhooks.keys = KEYS
    catalog.webhooks.create("2" * 12, "https://ci.example/hook", actor="ann")
    for name in ("left", "cleaned"):
        catalog.reservations.reserve(f"s3://bucket/{name}", AT(f"{name}:1.0.0"), DIGEST, HOLDER)
    catalog.reservations.release("left", "1.0.0", force=True)
    catalog.reservations.begin_cleaning(*_held(catalog, "cleaned"))


def scrubbed(value: object) -> str:
    """``value`` as text, without what differs between two runs: times, random tokens, and hashes of events."""
    text = re.sub(r"datetime\.datetime\([^)]*\)|[0-9-]{10}T[0-9:+.]+", "<time>", repr(value))
    return re.sub(r"[0-9a-f]{32}(\.[0-9a-f]{12,})?", "<random>", text)


def rows_of(catalog: SqlCatalog) -> dict[str, list[str]]:
    """Every row of the catalog but those of kept answers."""
    with reading(catalog._engine) as connection:
        return {
            table.name: [scrubbed(tuple(row)) for row in connection.execute(sa.select(table).order_by(*table.columns))]
            for table in metadata.sorted_tables
            if table.name not in ("kept_answer", "event", "search_document")
        } | {"event": [row.action for row in connection.execute(sa.text("SELECT action FROM event ORDER BY id"))]}


def test_every_call_that_writes_is_tried() -> None:
    """Those that write have an actor, except some about reservations and access."""
    reads = {"list", "require", "tokens", "refusals", "authenticate"}
    kinds = {name: kind for name, kind in vars(backend).items() if name.endswith("Calls")}
    kinds["CatalogBackend"] = backend.CatalogBackend
    names = {
        "AccessCalls": "access.",
        "AliasCalls": "aliases.",
        "ConfigCalls": "configs.",
        "ExperimentCalls": "experiments.",
        "LifecycleCalls": "lifecycle.",
        "LocationCalls": "locations.",
        "LogCalls": "log.",
        "ReservationCalls": "reservations.",
        "ShardCalls": "shards.",
        "WebhookCalls": "webhooks.",
        "CatalogBackend": "",
    }
    assert kinds.keys() == names.keys()
    written = {
        names[kind] + name
        for kind, calls in kinds.items()
        for name, function in vars(calls).items()
        if callable(function)
        and not name.startswith("_")
        and name not in reads
        and (
            {"actor", "options"} & set(function.__code__.co_varnames[: function.__code__.co_argcount + 9])
            or kind in ("AccessCalls", "ReservationCalls")
        )
    }
    assert written == CALLS.keys()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], str]:
    """The URL of a new catalog with the rows of ``prepare``, as often as it is called."""
    folder, number = tmp_path_factory.mktemp("prepared"), iter(range(1000))
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
        first = server.create_database(template="catalog_template")
        with open_sql_catalog(first) as catalog:
            prepare(catalog)
        return lambda: server.create_database(template=sa.make_url(first).database)
    shutil.copy(request.getfixturevalue("sqlite_template"), folder / "first.db")
    with open_sql_catalog(folder / "first.db") as catalog:
        prepare(catalog)
    return lambda: str(shutil.copy(folder / "first.db", folder / f"{next(number)}.db"))


@pytest.mark.parametrize("name", CALLS)
def test_every_call_has_the_same_result_and_one_effect(prepared: Callable[[], str], name: str) -> None:
    call = CALLS[name]
    with open_sql_catalog(prepared()) as catalog:
        expected = scrubbed(call(catalog))
        rows = rows_of(catalog)

    with open_sql_catalog(prepared()) as catalog:
        before = rows_of(catalog)

        def make() -> bytes:
            return scrubbed(call(catalog)).encode()

        first = catalog.answer_once("key", "ann", name, DIGEST, make)
        assert first == (expected.encode(), 200, False)
        assert rows_of(catalog) == rows
        assert rows != before
        assert catalog.answer_once("key", "ann", name, DIGEST, make) == (expected.encode(), 200, True)
        assert rows_of(catalog) == rows
        assert catalog.log.verify().is_sound


@pytest.mark.parametrize("name", [name for name in CALLS if name != "access.note_refusal"])
def test_an_answer_that_is_lost_after_the_commit_is_given_again(
    prepared: Callable[[], str], server: TestServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy loses the first answer to the call, which has taken effect: the client gets it by its second request."""
    monkeypatch.setattr("registry.storage.network._pause", lambda _seconds: None)
    with open_sql_catalog(prepared()) as catalog:
        expected, rows = scrubbed(CALLS[name](catalog)), rows_of(catalog)

    with open_sql_catalog(prepared()) as catalog, cutting_proxy(server.url) as proxy:
        server.service.catalog = catalog
        proxy.lose_first_answers()
        client: Any = ServedCatalog(catalog, proxy.url)
        with client:
            assert scrubbed(CALLS[name](client)) == expected
        writes = [seen for seen in proxy.seen if seen[1] is not None]
        assert len(writes) == 2
        assert writes[0] == writes[1]
        others = set(rows) - {"access_token"}
        assert {table: rows_of(catalog)[table] for table in others} == {table: rows[table] for table in others}
        assert catalog.log.verify().is_sound


# One transaction


@pytest.mark.parametrize("place", ["call", "effect", "commit", "answer"])
def test_a_process_that_is_killed_leaves_the_effect_and_the_answer_or_neither(
    catalog: SqlCatalog, catalog_url: str, start_script: Callable[..., Any], place: str
) -> None:
    publish(catalog, "mnist:1.0.0")
    process = start_script("killed_answers.py", catalog_url, "key", place)
    assert process.wait(60) == 9
    is_committed = place == "answer"
    assert len(catalog.aliases.list()) == count(catalog, "kept_answer") == int(is_committed)

    deadline = time.monotonic() + 60
    while True:  # the server may take a moment to notice that the other client has gone
        try:
            answer = catalog.answer_once("key", "ann", "aliases.set", DIGEST, lambda: set_alias(catalog))
            break
        except KeyRunningError:
            assert time.monotonic() < deadline
    assert answer == (b"None -> 1.0.0", 200, is_committed)
    assert count(catalog, "alias_event") == count(catalog, "kept_answer") == 1


def test_threads_with_one_key_have_one_effect(catalog: SqlCatalog) -> None:
    publish(catalog, "mnist:1.0.0")
    barrier, refused = Barrier(8, timeout=60), list[KeyRunningError]()

    def run(_: int) -> tuple[bytes, int, bool]:
        barrier.wait()
        while True:
            try:
                return catalog.answer_once("key", "ann", "aliases.set", DIGEST, lambda: set_alias(catalog))
            except KeyRunningError as error:
                refused.append(error)
                time.sleep(0.01)

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(run, range(8)))
    assert {error.details["retry_after"] for error in refused} <= {1}
    assert {answer for answer, _, _ in answers} == {b"None -> 1.0.0"}
    assert sorted(is_kept for _, _, is_kept in answers) == [False] + [True] * 7
    assert count(catalog, "alias_event") == 1


def test_processes_with_one_key_have_one_effect(
    catalog: SqlCatalog, catalog_url: str, start_script: Callable[..., Any]
) -> None:
    publish(catalog, "mnist:1.0.0")
    started = [start_script("killed_answers.py", catalog_url, "key", "never") for _ in range(4)]
    lines = sorted(process.communicate(timeout=60)[0].strip() for process in started)
    assert lines == ["b'None -> 1.0.0' 200 False"] + ["b'None -> 1.0.0' 200 True"] * 3
    assert count(catalog, "alias_event") == 1


def test_a_call_that_runs_is_not_waited_for(catalog: SqlCatalog, catalog_url: str) -> None:
    publish(catalog, "mnist:1.0.0")
    begun, go_on = Event(), Event()

    def make() -> bytes:
        begun.set()
        assert go_on.wait(60)
        return set_alias(catalog)

    with ThreadPoolExecutor(1) as thread, open_sql_catalog(catalog_url) as other:
        running = thread.submit(catalog.answer_once, "key", "ann", "aliases.set", DIGEST, make)
        assert begun.wait(60)
        try:
            for client in (catalog, other):
                with pytest.raises(CatalogUnavailableError, match=r"^the call with this idempotency key is still"):
                    client.answer_once("key", "ann", "aliases.set", DIGEST, lambda: pytest.fail("it runs twice"))
            assert other.aliases.list() == ()  # a thread without the key reads what is committed
        finally:
            go_on.set()
        assert running.result(60)[2] is False
    assert catalog.answer_once("key", "ann", "aliases.set", DIGEST, lambda: b"")[2] is True


def test_a_call_that_fails_changes_nothing_and_its_answer_may_be_kept(catalog: SqlCatalog) -> None:
    publish(catalog, "mnist:1.0.0")

    def fail() -> bytes:
        set_alias(catalog)
        version, shards = sample("mnist:1.0.0", content="other")
        catalog.publish(version, shards, promote=True, actor="ann")
        return b""

    with pytest.raises(VersionExistsError):
        catalog.answer_once("key", "ann", "publish", DIGEST, fail)
    assert catalog.aliases.list() == ()
    assert count(catalog, "kept_answer") == 0

    catalog.keep_answer("key", "ann", "publish", DIGEST, 409, b"exists")
    catalog.keep_answer("key", "ann", "publish", DIGEST, 404, b"other")
    assert catalog.answer_once("key", "ann", "publish", DIGEST, fail) == (b"exists", 409, True)


def test_a_failure_that_is_kept_while_the_call_runs_again_wins(catalog: SqlCatalog, catalog_url: str) -> None:
    """Only on PostgreSQL: on SQLite, the second one waits for the first."""
    publish(catalog, "mnist:1.0.0")
    if catalog.file is not None:
        return

    def make() -> bytes:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(catalog.keep_answer, "key", "ann", "aliases.set", DIGEST, 404, b"missing").result(60)
        return set_alias(catalog)

    assert catalog.answer_once("key", "ann", "aliases.set", DIGEST, make) == (b"missing", 404, True)
    assert catalog.aliases.list() == ()


def test_a_part_that_fails_and_is_caught_undoes_only_itself(catalog: SqlCatalog) -> None:
    """As a call does that loses a race for a unique row, and then looks who has it."""
    publish(catalog, "mnist:1.0.0")

    def make() -> bytes:
        set_alias(catalog)
        for _ in range(2):
            with pytest.raises(sa.exc.IntegrityError):
                write(
                    catalog._engine,
                    lambda connection: connection.execute(
                        sa.text("INSERT INTO protection VALUES ('', '2020-01-01 00:00:00.000000', 'x', false)"),
                        [{}, {}],
                    ),
                )
        with pytest.raises(DatasetNotFoundError):
            catalog.aliases.set("x", AT("mnits:1.0.0"), expect=None, message="", actor="ann")
        return str(len(catalog.aliases.list())).encode()

    assert catalog.answer_once("key", "ann", "aliases.set", DIGEST, make) == (b"1", 200, False)
    assert [one.alias for one in catalog.aliases.list()] == ["paper"]
    assert count(catalog, "protection") == 0
    assert catalog.log.verify().is_sound


@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
def test_after_a_deadlock_everything_runs_again(catalog: SqlCatalog) -> None:
    publish(catalog, "mnist:1.0.0")
    runs = []

    def make() -> bytes:
        runs.append(1)
        answer = set_alias(catalog)
        if len(runs) == 1:
            raise_ = "DO $$ BEGIN RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'; END $$"
            write(catalog._engine, lambda connection: connection.exec_driver_sql(raise_))
        return answer

    assert catalog.answer_once("key", "ann", "aliases.set", DIGEST, make) == (b"None -> 1.0.0", 200, False)
    assert len(runs) == 2
    assert count(catalog, "alias_event") == 1


def test_another_catalog_and_other_threads_do_not_join(
    catalog: SqlCatalog, sqlite_template: Path, tmp_path: Path
) -> None:
    publish(catalog, "mnist:1.0.0")
    (tmp_path / "other.db").write_bytes(sqlite_template.read_bytes())
    with open_sql_catalog(tmp_path / "other.db") as other:

        def make() -> bytes:
            publish(other, "mnist:1.0.0")
            set_alias(catalog)
            with ThreadPoolExecutor(1) as thread:
                assert thread.submit(catalog.aliases.list).result(60) == ()
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            catalog.answer_once("key", "ann", "aliases.set", DIGEST, make)
        assert other.find("mnist").num_examples == 9
    assert catalog.aliases.list() == ()
    set_alias(catalog)  # afterwards, calls have their own transactions again
    assert len(catalog.aliases.list()) == 1


# Keys


def test_a_key_belongs_to_one_call(catalog: SqlCatalog) -> None:
    catalog.answer_once("key", "ann", "aliases.set", DIGEST, lambda: b"first")
    for principal, call, digest in (
        ("bob", "aliases.set", DIGEST),
        ("ann", "publish", DIGEST),
        ("ann", "aliases.set", "1" * 64),
    ):
        with pytest.raises(KeyReusedError) as refused:
            catalog.answer_once("key", principal, call, digest, lambda: pytest.fail("it runs"))
        assert refused.value.message == "the idempotency key was used for another call"
        assert refused.value.details == {"call": "aliases.set" if principal == "ann" else None}
    assert catalog.answer_once("key", "ann", "aliases.set", DIGEST, lambda: b"") == (b"first", 200, True)


@pytest.mark.parametrize("key", ["", "a" * 201, "a\n", "é", "a\0"])
def test_a_key_is_short_and_printable(catalog: SqlCatalog, key: str) -> None:
    with pytest.raises(UsageError, match=r"^an idempotency key has 1 to 200 printable characters of ASCII"):
        catalog.answer_once(key, "ann", "find", DIGEST, lambda: b"")
    with pytest.raises(UsageError):
        catalog.keep_answer(key, "ann", "find", DIGEST, 404, b"")


def test_answers_are_bytes_of_any_kind(catalog: SqlCatalog) -> None:
    content = bytes(range(256)) * 1000
    catalog.answer_once("k" * 200, "ann", "find", DIGEST, lambda: content)
    assert catalog.answer_once("k" * 200, "ann", "find", DIGEST, lambda: b"") == (content, 200, True)


def test_answers_are_removed_after_a_day(
    catalog: SqlCatalog, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_answers, "_MAX_REMOVED", 3)
    for number in range(5):
        catalog.answer_once(f"old {number}", "ann", "find", DIGEST, lambda: b"x")
    execute(catalog_url, "UPDATE kept_answer SET kept_at = '2020-01-01 00:00:00.000000'")
    catalog.answer_once("new", "ann", "find", DIGEST, lambda: b"x")
    assert count(catalog, "kept_answer") == 3
    catalog.keep_answer("newer", "ann", "find", DIGEST, 404, b"x")
    assert count(catalog, "kept_answer") == 2
    catalog.answer_once("newest", "ann", "find", DIGEST, lambda: b"x")
    assert count(catalog, "kept_answer") == 3
