"""The engine of a Ray cluster: the laws of every engine, and faults, secrets and the end of a cluster's own kind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import TESTS
from support.engine_laws import *  # noqa: F403 (the tests)
from support.engine_laws import results, run
from support.engine_pieces import await_file, follow
from support.ray_clusters import MOST_SECONDS, run_code, session_files_with, wait_for_rest, wait_until
from support.ray_pieces import kill_once, node_of, poll_seconds, read_variable, rest, wait_for, wait_until_interrupted

from registry.engines import Engine, Piece, TaskWatch, choose_engine, use_engine
from registry.engines.ray import connection as ray_connection
from registry.engines.ray import tasks as ray_tasks
from registry.engines.ray.tasks import RayTasks
from registry.errors import UsageError, VerificationError


@pytest.fixture
def engine(connected: Any) -> Iterator[Engine]:
    with RayTasks() as made:
        yield made


@pytest.fixture
def workers(engine: Engine) -> Engine:
    return engine


@pytest.fixture(scope="module")
def lasting(connected: Any) -> Iterator[Engine]:  # of the laws that are imported above
    with RayTasks() as made:
        yield made


def test_a_function_that_a_worker_cannot_import_is_called_here(  # not on a cluster, where it may be work of days
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def pid(_):\n    import os\n    return os.getpid()\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        import only_here  # type: ignore[import-not-found]  # made above
    with pytest.raises(VerificationError, match="No module named 'only_here'") as caught:
        results(engine, *range(5), function=only_here.pid)
    assert str(caught.value.hint).startswith("Install the builder's package on all nodes of the cluster, or send it")
    del sys.modules["only_here"]


def test_the_width_is_the_number_of_cpus_or_what_was_asked_for(connected: Any) -> None:
    with RayTasks() as all_of_them, RayTasks(processes=3) as some:
        assert (all_of_them.width, some.width) == (4, 3)
        assert not all_of_them.shares_files
        assert all_of_them.describe() == "Ray, with 4 CPUs on 2 nodes"


def test_one_process_ends_each_piece_before_the_next_is_drawn(connected: Any) -> None:
    events: list[str] = []

    def pieces() -> Iterator[Piece[Any, Any]]:
        for number in range(3):
            events.append(f"drawn {number}")
            yield Piece(follow, number)

    with RayTasks(processes=1) as engine:
        for number, _ in engine.run(pieces(), doing="tested", failure=VerificationError):
            events.append(f"done {number}")
    assert events == ["drawn 0", "done 0", "drawn 1", "done 1", "drawn 2", "done 2"]


def test_a_piece_whose_worker_is_killed_once_gives_its_result(engine: Engine, tmp_path: Path) -> None:
    inputs = [(str(tmp_path / f"{number}"), number) for number in range(8)]
    assert results(engine, *inputs, function=kill_once) == list(range(8))
    assert len(list(tmp_path.iterdir())) == 8  # each piece ran, and killed its first worker


def test_a_piece_that_always_kills_its_worker_is_a_typed_error(engine: Engine) -> None:
    outcomes = run(engine, 1, "die", 2)
    assert next(outcomes) == (1, 1)
    with pytest.raises(VerificationError) as caught:
        next(outcomes)
    assert str(caught.value) == "a worker died in each of 4 attempts while it followed orders"
    assert str(caught.value.hint).startswith("A native library crashed, another program killed the process, or the ")
    assert str(caught.value.hint).endswith("To debug it on this machine: engine='local', processes=1")
    assert caught.value.details == {"attempts": 4}
    assert results(engine, 1, 2) == [1, 2]


def test_a_file_that_a_node_does_not_find_has_a_hint(engine: Engine) -> None:
    with pytest.raises(VerificationError, match="a worker process raised FileNotFoundError while it ") as caught:
        results(engine, "/there/is/no/such/folder", function=os.listdir)
    assert caught.value.hint == (
        "All nodes of a cluster must be able to read the data of the tasks: put it in a bucket, or in a folder that "
        "all "
        "nodes share."
    )


def test_a_slow_piece_does_not_stop_the_others_if_results_are_wanted_before_their_turn(
    connected: Any, tmp_path: Path
) -> None:
    ended: list[str] = []

    def note(piece: Piece[str, str], _: str) -> None:
        ended.append(piece.input)
        if len(ended) == 30:
            (tmp_path / "go").touch()

    inputs = [str(tmp_path / "go"), *map(str, range(100))]
    drawn: list[str] = []

    def pieces() -> Iterator[Piece[str, str]]:
        for one in inputs:
            drawn.append(one)
            yield Piece(await_file, one)

    with RayTasks(processes=2) as engine:
        watch = TaskWatch(lambda _: None, ended=note)
        found = engine.run(pieces(), doing="tested", failure=VerificationError, watch=watch)
        first = next(found)
        assert inputs[0] not in ended[:30]
        assert len(drawn) <= 5 * ray_tasks._AHEAD
        assert [one for one, _ in (first, *found)] == inputs
    assert sorted(ended) == sorted(inputs)


def test_a_piece_that_takes_long_is_reported(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ray_tasks, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(ray_connection, "_SLOW_SECONDS", 1.5)
    watch = TaskWatch(lambda _: None, ended=lambda *_: None)
    pieces = [Piece(rest, seconds) for seconds in (1.0, 2.0, 0.0)]  # the second takes long, but is waited for 1 s only
    assert len(list(engine.run(pieces, doing="followed orders", failure=VerificationError, watch=watch))) == 3
    found = [record.getMessage() for record in caplog.records]
    assert found
    assert all(text.startswith("still waiting for one task after ") and "(followed orders)" in text for text in found)


def test_a_node_that_is_removed_does_not_change_the_results(cluster: Any, connected: Any, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=4)
    inputs = [(str(tmp_path), number) for number in range(16)]
    with RayTasks(processes=8) as engine:
        outcomes = run(engine, *inputs, function=wait_for)
        first = next(outcomes)  # starts the others
        wait_until(
            lambda: node.node_id in [path.read_text() for path in tmp_path.glob("started-*")],
            "a piece starts on the new node",
        )
        cluster.remove_node(node, allow_graceful=False)
        (tmp_path / "go on").touch()
        assert [first[1], *(result for _, result in outcomes)] == list(range(16))


def test_what_a_piece_prints_reaches_stderr(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    assert results(engine, 1, "print", "print", 2) == [1, "print", "print", 2]
    out, err = "", ""

    def is_printed() -> bool:
        nonlocal out, err
        captured = capfd.readouterr()
        out, err = out + captured.out, err + captured.err
        return "printed by a piece" in out + err

    wait_until(is_printed, "what a piece printed appears here")
    assert "printed by a piece" in err
    assert "printed by a piece" not in out


def test_closing_an_engine_ends_its_tasks(connected: Any, tmp_path: Path) -> None:
    with RayTasks() as engine:
        outcomes = run(engine, *[(str(tmp_path), number) for number in range(20)], function=wait_for)
        assert next(outcomes)[1] == 0  # the others have started, or wait
        wait_until(lambda: num_working(tmp_path) >= 3, "three pieces work")
    wait_for_rest(lambda: num_beats(tmp_path))
    with RayTasks() as another:
        assert results(another, 1, 2) == [1, 2]


def num_working(folder: Path) -> int:
    """The number of pieces of ``wait_for`` that have reported that they work."""
    return sum(path.stat().st_size > 0 for path in folder.glob("beats-*"))


def num_beats(folder: Path) -> int:
    """The number of moments at which pieces of ``wait_for`` reported that they work."""
    return sum(path.stat().st_size for path in folder.glob("beats-*"))


def test_cancelled_pieces_are_interrupted_and_killed_if_they_go_on(connected: Any, tmp_path: Path) -> None:
    with RayTasks(processes=3) as engine:
        pieces = [Piece(wait_until_interrupted, (str(tmp_path), number)) for number in range(3)]
        started = engine.run(pieces, doing="waited", failure=VerificationError)
        next(started)
        wait_until(lambda: {number for number, _ in started_pieces(tmp_path)} == {1, 2}, "both pieces wait")
        started.close()
    wait_until(lambda: len(list(tmp_path.glob("interrupted-*"))) == 2, "both pieces are interrupted")
    (stubborn,) = [pid for number, pid in started_pieces(tmp_path) if number == 2]
    wait_until(lambda: not is_running(stubborn), "the worker of the piece that goes on is killed")
    with RayTasks() as engine:  # the other workers go on, and have received no signal that is left
        assert results(engine, *range(8)) == list(range(8))


def test_many_tasks_ask_less_often_whether_they_were_cancelled(connected: Any) -> None:
    with RayTasks(processes=3) as few, RayTasks(processes=800) as many:
        assert results(few, 0, function=poll_seconds) == [0.5]
        assert results(many, 0, function=poll_seconds) == [2.0]


def started_pieces(folder: Path) -> list[tuple[int, int]]:
    """The numbers of pieces of ``wait_until_interrupted`` that wait, and of the processes that run them."""
    found = [path.name.split("-") for path in folder.glob("started-*")]
    return [(int(number), int(pid)) for _, number, pid in found]


def is_running(pid: int) -> bool:
    """Whether a process exists, and does not only wait for its end to be noticed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.01])
def test_runs_that_are_closed_while_pieces_end_disturb_nothing(engine: Engine, seconds: float) -> None:
    for _ in range(20):
        pieces = (Piece(rest, seconds) for _ in range(20))
        started = engine.run(pieces, doing="rested", failure=VerificationError)
        next(started)
        started.close()
        assert results(engine, seconds, function=rest) == [seconds]


def test_secrets_reach_pieces_and_nothing_that_ray_shows(
    cluster: Any, engine: RayTasks, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = "kept-to-itself-4711"  # noqa: S105 (the value that the test looks for)
    names = ("AWS_SECRET_ACCESS_KEY", "REGISTRY_TOKEN", "https_proxy", "REGISTRY_KEY_PASSWORD")
    before = results(engine, *names, function=read_variable)
    with monkeypatch.context() as patch:
        for name in names:
            patch.setenv(name, f"{secret}-{name}")
        pieces = [Piece(read_variable, name) for name in names]
        found = [value for _, value in engine.run(pieces, doing="read secrets", failure=VerificationError)]
        assert found == [*(f"{secret}-{name}" for name in names[:3]), before[3]]
        with pytest.raises(VerificationError):
            results(engine, "die", function=follow)
    assert results(engine, *names, function=read_variable) == before  # the next run has its own environment
    assert session_files_with(secret, engine.connect().ray) == []
    shown = listed_tasks(engine)
    assert secret.encode() not in shown
    captured = capfd.readouterr()
    assert secret not in captured.out + captured.err + repr(engine) + repr(vars(engine))


def test_a_node_keeps_its_own_credentials_where_the_program_names_files_that_it_lacks(tmp_path: Path) -> None:
    code = """
import os, sys
from ray.cluster_utils import Cluster
from support.ray_pieces import read_variable
from registry.engines import Piece
from registry.engines.ray.tasks import RayTasks
from registry.errors import VerificationError
names = "GOOGLE_APPLICATION_CREDENTIALS", "SSL_CERT_DIR", "AWS_PROFILE", "AWS_ACCESS_KEY_ID"
os.environ.update(dict.fromkeys(names, "of the node"))
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
os.environ.update(dict(zip(names, ("/only/here.json", sys.argv[1], "only-here", "of the program"))))
with RayTasks(cluster.address) as engine:
    pieces = [Piece(read_variable, name) for name in names]
    print([value for _, value in engine.run(pieces, doing="tested", failure=VerificationError)])
    os.environ["SSL_CERT_DIR"] = "/only/here"
    pieces = [Piece(read_variable, "SSL_CERT_DIR")]
    print([value for _, value in engine.run(pieces, doing="tested", failure=VerificationError)])
cluster.shutdown()
"""
    done = run_code(code, str(tmp_path))
    expected = f"{['of the node', str(tmp_path), 'of the node', 'of the program']}\n['of the node']\n"
    assert done.stdout == expected, done.stderr


def listed_tasks(engine: RayTasks) -> bytes:
    """What `ray list tasks` shows: the events that the cluster keeps about each task, as it stores them."""
    shown = b""
    state = engine.connect().ray._private.state.state
    if hasattr(state, "_connect_and_get_accessor"):
        accessor = state._connect_and_get_accessor()
    else:  # Ray 2.49
        state._check_connected()
        accessor = state.global_state_accessor

    def is_listed() -> bool:
        nonlocal shown
        shown = b"".join(accessor.get_task_events())
        return b"read secrets" in shown

    wait_until(is_listed, "Ray lists the tasks")
    return shown


def test_an_engine_of_its_own_connection_ends_it(cluster: Any) -> None:
    """In another program: this one is connected by itself."""
    code = f"""
import warnings; warnings.simplefilter("error")
import os, ray
from support.engine_pieces import follow
from registry.engines import Piece, use_engine, choose_engine
from registry.engines.ray.tasks import RayTasks
from registry.errors import BuildError

class Doubler:
    def __call__(self, number):
        return [number, Doubler]

def main():
    assert not ray.is_initialized()
    with use_engine("ray", address={cluster.address!r}) as outer:
        for _ in range(2):
            with choose_engine(2, num_bytes=0, reads=()) as engine:
                assert type(engine) is RayTasks and engine.width == 2
                pieces = [Piece(Doubler(), one) for one in range(4)]
                found = list(engine.run(pieces, doing="doubled", failure=BuildError))
                assert [(one, result[0]) for one, result in found] == [(0, 0), (1, 1), (2, 2), (3, 3)]
                assert all(result[1] is Doubler for _, result in found), found
            assert ray.is_initialized()
        assert choose_engine(1, num_bytes=0, reads=()).width == 1
        assert type(choose_engine(2, num_bytes=0)) is not RayTasks
        assert type(choose_engine(2, num_bytes=0, reads=("memory://here",))) is not RayTasks
    assert not ray.is_initialized()
    print("done")
main()
"""
    done = run_code(code)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def test_without_a_cluster_one_is_started_here_and_ends_with_the_engine() -> None:
    code = """
import ray
from support.engine_pieces import follow
from registry.engines import Piece
from registry.engines.ray.tasks import RayTasks
from registry.errors import BuildError
with RayTasks("local", processes=2) as engine:
    pieces = [Piece(follow, one) for one in ("print", "pid", 7)]
    found = [result for _, result in engine.run(pieces, doing="tested", failure=BuildError)]
    assert found[0] == "print" and found[2] == 7
assert not ray.is_initialized()
print(found[1])
"""
    done = run_code(code)
    assert done.returncode == 0, done.stderr
    pid = int(done.stdout)  # nothing else is in stdout
    wait_until(lambda: not is_running(pid), "the worker ends")


ENDLESS = """
import itertools, sys
from pathlib import Path
import signal
import socket
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored if the tests run in the background
from support.ray_pieces import wait_for
from registry.engines import Piece
from registry.engines.ray.tasks import RayTasks
from registry.errors import VerificationError

pieces = (Piece(wait_for, (sys.argv[2], number)) for number in itertools.count())
with RayTasks(sys.argv[1]) as engine:
    list(engine.run(pieces, doing="tested", failure=VerificationError))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_task_outlives_a_program_that_is_interrupted_or_killed(
    cluster: Any, tmp_path: Path, number: signal.Signals
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-c", ENDLESS, cluster.address, str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as program:
        try:
            wait_until(lambda: num_working(tmp_path) >= 2, "two pieces work")
            program.send_signal(number)
            _, errors = program.communicate(timeout=MOST_SECONDS)
        finally:
            program.kill()
    if number == signal.SIGKILL:
        assert program.returncode == -number
    else:
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert "SIGTERM received" not in errors  # Ray's own handler would say so
        assert program.returncode == -signal.SIGINT  # as Python ends a program with this exception
    wait_for_rest(lambda: num_beats(tmp_path))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nowhere", "'nowhere' is not the address of a Ray cluster"),
        ("127.0.0.1:1", "cannot connect to a Ray cluster at 127.0.0.1:1: [Errno 111] Connection refused"),
    ],
)
def test_a_wrong_address_is_a_typed_error(address: str, message: str) -> None:
    code = f"""
from registry.engines.ray.tasks import RayTasks
from registry.errors import UsageError
try:
    RayTasks({address!r}).connect()
except UsageError as error:
    print(error.message)
"""
    done = run_code(code)
    assert done.stdout == f"{message}\n", done.stderr


SUBMIT_HINT = """On a node of the cluster, use the address that `ray start --head` prints: --address {0}:6379
From another machine, submit a job (here and on the head: pip install 'ray[default]'): \
ray job submit --address http://{0}:8265 -- registry build ... --engine ray"""


@pytest.mark.parametrize(
    ("place", "address", "message"),
    [
        (
            "--address",
            "ray://10.0.0.1:10001",
            "ray://10.0.0.1:10001 is an address of Ray Client, which is not supported",
        ),
        (
            "RAY_ADDRESS",
            "ray://10.0.0.1:10001",
            "RAY_ADDRESS=ray://10.0.0.1:10001 is an address of Ray Client, which is not supported",
        ),
        (
            "--address",
            "http://10.0.0.1:8265",
            "http://10.0.0.1:8265 is the address of Ray's dashboard, not of a cluster",
        ),
    ],
)
def test_ways_to_a_cluster_that_are_not_supported_name_those_that_are(
    place: str, address: str, message: str, tmp_path: Path
) -> None:
    command = [str(Path(sys.executable).parent / "registry"), "build", "digits", "--engine", "ray"]
    environment = {"REGISTRY_CATALOG": str(tmp_path / "catalog.db"), "REGISTRY_DATA_DIR": str(tmp_path / "data")}
    if place == "RAY_ADDRESS":
        environment[place] = address
    else:
        command += [place, address]
    environment = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    hint = SUBMIT_HINT.format("10.0.0.1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {message}\nhint: {hint}\n"
    assert list(tmp_path.iterdir()) == []  # nothing was started


def test_a_program_that_is_connected_through_ray_client_is_refused(tmp_path: Path) -> None:
    code = """
import subprocess, sys
import ray
from ray.cluster_utils import Cluster
from registry.engines.ray.tasks import RayTasks
from registry.errors import UsageError
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
serve = "ray.util.client.server", "--address", cluster.address, "--host", "127.0.0.1", "--mode", "legacy"
server = subprocess.Popen([sys.executable, "-m", *serve, "--port", sys.argv[1]], stdout=subprocess.DEVNULL)
try:
    ray.init(f"ray://127.0.0.1:{sys.argv[1]}", logging_level="ERROR")
    try:
        RayTasks().connect()
    except UsageError as error:
        print(error.message)
        print(error.hint)
    ray.shutdown()
finally:
    server.kill()
    server.wait()
    cluster.shutdown()
"""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "no_proxy": "127.0.0.1"}
    command = [sys.executable, "-c", code, str(port)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    message = "this program is connected through Ray Client, which is not supported"
    assert done.stdout == f"{message}\n{SUBMIT_HINT.format('HEAD')}\n", done.stderr


def test_a_lost_cluster_is_a_typed_error(tmp_path: Path) -> None:
    code = """
import sys, time
from ray.cluster_utils import Cluster
from support.ray_pieces import wait_for
from registry.engines import Piece
from registry.engines.ray.tasks import RayTasks
from registry.errors import VerificationError
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
with RayTasks(cluster.address) as engine:
    pieces = [Piece(wait_for, (sys.argv[1], number)) for number in range(1, 3)]
    def draw():
        yield from pieces
        cluster.head_node.kill_raylet()
    try:
        list(engine.run(draw(), doing="tested", failure=VerificationError))
    except VerificationError as error:
        print(error.message)
cluster.shutdown()
"""
    for attempt in range(3):  # once, Ray ended this program together with its node: an exit code, and no output
        folder = tmp_path / str(attempt)
        folder.mkdir()
        done = run_code(code, str(folder))
        if done.returncode == 0 or done.stdout:
            break
    # Ray's messages about the node are in stderr.
    assert done.stdout == "the connection to the Ray cluster was lost while it tested\n", (done.returncode, done.stderr)


def test_a_node_without_memory_is_a_typed_error(tmp_path: Path) -> None:
    code = """
import sys
from ray.cluster_utils import Cluster
from support.ray_pieces import wait_for
from registry.engines import Piece
from registry.engines.ray.tasks import RayTasks
from registry.errors import VerificationError
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
with RayTasks(cluster.address) as engine:
    try:
        list(engine.run([Piece(wait_for, (sys.argv[1], 1))], doing="tested", failure=VerificationError))
    except VerificationError as error:
        print(error.message, error.details)
        print(error.hint)
cluster.shutdown()
"""
    limits = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "100"}
    done = run_code(code, str(tmp_path), **limits)
    message = "a worker ran out of memory in each of 4 attempts while it tested"
    hint = "Its node ran out of memory. Use fewer processes: processes=N. Or use nodes with more memory for each CPU."
    assert done.stdout == f"{message} {{'attempts': 4}}\n{hint}\n", done.stderr


def test_pieces_run_on_both_nodes(engine: Engine) -> None:
    wait_until(lambda: len(set(results(engine, *range(12), function=node_of))) == 2, "pieces run on two nodes")


def test_an_engine_knows_which_folders_all_nodes_can_read(engine: RayTasks, tmp_path: Path) -> None:
    assert engine.can_read(f"file://{tmp_path}")
    assert list(tmp_path.iterdir()) == []
    assert engine.can_read("s3://bucket/folder")
    assert not engine.can_read("memory://folder")
    assert not engine.can_read(f"file://{tmp_path}/missing")
    (tmp_path / "missing").mkdir()
    assert engine.can_read(f"file://{tmp_path}/missing")


def test_an_unknown_amount_of_work_reaches_the_cluster(connected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("registry.engines.choice._TRIAL_SECONDS", 0.0)
    monkeypatch.setattr("registry.engines.choice._SLOW_SECONDS", 0.0)
    with use_engine("ray"), choose_engine(num_bytes=None, reads=()) as engine:
        found = results(engine, *["pid"] * 20)
    assert found[0] == os.getpid()
    assert os.getpid() not in found[1:]


def test_an_address_needs_ray() -> None:
    with (
        pytest.raises(UsageError, match=r"^an address cannot be set for the engine local(?m:$)"),
        use_engine("local", address="a:1"),
    ):
        pass
