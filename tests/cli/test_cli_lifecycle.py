"""Promote, deprecate, yank, drop and the default config on the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import warm_python

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def test_a_file_of_uses_that_does_not_read_is_named_with_its_line(numbers: Cli, workspace: Path) -> None:
    uses = workspace / "uses.txt"
    uses.write_text("numbers\nnumbers:x\n")
    ran = numbers("promote", "numbers:2.0.0", "--uses", str(uses))
    assert (ran.code, ran.err.splitlines()[0]) == (2, f"error: {uses}, line 2: invalid version request 'x'")
    uses.write_bytes(b"\xff\xfe")
    ran = numbers("promote", "numbers:2.0.0", "--uses", str(uses))
    assert (ran.code, ran.err.splitlines()[0].partition(": '")[0]) == (2, f"error: {uses} cannot be read as text")
    assert numbers("promote", "numbers:2.0.0", "--uses", str(workspace / "nowhere")).code == 2
    assert numbers("show", "numbers", "--format", "json").json()["data"]["version"] == "1.0.0"


@pytest.mark.usefixtures("numbers")
def test_the_shell_completes_versions() -> None:
    program = str(Path(sys.executable).parent / "registry")

    def completed(words: str) -> list[str]:
        environment = {
            **os.environ,
            "_REGISTRY_COMPLETE": "zsh_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        done = warm_python.run([program], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[1::3]

    assert completed("registry yank num") == ["numbers"]
    assert completed("registry yank numbers:1.1") == ["numbers:1.1.1", "numbers:1.1.0"]
    assert completed("registry promote words/de:") == ["words/de:2.0.0", "words/de:1.0.0"]
    assert completed("registry promote nobody:") == []
    assert completed("registry config set-default words/") == ["words/de", "words/en"]
