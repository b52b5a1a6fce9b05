"""Aliases: where they stand, who moved them, and what happens when several want to at once."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.catalog_samples import execute, logged, publish
from support.levels import either

from registry.catalog import AliasChange, CatalogBackend
from registry.errors import (
    AliasMovedError,
    AliasNotFoundError,
    CatalogError,
    DatasetNotFoundError,
    ReferenceSyntaxError,
    UsageError,
    VersionNotFoundError,
    VersionWithdrawnError,
)
from registry.model import Reference, Version, VersionState

Start = Callable[..., "subprocess.Popen[str]"]

V1, V2 = Version(1, 0, 0), Version(1, 1, 0)


def set_alias(catalog: CatalogBackend, name: str, reference: str, **options: Any) -> AliasChange:
    options = {"expect": None, "message": "", "actor": "ann", **options}
    return catalog.aliases.set(name, Reference.parse(reference), **options)


def remove(catalog: CatalogBackend, reference: str, **options: Any) -> AliasChange:
    options = {"expect": None, "message": "", "actor": "bob", **options}
    return catalog.aliases.remove(Reference.parse(reference), **options)


@pytest.fixture
def mnist(catalog: CatalogBackend) -> CatalogBackend:
    """A catalog with two versions of a dataset."""
    publish(catalog, "mnist:1.0.0")
    publish(catalog, "mnist:1.1.0")
    return catalog


def state(catalog: CatalogBackend) -> Any:
    history = catalog.aliases.history(Reference.parse("mnist@paper"))
    return (
        [(str(one.reference), one.version, one.set_by) for one in catalog.aliases.list()],
        [(one.actor, one.before, one.after, one.message) for one in history],
        [(one.action, one.version, one.actor, dict(one.details)) for one in logged(catalog) if "alias" in one.action],
    )


def test_an_alias_points_to_a_version_until_it_is_moved(mnist: CatalogBackend) -> None:
    change = set_alias(mnist, "paper", "mnist:1.0.*", message="As submitted.")
    assert (str(change.reference), change.before, change.after, change.is_change) == ("mnist@paper", None, V1, True)
    assert mnist.find("mnist@paper").version == V1
    moved = set_alias(mnist, "paper", "mnist:1.*", expect=V1, actor="bob")
    assert (moved.before, moved.after) == (V1, V2)
    assert mnist.find("mnist@paper").version == V2
    gone = remove(mnist, "mnist@paper", expect=V2, message="Retracted.")
    assert (gone.before, gone.after) == (V2, None)
    with pytest.raises(AliasNotFoundError):
        mnist.find("mnist@paper")

    rows, history, events = state(mnist)

    assert rows == []
    assert history == [("ann", None, V1, "As submitted."), ("bob", V1, V2, ""), ("bob", V2, None, "Retracted.")]
    assert events == [
        (
            "alias-set",
            "1.0.0",
            "ann",
            {"alias": "paper", "before": None, "after": "1.0.0", "message": "As submitted."},
        ),
        ("alias-set", "1.1.0", "bob", {"alias": "paper", "before": "1.0.0", "after": "1.1.0", "message": ""}),
        ("alias-remove", "", "bob", {"alias": "paper", "before": "1.1.0", "after": None, "message": "Retracted."}),
    ]
    assert mnist.log.verify().faults == ()


def test_setting_an_alias_to_its_current_version_changes_nothing(mnist: CatalogBackend) -> None:
    set_alias(mnist, "paper", "mnist:1.0.0")
    before = state(mnist)
    assert not set_alias(mnist, "paper", "mnist@paper", actor="bob").is_change
    assert not set_alias(mnist, "paper", "mnist:1.0.0", expect=V1, actor="bob").is_change
    assert state(mnist) == before


def test_a_dry_run_says_the_same_and_changes_nothing(mnist: CatalogBackend) -> None:
    set_alias(mnist, "paper", "mnist:1.0.0")
    before = state(mnist)
    dry = set_alias(mnist, "paper", "mnist", dry_run=True)
    assert (dry.before, dry.after, dry.is_change, dry.is_dry_run) == (V1, V2, True, True)
    assert remove(mnist, "mnist@paper", dry_run=True).before == V1
    with pytest.raises(AliasMovedError):
        set_alias(mnist, "paper", "mnist", expect=V2, dry_run=True)
    assert state(mnist) == before


def test_an_unmet_expectation_is_refused_with_the_current_version_and_who_set_it(mnist: CatalogBackend) -> None:
    set_alias(mnist, "paper", "mnist:1.0.0")
    at = mnist.aliases.list()[0].set_at
    for expect, words in ((V2, "1.1.0"), ("none", "no alias")):
        with pytest.raises(AliasMovedError) as caught:
            set_alias(mnist, "paper", "mnist:1.1.0", expect=expect)
        assert str(caught.value) == (
            f"mnist@paper points to 1.0.0, set by ann at {at:%Y-%m-%d %H:%M:%S} UTC; you expected {words}"
        )
        assert caught.value.hint == "To see its changes: registry alias history mnist@paper"
    assert caught.value.details == {
        "alias": "mnist@paper",
        "expected": None,
        "found": "1.0.0",
        "by": "ann",
        "at": at.isoformat(),
    }
    assert abs(at - datetime.now(UTC)) < timedelta(minutes=5)
    with pytest.raises(AliasMovedError):
        remove(mnist, "mnist@paper", expect=V2)
    with pytest.raises(AliasMovedError, match=r"^mnist@other does not exist; you expected 1.0.0(?m:$)"):
        set_alias(mnist, "other", "mnist:1.0.0", expect=V1)
    remove(mnist, "mnist@paper")
    with pytest.raises(
        AliasMovedError, match=r"^mnist@paper does not exist, removed by bob at .* UTC; you expected 1.0"
    ):
        remove(mnist, "mnist@paper", expect=V1)
    assert set_alias(mnist, "paper", "mnist:1.0.0", expect="none").is_change


@pytest.mark.parametrize("withdrawn", ["yanked", "dropped"])
def test_an_alias_cannot_be_set_to_a_withdrawn_version(catalog: CatalogBackend, withdrawn: str) -> None:
    publish(catalog, "mnist:1.0.0")
    publish(catalog, "mnist:2.0.0", state=VersionState(withdrawn), state_message="wrong labels")
    with pytest.raises(VersionWithdrawnError) as caught:
        set_alias(catalog, "paper", "mnist:2.0.0")
    assert str(caught.value) == f"mnist:2.0.0 is {withdrawn}: wrong labels; no alias may point to it"
    assert caught.value.hint == "Choose a readable version: registry versions mnist"
    assert caught.value.exit_code == 6
    with pytest.raises(VersionWithdrawnError):
        set_alias(catalog, "paper", "mnist")  # the canonical one
    with pytest.raises(VersionWithdrawnError):
        set_alias(catalog, "paper", "mnist:2.*")
    assert set_alias(catalog, "paper", "mnist:*").after == V1


def test_an_alias_of_a_yanked_version_may_be_moved(mnist: CatalogBackend, catalog_url: str) -> None:
    set_alias(mnist, "paper", "mnist:1.0.0")
    execute(catalog_url, "UPDATE dataset_version SET state = 'yanked' WHERE minor = 0")
    assert mnist.aliases.list()[0].state is VersionState.YANKED
    assert set_alias(mnist, "paper", "mnist:1.1.0").before == V1


def test_aliases_belong_to_a_config(catalog: CatalogBackend) -> None:
    publish(catalog, "mnist/plain:1.0.0", default_config=True)
    publish(catalog, "mnist/noisy:1.1.0")
    publish(catalog, "digits:1.0.0")
    assert str(set_alias(catalog, "paper", "mnist").reference) == "mnist/plain@paper"
    set_alias(catalog, "paper", "mnist/noisy", actor="bob")
    set_alias(catalog, "best", "digits")
    assert [str(one.reference) for one in catalog.aliases.list()] == [
        "digits@best",
        "mnist/noisy@paper",
        "mnist/plain@paper",
    ]
    assert [str(one.reference) for one in catalog.aliases.list("mnist")] == ["mnist/noisy@paper", "mnist/plain@paper"]
    assert [str(one.reference) for one in catalog.aliases.list("mnist/noisy")] == ["mnist/noisy@paper"]
    assert [one.actor for one in catalog.aliases.history(Reference.parse("mnist@paper"))] == ["ann"]
    assert [one.actor for one in catalog.aliases.history(Reference.parse("mnist/noisy@paper"))] == ["bob"]
    assert catalog.log.verify().faults == ()


def test_invalid_aliases_are_refused(mnist: CatalogBackend) -> None:
    for name in ("1.0.0", "1", "*", "", "a b", "x" * 201, "mnist@paper", "ä"):
        with pytest.raises(ReferenceSyntaxError, match="invalid alias"):
            set_alias(mnist, name, "mnist")
    with pytest.raises(VersionNotFoundError):
        set_alias(mnist, "paper", "mnist:9.*")
    with pytest.raises(AliasNotFoundError):
        set_alias(mnist, "paper", "mnist@nothing")
    with pytest.raises(DatasetNotFoundError):
        set_alias(mnist, "paper", "mnits")
    with pytest.raises(UsageError, match=r"^the reason has 10,001 characters(?m:$)"):
        set_alias(mnist, "paper", "mnist", message="x" * 10_001)
    with pytest.raises(UsageError, match=r"^the reason contains a NUL or a lone surrogate"):
        set_alias(mnist, "paper", "mnist", message="\0")
    with pytest.raises(UsageError, match=r"^mnist:1.0.0 does not name an alias(?m:$)"):
        remove(mnist, "mnist:1.0.0")
    assert mnist.aliases.list() == ()
    assert len(list(logged(mnist))) == 2


def test_an_alias_that_is_not_there_offers_the_nearest(mnist: CatalogBackend) -> None:
    with pytest.raises(AliasNotFoundError) as caught:
        remove(mnist, "mnist@papre")
    assert (str(caught.value), caught.value.hint) == (
        "no alias 'papre' in mnist",
        "It has no aliases. Set one with: registry alias set papre mnist",
    )
    set_alias(mnist, "paper", "mnist")
    for ask in (lambda: remove(mnist, "mnist@papre"), lambda: mnist.aliases.history(Reference.parse("mnist@papre"))):
        with pytest.raises(AliasNotFoundError) as caught:
            ask()
        assert caught.value.hint == "Did you mean 'paper'? There are: paper."


def test_a_move_whose_event_cannot_be_written_is_rolled_back(mnist: CatalogBackend, catalog_url: str) -> None:
    set_alias(mnist, "paper", "mnist:1.0.0")
    before = state(mnist)
    execute(catalog_url, "ALTER TABLE event RENAME TO event_away")
    with pytest.raises(CatalogError, match="event"):
        set_alias(mnist, "paper", "mnist:1.1.0")
    execute(catalog_url, "ALTER TABLE event_away RENAME TO event")
    assert state(mnist) == before


@pytest.mark.parametrize(("num_swappers", "num_rounds"), either((3, 8), (4, 12)))
def test_of_racing_swaps_from_one_version_exactly_one_wins_each_round(
    catalog: CatalogBackend, catalog_url: str, start_publisher: Start, num_swappers: int, num_rounds: int
) -> None:
    for number in range(num_swappers * num_rounds):
        publish(catalog, f"mnist:{number}.0.0", lengths={"train": [1]})
    swappers = [start_publisher("swap", catalog_url) for _ in range(num_swappers)]
    assert [answer(process) for process in swappers] == ["ready"] * num_swappers

    current = "none"
    for round_ in range(num_rounds):
        for number, process in enumerate(swappers):  # each to a version of its own, all at once
            process.stdin.write(f"{current} mnist:{num_swappers * round_ + number}.0.0\n")
            process.stdin.flush()
        answers = [answer(process) for process in swappers]
        (won,) = (one for one in answers if one != "alias_moved")
        current = won.removeprefix("moved mnist:")
        assert str(catalog.find("mnist@best").version) == current

    history = catalog.aliases.history(Reference.parse("mnist@best"))
    assert len(history) == num_rounds
    assert [one.before for one in history[1:]] == [one.after for one in history[:-1]]
    assert catalog.log.verify().faults == ()


def answer(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline().strip()
