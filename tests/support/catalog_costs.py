"""What a look-up costs a database: statements, values that come back, steps of SQLite, rows that PostgreSQL reads."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from registry.catalog import queries, shards, sqlite_path


@dataclass
class Meter:
    """The queries of a database: SELECTs with their parameters, values in JSON arrays, and steps of SQLite."""

    selects: list[tuple[str, Any]] = field(default_factory=list)
    values: int = 0
    steps: int = 0


@contextmanager
def measuring() -> Iterator[Meter]:
    """Count the queries of all catalogs, even if they were connected before."""
    meter = Meter()

    def count_step() -> None:
        meter.steps += 1

    def note(connection: sa.Connection, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        driver: Any = connection.connection.driver_connection
        if isinstance(driver, sqlite3.Connection):
            driver.set_progress_handler(count_step, 1)
        if statement.startswith("SELECT"):
            meter.selects.append((statement, parameters))

    def read_and_count(value: Any) -> Any:
        found = stored_json(value)
        meter.values += len(found or ())
        return found

    stored_json = shards.read_json
    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "read_json", read_and_count)
        patch.setattr(queries, "read_json", read_and_count)
        try:
            yield meter
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", note)


def rows_read(url: str, meter: Meter) -> int:
    """The maximum number of rows of the table ``shard`` that PostgreSQL reads for these queries with any plan."""

    def of_plan(plan: dict[str, Any]) -> float:
        below = sum(map(of_plan, plan.get("Plans", ())))
        if plan.get("Relation Name") != "shard":
            return below
        return below + plan["Actual Loops"] * (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0))

    with psycopg.connect(url, prepare_threshold=None) as connection:
        return max(
            round(sum(of_plan(plan_of(connection, mode, *select)) for select in meter.selects))
            for mode in ("force_custom_plan", "force_generic_plan")
        )


def plan_of(connection: psycopg.Connection, mode: str, statement: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What PostgreSQL did to answer: planned for these parameters, or once for any, as psycopg soon has it do."""
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
    numbered = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", statement)
    arguments = ", ".join(str(parameters[name]) for name in names)
    connection.execute(f"SET plan_cache_mode = {mode}")
    connection.execute(f"PREPARE asked AS {numbered}")
    plan = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE asked ({arguments})").fetchall()[0][0]
    connection.execute("DEALLOCATE asked")
    return dict(plan[0]["Plan"])


def explain(url: str, statement: str, parameters: Any) -> list[str]:
    """The plan of the database, with a line for each step."""
    path = sqlite_path(url)
    if path is None:
        with psycopg.connect(url, prepare_threshold=None) as connection:
            return [line for (line,) in connection.execute(f"EXPLAIN {statement}", parameters)]
    with closing(sqlite3.connect(path)) as stranger:
        return [row[3] for row in stranger.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
