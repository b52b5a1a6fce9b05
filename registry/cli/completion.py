"""``registry completion``: the script that teaches a shell to complete commands, datasets and splits."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from registry.cli.options import examples


@click.command(
    "completion",
    epilog=examples(
        'eval "$(registry completion bash)"     # in ~/.bashrc',
        'eval "$(registry completion zsh)"      # in ~/.zshrc',
        "registry completion fish > ~/.config/fish/completions/registry.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL."""
    script = get_completion_class(shell)
    assert script is not None  # noqa: S101 (click has all three)
    click.echo(script(ctx.find_root().command, {}, "registry", "_REGISTRY_COMPLETE").source())
