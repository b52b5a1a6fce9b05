"""The connection of a program to a Ray cluster, shared by its engines. Turns faults of the cluster into typed errors.

    ray.init --> Connection: nodes, waiting, cancelling, what other machines can read --> RayTasks

Output of workers goes to stderr. Follows Ray 2.60.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

from registry.engines import WorkerDiedError
from registry.engines.ray.settings import RaySettings
from registry.engines.ray.worker import INSTALL_HINT, cancel_key, list_folder, pickled, pickler_class, sees_folder
from registry.errors import RegistryError, UsageError, require_extra, spell, suggest
from registry.storage import Owner, new_unfinished_file

_log = logging.getLogger(__name__)

_CONNECT_SECONDS: Final = 10.0
POLL_SECONDS: Final = 5.0
_LOST_SECONDS: Final = 30.0
_SLOW_SECONDS: Final = 300.0
"""A wait for a single result is reported after this time, and again whenever the time has doubled."""
_LINES_SECONDS: Final = 0.5
_MOST_LINES_SECONDS: Final = 3.0
_CHECK_SECONDS: Final = 60.0
"""The time in which other nodes must find a file."""

_NODE_HINT: Final = "The cluster keeps losing nodes; `ray status` lists those that are left. Run the command again."
_LOST_HINT: Final = (
    "The cluster ended, or the network to it failed. Check it with `ray status`, and run the command again."
)


def died_hint() -> str:
    """Return the hint for workers that died."""
    return (
        "A native library crashed, another program killed the process, or the system ran out of memory. The output of "
        f"the workers is above. To debug it on this machine: {spell('engine', 'local')}, {spell('processes', 1)}"
    )


class TaskDiedError(WorkerDiedError):
    """A task died, and can be started again."""


class Connection:
    """The connection of this program to a cluster. Engines share it; the last engine to leave closes it."""

    _lock: Final = threading.Lock()
    _current: Connection | None = None

    def __init__(self, ray: ModuleType, address: str | None, *, is_own: bool) -> None:
        self.ray = ray
        self._address = address
        self._is_own = is_own
        self._num_users = 0
        self._listed: dict[str, bool] = {}
        self._asked_at = time.monotonic()
        self._lost_at: float | None = None
        self.has_run = False
        self._pickler = pickler_class(ray)
        nodes = [node for node in ray.nodes() if node["Alive"]]
        self._head = str(ray.get_runtime_context().gcs_address)
        self._raylet = _raylet_of(nodes, ray.get_runtime_context().get_node_id())
        self.num_nodes = max(1, len(nodes))
        self.num_cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._nodes = [(int(node["Resources"].get("CPU", 0)), node["Resources"].get("memory", 0.0)) for node in nodes]
        self._runtime_env: Mapping[str, Any] | None = None
        self._sigterm: Any = None  # the program's own handler

    @classmethod
    def open(cls, address: str | None, settings: RaySettings) -> Connection:
        """Return the existing connection, or open one.

        Raises:
            UsageError: no cluster answers, the program already uses another one, or it uses Ray Client.
        """
        with require_extra("ray", package="ray", needed_for="work on a Ray cluster"):
            import ray
        if address is not None:
            _require_gcs(address, address)
        with cls._lock:
            result = cls._current
            if result is not None and not ray.is_initialized():  # the program ended it
                result = None
            if result is None:
                is_own = not ray.is_initialized()
                sigterm = signal.getsignal(signal.SIGTERM)
                if is_own:
                    wanted = address or os.environ.get("RAY_ADDRESS") or None
                    if address is None and wanted is not None:
                        _require_gcs(wanted, f"RAY_ADDRESS={wanted}")
                    _print_to_stderr()
                    _connect(ray, wanted, settings)
                elif ray.util.client.ray.is_connected():
                    raise _unsupported("this program is connected through Ray Client, which is not supported", "HEAD")
                result = cls(ray, address, is_own=is_own)
                if is_own:
                    result._runtime_env = settings.runtime_env
                    result._sigterm = sigterm
                    _set_sigterm(signal.default_int_handler if sigterm == signal.SIG_DFL else sigterm)
            elif result._is_own and address is not None and address != result._address:
                raise UsageError(
                    f"this program is already connected to a Ray cluster other than {address}",
                    hint="Close the engine that uses it first: a program can use one cluster at a time.",
                )
            if settings.runtime_env is not None and settings.runtime_env != result._runtime_env:
                raise UsageError(
                    "this program is already connected to a Ray cluster, without this runtime_env",
                    hint="Pass runtime_env to ray.init, or to the first engine that the program uses.",
                )
            cls._current = result
            result._num_users += 1
            return result

    def leave(self) -> None:
        """Give up the connection when an engine is closed. The last engine disconnects."""
        with self._lock:
            self._num_users -= 1
            if self._num_users:
                return
            if Connection._current is self:
                Connection._current = None
                if self._is_own:
                    try:
                        if self.has_run:
                            _await_lines()
                    finally:
                        self.ray.shutdown()
                        _set_sigterm(self._sigterm)

    def num_slots(self, task_memory: int | None) -> int:
        """Return the number of tasks that the nodes can run at the same time.

        Raises:
            UsageError: no node has enough memory. Ray would wait for such a node forever.
        """
        if task_memory is None:
            return self.num_cpus
        result = int(sum(min(cpus, memory // task_memory) for cpus, memory in self._nodes))
        if not result:
            largest = int(max((memory for cpus, memory in self._nodes if cpus), default=0))
            raise UsageError(
                f"no node of the cluster can give a task {task_memory:,} bytes of memory: the largest has {largest:,}",
                hint=f"Set {spell('task_memory')} to a smaller value, or start larger nodes: ray start --memory BYTES",
                details={"task_memory": task_memory, "largest": largest},
            )
        return result

    def pickle(self, value: object) -> bytes:
        """Pickle ``value``; classes and functions of ``__main__`` by value. Raises NotSendableError."""
        return pickled(self._pickler, value)

    def wait(self, refs: list[Any], seconds: float) -> list[Any]:
        """Return the ``refs`` of tasks that have ended. If no task has, wait up to ``seconds`` for the first."""
        ended: list[Any] = self.ray.wait(refs, num_returns=len(refs), timeout=0)[0]
        return ended or list(self.ray.wait(refs, timeout=seconds)[0])

    def cancel(self, key: str) -> None:
        """Cancel all pieces of a run; waiting pieces do not start. ``worker`` explains how and why."""
        from ray.experimental.internal_kv import _internal_kv_put

        with suppress(Exception):  # the cluster may have ended
            _internal_kv_put(cancel_key(key), b"1")

    def forget_cancelled(self, key: str) -> None:
        """Remove the note of a cancelled run when all of its pieces have ended."""
        from ray.experimental.internal_kv import _internal_kv_del

        with suppress(Exception):
            _internal_kv_del(cancel_key(key))

    def require_cluster(self) -> None:
        """Check that the cluster answers. Results may arrive even after its head has ended.

        Call it several times a minute while waiting for results.

        Raises:
            WorkerDiedError: the raylet of this machine has ended, or the head has not answered for 40 s. Ray would end
                this program without a message after about 15 s or 60 s.
        """
        now = time.monotonic()
        if now - self._asked_at < POLL_SECONDS:
            return
        self._asked_at = now
        if self._raylet is not None and isinstance(_connection_error(self._raylet), ConnectionRefusedError):
            raise _lost({})
        if _connection_error(self._head) is None:
            self._lost_at = None
        elif self._lost_at is None:
            self._lost_at = now
        elif now - self._lost_at > _LOST_SECONDS:
            raise _lost({})

    def typed_faults(self, attempt: int = 0) -> _TypedFaults:
        """Raise faults of workers and of the cluster in the block as WorkerDiedError."""
        return _TypedFaults(self, attempt)

    def can_list(self, folder: str) -> bool:
        """Whether all other nodes see the same folder as this program, not another folder of the same name.

        If the folder is writable, a new file with a random name is created for a moment. Otherwise the names, sizes and
        times of its entries are compared. A missing folder counts as not shared.
        """
        if folder in self._listed:
            return self._listed[folder]
        try:
            is_listed = self._is_listed(folder)
        except FileNotFoundError:
            return False  # the folder may be created later
        except Exception:  # noqa: BLE001 (whatever fails there, work that needs the folder would fail, too)
            is_listed = False
        self._listed[folder] = is_listed
        return is_listed

    def _is_listed(self, folder: str) -> bool:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        list_folder(folder)  # the folder exists
        # Other nodes with the name or the address of this machine may still be containers with other disks.
        here = self.ray.get_runtime_context().get_node_id()
        others = [node["NodeID"] for node in self.ray.nodes() if node["Alive"] and node["NodeID"] != here]
        if not others:
            return True
        looker = self.ray.remote(num_cpus=0, max_retries=2)(sees_folder)
        with marker_in(folder) as marker:
            sight = list_folder(folder) if marker is None else marker
            if not sight:  # any other empty folder looks the same
                return False
            refs = [
                looker.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
                    folder, sight
                )
                for node in others
            ]
            return all(self.ray.get(refs, timeout=_CHECK_SECONDS))


@contextmanager
def marker_in(folder: str) -> Iterator[str | None]:
    """Create a file in a folder for the duration of the block, and provide its name, or None if that is impossible.

    Listings leave it out. If this program is killed, `registry gc` removes the file, because its name contains the
    process.
    """
    name: str | None = new_unfinished_file(secrets.token_hex(16), Owner.this_process().mark())
    path = Path(folder, str(name))
    try:
        path.touch(0o644, exist_ok=False)
    except OSError:  # no permission, a read-only mount, a full disk
        name = None
    try:
        yield name
    finally:
        if name is not None:
            with suppress(OSError):  # the file is garbage then
                path.unlink()


class Patience:
    """Warns if a task takes long: it may hang, or be large."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._started = time.monotonic()
        self._report_after = _SLOW_SECONDS

    def check(self) -> None:
        """Warn if the task has taken too long. Call this several times a minute while it runs."""
        waited = time.monotonic() - self._started
        if waited > self._report_after:
            _log.warning(
                "still waiting for one task after %.0f s (%s). To see its node: pip install 'ray[default]', then "
                "ray list tasks",
                waited,
                self._doing,
            )
            self._report_after *= 2


class _TypedFaults:
    """A context manager that replaces Ray's errors."""

    def __init__(self, connection: Connection, attempt: int) -> None:
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
            fewer = f"Its node ran out of memory. Use fewer processes: {spell('processes=N')}."
            hint = f"{fewer} Or use nodes with more memory for each CPU."
            return TaskDiedError(f"a worker ran out of memory{times}", hint=hint, details=details)
        if isinstance(error, faults.WorkerCrashedError | faults.TaskCancelledError):
            return TaskDiedError(f"a worker died{times}", hint=died_hint(), details=details)
        if isinstance(error, faults.NodeDiedError | faults.ObjectLostError | faults.OwnerDiedError):
            return TaskDiedError(f"a node of the cluster was lost{times}", hint=_NODE_HINT, details=details)
        if isinstance(error, faults.RayTaskError | faults.RuntimeEnvSetupError):
            lines = str(error).strip().splitlines() or [type(error).__name__]
            hint = f"{INSTALL_HINT} Install or send other packages as well: {spell('runtime_env=JSON')}"
            return WorkerDiedError(f"a worker cannot run pieces: {lines[-1]}", hint=hint, details=details)
        if isinstance(error, faults.RayError | OSError | RuntimeError):
            return _lost(details)
        return None


def _raylet_of(nodes: list[dict[str, Any]], node_id: str) -> str | None:
    """Return the address of the raylet of a node, or None if the node is not listed."""
    result = (f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}" for node in nodes if node["NodeID"] == node_id)
    return next(result, None)


def _connection_error(address: str) -> OSError | None:
    """Return the reason why a server does not accept connections, or None if it does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=POLL_SECONDS).close()
    except OSError as error:
        return error
    return None


def _lost(details: dict[str, Any]) -> WorkerDiedError:
    return WorkerDiedError("the connection to the Ray cluster was lost", hint=_LOST_HINT, details=details)


def _connect(ray: ModuleType, address: str | None, settings: RaySettings) -> None:
    """Call ``ray.init`` with an address, or with a cluster on this machine, or with a new cluster."""
    options: dict[str, Any] = {"log_to_driver": True, "logging_level": logging.WARNING}
    if settings.runtime_env is not None:
        options["runtime_env"] = _checked_environment(settings.runtime_env)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Ray warns of changes that do not affect pieces
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
    """Check the environment, and return it as a dict. Without the check, Ray would fail as if no cluster existed.

    Raises:
        UsageError: a field is unknown or malformed, or a folder does not exist.
    """
    from ray.runtime_env import RuntimeEnv

    try:
        folders = [runtime_env.get("working_dir"), *(runtime_env.get("py_modules") or ())]
        for folder in folders:
            if isinstance(folder, str) and "://" not in folder and not os.path.exists(folder):  # noqa: PTH110 (as Ray)
                raise ValueError(f"{folder} does not exist")
        for field in runtime_env.keys() - RuntimeEnv.known_fields:
            fields = sorted(name for name in RuntimeEnv.known_fields if not name.startswith("_"))
            raise ValueError(f"unknown field {field!r}. {suggest(field, fields)}")
        RuntimeEnv(**runtime_env, _validate=True)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"Ray refuses the runtime_env: {error}",
            hint='Use the fields that Ray documents, e.g. {"py_modules": ["./my_package"]}.',
        ) from error
    return dict(runtime_env)


def _set_sigterm(handler: Any) -> None:
    """Set the handler of SIGTERM, which by default acts like Ctrl-C while a program is connected.

    Ray's own handlers print a trace and raise SystemExit, upon which waiting functions of Ray abort the program or
    raise other errors. Only a KeyboardInterrupt is passed on.
    """
    if handler is not None:  # None means that it was not set by Python code
        with suppress(ValueError):  # only the main thread may set a handler
            signal.signal(signal.SIGTERM, handler)


def _print_to_stderr() -> None:
    """Print the output of workers and nodes to stderr. Ray prints parts of it to stdout, among results in JSON.

    Ray has no setting for this. If a later release renames its function, the output stays where Ray prints it.
    """
    with suppress(ImportError, AttributeError):
        from ray._private import worker

        show = worker.print_to_stdstream
        if not isinstance(show, _PrintedToStderr):
            worker.print_to_stdstream = _PrintedToStderr(show)


class _PrintedToStderr:
    """Ray's function that prints lines of workers, redirected to stderr."""

    def __init__(self, show: Callable[..., None]) -> None:
        self._show = show
        self.printed_at = 0.0

    def __call__(self, data: dict[str, Any], *more: Any, **options: Any) -> None:
        self.printed_at = time.monotonic()
        self._show({**data, "is_err": True}, *more, **options)


def _await_lines() -> None:
    """Wait for the last lines of workers, which arrive up to half a second later. ``ray.shutdown`` would lose them.

    Ray waits for the same time when a program ends, but not in ``shutdown``, which only prints repeated lines that were
    held back.
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


def _require_gcs(address: str, named: str) -> None:
    """Refuse other addresses of a cluster: those of Ray Client, and of the dashboard and its jobs.

    Ray Client would run pieces, but the program would be outside of the cluster's network: it could not see whether the
    head still answers, and if it were killed, its tasks would run on for half a minute, in case it reconnected.
    """
    scheme, host = urlsplit(address).scheme, address.partition("://")[2].partition("/")[0].rpartition(":")[0]
    if scheme == "ray":
        raise _unsupported(f"{named} is an address of Ray Client, which is not supported", host, address=address)
    if scheme in ("http", "https"):
        raise _unsupported(f"{named} is the address of Ray's dashboard, not of a cluster", host, address=address)


def _unsupported(message: str, host: str, **details: str) -> UsageError:
    """Make the error for an unsupported way to connect to a cluster. Its hint lists the supported ways."""
    return UsageError(
        message,
        hint="On a node of the cluster, use the address that `ray start --head` prints: "
        f"--address {host or 'HEAD'}:6379\n"
        "From another machine, submit a job (here and on the head: pip install 'ray[default]'): "
        f"ray job submit --address http://{host or 'HEAD'}:8265 -- registry build ... --engine ray",
        details=details,
    )


def _require_server(address: str) -> None:
    """Refuse an address at which no server listens. Ray would wait for a minute, and then end this program."""
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
        hint="Check that it is running: ray status --address ADDRESS. Start one on this machine: ray start --head\n"
        "If `ray start` said that token authentication is enabled, set RAY_AUTH_MODE=token for this program, too.",
        details={"address": address},
    )
