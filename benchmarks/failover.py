"""Fails over PostgreSQL, then S3, at the end of a build, and reports whether the build was lost.

    .venv/bin/python benchmarks/failover.py --seconds 120

Two runs for each server:

    wait    it is away for that long, and the build waits by its budget of 10 minutes
    resume  the budget is 5 seconds, so the build gives up; the server comes back, and the same command is run again

A table gives exit codes, seconds, and how often the records were generated. Needs the extra ``test``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(TESTS))

BUILDER = """
import os, time
from pathlib import Path
from registry import DatasetBuilder
from registry.features import FeaturesDict

class Failover(DatasetBuilder):
    VERSION = "1.0.0"

    def features(self):
        return FeaturesDict({"number": "int64"})

    def splits(self):
        return {"train": self.examples()}

    def examples(self):
        signals = Path(__file__).parent
        with (signals / "calls").open("a") as file:
            file.write("x")
        yield from ((number, {"number": number}) for number in range(200_000))
        (signals / "made").touch()
        while (signals / "made").exists():  # until the server is away
            time.sleep(0.05)
"""


def build(folder: Path, environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "registry", "build", "failover_builder:Failover"]
    with log.open("ab") as output:
        return subprocess.Popen(
            command, env={**os.environ, **environment, "PYTHONPATH": str(folder)}, stderr=output, stdout=output
        )


def run(
    kind: str,
    seconds: float,
    stop: Callable[[], None],
    start: Callable[[], None],
    environment: dict[str, str],
    *,
    waits: bool,
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "failover_builder.py").write_text(BUILDER)
        environment = {**environment, "REGISTRY_CACHE": str(folder / "cache")}
        if not waits:
            environment["REGISTRY_PUBLISH_TIMEOUT"] = "5"
        process = build(folder, environment, folder / "log")
        while not (folder / "made").exists():
            if process.poll() is not None:
                sys.exit((folder / "log").read_text())
            time.sleep(0.05)
        stop()
        begun = time.monotonic()
        (folder / "made").unlink()
        if waits:
            time.sleep(seconds)
            start()
            codes = [process.wait()]
        else:
            codes = [process.wait()]
            start()
            again = build(folder, environment, folder / "log")
            while again.poll() is None:
                (folder / "made").unlink(missing_ok=True)  # records that are generated again do not wait
                time.sleep(0.05)
            codes.append(again.returncode)
        passed = time.monotonic() - begun
        calls = len((folder / "calls").read_text())
        way = "wait" if waits else "resume"
        print(f"\n{kind}, {way}: exit codes {codes}, {passed:.0f} s, records generated {calls} time(s)")
        print("    " + (folder / "log").read_text().strip().replace("\n", "\n    "), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    seconds = parser.parse_args().seconds
    from moto.server import ThreadedMotoServer
    from support.catalog_server import PostgresServer  # type: ignore[import-not-found]  # a module of the tests
    from support.s3_server import CREDENTIALS  # type: ignore[import-not-found]  # the same

    from registry.catalog import schema

    with (
        tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as name,
        tempfile.TemporaryDirectory() as data,
    ):
        server = PostgresServer(Path(name))
        server.start(fsync=True)
        try:
            for waits in (True, False):
                url = server.create_database()
                schema.upgrade(url)
                places = {"REGISTRY_CATALOG": url, "REGISTRY_DATA_DIR": f"{data}/{waits}"}
                run("PostgreSQL", seconds, server.stop, server.resume, places, waits=waits)
        finally:
            server.stop()
        port = 5000 + os.getpid() % 1000
        stores: list[Any] = []

        def start() -> None:  # the objects of a server that was stopped stay in this process
            stores.append(ThreadedMotoServer("127.0.0.1", port, verbose=False))
            stores[-1].start()

        def stop() -> None:
            stores[-1].stop()

        start()
        endpoint = {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        for waits in (True, False):
            bucket = f"failover-{str(waits).lower()}"
            subprocess.run(["curl", "-sf", "-X", "PUT", f"http://127.0.0.1:{port}/{bucket}"], check=True)
            places = {**endpoint, "REGISTRY_CATALOG": f"{data}/{waits}.db", "REGISTRY_DATA_DIR": f"s3://{bucket}/data"}
            run("S3", seconds, stop, start, places, waits=waits)
        stop()


if __name__ == "__main__":
    main()
