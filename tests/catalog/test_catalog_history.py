"""What stood at a moment that is gone: the event log, replayed, says what the tables said then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.catalog_samples import execute, logged, publish, sample
from support.levels import examples

from registry.catalog import CatalogBackend, open_catalog
from registry.errors import (
    AliasNotFoundError,
    ConfigNotFoundError,
    DatasetNotFoundError,
    NotFoundError,
    RegistryError,
    VersionNotFoundError,
    VersionWithdrawnError,
)
from registry.model import Reference, Standing, Version, VersionState, choose
from registry.model.changes import answer

NUMBERS = ("1.0.0", "1.1.0", "2.0.0")
configs = st.sampled_from([0, 1])
numbers = st.sampled_from(NUMBERS)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), configs, numbers, st.booleans(), st.booleans()),
        st.tuples(st.sampled_from(["promote", "deprecate", "yank", "drop"]), configs, numbers),
        st.tuples(st.sampled_from(["undo-deprecate", "undo-yank", "undo-drop"]), configs, numbers),
        st.tuples(st.just("alias-set"), configs, numbers, st.sampled_from(["paper", "stable"])),
        st.tuples(st.just("alias-rm"), configs, st.sampled_from(["paper", "stable"])),
        st.tuples(st.just("default-config"), configs),
    ),
    max_size=14,
)
names = (f"data{number}" for number in count())


@pytest.fixture(scope="module")
def lasting(lasting_url: str) -> Iterator[CatalogBackend]:
    with open_catalog(lasting_url) as catalog:
        yield catalog


def operate(catalog: CatalogBackend, name: str, has_configs: bool, operation: Any) -> None:
    """Do one operation; what is refused changes nothing."""
    action, config, *rest = operation
    dataset = f"{name}/{'ab'[config]}" if has_configs else name
    with suppress(RegistryError):
        match action:
            case "publish":
                number, promote, default = rest
                version, shards = sample(f"{dataset}:{number}", {"train": [1]})
                catalog.publish(version, shards, promote=promote, default_config=default, actor="ann")
            case "alias-set":
                catalog.aliases.set(
                    rest[1], Reference.parse(f"{dataset}:{rest[0]}"), expect=None, message="", actor="ann"
                )
            case "alias-rm":
                catalog.aliases.remove(Reference.parse(f"{dataset}@{rest[0]}"), expect=None, message="", actor="ann")
            case "default-config":
                catalog.configs.set_default(name, "ab"[config], actor="ann")
            case _:
                change(catalog, action, Reference.parse(f"{dataset}:{rest[0]}"))


def change(catalog: CatalogBackend, action: str, wanted: Reference) -> None:
    """Change a version, and hold what the dry run announced against what look-ups give before and after."""

    def ask(**options: Any) -> Any:
        if action == "promote":
            return catalog.lifecycle.promote(wanted, actor="ann", **options)
        if action.startswith("undo-"):
            return catalog.lifecycle.undo(action.removeprefix("undo-"), wanted, actor="ann", **options)
        return getattr(catalog.lifecycle, action)(wanted, f"because of {wanted}", actor="ann", **options)

    dry = ask(dry_run=True)
    texts = ["", *(f":{text}" for text in ("*", "1.*", "2.*", "1.0.*", "1.1.*", "^1.0", "^1.1", *NUMBERS)), "@paper"]
    references = [Reference.parse(f"{wanted.dataset}{text}") for text in texts]
    before = [found(catalog, reference) for reference in references]
    done = ask()
    after = [found(catalog, reference) for reference in references]
    assert (done.before, done.after, done.effects) == (dry.before, dry.after, dry.effects)
    announced = {effect.wanted: (effect.before.reference, effect.after.reference) for effect in done.effects}
    series = {f"^{one.version.major}.{one.version.minor}" for one in done.before.candidates}
    for text, reference, was, now in zip(texts, references, before, after, strict=True):
        if text.startswith(":^") and text[1:] not in series:
            continue  # nobody writes ^1.0 where there is no 1.0: effects speak of natural references
        assert announced.get(reference, (was, was)) == (was, now)


def found(catalog: CatalogBackend, reference: Reference) -> Reference | None:
    try:
        return catalog.find(reference).reference
    except NotFoundError:
        return None


def past_look_up(catalog: CatalogBackend, wanted: Reference, moment: datetime) -> Reference | str | None:
    try:
        return catalog.find_at(wanted, moment).version.reference
    except VersionWithdrawnError as error:
        return "dropped since" if "has been dropped since" in str(error) else None
    except NotFoundError:
        return None


def stands(catalog: CatalogBackend, name: str, config: str | None, at: datetime | None = None) -> Standing | None:
    try:
        return catalog.standing(name, config, at=at)
    except NotFoundError:
        return None


PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # not shrunk: each example is a dataset with a history


@pytest.mark.parametrize("has_configs", [False, True])
@settings(max_examples=examples(25), phases=PHASES)
@given(operations=operations)
def test_the_past_standing_of_a_moment_is_the_standing_recorded_at_that_moment(
    lasting: CatalogBackend, has_configs: bool, operations: list[Any]
) -> None:
    name = next(names)
    meant = [None, "a", "b"] if has_configs else [None]
    seen = []
    for operation in operations:
        operate(lasting, name, has_configs, operation)
        live = {config: stands(lasting, name, config) for config in meant}
        last = next(logged(lasting, limit=1), None)
        if last is not None:
            seen.append((last.at, live))
            assert {config: stands(lasting, name, config, datetime.now(UTC)) for config in meant} == live
    for moment, live in seen:
        past = {config: stands(lasting, name, config, moment) for config in meant}
        assert past == live
        standing = live[None]
        if standing is None:
            continue
        for text in ("", ":1.*", ":2.0.0", "@paper"):
            wanted = Reference.parse(f"{name}{text}")
            gave = answer(standing, wanted).reference
            given = past_look_up(lasting, wanted, moment)
            assert given in (gave, "dropped since")
            assert given == gave or found(lasting, gave) is None
    assert lasting.log.verify().is_sound


@pytest.fixture
def told(catalog: CatalogBackend) -> tuple[CatalogBackend, list[datetime]]:
    """mnist: 1.0.0, 2.0.0, alias paper, 2.0.0 promoted, 1.0.0 yanked, 2.0.0 dropped; the moment after each."""
    moments = []

    def done(_: Any) -> None:
        moments.append(next(logged(catalog, limit=1)).at)

    def ref(text: str) -> Reference:
        return Reference.parse(text)

    done(publish(catalog, "mnist:1.0.0"))
    done(publish(catalog, "mnist:2.0.0", promote=False, content="2"))
    done(catalog.aliases.set("paper", ref("mnist:1.0.0"), expect=None, message="", actor="ann"))
    done(catalog.lifecycle.promote(ref("mnist:2.0.0"), actor="ann"))
    done(catalog.lifecycle.yank(ref("mnist:1.0.0"), "wrong labels", Version(2, 0, 0), actor="ann"))
    done(catalog.lifecycle.drop(ref("mnist:2.0.0"), "its licence ended", actor="ann"))
    return catalog, moments


def test_a_look_up_gives_what_it_gave_then(told: tuple[CatalogBackend, list[datetime]]) -> None:
    catalog, moments = told

    past = catalog.find_at(Reference.parse("mnist"), moments[2])

    assert past.version.version == Version(1, 0, 0)
    assert (past.version.state, past.version.superseded_by) == (VersionState.SUPPORTED, None)
    assert past.version.canonical == Version(1, 0, 0)
    assert past.now.described == "yanked: wrong labels; superseded by 2.0.0"
    assert past.version.splits == catalog.find("mnist:1.0.0").splits
    assert catalog.find_at(Reference.parse("mnist@paper"), moments[5]).version.state is VersionState.YANKED
    assert [str(one.version) for one in catalog.versions("mnist", at=moments[0])] == ["1.0.0"]
    assert [(str(one.version), one.status.value) for one in catalog.versions("mnist", at=moments[3])] == [
        ("2.0.0", "canonical"),
        ("1.0.0", "supported"),
    ]


def test_what_is_dropped_since_is_refused(told: tuple[CatalogBackend, list[datetime]]) -> None:
    catalog, moments = told
    when = f"{moments[3]:%Y-%m-%d %H:%M:%S.%f} UTC"

    for text, gave in (
        ("mnist", f"mnist resolved to mnist:2.0.0 at {when}, but that version"),
        ("mnist:2.0.0", f"mnist:2.0.0 existed at {when}, but"),
    ):
        with pytest.raises(VersionWithdrawnError) as caught:
            catalog.find_at(Reference.parse(text), moments[3])
        assert str(caught.value) == f"{gave} has been dropped since: its licence ended"
        assert caught.value.hint == "List the remaining versions: registry versions mnist"


def test_a_refused_past_look_up_names_the_moment(told: tuple[CatalogBackend, list[datetime]]) -> None:
    catalog, moments = told
    when = [f"{moment:%Y-%m-%d %H:%M:%S.%f} UTC" for moment in moments]

    with pytest.raises(VersionNotFoundError) as missing:
        catalog.find_at(Reference.parse("mnist:2.*"), moments[0])
    assert str(missing.value) == f"at {when[0]}: no version '2.*.*' in mnist"
    assert missing.value.hint == "Published: 1.0.0 (canonical)."
    with pytest.raises(AliasNotFoundError) as alias:
        catalog.find_at(Reference.parse("mnist@paper"), moments[1])
    assert str(alias.value) == f"no alias 'paper' in mnist at {when[1]}"
    with pytest.raises(VersionWithdrawnError) as withdrawn:
        catalog.find_at(Reference.parse("mnist:1.*"), moments[4])
    assert str(withdrawn.value) == (
        f"at {when[4]}: no version '1.*.*' of mnist can be read: 1.0.0 is yanked: wrong labels; superseded by 2.0.0"
    )


def test_a_moment_before_the_first_version_says_when_that_was(told: tuple[CatalogBackend, list[datetime]]) -> None:
    catalog, moments = told

    with pytest.raises(DatasetNotFoundError) as caught:
        catalog.find_at(Reference.parse("mnist"), moments[0] - timedelta(microseconds=1))
    assert str(caught.value).startswith("mnist was not in the catalog at ")
    assert caught.value.hint == f"Its first version was published at {moments[0]:%Y-%m-%d %H:%M:%S.%f} UTC."
    with pytest.raises(DatasetNotFoundError, match="no dataset 'mnits' in the catalog"):
        catalog.find_at(Reference.parse("mnits"), moments[0])
    with pytest.raises(DatasetNotFoundError):
        catalog.standing("mnist", at=datetime.min.replace(tzinfo=UTC))
    assert catalog.standing("mnist", at=datetime.max.replace(tzinfo=UTC)) == catalog.standing("mnist")


def test_configs_come_and_the_default_one_moves(catalog: CatalogBackend) -> None:
    moments = []
    for reference, default in (("mnist/b:1.0.0", False), ("mnist/a:1.0.0", True), ("mnist/c:1.0.0", True)):
        publish(catalog, reference, default_config=default)
        moments.append(next(logged(catalog, limit=1)).at)

    with pytest.raises(ConfigNotFoundError) as none:
        catalog.find_at(Reference.parse("mnist"), moments[0])
    assert str(none.value) == f"mnist had no default config at {moments[0]:%Y-%m-%d %H:%M:%S.%f} UTC"
    assert none.value.hint == "Name one: mnist/b."
    assert [catalog.find_at(Reference.parse("mnist"), moment).version.config for moment in moments[1:]] == ["a", "c"]
    with pytest.raises(ConfigNotFoundError, match="mnist/c was not in the catalog at") as later:
        catalog.find_at(Reference.parse("mnist/c"), moments[1])
    assert later.value.hint == f"Its first version was published at {moments[2]:%Y-%m-%d %H:%M:%S.%f} UTC."
    with pytest.raises(ConfigNotFoundError, match="no config 'd' in mnist"):
        catalog.find_at(Reference.parse("mnist/d"), moments[2])


def test_a_past_look_up_reads_the_events_of_its_dataset_by_index(
    catalog: CatalogBackend, catalog_url: str, queries: list[str]
) -> None:
    publish(catalog, "mnist/a:1.0.0", default_config=True)
    publish(catalog, "digits:1.0.0")
    queries.clear()

    catalog.find_at(Reference.parse("mnist/a"), datetime.now(UTC))

    of_events = [query for query in queries if "FROM event" in query]
    assert of_events
    assert all("event.dataset IN" in query and "LIMIT" in query for query in of_events)
    if catalog_url.startswith("sqlite"):
        plan = execute(catalog_url, "EXPLAIN QUERY PLAN SELECT * FROM event WHERE dataset IN ('mnist/a') AND id > 0")
        assert "ix_event_dataset_id" in str(plan)


def test_the_choice_of_a_past_look_up_explains_itself(told: tuple[CatalogBackend, list[datetime]]) -> None:
    catalog, moments = told
    wanted = Reference.parse("mnist:^1")
    past = catalog.find_at(wanted, moments[3])
    assert past.choice == choose(catalog.standing("mnist", at=moments[3]), wanted)
    assert past.choice.sentences == ("mnist:^1 allows only 1.0.0, of 2 published versions.",)
