"""One of a crowd: a process that publishes, withdraws, promotes, moves aliases and reads, until its time is over.

python catalog_crowd.py URL NUMBER SECONDS      wait for a line, act, then print what came of it, as JSON

There are few version numbers, so that the processes conflict. Every outcome is counted by the code of its error, or as
``ok`` if the catalog was changed, ``same`` if there was nothing to change, or ``read``.
"""

from __future__ import annotations

import dataclasses
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable

from registry.catalog import CatalogBackend, load_shards, open_catalog
from registry.errors import RegistryError
from registry.model import Reference, Version
from support.catalog_samples import sample

LEAST = 30
"""Actions of each process at least, on however busy a machine."""

DATASETS = ("alone", "pair/left", "pair/right")


class Actor:
    """The actions of a process. ``published`` has the references that it published, according to the catalog."""

    def __init__(self, catalog: CatalogBackend, number: int) -> None:
        self.catalog = catalog
        self.name = f"actor {number}"
        self.chance = random.Random(number)
        self.published: list[str] = []
        self.refusals: list[str] = []
        self.moved = 0

    def act(self) -> tuple[str, str]:
        action = self.chance.choice(
            [self.publish, self.publish, self.read, self.read, self.read, self.stand, self.move, self.rename]
        )
        try:
            return action.__name__, action()
        except RegistryError as error:
            if error.code == "catalog":
                self.refusals.append(str(error))
            return action.__name__, error.code

    def publish(self) -> str:
        reference = f"{self.chance.choice(DATASETS)}:{self.chance.randrange(1, 4)}.0.{self.chance.randrange(20)}"
        version, shards = sample(reference, content=self.chance.choice("ab"))
        version = dataclasses.replace(version, name=self.catalog.standing(version.name, version.config).name)
        if not self.catalog.publish(version, shards, promote=self.chance.random() < 0.3, actor=self.name):
            return "same"
        self.published.append(reference)
        return "ok"

    def read(self) -> str:
        dataset = self.chance.choice(DATASETS)
        found = self.catalog.find(dataset + self.chance.choice(["", ":*", ":2.*", ":1.0.7", "@paper"]))
        assert [len(load_shards(self.catalog.shards, found, split.name)) for split in found.splits] == [3, 1]
        return "read"

    def stand(self) -> str:
        """Change the state of a version."""
        versions = self.catalog.versions(*parts(self.chance.choice(DATASETS)))
        chosen = self.chance.choice(versions)
        reference = Reference.exactly(chosen.name, chosen.config, chosen.version)
        lifecycle = self.catalog.lifecycle
        acts: list[Callable[[], object]] = [
            lambda: lifecycle.promote(reference, actor=self.name),
            lambda: lifecycle.deprecate(reference, "old", actor=self.name),
            lambda: lifecycle.yank(reference, "wrong", actor=self.name),
            lambda: lifecycle.undo("yank", reference, actor=self.name),
        ]
        change = self.chance.choice(acts)()
        return "ok" if change.is_change else "same"  # type: ignore[attr-defined]

    def move(self) -> str:
        """Compare and swap an alias."""
        dataset = self.chance.choice(DATASETS)
        name, config = parts(dataset)
        here = [one for one in self.catalog.aliases.list(dataset) if one.alias == "paper"]
        expected: Version | str = here[0].version if here else "none"
        target = self.chance.choice(self.catalog.versions(name, config)).version
        change = self.catalog.aliases.set(
            "paper", Reference.exactly(name, config, target), expect=expected, message="", actor=self.name
        )
        self.moved += change.is_change
        return "ok" if change.is_change else "same"

    def rename(self) -> str:
        """Give a dataset one of three names, of which it may have had some."""
        name, _ = parts(self.chance.choice(DATASETS))
        after = self.chance.choice([name, f"{name}_2", f"{name}_3"])
        return "ok" if self.catalog.rename(name, after, actor=self.name).is_change else "same"


def parts(dataset: str) -> tuple[str, str | None]:
    name, _, config = dataset.partition("/")
    return name, config or None


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(url: str, number: str, seconds: str) -> None:
    outcomes: Counter[str] = Counter()
    with open_catalog(url) as catalog:
        actor = Actor(catalog, int(number))
        say("ready")
        sys.stdin.readline()
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end or outcomes.total() < LEAST:
            outcomes[" ".join(actor.act())] += 1
    say(
        json.dumps(
            {"outcomes": outcomes, "published": actor.published, "moved": actor.moved, "refusals": actor.refusals}
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
