"""Pins moved to other versions on the command line: what is shown, what is asked, what is written."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


@pytest.fixture
def pins(numbers: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line in a folder with dataset.lock.yaml: numbers:1.0.* and numbers:2.0.0, the split train."""
    monkeypatch.chdir(workspace)
    assert numbers("pin", "create", "numbers:1.0.*", "old=train").code == 0
    assert numbers("pin", "add", "numbers:2.0.0", "new=train").code == 0
    return numbers


def told(path: str = "dataset.lock.yaml") -> dict[str, tuple[str, list[str]]]:
    """Version and locations of each pin of a file."""
    import registry

    entries = registry.load_pin(path).content["pins"]
    return {entry["name"]: (entry["version"], list(entry["locations"])) for entry in entries}


def test_unknown_fields_of_a_newer_release_are_kept(pins: Cli) -> None:
    from registry.pins import PinFile

    content = json.loads(json.dumps(dict(PinFile.load("dataset.lock.yaml").content)))
    content["pins"][1]["mood"] = "calm"
    content["weather"] = "fine"
    kept = PinFile.of(content["pins"], created_by="a newer release", base=PinFile.load("dataset.lock.yaml"))
    kept.save("dataset.lock.yaml", force=True)
    assert pins("pin", "update", "dataset.lock.yaml", "old", "--to", "1.1.0", "--yes").code == 0
    assert "    mood: calm\n" in Path("dataset.lock.yaml").read_text()


def test_pins_are_made_by_the_api_of_lines_of_text_and_by_one_process_at_least(
    pins: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    import registry
    from registry.errors import UsageError
    from registry.pins import create, measure

    file = registry.load_pin("dataset.lock.yaml")
    with registry.connect() as catalog, monkeypatch.context() as patched:
        dataset = catalog.dataset("numbers:2.0.0")
        with pytest.raises(UsageError, match=r"^processes must be 1 or more, not 0(?m:$)"):
            dataset.pin("train", processes=0)
        patched.setattr(create, "measure_records", None)  # nothing is hashed before
        with pytest.raises(UsageError, match=r"^invalid name of a pin: 5; expected one line of text(?m:$)"):
            dataset.pin({5: "train"})  # type: ignore[dict-item]
        with pytest.raises(UsageError, match=r"^invalid name of a pin: ''; expected one line of text(?m:$)"):
            dataset.pin({"": "train"})
        with pytest.raises(UsageError, match=r"^locations must be a sequence, not str(?m:$)"):
            dataset.pin("train", locations="https://x/y")
        with pytest.raises(UsageError, match=r"^locations must be a sequence or None, not str(?m:$)"):
            catalog.pins.update(file, locations="https://x/y")
    for deep in (False, True):
        with pytest.raises(UsageError, match=r"^processes must be 1 or more, not -1(?m:$)"):
            file["old"].verify(processes=-1, deep=deep)
    assert measure.measure_files(file["old"].store(), {}, processes=1) == {}


@pytest.mark.parametrize(("answer", "version"), [("n", "1.0.0"), ("y", "2.0.0")])
def test_on_a_terminal_you_are_asked(pins: Cli, monkeypatch: pytest.MonkeyPatch, answer: str, version: str) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
    ran = pins("pin", "update", "dataset.lock.yaml", "old", "--to", "2.*")
    assert ran.code == 0
    assert ran.err.startswith("Write it? [y/N]: ")
    assert told()["old"] == (version, [])
    assert ("wrote dataset.lock.yaml" in ran.out) == (answer == "y")
    monkeypatch.setattr("sys.stdin", Terminal(""))
    stopped = pins("pin", "update", "dataset.lock.yaml", "new", "--to", "1.1.0")
    assert stopped.code == 130
    assert told()["new"] == ("2.0.0", [])
