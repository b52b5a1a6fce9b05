"""Builds in pieces on a Ray cluster give the bytes of local ones, whatever dies meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray_builders import KINDS
from ray_kills import WHATS, expected_digests, moments, try_kill

import registry
from registry.building import DatasetBuilder, build_dataset
from registry.engines.ray_tasks import RayTasks
from registry.errors import BuildError
from registry.storage import open_store


@pytest.fixture
def pieces_run(connected: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What pieces do on the cluster, in a block with the engine ray."""
    done: list[str] = []
    run = RayTasks.run

    def counted(self: RayTasks, pieces: Any, *, doing: str, **options: Any) -> Any:
        for one in run(self, pieces, doing=doing, **options):
            done.append(doing)
            yield one

    monkeypatch.setattr(RayTasks, "run", counted)
    with registry.use_engine("ray"):
        yield done


def built(builder: DatasetBuilder, folder: Path, **options: Any) -> Any:
    with build_dataset(builder, open_store(folder), **options) as build:
        return dict(build.shards), dict(build.fingerprints)


@pytest.mark.parametrize("name", KINDS)
def test_the_files_are_those_of_a_local_build(name: str, pieces_run: list[str], tmp_path: Path) -> None:
    builder = KINDS[name]()
    with registry.use_engine("local"):
        expected = built(builder, tmp_path / "pieces", processes=1)
        builder.is_pieced = False
        assert built(builder, tmp_path / "generator", processes=1) == expected
        builder.is_pieced = True
    assert pieces_run == []
    assert built(builder, tmp_path / "cluster", processes=4) == expected
    assert {"generated examples", "wrote shards"} <= set(pieces_run)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_many_runs_are_merged_on_the_cluster_first(pieces_run: list[str], tmp_path: Path) -> None:
    builder = KINDS["ManySmall"]()
    with registry.use_engine("local"):
        expected = built(builder, tmp_path / "local", processes=1)
    assert built(builder, tmp_path / "cluster", processes=70) == expected  # the first 141 runs have one input each
    assert "merged runs" in pieces_run
    assert pieces_run.count("generated examples") > 127


def test_inputs_that_fail_are_named_as_in_a_local_build(pieces_run: list[str], tmp_path: Path) -> None:
    class Failing(KINDS["Pieced"]):  # type: ignore[misc, name-defined]
        name = "failing"

        def example(self, piece: int, number: int) -> dict[str, Any]:
            if piece in (3, 17) and number == 50:
                raise ValueError("it is damaged")
            return super().example(piece, number)  # type: ignore[no-any-return]

    messages = []
    for engine in ("local", "ray"):
        with registry.use_engine(engine), pytest.raises(BuildError) as caught:
            built(Failing(), tmp_path / engine, processes=2)
        messages.append(caught.value.message)
    assert messages[0] == messages[1]
    assert messages[0].startswith("split 'train': 2 inputs failed\n  split 'train', input (3, 100): ")


@pytest.mark.parametrize("what", WHATS)
def test_a_build_survives_what_dies_or_the_next_one_goes_on(
    what: str, cluster: Any, connected: Any, tmp_path: Path
) -> None:
    expected = expected_digests(tmp_path)
    for number, seconds in enumerate(moments(what, 1)):
        (tmp_path / str(number)).mkdir()
        try_kill(what, seconds, cluster, tmp_path / str(number), expected)
