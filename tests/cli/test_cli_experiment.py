"""Flags of experiments in the shell."""

from __future__ import annotations

from collections.abc import Callable

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def test_the_shell_completes_flags(greetings: Cli) -> None:
    import click

    from registry.cli.experiment import set_default
    from registry.cli.main import cli as root

    with click.Context(set_default, parent=click.Context(root), info_name="set-default") as context:
        (argument, *_) = [one for one in set_default.params if one.name == "name"]
        items = argument.shell_complete(context, "new")
    assert [item.value for item in items] == ["new_shuffle"]
