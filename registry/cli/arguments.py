"""Arguments and options that several commands take, and what the shell offers for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from registry.errors import CatalogError, RegistryError
from registry.model import Reference, SlicingRule

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.api import Catalog


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


def _complete_split(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The splits of the dataset named before, for what follows the last ``+``."""
    try:
        with _connect_existing(ctx) as catalog:
            names = [*catalog.look_up(ctx.params["reference"]).splits, "all"]
    except (RegistryError, KeyError):
        return []
    before, plus, last = incomplete.rpartition("+")
    return [CompletionItem(f"{before}{plus}{name}") for name in names if name.startswith(last)]


def _complete_builder(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The builders that are installed."""
    from registry.building import list_builders

    return [CompletionItem(name) for name in list_builders() if name.startswith(incomplete)]


def _complete_experiment(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
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


def reference_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """REF: ``name[/config][:request | @alias]``."""
    return click.argument("reference", metavar="REF", shell_complete=complete_reference)(function)


def dataset_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """DATASET: ``name[/config]``."""
    return click.argument("dataset", metavar="DATASET", shell_complete=complete_reference)(function)


def split_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """SPLIT: a split expression."""
    return click.argument("split", metavar="SPLIT", shell_complete=_complete_split)(function)


def splits_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """SPLIT...: split expressions, one or more."""
    return click.argument("splits", metavar="SPLIT...", nargs=-1, required=True, shell_complete=_complete_split)(
        function
    )


def rounding_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--rounding: how the percents of SPLIT become record numbers."""
    return click.option(
        "--rounding",
        type=click.Choice(["closest", "pct1_dropremainder"]),
        help="How percents become record numbers.  [default: closest]",
    )(function)


def slicing_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--slicing: the rule by which SPLIT is resolved."""
    return click.option(
        "--slicing",
        type=click.Choice([rule.value for rule in SlicingRule]),
        help="The slicing rule, instead of the one that was published with the version.",
    )(function)


def builder_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """BUILDER: ``name[/config][:request]`` of an installed builder, or of ``package.module:Class``."""
    return click.argument("builder", metavar="BUILDER", shell_complete=_complete_builder)(function)


def experiment_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """NAME: an experiment of the catalog."""
    return click.argument("name", metavar="NAME", shell_complete=_complete_experiment)(function)


def alias_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """DATASET@NAME: an alias of the catalog."""
    return click.argument("reference", metavar="DATASET@NAME", shell_complete=complete_alias)(function)
