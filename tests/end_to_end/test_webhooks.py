"""Webhooks of ``registry serve`` as processes: commands, workers that are killed, and two services of one catalog."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from support import warm_python
from support.browse_process import Serve
from support.receivers import Handler, receiver, wait_until
from support.warm_python import PROGRAM

import registry

KEY = "a key of sixteen characters"
SETTINGS = {"REGISTRY_SERVE_WEBHOOK_KEY": KEY, "REGISTRY_SERVE_WEBHOOK_HOSTS": "127.0.0.0/8"}
SECONDS = 60


def command(*arguments: str, **environment: str) -> tuple[int, Any]:
    """The exit code of a command, and what it prints as JSON."""
    ran = warm_python.run(
        [PROGRAM, "webhook", *arguments, "--format", "json"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    return ran.returncode, json.loads(ran.stdout)["data"] if ran.stdout else json.loads(ran.stderr)["error"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.add({"number": range(3)}, name="numbers")
    return tmp_path / "catalog.db"


def change(path: Path, number: int) -> None:
    """Append ``number`` events."""
    with registry.connect(path) as catalog:
        for each in range(number):
            catalog.aliases.set(f"alias_{each}", "numbers:1.0.0")


def test_an_admin_creates_tests_resumes_and_removes_a_webhook_over_http(path: Path) -> None:
    is_down = False
    with receiver(lambda *_: 500 if is_down else 204) as at, Serve(path, "--init", **SETTINGS) as server:
        login = {"REGISTRY_CATALOG": server.url, "REGISTRY_TOKEN": server.token}
        assert command("create", at.url, "--dry-run", **login)[1]["dry_run"] is True
        assert command("list", **login) == (0, [])
        code, created = command("create", at.url, "--action", "alias-set", "--after", "0", **login)
        assert (code, created["created_by"], created["secret"][:6]) == (0, "admin", "whsec_")
        at.secret = created["secret"]
        assert command("secret", created["id"], **login)[1]["secret"] == created["secret"]
        change(path, 3)
        at.wait_for(3, 4, 5)
        (listed,) = command("list", **login)[1]
        assert (listed["delivered_through"], listed["events_behind"], listed["failures"]) == (5, 0, 0)
        assert command("test", created["id"], **login)[0] == 0
        assert at.ids == [3, 4, 5, 5]
        is_down = True
        assert command("test", created["id"], **login)[0] == 1
        is_down = False
        assert command("resume", created["id"], **login)[0] == 0
        wait_until(lambda: at.ids == [3, 4, 5, 5, 5])
        assert command("remove", created["id"], **login)[0] == 0
        assert command("secret", created["id"], **login)[1]["code"] == "webhook_not_found"
        _, log = server.end()
        assert created["secret"] not in log


def test_a_service_without_a_key_has_no_webhooks(path: Path) -> None:
    with Serve(path, "--init") as server:
        login = {"REGISTRY_CATALOG": server.url, "REGISTRY_TOKEN": server.token}
        code, error = command("create", "https://ci.example/hook", **login)
        assert (code, error["message"]) == (
            2,
            "the messages of webhooks are signed, and this service has no key for that",
        )


def test_no_event_is_lost_when_workers_are_killed_after_they_have_sent_it(path: Path) -> None:
    victims: list[int] = []

    def kill_sender(_handler: Handler, number: int) -> int:
        if number in (1, 6):  # it has sent the message, and has not noted that
            for pid in server.workers():
                victims.append(pid)
                os.kill(pid, signal.SIGKILL)
        return 204

    with receiver() as at, Serve(path, "--init", **SETTINGS) as server:
        login = {"REGISTRY_CATALOG": server.url, "REGISTRY_TOKEN": server.token}
        at.secret = command("create", at.url, "--after", "0", **login)[1]["secret"]
        at.wait_for(1, 2)
        at.requests.clear()
        at.behaviour = kill_sender
        change(path, 20)
        with registry.connect(path) as catalog:
            # The leases of the dead end after a minute, here at once.
            wait_until(lambda: expire_leases(catalog) or set(range(1, 23)) <= set(at.ids), seconds=180)
    assert len(victims) >= 2
    assert first_times(at.ids) == [*range(1, 23)]  # in order, each at least once
    assert len(at.ids) > 22


def expire_leases(catalog: registry.Catalog) -> None:
    """Let a minute pass for the leases of workers that were killed."""
    import sqlite3

    with sqlite3.connect(catalog.backend.file or "") as connection:
        connection.execute("UPDATE webhook SET leased_until = '2020-01-01 00:00:00.000000' WHERE leased_by IS NOT NULL")
    connection.close()


def first_times(ids: list[int]) -> list[int]:
    """The ids without those that were there before."""
    return list(dict.fromkeys(ids))


def test_two_services_of_one_catalog_deliver_each_event_once(path: Path) -> None:
    with (
        receiver() as at,
        Serve(path, "--init", "--workers", "2", **SETTINGS) as first,
        Serve(path, "--workers", "2", **SETTINGS),
    ):
        login = {"REGISTRY_CATALOG": first.url, "REGISTRY_TOKEN": first.token}
        at.secret = command("create", at.url, **login)[1]["secret"]
        change(path, 30)
        at.wait_for(*range(3, 33))
        assert at.ids == [*range(3, 33)]


def test_a_second_key_signs_too_until_receivers_have_the_new_secret(path: Path) -> None:
    with receiver() as at:
        with Serve(path, "--init", **SETTINGS) as server:
            login = {"REGISTRY_CATALOG": server.url, "REGISTRY_TOKEN": server.token}
            created = command("create", at.url, **login)[1]
            server.end()
        both = {"REGISTRY_SERVE_WEBHOOK_KEY": f"another key of a service,{KEY}"}
        with Serve(path, **SETTINGS | both) as server:
            login["REGISTRY_CATALOG"] = server.url
            newer = command("secret", created["id"], **login)[1]["secret"]
            assert newer != created["secret"]
            for secret, event in ((created["secret"], 3), (newer, 4)):
                at.secret = secret
                change(path, 1) if event == 3 else change(path, 2)
                at.wait_for(event)
