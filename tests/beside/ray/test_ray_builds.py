"""Builds in pieces on a Ray cluster give the bytes of local ones, whatever dies meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.piece_builders import built
from support.ray_builders import KINDS, Absent, AllEmpty, Behind, Doubled, Failing, ManyFail
from support.ray_kills import PHASES, UPLOADS, WHATS, build_of, expected_digests, moments, try_kill
from support.s3_server import S3Server

import registry
from registry.building import DatasetBuilder
from registry.errors import BuildError, DuplicateKeyError, RegistryError


@pytest.fixture
def pieces_run(connected: Any, done_on_cluster: list[str], caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What pieces do on the cluster, in a block with the engine ray."""
    with registry.use_engine("ray"):
        yield done_on_cluster
    warned = [one.getMessage() for one in caplog.get_records("call")]
    assert [one for one in warned if "in this process" in one and not one.endswith("it belongs to this process")] == []


def errors_of(builder: DatasetBuilder, kind: type[RegistryError], folder: Path) -> list[RegistryError]:
    """The error of a build on this machine, and the error of a build on the cluster."""
    errors = []
    for engine in ("local", "ray"):
        with registry.use_engine(engine), pytest.raises(kind) as caught:
            built(builder, folder / engine, processes=2)
        errors.append(caught.value)
    return errors


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


@pytest.mark.parametrize("is_watched", [True, False], ids=["watched", "unwatched"])
def test_a_slow_input_does_not_stop_the_others(
    is_watched: bool, connected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "started").mkdir()
    monkeypatch.setenv("REGISTRY_TEST_FOLDER", str(tmp_path / "started"))
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        progress = (lambda _: None) if is_watched else None
        with registry.use_engine("ray"):
            catalog.build(Behind, processes=2, progress=progress)  # five pieces wait for two tasks
        assert catalog.dataset("behind").splits["train"].num_examples == 180


def test_inputs_that_fail_are_named_as_in_a_local_build(pieces_run: list[str], tmp_path: Path) -> None:
    here, there = errors_of(Failing(), BuildError, tmp_path)
    assert here.message == there.message
    lines = here.message.splitlines()
    assert lines[1].startswith("  ValueError: it is damaged (")
    assert [lines[0], *lines[2:]] == [
        "split 'train': 2 inputs failed",
        "    (3, 100), after 50 examples",
        "    (17, 100), after 50 examples",
    ]


@pytest.fixture(scope="module")
def expected_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """The sha256 of the shards that a local build gives, for what is killed; each dataset is built once."""
    folder, known = tmp_path_factory.mktemp("expected"), dict[str, list[str]]()

    def find(what: str) -> list[str]:
        _, name, _ = build_of(what)
        if name not in known:
            known[name] = expected_digests(folder, what)
        return known[name]

    return find


@pytest.mark.parametrize("what", WHATS)
def test_a_build_survives_a_kill_or_the_next_build_goes_on(
    what: str, cluster: Any, connected: Any, expected_of: Callable[[str], list[str]], tmp_path: Path
) -> None:
    for number, seconds in enumerate(moments(what, 1 if what == "driver" else 2)):
        (tmp_path / str(number)).mkdir()
        try_kill(what, seconds, cluster, tmp_path / str(number), expected_of(what))


@pytest.mark.parametrize("what", PHASES)
def test_a_driver_that_dies_in_a_phase_leaves_nothing_visible(
    what: str, cluster: Any, connected: Any, expected_of: Callable[[str], list[str]], tmp_path: Path
) -> None:
    assert try_kill(what, 0.0, cluster, tmp_path, expected_of(what)).startswith("killed")


def test_a_driver_that_dies_while_it_uploads_leaves_nothing_visible(
    cluster: Any,
    connected: Any,
    expected_of: Callable[[str], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = expected_of(UPLOADS)
    with S3Server() as server:
        server.create_bucket("uploads")
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        assert try_kill(UPLOADS, 0.0, cluster, tmp_path, expected, data_dir="s3://uploads/data") == "killed"


def test_a_key_of_two_inputs_is_named_as_in_a_local_build(pieces_run: list[str], tmp_path: Path) -> None:
    here, there = errors_of(Doubled(), DuplicateKeyError, tmp_path)
    assert here.message == there.message
    assert re.match("split 'train': the key 'twin' is used twice, in inputs .+ and .+ ", here.message)


def test_inputs_without_any_example_are_refused_as_in_a_local_build(pieces_run: list[str], tmp_path: Path) -> None:
    here, there = errors_of(AllEmpty(), BuildError, tmp_path)
    assert (here.message, here.hint) == (there.message, there.hint)


@pytest.mark.parametrize(
    ("inputs", "start"),
    [
        ([__file__], "The path exists on this machine, but not on the node that tried to read it."),
        (["no such file exists"], "Check the path."),
        (["only here.txt"], "Write absolute paths: nodes do not work in the current folder of this machine."),
        ([__file__, __file__], "The path exists on this machine, but not on the node that tried to read it."),
    ],
)
def test_inputs_that_a_node_does_not_find_have_a_hint(
    inputs: list[str], start: str, pieces_run: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "only here.txt").touch()
    with pytest.raises(BuildError, match="No such file or directory") as caught:
        built(Absent(inputs), tmp_path / "data", processes=2)
    assert caught.value.hint == (
        f"{start} All nodes of a cluster must be able to read the data of the tasks: put it in a bucket, or in a "
        "folder that all nodes share."
    )


def test_twenty_of_many_inputs_that_fail_are_named_as_in_a_local_build(pieces_run: list[str], tmp_path: Path) -> None:
    here, there = errors_of(ManyFail(), BuildError, tmp_path)
    lines = here.message.splitlines()
    assert lines[0] == "split 'train': 20 inputs failed, and the build ended"
    assert lines[2:] == [f"    ({piece}, 3): input {piece} is damaged at 0" for piece in range(20)]
    assert here.message == there.message
