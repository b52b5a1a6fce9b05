"""A publisher that was paused until its reservation was given to another one replaces none of that one's objects."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.clouds import on_clouds
from support.fault_proxy import FaultProxy
from support.levels import either
from support.object_publishers import fork, publish, wait
from support.prepared_samples import animals, prepare

import registry
from registry.errors import NotFoundError
from registry.publishing import object_place

SHARD = "animals-train.tfrecord-00000-of-00001"


@pytest.fixture
def rivals(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders of animals:1.0.0, each with one shard of 10 MB, which is uploaded in two parts."""
    padding = "x" * 500_000
    one, other = (
        prepare(
            tmp_path / str(age),
            splits={"train": [{**one, "name": f"{one['name']} {padding}"} for one in animals(20, age=age)]},
        )
        for age in (98, 99)
    )
    return one, other


def publish_in_own_group(url: str, data_dir: str, folder: str) -> dict[str, Any]:
    """Publish in a process group of its own.

    A group with a stopped process is sent SIGHUP when its last process with a parent in another group ends: in the
    group of the tests, programs that other tests start are such processes, and all tests would be killed.
    """
    os.setpgid(0, 0)
    return publish(url, data_dir, folder)


@on_clouds
@pytest.mark.parametrize("every", either(7, 1))
def test_after_a_pause_at_any_request_the_next_publisher_keeps_its_objects(
    bucket: str,
    fault_proxy: FaultProxy,
    tmp_path: Path,
    sqlite_template: Path,
    rivals: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
    every: int,
) -> None:
    monkeypatch.setattr(object_place, "WAIT_SECONDS", 0.0)
    monkeypatch.setenv("REGISTRY_READ_TIMEOUT", "60")  # the paused request waits until the rival is done
    kept = replaced = 0
    for index in count(0, every):
        url, data_dir = str(shutil.copy(sqlite_template, tmp_path / f"{index}.db")), f"{bucket}/{index}"
        num_requests: list[int] = []
        found: list[Any] = []
        child: Future[int] = Future()

        def take_over(
            url: str = url,
            data_dir: str = data_dir,
            num_requests: list[int] = num_requests,
            found: list[Any] = found,
            child: Future[int] = child,
        ) -> None:
            os.kill(child.result(60), signal.SIGSTOP)
            with registry.connect(url, data_dir=data_dir) as catalog, suppress(NotFoundError):
                catalog.reservations.release("animals:1.0.0", force=True)
            found.append(publish(url, data_dir, str(rivals[1])))
            num_requests.append(len(fault_proxy.requests))
            os.kill(child.result(), signal.SIGCONT)

        fault_proxy.reset()
        fault_proxy.inject("hook", at=index, hook=take_over)
        publisher = fork(partial(publish_in_own_group, url, data_dir, str(rivals[0])))
        child.set_result(publisher[0])
        found.append(wait(*publisher))
        if len(found) == 1:  # it sends fewer requests than this
            assert found[0]["newly"]
            break
        checks = [one.index for one in fault_proxy.requests if (one.method, one.key[-len(SHARD) :]) == ("HEAD", SHARD)]
        fault_proxy.reset()
        rival, paused = found
        assert [one.get("newly") for one in found].count(True) == 1, (index, found)
        loser = rival if paused.get("newly") else paused
        assert loser["error"] in ("reservation_lost", "reserved", "version_exists", "conflict", "storage"), (
            index,
            loser,
        )
        with registry.connect(url, data_dir=data_dir) as catalog:
            if faults := catalog.dataset("animals").verify(deep=True).faults:
                # It had found the name free for the last time before the rival did, and ended its upload after it.
                assert [one.code for one in faults] == ["foreign_shard"], (index, faults)
                assert (len(checks), max(checks) < num_requests[0]) == (2 + 2, True), (index, checks, num_requests)
                assert not catalog.publish(rivals[1]).newly, "publishing again repairs it"
                replaced += 1
            else:
                kept += 1
            assert catalog.dataset("animals").verify(deep=True).faults == (), index
    assert index > 10
    record_property(
        f"pauses of a publisher on {bucket[:2]}", f"{kept} without effect, {replaced} with damage that is found"
    )
