"""Flags from their introduction to their retirement, and what a published version says of them for ever."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import psycopg
import pytest
from support.catalog_samples import execute, sample, told_details
from support.golden import check_errors

from registry.catalog import CatalogBackend, PublicationDetails, sqlite_path
from registry.errors import ConflictError, ExperimentNotFoundError, RegistryError, UsageError
from registry.model import Experiment

GOLDEN = Path(__file__).with_name("golden")


ADDED = "Shuffle by the hash of the key."


def events(url: str) -> list[tuple[str, str, str, Any]]:
    rows = execute(url, "SELECT action, dataset, version, details_json FROM event ORDER BY id")
    return [(action, dataset, version, told_details(details)) for action, dataset, version, details in rows]


def set_state(url: str, number: str, state: str) -> None:
    major = number.split(".", maxsplit=1)[0]
    execute(url, f"UPDATE dataset_version SET state = '{state}' WHERE major = {major}")  # noqa: S608 (a test's own)


def at_once(*actions: Callable[[], Any]) -> list[Any]:
    """What each of ``actions`` gives or raises, begun at one moment in a thread each."""
    barrier = Barrier(len(actions))

    def run(action: Callable[[], Any]) -> Any:
        barrier.wait()
        try:
            return action()
        except RegistryError as error:
            return error

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(run, actions))


def test_a_flag_is_added_flipped_and_retired_with_one_event_each(catalog: CatalogBackend, catalog_url: str) -> None:
    added = catalog.experiments.add("new_shuffle", ADDED, actor="ann")
    assert added.before is None
    assert (added.after.name, added.after.description, added.after.default) == ("new_shuffle", ADDED, False)
    assert catalog.experiments.list() == (added.after,)

    flipped = catalog.experiments.set_default("new_shuffle", True, actor="bob")
    assert (flipped.before, flipped.after.default) == (added.after, True)
    assert catalog.experiments.defaults_for({}) == {"new_shuffle": True}

    retired = catalog.experiments.retire("new_shuffle", actor="ann")
    assert retired.after.is_retired
    assert catalog.experiments.list() == (retired.after,)
    assert catalog.experiments.defaults_for({}) == {"new_shuffle": True}
    assert events(catalog_url) == [
        ("experiment-add", "", "", {"name": "new_shuffle", "default": False, "description": ADDED}),
        ("experiment-set-default", "", "", {"name": "new_shuffle", "before": False, "default": True}),
        ("experiment-retire", "", "", {"name": "new_shuffle"}),
    ]


def test_repeating_a_change_changes_nothing_and_adds_no_event(catalog: CatalogBackend, catalog_url: str) -> None:
    for _ in range(2):
        assert catalog.experiments.add("flag", ADDED, default=True, actor="ann").after.default
    assert not catalog.experiments.set_default("flag", True, actor="ann").is_change
    catalog.experiments.retire("flag", actor="ann")
    assert not catalog.experiments.retire("flag", actor="ann").is_change
    assert not catalog.experiments.set_default("flag", True, actor="ann").is_change
    assert [action for action, *_ in events(catalog_url)] == ["experiment-add", "experiment-retire"]


def test_a_dry_run_tells_the_same_and_changes_nothing(catalog: CatalogBackend, catalog_url: str) -> None:
    assert catalog.experiments.add("flag", ADDED, actor="ann", dry_run=True).after == Experiment(
        name="flag", description=ADDED
    )
    assert catalog.experiments.list() == ()
    catalog.experiments.add("flag", ADDED, actor="ann")
    dry = catalog.experiments.set_default("flag", True, actor="ann", dry_run=True)
    assert dry == catalog.experiments.set_default("flag", True, actor="ann")
    assert catalog.experiments.retire("flag", actor="ann", dry_run=True).after.is_retired
    assert not catalog.experiments.list()[0].is_retired
    with pytest.raises(ExperimentNotFoundError):
        catalog.experiments.retire("other", actor="ann", dry_run=True)
    assert len(events(catalog_url)) == 2


def test_a_name_means_one_flag_for_ever(catalog: CatalogBackend, catalog_url: str) -> None:
    catalog.experiments.add("flag", ADDED, default=True, actor="ann")
    with pytest.raises(ConflictError) as caught:
        catalog.experiments.add("flag", "Something else.", default=True, actor="ann")
    assert caught.value.message == f"flag already exists, on by default: {ADDED}"
    assert caught.value.hint == "A name can be used for only one flag. Choose another name."
    with pytest.raises(ConflictError) as caught:
        catalog.experiments.add("flag", ADDED, actor="ann")
    assert caught.value.hint == "Change its default with: registry experiment set-default flag off"

    retired = catalog.experiments.retire("flag", actor="ann").after
    assert retired.retired_at is not None
    for action in (
        lambda: catalog.experiments.add("flag", ADDED, default=True, actor="ann"),
        lambda: catalog.experiments.set_default("flag", False, actor="ann"),
    ):
        with pytest.raises(ConflictError) as caught:
            action()
        assert caught.value.message == f"flag is retired and always on since {retired.retired_at:%Y-%m-%d}"
        assert caught.value.exit_code == 4
    assert len(events(catalog_url)) == 2


def test_invalid_flags_are_refused(catalog: CatalogBackend) -> None:
    wrong = [("New Shuffle", ADDED), ("", ADDED), ("a\0b", ADDED), ("flag", ""), ("flag", " \n"), ("flag", "a\0b")]
    calls = (partial(catalog.experiments.add, *arguments, actor="ann") for arguments in wrong)
    check_errors(GOLDEN / "catalog_experiments.txt", calls)
    assert catalog.experiments.list() == ()


def test_a_default_is_true_or_false(catalog: CatalogBackend) -> None:
    catalog.experiments.add("flag", ADDED, actor="ann")
    for value in ("on", 1, None):
        with pytest.raises(UsageError) as caught:
            catalog.experiments.set_default("flag", value, actor="ann")  # type: ignore[arg-type]
        assert caught.value.message == f"the default of an experiment must be True or False, not {value!r}"


def test_an_unknown_flag_offers_the_nearest(catalog: CatalogBackend) -> None:
    catalog.experiments.add("new_shuffle", ADDED, actor="ann")
    for action in (
        lambda: catalog.experiments.set_default("new_shufle", True, actor="ann"),
        lambda: catalog.experiments.retire("new_shufle", actor="ann"),
        lambda: catalog.experiments.defaults_for({"new_shufle": True}),
        lambda: publish_flagged(catalog, "mnist:1.0.0", {"new_shufle": True}),
    ):
        with pytest.raises(ExperimentNotFoundError) as caught:
            action()
        assert caught.value.message == "no experiment 'new_shufle' in the catalog"
        assert caught.value.hint == (
            "Did you mean 'new_shuffle'? There are: new_shuffle. "
            "Add it with: registry experiment add new_shufle --description TEXT"
        )
        assert caught.value.exit_code == 3
    assert catalog.datasets() == ()


def publish_flagged(catalog: CatalogBackend, reference: str, experiments: dict[str, bool], **options: Any) -> bool:
    version, shards = sample(reference, experiments=experiments, content=reference)
    return catalog.publish(version, shards, promote=True, actor="ann", **options)


def test_overrides_are_published_with_the_version_and_counted(catalog: CatalogBackend, catalog_url: str) -> None:
    for name in ("a", "b"):
        catalog.experiments.add(name, ADDED, actor="ann")
    publish_flagged(catalog, "mnist:1.0.0", {"b": True, "a": False})
    publish_flagged(catalog, "mnist:2.0.0", {"b": False})
    publish_flagged(catalog, "mnist:3.0.0", {})

    assert catalog.find("mnist:1.0.0").experiments == {"a": False, "b": True}
    assert catalog.find("mnist:2.0.0").experiments == {"b": False}
    assert catalog.find("mnist:3.0.0").experiments == {}
    assert [(one.num_enabling, one.num_disabling) for one in catalog.experiments.list()] == [(0, 1), (1, 1)]
    set_state(catalog_url, "1.0.0", "yanked")
    assert [(one.num_enabling, one.num_disabling) for one in catalog.experiments.list()] == [(0, 0), (0, 1)]


@pytest.mark.parametrize("state", ["yanked", "dropped"])
def test_a_flag_is_retired_once_no_version_that_can_be_read_switches_it_off(
    catalog: CatalogBackend, catalog_url: str, state: str
) -> None:
    catalog.experiments.add("flag", ADDED, actor="ann")
    with pytest.raises(ConflictError) as caught:
        catalog.experiments.retire("flag", actor="ann")
    assert caught.value.message == "flag is off by default, but a retired flag is always on"
    assert caught.value.hint == "First switch it on: registry experiment set-default flag on"
    catalog.experiments.set_default("flag", True, actor="ann")
    publish_flagged(catalog, "mnist/plain:1.0.0", {"flag": False})
    publish_flagged(catalog, "mnist/plain:10.0.0", {"flag": False})
    publish_flagged(catalog, "mnist/plain:2.0.0", {"flag": True})

    for number in ("10.0.0", "1.0.0"):
        with pytest.raises(ConflictError) as caught:
            catalog.experiments.retire("flag", actor="ann")
        set_state(catalog_url, number, state)
    assert caught.value.message == "flag is switched off by mnist/plain:1.0.0"
    assert caught.value.hint == "It can be retired once it is yanked or dropped."
    assert caught.value.details == {"experiment": "flag", "versions": ["mnist/plain:1.0.0"], "num_versions": 1}
    assert catalog.experiments.retire("flag", actor="ann").after.is_retired


def test_a_deprecated_version_can_still_be_read_and_holds_a_flag(catalog: CatalogBackend, catalog_url: str) -> None:
    catalog.experiments.add("flag", ADDED, default=True, actor="ann")
    publish_flagged(catalog, "mnist:1.0.0", {"flag": False})
    set_state(catalog_url, "1.0.0", "deprecated")
    with pytest.raises(ConflictError, match=r"^flag is switched off by mnist:1\.0\.0(?m:$)"):
        catalog.experiments.retire("flag", actor="ann")


def test_of_many_versions_that_hold_a_flag_twelve_are_named_and_all_are_counted(catalog: CatalogBackend) -> None:
    catalog.experiments.add("flag", ADDED, default=True, actor="ann")
    for number in range(14):
        publish_flagged(catalog, f"mnist:{number}.0.0", {"flag": False})
    with pytest.raises(ConflictError) as caught:
        catalog.experiments.retire("flag", actor="ann")
    listed = ", ".join(f"mnist:{number}.0.0" for number in range(12))
    assert caught.value.message == f"flag is switched off by {listed} and 2 more"
    assert caught.value.details["num_versions"] == 14


@pytest.mark.parametrize("enabled", [True, False])
def test_a_retired_flag_is_not_overridden_by_a_new_version(catalog: CatalogBackend, enabled: bool) -> None:
    catalog.experiments.add("flag", ADDED, default=True, actor="ann")
    publish_flagged(catalog, "mnist:1.0.0", {"flag": True})
    since = catalog.experiments.retire("flag", actor="ann").after.retired_at
    for action in (
        lambda: catalog.experiments.defaults_for({"flag": enabled}),
        lambda: publish_flagged(catalog, "mnist:2.0.0", {"flag": enabled}),
    ):
        with pytest.raises(ConflictError) as caught:
            action()
        assert caught.value.message == (
            f"flag is retired and always on since {since:%Y-%m-%d}: new versions cannot override it"
        )
        assert caught.value.hint == "Remove 'flag' from the version's experiments."
    assert not publish_flagged(catalog, "mnist:1.0.0", {"flag": True})  # there already: that is no new version


def test_a_version_says_of_every_flag_what_it_was_built_with(catalog: CatalogBackend) -> None:
    publish_flagged(catalog, "mnist:0.1.0", {})
    catalog.experiments.add("flag", ADDED, actor="ann")
    publish_flagged(catalog, "mnist:1.0.0", {})
    publish_flagged(catalog, "mnist:2.0.0", {"flag": True})
    catalog.experiments.set_default("flag", True, actor="ann")
    publish_flagged(catalog, "mnist:3.0.0", {})
    # Built before the default was flipped, and published after it: what its records were made with counts.
    publish_flagged(catalog, "mnist:4.0.0", {}, details=PublicationDetails(experiment_defaults={"flag": False}))
    catalog.experiments.retire("flag", actor="ann")
    catalog.experiments.add("later", ADDED, default=True, actor="ann")
    publish_flagged(catalog, "mnist:5.0.0", {"later": False})

    said = {
        str(one.version): catalog.experiments.of_version(catalog.find(one_reference(one)))
        for one in catalog.versions("mnist")
    }
    assert said == {
        "0.1.0": {"flag": False, "later": False},
        "1.0.0": {"flag": False, "later": False},
        "2.0.0": {"flag": True, "later": False},
        "3.0.0": {"flag": True, "later": False},
        "4.0.0": {"flag": False, "later": False},
        "5.0.0": {"flag": True, "later": False},
    }


def one_reference(summary: Any) -> str:
    return f"{summary.name}:{summary.version}"


def test_a_flag_of_an_older_registry_still_reads_and_can_be_described(
    catalog: CatalogBackend, catalog_url: str
) -> None:
    execute(
        catalog_url,
        "INSERT INTO experiment (name, description, default_enabled, created_at) "
        "VALUES ('Old-Flag', '', (1 = 0), CURRENT_TIMESTAMP), ('flag', '', (1 = 0), CURRENT_TIMESTAMP)",
    )
    assert publish_flagged(catalog, "mnist:1.0.0", {"Old-Flag": True})
    assert catalog.find("mnist:1.0.0").experiments == {"Old-Flag": True}
    assert catalog.experiments.set_default("Old-Flag", True, actor="ann").is_change
    assert catalog.experiments.retire("Old-Flag", actor="ann").is_change
    described = catalog.experiments.add("flag", ADDED, actor="ann")
    assert described.before is not None
    assert catalog.experiments.list()[1].description == ADDED
    assert [action for action, *_ in events(catalog_url)][-1] == "experiment-add"


def test_of_many_who_add_a_flag_at_once_one_does(catalog: CatalogBackend, catalog_url: str) -> None:
    changes = at_once(*[lambda: catalog.experiments.add("flag", ADDED, actor="ann")] * 6)
    assert sorted(change.is_change for change in changes) == [False] * 5 + [True]
    assert len(events(catalog_url)) == 1


def test_a_flag_is_never_retired_under_a_version_that_switches_it_off(catalog: CatalogBackend) -> None:
    for number in range(1, 9):
        flag = f"flag_{number}"
        catalog.experiments.add(flag, ADDED, default=True, actor="ann")
        published, retired = at_once(
            lambda number=number, flag=flag: publish_flagged(catalog, f"mnist:{number}.0.0", {flag: False}),
            lambda flag=flag: catalog.experiments.retire(flag, actor="ann"),
        )
        # One of the two, whoever comes first; the other is told why not.
        outcome = (isinstance(published, ConflictError), isinstance(retired, ConflictError))
        assert outcome in ((True, False), (False, True)), (published, retired)


def test_retiring_waits_for_a_publication_under_way_and_sees_it(catalog: CatalogBackend, catalog_url: str) -> None:
    catalog.experiments.add("flag", ADDED, default=True, actor="ann")
    publish_flagged(catalog, "mnist:1.0.0", {})
    path = sqlite_path(catalog_url)
    publisher: Any = (
        psycopg.connect(catalog_url)
        if path is None
        else sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    )
    with closing(publisher), ThreadPoolExecutor(1) as pool:
        publisher.execute("BEGIN IMMEDIATE" if path else "SELECT id FROM experiment FOR SHARE")
        publisher.execute("INSERT INTO version_experiment (version_id, experiment_id, enabled) VALUES (1, 1, (1 = 0))")
        retiring = pool.submit(catalog.experiments.retire, "flag", actor="ann")
        while path is None and not execute(catalog_url, "SELECT 1 FROM pg_locks WHERE NOT granted"):
            assert not retiring.done()
        publisher.execute("COMMIT")
        with pytest.raises(ConflictError, match=r"^flag is switched off by mnist:1\.0\.0(?m:$)"):
            retiring.result()
