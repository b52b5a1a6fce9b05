"""Tries every fault at every request of a publish to a bucket, then a second run and a reader. Run by hand:

python tests/support/publish_matrix.py [EVERY [STORE]]     prints a report

EVERY is 1 for each request (the default), 5 for each fifth; STORE is s3 (the default), gs or az.

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":  # pytest finds these by itself
    sys.path.append(str(Path(__file__).parents[1]))

from registry.errors import LeftoverWarning
from support.clouds import serving
from support.fault_proxy import Fault, FaultProxy
from support.object_publishers import check, fork, publish, wait

STAYS: Final = ("drop", "cut", "forbidden", "error", "slow down", "too many", "truncate", "silence")
KINDS: Final = (
    *((fault, "once") for fault in (*STAYS, "corrupt", "delay")),
    *((fault, "stays") for fault in STAYS),
    ("kill", "before"),
    ("kill", "after"),
)
LIMITS: Final = {"REGISTRY_TRIES": "2", "REGISTRY_READ_TIMEOUT": "60"}
_SILENT_SECONDS: Final = "2"
"""The read timeout if requests get no answer. Otherwise it is long: a busy machine answers late without a fault."""

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


def run_with_fault(proxy: FaultProxy, work: Callable[[], object], case: Case | None) -> Any:
    """The result of ``work`` in its own process, with the fault of ``case`` before it; None if it was killed."""

    def bounded() -> object:
        signal.alarm(_MOST_SECONDS)
        if case is not None and case.fault == "silence":
            os.environ["REGISTRY_READ_TIMEOUT"] = _SILENT_SECONDS
        warnings.simplefilter("ignore", LeftoverWarning)  # nothing can be cleaned up in a failing store
        return work()

    proxy.reset()
    child: list[int] = []
    forked = threading.Event()

    def kill() -> None:
        forked.wait(_MOST_SECONDS)
        os.kill(child[0], signal.SIGKILL)

    if case is not None and case.fault == "kill":
        # `hook` calls it before the request is handed on, and `hook after` when the server has answered
        proxy.inject("hook" if case.manner == "before" else "hook after", at=case.index, hook=kill)
    elif case is not None:
        fault: Fault = case.fault  # type: ignore[assignment] # one of `KINDS`
        if case.manner == "once":
            proxy.inject(fault, at=case.index)
        else:
            proxy.inject(fault, when=lambda request: request.index >= case.index)
    process, pipe = fork(bounded)
    child.append(process)
    forked.set()
    try:
        return wait(process, pipe)
    finally:
        proxy.reset()


class Matrix:
    """Cases of one folder on one bucket. ``folder`` is a prepared animals:1.0.0 whose records are 98 years old."""

    def __init__(self, proxy: FaultProxy, bucket: str, folder: Path, catalogs: Path) -> None:
        self._proxy, self._bucket, self._folder, self._catalogs = proxy, bucket, folder, catalogs
        self.seen: Counter[str] = Counter()
        self.num_requests = self._count_requests()

    def cases(self, every: int = 1) -> list[Case]:
        """Every kind of fault at every request, or at each ``every``-th."""
        return [Case(*kind, index) for index in range(0, self.num_requests, every) for kind in KINDS]

    def sample(self, count: int, seed: int) -> list[Case]:
        """Some of the cases, the same for a seed."""
        return random.Random(seed).sample(self.cases(), count)

    def problems(self, case: Case) -> list[str]:
        """The broken promises after one case; empty if all hold."""
        url, data_dir = self._fresh(f"{case.fault}-{case.manner}-{case.index}".replace(" ", "-"))
        first = self._run(lambda: self.act(url, data_dir), case)
        again = self._run(lambda: self.act(url, data_dir))
        found = self._run(lambda: check(url, data_dir))
        reported = "died" if first is None else first.get("error") or "published"
        self.seen[f"{case.fault} ({case.manner}): {reported}"] += 1
        wrong = []
        if first is None and case.fault != "kill":
            wrong.append("the publisher was killed, or did not end")
        elif first is not None and first.get("error") == "untyped":
            wrong.append(f"untyped: {first['message']}")
        elif case.fault == "corrupt" and first is not None and first.get("error") == "reserved":
            pass  # the marker looked foreign: if ETags are not digests, a flipped bit in it is not detected
        elif first is not None and first.get("exit_code") not in (None, 1, 5, 75):
            wrong.append(f"exit code {first['exit_code']}: {first['message']}")
        if again is None or "error" in again:
            wrong.append(f"the next run did not finish: {again}")
        if found is None:
            wrong.append("a reader found nothing")
        elif found["faults"] or found["reservations"] or len(found["ages"]) != _NUM_RECORDS or 98 not in found["ages"]:
            wrong.append(f"a reader found {found}")
        return [f"{case}: {one}" for one in wrong]

    def act(self, url: str, data_dir: str) -> dict[str, Any]:
        """Run the publication that the cases interrupt, in a separate process. Returns the outcome."""
        return publish(url, data_dir, str(self._folder))

    def _run(self, work: Callable[[], object], case: Case | None = None) -> Any:
        return run_with_fault(self._proxy, work, case)

    def _fresh(self, name: str) -> tuple[str, str]:
        from registry.catalog import schema

        template = self._catalogs / "template.db"
        if not template.exists():
            schema.upgrade(template)
        return str(shutil.copy(template, self._catalogs / f"{name}.db")), f"{self._bucket}/{name}"

    def _count_requests(self) -> int:
        url, data_dir = self._fresh("whole")
        self._proxy.reset()
        outcome = wait(*fork(lambda: self.act(url, data_dir)))
        assert outcome == {"newly": True, "notes": []}, outcome
        return self._proxy.count()


_NUM_RECORDS: Final = 20


def prepare_folder(folder: Path, *, is_large: bool = False) -> Path:
    """The folder that is published: animals:1.0.0, 20 records in 2 shards; the second one has 9 MB if ``is_large``."""
    from support.prepared_samples import animals, prepare

    rows = animals(_NUM_RECORDS, age=98)
    if is_large:
        rows[-1]["name"] = "x" * 9_000_000
    return prepare(folder, splits={"train": rows}, shards=2)


@contextmanager
def behind_proxy(scheme: str) -> Iterator[tuple[FaultProxy, str, Path]]:
    """A proxy, the URL of a bucket that is reached through it, and a scratch folder, for scripts."""
    with (
        tempfile.TemporaryDirectory() as name,
        serving(scheme) as server,
        FaultProxy(server.port) as proxy,
    ):
        os.environ.update(server.environment(proxy.port), **LIMITS, REGISTRY_CACHE=f"{name}/cache")
        server.create_bucket("matrix")
        yield proxy, f"{scheme}://matrix", Path(name)


def report_on(
    num_requests: object, cases: Sequence[Case], problems: Callable[[Case], list[str]], seen: Counter[str]
) -> int:
    """Try ``cases`` and print a report. Returns 1 if any case fails."""
    faults: list[str] = []
    for number, case in enumerate(cases):
        faults += problems(case)
        if number % 50 == 0:
            sys.stderr.write(f"{number} of {len(cases)} cases, {len(faults)} problems\n")
    report = {"requests": num_requests, "cases": len(cases), "outcomes": dict(sorted(seen.items())), "problems": faults}
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 1 if faults else 0


def main(every: str = "1", scheme: str = "s3") -> int:
    """Try the whole matrix."""
    with behind_proxy(scheme) as (proxy, bucket, folder):
        (folder / "catalogs").mkdir()
        matrix = Matrix(proxy, bucket, prepare_folder(folder / "98", is_large=True), folder / "catalogs")
        return report_on(matrix.num_requests, matrix.cases(int(every)), matrix.problems, matrix.seen)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
