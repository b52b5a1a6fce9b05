"""``registry completion``: the script that teaches a shell to complete commands, datasets and splits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from registry.cli.commands import examples
from registry.errors import CatalogError, RegistryError
from registry.model import Reference

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.api import Catalog


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
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL."""
    script = get_completion_class(shell)
    assert script is not None  # noqa: S101 (click has all three)
    click.echo(script(ctx.find_root().command, {}, "registry", "_REGISTRY_COMPLETE").source())


def complete_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files: the shell knows best."""
    return [CompletionItem(incomplete, type="file")]


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The pins of the file named before."""
    from registry.api.pin_files import open_pin_file

    try:
        names = list(open_pin_file(str(ctx.params["file"])))
    except (RegistryError, KeyError):
        return []
    # A shell prints what it offers: a name that steers the terminal is typed by who wants it.
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and name.isprintable()]


def _connect_existing(ctx: click.Context) -> Catalog:
    """The catalog that the command would use; CatalogError where it is not there yet, for a TAB makes no files."""
    from registry.api import catalog_url, connect
    from registry.catalog import sqlite_path

    path = sqlite_path(catalog_url(ctx.params.get("url")))
    if path is not None and not path.exists():
        raise CatalogError(f"{path} does not exist yet")
    return connect(ctx.params.get("url"), data_dir=ctx.params.get("data_dir"))


def complete_reference(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The datasets of the catalog that start with what was typed."""
    try:
        with _connect_existing(ctx) as catalog:
            names = [summary.dataset for summary in catalog.datasets()]
    except RegistryError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_version(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The datasets that start with what was typed; once one is typed whole, its versions and aliases."""
    dataset, sign, _ = incomplete.partition("@" if "@" in incomplete else ":")
    if not sign:
        return complete_reference(ctx, param, incomplete)
    try:
        with _connect_existing(ctx) as catalog:
            wanted = Reference.parse(dataset)
            standing = catalog.standing(wanted.name, wanted.config)
    except RegistryError:
        return []
    names = standing.aliases if sign == "@" else [one.version for one in standing.candidates]
    items = [f"{dataset}{sign}{name}" for name in names]
    return [CompletionItem(item) for item in items if item.startswith(incomplete)]


def complete_split(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The splits of the dataset named before, for what follows the last ``+``."""
    try:
        with _connect_existing(ctx) as catalog:
            names = [*catalog.look_up(ctx.params["reference"]).splits, "all"]
    except (RegistryError, KeyError):
        return []
    before, plus, last = incomplete.rpartition("+")
    return [CompletionItem(f"{before}{plus}{name}") for name in names if name.startswith(last)]


def complete_builder(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The builders that are installed."""
    from registry.building import list_builders

    return [CompletionItem(name) for name in list_builders() if name.startswith(incomplete)]


def complete_experiment(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The experiments of the catalog that start with what was typed."""
    try:
        with _connect_existing(ctx) as catalog:
            names = [experiment.name for experiment in catalog.experiments.list()]
    except RegistryError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_alias(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The aliases of the catalog that start with what was typed."""
    try:
        with _connect_existing(ctx) as catalog:
            names = [str(alias.reference) for alias in catalog.aliases.list()]
    except RegistryError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
