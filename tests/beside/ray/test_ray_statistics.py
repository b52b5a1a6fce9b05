"""Statistics of a version that is built on a Ray cluster are those of brute force, in the bytes of every other way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.statistics_matrix import check_case

import registry


def test_a_build_on_the_cluster_has_the_statistics_of_every_other_way(
    connected: Any, done_on_cluster: list[str], tmp_path: Path
) -> None:
    with registry.use_engine("ray") as cluster:
        assert cluster is not None
        check_case(7, tmp_path, {"ray 2": cluster})
    assert {"generated examples", "wrote shards"} <= set(done_on_cluster)
