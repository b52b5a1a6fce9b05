"""The worker's side of the Ray engine: the setting that a node needs to call a piece, and the task that calls it.

``tasks`` sends the setting of the program once for each function; ``reading.frameworks.ray`` sends it with a read.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

from registry.engines import NotSendableError, call_function, not_sendable
from registry.errors import RegistryError, UsageError
from registry.storage import expand_home, is_unfinished

_PREFIXES: Final = ("AWS_", "AZURE_", "AZURITE_", "FSSPEC_", "GOOGLE_", "REGISTRY_")
_PROXIES: Final = frozenset({"all_proxy", "http_proxy", "https_proxy", "no_proxy"})  # also in upper case
_CERTIFICATES: Final = frozenset({"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"})
_FILES: Final = _CERTIFICATES | {
    "AWS_CA_BUNDLE",
    "AWS_CONFIG_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AZURE_CLIENT_CERTIFICATE_PATH",
    "AZURE_CONFIG_DIR",
    "AZURE_FEDERATED_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
}
"""Variables that contain a path. Their values do not show it: a secret key of AWS may also start with a slash."""
_OF_TOKEN: Final = {
    "AWS_WEB_IDENTITY_TOKEN_FILE": ("AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME"),
    "AZURE_FEDERATED_TOKEN_FILE": ("AZURE_CLIENT_ID", "AZURE_TENANT_ID"),
}
"""Variables that identify the owner of a token in a file."""
_PROFILES: Final = ("AWS_DEFAULT_PROFILE", "AWS_PROFILE")
_KEPT_HERE: Final = frozenset({"REGISTRY_ENGINE", "REGISTRY_KEY_PASSWORD"})  # no piece signs, or starts a cluster

INSTALL_HINT: Final = "Install the same version of shardbook on all nodes as on this machine."
_LEAST_POLL_SECONDS: Final = 0.5
_POLLS_PER_SECOND: Final = 400
"""The maximum rate, for all tasks of a run together, at which they ask the head whether they were cancelled."""
KILL_SECONDS: Final = 5.0
"""The time for which the function of a cancelled task may ignore its KeyboardInterrupt."""

_LOOK_SECONDS: Final = 1.0


class Setting(NamedTuple):
    """The setting that a worker needs before it can unpickle a function.

    ``repr`` shows no values, which may be secrets.
    """

    version: str
    environment: dict[str, str]
    paths: list[str]

    @classmethod
    def of_program(cls) -> Setting:
        """The setting of this program, to be sent to workers."""
        return cls(_package_version(), piece_environment(), [path for path in sys.path if path])

    def prepare_imports(self) -> None:
        """Let this worker import the same modules as the program. Does not change the environment.

        Raises:
            UsageError: the worker has another version of the package.
        """
        if self.version != _package_version():
            raise UsageError(
                f"a node of the cluster has shardbook {_package_version()}, but this program has {self.version}",
                hint=INSTALL_HINT,
            )
        sys.path.extend(path for path in self.paths if path not in sys.path)  # paths of the node take precedence

    def __repr__(self) -> str:
        return f"<setting of shardbook {self.version}>"


class FunctionNotSendableError(NotSendableError):
    """A worker cannot unpickle a function, so it would refuse all pieces."""


def _package_version() -> str:
    """Return the version of the package, without an import, which would reach the layers above this one."""
    version: str = sys.modules["registry"].__version__
    return version


def piece_environment() -> dict[str, str]:
    """Return the variables of this process that pieces need."""
    return {
        name: value
        for name, value in os.environ.items()
        if (name.startswith(_PREFIXES) or name.lower() in _PROXIES or name in _CERTIFICATES) and name not in _KEPT_HERE
    }


def environment_on_node(sent: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the program that a worker adopts. Must be called on the node before any is adopted.

    A path of the program, or an AWS profile that is defined in its files, may not exist on the node. Such variables
    would hide the node's own credentials.
    """
    result = dict(sent)
    for name in _FILES & result.keys():
        if not expand_home(result[name]).exists():
            for dropped in (name, *_OF_TOKEN.get(name, ())):
                result.pop(dropped, None)
    for name in _PROFILES:
        if name in result and not _has_profile(result[name], {**os.environ, **result}):
            del result[name]
    return result


def _has_profile(name: str, environment: Mapping[str, str]) -> bool:
    """Whether a file of this machine defines a profile of AWS."""
    header = re.compile(rf"""^\s*\[\s*(profile\s+)?["']?{re.escape(name)}["']?\s*\]""", flags=re.MULTILINE)
    files = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}
    for variable, usual in files.items():
        with suppress(OSError, RuntimeError, UnicodeDecodeError):  # RuntimeError: the user has no home
            path = expand_home(environment.get(variable) or usual)
            if header.search(path.read_text(encoding="utf-8")):
                return True
    return False


def pickler_class(ray: ModuleType) -> Any:
    """Return Ray's pickler, except that, like pickle, it refuses functions that use variables of other functions.

    If it were sent by value, such a function would change copies of these variables. Everything in ``__main__`` is sent
    by value, because no worker can import it.
    """

    class Pickler(ray.cloudpickle.CloudPickler):  # type: ignore[misc, name-defined]  # a module is a value here
        def reducer_override(self, obj: Any) -> Any:
            if (
                isinstance(obj, FunctionType | type)
                and "<locals>" in obj.__qualname__
                and obj.__module__ != "__main__"
                and sys.modules.get(obj.__module__) is not None
            ):
                return NotImplemented  # pickle looks it up by name and fails
            return super().reducer_override(obj)

    return Pickler


def pickled(pickler: Any, value: object) -> bytes:
    """Pickle ``value`` with a class of ``pickler_class``. Raises NotSendableError."""
    try:
        return dump(pickler, value)
    except Exception as error:
        raise not_sendable(error) from error


def dump(pickler: Any, value: object) -> bytes:
    """Pickle ``value`` with a class of ``pickler_class``. Raises the errors of the value."""
    file = io.BytesIO()
    pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


class _Held(NamedTuple):
    """The function that this worker called last, and the key of its run."""

    key: str
    function: Callable[[Any], Any]


_held: _Held | None = None
_replaced: Final[dict[str, str | None]] = {}
"""The values of environment variables before a run set them."""


def call_message(key: str, content: bytes, message: bytes, poll_seconds: float) -> bytes:
    """Call the function of a run with an input, as a task of Ray.

    Arguments and the result (result, error, cause) are pickled.

    The output of the function goes to stderr, because the stdout of a command is its result. The task ends if its run
    is cancelled, which it checks every ``poll_seconds``.
    """
    watch = _CancelWatch(key, poll_seconds)
    try:
        try:
            watch.start()
            return _call_message(key, content, message)
        finally:
            watch.stop()
    except KeyboardInterrupt:  # nobody waits for the answer
        return b""


def cancel_key(key: str) -> bytes:
    """Return the key of the entry in the store of Ray's head that cancels the pieces of a run."""
    return f"shardbook:cancelled:{key}".encode()


def cancel_poll_seconds(width: int) -> float:
    """Return the seconds between two checks of each of ``width`` tasks, so that the head can answer all of them.

    >>> [cancel_poll_seconds(width) for width in (4, 200, 800, 4000)]
    [0.5, 0.5, 2.0, 10.0]
    """
    return max(_LEAST_POLL_SECONDS, width / _POLLS_PER_SECOND)


class _CancelWatch:
    """Raises one KeyboardInterrupt in the main thread of a worker when the run of its task is cancelled.

    ``ray.cancel`` is not used: if a task ends at the same moment, Ray 2.60 aborts the program that started it (its
    check "Tried to complete task that was not pending"). Ray starts workers with SIGINT blocked, so it is unblocked. A
    signal that arrives late does nothing: it must not interrupt Ray itself, or another task.
    """

    _current: _CancelWatch | None = None

    def __init__(self, key: str, poll_seconds: float) -> None:
        self._key = cancel_key(key)
        self._poll_seconds = poll_seconds
        self._ended = threading.Event()
        self._is_cancelled = False
        self._handler_before: Any = None
        self._mask_before: Any = None

    def start(self) -> None:
        """Begin, in the main thread."""
        _CancelWatch._current = self
        self._handler_before = signal.signal(signal.SIGINT, self._interrupt)
        self._mask_before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        threading.Thread(target=self._watch, args=(threading.get_ident(),), daemon=True).start()

    def stop(self) -> None:
        """End. No interrupt comes afterwards."""
        _CancelWatch._current = None
        self._ended.set()
        if self._mask_before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask_before)
        if self._handler_before is not None:
            signal.signal(signal.SIGINT, self._handler_before)

    @staticmethod
    def _interrupt(_number: int, _frame: FrameType | None) -> None:
        watch = _CancelWatch._current
        if watch is not None and watch._is_cancelled:
            _CancelWatch._current = None
            raise KeyboardInterrupt

    def _watch(self, main_thread: int) -> None:
        from ray.experimental.internal_kv import _internal_kv_exists

        while True:
            with suppress(Exception):  # if the head does not answer, the task continues
                self._is_cancelled = bool(_internal_kv_exists(self._key))
            if self._is_cancelled and not self._ended.is_set():
                signal.pthread_kill(main_thread, signal.SIGINT)  # this also interrupts a waiting system call
                if not self._ended.wait(KILL_SECONDS):
                    os._exit(1)
                return
            if self._ended.wait(self._poll_seconds):
                return


def _call_message(key: str, content: bytes, message: bytes) -> bytes:
    import ray

    pickler = pickler_class(ray)
    answer: tuple[Any, Exception | None, Exception | None]
    with redirect_stdout(sys.stderr):
        try:
            function = _function(key, content)
            item = pickle.loads(message)  # noqa: S301 - from the program that started the task
        except RegistryError as error:
            answer = (None, error, None)
        except NotSendableError as error:
            answer = (None, error, None)
        except Exception as error:  # noqa: BLE001 - unpickling imports and runs any module
            answer = (None, not_sendable(error), None)
        else:
            answer = call_function(function, item)
    try:
        return pickled(pickler, answer)
    except NotSendableError as error:
        return pickle.dumps((None, error, None))


def _function(key: str, content: bytes) -> Callable[[Any], Any]:
    global _held  # noqa: PLW0603 (a worker keeps one function)
    if _held is None or _held.key != key:
        _held = None
        setting, sent = pickle.loads(content)  # noqa: S301 - from the program that started the task
        setting.prepare_imports()
        _set_environment(setting.environment)
        try:
            _held = _Held(key, pickle.loads(sent))  # noqa: S301
        except Exception as error:
            raise FunctionNotSendableError(*not_sendable(error).args) from error
    return _held.function


def _set_environment(sent: Mapping[str, str]) -> None:
    """Restore the variables that an earlier run changed, and set those that the node adopts."""
    for name, before in _replaced.items():
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
    _replaced.clear()
    for name, value in environment_on_node(sent).items():
        _replaced[name] = os.environ.get(name)
        os.environ[name] = value


def list_folder(folder: str) -> list[tuple[str, int, int]]:
    """List name, size and time of the entries of a folder, sorted, without unfinished files.

    Raises:
        OSError: the folder is missing or cannot be listed.
    """
    result = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not is_unfinished(entry.name):
                facts = entry.stat(follow_symlinks=False)
                result.append((entry.name, facts.st_size, facts.st_mtime_ns))
    return sorted(result)


def sees_folder(folder: str, sight: str | list[tuple[str, int, int]]) -> bool:
    """Whether this process sees a file of this name in a folder, or these entries.

    The check is repeated for a second, because clients of network file systems may cache the content of a folder.
    """
    deadline = time.monotonic() + _LOOK_SECONDS
    while not _sees(folder, sight):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_SECONDS / 10)
    return True


def _sees(folder: str, sight: str | list[tuple[str, int, int]]) -> bool:
    try:
        if isinstance(sight, str):
            path = Path(folder, sight)
            # NFS may cache for half a minute that a file is missing, but checks again when a folder is opened.
            return path.exists() or path in Path(folder).iterdir()
        return sight == list_folder(folder)
    except OSError:
        return False
