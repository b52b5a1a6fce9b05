"""Laws of snapshots: a later one extends the log of an earlier one, and every one is a sound catalog."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.catalog_samples import sample
from support.levels import examples

from registry.catalog import CatalogBackend, open_catalog
from registry.catalog.locations import MIRROR_REMOVE, RELOCATE, told_steps
from registry.catalog.site_index import is_local
from registry.catalog.snapshot import _Places, read_log_lines, write_snapshot
from registry.errors import RegistryError
from registry.model import Description, LocationStep, Reference, current_locations

NAMES = st.sampled_from(["birds", "b/plain", "b/tiny", "feathers"])
VERSIONS = st.sampled_from(["1.0.0", "1.0.1", "2.0.0"])
PLACES = st.sampled_from(["", "/srv/one", "file:///srv/two", "s3://bucket/three", "https://host/four", "data/five"])
ACTIONS = st.tuples(
    st.sampled_from(
        [
            *("publish", "publish", "publish", "yank", "undo", "drop", "remove", "promote", "describe", "alias"),
            *("unalias", "rename", "protect", "unprotect", "add", "take", "relocate", "correct", "experiment"),
        ]
    ),
    NAMES,
    VERSIONS,
    PLACES,
    PLACES,
)
CHOICES = (None, ("birds",), ("b",))


def act(catalog: CatalogBackend, action: str, name: str, version: str, place: str, other: str) -> None:  # noqa: PLR0912 (one for each action)
    """Do one thing to a catalog; refusals do nothing."""
    exactly = Reference.parse(f"{name}:{version}")
    change, actor = catalog.lifecycle, "zoe"
    try:
        match action:
            case "publish":
                made, shards = sample(str(exactly), content=place, lengths={"train": [2]})
                made = replace(made, location=place or made.location)
                catalog.publish(made, shards, promote=None, actor=actor)
            case "yank" | "drop":
                getattr(change, action)(exactly, "bad", actor=actor)
            case "undo":
                change.undo("yank", exactly, actor=actor)
            case "remove":
                change.drop(exactly, "bad", actor=actor)
                change.remove(exactly, grace=timedelta(), force=True, actor=actor)
                change.remove(exactly, is_done=True, force=True, actor="yann")
            case "promote":
                change.promote(exactly, actor=actor)
            case "describe":
                change.describe(exactly, Description(description=version, tags=["wild"]), actor=actor)
            case "alias":
                catalog.aliases.set("paper", exactly, expect=None, message=version, actor=actor)
            case "unalias":
                catalog.aliases.remove(Reference.parse(f"{name}@paper"), expect=None, message="", actor=actor)
            case "rename":
                catalog.rename("birds", "feathers" if name == "birds" else "plumes", actor=actor)
            case "protect" | "unprotect":
                scope = Reference.parse(name) if place else None
                catalog.configs.set_protection(scope, protect=action == "protect", actor=actor)
            case "add":
                catalog.locations.add(exactly, place or "data/six", actor=actor)
            case "take":
                catalog.locations.remove(exactly, place or f"{name}/{version}", actor=actor)
            case "relocate":
                catalog.locations.relocate(
                    exactly, place or f"{name}/{version}", other or f"{name}/{version}", actor=actor
                )
            case "correct":
                catalog.log.correct_clock(first=None if place else 1, last=None, ahead=timedelta(days=1), actor=actor)
            case _:
                catalog.experiments.add(version.replace(".", "_"), name, actor=actor)
    except RegistryError:  # a number that is used, a version that does not exist, nothing to change
        return


def chain(catalog: CatalogBackend, choice: tuple[str, ...] | None) -> list[str] | None:
    """The hashes of the log of a snapshot; None if a chosen dataset does not exist."""
    try:
        pieces = read_log_lines(catalog.snapshot(datasets=choice)).pieces
    except RegistryError:
        return None
    rows = b"".join(pieces).partition(b'{"table":"corrected_time"')[0].splitlines()
    return [json.loads(row)[-1] for row in rows if row.startswith(b"[")]


@settings(max_examples=examples(40))
@given(actions=st.lists(ACTIONS, min_size=1, max_size=14))
@example(
    actions=[
        ("publish", "birds", "1.0.0", "/srv/one", ""),
        ("describe", "birds", "1.0.0", "", ""),
        ("rename", "birds", "1.0.0", "", ""),
        ("relocate", "birds", "1.0.0", "/srv/one", "s3://bucket/three"),
        ("correct", "birds", "1.0.0", "", ""),
        ("remove", "birds", "1.0.0", "", ""),
    ]
)
def test_a_later_snapshot_extends_the_log_of_an_earlier_one(sqlite_template: Path, actions: list[Any]) -> None:
    known: dict[tuple[str, ...] | None, list[str]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        open_catalog(shutil.copy(sqlite_template, f"{folder}/catalog.db")) as catalog,
    ):
        for action in actions:
            act(catalog, *action)
            for choice in CHOICES:
                hashes = chain(catalog, choice)
                if hashes is not None:
                    before = known.get(choice, [])
                    assert hashes[: len(before)] == before
                    known[choice] = hashes
        for number, choice in enumerate(known):
            path = Path(folder, f"{number}.db")
            facts = write_snapshot(path, catalog.snapshot(datasets=choice), source="catalog", verify=True)
            assert (facts.head, facts.rows["event"]) == (([*known[choice]] or ["0" * 64])[-1], len(known[choice]))
            content = path.read_bytes()
            assert not [text for text in (b"zoe", b"yann", b"/srv/one", b"/srv/two") if text in content]


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "relocate"]), st.integers(0, 5), PLACES.filter(bool)), max_size=12
)


@given(published=PLACES.filter(bool), changes=STEPS)
def test_public_locations_are_those_of_the_catalog_without_paths(published: str, changes: list[Any]) -> None:
    """A path that is read first is the home of the version; other paths are left out."""
    places = _Places(version_id=1, published=published, folder=published)
    places.start("birds/1.0.0")
    steps: tuple[LocationStep, ...] = ()
    shown: list[LocationStep] = []
    for kind, number, location in changes:
        present = current_locations(published, steps)
        before = present[number % len(present)]
        details: dict[str, Any] = {"location": location}
        action = "mirror-add"
        if kind == "remove":
            if len(present) == 1:
                continue
            action, details = MIRROR_REMOVE, {"location": before}
        elif kind == "relocate":
            if before == location:
                continue
            action, details = RELOCATE, {"before": before, "after": location, "is_first": present[0] == before}
        taken = told_steps(action, details)
        steps += taken
        for public_action, public_details in places.move(taken):
            shown += told_steps(public_action, public_details)
    present = current_locations(published, steps)
    expected = [location for location in present if not is_local(location)]
    if is_local(present[0]):
        expected.insert(0, places.folder)
    found = current_locations(places.home, shown)
    assert sorted(found) == sorted(set(expected))
    assert not any(map(is_local, found))
    assert found == places.public
    if places.folder not in present:
        assert found[0] == expected[0]
