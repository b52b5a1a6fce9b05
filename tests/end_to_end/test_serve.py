"""``registry serve`` as processes: it starts, answers, survives the death of a worker, and ends after its requests."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from support import warm_python
from support.browse_process import Serve, read_answer
from support.warm_python import PROGRAM

import registry
from registry.errors import CatalogRefusedError
from registry.model import new_secret
from registry.server.serve import allow_open_files

SECONDS = 60


def wait_until(condition: Any) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_refused(server: Serve) -> bool:
    try:
        socket.create_connection(server.place).close()
    except ConnectionRefusedError:
        return True
    return False


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


def refused(catalog: Path, *options: str, **environment: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the error of ``registry serve`` that does not start."""
    ran = warm_python.run(
        [PROGRAM, "serve", "--format", "json", *options],
        env=os.environ | {"REGISTRY_CATALOG": str(catalog)} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    error: dict[str, Any] = json.loads(ran.stderr)["error"]
    return ran.returncode, error


def test_a_client_needs_only_the_url_and_the_token_that_init_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Serve(tmp_path / "catalog.db", "--init") as server:
        assert server.token.startswith("shb_")
        assert [json.loads(server.get(path).body) for path in ("/health", "/ready")] == [
            {"status": "alive"},
            {"status": "ready"},
        ]
        with registry.connect(tmp_path / "catalog.db") as catalog:
            catalog.add({"number": range(10)}, name="numbers")
        monkeypatch.setenv("REGISTRY_TOKEN", server.token)
        with registry.connect(server.url) as catalog:
            examples = list(catalog.dataset("numbers").read("train"))
        assert sorted(example["number"] for example in examples) == list(range(10))
        monkeypatch.setenv("REGISTRY_TOKEN", new_secret()[1])
        with registry.connect(server.url) as catalog, pytest.raises(CatalogRefusedError):
            catalog.datasets()
        assert server.token not in Path(f"/proc/{server.process.pid}/cmdline").read_text(encoding="utf-8")
        code, log = server.end(signal.SIGTERM)
    assert code == 0
    assert server.token not in log
    requests = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert {(line["call"], line["principal"], line["status"]) for line in requests} >= {
        ("health", None, 200),
        ("find", "admin", 200),
        ("transfer", "admin", 206),
    }
    assert requests[0].keys() == {"time", "level", "id", "principal", "token", "call", "status", "ms"}
    with Serve(tmp_path / "catalog.db", "--init", is_new=False) as server:
        assert server.get("/health").status == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.stdout.read() == ""  # there is a token


def test_sigterm_ends_it_after_the_requests_in_flight(tmp_path: Path) -> None:
    with Serve(tmp_path / "catalog.db", "--init") as server:
        with server.open_call("now", b"{ }", sent=1, Expect="100-continue") as connection:
            assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")  # it waits for the body
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: is_refused(server))
            connection.sendall(b" }")
            answer = read_answer(connection)
        assert (answer.status, answer.body[:3]) == (200, b'"20')
        assert server.process.wait(SECONDS) == 0


def test_ctrl_c_while_it_starts_leaves_no_traceback(tmp_path: Path) -> None:
    with Serve(tmp_path / "catalog.db", "--init", start_new_session=True) as server:
        wait_until(server.workers)
        os.killpg(server.process.pid, signal.SIGINT)  # as a terminal does
        assert server.process.wait(SECONDS) == 0
        assert server.printed().splitlines()[-1] == "Press Ctrl-C to stop."


def test_a_worker_that_is_killed_is_replaced_and_the_others_go_on(tmp_path: Path) -> None:
    with Serve(tmp_path / "catalog.db", "--init", "--workers", "2") as server:
        assert server.call("now").status == 200
        wait_until(lambda: len(server.workers()) == 2)
        before = server.workers()
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: len(set(server.workers()) - set(before)) == 1)
        assert [server.call("now").status for _ in range(20)] == [200] * 20
        login = {"Authorization": f"Bearer {server.token}"}
        counted = re.compile(rb'requests_total{call="now",status="200"} 2\d\n')  # by all workers together
        wait_until(lambda: counted.search(server.get("/metrics", **login).body))
        assert server.end()[0] == 0


def test_a_worker_may_open_more_files_than_a_shell_allows() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (900, before[1]))
    try:
        allow_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(4000, before[1]), before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_workers_end_when_the_process_that_watches_them_is_killed(tmp_path: Path) -> None:
    with Serve(tmp_path / "catalog.db", "--init", "--workers", "2") as server:
        assert server.call("now").status == 200
        workers = server.workers()
        server.process.kill()
        wait_until(lambda: not any(map(is_running, workers)))
    assert len(workers) == 2


def test_the_settings_of_a_file_are_used_and_checked(tmp_path: Path) -> None:
    catalog, file = tmp_path / "catalog.db", tmp_path / "service.yaml"
    file.write_text(f'catalog: "{catalog}"\nanonymous_reads: true\nworkers: 1\n', encoding="utf-8")
    with Serve(tmp_path / "other.db", "--init", "--config", str(file)) as server:
        server.token = ""
        assert server.call("datasets", Authorization="").status == 200
    assert (catalog.exists(), (tmp_path / "other.db").exists()) == (True, False)
    file.write_text("workers: 2\nprot: 80\n", encoding="utf-8")
    code, error = refused(catalog, "--config", str(file))
    assert (code, error["message"]) == (2, f"{file}, line 2: prot: unknown setting")
    assert error["hint"].startswith("Did you mean port? The settings are: catalog, data_dir, ")
    code, error = refused(catalog, REGISTRY_SERVE_PORT="80a")
    assert (code, error["message"]) == (2, "REGISTRY_SERVE_PORT is '80a': expected a number from 0 to 65535")


def test_it_does_not_start_without_a_database_or_a_free_port(tmp_path: Path) -> None:
    code, error = refused(tmp_path / "none.db")
    assert (code, error["code"]) == (3, "catalog_not_found")
    code, error = refused(tmp_path / "none.db", "--catalog", "https://example.org/")
    assert error["message"] == "registry serve needs the database of a catalog, not a site or a service"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code, error = refused(tmp_path / "catalog.db", "--init", "--port", str(port))
    assert (code, error["message"]) == (4, f"port {port} cannot be used: address already in use")


def test_the_files_of_the_data_directory_are_served_by_every_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Serve(tmp_path / "catalog.db", "--init", "--workers", "2") as server:
        monkeypatch.setenv("REGISTRY_TOKEN", server.token)
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "client"))
        with registry.connect(server.url) as catalog:
            for size in (20, 30):
                catalog.add({"number": range(size)}, name="numbers")
                assert len(catalog.dataset("numbers").read("train")) == size
            assert catalog.data_dir == f"{server.url}api/v1/data"
        assert server.end()[0] == 0
    with registry.connect(tmp_path / "catalog.db") as catalog:
        assert catalog.data_dir == str(tmp_path / "datasets")
        assert catalog.verify_all(deep=True).failed == ()
