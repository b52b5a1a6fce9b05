"""``GET events``: a service answers those who wait for an event, who hold up nobody meanwhile."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from support.service_calls import _exactly
from support.services import TestServer, make_token

from registry.catalog.sql_catalog import SqlCatalog
from registry.model import Role
from registry.server.config import ServiceConfig
from registry.server.following import EventWatch

SECONDS = 60


def get(server: TestServer, token: str, query: str) -> Any:
    """The answer to ``GET events``, or its status."""
    request = urllib.request.Request(  # noqa: S310 (the server of this test)
        f"{server.url}api/v1/events?{query}", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.fixture
def served(server: TestServer, shared: SqlCatalog) -> SqlCatalog:
    server.service.catalog = shared
    return shared


def test_events_are_those_of_the_log_with_the_id_to_continue_from(server: TestServer, served: SqlCatalog) -> None:
    token = make_token(served, "ann", Role.READER)
    newest = server.service.newest_event()
    page = get(server, token, "after=2&limit=3")
    assert [event["id"] for event in page["events"]] == [3, 4, 5]
    assert page["after"] == 5
    assert page["events"][0]["hash"] == served.events(after=2, limit=1).events[0].hash
    assert get(server, token, f"after={newest}") == {"events": [], "after": newest}
    published = get(server, token, 'dataset=lab_digits&actions=["yank"]')["events"]
    assert [(event["action"], event["dataset"]) for event in published] == [("yank", "lab_digits/plain")]
    for wrong in (f"after={newest + 1}", "limit=0", "wait=31", "wait=-1", 'wait="1"', "wait=true", "after=x", "no=1"):
        assert get(server, token, wrong) == 400, wrong
    assert get(server, "shb_wrong", "after=0") == 401


def test_a_restricted_token_gets_its_datasets_and_passes_over_others(server: TestServer, served: SqlCatalog) -> None:
    token = make_token(served, "ann", Role.READER, "lab_*")
    after, seen, calls = 0, [], 0
    while True:
        page = get(server, token, f"after={after}&limit=4")
        if page["after"] == after:
            break
        after, calls = page["after"], calls + 1
        seen += page["events"]
    assert after == server.service.newest_event()
    assert {event["dataset"].partition("/")[0] for event in seen} == {"lab_digits", ""}
    assert len(seen) < after
    # An event of others does not end the wait.
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(get, server, token, f"after={after}&wait=20")
        served.lifecycle.promote(_exactly("secret_digits", "1.0.0"), actor="eve")
        time.sleep(0.7)
        assert not waiting.done()
        served.lifecycle.promote(_exactly("lab_digits", "1.0.0"), actor="eve")
        page = waiting.result(SECONDS)
    assert [event["dataset"] for event in page["events"]] == ["lab_digits/plain"]


def test_those_who_wait_take_no_thread_no_connection_and_no_place(shared: SqlCatalog) -> None:
    config = ServiceConfig(requests_per_minute=0, failed_logins_per_minute=0, in_flight=46)
    server = TestServer(config)
    try:
        server.service.catalog = shared
        tokens = [make_token(shared, name, Role.READER) for name in ("ann", "bob")]
        newest, before, queries = server.service.newest_event(), threading.active_count(), []
        with ThreadPoolExecutor(90) as pool:
            waiting = []
            for place, token in enumerate(
                tokens, 1
            ):  # 90 are more than requests in flight, and than threads of the server
                waiting += [pool.submit(get, server, token, f"after={newest}&wait=30") for _ in range(45)]
                wait_until(lambda place=place: num_waiting() == 45 * place)  # type: ignore[misc]  # it is called at once
            assert threading.active_count() <= before + 90 + 41
            sa.event.listen(shared._engine, "before_cursor_execute", lambda *_: queries.append(1))
            begin = time.monotonic()
            wait_until(lambda: len(queries) > 0)
            assert len(queries) < 20 * (time.monotonic() - begin + 1)  # of one reader; each of 90 would need more
            assert get(server, tokens[0], "after=0&limit=1")["after"] == 1
            shared.lifecycle.promote(_exactly("lab_digits", "1.0.0"), actor="eve")
            assert {len(each.result(SECONDS)["events"]) for each in waiting} == {1}
    finally:
        server.stop()


def num_waiting() -> int:
    """How many requests wait in this process."""
    return max((watch._waiting for watch in gc.get_objects() if isinstance(watch, EventWatch)), default=0)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_too_many_who_wait_are_sent_away(shared: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("registry.server.gate._MOST_WAITING", 10)
    server = TestServer()
    try:
        server.service.catalog = shared
        tokens = [make_token(shared, name, Role.READER) for name in ("ann", "bob")]
        newest = server.service.newest_event()
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(get, server, tokens[0], f"after={newest}&wait=2") for _ in range(3)]
            assert get(server, tokens[1], f"after={newest}&wait=0.1") == {"events": [], "after": newest}
            answers = [each.result(SECONDS) for each in waiting]
        assert sorted(answers, key=str) == [503, *[{"events": [], "after": newest}] * 2]
        assert get(server, tokens[0], f"after={newest}&wait=0.1") == {"events": [], "after": newest}
    finally:
        server.stop()


def test_a_watch_reads_only_while_somebody_waits_and_ends_when_the_service_does() -> None:
    async def run() -> None:
        reads, newest = 0, 5

        async def read() -> int:
            nonlocal reads
            reads += 1
            return newest

        watch = EventWatch(read)
        assert await watch.wait(4, SECONDS)
        assert await watch.wait(5, 0.01)
        assert reads == 1
        waiting = [asyncio.create_task(watch.wait(5, SECONDS)) for _ in range(100)]
        await asyncio.sleep(0.6)
        assert reads <= 3
        newest = 6
        await asyncio.gather(*waiting)
        waiting = [asyncio.create_task(watch.wait(6, SECONDS)) for _ in range(3)]
        await asyncio.sleep(0)
        watch.stop()
        assert await asyncio.gather(*waiting) == [False] * 3

    asyncio.run(asyncio.wait_for(run(), SECONDS))
