"""Many processes at once on one catalog of either kind: nothing lost or half done, every conflict typed."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from support.catalog_crowd import DATASETS, parts
from support.catalog_samples import execute, publish

from registry.catalog import CatalogBackend, schema, sqlite_path
from registry.model import Reference

CROWDS = [(5, 1), pytest.param(16, 5, marks=pytest.mark.long)]
"""Processes, and the seconds for which they act."""

CONFLICTS = {
    "version_exists",
    "alias_moved",
    "version_withdrawn",
    "version_not_found",
    "alias_not_found",
    "conflict",
} | {"dataset_renamed"}

Start = Callable[..., "subprocess.Popen[str]"]


def start_crowd(
    catalog: CatalogBackend, url: str, start_script: Start, number: int, seconds: float
) -> list[subprocess.Popen[str]]:
    """Start ``number`` processes; all of them are ready before the first one acts."""
    for dataset in DATASETS:
        publish(catalog, f"{dataset}:1.0.100")
    crowd = [start_script("catalog_crowd.py", url, str(place), str(seconds)) for place in range(number)]
    for process in crowd:
        assert process.stdout.readline() == "ready\n"
    for process in crowd:
        process.stdin.write("go\n")
        process.stdin.flush()
    return crowd


def require_sound(catalog: CatalogBackend, url: str) -> None:
    """The log tells of everything that stands in the tables, and the tables of everything in the log."""
    assert schema.check(url) == []
    assert catalog.log.verify().faults == ()
    numbers = execute(url, "SELECT count(*) FROM dataset_version")
    assert execute(url, "SELECT count(*) FROM version_ledger") == numbers
    assert execute(url, "SELECT count(*) FROM event WHERE action = 'publish'") == numbers
    assert execute(url, "SELECT 2 * count(*) FROM dataset_version") == execute(url, "SELECT count(*) FROM split")
    assert execute(url, "SELECT 4 * count(*) FROM dataset_version") == execute(url, "SELECT count(*) FROM shard")


@pytest.mark.parametrize(("number", "seconds"), CROWDS)
def test_a_crowd_loses_nothing_and_meets_typed_conflicts_only(
    catalog: CatalogBackend,
    catalog_url: str,
    start_script: Start,
    record_property: Callable[[str, Any], None],
    number: int,
    seconds: float,
) -> None:
    crowd = start_crowd(catalog, catalog_url, start_script, number, seconds)
    told = [json.loads(process.communicate()[0]) for process in crowd]

    assert [process.returncode for process in crowd] == [0] * number
    outcomes: Counter[str] = sum((Counter(one["outcomes"]) for one in told), Counter())
    codes = {outcome.split()[1] for outcome in outcomes}
    assert codes - CONFLICTS <= {"ok", "same", "read"}
    assert {"publish ok", "read read", "stand ok", "move ok", "rename ok"} <= outcomes.keys()

    published = [reference for one in told for reference in one["published"]]
    assert len(set(published)) == len(published)  # each number was won once
    stored = {f"{dataset}:{one.version}" for dataset in DATASETS for one in catalog.versions(*parts(dataset))}
    assert stored == {*published, *(f"{dataset}:1.0.100" for dataset in DATASETS)}
    assert execute(catalog_url, "SELECT count(*) FROM alias_event") == [(sum(one["moved"] for one in told),)]
    changes = sum(count for outcome, count in outcomes.items() if outcome.endswith(" ok"))
    assert execute(catalog_url, "SELECT count(*), max(id) FROM event") == [(changes + len(DATASETS),) * 2]
    require_sound(catalog, catalog_url)
    kind = "SQLite" if sqlite_path(catalog_url) else "PostgreSQL"
    record_property(
        f"{kind}: {number} processes, {seconds} s", ", ".join(f"{k} {n}" for k, n in sorted(outcomes.items()))
    )


@pytest.mark.parametrize(
    ("number", "num_killed", "seconds"), [(5, 3, 1), pytest.param(8, 5, 5, marks=pytest.mark.long)]
)
def test_a_crowd_whose_processes_and_connections_are_killed_leaves_nothing_half_done(
    catalog: CatalogBackend, catalog_url: str, start_script: Start, number: int, num_killed: int, seconds: float
) -> None:
    crowd = start_crowd(catalog, catalog_url, start_script, number, seconds)
    for place, process in enumerate(crowd[:num_killed]):
        wait_for_events(catalog_url, 10 * (place + 1), process)
        process.kill()
        if sqlite_path(catalog_url) is None:
            cut_connections(catalog_url)
    told = [json.loads(process.communicate()[0]) for process in crowd[num_killed:]]

    assert [refusal for one in told for refusal in one["refusals"]] == []
    codes = {outcome.split()[1] for one in told for outcome in one["outcomes"]}
    assert codes - CONFLICTS - {"catalog_unavailable"} <= {"ok", "same", "read"}
    stored = {f"{dataset}:{one.version}" for dataset in DATASETS for one in catalog.versions(*parts(dataset))}
    assert stored >= {reference for one in told for reference in one["published"]}
    require_sound(catalog, catalog_url)
    name = catalog.standing("alone").name
    publish(catalog, f"{name}:9.0.0")
    assert str(catalog.find("alone:*").reference) == f"{name}:9.0.0"
    catalog.lifecycle.yank(Reference.parse("alone:9.0.0"), "done", actor="ann")
    require_sound(catalog, catalog_url)


def wait_for_events(url: str, number: int, process: subprocess.Popen[str]) -> None:
    """Until the crowd has done something, or ``process`` is done: it is in the middle of something then."""
    while process.poll() is None and execute(url, "SELECT count(*) FROM event")[0][0] < number:
        pass


def cut_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle' LIMIT 2"
        )
