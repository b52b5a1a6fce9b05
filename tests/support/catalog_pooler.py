"""A real PgBouncer in transaction mode in front of the PostgreSQL server of the tests.

``.ci/beside pgbouncer`` names its program in ``REGISTRY_TEST_PGBOUNCER``, and runs the catalog's tests through it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from support.catalog_server import NOBODY, PostgresServer

PROGRAM: Final = os.environ.get("REGISTRY_TEST_PGBOUNCER", "")

_PORT: Final = 6432


class Pooler:
    """A running PgBouncer; ``pool_size`` connections to the server are shared by all clients of a database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def url(self, url: str) -> str:
        """The URL of a database of the server, through the pooler."""
        return f"{url.partition('?')[0]}?host={quote(str(self.folder), safe='')}&port={_PORT}"


@contextmanager
def pooled(server: PostgresServer, *, pool_size: int = 3) -> Iterator[Pooler]:
    """Start PgBouncer before ``server``, with its defaults but for the mode and the sizes."""
    with tempfile.TemporaryDirectory(prefix="pgb-") as name:
        folder = Path(name)
        settings = {
            "unix_socket_dir": name,
            "listen_port": _PORT,
            "auth_type": "trust",
            "auth_file": folder / "users",
            "pool_mode": "transaction",
            "default_pool_size": pool_size,
            "max_client_conn": 400,
            "logfile": folder / "log",
            # Tests end the connections of others, which the next client must not get.
            "server_check_delay": 0,
            "ignore_startup_parameters": "",
        }
        lines = [f"{key} = {value}" for key, value in settings.items()]
        (folder / "ini").write_text(f"[databases]\n* = host={server.folder}\n[pgbouncer]\n" + "\n".join(lines) + "\n")
        (folder / "users").write_text('"postgres" ""\n"locked" "right"\n"two_ann" ""\n"two_bob" ""\n')
        as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        if as_nobody:  # PgBouncer refuses to run as root
            for path in (folder, *folder.iterdir()):
                os.chown(path, NOBODY, NOBODY)
        # Of one type
        process = subprocess.Popen([PROGRAM, "-q", folder / "ini"], stderr=subprocess.DEVNULL, **as_nobody)  # type: ignore[call-overload]
        try:
            _wait_for(folder / f".s.PGSQL.{_PORT}", process, folder / "log")
            yield Pooler(folder)
        finally:
            process.terminate()
            process.wait()


def _wait_for(path: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 10
    while time.monotonic() < until and process.poll() is None:
        with socket.socket(socket.AF_UNIX) as client:
            if client.connect_ex(str(path)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"PgBouncer does not answer:\n{log.read_text() if log.exists() else ''}")
