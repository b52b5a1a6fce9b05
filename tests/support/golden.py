"""Golden files of errors: class, message and hint of a group of errors, in a text file next to the tests.

``golden(name, calls)`` makes each call, which must raise an error of the registry, and compares all errors with
``golden/NAME.txt`` next to the test. After you change a message, ``REGISTRY_WRITE_GOLDEN=1 pytest ...`` writes the file
again; read the difference before you commit it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from registry.errors import RegistryError
from support import TESTS

_PLACE = re.compile(rf"{re.escape(str(TESTS))}/(\S+), line \d+")
"""A line of a test, which moves."""


def check_errors(
    path: Path,
    calls: Iterable[Callable[[], object]] | Mapping[str, Callable[[], object]],
    *,
    details: Sequence[str] = (),
    folder: str | Path | None = None,
) -> None:
    """Compare the errors of all calls with the file; each begins with its class and the builtins it derives from.

    Args:
        path: the golden file.
        calls: each raises an error of the registry. In a mapping, it has a name, which is above its error.
        details: the entries of ``details`` that each error must have, which are compared, too.
        folder: a temporary folder or its URL, which is FOLDER in the file.
    """
    named = calls.items() if isinstance(calls, Mapping) else (("", call) for call in calls)
    blocks = []
    for name, call in named:
        with pytest.raises(RegistryError) as caught:
            call()
        blocks.append((f"== {name}\n" if name else "") + _describe(caught.value, details))
    check_texts(path, blocks, folder=folder)


def check_texts(path: Path, texts: Iterable[str], *, folder: str | Path | None = None) -> None:
    """Compare texts, such as answers of commands, with the file; ``folder`` is as for ``check_errors``."""
    text = _PLACE.sub(r"\1, line N", "\n".join(texts))
    if folder is not None:
        text = text.replace(str(folder), "FOLDER")
    content = text.encode("utf-8", "backslashreplace")
    if os.environ.get("REGISTRY_WRITE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert content.decode() == path.read_bytes().decode()


def check_error(path: Path, case: str, error: RegistryError, replacing: Mapping[str, str] | None = None) -> None:
    """Compare one error with its case in a golden file, for cases that need a test each.

    Write the file with ``-n 0``: each test writes its own case.

    Args:
        path: the golden file; a case begins with a line ``== CASE``.
        case: the name of the case.
        error: the error.
        replacing: regular expressions of what differs between runs, each with the text in the file.
    """
    text = _describe(error, ())
    for pattern, replacement in (replacing or {}).items():
        text = re.sub(pattern, replacement, text)
    cases = dict(part.split("\n", 1) for part in path.read_text().split("== ")[1:]) if path.exists() else {}
    if os.environ.get("REGISTRY_WRITE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        cases[case] = text
        path.write_text("".join(f"== {name}\n{words}" for name, words in cases.items()))
    assert text == cases[case]


def _describe(error: RegistryError, details: Sequence[str]) -> str:
    json.dumps(error.details)  # commands print them
    builtins = [kind.__name__ for kind in type(error).__mro__[1:-3] if kind.__module__ == "builtins"]
    lines = [", ".join([type(error).__name__, *builtins]), str(error)]
    lines += [f"hint: {error.hint}"] if error.hint else []
    return "\n".join([*lines, *(f"{key}: {error.details[key]!r}" for key in details)]) + "\n"
