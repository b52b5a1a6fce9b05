"""Tries every fault at every request of each way to read a version from a bucket. Run by hand:

python tests/support/read_matrix.py [EVERY [STORE]]     prints a report

EVERY is 1 for each request (the default), 5 for each fifth; STORE is s3 (the default), gs or az.

A reader with an empty cache must get the published records or a typed error, and never other records. A fault that
passes must not be noticed, except for a flipped bit where the store has no digest of what was requested (a part of an
object, or Azure): then a checksum of a record finds it. ``test_read_matrix.py`` tries a few cases.
"""

from __future__ import annotations

import hashlib
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

if __name__ == "__main__":  # pytest finds these by itself
    sys.path.append(str(Path(__file__).parents[1]))

import registry
from registry.api import Dataset
from registry.errors import RegistryError
from support.fault_proxy import FaultProxy
from support.object_publishers import fork, publish, wait
from support.prepared_samples import animals, prepare
from support.publish_matrix import KINDS, Case, behind_proxy, report_on, run_with_fault

READ_KINDS: Final = tuple(kind for kind in KINDS if kind[0] != "kill")
"""What happens to requests; a reader that is killed leaves nothing behind."""

_NUM_RECORDS: Final = 300
_RECORD_BYTES: Final = 4000
"""With three shards, each file has 400 kB."""

Rows: TypeAlias = list[str]


def _rows(examples: Iterable[Mapping[str, Any]]) -> Rows:
    """Each record's age, and the digest of its name."""
    return [f"{one['age']} {hashlib.sha256(str(one['name']).encode()).hexdigest()[:8]}" for one in examples]


def _batch_rows(batch: Mapping[str, Any]) -> Rows:
    return _rows({"age": age, "name": name} for age, name in zip(batch["age"], batch["name"], strict=True))


def _verify(dataset: Dataset) -> Rows:
    dataset.verify(deep=True).raise_for_faults("animals")
    return []


WAYS: Final[Mapping[str, Callable[[Dataset], Rows]]] = {
    "all": lambda dataset: _rows(dataset.read("train")),
    "batches": lambda dataset: [row for batch in dataset.read("train").batches(7) for row in _batch_rows(batch)],
    "a slice": lambda dataset: _rows(dataset.read("train[150:160]")),
    "some by their numbers": lambda dataset: _batch_rows(dataset.read("train")[[3, 120, 299]]),
    "shuffled": lambda dataset: _rows(dataset.read("train", registry.ReadConfig(shuffle="global", seed=3))),
    "verify": _verify,
}


@dataclass(frozen=True)
class ReadCase(Case):
    """A fault at one request of one way to read."""

    way: str

    def __str__(self) -> str:
        return f"{self.way}: {super().__str__()}"


class ReadMatrix:
    """Cases of a version that is published to ``bucket`` at the start. ``folder`` is empty."""

    def __init__(self, proxy: FaultProxy, bucket: str, folder: Path) -> None:
        self._proxy, self._bucket, self._catalog = proxy, bucket, str(folder / "catalog.db")
        rows = [{**one, "name": f"{one['name']} ".ljust(_RECORD_BYTES, "x")} for one in animals(_NUM_RECORDS)]
        prepare(folder / "animals", splits={"train": rows}, shards=3)
        published = wait(*fork(lambda: publish(self._catalog, bucket, str(folder / "animals"))))
        assert published == {"newly": True, "notes": []}, published
        self.seen: Counter[str] = Counter()
        self.num_requests: dict[str, int] = {}
        self._right: dict[str, Rows] = {}
        for way in WAYS:
            proxy.reset()
            outcome = wait(*fork(partial(self._read, way)))
            assert "rows" in outcome, outcome
            self._right[way], self.num_requests[way] = outcome["rows"], proxy.count()

    def cases(self, every: int = 1) -> list[ReadCase]:
        """Every kind of fault at every request of each way, or at each ``every``-th."""
        return [
            ReadCase(*kind, index, way)
            for way, count in self.num_requests.items()
            for index in range(0, count, every)
            for kind in READ_KINDS
        ]

    def sample(self, count: int, seed: int) -> list[ReadCase]:
        """Some of the cases, the same for a seed."""
        return random.Random(seed).sample(self.cases(), count)

    def problems(self, case: ReadCase) -> list[str]:
        """The broken promises after one case; empty if all hold."""
        outcome = run_with_fault(self._proxy, partial(self._read, case.way), case)
        reported = "died" if outcome is None else outcome.get("error") or "read"
        self.seen[f"{case.fault} ({case.manner}): {reported}"] += 1
        if outcome is None:
            return [f"{case}: the reader did not end"]
        if "rows" in outcome:
            return [] if outcome["rows"] == self._right[case.way] else [f"{case}: wrong records"]
        if case.fault == "corrupt" and outcome["error"] == "corrupt_record":
            return []
        if outcome["error"] == "untyped" or outcome["exit_code"] not in (1, 75, 5 if case.way == "verify" else 1):
            return [f"{case}: {outcome}"]  # `verify` reports a shard that it cannot read as a fault
        if case.manner == "once" and case.fault != "forbidden":
            return [f"{case}: another try would have succeeded: {outcome}"]
        return []

    def _read(self, way: str) -> dict[str, Any]:
        try:
            with (
                tempfile.TemporaryDirectory() as cache,
                pytest.MonkeyPatch.context() as patch,
                registry.connect(self._catalog, data_dir=self._bucket) as catalog,
            ):
                patch.setenv("REGISTRY_CACHE", cache)
                return {"rows": WAYS[way](catalog.dataset("animals:1.0.0"))}
        except RegistryError as error:
            return {"error": error.code, "exit_code": error.exit_code, "message": error.message}
        except BaseException as error:  # noqa: BLE001 (the report shows it)
            return {"error": "untyped", "message": f"{type(error).__name__}: {error}"}


def main(every: str = "1", scheme: str = "s3") -> int:
    """Try the whole matrix."""
    with behind_proxy(scheme) as (proxy, bucket, folder):
        (folder / "read").mkdir()
        matrix = ReadMatrix(proxy, bucket, folder / "read")
        return report_on(matrix.num_requests, matrix.cases(int(every)), matrix.problems, matrix.seen)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
