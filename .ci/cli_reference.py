"""Writes docs/cli.md from the commands themselves, or checks that it is up to date.

python .ci/cli_reference.py [--check]

An option that three or more commands take with the same description is described once, at the top of the page.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from registry.cli.main import cli

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
SHARED_BY = 3
"""The number of commands from which on an option is described at the top."""

HEAD = """# Command line

This page lists every command and option. It is generated from the commands by `.ci/cli_reference.py`.

Data goes to stdout, messages to stderr. With `--format json`, stdout gets one value,
`{"schema": ..., "data": ..., "warnings": [...]}`, and stderr gets errors as
`{"error": {"code", "message", "hint", "details"}}`. With `REGISTRY_DEBUG=1`, errors come with a traceback.

`REF` is a reference, `name[/config][:request | @alias]`. A request is a version (`3.0.1`), a wildcard
(`3.*.*`, `3.*`, `3`) or a range (`^3.1`, `~3.1`, `>=3.1,<4`). `SPLIT` is a split expression, e.g. `'train[:10%]'`.
Quote both: shells give `*`, `>`, `[` and `]` a meaning.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failure |
| 2 | the call is wrong: an option, a reference, a split expression |
| 3 | not found |
| 4 | conflict: the number is published with other content, or an alias was moved meanwhile |
| 5 | verification failed |
| 6 | the version is yanked or dropped; or not allowed: a look-up while look-ups are locked, a location of a pin |
| 8 | the catalog's schema is out of date, or newer than this software |
| 75 | temporary: the database is busy, or a store does not answer; try again |
| 130, 143 | interrupted by Ctrl-C, by SIGTERM |

## Common options

These options mean the same in every command that takes them. The last line of a command names those that it takes.
Every command also has `-h, --help`.
"""

OptionKey = tuple[str, str]
"""The names of an option and its description, as a help page shows them."""


class Page(NamedTuple):
    """A command, and the context in which click prints its help."""

    path: str
    command: click.Command
    ctx: click.Context


def walk(command: click.Command, path: str, parent: click.Context | None = None) -> Iterator[Page]:
    """Every command below ``command``, and itself."""
    with click.Context(
        command,
        info_name=path.rsplit(maxsplit=1)[-1],
        parent=parent,
        max_content_width=100,
        terminal_width=100,
        help_option_names=[],
    ) as ctx:
        yield Page(path, command, ctx)
        if isinstance(command, click.Group):
            for name in command.list_commands(ctx):
                child = command.get_command(ctx, name)
                if child is not None:
                    yield from walk(child, f"{path} {name}", ctx)


def options_of(page: Page) -> Mapping[OptionKey, click.Option]:
    """The options of a command."""
    options = [one for one in page.command.params if isinstance(one, click.Option)]
    return {record: one for one in options if (record := one.get_help_record(page.ctx)) is not None}


def describe(page: Page, shared: Mapping[OptionKey, int]) -> str:
    """The section of one command: its help without the shared options, and the names of those."""
    named = {key: option for key, option in options_of(page).items() if key in shared}
    for option in named.values():
        option.hidden = True
    try:
        text = page.command.get_help(page.ctx)
    finally:
        for option in named.values():
            option.hidden = False
    ordered = sorted(named, key=list(shared).index)
    also = "\nCommon options: " + ", ".join(f"`{key[0].split()[0].rstrip(',')}`" for key in ordered) + "\n"
    return f"\n## {page.path}\n\n```text\n{text}\n```\n{also if named else ''}"


def reference() -> str:
    """The text of docs/cli.md."""
    pages = list(walk(cli, "registry"))
    counts = Counter(key for page in pages for key in options_of(page))
    shared = {key: count for key, count in counts.most_common() if count >= SHARED_BY}
    lines = [f"| `{names.replace('|', chr(92) + '|')}` | {help_text} |" for names, help_text in shared]
    table = "\n".join(["\n| option | meaning |", "|---|---|", *lines]) + "\n"
    return HEAD + table + "".join(describe(page, shared) for page in pages)


def main() -> int:
    """Write or check; the exit code."""
    text = reference()
    if "--check" not in sys.argv[1:]:
        REFERENCE.write_text(text, encoding="utf-8")
    elif not REFERENCE.exists() or REFERENCE.read_text(encoding="utf-8") != text:
        print("docs/cli.md is out of date: run python .ci/cli_reference.py", file=sys.stderr)  # noqa: T201 (a script)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
