"""The settings of work on a Ray cluster: the memory of tasks and of the object store, and the runtime environment."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.piece_builders import built
from support.ray_builders import KINDS
from support.ray_clusters import run_code, wait_until
from support.ray_pieces import hold, node_and_times

import registry
from registry.engines import Piece, choice
from registry.engines.ray.settings import RaySettings
from registry.engines.ray.tasks import RayTasks
from registry.errors import UsageError, VerificationError
from registry.storage import open_store

MIB = 2**20


@pytest.fixture
def small_node(cluster: Any, connected: Any) -> Iterator[Any]:
    """A node of four CPUs with memory for two tasks of 256 MiB."""
    node = cluster.add_node(num_cpus=4, memory=600 * MIB)
    yield node
    cluster.remove_node(node)


def test_a_node_runs_as_many_tasks_as_its_memory_allows(small_node: Any, connected: Any) -> None:
    nodes = {one["NodeID"]: one["Resources"] for one in connected.nodes() if one["Alive"]}
    slots = {node: min(int(had["CPU"]), int(had["memory"] // (256 * MIB))) for node, had in nodes.items()}
    assert slots[small_node.node_id] == 2
    with RayTasks(settings=RaySettings(task_memory=256 * MIB)) as engine:
        assert engine.width == sum(slots.values()) < sum(int(had["CPU"]) for had in nodes.values())
        assert engine.describe().endswith(f", {engine.width} pieces at a time")
        found: list[tuple[str, float, float]] = []

        def is_used() -> bool:
            pieces = [Piece(node_and_times, 0.3) for _ in range(40)]
            found.extend(result for _, result in engine.run(pieces, doing="waited", failure=VerificationError))
            return small_node.node_id in {node for node, _, _ in found}

        wait_until(is_used, "the new node has workers, and runs pieces")
    for node, started, _ in found:
        at_once = sum(one == node and begun <= started < ended for one, begun, ended in found)
        assert at_once <= slots[node]


def test_the_memory_of_a_task_applies_to_a_number_of_processes(connected: Any) -> None:
    with RayTasks(settings=RaySettings(task_memory=256 * MIB)) as engine, engine.with_width(2) as lent:
        assert (lent.width, lent.memory_of_piece) == (2, 256 * MIB)


def test_a_task_that_fits_on_no_node_is_a_typed_error(connected: Any) -> None:
    largest = max(int(one["Resources"].get("memory", 0)) for one in connected.nodes() if one["Alive"])
    with pytest.raises(UsageError) as caught, registry.use_engine("ray", task_memory=2**50):
        pass
    assert caught.value.message == (
        f"no node of the cluster can give a task 1,125,899,906,842,624 bytes of memory: the largest has {largest:,}"
    )
    assert caught.value.hint == (
        "Set `task_memory` to a smaller value, or start larger nodes: ray start --memory BYTES"
    )
    assert caught.value.details == {"task_memory": 2**50, "largest": largest}
    with registry.use_engine("ray") as engine:  # the connection is usable
        assert engine is not None


def most_waiting(engine: RayTasks, sizes: list[int]) -> int:
    """Run pieces whose inputs have these sizes; returns the most that were drawn and not yielded."""
    drawn, yielded, most = 0, 0, 0

    def pieces() -> Iterator[Piece[Any, Any]]:
        nonlocal drawn, most
        for number, size in enumerate(sizes):
            drawn += 1
            most = max(most, drawn - yielded)
            yield Piece(hold, (number, bytes(size)))

    for (number, _), result in engine.run(pieces(), doing="held bytes", failure=VerificationError):
        assert result == (number, sizes[number])
        yielded += 1
    assert yielded == len(sizes)
    return most


def test_the_bytes_of_waiting_pieces_are_bounded(connected: Any) -> None:
    sizes = [5_000_000] * 12
    with RayTasks() as engine:
        assert most_waiting(engine, sizes) == 2 * engine.width + 1 == 9
    with RayTasks(settings=RaySettings(object_store_memory=20_000_000)) as engine:
        assert (
            most_waiting(engine, sizes) == 4
        )  # three are sent; the fourth is drawn, and waits: a function is sent, too
        assert most_waiting(engine, [1000] * 30) == 9


def test_a_piece_that_is_larger_than_the_bound_runs_alone(connected: Any) -> None:
    with RayTasks(settings=RaySettings(object_store_memory=2_000_000)) as engine:
        assert most_waiting(engine, [5_000_000, 100, 5_000_000, 5_000_000]) == 2  # one is sent, and one is drawn


def test_results_count_as_the_largest_one_so_far(connected: Any) -> None:
    settings = RaySettings(object_store_memory=20_000_000)
    drawn, most, yielded = 0, 0, 0

    def pieces() -> Iterator[Piece[int, bytes]]:
        nonlocal drawn, most
        for _ in range(20):
            drawn += 1
            if yielded:  # before the first result, its size is unknown
                most = max(most, drawn - yielded)
            yield Piece(bytes, 5_000_000)

    with RayTasks(settings=settings) as engine:
        for _, result in engine.run(pieces(), doing="made bytes", failure=VerificationError):
            assert len(result) == 5_000_000
            yielded += 1
            if yielded == 10:
                most = 0  # those that were drawn before the first result have been yielded
    assert 2 <= most <= 4


def test_a_piece_that_cannot_be_sent_runs_here_with_a_bound_too(connected: Any) -> None:
    locks = [threading.Lock() for _ in range(3)]
    with RayTasks(settings=RaySettings(object_store_memory=20_000_000)) as engine:
        pieces = [Piece(id, one) for one in locks]
        found = [result for _, result in engine.run(pieces, doing="looked", failure=VerificationError)]
    assert found == [id(one) for one in locks]


@pytest.mark.parametrize("name", ["FewLarge", "InOrder"])
def test_a_build_with_little_memory_gives_the_files_of_a_local_one(
    name: str, connected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from registry.building import build as build_module

    # The least of a task is a budget of 26 MiB; this one spills often for a small dataset.
    monkeypatch.setattr(build_module, "_INTERPRETER_BYTES", 256 * MIB)
    monkeypatch.setattr(build_module, "_LEAST_TASK_BUDGET_BYTES", 20_000)
    budgets: list[int] = []
    make = build_module.GroupMaker

    def noted(**fields: Any) -> Any:
        budgets.append(fields["budget_bytes"])
        return make(**fields)

    monkeypatch.setattr(build_module, "GroupMaker", noted)
    builder, found = KINDS[name](), []
    for engine, settings in (("local", {}), ("ray", {"task_memory": 256 * MIB})):
        with registry.use_engine(engine, **settings):
            found.append(built(builder, tmp_path / engine, processes=4))
    assert found[0] == found[1]
    assert budgets[-1] == 20_000


def test_the_budget_of_a_task_follows_from_its_memory(connected: Any, tmp_path: Path) -> None:
    from registry.building.build import _SplitJob

    def budget(settings: RaySettings) -> int:
        with RayTasks(settings=settings) as engine:
            fields: dict[str, Any] = dict.fromkeys(_SplitJob.__dataclass_fields__)
            return _SplitJob(**fields | {"engine": engine, "budget_bytes": 64 * MIB})._task_budget_bytes

    assert budget(RaySettings()) == 64 * MIB
    assert budget(RaySettings(task_memory=256 * MIB)) == (256 - 150) * MIB // 4
    assert budget(RaySettings(task_memory=350 * MIB)) == 50 * MIB


@pytest.mark.parametrize("form", ["name", "object"])
def test_a_call_takes_the_engine(
    form: str,
    connected: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(choice, "_SMALL_BYTES", 0)
    caplog.set_level(logging.INFO, logger="registry.engines")
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog, RayTasks() as opened:
        with registry.use_engine("ray" if form == "name" else opened):
            catalog.build(KINDS["Pieced"], processes=2)
            dataset = catalog.dataset("pieced")
            assert dataset.verify(deep=True).faults == ()
            assert [version.is_sound for version in catalog.verify_all()] == [True]
            pins = dataset.pin("train", processes=2)
            assert pins["train"].verify(processes=2).is_sound
        on = "on Ray, with 4 CPUs on 2 nodes"
        assert caplog.messages == [
            f"building Pieced {on}, 2 pieces at a time",
            f"verifying pieced:1.0.0 {on}",
            f"verifying every version {on}",
            f"pinning pieced:1.0.0 {on}, 2 pieces at a time",
            f"verifying pieced:1.0.0 {on}, 2 pieces at a time",
        ]
        caplog.clear()
        with registry.use_engine("ray"), registry.use_engine("local"):
            dataset.verify()
        assert caplog.messages == []
        assert opened.connect().num_cpus == 4  # an engine that is given stays open


def test_work_that_stays_here_says_why(
    connected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="registry.engines")
    for name in ("_TRIAL_SECONDS", "_WAITING_TRIAL_SECONDS"):
        monkeypatch.setattr(choice, name, 3600.0)  # on a busy machine, little work may take seconds
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        with registry.use_engine("ray"):
            catalog.build("digits")
            dataset = catalog.dataset("digits")
            dataset.verify(processes=1)
            monkeypatch.setattr(RayTasks, "can_read", lambda *_: False)
            dataset.verify(processes=2)
        here = dataset.folder
    assert caplog.messages == [
        "building digits on this machine, because there is little to do",
        "verifying digits:1.0.0 on this machine, because only one process was requested",
        f"working on this machine, because the nodes of the cluster cannot read {open_store(here).url}",
    ]


PACKAGE = '''
"""A builder that records which process generates its examples."""

import os
from pathlib import Path

import registry
from registry.features import FeaturesDict, Scalar


class Sent(registry.DatasetBuilder):
    VERSION = "1.0.0"

    def features(self):
        return FeaturesDict({"number": Scalar("int64")})

    def splits(self):
        return {"train": registry.Pieces(range(8), self.generate)}

    def generate(self, given):
        Path(os.environ["REGISTRY_TEST_FOLDER"], str(os.getpid())).touch()
        yield given, {"number": given}
'''

BUILD_SENT = """
    import os, sys
    from pathlib import Path
    import registry

    folder, address, environment = sys.argv[1], sys.argv[2], sys.argv[3] == "sent"
    sys.path.insert(0, f"{folder}/code")
    from sent_package.sent import Sent
    sys.path.remove(f"{folder}/code")  # the engine tells workers the path of the program

    if __name__ == "__main__":
        options = {"runtime_env": {"py_modules": [f"{folder}/code/sent_package"]}} if environment else {}
        with registry.connect(f"{folder}/catalog.db", create=True) as catalog:
            with registry.use_engine("ray", address=address, **options):
                catalog.build(Sent, processes=2)
        pids = {int(path.name) for path in Path(os.environ["REGISTRY_TEST_FOLDER"]).iterdir()}
        print(os.getpid() in pids, len(pids) > 0)
"""


@pytest.mark.parametrize("is_sent", [True, False], ids=["sent", "not sent"])
def test_a_runtime_environment_sends_the_package_of_a_builder(cluster: Any, tmp_path: Path, is_sent: bool) -> None:
    package = tmp_path / "code" / "sent_package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "sent.py").write_text(PACKAGE)
    (tmp_path / "pids").mkdir()
    done = run_code(
        BUILD_SENT,
        *(str(tmp_path), cluster.address, "sent" if is_sent else "not"),
        REGISTRY_TEST_FOLDER=str(tmp_path / "pids"),
    )
    if is_sent:
        assert (done.returncode, done.stdout) == (0, "False True\n"), done.stderr
        return
    assert done.returncode == 1
    message = "a node of the cluster cannot load the code that it should run: ModuleNotFoundError: No module named "
    assert f"BuildError: {message}'sent_package'\nhint: Install the builder's package on all nodes" in done.stderr


def test_the_command_line_passes_the_settings(cluster: Any, tmp_path: Path) -> None:
    place = {"REGISTRY_CATALOG": str(tmp_path / "catalog.db")}
    (tmp_path / "environment.yaml").write_text("env_vars: {OF_THE_TEST: value}\n")
    code = "import sys; from registry.cli.main import run; sys.exit(run(sys.argv[1:]))"
    assert run_code(code, "build", "digits", **place).returncode == 0
    done = run_code(
        code,
        *("verify", "digits", "-j", "2", "--engine", "ray", "--address", cluster.address, "--format", "json"),
        *("--runtime-env", str(tmp_path / "environment.yaml")),
        *("--task-memory", "256MiB", "--object-store-memory", "200MB"),
        **place,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["warnings"] == [
        "note: verifying digits on Ray, with 4 CPUs on 2 nodes, 2 pieces at a time"
    ]


REFUSED = """
    import sys
    import registry
    from registry.errors import UsageError
    for options in (
        {"runtime_env": {"py_modules": ["./there_is_no_such_folder"]}},
        {"runtime_env": {"pip": 5}},
        {"runtime_env": {"py_modules": 5}},
        {"runtime_env": {"py_module": []}},
    ):
        try:
            with registry.use_engine("ray", address=sys.argv[1], **options):
                print("connected")
        except UsageError as error:
            print(error.message.splitlines()[0])
"""


def test_a_runtime_environment_that_ray_refuses_is_a_typed_error(cluster: Any) -> None:
    done = run_code(REFUSED, cluster.address)
    lines = done.stdout.splitlines()
    assert lines[0] == "Ray refuses the runtime_env: ./there_is_no_such_folder does not exist", done.stderr
    assert [line.startswith("Ray refuses the runtime_env: ") for line in lines] == [True] * 4
    assert lines[3].startswith("Ray refuses the runtime_env: unknown field 'py_module'. Did you mean 'py_modules'? ")


def test_a_connection_of_the_program_cannot_get_another_runtime_environment(connected: Any) -> None:
    with pytest.raises(UsageError) as caught, registry.use_engine("ray", runtime_env={"env_vars": {"A": "1"}}):
        pass
    assert caught.value.message == "this program is already connected to a Ray cluster, without this runtime_env"


OWN_STORE = """
    import ray
    from registry.engines import use_engine
    with use_engine("ray", address="local", object_store_memory=100_000_000) as engine:
        print(int(ray.cluster_resources()["object_store_memory"]))
"""


def test_a_new_cluster_has_an_object_store_of_that_size() -> None:
    done = run_code(OWN_STORE)
    assert done.stdout == "100000000\n", done.stderr
