"""Versions that are published, found, read and withdrawn; writes that are repeated; the log that records them."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from registry.conformance.conftest import NUM_EXAMPLES, Run
from registry.conformance.peer import Answer, fail
from registry.errors import VersionNotFoundError, YankedVersionWarning

Set = Callable[..., Answer]


def test_a_version_is_found_resolved_read_and_verified(run: Run) -> None:
    with run.connect("reader of open") as catalog:
        dataset = catalog.dataset(f"{run.prefix}open:1.0.0")
        if dataset.resolve("train[:25%]").num_examples != NUM_EXAMPLES // 4:
            fail("train[:25%] must be a quarter of the records")
        if sorted(row["number"] for row in dataset.read("train")) != list(range(NUM_EXAMPLES)):
            fail("the published records must be readable")
        if faults := dataset.verify(deep=True).faults:
            fail(f"the files of the version must be intact: {faults}")


def test_an_alias_moves_and_its_history_stays(run: Run) -> None:
    name = f"{run.prefix}open"
    with run.connect() as catalog:
        catalog.aliases.set("production", f"{name}:1.0.0", reason="tested")
        if str(catalog.dataset(f"{name}@production").reference) != f"{name}:1.0.0":
            fail("an alias must resolve to its version")
        catalog.aliases.remove(f"{name}@production")
        if len(catalog.aliases.history(f"{name}@production")) != 2:
            fail("the history of an alias must contain each change")


def test_a_withdrawn_version_is_found_by_its_number_only(run: Run) -> None:
    reference = run.publish("open_withdrawn", 9)
    with run.connect("admin") as catalog:
        catalog.lifecycle.yank(reference, reason="wrong")
        with pytest.warns(YankedVersionWarning):
            state = catalog.dataset(reference).facts.state
        if state != "yanked":
            fail(f"a version that was yanked has to be found by its number as yanked, not {state}")
        with pytest.raises(VersionNotFoundError):
            catalog.dataset(reference.partition(":")[0])
        catalog.lifecycle.drop(reference, reason="wrong")
        with pytest.raises(VersionNotFoundError):
            catalog.dataset(reference)


def test_the_log_goes_on_and_its_chain_is_sound(run: Run) -> None:
    newest = {"event_filter": {}, "newest": 1}
    before = run.peer.call("log.page", newest, run.tokens["reader"]).expect(200).json[-1]
    run.publish("open_logged", 5)
    values = {"event_filter": {}, "after": before["id"] - 1}
    page = run.peer.call("log.page", values, run.tokens["reader"]).expect(200)
    first, last = page.json[0], page.json[-1]
    page.require((first["id"], first["hash"]) == (before["id"], before["hash"]), "expected the event as it was before")
    page.require(last["id"] > before["id"], "expected the event of the publication")
    check = run.peer.call("log.verify", {}, run.tokens["admin"]).expect(200)
    run.peer.keeps(check, "log.verify")
    with run.client("admin") as client:
        check.require(client.log.verify().is_sound, "expected a log whose chain of digests is unbroken")


def events(run: Run, alias: str) -> int:
    """How many changes of an alias the log has."""
    reference = f"{run.prefix}open@{alias}"
    answer = run.peer.call("aliases.history", {"reference": reference}, run.tokens["reader"])
    return 0 if answer.status == 404 else len(answer.expect(200).json)


@pytest.fixture
def send(run: Run) -> Set:
    """Sets an alias of ``open``, with an idempotency key."""

    def request(alias: str, key: str, **values: Any) -> Answer:
        arguments = {"name": alias, "reference": f"{run.prefix}open:1.0.0", "expect": None, "message": ""}
        return run.peer.call("aliases.set", arguments | values, run.tokens["publisher"], Idempotency_Key=key)

    return request


_KEYS = "Idempotency-Key; a proxy in front must pass it on"


def test_a_write_that_is_repeated_has_its_first_answer(run: Run, send: Set) -> None:
    key = secrets.token_hex(16)
    first, second = send("repeated", key).expect(200), send("repeated", key).expect(200, source=_KEYS)
    second.require(second.body == first.body, "expected the first answer again", _KEYS)
    second.header("Idempotency-Replayed", "true", _KEYS)
    second.require(events(run, "repeated") == 1, "expected one effect", _KEYS)


def test_a_refusal_that_is_repeated_is_the_same(run: Run, send: Set) -> None:
    key = secrets.token_hex(16)
    first, second = (send("absent", key, reference=f"{run.prefix}open:9.9.9") for _ in range(2))
    texts = [answer.problem(404)["detail"] for answer in (first, second)]
    second.require(texts[0] == texts[1], "expected the first answer again", _KEYS)


def test_a_key_that_is_too_long_is_refused(send: Set) -> None:
    for values in ({}, {"dry_run": True}):
        send("long", "k" * 201, **values).problem(400)


def test_a_key_is_for_one_request(run: Run, send: Set) -> None:
    key = secrets.token_hex(16)
    send("once", key).expect(200)
    send("other", key).expect(409, why="the key was used for another request", source=_KEYS).problem(409)
    yanked = {"reference": f"{run.prefix}open:1.0.0", "reason": "x"}
    run.peer.call("lifecycle.yank", yanked, run.tokens["publisher"], Idempotency_Key=key).problem(409)


def test_of_writes_at_once_with_a_key_one_takes_effect(run: Run, send: Set) -> None:
    key = secrets.token_hex(16)
    with ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(lambda _: send("crowded", key), range(8))]
    for answer in answers:
        if answer.expect(200, 409, source=_KEYS).status == 409:
            answer.header("Retry-After")
    bodies = {answer.body for answer in answers if answer.status == 200}
    answers[0].require(len(bodies) == 1, "expected the same answer for each", _KEYS)
    answers[0].require(events(run, "crowded") == 1, "expected one effect", _KEYS)


def test_a_stream_is_complete(run: Run) -> None:
    answer = run.peer.call("snapshot", {}, run.tokens["admin"]).expect(200)
    content, place = answer.body, 0
    while length := int.from_bytes(content[place : place + 4], "big"):
        place += 4 + length
        answer.require(place < len(content), "expected pieces after their lengths, and the length 0 at the end")
    answer.require(content[place:] == bytes(4), "expected the length 0 at the end of a stream")
