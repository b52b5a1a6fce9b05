"""The commands whose JSON output is compared with what the release printed that wrote the catalogs and pins.

``make_frozen.py.txt`` ran them with that release, the tests run them now. Nothing of the registry is imported here.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

CATALOG = [
    "list",
    "versions lab/small",
    "versions lab/large",
    "versions lab_mnist",
    "show lab",
    "show lab/small:1.0.0",
    "show lab/small:1.*",
    "show lab/small@paper",
    "show lab/small:1.1.0",
    "show lab/small:2.1.0",
    "show lab/small:3.0.0",
    "show lab/large",
    "show flat",
    "show lab_mnist:3.0.1",
    "show lab_array:1.0.0",
    "show animals",
    "show away:3.0.1",
    "versions lab/small --at {before_yank}",
    "show lab/small:1.* --at {before_yank}",
    "show lab/small@paper --at {before_yank}",
    "config list lab",
    "alias list",
    "alias history lab/small@paper",
    "alias history lab/small@old",
    "experiment list",
    "reservation list",
    "search nested",
    "search class_label",
    "search mnist",
    "diff lab/small:1.0.0 lab/small:1.1.0",
    "diff lab/small:1.2.0 lab/small:2.0.0",
    "log --limit 1000",
    "resolve lab train[10%:60%]",
    "resolve lab/large many[3:77]",
    "resolve lab_mnist:3.0.1 test[-1shard:]+train[33.3%:66%]",
    "resolve animals all",
    "split check lab train[:80%] train[80%:]",
    "read lab train --take 4",
    "read lab/small:1.0.0 train[-3:]",
    "read lab/small:1.1.0 test",
    "read lab/large many[50:60]",
    "read flat train",
    "read lab_mnist:3.0.1 test[:5] --ids",
    "read lab_array:1.0.0 train[:3]",
    "read animals train[:3]",
    "read lab/large many --shuffle files --shuffle-seed 42 --ids",
    "read lab/large many --shuffle global --shuffle-seed 42 --ids",
    "db check",
    "log verify",
    "verify --all --deep",
]
"""Commands on a catalog. They get ``--catalog`` and ``--data-dir``."""

UPGRADED = [
    "list", "versions lab/small", "versions lab_mnist", "show lab", "show lab/small:1.0.0", "alias list",
    "config list lab", "resolve lab/large many[3:77]", "read lab train --take 4", "read animals train[:3]",
    "experiment list", "search nested", "db check", "verify --all",
]  # fmt: skip
"""Commands on a catalog of an earlier schema, after ``db upgrade``."""

PIN_FILES = ["one", "several", "shuffled", "global", "signed"]
PINS = [
    *(f"pin {verb} {{pins}}/{name}.lock.yaml" for name in PIN_FILES for verb in ("show", "verify --data {data}")),
    *(f"pin verify {{pins}}/{name}.lock.yaml --deep --data {{data}}" for name in ("one", "several")),
    "pin read {pins}/one.lock.yaml train --data {data}",
    "pin read {pins}/several.lock.yaml many --ids --data {data}",
    "pin read {pins}/several.lock.yaml heldout --data {data}",
    "pin read {pins}/shuffled.lock.yaml many --ids --data {data}",
    "pin read {pins}/global.lock.yaml many --ids --data {data}",
    "pin check {pins}/signed.lock.yaml --key {pins}/lab.key.pub",
    "pin diff {pins}/one.lock.yaml {pins}/several.lock.yaml",
    "pin cite {pins}/one.lock.yaml",
    "pin verify {bundle}/dataset.lock.yaml",
]
"""Commands on pin files, without a catalog."""

PROSE = {"why", "verdict", "notes", "note", "hint", "lines", "summary", "told", "warnings"}
"""Keys whose values are sentences: they may be worded anew."""


def outputs(
    run: Callable[[Sequence[str]], int], commands: Sequence[str], places: dict[str, str], options: Sequence[str] = ()
) -> dict[str, Any]:
    """The exit code and the output of each command; ``places`` fill in paths and moments, and are taken out again."""
    told: dict[str, Any] = {}
    for command in commands:
        words = [word.format(**places) for word in command.split()]
        json_lines = words[0] == "read" or words[:2] == ["pin", "read"]
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = run([*words, *options, *([] if json_lines else ["--format", "json"])])
        text = out.getvalue()
        for name in ("pins", "bundle", "data", "catalog"):
            if name in places:
                text = text.replace(places[name], f"<{name}>")
        if json_lines:
            found: Any = [json.loads(line) if line.startswith("{") else line for line in text.splitlines()]
        else:
            found = without_prose(json.loads(text)["data"]) if text else None
        told[command] = {"code": code, "out": found}
    return told


def without_prose(value: Any) -> Any:
    """``value`` of a JSON output without sentences."""
    if isinstance(value, dict):
        return {key: without_prose(item) for key, item in value.items() if key not in PROSE}
    return [without_prose(item) for item in value] if isinstance(value, list) else value


def conformance_data(folder: Path) -> dict[str, Path]:
    """Where the shards come from that other tools prepared, by their place below the data directory."""
    return {
        "lab_mnist/3.0.1": folder / "prepared/lab_mnist/3.0.1",
        "lab_array/1.0.0": folder / "formats/lab_array/1.0.0",
    }
