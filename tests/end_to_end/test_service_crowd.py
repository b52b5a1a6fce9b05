"""Sixteen clients of one service while its workers are killed and its PostgreSQL is restarted: nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from support.browse_process import Serve
from support.catalog_samples import publish
from support.catalog_server import PostgresServer
from support.services import make_token

from registry.catalog import EventFilter, open_catalog, schema, stream_events
from registry.catalog.service import ServiceCatalog
from registry.model import Reference

NUM_CLIENTS = 16
NUM_MOVES = 40
VERSIONS = ("1.0.0", "2.0.0")


@pytest.fixture
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A PostgreSQL that keeps what is committed when it dies."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="pg-") as folder:  # the path of its socket must be short
        started = PostgresServer(Path(folder))
        started.start(fsync=True)
        yield started
        with suppress(RuntimeError):
            started.stop()


def move_alias(url: str, token: str, number: int) -> list[str]:
    """Move an alias back and forth, each time only from where the last move has put it; returns the versions."""
    moves: list[str] = []
    with ServiceCatalog(url, token=lambda _: token) as client:
        for step in range(NUM_MOVES):
            expected = client.find(f"mnist@client{number}").version if moves else "none"
            target = VERSIONS[step % 2]
            client.aliases.set(
                f"client{number}", Reference.parse(f"mnist:{target}"), expect=expected, message=str(step), actor="x"
            )
            moves.append(target)
    return moves


@pytest.mark.long
def test_nothing_is_lost_or_done_twice(database: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_TRIES", "1000")
    monkeypatch.setenv("REGISTRY_RETRY_TIMEOUT", "300")
    url = database.create_database()
    schema.upgrade(url)
    with open_catalog(url) as catalog:
        for number in VERSIONS:
            publish(catalog, f"mnist:{number}")
        token = make_token(catalog, "crowd")
        before = sum(1 for _ in stream_events(catalog.log, EventFilter()))
    chance = random.Random(16)
    ended = threading.Event()

    with Serve(url, "--workers", "4", REGISTRY_SERVE_REQUESTS_PER_MINUTE="0") as server:

        def kill_workers() -> None:
            while not ended.wait(6):  # a worker needs some seconds to start
                if workers := server.workers():
                    with suppress(ProcessLookupError):
                        os.kill(chance.choice(workers), signal.SIGKILL)

        def restart_database() -> None:
            time.sleep(8)
            database.stop()
            time.sleep(1)
            database.resume()

        with ThreadPoolExecutor(NUM_CLIENTS + 2) as threads:
            killing, restarting = threads.submit(kill_workers), threads.submit(restart_database)
            clients = [threads.submit(move_alias, server.url, token, number) for number in range(NUM_CLIENTS)]
            try:
                moved = [client.result(240) for client in clients]
            finally:
                ended.set()
            killing.result()
            restarting.result()

    with open_catalog(url) as catalog:
        for number, moves in enumerate(moved):
            history = catalog.aliases.history(Reference.parse(f"mnist@client{number}"))
            assert [(str(move.after), move.message) for move in history] == [
                (target, str(step)) for step, target in enumerate(moves)
            ]
        assert sum(1 for _ in stream_events(catalog.log, EventFilter())) == before + NUM_CLIENTS * NUM_MOVES
        assert catalog.log.verify().is_sound
