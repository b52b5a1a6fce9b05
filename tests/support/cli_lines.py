"""Parses a command line as a shell and the registry would, without running it."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress

import click

from registry.cli.main import cli

OPERATORS = {"|", ">", ">>", "&&", "<", "2>&1"}


def parse_line(line: str) -> list[str]:
    """The arguments of the ``registry`` command in ``line``, parsed by click.

    Raises:
        AssertionError: a shell would give an unquoted character another meaning.
        click.UsageError: the registry would refuse the line.
    """
    for word in re.sub(r"'[^']*'|\"[^\"]*\"", "_", line.partition("  #")[0]).split():
        is_pattern_of_files = word.endswith((".yaml", ".tar", ".csv"))
        assert word in OPERATORS or is_pattern_of_files or not set(word) & set("*?[]()<>!;&|`{}"), (word, line)
    words = shlex.split(line, comments=True)
    start = words.index("registry") + 1
    stop = next((place for place in range(start, len(words)) if words[place] in OPERATORS), len(words))
    with suppress(click.exceptions.Exit):  # --help
        parse(words[start:stop])
    return words[start:stop]


def parse(arguments: list[str], command: click.Command = cli, parent: click.Context | None = None) -> None:
    """Parse ``arguments`` as ``command`` does, and its subcommands; nothing is run."""
    ctx = command.make_context(command.name, list(arguments), parent=parent)
    if isinstance(command, click.Group) and ctx._protected_args + ctx.args:
        _, child, rest = command.resolve_command(ctx, ctx._protected_args + ctx.args)
        assert child is not None
        parse(rest, child, ctx)
