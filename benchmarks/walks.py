"""Counts the files and functions of the registry that an operation runs, for five operations on the digits dataset.

    python benchmarks/walks.py [--json] [--functions]

Counts the functions and methods written in the folder ``registry`` and in the builders that are entered at least once,
in this process and its threads, and the files that hold them; not lambdas, comprehensions and generator expressions.
Imports do not count: each operation runs once in a process that notes which modules it loads, and is counted in
a second process, which loads these first. The catalog is open before counting starts. Only the public API is used, so
that the script can count another checkout as well: run it with that checkout's interpreter. ``BEFORE`` holds what it
counted there before the core was restructured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

BEFORE_COMMIT = "028c6d4"
BEFORE = {
    "look-up -> list of train[:10%]": (92, 455),
    "build -> row": (114, 555),
    "TFDS import": (96, 440),
    "pin verify": (53, 223),
    "look-up": (20, 53),
}


def read(folder: Path) -> Callable[[], object]:
    """Look the digits up and read a tenth of them into a list."""
    catalog = published(folder)
    return lambda: list(catalog.dataset("digits").read("train[:10%]"))


def build(folder: Path) -> Callable[[], object]:
    """Build the digits into an empty catalog, down to the row."""
    catalog = connect(folder)
    return lambda: catalog.build("digits")


def import_tfds(folder: Path) -> Callable[[], object]:
    """Import the prepared digits in place."""
    published(folder / "prepared")
    catalog = connect(folder)
    return lambda: list(catalog.import_tfds(folder / "prepared" / "data" / "digits"))


def verify_pin(folder: Path) -> Callable[[], object]:
    """Verify a loaded pin of one slice: every file and every record."""
    import registry

    published(folder).dataset("digits").pin("train[:80%]").save(folder / "pins.lock.yaml")
    pin = registry.load_pin(folder / "pins.lock.yaml")["train"]
    return lambda: pin.verify().require_sound()


def look_up(folder: Path) -> Callable[[], object]:
    """Look the digits up."""
    catalog = published(folder)
    return lambda: catalog.dataset("digits")


WALKS = {
    "look-up -> list of train[:10%]": read,
    "build -> row": build,
    "TFDS import": import_tfds,
    "pin verify": verify_pin,
    "look-up": look_up,
}


def connect(folder: Path) -> Any:
    import registry

    folder.mkdir(exist_ok=True)
    return registry.connect(folder / "catalog.db", data_dir=folder / "data")


def published(folder: Path) -> Any:
    """A catalog in ``folder`` in which the digits are published."""
    catalog = connect(folder)
    catalog.build("digits")
    return catalog


def trace(name: str, modules: list[str]) -> dict[str, Any]:
    """Run one walk in this process: the functions it enters as ``file:line name``, and the modules that are loaded."""
    for module in modules:
        import_module(module)
    import registry
    import registry.builders

    own = tuple(f"{Path(folder).absolute()}{os.sep}" for folder in (*registry.__path__, *registry.builders.__path__))
    entered = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(own):
            entered.add(frame.f_code)

    with tempfile.TemporaryDirectory() as folder:
        # The user's cache may hold columns of the digits, and the user may have settings of a service.
        os.environ |= {"REGISTRY_CACHE_DIR": f"{folder}/cache", "XDG_DATA_HOME": f"{folder}/share"}
        walk = WALKS[name](Path(folder))
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            walk()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    root = Path(own[0]).parent
    imports = str(root / "registry" / "lazy.py")
    named = [code for code in entered if not code.co_name.startswith("<") and code.co_filename != imports]
    return {
        "functions": sorted(
            f"{Path(code.co_filename).relative_to(root)}:{code.co_firstlineno} {code.co_qualname}" for code in named
        ),
        "modules": sorted(module for module in sys.modules if module.startswith("registry.")),
    }


def count(name: str) -> list[str]:
    """The functions of one walk, from a process in which nothing is left to import."""
    found: dict[str, Any] = {"modules": []}
    for _ in range(2):
        command = [sys.executable, __file__, "--trace", name]
        text = subprocess.run(
            command, input=json.dumps(found["modules"]), capture_output=True, text=True, check=True
        ).stdout
        found = json.loads(text)
    return list(found["functions"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the counts, before and now, as JSON")
    parser.add_argument("--functions", action="store_true", help="list the files of each walk")
    parser.add_argument("--trace", choices=WALKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.trace:
        print(json.dumps(trace(options.trace, json.load(sys.stdin))))
        return
    walks = {name: count(name) for name in WALKS}
    files = {name: Counter(function.partition(":")[0] for function in walk) for name, walk in walks.items()}
    if options.json:
        now = {name: {"files": len(files[name]), "functions": len(walk)} for name, walk in walks.items()}
        before = {name: dict(zip(("files", "functions"), counts, strict=True)) for name, counts in BEFORE.items()}
        print(json.dumps({"before": {"commit": BEFORE_COMMIT, "walks": before}, "now": now}, indent=2))
        return
    print(f"{'':<32}{'at ' + BEFORE_COMMIT:>20}{'now':>20}")
    print(f"{'':<32}{'files functions':>20}{'files functions':>20}")
    for name, walk in walks.items():
        old_files, old_functions = BEFORE[name]
        print(f"{name:<32}{old_files:>10}{old_functions:>10}{len(files[name]):>10}{len(walk):>10}")
    if options.functions:
        for name in walks:
            print(f"\n{name}")
            for file, functions in sorted(files[name].items()):
                print(f"{functions:>6} {file}")


if __name__ == "__main__":
    main()
