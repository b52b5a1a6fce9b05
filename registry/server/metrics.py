"""Counts the requests of a service, for Prometheus: how many, how long, and how many are in flight.

Each worker counts its own requests, and writes the counts to a file in a folder that all workers share. The worker that
answers ``/metrics`` adds them up. The file of a worker that died is kept, so that no counter decreases.
"""

from __future__ import annotations

import json
import os
import secrets
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper limits of the buckets of the histogram, in seconds."""

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The counts of one worker. Only the thread of its event loop uses them.

    Attributes:
        in_flight: the requests that are being answered.
        events_behind: how many events the webhook that is furthest behind has before it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """``folder`` is the one that the workers share; None if there is one worker only."""
        self.in_flight = 0
        self.events_behind = 0
        self._deliveries: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self._seconds: Counter[str] = Counter()
        self._file = None if folder is None else folder / f"{os.getpid()}-{secrets.token_hex(4)}.json"
        self._written: object = None

    def count(self, call: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests[f'call="{call}",status="{status}"'] += 1
        self._seconds[f"{call} {bisect_left(BUCKETS, seconds)}"] += 1
        self._seconds[f"{call} sum"] += seconds  # type: ignore[assignment] # a counter adds any numbers

    def count_delivery(self, *, is_delivered: bool) -> None:
        """Count an attempt to deliver an event to a webhook."""
        self._deliveries["delivered" if is_delivered else "failed"] += 1

    def write(self) -> None:
        """Write the counts for the other workers, if they changed."""
        state = (self._requests.total(), self.in_flight, self._deliveries.total(), self.events_behind)
        if self._file is not None and state != self._written:
            temporary = self._file.with_suffix(".tmp")
            temporary.write_text(json.dumps(self._counts()), encoding="utf-8")
            temporary.replace(self._file)
            self._written = state

    def text(self) -> str:
        """The counts of all workers in the text format of Prometheus."""
        workers = [self._counts(), *self._others()]
        requests, seconds, deliveries = Counter[str](), Counter[str](), Counter[str]()
        for counts in workers:
            requests.update(counts["requests"])
            seconds.update(counts["seconds"])
            deliveries.update(counts.get("deliveries", {}))
        in_flight, behind = (sum(each["in_flight"] for each in workers), max(each.get("behind", 0) for each in workers))
        lines = [*_lines(requests, seconds, in_flight), *_webhook_lines(deliveries, behind)]
        return "".join(f"{line}\n" for line in lines)

    def _counts(self) -> dict[str, Any]:
        counts = {"requests": self._requests, "seconds": self._seconds, "deliveries": self._deliveries}
        return {**counts, "in_flight": self.in_flight, "behind": self.events_behind}

    def _others(self) -> Iterator[dict[str, Any]]:
        for file in () if self._file is None else sorted(self._file.parent.glob("*.json")):
            if file != self._file:
                with suppress(OSError, ValueError):
                    counts = json.loads(file.read_text(encoding="utf-8"))
                    is_alive = Path(f"/proc/{file.name.partition('-')[0]}").exists()
                    yield counts if is_alive else counts | {"in_flight": 0, "behind": 0}


def _lines(requests: Counter[str], seconds: Counter[str], in_flight: int) -> Iterator[str]:
    yield from _head("registry_requests_total", "counter", "Requests that were answered, by call and status.")
    yield from (f"registry_requests_total{{{labels}}} {number}" for labels, number in sorted(requests.items()))
    yield from _head("registry_request_seconds", "histogram", "How long requests took, by call.")
    for call in sorted({key.partition(" ")[0] for key in seconds}):
        total = 0
        for index, limit in enumerate([*map(str, BUCKETS), "+Inf"]):
            total += seconds[f"{call} {index}"]
            yield f'registry_request_seconds_bucket{{call="{call}",le="{limit}"}} {total}'
        yield f'registry_request_seconds_sum{{call="{call}"}} {seconds[f"{call} sum"]:.6f}'
        yield f'registry_request_seconds_count{{call="{call}"}} {total}'
    yield from _head("registry_requests_in_flight", "gauge", "Requests that are being answered.")
    yield f"registry_requests_in_flight {in_flight}"


def _webhook_lines(deliveries: Counter[str], behind: int) -> Iterator[str]:
    name, text = "registry_webhook_deliveries_total", "Attempts to deliver an event to a webhook, by outcome."
    yield from _head(name, "counter", text)
    yield from (f'{name}{{outcome="{outcome}"}} {deliveries[outcome]}' for outcome in ("delivered", "failed"))
    yield from _head("registry_webhook_events_behind", "gauge", "Events before the webhook that is furthest behind.")
    yield f"registry_webhook_events_behind {behind}"


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"
