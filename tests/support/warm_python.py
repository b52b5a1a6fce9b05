"""Starts Python programs as forks of a process that has imported the registry: real processes, without the imports.

``Popen`` and ``run`` replace those of ``subprocess`` in tests that need many processes, or processes that are killed.
Importing takes half a second of CPU time, which most of these tests would spend several times. Programs that depend on
how an interpreter starts (its options, its locale, what it imports, how much memory it takes) start as usual. With
``warm_workers``, the worker processes of engines are such forks, too.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

MODULES: Final = (
    *("registry.cli.main", "registry.api.catalog", "registry.publishing.publish", "registry.building.build"),
    *("registry.catalog.schema", "registry.catalog.sql_catalog", "registry.storage.local", "registry.features"),
    *("alembic.command", "psycopg", "sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite.pysqlite"),
    *("numpy", "subprocess", "concurrent.futures.thread", "uvicorn", "starlette.applications", "jinja2"),
    *("registry.server.browse", "registry.server.serve", "registry.server.service"),
    # What additions and reads import when they begin; pyarrow imports pandas as soon as it converts an object.
    *("registry.intake.staging", "registry.publishing.numbering", "registry.reading", "pandas", "pyarrow.parquet"),
    *("registry.interop", "urllib3", "tarfile", "isal.igzip", "pydoc", "platformdirs", "yaml", "pydantic", "boto3"),
    *("registry.model.experiment", "registry.api.lifecycle", "registry.api.reports", "registry.cli.output"),
    *("registry.cli.commands", "registry.cli.engine", "registry.cli.progress", "registry.publishing.collecting"),
    *("registry.catalog.proposals", "registry.catalog.configs", "registry.catalog.log", "registry.catalog.removals"),
    *("registry.catalog.reservations", "registry.catalog.attachments", "registry.catalog.experiments"),
    *("registry.storage.object_store", "registry.building.discovery", "registry.pins.verify", "registry.pins.bundle"),
)
PROGRAM: Final = str(Path(sys.executable).with_name("registry"))

ALSO: Final = {
    "mcp": ("mcp", "mcp.server.stdio", "registry.cli.mcp.protocol", "registry.cli.mcp.tools"),
    "pytest": ("pytest", "_pytest.junitxml", "_pytest.unittest", "hypothesis", "pdb", "openapi_spec_validator"),
}
"""What programs with such an argument import, too. The origin imports it before it forks the first of them."""

ABOUT_WORKERS: Final = ("tests/engines/", "tests/unit/test_array_record_isolated")
"""Tests of how workers start, and how much memory they may take: theirs are new interpreters."""

Start = dict[str, Any]


class Popen(subprocess.Popen[str]):
    """``subprocess.Popen`` for ``[sys.executable, "-c" CODE | "-m" MODULE | SCRIPT, *arguments]`` and for ``registry``.

    The program is not a child of this process, but of the process that forked it, which reports how it ended.
    """

    def _execute_child(self, args: Any, _executable: Any, _preexec: Any, *rest: Any) -> None:
        _close_fds, pass_fds, cwd, env, _startupinfo, _flags, shell, stdin, _, _, stdout, _, stderr = rest[:13]
        start_new_session, process_group = rest[-2:]
        if shell or pass_fds:
            raise ValueError("a shell or further open files need subprocess.Popen")
        request = {
            "args": [os.fsdecode(one) for one in args],
            "cwd": os.fspath(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
            "session": start_new_session,
            "group": os.getpgrp() if process_group == -1 else process_group,
        }
        given = [number if fd == -1 else fd for number, fd in enumerate((stdin, stdout, stderr))]
        self._ended, told = os.pipe()
        try:
            _origin().send(request, [*given, told])
        finally:
            os.close(told)
            self._close_pipe_fds(*rest[7:13])  # type: ignore[attr-defined]
        self.pid = int(self._read_line())
        self._child_created = True

    def _read_line(self) -> str:
        line = b""
        while not line.endswith(b"\n"):
            more = os.read(self._ended, 1)
            if not more:
                raise RuntimeError("the process that forks others has ended")
            line += more
        return line.decode()

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """As ``os.waitpid``."""
        if wait_flags & os.WNOHANG and not select.select([self._ended], [], [], 0)[0]:
            return 0, 0
        status = int(self._read_line())
        os.close(self._ended)
        return self.pid, status

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def run(
    args: Sequence[Any],
    *,
    check: bool = False,
    capture_output: bool = False,
    input: Any = None,  # noqa: A002 (its name in subprocess)
    timeout: float | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """``subprocess.run`` for the programs that ``Popen`` starts."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(args, **options) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


class _Origin:
    """The process that forks the others, and the socket to it."""

    def __init__(self) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(other.fileno())],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
                process_group=0,
            )

    def send(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)

    def end(self) -> None:
        self._socket.close()
        self._process.wait()


_ORIGINS: Final[list[_Origin]] = []
_STARTING: Final = threading.Lock()
atexit.register(lambda: [origin.end() for origin in _ORIGINS])  # after the workers, which are registered later


def _origin() -> _Origin:
    with _STARTING:  # workers start in threads
        if not _ORIGINS:
            _ORIGINS.append(_Origin())
        return _ORIGINS[0]


@contextlib.contextmanager
def warm_workers() -> Iterator[None]:
    """Fork the workers of engines, too. Those of a fork of this process are new: it may have another user or limit."""
    import pytest  # here, because the origin runs this file, too

    from registry.engines import workers

    own = os.getpid()

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[Any]:
        is_new = os.getpid() != own or os.environ.get("PYTEST_CURRENT_TEST", "").startswith(ABOUT_WORKERS)
        return (subprocess.Popen if is_new else Popen)(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "subprocess", types.SimpleNamespace(Popen=start, PIPE=subprocess.PIPE))
        yield


def serve(requests: socket.socket) -> Callable[[], None] | None:
    """Fork a process for each request. Return its program in the forked process, and None when the tests have ended."""
    running: dict[int, int] = {}
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([requests, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            while running:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                told = running.pop(pid)
                with contextlib.suppress(BrokenPipeError):
                    os.write(told, f"{status}\n".encode())
                os.close(told)
        if requests in ready:
            message, descriptors, _, _ = socket.recv_fds(requests, 2**20, 4)
            if not message:
                return None
            request = json.loads(message)
            for word in ALSO.keys() & set(request["args"]):
                _import(ALSO.pop(word))
            pid = os.fork()
            if not pid:
                requests.detach()
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                return _begin(request, descriptors[:3])
            *given, told = descriptors
            for descriptor in given:
                os.close(descriptor)
            running[pid] = told
            os.write(told, f"{pid}\n".encode())


def _begin(request: Start, descriptors: Sequence[int]) -> Callable[[], None]:
    """Make this fork look like a new interpreter; its program."""
    kept = [os.dup(descriptor) if descriptor < 3 else descriptor for descriptor in descriptors]
    for number, descriptor in enumerate(kept):
        os.dup2(descriptor, number)
    os.closerange(3, 1024)
    if request["session"]:
        os.setsid()
    else:
        os.setpgid(0, request["group"])
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 (a descriptor, for the life of the process)
    sys.stdout = open(1, "w", closefd=False, buffering=1 if os.isatty(1) else -1)  # noqa: SIM115 (as above)
    sys.stderr = open(2, "w", closefd=False, buffering=1, errors="backslashreplace")  # noqa: SIM115 (as above)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    program, *arguments = request["args"]
    given = request["env"].get("PYTHONPATH", "").split(os.pathsep)
    added = [one for one in given if one and one not in sys.path[1:]]  # the first entry is replaced below
    if program == PROGRAM:
        sys.argv = [program, *arguments]
        sys.path[:1] = [str(Path(program).parent), *added]
        return _run_registry
    if arguments[:1] == ["-P"]:  # a worker, whose code sets sys.path
        del arguments[0]
    kind, *rest = arguments
    if kind == "-c":
        code, *rest = rest
        sys.argv = ["-c", *rest]
        sys.path[:1] = ["", *added]
        return lambda: exec(compile(code, "<string>", "exec"), _new_main())  # noqa: S102 (a test's own code)
    if kind == "-m":
        module, *rest = rest
        sys.argv = [module, *rest]
        sys.path[:1] = [request["cwd"], *added]
        return lambda: _run_module(module)
    sys.argv = [kind, *rest]
    sys.path[:1] = [str(Path(kind).parent), *added]
    return lambda: exec(compile(Path(kind).read_text(), kind, "exec"), _new_main())  # noqa: S102 (a test's own code)


def _new_main() -> dict[str, Any]:
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    return main.__dict__


def _run_registry() -> None:
    from registry.cli.main import main

    main()


def _run_module(name: str) -> None:
    import runpy

    runpy.run_module(name, run_name="__main__", alter_sys=True)


def skip_syncs() -> None:
    """Files of tests need not survive a crash of the machine, and a publication would wait for some thirty syncs.

    What is written survives a killed process all the same, because the system has it.
    """
    from registry.catalog import session

    begin = session._begin_sqlite

    def begin_without_syncs(connection: Any) -> None:
        if session.is_writing(connection):
            with contextlib.suppress(sqlite3.Error):  # beginning reports the fault of the file
                connection.connection.driver_connection.execute("PRAGMA synchronous=OFF")
        begin(connection)

    session._begin_sqlite = begin_without_syncs
    os.fsync = lambda _descriptor: None


def _import(names: Sequence[str]) -> None:
    from importlib import import_module

    for name in names:
        with contextlib.suppress(ModuleNotFoundError):  # the environment beside TensorFlow has no drivers of databases
            import_module(name)
    if threading.active_count() > 1:
        raise RuntimeError(f"a fork would lack these threads: {threading.enumerate()}")
    gc.collect()
    gc.freeze()


def main(descriptor: str) -> None:
    """Import, fork for each request, and in each fork run its program."""
    _import(MODULES)
    skip_syncs()
    with socket.socket(fileno=int(descriptor)) as requests:
        program = serve(requests)
    if program is not None:
        _run_to_end(program)


def _run_to_end(program: Callable[[], None]) -> None:
    """Run the program of a fork, and end as an interpreter does, but without freeing what the origin imported.

    Freeing it takes 90 ms of CPU time, because each page has to be copied first.
    """
    code = 0
    try:
        program()
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        code = ended.code or 0
    threading._shutdown()  # type: ignore[attr-defined] # wait for threads
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # a full disk, a broken pipe, a closed file: the interpreter says so
        sys.exit(code)
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main(*sys.argv[1:])
