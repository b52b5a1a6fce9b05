"""Golden files of errors: class, message and hint of a family of refusals, in one text file beside the tests.

``golden(name, calls)`` makes each call, which has to raise an error of the registry, and compares all of them with
``golden/NAME.txt`` beside the test. After a change of words, ``REGISTRY_WRITE_GOLDEN=1 pytest ...`` writes the file
again; read the difference before you commit it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from registry.errors import RegistryError


def check_errors(path: Path, calls: Iterable[Callable[[], object]]) -> None:
    """Compare the errors of all calls with the file; each begins with its class and the builtins it derives from."""
    blocks = []
    for call in calls:
        with pytest.raises(RegistryError) as caught:
            call()
        error = caught.value
        builtins = [kind.__name__ for kind in type(error).__mro__[1:-3] if kind.__module__ == "builtins"]
        kinds = ", ".join([type(error).__name__, *builtins])
        blocks.append(f"{kinds}\n{error}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
    text = "\n".join(blocks)
    if os.environ.get("REGISTRY_WRITE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
