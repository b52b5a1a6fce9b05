from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support.catalog_samples import execute, publish, sample
from support.levels import either

from registry.catalog import CatalogBackend, schema
from registry.catalog.revision import REVISIONS
from registry.model import Version

Start = Callable[..., "subprocess.Popen[str]"]

RACES = either((3, 8), (4, 16))
"""Number of publishers, and of rounds in which all of them publish at once."""


def ask(process: subprocess.Popen[str], line: str) -> None:
    process.stdin.write(line + "\n")
    process.stdin.flush()


def answer(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline().strip()


@pytest.mark.parametrize(("num_publishers", "num_rounds"), RACES)
@pytest.mark.parametrize(("same", "others"), [(True, "already"), (False, "version_exists")])
def test_of_racing_publishers_exactly_one_wins_each_number(
    catalog: CatalogBackend,
    catalog_url: str,
    start_publisher: Start,
    same: bool,
    others: str,
    num_publishers: int,
    num_rounds: int,
) -> None:
    publishers = [
        start_publisher("race", catalog_url, "one" if same else f"content {number}") for number in range(num_publishers)
    ]
    assert [answer(process) for process in publishers] == ["ready"] * num_publishers

    for round_ in range(num_rounds):
        for process in publishers:  # all of them run at once until each has answered
            ask(process, f"mnist:1.0.{round_}")
        outcomes = Counter(answer(process) for process in publishers)
        assert outcomes == {"published": 1, others: num_publishers - 1}

    assert len(catalog.versions("mnist")) == num_rounds
    assert execute(catalog_url, "SELECT count(*), max(id) FROM event") == [(num_rounds, num_rounds)]
    assert execute(catalog_url, "SELECT count(*) FROM shard") == [(4 * num_rounds,)]
    assert schema.check(catalog_url) == []


@pytest.mark.parametrize(("num_publishers", "num_rounds"), RACES)
def test_publishers_of_different_data_all_succeed(
    catalog: CatalogBackend, catalog_url: str, start_publisher: Start, num_publishers: int, num_rounds: int
) -> None:
    publishers = [start_publisher("race", catalog_url, "any") for _ in range(num_publishers)]
    assert [answer(process) for process in publishers] == ["ready"] * num_publishers

    for round_ in range(num_rounds):
        for number, process in enumerate(publishers):
            ask(process, f"data_{number}:1.0.{round_}")
    outcomes = [answer(process) for process in publishers for _ in range(num_rounds)]

    assert outcomes == ["published"] * (num_publishers * num_rounds)
    assert execute(catalog_url, "SELECT count(*), max(id) FROM event") == [(num_publishers * num_rounds,) * 2]


def test_a_publisher_killed_inside_its_transaction_leaves_nothing(
    catalog: CatalogBackend, catalog_url: str, start_publisher: Start
) -> None:
    publish(catalog, "mnist:1.0.0")
    doomed = start_publisher("hang", catalog_url, "mnist:2.0.0")
    assert answer(doomed) == "before commit"
    assert [one.version for one in catalog.versions("mnist")] == [Version(1, 0, 0)]

    doomed.kill()
    doomed.wait()

    assert catalog.find("mnist:*").version == Version(1, 0, 0)
    assert catalog.published_digest("mnist", None, Version(2, 0, 0)) is None
    version, shards = sample("mnist:2.0.0")
    assert catalog.publish(version, shards, promote=True, actor="ann")
    assert execute(catalog_url, "SELECT count(*) FROM shard") == [(8,)]
    assert schema.check(catalog_url) == []


def test_a_waiting_rival_continues_when_the_first_publisher_is_killed(
    catalog: CatalogBackend, catalog_url: str, start_publisher: Start
) -> None:
    doomed = start_publisher("hang", catalog_url, "mnist:1.0.0")
    assert answer(doomed) == "before commit"
    rival = start_publisher("race", catalog_url, "rival")
    assert answer(rival) == "ready"
    ask(rival, "mnist:1.0.0")

    doomed.kill()

    assert answer(rival) == "published"
    assert catalog.find("mnist").published_by == "rival"


def test_processes_that_open_a_new_file_at_once_all_find_a_catalog(tmp_path: Path, start_publisher: Start) -> None:
    path = tmp_path / "catalog.db"
    openers = [start_publisher("open", str(path)) for _ in range(6)]
    assert [answer(process) for process in openers] == ["ready"] * len(openers)
    for process in openers:
        ask(process, "go")

    assert [answer(process) for process in openers] == ["opened"] * len(openers)
    assert schema.check(path) == []


def test_processes_that_upgrade_at_once_all_succeed(database_url: str, start_publisher: Start) -> None:
    migrators = [start_publisher("upgrade", database_url) for _ in range(4)]
    assert [answer(process) for process in migrators] == ["ready"] * len(migrators)
    for process in migrators:
        ask(process, "go")

    assert [answer(process) for process in migrators] == [schema.HEAD] * len(migrators)
    assert schema.check(database_url) == []


EVERYDAY = {REVISIONS[0], "0004", REVISIONS[-1]}
"""The first migration, one that SQLite runs by copying a table, and the last one."""


@pytest.mark.parametrize(
    "revision", [pytest.param(one, marks=[] if one in EVERYDAY else pytest.mark.long) for one in REVISIONS]
)
def test_an_upgrade_killed_in_the_middle_leaves_the_schema_as_it_was(
    database_url: str, start_publisher: Start, revision: str
) -> None:
    before = REVISIONS[: REVISIONS.index(revision)]
    if before:
        schema.upgrade(database_url, before[-1])
    doomed = start_publisher("hang-upgrade", database_url, revision)
    assert answer(doomed) == "before commit"

    doomed.kill()
    doomed.wait()

    assert schema.status(database_url).revision == (before[-1] if before else None)
    assert schema.upgrade(database_url)[1] == schema.HEAD
    assert schema.check(database_url) == []
