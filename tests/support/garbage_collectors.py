"""Publishers and garbage collectors that die at a step, and collectors that run between the steps of a publisher.

python garbage_collectors.py killed-publishers JOBS    a publisher dies, then garbage is collected
python garbage_collectors.py killed-collectors JOBS    a publisher dies, the collector dies, another one runs
python garbage_collectors.py between JOBS              garbage is collected before a step of a living publisher

Each job is a JSON object with ``url``, ``data_dir``, ``folder`` and ``step``; the outcomes are printed as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import boto3

import registry
import registry.publishing.garbage  # everything is imported before the first fork
from registry.catalog import session
from registry.storage import open_store
from registry.storage.object_client import BucketClient
from support.object_publishers import REQUESTS, die_before, fork, publish, wait

Job = dict[str, Any]


def collect(job: Job, older_than: str = "0s") -> dict[str, Any]:
    """Collect garbage, and list the remaining files."""
    with registry.connect(job["url"], data_dir=job["data_dir"]) as catalog:
        report = catalog.collect_garbage(older_than=older_than)
        faults = [
            fault.problem
            for one in catalog.datasets()
            for fault in catalog.dataset(f"{one.dataset}:1.0.0").verify(deep=True).faults
        ]
        return {
            "published": len(catalog.datasets()),
            "faults": faults,
            "objects": [one.name for one in open_store(job["data_dir"]).scan()],
            "reservations": len(catalog.reservations.list()),
            "outcomes": sorted(
                {f"{one.kind} {one.outcome}" for one in report if one.kind not in ("cache", "temporary")}
            ),
        }


def run_forked(work: Callable[[], object]) -> Any:
    return wait(*fork(work))


def killed_publisher(job: Job) -> Any:
    """The outcome of the publisher, or None, and the findings of the collector."""

    def dying() -> object:
        steps = die_before(job["step"])
        return {**publish(job["url"], job["data_dir"], job["folder"]), "steps": len(steps)}

    return run_forked(dying), run_forked(lambda: collect(job)), run_forked(lambda: publish_again(job))


def publish_again(job: Job) -> Any:
    return publish(job["url"], job["data_dir"], job["folder"]) | {"then": collect(job)}


def killed_collector(job: Job) -> Any:
    """A publisher dies at the step ``publisher_step``, the collector at ``step``."""

    def dying_publisher() -> object:
        die_before(job["publisher_step"])
        return publish(job["url"], job["data_dir"], job["folder"])

    def dying_collector() -> object:
        steps = die_before(job["step"])
        collect(job)
        return {"steps": len(steps)}

    run_forked(dying_publisher)
    return run_forked(dying_collector), run_forked(lambda: collect(job)), run_forked(lambda: publish_again(job))


def between(job: Job) -> Any:
    """Publish, while garbage is collected before one step."""
    steps: list[str] = []
    inside: list[bool] = []
    found: list[Any] = []

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            if not inside:
                steps.append(name)
                if len(steps) == job["step"]:
                    inside.append(True)
                    found.append(collect(job))
                    inside.clear()
            return function(*given, **options)

        return call

    def run() -> object:
        for name in REQUESTS:
            setattr(BucketClient, name, watched(name, getattr(BucketClient, name)))
        for name in ("connect", "begin"):
            setattr(session.sa.Engine, name, watched("transaction", getattr(session.sa.Engine, name)))
        done = publish(job["url"], job["data_dir"], job["folder"])
        inside.append(True)
        return {"published": done, "steps": len(steps), "collected": found, "then": collect(job)}

    return run_forked(run)


if __name__ == "__main__":
    boto3.client("s3", region_name="us-east-1")  # its first client takes longer than everything that a fork does
    kinds = {"killed-publishers": killed_publisher, "killed-collectors": killed_collector, "between": between}
    sys.stdout.write(json.dumps([kinds[sys.argv[1]](job) for job in json.loads(sys.argv[2])]))
