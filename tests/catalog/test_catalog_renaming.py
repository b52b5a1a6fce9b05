"""Renamed datasets: every name that a dataset has had goes on naming it, and no other dataset gets one."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.catalog_samples import damage, logged, publish, sample
from support.levels import either

from registry.catalog import (
    CatalogBackend,
    EventFilter,
    Holder,
    PublicationDetails,
    is_published,
    load_shards,
    open_catalog,
    schema,
)
from registry.errors import (
    ConflictError,
    DatasetNotFoundError,
    DatasetRenamedError,
    ReferenceSyntaxError,
    ReservedError,
    VersionExistsError,
)
from registry.model import (
    Attachment,
    Description,
    FeatureFingerprint,
    Producer,
    Reference,
    SplitFingerprint,
    Use,
    Version,
)

Start = Callable[..., "subprocess.Popen[str]"]
V1 = Version(1, 0, 0)
LEAF = FeatureFingerprint(digest="1" * 64, blocks=("2" * 64,))


def at(text: str) -> Reference:
    return Reference.parse(text)


def events(catalog: CatalogBackend, dataset: str) -> list[tuple[str, str]]:
    return [(event.action, event.dataset) for event in logged(catalog, dataset=dataset)]


def faults(catalog: CatalogBackend) -> list[str]:
    return [str(fault) for fault in catalog.log.verify().faults]


ASKED: dict[str, Callable[[CatalogBackend, str], Any]] = {
    "find": lambda c, name: c.find(name),
    "find exactly": lambda c, name: c.find(f"{name}/plain:1.0.0"),
    "find by a range": lambda c, name: c.find(f"{name}:^1.0"),
    "find by an alias": lambda c, name: c.find(f"{name}@paper"),
    "find a yanked version": lambda c, name: c.find(f"{name}:1.1.0"),
    "find at": lambda c, name: c.find_at(at(name), c.now()).version,
    "find a config at": lambda c, name: c.find_at(at(f"{name}/noisy"), c.now()).version,
    "published": lambda c, name: c.published(name, "plain", V1),
    "digest": lambda c, name: c.published_digest(name, "plain", V1),
    "neighbours": lambda c, name: c.neighbours(name, "plain", Version(1, 0, 1)),
    "standing": lambda c, name: c.standing(name),
    "standing at": lambda c, name: c.standing(name, "plain", at=c.now()),
    "versions": lambda c, name: c.versions(name, "plain"),
    "versions at": lambda c, name: c.versions(name, "plain", at=c.now()),
    "producers": lambda c, name: c.producers(name, "plain"),
    "configs": lambda c, name: c.configs.list(name),
    "protection": lambda c, name: c.configs.protection(name, "noisy"),
    "protection at": lambda c, name: c.configs.protection(name, "noisy", at=c.now()),
    "aliases": lambda c, name: c.aliases.list(name),
    "aliases of a config": lambda c, name: c.aliases.list(f"{name}/plain"),
    "alias history": lambda c, name: c.aliases.history(at(f"{name}@paper")),
    "removals": lambda c, name: c.lifecycle.removals(f"{name}/noisy"),
    "log": lambda c, name: [event.id for event in logged(c, dataset=name)],
    "log of a config": lambda c, name: [event.id for event in logged(c, dataset=f"{name}/plain")],
    "newest event": lambda c, name: c.log.page(EventFilter(dataset=name), newest=1),
    "fingerprints": lambda c, name: c.fingerprints(of(c, name)),
    "attachments": lambda c, name: c.attachments(of(c, name)),
    "experiments": lambda c, name: c.experiments.of_version(of(c, name)),
    "shards": lambda c, name: load_shards(c.shards, of(c, name), "train"),
    "shards by digest": lambda c, name: c.shards.find(
        name, "plain", [shard.sha256 for shard in load_shards(c.shards, of(c, name), "train")]
    ),
    "dry change": lambda c, name: c.lifecycle.deprecate(at(f"{name}:1.0.0"), "old", actor="x", dry_run=True).after,
    "is published": lambda c, name: is_published(c, of(c, name)),
}


def of(catalog: CatalogBackend, name: str) -> Any:
    """The version, as somebody who looked it up when it had that name has it."""
    return replace(catalog.find(f"{name}:1.0.0"), name=name)


def live(catalog: CatalogBackend) -> None:
    """A little of everything that a dataset has."""
    version, shards = sample("mnist/plain:1.0.0", experiments={})
    details = PublicationDetails(
        fingerprints={
            split.name: SplitFingerprint(num_examples=split.num_examples, features={"x": LEAF})
            for split in version.splits
        },
        attachments=(Attachment.of("statistics", "statistics.json", b"{}"),),
        producer=Producer(action="add", place="/here/mnist.csv"),
    )
    catalog.experiments.add("fast", "Fast.", actor="ann")
    assert catalog.publish(version, shards, promote=True, default_config=True, actor="ann", details=details)
    publish(catalog, "mnist/plain:1.1.0", content="other", promote=False)
    publish(catalog, "mnist/noisy:1.0.0")
    publish(catalog, "mnist/noisy:2.0.0", promote=False)
    catalog.aliases.set("paper", at("mnist:1.0.0"), expect=None, message="as submitted", actor="ann")
    catalog.lifecycle.yank(at("mnist:1.1.0"), "wrong", actor="ann")
    catalog.lifecycle.drop(at("mnist/noisy:2.0.0"), "licence", actor="ann")
    catalog.lifecycle.remove(at("mnist/noisy:2.0.0"), actor="ann")
    catalog.configs.set_protection(at("mnist/noisy"), protect=True, actor="ann")


def test_every_question_has_the_same_answer_under_every_name(catalog: CatalogBackend) -> None:
    live(catalog)
    catalog.rename("mnist", "digits", actor="bob")
    assert {name: ask(catalog, "mnist") for name, ask in ASKED.items()} == {
        name: ask(catalog, "digits") for name, ask in ASKED.items()
    }
    catalog.rename("digits", "numerals", actor="bob")
    for name in ("mnist", "digits"):
        assert {text: ask(catalog, name) for text, ask in ASKED.items()} == {
            text: ask(catalog, "numerals") for text, ask in ASKED.items()
        }
    found = catalog.find("digits@paper")
    assert (str(found.reference), found.names) == ("numerals/plain:1.0.0", ("mnist", "digits", "numerals"))
    assert found.location == "mnist/plain/1.0.0"
    assert found.split("train").filenames[0] == "mnist-train.tfrecord-00000-of-00003"
    assert catalog.configs.protection("mnist", "noisy") == "numerals/noisy"
    assert [str(removal.reference) for removal in catalog.lifecycle.removals()] == ["numerals/noisy:2.0.0"]
    assert faults(catalog) == []


def test_what_was_true_before_the_renaming_is_true_at_that_moment(catalog: CatalogBackend) -> None:
    live(catalog)
    before = catalog.now()
    moment = max(before, list(logged(catalog))[-1].at)
    catalog.rename("mnist", "digits", actor="bob")
    catalog.lifecycle.promote(at("digits/noisy:1.0.0"), actor="bob")
    catalog.lifecycle.undo("yank", at("digits:1.1.0"), actor="bob")
    catalog.lifecycle.describe(at("digits:1.0.0"), Description(license="MIT"), actor="bob")
    for name in ("mnist", "digits"):
        then = catalog.standing(name, "plain", at=moment)
        assert [candidate.state.value for candidate in then.candidates] == ["yanked", "supported"]
        past = catalog.find_at(at(f"{name}@paper"), moment)
        assert (past.version.metadata.license, past.version.name) == ("", "digits")
        assert catalog.configs.protection(name, "noisy", at=moment) == "digits/noisy"
        assert catalog.find(f"{name}:1.0.0").metadata.license == "MIT"


def test_changes_by_a_former_name_are_logged_with_the_present_one(catalog: CatalogBackend) -> None:
    live(catalog)
    catalog.rename("mnist", "digits", actor="bob")
    known = len(list(logged(catalog)))
    version = of(catalog, "mnist")
    catalog.lifecycle.promote(at("mnist:1.0.0"), actor="bob")
    catalog.lifecycle.deprecate(at("mnist:1.0.0"), "old", actor="bob")
    catalog.lifecycle.describe(at("mnist@paper"), Description(license="MIT"), actor="bob")
    catalog.lifecycle.remove(at("mnist/noisy:2.0.0"), grace=timedelta(days=30), actor="bob")
    catalog.aliases.set("best", at("mnist@paper"), expect=None, message="", actor="bob")
    catalog.aliases.remove(at("mnist@paper"), expect=V1, message="", actor="bob")
    catalog.configs.set_default("mnist", "noisy", actor="bob")
    catalog.configs.set_protection(at("mnist"), protect=True, actor="bob")
    catalog.configs.set_protection(at("mnist/noisy"), protect=False, actor="bob")
    catalog.locations.add(at("mnist/plain:1.0.0"), "s3://mirror/mnist", actor="bob")
    catalog.attach(version, Attachment.of("notes", "notes.txt", b"notes"), actor="bob")
    catalog.add_producer(at("mnist/plain:1.0.0"), Producer(action="build"), "replace", actor="bob")
    later = list(logged(catalog))[known:]
    assert {event.dataset.partition("/")[0] for event in later} == {"digits"}
    assert [event.action for event in later] == [
        "deprecate", "describe", "remove", "alias-set", "alias-remove", "default-config", "protect", "unprotect",
        "mirror-add", "attach", "producer",
    ]  # fmt: skip
    assert catalog.aliases.list("mnist") == catalog.aliases.list("digits")
    assert faults(catalog) == []


def test_references_in_use_by_a_former_name_are_told_what_changes(catalog: CatalogBackend) -> None:
    live(catalog)
    catalog.rename("mnist", "digits", actor="bob")
    uses = [Use(reference=at(text), place="paper") for text in ("mnist:1.0.0", "digits:1.0.0", "other:1.0.0")]
    change = catalog.lifecycle.drop(at("digits/plain:1.0.0"), "bad", actor="bob", dry_run=True, uses=uses)
    assert [str(use.reference) for use in change.uses] == ["mnist:1.0.0", "digits:1.0.0"]
    unnamed = [Use(reference=at("mnist"), place="paper")]
    assert catalog.configs.set_default("digits", "noisy", actor="bob", dry_run=True, uses=unnamed).uses == tuple(
        unnamed
    )
    catalog.aliases.remove(at("mnist@paper"), expect=None, message="", actor="bob")
    catalog.lifecycle.drop(at("digits/plain:1.0.0"), "bad", actor="bob")
    with pytest.raises(ConflictError, match=r"digits/plain:1\.0\.0 is in use: mnist:1\.0\.0 in paper"):
        catalog.lifecycle.remove(at("digits/plain:1.0.0"), actor="bob", uses=uses)


def test_no_dataset_gets_a_name_that_another_has_or_had(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    publish(catalog, "cifar:1.0.0")
    with pytest.raises(DatasetRenamedError, match=r"^the name cifar is taken") as taken:
        catalog.rename("mnist", "cifar", actor="bob")
    assert taken.value.details == {"name": "cifar", "renamed_to": "cifar"}
    catalog.rename("mnist", "digits", actor="bob")
    with pytest.raises(DatasetRenamedError, match=r"^the name mnist was that of the dataset digits"):
        catalog.rename("cifar", "mnist", actor="bob")
    with pytest.raises(DatasetRenamedError, match=r"^the name digits is taken"):
        catalog.rename("cifar", "digits", actor="bob")
    with pytest.raises(ReferenceSyntaxError, match="a dataset cannot be named 'Digits'"):
        catalog.rename("mnist", "Digits", actor="bob")
    with pytest.raises(ReferenceSyntaxError, match="dataset name"):
        catalog.rename("mnist", "a/b", actor="bob")
    with pytest.raises(DatasetNotFoundError, match="no dataset 'mnits'"):
        catalog.rename("mnits", "other", actor="bob")
    assert [event.action for event in logged(catalog)] == ["publish", "publish", "rename"]
    assert faults(catalog) == []


def test_a_dataset_may_be_renamed_back_and_again(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    for after, names in (
        ("digits", ("mnist", "digits")),
        ("mnist", ("mnist", "digits")),
        ("digits", ("mnist", "digits")),
        ("numerals", ("mnist", "digits", "numerals")),
    ):
        before = catalog.find("mnist").name
        renaming = catalog.rename("mnist", after, actor="bob")
        assert (renaming.before, renaming.after, renaming.names) == (before, after, names)
        assert (renaming.is_change, catalog.find("mnist").names) == (True, names)
        assert not catalog.rename("mnist", after, actor="bob").is_change
    publish(catalog, "numerals:1.1.0", content="more")
    assert events(catalog, "digits") == [
        ("publish", "mnist"), ("rename", "mnist"), ("rename", "digits"), ("rename", "mnist"), ("rename", "digits"),
        ("publish", "numerals"),
    ]  # fmt: skip
    assert faults(catalog) == []


def test_a_number_is_never_used_again_under_another_name(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    catalog.rename("mnist", "digits", actor="bob")
    same, shards = sample("digits:1.0.0", content="other")
    with pytest.raises(VersionExistsError, match=r"^digits:1\.0\.0 is published with other content"):
        catalog.publish(same, shards, promote=None, actor="ann")
    # The same content again is what a publisher sends who does not know the new name. Nothing is written.
    known, shards = sample("mnist:1.0.0")
    assert catalog.publish(known, shards, promote=None, actor="ann") is None
    later, shards = sample("mnist:1.1.0")
    with pytest.raises(DatasetRenamedError, match=r"^the dataset mnist was renamed: it is digits now") as refused:
        catalog.publish(later, shards, promote=None, actor="ann")
    assert refused.value.details == {"name": "mnist", "renamed_to": "digits"}
    config, shards = sample("mnist/plain:1.0.0")
    with pytest.raises(ConflictError):
        catalog.publish(config, shards, promote=None, actor="ann")
    assert [str(summary.version) for summary in catalog.versions("mnist")] == ["1.0.0"]
    assert [dataset.name for dataset in catalog.datasets()] == ["digits"]
    publish(catalog, "digits:1.1.0", content="new")
    catalog.rename("digits", "mnist", actor="bob")
    again, shards = sample("mnist:1.1.0", content="other")
    with pytest.raises(VersionExistsError, match=r"^mnist:1\.1\.0 is published with other content"):
        catalog.publish(again, shards, promote=None, actor="ann")
    assert faults(catalog) == []


def test_a_number_of_a_deleted_dataset_keeps_its_name(catalog: CatalogBackend, catalog_url: str) -> None:
    publish(catalog, "mnist:1.0.0")
    damage(catalog_url, "UPDATE version_ledger SET builder_name = 'gone'")
    publish(catalog, "cifar:1.0.0")
    with pytest.raises(DatasetRenamedError, match=r"^the name gone is taken"):
        catalog.rename("cifar", "gone", actor="bob")


def test_a_publisher_that_is_sending_files_is_not_disturbed(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    version, _ = sample("mnist:1.1.0")
    holder = Holder.of_this_process("ann")
    held, _ = catalog.reservations.reserve("s3://data/mnist/1.1.0", at("mnist:1.1.0"), version.content_digest, holder)
    with pytest.raises(ReservedError, match=r"^mnist:1\.1\.0 is being published by .*: s3://data/mnist/1\.1\.0"):
        catalog.rename("mnist", "digits", actor="bob")
    config = catalog.reservations.reserve("s3://data/x", at("cifar/new:1.0.0"), version.content_digest, holder)[0]
    publish(catalog, "cifar/plain:1.0.0")
    with pytest.raises(ReservedError, match=r"^cifar/new:1\.0\.0 is being published by "):
        catalog.rename("cifar", "pictures", actor="bob")
    catalog.reservations.leave(config, holder, forget=True)
    catalog.reservations.leave(held, holder, forget=False)
    assert catalog.rename("mnist", "digits", actor="bob").is_change
    [left] = catalog.reservations.list("digits")
    assert left.reference == "mnist:1.1.0"
    assert catalog.reservations.release("digits", "1.1.0") == (left,)


def test_a_dry_run_writes_nothing_and_refuses_the_same(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    publish(catalog, "cifar:1.0.0")
    dry = catalog.rename("mnist", "digits", actor="bob", dry_run=True)
    assert (dry.is_change, dry.names, dry.is_dry_run) == (True, ("mnist", "digits"), True)
    with pytest.raises(DatasetRenamedError):
        catalog.rename("mnist", "cifar", actor="bob", dry_run=True)
    assert [dataset.name for dataset in catalog.datasets()] == ["cifar", "mnist"]
    with pytest.raises(DatasetNotFoundError):
        catalog.find("digits")
    assert len(list(logged(catalog))) == 2


def test_a_search_finds_every_name(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    catalog.rename("mnist", "numerals", actor="bob")
    publish(catalog, "numerals:1.1.0", content="more")
    for name in ("numerals", "mnist"):
        assert [hit.dataset for hit in catalog.search(name)] == ["numerals"]
    assert faults(catalog) == []  # the search document is compared, too


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        (
            "UPDATE builder SET name = 'mnist'",
            "mnist has the name mnist among its names mnist, digits; its events say digits",
        ),
        ("UPDATE builder SET name = 'forged'", "forged has the name forged among"),
        ("DELETE FROM dataset_name", "digits:1.0.0 is published, but no event says so"),
        (
            "UPDATE dataset_name SET position = 7 WHERE name = 'mnist'",
            "among its names digits, mnist; its events say digits among its names mnist, digits",
        ),
        (
            "UPDATE dataset_name SET name = 'others' WHERE name = 'mnist'",
            "digits:1.0.0 is published, but no event says so",
        ),
        ("DELETE FROM event WHERE action = 'rename'", "is missing"),
        ("UPDATE version_ledger SET builder_name = 'mnist'", "is in the ledger as one of mnist; its event"),
    ],
)
def test_a_name_that_was_changed_past_the_registry_is_found(
    catalog: CatalogBackend, catalog_url: str, statement: str, found: str
) -> None:
    publish(catalog, "mnist:1.0.0")
    catalog.rename("mnist", "digits", actor="bob")
    publish(catalog, "digits:1.1.0", content="more")
    damage(catalog_url, statement)
    assert found in "\n".join(faults(catalog))


@pytest.mark.parametrize("step", either(5, 1))
def test_a_renaming_that_is_killed_at_any_step_is_whole_or_absent(
    catalog: CatalogBackend, catalog_url: str, start_script: Start, step: int
) -> None:
    publish(catalog, "mnist/plain:1.0.0")
    publish(catalog, "mnist/noisy:1.0.0")
    catalog.configs.set_protection(at("mnist/noisy"), protect=True, actor="ann")
    process = start_script("catalog_describer.py", "kill", catalog_url, str(step), "rename")
    codes = json.loads(process.communicate(timeout=120)[0])
    assert (codes[-1], set(codes[:-1])) == (0, {-9})
    assert len(codes) > 15 // step
    # No killed process left a name, a protection or an event.
    assert [event.action for event in logged(catalog)][-2:] == ["protect", "rename"]
    assert catalog.find("mnist/noisy").names == ("mnist", "digits")
    assert catalog.configs.protection("digits", "noisy") == "digits/noisy"
    assert faults(catalog) == []
    assert schema.check(catalog_url) == []


@pytest.fixture
def empty_catalog(sqlite_template: Path, tmp_path: Path) -> Callable[[], CatalogBackend]:
    """Opens an empty catalog, another one each time."""
    numbers = count()
    return lambda: open_catalog(shutil.copy(sqlite_template, tmp_path / f"{next(numbers)}.db"))


NAMES = ("one", "two", "three", "four")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("rename"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
            st.tuples(st.just("publish"), st.sampled_from(NAMES), st.integers(1, 4)),
            st.tuples(st.just("alias"), st.sampled_from(NAMES), st.integers(1, 4)),
        ),
        max_size=14,
    )
)
def test_a_name_means_one_dataset_forever(empty_catalog: Callable[[], CatalogBackend], steps: list[Any]) -> None:
    """Beside a model: a dataset is the set of its names; whoever has a name keeps it."""
    owners: dict[str, int] = {}
    present: dict[int, str] = {}
    numbers: dict[int, set[int]] = {}
    with empty_catalog() as catalog:
        for kind, name, value in steps:
            owner = owners.get(name)
            if kind == "publish":
                if owner is not None and present[owner] != name and value not in numbers[owner]:
                    with pytest.raises(DatasetRenamedError):
                        publish(catalog, f"{name}:{value}.0.0")
                elif owner is None or value not in numbers[owner]:
                    owner = owners.setdefault(name, len(present))
                    present.setdefault(owner, name)
                    numbers.setdefault(owner, set()).add(value)
                    publish(catalog, f"{name}:{value}.0.0")
            elif owner is None:
                with pytest.raises(DatasetNotFoundError):
                    catalog.rename(name, "five", actor="bob")
            elif kind == "rename":
                if owners.get(value, owner) != owner:
                    with pytest.raises(DatasetRenamedError):
                        catalog.rename(name, value, actor="bob")
                else:
                    assert catalog.rename(name, value, actor="bob").is_change is (present[owner] != value)
                    owners[value], present[owner] = owner, value
            elif value in numbers[owner]:
                catalog.aliases.set("best", at(f"{name}:{value}.0.0"), expect=None, message="", actor="bob")
        for name in NAMES:
            if name not in owners:
                with pytest.raises(DatasetNotFoundError):
                    catalog.standing(name)
                continue
            standing = catalog.standing(name)
            assert standing.name == present[owners[name]]
            assert {candidate.version.major for candidate in standing.candidates} == numbers[owners[name]]
            assert catalog.standing(name, at=list(logged(catalog))[-1].at) == standing
            had = {other for other in owners if owners[other] == owners[name]}
            assert set(standing.names) == (had if len(had) > 1 else set())
        assert faults(catalog) == []
