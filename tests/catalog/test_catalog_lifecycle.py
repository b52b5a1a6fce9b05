"""What becomes of a version after it was published: each action, its event, its undoing, and what it announces."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.catalog_samples import execute, publish, told_details
from support.golden import check_errors

from registry.catalog import CatalogBackend, Change, lifecycle, open_catalog
from registry.errors import (
    ConfigNotFoundError,
    ConflictError,
    NotFoundError,
    UsageError,
    VersionWithdrawnError,
)
from registry.model import Answer, Reference, Use, Version, VersionState

GOLDEN = Path(__file__).with_name("golden")


@pytest.fixture
def mnist(catalog: CatalogBackend) -> CatalogBackend:
    """mnist 1.0.0 (canonical), 1.1.0 and 2.0.0."""
    for number in ("1.0.0", "1.1.0", "2.0.0"):
        publish(catalog, f"mnist:{number}", promote=number == "1.0.0", content=number)
    return catalog


def ref(text: str) -> Reference:
    return Reference.parse(text)


def events(url: str) -> list[tuple[Any, ...]]:
    """(actor, action, dataset, version, details) of each event, without the publications."""
    rows = execute(
        url, "SELECT actor, action, dataset, version, details_json FROM event WHERE action <> 'publish' ORDER BY id"
    )
    return [(*row[:4], told_details(row[4])) for row in rows]


def told(change: Change) -> dict[str, tuple[str, str]]:
    return {str(effect.wanted): (str(effect.before), str(effect.after)) for effect in change.effects}


def test_promoting_moves_the_unversioned_look_up(mnist: CatalogBackend, catalog_url: str) -> None:
    change = mnist.lifecycle.promote(ref("mnist:1.1.0"), actor="bob")

    assert change.is_change
    assert mnist.find("mnist").version == Version(1, 1, 0)
    assert told(change)["mnist"] == ("mnist:1.0.0", "mnist:1.1.0")
    assert told(change)["mnist:^1.0"] == ("mnist:1.1.0 (experimental)", "mnist:1.1.0")
    assert events(catalog_url) == [("bob", "promote", "mnist", "1.1.0", {"before": "1.0.0", "after": "1.1.0"})]
    assert not mnist.lifecycle.promote(ref("mnist:1.1.0"), actor="bob").is_change
    assert len(events(catalog_url)) == 1


def test_the_first_promotion_follows_nothing(catalog: CatalogBackend, catalog_url: str) -> None:
    publish(catalog, "mnist:1.0.0", promote=False)

    change = catalog.lifecycle.promote(ref("mnist:1.0.0"), actor="bob")

    assert told(change)["mnist"] == ("refused: mnist has no canonical version", "mnist:1.0.0")
    assert events(catalog_url)[0][-1] == {"before": None, "after": "1.0.0"}


def test_a_deprecated_version_is_found_with_its_message(mnist: CatalogBackend, catalog_url: str) -> None:
    change = mnist.lifecycle.deprecate(ref("mnist:2.0.0"), "  use 3  ", actor="bob")

    found = mnist.find("mnist:*")
    assert (found.version, found.state, found.state_message) == (Version(2, 0, 0), VersionState.DEPRECATED, "use 3")
    assert told(change)["mnist:2.*.*"] == ("mnist:2.0.0 (experimental)", "mnist:2.0.0 (deprecated: use 3)")
    supported = {"state": "supported", "message": "", "superseded_by": None}
    deprecated = {"state": "deprecated", "message": "use 3", "superseded_by": None}
    assert events(catalog_url) == [("bob", "deprecate", "mnist", "2.0.0", {"before": supported, "after": deprecated})]
    assert not mnist.lifecycle.deprecate(ref("mnist:2.0.0"), "use 3", actor="bob").is_change
    assert mnist.lifecycle.deprecate(ref("mnist:2.0.0"), "use 4", actor="bob").is_change
    assert mnist.lifecycle.undo("deprecate", ref("mnist:2.0.0"), actor="bob").is_change
    assert mnist.find("mnist:2.0.0").state is VersionState.SUPPORTED
    assert not mnist.lifecycle.undo("deprecate", ref("mnist:2.0.0"), actor="bob").is_change
    assert [event[1] for event in events(catalog_url)] == ["deprecate", "deprecate", "undo-deprecate"]


def test_only_a_reference_that_names_a_yanked_version_gives_it(mnist: CatalogBackend, catalog_url: str) -> None:
    change = mnist.lifecycle.yank(ref("mnist:1.1.0"), "wrong labels", Version(2, 0, 0), actor="bob")

    assert mnist.find("mnist:1.*").version == Version(1, 0, 0)
    found = mnist.find("mnist:1.1.0")
    assert (found.state, found.state_message, found.superseded_by) == (
        VersionState.YANKED,
        "wrong labels",
        Version(2, 0, 0),
    )
    assert told(change) == {
        "mnist:1.*.*": ("mnist:1.1.0 (experimental)", "mnist:1.0.0"),
        "mnist:1.1.*": (
            "mnist:1.1.0 (experimental)",
            "refused: no version '1.1.*' of mnist can be read: 1.1.0 is yanked: wrong labels; superseded by 2.0.0",
        ),
        "mnist:^1.1": (
            "mnist:1.1.0 (experimental)",
            "refused: no version '^1.1' of mnist can be read: 1.1.0 is yanked: wrong labels; superseded by 2.0.0",
        ),
        "mnist:^1.0": ("mnist:1.1.0 (experimental)", "mnist:1.0.0"),
        "mnist:1.1.0": (
            "mnist:1.1.0 (experimental)",
            "mnist:1.1.0 (yanked: wrong labels; superseded by 2.0.0)",
        ),
    }
    with pytest.raises(VersionWithdrawnError) as caught:
        mnist.find("mnist:1.1.*")
    assert caught.value.hint == (
        "Readable: 2.0.0 (experimental), 1.0.0 (canonical). To get it anyway, name it exactly: mnist:1.1.0."
    )
    (event,) = events(catalog_url)
    assert event[:4] == ("bob", "yank", "mnist", "1.1.0")
    assert event[4]["after"] == {"state": "yanked", "message": "wrong labels", "superseded_by": "2.0.0"}


def test_a_yanked_canonical_version_refuses_the_unversioned_look_up(mnist: CatalogBackend) -> None:
    change = mnist.lifecycle.yank(ref("mnist:1.0.0"), "wrong labels", Version(1, 1, 0), actor="bob")

    assert told(change)["mnist"] == (
        "mnist:1.0.0",
        "refused: the canonical version 1.0.0 of mnist is yanked: wrong labels; superseded by 1.1.0",
    )
    with pytest.raises(VersionWithdrawnError) as caught:
        mnist.find("mnist")
    assert caught.value.hint == (
        "It is superseded by mnist:1.1.0. Readable: 2.0.0 (experimental), 1.1.0 (experimental). "
        "To get it anyway, name it exactly: mnist:1.0.0. Make one canonical: registry promote mnist:1.1.0"
    )


def test_a_dropped_version_is_given_to_nobody_and_its_number_stays_used(mnist: CatalogBackend) -> None:
    mnist.lifecycle.drop(ref("mnist:1.1.0"), "its licence ended", actor="bob")

    with pytest.raises(VersionWithdrawnError, match=r"version 1\.1\.0 of mnist is dropped: its licence ended"):
        mnist.find("mnist:1.1.0")
    assert mnist.published_digest("mnist", None, Version(1, 1, 0)) is not None


def test_undoing_goes_back_to_what_was_before(mnist: CatalogBackend) -> None:
    act = mnist.lifecycle
    wanted = ref("mnist:1.1.0")
    act.deprecate(wanted, "use 2", actor="bob")
    act.yank(wanted, "wrong labels", actor="bob")
    act.yank(wanted, "wrong labels and pictures", Version(2, 0, 0), actor="bob")
    act.drop(wanted, "its licence ended", actor="bob")

    for action in ("yank", "deprecate"):
        with pytest.raises(VersionWithdrawnError) as caught:
            act.undo(action, wanted, actor="bob")
        assert caught.value.hint == "Undo that first: registry drop mnist:1.1.0 --undo"
    act.undo("drop", wanted, actor="bob")
    dropped_no_more = mnist.find(wanted)
    assert (dropped_no_more.state_message, dropped_no_more.superseded_by) == (
        "wrong labels and pictures",
        Version(2, 0, 0),
    )
    act.undo("yank", wanted, actor="bob")
    yanked_no_more = mnist.find(wanted)
    assert (yanked_no_more.state, yanked_no_more.state_message) == (VersionState.DEPRECATED, "use 2")
    assert yanked_no_more.superseded_by is None
    act.undo("deprecate", wanted, actor="bob")
    assert mnist.find(wanted).state is VersionState.SUPPORTED


def test_undoing_the_state_of_a_publication_makes_the_version_supported(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist:1.0.0", state=VersionState.YANKED, state_message="early")

    assert catalog.lifecycle.undo("yank", ref("mnist:1.0.0"), actor="bob").is_change
    found = catalog.find("mnist")
    assert (found.state, found.state_message) == (VersionState.SUPPORTED, "")


REFUSED: list[Callable[[CatalogBackend], Any]] = [
    lambda c: c.lifecycle.promote(ref("mnist:1.1.0"), actor=""),  # promote a yanked version
    lambda c: c.lifecycle.deprecate(ref("mnist:2.0.0"), "x", actor=""),  # deprecate a dropped version
    lambda c: c.lifecycle.yank(ref("mnist:2.0.0"), "x", actor=""),  # yank a dropped version
    lambda c: c.lifecycle.yank(ref("mnist:1.0.0"), "x", Version(1, 1, 0), actor=""),  # supersede by a yanked version
    lambda c: c.lifecycle.yank(ref("mnist:1.0.0"), "x", Version(9, 0, 0), actor=""),  # supersede by what is not there
    lambda c: c.lifecycle.yank(ref("mnist:1.0.0"), "x", Version(1, 0, 0), actor=""),  # supersede by itself
    lambda c: c.lifecycle.drop(ref("mnist:1.0.0"), " \n", actor=""),  # no reason
    lambda c: c.lifecycle.deprecate(ref("mnist:1.0.0"), "x" * 10_001, actor=""),  # a book for a reason
    lambda c: c.lifecycle.yank(ref("mnist:1.*"), "x", actor=""),  # a range
    lambda c: c.lifecycle.promote(ref("mnist"), actor=""),  # no version
    lambda c: c.lifecycle.drop(ref("mnist:7.0.0"), "x", actor=""),  # an unknown version
    lambda c: c.lifecycle.promote(ref("mnist@new"), actor=""),  # an unknown alias
    lambda c: c.lifecycle.promote(ref("mnits:1.0.0"), actor=""),  # an unknown dataset
]


def test_what_is_refused_writes_nothing(mnist: CatalogBackend, catalog_url: str) -> None:
    mnist.lifecycle.yank(ref("mnist:1.1.0"), "bad", actor="")
    mnist.lifecycle.drop(ref("mnist:2.0.0"), "gone", actor="")
    before = (mnist.standing("mnist"), events(catalog_url))

    check_errors(GOLDEN / "catalog_lifecycle" / "what_is_refused.txt", (partial(call, mnist) for call in REFUSED))

    assert (mnist.standing("mnist"), events(catalog_url)) == before


@pytest.mark.parametrize("text", ["a NUL \0", "half a pair \ud800"])
def test_text_that_no_database_stores_is_refused(mnist: CatalogBackend, text: str) -> None:
    with pytest.raises(UsageError, match="NUL or a lone surrogate"):
        mnist.lifecycle.yank(ref("mnist:1.0.0"), text, actor="bob")
    with pytest.raises(UsageError, match="NUL or a lone surrogate"):
        mnist.lifecycle.drop(ref("mnist:1.0.0"), "x", actor=text)


def test_a_dry_run_announces_what_the_act_does_and_writes_nothing(mnist: CatalogBackend, catalog_url: str) -> None:
    uses = [Use(reference=ref(text), place=f"uses:{text}") for text in ("mnist:^1.0", "mnist:<3", "digits", "mnist@x")]
    before = mnist.standing("mnist")

    dry = mnist.lifecycle.yank(ref("mnist:1.1.0"), "bad", actor="bob", dry_run=True, uses=uses)

    assert dry.is_dry_run
    assert (mnist.standing("mnist"), events(catalog_url)) == (before, [])
    real = mnist.lifecycle.yank(ref("mnist:1.1.0"), "bad", actor="bob", uses=uses)
    assert (real.effects, real.use_effects) == (dry.effects, dry.use_effects)
    assert real.after == dry.after == mnist.standing("mnist")
    (used,) = dry.use_effects
    assert (used.wanted, used.places, used.kind.value) == (ref("mnist:^1.0"), ("uses:mnist:^1.0",), "moves")


def test_an_alias_names_the_version_to_change(mnist: CatalogBackend, catalog_url: str) -> None:
    execute(
        catalog_url,
        "INSERT INTO alias (config_id, name, version_id, set_at, set_by) VALUES (1, 'paper', 2, CURRENT_TIMESTAMP, '')",
    )

    change = mnist.lifecycle.drop(ref("mnist@paper"), "gone", actor="bob")

    assert str(change.reference) == "mnist:1.1.0"
    assert told(change)["mnist@paper"] == (
        "mnist:1.1.0 (experimental)",
        "refused: mnist@paper points to 1.1.0, which is dropped: gone",
    )
    assert mnist.lifecycle.undo("drop", ref("mnist@paper"), actor="bob").is_change


def test_a_config_is_changed_alone_and_its_uses_are_those_that_mean_it(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist/plain:1.0.0", default_config=True)
    publish(catalog, "mnist/rotated:1.0.0")
    uses = [Use(reference=ref(text), place=text) for text in ("mnist", "mnist/plain:1.*", "mnist/rotated", "mnist/x")]

    plain = catalog.lifecycle.yank(ref("mnist:1.0.0"), "bad", actor="bob", uses=uses, dry_run=True)
    rotated = catalog.lifecycle.yank(ref("mnist/rotated:1.0.0"), "bad", actor="bob", uses=uses)

    assert str(plain.reference) == "mnist/plain:1.0.0"
    assert (plain.is_default, rotated.is_default) == (True, False)
    assert [str(effect.wanted) for effect in plain.use_effects] == ["mnist", "mnist/plain:1.*.*"]
    assert [str(effect.wanted) for effect in rotated.use_effects] == ["mnist/rotated"]
    assert catalog.find("mnist").version == Version(1, 0, 0)


def test_a_change_of_the_default_config_is_reported_and_logged(catalog: CatalogBackend, catalog_url: str) -> None:
    publish(catalog, "mnist/plain:1.0.0")
    publish(catalog, "mnist/rotated:2.0.0")
    uses = [Use(reference=ref(text), place=text) for text in ("mnist", "mnist/plain", "digits")]
    assert [
        (one.config, one.is_default, str(one.canonical), one.num_versions) for one in catalog.configs.list("mnist")
    ] == [
        ("plain", False, "1.0.0", 1),
        ("rotated", False, "2.0.0", 1),
    ]

    first = catalog.configs.set_default("mnist", "plain", actor="bob", uses=uses)
    dry = catalog.configs.set_default("mnist", "rotated", actor="bob", dry_run=True)
    assert catalog.find("mnist").config == "plain"
    second = catalog.configs.set_default("mnist", "rotated", actor="bob", uses=uses)
    again = catalog.configs.set_default("mnist", "rotated", actor="bob")

    assert catalog.find("mnist").config == "rotated"
    assert first.before is None
    assert str(first.effects[0].before) == "refused: mnist has no default config"
    assert dry.effects == second.effects
    (used,) = second.use_effects
    assert (used.wanted, used.before.reference, used.after.reference) == (
        ref("mnist"),
        ref("mnist/plain:1.0.0"),
        ref("mnist/rotated:2.0.0"),
    )
    assert not again.is_change
    assert again.effects == ()
    assert events(catalog_url) == [
        ("bob", "default-config", "mnist", "", {"before": None, "after": "plain"}),
        ("bob", "default-config", "mnist", "", {"before": "plain", "after": "rotated"}),
    ]
    with pytest.raises(ConfigNotFoundError, match="no config 'tilted' in mnist"):
        catalog.configs.set_default("mnist", "tilted", actor="bob")
    with pytest.raises(NotFoundError, match="no dataset 'digits' in the catalog"):
        catalog.configs.list("digits")


def test_a_dataset_without_configs_has_no_other_default(mnist: CatalogBackend) -> None:
    with pytest.raises(ConfigNotFoundError) as caught:
        mnist.configs.set_default("mnist", "plain", actor="bob")
    assert caught.value.hint == "mnist has no configs. Name it without one: mnist"
    (only,) = mnist.configs.list("mnist")
    assert (only.config, only.is_default) == (None, True)


def test_a_change_whose_event_cannot_be_written_is_undone(
    mnist: CatalogBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = mnist.standing("mnist")

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the disk is gone")

    monkeypatch.setattr(lifecycle, "append_event", fail)
    with pytest.raises(RuntimeError, match="the disk is gone"):
        mnist.lifecycle.yank(ref("mnist:1.1.0"), "bad", actor="bob")
    with pytest.raises(RuntimeError, match="the disk is gone"):
        mnist.lifecycle.promote(ref("mnist:1.1.0"), actor="bob")
    assert mnist.standing("mnist") == before


@pytest.mark.parametrize("action", ["yank", "drop"])
def test_a_version_that_switches_a_retired_flag_off_is_not_brought_back(catalog: CatalogBackend, action: Any) -> None:
    flag = "new_order"
    catalog.experiments.add(flag, "Sorts by name.", default=True, actor="ann")
    publish(catalog, "mnist:1.0.0", experiments={flag: False})
    publish(catalog, "mnist:2.0.0", experiments={flag: True}, content="2")
    for number in ("1.0.0", "2.0.0"):
        getattr(catalog.lifecycle, action)(ref(f"mnist:{number}"), "old", actor="ann")
    assert catalog.lifecycle.undo(action, ref("mnist:1.0.0"), actor="ann", dry_run=True).is_change
    catalog.experiments.retire(flag, actor="ann")

    for dry_run in (True, False):
        with pytest.raises(
            ConflictError, match=r"mnist:1\.0\.0 switches off new_order, which is retired and always on"
        ):
            catalog.lifecycle.undo(action, ref("mnist:1.0.0"), actor="ann", dry_run=dry_run)
    assert catalog.lifecycle.undo(action, ref("mnist:2.0.0"), actor="ann").is_change


def test_a_version_that_stays_yanked_is_no_longer_dropped_whatever_flags_it_switches_off(
    catalog: CatalogBackend,
) -> None:
    catalog.experiments.add("new_order", "Sorts by name.", default=True, actor="ann")
    publish(catalog, "mnist:1.0.0", experiments={"new_order": False})
    catalog.lifecycle.yank(ref("mnist:1.0.0"), "old", actor="ann")
    catalog.lifecycle.drop(ref("mnist:1.0.0"), "old", actor="ann")
    catalog.experiments.retire("new_order", actor="ann")

    change = catalog.lifecycle.undo("drop", ref("mnist:1.0.0"), actor="ann")

    assert [one.state for one in change.after.candidates] == [VersionState.YANKED]


def test_of_many_who_yank_at_once_one_does_it(mnist: CatalogBackend, catalog_url: str) -> None:
    done: list[bool] = []
    start = threading.Barrier(4)

    def work(number: int) -> None:
        with open_catalog(catalog_url) as own:
            start.wait()
            done.append(own.lifecycle.yank(ref("mnist:2.0.0"), "bad", actor=f"w{number}").is_change)
            own.lifecycle.promote(ref(f"mnist:1.{number % 2}.0"), actor=f"w{number}")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert sorted(done) == [False, False, False, True]
    told_of = events(catalog_url)
    assert [event[1] for event in told_of].count("yank") == 1
    promotions = [event for event in told_of if event[1] == "promote"]
    # Each follows the one before it: nobody worked from a standing that was gone.
    before = "1.0.0"
    for event in promotions:
        assert event[4]["before"] == before
        before = event[3]
    assert str(mnist.find("mnist").version) == before


def test_answers_read_as_sentences() -> None:
    assert str(Answer(reference=None, note="gone")) == "refused: gone"
    assert str(Answer(reference=ref("mnist:1.0.0"))) == "mnist:1.0.0"


def test_a_successor_that_is_withdrawn_itself_is_not_recommended(mnist: CatalogBackend) -> None:
    mnist.lifecycle.yank(ref("mnist:1.0.0"), "wrong labels", Version(1, 1, 0), actor="bob")
    mnist.lifecycle.drop(ref("mnist:1.1.0"), "its licence ended", actor="bob")

    with pytest.raises(VersionWithdrawnError) as raised:
        mnist.find("mnist")

    assert raised.value.hint == (
        "Readable: 2.0.0 (experimental). To get it anyway, name it exactly: mnist:1.0.0. "
        "Make one canonical: registry promote mnist:2.0.0"
    )
