"""Kills ``Catalog.add`` before each of its steps in turn: a script, one process for all runs.

    python killed_additions.py < {"catalog": URL, "data_dir": ..., "folder": DIR, "every": N}  ->  a JSON list

A step is a call of ``os`` that changes a disk, a write to a file, a request to a bucket, or a statement or transaction
of the catalog. For each step, ``folder/old.zip`` is published as 1.0.0 of a dataset of its own. Then a fork of this
process adds ``folder/new.zip`` to it and is killed before the step; a reader reads every version; the same addition
runs to its end; and a reader looks again. ``every`` says which steps are tried: 6 is each sixth.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import registry
import registry.intake.csv_files  # everything is imported before the first fork
import registry.intake.plan
import registry.intake.staging
import registry.publishing
from registry.catalog import session
from registry.errors import LeftoverWarning, RegistryError
from registry.storage.object_client import BucketClient
from support.killed_commands import CALLS, kill_at
from support.object_publishers import REQUESTS, fork, wait

STEPS = [
    *((os, name) for name in CALLS if name != "close"),  # too many, and nothing changes
    *((BucketClient, name) for name in REQUESTS),
    *((session.sa.Engine, name) for name in ("connect", "begin")),
    *((session.sa.Connection, name) for name in ("execute", "_commit_impl")),
]


def watch(number: int) -> list[str]:
    """End this process by SIGKILL before its ``number``-th step. Returns the steps so far."""
    return kill_at(number, STEPS)


def add(asked: dict[str, Any], source: str, name: str) -> dict[str, Any]:
    """Add a source, and return the outcome."""
    warnings.simplefilter("ignore", LeftoverWarning)
    try:
        with registry.connect(asked["catalog"], data_dir=asked["data_dir"]) as catalog:
            report = catalog.add(Path(asked["folder"], source), name)
            return {"outcome": report.outcome, "version": str(report.reference.request)}
    except RegistryError as error:
        return {"outcome": error.code, "message": error.message}
    except BaseException as error:  # noqa: BLE001 (the test wants to see it)
        return {"outcome": "untyped", "message": f"{type(error).__name__}: {error}"}
    finally:
        gc.collect()  # as at the end of an interpreter, which a fork leaves out: temporary folders are removed


def look(asked: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the versions with their records, as a reader sees them, and all other stored files."""
    with registry.connect(asked["catalog"], data_dir=asked["data_dir"]) as catalog:
        found, attached = {}, set()
        for version in catalog.versions(name):
            dataset = catalog.dataset(f"{name}:{version.version}")
            found[str(dataset.version)] = sorted(int(one["n"]) for one in dataset.read("train"))
            assert dataset.statistics["train"].num_examples == len(found[str(dataset.version)])
            attached |= {f"{dataset.version}/{attachment.place}" for attachment in dataset.attachments}
        files = stored(asked["data_dir"], name)
        return {
            "versions": found,
            "reservations": [str(one.reference) for one in catalog.reservations.list()],
            "folders": sorted({one.partition("/")[0] for one in files}),
            "hidden": [one for one in files if ("/." in one or "incomplete" in one) and one not in attached],
            "temporary": [one.name for one in Path(os.environ["TMPDIR"]).glob("shardbook-*")],
        }


def stored(data_dir: str, name: str) -> list[str]:
    """Every file below the folder of a dataset, also those that listings of stores hide."""
    scheme, separator, rest = data_dir.partition("://")
    if separator:
        found = BucketClient(scheme, rest).list(name, location=data_dir)
        return [one.key.removeprefix(f"{name}/") for one in found]
    root = Path(data_dir, name)
    return [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]


def try_step(asked: dict[str, Any], step: int) -> dict[str, Any]:
    """One dataset: published, added to until it is killed, read, added to again, read."""
    name = f"d{step}"
    row: dict[str, Any] = {"step": step, "first": wait(*fork(lambda: add(asked, "old.zip", name)))}

    def killed() -> object:
        steps = watch(step)
        return {**add(asked, "new.zip", name), "steps": len(steps)}

    row["killed"] = wait(*fork(killed))
    row["between"] = wait(*fork(lambda: look(asked, name)))
    row["again"] = wait(*fork(lambda: add(asked, "new.zip", name)))
    row["after"] = wait(*fork(lambda: look(asked, name)))
    return row


def count_steps(asked: dict[str, Any]) -> list[str]:
    """The steps of an addition that nobody kills."""

    def run() -> object:
        steps = watch(10**9)
        add(asked, "new.zip", "counted")
        return [*steps]

    wait(*fork(lambda: add(asked, "old.zip", "counted")))
    found: list[str] = wait(*fork(run))
    return found


def main() -> None:
    asked = json.load(sys.stdin)
    steps = count_steps(asked)
    chosen = range(len(steps) % asked["every"] + 1, len(steps) + 1, asked["every"])
    rows = [{**try_step(asked, step), "name": steps[step - 1]} for step in chosen]
    sys.stdout.write(json.dumps(rows))


if __name__ == "__main__":
    main()
