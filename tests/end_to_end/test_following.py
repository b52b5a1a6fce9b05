"""``registry log --follow``, on a database and over a service that is started again meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from support import warm_python
from support.browse_process import Serve
from support.warm_python import PROGRAM

import registry

SECONDS = 60


class Follower:
    """A running ``registry log --follow --format json``."""

    def __init__(self, *options: str, **environment: str) -> None:
        self._process = warm_python.Popen(
            [PROGRAM, "log", "--follow", "--format", "json", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def next(self) -> dict[str, Any]:
        """The next event that it prints."""
        event: dict[str, Any] = json.loads(self._process.stdout.readline())
        return event

    def interrupt(self) -> tuple[int, str]:
        """Exit code and stderr after Ctrl-C."""
        self._process.send_signal(signal.SIGINT)
        _, printed = self._process.communicate(timeout=SECONDS)
        return self._process.returncode, printed

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def test_new_events_are_printed_until_ctrl_c(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.add({"number": range(3)}, name="numbers")
        with Follower("--limit", "1", "--catalog", str(tmp_path / "catalog.db")) as follower:
            assert (follower.next()["action"], catalog.backend.events().after) == ("publish", 2)
            catalog.lifecycle.deprecate("numbers:1.0.0", reason="old")
            assert follower.next()["action"] == "deprecate"
            assert follower.interrupt() == (0, "")
        options = ("--after", "1", "--action", "publish", "--catalog", str(tmp_path / "catalog.db"))
        with Follower(*options) as follower:
            assert follower.next()["id"] == 2


def test_a_follower_goes_on_when_the_service_is_started_again(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.add({"number": range(3)}, name="numbers")
        with Serve(tmp_path / "catalog.db", "--init") as server:
            options = ("--after", "1", "--catalog", server.url)
            with Follower(*options, REGISTRY_TOKEN=server.token) as follower:
                assert follower.next()["id"] == 2
                code, log = server.end(signal.SIGTERM)  # it does not wait for the follower, who waits for an event
                assert code == 0
                waited = [json.loads(line) for line in log.splitlines() if '"events"' in line]
                assert {line["status"] for line in waited} == {200}
                catalog.lifecycle.deprecate("numbers:1.0.0", reason="old")
                with Serve(tmp_path / "catalog.db", "--port", str(server.place[1])):
                    assert follower.next()["action"] == "deprecate"
                    catalog.lifecycle.undo("deprecate", "numbers:1.0.0")
                    assert follower.next()["id"] == 4
                    assert follower.interrupt()[0] == 0
