"""The command line beside a store that does not answer: exit code 75, and Ctrl-C within a moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import warm_python
from support.fault_proxy import FaultProxy
from support.levels import cases

import registry

from .conftest import Ran

Cli = Callable[..., Ran]
HINT = (  # behind how often it was tried, unless another thread had given the server up before
    "Try again later. REGISTRY_CONNECT_TIMEOUT, REGISTRY_READ_TIMEOUT, REGISTRY_RETRY_TIMEOUT "
    "and REGISTRY_TRIES set how long to wait."
)


@pytest.fixture
def stored(bucket: str, fault_proxy: FaultProxy, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a bucket with the shipped digits, in the catalog of ``workspace``."""
    monkeypatch.setenv("REGISTRY_DATA_DIR", f"{bucket}/datasets")
    with registry.connect(workspace / "catalog.db", data_dir=f"{bucket}/datasets") as catalog:
        catalog.build("digits")
    fault_proxy.reset()
    return f"{bucket}/datasets"


COMMANDS = {"read": ["read", "digits", "train", "--take", "1"], "verify": ["verify", "digits"]}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_endpoint_that_is_not_there(cli: Cli, stored: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli(*COMMANDS[command]).code == 0
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    ran = cli(*COMMANDS[command], "--format", "json")
    error = ran.error()
    assert (ran.code, error["code"]) == (75, "storage_unavailable")
    assert error["hint"].removeprefix("It was tried 3 times. ") == HINT
    assert error["message"].startswith(f"cannot read {stored}/digits/")
    assert error["message"].endswith(": the server cannot be reached")


@pytest.mark.parametrize("command", cases(COMMANDS, everyday=1))
def test_an_endpoint_that_is_silent(
    cli: Cli, stored: str, command: str, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_READ_TIMEOUT", "0.3")
    fault_proxy.inject("silence")
    ran = cli(*COMMANDS[command])
    assert ran.code == 75
    assert "the server did not answer in time" in ran.err
    assert HINT in ran.err.replace("\n", " ")


@pytest.mark.parametrize("command", cases(COMMANDS, everyday=1))
def test_ctrl_c_ends_a_command_whose_store_is_silent(stored: str, command: str, fault_proxy: FaultProxy) -> None:
    fault_proxy.inject("silence")
    environment = os.environ | {"REGISTRY_READ_TIMEOUT": "300", "REGISTRY_RETRY_TIMEOUT": "300"}
    process = warm_python.Popen(
        [sys.executable, "-m", "registry", *COMMANDS[command]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        for _ in range(1200):  # a minute, for a machine that is busy
            if fault_proxy.count():
                break
            fault_proxy.closed.wait(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)  # far less than the server would be waited for
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (130, "")
    # the line that the shell wrote ^C into is ended first
    assert err == "\nerror: interrupted\nhint: No unfinished change is visible. Run the same command again to finish.\n"
