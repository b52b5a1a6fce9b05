"""Signals that arrive while a command ends, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
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


VERIFYING = """
import os, signal, sys, time
from pathlib import Path
from registry.cli import main
from registry.publishing import verify

def hash_slowly(*arguments, **options):
    Path(os.environ["BEGUN"]).touch()
    end = time.monotonic() + 600
    while time.monotonic() < end:
        pass

verify.hash_file = verify.walk_file = hash_slowly
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)  # they may be ignored where the tests run
main.main()
"""


@pytest.mark.parametrize("arguments", [["digits"], ["--all"]], ids=" ".join)
@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_verification_of_a_file_before_its_end(
    number: int, processes: str, arguments: list[str], tmp_path: Path
) -> None:
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.build("digits")
    begun = tmp_path / "begun"
    environment = {**os.environ, "REGISTRY_CATALOG": str(tmp_path / "catalog.db"), "BEGUN": str(begun)}
    command = [sys.executable, "-c", VERIFYING, "verify", *arguments, "-j", processes]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as running:
        try:
            while not begun.exists():
                assert running.poll() is None
                time.sleep(0.02)
            running.send_signal(number)
            out, err = running.communicate(timeout=60)  # a file takes ten minutes
        finally:
            running.kill()
    assert running.returncode == 128 + number
    assert err.lstrip().startswith("error: interrupted\n")
    assert "Traceback" not in err
    assert out.startswith("stopped early: no version was verified (" if "--all" in arguments else "")
