"""Signals that arrive while a command ends, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import registry

PROGRAM = """
import os, signal, sys
from registry.cli import faults, main

sent = [int(number) for number in sys.argv[1].split(",")]
describe = faults.describe_failure

def interrupted(*arguments, **options):
    for number in sent:
        os.kill(os.getpid(), number)
    return describe(*arguments, **options)

def run(*arguments, **options):
    os.kill(os.getpid(), signal.SIGINT)

faults.describe_failure = interrupted
if sys.argv[2] == "interrupted":
    main.cli.main = run
sys.argv[1:] = ["show", "absent"]
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)  # they may be ignored where the tests run
main.main()
"""


def ended(folder: Path, signals: str, how: str) -> tuple[int, str]:
    """Run a command that ends with an error, and gets signals while that is printed. Returns the exit code and stderr.

    Args:
        folder: is empty.
        signals: their numbers.
        how: "interrupted" if Ctrl-C ends the command, "failed" otherwise.
    """
    environment = {**os.environ, "REGISTRY_CATALOG": str(folder / "catalog.db")}
    command = [sys.executable, "-c", PROGRAM, signals, how]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_first_one_is_reported_prints_no_traceback(number: int, tmp_path: Path) -> None:
    code, error = ended(tmp_path, str(int(number)), "interrupted")
    assert error == (
        "error: interrupted\nhint: No unfinished change is visible. Run the same command again to finish.\n"
    )
    assert code == 130


def test_a_signal_while_an_error_is_printed_leaves_its_message(tmp_path: Path) -> None:
    code, error = ended(tmp_path, str(int(signal.SIGINT)), "failed")
    assert error.startswith(f"error: no catalog at {tmp_path}/catalog.db: no such file\nhint: ")
    assert "Traceback" not in error
    assert code == 3


def test_a_second_signal_ends_a_command_that_cannot_print_its_error(tmp_path: Path) -> None:
    assert ended(tmp_path, f"{int(signal.SIGINT)},{int(signal.SIGINT)}", "failed") == (130, "")


CLOSING = """
import os, signal, sys
from sqlalchemy.engine.default import DefaultDialect
from registry.cli import main

def interrupted(dialect, connection):
    os.kill(os.getpid(), signal.SIGINT)
    connection.close()

def build(*arguments, **options):
    DefaultDialect.do_close = interrupted
    os.kill(os.getpid(), signal.SIGINT)

from registry.api.catalog import Catalog
Catalog.build = build
sys.argv[1:] = ["build", "digits"]
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)  # they may be ignored where the tests run
main.main()
"""


def test_a_second_signal_while_a_connection_closes_prints_no_traceback(tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.db"
    with registry.connect(catalog, create=True):
        pass
    environment = {**os.environ, "REGISTRY_CATALOG": str(catalog)}
    command = [sys.executable, "-c", CLOSING]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.lstrip() == (
        "error: interrupted\nhint: No unfinished change is visible. Run the same command again to finish.\n"
    )
