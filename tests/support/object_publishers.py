"""Publishers as processes of their own, for tests of object stores: killed at a step, or many at once.

python object_publishers.py kills JOBS               each dies at a step; then another run, then a reader; see `kills`
python object_publishers.py rounds PUBLISHERS ROUNDS [STORE]
                                                     many publish one number, again and again; prints a report

Publishers are forked from a process that has imported everything and opened nothing, so that a start costs little.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import registry
import registry.publishing  # everything is imported before the first fork
from registry.catalog import session
from registry.errors import RegistryError
from registry.storage.object_client import BucketClient

REQUESTS = ("facts", "begin_range", "get", "list", "writer_of", "put", "upload", "copy", "delete")


def die_before(wanted: int) -> list[str]:
    """End this process without a word before the ``wanted``-th request or transaction; gives the steps so far."""
    steps: list[str] = []

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            steps.append(name)
            if len(steps) == wanted:
                os._exit(9)
            return function(*arguments, **options)

        return call

    for name in REQUESTS:
        setattr(BucketClient, name, watched(name, getattr(BucketClient, name)))
    for name in ("connect", "begin"):
        setattr(session.sa.Engine, name, watched("transaction", getattr(session.sa.Engine, name)))
    return steps


def publish(url: str, data_dir: str, folder: str) -> dict[str, Any]:
    """Publish a folder and return the outcome."""
    try:
        with registry.connect(url, data_dir=data_dir) as catalog:
            publication = catalog.publish(folder)
            return {"newly": publication.newly, "notes": publication.notes}
    except RegistryError as error:
        return {"error": error.code, "exit_code": error.exit_code, "message": error.message, "hint": error.hint}
    except BaseException as error:  # noqa: BLE001 (the test wants to see it)
        return {"error": "untyped", "message": f"{type(error).__name__}: {error}"}


def fork(work: Callable[[], object]) -> tuple[int, int]:
    """Run ``work`` in a child, which writes its outcome as JSON into a pipe; the child and the pipe."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(writing, "w") as pipe:
                json.dump(work(), pipe)
        except BaseException:  # noqa: BLE001 (the caller's blocks wait for threads that the child does not have)
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    return child, reading


def wait(child: int, reading: int) -> Any:
    """The outcome that a child wrote, or None if it was killed."""
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def race(url: str, data_dir: str, folders: list[str]) -> list[Any]:
    """Publish each of ``folders`` in its own process, all at the same moment, and return the outcomes."""
    start = time.time() + 0.5

    def racer(folder: str) -> Callable[[], object]:
        def run() -> object:
            time.sleep(max(0, start - time.time() - 0.01))
            while time.time() < start:
                pass
            return publish(url, data_dir, folder)

        return run

    return [wait(*one) for one in [fork(racer(folder)) for folder in folders]]


def check(url: str, data_dir: str) -> dict[str, Any]:
    """The published animals:1.0.0, read and verified as a reader does, and the other files around it."""
    with registry.connect(url, data_dir=data_dir) as catalog:
        dataset = catalog.dataset("animals:1.0.0")
        ages = sorted(int(example["age"]) for example in dataset.read("train"))
        faults = [fault.problem for fault in dataset.verify(deep=True).faults]
        left = [str(one.reference) for one in catalog.reservations.list()]
        return {"ages": ages, "faults": faults, "reservations": left}


def rounds(publishers: int, count: int, seed: int = 0) -> dict[str, Any]:
    """Let many publish one number repeatedly, with equal and with different content, and count the outcomes."""
    from registry.catalog import schema
    from support.prepared_samples import animals, prepare

    chance, seen, faults = random.Random(seed), Counter[str](), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        contents = [
            str(prepare(folder / str(age), splits={"train": animals(20, age=age)}, shards=3))
            for age in range(50, 50 + publishers)
        ]
        schema.upgrade(folder / "template.db")
        for number in range(count):
            kinds = (1, 2, publishers)[number % 3]  # all the same, two contents, all others
            url = str(folder / f"{number}.db")
            Path(url).write_bytes((folder / "template.db").read_bytes())
            data_dir = f"{os.environ['RACE_BUCKET']}/{number}"
            folders = [contents[index % kinds] for index in range(publishers)]
            chance.shuffle(folders)
            outcomes = race(url, data_dir, folders)
            winners = [path for path, one in zip(folders, outcomes, strict=True) if one and one.get("newly")]
            for path, one in zip(folders, outcomes, strict=True):
                word = "died" if one is None else one.get("error") or ("published" if one["newly"] else "already")
                seen[word] += 1
                if word in ("died", "untyped") or (word == "already" and path != winners[0]):
                    faults.append(f"round {number}: {word} {one}")
                if word not in ("published", "already") and path in winners:
                    faults.append(f"round {number}: the same content was refused: {one}")
            found = wait(*fork(lambda: check(url, data_dir)))  # noqa: B023 (it runs before the next round)
            if len(winners) != 1:
                faults.append(f"round {number}: {len(winners)} winners")
            elif found["faults"] or found["reservations"] or int(Path(winners[0]).name) not in found["ages"]:
                faults.append(f"round {number}: {found}")
    return {"publishers": publishers, "rounds": count, "outcomes": dict(seen), "faults": faults}


def main(verb: str, *arguments: str) -> None:
    """See the module."""
    if verb == "kills":
        sys.stdout.write(json.dumps(kills(json.loads(arguments[0]))))
    elif verb == "rounds":
        publishers, count = map(int, arguments[:2])
        if "RACE_BUCKET" in os.environ:
            sys.stdout.write(json.dumps(rounds(publishers, count)))
            return
        sys.path.append(str(Path(__file__).parents[1]))
        from support.clouds import serving

        scheme = arguments[2] if arguments[2:] else "s3"
        with serving(scheme) as server:
            os.environ.update(server.environment(), RACE_BUCKET=f"{scheme}://race")
            server.create_bucket("race")
            sys.stdout.write(json.dumps(rounds(publishers, count), indent=2) + "\n")


def kills(jobs: list[dict[str, Any]]) -> list[Any]:
    """Run for each job a publisher that dies at a step, then another run, then a reader, and return the outcomes."""
    outcomes = []
    for job in jobs:

        def dying(job: dict[str, Any] = job) -> object:
            steps = die_before(job["step"])
            return {**publish(job["url"], job["data_dir"], job["folder"]), "steps": len(steps)}

        def rerun(job: dict[str, Any] = job) -> object:
            return publish(job["url"], job["data_dir"], job["then"])

        def reader(job: dict[str, Any] = job) -> object:
            return check(job["url"], job["data_dir"])

        outcomes.append([wait(*fork(work)) for work in (dying, rerun, reader)])
    return outcomes


if __name__ == "__main__":
    main(*sys.argv[1:])
