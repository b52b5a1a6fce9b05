"""A hostile pin file of a megabyte and any shape is read or refused in the memory of a small machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.levels import cases
from support.pin_law_samples import whole_file

from registry.errors import PinFormatError
from registry.pins import PinFile, yaml_text
from registry.pins.yaml_text import read_yaml

MEGABYTE = 1_000_000
MANY = 200_000

READ = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (500_000_000, 500_000_000))
from registry.errors import RegistryError
from registry.pins import PinFile
try:
    PinFile.from_yaml(open(sys.argv[1], "rb").read(), "f")
except RegistryError as error:
    print(type(error).__name__, str(error)[:200].splitlines()[0])
"""


def nested(*keys: str, inner: str) -> str:
    """``inner`` under nested keys."""
    return "".join(f"{' ' * depth}{key}:\n" for depth, key in enumerate(keys)) + f"{' ' * len(keys)}{inner}\n"


KEYS = [chr(ord("a") + number % 26) * 1000 for number in range(45)]
TOO_LONG = f"PinFormatError f: line 2, {'a' * 60}...: its key path is longer than 2000 characters"
FIVE_FAULTS = "PinFormatError f: 5 faults"
MANY_FAULTS = "PinFormatError f: more than 10,000 values are malformed"
BOMBS = {
    "long keys in each other": (nested(*KEYS, inner=f"[{'a,' * MANY}]"), TOO_LONG),
    "many items under long keys": (
        nested("a" * 990, "b" * 990, inner=f"[{'a,' * (2 * MANY)}]"),
        FIVE_FAULTS,
    ),
    "many keys under long keys": (
        nested("a" * 990, "b" * 990, inner="{" + "".join(f"k{number}: 1, " for number in range(80_000)) + "}"),
        FIVE_FAULTS,
    ),
    "pins that are texts": (f"pins: [{'a,' * MANY}]\n", MANY_FAULTS),
    "pins that are empty": (f"pins: [{'{},' * MANY}]\n", MANY_FAULTS),
    "files that are empty": (f"pins: [{{files: [{'{},' * MANY}]}}]\n", MANY_FAULTS),
    "labels that are numbers": (
        f"pins: [{{features: {{labels: {{{'l' * 990}: [{'1,' * MANY}]}}}}}}]\n",
        MANY_FAULTS,
    ),
    "numbers instead of labels": (
        f"pins: [{{features: {{labels: {{{', '.join(f'l{number}: 1' for number in range(80_000))}}}}}}}]\n",
        MANY_FAULTS,
    ),
    "experiments that are numbers": (
        f"pins: [{{experiments: {{{', '.join(f'e{number}: 1' for number in range(80_000))}}}}}]\n",
        MANY_FAULTS,
    ),
    "names for tags": (
        "".join(f"%TAG !a{number}! b\n" for number in range(MEGABYTE // 17)),
        "PinFormatError f: line 1: %TAG is not allowed in a pin file",
    ),
    "names for tags, behind": (
        "a: 1\n...\n" + "".join(f"%TAG !a{number}! b\n" for number in range(MEGABYTE // 17)),
        "PinFormatError f: line 3: %TAG is not allowed in a pin file",
    ),
    "a long number": (
        f"a: {'1_' * (MEGABYTE // 2)}\n",
        f"PinFormatError f: line 1, a: YAML parsers disagree about the type of {'1_' * 17}",
    ),
    "a sound file with many items more": (
        f"{whole_file()}x:\n {'a' * 990}:\n  {'b' * 990}: [{'a,' * MANY}]\n",
        "PinChangedError f: it was changed since the file was written: its digest does not match its content",
    ),
}


@pytest.mark.parametrize("shape", cases(BOMBS, everyday=3))
def test_a_hostile_file_of_a_megabyte_takes_less_than_500_megabytes(shape: str, tmp_path: Path) -> None:
    text, reported = BOMBS[shape]
    path = tmp_path / "f"
    path.write_text(text, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert (ran.returncode, ran.stdout.strip()[: len(reported)], ran.stderr) == (0, reported, "")


def test_a_key_path_may_have_two_thousand_characters() -> None:
    keys = ["a" * 999, "b" * 1000]
    assert read_yaml(nested(*keys, inner="1").encode(), "f").value == {keys[0]: {keys[1]: 1}}
    with pytest.raises(PinFormatError) as caught:
        read_yaml(nested("a" * 999, "b" * 996, inner="[1, {x: 1}]").encode(), "f")
    assert caught.value.message == f"f: line 3, {'a' * 60}...: its key path is longer than 2000 characters"


def test_a_fault_after_the_recorded_lines_has_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "_MAX_LINES_BYTES", 400)
    text = "a: 1\nb: 2\nc: 3\nd: 4\n"
    assert read_yaml(text.encode(), "f").lines == {"": 1, "a": 1, "b": 2}
    with pytest.raises(PinFormatError) as caught:
        read_yaml(f"{text}d: 5\n".encode(), "f")
    assert caught.value.message == "f: line 5, d: the key is given twice, before and here"


def test_a_fault_behind_the_first_thousand_items_is_found() -> None:
    content = read_yaml(whole_file().encode(), "f").value
    content["pins"][0]["why"] = ["a text"] * 1500 + [5]
    with pytest.raises(PinFormatError) as caught:
        PinFile.from_yaml(json.dumps(content).encode(), "f")
    assert [fault["key"] for fault in caught.value.details["faults"]] == ["pins[0].why[1500]"]
    content["pins"][0]["why"][1] = 6
    with pytest.raises(PinFormatError) as caught:
        PinFile.from_yaml(json.dumps(content).encode(), "f")
    assert caught.value.details["faults"][0]["key"] == "pins[0].why[1]"
