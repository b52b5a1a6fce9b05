"""Runs the transcripts beside this file: what people type, and the whole of what the command line prints.

A transcript is a text file of sections. A section begins with ``== TITLE [FIXTURE]`` and has a fresh working folder,
``$PWD``, with what the fixture of ``conftest.py`` put there. A line with ``$ `` is run, and lines with ``> `` continue
it: ``registry`` runs in this process, also after ``NAME=VALUE``, and everything else in sh. Below it is what it prints:
stderr after ``! ``, and an exit code other than 0 in brackets. ``<*>`` stands for any text in a line, and what differs
from run to run, such as times, is replaced (``steady``). ``registry ... | pick PATH...`` prints these values of a JSON
answer, such as ``data.splits.*.name``, or of its error.

After a change of what is printed, ``REGISTRY_WRITE_TRANSCRIPTS=1 pytest -p no:xdist tests/cli/test_cli_transcripts.py``
writes the files again; read the difference before you commit it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import registry

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)
FOLDER = Path(__file__).with_name("transcripts")


@dataclass(frozen=True)
class Section:
    """A session at a shell: each command with the lines below it."""

    path: Path
    title: str
    fixture: str
    steps: tuple[tuple[str, tuple[str, ...]], ...]

    def __str__(self) -> str:
        shown = [f"== {self.title} [{self.fixture}]"]
        for command, printed in self.steps:
            shown += [f"$ {command}".replace("\n", "\n> "), *printed]
        return "\n".join(shown)


def sections(path: Path) -> Iterator[Section]:
    """The sections of a transcript."""
    for text in re.split(r"^== ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        head, *commands = re.split(r"^\$ ", text.rstrip("\n"), flags=re.MULTILINE)
        title, fixture = re.fullmatch(r"(.*) \[(\w+)\]\n", head).groups()  # type: ignore[union-attr]
        steps = []
        for command in commands:
            first, *lines = command.rstrip("\n").split("\n")
            number = next((at for at, line in enumerate(lines) if not line.startswith("> ")), len(lines))
            steps.append(("\n".join([first, *(line[2:] for line in lines[:number])]), tuple(lines[number:])))
        yield Section(path, title, fixture, tuple(steps))


SECTIONS = [section for path in sorted(FOLDER.glob("*.txt")) for section in sections(path)]


@pytest.mark.usefixtures("own_temporary_folder")
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: f"{section.path.stem}: {section.title}")
def test_transcript(
    section: Section, request: pytest.FixtureRequest, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = request.getfixturevalue(section.fixture)
    monkeypatch.chdir(workspace)
    steps = []
    for command, expected in section.steps:
        printed = tuple(run(command, cli, monkeypatch, workspace))
        is_same_length = len(printed) == len(expected)
        steps.append((command, tuple(map(_kept, expected, printed)) if is_same_length else printed))
    actual = Section(section.path, section.title, section.fixture, tuple(steps))
    if os.environ.get("REGISTRY_WRITE_TRANSCRIPTS"):
        text = section.path.read_text()
        assert str(section) in text, "remove the empty lines in front of commands"
        section.path.write_text(text.replace(str(section), str(actual)))
    else:
        assert str(actual) == str(section)


def run(command: str, cli: Cli, monkeypatch: pytest.MonkeyPatch, workspace: Path) -> Iterator[str]:
    """The lines that a command prints."""
    line, _, paths = command.partition(" | pick ")
    if line.startswith("cd "):
        monkeypatch.chdir(line[3:])
        return
    if re.match(r"([A-Z_]+=\S* )*registry ", line):
        words = [word.replace("$PWD", str(workspace)) for word in shlex.split(line)]
        begin = words.index("registry")
        with monkeypatch.context() as patch:
            for word in words[:begin]:
                patch.setenv(*word.split("=", 1))
            ran = cli(*words[begin + 1 :])
        out, err, code = ran.out, ran.err, ran.code
    else:
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
        out, err, code = done.stdout, done.stderr, done.returncode
    if paths:
        value = json.loads(out or "{}") | json.loads(err or "{}")  # the answer, and the error
        out, err = "".join(f"{path}: {json.dumps(pick(value, path.split('.')))}\n" for path in paths.split()), ""
    if not err and not code:  # the file has no empty lines in front of commands
        out = out.rstrip("\n")
    for prefix, text in (("", out), ("! ", err)):
        for printed in steady(text, workspace).splitlines():
            yield f"{prefix}{printed}".rstrip()
    if code:
        yield f"[{code}]"


def steady(text: str, workspace: Path) -> str:
    """The text without what differs from run to run; a table with such values has two spaces between its columns."""
    shown = text.replace(str(workspace), "$PWD").replace(f"shardbook {registry.__version__}", "shardbook VERSION")
    today = datetime.now(UTC).date()
    days = f"({today}|{today - timedelta(days=1)})"
    shown = re.sub(days + r"[ T][0-9:]{5,8}([.][0-9]+)?([+]00:00|Z)?", "MOMENT", shown)
    shown = re.sub(r"[(][0-9.]+ s[)]", "(SECONDS)", shown)
    shown = re.sub(r"claimed by [^)]+[)]", "claimed by USER)", shown)
    return shown if shown == text else re.sub(r"(?<=\S) {3,}", "  ", shown)


def pick(value: Any, path: list[str]) -> Any:
    """The value at a path, in which ``*`` is every item of a list."""
    if not path:
        return value
    if path[0] == "*":
        return [pick(item, path[1:]) for item in value]
    return pick(value[int(path[0])] if isinstance(value, list) else value.get(path[0]), path[1:])


def _kept(expected: str, printed: str) -> str:
    """The expected line if it fits."""
    return expected if re.fullmatch(re.escape(expected).replace("<\\*>", ".*"), printed) else printed
