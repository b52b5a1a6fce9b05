"""Implements the engine of a Ray cluster: each piece is a task of Ray core.

    piece -> pickle -> task on any node -> pickle of (result, error, cause) -> result, in order

The function of a run is stored in Ray once, together with the environment that pieces need: settings of the registry,
credentials of stores, and proxies. They are not in Ray's ``runtime_env``, which Ray logs and shows to everybody who
can see its dashboard. A worker sets the environment before it calls the function.

Pieces are repeatable, so a piece whose worker or node dies is started again, up to three times. This module starts it,
not Ray, because Ray would repeat a piece that runs out of memory without end.

Ray is imported when the engine is first used. Follows Ray 2.60 (docs.ray.io, "Fault tolerance" and "Cancelling tasks").
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

from registry.engines.engine import Engine, Piece, R, T, closed_engine, in_order, most_drawn
from registry.engines.messages import NotSendableError, Taking, WorkerDiedError, not_sendable
from registry.engines.ray_settings import RaySettings, StoreRoom
from registry.engines.ray_worker import (
    INSTALL_HINT,
    FunctionNotSendableError,
    Setting,
    call_message,
    list_folder,
    package_version,
    pickled,
    pickler_class,
    piece_environment,
)
from registry.engines.watching import TELL_SECONDS, Tally, TaskWatch
from registry.errors import RegistryError, UsageError, require_extra
from registry.model import whole_number

_log = logging.getLogger(__name__)

_ATTEMPTS: Final = 4
_CONNECT_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 5.0
_LOST_SECONDS: Final = 30.0
_SLOW_SECONDS: Final = 300.0
"""After this time, and after each doubling of it, a result that is waited for is reported."""
_LINES_SECONDS: Final = 0.5
_MOST_LINES_SECONDS: Final = 3.0
_CHECK_SECONDS: Final = 60.0
"""How long other nodes may take to list a folder."""

_MEMORY_HINT: Final = (
    "Its node ran out of memory. Use fewer processes: processes=N in Python, -j N on the command line; or nodes with "
    "more memory for each CPU."
)
_DIED_HINT: Final = (
    "A native library crashed, another program ended the process, or the system ran out of memory. The output of "
    "workers is above. To debug it, work on this machine: --engine local -j 1 on the command line."
)
_NODE_HINT: Final = "The nodes of the cluster do not last long enough. `ray status` lists them. Run the command again."
_LOST_HINT: Final = (
    "The cluster ended, or the network to it failed. Check it with `ray status`, and run the command again."
)


class RayTasks(Engine):
    """Runs pieces on a Ray cluster, for work that one machine cannot do in time.

    The cluster is, in this order: the one that this program has connected to with ``ray.init``, which is left alone;
    the one at ``address``; the one at ``RAY_ADDRESS``; one that runs on this machine; a new one on this machine, which
    ends with the engine. Engines of one program share one connection.

    Data that pieces read must be in a store that all nodes can read, such as an object store or a shared folder.
    What pieces print appears in this program's stderr, behind the process and the node that printed it.

    Args:
        address: ``host:port``; ``"auto"`` for a cluster that runs on this machine, ``"local"`` for a new one.
        processes: the number of pieces that run at the same time. None: one for each CPU of the cluster, or as many as
            the memory of its nodes allows.
        settings: the runtime environment, and bounds of memory.

    Raises:
        UsageError: ``processes`` is below 1; on first use: there is no cluster at the address, no node has the memory
            of a task, or the program is connected to the cluster already, with another runtime environment.
        MissingExtraError: on first use: Ray is not installed (extra ``ray``).
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        processes: int | None = None,
        settings: RaySettings | None = None,
    ) -> None:
        self._address = address
        self._processes = None if processes is None else whole_number(processes, "processes", least=1)
        self._settings = settings or RaySettings()
        self._connection: _Connection | None = None
        self._call: Any = None
        self._started: set[_Task] = set()
        self._taking = Taking()
        self._is_closed = False
        self._lock = threading.RLock()

    @property
    def width(self) -> int:
        """The number of processes that was asked for, or of tasks that the nodes can run at once. Connects."""
        return self._processes or self.connect().num_slots(self._settings.task_memory)

    @property
    def memory_of_piece(self) -> int | None:
        """The setting ``task_memory``."""
        return self._settings.task_memory

    @property
    def shares_files(self) -> bool:
        """False."""
        return False

    def connect(self) -> _Connection:
        """Connect to the cluster, unless this engine is connected."""
        with self._lock:
            if self._is_closed:
                raise closed_engine()
            if self._connection is None:
                connection = _Connection.open(self._address, self._settings)
                try:
                    connection.num_slots(self._settings.task_memory)
                except UsageError:
                    connection.leave()
                    raise
                self._connection = connection
                remote = connection.ray.remote(num_cpus=1, max_retries=0, memory=self._settings.task_memory)
                self._call = remote(call_message)
            return self._connection

    def with_width(self, processes: int | None) -> RayTasks:
        """Another engine on the same cluster."""
        return RayTasks(self._address, processes=processes or self._processes, settings=self._settings)

    def can_read(self, location: str) -> bool:
        """Whether pieces on every node can read the folder at this URL.

        The memory of this process cannot be read. A folder of a file system is listed by every other machine, and must
        contain the same names.
        """
        scheme = urlsplit(location).scheme
        if scheme not in ("", "file"):
            return scheme != "memory"
        return self.connect().can_list(unquote(urlsplit(location).path) if scheme else location)

    def describe(self) -> str:
        """The engine in a line for people: ``Ray, with 8 CPUs of 2 nodes``."""
        connection = self.connect()
        cpus, nodes = connection.num_cpus, connection.num_nodes
        used = f", {self.width} pieces at a time" if self._processes is not None or self.width < cpus else ""
        return f"Ray, with {cpus} CPU{'s' * (cpus > 1)} of {nodes} node{'s' * (nodes > 1)}{used}"

    def run(
        self,
        pieces: Iterable[Piece[T, R]],
        *,
        doing: str,
        failure: type[RegistryError],
        watch: TaskWatch[R] | None = None,
    ) -> Generator[tuple[T, R], None, None]:
        """See ``Engine.run``.

        Raises:
            UsageError: the engine is closed, or there is no cluster.
            MissingExtraError: Ray is not installed.
            failure: a piece raised an error from outside the registry; the workers of a piece died four times; or the
                connection to the cluster is lost.
        """
        self.connect()
        self._forget_ended()
        width = self.width
        tally, tasks = Tally(watch, width), dict[Any, _Task]()
        sent: _Sent | None = None
        ready: _Task | None = None
        most_bytes = self._settings.object_store_memory
        room = None if most_bytes is None else StoreRoom(most_bytes)

        def prepare(piece: Piece[T, R]) -> _Task:
            nonlocal sent, ready
            if self._is_closed:
                raise closed_engine()
            if sent is None or sent.function is not piece.function:
                sent = self._send(piece.function)
                if room is not None:
                    room.keep(sent.num_bytes)
            if ready is None or ready.piece is not piece:
                ready = _Task(self, piece, sent, doing)
            return ready

        def fits(piece: Piece[T, R]) -> bool:
            return room is None or room.fits(prepare(piece).pickle())

        def start(piece: Piece[T, R]) -> _Task:
            nonlocal ready
            task, ready = prepare(piece), None
            if room is not None:
                room.add(task.pickle())
            with suppress(NotSendableError, WorkerDiedError):  # raised again when the result is taken
                task.start()
                tasks[task.ref] = task
            tally.start()
            return task

        def finish(piece: Piece[T, R], task: _Task) -> R:
            result = partial(self._wait_for, task, tasks, tally)
            take = partial(self._taking.take, piece, result, doing=doing, failure=failure)
            taken: R = tally.take(piece, take, is_counted=lambda: task.is_counted)
            if room is not None:
                room.remove(task.num_bytes, num_result_bytes=task.num_result_bytes)
            return taken

        most = most_drawn(width) if width > 1 else 1
        yield from in_order(start, pieces, most=most, finish=finish, fits=None if room is None else fits)

    def _wait_for(self, task: _Task, tasks: dict[Any, _Task], tally: Tally[Any]) -> Any:
        """Wait for the result of a piece, or raise its error. ``tasks`` are those whose end was not seen yet."""
        connection = self.connect()  # raises if the engine is closed
        patience = _Patience(connection, task.doing)
        seconds = min(TELL_SECONDS, _POLL_SECONDS) if tally.is_watched else _POLL_SECONDS
        while not task.has_ended:
            refs = list(tasks) if tally.takes_results else [task.ref]
            with connection.typed_faults(task.attempt):
                ended = connection.wait(refs, seconds)
            patience.check()
            for one in [tasks.pop(ref) for ref in ended]:
                one.fetch()
                if not one.has_ended:
                    tasks[one.ref] = one
                    tally.retry()
                elif one.has_result and tally.takes_results:
                    one.is_counted = True
                    tally.end(one.piece, one.result())
            tally.tell()
        return task.result()

    def close(self) -> None:
        """End all tasks: the workers that run them are killed. The cluster ends if this engine started it."""
        with self._lock:
            self._is_closed = True
            connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            self._end_tasks(connection)
        finally:
            connection.leave()

    def _end_tasks(self, connection: _Connection) -> None:
        refs = [task.ref for task in list(self._started) if task.ref is not None]
        self._started.clear()
        with suppress(Exception):  # the cluster may have ended
            running = connection.ray.wait(refs, num_returns=len(refs), timeout=0)[1] if refs else []
            for ref in running:
                connection.ray.cancel(ref, force=True)
            if running:
                connection.ray.wait(running, num_returns=len(running), timeout=_CONNECT_SECONDS)

    def _send(self, function: Callable[[Any], Any]) -> _Sent:
        connection = self.connect()
        connection.has_run = True
        try:
            setting = Setting(package_version(), piece_environment(), [path for path in sys.path if path])
            content = connection.pickle((setting, connection.pickle(function)))
            with connection.typed_faults():
                return _Sent(function, uuid.uuid4().hex, connection.ray.put(content), num_bytes=len(content))
        except (NotSendableError, WorkerDiedError) as error:
            return _Sent(function, "", None, error)

    def _forget_ended(self) -> None:
        """Forget tasks of earlier runs that were cancelled and have ended."""
        cancelled = {task.ref: task for task in list(self._started) if task.is_cancelled}
        if cancelled:
            with suppress(Exception):  # a lost cluster is noticed by the next task
                refs = list(cancelled)
                for ref in self.connect().ray.wait(refs, num_returns=len(refs), timeout=0)[0]:
                    self._started.discard(cancelled[ref])


class _Sent:
    """A function that was stored in Ray, or the reason why it cannot be sent."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        key: str,
        content: Any,
        refusal: NotSendableError | WorkerDiedError | None = None,
        *,
        num_bytes: int = 0,
    ) -> None:
        self.function = function
        self.num_bytes = num_bytes
        self.key = key
        self.content = content
        self.refusal = refusal


class _Task:
    """A piece that was sent, and the reference to its result. It is started again if its worker or node dies."""

    def __init__(self, engine: RayTasks, piece: Piece[Any, Any], sent: _Sent, doing: str) -> None:
        self._engine = engine
        self._sent = sent
        self._message: bytes | None = None
        self._answer: tuple[Any, Exception | None, Exception | None] | None = None
        self._refusal: NotSendableError | WorkerDiedError | None = None
        self.piece = piece
        self.doing = doing
        self.attempt = 0
        self.ref: Any = None
        self.num_bytes = 0
        self.num_result_bytes = 0
        self.is_cancelled = False
        self.is_counted = False

    @property
    def has_ended(self) -> bool:
        """Whether ``result`` returns or raises at once."""
        return self._answer is not None or self._refusal is not None

    @property
    def has_result(self) -> bool:
        """Whether the piece gave a result, and no error."""
        return self._answer is not None and self._answer[1] is None

    def pickle(self) -> int:
        """Pickle the input ahead of ``start``; returns its size, 0 if it cannot be sent."""
        if self._message is None and self._sent.refusal is None:
            with suppress(NotSendableError):  # raised again by start()
                self._message = self._engine.connect().pickle(self.piece.input)
                self.num_bytes = len(self._message)
        return self.num_bytes

    def start(self) -> None:
        """Send the piece.

        Raises:
            NotSendableError: the function or the input cannot be pickled, or was refused by a worker.
            WorkerDiedError: the connection is lost.
        """
        self.attempt += 1
        try:
            if self._sent.refusal is not None:
                raise self._sent.refusal
            connection = self._engine.connect()
            message, self._message = self._message or connection.pickle(self.piece.input), None
            call = self._engine._call.options(name=self.doing)
            with connection.typed_faults():
                self.ref = call.remote(self._sent.key, self._sent.content, message)
        except (NotSendableError, WorkerDiedError) as error:
            self._refusal = error
            raise
        self._engine._started.add(self)

    def fetch(self) -> None:
        """Get the answer of a task that has ended. If its worker or node died, start it again instead."""
        self._engine._started.discard(self)
        connection = self._engine.connect()
        try:
            with connection.typed_faults(self.attempt):
                content = connection.ray.get(self.ref)
        except _TaskDiedError as error:
            if self.attempt < _ATTEMPTS:
                with suppress(NotSendableError, WorkerDiedError):  # raised again when the result is taken
                    self.start()
                return
            self._refusal = WorkerDiedError(error.message, hint=error.hint, details=error.details)
            self._refusal.__cause__ = error
            return
        except WorkerDiedError as error:
            self._refusal = error
            return
        self.ref = None  # frees the result in the object store
        self.num_result_bytes = len(content)
        try:
            self._answer = pickle.loads(content)  # noqa: S301 - from a worker of this program
        except Exception as error:  # noqa: BLE001 (raised when the result is taken)
            self._refusal = not_sendable(error)
            self._refusal.__cause__ = error
            return
        if isinstance(self._answer[1], FunctionNotSendableError):
            self._sent.refusal = self._answer[1]

    def result(self) -> Any:
        """The result of a piece that has ended, or its error."""
        if self._refusal is not None:
            raise self._refusal
        result, raised, cause = cast("tuple[Any, Exception | None, Exception | None]", self._answer)
        if raised is not None:
            raise raised from cause
        return result

    def cancel(self) -> None:
        """Cancel the task: it does not start, or gets a KeyboardInterrupt. ``close`` kills those that still run."""
        self.is_cancelled = True
        connection = self._engine._connection
        if self.ref is not None and connection is not None:
            with suppress(Exception):  # the cluster may have ended
                connection.ray.cancel(self.ref)


class _TaskDiedError(WorkerDiedError):
    """A task died, and can be started again."""


class _Connection:
    """The connection of this program to a cluster. Engines share it, and the last one that leaves ends it."""

    _lock: Final = threading.Lock()
    _current: _Connection | None = None

    def __init__(self, ray: ModuleType, address: str | None, *, is_own: bool) -> None:
        self.ray = ray
        self._address = address
        self._is_own = is_own
        self._num_users = 0
        self._listed: dict[str, bool] = {}
        self.has_run = False
        self._pickler = pickler_class(ray)
        nodes = [node for node in ray.nodes() if node["Alive"]]
        self._head = str(ray.get_runtime_context().gcs_address)
        self.num_nodes = max(1, len(nodes))
        self.num_cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._nodes = [(int(node["Resources"].get("CPU", 0)), node["Resources"].get("memory", 0.0)) for node in nodes]
        self._runtime_env: Mapping[str, Any] | None = None

    @classmethod
    def open(cls, address: str | None, settings: RaySettings) -> _Connection:
        """The connection that exists, or a new one."""
        with require_extra("ray", package="ray", needed_for="work on a Ray cluster"):
            import ray
        with cls._lock:
            found = cls._current
            if found is not None and not ray.is_initialized():  # the program ended it
                found = None
            if found is None:
                is_own = not ray.is_initialized()
                if is_own:
                    _print_to_stderr()
                    _connect(ray, address or os.environ.get("RAY_ADDRESS") or None, settings)
                found = cls(ray, address, is_own=is_own)
                found._runtime_env = settings.runtime_env if is_own else None
            elif found._is_own and address is not None and address != found._address:
                raise UsageError(
                    f"this program is connected to another Ray cluster than {address}",
                    hint="Close the engine that uses it first: a program uses one cluster at a time.",
                )
            if settings.runtime_env is not None and settings.runtime_env != found._runtime_env:
                raise UsageError(
                    "this program is connected to a Ray cluster already, without this runtime_env",
                    hint="Pass runtime_env to ray.init, or to the first engine that the program uses.",
                )
            cls._current = found
            found._num_users += 1
            return found

    def leave(self) -> None:
        """Called by an engine that is closed."""
        with self._lock:
            self._num_users -= 1
            if self._num_users:
                return
            if _Connection._current is self:
                _Connection._current = None
                if self._is_own:
                    try:
                        if self.has_run:
                            _await_lines()
                    finally:
                        self.ray.shutdown()

    def num_slots(self, task_memory: int | None) -> int:
        """The number of tasks that the nodes can run at the same time.

        Raises:
            UsageError: no node has this memory, so that Ray would wait for one without end.
        """
        if task_memory is None:
            return self.num_cpus
        found = int(sum(min(cpus, memory // task_memory) for cpus, memory in self._nodes))
        if not found:
            largest = int(max((memory for cpus, memory in self._nodes if cpus), default=0))
            raise UsageError(
                f"no node of the cluster can give a task {task_memory:,} bytes of memory: the largest has {largest:,}",
                hint="Set task_memory (--task-memory) to less, or start larger nodes: ray start --memory BYTES",
                details={"task_memory": task_memory, "largest": largest},
            )
        return found

    def pickle(self, value: object) -> bytes:
        """Pickle ``value``; classes and functions of ``__main__`` by value. Raises NotSendableError."""
        return pickled(self._pickler, value)

    def wait(self, refs: list[Any], seconds: float) -> list[Any]:
        """Those of ``refs`` whose tasks have ended. Waits for the first one, for up to ``seconds``."""
        ended: list[Any] = self.ray.wait(refs, num_returns=len(refs), timeout=0)[0]
        return ended or list(self.ray.wait(refs, timeout=seconds)[0])

    def answers(self) -> bool:
        """Whether the head of the cluster accepts connections."""
        host, _, port = self._head.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_POLL_SECONDS).close()
        except OSError:
            return False
        return True

    def typed_faults(self, attempt: int = 0) -> _TypedFaults:
        """Raise faults of workers and of the cluster in the block as WorkerDiedError."""
        return _TypedFaults(self, attempt)

    def can_list(self, folder: str) -> bool:
        """Whether all other machines of the cluster find the same names in a folder as this one."""
        if folder not in self._listed:
            try:
                self._listed[folder] = self._is_listed(folder)
            except Exception:  # noqa: BLE001 (whatever fails there, work that needs the folder would fail, too)
                self._listed[folder] = False
        return self._listed[folder]

    def _is_listed(self, folder: str) -> bool:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        others = [
            node["NodeID"]
            for node in self.ray.nodes()
            if node["Alive"] and node["NodeManagerHostname"] != socket.gethostname()
        ]
        if not others:
            return True
        lister = self.ray.remote(num_cpus=0, max_retries=2)(list_folder)
        placed = [NodeAffinitySchedulingStrategy(node, soft=False) for node in others]
        refs = [lister.options(scheduling_strategy=place).remote(folder) for place in placed]
        here = list_folder(folder)
        return all(found == here for found in self.ray.get(refs, timeout=_CHECK_SECONDS))


class _Patience:
    """Warns if a result is waited for too long: its task may hang, or be large. Notices that the cluster is lost."""

    def __init__(self, connection: _Connection, doing: str) -> None:
        self._connection = connection
        self._doing = doing
        self._started = self._asked = time.monotonic()
        self._report_after = _SLOW_SECONDS
        self._lost_at: float | None = None

    def check(self) -> None:
        """Called several times a minute while the result is waited for.

        Raises:
            WorkerDiedError: the cluster's head does not answer for 40 s. After 60 s, Ray would end this program.
        """
        now = time.monotonic()
        if now - self._started > self._report_after:
            waited = now - self._started
            _log.warning("waiting for one task for %.0f s (%s); `ray list tasks` shows its node", waited, self._doing)
            self._report_after *= 2
        if now - self._asked < _POLL_SECONDS:
            return
        self._asked = now
        if self._connection.answers():
            self._lost_at = None
        elif self._lost_at is None:
            self._lost_at = now
        elif now - self._lost_at > _LOST_SECONDS:
            raise _lost({})


class _TypedFaults:
    """A context manager that replaces Ray's errors."""

    def __init__(self, connection: _Connection, attempt: int) -> None:
        self._connection = connection
        self._attempt = attempt

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None or not isinstance(error, Exception) or isinstance(error, RegistryError | WorkerDiedError):
            return
        raised = self._typed(error)
        if raised is not None:
            raise raised from error

    def _typed(self, error: Exception) -> WorkerDiedError | None:
        faults = self._connection.ray.exceptions
        details = {"attempts": self._attempt}
        times = f" in each of {self._attempt} attempts" if self._attempt > 1 else ""
        if isinstance(error, faults.LocalRayletDiedError) or not self._connection.ray.is_initialized():
            return _lost(details)
        if isinstance(error, faults.OutOfMemoryError):
            return _TaskDiedError(f"a worker ran out of memory{times}", hint=_MEMORY_HINT, details=details)
        if isinstance(error, faults.WorkerCrashedError | faults.TaskCancelledError):
            return _TaskDiedError(f"a worker died{times}", hint=_DIED_HINT, details=details)
        if isinstance(error, faults.NodeDiedError | faults.ObjectLostError | faults.OwnerDiedError):
            return _TaskDiedError(f"a node of the cluster was lost{times}", hint=_NODE_HINT, details=details)
        if isinstance(error, faults.RayTaskError | faults.RuntimeEnvSetupError):
            lines = str(error).strip().splitlines() or [type(error).__name__]
            return WorkerDiedError(f"a worker cannot run pieces: {lines[-1]}", hint=INSTALL_HINT, details=details)
        if isinstance(error, faults.RayError | OSError | RuntimeError):
            return _lost(details)
        return None


def _lost(details: dict[str, Any]) -> WorkerDiedError:
    return WorkerDiedError("the connection to the Ray cluster was lost", hint=_LOST_HINT, details=details)


def _connect(ray: ModuleType, address: str | None, settings: RaySettings) -> None:
    """Call ``ray.init``: at an address, else with a cluster that runs here, else with a new one."""
    options: dict[str, Any] = {"log_to_driver": True, "logging_level": logging.WARNING}
    if settings.runtime_env is not None:
        options["runtime_env"] = _checked_environment(settings.runtime_env)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Ray announces changes that do not concern pieces
        if address not in (None, "auto", "local"):
            _require_server(str(address))
        try:
            if address != "local":
                ray.init(address=address or "auto", **options)
                return
        except ConnectionError as error:
            if address is not None:
                raise _no_cluster(address, error) from error
        except Exception as error:
            raise _no_cluster(str(address or "auto"), error) from error
        try:
            store_bytes = settings.own_store_bytes
            ray.init(address="local", include_dashboard=False, object_store_memory=store_bytes, **options)
        except Exception as error:
            raise _no_cluster("local", error) from error


def _checked_environment(runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    """The same, as Ray reads it. Ray's own errors would be those of a cluster that does not answer.

    Raises:
        UsageError: a field is unknown or malformed, or a folder does not exist.
    """
    from ray.runtime_env import RuntimeEnv

    try:
        folders = [runtime_env.get("working_dir"), *(runtime_env.get("py_modules") or ())]
        for folder in folders:
            if isinstance(folder, str) and "://" not in folder and not os.path.exists(folder):  # noqa: PTH110 (as Ray)
                raise ValueError(f"{folder} does not exist")
        RuntimeEnv(**runtime_env, _validate=True)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"Ray refuses the runtime_env: {error}",
            hint='Write fields that Ray documents, e.g. {"py_modules": ["./my_package"]}.',
        ) from error
    return dict(runtime_env)


def _print_to_stderr() -> None:
    """Print what workers and nodes print to stderr. Ray prints parts of it to stdout, between results in JSON.

    Ray has no setting for this. If its function has another name one day, its output stays as it is.
    """
    with suppress(ImportError, AttributeError):
        from ray._private import worker

        show = worker.print_to_stdstream
        if not isinstance(show, _PrintedToStderr):
            worker.print_to_stdstream = _PrintedToStderr(show)


class _PrintedToStderr:
    """Ray's function that prints lines of workers, with stderr for all of them."""

    def __init__(self, show: Callable[..., None]) -> None:
        self._show = show
        self.printed_at = 0.0

    def __call__(self, data: dict[str, Any], *more: Any, **options: Any) -> None:
        self.printed_at = time.monotonic()
        self._show({**data, "is_err": True}, *more, **options)


def _await_lines() -> None:
    """Wait for the last lines of workers: they arrive up to half a second later, and ``ray.shutdown`` would lose them.

    Ray waits as long when a program ends, but not in ``shutdown``, which only prints the lines that it held back
    because they were repeated.
    """
    from ray._private import worker

    time.sleep(_LINES_SECONDS)
    show, started = getattr(worker, "print_to_stdstream", None), time.monotonic()
    while (
        isinstance(show, _PrintedToStderr)
        and time.monotonic() - show.printed_at < _LINES_SECONDS / 2
        and time.monotonic() - started < _MOST_LINES_SECONDS
    ):
        time.sleep(0.05)


def _require_server(address: str) -> None:
    """Refuse an address that nobody listens at: Ray would wait for a minute, and end this program."""
    host, colon, port = address.rpartition(":")
    if "://" in address or not colon or not port.isdecimal():
        raise UsageError(
            f"{address!r} is not the address of a Ray cluster",
            hint="Write host:port, as `ray start --head` prints it, e.g. 10.0.0.1:6379; or auto, or local.",
            details={"address": address},
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: Exception) -> UsageError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return UsageError(
        f"cannot connect to a Ray cluster at {address}: {reason}",
        hint="Check that it runs: ray status --address ADDRESS. Start one on this machine with: ray start --head",
        details={"address": address},
    )
