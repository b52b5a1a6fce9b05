"""``registry completion``, and the completion of datasets, versions, splits, builders and pins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from registry.cli.commands import documented
from registry.errors import RegistryError
from registry.model import Reference

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.api import Catalog


@documented(click.command, "completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    Examples:
        eval "$(registry completion bash)"     # in ~/.bashrc
        eval "$(registry completion zsh)"      # in ~/.zshrc
        registry completion fish > ~/.config/fish/completions/registry.fish
    """
    script = get_completion_class(shell)
    assert script is not None  # noqa: S101 (click has all three)
    click.echo(script(ctx.find_root().command, {}, "registry", "_REGISTRY_COMPLETE").source())


def complete_reference(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the datasets of the catalog that have a readable version."""
    return _offer(
        ctx, incomplete, lambda catalog: [dataset.dataset for dataset in catalog.datasets() if not dataset.is_withdrawn]
    )


def complete_version(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete datasets; after ``:`` the versions of a dataset, after ``@`` its aliases."""
    dataset, sign, _ = incomplete.partition("@" if "@" in incomplete else ":")
    if not sign:
        # Includes withdrawn datasets, which promote, yank --undo and drop --undo name.
        return _offer(ctx, incomplete, lambda catalog: [summary.dataset for summary in catalog.datasets()])

    def numbers(catalog: Catalog) -> list[str]:
        wanted = Reference.parse(dataset)
        standing = catalog.standing(wanted)
        names = standing.aliases if sign == "@" else [candidate.version for candidate in standing.candidates]
        return [f"{dataset}{sign}{name}" for name in names]

    return _offer(ctx, incomplete, numbers)


def complete_split(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the part after the last ``+`` with the splits of the dataset that precedes it."""
    before, plus, _ = incomplete.rpartition("+")

    def splits(catalog: Catalog) -> list[str]:
        return [f"{before}{plus}{name}" for name in (*catalog.look_up(ctx.params["reference"]).splits, "all")]

    return _offer(ctx, incomplete, splits) if "reference" in ctx.params else []


def complete_experiment(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the experiments of the catalog."""
    return _offer(ctx, incomplete, lambda catalog: [experiment.name for experiment in catalog.experiments.list()])


def complete_alias(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the aliases of the catalog."""
    return _offer(ctx, incomplete, lambda catalog: [str(alias.reference) for alias in catalog.aliases.list()])


def complete_builder(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the installed builders."""
    from registry.building import list_builders

    return _starting(incomplete, list_builders())


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the pins of the file that precedes it."""
    from registry.api.locations import open_pin_file

    try:
        names = list(open_pin_file(str(ctx.params["file"])))
    except (RegistryError, KeyError):
        return []
    # A shell prints the names that it offers, so names with control characters are left out.
    return _starting(incomplete, [name for name in names if name.isprintable()])


def _offer(ctx: click.Context, incomplete: str, names: Callable[[Catalog], Iterable[str]]) -> list[CompletionItem]:
    """Complete names from the catalog of the command, which is not created if it does not exist."""
    from registry.api import connect

    try:
        with connect(ctx.params.get("url"), data_dir=ctx.params.get("data_dir"), create=False) as catalog:
            return _starting(incomplete, names(catalog))
    except RegistryError:
        return []


def _starting(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
