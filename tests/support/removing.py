"""Removals that are killed at a step, and many processes that remove, restore and publish one version at once.

python removing.py kills JOB      a removal dies before a step; then a look, the same removal again, and another look
python removing.py races JOB      processes act at the same moment on a dropped version; then a look at what is left

A job is a JSON object with ``url``, ``data_dir`` and ``folder`` (for prepared data); ``steps`` for kills, ``processes``
and ``rounds`` for races. Each kill and each round has a dataset of its own in the one catalog.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import registry
import registry.publishing.collecting  # everything is imported before the first fork
import registry.publishing.removal
from registry.api.locations import open_data
from registry.catalog import is_published
from registry.errors import RegistryError
from registry.model import Attachment, Reference
from registry.publishing.attachments import attach
from registry.storage import open_store
from support.object_publishers import die_before, fork, wait
from support.prepared_samples import animals, prepare

DISK_CALLS = ("unlink", "rmdir", "fsync")
Job = dict[str, Any]


def make(job: Job, name: str) -> str:
    """Publish a version, attach a file to it, drop it, and give its reference."""
    folder = prepare(Path(job["folder"]) / name, name=name, splits={"train": animals(9)}, shards=2)
    with registry.connect(job["url"], data_dir=job["data_dir"]) as catalog:
        catalog.publish(folder)
        attach_notes(catalog, f"{name}:1.0.0")
        catalog.lifecycle.drop(f"{name}:1.0.0", reason="a person asked")
    return f"{name}:1.0.0"


def attach_notes(catalog: registry.Catalog, reference: str, content: bytes = b"notes") -> None:
    exact = Reference.parse(reference)
    assert exact.exact is not None
    version = catalog.backend.published(exact.name, None, exact.exact)
    assert version is not None
    attachment = Attachment.of("notes", f"{content.decode()}.txt", content)
    data = open_data(catalog.data_dir, catalog=catalog.backend)
    attach(catalog.backend, data, version, attachment, content, actor="ann")


def die_at(step: int) -> list[str]:
    """End this process before a step: a request, a transaction, or a call that changes a disk; gives the steps."""
    steps = die_before(step)

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            steps.append(name)
            if len(steps) == step:
                os._exit(9)
            return function(*arguments, **options)

        return call

    for name in DISK_CALLS:
        setattr(os, name, watched(name, getattr(os, name)))
    return steps


def look(job: Job, reference: str) -> dict[str, Any]:
    """What a removal has left: its step, the files of the version, and what the catalog says about it."""
    exact = Reference.parse(reference)
    assert exact.exact is not None
    with registry.connect(job["url"], data_dir=job["data_dir"]) as catalog:
        steps = [one.step.value for one in catalog.backend.lifecycle.removals() if one.reference == exact]
        version = catalog.backend.published(exact.name, None, exact.exact)
        assert version is not None
        return {
            "step": steps[0] if steps else "",
            "files": sorted(
                entry.name for entry in open_store(job["data_dir"]).scan(exact.name) if not entry.is_folder
            ),
            "undo": code_of(lambda: catalog.lifecycle.undo("drop", reference, dry_run=True)),
            "look-up": code_of(lambda: catalog.dataset(reference)),
            "publish": code_of(lambda: is_published(catalog.backend, version)),
            "reservations": len(catalog.reservations.list(exact.name)),
            "faults": [str(fault) for fault in catalog.verify_log().faults],
        }


def code_of(call: Callable[[], object]) -> str:
    """``ok``, or the code of the error."""
    try:
        call()
    except RegistryError as error:
        return error.code
    return "ok"


def remove(job: Job, reference: str) -> dict[str, Any]:
    with registry.connect(job["url"], data_dir=job["data_dir"]) as catalog:
        return {"step": catalog.remove(reference, now=True).require_all().removal.step}


def kills(job: Job) -> list[Any]:
    outcomes = []
    for step in job["steps"]:
        reference = wait(*fork(lambda step=step: make(job, f"d{step}")))

        def dying(step: int = step, reference: str = reference) -> object:
            steps = die_at(step)
            return {**remove(job, reference), "steps": len(steps)}

        works: list[Callable[[], object]] = [
            dying,
            lambda reference=reference: look(job, reference),  # type: ignore[misc]
            lambda reference=reference: remove(job, reference),  # type: ignore[misc]
            lambda reference=reference: look(job, reference),  # type: ignore[misc]
        ]
        outcomes.append([wait(*fork(work)) for work in works])
    return outcomes


def act(job: Job, reference: str, seed: int) -> str:
    """Do one thing to a dropped version; gives what, and ``ok`` or the code of the error."""
    name = reference.partition(":")[0]
    try:
        with registry.connect(job["url"], data_dir=job["data_dir"]) as catalog:
            acts: dict[str, Callable[[], object]] = {
                "remove": lambda: catalog.remove(reference, now=True).require_all(),
                "plan": lambda: catalog.remove(reference),
                "undo": lambda: catalog.lifecycle.undo("drop", reference),
                "drop": lambda: catalog.lifecycle.drop(reference, reason="another one"),
                "gc": lambda: catalog.collect_garbage(older_than="1d"),
                "publish": lambda: catalog.publish(Path(job["folder"]) / name),
                "attach": lambda: attach_notes(catalog, reference, f"notes{seed}".encode()),
                "read": lambda: len(list(catalog.dataset(reference).read("train"))),
            }
            chosen = list(acts)[seed % len(acts)]
            return f"{chosen} {code_of(acts[chosen])}"
    except BaseException as error:  # noqa: BLE001 (the test wants to see it)
        return f"untyped {type(error).__name__}: {error}"


def races(job: Job) -> dict[str, Any]:
    outcomes: Counter[str] = Counter()
    faults: list[Any] = []
    chance = random.Random(job.get("seed", 0))
    for number in range(job["rounds"]):
        reference = wait(*fork(lambda number=number: make(job, f"d{number}")))
        start = time.time() + 0.3
        pauses = [chance.random() * job.get("spread", 0.3) for _ in range(job["processes"])]

        def racer(seed: int, start: float = start, pauses: Any = pauses, reference: str = reference) -> object:
            time.sleep(max(0, start + pauses[seed] - time.time()))
            return act(job, reference, seed)

        children = [fork(lambda seed=seed: racer(seed)) for seed in range(job["processes"])]  # type: ignore[misc]
        acts = [wait(*child) for child in children]
        outcomes.update(acts)
        before = wait(*fork(lambda reference=reference: look(job, reference)))
        after = wait(*fork(lambda reference=reference: settle(job, reference)))
        faults += [word for word in acts if word is None or word.startswith("untyped")]
        if before is None or after is None or after["wrong"] or before["faults"]:
            faults.append({"round": number, "acts": acts, "before": before, "after": after})
    return {"outcomes": dict(outcomes), "faults": faults}


def settle(job: Job, reference: str) -> dict[str, Any]:
    """After a race: a removal that has begun is ended and has left no file; or the whole version can be restored."""
    state = look(job, reference)
    with registry.connect(job["url"], data_dir=job["data_dir"]) as catalog:
        if state["step"] in ("begun", "ended"):
            catalog.remove(reference, now=True).require_all()
            state = look(job, reference)
            is_right = (state["step"], state["files"], state["look-up"]) == ("ended", [], "version_withdrawn")
            is_right = is_right and (state["undo"], state["publish"]) == ("version_exists", "version_exists")
        else:
            catalog.lifecycle.undo("drop", reference)
            is_right = catalog.dataset(reference).verify(deep=True).faults == ()
        is_right = is_right and not state["faults"] and not catalog.verify_log().faults and not state["reservations"]
        return {**state, "wrong": not is_right}


if __name__ == "__main__":
    kinds: dict[str, Callable[[Job], Any]] = {"kills": kills, "races": races}
    sys.stdout.write(json.dumps(kinds[sys.argv[1]](json.loads(sys.argv[2]))))
