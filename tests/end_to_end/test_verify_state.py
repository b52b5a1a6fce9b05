"""``Catalog.verify_all`` remembers which versions were sound."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.prepared_samples import prepare

import registry
from registry.errors import ContinuedRunWarning, StorageError, UsageError
from registry.publishing.verify_state import CONTINUED, read_since

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[registry.Catalog]:
    with registry.connect(tmp_path / "catalog.db") as made:
        for version in ("1.0.0", "2.0.0"):
            made.publish(prepare(tmp_path / version, version))
        yield made


@pytest.mark.parametrize(
    ("since", "moment"),
    [
        ("2d", NOW - timedelta(days=2)),
        ("90m", NOW - timedelta(minutes=90)),
        ("2026-11-20", datetime(2026, 11, 20, tzinfo=UTC)),
        ("2026-11-20T10:00", datetime(2026, 11, 20, 10, tzinfo=UTC)),
        (timedelta(hours=1), NOW - timedelta(hours=1)),
        (NOW, NOW),
    ],
)
def test_since_is_a_moment_or_a_duration(since: Any, moment: datetime) -> None:
    assert read_since(since, now=NOW) == moment


@pytest.mark.parametrize("wrong", ["yesterday", "7", "", "d", datetime(2026, 11, 23)])  # noqa: DTZ001 (that is the point)
def test_what_is_neither_is_refused(catalog: registry.Catalog, wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        catalog.verify_all(since=wrong, state=tmp_path / "state.jsonl")


def test_without_a_state_nothing_is_skipped(catalog: registry.Catalog) -> None:
    with pytest.raises(UsageError, match=r"^since needs a state"):
        catalog.verify_all(since="7d")
    assert [one.verified_before for one in catalog.verify_all()] == [None, None]


def test_sound_versions_are_skipped_and_counted_as_sound(catalog: registry.Catalog, tmp_path: Path) -> None:
    state = tmp_path / "state.jsonl"
    catalog.verify_all(state=state)
    report = catalog.verify_all(state=state, since=timedelta(days=1))
    assert report.is_sound
    assert all(one.verified_before is not None and one.report is None for one in report)
    assert str(report.require_sound()) == "<CatalogReport: 2 of 2 versions match what was published>"


def interrupt(catalog: registry.Catalog, state: Path) -> None:
    """Begin a run that ends after the first version."""

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        catalog.verify_all(state=state, each=stop)


def test_an_interrupted_run_is_continued_unless_it_is_old(catalog: registry.Catalog, tmp_path: Path) -> None:
    state = tmp_path / "state.jsonl"
    interrupt(catalog, state)
    with pytest.warns(ContinuedRunWarning, match="^continues the run of .*; to start over: restart=True"):
        report = catalog.verify_all(state=state)
    assert [one.verified_before is not None for one in report] == [True, False]

    interrupt(catalog, state)
    assert [one.verified_before for one in catalog.verify_all(state=state, restart=True)] == [None, None]

    interrupt(catalog, state)
    old = (datetime.now(UTC) - CONTINUED - timedelta(minutes=1)).isoformat()
    state.write_text(state.read_text() + f'{{"begin": "{old}"}}\n')
    assert [one.verified_before for one in catalog.verify_all(state=state)] == [None, None]


def test_a_run_that_is_interrupted_twice_keeps_what_both_did(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.publish(prepare(tmp_path / "3.0.0", "3.0.0"))
    state = tmp_path / "state.jsonl"
    interrupt(catalog, state)

    def stop_at_the_second(one: Any) -> None:
        if one.verified_before is None:
            raise KeyboardInterrupt

    with pytest.warns(ContinuedRunWarning), pytest.raises(KeyboardInterrupt):
        catalog.verify_all(state=state, each=stop_at_the_second)
    with pytest.warns(ContinuedRunWarning):
        report = catalog.verify_all(state=state)
    assert [one.verified_before is not None for one in report] == [True, True, False]


def test_a_state_that_cannot_be_written_is_refused_at_the_beginning(catalog: registry.Catalog, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        catalog.verify_all(state=tmp_path / "file/state.jsonl")
