"""Killed, refused, or many at once on a bucket: nothing is lost or mixed, and the next run finishes."""

from __future__ import annotations

import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support import FOLDER, TESTS, warm_python
from support.clouds import on_clouds
from support.fault_proxy import FaultProxy
from support.levels import either, every_step
from support.prepared_samples import animals, prepare

import registry
from registry.errors import ConflictError, LeftoverWarning, RegistryError, ShardMismatchError, StorageError

EVERY = every_step(2)
"""One step in this number is tried in the long level; 1 tries them all."""


@pytest.fixture
def rivals(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders of animals:1.0.0 with shards of equal length and different values."""
    one, other = (prepare(tmp_path / str(age), splits={"train": animals(20, age=age)}, shards=2) for age in (98, 99))
    return one, other


def run_script(*arguments: str) -> Any:
    """The output of ``object_publishers.py``."""
    done = warm_python.run(
        [sys.executable, str(FOLDER / "object_publishers.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("every", either(12 * EVERY, EVERY))  # the last one is killed among its uploads
@pytest.mark.parametrize("other", [False, True], ids=["same content", "other content"])
def test_a_publish_that_was_killed_at_any_step_never_stops_the_next_one(
    bucket: str, tmp_path: Path, sqlite_template: Path, rivals: tuple[Path, Path], other: bool, every: int
) -> None:
    def job(step: int) -> dict[str, Any]:
        url = shutil.copy(sqlite_template, tmp_path / f"{step}.db")
        folders = {"folder": str(rivals[0]), "then": str(rivals[other])}
        return {"url": str(url), "data_dir": f"{bucket}/{step}", "step": step, **folders}

    [(whole, _, _)] = run_script("kills", json.dumps([job(0)]))
    steps = range(1, whole["steps"] + 1, every)
    notes = set()
    for step, (killed, rerun, read) in zip(steps, run_script("kills", json.dumps([*map(job, steps)])), strict=True):
        assert killed is None, f"step {step}: it was not killed: {killed}"
        if "error" in rerun:  # the row had been written
            assert (rerun["error"], other) == ("version_exists", True), f"step {step}: {rerun}"
        assert read["faults"] == [], f"step {step}: {read}"
        expected = 99 if other and "error" not in rerun else 98
        assert expected in read["ages"], f"step {step}"
        notes.update(rerun.get("notes", ()))
    if other:
        assert any(note.startswith("removed ") for note in notes), notes
    else:
        assert any(note.startswith("finished an earlier run: ") for note in notes), notes


def publish(url: str, data_dir: str, folder: Path) -> tuple[bool | RegistryError, list[str]]:
    """Publish a folder and return the outcome and the warnings."""
    with warnings.catch_warnings(record=True) as warned, registry.connect(url, data_dir=data_dir) as catalog:
        warnings.simplefilter("always", LeftoverWarning)
        try:
            return catalog.publish(folder).newly, [str(one.message) for one in warned]
        except RegistryError as error:
            return error, [str(one.message) for one in warned]


@pytest.mark.parametrize("every", either(8 * EVERY, EVERY))
@pytest.mark.parametrize("fault", ["forbidden", "cut", "error"])
def test_one_fault_at_any_request_is_typed_and_the_next_run_finishes(
    bucket: str,
    fault_proxy: FaultProxy,
    tmp_path: Path,
    sqlite_template: Path,
    rivals: tuple[Path, Path],
    fault: Any,
    every: int,
) -> None:
    url = str(shutil.copy(sqlite_template, tmp_path / "count.db"))
    fault_proxy.reset()
    assert publish(url, f"{bucket}/count", rivals[0]) == (True, [])
    total = fault_proxy.count()
    refused = 0
    for index in range(0, total, every):
        url, data_dir = str(shutil.copy(sqlite_template, tmp_path / f"{index}.db")), f"{bucket}/{index}"
        fault_proxy.reset()
        fault_proxy.inject(fault, at=index, times=1)
        outcome, _ = publish(url, data_dir, rivals[0])
        fault_proxy.reset()
        if fault != "forbidden":  # another try mends it
            assert outcome is True, f"request {index}: {outcome!r}"
        elif outcome is not True:
            assert isinstance(outcome, StorageError | ShardMismatchError), f"request {index}: {outcome!r}"
            refused += 1
            assert publish(url, data_dir, rivals[0])[0] is True, f"request {index}"
        with registry.connect(url, data_dir=data_dir) as catalog:
            assert catalog.dataset("animals").verify(deep=True).faults == (), f"request {index}"
            assert catalog.reservations.list() == (), f"request {index}"
    assert refused > 0 or fault != "forbidden"


def test_objects_that_cannot_be_removed_do_not_keep_the_row_from_being_written(
    bucket: str, fault_proxy: FaultProxy, tmp_path: Path, rivals: tuple[Path, Path]
) -> None:
    fault_proxy.inject("forbidden", when=lambda request: request.method == "DELETE" or "delete" in request.query)

    outcome, reported = publish(f"sqlite:///{tmp_path}/catalog.db", bucket, rivals[0])

    assert outcome is True
    (warning,) = reported
    assert f"{bucket}/animals/1.0.0/.reservation.json is no longer needed but could not be removed" in warning
    fault_proxy.reset()
    assert publish(f"sqlite:///{tmp_path}/catalog.db", bucket, rivals[0])[0] is False


def test_every_pair_of_requests_may_have_a_rival_between_them(
    bucket: str,
    fault_proxy: FaultProxy,
    tmp_path: Path,
    sqlite_template: Path,
    rivals: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from registry.publishing import object_place

    monkeypatch.setattr(object_place, "WAIT_SECONDS", 0.0)
    monkeypatch.setenv("REGISTRY_READ_TIMEOUT", "60")  # the request waits until the rival is done
    for index in count(0, EVERY):
        url, data_dir = str(shutil.copy(sqlite_template, tmp_path / f"{index}.db")), f"{bucket}/{index}"
        outcomes: list[Any] = []

        def rival(url: str = url, data_dir: str = data_dir, outcomes: list[Any] = outcomes) -> None:
            outcomes.append(publish(url, data_dir, rivals[1])[0])

        fault_proxy.reset()
        fault_proxy.inject("hook", at=index, times=1, hook=rival)
        outcomes.append(publish(url, data_dir, rivals[0])[0])
        if len(outcomes) == 1:  # a publisher alone sends fewer requests than this
            break
        won = [one for one in outcomes if one is True]
        lost = [one for one in outcomes if isinstance(one, ConflictError)]
        assert (len(won), len(lost)) == (1, 1), f"request {index}: {outcomes}"
        with registry.connect(url, data_dir=data_dir) as catalog:
            assert catalog.dataset("animals").verify(deep=True).faults == (), f"request {index}"
        # The first request asks for the permission to write, before the location is reserved.
        assert (outcomes[0] is True) == (index == 0), "the reservation decides, which is older than the other requests"
    assert index >= 8  # the number of requests that a publisher of five files sends


@on_clouds
@pytest.mark.parametrize("rounds", either(2, 8))
def test_one_of_many_racing_publishers_wins_and_the_others_get_an_error(
    bucket: str, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None], rounds: int
) -> None:
    monkeypatch.setenv("RACE_BUCKET", bucket)
    report = run_script("rounds", str(rounds), "3")
    record_property("a race on a bucket", report["outcomes"])
    assert report["faults"] == []
