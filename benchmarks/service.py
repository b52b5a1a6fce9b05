"""Measures a service: look-ups over HTTP beside SQL, MLflow's registry and a bare route, and the start of a client.

    python benchmarks/service.py [--seconds 3] [--runs 9] [--mlflow .venv-mlflow/bin/mlflow]

The catalog is an SQLite file with the quickstart dataset on this machine, and ``registry serve`` has one worker.
Look-ups are of one exact version, one after the other. ``client`` decodes the answer; ``request`` is the same request
without that, and ``bare route`` the same request to a Starlette application that answers the same bytes. MLflow's
server (extra ``peers``) has one worker and an SQLite file, too; it is asked for an exact version of a model.

A start is a new process that connects and looks up one version, with warm caches; the cases take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import urllib3
from support.browse_process import Serve  # type: ignore[import-not-found]  # a module of the tests

import registry
from registry.catalog import open_catalog
from registry.catalog.service import ServiceCatalog
from registry.catalog.service_index import API_PATH

REFERENCE = "digits:1.0.0"
MLFLOW = "api/2.0/mlflow/"
_ROUNDS = 10
BARE = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
content = open(sys.argv[1], "rb").read()
async def answer(request):
    await request.body()
    return Response(content, media_type="application/json")
app = Starlette(routes=[Route("/{path:path}", answer, methods=["POST"])])
uvicorn.run(app, port=int(sys.argv[2]), log_level="critical", ws="none", lifespan="off")
"""
START = """
import sys, urllib3
request, requests = urllib3.PoolManager.request, []
urllib3.PoolManager.request = lambda *args, **options: requests.append(args[2]) or request(*args, **options)
import registry
registry.connect(sys.argv[1]).dataset("{reference}")
print(len(requests))
"""
IMPORT = 'import sys, registry; registry.connect(sys.argv[1]).dataset("{reference}")'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each kind of look-up is repeated")
    parser.add_argument("--runs", type=int, default=9, help="starts of each client")
    parser.add_argument("--mlflow", default=shutil.which("mlflow"), help="the program of MLflow, if it is installed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"REGISTRY_CACHE_DIR": f"{folder}/cache", "XDG_DATA_HOME": f"{folder}/home"}
        file = Path(folder) / "catalog.db"
        with registry.connect(file, create=True) as catalog:
            catalog.build("digits")
        with Serve(file, "--init") as server:
            os.environ["REGISTRY_TOKEN"] = server.token
            measure_look_ups(file, server.url, server.token, options.seconds, Path(folder), options.mlflow)
            measure_starts(str(file), server.url, options.runs)


def measure_look_ups(file: Path, url: str, token: str, seconds: float, folder: Path, mlflow: str | None) -> None:
    """Print look-ups per second, and what half and what all but 1% of them take at most."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body, pool = json.dumps({"reference": REFERENCE}).encode(), urllib3.PoolManager(timeout=60)

    def post(address: str) -> bytes:
        answer = pool.request("POST", f"{address}{API_PATH}find", body=body, headers=headers)
        assert answer.status == 200, answer.data
        return answer.data

    def ask_mlflow() -> None:
        answer = pool.request("GET", f"{peer}{MLFLOW}model-versions/get", fields={"name": "digits", "version": "1"})
        assert answer.status == 200, answer.data

    (folder / "answer.json").write_bytes(post(url))
    with (
        open_catalog(file) as database,
        ServiceCatalog(url, token=lambda _: token) as client,
        running([sys.executable, "-c", BARE, str(folder / "answer.json")]) as bare,
        mlflow_server(mlflow, folder) as peer,
    ):
        cases: dict[str, Callable[[], object]] = {
            "SQL in process": lambda: database.find(REFERENCE),
            "client of the service": lambda: client.find(REFERENCE),
            "request to the service": lambda: post(url),
            "request to a bare route": lambda: post(bare),
            **({"request to MLflow": ask_mlflow} if peer else {}),
        }
        print(f"{'look-ups':<28}{'per second':>12}{'p50 ms':>9}{'p99 ms':>9}{'ratio':>8}")
        first, seen = 0.0, {name: list[float]() for name in cases}
        for _ in range(_ROUNDS):  # they take turns, so that a busy machine slows all of them
            for name, look_up in cases.items():
                seen[name] += repeat(look_up, seconds / _ROUNDS)
        for name, times in seen.items():
            middle, late = statistics.median(times), statistics.quantiles(times, n=100)[98]
            first = first or middle
            print(
                f"{name:<28}{1 / statistics.mean(times):>12.0f}{middle * 1000:>9.2f}{late * 1000:>9.2f}"
                f"{middle / first:>8.2f}"
            )


def repeat(look_up: Callable[[], object], seconds: float) -> list[float]:
    """The seconds of each of many look-ups."""
    for _ in range(5):
        look_up()
    times, end = [], time.perf_counter() + seconds
    while (before := time.perf_counter()) < end:
        look_up()
        times.append(time.perf_counter() - before)
    return times


@contextmanager
def running(command: list[str]) -> Iterator[str]:
    """The URL of a server, whose last argument is its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen([*command, str(port)], stdout=nowhere, stderr=nowhere, start_new_session=True)
    try:
        while process.poll() is None:
            time.sleep(0.05)
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                continue
            yield f"http://127.0.0.1:{port}/"
            return
        raise RuntimeError(f"{command[0]} did not start")
    finally:
        os.killpg(process.pid, signal.SIGTERM)  # with its workers
        process.wait()


@contextmanager
def mlflow_server(program: str | None, folder: Path) -> Iterator[str | None]:
    """The URL of a server of MLflow with version 1 of the model ``digits``; None without the program."""
    if program is None:
        yield None
        return
    place = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "mlflow")]
    quiet = ["--workers", "1", "--uvicorn-opts", "--log-level warning", "--host", "127.0.0.1"]
    with running([program, "server", *place, *quiet, "--port"]) as url:
        for call, fields in {
            "registered-models/create": {"name": "digits"},
            "model-versions/create": {"name": "digits", "source": "s3://lab/digits"},
        }.items():
            answer = urllib3.request("POST", f"{url}{MLFLOW}{call}", json=fields, timeout=60)
            assert answer.status == 200, answer.data
        yield url


def measure_starts(file: str, url: str, runs: int) -> None:
    """Print the CPU time of new processes, as a ratio to that of SQL, and the requests of one."""
    for place in (file, url, url):  # warms the caches
        subprocess.run([sys.executable, "-c", IMPORT.format(reference=REFERENCE), place], check=True)
    cases = {"SQL": [IMPORT, file], "service": [IMPORT, url], "interpreter": ["pass", ""]}
    cpu: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(runs):
        for name, (script, place) in cases.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", script.format(reference=REFERENCE), place], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    print(f"\n{'start of a client':<28}{'CPU ms':>12}{'ratio':>8}")
    for name, times in cpu.items():
        ratio = statistics.median(one / base for one, base in zip(times, cpu["SQL"], strict=True))
        print(f"{name:<28}{statistics.median(times) * 1000:>12.0f}{ratio:>8.2f}")
    counted = subprocess.run(
        [sys.executable, "-c", START.format(reference=REFERENCE), url], check=True, capture_output=True, text=True
    )
    print(f"\nrequests of a start with warm caches: {counted.stdout.strip()}")


if __name__ == "__main__":
    main()
