"""A Ray cluster of two nodes on this machine, shared by the tests of this folder. Starting it takes ten seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.ray_clusters import MOST_SECONDS, two_nodes


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.ray)
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))  # Ray leaves files open
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session")
def session_cluster() -> Iterator[Any]:
    with two_nodes() as made:
        yield made


@pytest.fixture
def cluster(session_cluster: Any) -> Iterator[Any]:
    """Two nodes of two CPUs. Tests may add nodes, and remove those."""
    yield session_cluster
    session_cluster.wait_for_nodes(MOST_SECONDS)  # Ray counts the CPUs of a removed node until it notices


@pytest.fixture(scope="session")
def connected(session_cluster: Any) -> Iterator[Any]:
    """Ray, connected to the cluster by this program: engines use the connection, and leave it open."""
    import ray

    ray.init(address=session_cluster.address, logging_level="WARNING")
    yield ray
    ray.shutdown()


@pytest.fixture
def done_on_cluster(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Receives what each piece did whose result came from the cluster."""
    from registry.engines.ray.tasks import RayTasks

    done: list[str] = []
    run = RayTasks.run

    def noted(self: RayTasks, pieces: Any, *, doing: str, **options: Any) -> Any:
        for one in run(self, pieces, doing=doing, **options):
            done.append(doing)
            yield one

    monkeypatch.setattr(RayTasks, "run", noted)
    return done
