"""Tries every fault at every request of a publish to a bucket, then a second run and a reader. Run by hand:

python tests/end_to_end/publish_matrix.py [EVERY]     1 tries each request (the default), 5 each fifth; prints a report

Each case publishes a folder through a proxy that injects one fault: into one request ("once"), into it and all that
follow ("stays"), or by killing the publisher before the server sees the request, or after it has carried it out. Then,
without faults, another run publishes the same folder, and a reader verifies it. ``test_publish_matrix.py`` tries a few.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":  # pytest finds these by itself
    sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "storage")]

from fault_proxy import Fault, FaultProxy
from object_publishers import check, fork, publish, wait

from registry.errors import LeftoverWarning

STAYS: Final = ("drop", "cut", "forbidden", "error", "slow down", "too many", "truncate", "silence")
KINDS: Final = (
    *((fault, "once") for fault in (*STAYS, "corrupt")),
    *((fault, "stays") for fault in STAYS),
    ("kill", "before"),
    ("kill", "after"),
)
LIMITS: Final = {"REGISTRY_TRIES": "2", "REGISTRY_READ_TIMEOUT": "0.5"}
_MOST_SECONDS: Final = 300
"""A publisher that takes longer is killed, and told of: none waits for as long."""


@dataclass(frozen=True)
class Case:
    """One fault at one request: its kind, how it continues, and the index of the request."""

    fault: str
    manner: str
    index: int

    def __str__(self) -> str:
        return f"{self.fault} ({self.manner}) at request {self.index}"


class Matrix:
    """Cases of one folder on one bucket. ``folder`` is a prepared animals:1.0.0 whose records are 98 years old."""

    def __init__(self, proxy: FaultProxy, bucket: str, folder: Path, catalogs: Path) -> None:
        self._proxy, self._bucket, self._folder, self._catalogs = proxy, bucket, folder, catalogs
        self.seen: Counter[str] = Counter()
        self.num_requests = self._count_requests()

    def cases(self, every: int = 1) -> Iterable[Case]:
        """Every kind of fault at every request, or at each ``every``-th."""
        return [Case(*kind, index) for index in range(0, self.num_requests, every) for kind in KINDS]

    def sample(self, count: int, seed: int) -> list[Case]:
        """Some of the cases, the same for a seed."""
        return random.Random(seed).sample(list(self.cases()), count)

    def problems(self, case: Case) -> list[str]:
        """The broken promises after one case; empty if all hold."""
        url, data_dir = self._fresh(f"{case.fault}-{case.manner}-{case.index}".replace(" ", "-"))
        first = self._run(lambda: publish(url, data_dir, str(self._folder)), case)
        again = self._run(lambda: publish(url, data_dir, str(self._folder)))
        found = self._run(lambda: check(url, data_dir))
        reported = "died" if first is None else first.get("error") or "published"
        self.seen[f"{case.fault} ({case.manner}): {reported}"] += 1
        wrong = []
        if first is None and case.fault != "kill":
            wrong.append("the publisher was killed, or did not end")
        elif first is not None and first.get("error") == "untyped":
            wrong.append(f"untyped: {first['message']}")
        elif first is not None and first.get("exit_code") not in (None, 1, 5, 75):
            wrong.append(f"exit code {first['exit_code']}: {first['message']}")
        if again is None or "error" in again:
            wrong.append(f"the next run did not finish: {again}")
        if found is None:
            wrong.append("a reader found nothing")
        elif found["faults"] or found["reservations"] or len(found["ages"]) != _NUM_RECORDS or 98 not in found["ages"]:
            wrong.append(f"a reader found {found}")
        return [f"{case}: {one}" for one in wrong]

    def _run(self, work: Callable[[], object], case: Case | None = None) -> Any:
        """The result of ``work`` in its own process, with the fault of ``case`` before it."""

        def bounded() -> object:
            signal.alarm(_MOST_SECONDS)
            warnings.simplefilter("ignore", LeftoverWarning)  # a store that fails cannot be tidied up
            return work()

        self._proxy.reset()
        child: list[int] = []
        forked = threading.Event()

        def kill() -> None:
            forked.wait(_MOST_SECONDS)
            os.kill(child[0], signal.SIGKILL)

        if case is not None and case.fault == "kill":
            # `hook` calls it before the request is handed on, and `hook after` when the server has answered
            self._proxy.inject("hook" if case.manner == "before" else "hook after", at=case.index, hook=kill)
        elif case is not None:
            fault: Fault = case.fault  # type: ignore[assignment] # one of `KINDS`
            if case.manner == "once":
                self._proxy.inject(fault, at=case.index)
            else:
                self._proxy.inject(fault, when=lambda request: request.index >= case.index)
        process, pipe = fork(bounded)
        child.append(process)
        forked.set()
        try:
            return wait(process, pipe)
        finally:
            self._proxy.reset()

    def _fresh(self, name: str) -> tuple[str, str]:
        from registry.catalog import schema

        template = self._catalogs / "template.db"
        if not template.exists():
            schema.upgrade(template)
        return str(shutil.copy(template, self._catalogs / f"{name}.db")), f"{self._bucket}/{name}"

    def _count_requests(self) -> int:
        url, data_dir = self._fresh("whole")
        outcome = wait(*fork(lambda: publish(url, data_dir, str(self._folder))))
        assert outcome == {"newly": True, "notes": []}, outcome
        return self._proxy.count()


_NUM_RECORDS: Final = 20


def prepare_folder(folder: Path) -> Path:
    """The folder that is published: animals:1.0.0, 20 records in 2 shards."""
    from prepared_samples import animals, prepare

    return prepare(folder, splits={"train": animals(_NUM_RECORDS, age=98)}, shards=2)


def main(every: int = 1) -> int:
    """Try the whole matrix; 1 if anything is wrong."""
    from s3_server import CREDENTIALS, S3Server

    with tempfile.TemporaryDirectory() as name, S3Server() as server, FaultProxy(server.port) as proxy:
        os.environ.update(CREDENTIALS, **LIMITS, AWS_ENDPOINT_URL=proxy.url, REGISTRY_CACHE=f"{name}/cache")
        server.request("PUT", "/matrix")
        catalogs = Path(name) / "catalogs"
        catalogs.mkdir()
        matrix = Matrix(proxy, "s3://matrix", prepare_folder(Path(name) / "98"), catalogs)
        cases = list(matrix.cases(every))
        faults = []
        for number, case in enumerate(cases):
            faults += matrix.problems(case)
            if number % 50 == 0:
                sys.stderr.write(f"{number} of {len(cases)} cases, {len(faults)} problems\n")
        report = {"requests": matrix.num_requests, "cases": len(cases), "outcomes": dict(sorted(matrix.seen.items()))}
        sys.stdout.write(json.dumps({**report, "problems": faults}, indent=2) + "\n")
        return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
