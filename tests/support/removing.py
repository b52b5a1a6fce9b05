"""Removals and descriptions that are killed at a step, and many processes that act on one version at the same moment.

python removing.py kills JOB      an action is killed before a step; then a look, the same action again, another look
python removing.py races JOB      processes act at the same moment on one version; then a look at what is left

A job is a JSON object with ``url``, ``data_dir``, ``mirrors`` (where mirrors are), ``folder`` (for prepared data) and
``seed``; with ``kind`` and ``part`` (a slice of the steps) for kills, ``processes`` and ``rounds`` for races. Each kill
and each round has a dataset of its own in the one catalog: a version with an attachment, whose shards are also at a
mirror.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import registry
import registry.intake.python_values  # everything is imported before the first fork
import registry.publishing.collecting
import registry.publishing.copying
import registry.publishing.removal
from registry.api.locations import open_data
from registry.catalog import is_published
from registry.errors import RegistryError
from registry.model import Attachment, Reference
from registry.publishing.attachments import attach
from registry.storage import open_store
from support.catalog_clocks import set_clocks
from support.killed_additions import watch
from support.object_publishers import fork, wait
from support.prepared_samples import animals, prepare

EVERY_STEP = 10_000
ROWS = [{"legs": number} for number in range(9)]
Job = dict[str, Any]


def make(job: Job, name: str, *, is_added: bool = False, is_dropped: bool = True) -> str:
    """Publish or add a version, attach a file to it, record a mirror, and drop it; gives its reference."""
    reference = f"{name}:1.0.0"
    with connect(job) as catalog:
        if is_added:
            catalog.add(ROWS, name)
        else:
            shape = {"name": name, "splits": {"train": animals(9)}, "shards": 2}
            catalog.publish(prepare(Path(job["folder"]) / name, **shape))  # type: ignore[arg-type]
        attach_notes(catalog, reference)
        version, place = catalog.dataset(reference).facts, f"{job['mirrors']}/{name}"
        for split in version.splits:
            for shard in split.filenames:
                open_store(place).create_from(shard, open_store(job["data_dir"]).child(version.location), shard)
        catalog.mirrors.add(reference, place)
        if is_dropped:
            catalog.lifecycle.drop(reference, reason="a person asked")
    return reference


def connect(job: Job) -> registry.Catalog:
    return registry.connect(job["url"], data_dir=job["data_dir"])


def attach_notes(catalog: registry.Catalog, reference: str, content: bytes = b"notes") -> None:
    version = published(catalog, reference)
    attachment = Attachment.of("notes", f"{content.decode()}.txt", content)
    data = open_data(catalog.data_dir, catalog=catalog.backend)
    attach(catalog.backend, data, version, attachment, content, actor="ann")


def published(catalog: registry.Catalog, reference: str) -> Any:
    exact = Reference.parse(reference)
    assert exact.exact is not None
    return catalog.backend.published(exact.name, None, exact.exact)


def look(job: Job, reference: str) -> dict[str, Any]:
    """The remains of a version: the step of its removal, its files, and the facts in the catalog."""
    name, _, number = reference.partition(":")
    places = [open_store(job["data_dir"]).child(f"{name}/{number}"), open_store(f"{job['mirrors']}/{name}")]
    with connect(job) as catalog:
        steps = [one.step.value for one in catalog.backend.lifecycle.removals() if str(one.reference) == reference]
        version = published(catalog, reference)
        return {
            "step": steps[0] if steps else "",
            "files": [[entry.name for entry in place.scan() if not entry.is_folder] for place in places],
            "undo": code_of(lambda: catalog.lifecycle.undo("drop", reference, dry_run=True)),
            "look-up": code_of(lambda: catalog.dataset(reference)),
            "publish": code_of(lambda: is_published(catalog.backend, version)),
            "reservations": len(catalog.reservations.list(name)),
            "described": descriptions(catalog, reference),
            "faults": [str(fault) for fault in catalog.verify_log().faults],
        }


def descriptions(catalog: registry.Catalog, reference: str) -> list[str]:
    """Who described a version. Each event begins with what the one before ended with, and the row has the last one."""
    fields: dict[str, Any] = {}
    actors = []
    for event in catalog.log(dataset=reference.partition(":")[0], actions=["describe"]):
        before, after = event.details["before"], event.details["after"]
        assert {name: fields.get(name, value) for name, value in before.items()} == before, (fields, event.details)
        assert before != after
        fields |= after
        actors.append(event.actor)
    metadata = published(catalog, reference).metadata
    row = {name: getattr(metadata, name) for name in fields}
    assert json.loads(json.dumps(row)) == fields, (row, fields)
    return actors


def code_of(call: Callable[[], object]) -> str:
    """``ok``, or the code of the error."""
    try:
        call()
    except RegistryError as error:
        return error.code
    return "ok"


def act(job: Job, reference: str) -> Any:
    """Do what is killed."""
    with connect(job) as catalog:
        if job["kind"] == "gc":
            return [leftover.outcome for leftover in catalog.collect_garbage() if leftover.kind == "removal"]
        if job["kind"] == "describe":
            return catalog.describe(reference, license="MIT", tags=["a"]).is_change
        return catalog.remove(reference, now=job["kind"] == "remove").require_all().removal.step


def kills(job: Job) -> list[Any]:
    """The outcomes of some steps, or of all: of each a triple of its number, what was killed, and what came then."""
    steps, outcomes = [EVERY_STEP], []
    for turn, step in enumerate(steps):  # the first one is never reached, and counts the others

        def started(step: int = step) -> str:
            reference = make(job, f"d{step}")
            if job["kind"] == "gc":
                with connect(job) as catalog:
                    catalog.remove(reference)
            return reference

        def dying(reference: str, step: int = step) -> object:
            count = watch(step)
            return {"outcome": act(job, reference), "steps": len(count)}

        def then(reference: str) -> object:
            return [look(job, reference), act(job, reference), look(job, reference)]

        with set_clocks(timedelta(days=8 * turn)):
            reference = wait(*fork(started))
        with set_clocks(timedelta(days=8 * turn + 8 * (job["kind"] == "gc"))):  # what is planned is due for it
            whole, rest = (wait(*fork(lambda work=work: work(reference))) for work in (dying, then))  # type: ignore[misc] # noqa: B023
        if turn:
            outcomes.append([step, whole, rest])
        else:
            every = [*range(1, whole["steps"] + 1)]
            random.Random(job["seed"]).shuffle(every)
            steps += every[slice(*job["part"])]
    return outcomes


def compete(job: Job, reference: str, chosen: str, seed: int) -> str:
    """Do one action on a version. Returns the action, and ``ok`` or the code of the error."""
    name, own = reference.partition(":")[0], f"{job['folder']}/{seed}-{time.time_ns()}"
    try:
        with connect(job) as catalog:

            def remove() -> None:
                catalog.lifecycle.drop(reference, reason="a person asked")
                catalog.remove(reference, now=True).require_all()

            def publish() -> None:
                if (folder := Path(job["folder"]) / name).exists():
                    catalog.publish(folder)
                else:
                    catalog.add(ROWS, name)

            def copy() -> None:
                is_copied = False
                with registry.connect(f"{own}.db", data_dir=own) as target:
                    try:
                        [copied] = catalog.copy(reference, target)
                        if copied.error is not None:
                            raise copied.error
                        is_copied = target.dataset(reference).verify(deep=True).faults == ()
                    finally:
                        assert is_copied is (code_of(lambda: target.dataset(reference)) == "ok")
                        assert is_copied or not list(Path(own).rglob("*tfrecord*"))

            def read() -> None:
                assert len(list(catalog.dataset(reference).read("train"))) == 9

            acts: dict[str, Callable[[], object]] = {
                "remove": remove,
                "plan": lambda: catalog.remove(reference),
                "undo": lambda: catalog.lifecycle.undo("drop", reference),
                "drop": lambda: catalog.lifecycle.drop(reference, reason="another one"),
                "gc": lambda: catalog.collect_garbage(older_than="1d"),
                "publish": publish,
                "attach": lambda: attach_notes(catalog, reference, f"notes{seed}".encode()),
                "read": read,
                "describe": lambda: catalog.describe(reference, description=f"{seed}", tags=[f"t{seed}"]),
                "alias": lambda: catalog.aliases.set(f"a{seed}", reference),
                "copy": copy,
            }
            return f"{chosen} {code_of(acts[chosen])}"
    except BaseException as error:  # noqa: BLE001 (the test wants to see it)
        return f"untyped {chosen} {type(error).__name__}: {error}"


RIVALS = ("remove", "undo", "publish", "describe", "alias", "copy", "read")
EVERYTHING = (*RIVALS, "plan", "drop", "gc", "attach")


def races(job: Job) -> dict[str, Any]:
    """Rounds in which everything meets, and rounds in which removals meet one other action, which take turns."""
    outcomes: Counter[str] = Counter()
    faults: list[Any] = []
    chance = random.Random(job["seed"])
    for number in range(job["rounds"]):
        rival = ("", *RIVALS)[number % (len(RIVALS) + 1)]

        def start(number: int = number, rival: str = rival) -> str:
            # What a removal meets is as often dropped as not, and published by a build as often as added.
            is_dropped = rival in ("", "undo") or number // (len(RIVALS) + 1) % 2 == 1
            return make(job, f"d{number}", is_added=chance.random() < 0.5, is_dropped=is_dropped)

        reference = wait(*fork(start))
        chance.random()  # the fork took it
        chosen = [
            ("remove", rival)[seed % 2] if rival else EVERYTHING[seed % len(EVERYTHING)]
            for seed in range(job["processes"])
        ]
        begin = time.time() + 0.3
        pauses = [chance.random() * job["processes"] / 8 for _ in chosen]

        def racer(seed: int, begin: float = begin, pauses: Any = pauses, chosen: Any = chosen) -> object:
            time.sleep(max(0, begin + pauses[seed] - time.time()))
            return compete(job, reference, chosen[seed], seed)  # noqa: B023 (it runs in this round)

        children = [fork(lambda seed=seed: racer(seed)) for seed in range(job["processes"])]  # type: ignore[misc]
        acts = [wait(*child) for child in children]
        outcomes.update(acts)
        before = wait(*fork(lambda: look(job, reference)))  # noqa: B023 (the same)
        after = wait(*fork(lambda: settle(job, reference)))  # noqa: B023 (the same)
        faults += [word for word in acts if word is None or word.startswith("untyped")]
        is_sound = before is not None and after is not None and not after["wrong"] and not before["faults"]
        if not is_sound or len(before["described"]) != acts.count("describe ok"):
            faults.append({"round": number, "acts": acts, "before": before, "after": after})
    return {"outcomes": dict(outcomes), "faults": faults}


def settle(job: Job, reference: str) -> dict[str, Any]:
    """After a race: a removal that has begun is ended and has left no file; or the whole version can be restored."""
    state = look(job, reference)
    with connect(job) as catalog:
        is_right = state["step"] != "ended" or state["files"] == [[], []]
        if state["step"] in ("begun", "ended"):
            catalog.remove(reference, now=True).require_all()
            state = look(job, reference)
            is_right &= (state["step"], state["files"], state["look-up"]) == ("ended", [[], []], "version_withdrawn")
            is_right &= (state["undo"], state["publish"]) == ("version_exists", "version_exists")
        else:
            catalog.lifecycle.undo("drop", reference)
        for version in catalog.versions(reference.partition(":")[0]):  # an addition may have made another one
            is_gone = str(version.reference) == reference and state["step"] == "ended"
            is_right &= is_gone or catalog.dataset(version.reference).verify(deep=True).faults == ()
        is_right &= not state["faults"] and not catalog.verify_log().faults and not state["reservations"]
        return {**state, "wrong": not is_right}


if __name__ == "__main__":
    kinds: dict[str, Callable[[Job], Any]] = {"kills": kills, "races": races}
    sys.stdout.write(json.dumps(kinds[sys.argv[1]](json.loads(sys.argv[2]))))
