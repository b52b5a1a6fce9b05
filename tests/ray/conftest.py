"""A Ray cluster of two nodes on this machine, shared by the tests of this folder. Starting it takes ten seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.ray)
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))  # Ray leaves files open
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Two nodes of two CPUs. Tests may add nodes, and remove those."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_health_check_period_ms", "1000")  # a dead node is noticed sooner
        patch.setenv("RAY_health_check_failure_threshold", "3")
        from ray.cluster_utils import Cluster

        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        made.add_node(num_cpus=2)
    yield made
    made.shutdown()


@pytest.fixture(scope="session")
def connected(cluster: Any) -> Iterator[Any]:
    """Ray, connected to the cluster by this program: engines use the connection, and leave it open."""
    import ray

    ray.init(address=cluster.address, logging_level="WARNING")
    yield ray
    ray.shutdown()
