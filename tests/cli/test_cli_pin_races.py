"""Several write one pin file at once: no pin is lost, and who cannot go on says so."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import warm_python
from support.levels import either

import registry
from registry.errors import ConflictError
from registry.pins import PinFile

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

FILE = "dataset.lock.yaml"
NOTE = "note: numbers:2.0.0 is experimental: the canonical version is 1.0.0\n"
CHANGED = f"error: {FILE} was changed by somebody else in the meantime\nhint: Run the same command again.\n"


@pytest.fixture
def pins(numbers: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line in a folder with dataset.lock.yaml: numbers:1.0.*, the split train."""
    monkeypatch.chdir(workspace)
    assert numbers("pin", "create", "numbers:1.0.*", "old=train").code == 0
    return numbers


def start(*arguments: str) -> subprocess.Popen[str]:
    """A process of its own that runs a command line."""
    code = "import sys; from registry.cli.main import run; sys.exit(run(sys.argv[1:]))"
    return warm_python.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("count", either(3, 6))
def test_pins_that_are_added_at_once_are_all_there(pins: Cli, count: int) -> None:
    running = [start("pin", "add", "numbers:2.0.0", f"p{number}=train") for number in range(count)]
    told = [(process.communicate(), process.returncode) for process in running]
    assert [(err, code) for (_, err), code in told] == [(NOTE, 0)] * count
    assert {*registry.load_pin(FILE)} == {"old", *(f"p{number}" for number in range(count))}
    assert pins("pin", "verify", FILE).code == 0


def test_of_two_other_pins_with_one_name_one_is_refused(pins: Cli) -> None:
    running = [start("pin", "add", "numbers:2.0.0", f"p=train[:{stop}]") for stop in (1, 2)]
    told = sorted((process.communicate()[1], process.returncode) for process in running)
    assert told[0] == (NOTE, 0)
    kept = registry.load_pin(FILE)["p"].split
    lost = "train[:1]" if kept == "train[:2]" else "train[:2]"
    assert told[1] == (
        f"{NOTE}error: the file already has another pin 'p': numbers:2.0.0 {kept}\n"
        f"hint: Choose another name: NAME={lost}\n",
        4,
    )


class Terminal(io.StringIO):
    """A terminal on which somebody thinks while another process adds a pin."""

    def isatty(self) -> bool:
        return True

    def readline(self, size: int | None = -1, /) -> str:
        _, err = start("pin", "add", "numbers:2.0.0", "new=train").communicate()
        assert err == NOTE
        return super().readline(-1 if size is None else size)


def test_an_update_does_not_undo_what_was_written_while_it_asked(pins: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdin", Terminal("y\n"))
        ran = pins("pin", "update", FILE, "old", "--to", "2.*")
    assert (ran.code, ran.err.removeprefix("Write it? [y/N]: ")) == (4, CHANGED)
    assert {pin.name: str(pin.reference) for pin in registry.load_pin(FILE).values()} == {
        "old": "numbers:1.0.0",
        "new": "numbers:2.0.0",
    }
    assert pins("pin", "update", FILE, "old", "--to", "2.*", "--yes").code == 0


def test_a_file_is_replaced_only_where_it_is_the_expected_one(pins: Cli) -> None:
    old = registry.load_pin(FILE)
    assert pins("pin", "add", "numbers:2.0.0", "new=train").code == 0
    newer = registry.load_pin(FILE)
    for content in (newer.to_yaml(), "no pin file", newer.to_yaml().replace("numbers", "letters"), None):
        Path(FILE).unlink()
        if content is not None:
            Path(FILE).write_text(content, encoding="utf-8")
        with pytest.raises(ConflictError) as caught:
            old.save(FILE, force=True, expected="sha256:" + "0" * 64)
        assert caught.value.message == f"{FILE} was changed by somebody else in the meantime"
        Path(FILE).touch()
    old.save(FILE, force=True)
    newer.save(FILE, force=True, expected=old.digest)
    newer.save(FILE, force=True, expected=old.digest)  # is there already
    assert PinFile.load(FILE) == newer


def test_what_was_added_before_stays_as_others_left_it(pins: Cli) -> None:
    base = registry.load_pin(FILE)
    with registry.connect() as catalog:
        more = catalog.dataset("numbers:2.0.0").pin({"more": "train"}, into=base)
        same = catalog.dataset("numbers:1.0.*").pin({"old": "train"}, into=base)
    assert pins("pin", "update", FILE, "old", "--to", "2.*", "--yes").code == 0
    assert more.add_to(FILE, base) == registry.load_pin(FILE)
    assert {pin.name: str(pin.reference) for pin in registry.load_pin(FILE).values()} == {
        "old": "numbers:2.0.0",
        "more": "numbers:2.0.0",
    }
    assert same == base
    with pytest.raises(ConflictError):
        same.add_to(FILE, base)
