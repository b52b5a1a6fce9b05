"""Every subcommand of ``registry pin``: its help page, its examples, and what the shell offers."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from support import warm_python

from registry.cli.main import cli as root
from registry.cli.pin import pin

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)
VERBS = pin.list_commands(click.Context(pin))


def subcommand(name: str) -> click.Command:
    found = pin.get_command(click.Context(pin), name)
    assert found is not None
    return found


def test_the_group_lists_every_verb(cli: Cli) -> None:
    ran = cli("pin", "--help")
    assert ran.code == 0
    listed = ran.out.split("Commands:\n")[1].splitlines()
    assert [line.split()[0] for line in listed] == VERBS
    bare = cli("pin")
    assert (bare.code, bare.out, bare.err) == (2, "", ran.out)
    unknown = cli("pin", "shwo")
    assert (unknown.code, unknown.err.splitlines()[0]) == (2, "error: no command 'pin shwo'")
    assert unknown.err.splitlines()[1].startswith("hint: Did you mean 'show'? There are: create, add, show")


@pytest.mark.parametrize("verb", VERBS)
def test_help_pages(cli: Cli, verb: str) -> None:
    ran = cli("pin", verb, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: registry pin {verb} [OPTIONS] ")
    assert "\n  Examples:\n    registry pin " in ran.out or "\n  Examples:\n    REGISTRY_" in ran.out
    for parameter in subcommand(verb).params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.name} says nothing"
            assert not parameter.help.endswith(" "), f"the help of {parameter.name} is cut off"
            assert parameter.opts[0] in ran.out
    assert cli("pin", verb).code == 2, "every verb needs an argument"


@pytest.mark.parametrize("verb", VERBS)
def test_the_examples_are_command_lines(verb: str) -> None:
    lines = [line.strip() for line in str(subcommand(verb).epilog).splitlines() if "registry pin" in line]
    assert lines
    for line in lines:
        words = shlex.split(line.partition(">>")[0])
        words = words[words.index("pin") + 1 :]
        assert words[0] == verb
        with root.make_context("registry", ["pin"], resilient_parsing=True) as parent:
            subcommand(verb).make_context(verb, words[1:], parent=parent)


def test_opening_the_help_of_pins_loads_no_numpy() -> None:
    code = (
        "import sys; from registry.cli.main import run; run(['pin', '--help']); run(['pin', 'verify', '--help']);"
        "sys.exit(sorted({'numpy', 'pydantic', 'sqlalchemy', 'cryptography', 'yaml'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("registry pin re", {"read", "restore"}),
        ("registry pin verify dataset.lock.yaml ''", {"train", "tail"}),
        ("registry pin verify dataset.lock.yaml train t", {"train", "tail"}),
        ("registry pin read dataset.lock.yaml ta", {"tail"}),
        ("registry pin restore dataset.lock.yaml tr", {"train"}),
        ("registry pin update none.yaml t", set()),
        ("registry pin create di", {"digits"}),
        ("registry pin create digits tr", {"train"}),
        ("registry pin verify dataset.lock.yaml --against di", {"digits"}),
    ],
)
def test_completion_offers_verbs_and_pins(
    digits: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch, words: str, offered: set[str]
) -> None:
    monkeypatch.chdir(workspace)
    digits("pin", "create", "digits", "train=train[:80%]", "tail=train[80%:]")
    given = shlex.split(words)
    environment = {
        **os.environ,
        "_REGISTRY_COMPLETE": "bash_complete",
        "COMP_WORDS": words.removesuffix("''"),
        "COMP_CWORD": str(len(given) - 1),
    }
    program = str(Path(sys.executable).parent / "registry")
    done = warm_python.run([program], env=environment, capture_output=True, text=True, check=False)
    assert {line.partition(",")[2] for line in done.stdout.splitlines() if line} == offered
    assert done.stderr == ""
