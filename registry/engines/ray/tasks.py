"""Implements the engine of a Ray cluster: each piece is a task of Ray core.

    piece -> pickle -> task on any node -> pickle of (result, error, cause) -> result, in order

The function of a run is stored in Ray once, together with the environment that pieces need: settings of the registry,
credentials of stores, and proxies. They are not in Ray's ``runtime_env``, which Ray logs and displays in its dashboard.
A worker sets the environment before it calls the function.

Pieces are repeatable, so a piece whose worker or node dies is started again, up to three times. This module restarts it
rather than Ray, which would repeat a piece that runs out of memory forever.

Ray is imported when the engine is first used. Follows Ray 2.60 (docs.ray.io, "Fault tolerance" and "Cancelling tasks").
"""

from __future__ import annotations

import logging
import pickle
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar, cast
from urllib.parse import unquote, urlsplit

from registry.engines import (
    REACH_HINT,
    TELL_SECONDS,
    Engine,
    NotSendableError,
    Piece,
    Taking,
    Tally,
    TaskWatch,
    WorkerDiedError,
    closed_engine,
    current_work,
    in_order,
    most_drawn,
    not_sendable,
)
from registry.engines.ray.connection import POLL_SECONDS, Connection, Patience, TaskDiedError, died_hint
from registry.engines.ray.settings import RaySettings, StoreRoom
from registry.engines.ray.worker import (
    KILL_SECONDS,
    FunctionNotSendableError,
    Setting,
    call_message,
    cancel_poll_seconds,
)
from registry.errors import RegistryError, UsageError, spell
from registry.model import whole_number

_log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

_ATTEMPTS: Final = 4
_AHEAD: Final = 16
"""If results are taken early, a run may have this many times more pieces, of which ``2 * width + 1`` have not ended."""
_CANCEL_SECONDS: Final = KILL_SECONDS + 4.5
"""The time to wait for tasks that noticed a cancellation. The worker of a task that does not react is killed."""


def open_engine(
    *,
    address: str | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    task_memory: int | None = None,
    object_store_memory: int | None = None,
) -> RayTasks:
    """Connect to a cluster at once, so that faults appear before work begins. ``use_engine`` describes the settings."""
    settings = RaySettings(runtime_env=runtime_env, task_memory=task_memory, object_store_memory=object_store_memory)
    result = RayTasks(address, settings=settings)
    result.connect()
    return result


class RayTasks(Engine):
    """Runs pieces on a Ray cluster, for work that one machine cannot do in time.

    The cluster is, in this order: the one that this program has connected to with ``ray.init``, which is left alone;
    the one at ``address``; the one at ``RAY_ADDRESS``; one that runs on this machine; a new one on this machine, which
    ends with the engine. Engines of one program share one connection.

    The data of pieces must be in a store that all nodes can read, such as an object store or a shared folder. The
    output of pieces appears on this program's stderr; each line begins with its process and node.

    Args:
        address: ``host:port``; ``"auto"`` for a cluster that runs on this machine, ``"local"`` for a new one.
        processes: the number of pieces that run at the same time. None: one per CPU of the cluster, or as many as the
            memory of its nodes allows.
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
        self._connection: Connection | None = None
        self._call: Any = None
        self._started: set[_Task] = set()
        self._taking = Taking({"FileNotFoundError": REACH_HINT})
        self._is_closed = False
        self._lock = threading.RLock()

    @property
    def width(self) -> int:
        """The requested number of processes, or the number of tasks that the nodes can run at once. Connects."""
        return self._processes or self.connect().num_slots(self._settings.task_memory)

    @property
    def memory_of_piece(self) -> int | None:
        """The setting ``task_memory``."""
        return self._settings.task_memory

    @property
    def bytes_of_input(self) -> int:
        """See ``Engine.bytes_of_input``. All waiting inputs also fit into ``object_store_memory``."""
        most = self._settings.object_store_memory
        result = super().bytes_of_input
        return result if most is None else min(result, most // most_drawn(self.width))

    @property
    def shares_files(self) -> bool:
        """False."""
        return False

    def connect(self) -> Connection:
        """Connect to the cluster, unless this engine is connected."""
        with self._lock:
            if self._is_closed:
                raise closed_engine()
            if self._connection is None:
                connection = Connection.open(self._address, self._settings)
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

        The memory of this process cannot be read. In a folder of a file system, every other node must see a file that
        this program creates there for a moment.
        """
        scheme = urlsplit(location).scheme
        if scheme not in ("", "file"):
            return scheme != "memory"
        return self.connect().can_list(unquote(urlsplit(location).path) if scheme else location)

    def describe(self) -> str:
        """Describe the engine in a line for messages, such as ``Ray, with 8 CPUs on 2 nodes``."""
        connection = self.connect()
        cpus, nodes = connection.num_cpus, connection.num_nodes
        used = f", {self.width} pieces at a time" if self._processes is not None or self.width < cpus else ""
        return f"Ray, with {cpus} CPU{'s' * (cpus > 1)} on {nodes} node{'s' * (nodes > 1)}{used}"

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
        most = most_drawn(width) if width > 1 else 1
        order: deque[_Task] = deque()

        def prepare(piece: Piece[T, R]) -> _Task:
            nonlocal sent, ready
            if self._is_closed:
                raise closed_engine()
            if sent is None or sent.function is not piece.function:
                sent = self._send(piece.function)
                if room is not None:
                    room.keep(sent.num_bytes)
            if ready is None or ready.piece is not piece:
                ready = _Task(self, piece, sent, doing, tally)
            return ready

        def fits(piece: Piece[T, R]) -> bool:
            if room is not None and not room.fits(prepare(piece).pickle()):
                return False
            try:
                while tally.takes_results and len(tasks) >= most and not order[0].has_ended:
                    self._wait(order[0], tasks, tally)
            except WorkerDiedError:  # raised again when the first result is taken
                return False
            return len(tasks) < most

        def start(piece: Piece[T, R]) -> _Task:
            nonlocal ready
            task, ready = prepare(piece), None
            if room is not None:
                room.add(task.pickle())
            with suppress(NotSendableError, WorkerDiedError):  # raised again when the result is taken
                task.start()
                tasks[task.ref] = task
            order.append(task)
            tally.start()
            return task

        def finish(piece: Piece[T, R], task: _Task) -> R:
            result = partial(self._wait_for, task, tasks, tally)
            take = partial(self._taking.take, piece, result, doing=doing, failure=failure)
            order.popleft()
            taken: R = tally.take(piece, take, is_counted=lambda: task.is_counted)
            if room is not None:
                room.remove(task.num_bytes, num_result_bytes=task.num_result_bytes)
            return taken

        ahead = _AHEAD if tally.takes_results and width > 1 else 1
        yield from in_order(start, pieces, most=most * ahead, finish=finish, fits=fits)

    def _wait_for(self, task: _Task, tasks: dict[Any, _Task], tally: Tally[Any]) -> Any:
        """Wait for the result of a piece, or raise its error. ``tasks`` are those that are not known to have ended."""
        self.connect().require_cluster()  # raises if the engine is closed
        while not task.has_ended:
            self._wait(task, tasks, tally)
        return task.result()

    def _wait(self, task: _Task, tasks: dict[Any, _Task], tally: Tally[Any]) -> None:
        """Wait some seconds for ``task``, and note its end; if a watch takes results, note the ends of all ``tasks``.

        Raises:
            WorkerDiedError: the connection to the cluster is lost.
        """
        connection = self.connect()
        seconds = min(TELL_SECONDS, POLL_SECONDS) if tally.is_watched else POLL_SECONDS
        refs = list(tasks) if tally.takes_results else [task.ref]
        with connection.typed_faults(task.attempt):
            ended = connection.wait(refs, seconds)
        connection.require_cluster()
        # The other tasks wait for a CPU
        for other in islice(tasks.values(), self.width) if tally.takes_results else [task]:
            other.check_time()
        for other in [tasks.pop(ref) for ref in ended]:
            other.fetch()
            if not other.has_ended:
                tasks[other.ref] = other
                tally.retry()
            elif other.has_result and tally.takes_results:
                other.is_counted = True
                tally.end(other.piece, other.result())
        tally.tell()

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

    def _end_tasks(self, connection: Connection) -> None:
        """Cancel all tasks and wait until they have ended. A task that does not react ends its worker."""
        tasks = {task.ref: task for task in list(self._started) if task.ref is not None}
        self._started.clear()
        if not tasks:
            return
        keys = {task.key for task in tasks.values()}
        with suppress(Exception):  # the cluster may have ended
            left = connection.ray.wait(list(tasks), num_returns=len(tasks), timeout=0)[1]
            if not left:
                return
            for key in keys:
                connection.cancel(key)
            if self._await_cancelled(connection, {ref: tasks[ref] for ref in left}):
                for key in keys:
                    connection.forget_cancelled(key)

    def _await_cancelled(self, connection: Connection, left: dict[Any, _Task]) -> bool:
        """Wait until cancelled tasks have ended, and show how many are left. Returns whether all have ended."""
        tallies = {task.tally for task in left.values()}
        unwatched = [task for task in left.values() if not task.tally.is_watched]
        if unwatched:
            current_work().cancels(len(unwatched))
        deadline = time.monotonic() + max(task.poll_seconds for task in left.values()) + _CANCEL_SECONDS
        while True:
            for tally in tallies:
                with suppress(Exception):  # wait for the tasks even if a callback of the caller raises
                    tally.cancel(sum(task.tally is tally for task in left.values()))
            if not left or time.monotonic() > deadline:
                return not left
            refs = list(left)
            for ref in connection.ray.wait(refs, num_returns=len(refs), timeout=TELL_SECONDS)[0]:
                del left[ref]

    def _send(self, function: Callable[[Any], Any]) -> _Sent:
        connection = self.connect()
        connection.has_run = True
        try:
            content = connection.pickle((Setting.of_program(), connection.pickle(function)))
            with connection.typed_faults():
                stored = connection.ray.put(content)
            poll_seconds = cancel_poll_seconds(self.width)
            return _Sent(function, uuid.uuid4().hex, stored, num_bytes=len(content), poll_seconds=poll_seconds)
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
        poll_seconds: float = 0.0,
    ) -> None:
        self.function = function
        self.num_bytes = num_bytes
        self.poll_seconds = poll_seconds
        self.key = key
        self.content = content
        self.refusal = refusal
        self.is_cancelled = False


class _Task:
    """A piece that was sent, and the reference to its result. It is started again if its worker or node dies."""

    def __init__(self, engine: RayTasks, piece: Piece[Any, Any], sent: _Sent, doing: str, tally: Tally[Any]) -> None:
        self._engine = engine
        self._sent = sent
        self._message: bytes | None = None
        self._answer: tuple[Any, Exception | None, Exception | None] | None = None
        self._refusal: NotSendableError | WorkerDiedError | None = None
        self.piece = piece
        self.doing = doing
        self.tally = tally
        self.attempt = 0
        self.ref: Any = None
        self.num_bytes = 0
        self.num_result_bytes = 0
        self.is_cancelled = False
        self.is_counted = False
        self._patience: Patience | None = None

    @property
    def key(self) -> str:
        """The key of the function in its run."""
        return self._sent.key

    @property
    def poll_seconds(self) -> float:
        """The interval at which the task checks whether its run was cancelled, in seconds."""
        return self._sent.poll_seconds

    @property
    def has_ended(self) -> bool:
        """Whether ``result`` returns or raises at once."""
        return self._answer is not None or self._refusal is not None

    @property
    def has_result(self) -> bool:
        """Whether the piece returned a result, rather than an error."""
        return self._answer is not None and self._answer[1] is None

    def pickle(self) -> int:
        """Pickle the input before ``start``, and return its size, or 0 if it cannot be sent."""
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
                self.ref = call.remote(self._sent.key, self._sent.content, message, self._sent.poll_seconds)
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
                if not content:
                    raise TaskDiedError(
                        "a worker was interrupted", hint=died_hint(), details={"attempts": self.attempt}
                    )
        except TaskDiedError as error:
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
            # Here, the work might take days instead of minutes.
            self._refusal = self._sent.refusal = WorkerDiedError(
                f"a node of the cluster cannot load the code that it should run: {self._answer[1]}",
                hint="Install the builder's package on all nodes of the cluster, or send it: "
                + spell("runtime_env", {"py_modules": ["./my_package"]}),
                details={},
                is_of_start=True,
            )

    def check_time(self) -> None:
        """Warn if the task takes long. Called several times a minute while it seems to run."""
        self._patience = self._patience or Patience(self.doing)
        self._patience.check()

    def result(self) -> Any:
        """The result of a piece that has ended, or its error."""
        if self._refusal is not None:
            raise self._refusal
        result, raised, cause = cast("tuple[Any, Exception | None, Exception | None]", self._answer)
        if raised is not None:
            raise raised from cause
        return result

    def cancel(self) -> None:
        """Cancel the run of the task, which does not start or gets a KeyboardInterrupt. ``close`` waits for its end."""
        self.is_cancelled = True
        connection = self._engine._connection
        if self.ref is not None and connection is not None and not self._sent.is_cancelled:
            self._sent.is_cancelled = True
            connection.cancel(self._sent.key)
