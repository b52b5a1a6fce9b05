"""What every implementation of the catalog protocol has to do: values that travel, typed errors, one action a call."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from threading import Barrier
from typing import Any

import pytest
from support.catalog_samples import logged, publish, sample

from registry.catalog import CatalogBackend, DatasetFilter, EventFilter, Holder, PublishedShards, load_shards
from registry.errors import (
    AliasMovedError,
    ConflictError,
    MissingExtraError,
    NotFoundError,
    RegistryError,
    UsageError,
    VersionExistsError,
)
from registry.model import Reference, Version


def at(text: str) -> Reference:
    return Reference.parse(text)


def test_every_answer_can_be_sent_and_is_equal_there(catalog: CatalogBackend) -> None:
    version = publish(catalog, "mnist:1.0.0", experiments={"flag": True})
    catalog.aliases.set("paper", at("mnist:1.0.0"), expect=None, message="", actor="ann")
    held = catalog.reservations.reserve("s3://bucket/a", at("other:1.0.0"), "0" * 64, Holder.of_this_process("ann"))
    answers = [
        catalog.find("mnist"),
        catalog.find_at(at("mnist"), datetime.now(UTC)),
        catalog.published("mnist", None, Version(1, 0, 0)),
        catalog.neighbours("mnist", None, Version(1, 5, 0)),
        catalog.standing("mnist"),
        catalog.versions("mnist"),
        catalog.sizes(),
        catalog.datasets(),
        catalog.search("mnist"),
        catalog.aliases.list(),
        catalog.aliases.history(at("mnist@paper")),
        catalog.configs.list("mnist"),
        catalog.configs.set_protection(None, protect=True, actor="ann", dry_run=True),
        catalog.experiments.list(),
        catalog.experiments.of_version(version),
        catalog.lifecycle.yank(at("mnist:1.0.0"), "wrong", actor="ann", dry_run=True),
        catalog.log.page(EventFilter()),
        catalog.log.verify(),
        held,
        catalog.reservations.list(),
        catalog.shards.between(version, "train", 0, 3),
        catalog.shards.find("mnist", None, [shard.sha256 for shard in load_shards(catalog.shards, version, "train")]),
    ]
    for answer in answers:
        assert answer
        assert pickle.loads(pickle.dumps(answer)) == answer  # noqa: S301 (made here)


def test_an_error_arrives_with_its_kind_hint_and_details(catalog: CatalogBackend) -> None:
    version = publish(catalog, "mnist:1.0.0")
    other, shards = sample("mnist:1.0.0", content="other")

    with pytest.raises(VersionExistsError) as refused:
        catalog.publish(other, shards, promote=True, actor="bob")
    assert refused.value.exit_code == 4
    assert refused.value.details == {"published": version.content_digest, "offered": other.content_digest}
    assert refused.value.hint is not None
    with pytest.raises(NotFoundError) as missing:
        catalog.find("mnits")
    assert "mnist" in (missing.value.hint or "")
    with pytest.raises(AliasMovedError) as moved:
        catalog.aliases.set("paper", at("mnist:1.0.0"), expect=Version(9, 0, 0), message="", actor="ann")
    assert moved.value.details["expected"] == "9.0.0"


@pytest.mark.parametrize(
    "error", [one for one in RegistryError.__subclasses__() if one.__module__ == "registry.errors"]
)
def test_errors_can_be_sent(error: type[RegistryError]) -> None:
    if error is MissingExtraError:
        made: RegistryError = MissingExtraError(package="psycopg", extra="pg", needed_for="a PostgreSQL catalog")
    else:
        made = error("it happened", hint="do this", details={"name": "x"})
    sent = pickle.loads(pickle.dumps(made))  # noqa: S301 (made here)
    assert (type(sent), sent.message, sent.hint, sent.details) == (error, made.message, made.hint, made.details)


def test_of_two_publications_of_one_number_at_once_one_wins(catalog: CatalogBackend) -> None:
    barrier = Barrier(2, timeout=60)

    def run(content: str) -> str:
        version, shards = sample("mnist:1.0.0", content=content)
        barrier.wait()
        try:
            catalog.publish(version, shards, promote=True, actor=content)
        except ConflictError as error:
            return error.code
        return "published"

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(run, "ab")) == ["published", "version_exists"]
    assert [one.action for one in logged(catalog)] == ["publish"]


def test_an_action_that_is_interrupted_leaves_nothing(catalog: CatalogBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(catalog, "mnist:1.0.0")
    before = (catalog.log.page(EventFilter()), catalog.standing("mnist"))

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        for module in ("writes", "lifecycle", "aliases"):
            patch.setattr(f"registry.catalog.{module}.append_event", interrupted)
        version, shards = sample("mnist:2.0.0")
        for action in (
            lambda: catalog.publish(version, shards, promote=True, actor="ann"),
            lambda: catalog.lifecycle.yank(at("mnist:1.0.0"), "wrong", actor="ann"),
            lambda: catalog.aliases.set("paper", at("mnist:1.0.0"), expect=None, message="", actor="ann"),
        ):
            with pytest.raises(KeyboardInterrupt):
                action()

    assert (catalog.log.page(EventFilter()), catalog.standing("mnist")) == before


def test_events_come_by_pages(catalog: CatalogBackend) -> None:
    for minor in range(5):
        publish(catalog, f"mnist:1.{minor}.0", content=str(minor))
    everything = EventFilter(actions=("publish",))
    assert [one.id for one in catalog.log.page(everything, limit=2)] == [1, 2]
    assert [one.id for one in catalog.log.page(everything, after=2, limit=2)] == [3, 4]
    assert [one.id for one in catalog.log.page(everything, newest=2)] == [4, 5]
    assert catalog.log.page(everything, after=5) == ()


def test_promises_of_a_version_are_loaded_by_ranges_and_sent_whole(catalog: CatalogBackend) -> None:
    version = publish(catalog, "mnist:1.0.0", lengths={"train": [1] * 600, "test": [2]})
    promises = PublishedShards.of_version(catalog.shards, version)
    stored = load_shards(catalog.shards, version, "train")
    name = version.split("train").filename(599)
    assert promises.find(name) == stored[599]
    assert promises.find("dataset_info.json") is None
    sent = pickle.loads(pickle.dumps(promises.within(["train"])))  # noqa: S301 (made here)
    assert [sent.find(version.split("train").filename(index)) for index in (0, 599)] == [stored[0], stored[599]]
    assert sent.find(version.split("test").filename(0)) is None


def test_a_number_that_is_too_large_is_not_damage_of_the_catalog(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    calls: list[Callable[[int], object]] = [
        lambda number: catalog.log.page(EventFilter(), after=number),
        lambda number: catalog.log.page(EventFilter(before=number)),
        lambda number: catalog.access.refusals(before=number),
        lambda number: catalog.shards.lengths_between(1, 0, number),
        lambda number: catalog.shards.lengths_at(1, number, 512),
    ]
    for call in calls:
        for number in (2**31, 2**63, 2**70):
            with suppress(UsageError):
                call(number)
    with pytest.raises(UsageError, match="a value cannot be stored in a database"):
        catalog.log.page(EventFilter(), after=2**63)


def test_lists_are_chosen_by_few_tags_and_actions(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0")
    assert catalog.datasets(DatasetFilter(tags=["a"] * 100)) == ()
    with pytest.raises(UsageError, match="a list is chosen by at most 100 tags, not 101"):
        catalog.datasets(DatasetFilter(tags=["a"] * 101))
    for call in (lambda actions: catalog.log.page(EventFilter(actions=actions)), lambda it: catalog.events(actions=it)):
        assert call(("publish",) * 100)
        with pytest.raises(UsageError, match="events are chosen by at most 100 actions, not 101"):
            call(("publish",) * 101)


def test_a_limit_is_checked_alike_everywhere(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0", location="/elsewhere/mnist/1.0.0")
    catalog.aliases.set("best", at("mnist:1.0.0"), expect=None, message="", actor="ann")
    lists: list[Callable[..., tuple[Any, ...]]] = [
        catalog.access.tokens,
        catalog.aliases.list,
        catalog.datasets,
        catalog.lifecycle.removals,
        catalog.locations.outside,
        catalog.sizes,
        partial(catalog.versions, "mnist"),
        partial(catalog.versions, "mnist", at=datetime(2100, 1, 1, tzinfo=UTC)),
    ]
    for call in lists:
        assert call(limit=0) == ()
        assert len(call(limit=2**70)) == len(call())
        for wrong in (-1, -(2**70)):
            with pytest.raises(UsageError, match=f"^limit must be 0 or more, not {wrong}"):
                call(limit=wrong)
