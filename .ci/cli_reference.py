"""Write docs/cli.md from the commands themselves, or check that it is fresh.

python .ci/cli_reference.py [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from registry.cli.main import cli

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEAD = """# Command line

Every command and option, written from the commands themselves by `.ci/cli_reference.py`.

Data goes to stdout, messages to stderr. `--format json` prints `{"schema": ..., "data": ..., "warnings": [...]}`, and
errors as `{"error": {"code", "message", "hint", "details"}}` on stderr.

A reference is `name[/config][:request | @alias]`; a request is a version (`3.0.1`), a wildcard
(`3.*.*`, `3.*`, `3`) or a range (`^3.1`, `~3.1`, `>=3.1,<4`).

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failure |
| 2 | the call is wrong: an option, a reference, a split expression |
| 3 | not found |
| 4 | conflict: that number is published with other content, or an alias was moved meanwhile |
| 5 | verification failed |
| 6 | withdrawn: the version is yanked or dropped; or not allowed: a look-up where they are locked, a pin's location |
| 8 | the catalog's schema is out of date, or newer than this software |
| 75 | temporary: the database is busy, or a store does not answer; try again |
| 130 | interrupted |
"""


def commands(command: click.Command, path: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """Every command below ``command`` with the text of its help page."""
    with click.Context(
        command,
        info_name=path.rsplit(maxsplit=1)[-1],
        parent=parent,
        max_content_width=100,
        terminal_width=100,
        help_option_names=["-h", "--help"],
    ) as ctx:
        yield path, command.get_help(ctx)
        if isinstance(command, click.Group):
            for name in command.list_commands(ctx):
                child = command.get_command(ctx, name)
                if child is not None:
                    yield from commands(child, f"{path} {name}", ctx)


def reference() -> str:
    """The text of docs/cli.md."""
    pages = (f"\n## {path}\n\n```text\n{text}\n```\n" for path, text in commands(cli, "registry"))
    return HEAD + "".join(pages)


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
